//! The input files of a command line, of which ptxas makes one module (observed, ptxas 13.0.88; docs/ptx-acceptance.md).

use crate::pipeline::front_end;
use crate::{Failure, Kind};
use ptx::lexer::{Tok, lex};
use ptx::{Diagnostic, Func, Item, LineIndex, Linkage, Module, Space, Style, Var};
use rustc_hash::FxHashSet;
use sass::Target;
use std::cell::OnceCell;

/// A file, and where its text starts in that of all.
struct Part {
    name: String,
    text: String,
    start: usize,
    lines: OnceCell<LineIndex>,
}

/// The input files as one text.
pub struct Inputs {
    parts: Vec<Part>,
    /// `None` where there is one file, which is the text itself.
    joined: Option<String>,
}

impl Inputs {
    /// Joins files, by name and text, of which there is at least one. Each of several is checked by itself first: what
    /// one declares no other sees, but for functions.
    ///
    /// # Errors
    /// What is wrong with one of them, as text in `style`, and what kind of reason that is.
    pub fn new(
        files: Vec<(String, String)>,
        target: Target,
        arch: &str,
        style: Style,
        program: &str,
    ) -> Result<Inputs, (String, Kind)> {
        let part = |(name, text)| Part { name, text, start: 0, lines: OnceCell::new() };
        let mut parts: Vec<Part> = files.into_iter().map(part).collect();
        if parts.len() == 1 {
            return Ok(Inputs { parts, joined: None });
        }
        let said = |failure: Failure| (failure.render_as(style, program), failure.kind());
        let front = |p: &Part| front_end(&p.text, &p.name, target, arch).map_err(said);
        let modules = parts.iter().map(front).collect::<Result<Vec<Module>, _>>()?;
        for (part, error) in parts.iter().zip(conflicts(&modules)) {
            if let Some(d) = error {
                return Err(said(Failure::new(vec![d], &part.name, &part.text)));
            }
        }
        let newest = modules.iter().map(|m| m.version).max().unwrap_or_default();
        let of_target =
            modules.iter().max_by_key(|m| (ptx::check::target_sm(m), m.targets.last().map(String::len)));
        let targets = of_target.map_or_else(String::new, |m| m.targets.join(", "));
        let (major, minor) = newest;
        let mut joined = format!(".version {major}.{minor} .target {targets} .address_size 64 ");
        for part in &mut parts {
            part.start = joined.len();
            let (header, rest) = part.text.split_at(header_end(&part.text));
            // What is blank has as many bytes and lines.
            joined.extend(header.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
            joined += rest;
            joined.push('\n');
        }
        Ok(Inputs { parts, joined: Some(joined) })
    }

    /// The text of all.
    pub fn text(&self) -> &str {
        self.joined.as_deref().unwrap_or(&self.parts[0].text)
    }

    /// The name of the first.
    pub fn name(&self) -> &str {
        &self.parts[0].name
    }

    /// A message about the text of all, with the file that it is in.
    pub fn render(&self, d: &Diagnostic, style: Style, program: &str) -> String {
        let at = d.span.map_or(0, |s| s.start as usize);
        let part = self.parts.iter().rev().find(|p| p.start <= at).unwrap_or(&self.parts[0]);
        let moved = |at: u32| (at as usize).saturating_sub(part.start).min(part.text.len());
        let span = d.span.map(|s| ptx::Span::new(moved(s.start), moved(s.end)));
        let lines = part.lines.get_or_init(|| LineIndex::new(&part.text));
        Diagnostic { span, ..d.clone() }.render_as(style, program, &part.name, &part.text, lines)
    }

    /// Everything that a compilation failed for.
    pub fn render_failure(&self, failure: &Failure, style: Style, program: &str) -> String {
        failure.render_with(style, program, |d| self.render(d, style, program))
    }
}

/// Where the text behind `.version`, `.target` and `.address_size` begins.
fn header_end(text: &str) -> usize {
    let mut end = 0;
    for (tok, span) in lex(text) {
        let word = &text[span.start as usize..span.end as usize];
        let more = match tok {
            Tok::Dot => matches!(word, ".version" | ".target" | ".address_size"),
            Tok::AtAt => false,
            _ => true,
        };
        if !more {
            break;
        }
        end = span.end as usize;
    }
    end
}

/// For each module what keeps it from being one with those before it.
fn conflicts(modules: &[Module]) -> Vec<Option<Diagnostic>> {
    let options = |m: &Module| -> FxHashSet<String> {
        let sm = |t: &&String| !t.starts_with("sm_") && !t.starts_with("compute_");
        m.targets.iter().filter(sm).cloned().collect()
    };
    let first = options(&modules[0]);
    let mut names: FxHashSet<&str> = FxHashSet::default();
    let each = modules.iter().map(|m| {
        let own = options(m);
        let mut others: Vec<&String> = own.symmetric_difference(&first).collect();
        others.sort();
        if let Some(other) = others.first() {
            return Some(Diagnostic::error(m.target_span, format!("Conflicting .target option '{other}'")));
        }
        if m.address_size != 64 {
            return Some(Diagnostic::error(m.target_span, "Conflicting .address_size of input files"));
        }
        let own = |f: &&Func| !f.entry && f.body.is_none() && f.linkage == Linkage::Internal;
        if let Some(f) = m.funcs.values().find(own) {
            return Some(Diagnostic::whole(format!("Unresolved extern function '{}'", f.name)));
        }
        // ptxas leaves one of those that are not visible out, and joins others in ways that are not known.
        let mut variables = m.items.iter().filter_map(|i| match i {
            Item::Var(v) => Some(&m.vars[*v]),
            Item::Func(_) => None,
        });
        let dynamic = |v: &Var| v.linkage == Linkage::Extern && v.space == Space::Shared && v.is_unsized();
        variables.find(|v| !names.insert(v.name.as_str()) && !dynamic(v)).map(|v| {
            let message = format!("Variable '{}' in more than one input file is not supported yet", v.name);
            Diagnostic::error(v.span, message)
        })
    });
    each.collect()
}
