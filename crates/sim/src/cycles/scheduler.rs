//! The warp schedulers: which warp issues when.

use super::{Kernel, Machine};
use crate::sass::trace::{Issue, Trace, WarpTrace, Work};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Control, Inst, Opcode, Operand, RegFile, Unit};
use std::fmt;

/// Schedulers of an SM.
const SCHEDULERS: usize = 4;
/// Between a warp's arrival as the last one at a barrier and the first issue behind it.
const BARRIER: u64 = 10;

/// Why a warp does not issue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The stall count of the instruction before it.
    Fixed,
    /// A scoreboard that global or local memory sets.
    Memory,
    /// Another scoreboard.
    Scoreboard,
    /// A barrier of the block.
    Barrier,
    /// The unit, or the register file, is busy.
    Pipe,
    /// Another warp issues.
    NotSelected,
}

impl Reason {
    /// All.
    pub const ALL: [Reason; 6] = [
        Reason::Fixed,
        Reason::Memory,
        Reason::Scoreboard,
        Reason::Barrier,
        Reason::Pipe,
        Reason::NotSelected,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reason::Fixed => "stall count",
            Reason::Memory => "memory",
            Reason::Scoreboard => "scoreboard",
            Reason::Barrier => "barrier",
            Reason::Pipe => "busy unit",
            Reason::NotSelected => "not selected",
        })
    }
}

/// Stall cycles by reason, in the order of [`Reason::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stalls([u64; 6]);

impl Stalls {
    /// Of a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }
    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// The reason with the most cycles, if there are any.
    pub fn worst(&self) -> Option<Reason> {
        Reason::ALL.into_iter().filter(|r| self.of(*r) > 0).max_by_key(|r| self.of(*r))
    }
    /// Adds those of another instruction.
    pub fn add(&mut self, other: &Stalls) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
    }
}

/// What came out, by instruction.
pub(super) struct Outcome {
    pub(super) cycles: u64,
    /// Cycles that loads of global and local memory were under way, all of them together.
    pub(super) loading: u64,
    pub(super) issues: Vec<u64>,
    pub(super) stalls: Vec<Stalls>,
}

/// A scoreboard of a warp: when what it counts ends, and whether global memory is among it.
#[derive(Clone, Default)]
struct Scoreboard {
    ends: Vec<u64>,
    memory: bool,
}

impl Scoreboard {
    /// When at most `left` are under way.
    fn until(&self, left: usize) -> u64 {
        if left == 0 {
            return self.ends.iter().copied().max().unwrap_or(0);
        }
        let mut ends = self.ends.clone();
        ends.sort_unstable();
        ends.len().checked_sub(left + 1).map_or(0, |i| ends[i])
    }
    fn set(&mut self, now: u64, end: u64, memory: bool) {
        self.ends.retain(|e| *e > now);
        self.memory = memory || self.memory && !self.ends.is_empty();
        self.ends.push(end);
    }
}

struct Warp<'a> {
    trace: &'a WarpTrace,
    /// Its scheduler: warps are dealt in the order in which they come to the SM.
    scheduler: usize,
    /// Which repetition of its block it belongs to.
    copy: u32,
    next: usize,
    /// Of its last issue, and when the stall count of that is over.
    last: u64,
    ready: u64,
    scoreboards: [Scoreboard; 6],
    /// It has arrived at a barrier.
    arrived: Option<u64>,
    /// Registers that the reuse cache holds, by operand.
    cached: [Option<u8>; 3],
}

impl Warp<'_> {
    fn issue(&self) -> Option<&Issue> {
        self.trace.issues.get(self.next)
    }
}

/// An SM at work.
struct Sm<'a> {
    kernel: &'a Kernel,
    machine: &'a Machine,
    warps: Vec<Warp<'a>>,
    /// When each unit of each scheduler is free, and those of the whole SM.
    busy: FxHashMap<(usize, Unit), u64>,
    /// Lines that the first-level cache holds.
    lines: FxHashSet<u64>,
    outcome: Outcome,
}

/// When a warp can issue, and what it waits for until then.
struct Earliest {
    fixed: u64,
    /// And whether global memory is what it waits for.
    scoreboard: (u64, bool),
    pipe: u64,
}

/// Issues a trace in which every block comes `copies` times.
pub(super) fn run(kernel: &Kernel, machine: &Machine, trace: &Trace, copies: u32) -> Outcome {
    let count = kernel.insts.len();
    let outcome =
        Outcome { cycles: 0, loading: 0, issues: vec![0; count], stalls: vec![Stalls::default(); count] };
    let mut sm = Sm {
        kernel,
        machine,
        warps: Vec::new(),
        busy: FxHashMap::default(),
        lines: FxHashSet::default(),
        outcome,
    };
    let mut blocks: Vec<Vec<&WarpTrace>> = Vec::new();
    for w in &trace.warps {
        match blocks.last_mut() {
            Some(b) if b[0].block == w.block => b.push(w),
            _ => blocks.push(vec![w]),
        }
    }
    let mut waiting = (0..copies).flat_map(|copy| blocks.iter().map(move |b| (copy, b)));
    let mut now = 0;
    let mut warps = 0;
    loop {
        sm.warps.retain(|w| w.issue().is_some());
        // Blocks that have ended make room for others.
        let mut resident: Vec<(u32, [u32; 3])> = sm.warps.iter().map(|w| (w.copy, w.trace.block)).collect();
        resident.dedup();
        let room = (kernel.resident(machine) as usize).saturating_sub(resident.len());
        for (copy, block) in waiting.by_ref().take(room) {
            sm.warps.extend(block.iter().zip(warps..).map(|(trace, nth)| Warp {
                trace,
                scheduler: nth % SCHEDULERS,
                copy,
                next: 0,
                last: now,
                ready: now,
                scoreboards: Default::default(),
                arrived: None,
                cached: [None; 3],
            }));
            warps += block.len();
        }
        if sm.warps.is_empty() {
            sm.outcome.cycles = sm.outcome.cycles.max(now);
            return sm.outcome;
        }
        now = sm.cycle(now);
    }
}

impl Sm<'_> {
    /// Lets every scheduler issue once, and says when the next issue can be.
    fn cycle(&mut self, now: u64) -> u64 {
        self.barriers(now);
        let mut soonest = u64::MAX;
        let mut ended = false;
        for scheduler in 0..SCHEDULERS {
            // The warp that waits longest, and among those the first.
            let mine = (0..self.warps.len()).filter(|w| self.warps[*w].scheduler == scheduler);
            let mut chosen: Option<(u64, usize)> = None;
            for w in mine {
                if self.warps[w].issue().is_none() || self.warps[w].arrived.is_some() {
                    continue;
                }
                let at = self.earliest(w, scheduler);
                let at = at.fixed.max(at.scoreboard.0).max(at.pipe);
                if at > now {
                    soonest = soonest.min(at);
                } else if chosen.is_none_or(|c| at < c.0) {
                    if chosen.is_some() {
                        soonest = now + 1;
                    }
                    chosen = Some((at, w));
                } else {
                    soonest = now + 1;
                }
            }
            if let Some((_, w)) = chosen {
                self.issue(w, scheduler, now);
                let warp = &self.warps[w];
                ended |= warp.issue().is_none();
                soonest = soonest.min(warp.ready.max(now + 1));
            }
        }
        if soonest == u64::MAX || ended { now + 1 } else { soonest.max(now + 1) }
    }

    /// Lets the warps of each block go on where all of them have arrived.
    fn barriers(&mut self, now: u64) {
        let mut blocks: FxHashMap<(u32, [u32; 3]), (bool, u64)> = FxHashMap::default();
        for w in self.warps.iter().filter(|w| w.issue().is_some()) {
            let e = blocks.entry((w.copy, w.trace.block)).or_insert((true, 0));
            match w.arrived {
                Some(at) => e.1 = e.1.max(at),
                None => e.0 = false,
            }
        }
        // Barriers that only some warps go to: when nobody can go on without, they all have come.
        let stuck = self.warps.iter().all(|w| w.arrived.is_some() || w.issue().is_none());
        for w in &mut self.warps {
            if let Some((all, last)) = blocks.get(&(w.copy, w.trace.block))
                && (*all || stuck)
                && let Some(at) = w.arrived
                && *last <= now
            {
                w.arrived = None;
                let until = last + BARRIER;
                let waited = until.saturating_sub(at.max(w.ready));
                w.ready = w.ready.max(until);
                w.last = w.ready;
                if let Some(i) = w.trace.issues.get(w.next - 1) {
                    self.outcome.stalls[i.pc as usize / 16].0[Reason::Barrier as usize] += waited;
                }
            }
        }
    }

    fn earliest(&self, w: usize, scheduler: usize) -> Earliest {
        let warp = &self.warps[w];
        let at = warp.issue().map_or(0, |i| i.pc as usize / 16);
        let ctrl = &self.kernel.controls[at];
        let mut scoreboard = (0, false);
        for s in (0..6).filter(|s| ctrl.wait >> s & 1 != 0) {
            let board = &warp.scoreboards[s];
            let until = board.until(0);
            if until > scoreboard.0 {
                scoreboard = (until, board.memory);
            }
        }
        let inst = self.kernel.insts[at].as_ref();
        if let Some((s, left)) = inst.and_then(depbar) {
            let board = &warp.scoreboards[s];
            scoreboard = scoreboard.max((board.until(left), board.memory));
        }
        let pipe = inst.map_or(0, |i| {
            let (_, whole) = self.machine.occupies(i);
            let owner = if whole { SCHEDULERS } else { scheduler };
            self.busy.get(&(owner, i.op.unit())).copied().unwrap_or(0)
        });
        Earliest { fixed: warp.ready, scoreboard, pipe }
    }

    fn issue(&mut self, w: usize, scheduler: usize, now: u64) {
        let e = self.earliest(w, scheduler);
        let (kernel, machine) = (self.kernel, self.machine);
        let warp = &mut self.warps[w];
        let Some(issue) = warp.trace.issues.get(warp.next) else { return };
        let at = issue.pc as usize / 16;
        let ctrl: &Control = &kernel.controls[at];
        // Each reason has the time after the ones before it are over.
        let start = warp.last + 1;
        let stalls = &mut self.outcome.stalls[at].0;
        let mut from = start.min(now);
        let board = if e.scoreboard.1 { Reason::Memory } else { Reason::Scoreboard };
        for (reason, until) in [(Reason::Fixed, e.fixed), (board, e.scoreboard.0), (Reason::Pipe, e.pipe)] {
            let until = until.clamp(from, now);
            stalls[reason as usize] += until - from;
            from = until;
        }
        stalls[Reason::NotSelected as usize] += now - from;
        self.outcome.issues[at] += 1;
        let stall = if ctrl.stall == 0 { 15 } else { u64::from(ctrl.stall) };
        let mut end = now + stall;
        if let Some(inst) = kernel.insts[at].as_ref() {
            let (interval, whole) = machine.occupies(inst);
            let extra = bank_conflict(inst, ctrl, &mut warp.cached);
            let (work, latency, memory) = traffic(machine, inst, &issue.work, &mut self.lines);
            let owner = if whole { SCHEDULERS } else { scheduler };
            self.busy.insert((owner, inst.op.unit()), now + (interval + extra).max(work));
            let result = now + latency + work;
            if let Some(s) = ctrl.write_sb {
                warp.scoreboards[usize::from(s % 6)].set(now, result, memory);
                self.outcome.loading += if memory { latency + work } else { 0 };
                end = end.max(result);
            }
            if let Some(s) = ctrl.read_sb {
                // Sources are read when the instruction leaves its queue.
                warp.scoreboards[usize::from(s % 6)].set(now, now + 6 + work, false);
            }
            if inst.op == Opcode::BAR && !inst.mods.iter().any(|m| m.name() == "ARV") {
                warp.arrived = Some(now + stall);
            }
        }
        warp.ready = now + stall;
        warp.last = now;
        warp.next += 1;
        self.outcome.cycles = self.outcome.cycles.max(end);
    }
}

/// The scoreboard of a DEPBAR, and how many may be left.
fn depbar(inst: &Inst) -> Option<(usize, usize)> {
    if inst.op != Opcode::DEPBAR {
        return None;
    }
    match inst.operands.first()? {
        Operand::Scoreboard(s) => {
            let left =
                inst.operands.iter().find_map(|o| if let Operand::Imm(n) = o { Some(*n) } else { None });
            Some((usize::from(*s) % 6, left.unwrap_or(0) as usize))
        }
        _ => None,
    }
}

/// Cycles that a unit spends on the traffic, the latency, and whether global memory is reached.
fn traffic(m: &Machine, inst: &Inst, work: &Work, cached: &mut FxHashSet<u64>) -> (u64, u64, bool) {
    match work {
        Work::None => (0, m.latency(inst.op), false),
        Work::Banks(n) => (u64::from(*n), m.shared_latency, false),
        Work::Lines { lines, sectors } => {
            let atomic = inst.op.name().starts_with("ATOM") || inst.op.name().starts_with("RED");
            let fresh = lines.iter().filter(|l| cached.insert(**l)).count();
            let latency = match () {
                () if fresh > 0 => m.dram,
                () if atomic => m.l2,
                () => m.l1,
            };
            // Four sectors per cycle.
            (u64::from(*sectors).div_ceil(4), latency, true)
        }
    }
}

/// A cycle more if three different registers come from one of the two banks and none out of the reuse cache (Jia et
/// al., arXiv 1804.06826).
fn bank_conflict(inst: &Inst, ctrl: &Control, cached: &mut [Option<u8>; 3]) -> u64 {
    let mut registers: Vec<u8> = Vec::new();
    let before = *cached;
    *cached = [None; 3];
    let mut place = 0;
    for (o, slot) in inst.operands.iter().zip(inst.op.slots()) {
        let Operand::Reg(r) = o else { continue };
        if slot.role == sass::Role::Def || r.reg.file != RegFile::R || place > 2 {
            continue;
        }
        if !r.reg.is_zero() && before[place] != Some(r.reg.index) && !registers.contains(&r.reg.index) {
            registers.push(r.reg.index);
        }
        if ctrl.reuse >> place & 1 != 0 {
            cached[place] = Some(r.reg.index);
        }
        place += 1;
    }
    let odd = registers.iter().filter(|r| *r & 1 != 0).count();
    u64::from(odd > 2 || registers.len() - odd > 2)
}
