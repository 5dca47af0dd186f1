//! Copy propagation: uses of a copy read its source, and parts of a collected tuple read what was collected.
//!
//! Immediates and constants are only put into source slots without modifiers; whether the target has a form
//! for them is legalization's business.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Analyses, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use sass::ops::R2ur;
use sass::{Lanes, Opcode, Reg, RegOp, SlotKind};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    1,
    "copies",
    "OriCopyProp",
    "copies; again after unrolling, after repeated computations, after selections",
    run,
);

/// The number that an instruction puts into a register: an immediate, or RZ.
pub(crate) fn number(d: &InstData) -> Option<(Value, Operand)> {
    let (Operand::Reg(RegOp { reg: Name::Val(v), .. }), from) = d.copied().filter(|_| d.is_unguarded())?
    else {
        return None;
    };
    let is_number = matches!(from, Operand::Imm(_)) || *from == Operand::reg(Name::Phys(Reg::RZ));
    is_number.then_some((*v, *from))
}

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    // What defines each copied or collected value.
    let mut sources: SecondaryMap<Value, Option<Inst>> = func.per_value();
    for &b in &cfg.rpo {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            let to = d.copied().map(|c| c.0).or_else(|| d.collected().map(|c| c.0));
            if let Some(Operand::Reg(RegOp { reg: Name::Val(v), .. })) = to
                && d.is_unguarded()
            {
                sources[*v] = Some(i);
            }
        }
    }
    let mut changed = false;
    for &b in &cfg.rpo {
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            changed |= rewrite(func, &sources, i);
        }
        let term = &func.blocks[b].term;
        let passed = term.targets().into_iter().flat_map(|t| t.args.iter().copied());
        if !term.used_name().and_then(Name::value).into_iter().chain(passed).any(|v| sources[v].is_some()) {
            continue;
        }
        let mut term = term.clone();
        if let ori::Terminator::Branch { cond, .. } = &mut term {
            *cond = resolve_name(func, &sources, *cond);
        }
        for t in term.targets_mut() {
            for a in &mut t.args {
                if let Name::Val(v) = resolve_name(func, &sources, Name::Val(*a)) {
                    *a = v;
                }
            }
        }
        changed |= term != func.blocks[b].term;
        func.blocks[b].term = term;
    }
    Changed::instructions(changed)
}

/// The operand that `name` is a plain copy of, following chains.
fn source(func: &Function, sources: &SecondaryMap<Value, Option<Inst>>, name: Name) -> Option<Operand> {
    let mut name = name;
    let mut found = None;
    loop {
        let d = match name {
            Name::Val(v) | Name::Part(v, _) => &func.insts[sources[v]?],
            Name::Phys(_) => return found,
        };
        let (next, shape) = match (d.copied(), d.collected(), name) {
            (Some((_, from)), _, Name::Val(v)) => (*from, func.values[v]),
            (Some((_, from)), _, Name::Part(v, n)) => match from {
                Operand::Reg(RegOp { reg: Name::Val(s), neg: false, abs: false, not: false, .. })
                    if func.values[*s] == func.values[v] =>
                {
                    (ori::operand(Name::Part(*s, n)), func.shape(name))
                }
                _ => return found,
            },
            (_, Some((_, parts)), Name::Val(v)) => match whole(parts) {
                Some(s) => (ori::operand(s), func.values[v]),
                None => return found,
            },
            (_, Some((_, parts)), Name::Part(v, n)) => match part(func, parts, n) {
                Some(o) => (o, ori::ValueData { file: func.values[v].file, width: 1 }),
                None => return found,
            },
            _ => return found,
        };
        match &next {
            Operand::Reg(RegOp { reg, neg: false, abs: false, not: false, .. }) => {
                let have = func.shape(*reg);
                if have != shape {
                    return found;
                }
                name = *reg;
                found = Some(next);
                if matches!(name, Name::Phys(_)) || source_is_none(sources, name) {
                    return found;
                }
            }
            Operand::Imm(_) | Operand::Const { index: None, .. } if shape.width == 1 => return Some(next),
            _ => return found,
        }
    }
}

fn source_is_none(sources: &SecondaryMap<Value, Option<Inst>>, name: Name) -> bool {
    name.value().is_none_or(|v| sources[v].is_none())
}

/// The tuple whose registers, from the first on and each in its place, are collected.
fn whole(parts: &[Operand]) -> Option<Value> {
    let name = |o: &Operand| match o {
        Operand::Reg(r) if *r == RegOp::plain(r.reg) => Some(r.reg),
        _ => None,
    };
    let Name::Part(tuple, 0) = name(parts.first()?)? else { return None };
    parts.iter().zip(0..).all(|(o, k)| name(o) == Some(Name::Part(tuple, k))).then_some(tuple)
}

/// The operand that became register `n` of a collected tuple.
pub(crate) fn part(func: &Function, parts: &[Operand], n: u8) -> Option<Operand> {
    let mut at = 0;
    for o in parts {
        let width = match o {
            Operand::Reg(r) => func.shape(r.reg).width,
            _ => 1,
        };
        if n < at + width {
            return match o {
                Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. })
                    if width > 1 =>
                {
                    Some(ori::operand(Name::Part(*v, n - at)))
                }
                _ if width == 1 => Some(*o),
                _ => None,
            };
        }
        at += width;
    }
    None
}

/// Follows copies from register to register only.
fn resolve_name(func: &Function, sources: &SecondaryMap<Value, Option<Inst>>, name: Name) -> Name {
    match source(func, sources, name) {
        Some(Operand::Reg(RegOp { reg, .. })) => match (name, reg) {
            // Parts of a value stay parts where a whole value is needed.
            (Name::Val(_), Name::Part(..)) => name,
            _ => reg,
        },
        _ => name,
    }
}

fn rewrite(func: &mut Function, sources: &SecondaryMap<Value, Option<Inst>>, i: Inst) -> bool {
    let mut reads_copy = false;
    func.insts[i].for_each_use(|n| reads_copy |= n.value().is_some_and(|v| sources[v].is_some()));
    if !reads_copy {
        return false;
    }
    let mut data = func.insts[i].clone();
    data.guard.pred = resolve_name(func, sources, data.guard.pred);
    for k in &mut data.kept {
        *k = resolve_name(func, sources, *k);
    }
    for slot in 0..data.operands.len() {
        let is_source = match data.op {
            Op::Sass(op) => op.slots()[slot].kind == SlotKind::Source,
            Op::Macro(_) => true,
        };
        if data.is_def(slot) {
            continue;
        }
        let width = data.slot(slot, &func.values).width;
        match &mut data.operands[slot] {
            Operand::Reg(r) => {
                let plain = !r.neg && !r.abs && !r.not;
                match source(func, sources, r.reg) {
                    Some(Operand::Reg(s)) => r.reg = s.reg,
                    Some(o) if plain && is_source && width == 1 && takes_immediate(data.op) => {
                        data.operands[slot] = o;
                    }
                    _ => {}
                }
            }
            other => {
                let before = *other;
                ori::function::map_operand(other, |n| resolve_name(func, sources, n));
                // The second register of a pair that is named beside the first is what an instruction has behind that.
                if is_second_of(&before, slot.checked_sub(1).map(|first| &func.insts[i].operands[first])) {
                    data.operands[slot] = before;
                    if let Some(first) = slot.checked_sub(1) {
                        data.operands[first] = func.insts[i].operands[first];
                    }
                }
            }
        }
    }
    // A number is made in a uniform register, not brought there.
    if let Some(s) = R2ur::of(&data).filter(|_| data.op == Op::Sass(Opcode::R2UR) && data.is_unguarded())
        && let Operand::Reg(r) = *s.a
        && r == RegOp::plain(r.reg)
    {
        let to = *s.d;
        match source(func, sources, r.reg) {
            Some(Operand::Imm(n)) => data.become_copy(to, Operand::Imm(n)),
            _ if r.reg == Name::Phys(Reg::RZ) => data.become_copy(to, Operand::Imm(0)),
            _ => {}
        }
    }
    let changed = func.insts[i] != data;
    func.insts[i] = data;
    changed
}

/// Whether an address names the second register of the pair that the address before it names.
fn is_second_of(o: &Operand, before: Option<&Operand>) -> bool {
    match (o, before) {
        (
            Operand::Addr { uniform: Some(Name::Part(v, 1)), .. },
            Some(Operand::Addr { uniform: Some(Name::Val(first)), .. }),
        ) => v == first,
        _ => false,
    }
}

/// Whether an immediate or constant may be put into the instruction's sources at all.
fn takes_immediate(op: Op) -> bool {
    match op {
        Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect),
        Op::Sass(op) => {
            let info = op.info();
            !info.memory && !info.control && info.lanes != Lanes::Active
        }
    }
}

#[cfg(test)]
mod tests {
    use ori::Analyses;

    fn after(text: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n{text}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let _ = super::run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn numbers_are_made_in_uniform_registers() {
        let text = "    v0:R2 = collect RZ, 0x40004040\n    v1:R2 = copy v0\n    v2:UR = R2UR.BROADCAST v1.1\n    v3:UR = R2UR v1.0\n    STS [v3+v2], v0.1\n";
        let got = after(&text.replace("[v3+v2]", "[v0.0+v2]").replace("v0.1", "v1.1"));
        assert!(got.contains("v2:UR = copy 0x40004040") && got.contains("v3:UR = copy 0x0"), "{got}");
    }

    #[test]
    fn a_tuple_put_together_again_is_the_tuple() {
        let stores = |parts: &str| {
            let text = format!(
                "    v0:R2 = LDC.64 c[0x0][0x210]\n    v1:R2 = collect {parts}\n    STS.64 [0x0], v1\n"
            );
            after(&text)
        };
        assert!(stores("v0.0, v0.1").contains("STS.64 [0x0], v0"));
        assert!(stores("v0.1, v0.0").contains("STS.64 [0x0], v1"));
        assert!(stores("v0.0, v0.0").contains("STS.64 [0x0], v1"));
    }
}
