//! Parts blocks at barriers that bring the warp together in their middle, so that what follows begins where all lanes are.
//!
//! Lanes leave a wait at an mbarrier one by one as far as anybody can tell, and the barrier of the block behind it gathers them (its WARPSYNC). What is counted behind it in
//! the same block changes where they are together, as ptxas 13.0.88 has it from sm_90 on (docs/convergence.md); blocks are what the rest of
//! this pass asks about. What only computes in front of the barrier, and nothing there reads, goes behind it.

use super::is_convertible;
use crate::convergence;
use crate::together::{WholeWarp, gathers_all};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::LoopForest;
use ori::{Block, Function, InstData};
use rustc_hash::FxHashSet;
use sass::{Mod, Opcode};

/// Parts them; whether there were any.
pub fn at_barriers(func: &mut Function, cfg: &Cfg) -> bool {
    if !func.entry || func.target.sm < 90 {
        return false;
    }
    let loops = LoopForest::new(cfg, &DomTree::dominators(cfg));
    let candidates: Vec<(Block, usize)> = cfg
        .rpo
        .iter()
        .filter(|b| loops.depth(**b) > 0)
        .filter_map(|b| Some((*b, barrier_in_the_middle(func, *b)?)))
        .collect();
    if candidates.is_empty() {
        return false;
    }
    let mut with_regions = func.clone();
    if convergence::run(&mut with_regions).is_err() {
        return false;
    }
    let apart: Vec<(Block, usize)> = {
        let cfg = Cfg::new(&with_regions);
        let insts = cfg.rpo.iter().flat_map(|b| &with_regions.blocks[*b].insts).copied();
        let meetings: FxHashSet<_> =
            insts.filter(|i| ori::meeting::is_meeting(&with_regions.insts[*i])).collect();
        let warp = WholeWarp::new(&with_regions, &cfg, &meetings);
        candidates.into_iter().filter(|(b, _)| !warp.at_start(*b)).collect()
    };
    for (b, at) in &apart {
        let sunk = sink(func, *b, *at);
        let rest = func.split_block(*b, *at + 2 - sunk.len());
        func.blocks[rest].insts.splice(0..0, sunk);
    }
    !apart.is_empty()
}

/// Where the first WARPSYNC of all lanes in front of a barrier of the block is, if something stands behind the two.
fn barrier_in_the_middle(func: &Function, b: Block) -> Option<usize> {
    let insts = &func.blocks[b].insts;
    let barrier = |d: &InstData| d.opcode() == Some(Opcode::BAR) && d.mods.has(Mod::SYNC) && d.is_unguarded();
    let at = insts.windows(2).position(|pair| {
        let (gathers, then) = (&func.insts[pair[0]], &func.insts[pair[1]]);
        let meets = ori::meeting::is_meeting(gathers);
        gathers_all(gathers) && gathers.is_unguarded() && !meets && barrier(then)
    })?;
    (at + 2 < insts.len()).then_some(at)
}

/// Takes out of the first `end` instructions of a block what might be made in uniform registers and is not read among the others.
fn sink(func: &mut Function, b: Block, end: usize) -> Vec<ori::Inst> {
    let mut read = FixedBitSet::with_capacity(func.values.len());
    let mut sunk = Vec::new();
    for at in (0..end).rev() {
        let i = func.blocks[b].insts[at];
        let d = &func.insts[i];
        let mut wanted = false;
        d.for_each_def(|n| wanted |= n.value().is_none_or(|v| read.contains(v.index())));
        if is_convertible(func, d) && !wanted {
            func.blocks[b].insts.remove(at);
            sunk.push(i);
        } else {
            d.for_each_use(|n| n.value().into_iter().for_each(|v| read.insert(v.index())));
        }
    }
    sunk.reverse();
    sunk
}
