//! The hardware contract: what the files of the reference compiler always and never do, as tables that were mined from
//! them, and what of a file lies outside (docs/hardware-contract.md).
//!
//! A [`Rule`] turns a file into observations: short texts, each at a place. Mining counts the observations of files of the
//! reference compiler by family of targets; checking asks, for each observation of a file, whether the table has it.

mod check;
pub mod elf;
mod error;
mod file;
pub mod mine;
mod registers;
pub mod rules;
mod table;

pub use check::{Contract, Finding, observe};
pub use error::Error;
pub use file::{File, Item, Kernel};
pub use rules::{Judge, RULES, Rule};
pub use table::{Counts, Family, Table};

/// Where in a file something was observed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Index of the kernel; `None` for the file as a whole.
    pub kernel: Option<usize>,
    /// Index of the instruction; `None` for the kernel as a whole.
    pub at: Option<usize>,
}

impl Place {
    /// The file as a whole.
    pub const FILE: Place = Place { kernel: None, at: None };

    /// A kernel as a whole.
    pub fn kernel(kernel: usize) -> Place {
        Place { kernel: Some(kernel), at: None }
    }
    /// An instruction.
    pub fn inst(kernel: usize, at: usize) -> Place {
        Place { kernel: Some(kernel), at: Some(at) }
    }
}
