//! Conversions between number formats.

use super::compile::{Unsupported, unsupported};
use super::float::{flushed, rounding};
use super::operand::{Exec, Kind, Operands, Src, value};
use super::rows::{Word, careful, word, words};
use crate::fp::{self, BF16, F16, F32, F64, Format, Round};

/// Prepares a conversion; `None` if `name` (without the `U` of uniform forms) isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match name {
        "I2F" | "I2FP" => int_to_float(o)?,
        "F2I" => float_to_int(o)?,
        "F2F" => float_to_float(o)?,
        "FRND" => round_to_integral(o)?,
        "F2FP" => super::pack::f2fp(o)?,
        "F2IP" => floats_to_bytes(o)?,
        "I2IP" => super::pack::i2ip(o)?,
        _ => return Ok(None),
    }))
}

const FORMATS: [(&str, Format); 4] = [("F16", F16), ("BF16", BF16), ("F32", F32), ("F64", F64)];

/// An integer type: bits and signedness.
const INTS: [(&str, (u32, bool)); 8] = [
    ("S8", (8, true)),
    ("U8", (8, false)),
    ("S16", (16, true)),
    ("U16", (16, false)),
    ("S32", (32, true)),
    ("U32", (32, false)),
    ("S64", (64, true)),
    ("U64", (64, false)),
];

fn float_src(o: &Operands<'_>, slot: usize, f: Format) -> Result<Src, Unsupported> {
    let src = match f.frac {
        52 => o.src(slot, Kind::Double)?,
        23 => o.src(slot, Kind::Single)?,
        _ => o.src(slot, Kind::Halves)?,
    };
    Ok(src)
}

fn registers(f: Format) -> u8 {
    if f == F64 { 2 } else { 1 }
}

/// Low bits of a register that hold a value of the format.
fn narrow(x: u64, f: Format) -> u64 {
    if f == F64 { x } else { x & ((1 << f.bits()) - 1) }
}

fn int_to_float(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let format = o.choose(&FORMATS).unwrap_or(F32);
    let (bits, signed) = o.choose(&INTS).unwrap_or((32, true));
    let parts = [
        ("B1", 8),
        ("B2", 16),
        ("B3", 24),
        ("H1", 16),
        ("B:B1", 8),
        ("B:B2", 16),
        ("B:B3", 24),
        ("B:H1", 16),
    ];
    let shift = o.choose(&parts).unwrap_or(0);
    o.ignore(&["B0"]);
    let rm = rounding(o);
    if bits == 64 && matches!(o.operand(1)?, sass::Operand::Imm(_)) {
        // ptxas never has one there: what the high word would be is not known.
        return unsupported("an immediate of 64 bits");
    }
    let src = o.src(1, if bits == 64 { Kind::Long } else { Kind::Int })?;
    if bits <= 32 && rm == Round::Nearest && matches!(format, F32 | F64) {
        // The host's conversions round so, too.
        let (dst, rest) = (o.dst(0, registers(format))?, 32 - bits);
        let up = move |x: u32| x >> shift << rest;
        let wide = |x: f64| [x.to_bits() as u32, (x.to_bits() >> 32) as u32];
        let one = [Word::of(src)];
        return Ok(match (format == F64, signed) {
            (false, true) => word(dst, [src], move |[x]| ((up(x) as i32 >> rest) as f32).to_bits()),
            (false, false) => word(dst, [src], move |[x]| ((up(x) >> rest) as f32).to_bits()),
            (true, true) => {
                words(Some(dst), [], one, [], move |[x], []| (wide(f64::from(up(x) as i32 >> rest)), []))
            }
            (true, false) => {
                words(Some(dst), [], one, [], move |[x], []| (wide(f64::from(up(x) >> rest)), []))
            }
        });
    }
    Ok(value(o.dst(0, registers(format))?, [src], move |[x]| {
        let up = x >> shift << (64 - bits);
        let value = if signed { i128::from(up as i64 >> (64 - bits)) } else { i128::from(up >> (64 - bits)) };
        fp::from_int(value, format, rm)
    }))
}

/// Rounding to an integer.
fn integral_rounding(o: &Operands<'_>) -> Round {
    let modes = [("TRUNC", Round::Zero), ("FLOOR", Round::Down), ("CEIL", Round::Up)];
    o.choose(&modes).unwrap_or(Round::Nearest)
}

/// Saturates; a NaN gives zero with NTZ, else only the highest bit of the result set.
fn float_to_int(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (ftz, ntz) = (o.take("FTZ"), o.take("NTZ"));
    let (bits, signed) = o.choose(&INTS).unwrap_or((32, true));
    let format = o.choose(&FORMATS).unwrap_or(F32);
    let rm = integral_rounding(o);
    let shift = if o.take("B:H1") { 16 } else { 0 };
    let src = float_src(o, 1, format)?;
    let (min, max) =
        if signed { (-1i128 << (bits - 1), (1i128 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let exact = move |x: u64| {
        let x = narrow(x >> shift, format);
        let x = if ftz { format.flush(x) } else { x };
        match fp::to_int(x, format, rm) {
            Some(n) => n.clamp(min, max) as u64,
            None if ntz => 0,
            None => 1 << (bits - 1),
        }
    };
    let dst = o.dst(0, if bits == 64 { 2 } else { 1 })?;
    if format == F32 && bits == 32 {
        // What the type has. Subnormal numbers count where they are rounded away from zero.
        let (least, greatest) = if signed { (-2147483648.0, 2147483520.0) } else { (0.0, 4294967040.0) };
        let fast = move |[x]: [u32; 1]| {
            let r = integral(f32::from_bits(if ftz { flushed(x) } else { x }), rm);
            let number = if signed { r as i32 as u32 } else { r as u32 };
            ([number], !(least <= r && r <= greatest))
        };
        return Ok(careful(dst, [Word::of(src)], fast, move |[x]| [exact(x.into()) as u32]));
    }
    Ok(value(dst, [src], move |[x]| exact(x)))
}

/// The integral number in this direction.
#[inline(always)]
fn integral(x: f32, rm: Round) -> f32 {
    match rm {
        Round::Nearest => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// Two numbers as bytes below the low half of the third source.
fn floats_to_bytes(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let signed = o.take("S8");
    if !signed && !o.take("U8") {
        return unsupported("a packing of this type");
    }
    o.ignore(&["F32"]);
    let (ntz, relu) = (o.take("NTZ"), o.take("RELU"));
    let rm = integral_rounding(o);
    let high = o.take("C:H1");
    let (least, greatest) = if signed { (-128, 127) } else { (0, 255) };
    let least = if relu { 0 } else { least };
    let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?, o.src(3, Kind::Int)?];
    let nan = if ntz { 0 } else { 0x80 };
    Ok(value(o.dst(0, 1)?, srcs, move |[a, b, c]| {
        let byte = |x: u64| fp::to_int(x, F32, rm).map_or(nan, |n| n.clamp(least, greatest) as u64 & 0xff);
        let rest = if high { c >> 16 } else { c };
        byte(b) | byte(a) << 8 | (rest & 0xffff) << 16
    }))
}

fn float_to_float(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (ftz, rm) = (o.take("FTZ"), rounding(o));
    let format = |m: Option<&str>| {
        let found = FORMATS.iter().find(|(n, _)| m == Some(n)).map(|(_, f)| *f);
        found.map_or_else(|| unsupported("a conversion between these formats"), Ok)
    };
    let (to, from) = (format(o.next())?, format(o.next())?);
    let shift = if o.take("B:H1") { 16 } else { 0 };
    let flush = move |x, f: Format| if ftz && f == F32 { f.flush(x) } else { x };
    let exact = move |x: u64| {
        fp::convert(flush(narrow(x >> shift, from), from), from, to.flushing(ftz && to == F32), rm)
    };
    let (dst, src) = (o.dst(0, registers(to))?, float_src(o, 1, from)?);
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    if (to, from) == (F64, F32) {
        let fast = move |[x]: [u32; 1]| {
            let x = f32::from_bits(if ftz { flushed(x) } else { x });
            (halves(f64::from(x).to_bits()), x.is_nan())
        };
        return Ok(careful(dst, [Word::of(src)], fast, move |[x]| halves(exact(x.into()))));
    }
    if (to, from, rm) == (F32, F64, Round::Nearest) && !(src.neg || src.abs) {
        let joined = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let fast = move |[low, high]: [u32; 2]| {
            let r = f64::from_bits(joined(low, high)) as f32;
            // What is rounded up to the least normal number was below it, for `ftz`.
            ([r.to_bits()], r.is_nan() || ftz && r.abs() <= f32::MIN_POSITIVE)
        };
        return Ok(careful(dst, Word::pair(src), fast, move |[a, b]| [exact(joined(a, b)) as u32]));
    }
    Ok(value(dst, [src], move |[x]| exact(x)))
}

fn round_to_integral(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (ftz, rm) = (o.take("FTZ"), integral_rounding(o));
    let format = o.choose(&FORMATS).unwrap_or(F32);
    let shift = if o.take("B:H1") { 16 } else { 0 };
    let exact = move |x: u64| {
        let x = narrow(x >> shift, format);
        fp::round_integral(if ftz { format.flush(x) } else { x }, format, rm)
    };
    let (dst, src) = (o.dst(0, registers(format))?, float_src(o, 1, format)?);
    if format == F32 {
        let fast = move |[x]: [u32; 1]| {
            let r = integral(f32::from_bits(if ftz { flushed(x) } else { x }), rm);
            ([r.to_bits()], r.is_nan())
        };
        return Ok(careful(dst, [Word::of(src)], fast, move |[x]| [exact(x.into()) as u32]));
    }
    Ok(value(dst, [src], move |[x]| exact(x)))
}
