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
    /// What was expected, the nearest form that exists, and why it does not here.
    pub notes: Vec<String>,
}

/// How messages are written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Style {
    /// One line each, as ptxas writes it.
    Plain,
    /// With the place, the source line under a caret, and the notes.
    #[default]
    Rich,
    /// A JSON object a line.
    Json,
}

/// Longer messages are cut: a name may be as long as the file.
const LONGEST: usize = 500;

fn cut(message: impl Into<String>) -> String {
    let mut message = message.into();
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST));
        message += "…";
    }
    message
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, span: Some(span), message: cut(message), notes: Vec::new() }
    }
    /// A fatal error at a place.
    pub fn fatal(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Fatal, span: Some(span), message: cut(message), notes: Vec::new() }
    }

    /// A fatal error of the file as a whole.
    pub fn whole(message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Fatal, span: None, message: cut(message), notes: Vec::new() }
    }

    /// The message in a style.
    pub fn render_as(
        &self,
        style: Style,
        program: &str,
        file: &str,
        source: &str,
        lines: &LineIndex,
    ) -> String {
        match style {
            Style::Rich => self.render(program, file, source, lines),
            Style::Plain => {
                let text = self.render(program, file, source, lines);
                let end = text.find('\n').map_or(text.len(), |n| n + 1);
                text[..end].to_string()
            }
            Style::Json => self.json(file, lines),
        }
    }

    /// The message as a JSON object on a line.
    fn json(&self, file: &str, lines: &LineIndex) -> String {
        let message = self.message.replace("{file}", file);
        let severity = self.severity.padded().trim();
        let mut out = format!("{{\"severity\":\"{severity}\",\"file\":{}", quoted(file));
        if let Some(span) = self.span {
            let (line, column) = lines.line_col(span.start);
            let (end_line, end_column) = lines.line_col(span.end);
            let _ = write!(
                out,
                ",\"line\":{line},\"column\":{column},\"end_line\":{end_line},\"end_column\":{end_column}"
            );
            if let Some((name, number)) = lines.origin(line) {
                let _ = write!(out, ",\"origin\":{{\"file\":{},\"line\":{number}}}", quoted(name));
            }
        }
        let notes: Vec<String> = self.notes.iter().map(|n| quoted(n)).collect();
        let _ = writeln!(out, ",\"message\":{},\"notes\":[{}]}}", quoted(&message), notes.join(","));
        out
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
        // What tools parse names the line that a preprocessor said it was, as ptxas does; the place below is that of the text.
        let (name, number) = lines.origin(line).unwrap_or((file, line));
        let _ = writeln!(out, "{program} {name}, line {number}; {}: {message}", self.severity.padded());
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
        for note in &self.notes {
            let _ = writeln!(out, "    = {note}");
        }
        out
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
