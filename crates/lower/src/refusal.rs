//! Why a statement is not lowered.

use ptx::{Mod, Op};
use std::fmt;

/// Why a statement, or a function, is not lowered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is not of the form that its instruction has, in words. The checks of [`ptx`] find what they know of before.
    Form(&'static str),
    /// The target, or no target, has instructions for it.
    Product(&'static str),
    /// It is right, but not built yet, as the words say.
    NotBuilt(&'static str),
    /// An instruction with modifiers of which there is no lowering, as it is written without types.
    Instruction(String),
    /// A special register of which there is none.
    SpecialRegister(&'static str),
    /// The address of a parameter that lives in registers.
    AddressOfParameter(String),
    /// A convention of one's own has the return address where there is no register.
    ReturnAddress {
        /// Where.
        at: u8,
        /// Which is the first that there is not.
        end: u8,
    },
    /// A convention of one's own has arguments where there is no register.
    Arguments {
        /// The first above them.
        registers: u16,
        /// The first that there is not.
        end: u8,
    },
    /// One instruction names more registers than the limit leaves.
    Registers {
        /// The limit.
        limit: u8,
        /// The least one with which there are enough.
        needed: u16,
    },
    /// There are no scales at this place of a selector.
    Scales {
        /// Of what the place is the number.
        what: &'static str,
        /// The number.
        at: u64,
    },
    /// An error in the compiler: nobody asked whether this modifier is there.
    ModifierUnread(Mod, Op),
    /// One: nobody looked at the operand of this number.
    OperandUnread(usize, Op),
    /// One: no modifier is spelled so.
    Spelled(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Form(what) | Refusal::Product(what) | Refusal::NotBuilt(what) => f.write_str(what),
            Refusal::Instruction(name) => write!(f, "{name} is not supported yet"),
            Refusal::SpecialRegister(name) => write!(f, "special register {name} is not supported yet"),
            Refusal::AddressOfParameter(name) => {
                write!(f, "Illegal to take address of parameter '{name}'")
            }
            Refusal::ReturnAddress { at, end } => {
                write!(f, "(C7002) Return Address ({at}) should be less than {end}")
            }
            Refusal::Arguments { registers, end } => {
                write!(
                    f,
                    "(C7019) Function PARAMETER size requires more registers({registers}) than available({end})"
                )
            }
            Refusal::Registers { limit, needed } => {
                write!(
                    f,
                    "Insufficient registers ({limit}) to compile instruction. Try to compile with register target of {needed} or higher."
                )
            }
            Refusal::Scales { what, at } => write!(f, "there are no scales at {what} {at}"),
            Refusal::ModifierUnread(m, op) => {
                write!(f, "internal error: nothing was asked about '.{}' of '{}'", m.name(), op.name())
            }
            Refusal::OperandUnread(at, op) => {
                write!(f, "internal error: nothing was asked about operand {at} of '{}'", op.name())
            }
            Refusal::Spelled(name) => write!(f, "internal error: nothing is called {name}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<&'static str> for Refusal {
    fn from(what: &'static str) -> Refusal {
        Refusal::Form(what)
    }
}

/// For diagnostics.
impl From<Refusal> for String {
    fn from(r: Refusal) -> String {
        r.to_string()
    }
}
