//! Integer division and remainder of 32 and 64 bits by a variable.
//!
//! A reciprocal estimate from below (conversion rounded up, then MUFU.RCP, then less two units in the last
//! place of the estimate) is refined in integer arithmetic until the quotient is short by at most 2, and
//! corrected. Division by zero gives all ones, as ptxas's code does.

use super::asm::{A, Asm, B, neg, not, part, rz};
use super::shared::{self, Shared};
use crate::emit::{self, never};
use ori::{Builder, Guard, Operand, Value, operand};
use sass::{Mod, Opcode, RegFile};

/// Which result is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// `n / d`
    Quotient,
    /// `n % d`
    Remainder,
}

/// Unsigned 32-bit division.
pub fn div_u32(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let r = div_u32_nonzero(b, n, d, want);
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], operand(d), rz());
    b.sel(operand(r), Operand::Imm(u32::MAX), operand(nonzero))
}

/// `p ? a + b : a`
fn add_if(b: &mut Builder, p: Value, a: Value, x: Operand) -> Value {
    let sum = [operand(a), x, rz(), never(), never()];
    emit::Emit::def_guarded(b, Guard { pred: p.into(), not: false }, Opcode::IADD3, &[], &sum, a)
}

/// Unsigned 32-bit division by anything but zero.
fn div_u32_nonzero(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let f = b.def(Opcode::I2F, &[Mod::U32, Mod::RP], &[operand(d)]);
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(f)]);
    // 2^32 times the estimate, two ulps down: an exponent step of 32 is 0x10000000.
    let r = b.iadd3(operand(r), Operand::Imm(0x0fff_fffe), rz());
    let r = b.def(Opcode::F2I, &[Mod::FTZ, Mod::U32, Mod::TRUNC, Mod::NTZ], &[operand(r)]);
    // One Newton step: r += hi(r * -(r * d)).
    let minus_d = b.iadd3(neg(operand(d)), rz(), rz());
    let e = b.imad(operand(r), operand(minus_d), rz());
    let t = b.imad_hi_u32(operand(r), operand(e));
    let r = b.iadd3(operand(r), operand(t), rz());
    let mut q = b.imad_hi_u32(operand(r), operand(n));
    let mut rem = b.imad(operand(q), operand(minus_d), operand(n));
    for last in [false, true] {
        let over = b.isetp(&[Mod::GE, Mod::U32], operand(rem), operand(d));
        if want == Want::Quotient {
            q = add_if(b, over, q, Operand::Imm(1));
        }
        if want == Want::Remainder || !last {
            rem = add_if(b, over, rem, neg(operand(d)));
        }
    }
    if want == Want::Quotient { q } else { rem }
}

/// Signed 32-bit division, truncating; the remainder has the sign of the dividend.
pub fn div_s32(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let an = b.def(Opcode::IABS, &[], &[operand(n)]);
    let ad = b.def(Opcode::IABS, &[], &[operand(d)]);
    let r = div_u32_nonzero(b, an, ad, want);
    let sign = match want {
        Want::Quotient => operand(b.lop3(operand(n), operand(d), rz(), A ^ B)),
        Want::Remainder => operand(n),
    };
    let negative = b.isetp(&[Mod::LT], sign, rz());
    let minus = [neg(operand(r)), rz(), rz(), never(), never()];
    let r = emit::Emit::def_guarded(
        b,
        Guard { pred: negative.into(), not: false },
        Opcode::IADD3,
        &[],
        &minus,
        r,
    );
    let nonzero = b.isetp(&[Mod::NE], operand(d), rz());
    b.sel(operand(r), Operand::Imm(u32::MAX), operand(nonzero))
}

/// `a * b + c` of 32-bit factors and a 64-bit addend: all 64 bits, or the upper half; and the carry.
fn imad_carry(b: &mut Builder, part: Mod, x: Operand, y: Operand, c: Operand) -> (Value, Value) {
    let r = b.func.add_value(RegFile::R, if part == Mod::WIDE { 2 } else { 1 });
    let carry = b.func.add_value(RegFile::P, 1);
    b.inst(Opcode::IMAD, &[part, Mod::U32], &[operand(r), operand(carry), x, y, c, never()]);
    (r, carry)
}

/// `a + carry` of one or two carries.
fn add_carries(b: &mut Builder, a: Operand, x: Operand, one: Value, other: Operand) -> Value {
    b.def(Opcode::IADD3, &[Mod::X], &[a, x, rz(), operand(one), other])
}

/// High 64 bits of the unsigned product, and `add`.
fn mulhi_u64(b: &mut Builder, x: Value, y: Value, add: Option<Value>) -> Value {
    let [x0, x1, y0, y1] = [part(x, 0), part(x, 1), part(y, 0), part(y, 1)];
    let low = b.imad_hi_u32(x0, y0);
    let top = b.imad_wide_u32(x1, y1, rz());
    // The lower half of the addend has the weight of the upper half of what is added here.
    let c = b.collect(&[operand(low), add.map_or_else(rz, |v| part(v, 0))]);
    let (mid, upper) = match add {
        // (2^32 - 1)^2 + 2^32 - 1 is below 2^64.
        None => (b.imad_wide_u32(x0, y1, operand(c)), part(top, 1)),
        Some(v) => {
            let (mid, carry) = imad_carry(b, Mod::WIDE, x0, y1, operand(c));
            (mid, operand(add_carries(b, part(top, 1), part(v, 1), carry, never())))
        }
    };
    let (mid, first) = imad_carry(b, Mod::HI, x1, y0, operand(mid));
    let (lo, second) = b.iadd3_carry(part(top, 0), operand(mid), rz());
    let hi = add_carries(b, upper, rz(), first, operand(second));
    b.collect(&[operand(lo), operand(hi)])
}

/// Unsigned 64-bit division: 32-bit when both high halves are zero, unless the code has `looked` at them already.
pub fn div_u64(b: &mut Builder, n: Value, d: Value, want: Want, looked: bool) -> Value {
    div_64(b, n, d, Shared::Wide { want, signed: false }, looked)
}

/// Signed 64-bit division, truncating.
pub fn div_s64(b: &mut Builder, n: Value, d: Value, want: Want, looked: bool) -> Value {
    div_64(b, n, d, Shared::Wide { want, signed: true }, looked)
}

fn div_64(b: &mut Builder, n: Value, d: Value, path: Shared, looked: bool) -> Value {
    if looked {
        return shared::path(b, path, &[n, d]);
    }
    let Shared::Wide { want, .. } = path else { unreachable!("{path:?}") };
    let high = b.lop3(part(n, 1), part(d, 1), rz(), A | B);
    let wide = b.isetp(&[Mod::NE, Mod::U32], operand(high), rz());
    let (slow, fast) = b.split(wide);
    let (done, result) = b.join(2);

    b.block = fast;
    let (nl, dl) = (b.copy(part(n, 0)), b.copy(part(d, 0)));
    let r = div_u32_nonzero(b, nl, dl, want);
    // Division by zero is all ones in 64 bits.
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], operand(dl), rz());
    let lo = b.sel(operand(r), Operand::Imm(u32::MAX), operand(nonzero));
    let hi = b.sel(rz(), Operand::Imm(u32::MAX), operand(nonzero));
    let r = b.collect(&[operand(lo), operand(hi)]);
    b.jump(done, &[r]);

    b.block = slow;
    let r = shared::path(b, path, &[n, d]);
    b.jump(done, &[r]);

    b.block = done;
    result
}

/// Any 64-bit division.
pub(super) fn div_64_wide(b: &mut Builder, n: Value, d: Value, want: Want, signed: bool) -> Value {
    let result = if signed {
        let an = negate_if(b, n, part(n, 1));
        let ad = negate_if(b, d, part(d, 1));
        let r = div_u64_nonzero(b, an, ad, want);
        let sign = match want {
            Want::Quotient => operand(b.lop3(part(n, 1), part(d, 1), rz(), A ^ B)),
            Want::Remainder => part(n, 1),
        };
        negate_if(b, r, sign)
    } else {
        div_u64_nonzero(b, n, d, want)
    };
    let any = b.lop3(part(d, 0), part(d, 1), rz(), A | B);
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], operand(any), rz());
    let lo = b.sel(part(result, 0), Operand::Imm(u32::MAX), operand(nonzero));
    let hi = b.sel(part(result, 1), Operand::Imm(u32::MAX), operand(nonzero));
    b.collect(&[operand(lo), operand(hi)])
}

/// Unsigned 64-bit division by anything but zero, by a reciprocal of 64 bits.
fn div_u64_nonzero(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let f = b.def(Opcode::I2F, &[Mod::U64, Mod::RP], &[operand(d)]);
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(f)]);
    // 2^64 times the estimate, two ulps down.
    let r = b.iadd3(operand(r), Operand::Imm(0x1fff_fffe), rz());
    let mut r = b.def(Opcode::F2I, &[Mod::U64, Mod::TRUNC], &[operand(r)]);
    for _ in 0..2 {
        let zero = b.collect(&[rz(), rz()]);
        let product = b.mul64(r, d);
        let e = b.sub64(zero, product);
        r = mulhi_u64(b, r, e, Some(r));
    }
    let mut quot = mulhi_u64(b, n, r, None);
    let product = b.mul64(quot, d);
    let mut rem = b.sub64(n, product);
    for last in [false, true] {
        // The carry of the difference says that it isn't negative.
        let (lo, carry) = b.iadd3_carry(part(rem, 0), neg(part(d, 0)), rz());
        let (hi, over) = emit::Emit::iadd_carry(b, part(rem, 1), not(part(d, 1)), Some(operand(carry)));
        if want == Want::Remainder || !last {
            let less = b.collect(&[operand(lo), operand(hi)]);
            rem = b.sel64(less, rem, over);
        }
        if want == Want::Quotient {
            let (lo, carry) = emit::Emit::iadd_carry(b, part(quot, 0), rz(), Some(operand(over)));
            let hi = b.iadd_x(part(quot, 1), rz(), carry);
            quot = b.collect(&[operand(lo), operand(hi)]);
        }
    }
    if want == Want::Quotient { quot } else { rem }
}

/// `negative ? -x : x`, where `sign` is negative.
fn negate_if(b: &mut Builder, x: Value, sign: Operand) -> Value {
    let zero = b.collect(&[rz(), rz()]);
    let minus = b.sub64(zero, x);
    let positive = b.isetp(&[Mod::GE], sign, rz());
    b.sel64(x, minus, positive)
}
