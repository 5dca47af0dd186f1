//! Builds the Python wheel with the programs in it, and tests it in an environment that has nothing else.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Options {
    /// Which profile of Cargo's to build with: release or tools.
    #[arg(long, default_value = "release")]
    profile: String,
    /// The platform that the wheel is for, `manylinux_2_28` or the like; without it, what the module needs.
    #[arg(long)]
    compatibility: Option<String>,
    /// Only build it.
    #[arg(long)]
    no_test: bool,
}

/// maturin, pinned.
const MATURIN: &str = "maturin==1.16.0";

/// The programs of the package: name, and which of ours it is.
const PROGRAMS: [(&str, &str); 3] = [("oxptxas", "oxptxas"), ("ptxas", "oxptxas"), ("oxsass", "oxsass")];

/// Does it; the wheel.
pub fn run(root: &Path, options: &Options) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "--profile", &options.profile, "-p", "oxptxas", "-p", "oxsass"]);
    super::run(cargo.args(["--bin", "oxptxas", "--bin", "oxsass"]).current_dir(root))?;
    let package = root.join("python");
    let bin = package.join("oxptxas/bin");
    let text = |e: std::io::Error| format!("{}: {e}", bin.display());
    std::fs::create_dir_all(&bin).map_err(text)?;
    for (name, ours) in PROGRAMS {
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(bin.join(name)).arg(root.join("target").join(&options.profile).join(ours));
        super::run(&mut strip)?;
    }
    let work = root.join("target/wheel");
    let environment = |name: &str| -> Result<PathBuf, String> {
        let dir = work.join(name);
        super::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
        Ok(dir.join("bin/python"))
    };
    let maturin = work.join("maturin/bin/maturin");
    if !maturin.exists() {
        let python = environment("maturin")?;
        super::run(Command::new(python).args(["-m", "pip", "install", "-q", MATURIN]))?;
    }
    let dist = work.join("dist");
    _ = std::fs::remove_dir_all(&dist);
    let mut build = Command::new(maturin);
    build.args(["build", "-q", "--profile", &options.profile, "--out"]).arg(&dist).current_dir(&package);
    if let Some(platform) = &options.compatibility {
        build.args(["--compatibility", platform]);
    }
    super::run(&mut build)?;
    let wheel = std::fs::read_dir(&dist)
        .map_err(|e| format!("{}: {e}", dist.display()))?
        .find_map(|e| Some(e.ok()?.path()).filter(|p| p.extension().is_some_and(|x| x == "whl")))
        .ok_or("maturin made no wheel")?;
    if !options.no_test {
        let python = environment("empty")?;
        let mut install = Command::new(&python);
        super::run(install.args(["-m", "pip", "install", "-q", "--no-index"]).arg(&wheel))?;
        // Elsewhere, so that what is imported is what was installed.
        let tests = package.join("tests");
        super::run(Command::new(python).args(["-m", "unittest", "-q"]).current_dir(&tests))?;
    }
    Ok(wheel)
}
