//! Builds the compiler with a profile of itself: once with counters, which a run over `kernels/` and `xtask/training/` fills, then by what they say. The functions
//! that compile most programs stand together then, and branches are laid out the way they go. Where the C library's archive is at hand it is
//! linked in: a program at a fixed address with nothing to load starts in half the time.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Args)]
pub struct Options {
    /// The folder for the program.
    #[arg(long, default_value = "target/fast")]
    out: PathBuf,
}

/// Does it; the program.
pub fn run(root: &Path, options: &Options) -> Result<PathBuf, String> {
    let host = host()?;
    let profdata = profdata(&host)?;
    let work = root.join("target/profiled");
    let raw = work.join("raw");
    let text = |p: &Path, e: std::io::Error| format!("{}: {e}", p.display());
    if raw.exists() {
        std::fs::remove_dir_all(&raw).map_err(|e| text(&raw, e))?;
    }
    std::fs::create_dir_all(&raw).map_err(|e| text(&raw, e))?;
    let whole =
        if has_static_libc(&host) { " -Ctarget-feature=+crt-static -Crelocation-model=static" } else { "" };
    let counting = build(root, &work, &host, &format!("-Cprofile-generate={}", raw.display()))?;
    train(root, &counting, &work)?;
    let merged = work.join("oxptxas.profdata");
    super::run(Command::new(profdata).arg("merge").arg("-o").arg(&merged).arg(&raw))?;
    let fast = build(root, &work, &host, &format!("-Cprofile-use={}{whole}", merged.display()))?;
    let out = if options.out.is_absolute() { options.out.clone() } else { root.join(&options.out) };
    std::fs::create_dir_all(&out).map_err(|e| text(&out, e))?;
    let program = out.join(format!("oxptxas{}", std::env::consts::EXE_SUFFIX));
    std::fs::copy(&fast, &program).map_err(|e| text(&program, e))?;
    Ok(program)
}

/// What an invocation of rustc prints.
fn rustc(args: &[&str]) -> Result<String, String> {
    let out = Command::new("rustc").args(args).output().map_err(|e| format!("rustc: {e}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// This machine's target in Rust's words.
fn host() -> Result<String, String> {
    let said = rustc(&["-vV"])?;
    let host = said.lines().find_map(|l| l.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".into())
}

/// Whether the linker finds an archive of the C library. Distributions ship it apart from the shared one.
fn has_static_libc(host: &str) -> bool {
    // `cc` prints the name as it was given where it knows no such file.
    let found = Command::new("cc").arg("-print-file-name=libc.a").stderr(Stdio::null()).output();
    host.ends_with("-linux-gnu")
        && found.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).is_absolute())
}

/// The program of rustc's LLVM that sums profiles up.
fn profdata(host: &str) -> Result<PathBuf, String> {
    let bin = PathBuf::from(rustc(&["--print", "sysroot"])?).join("lib/rustlib").join(host).join("bin");
    let tool = bin.join(format!("llvm-profdata{}", std::env::consts::EXE_SUFFIX));
    if !tool.exists() {
        super::run(Command::new("rustup").args(["component", "add", "llvm-tools"]))
            .map_err(|e| format!("{} is missing: {e}", tool.display()))?;
    }
    Ok(tool)
}

/// Builds the compiler with these flags; where it is. With a target named they are not given to what runs while building.
fn build(root: &Path, work: &Path, host: &str, flags: &str) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "--release", "--bin", "oxptxas", "--target", host]).current_dir(root);
    cargo.arg("--target-dir").arg(work).env("RUSTFLAGS", flags).env("CARGO_INCREMENTAL", "0");
    super::run(&mut cargo)?;
    Ok(work.join(host).join("release").join(format!("oxptxas{}", std::env::consts::EXE_SUFFIX)))
}

/// Targets that code with products of matrices is compiled for, which is long.
const WITH_PRODUCTS: [u32; 3] = [80, 90, 120];

/// Compiles every kernel for every target that has it, and what `training/` has beside: there are no products of matrices among the kernels, and
/// what such code alone keeps busy (orders within blocks, room for tuples) would be taken for what hardly ever runs.
fn train(root: &Path, program: &Path, work: &Path) -> Result<(), String> {
    let mut compiled = 0;
    let kernels = super::kernels(root)?;
    let products = super::ptx_in(&root.join("xtask/training"))?;
    let each = |files: Vec<PathBuf>, sms: &'static [u32]| {
        files.into_iter().flat_map(|file| sms.iter().map(move |sm| (file.clone(), *sm)))
    };
    for (file, sm) in each(kernels, super::SMS).chain(each(products, &WITH_PRODUCTS)) {
        let mut command = Command::new(program);
        command.arg(format!("-arch=sm_{sm}")).arg(&file).arg("-o").arg(work.join("trained.cubin"));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        compiled += usize::from(status.map_err(|e| format!("{}: {e}", program.display()))?.success());
    }
    if compiled == 0 {
        return Err(format!("{} compiles none of the kernels", program.display()));
    }
    Ok(())
}
