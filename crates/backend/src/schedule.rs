//! List scheduling after register allocation, block by block: the instruction on the longest way to the end
//! of the block goes first among those whose operands are there.
//!
//! Order is kept between instructions that touch the same registers, between memory accesses that may
//! overlap unless both only read, between strong accesses and all others, and around everything that
//! synchronizes, transfers control or reads a clock. What an instruction does with memory is in the table
//! (`sass::memory`); what only PTX knows is in [`MachineInst::ordered`].

use crate::machine::{Machine, MachineBlock, MachineInst};
use crate::timing;
use crate::units::{self, COUNT, Unit};
use sass::memory::{MemoryAccess, MemoryEffect, MemoryEffects};
use sass::{AddrWidth, Changes, Effect, Flow, Guard, Inst, Mod, Opcode, Operand, Reg, Target};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Longest stretch scheduled at once.
const WINDOW: usize = 4096;
/// Memory accesses that a later one is compared with; older ones are summed up.
const MAX_ACCESSES: usize = 48;
/// Guarded writes of a register that later instructions are compared with; each comes behind the older ones.
const MAX_WRITERS: usize = 4;

/// Schedules every block.
pub fn run(machine: &mut Machine) {
    let target = machine.target;
    for block in &mut machine.blocks {
        schedule_block(target, block);
    }
}

fn schedule_block(target: Target, block: &mut MachineBlock) {
    let insts = std::mem::take(&mut block.insts);
    let mut out = Vec::with_capacity(insts.len());
    let mut region: Vec<MachineInst> = Vec::new();
    for i in insts {
        let ends = is_boundary(&i.inst);
        if ends || region.len() == WINDOW {
            schedule_region(target, &mut region, ends.then_some(&i.inst), &mut out);
        }
        if ends { out.push(i) } else { region.push(i) }
    }
    schedule_region(target, &mut region, None, &mut out);
    block.insts = out;
}

/// Whether nothing may move past the instruction.
fn is_boundary(inst: &Inst) -> bool {
    let info = inst.op.info();
    let clock = |o: &Operand| matches!(o, Operand::Special(s) if s.info().changes == Changes::Clock);
    let ends = match info.effect {
        Effect::Pure | Effect::State | Effect::Control(Flow::Region) => false,
        Effect::Memory => info.accesses == MemoryEffects::Fence,
        Effect::Order | Effect::Sync(_) | Effect::Control(_) => true,
    };
    ends || inst.operands.iter().any(clock)
}

/// What an instruction does with memory, as far as order goes.
#[derive(Clone)]
struct Access {
    node: u32,
    /// Must keep its place among all accesses.
    strong: bool,
    parts: SmallVec<[Part; 1]>,
}

/// What it does at one address.
#[derive(Clone, Copy)]
struct Part {
    access: MemoryAccess,
    /// The bytes accessed; `None` if unknown.
    place: Option<Place>,
}

/// Bytes relative to a base register's value.
#[derive(Clone, Copy)]
struct Place {
    base: Option<Reg>,
    /// Which definition of `base`.
    version: u32,
    offset: i32,
    size: u32,
}

impl Access {
    fn conflicts(&self, other: &Access) -> bool {
        let parts = || self.parts.iter().flat_map(|a| other.parts.iter().map(move |b| (a, b)));
        self.strong || other.strong || parts().any(|(a, b)| a.conflicts(b))
    }
}

impl Part {
    fn conflicts(&self, other: &Part) -> bool {
        let reads = |p: &Part| p.access.effect == MemoryEffect::Read;
        if reads(self) && reads(other) || !self.access.space.overlaps(other.access.space) {
            return false;
        }
        // One number is another address in another space.
        let same = |a: &Place, b: &Place| {
            self.access.space == other.access.space && (a.base, a.version) == (b.base, b.version)
        };
        match (&self.place, &other.place) {
            (Some(a), Some(b)) if same(a, b) => {
                let range = |p: &Place| (i64::from(p.offset), i64::from(p.offset) + i64::from(p.size));
                range(a).0 < range(b).1 && range(b).0 < range(a).1
            }
            _ => true,
        }
    }
}

/// What an instruction accesses; `version` numbers the definitions of base registers.
fn access(i: &MachineInst, node: u32, version: impl Fn(Reg) -> u32) -> Option<Access> {
    let inst = &i.inst;
    let all = Access { node, strong: true, parts: SmallVec::new() };
    let accesses = match inst.op.info().accesses {
        // What is left of bringing lanes together that are together.
        _ if inst.op == Opcode::NOP => return Some(all),
        MemoryEffects::None => return None,
        MemoryEffects::Fence => return Some(all),
        MemoryEffects::Accesses(a) => a,
    };
    // Read-only data.
    if inst.op == Opcode::LDG && inst.mods.has(Mod::CONSTANT) && !i.ordered {
        return None;
    }
    let addresses = inst.operands.iter().filter(|o| matches!(o, Operand::Addr { .. }));
    let parts: SmallVec<[Part; 1]> = accesses
        .iter()
        .zip(addresses)
        .map(|(access, address)| {
            let place = match (address, access.size(&inst.mods)) {
                // The offset counts bytes from the register, unless that is scaled.
                (
                    Operand::Addr {
                        base, width: AddrWidth::R32 | AddrWidth::R64, uniform: None, offset, ..
                    },
                    Some(size),
                ) => Some(Place { base: *base, version: base.map_or(0, &version), offset: *offset, size }),
                _ => None,
            };
            Part { access: *access, place }
        })
        .collect();
    let atomic = accesses.iter().any(|a| a.effect == MemoryEffect::Atomic);
    let missing = parts.len() != accesses.len();
    let strong = i.ordered || atomic || missing || inst.mods.has(Mod::STRONG) || inst.mods.has(Mod::MMIO);
    Some(Access { node, strong, parts })
}

/// Cycles until a variable-latency result is there, as a rule.
fn expected_latency(op: Opcode) -> u32 {
    use Opcode::*;
    match op {
        LDG | LD | ATOMG | ATOM => 300,
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
) {
    if region.len() < 2 {
        out.append(region);
        return;
    }
    let mut nodes = dependences(target, region);
    heights(target, region, &mut nodes, end);
    // Not yet startable, by time; startable, by height. Ties go to program order.
    let mut later: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    let mut now: BinaryHeap<(u32, Reverse<u32>)> = BinaryHeap::new();
    for (k, n) in nodes.iter().enumerate().filter(|(_, n)| n.preds == 0) {
        now.push((n.height, Reverse(k as u32)));
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
    let mut taken: Vec<Option<MachineInst>> = region.drain(..).map(Some).collect();
    out.extend(order.into_iter().filter_map(|k| taken[k as usize].take()));
}

/// The dependence graph.
fn dependences(target: Target, region: &[MachineInst]) -> Vec<Node> {
    let mut nodes: Vec<Node> = region.iter().map(|_| Node::default()).collect();
    // Per unit: the last unguarded writer and those after it, readers since the last writer.
    let mut writers: Vec<SmallVec<[u32; 1]>> = vec![SmallVec::new(); COUNT];
    let mut readers: Vec<SmallVec<[u32; 2]>> = vec![SmallVec::new(); COUNT];
    let mut accesses: Vec<Access> = Vec::new();
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
                expected_latency(producer.op)
            } else {
                u32::from(timing::raw(target, producer, u, inst, site))
            }
        };
        units::for_each_read(inst, |u, site| {
            writers[usize::from(u)].iter().for_each(|w| edge(*w, latency_to(*w, u, site)));
        });
        units::for_each_write(inst, |u, _| {
            for &w in &writers[usize::from(u)] {
                let producer = &region[w as usize].inst;
                let variable = timing::is_variable(target, producer);
                edge(
                    w,
                    if variable {
                        expected_latency(producer.op)
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
        let version = |reg: Reg| {
            units::unit(reg).and_then(|u| writers[usize::from(u)].last().copied()).map_or(0, |w| w + 1)
        };
        if let Some(a) = access(i, k, version) {
            accesses.iter().filter(|b| a.conflicts(b)).for_each(|b| edge(b.node, 1));
            if accesses.len() == MAX_ACCESSES {
                // Everything older comes before this one, and this one before everything later.
                accesses.iter().for_each(|b| edge(b.node, 1));
                accesses.clear();
                accesses.push(Access { strong: true, ..a });
            } else {
                accesses.push(a);
            }
        }
        units::for_each_read(inst, |u, _| readers[usize::from(u)].push(k));
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
    nodes
}

/// Cycles from each instruction's issue to the end of the region, along the longest way.
fn heights(target: Target, region: &[MachineInst], nodes: &mut [Node], end: Option<&Inst>) {
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
            height = height.max(expected_latency(region[k].inst.op) / 2);
        }
        nodes[k].height = height + 1;
    }
}
