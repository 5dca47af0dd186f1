//! Arithmetic, comparison and selection on pairs of binary16 or bfloat16 numbers.

use super::compare::{Verdicts, combine, comparison};
use super::compile::{Unsupported, unsupported};
use super::float::canonical;
use super::operand::{Exec, From, Kind, Operands, PredDst, Src, lanewise, value};
use crate::fp::{self, BF16, F16, F32, Format, Round};

const NO_PREDS: [PredDst; 2] = [PredDst::NONE; 2];

/// Prepares an instruction on halves; `None` if `name` isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match name {
        "HADD2" | "HMUL2" | "HFMA2" => arithmetic(name, o)?,
        "HMNMX2" | "VHMNMX" => min_max(o)?,
        "HSETP2" => {
            let (op, compare) = (Options::of(o), comparison(o)?);
            let join = combine(o)?;
            let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
            if o.take("B:F32") {
                // With a binary32 number, which stands for both halves.
                let (a, b) = (halves(o, 2, 'A')?, o.src(3, Kind::Single)?);
                return Ok(Some(lanewise(out, [a.src, b], [o.pred(4)?], move |[x, y], [p]| {
                    let y = f32::from_bits(if op.ftz { F32.flush(y) } else { y } as u32);
                    let wide =
                        |x| f32::from_bits(fp::convert(op.input(x), op.format, F32, Round::Nearest) as u32);
                    let one = |at| join.of(compare.of(wide(a.pick(x, at)), y), p);
                    (0, one(0), one(16))
                })));
            }
            let (a, b) = (halves(o, 2, 'A')?, halves(o, 3, 'B')?);
            lanewise(out, [a.src, b.src], [o.pred(4)?], move |[x, y], [p]| {
                let one = |at| join.of(op.compare(compare, a.pick(x, at), b.pick(y, at)), p);
                (0, one(0), one(16))
            })
        }
        "HSET2" => {
            let number = o.take("BF");
            let (op, compare) = (Options::of(o), comparison(o)?);
            let join = combine(o)?;
            let yes = if number { op.one() } else { 0xffff };
            let (a, b) = (halves(o, 1, 'A')?, halves(o, 2, 'B')?);
            let out = (Some(o.dst(0, 1)?), NO_PREDS);
            lanewise(out, [a.src, b.src], [o.pred(3)?], move |[x, y], [p]| {
                let one = |at| {
                    let r = join.of(op.compare(compare, a.pick(x, at), b.pick(y, at)), p);
                    if r { yes << at } else { 0 }
                };
                (one(0) | one(16), false, false)
            })
        }
        _ => return Ok(None),
    }))
}

/// A source and which half of it each half of the operation reads.
#[derive(Clone, Copy)]
struct Halves {
    src: Src,
    /// For the low and the high half.
    from: [u32; 2],
    /// The sign of what the low half reads is changed.
    flip: bool,
}

impl Halves {
    fn pick(self, x: u64, at: u32) -> u64 {
        (x >> self.from[(at / 16) as usize] & 0xffff) ^ if self.flip && at == 0 { 0x8000 } else { 0 }
    }
}

fn halves(o: &Operands<'_>, slot: usize, letter: char) -> Result<Halves, Unsupported> {
    let take = |s: &str| o.take(&format!("{letter}:{s}"));
    let flip = take("H0_NH1");
    let from = if flip {
        // Written high half first: times the imaginary unit.
        [16, 0]
    } else if take("H0_H0") {
        [0, 0]
    } else if take("H1_H1") {
        [16, 16]
    } else {
        [0, 16]
    };
    Ok(Halves { src: o.src(slot, Kind::Halves)?, from, flip })
}

/// What the modifiers say.
#[derive(Clone, Copy)]
struct Options {
    format: Format,
    ftz: bool,
    sat: bool,
    relu: bool,
}

impl Options {
    fn of(o: &Operands<'_>) -> Options {
        o.ignore(&["MMA"]);
        let format = if o.take("BF16_V2") { BF16 } else { F16 };
        Options { format, ftz: o.take("FTZ"), sat: o.take("SAT"), relu: o.take("RELU") }
    }
    fn one(self) -> u64 {
        if self.format == F16 { 0x3c00 } else { 0x3f80 }
    }
    fn input(self, x: u64) -> u64 {
        if self.ftz { self.format.flush(x) } else { x }
    }
    fn finish(self, r: u64) -> u64 {
        let r = self.input(r);
        match () {
            () if self.sat => self.format.saturate(r),
            () if !self.relu => r,
            () if self.format.is_nan(r) => canonical(self.format),
            () if r & 0x8000 != 0 => 0,
            () => r,
        }
    }
    fn compare(self, verdicts: Verdicts, a: u64, b: u64) -> bool {
        let wide = |x| f32::from_bits(fp::convert(self.input(x), self.format, F32, Round::Nearest) as u32);
        verdicts.of(wide(a), wide(b))
    }
}

/// Arithmetic on two halves at once.
fn arithmetic(name: &str, o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let op = Options::of(o);
    let format = op.format;
    let (add, mul) = (name == "HADD2", name == "HMUL2");
    let wide = o.take("F32");
    if add && o.take("B:F32") {
        return narrowing(o, op, 1, 2, Round::Nearest);
    }
    if add && o.take("A:F32") {
        // ptxas 13.0 converts with `.rz` like this on sm_75.
        return narrowing(o, op, 2, 1, Round::Zero);
    }
    let (a, b) = (halves(o, 1, 'A')?, halves(o, 2, 'B')?);
    let c = if name == "HFMA2" { halves(o, 3, 'C')? } else { b };
    if wide {
        // One sum, of the low halves, in binary32.
        if !add {
            return unsupported("a binary32 result of this operation");
        }
        return Ok(value(o.dst(0, 1)?, [a.src, b.src], move |[x, y]| {
            let up = |x| fp::convert(op.input(x), format, F32, Round::Nearest);
            let r = fp::add(up(a.pick(x, 0)), up(b.pick(y, 0)), F32, Round::Nearest);
            if op.sat { F32.saturate(r) } else { r }
        }));
    }
    Ok(value(o.dst(0, 1)?, [a.src, b.src, c.src], move |[x, y, z]| {
        let half = |at: u32| {
            let (x, y, z) = (op.input(a.pick(x, at)), op.input(b.pick(y, at)), op.input(c.pick(z, at)));
            let result = format.flushing(op.ftz);
            let r = match () {
                () if add => fp::add(x, y, result, Round::Nearest),
                () if mul => fp::mul(x, y, result, Round::Nearest),
                () => fp::fma(x, y, z, result, Round::Nearest),
            };
            op.finish(r) << at
        };
        half(0) | half(16)
    }))
}

/// A binary32 number, added to zero, as both halves: a conversion.
fn narrowing(
    o: &Operands<'_>,
    op: Options,
    zero: usize,
    number: usize,
    round: Round,
) -> Result<Exec, Unsupported> {
    let zero = halves(o, zero, if zero == 1 { 'A' } else { 'B' })?;
    if !matches!(zero.src.from, From::Reg(255)) {
        return unsupported("a sum of different formats");
    }
    Ok(value(o.dst(0, 1)?, [o.src(number, Kind::Single)?], move |[x]| {
        let x = if op.ftz { F32.flush(x) } else { x };
        let r = op.finish(fp::convert(x, F32, op.format, round));
        r | r << 16
    }))
}

/// The smaller or larger; see [`super::float::extremum`].
fn min_max(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let op = Options::of(o);
    let (nan, xorsign) = (o.take("NAN"), o.take("XORSIGN"));
    let (a, b) = (halves(o, 1, 'A')?, halves(o, 2, 'B')?);
    if o.len() == 5 {
        if xorsign {
            return unsupported("three signs");
        }
        let c = halves(o, 3, 'C')?;
        return Ok(lanewise(
            (Some(o.dst(0, 1)?), NO_PREDS),
            [a.src, b.src, c.src],
            [o.pred(4)?],
            move |[x, y, z], [least]| {
                let half = |at: u32| {
                    let [x, y, z] = [a.pick(x, at), b.pick(y, at), c.pick(z, at)].map(|x| op.input(x));
                    let r = super::float::extremum(op.format, x, y, least, nan);
                    super::float::extremum(op.format, r, z, least, nan) << at
                };
                (half(0) | half(16), false, false)
            },
        ));
    }
    let out = (Some(o.dst(0, 1)?), NO_PREDS);
    let raw = [a.src.plain(), b.src.plain()];
    let (ma, mb) = (a.src, b.src);
    Ok(lanewise(out, raw, [o.pred(3)?], move |[x, y], [least]| {
        let half = |at: u32| {
            let (rx, ry) = (a.pick(x, at), b.pick(y, at));
            let (vx, vy) = (a.pick(ma.apply(x), at), b.pick(mb.apply(y), at));
            let r = super::float::extremum(op.format, op.input(vx), op.input(vy), least, nan);
            // The sign of an immediate counts, though it is no magnitude.
            let signed = xorsign && !op.format.is_nan(r);
            (if signed { r & 0x7fff | (rx ^ ry) & 0x8000 } else { r }) << at
        };
        (half(0) | half(16), false, false)
    }))
}
