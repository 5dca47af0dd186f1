//! What the checker of allocations may find.

use ori::{Block, Value};
use sass::Reg;
use std::fmt;

/// What is wrong with an allocation, and in which block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Where.
    pub block: Block,
    /// What.
    pub wrong: Wrong,
}

/// What is wrong with an allocation; instructions as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// A block leads elsewhere.
    Targets,
    /// A block ends otherwise.
    Terminator,
    /// The terminator does not read what it should.
    Ending(Fault),
    /// An instruction stands elsewhere.
    Order(String),
    /// An instruction is gone, and with it what it makes.
    Missing(String),
    /// An instruction was added that is none of those that allocators add.
    Unknown(String),
    /// A move writes a register that is not the allocator's.
    Move(Reg),
    /// A barrier that some lanes leave by BREAK while others wait at it is set in two places.
    Barrier(Reg),
    /// An instruction became another that does not do the same.
    Changed {
        /// What it was.
        before: String,
        /// What it is.
        after: String,
        /// Why that is not the same.
        fault: Fault,
    },
}

/// Why an operand is not right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is another operation.
    Operation,
    /// It has other source modifiers.
    Modifiers,
    /// It is another address.
    Address,
    /// It is in another bank of constants.
    Bank,
    /// It is something else.
    Operand,
    /// A register that the program names was written since.
    Overwritten(Reg),
    /// A register that the program names became another.
    Renamed(Reg, Reg),
    /// So many registers of a value are where they may not begin.
    Unaligned(Value, u8, Reg),
    /// A value is in a register of another file.
    File(Value, Reg),
    /// A register may not hold this part of a value.
    Holds(Reg, Value, u8),
    /// A value is written where it may not be.
    Written(Value, Reg),
    /// A register that is not the allocator's is written.
    Reserved(Reg),
    /// A register is written twice.
    Twice(Reg),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.block, self.wrong)
    }
}

impl std::error::Error for Violation {}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Targets => f.write_str("targets differ"),
            Wrong::Terminator => f.write_str("terminators differ"),
            Wrong::Ending(fault) => write!(f, "terminator: {fault}"),
            Wrong::Order(inst) => write!(f, "`{inst}` is out of order"),
            Wrong::Missing(inst) => write!(f, "`{inst}` is missing"),
            Wrong::Unknown(inst) => write!(f, "unknown inserted instruction `{inst}`"),
            Wrong::Barrier(r) => write!(f, "{r} is set in two places, and some lanes leave it"),
            Wrong::Move(r) => write!(f, "a move writes {r}"),
            Wrong::Changed { before, after, fault } => write!(f, "`{before}` as `{after}`: {fault}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Operation => f.write_str("changed"),
            Fault::Modifiers => f.write_str("source modifier changed"),
            Fault::Address => f.write_str("address changed"),
            Fault::Bank => f.write_str("constant bank changed"),
            Fault::Operand => f.write_str("operand changed"),
            Fault::Overwritten(r) => write!(f, "{r} was overwritten"),
            Fault::Renamed(r, got) => write!(f, "{r} became {got}"),
            Fault::Unaligned(v, width, r) => write!(f, "{v} of {width} registers is at {r}"),
            Fault::File(v, r) => write!(f, "{v} is in {r}"),
            Fault::Holds(r, v, lane) => write!(f, "{r} may not hold {v}.{lane}"),
            Fault::Written(v, r) => write!(f, "{v} is written to {r}"),
            Fault::Reserved(r) => write!(f, "{r} is reserved"),
            Fault::Twice(r) => write!(f, "{r} is written twice"),
        }
    }
}
