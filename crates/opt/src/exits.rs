//! What only threads that go on need is computed behind the branch by which the others end: a warp whose threads all end
//! executes none of it. Front ends have done so with what they compute themselves, but not with loads, and lowering adds to it
//! (the window of shared memory, indices of threads). So do weak loads behind which the block writes nothing and orders nothing, as ptxas
//! 13.0.88 has it.

use crate::Pass;
use crate::hoist_loads::space;
use crate::vectorize::separates;
use cranelift_entity::SecondaryMap;
use ori::{Analyses, Block, Changed, Function, Inst, InstData, Name, Op, Terminator, Value};
use rustc_hash::FxHashSet;
use sass::{Mod, Opcode, RegFile};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "behind-exits",
    "LateArchOptimizeFirst",
    "what threads that end don't need is computed behind the branch to the end",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    let mut changed = false;
    // In the order in which blocks follow each other: what went behind one branch may go behind the next.
    for &b in &cfg.rpo {
        let Some(on) = goes_on(func, b).filter(|s| cfg.preds[*s].len() == 1) else { continue };
        let moved = movable(func, b);
        if moved.is_empty() {
            continue;
        }
        changed = true;
        let gone: FxHashSet<Inst> = moved.iter().copied().collect();
        func.blocks[b].insts.retain(|i| !gone.contains(i));
        func.blocks[on].insts.splice(0..0, moved);
    }
    Changed::instructions(changed)
}

/// Where threads go on behind a branch that is otherwise to the end.
fn goes_on(func: &Function, b: Block) -> Option<Block> {
    let Terminator::Branch { taken, fall, .. } = &func.blocks[b].term else { return None };
    let ends = |s: Block| func.blocks[s].insts.is_empty() && func.blocks[s].term == Terminator::Exit;
    match [taken.block, fall.block].map(ends) {
        [true, false] => Some(fall.block),
        [false, true] => Some(taken.block),
        _ => None,
    }
}

/// The instructions of a block that neither its branch nor those that stay need, in their order.
fn movable(func: &Function, b: Block) -> Vec<Inst> {
    let mut needed: SecondaryMap<Value, bool> = SecondaryMap::new();
    let term = &func.blocks[b].term;
    let passed = term.targets().into_iter().flat_map(|t| t.args.iter().map(|v| Name::Val(*v)));
    term.used_name().into_iter().chain(passed).filter_map(Name::value).for_each(|v| needed[v] = true);
    // What lanes make together in uniform registers is read where they are together.
    let mut together: SecondaryMap<Value, bool> = SecondaryMap::new();
    for &i in func.blocks[b].insts.iter().filter(|i| !func.insts[**i].is_pure()) {
        func.insts[i].for_each_def(|n| {
            if let Some(v) = n.value() {
                together[v] = matches!(func.values[v].file, RegFile::UR | RegFile::UP);
            }
        });
    }
    let mut moved: Vec<Inst> = Vec::new();
    // What stays and separates a load in front of it from what is behind it.
    let mut behind: Vec<Inst> = Vec::new();
    for &i in func.blocks[b].insts.iter().rev() {
        let d = &func.insts[i];
        let unchanged = |space| !behind.iter().any(|k| separates(&func.insts[*k], space));
        let (mut makes, mut stays) = (false, !may_go(d) && !space(d).is_some_and(unchanged));
        d.for_each_def(|n| match n.value() {
            Some(v) => {
                makes = true;
                stays |= needed[v];
            }
            None => stays |= n != Name::Phys(sass::Reg::RZ) && n != Name::Phys(sass::Reg::PT),
        });
        d.for_each_use(|n| stays |= n.value().is_some_and(|v| together[v]));
        if makes && !stays {
            moved.push(i);
        } else {
            d.for_each_use(|n| n.value().into_iter().for_each(|v| needed[v] = true));
            if !d.is_pure() {
                behind.push(i);
            }
        }
    }
    moved.reverse();
    moved
}

/// Whether an instruction gives the same wherever it stands, and whichever lanes are left: it computes, or loads what nobody changes while the kernel runs. Its guard, and
/// what it keeps where that is false, are among what it reads.
fn may_go(d: &InstData) -> bool {
    d.is_of_each_lane() && (d.is_pure() || d.op == Op::Sass(Opcode::LDG) && d.mods.has(Mod::CONSTANT))
}

#[cfg(test)]
mod tests {
    use ori::Analyses;

    #[test]
    fn what_others_end_without_goes_behind() {
        let before = "\
function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:UR2 = ULDC.64 c[0x0][0x208]
    v3:R = LDG.E.CONSTANT PT, desc[v2][v1.64], PT
    v4:R = LDG.E PT, desc[v2][v1.64], PT
    v5:R = S2R SR_CTAID.X
    v6:P = ISETP.GT.AND PT, v0, 0x5, PT, PT
    v7:R = IADD3 PT, PT, v3, v5, RZ, !PT, !PT
    branch v6, block1, block2
block1:
    exit
block2:
    v8:P = ISETP.GT.AND PT, v7, 0x5, PT, PT
    branch v8, block1, block3
block3:
    STG.E desc[v2][v1.64], v4
    STG.E desc[v2][v1.64], v5
    exit
}
";
        let mut f = ori::parse::parse(before).unwrap();
        let _ = super::run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap();
        let text = f.to_string();
        let place = |what: &str| text.find(what).unwrap();
        // What the warp reduced is moved to a general register where it was.
        let reduced = before.replace("v5:R = S2R SR_CTAID.X", "v9:UR = REDUX.SUM v0\n    v5:R = copy v9");
        let mut g = ori::parse::parse(&reduced).unwrap_or_else(|e| panic!("{e}: {reduced}"));
        let _ = super::run(&mut g, &Analyses::default());
        assert!(g.to_string().find("= copy v9") < g.to_string().find("block1:"), "{g}");
        // The load stays in front of what changes memory; that, the sum and its operands go.
        let stored = before.replace("    v5:R", "    STG.E desc[v2][v1.64], v0\n    v5:R");
        let mut g = ori::parse::parse(&stored).unwrap_or_else(|e| panic!("{e}: {stored}"));
        let _ = super::run(&mut g, &Analyses::default());
        assert!(g.to_string().find("LDG.E PT") < g.to_string().find("block1:"), "{g}");
        // A whole warp multiplies, whichever lanes have the result in the end.
        let product = before.replace("v7:R = IADD3 PT, PT, v3, v5, RZ, !PT, !PT", "v7:R = MOVM.16.MT88 v3");
        let mut g = ori::parse::parse(&product).unwrap_or_else(|e| panic!("{e}: {product}"));
        let _ = super::run(&mut g, &Analyses::default());
        assert!(g.to_string().find("MOVM") < g.to_string().find("block1:"), "{g}");
        for gone in ["LDG.E PT", "LDG.E.CONSTANT", "SR_CTAID.X", "IADD3"] {
            assert!(place(gone) > place("block2:"), "{text}");
        }
    }
}
