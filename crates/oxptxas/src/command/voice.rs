//! What is said of the command line and of the code.

use super::{Console, Stopped};
use std::cell::Cell;

/// Under which name, to whom, and how loud.
pub(super) struct Voice<'a> {
    pub(super) program: &'a str,
    pub(super) console: &'a dyn Console,
    /// `-w`
    pub(super) quiet: bool,
    /// `-Werror`, which `-w` takes away.
    pub(super) strict: bool,
    /// Whether a warning was an error; all are given before that ends the run.
    denied: Cell<bool>,
}

impl<'a> Voice<'a> {
    pub(super) fn new(program: &'a str, console: &'a dyn Console) -> Self {
        Voice { program, console, quiet: false, strict: false, denied: Cell::new(false) }
    }
    /// The text of a message that ends the run.
    pub(super) fn fatal(&self, message: impl std::fmt::Display) -> String {
        format!("{} fatal   : {message}\n", self.program)
    }
    /// The end of the run with such a message.
    pub(super) fn stopped(&self, message: impl std::fmt::Display) -> Stopped {
        self.fatal(message).into()
    }
    /// What closes errors.
    pub(super) fn aborted(&self) -> String {
        self.fatal("Ptx assembly aborted due to errors")
    }
    /// A warning about the command line itself, which is never an error, and never left out.
    pub(super) fn remark(&self, message: &str) {
        self.console.info(&format!("{} warning : {message}\n", self.program));
    }
    pub(super) fn warn(&self, message: &str) {
        if self.strict {
            self.denied.set(true);
            self.console.error(&format!("{} error   : {message}\n", self.program));
        } else if !self.quiet {
            self.remark(message);
        }
    }
    /// Whether a warning was an error.
    pub(super) fn denied(&self) -> bool {
        self.denied.get()
    }
    /// What was asked to be printed.
    pub(super) fn print(&self, text: &str) -> Result<(), Stopped> {
        self.console.print(text).map_err(|e| self.stopped(format!("Standard output: {e}")))
    }
}
