//! `cargo xtask vendor-format`: the form of our files beside ptxas's. Both compilers compile the same PTX; what differs in
//! the ELF header, sections, program headers, symbols, `.nv.info` and `.nv.compat` records, and isn't among the
//! differences that are meant (`allowed.rs`), is listed.

mod allowed;
mod facts;

use crate::code::jobs;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files or folders of them; kernels/ when there are none.
    paths: Vec<PathBuf>,
    /// For these targets.
    #[arg(long, value_delimiter = ',', default_value = "75,80,90,100,120")]
    sm: Vec<String>,
    /// With these options, one comparison each.
    #[arg(long, value_delimiter = ',', default_value = "-O3,-c", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Only every so many files.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Our compiler, built already.
    #[arg(long)]
    compiler: Option<PathBuf>,
    /// List every difference with its file, not one for each kind.
    #[arg(long)]
    all: bool,
}

/// A difference: whose fact it is (`-` ptxas's, `+` ours), and what it says.
type Difference = (char, String);

fn compile(cc: &Path, ptx: &Path, sm: &str, option: &str, out: &Path) -> Result<facts::Facts, String> {
    let mut c = Command::new(cc);
    c.arg(format!("-arch=sm_{sm}")).arg(option).arg(ptx).arg("-o").arg(out);
    let done = c.output().map_err(|e| format!("{c:?}: {e}"))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or_default().to_string());
    }
    let bytes = std::fs::read(out).map_err(|e| e.to_string())?;
    facts::read(&bytes)
}

fn differences(theirs: &facts::Facts, ours: &facts::Facts) -> Vec<Difference> {
    let mut count: BTreeMap<&String, i64> = BTreeMap::new();
    for (lines, one) in [(&theirs.0, 1), (&ours.0, -1)] {
        for l in lines {
            *count.entry(l).or_default() += one;
        }
    }
    let mut out = Vec::new();
    for (line, n) in count {
        if n != 0 {
            out.push((if n > 0 { '-' } else { '+' }, line.clone()));
        }
    }
    out
}

/// Compares and prints.
///
/// # Errors
/// If there are differences that are not meant.
pub fn run(root: &Path, bin: &Path, o: &Options) -> Result<(), String> {
    let cc = match &o.compiler {
        Some(path) => path.clone(),
        None => crate::compiler(root)?,
    };
    let dir = root.join("target/vendor-format");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let all = jobs(root, &o.paths, &o.sm);
    let files: BTreeSet<&PathBuf> = all.iter().map(|j| &j.0).collect();
    let chosen: BTreeSet<&PathBuf> = files.into_iter().step_by(o.every.max(1)).collect();
    let work: Vec<(usize, &PathBuf, &String, &String)> = all
        .iter()
        .filter(|j| chosen.contains(&j.0))
        .flat_map(|(f, sm)| o.options.iter().map(move |option| (f, sm, option)))
        .enumerate()
        .map(|(n, (f, sm, option))| (n, f, sm, option))
        .collect();
    // What ptxas refuses, e.g. for an older SM than the PTX's, is not compared.
    let results: Vec<(usize, Result<Vec<Difference>, String>)> = work
        .par_iter()
        .filter_map(|(n, ptx, sm, option)| {
            let file = |whose| dir.join(format!("{n}.{whose}"));
            let theirs = compile(&bin.join("ptxas"), ptx, sm, option, &file("theirs")).ok()?;
            let ours = compile(&cc, ptx, sm, option, &file("ours"));
            for whose in ["theirs", "ours"] {
                let _ = std::fs::remove_file(file(whose));
            }
            Some((*n, ours.map(|ours| differences(&theirs, &ours))))
        })
        .collect();
    report(&work, &results, o.all)
}

fn report(
    work: &[(usize, &PathBuf, &String, &String)],
    results: &[(usize, Result<Vec<Difference>, String>)],
    all: bool,
) -> Result<(), String> {
    let mut meant: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kinds: BTreeMap<(char, String), (usize, usize)> = BTreeMap::new();
    let (mut compared, mut refused, mut clean) = (0, 0, 0);
    for (n, result) in results {
        let Ok(list) = result else {
            refused += 1;
            continue;
        };
        compared += 1;
        let mut open = 0;
        for (whose, line) in list {
            if let Some(why) = allowed::reason(*whose, line) {
                *meant.entry(why).or_default() += 1;
                continue;
            }
            open += 1;
            let (_, ptx, sm, option) = work[*n];
            if all {
                println!("{} sm_{sm} {option}: {whose} {line}", ptx.display());
            }
            let kind = (*whose, facts::kind(line));
            kinds.entry(kind).or_insert((0, *n)).0 += 1;
        }
        clean += usize::from(open == 0);
    }
    println!("meant:");
    meant.iter().for_each(|(why, n)| println!("{n:7}  {why}"));
    if !kinds.is_empty() {
        println!("not meant (- ptxas's, + ours), with one place for each:");
        for ((whose, kind), (n, first)) in &kinds {
            let (_, ptx, sm, option) = work[*first];
            println!("{n:7}  {whose} {kind}   {} sm_{sm} {option}", ptx.display());
        }
    }
    println!(
        "{compared} files compared, {clean} without a difference that is not meant; {refused} we refuse"
    );
    if clean == compared { Ok(()) } else { Err(format!("{} files differ", compared - clean)) }
}
