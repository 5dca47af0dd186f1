//! What PTX leaves open about floating-point results: the error bounds that the manual gives for approximate functions,
//! and products that may be fused with a sum. A run with [`super::Options::nudge`] moves every such result within its
//! bound, so that several runs show how far the error reaches in what is stored.

use super::decode::Code;
use super::float::format;
use crate::fp::{self, F16, F32, F64, Format, Round};
use crate::launch::Rng;
use ::ptx::{Mod, Op};

/// The largest error of the instruction's result, relative to it and absolute; `None` for exact ones. PTX ISA 9.0,
/// sections of the instructions.
fn bound(code: &Code<'_>, f: Format) -> Option<(f64, f64)> {
    let inst = code.inst;
    if matches!(inst.op, Op::mma | Op::wmma | Op::wgmma) {
        // The order of the sums, and what they keep of each product, is not defined.
        return Some((2f64.powi(1 - f.frac as i32), 0.0));
    }
    if is_product(inst) {
        // Not rounded if it is fused: one unit in the last place covers the difference.
        return Some((2f64.powi(-(f.frac as i32)), 0.0));
    }
    if !inst.has(Mod::approx) && !inst.has(Mod::full) {
        return None;
    }
    let relative = |bits: f64| Some(((-bits).exp2(), 0.0));
    match (inst.op, f) {
        (Op::rcp | Op::rsqrt, F64) => relative(19.0),
        (Op::div, _) => relative(21.0),
        (Op::rcp, _) => relative(22.5),
        (Op::sqrt | Op::rsqrt, _) => relative(22.5),
        (Op::ex2, F32) => relative(22.0),
        (Op::ex2, F16) => relative(9.9),
        (Op::ex2, _) => relative(7.0),
        (Op::tanh, F32) => relative(11.0),
        (Op::tanh, F16) => relative(10.9),
        (Op::tanh, _) => relative(8.0),
        (Op::lg2, _) => Some((2f64.powi(-22), 2f64.powi(-22))),
        (Op::sin | Op::cos, _) => Some((0.0, 2f64.powf(-20.5))),
        _ => None,
    }
}

/// The result, moved within its bound: up in run 1, down in run 2, somewhere in the others.
pub(super) fn nudged(code: &Code<'_>, f: Format, x: &[u64], result: u64) -> u64 {
    let value = f64::from_bits(fp::convert(result, f, F64, Round::Nearest));
    moved(code, f, x, result, value.abs())
}

/// The same for a sum of many products, whose error depends on how large they are: `size` is the sum of their magnitudes.
pub(super) fn nudged_sum(code: &Code<'_>, f: Format, size: f64, result: u64) -> u64 {
    moved(code, f, &[result], result, size)
}

fn moved(code: &Code<'_>, f: Format, x: &[u64], result: u64, size: f64) -> u64 {
    let Some((relative, absolute)) = (code.nudge != 0).then(|| bound(code, f)).flatten() else {
        return result;
    };
    let value = f64::from_bits(fp::convert(result, f, F64, Round::Nearest));
    if !value.is_finite() || size == 0.0 && absolute == 0.0 {
        return result;
    }
    let share = match code.nudge {
        1 => 1.0,
        2 => -1.0,
        n => {
            let seed = x.iter().fold(n ^ u64::from(code.inst.span.start) << 32, |s, v| s.rotate_left(7) ^ v);
            Rng::new(seed).next() as i64 as f64 / 2f64.powi(63)
        }
    };
    let moved = value + share * (size * relative + absolute);
    fp::convert(moved.to_bits(), F64, f, Round::Nearest)
}

/// Any NaN, another in each run: where several operands are NaNs, which one a binary64 result passes on is not defined, and
/// code may exchange them. Of `neg` and `abs` the manual says that NaNs give an unspecified one: code may change the sign where
/// the number is read.
pub(super) fn other_nan(code: &Code<'_>, f: Format, x: &[u64], result: u64) -> u64 {
    let open = code.nudge != 0 && f.is_nan(result);
    if open && is_change_of_sign(code.inst) {
        let sign = 1 << (f.bits() - 1);
        // Its lowest bits, and not the one that makes it quiet.
        let loose = sign | ((f.infinity() & f.infinity().wrapping_neg()) / 2 - 1);
        let payload = Rng::new(code.nudge ^ u64::from(code.inst.span.start) << 32).next();
        return result & !loose | payload & loose;
    }
    if !open || !is_binary64_sum(code.inst) {
        return result;
    }
    let mut nans = x.iter().filter(|b| f.is_nan(**b));
    let first = nans.next();
    if nans.all(|b| Some(b) == first) {
        return result;
    }
    let payload = Rng::new(code.nudge ^ u64::from(code.inst.span.start) << 32).next();
    result & !((1 << 51) - 1) | payload & ((1 << 51) - 1)
}

/// Whether it negates a floating-point number or takes its magnitude.
fn is_change_of_sign(inst: &::ptx::Inst) -> bool {
    matches!(inst.op, Op::neg | Op::abs) && inst.ty(0).is_some_and(|t| format(t).is_some())
}

/// Whether it is arithmetic on several binary64 numbers.
fn is_binary64_sum(inst: &::ptx::Inst) -> bool {
    let op = matches!(inst.op, Op::add | Op::sub | Op::mul | Op::fma | Op::mad | Op::div);
    op && inst.ty(0) == Some(::ptx::Type::f64)
}

/// Whether an instruction's result may differ from the interpreter's by rounding, or in which NaN it is.
pub fn is_inexact(inst: &::ptx::Inst) -> bool {
    inst.has(Mod::approx)
        || inst.has(Mod::full)
        || is_product(inst)
        || is_binary64_sum(inst)
        || is_change_of_sign(inst)
        || matches!(inst.op, Op::mma | Op::wmma | Op::wgmma)
        || super::image::is_inexact(inst)
}

/// Whether it is a product that may be fused with a sum: one without a rounding, and one of pairs of binary32 numbers, where
/// the rounding must stand and ptxas 13.0.88 fuses all the same.
fn is_product(inst: &::ptx::Inst) -> bool {
    let float = inst.ty(0).is_some_and(|t| format(t).is_some());
    let rounded = inst.one_of(&[Mod::rn, Mod::rz, Mod::rm, Mod::rp]).is_some();
    inst.op == Op::mul && float && (!rounded || inst.ty(0) == Some(::ptx::Type::f32x2))
}
