//! A run as ptxas's command line asks for it, from the arguments to a file in memory or on the disk. The program, the C
//! library and the Python package are this with different listeners.
//!
//! ```
//! use oxptxas::command::{Console, Run};
//! use std::cell::RefCell;
//!
//! /// Keeps what is said.
//! #[derive(Default)]
//! struct Log(RefCell<String>);
//!
//! impl Console for Log {
//!     fn info(&self, text: &str) {
//!         self.0.borrow_mut().push_str(text);
//!     }
//!     fn error(&self, text: &str) {
//!         self.info(text);
//!     }
//!     fn print(&self, text: &str) -> std::io::Result<()> {
//!         self.info(text);
//!         Ok(())
//!     }
//! }
//!
//! let log = Log::default();
//! let arguments = ["-arch=sm_90".into(), "-v".into()];
//! let run = Run { text: Some(b".version 8.0 .target sm_75 .visible .entry k() { ret; }"), ..Run::new("ptxas", &arguments, &log) };
//! let output = run.to_memory().unwrap().unwrap();
//! assert!(output.cubin.starts_with(b"\x7fELF"));
//! assert!(log.0.borrow().contains("Compiling entry function 'k' for 'sm_90'"));
//! ```

mod settings;
mod voice;
mod write;

use crate::inputs::Inputs;
use crate::options::{CommandLine, Error, help, target_of};
use crate::{Cancel, Failure, Kind, Output, Settings, compile, files, pipeline};
use ptx::{Diagnostic, Severity, Style};
use sass::target::Suffix;
use std::ffi::OsString;
use std::io::Read;
use voice::Voice;

/// Who hears what a run says.
pub trait Console {
    /// Information and warnings, whole lines.
    fn info(&self, text: &str);
    /// Errors, whole lines.
    fn error(&self, text: &str);
    /// What an option asks to be printed.
    ///
    /// # Errors
    /// What keeps it from being printed.
    fn print(&self, text: &str) -> std::io::Result<()>;
    /// How messages are written where no option says it.
    fn style(&self) -> Style {
        Style::Plain
    }
}

/// The name of a text that is in no file, as ptxas says it.
pub const IN_MEMORY: &str = "application ptx input";

/// A command line that is to be run.
#[derive(Clone)]
pub struct Run<'a> {
    /// The name with which messages begin; tools look for `ptxas`.
    pub program: &'a str,
    /// The arguments.
    pub arguments: &'a [OsString],
    /// PTX beside that of the files which the arguments name.
    pub text: Option<&'a [u8]>,
    /// Who may end it.
    pub cancel: Option<Cancel>,
    /// Who hears of it.
    pub console: &'a dyn Console,
}

/// Why there is no code. What there is to say was said.
#[derive(Debug)]
struct Stopped {
    said: String,
    kind: Kind,
}

/// Words about the command line.
impl From<String> for Stopped {
    fn from(said: String) -> Stopped {
        Stopped { said, kind: Kind::Options }
    }
}

/// A run that has come to code.
struct Done<'a> {
    line: CommandLine,
    voice: Voice<'a>,
    target: sass::Target,
    /// The name of the first input.
    file: String,
    output: Output,
}

impl<'a> Run<'a> {
    /// Nothing but arguments.
    pub fn new(program: &'a str, arguments: &'a [OsString], console: &'a dyn Console) -> Run<'a> {
        Run { program, arguments, text: None, cancel: None, console }
    }

    /// Runs it and writes the output file, if there is one.
    ///
    /// # Errors
    /// Why there is none; the console has heard it.
    pub fn to_file(&self) -> Result<(), Kind> {
        self.told(|| {
            let Some(done) = self.compiled()? else { return Ok(()) };
            write::output_file(&done, self.arguments)?;
            done.told(self.arguments)
        })
    }

    /// Runs it and gives the code, or nothing where none was asked for (`--help`, `-arch=compute_90`). `--output-file` has no
    /// effect.
    ///
    /// # Errors
    /// Why there is none; the console has heard it.
    pub fn to_memory(&self) -> Result<Option<Output>, Kind> {
        self.told(|| {
            let Some(done) = self.compiled()? else { return Ok(None) };
            done.told(self.arguments)?;
            Ok(Some(done.output))
        })
    }

    fn told<R>(&self, run: impl FnOnce() -> Result<R, Stopped>) -> Result<R, Kind> {
        run().map_err(|Stopped { said, kind }| {
            if !said.is_empty() {
                self.console.error(&said);
            }
            kind
        })
    }

    /// The settings that the arguments ask for, and nothing else; warnings about them go to the console.
    ///
    /// # Errors
    /// What is wrong with them; the console has heard it.
    pub fn settings(&self) -> Result<Settings, Kind> {
        self.told(|| {
            let mut voice = Voice::new(self.program, self.console);
            let (line, target, _) = self.line(&voice)?;
            line.finish().map_err(|e| voice.stopped(e))?;
            voice.quiet = line.has("disable-warnings");
            voice.strict = line.has("warning-as-error") && !voice.quiet;
            let limits = settings::limits(&line, target, &voice)?;
            settings::conflicts(&line, &voice);
            let (threads, _) = settings::threads(&line, &voice);
            let settings = settings::settings(&line, target, &limits, threads, self.arguments, &voice)?;
            if voice.denied() {
                return Err(voice.aborted().into());
            }
            Ok(Settings { cancel: self.cancel.clone(), ..settings })
        })
    }

    /// The parsed command line, its target, and whether that is one for which nothing is written.
    fn line(&self, voice: &Voice<'_>) -> Result<(CommandLine, sass::Target, bool), Stopped> {
        let args: &[String] =
            &self.arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>();
        let mut line = CommandLine::default();
        let parsed = line.add(args, 0);
        line.warnings.iter().for_each(|w| voice.remark(w));
        parsed.map_err(|e| voice.stopped(e))?;
        let arch = line.value("gpu-name").unwrap_or("sm_75");
        let (target, check_only) = target_of(arch)
            .ok_or_else(|| voice.stopped(format!("Value '{arch}' is not defined for option 'gpu-name'")))?;
        Ok((line, target, check_only))
    }

    fn compiled(&self) -> Result<Option<Done<'a>>, Stopped> {
        let Run { program, arguments, .. } = *self;
        let mut voice = Voice::new(program, self.console);
        let (line, target, check_only) = self.line(&voice)?;
        let arch = line.value("gpu-name").unwrap_or("sm_75");
        if line.has("compiler-stats-file") && !line.has("compiler-stats") {
            voice.remark(
                "Option '--compiler-stats-file' requires option '--compiler-stats'; ignoring since latter is not specified",
            );
        }
        if let Some(path) = line.value("query-controls") {
            files::write_whole(&files::path_of(arguments, path), crate::knobs::listed().as_bytes())
                .map_err(|_| voice.stopped(format!("File '{path}' could not be opened")))?;
        }
        // Without a file there is nothing to do.
        let idle = self.text.is_none()
            && line.inputs.is_empty()
            && !line.has("input-as-string")
            && !line.has("version")
            && !line.has("list-version")
            && !line.has("list-arch");
        if idle && line.has("query-controls") {
            return Ok(None);
        }
        if idle && !line.has("help") {
            settings::of_trace(&line, &voice);
        }
        if idle || line.has("help") {
            return voice.print(&help(program)).map(|()| None);
        }
        if line.has("version") {
            return voice.print(&version(program)).map(|()| None);
        }
        if line.has("list-version") {
            return voice.print(&versions()).map(|()| None);
        }
        if line.has("list-arch") {
            let all: String = sass::target::SMS.iter().map(|t| format!("{}\n", t.sm)).collect();
            return voice.print(&all).map(|()| None);
        }
        if arch.starts_with("lto_") && target.suffix == Suffix::A {
            return Err(voice.stopped(format!("Unsupported gpu architecture '{arch}'")));
        }
        line.finish().map_err(|e| match e {
            Error::CacheModifier { .. } => {
                Stopped::from(format!("{program} error   : {e}\n") + &voice.aborted())
            }
            _ => voice.stopped(e),
        })?;
        voice.quiet = line.has("disable-warnings");
        voice.strict = line.has("warning-as-error") && !voice.quiet;
        let limits = settings::limits(&line, target, &voice)?;
        let inputs = read(&line, arguments, self.text, &voice)?;
        settings::conflicts(&line, &voice);
        if voice.denied() {
            return Err(voice.aborted().into());
        }
        let (threads, tokens) = settings::threads(&line, &voice);
        let settings = settings::settings(&line, target, &limits, threads, self.arguments, &voice)?;
        let settings = Settings { cancel: self.cancel.clone(), ..settings };
        let style = match line.value("diagnostics") {
            Some("rich") => Style::Rich,
            Some("json") => Style::Json,
            Some(_) => Style::Plain,
            None => self.console.style(),
        };
        let inputs = Inputs::new(inputs, target, arch, style, program)
            .map_err(|(said, kind)| Stopped { said, kind })?;
        let (source, file) = (inputs.text(), inputs.name());
        let failed = |f: Failure| Stopped { said: inputs.render_failure(&f, style, program), kind: f.kind() };
        let say = |warnings: &[Diagnostic]| -> Result<(), Stopped> {
            let mut errors = String::new();
            for d in warnings {
                let error = voice.strict && d.severity == Severity::Warning;
                // Information stays.
                let silent = voice.quiet && d.severity == Severity::Warning;
                let severity = if error { Severity::Error } else { d.severity };
                let text = inputs.render(&Diagnostic { severity, ..d.clone() }, style, program);
                if error && !errors.ends_with(&text) {
                    errors += &text;
                } else if !error && !silent {
                    self.console.info(&text);
                }
            }
            if errors.is_empty() { Ok(()) } else { Err((errors + &voice.aborted()).into()) }
        };
        if check_only {
            say(&pipeline::check(source, file, &settings, arch).map_err(failed)?)?;
            return Ok(None);
        }
        let output = compile(source, file, &settings).map_err(failed)?;
        drop(tokens);
        say(&output.warnings)?;
        if voice.denied() {
            return Err(voice.aborted().into());
        }
        for k in &output.kernels {
            if line.has("warn-on-local-memory-usage") && k.frame != 0 {
                voice.warn(&format!(
                    "Local memory used for function '{}', size of stack frame: {} bytes",
                    k.name, k.frame
                ));
            }
            if line.has("warn-on-spills") && k.spills != (0, 0) {
                voice.warn(&format!(
                    "Registers are spilled to local memory in function '{}', {} bytes spill stores, {} bytes spill loads",
                    k.name, k.spills.0, k.spills.1
                ));
            }
        }
        if voice.denied() {
            return Err(String::new().into());
        }
        let file = inputs.name().to_string();
        Ok(Some(Done { line, voice, target, file, output }))
    }
}

/// The inputs, by name and text.
fn read(
    line: &CommandLine,
    arguments: &[OsString],
    text: Option<&[u8]>,
    voice: &Voice<'_>,
) -> Result<Vec<(String, String)>, Stopped> {
    let program = voice.program;
    let mut inputs = Vec::new();
    let mut missing = String::new();
    let mut add = |file: &str, bytes: Vec<u8>| {
        let source = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            let before = &e.as_bytes()[..at];
            let row = before.iter().filter(|b| **b == b'\n').count() + 1;
            let column = at - before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1) + 1;
            let place =
                format!("{program} {file}, line {row}; fatal   : Parsing error: the file is not text\n");
            Stopped::from(place + &format!("    --> {file}:{row}:{column}\n") + &voice.aborted())
        })?;
        inputs.push((file.to_string(), source));
        Ok::<(), Stopped>(())
    };
    for input in &line.inputs {
        let mut bytes = Vec::new();
        // The standard input of a program that compiles in memory is not ours.
        let read = if input == "-" && text.is_some() {
            Err(std::io::ErrorKind::NotFound.into())
        } else if input == "-" {
            std::io::stdin().read_to_end(&mut bytes).map(drop)
        } else {
            std::fs::read(files::path_of(arguments, input)).map(|b| bytes = b)
        };
        if read.is_err() {
            missing += &voice.fatal(format!("Input file '{input}' could not be opened"));
            continue;
        }
        add(if input == "-" { "stdin" } else { input }, bytes)?;
    }
    if !missing.is_empty() {
        return Err((missing + &voice.aborted()).into());
    }
    for text in line.list("input-as-string").iter().map(String::as_bytes).chain(text) {
        // The length of a text in memory may count the zeros at its end.
        let end = text.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        add(IN_MEMORY, text[..end].to_vec())?;
    }
    Ok(inputs)
}

/// Our own name first, then the release that we are compatible with, in the lines that tools parse.
fn version(program: &str) -> String {
    format!(
        "{program}: oxptxas {} (open-source PTX assembler and optimizing code generator)\n\
         Compatible with: Ptx optimizing assembler\n\
         Cuda compilation tools, release 13.0, V13.0.88\n\
         Build oxptxas_{}\n",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION")
    )
}

/// The PTX versions that exist up to the newest that is understood.
fn versions() -> String {
    let mut out = String::new();
    for (major, last) in ptx::parser::LAST_MINOR {
        for minor in 0..=*last {
            out.push_str(&format!("{major}.{minor}\n"));
        }
    }
    out
}
