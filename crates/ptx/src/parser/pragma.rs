//! `.pragma` strings: which are known where. The others are ignored in functions, with a warning, and refused outside.

use super::Parser;
use crate::diag::{Diagnostic, Severity};
use crate::span::Span;

/// Where a `.pragma` stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Between functions.
    Module,
    /// Before the body of a function.
    Header,
    /// Among the statements of a kernel.
    Body,
    /// Among those of another function.
    DeviceBody,
}

/// Registers are to be spilled to shared memory.
pub const SHARED_SPILLS: &str = "enable_smem_spilling";

/// What is behind the first word of a string, and the character that ends the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Argument {
    /// The word is the whole string.
    None,
    /// Nothing looks at it.
    Any,
    /// A number.
    Number,
    /// A number above 0.
    Positive,
}

/// A string that ptxas 13.0.88 knows.
struct Known {
    /// How it begins.
    word: &'static str,
    argument: Argument,
    /// The version of PTX that has it.
    since: (u8, u8),
    /// Whether it stands among statements only.
    statement: bool,
    /// What becomes of it here, if that is to be said.
    instead: Option<&'static str>,
}

const KNOWN: &[Known] = &[
    Known { word: "nounroll", argument: Argument::None, since: (0, 0), statement: false, instead: None },
    Known { word: "frequency", argument: Argument::Positive, since: (9, 0), statement: true, instead: None },
    Known {
        word: "used_bytes_mask",
        argument: Argument::Number,
        since: (8, 3),
        statement: true,
        instead: None,
    },
    Known {
        word: SHARED_SPILLS,
        argument: Argument::Any,
        since: (8, 7),
        statement: true,
        instead: Some("registers are spilled to local memory"),
    },
    Known {
        word: "local_maxnreg",
        argument: Argument::Number,
        since: (0, 0),
        statement: true,
        instead: Some("the limit of the whole function holds"),
    },
];

/// What is wrong with an argument, as ptxas says it: nothing, or what follows a number, is wrong, and so is a number that is too small.
fn wrong(text: &str, known: &Known) -> Vec<String> {
    if matches!(known.argument, Argument::None | Argument::Any) {
        return Vec::new();
    }
    // One character ends the word, whatever it is.
    let mut behind = text[known.word.len()..].chars();
    behind.next();
    let argument = behind.as_str();
    let invalid = || format!("Invalid value '{argument}' specified for .pragma '{text}'");
    let (rest, positive) = number(argument);
    let mut said = Vec::new();
    if argument.is_empty() {
        said.push(format!("Argument(s) to pragma '{text}' cannot be empty"));
    } else if !rest.is_empty() {
        said.push(invalid());
    }
    if known.argument == Argument::Positive && !positive {
        said.push(invalid());
    }
    said
}

/// What follows a number in C's form (decimal, octal or hexadecimal), and whether it is above 0.
fn number(text: &str) -> (&str, bool) {
    let trimmed = text.trim_start();
    let (minus, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let prefixed = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let hexadecimal = prefixed.filter(|d| d.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (number, rest) = digits.split_at(end);
    // Without a digit nothing was read.
    let rest = if number.is_empty() { text } else { rest };
    (rest, !minus && number.contains(|c| c != '0'))
}

impl Parser<'_> {
    /// Says what is to be said about a string of a `.pragma`.
    pub(super) fn pragma(&mut self, text: &str, span: Span, place: Place) {
        let whole = |severity, message: String| Diagnostic { severity, ..Diagnostic::whole(message) };
        let known = KNOWN.iter().find(|k| match k.argument {
            Argument::None => k.word == text,
            Argument::Any | Argument::Number | Argument::Positive => text.starts_with(k.word),
        });
        // ptxas knows this one among statements, and not at all elsewhere.
        let in_body = matches!(place, Place::Body | Place::DeviceBody);
        let known = known.filter(|k| k.word != "local_maxnreg" || in_body);
        let Some(known) = known else {
            if place == Place::Module {
                self.errors.push(whole(Severity::Error, format!("Pragma '{text}' not supported")));
            } else {
                let warning = whole(Severity::Warning, format!("Pragma '{text}' unsupported"));
                self.module.warnings.push(warning);
            }
            return;
        };
        if known.statement && !in_body {
            self.error(span, format!("Pragma '{text}' is allowed only within function scope"));
            return;
        }
        let (major, minor) = known.since;
        let new = self.module.version < known.since;
        if new {
            let word = known.word;
            let message = format!("Feature '{word}' requires PTX ISA .version {major}.{minor} or later");
            self.error(span, message);
        }
        let wrong = wrong(text, known);
        let refused = new || !wrong.is_empty();
        self.errors.extend(wrong.into_iter().map(|message| whole(Severity::Error, message)));
        if refused {
            return;
        }
        if known.word == SHARED_SPILLS && place == Place::DeviceBody {
            self.error(span, format!("Pragma '{text}' cannot be specified for device functions"));
            return;
        }
        if let Some(instead) = known.instead {
            let message = format!("Pragma '{}' is ignored: {instead}", known.word);
            self.module
                .warnings
                .push(Diagnostic { severity: Severity::Info, ..Diagnostic::error(span, message) });
        }
    }
}
