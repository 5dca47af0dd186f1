//! Gives every web registers: those first that live where the warp holds few, then the widest, then in order of appearance; a web
//! that finds no room takes it from cheaper ones.
//!
//! Of the registers of a window ([`Windows`]) the next free one is taken, and not the lowest, so that what is used again
//! was last used as long ago as possible: where it matters, instructions keep their freedom to change places. Those
//! above it are taken lowest first. A function that must give back what it finds takes others as long as there are some among
//! the first 32.

use super::Limits;
use super::busy::{Busy, Slots};
use super::intervals::{Held, Intervals};
use super::webs::{Place, Web, WebData, Webs};
use crate::liveness::Segment;
use cranelift_entity::SecondaryMap;
use ori::registers::{FILES, Set};
use ori::{Function, Keeps};
use sass::{Reg, RegFile};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What holds the registers of a file: of each the intervals, their starts ascending (start, end, owner).
struct Owners(Vec<Vec<(u32, u32, Web)>>);

impl Owners {
    /// Owners of what register `r` holds in `at`.
    fn conflicts(&self, r: usize, at: Segment) -> impl Iterator<Item = Web> + '_ {
        let held = &self.0[r];
        let behind = held.partition_point(|(start, ..)| *start < at.end);
        let overlapping = held[..behind].iter().rev().take_while(move |(_, end, _)| *end > at.start);
        overlapping.map(|(.., owner)| *owner)
    }

    fn occupy(&mut self, r: usize, at: Segment, w: Web) {
        let place = self.0[r].partition_point(|(start, ..)| *start < at.start);
        self.0[r].insert(place, (at.start, at.end, w));
    }

    fn vacate(&mut self, r: usize, at: Segment, w: Web) {
        let from = self.0[r].partition_point(|(start, ..)| *start < at.start);
        let place = self.0[r][from..].iter().position(|(.., owner)| *owner == w);
        self.0[r].remove(from + place.expect("what is held"));
    }
}

/// How many registers of each file, from 0 on, are given out in turn.
pub type Windows = [u8; 5];

/// Uniform registers that all targets have: those of functions that call none are below.
const UPPER: u8 = 62;

/// Those of functions that call others are below this: lanes that have left a function and go on in its caller write uniform registers,
/// while others are still in it.
const MIDDLE: u8 = 32;

/// Below which uniform register those of a function begin that is called; nothing of a kernel's.
pub fn uniform_limit(func: &Function) -> Option<u8> {
    let called = !func.entry && func.keeps == Keeps::Convention;
    called.then_some(if func.callees.is_empty() { UPPER } else { MIDDLE })
}

/// Which webs are given registers first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The widest.
    Width,
    /// Those that take most: registers times how long.
    Area,
    /// The widest, those that begin first before others. What finds no room takes that of others, which look for room anew, up to so many
    /// registers in all; those that lost theirs cost more each time (as routers of circuits negotiate: McMurchie and Ebeling, "PathFinder", 1995).
    Negotiated(usize),
    /// The same in order of appearance.
    NegotiatedInTurn(usize),
}

impl Order {
    /// How often what finds no room may take that of others, whatever they weigh: registers in all.
    pub fn patience(self) -> Option<usize> {
        match self {
            Order::Width | Order::Area => None,
            Order::Negotiated(n) | Order::NegotiatedInTurn(n) => Some(n),
        }
    }
}

/// Wider frames are not negotiated for.
const WIDE: usize = 16;

/// What all colourings of a function's webs begin with.
pub struct Ground<'a> {
    webs: &'a Webs,
    limits: Limits,
    slots: Slots,
    /// Where registers are taken whatever webs have.
    taken: [Busy; 5],
    copied: Neighbours,
    replaced: Neighbours,
    wishes: SecondaryMap<Web, SmallVec<[u8; 2]>>,
    /// Uses per point.
    density: SecondaryMap<Web, f32>,
    /// Whether registers that callees keep have to be saved, and where uniform registers begin then.
    called: Option<u8>,
}

/// Registers of all webs.
pub struct Coloring<'a> {
    ground: &'a Ground<'a>,
    /// First register of each web's frame.
    pub reg: SecondaryMap<Web, Option<u8>>,
    busy: [Busy; 5],
    /// Of the files in which something had to make room.
    owners: [Option<Owners>; 5],
    windows: Windows,
    /// Where the search in each window begins.
    next: Windows,
    /// Registers of each file up to the highest that is used.
    pub used: [u16; 5],
}

/// Webs whose registers would best be the same as another's, and how far their frames are apart then.
struct Neighbours(SecondaryMap<Web, SmallVec<[(Web, i16); 2]>>);

impl Neighbours {
    fn of(pairs: &[(Place, Place)]) -> Neighbours {
        let mut near: SecondaryMap<Web, SmallVec<[(Web, i16); 2]>> = SecondaryMap::new();
        for &((a, i), (b, j)) in pairs {
            near[a].push((b, i16::from(j) - i16::from(i)));
            near[b].push((a, i16::from(i) - i16::from(j)));
        }
        Neighbours(near)
    }

    /// Where the frame would begin by what its neighbours have.
    fn registers(&self, w: Web, given: &SecondaryMap<Web, Option<u8>>) -> impl Iterator<Item = u8> {
        self.0[w].iter().filter_map(|(o, delta)| u8::try_from(i16::from(given[*o]?) + delta).ok())
    }
}

/// Uses per point; a web that cannot be split any more is infinitely heavy.
fn density(w: &WebData, pinned: bool) -> f32 {
    if pinned {
        return f32::INFINITY;
    }
    w.weight / w.length().max(1) as f32
}

impl Ground<'_> {
    /// For these webs, of which the `pinned` ones are never evicted. `called` is what [`uniform_limit`] says: registers that callees keep
    /// cost a store and a load in such functions.
    pub fn new<'a>(
        webs: &'a Webs,
        limits: &Limits,
        called: Option<u8>,
        pinned: impl Fn(&WebData) -> bool,
    ) -> Ground<'a> {
        let held = || webs.webs.values().flat_map(|d| d.lanes.iter().flat_map(Intervals::iter).map(|h| h.at));
        let fixed = webs.fixed.iter().map(|(_, at)| *at).chain(webs.taken.iter().map(|(at, _)| *at));
        let slots = Slots::new(held().chain(fixed));
        let mut taken = FILES.map(|f| Busy::new(&slots, limits.count(f).into()));
        for (reg, at) in webs.fixed.iter().filter(|(reg, _)| reg.index < limits.count(reg.file)) {
            taken[reg.file as usize].occupy(&slots, reg.index, *at);
        }
        for (at, all) in &webs.taken {
            for file in FILES {
                let all = all.of(file).among(&Set::of(0..limits.count(file).into()));
                if !all.is_empty() {
                    taken[file as usize].take(&slots, &all, *at);
                }
            }
        }
        let mut wishes: SecondaryMap<Web, SmallVec<[u8; 2]>> = SecondaryMap::new();
        for ((w, offset), reg) in &webs.wishes {
            wishes[*w].extend(reg.index.checked_sub(*offset));
        }
        // Where products of warp groups are, what takes an accumulator's register would have all of it stored and brought back.
        let groups = webs.webs.values().any(|d| d.lowest != 0);
        let mut weight: SecondaryMap<Web, f32> = SecondaryMap::with_capacity(webs.webs.len());
        for (w, d) in webs.webs.iter().filter(|(_, d)| !d.members.is_empty()) {
            weight[w] = density(d, pinned(d)) * if groups { d.lanes.len() as f32 } else { 1.0 };
        }
        let (copied, replaced) = (Neighbours::of(&webs.copies), Neighbours::of(&webs.replaced));
        Ground { webs, limits: *limits, slots, taken, copied, replaced, wishes, density: weight, called }
    }
}

impl<'a> Coloring<'a> {
    /// Colours all webs.
    ///
    /// # Errors
    /// The webs for which there was no room.
    pub fn new(ground: &'a Ground<'a>, windows: Windows, order: Order) -> Result<Coloring<'a>, Vec<Web>> {
        let webs = ground.webs;
        let mut c = Coloring {
            ground,
            reg: SecondaryMap::with_capacity(webs.webs.len()),
            busy: ground.taken.clone(),
            owners: [const { None }; 5],
            windows,
            next: [0; 5],
            used: [0; 5],
        };
        let rank = |d: &WebData| match order {
            Order::Width | Order::Negotiated(_) => (d.confined, d.size() as u64),
            Order::Area => (d.confined, d.length()),
            Order::NegotiatedInTurn(_) => (d.confined, u64::from(u32::MAX - d.start())),
        };
        let mut queue = BinaryHeap::new();
        for (w, d) in webs.webs.iter().filter(|(_, d)| !d.members.is_empty()) {
            queue.push((rank(d), Reverse((d.start(), w))));
        }
        let mut failed = Vec::new();
        let mut evictions = 0usize;
        let size = |w: Web| webs.webs[w].lanes.len() as f32;
        let patience = order.patience();
        let mut weight = ground.density.clone();
        if patience.is_some() {
            webs.webs.keys().for_each(|w| weight[w] = size(w));
        }
        // Other files have few registers, so that little is looked at, and what finds none there may have nowhere to go.
        let general = if patience.is_some() { 4 } else { 1 };
        let most = patience.map_or(4 * webs.webs.len() + 1000, |n| general * n);
        while let Some((_, Reverse((_, w)))) = queue.pop() {
            let d = &webs.webs[w];
            let beside = |n: &'_ Neighbours| -> SmallVec<[u8; 4]> { n.registers(w, &c.reg).collect() };
            let mut hints = beside(&ground.copied);
            hints.extend(ground.wishes[w].iter().copied());
            // What is given out in turn is to be another register than what it takes the place of, among uniform ones.
            if d.file != RegFile::UR || c.windows[RegFile::UR as usize] == 0 {
                hints.extend(beside(&ground.replaced));
            }
            if let Some(r) = c.free_frame(d, &hints) {
                c.occupy(w, d, r);
                continue;
            }
            // A wide web takes long to look for, so that fewer of them may be tried.
            let each = if d.file == RegFile::R { general } else { 1 };
            evictions += each * if patience.is_some() { d.lanes.len() } else { 1 };
            let limit = if patience.is_some() { f32::INFINITY } else { weight[w] };
            // Accumulators of warp groups have no place but theirs.
            let may = evictions < most && (patience.is_none() || d.lanes.len() <= WIDE);
            let victims = may.then(|| c.cheapest_frame(d, limit, &weight)).flatten();
            let Some((r, victims)) = victims else {
                failed.push(w);
                // Whatever else fails, another order says what leaves its register.
                if patience.is_some() {
                    break;
                }
                continue;
            };
            for v in victims {
                if patience.is_some() {
                    weight[v] += size(v);
                }
                c.vacate(v, &webs.webs[v]);
                let vd = &webs.webs[v];
                let first = vd.start();
                queue.push((rank(vd), Reverse((first, v))));
            }
            c.occupy(w, d, r);
        }
        if failed.is_empty() { Ok(c) } else { Err(failed) }
    }

    /// A register of `file` that is free over `at`, below those already in use.
    pub fn scratch(&self, file: RegFile, at: Segment) -> Option<Reg> {
        let below = usize::from(self.used[file as usize]).min(self.ground.limits.count(file).into());
        let free = Set::of(0..below).without(&self.busy[file as usize].during(&self.ground.slots, at));
        free.iter().map(|index| Reg { file, index }).find(|r| !self.ground.limits.reserved(*r))
    }

    fn touch(&mut self, file: RegFile, index: u8) {
        let used = &mut self.used[file as usize];
        *used = (*used).max(u16::from(index) + 1);
    }

    /// Where frame `d` may begin, whatever holds the registers.
    fn starts(&self, d: &WebData) -> Set {
        let count = usize::from(self.ground.limits.count(d.file));
        let Some(last) = count.checked_sub(d.lanes.len()) else { return Set::default() };
        let all = Set::of(d.lowest.into()..last + 1).among(&Set::multiples(d.align));
        let mut taken = Set::default();
        let reserved =
            (0..count).filter(|n| self.ground.limits.reserved(Reg { file: d.file, index: *n as u8 }));
        for r in reserved {
            taken.add(&Set::of((r + 1).saturating_sub(d.lanes.len())..r + 1));
        }
        all.without(&taken)
    }

    fn free_frame(&mut self, d: &WebData, hints: &[u8]) -> Option<u8> {
        let free = self.free_starts(d, &self.busy[d.file as usize]);
        free.first()?;
        if let Some(r) = hints.iter().copied().find(|r| free.contains(*r)) {
            return Some(r);
        }
        let (window, next) = (self.windows[d.file as usize], usize::from(self.next[d.file as usize]));
        // Frames that begin below are within the window.
        let inside = (usize::from(window) + 1).saturating_sub(d.lanes.len());
        let first_in = |range: Range<usize>| free.among(&Set::of(range)).first();
        if let Some(r) = first_in(next..inside).or_else(|| first_in(0..next.min(inside))) {
            self.next[d.file as usize] = r + d.lanes.len() as u8;
            return Some(r);
        }
        // Kernels have theirs from the lower end.
        if let (Some(limit), RegFile::UR) = (self.ground.called, d.file)
            && let Some(r) = free.among(&Set::of(inside..limit.into())).last()
        {
            return Some(r);
        }
        let above = free.among(&Set::of(inside..Reg::ZERO.into()));
        if self.ground.called.is_some() && d.file == RegFile::R {
            let cheap = |r: &u8| {
                let last = usize::from(*r) + d.lanes.len();
                last <= ori::abi::SHARED_REGISTERS.into()
                    && (usize::from(*r)..last)
                        .all(|n| !self.ground.limits.convention.is_preserved(Reg::r(n as u8)))
            };
            if let Some(r) = above.iter().find(cheap) {
                return Some(r);
            }
        }
        above.first()
    }

    /// What holds the registers of a file: it is kept from the first time on that something has to make room there.
    fn owners(&mut self, file: RegFile) -> &Owners {
        let Ground { webs, limits, .. } = self.ground;
        self.owners[file as usize].get_or_insert_with(|| {
            let mut held = vec![Vec::new(); limits.count(file).into()];
            for (w, d) in webs.webs.iter().filter(|(_, d)| d.file == file) {
                let Some(r) = self.reg[w] else { continue };
                for (k, lane) in d.lanes.iter().enumerate() {
                    held[usize::from(r) + k].extend(lane.iter().map(|h| (h.at.start, h.at.end, w)));
                }
            }
            held.iter_mut().for_each(|list| list.sort_unstable_by_key(|(start, end, _)| (*start, *end)));
            Owners(held)
        })
    }

    /// Where frame `d` may begin in `busy`.
    fn free_starts(&self, d: &WebData, busy: &Busy) -> Set {
        let mut free = self.starts(d);
        for (k, lane) in d.lanes.iter().enumerate() {
            let mut taken = Set::default();
            lane.iter().for_each(|h| taken.add(&busy.during(&self.ground.slots, h.at)));
            free = free.without(&taken.down(k));
            if free.is_empty() {
                break;
            }
        }
        free
    }

    /// The frame whose owners are together lightest, if they are lighter than `limit`.
    fn cheapest_frame(
        &mut self,
        d: &WebData,
        limit: f32,
        weight: &SecondaryMap<Web, f32>,
    ) -> Option<(u8, SmallVec<[Web; 4]>)> {
        let mut best: Option<(f32, u8, SmallVec<[Web; 4]>)> = None;
        let starts = self.free_starts(d, &self.ground.taken[d.file as usize]);
        let owners = self.owners(d.file);
        for r in starts.iter() {
            let mut victims: SmallVec<[Web; 4]> = SmallVec::new();
            let mut total = 0.0;
            let lanes = d.lanes.iter().enumerate().flat_map(|(k, lane)| {
                lane.iter().flat_map(move |h| owners.conflicts(usize::from(r) + k, h.at))
            });
            for w in lanes {
                if !victims.contains(&w) {
                    total += weight[w];
                    victims.push(w);
                }
                if total >= limit || best.as_ref().is_some_and(|b| total >= b.0) {
                    total = f32::INFINITY;
                    break;
                }
            }
            if total < limit && best.as_ref().is_none_or(|b| total < b.0) {
                best = Some((total, r, victims));
            }
        }
        best.map(|(_, r, v)| (r, v))
    }

    fn occupy(&mut self, w: Web, d: &WebData, r: u8) {
        self.reg[w] = Some(r);
        let (busy, owners) = (&mut self.busy[d.file as usize], &mut self.owners[d.file as usize]);
        for (lane, r) in d.lanes.iter().zip(r..) {
            for Held { at, .. } in lane.iter() {
                busy.occupy(&self.ground.slots, r, *at);
                if let Some(owners) = owners {
                    owners.occupy(r.into(), *at, w);
                }
            }
        }
        self.touch(d.file, r + (d.lanes.len() as u8 - 1));
    }

    fn vacate(&mut self, w: Web, d: &WebData) {
        let Some(r) = self.reg[w].take() else { return };
        let (busy, owners) = (&mut self.busy[d.file as usize], &mut self.owners[d.file as usize]);
        for (lane, r) in d.lanes.iter().zip(r..) {
            for Held { at, .. } in lane.iter() {
                busy.vacate(&self.ground.slots, r, *at);
                if let Some(owners) = owners {
                    owners.vacate(r.into(), *at, w);
                }
            }
        }
    }
}
