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

/// The first words of the strings that ptxas 13.0.88 knows, whether they stand among statements only, and what becomes of
/// them here.
const KNOWN: &[(&str, bool, Option<&str>)] = &[
    ("nounroll", false, None),
    ("frequency", true, None),
    ("used_bytes_mask", true, None),
    (SHARED_SPILLS, true, Some("registers are spilled to local memory")),
    ("local_maxnreg", true, Some("the limit of the whole function holds")),
];

impl Parser<'_> {
    /// Says what is to be said about a string of a `.pragma`.
    pub(super) fn pragma(&mut self, text: &str, span: Span, place: Place) {
        let first = text.split_whitespace().next().unwrap_or("");
        let whole = |severity, message: String| Diagnostic { severity, ..Diagnostic::whole(message) };
        let known = KNOWN.iter().find(|k| k.0 == first && (k.1 || k.0 == text));
        // ptxas knows this one among statements, and not at all elsewhere.
        let in_body = matches!(place, Place::Body | Place::DeviceBody);
        let known = known.filter(|k| k.0 != "local_maxnreg" || in_body);
        let Some((_, statement, instead)) = known else {
            if place == Place::Module {
                self.errors.push(whole(Severity::Error, format!("Pragma '{text}' not supported")));
            } else {
                let warning = whole(Severity::Warning, format!("Pragma '{text}' unsupported"));
                self.module.warnings.push(warning);
            }
            return;
        };
        if *statement && !in_body {
            self.error(span, format!("Pragma '{text}' is allowed only within function scope"));
            return;
        }
        if first == SHARED_SPILLS && self.module.version < (8, 7) {
            let message = "Feature 'enable_smem_spilling' requires PTX ISA .version 8.7 or later";
            self.error(span, message);
            return;
        }
        if first == SHARED_SPILLS && place == Place::DeviceBody {
            self.error(span, format!("Pragma '{text}' cannot be specified for device functions"));
            return;
        }
        if let Some(instead) = instead {
            let message = format!("Pragma '{first}' is ignored: {instead}");
            self.module
                .warnings
                .push(Diagnostic { severity: Severity::Info, ..Diagnostic::error(span, message) });
        }
    }
}
