//! Gives every web registers: those first that live where the warp holds few, then the widest, then in order of appearance; a web
//! that finds no room takes it from cheaper ones.
//!
//! Of the registers of a window ([`Windows`]) the next free one is taken, and not the lowest, so that what is used again
//! was last used as long ago as possible: where it matters, instructions keep their freedom to change places. Those
//! above it are taken lowest first. A function that must give back what it finds takes others as long as there are some among
//! the first 32.

use super::Limits;
use super::intervals::Held;
use super::webs::{Place, Web, WebData, Webs};
use crate::liveness::Segment;
use cranelift_entity::SecondaryMap;
use ori::{Function, Keeps};
use sass::{Reg, RegFile};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

/// What occupies one register.
#[derive(Clone, Default)]
struct Unit {
    /// Intervals: start → (end, owner; `None` is a fixed use).
    held: BTreeMap<u32, (u32, Option<Web>)>,
    /// Among which of 64 parts of the function they are; what was vacated since may be counted still.
    parts: u64,
}

impl Unit {
    /// Owners of the intervals that overlap `at`.
    fn conflicts(&self, at: Segment) -> impl Iterator<Item = Option<Web>> + '_ {
        let overlapping = self.held.range(..at.end).rev().take_while(move |(_, (end, _))| *end > at.start);
        overlapping.map(|(_, (_, owner))| *owner)
    }

    fn is_free(&self, at: Segment) -> bool {
        self.held.range(..at.end).next_back().is_none_or(|(_, (end, _))| *end <= at.start)
    }

    fn occupy(&mut self, at: Segment, owner: Option<Web>, shift: u32) {
        self.held.insert(at.start, (at.end, owner));
        self.parts |= parts(at, shift);
    }
}

/// The parts of a function, of so many points each as a power of two, that an interval touches.
fn parts(at: Segment, shift: u32) -> u64 {
    let (first, last) = (at.start >> shift, (at.end.max(at.start + 1) - 1) >> shift);
    (u64::MAX >> (63 - last.min(63))) & (u64::MAX << first.min(63))
}

/// The files that are allocated, in the order of [`RegFile`].
pub const FILES: [RegFile; 5] = [RegFile::R, RegFile::P, RegFile::UR, RegFile::UP, RegFile::B];

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

/// Registers of all webs.
pub struct Coloring {
    /// First register of each web's frame.
    pub reg: SecondaryMap<Web, Option<u8>>,
    units: [Vec<Unit>; 5],
    limits: Limits,
    windows: Windows,
    /// Whether registers that callees keep have to be saved, and where uniform registers begin then.
    called: Option<u8>,
    /// Where the search in each window begins.
    next: Windows,
    /// Points of a part of the function, as a power of two.
    shift: u32,
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

impl Coloring {
    /// Colours all webs; `pinned` webs are never evicted. `called` is what [`uniform_limit`] says: registers that callees keep cost a
    /// store and a load in such functions.
    ///
    /// # Errors
    /// The webs for which there was no room.
    pub fn new(
        webs: &Webs,
        limits: &Limits,
        windows: Windows,
        called: Option<u8>,
        order: Order,
        pinned: impl Fn(&WebData) -> bool,
    ) -> Result<Coloring, Vec<Web>> {
        let mut c = Coloring {
            reg: SecondaryMap::new(),
            units: FILES.map(|f| vec![Unit::default(); usize::from(limits.count(f))]),
            shift: 0,
            limits: *limits,
            windows,
            called,
            next: [0; 5],
            used: [0; 5],
        };
        let ends = webs.webs.values().flat_map(|d| d.lanes.iter().filter_map(|l| Some(l.last()?.at.end)));
        let points = ends.chain(webs.fixed.iter().map(|(_, at)| at.end)).max().unwrap_or(0);
        c.shift = (u32::BITS - points.leading_zeros()).saturating_sub(u64::BITS.trailing_zeros());
        let shift = c.shift;
        for (reg, at) in &webs.fixed {
            if let Some(unit) = c.units[reg.file as usize].get_mut(usize::from(reg.index)) {
                unit.occupy(*at, None, shift);
            }
        }
        let mut weight: SecondaryMap<Web, f32> = SecondaryMap::new();
        let (copied, replaced) = (Neighbours::of(&webs.copies), Neighbours::of(&webs.replaced));
        let mut wishes: SecondaryMap<Web, SmallVec<[u8; 2]>> = SecondaryMap::new();
        for ((w, offset), reg) in &webs.wishes {
            wishes[*w].extend(reg.index.checked_sub(*offset));
        }
        let rank = |d: &WebData| match order {
            Order::Width | Order::Negotiated(_) => (d.confined, d.size() as u64),
            Order::Area => (d.confined, d.length()),
            Order::NegotiatedInTurn(_) => (d.confined, u64::from(u32::MAX - d.start())),
        };
        let mut queue = BinaryHeap::new();
        // Where products of warp groups are, what takes an accumulator's register would have all of it stored and brought back.
        let groups = webs.webs.values().any(|d| d.lowest != 0);
        for (w, d) in webs.webs.iter() {
            if !d.members.is_empty() {
                weight[w] = density(d, pinned(d));
                if groups {
                    weight[w] *= d.lanes.len() as f32;
                }
                let start = d.start();
                queue.push((rank(d), Reverse((start, w))));
            }
        }
        let mut failed = Vec::new();
        let mut evictions = 0usize;
        let size = |w: Web| webs.webs[w].lanes.len() as f32;
        let patience = order.patience();
        if patience.is_some() {
            webs.webs.keys().for_each(|w| weight[w] = size(w));
        }
        let most = patience.unwrap_or(4 * webs.webs.len() + 1000);
        while let Some((_, Reverse((_, w)))) = queue.pop() {
            let d = &webs.webs[w];
            let beside = |n: &'_ Neighbours| -> SmallVec<[u8; 4]> { n.registers(w, &c.reg).collect() };
            let mut hints = beside(&copied);
            hints.extend(wishes[w].iter().copied());
            // What is given out in turn is to be another register than what it takes the place of, among uniform ones.
            if d.file != RegFile::UR || c.windows[RegFile::UR as usize] == 0 {
                hints.extend(beside(&replaced));
            }
            if let Some(r) = c.free_frame(d, &hints) {
                c.occupy(w, d, r);
                continue;
            }
            // A wide web takes long to look for, so that fewer of them may be tried.
            evictions += if patience.is_some() { d.lanes.len() } else { 1 };
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
        let units = &self.units[file as usize];
        let below = usize::from(self.used[file as usize]).min(units.len());
        (0..below)
            .map(|r| Reg { file, index: r as u8 })
            .find(|r| !self.limits.reserved(*r) && units[usize::from(r.index)].is_free(at))
    }

    fn touch(&mut self, file: RegFile, index: u8) {
        let used = &mut self.used[file as usize];
        *used = (*used).max(u16::from(index) + 1);
    }

    /// Whether frame `d` may start at register `r`.
    fn fits(&self, d: &WebData, r: u8) -> bool {
        let last = usize::from(r) + d.lanes.len();
        r.is_multiple_of(d.align)
            && r >= d.lowest
            && last <= self.units[d.file as usize].len()
            && (usize::from(r)..last)
                .all(|index| !self.limits.reserved(Reg { file: d.file, index: index as u8 }))
    }

    /// Where frame `d` may begin for its alignment, of the registers in `among`.
    fn candidates(&self, d: &WebData, among: Range<usize>) -> impl Iterator<Item = u8> + use<> {
        let align = usize::from(d.align);
        let end = among.end.min(self.units[d.file as usize].len());
        std::iter::successors(Some(among.start.next_multiple_of(align)), move |r| Some(r + align))
            .take_while(move |r| *r < end)
            .map(|r| r as u8)
    }

    fn free_frame(&mut self, d: &WebData, hints: &[u8]) -> Option<u8> {
        let mut touched: SmallVec<[u64; 4]> = SmallVec::new();
        for lane in &d.lanes {
            let mut all = 0;
            lane.all(|h| {
                all |= parts(h.at, self.shift);
                true
            });
            touched.push(all);
        }
        let free = |r: &u8| {
            self.fits(d, *r)
                && d.lanes.iter().zip(&touched).enumerate().all(|(k, (lane, touched))| {
                    let unit = &self.units[d.file as usize][usize::from(*r) + k];
                    unit.parts & touched == 0 || lane.all(|h| unit.is_free(h.at))
                })
        };
        if let Some(r) = hints.iter().copied().find(free) {
            return Some(r);
        }
        let (window, next) = (self.windows[d.file as usize], usize::from(self.next[d.file as usize]));
        // Frames that begin below are within the window.
        let inside = (usize::from(window) + 1).saturating_sub(d.lanes.len());
        let found = self.candidates(d, next..inside).find(free);
        let found = found.or_else(|| self.candidates(d, 0..next.min(inside)).find(free));
        if let Some(r) = found {
            self.next[d.file as usize] = r + d.lanes.len() as u8;
            return Some(r);
        }
        let above = || self.candidates(d, inside..usize::MAX);
        // Kernels have theirs from the lower end.
        if let (Some(limit), RegFile::UR) = (self.called, d.file) {
            let upper: SmallVec<[u8; 64]> = above().take_while(|r| *r < limit).collect();
            if let Some(r) = upper.into_iter().rev().find(free) {
                return Some(r);
            }
        }
        if self.called.is_some() && d.file == RegFile::R {
            let cheap = |r: &u8| {
                let last = usize::from(*r) + d.lanes.len();
                last <= ori::abi::SHARED_REGISTERS.into()
                    && (usize::from(*r)..last).all(|n| !self.limits.convention.is_preserved(Reg::r(n as u8)))
            };
            if let Some(r) = above().filter(cheap).find(free) {
                return Some(r);
            }
        }
        above().find(free)
    }

    /// The frame whose owners are together lightest, if they are lighter than `limit`.
    fn cheapest_frame(
        &self,
        d: &WebData,
        limit: f32,
        weight: &SecondaryMap<Web, f32>,
    ) -> Option<(u8, SmallVec<[Web; 4]>)> {
        let mut best: Option<(f32, u8, SmallVec<[Web; 4]>)> = None;
        for r in self.candidates(d, 0..usize::MAX).filter(|r| self.fits(d, *r)) {
            let mut victims: SmallVec<[Web; 4]> = SmallVec::new();
            let mut total = 0.0;
            let lanes = d.lanes.iter().enumerate().flat_map(|(k, lane)| {
                let unit = &self.units[d.file as usize][usize::from(r) + k];
                lane.iter().flat_map(move |h| unit.conflicts(h.at))
            });
            for owner in lanes {
                match owner {
                    None => total = f32::INFINITY,
                    Some(w) if !victims.contains(&w) => {
                        total += weight[w];
                        victims.push(w);
                    }
                    Some(_) => {}
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
        for (k, lane) in d.lanes.iter().enumerate() {
            let unit = &mut self.units[d.file as usize][usize::from(r) + k];
            for h in lane.iter() {
                unit.occupy(h.at, Some(w), self.shift);
            }
        }
        self.touch(d.file, r + (d.lanes.len() as u8 - 1));
    }

    fn vacate(&mut self, w: Web, d: &WebData) {
        let Some(r) = self.reg[w].take() else { return };
        for (k, lane) in d.lanes.iter().enumerate() {
            let unit = &mut self.units[d.file as usize][usize::from(r) + k];
            for Held { at, .. } in lane.iter() {
                unit.held.remove(&at.start);
            }
        }
    }
}
