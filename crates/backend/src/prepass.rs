//! Scheduling before register allocation (Goodman and Hsu, "Code scheduling and register allocation in large basic
//! blocks", 1988; with the steps of occupancy as limits, as Mesa's NAK has it).
//!
//! Each block is put in order from its end: while there is room, the instruction on the longest way from the block's
//! start goes next, as late as its latency allows; where too many registers are live, the one that needs fewest more.
//! The limit is what leaves room for all threads that a multiprocessor can hold. If some block needs more in any order,
//! all get as much as the next step allows. A stretch whose new order needs more than the limit is put in order from its end with a
//! lower limit, and from its start, near the old order; one that comes close to the limit, with higher ones. What misses fewest registers,
//! then takes least time, is taken ([`orders`]).
//!
//! A kernel that needs more registers than leave room for all threads is planned twice: as it is, and with constants made again where
//! they are used. Then loops may get more registers, if the warps that are left do as much in all ([`Plan`]).

mod graph;
mod known;
mod orders;

use crate::liveness::Ranges;
use crate::phases;
use crate::pool::Grants;
use crate::regalloc::room::Room;
use crate::{addends, early, remat, uniform};
use fixedbitset::FixedBitSet;
use graph::{Alive, Code, Stretch};
use orders::Ordered;
use ori::cfg::Cfg;
use ori::verify::lanes::{Kind, Watch};
use ori::{Block, Function, Inst, InstData, Manager, Op, Operand, Phase};
use rustc_hash::FxHashMap;
use sass::target::{HARDWARE_REGISTERS, LEAST_LIMIT};
use sass::{Opcode, RegFile, latency};

/// Registers left free for alignment and for copies.
pub const RESERVE: i32 = 3;
/// So close to the limit, registers count more than time.
const HEADROOM: i32 = 3;
/// Between steps of occupancy.
const STEP: i32 = 8;
/// Cycles from which on a result is begun early for readers behind its region.
const LONG: u32 = 100;
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

/// The most general registers that values may take together where `stated` are to be stated, `reserve` of them left free.
fn usable(stated: i32, reserve: i32) -> i32 {
    // R1 is the stack pointer's.
    stated - i32::from(HARDWARE_REGISTERS) - 1 - reserve
}

/// How many warps fit with so many registers stated, beyond what the kernel can use anyway.
pub fn warps_that_fit(func: &Function, stated: u32) -> u32 {
    warps(stated as i32, func.aim_regs.min(func.max_regs).into()) as u32
}

/// Whether what an instruction makes is not there for hundreds of cycles.
pub fn takes_long(func: &Function, op: sass::Opcode) -> bool {
    latency::is_variable_latency(op, func.target)
        && crate::schedule::expected_latency(op, &func.tuning) >= LONG
}

/// The most registers to be stated with which more warps fit than with so many, if there are any.
pub fn fewer_registers(func: &Function, stated: u32) -> Option<u8> {
    let fit = warps_that_fit(func, stated);
    let fewer = (u32::from(LEAST_LIMIT)..stated).rev().find(|s| warps_that_fit(func, *s) > fit)?;
    u8::try_from(fewer).ok()
}

/// What a kernel was planned for.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Registers to be stated.
    pub stated: u32,
    /// Cycles of all blocks, by how often they are executed.
    pub time: f64,
}

/// A kernel as it was planned, of which other orders can be had.
pub struct Prepared {
    func: Function,
    code: Code,
}

impl Prepared {
    /// The kernel in orders for which so many registers reach, `reserve` of them left free, if there are such orders.
    pub fn within(&mut self, stated: u8, reserve: i32) -> Option<(Function, Planned)> {
        let stated = i32::from(stated);
        // What is live where nothing moves needs its registers in any order; one is for copies.
        let least = self.code.blocks.iter().map(Stretch::least).max().unwrap_or(0);
        if least >= usable(stated, 0) {
            return None;
        }
        self.code.reserve = reserve;
        // How many are missing does not matter.
        let plan = Plan::fitting(&self.code, stated, |_| i32::MAX).ok()?;
        let planned = Planned { stated: stated as u32, time: plan.time };
        let mut func = self.func.clone();
        plan.apply(&self.code, &mut func);
        Some((func, planned))
    }
}

/// How a kernel is planned.
#[derive(Clone, Copy)]
pub struct Attempt {
    /// Registers that are left free beside the usual ones ([`RESERVE`]).
    pub more: i32,
    /// Whether counters may be in uniform registers.
    pub counters: bool,
    /// Whether what the warp shares then passes barriers where all of it is together.
    pub together: bool,
}

/// What became of a kernel.
#[derive(Default)]
pub struct Outcome {
    /// What is planned, and what of, if registers are to be stated by that.
    pub planned: Option<(Planned, Option<Prepared>)>,
    /// Whether counters are in uniform registers.
    pub counts: bool,
    /// A phase that took from what lanes do together some that it counts on, and what.
    pub wrong: Option<(Phase, Vec<String>)>,
}

/// Runs a phase; what it breaks of what lanes do together is noted.
fn watched<R>(
    (phase, func): (Phase, &mut Function),
    manager: &mut Manager<'_>,
    wrong: &mut Option<(Phase, Vec<String>)>,
    pass: impl FnOnce(&mut Function) -> R,
) -> R {
    let mut lanes = Watch::new(func, manager.verifies());
    let result = manager.run(phase, func, pass);
    if let Err(errors) = lanes.step(func, Kind::Usual) {
        *wrong = Some((phase, errors));
    }
    result
}

/// Schedules a kernel. Where it needs more registers than leave room for all threads, constants are made again where they
/// are used, if the manager admits that and it is worth it.
pub fn run(func: &mut Function, manager: &mut Manager<'_>, attempt: Attempt) -> Outcome {
    let Attempt { more, counters, together } = attempt;
    // A function of a kernel's saves what it uses; few registers are better there.
    if !func.entry {
        return Outcome::default();
    }
    let reserve = RESERVE + more;
    let cfg = Cfg::new(func);
    if func.target.sm >= 80 {
        addends::run(func, &cfg);
        uniform::bring_less(func, &cfg);
        ori::dead::remove(func);
    }
    let grants = Grants::new(func, &cfg);
    let grants = grants.as_ref();
    let aim = i32::from(func.aim_regs.min(func.max_regs));
    let here = Around { cfg: &cfg, grants, whole: None, passes: together };
    let (mut code, mut alive) = Code::new(func, here, reserve);
    let mut plan = Plan::new(&code, func, aim);
    let short = |p: &Plan| grants.is_none() && p.stated > aim || p.missing() > 0;
    // Takes what another function, that does the same, is planned like, if that is better; then what was before.
    let choose = |func: &mut Function, other: Function, at: Around, code: &mut Code, plan: &mut Plan| {
        let (with, _) = Code::new(&other, at, reserve);
        let mut planned = Plan::new(&with, &other, aim);
        planned.settle_beside(&with, plan, code);
        planned.is_better(plan, aim).then(|| {
            (*code, *plan) = (with, planned);
            std::mem::replace(func, other)
        })
    };
    let mut wrong = None;
    if short(&plan) && manager.admits(phases::EARLY) {
        let mut other = func.clone();
        let mut moved = false;
        watched((phases::EARLY, &mut other), manager, &mut wrong, |f| {
            moved = early::run(f, &cfg);
            moved
        });
        if moved {
            let (with, alive_there) = Code::new(&other, here, reserve);
            let mut planned = Plan::new(&with, &other, aim);
            planned.settle_beside(&with, &mut plan, &code);
            if planned.is_better(&plan, aim) {
                (*func, code, plan, alive) = (other, with, planned, alive_there);
            }
        }
    }
    // `alive`: of the function as it is.
    let again = |f: &mut Function,
                 at: Around,
                 alive: Alive,
                 manager: &mut Manager<'_>,
                 wrong: &mut Option<(Phase, Vec<String>)>| {
        let Around { cfg, grants, .. } = at;
        let ranges = Ranges::of(f, cfg, alive.lanes, alive.live);
        let most = if grants.is_some() { crate::pool::most(f).into() } else { aim };
        let limit = usable(most, reserve).max(1) as u32;
        let room = Room { limit, kept: 1, grants, whole: None };
        watched((phases::REMAT, f), manager, wrong, |f| remat::run(f, cfg, room, &ranges))
    };
    let mut original = None;
    let remakes = manager.admits(phases::REMAT);
    if short(&plan) && remakes {
        let mut other = func.clone();
        if again(&mut other, here, alive, manager, &mut wrong) {
            original = choose(func, other, here, &mut code, &mut plan);
        }
    }
    plan.stage(&code, func, aim);
    let mut counts = false;
    let wanted = counters && manager.admits(phases::COUNTERS);
    if wanted && (short(&plan) || uniform::brings_in_loops(func, &cfg)) {
        let mut without = original.unwrap_or_else(|| func.clone());
        let parted = uniform::part_at_barriers(&mut without, &cfg).then(|| {
            let cfg = Cfg::new(&without);
            let grants = Grants::new(&without, &cfg);
            (cfg, grants)
        });
        let at =
            parted.as_ref().map_or(here, |(cfg, grants)| Around { cfg, grants: grants.as_ref(), ..here });
        let mut spared = uniform::Spared::new();
        for nth in 1..=COUNTINGS {
            let mut other = without.clone();
            let mut whole = None;
            watched((phases::COUNTERS, &mut other), manager, &mut wrong, |f| {
                whole = uniform::run(f, at.cfg, &spared);
                whole.is_some()
            });
            let Some(whole) = whole else { break };
            let at = Around { whole: Some(&whole), ..at };
            let (mut with, alive) = Code::new(&other, at, reserve);
            let mut planned = Plan::new(&with, &other, aim);
            if planned.missing_uniform > plan.missing_uniform && nth < COUNTINGS {
                planned.uniform.iter().for_each(|(b, most)| spared[*b] = spared[*b].max(*most as usize));
                continue;
            }
            if short(&planned) && remakes {
                let mut both = other.clone();
                if again(&mut both, at, alive, manager, &mut wrong) {
                    choose(&mut other, both, at, &mut with, &mut planned);
                }
            }
            planned.stage(&with, &other, aim);
            let fewer = issued(&with, &other) < WORTH * issued(&code, func);
            planned.settle_beside(&with, &mut plan, &code);
            if planned.is_worth(&plan, aim, fewer) {
                (*func, code, plan) = (other, with, planned);
                counts = true;
            }
            break;
        }
    }
    plan.settle(&code);
    let planned = Planned { stated: plan.stated as u32, time: plan.time };
    // A kernel that gives registers back states what it begins with. Others get fewer only where more warps fit then.
    let fewer = fewer_registers(func, planned.stated + ROUNDED).is_some();
    let before = (grants.is_none() && fewer).then(|| func.clone());
    plan.apply(&code, func);
    let planned = grants.is_none().then(|| (planned, before.map(|func| Prepared { func, code })));
    Outcome { planned, counts, wrong }
}

/// Registers beyond what was planned that allocation may take; where it takes more still, the kernel is planned anew.
const ROUNDED: u32 = 8;
/// A time that another plan must be below, as a share, to be worth what it does; and what it may take longer if it saves so many
/// registers.
const WORTH: f64 = 0.97;
const SAME: f64 = 1.03;
const SAVED: i32 = 2;
/// How often counters are put into uniform registers, each time fewer, until what lives within blocks has room beside them.
const COUNTINGS: usize = 3;
/// How much longer all warps together may take with counters in uniform registers, as a share.
const COUNTED: f64 = 1.1;
/// Steps of more registers that loops are offered, and to how many registers in all.
const STAGES: i32 = 2;
const MOST_STAGED: i32 = 80;
/// Loops take them where they take such a share of the time then.
const STAGED: f64 = 0.8;
/// How much more often a block in a loop is executed than one outside, and loops that count.
const TURNS: f64 = 10.0;
const NESTED: u32 = 4;

/// What is known of a function that is planned.
#[derive(Clone, Copy)]
struct Around<'a> {
    cfg: &'a Cfg,
    /// How many registers the warp holds in each block, if that changes.
    grants: Option<&'a Grants>,
    /// The blocks in which all lanes of the warp are together, as far as that is known.
    whole: Option<&'a FixedBitSet>,
    /// [`Attempt::together`].
    passes: bool,
}

/// Orders for all blocks that need so many registers at most.
struct Plan {
    /// Registers to be stated, as planned.
    stated: i32,
    /// The most that are live at once, and those for which there is no room: so many at least, while the plan is not `settled`.
    most: i32,
    missing: i32,
    /// Whether there are orders for blocks that need more registers than there are, where values leave theirs ([`Plan::settle`]).
    settled: bool,
    /// Uniform registers for which there is no room.
    missing_uniform: i32,
    /// The blocks in which that is so, and how many each needs.
    uniform: Vec<(Block, i32)>,
    /// Registers for which there is no room, of all blocks, by how often they are executed; uniform ones that find none come from general
    /// registers and go there in each round.
    lacking: f64,
    blocks: Vec<Vec<Ordered>>,
    /// Of all blocks, cycles by how often they are executed.
    time: f64,
}

/// So many registers that a block lacks, by how often it is executed.
fn lacking(block: &Stretch, missing: i32) -> f64 {
    f64::from(missing.max(0)) * TURNS.powi(block.depth.min(NESTED) as i32)
}

/// What a block's orders take, by how often it is executed.
fn time(block: &Stretch, orders: &[Ordered]) -> f64 {
    let cycles: u32 = orders.iter().map(|s| s.cycles).sum();
    f64::from(cycles) * TURNS.powi(block.depth.min(NESTED) as i32)
}

/// The registers of each file that a block may need with so many stated.
fn limits(code: &Code, block: &Stretch, stated: i32) -> Counts {
    let stated = block.held.unwrap_or(stated);
    [usable(stated, code.reserve), block.limits[1], block.limits[2], block.limits[3]]
}

/// Instructions, by how often they are executed. Of copies those from one register file to another: others mostly come to nothing.
fn issued(code: &Code, func: &Function) -> f64 {
    let words = |d: &InstData| {
        let Some((Some(Operand::Reg(to)), read)) = d.macro_operands() else { return 0 };
        let crosses = read.iter().filter_map(|o| match o {
            Operand::Reg(r) if func.shape(r.reg).file != func.shape(to.reg).file => {
                Some(func.shape(r.reg).width)
            }
            _ => None,
        });
        crosses.map(usize::from).sum()
    };
    let count = |i: &Inst| if func.insts[*i].opcode().is_some() { 1 } else { words(&func.insts[*i]) };
    let of = |block: &Stretch| {
        let insts: usize = func.blocks[block.block].insts.iter().map(count).sum();
        insts as f64 * TURNS.powi(block.depth.min(NESTED) as i32)
    };
    code.blocks.iter().map(of).sum()
}

/// The best orders of a block's parts with so many registers stated.
fn ordered(code: &Code, block: &Stretch, stated: i32) -> Vec<Ordered> {
    let limits = limits(code, block, stated);
    block.parts.iter().map(|p| orders::best(p, &limits, &code.tuning)).collect()
}

/// The general registers that a block needs.
fn needed(block: &Stretch, orders: &[Ordered]) -> i32 {
    orders.iter().map(|s| s.most[0]).fold(block.fixed[0], i32::max)
}

/// The uniform registers that a block needs beyond its limits.
fn missing_uniform(block: &Stretch, orders: &[Ordered], limits: &Counts) -> i32 {
    let file = RegFile::UR as usize;
    let most = orders.iter().map(|s| s.most[file]).max().unwrap_or(0);
    (most + unshared(block, orders) - limits[file]).max(0)
}

/// How many values that are passed for parameters need registers beside those, as they are made before the parameter was read for the last time.
fn unshared(block: &Stretch, orders: &[Ordered]) -> i32 {
    if block.shares.is_empty() {
        return 0;
    }
    let mut places: FxHashMap<usize, usize> = FxHashMap::default();
    for (part, ordered) in block.parts.iter().zip(orders) {
        let order = ordered.order.iter().flatten().enumerate();
        places.extend(order.map(|(new, old)| (part.start + *old as usize, part.start + new)));
    }
    let place = |at: &usize| places.get(at).copied().unwrap_or(*at);
    let overlaps = |(made, read): &&(usize, Vec<usize>)| read.iter().any(|r| place(r) > place(made));
    block.shares.iter().filter(overlaps).count() as i32
}

/// Warps that a multiprocessor holds if no more fit than with `aim`: whole for each of its four parts.
fn warps(stated: i32, aim: i32) -> i32 {
    let fit = |stated: i32| sass::target::SmInfo::warps_with(stated.max(1) as u32) as i32;
    fit(stated).min(fit(aim)).max(1)
}

impl Plan {
    /// With as few registers as `aim`, or the first step above that does.
    fn new(code: &Code, func: &Function, aim: i32) -> Plan {
        let most = i32::from(func.max_regs);
        let stated = |missing: i32| (aim + (missing + STEP - 1) / STEP * STEP).min(most);
        // As many as lead to the same step, or beyond the last one, are the same.
        let alike = |missing: i32| if stated(missing) == most { i32::MAX } else { stated(missing) - aim };
        let missing = match Plan::fitting(code, aim, alike) {
            Ok(plan) => return plan,
            Err(missing) => missing,
        };
        let mut plan = Plan::with(code, stated(missing));
        plan.settled = plan.missing() == 0;
        plan
    }

    /// Makes orders for blocks that need more registers than there are, if that was not done yet: it takes long, and most plans are given up
    /// for others with which fewer are missing.
    fn settle(&mut self, code: &Code) {
        if !std::mem::replace(&mut self.settled, true) {
            self.spill(code);
        }
    }

    /// Settles it, and another one if fewer are missing there otherwise, so that the two can be compared: never are fewer missing in the end.
    fn settle_beside(&mut self, code: &Code, other: &mut Plan, of_other: &Code) {
        if other.settled && self.lacking > other.lacking {
            return;
        }
        self.settle(code);
        if self.lacking >= other.lacking {
            other.settle(of_other);
        }
    }

    /// Orders for blocks that need more registers than there are, at the cost of that.
    fn spill(&mut self, code: &Code) {
        for (block, orders) in code.blocks.iter().zip(&mut self.blocks) {
            let limits = limits(code, block, self.stated);
            if needed(block, orders) <= limits[0] {
                continue;
            }
            self.time -= time(block, orders);
            self.lacking -= lacking(block, needed(block, orders) - limits[0]);
            for (part, order) in block.parts.iter().zip(orders.iter_mut()) {
                let best = std::mem::replace(order, Ordered { order: None, most: part.count, cycles: 0 });
                *order = orders::spilling(part, &limits, &code.tuning, best);
            }
            let needed = needed(block, orders);
            self.time += time(block, orders);
            self.most = self.most.max(needed);
            self.missing = self.missing.max(needed - limits[0]);
            self.lacking += lacking(block, needed - limits[0]);
        }
    }

    /// Orders for all blocks if none needs more registers than so many; how many are missing otherwise, or a number that is `alike` by the
    /// highest such one.
    fn fitting(code: &Code, stated: i32, alike: impl Fn(i32) -> i32) -> Result<Plan, i32> {
        let room = |block: &Stretch| limits(code, block, stated);
        // So many at least: where nothing moves.
        let mut missing = code.blocks.iter().map(|b| b.least() - room(b)[0]).max().unwrap_or(0).max(0);
        let mut plan = Plan::empty(code, stated);
        for block in &code.blocks {
            if missing > 0 {
                let limits = room(block);
                for part in &block.parts {
                    let enough = alike(missing);
                    if enough == i32::MAX {
                        return Err(missing);
                    }
                    missing = missing.max(orders::missing(part, &limits, &code.tuning, enough));
                }
            } else {
                plan.add(code, block);
                missing = plan.missing();
            }
        }
        if missing > 0 { Err(missing) } else { Ok(plan) }
    }

    fn empty(code: &Code, stated: i32) -> Plan {
        Plan {
            stated,
            most: 0,
            missing: 0,
            settled: true,
            missing_uniform: 0,
            uniform: Vec::new(),
            lacking: 0.0,
            blocks: Vec::with_capacity(code.blocks.len()),
            time: 0.0,
        }
    }

    fn with(code: &Code, stated: i32) -> Plan {
        let mut plan = Plan::empty(code, stated);
        code.blocks.iter().for_each(|block| plan.add(code, block));
        plan
    }

    /// Adds the next block.
    fn add(&mut self, code: &Code, block: &Stretch) {
        let orders = ordered(code, block, self.stated);
        let needed = needed(block, &orders);
        let room = limits(code, block, self.stated);
        self.most = self.most.max(needed);
        self.missing = self.missing.max(needed - room[0]);
        self.lacking += lacking(block, needed - room[0]);
        let uniform = missing_uniform(block, &orders, &room);
        self.missing_uniform = self.missing_uniform.max(uniform);
        self.lacking += lacking(block, uniform);
        if uniform > 0 {
            self.uniform.push((block.block, room[RegFile::UR as usize] + uniform));
        }
        self.time += time(block, &orders);
        self.blocks.push(orders);
    }

    /// Registers that it needs beyond what it states.
    fn missing(&self) -> i32 {
        self.missing
    }

    /// Cycles of a multiprocessor for each warp.
    fn cost(&self, aim: i32) -> f64 {
        self.time / f64::from(warps(self.stated, aim))
    }

    /// Whether it is better than another plan for the same kernel, counters being in uniform registers; `fewer`: it executes fewer instructions.
    fn is_worth(&self, other: &Plan, aim: i32, fewer: bool) -> bool {
        if self.lacking != other.lacking {
            return self.lacking < other.lacking;
        }
        let fit = |p: &Plan| warps(p.stated, aim);
        let (new, old) = (self.cost(aim), other.cost(aim));
        let worth = new < WORTH * old || fewer && new <= old;
        fit(self) > fit(other) && new <= COUNTED * old || fit(self) == fit(other) && worth
    }

    /// Whether it is better than another plan for the same kernel.
    fn is_better(&self, other: &Plan, aim: i32) -> bool {
        if self.lacking != other.lacking {
            return self.lacking < other.lacking;
        }
        let (new, old) = (self.cost(aim), other.cost(aim));
        let fit = |p: &Plan| warps(p.stated, aim);
        if fit(self) != fit(other) {
            return fit(self) > fit(other);
        }
        new < WORTH * old || new <= SAME * old && self.most + SAVED <= other.most
    }

    /// Gives loops more registers where they take much less time with them, and the warps that are left do as much.
    fn stage(&mut self, code: &Code, func: &Function, aim: i32) {
        let in_loops: Vec<usize> = (0..code.blocks.len()).filter(|b| code.blocks[*b].depth > 0).collect();
        if self.missing() > 0 || in_loops.is_empty() {
            return;
        }
        let now: f64 = in_loops.iter().map(|b| time(&code.blocks[*b], &self.blocks[*b])).sum();
        for stage in 1..=STAGES {
            let stated = self.stated + stage * STEP;
            if stated > i32::from(func.max_regs).min(MOST_STAGED) {
                return;
            }
            let then: Vec<Vec<Ordered>> =
                in_loops.iter().map(|b| ordered(code, &code.blocks[*b], stated)).collect();
            let long: f64 = in_loops.iter().zip(&then).map(|(b, o)| time(&code.blocks[*b], o)).sum();
            let done = |stated: i32, time: f64| f64::from(warps(stated, aim)) / time.max(1.0);
            if long <= STAGED * now && done(stated, long) >= done(self.stated, now) {
                for (b, orders) in in_loops.into_iter().zip(then) {
                    self.most = self.most.max(needed(&code.blocks[b], &orders));
                    self.blocks[b] = orders;
                }
                self.stated = stated;
                self.missing = (self.most - usable(stated, code.reserve)).max(0);
                self.time += long - now;
                return;
            }
        }
    }

    /// Puts the blocks in order.
    fn apply(self, code: &Code, func: &mut Function) {
        for (block, orders) in code.blocks.iter().zip(self.blocks) {
            let before = &func.blocks[block.block].insts;
            let fences: Vec<[Inst; 2]> = before
                .windows(2)
                .filter(|pair| func.insts[pair[0]].op == Op::Sass(Opcode::MEMBAR))
                .filter(|pair| graph::is_proxy_fence(func, pair))
                .map(|pair| [pair[0], pair[1]])
                .collect();
            let insts = &mut func.blocks[block.block].insts;
            for (part, ordered) in block.parts.iter().zip(orders) {
                let Some(order) = ordered.order else { continue };
                let place = &mut insts[part.start..part.start + part.nodes.len()];
                let old: Vec<Inst> = place.to_vec();
                place.iter_mut().zip(order).for_each(|(i, k)| *i = old[k as usize]);
            }
            // In ptxas's code nothing stands between the two; what does now is no access.
            for [membar, fence] in fences {
                let at = |i: Inst| insts.iter().position(|k| *k == i);
                if let (Some(from), Some(to)) = (at(membar), at(fence)) {
                    insts[from..to].rotate_left(1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_registers_make_room_for_more_warps() {
        let func = |sm| Function::new("k", sass::Target::new(sm).expect("a target"));
        // 64 Ki registers, in portions of eight for each thread of a warp; 32 are enough for all warps that an SM of 9.0 holds.
        for (stated, fewer) in
            [(101, Some(96)), (88, Some(80)), (41, Some(40)), (37, Some(32)), (32, None), (20, None)]
        {
            assert_eq!(fewer_registers(&func(90), stated), fewer, "{stated}");
        }
        assert_eq!(fewer_registers(&func(75), 70), Some(64));
        assert_eq!(fewer_registers(&func(75), 64), None);
    }
}
