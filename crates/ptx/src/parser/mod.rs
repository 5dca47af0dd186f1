//! Recursive descent from tokens to the syntax tree. After an error it goes on behind the next `;` or `}`,
//! so that one run reports all independent errors.

mod decl;
mod expr;
mod inst;

use crate::ast::{Body, LabelId};
use crate::ast::{Func, FuncId, Item, Linkage, Module, RegId, Space, VarId};
use crate::diag::{Diagnostic, Severity};
use crate::lexer::{Tok, lex};
use crate::span::Span;
use rustc_hash::FxHashMap;

/// The newest PTX version that is understood.
pub const NEWEST_VERSION: (u8, u8) = (9, 0);

/// Parses a module and resolves its names.
///
/// # Errors
/// Every independent error found; at least one.
pub fn parse(source: &str) -> Result<Module, Vec<Diagnostic>> {
    let mut p = Parser {
        source,
        tokens: lex(source),
        at: 0,
        module: Module { address_size: 64, ..Module::default() },
        globals: FxHashMap::default(),
        func: None,
        errors: Vec::new(),
    };
    p.module();
    if p.errors.is_empty() { Ok(p.module) } else { Err(p.errors) }
}

/// An error has been reported; the caller recovers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed;
type Parsed<T> = Result<T, Failed>;

/// What a name stands for inside a function.
#[derive(Clone, Copy)]
enum Local {
    Reg(RegId),
    Var(VarId),
}

/// State of the function being parsed.
struct FuncState {
    body: Body,
    /// Innermost scope last.
    scopes: Vec<FxHashMap<String, Local>>,
    /// `%r<100>`: prefix, first register, count.
    ranges: Vec<(String, RegId, u32)>,
    labels: FxHashMap<String, LabelId>,
    /// Labels that were used but not seen yet, with the first use.
    pending: FxHashMap<LabelId, Span>,
}

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<(Tok, Span)>,
    at: usize,
    module: Module,
    globals: FxHashMap<String, Item>,
    func: Option<FuncState>,
    errors: Vec<Diagnostic>,
}

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
    /// The error for an unexpected token, in ptxas's words.
    fn unexpected(&mut self) -> Failed {
        let (tok, span) = self.tokens[self.at];
        let near = match tok {
            Tok::Eof => return self.error(span, "Parsing error: unexpected end of input"),
            _ => self.text_of(span).to_string(),
        };
        self.error(span, format!("Parsing error near '{near}': syntax error"))
    }
    fn expect(&mut self, tok: Tok) -> Parsed<Span> {
        if self.peek() == tok { Ok(self.bump().1) } else { Err(self.unexpected()) }
    }
    fn name(&mut self) -> Parsed<(&'s str, Span)> {
        let span = self.expect(Tok::Name)?;
        Ok((self.text_of(span), span))
    }

    /// Skips to behind the next `;`, or before a `}` or the end.
    fn recover(&mut self) {
        loop {
            match self.peek() {
                Tok::Semi => {
                    self.bump();
                    return;
                }
                Tok::RBrace | Tok::Eof => return,
                _ => {
                    self.bump();
                }
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
                self.recover();
                // A body whose header failed: skip to its end.
                let mut depth = 0usize;
                while self.at == start || depth > 0 {
                    match self.bump().0 {
                        Tok::LBrace => depth += 1,
                        Tok::RBrace => depth = depth.saturating_sub(1),
                        Tok::Eof => break,
                        _ => {}
                    }
                }
                if self.peek() == Tok::RBrace {
                    self.bump();
                }
            }
        }
        if self.errors.is_empty() && self.module.version == (0, 0) {
            let end = self.span();
            self.errors.push(Diagnostic {
                severity: Severity::Fatal,
                span: Some(end),
                message: "Missing .version directive at start of file".into(),
            });
        }
    }

    /// `.version`, which must come first.
    fn header(&mut self) -> Parsed<()> {
        let span = self.span();
        if !self.eat_dot("version") {
            let message = match self.peek() {
                Tok::Eof => "Missing .version directive at start of file (the file is empty)".to_string(),
                Tok::Bad => "Parsing error: not a PTX file".to_string(),
                _ => format!("Missing .version directive at start of file '{}'", self.text()),
            };
            self.errors.push(Diagnostic::fatal(span, message));
            return Err(Failed);
        }
        let span = self.span();
        let text = self.text();
        if !matches!(self.peek(), Tok::Float) {
            return Err(self.unexpected());
        }
        self.bump();
        let (major, minor) = text.split_once('.').unwrap_or((text, ""));
        match (major.parse::<u8>(), minor.parse::<u8>()) {
            (Ok(a), Ok(b)) if (1, 0) <= (a, b) && (a, b) <= NEWEST_VERSION => {
                self.module.version = (a, b);
                Ok(())
            }
            _ => {
                let message = format!(
                    "Unsupported .version {text}; current version is '{}.{}'",
                    NEWEST_VERSION.0, NEWEST_VERSION.1
                );
                self.errors.push(Diagnostic::fatal(span, message));
                Err(Failed)
            }
        }
    }

    fn item(&mut self) -> Parsed<()> {
        let start = self.span();
        if self.peek() == Tok::Semi {
            self.bump();
            return Ok(());
        }
        if self.eat(Tok::AtAt) {
            // Old DWARF directives: one per line.
            let line =
                self.source[start.start as usize..].find('\n').map_or(u32::MAX, |n| start.start + n as u32);
            while self.peek() != Tok::Eof && self.span().start < line {
                self.bump();
            }
            return Ok(());
        }
        if self.peek() != Tok::Dot {
            return Err(self.unexpected());
        }
        match &self.text()[1..] {
            "version" => {
                self.bump();
                self.bump();
                Ok(())
            }
            "target" => self.target(),
            "address_size" => {
                self.bump();
                let (value, span) = self.int_const()?;
                match value {
                    32 | 64 => self.module.address_size = value as u8,
                    _ => return Err(self.error(span, "Invalid address size")),
                }
                Ok(())
            }
            "file" => self.file(),
            "section" => self.section(),
            "pragma" => {
                self.bump();
                self.expect(Tok::Str)?;
                self.expect(Tok::Semi)?;
                Ok(())
            }
            _ => self.declaration(),
        }
    }

    fn target(&mut self) -> Parsed<()> {
        self.bump();
        self.module.target_span = self.span();
        loop {
            let (name, _) = self.name()?;
            self.module.targets.push(name.to_string());
            if !self.eat(Tok::Comma) {
                return Ok(());
            }
        }
    }

    fn file(&mut self) -> Parsed<()> {
        self.bump();
        let (index, _) = self.int_const()?;
        let span = self.expect(Tok::Str)?;
        let name = self.text_of(span).trim_matches('"').to_string();
        while self.eat(Tok::Comma) {
            self.int_const()?;
        }
        self.module.files.push((index as u32, name));
        Ok(())
    }

    /// `.section name { … }`: kept as text.
    fn section(&mut self) -> Parsed<()> {
        self.bump();
        let (tok, span) = self.bump();
        if !matches!(tok, Tok::Dot | Tok::Name) {
            self.at -= 1;
            return Err(self.unexpected());
        }
        let name = self.text_of(span).to_string();
        let open = self.expect(Tok::LBrace)?;
        while !matches!(self.peek(), Tok::RBrace | Tok::Eof) {
            self.bump();
        }
        let close = self.expect(Tok::RBrace)?;
        let body = self.source[open.end as usize..close.start as usize].to_string();
        self.module.sections.push((name, body));
        Ok(())
    }

    /// A variable or a function.
    fn declaration(&mut self) -> Parsed<()> {
        let mut linkage = Linkage::Internal;
        loop {
            linkage = match self.text() {
                ".visible" => Linkage::Visible,
                ".extern" => Linkage::Extern,
                ".weak" => Linkage::Weak,
                ".common" => Linkage::Common,
                _ => break,
            };
            self.bump();
        }
        if self.eat_dot("entry") {
            return self.function(true, linkage);
        }
        if self.eat_dot("func") {
            return self.function(false, linkage);
        }
        let Some(space) = self.space() else { return Err(self.unexpected()) };
        if space == Space::Reg {
            let span = self.previous_span();
            return Err(self.error(span, "Register variables at module scope are not supported"));
        }
        for var in self.variables(space, linkage)? {
            let name = self.module.vars[var].name.clone();
            let span = self.module.vars[var].span;
            match self.globals.get(&name) {
                // A definition after an extern declaration takes its place.
                Some(Item::Var(old)) if self.module.vars[*old].linkage == Linkage::Extern => {
                    let old = *old;
                    let definition = self.module.vars[var].clone();
                    if definition.linkage != Linkage::Extern {
                        self.module.vars[old] = definition;
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

    fn add_func(&mut self, func: Func) -> Parsed<FuncId> {
        let name = func.name.clone();
        match self.globals.get(&name) {
            Some(Item::Func(id)) => {
                let id = *id;
                let old = &self.module.funcs[id];
                if old.body.is_some() && func.body.is_some() {
                    return Err(self.error(func.span, format!("Duplicate definition of function '{name}'")));
                }
                if func.body.is_some() || old.body.is_none() {
                    self.module.funcs[id] = func;
                }
                Ok(id)
            }
            Some(Item::Var(_)) => Err(self.error(func.span, format!("Duplicate definition of '{name}'"))),
            None => {
                let id = self.module.funcs.push(func);
                self.globals.insert(name, Item::Func(id));
                self.module.items.push(Item::Func(id));
                Ok(id)
            }
        }
    }
}
