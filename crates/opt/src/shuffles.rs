//! Shuffles by which all lanes read one lane of what does not change in a loop leave it, with the WARPSYNC that brings their lanes together: the
//! number of a warp is found so, again in each round, in front of products of warp groups and of tensor memory. ptxas has them before the loop.
//!
//! All lanes do so together: where a branch takes lanes apart, neither the shuffle nor the place in front of the loop lies between that and where
//! they meet again, and each round comes to the shuffle before it can leave. So the lanes that come to it the first time are those that
//! come to the place in front.

use crate::Pass;
use crate::invariants::Way;
use crate::sums::value_of;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::loops::Loop;
use ori::meeting::MARK;
use ori::{Analyses, Block, Changed, Editor, Function, Inst, InstData, Operand, Value};
use rustc_hash::FxHashMap;
use sass::Mods;
use sass::ops::{Shfl, Warpsync};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "shuffles",
    "OriHoistInvariantsEarly",
    "shuffles by which all lanes read one lane of what does not change in a loop go before it, if all lanes go through it together",
    run,
);

/// A shuffle and its WARPSYNC, and the loop that they leave.
struct Leaving {
    gathers: Inst,
    shuffle: Inst,
    out_of: Loop,
}

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let shuffles = |b: &Block| func.blocks[*b].insts.iter().any(|i| func.insts[*i].gives_all_the_same());
    let loops = analyses.loops(func);
    if loops.loops.is_empty() || !func.layout.iter().any(|b| shuffles(b) && loops.depth(*b) > 0) {
        return Changed::Nothing;
    }
    let apart = apart(func, analyses);
    let mut made: SecondaryMap<Value, Option<Block>> = SecondaryMap::new();
    for &b in &analyses.cfg(func).rpo {
        func.blocks[b].params.iter().for_each(|p| made[*p] = Some(b));
        for i in &func.blocks[b].insts {
            func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(|v| made[v] = Some(b)));
        }
    }
    let mut leaving: Vec<Leaving> = Vec::new();
    for &b in analyses.cfg(func).rpo.iter().filter(|b| !apart.contains(b.index())) {
        for pair in func.blocks[b].insts.windows(2) {
            let (gathers, shuffle) = (pair[0], pair[1]);
            if !gathers_all(&func.insts[gathers]) {
                continue;
            }
            let Some(v) = read_by_all(&func.insts[shuffle]) else { continue };
            // The outermost loop around it in which nothing changes it.
            let mut out_of = None;
            let mut within = loops.innermost(b);
            while let Some(l) = within {
                let unchanged = made[v].is_none_or(|at| !loops.contains(l, at));
                let together = !apart.contains(loops.loops[l].header.index());
                if !unchanged || !together || !comes_to(func, analyses, l, b) {
                    break;
                }
                out_of = Some(l);
                within = loops.loops[l].parent.expand();
            }
            leaving.extend(out_of.map(|out_of| Leaving { gathers, shuffle, out_of }));
        }
    }
    let mut ways: FxHashMap<Loop, Way> = FxHashMap::default();
    for l in &leaving {
        if let Some(way) = Way::into(func, analyses, l.out_of) {
            ways.insert(l.out_of, way);
        }
    }
    let mut e = Editor::new(func);
    let mut before: FxHashMap<Loop, Block> = FxHashMap::default();
    for l in leaving {
        let Some(way) = ways.get(&l.out_of) else { continue };
        let b = *before.entry(l.out_of).or_insert_with(|| way.block_in_front(&mut e));
        e.move_to_end(l.gathers, b);
        e.move_to_end(l.shuffle, b);
    }
    e.finish()
}

/// Whether it is the WARPSYNC of all lanes that belongs to the instruction behind it.
fn gathers_all(d: &InstData) -> bool {
    let marked = d.mods == Mods::of(&[MARK]) && d.is_unguarded();
    marked && Warpsync::of(d).is_some_and(|s| *s.lanes == Operand::Imm(!0))
}

/// What a shuffle reads of one lane for all.
fn read_by_all(d: &InstData) -> Option<Value> {
    value_of(Shfl::of(d).filter(|_| d.gives_all_the_same())?.a)
}

/// Whether every round of a loop comes to `b` before it ends or leaves.
fn comes_to(func: &Function, analyses: &Analyses, l: Loop, b: Block) -> bool {
    let data = &analyses.loops(func).loops[l];
    let dom = analyses.dominators(func);
    let leaves = data.exits.iter().map(|(from, _)| from);
    data.latches.iter().chain(leaves).all(|x| dom.dominates(b, *x))
}

/// The blocks between where lanes part and where all of them meet again.
fn apart(func: &Function, analyses: &Analyses) -> FixedBitSet {
    let cfg = analyses.cfg(func);
    let meet = analyses.postdominators(func);
    let mut out = FixedBitSet::with_capacity(func.blocks.len());
    for &b in cfg.rpo.iter().filter(|b| analyses.uniformity(func).is_divergent_branch(**b)) {
        let end = meet.ipdom(b);
        let mut seen = FixedBitSet::with_capacity(func.blocks.len());
        let mut more: Vec<Block> = cfg.succs[b].to_vec();
        while let Some(x) = more.pop() {
            if Some(x) != end && !seen.put(x.index()) {
                more.extend(&cfg.succs[x]);
            }
        }
        out.union_with(&seen);
    }
    out
}
