//! Single-precision division, reciprocal and square root in every rounding, in binary32 and integer arithmetic alone.
//!
//! Fast paths end with a quotient or root q that is rounded to nearest. A directed result is one step further: the
//! remainder of q is exact, so that q + r · remainder, rounded in the direction, is the neighbour of q on the side of the exact
//! result, or q where there is no remainder. That does not depend on how good the estimate r is.
//!
//! Slow paths work on significands, take exponents apart and put them together again as integers. A second rounding in
//! the same direction changes nothing, so directed results and those with `.ftz` are scaled by a multiplication; subnormal
//! results to nearest are rounded in integers, from the significand of q and the sign of its remainder.

use super::asm::{A, Asm, B, C, abs, f32_imm, f64_imm, neg, part, rz};
use super::shared::{self, Shared};
use crate::convert::{Round, minmax};
use crate::emit::{self, never, pt};
use ori::{Builder, Guard, Operand, Value, operand};
use sass::{Mod, Opcode};
use smallvec::SmallVec;

/// How a result is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// The direction.
    pub round: Round,
    /// Subnormal operands and results are zeros of their sign.
    pub ftz: bool,
}

impl Mode {
    /// All of them.
    pub(super) const ALL: [Mode; 8] = {
        const fn of(round: Round, ftz: bool) -> Mode {
            Mode { round, ftz }
        }
        use Round::{Minus, Nearest, Plus, Zero};
        [
            of(Nearest, false),
            of(Nearest, true),
            of(Zero, false),
            of(Zero, true),
            of(Minus, false),
            of(Minus, true),
            of(Plus, false),
            of(Plus, true),
        ]
    };

    /// A result of arithmetic in this direction.
    fn directed(self, b: &mut Builder, op: Opcode, operands: &[Operand]) -> Value {
        let mods: SmallVec<[Mod; 1]> = self.round.sass().into_iter().collect();
        b.def(op, &mods, operands)
    }

    /// `op`, with subnormal operands as zeros if they are that.
    fn flushing(self, b: &mut Builder, op: Opcode, operands: &[Operand]) -> Value {
        b.def(op, if self.ftz { &[Mod::FTZ] } else { &[] }, operands)
    }

    /// `x cmp y` and `and`.
    fn fsetp(self, b: &mut Builder, cmp: Mod, x: Operand, y: Operand, and: Operand) -> Value {
        let mods: &[Mod] = if self.ftz { &[cmp, Mod::FTZ, Mod::AND] } else { &[cmp, Mod::AND] };
        b.def_pred(Opcode::FSETP, mods, &[x, y, and])
    }

    /// 0 < |v| < ∞, and `and`.
    fn ordinary(self, b: &mut Builder, v: Value, and: Operand) -> Value {
        let nonzero = self.fsetp(b, Mod::GT, abs(operand(v)), rz(), and);
        self.fsetp(b, Mod::LT, abs(operand(v)), f32_imm(f32::INFINITY), operand(nonzero))
    }
}

/// One step from `q`, rounded to nearest, toward the exact result, of which it is `remainder · factor` away: the result in
/// the direction.
fn stepped(b: &mut Builder, mode: Mode, q: Value, remainder: Value, factor: Value) -> Value {
    mode.directed(b, Opcode::FFMA, &[operand(factor), operand(remainder), operand(q)])
}

/// `a · b + c`
fn ffma(b: &mut Builder, x: Operand, y: Operand, z: Operand) -> Value {
    b.def(Opcode::FFMA, &[], &[x, y, z])
}

/// A reciprocal of `y`, good to the last bit or so: the estimate, and a Newton step.
fn reciprocal(b: &mut Builder, y: Value) -> (Value, Value) {
    let estimate = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(y)]);
    let e = ffma(b, neg(operand(y)), operand(estimate), f32_imm(1.0));
    (ffma(b, operand(estimate), operand(e), operand(estimate)), estimate)
}

/// `x - y q`
fn remainder(b: &mut Builder, x: Value, y: Value, q: Value) -> Value {
    ffma(b, neg(operand(y)), operand(q), operand(x))
}

/// `x / y`, IEEE.
pub fn div_f32(b: &mut Builder, x: Value, y: Value, mode: Mode) -> Value {
    let (r, _) = reciprocal(b, y);
    let mut risky = b.def_pred(Opcode::FCHK, &[], &[operand(x), operand(y)]);
    let q = ffma(b, operand(x), operand(r), rz());
    let rem = remainder(b, x, y, q);
    let mut q = ffma(b, operand(r), operand(rem), operand(q));
    if mode.round != Round::Nearest {
        // The sign of the remainder counts, so that nothing of it may be lost: it is a multiple of 2⁻⁴⁸ |x|.
        let small = [abs(operand(x)), f32_imm(2f32.powi(-100)), operand(risky)];
        risky = b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::OR], &small);
        let rem = remainder(b, x, y, q);
        q = stepped(b, mode, q, rem, r);
    }
    with_slow_path(b, risky, q, |b| shared::path(b, Shared::DivF32(mode), &[x, y]))
}

/// `x / y` for any operands.
pub(super) fn div_f32_any(b: &mut Builder, x: Value, y: Value, mode: Mode) -> Value {
    let fine = mode.ordinary(b, y, pt());
    let ordinary = mode.ordinary(b, x, operand(fine));
    let (finite, special) = b.split(ordinary);
    let (done, result) = b.join(1);

    b.block = special;
    // Of a zero or infinite x the sign of y alone counts, so the product does; of such a y the reciprocal is exact.
    let r = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(y)]);
    let factor = b.sel(operand(y), operand(r), operand(fine));
    let r = mode.flushing(b, Opcode::FMUL, &[operand(x), operand(factor)]);
    b.jump(done, &[r]);

    b.block = finite;
    let r = if mode == (Mode { round: Round::Nearest, ftz: false }) {
        div_f32_nearest(b, x, y)
    } else {
        let (mx, ex) = significand(b, x, mode.ftz, SIGNED);
        let (my, ey) = significand(b, y, mode.ftz, SIGNED);
        let (q, r) = quotient(b, mx, my);
        let q = if mode.round == Round::Nearest {
            q
        } else {
            let rem = remainder(b, mx, my, q);
            stepped(b, mode, q, rem, r)
        };
        scaled(b, q, ex, ey, mode)
    };
    b.jump(done, &[r]);
    b.block = done;
    result
}

/// What [`significand`] keeps of a number, and the bits that it adds.
type Kept = (u32, u32);
/// The significand with its sign, in ±[1, 2).
const SIGNED: Kept = (0x807f_ffff, 0x3f80_0000);
/// Without, in [1, 2).
const UNSIGNED: Kept = (0x007f_ffff, 0x3f80_0000);
/// In [1/2, 1).
const HALVED: Kept = (0x007f_ffff, 0x3f00_0000);

/// The significand and the biased exponent of a finite `v` that isn't zero.
fn significand(b: &mut Builder, v: Value, normal: bool, (kept, added): Kept) -> (Value, Value) {
    const UP: i32 = 24;
    let exponent = |b: &mut Builder, v: Value| {
        let e = b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), Operand::Imm(23), operand(v)]);
        b.lop3(operand(e), Operand::Imm(0xff), rz(), A & B)
    };
    let (v, e) = if normal {
        (v, exponent(b, v))
    } else {
        let limit = [abs(operand(v)), f32_imm(f32::MIN_POSITIVE), pt()];
        let tiny = b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::AND], &limit);
        let guard = Guard { pred: tiny.into(), not: false };
        let v =
            emit::Emit::def_guarded(b, guard, Opcode::FMUL, &[], &[operand(v), f32_imm(2f32.powi(UP))], v);
        let e = exponent(b, v);
        let less = [operand(e), Operand::Imm((-UP) as u32), rz(), never(), never()];
        (v, emit::Emit::def_guarded(b, guard, Opcode::IADD3, &[], &less, e))
    };
    (b.lop3(operand(v), Operand::Imm(kept), Operand::Imm(added), (A & B) | C), e)
}

/// `x / y` of significands, rounded to nearest, and about 1 / y.
///
/// After the first correction q is off by no more than 1/2 + 2⁻²² units in its last place, and its remainder is exact. The second
/// correction is off by what the reciprocal is, y 2⁻²⁵, of that; no quotient is as close to the middle of two numbers, 2⁻²⁴ / y units
/// for quotients below 1 and twice as much above, but for y just below 2: there all quotients were tried, and within three units of it the
/// estimate has to be right to the last bit, as it has to be in ptxas's code.
fn quotient(b: &mut Builder, x: Value, y: Value) -> (Value, Value) {
    let (r, _) = reciprocal(b, y);
    let mut q = b.def(Opcode::FMUL, &[], &[operand(x), operand(r)]);
    for _ in 0..2 {
        let rem = remainder(b, x, y, q);
        q = ffma(b, operand(r), operand(rem), operand(q));
    }
    (q, r)
}

/// `q 2^(ex - ey)`, where 1/2 < |q| < 2; with `.ftz` a zero where that is below 2⁻¹²⁶.
fn scaled(b: &mut Builder, q: Value, ex: Value, ey: Value, mode: Mode) -> Value {
    // Most of the exponent is added to q's, without leaving the normal range, and 64 in the multiplication, whose factor
    // is what over- and underflow meet. At 2^±100 they are certain.
    const STEP: i32 = 64;
    const MOST: i32 = 100;
    let below = b.isetp(&[Mod::LT], operand(ex), operand(ey));
    let down = b.copy(Operand::Imm((-STEP) as u32));
    let step = b.sel(Operand::Imm(STEP as u32), operand(down), operand(below));
    let up = b.copy(f32_imm(2f32.powi(STEP)));
    let mut factor = b.sel(f32_imm(2f32.powi(-STEP)), operand(up), operand(below));
    let e = b.iadd3(operand(ex), neg(operand(ey)), operand(step));
    let e = minmax(b, false, true, operand(e), Operand::Imm(MOST as u32));
    let e = minmax(b, true, true, operand(e), Operand::Imm((-MOST) as u32));
    let v = b.imad(operand(e), Operand::Imm(1 << 23), operand(q));
    if mode.ftz {
        let limit = [abs(operand(v)), f32_imm(2f32.powi(STEP - 126)), operand(below)];
        let tiny = b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::AND], &limit);
        factor = b.sel(rz(), operand(factor), operand(tiny));
    }
    mode.directed(b, Opcode::FMUL, &[operand(v), operand(factor)])
}

/// `x / y` of ordinary numbers, to nearest, subnormal results too.
///
/// In units of a quarter of q's last place the exact quotient is 4 q, or between that and 4 q ± 1. So the bits that a shift by two or more
/// places takes away tell below, at and above the middle of two results.
fn div_f32_nearest(b: &mut Builder, x: Value, y: Value) -> Value {
    let (mx, ex) = significand(b, x, false, HALVED);
    let (my, ey) = significand(b, y, false, UNSIGNED);
    let (q, _) = quotient(b, mx, my);
    let rem = remainder(b, mx, my, q);
    // -1, 0 or 1; a remainder of 0 is +0.
    let side = minmax(b, true, true, operand(rem), Operand::Imm(u32::MAX));
    let side = minmax(b, false, true, operand(side), Operand::Imm(1));
    let bits = b.lop3(operand(q), Operand::Imm(0x007f_ffff), Operand::Imm(0x0080_0000), (A & B) | C);
    let quarters = b.imad(operand(bits), Operand::Imm(4), operand(side));
    // One less than the biased exponent of the result, for x's significand is a half.
    let e = b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), Operand::Imm(23), operand(q)]);
    let e = b.iadd3(operand(e), operand(ex), neg(operand(ey)));
    let places = b.iadd3(neg(operand(e)), Operand::Imm(2), rz());
    let places = minmax(b, true, true, operand(places), Operand::Imm(2));
    let places = minmax(b, false, true, operand(places), Operand::Imm(31));
    let kept = b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), operand(places), operand(quarters)]);
    let rest = b.def(Opcode::SHF, &[Mod::R, Mod::U64], &[rz(), operand(places), operand(quarters)]);
    // Above a half, or at a half and odd.
    let rest = b.lop3(operand(rest), operand(kept), Operand::Imm(1), A | (B & C));
    let up = b.isetp(&[Mod::GT, Mod::U32], operand(rest), Operand::Imm(1 << 31));
    let one = [operand(kept), Operand::Imm(1), rz(), never(), never()];
    let kept =
        emit::Emit::def_guarded(b, Guard { pred: up.into(), not: false }, Opcode::IADD3, &[], &one, kept);
    let e = minmax(b, true, true, operand(e), rz());
    let size = b.imad(operand(e), Operand::Imm(1 << 23), operand(kept));
    let size = minmax(b, false, false, operand(size), f32_imm(f32::INFINITY));
    let sign = b.lop3(operand(x), operand(y), Operand::Imm(1 << 31), (A ^ B) & C);
    b.lop3(operand(size), operand(sign), rz(), A | B)
}

/// `1 / x`, IEEE.
pub fn rcp_f32(b: &mut Builder, x: Value, mode: Mode) -> Value {
    // The fast path holds for exponents 1 … 252: neither x nor 1/x is subnormal.
    let e = b.iadd3(operand(x), Operand::Imm(0x0180_0000), rz());
    let e = b.lop3(operand(e), Operand::Imm(0x7f80_0000), rz(), A & B);
    let risky = b.isetp(&[Mod::LE, Mod::U32], operand(e), Operand::Imm(0x01ff_ffff));
    let (mut q, _) = reciprocal(b, x);
    if mode.round != Round::Nearest {
        let rem = ffma(b, neg(operand(x)), operand(q), f32_imm(1.0));
        q = stepped(b, mode, q, rem, q);
    }
    with_slow_path(b, risky, q, |b| shared::path(b, Shared::RcpF32(mode), &[x]))
}

/// `1 / x` where x is special or one of x and 1 / x subnormal or nearly so: not for exponents 1 … 252.
pub(super) fn rcp_f32_any(b: &mut Builder, x: Value, mode: Mode) -> Value {
    if mode.ftz {
        return rcp_f32_flushed(b, x);
    }
    // |x| is below 2⁻¹²⁶, or at least 2¹²⁶. A power of two brings it to where everything is normal, and the result back.
    const STEP: i32 = 32;
    let tiny = mode.fsetp(b, Mod::LT, abs(operand(x)), f32_imm(f32::MIN_POSITIVE), pt());
    let down = b.copy(f32_imm(2f32.powi(-STEP)));
    let scale = b.sel(f32_imm(2f32.powi(STEP)), operand(down), operand(tiny));
    let v = b.def(Opcode::FMUL, &[], &[operand(x), operand(scale)]);
    let (r, estimate) = reciprocal(b, v);
    let rem = ffma(b, neg(operand(v)), operand(r), f32_imm(1.0));
    let r = stepped(b, mode, r, rem, r);
    let back = mode.directed(b, Opcode::FMUL, &[operand(r), operand(scale)]);
    let ordinary = mode.ordinary(b, x, pt());
    let q = if mode.round != Round::Nearest {
        operand(back)
    } else {
        // A subnormal result was rounded twice, and is at worst the wrong one of two neighbours. It is exact as a number, and so
        // is its remainder, whose quotient is no tie: no reciprocal is one. Both factors are scaled by half.
        let half = f32_imm(2f32.powi(-STEP / 2));
        let up = b.def(Opcode::FMUL, &[], &[operand(back), f32_imm(2f32.powi(STEP))]);
        let rem = ffma(b, neg(operand(v)), operand(up), f32_imm(1.0));
        let rem = b.def(Opcode::FMUL, &[], &[operand(rem), half]);
        let r = b.def(Opcode::FMUL, &[], &[operand(r), half]);
        let corrected = ffma(b, operand(r), operand(rem), operand(back));
        operand(b.sel(operand(back), operand(corrected), operand(tiny)))
    };
    // Of 0, infinity and NaN the estimate is the reciprocal.
    b.sel(q, operand(estimate), operand(ordinary))
}

/// The same with `.ftz`, in any direction: of numbers from 2¹²⁶ on, 2¹²⁶ alone has a reciprocal that is normal.
fn rcp_f32_flushed(b: &mut Builder, x: Value) -> Value {
    let estimate = b.def(Opcode::MUFU, &[Mod::RCP], &[operand(x)]);
    let huge = f32_imm(2f32.powi(126));
    let finite =
        b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::AND], &[abs(operand(x)), f32_imm(f32::INFINITY), pt()]);
    let large = b.def_pred(Opcode::FSETP, &[Mod::GE, Mod::AND], &[abs(operand(x)), huge, operand(finite)]);
    let least = b.def_pred(Opcode::FSETP, &[Mod::EQ, Mod::AND], &[abs(operand(x)), huge, pt()]);
    let size = b.sel(f32_imm(f32::MIN_POSITIVE), rz(), operand(least));
    let q = b.lop3(operand(x), Operand::Imm(1 << 31), operand(size), (A & B) | C);
    b.sel(operand(q), operand(estimate), operand(large))
}

/// `√x`, IEEE.
pub fn sqrt_f32(b: &mut Builder, x: Value, mode: Mode) -> Value {
    // Fast for finite x >= 2^-101: the residual stays normal.
    let t = b.iadd3(operand(x), Operand::Imm(0xf300_0000), rz());
    let risky = b.isetp(&[Mod::GT, Mod::U32], operand(t), Operand::Imm(0x727f_ffff));
    let q = sqrt_f32_normal(b, x, mode);
    with_slow_path(b, risky, q, |b| shared::path(b, Shared::SqrtF32(mode), &[x]))
}

/// `√x` where x is below 2⁻¹⁰¹ or special.
pub(super) fn sqrt_f32_any(b: &mut Builder, x: Value, mode: Mode) -> Value {
    // Small: sqrt(x 2^64) 2^-32, exact scalings. Zero, infinity, NaN, negative: MUFU knows.
    let v = mode.flushing(b, Opcode::FMUL, &[operand(x), f32_imm(2f32.powi(64))]);
    let q = sqrt_f32_normal(b, v, mode);
    let q = b.def(Opcode::FMUL, &[], &[operand(q), f32_imm(2f32.powi(-32))]);
    let special = b.def(Opcode::MUFU, &[Mod::SQRT], &[operand(v)]);
    let positive = mode.fsetp(b, Mod::GT, operand(x), rz(), pt());
    let small = mode.fsetp(b, Mod::LT, operand(x), f32_imm(f32::INFINITY), operand(positive));
    b.sel(operand(q), operand(special), operand(small))
}

/// `√x` for 2^-101 <= x < infinity: one correction of x * rsqrt(x).
fn sqrt_f32_normal(b: &mut Builder, x: Value, mode: Mode) -> Value {
    let r = b.def(Opcode::MUFU, &[Mod::RSQ], &[operand(x)]);
    let s = b.def(Opcode::FMUL, &[Mod::FTZ], &[operand(x), operand(r)]);
    let h = b.def(Opcode::FMUL, &[Mod::FTZ], &[operand(r), f32_imm(0.5)]);
    let rem = remainder(b, x, s, s);
    let q = ffma(b, operand(rem), operand(h), operand(s));
    if mode.round == Round::Nearest {
        return q;
    }
    let rem = remainder(b, x, q, q);
    stepped(b, mode, q, rem, h)
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
    emit::Emit::def_guarded(b, below, Opcode::FMUL, &[], &tiny, rounded)
}
