//! One instruction: which form of the table it is, and whether that exists here.

use super::Checker;
use crate::ast::{Body, Inst, Operand};
use crate::isa::{Form, Mod, Op, Type};

/// Words that say how to round.
const ROUNDINGS: &[Mod] =
    &[Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::rna, Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi];
/// Words that name a state space.
const SPACES: &[Mod] = &[
    Mod::global,
    Mod::shared,
    Mod::shared_cta,
    Mod::shared_cluster,
    Mod::local,
    Mod::_const,
    Mod::param,
    Mod::param_entry,
    Mod::param_func,
];

impl Checker<'_> {
    pub(super) fn inst(&mut self, body: &Body, inst: &Inst) {
        if let Some((p, _)) = inst.guard
            && body.regs[p].ty != Type::pred
        {
            self.error(inst.span, "Predicate expression expected");
        }
        let forms = inst.op.forms();
        // Most instructions have their words in the order of the manual and are right.
        let ordered =
            forms.iter().any(|f| f.matches(&inst.mods) && self.open(f) && self.operands_fit(body, inst, f));
        if !ordered {
            let matching: Vec<&Form> = forms.iter().filter(|f| f.matches_unordered(&inst.mods)).collect();
            if matching.is_empty() {
                let message = complaint(inst);
                return self.error(inst.span, message);
            }
            let open: Vec<&Form> = matching.iter().copied().filter(|f| self.open(f)).collect();
            if open.is_empty() {
                return self.closed(inst, matching[0]);
            }
            if !open.iter().any(|f| self.operands_fit(body, inst, f)) {
                // A newer form may have these operands.
                if let Some(f) = matching.iter().find(|f| !self.open(f) && self.operands_fit(body, inst, f)) {
                    return self.closed(inst, f);
                }
                let message = self.mismatch(body, inst, open[0]);
                return self.error(inst.span, message);
            }
        }
        self.addresses(body, inst);
        self.particulars(body, inst);
    }

    /// Whether the module's version and target have the form.
    fn open(&self, f: &Form) -> bool {
        f.version <= self.module.version && f.on(self.sm, self.suffix)
    }

    fn closed(&mut self, inst: &Inst, f: &Form) {
        let name = full_name(inst);
        let (major, minor) = f.version;
        if f.version > self.module.version {
            let message = format!("Feature '{name}' requires PTX ISA .version {major}.{minor} or later");
            self.error(inst.span, message);
        }
        if !f.on(self.sm, self.suffix) {
            let wanted: Vec<String> = f.targets.iter().map(ToString::to_string).collect();
            let message = format!("Feature '{name}' requires .target {}", wanted.join(", "));
            self.error(inst.span, message);
        }
    }

    /// Rules that single instructions have beyond the table.
    fn particulars(&mut self, body: &Body, inst: &Inst) {
        match inst.op {
            Op::bar | Op::barrier if !inst.has(Mod::warp) && !inst.has(Mod::cluster) => {
                let red = inst.has(Mod::red);
                let at = usize::from(red);
                if let Some(Operand::Int(n)) = inst.operands.get(at)
                    && *n > 15
                {
                    let message =
                        format!("Barrier number '{n}' out of range, expected to be in range [0..15]");
                    self.error(inst.span, message);
                }
                let last = inst.operands.len() - usize::from(red);
                if let Some(Operand::Int(n)) = inst.operands.get(at + 1)
                    && at + 1 < last
                    && n % 32 != 0
                {
                    let message =
                        "Number of threads participating in barrier must be in multiple of warp size";
                    self.error(inst.span, message);
                }
            }
            Op::call => self.call(body, inst),
            Op::cp => self.coordinates(inst),
            Op::ld | Op::st => self.wide_access(inst),
            Op::vote | Op::shfl if !inst.has(Mod::sync) && self.sm >= 70 && self.module.version >= (6, 4) => {
                let name = inst.op.name();
                let message = format!(
                    "Instruction '{name}' without '.sync' is not supported on .target sm_70 and higher from PTX \
                     ISA version 6.4"
                );
                self.error(inst.span, message);
            }
            _ => {}
        }
    }
}

impl Checker<'_> {
    /// A tensor copy has as many coordinates as its tensor has dimensions.
    fn coordinates(&mut self, inst: &Inst) {
        let dims = [Mod::_1d, Mod::_2d, Mod::_3d, Mod::_4d, Mod::_5d];
        let Some(n) = dims.iter().position(|m| inst.has(*m)) else { return };
        // Rows that are gathered or scattered have a coordinate each.
        let n = if inst.one_of(&[Mod::tile_gather4, Mod::tile_scatter4]).is_some() { 5 } else { n + 1 };
        for o in &inst.operands {
            let Operand::Bracket(list) = o else { continue };
            let have = match list.last() {
                Some(Operand::Vector(elems)) => elems.len(),
                _ => 1,
            };
            if have != n {
                self.error(inst.span, "Argument vector size mismatch for instruction 'cp.async.bulk.tensor'");
            }
        }
    }

    /// 256-bit loads and stores are new; nothing is wider.
    fn wide_access(&mut self, inst: &Inst) {
        let Some(Operand::Vector(elems)) = inst.operands.iter().find(|o| matches!(o, Operand::Vector(_)))
        else {
            return;
        };
        let size = elems.len() as u32 * inst.ty(0).map_or(0, Type::bytes);
        if size <= 16 && elems.len() < 8 {
            return;
        }
        if size != 32 {
            self.error(inst.span, format!("Illegal vector size: {}", elems.len()));
        }
        let feature = "Feature '256 bit wide load/store' requires";
        if self.module.version < (8, 8) {
            self.error(inst.span, format!("{feature} PTX ISA .version 8.8 or later"));
        }
        if self.sm < 100 {
            self.error(inst.span, format!("{feature} .target sm_100 or higher"));
        }
    }
}

/// The name as ptxas gives it in messages: with the words that make it another operation.
pub(super) fn full_name(inst: &Inst) -> String {
    let word = inst.mods.iter().find(|m| {
        matches!(m, Mod::lo | Mod::hi | Mod::wide | Mod::idx | Mod::to | Mod::f32x2)
            && !matches!(inst.op, Op::shfl | Op::setp | Op::set)
    });
    match word {
        Some(m) => format!("{}.{}", inst.op.name(), m.name()),
        None => inst.op.name().to_string(),
    }
}

/// Why no form has these words.
fn complaint(inst: &Inst) -> String {
    let name = full_name(inst);
    let forms = inst.op.forms();
    let types: Vec<Type> = inst.types().collect();
    let typed: Vec<&Form> = forms.iter().filter(|f| f.takes_types(&types)).collect();
    if typed.is_empty() {
        return format!("Unexpected instruction types specified for '{name}'");
    }
    let takes = |m: Mod| typed.iter().any(|f| f.groups.iter().any(|g| g.words().any(|w| w == m)));
    if let Some(m) = inst.mods.iter().copied().find(|m| m.as_type().is_none() && !takes(*m)) {
        if ROUNDINGS.contains(&m) {
            return format!("Illegal rounding modifier for instruction '{name}'");
        }
        if SPACES.contains(&m) {
            let any = forms.iter().any(|f| f.groups.iter().any(|g| g.words().any(|w| SPACES.contains(&w))));
            return if any {
                format!("State space incorrect for instruction '{name}'")
            } else {
                format!("No state space qualifier expected for instruction '{name}'")
            };
        }
        if matches!(inst.op, Op::set | Op::setp) {
            return "Mismatch between instruction type and comparison qualifier".to_string();
        }
        return format!("Illegal modifier '.{}' for instruction '{name}'", m.name());
    }
    // Every word is known: one is missing, or two exclude each other.
    for f in &typed {
        for g in f.groups.iter().filter(|g| !g.optional) {
            let there = g.words().any(|w| inst.has(w));
            if there || g.words().any(|w| w.as_type().is_some()) {
                continue;
            }
            if g.words().any(|w| ROUNDINGS.contains(&w)) || inst.op == Op::div {
                return format!("Rounding modifier required for instruction '{name}'");
            }
            if matches!(inst.op, Op::set | Op::setp) {
                return format!("Comparison modifier required for instruction '{name}'");
            }
            let mut words = g.words().map(|w| format!(".{}", w.name()));
            let first = words.next().unwrap_or_default();
            return match words.next() {
                None => format!("{first} modifier required for instruction '{name}'"),
                Some(second) => {
                    format!("Modifier such as {first} or {second} required for instruction '{name}'")
                }
            };
        }
    }
    let mods: String = inst.mods.iter().map(|m| format!(".{}", m.name())).collect();
    format!("Illegal modifier combination '{}{mods}'", inst.op.name())
}
