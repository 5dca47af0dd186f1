//! Single-precision division, reciprocal and square root, rounded to nearest even.

use super::asm::{A, Asm, B, C, abs, f32_imm, f64_imm, neg, part, rz};
use super::f64::{newton_rcp_f64, quotient_f64};
use super::shared::{self, Shared};
use crate::convert::Round;
use ori::{Builder, Guard, Operand, Value, operand};
use sass::{Mod, Opcode};

/// Replaces a subnormal by a zero of its sign.
pub(super) fn flush(b: &mut Builder, x: Value) -> Value {
    b.def(Opcode::FMUL, &[Mod::FTZ], &[operand(x), f32_imm(1.0)])
}

/// The slow path of a division to nearest.
fn slow_division(b: &mut Builder, x: Value, y: Value, ftz: bool) -> Value {
    shared::path(b, if ftz { Shared::DivF32Ftz } else { Shared::DivF32 }, &[x, y])
}

/// `x / y`, IEEE; with `ftz`, subnormal operands and results are zeros of their sign, which only the slow path has.
pub fn div_f32(b: &mut Builder, x: Value, y: Value, ftz: bool) -> Value {
    let (xo, yo) = (operand(x), operand(y));
    let r = b.def(Opcode::MUFU, &[Mod::RCP], std::slice::from_ref(&yo));
    let risky = b.def_pred(Opcode::FCHK, &[], &[xo.clone(), yo.clone()]);
    let e = b.ffma(&[], neg(yo.clone()), operand(r), f32_imm(1.0));
    let r = b.ffma(&[], operand(r), operand(e), operand(r));
    let q = b.ffma(&[], xo.clone(), operand(r), rz());
    let rem = b.ffma(&[], neg(yo), operand(q), xo);
    let q = b.ffma(&[], operand(r), operand(rem), operand(q));
    with_slow_path(b, risky, q, |b| slow_division(b, x, y, ftz))
}

/// `1 / x`, IEEE.
pub fn rcp_f32(b: &mut Builder, x: Value, ftz: bool) -> Value {
    // The fast path holds for exponents 1 … 252: neither x nor 1/x is subnormal.
    let e = b.iadd3(operand(x), Operand::Imm(0x0180_0000), rz());
    let e = b.lop3(operand(e), Operand::Imm(0x7f80_0000), rz(), A & B);
    let risky = b.isetp(&[Mod::LE, Mod::U32], operand(e), Operand::Imm(0x01ff_ffff));
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(x)]);
    let e = b.ffma(&[], operand(x), operand(r), f32_imm(-1.0));
    let e = b.def(Opcode::FADD, &[Mod::FTZ], &[neg(operand(e)), neg(rz())]);
    let q = b.ffma(&[], operand(r), operand(e), operand(r));
    with_slow_path(b, risky, q, |b| {
        let one = b.copy(f32_imm(1.0));
        slow_division(b, one, x, ftz)
    })
}

/// `sqrt(x)`, IEEE.
pub fn sqrt_f32(b: &mut Builder, x: Value, ftz: bool) -> Value {
    let x = if ftz { flush(b, x) } else { x };
    // Fast for finite x >= 2^-101: the residual stays normal.
    let t = b.iadd3(operand(x), Operand::Imm(0xf300_0000), rz());
    let risky = b.isetp(&[Mod::GT, Mod::U32], operand(t), Operand::Imm(0x727f_ffff));
    let q = sqrt_f32_normal(b, x);
    with_slow_path(b, risky, q, |b| {
        // Small: sqrt(x 2^64) 2^-32, exact scalings. Zero, infinity, NaN: x + x. Negative: NaN.
        let scaled = b.def(Opcode::FMUL, &[], &[operand(x), f32_imm(18446744073709551616.0)]);
        let q = sqrt_f32_normal(b, scaled);
        let q = b.def(Opcode::FMUL, &[], &[operand(q), f32_imm(2.328_306_4e-10)]);
        let twice = b.def(Opcode::FADD, &[], &[operand(x), operand(x)]);
        let below = b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::AND], &[operand(x), rz()]);
        let special = b.sel(Operand::Imm(0x7fff_ffff), operand(twice), operand(below));
        let positive = b.def_pred(Opcode::FSETP, &[Mod::GT, Mod::AND], &[operand(x), rz()]);
        let small = b.def_pred(
            Opcode::FSETP,
            &[Mod::LT, Mod::AND],
            &[operand(x), f32_imm(f32::INFINITY), operand(positive)],
        );
        b.sel(operand(q), operand(special), operand(small))
    })
}

/// `sqrt(x)` for 2^-101 <= x < infinity: one correction of x * rsqrt(x).
fn sqrt_f32_normal(b: &mut Builder, x: Value) -> Value {
    let r = b.def(Opcode::MUFU, &[Mod::RSQ], &[operand(x)]);
    let s = b.def(Opcode::FMUL, &[Mod::FTZ], &[operand(x), operand(r)]);
    let h = b.def(Opcode::FMUL, &[Mod::FTZ], &[operand(r), f32_imm(0.5)]);
    let e = b.ffma(&[], neg(operand(s)), operand(s), operand(x));
    b.ffma(&[], operand(e), operand(h), operand(s))
}

/// `risky ? slow() : fast`, `slow` in a block of its own.
fn with_slow_path(
    b: &mut Builder,
    risky: Value,
    fast: Value,
    slow: impl FnOnce(&mut Builder) -> Value,
) -> Value {
    let from = b.block;
    let slow_block = b.func.add_block();
    let (done, result) = b.join(b.func.values[fast].width);
    b.block = from;
    b.terminate(ori::Terminator::Branch {
        cond: risky.into(),
        not: false,
        taken: Builder::call(slow_block),
        fall: ori::BlockCall { block: done, args: smallvec::SmallVec::from_slice(&[fast]) },
    });
    b.block = slow_block;
    let value = slow(b);
    b.jump(done, &[value]);
    b.block = done;
    result
}

/// `rounded`, the binary64 number `exact` as a binary32 one, or a zero where the result is below 2⁻¹²⁶ once it is
/// rounded as if there were smaller exponents (the limits are those of ptxas's code for `cvt.ftz.f32.f64`).
pub(crate) fn flush_rounded(b: &mut Builder, exact: Value, rounded: Value, round: Round) -> Value {
    const NORMAL: u64 = 0x3810_0000_0000_0000;
    // Magnitudes above (1 − 2⁻²⁴) · 2⁻¹²⁶.
    const AWAY: u64 = 0x380f_ffff_e000_0001;
    // The tie, which is to even.
    const NEAREST: u64 = 0x380f_ffff_f000_0000;
    let (positive, negative) = match round {
        Round::Nearest => (NEAREST, NEAREST),
        Round::Zero => (NORMAL, NORMAL),
        Round::Minus => (NORMAL, AWAY),
        Round::Plus => (AWAY, NORMAL),
    };
    let word = |n: u64, k: u32| Operand::Imm((n >> (32 * k)) as u32);
    let limit = if positive == NORMAL && negative == NORMAL {
        f64_imm(f64::from_bits(NORMAL))
    } else if positive == negative {
        operand(b.collect(&[word(positive, 0), word(positive, 1)]))
    } else {
        let sign = b.isetp(&[Mod::LT], part(exact, 1), rz());
        let words = [0, 1].map(|k| {
            let other = b.copy(word(positive, k));
            let negative = b.copy(word(negative, k));
            operand(b.sel(operand(negative), operand(other), operand(sign)))
        });
        operand(b.collect(&words))
    };
    let normal = b.def_pred(Opcode::DSETP, &[Mod::GEU, Mod::AND], &[abs(operand(exact)), limit]);
    let below = Guard { pred: normal.into(), not: true };
    let tiny = [operand(rounded), f32_imm(f32::MIN_POSITIVE)];
    crate::emit::Emit::def_guarded(b, below, Opcode::FMUL, &[], &tiny, rounded)
}

/// `x / y` for any operands, through double precision.
///
/// A quotient of two 24-bit significands is either exactly a midpoint of the result format (subnormal
/// results included: they only have fewer bits), and then exact in 53 bits, or at least 2^-49 away from
/// every midpoint relative to its size, so rounding first to 53 bits does not change the second rounding.
/// Operands are in the range of binary32, so nothing overflows or underflows in binary64.
///
pub(super) fn div_f32_any(b: &mut Builder, x: Value, y: Value, round: Round, ftz: bool) -> Value {
    let (x, y) = if ftz { (flush(b, x), flush(b, y)) } else { (x, y) };
    let special_of = |b: &mut Builder, v: Value| {
        // 0, infinity and NaN have |v| - 1 >= 0x7f7fffff as an unsigned number.
        let m = b.lop3(operand(v), Operand::Imm(0x7fff_ffff), rz(), A & B);
        let m = b.iadd3(operand(m), Operand::Imm(u32::MAX), rz());
        b.isetp(&[Mod::GE, Mod::U32], operand(m), Operand::Imm(0x7f7f_ffff))
    };
    let sx = special_of(b, x);
    let sy = special_of(b, y);
    let dx = b.def(Opcode::F2F, &[Mod::F64, Mod::F32], &[operand(x)]);
    let dy = b.def(Opcode::F2F, &[Mod::F64, Mod::F32], &[operand(y)]);
    let r = newton_rcp_f64(b, dy);
    let q = quotient_f64(b, dx, dy, r);
    let mut mods: smallvec::SmallVec<[Mod; 3]> = smallvec::SmallVec::from_slice(&[Mod::F32, Mod::F64]);
    mods.extend(round.sass());
    let finite = b.def(Opcode::F2F, &mods, &[operand(q)]);
    // No quotient is between the two greatest numbers up to 2⁻¹²⁶, so the direction does not matter.
    let finite = if ftz { flush_rounded(b, q, finite, Round::Zero) } else { finite };
    // Specials: x * (1/y) where y is 0, infinite or NaN; otherwise x with the sign of y folded in.
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(y)]);
    let one = b.lop3(operand(y), Operand::Imm(0x8000_0000), Operand::Imm(0x3f80_0000), (A & B) | C);
    let factor = b.sel(operand(r), operand(one), operand(sy));
    let special = b.def(Opcode::FMUL, &[], &[operand(x), operand(factor)]);
    let t = b.sel(operand(special), operand(finite), operand(sx));
    b.sel(operand(special), operand(t), operand(sy))
}
