//! Instruction → text in nvdisasm's spelling. Which operands are left out follows from the form that the
//! instruction has on the target.

#[cfg(doc)]
use crate::decode;
use crate::decode::{DecodeError, find};
use crate::encode::default_operand;
use crate::form::*;
use crate::inst::{AddrWidth, ConstBank, Inst, Operand};
use crate::isa::Mod;
use crate::reg::{Reg, RegFile};
use crate::target::Target;
use std::fmt::{self, Write as _};

/// An instruction with the target it is printed for; see [`print`].
#[derive(Clone, Copy)]
pub struct Printed<'a> {
    inst: &'a Inst,
    target: Target,
    /// Looked up where it is not known.
    form: Option<&'static Form>,
}

/// The instruction as nvdisasm spells it on `target`, without the closing semicolon.
pub fn print(inst: &Inst, target: Target) -> Printed<'_> {
    Printed { inst, target, form: None }
}

/// The same, by a form that is known.
pub(crate) fn print_as<'a>(inst: &'a Inst, target: Target, form: &'static Form) -> Printed<'a> {
    Printed { inst, target, form: Some(form) }
}

/// The word at byte address `pc` in nvdisasm's spelling. It tells more than [`print`] of what [`decode`]
/// gives: whether a descriptor that an instruction of sm_80 … sm_89 has is shown is not part of an [`Inst`].
///
/// # Errors
/// When the table does not know the word.
pub fn disassemble(word: u128, target: Target, pc: i64) -> Result<String, DecodeError> {
    let (inst, form) = find(word, target, pc)?;
    Ok(print_as(&inst, target, form).to_string())
}

/// The first form whose operand fields fit the kinds of the operands, as far as printing is concerned.
fn form_of(inst: &Inst, target: Target) -> Option<&'static Form> {
    let bit = target_bit(target);
    let fits = |form: &Form| {
        form.fields.len() == inst.operands.len()
            && form.fields.iter().zip(&inst.operands).all(|(field, operand)| match (&field.kind, operand) {
                (FieldKind::Absent, _) => true,
                (FieldKind::Reg { file, mods, .. }, Operand::Reg(r)) => {
                    *file == r.reg.file || mods.uniform != NONE && r.reg.file == RegFile::UP
                }
                (FieldKind::Imm { .. } | FieldKind::Named { .. }, Operand::Imm(_))
                | (FieldKind::Label { .. }, Operand::Label(_))
                | (FieldKind::Special { .. }, Operand::Special(_))
                | (FieldKind::Scoreboard { .. }, Operand::Scoreboard(_))
                | (FieldKind::ScoreboardSet { .. }, Operand::ScoreboardSet(_)) => true,
                (FieldKind::Const { index, bindless, .. }, Operand::Const { bank, index: reg, .. }) => {
                    (index.is_some() || reg.is_none())
                        && (*bindless != NONE) == matches!(bank, ConstBank::Bindless(_))
                }
                (
                    FieldKind::Addr { desc, uniform, hide_zero, .. },
                    Operand::Addr { desc: d, uniform: u, .. },
                ) => (*desc != NONE) == d.is_some() && ((*uniform != NONE) == u.is_some() || *hide_zero),
                _ => false,
            })
    };
    let mut candidates = forms_of_op(inst.op).filter(|form| form.targets & bit != 0 && fits(form));
    let first = candidates.clone().next();
    // Where forms differ in modifiers only, one that encodes is the right one.
    candidates.find(|form| crate::encode::accepts(form, inst, target)).or(first)
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inst = self.inst;
        if inst.guard.not || !inst.guard.pred.is_zero() {
            let not = if inst.guard.not { "!" } else { "" };
            if inst.op.is_uniform() && inst.guard.pred.is_zero() {
                write!(f, "@{not}UPT ")?;
            } else {
                write!(f, "@{not}{} ", inst.guard.pred)?;
            }
        }
        f.write_str(inst.op.mnemonic())?;
        let form = self.form.or_else(|| form_of(inst, self.target));
        let mut mods = &inst.mods.0[..];
        let mut suffixes: Vec<(usize, &[Mod])> = Vec::new();
        if let Some(form) = form {
            for (i, field) in form.fields.iter().enumerate().rev() {
                if let Some(group) = &field.suffix {
                    let entry = group
                        .values
                        .iter()
                        .filter(|(_, list)| mods.ends_with(list))
                        .max_by_key(|(_, list)| list.len());
                    if let Some((_, list)) = entry {
                        mods = &mods[..mods.len() - list.len()];
                        suffixes.push((i, list));
                    }
                }
            }
        }
        for m in mods {
            write!(f, ".{}", m.name())?;
        }
        let mut first = true;
        let mut high = 0;
        for (i, operand) in inst.operands.iter().enumerate() {
            let field = form.map(|form| &form.fields[i]);
            if let Some(field) = field {
                let default = || *operand == default_operand(field, inst.op.slots()[i].kind);
                let skip = match field.elide {
                    Elide::Never => false,
                    Elide::Always => true,
                    Elide::Default => default(),
                    Elide::Without(m) => !inst.mods.has(m),
                    Elide::WithoutOrDefault(m) => !inst.mods.has(m) || default(),
                };
                if !field.before.is_empty() {
                    f.write_str(if first { " " } else { ", " })?;
                    f.write_str(field.before)?;
                    first = false;
                }
                if skip {
                    continue;
                }
                if let (FieldKind::Imm { kind: ImmKind::High, .. }, Operand::Imm(value)) =
                    (&field.kind, operand)
                {
                    high = *value;
                    continue;
                }
            }
            f.write_str(if first || field.is_some_and(|f| f.spaced) { " " } else { ", " })?;
            first = false;
            let suffix = suffixes.iter().find(|(k, _)| *k == i).map_or(&[][..], |(_, list)| *list);
            match (field.map(|f| &f.kind), operand) {
                (Some(FieldKind::Imm { kind: ImmKind::Low, .. }), Operand::Imm(low)) => {
                    write!(f, "{:#x}", u64::from(high) << 32 | u64::from(*low))?;
                }
                _ => operand_text(f, operand, field, suffix, self.target)?,
            }
        }
        Ok(())
    }
}

fn operand_text(
    f: &mut fmt::Formatter<'_>,
    operand: &Operand,
    field: Option<&Field>,
    suffix: &[Mod],
    target: Target,
) -> fmt::Result {
    let tail = |f: &mut fmt::Formatter<'_>| suffix.iter().try_for_each(|m| write!(f, ".{}", tail_name(*m)));
    match operand {
        Operand::Reg(r) => {
            // The bars of an absolute value enclose the suffix of a uniform register, but not of another.
            let inside = r.reg.file == RegFile::UR;
            source(f, r.neg, r.abs, r.not, r.reg.file, |f| {
                write!(f, "{}", r.reg)?;
                if inside { tail(f) } else { Ok(()) }
            })?;
            f.write_str(if r.reuse { ".reuse" } else { "" })?;
            if inside { Ok(()) } else { tail(f) }
        }
        Operand::Imm(value) => {
            if let Some(FieldKind::Named { names, .. }) = field.map(|f| &f.kind) {
                let name = names.iter().find(|(v, _)| v == value).map_or("", |(_, name)| name);
                return f.write_str(name);
            }
            let kind = match field.map(|f| &f.kind) {
                Some(FieldKind::Imm { kind, .. }) => *kind,
                _ => ImmKind::Unsigned,
            };
            immediate(f, *value, kind)
        }
        Operand::Const { bank, index, offset, neg, abs, not } => {
            let indexed = match field.map(|f| &f.kind) {
                Some(FieldKind::Const { index: Some((file, _)), .. }) => Some(*file),
                _ => None,
            };
            source(f, *neg, *abs, *not, RegFile::R, |f| {
                match bank {
                    ConstBank::Index(n) => write!(f, "c[{n:#x}]")?,
                    ConstBank::Bindless(r) => write!(f, "cx[{r}]")?,
                }
                let gap = if field.is_some_and(|f| f.suffix.is_some()) { " " } else { "" };
                match index {
                    None if *offset == 0 && indexed.is_some() => {
                        write!(f, "{gap}[{}]", if indexed == Some(RegFile::R) { "RZ" } else { "URZ" })
                    }
                    None => write!(f, "{gap}[{}]", Hex(i64::from(*offset))),
                    Some(r) if *offset == 0 => write!(f, "{gap}[{r}]"),
                    Some(r) => write!(f, "{gap}[{r}+{}]", Hex(i64::from(*offset))),
                }?;
                tail(f)
            })
        }
        Operand::Addr { desc, base, width, uniform, offset } => {
            if let Some(FieldKind::Addr { space, .. }) = field.map(|f| &f.kind) {
                f.write_str(space)?;
            }
            let hidden = matches!(field.map(|f| &f.kind), Some(FieldKind::Addr { desc_hidden: true, .. }));
            if let Some(d) = desc.filter(|_| !hidden) {
                write!(f, "desc[{d}]")?;
            }
            f.write_char('[')?;
            // Next to a uniform register, sm_90 and later spell RZ when it has a width; as 64 bits it has no name.
            let optional = matches!(field.map(|f| &f.kind), Some(FieldKind::Addr { hide_zero: true, .. }));
            let spelled_zero = uniform.is_some()
                && target.sm >= 90
                && (*width == AddrWidth::U32 || *width == AddrWidth::R64 && !optional);
            // A scale is spelled even if the register that it scales is zero, next to a uniform register.
            let scaled = matches!(width, AddrWidth::X4 | AddrWidth::X8 | AddrWidth::X16);
            let bare = matches!(field.map(|f| &f.kind), Some(FieldKind::Addr { base: NONE, .. }));
            let has_base = base.is_some()
                || spelled_zero
                || uniform.is_some() && scaled
                || !bare && uniform.is_none() && (*offset == 0 || desc.is_some());
            if has_base {
                let scale = match width {
                    _ if base.is_none() && uniform.is_none() && scaled => "",
                    AddrWidth::R32 => "",
                    AddrWidth::R64 => ".64",
                    AddrWidth::U32 => ".U32",
                    AddrWidth::X4 => ".X4",
                    AddrWidth::X8 => ".X8",
                    AddrWidth::X16 => ".X16",
                };
                match base {
                    None if uniform.is_some() && *width == AddrWidth::R64 && !optional => {
                        write!(f, "???255{scale}")
                    }
                    _ => write!(f, "{}{scale}", base.unwrap_or(Reg::RZ)),
                }?;
            }
            // Some forms without a register leave URZ out where an offset says enough.
            let silent = bare && optional && *offset != 0;
            let uniform = uniform.filter(|u| !(silent && u.is_zero()));
            if let Some(u) = uniform {
                write!(f, "{}{u}", if has_base { "+" } else { "" })?;
            }
            if *offset != 0 || bare && uniform.is_none() {
                let plus = if has_base || uniform.is_some() { "+" } else { "" };
                write!(f, "{plus}{}", Hex(i64::from(*offset)))?;
            }
            f.write_char(']')?;
            tail(f)
        }
        Operand::Label(to) => write!(f, "{}", Hex(*to)),
        Operand::Special(sr) => f.write_str(sr.name()),
        Operand::Scoreboard(n) => write!(f, "SB{n}"),
        Operand::ScoreboardSet(set) => {
            let list: Vec<String> =
                (0..6).rev().filter(|i| set >> i & 1 != 0).map(|i: u8| i.to_string()).collect();
            write!(f, "{{{}}}", list.join(","))
        }
    }
}

/// The spelling of an operand suffix: the part behind the slot letter of `A:H0_H0`.
pub(crate) fn tail_name(m: Mod) -> &'static str {
    m.name().rsplit(':').next().unwrap_or_default()
}

fn source(
    f: &mut fmt::Formatter<'_>,
    neg: bool,
    abs: bool,
    not: bool,
    file: RegFile,
    inner: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    if not {
        f.write_char(if matches!(file, RegFile::P | RegFile::UP) { '!' } else { '~' })?;
    }
    if neg {
        f.write_char('-')?;
    }
    if abs {
        f.write_char('|')?;
    }
    inner(f)?;
    if abs { f.write_char('|') } else { Ok(()) }
}

/// A signed number in hexadecimal: `-0x10`.
struct Hex(i64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:#x}", if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs())
    }
}

fn immediate(f: &mut fmt::Formatter<'_>, value: u32, kind: ImmKind) -> fmt::Result {
    match kind {
        ImmKind::Unsigned | ImmKind::High | ImmKind::Low => write!(f, "{value:#x}"),
        ImmKind::Signed => write!(f, "{}", Hex(i64::from(value as i32))),
        ImmKind::Negative => write!(f, "{}", Hex(i64::from(value) - 0x1_0000_0000)),
        ImmKind::F32 => {
            let quiet = value & 0x0040_0000 != 0;
            float(f, f64::from(f32::from_bits(value)), value >> 31 != 0, quiet)
        }
        ImmKind::F64 => {
            let quiet = value & 0x0008_0000 != 0;
            float(f, f64::from_bits(u64::from(value) << 32), value >> 31 != 0, quiet)
        }
        ImmKind::Half => half(f, value as u16),
        ImmKind::Bfloat => bfloat(f, value << 16),
        ImmKind::HalfPair => {
            half(f, (value >> 16) as u16)?;
            f.write_str(", ")?;
            half(f, value as u16)
        }
        ImmKind::BfloatPair => {
            bfloat(f, value & 0xffff_0000)?;
            f.write_str(", ")?;
            bfloat(f, value << 16)
        }
    }
}

/// Decimal as C's `%.20g` prints it, from 10⁹ on as `%.20e`; infinities and NaNs by name.
fn float(f: &mut fmt::Formatter<'_>, value: f64, negative: bool, quiet: bool) -> fmt::Result {
    let sign = if negative { '-' } else { '+' };
    if value.is_nan() {
        return write!(f, "{sign}{}", if quiet { "QNAN " } else { "SNAN " });
    }
    if value.is_infinite() {
        return write!(f, "{sign}INF ");
    }
    if value.abs() >= 1e9 {
        let text = format!("{value:.20e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return write!(f, "{digits}e+{exponent:0>2}");
    }
    f.write_str(&general(value, 20))
}

/// A bfloat16 as the binary32 whose high half it is.
fn bfloat(f: &mut fmt::Formatter<'_>, bits: u32) -> fmt::Result {
    float(f, f64::from(f32::from_bits(bits)), bits >> 31 != 0, bits & 0x0040_0000 != 0)
}

fn half(f: &mut fmt::Formatter<'_>, bits: u16) -> fmt::Result {
    let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, bits & 0x3ff);
    let magnitude = match exponent {
        0 => f64::from(fraction) * (-24f64).exp2(),
        31 if fraction != 0 => f64::NAN,
        31 => f64::INFINITY,
        e => f64::from(fraction + 1024) * (f64::from(e) - 25.0).exp2(),
    };
    float(f, if sign != 0 { -magnitude } else { magnitude }, sign != 0, fraction & 0x200 != 0)
}

/// C's `%.{precision}g`.
pub(crate) fn general(value: f64, precision: usize) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0 ".into() } else { "0".into() };
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| -> String {
        if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').into() } else { s.into() }
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        trim(&format!("{value:.decimals$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_c_does() {
        assert_eq!(general(0.5, 20), "0.5");
        assert_eq!(general(-3.0, 20), "-3");
        assert_eq!(general(f64::from(0.1f32), 20), "0.10000000149011611938");
        assert_eq!(general(16777216.0, 20), "16777216");
    }
}
