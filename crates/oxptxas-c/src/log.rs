//! What a compilation says, by what log it belongs to.

use oxptxas::command::Console;
use std::cell::RefCell;
use std::io;

/// How a line begins that goes on with what the line before says: in NVIDIA's library no line is without a name.
const CONTINUED: &str = "ptxas         . ";

/// Keeps it.
#[derive(Default)]
pub(crate) struct Log {
    errors: RefCell<String>,
    information: RefCell<String>,
}

impl Log {
    pub(crate) fn add_error(&self, text: &str) {
        self.errors.borrow_mut().push_str(text);
    }
    /// Errors, and information.
    pub(crate) fn into_parts(self) -> (String, String) {
        (self.errors.into_inner(), self.information.into_inner())
    }
}

impl Console for Log {
    fn info(&self, text: &str) {
        let mut information = self.information.borrow_mut();
        for line in text.split_inclusive('\n') {
            if line.starts_with(' ') {
                information.push_str(CONTINUED);
            }
            information.push_str(line);
        }
    }
    fn error(&self, text: &str) {
        self.add_error(text);
    }
    /// A library says nothing on its program's standard output.
    fn print(&self, text: &str) -> io::Result<()> {
        self.information.borrow_mut().push_str(text);
        Ok(())
    }
}
