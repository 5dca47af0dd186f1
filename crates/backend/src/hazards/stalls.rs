//! Stall counts: the issue distance between a fixed-latency writer and whoever touches its result, along
//! every path. Stalls only grow until all distances hold, so the iteration ends.

use crate::machine::{Machine, MachineInst, inst};
use crate::timing::{self, MAX_LATENCY, MAX_READ};
use crate::units::{self, COUNT, Unit};
use sass::latency::{self, ReadSite, Reader};
use sass::{Class, Inst, Opcode, RegFile, Target, Unit as Pipe};

/// The longest stall that a control field holds.
const MAX_STALL: u8 = 15;
/// Cycles between setting a scoreboard and the first wait that sees it.
const SET_TO_WAIT: u8 = 2;

/// A recent write or read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Recent {
    /// What is written or read: a register unit, or `COUNT + n` for the setting of scoreboard n.
    unit: Unit,
    /// The instruction: block and position.
    by: (u32, u32),
    /// It reads the unit when it issues.
    reads: bool,
    /// Cycles from its issue to now.
    age: u8,
}

/// The writes less than [`MAX_LATENCY`] cycles ago, and the reads less than [`MAX_READ`] cycles ago, sorted, one entry per
/// unit and instruction.
type State = Vec<Recent>;

fn age(state: &mut State, cycles: u8) {
    state.iter_mut().for_each(|r| r.age += cycles);
    state.retain(|r| r.age < if r.reads { MAX_READ } else { MAX_LATENCY });
}

/// Cycles that are missing before `inst` may issue.
fn missing(machine: &Machine, state: &State, inst: &Inst) -> u8 {
    let target = machine.target;
    let mut lack = 0u8;
    let by = |r: &Recent| &machine.blocks[r.by.0 as usize].insts[r.by.1 as usize].inst;
    let of = |u: Unit| state.iter().filter(move |r| r.unit == u);
    units::for_each_read(inst, |u, site| {
        for r in of(u).filter(|r| !r.reads) {
            lack = lack.max(timing::raw(target, by(r), u, inst, site).saturating_sub(r.age));
        }
    });
    units::for_each_write(inst, |u, _| {
        for r in of(u) {
            let needs = if r.reads {
                timing::war(target, by(r), u, inst)
            } else {
                timing::waw(target, by(r), u, inst)
            };
            lack = lack.max(needs.saturating_sub(r.age));
        }
    });
    for s in (0..6).filter(|s| inst.ctrl.wait >> s & 1 != 0) {
        for r in of(COUNT as Unit + s) {
            lack = lack.max(SET_TO_WAIT.saturating_sub(r.age));
        }
    }
    lack
}

/// Records what `inst` writes at a fixed latency, what it reads when it issues and which scoreboards it sets.
fn record(target: Target, state: &mut State, inst: &Inst, at: (u32, u32)) {
    let mut add = |unit, reads| {
        state.retain(|r| r.unit != unit || r.by != at || r.reads != reads);
        state.push(Recent { unit, by: at, reads, age: 0 });
    };
    if units::leaves_function(inst.op) {
        // Whoever comes back has been away for longer than any latency.
        return state.clear();
    }
    if inst.ctrl.write_sb.is_none() && !timing::is_variable(target, inst) {
        units::for_each_write(inst, |u, _| add(u, false));
    }
    let late = timing::reads_late(target, inst);
    units::for_each_read(inst, |u, _| {
        // A scoreboard stands for the sources that are read late.
        if !(late && matches!(units::file(u), RegFile::R | RegFile::UR)) {
            add(u, true);
        }
    });
    for s in [inst.ctrl.write_sb, inst.ctrl.read_sb].into_iter().flatten() {
        add(COUNT as Unit + Unit::from(s), false);
    }
}

/// Adds the writes of another path; whether anything was new or younger.
fn merge(into: &mut State, from: &State) -> bool {
    let mut changed = false;
    for r in from {
        match into.iter_mut().find(|q| q.unit == r.unit && q.by == r.by && q.reads == r.reads) {
            Some(q) if q.age <= r.age => {}
            Some(q) => {
                q.age = r.age;
                changed = true;
            }
            None => {
                into.push(*r);
                changed = true;
            }
        }
    }
    changed
}

/// Sets the stall counts.
pub fn run(machine: &mut Machine) {
    insert_nops(machine);
    let count = machine.blocks.len();
    let mut preds: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (b, block) in machine.blocks.iter().enumerate() {
        block.succs.iter().for_each(|&s| preds[s as usize].push(b as u32));
    }
    for i in machine.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        i.inst.ctrl.stall = timing::min_stall(i.inst.op);
    }
    let mut exit: Vec<State> = vec![State::new(); count];
    let mut dirty = vec![true; count];
    while dirty.contains(&true) {
        for b in 0..count {
            if !std::mem::replace(&mut dirty[b], false) {
                continue;
            }
            let mut state = State::new();
            for &p in &preds[b] {
                merge(&mut state, &exit[p as usize]);
            }
            for k in 0..machine.blocks[b].insts.len() {
                let lack = missing(machine, &state, &machine.blocks[b].insts[k].inst);
                if lack > 0 && k > 0 {
                    machine.blocks[b].insts[k - 1].inst.ctrl.stall += lack;
                    age(&mut state, lack);
                } else if lack > 0 {
                    for &p in &preds[b] {
                        let lack = missing(machine, &exit[p as usize], &machine.blocks[b].insts[k].inst);
                        if lack > 0 {
                            let last = machine.blocks[p as usize].insts.last_mut();
                            let last = last.expect("insert_nops leaves no block empty");
                            last.inst.ctrl.stall = (last.inst.ctrl.stall + lack).min(MAX_STALL);
                            age(&mut exit[p as usize], lack);
                            dirty[p as usize] = true;
                        }
                    }
                    // Come back with the predecessors' longer stalls.
                    dirty[b] = true;
                    age(&mut state, lack);
                }
                let i = &machine.blocks[b].insts[k].inst;
                record(machine.target, &mut state, i, (b as u32, k as u32));
                let stall = i.ctrl.stall;
                age(&mut state, stall);
            }
            state.sort_unstable();
            if state != exit[b] {
                exit[b] = state;
                for &s in &machine.blocks[b].succs {
                    dirty[s as usize] = true;
                }
            }
        }
    }
}

/// Puts a NOP into empty blocks, and before instructions whose predicates take longer than one stall.
fn insert_nops(machine: &mut Machine) {
    let target = machine.target;
    for block in &mut machine.blocks {
        if block.insts.is_empty() {
            block.insts.push(MachineInst::new(inst(Opcode::NOP, &[], &[]), 0));
        }
        let guard = Reader::Site(ReadSite::HalfGuard);
        let slow = latency::raw(Class::Dual, RegFile::P, guard, target) > MAX_STALL;
        let waits = |i: &MachineInst| {
            let mut reads = false;
            units::for_each_read(&i.inst, |u, _| reads |= units::file(u) == RegFile::P);
            slow && reads && i.inst.op.unit() == Pipe::Half
        };
        let mut k = 0;
        while k < block.insts.len() {
            if waits(&block.insts[k]) {
                let line = block.insts[k].line;
                block.insts.insert(k, MachineInst::new(inst(Opcode::NOP, &[], &[]), line));
                k += 1;
            }
            k += 1;
        }
    }
}
