//! What a scheduler before register allocation has to know of a block: stretches in which instructions may change places, each with
//! its dependences and what lives at its end; and what does not move.

use super::known::Known;
use super::{Around, Counts, FILES, LONG, nth};
use crate::liveness::{Apart, Lanes, Liveness, for_each_def, for_each_use};
use crate::order;
use crate::regalloc::undefined;
use crate::schedule::{WINDOW, expected_latency};
use crate::timing;
use crate::uniform::{Across, Live, Taken};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::{Loop, LoopForest};
use ori::pairs::value_of;
use ori::registers::Set;
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Operand, Tuning, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Effect, Mod, Opcode, Reg, RegFile, latency};
use smallvec::SmallVec;

/// A function's blocks, those that can't be reached left out.
pub struct Code {
    /// Those with more than one instruction.
    pub blocks: Vec<Stretch>,
    /// Registers of R to be left free.
    pub reserve: i32,
    /// What was chosen for the function.
    pub tuning: Tuning,
}

/// A block.
pub struct Stretch {
    /// Which.
    pub block: Block,
    /// How many loops it is in.
    pub depth: u32,
    /// Registers that may be live in it of files other than R.
    pub limits: Counts,
    /// Its parts, the last first.
    pub parts: Vec<Part>,
    /// The most registers live at once where nothing moves.
    pub fixed: Counts,
    /// Registers that the warp holds in it, where their number changes.
    pub held: Option<i32>,
    /// Values in uniform registers that it passes for parameters which it reads, too: where the one is made, and where the other is read, by places in the
    /// block. One register serves both if all that is before.
    pub shares: Vec<(usize, Vec<usize>)>,
}

impl Stretch {
    /// The most general registers that are live at a place that no order changes.
    pub fn least(&self) -> i32 {
        self.parts.iter().map(|p| p.count[0]).fold(self.fixed[0], i32::max)
    }
}

/// A stretch in which instructions may change places. Registers in it are numbered from 0.
pub struct Part {
    /// Where in the block it begins.
    pub start: usize,
    /// Its instructions, in the old order.
    pub nodes: Vec<Node>,
    /// The file of each register; `u8::MAX` where that has no limit.
    pub files: Vec<u8>,
    /// Who reads each register.
    pub readers: Vec<SmallVec<[u32; 4]>>,
    /// Which are live at its end.
    pub live: Vec<bool>,
    /// How many registers of each file are live at its end.
    pub count: Counts,
    /// Orders that were made of it.
    pub known: Known,
}

/// An instruction of a part.
#[derive(Default)]
pub struct Node {
    /// What must come before it, and cycles between.
    pub preds: SmallVec<[(u32, u32); 4]>,
    /// How many must come behind it.
    pub succs: u32,
    /// Registers that it writes, and those that it reads.
    pub defs: SmallVec<[u32; 2]>,
    pub uses: SmallVec<[u32; 4]>,
    /// How many barriers of the block stand before it in the old order, times two; one more for a barrier.
    pub stretch: u32,
    /// Cycles from the part's start, at least.
    pub depth: u32,
    /// Cycles from the part's end, at least.
    pub end: u32,
    /// Cycles from a product of matrices to the next one; 0 for others.
    pub pace: u32,
}

/// Uniform registers that tuples leave between them, which begin at multiples of their width, and that hold what lives on from elsewhere in part.
const APART: i32 = 20;

/// A tuple of registers ([`Walk::frames`]).
struct Frame {
    /// What joins its words, and what makes the first of them.
    at: u32,
    maker: u32,
    /// How many registers it takes beside those of the words.
    more: usize,
}

/// What lives where in a function, for whoever asks more of it.
pub struct Alive {
    pub lanes: Lanes,
    pub live: Liveness,
}

impl Code {
    /// Looks at a function in SSA.
    pub(super) fn new(func: &Function, at: Around<'_>, reserve: i32) -> (Code, Alive) {
        let Around { cfg, grants, whole, passes } = at;
        let lanes = Lanes::new(func);
        let live = Liveness::new(func, cfg, &lanes);
        let loops = LoopForest::new(cfg, &DomTree::dominators(cfg));
        let mut walk = Walk {
            whole: whole.filter(|_| passes),
            ..Walk::new(func, cfg, Live { lanes: &lanes, live: &live }, whole)
        };
        let several = cfg.rpo.iter().copied().filter(|b| func.blocks[*b].insts.len() > 1);
        let held = |b: Block| grants.map(|g| g.held(b).into());
        let asks: FxHashSet<_> = loops.loops.keys().filter(|l| asks_barrier(func, cfg, &loops, *l)).collect();
        // Lanes are seldom at several places of one kind.
        let apart = |b: Block| match cfg.preds[b].as_slice() {
            [p] => ori::meeting::whole_warp(func, *p).is_some_and(|all| all != b),
            _ => false,
        };
        let asking = |b| u32::from(loops.innermost(b).is_some_and(|l| asks.contains(&l)));
        let depth = |b| if apart(b) { 0 } else { loops.depth(b) - asking(b) };
        let blocks = several.map(|b| Stretch { held: held(b), ..walk.block(b, depth(b)) }).collect();
        let code = Code { blocks, reserve, tuning: func.tuning.clone() };
        (code, Alive { lanes, live })
    }
}

/// Instructions of a loop that does nothing but ask.
const ASKS: usize = 12;

/// Whether a loop asks an mbarrier until its phase is over, and does little else. Where stages are well arranged it is over the first time, so
/// that a round of such a loop is no more frequent than what is around it.
fn asks_barrier(func: &Function, cfg: &Cfg, loops: &LoopForest, l: Loop) -> bool {
    let own = |b: Block| func.blocks[b].insts.len() <= ASKS;
    if !loops.is_innermost(l) || !own(loops.loops[l].header) {
        return false;
    }
    let blocks = loops.blocks(cfg, l);
    let insts = || blocks.iter().flat_map(|b| &func.blocks[*b].insts);
    insts().count() <= ASKS && insts().any(|i| func.insts[*i].opcode() == Some(Opcode::SYNCS_PHASECHK))
}

/// Goes through blocks from their ends.
struct Walk<'a> {
    func: &'a Function,
    lanes: &'a Lanes,
    live: &'a Liveness,
    /// The file of each lane; `u8::MAX` where that has no limit.
    files: Vec<u8>,
    /// How many registers those take.
    taken: [Taken; 2],
    /// The values in uniform registers, and in uniform predicates, that live from block to block.
    across: [Across; 2],
    /// Whether a lane is live at the place that the walk has come to, and how many of each file are.
    is_live: Vec<bool>,
    count: Counts,
    /// The number of a lane among those of a part; `u32::MAX` for others.
    local: Vec<u32>,
    /// [`Around::whole`].
    whole: Option<&'a FixedBitSet>,
}

impl<'a> Walk<'a> {
    fn new(func: &'a Function, cfg: &Cfg, alive: Live<'a>, whole: Option<&FixedBitSet>) -> Walk<'a> {
        let Live { lanes, live } = alive;
        let file =
            |l: u32| lanes.owner(l).and_then(|(v, _)| nth(func.values[v].file)).map_or(u8::MAX, |f| f as u8);
        let mut files: Vec<u8> = (0..lanes.count() as u32).map(file).collect();
        // What holds nothing is made anew for each reader.
        let nothing = undefined::values(func, cfg);
        for v in nothing.ones().map(Value::new) {
            lanes.all(v).for_each(|l| files[l as usize] = u8::MAX);
        }
        // What of the uniform registers lives from block to block has its register there: limits are of what lives within blocks beside that.
        let across = Across::each(func, cfg, |v| match func.values[v].file {
            _ if nothing.contains(v.index()) => None,
            RegFile::UR => Some(0),
            RegFile::UP => Some(1),
            RegFile::R | RegFile::P | RegFile::B => None,
        });
        for v in func.values.keys().filter(|v| across.iter().any(|a| a.holds(*v))) {
            lanes.all(v).for_each(|l| files[l as usize] = u8::MAX);
        }
        let apart = Apart::new(cfg, whole);
        let taken = across.each_ref().map(|a| a.taken(func, cfg, alive, &apart));
        let count = files.len();
        Walk {
            func,
            lanes,
            live,
            files,
            taken,
            across,
            is_live: vec![false; count],
            count: [0; FILES],
            local: vec![u32::MAX; count],
            whole: None,
        }
    }

    fn set(&mut self, lane: u32, live: bool) {
        if std::mem::replace(&mut self.is_live[lane as usize], live) != live
            && let Some(c) = self.count.get_mut(usize::from(self.files[lane as usize]))
        {
            *c += if live { 1 } else { -1 };
        }
    }

    /// The registers of each file but R that a block may need beside what lives from block to block.
    fn limits(&self, b: Block) -> Counts {
        let [taken, truths] = self.taken.each_ref().map(|t| t.blocks[b] as i32);
        let uregs = i32::from(self.func.target.info().uregs);
        [0, 6, (uregs - APART - taken).max(8), (6 - truths).max(2)]
    }

    fn shares(&self, b: Block) -> Vec<(usize, Vec<usize>)> {
        let (func, data) = (self.func, &self.func.blocks[b]);
        let [across, _] = &self.across;
        let targets = data.term.targets();
        let edges = targets.iter().flat_map(|t| t.args.iter().zip(&func.blocks[t.block].params));
        let pairs: FxHashSet<(Value, Value)> =
            edges.map(|(a, p)| (*a, *p)).filter(|(a, p)| across.holds(*a) && across.holds(*p)).collect();
        if pairs.is_empty() {
            return Vec::new();
        }
        let mut made: FxHashMap<Value, usize> = FxHashMap::default();
        let mut read: FxHashMap<Value, Vec<usize>> = FxHashMap::default();
        for (at, i) in data.insts.iter().enumerate() {
            func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(|v| _ = made.insert(v, at)));
            func.insts[*i]
                .for_each_use(|n| n.value().into_iter().for_each(|v| read.entry(v).or_default().push(at)));
        }
        pairs.into_iter().filter_map(|(a, p)| Some((*made.get(&a)?, read.get(&p)?.clone()))).collect()
    }

    fn operands(&self, d: &InstData) -> Node {
        let (lanes, func) = (self.lanes, self.func);
        let mut node = Node::default();
        for_each_def(func, d, |n, w| lanes.of(func, n, w, |l| node.defs.push(l)));
        for_each_use(func, d, |n, w| {
            lanes.of(func, n, w, |l| {
                if !node.uses.contains(&l) {
                    node.uses.push(l);
                }
            });
        });
        node
    }

    fn block(&mut self, b: Block, depth: u32) -> Stretch {
        let func = self.func;
        let data = &func.blocks[b];
        let mut end: SmallVec<[u32; 8]> = SmallVec::new();
        if let Some(n) = data.term.used_name() {
            self.lanes.of(func, n, 2, |l| end.push(l));
        }
        let condition = end.clone();
        let next = self.next_round(b);
        let awaited: FxHashSet<u32> = next.values().copied().collect();
        for a in data.term.targets().iter().flat_map(|t| &t.args) {
            self.lanes.of(func, Name::Val(*a), 1, |l| end.push(l));
        }
        let live = self.live;
        live.live_out[b].iter().chain(&end).for_each(|l| self.set(*l, true));
        let mut fixed = self.count;
        let mut parts = Vec::new();
        let mut at = data.insts.len();
        while at > 0 {
            let d = &func.insts[data.insts[at - 1]];
            let boundary = |k: &usize| {
                is_boundary(&func.insts[data.insts[*k]]) && !is_proxy_fence(func, &data.insts[*k..])
            };
            if boundary(&(at - 1)) {
                self.fixed(d, &mut fixed);
                at -= 1;
                continue;
            }
            let least = at.saturating_sub(WINDOW);
            let start = (least..at).rev().find(boundary).map_or(least, |k| k + 1);
            let condition = if at == data.insts.len() { &condition[..] } else { &[] };
            let whole = self.whole.is_some_and(|w| w.contains(b.index()));
            parts.push(self.part(start, &data.insts[start..at], condition, whole, (&next, &awaited)));
            at = start;
        }
        for l in live.live_in[b].iter().copied() {
            self.set(l, false);
        }
        for p in &data.params {
            self.lanes.all(*p).for_each(|l| self.set(l, false));
        }
        debug_assert_eq!(self.count, [0; FILES], "{b} of {}: liveness", func.name);
        Stretch { block: b, depth, limits: self.limits(b), parts, fixed, held: None, shares: self.shares(b) }
    }

    /// Steps backward over an instruction that does not move.
    fn fixed(&mut self, d: &InstData, most: &mut Counts) {
        let node = self.operands(d);
        let mut here = self.count;
        let given = |l: &&u32| self.is_live[**l as usize] && self.files[**l as usize] == 0;
        let across = self.count[0] - node.defs.iter().filter(given).count() as i32;
        let mut note = |count: &Counts| (0..FILES).for_each(|f| here[f] = here[f].max(count[f]));
        // A result that nobody reads has a register for a moment.
        node.defs.iter().for_each(|l| self.set(*l, true));
        note(&self.count);
        node.defs.iter().for_each(|l| self.set(*l, false));
        node.uses.iter().for_each(|l| self.set(*l, true));
        note(&self.count);
        if d.op == Op::Macro(Macro::Call) {
            // Little is lost to alignment there.
            here[0] = here[0].max(beside_clobbers(self.func, d, across) - 1);
        }
        (0..FILES).for_each(|f| most[f] = most[f].max(here[f]));
    }

    /// The arrivals of warp groups in a part, and the general registers of the products behind each.
    fn arrivals(&self, insts: &[Inst]) -> Vec<(u32, Vec<u32>)> {
        let mut found: Vec<(u32, Vec<u32>)> = Vec::new();
        for (k, i) in (0u32..).zip(insts) {
            let d = &self.func.insts[*i];
            match d.op {
                Op::Sass(Opcode::WARPGROUP) => found.push((k, Vec::new())),
                Op::Sass(op) if op.is_group_product() => {
                    let node = self.operands(d);
                    let general = |l: &&u32| self.files[**l as usize] == 0;
                    let all = node.uses.iter().chain(&node.defs).filter(general);
                    found.last_mut().into_iter().for_each(|f| f.1.extend(all.clone()));
                }
                _ => {}
            }
        }
        found.iter_mut().for_each(|(_, ahead)| {
            ahead.sort_unstable();
            ahead.dedup();
        });
        found
    }

    /// The registers that a block passes for its own parameters alone, each with that of the parameter. Where all that reads the parameter comes
    /// before what makes the other one, they are one register, and nothing is copied.
    fn next_round(&self, b: Block) -> FxHashMap<u32, u32> {
        let (func, data) = (self.func, &self.func.blocks[b]);
        let mut next: FxHashMap<u32, u32> = FxHashMap::default();
        for t in data.term.targets().iter().filter(|t| t.block == b) {
            for (a, p) in t.args.iter().zip(&data.params) {
                next.extend(self.lanes.all(*a).zip(self.lanes.all(*p)).filter(|(a, p)| a != p));
            }
        }
        if next.is_empty() {
            return next;
        }
        // Words of pairs are made one by one.
        let mut joins: FxHashSet<Inst> = FxHashSet::default();
        for &i in data.insts.iter().rev() {
            let d = &func.insts[i];
            if d.op != Op::Macro(Macro::Collect) && d.op != Op::Macro(Macro::Copy) {
                continue;
            }
            let node = self.operands(d);
            if node.uses.len() == node.defs.len() && node.defs.iter().all(|l| next.contains_key(l)) {
                joins.insert(i);
                for (from, to) in node.uses.iter().zip(&node.defs) {
                    let p = next[to];
                    next.insert(*from, p);
                }
            }
        }
        for i in data.insts.iter().filter(|i| !joins.contains(*i)) {
            for_each_use(func, &func.insts[*i], |n, w| self.lanes.of(func, n, w, |l| _ = next.remove(&l)));
        }
        if let Some(n) = data.term.used_name() {
            self.lanes.of(func, n, 2, |l| _ = next.remove(&l));
        }
        next
    }

    /// The dependence graph of a part, over which the walk steps. `condition`: what the branch behind it reads; `next`: what is passed for the
    /// next round, and `awaited` the parameters that it is passed for; whether the `whole_warp` executes the block.
    fn part(
        &mut self,
        start: usize,
        insts: &[Inst],
        condition: &[u32],
        whole_warp: bool,
        (next, awaited): (&FxHashMap<u32, u32>, &FxHashSet<u32>),
    ) -> Part {
        let func = self.func;
        // What reads the awaited ones.
        let mut readers: FxHashMap<u32, SmallVec<[u32; 4]>> = FxHashMap::default();
        let mut nodes: Vec<Node> = Vec::with_capacity(insts.len());
        // Of each: cycles to what reads its result, and to what it guards.
        let latencies: Vec<[u32; 2]> = insts
            .iter()
            .map(|i| [false, true].map(|guards| latency_of(func, &func.insts[*i], guards)))
            .collect();
        let mut accesses = order::Accesses::default();
        let mut sides = order::Sides::default();
        let is_barrier = |d: &InstData| matches!(d.op, Op::Sass(op) if order::is_barrier(op));
        let has_barrier = insts.iter().any(|i| is_barrier(&func.insts[*i]));
        let mut stretch = 0;
        // The last instruction whose result depends on which lanes execute it, or on what others hold: they keep their order, so
        // that what belongs to a WARPSYNC stays in front of what belongs to the next. Those behind it that the whole warp executes in any
        // case have none among themselves.
        let mut collective: Option<u32> = None;
        let mut whole: Vec<u32> = Vec::new();
        // The registers of the products behind each arrival of the warp group, which it comes behind all others that touch them.
        let mut arrivals = self.arrivals(insts).into_iter().peekable();
        // The last wait for products of the warp group, behind which their results count as made.
        let mut waited: Option<u32> = None;
        // For each lane that the part writes, the instruction.
        for (k, i) in (0u32..).zip(insts) {
            let d = &func.insts[*i];
            let mut node = self.operands(d);
            let mut guard = u32::MAX;
            self.lanes.of(func, d.guard.pred, 1, |l| guard = l);
            for l in &node.uses {
                let by = self.local[*l as usize];
                if by != u32::MAX {
                    node.preds.push((by, latencies[by as usize][usize::from(*l == guard)]));
                }
            }
            if has_barrier {
                sides.add(k, side(func, d, whole_warp), |before| node.preds.push((before, 1)));
                let steps = u32::from(is_barrier(d));
                node.stretch = stretch + steps;
                stretch += 2 * steps;
            }
            if let Some((_, ahead)) = arrivals.next_if(|a| a.0 == k) {
                let by = ahead.iter().map(|l| self.local[*l as usize]).filter(|by| *by != u32::MAX);
                node.preds
                    .extend(by.map(|by| (by, latencies[by as usize][0].max(timing::TO_ARRIVAL.into()))));
                let touches = |n: &Node| n.uses.iter().any(|l| ahead.binary_search(l).is_ok());
                node.preds.extend((0u32..).zip(&nodes).filter(|(_, n)| touches(n)).map(|(by, _)| (by, 1)));
            }
            match d.op {
                Op::Sass(Opcode::WARPGROUP_DEPBAR) => waited = Some(k),
                Op::Macro(Macro::Settle) => node.preds.extend(waited.map(|wait| (wait, 1))),
                _ => {}
            }
            if let Op::Sass(op) = d.op {
                node.pace = latency::pace_of(op, &d.mods, func.target).into();
                match op.info().lanes {
                    sass::Lanes::Own => {}
                    sass::Lanes::Warp => {
                        node.preds.extend(collective.map(|before| (before, 1)));
                        whole.push(k);
                    }
                    sass::Lanes::Active | sass::Lanes::Agreed | sass::Lanes::Chosen => {
                        let before = collective.replace(k).into_iter().chain(whole.drain(..));
                        node.preds.extend(before.map(|before| (before, 1)));
                    }
                }
                let meant = order::Meant::by(op, &d.mods);
                if let Some(a) = order::access(op, &d.mods, &d.operands, meant, contents) {
                    accesses.add(k, a, |before| node.preds.push((before, 1)));
                }
            }
            for l in &node.defs {
                self.local[*l as usize] = k;
                let before = next.get(l).and_then(|p| readers.get(p));
                node.preds.extend(before.into_iter().flatten().map(|by| (*by, 1)));
            }
            for l in node.uses.iter().filter(|l| awaited.contains(l)) {
                let list = readers.entry(*l).or_default();
                if list.last() != Some(&k) {
                    list.push(k);
                }
            }
            let depth = |(p, latency): &(u32, u32)| nodes[*p as usize].depth + latency;
            node.depth = node.preds.iter().map(depth).max().unwrap_or(0);
            for (p, _) in &node.preds {
                nodes[*p as usize].succs += 1;
            }
            nodes.push(node);
        }
        for l in condition {
            let by = self.local[*l as usize] as usize;
            if let Some(n) = nodes.get_mut(by) {
                n.end = latencies[by][1];
            }
        }
        for (n, [latency, _]) in nodes.iter_mut().zip(&latencies) {
            // What takes long and is read behind the part goes early: its readers wait less, whatever lies between.
            if *latency >= LONG && n.defs.iter().any(|l| self.is_live[*l as usize]) {
                n.end = n.end.max(*latency);
            }
            n.defs.iter().for_each(|l| self.local[*l as usize] = u32::MAX);
        }
        let frames = self.frames(insts);
        self.number(start, nodes, &frames)
    }

    /// The tuples of uniform registers that are made in a part of words that nothing else reads. Those are made in the tuple's registers, which are
    /// taken all from the first of them on.
    fn frames(&self, insts: &[Inst]) -> Vec<Frame> {
        let func = self.func;
        let tuples = |i: &Inst| {
            let d = &func.insts[*i];
            let uniform = |to: &Operand| value_of(to).is_some_and(|v| func.values[v].file == RegFile::UR);
            d.collected().filter(|(to, _)| d.is_unguarded() && uniform(to))
        };
        if !insts.iter().any(|i| tuples(i).is_some()) {
            return Vec::new();
        }
        let mut made: FxHashMap<Value, u32> = FxHashMap::default();
        let mut reads: FxHashMap<Value, u32> = FxHashMap::default();
        for (k, i) in (0u32..).zip(insts) {
            let d = &func.insts[*i];
            d.for_each_def(|n| _ = n.value().map(|v| made.insert(v, k)));
            d.for_each_use(|n| n.value().into_iter().for_each(|v| *reads.entry(v).or_default() += 1));
        }
        let own = |v: Value| {
            let ends = self.lanes.all(v).all(|l| !self.is_live[l as usize]);
            made.get(&v).copied().filter(|_| ends && reads.get(&v) == Some(&1))
        };
        let mut frames = Vec::new();
        for (at, i) in (0u32..).zip(insts) {
            let Some((_, words)) = tuples(i) else { continue };
            // What makes each word, copies aside.
            let mut makers: SmallVec<[u32; 4]> = SmallVec::new();
            for word in words {
                let Some(mut maker) = value_of(word).and_then(own) else { continue };
                let copied =
                    |k: u32| func.insts[insts[k as usize]].copied().and_then(|(_, from)| value_of(from));
                while let Some(from) = copied(maker).and_then(own) {
                    maker = from;
                }
                makers.push(maker);
            }
            // What is only copied is so directly before.
            let computes = |k: &u32| matches!(func.insts[insts[*k as usize]].op, Op::Sass(_));
            let copied = makers.first().copied();
            makers.retain(|k| computes(k));
            if let Some(maker) = makers.first().copied().or(copied) {
                frames.push(Frame { at, maker, more: words.len() - makers.len().max(1) });
            }
        }
        frames
    }

    /// Numbers the registers of a part, and steps over it.
    fn number(&mut self, start: usize, mut nodes: Vec<Node>, frames: &[Frame]) -> Part {
        let mut named: Vec<u32> = Vec::new();
        let count = self.count;
        for l in nodes.iter_mut().flat_map(|n| n.defs.iter_mut().chain(&mut n.uses)) {
            let number = &mut self.local[*l as usize];
            if *number == u32::MAX {
                *number = named.len() as u32;
                named.push(*l);
            }
            *l = *number;
        }
        let mut files: Vec<u8> = named.iter().map(|l| self.files[*l as usize]).collect();
        let mut live: Vec<bool> = named.iter().map(|l| self.is_live[*l as usize]).collect();
        let mut readers: Vec<SmallVec<[u32; 4]>> = named.iter().map(|_| SmallVec::new()).collect();
        for (k, n) in (0u32..).zip(&nodes) {
            n.uses.iter().for_each(|l| readers[*l as usize].push(k));
        }
        for n in nodes.iter().rev() {
            n.defs.iter().for_each(|l| self.set(named[*l as usize], false));
            n.uses.iter().for_each(|l| self.set(named[*l as usize], true));
        }
        named.into_iter().for_each(|l| self.local[l as usize] = u32::MAX);
        for frame in frames {
            for _ in 0..frame.more {
                let number = files.len() as u32;
                files.push(RegFile::UR as u8);
                live.push(false);
                readers.push(SmallVec::from_slice(&[frame.at]));
                nodes[frame.maker as usize].defs.push(number);
                nodes[frame.at as usize].uses.push(number);
            }
        }
        Part { start, nodes, files, readers, live, count, known: Known::default() }
    }
}

/// The general registers up to the last of so many that a call leaves alone, R1 not counted.
fn beside_clobbers(func: &Function, call: &InstData, live: i32) -> i32 {
    let mut kept = Set::of(0..255).without(ori::abi::clobbered_by(func, call).of(RegFile::R));
    kept.remove(Reg::SP.index);
    let last = usize::try_from(live).ok().filter(|n| *n > 0).and_then(|n| kept.iter().nth(n - 1));
    last.map_or(live, i32::from)
}

/// Whether nothing may move past it.
fn is_boundary(d: &InstData) -> bool {
    let registers = |n: Name| matches!(n, Name::Phys(r) if !r.is_zero() && r != Reg::SP);
    let mut named = false;
    d.for_each_use(|n| named |= registers(n));
    d.for_each_def(|n| named |= registers(n) || n == Name::Phys(Reg::SP));
    named
        || match d.op {
            Op::Macro(m) => {
                !matches!(m, Macro::Copy | Macro::Collect | Macro::Undef | Macro::Symbol | Macro::Settle)
            }
            Op::Sass(op) => {
                let info = op.info();
                info.has_hidden_predicates()
                    || matches!(info.effect, Effect::Control(_))
                    || order::is_boundary(op, &d.mods, &d.operands)
            }
        }
}

/// Whether a fence between kinds of access begins here, FENCE.VIEW.ASYNC with a MEMBAR.ALL.CTA in front or without. Only accesses keep
/// their places beside it: in ptxas's code products stand in front of it that PTX has behind it.
pub(super) fn is_proxy_fence(func: &Function, insts: &[Inst]) -> bool {
    let has = |i: &Inst, of: Opcode, mods: &[Mod]| {
        let d = &func.insts[*i];
        d.op == Op::Sass(of) && d.is_unguarded() && mods.iter().all(|m| d.mods.has(*m))
    };
    let fence = |i: &Inst| has(i, Opcode::FENCE, &[Mod::VIEW, Mod::ASYNC]);
    match insts {
        [first, ..] if fence(first) => true,
        [first, second, ..] => has(first, Opcode::MEMBAR, &[Mod::ALL, Mod::CTA]) && fence(second),
        _ => false,
    }
}

/// What an instruction is to barriers; `whole`: no lane of the warp is anywhere else, so that what they share is theirs on both sides. ptxas 13.0.88
/// has sums in uniform registers, ELECT, VOTEU and R2UR on either side there (Triton's products with tensor maps).
fn side(func: &Function, d: &InstData, whole: bool) -> order::Side {
    let passes = match d.op {
        Op::Sass(Opcode::ELECT | Opcode::VOTEU | Opcode::R2UR) => true,
        Op::Sass(op) => op.is_uniform() && op.info().is_computation(),
        Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect),
    };
    if whole && passes {
        return order::Side::Passes;
    }
    let mut files: SmallVec<[RegFile; 8]> = SmallVec::new();
    let file = |n: Name| match n {
        Name::Val(v) | Name::Part(v, _) => func.values[v].file,
        Name::Phys(r) => r.file,
    };
    d.for_each_use(|n| files.push(file(n)));
    d.for_each_def(|n| files.push(file(n)));
    let op = match d.op {
        Op::Sass(op) => Some(op),
        Op::Macro(_) => None,
    };
    order::Side::of(op, files)
}

/// What a base register holds: in SSA, the value says it.
fn contents(n: Name) -> order::Contents {
    match n {
        Name::Val(v) => (v.as_u32(), u32::MAX),
        Name::Part(v, k) => (v.as_u32(), k.into()),
        Name::Phys(r) => (u32::MAX, 256 * r.file as u32 + u32::from(r.index)),
    }
}

/// Cycles from an instruction to a reader, about.
fn latency_of(func: &Function, d: &InstData, guards: bool) -> u32 {
    match d.op {
        Op::Sass(op) if latency::is_variable_latency(op, func.target) => expected_latency(op, &func.tuning),
        Op::Sass(_) if guards => 13,
        Op::Sass(op) => latency::product(op, &d.mods, func.target).map_or(5, u32::from),
        // Most of them go.
        Op::Macro(_) => 1,
    }
}
