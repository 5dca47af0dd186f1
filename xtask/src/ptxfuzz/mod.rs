//! `cargo xtask ptxfuzz`: random, well-defined PTX through the compiler, compared with the PTX interpreter
//! (docs/verification.md).

mod class;
mod forms;
mod generate;
mod reduce;
mod run;
#[cfg(test)]
mod tests;

use generate::Program;
use rayon::prelude::*;
use run::{Failure, Setup};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(clap::Args)]
pub struct Options {
    /// Number of the first program.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many programs.
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// Targets.
    #[arg(long, value_delimiter = ',', default_value = "75,86,90,120")]
    arch: Vec<u8>,
    /// Optimization levels.
    #[arg(long, value_delimiter = ',', default_value = "0,3")]
    opt: Vec<u8>,
    /// Run ptxas's code too.
    #[arg(long)]
    pub ptxas: bool,
    /// Run ptxas's code only.
    #[arg(long)]
    pub only_ptxas: bool,
    /// Make the first program of each kind of failure small and print it.
    #[arg(long)]
    reduce: bool,
    /// Run the checkers after each phase, as the knob `VerifyEach` does.
    #[arg(long)]
    verify_each: bool,
    /// Print the program instead of running it.
    #[arg(long)]
    print: bool,
    /// Stop at so many failures.
    #[arg(long, default_value_t = 200)]
    failures: usize,
}

/// What a run found.
#[derive(Default)]
pub struct Report {
    /// Programs × targets × levels that were run.
    pub runs: usize,
    /// Failures, with the seed and the target that the program is written for.
    pub failures: Vec<(u64, u8, Failure)>,
}

/// Targets that programs are written for: all later ones run them too.
const WRITTEN_FOR: &[u8] = &[75, 80, 86, 89, 90, 100];

/// For which target the program of a seed is written, if `sm` shall run it.
fn written_for(seed: u64, sm: u8) -> u8 {
    let wish = WRITTEN_FOR[(seed % WRITTEN_FOR.len() as u64) as usize];
    WRITTEN_FOR.iter().copied().filter(|w| *w <= wish.min(sm)).max().unwrap_or(sm)
}

/// Runs programs.
pub fn explore(options: &Options, ptxas: Option<&Path>) -> Report {
    run::watch_panics();
    let report = Mutex::new(Report::default());
    let failed = AtomicUsize::new(0);
    (options.seed..options.seed + options.count).into_par_iter().for_each(|seed| {
        if failed.load(Ordering::Relaxed) >= options.failures {
            return;
        }
        let (runs, found) = one(seed, options, ptxas);
        if let Ok(mut r) = report.lock() {
            r.runs += runs;
            failed.fetch_add(found.iter().filter(|f| !f.1.kind.explained()).count(), Ordering::Relaxed);
            r.failures.extend(found.into_iter().map(|(w, f)| (seed, w, f)));
        }
    });
    let mut report = report.into_inner().unwrap_or_default();
    report.failures.sort_by(|a, b| (a.0, &a.2.setup, a.2.kind).cmp(&(b.0, &b.2.setup, b.2.kind)));
    report
}

/// The program of a seed as a target can run it: its text and its launch.
pub fn program(seed: u64, sm: u8) -> (String, sim::launch::Launch) {
    let p = generate::generate(seed, written_for(seed, sm), false);
    (p.text, p.launch)
}

/// Runs the program of one seed on all targets and levels.
fn one(seed: u64, options: &Options, ptxas: Option<&Path>) -> (usize, Vec<(u8, Failure)>) {
    let mut groups: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for sm in &options.arch {
        groups.entry(written_for(seed, *sm)).or_default().push(*sm);
    }
    let (mut runs, mut found) = (0, Vec::new());
    for (written, targets) in groups {
        let p = generate::generate(seed, written, ptxas.is_some());
        let setups = targets.iter().flat_map(|sm| {
            let vendors = [None, ptxas.map(Path::to_path_buf)];
            let ours = !options.only_ptxas;
            let vendors =
                vendors.into_iter().enumerate().filter(move |(i, v)| *i == 0 && ours || v.is_some());
            vendors.flat_map(move |(_, vendor)| {
                let verify_each = options.verify_each;
                options.opt.iter().map(move |level| Setup {
                    sm: *sm,
                    level: *level,
                    vendor: vendor.clone(),
                    verify_each,
                })
            })
        });
        match run::define(&p, targets[0], false) {
            Err((kind, message)) => {
                let setup = Setup { sm: targets[0], level: 0, vendor: None, verify_each: false };
                found.push((written, Failure { kind, setup, message }));
            }
            Ok(want) => {
                for setup in setups {
                    runs += 1;
                    found.extend(run::check(&p, &want, &setup).map(|f| (written, f)));
                }
            }
        }
    }
    (runs, found)
}

/// The command.
pub fn main(options: &Options, ptxas: Option<&Path>) -> Result<(), String> {
    if options.print {
        let sm = options.arch.first().copied().unwrap_or(75);
        print!(
            "{}",
            generate::generate(
                options.seed,
                written_for(options.seed, sm),
                options.ptxas || options.only_ptxas
            )
            .text
        );
        return Ok(());
    }
    let report = explore(options, ptxas);
    let mut kinds: BTreeMap<String, Vec<&(u64, u8, Failure)>> = BTreeMap::new();
    for f in &report.failures {
        kinds.entry(f.2.signature()).or_default().push(f);
    }
    for (signature, list) in &kinds {
        let (seed, written, f) = list[0];
        let mut setups: Vec<String> = list.iter().map(|(_, _, f)| show(&f.setup)).collect();
        setups.sort();
        setups.dedup();
        let mut seeds: Vec<u64> = list.iter().map(|x| x.0).collect();
        seeds.dedup();
        println!("\n{} × {signature}", list.len());
        println!("  seeds {:?}; {}", &seeds[..seeds.len().min(12)], setups.join(" "));
        println!("  seed {seed}, written for sm_{written}, {}: {}", show(&f.setup), f.message);
        if options.reduce {
            let p: Program = reduce::reduce(&generate::generate(*seed, *written, ptxas.is_some()), f);
            let message = run::define(&p, f.setup.sm, false)
                .ok()
                .and_then(|want| run::check(&p, &want, &f.setup))
                .map_or(String::new(), |f| f.message);
            println!("  reduced, {} threads: {message}\n{}", p.launch.block[0], p.text);
        }
    }
    let explained = report.failures.iter().filter(|f| f.2.kind.explained()).count();
    let failures = report.failures.len() - explained;
    println!(
        "{} runs of {} programs, {failures} failures, {explained} explained",
        report.runs, options.count
    );
    if failures == 0 { Ok(()) } else { Err("failures".into()) }
}

fn show(s: &Setup) -> String {
    format!("sm_{}-O{}{}", s.sm, s.level, if s.vendor.is_some() { "-ptxas" } else { "" })
}
