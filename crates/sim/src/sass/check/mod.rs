//! Checks of what a program does that hardware does not report: accesses to memory that nobody wrote, races, misused
//! barriers; and what is wrong with an access that hardware reports, in words. What they can tell is described in
//! `docs/sanitizer.md`.

mod clock;
mod lanes;
mod race;
mod report;
mod rows;

pub use report::{Check, Checks, Finding, NoCheck, Place, Report};

use super::Cause;
use super::mem::Space;
use super::state::{Block, Env, LOCAL_WINDOW, SHARED_WINDOW, Warp};
use crate::memory::Memory;
use crate::shadow::Shadow;
use race::{Key, Races, Touch};
use rustc_hash::FxHashMap;
use sass::Inst;
use std::rc::Rc;

/// How an instruction's accesses are ordered with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Order {
    /// They are atomic or as good as that: volatile, relaxed, of a barrier in memory.
    pub(crate) strong: bool,
    /// They are so for other blocks, too, and not for the block alone.
    pub(crate) wide: bool,
    /// They are of a barrier in memory, which tells all that the thread did before.
    pub(crate) barrier: bool,
    /// They are an arrival there, which tells and hears nothing: who wants to know has to wait.
    pub(crate) arrival: bool,
    /// What the warp did before comes before what it does after, for others that it tells: of its block, or everywhere.
    pub(crate) fence: Option<Reach>,
    /// What others told that the warp has read comes before what it does after.
    pub(crate) acquires: bool,
    /// What it is for asynchronous copies.
    pub(crate) copies: Copies,
}

/// Who copies for a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Agent {
    /// A few words for each lane (`cp.async`).
    Words,
    /// More of it for the warp (`cp.async.bulk`, tensors, `st.async`).
    Bulk,
}

impl Agent {
    const COUNT: usize = 2;
}

/// What an instruction is for asynchronous copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Copies {
    /// Nothing.
    #[default]
    Nothing,
    /// It starts one.
    Start(Agent),
    /// What was started is a group.
    Group(Agent),
    /// It waits until so many groups at most are going on, of either kind: both have the same instruction.
    Wait(u8),
    /// It tells a barrier in memory of those that were started before.
    Tell(Agent),
}

impl Copies {
    fn of(inst: &Inst) -> Copies {
        match inst.op.name() {
            "LDGSTS" => Copies::Start(Agent::Words),
            "UBLKCP" | "UBLKRED" | "UTMALDG" | "UTMASTG" | "UTMAREDG" | "STAS" | "REDAS" => {
                Copies::Start(Agent::Bulk)
            }
            "LDGDEPBAR" => Copies::Group(Agent::Words),
            "UTMACMDFLUSH" => Copies::Group(Agent::Bulk),
            "ARRIVES" => Copies::Tell(Agent::Words),
            "DEPBAR" => {
                let number = |o: &sass::Operand| {
                    if let sass::Operand::Imm(n) = o { u8::try_from(*n).ok() } else { None }
                };
                inst.operands.iter().rev().find_map(number).map_or(Copies::Nothing, Copies::Wait)
            }
            _ => Copies::Nothing,
        }
    }
}

/// For whom a fence counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The block.
    Block,
    /// All that is there.
    All,
}

/// Instructions all of whose accesses are atomic.
const ATOMIC: &[&str] = &[
    "ATOM",
    "ATOMG",
    "ATOMS",
    "ATOMS.CAST",
    "RED",
    "REDG",
    "REDAS",
    "UREDGR",
    "UBLKRED",
    "UTMAREDG",
    "ARRIVES",
];

impl Order {
    /// That of an instruction.
    pub(crate) fn of(inst: &Inst) -> Order {
        let name = inst.op.name();
        let word = name.split('.').next().unwrap_or(name);
        let has = |names: &[&str]| inst.mods.iter().any(|m| names.contains(&m.name()));
        // Surfaces are accessed weakly, though their instructions always say STRONG.
        let surface = matches!(word, "SULD" | "SUST");
        let atomic = ATOMIC.contains(&name) || matches!(word, "SYNCS" | "SURED");
        let strong = atomic || has(&["STRONG", "MMIO"]) && !surface;
        // Scopes of a block are SM, or CTA up to sm_75 and of fences.
        let block = has(&["SM", "CTA"]);
        let fence = (word == "MEMBAR").then_some(if block { Reach::Block } else { Reach::All });
        let acquires = fence == Some(Reach::All) || word == "CCTL" && has(&["IVALL"]);
        let barrier = matches!(word, "SYNCS" | "ARRIVES");
        Order { strong, wide: !block, barrier, arrival: false, fence, acquires, copies: Copies::of(inst) }
    }
}

/// Memory that an access reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Global(u64),
    Shared { block: u32, at: u64 },
    Local(u64),
}

/// What a checked launch needs to know at every instruction.
pub(crate) struct Checker {
    pub(crate) checks: Checks,
    /// What was found, as places in the code and threads.
    found: Vec<Found>,
    /// Where in `found` the same is.
    index: FxHashMap<(Check, u8, u32, u32), usize>,
    now: Now,
    blocks: FxHashMap<u32, BlockShadow>,
    races: Races,
    /// Instructions that the PTX says are strong, where nothing in the code tells: see [`Report::strong`].
    strong: Vec<bool>,
    /// Instructions at which lanes meet, if the code shows all of them: see [`Report::meetings`].
    meetings: Option<Vec<bool>>,
    threads: [u32; 3],
    grid: [u32; 3],
}

/// The instruction that is executed.
#[derive(Clone, Copy, Default)]
struct Now {
    pc: u32,
    order: Order,
    block: u32,
    warp: u32,
    /// How many instructions the warp has executed.
    time: u32,
    /// The block's rank in its cluster.
    rank: u32,
}

/// What of a block's own memory was written.
struct BlockShadow {
    /// The blocks of its cluster.
    cluster: Rc<[u32]>,
    shared: Shadow,
    /// Lane after lane, warp after warp.
    local: Shadow,
}

/// A thread at an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Who {
    pub(crate) pc: u32,
    pub(crate) block: u32,
    /// In the block.
    pub(crate) thread: u32,
}

/// A finding before it is told.
struct Found {
    check: Check,
    what: String,
    who: Who,
    other: Option<Who>,
    times: u64,
}

/// Different findings that are kept at most.
const MOST: usize = 100;

/// What happens to a barrier, and what kind a finding is: numbers that tell findings at one instruction apart.
mod kind {
    pub(super) const READ: u8 = 0;
    pub(super) const WRITE: u8 = 1;
    pub(super) const LANES: u8 = 2;
    pub(super) const EXITED: u8 = 3;
    pub(super) const LEFT: u8 = 4;
    pub(super) const MASK: u8 = 5;
    pub(super) const FAULT: u8 = 6;
}

impl Checker {
    /// Of a launch of so many threads in so many blocks.
    pub(crate) fn new(
        checks: Checks,
        threads: [u32; 3],
        grid: [u32; 3],
        strong: Vec<bool>,
        meetings: Option<Vec<bool>>,
    ) -> Checker {
        let warps = threads.iter().product::<u32>().div_ceil(32);
        Checker {
            checks,
            found: Vec::new(),
            index: FxHashMap::default(),
            now: Now::default(),
            blocks: FxHashMap::default(),
            races: Races::new(warps, meetings.is_some()),
            strong,
            meetings,
            threads,
            grid,
        }
    }

    /// A block of a cluster starts.
    pub(crate) fn start(&mut self, index: [u32; 3], cluster: &[[u32; 3]], env: &Env) {
        let threads = self.threads.iter().product::<u32>().next_multiple_of(32);
        let local = u64::from(threads) * u64::from(env.local);
        let shadow = BlockShadow {
            cluster: cluster.iter().map(|b| self.number(*b)).collect(),
            shared: Shadow::new(env.shared.into()),
            local: Shadow::new(local),
        };
        let number = self.number(index);
        self.blocks.insert(number, shadow);
        self.races.start(number);
    }

    /// A block has ended. Barriers at which some have arrived and nobody has waited are of no use.
    pub(crate) fn end(&mut self, index: [u32; 3], busy: impl Iterator<Item = (usize, u32)>) {
        let block = self.number(index);
        self.blocks.remove(&block);
        self.races.end(block);
        if self.checks.sync {
            for (id, threads) in busy {
                let who = Who { pc: self.races.arrived_at(block, id), block, thread: 0 };
                self.find((Check::Sync, kind::LEFT), who, None, || {
                    format!("{threads} threads have arrived at barrier {id}, and nobody ever waits there")
                });
            }
        }
        self.races.forget(block);
    }

    /// The number of a block in the grid.
    pub(crate) fn number(&self, [x, y, z]: [u32; 3]) -> u32 {
        (z * self.grid[1] + y) * self.grid[0] + x
    }

    /// An instruction is about to be executed.
    pub(crate) fn begin(&mut self, pc: u32, mut order: Order, block: &Block, warp: &Warp, lanes: u32) {
        // The code says of those that it shows for whom they count.
        if !order.strong && self.strong.get(pc as usize / 16).copied().unwrap_or(false) {
            (order.strong, order.wide) = (true, true);
        }
        let time = warp.issued as u32;
        let (number, live, warp) = (self.number(block.index), warp.live, warp.number);
        self.now = Now { pc, order, block: number, warp, time, rank: block.rank as u32 };
        if self.meetings.as_ref().is_some_and(|m| m.get(pc as usize / 16).copied().unwrap_or(false)) {
            self.races.meet_lanes(number, warp, lanes, live);
        }
        if order.acquires {
            self.races.acquire(self.now.block, warp);
        }
        match order.copies {
            Copies::Group(agent) => self.races.commit(number, warp, agent),
            Copies::Wait(left) => self.races.wait(number, warp, left.into()),
            Copies::Nothing | Copies::Start(_) | Copies::Tell(_) => {}
        }
        if let Some(reach) = order.fence {
            self.races.fence(self.now.block, warp, reach);
        }
    }

    /// What follows in this instruction is an arrival at a barrier in memory; how it was before.
    pub(crate) fn of_arrival(&mut self) -> Order {
        let copies = match self.now.order.copies {
            Copies::Start(agent) | Copies::Tell(agent) => Copies::Tell(agent),
            _ => Copies::Nothing,
        };
        let now = self.now.order;
        let barrier = Order { strong: true, wide: true, barrier: true, arrival: true, copies, ..now };
        std::mem::replace(&mut self.now.order, barrier)
    }

    /// What follows in this instruction is as weak as a plain access; how it was before.
    pub(crate) fn of_data(&mut self) -> Order {
        let data = Order { strong: false, wide: false, barrier: false, ..self.now.order };
        std::mem::replace(&mut self.now.order, data)
    }

    /// What follows is as it was before.
    pub(crate) fn set_order(&mut self, order: Order) {
        self.now.order = order;
    }

    fn who(&self, lane: usize) -> Who {
        Who { pc: self.now.pc, block: self.now.block, thread: 32 * self.now.warp + lane as u32 }
    }

    fn target(&self, space: Space, a: u64) -> Option<Target> {
        let own = self.now.rank;
        let shared = |rank: u32, at: u64| {
            let cluster = &self.blocks.get(&self.now.block)?.cluster;
            Some(Target::Shared { block: *cluster.get(rank as usize)?, at })
        };
        match (space, (a >> 32) as u32) {
            (Space::Shared, _) => match (a >> 24) as u32 {
                0 => shared(own, a),
                rank => shared(rank, a & 0xff_ffff),
            },
            (Space::Generic, SHARED_WINDOW) => shared((a >> 24) as u32 & 0xff, a & 0xff_ffff),
            (Space::Local, _) => Some(Target::Local(a)),
            (Space::Generic, LOCAL_WINDOW) => Some(Target::Local(a & 0xffff_ffff)),
            (Space::Global | Space::Generic, _) => Some(Target::Global(a)),
        }
    }

    /// An access of a lane that memory is there for: to read, or to write what may be what is there (`same`).
    pub(crate) fn access(
        &mut self,
        memory: &mut Memory,
        (space, local): (Space, u32),
        lane: usize,
        (a, len): (u64, u32),
        (write, same): (bool, bool),
    ) {
        let Some(target) = self.target(space, a) else { return };
        if self.checks.init {
            self.initialized(memory, target, local, lane, len, write);
        }
        let key = match target {
            Target::Global(a) => Key { block: u32::MAX, at: a },
            Target::Shared { block, at } => Key { block, at },
            Target::Local(_) => return,
        };
        if self.checks.race {
            let touch = Touch {
                who: self.who(lane),
                warp: self.now.warp,
                time: self.now.time,
                strong: self.now.order.strong,
                wide: self.now.order.wide,
                barrier: self.now.order.barrier,
                arrival: self.now.order.arrival,
                agent: match self.now.order.copies {
                    Copies::Start(agent) | Copies::Tell(agent) => Some(agent),
                    _ => None,
                },
                write,
                same,
            };
            if let Some(other) = self.races.access(key, len, touch) {
                let verb = |w: bool| if w { "writes" } else { "reads" };
                let name = name(target, memory);
                let number = if write { kind::WRITE } else { kind::READ };
                let who = self.who(lane);
                self.find((Check::Race, number), who, Some(other.who), || {
                    let by = if other.copied {
                        "an asynchronous copy of the other thread"
                    } else {
                        "the other thread"
                    };
                    format!("{} {len} bytes at {name}, which {by} {}", verb(write), verb(other.wrote))
                });
            }
        }
    }

    fn initialized(
        &mut self,
        memory: &mut Memory,
        target: Target,
        local: u32,
        lane: usize,
        len: u32,
        write: bool,
    ) {
        let len = u64::from(len);
        let thread = u64::from(32 * self.now.warp) + lane as u64;
        let (shadow, at) = match target {
            Target::Global(a) => match memory.shadow(a) {
                Some(found) => found,
                None => return,
            },
            Target::Shared { block, at } => match self.blocks.get_mut(&block) {
                Some(b) => (&mut b.shared, at),
                None => return,
            },
            Target::Local(a) => match self.blocks.get_mut(&self.now.block) {
                Some(b) => (&mut b.local, thread * u64::from(local) + a),
                None => return,
            },
        };
        if write {
            shadow.write(at, len);
            return;
        }
        let missing = shadow.missing(at, len);
        if missing == 0 {
            return;
        }
        // Once is enough.
        shadow.write(at, len);
        let who = self.who(lane);
        let name = name(target, memory);
        self.find((Check::Init, kind::READ), who, None, || {
            format!("reads {len} bytes at {name}, {missing} of which nobody has written")
        });
    }

    /// Two lanes write different values to one place by the same instruction.
    pub(crate) fn lanes_collide(&mut self, memory: &Memory, space: Space, a: u64, lanes: [usize; 2]) {
        let target = self.target(space, a).filter(|t| !matches!(t, Target::Local(_)));
        if let Some(t) = target.filter(|_| self.checks.race && !self.now.order.strong) {
            let name = name(t, memory);
            let (who, other) = (self.who(lanes[0]), self.who(lanes[1]));
            self.find((Check::Race, kind::LANES), who, Some(other), || {
                format!(
                    "writes to {name}, and another thread of the warp writes something else there at once"
                )
            });
        }
    }

    /// A warp arrives at a barrier of its block without waiting.
    pub(crate) fn arrive(&mut self, id: usize) {
        self.races.arrive(self.now.block, self.now.warp, id, self.now.pc);
    }

    /// Those warps of a block that wait at a barrier go on.
    /// So many threads; whether the barrier has a count.
    pub(crate) fn meet(
        &mut self,
        index: [u32; 3],
        id: usize,
        warps: &[Warp],
        (waiting, counted): (u32, bool),
    ) {
        let block = self.number(index);
        let here = |w: &&Warp| w.waiting(|why| why == super::state::Wait::Block(id as u8)) != 0;
        let numbers: Vec<u32> = warps.iter().filter(here).map(|w| w.number).collect();
        self.races.meet(block, Some(id), &numbers);
        let threads = self.threads.iter().product::<u32>();
        if self.checks.sync && !counted && waiting < threads {
            let Some(w) = warps.iter().find(here) else { return };
            let lane = w.live.trailing_zeros() & 31;
            let pc = w.resume[lane as usize].wrapping_sub(16);
            let who = Who { pc, block, thread: w.first + lane };
            let ended = threads - waiting;
            self.find((Check::Sync, kind::EXITED), who, None, || {
                format!("waits at barrier {id} for all {threads} threads of the block, {ended} of which have ended")
            });
        }
    }

    /// All warps of the blocks of a cluster meet.
    pub(crate) fn meet_all(&mut self, blocks: &[[u32; 3]]) {
        let numbers: Vec<u32> = blocks.iter().map(|b| self.number(*b)).collect();
        self.races.meet_all(&numbers);
    }

    /// Lanes wait for others of their warp: each must be one of those that it names.
    pub(crate) fn warpsync(&mut self, lanes: u32, named: &[u32; 32]) {
        if self.meetings.is_some() {
            // Those that have not come yet meet once more when they come.
            for lane in super::operand::lanes(lanes) {
                self.races.meet_lanes(self.now.block, self.now.warp, named[lane], u32::MAX);
            }
        }
        let wrong = super::operand::lanes(lanes).find(|l| named[*l] >> l & 1 == 0);
        if let Some(lane) = wrong.filter(|_| self.checks.sync) {
            let (who, mask) = (self.who(lane), named[lane]);
            self.find((Check::Sync, kind::MASK), who, None, || {
                format!("waits for the lanes {mask:#010x} of its warp, and is not one of them")
            });
        }
    }

    /// What ends the launch.
    pub(crate) fn fault(&mut self, cause: Cause, lane: Option<usize>, what: &str) {
        let check = match cause {
            Cause::Address | Cause::Misaligned | Cause::Surface if self.checks.memory => Check::Memory,
            Cause::Barrier if self.checks.sync => Check::Sync,
            _ => return,
        };
        let who = self.who(lane.unwrap_or(0));
        self.find((check, kind::FAULT), who, None, || what.to_string());
    }

    /// All threads of a block wait.
    pub(crate) fn stuck(&mut self, index: [u32; 3], warps: &[Warp], what: &str) {
        let Some(w) = warps.iter().find(|w| w.live != 0).filter(|_| self.checks.sync) else { return };
        let lane = w.live.trailing_zeros() & 31;
        let pc = w.resume[lane as usize].wrapping_sub(16);
        let who = Who { pc, block: self.number(index), thread: w.first + lane };
        self.find((Check::Sync, kind::FAULT), who, None, || format!("waits forever: {what}"));
    }

    fn find(
        &mut self,
        (check, kind): (Check, u8),
        who: Who,
        other: Option<Who>,
        what: impl FnOnce() -> String,
    ) {
        let pcs = (who.pc, other.map_or(u32::MAX, |o| o.pc));
        match self.index.get(&(check, kind, pcs.0, pcs.1)) {
            Some(i) => self.found[*i].times += 1,
            None if self.found.len() == MOST => {}
            None => {
                self.index.insert((check, kind, pcs.0, pcs.1), self.found.len());
                self.found.push(Found { check, what: what(), who, other, times: 1 });
            }
        }
    }

    /// Tells what was found.
    pub(crate) fn tell(self, kernel: &str, text: impl Fn(u32) -> String, report: &mut Report) {
        let [x, y, _] = self.threads;
        let [gx, gy, _] = self.grid;
        let lines = report.lines(kernel);
        let line = |w: &Who| lines.as_ref().and_then(|l| l.of(w.pc));
        let place = |w: &Who| Place {
            address: w.pc,
            text: text(w.pc),
            line: line(w),
            source: line(w).and_then(|l| report.source(l)),
            block: [w.block % gx, w.block / gx % gy, w.block / gx / gy],
            thread: [w.thread % x, w.thread / x % y, w.thread / x / y],
        };
        let told = self.found.iter().map(|f| Finding {
            kernel: kernel.to_string(),
            check: f.check,
            what: f.what.clone(),
            place: place(&f.who),
            other: f.other.as_ref().map(place),
            times: f.times,
        });
        let told: Vec<Finding> = told.collect();
        report.findings.extend(told);
    }
}

/// What is at an address, in words.
fn name(target: Target, memory: &Memory) -> String {
    match target {
        Target::Global(a) => memory.describe(a),
        Target::Shared { at, .. } => format!("shared address {at:#x}"),
        Target::Local(a) => format!("local address {a:#x}"),
    }
}
