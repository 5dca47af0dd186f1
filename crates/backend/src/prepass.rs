//! Scheduling before register allocation (Goodman and Hsu, "Code scheduling and register allocation in large basic
//! blocks", 1988; with the steps of occupancy as limits, as Mesa's NAK has it).
//!
//! Each block is put in order from its end: while there is room, the instruction on the longest way from the block's
//! start goes next, as late as its latency allows; where too many registers are live, the one that needs fewest more.
//! The limit is what leaves room for all threads that a multiprocessor can hold. If some block needs more in any order,
//! all get as much as the next step allows. A block whose new order needs more than the limit, and more than the old one, is put in
//! order from its end with a lower limit, and from its start, near the old order; the shortest of what fits is taken, else the old one.

use crate::liveness::{Lanes, Liveness, Ranges, for_each_def, for_each_use};
use crate::schedule::{WINDOW, expected_latency};
use crate::{order, remat};
use ori::cfg::Cfg;
use ori::{Block, Function, Inst, InstData, Macro, Manager, Name, Op, Phase};
use sass::target::HARDWARE_REGISTERS;
use sass::{Effect, Reg, RegFile, latency};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Registers left free for alignment and for copies.
const RESERVE: i32 = 3;
/// So close to the limit, registers count more than time.
const HEADROOM: i32 = 3;
/// Between steps of occupancy.
const STEP: i32 = 8;
/// Cycles from which on a result is begun early for readers behind its region.
const LONG: u32 = 100;
/// Instructions that are looked at for a file other than R.
const LOOK: usize = 64;
/// Instructions that are looked at for one that need not wait.
const AHEAD: usize = 24;
/// Files with limits, in the order of [`Counts`].
const FILES: usize = 4;
/// Registers of each file: R, P, UR, UP.
type Counts = [i32; FILES];

/// Where a file is in [`Counts`].
fn nth(file: RegFile) -> Option<usize> {
    match file {
        RegFile::R => Some(0),
        RegFile::P => Some(1),
        RegFile::UR => Some(2),
        RegFile::UP => Some(3),
        RegFile::B => None,
    }
}

/// The most general registers that values may take together where `stated` are to be stated.
fn usable(stated: i32) -> i32 {
    // R1 is the stack pointer's.
    stated - i32::from(HARDWARE_REGISTERS) - 1 - RESERVE
}

/// Schedules a kernel. Where it needs more registers than leave room for all threads, constants are made again where they
/// are used, if the manager admits that.
pub fn run(func: &mut Function, manager: &mut Manager<'_>) {
    // A function of a kernel's saves what it uses; few registers are better there.
    if !func.entry {
        return;
    }
    let cfg = Cfg::new(func);
    let blocks: Vec<Block> = cfg.rpo.iter().copied().filter(|b| func.blocks[*b].insts.len() > 1).collect();
    let aim = i32::from(func.aim_regs.min(func.max_regs));
    let (mut found, mut limits) = each(func, &cfg, &blocks, usable(aim));
    if most(&found) > limits[0] && manager.admits(Phase::OriDoRemat, 2) {
        let ranges = Ranges::new(func, &cfg);
        let room = limits[0].max(1) as u32;
        if manager.run(Phase::OriDoRemat, func, |f| remat::run(f, &cfg, room, &ranges)) {
            (found, limits) = each(func, &cfg, &blocks, usable(aim));
        }
    }
    let more = most(&found) - limits[0];
    if more > 0 {
        let stated = (aim + (more + STEP - 1) / STEP * STEP).min(func.max_regs.into());
        let again;
        (again, limits) = each(func, &cfg, &blocks, usable(stated));
        for (s, again) in found.iter_mut().zip(again) {
            if again.fits(&limits) || !s.fits(&limits) {
                *s = again;
            }
        }
    }
    for (b, s) in blocks.iter().zip(found) {
        if s.fits(&limits) {
            func.blocks[*b].insts = s.insts;
        }
    }
}

/// The general registers that blocks need, each in its better order.
fn most(found: &[Scheduled]) -> i32 {
    found.iter().map(|s| s.most[0].min(s.before[0])).max().unwrap_or(0)
}

/// Every block in a new order, with so many general registers; and all limits.
fn each(func: &Function, cfg: &Cfg, blocks: &[Block], registers: i32) -> (Vec<Scheduled>, Counts) {
    let lanes = Lanes::new(func);
    let live = Liveness::new(func, cfg, &lanes);
    let mut pass = Pass::new(func, cfg, &lanes, &live);
    let limits = [registers, pass.limits[1], pass.limits[2], pass.limits[3]];
    let fitting = |b: &Block| {
        let first = pass.block(func, *b, limits, Way::Back);
        let over = first.most[0] - limits[0];
        if over <= 0 || first.fits(&limits) || first.before[0] > limits[0] {
            return first;
        }
        // Where registers are short, order is by them alone, but what was begun is live. So begin with that sooner; or stay near
        // the old order, which has enough.
        let mut best = first;
        for (aim, way) in
            [(limits[0] - over, Way::Back), (limits[0], Way::Forth), (limits[0] - over, Way::Forth)]
        {
            let s = pass.block(func, *b, [aim, limits[1], limits[2], limits[3]], way);
            if s.fits(&limits) && (!best.fits(&limits) || s.length < best.length) {
                best = s;
            }
        }
        best
    };
    (blocks.iter().map(fitting).collect(), limits)
}

/// In what way a block is put in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From its end, the longest way first.
    Back,
    /// From its start, in the old order as long as nothing waits.
    Forth,
}

/// A block in a new order.
struct Scheduled {
    insts: Vec<Inst>,
    /// Cycles that it takes alone, about.
    length: u32,
    /// The most registers live at once in it, and in the old order.
    most: Counts,
    before: Counts,
}

impl Scheduled {
    /// Whether it needs no more than the limits allow, or than the old order.
    fn fits(&self, limits: &Counts) -> bool {
        (0..FILES).all(|f| self.most[f] <= limits[f].max(self.before[f]))
    }
}

/// The general registers up to the last of so many that a call leaves alone, R1 not counted.
fn beside_clobbers(func: &Function, call: &InstData, live: i32) -> i32 {
    let mut destroyed = [false; 256];
    for r in ori::abi::clobbered_by(func, call).filter(|r| r.file == RegFile::R) {
        destroyed[usize::from(r.index)] = true;
    }
    let kept = (0..255).filter(|r| Reg::r(*r) != Reg::SP && !destroyed[usize::from(*r)]);
    let last = usize::try_from(live).ok().filter(|n| *n > 0).and_then(|n| kept.clone().nth(n - 1));
    last.map_or(live, i32::from)
}

/// What is the same for all blocks.
struct Pass<'a> {
    lanes: &'a Lanes,
    live: &'a Liveness,
    /// The file of each lane.
    files: Vec<Option<u8>>,
    limits: Counts,
    /// Whether a lane is live at the place that the walk has come to, and how many of each file are.
    is_live: Vec<bool>,
    count: Counts,
    /// The number of a lane among those of a region; `u32::MAX` for others.
    local: Vec<u32>,
}

/// An instruction of a region.
#[derive(Default)]
struct Node {
    /// What must come before it, and cycles between.
    preds: SmallVec<[(u32, u32); 4]>,
    /// Successors that have no place yet.
    succs: u32,
    defs: SmallVec<[u32; 2]>,
    uses: SmallVec<[u32; 4]>,
    /// Cycles from the region's start, at least.
    depth: u32,
    /// Cycles from the region's end, at least.
    ready: u32,
    /// General registers that are live more, before it than behind it.
    net: i32,
}

impl<'a> Pass<'a> {
    fn new(func: &Function, cfg: &Cfg, lanes: &'a Lanes, live: &'a Liveness) -> Pass<'a> {
        let file = |l: u32| lanes.owner(l).and_then(|(v, _)| nth(func.values[v].file)).map(|f| f as u8);
        let files: Vec<Option<u8>> = (0..lanes.count() as u32).map(file).collect();
        // What of the uniform registers is live from block to block is live everywhere.
        let mut across = vec![false; files.len()];
        let uniform = |l: &u32| matches!(files[*l as usize], Some(2 | 3));
        let mut counts = [0; FILES];
        for l in cfg.rpo.iter().flat_map(|b| &live.live_in[*b]).copied().filter(|l| uniform(l)) {
            if !std::mem::replace(&mut across[l as usize], true)
                && let Some(f) = files[l as usize]
            {
                counts[usize::from(f)] += 1;
            }
        }
        let uregs = i32::from(func.target.info().uregs);
        let limits = [0, 6, (uregs - 8 - counts[2]).max(8), (6 - counts[3]).max(2)];
        let count = files.len();
        Pass {
            lanes,
            live,
            files,
            limits,
            is_live: vec![false; count],
            count: [0; FILES],
            local: vec![u32::MAX; count],
        }
    }

    /// The file of a lane.
    fn file(&self, lane: u32) -> Option<usize> {
        self.files[lane as usize].map(usize::from)
    }

    fn set(&mut self, lane: u32, live: bool) {
        if std::mem::replace(&mut self.is_live[lane as usize], live) != live
            && let Some(f) = self.file(lane)
        {
            self.count[f] += if live { 1 } else { -1 };
        }
    }

    /// Steps backward over an instruction; the most that is live on the way.
    fn step(&mut self, defs: &[u32], uses: &[u32], most: &mut Counts) {
        // A result that nobody reads has a register for a moment.
        defs.iter().for_each(|l| self.set(*l, true));
        (0..FILES).for_each(|f| most[f] = most[f].max(self.count[f]));
        defs.iter().for_each(|l| self.set(*l, false));
        uses.iter().for_each(|l| self.set(*l, true));
        (0..FILES).for_each(|f| most[f] = most[f].max(self.count[f]));
    }

    fn operands(&self, func: &Function, d: &InstData, node: &mut Node) {
        let lanes = self.lanes;
        for_each_def(func, d, |n, w| lanes.of(func, n, w, |l| node.defs.push(l)));
        for_each_use(func, d, |n, w| {
            lanes.of(func, n, w, |l| {
                if !node.uses.contains(&l) {
                    node.uses.push(l);
                }
            });
        });
    }

    /// Orders a block.
    fn block(&mut self, func: &Function, b: Block, limits: Counts, way: Way) -> Scheduled {
        let data = &func.blocks[b];
        let mut end: SmallVec<[u32; 8]> = SmallVec::new();
        if let Some(n) = data.term.used_name() {
            self.lanes.of(func, n, 2, |l| end.push(l));
        }
        let condition = end.clone();
        for a in data.term.targets().iter().flat_map(|t| &t.args) {
            self.lanes.of(func, Name::Val(*a), 1, |l| end.push(l));
        }
        let live = self.live;
        live.live_out[b].iter().chain(&end).for_each(|l| self.set(*l, true));
        let (mut most, mut before) = (self.count, self.count);
        let mut length = 0;
        let mut out: Vec<Inst> = Vec::with_capacity(data.insts.len());
        let mut at = data.insts.len();
        while at > 0 {
            let d = &func.insts[data.insts[at - 1]];
            if is_boundary(d) {
                let mut node = Node::default();
                self.operands(func, d, &mut node);
                let mut here = self.count;
                let given = |l: &&u32| self.is_live[**l as usize] && self.file(**l) == Some(0);
                let across = self.count[0] - node.defs.iter().filter(given).count() as i32;
                self.step(&node.defs, &node.uses, &mut here);
                if d.op == Op::Macro(Macro::Call) {
                    // Little is lost to alignment there.
                    here[0] = here[0].max(beside_clobbers(func, d, across) - 1);
                }
                for f in 0..FILES {
                    (most[f], before[f]) = (most[f].max(here[f]), before[f].max(here[f]));
                }
                at -= 1;
                out.push(data.insts[at]);
                continue;
            }
            let boundary = |k: &usize| is_boundary(&func.insts[data.insts[*k]]);
            let start = (at.saturating_sub(WINDOW)..at)
                .rev()
                .find(boundary)
                .map_or(at.saturating_sub(WINDOW), |k| k + 1);
            let region = &data.insts[start..at];
            let condition = if at == data.insts.len() { &condition[..] } else { &[] };
            let mut nodes = self.nodes(func, region, condition);
            // What the old order needs; then back to the region's end.
            let undo: Vec<(u32, bool)> = nodes
                .iter()
                .flat_map(|n| n.defs.iter().chain(&n.uses))
                .map(|l| (*l, self.is_live[*l as usize]))
                .collect();
            nodes.iter().rev().for_each(|n| self.step(&n.defs, &n.uses, &mut before));
            let order = if way == Way::Forth {
                let order = self.forth(&nodes, limits[0], &undo);
                undo.into_iter().for_each(|(l, live)| self.set(l, live));
                for k in order.iter().rev() {
                    let n = &nodes[*k as usize];
                    self.step(&n.defs, &n.uses, &mut most);
                }
                length += cycles(&nodes, order.iter().copied());
                order.into_iter().rev().collect()
            } else {
                undo.into_iter().for_each(|(l, live)| self.set(l, live));
                let order = self.order(&mut nodes, limits, &mut most);
                length += cycles(&nodes, order.iter().rev().copied());
                order
            };
            out.extend(order.into_iter().map(|k| region[k as usize]));
            at = start;
        }
        out.reverse();
        for l in live.live_in[b].iter().copied() {
            self.set(l, false);
        }
        for p in &data.params {
            self.lanes.all(*p).for_each(|l| self.set(l, false));
        }
        debug_assert_eq!(self.count, [0; FILES], "{b} of {}: liveness", func.name);
        Scheduled { insts: out, length, most, before }
    }

    /// The dependence graph of a region. `condition`: what the branch behind it reads.
    fn nodes(&mut self, func: &Function, region: &[Inst], condition: &[u32]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::with_capacity(region.len());
        let mut accesses = order::Accesses::default();
        // The last instruction whose result depends on which lanes execute it, or on what others hold: they keep their order, so
        // that what belongs to a WARPSYNC stays in front of what belongs to the next.
        let mut collective: Option<u32> = None;
        // For each lane that the region writes, the instruction.
        let mut written: Vec<u32> = Vec::new();
        for (k, i) in (0u32..).zip(region) {
            let d = &func.insts[*i];
            let mut node = Node::default();
            self.operands(func, d, &mut node);
            let mut guard = u32::MAX;
            self.lanes.of(func, d.guard.pred, 1, |l| guard = l);
            for l in &node.uses {
                let by = self.local[*l as usize];
                if by != u32::MAX {
                    node.preds.push((by, latency_of(func, &func.insts[region[by as usize]], *l == guard)));
                }
            }
            if let Op::Sass(op) = d.op {
                if op.info().lanes != sass::Lanes::Own {
                    node.preds.extend(collective.replace(k).map(|before| (before, 1)));
                }
                let meant = order::Meant::by(op, &d.mods);
                if let Some(a) = order::access(op, &d.mods, &d.operands, meant, contents) {
                    accesses.add(k, a, |before| node.preds.push((before, 1)));
                }
            }
            for l in &node.defs {
                self.local[*l as usize] = k;
                written.push(*l);
            }
            let depth = |(p, latency): &(u32, u32)| nodes[*p as usize].depth + latency;
            node.depth = node.preds.iter().map(depth).max().unwrap_or(0);
            for (p, _) in &node.preds {
                nodes[*p as usize].succs += 1;
            }
            nodes.push(node);
        }
        for l in condition {
            if let Some(n) = nodes.get_mut(self.local[*l as usize] as usize) {
                n.ready = latency_of(func, &func.insts[region[self.local[*l as usize] as usize]], true);
            }
        }
        // What takes long and is read behind the region goes early: its readers wait less, whatever lies between.
        for (n, i) in nodes.iter_mut().zip(region) {
            let latency = latency_of(func, &func.insts[*i], false);
            if latency >= LONG && n.defs.iter().any(|l| self.is_live[*l as usize]) {
                n.ready = n.ready.max(latency);
            }
        }
        written.into_iter().for_each(|l| self.local[l as usize] = u32::MAX);
        nodes
    }

    /// Orders a region, from its end to its start.
    fn order(&mut self, nodes: &mut [Node], limits: Counts, most: &mut Counts) -> Vec<u32> {
        // Who reads a lane: found by its number among those of the region.
        let mut users: Vec<SmallVec<[u32; 4]>> = Vec::new();
        for (k, n) in (0u32..).zip(nodes.iter()) {
            for l in &n.uses {
                let at = &mut self.local[*l as usize];
                if *at == u32::MAX {
                    *at = users.len() as u32;
                    users.push(SmallVec::new());
                }
                users[*at as usize].push(k);
            }
        }
        for n in nodes.iter_mut() {
            n.net = n.uses.iter().filter(|l| self.file(**l) == Some(0) && !self.is_live[**l as usize]).count()
                as i32;
        }
        let mut list = Ready::default();
        for k in 0..nodes.len() as u32 {
            if nodes[k as usize].succs == 0 {
                self.admit(nodes, k, &mut list);
            }
        }
        let mut order = Vec::with_capacity(nodes.len());
        let mut cycle = 0;
        while let Some(k) = self.choose(nodes, &limits, &mut list, &mut cycle) {
            list.remove(nodes, k);
            order.push(k);
            let node = std::mem::take(&mut nodes[k as usize]);
            // What becomes live with it costs its other readers nothing any more.
            for l in node.uses.iter().filter(|l| self.file(**l) == Some(0) && !self.is_live[**l as usize]) {
                for u in &users[self.local[*l as usize] as usize] {
                    if *u != k {
                        list.cheaper(nodes, *u);
                    }
                }
            }
            self.step(&node.defs, &node.uses, most);
            for (p, latency) in &node.preds {
                let n = &mut nodes[*p as usize];
                n.ready = n.ready.max(cycle + latency);
                n.succs -= 1;
                if n.succs == 0 {
                    self.admit(nodes, *p, &mut list);
                }
            }
            nodes[k as usize] = node;
            cycle += 1;
        }
        debug_assert_eq!(order.len(), nodes.len(), "dependences are acyclic");
        for l in nodes.iter().flat_map(|n| &n.uses) {
            self.local[*l as usize] = u32::MAX;
        }
        order
    }

    /// Orders a region from its start, where the walk is: the first instruction of the old order that need not wait and for which there
    /// are registers, then the first that waits least; where registers are short, the first of all. `end` has what lives
    /// at the region's end.
    fn forth(&mut self, nodes: &[Node], limit: i32, end: &[(u32, bool)]) -> Vec<u32> {
        // How many instructions to come read a lane, by its number in the region; one more for what lives at the end.
        let mut readers: Vec<u32> = Vec::new();
        for (l, lives) in end {
            if self.local[*l as usize] == u32::MAX {
                self.local[*l as usize] = readers.len() as u32;
                readers.push(u32::from(*lives));
            }
        }
        for l in nodes.iter().flat_map(|n| &n.uses) {
            readers[self.local[*l as usize] as usize] += 1;
        }
        let mut succs: Vec<SmallVec<[(u32, u32); 4]>> = vec![SmallVec::new(); nodes.len()];
        let mut waits: Vec<u32> = vec![0; nodes.len()];
        for (k, n) in (0u32..).zip(nodes) {
            for (p, latency) in &n.preds {
                succs[*p as usize].push((k, *latency));
                waits[k as usize] += 1;
            }
        }
        let mut at: Vec<u32> = vec![0; nodes.len()];
        let mut open: BTreeSet<u32> = (0..nodes.len() as u32).filter(|k| waits[*k as usize] == 0).collect();
        let general = |l: &&u32| self.file(**l) == Some(0);
        let mut count = self.count[0];
        let (mut order, mut cycle) = (Vec::with_capacity(nodes.len()), 0);
        while let Some(&first) = open.first() {
            let change = |k: u32| {
                let n = &nodes[k as usize];
                let left = |l: &u32| readers[self.local[*l as usize] as usize];
                let more = n.defs.iter().filter(general).filter(|l| left(l) > 0).count();
                more as i32 - n.uses.iter().filter(general).filter(|l| left(l) == 1).count() as i32
            };
            let room = |k: &u32| *k == first || count + change(*k).max(0) + HEADROOM <= limit;
            let some = open.iter().copied().take(AHEAD);
            let now = some.clone().filter(|k| at[*k as usize] <= cycle).find(room);
            let k = now.or_else(|| some.filter(room).min_by_key(|k| at[*k as usize])).unwrap_or(first);
            open.remove(&k);
            order.push(k);
            count += change(k);
            for l in &nodes[k as usize].uses {
                readers[self.local[*l as usize] as usize] -= 1;
            }
            let start = cycle.max(at[k as usize]);
            cycle = start + 1;
            for (s, latency) in &succs[k as usize] {
                at[*s as usize] = at[*s as usize].max(start + latency);
                waits[*s as usize] -= 1;
                if waits[*s as usize] == 0 {
                    open.insert(*s);
                }
            }
        }
        end.iter().for_each(|(l, _)| self.local[*l as usize] = u32::MAX);
        order
    }

    /// An instruction may go next: everything that must come behind it has its place.
    fn admit(&self, nodes: &mut [Node], k: u32, list: &mut Ready) {
        let n = &mut nodes[k as usize];
        n.net -=
            n.defs.iter().filter(|l| self.file(**l) == Some(0) && self.is_live[**l as usize]).count() as i32;
        list.insert(nodes, k);
    }

    fn choose(&self, nodes: &[Node], limits: &Counts, list: &mut Ready, cycle: &mut u32) -> Option<u32> {
        while let Some(&Reverse((at, k))) = list.later.peek().filter(|l| l.0.0 <= *cycle) {
            list.later.pop();
            let n = &nodes[k as usize];
            if list.by_cost.contains(&key(n, k)) && n.ready == at {
                list.now.insert((Reverse(n.depth), Reverse(k)));
            }
        }
        if self.count[0] + HEADROOM > limits[0] {
            return list.by_cost.first().map(|c| c.3.0);
        }
        if let Some(f) = (1..FILES).find(|f| self.count[*f] >= limits[*f]) {
            let change = |k: u32| {
                let n = &nodes[k as usize];
                let more = n.uses.iter().filter(|l| self.file(**l) == Some(f) && !self.is_live[**l as usize]);
                let less = n.defs.iter().filter(|l| self.file(**l) == Some(f) && self.is_live[**l as usize]);
                more.count() as i32 - less.count() as i32
            };
            let candidates = list.by_cost.iter().map(|c| c.3.0).take(LOOK);
            return candidates.min_by_key(|k| (change(*k), Reverse(nodes[*k as usize].depth), Reverse(*k)));
        }
        if let Some((_, Reverse(k))) = list.now.first() {
            return Some(*k);
        }
        while let Some(Reverse((at, k))) = list.later.pop() {
            let n = &nodes[k as usize];
            if list.by_cost.contains(&key(n, k)) && n.ready == at {
                *cycle = at;
                return Some(k);
            }
        }
        None
    }
}

/// Cycles from the first instruction of a region to its last in this order, where nothing else is in the way.
fn cycles(nodes: &[Node], order: impl Iterator<Item = u32>) -> u32 {
    let mut start: Vec<u32> = vec![0; nodes.len()];
    let mut next = 0;
    for k in order {
        let ready = nodes[k as usize].preds.iter().map(|(p, latency)| start[*p as usize] + latency);
        let at = ready.max().unwrap_or(0).max(next);
        start[k as usize] = at;
        next = at + 1;
    }
    next
}

/// By what an instruction is chosen where registers are short.
type Cost = (i32, u32, Reverse<u32>, Reverse<u32>);

fn key(n: &Node, k: u32) -> Cost {
    (n.net, n.ready, Reverse(n.depth), Reverse(k))
}

/// Instructions that may go next.
#[derive(Default)]
struct Ready {
    /// All, the one that costs fewest registers first.
    by_cost: BTreeSet<Cost>,
    /// Those whose readers need not wait, the one with the longest way to the start first.
    now: BTreeSet<(Reverse<u32>, Reverse<u32>)>,
    /// The others (and some that have gone), by the time.
    later: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Ready {
    fn insert(&mut self, nodes: &[Node], k: u32) {
        let n = &nodes[k as usize];
        self.by_cost.insert(key(n, k));
        self.later.push(Reverse((n.ready, k)));
    }

    fn remove(&mut self, nodes: &[Node], k: u32) {
        let n = &nodes[k as usize];
        self.by_cost.remove(&key(n, k));
        self.now.remove(&(Reverse(n.depth), Reverse(k)));
    }

    /// One general register fewer.
    fn cheaper(&mut self, nodes: &mut [Node], k: u32) {
        let was = self.by_cost.remove(&key(&nodes[k as usize], k));
        nodes[k as usize].net -= 1;
        if was {
            self.by_cost.insert(key(&nodes[k as usize], k));
        }
    }
}

/// Whether nothing may move past it.
fn is_boundary(d: &InstData) -> bool {
    let registers = |n: Name| matches!(n, Name::Phys(r) if !r.is_zero() && r != Reg::SP);
    let mut named = false;
    d.for_each_use(|n| named |= registers(n));
    d.for_each_def(|n| named |= registers(n) || n == Name::Phys(Reg::SP));
    named
        || match d.op {
            Op::Macro(m) => !matches!(m, Macro::Copy | Macro::Collect | Macro::Undef | Macro::Symbol),
            Op::Sass(op) => {
                let info = op.info();
                info.has_hidden_predicates()
                    || matches!(info.effect, Effect::Control(_))
                    || order::is_boundary(op, &d.operands)
            }
        }
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
        Op::Sass(op) if latency::is_variable_latency(op, func.target) => expected_latency(op),
        Op::Sass(_) if guards => 13,
        Op::Sass(_) => 5,
        // Most of them go.
        Op::Macro(_) => 1,
    }
}
