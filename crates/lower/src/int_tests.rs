//! The integer idioms against plain Rust, on one thread.

use crate::arith_int::{self as a, Combine, Part};
use crate::convert::{Conversion, Round, convert};
use crate::emit::{Pair, imm};
use crate::math::eval;
use crate::types::{Kind, Src, Ty};
use ori::{Builder, Function, Terminator, Value, operand};
use sass::{Mod, RegFile, Target};

fn ty(kind: Kind, bits: u8) -> Ty {
    Ty { kind, bits }
}

const INTERESTING: [u64; 22] = [
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    32,
    33,
    63,
    64,
    65,
    100,
    0x7f,
    0x80,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ff85,
];

/// Pairs of operands: the interesting ones with each other, and some arbitrary ones.
fn samples() -> Vec<[u64; 3]> {
    let mut v = Vec::new();
    for (i, &x) in INTERESTING.iter().enumerate() {
        for &y in &INTERESTING {
            v.push([x, y, INTERESTING[(7 * i + 3) % INTERESTING.len()]]);
        }
    }
    let mut x = 0x0123_4567_89ab_cdefu64;
    let mut next = || {
        x = x.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x ^ x >> 31
    };
    v.extend((0..60).map(|_| [next(), next(), next()]));
    v
}

/// Runs `build` on three inputs of `bits` bits on an old and a new target and compares with `expect`, in the
/// low `result_bits` bits.
fn check(
    name: &str,
    t: Ty,
    result_bits: u32,
    build: impl Fn(&mut Builder<'_>, &[Src; 3]) -> Value,
    expect: impl Fn(u64, u64, u64) -> u64,
) {
    for sm in [75, 90, 120] {
        let mut f = Function::new("k", Target::new(sm).unwrap());
        let entry = f.entry_block();
        let width = t.width();
        let inputs = [0; 3].map(|_| f.add_value(RegFile::R, width));
        let mut b = Builder::new(&mut f, entry);
        let sources =
            inputs.map(|v| if width == 2 { Src::Wide(Pair::of(v)) } else { Src::Narrow(operand(v)) });
        let result = build(&mut b, &sources);
        b.terminate(Terminator::Exit);
        let mask = |x: u64, bits: u32| x & (u64::MAX >> (64 - bits));
        for s in samples() {
            let bits = u32::from(t.bits);
            // The bits above a narrow type are undefined: here, they are junk.
            let junk = |x: u64| if bits < 32 { x & 0xffff_ffff } else { mask(x, bits) };
            let given = [0, 1, 2].map(|i| (inputs[i], junk(s[i])));
            let got = mask(eval::run(&f, &given, result, 0), result_bits);
            let want = mask(expect(mask(s[0], bits), mask(s[1], bits), mask(s[2], bits)), result_bits);
            assert_eq!(got, want, "sm_{sm} {name} {t:?} of {:x?}", s);
        }
    }
}

/// Sign- or zero-extension of the low bits.
fn ext(t: Ty, x: u64) -> i128 {
    let shift = 64 - u32::from(t.bits);
    if t.is_signed() { i128::from((x << shift) as i64 >> shift) } else { i128::from(x << shift >> shift) }
}

fn ints() -> impl Iterator<Item = Ty> {
    [16, 32, 64].into_iter().flat_map(|b| [ty(Kind::Unsigned, b), ty(Kind::Signed, b)])
}

#[test]
fn sums_and_products() {
    for t in ints() {
        let n = u32::from(t.bits);
        let e = move |x| ext(t, x);
        check("add", t, n, |b, s| a::add(b, t, &s[0], &s[1]), |x, y, _| x.wrapping_add(y));
        check("sub", t, n, |b, s| a::sub(b, t, &s[0], &s[1]), |x, y, _| x.wrapping_sub(y));
        check("neg", t, n, |b, s| a::neg(b, t, &s[0]), |x, _, _| x.wrapping_neg());
        check("mul.lo", t, n, |b, s| a::mul(b, t, Part::Lo, &s[0], &s[1]), |x, y, _| x.wrapping_mul(y));
        check(
            "mul.hi",
            t,
            n,
            |b, s| a::mul(b, t, Part::Hi, &s[0], &s[1]),
            |x, y, _| (e(x).wrapping_mul(e(y)) >> n) as u64,
        );
        check(
            "mad.lo",
            t,
            n,
            |b, s| a::mad(b, t, Part::Lo, &s[0], &s[1], &s[2]),
            |x, y, z| x.wrapping_mul(y).wrapping_add(z),
        );
        check(
            "mad.hi",
            t,
            n,
            |b, s| a::mad(b, t, Part::Hi, &s[0], &s[1], &s[2]),
            |x, y, z| ((e(x).wrapping_mul(e(y)) >> n) as u64).wrapping_add(z),
        );
        check("max", t, n, |b, s| a::min_max(b, t, true, &s[0], &s[1]), |x, y, _| e(x).max(e(y)) as u64);
        check("min", t, n, |b, s| a::min_max(b, t, false, &s[0], &s[1]), |x, y, _| e(x).min(e(y)) as u64);
        check(
            "sad",
            t,
            n,
            |b, s| a::sad(b, t, &s[0], &s[1], &s[2]),
            |x, y, z| ((e(x) - e(y)).unsigned_abs() as u64).wrapping_add(z),
        );
        check("cnot", t, n, |b, s| a::cnot(b, t, &s[0]), |x, _, _| u64::from(x == 0));
        if t.is_signed() {
            check("abs", t, n, |b, s| a::abs(b, t, &s[0]), |x, _, _| e(x).unsigned_abs() as u64);
        }
        if t.bits < 64 {
            check(
                "mul.wide",
                t,
                2 * n,
                |b, s| a::mul(b, t, Part::Wide, &s[0], &s[1]),
                |x, y, _| e(x).wrapping_mul(e(y)) as u64,
            );
        }
    }
    let s32 = ty(Kind::Signed, 32);
    let clamp = |x: i64| x.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u64;
    let i = |x: u64| i64::from(x as i32);
    check("add.sat", s32, 32, |b, s| a::add_sat(b, false, &s[0], &s[1]), |x, y, _| clamp(i(x) + i(y)));
    check("sub.sat", s32, 32, |b, s| a::add_sat(b, true, &s[0], &s[1]), |x, y, _| clamp(i(x) - i(y)));
    for t in [ty(Kind::Unsigned, 32), s32] {
        let low = move |x: u64| ext(Ty { bits: 24, ..t }, x);
        check(
            "mul24.hi",
            t,
            32,
            |b, s| a::mul24(b, t, true, &s[0], &s[1], None),
            |x, y, _| ((low(x) * low(y)) >> 16) as u64,
        );
        check(
            "mad24.lo",
            t,
            32,
            |b, s| a::mul24(b, t, false, &s[0], &s[1], Some(&s[2])),
            |x, y, z| ((low(x) * low(y)) as u64).wrapping_add(z),
        );
    }
}

#[test]
fn division_by_constants() {
    for t in ints() {
        let e = move |x| ext(t, x);
        for d in [1i128, 2, 3, 7, 10, 16, 1000, 0x7fff, -1, -2, -7, -1000] {
            let d = if t.is_signed() { d } else { d.abs() };
            let divisor = move |t: Ty| {
                let d = d as u64 & (u64::MAX >> (64 - t.bits));
                if t.bits == 64 { Src::Wide(Pair::imm(d)) } else { Src::Narrow(imm(d as u32)) }
            };
            for rem in [false, true] {
                let want = move |x: u64| if rem { e(x) % d } else { e(x) / d };
                let build = |b: &mut Builder<'_>, s: &[Src; 3]| a::div(b, t, rem, false, &s[0], &divisor(t));
                check(&format!("div/rem by {d}"), t, u32::from(t.bits), build, |x, _, _| want(x) as u64);
            }
        }
    }
}

#[test]
fn bits_and_fields() {
    for t in ints() {
        let n = u32::from(t.bits);
        let e = move |x| ext(t, x);
        // Shift amounts are 32-bit operands: the low half of the second input.
        let amount = |s: &Src| Src::Narrow(s.low());
        if t.bits > 16 {
            check(
                "shl",
                t,
                n,
                |b, s| a::shl(b, t, &s[0], &amount(&s[1])),
                |x, y, _| if (y as u32) < n { x << (y as u32) } else { 0 },
            );
            check(
                "shr",
                t,
                n,
                |b, s| a::shr(b, t, &s[0], &amount(&s[1])),
                |x, y, _| (e(x) >> (y as u32).min(n)) as u64,
            );
            let signed = t.is_signed();
            let field = move |x: u64, y: u64, z: u64| {
                let (pos, len) = ((y & 0xff) as u32, (z & 0xff) as u32);
                let sign = if !signed || len == 0 { 0 } else { x >> (pos + len - 1).min(n - 1) & 1 };
                (0..n)
                    .map(|i| {
                        let bit = if i < len && pos + i < n { x >> (pos + i) & 1 } else { sign };
                        bit << i
                    })
                    .sum::<u64>()
            };
            check("bfe", t, n, |b, s| a::bfe(b, t, &s[0], &amount(&s[1]), &amount(&s[2])), field);
            check("popc", t, 32, |b, s| a::popc(b, t, &s[0]), |x, _, _| x.count_ones().into());
            check("clz", t, 32, |b, s| a::clz(b, t, &s[0]), |x, _, _| (x.leading_zeros() - (64 - n)).into());
            check("brev", t, n, |b, s| a::brev(b, t, &s[0]), |x, _, _| x.reverse_bits() >> (64 - n));
            let top = move |x: u64| {
                let x = if e(x) < 0 { !x & (u64::MAX >> (64 - n)) } else { x };
                if x == 0 { u32::MAX } else { 63 - x.leading_zeros() }
            };
            check("bfind", t, 32, |b, s| a::bfind(b, t, false, &s[0]), |x, _, _| top(x).into());
            check(
                "bfind.shiftamt",
                t,
                32,
                |b, s| a::bfind(b, t, true, &s[0]),
                |x, _, _| match top(x) {
                    u32::MAX => u32::MAX.into(),
                    p => (n - 1 - p).into(),
                },
            );
            for (pos, len) in [(0, 0), (3, 5), (0, 32), (31, 1), (30, 9), (40, 7), (5, 64)] {
                let (p, l) = (Src::Narrow(imm(pos)), Src::Narrow(imm(len)));
                let insert = move |x: u64, y: u64| {
                    (0..n)
                        .map(|i| {
                            let inside = i >= pos && i < pos + len;
                            (if inside { x >> (i - pos) & 1 } else { y >> i & 1 }) << i
                        })
                        .sum::<u64>()
                };
                check("bfi", t, n, |b, s| a::bfi(b, t, &s[0], &s[1], &p, &l), |x, y, _| insert(x, y));
            }
        } else {
            check(
                "shr",
                t,
                n,
                |b, s| a::shr(b, t, &s[0], &Src::Narrow(imm(5))),
                |x, _, _| (e(x) >> 5) as u64,
            );
        }
        check("not", t, n, |b, s| a::not(b, t, &s[0]), |x, _, _| !x);
        check("xor", t, n, |b, s| a::logic(b, t, 0x3c, &s[0], &s[1]), |x, y, _| x ^ y);
    }
}

#[test]
fn comparisons() {
    for t in ints() {
        let e = move |x| ext(t, x);
        for (m, f) in [
            (Mod::EQ, (|o| o == 0) as fn(i32) -> bool),
            (Mod::NE, |o| o != 0),
            (Mod::LT, |o| o < 0),
            (Mod::LE, |o| o <= 0),
            (Mod::GT, |o| o > 0),
            (Mod::GE, |o| o >= 0),
        ] {
            let build = |b: &mut Builder<'_>, s: &[Src; 3]| {
                let p = a::setp(b, t, m, &s[0], &s[1], &Combine::default());
                a::select(b, Ty::U32, operand(p), &Src::Narrow(imm(1)), &Src::Narrow(imm(0)))
            };
            check(m.name(), t, 32, build, |x, y, _| u64::from(f(e(x).cmp(&e(y)) as i32)));
        }
    }
}

#[test]
fn conversions() {
    let all = || [8, 16, 32, 64].into_iter().flat_map(|b| [ty(Kind::Unsigned, b), ty(Kind::Signed, b)]);
    for from in all() {
        for to in all() {
            for sat in [false, true] {
                let c = Conversion { to, from, round: Round::Zero, integral: false, ftz: false, sat };
                let (low, high) = if to.is_signed() {
                    (-(1i128 << (to.bits - 1)), (1i128 << (to.bits - 1)) - 1)
                } else {
                    (0, (1i128 << to.bits) - 1)
                };
                let want = move |x: u64| {
                    let x = ext(from, x);
                    (if sat { x.clamp(low, high) } else { x }) as u64
                };
                let build = |b: &mut Builder<'_>, s: &[Src; 3]| convert(b, &c, &s[0]).expect("known");
                check("cvt", from, to.bits.into(), build, |x, _, _| want(x));
            }
        }
    }
}
