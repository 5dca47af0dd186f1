//! Products of small matrices whose elements are spread over the registers of a warp: one definition for the PTX interpreter and the SASS simulator.
//!
//! The model of floating-point products: every product is exact, the sum of all products and of the addend is
//! exact, and it is rounded once, to nearest, ties to even; a zero sum is +0, and a NaN is the canonical one.
//! Binary64 products are a chain of fused multiply-adds in ascending k.

use crate::fp::{self, BF16, F16, F32, F64, Format, Parts, Round};
use crate::small::{self, Small};

/// A register of a warp: one word for each lane.
pub(crate) type Row = [u32; 32];

/// What an element of A or B is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Elem {
    /// binary16, bfloat16, binary64
    Float(Format),
    /// binary32 of which the low 13 bits are ignored.
    Tf32,
    /// A format of at most 8 bits in bytes.
    Small(Small),
    /// Two E2M1 to the byte.
    Fp4,
    /// An integer of so many bits.
    Int(u32, bool),
    /// A bit.
    Bit,
}

/// The element type of this name in PTX (`s8`) or SASS (`S8`).
pub(crate) fn element(name: &str) -> Option<Elem> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "f16" => Elem::Float(F16),
        "bf16" => Elem::Float(BF16),
        "f64" => Elem::Float(F64),
        "tf32" => Elem::Tf32,
        "u8" => Elem::Int(8, false),
        "s8" => Elem::Int(8, true),
        "u4" => Elem::Int(4, false),
        "s4" => Elem::Int(4, true),
        "b1" => Elem::Bit,
        n => Elem::Small(small::format(n)?),
    })
}

impl Elem {
    /// Bits that an element takes in a register.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Elem::Float(f) => f.bits(),
            Elem::Tf32 => 32,
            Elem::Small(_) => 8,
            Elem::Fp4 => 4,
            Elem::Int(bits, _) => bits,
            Elem::Bit => 1,
        }
    }

    /// The bit of the sign.
    pub(crate) fn sign(self) -> u64 {
        match self {
            Elem::Small(s) => 1 << (s.bits - 1),
            e => 1 << (e.bits() - 1),
        }
    }

    fn value(self, bits: u64) -> Value {
        match self {
            Elem::Float(f) => Value::of(bits, f),
            Elem::Tf32 => Value::of(bits & !0x1fff, F32),
            // A 4-bit number stands in the middle of its byte.
            Elem::Small(s) if s.bits == 4 => Value::of(s.decode((bits >> 2 & 15) as u8).into(), F32),
            Elem::Small(s) => Value::of(s.decode((bits & ((1 << s.bits) - 1)) as u8).into(), F32),
            Elem::Fp4 => Value::of(small::E2M1.decode(bits as u8).into(), F32),
            Elem::Int(n, true) => Value::Num { sig: (bits << (64 - n)) as i64 >> (64 - n), exp: 0 },
            Elem::Int(..) | Elem::Bit => Value::Num { sig: bits as i64, exp: 0 },
        }
    }
}

/// What C and D are, and how sums are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sum {
    /// Floating point.
    Float(Format),
    /// 32-bit integers that wrap, or saturate.
    Int { saturate: bool },
    /// Counts of the ones of a XOR, or an AND.
    Count { and: bool },
}

impl Sum {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Sum::Float(f) => f.bits(),
            _ => 32,
        }
    }
}

/// A product D = A·B + C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Elem,
    pub(crate) b: Elem,
    pub(crate) sum: Sum,
    /// Half of A's columns only are stored.
    pub(crate) sparse: bool,
}

/// Factors of A's rows and B's columns, for each block along k.
#[derive(Clone, Debug)]
pub(crate) struct Scales {
    /// Blocks along k.
    pub(crate) blocks: usize,
    /// Row by row.
    pub(crate) a: Vec<u32>,
    /// Column by column; both as binary32.
    pub(crate) b: Vec<u32>,
}

/// Where a block-scaled product's factors are: bytes of a register of the lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalePlace {
    /// Blocks along k.
    pub(crate) blocks: usize,
    /// UE4M3 instead of powers of two.
    pub(crate) fraction: bool,
    /// The first byte, for A and for B.
    pub(crate) byte: [usize; 2],
    /// The lanes of each four that count: a pair for A, one for B.
    pub(crate) thread: [usize; 2],
}

impl ScalePlace {
    /// Row g's factors are in the pair's first lane of the g-th four, row g+8's in its second; column g's in one
    /// lane; a byte for each block.
    pub(crate) fn read(self, p: &Product, a: &Row, b: &Row) -> Scales {
        let blocks = self.blocks;
        let one = |row: &Row, lane: usize, byte: usize| {
            let byte = (row[lane & 31] >> (8 * (byte & 3))) as u8;
            if self.fraction { small::E4M3.decode(byte & 0x7f) } else { small::decode_scale(byte) }
        };
        let each = |n: usize, f: &dyn Fn(usize, usize) -> u32| {
            (0..n * blocks).map(|i| f(i / blocks, i % blocks)).collect::<Vec<u32>>()
        };
        let ([byte_a, byte_b], [pair, thread]) = (self.byte, self.thread);
        Scales {
            blocks,
            a: each(p.m, &|i, block| one(a, i % 8 * 4 + 2 * pair + i / 8, byte_a + block)),
            b: each(p.n, &|j, block| one(b, j * 4 + thread, byte_b + block)),
        }
    }
}

/// What some products have besides A, B and C.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extra<'a> {
    pub(crate) scales: Option<&'a Scales>,
    /// Where a sparse A's elements stand ([`crate::metadata::columns`]).
    pub(crate) columns: Option<&'a [u16]>,
    /// How sums of binary64 are rounded.
    pub(crate) round: Round,
    /// How often C is halved before it is added.
    pub(crate) halvings: u32,
}

impl Extra<'_> {
    /// What is added.
    fn addend(&self, c: u64, f: Format) -> Value {
        match Value::of(c, f) {
            Value::Num { sig, exp } => Value::Num { sig, exp: exp - self.halvings as i32 },
            other => other,
        }
    }

    /// The column of A's element number `at`.
    fn column(&self, at: usize, stored: usize) -> usize {
        self.columns.map_or(at % stored, |c| usize::from(c[at]))
    }
}

/// A signed number `sig · 2^exp`, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Nan,
    Inf(bool),
    Num { sig: i64, exp: i32 },
}

impl Value {
    fn of(bits: u64, f: Format) -> Value {
        match fp::unpack(bits, f) {
            Parts::Nan => Value::Nan,
            Parts::Inf(sign) => Value::Inf(sign),
            // As short as can be, so that products of several small numbers fit.
            Parts::Num { sign, exp, mant } => {
                let zeros = if mant == 0 { 0 } else { mant.trailing_zeros() };
                let sig = (mant >> zeros) as i64;
                Value::Num { sig: if sign { -sig } else { sig }, exp: exp + zeros as i32 }
            }
        }
    }
    /// The magnitude; of an infinity or a NaN, zero.
    fn size(self) -> f64 {
        match self {
            Value::Num { sig, exp } => sig.unsigned_abs() as f64 * f64::from(exp).exp2(),
            Value::Nan | Value::Inf(_) => 0.0,
        }
    }
    /// The exact product: of two factors of at most 31 bits, or of four of at most 15.
    fn times(self, other: Value) -> Value {
        match (self, other) {
            (Value::Num { sig: a, exp: e }, Value::Num { sig: b, exp: f }) => {
                Value::Num { sig: a * b, exp: e + f }
            }
            (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
            (Value::Inf(_), Value::Num { sig: 0, .. }) | (Value::Num { sig: 0, .. }, Value::Inf(_)) => {
                Value::Nan
            }
            (Value::Inf(s), o) | (o, Value::Inf(s)) => match o {
                Value::Inf(t) => Value::Inf(s != t),
                Value::Num { sig, .. } => Value::Inf(s != (sig < 0)),
                Value::Nan => Value::Nan,
            },
        }
    }
}

/// The sum of exact terms, rounded once.
fn sum(terms: &[Value], f: Format) -> u64 {
    let mut infinity = None;
    let (mut least, mut most) = (i32::MAX, i32::MIN);
    for t in terms {
        match *t {
            Value::Nan => return f.invalid_nan(),
            Value::Inf(s) if infinity == Some(!s) => return f.invalid_nan(),
            Value::Inf(s) => infinity = Some(s),
            Value::Num { sig: 0, .. } => {}
            Value::Num { sig, exp } => {
                least = least.min(exp);
                most = most.max(exp + 64 - sig.unsigned_abs().leading_zeros() as i32);
            }
        }
    }
    if let Some(s) = infinity {
        return fp::convert(if s { 0xff80_0000 } else { 0x7f80_0000 }, F32, f, Round::Nearest);
    }
    let numbers = terms.iter().filter_map(|t| match *t {
        Value::Num { sig, exp } if sig != 0 => Some((sig, exp)),
        _ => None,
    });
    if least == i32::MAX {
        return 0;
    }
    if most - least <= 110 {
        let total = numbers.fold(0i128, |s, (sig, exp)| s + (i128::from(sig) << (exp - least)));
        return fp::pack(total < 0, least, total.unsigned_abs(), f, Round::Nearest);
    }
    // 32-bit limbs from the least exponent on, two's complement.
    let mut limbs = vec![0i64; (most - least) as usize / 32 + 4];
    for (sig, exp) in numbers {
        let at = (exp - least) as usize;
        let wide = i128::from(sig) << (at % 32);
        for (i, limb) in limbs[at / 32..].iter_mut().take(4).enumerate() {
            *limb += if i == 3 { (wide >> 96) as i64 } else { (wide >> (32 * i)) as u32 as i64 };
        }
    }
    let negative = {
        let mut carry = 0;
        for limb in &mut limbs {
            let v = *limb + carry;
            carry = v >> 32;
            *limb = v & 0xffff_ffff;
        }
        carry < 0
    };
    if negative {
        let mut carry = 1;
        for limb in &mut limbs {
            let v = (!*limb & 0xffff_ffff) + carry;
            carry = v >> 32;
            *limb = v & 0xffff_ffff;
        }
    }
    let Some(top) = limbs.iter().rposition(|l| *l != 0) else { return 0 };
    let low = top.saturating_sub(2);
    let mant = limbs[low..=top].iter().rev().fold(0u128, |m, l| m << 32 | *l as u128);
    let sticky = limbs[..low].iter().any(|l| *l != 0);
    fp::pack(negative, least + 32 * low as i32 - 1, mant << 1 | u128::from(sticky), f, Round::Nearest)
}

impl Product {
    /// D of matrices given row by row (B: by rows of k), elements as bits.
    pub(crate) fn of_matrices(&self, a: &[u64], b: &[u64], c: &[u64], extra: Extra<'_>) -> Vec<u64> {
        let Product { m, n, k, .. } = *self;
        let stored = self.stored();
        let mut out = vec![0; m * n];
        if let (Sum::Float(F64), Elem::Float(F64)) = (self.sum, self.a) {
            for (at, d) in out.iter_mut().enumerate() {
                let (i, j) = (at / n, at % n);
                *d = (0..k).fold(c[at], |s, l| fp::dfma(a[i * k + l], b[l * n + j], s, extra.round));
            }
            return out;
        }
        if let Sum::Count { and } = self.sum {
            for (at, d) in out.iter_mut().enumerate() {
                let (i, j) = (at / n, at % n);
                let one = |l: usize| {
                    let (x, y) = (a[i * k + l], b[l * n + j]);
                    if and { x & y } else { x ^ y }
                };
                *d = u64::from((0..k).fold(c[at] as u32, |s, l| s.wrapping_add(one(l) as u32)));
            }
            return out;
        }
        let (va, vb) = self.values(a, b, extra);
        let mut terms = vec![Value::Nan; stored + 1];
        for (at, d) in out.iter_mut().enumerate() {
            let (i, j) = (at / n, at % n);
            for (l, t) in terms.iter_mut().take(stored).enumerate() {
                let l = i * stored + l;
                *t = va[l].times(vb[extra.column(l, stored) * n + j]);
            }
            *d = match self.sum {
                Sum::Float(f) => {
                    terms[stored] = extra.addend(c[at], f);
                    sum(&terms, f)
                }
                Sum::Int { saturate } => {
                    let total = terms[..stored].iter().fold(i64::from(c[at] as i32), |s, t| match t {
                        Value::Num { sig, .. } => s + sig,
                        _ => s,
                    });
                    let total = if saturate { total.clamp(i32::MIN.into(), i32::MAX.into()) } else { total };
                    u64::from(total as u32)
                }
                Sum::Count { .. } => 0,
            };
        }
        out
    }

    /// The elements of A and B, scaled.
    fn values(&self, a: &[u64], b: &[u64], extra: Extra<'_>) -> (Vec<Value>, Vec<Value>) {
        let (Product { n, k, .. }, stored) = (*self, self.stored());
        let mut va: Vec<Value> = a.iter().map(|x| self.a.value(*x)).collect();
        let mut vb: Vec<Value> = b.iter().map(|x| self.b.value(*x)).collect();
        if let Some(s) = extra.scales {
            let block = |l: usize| l * s.blocks / k;
            for (at, v) in va.iter_mut().enumerate() {
                *v = v.times(Value::of(
                    s.a[at / stored * s.blocks + block(extra.column(at, stored))].into(),
                    F32,
                ));
            }
            for (at, v) in vb.iter_mut().enumerate() {
                *v = v.times(Value::of(s.b[at % n * s.blocks + block(at / n)].into(), F32));
            }
        }
        (va, vb)
    }

    /// The sums of the magnitudes of what the elements of a floating-point D are the sums of.
    pub(crate) fn magnitudes(&self, a: &[u64], b: &[u64], c: &[u64], extra: Extra<'_>) -> Vec<f64> {
        let Sum::Float(f) = self.sum else { return vec![] };
        let (n, stored) = (self.n, self.stored());
        let sizes = |v: Vec<Value>| v.into_iter().map(Value::size).collect::<Vec<f64>>();
        let (va, vb) = self.values(a, b, extra);
        let (va, vb) = (sizes(va), sizes(vb));
        let one = |(at, c): (usize, &u64)| {
            let row = at / n * stored;
            (row..row + stored).map(|l| va[l] * vb[extra.column(l, stored) * n + at % n]).sum::<f64>()
                + extra.addend(*c, f).size()
        };
        c.iter().enumerate().map(one).collect()
    }

    /// Columns of A that are stored.
    fn stored(&self) -> usize {
        if self.sparse { self.k / 2 } else { self.k }
    }

    /// Registers of a lane that A, B, and C or D take.
    pub(crate) fn registers(&self) -> [usize; 3] {
        let words = |elements: usize, bits: u32| (elements * bits as usize).div_ceil(1024);
        [
            words(self.m * self.stored(), self.a.bits()),
            words(self.k * self.n, self.b.bits()),
            words(self.m * self.n, self.sum.bits()),
        ]
    }

    /// A, row by row, from the registers of the lanes: lane 4g+t holds row g (and g+8) and, for each group
    /// of four registers' worth of columns, those of its word t.
    pub(crate) fn gather_a(&self, rows: &[Row]) -> Vec<u64> {
        let (bits, k) = (self.a.bits(), self.stored());
        let mut out = vec![0; self.m * k];
        let halves = self.m / 8;
        spread(bits, |lane, word, e, per| {
            let column = (lane % 4) * per + e + word / halves * 4 * per;
            let row = lane / 4 + 8 * (word % halves);
            (column < k).then(|| out[row * k + column] = read(rows, bits, lane, word, e))
        });
        out
    }

    /// B, by rows of k: as A's, transposed, eight columns.
    pub(crate) fn gather_b(&self, rows: &[Row]) -> Vec<u64> {
        let bits = self.b.bits();
        let mut out = vec![0; self.k * self.n];
        spread(bits, |lane, word, e, per| {
            let k = (lane % 4) * per + e + word * 4 * per;
            (k < self.k).then(|| out[k * self.n + lane / 4] = read(rows, bits, lane, word, e))
        });
        out
    }

    /// Place of an element of C and D: a lane holds pairs of columns of row g, then of row g+8.
    fn place(&self, lane: usize, i: usize) -> Option<usize> {
        let row = lane / 4 + 8 * (i / 2);
        (row < self.m).then_some(row * self.n + lane % 4 * 2 + i % 2)
    }

    /// C, row by row.
    pub(crate) fn gather_c(&self, rows: &[Row]) -> Vec<u64> {
        let bits = self.sum.bits();
        let mut out = vec![0; self.m * self.n];
        spread(bits, |lane, word, e, per| {
            let at = self.place(lane, word * per + e)?;
            out[at] = read(rows, bits, lane, word, e);
            Some(())
        });
        out
    }

    /// D's registers.
    pub(crate) fn scatter_d(&self, d: &[u64]) -> Vec<Row> {
        let bits = self.sum.bits();
        let mut rows = vec![[0; 32]; self.registers()[2]];
        spread(bits, |lane, word, e, per| {
            let at = self.place(lane, word * per + e)?;
            write(&mut rows, bits, lane, word, e, d[at]);
            Some(())
        });
        rows
    }

    /// D's registers from those of A, B and C.
    pub(crate) fn of_registers(&self, [a, b, c]: [&[Row]; 3], extra: Extra<'_>) -> Vec<Row> {
        let d = self.of_matrices(&self.gather_a(a), &self.gather_b(b), &self.gather_c(c), extra);
        self.scatter_d(&d)
    }
}

/// Calls `f` with lane, word (a register, or a pair for 64-bit elements), element in the word and elements to
/// the word, until it says that there is no such word.
fn spread(bits: u32, mut f: impl FnMut(usize, usize, usize, usize) -> Option<()>) {
    let per = (32 / bits as usize).max(1);
    for lane in 0..32 {
        'words: for word in 0.. {
            for e in 0..per {
                if f(lane, word, e, per).is_none() {
                    break 'words;
                }
            }
        }
    }
}

fn read(rows: &[Row], bits: u32, lane: usize, word: usize, e: usize) -> u64 {
    let at = |i: usize| u64::from(rows.get(i).map_or(0, |r| r[lane]));
    if bits == 64 {
        return at(2 * word) | at(2 * word + 1) << 32;
    }
    at(word) >> (e as u32 * bits) & (u64::MAX >> (64 - bits))
}

fn write(rows: &mut [Row], bits: u32, lane: usize, word: usize, e: usize, x: u64) {
    if bits == 64 {
        rows[2 * word][lane] = x as u32;
        rows[2 * word + 1][lane] = (x >> 32) as u32;
    } else {
        rows[word][lane] |= (x as u32) << (e as u32 * bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_rounded_once() {
        let f = |x: f32| Value::of(x.to_bits().into(), F32);
        let of = |v: &[f32]| f32::from_bits(sum(&v.iter().map(|x| f(*x)).collect::<Vec<_>>(), F32) as u32);
        assert_eq!(of(&[1.0, 2.0, -3.0]), 0.0);
        assert_eq!(of(&[1e30, 1.0, -1e30]), 1.0);
        assert_eq!(of(&[3e38, -1e-45, -3e38]), -1e-45);
        assert_eq!(of(&[16_777_216.0, 1.0]), 16_777_216.0);
        assert_eq!(of(&[16_777_216.0, 1.0, 1e-40]), 16_777_218.0);
        assert!(of(&[f32::INFINITY, f32::NEG_INFINITY]).is_nan());
        assert_eq!(of(&[f32::INFINITY, 1.0]), f32::INFINITY);
    }

    /// Registers that hold `value(row, column)` where the layout says.
    #[test]
    fn a_product_of_halves() {
        let p = Product {
            m: 16,
            n: 8,
            k: 16,
            a: Elem::Float(F16),
            b: Elem::Float(F16),
            sum: Sum::Float(F32),
            sparse: false,
        };
        assert_eq!(p.registers(), [4, 2, 4]);
        // A = identity: D = B + C.
        let one = 0x3c00u64;
        let a: Vec<u64> = (0..256).map(|i| if i / 16 == i % 16 { one } else { 0 }).collect();
        let b: Vec<u64> = (0..128).map(|i| fp::from_int(i, F16, Round::Nearest)).collect();
        let c = vec![u64::from(0.5f32.to_bits()); 128];
        let d = p.of_matrices(&a, &b, &c, Extra::default());
        for (i, d) in d.iter().enumerate() {
            assert_eq!(f32::from_bits(*d as u32), i as f32 + 0.5);
        }
        // Lane 5 holds columns 2, 3 of rows 1 and 9.
        let rows = p.scatter_d(&d);
        let lane: Vec<f32> = rows.iter().map(|r| f32::from_bits(r[5])).collect();
        assert_eq!(lane, [10.5, 11.5, 74.5, 75.5]);
        assert_eq!(p.gather_c(&rows), d);
    }

    #[test]
    fn scales_multiply_their_blocks() {
        let e = Elem::Small(small::E4M3);
        let p = Product { m: 16, n: 8, k: 32, a: e, b: e, sum: Sum::Float(F32), sparse: false };
        // 1.5 × 2 a block of 16, times 1.875 and 2^-3 in the upper half of k only.
        let (a, b) = (vec![0x3c; 16 * 32], vec![0x40; 32 * 8]);
        let row = |low: f32, high: f32, n: usize| [low.to_bits(), high.to_bits()].repeat(n);
        let scales = Scales { blocks: 2, a: row(1.0, 1.875, 16), b: row(1.0, 0.125, 8) };
        let extra = Extra { scales: Some(&scales), ..Extra::default() };
        let d = p.of_matrices(&a, &b, &[0; 128], extra);
        assert_eq!(f32::from_bits(d[77] as u32), 48.0 + 48.0 * 1.875 * 0.125);
    }

    #[test]
    fn integers_saturate_and_bits_count() {
        let p = Product {
            m: 8,
            n: 8,
            k: 16,
            a: Elem::Int(8, true),
            b: Elem::Int(8, false),
            sum: Sum::Int { saturate: true },
            sparse: false,
        };
        let d = p.of_matrices(&[0x80; 128], &[0xff; 128], &[0x8000_0000; 64], Extra::default());
        assert_eq!(d[0], 0x8000_0000);
        let p = Product { sum: Sum::Int { saturate: false }, ..p };
        let d = p.of_matrices(&[0x80; 128], &[0xff; 128], &[0; 64], Extra::default());
        assert_eq!(d[9] as u32 as i32, -128 * 255 * 16);
        let p = Product {
            m: 8,
            n: 8,
            k: 128,
            a: Elem::Bit,
            b: Elem::Bit,
            sum: Sum::Count { and: false },
            sparse: false,
        };
        assert_eq!(p.registers(), [1, 1, 2]);
        assert_eq!(p.of_matrices(&[1; 1024], &[0; 1024], &[2; 64], Extra::default())[63], 130);
    }
}
