//! List scheduling after register allocation, block by block: the instruction on the longest way to the end
//! of the block goes first among those whose operands are there.
//!
//! Order is kept between instructions that touch the same registers, and as [`order`] says.

use crate::machine::{Machine, MachineBlock, MachineInst};
use crate::order;
use crate::timing;
use crate::units::{self, COUNT, Unit};
use ori::Tuning;
use rustc_hash::FxHashMap;
use sass::{Guard, Inst, Mod, Opcode, Reg, RegFile, Target};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Longest stretch scheduled at once.
pub const WINDOW: usize = 4096;
/// Guarded writes of a register that later instructions are compared with; each comes behind the older ones.
const MAX_WRITERS: usize = 4;

/// Schedules every block.
pub fn run(machine: &mut Machine) {
    let target = machine.target;
    let mut touched = Touched::new();
    let mut arriving = Arriving::new(machine.tuning.clone());
    // For each block, whether nothing but the block before it leads to it.
    let mut ways = vec![(0u32, false); machine.blocks.len()];
    for (b, block) in machine.blocks.iter().enumerate() {
        for s in &block.succs {
            let (count, follows) = &mut ways[*s as usize];
            *count += 1;
            *follows |= *s as usize == b + 1;
        }
    }
    for (block, ways) in machine.blocks.iter_mut().zip(ways) {
        if ways != (1, true) {
            arriving.forget();
        }
        schedule_block(target, block, &mut touched, &mut arriving);
    }
}

fn schedule_block(target: Target, block: &mut MachineBlock, touched: &mut Touched, arriving: &mut Arriving) {
    let insts = std::mem::take(&mut block.insts);
    let mut out = Vec::with_capacity(insts.len());
    let mut region: Vec<MachineInst> = Vec::new();
    for i in insts {
        let ends = order::is_boundary(i.inst.op, &i.inst.mods, &i.inst.operands);
        if ends || region.len() == WINDOW {
            schedule_region(target, &mut region, ends.then_some(&i.inst), &mut out, touched, arriving);
        }
        if ends {
            arriving.issue_alone(target, &i.inst);
            out.push(i);
        } else {
            region.push(i);
        }
    }
    schedule_region(target, &mut region, None, &mut out, touched, arriving);
    wait_directly_before_allocating(&mut out);
    block.insts = out;
}

/// In ptxas's code DEPBAR always stands directly above UTCATOMSWS.FIND_AND_SET, what that reads above both.
fn wait_directly_before_allocating(insts: &mut [MachineInst]) {
    let finds: Vec<usize> =
        (0..insts.len()).filter(|i| insts[*i].inst.op == Opcode::UTCATOMSWS_FIND).collect();
    for find in finds {
        let waits = |i: &MachineInst| i.inst.op == Opcode::DEPBAR;
        if let Some(wait) = insts[..find].iter().rposition(waits)
            && insts[wait + 1..find].iter().all(|i| i.inst.op == Opcode::UMOV)
        {
            insts[wait..find].rotate_left(1);
        }
    }
}

/// Cycles until a variable-latency result is there, as a rule.
pub fn expected_latency(op: Opcode, tuning: &Tuning) -> u32 {
    use Opcode::*;
    match op {
        LDG | LD | ATOMG | ATOM => tuning.global_latency(),
        LDL => 100,
        LDS | LDSM | LDSM_MT1616 | ATOMS | SHFL => 30,
        LDC | LDCU => 40,
        _ => 20,
    }
}

#[derive(Default)]
struct Node {
    /// Successors and the cycles that must lie between.
    succs: SmallVec<[(u32, u32); 4]>,
    preds: u32,
    height: u32,
    earliest: u32,
}

/// Moves the scheduled region to `out`. `end` is the boundary that follows.
fn schedule_region(
    target: Target,
    region: &mut Vec<MachineInst>,
    end: Option<&Inst>,
    out: &mut Vec<MachineInst>,
    touched: &mut Touched,
    arriving: &mut Arriving,
) {
    if region.len() < 2 {
        region.iter().for_each(|i| arriving.issue_alone(target, &i.inst));
        out.append(region);
        return;
    }
    let tuning = &arriving.tuning;
    let mut nodes = dependences((target, tuning), region, touched);
    for (n, i) in nodes.iter_mut().zip(region.iter()) {
        n.earliest = arriving.left(&i.inst);
    }
    heights((target, tuning), region, &mut nodes, end);
    #[cfg(test)]
    if order::errors::is_contrary() {
        turn(&mut nodes);
    }
    // Not yet startable, by time; startable, by height. Ties go to program order.
    let mut later: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    let mut now: BinaryHeap<(u32, Reverse<u32>)> = BinaryHeap::new();
    for (k, n) in nodes.iter().enumerate().filter(|(_, n)| n.preds == 0) {
        later.push(Reverse((n.earliest, k as u32)));
    }
    let mut cycle = 0;
    // When the next product of matrices may go.
    let mut pipe = 0;
    let mut order: Vec<u32> = Vec::with_capacity(region.len());
    while order.len() < region.len() {
        while let Some(&Reverse((t, k))) = later.peek()
            && t <= cycle
        {
            later.pop();
            now.push((nodes[k as usize].height, Reverse(k)));
        }
        let Some((_, Reverse(k))) = now.pop() else {
            match later.peek() {
                Some(Reverse((t, _))) => cycle = *t,
                None => break,
            }
            continue;
        };
        let pace = u32::from(timing::pace(target, &region[k as usize].inst));
        if pace != 0 && pipe > cycle {
            later.push(Reverse((pipe, k)));
            continue;
        }
        if pace != 0 {
            pipe = cycle + pace;
        }
        order.push(k);
        arriving.issue(target, &region[k as usize].inst, cycle);
        for (s, latency) in std::mem::take(&mut nodes[k as usize].succs) {
            let n = &mut nodes[s as usize];
            n.earliest = n.earliest.max(cycle + latency);
            n.preds -= 1;
            if n.preds == 0 {
                later.push(Reverse((n.earliest, s)));
            }
        }
        cycle += 1;
    }
    debug_assert_eq!(order.len(), region.len(), "dependences are acyclic");
    arriving.pass(cycle);
    let mut taken: Vec<Option<MachineInst>> = region.drain(..).map(Some).collect();
    out.extend(order.into_iter().filter_map(|k| taken[k as usize].take()));
}

/// Makes of every two instructions that may change places the later one the more urgent, and nothing wait for its operands.
#[cfg(test)]
fn turn(nodes: &mut [Node]) {
    for (k, n) in (0..).zip(nodes) {
        n.height = k;
        n.succs.iter_mut().for_each(|s| s.1 = 0);
    }
}

/// Results on their way from regions before, along the only way that leads here: what reads them is not urgent yet, whatever
/// hangs on it.
struct Arriving {
    /// What was chosen for the function.
    tuning: Tuning,
    /// The cycle from which each unit is there.
    at: Vec<u32>,
    /// The cycle in which the region at hand begins, and the last of `at`.
    now: u32,
    last: u32,
}

impl Arriving {
    fn new(tuning: Tuning) -> Arriving {
        Arriving { tuning, at: vec![0; COUNT], now: 0, last: 0 }
    }

    /// Nothing is known to be on its way.
    fn forget(&mut self) {
        self.now = self.now.max(self.last);
    }

    /// Cycles from the region's start until all that an instruction reads or overwrites is there.
    fn left(&self, inst: &Inst) -> u32 {
        let mut at = self.now;
        units::for_each_read(inst, |u, _| at = at.max(self.at[usize::from(u)]));
        units::for_each_write(inst, |u, _| at = at.max(self.at[usize::from(u)]));
        at - self.now
    }

    /// An instruction issues so many cycles after the region's start.
    fn issue(&mut self, target: Target, inst: &Inst, cycle: u32) {
        let latency =
            if timing::is_variable(target, inst) { expected_latency(inst.op, &self.tuning) } else { 0 };
        let at = self.now + cycle + latency;
        units::for_each_write(inst, |u, _| self.at[usize::from(u)] = at);
        self.last = self.last.max(at);
    }

    /// The region took so many cycles.
    fn pass(&mut self, cycles: u32) {
        self.now += cycles;
    }

    /// An instruction is a region of its own.
    fn issue_alone(&mut self, target: Target, inst: &Inst) {
        let cycle = self.left(inst);
        self.issue(target, inst, cycle);
        self.pass(cycle + 1);
    }
}

/// Who wrote and read each unit in the region at hand.
struct Touched {
    /// The last unguarded writer and those after it.
    writers: Vec<SmallVec<[u32; 1]>>,
    /// Readers since the last writer.
    readers: Vec<SmallVec<[u32; 2]>>,
}

impl Touched {
    fn new() -> Touched {
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        writers.resize_with(COUNT, SmallVec::new);
        readers.resize_with(COUNT, SmallVec::new);
        Touched { writers, readers }
    }

    /// Forgets a region.
    fn clear(&mut self, region: &[MachineInst]) {
        for i in region {
            units::for_each_read(&i.inst, |u, _| self.readers[usize::from(u)].clear());
            units::for_each_write(&i.inst, |u, _| {
                self.writers[usize::from(u)].clear();
                self.readers[usize::from(u)].clear();
            });
        }
    }
}

/// What an instruction is to barriers.
fn side(inst: &Inst) -> order::Side {
    let mut files: SmallVec<[RegFile; 8]> = SmallVec::new();
    units::for_each_read(inst, |u, _| files.push(units::file(u)));
    units::for_each_write(inst, |u, _| files.push(units::file(u)));
    order::Side::of(Some(inst.op), files)
}

/// The arrivals of warp groups in a stretch of code, and the general registers of the products behind each: it comes behind all that touches them
/// before, as if it read them.
fn arrivals(region: &[MachineInst]) -> Vec<(u32, Vec<Unit>)> {
    let mut found: Vec<(u32, Vec<Unit>)> = Vec::new();
    for (k, i) in (0u32..).zip(region) {
        if i.inst.op == Opcode::WARPGROUP {
            found.push((k, Vec::new()));
        } else if i.inst.op.is_group_product()
            && let Some((_, ahead)) = found.last_mut()
        {
            let general = |u: Unit| units::file(u) == RegFile::R;
            units::for_each_read(&i.inst, |u, _| ahead.extend(Some(u).filter(|u| general(*u))));
            units::for_each_write(&i.inst, |u, _| ahead.extend(Some(u).filter(|u| general(*u))));
        }
    }
    for (_, ahead) in &mut found {
        ahead.sort_unstable();
        ahead.dedup();
    }
    found
}

/// The waits for products of warp groups in a stretch of code.
#[derive(Default)]
struct Waits {
    last: Option<u32>,
    /// What touches general registers since then.
    touching: Vec<u32>,
}

impl Waits {
    /// Adds the next instruction, and what it must come behind.
    fn add(&mut self, k: u32, inst: &Inst, mut behind: impl FnMut(u32)) {
        if inst.op == Opcode::WARPGROUP_DEPBAR {
            self.touching.drain(..).chain(self.last).for_each(&mut behind);
            self.last = Some(k);
            return;
        }
        let mut touches = false;
        let mut note = |u: Unit| touches |= units::file(u) == RegFile::R;
        units::for_each_read(inst, |u, _| note(u));
        units::for_each_write(inst, |u, _| note(u));
        if touches {
            self.last.into_iter().for_each(&mut behind);
            self.touching.push(k);
        }
    }
}

/// The dependence graph.
fn dependences(
    (target, tuning): (Target, &Tuning),
    region: &[MachineInst],
    touched: &mut Touched,
) -> Vec<Node> {
    let mut nodes: Vec<Node> = region.iter().map(|_| Node::default()).collect();
    let Touched { writers, readers } = touched;
    let mut accesses = order::Accesses::default();
    let mut sides = order::Sides::default();
    let has_barrier = region.iter().any(|i| order::is_barrier(i.inst.op));
    let mut arrivals = arrivals(region).into_iter().peekable();
    // What reads accumulators behind a wait for them says so only until registers are given out: all that touches general registers keeps its side.
    let mut waits = Waits::default();
    // The last product of a warp group that reads each register: what else does comes behind it, and so not behind its arrival.
    let mut products: FxHashMap<Unit, u32> = FxHashMap::default();
    for (k, i) in region.iter().enumerate() {
        let inst = &i.inst;
        let k = k as u32;
        let mut edge = |from: u32, latency: u32| {
            if from != k {
                nodes[from as usize].succs.push((k, latency));
                nodes[k as usize].preds += 1;
            }
        };
        let latency_to = |from: u32, u: Unit, site| {
            let producer = &region[from as usize].inst;
            if timing::is_variable(target, producer) {
                expected_latency(producer.op, tuning)
            } else {
                u32::from(timing::raw(target, producer, u, inst, site))
            }
        };
        units::for_each_read(inst, |u, site| {
            writers[usize::from(u)].iter().for_each(|w| edge(*w, latency_to(*w, u, site)));
        });
        if !products.is_empty() && !inst.op.is_group_product() {
            units::for_each_read(inst, |u, _| products.get(&u).into_iter().for_each(|p| edge(*p, 1)));
        }
        waits.add(k, inst, |from| edge(from, 1));
        let ahead = arrivals.next_if(|a| a.0 == k).map_or(Vec::new(), |a| a.1);
        for &u in &ahead {
            for &w in &writers[usize::from(u)] {
                let producer = &region[w as usize].inst;
                let variable = timing::is_variable(target, producer);
                edge(
                    w,
                    if variable { expected_latency(producer.op, tuning) } else { timing::TO_ARRIVAL.into() },
                );
            }
            readers[usize::from(u)].iter().for_each(|r| edge(*r, 1));
        }
        units::for_each_write(inst, |u, _| {
            for &w in &writers[usize::from(u)] {
                let producer = &region[w as usize].inst;
                let variable = timing::is_variable(target, producer);
                edge(
                    w,
                    if variable {
                        expected_latency(producer.op, tuning)
                    } else {
                        u32::from(timing::waw(target, producer, u, inst))
                    },
                );
            }
            for &r in &readers[usize::from(u)] {
                let reader = &region[r as usize].inst;
                let late = timing::reads_late(target, reader);
                edge(r, if late { 12 } else { timing::war(target, reader, u, inst).into() });
            }
        });
        // What saves a barrier empties it, or empties it alone before BSSY: one before the other.
        if inst.mods.has(Mod::CLEAR) {
            units::for_each_read(inst, |u, _| {
                if units::file(u) == RegFile::B {
                    readers[usize::from(u)].iter().for_each(|r| edge(*r, 1));
                }
            });
        }
        let contents = |reg: Reg| {
            let unit = units::unit(reg);
            let version = unit.and_then(|u| writers[usize::from(u)].last().copied()).map_or(0, |w| w + 1);
            (unit.map_or(u32::MAX, u32::from), version)
        };
        if let Some(a) = order::access(inst.op, &inst.mods, &inst.operands, i.meant, contents) {
            accesses.add(k, a, |before| edge(before, 1));
        }
        if has_barrier {
            sides.add(k, side(inst), |before| edge(before, 1));
        }
        units::for_each_read(inst, |u, _| readers[usize::from(u)].push(k));
        ahead.iter().for_each(|u| readers[usize::from(*u)].push(k));
        if inst.op.is_group_product() {
            let general = |u: Unit| units::file(u) == RegFile::R;
            units::for_each_read(inst, |u, _| _ = general(u).then(|| products.insert(u, k)));
        }
        units::for_each_write(inst, |u, _| {
            let u = usize::from(u);
            // What writes later comes behind this instruction, and so behind those that had to come before it.
            readers[u].clear();
            if inst.guard == Guard::TRUE {
                writers[u].clear();
            } else if writers[u].len() == MAX_WRITERS {
                writers[u].remove(0);
            }
            writers[u].push(k);
        });
    }
    touched.clear(region);
    nodes
}

/// Cycles from each instruction's issue to the end of the region, along the longest way.
fn heights(
    (target, tuning): (Target, &Tuning),
    region: &[MachineInst],
    nodes: &mut [Node],
    end: Option<&Inst>,
) {
    for k in (0..nodes.len()).rev() {
        let after = nodes[k].succs.iter().map(|(s, latency)| nodes[*s as usize].height + latency).max();
        let mut height = after.unwrap_or(0);
        if let Some(end) = end {
            units::for_each_write(&region[k].inst, |u, _| {
                units::for_each_read(end, |v, site| {
                    if u == v {
                        height = height.max(u32::from(timing::raw(target, &region[k].inst, u, end, site)));
                    }
                });
            });
        }
        if timing::is_variable(target, &region[k].inst) {
            height = height.max(expected_latency(region[k].inst.op, tuning) / 2);
        }
        nodes[k].height = height + 1;
    }
    // Not before all are known: what is nudged is to make nothing else more urgent.
    for (k, n) in (0..).zip(nodes) {
        n.height += tuning.nudge(k);
    }
}
