//! 64-bit integer arithmetic on register pairs.

use crate::emit::{Emit, Pair, as_imm, imm, ineg, rz};
use ori::{Builder, Guard, Operand, Value, operand};
use sass::{Mod, Opcode};

/// `a << n`; 0 for n > 63.
pub fn shl64(b: &mut Builder<'_>, a: &Pair, n: &Operand) -> Value {
    match as_imm(n) {
        Some(0) => return b.pair(a),
        Some(n @ 32..) => {
            let hi = if n > 63 { rz() } else { operand(b.shl(a.lo, imm(n - 32))) };
            return b.collect(&[rz(), hi]);
        }
        _ => {}
    }
    let lo = b.shl(a.lo, *n);
    let hi = b.shf(&[Mod::L, Mod::U64, Mod::HI], a.lo, *n, a.hi);
    b.collect(&[operand(lo), operand(hi)])
}

/// `a >> n`; sign or 0 for n > 63.
pub fn shr64(b: &mut Builder<'_>, signed: bool, a: &Pair, n: &Operand) -> Value {
    match as_imm(n) {
        Some(0) => return b.pair(a),
        Some(n @ 32..) => {
            let lo = b.shr(signed, a.hi, imm((n - 32).min(32)));
            let hi = if signed { operand(b.shr(true, a.hi, imm(31))) } else { rz() };
            return b.collect(&[operand(lo), hi]);
        }
        _ => {}
    }
    let kind = if signed { Mod::S64 } else { Mod::U64 };
    let lo = b.shf(&[Mod::R, kind], a.lo, *n, a.hi);
    let hi = b.shr(signed, a.hi, *n);
    b.collect(&[operand(lo), operand(hi)])
}

/// The low 64 bits of `a × b`.
pub fn mul_lo64(b: &mut Builder<'_>, x: &Pair, y: &Pair) -> Value {
    let zero = |o: &Operand| as_imm(o) == Some(0);
    let wide = b.imad_wide(false, x.lo, y.lo, rz());
    let mut hi = operand(ori::Name::Part(wide, 1));
    if !zero(&y.hi) {
        hi = operand(b.imad(x.lo, y.hi, hi));
    }
    if !zero(&x.hi) {
        hi = operand(b.imad(x.hi, y.lo, hi));
    }
    b.collect(&[operand(ori::Name::Part(wide, 0)), hi])
}

/// The high 64 bits of `a × b`.
pub fn mul_hi64(b: &mut Builder<'_>, signed: bool, x: &Pair, y: &Pair) -> Value {
    let low = Pair::of(b.imad_wide(false, x.lo, y.lo, rz()));
    let carry = b.collect(&[low.hi, rz()]);
    let middle = Pair::of(b.imad_wide(false, x.hi, y.lo, operand(carry)));
    let carry = b.collect(&[middle.lo, rz()]);
    let other = Pair::of(b.imad_wide(false, x.lo, y.hi, operand(carry)));
    let top = b.collect(&[middle.hi, rz()]);
    let high = b.imad_wide(false, x.hi, y.hi, operand(top));
    let mut result = b.add64(&Pair::of(high), &Pair::parts(other.hi, rz()));
    if signed {
        for (sign, other) in [(x, y), (y, x)] {
            match as_imm(&sign.hi) {
                Some(h) if (h as i32) < 0 => result = b.sub64(&Pair::of(result), other),
                Some(_) => {}
                None => {
                    let mask = b.shr(true, sign.hi, imm(31));
                    let lo = b.and(operand(mask), other.lo);
                    let hi = b.and(operand(mask), other.hi);
                    result = b.sub64(&Pair::of(result), &Pair::parts(operand(lo), operand(hi)));
                }
            }
        }
    }
    result
}

/// `-a`.
pub fn neg64(b: &mut Builder<'_>, a: &Pair) -> Value {
    b.sub64(&Pair::imm(0), a)
}

/// `|a|`.
pub fn abs64(b: &mut Builder<'_>, a: &Pair) -> Value {
    let negative = b.isetp(Mod::LT, true, a.hi, rz());
    let minus = neg64(b, a);
    b.sel64(operand(negative), &Pair::of(minus), a)
}

/// `f(a, b)` bit by bit; `lut` over a = 0xf0, b = 0xcc.
pub fn logic64(b: &mut Builder<'_>, lut: u8, x: &Pair, y: &Pair) -> Value {
    let lo = logic32(b, lut, &x.lo, &y.lo);
    let hi = logic32(b, lut, &x.hi, &y.hi);
    b.collect(&[lo, hi])
}

/// One half of [`logic64`]; where a constant operand decides, there is nothing to compute.
fn logic32(b: &mut Builder<'_>, lut: u8, x: &Operand, y: &Operand) -> Operand {
    // The function of the other operand that is left, as its values at 0 and 1.
    let rest = |zero: bool, one: bool, other: &Operand| match (zero, one) {
        (false, false) => Some(rz()),
        (true, true) => Some(imm(!0)),
        (false, true) => Some(*other),
        (true, false) => None,
    };
    let bit = |x: u8, y: u8| lut >> (4 * x + 2 * y) & 1 != 0;
    let known = match (as_imm(x), as_imm(y)) {
        (Some(m), Some(n)) => {
            let mut r = 0;
            for i in 0..32 {
                r |= u32::from(bit((m >> i & 1) as u8, (n >> i & 1) as u8)) << i;
            }
            Some(imm(r))
        }
        (Some(0), _) => rest(bit(0, 0), bit(0, 1), y),
        (Some(u32::MAX), _) => rest(bit(1, 0), bit(1, 1), y),
        (_, Some(0)) => rest(bit(0, 0), bit(1, 0), x),
        (_, Some(u32::MAX)) => rest(bit(0, 1), bit(1, 1), x),
        _ => None,
    };
    known.unwrap_or_else(|| operand(b.lop3(*x, *y, rz(), lut)))
}

/// The number of bits set.
pub fn popc64(b: &mut Builder<'_>, a: &Pair) -> Value {
    let lo = b.def(Opcode::POPC, &[], std::slice::from_ref(&a.lo));
    let hi = b.def(Opcode::POPC, &[], std::slice::from_ref(&a.hi));
    b.iadd(operand(lo), operand(hi))
}

/// Position of the highest set bit (`signed`: that differs from the sign); !0 if there is none.
pub fn flo(b: &mut Builder<'_>, signed: bool, a: Operand) -> Value {
    b.def(Opcode::FLO, if signed { &[] } else { &[Mod::U32] }, &[a])
}

/// By how much to shift the highest bit that is not the sign to the top; -1 if there is none.
pub fn flo_shift(b: &mut Builder<'_>, signed: bool, a: Operand) -> Value {
    b.def(Opcode::FLO, if signed { &[Mod::SH] } else { &[Mod::U32, Mod::SH] }, &[a])
}

/// As [`flo`], of 64 bits.
pub fn flo64(b: &mut Builder<'_>, signed: bool, a: &Pair) -> Value {
    let (lo, hi) = if signed {
        let sign = b.shr(true, a.hi, imm(31));
        let lo = b.xor(a.lo, operand(sign));
        let hi = b.xor(a.hi, operand(sign));
        (operand(lo), operand(hi))
    } else {
        (a.lo, a.hi)
    };
    let low = flo(b, false, lo);
    let high = flo(b, false, hi);
    let found = b.isetp(Mod::NE, false, operand(high), imm(!0));
    b.def_guarded(
        Guard { pred: found.into(), not: false },
        Opcode::IADD3,
        &[],
        &[operand(high), imm(32), rz(), crate::emit::never(), crate::emit::never()],
        low,
    )
}

/// The number of leading zeros.
pub fn clz64(b: &mut Builder<'_>, a: &Pair) -> Value {
    let top = flo64(b, false, a);
    b.iadd(ineg(operand(top)), imm(63))
}

/// Bits in reverse order.
pub fn brev64(b: &mut Builder<'_>, a: &Pair) -> Value {
    let lo = b.def(Opcode::BREV, &[], std::slice::from_ref(&a.hi));
    let hi = b.def(Opcode::BREV, &[], std::slice::from_ref(&a.lo));
    b.collect(&[operand(lo), operand(hi)])
}
