//! `cargo xtask cycles`: how long our code and ptxas's take on one SM by the model of `oxsass run --cycles`, for
//! kernels with launch files.

use crate::code::reference;
use crate::score::Mean;
use sass::Target;
use sim::launch::LaunchFile;
use std::path::Path;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Targets.
    #[arg(long, value_delimiter = ',', default_value = "75,80,90,120")]
    sm: Vec<String>,
}

/// Prints a table: our cycles over ptxas's, by kernel and target.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let columns: Vec<String> = options.sm.iter().map(|s| format!("sm_{s}")).collect();
    println!("| kernel | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()));
    let mut means: Vec<Mean> = columns.iter().map(|_| Mean::default()).collect();
    for ptx in crate::kernels(root)? {
        let text = std::fs::read_to_string(ptx.with_extension("toml")).map_err(|e| e.to_string())?;
        let source = std::fs::read_to_string(&ptx).map_err(|e| e.to_string())?;
        for (index, launch) in LaunchFile::parse(&text)?.launch.iter().enumerate() {
            let mut row = format!("| {} {} |", launch.kernel, index + 1);
            for (sm, mean) in options.sm.iter().zip(&mut means) {
                let target = Target::parse(&format!("sm_{sm}")).ok_or("unknown target")?;
                let ours = oxptxas::compile(&source, "kernel.ptx", &oxptxas::Settings::new(target))
                    .map_err(|e| e.render("xtask"))?
                    .cubin;
                let theirs = reference(root, bin, &ptx, sm)?;
                let cycles = |cubin: &[u8]| {
                    let report = sim::cycles::measure(cubin, launch, sim::sass::Options::default());
                    report.map(|r| r.cycles as f64).map_err(|e| format!("{}: {e}", launch.kernel))
                };
                let (a, b) = (cycles(&ours)?, cycles(&theirs)?);
                mean.add(a, b);
                row.push_str(&format!(" {:.2} |", a / b));
            }
            println!("{row}");
        }
    }
    let all: Vec<String> = means.iter().map(|m| format!("{:.3}", m.get())).collect();
    println!("| geometric mean | {} |", all.join(" | "));
    Ok(())
}
