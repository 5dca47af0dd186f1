//! `oxsass compare`: our code beside other code.

use super::{Result, launches, load_ptx, own_target, parse_target, read};
use clap::Args;
use oxsass::compare::{self, Figures, LIMIT, Timed};
use oxsass::verify;
use sass::Target;
use serde_json::{Map, Value, json};
use sim::launch::Launch;
use std::io::Write;
use std::path::PathBuf;

/// `oxsass compare`
#[derive(Args)]
pub struct Compare {
    /// The PTX
    file: PathBuf,
    /// Other code of it: a cubin, say the reference compiler's
    #[arg(long, value_name = "CUBIN")]
    against: PathBuf,
    /// The target, `sm_90`; without it, the one that the PTX names
    #[arg(long, value_name = "SM", value_parser = parse_target)]
    arch: Option<Target>,
    /// Take this cubin instead of compiling
    #[arg(long, value_name = "CUBIN")]
    cubin: Option<PathBuf>,
    /// Only this kernel
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// The launches of a launch file instead of made-up ones
    #[arg(long, value_name = "TOML")]
    launch: Option<PathBuf>,
    /// The launch that is made up from this seed; without it, the longest of four that is not too long
    #[arg(long, value_name = "N", conflicts_with = "launch")]
    seed: Option<u64>,
    /// A knob of our compiler, NAME or NAME=VALUE (docs/phases.md)
    #[arg(long, value_name = "KNOB")]
    knob: Vec<String>,
    /// Print an object instead of tables
    #[arg(long)]
    json: bool,
    /// Print all instructions that are executed side by side, and not only the hottest loop
    #[arg(long)]
    whole: bool,
}

impl Compare {
    /// Prints figures of both codes for each kernel.
    pub fn run(self, out: &mut impl Write) -> Result {
        let path = self.file.display().to_string();
        let (source, mut module) = load_ptx(&self.file, "compare starts from PTX")?;
        let theirs = read(&self.against)?;
        let target = self.arch.or(own_target(&module));
        let target = target.ok_or("--arch is needed: the file names no target that is known")?;
        lower::layout::place_params(&mut module, target);
        let ours = match &self.cubin {
            Some(file) => read(file)?,
            None => {
                let mut settings = oxptxas::Settings::new(target);
                self.knob.iter().try_for_each(|k| settings.knobs.add(k))?;
                oxptxas::compile(&source, &path, &settings).map_err(|f| f.render("oxsass"))?.cubin
            }
        };
        let mut found = Vec::new();
        let mut failed = Vec::new();
        for (name, launch) in self.chosen(&module, &theirs)? {
            let timed = |cubin: &[u8], whose: &str| {
                let limit = if self.launch.is_some() { u64::MAX } else { LIMIT };
                let launch = launch.as_ref().ok_or_else(|| "no launch that runs".to_string())?;
                Timed::new(cubin, launch, limit).map_err(|e| format!("{whose}: {e}"))
            };
            match timed(&theirs, "theirs").and_then(|b| Ok((timed(&ours, "ours")?, b))) {
                Ok((a, b)) => found.push((name, a, b)),
                Err(e) => failed.push(format!("{name}: {e}")),
            }
        }
        if self.json {
            let kernels = found
                .iter()
                .map(|(name, a, b)| json!({"name": name, "ours": figures(a), "theirs": figures(b)}));
            let not_timed = &failed;
            let all = json!({"kernels": kernels.collect::<Vec<_>>(), "not_timed": not_timed});
            writeln!(out, "{all}")?;
        } else {
            for (name, a, b) in &found {
                self.show(out, name, a, b)?;
            }
            failed.iter().try_for_each(|f| writeln!(out, "not timed: {f}"))?;
        }
        if found.is_empty() { Err(format!("{path}: no kernel was timed").into()) } else { Ok(()) }
    }

    /// Kernels and their launches.
    fn chosen(&self, module: &ptx::Module, theirs: &[u8]) -> Result<Vec<(String, Option<Launch>)>> {
        let wanted = |name: &str| self.kernel.as_ref().is_none_or(|k| k == name);
        let chosen: Vec<_> = match &self.launch {
            Some(file) => {
                let launches = launches(file)?.into_iter().filter(|l| wanted(&l.kernel));
                launches.map(|l| (l.kernel.clone(), Some(l))).collect()
            }
            None => {
                let names = verify::kernels(module).into_iter().filter(|n| wanted(n));
                let seed = |name: &str| self.seed.or_else(|| compare::seed(module, theirs, name));
                names.map(|n| (n.into(), seed(n).and_then(|s| compare::launch(module, n, s)))).collect()
            }
        };
        match (&self.kernel, chosen.is_empty()) {
            (Some(kernel), true) => {
                Err(format!("{}: there is no kernel '{kernel}'", self.file.display()).into())
            }
            _ => Ok(chosen),
        }
    }

    fn show(&self, out: &mut impl Write, name: &str, ours: &Timed, theirs: &Timed) -> Result {
        writeln!(out, "{name}:")?;
        writeln!(out, "{:>22} {:>12} {:>12} {:>8}", "", "ours", "theirs", "ratio")?;
        for ((what, a), (_, b)) in numbers(ours).into_iter().zip(numbers(theirs)) {
            let ratio = if b > 0 { format!("{:.3}", a as f64 / b as f64) } else { "-".into() };
            let what =
                if what == "cycles_full" { format!("cycles ×{}", compare::COPIES) } else { what.into() };
            writeln!(out, "{:>22} {a:12} {b:12} {ratio:>8}", what.replace('_', " "))?;
        }
        let (a, b) = (ours.report.loads_in_flight, theirs.report.loads_in_flight);
        writeln!(out, "{:>22} {a:12.2} {b:12.2}", "loads in flight")?;
        let part = |t: &Timed| if self.whole { Some((0, u32::MAX)) } else { t.hot_loop() };
        let (a, b) = (part(ours), part(theirs));
        if a.is_none() && b.is_none() {
            return Ok(writeln!(out)?);
        }
        writeln!(
            out,
            "\n  issued stalled  ours, {:<48}   issued stalled  theirs",
            if self.whole { "all" } else { "the hottest loop" }
        )?;
        let (a, b) = (lines(ours, a), lines(theirs, b));
        for k in 0..a.len().max(b.len()) {
            let at = |l: &[String]| l.get(k).cloned().unwrap_or_default();
            writeln!(out, "{:<72} {}", at(&a), at(&b))?;
        }
        Ok(writeln!(out)?)
    }
}

/// Instructions of a part of the code, with how often they issue and what warps wait before them.
fn lines(timed: &Timed, part: Option<(u32, u32)>) -> Vec<String> {
    let Some((first, last)) = part else { return Vec::new() };
    let inside = timed.report.lines.iter().filter(|l| (first..=last).contains(&l.0));
    inside
        .map(|(at, text, issued, stalls)| format!("{issued:8} {:7}  {at:04x} {text}", stalls.total()))
        .collect()
}

/// What is compared, by name.
fn numbers(t: &Timed) -> Vec<(&'static str, u64)> {
    let figures =
        Figures::NAMES.into_iter().zip(t.figures.values()).filter(|(name, _)| *name != "local_bytes");
    figures.chain([("spill_bytes", t.spill_bytes)]).collect()
}

/// The same as an object.
fn figures(t: &Timed) -> Value {
    let mut map: Map<String, Value> =
        numbers(t).into_iter().map(|(name, n)| (name.into(), n.into())).collect();
    map.insert("loads_in_flight".into(), json!((t.report.loads_in_flight * 1000.0).round() / 1000.0));
    Value::Object(map)
}
