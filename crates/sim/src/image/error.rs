//! What may be wrong with images, with what handles and names stand for, and with what files say of them.

use super::Kind;
use std::fmt;

/// Why there is no texture, sampler or surface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoImage {
    /// None has a handle with this lower word.
    Number(u32),
    /// There is no sampler of this number.
    Sampler(u32),
    /// Nothing is bound to this name.
    Unbound(String),
    /// This is no handle of the kind.
    Handle(u64, Kind),
}

impl fmt::Display for NoImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoImage::Number(n) => write!(f, "there is no image {n:#x}"),
            NoImage::Sampler(n) => write!(f, "there is no sampler {n:#x}"),
            NoImage::Unbound(name) => write!(f, "no texture, sampler or surface is bound to '{name}'"),
            NoImage::Handle(handle, kind) => {
                let what = if *kind == Kind::Texture { "texture" } else { "surface" };
                write!(f, "{handle:#x} is no handle of a {what}")
            }
        }
    }
}

impl std::error::Error for NoImage {}

/// For who says errors as text.
impl From<NoImage> for String {
    fn from(e: NoImage) -> String {
        e.to_string()
    }
}

/// What is wrong with an image, a sampler or a name, as a program or a launch file describes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// Texels have not so many channels.
    Channels(u32),
    /// Texels of this type do not stand for numbers up to 1.
    Normalized,
    /// It has no texels.
    Nothing,
    /// It has more of something than there may be.
    Large,
    /// It has more dimensions than its geometry.
    Dimensions,
    /// It has layers, and is no array.
    Layers,
    /// It has samples, and its geometry has none.
    Samples,
    /// A cube has other faces.
    Faces,
    /// It has too many levels.
    Levels {
        /// So many.
        levels: u32,
        /// Texels in the longest direction.
        texels: u32,
    },
    /// It has samples, and several levels.
    LevelsOfSamples,
    /// It says how far apart rows are, and has several levels.
    LevelsApart,
    /// Rows start where none may.
    Pitch,
    /// Rows overlap.
    Rows {
        /// Bytes of one.
        row: u64,
        /// Bytes from one to the next.
        pitch: u64,
    },
    /// A size has another number of dimensions than the geometry.
    Size {
        /// Those of the size.
        size: usize,
        /// Those of the geometry.
        geometry: usize,
    },
    /// It does not fit its buffer.
    Buffer {
        /// Bytes that it has.
        needs: u64,
        /// Bytes of the buffer.
        has: u64,
    },
    /// There are more address modes or channels of a border than a sampler has.
    Modes,
    /// A word is none of those that there are.
    Word {
        /// What it says.
        what: &'static str,
        /// The word.
        word: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// A name stands for nothing, or for several things.
    Kinds,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageError::Channels(n) => return write!(f, "texels of {n} channels; they have 1, 2 or 4"),
            ImageError::Normalized => "normalized texels are integers of 8 or 16 bits",
            ImageError::Nothing => "an image has at least one texel, layer, sample and level",
            ImageError::Large => "an image has at most 2^17 texels in a dimension, 2^11 layers, 16 samples",
            ImageError::Dimensions => "more dimensions than the geometry has",
            ImageError::Layers => "layers, but no array",
            ImageError::Samples => "samples, but a geometry without",
            ImageError::Faces => "faces of a cube are squares",
            ImageError::Levels { levels, texels } => {
                return write!(f, "{levels} levels of {texels} texels");
            }
            ImageError::LevelsOfSamples => "samples in several levels",
            ImageError::LevelsApart => "a pitch of several levels",
            ImageError::Pitch => "rows are multiples of 16 bytes apart",
            ImageError::Rows { row, pitch } => {
                return write!(f, "rows of {row} bytes are {pitch} bytes apart");
            }
            ImageError::Size { size, geometry } => {
                return write!(f, "a size of {size} dimensions; the geometry has {geometry}");
            }
            ImageError::Buffer { needs, has } => {
                return write!(f, "it has {needs} bytes, its buffer {has}");
            }
            ImageError::Modes => "at most three address modes and four channels of a border",
            ImageError::Word { what, word, known } => {
                return write!(f, "{what} '{word}'; there are {}", known.join(", "));
            }
            ImageError::Kinds => "a name stands for a texture, a surface or a sampler",
        })
    }
}

impl std::error::Error for ImageError {}
