//! What may be wrong with a cubin that is to be executed or looked at.

use crate::image::NoImage;
use std::fmt;

/// Why a cubin, or a kernel of it, is not loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileError {
    /// It is none, or damaged.
    Cubin(cubin::Error),
    /// It is for an SM that is not known.
    Target(u8),
    /// It does not say which lines of the PTX its code comes from.
    NoLines,
    /// It has no such kernel.
    NoKernel(String),
    /// A kernel has no symbol that says where it starts.
    NoSymbol(String),
    /// A relocation lies outside of its section.
    Outside,
    /// One of a type that is not known.
    Relocation(u32),
    /// One, of constant bank 0.
    BankRelocation(u32),
    /// One of an instruction that is not known.
    Decode(sass::DecodeError),
    /// One with which an instruction has no encoding.
    Encode(sass::EncodeError),
    /// A name of it stands for no texture, sampler or surface.
    Image(NoImage),
    /// A name of it stands for one of another kind.
    Kind(String),
}

impl From<cubin::Error> for FileError {
    fn from(e: cubin::Error) -> FileError {
        FileError::Cubin(e)
    }
}

impl From<NoImage> for FileError {
    fn from(e: NoImage) -> FileError {
        FileError::Image(e)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Cubin(e) => e.fmt(f),
            FileError::Target(sm) => write!(f, "unknown target sm_{sm}"),
            FileError::NoLines => {
                f.write_str("the cubin does not say which lines of the PTX its code comes from")
            }
            FileError::NoKernel(name) => write!(f, "no kernel {name}"),
            FileError::NoSymbol(name) => write!(f, "no symbol {name}"),
            FileError::Outside => f.write_str("a relocation lies outside its section"),
            FileError::Relocation(kind) => write!(f, "relocation of type {kind:#x}"),
            FileError::BankRelocation(kind) => {
                write!(f, "relocation of type {kind:#x} in constant bank 0")
            }
            FileError::Decode(e) => e.fmt(f),
            FileError::Encode(e) => e.fmt(f),
            FileError::Image(e) => e.fmt(f),
            FileError::Kind(name) => write!(f, "what is bound to '{name}' is of another kind"),
        }
    }
}

impl std::error::Error for FileError {}

/// For who says errors as text.
impl From<FileError> for String {
    fn from(e: FileError) -> String {
        e.to_string()
    }
}
