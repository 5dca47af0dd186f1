//! `oxptxas`: ptxas's command line.

use oxptxas::command::{Console, Run};
use oxptxas::console::{show, tell};
use ptx::Style;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

/// ptxas's exit status on any error.
const FAILED: u8 = 255;

/// Standard output and standard error.
struct Streams;

impl Console for Streams {
    fn info(&self, text: &str) {
        tell(text);
    }
    fn error(&self, text: &str) {
        tell(text);
    }
    fn print(&self, text: &str) -> std::io::Result<()> {
        show(text)
    }
    fn style(&self) -> Style {
        if std::io::stderr().is_terminal() { Style::Rich } else { Style::Plain }
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // Tools match on the name that they called.
    let program = args
        .next()
        .and_then(|p| Path::new(&p).file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "oxptxas".into());
    let arguments: Vec<OsString> = args.collect();
    match Run::new(&program, &arguments, &Streams).to_file() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}
