//! `--search`: many codes for each kernel, of which the model of docs/cycles.md says which is fastest. What is tried is a
//! [`Tuning`]: a phase less, more or fewer registers, loops unrolled more or less, other orders of instructions.
//!
//! Launches are made up from the kernel's PTX. Codes count by the product of what they take alone and where the multiprocessor
//! is full, over all launches. What is taken must be slower nowhere, and let as many warps fit: launches that users have are
//! others. A code that leaves something else in memory is none.
//!
//! All is decided by counted work, so that the same source gives the same bytes on any machine. A kernel that the simulator
//! cannot execute stays as it is.

use crate::output::{Failure, Output};
use crate::pipeline;
use crate::settings::Settings;
use crate::units::in_parallel;
use ori::{Phase, Tuning};
use ptx::{Diagnostic, Module, Severity};
use rustc_hash::FxHashMap;
use sass::target::SmInfo;
use sim::cycles::{COPIES, ENOUGH, LIMIT, Recorded, made_up};
use sim::launch::Launch;
use sim::memory::Memory;
use sim::sass::Options;

/// One thing that may be chosen otherwise.
#[derive(Clone, Copy)]
enum Change {
    Without(Phase),
    Registers(u8),
    Unroll(i8),
    Latency(u16),
    Order(u16),
}

/// What is tried alone, and then together where it was of use.
const CHANGES: &[Change] = &[
    Change::Without(backend::phases::BALANCE),
    Change::Without(backend::phases::COUNTERS),
    Change::Without(opt::hoist_loads::PASS.phase),
    Change::Without(opt::literals::PASS.phase),
    Change::Without(opt::narrow::PASS.phase),
    Change::Without(opt::predication::PASS.phase),
    Change::Without(backend::phases::PREPASS),
    Change::Without(backend::phases::REMAT),
    Change::Without(opt::rotate::PASS.phase),
    Change::Without(backend::phases::SCHEDULE),
    Change::Without(opt::selects::PASS.phase),
    Change::Without(opt::shift_add::PASS.phase),
    Change::Without(opt::sink::PASS.phase),
    Change::Without(opt::three_inputs::PASS.phase),
    Change::Without(opt::uniform_constants::PASS.phase),
    Change::Without(opt::vectorize::PASS.phase),
    Change::Without(opt::warp_atomics::PASS.phase),
    Change::Registers(24),
    Change::Registers(32),
    Change::Registers(40),
    Change::Registers(48),
    Change::Registers(64),
    Change::Registers(80),
    Change::Registers(96),
    Change::Registers(128),
    Change::Registers(168),
    Change::Unroll(-2),
    Change::Unroll(-1),
    Change::Unroll(1),
    Change::Unroll(2),
    Change::Latency(40),
    Change::Latency(120),
    Change::Latency(600),
];

/// Orders that are tried on top.
const ORDERS: u16 = 24;

/// Changes that were of use which are tried together.
const TOGETHER: usize = 8;

impl Change {
    fn on(self, t: &Tuning) -> Tuning {
        let t = t.clone();
        match self {
            Change::Without(phase) => t.leaving_out(phase),
            Change::Registers(registers) => Tuning { registers, ..t },
            Change::Unroll(unroll) => Tuning { unroll, ..t },
            Change::Latency(latency) => Tuning { latency, ..t },
            Change::Order(order) => Tuning { order, ..t },
        }
    }
}

/// Seeds of the launches that are made up, and how many are used.
const SEEDS: std::ops::Range<u64> = 1000..1006;
const LAUNCHES: usize = 3;

/// A code counts as faster from this share of the time on, and as slower from the second one.
const FASTER: f64 = 0.998;
const SLOWER: f64 = 1.005;

/// A launch, and what the plain code does on it.
struct Trial {
    launch: Launch,
    memory: Memory,
    time: Time,
}

/// What code takes on a launch: cycles alone and where the multiprocessor is full; warps for which there are registers.
struct Time {
    cycles: [u64; 2],
    warps: u32,
}

/// A kernel and what is found about it.
struct Subject {
    name: String,
    launches: Vec<Trial>,
    best: Tuning,
    /// Its time as a share of the plain code's.
    share: f64,
}

/// Compiles with a search.
///
/// # Errors
/// What plain compilation says.
pub(crate) fn compile(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    let plain = Settings { search: false, ..settings.clone() };
    let output = pipeline::compile_to_end(source, file, &plain)?;
    let Ok(module) = pipeline::front_end(source, file, settings.target, &settings.target.to_string()) else {
        return Ok(output);
    };
    let search = Search { source, file, settings: &plain, module: &module };
    let mut tuned = plain.clone();
    let mut said = Vec::new();
    // In the order of the source.
    for kernel in output.kernels.iter().rev().filter(|k| k.entry) {
        let found = search.subject(&kernel.name, &output.cubin).map(|s| search.improve(s));
        said.push(say(&kernel.name, found.as_ref()));
        if let Some(s) = found.filter(|s| s.best != Tuning::default()) {
            tuned.knobs.tuned.insert(s.name, s.best);
        }
    }
    let mut output = if tuned.knobs.tuned == settings.knobs.tuned {
        output
    } else {
        pipeline::compile_to_end(source, file, &tuned)?
    };
    output.warnings.extend(said);
    Ok(output)
}

/// What was found about a kernel, for who reads the log; nothing where it cannot be executed.
fn say(name: &str, found: Option<&Subject>) -> Diagnostic {
    let message = match found {
        None => format!("Search leaves '{name}' as it is: no launch that is made up for it can be executed"),
        Some(s) if s.best == Tuning::default() => format!("Search found nothing faster for '{name}'"),
        Some(s) => {
            let gain = 100.0 * (1.0 - s.share);
            format!(
                "Search took {gain:.1}% off the modelled time of '{name}': -knob 'Tune={name}:{}'",
                s.best
            )
        }
    };
    Diagnostic { severity: Severity::Info, ..Diagnostic::whole(message) }
}

/// What all of a search need.
struct Search<'a> {
    source: &'a str,
    file: &'a str,
    settings: &'a Settings,
    module: &'a Module,
}

impl Search<'_> {
    /// A kernel with launches, if any can be executed.
    fn subject(&self, name: &str, cubin: &[u8]) -> Option<Subject> {
        let run = |seed| {
            let launch = made_up(self.module, name, seed)?;
            let (recorded, memory) = record(cubin, &launch)?;
            Some((recorded.issued(), seed, launch, memory, recorded))
        };
        let mut runs: Vec<_> = SEEDS.filter_map(run).collect();
        runs.sort_by_key(|(issued, seed, ..)| (*issued > ENOUGH, issued.abs_diff(ENOUGH), *seed));
        runs.truncate(LAUNCHES);
        let trial = |(_, _, launch, memory, recorded)| Trial { launch, memory, time: Time::of(&recorded) };
        let launches: Vec<Trial> = runs.into_iter().map(trial).collect();
        let best = self.settings.knobs.tuned.get(name).cloned().unwrap_or_default();
        (!launches.is_empty()).then(|| Subject { name: name.into(), launches, best, share: 1.0 })
    }

    /// Finds better code for it.
    fn improve(&self, mut subject: Subject) -> Subject {
        let start = subject.best.clone();
        // By code, how long it takes.
        let mut known: FxHashMap<Vec<u128>, f64> = FxHashMap::default();
        let alone: Vec<Tuning> = CHANGES.iter().map(|c| c.on(&start)).filter(|t| *t != start).collect();
        let shares = self.shares(&subject, &alone, &mut known);
        let mut useful: Vec<(f64, Change)> = CHANGES
            .iter()
            .filter(|c| c.on(&start) != start)
            .zip(shares)
            .filter_map(|(c, share)| Some((share?, *c)))
            .filter(|(share, _)| *share < FASTER)
            .collect();
        useful.sort_by(|a, b| a.0.total_cmp(&b.0));
        useful.truncate(TOGETHER);
        for (_, change) in useful {
            let both = change.on(&subject.best);
            self.offer(&mut subject, &[both], &mut known);
        }
        let orders: Vec<Tuning> = (1..=ORDERS).map(|n| Change::Order(n).on(&subject.best)).collect();
        self.offer(&mut subject, &orders, &mut known);
        subject
    }

    /// Takes the best of these if it is faster.
    fn offer(&self, subject: &mut Subject, tunings: &[Tuning], known: &mut FxHashMap<Vec<u128>, f64>) {
        let shares = self.shares(subject, tunings, known);
        let found = shares.into_iter().zip(tunings).filter_map(|(share, t)| Some((share?, t)));
        if let Some((share, tuning)) = found.min_by(|a, b| a.0.total_cmp(&b.0))
            && share < FASTER * subject.share
        {
            (subject.share, subject.best) = (share, tuning.clone());
        }
    }

    /// What codes take, as shares of the plain code's time; `None` of what is no code.
    fn shares(
        &self,
        subject: &Subject,
        tunings: &[Tuning],
        known: &mut FxHashMap<Vec<u128>, f64>,
    ) -> Vec<Option<f64>> {
        let codes = in_parallel(tunings, self.settings.threads, |_, t| self.code(subject, t));
        let mut new: Vec<&(Vec<u8>, Vec<u128>)> = Vec::new();
        for code in codes.iter().flatten() {
            if !known.contains_key(&code.1) && !new.iter().any(|n| n.1 == code.1) {
                new.push(code);
            }
        }
        let times = in_parallel(&new, self.settings.threads, |_, (cubin, _)| share(subject, cubin));
        for ((_, words), time) in new.into_iter().zip(times) {
            known.insert(words.clone(), time.unwrap_or(f64::INFINITY));
        }
        let share = |c: Option<(Vec<u8>, Vec<u128>)>| known.get(&c?.1).copied().filter(|s| s.is_finite());
        codes.into_iter().map(share).collect()
    }

    /// A file with the kernel's code, and that code.
    fn code(&self, subject: &Subject, tuning: &Tuning) -> Option<(Vec<u8>, Vec<u128>)> {
        let mut settings = self.settings.clone();
        settings.threads = Some(1);
        settings.entries = vec![subject.name.clone()];
        settings.knobs.tuned.insert(subject.name.clone(), tuning.clone());
        let output = pipeline::compile_to_end(self.source, self.file, &settings).ok()?;
        let (_, mut words) = sim::sass::code(&output.cubin, &subject.name).ok()?;
        let registers = output.kernels.iter().find(|k| k.name == subject.name)?.registers;
        words.push(registers.into());
        Some((output.cubin, words))
    }
}

/// What code takes, as a share of the plain code's time, if it does the same and is slower nowhere.
fn share(subject: &Subject, cubin: &[u8]) -> Option<f64> {
    let mut product = 1.0;
    for trial in &subject.launches {
        let (recorded, memory) = record(cubin, &trial.launch)?;
        if !memory.differences(&trial.memory).is_empty() {
            return None;
        }
        let time = Time::of(&recorded);
        if time.warps < trial.time.warps {
            return None;
        }
        for (new, plain) in time.cycles.iter().zip(trial.time.cycles) {
            let share = *new as f64 / plain as f64;
            if share > SLOWER {
                return None;
            }
            product *= share;
        }
    }
    Some(product.powf(0.5 / subject.launches.len() as f64))
}

impl Time {
    fn of(recorded: &Recorded) -> Time {
        let alone = recorded.report(1);
        let cycles = [alone.cycles, recorded.report(COPIES).cycles].map(|c| c.max(1));
        let warps = SmInfo::warps_with(recorded.registers()).min(alone.warps.1);
        Time { cycles, warps }
    }
}

/// Executes a launch.
fn record(cubin: &[u8], launch: &Launch) -> Option<(Recorded, Memory)> {
    Recorded::with_memory(cubin, launch, Options { limit: LIMIT, ..Options::default() }).ok()
}
