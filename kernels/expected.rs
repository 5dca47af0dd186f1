//! What every launch of the kernels in this folder must give, computed in plain Rust from the CUDA source's
//! meaning, not from the PTX. Tests include this file by path.

use sim::launch::{Buffers, Launch};
use std::collections::BTreeMap;

/// A number that buffers hold.
trait Element: Copy + Default {
    fn load(bytes: &[u8]) -> Self;
    fn store(self, out: &mut Vec<u8>);
}

macro_rules! element {
    ($($t:ty)*) => {$(
        impl Element for $t {
            fn load(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(bytes.try_into().unwrap())
            }
            fn store(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
element!(u8 i16 i32 u32 i64 u64 f32 f64);

/// A launch's inputs, and the buffers after it.
struct Run<'l> {
    launch: &'l Launch,
    buffers: Buffers,
}

impl Run<'_> {
    /// The argument at `i`, an integer.
    fn int(&self, i: usize) -> i64 {
        let a = &self.launch.args[i];
        a.i32.or(a.i64).unwrap()
    }
    fn size(&self, i: usize) -> usize {
        self.int(i) as usize
    }
    fn get<T: Element>(&self, name: &str) -> Vec<T> {
        self.buffers[name].chunks_exact(size_of::<T>()).map(T::load).collect()
    }
    fn set<T: Element>(&mut self, name: &str, values: &[T]) {
        let mut bytes = Vec::new();
        values.iter().for_each(|v| v.store(&mut bytes));
        assert_eq!(bytes.len(), self.buffers[name].len(), "{name}");
        self.buffers.insert(name.to_string(), bytes);
    }
    /// Replaces the first elements of a buffer.
    fn update<T: Element>(&mut self, name: &str, n: usize, f: impl Fn(usize, T) -> T) {
        let mut v: Vec<T> = self.get(name);
        for (i, x) in v.iter_mut().enumerate().take(n) {
            *x = f(i, *x);
        }
        self.set(name, &v);
    }
}

/// The contents of all buffers after the launch.
///
/// # Panics
/// If the kernel is not one of this folder's.
pub fn expected(launch: &Launch) -> Buffers {
    let buffers: BTreeMap<_, _> = launch.buffers.iter().map(|(n, b)| (n.clone(), b.generate())).collect();
    let mut r = Run { launch, buffers };
    match launch.kernel.as_str() {
        "saxpy" => {
            let (a, x) = (launch.args[1].f32.unwrap() as f32, r.get::<f32>("x"));
            r.update("y", r.size(0), |i, y: f32| a.mul_add(x[i], y));
        }
        "vecadd2d" => vecadd2d(&mut r),
        "divsqrt" => {
            let (n, x, y) = (r.size(5), r.get::<f32>("x"), r.get::<f32>("y"));
            r.update("quotient", n, |i, _: f32| x[i] / y[i]);
            r.update("root", n, |i, _: f32| x[i].sqrt());
            r.update("recip", n, |i, _: f32| 1.0 / y[i]);
        }
        "dot" => {
            let (a, b) = (r.get::<f32>("a"), r.get::<f32>("b"));
            let sum: i64 = (0..r.size(3)).map(|i| a[i] as i64 * b[i] as i64).sum();
            r.update("out", 1, |_, x: f32| x + sum as f32);
        }
        "matmul" => matmul(&mut r),
        "transpose" => {
            let (x, width, height) = (r.get::<u32>("in"), r.size(2), r.size(3));
            r.update("out", width * height, |i, _: u32| x[i % height * width + i / height]);
        }
        "histogram" => {
            let data = r.get::<u8>("data");
            let data = &data[..r.size(1)];
            r.update("bins", 256, |i, x: u32| {
                x + data.iter().filter(|d| usize::from(**d) == i).count() as u32
            });
        }
        "scan" => {
            let x = r.get::<i32>("in");
            r.update("out", x.len(), |i, _: i32| x[i / 256 * 256..=i].iter().sum());
        }
        "bitonic" => {
            let mut keys = r.get::<u32>("keys");
            keys.chunks_mut(256).for_each(<[u32]>::sort_unstable);
            r.set("keys", &keys);
        }
        "mandelbrot" => mandelbrot(&mut r),
        "collatz" => collatz(&mut r),
        "sha256" => {
            let (messages, length) = (r.get::<u8>("messages"), r.size(1));
            let digests: Vec<u32> = messages.chunks(length).take(r.size(3)).flat_map(sha256).collect();
            r.set("digests", &digests);
        }
        "nbody" => nbody(&mut r),
        "stencil3d" => stencil3d(&mut r),
        "daxpy" => {
            let (a, x) = (launch.args[1].f64.unwrap(), r.get::<f64>("x"));
            r.update("y", r.size(0), |i, y: f64| a.mul_add(x[i], y));
        }
        "ddot" => ddot(&mut r),
        "dpoly" => {
            let (n, x) = (r.size(4), r.get::<f64>("x"));
            let poly = |v: f64| (0..6).fold(0.125f64, |p, k| p.mul_add(v, f64::from(k - 3)));
            r.update("y", n, |i, _: f64| poly(x[i]));
            r.update("q", n, |i, _: f64| poly(x[i]) / x[i]);
            r.update("r", n, |i, _: f64| x[i].abs().sqrt());
        }
        "call_scalar" => {
            let n = r.size(1);
            let poly = |x: f32, n: usize| (0..n).fold(x, |s, _| s.mul_add(x, 0.5));
            r.update("p", 96, |i, x: f32| poly(x, n) + poly(x * 0.5, n + i % 3));
        }
        "call_struct" => call_struct(&mut r),
        "call_many" => {
            const FACTORS: [i32; 16] = [1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 0, 1];
            let v = r.get::<i32>("in");
            r.update("out", 33, |t, _: i32| {
                let terms = FACTORS.iter().zip(&v[16 * t..]).map(|(f, x)| f.wrapping_mul(*x));
                terms.fold(0, i32::wrapping_add)
            });
        }
        "call_recursive" => {
            let fib = |n: usize| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
            r.update("p", r.size(1), |i, _: i32| fib(i % 11));
        }
        "call_indirect" => {
            let (op, a, b) = (r.get::<i32>("op"), r.get::<i32>("a"), r.get::<i32>("b"));
            r.update("out", op.len(), |i, _: i32| match op[i] {
                0 => a[i] + b[i],
                1 => a[i] ^ b[i],
                _ => {
                    let (mut x, mut n) = (a[i], 0);
                    while x > b[i] {
                        x = x / 2 - 1;
                        n += 1;
                    }
                    n
                }
            });
        }
        "call_shared" => {
            let x = r.get::<i32>("p");
            let next = |v: &[i32]| -> Vec<i32> { (0..64).map(|i| v[(i + 1) % 64]).collect() };
            let a = next(&x);
            let b = next(&a.iter().map(|v| v * 3).collect::<Vec<i32>>());
            r.update("p", 64, |i, _: i32| x[(i + 5) % 64] + a[i] - b[i]);
        }
        "jumptable" => jumptable(&mut r),
        "localarray" => localarray(&mut r),
        "spill" => {
            let (rounds, mut v) = (r.int(2) as u32, r.get::<u32>("in"));
            for v in v.chunks_mut(72) {
                for round in 0..rounds {
                    for k in 0..72 {
                        let term = (v[(k + 31) % 72] >> 3).wrapping_add(v[(k + 50) % 72] ^ round);
                        v[k] = v[k].wrapping_mul(5).wrapping_add(term);
                    }
                }
            }
            r.set("out", &v);
        }
        "divergent" => divergent(&mut r),
        "structparam" => structparam(&mut r),
        "constant" => constant(&mut r),
        "fill" => {
            let v = r.int(1) as i32;
            r.update("p", r.size(2), |_, _: i32| v);
        }
        "iota" => r.update("p", r.size(1), |i, _: i32| i as i32),
        "scale" => {
            let s = launch.args[1].f32.unwrap() as f32;
            r.update("p", r.size(2), |_, x: f32| x * s);
        }
        "clampf" => {
            let bound = |i: usize| launch.args[i].f32.unwrap() as f32;
            let (low, high) = (bound(1), bound(2));
            r.update("p", r.size(3), |_, x: f32| if x > low { x.min(high) } else { low });
        }
        "reverse" => {
            let (n, x) = (r.size(2), r.get::<i16>("in"));
            r.update("out", n, |i, _: i16| x[n - 1 - i]);
        }
        "count" => {
            let (x, key) = (r.get::<i32>("in"), r.int(2) as i32);
            let n = x[..r.size(3)].iter().filter(|v| **v == key).count();
            r.update("out", 1, |_, c: i32| c + n as i32);
        }
        "convert" => {
            let (n, x) = (r.size(4), r.get::<f64>("in"));
            r.update("f", n, |i, _: f32| x[i] as f32);
            r.update(
                "k",
                n,
                |i, _: i32| if x[i].is_nan() { i32::MIN } else { x[i].round_ties_even() as i32 },
            );
            r.update("u", n, |i, _: u64| if x[i].is_nan() { 1 << 63 } else { (x[i] as f32).abs() as u64 });
        }
        "maxima" => {
            let x = r.get::<i32>("in");
            let x = &x[..r.size(2)];
            r.update("best", 4, |k, b: i32| x.iter().skip(k).step_by(4).fold(b, |b, v| b.max(*v)));
        }
        other => panic!("no expected result for kernel '{other}'"),
    }
    r.buffers
}

fn vecadd2d(r: &mut Run<'_>) {
    let (a, b, mut c) = (r.get::<f32>("a"), r.get::<f32>("b"), r.get::<f32>("c"));
    let (width, height, pitch) = (r.size(3), r.size(4), r.size(5));
    for i in (0..height).flat_map(|y| (0..width).map(move |x| y * pitch + x)) {
        c[i] = a[i] + b[i];
    }
    r.set("c", &c);
}

fn matmul(r: &mut Run<'_>) {
    let (a, b, n) = (r.get::<f32>("a"), r.get::<f32>("b"), r.size(3));
    r.update("c", n * n, |i, _: f32| (0..n).fold(0f32, |s, k| a[i / n * n + k].mul_add(b[k * n + i % n], s)));
}

fn mandelbrot(r: &mut Run<'_>) {
    let (width, height, limit) = (r.size(1), r.size(2), r.int(3) as i32);
    r.update("out", width * height, |i, _: i32| {
        let (px, py) = (i % width, i / width);
        let mut total = 0;
        for s in 0..4 {
            let cx = ((2 * px + s % 2) as f32).mul_add(0.046875, -2.25);
            let cy = ((2 * py + s / 2) as f32).mul_add(0.0625, -1.0);
            let (mut x, mut y, mut k) = (0f32, 0f32, 0);
            while x * x + y * y <= 4.0 {
                k += 1;
                if k >= limit {
                    break;
                }
                (x, y) = (x * x - y * y + cx, (x + x).mul_add(y, cy));
            }
            total += k;
            if k == limit {
                break;
            }
        }
        total
    });
}

fn collatz(r: &mut Run<'_>) {
    let (n, start, d, d64) = (r.size(3), r.get::<u64>("start"), r.int(4) as i32, r.int(5));
    r.update("length", n, |i, _: i32| {
        let (mut x, mut steps) = (start[i], 0);
        while x != 1 && steps < 200 {
            x = if x % 2 == 1 { x.wrapping_mul(3).wrapping_add(1) } else { x / 2 };
            steps += 1;
        }
        steps
    });
    r.update("mixed", n, |i, _: i64| {
        let v = start[i].wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        let (w, u) = (v as i32, v as u32);
        let mut r = v.wrapping_div(d64).wrapping_add(v.wrapping_rem(d64).wrapping_mul(3));
        r ^= i64::from(w.wrapping_div(d)) + i64::from(w.wrapping_rem(d)) * 5;
        r ^= i64::from(u / d as u32) * 7 + i64::from(u % d as u32);
        let (v64, d64) = (v as u64, d64 as u64);
        r = r.wrapping_add((v64 / d64).wrapping_sub(v64 % d64) as i64);
        let small = (w / 7 + w % 10) as u32;
        r = r.wrapping_add(small.wrapping_add(u / 641).wrapping_add(u % 1_000_003).into());
        r.wrapping_add(v / 1_000_000_007 + v % 97)
    });
}

/// The first primes.
fn primes() -> impl Iterator<Item = u128> {
    (2u128..).filter(|n| (2..*n).all(|d| n % d != 0))
}

/// The whole part of the cube root.
fn cube_root(n: u128) -> u128 {
    let mut root = 0;
    for bit in (0..42).rev() {
        let next = root | 1 << bit;
        if next * next * next <= n {
            root = next;
        }
    }
    root
}

/// SHA-256 of a message of at most 55 bytes, its constants taken from their definition.
fn sha256(message: &[u8]) -> [u32; 8] {
    let k: Vec<u32> = primes().take(64).map(|p| cube_root(p << 96) as u32).collect();
    let mut h = [0; 8];
    primes().zip(&mut h).for_each(|(p, h)| *h = (p << 64).isqrt() as u32);
    let mut block = [0; 64];
    block[..message.len()].copy_from_slice(message);
    block[message.len()] = 0x80;
    block[56..].copy_from_slice(&(8 * message.len() as u64).to_be_bytes());
    let mut w: Vec<u32> = block.chunks(4).map(|b| u32::from_be_bytes(b.try_into().unwrap())).collect();
    for i in 16..64 {
        let (a, b) = (w[i - 15], w[i - 2]);
        let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
    }
    let mut s = h;
    for (k, w) in k.iter().zip(&w) {
        let [a, b, c, d, e, f, g, last] = s;
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let t1 = [s1, choice, *k, *w].iter().fold(last, |t, x| t.wrapping_add(*x));
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t2 = s0.wrapping_add(a & b ^ a & c ^ b & c);
        s = [t1.wrapping_add(t2), a, b, c, d.wrapping_add(t1), e, f, g];
    }
    for (h, s) in h.iter_mut().zip(s) {
        *h = h.wrapping_add(s);
    }
    h
}

fn call_struct(r: &mut Run<'_>) {
    let k = r.size(2);
    let (mut small, mut large) = (r.buffers["small"].clone(), r.get::<i32>("large"));
    for (i, s) in small.chunks_exact_mut(32).enumerate() {
        let word = |s: &[u8], k: usize| i32::load(&s[4 * k..4 * k + 4]);
        let n = (k + i) % 5;
        let x = word(s, n).wrapping_add(3);
        s[4 * n..4 * n + 4].copy_from_slice(&x.to_le_bytes());
        let d = i64::load(&s[24..32]).wrapping_mul(word(s, (k + i + 1) % 5).into());
        s[24..32].copy_from_slice(&d.to_le_bytes());
    }
    for (i, v) in large.chunks_exact_mut(24).enumerate() {
        let old = v.to_vec();
        for (j, x) in v.iter_mut().enumerate() {
            *x = old[(j + i + k) % 24].wrapping_mul(i as i32 - 20).wrapping_add(i as i32);
        }
    }
    r.buffers.insert("small".into(), small);
    r.set("large", &large);
}

fn nbody(r: &mut Run<'_>) {
    let (p, n) = (r.get::<f32>("position"), r.size(2));
    let softening = f64::from(r.launch.args[3].f32.unwrap() as f32);
    // In binary64: the launch file states how far binary32 with an approximate root may be from it.
    let at = |i: usize, c: usize| f64::from(p[4 * i + c]);
    r.update("acceleration", 4 * n, |k, _: f32| {
        let (i, c) = (k / 4, k % 4);
        if c == 3 {
            return 0.0;
        }
        let sum: f64 = (0..n)
            .map(|j| {
                let d = [0, 1, 2].map(|c| at(j, c) - at(i, c));
                let square = d.iter().map(|d| d * d).sum::<f64>() + softening;
                d[c] * at(j, 3) * square.powf(-1.5)
            })
            .sum();
        sum as f32
    });
}

fn stencil3d(r: &mut Run<'_>) {
    let (input, nx, ny, nz) = (r.get::<f32>("in"), r.size(2), r.size(3), r.size(4));
    r.update("out", nx * ny * nz, |i, old: f32| {
        let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
        let inner = |c: usize, n: usize| c >= 1 && c + 1 < n;
        if !inner(x, nx) || !inner(y, ny) || !inner(z, nz) {
            return old;
        }
        let pair = |d: usize| input[i - d] + input[i + d];
        (-6f32).mul_add(input[i], pair(1) + pair(nx) + pair(nx * ny))
    });
}

fn ddot(r: &mut Run<'_>) {
    let (a, b, n) = (r.get::<f64>("a"), r.get::<f64>("b"), r.size(3));
    let mut part: Vec<f64> =
        (0..64).map(|t| (t..n).step_by(64).fold(0.0, |s, i| a[i].mul_add(b[i], s))).collect();
    while part.len() > 1 {
        let half = part.len() / 2;
        part = (0..half).map(|t| part[t] + part[t + half]).collect();
    }
    r.set("out", &part);
}

fn jumptable(r: &mut Run<'_>) {
    let (op, a, b, n) = (r.get::<i32>("op"), r.get::<i32>("a"), r.get::<i32>("b"), r.size(4));
    let mut out = r.get::<i32>("out");
    for i in 0..n {
        let (x, y) = (a[i], b[i]);
        let (result, second) = match op[i] {
            0 => (x.wrapping_add(y), None),
            1 => (x.wrapping_sub(y.wrapping_mul(3)), None),
            2 => {
                let next = |r: i32, _| r.wrapping_mul(5).wrapping_add(x);
                ((0..y & 7).fold(x.wrapping_mul(y), next), None)
            }
            3 => (x & y, Some(x)),
            4 => (x | y, None),
            5 => (x ^ y.wrapping_shl(3), None),
            6 => (x.min(y), Some(y)),
            7 => ((x.count_ones() + y.leading_zeros()) as i32, None),
            8 => (x >> (y & 31), None),
            9 => (x.reverse_bits(), Some(x.reverse_bits().wrapping_add(1))),
            10 => (x.max(y).wrapping_sub(1), None),
            11 => (x.wrapping_abs().wrapping_add(y.wrapping_abs()), None),
            _ => (-1, None),
        };
        out[i] = result;
        if let Some(s) = second {
            out[n + i] = s;
        }
    }
    r.set("out", &out);
}

fn localarray(r: &mut Run<'_>) {
    let (input, n) = (r.get::<i32>("in"), r.size(2));
    r.update("out", n, |i, _: i32| {
        let mut count: Vec<i32> = (0..16).collect();
        for k in 0..24 {
            let v = input[(i * 7 + k) % n];
            count[v as usize & 15] += v >> 4;
        }
        // The first of the greatest.
        let best = (0..16).rev().max_by_key(|k| count[*k]).unwrap();
        ((best as i32) << 24) ^ count[input[i] as usize & 15]
    });
}

fn divergent(r: &mut Run<'_>) {
    let (input, n) = (r.get::<i32>("in"), r.int(3) as i32);
    let (mut out, mut ballots) = (r.get::<i32>("out"), r.get::<u32>("ballots"));
    for (warp, lanes) in input.chunks(32).enumerate() {
        let any = lanes.iter().any(|v| *v > 900);
        let every = lanes.iter().all(|v| *v >= 0);
        let ballot = lanes.iter().enumerate().fold(0, |m, (l, v)| m | (*v as u32 & 1) << l);
        for (lane, v) in lanes.iter().enumerate() {
            let (mut v, mut steps, mut early) = (*v, 0, false);
            while v > 0 {
                if v == 77 {
                    early = true;
                    break;
                }
                v = match v {
                    v if v % 3 == 0 => v - 5,
                    v if v % 2 == 1 => v / 2,
                    v => v - 3,
                };
                steps += 1;
                if steps > n + 1 {
                    break;
                }
            }
            let i = warp * 32 + lane;
            if early {
                out[i] = -steps;
            } else {
                out[i] = steps * 4 + i32::from(any) * 2 + i32::from(every);
                ballots[warp] = ballot;
            }
        }
    }
    r.set("out", &out);
    r.set("ballots", &ballots);
}

fn structparam(r: &mut Run<'_>) {
    let fields = r.launch.args[0].fields.as_ref().unwrap();
    let field = |f: usize, i: usize| fields[f].values[i].float();
    let (rows, cols, stride) = (field(0, 0) as usize, field(0, 1) as usize, field(2, 0) as usize);
    let input = r.get::<f32>("in");
    let at = |i: usize| input[i / cols * stride + i % cols + field(3, i % 20) as usize];
    r.update("out", rows * cols, |i, _: f32| {
        at(i).mul_add(field(1, i % 16) as f32, field(5, i % 56) as f32 + field(6, 2) as f32)
    });
    r.update("biased", rows * cols, |i, _: f64| f64::from(at(i)) + field(4, 0));
}

fn constant(r: &mut Run<'_>) {
    let (input, n) = (r.get::<i32>("in"), r.size(3));
    let weight = |i: usize| {
        let w = 0.5 * (i % 16 + 1) as f32;
        if i < 16 { w } else { -w }
    };
    let permutation = [3, 1, 4, 15, 9, 2, 6, 5, 8, 7, 10, 0, 11, 14, 13, 12];
    let block = r.launch.block[0] as usize;
    r.update("out", n, |i, _: f32| {
        let v = input[i];
        let sum = (0..4).fold(0f32, |s, k| {
            let p = permutation[(v >> k) as usize & 15];
            s + weight((v + p) as usize & 31)
        });
        sum + weight(i / block % 32)
    });
    r.update("counter", 1, |_, _: i32| 42);
}
