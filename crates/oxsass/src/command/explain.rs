//! `oxsass explain`: why our code of a file is as it is.

use super::{Result, launches, load_ptx, own_target, parse_target};
use clap::Args;
use oxsass::explain;
use sass::Target;
use std::io::Write;
use std::path::PathBuf;

/// `oxsass explain`
#[derive(Args)]
pub struct Explain {
    /// The PTX
    file: PathBuf,
    /// The target, `sm_90`; without it, the one that the PTX names
    #[arg(long, value_name = "SM", value_parser = parse_target)]
    arch: Option<Target>,
    /// Only this kernel
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// The launches of a launch file instead of made-up ones
    #[arg(long, value_name = "TOML")]
    launch: Option<PathBuf>,
    /// Write a page for browsers, which needs nothing else, instead of text
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The level of optimization
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=3))]
    opt_level: u8,
    /// The most registers of a thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=255))]
    maxrregcount: Option<u32>,
    /// A knob of our compiler, NAME or NAME=VALUE (docs/phases.md)
    #[arg(long, value_name = "KNOB")]
    knob: Vec<String>,
}

impl Explain {
    /// Prints what was found about each kernel, or writes the page.
    pub fn run(self, out: &mut impl Write) -> Result {
        let path = self.file.display().to_string();
        let (source, module) = load_ptx(&self.file, "explain starts from PTX")?;
        let target = self.arch.or(own_target(&module));
        let target = target.ok_or("--arch is needed: the file names no target that is known")?;
        let mut settings = oxptxas::Settings {
            opt_level: self.opt_level,
            max_registers: self.maxrregcount,
            entries: self.kernel.iter().cloned().collect(),
            ..oxptxas::Settings::new(target)
        };
        self.knob.iter().try_for_each(|k| settings.knobs.add(k))?;
        let given = self.launch.as_deref().map(launches).transpose()?.unwrap_or_default();
        let launch = |name: &str| given.iter().find(|l| l.kernel == name).cloned();
        let kernels = explain::explain(&source, &path, &settings, launch)?;
        if kernels.is_empty() {
            return Err(format!("{path}: there is no kernel").into());
        }
        match &self.html {
            Some(file) => std::fs::write(file, explain::page(&path, &source, &kernels))
                .map_err(|e| format!("{}: {e}", file.display()).into()),
            None => {
                for (n, k) in kernels.iter().enumerate() {
                    write!(out, "{}{k}", if n == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
        }
    }
}
