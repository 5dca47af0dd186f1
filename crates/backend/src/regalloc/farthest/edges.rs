//! What is in registers where control passes from block to block.

use super::{BEHIND_LOOP, Walk, among, is_general};
use crate::liveness::Ranges;
use cranelift_entity::EntityRef;
use ori::{Block, Name, Value};
use smallvec::SmallVec;

impl Walk<'_> {
    /// Finds what the terminator of a block passes to parameters that are known to be in memory: it may leave its register before.
    pub(super) fn pass_in_memory(&mut self, b: Block) {
        self.to_memory.clear();
        let term = &self.func.blocks[b].term;
        let mut read: SmallVec<[Value; 4]> = term.used_name().and_then(Name::value).into_iter().collect();
        for t in term.targets() {
            for (a, p) in t.args.iter().zip(&self.func.blocks[t.block].params) {
                if self.plan.in_memory.contains(p) {
                    let far = self.distances.at_entry(t.block, *p).unwrap_or(u32::MAX);
                    let known = self.to_memory.entry(*a).or_insert(far);
                    *known = far.min(*known);
                } else if self.done[t.block] || t.block == b || self.loops.depth(t.block) >= self.depth_here {
                    // Behind the loop it may come in memory as well.
                    read.push(*a);
                }
            }
        }
        read.iter().for_each(|v| {
            self.to_memory.remove(v);
        });
    }

    /// Registers for parameters of the blocks that follow, as far as those cannot take over arguments'.
    pub(super) fn passed_twice(&self, b: Block) -> i32 {
        let Ranges { lanes, live, .. } = self.ranges;
        let mut twice = 0;
        let mut taken: SmallVec<[Value; 4]> = SmallVec::new();
        let mut seen: SmallVec<[Block; 2]> = SmallVec::new();
        for t in self.func.blocks[b].term.targets() {
            if seen.contains(&t.block) {
                continue;
            }
            seen.push(t.block);
            for (a, p) in t.args.iter().zip(&self.func.blocks[t.block].params) {
                if !is_general(self.func, *a) || self.plan.in_memory.contains(p) {
                    continue;
                }
                let width = i32::from(self.func.values[*a].width);
                if live.is_live_in(t.block, lanes.all(*a)) || taken.contains(a) {
                    twice += width;
                } else {
                    taken.push(*a);
                }
            }
        }
        twice
    }

    /// What the end of a block needs in registers: what its terminator reads, and what blocks before it that it leads back to expect.
    pub(super) fn wanted_at_end(&self, b: Block) -> SmallVec<[Value; 8]> {
        let func = self.func;
        let term = &func.blocks[b].term;
        let mut wanted: SmallVec<[Value; 8]> = SmallVec::new();
        wanted.extend(term.used_name().and_then(Name::value));
        for t in term.targets().into_iter().filter(|t| self.done[t.block] || t.block == b) {
            let params = &func.blocks[t.block].params;
            wanted.extend(self.plan.entry[t.block].iter().copied().filter(|v| !params.contains(v)));
            let passed = params.iter().zip(&t.args).filter(|(p, _)| !self.plan.in_memory.contains(p));
            wanted.extend(passed.map(|(_, a)| *a));
        }
        wanted.retain(|v| is_general(func, *v));
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn several_ways(&self, b: Block) -> bool {
        let targets = self.func.blocks[b].term.targets();
        targets.iter().any(|t| t.block != targets[0].block)
    }

    /// The values that are in registers where a block begins.
    pub(super) fn at_entry(&self, b: Block) -> Vec<Value> {
        let func = self.func;
        let params = &func.blocks[b].params;
        let preds: SmallVec<[Block; 4]> = {
            let mut seen: SmallVec<[Block; 4]> = SmallVec::new();
            for &p in &self.cfg.preds[b] {
                if !seen.contains(&p) {
                    seen.push(p);
                }
            }
            seen
        };
        let header = preds.iter().any(|p| !self.done[*p]);
        // Those that may be, each by how far it is, and the registers that it takes.
        let [mut all, mut some, mut through] = [const { Vec::<(u64, Value, i32)>::new() }; 3];
        let mut through_lanes = 0;
        let mut out: Vec<Value> = Vec::new();
        let mut room = self.limit - self.fixed;
        let entering = params.iter().enumerate().map(|(k, p)| (Some(k), *p));
        let mut ends: SmallVec<[_; 4]> =
            preds.iter().map(|p| (*p, self.several_ways(*p), among(&self.plan.exit[*p]))).collect();
        for (nth, v) in entering.chain(self.distances.live_in(b).map(|v| (None, *v))) {
            if !is_general(func, v) {
                continue;
            }
            let lanes = i32::from(self.live[v]);
            let Some(far) = self.distances.at_entry(b, v) else {
                // Nobody reads it.
                out.push(v);
                room -= lanes;
                continue;
            };
            let (mut everywhere, mut somewhere, mut possible) = (true, preds.is_empty(), true);
            for (p, several_ways, at_end) in ends.iter_mut().filter(|(p, ..)| self.done[*p]) {
                let is_here = match nth {
                    Some(k) => {
                        let target = func.blocks[*p].term.targets().into_iter().find(|t| t.block == b);
                        let passed = target.and_then(|t| t.args.get(k));
                        passed.is_some_and(|a| self.plan.exit[*p].binary_search(a).is_ok())
                    }
                    None => at_end(v),
                };
                everywhere &= is_here;
                somewhere |= is_here;
                possible &= is_here || !*several_ways;
            }
            if !possible {
                continue;
            }
            let candidate = (self.weighted(v, far.into()), v, lanes);
            if self.pinned.contains(v.index()) {
                // Before all others, wherever it comes from.
                all.push(candidate);
            } else if far >= BEHIND_LOOP && header {
                through_lanes += lanes;
                if everywhere {
                    through.push(candidate);
                }
            } else if everywhere || header && nth.is_none() {
                // A parameter that would have to be brought back for a loop would also have to be where the loop goes on.
                all.push(candidate);
            } else if nth.is_some() || somewhere && far < BEHIND_LOOP {
                some.push(candidate);
            }
        }
        let mut take = |mut from: Vec<(u64, Value, i32)>, room: &mut i32| {
            from.sort_unstable();
            for (_, v, lanes) in from {
                if lanes <= *room {
                    *room -= lanes;
                    out.push(v);
                }
            }
        };
        take(all, &mut room);
        take(some, &mut room);
        if header && !through.is_empty() {
            let most = self.loops.innermost(b).and_then(|l| self.most_in_loop.get(&l)).copied().unwrap_or(0);
            let mut free = (self.limit - (most - through_lanes)).min(room).max(0);
            take(through, &mut free);
        }
        out
    }
}
