//! `cargo xtask scaling`: how compile time and memory grow with programs that are large in one way, ours beside ptxas's.

mod shapes;

use shapes::{SHAPES, Shape};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wait4::Wait4;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Only these shapes.
    shapes: Vec<String>,
    /// How many of what a shape has many of.
    #[arg(long, value_delimiter = ',', default_value = "1000,3000,10000,30000,100000")]
    sizes: Vec<usize>,
    /// The target.
    #[arg(long, default_value = "sm_90")]
    arch: String,
    /// `-O` of both compilers.
    #[arg(long, default_value_t = 3)]
    opt_level: u8,
    /// Seconds after which a compilation is given up; larger ones of the shape are left out.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Our compiler; without it, it is built for release.
    #[arg(long)]
    compiler: Option<PathBuf>,
    /// Ours alone.
    #[arg(long)]
    no_ptxas: bool,
    /// Keep the PTX in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// What a compilation took.
#[derive(Clone, Copy)]
struct Cost {
    /// Processor time, user and system, in seconds: unlike wall time it hardly changes beside other work.
    seconds: f64,
    /// Peak resident memory, MiB.
    memory: f64,
}

fn compile(cc: &Path, ptx: &Path, options: &Options) -> Result<Cost, String> {
    let out = std::env::temp_dir().join(format!("scaling-{}.cubin", std::process::id()));
    let child = Command::new(cc)
        .args([format!("-arch={}", options.arch), format!("-O{}", options.opt_level), "-o".into()])
        .args([out.as_path(), ptx])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let end = Instant::now() + Duration::from_secs(options.limit);
    let id = child.id().to_string();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if receive.recv_timeout(end - Instant::now()).is_err() {
            // Nothing depends on whether it is still there.
            let _ = Command::new("kill").args(["-9", &id]).status();
        }
    });
    let result = child.wait4().map_err(|e| e.to_string());
    let _ = send.send(());
    guard.join().map_err(|_| "the watch ended badly")?;
    let _ = std::fs::remove_file(&out);
    let result = result?;
    if !result.status.success() {
        let late = Instant::now() >= end;
        return Err(if late { format!("> {} s", options.limit) } else { "fails".into() });
    }
    let usage = result.rusage;
    Ok(Cost {
        seconds: (usage.utime + usage.stime).as_secs_f64(),
        memory: usage.maxrss as f64 / 1024.0 / 1024.0,
    })
}

/// The slope of log time over log size, from the sizes that took long enough to be measured.
fn exponent(costs: &[(usize, Cost)]) -> Option<f64> {
    let points: Vec<(f64, f64)> = (costs.iter().filter(|(_, c)| c.seconds > 0.03))
        .map(|(n, c)| ((*n as f64).ln(), c.seconds.ln()))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let count = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / count, y + p.1 / count));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + (x - mx) * (y - my), b + (x - mx) * (x - mx)));
    Some(above / below)
}

/// One compiler over the sizes of a shape, and what it says of the first that it does not compile.
fn measure(cc: &Path, shape: &Shape, dir: &Path, options: &Options) -> (Vec<(usize, Cost)>, Option<String>) {
    let mut costs = Vec::new();
    for &n in &options.sizes {
        let ptx = dir.join(format!("{}-{n}.ptx", shape.name.replace(' ', "_")));
        if !ptx.exists()
            && let Err(e) = std::fs::write(&ptx, (shape.text)(n))
        {
            return (costs, Some(e.to_string()));
        }
        match compile(cc, &ptx, options) {
            Ok(cost) => costs.push((n, cost)),
            Err(e) => return (costs, Some(format!("{n}: {e}"))),
        }
    }
    (costs, None)
}

/// Prints a row for each shape: seconds by size, the exponent, memory at the largest.
///
/// # Errors
/// Where ours can't be built, or takes longer than ptxas for the largest size that both compile.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let ours = match &options.compiler {
        Some(path) => path.clone(),
        None => crate::compiler(root)?,
    };
    let scratch = root.join("target/scaling");
    let dir = options.keep.as_deref().unwrap_or(&scratch);
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    println!("| shape | n of | compiler | {} s | exponent | MiB |", join(&options.sizes, " s | "));
    println!("|---|---|---|{}---|---|", "---|".repeat(options.sizes.len()));
    let mut slow = Vec::new();
    for shape in &SHAPES {
        if !options.shapes.is_empty() && !options.shapes.iter().any(|s| s == shape.name) {
            continue;
        }
        let mut sides = vec![("ours", ours.clone())];
        if !options.no_ptxas {
            sides.push(("ptxas", bin.join("ptxas")));
        }
        let mut all = Vec::new();
        for (name, cc) in sides {
            let (costs, why) = measure(&cc, shape, dir, options);
            let cells: Vec<String> = (0..options.sizes.len())
                .map(|k| costs.get(k).map_or_else(|| "–".into(), |c| format!("{:.2}", c.1.seconds)))
                .collect();
            let slope = exponent(&costs).map_or_else(|| "–".into(), |e| format!("{e:.2}"));
            let memory = costs.last().map_or_else(|| "–".into(), |c| format!("{:.0}", c.1.memory));
            let why = why.map_or_else(String::new, |w| format!(" ({w})"));
            println!(
                "| {} | {} | {name} | {} | {slope} | {memory}{why} |",
                shape.name,
                shape.what,
                cells.join(" | ")
            );
            all.push(costs);
        }
        if let [ours, theirs] = &all[..]
            && let Some((n, cost)) = ours.iter().rev().find(|o| theirs.iter().any(|t| t.0 == o.0))
            && let Some((_, their)) = theirs.iter().find(|t| t.0 == *n)
            && cost.seconds > their.seconds
        {
            slow.push(format!("{} ({n}): {:.2} s, ptxas {:.2} s", shape.name, cost.seconds, their.seconds));
        }
        if all[0].len() < options.sizes.len() {
            slow.push(format!("{}: not all sizes compile", shape.name));
        }
    }
    if options.keep.is_none() {
        std::fs::remove_dir_all(&scratch).map_err(|e| e.to_string())?;
    }
    if slow.is_empty() { Ok(()) } else { Err(format!("slower than ptxas: {}", slow.join("; "))) }
}

fn join(sizes: &[usize], between: &str) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}
