//! `oxptxas`: ptxas's command line.

mod memory;

use memory::Memory;
use oxptxas::command::{Console, Run};
use oxptxas::console::{show, tell};
use ptx::Style;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

#[global_allocator]
static MEMORY: Memory = Memory;

/// ptxas's exit status on any error.
const FAILED: u8 = 255;

/// Standard output and standard error.
struct Streams;

impl Console for Streams {
    fn info(&self, text: &str) {
        tell(text);
    }
    fn error(&self, text: &str) {
        tell(text);
    }
    fn print(&self, text: &str) -> std::io::Result<()> {
        show(text)
    }
    fn style(&self) -> Style {
        if std::io::stderr().is_terminal() { Style::Rich } else { Style::Plain }
    }
}

/// Has memory that was given back kept for the next pass: the process ends soon, and each page that the system gives anew costs as much as a
/// pass over it. A tenth of the time of most compilations.
#[cfg(target_env = "gnu")]
fn keep_memory() {
    const EXTRA: libc::c_int = 1 << 20;
    /// The allocator takes no more for this one.
    const MOST: libc::c_int = 32 << 20;
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MOST),
        (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
        (libc::M_TOP_PAD, EXTRA),
        (libc::M_ARENA_MAX, heaps()),
    ] {
        // SAFETY: it only stores a number in the allocator, and no other thread runs yet. Where a number is refused it does nothing.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(parameter, value);
        }
    }
}

/// How many heaps threads share, so that one finds what another gave back, above all what the parser did: only large pieces are the
/// heap's business, for which few threads hardly ever wait.
#[cfg(target_env = "gnu")]
fn heaps() -> libc::c_int {
    /// So many processors to each.
    const SHARED_BY: libc::c_int = 8;
    // SAFETY: all zeros are a set without processors, and the system fills in no more than its size.
    #[allow(unsafe_code)]
    let processors = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) {
            0 => libc::CPU_COUNT(&set),
            _ => SHARED_BY,
        }
    };
    (processors / SHARED_BY).max(1)
}

#[cfg(not(target_env = "gnu"))]
fn keep_memory() {}

fn main() -> ExitCode {
    keep_memory();
    let mut args = std::env::args_os();
    // Tools match on the name that they called.
    let program = args
        .next()
        .and_then(|p| Path::new(&p).file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "oxptxas".into());
    let arguments: Vec<OsString> = args.collect();
    match Run::new(&program, &arguments, &Streams).to_file() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}
