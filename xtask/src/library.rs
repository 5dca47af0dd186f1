//! Builds the C library and puts it into a folder as an installed library is: `lib`, `include`, and what pkg-config reads.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Options {
    /// The folder.
    #[arg(long, default_value = "target/library")]
    out: PathBuf,
    /// Which profile of Cargo's to build with.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// What else programs must be linked with where they take the static library.
const SYSTEM: &str = "-lpthread -lm -ldl -lgcc_s";

/// Does it; the folder.
pub fn run(root: &Path, options: &Options) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "-p", "oxptxas-c", "--profile", &options.profile]).current_dir(root);
    super::run(&mut cargo)?;
    let out = if options.out.is_absolute() { options.out.clone() } else { root.join(&options.out) };
    let folder = if options.profile == "dev" { "debug" } else { &options.profile };
    let built = root.join("target").join(folder);
    let text = |e: std::io::Error| format!("{}: {e}", out.display());
    for folder in ["include", "lib/pkgconfig"] {
        std::fs::create_dir_all(out.join(folder)).map_err(text)?;
    }
    // A program may have the old one open: a new file in its place.
    let put = |from: &Path, to: &str| {
        let to = out.join(to);
        let part = to.with_added_extension("part");
        std::fs::copy(from, &part).and_then(|_| std::fs::rename(&part, &to)).map_err(text)
    };
    put(&root.join("crates/oxptxas-c/include/nvPTXCompiler.h"), "include/nvPTXCompiler.h")?;
    put(&built.join("liboxptxas_c.so"), "lib/liboxptxas.so.0")?;
    put(&built.join("liboxptxas_c.a"), "lib/liboxptxas.a")?;
    // The last is what programs for NVIDIA's library ask the linker for.
    for (name, of) in [("liboxptxas.so", "liboxptxas.so.0"), ("libnvptxcompiler_static.a", "liboxptxas.a")] {
        let link = out.join("lib").join(name);
        match std::fs::remove_file(&link) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(text(e)),
            _ => {}
        }
        std::os::unix::fs::symlink(of, &link).map_err(text)?;
    }
    let config = format!(
        "prefix=${{pcfiledir}}/../..\nName: oxptxas\nDescription: PTX assembler and optimizing code generator\n\
         Version: {}\nCflags: -I${{prefix}}/include\nLibs: -L${{prefix}}/lib -loxptxas\nLibs.private: {SYSTEM}\n",
        env!("CARGO_PKG_VERSION")
    );
    std::fs::write(out.join("lib/pkgconfig/oxptxas.pc"), config).map_err(text)?;
    Ok(out)
}
