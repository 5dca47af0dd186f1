//! Common subexpressions: a pure instruction that repeats a dominating one becomes a copy of its result.
//!
//! Walks the dominator tree with a scoped table; one pass, since values are visited after their operands in
//! reverse postorder except around loops.

use cranelift_entity::SecondaryMap;
use ori::cfg::{Cfg, DomTree};
use ori::{Block, Function, InstData, Macro, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What makes two instructions the same: operation, modifiers and sources.
type Key = (Op, sass::Mods, SmallVec<[Operand; 6]>);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let cfg = Cfg::new(func);
    let dom = DomTree::dominators(&cfg);
    let mut table: FxHashMap<Key, (Block, SmallVec<[Value; 2]>)> = FxHashMap::default();
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut changed = false;
    for &b in &cfg.rpo {
        let insts = std::mem::take(&mut func.blocks[b].insts);
        let mut kept = Vec::with_capacity(insts.len());
        for i in insts {
            func.insts[i].map_uses(|n| substitute(&replaced, n));
            let d = &func.insts[i];
            if !d.is_pure() || !d.is_unguarded() || d.op == Op::Macro(Macro::Undef) {
                kept.push(i);
                continue;
            }
            let Some((key, results)) = key(func, d) else {
                kept.push(i);
                continue;
            };
            match table.get(&key) {
                Some((at, earlier)) if dom.dominates(*at, b) => {
                    for (new, old) in results.iter().zip(earlier) {
                        replaced[*new] = Some(*old);
                    }
                    changed = true;
                }
                _ => {
                    table.insert(key, (b, results));
                    kept.push(i);
                }
            }
        }
        func.blocks[b].insts = kept;
    }
    if changed {
        for &b in &cfg.rpo {
            for k in 0..func.blocks[b].insts.len() {
                let i = func.blocks[b].insts[k];
                func.insts[i].map_uses(|n| substitute(&replaced, n));
            }
            let term = &mut func.blocks[b].term;
            if let Some(n) = term.used_name_mut() {
                *n = substitute(&replaced, *n);
            }
            for t in term.targets_mut() {
                for a in &mut t.args {
                    *a = replaced[*a].unwrap_or(*a);
                }
            }
        }
    }
    changed
}

fn substitute(replaced: &SecondaryMap<Value, Option<Value>>, n: Name) -> Name {
    match n {
        Name::Val(v) => Name::Val(replaced[v].unwrap_or(v)),
        Name::Part(v, i) => Name::Part(replaced[v].unwrap_or(v), i),
        Name::Phys(_) => n,
    }
}

/// The key and the values written; `None` if something other than a value or a zero register is written.
fn key(func: &Function, d: &InstData) -> Option<(Key, SmallVec<[Value; 2]>)> {
    let mut results = SmallVec::new();
    let mut sources = SmallVec::new();
    for (i, o) in d.operands.iter().enumerate() {
        match o {
            Operand::Reg(r) if d.is_def(i) => match r.reg {
                Name::Val(v) => {
                    results.push(v);
                    // Which slots hold values, and of what kind (a copy may write any), is part of the key.
                    let shape = func.values[v];
                    sources.push(Operand::Imm((shape.file as u32) << 16 | u32::from(shape.width) << 8));
                }
                Name::Phys(p) if p.is_zero() => sources.push(Operand::Imm(0)),
                _ => return None,
            },
            _ => sources.push(o.clone()),
        }
    }
    (!results.is_empty()).then(|| ((d.op, d.mods.clone(), sources), results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Terminator, operand};
    use sass::{Opcode, Reg, RegFile, Target};

    #[test]
    fn copies_to_other_files_differ() {
        let mut f = Function::new("k", Target::new(90).expect("a target"));
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let copies = [(RegFile::R, 1), (RegFile::P, 1), (RegFile::R, 2), (RegFile::R, 1)]
            .map(|(file, width)| b.def_macro(Macro::Copy, file, width, &[Operand::Imm(0)]));
        let zero = Operand::reg(Name::Phys(Reg::RZ));
        b.def(Opcode::SEL, &[], &[operand(copies[0]), zero, operand(copies[1])]);
        b.def(
            Opcode::IMAD,
            &[sass::Mod::WIDE],
            &[operand(copies[0]), operand(copies[3]), operand(copies[2])],
        );
        b.terminate(Terminator::Exit);
        run(&mut f);
        assert_eq!(f.to_string().matches("copy").count(), 3, "{f}");
        ori::verify::verify(&f).expect("well-formed");
    }
}
