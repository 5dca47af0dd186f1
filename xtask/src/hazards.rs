//! The hazard checker against the reference compiler's code.

use crate::code::{Files, files, jobs, reference};
use rayon::prelude::*;
use sass::{Control, Target};
use sim::hazard::{self, Class, Kind, Minima};
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files, cubins of ptxas, or folders of them.
    #[command(flatten)]
    files: Files,
    /// Sabotaged copies per kernel and kind.
    #[arg(long, default_value_t = 8)]
    copies: usize,
    /// Take the least distances from one half of the files, and test on the other.
    #[arg(long)]
    held_out: bool,
    /// Add to the table that there is.
    #[arg(long)]
    add: bool,
}

type Loaded = Vec<(Target, hazard::Code)>;

/// Code of a cubin.
fn open(bytes: &[u8]) -> Result<Loaded, String> {
    let sm = cubin::read::read(bytes)?.sm;
    let target = Target::new(sm).ok_or("unknown target")?;
    Ok(hazard::load(bytes)?.into_iter().map(|(_, code)| (target, code)).collect())
}

fn load(root: &Path, bin: &Path, options: &Options) -> Loaded {
    let is_cubin = |p: &PathBuf| p.extension().is_some_and(|x| x == "cubin");
    let (cubins, ptx): (Vec<PathBuf>, Vec<PathBuf>) = options.files.paths.iter().cloned().partition(is_cubin);
    let cubins: Vec<PathBuf> =
        cubins.into_iter().chain(ptx.iter().filter(|p| p.is_dir()).flat_map(|p| files(p, "cubin"))).collect();
    let codes = jobs(root, &ptx, &options.files.sm);
    let loaded: Vec<Result<Loaded, String>> = codes
        .par_iter()
        .map(|(ptx, sm)| open(&reference(root, bin, ptx, sm)?))
        .chain(cubins.par_iter().map(|f| open(&std::fs::read(f).map_err(|e| e.to_string())?)))
        .collect();
    loaded
        .into_iter()
        .flat_map(|r| {
            r.unwrap_or_else(|e| {
                eprintln!("{e}");
                vec![]
            })
        })
        .collect()
}

/// Writes the table of least distances.
pub fn mine(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let codes = load(root, bin, options);
    let mut minima = if options.add { Minima::built_in().clone() } else { Minima::default() };
    for (target, code) in &codes {
        code.distances(&mut |d| minima.add(*target, Class::of(d), d.cycles));
    }
    let path = root.join("crates/sim/src/hazard/minima.tsv");
    std::fs::write(&path, minima.print()).map_err(|e| e.to_string())?;
    let count: usize = codes.iter().map(|(_, c)| c.insts().len()).sum();
    println!("{count} words of {} kernels; wrote {}", codes.len(), path.display());
    Ok(())
}

/// Checks the reference compiler's code, which has no hazards.
pub fn check(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let (mut instructions, mut unknown, mut found) = (0, 0, 0);
    for (target, code) in load(root, bin, options) {
        let (violations, stats) = code.check(Minima::built_in());
        instructions += stats.instructions;
        unknown += stats.unknown;
        found += violations.len();
        for v in &violations {
            let text = |at: i64| match code.insts().get((at / 16) as usize) {
                Some(Some(inst)) => sass::print(inst, target).to_string(),
                _ => "?".into(),
            };
            println!("{target}: {v}: {} -> {}", text(v.on), text(v.at));
        }
    }
    println!("{instructions} instructions, {unknown} of them unknown, {found} hazards");
    if found == 0 { Ok(()) } else { Err("hazards in code that works".into()) }
}

/// A control field that no longer covers a dependence.
struct Sabotage {
    kind: &'static str,
    at: usize,
    ctrl: Control,
}

/// Makes copies of the reference compiler's code with one control field spoilt and counts the finds.
pub fn sabotage(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let mut codes = load(root, bin, options);
    let mut learnt = None;
    if options.held_out {
        // The kernels of a file are neighbours; every second sixteen of them is for learning.
        let (learn, test): (Vec<_>, Vec<_>) =
            codes.into_iter().enumerate().partition(|(i, _)| i / 16 % 2 == 0);
        let mut seen = vec![];
        for (_, (target, code)) in &learn {
            code.distances(&mut |d| seen.push((*target, Class::of(d), d.cycles)));
        }
        codes = test.into_iter().map(|(_, c)| c).collect();
        let minima = Minima::of(seen);
        let (mut alarms, mut dependences) = (0, 0);
        for (target, code) in &codes {
            alarms += code.check(&minima).0.len();
            code.distances(&mut |d| dependences += usize::from(minima.least(*target, Class::of(d)) > 0));
        }
        println!(
            "learnt from {} kernels; {alarms} false alarms in {dependences} dependences of {} others",
            learn.len(),
            codes.len()
        );
        learnt = Some(minima);
    }
    let minima = learnt.as_ref().unwrap_or(Minima::built_in());
    let kinds = ["stall lowered", "wait dropped", "scoreboard changed"];
    let tried: Vec<(&'static str, bool, String)> = codes
        .par_iter()
        .flat_map_iter(|(target, code)| {
            let clean = code.check(minima).0.is_empty();
            let plans = if clean { plan(*target, code, options.copies) } else { vec![] };
            plans.into_iter().map(move |s| {
                let copy = code.with_control(s.at, s.ctrl);
                let found = !copy.check(minima).0.is_empty();
                (s.kind, found, format!("{target}: {} at {:#x}", s.kind, s.at * 16))
            })
        })
        .collect();
    for kind in kinds {
        let of: Vec<_> = tried.iter().filter(|t| t.0 == kind).collect();
        let found = of.iter().filter(|t| t.1).count();
        println!("{kind}: {found} of {} found", of.len());
        of.iter().filter(|t| !t.1).take(5).for_each(|t| println!("  missed: {}", t.2));
    }
    Ok(())
}

/// Every n-th of a list, at most `count` of them.
fn sample<T: Copy>(list: &[T], count: usize) -> Vec<T> {
    let step = list.len().div_ceil(count.max(1)).max(1);
    list.iter().copied().step_by(step).collect()
}

fn plan(target: Target, code: &hazard::Code, copies: usize) -> Vec<Sabotage> {
    let ctrl = |at: usize| Control::from_bits(code.word(at));
    let mut plans = vec![];
    // A dependence within a block that has its least distance: any stall between the two may go.
    let mut least = vec![];
    code.distances(&mut |d| {
        let (from, to) = (d.at.0 / 16, d.at.1 / 16);
        let straight = from < to && (from..to).all(|k| !code.ends_block(k as usize));
        let min = Minima::built_in().least(target, Class::of(d));
        if straight && d.cycles == min && d.kind != Kind::Write && ctrl(from as usize).stall > 1 {
            least.push(from as usize);
        }
    });
    least.dedup();
    for at in sample(&least, copies) {
        let old = ctrl(at);
        plans.push(Sabotage { kind: "stall lowered", at, ctrl: Control { stall: old.stall - 1, ..old } });
    }
    let pairs = code.waited_results();
    for (_, at) in sample(&pairs, copies) {
        plans.push(Sabotage { kind: "wait dropped", at, ctrl: Control { wait: 0, ..ctrl(at) } });
    }
    for (at, reader) in sample(&pairs, copies) {
        let old = ctrl(at);
        // A scoreboard that nobody waits for in time.
        let waited = (at + 1..=reader).fold(0, |mask, k| mask | ctrl(k).wait);
        if let Some(free) = (0..6).find(|s| waited >> s & 1 == 0) {
            let ctrl = Control { write_sb: Some(free), ..old };
            plans.push(Sabotage { kind: "scoreboard changed", at, ctrl });
        }
    }
    plans
}
