//! Recursive descent from tokens to the syntax tree. After an error it goes on behind the next `;` or `}`,
//! so that one run reports all independent errors.

mod body;
mod decl;
mod dwarf;
mod expr;
mod header;
mod inst;
mod operand_value;
pub mod pragma;

use crate::ast::{Func, FuncId, Item, Linkage, Module, Space};
use crate::diag::{Diagnostic, Severity};
use crate::isa::SpecialReg;
use crate::lexer::{Tok, lex_with_blocks};
use crate::span::Span;
use body::FuncState;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The newest PTX version that is understood.
pub const NEWEST_VERSION: (u8, u8) = (9, 5);

/// The last minor version of each major one.
pub const LAST_MINOR: &[(u8, u8)] =
    &[(1, 5), (2, 3), (3, 2), (4, 3), (5, 1), (6, 5), (7, 8), (8, 8), NEWEST_VERSION];

/// How the message about a PTX version that does not exist begins.
pub const UNSUPPORTED_VERSION: &str = "Unsupported .version";

/// Whether there is a PTX version of this number.
fn exists((major, minor): (u8, u8)) -> bool {
    LAST_MINOR.iter().any(|(m, last)| *m == major && minor <= *last)
}

/// The text of a PTX file.
///
/// # Errors
/// If it isn't text.
pub fn text(bytes: &[u8]) -> Result<&str, Diagnostic> {
    std::str::from_utf8(bytes).map_err(|e| {
        Diagnostic::whole(format!("'{{file}}' is not a text file: byte {} is no character", e.valid_up_to()))
    })
}

/// Parses a module and resolves its names.
///
/// # Errors
/// Every independent error found; at least one.
pub fn parse(source: &str) -> Result<Module, Vec<Diagnostic>> {
    let (module, errors) = parse_all(source);
    if errors.is_empty() { Ok(module) } else { Err(errors) }
}

/// What could be parsed of a module, without the statements that are wrong, and what is wrong with those.
pub fn parse_all(source: &str) -> (Module, Vec<Diagnostic>) {
    if u32::try_from(source.len()).is_err() {
        let error = Diagnostic::fatal(Span::default(), "A file of 4 GiB or more is not supported");
        return (Module::default(), vec![error]);
    }
    // Not even in comments and strings.
    if let Some(at) = source.bytes().position(|b| !b.is_ascii()) {
        let length = source[at..].chars().next().map_or(1, char::len_utf8);
        let error = Diagnostic::fatal(Span::new(at, at + length), "Unexpected non-ASCII character");
        return (Module::default(), vec![error]);
    }
    let (tokens, blocks) = lex_with_blocks(source);
    let mut p = Parser {
        source,
        tokens,
        blocks,
        at: 0,
        module: Module { address_size: 64, ..Module::default() },
        globals: FxHashMap::default(),
        func: None,
        depth: 0,
        file_numbers: FxHashSet::default(),
        positions: FxHashSet::default(),
        inlined: BTreeSet::new(),
        dwarf_labels: FxHashSet::default(),
        errors: Vec::new(),
        params: false,
        reading: false,
    };
    p.module();
    (p.module, p.errors)
}

/// An error has been reported; the caller recovers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed;
type Parsed<T> = Result<T, Failed>;

/// Directives that begin a module item.
const STARTS_ITEM: &[&str] = &[
    ".visible",
    ".extern",
    ".weak",
    ".common",
    ".entry",
    ".func",
    ".global",
    ".const",
    ".target",
    ".version",
    ".address_size",
    ".file",
    ".section",
    ".alias",
];

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<(Tok, Span)>,
    /// Which of them are braces or colons.
    blocks: Vec<u32>,
    at: usize,
    module: Module,
    globals: FxHashMap<String, Item>,
    func: Option<FuncState<'s>>,
    /// Nesting of what is being parsed, so that no input overflows the stack.
    depth: u32,
    /// Numbers of the `.file` directives so far.
    file_numbers: FxHashSet<u32>,
    /// Source positions of `.loc` so far: file, line, column.
    positions: FxHashSet<(u32, u32, u32)>,
    /// Labels that name the functions of inlined code.
    inlined: BTreeSet<&'s str>,
    /// Labels of all sections so far.
    dwarf_labels: FxHashSet<&'s str>,
    errors: Vec<Diagnostic>,
    /// Whether it is inside of the parentheses of parameters.
    params: bool,
    /// Whether it is at an operand that an instruction reads.
    reading: bool,
}

/// What nothing can be called.
const RESERVED: &[&str] = &["_", "$", "WARP_SZ", "function_name", "inlined_at"];

/// Deeper nesting than this is refused.
const MAX_DEPTH: u32 = 100;

/// More errors than this are not reported.
const MAX_ERRORS: usize = 100;

impl<'s> Parser<'s> {
    fn peek(&self) -> Tok {
        self.tokens[self.at].0
    }
    fn peek2(&self) -> Tok {
        self.tokens.get(self.at + 1).map_or(Tok::Eof, |t| t.0)
    }
    fn span(&self) -> Span {
        self.tokens[self.at].1
    }
    fn previous_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].1
    }
    fn text_of(&self, span: Span) -> &'s str {
        &self.source[span.start as usize..span.end as usize]
    }
    fn text(&self) -> &'s str {
        self.text_of(self.span())
    }
    fn bump(&mut self) -> (Tok, Span) {
        let t = self.tokens[self.at];
        if t.0 != Tok::Eof {
            self.at += 1;
        }
        t
    }
    #[inline]
    fn eat(&mut self, tok: Tok) -> bool {
        let found = self.peek() == tok;
        if found {
            self.bump();
        }
        found
    }
    /// Eats `.word` if it is next.
    fn eat_dot(&mut self, word: &str) -> bool {
        let found = self.peek() == Tok::Dot && &self.text()[1..] == word;
        if found {
            self.bump();
        }
        found
    }
    fn error(&mut self, span: Span, message: impl Into<String>) -> Failed {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(Diagnostic::error(span, message));
        }
        Failed
    }
    /// An error, and what may have been meant, after a `prefix`.
    fn error_with_hint(
        &mut self,
        span: Span,
        message: impl Into<String>,
        hint: Option<&str>,
        prefix: &str,
    ) -> Failed {
        let notes = hint.map(|h| format!("did you mean '{prefix}{h}'?")).into_iter().collect();
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(Diagnostic { notes, ..Diagnostic::error(span, message) });
        }
        Failed
    }
    /// A syntax error. ptxas calls it fatal, since it ends there.
    fn syntax_error(&mut self, span: Span, message: impl Into<String>) -> Failed {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(Diagnostic::fatal(span, message));
        }
        Failed
    }
    /// The error for an unexpected token, in ptxas's words.
    fn unexpected(&mut self) -> Failed {
        let (tok, span) = self.tokens[self.at];
        let near = self.text_of(span);
        let rest = &self.source[span.start as usize..];
        if matches!(tok, Tok::Bad | Tok::Slash) && rest.starts_with("/*") {
            return self.syntax_error(span, "Parsing error near '': unexpected EOF while scanning");
        }
        self.syntax_error(span, format!("Parsing error near '{near}': syntax error"))
    }
    fn expect(&mut self, tok: Tok) -> Parsed<Span> {
        if self.peek() == tok { Ok(self.bump().1) } else { Err(self.unexpected()) }
    }
    #[inline]
    fn name(&mut self) -> Parsed<(&'s str, Span)> {
        let (tok, span) = self.tokens[self.at];
        if tok != Tok::Name {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok((self.text_of(span), span))
    }

    /// A name that is being declared.
    fn new_name(&mut self) -> Parsed<(&'s str, Span)> {
        if self.peek() == Tok::Name && RESERVED.contains(&self.text()) {
            return Err(self.unexpected());
        }
        self.name()
    }

    /// A name that is being declared for a whole module, which special registers are known in.
    fn new_symbol(&mut self, name: &str, span: Span) -> Parsed<()> {
        if SpecialReg::parse(name).is_some() {
            return Err(self.error(span, format!("Inconsistent redefinition of variable '{name}'")));
        }
        Ok(())
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            let span = self.span();
            return Err(self.error(span, "Nested too deeply"));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// After an error in the statement that began at token `start`: skips to behind its `;`, or before the
    /// `}` that closes its block, or to the end.
    fn recover(&mut self, start: usize) {
        let mut depth = self.tokens[start..self.at].iter().fold(0i32, |d, t| match t.0 {
            Tok::LBrace => d + 1,
            Tok::RBrace => d - 1,
            _ => d,
        });
        loop {
            match self.peek() {
                Tok::Eof => return,
                Tok::RBrace if depth <= 0 => return,
                Tok::LBrace => depth += 1,
                Tok::RBrace => depth -= 1,
                Tok::Semi => {
                    self.bump();
                    return;
                }
                _ => {}
            }
            self.bump();
        }
    }

    /// After an error in the module item that began at token `start`: skips to behind its body or `;`, or
    /// before the next item.
    fn recover_item(&mut self, start: usize) {
        let failed = self.at.max(start + 1);
        self.at = start;
        let mut depth = 0u32;
        loop {
            let at = self.at;
            let tok = self.peek();
            match tok {
                Tok::Eof => return,
                Tok::LBrace => depth += 1,
                Tok::RBrace => depth = depth.saturating_sub(1),
                Tok::Dot if depth == 0 && at >= failed && STARTS_ITEM.contains(&self.text()) => return,
                _ => {}
            }
            self.bump();
            if depth == 0 && at + 1 >= failed && matches!(tok, Tok::RBrace | Tok::Semi) {
                return;
            }
        }
    }

    fn module(&mut self) {
        if self.header().is_err() {
            return;
        }
        while self.peek() != Tok::Eof {
            let start = self.at;
            if self.item().is_err() {
                self.func = None;
                self.depth = 0;
                self.recover_item(start);
            }
        }
        self.debug_information();
        self.errors.sort_by_key(|e| e.span.map_or(0, |s| s.start));
    }

    fn fatal(&mut self, span: Span, message: impl Into<String>) -> Failed {
        self.errors.push(Diagnostic::fatal(span, message));
        Failed
    }

    /// `.version` and `.target`, which must come first.
    fn header(&mut self) -> Parsed<()> {
        if let Some(at) = self.source.find('\0') {
            return Err(self.fatal(Span::new(at, at + 1), "Unexpected EOF encountered"));
        }
        // The end of a file under DOS is white space.
        let strange = |(_, c): &(usize, char)| c.is_control() && !c.is_whitespace() && *c != '\x1a';
        if !plain_text(self.source.as_bytes())
            && let Some((at, c)) = self.source.char_indices().find(strange)
        {
            let span = Span::new(at, at + c.len_utf8());
            return Err(self.fatal(span, "Unexpected non-ASCII character encountered: not a text file"));
        }
        let mut span = self.span();
        let versioned = self.eat_dot("version");
        let directive = versioned && self.peek() == Tok::Float;
        // Of `.target` ptxas reads the whole list, and so what is behind it.
        if !versioned && self.eat_dot("target") {
            while matches!(self.peek(), Tok::Name | Tok::Comma) {
                self.bump();
            }
            span = self.span();
        }
        // The number stands in the same line, with nothing but blanks between.
        let blank = |c| matches!(c, ' ' | '\t' | '\r' | '\x0c');
        if !directive || !self.source[span.end as usize..self.span().start as usize].chars().all(blank) {
            return Err(self.fatal(span, "Missing .version directive at start of file '{file}'"));
        }
        let span = self.span();
        let text = self.text();
        self.bump();
        let (major, minor) = text.split_once('.').unwrap_or((text, ""));
        match (major.parse::<u8>(), minor.parse::<u8>()) {
            (Ok(a), Ok(b)) if exists((a, b)) => self.module.version = (a, b),
            _ => {
                let (major, minor) = NEWEST_VERSION;
                let message = format!("{UNSUPPORTED_VERSION} {text}; current version is '{major}.{minor}'");
                return Err(self.fatal(span, message));
            }
        }
        let span = self.span();
        if self.peek() != Tok::Dot || self.text() != ".target" {
            return Err(self.fatal(span, "Missing .target directive at start of file '{file}'"));
        }
        while self.peek() == Tok::Dot && self.text() == ".target" {
            self.target()?;
        }
        self.options();
        if self.eat_dot("address_size") {
            let span = self.span();
            if self.module.version < (2, 3) {
                let message = "Feature '.address_size directive' requires PTX ISA .version 2.3 or later";
                self.error(span, message);
            }
            match self.small()? {
                value @ (32 | 64) => self.module.address_size = value as u8,
                _ => {
                    self.error(span, "Illegal value for .address_size directive (must be 32 or 64)");
                }
            }
        }
        Ok(())
    }

    /// Whether the options of `.target` go together.
    fn options(&mut self) {
        let span = self.module.target_span;
        let has = |option: &str| self.module.targets.iter().any(|t| t == option);
        let sm = crate::check::target_sm(&self.module);
        let (both, old) = (has("texmode_unified") && has("texmode_independent"), has("map_f64_to_f32"));
        if sm == 0 {
            self.fatal(span, "Target architecture not defined at start of file '{file}'");
        }
        if both {
            self.error(span, "Conflicting .target option 'texmode_independent'");
        }
        if old && sm >= 13 {
            self.error(span, "Directive map_f64_to_f32 is not supported with SM 1.3 or higher");
        }
    }

    fn item(&mut self) -> Parsed<()> {
        if self.peek() == Tok::AtAt {
            return self.old_dwarf();
        }
        if self.peek() != Tok::Dot {
            return Err(self.unexpected());
        }
        match &self.text()[1..] {
            "file" => self.file(),
            "section" => self.section(),
            "pragma" => {
                self.bump();
                let mut texts = Vec::new();
                self.strings(&mut texts)?;
                let span = self.expect(Tok::Semi)?;
                for text in &texts {
                    self.pragma(text, span, pragma::Place::Module);
                }
                self.module.pragmas.extend(texts);
                Ok(())
            }
            "alias" => self.alias(),
            _ => self.declaration(),
        }
    }

    /// `@@DWARF .directive …`: one on a line.
    fn old_dwarf(&mut self) -> Parsed<()> {
        let start = self.bump().1;
        if self.peek() != Tok::Name || self.text() != "DWARF" {
            return Err(self.syntax_error(start, "Parsing error near '@': syntax error"));
        }
        self.bump();
        if self.peek() != Tok::Dot {
            return Err(self.unexpected());
        }
        if self.module.version >= (2, 0) {
            let message = "Deprecated feature: '@@DWARF directive' not supported as of PTX version 2.0";
            self.error(start, message);
        }
        let rest = &self.source[start.start as usize..];
        let line = rest.find('\n').map_or(u32::MAX, |n| start.start + n as u32);
        while self.peek() != Tok::Eof && self.span().start < line {
            self.bump();
        }
        Ok(())
    }

    /// What can be said of debug information only at the end: it is there if `.target` says so, and has the names of inlined
    /// functions.
    fn debug_information(&mut self) {
        let whole = |message: String| Diagnostic { severity: Severity::Error, ..Diagnostic::whole(message) };
        // Behind a fatal error nobody looks any more.
        let fatal = self.errors.iter().any(|e| e.severity == Severity::Fatal);
        let debug = self.module.targets.iter().any(|t| t == "debug");
        if self.module.sections.is_empty() && debug && !fatal {
            self.errors.push(whole("Debug information not found in presence of .target debug".into()));
        }
        let missing: Vec<&str> =
            self.inlined.iter().copied().filter(|n| !self.dwarf_labels.contains(n)).collect();
        for name in missing {
            let message = format!("Unresolved label '{name}' used in function_name attribute.");
            self.errors.push(whole(message));
        }
    }

    /// The strings of a `.pragma`.
    fn strings(&mut self, out: &mut Vec<String>) -> Parsed<()> {
        loop {
            let text = self.expect(Tok::Str)?;
            out.push(self.text_of(text).trim_matches('"').to_string());
            if !self.eat(Tok::Comma) {
                return Ok(());
            }
        }
    }

    /// `.alias name, function;`: both are known.
    fn alias(&mut self) -> Parsed<()> {
        let start = self.bump().1;
        let alias = self.function_name()?;
        self.expect(Tok::Comma)?;
        let function = self.function_name()?;
        let span = start.to(self.expect(Tok::Semi)?);
        self.module.aliases.push((alias, function, span));
        Ok(())
    }

    fn function_name(&mut self) -> Parsed<FuncId> {
        let (name, span) = self.name()?;
        match self.globals.get(name) {
            Some(Item::Func(f)) => Ok(*f),
            _ => Err(self.error(span, format!("Unknown function '{name}'"))),
        }
    }

    fn target(&mut self) -> Parsed<()> {
        self.bump();
        self.module.target_span = self.span();
        loop {
            let (name, span) = self.name()?;
            // A virtual target is the real one of its number to ptxas.
            let known = match name.strip_prefix("compute_") {
                Some(n) if !known_target(name) => format!("sm_{n}"),
                _ => name.to_string(),
            };
            if !known_target(&known) {
                return Err(self.fatal(span, format!("Unsupported .target '{name}'")));
            }
            self.module.targets.push(known);
            if !self.eat(Tok::Comma) {
                return Ok(());
            }
        }
    }

    /// A variable or a function.
    fn declaration(&mut self) -> Parsed<()> {
        let linkage = match self.text() {
            ".visible" => Linkage::Visible,
            ".extern" => Linkage::Extern,
            ".weak" => Linkage::Weak,
            ".common" => Linkage::Common,
            _ => Linkage::Internal,
        };
        if linkage != Linkage::Internal {
            self.bump();
            // Only functions are declared so inside of one.
            if self.func.is_some() && self.text() != ".func" {
                return Err(self.unexpected());
            }
        }
        if linkage == Linkage::Common && matches!(self.text(), ".entry" | ".func") {
            return Err(self.unexpected());
        }
        if self.eat_dot("entry") {
            return self.function(true, linkage);
        }
        if self.eat_dot("func") {
            return self.function(false, linkage);
        }
        let place = self.placement()?;
        let Some(space) = self.space() else { return Err(self.unexpected()) };
        if space == Space::Reg {
            let span = self.previous_span();
            return Err(
                self.error(span, "Module-scoped variables in .reg state space are not allowed with ABI")
            );
        }
        if space == Space::Param {
            let span = self.previous_span();
            return Err(self.error(span, "Parameter variables may not be declared at module scope"));
        }
        if space == Space::Local {
            let span = self.previous_span();
            return Err(
                self.error(span, "Module-scoped variables in .local state space are not allowed with ABI")
            );
        }
        for var in self.variables(place, space, linkage)? {
            let name = self.module.vars[var].name.clone();
            let span = self.module.vars[var].span;
            self.new_symbol(&name, span)?;
            match self.globals.get(&name) {
                // A definition after an extern declaration takes its place.
                Some(Item::Var(old)) if self.module.vars[*old].linkage == Linkage::Extern => {
                    let old = *old;
                    let (first, definition) = (&self.module.vars[old], self.module.vars[var].clone());
                    let unified = first.unified;
                    let kind = |v: &crate::ast::Var| (v.space, v.ty, v.vector, v.dims.len());
                    if kind(first) != kind(&definition) {
                        self.error(span, format!("Inconsistent redefinition of variable '{name}'"));
                    }
                    if definition.linkage == Linkage::Internal {
                        let message =
                            format!("'.extern' variable '{name}' cannot be resolved by a '.static'");
                        self.error(span, message);
                    }
                    if definition.linkage != Linkage::Extern {
                        // The first of them says whether it is unified (ptxas 13.0.88).
                        self.module.vars[old] = crate::ast::Var { unified, ..definition };
                    }
                }
                Some(_) => return Err(self.error(span, format!("Duplicate definition of variable '{name}'"))),
                None => {
                    self.globals.insert(name, Item::Var(var));
                    self.module.items.push(Item::Var(var));
                }
            }
        }
        Ok(())
    }

    /// A state space, if one is next.
    fn space(&mut self) -> Option<Space> {
        if self.peek() != Tok::Dot {
            return None;
        }
        let space = match &self.text()[1..] {
            "reg" => Space::Reg,
            "global" => Space::Global,
            "const" => Space::Const,
            "shared" | "shared::cta" => Space::Shared,
            "local" => Space::Local,
            "param" => Space::Param,
            _ => return None,
        };
        self.bump();
        Some(space)
    }

    /// A declaration or definition; `at`: where what is wrong with its header is reported.
    fn add_func(&mut self, mut func: Func, at: Span) -> Parsed<FuncId> {
        let name = func.name.clone();
        match self.globals.get(&name) {
            Some(Item::Func(id)) => {
                let id = *id;
                let old = &self.module.funcs[id];
                if old.body.is_some() {
                    return Err(self.error(at, format!("Duplicate definition of function '{name}'")));
                }
                let declared = old.attrs.unified;
                for message in self.inconsistent(old, &func) {
                    self.error(at, message);
                }
                for (n, (a, b)) in
                    declared.iter().zip(&func.attrs.unified).flat_map(|(a, b)| a.iter().zip(b)).enumerate()
                {
                    if a != b {
                        let n = n + 1;
                        let message = format!(
                            "Mismatch between declaration and definition of function '{name}', unified identifier-{n} differ"
                        );
                        self.error(at, message);
                    }
                }
                // What the first of them says holds, even where it says nothing.
                func.attrs.unified = declared;
                func.linkage = self.module.funcs[id].linkage;
                self.module.funcs[id] = func;
                Ok(id)
            }
            Some(Item::Var(_)) => Err(self.error(at, format!("Duplicate definition of '{name}'"))),
            None => {
                let id = self.module.funcs.push(func);
                self.globals.insert(name, Item::Func(id));
                self.module.items.push(Item::Func(id));
                Ok(id)
            }
        }
    }
}

/// What the first declaration says, and what further ones and the definition may say then.
const LINKAGES: &[(Linkage, Linkage)] =
    &[(Linkage::Visible, Linkage::Internal), (Linkage::Weak, Linkage::Internal)];

impl Parser<'_> {
    /// Why a function's header is not that of its earlier declaration, in ptxas's words.
    fn inconsistent(&self, old: &Func, new: &Func) -> Vec<String> {
        let name = &new.name;
        if old.entry != new.entry {
            return vec![format!("Inconsistent redefinition of '{name}' as entry and function")];
        }
        let mut why = Vec::new();
        // `.visible` and `.weak` may be left out once they are said.
        let linkage = old.linkage == new.linkage || LINKAGES.contains(&(old.linkage, new.linkage));
        if !linkage || old.attrs.noreturn != new.attrs.noreturn {
            why.push(format!("Inconsistent redefinition of variable '{name}'"));
        }
        let mut differ = |what: &str| why.push(format!("Inconsistent prototypes of '{name}', {what} differ"));
        for (old, new) in [(&old.returns, &new.returns), (&old.params, &new.params)] {
            for (a, b) in old.iter().zip(new) {
                let (a, b) = (&self.module.vars[*a], &self.module.vars[*b]);
                if (a.ty, a.vector, &a.dims) != (b.ty, b.vector, &b.dims) {
                    differ("parameter types");
                }
                if a.passed_align() != b.passed_align() {
                    differ("parameter alignment");
                }
                if a.space != b.space {
                    differ("parameter state space");
                }
            }
            if old.len() != new.len() {
                differ("number of parameters");
            }
        }
        // The registers that the convention gives out: for each number there is one pair of registers with the return address.
        let kept = (old.attrs.abi_preserve, new.attrs.abi_preserve);
        let same = kept.0 == kept.1 && old.attrs.abi_preserve_control == new.attrs.abi_preserve_control;
        match kept {
            (Some(a), Some(b)) if a & !1 != b & !1 => differ("return address registers"),
            (None, Some(_)) | (Some(_), None) => differ("number of parameter registers"),
            (None, None) | (Some(_), Some(_)) if same => {}
            (None, None) | (Some(_), Some(_)) => differ("number of scratch registers"),
        }
        why
    }
}

/// Whether there are only printable characters of ASCII, line ends and tabs. Most files are such; without a branch for each
/// byte it takes little time to see.
fn plain_text(bytes: &[u8]) -> bool {
    let plain = |b: u8| (b' '..=b'~').contains(&b) | (b == b'\n') | (b == b'\t') | (b == b'\r');
    bytes.chunks(256).all(|chunk| chunk.iter().fold(true, |all, b| all & plain(*b)))
}

/// Words that `.target` takes: every SM that there was, and options.
fn known_target(word: &str) -> bool {
    const SMS: &[u16] = &[
        10, 11, 12, 13, 20, 21, 30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90,
        100, 101, 103, 110, 120, 121,
    ];
    const OPTIONS: &[&str] =
        &["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32", "compute_20", "compute_30"];
    let Some(number) = word.strip_prefix("sm_") else { return OPTIONS.contains(&word) };
    let digits = number.trim_end_matches(['a', 'f']);
    number.len() - digits.len() <= 1
        && digits.parse().is_ok_and(|sm: u16| SMS.contains(&sm) && (number.len() == digits.len() || sm >= 90))
}
