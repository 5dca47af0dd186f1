//! Spills general registers by next use (Braun and Hack, "Register Spilling and Live-Range Splitting for SSA-Form
//! Programs", CC 2009): walks the blocks once with the set of values that are in registers. Where there are too many, the one that is
//! wanted last leaves, and is brought back before that use; between, other values have its register. What is chosen here, [`split`]
//! writes down.
//!
//! A value is stored where it is defined, or wherever it leaves its register for the first time on a way, whichever is executed less
//! often. Its slot then holds it as long as it lives. A parameter of a loop that is not in a register changes in memory.

mod distances;
mod edges;

use super::room::{self, Room};
use super::spill::is_constant;
use crate::liveness::Ranges;
use cranelift_entity::{EntityRef, SecondaryMap};
use distances::{Distances, Table, among};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::LoopForest;
use ori::{Block, Function, Inst, Macro, Op, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Reg, RegFile};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// How far a use behind the end of a loop is, beside those in it.
const BEHIND_LOOP: u32 = 100_000;
/// The most entries of distances that are kept; functions with more are spilled in simpler ways.
const MOST_ENTRIES: usize = 4_000_000;

/// How much nearer a value counts for what leaving costs: a store and a load each time round a loop, a load alone, or making a
/// constant again.
const STORED: u64 = 2;
const LOADED: u64 = 8;
const MADE_AGAIN: u64 = 16;

/// Of more registers than these at once those alone count that are needed.
const TUPLE: u64 = 8;

/// How much nearer a value counts that is on its way from memory, and how many instructions it is on its way.
const ON_ITS_WAY: u64 = 16;
const LONG: u32 = 200;

/// How often a block that calls a function beside the straight way, as slow paths do, is executed beside that.
const ASIDE: f64 = 0.1;
/// By how many instructions a value is brought back before it is read, at most.
const EARLY: usize = 24;
/// How much more often a block in a loop is executed than one outside, and loops that count.
const TURNS: f64 = 10.0;
const NESTED: u32 = 6;

/// Which values are in registers where, and what is to be stored and brought back.
#[derive(Default)]
pub(super) struct Plan {
    /// Values to be brought back before an instruction.
    pub before: FxHashMap<Inst, SmallVec<[Value; 2]>>,
    /// Before the terminator of a block, which reads them or passes them on.
    pub at_term: SecondaryMap<Block, Vec<Value>>,
    /// Values in registers where a block begins, ascending.
    pub entry: SecondaryMap<Block, Vec<Value>>,
    /// Values in registers where it ends, ascending.
    pub exit: SecondaryMap<Block, Vec<Value>>,
    /// Parameters that arrive in memory.
    pub in_memory: FxHashSet<Value>,
    /// Values that are brought back somewhere.
    pub spilled: FxHashSet<Value>,
    /// Those of them that are stored where they are defined.
    pub at_definition: FxHashSet<Value>,
    /// Others, to be stored behind an instruction, where a block begins, and before its terminator.
    pub stores: FxHashMap<Inst, SmallVec<[Value; 2]>>,
    pub stores_at_start: SecondaryMap<Block, Vec<Value>>,
    pub stores_at_term: SecondaryMap<Block, Vec<Value>>,
    /// What was stored on every way to the end of a block, ascending.
    stored: SecondaryMap<Block, Vec<Value>>,
}

/// Plans what is in the general registers that there is `room` for, where all but what is `pinned` may leave them; nothing for functions that are
/// too large for that, or have cycles with several ways in.
pub(super) fn plan(
    func: &Function,
    cfg: &Cfg,
    room: Room<'_>,
    (ranges, pinned): (&Ranges, &FixedBitSet),
) -> Option<Plan> {
    if ranges.live.live_in.values().map(Vec::len).sum::<usize>() > MOST_ENTRIES {
        return None;
    }
    let dom = DomTree::dominators(cfg);
    let loops = LoopForest::new(cfg, &dom);
    let distances = Distances::new(func, cfg, &loops, ranges);
    let mut walk = Walk::new(func, cfg, room, (ranges, pinned), &dom, &loops, &distances);
    cfg.rpo.iter().for_each(|b| walk.block(*b));
    let mut plan = walk.plan;
    for &b in &cfg.rpo {
        plan.leave(func, &distances, b);
        plan.pass(func, b);
    }
    plan.choose_stores(func, cfg, &loops);
    Some(plan)
}

/// How often a block is executed, about.
fn frequency(func: &Function, cfg: &Cfg, loops: &LoopForest, b: Block) -> f64 {
    let calls = func.blocks[b].insts.iter().any(|i| func.insts[*i].op == Op::Macro(Macro::Call));
    let aside = match cfg.preds[b].as_slice() {
        [p] => calls && func.blocks[*p].term.targets().len() > 1,
        _ => false,
    };
    TURNS.powi(loops.depth(b).min(NESTED) as i32) * if aside { ASIDE } else { 1.0 }
}

impl Plan {
    /// Values that leave their registers between a block and those that follow.
    fn leave(&mut self, func: &Function, distances: &Distances, b: Block) {
        let mut left: Vec<Value> = Vec::new();
        for t in func.blocks[b].term.targets() {
            let (mut stays, mut lives) = (among(&self.entry[t.block]), among(distances.live_in(t.block)));
            left.extend(self.exit[b].iter().filter(|v| !stays(**v) && lives(**v)));
        }
        left.retain(|v| self.stored[b].binary_search(v).is_err());
        left.sort_unstable();
        left.dedup();
        self.stores_at_term[b].extend(left);
    }

    /// Whether a value is in its slot where a block ends.
    pub fn is_stored(&self, b: Block, v: Value) -> bool {
        self.at_definition.contains(&v)
            || self.stored[b].binary_search(&v).is_ok()
            || self.exit[b].binary_search(&v).is_err()
    }

    /// Chooses where each value is stored.
    fn choose_stores(&mut self, func: &Function, cfg: &Cfg, loops: &LoopForest) {
        let mut cost: FxHashMap<Value, f64> = FxHashMap::default();
        for &b in &cfg.rpo {
            let often = frequency(func, cfg, loops, b);
            let block = &func.blocks[b];
            for i in &block.insts {
                for v in self.stores.get(i).into_iter().flatten() {
                    *cost.entry(*v).or_default() += often;
                }
                func.insts[*i].for_each_def(|n| {
                    if let Some(v) = n.value() {
                        *cost.entry(v).or_default() -= often;
                    }
                });
            }
            let ends = self.stores_at_start[b].iter().chain(&self.stores_at_term[b]);
            ends.for_each(|v| *cost.entry(*v).or_default() += often);
            block.params.iter().for_each(|v| *cost.entry(*v).or_default() -= often);
        }
        let early = |v: &Value| cost.get(v).is_some_and(|c| *c > 0.0);
        self.at_definition = self.spilled.iter().copied().filter(early).collect();
        let (spilled, early) = (&self.spilled, &self.at_definition);
        let late = |v: &Value| spilled.contains(v) && !early.contains(v);
        self.stores.values_mut().for_each(|s| s.retain(|v| late(v)));
        for &b in &cfg.rpo {
            self.stores_at_start[b].retain(|v| late(v));
            self.stores_at_term[b].retain(|v| late(v));
        }
    }

    /// What has to be brought back at the end of a block for those that follow.
    fn pass(&mut self, func: &Function, b: Block) {
        let mut wanted: SmallVec<[Value; 8]> = SmallVec::new();
        let here = |v: Value| self.exit[b].binary_search(&v).is_ok();
        for t in func.blocks[b].term.targets() {
            let params = &func.blocks[t.block].params;
            let entry = &self.entry[t.block];
            wanted.extend(entry.iter().copied().filter(|v| !params.contains(v) && !here(*v)));
            let passed = params.iter().zip(&t.args).filter(|(_, a)| is_general(func, **a) && !here(**a));
            for (p, a) in passed {
                if self.in_memory.contains(p) {
                    self.spilled.insert(*a);
                } else {
                    wanted.push(*a);
                }
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        self.spilled.extend(wanted.iter().copied());
        let known = &mut self.at_term[b];
        wanted.retain(|v| !known.contains(v));
        known.extend(wanted);
    }
}

fn is_general(func: &Function, v: Value) -> bool {
    func.values[v].file == RegFile::R
}

/// The values that are in registers.
#[derive(Default)]
struct Here {
    all: Vec<Value>,
    /// One more than where each is in the list.
    at: SecondaryMap<Value, u32>,
}

impl Here {
    fn contains(&self, v: Value) -> bool {
        self.at[v] != 0
    }

    fn insert(&mut self, v: Value) -> bool {
        let new = !self.contains(v);
        if new {
            self.all.push(v);
            self.at[v] = self.all.len() as u32;
        }
        new
    }

    fn remove(&mut self, v: Value) -> bool {
        let at = std::mem::take(&mut self.at[v]);
        if at != 0 {
            self.all.swap_remove(at as usize - 1);
            self.all.get(at as usize - 1).into_iter().for_each(|moved| self.at[*moved] = at);
        }
        at != 0
    }

    fn clear(&mut self) {
        self.all.drain(..).for_each(|v| self.at[v] = 0);
    }

    /// In ascending order.
    fn sorted(&self) -> Vec<Value> {
        let mut all = self.all.clone();
        all.sort_unstable();
        all
    }
}

/// The walk over the blocks.
struct Walk<'f> {
    func: &'f Function,
    cfg: &'f Cfg,
    room: Room<'f>,
    /// The registers of the block that is walked.
    limit: i32,
    ranges: &'f Ranges,
    pinned: &'f FixedBitSet,
    dom: &'f DomTree,
    loops: &'f LoopForest,
    distances: &'f Distances,
    /// Constants, and the loops around each value's definition.
    constant: FxHashSet<Value>,
    depth: SecondaryMap<Value, u32>,
    /// The most registers of all live values in a block, and in a loop.
    most: SecondaryMap<Block, i32>,
    most_in_loop: FxHashMap<ori::loops::Loop, i32>,
    /// Starts and ends of lanes, by point, and where those of each begin: the lane's number twice, one more for a start.
    events: Vec<u32>,
    first_event: Vec<u32>,
    /// Registers that an instruction needs beyond what is live.
    extra: FxHashMap<u32, i32>,
    /// Lanes of each value that are live now.
    live: SecondaryMap<Value, u8>,
    fixed: i32,
    /// In registers now, and how many those take.
    here: Here,
    taken: i32,
    /// What came to its end lately.
    ended: Vec<Value>,
    /// Where the block that is walked begins to have each of them, and those that it had: which, from where, and the last that reads it.
    since: Table,
    stays: Vec<(Value, u32, u32)>,
    /// Behind which instruction of the block that is walked those stand that take long and were made in it.
    begun: FxHashMap<Value, u32>,
    /// Where those that left it did so last.
    left: FxHashMap<Value, u32>,
    /// Which of the block's reads are the first of each value, and how far behind its end it is read next.
    reads: Table,
    behind: Table,
    /// What the terminator passes to parameters in memory and reads for nothing else, and how far behind the block's end those are read.
    to_memory: FxHashMap<Value, u32>,
    depth_here: u32,
    /// What was stored on every way here.
    stored: Table,
    plan: Plan,
    block: Block,
    done: SecondaryMap<Block, bool>,
}

impl<'f> Walk<'f> {
    fn new(
        func: &'f Function,
        cfg: &'f Cfg,
        room: Room<'f>,
        (ranges, pinned): (&'f Ranges, &'f FixedBitSet),
        dom: &'f DomTree,
        loops: &'f LoopForest,
        distances: &'f Distances,
    ) -> Walk<'f> {
        let Ranges { lanes, numbering: n, intervals, .. } = ranges;
        let points = 2 * n.at.len() + 2;
        let mut walk = Walk {
            func,
            cfg,
            room,
            limit: room.limit as i32,
            ranges,
            pinned,
            dom,
            loops,
            distances,
            constant: FxHashSet::default(),
            depth: SecondaryMap::new(),
            most: SecondaryMap::new(),
            most_in_loop: FxHashMap::default(),
            events: Vec::new(),
            first_event: vec![0; points + 2],
            extra: FxHashMap::default(),
            live: SecondaryMap::new(),
            fixed: 0,
            here: Here::default(),
            taken: 0,
            ended: Vec::new(),
            since: Table::default(),
            stays: Vec::new(),
            begun: FxHashMap::default(),
            left: FxHashMap::default(),
            reads: Table::default(),
            behind: Table::default(),
            to_memory: FxHashMap::default(),
            depth_here: 0,
            stored: Table::default(),
            plan: Plan::default(),
            block: func.entry_block(),
            done: SecondaryMap::new(),
        };
        let mut change = vec![0i32; points + 1];
        let general = |l: u32| match lanes.owner(l) {
            Some((v, _)) => is_general(func, v),
            None => l >= lanes.phys(Reg::r(0)) && l < lanes.phys(Reg::r(0)) + room.limit,
        };
        let lives = || {
            let all = intervals.iter().filter(|(l, _)| general(*l));
            all.flat_map(|(l, list)| list.iter().flat_map(move |s| [(s.start, 2 * l + 1), (s.end, 2 * l)]))
        };
        for (point, event) in lives() {
            walk.first_event[point as usize] += 1;
            change[point as usize] += if event & 1 != 0 { 1 } else { -1 };
        }
        let mut behind = 0;
        for n in &mut walk.first_event {
            behind += *n;
            *n = behind;
        }
        walk.events = vec![0; behind as usize];
        for (point, event) in lives() {
            let at = &mut walk.first_event[point as usize];
            *at -= 1;
            walk.events[*at as usize] = event;
        }
        for (point, all) in &ranges.destroyed {
            let lost = room::below(all.of(RegFile::R), room.limit) as i32;
            change[*point as usize] += lost;
            change[*point as usize + 1] -= lost;
        }
        let mut now = 0;
        let mut total = vec![0i32; points + 1];
        for (at, c) in change.iter().enumerate() {
            now += c;
            total[at] = now;
        }
        // Beside what is live there.
        let mut calls = ranges.destroyed.iter().peekable();
        for &b in &cfg.rpo {
            let (first, last) = (2 * n.entry[b] as usize, 2 * n.term[b] as usize + 1);
            walk.most[b] = total[first..=last].iter().copied().max().unwrap_or(0);
            let mut inside = loops.innermost(b);
            while let Some(l) = inside {
                let most = walk.most_in_loop.entry(l).or_insert(0);
                *most = (*most).max(walk.most[b]);
                inside = loops.loops[l].parent.expand();
            }
            let depth = loops.depth(b);
            func.blocks[b].params.iter().for_each(|p| walk.depth[*p] = depth);
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                if let Some((point, all)) = calls.next_if(|(point, _)| *point == 2 * n.inst[i] + 1) {
                    let lost = room::below(all.of(RegFile::R), room.at(b));
                    walk.extra.insert(*point, lost as i32);
                }
                let constant = is_constant(d);
                let mut width = 0;
                d.for_each_def(|name| {
                    if let Some(v) = name.value().filter(|v| is_general(func, *v)) {
                        walk.depth[v] = depth;
                        width += i32::from(func.values[v].width);
                        if constant {
                            walk.constant.insert(v);
                        }
                    }
                });
                if !d.kept.is_empty() {
                    walk.extra.insert(2 * n.inst[i], width);
                }
            }
        }
        walk
    }

    /// Goes on to a point.
    fn go(&mut self, point: u32) {
        let [from, to] = [0, 1].map(|k| self.first_event[point as usize + k] as usize);
        for k in from..to {
            let event = self.events[k];
            let by = if event & 1 != 0 { 1 } else { -1 };
            let Some((v, _)) = self.ranges.lanes.owner(event / 2) else {
                self.fixed += by;
                continue;
            };
            self.live[v] = (i32::from(self.live[v]) + by) as u8;
            if self.here.contains(v) {
                self.taken += by;
                if self.live[v] == 0 {
                    self.ended.push(v);
                }
            }
        }
    }

    /// Ends at a point come before starts: a segment may end where another of the same lane begins.
    fn forget_dead(&mut self) {
        while let Some(v) = self.ended.pop() {
            if self.live[v] == 0 && self.here.remove(v) {
                let since = self.since.get(v).unwrap_or(0);
                self.stays.push((v, since, self.behind_last(v, u32::MAX).max(since)));
            }
        }
    }

    fn add(&mut self, v: Value) {
        if self.here.insert(v) {
            self.taken += i32::from(self.live[v]);
        }
    }

    fn remove(&mut self, v: Value) {
        if self.here.remove(v) {
            self.taken -= i32::from(self.live[v]);
        }
    }

    /// Where the block reads a value, ascending.
    fn reads(&self, v: Value) -> &[(Value, u32)] {
        let first = self.reads.get(v).map(|first| &self.distances.reads(self.block)[first as usize..]);
        first.map_or(&[], |list| &list[..list.partition_point(|(read, _)| *read == v)])
    }

    /// How far a value's next use is from the instruction `at` of the block on, by what leaving costs.
    fn distance(&self, v: Value, at: u32, length: u32) -> u64 {
        let reads = self.reads(v);
        let next = reads.get(reads.partition_point(|(_, p)| *p < at)).map(|(_, p)| *p);
        let behind = || self.behind.get(v).map_or(u32::MAX, |d| d.saturating_add(length));
        let next = match next {
            // The terminator's place.
            Some(p) if p + 1 == length => self.to_memory.get(&v).map_or(p, |d| d.saturating_add(length)),
            Some(p) => p,
            None => behind(),
        };
        let far = u64::from(next.saturating_sub(at));
        self.weighted(v, if self.is_on_its_way(v, at) { far / ON_ITS_WAY } else { far })
    }

    /// Whether a value takes long to arrive and nobody has waited for it yet: storing it would have to.
    fn is_on_its_way(&self, v: Value, at: u32) -> bool {
        self.begun.get(&v).is_some_and(|begun| at < begun + LONG && self.behind_last(v, at) <= *begun)
    }

    fn weighted(&self, v: Value, far: u64) -> u64 {
        if self.pinned.contains(v.index()) {
            0
        } else if self.constant.contains(&v) {
            far * MADE_AGAIN
        } else if self.stored.get(v).is_some() || self.depth[v] < self.depth_here {
            far * LOADED
        } else {
            far * STORED
        }
    }

    /// Before which instruction the last one stands that makes or reads a value in front of `at`; 0 for none in its block.
    fn behind_last(&self, v: Value, at: u32) -> u32 {
        let reads = self.reads(v);
        let last = reads.partition_point(|(_, p)| *p < at).checked_sub(1).map_or(0, |n| reads[n].1 + 1);
        last.max(self.since.get(v).unwrap_or(0))
    }

    /// Lets values leave until there is room for `extra` registers more; not those in `held`. Those of them that were not stored yet are
    /// stored as early as they can be.
    fn make_room(&mut self, extra: i32, held: &[Value], b: Block, at: u32) {
        let length = self.func.blocks[b].insts.len() as u32 + 1;
        while self.taken + self.fixed + extra > self.limit {
            let may = self.here.all.iter().copied().filter(|v| self.live[*v] > 0 && !held.contains(v));
            let need = ((self.taken + self.fixed + extra - self.limit) as u64).max(TUPLE);
            let worth = |v: Value| {
                let live = u64::from(self.live[v]);
                self.distance(v, at, length) * need.min(live) / live
            };
            let farthest = may.max_by_key(|v| (worth(*v), self.live[*v], Reverse(*v)));
            let Some(v) = farthest else { break };
            self.remove(v);
            let last = if self.is_on_its_way(v, at) { at } else { self.behind_last(v, at) };
            if !self.constant.contains(&v) && self.stored.insert(v) {
                match last.checked_sub(1) {
                    None => self.plan.stores_at_start[b].push(v),
                    Some(k) => {
                        let behind = self.func.blocks[b].insts[k as usize];
                        self.plan.stores.entry(behind).or_default().push(v);
                    }
                }
            }
            self.left.insert(v, last);
            self.stays.push((v, self.since.get(v).unwrap_or(0), last));
        }
    }

    fn block(&mut self, b: Block) {
        let (func, n) = (self.func, &self.ranges.numbering);
        let block = &func.blocks[b];
        let length = block.insts.len() as u32;
        self.depth_here = self.loops.depth(b);
        self.limit = self.room.at(b) as i32;
        self.distances.at_exit(func, self.loops, b, &mut self.behind);
        self.block = b;
        self.reads.clear();
        for (k, (v, _)) in (0..).zip(self.distances.reads(b)) {
            if self.reads.get(*v).is_none() {
                self.reads.set(*v, k);
            }
        }
        self.here.clear();
        self.ended.clear();
        self.taken = 0;
        self.since.clear();
        self.stays.clear();
        self.begun.clear();
        let mut back_at: Vec<(u32, Value, u32)> = Vec::new();
        self.left.clear();
        let start = 2 * n.entry[b];
        self.go(start);
        for v in self.at_entry(b) {
            self.add(v);
        }
        self.plan.entry[b] = self.here.sorted();
        self.stored.clear();
        for v in self.stored_before(b) {
            self.stored.insert(v);
        }
        for p in block.params.iter().filter(|p| is_general(func, **p)) {
            if !self.here.contains(*p) {
                self.plan.in_memory.insert(*p);
                self.stored.insert(*p);
            }
        }
        self.pass_in_memory(b);
        self.go(start + 1);
        for (at, &i) in block.insts.iter().enumerate() {
            let d = &func.insts[i];
            let (at, point) = (at as u32, 2 * n.inst[i]);
            let mut read: SmallVec<[Value; 6]> = SmallVec::new();
            d.for_each_use(|n| read.extend(n.value().filter(|v| is_general(func, *v))));
            read.sort_unstable();
            read.dedup();
            self.go(point);
            self.forget_dead();
            let back: SmallVec<[Value; 2]> =
                read.iter().copied().filter(|v| !self.here.contains(*v)).collect();
            if !back.is_empty() {
                back.iter().for_each(|v| self.add(*v));
                self.plan.spilled.extend(back.iter().copied());
                for v in back {
                    self.stored.insert(v);
                    self.since.set(v, at);
                    back_at.push((at, v, self.left.get(&v).copied().unwrap_or(0)));
                }
            }
            let extra = self.extra.get(&point).copied().unwrap_or(0);
            self.make_room(extra, &read, b, at);
            let mut made: SmallVec<[Value; 4]> = SmallVec::new();
            d.for_each_def(|n| made.extend(n.value().filter(|v| is_general(func, *v))));
            for v in &made {
                self.add(*v);
                self.since.set(*v, at + 1);
            }
            if takes_long(func, d) {
                self.begun.extend(made.iter().map(|v| (*v, at + 1)));
            }
            self.go(point + 1);
            self.forget_dead();
            let extra = self.extra.get(&(point + 1)).copied().unwrap_or(0);
            self.make_room(extra, &made, b, at + 1);
        }
        let point = 2 * n.term[b];
        self.go(point);
        self.forget_dead();
        let wanted = self.wanted_at_end(b);
        let back: Vec<Value> = wanted.iter().copied().filter(|v| !self.here.contains(*v)).collect();
        back.iter().for_each(|v| self.add(*v));
        self.plan.spilled.extend(back.iter().copied());
        self.plan.at_term[b] = back;
        for v in &self.plan.at_term[b] {
            self.stored.insert(*v);
        }
        self.make_room(self.passed_twice(b), &wanted, b, length);
        self.go(point + 1);
        self.plan.exit[b] = self.here.sorted();
        self.bring_early(b, back_at);
        let stored = self.stored.known().iter().copied().filter(|v| self.live[*v] > 0);
        self.plan.stored[b] = stored.collect();
        self.plan.stored[b].sort_unstable();
        self.done[b] = true;
    }

    /// Brings values back as long before they are read as there is room for them, since that takes a while.
    fn bring_early(&mut self, b: Block, back: Vec<(u32, Value, u32)>) {
        if back.is_empty() {
            return;
        }
        let (func, n) = (self.func, &self.ranges.numbering);
        let insts = &func.blocks[b].insts;
        // Registers taken before each instruction, and before the terminator.
        let mut taken = vec![self.fixed; insts.len() + 1];
        let width = |v: Value| i32::from(func.values[v].width);
        let since = |v: &Value| self.since.get(*v).unwrap_or(0);
        let stay = self.here.all.iter().map(|v| (*v, since(v), insts.len() as u32));
        for (v, from, to) in self.stays.iter().copied().chain(stay) {
            taken[from as usize..(to as usize).max(from as usize)].iter_mut().for_each(|t| *t += width(v));
        }
        for (t, i) in taken.iter_mut().zip(insts) {
            let extra = |at: u32| self.extra.get(&at).copied().unwrap_or(0);
            *t += extra(2 * n.inst[*i]) + extra(2 * n.inst[*i] + 1);
        }
        for (at, v, left) in back {
            let mut early = at as usize;
            // It was stored behind what last made or read it.
            let least = (left as usize).max(early.saturating_sub(EARLY));
            while early > least
                && taken[early - 1] + width(v) <= self.limit
                && func.insts[insts[early - 1]].op != Op::Macro(Macro::Call)
            {
                early -= 1;
                taken[early] += width(v);
            }
            self.plan.before.entry(insts[early]).or_default().push(v);
        }
    }

    /// What is in its slot on every way to a block: what was stored before, and what is where a block before ends since this one
    /// has no register for it. A way back adds nothing to what holds before its loop.
    fn stored_before(&self, b: Block) -> Vec<Value> {
        let preds = &self.cfg.preds[b];
        if preds.iter().any(|p| !self.done[*p] && !self.dom.dominates(b, *p)) {
            return Vec::new();
        }
        let Plan { entry, exit, stored, .. } = &self.plan;
        let mut done = preds.iter().copied().filter(|p| self.done[*p]);
        let Some(first) = done.next() else { return Vec::new() };
        let mut stays = among(&entry[b]);
        let mut found: Vec<Value> = exit[first].iter().copied().filter(|v| !stays(*v)).collect();
        found.extend_from_slice(&stored[first]);
        found.sort_unstable();
        found.dedup();
        for p in done {
            let (mut stays, mut was_here, mut stored) =
                (among(&entry[b]), among(&exit[p]), among(&stored[p]));
            found.retain(|v| stored(*v) || was_here(*v) && !stays(*v));
        }
        found
    }
}

/// Whether what an instruction makes comes from memory outside of the multiprocessor.
fn takes_long(func: &Function, d: &ori::InstData) -> bool {
    matches!(d.op, Op::Sass(op) if crate::prepass::takes_long(func, op))
}
