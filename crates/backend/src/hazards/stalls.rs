//! Stall counts: the issue distance between a fixed-latency writer and whoever touches its result, along
//! every path. Stalls only grow until all distances hold, so the iteration ends.

use crate::machine::{Machine, MachineBlock, MachineInst, inst};
use crate::units::{self, COUNT, Unit};
use crate::{pool, timing};
use sass::latency::{self, ReadSite, Reader};
use sass::{Class, Inst, Opcode, RegFile, Target, Unit as Pipe};

/// The longest stall that a control field holds.
const MAX_STALL: u8 = 15;
/// Cycles between setting a scoreboard and the first wait that sees it.
const SET_TO_WAIT: u8 = 2;
/// Stands for the pipe that multiplies matrices.
const PIPE: Unit = COUNT as Unit + 6;
/// Stands for what an instruction does that no register shows.
const EFFECT: Unit = COUNT as Unit + 7;

/// A recent write or read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Recent {
    /// What is written or read: a register unit, `COUNT + n` for the setting of scoreboard n, [`PIPE`] or [`EFFECT`].
    unit: Unit,
    /// The instruction: block and position.
    by: (u32, u32),
    /// It reads the unit when it issues.
    reads: bool,
    /// Cycles from its issue to now.
    age: u8,
    /// Cycles by which it matters to nothing any more.
    until: u8,
}

/// What may still matter, sorted, one entry per unit and instruction.
type State = Vec<Recent>;

fn age(state: &mut State, cycles: u8) {
    state.iter_mut().for_each(|r| r.age = r.age.saturating_add(cycles));
    state.retain(|r| r.age < r.until);
}

/// Whether the instruction stands in front of a change of the warp's registers, before which everything that was issued is to be done: as ptxas
/// 13.0.88 always has it, whose NOP or WARPSYNC there comes when the last result is there.
fn settles(block: &MachineBlock, k: usize) -> bool {
    block.insts.get(k + 1).is_some_and(|next| pool::is_change(next.inst.op))
}

/// Cycles that are missing before instruction `k` of block `b` may issue. Products of warp groups use the registers `groups`.
fn missing(machine: &Machine, groups: &[Unit], state: &State, (b, k): (usize, usize)) -> u8 {
    let target = machine.target;
    let inst = &machine.blocks[b].insts[k].inst;
    let mut lack = 0u8;
    if settles(&machine.blocks[b], k) {
        let written = state.iter().filter(|r| !r.reads && r.unit < COUNT as Unit);
        lack = written.map(|r| r.until.saturating_sub(r.age)).max().unwrap_or(0);
    }
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
    if inst.op == Opcode::WARPGROUP {
        // What products of the warp group read has arrived.
        for r in state.iter().filter(|r| !r.reads && groups.binary_search(&r.unit).is_ok()) {
            lack = lack.max(timing::TO_ARRIVAL.saturating_sub(r.age));
        }
    }
    for r in of(EFFECT) {
        lack = lack.max(timing::apart(target, by(r), inst).saturating_sub(r.age));
    }
    if timing::pace(target, inst) != 0 {
        for r in of(PIPE) {
            lack = lack.max(r.until.saturating_sub(r.age));
        }
    }
    for s in (0..6).filter(|s| inst.ctrl.wait >> s & 1 != 0) {
        for r in of(COUNT as Unit + s) {
            lack = lack.max(SET_TO_WAIT.saturating_sub(r.age));
        }
    }
    lack
}

/// Records what `inst` writes at a fixed latency, what it reads when it issues and which scoreboards it sets.
fn record(target: Target, state: &mut State, inst: &Inst, at: (u32, u32)) {
    let mut add = |unit, reads, until| {
        state.retain(|r| r.unit != unit || r.by != at || r.reads != reads);
        if until != 0 {
            state.push(Recent { unit, by: at, reads, age: 0, until });
        }
    };
    if inst.op.info().leaves_function() {
        // Whoever comes back has been away for longer than any latency.
        return state.clear();
    }
    let (written, read) = timing::longest(target, inst);
    add(PIPE, false, timing::pace(target, inst));
    add(EFFECT, false, timing::longest_apart(target, inst.op));
    if inst.ctrl.write_sb.is_none() && !timing::is_variable(target, inst) {
        units::for_each_write(inst, |u, _| add(u, false, written));
    }
    let late = timing::reads_late(target, inst);
    units::for_each_read(inst, |u, _| {
        // A scoreboard stands for the sources that are read late.
        if !(late && matches!(units::file(u), RegFile::R | RegFile::UR)) {
            add(u, true, read);
        }
    });
    for s in [inst.ctrl.write_sb, inst.ctrl.read_sb].into_iter().flatten() {
        add(COUNT as Unit + Unit::from(s), false, SET_TO_WAIT);
    }
}

/// What is recent where paths come together: of an access on several of them, the youngest.
fn merge<'s>(paths: impl Iterator<Item = &'s State>) -> State {
    let mut out: State = paths.flatten().copied().collect();
    out.sort_unstable();
    out.dedup_by_key(|r| (r.unit, r.by, r.reads));
    out
}

/// Sets the stall counts.
pub fn run(machine: &mut Machine) {
    insert_nops(machine);
    let groups = crate::groups::registers(machine);
    let count = machine.blocks.len();
    let mut preds: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (b, block) in machine.blocks.iter().enumerate() {
        block.succs.iter().for_each(|&s| preds[s as usize].push(b as u32));
    }
    let target = machine.target;
    for i in machine.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        i.inst.ctrl.stall = timing::least_stall(target, &i.inst);
    }
    let mut exit: Vec<State> = vec![State::new(); count];
    let mut dirty = vec![true; count];
    while dirty.contains(&true) {
        for b in 0..count {
            if !std::mem::replace(&mut dirty[b], false) {
                continue;
            }
            let mut state = merge(preds[b].iter().map(|p| &exit[*p as usize]));
            let mut k = 0;
            while k < machine.blocks[b].insts.len() {
                let lack = missing(machine, &groups, &state, (b, k));
                if lack > 0 && k > 0 {
                    let stall = &mut machine.blocks[b].insts[k - 1].inst.ctrl.stall;
                    let longer = (*stall + lack).min(MAX_STALL);
                    let left = lack - (longer - *stall);
                    *stall = longer;
                    age(&mut state, lack);
                    k += insert(machine, b, k, left, &mut state, &mut exit);
                } else if lack > 0 {
                    let mut left = 0;
                    for &p in &preds[b] {
                        let lack = missing(machine, &groups, &exit[p as usize], (b, k));
                        if lack > 0 {
                            let last = machine.blocks[p as usize].insts.last_mut();
                            let stall = &mut last.expect("insert_nops leaves no block empty").inst.ctrl.stall;
                            let longer = (*stall + lack).min(MAX_STALL);
                            left = left.max(lack - (longer - *stall));
                            if longer > *stall {
                                age(&mut exit[p as usize], longer - *stall);
                                *stall = longer;
                                dirty[p as usize] = true;
                            }
                        }
                    }
                    // Come back with the predecessors' longer stalls.
                    dirty[b] = true;
                    age(&mut state, lack - left.min(lack));
                    if insert(machine, b, k, left, &mut state, &mut exit) != 0 {
                        // The instruction comes later; the NOP has its place now.
                        continue;
                    }
                }
                let i = &machine.blocks[b].insts[k].inst;
                record(machine.target, &mut state, i, (b as u32, k as u32));
                let stall = i.ctrl.stall;
                age(&mut state, stall);
                k += 1;
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

/// Puts NOPs of `cycles` cycles in all before instruction `k` of block `b`; how many.
fn insert(
    machine: &mut Machine,
    b: usize,
    k: usize,
    cycles: u8,
    state: &mut State,
    exit: &mut [State],
) -> usize {
    if cycles == 0 {
        return 0;
    }
    let mut left = cycles;
    let mut count = 0;
    let line = machine.blocks[b].insts[k].line;
    while left != 0 {
        let mut nop = inst(Opcode::NOP, &[], &[]);
        nop.ctrl.stall = left.min(MAX_STALL);
        left -= nop.ctrl.stall;
        machine.blocks[b].insts.insert(k, MachineInst::new(nop, line));
        count += 1;
    }
    // Whoever is behind them has another position now.
    for r in state.iter_mut().chain(exit.iter_mut().flatten()) {
        if r.by.0 == b as u32 && r.by.1 >= k as u32 {
            r.by.1 += count;
        }
    }
    count as usize
}

/// Puts a NOP into empty blocks, before instructions whose predicates take longer than one stall, and before changes of the warp's registers.
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
            let meets = |i: &MachineInst| i.inst.op == Opcode::WARPSYNC;
            let changes = pool::is_change(block.insts[k].inst.op)
                && !k.checked_sub(1).is_some_and(|p| meets(&block.insts[p]));
            if changes || waits(&block.insts[k]) {
                let line = block.insts[k].line;
                block.insts.insert(k, MachineInst::new(inst(Opcode::NOP, &[], &[]), line));
                k += 1;
            }
            k += 1;
        }
    }
}
