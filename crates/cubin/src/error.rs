//! What may be wrong with files, and with what is to be written into them.

use std::fmt;

/// Why a file was not read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// It is no ELF file.
    NoElf(object::read::Error),
    /// Its structure is damaged.
    Damaged(object::read::Error),
    /// It is for another machine.
    NotCuda,
    /// A name lies outside of the strings.
    NoText,
    /// The call graph has a part of this number.
    PartOfGraph(u32),
    /// Sections overlap.
    TooMuchInFile,
    /// A section lies outside of the file.
    Outside,
    /// A variable has more bytes than any may.
    Variable {
        /// Its name.
        name: String,
        /// Its bytes.
        size: u64,
    },
    /// A table of lines ends in the middle.
    LinesEnd,
    /// One has a version that is not known.
    LinesVersion,
    /// One has no range of lines.
    LinesRange,
    /// Nothing of the object has this name.
    NotInObject(String),
    /// Nothing of the file has this name.
    NotInFile(String),
    /// The places of variables go beyond 64 bits.
    Places {
        /// Whether all of them are global ones.
        global: bool,
        /// The variable with which they do.
        name: String,
    },
    /// Initialized variables have so many bytes.
    Data(u64),
    /// So many kernels need so many sections.
    Sections {
        /// Kernels.
        kernels: usize,
        /// Their sections, and the others.
        sections: usize,
    },
    /// Code needs so many sections.
    CodeSections {
        /// They.
        sections: usize,
        /// The most that a file has.
        most: usize,
    },
    /// A call of what is not there.
    CallOfNothing,
    /// A word of constant bank 4 that names an image that is not there.
    WordOfNothing,
    /// Debug information with an address that only code has.
    AddressOfCode,
    /// An executable with an address that only objects have.
    AddressOfObjects,
}

impl Error {
    /// What is said where the structure of a file can't be read.
    pub(crate) fn damaged(e: object::read::Error) -> Error {
        Error::Damaged(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoElf(e) => write!(f, "not an ELF file: {e}"),
            Error::Damaged(e) => e.fmt(f),
            Error::NotCuda => f.write_str("not a CUDA file"),
            Error::NoText => f.write_str("a text that is not in the file"),
            Error::PartOfGraph(n) => write!(f, "part {n} of the call graph is unknown"),
            Error::TooMuchInFile => f.write_str("sections that are larger than the file"),
            Error::Outside => f.write_str("a section lies outside the file"),
            Error::Variable { name, size } => write!(f, "variable '{name}' of {size} bytes is too large"),
            Error::LinesEnd => f.write_str("the line table ends too early"),
            Error::LinesVersion => f.write_str("a line table of another version"),
            Error::LinesRange => f.write_str("a line table without a range"),
            Error::NotInObject(name) => write!(f, "'{name}' is not in the object"),
            Error::NotInFile(name) => write!(f, "'{name}' is not in the file"),
            Error::Places { global, name } => {
                let which = if *global { "global variables" } else { "variables" };
                write!(f, "{which} up to '{name}' take more than 64 bits can count")
            }
            Error::Data(size) => {
                let most = crate::write::MOST_DATA;
                write!(
                    f,
                    "{size} bytes of initialized variables are more than the {most} that a file may have"
                )
            }
            Error::Sections { kernels, sections } => {
                let fewer = crate::write::RESERVED_NUMBERS;
                write!(f, "{kernels} kernels need {sections} sections, and a file has fewer than {fewer}")
            }
            Error::CodeSections { sections, most } => {
                write!(f, "the code needs {sections} sections, and a file has at most {most}")
            }
            Error::CallOfNothing => f.write_str("a call of nothing"),
            Error::WordOfNothing => f.write_str("a word of nothing"),
            Error::AddressOfCode => f.write_str("debug information with an address that only code has"),
            Error::AddressOfObjects => f.write_str("an address that only objects have"),
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
