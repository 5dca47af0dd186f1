//! What the environment says, read once.

use sass::Target;
use sim::sass::check::Checks;
use std::path::PathBuf;
use std::sync::OnceLock;

/// How kernels run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Compiled, in the SASS simulator.
    Sass,
    /// By the PTX interpreter, where there is PTX.
    Ptx,
}

/// All variables.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `OXCUDA_SM`: what the device is.
    pub target: Target,
    /// `OXCUDA_PTXAS`: compiles in our place.
    pub ptxas: Option<PathBuf>,
    /// `OXCUDA_NVLINK`: links several inputs.
    pub nvlink: PathBuf,
    /// `OXCUDA_MODE`: `sass` or `ptx`.
    pub mode: Mode,
    /// `OXCUDA_MULTIPROCESSORS`: how many the device says that it has.
    pub multiprocessors: u32,
    /// `OXCUDA_MEMORY`: bytes of the device's memory.
    pub memory: u64,
    /// `OXCUDA_LIMIT`: most warp instructions of a launch.
    pub limit: u64,
    /// `OXCUDA_WAIT`: seconds that a stream waits for a value while other threads could write it.
    pub wait: u64,
    /// `OXCUDA_CHECK`: what is looked for in launches (docs/sanitizer.md).
    pub checks: Checks,
    /// `OXCUDA_TRACE`: every call is written to standard error.
    pub trace: bool,
    /// `OXCUDA_RECORD`: the folder that launches are written to.
    pub record: Option<PathBuf>,
}

/// What is said of a value that means nothing.
fn refuse(name: &str, value: &str) -> ! {
    say!("oxcuda: {name}={value} is not understood");
    std::process::exit(1)
}

fn variable<T>(name: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
    match std::env::var(name) {
        Ok(v) if !v.is_empty() => parse(&v).unwrap_or_else(|| refuse(name, &v)),
        _ => default,
    }
}

/// A number, with K, M or G behind it if need be.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn target(text: &str) -> Option<Target> {
    let number = text.strip_prefix("sm_").unwrap_or(text);
    Target::parse(&format!("sm_{number}"))
}

/// The settings of this process.
pub fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mode = |v: &str| match v {
            "sass" => Some(Mode::Sass),
            "ptx" => Some(Mode::Ptx),
            _ => None,
        };
        let default = Target::parse("sm_90").unwrap_or_else(|| refuse("OXCUDA_SM", "sm_90"));
        Settings {
            target: variable("OXCUDA_SM", default, target),
            ptxas: path("OXCUDA_PTXAS"),
            nvlink: path("OXCUDA_NVLINK").unwrap_or_else(|| "nvlink".into()),
            mode: variable("OXCUDA_MODE", Mode::Sass, mode),
            multiprocessors: variable("OXCUDA_MULTIPROCESSORS", 8, |v| v.parse().ok().filter(|n| *n > 0)),
            memory: variable("OXCUDA_MEMORY", 8 << 30, size),
            limit: variable("OXCUDA_LIMIT", 1 << 30, size),
            wait: variable("OXCUDA_WAIT", 60, |v| v.parse().ok()),
            checks: variable("OXCUDA_CHECK", Checks::default(), |v| v.parse().ok()),
            trace: variable("OXCUDA_TRACE", false, |v| Some(v != "0")),
            record: path("OXCUDA_RECORD"),
        }
    })
}
