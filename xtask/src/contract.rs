//! The hardware contract: mining it from the reference compiler's cubins, and holding ours against it.

use crate::hazards::{files, jobs, own_target};
use contract::mine::{check, count, half, load, tables};
use contract::{Contract, RULES};
use rayon::prelude::*;
use sass::Target;
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Cubins of the reference compiler, or folders of them; with --ours, PTX.
    paths: Vec<PathBuf>,
    /// Mine from the cubins of half of the sources and check those of the others; write nothing.
    #[arg(long)]
    held_out: bool,
    /// Check the cubins; write nothing.
    #[arg(long)]
    check: bool,
    /// Compile PTX (kernels/ for all targets, other files for their own) and check our cubins.
    #[arg(long)]
    ours: bool,
    /// With --ours, for these targets.
    #[arg(long, value_delimiter = ',')]
    sm: Vec<String>,
    /// Only every nth file.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Examples to show of every class of findings.
    #[arg(long, default_value_t = 1)]
    examples: usize,
}

/// Our cubins of PTX files, at -O0 and -O3.
fn compile(root: &Path, options: &Options) -> Vec<(String, Vec<u8>)> {
    let mut list = jobs(root, &options.paths, &options.sm);
    let mut number = 0;
    list.retain(|_| {
        number += 1;
        (number - 1) % options.every == 0
    });
    let one = |(ptx, sm): &(PathBuf, String), level: u8| {
        let source = std::fs::read_to_string(ptx).ok()?;
        // A module for sm_90a compiles for no other target.
        let own = own_target(&source).filter(|own| own.trim_end_matches(['a', 'f']) == sm);
        let target = Target::parse(&format!("sm_{}", own.as_ref().unwrap_or(sm)))?;
        let settings = oxptxas::Settings { opt_level: level, ..oxptxas::Settings::new(target) };
        let output = oxptxas::compile(&source, &ptx.display().to_string(), &settings).ok()?;
        Some((format!("{} {target} -O{level}", ptx.display()), output.cubin))
    };
    list.par_iter().flat_map_iter(|job| [0, 3].into_iter().filter_map(move |level| one(job, level))).collect()
}

/// `cargo xtask contract`
pub fn run(root: &Path, options: &Options) -> Result<(), String> {
    if options.ours {
        return check(Contract::built_in(), &compile(root, options), options.examples);
    }
    let cubins: Vec<PathBuf> =
        options.paths.iter().flat_map(|p| files(p, "cubin")).step_by(options.every.max(1)).collect();
    if options.check {
        return check(Contract::built_in(), &load(&cubins)?, options.examples);
    }
    if options.held_out {
        let (learn, test): (Vec<PathBuf>, Vec<PathBuf>) = cubins.into_iter().partition(|p| half(p));
        let (counts, files, instructions) = count(&learn);
        println!("learnt from {files} files, {instructions} instructions");
        return check(&Contract::new(&tables(counts)), &load(&test)?, options.examples);
    }
    let (counts, files, instructions) = count(&cubins);
    for (rule, table) in RULES.iter().zip(tables(counts)) {
        let path = root.join(format!("crates/contract/tables/{}.txt", rule.name()));
        let text = table.print();
        println!("{}: {} rows, {} bytes", path.display(), table.len(), text.len());
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    println!("{files} files, {instructions} instructions");
    Ok(())
}
