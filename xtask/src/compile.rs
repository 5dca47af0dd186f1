//! `ptxas-cubins`: what ptxas makes of PTX files for every target that they compile for.

use crate::code::{own_target, ptx_files};
use crate::statements::{Verdict, compile_parts, error_lines};
use rayon::prelude::*;
use sass::Target;
use sass::target::{SMS, Suffix};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What to compile, and how.
#[derive(clap::Args)]
pub struct Options {
    /// PTX files, and folders of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Folder of the cubins: OUT/LEVEL/TARGET/NAME.cubin; what is there already is kept.
    #[arg(long)]
    out: PathBuf,
    /// Options of ptxas, one cubin for each: `-O3`, `-O0`, `-G`.
    #[arg(long, value_delimiter = ',', default_value = "-O3", allow_hyphen_values = true)]
    levels: Vec<String>,
    /// Only these targets (`sm_90`, `sm_90a`).
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Only every nth file of those that name another target, starting at another file for each target.
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Give up on a file after so many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// The targets that ptxas takes a module for: its own and the later ones, but with a suffix only its own
/// (`a`) or its family (`f`).
pub fn targets_of(own: Target) -> Vec<Target> {
    let family = |sm: u8| sm / 10;
    SMS.iter()
        .filter(|s| match own.suffix {
            Suffix::None => s.sm >= own.sm,
            Suffix::A => s.sm == own.sm,
            Suffix::F => s.sm >= own.sm && family(s.sm) == family(own.sm),
        })
        .map(|s| Target { sm: s.sm, suffix: own.suffix })
        .collect()
}

/// Runs a program, at most for some time; whether it succeeded. What it prints is left out, errors where the command doesn't say.
pub fn succeeds(command: &mut Command, limit: Duration) -> bool {
    let Ok(mut child) = command.stdout(Stdio::null()).spawn() else { return false };
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// Compiles the files and says how many cubins there are.
pub fn run(options: &Options, bin: &Path) -> Result<(), String> {
    let mut jobs = Vec::new();
    for (index, path) in options.paths.iter().flat_map(|p| ptx_files(p)).enumerate() {
        let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let Some(own) = own_target(&text).and_then(|t| Target::parse(&format!("sm_{t}"))) else { continue };
        let name: String = path.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let name = name[name.len().saturating_sub(90)..].to_string();
        for (nth, target) in targets_of(own).into_iter().enumerate() {
            let wanted = options.targets.is_empty() || options.targets.contains(&target.to_string());
            if wanted && (target == own || (index + nth).is_multiple_of(options.every)) {
                for level in &options.levels {
                    jobs.push((path.clone(), name.clone(), target.to_string(), level.clone()));
                }
            }
        }
    }
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    jobs.par_iter().for_each(|(path, name, target, level)| {
        let dir = options.out.join(level.trim_start_matches('-')).join(target);
        let done = dir.join(format!("{name}.done"));
        if done.exists() || std::fs::create_dir_all(&dir).is_err() {
            return;
        }
        let Ok(text) = std::fs::read(path) else { return };
        compile_parts(&String::from_utf8_lossy(&text), &mut |text, number| {
            let part = if number == 0 { String::new() } else { format!("_{number}") };
            let out = dir.join(format!("{name}{part}.cubin"));
            if out.exists() {
                return Verdict::Taken;
            }
            let (verdict, counter) = match part_of_module(options, bin, text, target, level, &out) {
                Ok(()) => (Verdict::Taken, &made),
                Err(lines) => (Verdict::Refused(lines), &refused),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            verdict
        });
        let _ = std::fs::write(done, "");
    });
    let (made, refused) = (made.into_inner(), refused.into_inner());
    println!("{made} cubins; {refused} times refused, or not done in {} s", options.seconds);
    Ok(())
}

/// Compiles a text.
///
/// # Errors
/// The lines with errors, if ptxas names some.
fn part_of_module(
    options: &Options,
    bin: &Path,
    text: &str,
    target: &str,
    level: &str,
    out: &Path,
) -> Result<(), Vec<usize>> {
    let (ptx, errors) = (out.with_extension("ptx"), out.with_extension("errors"));
    let written = std::fs::write(&ptx, text).and_then(|()| std::fs::File::create(&errors));
    let Ok(log) = written else { return Err(vec![]) };
    let mut ptxas = Command::new(bin.join("ptxas"));
    ptxas.args(["-arch", target, level]);
    // -G is for modules with debug information; ptxas takes it for others too, but not with -O3.
    if level == "-G" {
        ptxas.arg("-O0");
    }
    ptxas.arg(&ptx).arg("-o").arg(out).stderr(log);
    let fine = succeeds(&mut ptxas, Duration::from_secs(options.seconds));
    let said = std::fs::read(&errors).unwrap_or_default();
    for file in [&ptx, &errors] {
        let _ = std::fs::remove_file(file);
    }
    if fine {
        return Ok(());
    }
    let _ = std::fs::remove_file(out);
    Err(error_lines(&String::from_utf8_lossy(&said)))
}
