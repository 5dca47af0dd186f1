//! `cargo xtask score`: our code, compile time and memory beside ptxas's, for any PTX, measured in one run.

use crate::code::jobs;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use wait4::Wait4;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files or folders of them; kernels/ when there are none. Each folder gets a line of its own.
    paths: Vec<PathBuf>,
    /// For these targets (75, 90a …); without it, those of kernels/ for all and other files for their own.
    #[arg(long, value_delimiter = ',')]
    sm: Vec<String>,
    /// Runs of each compiler; the quickest counts.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Only every so many files.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Print the files, too.
    #[arg(long)]
    all: bool,
}

/// What one compiler did with one file.
pub struct Run {
    /// Of all kernels, without the padding and the branch to itself at the end.
    pub instructions: usize,
    /// Summed over the kernels.
    pub registers: u32,
    /// Bytes of spill stores and loads, as `-v` tells them.
    pub spilled: u64,
    /// Wall time of the process.
    pub seconds: f64,
    /// Peak resident memory of the process, KiB.
    pub memory: f64,
}

/// Compiles `repeat` times and keeps the quickest run.
///
/// # Errors
/// What the compiler says against the file.
pub fn compile(cc: &Path, ptx: &Path, sm: &str, repeat: usize) -> Result<Run, String> {
    let out = std::env::temp_dir().join(format!("score-{}.cubin", std::process::id()));
    let mut best: Option<(f64, f64, String)> = None;
    for _ in 0..repeat.max(1) {
        let start = Instant::now();
        let mut child = Command::new(cc)
            .args([format!("-arch=sm_{sm}"), "-v".into(), "-o".into()])
            .args([out.as_path(), ptx])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut text = Vec::new();
        child.stderr.take().map(|mut e| e.read_to_end(&mut text)).transpose().map_err(|e| e.to_string())?;
        let end = child.wait4().map_err(|e| e.to_string())?;
        let seconds = start.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&text).into_owned();
        if !end.status.success() {
            return Err(text);
        }
        if best.as_ref().is_none_or(|b| seconds < b.0) {
            best = Some((seconds, end.rusage.maxrss as f64 / 1024.0, text));
        }
    }
    let (seconds, memory, text) = best.ok_or("never run")?;
    let data = std::fs::read(&out).map_err(|e| e.to_string())?;
    std::fs::remove_file(&out).map_err(|e| e.to_string())?;
    let image = cubin::read::read(&data)?;
    let code = |words: &[u128]| {
        let padding = words.iter().rev().take_while(|w| **w & 0xfff == 0x918).count();
        let body = words.len() - padding;
        // The branch to itself that ends a function.
        if words[..body].last().is_some_and(|w| w & 0xfff == 0x947) { body - 1 } else { body }
    };
    Ok(Run {
        instructions: image.kernels.values().map(|k| code(&k.code)).sum(),
        registers: image.kernels.values().map(|k| k.registers).sum(),
        spilled: spilled(&text),
        seconds,
        memory,
    })
}

/// The numbers before "bytes spill stores" and "bytes spill loads", summed.
fn spilled(verbose: &str) -> u64 {
    let words: Vec<&str> = verbose.split_whitespace().collect();
    let counts = words.windows(3).filter(|w| w[1] == "bytes" && w[2] == "spill");
    counts.filter_map(|w| w[0].parse::<u64>().ok()).sum()
}

/// Geometric means of ours over theirs.
#[derive(Default)]
pub struct Ratios {
    instructions: Mean,
    registers: Mean,
    wall: Mean,
    memory: Mean,
    spilled: [u64; 2],
}

impl Ratios {
    /// Adds one file.
    pub fn add(&mut self, ours: &Run, theirs: &Run) {
        self.instructions.add(ours.instructions as f64, theirs.instructions as f64);
        self.registers.add(ours.registers.into(), theirs.registers.into());
        self.wall.add(ours.seconds, theirs.seconds);
        self.memory.add(ours.memory, theirs.memory);
        self.spilled[0] += ours.spilled;
        self.spilled[1] += theirs.spilled;
    }

    /// A row of a Markdown table.
    pub fn row(&self, name: &str) -> String {
        format!(
            "| {name} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {}, {} |",
            self.wall.count,
            self.instructions.get(),
            self.registers.get(),
            self.wall.get(),
            self.memory.get(),
            self.spilled[0],
            self.spilled[1]
        )
    }

    /// The table's head.
    pub const HEAD: &str = "| files of | files | instructions | registers | wall time | peak memory | spill bytes, \
                            ours and theirs |\n|---|---|---|---|---|---|---|";
}

/// A geometric mean of ratios.
#[derive(Default)]
pub struct Mean {
    log_sum: f64,
    count: u32,
}

impl Mean {
    /// Adds a ratio; nothing where either is zero.
    pub fn add(&mut self, ours: f64, theirs: f64) {
        if ours > 0.0 && theirs > 0.0 {
            self.log_sum += (ours / theirs).ln();
            self.count += 1;
        }
    }
    /// The mean.
    pub fn get(&self) -> f64 {
        (self.log_sum / f64::from(self.count)).exp()
    }
}

/// Prints a row for each path, of the files that both compilers take.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let (ours, theirs) = (crate::compiler(root)?, bin.join("ptxas"));
    let kernels = [root.join("kernels")];
    let paths = if options.paths.is_empty() { &kernels[..] } else { &options.paths };
    let mut refused = BTreeMap::<String, usize>::new();
    println!("{}", Ratios::HEAD);
    for path in paths {
        let mut ratios = Ratios::default();
        for (ptx, sm) in jobs(root, std::slice::from_ref(path), &options.sm).iter().step_by(options.every) {
            let Ok(b) = compile(&theirs, ptx, sm, options.repeat) else { continue };
            match compile(&ours, ptx, sm, options.repeat) {
                Ok(a) => {
                    if options.all {
                        let mut one = Ratios::default();
                        one.add(&a, &b);
                        println!("{}", one.row(&ptx.display().to_string()));
                    }
                    ratios.add(&a, &b);
                }
                Err(_) => *refused.entry(path.display().to_string()).or_default() += 1,
            }
        }
        println!("{}", ratios.row(&path.file_name().unwrap_or_default().to_string_lossy()));
    }
    for (path, n) in refused {
        println!("{n} files of {path} are refused by ours alone");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn spill_bytes_are_read() {
        let text = "ptxas info    : Function properties for k\n    8 bytes stack frame, 12 bytes spill stores, 16 \
                    bytes spill loads\n";
        assert_eq!(super::spilled(text), 28);
    }
}
