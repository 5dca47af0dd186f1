//! Gives every web registers: those first that live where the warp holds few, then the widest, then in order of appearance; a web
//! that finds no room takes it from cheaper ones.
//!
//! Of the registers of a window ([`Windows`]) the next free one is taken, and not the lowest, so that what is used again
//! was last used as long ago as possible: where it matters, instructions keep their freedom to change places. Those
//! above it are taken lowest first. A function that must give back what it finds takes others as long as there are some among
//! the first 32.

use super::Limits;
use super::busy::{Busy, Slots};
use super::intervals::Intervals;
use super::webs::{Place, Web, WebData, Webs};
use crate::liveness::Segment;
use cranelift_entity::SecondaryMap;
use ori::registers::{FILES, Set};
use ori::{Function, Keeps};
use sass::{Reg, RegFile};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{ControlFlow, Range};

/// What holds the registers of a file: of each the slots, their starts ascending (start, end, owner).
struct Owners(Vec<Vec<(u32, u32, Web)>>);

impl Owners {
    /// Calls `f` for the owners of what register `r` holds in these ranges of slots, which ascend: range by range, the last owner first; until
    /// it says that it is enough. An owner may come several times.
    #[inline]
    fn conflicts(
        &self,
        r: usize,
        ranges: &[Range<u32>],
        mut f: impl FnMut(Web) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let held = &self.0[r][..];
        let mut behind = 0;
        for slots in ranges {
            behind += held[behind..].partition_point(|(start, ..)| *start < slots.end);
            for (_, end, owner) in held[..behind].iter().rev() {
                if *end <= slots.start {
                    break;
                }
                f(*owner)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn occupy(&mut self, r: usize, slots: &Range<u32>, w: Web) {
        let place = self.0[r].partition_point(|(start, ..)| *start < slots.start);
        self.0[r].insert(place, (slots.start, slots.end, w));
    }

    fn vacate(&mut self, r: usize, slots: &Range<u32>, w: Web) {
        let from = self.0[r].partition_point(|(start, ..)| *start < slots.start);
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
pub const MIDDLE: u8 = 32;

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
const WIDEST_NEGOTIATED: usize = 16;

/// Frames of so many registers are placed before all others where they find no room.
const ACCUMULATOR: usize = 8;
/// How often their places are searched for.
const PLACINGS: usize = 60;

/// Registers side by side of a frame that are taken at the same time.
struct Run {
    registers: Range<u8>,
    /// When, in [`Ground::held`].
    held: Range<u32>,
}

/// What all colourings of a function's webs begin with.
pub struct Ground<'a> {
    webs: &'a Webs,
    limits: Limits,
    slots: Slots,
    /// Where registers are taken whatever webs have.
    taken: [Busy; 5],
    /// Registers of each file that are not given out.
    reserved: [SmallVec<[u8; 2]>; 5],
    /// Slots in which registers of frames are taken, the runs of all webs, those of each, and where each begins to live and how long it does.
    held: Vec<Range<u32>>,
    runs: Vec<Run>,
    of_web: SecondaryMap<Web, Range<u32>>,
    lives: SecondaryMap<Web, (u32, u64)>,
    copied: Neighbours,
    replaced: Neighbours,
    wishes: SecondaryMap<Web, SmallVec<[u8; 2]>>,
    /// Uses per point.
    density: SecondaryMap<Web, f32>,
    /// Where accumulators of warp groups are, if that was searched for ([`Ground::place_accumulators`]).
    placed: Vec<(Web, u8)>,
    /// Whether registers that callees keep have to be saved, and where uniform registers begin then.
    called: Option<u8>,
}

/// What is wanted of a colouring.
pub struct Terms<'c, 'a> {
    /// Registers that are given out in turn.
    pub windows: Windows,
    /// With more webs that found no room it is given up: nobody asks which.
    pub most_failed: usize,
    /// If more registers of a file are used it is given up, too.
    pub most_used: [u16; 5],
    /// Files that are not coloured `anew` are as in this one.
    pub like: Option<&'c Coloring<'a>>,
    /// The files that are coloured: all where there is none `like` it.
    pub anew: [bool; 5],
}

impl Default for Terms<'_, '_> {
    fn default() -> Self {
        Terms {
            windows: [0; 5],
            most_failed: usize::MAX,
            most_used: [u16::MAX; 5],
            like: None,
            anew: [true; 5],
        }
    }
}

/// Registers of all webs.
pub struct Coloring<'a> {
    ground: &'a Ground<'a>,
    /// First register of each web's frame.
    pub reg: SecondaryMap<Web, Option<u8>>,
    busy: [Busy; 5],
    /// Of the files in which something had to make room, and how often that was tried.
    owners: [Option<Owners>; 5],
    evictions: usize,
    windows: Windows,
    /// Where the search in each window begins.
    next: Windows,
    /// Registers of each file up to the highest that is used.
    pub used: [u16; 5],
}

/// A colouring without room for some webs.
pub struct Failed<'a> {
    /// Those, as far as nobody gave up.
    pub webs: Vec<Web>,
    /// What the others have.
    pub rest: Coloring<'a>,
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
fn density(w: &WebData, length: u64, pinned: bool) -> f32 {
    if pinned { f32::INFINITY } else { w.weight / length.max(1) as f32 }
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
            let one = usize::from(reg.index)..usize::from(reg.index) + 1;
            taken[reg.file as usize].occupy(&Set::of(one), slots.range(*at));
        }
        for (at, all) in &webs.taken {
            for file in FILES {
                let all = all.of(file).among(&Set::of(0..limits.count(file).into()));
                if !all.is_empty() {
                    taken[file as usize].occupy(&all, slots.range(*at));
                }
            }
        }
        let reserved = FILES.map(|file| {
            let all = (0..limits.count(file)).filter(|index| limits.reserved(Reg { file, index: *index }));
            all.collect()
        });
        let mut wishes: SecondaryMap<Web, SmallVec<[u8; 2]>> = SecondaryMap::new();
        for ((w, offset), reg) in &webs.wishes {
            wishes[*w].extend(reg.index.checked_sub(*offset));
        }
        let (copied, replaced) = (Neighbours::of(&webs.copies), Neighbours::of(&webs.replaced));
        let count = webs.webs.len();
        let mut ground = Ground {
            webs,
            limits: *limits,
            slots,
            taken,
            reserved,
            held: Vec::new(),
            runs: Vec::new(),
            of_web: SecondaryMap::with_capacity(count),
            lives: SecondaryMap::with_capacity(count),
            copied,
            replaced,
            wishes,
            density: SecondaryMap::with_capacity(count),
            placed: Vec::new(),
            called,
        };
        // Where products of warp groups are, what takes an accumulator's register would have all of it stored and brought back.
        let groups = webs.webs.values().any(|d| d.lowest != 0);
        for (w, d) in webs.webs.iter().filter(|(_, d)| !d.members.is_empty()) {
            let length = ground.note(w, d);
            let registers = if groups { d.lanes.len() as f32 } else { 1.0 };
            ground.density[w] = density(d, length, pinned(d)) * registers;
        }
        ground
    }

    /// Notes when a web's registers are taken; returns how long they are, in all.
    fn note(&mut self, w: Web, d: &WebData) -> u64 {
        let first = self.runs.len() as u32;
        for (k, lane) in (0u8..).zip(&d.lanes) {
            let same = |other: &Intervals| {
                lane.len() == other.len() && lane.iter().zip(other.iter()).all(|(a, b)| a.at == b.at)
            };
            match self.runs.last_mut().filter(|_| k > 0) {
                Some(run) if same(&d.lanes[usize::from(k) - 1]) => run.registers.end = k + 1,
                _ => {
                    let from = self.held.len() as u32;
                    self.held.extend(lane.iter().map(|h| {
                        let Range { start, end } = self.slots.range(h.at);
                        start as u32..end as u32
                    }));
                    self.runs.push(Run { registers: k..k + 1, held: from..self.held.len() as u32 });
                }
            }
        }
        self.of_web[w] = first..self.runs.len() as u32;
        self.lives[w] = (d.start(), d.length());
        self.lives[w].1
    }

    /// The registers of a web's frame, and when they are taken.
    fn runs(&self, w: Web) -> impl Iterator<Item = (Range<usize>, &[Range<u32>])> {
        let Range { start, end } = self.of_web[w];
        self.runs[start as usize..end as usize].iter().map(|run| {
            let held = &self.held[run.held.start as usize..run.held.end as usize];
            (run.registers.start.into()..run.registers.end.into(), held)
        })
    }

    /// Where a web's frame may begin, whatever other webs have.
    fn starts(&self, d: &WebData) -> Set {
        let count = usize::from(self.limits.count(d.file));
        let Some(last) = count.checked_sub(d.lanes.len()) else { return Set::default() };
        let mut all = Set::of(d.lowest.into()..last + 1).among(&Set::multiples(d.align));
        for r in self.reserved[d.file as usize].iter().map(|r| usize::from(*r)) {
            all = all.without(&Set::of((r + 1).saturating_sub(d.lanes.len())..r + 1));
        }
        all
    }

    /// Whether a web is an accumulator of warp groups, or as wide.
    pub fn is_accumulator(&self, w: Web) -> bool {
        let d = &self.webs.webs[w];
        d.lowest != 0 && d.lanes.len() >= ACCUMULATOR
    }

    /// Searches for places of the widest frames, where they found none one after the other: what found none is placed first the next time.
    pub fn place_accumulators(&mut self) {
        let mut order: Vec<Web> = self.webs.webs.keys().filter(|w| self.is_accumulator(*w)).collect();
        order.sort_by_key(|w| Reverse(self.webs.webs[*w].lanes.len()));
        for _ in 0..PLACINGS {
            let mut given: SecondaryMap<Web, Option<u8>> = SecondaryMap::new();
            let mut busy = self.taken[RegFile::R as usize].clone();
            let without = order.iter().position(|&w| {
                let free = self.free_starts(w, &busy);
                let hint = self.copied.registers(w, &given).find(|r| free.contains(*r));
                let Some(r) = hint.or_else(|| free.first()) else { return true };
                given[w] = Some(r);
                for (registers, held) in self.runs(w) {
                    let (first, last) = (usize::from(r) + registers.start, usize::from(r) + registers.end);
                    let all = Set::of(first..last);
                    held.iter().for_each(|h| busy.occupy(&all, h.start as usize..h.end as usize));
                }
                false
            });
            match without {
                Some(at) => order[..=at].rotate_right(1),
                None => {
                    self.placed = order.iter().filter_map(|w| Some((*w, given[*w]?))).collect();
                    return;
                }
            }
        }
    }

    /// Those of them where nothing in `busy` is in its way.
    fn free_starts(&self, w: Web, busy: &Busy) -> Set {
        let mut free = self.starts(&self.webs.webs[w]);
        for (registers, held) in self.runs(w) {
            let mut taken = Set::default();
            held.iter().for_each(|h| taken.add(&busy.during(h.start as usize..h.end as usize)));
            registers.for_each(|k| free = free.without(&taken.down(k)));
            if free.is_empty() {
                break;
            }
        }
        free
    }
}

impl<'a> Coloring<'a> {
    /// Colours all webs.
    ///
    /// # Errors
    /// If there was no room for some.
    pub fn new(
        ground: &'a Ground<'a>,
        order: Order,
        terms: &Terms<'_, 'a>,
    ) -> Result<Coloring<'a>, Box<Failed<'a>>> {
        let Terms { windows, most_failed, most_used, like, anew } = *terms;
        let webs = ground.webs;
        let of_like = |file: RegFile| like.filter(|_| !anew[file as usize]);
        let mut c = Coloring {
            ground,
            reg: like.map_or(SecondaryMap::with_capacity(webs.webs.len()), |l| l.reg.clone()),
            busy: FILES.map(|file| of_like(file).map_or(&ground.taken, |l| &l.busy)[file as usize].clone()),
            owners: [const { None }; 5],
            evictions: like.map_or(0, |l| l.evictions),
            windows,
            next: [0; 5],
            used: FILES.map(|file| of_like(file).map_or(0, |l| l.used[file as usize])),
        };
        let place = |w: Web| {
            let (d, (start, length)) = (&webs.webs[w], ground.lives[w]);
            let rank = match order {
                Order::Width | Order::Negotiated(_) => d.size() as u64,
                Order::Area => length,
                Order::NegotiatedInTurn(_) => u64::from(u32::MAX - start),
            };
            ((d.confined, rank), Reverse((start, w)))
        };
        let given = |d: &WebData| d.members.is_empty() || of_like(d.file).is_some();
        let all: Vec<Web> = webs.webs.iter().filter(|(_, d)| !given(d)).map(|(w, _)| w).collect();
        all.iter().for_each(|w| c.reg[*w] = None);
        for &(w, r) in ground.placed.iter().filter(|(w, _)| !given(&webs.webs[*w])) {
            c.occupy(w, r);
        }
        let open = all.into_iter().filter(|w| c.reg[*w].is_none());
        let mut queue: BinaryHeap<_> = open.map(place).collect();
        let mut failed = Vec::new();
        let size = |w: Web| webs.webs[w].lanes.len() as f32;
        let patience = order.patience();
        let mut weight = ground.density.clone();
        if patience.is_some() {
            webs.webs.keys().for_each(|w| weight[w] = size(w));
        }
        ground.placed.iter().for_each(|(w, _)| weight[*w] = f32::INFINITY);
        // Other files have few registers, so that little is looked at, and what finds none there may have nowhere to go.
        let general = if patience.is_some() { 4 } else { 1 };
        let most = patience.map_or(4 * webs.webs.len() + 1000, |n| general * n);
        while let Some((_, Reverse((_, w)))) = queue.pop() {
            let d = &webs.webs[w];
            if c.used.iter().zip(most_used).any(|(used, most)| *used > most) {
                break;
            }
            let beside = |n: &'_ Neighbours| -> SmallVec<[u8; 4]> { n.registers(w, &c.reg).collect() };
            let mut hints = beside(&ground.copied);
            hints.extend(ground.wishes[w].iter().copied());
            // What is given out in turn is to be another register than what it takes the place of, among uniform ones.
            if d.file != RegFile::UR || c.windows[RegFile::UR as usize] == 0 {
                hints.extend(beside(&ground.replaced));
            }
            if let Some(r) = c.free_frame(w, &hints) {
                c.occupy(w, r);
                continue;
            }
            // A wide web takes long to look for, so that fewer of them may be tried.
            let each = if d.file == RegFile::R { general } else { 1 };
            c.evictions += each * if patience.is_some() { d.lanes.len() } else { 1 };
            let limit = if patience.is_some() { f32::INFINITY } else { weight[w] };
            // Accumulators of warp groups have no place but theirs.
            let may = c.evictions < most && (patience.is_none() || d.lanes.len() <= WIDEST_NEGOTIATED);
            let victims = may.then(|| c.cheapest_frame(w, limit, &weight)).flatten();
            let Some((r, victims)) = victims else {
                failed.push(w);
                // Whatever else fails, another order says what leaves its register.
                if patience.is_some() || failed.len() > most_failed {
                    break;
                }
                continue;
            };
            for v in victims {
                if patience.is_some() {
                    weight[v] += size(v);
                }
                c.vacate(v);
                queue.push(place(v));
            }
            c.occupy(w, r);
        }
        let fits = c.used.iter().zip(most_used).all(|(used, most)| *used <= most);
        if failed.is_empty() && fits { Ok(c) } else { Err(Box::new(Failed { webs: failed, rest: c })) }
    }

    /// A register of `file` that is free over `at`, below those already in use.
    pub fn scratch(&self, file: RegFile, at: Segment) -> Option<Reg> {
        let below = usize::from(self.used[file as usize]).min(self.ground.limits.count(file).into());
        let free = Set::of(0..below).without(&self.busy[file as usize].during(self.ground.slots.range(at)));
        free.iter().map(|index| Reg { file, index }).find(|r| !self.ground.limits.reserved(*r))
    }

    fn free_frame(&mut self, w: Web, hints: &[u8]) -> Option<u8> {
        let d = &self.ground.webs.webs[w];
        let free = self.ground.free_starts(w, &self.busy[d.file as usize]);
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
        let ground = self.ground;
        self.owners[file as usize].get_or_insert_with(|| {
            let mut held = vec![Vec::new(); ground.limits.count(file).into()];
            for w in ground.webs.webs.iter().filter(|(_, d)| d.file == file).map(|(w, _)| w) {
                let Some(r) = self.reg[w] else { continue };
                for (registers, slots) in ground.runs(w) {
                    for k in registers {
                        held[usize::from(r) + k].extend(slots.iter().map(|h| (h.start, h.end, w)));
                    }
                }
            }
            held.iter_mut().for_each(|list| list.sort_unstable_by_key(|(start, ..)| *start));
            Owners(held)
        })
    }

    /// The frame whose owners are together lightest, if they are lighter than `limit`.
    fn cheapest_frame(
        &mut self,
        w: Web,
        limit: f32,
        weight: &SecondaryMap<Web, f32>,
    ) -> Option<(u8, SmallVec<[Web; 4]>)> {
        let ground = self.ground;
        let file = ground.webs.webs[w].file;
        let mut best: Option<(u8, SmallVec<[Web; 4]>)> = None;
        // What the owners have to be lighter than: the limit, then the best that was found.
        let mut bound = limit;
        let starts = ground.free_starts(w, &ground.taken[file as usize]);
        let owners = self.owners(file);
        let mut victims: SmallVec<[Web; 4]> = SmallVec::new();
        for r in starts.iter() {
            victims.clear();
            let mut total = 0.0;
            let mut add = |owner: Web| {
                if !victims.contains(&owner) {
                    total += weight[owner];
                    victims.push(owner);
                }
                if total >= bound { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let lighter = ground.runs(w).try_for_each(|(mut registers, held)| {
                registers.try_for_each(|k| owners.conflicts(usize::from(r) + k, held, &mut add))
            });
            if lighter.is_continue() && total < bound {
                bound = total;
                best = Some((r, victims.clone()));
            }
        }
        best
    }

    fn occupy(&mut self, w: Web, r: u8) {
        self.reg[w] = Some(r);
        let d = &self.ground.webs.webs[w];
        let (busy, owners) = (&mut self.busy[d.file as usize], &mut self.owners[d.file as usize]);
        let r = usize::from(r);
        for (registers, held) in self.ground.runs(w) {
            let all = Set::of(r + registers.start..r + registers.end);
            for h in held {
                busy.occupy(&all, h.start as usize..h.end as usize);
                if let Some(owners) = owners {
                    registers.clone().for_each(|k| owners.occupy(r + k, h, w));
                }
            }
        }
        let used = &mut self.used[d.file as usize];
        *used = (*used).max((r + d.lanes.len()) as u16);
    }

    fn vacate(&mut self, w: Web) {
        let Some(r) = self.reg[w].take() else { return };
        let file = self.ground.webs.webs[w].file as usize;
        let (busy, owners, r) = (&mut self.busy[file], &mut self.owners[file], usize::from(r));
        for (registers, held) in self.ground.runs(w) {
            let all = Set::of(r + registers.start..r + registers.end);
            for h in held {
                busy.vacate(&all, h.start as usize..h.end as usize);
                if let Some(owners) = owners {
                    registers.clone().for_each(|k| owners.vacate(r + k, h, w));
                }
            }
        }
    }
}
