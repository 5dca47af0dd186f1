//! The grid: blocks one after another, the warps of a block in turn.

mod cluster;

use super::SimError;
use super::decode::{FUNCTIONS, Fill, Place, Program, unwritten};
use super::exec;
use super::thread::{Caller, Env, Res, State, Thread};
use super::warp;
use crate::launch::{Buffers, Launch, Prepared};
use crate::memory::{GRID_WORKSPACE, Memory, grid_workspace};
use crate::output::{DRIVER, Driver};
use crate::schedule::{Dice, Schedule};
use crate::stops::{Stop, Stops};
use crate::watch::Watch;
use ::ptx::ast::{FuncId, Module, Operand, RegId, Space, VarId};
use ::ptx::{Mod, Op, Type};
use cluster::{CLUSTER_BARRIER, Cluster, run_clusters};

/// Instructions that a warp runs before the next one gets its turn.
const TURN: u32 = 1 << 14;
/// After so many, a warp runs the threads that are furthest ahead instead of those furthest behind, so that
/// threads that spin get what they wait for.
const PATIENCE: u32 = 1 << 16;
/// Instructions for which threads that are ahead of some that ask for what others are to do get to run.
const AHEAD: u32 = 16;
/// Instructions by which a warp may ask for that in a turn.
const ASKS: u32 = 8;
/// A launch that runs more warp instructions than this does not end.
pub const LIMIT: u64 = 1 << 31;

/// Calls inside calls that a thread may make.
const DEPTH: usize = 1 << 12;

/// Runs a launch on the module and returns the contents of all its buffers.
///
/// # Errors
/// When the launch doesn't fit the kernel, or the kernel does something that is not supported or not allowed.
pub fn run(module: &Module, launch: &Launch) -> Result<Buffers, SimError> {
    let prepared = execute(module, launch, LIMIT)?;
    Ok(launch.collect(&prepared))
}

/// Runs a launch of at most `limit` warp instructions and returns the memory afterwards.
///
/// # Errors
/// As [`run`].
pub fn execute(module: &Module, launch: &Launch, limit: u64) -> Result<Prepared, SimError> {
    execute_with(module, launch, Options { limit, ..Options::default() })
}

/// Like [`execute`], where registers, local and shared memory hold `fill` before they are written.
///
/// # Errors
/// As [`run`].
pub fn execute_filled(
    module: &Module,
    launch: &Launch,
    limit: u64,
    fill: Fill,
) -> Result<Prepared, SimError> {
    execute_with(module, launch, Options { limit, fill, ..Options::default() })
}

/// How to interpret.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most warp instructions to run.
    pub limit: u64,
    /// What registers, local and shared memory hold before they are written.
    pub fill: Fill,
    /// Which threads run when.
    pub schedule: Schedule,
    /// If it isn't 0, results that PTX does not define to the bit are moved within their bounds: upwards by 1, downwards by
    /// 2, by other numbers at random.
    pub nudge: u64,
    /// Whether asynchronous operations are done as late as PTX allows, instead of at once.
    pub late: bool,
}

/// No variable needs more alignment.
const FRAME_ALIGN: usize = 128;

impl Default for Options {
    fn default() -> Options {
        Options { limit: LIMIT, fill: Fill::Zero, schedule: Schedule::Turns, nudge: 0, late: false }
    }
}

/// Runs a launch as the options say and returns the memory afterwards.
///
/// # Errors
/// As [`run`].
pub fn execute_with(module: &Module, launch: &Launch, options: Options) -> Result<Prepared, SimError> {
    observe(module, launch, options, &mut Watch::new(&[]))
}

/// Runs a launch and notes which instruction changed the watched places last.
///
/// # Errors
/// As [`run`].
pub fn observe(
    module: &Module,
    launch: &Launch,
    options: Options,
    watch: &mut Watch<::ptx::Span>,
) -> Result<Prepared, SimError> {
    witnessed(module, launch, options, (watch, None))
}

/// Runs a launch and looks at threads in front of statements.
///
/// # Errors
/// As [`run`].
pub fn stopped(
    module: &Module,
    launch: &Launch,
    options: Options,
    stops: &mut Stops<u32, RegId>,
) -> Result<Prepared, SimError> {
    witnessed(module, launch, options, (&mut Watch::new(&[]), Some(stops)))
}

/// Those who look on.
type Witnesses<'w> = (&'w mut Watch<::ptx::Span>, Option<&'w mut Stops<u32, RegId>>);

fn witnessed(
    module: &Module,
    launch: &Launch,
    options: Options,
    witnesses: Witnesses<'_>,
) -> Result<Prepared, SimError> {
    if !module.aliases.is_empty() {
        let mut resolved = module.clone();
        resolved.resolve_aliases();
        resolved.aliases.clear();
        return witnessed(&resolved, launch, options, witnesses);
    }
    let mut prepared = launch.prepare();
    let kernel = kernel_of(module, launch)?;
    prepared.params = launch.params(&prepared.addresses, module.param_skew_of(&module.funcs[kernel]));
    let mut program = Program::new(module, kernel, options.fill, options.nudge)?;
    check(module, kernel, launch, &prepared.params)?;
    for v in program.globals.clone() {
        let var = &module.vars[v];
        let at = prepared.memory.alloc(&var.name, vec![0; var.size() as usize]);
        program.places[v] = Place::Fixed(at);
    }
    for v in module.vars.keys() {
        set_variable(&mut program, v, &mut prepared.memory);
    }
    if launch.cooperative {
        prepared.memory.place("workspace of the grid", GRID_WORKSPACE, grid_workspace());
    }
    let params = std::mem::take(&mut prepared.params);
    prepared.output =
        blocks((&program, kernel), launch, &params, &mut prepared.memory, (options, witnesses))?;
    Ok(prepared)
}

/// The kernel that is launched.
pub(super) fn kernel_of(module: &Module, launch: &Launch) -> Result<FuncId, SimError> {
    let kernel = module.funcs.iter().find(|(_, f)| f.entry && f.body.is_some() && f.name == launch.kernel);
    kernel.map(|k| k.0).ok_or_else(|| SimError::new(format!("there is no kernel '{}'", launch.kernel)))
}

/// Whether the launch fits the kernel.
pub(super) fn check(module: &Module, kernel: FuncId, launch: &Launch, params: &[u8]) -> Result<(), SimError> {
    let func = &module.funcs[kernel];
    let (size, given) = (module.param_layout(func).1 as usize, params.len());
    if given != size {
        let what = format!("kernel '{}' takes {size} bytes of arguments, not {given}", launch.kernel);
        return Err(SimError::at(func.span, what));
    }
    launch.shape().map_err(SimError::new)
}

/// Gives a variable with a place its first contents.
fn set_variable(program: &mut Program<'_>, v: VarId, memory: &mut Memory) {
    let Place::Fixed(at) = program.places[v] else { return };
    let contents = program.initial(v);
    match program.module.vars[v].space {
        Space::Global => {
            if let Some(to) = memory.slice_mut(at, contents.len()) {
                to.copy_from_slice(&contents);
            }
        }
        Space::Const => {
            program.consts[at as usize..at as usize + contents.len()].copy_from_slice(&contents);
        }
        _ => {}
    }
}

/// Runs all blocks of a launch on memory that has what they need; what the threads printed.
pub(super) fn blocks(
    (program, kernel): (&Program<'_>, FuncId),
    launch: &Launch,
    params: &[u8],
    memory: &mut Memory,
    (options, (watch, stops)): (Options, Witnesses<'_>),
) -> Result<crate::output::Output, SimError> {
    let Options { limit, schedule, .. } = options;
    let mut env = Env {
        program,
        launch,
        params,
        memory,
        shared: Vec::new(),
        tmem: Vec::new(),
        late: options.late,
        pending: Vec::new(),
        ctaid: [0; 3],
        output: Default::default(),
        clock: 0,
        limit,
        watch,
        stops,
    };
    env.memory.begin();
    env.watch.begin(env.memory);
    let mut dice = Dice::new(schedule);
    let clusters = launch.clusters().map_err(SimError::new)?;
    let together = if launch.cooperative { clusters.len() } else { 1 };
    for clusters in clusters.chunks(together) {
        let mut running: Vec<_> = clusters.iter().map(|c| Cluster::new(c, &env, kernel)).collect();
        run_clusters(&mut running, &mut env, &mut dice)?;
    }
    Ok(env.output)
}

/// Whether code that waits for other threads may come to the instruction again and again.
fn waits_for_others(inst: &::ptx::Inst) -> bool {
    let any = |mods: &[Mod]| mods.iter().any(|m| inst.has(*m));
    match inst.op {
        Op::nanosleep => true,
        Op::mbarrier => any(&[Mod::test_wait, Mod::try_wait]),
        Op::ld => any(&[Mod::volatile, Mod::acquire, Mod::relaxed]),
        Op::atom => any(&[Mod::cas, Mod::exch]),
        _ => false,
    }
}

/// A barrier of the block.
#[derive(Clone, Copy, Default, Debug)]
struct Barrier {
    /// Threads that have arrived.
    arrived: u32,
    /// Threads that must; 0 means all.
    expected: u32,
    /// Threads that arrived with a true predicate.
    count: u32,
}

/// A running block.
pub(super) struct Block {
    pub threads: Vec<Thread>,
    barriers: [Barrier; 16],
    /// Threads that have not exited.
    live: u32,
}

impl Block {
    pub fn new(env: &Env<'_, '_>, kernel: FuncId, rank: u32) -> Block {
        let [nx, ny, nz] = env.launch.block;
        let tids = (0..nz).flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [x, y, z])));
        let threads: Vec<Thread> =
            tids.enumerate().map(|(i, tid)| Thread::new(env.program, kernel, tid, i as u32, rank)).collect();
        let live = threads.len() as u32;
        Block { threads, barriers: [Barrier::default(); 16], live }
    }

    /// Gives every warp a turn.
    fn round(&mut self, env: &mut Env<'_, '_>, dice: &mut Dice) -> Result<(), SimError> {
        for warp in dice.order(self.threads.len().div_ceil(32)) {
            self.run_warp(env, 32 * warp, dice)?;
        }
        Ok(())
    }

    fn error(&self, env: &Env<'_, '_>, thread: usize, message: impl Into<String>) -> SimError {
        let t = &self.threads[thread];
        SimError {
            span: env.program.code.get(t.pc as usize).map(|c| c.inst.span),
            message: message.into(),
            thread: Some((env.ctaid, t.tid)),
        }
    }

    fn run_warp(&mut self, env: &mut Env<'_, '_>, first: usize, dice: &mut Dice) -> Result<(), SimError> {
        let end = self.threads.len().min(first + 32);
        let mut lanes: Vec<usize> = Vec::with_capacity(32);
        let (mut asks, mut ahead_for) = (0, 0u32);
        for _ in 0..dice.turn(TURN) {
            // Those that are deepest in calls, then those at the lowest address.
            let ready = self.threads[first..end].iter().filter(|t| t.state == State::Ready);
            let keys = ready.map(|t| (usize::MAX - t.callers.len(), t.pc));
            let ahead = ahead_for > 0 || (env.clock as u32 % PATIENCE) > PATIENCE - 64;
            ahead_for = ahead_for.saturating_sub(1);
            let key = match dice.random() && dice.below(4) == 0 {
                true => {
                    let mut keys: Vec<_> = keys.collect();
                    keys.sort_unstable();
                    keys.dedup();
                    keys.get(dice.below(keys.len())).copied()
                }
                false if ahead => keys.max(),
                false => keys.min(),
            };
            let Some(key) = key else { break };
            lanes.clear();
            lanes.extend((first..end).filter(|i| {
                let t = &self.threads[*i];
                t.state == State::Ready && (usize::MAX - t.callers.len(), t.pc) == key
            }));
            dice.shuffle(&mut lanes);
            env.clock += 1;
            let pc = self.threads[lanes[0]].pc;
            self.stop(env, &lanes);
            self.step(env, &lanes)?;
            if let Some(code) = env.program.code.get(pc as usize) {
                env.watch.look(env.memory, env.clock, code.inst.span);
                if waits_for_others(code.inst) {
                    asks += 1;
                    if asks == ASKS {
                        break;
                    }
                    if ahead_for == 0 {
                        ahead_for = AHEAD;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks at lanes that stand at the same place, if somebody wants to.
    fn stop(&self, env: &mut Env<'_, '_>, lanes: &[usize]) {
        let program = env.program;
        let Some(stops) = &mut env.stops else { return };
        let Some(code) = program.code.get(self.threads[lanes[0]].pc as usize) else { return };
        let at = code.inst.span.start;
        for i in lanes {
            let t = &self.threads[*i];
            if let Some(wanted) = stops.wanted.get(&at)
                && stops.looks_at(env.ctaid, t.index)
            {
                let values = wanted.iter().map(|r| t.reg(program, *r)).collect();
                stops.keep(Stop { at, block: env.ctaid, thread: t.index, values });
            }
        }
    }

    /// Executes one instruction for lanes that stand at the same place.
    pub fn step(&mut self, env: &mut Env<'_, '_>, lanes: &[usize]) -> Result<(), SimError> {
        let p = env.program;
        let pc = self.threads[lanes[0]].pc;
        let func = self.threads[lanes[0]].func;
        // Running off the end of a function returns from it.
        let Some(code) = p.code.get(pc as usize).filter(|c| c.func == func) else {
            for i in lanes {
                self.leave(env, *i)?;
            }
            return Ok(());
        };
        let mut active: smallvec::SmallVec<[usize; 32]> = smallvec::SmallVec::new();
        for i in lanes {
            if self.threads[*i].guarded(p, code) { active.push(*i) } else { self.threads[*i].pc += 1 }
        }
        let inst = code.inst;
        match inst.op {
            Op::activemask => {
                let mask = active.iter().fold(0, |m, i| m | 1u32 << self.threads[*i].lane());
                for i in active {
                    let r = self.threads[i].write(p, &inst.operands[0], mask.into(), Type::b32);
                    r.map_err(|e| self.error(env, i, e))?;
                    self.threads[i].pc += 1;
                }
            }
            Op::shfl | Op::vote if !inst.has(Mod::sync) => self.together(env, &active)?,
            Op::shfl | Op::vote | Op::_match | Op::redux | Op::elect => self.sync(env, &active)?,
            op if warp::is_matrix(op) || super::tcgen05::is_collective(code.inst) => {
                self.sync(env, &active)?
            }
            Op::bar if inst.has(Mod::warp) => self.sync(env, &active)?,
            _ => {
                for i in active {
                    let r = match inst.op {
                        Op::bra | Op::brx | Op::call => self.branch(env, i),
                        Op::bar | Op::barrier => self.barrier(env, i),
                        Op::ret => {
                            self.leave(env, i)?;
                            Ok(())
                        }
                        Op::exit => {
                            self.exit(env, i)?;
                            Ok(())
                        }
                        Op::trap | Op::brkpt => Err("trap".into()),
                        _ => {
                            let r = exec::execute(env, &mut self.threads[i], code);
                            if r.is_ok() {
                                self.threads[i].pc += 1;
                            }
                            r
                        }
                    };
                    r.map_err(|e| self.error(env, i, e))?;
                }
            }
        }
        Ok(())
    }

    /// `bra`, `brx`, `call`.
    fn branch(&mut self, env: &mut Env<'_, '_>, i: usize) -> Res<()> {
        let code = &env.program.code[self.threads[i].pc as usize];
        match code.inst.op {
            Op::bra => self.threads[i].pc = *code.targets.first().ok_or("branch without a target")?,
            Op::brx => {
                let index = self.threads[i].read(env, &code.inst.operands[0], Type::u32)?;
                let target = code.targets.get(index as usize);
                self.threads[i].pc = *target.ok_or_else(|| format!("no branch target {index}"))?;
            }
            _ => self.call(env, i)?,
        }
        Ok(())
    }

    /// Operands of a call: returns, callee, arguments.
    fn call_parts<'o>(ops: &'o [Operand]) -> (&'o [Operand], Option<&'o Operand>, &'o [Operand]) {
        let list = |o: Option<&'o Operand>| match o {
            Some(Operand::List(l)) => &l[..],
            _ => &[],
        };
        match ops.first() {
            Some(Operand::List(l)) => (l, ops.get(1), list(ops.get(2))),
            callee => (&[], callee, list(ops.get(1))),
        }
    }

    fn call(&mut self, env: &mut Env<'_, '_>, i: usize) -> Res<()> {
        let p = env.program;
        let t = &mut self.threads[i];
        let code = &p.code[t.pc as usize];
        let (_, callee, args) = Self::call_parts(&code.inst.operands);
        let callee = match callee {
            Some(Operand::Func(f)) => *f,
            Some(o) => {
                let a = t.read(env, o, Type::u64)?;
                let n = a.wrapping_sub(FUNCTIONS) / 16;
                p.module.funcs.keys().nth(n as usize).ok_or_else(|| format!("no function at {a:#x}"))?
            }
            None => return Err("call without a callee".into()),
        };
        let func = &p.module.funcs[callee];
        let layout = &p.layouts[callee];
        let Some(entry) = layout.entry else {
            if let Some((_, f)) = DRIVER.iter().find(|d| d.0 == func.name) {
                return self.driver(env, i, *f);
            }
            return Err(format!("call of '{}', which has no body", func.name).into());
        };
        if t.callers.len() >= DEPTH {
            return Err(format!("more than {DEPTH} calls inside calls").into());
        }
        let open = func.params.last().is_some_and(|v| p.module.vars[*v].is_unsized());
        if args.len() != func.params.len() && !(open && args.len() + 1 == func.params.len()) {
            return Err(format!("'{}' takes {} arguments", func.name, func.params.len()).into());
        }
        let frame = t.local.len().next_multiple_of(FRAME_ALIGN) as u64;
        t.local.resize(frame as usize, 0);
        t.local.extend(unwritten(p.fill, layout.frame as usize, t.index));
        for (a, v) in args.iter().zip(&func.params) {
            let var = &p.module.vars[*v];
            let Place::Frame(at) = p.places[*v] else { continue };
            let to = (frame + at) as usize;
            let mut size = var.size() as usize;
            if let (Operand::Var(from, 0), true) = (a, var.is_unsized()) {
                // The last one, of the size of what is passed, is behind the frame.
                size = p.module.vars[*from].size() as usize;
                t.local.resize(t.local.len().max(to + size), 0);
            }
            match a {
                Operand::Var(from, 0) => {
                    let from = t.frame as usize + Self::in_frame(p, *from)? as usize;
                    t.local.copy_within(from..from + size, to);
                }
                o => {
                    let bits = t.read(env, o, var.ty)?;
                    let size = size.min(8);
                    t.local[to..to + size].copy_from_slice(&bits.to_le_bytes()[..size]);
                }
            }
        }
        t.callers.push(Caller { func: t.func, pc: t.pc, registers: t.registers, frame: t.frame });
        t.registers = t.regs.len();
        t.regs.extend(layout.registers(p.fill, t.index));
        for passed in &layout.params {
            passed.load(&mut t.regs[t.registers..], &t.local[frame as usize..]);
        }
        t.frame = frame;
        t.func = callee;
        t.pc = entry;
        Ok(())
    }

    /// A call of one of the driver's functions.
    fn driver(&mut self, env: &mut Env<'_, '_>, i: usize, f: Driver) -> Res<()> {
        let t = &mut self.threads[i];
        let code = &env.program.code[t.pc as usize];
        let (results, _, args) = Self::call_parts(&code.inst.operands);
        let mut values = [0; 2];
        for (value, a) in values.iter_mut().zip(args) {
            *value = match a {
                Operand::Var(v, 0) => {
                    let at = t.frame as usize + Self::in_frame(env.program, *v)? as usize;
                    let size = (env.program.module.vars[*v].size() as usize).min(8);
                    crate::memory::little_endian(&t.local[at..at + size])
                }
                o => t.read(env, o, Type::b64)?,
            };
        }
        let result = super::exec::driver(env, t, f, values)?;
        match results.first() {
            Some(Operand::Var(v, 0)) => {
                let at = t.frame as usize + Self::in_frame(env.program, *v)? as usize;
                let size = (env.program.module.vars[*v].size() as usize).min(8);
                t.local[at..at + size].copy_from_slice(&result.to_le_bytes()[..size]);
            }
            Some(o) => t.write(env.program, o, result, Type::b64)?,
            None => {}
        }
        t.pc += 1;
        Ok(())
    }

    fn in_frame(p: &Program<'_>, v: ::ptx::ast::VarId) -> Res<u64> {
        match p.places[v] {
            Place::Frame(at) => Ok(at),
            _ => Err("an argument that is not in the caller's frame".into()),
        }
    }

    /// Returns from a function, or ends the thread.
    fn leave(&mut self, env: &mut Env<'_, '_>, i: usize) -> Result<(), SimError> {
        let p = env.program;
        let t = &mut self.threads[i];
        let Some(caller) = t.callers.pop() else { return self.exit(env, i) };
        let code = &p.code[caller.pc as usize];
        let returns = &p.module.funcs[t.func].returns;
        let callee = (t.registers, t.frame);
        for passed in &p.layouts[t.func].returns {
            passed.store(&t.regs[callee.0..], &mut t.local[callee.1 as usize..]);
        }
        t.func = caller.func;
        (t.registers, t.frame) = (caller.registers, caller.frame);
        t.pc = caller.pc;
        let (results, ..) = Self::call_parts(&code.inst.operands);
        for (o, v) in results.iter().zip(returns) {
            let var = &p.module.vars[*v];
            let Place::Frame(at) = p.places[*v] else { continue };
            let from = (callee.1 + at) as usize;
            let size = var.size() as usize;
            let r = match o {
                Operand::Var(to, 0) => Self::in_frame(p, *to).map(|to| {
                    t.local.copy_within(from..from + size, (caller.frame + to) as usize);
                }),
                o => {
                    let bits = crate::memory::little_endian(&t.local[from..from + size.min(8)]);
                    t.write(p, o, bits, var.ty)
                }
            };
            if let Err(e) = r {
                return Err(self.error(env, i, e));
            }
        }
        let t = &mut self.threads[i];
        t.regs.truncate(callee.0);
        t.local.truncate(callee.1 as usize);
        t.pc += 1;
        Ok(())
    }

    fn exit(&mut self, env: &mut Env<'_, '_>, i: usize) -> Result<(), SimError> {
        self.threads[i].state = State::Exited;
        self.live -= 1;
        // Those who wait need not wait for this one any longer.
        let first = i / 32 * 32;
        let end = self.threads.len().min(first + 32);
        for k in first..end {
            if let State::Sync(_) = self.threads[k].state {
                self.release(env, k)?;
            }
        }
        for b in 0..16 {
            if self.barriers[b].arrived > 0 {
                self.complete(env, b)?;
            }
        }
        Ok(())
    }

    /// Lanes arrive at a `.sync` instruction.
    fn sync(&mut self, env: &mut Env<'_, '_>, lanes: &[usize]) -> Result<(), SimError> {
        for i in lanes {
            let t = &self.threads[*i];
            let code = &env.program.code[t.pc as usize];
            let mask = match warp::member_mask(code) {
                Some(o) => t.read(env, o, Type::b32).map_err(|e| self.error(env, *i, e))? as u32,
                None => u32::MAX,
            };
            if mask >> t.lane() & 1 == 0 {
                return Err(self.error(env, *i, format!("lane is not in its own member mask {mask:#x}")));
            }
            self.threads[*i].state = State::Sync(mask);
        }
        for i in lanes {
            self.release(env, *i)?;
        }
        Ok(())
    }

    /// A `shfl` or `vote` without `.sync`: those take part that are there, which is defined if it is all of the warp.
    fn together(&mut self, env: &mut Env<'_, '_>, lanes: &[usize]) -> Result<(), SimError> {
        let Some(&who) = lanes.first() else { return Ok(()) };
        let first = who / 32 * 32;
        let warp = first..self.threads.len().min(first + 32);
        let live = warp.filter(|k| self.threads[*k].state != State::Exited).count();
        if live != lanes.len() {
            return Err(self.error(env, who, "who takes part without '.sync' is not defined"));
        }
        let mut members = lanes.to_vec();
        members.sort_unstable();
        let code = &env.program.code[self.threads[who].pc as usize];
        let codes = vec![code; members.len()];
        let r = warp::collective(env, &mut self.threads, &members, &codes);
        r.map_err(|e| self.error(env, who, e))?;
        for k in members {
            self.threads[k].pc += 1;
        }
        Ok(())
    }

    /// Executes the `.sync` instruction at which thread `i` waits, if all who take part are there.
    fn release(&mut self, env: &mut Env<'_, '_>, i: usize) -> Result<(), SimError> {
        let State::Sync(mask) = self.threads[i].state else { return Ok(()) };
        let p = env.program;
        let first = i / 32 * 32;
        let end = self.threads.len().min(first + 32);
        let code = &p.code[self.threads[i].pc as usize];
        let in_mask = |k: &usize| mask >> (k - first) & 1 != 0 && self.threads[*k].state != State::Exited;
        let members: Vec<usize> = (first..end).filter(in_mask).collect();
        let there = |k: &usize| {
            let t = &self.threads[*k];
            t.state == State::Sync(mask) && warp::same(&p.code[t.pc as usize], code)
        };
        if !members.iter().all(there) {
            return Ok(());
        }
        let codes: Vec<_> = members.iter().map(|k| &p.code[self.threads[*k].pc as usize]).collect();
        let r = warp::collective(env, &mut self.threads, &members, &codes);
        r.map_err(|e| self.error(env, i, e))?;
        for k in members {
            self.threads[k].state = State::Ready;
            self.threads[k].pc += 1;
        }
        Ok(())
    }

    /// A thread arrives at a barrier of the block.
    fn barrier(&mut self, env: &mut Env<'_, '_>, i: usize) -> Res<()> {
        let t = &self.threads[i];
        let code = &env.program.code[t.pc as usize];
        let inst = code.inst;
        if inst.has(Mod::cluster) {
            // Arriving is waiting's business.
            if inst.has(Mod::arrive) {
                self.threads[i].pc += 1;
            } else {
                self.threads[i].state = State::Barrier(CLUSTER_BARRIER);
            }
            return Ok(());
        }
        let ops = &inst.operands[usize::from(inst.has(Mod::red))..];
        let (numbers, predicate) = match ops.split_last() {
            Some((p, rest)) if inst.has(Mod::red) => (rest, t.read(env, p, Type::pred)? != 0),
            _ => (ops, false),
        };
        let number = match numbers.first() {
            Some(o) => t.read(env, o, Type::u32)? as u32,
            None => 0,
        };
        let expected = match numbers.get(1) {
            Some(o) => t.read(env, o, Type::u32)? as u32,
            None => 0,
        };
        let Some(b) = self.barriers[..16].get_mut(number as usize) else {
            return Err(format!("there is no barrier {number}").into());
        };
        if !expected.is_multiple_of(32) {
            return Err(format!("barrier for {expected} threads, which is not a multiple of 32").into());
        }
        if b.arrived > 0 && b.expected != expected {
            return Err(
                format!("barrier {number} is waiting for {} threads, not {expected}", b.expected).into()
            );
        }
        b.expected = expected;
        b.arrived += 1;
        b.count += u32::from(predicate);
        if inst.has(Mod::arrive) {
            self.threads[i].pc += 1;
        } else {
            self.threads[i].state = State::Barrier(number as u8);
        }
        self.complete(env, number as usize).map_err(|e| e.message.into())
    }

    /// Lets the threads at a barrier go on if all have arrived.
    fn complete(&mut self, env: &mut Env<'_, '_>, number: usize) -> Result<(), SimError> {
        let b = self.barriers[number];
        let expected = if b.expected == 0 { self.live } else { b.expected };
        if b.arrived < expected {
            return Ok(());
        }
        // A warp arrives as a whole; at an aligned barrier its threads must come to the same instruction.
        for first in (0..self.threads.len()).step_by(32) {
            let warp = first..self.threads.len().min(first + 32);
            let waits = |i: &usize| self.threads[*i].state == State::Barrier(number as u8);
            let Some(one) = warp.clone().find(waits) else { continue };
            let code = |i: usize| &env.program.code[self.threads[i].pc as usize];
            let aligned = |i: usize| code(i).inst.op == Op::bar || code(i).inst.has(Mod::aligned);
            let mut left = warp.clone().filter(|i| self.threads[*i].state != State::Exited);
            if warp.clone().filter(waits).any(aligned) {
                if left.any(|i| !waits(&i) || self.threads[i].pc != self.threads[one].pc) {
                    let what =
                        "the threads of a warp part at an aligned barrier, which has no defined result";
                    return Err(self.error(env, one, what));
                }
            } else if left.any(|i| !waits(&i)) {
                return Ok(());
            }
        }
        self.barriers[number] = Barrier::default();
        for i in 0..self.threads.len() {
            let t = &mut self.threads[i];
            if t.state != State::Barrier(number as u8) {
                continue;
            }
            let inst = env.program.code[t.pc as usize].inst;
            let result = match inst.one_of(&[Mod::popc, Mod::and, Mod::or]) {
                Some(Mod::popc) => Some((b.count, Type::u32)),
                Some(Mod::and) => Some((u32::from(b.count == b.arrived), Type::pred)),
                Some(_) => Some((u32::from(b.count != 0), Type::pred)),
                None => None,
            };
            t.state = State::Ready;
            let r = match result {
                Some((bits, ty)) => t.write(env.program, &inst.operands[0], bits.into(), ty),
                None => Ok(()),
            };
            t.pc += 1;
            r.map_err(|e| self.error(env, i, e))?;
        }
        Ok(())
    }
}
