//! Races: two accesses to one place, one of them a write, that nothing orders.
//!
//! A warp has a vector clock. Barriers let those who meet there know what the others did. A strong write tells what the warp
//! knew at its last fence to whoever reads it by a strong access; an operation on a barrier in memory tells all. What counts for
//! a block alone (an access, a fence) is told to warps of the block alone. A reader of the block knows at once what it is told
//! (acquiring for a block leaves no trace in the code), one of another block when it has acquired: by a fence, or the CCTL
//! behind a load or an atomic operation that acquires.
//!
//! An asynchronous copy is done by somebody else: for each warp there is one who copies words and one who copies in bulk, with
//! clocks of their own. They know what the warp knew when it started the copy. The warp knows of them when it has waited for a group
//! of copies; who waits at a barrier in memory that counts copies knows as well.
//!
//! The lanes of a warp know of each other what was before they met last, where the code shows it (`bar.warp.sync`). Whatever orders
//! their warp with others, and every strong access, orders them as well.

use super::clock::Clock;
use super::lanes::Lanes;
use super::rows::{Past, Rows};
use super::{Agent, Reach, Who};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A place in memory: shared memory of a block, or global memory (`u32::MAX`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) block: u32,
    pub(super) at: u64,
}

/// An access.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub(super) who: Who,
    /// In the block.
    pub(super) warp: u32,
    /// How many instructions the warp has executed.
    pub(super) time: u32,
    pub(super) strong: bool,
    /// Strong for other blocks as well.
    pub(super) wide: bool,
    /// Of a barrier in memory.
    pub(super) barrier: bool,
    /// An arrival there.
    pub(super) arrival: bool,
    /// Who does it in place of the warp, or whose copies are told at the barrier as done.
    pub(super) agent: Option<Agent>,
    pub(super) write: bool,
    /// What is written is there already: who comes first doesn't matter.
    pub(super) same: bool,
}

/// An access that another one races with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    pub(super) who: Who,
    pub(super) wrote: bool,
    /// By an asynchronous copy.
    pub(super) copied: bool,
}

/// Readers and writers of a word that are remembered.
const READERS: usize = 4;
const WRITERS: usize = 8;
/// Rows of words that are open at once: of global memory, of a block's shared memory.
const OPEN: usize = 1 << 14;
const OPEN_SHARED: usize = 1 << 8;

/// What a place that strong accesses reach tells.
#[derive(Default)]
struct Told {
    /// Everyone.
    clock: FxHashMap<u32, u32>,
    /// Those of a block alone.
    blocks: FxHashMap<u32, FxHashMap<u32, u32>>,
    /// Grows with what it tells.
    version: u64,
    /// The warp that told last, its count of fences then, and whether it told everyone.
    last: Option<(u32, u32, bool)>,
}

/// Who copies for a warp.
#[derive(Clone)]
struct Copier {
    /// What is started now is of this time.
    time: u32,
    /// The times up to which the last groups go.
    groups: VecDeque<u32>,
}

/// Groups that can be waited for: a wait names how many of the last ones may go on.
const GROUPS: usize = 64;

/// What a warp knows.
struct Knows {
    clock: Clock,
    /// At its last fence: one that counts everywhere, and any.
    fenced: Clock,
    /// See `fenced`.
    fenced_here: Clock,
    fences: u32,
    /// What warps of other blocks told, which counts when it has acquired.
    pending: FxHashMap<u32, u32>,
    /// Versions of places.
    heard: FxHashMap<Key, u64>,
    /// What its lanes know of each other.
    lanes: Lanes,
    /// When it did something last: see [`Touch::time`].
    time: u32,
    copiers: [Copier; Agent::COUNT],
}

impl Knows {
    /// What it knows, and what it knew at its last fences.
    fn clocks(&self) -> [&Clock; 3] {
        [&self.clock, &self.fenced, &self.fenced_here]
    }
}

/// All accesses of a launch.
pub(super) struct Races {
    /// Of a block.
    warps: u32,
    /// Those and what copies for them: in a clock.
    all: u32,
    /// Whether the code shows where lanes meet.
    lanes: bool,
    global: Rows,
    /// By block.
    shared: FxHashMap<u32, Rows>,
    knows: FxHashMap<u32, Vec<Knows>>,
    /// By block as in [`Key`], and address.
    told: FxHashMap<u32, FxHashMap<u64, Told>>,
    /// What those have left that arrived at a barrier of a block without waiting, and where.
    arrived: FxHashMap<(u32, usize), ([Clock; 3], u32)>,
}

impl Races {
    pub(super) fn new(warps: u32, lanes: bool) -> Races {
        Races {
            warps,
            all: warps * (1 + Agent::COUNT as u32),
            lanes,
            global: Rows::new(OPEN),
            shared: FxHashMap::default(),
            knows: FxHashMap::default(),
            told: FxHashMap::default(),
            arrived: FxHashMap::default(),
        }
    }

    /// A block starts: every warp in a time of its own.
    pub(super) fn start(&mut self, block: u32) {
        let knows = |w| {
            let mut clock = Clock::new(self.all);
            clock.tick(w);
            let none = || Clock::new(self.all);
            let (fenced, fenced_here) = (none(), none());
            let (pending, heard) = Default::default();
            let copiers = [(); Agent::COUNT].map(|()| Copier { time: 1, groups: VecDeque::new() });
            let lanes = Lanes::default();
            Knows { clock, fenced, fenced_here, fences: 0, pending, heard, lanes, time: 0, copiers }
        };
        let all = (0..self.warps).map(knows).collect();
        self.knows.insert(block, all);
    }

    /// A block has ended, and its shared memory with it.
    pub(super) fn end(&mut self, block: u32) {
        self.knows.remove(&block);
        self.shared.remove(&block);
        self.told.remove(&block);
    }

    /// Where somebody arrived at a barrier last.
    pub(super) fn arrived_at(&self, block: u32, id: usize) -> u32 {
        self.arrived.get(&(block, id)).map_or(0, |a| a.1)
    }

    /// Forgets who arrived.
    pub(super) fn forget(&mut self, block: u32) {
        self.arrived.retain(|k, _| k.0 != block);
    }

    /// A warp acquires: what it was told counts from here on.
    pub(super) fn acquire(&mut self, block: u32, warp: u32) {
        if let Some(k) = self.knows.get_mut(&block).and_then(|b| b.get_mut(warp as usize)) {
            k.clock.learn(block * self.all, &std::mem::take(&mut k.pending));
            k.lanes.meet_all(k.time);
        }
    }

    /// What a warp has started up to now is a group of copies.
    pub(super) fn commit(&mut self, block: u32, warp: u32, agent: Agent) {
        if let Some(k) = self.knows.get_mut(&block).and_then(|b| b.get_mut(warp as usize)) {
            let copier = &mut k.copiers[agent as usize];
            if copier.groups.len() == GROUPS {
                copier.groups.pop_front();
            }
            copier.groups.push_back(copier.time);
            copier.time += 1;
        }
    }

    /// A warp waits until no more than so many groups are going on.
    pub(super) fn wait(&mut self, block: u32, warp: u32, left: usize) {
        let warps = self.warps;
        if let Some(k) = self.knows.get_mut(&block).and_then(|b| b.get_mut(warp as usize)) {
            for (copier, i) in k.copiers.iter().zip(1..) {
                if let Some(done) = copier.groups.iter().nth_back(left) {
                    k.clock.hear(warps * i + warp, *done);
                }
            }
        }
    }

    /// Some lanes of a warp meet; `live` are those that have not ended.
    pub(super) fn meet_lanes(&mut self, block: u32, warp: u32, lanes: u32, live: u32) {
        if let Some(k) = self.knows.get_mut(&block).and_then(|b| b.get_mut(warp as usize)) {
            match live & !lanes {
                0 => k.lanes.meet_all(k.time),
                _ => k.lanes.meet(lanes, k.time),
            }
        }
    }

    /// A warp executes a fence.
    pub(super) fn fence(&mut self, block: u32, warp: u32, reach: Reach) {
        if let Some(k) = self.knows.get_mut(&block).and_then(|b| b.get_mut(warp as usize)) {
            k.fenced_here = k.clock.clone();
            if reach == Reach::All {
                k.fenced = k.clock.clone();
            }
            k.fences += 1;
            k.clock.tick(warp);
            k.lanes.meet_all(k.time);
        }
    }

    /// Warps of a block meet at a barrier, where others may have arrived.
    pub(super) fn meet(&mut self, block: u32, id: Option<usize>, warps: &[u32]) {
        let Some(all) = self.knows.get_mut(&block) else { return };
        let mut joined = [(); 3].map(|()| Clock::new(self.all));
        for w in warps {
            joined.iter_mut().zip(all[*w as usize].clocks()).for_each(|(j, c)| j.join(c));
        }
        if let Some((clocks, _)) = id.and_then(|id| self.arrived.remove(&(block, id))) {
            joined.iter_mut().zip(&clocks).for_each(|(j, c)| j.join(c));
        }
        for w in warps {
            let k = &mut all[*w as usize];
            [k.clock, k.fenced, k.fenced_here] = joined.clone();
            k.fences += 1;
            k.clock.tick(*w);
            k.lanes.meet_all(k.time);
        }
    }

    /// All warps of these blocks meet.
    pub(super) fn meet_all(&mut self, blocks: &[u32]) {
        let mut joined: [FxHashMap<u32, u32>; 3] = Default::default();
        for b in blocks {
            for k in self.knows.get(b).into_iter().flatten() {
                let pairs = k.clocks().into_iter().zip(&mut joined);
                for (c, j) in pairs {
                    c.publish(b * self.all, j);
                }
            }
        }
        for b in blocks {
            for (w, k) in self.knows.get_mut(b).into_iter().flatten().enumerate() {
                let clocks = [&mut k.clock, &mut k.fenced, &mut k.fenced_here];
                clocks.into_iter().zip(&joined).for_each(|(c, j)| c.learn(b * self.all, j));
                k.fences += 1;
                k.clock.tick(w as u32);
                k.lanes.meet_all(k.time);
            }
        }
    }

    /// A warp arrives at a barrier and goes on.
    pub(super) fn arrive(&mut self, block: u32, warp: u32, id: usize, pc: u32) {
        let all = self.all;
        let Some(k) = self.knows.get_mut(&block).and_then(|b| b.get_mut(warp as usize)) else { return };
        let none = || ([(); 3].map(|()| Clock::new(all)), pc);
        let (clocks, last) = self.arrived.entry((block, id)).or_insert_with(none);
        clocks.iter_mut().zip(k.clocks()).for_each(|(a, c)| a.join(c));
        *last = pc;
        k.clock.tick(warp);
    }

    /// An access; another one that races with it.
    pub(super) fn access(&mut self, key: Key, len: u32, touch: Touch) -> Option<Other> {
        let mut race = None;
        let end = key.at.saturating_add(len.into());
        let block = self.knows.get_mut(&touch.who.block);
        if let Some(k) = block.and_then(|b| b.get_mut(touch.warp as usize)) {
            if touch.strong && k.time != touch.time {
                k.lanes.meet_all(k.time);
            }
            k.time = touch.time;
        }
        // By words, as one half of a barrier of 64 bits is read to know its phase.
        for word in (key.at / 4..end.div_ceil(4)).filter(|_| touch.strong) {
            self.tell_and_hear(Key { at: 4 * word, ..key }, &touch);
        }
        for word in key.at / 4..end.div_ceil(4) {
            let first = key.at.max(4 * word) - 4 * word;
            let last = end.min(4 * word + 4) - 4 * word;
            let bytes = (15u16 >> (4 - (last - first))) << first;
            let found = self.word(Key { at: word, ..key }, bytes, &touch);
            race = race.or(found);
        }
        race
    }

    fn word(&mut self, Key { block, at }: Key, bytes: u16, touch: &Touch) -> Option<Other> {
        let own = touch.who.block;
        let knows = &self.knows.get(&own)?[touch.warp as usize];
        let (warps, all) = (self.warps, self.all);
        let me = own * all + touch.warp;
        let copier = touch.agent.filter(|_| !touch.barrier);
        let (author, clock) = match copier {
            Some(a) => (me + warps * (1 + a as u32), knows.copiers[a as usize].time),
            None => (me, knows.clock.own(touch.warp)),
        };
        let rows = match block {
            u32::MAX => &mut self.global,
            block => self.shared.entry(block).or_insert_with(|| Rows::new(OPEN_SHARED)),
        };
        let cell = rows.cell(at);
        let known = |p: &Past| {
            let (b, w) = (p.warp / all, p.warp % all);
            p.warp == me
                || p.warp == author
                || (if b == own { knows.clock.own(w) } else { knows.clock.other(p.warp) }) >= p.clock
        };
        let lane = touch.who.thread as usize & 31;
        // What lanes do by one instruction is compared where it is done.
        let met = |p: &Past| {
            !self.lanes
                || p.time == touch.time
                || p.lane() == lane
                || knows.lanes.know(lane, p.lane()) >= p.time
        };
        let ordered = |p: &Past| if p.warp == me { met(p) } else { known(p) };
        let together =
            |p: &Past| touch.strong && p.strong() && (p.warp / all == own || touch.wide && p.wide());
        let races = |p: &&Past| p.bytes() & bytes != 0 && !together(p) && !ordered(p);
        let mut race = None;
        if !touch.same {
            race = cell.writes.iter().find(races).map(|p| (*p, true));
            if touch.write && race.is_none() {
                race = cell.reads.iter().find(races).map(|p| (*p, false));
            }
        }
        let bits = lane as u16 | u16::from(touch.strong) << 5 | u16::from(touch.wide) << 6 | bytes << 8;
        let past = Past { warp: author, clock, time: touch.time, pc: touch.who.pc, bits };
        if touch.write {
            // What came before this access has been looked at; what did not, as two strong ones, may race with the next. So may
            // what is weak, or strong for a block alone, where this access is not: the next one may be its equal.
            let weaker = |p: &Past| touch.strong && !p.strong() || touch.wide && !p.wide();
            let kept = |p: &mut Past| p.bytes() & !bytes != 0 || !known(p) || weaker(p);
            cell.writes.retain(kept);
            if cell.writes.len() >= WRITERS {
                cell.writes.remove(0);
            }
            cell.writes.push(past);
            cell.reads.retain(kept);
        } else {
            // One reader of each warp, or two lanes of it: a third one that writes meets one of them.
            let mut own = 0;
            cell.reads.retain(|p| {
                let again = p.warp == author && p.bytes() & !bytes == 0;
                own += u32::from(again);
                !again || self.lanes && own == 1 && p.lane() != lane && !met(p)
            });
            if cell.reads.len() >= READERS {
                cell.reads.remove(0);
            }
            cell.reads.push(past);
        }
        race.map(|(p, wrote)| {
            let copied = p.warp % all >= warps;
            let thread = 32 * (p.warp % all % warps) + p.lane() as u32;
            Other { who: Who { pc: p.pc, block: p.warp / all, thread }, wrote, copied }
        })
    }

    fn tell_and_hear(&mut self, key: Key, touch: &Touch) {
        let first = touch.who.block * self.all;
        let Some(k) = self.knows.get_mut(&touch.who.block).and_then(|b| b.get_mut(touch.warp as usize))
        else {
            return;
        };
        if touch.write {
            // Before its first fence a warp has nothing to tell.
            if !touch.barrier && k.fences == 0 {
                return;
            }
            let told = self.told.entry(key.block).or_default().entry(key.at).or_default();
            let now = (first + touch.warp, k.fences, touch.wide);
            if touch.barrier {
                // The copies are done, which the warp need not know itself.
                if let Some(agent) = touch.agent {
                    let copier = &mut k.copiers[agent as usize];
                    let number = first + self.warps * (1 + agent as u32) + touch.warp;
                    let known = told.clock.entry(number).or_insert(0);
                    *known = copier.time.max(*known);
                    copier.time += 1;
                    told.version += 1;
                }
                told.version += u64::from(k.clock.publish(first, &mut told.clock));
                k.clock.tick(touch.warp);
            } else if told.last != Some(now) {
                let here = told.blocks.entry(touch.who.block).or_default();
                told.version += u64::from(k.fenced_here.publish(first, here));
                if touch.wide {
                    told.version += u64::from(k.fenced.publish(first, &mut told.clock));
                }
                told.last = Some(now);
            }
            return;
        }
        if touch.arrival {
            return;
        }
        if let Some(told) = self.told.get(&key.block).and_then(|t| t.get(&key.at))
            && k.heard.get(&key) != Some(&told.version)
        {
            if let Some(here) = told.blocks.get(&touch.who.block) {
                k.clock.learn(first, here);
            }
            if touch.barrier || key.block != u32::MAX {
                k.clock.learn(first, &told.clock);
            } else if touch.wide {
                for (w, c) in &told.clock {
                    let known = k.pending.entry(*w).or_insert(0);
                    *known = (*known).max(*c);
                }
            }
            if touch.wide {
                k.heard.insert(key, told.version);
            }
        }
    }
}
