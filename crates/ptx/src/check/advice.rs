//! What helps to mend an instruction: the nearest form that exists, what an operand should be, what a form needs.

use super::Checker;
use super::shape::Plan;
use crate::ast::{Body, Inst, Operand};
use crate::isa::{Form, OperandKind, OperandSpec, Suffix, TargetGate};
use std::fmt::Write as _;

/// More words of a group than these are left out.
const MOST_WORDS: usize = 8;

/// What a word was meant to be: the nearest of `words`, if only a letter or two differ.
pub(crate) fn nearest_word<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let distance = |other: &str| {
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, a) in word.bytes().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, b) in other.bytes().enumerate() {
                let next = (diagonal + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
                diagonal = std::mem::replace(&mut row[j + 1], next);
            }
        }
        row[other.len()]
    };
    let most = match word.len() {
        ..=1 | 33.. => return None,
        2..=4 => 1,
        _ => 2,
    };
    let near = words.filter(|w| w.len().abs_diff(word.len()) <= most).map(|w| (distance(w), w));
    near.filter(|(d, _)| *d <= most).min().map(|(_, w)| w)
}

/// A form as the manual writes it: `add{.rnd}.f32 d, a, b`.
pub(super) fn spelling(inst: &Inst, form: &Form) -> String {
    let mut out = inst.op.name().to_string();
    for g in form.groups {
        // What is there already stands alone.
        if let Some(a) = g.alternatives.iter().find(|a| !a.is_empty() && a.iter().all(|m| inst.has(*m))) {
            a.iter().for_each(|m| out.extend([".", m.name()]));
            continue;
        }
        let words: Vec<String> = g
            .alternatives
            .iter()
            .take(MOST_WORDS)
            .map(|a| a.iter().map(|m| format!(".{}", m.name())).collect())
            .collect();
        let more = if g.alternatives.len() > MOST_WORDS { ", …" } else { "" };
        let list = words.join(", ");
        let _ = match (g.optional, words.len()) {
            (true, _) => write!(out, "{{{list}{more}}}"),
            (false, 1) => write!(out, "{list}"),
            (false, _) => write!(out, "({list}{more})"),
        };
    }
    for (n, spec) in form.operands_with(&inst.mods).enumerate() {
        let name = operand_name(spec);
        let comma = if n == 0 { " " } else { ", " };
        let _ = if spec.optional && spec.with.is_empty() {
            write!(out, "{{{comma}{name}}}")
        } else {
            write!(out, "{comma}{name}")
        };
    }
    out
}

/// A word for an operand.
fn operand_name(spec: &OperandSpec) -> &'static str {
    match spec.kind {
        OperandKind::Dst | OperandKind::PartDst if spec.count.is_some() => "{d, …}",
        OperandKind::Dst | OperandKind::PartDst => "d",
        OperandKind::Src | OperandKind::Part | OperandKind::Reg if spec.count.is_some() => "{a, …}",
        OperandKind::Src | OperandKind::Part | OperandKind::Reg => "a",
        OperandKind::PredSrc => "{!}p",
        OperandKind::PredDst => "p",
        OperandKind::DstPred => "d{|p}",
        OperandKind::DstAndPred => "d|p",
        OperandKind::PredPair => "p{|q}",
        OperandKind::Addr | OperandKind::TensorAddr => "[address]",
        OperandKind::Bracket => "[address, coordinates]",
        OperandKind::Label => "label",
        OperandKind::Func => "function",
        OperandKind::Imm => "constant",
        OperandKind::Sink => "_",
        OperandKind::Any => "operand",
    }
}

impl Checker<'_> {
    /// What `form`, or a word, needs, and what the module says.
    pub(super) fn needs(&self, what: &str, version: (u8, u8), targets: &[TargetGate]) -> String {
        let mut wants = Vec::new();
        if version > self.module.version {
            wants.push(format!("PTX {}.{}", version.0, version.1));
        }
        if !targets.is_empty() && !targets.iter().any(|t| t.has(self.sm, self.suffix)) {
            let list: Vec<String> = targets.iter().map(ToString::to_string).collect();
            wants.push(list.join(", "));
        }
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::Family => "f",
            Suffix::Arch => "a",
        };
        let (major, minor) = self.module.version;
        let wants = wants.join(" and ");
        format!(
            "{what} needs {wants}; this module says .version {major}.{minor}, .target sm_{}{suffix}",
            self.sm
        )
    }

    /// What the first operand that does not fit should be.
    pub(super) fn expected(&self, body: &Body, inst: &Inst, form: &'static Form) -> Option<String> {
        let wanted = form.operands_with(&inst.mods).count();
        if !form.takes_operands(&inst.mods, inst.operands.len()) {
            let have = inst.operands.len();
            let least = (0..have).find(|n| form.takes_operands(&inst.mods, *n)).unwrap_or(wanted);
            let range = if least == wanted { wanted.to_string() } else { format!("{least} to {wanted}") };
            let s = if wanted == 1 { "" } else { "s" };
            return Some(format!("expected {range} operand{s}, there are {have}"));
        }
        let plan = Plan::new(inst.op, &inst.mods, form);
        let mut pairs = inst.operands.iter().zip(&plan.slots).enumerate();
        let (n, (o, slot)) = pairs.find(|(n, (o, slot))| !self.operand_fits(body, inst, *n, o, slot))?;
        let (spec, ty) = (slot.spec, slot.ty);
        let kind = match spec.kind {
            OperandKind::PredSrc | OperandKind::PredDst | OperandKind::PredPair => "a predicate".to_string(),
            OperandKind::Addr | OperandKind::TensorAddr => "an address in brackets".to_string(),
            OperandKind::Imm => "an integer constant".to_string(),
            OperandKind::Label => "a label".to_string(),
            _ => {
                let size = if spec.wider { " or wider" } else { "" };
                let ty = ty.map_or(String::new(), |t| format!(" of type {t}{size}"));
                match spec.count {
                    Some(255) => format!("a list in braces{ty}"),
                    Some(count) => format!("{count} in braces{ty}"),
                    None => format!("a value{ty}"),
                }
            }
        };
        let have = match o {
            Operand::Reg(r) => {
                let reg = &body.regs[*r];
                format!("; {} is {}", reg.name, reg.ty)
            }
            _ => String::new(),
        };
        Some(format!("argument {n}: expected {kind}{have}"))
    }
}
