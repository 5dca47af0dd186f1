//! Diagnostics, printed in ptxas's format with the place and the source line added.

use crate::span::{LineIndex, Span};
use std::fmt::Write as _;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// For information.
    Info,
    /// Suspicious.
    Warning,
    /// Wrong; checking goes on.
    Error,
    /// Wrong; nothing more can be said.
    Fatal,
}

impl Severity {
    /// The word, padded as ptxas does.
    pub fn padded(self) -> &'static str {
        match self {
            Severity::Info => "info    ",
            Severity::Warning => "warning ",
            Severity::Error => "error   ",
            Severity::Fatal => "fatal   ",
        }
    }
}

/// One message about the source.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where; `None` if it is about the file as a whole.
    pub span: Option<Span>,
    /// What. `{file}` in it stands for the name of the file.
    pub message: String,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, span: Some(span), message: message.into() }
    }
    /// A fatal error at a place.
    pub fn fatal(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Fatal, span: Some(span), message: message.into() }
    }

    /// The message as text: first the line that tools parse, as ptxas writes it, then the place with its
    /// column and the source line under a caret.
    pub fn render(&self, program: &str, file: &str, source: &str, lines: &LineIndex) -> String {
        let mut out = String::new();
        let message = self.message.replace("{file}", file);
        let Some(span) = self.span else {
            let _ = writeln!(out, "{program} {}: {message}", self.severity.padded());
            return out;
        };
        let (line, column) = lines.line_col(span.start);
        let _ = writeln!(out, "{program} {file}, line {line}; {}: {message}", self.severity.padded());
        let _ = writeln!(out, "    --> {file}:{line}:{column}");
        let text = lines.text(source, line);
        if !text.is_empty() && text.len() <= 400 {
            let width = (span.end.max(span.start + 1) - span.start) as usize;
            let start = (column as usize - 1).min(text.len());
            let indent: String =
                text.bytes().take(start).map(|b| if b == b'\t' { '\t' } else { ' ' }).collect();
            let carets = "^".repeat(width.min(text.len().saturating_sub(start)).max(1));
            let _ = writeln!(out, "    | {text}\n    | {indent}{carets}");
        }
        out
    }
}
