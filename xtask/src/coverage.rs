//! What the simulator and the interpreter do not know of existing code.

use crate::code;
use rayon::prelude::*;
use sim::sass::Coverage;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Cubins, PTX files or folders of them; kernels/ when there are none.
    paths: Vec<PathBuf>,
    /// For these targets (75, 90a …); without it, those of kernels/ for all and other files for their own.
    #[arg(long, value_delimiter = ',')]
    sm: Vec<String>,
    /// Our compiler's code instead of the reference compiler's.
    #[arg(long)]
    ours: bool,
    /// The PTX itself, in the interpreter.
    #[arg(long)]
    ptx: bool,
}

/// Counts the instructions that the simulator (or the interpreter) refuses, most frequent first.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let ours = if options.ours { Some(crate::compiler(root)?) } else { None };
    let one = |(path, sm): &(PathBuf, String)| -> Result<Coverage, String> {
        if options.ptx {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            return ptx_coverage(&text).map_err(|e| format!("{}: {e}", path.display()));
        }
        let file = match &ours {
            None => code::reference(root, bin, path, sm)?,
            Some(cc) => {
                let out = root.join(format!("target/coverage.{:?}.cubin", std::thread::current().id()));
                let mut c = Command::new(cc);
                let done = c.arg(format!("-arch=sm_{sm}")).arg(path).arg("-o").arg(&out).output();
                if !done.map_err(|e| e.to_string())?.status.success() {
                    return Err(format!("oxptxas -arch=sm_{sm} refuses {}", path.display()));
                }
                std::fs::read(&out).map_err(|e| e.to_string())?
            }
        };
        Ok(sim::sass::coverage(&file)?)
    };
    let mut jobs = code::jobs(root, &options.paths, &options.sm);
    if options.ptx {
        jobs.dedup_by(|a, b| a.0 == b.0);
    }
    let all: Vec<_> = jobs.par_iter().map(one).collect();
    let mut sum = Coverage::default();
    for c in all {
        match c {
            Ok(c) => sum.merge(c),
            Err(e) => eprintln!("{e}"),
        }
    }
    println!("{sum}");
    Ok(())
}

/// The same for the PTX of one file.
fn ptx_coverage(text: &str) -> Result<Coverage, String> {
    let module = ptx::parse(text).map_err(|e| format!("{e:?}"))?;
    Ok(sim::ptx::coverage(&module))
}
