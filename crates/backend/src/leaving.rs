//! Regions that some lanes leave: where ways meet again inside of a region, lanes that came apart go on together from there, and need not
//! wait for those that go elsewhere; these say so by BREAK before they branch away.
//!
//! Of switches whose cases fall through into each other, of `break` and `continue` under conditions, of the rests of unrolled loops that are
//! entered at several places. Without such a region each group of lanes executes what follows the meeting for itself.
//!
//! ```text
//!         d        BSSY B0, y; BSSY B1, m     m is no postdominator of d: there is a way d, b, x, y.
//!        / \
//!       a   b      b: @P BREAK B1; @P BRA x
//!        \ / \
//!         m   x    m: BSYNC B1
//!          \ /
//!           y      BSYNC B0
//! ```
//!
//! A lane at the BSYNC waits for those that came through `d` and have neither come nor left. It never waits for more than work between `d`
//! and the meeting. What has to be sure besides: lanes that left must not set the barrier anew while others wait at it. So they must come to
//! the end of a region around `d`, where all are waited for, before they can come to `d` again; no other region may have its
//! barrier, as it might be one that lanes enter behind their way out (`regalloc` keeps it for the whole function); and nobody calls a function
//! in it: that may keep the barrier's lanes in a register while it has a region of its own there, and give back those that have left since.

use crate::convergence::{Exit, Region, calls};
use crate::waits::{Spins, ends_thread, gathers_lanes};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use ori::block_set::{BlockSet, Seen};
use ori::cfg::{Cfg, DomTree, PostDom};
use ori::{Block, Function, Guard, Terminator};
use rustc_hash::FxHashMap;
use sass::RegFile;

/// What is known of a function whose regions are sought.
pub struct Search<'f, P> {
    pub func: &'f Function,
    pub cfg: &'f Cfg,
    pub dom: &'f DomTree,
    pub post: &'f PostDom,
    pub spins: &'f Spins<'f>,
    /// Whether lanes part at the end of a block.
    pub parts: P,
}

/// The walks through regions.
struct Walks {
    seen: Seen,
    /// Blocks that may still be looked at.
    patience: usize,
    /// Blocks in which lanes may wait until others have come, or call a function.
    gathering: FixedBitSet,
}

/// Fewest instructions behind a meeting for which it is of use.
const WORTH: usize = 4;
/// Most regions that begin in one block. ptxas has one, the last (docs/convergence.md); with three, 61 kernels of
/// HeCBench take 0.2 % fewer cycles.
const TOGETHER: usize = 3;
/// Blocks that may be looked at, for each block of the function.
const PATIENCE: usize = 24;

impl<P: Fn(Block) -> bool> Search<'_, P> {
    /// The regions that lanes leave, the last meetings of each entry. `whole`: those that no lane leaves; `room`: the most that can be had.
    pub fn run(&self, whole: &[Region], room: usize) -> Vec<Region> {
        if room == 0 {
            return Vec::new();
        }
        let waits = |b: &&Block| gathers_lanes(self.func, **b) || calls(self.func, **b);
        let mut w = Walks {
            seen: Seen::new(self.func.blocks.len()),
            patience: PATIENCE * self.cfg.rpo.len(),
            gathering: self.cfg.rpo.iter().filter(waits).map(|b| b.index()).collect(),
        };
        let mut found: Vec<Region> = Vec::new();
        let mut entries: FxHashMap<Block, usize> = FxHashMap::default();
        for &meet in self.cfg.rpo.iter().rev() {
            if self.cfg.preds[meet].len() < 2 {
                continue;
            }
            let Some(enter) = self.dom.idom(meet) else { continue };
            if self.post.dominates(meet, enter) || entries.get(&enter).is_some_and(|n| *n == TOGETHER) {
                continue;
            }
            if let Some(r) = self.region(enter, meet, &mut w)
                && !self.waits_for_waiting(&r, whole)
                && self.is_worthwhile(&r, &mut w)
                && self.returns_late(&r, whole, &mut w)
            {
                *entries.entry(enter).or_insert(0) += 1;
                found.push(r);
            }
            if w.patience == 0 || found.len() == room {
                break;
            }
        }
        found
    }

    /// The region from `enter`, the immediate dominator, to `meet`.
    fn region(&self, enter: Block, meet: Block, w: &mut Walks) -> Option<Region> {
        w.seen.restart();
        w.seen.put(enter);
        let mut body = vec![enter];
        let mut stack: Vec<Block> = Vec::new();
        // What is dominated by the meeting leads back to it: a loop.
        for &p in self.cfg.preds[meet].iter().filter(|p| !self.dom.dominates(meet, **p)) {
            if !w.seen.put(p) {
                body.push(p);
                stack.push(p);
            }
        }
        while let Some(b) = stack.pop() {
            w.patience = w.patience.saturating_sub(1);
            // Lanes that have met come into the region again, or wait in it.
            if w.patience == 0 || self.dom.dominates(meet, b) || w.gathering.contains(b.index()) {
                return None;
            }
            for &p in &self.cfg.preds[b] {
                if !w.seen.put(p) {
                    body.push(p);
                    stack.push(p);
                }
            }
        }
        if !body.iter().any(|b| (self.parts)(*b)) {
            return None;
        }
        let body = BlockSet::new(body, self.func.blocks.len());
        // Round a loop that begins at the entry they would set the barrier anew.
        if body.iter().any(|b| self.cfg.succs[b].contains(&enter)) {
            return None;
        }
        let mut exits = Vec::new();
        for b in body.iter() {
            for &s in self.cfg.succs[b].iter().filter(|s| **s != meet && !body.contains(**s)) {
                // EXIT takes lanes out of all barriers. Where more is done before it, they may have to wait at the end of another region.
                if self.ends_at_once(s) {
                    continue;
                }
                match &self.func.blocks[b].term {
                    Terminator::Branch { cond, not, taken, fall }
                        if taken.block != fall.block && self.func.shape(*cond).file == RegFile::P =>
                    {
                        let lanes = Guard { pred: *cond, not: *not == (taken.block == s) };
                        exits.push(Exit { from: b, to: s, lanes });
                    }
                    _ => return None,
                }
            }
        }
        let waits = !self.spins.among(&body, Some(meet)).is_empty();
        (!waits && !exits.is_empty()).then_some(Region { enter, meet, body, exits })
    }

    /// Whether nothing but EXIT is left to do in a block, behind jumps at most.
    fn ends_at_once(&self, b: Block) -> bool {
        let mut at = b;
        for _ in 0..self.cfg.rpo.len() {
            let data = &self.func.blocks[at];
            match &data.term {
                Terminator::Jump(to) if data.insts.is_empty() && to.args.is_empty() => at = to.block,
                _ => return data.insts.is_empty() && ends_thread(self.func, at),
            }
        }
        false
    }

    /// Whether lanes at the meeting would wait for others that wait for them: at the end of a region inside, which they have left for the end of
    /// the thread. That takes lanes out of all barriers, so nothing there says that they leave; but here they meet before.
    fn waits_for_waiting(&self, r: &Region, whole: &[Region]) -> bool {
        let inside = |o: &&Region| o.meet != r.meet && r.body.contains(o.meet);
        let comes = |o: &Region| self.cfg.preds[r.meet].iter().any(|p| o.body.contains(*p));
        whole.iter().filter(inside).any(comes)
    }

    /// Whether lanes that part may come to the meeting by both ways, and enough follows that they execute together then.
    fn is_worthwhile(&self, r: &Region, w: &mut Walks) -> bool {
        let comes = |b: &Block| *b == r.meet || r.body.contains(*b);
        if !r.body.iter().any(|b| (self.parts)(b) && self.cfg.succs[b].iter().all(comes)) {
            return false;
        }
        let mut follows = 0;
        w.seen.restart();
        w.seen.put(r.meet);
        let mut stack = vec![r.meet];
        while let Some(b) = stack.pop() {
            w.patience = w.patience.saturating_sub(1);
            follows += self.func.blocks[b].insts.len();
            if follows >= WORTH || w.patience == 0 {
                break;
            }
            let own = |s: &&Block| self.dom.dominates(r.meet, **s);
            stack.extend(self.cfg.succs[b].iter().filter(own).filter(|s| !w.seen.put(**s)));
        }
        follows >= WORTH
    }

    /// Whether lanes that have left come to the entry again only behind the end of a region in which all are waited for.
    fn returns_late(&self, r: &Region, whole: &[Region], w: &mut Walks) -> bool {
        w.patience = w.patience.saturating_sub(whole.len());
        let around: Vec<Block> = whole.iter().filter(|o| o.body.contains(r.enter)).map(|o| o.meet).collect();
        w.seen.restart();
        let mut stack: Vec<Block> = r.exits.iter().map(|e| e.to).collect();
        while let Some(b) = stack.pop() {
            if around.contains(&b) || w.seen.put(b) {
                continue;
            }
            w.patience = w.patience.saturating_sub(1);
            // Whoever called may use any barrier, and other lanes still wait.
            let returns = matches!(self.func.blocks[b].term, Terminator::Return(_));
            if b == r.enter || returns || w.patience == 0 {
                return false;
            }
            stack.extend(&self.cfg.succs[b]);
        }
        true
    }
}
