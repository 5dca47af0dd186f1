//! Minima and maxima of integers: of 32 and 64 bits, of three, of halves and bytes, and of sums.

use super::compile::{Unsupported, unsupported};
use super::int::NO_PREDS;
use super::operand::{Exec, Kind, Operands, lanewise};
use super::rows::{Word, words};

fn pick_32(signed: bool) -> impl Fn(u32, u32, bool) -> u32 + Copy + Send + Sync {
    move |a, b, min| {
        let a_less = if signed { (a as i32) < b as i32 } else { a < b };
        if a_less == min { a } else { b }
    }
}

/// Rd, Ra, Rb, P: the minimum where P holds, else the maximum.
pub(super) fn min_max(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if let Some(signed) = o.choose(&[("S8x4", true), ("U8x4", false)]) {
        let relu = o.take("RELU");
        let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?];
        return Ok(lanewise((Some(o.dst(0, 1)?), NO_PREDS), srcs, [o.pred(3)?], move |[a, b], [least]| {
            let one = |at: u32| {
                let byte =
                    |x: u64| if signed { i32::from((x >> at) as i8) } else { i32::from((x >> at) as u8) };
                let (x, y) = (byte(a), byte(b));
                let r = if least { x.min(y) } else { x.max(y) };
                u64::from((if relu { r.max(0) } else { r }) as u8) << at
            };
            ((0..4).fold(0, |r, i| r | one(8 * i)), false, false)
        }));
    }
    if let Some(signed) = o.choose(&[("S16x2", true), ("U16x2", false)]) {
        let relu = o.take("RELU");
        let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?];
        return Ok(lanewise((Some(o.dst(0, 1)?), NO_PREDS), srcs, [o.pred(3)?], move |[a, b], [least]| {
            let one = |at: u32| {
                let half = |x: u64| {
                    let h = (x >> at) as u16;
                    if signed { i32::from(h as i16) } else { h.into() }
                };
                let (x, y) = (half(a), half(b));
                let r = if least { x.min(y) } else { x.max(y) };
                u64::from((if relu { r.max(0) } else { r }) as u16) << at
            };
            (one(0) | one(16), false, false)
        }));
    }
    let pick = pick_32(!o.take("U32"));
    o.ignore(&["S32"]);
    let relu = o.take("RELU");
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?].map(Word::of);
    Ok(words(Some(o.dst(0, 1)?), [], srcs, [o.pred(3)?], move |[a, b], [p]| {
        let r = pick(a, b, p);
        ([if relu { (r as i32).max(0) as u32 } else { r }], [])
    }))
}

/// Rd, Pu, Pv, Ra, Rb, P: [`min_max`] that says, too, where the result is the first operand: of halves, the lower
/// ones first.
pub(super) fn min_max_choice(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let out = (Some(o.dst(0, 1)?), [o.pred_dst(1)?, o.pred_dst(2)?]);
    let srcs = [o.src(3, Kind::Int)?, o.src(4, Kind::Int)?];
    let pick = |x: i64, y: i64, least: bool| if least { (x.min(y), x <= y) } else { (x.max(y), x >= y) };
    if let Some((signed, relu)) = halves(o) {
        return Ok(lanewise(out, srcs, [o.pred(5)?], move |[a, b], [least]| {
            let one = |at| pick(half_of(a, at, signed).into(), half_of(b, at, signed).into(), least);
            let (low, high) = (one(0), one(16));
            let keep = |x: i64| (if relu { x.max(0) } else { x }) as i32;
            (each_half(|at| keep(if at == 0 { low.0 } else { high.0 })), low.1, high.1)
        }));
    }
    let signed = !o.take("U32");
    let relu = o.take("RELU");
    Ok(lanewise(out, srcs, [o.pred(5)?], move |[a, b], [least]| {
        let wide = |x: u64| if signed { i64::from(x as i32) } else { i64::from(x as u32) };
        let (r, first) = pick(wide(a), wide(b), least);
        (u64::from((if relu { r.max(0) } else { r }) as u32), first, false)
    }))
}

pub(super) fn min_max_64(o: &Operands<'_>, signed: bool) -> Result<Exec, Unsupported> {
    let out = (Some(o.dst(2, 2)?), [o.pred_dst(0)?, o.pred_dst(1)?]);
    for slot in 0..2 {
        if o.inst.operands[slot].as_reg().is_some_and(|r| !r.reg.is_zero()) {
            return unsupported("a predicate result of a 64-bit minimum");
        }
    }
    let srcs = [o.src(3, Kind::Long)?, o.src(4, Kind::Long)?];
    // The first predicate chooses the least; the second one is not understood.
    let unused = o.operand(6)?.as_reg().is_some_and(|r| r.reg.is_zero() && r.not);
    if !unused {
        return unsupported("a second predicate of a 64-bit minimum");
    }
    Ok(lanewise(out, srcs, [o.pred(5)?], move |[a, b], [p]| {
        let a_less = if signed { (a as i64) < b as i64 } else { a < b };
        (if a_less == p { a } else { b }, false, false)
    }))
}

pub(super) fn min_max_3(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if let Some((signed, relu)) = halves(o) {
        let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
        let out = (Some(o.dst(0, 1)?), NO_PREDS);
        return Ok(lanewise(out, srcs, [o.pred(4)?], move |[a, b, c], [p]| {
            let r = each_half(|at| {
                let pick = |x: i32, y: i32| if p { x.min(y) } else { x.max(y) };
                let half = |x: u64| half_of(x, at, signed);
                let r = pick(pick(half(a), half(b)), half(c));
                if relu { r.max(0) } else { r }
            });
            (r, false, false)
        }));
    }
    let pick = pick_32(!o.take("U32"));
    o.ignore(&["S32"]);
    let relu = o.take("RELU");
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
    Ok(lanewise((Some(o.dst(0, 1)?), NO_PREDS), srcs, [o.pred(4)?], move |[a, b, c], [p]| {
        let r = pick(pick(a as u32, b as u32, p), c as u32, p);
        (u64::from(if relu { (r as i32).max(0) as u32 } else { r }), false, false)
    }))
}

/// Rd, Ra, Rb, Rc, P: minimum or maximum of Ra + Rb and Rc.
pub(super) fn add_min_max(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if let Some((signed, relu)) = halves(o) {
        let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
        let out = (Some(o.dst(0, 1)?), NO_PREDS);
        return Ok(lanewise(out, srcs, [o.pred(4)?], move |[a, b, c], [p]| {
            let r = each_half(|at| {
                let sum = half_of(u64::from((a >> at) as u16).wrapping_add(b >> at), 0, signed);
                let c = half_of(c, at, signed);
                let r = if p { sum.min(c) } else { sum.max(c) };
                if relu { r.max(0) } else { r }
            });
            (r, false, false)
        }));
    }
    let pick = pick_32(!o.take("U32"));
    o.ignore(&["S32"]);
    let relu = o.take("RELU");
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
    Ok(lanewise((Some(o.dst(0, 1)?), NO_PREDS), srcs, [o.pred(4)?], move |[a, b, c], [p]| {
        let r = pick((a as u32).wrapping_add(b as u32), c as u32, p);
        (u64::from(if relu { (r as i32).max(0) as u32 } else { r }), false, false)
    }))
}

/// The type of halves that the modifiers name, and whether negative results become 0.
fn halves(o: &Operands<'_>) -> Option<(bool, bool)> {
    let signed = o.choose(&[("S16x2", true), ("U16x2", false)])?;
    Some((signed, o.take("RELU")))
}

fn half_of(x: u64, at: u32, signed: bool) -> i32 {
    let half = (x >> at) as u16;
    if signed { (half as i16).into() } else { half.into() }
}

fn each_half(f: impl Fn(u32) -> i32) -> u64 {
    u64::from(f(0) as u16) | u64::from(f(16) as u16) << 16
}
