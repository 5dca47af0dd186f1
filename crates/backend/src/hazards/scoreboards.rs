//! Scoreboards: each variable-latency instruction gets one for its results (read after write, write after
//! write) and, where a source may be overwritten too early, one for its sources (write after read). A
//! scoreboard is a counter, so instructions may share one; who waits for it waits for all of them.

use crate::machine::{Machine, MachineBlock, MachineInst};
use crate::schedule::expected_latency;
use crate::timing;
use crate::units::{self, COUNT, Unit};
use sass::memory::{MemoryEffect, MemoryEffects};
use sass::{Inst, Mod, Opcode, Reg, RegFile, Target};
use smallvec::SmallVec;
use std::ops::Range;

/// Number of scoreboards.
const BOARDS: u8 = 6;
/// The scoreboard that counts groups of copies: LDGDEPBAR and UTMACMDFLUSH (of bulk copies) add to it, `DEPBAR.LE SB0, n` waits for it. Where there are
/// groups, ptxas has nothing else on it, as a count would not tell what is under way.
const GROUPS: u8 = 0;
/// Blocks looked at when searching for who overwrites a source.
const SEARCH_LIMIT: usize = 16;
/// The time of a use that is not in the block.
const FAR: u32 = u32::MAX;

/// Per unit, the scoreboards that must be waited for before it is read or written.
#[derive(Clone, PartialEq)]
struct Pending {
    /// Results on their way.
    write: [u8; COUNT],
    /// Sources not read yet.
    read: [u8; COUNT],
    /// Fences on their way, for which everything waits.
    fence: u8,
    /// Instructions on their way for which accesses and barriers wait.
    order: u8,
    /// Strong reads on their way. What acquires waits for them: the NOP or CCTL.IVALL behind an acquiring access.
    strong: u8,
    /// Behind a `MEMBAR.ALL` of more than the block, whose CCTL.IVALL waits for everything.
    fenced: bool,
}

impl Pending {
    const NONE: Pending =
        Pending { write: [0; COUNT], read: [0; COUNT], fence: 0, order: 0, strong: 0, fenced: false };

    /// Adds what is pending in `other`; whether anything was new.
    fn merge(&mut self, other: &Pending) -> bool {
        let mut changed = other.fence & !self.fence | other.order & !self.order | other.strong & !self.strong;
        changed |= u8::from(other.fenced && !self.fenced);
        self.fence |= other.fence;
        self.order |= other.order;
        self.strong |= other.strong;
        self.fenced |= other.fenced;
        for (a, b) in self.write.iter_mut().zip(&other.write).chain(self.read.iter_mut().zip(&other.read)) {
            changed |= b & !*a;
            *a |= b;
        }
        changed != 0
    }

    /// What `inst` must wait for.
    fn needs(&self, inst: &Inst, groups: &[Unit]) -> u8 {
        let mut wait = self.fence;
        if inst.op == Opcode::WARPGROUP {
            // What products of the warp group use is there, and free.
            wait |=
                groups.iter().fold(0, |m, u| m | self.write[usize::from(*u)] | self.read[usize::from(*u)]);
        }
        if timing::awaits(inst.op) {
            wait |= self.order;
        }
        if acquires(inst) {
            wait |= self.strong;
            if self.fenced && inst.op == Opcode::CCTL {
                wait |= (1 << BOARDS) - 1;
            }
        }
        if inst.op == Opcode::EXIT {
            // Nobody else reads uniform registers so late that it counts.
            wait |= units::of_file(RegFile::UR).fold(0, |m, u| m | self.read[usize::from(u)]);
        }
        units::for_each_read(inst, |u, _| wait |= self.write[usize::from(u)]);
        units::for_each_write(inst, |u, _| wait |= self.write[usize::from(u)] | self.read[usize::from(u)]);
        wait
    }

    /// The state after waiting for `mask`.
    fn clear(&mut self, mask: u8) {
        self.fence &= !mask;
        self.order &= !mask;
        self.strong &= !mask;
        if mask != 0 {
            self.write.iter_mut().chain(&mut self.read).for_each(|m| *m &= !mask);
        }
    }

    /// Scoreboards in use.
    fn busy(&self) -> u8 {
        self.write.iter().chain(&self.read).fold(self.fence | self.order | self.strong, |a, m| a | m)
    }

    /// The state after an instruction has issued with its scoreboards.
    fn issue(&mut self, target: Target, i: &MachineInst) {
        let inst = &i.inst;
        match inst.op {
            Opcode::MEMBAR => {
                self.fenced = inst.mods.has(Mod::ALL) && !inst.mods.has(Mod::CTA);
                if is_sequential_fence(inst) {
                    self.strong = 0;
                }
            }
            Opcode::CCTL => self.fenced = false,
            _ => {}
        }
        if let Some(s) = inst.ctrl.write_sb {
            if is_strong_read(i) {
                self.strong |= 1 << s;
            }
            units::for_each_write(inst, |u, _| {
                if !timing::arrives_with_sources(target, inst, u) {
                    self.write[usize::from(u)] |= 1 << s;
                }
            });
            if inst.op == Opcode::USETMAXREG {
                self.fence |= 1 << s;
            }
            if timing::is_awaited(inst) {
                self.order |= 1 << s;
                late_reads(inst, |u| self.read[usize::from(u)] |= 1 << s);
            }
        }
        if let Some(s) = inst.ctrl.read_sb {
            units::for_each_write(inst, |u, _| {
                if timing::arrives_with_sources(target, inst, u) {
                    self.write[usize::from(u)] |= 1 << s;
                }
            });
            late_reads(inst, |u| self.read[usize::from(u)] |= 1 << s);
            if inst.op == Opcode::MEMBAR {
                self.fence |= 1 << s;
            }
        }
    }
}

/// Whether the instruction stands behind an acquiring access or a fence, and keeps what follows from being done before that: as
/// ptxas has it, a NOP for the block, CCTL.IVALL for more.
fn acquires(inst: &Inst) -> bool {
    inst.op == Opcode::NOP || inst.op == Opcode::CCTL && inst.mods.has(Mod::IVALL)
}

/// Whether it reads memory in a way that others may synchronize with.
fn is_strong_read(i: &MachineInst) -> bool {
    let accesses = match i.inst.op.info().accesses {
        MemoryEffects::Accesses(accesses) => accesses,
        MemoryEffects::ReadOnly => return false,
        MemoryEffects::None | MemoryEffects::Fence => return i.inst.op.info().memory,
    };
    let has = |effect| accesses.iter().any(|a| a.effect == effect);
    let marked = i.meant.ordered || i.inst.mods.has(Mod::STRONG) || i.inst.mods.has(Mod::MMIO);
    has(MemoryEffect::Atomic) || marked && has(MemoryEffect::Read)
}

/// Whether the instruction writes R1.
fn writes_stack_pointer(inst: &Inst) -> bool {
    let mut found = false;
    units::for_each_write(inst, |u, _| found |= Some(u) == units::unit(Reg::SP));
    found
}

/// Whether anything in a function reads R1, or anything but a load at its beginning writes it; what is called may do so. A kernel that does not
/// has the load all the same, as ptxas's have (sm_90 on), which nothing waits for there either: of 1,944 such kernels with and without calls
/// for sm_90, 100 and 120, 39 count it (33 of them have calls).
fn uses_stack_pointer(machine: &Machine) -> bool {
    let insts = || machine.blocks.iter().flat_map(|b| &b.insts).map(|i| &i.inst);
    let reads = |inst: &Inst| {
        let mut found = false;
        units::for_each_read(inst, |u, _| found |= Some(u) == units::unit(Reg::SP));
        found
    };
    insts().any(reads) || insts().filter(|i| writes_stack_pointer(i)).count() > 1
}

/// Sources that a late-reading instruction holds on to. Predicates are read at issue.
fn late_reads(inst: &Inst, mut f: impl FnMut(Unit)) {
    units::for_each_read(inst, |u, _| {
        if matches!(units::file(u), RegFile::R | RegFile::UR) {
            f(u);
        }
    });
}

/// Gives out scoreboards, then computes the wait masks.
pub fn run(machine: &mut Machine) {
    let groups = crate::groups::registers(machine);
    let target = machine.target;
    // What comes by ways back is only known when all blocks have scoreboards.
    let back = assign(machine, &groups, None);
    if back.iter().any(Option::is_some) {
        assign(machine, &groups, Some(back));
    }
    let mut entry: Vec<Pending> = vec![Pending::NONE; machine.blocks.len()];
    let mut dirty = vec![true; machine.blocks.len()];
    let mut work = true;
    while work {
        work = false;
        for b in 0..machine.blocks.len() {
            if !std::mem::replace(&mut dirty[b], false) {
                continue;
            }
            let mut state = entry[b].clone();
            let block = &mut machine.blocks[b];
            for i in &mut block.insts {
                let wait = state.needs(&i.inst, &groups);
                i.inst.ctrl.wait = wait;
                state.clear(wait);
                state.issue(target, i);
            }
            for &s in &block.succs {
                if entry[s as usize].merge(&state) {
                    dirty[s as usize] = true;
                    work = true;
                }
            }
        }
    }
    wait_before(machine);
}

/// Has something in front wait for what has no wait mask: the instruction before, unless that sets the scoreboard, or a NOP.
fn wait_before(machine: &mut Machine) {
    for block in &mut machine.blocks {
        let mut k = 0;
        while k < block.insts.len() {
            let here = &mut block.insts[k];
            if here.inst.op.info().waitless && here.inst.ctrl.wait != 0 {
                let wait = std::mem::take(&mut here.inst.ctrl.wait);
                let line = here.line;
                let sets = |ctrl: sass::Control| {
                    [ctrl.write_sb, ctrl.read_sb].into_iter().flatten().fold(0, |all, s| all | 1 << s)
                };
                match k.checked_sub(1).map(|before| &mut block.insts[before].inst) {
                    Some(before) if sets(before.ctrl) & wait == 0 && !before.op.info().waitless => {
                        before.ctrl.wait |= wait;
                    }
                    _ => {
                        let mut nop = MachineInst::new(crate::machine::inst(Opcode::NOP, &[], &[]), line);
                        nop.inst.ctrl.wait = wait;
                        block.insts.insert(k, nop);
                        k += 1;
                    }
                }
            }
            k += 1;
        }
    }
}

/// What is on its way where a block begins, and the cycles that each scoreboard is still busy.
type Entry = (Pending, [u32; BOARDS as usize]);

/// Adds what comes by another way.
fn join(into: &mut Entry, state: &Pending, left: [u32; BOARDS as usize]) {
    into.0.merge(state);
    into.1.iter_mut().zip(left).for_each(|(a, b)| *a = b.max(*a));
}

/// Chooses scoreboards in address order, with what is known of the blocks before, and `back`: what comes to each block by ways
/// back. What comes by them now, where that is anything.
fn assign(
    machine: &mut Machine,
    group_registers: &[Unit],
    back: Option<Vec<Option<Entry>>>,
) -> Vec<Option<Entry>> {
    let target = machine.target;
    let count = machine.blocks.len();
    let groups = machine.blocks.iter().flat_map(|b| &b.insts).any(|i| ends_group(i.inst.op));
    let all = if groups { GROUPS + 1..BOARDS } else { 0..BOARDS };
    let nothing = || (Pending::NONE, [0; BOARDS as usize]);
    let mut entry: Vec<Entry> = match back {
        Some(back) => back.into_iter().map(|e| e.unwrap_or_else(nothing)).collect(),
        None => (0..count).map(|_| nothing()).collect(),
    };
    let mut by_ways_back: Vec<Option<Entry>> = vec![None; count];
    let ahead = Ahead::new(machine);
    let stack_is_unused = !uses_stack_pointer(machine);
    for b in 0..count {
        let (mut state, remaining) = entry[b].clone();
        let mut boards = Boards::enter(all.clone(), remaining, ahead.waits_for(b, &state));
        let nexts = ahead.in_block(target, &machine.blocks[b]);
        let acquired = before_acquire(&machine.blocks[b]);
        let end = machine.blocks[b].insts.len() as u32;
        for (k, &next_here) in nexts.iter().enumerate() {
            let inst = &machine.blocks[b].insts[k].inst;
            let waits = state.needs(inst, group_registers);
            state.clear(waits);
            boards.reach(k as u32, waits);
            let latency = expected_latency(inst.op, &machine.tuning);
            let mut write = None;
            let mut read = None;
            let mut early = false;
            if timing::is_variable(target, inst) {
                let mut writes = false;
                units::for_each_write(inst, |u, _| {
                    let with_sources = timing::arrives_with_sources(target, inst, u);
                    writes |= !with_sources;
                    early |= with_sources;
                });
                writes &= !(stack_is_unused && inst.op == Opcode::LDC && writes_stack_pointer(inst));
                if writes {
                    write = Some(boards.choose(state.busy(), next_here.touch, latency));
                } else if inst.op == Opcode::SHFL
                    || is_strong_read(&machine.blocks[b].insts[k]) && acquired[k]
                {
                    // Nobody reads a result, but ptxas's of this one always count, and others where they acquire.
                    write = Some(boards.choose(state.busy(), end, latency));
                }
            }
            if timing::is_awaited(inst) {
                let rest = &machine.blocks[b].insts[k + 1..];
                let when =
                    rest.iter().position(|i| timing::awaits(i.inst.op)).map_or(FAR, |n| (k + 1 + n) as u32);
                write = Some(boards.choose(state.busy(), when, latency));
            }
            // A copy to shared memory always counts its reads, and textures with a handle in registers, as ptxas's do.
            let always = matches!(inst.op, Opcode::LDGSTS | Opcode::TXQ_B | Opcode::TXD_B)
                || inst.op.info().holds_uniform
                || early;
            let covered = timing::is_awaited(inst) && !always;
            if timing::reads_late(target, inst)
                && !covered
                && (always || ahead.source_at_risk(machine, b, k, next_here, write.is_some()))
            {
                let busy = state.busy() | write.map_or(0, |s| 1 << s);
                read = Some(boards.choose(busy, next_here.overwrite.min(next_here.early), READING));
            }
            let next = machine.blocks[b].insts.get(k + 1);
            if timing::is_fence(target, inst) && next.is_none_or(|i| i.inst.op != Opcode::ERRBAR) {
                read = Some(boards.choose(state.busy(), k as u32 + 1, latency));
            }
            let inst = &mut machine.blocks[b].insts[k].inst;
            match inst.op {
                Opcode::LDGDEPBAR => write = Some(GROUPS),
                Opcode::UTMACMDFLUSH => read = Some(GROUPS),
                _ => {}
            }
            inst.ctrl.write_sb = write;
            inst.ctrl.read_sb = read;
            state.issue(target, &machine.blocks[b].insts[k]);
        }
        let left = boards.remaining();
        for s in machine.blocks[b].succs.clone() {
            let s = s as usize;
            if s > b {
                join(&mut entry[s], &state, left);
            } else if state.busy() != 0 {
                join(by_ways_back[s].get_or_insert_with(nothing), &state, left);
            }
        }
    }
    by_ways_back
}

/// Cycles until an instruction has read its sources, as a rule.
const READING: u32 = 12;
/// Cycles from one instruction to the next, as a rule.
const PACE: u32 = 2;

/// The scoreboards while a block is walked through, with a guess at the time: what they count is over at one cycle, and the
/// first who waits for them comes at one position.
struct Boards {
    all: Range<u8>,
    /// The position in the block, and the cycle.
    here: u32,
    now: u32,
    /// When everything that a scoreboard counts is over.
    done: [u32; BOARDS as usize],
    /// Position of the first who waits for it; [`FAR`] if that is in another block.
    needed: [u32; BOARDS as usize],
}

impl Boards {
    /// At the start of a block, to which some come busy.
    fn enter(all: Range<u8>, remaining: [u32; BOARDS as usize], needed: [u32; BOARDS as usize]) -> Boards {
        Boards { all, here: 0, now: 0, done: remaining, needed }
    }

    /// The instruction at `here` issues, having waited for some.
    fn reach(&mut self, here: u32, waits: u8) {
        self.now += PACE * (here - self.here);
        self.here = here;
        for s in (0..BOARDS).filter(|s| waits >> s & 1 != 0) {
            self.now = self.now.max(self.done[usize::from(s)]);
        }
    }

    /// Cycles that each is still busy.
    fn remaining(&self) -> [u32; BOARDS as usize] {
        self.done.map(|d| d.saturating_sub(self.now))
    }

    /// The cycle in which a position is reached if nothing is waited for on the way.
    fn at(&self, position: u32) -> u32 {
        if position == FAR {
            self.now + 100 * PACE
        } else {
            self.now + PACE * position.saturating_sub(self.here)
        }
    }

    /// Cycles lost if what is over at `done`, and needed at `when`, is counted by `s` with what that counts already: those who
    /// need one wait for the other as well.
    fn loss(&self, s: u8, when: u32, done: u32) -> u32 {
        let (theirs, needed) = (self.done[usize::from(s)], self.needed[usize::from(s)]);
        let lost = |mine: u32, when: u32, other: u32| other.saturating_sub(mine.max(self.at(when)));
        lost(done, when, theirs) + lost(theirs, needed, done)
    }

    /// A scoreboard for what takes `latency` cycles and is needed at `when`: one that is waited for at the same time, else a
    /// free one, else the one with which least is lost.
    fn choose(&mut self, busy: u8, when: u32, latency: u32) -> u8 {
        let is_busy = |s: u8| busy >> s & 1 != 0;
        let done = self.now + latency;
        let board = (self.all.clone())
            .find(|&s| when != FAR && is_busy(s) && self.needed[usize::from(s)] == when)
            .or_else(|| self.all.clone().find(|&s| !is_busy(s)))
            .or_else(|| self.all.clone().min_by_key(|&s| (self.loss(s, when, done), BOARDS - s)))
            .unwrap_or(BOARDS - 1);
        let s = usize::from(board);
        let was = is_busy(board);
        self.needed[s] = if was { self.needed[s].min(when) } else { when };
        self.done[s] = if was { self.done[s].max(done) } else { done };
        board
    }
}

/// For each instruction, whether what makes an access acquire comes behind it in the block, with no MEMBAR.SC between, which waits itself.
fn before_acquire(block: &MachineBlock) -> Vec<bool> {
    let mut found = vec![false; block.insts.len()];
    let mut acquired = false;
    for (k, i) in block.insts.iter().enumerate().rev() {
        found[k] = acquired;
        acquired = acquires(&i.inst) || acquired && !is_sequential_fence(&i.inst);
    }
    found
}

/// A fence behind which CCTL.IVALL waits for nothing.
fn is_sequential_fence(inst: &Inst) -> bool {
    inst.op == Opcode::MEMBAR && inst.mods.has(Mod::SC) && !inst.mods.has(Mod::CTA)
}

/// Whether it ends a group of copies.
fn ends_group(op: Opcode) -> bool {
    matches!(op, Opcode::LDGDEPBAR | Opcode::UTMACMDFLUSH)
}

/// What follows an instruction in its block: positions, or [`FAR`].
#[derive(Clone, Copy)]
struct Next {
    /// The first that reads or writes one of its results.
    touch: u32,
    /// The same for those that arrive when the sources have been read.
    early: u32,
    /// The first that overwrites one of the sources that it reads late.
    overwrite: u32,
}

/// The first read and the first write of a unit from some place on.
#[derive(Clone, Copy)]
struct First {
    read: u32,
    write: u32,
}

const NEVER: First = First { read: FAR, write: FAR };

/// What comes first in the code that follows, found once for each block.
struct Ahead {
    /// For each block, its units with their first accesses, ascending.
    blocks: Vec<Vec<(Unit, First)>>,
}

impl Ahead {
    fn new(machine: &Machine) -> Ahead {
        let mut first = [NEVER; COUNT];
        let blocks = (machine.blocks.iter())
            .map(|block| {
                let mut named: Vec<Unit> = Vec::new();
                for (k, i) in (0..).zip(&block.insts) {
                    let mut note = |u: Unit, writes: bool| {
                        let f = &mut first[usize::from(u)];
                        if f.read == FAR && f.write == FAR {
                            named.push(u);
                        }
                        let at = if writes { &mut f.write } else { &mut f.read };
                        *at = (*at).min(k);
                    };
                    units::for_each_read(&i.inst, |u, _| note(u, false));
                    units::for_each_write(&i.inst, |u, _| note(u, true));
                }
                named.sort_unstable();
                named.into_iter().map(|u| (u, std::mem::replace(&mut first[usize::from(u)], NEVER))).collect()
            })
            .collect();
        Ahead { blocks }
    }

    /// What follows each instruction of a block in it; looked up for those that need scoreboards.
    fn in_block(&self, target: Target, block: &MachineBlock) -> Vec<Next> {
        let mut first = [NEVER; COUNT];
        let mut out = vec![Next { touch: FAR, early: FAR, overwrite: FAR }; block.insts.len()];
        for (k, i) in block.insts.iter().enumerate().rev() {
            let inst = &i.inst;
            if timing::is_variable(target, inst) {
                units::for_each_write(inst, |u, _| {
                    let f = first[usize::from(u)];
                    let next = &mut out[k];
                    let early = timing::arrives_with_sources(target, inst, u);
                    let touch = if early { &mut next.early } else { &mut next.touch };
                    *touch = (*touch).min(f.read).min(f.write);
                });
            }
            if timing::reads_late(target, inst) {
                late_reads(inst, |u| out[k].overwrite = out[k].overwrite.min(first[usize::from(u)].write));
            }
            units::for_each_read(inst, |u, _| first[usize::from(u)].read = k as u32);
            units::for_each_write(inst, |u, _| first[usize::from(u)].write = k as u32);
        }
        out
    }

    /// For each scoreboard that is busy at the start of a block, the position of the first instruction that waits for it.
    fn waits_for(&self, block: usize, state: &Pending) -> [u32; BOARDS as usize] {
        let mut out = [FAR; BOARDS as usize];
        for (unit, first) in &self.blocks[block] {
            let (write, read) = (state.write[usize::from(*unit)], state.read[usize::from(*unit)]);
            for s in (0..BOARDS).filter(|s| (write | read) >> s & 1 != 0) {
                let at = if write >> s & 1 != 0 { first.read.min(first.write) } else { first.write };
                out[usize::from(s)] = out[usize::from(s)].min(at);
            }
        }
        out
    }

    /// When a block first touches (reads or writes) a unit, and first writes it.
    fn first(&self, block: usize, u: Unit) -> (u32, u32) {
        let list = &self.blocks[block];
        match list.binary_search_by_key(&u, |e| e.0) {
            Ok(at) => (list[at].1.read.min(list[at].1.write), list[at].1.write),
            Err(_) => (FAR, FAR),
        }
    }

    /// Whether some path from instruction `k` of block `b` overwrites one of its sources before anything waits
    /// for its results (`has_board`: they have a scoreboard). `next`: what follows it in the block.
    fn source_at_risk(&self, machine: &Machine, b: usize, k: usize, next: Next, has_board: bool) -> bool {
        let inst = &machine.blocks[b].insts[k].inst;
        let mut sources: SmallVec<[Unit; 8]> = SmallVec::new();
        let mut results: SmallVec<[Unit; 8]> = SmallVec::new();
        late_reads(inst, |u| sources.push(u));
        if has_board {
            units::for_each_write(inst, |u, _| results.push(u));
        }
        if sources.is_empty() {
            return false;
        }
        // `Some(true)`: at risk, `Some(false)`: covered, `None`: neither within the block. An instruction that does both
        // waits for the results first.
        let verdict = |touch: u32, overwrite: u32| match (touch, overwrite) {
            (FAR, FAR) => None,
            _ => Some(overwrite < touch),
        };
        if let Some(risk) = verdict(if has_board { next.touch } else { FAR }, next.overwrite) {
            return risk;
        }
        let mut seen: SmallVec<[u32; SEARCH_LIMIT]> = machine.blocks[b].succs.iter().copied().collect();
        let mut next = 0;
        while next < seen.len() {
            if next == SEARCH_LIMIT {
                return true;
            }
            let block = seen[next] as usize;
            next += 1;
            let touch = results.iter().map(|u| self.first(block, *u).0).min().unwrap_or(FAR);
            let overwrite = sources.iter().map(|u| self.first(block, *u).1).min().unwrap_or(FAR);
            match verdict(touch, overwrite) {
                Some(true) => return true,
                Some(false) => {}
                None => {
                    for s in &machine.blocks[block].succs {
                        if !seen.contains(s) {
                            seen.push(*s);
                        }
                    }
                }
            }
        }
        false
    }
}
