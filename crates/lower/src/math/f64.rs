//! Double-precision division, reciprocal and square root in every rounding.
//!
//! A directed result is one step from the nearest one, q: its remainder is exact, so that q + remainder · factor, rounded in the direction,
//! is the neighbour on the side of the exact result. Slow paths scale what they find with significands by a multiplication in
//! the same direction, which changes nothing.

use super::asm::{A, Asm, B, C, abs, f32_imm, f64_imm, neg, part, rz};
use super::shared::{self, Shared};
use crate::convert::{Round, minmax};
use ori::{Builder, Operand, Value, operand};
use sass::{Mod, Opcode};
use smallvec::SmallVec;

/// A reciprocal of `y` good to the last bit or so, for `y` and `1/y` normal: MUFU.RCP64H on the high half
/// and two Newton steps.
pub(super) fn newton_rcp_f64(b: &mut Builder, y: Value) -> Value {
    let hi = b.def(Opcode::MUFU, &[Mod::RCP64H], &[part(y, 1)]);
    let r = b.collect(&[Operand::Imm(1), operand(hi)]);
    let e = b.dfma(neg(operand(y)), operand(r), f64_imm(1.0));
    let e = b.dfma(operand(e), operand(e), operand(e));
    let r = b.dfma(operand(r), operand(e), operand(r));
    let e = b.dfma(neg(operand(y)), operand(r), f64_imm(1.0));
    b.dfma(operand(r), operand(e), operand(r))
}

/// `x / y` from the reciprocal `r` of `y`, correctly rounded when nothing over- or underflows.
pub(super) fn quotient_f64(b: &mut Builder, x: Value, y: Value, r: Value) -> Value {
    let q = b.def(Opcode::DMUL, &[], &[operand(x), operand(r)]);
    let rem = b.dfma(neg(operand(y)), operand(q), operand(x));
    b.dfma(operand(r), operand(rem), operand(q))
}

/// `q + remainder factor` in the direction.
fn stepped(b: &mut Builder, round: Round, q: Value, remainder: Value, factor: Value) -> Value {
    let mods: SmallVec<[Mod; 1]> = round.sass().into_iter().collect();
    b.def(Opcode::DFMA, &mods, &[operand(remainder), operand(factor), operand(q)])
}

/// `x / y`, IEEE.
pub fn div_f64(b: &mut Builder, x: Value, y: Value, round: Round) -> Value {
    let r = newton_rcp_f64(b, y);
    let q = quotient_f64(b, x, y, r);
    // Fast when the high words say that neither x nor the quotient is near the subnormals and that y is
    // finite (0 * y is NaN otherwise): ptxas's own test. The remainder is exact then.
    let x_large =
        b.def_pred(Opcode::FSETP, &[Mod::GEU, Mod::AND], &[abs(part(x, 1)), f32_imm(6.582_768_4e-37)]);
    let t = b.ffma(&[], rz(), part(y, 1), part(q, 1));
    let q_large = b.def_pred(
        Opcode::FSETP,
        &[Mod::GT, Mod::AND],
        &[abs(operand(t)), f32_imm(f32::from_bits(0x0010_0000)), operand(x_large)],
    );
    let q = if round == Round::Nearest {
        q
    } else {
        let rem = b.dfma(neg(operand(y)), operand(q), operand(x));
        stepped(b, round, q, rem, r)
    };
    slow_unless(b, q_large, q, |b| shared::path(b, Shared::DivF64(round), &[x, y]))
}

/// `1 / x`, IEEE.
pub fn rcp_f64(b: &mut Builder, x: Value, round: Round) -> Value {
    let one = b.collect(&[rz(), f64_imm(1.0)]);
    // Exponents 2 … 2044: x and 1/x are normal with room to spare.
    let e = b.lop3(part(x, 1), Operand::Imm(0x7ff0_0000), rz(), A & B);
    let e = b.iadd3(operand(e), Operand::Imm(0x0020_0000u32.wrapping_neg()), rz());
    let fine = b.isetp(&[Mod::LE, Mod::U32], operand(e), Operand::Imm(0x7fa0_0000));
    let mut r = newton_rcp_f64(b, x);
    if round != Round::Nearest {
        let rem = b.dfma(neg(operand(x)), operand(r), f64_imm(1.0));
        r = stepped(b, round, r, rem, r);
    }
    slow_unless(b, fine, r, |b| shared::path(b, Shared::DivF64(round), &[one, x]))
}

/// `sqrt(x)`, IEEE.
pub fn sqrt_f64(b: &mut Builder, x: Value, round: Round) -> Value {
    let t = b.iadd3(part(x, 1), Operand::Imm(0x0350_0000u32.wrapping_neg()), rz());
    let fine = b.isetp(&[Mod::LT, Mod::U32], operand(t), Operand::Imm(0x7ca0_0000));
    let q = sqrt_f64_normal(b, x, round);
    slow_unless(b, fine, q, |b| shared::path(b, Shared::SqrtF64(round), &[x]))
}

/// `sqrt(x)` where x is small or special.
pub(super) fn sqrt_f64_any(b: &mut Builder, x: Value, round: Round) -> Value {
    // Below 2^-970: sqrt(x 2^106) 2^-53, exact scalings of a result that is never subnormal.
    // Zero, infinity, NaN: x + x. Negative: NaN.
    let scaled = b.def(Opcode::DMUL, &[], &[operand(x), f64_imm(81129638414606681695789005144064.0)]);
    let q = sqrt_f64_normal(b, scaled, round);
    let q = b.def(Opcode::DMUL, &[], &[operand(q), f64_imm(1.1102230246251565e-16)]);
    let twice = b.def(Opcode::DADD, &[], &[operand(x), operand(x)]);
    let below = b.def_pred(Opcode::DSETP, &[Mod::LT, Mod::AND], &[operand(x), rz()]);
    let nan = b.collect(&[rz(), Operand::Imm(0xfff8_0000)]);
    let special = b.sel64(nan, twice, below);
    let positive = b.def_pred(Opcode::DSETP, &[Mod::GT, Mod::AND], &[operand(x), rz()]);
    let small = b.def_pred(
        Opcode::DSETP,
        &[Mod::LT, Mod::AND],
        &[operand(x), f64_imm(f64::INFINITY), operand(positive)],
    );
    b.sel64(q, special, small)
}

/// An approximation of `1 / sqrt(x)`: the seed and one step, as ptxas has it.
pub fn rsqrt_f64(b: &mut Builder, x: Value) -> Value {
    let t = b.iadd3(part(x, 1), Operand::Imm(0x0010_0000u32.wrapping_neg()), rz());
    let fine = b.isetp(&[Mod::LT, Mod::U32], operand(t), Operand::Imm(0x7fe0_0000));
    let r = rsqrt_f64_normal(b, x);
    slow_unless(b, fine, r, |b| shared::path(b, Shared::RsqrtF64, &[x]))
}

/// `1 / sqrt(x)`, approximately, where x is subnormal or special.
pub(super) fn rsqrt_f64_any(b: &mut Builder, x: Value) -> Value {
    // Subnormal: rsqrt(x 2^54) 2^27. Zero: the infinity of its sign. Infinity: 0. Negative, NaN: NaN.
    let scaled = b.def(Opcode::DMUL, &[], &[operand(x), f64_imm(18014398509481984.0)]);
    let small = rsqrt_f64_normal(b, scaled);
    let small = b.def(Opcode::DMUL, &[], &[operand(small), f64_imm(134217728.0)]);
    let hi = b.lop3(part(x, 1), Operand::Imm(0x8000_0000), Operand::Imm(0x7ff0_0000), (A & B) | C);
    let infinity = b.collect(&[rz(), operand(hi)]);
    let zero = b.collect(&[rz(), rz()]);
    let invalid = b.collect(&[rz(), Operand::Imm(0xfff8_0000)]);
    let twice = b.def(Opcode::DADD, &[], &[operand(x), operand(x)]);
    let test =
        |b: &mut Builder, cmp: Mod, y: Operand| b.def_pred(Opcode::DSETP, &[cmp, Mod::AND], &[operand(x), y]);
    let is_infinite = test(b, Mod::EQ, f64_imm(f64::INFINITY));
    let r = b.sel64(zero, small, is_infinite);
    let below = test(b, Mod::LT, rz());
    let r = b.sel64(invalid, r, below);
    let is_zero = test(b, Mod::EQ, rz());
    let r = b.sel64(infinity, r, is_zero);
    let nan = test(b, Mod::NAN, operand(x));
    b.sel64(twice, r, nan)
}

fn rsqrt_f64_normal(b: &mut Builder, x: Value) -> Value {
    let hi = b.def(Opcode::MUFU, &[Mod::RSQ64H], &[part(x, 1)]);
    let r = b.collect(&[rz(), operand(hi)]);
    let rr = b.def(Opcode::DMUL, &[], &[operand(r), operand(r)]);
    let e = b.dfma(operand(x), neg(operand(rr)), f64_imm(1.0));
    let k = b.collect(&[rz(), f64_imm(0.375)]);
    let c = b.dfma(operand(e), operand(k), f64_imm(0.5));
    let re = b.def(Opcode::DMUL, &[], &[operand(r), operand(e)]);
    b.dfma(operand(c), operand(re), operand(r))
}

/// `sqrt(x)` for 2^-970 <= x < infinity.
fn sqrt_f64_normal(b: &mut Builder, x: Value, round: Round) -> Value {
    let hi = b.def(Opcode::MUFU, &[Mod::RSQ64H], &[part(x, 1)]);
    let r = b.collect(&[rz(), operand(hi)]);
    let rr = b.def(Opcode::DMUL, &[], &[operand(r), operand(r)]);
    let e = b.dfma(operand(x), neg(operand(rr)), f64_imm(1.0));
    let k = b.collect(&[rz(), f64_imm(0.375)]);
    let c = b.dfma(operand(e), operand(k), f64_imm(0.5));
    let re = b.def(Opcode::DMUL, &[], &[operand(r), operand(e)]);
    let r = b.dfma(operand(c), operand(re), operand(r));
    let s = b.def(Opcode::DMUL, &[], &[operand(x), operand(r)]);
    // r / 2, by its exponent.
    let half_hi = b.iadd3(part(r, 1), Operand::Imm(0x0010_0000u32.wrapping_neg()), rz());
    let half = b.collect(&[part(r, 0), operand(half_hi)]);
    let rem = b.dfma(operand(s), neg(operand(s)), operand(x));
    let q = b.dfma(operand(rem), operand(half), operand(s));
    if round == Round::Nearest {
        return q;
    }
    let rem = b.dfma(operand(q), neg(operand(q)), operand(x));
    stepped(b, round, q, rem, half)
}

/// `fine ? fast : slow()`.
fn slow_unless(b: &mut Builder, fine: Value, fast: Value, slow: impl FnOnce(&mut Builder) -> Value) -> Value {
    let from = b.block;
    let slow_block = b.func.add_block();
    let (done, result) = b.join(2);
    b.block = from;
    b.terminate(ori::Terminator::Branch {
        cond: fine.into(),
        not: true,
        taken: Builder::call(slow_block),
        fall: ori::BlockCall { block: done, args: SmallVec::from_slice(&[fast]) },
    });
    b.block = slow_block;
    let value = slow(b);
    b.jump(done, &[value]);
    b.block = done;
    result
}

/// The significand of `v` in [1, 2) and its exponent plus 1023, for finite non-zero `v`.
fn normalize(b: &mut Builder, v: Value) -> (Value, Value) {
    let up = b.def(Opcode::DMUL, &[], &[operand(v), f64_imm(18014398509481984.0)]);
    let exponent_bits = b.lop3(part(v, 1), Operand::Imm(0x7ff0_0000), rz(), A & B);
    let normal = b.isetp(&[Mod::NE, Mod::U32], operand(exponent_bits), rz());
    let v = b.sel64(v, up, normal);
    let bias = b.sel(rz(), Operand::Imm(54), operand(normal));
    let e = b.lop3(part(v, 1), Operand::Imm(0x7ff0_0000), rz(), A & B);
    let e = b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), Operand::Imm(20), operand(e)]);
    let e = b.iadd3(operand(e), neg(operand(bias)), rz());
    let hi = b.lop3(part(v, 1), Operand::Imm(0x000f_ffff), Operand::Imm(0x3ff0_0000), (A & B) | C);
    let m = b.collect(&[part(v, 0), operand(hi)]);
    (m, e)
}

/// `x / y` for any operands.
///
/// Finite non-zero operands are scaled to significands in [1, 2), whose quotient q is correctly rounded and
/// has the exact remainder m = mx - q my. A normal result only needs its exponent. A subnormal one is
/// rounded once, in integers, from four times the significand of q, moved by the sign of the remainder: the
/// two extra bits tell below, at and above every midpoint. In another direction it is [`scaled`].
pub(super) fn div_f64_any(b: &mut Builder, x: Value, y: Value, round: Round) -> Value {
    let ordinary_of = |b: &mut Builder, v: Value, and: Operand| {
        // 0 < |v| < infinity
        let nonzero = b.def_pred(Opcode::DSETP, &[Mod::NEU, Mod::AND], &[operand(v), rz(), and]);
        b.def_pred(
            Opcode::DSETP,
            &[Mod::LT, Mod::AND],
            &[abs(operand(v)), f64_imm(f64::INFINITY), operand(nonzero)],
        )
    };
    let always = operand(ori::Name::Phys(sass::Reg::PT));
    let fy = ordinary_of(b, y, always);
    let ordinary = ordinary_of(b, x, operand(fy));
    let (finite_block, special_block) = b.split(ordinary);
    let (done, result) = b.join(2);

    b.block = special_block;
    // x * (1/y) where y is 0, infinite or NaN; otherwise x with the sign of y.
    let rcp_hi = b.def(Opcode::MUFU, &[Mod::RCP64H], &[part(y, 1)]);
    let nan = b.def_pred(Opcode::DSETP, &[Mod::NAN, Mod::AND], &[operand(y), operand(y)]);
    let rcp = b.collect(&[rz(), operand(rcp_hi)]);
    let one_hi = b.lop3(part(y, 1), Operand::Imm(0x8000_0000), Operand::Imm(0x3ff0_0000), (A & B) | C);
    let one = b.collect(&[rz(), operand(one_hi)]);
    let factor = b.sel64(one, rcp, fy);
    let factor = b.sel64(y, factor, nan);
    let r = b.def(Opcode::DMUL, &[], &[operand(x), operand(factor)]);
    b.jump(done, &[r]);

    b.block = finite_block;
    let s = b.lop3(part(x, 1), part(y, 1), Operand::Imm(0x8000_0000), (A ^ B) & C);
    let (mx, ex) = normalize(b, x);
    let (my, ey) = normalize(b, y);
    let rcp = newton_rcp_f64(b, my);
    let q = quotient_f64(b, mx, my, rcp);
    let rem = b.dfma(neg(operand(q)), operand(my), operand(mx));
    if round != Round::Nearest {
        let signed = |b: &mut Builder, v: Value| {
            let hi = b.lop3(part(v, 1), operand(s), rz(), A ^ B);
            b.collect(&[part(v, 0), operand(hi)])
        };
        let (q, rem) = (signed(b, q), signed(b, rem));
        let q = stepped(b, round, q, rem, rcp);
        let r = scaled(b, q, ex, ey, round);
        b.jump(done, &[r]);
        b.block = done;
        return result;
    }
    // Biased exponent of the result.
    let qe = b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), Operand::Imm(20), part(q, 1)]);
    let step = b.iadd3(operand(ex), neg(operand(ey)), rz());
    let e = b.iadd3(operand(qe), operand(step), rz());

    // Normal result: the exponent moves by `step`; past the top it is infinite.
    let shifted = b.def(Opcode::SHF, &[Mod::L, Mod::U32], &[operand(step), Operand::Imm(20), rz()]);
    let hi = b.iadd3(part(q, 1), operand(shifted), rz());
    let over = b.isetp(&[Mod::GT], operand(e), Operand::Imm(2046));
    let lo = b.sel(rz(), part(q, 0), operand(over));
    let hi = b.sel(Operand::Imm(0x7ff0_0000), operand(hi), operand(over));

    // Subnormal result: shift = 1 - e places, at most 60.
    let minus = b.iadd3(neg(operand(e)), Operand::Imm(3), rz());
    let low_limit = b.isetp(&[Mod::LT], operand(minus), Operand::Imm(62));
    let n = b.sel(operand(minus), Operand::Imm(62), operand(low_limit));
    let mhi = b.lop3(part(q, 1), Operand::Imm(0x000f_ffff), Operand::Imm(0x0010_0000), (A & B) | C);
    let shi = b.def(Opcode::SHF, &[Mod::L, Mod::U64, Mod::HI], &[part(q, 0), Operand::Imm(2), operand(mhi)]);
    let slo = b.def(Opcode::SHF, &[Mod::L, Mod::U32], &[part(q, 0), Operand::Imm(2), rz()]);
    let s4 = b.collect(&[operand(slo), operand(shi)]);
    let short = b.def_pred(Opcode::DSETP, &[Mod::GT, Mod::AND], &[operand(rem), rz()]);
    let long = b.def_pred(Opcode::DSETP, &[Mod::LT, Mod::AND], &[operand(rem), rz()]);
    let plus = b.sel(Operand::Imm(1), rz(), operand(short));
    let plus_lo = b.sel(Operand::Imm(u32::MAX), operand(plus), operand(long));
    let plus_hi = b.sel(Operand::Imm(u32::MAX), rz(), operand(long));
    let delta = b.collect(&[operand(plus_lo), operand(plus_hi)]);
    let s4 = b.add64(s4, delta);
    // round-half-even(s4 >> n) = (s4 + 2^(n-1) - 1 + ((s4 >> n) & 1)) >> n
    let shr = |b: &mut Builder, v: Value, n: Value| {
        let lo = b.def(Opcode::SHF, &[Mod::R, Mod::U64], &[part(v, 0), operand(n), part(v, 1)]);
        let hi = b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), operand(n), part(v, 1)]);
        b.collect(&[operand(lo), operand(hi)])
    };
    let odd = shr(b, s4, n);
    let odd = b.lop3(part(odd, 0), Operand::Imm(1), rz(), A & B);
    let n1 = b.iadd3(operand(n), Operand::Imm(u32::MAX), rz());
    let half_hi = b.def(Opcode::SHF, &[Mod::L, Mod::U64, Mod::HI], &[Operand::Imm(1), operand(n1), rz()]);
    // Shifts by 32 and more give 0.
    let half_lo = b.def(Opcode::SHF, &[Mod::L, Mod::U32], &[Operand::Imm(1), operand(n1), rz()]);
    let half = b.collect(&[operand(half_lo), operand(half_hi)]);
    let ones = b.collect(&[Operand::Imm(u32::MAX), Operand::Imm(u32::MAX)]);
    let bias = b.add64(half, ones);
    let odd = b.zext(operand(odd));
    let bias = b.add64(bias, odd);
    let sum = b.add64(s4, bias);
    let tiny = shr(b, sum, n);

    let normal = b.isetp(&[Mod::GT], operand(e), rz());
    let lo = b.sel(operand(lo), part(tiny, 0), operand(normal));
    let hi = b.sel(operand(hi), part(tiny, 1), operand(normal));
    let hi = b.lop3(operand(hi), operand(s), rz(), A | B);
    let r = b.collect(&[operand(lo), operand(hi)]);
    b.jump(done, &[r]);
    b.block = done;
    result
}

/// `q 2^(ex - ey)` in the direction, where 1/2 < |q| <= 2.
fn scaled(b: &mut Builder, q: Value, ex: Value, ey: Value, round: Round) -> Value {
    // Most of the exponent is added to q's, without leaving the normal range, and 512 in the multiplication, whose factor
    // is what over- and underflow meet. At 2^±900 they are certain.
    const STEP: i32 = 512;
    const MOST: i32 = 900;
    let below = b.isetp(&[Mod::LT], operand(ex), operand(ey));
    let down = b.copy(Operand::Imm((-STEP) as u32));
    let step = b.sel(Operand::Imm(STEP as u32), operand(down), operand(below));
    let up = b.copy(f64_imm(2f64.powi(STEP)));
    let factor = b.sel(f64_imm(2f64.powi(-STEP)), operand(up), operand(below));
    let factor = b.collect(&[rz(), operand(factor)]);
    let e = b.iadd3(operand(ex), neg(operand(ey)), operand(step));
    let e = minmax(b, false, true, operand(e), Operand::Imm(MOST as u32));
    let e = minmax(b, true, true, operand(e), Operand::Imm((-MOST) as u32));
    let hi = b.imad(operand(e), Operand::Imm(1 << 20), part(q, 1));
    let v = b.collect(&[part(q, 0), operand(hi)]);
    let mods: SmallVec<[Mod; 1]> = round.sass().into_iter().collect();
    b.def(Opcode::DMUL, &mods, &[operand(v), operand(factor)])
}
