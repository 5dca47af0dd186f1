//! Instruction → word, by the forms of the table.

use crate::Control;
use crate::decode::{control_fits, decode_field};
use crate::form::*;
use crate::inst::{AddrWidth, ConstBank, Inst, Operand, RegOp, SlotKind};
use crate::isa::Mod;
use crate::reg::{Reg, RegFile};
use crate::target::Target;
use std::fmt;

/// Bytes of a constant bank.
const BANK_BYTES: i32 = 1 << 16;

/// Why an instruction has no encoding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// The opcode has no form on this target.
    NoForm {
        /// The instruction, printed.
        text: String,
        /// The target.
        target: Target,
    },
    /// No form of the opcode takes these modifiers and operands.
    NoMatch {
        /// The instruction, printed.
        text: String,
        /// The target.
        target: Target,
        /// What the form that came closest does not take.
        reason: Mismatch,
    },
}

/// What a form does not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// The number of operands.
    OperandCount,
    /// This modifier, or its place in the order.
    Modifier(Mod),
    /// A modifier must be present where this index points into the list.
    MissingModifier(usize),
    /// Kind, source modifiers or register file of the operand of this index.
    Operand(usize),
    /// The operand of this index has a value that does not fit.
    Range(usize),
    /// The guard.
    Guard,
    /// Values that do not go together, in fields of which one starts at this bit.
    Combination(u8),
    /// The control field: a stall without `Y`, `.reuse` with it, or a scoreboard that the form has no use for.
    Control,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::NoForm { text, target } => write!(f, "{target} has no encoding of `{text}`"),
            EncodeError::NoMatch { text, target, reason } => {
                write!(f, "no encoding on {target} takes `{text}`: ")?;
                match reason {
                    Mismatch::OperandCount => f.write_str("wrong number of operands"),
                    Mismatch::Modifier(m) => write!(f, "modifier .{} (or its place)", m.name()),
                    Mismatch::MissingModifier(i) => write!(f, "a modifier is missing at place {i}"),
                    Mismatch::Operand(i) => write!(f, "operand {i}"),
                    Mismatch::Range(i) => write!(f, "operand {i} is out of range"),
                    Mismatch::Guard => f.write_str("the guard"),
                    Mismatch::Combination(bit) => write!(f, "the combination of values (bit {bit})"),
                    Mismatch::Control => f.write_str("the control field"),
                }
            }
        }
    }
}

impl std::error::Error for EncodeError {}

/// The 128-bit word of an instruction at byte address `pc` of its section.
///
/// # Errors
/// When no form of the table takes the operands and modifiers on this target.
pub fn encode(inst: &Inst, target: Target, pc: i64) -> Result<u128, EncodeError> {
    let bit = target_bit(target);
    let mut closest: Option<(usize, Mismatch)> = None;
    for form in forms_of_op(inst.op) {
        if form.targets & bit == 0 {
            continue;
        }
        match encode_form(form, inst, target, pc) {
            Ok(word) => return Ok(word),
            Err((progress, why)) => {
                if closest.is_none_or(|(best, _)| progress > best) {
                    closest = Some((progress, why));
                }
            }
        }
    }
    let text = crate::print::print(inst, target).to_string();
    Err(match closest {
        None => EncodeError::NoForm { text, target },
        Some((_, reason)) => EncodeError::NoMatch { text, target, reason },
    })
}

/// Whether a form takes an instruction (at any address within reach of its label).
pub(crate) fn accepts(form: &Form, inst: &Inst, target: Target) -> bool {
    let near = inst.operands.iter().find_map(|o| if let Operand::Label(to) = o { Some(*to) } else { None });
    encode_form(form, inst, target, near.unwrap_or(0)).is_ok()
}

/// The word, or how far the attempt came and why it failed.
pub(crate) fn encode_form(
    form: &Form,
    inst: &Inst,
    target: Target,
    pc: i64,
) -> Result<u128, (usize, Mismatch)> {
    let mut word = u128::from(form.code & 0xfff) | u128::from(form.code >> 12) << 91;
    for &(lo, _, value, _) in form.fixed {
        word |= u128::from(value) << lo;
    }
    if form.fields.len() != inst.operands.len() {
        return Err((0, Mismatch::OperandCount));
    }
    for (i, (field, operand)) in form.fields.iter().zip(&inst.operands).enumerate() {
        let kind = inst.op.slots()[i].kind;
        // Two slots may share one field (BAR names its register twice): they must agree.
        if let FieldKind::Reg { lo, split, .. } = field.kind {
            let twin = form.fields[..i]
                .iter()
                .position(|f| matches!(f.kind, FieldKind::Reg { lo: l, .. } if l == lo));
            let expected = twin.map(|t| match &inst.operands[t] {
                Operand::Reg(r) if split.0 == 0 && !r.reg.is_zero() => {
                    let reg = Reg { index: r.reg.index.wrapping_add(split.1), ..r.reg };
                    Operand::Reg(RegOp { reg, ..*r })
                }
                other => *other,
            });
            match expected {
                Some(e) if e != *operand => return Err((1 + i, Mismatch::Operand(i))),
                Some(_) => continue,
                None => {}
            }
        }
        word |= encode_field(field, kind, operand, target, pc, i).map_err(|why| (1 + i, why))?;
    }
    if let Some(i) = disagreement(form, inst, word, target) {
        return Err((1 + i, Mismatch::Operand(i)));
    }
    let progress = 1 + form.fields.len();
    let mods = &inst.mods.0[..];
    let mut at = 0;
    for group in form.groups {
        match group {
            Group::Literal(list) => {
                if !mods[at..].starts_with(list) {
                    return Err((progress + at, Mismatch::MissingModifier(at)));
                }
                at += list.len();
            }
            Group::Alias(rules) => {
                let rule = rules.iter().find(|(conditions, _)| holds(conditions, inst));
                if let Some((_, list)) = rule.filter(|(_, list)| mods[at..].starts_with(list)) {
                    at += list.len();
                }
            }
            Group::Bits(bits) => {
                word |= encode_bits(bits, mods, &mut at).map_err(|why| (progress + at, why))?
            }
        }
    }
    for field in form.fields {
        if let Some(bits) = &field.suffix {
            word |= encode_bits(bits, mods, &mut at).map_err(|why| (progress + at, why))?;
        }
    }
    if at != mods.len() {
        return Err((progress + at, Mismatch::Modifier(mods[at])));
    }
    let guard = encode_guard(inst).ok_or((progress + at, Mismatch::Guard))?;
    let word = word | guard | inst.ctrl.to_bits() | reuse_bits(form, inst);
    if let Some(lo) = form.off_limits(word) {
        return Err((progress + at + 1, Mismatch::Combination(lo)));
    }
    if !control_fits(form, Control::from_bits(word), target) {
        return Err((progress + at + 2, Mismatch::Control));
    }
    Ok(word)
}

/// Two addresses may share the field of a uniform register, of which one is the next. The operand that does not read
/// back from the word, if they do not go together.
fn disagreement(form: &Form, inst: &Inst, word: u128, target: Target) -> Option<usize> {
    let shares = |field: &Field| matches!(field.kind, FieldKind::Addr { next: true, .. });
    if !form.fields.iter().any(shares) {
        return None;
    }
    let uniform = |operand: &Operand| match operand {
        Operand::Addr { desc, uniform, .. } => [*desc, *uniform].map(|r| r.filter(|r| !r.is_zero())),
        _ => [None; 2],
    };
    form.fields.iter().zip(&inst.operands).enumerate().position(|(i, (field, operand))| {
        let back = decode_field(field, inst.op.slots()[i].kind, word, target, 0);
        back.is_none_or(|b| uniform(&b) != uniform(operand))
    })
}

/// Bits 12 … 15. Uniform datapath instructions are guarded by uniform predicates, which share the field.
fn encode_guard(inst: &Inst) -> Option<u128> {
    let pred = inst.guard.pred;
    let index = match pred.file {
        RegFile::P | RegFile::UP if pred.is_zero() => 7,
        RegFile::P | RegFile::UP if pred.index < 7 => pred.index,
        _ => return None,
    };
    Some(u128::from(index) << 12 | u128::from(inst.guard.not) << 15)
}

/// The `.reuse` flags of the operands, which live in the control field.
fn reuse_bits(form: &Form, inst: &Inst) -> u128 {
    form.fields.iter().zip(&inst.operands).fold(0, |word, (field, operand)| match (&field.kind, operand) {
        (FieldKind::Reg { mods, .. }, Operand::Reg(r)) if r.reuse && mods.reuse != NONE => {
            word | 1 << mods.reuse
        }
        _ => word,
    })
}

/// The longest spelling of the group that comes next among the modifiers.
fn encode_bits(group: &BitsGroup, mods: &[Mod], at: &mut usize) -> Result<u128, Mismatch> {
    let mut best: Option<&(u32, &[Mod])> = None;
    for entry in group.values {
        let longer = best.is_none_or(|b| entry.1.len() > b.1.len());
        if longer && mods[*at..].starts_with(entry.1) {
            best = Some(entry);
        }
    }
    match best {
        Some((value, list)) => {
            *at += list.len();
            Ok(put(group.bits, u64::from(*value)))
        }
        None => Err(mods.get(*at).map_or(Mismatch::MissingModifier(*at), |m| Mismatch::Modifier(*m))),
    }
}

/// Whether operands satisfy the conditions of an alias.
pub(crate) fn holds(conditions: Conditions, inst: &Inst) -> bool {
    conditions.iter().all(|(slot, condition)| match (condition, &inst.operands[*slot]) {
        (Condition::Zero, Operand::Reg(r)) => r.reg.is_zero() && r.reg.file == RegFile::R,
        (Condition::Zero, Operand::Imm(v)) => *v == 0,
        (Condition::Imm(n), Operand::Imm(v)) => v == n,
        (Condition::Shift, Operand::Imm(v)) => v.is_power_of_two() && *v != 1 << 16 && *v != 1 << 31,
        (Condition::Plain, Operand::Reg(r)) => r.reg.file != RegFile::UR,
        (Condition::Plain, Operand::Const { bank, .. }) => matches!(bank, ConstBank::Index(_)),
        (Condition::Plain, _) => true,
        _ => false,
    })
}

/// The operand that stands for an absent one.
pub(crate) fn default_operand(field: &Field, kind: SlotKind) -> Operand {
    let zero =
        |file| Operand::Reg(RegOp { not: field.default_not, ..RegOp::plain(Reg { file, index: Reg::ZERO }) });
    match kind {
        SlotKind::Reg(file) => zero(file),
        SlotKind::Source => match &field.kind {
            FieldKind::Imm { .. } | FieldKind::Named { .. } => Operand::Imm(field.default_imm),
            FieldKind::Reg { file, .. } => zero(*file),
            _ => zero(RegFile::R),
        },
        SlotKind::Imm => Operand::Imm(field.default_imm),
        SlotKind::Label => Operand::Label(0),
        SlotKind::Addr | SlotKind::Const => {
            Operand::Addr { desc: None, base: None, width: AddrWidth::R32, uniform: None, offset: 0 }
        }
        SlotKind::Special => Operand::Imm(0),
        SlotKind::Scoreboard => Operand::ScoreboardSet(0),
    }
}

/// The number of a register in its field.
pub(crate) fn register_number(reg: Reg, file: RegFile, target: Target) -> Option<u64> {
    if reg.file != file {
        return None;
    }
    let (zero, limit) = match file {
        RegFile::R => (255, 255),
        RegFile::P | RegFile::UP => (7, 7),
        RegFile::UR => (target.info().urz, target.info().urz),
        RegFile::B => (255, 16),
    };
    if reg.is_zero() {
        (file != RegFile::B).then_some(u64::from(zero))
    } else {
        (reg.index < limit).then_some(u64::from(reg.index))
    }
}

fn flag(bit: u8, set: bool) -> Option<u128> {
    match (bit, set) {
        (_, false) => Some(0),
        (NONE, true) => None,
        (b, true) => Some(1 << b),
    }
}

fn encode_field(
    field: &Field,
    slot: SlotKind,
    operand: &Operand,
    target: Target,
    pc: i64,
    i: usize,
) -> Result<u128, Mismatch> {
    let wrong = Mismatch::Operand(i);
    let range = Mismatch::Range(i);
    match (&field.kind, operand) {
        (FieldKind::Absent, _) => {
            if *operand == default_operand(field, slot) || absent(operand, field) {
                Ok(0)
            } else {
                Err(wrong)
            }
        }
        (FieldKind::Reg { file, lo, split: (low, rest), inverted, mods }, Operand::Reg(r)) => {
            let mods_reuse = mods.reuse;
            let mut file = *file;
            let mut word = 0;
            if mods.uniform != NONE && r.reg.file == RegFile::UP {
                file = RegFile::UP;
                word |= 1 << mods.uniform;
            }
            let number = register_number(r.reg, file, target).ok_or(wrong)?;
            let mods = flag(mods.neg, r.neg)
                .zip(flag(mods.abs, r.abs))
                .zip(flag(if mods.not == NONE && r.not { NONE } else { mods.not }, r.not))
                .ok_or(wrong)?;
            if r.reuse && mods_reuse == NONE {
                return Err(wrong);
            }
            let number = u128::from(if *inverted { number ^ 7 } else { number });
            let placed = if *low == 0 {
                number << lo
            } else {
                (number & ((1 << low) - 1)) << lo | number >> low << rest
            };
            Ok(word | placed | mods.0.0 | mods.0.1 | mods.1)
        }
        // An optional register that another target has as a number.
        (FieldKind::Reg { file, lo, .. }, Operand::Imm(0)) if field.elide == Elide::Default => {
            let zero = Reg { file: *file, index: Reg::ZERO };
            Ok(u128::from(register_number(zero, *file, target).ok_or(wrong)?) << lo)
        }
        (FieldKind::Imm { bits, kind }, Operand::Imm(value)) => {
            let len = length(bits);
            let fits = len >= 32
                || u64::from(*value) >> len == 0
                || *kind == ImmKind::Signed && sign_extend(u64::from(*value), len) as i32 == *value as i32;
            if !fits {
                return Err(range);
            }
            let wide =
                if *kind == ImmKind::Signed { i64::from(*value as i32) as u64 } else { u64::from(*value) };
            let low = if len == 0 { 0 } else { wide & (u64::MAX >> (64 - len)) };
            Ok(put(bits, low))
        }
        (
            FieldKind::Const { lo: at, signed, bindless, index, mods },
            Operand::Const { bank, index: reg, offset, neg, abs, not },
        ) => {
            let bank = match (bank, *bindless) {
                (ConstBank::Index(bank), NONE) if *bank < 32 => u128::from(*bank) << 54,
                (ConstBank::Index(_), NONE) => return Err(range),
                (ConstBank::Bindless(reg), lo) if lo != NONE => {
                    u128::from(register_number(*reg, RegFile::UR, target).ok_or(wrong)?) << lo
                }
                _ => return Err(wrong),
            };
            let half = 1 << (53 - at);
            // Addresses of a bank have 16 bits: what is beyond the sign is the same address as below zero.
            let most = if *bindless == NONE { half.max(BANK_BYTES) } else { half };
            let reach = if *bindless != NONE && !signed { 0..2 * half } else { -half..most };
            if !reach.contains(offset) || !signed && offset & 3 != 0 {
                return Err(range);
            }
            let mut word = bank | (*offset as u128 & ((1 << (54 - at)) - 1)) << at;
            match (index, reg) {
                (None, None) => {}
                (Some((file, lo)), reg) => {
                    let reg = reg.unwrap_or(Reg { file: *file, index: Reg::ZERO });
                    word |= u128::from(register_number(reg, *file, target).ok_or(wrong)?) << lo;
                }
                (None, Some(_)) => return Err(wrong),
            }
            let bits =
                flag(mods.neg, *neg).zip(flag(mods.abs, *abs)).zip(flag(mods.not, *not)).ok_or(wrong)?;
            Ok(word | bits.0.0 | bits.0.1 | bits.1)
        }
        (FieldKind::Addr { .. }, Operand::Addr { .. }) => encode_address(&field.kind, operand, target, i),
        (FieldKind::Label { bits, shift, relative }, Operand::Label(to)) => {
            let value = if *relative { to.wrapping_sub(pc).wrapping_sub(16) } else { *to };
            let len = length(bits);
            let units = value >> shift;
            if units << shift != value || sign_extend(units as u64, len) != units {
                return Err(range);
            }
            Ok(put(bits, units as u64 & (u64::MAX >> (64 - len))))
        }
        (FieldKind::Named { bits, names }, Operand::Imm(value)) if names.iter().any(|(v, _)| v == value) => {
            Ok(put(bits, u64::from(*value)))
        }
        (FieldKind::Special { lo }, Operand::Special(sr)) => Ok(u128::from(sr.code()) << lo),
        (FieldKind::Scoreboard { lo }, Operand::Scoreboard(n)) if *n < 8 => Ok(u128::from(*n) << lo),
        (FieldKind::ScoreboardSet { lo }, Operand::ScoreboardSet(set)) if *set < 64 => {
            Ok(u128::from(*set) << lo)
        }
        _ => Err(wrong),
    }
}

/// Whether an operand is a plain zero of any kind, which an absent slot accepts when its default is one.
fn absent(operand: &Operand, field: &Field) -> bool {
    !field.default_not
        && match operand {
            Operand::Reg(r) => r.reg.is_zero() && !r.not && !r.neg && !r.abs,
            Operand::Imm(n) => *n == field.default_imm,
            Operand::Label(n) => *n == 0,
            _ => false,
        }
}

fn encode_address(kind: &FieldKind, operand: &Operand, target: Target, i: usize) -> Result<u128, Mismatch> {
    use AddrWidth::U32;
    let wrong = Mismatch::Operand(i);
    let (
        FieldKind::Addr { desc, base, width, uniform, offset, shift, next, hide_zero, .. },
        Operand::Addr { desc: d, base: b, width: w, uniform: u, offset: o },
    ) = (kind, operand)
    else {
        return Err(wrong);
    };
    let mut word = 0;
    let mut part = |lo: u8, reg: Option<Reg>, file: RegFile, required: bool| match (lo, reg) {
        (NONE, None) => Ok(()),
        (NONE, Some(_)) => Err(wrong),
        (_, None) if required => Err(wrong),
        (lo, reg) => {
            let reg = reg.unwrap_or(Reg { file, index: Reg::ZERO });
            word |= u128::from(register_number(reg, file, target).ok_or(wrong)?) << lo;
            Ok(())
        }
    };
    let previous = |u: Reg| if u.is_zero() { u } else { Reg { index: u.index - 1, ..u } };
    let (mut d, mut u) = (*d, *u);
    // The register after the one in the field: of the address, or else of the descriptor.
    let after = if *uniform == NONE { &mut d } else { &mut u };
    if *next {
        if after.is_some_and(|r| r.index == 0) {
            return Err(wrong);
        }
        *after = after.map(previous);
    }
    part(*desc, d, RegFile::UR, true)?;
    part(*base, *b, RegFile::R, false)?;
    part(*uniform, u, RegFile::UR, !hide_zero)?;
    word |= match width {
        // Without a base its width means nothing, except that the word next to a uniform register says it.
        AddrWidthBits::Fixed(f) if f == w || b.is_none() && (u.is_none() || *f != U32 && *w != U32) => 0,
        AddrWidthBits::Wide(bit) if *w == AddrWidth::R64 => 1 << bit,
        AddrWidthBits::Wide(_) if *w == AddrWidth::U32 || b.is_none() => 0,
        AddrWidthBits::Scale(lo) => {
            let scale: u128 = match w {
                AddrWidth::R32 => 0,
                AddrWidth::X4 => 1,
                AddrWidth::X8 => 2,
                AddrWidth::X16 => 3,
                _ => return Err(wrong),
            };
            scale << lo
        }
        _ => return Err(wrong),
    };
    let len = length(offset);
    // Without any register the offset is an unsigned address.
    if o & ((1 << shift) - 1) != 0 {
        return Err(Mismatch::Range(i));
    }
    let value = i64::from(*o >> shift);
    let fits = if len == 0 {
        value == 0
    } else {
        len >= 32
            || sign_extend(value as u64, len) == value
            || b.is_none() && u.is_none() && (0..1 << len).contains(&value)
    };
    if !fits {
        return Err(Mismatch::Range(i));
    }
    let low = if len == 0 { 0 } else { value as u64 & (u64::MAX >> (64 - len)) };
    Ok(word | put(offset, low))
}
