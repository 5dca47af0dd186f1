//! Text in nvdisasm's spelling → instruction.

use crate::encode::default_operand;
use crate::form::*;
use crate::inst::{AddrWidth, ConstBank, Guard, Inst, Mods, Operand, RegOp};
use crate::isa::{Mod, Opcode, SpecialReg};
use crate::reg::{Reg, RegFile};
use crate::target::Target;
use crate::{Control, print};
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// Why a line is not an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line.
    pub text: String,
    /// What is wrong.
    pub message: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.text, self.message)
    }
}

impl std::error::Error for ParseError {}

static OPCODES: LazyLock<HashMap<&str, Vec<Opcode>>> = LazyLock::new(|| {
    let mut map: HashMap<&str, Vec<Opcode>> = HashMap::new();
    for op in Opcode::EVERY {
        map.entry(op.mnemonic()).or_default().push(*op);
    }
    map
});
static MODS: LazyLock<HashMap<&str, Mod>> =
    LazyLock::new(|| Mod::EVERY.iter().map(|m| (m.name(), *m)).collect());
static SPECIAL: LazyLock<HashMap<&str, SpecialReg>> =
    LazyLock::new(|| SpecialReg::EVERY.iter().map(|s| (s.name(), *s)).collect());

/// Parses one line as nvdisasm prints it (a closing `;` is allowed). What the text does not show (the
/// control field, a descriptor that nvdisasm leaves out) gets its default.
///
/// # Errors
/// When no form of the table on this target prints as this line.
pub fn parse_inst(line: &str, target: Target) -> Result<Inst, ParseError> {
    parse_form(line, target).map(|(inst, _)| inst)
}

/// The word that a line as nvdisasm prints it stands for at byte address `pc`: what [`crate::disassemble`]
/// gives back, except for what the text does not show.
///
/// # Errors
/// When no form of the table on this target prints as this line, or a label is out of reach.
pub fn assemble(line: &str, target: Target, pc: i64, ctrl: Control) -> Result<u128, ParseError> {
    let (mut inst, form) = parse_form(line, target)?;
    inst.ctrl = ctrl;
    crate::encode::encode_form(form, &inst, target, pc)
        .map_err(|_| ParseError { text: line.to_string(), message: "a label is out of reach" })
}

fn parse_form(line: &str, target: Target) -> Result<(Inst, &'static Form), ParseError> {
    let error = |message| ParseError { text: line.to_string(), message };
    let mut text = line.trim().trim_end_matches(';').trim_end();
    let whole = text;
    let mut guard = Guard::TRUE;
    if let Some(rest) = text.strip_prefix('@') {
        let (g, rest) = rest.split_once(' ').ok_or_else(|| error("a guard without an instruction"))?;
        let (not, name) = g.strip_prefix('!').map_or((false, g), |n| (true, n));
        guard = Guard { pred: register(name).ok_or_else(|| error("malformed guard"))?, not };
        if guard.pred.is_zero() {
            guard.pred = Reg::PT;
        }
        text = rest;
    }
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let operands = split_operands(operands);
    // Opcode names may contain dots: the longest one wins.
    let ends = mnemonic.match_indices('.').map(|(i, _)| i).chain([mnemonic.len()]).collect::<Vec<_>>();
    for end in ends.into_iter().rev() {
        let Some(ops) = OPCODES.get(&mnemonic[..end]) else { continue };
        let mods: Option<Vec<Mod>> = match mnemonic.get(end + 1..) {
            Some(rest) if !rest.is_empty() => rest.split('.').map(|m| MODS.get(m).copied()).collect(),
            _ => Some(Vec::new()),
        };
        let Some(mods) = mods else { continue };
        for form in ops.iter().flat_map(|op| forms_of_op(*op)) {
            if form.targets & target_bit(target) == 0 {
                continue;
            }
            let mut inst = Inst {
                guard,
                op: form.op,
                mods: Mods::of(&mods),
                operands: Default::default(),
                ctrl: Control::default(),
            };
            if align(form, &operands, 0, &mut inst)
                && same_text(&print::print_as(&inst, target, form).to_string(), whole)
                && crate::encode::accepts(form, &inst, target)
            {
                return Ok((inst, form));
            }
        }
    }
    Err(error("no form of the table prints like this"))
}

/// Whether texts are the same but for the spaces that nvdisasm prints behind infinities, NaNs and minus zero.
fn same_text(a: &str, b: &str) -> bool {
    a.split(',').map(str::trim_end).eq(b.split(',').map(str::trim_end))
}

/// Splits at commas and spaces outside brackets; the comma stays away, so `R20 0x0` gives two operands.
fn split_operands(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    let bytes = text.as_bytes();
    for (i, &c) in bytes.iter().enumerate() {
        match c {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' | b' ' if depth == 0 => {
                // The space inside `c[0x0] [0x160].H0_H0` does not separate.
                if c == b' ' && start < i && bytes.get(i + 1) == Some(&b'[') {
                    continue;
                }
                if start < i {
                    out.push(&text[start..i]);
                }
                start = i + 1;
            }
            _ => {}
        }
    }
    if start < text.len() {
        out.push(&text[start..]);
    }
    out
}

/// Matches texts to fields from field `at` on, leaving out what the form allows to leave out.
fn align(form: &Form, texts: &[&str], at: usize, inst: &mut Inst) -> bool {
    let Some(field) = form.fields.get(at) else { return texts.is_empty() };
    let mut texts = texts;
    if !field.before.is_empty() {
        for literal in field.before.split(", ") {
            match texts.split_first() {
                Some((first, rest)) if *first == literal => texts = rest,
                _ => return false,
            }
        }
    }
    if matches!(field.kind, FieldKind::Imm { kind: ImmKind::High, .. }) {
        let wide = texts.first().and_then(|t| u64::from_str_radix(t.strip_prefix("0x")?, 16).ok());
        let Some(wide) = wide else { return false };
        inst.operands.push(Operand::Imm((wide >> 32) as u32));
        inst.operands.push(Operand::Imm(wide as u32));
        return align(form, &texts[1..], at + 2, inst);
    }
    let may_skip = match field.elide {
        Elide::Never => false,
        Elide::Always | Elide::Default | Elide::WithoutOrDefault(_) => true,
        Elide::Without(m) => !inst.mods.has(m),
    };
    let mark = (inst.operands.len(), inst.mods.0.len());
    if field.elide != Elide::Always {
        let pair = matches!(field.kind, FieldKind::Imm { kind: ImmKind::HalfPair | ImmKind::BfloatPair, .. });
        let width = if pair { 2 } else { 1 };
        if texts.len() >= width {
            if let Some(operand) = operand(field, &texts[..width], inst) {
                inst.operands.push(operand);
                if align(form, &texts[width..], at + 1, inst) {
                    return true;
                }
            }
            inst.operands.truncate(mark.0);
            inst.mods.0.truncate(mark.1);
        }
    }
    if may_skip {
        inst.operands.push(default_operand(field, form.op.slots()[at].kind));
        if align(form, texts, at + 1, inst) {
            return true;
        }
        inst.operands.truncate(mark.0);
    }
    false
}

fn register(name: &str) -> Option<Reg> {
    let files = [
        ("UR", RegFile::UR, "Z"),
        ("UP", RegFile::UP, "T"),
        ("R", RegFile::R, "Z"),
        ("P", RegFile::P, "T"),
        ("B", RegFile::B, "?"),
    ];
    for (prefix, file, zero) in files {
        if let Some(rest) = name.strip_prefix(prefix) {
            if rest == zero {
                return Some(Reg { file, index: Reg::ZERO });
            }
            let index: u8 = rest.parse().ok()?;
            return (index < 255).then_some(Reg { file, index });
        }
    }
    None
}

fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
    let value = i64::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
    Some(if negative { -value } else { value })
}

/// Takes the suffix modifiers (`.H0_H0`) off an operand.
fn take_suffix<'a>(field: &Field, text: &'a str, inst: &mut Inst) -> &'a str {
    let Some(group) = &field.suffix else { return text };
    let spelled =
        |list: &[Mod]| list.iter().map(|m| format!(".{}", crate::print::tail_name(*m))).collect::<String>();
    let best = group
        .values
        .iter()
        .map(|(_, list)| (*list, spelled(list)))
        .filter(|(_, s)| text.ends_with(s.as_str()))
        .max_by_key(|(_, s)| s.len());
    match best {
        Some((list, s)) => {
            inst.mods.0.extend_from_slice(list);
            &text[..text.len() - s.len()]
        }
        None => text,
    }
}

/// Strips `-`, `|…|`, `~`, `!`: (rest, neg, abs, not).
fn source(text: &str) -> (&str, bool, bool, bool) {
    let (text, not) = text.strip_prefix(['!', '~']).map_or((text, false), |t| (t, true));
    let (text, neg) = text.strip_prefix('-').map_or((text, false), |t| (t, true));
    match text.strip_prefix('|').and_then(|t| t.strip_suffix('|')) {
        Some(inner) => (inner, neg, true, not),
        None => (text, neg, false, not),
    }
}

fn operand(field: &Field, texts: &[&str], inst: &mut Inst) -> Option<Operand> {
    let text = texts[0];
    match &field.kind {
        FieldKind::Absent => None,
        FieldKind::Reg { file, mods, .. } => {
            let (text, bars) = if text.ends_with('|') {
                (source(text).0, source(text))
            } else {
                (text, ("", false, false, false))
            };
            let name = take_suffix(field, text, inst);
            let (name, reuse) = name.strip_suffix(".reuse").map_or((name, false), |n| (n, true));
            let (name, neg, abs, not) = source(name);
            let (neg, abs, not) = (neg || bars.1, abs || bars.2, not || bars.3);
            let reg = register(name)?;
            (reg.file == *file || mods.uniform != NONE && reg.file == RegFile::UP)
                .then_some(Operand::Reg(RegOp { reg, neg, abs, not, reuse }))
        }
        FieldKind::Imm { kind, .. } => Some(Operand::Imm(match kind {
            ImmKind::Signed | ImmKind::Unsigned | ImmKind::High | ImmKind::Low => {
                let n = number(text)?;
                let least = if *kind == ImmKind::Unsigned { 0 } else { -0x8000_0000 };
                (least..=0xffff_ffff).contains(&n).then_some(n as u32)?
            }
            ImmKind::Negative => {
                let n = number(text)?;
                (-0x1_0000_0000..0).contains(&n).then_some(n as u32)?
            }
            ImmKind::F32 => (float(text)? as f32).to_bits() | nan_bits(text, 0x7f80_0000, 22),
            ImmKind::F64 => (float(text)?.to_bits() >> 32) as u32 | nan_bits(text, 0x7ff0_0000, 19),
            ImmKind::Half => half(text)?,
            ImmKind::Bfloat => bfloat(text)? >> 16,
            ImmKind::HalfPair => half(text)? << 16 | half(texts[1])?,
            ImmKind::BfloatPair => bfloat(text)? & 0xffff_0000 | bfloat(texts[1])? >> 16,
        })),
        FieldKind::Const { .. } => {
            // The bars of an absolute value enclose the suffix, too.
            let (inner, neg, abs, not) = source(text);
            constant((take_suffix(field, inner, inst), neg, abs, not))
        }
        FieldKind::Addr { .. } => address(field, take_suffix(field, text, inst)),
        FieldKind::Label { .. } => number(text).map(Operand::Label),
        FieldKind::Named { names, .. } => {
            names.iter().find(|(_, name)| *name == text).map(|(v, _)| Operand::Imm(*v))
        }
        FieldKind::Special { .. } => SPECIAL.get(text).map(|s| Operand::Special(*s)),
        FieldKind::Scoreboard { .. } => {
            text.strip_prefix("SB").and_then(|n| n.parse().ok()).map(Operand::Scoreboard)
        }
        FieldKind::ScoreboardSet { .. } => {
            let list = text.strip_prefix('{')?.strip_suffix('}')?;
            let mut set = 0u8;
            for n in list.split(',') {
                set |= 1u8.checked_shl(n.parse().ok()?)?;
            }
            Some(Operand::ScoreboardSet(set))
        }
    }
}

fn float(text: &str) -> Option<f64> {
    match text.trim_start_matches(['+', '-']) {
        "INF" if text.starts_with('-') => Some(f64::NEG_INFINITY),
        "INF" => Some(f64::INFINITY),
        "QNAN" | "SNAN" => Some(0.0),
        _ => text.parse().ok(),
    }
}

/// The bits of a NaN, whose payload the text does not show.
fn nan_bits(text: &str, exponent: u32, quiet: u32) -> u32 {
    let sign = u32::from(text.starts_with('-')) << 31;
    match text.trim_start_matches(['+', '-']) {
        "QNAN" => sign | exponent | 1 << quiet,
        "SNAN" => sign | exponent | 1,
        _ => 0,
    }
}

/// A bfloat16, in the upper half.
fn bfloat(text: &str) -> Option<u32> {
    Some((float(text)? as f32).to_bits() | nan_bits(text, 0x7f81_0000, 22))
}

fn half(text: &str) -> Option<u32> {
    let value = float(text)?;
    // Every half prints exactly, so the one that prints like this is found by its value.
    let sign = u32::from(text.starts_with('-')) << 15;
    let magnitude = value.abs();
    if text.ends_with("NAN") {
        return Some(sign | if text.contains('Q') { 0x7fff } else { 0x7dff });
    }
    if magnitude.is_infinite() {
        return Some(sign | 0x7c00);
    }
    let exponent = if magnitude == 0.0 { -14 } else { (magnitude.log2().floor() as i32).max(-14) };
    let units = (magnitude / f64::from(exponent - 10).exp2()).round() as u32;
    Some(sign | if units >= 1024 { ((exponent + 15) as u32) << 10 | (units - 1024) & 0x3ff } else { units })
}

fn constant((text, neg, abs, not): (&str, bool, bool, bool)) -> Option<Operand> {
    let (bank, rest) = text.split_once(']')?;
    let bank = match (bank.strip_prefix("c["), bank.strip_prefix("cx[")) {
        (Some(number_text), _) => ConstBank::Index(u8::try_from(number(number_text)?).ok()?),
        (_, Some(name)) => ConstBank::Bindless(register(name)?),
        _ => return None,
    };
    let inner = rest.trim_start().strip_prefix('[')?.strip_suffix(']')?;
    let (index, offset) = match inner.split_once('+') {
        Some((r, o)) => (Some(register(r)?), number(o)?),
        None => match register(inner) {
            Some(r) => (Some(r).filter(|r| !r.is_zero()), 0),
            None => (None, number(inner)?),
        },
    };
    Some(Operand::Const { bank, index, offset: i32::try_from(offset).ok()?, neg, abs, not })
}

fn address(field: &Field, text: &str) -> Option<Operand> {
    let FieldKind::Addr { desc, desc_hidden, base: bare, width, uniform: u, space, hide_zero, .. } =
        &field.kind
    else {
        return None;
    };
    let text = text.strip_prefix(space)?;
    let (mut descriptor, mut body) = (None, text);
    if let Some((d, rest)) = text.strip_prefix("desc[").and_then(|t| t.split_once(']')) {
        (descriptor, body) = (Some(register(d)?), rest);
    } else if *desc_hidden {
        descriptor = Some(Reg::ur(4));
    }
    if (*desc != NONE) != descriptor.is_some() {
        return None;
    }
    let inner = body.strip_prefix('[')?.strip_suffix(']')?;
    let (mut base, mut uniform, mut offset) = (None, None, 0);
    let mut spelled = match width {
        AddrWidthBits::Fixed(w) => *w,
        AddrWidthBits::Wide(_) => AddrWidth::R64,
        AddrWidthBits::Scale(_) => AddrWidth::R32,
    };
    for part in inner.split('+') {
        if let Some(n) = number(part) {
            offset = i32::try_from(n).ok()?;
            continue;
        }
        let (name, suffix) = part.split_once('.').unwrap_or((part, ""));
        let reg = if name == "???255" { Reg::RZ } else { register(name)? };
        if reg.file == RegFile::UR {
            uniform = Some(reg);
            continue;
        }
        base = Some(reg).filter(|r| !r.is_zero());
        spelled = match suffix {
            "" => AddrWidth::R32,
            "64" => AddrWidth::R64,
            "U32" => AddrWidth::U32,
            "X4" => AddrWidth::X4,
            "X8" => AddrWidth::X8,
            "X16" => AddrWidth::X16,
            _ => return None,
        };
    }
    if *hide_zero && *bare == NONE && *u != NONE && uniform.is_none() {
        uniform = Some(Reg { file: RegFile::UR, index: Reg::ZERO });
    }
    ((*u != NONE) == uniform.is_some() || *hide_zero).then_some(Operand::Addr {
        desc: descriptor,
        base,
        width: spelled,
        uniform,
        offset,
    })
}
