//! Builds the driver library and puts it into a folder under the names that programs look for.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Options {
    /// The folder, for LD_LIBRARY_PATH.
    #[arg(long, default_value = "target/driver")]
    out: PathBuf,
    /// Which profile of Cargo's to build with.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Does it; the folder.
pub fn run(root: &Path, options: &Options) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "-p", "oxcuda", "--profile", &options.profile]).current_dir(root);
    super::run(&mut cargo)?;
    let out = if options.out.is_absolute() { options.out.clone() } else { root.join(&options.out) };
    let folder = if options.profile == "dev" { "debug" } else { &options.profile };
    let built = root.join("target").join(folder).join("liboxcuda.so");
    let text = |e: std::io::Error| format!("{}: {e}", out.display());
    std::fs::create_dir_all(&out).map_err(text)?;
    for name in ["libcuda.so.1", "libcuda.so"] {
        // A program may have the old one open: a new file in its place.
        let part = out.join(format!("{name}.part"));
        std::fs::copy(&built, &part).map_err(text)?;
        std::fs::rename(&part, out.join(name)).map_err(text)?;
    }
    Ok(out)
}
