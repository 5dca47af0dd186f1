//! The PTX interpreter: runs a launch on the PTX itself, by the PTX ISA's definition of every instruction.
//!
//! It is the reference that SASS is judged by, so it is plain rather than fast: every thread has its own
//! program counter, registers and local memory; a warp executes, one instruction at a time, the threads that
//! are furthest behind; `.sync` instructions collect the threads that they name.

mod approx;
mod asynchronous;
mod convert;
mod coverage;
mod decode;
mod exec;
mod fault;
mod float;
mod image;
mod int;
mod late;
mod loaded;
mod run;
mod tcgen05;
mod tensor;
mod tensormap;
mod thread;
mod video;
mod warp;
mod wide;

pub use approx::is_inexact;
pub use coverage::coverage;
pub use decode::Fill;
pub use loaded::Loaded;
pub use run::{LIMIT, Options, execute, execute_filled, execute_with, observe, run, stopped};

use ::ptx::{LineIndex, Span};
use fault::Fault;
use std::fmt;

/// Why a run failed.
#[derive(Clone, PartialEq, Debug)]
pub struct SimError {
    /// The instruction, if it is about one.
    pub span: Option<Span>,
    /// What went wrong.
    pub message: String,
    /// Block and thread, if it is about one.
    pub thread: Option<([u32; 3], [u32; 3])>,
}

impl SimError {
    /// An error about no instruction in particular.
    pub fn new(message: impl Into<String>) -> SimError {
        SimError { span: None, message: message.into(), thread: None }
    }
    /// An error at an instruction.
    pub fn at(span: Span, message: impl Into<String>) -> SimError {
        SimError { span: Some(span), message: message.into(), thread: None }
    }
    /// The message with the line of the source.
    pub fn render(&self, file: &str, source: &str) -> String {
        match self.span {
            Some(s) => format!("{file}:{}: {self}", LineIndex::new(source).line(s.start)),
            None => format!("{file}: {self}"),
        }
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some((block, thread)) = self.thread {
            write!(f, " (block {block:?}, thread {thread:?})")?;
        }
        Ok(())
    }
}

impl std::error::Error for SimError {}
