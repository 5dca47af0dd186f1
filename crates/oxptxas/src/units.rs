//! Functions through lowering, optimization and the backend: each on its own, in parallel.

use crate::output::CANCELLED;
use crate::settings::Settings;
use crate::timeline::{Event, Stage, Timeline};
use backend::Code;
use backend::groups::Touched;
use ori::phase::Report;
use ori::{Keeps, Manager, Plan};
use ptx::{Diagnostic, FuncId, LineIndex, Module};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A compiled function, and how long it took.
pub(crate) type Compiled = (Code, Duration);

/// What came of compiling a function that is part of instructions.
type Path = Result<Code, Vec<Diagnostic>>;

/// Functions that are parts of instructions, compiled when somebody first needs them.
pub(crate) struct Paths {
    /// Registers that one may use.
    limit: u8,
    /// What those keep that need not follow the convention.
    keeps: Keeps,
    known: Mutex<FxHashMap<String, Arc<OnceLock<Path>>>>,
    /// What is shown of their phases, by name.
    shown: Mutex<BTreeMap<String, String>>,
}

impl Paths {
    /// None yet; each is to have no more than so many registers. `kernels`: nothing but kernels needs them.
    pub(crate) fn new(limit: Option<u8>, kernels: bool) -> Paths {
        let keeps = if kernels { Keeps::Unchanged } else { Keeps::FramePointer };
        Paths { limit: limit.unwrap_or(u8::MAX), keeps, known: Mutex::default(), shown: Mutex::default() }
    }
}

/// What is the same for all functions.
pub(crate) struct Units<'a> {
    pub(crate) module: &'a Module,
    pub(crate) layout: &'a lower::ModuleLayout,
    pub(crate) lines: &'a LineIndex,
    pub(crate) options: lower::Options<'a>,
    pub(crate) settings: &'a Settings,
    /// What is asked of the phases of all functions.
    pub(crate) plan: Plan,
    pub(crate) paths: Paths,
}

/// What became of a function: its code and what happened in its phases, when it began, and on which thread.
struct Done {
    code: Result<Code, Vec<Diagnostic>>,
    lowered: Duration,
    report: Report,
    start: Instant,
    whole: Duration,
    thread: usize,
}

/// Works on all of `jobs`, on as many threads as `wanted` or as there are processors, but never on more than there are of
/// either, or jobs: starting threads takes longer than most kernels. `work` is told the number of its thread.
///
/// The threads are this call's own and take nothing but its jobs: a caller may itself be one of many jobs of a pool, and a
/// pool's thread that waits would start the next of those on top of this one's stack, again and again.
pub(crate) fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    wanted: Option<usize>,
    work: impl Fn(usize, &J) -> R + Sync,
) -> Vec<R> {
    // Asking how many processors there are takes as long as a small kernel's lowering.
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match jobs.len().min(wanted.unwrap_or(usize::MAX)) {
        0 | 1 => 1,
        most => most.min(processors()),
    };
    let next = AtomicUsize::new(0);
    let worker = |thread: usize| {
        let mut done: Vec<(usize, R)> = Vec::new();
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(k) else { return done };
            done.push((k, work(thread, job)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let worker = &worker;
        // A system that gives no more threads leaves the work to those there are.
        let started = |n| std::thread::Builder::new().spawn_scoped(scope, move || worker(n)).ok();
        let others: Vec<_> = (1..threads).map_while(started).collect();
        let mut all = worker(0);
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_unstable_by_key(|(k, _)| *k);
    all.into_iter().map(|(_, r)| r).collect()
}

/// What a panic in the compilation of a function becomes: an error that says in which phase it was. The panic's own words
/// have been told on standard error.
fn internal_error(span: Option<ptx::Span>, name: &str) -> Vec<Diagnostic> {
    let phase = ori::Phase::current().map_or("lowering", ori::Phase::name);
    let message = format!("internal error: '{name}' could not be compiled (phase {phase}); please report it");
    vec![Diagnostic { span, ..Diagnostic::whole(message) }]
}

/// Why there is no code.
struct Refused {
    diagnostics: Vec<Diagnostic>,
    /// See [`backend::Error`].
    groups_touched: Option<Touched>,
    /// See [`backend::Error`].
    pool: bool,
}

impl Units<'_> {
    /// Compiles functions, each within its number of registers, in the order of `jobs`.
    pub(crate) fn compile(
        &self,
        jobs: &[(FuncId, Option<u32>)],
        timeline: &mut Timeline,
    ) -> Vec<Result<Compiled, Vec<Diagnostic>>> {
        let one = |thread: usize, job: &(FuncId, Option<u32>)| self.function(*job, thread);
        let done: Vec<Done> = match self.plan.in_order() {
            true => jobs.iter().map(|job| one(0, job)).collect(),
            false => in_parallel(jobs, self.settings.threads, one),
        };
        let mut out = Vec::new();
        for (done, (id, _)) in done.into_iter().zip(jobs) {
            let name = &self.module.funcs[*id].name;
            if self.plan.timed {
                let event = |stage, start: Instant, length| Event {
                    stage,
                    unit: name.clone(),
                    start: timeline.since(start),
                    length,
                    thread: done.thread,
                };
                let mut events = vec![event(Stage::Unit, done.start, done.whole)];
                events.push(event(Stage::DagGen, done.start, done.lowered));
                events.push(event(
                    Stage::Ocg,
                    done.start + done.lowered,
                    done.whole.saturating_sub(done.lowered),
                ));
                events.extend(
                    done.report.times.iter().map(|(p, at, time)| event(Stage::Phase(*p), *at, *time)),
                );
                timeline.events.extend(events);
            }
            timeline.show(name, &done.report.text);
            out.push(done.code.map(|code| (code, done.whole)));
        }
        out
    }

    fn function(&self, (id, limit): (FuncId, Option<u32>), thread: usize) -> Done {
        let start = Instant::now();
        let func = &self.module.funcs[id];
        let options = lower::Options { maxrregcount: limit, ..self.options.clone() };
        let tuning = self.settings.knobs.tuned.get(&func.name).cloned().unwrap_or_default();
        let mut manager = Manager::tuned(&self.plan, tuning.clone());
        if self.plan.cancelled() {
            let code = Err(vec![Diagnostic::whole(CANCELLED)]);
            return Done {
                code,
                lowered: Duration::ZERO,
                report: manager.report,
                start,
                whole: start.elapsed(),
                thread,
            };
        }
        let lower = || lower::lower_function(self.module, id, self.layout, &options);
        ori::Phase::enter(None);
        let lowered = catch_unwind(AssertUnwindSafe(lower))
            .unwrap_or_else(|_| Err(internal_error(Some(func.span), &func.name)));
        let lowering = start.elapsed();
        let machine_code = || {
            lowered.and_then(|mut func| {
                let (mut options, mut steady, mut one_by_one) = (options.clone(), None, None);
                loop {
                    self.prepare(&mut func, &tuning);
                    match self.machine_code(id, func, &mut manager) {
                        Err(Refused { groups_touched: how @ Some(_), .. }) if !options.serial_groups => {
                            options.serial_groups = true;
                            one_by_one = how;
                        }
                        // An order in which there is no room between a product and the wait for it.
                        Err(Refused { groups_touched: Some(_), .. })
                            if manager.admits(backend::phases::PREPASS) =>
                        {
                            manager.leave_out(backend::phases::PREPASS);
                        }
                        Err(Refused { pool: true, diagnostics, .. }) if !options.steady_registers => {
                            options.steady_registers = true;
                            steady = diagnostics.into_iter().next().map(|d| d.message);
                        }
                        Ok(code) => {
                            let products = code.insts.iter().any(|i| i.op.is_group_product());
                            let one_by_one =
                                one_by_one.or(options.serial_groups.then_some(Touched::Unplanned));
                            return Ok(Code { steady, one_by_one: one_by_one.filter(|_| products), ..code });
                        }
                        Err(e) => return Err(e.diagnostics),
                    }
                    func = lower::lower_function(self.module, id, self.layout, &options)?;
                }
            })
        };
        let code = catch_unwind(AssertUnwindSafe(machine_code))
            .unwrap_or_else(|_| Err(internal_error(Some(func.span), &func.name)));
        Done { code, lowered: lowering, report: manager.report, start, whole: start.elapsed(), thread }
    }

    /// Says what holds for a function alone.
    fn prepare(&self, func: &mut ori::Function, tuning: &ori::Tuning) {
        func.tune(tuning.clone());
        func.remarks = self.settings.knobs.remarks.then(Vec::new);
    }

    /// The functions that are parts of instructions and that these call.
    pub(crate) fn shared<'c>(
        &self,
        codes: impl Iterator<Item = &'c Code>,
        timeline: &mut Timeline,
    ) -> Result<Vec<(String, Code)>, Vec<Diagnostic>> {
        let mut names: Vec<&str> = codes
            .flat_map(|c| &c.callees)
            .filter_map(|c| match c {
                ori::Callee::Internal(name) if name.starts_with(ori::abi::SHARED) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        let one = |name: &str| Ok((name.to_string(), self.path(name, Code::clone)?));
        let codes = names.into_iter().map(one).collect();
        let shown = std::mem::take(&mut *self.paths.shown.lock().unwrap_or_else(PoisonError::into_inner));
        shown.iter().for_each(|(name, text)| timeline.show(name, text));
        codes
    }

    /// What is wanted of the function that is part of instructions and has this name.
    fn path<R>(&self, name: &str, wanted: impl FnOnce(&Code) -> R) -> Result<R, Vec<Diagnostic>> {
        let place = {
            let mut known = self.paths.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(name.to_string()).or_default().clone()
        };
        place.get_or_init(|| self.compile_path(name)).as_ref().map(wanted).map_err(Vec::clone)
    }

    fn compile_path(&self, name: &str) -> Path {
        let internal = |what: String| vec![Diagnostic::whole(format!("internal error: {name}: {what}"))];
        let mut func = lower::shared_function(name, self.settings.target, self.paths.limit)
            .ok_or_else(|| internal("no such function".into()))?;
        func.relocatable = self.options.relocatable;
        func.apart = self.options.apart;
        if !func.relocatable && ori::abi::is_private(name) {
            func.keeps = self.paths.keeps;
        }
        let mut manager = Manager::new(&self.plan);
        manager.show(lower::PHASE, &func);
        opt::optimize(&mut func, &mut manager).map_err(|e| internal(e.to_string()))?;
        let code =
            backend::compile(func, &mut manager, self.settings.serial).map_err(|e| internal(e.message))?;
        let shown = std::mem::take(&mut manager.report.text);
        self.paths.shown.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string(), shown);
        // Callers rely on it.
        let may = if name.starts_with(ori::abi::MEETING) { ori::abi::MEETING_UNIFORM } else { 0..0 };
        let other = |r: &sass::Reg| {
            r.file == sass::RegFile::UP || r.file == sass::RegFile::UR && !may.contains(&r.index)
        };
        if code.changes().iter().any(other) || code.regs > ori::abi::SHARED_REGISTERS.into() {
            return Err(internal("more registers than it may use".into()));
        }
        Ok(code)
    }

    fn machine_code(
        &self,
        id: FuncId,
        mut func: ori::Function,
        manager: &mut Manager<'_>,
    ) -> Result<Code, Refused> {
        let span = self.module.funcs[id].span;
        let internal = |message: String| Refused {
            diagnostics: vec![Diagnostic::error(span, message)],
            groups_touched: None,
            pool: false,
        };
        manager.show(lower::PHASE, &func);
        opt::optimize(&mut func, manager).map_err(|e| internal(format!("internal error: {e}")))?;
        if manager.cancelled() {
            return Err(internal(CANCELLED.into()));
        }
        for (n, callee) in func.callees.iter().enumerate() {
            if let ori::Callee::Internal(name) = callee
                && ori::abi::is_private(name)
                && !func.relocatable
            {
                let refused = |diagnostics| Refused { diagnostics, groups_touched: None, pool: false };
                func.changes.insert(n as u32, self.path(name, Code::changes).map_err(refused)?);
            }
        }
        backend::compile(func, manager, self.settings.serial).map_err(|e| {
            let mut d = internal(e.message);
            if e.line != 0 {
                let start = self.lines.offset(e.line);
                d.diagnostics[0].span = Some(ptx::Span { start, end: start });
            }
            (d.groups_touched, d.pool) = (e.groups_touched, e.pool);
            d
        })
    }
}
