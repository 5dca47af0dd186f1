//! What the program says of itself and of its command line.

use oxptxas::console::{show, tell};
use std::cell::Cell;

/// Under which name, and how loud.
pub struct Voice<'a> {
    pub program: &'a str,
    /// `-w`
    pub quiet: bool,
    /// `-Werror`, which `-w` takes away.
    pub strict: bool,
    /// Whether a warning was an error; all are given before that ends the program.
    denied: Cell<bool>,
}

impl<'a> Voice<'a> {
    pub fn new(program: &'a str) -> Self {
        Voice { program, quiet: false, strict: false, denied: Cell::new(false) }
    }
    /// A message that ends the program.
    pub fn fatal(&self, message: impl std::fmt::Display) -> String {
        format!("{} fatal   : {message}\n", self.program)
    }
    /// What closes errors.
    pub fn aborted(&self) -> String {
        self.fatal("Ptx assembly aborted due to errors")
    }
    /// A warning about the command line itself, which is never an error, and never left out.
    pub fn remark(&self, message: &str) {
        tell(&format!("{} warning : {message}\n", self.program));
    }
    pub fn warn(&self, message: &str) {
        if self.strict {
            self.denied.set(true);
            tell(&format!("{} error   : {message}\n", self.program));
        } else if !self.quiet {
            self.remark(message);
        }
    }
    /// Whether a warning was an error.
    pub fn denied(&self) -> bool {
        self.denied.get()
    }
    /// Standard output.
    pub fn print(&self, text: &str) -> Result<(), String> {
        show(text).map_err(|e| self.fatal(format!("Standard output: {e}")))
    }
}
