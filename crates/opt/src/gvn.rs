//! Common subexpressions: a pure instruction that repeats a dominating one becomes a copy of its result.
//!
//! Walks the dominator tree with a scoped table; one pass, since values are visited after their operands in
//! reverse postorder except around loops.

use ori::{Analyses, Block, Changed, Editor, Function, Guard, InstData, Macro, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What makes two instructions the same: operation, modifiers and sources, the guard, and what is kept where that does not hold.
type Key = (Op, sass::Mods, SmallVec<[Operand; 6]>, Guard, SmallVec<[Name; 1]>);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let (cfg, dom) = (analyses.cfg(func), analyses.dominators(func));
    let mut table: FxHashMap<Key, (Block, SmallVec<[Value; 2]>)> = FxHashMap::default();
    let mut e = Editor::new(func);
    for &b in &cfg.rpo {
        let mut at = e.first(b);
        while let Some(i) = at {
            at = e.next(i);
            let d = e.data(i);
            if !d.is_pure() || d.op == Op::Macro(Macro::Undef) {
                continue;
            }
            let Some((key, results)) = key(e.func(), d) else { continue };
            match table.get(&key) {
                Some((from, earlier)) if dom.dominates(*from, b) => {
                    results.iter().zip(earlier).for_each(|(new, old)| e.replace_all_uses(*new, *old));
                    e.erase(i);
                }
                _ => _ = table.insert(key, (b, results)),
            }
        }
    }
    e.finish()
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
            _ => sources.push(*o),
        }
    }
    (!results.is_empty()).then(|| ((d.op, d.mods.clone(), sources, d.guard, d.kept.clone()), results))
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
        _ = run(&mut f, &Analyses::default());
        assert_eq!(f.to_string().matches("copy").count(), 3, "{f}");
        ori::verify::verify(&f).expect("well-formed");
    }
}
