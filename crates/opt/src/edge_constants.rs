//! A number that several branches pass to one parameter of a block gets a value of its own, made before the first of them.
//!
//! The moves that put a value into a parameter's register stand in front of the branch, on the way on as well. A number that is one value for
//! many parameters can share the register of one of them alone: every branch then has moves for all others, as in code that loads
//! element after element and leaves when there is no more, the rest being zero. A value for each parameter is made once, in the parameter's
//! register.

use crate::Pass;
use ori::{
    ALWAYS, Analyses, Block, Changed, Function, InstData, Macro, Op, Operand, Terminator, Value, ValueData,
    operand,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Mods, RegFile};
use std::collections::BTreeMap;
use thin_vec::thin_vec;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "edge-constants",
    "OriCopyProp",
    "a number that several branches pass to a parameter in a value of its own",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let numbers = numbers(func);
    if numbers.is_empty() {
        return Changed::Nothing;
    }
    let (cfg, dom, loops) = (analyses.cfg(func), analyses.dominators(func), analyses.loops(func));
    // By parameter and number: the blocks that pass it by a branch, in a loop or in none, and where it would be made.
    let mut passed: BTreeMap<(Block, usize, Value, Option<ori::loops::Loop>), Vec<Block>> = BTreeMap::new();
    let mut shared: FxHashMap<Value, FxHashSet<(Block, usize)>> = FxHashMap::default();
    for &b in &cfg.rpo {
        let branches = matches!(func.blocks[b].term, Terminator::Branch { .. });
        for t in func.blocks[b].term.targets() {
            for (k, v) in t.args.iter().enumerate().filter(|(_, v)| numbers.contains_key(*v)) {
                shared.entry(*v).or_default().insert((t.block, k));
                if branches && cfg.preds[t.block].len() > 1 {
                    passed.entry((t.block, k, *v, loops.innermost(b))).or_default().push(b);
                }
            }
        }
    }
    let mut changed = false;
    for ((to, k, v, _), from) in passed {
        if from.len() < 2 || shared[&v].len() < 2 {
            continue;
        }
        let Some(at) = from.iter().copied().reduce(|a, b| dom.common(a, b)) else { continue };
        let own = func.add_value(RegFile::R, 1);
        let inst = func.insts.push(InstData {
            guard: ALWAYS,
            op: Op::Macro(Macro::Copy),
            mods: Mods::none(),
            operands: thin_vec![operand(own), numbers[&v]],
            kept: thin_vec![],
            loc: func.blocks[at].term_loc,
        });
        func.blocks[at].insts.push(inst);
        for b in from {
            for t in func.blocks[b].term.targets_mut() {
                if t.block == to && t.args[k] == v {
                    t.args[k] = own;
                }
            }
        }
        changed = true;
    }
    Changed::instructions(changed)
}

/// The values of one register that are numbers, and which.
fn numbers(func: &Function) -> FxHashMap<Value, Operand> {
    let insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    let numbers = insts.filter_map(|i| crate::copy_prop::number(&func.insts[*i]));
    numbers.filter(|(v, _)| func.values[*v] == ValueData { file: RegFile::R, width: 1 }).collect()
}
