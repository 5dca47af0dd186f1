//! What may be wrong with launches, and with the files that describe them.

use super::{MOST_BLOCKS, MOST_BYTES, MOST_IN_CLUSTER, MOST_SHARED, MOST_STACK, TilesError};
use crate::image::ImageError;
use crate::number::NumberError;
use crate::{errors_of, text_of};
use std::fmt;

/// Why no launch has a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShapeError {
    /// There are no blocks, or too many.
    Grid([u32; 3]),
    /// A block has no threads, or too many.
    Block([u32; 3]),
    /// A cluster has no blocks, or too many.
    Cluster(Option<[u32; 3]>),
    /// It asks for too many bytes of shared memory.
    Shared(u32),
    /// It asks for too many bytes of stack.
    Stack(u32),
    /// The grid is not made of whole clusters.
    Parts {
        /// Blocks.
        grid: [u32; 3],
        /// Blocks of a cluster.
        cluster: [u32; 3],
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Grid(grid) => {
                write!(f, "a grid of {grid:?} blocks; here it has 1 to {MOST_BLOCKS}")
            }
            ShapeError::Block(block) => write!(f, "a block of {block:?} threads; it has 1 to 1024"),
            ShapeError::Cluster(cluster) => {
                write!(f, "a cluster of {cluster:?} blocks; it has 1 to {MOST_IN_CLUSTER}")
            }
            ShapeError::Shared(bytes) => {
                write!(f, "{bytes} bytes of shared memory; there are at most {MOST_SHARED}")
            }
            ShapeError::Stack(bytes) => {
                write!(f, "a stack of {bytes} bytes; there are at most {MOST_STACK}")
            }
            ShapeError::Parts { grid, cluster } => {
                write!(f, "a grid of {grid:?} blocks is not made of clusters of {cluster:?}")
            }
        }
    }
}

impl std::error::Error for ShapeError {}

/// Why a launch file is not read.
#[derive(Clone, PartialEq, Debug)]
pub enum LaunchFileError {
    /// It is not as such files are.
    Text(toml::de::Error),
    /// Something is wrong with a launch.
    Kernel {
        /// Of this kernel.
        kernel: String,
        /// What.
        wrong: LaunchError,
    },
}

impl fmt::Display for LaunchFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchFileError::Text(e) => e.fmt(f),
            LaunchFileError::Kernel { kernel, wrong } => write!(f, "kernel {kernel}: {wrong}"),
        }
    }
}

impl std::error::Error for LaunchFileError {}

/// What is wrong with a launch of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum LaunchError {
    /// Its shape.
    Shape(ShapeError),
    /// A buffer of this name.
    Buffer(String, BufferError),
    /// An image of this name.
    Image(String, ImageError),
    /// What this name of the PTX stands for.
    Name(String, ImageError),
    /// All buffers together are too large.
    Bytes,
    /// It names a buffer that is not there.
    NoBuffer(String),
    /// It names an image that is not there.
    NoImage(String),
    /// An argument is none thing, or several.
    Keys,
    /// A number of an argument.
    Number(NumberError),
    /// A tensor map.
    Tiles(TilesError),
}

errors_of!(LaunchError: Shape(ShapeError), Number(NumberError), Tiles(TilesError));
errors_of!(BufferError: Number(NumberError));

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Shape(e) => e.fmt(f),
            LaunchError::Buffer(name, e) => write!(f, "buffer {name}: {e}"),
            LaunchError::Image(name, e) => write!(f, "image {name}: {e}"),
            LaunchError::Name(name, e) => write!(f, "name {name}: {e}"),
            LaunchError::Bytes => write!(f, "buffers of more than {MOST_BYTES} bytes"),
            LaunchError::NoBuffer(name) => write!(f, "no buffer '{name}'"),
            LaunchError::NoImage(name) => write!(f, "no image '{name}'"),
            LaunchError::Keys => f.write_str("an argument has exactly one key"),
            LaunchError::Number(e) => e.fmt(f),
            LaunchError::Tiles(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LaunchError {}

/// What is wrong with a buffer.
#[derive(Clone, PartialEq, Debug)]
pub enum BufferError {
    /// It has several contents.
    Keys,
    /// So many elements are too many.
    Elements(usize),
    /// Its random numbers have no range.
    Unbounded,
    /// A number of it.
    Number(NumberError),
}

impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufferError::Keys => {
                f.write_str("more than one of fill, iota, list, random, special and undefined")
            }
            BufferError::Elements(length) => {
                write!(f, "{length} elements: a launch has at most {MOST_BYTES} bytes")
            }
            BufferError::Unbounded => f.write_str("a range without bounds"),
            BufferError::Number(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for BufferError {}

/// Why the buffers of two runs do not count as the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompareError {
    /// The launch file does not say how to compare a buffer.
    How {
        /// Its name.
        buffer: String,
        /// What stands there.
        how: String,
    },
    /// They differ: the first element of each buffer that does.
    Different(Vec<Difference>),
}

/// How a buffer differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// One run has none of this name.
    Missing(String),
    /// An element is another.
    Element {
        /// The kernel.
        kernel: String,
        /// The buffer's name.
        buffer: String,
        /// Which element is the first.
        index: usize,
        /// What it is, as it is written.
        got: String,
        /// What it should be.
        want: String,
        /// How many elements differ.
        count: usize,
        /// Of how many.
        length: usize,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Missing(name) => write!(f, "buffer {name} is missing"),
            Difference::Element { kernel, buffer, index, got, want, count, length } => {
                write!(
                    f,
                    "kernel {kernel}: {buffer}[{index}] is {got}, not {want} ({count} of {length} differ)"
                )
            }
        }
    }
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompareError::How { buffer, how } => write!(f, "buffer {buffer}: bad compare '{how}'"),
            CompareError::Different(all) => {
                for (i, one) in all.iter().enumerate() {
                    write!(f, "{}{one}", if i == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for CompareError {}

text_of!(LaunchFileError, CompareError, ShapeError);
