//! Runs the blocks of a launch: their warps in turns, the blocks one after another or on all processors.

use super::check::Checker;
use super::compile::{Action, Step};
use super::control::{self, Control};
use super::late::Pending;
use super::reach::{Reach, Regions};
use super::state::{Barrier, Block, Env, GRID_BARRIER, Machine, Wait, Warp};
use super::{Cause, Code, DESCRIPTOR, Fault, Options, Probe, SimError, operand, text, trace, uniform};
use crate::mbarrier;
use crate::output::Output;
use crate::schedule::Dice;
use crate::tmem::Tmem;
use rayon::prelude::*;
use sass::Target;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What does not change while the blocks of a launch run.
#[derive(Clone, Copy)]
pub(super) struct Kernel<'a> {
    pub(super) target: Target,
    pub(super) code: &'a Code,
    pub(super) steps: &'a [Step],
    pub(super) env: &'a Env,
    pub(super) options: Options,
    /// Byte address of the first instruction.
    pub(super) entry: u32,
    /// Registers that a thread may have; 0 if nobody says.
    pub(super) registers: u32,
    /// Registers that threads begin with, if warps give some to each other.
    pub(super) held: Option<u32>,
}

/// What runs blocks.
pub(super) struct Grid<'a> {
    pub(super) kernel: Kernel<'a>,
    pub(super) memory: Reach<'a>,
    pub(super) probe: Option<&'a mut Probe>,
    pub(super) check: Option<&'a mut Checker>,
    /// Warps of blocks that have ended, to be used again.
    pool: Vec<Warp>,
}

/// Blocks that run at once and reach each other's shared and tensor memory.
#[derive(Default)]
struct Cluster {
    shared: Vec<Vec<u8>>,
    tmem: Vec<Tmem>,
    pending: Vec<Pending>,
    blocks: Vec<(Block, Vec<Warp>)>,
}

/// Instructions that a group issues before another one of the block gets its turn.
const TURN: u32 = 1024;
/// Instructions after which those that run may be waiting for others that have not started, as hardware has them all at once.
const PATIENCE: u64 = 4 << 20;
/// Shared memory that the driver clears before a kernel begins that uses tensor memory: what is taken of it. On sm_110 it stands behind
/// a variable of the driver's.
/// The simulator says it itself: what code names elsewhere is not cleared, and is found so.
fn reserved_words(sm: u8) -> std::ops::Range<usize> {
    if sm == 110 { 0xc0..0xe0 } else { 0x40..0x60 }
}

/// Where the barrier of the blocks of a pair is in them. Code of ptxas 13.0.88 and ours waits there for the first phase in both blocks, and
/// arrives at the other's: the driver has to have made it so that one of them finds the phase over.
const TURN_BARRIER: usize = 8;

/// Runs clusters on all processors, each when one is free; the number of instructions issued. Of several that fail, the
/// first one counts, as if they had run in their order.
pub(super) fn side_by_side(
    kernel: Kernel<'_>,
    regions: &Regions<'_>,
    clusters: &[Vec<[u32; 3]>],
    output: &mut Output,
) -> Result<u64, SimError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let issued = AtomicU64::new(0);
    let failure: Mutex<Option<(usize, SimError)>> = Mutex::new(None);
    let work = |_| {
        let mut grid = Grid::new(kernel, Reach::Among(regions));
        let mut printed = Output::default();
        let mut dice = Dice::new(kernel.options.schedule);
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= clusters.len() || i > failed.load(Ordering::Relaxed) {
                return printed;
            }
            let before = issued.load(Ordering::Relaxed);
            let mut more = || {
                let i = next.fetch_add(1, Ordering::Relaxed);
                clusters.get(i).filter(|_| i <= failed.load(Ordering::Relaxed)).map(|c| &c[..])
            };
            let result = match grid.clusters(&clusters[i..=i], &mut more, before, &mut printed, &mut dice) {
                Ok(after) => {
                    let all = issued.fetch_add(after - before, Ordering::Relaxed) + after - before;
                    let limit = kernel.options.limit;
                    if all >= limit && i + 1 < clusters.len() { Err(SimError::Limit(limit)) } else { Ok(()) }
                }
                Err(e) => Err(e),
            };
            if let Err(e) = result {
                failed.fetch_min(i, Ordering::Relaxed);
                let mut first = failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if first.as_ref().is_none_or(|f| i < f.0) {
                    *first = Some((i, e));
                }
            }
        }
    };
    let workers = rayon::current_num_threads().min(clusters.len());
    let printed: Vec<Output> = (0..workers).into_par_iter().with_max_len(1).map(work).collect();
    printed.into_iter().for_each(|p| output.merge(p));
    match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some((_, e)) => Err(e),
        None => Ok(issued.into_inner()),
    }
}

impl<'a> Grid<'a> {
    /// Nobody looks on.
    pub(super) fn new(kernel: Kernel<'a>, memory: Reach<'a>) -> Grid<'a> {
        Grid { kernel, memory, probe: None, check: None, pool: Vec::new() }
    }

    /// Runs the blocks of clusters, which take turns, to their end; the number of instructions issued so far. Where that takes long,
    /// others join them (`more`).
    pub(super) fn clusters<'c>(
        &mut self,
        clusters: &[Vec<[u32; 3]>],
        more: &mut dyn FnMut() -> Option<&'c [[u32; 3]]>,
        before: u64,
        output: &mut Output,
        dice: &mut Dice,
    ) -> Result<u64, SimError> {
        let limit = self.kernel.options.limit;
        let mut clusters: Vec<Cluster> = clusters.iter().map(|c| self.start(c)).collect();
        let (mut issued, mut joined) = (before, before);
        loop {
            let mut progress = false;
            for Cluster { shared, tmem, pending, blocks } in &mut clusters {
                for b in dice.order(blocks.len()) {
                    let (block, warps) = &mut blocks[b];
                    std::mem::swap(&mut block.shared, shared);
                    std::mem::swap(&mut block.tmem, tmem);
                    std::mem::swap(&mut block.pending, pending);
                    std::mem::swap(&mut block.output, output);
                    for i in dice.order(warps.len()) {
                        let warp = &mut warps[i];
                        if warp.groups.is_empty() {
                            continue;
                        }
                        let start = warp.issued;
                        self.turn(warp, block, dice.turn(TURN))?;
                        if dice.random() && !warp.groups.is_empty() {
                            let n = dice.below(warp.groups.len());
                            warp.groups.rotate_right(n);
                        }
                        issued += warp.issued - start;
                        progress |= warp.issued != start;
                    }
                    progress |= complete_barriers(block, warps, self.check.as_deref_mut());
                    std::mem::swap(&mut block.shared, shared);
                    std::mem::swap(&mut block.tmem, tmem);
                    std::mem::swap(&mut block.pending, pending);
                    std::mem::swap(&mut block.output, output);
                }
                progress |= complete_cluster_barrier(blocks, self.check.as_deref_mut());
            }
            progress |= complete_grid_barrier(&mut clusters, self.check.as_deref_mut());
            let blocks = || clusters.iter().flat_map(|c| &c.blocks);
            if blocks().all(|(_, warps)| warps.iter().all(|w| w.live == 0)) {
                self.finish(&mut clusters)?;
                self.end(clusters)?;
                return Ok(issued);
            }
            if issued >= limit {
                let waits = |(b, w): (&Block, &[Warp])| {
                    let starved = w.iter().find_map(|w| Some((w.number, w.asked.filter(|_| w.live != 0)?)));
                    starved.map(|(warp, asked)| SimError::Starved { block: b.index, warp, asked })
                };
                let starved = blocks().find_map(|(b, w)| waits((b, w)));
                return Err(starved.unwrap_or(SimError::Limit(limit)));
            }
            if !progress {
                let stuck = blocks().find(|b| b.1.iter().any(|w| w.live != 0));
                let (block, what) = stuck.map_or_else(Default::default, |(b, w)| (b.index, describe(w)));
                if let (Some(c), Some((b, w))) = (&mut self.check, stuck) {
                    c.stuck(b.index, w, &what);
                }
                return Err(SimError::Deadlock { block, what });
            }
            if issued - joined >= PATIENCE {
                joined = issued;
                if let Some(indices) = more() {
                    clusters.push(self.start(indices));
                }
            }
        }
    }

    /// The blocks of a cluster about to start.
    fn start(&mut self, indices: &[[u32; 3]]) -> Cluster {
        let mut cluster = Cluster::default();
        for (rank, index) in indices.iter().enumerate() {
            let (warps, mut bytes) = self.begin(*index);
            if self.kernel.target.sm >= 100 && indices.len() > 1 {
                // The blocks of a pair take turns at a barrier of one arrival: the even one is first.
                let turn = mbarrier::Barrier { phase: rank & 1 == 0, ..mbarrier::Barrier::new(1) };
                let at = reserved_words(self.kernel.target.sm).start + TURN_BARRIER;
                if let Some(word) = bytes.get_mut(at..at + 8) {
                    word.copy_from_slice(&turn.bits().to_le_bytes());
                }
            }
            cluster.tmem.push(Tmem::new(self.kernel.options.fill));
            if let Some(c) = &mut self.check {
                c.start(*index, indices, self.kernel.env);
            }
            cluster.shared.push(bytes);
            cluster.blocks.push((Block::new(*index, rank), warps));
        }
        cluster
    }

    /// Does what was left for later and nobody waited for.
    fn finish(&mut self, clusters: &mut [Cluster]) -> Result<(), SimError> {
        for Cluster { shared, tmem, pending, blocks } in clusters.iter_mut().filter(|c| !c.pending.is_empty())
        {
            let Some((block, warps)) = blocks.first_mut() else { continue };
            let Some(warp) = warps.first_mut() else { continue };
            std::mem::swap(&mut block.shared, shared);
            std::mem::swap(&mut block.tmem, tmem);
            std::mem::swap(&mut block.pending, pending);
            let (memory, env) = (self.memory.again(), self.kernel.env);
            let mut m = Machine { warp, block, memory, env, check: None };
            let done = m.perform_all();
            let (code, target) = (self.kernel.code, self.kernel.target);
            done.map_err(|f| error(f, 0, (code, target), &mut m))?;
            std::mem::swap(&mut block.shared, shared);
            std::mem::swap(&mut block.tmem, tmem);
        }
        Ok(())
    }

    /// All of their threads have ended.
    ///
    /// # Errors
    /// If one has not given its tensor memory back.
    fn end(&mut self, clusters: Vec<Cluster>) -> Result<(), SimError> {
        let left = clusters.iter().find_map(|c| c.blocks.get(c.tmem.iter().position(Tmem::is_taken)?));
        if let Some((block, _)) = left {
            return Err(SimError::Taken(block.index));
        }
        for (block, warps) in clusters.into_iter().flat_map(|c| c.blocks) {
            if let Some(c) = &mut self.check {
                let left = block.barriers.iter().enumerate().filter(|(_, b)| b.arrived != 0);
                c.end(block.index, left.map(|(id, b)| (id, b.arrived)));
            }
            self.pool.extend(warps);
        }
        Ok(())
    }

    /// The warps of a block, and its shared memory.
    fn begin(&mut self, index: [u32; 3]) -> (Vec<Warp>, Vec<u8>) {
        let Kernel { env, entry, options, registers, .. } = self.kernel;
        let threads: u32 = env.block.iter().product();
        let again = |i: u32| match self.pool.pop() {
            Some(w) => w.again(i, threads - 32 * i, entry),
            None => Warp::new(i, threads - 32 * i, entry, env.local as usize),
        };
        let mut warps: Vec<Warp> = (0..threads.div_ceil(32)).map(again).collect();
        let mut fill = 0;
        // Code can't name registers beyond those that the file states.
        let registers = if registers == 0 { 255 } else { registers };
        if options.fill != 0 {
            let mut rng = crate::launch::Rng::new(options.fill);
            let seed = index.iter().fold(rng.next(), |s, i| s.rotate_left(8) ^ u64::from(*i));
            warps.iter_mut().for_each(|w| w.scramble(seed, registers));
            fill = seed as u8;
        } else {
            warps.iter_mut().for_each(|w| w.clear(registers));
        }
        if let Some(held) = self.kernel.held {
            warps.iter_mut().for_each(|w| w.held = held);
        }
        if options.strict_uniform {
            warps.iter_mut().for_each(uniform::know_all);
        }
        let mut shared = vec![fill; env.shared.next_multiple_of(options.shared_unit) as usize];
        if self.kernel.target.sm >= 100
            && let Some(words) = shared.get_mut(reserved_words(self.kernel.target.sm))
        {
            words.fill(0);
        }
        (warps, shared)
    }

    /// Lets a warp run until its groups all wait or its turn of `length` instructions is over.
    pub(super) fn turn(&mut self, warp: &mut Warp, block: &mut Block, length: u32) -> Result<(), SimError> {
        let o = self.kernel.options;
        let watched =
            self.probe.is_some() || self.check.is_some() || o.strict_uniform || o.strict_descriptors;
        if watched {
            self.turn_as::<true>(warp, block, length)
        } else {
            self.turn_as::<false>(warp, block, length)
        }
    }

    /// [`Self::turn`], where somebody looks on (`WATCHED`) or not.
    fn turn_as<const WATCHED: bool>(
        &mut self,
        warp: &mut Warp,
        block: &mut Block,
        length: u32,
    ) -> Result<(), SimError> {
        let Kernel { steps, code, target, env, options, held, .. } = self.kernel;
        let check = self.check.as_deref_mut();
        let mut m = Machine { warp, block, memory: self.memory.again(), env, check };
        let mut left = length;
        while left != 0 {
            m.warp.take_back_uniform();
            let Some(group) = m.warp.groups.last() else { return Ok(()) };
            let (mut pc, lanes) = (group.pc, group.mask);
            // Until the group may change.
            loop {
                let here = pc;
                let Some(step) = steps.get(here as usize / 16).filter(|_| here % 16 == 0) else {
                    return Err(error(Fault::warp("no instruction there"), here, (code, target), &mut m));
                };
                pc += 16;
                left -= 1;
                m.warp.issued += 1;
                let mask = step.guard.mask(m.warp) & lanes;
                if WATCHED {
                    keep(m.warp, pc);
                    if let Some(p) = self.probe.as_mut() {
                        p.stop(here, lanes, m.warp, m.block.index);
                    }
                    if let Some(t) = self.probe.as_mut().and_then(|p| p.trace.as_mut()) {
                        let work =
                            step.traffic.as_ref().map_or(trace::Work::None, |x| x.of_lanes(m.warp, mask));
                        t.issue(m.block.index, m.warp.number, trace::Issue { pc: here, lanes, work });
                    }
                    if mask != 0 {
                        let allowed = strict(options, step, m.warp, lanes);
                        allowed.map_err(|f| error(f, here, (code, target), &mut m))?;
                        if let Some(c) = &mut m.check {
                            c.begin(here, step.order, m.block, m.warp, mask);
                            waits(c, step, m.warp, mask);
                        }
                    }
                }
                if held.is_some() {
                    super::pool::excess(step.needs, m.warp)
                        .map_err(|f| error(f, here, (code, target), &mut m))?;
                }
                let mut moved = false;
                if mask != 0 {
                    let result = match &step.action {
                        Action::Exec(exec) => exec(&mut m, mask),
                        Action::Nothing => Ok(()),
                        Action::Late(exec, kind) if options.late => m.defer(exec, *kind, mask, here),
                        Action::Late(exec, _) => exec(&mut m, mask),
                        Action::Wait(wait) if options.late => m.wait_for(*wait, mask),
                        Action::Wait(_) => Ok(()),
                        Action::Control(c) => {
                            moved = true;
                            keep(m.warp, pc);
                            m.warp.control(m.block, c, mask)
                        }
                        Action::Jump(exec) => {
                            moved = true;
                            keep(m.warp, pc);
                            exec(&mut m, mask)
                        }
                        Action::Unsupported(what) => {
                            Err(Fault::warp(format!("not supported: {what}")).because(Cause::Unsupported))
                        }
                        Action::Fault(what) => Err(Fault::warp(what.clone())),
                    };
                    result.map_err(|f| error(f, here, (code, target), &mut m))?;
                    if let Some(u) = &step.uniform {
                        u.mark(&mut m.warp.written);
                    }
                    if WATCHED {
                        if let Some(u) = step.uniform.as_ref().filter(|_| options.strict_uniform) {
                            u.note(m.warp, lanes, mask);
                        }
                        if let (Some(p), Reach::Alone(memory)) = (&mut self.probe, &m.memory) {
                            p.look(here, m.warp.issued, m.warp, m.block, memory);
                        }
                    }
                }
                if moved {
                    // At a branch the warp may change to other lanes, which write what these did.
                    let goes_on = m.warp.groups.last().is_some_and(|g| g.mask == lanes && g.pc == pc);
                    if !goes_on {
                        m.warp.written = Default::default();
                    }
                    break;
                }
                if left == 0 {
                    keep(m.warp, pc);
                    break;
                }
            }
        }
        // Another group gets its turn, for forward progress of spinning threads.
        let warp = m.warp;
        if warp.groups.len() > 1 {
            warp.interrupt();
        }
        Ok(())
    }
}

/// What went wrong at an instruction, which a check hears of.
fn error(f: Fault, pc: u32, (code, target): (&Code, Target), m: &mut Machine<'_>) -> SimError {
    if let Some(c) = &mut m.check {
        c.fault(f.cause, f.lane, &f.what);
    }
    SimError::Instruction {
        address: pc,
        text: text(code, target, pc),
        block: m.block.index,
        warp: m.warp.number,
        lane: f.lane,
        what: f.what,
        cause: f.cause,
    }
}

/// Tells a check of threads that arrive or wait.
fn waits(check: &mut Checker, step: &Step, warp: &Warp, mask: u32) {
    let Action::Control(c) = &step.action else { return };
    let mut values = [0; 32];
    match c {
        Control::Barrier { kind: control::Reduce::Arrive, id, .. } => {
            id.fetch(warp, &mut values);
            check.arrive((values[mask.trailing_zeros() as usize & 31] & 0xffff) as usize);
        }
        Control::Warpsync { lanes, .. } => {
            lanes.fetch(warp, &mut values);
            check.warpsync(mask, &values.map(|v| v as u32));
        }
        _ => {}
    }
}

/// The running group goes on at `pc`.
fn keep(warp: &mut Warp, pc: u32) {
    if let Some(g) = warp.groups.last_mut() {
        g.pc = pc;
    }
}

/// What is an error only if it was asked for.
fn strict(options: Options, step: &Step, warp: &Warp, lanes: u32) -> Result<(), Fault> {
    if options.strict_uniform
        && let Some(u) = &step.uniform
    {
        u.check(warp, lanes)?;
    }
    if options.strict_descriptors
        && let Some(r) = step.descriptor
    {
        let held = u64::from(warp.ur[Warp::pair(r)]) << 32 | u64::from(warp.ur[usize::from(r)]);
        if held != DESCRIPTOR {
            return Err(Fault::warp(format!("UR{r} holds {held:#x}, which is no memory descriptor")));
        }
    }
    Ok(())
}

/// Wakes the threads of every barrier at which all have arrived; whether there was one.
fn complete_barriers(block: &mut Block, warps: &mut [Warp], mut check: Option<&mut Checker>) -> bool {
    let index = block.index;
    let mut any = false;
    for (id, b) in block.barriers[..CLUSTER_BARRIER].iter_mut().enumerate().filter(|(_, b)| b.busy) {
        let here = |w: &Warp| w.waiting(|why| why == Wait::Block(id as u8));
        let done = match b.expected {
            None => warps.iter().all(|w| here(w) == w.live),
            // A warp counts whole when all of its threads that are left have arrived.
            Some(n) => {
                let count = |w: &Warp| match here(w) {
                    m if m != 0 && m == w.live => 32,
                    m => m.count_ones(),
                };
                b.arrived + warps.iter().map(count).sum::<u32>() >= n
            }
        };
        if !done {
            continue;
        }
        if let Some(c) = &mut check {
            let waiting = warps.iter().map(|w| here(w).count_ones()).sum();
            c.meet(index, id, warps, (waiting, b.expected.is_some()));
        }
        let verdict = match b.reduce {
            control::Reduce::And => b.count == b.voters,
            _ => b.count != 0,
        };
        for w in warps.iter_mut() {
            let mask = here(w);
            if mask != 0 {
                w.reduction = (b.count, verdict);
                w.wake(mask);
            }
        }
        *b = Barrier::IDLE;
        any = true;
    }
    any
}

/// The one that all blocks of a cluster share, behind those of BAR.
const CLUSTER_BARRIER: usize = 16;

/// Wakes the threads of all blocks at the cluster's barrier when all have come to wait; whether they had.
fn complete_cluster_barrier(blocks: &mut [(Block, Vec<Warp>)], check: Option<&mut Checker>) -> bool {
    let here = |w: &Warp| w.waiting(|why| why == Wait::Block(CLUSTER_BARRIER as u8));
    let mut warps = blocks.iter().flat_map(|b| &b.1);
    if !warps.clone().any(|w| here(w) != 0) || !warps.all(|w| here(w) == w.live) {
        return false;
    }
    if let Some(c) = check {
        c.meet_all(&blocks.iter().map(|(b, _)| b.index).collect::<Vec<_>>());
    }
    for (block, warps) in blocks {
        warps.iter_mut().for_each(|w| w.wake(here(w)));
        block.barriers[CLUSTER_BARRIER] = Barrier::IDLE;
    }
    true
}

/// Wakes the threads of all blocks that run at once when all have come to the grid's barrier; whether they had.
fn complete_grid_barrier(clusters: &mut [Cluster], check: Option<&mut Checker>) -> bool {
    let here = |w: &Warp| w.waiting(|why| why == Wait::Block(GRID_BARRIER));
    let blocks = || clusters.iter().flat_map(|c| &c.blocks);
    let mut warps = blocks().flat_map(|b| &b.1);
    if !warps.clone().any(|w| here(w) != 0) || !warps.all(|w| here(w) == w.live) {
        return false;
    }
    if let Some(c) = check {
        c.meet_all(&blocks().map(|(b, _)| b.index).collect::<Vec<_>>());
    }
    for w in clusters.iter_mut().flat_map(|c| &mut c.blocks).flat_map(|b| &mut b.1) {
        w.wake(here(w));
    }
    true
}

/// Who waits for what.
fn describe(warps: &[Warp]) -> String {
    let mut parts = Vec::new();
    for w in warps.iter().filter(|w| w.live != 0) {
        let mut rest = w.live;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let alike = |l: &usize| (w.resume[*l], w.wait[*l]) == (w.resume[first], w.wait[first]);
            let same = operand::lanes(rest).filter(alike).fold(0u32, |m, l| m | 1 << l);
            rest &= !same;
            let at = w.resume[first].wrapping_sub(16);
            parts.push(format!("warp {}, lanes {same:#010x} at {at:#06x}: {:?}", w.number, w.wait[first]));
        }
    }
    parts.truncate(8);
    parts.join("; ")
}
