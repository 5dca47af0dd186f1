//! Liveness per register: which lanes of which values (and which physical registers) are live at block
//! boundaries, and as intervals over a linear numbering.

use crate::waits::others_run;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::LoopForest;
use ori::registers::{FILES, Registers};
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Operand, Register, Value};
use rustc_hash::FxHashMap;
use sass::{AddrWidth, ConstBank, Reg};
use smallvec::SmallVec;

/// Numbers every register of every value, then every physical register.
#[derive(Clone, Debug)]
pub struct Lanes {
    base: SecondaryMap<Value, u32>,
    owner: Vec<Value>,
}

impl Lanes {
    /// Numbers the values of `func`.
    pub fn new(func: &Function) -> Lanes {
        let mut lanes = Lanes { base: func.per_value(), owner: Vec::with_capacity(func.values.len()) };
        for (v, d) in func.values.iter() {
            lanes.base[v] = lanes.owner.len() as u32;
            lanes.owner.extend(std::iter::repeat_n(v, usize::from(d.width)));
        }
        lanes
    }
    /// How many numbers there are, physical registers included.
    pub fn count(&self) -> usize {
        self.owner.len() + FILES.len() * 256
    }
    /// Lane `i` of `v`.
    pub fn lane(&self, v: Value, i: u8) -> u32 {
        self.base[v] + u32::from(i)
    }
    /// All lanes of `v`.
    pub fn all(&self, v: Value) -> std::ops::Range<u32> {
        let start = self.base[v];
        let width = self.owner[start as usize..].iter().take_while(|o| **o == v).count();
        start..start + width as u32
    }
    /// A physical register.
    pub fn phys(&self, r: Reg) -> u32 {
        self.owner.len() as u32 + r.file as u32 * 256 + u32::from(r.index)
    }
    /// The value that a lane belongs to, and which of its registers it is; `None` for a physical register.
    pub fn owner(&self, lane: u32) -> Option<(Value, u8)> {
        self.owner.get(lane as usize).map(|v| (*v, (lane - self.base[*v]) as u8))
    }
    /// The physical register that a lane is; `None` for those of values.
    pub fn register(&self, lane: u32) -> Option<Reg> {
        let number = (lane as usize).checked_sub(self.owner.len())?;
        Some(Reg { file: FILES[number / 256], index: (number % 256) as u8 })
    }
    /// Calls `f` for each register of a name that spans `width`. The zero registers and R1 have none.
    pub fn of(&self, func: &Function, name: Name, width: u8, mut f: impl FnMut(u32)) {
        match name {
            Name::Val(v) => (0..func.values[v].width).for_each(|i| f(self.lane(v, i))),
            Name::Part(v, i) => f(self.lane(v, i)),
            Name::Phys(r) if r.is_zero() || r == Reg::SP => {}
            Name::Phys(r) => (0..width).for_each(|i| f(self.phys(Reg { index: r.index + i, ..r }))),
        }
    }
}

/// The registers that an operand's name spans. What a slot says of that is asked for physical registers alone: a value says it itself.
fn width_of<R: Register>(func: &Function<R>, d: &InstData<R>, slot: usize, name: R) -> u8 {
    match name.into() {
        Name::Val(v) => func.values[v].width,
        Name::Part(..) => 1,
        Name::Phys(r) if r.is_zero() => 1,
        Name::Phys(_) => d.slot(slot, &func.values).width,
    }
}

/// Calls `f` for every name read with the number of registers it spans.
pub fn for_each_use<R: Register>(func: &Function<R>, d: &InstData<R>, mut f: impl FnMut(R, u8)) {
    f(d.guard.pred, 1);
    let mut kept = d.kept.iter();
    for (i, o) in d.operands.iter().enumerate() {
        if d.is_def(i)
            && let Some(k) = kept.next()
        {
            f(*k, width_of(func, d, i, *k));
        }
        if d.is_only_def(i) {
            continue;
        }
        match o {
            Operand::Reg(r) => f(r.reg, width_of(func, d, i, r.reg)),
            Operand::Const { bank, index, .. } => {
                if let ConstBank::Bindless(r) = bank {
                    f(*r, 2);
                }
                index.iter().for_each(|r| f(*r, 1));
            }
            Operand::Addr { desc, base, width, uniform, .. } => {
                desc.iter().for_each(|r| f(*r, 2));
                base.iter().for_each(|r| f(*r, if *width == AddrWidth::R64 { 2 } else { 1 }));
                uniform.iter().for_each(|r| f(*r, 2));
            }
            _ => {}
        }
    }
}

/// Calls `f` for every name written with the number of registers it spans, what a call destroys ([`destroyed`]) left out.
pub fn for_each_def<R: Register>(func: &Function<R>, d: &InstData<R>, mut f: impl FnMut(R, u8)) {
    for (i, o) in d.operands.iter().enumerate() {
        if let (true, Operand::Reg(r)) = (d.is_def(i), o) {
            f(r.reg, width_of(func, d, i, r.reg));
        }
    }
}

/// What a call destroys.
pub fn destroyed<R: Register>(func: &Function<R>, d: &InstData<R>) -> Option<Registers> {
    (d.op == Op::Macro(Macro::Call)).then(|| ori::abi::clobbered_by(func, d))
}

/// Lanes that are live where blocks begin and end. Parameters are not live on entry to their block and
/// arguments are not live out of theirs (unless used further on).
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    /// Live on entry.
    pub live_in: SecondaryMap<Block, Vec<u32>>,
    /// Live at the end.
    pub live_out: SecondaryMap<Block, Vec<u32>>,
}

impl Liveness {
    /// Whether any of these lanes is live at the end of `b`.
    pub fn is_live_out(&self, b: Block, mut lanes: std::ops::Range<u32>) -> bool {
        lanes.any(|l| self.live_out[b].binary_search(&l).is_ok())
    }

    /// Whether any of these lanes is live on entry of `b`.
    pub fn is_live_in(&self, b: Block, mut lanes: std::ops::Range<u32>) -> bool {
        lanes.any(|l| self.live_in[b].binary_search(&l).is_ok())
    }

    /// Computes it by walking from each use up to the definition (Boissinot et al., "Computing Liveness
    /// Sets for SSA-Form Programs"), so the time is that of the result's size.
    pub fn new(func: &Function, cfg: &Cfg, lanes: &Lanes) -> Liveness {
        // The blocks in which values are written, and the physical registers that blocks write.
        let mut written_in: Vec<PackedOption<Block>> = vec![PackedOption::default(); lanes.owner.len()];
        let mut written: FxHashMap<Block, Registers> = FxHashMap::default();
        // (lane, block that reads it before any write)
        let mut exposed: Vec<(u32, Block)> = Vec::new();
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            let mut here = Registers::default();
            let write = |n: Name, w: u8, here: &mut Registers, written_in: &mut [PackedOption<Block>]| {
                lanes.of(func, n, w, |l| match lanes.register(l) {
                    Some(r) => here.insert(r),
                    None => written_in[l as usize] = b.into(),
                });
            };
            for &p in &data.params {
                write(Name::Val(p), 1, &mut here, &mut written_in);
            }
            let mut read = |n: Name, w: u8, here: &Registers, written_in: &[PackedOption<Block>]| {
                lanes.of(func, n, w, |l| {
                    let known = match lanes.register(l) {
                        Some(r) => here.contains(r),
                        None => written_in[l as usize] == b.into(),
                    };
                    if !known {
                        exposed.push((l, b));
                    }
                });
            };
            for &i in &data.insts {
                let d = &func.insts[i];
                for_each_use(func, d, |n, w| read(n, w, &here, &written_in));
                for_each_def(func, d, |n, w| write(n, w, &mut here, &mut written_in));
                destroyed(func, d).iter().for_each(|all| here.add(all));
            }
            if let Some(n) = data.term.used_name() {
                read(n, 2, &here, &written_in);
            }
            for t in data.term.targets() {
                t.args.iter().for_each(|a| read(Name::Val(*a), 1, &here, &written_in));
            }
            if !here.is_empty() {
                written.insert(b, here);
            }
        }
        exposed.sort_unstable_by_key(|(l, b)| (*l, cfg.order[*b]));
        exposed.dedup();
        let mut live = Liveness::default();
        let mut stack: Vec<Block> = Vec::new();
        for (lane, b) in exposed {
            stack.push(b);
            while let Some(b) = stack.pop() {
                if live.live_in[b].last() == Some(&lane) {
                    continue;
                }
                live.live_in[b].push(lane);
                for &p in &cfg.preds[b] {
                    if live.live_out[p].last() == Some(&lane) {
                        continue;
                    }
                    live.live_out[p].push(lane);
                    let stops = match lanes.register(lane) {
                        Some(r) => written.get(&p).is_some_and(|all| all.contains(r)),
                        None => written_in[lane as usize] == p.into(),
                    };
                    if !stops {
                        stack.push(p);
                    }
                }
            }
        }
        live
    }
}

/// A linear numbering: every block entry, instruction and terminator has a number n; sources are read at
/// point 2n, results written at 2n + 1.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    /// Number of a block's entry.
    pub entry: SecondaryMap<Block, u32>,
    /// Number of a block's terminator.
    pub term: SecondaryMap<Block, u32>,
    /// Number of an instruction.
    pub inst: SecondaryMap<Inst, u32>,
    /// Instruction of each number; `None` for entries and terminators.
    pub at: Vec<Option<Inst>>,
}

impl Numbering {
    /// Numbers the reachable blocks in reverse postorder.
    pub fn new(func: &Function, cfg: &Cfg) -> Numbering {
        let mut n = Numbering::default();
        for &b in &cfg.rpo {
            n.entry[b] = n.at.len() as u32;
            n.at.push(None);
            for &i in &func.blocks[b].insts {
                n.inst[i] = n.at.len() as u32;
                n.at.push(Some(i));
            }
            n.term[b] = n.at.len() as u32;
            n.at.push(None);
        }
        n
    }
}

/// A half-open interval of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First point.
    pub start: u32,
    /// Point after the last.
    pub end: u32,
}

/// The intervals of all lanes.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// Where the list of each begins; then where the last one ends.
    first: Vec<u32>,
    list: Vec<Segment>,
}

impl Segments {
    /// Those at which a lane is live, ascending and disjoint. A result that is never read lives for one point.
    pub fn of(&self, lane: u32) -> &[Segment] {
        let [from, to] = [0, 1].map(|k| self.first[lane as usize + k] as usize);
        &self.list[from..to]
    }

    /// The lanes with theirs.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[Segment])> {
        (0..self.first.len() as u32 - 1).map(|lane| (lane, self.of(lane)))
    }
}

/// Finds where lanes are live, from the end of the program on.
struct Sweep<'a> {
    lanes: &'a Lanes,
    /// Where those that are live are wanted last; [`DEAD`] for others. Those of them that are physical registers.
    end: Vec<u32>,
    live: Registers,
    /// What was found, the first of each lane last, and the last that was found of each.
    found: Vec<(u32, Segment)>,
    last: Vec<u32>,
}

const DEAD: u32 = u32::MAX;

impl Sweep<'_> {
    fn open(&mut self, lane: u32, end: u32) {
        self.end[lane as usize] = end;
        self.lanes.register(lane).into_iter().for_each(|r| self.live.insert(r));
    }

    fn read(&mut self, lane: u32, end: u32) {
        if self.end[lane as usize] == DEAD {
            self.open(lane, end);
        }
    }

    fn close(&mut self, lane: u32, start: u32) {
        let end = match std::mem::replace(&mut self.end[lane as usize], DEAD) {
            DEAD => start + 1,
            end => end,
        };
        self.lanes.register(lane).into_iter().for_each(|r| self.live.remove(r));
        match self.found.get_mut(self.last[lane as usize] as usize) {
            Some((_, next)) if next.start <= end => next.start = start,
            _ => {
                self.last[lane as usize] = self.found.len() as u32;
                self.found.push((lane, Segment { start, end }));
            }
        }
    }

    fn segments(self) -> Segments {
        let mut first = self.last;
        first.fill(0);
        first.push(0);
        self.found.iter().for_each(|(lane, _)| first[*lane as usize] += 1);
        let mut behind = 0;
        for n in &mut first {
            behind += *n;
            *n = behind;
        }
        let mut list = vec![Segment { start: 0, end: 0 }; self.found.len()];
        for (lane, segment) in self.found {
            list[first[lane as usize] as usize - 1] = segment;
            first[lane as usize] -= 1;
        }
        Segments { first, list }
    }
}

/// The intervals at which each lane is live, and what calls destroy that is not live behind them: at these points, ascending.
fn segments(
    func: &Function,
    cfg: &Cfg,
    lanes: &Lanes,
    live: &Liveness,
    n: &Numbering,
) -> (Segments, Vec<(u32, Registers)>) {
    let count = lanes.count();
    let (end, last) = (vec![DEAD; count], vec![u32::MAX; count]);
    let mut sweep = Sweep { lanes, end, live: Registers::default(), found: Vec::with_capacity(count), last };
    let mut calls: Vec<(u32, Registers)> = Vec::new();
    for &b in cfg.rpo.iter().rev() {
        let data = &func.blocks[b];
        let t = n.term[b];
        live.live_out[b].iter().for_each(|l| sweep.open(*l, 2 * t + 2));
        if let Some(name) = data.term.used_name() {
            lanes.of(func, name, 2, |l| sweep.read(l, 2 * t + 1));
        }
        for a in data.term.targets().iter().flat_map(|t| &t.args) {
            // Arguments live to the edge.
            lanes.of(func, Name::Val(*a), 1, |l| sweep.open(l, 2 * t + 2));
        }
        for &i in data.insts.iter().rev() {
            let d = &func.insts[i];
            let at = n.inst[i];
            for_each_def(func, d, |name, w| lanes.of(func, name, w, |l| sweep.close(l, 2 * at + 1)));
            if let Some(all) = destroyed(func, d) {
                calls.push((2 * at + 1, all.without(&sweep.live)));
                all.among(&sweep.live).iter().for_each(|r| sweep.close(lanes.phys(r), 2 * at + 1));
            }
            for_each_use(func, d, |name, w| lanes.of(func, name, w, |l| sweep.read(l, 2 * at + 1)));
        }
        for &p in &data.params {
            lanes.of(func, Name::Val(p), 1, |l| sweep.close(l, 2 * n.entry[b]));
        }
        live.live_in[b].iter().for_each(|l| sweep.close(*l, 2 * n.entry[b]));
    }
    calls.reverse();
    (sweep.segments(), calls)
}

/// Where every lane of a function lives, which takes a while to find out.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// Numbers of the registers.
    pub lanes: Lanes,
    /// What is live between blocks.
    pub live: Liveness,
    /// Numbers of the places.
    pub numbering: Numbering,
    /// When each lane is live.
    pub intervals: Segments,
    /// What calls destroy that is not live behind them: at these points, ascending.
    pub destroyed: Vec<(u32, Registers)>,
    /// Loops around each block.
    pub depth: SecondaryMap<Block, u32>,
}

impl Ranges {
    /// Finds it out.
    pub fn new(func: &Function, cfg: &Cfg) -> Ranges {
        let lanes = Lanes::new(func);
        let live = Liveness::new(func, cfg, &lanes);
        Ranges::of(func, cfg, lanes, live)
    }

    /// The same where it is known what is live between blocks.
    pub fn of(func: &Function, cfg: &Cfg, lanes: Lanes, live: Liveness) -> Ranges {
        let numbering = Numbering::new(func, cfg);
        let (intervals, destroyed) = segments(func, cfg, &lanes, &live, &numbering);
        let loops = LoopForest::new(cfg, &DomTree::dominators(cfg));
        let mut depth = SecondaryMap::new();
        cfg.rpo.iter().for_each(|b| depth[*b] = loops.depth(*b));
        Ranges { lanes, live, numbering, intervals, destroyed, depth }
    }
}

/// Where lanes of a warp may be at once. All were together in some block last; from there each went on to blocks in which they need not be, and none
/// has come to the next one in which they are. So the blocks that can be reached so from one of the former are a region. Those in which the warp is
/// together are in none, others in one or several.
pub struct Apart {
    /// The regions that each block is in.
    of: SecondaryMap<Block, SmallVec<[u32; 2]>>,
    /// The blocks of each region.
    pub regions: Vec<Vec<Block>>,
}

impl Apart {
    /// The regions between the blocks in which the `whole` warp is together, if that is known of any.
    pub fn new(cfg: &Cfg, whole: Option<&FixedBitSet>) -> Apart {
        let mut out = Apart { of: SecondaryMap::new(), regions: Vec::new() };
        let Some(whole) = whole else {
            out.add(cfg.rpo.clone());
            return out;
        };
        let parted = |b: &Block| !whole.contains(b.index());
        // What lanes go on to from each block where they are together; from the entry, if they are not there.
        let mut begins: Vec<SmallVec<[Block; 2]>> = Vec::new();
        begins.extend(cfg.rpo.first().filter(|b| parted(b)).map(|b| SmallVec::from_slice(&[*b])));
        for &b in cfg.rpo.iter().filter(|b| !parted(b)) {
            let mut next: SmallVec<[Block; 2]> = cfg.succs[b].iter().copied().filter(parted).collect();
            next.sort_unstable();
            next.dedup();
            if !next.is_empty() && !begins.contains(&next) {
                begins.push(next);
            }
        }
        // Of very many, those beyond are taken for one.
        let rest: Vec<Block> = begins.drain(begins.len().min(MOST_REGIONS)..).flatten().collect();
        let begins = begins.into_iter().map(|b| b.to_vec()).chain(Some(rest).filter(|r| !r.is_empty()));
        for mut work in begins {
            let mut seen = FixedBitSet::with_capacity(cfg.rpo.len());
            while let Some(b) = work.pop() {
                if !seen.put(cfg.order[b] as usize) {
                    work.extend(cfg.succs[b].iter().filter(|s| parted(s)));
                }
            }
            out.add(seen.ones().map(|k| cfg.rpo[k]).collect());
        }
        out
    }

    fn add(&mut self, blocks: Vec<Block>) {
        blocks.iter().for_each(|b| self.of[*b].push(self.regions.len() as u32));
        self.regions.push(blocks);
    }

    /// The regions in which lanes may be while others are in a block; none where all are together.
    pub fn of(&self, b: Block) -> &[u32] {
        &self.of[b]
    }
}

/// More regions of [`Apart`] than this are not told apart.
const MOST_REGIONS: usize = 256;

/// Uniform registers belong to the warp: while some lanes are here, others may be anywhere else in a region of [`Apart`], so what is live from block
/// to block there is live in all of that. This widens one lane's intervals so.
pub struct Spread {
    /// Where stretches of code end in which the lanes that are there stay among themselves: blocks, and places at which others may run.
    ends: Vec<u32>,
    /// Where blocks begin, ascending, and the regions of each.
    blocks: Vec<(u32, SmallVec<[u32; 2]>)>,
    /// The code of each region, ascending.
    regions: Vec<Vec<Segment>>,
}

impl Spread {
    /// For the blocks of a numbering, in some of which, if that is known, the `whole` warp is together.
    pub fn new(func: &Function, cfg: &Cfg, n: &Numbering, whole: Option<&FixedBitSet>) -> Spread {
        let apart = Apart::new(cfg, whole);
        let mut ends = Vec::with_capacity(cfg.rpo.len());
        for &b in &cfg.rpo {
            let insts = func.blocks[b].insts.iter();
            ends.extend(insts.filter(|i| others_run(func, &func.insts[**i])).map(|i| 2 * n.inst[*i] + 1));
            ends.push(2 * n.term[b] + 2);
        }
        let segments = |blocks: &Vec<Block>| {
            let mut out = Vec::new();
            let all = blocks.iter().map(|b| Segment { start: 2 * n.entry[*b], end: 2 * n.term[*b] + 2 });
            all.for_each(|s| add(&mut out, s));
            out
        };
        let regions = apart.regions.iter().map(segments).collect();
        let blocks = cfg.rpo.iter().map(|b| (2 * n.entry[*b], apart.of(*b).into())).collect();
        Spread { ends, blocks, regions }
    }

    /// The intervals that replace these, ascending, if they are not all in one stretch, and lanes may be apart in some.
    pub fn widened(
        &self,
        mut lane: impl DoubleEndedIterator<Item = Segment> + Clone,
    ) -> Option<Vec<Segment>> {
        let all = lane.clone();
        let first = lane.next()?;
        let last = lane.next_back().unwrap_or(first);
        let stretch = |point: u32| self.ends.partition_point(|e| *e <= point);
        if stretch(first.start) == stretch(last.end - 1) {
            return None;
        }
        let block = |point: u32| self.blocks.partition_point(|b| b.0 <= point);
        let mut found: SmallVec<[u32; 4]> = SmallVec::new();
        for s in all.clone() {
            let touched = &self.blocks[block(s.start).saturating_sub(1)..block(s.end - 1)];
            for r in touched.iter().flat_map(|b| &b.1) {
                if !found.contains(r) {
                    found.push(*r);
                }
            }
        }
        if found.is_empty() {
            return None;
        }
        let mut parts: Vec<Segment> = all.collect();
        found.iter().for_each(|r| parts.extend(&self.regions[*r as usize]));
        parts.sort_unstable_by_key(|s| s.start);
        let mut out = Vec::with_capacity(parts.len());
        parts.into_iter().for_each(|s| add(&mut out, s));
        Some(out)
    }

    /// The whole function.
    pub fn everywhere(&self) -> Segment {
        Segment { start: 0, end: self.ends.last().copied().unwrap_or(0) }
    }
}

/// Adds a segment to ascending ones.
fn add(all: &mut Vec<Segment>, s: Segment) {
    match all.last_mut().filter(|last| last.end >= s.start) {
        Some(last) => last.end = last.end.max(s.end),
        None => all.push(s),
    }
}

/// The values that anything reads.
pub fn values_read(func: &Function, cfg: &Cfg) -> FixedBitSet {
    let mut read = FixedBitSet::with_capacity(func.values.len());
    for &b in &cfg.rpo {
        let data = &func.blocks[b];
        for &i in &data.insts {
            func.insts[i].for_each_use(|n| read.extend(n.value().map(EntityRef::index)));
        }
        read.extend(data.term.used_name().and_then(Name::value).map(EntityRef::index));
        read.extend(data.term.targets().iter().flat_map(|t| t.args.iter().map(|a| a.index())));
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes part at block 0 and meet in block 3, and part there again; block 6 can be reached from either.
    const TEXT: &str = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:P = ISETP.LT.AND PT, RZ, 0x9, PT, PT
    branch v0, block1, block2
block1:
    jump block3
block2:
    branch v0, block3, block6
block3:
    branch v0, block4, block5
block4:
    jump block6
block5:
    branch v0, block5, block6
block6:
    exit
}
";

    #[test]
    fn regions_are_what_lanes_reach_before_they_are_together_again() {
        let func = ori::parse::parse(TEXT).unwrap();
        let cfg = Cfg::new(&func);
        let block = Block::from_u32;
        let whole: FixedBitSet = [0, 3].into_iter().collect();
        let apart = Apart::new(&cfg, Some(&whole));
        let regions = |b: u32| {
            let all = apart.of(block(b)).iter().map(|r| {
                let mut blocks: Vec<u32> = apart.regions[*r as usize].iter().map(|b| b.as_u32()).collect();
                blocks.sort_unstable();
                blocks
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(regions(0), Vec::<Vec<u32>>::new());
        assert_eq!(regions(1), [vec![1, 2, 6]]);
        assert_eq!(regions(2), regions(1));
        assert_eq!(regions(5), [vec![4, 5, 6]]);
        assert_eq!(regions(6), [vec![1, 2, 6], vec![4, 5, 6]]);
        // Where nothing is known lanes may be anywhere.
        let apart = Apart::new(&cfg, None);
        assert_eq!(apart.regions.len(), 1);
        assert_eq!(apart.regions[0].len(), 7);
    }
}
