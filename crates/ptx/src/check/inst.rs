//! One instruction: which form of the table it is, and whether that exists here.

use super::Checker;
use super::advice::spelling;
use super::operand::{register_fits, space_of};
use super::shape::Plan;
use crate::ast::{Body, Inst, Operand, Space, VectorElem};
use crate::isa::{Form, Mod, Op, Type, TypeClass, Values};
use std::fmt::Write as _;

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
        let shape = self.shape(inst);
        if !shape.plans.iter().any(|p| self.operands_fit(body, inst, p)) {
            let fits = |f: &'static Form| self.operands_fit(body, inst, &Plan::new(inst.op, &inst.mods, f));
            let matching: Vec<&'static Form> =
                forms.iter().filter(|f| f.matches_unordered(&inst.mods)).collect();
            if matching.is_empty() {
                let types: Vec<Type> = inst.types().collect();
                let nearest =
                    inst.op.forms().iter().min_by_key(|f| (!f.takes_types(&types), distance(inst, f)));
                let notes = nearest.map(|f| format!("nearest form: {}", spelling(inst, f)));
                return self.error_with(inst.span, complaint(inst), notes.into_iter().collect());
            }
            let open: Vec<&'static Form> = matching.iter().copied().filter(|f| self.open(f)).collect();
            if open.is_empty() {
                return self.closed(inst, matching[0]);
            }
            if !open.iter().any(|f| fits(f)) {
                // A newer form may have these operands.
                if let Some(f) = matching.iter().find(|f| !self.open(f) && fits(f)) {
                    return self.closed(inst, f);
                }
                let count = inst.operands.len();
                let nearest = open.iter().find(|f| f.takes_operands(&inst.mods, count)).unwrap_or(&open[0]);
                let message = self.mismatch(body, inst, nearest);
                let mut notes: Vec<String> = self.expected(body, inst, nearest).into_iter().collect();
                notes.push(format!("nearest form: {}", spelling(inst, nearest)));
                return self.error_with(inst.span, message, notes);
            }
        }
        if shape.gated {
            self.words(inst);
        }
        if shape.ranged {
            self.values(inst);
        }
        self.wide_atomics(inst);
        self.special_registers(inst);
        self.addresses(body, inst, &shape.spaces);
        self.images(body, inst);
        let braces =
            |o: &Operand| matches!(o, Operand::Vector(_) | Operand::Resident(..) | Operand::Bracket(_));
        if inst.operands.iter().any(braces) {
            self.vectors(body, inst);
        }
        self.particulars(body, inst);
    }

    /// Whether the module's version and target have the form.
    pub(super) fn open(&self, f: &Form) -> bool {
        f.version <= self.module.version && self.module.version < f.until && f.on(self.sm, self.suffix)
    }

    /// Constants out of the range that the form allows.
    fn values(&mut self, inst: &Inst) {
        if !inst.operands.iter().any(|o| matches!(o, Operand::Int(_))) {
            return;
        }
        let fits = |f: &&Form| {
            f.matches_unordered(&inst.mods)
                && f.takes_operands(&inst.mods, inst.operands.len())
                && self.open(f)
        };
        let Some(form) = inst.op.forms().iter().find(fits) else { return };
        for (n, (o, spec)) in inst.operands.iter().zip(form.operands_with(&inst.mods)).enumerate() {
            let Operand::Int(v) = o else { continue };
            let v = *v;
            let wanted = match spec.values {
                Values::Range(a, b) if a == b && v != a => a.to_string(),
                Values::Range(0, 1) if v > 1 => "0 or 1".to_string(),
                Values::Range(a, b) if v < a || v > b => format!("in range [{a}..{b}]"),
                Values::Sign if v != 1 && v != u64::MAX => "-1 or 1".to_string(),
                Values::Multiples(k) if v % k != 0 && !matches!(inst.op, Op::bar | Op::barrier) => {
                    format!("multiple of {k}")
                }
                _ => continue,
            };
            let name = full_name(inst);
            let message = format!(
                "Argument {n} of instruction '{name}': unexpected value '{v}', expected to be {wanted}"
            );
            self.error(inst.span, message);
        }
    }

    /// Special registers that are newer than the module or its target.
    fn special_registers(&mut self, inst: &Inst) {
        for o in &inst.operands {
            let Operand::Special(s, _) = o else { continue };
            let ((major, minor), sm) = s.needs();
            let feature = format_args!("Feature '{}'", s.name());
            if (major, minor) > self.module.version {
                let message = format!("{feature} requires PTX ISA .version {major}.{minor} or later");
                self.error(inst.span, message);
            }
            if sm > self.sm {
                self.error(inst.span, format!("{feature} requires .target sm_{sm} or higher"));
            }
        }
    }

    /// 128-bit accesses of the whole system are newer than others.
    fn wide_atomics(&mut self, inst: &Inst) {
        let wide = matches!(inst.op, Op::ld | Op::st | Op::atom) && inst.has(Mod::b128) && inst.has(Mod::sys);
        if wide && self.module.version < (8, 4) {
            self.error(inst.span, "Feature '.b128 with .sys' requires PTX ISA .version 8.4 or later");
        }
    }

    /// Words that need more than the form does.
    fn words(&mut self, inst: &Inst) {
        let module = self.module;
        for m in &inst.mods {
            for gate in m.gates(inst.op) {
                let old = gate.version > module.version || module.version >= gate.until;
                if !old && gate.on(self.sm, self.suffix) {
                    continue;
                }
                let name = m.name();
                let note = vec![self.needs(&format!("'.{name}'"), gate.version, gate.targets)];
                if gate.version > module.version {
                    let (major, minor) = gate.version;
                    let message =
                        format!("Feature '.{name}' requires PTX ISA .version {major}.{minor} or later");
                    self.error_with(inst.span, message, note.clone());
                }
                if !gate.on(self.sm, self.suffix) {
                    let wanted: Vec<String> = gate.targets.iter().map(ToString::to_string).collect();
                    let message = format!("Feature '.{name}' requires .target {}", wanted.join(", "));
                    self.error_with(inst.span, message, note.clone());
                }
                if module.version >= gate.until {
                    let (major, minor) = gate.until;
                    let message = format!(
                        "Instruction '{}' with '.{name}' is not supported starting from PTX ISA version {major}.{minor}",
                        inst.op.name()
                    );
                    self.error(inst.span, message);
                }
            }
        }
    }

    fn closed(&mut self, inst: &Inst, f: &Form) {
        let name = full_name(inst);
        let note = vec![self.needs(&format!("'{name}' in this form"), f.version, f.targets)];
        let (major, minor) = f.version;
        if f.version > self.module.version {
            let message = format!("Feature '{name}' requires PTX ISA .version {major}.{minor} or later");
            self.error_with(inst.span, message, note.clone());
        }
        if self.module.version >= f.until {
            let (major, minor) = f.until;
            let message = format!(
                "Instruction '{name}' is not supported starting from PTX ISA version {major}.{minor}"
            );
            self.error(inst.span, message);
        }
        if !f.on(self.sm, self.suffix) {
            let wanted: Vec<String> = f.targets.iter().map(ToString::to_string).collect();
            let message = format!("Feature '{name}' requires .target {}", wanted.join(", "));
            self.error_with(inst.span, message, note);
        }
    }

    /// Rules that single instructions have beyond the table.
    fn particulars(&mut self, body: &Body, inst: &Inst) {
        match inst.op {
            Op::bar | Op::barrier if !inst.has(Mod::warp) && !inst.has(Mod::cluster) => {
                let red = inst.has(Mod::red);
                let at = usize::from(red);
                // 32 bits of it count.
                if let Some(Operand::Int(n)) = inst.operands.get(at)
                    && *n as u32 > 15
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
                if inst.has(Mod::arrive) && inst.operands.get(1) == Some(&Operand::Int(0)) {
                    let name = inst.op.name();
                    let message =
                        format!("Instruction '{name}.arrive' requires a non-zero thread count argument");
                    self.error(inst.span, message);
                }
            }
            Op::createpolicy => self.policy(inst),
            Op::mapa | Op::getctarank => {
                let space = match inst.operands.get(1) {
                    Some(Operand::Var(v, _)) => self.module.vars[*v].space,
                    _ => Space::Shared,
                };
                if space != Space::Shared {
                    let name = inst.op.name();
                    let message = format!(
                        "State space mismatch between instruction and address in instruction '{name}'"
                    );
                    self.error(inst.span, message);
                }
            }
            Op::tcgen05 if inst.has(Mod::alloc) => {
                if let Some(Operand::Int(n)) = inst.operands.get(1)
                    && !n.is_power_of_two()
                {
                    self.error(
                        inst.span,
                        "Argument 1 of 'tcgen05.alloc' instruction: value must be power of 2",
                    );
                }
            }
            Op::wgmma | Op::wmma | Op::multimem | Op::istypep if !inst.has(Mod::wait_group) => {
                self.untyped(body, inst)
            }
            Op::mbarrier => self.arrivals(inst),
            Op::set | Op::setp if inst.types().any(|t| matches!(t, Type::bf16 | Type::bf16x2)) => {
                // No constants are predicates here.
                if let Some(Operand::Int(_)) = inst.operands.get(3) {
                    let message = format!("Arguments mismatch for instruction '{}'", inst.op.name());
                    self.error(inst.span, message);
                }
            }
            Op::wgmma if inst.has(Mod::wait_group) => {
                if let Some(Operand::Int(n)) = inst.operands.first()
                    && (*n as i64) < 0
                {
                    let message = format!(
                        "Argument 0 of instruction 'wgmma.wait_group': unexpected value '{}', expected to be \
                         non-negative integer",
                        *n as i64
                    );
                    self.error(inst.span, message);
                }
            }
            Op::call => self.call(body, inst),
            Op::setmaxnreg => self.register_count(inst),
            Op::cp => {
                self.coordinates(body, inst);
                self.copied_bytes(inst);
                self.bulk_bytes(inst);
            }
            op if is_video(op) => self.video(inst),
            Op::ld | Op::st | Op::ldu | Op::mov => {
                self.wide_access(inst);
                self.bulk_fill(inst);
                if inst.guard.is_some() {
                    self.unguarded(body, inst);
                }
                self.short_address(inst);
            }
            Op::tex | Op::tld4 | Op::sured => self.texture(body, inst),
            Op::suld | Op::sust => {
                self.texture(body, inst);
                self.wide_access(inst);
            }
            Op::cvt => {
                self.special_converted(inst);
                self.odd_conversion(body, inst);
            }
            Op::cvta => self.converted_address(inst),
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
    fn coordinates(&mut self, body: &Body, inst: &Inst) {
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
            // Where there are several, nothing looks at their types.
            let odd = match list.last() {
                Some(Operand::Reg(r)) => !register_fits(body.regs[*r].ty, Type::s32, false),
                Some(Operand::Vector(e)) => matches!(e[..], [VectorElem::F32(_) | VectorElem::F64(_)]),
                _ => false,
            };
            if have != n {
                self.error(inst.span, "Argument vector size mismatch for instruction 'cp.async.bulk.tensor'");
            } else if odd {
                self.error(inst.span, "Arguments mismatch for instruction 'cp.async.bulk.tensor'");
            }
        }
    }

    /// `st.bulk` fills at most 16 MiB.
    fn bulk_fill(&mut self, inst: &Inst) {
        if let (true, Some(Operand::Int(n))) = (inst.has(Mod::bulk), inst.operands.get(1))
            && *n > 1 << 24
        {
            let message = format!(
                "Argument 1 of instruction 'st.bulk': value '{}' out of range, expected to be in range [0..16777216]",
                *n as i64
            );
            self.error(inst.span, message);
        }
    }

    /// A bulk copy has at most 1,048,560 bytes; 32 bits of the number count.
    fn bulk_bytes(&mut self, inst: &Inst) {
        if !inst.has(Mod::bulk) || inst.has(Mod::tensor) || inst.has(Mod::wait_group) {
            return;
        }
        let at = if inst.has(Mod::prefetch) { 1 } else { 2 };
        if let Some(Operand::Int(n)) = inst.operands.get(at)
            && *n as u32 > 1_048_560
        {
            let message = format!(
                "Argument {at} of instruction '{}': value '{}' out of range, expected to be in range [0..1048560]",
                full_name(inst),
                *n as u32 as i32
            );
            self.error(inst.span, message);
        }
    }

    /// `cp.async` copies 4, 8 or 16 bytes, past the L1 cache only 16.
    fn copied_bytes(&mut self, inst: &Inst) {
        let Some(Operand::Int(n)) = inst.operands.get(2) else { return };
        // The last of four may be a policy instead.
        let policy = inst.has(Mod::L2_cache_hint) && inst.operands.len() == 4;
        if let (Some(Operand::Int(m)), false) = (inst.operands.get(3), inst.has(Mod::bulk) || policy)
            && m > n
        {
            let message = format!(
                "Argument 3 of instruction 'cp.async': value '{}' out of range, expected to be in range [0..{n}]",
                *m as i64
            );
            self.error(inst.span, message);
        }
        let wanted = match inst.one_of(&[Mod::ca, Mod::cg]) {
            _ if inst.has(Mod::bulk) => return,
            Some(Mod::cg) if *n != 16 => "16",
            Some(Mod::ca) if !matches!(n, 4 | 8 | 16) => "4 or 8 or 16",
            _ => return,
        };
        let message =
            format!("Argument 2 of instruction 'cp.async': unexpected value '{n}', expected to be {wanted}");
        self.error(inst.span, message);
    }

    /// Fractions are above 0 and at most 1; the first part of a range is no longer than all of it.
    fn policy(&mut self, inst: &Inst) {
        let fraction = match inst.operands.get(1) {
            Some(Operand::F32(bits)) => Some(f64::from(f32::from_bits(*bits))),
            Some(Operand::F64(bits)) => Some(f64::from_bits(*bits)),
            _ => None,
        };
        if let Some(f) = fraction.filter(|f| !(*f > 0.0 && *f <= 1.0)) {
            let message = format!(
                "Argument 2 of instruction 'createpolicy.fractional': value '{f:.6}' out of range, expected to be in \
                 range (0.0..1.0]"
            );
            self.error(inst.span, message);
        }
        if let (Some(Operand::Int(first)), Some(Operand::Int(all))) =
            (inst.operands.get(2), inst.operands.get(3))
        {
            let (first, all) = (*first as u32, *all as u32);
            if first > all {
                let message = format!(
                    "Argument 3 of instruction 'createpolicy.range': value '{}' must be less than or equal to the value \
                     '{}' of argument 4",
                    first as i32, all as i32
                );
                self.error(inst.span, message);
            }
        }
    }

    /// `cvta.global` takes the addresses of global variables, and so on.
    fn converted_address(&mut self, inst: &Inst) {
        if inst.types().last() == Some(Type::u32) {
            self.address_of_32_bits(inst.span);
        }
        let space = inst.mods.iter().find_map(|m| space_of(*m));
        if let (Some(Operand::Var(v, _)), Some(space)) = (inst.operands.get(1), space)
            && self.module.vars[*v].space != space
        {
            let message = "State space mismatch between instruction and address in instruction 'cvta'";
            self.error(inst.span, message);
        }
    }

    /// Where ptxas moves what it converts, its type counts.
    fn odd_conversion(&mut self, body: &Body, inst: &Inst) {
        let wide = |o: &Operand| matches!(o, Operand::Reg(r) if body.regs[*r].ty == Type::b128);
        let doubles = inst.types().any(|t| t.bytes() == 8);
        let moved = inst.has(Mod::ftz) && doubles && inst.operands.iter().any(wide)
            || inst.has(Mod::rna) && matches!(inst.operands.get(1), Some(Operand::F64(_)));
        if moved {
            self.error(inst.span, "Arguments mismatch for instruction 'cvt'");
        }
    }

    /// A barrier is arrived at at least once.
    fn arrivals(&mut self, inst: &Inst) {
        let arrives = inst.one_of(&[Mod::arrive, Mod::arrive_drop]).is_some() && !inst.has(Mod::expect_tx);
        if let (true, Some(Operand::Int(n))) = (arrives, inst.operands.get(2))
            && *n as i64 <= 0
        {
            let message = format!(
                "Argument 2 of instruction '{}' : value '{}' expected to be a non-zero positive integer",
                full_name(inst),
                *n as i64
            );
            self.error(inst.span, message);
        }
    }

    /// Special registers are converted to integers only.
    fn special_converted(&mut self, inst: &Inst) {
        let special = inst.operands.iter().any(|o| matches!(o, Operand::Special(..)));
        if special && (inst.types().any(|t| t.class() == TypeClass::Float) || inst.has(Mod::pack)) {
            let name = full_name(inst);
            self.error(inst.span, format!("Special register argument not allowed for instruction '{name}'"));
        }
    }

    /// 256-bit loads and stores are new, and of global memory; nothing is wider.
    fn wide_access(&mut self, inst: &Inst) {
        let Some(Operand::Vector(elems)) = inst.operands.iter().find(|o| matches!(o, Operand::Vector(_)))
        else {
            return;
        };
        let packs = inst.op == Op::mov && inst.one_of(&[Mod::v2, Mod::v4]).is_none();
        let size = elems.len() as u32 * inst.ty(0).map_or(0, Type::bytes);
        if size <= 16 || packs {
            return;
        }
        let element = inst.ty(0).map_or(0, Type::bytes);
        if size != 32 || element == 16 || !matches!(inst.op, Op::ld | Op::st) {
            return self.error(inst.span, "Vector type too large, exceeds 128 bit limit");
        }
        let feature = "eature '256 bit wide load/store'";
        if self.module.version < (8, 8) {
            self.error(inst.span, format!("F{feature} requires PTX ISA .version 8.8 or later"));
        }
        if self.sm < 100 {
            self.error(inst.span, format!("F{feature} requires .target sm_100 or higher"));
        }
        if inst.mods.iter().any(|m| SPACES.contains(m) && *m != Mod::global) {
            self.error(inst.span, format!("global state space expected for f{feature}"));
        }
    }
}

/// Whether it is a video instruction.
fn is_video(op: Op) -> bool {
    op.name().starts_with('v') && op != Op::vote
}

impl Checker<'_> {
    /// Which parts of registers a video instruction takes, and when it has a last operand.
    fn video(&mut self, inst: &Inst) {
        let lanes: u8 = match inst.op.name().as_bytes().last() {
            Some(b'2') => 2,
            Some(b'4') => 4,
            _ => 1,
        };
        for (n, o) in inst.operands.iter().enumerate() {
            let constant = matches!(o, Operand::Int(_)) && lanes > 1;
            if constant {
                self.error(inst.span, format!("Incorrect video selector for operand {n}"));
            }
            let Operand::Part { part, .. } = o else { continue };
            let last = n == 3 || (n == 0 && inst.op == Op::vmad);
            let fits = match lanes {
                1 => part.count == 1 && part.lanes[0] < if part.halves { 2 } else { 4 },
                2 => part.halves && (part.count == 2 || n == 0),
                _ => !part.halves && (part.count == 4 || n == 0),
            };
            if last || !fits {
                self.error(inst.span, format!("Incorrect video selector for operand {n}"));
            }
        }
        let minus = |n: usize| matches!(inst.operands.get(n), Some(Operand::NegReg(_)));
        if inst.op == Op::vmad && inst.has(Mod::po) && (1..4).any(minus) {
            self.error(inst.span, "Conflicting use of '.po' modifier with operand negation");
        } else if minus(1) != minus(2) && minus(3) {
            let message = "Operand negation limited to either (source A xor source B) or source C";
            self.error(inst.span, message);
        }
        // An operation on, or a merge into, something needs that.
        let second = inst.mods.iter().skip(1).any(|m| matches!(m, Mod::add | Mod::min | Mod::max));
        let part = matches!(inst.operands.first(), Some(Operand::Part { .. }));
        if inst.operands.len() < if second || part { 4 } else { 3 } || (second && part && lanes == 1) {
            self.error(inst.span, format!("Arguments mismatch for instruction '{}'", inst.op.name()));
        }
    }
}

/// The name as ptxas gives it in messages: with the words that make it another operation.
pub(super) fn full_name(inst: &Inst) -> String {
    let words = inst.op.forms().iter().filter_map(|f| f.name_words(&inst.mods)).max().unwrap_or(0);
    let mut name = inst.op.name().to_string();
    let plain = matches!(inst.op, Op::bar | Op::barrier | Op::div | Op::dp2a | Op::shf | Op::suld | Op::sust);
    for m in inst.mods[..words].iter().filter(|m| !plain || **m == Mod::red) {
        let _ = write!(name, ".{}", m.name());
    }
    let word = inst.mods.iter().find(|m| {
        matches!(m, Mod::lo | Mod::hi | Mod::wide | Mod::idx | Mod::to | Mod::f32x2)
            && !matches!(inst.op, Op::shfl | Op::setp | Op::set)
    });
    if let (Some(m), 0) = (word, words) {
        let _ = write!(name, ".{}", m.name());
    }
    name
}

/// How far a form is from the words of an instruction: words that it does not have, groups without a word.
fn distance(inst: &Inst, f: &Form) -> usize {
    let strange = inst.mods.iter().filter(|m| !f.groups.iter().any(|g| g.words().any(|w| w == **m))).count();
    let missing = f.groups.iter().filter(|g| !g.optional && !g.words().any(|w| inst.has(w))).count();
    2 * strange + missing
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
    if let Some(m) = misplaced(inst) {
        return m;
    }
    // Every word is known: one is missing, or two exclude each other. The form that has most of the words, and
    // the fewest that are missing, says which.
    let mut typed = typed;
    typed.sort_by_key(|f| distance(inst, f));
    for f in &typed {
        for g in f.groups.iter().filter(|g| !g.optional) {
            let there = g.words().any(|w| inst.has(w));
            if there || g.words().any(|w| w.as_type().is_some()) {
                continue;
            }
            if matches!(inst.op, Op::div | Op::sqrt) && types.contains(&Type::f32) {
                return format!("Rounding modifier or '.approx' modifier required for instruction '{name}'");
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

/// What is said of words that are known, but stand where they may not.
fn misplaced(inst: &Inst) -> Option<String> {
    let name = full_name(inst);
    match inst.op {
        Op::bar | Op::barrier if inst.mods.iter().skip(1).any(|m| *m == Mod::cta) => {
            Some(format!("Illegal modifier '.cta' for instruction '{name}'"))
        }
        Op::createpolicy => {
            let known = [Mod::L2_evict_first, Mod::L2_evict_unchanged];
            let primary = [Mod::L2_evict_last, Mod::L2_evict_normal];
            let mut priorities = inst.mods.iter().filter(|m| known.contains(*m) || primary.contains(*m));
            let second = priorities.nth(1).filter(|m| primary.contains(*m))?;
            Some(format!(
                "Unsupported modifier '.{}' as secondary_priority for instruction '{name}'",
                second.name().trim_start_matches("L2::")
            ))
        }
        _ => None,
    }
}
