//! What both arms of a branch do is done before it: loads are on their way earlier, and what is left in the arms may be short enough to be
//! executed under guards. Nothing is executed by more threads than before.

use crate::Pass;
use crate::hoist_loads::space;
use crate::vectorize::separates;
use ori::{Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Terminator, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::RegFile;
use smallvec::SmallVec;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "common-code",
    "OriHoistInvariantsLate",
    "loads and computations that stand in both arms of a branch go before it, up to sixteen words",
    run,
);

/// Registers that results of one branch's arms may take before it.
const WORDS: u32 = 16;
/// Instructions of an arm that are looked at.
const LOOKED_AT: usize = 64;

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    let mut changed = false;
    // Inner branches first: what comes out of them may be common further out.
    for &b in cfg.rpo.iter().rev() {
        let Terminator::Branch { taken, fall, .. } = &func.blocks[b].term else { continue };
        let arms = [taken.block, fall.block];
        let own = |s: Block| cfg.preds[s].len() == 1 && func.blocks[s].params.is_empty();
        if arms[0] == arms[1] || !arms.into_iter().all(own) {
            continue;
        }
        let pairs = common(func, arms);
        changed |= !pairs.is_empty();
        for (one, other) in pairs {
            func.blocks[arms[0]].insts.retain(|i| *i != one);
            func.blocks[b].insts.push(one);
            let (Some(from), Some(to)) = (result(&func.insts[one]), result(&func.insts[other])) else {
                continue;
            };
            func.insts[other].become_copy(ori::operand(to), ori::operand(from));
        }
    }
    Changed::instructions(changed)
}

/// The only value that an instruction makes.
fn result(d: &InstData) -> Option<Value> {
    let mut made: SmallVec<[Name; 2]> = SmallVec::new();
    d.for_each_def(|n| made.push(n));
    let mut values = made.into_iter().filter_map(Name::value);
    values.next().filter(|_| values.next().is_none())
}

/// What the arms have in common, in the order of the first: pairs of instructions that do the same, which may both stand where the arms begin.
fn common(func: &Function, arms: [Block; 2]) -> Vec<(Inst, Inst)> {
    let [firsts, others] = arms.map(|s| Arm::new(func, s));
    let mut pairs: Vec<(Inst, Inst)> = Vec::new();
    // What the second arm's results are called, and that of both is there before.
    let mut names: FxHashMap<Value, Value> = FxHashMap::default();
    let mut there: Vec<Value> = Vec::new();
    let mut words = 0;
    for &(one, mine) in &firsts.may {
        let d = &func.insts[one];
        let Some(v) = mine.filter(|_| firsts.is_available(d, &there)) else { continue };
        let shape = func.values[v];
        // There are seven uniform predicates, and what holds one has no other place to go.
        if shape.file == RegFile::UP {
            continue;
        }
        let same = others.may.iter().find(|(k, found)| {
            let of = &func.insts[*k];
            let fits = found.is_some_and(|w| func.values[w] == shape);
            fits && !pairs.iter().any(|p| p.1 == *k) && is_same(d, of, &names)
        });
        if let Some(&(other, Some(w))) = same
            && words + u32::from(shape.width) <= WORDS
        {
            words += u32::from(shape.width);
            names.insert(w, v);
            there.push(v);
            pairs.push((one, other));
        }
    }
    pairs
}

/// Whether both do the same, apart from what their results are called.
fn is_same(a: &InstData, b: &InstData, names: &FxHashMap<Value, Value>) -> bool {
    if a.op != b.op || a.mods != b.mods || a.operands.len() != b.operands.len() {
        return false;
    }
    let known = |n: Name| match n {
        Name::Val(v) => Name::Val(names.get(&v).copied().unwrap_or(v)),
        Name::Part(v, k) => Name::Part(names.get(&v).copied().unwrap_or(v), k),
        Name::Phys(_) => n,
    };
    let mut b = b.clone();
    b.map_uses(known);
    let value = |o: &Operand| matches!(o, Operand::Reg(r) if r.reg.value().is_some());
    (0..a.operands.len()).all(|k| {
        let (x, y) = (&a.operands[k], &b.operands[k]);
        x == y || a.is_def(k) && value(x) && value(y)
    })
}

/// An arm of a branch.
struct Arm {
    /// What may stand at its start as far as memory is concerned, with what it makes.
    may: Vec<(Inst, Option<Value>)>,
    /// What it makes.
    made: FxHashSet<Value>,
}

impl Arm {
    fn new(func: &Function, block: Block) -> Arm {
        let insts = &func.blocks[block].insts;
        let mut made = FxHashSet::default();
        for i in insts {
            func.insts[*i].for_each_def(|n| made.extend(n.value()));
        }
        let mut may = Vec::new();
        for (k, &i) in insts.iter().take(LOOKED_AT).enumerate() {
            let d = &func.insts[i];
            let fits = match (d.op, space(d)) {
                (_, Some(space)) => !insts[..k].iter().any(|p| separates(&func.insts[*p], space)),
                (Op::Macro(m), None) => m == Macro::Collect && d.is_unguarded(),
                (Op::Sass(_), None) => d.is_unguarded() && d.is_pure() && d.is_of_each_lane(),
            };
            if fits {
                may.push((i, result(d)));
            }
        }
        Arm { may, made }
    }

    /// Whether all that an instruction reads is there where the arm begins, with `there`.
    fn is_available(&self, d: &InstData, there: &[Value]) -> bool {
        let mut all = true;
        d.for_each_use(|n| {
            all &= match n {
                Name::Val(v) | Name::Part(v, _) => !self.made.contains(&v) || there.contains(&v),
                Name::Phys(r) => r.is_zero() || r == sass::Reg::SP,
            };
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many loads stand before the branch, after the pass.
    fn before(first: &str, second: &str) -> usize {
        let f = crate::testing::branched(
            &format!(
                "block1:
    {first}
    STS [0x8], v6
    jump block3
block2:
    {second}
    STS [0x4], v7
    jump block3
block3:"
            ),
            run,
        );
        let entry = f.entry_block();
        f.blocks[entry].insts.iter().filter(|i| space(&f.insts[**i]).is_some()).count()
    }

    const FIRST: &str =
        "v4:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    v6:R = LDG.E PT, desc[v0][v4.64+0x8], PT";

    #[test]
    fn a_load_of_both_arms_goes_before_the_branch() {
        let same = "v5:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    v7:R = LDG.E PT, desc[v0][v5.64+0x8], PT";
        assert_eq!(before(FIRST, same), 1);
        // Something else may come first.
        let later = format!("v8:R = IADD3 PT, PT, v2, 0x1, RZ, !PT, !PT\n    STS [v8], v2\n    {same}");
        assert_eq!(before(FIRST, &later), 1);
    }

    #[test]
    fn others_stay() {
        for second in [
            // Another place, another opcode.
            "v5:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    v7:R = LDG.E PT, desc[v0][v5.64+0xc], PT",
            "v5:R2 = IMAD.WIDE PT, v2, 0x8, v1, !PT\n    v7:R = LDG.E PT, desc[v0][v5.64+0x8], PT",
            "v5:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    v7:R = LDG.E.U8 PT, desc[v0][v5.64+0x8], PT",
            // What it reads may have been written.
            "v5:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    STG.E desc[v0][v1.64], v2\n    v7:R = LDG.E PT, desc[v0][v5.64+0x8], PT",
            "v5:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    BAR.SYNC 0x0, 0x0, PT\n    v7:R = LDG.E PT, desc[v0][v5.64+0x8], PT",
            "v5:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT\n    v7:R = LDG.E.STRONG.GPU PT, desc[v0][v5.64+0x8], PT",
        ] {
            assert_eq!(before(FIRST, second), 0, "{second}");
        }
    }
}
