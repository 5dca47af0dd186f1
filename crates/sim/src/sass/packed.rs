//! Pairs of binary32 numbers, sums of halves and binary32 numbers, narrowing of integers, and predicates of
//! signs.

use super::compile::{Unsupported, unsupported};
use super::float::rounding;
use super::operand::{Exec, Kind, Operands, Src, lanewise, value};
use crate::fp::{self, BF16, F16, F32, Round, Single};
use sass::Opcode;

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match o.inst.op {
        Opcode::FADD2 | Opcode::FMUL2 | Opcode::FFMA2 => pair(o)?,
        Opcode::FHADD | Opcode::FHFMA => mixed(o)?,
        Opcode::I2I | Opcode::UI2I => narrow(o)?,
        Opcode::PLOP3_SIGN | Opcode::UPLOP3_S3 => signs(o)?,
        Opcode::PLOP3_S2 | Opcode::UPLOP3_S2 => predicate_and_signs(o)?,
        Opcode::PLOP3_S1 | Opcode::UPLOP3_S1 => sign_and_predicates(o)?,
        Opcode::VABSDIFF4 => byte_differences(o)?,
        _ => return Ok(None),
    }))
}

/// Two numbers of a pair of registers.
#[derive(Clone, Copy)]
struct Pair {
    src: Src,
    /// The number as the operand has it, for both.
    both: bool,
    /// High and low change places.
    swapped: bool,
}

impl Pair {
    fn of(o: &Operands<'_>, slot: usize) -> Result<Pair, Unsupported> {
        let letter = ["A", "B", "C"][slot - 1];
        let both = o.take(&format!("{letter}:F32"));
        // The order of the halves comes right behind.
        let order = if o.take(&format!("{letter}:F32x2")) { o.next() } else { None };
        let swapped = order == Some("LO_HI");
        let both = both || matches!(o.operand(slot)?, sass::Operand::Imm(_));
        let src = o.src(slot, if both { Kind::Single } else { Kind::Long })?;
        if src.not {
            return unsupported("a complemented pair");
        }
        Ok(Pair { src, both, swapped })
    }
    /// Its number of the low (0) or high (1) half, with the operand's sign changes.
    fn half(self, x: u64, high: bool) -> u32 {
        let x = if self.both {
            x as u32
        } else if high != self.swapped {
            (x >> 32) as u32
        } else {
            x as u32
        };
        let x = if self.src.abs { x & 0x7fff_ffff } else { x };
        if self.src.neg { x ^ 0x8000_0000 } else { x }
    }
}

fn pair(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let op = Single { rm: rounding(o), ftz: o.take("FTZ"), sat: false };
    let kind = o.inst.op;
    let (a, b) = (Pair::of(o, 1)?, Pair::of(o, 2)?);
    let c = if kind == Opcode::FFMA2 { Pair::of(o, 3)? } else { b };
    Ok(value(o.dst(0, 2)?, [a, b, c].map(|p| p.src.plain()), move |[x, y, z]| {
        let one = |high: bool| {
            let (x, y, z) = (a.half(x, high), b.half(y, high), c.half(z, high));
            u64::from(match kind {
                Opcode::FADD2 => op.add(x, y),
                Opcode::FMUL2 => op.mul(x, y),
                _ => op.fma(x, y, z),
            })
        };
        one(true) << 32 | one(false)
    }))
}

/// A sum, or a product of halves and a sum, in binary32.
fn mixed(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let format = if o.take("BF16") { BF16 } else { F16 };
    let op = Single { rm: rounding(o), ftz: o.take("FTZ"), sat: o.take("SAT") };
    let part = |letter: char| if o.take(&format!("{letter}:H1")) { 16 } else { 0 };
    let (pa, pb) = (part('A'), part('B'));
    let up = move |x: u64, at: u32| fp::convert(x >> at & 0xffff, format, F32, Round::Nearest) as u32;
    let a = o.src(1, Kind::Halves)?;
    if o.inst.op == Opcode::FHADD {
        let b = o.src(2, Kind::Single)?;
        return Ok(value(o.dst(0, 1)?, [a, b], move |[x, y]| op.add(up(x, pa), y as u32).into()));
    }
    let (b, c) = (o.src(2, Kind::Halves)?, o.src(3, Kind::Single)?);
    Ok(value(o.dst(0, 1)?, [a, b, c], move |[x, y, z]| op.fma(up(x, pa), up(y, pb), z as u32).into()))
}

/// Rd, Ra: a 32-bit integer saturated to a narrow one.
fn narrow(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let types = [("U8", (0, 255)), ("S8", (-128, 127)), ("U16", (0, 65535)), ("S16", (-32768, 32767))];
    let Some((least, most)) = o.choose(&types) else { return unsupported("a conversion to this type") };
    if !o.take("SAT") || !o.take("S32") {
        return unsupported("this conversion of integers");
    }
    Ok(value(o.dst(0, 1)?, [o.src(1, Kind::Int)?], move |[x]| {
        u64::from((x as u32 as i32).clamp(least, most) as u32)
    }))
}

/// Modifiers that say what the mnemonic of the table says already.
const SIGNS: &[&str] = &["LUT", "A:SIGN", "B:SIGN", "C:SIGN", "SIGN"];

/// Pd, Pq, Ra, Rb, Rc, tables: PLOP3 of the registers' signs.
fn signs(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(SIGNS);
    let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
    let srcs = [o.raw(2)?, o.raw(3)?, o.raw(4)?];
    let (t, u) = (o.imm(5)?, o.imm(6)?);
    Ok(lanewise(out, srcs, [], move |[a, b, c], []| {
        let sign = |x: u64| (x >> 31 & 1) as u32;
        let i = sign(a) * 4 + sign(b) * 2 + sign(c);
        (0, t >> i & 1 != 0, u >> i & 1 != 0)
    }))
}

/// Pd, Pq, Pa, Rb, Rc, tables: a predicate and two signs.
fn predicate_and_signs(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(SIGNS);
    let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
    let (srcs, t, u) = ([o.raw(3)?, o.raw(4)?], o.imm(5)?, o.imm(6)?);
    Ok(lanewise(out, srcs, [o.pred(2)?], move |[b, c], [a]| {
        let i = u32::from(a) * 4 + (b >> 31 & 1) as u32 * 2 + (c >> 31 & 1) as u32;
        (0, t >> i & 1 != 0, u >> i & 1 != 0)
    }))
}

/// Pd, Pq, Pa, Rb, Pc, tables: a sign between two predicates.
fn sign_and_predicates(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(SIGNS);
    let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
    let (srcs, t, u) = ([o.raw(3)?], o.imm(5)?, o.imm(6)?);
    Ok(lanewise(out, srcs, [o.pred(2)?, o.pred(4)?], move |[b], [a, c]| {
        let i = u32::from(a) * 4 + (b >> 31 & 1) as u32 * 2 + u32::from(c);
        (0, t >> i & 1 != 0, u >> i & 1 != 0)
    }))
}

/// Rd, Pd, Ra, Rb, Rc: absolute differences of bytes, or with ACC Rc plus their sum.
fn byte_differences(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (unsigned, sum) = (o.take("U8"), o.take("ACC"));
    if o.operand(1)?.as_reg().is_some_and(|r| !r.reg.is_zero()) {
        return unsupported("a predicate result");
    }
    let srcs = [o.src(2, Kind::Int)?, o.src(3, Kind::Int)?, o.src(4, Kind::Int)?];
    Ok(value(o.dst(0, 1)?, srcs, move |[a, b, c]| {
        let one = |i: usize| {
            let (x, y) = ((a as u32).to_le_bytes()[i], (b as u32).to_le_bytes()[i]);
            u32::from(if unsigned { x.abs_diff(y) } else { (x as i8).abs_diff(y as i8) })
        };
        u64::from(if sum {
            (0..4).fold(c as u32, |s, i| s.wrapping_add(one(i)))
        } else {
            (0..4).fold(0, |r, i| r | one(i) << (8 * i))
        })
    }))
}
