//! Conversions into and out of registers that hold several numbers: F2FP and I2IP.

use super::compile::{Unsupported, unsupported};
use super::float::canonical;
use super::operand::{Exec, Kind, Operands, value};
use crate::fp::{self, BF16, F16, F32, Format, Round};
use crate::small::{self, Small};
use sass::Reg;

/// What one side of a conversion is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Side {
    Wide(Format),
    Small(Small),
    Scale,
    Tf32,
}

fn side(name: &str) -> Option<Side> {
    Some(match name {
        "F16" => Side::Wide(F16),
        "BF16" => Side::Wide(BF16),
        "F32" => Side::Wide(F32),
        "TF32" => Side::Tf32,
        "E8" => Side::Scale,
        n => Side::Small(small::format(n)?),
    })
}

/// Modifiers of a conversion.
#[derive(Clone, Copy)]
struct Options {
    satfinite: bool,
    relu: bool,
    round: Round,
}

impl Options {
    /// A binary32 in the format.
    fn narrow(self, x: u64, to: Side) -> u64 {
        match to {
            Side::Small(f) => f.encode(x as u32, self.relu).into(),
            Side::Scale => small::encode_scale(x as u32, self.round, self.satfinite).into(),
            Side::Tf32 => self.finish(tf32(x, self.round), F32, 0x7f7f_e000),
            Side::Wide(f) => {
                let largest = fp::convert(0x7f80_0000, F32, f, Round::Nearest) - 1;
                self.finish(fp::convert(x, F32, f, self.round), f, largest)
            }
        }
    }
    fn finish(self, r: u64, f: Format, largest: u64) -> u64 {
        let sign = 1u64 << (f.bits() - 1);
        match () {
            () if f.is_nan(r) => canonical(f),
            () if self.relu && r & sign != 0 => 0,
            () if self.satfinite && r & (sign - 1) > largest => r & sign | largest,
            () => r,
        }
    }
}

/// The upper 19 bits of a binary32, rounded.
fn tf32(x: u64, round: Round) -> u64 {
    if x & 0x7fff_ffff >= 0x7f80_0000 {
        return if F32.is_nan(x) { x } else { x & !0x1fff };
    }
    let up = if round == Round::Nearest { 0xfff + (x >> 13 & 1) } else { 0 };
    (x + up) & 0xffff_e000
}

/// Rd, Ra, Rb, Rc; see `docs/simulator.md` for the shapes.
pub(crate) fn f2fp(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (satfinite, relu) = (o.take("SATFINITE"), o.take("RELU"));
    let shapes =
        ["PACK_AB_MERGE_C", "UNPACK_B_MERGE_C", "PACK_AB", "UNPACK_B", "MERGE_C", "PACK_B"].map(|s| (s, s));
    let Some(shape) = o.choose(&shapes) else { return unsupported("a packed conversion of this shape") };
    let round = o.choose(&[("RZ", Round::Zero), ("RP", Round::Up)]).unwrap_or(Round::Nearest);
    // Before sm_89 the formats are implied: binary32 to binary16 unless it says bfloat16.
    let (mut to, mut from) = (Side::Wide(F16), Side::Wide(F32));
    let mut named = 0;
    // The upper half of the source instead of the lower one.
    let upper = if o.take("B:H1") { 16 } else { 0 };
    if upper != 0 && shape != "UNPACK_B" {
        return unsupported("a conversion of an upper half");
    }
    // ptxas packs zeros in a format without a name (`UF2FP.???12`): in every format the result is zero.
    let zero = |slot| o.operand(slot).is_ok_and(|x| x.as_reg().is_some_and(|r| r.reg.is_zero()));
    let nothing = shape == "PACK_AB" && zero(1) && zero(2);
    while let Some(m) = o.next() {
        if nothing {
            continue;
        }
        let Some(s) = side(m) else { return unsupported(format!("modifier .{m}")) };
        *(if named == 0 { &mut to } else { &mut from }) = s;
        named += 1;
    }
    let merged = shape.ends_with("MERGE_C") && o.operand(3)?.as_reg().is_none_or(|r| r.reg != Reg::RZ);
    // What is merged comes above the result.
    if merged && (shape != "PACK_AB_MERGE_C" || !matches!(to, Side::Small(f) if f.bits > 4)) {
        return unsupported("a merged conversion");
    }
    let op = Options { satfinite, relu, round };
    let d = o.dst(0, 1)?;
    if matches!(shape, "PACK_AB" | "PACK_AB_MERGE_C") {
        let srcs = [o.src(1, Kind::Single)?, o.src(2, Kind::Single)?];
        let width = match to {
            Side::Wide(_) => 16,
            Side::Small(f) if f.bits == 4 => 4,
            _ => 8,
        };
        if merged {
            let [a, b] = srcs;
            let c = o.src(3, Kind::Int)?;
            return Ok(value(d, [a, b, c], move |[a, b, c]| {
                (c << (2 * width) | op.narrow(a, to) << width | op.narrow(b, to)) & 0xffff_ffff
            }));
        }
        return Ok(value(d, srcs, move |[a, b]| op.narrow(a, to) << width | op.narrow(b, to)));
    }
    let b = o.src(2, if matches!(shape, "MERGE_C" | "PACK_B") { Kind::Single } else { Kind::Int })?;
    Ok(match (shape, to, from) {
        ("MERGE_C" | "PACK_B", ..) => value(d, [b], move |[x]| op.narrow(x, to)),
        ("UNPACK_B_MERGE_C", _, Side::Wide(f)) => value(d, [b], move |[x]| {
            let one = |at: u32| op.narrow(fp::convert(x >> at & 0xffff, f, F32, Round::Nearest), to);
            let width = if matches!(to, Side::Small(s) if s.bits == 4) { 4 } else { 8 };
            one(16) << width | one(0)
        }),
        ("UNPACK_B", Side::Wide(f), Side::Small(s)) => value(d, [b], move |[x]| {
            let x = x >> upper;
            let width = if s.bits == 4 { 4 } else { 8 };
            let one = |at: u32| {
                let code = (x >> at) as u8 & ((1u32 << s.bits) - 1) as u8;
                op.finish(fp::convert(s.decode(code).into(), F32, f, Round::Nearest), f, u64::MAX)
            };
            one(width) << 16 | one(0)
        }),
        ("UNPACK_B", Side::Wide(f), Side::Scale) => value(d, [b], move |[x]| {
            let x = x >> upper;
            let one =
                |at: u32| fp::convert(small::decode_scale((x >> at) as u8).into(), F32, f, Round::Nearest);
            one(8) << 16 | one(0)
        }),
        _ => return unsupported("a packed conversion of these formats"),
    })
}

/// Rd, Ra, Rb, Rc: Ra and Rb saturated to a narrow integer type, above the low bits of Rc.
pub(crate) fn i2ip(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let types = [
        ("U16", (16, false)),
        ("S16", (16, true)),
        ("U8", (8, false)),
        ("S8", (8, true)),
        ("U4", (4, false)),
        ("S4", (4, true)),
        ("U2", (2, false)),
        ("S2", (2, true)),
    ];
    let Some((bits, signed)) = o.choose(&types) else { return unsupported("a packing of this type") };
    o.ignore(&["S32", "C:24", "C:28"]);
    let upper = if o.take("C:H1") { 16 } else { 0 };
    if !o.take("SAT") {
        return unsupported("a packing without saturation");
    }
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
    Ok(value(o.dst(0, 1)?, srcs, move |[a, b, c]| {
        pack_integers(a as u32, b as u32, (c as u32) >> upper, bits, signed).into()
    }))
}

/// `cvt.pack`: `{c, a, b}` with `a` and `b` saturated to `bits` bits.
pub(crate) fn pack_integers(a: u32, b: u32, c: u32, bits: u32, signed: bool) -> u32 {
    let (least, greatest) =
        if signed { (-1i64 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let one = |x: u32| i64::from(x as i32).clamp(least, greatest) as u64 & ((1 << bits) - 1);
    (u64::from(c) << (2 * bits) | one(a) << bits | one(b)) as u32
}
