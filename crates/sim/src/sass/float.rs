//! Floating-point arithmetic, selection and comparison.

use super::compare::{combine, comparison};
use super::compile::{Unsupported, unsupported};
use super::operand::{Exec, Kind, Operands, PredDst, Src, lanewise, value};
use super::rows::{Word, careful, word, words};
use crate::fp::{self, BF16, F16, F32, Format, Round, Single};

const NO_PREDS: [PredDst; 2] = [PredDst::NONE; 2];

/// Prepares a floating-point instruction; `None` if `name` (without the `U` of uniform forms) isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match name {
        "FADD" => {
            let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?];
            arithmetic(o, srcs, |[a, b]| a + b, |op, [a, b]| op.add(a, b))?
        }
        "FMUL" => {
            let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?];
            arithmetic(o, srcs, |[a, b]| a * b, |op, [a, b]| op.mul(a, b))?
        }
        "FFMA" => {
            let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?, o.src(3, Kind::Single)?];
            arithmetic(o, srcs, |[a, b, c]| a.mul_add(b, c), |op, [a, b, c]| op.fma(a, b, c))?
        }
        "FMNMX" | "FMNMX3" => fmnmx(o)?,
        "FSEL" => {
            let ftz = o.take("FTZ");
            let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?].map(Word::of);
            words(Some(o.dst(0, 1)?), [], srcs, [o.pred(3)?], move |[a, b], [p]| {
                let r = if p { a } else { b };
                ([if ftz { flushed(r) } else { r }], [])
            })
        }
        "FSETP" => fsetp(o)?,
        "FSET" => fset(o)?,
        "DSETP" => dsetp(o)?,
        "FCHK" => {
            o.ignore(&["DIVIDE"]);
            let out = (None, [o.pred_dst(0)?, PredDst::NONE]);
            let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?];
            lanewise(out, srcs, [], |[a, b], []| (0, division_needs_care(a as u32, b as u32), false))
        }
        "DADD" => {
            let srcs = [o.src(1, Kind::Double)?, o.src(2, Kind::Double)?];
            double(o, srcs, |[a, b]| a + b, |rm, [a, b]| fp::dadd(a, b, rm))?
        }
        "DMUL" => {
            let srcs = [o.src(1, Kind::Double)?, o.src(2, Kind::Double)?];
            double(o, srcs, |[a, b]| a * b, |rm, [a, b]| fp::dmul(a, b, rm))?
        }
        "DFMA" => {
            let srcs = [o.src(1, Kind::Double)?, o.src(2, Kind::Double)?, o.src(3, Kind::Double)?];
            double(o, srcs, |[a, b, c]| a.mul_add(b, c), |rm, [a, b, c]| fp::dfma(a, b, c, rm))?
        }
        "MUFU" => mufu(o)?,
        _ => return Ok(None),
    }))
}

/// The rounding direction that the modifiers name.
pub(crate) fn rounding(o: &Operands<'_>) -> Round {
    let modes = [("RN", Round::Nearest), ("RZ", Round::Zero), ("RM", Round::Down), ("RP", Round::Up)];
    o.choose(&modes).unwrap_or_default()
}

/// A subnormal number as zero of its sign; anything else unchanged.
#[inline(always)]
pub(crate) fn flushed(x: u32) -> u32 {
    if x & 0x7f80_0000 == 0 { x & 1 << 31 } else { x }
}

/// An operation on binary32 numbers: `host`, rounded to nearest, or where that is not what is wanted, `exact`.
fn arithmetic<const N: usize>(
    o: &Operands<'_>,
    srcs: [Src; N],
    host: impl Fn([f32; N]) -> f32 + Copy + Send + Sync + 'static,
    exact: impl Fn(Single, [u32; N]) -> u32 + Copy + Send + Sync + 'static,
) -> Result<Exec, Unsupported> {
    let (op, dst) = (Single { rm: rounding(o), ftz: o.take("FTZ"), sat: o.take("SAT") }, o.dst(0, 1)?);
    let finish = move |r: u32| if op.sat { F32.saturate(r.into()) as u32 } else { r };
    let nan = |r: f32| if r.is_nan() { 0x7fff_ffff } else { r.to_bits() };
    if op.rm != Round::Nearest {
        return Ok(value(dst, srcs, move |x| exact(op, x.map(|x| x as u32)).into()));
    }
    if !op.ftz {
        return Ok(match op.sat {
            false => word(dst, srcs, move |x| nan(host(x.map(f32::from_bits)))),
            true => word(dst, srcs, move |x| finish(nan(host(x.map(f32::from_bits))))),
        });
    }
    // Whether a number below the least normal one was rounded up to it, only the exact operation knows.
    let fast = move |x: [u32; N]| {
        let r = host(x.map(|x| f32::from_bits(flushed(x))));
        ([flushed(nan(r))], r.abs() == f32::MIN_POSITIVE)
    };
    let srcs = srcs.map(Word::of);
    Ok(match op.sat {
        false => careful(dst, srcs, fast, move |x| [exact(op, x)]),
        true => careful(
            dst,
            srcs,
            move |x| {
                let ([r], open) = fast(x);
                ([finish(r)], open)
            },
            move |x| [exact(op, x)],
        ),
    })
}

/// The same of binary64 numbers: `exact` says what becomes of NaNs.
fn double<const N: usize>(
    o: &Operands<'_>,
    srcs: [Src; N],
    host: impl Fn([f64; N]) -> f64 + Copy + Send + Sync + 'static,
    exact: impl Fn(Round, [u64; N]) -> u64 + Copy + Send + Sync + 'static,
) -> Result<Exec, Unsupported> {
    let (rm, dst) = (rounding(o), o.dst(0, 2)?);
    if rm != Round::Nearest {
        return Ok(value(dst, srcs, move |x| exact(rm, x)));
    }
    Ok(super::operand::pairs(
        dst,
        srcs,
        move |x| {
            let r = host(x.map(f64::from_bits));
            (r.to_bits(), r.is_nan())
        },
        move |x| exact(rm, x),
    ))
}

/// FCHK's model: true unless numerator, denominator and quotient are all so far from the ends of the range
/// that no step of the division's fast path can overflow or lose bits to underflow.
fn division_needs_care(a: u32, b: u32) -> bool {
    let exponent = |x: u32| (x >> 23 & 0xff) as i32;
    let (ea, eb) = (exponent(a), exponent(b));
    let quotient = ea - eb;
    ea <= 24 || ea == 255 || eb == 0 || eb >= 253 || !(-125..=125).contains(&quotient)
}

/// The NaN of an operation on this format.
pub(crate) fn canonical(f: Format) -> u64 {
    (1 << (f.bits() - 1)) - 1
}

/// The smaller or larger of two numbers; a NaN only wins over a NaN, unless `nan` is set. −0 is below +0.
pub(crate) fn extremum(f: Format, a: u64, b: u64, least: bool, nan: bool) -> u64 {
    let sign = 1 << (f.bits() - 1);
    let key = |x: u64| {
        let magnitude = (x & (sign - 1)) as i64;
        if x & sign != 0 { -magnitude - 1 } else { magnitude }
    };
    match (f.is_nan(a), f.is_nan(b)) {
        (true, true) => canonical(f),
        (true, _) | (_, true) if nan => canonical(f),
        (true, _) => b,
        (_, true) => a,
        _ => {
            if (key(a) < key(b)) == least {
                a
            } else {
                b
            }
        }
    }
}

/// [`extremum`] of binary32 numbers, without branches.
#[inline(always)]
fn extremum_32(a: u32, b: u32, least: bool, nan: bool) -> u32 {
    let is_nan = |x: u32| x & 0x7fff_ffff > 0x7f80_0000;
    // In the order of the numbers.
    let key = |x: u32| (x ^ ((x as i32 >> 31) as u32 >> 1)) as i32;
    let first = if (key(a) < key(b)) == least { a } else { b };
    let number = if is_nan(b) { a } else { first };
    let number = if is_nan(a) { b } else { number };
    let none = is_nan(a) & is_nan(b) | nan & (is_nan(a) | is_nan(b));
    if none { 0x7fff_ffff } else { number }
}

/// Rd, Ra, Rb, P, or with three sources Rd, Ra, Rb, Rc, P: the least where P holds, else the greatest. With
/// XORSIGN the result has the product of the sources' signs.
fn fmnmx(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (ftz, nan, xorsign) = (o.take("FTZ"), o.take("NAN"), o.take("XORSIGN"));
    let three = o.len() == 5;
    if three && xorsign {
        return unsupported("three signs");
    }
    let srcs =
        [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?, o.src(if three { 3 } else { 2 }, Kind::Single)?];
    if !xorsign {
        let (words_of, p) = (srcs.map(Word::of), [o.pred(o.len() - 1)?]);
        let flush = move |x: u32| if ftz { flushed(x) } else { x };
        let dst = Some(o.dst(0, 1)?);
        let [a, b, c] = words_of;
        return Ok(match three {
            false => words(dst, [], [a, b], p, move |[a, b], [least]| {
                ([extremum_32(flush(a), flush(b), least, nan)], [])
            }),
            true => words(dst, [], [a, b, c], p, move |[a, b, c], [least]| {
                ([extremum_32(extremum_32(flush(a), flush(b), least, nan), flush(c), least, nan)], [])
            }),
        });
    }
    let out = (Some(o.dst(0, 1)?), NO_PREDS);
    let flush = move |x: u64| if ftz { F32.flush(x) } else { x };
    Ok(lanewise(out, srcs.map(Src::plain), [o.pred(o.len() - 1)?], move |x, [least]| {
        let [a, b, c] = [0, 1, 2].map(|i| flush(srcs[i].apply(x[i])));
        let mut r = extremum(F32, a, b, least, nan);
        if three {
            r = extremum(F32, r, c, least, nan);
        }
        if xorsign && !F32.is_nan(r) {
            r = r & 0x7fff_ffff | (x[0] ^ x[1]) & 1 << 31;
        }
        (r, false, false)
    }))
}

/// The number that a comparison sees.
#[inline(always)]
fn number(x: u32, ftz: bool) -> f32 {
    f32::from_bits(if ftz { flushed(x) } else { x })
}

fn fsetp(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (compare, ftz, join) = (comparison(o)?, o.take("FTZ"), combine(o)?);
    let (first, second) = (o.pred_dst(0)?, o.pred_dst(1)?);
    let srcs = [o.src(2, Kind::Single)?, o.src(3, Kind::Single)?].map(Word::of);
    let p = [o.pred(4)?];
    if second.is_none() {
        return Ok(words(None, [first], srcs, p, move |[a, b], [p]| {
            ([], [join.of(compare.of(number(a, ftz), number(b, ftz)), p)])
        }));
    }
    Ok(words(None, [first, second], srcs, p, move |[a, b], [p]| {
        let c = compare.of(number(a, ftz), number(b, ftz));
        ([], [join.of(c, p), join.of(!c, p)])
    }))
}

/// A comparison whose result is all ones or, with BF, 1.0.
fn fset(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let yes = if o.take("BF") { 1f32.to_bits() } else { 0xffff_ffff };
    let (compare, ftz, join) = (comparison(o)?, o.take("FTZ"), combine(o)?);
    let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?].map(Word::of);
    Ok(words(Some(o.dst(0, 1)?), [], srcs, [o.pred(3)?], move |[a, b], [p]| {
        ([if join.of(compare.of(number(a, ftz), number(b, ftz)), p) { yes } else { 0 }], [])
    }))
}

fn dsetp(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if let Some(least) = o.choose(&[("MIN", true), ("MAX", false)]) {
        // Whether the first number is the result, and whether both are NaNs.
        combine(o)?;
        let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
        let srcs = [o.src(2, Kind::Double)?, o.src(3, Kind::Double)?];
        return Ok(lanewise(out, srcs, [], move |[a, b], []| {
            let (na, nb) = (fp::F64.is_nan(a), fp::F64.is_nan(b));
            let first = match (na, nb) {
                (false, false) => f64::from_bits(a).total_cmp(&f64::from_bits(b)).is_lt() == least,
                _ => !na,
            };
            (0, first, na && nb)
        }));
    }
    let (compare, join) = (comparison(o)?, combine(o)?);
    let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
    let srcs = [o.src(2, Kind::Double)?, o.src(3, Kind::Double)?];
    Ok(lanewise(out, srcs, [o.pred(4)?], move |[a, b], [p]| {
        let c = compare.of(f64::from_bits(a), f64::from_bits(b));
        (0, join.of(c, p), join.of(!c, p))
    }))
}

/// A special function by name.
type Function = (&'static str, fn(f64) -> f64);

/// The special-function unit's model: the function computed in binary64 and rounded to nearest; subnormal
/// operands and results are zeros. `RCP64H` and `RSQ64H` see the high half of a binary64 and give the high
/// half of the result, truncated.
fn mufu(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let table: &[Function] = &[
        ("RCP", |x| 1.0 / x),
        ("RSQ", |x| if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() }),
        ("SQRT", f64::sqrt),
        ("EX2", f64::exp2),
        ("LG2", f64::log2),
        ("SIN", |x| (x % 1.0 * std::f64::consts::TAU).sin()),
        ("COS", |x| (x % 1.0 * std::f64::consts::TAU).cos()),
        ("TANH", f64::tanh),
    ];
    let dst = o.dst(0, 1)?;
    // Halves keep subnormal binary16 numbers; bfloat16 has none.
    if let Some(format) = o.choose(&[("F16", F16), ("BF16", BF16)]) {
        let src = o.src(1, Kind::Halves)?;
        let shift = if o.take("B:H1") { 16 } else { 0 };
        let Some(f) = o.choose(table) else { return unsupported("a special function of halves") };
        let flush = move |x| if format == BF16 { BF16.flush(x) } else { x };
        return Ok(value(dst, [src], move |[x]| {
            let x = fp::convert(flush(x >> shift & 0xffff), format, fp::F64, Round::Nearest);
            let r = f(f64::from_bits(x));
            let r = fp::convert(r.to_bits(), fp::F64, format, Round::Nearest);
            flush(if format.is_nan(r) { canonical(format) } else { r })
        }));
    }
    let src = o.src(1, Kind::Single)?;
    // TANH is the identity near zero, subnormal numbers included.
    let keeps = o.inst.mods.iter().any(|m| m.name() == "TANH");
    // Those that need no call.
    let near = |r: f64| {
        let r = r as f32;
        flushed(if r.is_nan() { 0x7fff_ffff } else { r.to_bits() })
    };
    let wide = |x: u32| f64::from(f32::from_bits(flushed(x)));
    if o.take("RCP") {
        return Ok(word(dst, [src], move |[x]| near(1.0 / wide(x))));
    }
    if o.take("SQRT") {
        return Ok(word(dst, [src], move |[x]| near(wide(x).sqrt())));
    }
    if o.take("RSQ") {
        return Ok(word(dst, [src], move |[x]| {
            let x = wide(x);
            near(if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() })
        }));
    }
    if let Some(f) = o.choose(table) {
        let flush = move |x| if keeps { x } else { F32.flush(x) };
        return Ok(value(dst, [src], move |[x]| {
            let r = f(f32::from_bits(flush(x) as u32).into()) as f32;
            flush(if r.is_nan() { 0x7fff_ffff } else { r.to_bits().into() })
        }));
    }
    let wide: &[Function] =
        &[("RCP64H", |x| 1.0 / x), ("RSQ64H", |x| if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() })];
    let Some(f) = o.choose(wide) else {
        return unsupported("a special function");
    };
    Ok(value(dst, [src], move |[x]| {
        let r = f(f64::from_bits(fp::F64.flush(x << 32)));
        if r.is_nan() { 0x7fff_ffff } else { fp::F64.flush(r.to_bits()) >> 32 }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extrema_without_branches_are_the_same() {
        let numbers = [
            0,
            1 << 31,
            1,
            0x8000_0001,
            0x3f80_0000,
            0xbf80_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0xffff_ffff,
        ];
        for (a, b) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
            for (least, nan) in [(false, false), (false, true), (true, false), (true, true)] {
                let slow = extremum(F32, a.into(), b.into(), least, nan) as u32;
                assert_eq!(extremum_32(a, b, least, nan), slow, "{a:#x} {b:#x} {least} {nan}");
            }
        }
    }

    #[test]
    fn division_check_is_conservative() {
        let needs = |a: f32, b: f32| division_needs_care(a.to_bits(), b.to_bits());
        assert!(!needs(1.0, 3.0) && !needs(-1e10, 1e-10));
        assert!(needs(0.0, 1.0) && needs(1.0, 0.0) && needs(f32::NAN, 1.0) && needs(1.0, 1e-40));
        assert!(needs(1e30, 1e-30) && needs(1e-30, 1e30) && needs(f32::INFINITY, 1.0));
    }
}
