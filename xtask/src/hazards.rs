//! The hazard checker against the reference compiler's code.

use crate::code::{Files, files, jobs, reference};
use rayon::prelude::*;
use sass::{Control, Target};
use sim::hazard::{self, Class, Kind, Minima};
use std::collections::BTreeMap;
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
    /// Write the coarser table, by functional units.
    #[arg(long)]
    units: bool,
}

type Loaded = Vec<(Target, hazard::Code)>;

/// Code of a cubin.
fn open(bytes: &[u8]) -> Result<Loaded, String> {
    let sm = cubin::read::read(bytes)?.sm;
    let target = Target::new(sm).ok_or("unknown target")?;
    Ok(hazard::load(bytes)?.into_iter().map(|(_, code)| (target, code)).collect())
}

/// Looks at the code of every file, one after the other: together they may be more than memory holds.
fn each<T: Send>(
    root: &Path,
    bin: &Path,
    options: &Options,
    look: impl Fn(&Path, Loaded) -> T + Sync,
) -> Vec<T> {
    let is_cubin = |p: &PathBuf| p.extension().is_some_and(|x| x == "cubin");
    let (cubins, ptx): (Vec<PathBuf>, Vec<PathBuf>) = options.files.paths.iter().cloned().partition(is_cubin);
    let cubins: Vec<PathBuf> =
        cubins.into_iter().chain(ptx.iter().filter(|p| p.is_dir()).flat_map(|p| files(p, "cubin"))).collect();
    let none = ptx.is_empty() && !cubins.is_empty();
    let codes = if none { Vec::new() } else { jobs(root, &ptx, &options.files.sm) };
    let seen = |path: &Path, bytes: Result<Vec<u8>, String>| match bytes.and_then(|b| open(&b)) {
        Ok(code) => Some(look(path, code)),
        Err(e) => {
            eprintln!("{e}");
            None
        }
    };
    let read = |f: &PathBuf| std::fs::read(f).map_err(|e| format!("{}: {e}", f.display()));
    codes
        .par_iter()
        .map(|(ptx, sm)| seen(ptx, reference(root, bin, ptx, sm)))
        .chain(cubins.par_iter().map(|f| seen(f, read(f))))
        .flatten()
        .collect()
}

fn load(root: &Path, bin: &Path, options: &Options) -> Loaded {
    each(root, bin, options, |_, code| code).into_iter().flatten().collect()
}

/// Writes the table of least distances.
pub fn mine(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let whole = options.add && !options.units;
    let mut minima = if whole { Minima::built_in().clone() } else { Minima::default() };
    let found = each(root, bin, options, |_, codes| {
        let mut seen = Minima::default();
        for (target, code) in &codes {
            code.distances(&mut |d| seen.add(*target, Class::of(d), d.cycles));
        }
        (seen, codes.len(), codes.iter().map(|(_, c)| c.insts().len()).sum::<usize>())
    });
    let (mut kernels, mut words) = (0, 0);
    for (seen, k, w) in &found {
        minima.add_file(seen);
        kernels += k;
        words += w;
    }
    let (name, text) = match options.units {
        true => ("minima-units.tsv", minima.print_units(options.add)),
        false => ("minima.tsv", minima.print()),
    };
    let path = root.join("crates/sim/src/hazard").join(name);
    std::fs::write(&path, text).map_err(|e| e.to_string())?;
    println!("{words} words of {kernels} kernels; wrote {}", path.display());
    Ok(())
}

/// Prints the distances of pairs of opcodes and operands: the least one, how often, the next, how often, of how many.
pub fn print_distances(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let mut seen: BTreeMap<(String, String), BTreeMap<u8, u32>> = BTreeMap::new();
    let shapes = ["WIDE", "HI", "X", "MMA", "F32", "F64", "32", "64", "U64", "S64", "E", "STRICT"];
    let name = |i: &sass::Inst| {
        let mods = i.mods.iter().map(|m| m.name()).filter(|m| shapes.contains(m));
        mods.fold(i.op.name().to_string(), |name, m| name + "." + m)
    };
    let place = |p: hazard::Place| match p.operand {
        hazard::Place::NONE => "guard".to_string(),
        o => format!("{o}.{}", p.nth),
    };
    for (target, code) in load(root, bin, options) {
        code.distances(&mut |d| {
            let (writer, user) = (name(d.writer), name(d.user));
            let kind = match d.kind {
                Kind::Read(how) => format!("{how:?}").to_lowercase(),
                Kind::Write => "write".into(),
                Kind::Overwrite(how) => format!("overwrite-{how:?}").to_lowercase(),
            };
            let from = format!("{}\t{writer}\t{}\t{:?}", target.sm, place(d.from), d.file);
            let to = format!("{kind}\t{user}\t{}", place(d.to));
            *seen.entry((from, to)).or_default().entry(d.cycles).or_default() += 1;
        });
    }
    for ((from, to), counts) in seen {
        let mut least = counts.iter().map(|(cycles, times)| format!("{cycles}\t{times}"));
        let pair = [(); 2].map(|()| least.next().unwrap_or("-\t0".into()));
        let total: u32 = counts.values().sum();
        println!("{from}\t{to}\t{}\t{}\t{total}", pair[0], pair[1]);
    }
    Ok(())
}

/// Checks the reference compiler's code, which has no hazards.
pub fn check(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let files = each(root, bin, options, |path, codes| {
        let (mut sum, mut lines) = (hazard::Stats::default(), Vec::new());
        for (target, code) in codes {
            let (violations, stats) = code.check(Minima::built_in());
            sum.instructions += stats.instructions;
            sum.unknown += stats.unknown;
            let text = |at: i64| match code.insts().get((at / 16) as usize) {
                Some(Some(inst)) => sass::print(inst, target).to_string(),
                _ => "?".into(),
            };
            let line = |v: &hazard::Violation| {
                format!("{} {target}: {v}: {} -> {}", path.display(), text(v.on), text(v.at))
            };
            lines.extend(violations.iter().map(line));
        }
        (sum, lines)
    });
    let count = files.len();
    let (mut instructions, mut unknown, mut found) = (0, 0, 0);
    for (stats, lines) in files {
        instructions += stats.instructions;
        unknown += stats.unknown;
        found += lines.len();
        lines.iter().for_each(|l| println!("{l}"));
    }
    println!("{count} files, {instructions} instructions, {unknown} of them unknown, {found} hazards");
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
