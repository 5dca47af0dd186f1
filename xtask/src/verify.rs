//! Verification over folders of PTX: every kernel, ours or the reference compiler's code.

use crate::code::{How, Source, jobs};
use oxsass::verify::{self, Verdict};
use rayon::prelude::*;
use sass::Target;
use sim::sass::check::Checks;
use std::collections::BTreeMap;
use std::path::Path;

/// What to verify.
#[derive(Clone, clap::Args)]
pub struct Options {
    /// Files, targets, compiler.
    #[command(flatten)]
    source: Source,
    /// Only compile.
    #[arg(long)]
    compile_only: bool,
    /// Launches per kernel.
    #[arg(long, default_value_t = 4)]
    seeds: u64,
    /// Print what these checks find in launches that have the right result (docs/sanitizer.md).
    #[arg(long, default_value = "")]
    check: Checks,
    /// Do what is asynchronous as late as the code and the PTX allow, not at once.
    #[arg(long)]
    late: bool,
    /// Print every kernel's verdict.
    #[arg(long)]
    all: bool,
    /// Once for each phase that can be left out, without it.
    #[arg(long)]
    each_left_out: bool,
}

/// Verdicts by kernel of a file, or why there are none.
type Found = Result<Vec<(String, Verdict)>, String>;

fn file(root: &Path, bin: &Path, ptx: &Path, sm: &str, options: &Options) -> Found {
    let source = std::fs::read_to_string(ptx).map_err(|e| e.to_string())?;
    let target = Target::parse(&format!("sm_{sm}")).ok_or("unknown target")?;
    let module = verify::module(&source, target).map_err(|_| "not accepted".to_string())?;
    let ptxas = options.source.ptxas;
    let compiled = |fmad: bool| {
        let how = How { fmad, lines: options.check.any() };
        options.source.cubin(root, bin, (ptx, &source), sm, how)
    };
    let cubin = compiled(true)?;
    let mut exact = None;
    let mut found: Vec<(String, Verdict)> = Vec::new();
    if options.compile_only {
        return Ok(found);
    }
    for name in verify::kernels(&module) {
        let judge =
            |cubin: &[u8]| verify::kernel_as((&module, &source, cubin), name, 0..options.seeds, options.late);
        let mut verdict = judge(&cubin);
        if matches!(verdict, Verdict::Differs(_) | Verdict::Close) && verify::may_be_contracted(&module) {
            // Contraction may lose or keep what cancels: without it, every bit must agree.
            if exact.is_none() {
                exact = Some(compiled(false)?);
            }
            verdict = verify::despite_contraction(judge(exact.as_deref().unwrap_or(&cubin)));
        }
        let good = matches!(verdict, Verdict::Same | Verdict::Close | Verdict::Silent);
        found.push((name.to_string(), verdict));
        if good && options.check.any() {
            let seeds = (0..options.seeds, options.check);
            for f in verify::findings(&module, &source, &cubin, name, seeds) {
                println!("{} sm_{sm} {f}", ptx.display());
            }
        }
    }
    if !ptxas {
        let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in())?;
        for (name, violations, _) in hazards.iter().filter(|(_, v, _)| !v.is_empty()) {
            found.push((name.clone(), Verdict::Differs(format!("{} hazards", violations.len()))));
        }
        let trust = sim::order::Options::default();
        let split = sim::order::one_per_line(&module, &source);
        let kernels = if split.source == source {
            sim::order::check_cubin(&module, &source, &cubin, trust)?
        } else {
            // Lines with several statements do not say which of them an instruction is of.
            let module = verify::module(&split.source, target).map_err(|_| "not accepted".to_string())?;
            let how = How { lines: options.check.any(), ..How::default() };
            let cubin = options.source.cubin(root, bin, (ptx, &split.source), sm, how)?;
            let mut kernels = sim::order::check_cubin(&module, &split.source, &cubin, trust)?;
            kernels.iter_mut().for_each(|k| split.of_original(k));
            kernels
        };
        for k in kernels {
            let first = k.findings().next();
            if let Some(v) = first {
                found.push((k.name, Verdict::Differs(format!("order: {v}"))));
            } else if k.stats.unchecked > 0 {
                let n = k.stats.unchecked;
                found.push((k.name, Verdict::OutOfScope(format!("order of {n} accesses not checked"))));
            }
        }
    }
    Ok(found)
}

/// Verifies and prints what disagrees, then how many kernels have which verdict; if that is wanted, with each phase left out in turn.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    if !options.each_left_out {
        return once(root, bin, options);
    }
    let mut wrong = Vec::new();
    for phase in oxptxas::phases() {
        println!("without {}:", phase.name());
        let mut without = options.clone();
        without.source.knob.push(format!("DisablePhases={}", phase.name()));
        wrong.extend(once(root, bin, &without).err().map(|e| format!("without {}: {e}", phase.name())));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn once(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let jobs = jobs(root, &options.source.files.paths, &options.source.files.sm);
    let found: Vec<Found> = jobs.par_iter().map(|(f, sm)| file(root, bin, f, sm, options)).collect();
    let (mut counts, mut reasons) = (BTreeMap::<&str, usize>::new(), BTreeMap::<String, usize>::new());
    let mut wrong = 0;
    for ((path, sm), found) in jobs.iter().zip(&found) {
        let kernels = match found {
            Ok(k) => {
                *counts.entry("files compiled").or_default() += 1;
                k
            }
            Err(e) => {
                *counts.entry("files not compiled").or_default() += 1;
                *reasons.entry(format!("not compiled: {}", general(e))).or_default() += 1;
                continue;
            }
        };
        for (name, verdict) in kernels {
            let (label, reason) = match verdict {
                Verdict::Same => ("same", None),
                Verdict::Close => ("same up to rounding", None),
                Verdict::Silent => ("nothing stored", None),
                Verdict::Undefined(e) => ("no defined result", Some(e)),
                Verdict::OutOfScope(e) => ("not simulated", Some(e)),
                Verdict::Differs(_) => ("DIFFERS", None),
            };
            *counts.entry(label).or_default() += 1;
            if let Some(r) = reason {
                *reasons.entry(format!("{label}: {}", general(r))).or_default() += 1;
            }
            wrong += usize::from(matches!(verdict, Verdict::Differs(_)));
            if options.all || matches!(verdict, Verdict::Differs(_)) {
                println!("{} sm_{sm} {name}: {verdict}", path.display());
            }
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|r| std::cmp::Reverse(r.1));
    reasons.iter().take(30).for_each(|(why, n)| println!("{n:6} {why}"));
    counts.iter().for_each(|(what, n)| println!("{n:6} {what}"));
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} kernels disagree")) }
}

/// A message without its numbers and places, so that like ones are counted together.
fn general(message: &str) -> String {
    let message = message.split(" (block").next().unwrap_or(message);
    let text = message.split_once("*/ ").map_or(message, |(_, rest)| rest);
    let mut out = String::new();
    for c in text.chars().take(100) {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}
