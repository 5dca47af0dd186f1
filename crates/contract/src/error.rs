//! What may be wrong with files.

use std::fmt;

/// Why files were not mined or checked, or did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// It can't be read: what the system says.
    Read(String),
    /// It is no cubin: what its reader says.
    Cubin(String),
    /// It is for a target that is not known.
    Target(u8),
    /// It is no ELF file.
    NoElf,
    /// It has no symbols.
    NoSymbols,
    /// This line is no row of a table.
    Row(String),
    /// Checked files lie outside of the contract; what was found was printed.
    Findings,
    /// Something in a file.
    In {
        /// Its name.
        file: String,
        /// What.
        error: Box<Error>,
    },
}

impl Error {
    /// The error with the file that it is in.
    pub fn of(self, file: impl fmt::Display) -> Error {
        Error::In { file: file.to_string(), error: Box::new(self) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(what) | Error::Cubin(what) => f.write_str(what),
            Error::Target(sm) => write!(f, "unknown target sm_{sm}"),
            Error::NoElf => f.write_str("not an ELF file"),
            Error::NoSymbols => f.write_str("no symbols"),
            Error::Row(line) => write!(f, "not a row: {line}"),
            Error::Findings => f.write_str("findings"),
            Error::In { file, error } => write!(f, "{file}: {error}"),
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
