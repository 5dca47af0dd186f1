//! Division by constants without a division: shifts, or a multiplication by a scaled reciprocal (Granlund and
//! Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994; Warren, "Hacker's Delight").

use crate::emit::{Emit, Pair, imm, ineg, rz};
use crate::wide::{mul_hi64, mul_lo64, shl64, shr64};
use ori::{Builder, Operand, Value, operand};
use sass::Mod;

/// How to divide an unsigned number of `bits` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unsigned {
    /// `n >> k`.
    Shift(u32),
    /// `n >= d`, for divisors above half of the range.
    Compare,
    /// `mulhi(n, m) >> s`.
    Multiply(u64, u32),
    /// `t = mulhi(n, m); (((n - t) >> 1) + t) >> s`.
    MultiplyAdd(u64, u32),
}

fn unsigned(d: u64, bits: u32) -> Unsigned {
    debug_assert!(d != 0);
    if d.is_power_of_two() {
        return Unsigned::Shift(d.trailing_zeros());
    }
    if d >> (bits - 1) != 0 {
        return Unsigned::Compare;
    }
    let ceil_log = 64 - (d - 1).leading_zeros();
    let (mut l, d) = (ceil_log, u128::from(d));
    let (mut low, mut high) = ((1u128 << (bits + l)) / d, ((1u128 << (bits + l)) + (1u128 << l)) / d);
    while l > 0 && low >> 1 < high >> 1 {
        low >>= 1;
        high >>= 1;
        l -= 1;
    }
    if high >> bits == 0 {
        Unsigned::Multiply(high as u64, l)
    } else {
        // The full multiplier has bits + 1 bits; its top bit is the addition of `n`.
        let l = ceil_log;
        let m = (((1u128 << bits) * ((1u128 << l) - d)) / d + 1) as u64;
        Unsigned::MultiplyAdd(m, l - 1)
    }
}

/// Multiplier (as a signed `bits`-bit number) and shift for a signed divisor, |d| ≥ 2 and not a power of 2.
fn signed(d: i64, bits: u32) -> (i64, u32) {
    let ad = u128::from(d.unsigned_abs());
    let t = (1u128 << (bits - 1)) + u128::from(d < 0);
    let nc = t - 1 - t % ad;
    let mut p = bits;
    while (1u128 << p) <= nc * (ad - (1u128 << p) % ad) {
        p += 1;
    }
    let m = ((1u128 << p) + ad - (1u128 << p) % ad) / ad;
    let m = if bits == 32 { i64::from(m as u32 as i32) } else { m as u64 as i64 };
    (if d < 0 { m.wrapping_neg() } else { m }, p - bits)
}

/// `n / d` of 32-bit unsigned numbers; `None` for `d` = 0.
pub fn div_u32(b: &mut Builder<'_>, n: &Operand, d: u32) -> Option<Value> {
    if d == 0 {
        return None;
    }
    Some(match unsigned(d.into(), 32) {
        Unsigned::Shift(0) => b.reg(n),
        Unsigned::Shift(k) => b.shr(false, *n, imm(k)),
        Unsigned::Compare => {
            let p = b.isetp(Mod::GE, false, *n, imm(d));
            b.sel(operand(p), imm(1), rz())
        }
        Unsigned::Multiply(m, s) => {
            let q = b.imul_hi(false, *n, imm(m as u32));
            if s == 0 { q } else { b.shr(false, operand(q), imm(s)) }
        }
        Unsigned::MultiplyAdd(m, s) => {
            let t = b.imul_hi(false, *n, imm(m as u32));
            let rest = b.iadd(*n, ineg(operand(t)));
            let half = b.shr(false, operand(rest), imm(1));
            let sum = b.iadd(operand(half), operand(t));
            b.shr(false, operand(sum), imm(s))
        }
    })
}

/// `n / d` of 32-bit signed numbers; `None` for `d` = 0.
pub fn div_s32(b: &mut Builder<'_>, n: &Operand, d: i32) -> Option<Value> {
    if d == 0 {
        return None;
    }
    let ad = d.unsigned_abs();
    let q = if ad == 1 {
        b.reg(n)
    } else if ad.is_power_of_two() {
        let k = ad.trailing_zeros();
        let sign = b.shr(true, *n, imm(31));
        let round = b.shr(false, operand(sign), imm(32 - k));
        let sum = b.iadd(*n, operand(round));
        b.shr(true, operand(sum), imm(k))
    } else {
        let (m, s) = signed(d.into(), 32);
        let m = m as i32;
        let mut q = b.imul_hi(true, *n, imm(m as u32));
        if d > 0 && m < 0 {
            q = b.iadd(operand(q), *n);
        } else if d < 0 && m > 0 {
            q = b.iadd(operand(q), ineg(*n));
        }
        let q = if s == 0 { q } else { b.shr(true, operand(q), imm(s)) };
        let sign = b.shr(false, operand(q), imm(31));
        return Some(b.iadd(operand(q), operand(sign)));
    };
    Some(if d < 0 { b.iadd(rz(), ineg(operand(q))) } else { q })
}

/// `n - q × d` of 32-bit numbers.
pub fn rem32(b: &mut Builder<'_>, n: &Operand, q: Value, d: u32) -> Value {
    b.imad(operand(q), imm(d.wrapping_neg()), *n)
}

/// `n / d` of 64-bit unsigned numbers; `None` for `d` = 0.
pub fn div_u64(b: &mut Builder<'_>, n: &Pair, d: u64) -> Option<Value> {
    if d == 0 {
        return None;
    }
    Some(match unsigned(d, 64) {
        Unsigned::Shift(k) => shr64(b, false, n, &imm(k)),
        Unsigned::Compare => {
            let p = b.isetp64(Mod::GE, false, n, &Pair::imm(d));
            let q = b.sel(operand(p), imm(1), rz());
            b.collect(&[operand(q), rz()])
        }
        Unsigned::Multiply(m, s) => {
            let q = mul_hi64(b, false, n, &Pair::imm(m));
            shr64(b, false, &Pair::of(q), &imm(s))
        }
        Unsigned::MultiplyAdd(m, s) => {
            let t = Pair::of(mul_hi64(b, false, n, &Pair::imm(m)));
            let rest = b.sub64(n, &t);
            let half = shr64(b, false, &Pair::of(rest), &imm(1));
            let sum = b.add64(&Pair::of(half), &t);
            shr64(b, false, &Pair::of(sum), &imm(s))
        }
    })
}

/// `n / d` of 64-bit signed numbers; `None` for `d` = 0.
pub fn div_s64(b: &mut Builder<'_>, n: &Pair, d: i64) -> Option<Value> {
    if d == 0 {
        return None;
    }
    let ad = d.unsigned_abs();
    let q = if ad == 1 {
        b.pair(n)
    } else if ad.is_power_of_two() {
        let k = ad.trailing_zeros();
        let sign = shr64(b, true, n, &imm(63));
        let round = shr64(b, false, &Pair::of(sign), &imm(64 - k));
        let sum = b.add64(n, &Pair::of(round));
        shr64(b, true, &Pair::of(sum), &imm(k))
    } else {
        let (m, s) = signed(d, 64);
        let mut q = mul_hi64(b, true, n, &Pair::imm(m as u64));
        if d > 0 && m < 0 {
            q = b.add64(&Pair::of(q), n);
        } else if d < 0 && m > 0 {
            q = b.sub64(&Pair::of(q), n);
        }
        let q = shr64(b, true, &Pair::of(q), &imm(s));
        let sign = shr64(b, false, &Pair::of(q), &imm(63));
        return Some(b.add64(&Pair::of(q), &Pair::of(sign)));
    };
    Some(if d < 0 { b.sub64(&Pair::imm(0), &Pair::of(q)) } else { q })
}

/// `n - q × d` of 64-bit numbers.
pub fn rem64(b: &mut Builder<'_>, n: &Pair, q: Value, d: u64) -> Value {
    let product = if d.is_power_of_two() {
        shl64(b, &Pair::of(q), &imm(d.trailing_zeros()))
    } else {
        mul_lo64(b, &Pair::of(q), &Pair::imm(d))
    };
    b.sub64(n, &Pair::of(product))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply_unsigned(n: u64, d: u64, bits: u32) -> u64 {
        let hi = |m: u64| ((u128::from(n) * u128::from(m)) >> bits) as u64;
        match unsigned(d, bits) {
            Unsigned::Shift(k) => n >> k,
            Unsigned::Compare => u64::from(n >= d),
            Unsigned::Multiply(m, s) => hi(m) >> s,
            Unsigned::MultiplyAdd(m, s) => (((n - hi(m)) >> 1) + hi(m)) >> s,
        }
    }

    fn apply_signed(n: i64, d: i64, bits: u32) -> i64 {
        let (m, s) = signed(d, bits);
        let wrap = |x: i64| if bits == 32 { i64::from(x as i32) } else { x };
        let mut q = ((i128::from(n) * i128::from(m)) >> bits) as i64;
        if d > 0 && m < 0 {
            q = wrap(q.wrapping_add(n));
        } else if d < 0 && m > 0 {
            q = wrap(q.wrapping_sub(n));
        }
        q >>= s;
        q + i64::from(q < 0)
    }

    const DIVISORS: [u64; 24] = [
        1,
        2,
        3,
        5,
        6,
        7,
        9,
        10,
        11,
        12,
        14,
        25,
        28,
        60,
        100,
        125,
        641,
        1000,
        3600,
        65537,
        1_000_000,
        0x7fff_ffff,
        0x8000_0001,
        0xffff_ffff,
    ];

    fn samples(d: u64, max: u64) -> Vec<u64> {
        let mut v = vec![0, 1, 2, max, max - 1, max / 2, max / 2 + 1];
        for k in [1, 2, 3, 1000, max / d / 2, max / d] {
            let x = d.wrapping_mul(k);
            v.extend([x, x.wrapping_sub(1), x.wrapping_add(1)].map(|x| x & max));
        }
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100 {
            x = x.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            v.push((x ^ x >> 29) & max);
        }
        v
    }

    #[test]
    fn unsigned_quotients() {
        for bits in [32, 64] {
            let max = u64::MAX >> (64 - bits);
            for d in DIVISORS.into_iter().chain([max, max - 1, max / 2 + 2]) {
                for n in samples(d, max) {
                    assert_eq!(apply_unsigned(n, d, bits), n / d, "{n} / {d}, {bits} bits");
                }
            }
        }
    }

    #[test]
    fn signed_quotients() {
        for bits in [32, 64] {
            let max = u64::MAX >> (64 - bits);
            let extend = |x: u64| ((x << (64 - bits)) as i64) >> (64 - bits);
            for d in DIVISORS.into_iter().chain([max / 3, max / 5]) {
                for d in [extend(d), extend(d).wrapping_neg()] {
                    if d == 0 || d.unsigned_abs().is_power_of_two() {
                        continue;
                    }
                    for n in samples(d.unsigned_abs(), max).into_iter().map(extend) {
                        assert_eq!(apply_signed(n, d, bits), n / d, "{n} / {d}, {bits} bits");
                    }
                }
            }
        }
    }
}
