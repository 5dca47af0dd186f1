//! Word → instruction, by the forms of the table. A value that a modifier group does not spell is an error;
//! bits that a form does not mention mean nothing, as for nvdisasm.

use crate::Control;
use crate::encode::{default_operand, holds};
use crate::form::*;
use crate::inst::{AddrWidth, ConstBank, Guard, Inst, Mods, Operand, RegOp, SlotKind};
use crate::isa::SpecialReg;
use crate::reg::{Reg, RegFile};
use crate::target::Target;
use std::fmt;

/// Why a word is not an instruction that the table knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The word.
    pub word: u128,
    /// The target.
    pub target: Target,
    /// What is wrong with it.
    pub reason: Undecodable,
}

/// What is wrong with a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undecodable {
    /// No form of the target has these opcode bits.
    Opcode(u16),
    /// A field that starts at this bit has a value that it may not have.
    Fixed(u8),
    /// A modifier group that starts at this bit has a value without a spelling.
    Modifier(u8),
    /// The control field: a stall without `Y`, `.reuse` with it, or a scoreboard that the form has no use for.
    Control,
    /// The operand of this index has no meaning.
    Operand(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let high = (self.word >> 64) as u64;
        let low = self.word as u64;
        write!(f, "{}: cannot decode {high:#018x}:{low:#018x}: ", self.target)?;
        match self.reason {
            Undecodable::Opcode(code) => write!(f, "unknown opcode {code:#x}"),
            Undecodable::Fixed(bit) => write!(f, "unexpected value of the field at bit {bit}"),
            Undecodable::Modifier(bit) => write!(f, "unknown modifier value in the field at bit {bit}"),
            Undecodable::Control => f.write_str("unexpected control field"),
            Undecodable::Operand(i) => write!(f, "operand {i} is malformed"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The instruction that a word at byte address `pc` means.
///
/// # Errors
/// When no form of the table fits the word.
pub fn decode(word: u128, target: Target, pc: i64) -> Result<Inst, DecodeError> {
    find(word, target, pc).map(|(inst, _)| inst)
}

/// An instruction taken apart further than [`Inst`] does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The instruction.
    pub inst: Inst,
    /// The value of every group of modifiers of its form, absent ones included: the first bit of the group, and what is
    /// spelled. Those that only say what the operands are aren't among them.
    pub groups: Vec<(u8, Mods)>,
    /// The names of operands whose values have names.
    pub names: Vec<(usize, &'static str)>,
}

/// [`decode`], with the values of the form's modifier groups.
///
/// # Errors
/// When no form of the table fits the word.
pub fn decode_parts(word: u128, target: Target, pc: i64) -> Result<Parts, DecodeError> {
    let (inst, form) = find(word, target, pc)?;
    let behind = form.fields.iter().filter_map(|f| f.suffix.as_ref());
    let groups = form.groups.iter().filter_map(|g| match g {
        Group::Bits(bits) => Some(bits),
        Group::Literal(_) | Group::Alias(_) => None,
    });
    let value = |bits: &BitsGroup| {
        let mut mods = Mods::none();
        decode_bits(bits, word, &mut mods).ok().map(|()| (bits.bits[0].0, mods))
    };
    let groups = groups.chain(behind).filter_map(value).collect();
    let names = form.fields.iter().zip(&inst.operands).enumerate().filter_map(|(i, (field, operand))| {
        let (FieldKind::Named { names, .. }, Operand::Imm(value)) = (&field.kind, operand) else {
            return None;
        };
        names.iter().find(|(v, _)| v == value).map(|(_, name)| (i, *name))
    });
    let names = names.collect();
    Ok(Parts { inst, groups, names })
}

/// Codes for which bit 91 means nothing on sm_75 unless there is a form with it (nvdisasm on words of every code).
const FREE_BIT_91: &[u16] = &[
    0x31c, 0x31d, 0x34e, 0x389, 0x3a1, 0x3c0, 0x51d, 0x589, 0x801, 0x805, 0x806, 0x80d, 0x822, 0x918, 0x919,
    0x91a, 0x91d, 0x941, 0x942, 0x943, 0x944, 0x945, 0x946, 0x947, 0x949, 0x94d, 0x950, 0x95b, 0x95c, 0x989,
    0x992, 0x9ab, 0xb1d, 0xf89,
];

/// The instruction and the form that it was read by.
pub(crate) fn find(word: u128, target: Target, pc: i64) -> Result<(Inst, &'static Form), DecodeError> {
    let code = (word & 0xfff) as u16 | ((word >> 91) as u16 & 1) << 12;
    let bit = target_bit(target);
    let mut reason = Undecodable::Opcode(code);
    let known = |code: u16| forms_of_code(code).filter(|f| f.targets & bit != 0);
    let free = target.sm == 75 && FREE_BIT_91.binary_search(&(code & 0xfff)).is_ok();
    let code = if free && known(code).next().is_none() { code & 0xfff } else { code };
    for form in known(code) {
        match decode_form(form, word, target, pc) {
            Ok(inst) => return Ok((inst, form)),
            Err(why) => reason = why,
        }
    }
    Err(DecodeError { word, target, reason })
}

fn decode_form(form: &Form, word: u128, target: Target, pc: i64) -> Result<Inst, Undecodable> {
    for &(lo, len, value, ignored) in form.fixed {
        if !ignored && (word >> lo) & ((1 << len) - 1) != u128::from(value) {
            return Err(Undecodable::Fixed(lo));
        }
    }
    if let Some(lo) = form.off_limits(word) {
        return Err(Undecodable::Fixed(lo));
    }
    let control = Control::from_bits(word);
    let flags = has_flags(form, control, target);
    if !control_fits(form, control, target) {
        return Err(Undecodable::Control);
    }
    // Without flags, bits 122 … 124 say something else that the text does not show.
    let word = if flags { word } else { word & !(7 << 122) };
    let mut inst = Inst {
        guard: decode_guard(form, word),
        op: form.op,
        mods: Mods::none(),
        operands: Default::default(),
        ctrl: control,
    };
    for (i, field) in form.fields.iter().enumerate() {
        let slot = form.op.slots().get(i).ok_or(Undecodable::Operand(i as u8))?;
        let operand =
            decode_field(field, slot.kind, word, target, pc).ok_or(Undecodable::Operand(i as u8))?;
        inst.operands.push(operand);
    }
    let mut mods = Mods::none();
    for group in form.groups {
        match group {
            Group::Literal(list) => mods.0.extend_from_slice(list),
            Group::Alias(rules) => {
                if let Some((_, list)) = rules.iter().find(|(conditions, _)| holds(conditions, &inst)) {
                    mods.0.extend_from_slice(list);
                }
            }
            Group::Bits(bits) => decode_bits(bits, word, &mut mods)?,
        }
    }
    for field in form.fields {
        if let Some(bits) = &field.suffix {
            decode_bits(bits, word, &mut mods)?;
        }
    }
    inst.mods = mods;
    // An operand that the modifiers leave out of the text means nothing.
    for (i, field) in form.fields.iter().enumerate() {
        if matches!(field.elide, Elide::Without(m) | Elide::WithoutOrDefault(m) if !inst.mods.has(m)) {
            inst.operands[i] = default_operand(field, form.op.slots()[i].kind);
        }
    }
    // The reuse flags are part of the operands here.
    if flags {
        inst.ctrl.reuse = 0;
    }
    Ok(inst)
}

/// Whether bits 122 … 124 are `.reuse` flags.
fn has_flags(form: &Form, control: Control, target: Target) -> bool {
    control.no_yield && form.queued & target_bit(target) == 0
}

/// Whether nvdisasm takes the control field of a word of this form.
pub(crate) fn control_fits(form: &Form, control: Control, target: Target) -> bool {
    let flags = has_flags(form, control, target);
    let stall = match control.stall {
        0 => !control.no_yield && control.reuse == 0,
        n => n < 12 || !control.no_yield,
    };
    let reuse = match control.reuse {
        set if flags => set & !form.reuse == 0,
        set => set < 6 && !(set == 3 && form.reuse == 0 && form.queued == 0),
    };
    stall
        && reuse
        && !(form.no_write_sb && control.write_sb.is_some())
        && !(form.no_read_sb && control.read_sb.is_some())
        && !(form.no_wait && control.wait != 0)
}

fn decode_guard(form: &Form, word: u128) -> Guard {
    let index = (word >> 12 & 7) as u8;
    let file = if form.op.is_uniform() { RegFile::UP } else { RegFile::P };
    let not = word >> 15 & 1 != 0;
    if index == 7 { Guard { pred: Reg::PT, not } } else { Guard { pred: Reg { file, index }, not } }
}

fn decode_bits(group: &BitsGroup, word: u128, mods: &mut Mods) -> Result<(), Undecodable> {
    let value = get(word, group.bits);
    let (_, list) = group
        .values
        .iter()
        .find(|(v, _)| u64::from(*v) == value)
        .ok_or(Undecodable::Modifier(group.bits[0].0))?;
    mods.0.extend_from_slice(list);
    Ok(())
}

/// The register of a field.
fn register(word: u128, lo: u8, file: RegFile, target: Target) -> Option<Reg> {
    let (len, zero) = match file {
        RegFile::R => (8, 255),
        RegFile::P | RegFile::UP => (3, 7),
        RegFile::UR => (u64::from(target.info().urz).trailing_ones() as u8, u64::from(target.info().urz)),
        RegFile::B => (4, 255),
    };
    let number = (word >> lo) as u64 & ((1 << len) - 1);
    if number == zero {
        return Some(Reg { file, index: Reg::ZERO });
    }
    Some(Reg { file, index: number as u8 })
}

fn bit(word: u128, at: u8) -> bool {
    at != NONE && word >> at & 1 != 0
}

pub(crate) fn decode_field(
    field: &Field,
    slot: SlotKind,
    word: u128,
    target: Target,
    pc: i64,
) -> Option<Operand> {
    Some(match &field.kind {
        FieldKind::Absent => default_operand(field, slot),
        FieldKind::Reg { file, lo, split: (low, rest), inverted, mods } => {
            let file = if bit(word, mods.uniform) { RegFile::UP } else { *file };
            // A number in two parts is put together as if it were in one.
            let word = if *inverted {
                word ^ 7 << lo
            } else if *low == 0 {
                word
            } else {
                let number = word >> lo & ((1 << low) - 1) | word >> rest << low & 0xff;
                word & !(0xff << lo) | number << lo
            };
            let mut reg = register(word, *lo, file, target)?;
            if *low == 0 && !reg.is_zero() {
                reg.index = reg.index.wrapping_add(*rest);
            }
            Operand::Reg(RegOp {
                reg,
                neg: bit(word, mods.neg),
                abs: bit(word, mods.abs),
                not: bit(word, mods.not),
                reuse: bit(word, mods.reuse),
            })
        }
        FieldKind::Imm { bits, kind } => {
            let value = get(word, bits);
            let len = length(bits);
            Operand::Imm(if *kind == ImmKind::Signed {
                i32::try_from(sign_extend(value, len)).ok()? as u32
            } else {
                u32::try_from(value).ok()?
            })
        }
        FieldKind::Const { lo: at, signed, bindless, index, mods } => {
            let index = match index {
                Some((file, lo)) => Some(register(word, *lo, *file, target)?).filter(|r| !r.is_zero()),
                None => None,
            };
            let len = u32::from(54 - at);
            let raw = (word >> at) as u64 & ((1 << len) - 1);
            // Words: the two low bits mean nothing.
            let raw = if *signed { raw } else { raw & !3 };
            let bank = match *bindless {
                NONE => ConstBank::Index((word >> 54) as u8 & 31),
                lo => ConstBank::Bindless(register(word, lo, RegFile::UR, target)?),
            };
            let unsigned = *bindless != NONE && !signed;
            Operand::Const {
                bank,
                offset: if unsigned { raw as i32 } else { sign_extend(raw, len) as i32 },
                index,
                neg: bit(word, mods.neg),
                abs: bit(word, mods.abs),
                not: bit(word, mods.not),
            }
        }
        FieldKind::Addr { desc, base, width, uniform, offset, shift, next, hide_zero, .. } => {
            let optional = |lo: u8, file| match lo {
                NONE => Some(None),
                lo => register(word, lo, file, target).map(Some),
            };
            let base = optional(*base, RegFile::R)?.filter(|r| !r.is_zero());
            let mut uniform = optional(*uniform, RegFile::UR)?;
            if let Some(u) = uniform.as_mut().filter(|u| *next && !u.is_zero()) {
                u.index += 1;
            }
            let len = length(offset);
            let raw = get(word, offset);
            let unsigned = base.is_none() && uniform.is_none() && (*desc == NONE && len < 32 || *shift != 0);
            let width = match width {
                AddrWidthBits::Fixed(w) => *w,
                AddrWidthBits::Wide(b) => {
                    if bit(word, *b) {
                        AddrWidth::R64
                    } else {
                        AddrWidth::U32
                    }
                }
                AddrWidthBits::Scale(lo) => {
                    [AddrWidth::R32, AddrWidth::X4, AddrWidth::X8, AddrWidth::X16][(word >> lo) as usize & 3]
                }
            };
            if *hide_zero && width == AddrWidth::R64 {
                uniform = uniform.filter(|u| !u.is_zero());
            }
            let mut desc = optional(*desc, RegFile::UR)?;
            if let Some(d) = desc.as_mut().filter(|d| *next && uniform.is_none() && !d.is_zero()) {
                d.index += 1;
            }
            Operand::Addr {
                desc,
                base,
                width,
                uniform,
                offset: match len {
                    0 => 0,
                    _ if unsigned => (raw as i32) << shift,
                    _ => (sign_extend(raw, len) as i32) << shift,
                },
            }
        }
        FieldKind::Label { bits, shift, relative } => {
            let value = sign_extend(get(word, bits), length(bits)) << shift;
            Operand::Label(if *relative { pc.wrapping_add(16).wrapping_add(value) } else { value })
        }
        FieldKind::Named { bits, names } => {
            let value = get(word, bits) as u32;
            names.iter().any(|(v, _)| *v == value).then_some(Operand::Imm(value))?
        }
        FieldKind::Special { lo } => {
            let code = (word >> lo) as u8;
            Operand::Special(*SpecialReg::EVERY.iter().find(|s| s.code() == code)?)
        }
        FieldKind::Scoreboard { lo } => Operand::Scoreboard((word >> lo) as u8 & 7),
        FieldKind::ScoreboardSet { lo } => Operand::ScoreboardSet((word >> lo) as u8 & 63),
    })
}
