//! What comes of a compilation: a file and what is said of it, or messages.

use crate::timeline::Timeline;
use ptx::{Diagnostic, LineIndex, Severity, Style};
use sass::Target;
use std::fmt::Write as _;
use std::time::Duration;

/// What `-v` says of a kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelStats {
    /// Name.
    pub name: String,
    /// Whether it is a kernel, not a device function of an object.
    pub entry: bool,
    /// Registers per thread.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Bytes of stack frame.
    pub frame: u32,
    /// Bytes of stack with all functions that are called; 0 if there is none, or no bound.
    pub cumulative: u32,
    /// Device functions in the kernel's code: name, bytes of stack frame, of spill stores and loads.
    pub functions: Vec<(String, u32, (u32, u32))>,
    /// Bytes of spill stores and loads.
    pub spills: (u32, u32),
    /// Bytes of static shared memory, the reserved part left out.
    pub shared: u32,
    /// Bytes of constant bank 0; bank 2.
    pub constant: (u32, u32),
    /// Instructions, padding included.
    pub instructions: usize,
    /// Time to compile it.
    pub time: Duration,
}

/// A compiled module.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The ELF file.
    pub cubin: Vec<u8>,
    /// A line per kernel, in the order of the file.
    pub kernels: Vec<KernelStats>,
    /// Bytes of global variables; constant banks 3 and 4.
    pub module_bytes: (u64, u32, u32),
    /// What took how long.
    pub timeline: Timeline,
    /// What is to be said of the source though it is not wrong.
    pub warnings: Vec<Diagnostic>,
}

/// Why there is no output.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The messages.
    pub diagnostics: Vec<Diagnostic>,
    file: String,
    source: String,
}

impl Failure {
    /// The messages as text with all that is known, closed as ptxas closes them.
    pub fn render(&self, program: &str) -> String {
        self.render_as(Style::Rich, program)
    }

    pub(crate) fn new(diagnostics: Vec<Diagnostic>, file: &str, source: &str) -> Failure {
        Failure { diagnostics, file: file.into(), source: source.into() }
    }

    /// The messages as text in a style.
    pub fn render_as(&self, style: Style, program: &str) -> String {
        let lines = LineIndex::new(&self.source);
        self.render_with(style, program, |d| d.render_as(style, program, &self.file, &self.source, &lines))
    }

    /// The messages, each as `one` has it.
    pub(crate) fn render_with(
        &self,
        style: Style,
        program: &str,
        one: impl Fn(&Diagnostic) -> String,
    ) -> String {
        let mut out: String = self.diagnostics.iter().map(one).collect();
        if style == Style::Json {
            return out;
        }
        // ptxas leaves this line out when the target itself is refused.
        let located = self.diagnostics.iter().any(|d| d.span.is_some() || d.severity != Severity::Fatal);
        if located {
            let _ =
                writeln!(out, "{program} {}: Ptx assembly aborted due to errors", Severity::Fatal.padded());
        }
        out
    }
}

impl Output {
    /// What `-v` prints, line for line as ptxas 13.0 does.
    pub fn verbose(&self, program: &str, target: Target) -> String {
        let info = format!("{program} {}", Severity::Info.padded());
        // From sm_90 on constant banks are not listed.
        let banks = target.sm < 90;
        let mut out = format!("{info}: {} bytes gmem", self.module_bytes.0);
        if banks {
            for (bank, bytes) in [(3, self.module_bytes.1), (4, self.module_bytes.2)] {
                if bytes != 0 {
                    let _ = write!(out, ", {bytes} bytes cmem[{bank}]");
                }
            }
        }
        out.push('\n');
        for k in &self.kernels {
            if k.entry {
                let _ = writeln!(out, "{info}: Compiling entry function '{}' for '{target}'", k.name);
            }
            let _ = writeln!(out, "{info}: Function properties for {}", k.name);
            let _ = writeln!(
                out,
                "    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads",
                k.frame, k.spills.0, k.spills.1
            );
            let time = k.time.as_secs_f64() * 1e3;
            if !k.entry {
                let _ = writeln!(out, "{info}: Compile time = {time:.3} ms");
                continue;
            }
            let _ = write!(out, "{info}: Used {} registers, used {} barriers", k.registers, k.barriers);
            if k.cumulative != 0 {
                let _ = write!(out, ", {} bytes cumulative stack size", k.cumulative);
            }
            if k.shared != 0 {
                let _ = write!(out, ", {} bytes smem", k.shared);
            }
            if banks {
                let _ = write!(out, ", {} bytes cmem[0]", k.constant.0);
                if k.constant.1 != 0 {
                    let _ = write!(out, ", {} bytes cmem[2]", k.constant.1);
                }
            }
            let _ = writeln!(out, "\n{info}: Compile time = {time:.3} ms");
            let mut functions: Vec<_> = k.functions.iter().collect();
            functions.sort_unstable_by_key(|f| &f.0);
            for (name, frame, (stores, loads)) in functions {
                let _ = writeln!(out, "{info}: Function properties for {name}");
                let _ = writeln!(
                    out,
                    "    {frame} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads"
                );
            }
        }
        out
    }
}
