//! Whether verification notices wrong code: single bits of instructions of the reference compiler's cubins are
//! changed so that another instruction stands there.

use crate::code::{jobs, reference};
use rayon::prelude::*;
use sass::Target;
use sim::launch::{Launch, LaunchFile, Rng};
use sim::memory::Memory;
use sim::sass::{Probe, SimError};
use std::path::{Path, PathBuf};

/// What to change.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files or folders of them; kernels/ when there are none.
    paths: Vec<PathBuf>,
    /// For these targets (75, 90a …); without it, those of kernels/ for all and other files for their own.
    #[arg(long, value_delimiter = ',')]
    sm: Vec<String>,
    /// Changed copies of each kernel.
    #[arg(long, default_value_t = 8)]
    copies: usize,
    /// Launches per kernel.
    #[arg(long, default_value_t = 4)]
    seeds: u64,
    /// Print the changes that had an effect and were not noticed.
    #[arg(long)]
    missed: bool,
}

/// The first bit of the control field.
const CONTROL: usize = 105;
/// Warp instructions that the interpreter may run.
const LIMIT: u64 = 100_000;
/// Attempts to find a bit whose change gives another instruction.
const ATTEMPTS: usize = 40;

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    /// The instruction gives the same results.
    NoEffect,
    /// Its results differ, and so does memory, or the run fails.
    Noticed,
    /// Its results differ, but nothing that is stored.
    Missed(String),
    /// The simulator lacks the new instruction.
    NotSimulated,
}

/// A kernel's launches that have a defined result, with what the code leaves there.
struct Subject<'a> {
    cubin: &'a [u8],
    target: Target,
    launches: Vec<(Launch, Memory, u64)>,
}

/// Each launch has other contents of what is not defined: `fill` is its number.
fn simulate(
    cubin: &[u8],
    launch: &Launch,
    fill: usize,
    limit: u64,
    probe: &mut Probe,
) -> Result<(Memory, u64), SimError> {
    let options =
        sim::sass::Options { limit, fill: fill as u64 + 1, strict_descriptors: true, ..Default::default() };
    sim::sass::observe(cubin, launch, options, probe).map(|r| (r.memory, r.issued))
}

/// Launches on which the code agrees with the PTX, and which instructions they execute: those `given`, and made up
/// ones.
fn subject<'a>(
    module: &ptx::Module,
    cubin: &'a [u8],
    target: Target,
    name: &str,
    given: &[Launch],
    seeds: u64,
) -> (Subject<'a>, Vec<bool>) {
    let mut executed: Vec<bool> = Vec::new();
    let mut launches = Vec::new();
    let given = given.iter().filter(|l| l.kernel == name).cloned();
    for launch in given.chain((0..seeds).filter_map(|seed| sim::generate::generate(module, name, seed))) {
        let Ok(expected) = sim::ptx::execute(module, &launch, LIMIT) else { continue };
        let mut probe = Probe::new(&[], None);
        let Ok((memory, issued)) = simulate(cubin, &launch, launches.len(), 10 * LIMIT, &mut probe) else {
            continue;
        };
        let stores = !launch.buffers.is_empty() || !memory.is_untouched();
        if !stores || !memory.differences(&expected.memory).is_empty() {
            continue;
        }
        executed.resize(executed.len().max(probe.executed.len()), false);
        probe.executed.iter().enumerate().for_each(|(i, e)| executed[i] |= e);
        launches.push((launch, memory, issued));
    }
    (Subject { cubin, target, launches }, executed)
}

impl Subject<'_> {
    /// Changes a bit of an instruction at a place of the file.
    fn change(&self, at: usize, pc: u32, bit: usize) -> Option<Outcome> {
        let word = |bytes: &[u8]| u128::from_le_bytes(bytes[at..at + 16].try_into().unwrap_or_default());
        let old = word(self.cubin);
        let new = old ^ 1 << bit;
        let decode = |w| sass::decode(w, self.target, i64::from(pc)).ok();
        let (before, after) = (decode(old)?, decode(new)?);
        if before == after {
            return None;
        }
        let mut cubin = self.cubin.to_vec();
        cubin[at..at + 16].copy_from_slice(&new.to_le_bytes());
        let mut changed = false;
        for (number, (launch, expected, issued)) in self.launches.iter().enumerate() {
            let (mut old, mut new) = (Probe::new(&[], Some(pc)), Probe::new(&[], Some(pc)));
            let limit = 4 * issued + 1000;
            simulate(self.cubin, launch, number, limit, &mut old).ok()?;
            match simulate(&cubin, launch, number, limit, &mut new) {
                Err(e) if e.to_string().contains("supported") => return Some(Outcome::NotSimulated),
                Err(_) => return Some(Outcome::Noticed),
                Ok((memory, _)) if !memory.differences(expected).is_empty() => return Some(Outcome::Noticed),
                Ok(_) => changed |= old.states != new.states,
            }
        }
        let show = |i: &sass::Inst| sass::print(i, self.target).to_string();
        Some(match changed {
            true => Outcome::Missed(format!("{} -> {}", show(&before), show(&after))),
            false => Outcome::NoEffect,
        })
    }
}

fn file(root: &Path, bin: &Path, ptx: &Path, sm: &str, options: &Options) -> Vec<(String, Outcome)> {
    let mut found = Vec::new();
    let Ok(source) = std::fs::read_to_string(ptx) else { return found };
    let Some(target) = Target::parse(&format!("sm_{sm}")) else { return found };
    let Ok(module) = oxsass::verify::module(&source, target) else { return found };
    let Ok(cubin) = reference(root, bin, ptx, sm) else { return found };
    let Ok(ranges) = cubin::read::code_ranges(&cubin) else { return found };
    // A launch file beside the PTX has inputs that suit the kernels.
    let given = std::fs::read_to_string(ptx.with_extension("toml"));
    let given = given.ok().and_then(|t| LaunchFile::parse(&t).ok()).map_or(Vec::new(), |f| f.launch);
    for (number, name) in oxsass::verify::kernels(&module).into_iter().enumerate() {
        let (subject, executed) = subject(&module, &cubin, target, name, &given, options.seeds);
        let places: Vec<usize> = (0..executed.len()).filter(|i| executed[*i]).collect();
        let Some(range) = ranges.get(name).filter(|_| !places.is_empty()) else { continue };
        let mut rng = Rng::new(number as u64 ^ source.len() as u64 ^ u64::from(target.sm) << 32);
        for _ in 0..options.copies {
            let outcome = (0..ATTEMPTS).find_map(|_| {
                let index = places[rng.next() as usize % places.len()];
                let bit = rng.next() as usize % CONTROL;
                let at = range.start + 16 * index;
                (at + 16 <= range.end).then(|| subject.change(at, 16 * index as u32, bit)).flatten()
            });
            found.extend(outcome.map(|o| (format!("{} sm_{sm} {name}", ptx.display()), o)));
        }
    }
    found
}

/// Changes code, verifies it and counts what is noticed.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let jobs = jobs(root, &options.paths, &options.sm);
    let found: Vec<_> = jobs.par_iter().flat_map_iter(|(f, sm)| file(root, bin, f, sm, options)).collect();
    let count = |f: &dyn Fn(&Outcome) -> bool| found.iter().filter(|(_, o)| f(o)).count();
    let noticed = count(&|o| *o == Outcome::Noticed);
    let missed = count(&|o| matches!(o, Outcome::Missed(_)));
    if options.missed {
        for (place, outcome) in &found {
            if let Outcome::Missed(how) = outcome {
                println!("{place}: {how}");
            }
        }
    }
    let (none, lacking) = (count(&|o| *o == Outcome::NoEffect), count(&|o| *o == Outcome::NotSimulated));
    println!(
        "{} changes, {none} of them without an effect on any result, {lacking} not simulated",
        found.len()
    );
    println!("{noticed} of {} noticed", noticed + missed);
    Ok(())
}
