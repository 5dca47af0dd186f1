//! Integer and bit instructions: one value from up to four.

use super::decode::Code;
use ::ptx::{Mod, Op, Type};

/// All bits of a type set.
pub(super) fn mask(ty: Type) -> u64 {
    match ty.bits() {
        _ if ty == Type::pred => 1,
        64.. => u64::MAX,
        n => (1 << n) - 1,
    }
}

/// The number that bits of a type stand for.
pub(super) fn value(bits: u64, ty: Type) -> i128 {
    let unused = 64 - ty.bits().min(64);
    if ty.is_signed() {
        i128::from((bits << unused) as i64 >> unused)
    } else {
        i128::from(bits << unused >> unused)
    }
}

/// Least and greatest value of an integer type.
pub(super) fn range(ty: Type) -> (i128, i128) {
    if ty.is_signed() {
        (-1 << (ty.bits() - 1), (1 << (ty.bits() - 1)) - 1)
    } else {
        (0, (1 << ty.bits()) - 1)
    }
}

/// The type of twice the width.
pub(super) fn wide(ty: Type) -> Type {
    match ty {
        Type::u16 => Type::u32,
        Type::s16 => Type::s32,
        Type::u32 => Type::u64,
        _ => Type::s64,
    }
}

/// The value of an integer instruction and its type. `carry` is the condition code.
pub(super) fn eval(code: &Code<'_>, x: &[u64], carry: &mut bool) -> Option<(u64, Type)> {
    let (inst, ty) = (code.inst, code.ty);
    if let Some(part) = match ty {
        Type::u16x2 => Some(Type::u16),
        Type::s16x2 => Some(Type::s16),
        Type::u8x4 => Some(Type::u8),
        Type::s8x4 => Some(Type::s8),
        _ => None,
    } {
        let relu = inst.has(Mod::relu);
        let one = |shift: u32| {
            let at = |i: usize| value(x.get(i).copied().unwrap_or(0) >> shift & mask(part), part);
            let (a, b) = (at(0), at(1));
            let r = match inst.op {
                Op::add => a + b,
                Op::sub => a - b,
                Op::neg => -a,
                Op::min => a.min(b),
                Op::max => a.max(b),
                _ => return None,
            };
            let r = if code.sat { r.clamp(range(part).0, range(part).1) } else { r };
            Some(((if relu { r.max(0) } else { r }) as u64 & mask(part)) << shift)
        };
        let r = (0..32).step_by(part.bits() as usize).try_fold(0, |r, shift| Some(r | one(shift)?))?;
        return Some((r, ty));
    }
    let bits = ty.bits();
    let v = |i: usize| value(x[i], ty);
    let clamp = |r: i128| if code.sat { r.clamp(range(ty).0, range(ty).1) } else { r };
    // The product is right in its low 128 bits, which is all that any form keeps.
    let product = |a: i128, b: i128| {
        let p = a.wrapping_mul(b);
        if inst.has(Mod::hi) { value((p as u128 >> bits) as u64, ty) } else { p }
    };
    let is_wide = inst.has(Mod::wide);
    let with_carry = inst.has(Mod::cc);
    // Unsigned sum of three, with the carry out of the type.
    let sum = |carry: &mut bool, a: u64, b: u64, c: bool| {
        let m = mask(ty);
        let s = u128::from(a & m) + u128::from(b & m) + u128::from(c);
        if with_carry {
            *carry = s >> bits != 0;
        }
        s as u64
    };
    let r: i128 = match inst.op {
        Op::add if with_carry => sum(carry, x[0], x[1], false).into(),
        Op::addc => sum(carry, x[0], x[1], *carry).into(),
        // Subtraction adds the complement, and the condition code is the carry of that sum: what ptxas 13.0.88
        // compiles `addc` after `sub.cc` and `subc` after `add.cc` to.
        Op::sub if with_carry => sum(carry, x[0], !x[1], true).into(),
        Op::subc => sum(carry, x[0], !x[1], *carry).into(),
        Op::add => clamp(v(0) + v(1)),
        Op::sub => clamp(v(0) - v(1)),
        Op::mul if is_wide => return Some((v(0).wrapping_mul(v(1)) as u64, wide(ty))),
        Op::mad if is_wide => {
            return Some((v(0).wrapping_mul(v(1)).wrapping_add(x[2].into()) as u64, wide(ty)));
        }
        Op::mul => product(v(0), v(1)),
        Op::mad if with_carry => sum(carry, product(v(0), v(1)) as u64, x[2], false).into(),
        Op::madc => sum(carry, product(v(0), v(1)) as u64, x[2], *carry).into(),
        Op::mad => clamp(product(v(0), v(1)).wrapping_add(v(2))),
        Op::mul24 | Op::mad24 => {
            let low24 = |i: usize| {
                let t = x[i] << 40;
                if ty.is_signed() { i128::from(t as i64 >> 40) } else { i128::from(t >> 40) }
            };
            let p = low24(0) * low24(1);
            let p = if inst.has(Mod::hi) { p >> 16 } else { p };
            let p = value(p as u64, ty);
            if inst.op == Op::mad24 { clamp(p + v(2)) } else { p }
        }
        Op::sad => v(2) + (v(0) - v(1)).abs(),
        // Division by zero gives all ones, quotient and remainder, as ptxas's sequence does.
        Op::div if v(1) == 0 => -1,
        Op::rem if v(1) == 0 => -1,
        Op::div => v(0) / v(1),
        Op::rem => v(0) % v(1),
        Op::abs => v(0).abs(),
        Op::neg => -v(0),
        Op::min | Op::max => {
            let r = if inst.op == Op::min { v(0).min(v(1)) } else { v(0).max(v(1)) };
            if inst.has(Mod::relu) { r.max(0) } else { r }
        }
        Op::popc => return Some(((x[0] & mask(ty)).count_ones().into(), Type::u32)),
        Op::clz => {
            let zeros = (x[0] & mask(ty)).leading_zeros() - (64 - bits);
            return Some((zeros.into(), Type::u32));
        }
        Op::bfind => {
            let a = if v(0) < 0 { !v(0) } else { v(0) } as u64;
            let r = match a {
                0 => u32::MAX,
                _ if inst.has(Mod::shiftamt) => bits - 1 - a.ilog2(),
                _ => a.ilog2(),
            };
            return Some((r.into(), Type::u32));
        }
        Op::brev => ((x[0] & mask(ty)).reverse_bits() >> (64 - bits)).into(),
        Op::bfe => bfe(x[0], x[1], x[2], ty).into(),
        Op::bfi => bfi(x[0], x[1], x[2], x[3], bits).into(),
        Op::szext => {
            let n = shift_amount(x[1], inst.has(Mod::wrap));
            match n {
                0 => 0,
                n if n >= 32 => v(0),
                n if ty.is_signed() => i128::from((x[0] << (64 - n)) as i64 >> (64 - n)),
                n => i128::from(x[0] & ((1 << n) - 1)),
            }
        }
        Op::bmsk => {
            let wrap = inst.has(Mod::wrap);
            let (from, n) = (shift_amount(x[0], wrap), shift_amount(x[1], wrap));
            let ones = if n >= 32 { u64::from(u32::MAX) } else { (1 << n) - 1 };
            (if from >= 32 { 0 } else { ones << from }).into()
        }
        Op::fns => fns(x[0] as u32, x[1] as u32, x[2] as u32 as i32).into(),
        Op::dp4a => {
            let (a, b) = (byte_type(code.ty), byte_type(code.ty2));
            let dot: i128 = (0..4).map(|i| value(x[0] >> (8 * i), a) * value(x[1] >> (8 * i), b)).sum();
            dot + value(x[2], Type::s32)
        }
        Op::dp2a => {
            let half = |t: Type| if t.is_signed() { Type::s16 } else { Type::u16 };
            let skip = if inst.has(Mod::hi) { 16 } else { 0 };
            let dot: i128 = (0..2)
                .map(|i| {
                    value(x[0] >> (16 * i), half(code.ty))
                        * value(x[1] >> (skip + 8 * i), byte_type(code.ty2))
                })
                .sum();
            dot + value(x[2], Type::s32)
        }
        Op::and => (x[0] & x[1]).into(),
        Op::or => (x[0] | x[1]).into(),
        Op::xor => (x[0] ^ x[1]).into(),
        Op::not => (!x[0]).into(),
        Op::cnot => i128::from(x[0] & mask(ty) == 0),
        Op::lop3 => lop3(x[0], x[1], x[2], x[3]).into(),
        Op::shf => {
            let n = shift_amount(x[2], inst.has(Mod::wrap));
            let both = (x[1] & 0xffff_ffff) << 32 | x[0] & 0xffff_ffff;
            (if inst.has(Mod::l) { ((u128::from(both) << n) >> 32) as u64 } else { both >> n }).into()
        }
        Op::shl => {
            let n = x[1] & 0xffff_ffff;
            (if n >= u64::from(bits) { 0 } else { x[0] << n }).into()
        }
        Op::shr => v(0) >> (x[1] & 0xffff_ffff).min(127),
        Op::prmt => prmt(x[0], x[1], x[2], inst.mods.last().copied()).into(),
        _ => return None,
    };
    Some((r as u64 & mask(ty), ty))
}

/// A shift amount of 32-bit data: clamped to 32, or its low five bits.
fn shift_amount(x: u64, wrap: bool) -> u32 {
    if wrap { x as u32 & 31 } else { (x as u32).min(32) }
}

fn byte_type(t: Type) -> Type {
    if t.is_signed() { Type::s8 } else { Type::u8 }
}

fn bfe(a: u64, pos: u64, len: u64, ty: Type) -> u64 {
    let (pos, len, msb) = (pos & 0xff, len & 0xff, u64::from(ty.bits()) - 1);
    let bit = |i: u64| a >> i & 1;
    let fill = if !ty.is_signed() || len == 0 { 0 } else { bit((pos + len - 1).min(msb)) };
    (0..=msb).fold(0, |d, i| d | (if i < len && pos + i <= msb { bit(pos + i) } else { fill }) << i)
}

fn bfi(a: u64, b: u64, pos: u64, len: u64, bits: u32) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    (0..len).take_while(|i| pos + i < u64::from(bits)).fold(b, |f, i| {
        let at = pos + i;
        f & !(1 << at) | (a >> i & 1) << at
    })
}

/// The n-th set bit from a base, as the PTX manual's pseudocode finds it.
fn fns(bits: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    let (inc, mut left) = match offset {
        0 => return if bits >> base & 1 != 0 { base } else { u32::MAX },
        n if n > 0 => (1, n.unsigned_abs()),
        n => (-1, n.unsigned_abs()),
    };
    let mut at = base as i32;
    while (0..32).contains(&at) {
        if bits >> at & 1 != 0 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += inc;
    }
    u32::MAX
}

/// A bitwise function of three by its truth table.
pub(super) fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    (0..8).filter(|i| table >> i & 1 != 0).fold(0, |r, i| {
        let pick = |x: u64, bit: u64| if i & bit != 0 { x } else { !x };
        r | pick(a, 4) & pick(b, 2) & pick(c, 1)
    }) & 0xffff_ffff
}

fn prmt(a: u64, b: u64, c: u64, mode: Option<Mod>) -> u64 {
    let bytes = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    let byte = |i: u64| bytes >> (8 * (i & 7)) & 0xff;
    let s = c & 3;
    let select: [u64; 4] = match mode {
        Some(Mod::f4e) => [s, s + 1, s + 2, s + 3],
        Some(Mod::b4e) => [s, s.wrapping_sub(1), s.wrapping_sub(2), s.wrapping_sub(3)],
        Some(Mod::rc8) => [s; 4],
        Some(Mod::ecl) => [s, s.max(1), s.max(2), 3],
        Some(Mod::ecr) => [0, s.min(1), s.min(2), s],
        Some(Mod::rc16) => [2 * (s & 1), 2 * (s & 1) + 1, 2 * (s & 1), 2 * (s & 1) + 1],
        _ => {
            return (0..4).fold(0, |d, i| {
                let n = c >> (4 * i) & 15;
                let x = byte(n);
                let x = if n & 8 != 0 { if x & 0x80 != 0 { 0xff } else { 0 } } else { x };
                d | x << (8 * i)
            });
        }
    };
    (0..4).fold(0, |d, i| d | byte(select[i]) << (8 * i))
}
