//! What may be wrong with a line of a function's text.

use crate::abi::ConventionError;
use crate::function::{Block, Value};
use crate::tuning::TuningError;
use sass::Opcode;
use std::fmt;
use std::num::ParseIntError;

/// What is looked up by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// What is said of a function.
    Property,
    /// A register file.
    File,
    /// An operation.
    Operation,
    /// What stands behind a base of an address, with its dot.
    Suffix,
}

/// What has a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbered {
    /// A block.
    Block,
    /// A value.
    Value,
}

/// What is defined, and then named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defined {
    /// A block.
    Block(Block),
    /// A value.
    Value(Value),
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The text has none or several functions where it is to be one.
    NotOne,
    /// A function has no end.
    Open,
    /// Something else is to stand here: what, in words.
    Expected(&'static str),
    /// This is to stand in front of the rest.
    Token {
        /// What.
        token: String,
        /// The rest.
        before: String,
    },
    /// This is to be a register.
    Register(String),
    /// A function has no name.
    NoName,
    /// There is no such target.
    Target,
    /// An address has no such part.
    Part,
    /// There is none of this name.
    Unknown(Named, String),
    /// Modifiers of an operation that begin with none.
    Modifier {
        /// The operation.
        of: String,
        /// They.
        rest: String,
    },
    /// No number.
    Number(String),
    /// No number of a block or value.
    NumberOf(Numbered, String),
    /// A block or value has too large a number.
    Most(Numbered),
    /// A number that is too large for what it says.
    Large(u32),
    /// No number of a part of a value.
    PartNumber,
    /// No set of scoreboards.
    Scoreboards,
    /// A literal is no number.
    Literal {
        /// It.
        word: String,
        /// Why.
        why: ParseIntError,
    },
    /// It is used, but never defined.
    Undefined(Defined),
    /// It is defined a second time.
    Again(Defined),
    /// A function has no blocks.
    NoBlocks,
    /// An instruction stands in no block.
    Outside,
    /// An operation has fewer operands than it takes.
    Missing(Opcode),
    /// An operation has more.
    TooMany,
    /// Something stands behind the line's end.
    Behind(String),
    /// A convention of calls is.
    Convention(ConventionError),
    /// Choices of a function are.
    Tuning(TuningError),
}

impl From<ConventionError> for Wrong {
    fn from(e: ConventionError) -> Wrong {
        Wrong::Convention(e)
    }
}

impl From<TuningError> for Wrong {
    fn from(e: TuningError) -> Wrong {
        Wrong::Tuning(e)
    }
}

impl fmt::Display for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Numbered::Block => "block",
            Numbered::Value => "value",
        })
    }
}

impl fmt::Display for Defined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defined::Block(b) => b.fmt(f),
            Defined::Value(v) => v.fmt(f),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::NotOne => f.write_str("expected one function"),
            Wrong::Open => f.write_str("missing `}`"),
            Wrong::Expected(what) => write!(f, "expected {what}"),
            Wrong::Token { token, before } => write!(f, "expected `{token}` at `{before}`"),
            Wrong::Register(word) => write!(f, "expected a register, found `{word}`"),
            Wrong::NoName => f.write_str("function name missing"),
            Wrong::Target => f.write_str("unknown target"),
            Wrong::Part => f.write_str("unknown part of an address"),
            Wrong::Unknown(what, name) => {
                let what = match what {
                    Named::Property => "property",
                    Named::File => "register file",
                    Named::Operation => "operation",
                    Named::Suffix => "address suffix",
                };
                write!(f, "unknown {what} `{name}`")
            }
            Wrong::Modifier { of, rest } => write!(f, "{of}: unknown modifier in `.{rest}`"),
            Wrong::Number(text) => write!(f, "bad number `{text}`"),
            Wrong::NumberOf(what, text) => write!(f, "bad {what} `{text}`"),
            Wrong::Most(what) => write!(f, "{what} number too large"),
            Wrong::Large(n) => write!(f, "{n} is too large"),
            Wrong::PartNumber => f.write_str("bad part number"),
            Wrong::Scoreboards => f.write_str("bad scoreboard set"),
            Wrong::Literal { word, why } => write!(f, "{word}: {why}"),
            Wrong::Undefined(what) => write!(f, "{what} is used but never defined"),
            Wrong::Again(what) => write!(f, "{what} is defined twice"),
            Wrong::NoBlocks => f.write_str("function without blocks"),
            Wrong::Outside => f.write_str("instruction before the first block"),
            Wrong::Missing(opcode) => write!(f, "{opcode}: operand missing"),
            Wrong::TooMany => f.write_str("too many operands"),
            Wrong::Behind(rest) => write!(f, "unexpected `{rest}`"),
            Wrong::Convention(e) => e.fmt(f),
            Wrong::Tuning(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Wrong {}
