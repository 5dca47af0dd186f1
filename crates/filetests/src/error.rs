//! What may be wrong with a test, and with what a stage makes of it.

use sim::launch::CompareError;
use sim::{errors_of, text_of};
use std::fmt;

/// Why a test is none.
#[derive(Debug)]
pub enum CaseError {
    /// Its first line does not say what it is of.
    NoStage,
    /// A word behind `// run` is none.
    Word(String),
    /// Something behind `// run` is no number.
    Number(String),
    /// A number of threads that there is not.
    Threads(std::num::TryFromIntError),
    /// Nothing of this name can be given.
    NoInput(String),
    /// There is no such target.
    NoTarget(String),
    /// What is in it is wrong PTX.
    Ptx(Vec<ptx::Diagnostic>),
    /// It is no function.
    Text(ori::parse::ParseError),
    /// It is a wrong function, and why.
    Function(Vec<String>),
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaseError::NoStage => f.write_str("first line: // test STAGE"),
            CaseError::Word(word) => write!(f, "`{word}` is no NAME=VALUE, nor `texture`"),
            CaseError::Number(text) => write!(f, "`{text}` is no number"),
            CaseError::Threads(e) => e.fmt(f),
            CaseError::NoInput(name) => write!(f, "there is no `{name}` to give"),
            CaseError::NoTarget(target) => write!(f, "there is no target {target}"),
            CaseError::Ptx(errors) => f.write_str(errors.first().map_or("wrong PTX", |d| &d.message)),
            CaseError::Text(e) => e.fmt(f),
            CaseError::Function(wrong) => f.write_str(&wrong.join("\n")),
        }
    }
}

impl std::error::Error for CaseError {}

/// Why a test fails.
#[derive(Debug)]
pub enum Failure {
    /// There is no pass of this name.
    NoPass(String),
    /// The pass changes nothing.
    Nothing,
    /// The stage gets a function in the place of PTX, or the other way round.
    Input,
    /// The phase of the backend shows nothing.
    Hidden,
    /// There is no kernel.
    NoKernel,
    /// Lowering refuses it.
    Lower(Vec<ptx::Diagnostic>),
    /// What was made is a wrong function: why, and its text.
    Function(Vec<String>, String),
    /// The backend refuses it.
    Backend(backend::Error),
    /// There is no file with its code.
    Cubin(cubin::Error),
    /// The code cannot be executed.
    Run(sim::sass::SimError),
    /// The PTX cannot.
    Interpret(sim::ptx::SimError),
    /// It leaves something else in memory.
    Results(CompareError),
}

errors_of!(
    Failure: Backend(backend::Error),
    Cubin(cubin::Error),
    Run(sim::sass::SimError),
    Interpret(sim::ptx::SimError),
    Results(CompareError)
);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoPass(pass) => write!(f, "there is no pass `{pass}`"),
            Failure::Nothing => f.write_str("the pass changes nothing"),
            Failure::Input => f.write_str("the stage gets something else"),
            Failure::Hidden => f.write_str("the phase shows nothing"),
            Failure::NoKernel => f.write_str("no kernel"),
            Failure::Lower(errors) => {
                f.write_str(&errors.iter().map(|d| &*d.message).collect::<Vec<_>>().join("; "))
            }
            Failure::Function(wrong, text) => write!(f, "{}\n{text}", wrong.join("\n")),
            Failure::Backend(e) => e.fmt(f),
            Failure::Cubin(e) => e.fmt(f),
            Failure::Run(e) => e.fmt(f),
            Failure::Interpret(e) => e.fmt(f),
            Failure::Results(e) => write!(f, "other results: {e}"),
        }
    }
}

impl std::error::Error for Failure {}

text_of!(CaseError, Failure);
