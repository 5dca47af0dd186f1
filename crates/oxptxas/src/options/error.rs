//! What may be wrong with a command line, in ptxas's words.

use super::Access;
use std::fmt;

/// What is wrong with options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A quote without an end, or a backslash with nothing behind it.
    Stray(char),
    /// There is no such option; without a dash.
    Unknown(String),
    /// Nothing stands behind an option that takes an argument.
    NoArgument(String),
    /// A flag has one.
    Argument(String),
    /// A value is none of those that an option takes.
    Undefined {
        /// It.
        value: String,
        /// The option.
        option: &'static str,
    },
    /// Several targets where one is taken.
    Targets(String),
    /// A value without a meaning, which is looked at only where something is compiled.
    Invalid {
        /// It.
        value: String,
        /// The option.
        option: &'static str,
    },
    /// A value is no number.
    NoNumber(String),
    /// A value is neither `true` nor `false`.
    NoBool(String),
    /// A number has more bits than an option takes.
    Range {
        /// How many that takes.
        bits: u32,
        /// It.
        value: String,
    },
    /// An option that is known but not built yet.
    NotBuilt(&'static str),
    /// A file of options cannot be read.
    File(String),
    /// It is inside of too many others.
    Nested(String),
    /// No value of `--Ofast-compile`.
    FastCompile(String),
    /// No cache operator.
    CacheModifier {
        /// Whether it is for accesses that say none.
        default: bool,
        /// Of which accesses.
        access: Access,
        /// It.
        value: String,
    },
    /// `-cloning=yes` beside this value of `--Ofast-compile`.
    Cloning(String),
    /// A level beside a value of `--Ofast-compile` that has another.
    Level {
        /// The levels that are not that.
        others: &'static str,
        /// The value.
        fast: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Stray(c) => write!(f, "Stray '{c}' character"),
            Error::Unknown(name) => write!(f, "Unknown option '{name}'"),
            Error::NoArgument(arg) => write!(f, "argument expected after '{arg}'"),
            Error::Argument(arg) => write!(f, "no argument expected after '{arg}'"),
            Error::Undefined { value, option } => {
                write!(f, "Value '{value}' is not defined for option '{option}'")
            }
            Error::Targets(value) => write!(
                f,
                "Value '{value}' is not defined for option 'gpu-name'; give one target, and run once for each, or `oxsass fatbin`"
            ),
            Error::Invalid { value, option } => write!(f, "Invalid value '{value}' for option '--{option}'"),
            Error::NoNumber(value) => write!(f, "'{value}': expected a number"),
            Error::NoBool(value) => write!(f, "'{value}': expected true or false"),
            Error::Range { bits, value } => write!(f, "{bits}-bit integer value ({value}) out of range"),
            Error::NotBuilt(option) => write!(f, "Option '--{option}' is known but not built yet"),
            Error::File(name) => write!(f, "Options file '{name}' could not be opened"),
            Error::Nested(name) => write!(f, "Options file '{name}' is nested too deeply"),
            Error::FastCompile(value) => write!(
                f,
                "Invalid value for --Ofast-compile/-Ofc ({value}), is not 'max', 'mid', 'min', or '0'"
            ),
            Error::CacheModifier { default, access, value } => {
                let which = if *default { "default" } else { "forced" };
                let access = match access {
                    Access::Load => "load",
                    Access::Store => "store",
                };
                write!(f, "Invalid {which} cache modifier on {access} specified: {value}")
            }
            Error::Cloning(fast) => {
                write!(f, "Conflicting options -cloning=yes and --Ofast-compile={fast} specified")
            }
            Error::Level { others, fast } => {
                write!(f, "Conflicting options -opt-level=<{others}> and --Ofast-compile={fast} specified")
            }
        }
    }
}

impl std::error::Error for Error {}
