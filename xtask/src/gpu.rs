//! Launches for a GPU: kernels of PTX files on made-up launches and random programs, with what the PTX interpreter says
//! that memory holds before and after, and our code at several levels. `tools/gpu/cases.py` runs them where there is a GPU
//! (tools/gpu/README.md).
//!
//! The file has a line of JSON for each module, `{file, ptx, code: {LEVEL: hex}}`, and behind it one for each launch of it,
//! `{kernel, grid, block, cluster, shared, params, pointers, memory: [[address, before, after]], variables: {name: after}}`, bytes as
//! hexadecimal digits. Memory is to lie at these very addresses, as pointers are numbers, unless `pointers` says at which bytes of the
//! parameters the only ones are.

use crate::code::{Files, jobs};
use crate::{cycles, ptxfuzz};
use oxsass::compare::{self, Figures};
use oxsass::verify;
use rayon::prelude::*;
use sass::Target;
use serde_json::{Value, json};
use sim::generate::generate;
use sim::launch::{Launch, Prepared};
use sim::ptx::{Fill, Options as How};
use sim::schedule::Schedule;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What to write.
#[derive(clap::Args)]
pub struct Options {
    /// Files and targets.
    #[command(flatten)]
    files: Files,
    /// Launches per kernel.
    #[arg(long, default_value_t = 2)]
    seeds: u64,
    /// Each so many-th file.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Random programs: how many, from --first on, for the first target of --sm.
    #[arg(long, default_value_t = 0)]
    programs: u64,
    /// The first random program.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Kernels to time, of all producers in turn, ours and ptxas's, with what the model of `xtask cycles` says; nothing else then.
    #[arg(long)]
    timed: Option<usize>,
    /// Levels of optimization.
    #[arg(long, value_delimiter = ',', default_value = "3,1,0")]
    opt: Vec<u8>,
    /// Longest PTX, in KiB.
    #[arg(long, default_value_t = 256)]
    most: usize,
    /// Most bytes of memory of a launch, in KiB.
    #[arg(long, default_value_t = 512)]
    memory: usize,
    /// Where to write.
    #[arg(long, short)]
    out: PathBuf,
}

/// Warp instructions that the interpreter may spend on a launch.
const LIMIT: u64 = 200_000;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Our code at each level, without contraction: the interpreter rounds products and sums apart.
fn code(text: &str, target: Target, levels: &[u8]) -> Option<Value> {
    let mut out = serde_json::Map::new();
    for level in levels {
        let settings = oxptxas::Settings { opt_level: *level, fmad: false, ..oxptxas::Settings::new(target) };
        let output = oxptxas::compile(text, "case.ptx", &settings).ok()?;
        out.insert(format!("o{level}"), hex(&output.cubin).into());
    }
    Some(Value::Object(out))
}

/// The launch with what memory holds before and after, if that is defined.
fn case(module: &ptx::Module, launch: &Launch, most: usize) -> Option<Value> {
    let run = |fill, schedule| -> Option<Prepared> {
        let options = How { limit: LIMIT, fill, schedule, ..How::default() };
        sim::ptx::execute_with(module, launch, options).ok()
    };
    let after = run(Fill::Zero, Schedule::Turns)?;
    for (fill, order) in [(Fill::Random(0), 1), (Fill::Byte(0x7f), 2), (Fill::Byte(0x41), 3)] {
        let other = run(fill, Schedule::Random(order))?;
        if !other.memory.differences(&after.memory).is_empty() {
            return None;
        }
    }
    if after.memory.images.all().next().is_some() || after.memory.heap().next().is_some() {
        return None;
    }
    let before = launch.prepare();
    let (mut memory, mut variables, mut bytes) = (Vec::new(), serde_json::Map::new(), 0);
    for a in after.memory.allocations() {
        match before.memory.allocation(a.base) {
            Some(b) => {
                bytes += a.bytes.len();
                memory.push(json!([a.base, hex(&b.bytes), hex(&a.bytes)]));
            }
            // Of a variable that holds addresses nothing can be said.
            None => drop(variables.insert(a.name.clone(), hex(&a.bytes).into())),
        }
    }
    for (address, first, now) in after.memory.pages() {
        bytes += now.len();
        memory.push(json!([address, hex(&first), hex(now)]));
    }
    if bytes > most << 10 {
        return None;
    }
    // Where the parameters are addresses of buffers, which may then lie elsewhere.
    let params = launch.params(&before.addresses, 0);
    let words = (0..params.len().saturating_sub(7)).step_by(8);
    let pointers: Vec<usize> = words
        .filter(|at| {
            let word = sim::memory::little_endian(&params[*at..at + 8]);
            before.addresses.values().any(|a| *a == word)
        })
        .collect();
    Some(json!({
        "pointers": pointers, "kernel": launch.kernel, "grid": launch.grid, "block": launch.block, "cluster": launch.cluster,
        "cooperative": launch.cooperative, "shared": launch.shared, "stack": launch.stack,
        "params": hex(&params), "memory": memory, "variables": variables,
    }))
}

/// The lines of a module, if a launch of it has a result.
fn lines(name: &str, text: &str, target: Target, launches: &[Launch], options: &Options) -> Option<String> {
    let module = verify::module(text, target).ok()?;
    let cases: Vec<Value> = launches.iter().filter_map(|l| case(&module, l, options.memory)).collect();
    if cases.is_empty() {
        return None;
    }
    let head = json!({ "file": name, "ptx": text, "code": code(text, target, &options.opt)? });
    Some(cases.iter().fold(format!("{head}\n"), |mut s, c| {
        let _ = writeln!(s, "{c}");
        s
    }))
}

fn file(path: &Path, sm: &str, options: &Options) -> Option<String> {
    let text = std::fs::read_to_string(path).ok().filter(|t| t.len() <= options.most << 10)?;
    let target = Target::parse(&format!("sm_{sm}"))?;
    let module = verify::module(&text, target).ok()?;
    let kernels = verify::kernels(&module);
    let launches: Vec<Launch> = kernels
        .iter()
        .flat_map(|k| (0..options.seeds).filter_map(|seed| generate(&module, k, seed)))
        .collect();
    lines(&path.display().to_string(), &text, target, &launches, options)
}

/// A kernel as both compilers make it, with the cycles that the model has for each.
fn timed(root: &Path, bin: &Path, options: &Options, job: &cycles::Job) -> Option<String> {
    let text = std::fs::read_to_string(&job.file).ok()?;
    let target = Target::parse(&format!("sm_{}", job.sm))?;
    let module = verify::module(&text, target).ok()?;
    let kernels = verify::kernels(&module);
    let kernel = *kernels.get((job.nth % kernels.len().max(1) as u64) as usize)?;
    let theirs = crate::code::reference(root, bin, &job.file, &job.sm).ok()?;
    let ours = oxptxas::compile(&text, "case.ptx", &oxptxas::Settings::new(target)).ok()?.cubin;
    let seed = compare::seed(&module, &theirs, kernel)?;
    let launch = compare::launch(&module, kernel, seed)?;
    let case = case(&module, &launch, options.memory)?;
    let model = |cubin: &[u8]| Figures::of(cubin, &launch).ok().map(|f| f.cycles);
    let head = json!({
        "file": job.file.display().to_string(), "ptx": "",
        "code": {"ox": hex(&ours), "px": hex(&theirs)}, "model": {"ox": model(&ours)?, "px": model(&theirs)?},
    });
    Some(format!("{head}\n{case}\n"))
}

/// Writes them.
pub fn run(root: &Path, options: &Options) -> Result<(), String> {
    if let Some(n) = options.timed {
        let bin = crate::install_oracles()?;
        let mut found: Vec<String> = Vec::new();
        let jobs = cycles::candidates(&options.files.paths, &options.files.sm, options.first);
        for part in jobs.chunks(32) {
            if found.len() >= n {
                break;
            }
            let more: Vec<String> =
                part.par_iter().filter_map(|job| timed(root, &bin, options, job)).collect();
            found.extend(more);
        }
        found.truncate(n);
        println!("{} kernels", found.len());
        return std::fs::write(&options.out, found.concat()).map_err(|e| e.to_string());
    }
    let files = match options.files.paths.is_empty() && options.programs > 0 {
        true => Vec::new(),
        false => jobs(root, &options.files.paths, &options.files.sm),
    };
    let files: Vec<_> = files.iter().step_by(options.every.max(1)).collect();
    let mut found: Vec<String> = files.par_iter().filter_map(|(p, sm)| file(p, sm, options)).collect();
    let sm = options.files.sm.first().map_or("90", String::as_str);
    let target = Target::parse(&format!("sm_{sm}")).ok_or("unknown target")?;
    let number = sm.trim_end_matches(char::is_alphabetic).parse().map_err(|_| "unknown target")?;
    let programs: Vec<String> = (options.first..options.first + options.programs)
        .into_par_iter()
        .filter_map(|seed| {
            let (text, launch) = ptxfuzz::program(seed, number);
            lines(&format!("program {seed}"), &text, target, &[launch], options)
        })
        .collect();
    found.extend(programs);
    let mut out =
        std::fs::File::create(&options.out).map_err(|e| format!("{}: {e}", options.out.display()))?;
    found.iter().try_for_each(|s| out.write_all(s.as_bytes())).map_err(|e| e.to_string())?;
    let launches: usize = found.iter().map(|s| s.lines().count() - 1).sum();
    println!("{} modules, {launches} launches", found.len());
    Ok(())
}
