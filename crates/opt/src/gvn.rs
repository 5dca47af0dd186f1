//! Common subexpressions: a pure instruction that repeats a dominating one becomes a copy of its result.
//!
//! Walks the dominator tree with a scoped table; one pass, since values are visited after their operands in
//! reverse postorder except around loops. A comparison that is true where a dominating one is false becomes the complement of its
//! result.

use crate::Pass;
use crate::known_memory::{Found, Memory};
use crate::setp_combine;
use ori::cfg::DomTree;
use ori::edit::Def;
use ori::{
    Analyses, Block, Changed, Editor, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand,
};
use rustc_hash::{FxHashMap, FxHasher};
use sass::ops::Plop3;
use sass::{Mods, RegOp, SwapChange};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// An instruction that others may repeat, its block, and what it makes.
type Made = (Inst, Block, SmallVec<[Value; 2]>);

/// The instructions that were made, by what makes two the same: operation, modifiers and sources, the guard, and what is kept where that
/// does not hold. Only the hash is stored; what an instruction is, the function says.
#[derive(Default)]
struct Table(FxHashMap<u64, SmallVec<[Made; 1]>>);

impl Table {
    /// What an instruction like `d`, but for these modifiers, has made already where `b` is executed.
    fn find(&self, e: &Editor<'_>, dom: &DomTree, b: Block, d: &InstData, mods: &Mods) -> Option<&[Value]> {
        let alike = |(earlier, from, results): &&Made| {
            // What makes these values has not gone as dead code meanwhile.
            dom.dominates(*from, b) && all_made(e, results) && same(e.func(), e.data(*earlier), d, mods)
        };
        self.0
            .get(&hash(e.func(), d, mods))?
            .iter()
            .rev()
            .find(alike)
            .map(|(_, _, results)| results.as_slice())
    }

    /// Remembers what `i` makes, in place of what is like it elsewhere.
    fn insert(&mut self, func: &Function, i: Inst, b: Block, results: SmallVec<[Value; 2]>) {
        let d = &func.insts[i];
        let entry = self.0.entry(hash(func, d, &d.mods)).or_default();
        match entry.iter_mut().find(|(earlier, ..)| same(func, &func.insts[*earlier], d, &d.mods)) {
            Some(made) => *made = (i, b, results),
            None => entry.push((i, b, results)),
        }
    }
}

/// What of an operand counts: of a result whether it is a value, and of what kind (a copy may write any).
fn counts(func: &Function, d: &InstData, slot: usize) -> Operand {
    match &d.operands[slot] {
        Operand::Reg(RegOp { reg: Name::Val(v), .. }) if d.is_def(slot) => {
            let shape = func.values[*v];
            Operand::Imm(1 << 24 | (shape.file as u32) << 16 | u32::from(shape.width) << 8)
        }
        Operand::Reg(_) if d.is_def(slot) => Operand::Imm(0),
        source => *source,
    }
}

/// The sources of which any two may be exchanged with nothing else changed.
fn exchangeable(d: &InstData) -> &'static [u8] {
    match d.opcode().map(|op| op.info()) {
        Some(info) if info.swap_changes == SwapChange::Nothing => info.swap,
        _ => &[],
    }
}

/// Which other slots there are, beside some.
fn others<'d>(d: &'d InstData, but: &'static [u8]) -> impl Iterator<Item = usize> + 'd {
    (0..d.operands.len()).filter(|k| !but.contains(&(*k as u8)))
}

fn hash(func: &Function, d: &InstData, mods: &Mods) -> u64 {
    let mut h = FxHasher::default();
    (d.op, mods, d.guard).hash(&mut h);
    let swap = exchangeable(d);
    others(d, swap).for_each(|k| counts(func, d, k).hash(&mut h));
    // The same in any order.
    let one = |k: &u8| {
        let mut h = FxHasher::default();
        d.operands[usize::from(*k)].hash(&mut h);
        h.finish()
    };
    swap.iter().map(one).fold(0u64, u64::wrapping_add).hash(&mut h);
    d.kept.hash(&mut h);
    h.finish()
}

fn same(func: &Function, a: &InstData, b: &InstData, mods: &Mods) -> bool {
    let swap = exchangeable(a);
    let exchanged = || {
        let mut left: SmallVec<[&Operand; 3]> = swap.iter().map(|k| &b.operands[usize::from(*k)]).collect();
        swap.iter().all(|k| {
            let at = left.iter().position(|o| **o == a.operands[usize::from(*k)]);
            at.map(|at| left.swap_remove(at)).is_some()
        })
    };
    (a.op, &a.mods, a.guard) == (b.op, mods, b.guard)
        && a.kept == b.kept
        && a.operands.len() == b.operands.len()
        && others(a, swap).all(|k| counts(func, a, k) == counts(func, b, k))
        && exchanged()
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "gvn",
    "GvnCse",
    "repeated computations; loads of what was loaded or stored before, if nothing since may have changed it (`known_memory.rs`); comparisons that are the opposite of another, and complements",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let (cfg, dom) = (analyses.cfg(func), analyses.dominators(func));
    let mut table = Table::default();
    // What is known of memory at the ends of blocks that alone lead to another.
    let mut ends: FxHashMap<Block, Memory> = FxHashMap::default();
    let mut e = Editor::new(func);
    for &b in &cfg.rpo {
        let mut memory = match cfg.preds[b][..] {
            [before] if b != cfg.rpo[0] => ends.get(&before).cloned().unwrap_or_default(),
            _ => Memory::default(),
        };
        let mut at = e.first(b);
        while let Some(i) = at {
            at = e.next(i);
            step(&mut e, &mut memory, i);
            if e.block_of(i).is_none() {
                continue;
            }
            let d = e.data(i);
            if !d.is_pure() || d.op == Op::Macro(Macro::Undef) {
                continue;
            }
            if let Some((new, old)) = complement(d)
                && e.replace_all_uses_with_complement(new, old)
            {
                continue;
            }
            let d = e.data(i);
            let Some(results) = results(d) else { continue };
            if let Some(earlier) = table.find(&e, dom, b, d, &d.mods) {
                let earlier: SmallVec<[Value; 2]> = earlier.into();
                results.iter().zip(earlier).for_each(|(new, old)| e.replace_all_uses(*new, old));
                e.erase(i);
                continue;
            }
            // A comparison that is true where an earlier one is false.
            if let Some(opposite) = opposite(d)
                && let Some(&[old]) = table.find(&e, dom, b, d, &opposite)
                && let &[new] = &results[..]
                && e.replace_all_uses_with_complement(new, old)
            {
                e.erase(i);
                continue;
            }
            table.insert(e.func(), i, b, results);
        }
        if cfg.succs[b].iter().any(|s| cfg.preds[*s].len() == 1) {
            ends.insert(b, memory);
        }
    }
    e.finish()
}

/// Whether what makes these values has not gone as dead code meanwhile.
fn all_made(e: &Editor<'_>, values: &[Value]) -> bool {
    values.iter().all(|v| !matches!(e.def(*v), Def::None))
}

/// Steps over an instruction with what is known of memory; a load of that goes, or becomes a copy.
fn step(e: &mut Editor<'_>, memory: &mut Memory, i: Inst) {
    let d = e.data(i);
    if d.is_pure() {
        return;
    }
    let results = results(d).unwrap_or_default();
    let values = &e.func().values;
    let width =
        |n: Name| n.value().map_or(1, |v| if matches!(n, Name::Val(_)) { values[v].width } else { 1 });
    let Some(found) = memory.step(d, &results, width) else { return };
    match found {
        Found::Values(known) if all_made(e, &known) => {
            results.iter().zip(known).for_each(|(new, old)| e.replace_all_uses(*new, old));
            e.erase(i);
        }
        // A store still reads it.
        Found::Copy(Name::Val(v)) if values[v] == values[results[0]] => {
            e.replace_all_uses(results[0], v);
            e.erase(i);
        }
        Found::Copy(n) if values[results[0]].width == 1 => e.change(i, |d| {
            d.become_copy(operand(results[0]), operand(n));
        }),
        Found::Values(_) | Found::Copy(_) => {}
    }
}

/// A predicate that is made the complement of another, and that one.
fn complement(d: &InstData) -> Option<(Value, Value)> {
    let is_true = |o: &Operand| *o == Operand::reg(Name::Phys(sass::Reg::PT));
    let s = Plop3::of(d).filter(|_| d.is_unguarded())?;
    let (Operand::Reg(new), Operand::Reg(old), Operand::Imm(table)) = (s.p, s.a, s.table) else {
        return None;
    };
    // The others being true, these rows remain.
    let inverts = (*table >> 7 & 1, *table >> 3 & 1) == (0, 1);
    let alone = [s.q, s.b, s.c].into_iter().all(is_true) && !old.not;
    Some((new.reg.value()?, old.reg.value()?)).filter(|_| inverts && alone)
}

/// The modifiers of the comparison with the opposite result, if it is a comparison that takes in nothing else.
fn opposite(d: &InstData) -> Option<Mods> {
    let op = d.opcode().filter(|_| setp_combine::takes_part(d))?;
    setp_combine::opposite(op, &d.mods)
}

/// The values written; `None` if there are none, or something other than a value or a zero register is written.
fn results(d: &InstData) -> Option<SmallVec<[Value; 2]>> {
    let mut results = SmallVec::new();
    for (slot, o) in d.operands.iter().enumerate() {
        match o {
            Operand::Reg(r) if d.is_def(slot) => match r.reg {
                Name::Val(v) => results.push(v),
                Name::Phys(p) if p.is_zero() => {}
                _ => return None,
            },
            _ => {}
        }
    }
    (!results.is_empty()).then_some(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Terminator, operand};
    use sass::Opcode;
    use sass::{Reg, RegFile, Target};

    #[test]
    fn copies_to_other_files_differ() {
        let mut f = Function::new("k", Target::new(90).expect("a target"));
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let copies = [(RegFile::R, 1), (RegFile::P, 1), (RegFile::UR, 1), (RegFile::R, 1)]
            .map(|(file, width)| b.def_macro(Macro::Copy, file, width, &[Operand::Imm(0)]));
        let zero = Operand::reg(Name::Phys(Reg::RZ));
        b.def(Opcode::SEL, &[], &[operand(copies[0]), zero, operand(copies[1])]);
        b.def(Opcode::IADD3, &[], &[operand(copies[0]), operand(copies[2]), operand(copies[3])]);
        b.terminate(Terminator::Exit);
        _ = run(&mut f, &Analyses::default());
        assert_eq!(f.to_string().matches("copy").count(), 3, "{f}");
        ori::verify::verify(&f).expect("well-formed");
    }
    /// The function after the pass.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = LDS [0x0]\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn sums_of_the_same_in_another_order_are_one() {
        let load = "    v1:R = LDS [0x8]\n    v2:R = LDS [0xc]\n";
        let pair = |first: &str, second: &str| {
            let got = after(&format!(
                "{load}    v3:R = {first}\n    v4:R = {second}\n    STS [0x0], v3\n    STS [0x4], v4\n"
            ));
            got.contains("STS [0x4], v3")
        };
        let three = |a: &str, b: &str, c: &str| format!("IADD3 PT, PT, {a}, {b}, {c}, !PT, !PT");
        assert!(pair(&three("v0", "v1", "-v2"), &three("-v2", "v0", "v1")));
        assert!(!pair(&three("v0", "v1", "-v2"), &three("v2", "v0", "v1")));
        assert!(!pair(&three("v0", "v0", "v1"), &three("v0", "v1", "v1")));
        assert!(pair("FFMA v0, v1, v2", "FFMA v1, v0, v2"));
        assert!(!pair("FFMA v0, v1, v2", "FFMA v0, v2, v1"));
        // What another slot says belongs to one of them.
        assert!(!pair("SEL v0, v1, PT", "SEL v1, v0, PT"));
    }

    #[test]
    fn opposite_comparisons_are_one() {
        let pair = |first: &str, second: &str, uses: &str| {
            after(&format!("    v1:P = {first}\n    v2:P = {second}\n{uses}"))
        };
        let uses =
            "    @v1 STS [0x0], v0\n    @!v2 STS [0x4], v0\n    v3:R = SEL v0, RZ, v2\n    STS [0x8], v3\n";
        let got = pair("FSETP.GE.AND PT, v0, 0x3f800000, PT", "FSETP.LTU.AND PT, v0, 0x3f800000, PT", uses);
        for want in ["@v1 STS [0x0]", "@v1 STS [0x4]", "SEL v0, RZ, ~v1"] {
            assert!(got.contains(want), "{want}: {got}");
        }
        assert!(!got.contains("LTU"), "{got}");
        assert!(
            !pair("ISETP.GE.U32.AND PT, v0, 0x7, PT, PT", "ISETP.LT.U32.AND PT, v0, 0x7, PT, PT", uses)
                .contains("LT.U32")
        );
        // Where one may be NaN both are false; other signs; what adds a third predicate; what is passed on.
        for (first, second) in [
            ("FSETP.GE.AND PT, v0, 0x7, PT", "FSETP.LT.AND PT, v0, 0x7, PT"),
            ("ISETP.GE.U32.AND PT, v0, 0x7, PT, PT", "ISETP.LT.AND PT, v0, 0x7, PT, PT"),
            ("ISETP.GE.AND PT, v0, 0x7, PT, PT", "ISETP.LT.AND PT, v0, 0x7, v1, PT"),
        ] {
            assert!(pair(first, second, uses).contains("v2:P = "), "{second}");
        }
        let kept = "    v3:P = copy v2\n    @v3 STS [0x0], v0\n";
        assert!(
            pair("ISETP.GE.AND PT, v0, 0x7, PT, PT", "ISETP.LT.AND PT, v0, 0x7, PT, PT", kept)
                .contains("v2:P = ")
        );
    }
}
