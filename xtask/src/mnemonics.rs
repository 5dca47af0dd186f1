//! `cargo xtask mnemonics`: which instructions our code and ptxas's have, on kernels of folders: what one of the two has more often.

use crate::code::reference;
use crate::cycles::{self, Job};
use oxsass::compare::{self, Timed};
use oxsass::verify;
use rayon::prelude::*;
use sass::Target;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Folders of PTX, of which each is a producer, or has producers' folders in it.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Targets, each of which takes every file that it can.
    #[arg(long, value_delimiter = ',', default_value = "75,80,90,100,120")]
    sm: Vec<String>,
    /// Kernels for each target, of all producers in turn.
    #[arg(long, default_value_t = 100)]
    sample: usize,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where it is kept which launches are made up; target/cycles without it.
    #[arg(long)]
    cache: Option<PathBuf>,
    /// What counts as one instruction.
    #[arg(long, value_enum, default_value_t = Detail::Modifiers)]
    by: Detail,
    /// Leave out what differs by fewer thousandths of the instructions that ptxas's code executes on every target.
    #[arg(long, default_value_t = 1.0)]
    least: f64,
    /// Name kernels of ptxas's code that execute this one, and how often, ours and theirs.
    #[arg(long)]
    of: Option<String>,
}

/// What counts as one instruction.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Detail {
    /// The opcode alone.
    Opcode,
    /// With its modifiers.
    Modifiers,
    /// With the kinds of its operands, too.
    Operands,
}

/// The kind of an operand in nvdisasm's spelling.
fn kind(operand: &str) -> String {
    let plain = operand.trim();
    let bare = plain.trim_start_matches(['-', '!', '~', '|']);
    let sign = if plain.starts_with(['-', '|']) && bare.starts_with(['R', 'U', 'c']) { "-" } else { "" };
    let what = match bare {
        "RZ" | "URZ" => "0",
        _ if bare.starts_with("PT") || bare.starts_with("UPT") => "PT",
        _ if bare.starts_with("UR") => "UR",
        _ if bare.starts_with("UP") => "UP",
        _ if bare.starts_with("SR") => bare,
        _ if bare.starts_with('R') => "R",
        _ if bare.starts_with('P') => "P",
        _ if bare.starts_with('c') => "c",
        _ if bare.contains('[') => "[]",
        _ => "imm",
    };
    format!("{sign}{what}")
}

/// What an instruction counts as, of its text.
fn name(text: &str, by: Detail) -> String {
    let text = if text.starts_with('@') { text.split_once(' ').map_or("", |t| t.1) } else { text };
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    match by {
        Detail::Opcode => mnemonic.split('.').next().unwrap_or_default().into(),
        Detail::Modifiers => mnemonic.into(),
        Detail::Operands => {
            let kinds: Vec<String> = operands.split(", ").filter(|o| !o.is_empty()).map(kind).collect();
            format!("{mnemonic} {}", kinds.join(" "))
        }
    }
}

/// How often instructions are executed by a kernel: thousandths of all that the reference compiler's code executes.
type Shares = BTreeMap<String, [f64; 2]>;

/// A kernel.
struct Counted {
    place: String,
    shares: Shares,
}

/// Runs both codes of a kernel. `None` where one of the two can't be run.
fn count(root: &Path, bin: &Path, cache: &Path, job: &Job, by: Detail) -> Option<Counted> {
    let source = std::fs::read_to_string(&job.file).ok()?;
    let target = Target::parse(&format!("sm_{}", job.sm))?;
    let module = verify::module(&source, target).ok()?;
    let kernels = verify::kernels(&module);
    let kernel = *kernels.get((job.nth % kernels.len().max(1) as u64) as usize)?;
    let cubin = || reference(root, bin, &job.file, &job.sm);
    let (seed, figures) = cycles::theirs(cache, &module, &source, (kernel, &job.sm), cubin).ok()?;
    let launch = compare::launch(&module, kernel, seed)?;
    let ours = oxptxas::compile(&source, "kernel.ptx", &oxptxas::Settings::new(target)).ok()?.cubin;
    let mut shares = Shares::new();
    for (side, cubin) in [ours, cubin().ok()?].iter().enumerate() {
        let timed = Timed::new(cubin, &launch, compare::LIMIT).ok()?;
        for (_, text, issues, _) in &timed.report.lines {
            let share = *issues as f64 * 1000.0 / figures.executed.max(1) as f64;
            shares.entry(name(text, by)).or_default()[side] += share;
        }
    }
    let place = format!("{} sm_{} {kernel}", job.file.display(), job.sm);
    Some(Counted { place, shares })
}

/// Prints a table: a row for each instruction, a column for each target, thousandths executed, ours and theirs.
///
/// # Errors
/// When nothing can be compiled.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let cache = options.cache.clone().unwrap_or_else(|| root.join("target/cycles"));
    std::fs::create_dir_all(&cache).map_err(|e| e.to_string())?;
    let mut columns: Vec<Vec<Counted>> = Vec::new();
    for sm in &options.sm {
        let mut found: Vec<Counted> = Vec::new();
        for jobs in cycles::candidates(&options.paths, std::slice::from_ref(sm), options.seed).chunks(32) {
            let more: Vec<_> =
                jobs.par_iter().filter_map(|j| count(root, bin, &cache, j, options.by)).collect();
            found.extend(more);
            if found.len() >= options.sample {
                break;
            }
        }
        found.truncate(options.sample);
        columns.push(found);
    }
    if columns.iter().all(Vec::is_empty) {
        return Err("nothing was compiled".into());
    }
    if let Some(of) = &options.of {
        for kernel in columns.iter().flatten() {
            if let Some([ours, theirs]) = kernel.shares.get(of) {
                println!("{ours:.1}\t{theirs:.1}\t{}", kernel.place);
            }
        }
        return Ok(());
    }
    let mut rows: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for (at, column) in columns.iter().enumerate() {
        for (name, [ours, theirs]) in column.iter().flat_map(|k| &k.shares) {
            let row = rows.entry(name).or_insert_with(|| vec![[0.0; 2]; columns.len()]);
            row[at][0] += ours / column.len() as f64;
            row[at][1] += theirs / column.len() as f64;
        }
    }
    let more = |row: &[[f64; 2]]| row.iter().map(|[ours, theirs]| theirs - ours).fold(0.0, f64::max);
    let fewer = |row: &[[f64; 2]]| row.iter().map(|[ours, theirs]| ours - theirs).fold(0.0, f64::max);
    let head: Vec<String> =
        options.sm.iter().zip(&columns).map(|(sm, c)| format!("sm_{sm} ({})", c.len())).collect();
    for (title, size) in
        [("ptxas's code has more", &more as &dyn Fn(&[[f64; 2]]) -> f64), ("ours has more", &fewer)]
    {
        println!("| {title} | {} |\n|---|{}", head.join(" | "), "---|".repeat(head.len()));
        let mut order: Vec<_> = rows.iter().filter(|r| size(r.1) >= options.least).collect();
        order.sort_by(|a, b| size(b.1).total_cmp(&size(a.1)).then(a.0.cmp(b.0)));
        for (name, row) in order {
            let cell = |[ours, theirs]: &[f64; 2]| match ours + theirs < 0.05 {
                true => String::new(),
                false => format!("{ours:.1}, {theirs:.1}"),
            };
            println!("| `{name}` | {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
        }
        println!();
    }
    Ok(())
}
