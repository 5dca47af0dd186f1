//! What may be wrong with files that are looked at.

use sim::FileError;
use sim::sass::SimError;
use std::fmt;

/// Why a file is not looked at, or its code not timed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// It is no cubin, or damaged.
    Cubin(cubin::Error),
    /// It is for an SM that is not known.
    Target(u8),
    /// The simulator does not take it.
    Code(FileError),
    /// It has not the kernel of a launch.
    NoKernel,
    /// A launch of it cannot be executed.
    Run(SimError),
}

impl From<cubin::Error> for Error {
    fn from(e: cubin::Error) -> Error {
        Error::Cubin(e)
    }
}

impl From<FileError> for Error {
    fn from(e: FileError) -> Error {
        Error::Code(e)
    }
}

impl From<SimError> for Error {
    fn from(e: SimError) -> Error {
        Error::Run(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Cubin(e) => e.fmt(f),
            Error::Target(sm) => write!(f, "sm_{sm} is not known"),
            Error::Code(e) => e.fmt(f),
            Error::NoKernel => f.write_str("no such kernel"),
            Error::Run(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// For who says errors as text.
impl From<Error> for String {
    fn from(e: Error) -> String {
        e.to_string()
    }
}
