//! The commands, and what they share: errors, and programs to execute.

pub mod code;
pub mod compare;
pub mod explain;
pub mod fatbin;
pub mod manual;
pub mod run;
pub mod verify;

use sass::Target;
use sim::launch::{Buffers, Launch, LaunchFile};
use sim::output::Output;
use sim::schedule::Schedule;
use std::path::Path;
use std::{fmt, fs, io};

/// Why a command fails.
#[derive(Debug)]
pub enum Error {
    /// What it prints could not be written.
    Output(io::Error),
    /// Anything else, in words.
    Said(String),
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Output(e)
    }
}

impl From<String> for Error {
    fn from(e: String) -> Error {
        Error::Said(e)
    }
}

/// What is said of these in their own words.
macro_rules! said {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(e: $error) -> Error {
                Error::Said(e.to_string())
            }
        })*
    };
}

said!(
    cubin::Error,
    oxptxas::knobs::Error,
    oxsass::Error,
    oxsass::explain::Error,
    oxsass::link::Error,
    sim::FileError,
    sim::launch::CompareError,
    sim::record::RecordError
);

impl From<&str> for Error {
    fn from(e: &str) -> Error {
        Error::Said(e.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Output(e) => write!(f, "standard output: {e}"),
            Error::Said(e) => f.write_str(e),
        }
    }
}

/// What a command comes to.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The bytes of a file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// The launches of a launch file.
pub fn launches(path: &Path) -> Result<Vec<Launch>> {
    let at = path.display();
    let text = fs::read_to_string(path).map_err(|e| format!("{at}: {e}"))?;
    Ok(LaunchFile::parse(&text).map_err(|e| format!("{at}: {e}"))?.launch)
}

/// A target as `sm_90a`.
pub fn parse_target(name: &str) -> Result<Target, UnknownTarget> {
    Target::parse(name).ok_or_else(|| UnknownTarget(name.into()))
}

/// A name that no target has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownTarget(String);

impl fmt::Display for UnknownTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a known target: sm_75 … sm_121", self.0)
    }
}

impl std::error::Error for UnknownTarget {}

/// The first target that a module names, if it is known.
pub fn own_target(module: &ptx::Module) -> Option<Target> {
    module.targets.first().and_then(|t| Target::parse(t))
}

/// A program to execute.
pub enum Program {
    /// Code.
    Cubin {
        /// The file.
        path: String,
        /// Its contents.
        bytes: Vec<u8>,
    },
    /// PTX.
    Ptx {
        /// The file.
        path: String,
        /// Its text.
        source: String,
        /// What it means.
        module: Box<ptx::Module>,
    },
}

impl Program {
    /// From a file: what does not begin as an ELF file is PTX.
    pub fn load(path: &Path) -> Result<Program> {
        let bytes = read(path)?;
        let path = path.display().to_string();
        if bytes.starts_with(b"\x7fELF") {
            return Ok(Program::Cubin { path, bytes });
        }
        let source = String::from_utf8(bytes).map_err(|_| format!("{path}: neither a cubin nor text"))?;
        let module = ptx::parse(&source).map_err(|errors| rendered(&errors, &path, &source))?;
        Ok(Program::Ptx { path, source, module: module.into() })
    }

    /// The buffers afterwards, and what the threads printed.
    pub fn run(&self, launch: &Launch, schedule: Schedule, limit: Option<u64>) -> Result<(Buffers, Output)> {
        match self {
            Program::Cubin { path, bytes } => {
                let options = sass_options(schedule, limit);
                let run = sim::sass::run(bytes, launch, options);
                run.map(|r| (r.buffers, r.output))
                    .map_err(|e| format!("{path}: kernel '{}': {e}", launch.kernel).into())
            }
            Program::Ptx { path, source, module } => {
                let usual = sim::ptx::Options::default();
                let options = sim::ptx::Options { schedule, limit: limit.unwrap_or(usual.limit), ..usual };
                let run = sim::ptx::execute_with(module, launch, options);
                let after = run.map_err(|e| e.render(path, source))?;
                Ok((launch.collect(&after), after.output))
            }
        }
    }
}

/// PTX with what it means, of a file that has to be PTX.
pub fn load_ptx(path: &Path, why: &str) -> Result<(String, Box<ptx::Module>)> {
    match Program::load(path)? {
        Program::Ptx { source, module, .. } => Ok((source, module)),
        Program::Cubin { path, .. } => Err(format!("{path}: {why}").into()),
    }
}

/// Messages about a PTX file.
pub fn rendered(errors: &[ptx::Diagnostic], path: &str, source: &str) -> String {
    let lines = ptx::LineIndex::new(source);
    errors.iter().map(|d| d.render("oxsass", path, source, &lines)).collect()
}

/// How the simulator runs a launch.
pub fn sass_options(schedule: Schedule, limit: Option<u64>) -> sim::sass::Options {
    let usual = sim::sass::Options::default();
    sim::sass::Options { schedule, limit: limit.unwrap_or(usual.limit), ..usual }
}
