//! Integer division and remainder of 32 and 64 bits by a variable.
//!
//! A reciprocal estimate from below (conversion rounded up, then MUFU.RCP, then less two units in the last
//! place of the estimate) is refined in integer arithmetic until the quotient is short by at most 2, and
//! corrected. Division by zero gives all ones, as ptxas's code does.

use super::asm::{A, Asm, B, neg, part, rz};
use super::shared::{self, Shared};
use ori::{Builder, Operand, Value, operand};
use sass::{Mod, Opcode};

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
    let (no, do_) = (operand(n), operand(d));
    let f = b.def(Opcode::I2F, &[Mod::U32, Mod::RP], std::slice::from_ref(&do_));
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(f)]);
    // 2^32 times the estimate, two ulps down: an exponent step of 32 is 0x10000000.
    let r = b.iadd3(operand(r), Operand::Imm(0x0fff_fffe), rz());
    let r = b.def(Opcode::F2I, &[Mod::FTZ, Mod::U32, Mod::TRUNC, Mod::NTZ], &[operand(r)]);
    // One Newton step: r += hi(r * -(r * d)).
    let minus_r = b.iadd3(neg(operand(r)), rz(), rz());
    let e = b.imad(operand(minus_r), do_.clone(), rz());
    let t = b.imad_wide_u32(operand(r), operand(e), rz());
    let r = b.iadd3(operand(r), part(t, 1), rz());
    let t = b.imad_wide_u32(operand(r), no.clone(), rz());
    let q = part(t, 1);
    let minus_q = b.iadd3(neg(q.clone()), rz(), rz());
    let mut rem = b.imad(operand(minus_q), do_.clone(), no);
    let mut quot = None;
    for _ in 0..2 {
        let over = b.isetp(&[Mod::GE, Mod::U32], operand(rem), do_.clone());
        match want {
            Want::Remainder => {
                let less = b.iadd3(operand(rem), neg(do_.clone()), rz());
                rem = b.sel(operand(less), operand(rem), operand(over));
            }
            Want::Quotient => {
                let less = b.iadd3(operand(rem), neg(do_.clone()), rz());
                rem = b.sel(operand(less), operand(rem), operand(over));
                let old = quot.map_or(q.clone(), operand);
                let more = b.iadd3(old.clone(), Operand::Imm(1), rz());
                quot = Some(b.sel(operand(more), old, operand(over)));
            }
        }
    }
    let result = quot.unwrap_or(rem);
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], do_, rz());
    b.sel(operand(result), Operand::Imm(u32::MAX), operand(nonzero))
}

/// Signed 32-bit division, truncating; the remainder has the sign of the dividend.
pub fn div_s32(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let an = b.def(Opcode::IABS, &[], &[operand(n)]);
    let ad = b.def(Opcode::IABS, &[], &[operand(d)]);
    let r = div_u32(b, an, ad, want);
    let sign = match want {
        Want::Quotient => operand(b.lop3(operand(n), operand(d), rz(), A ^ B)),
        Want::Remainder => operand(n),
    };
    let positive = b.isetp(&[Mod::GE], sign, rz());
    let minus = b.iadd3(neg(operand(r)), rz(), rz());
    let r = b.sel(operand(r), operand(minus), operand(positive));
    let nonzero = b.isetp(&[Mod::NE], operand(d), rz());
    b.sel(operand(r), Operand::Imm(u32::MAX), operand(nonzero))
}

/// High 64 bits of the unsigned product.
fn mulhi_u64(b: &mut Builder, x: Value, y: Value) -> Value {
    let low = b.imad_wide_u32(part(x, 0), part(y, 0), rz());
    // None of the sums overflows: (2^32 - 1)^2 + 2 (2^32 - 1) = 2^64 - 1.
    let c = b.zext(part(low, 1));
    let mid = b.imad_wide_u32(part(x, 0), part(y, 1), operand(c));
    let c = b.zext(part(mid, 0));
    let mid2 = b.imad_wide_u32(part(x, 1), part(y, 0), operand(c));
    let c = b.zext(part(mid, 1));
    let high = b.imad_wide_u32(part(x, 1), part(y, 1), operand(c));
    let c = b.zext(part(mid2, 1));
    b.add64(high, c)
}

/// Unsigned 64-bit division: 32-bit when both high halves are zero.
pub fn div_u64(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let high = b.lop3(part(n, 1), part(d, 1), rz(), A | B);
    let wide = b.isetp(&[Mod::NE, Mod::U32], operand(high), rz());
    let (slow, fast) = b.split(wide);
    let (done, result) = b.join(2);

    b.block = fast;
    let (nl, dl) = (b.copy(part(n, 0)), b.copy(part(d, 0)));
    let r = div_u32(b, nl, dl, want);
    // Division by zero is all ones in 64 bits too.
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], operand(dl), rz());
    let hi = b.sel(rz(), Operand::Imm(u32::MAX), operand(nonzero));
    let r = b.collect(&[operand(r), operand(hi)]);
    b.jump(done, &[r]);

    b.block = slow;
    let path = match want {
        Want::Quotient => Shared::Quotient,
        Want::Remainder => Shared::Remainder,
    };
    let r = shared::path(b, path, &[n, d]);
    b.jump(done, &[r]);

    b.block = done;
    result
}

/// The same by a reciprocal of 64 bits.
pub(super) fn div_u64_wide(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let f = b.def(Opcode::I2F, &[Mod::U64, Mod::RP], &[operand(d)]);
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(f)]);
    // 2^64 times the estimate, two ulps down.
    let r = b.iadd3(operand(r), Operand::Imm(0x1fff_fffe), rz());
    let mut r = b.def(Opcode::F2I, &[Mod::U64, Mod::TRUNC], &[operand(r)]);
    for _ in 0..2 {
        let zero = b.collect(&[rz(), rz()]);
        let product = b.mul64(r, d);
        let e = b.sub64(zero, product);
        let step = mulhi_u64(b, r, e);
        r = b.add64(r, step);
    }
    let mut quot = mulhi_u64(b, n, r);
    let product = b.mul64(quot, d);
    let mut rem = b.sub64(n, product);
    for _ in 0..2 {
        let over = b.ge_u64(rem, d);
        let less = b.sub64(rem, d);
        rem = b.sel64(less, rem, over);
        if want == Want::Quotient {
            let (lo, carry) = b.iadd3_carry(part(quot, 0), Operand::Imm(1), rz());
            let hi = b.iadd_x(part(quot, 1), rz(), carry);
            let more = b.collect(&[operand(lo), operand(hi)]);
            quot = b.sel64(more, quot, over);
        }
    }
    let result = if want == Want::Quotient { quot } else { rem };
    let any = b.lop3(part(d, 0), part(d, 1), rz(), A | B);
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], operand(any), rz());
    let lo = b.sel(part(result, 0), Operand::Imm(u32::MAX), operand(nonzero));
    let hi = b.sel(part(result, 1), Operand::Imm(u32::MAX), operand(nonzero));
    b.collect(&[operand(lo), operand(hi)])
}

/// `negative ? -x : x`, where `sign` is negative.
fn negate_if(b: &mut Builder, x: Value, sign: Operand) -> Value {
    let zero = b.collect(&[rz(), rz()]);
    let minus = b.sub64(zero, x);
    let positive = b.isetp(&[Mod::GE], sign, rz());
    b.sel64(x, minus, positive)
}

/// Signed 64-bit division, truncating.
pub fn div_s64(b: &mut Builder, n: Value, d: Value, want: Want) -> Value {
    let an = negate_if(b, n, part(n, 1));
    let ad = negate_if(b, d, part(d, 1));
    let r = div_u64(b, an, ad, want);
    let sign = match want {
        Want::Quotient => operand(b.lop3(part(n, 1), part(d, 1), rz(), A ^ B)),
        Want::Remainder => part(n, 1),
    };
    let r = negate_if(b, r, sign);
    let any = b.lop3(part(d, 0), part(d, 1), rz(), A | B);
    let nonzero = b.isetp(&[Mod::NE, Mod::U32], operand(any), rz());
    let lo = b.sel(part(r, 0), Operand::Imm(u32::MAX), operand(nonzero));
    let hi = b.sel(part(r, 1), Operand::Imm(u32::MAX), operand(nonzero));
    b.collect(&[operand(lo), operand(hi)])
}
