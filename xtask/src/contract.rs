//! The hardware contract: mining it from the reference compiler's cubins, and holding ours against it.

use crate::code::{files, jobs, own_target};
use crate::statements::{Verdict, compile_parts};
use contract::mine::{check, count, extend, held_out, load, tables};
use contract::{Contract, RULES, Table};
use rayon::prelude::*;
use sass::Target;
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Cubins of the reference compiler, or folders of them; with --ours, PTX.
    paths: Vec<PathBuf>,
    /// Check the cubins of each tenth of the sources against what is mined of the others; write nothing.
    #[arg(long)]
    held_out: bool,
    /// With --held-out: cubins that are mined from every time and not checked.
    #[arg(long)]
    with: Vec<PathBuf>,
    /// With --held-out: so many parts.
    #[arg(long, default_value_t = 10)]
    folds: usize,
    /// Check the cubins; write nothing.
    #[arg(long)]
    check: bool,
    /// Add to the tables what the cubins show, in place of writing them anew.
    #[arg(long)]
    add: bool,
    /// Write the table of this rule alone.
    #[arg(long)]
    rule: Option<String>,
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
    let one = |(ptx, sm): &(PathBuf, String), level: u8| -> Vec<(String, Vec<u8>)> {
        let Ok(source) = std::fs::read_to_string(ptx) else { return vec![] };
        // A module for sm_90a compiles for no other target.
        let own = own_target(&source).filter(|own| own.trim_end_matches(['a', 'f']) == sm);
        let Some(target) = Target::parse(&format!("sm_{}", own.as_ref().unwrap_or(sm))) else {
            return vec![];
        };
        let settings = oxptxas::Settings { opt_level: level, ..oxptxas::Settings::new(target) };
        let mut made = vec![];
        compile_parts(&source, &mut |text, number| match oxptxas::compile(
            text,
            &ptx.display().to_string(),
            &settings,
        ) {
            Ok(output) => {
                made.push((format!("{} {target} -O{level} part {number}", ptx.display()), output.cubin));
                Verdict::Taken
            }
            Err(_) => Verdict::Refused(vec![]),
        });
        made
    };
    list.par_iter().flat_map_iter(|job| [0, 3].into_iter().flat_map(move |level| one(job, level))).collect()
}

/// `cargo xtask contract`
pub fn run(root: &Path, options: &Options) -> Result<(), String> {
    if options.ours {
        return Ok(check(Contract::built_in(), &compile(root, options), options.examples)?);
    }
    let cubins: Vec<PathBuf> =
        options.paths.iter().flat_map(|p| files(p, "cubin")).step_by(options.every.max(1)).collect();
    if options.check {
        return Ok(check(Contract::built_in(), &load(&cubins)?, options.examples)?);
    }
    if options.held_out {
        let always: Vec<PathBuf> = options.with.iter().flat_map(|p| files(p, "cubin")).collect();
        return Ok(held_out(&cubins, &always, options.folds.max(2), options.examples)?);
    }
    let (counts, files, instructions) = count(&cubins);
    let mined = if options.add {
        let mut old = RULES.iter().map(|r| Table::parse(r.built_in())).collect::<Result<Vec<_>, _>>()?;
        println!("{} observations are new", extend(&mut old, counts));
        old
    } else {
        tables(counts)
    };
    let wanted = |name: &str| options.rule.as_ref().is_none_or(|rule| rule == name);
    for (rule, table) in RULES.iter().zip(mined).filter(|(rule, _)| wanted(rule.name())) {
        let path = root.join(format!("crates/contract/tables/{}.txt", rule.name()));
        let text = table.print();
        println!("{}: {} rows, {} bytes", path.display(), table.len(), text.len());
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    println!("{files} files, {instructions} instructions");
    Ok(())
}
