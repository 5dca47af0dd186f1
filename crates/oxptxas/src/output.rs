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
    /// Textures, surfaces and samplers that it names.
    pub images: [usize; 3],
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
    /// What passes decided about each kernel and device function, if that was wanted.
    pub remarks: Vec<(String, Vec<ori::Remark>)>,
    /// What is to be said of the source though it is not wrong.
    pub warnings: Vec<Diagnostic>,
}

/// What kind of reason there is for no output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// The options are wrong, or a file that they name.
    Options,
    /// The PTX is of a version that is not understood.
    Version,
    /// The PTX is wrong.
    Source,
    /// The PTX is right, but has or asks for something that is not built yet.
    NotBuilt,
    /// It was cancelled.
    Cancelled,
    /// An error in the compiler.
    Internal,
}

/// How the reason is worded that there is none.
pub(crate) const CANCELLED: &str = "cancelled";

/// How messages about what is not built are worded, and those of errors in the compiler.
const NOT_BUILT: [&str; 2] = ["not supported yet", "not built yet"];
const INTERNAL: &str = "internal error";

/// A message about a source, with its place in lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// How bad it is.
    pub severity: Severity,
    /// Line and column, from 1 on; `None` if it is about the file as a whole.
    pub place: Option<(u32, u32)>,
    /// What.
    pub text: String,
    /// What was expected, the nearest form that exists, and why it does not here.
    pub notes: Vec<String>,
}

/// Why there is no output.
///
/// ```
/// use oxptxas::{Kind, Settings, Target};
/// let settings = Settings::new(Target::parse("sm_90").unwrap());
/// let wrong = oxptxas::compile(".version 8.0\n.target sm_75\n.entry k() { bad; }\n", "k.ptx", &settings);
/// let failure = wrong.unwrap_err();
/// assert_eq!(failure.kind(), Kind::Source);
/// assert_eq!(failure.messages()[0].place, Some((3, 14)));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    /// The messages.
    pub diagnostics: Vec<Diagnostic>,
    file: String,
    source: String,
}

/// A line for each message: the file, the place in it, and what.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, m) in self.messages().into_iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            match m.place {
                Some((line, column)) => {
                    write!(f, "{separator}{}:{line}:{column}: {}", self.file, m.text)?;
                }
                None => write!(f, "{separator}{}: {}", self.file, m.text)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The messages as text with all that is known, closed as ptxas closes them.
    pub fn render(&self, program: &str) -> String {
        self.render_as(Style::Rich, program)
    }

    /// What kind of reason it is.
    pub fn kind(&self) -> Kind {
        let any = |what: &dyn Fn(&str) -> bool| self.diagnostics.iter().any(|d| what(&d.message));
        if any(&|m| m == CANCELLED) {
            Kind::Cancelled
        } else if any(&|m| m.contains(INTERNAL)) {
            Kind::Internal
        } else if any(&|m| m.starts_with(ptx::parser::UNSUPPORTED_VERSION)) {
            Kind::Version
        } else if self.diagnostics.iter().all(|d| NOT_BUILT.iter().any(|n| d.message.contains(n))) {
            Kind::NotBuilt
        } else {
            Kind::Source
        }
    }

    /// The messages with their places.
    pub fn messages(&self) -> Vec<Message> {
        let lines = LineIndex::new(&self.source);
        let message = |d: &Diagnostic| Message {
            severity: d.severity,
            place: d.span.map(|s| lines.line_col(s.start)),
            text: d.message.replace("{file}", &self.file),
            notes: d.notes.clone(),
        };
        self.diagnostics.iter().map(message).collect()
    }

    /// That it was cancelled, which nothing needs to be said about.
    pub(crate) fn cancelled(file: &str) -> Failure {
        Failure::new(vec![Diagnostic::whole(CANCELLED)], file, "")
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
        if self.kind() == Kind::Cancelled {
            return String::new();
        }
        let mut out: String = self.diagnostics.iter().map(one).collect();
        if style == Style::Json {
            return out;
        }
        // ptxas leaves this line out when the target itself is refused.
        let located = self.diagnostics.iter().any(|d| d.span.is_some() || d.severity == Severity::Error);
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
                for (n, what) in k.images.iter().zip(["textures", "surfaces", "samplers"]) {
                    if *n != 0 {
                        let _ = write!(out, ", {n} {what}");
                    }
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
