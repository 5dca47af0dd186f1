//! Function bodies: blocks and their scopes, labels, declarations.

use super::{Parsed, Parser};
use crate::ast::{
    Body, Func, FuncAttrs, InlinedAt, Label, LabelId, Linkage, Loc, Reg, RegId, Space, Stmt, Symbol, VarId,
};
use crate::isa::Type;
use crate::lexer::Tok;
use rustc_hash::FxHashMap;

/// Blocks may be nested as deep as this.
const MAX_BLOCKS: usize = 1000;

/// What a name stands for inside a function.
#[derive(Clone, Copy)]
pub(super) enum Local {
    Reg(RegId),
    Var(VarId),
    Label(LabelId),
}

/// `%r<100>`
struct Range {
    ty: Type,
    vector: u8,
    count: u32,
}

/// The names of one block.
#[derive(Default)]
struct Scope<'s> {
    names: FxHashMap<&'s str, Local>,
    /// Registers declared by number; each enters `names` when it is first used.
    ranges: FxHashMap<&'s str, Range>,
}

/// State of the function being parsed.
pub(super) struct FuncState<'s> {
    pub(super) body: Body,
    /// Innermost last.
    scopes: Vec<Scope<'s>>,
    /// The labels of each block, by the token that opens it: a label is known before its definition.
    labels: FxHashMap<usize, Vec<(&'s str, LabelId)>>,
}

impl<'s> FuncState<'s> {
    fn define(&mut self, name: &'s str, local: Local) -> Result<(), ()> {
        let scope = self.scopes.last_mut().expect("a scope");
        let clash = scope.names.contains_key(name)
            || splits(name).any(|(prefix, n)| scope.ranges.get(prefix).is_some_and(|r| n < r.count));
        scope.names.insert(name, local);
        if clash { Err(()) } else { Ok(()) }
    }

    /// What a name stands for, innermost scope first.
    pub(super) fn local(&mut self, name: &'s str) -> Option<Local> {
        for scope in self.scopes.iter_mut().rev() {
            if let Some(l) = scope.names.get(name) {
                return Some(*l);
            }
            if scope.ranges.is_empty() {
                continue;
            }
            for (prefix, n) in splits(name) {
                if let Some(r) = scope.ranges.get(prefix)
                    && n < r.count
                {
                    let reg = Reg { name: name.to_string(), ty: r.ty, vector: r.vector };
                    let local = Local::Reg(self.body.regs.push(reg));
                    scope.names.insert(name, local);
                    return Some(local);
                }
            }
        }
        None
    }
}

/// The ways to read a name as a prefix and a number, the longest number first.
fn splits(name: &str) -> impl Iterator<Item = (&str, u32)> {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    // No number below 2³² has more than ten digits.
    (digits.max(name.len().saturating_sub(10))..name.len()).filter_map(|at| {
        let number = &name[at..];
        let canonical = number.len() == 1 || !number.starts_with('0');
        Some((&name[..at], number.parse().ok().filter(|_| canonical)?))
    })
}

impl<'s> Parser<'s> {
    pub(super) fn body(&mut self, func: &Func) -> Parsed<Body> {
        self.expect(Tok::LBrace)?;
        let open = self.at - 1;
        let mut state = FuncState { body: Body::default(), scopes: Vec::new(), labels: FxHashMap::default() };
        self.find_labels(&mut state);
        self.func = Some(state);
        self.open_scope(open);
        for v in func.params.iter().chain(&func.returns) {
            let var = &self.module.vars[*v];
            let (name, span) = (self.text_of(var.span), var.span);
            let state = self.func.as_mut().expect("inside a function");
            let local = if var.space == Space::Reg {
                let reg = Reg { name: var.name.clone(), ty: var.ty, vector: var.vector };
                Local::Reg(state.body.regs.push(reg))
            } else {
                Local::Var(*v)
            };
            if !var.name.is_empty() && state.define(name, local).is_err() {
                self.error(span, format!("Duplicate definition of variable '{name}'"));
            }
        }
        while !self.state().scopes.is_empty() {
            match self.peek() {
                Tok::RBrace => {
                    self.bump();
                    self.state().scopes.pop();
                }
                Tok::LBrace => {
                    if self.state().scopes.len() > MAX_BLOCKS {
                        let span = self.span();
                        return Err(self.error(span, "Blocks are nested too deeply"));
                    }
                    self.bump();
                    self.open_scope(self.at - 1);
                }
                Tok::Eof => {
                    self.unexpected();
                    break;
                }
                _ => {
                    let start = self.at;
                    if self.statement().is_err() {
                        self.depth = 0;
                        self.recover(start);
                    }
                }
            }
        }
        Ok(self.func.take().expect("inside a function").body)
    }

    /// Numbers the labels of the body whose `{` was the last token.
    fn find_labels(&self, state: &mut FuncState<'s>) {
        let mut blocks = vec![self.at - 1];
        for at in self.at..self.tokens.len() - 1 {
            match self.tokens[at].0 {
                Tok::LBrace => blocks.push(at),
                Tok::RBrace => {
                    blocks.pop();
                    if blocks.is_empty() {
                        return;
                    }
                }
                Tok::Name if self.tokens[at + 1].0 == Tok::Colon => {
                    let span = self.tokens[at].1;
                    let name = self.text_of(span);
                    let label = state.body.labels.push(Label { name: name.to_string(), span });
                    state.labels.entry(*blocks.last().expect("a block")).or_default().push((name, label));
                }
                _ => {}
            }
        }
    }

    /// Enters the block that token `open` opens.
    fn open_scope(&mut self, open: usize) {
        let state = self.state();
        state.scopes.push(Scope::default());
        for (name, label) in state.labels.remove(&open).unwrap_or_default() {
            if state.define(name, Local::Label(label)).is_err() {
                let span = state.body.labels[label].span;
                self.error(span, format!("Duplicate definition of label '{name}'"));
                return;
            }
        }
    }

    pub(super) fn state(&mut self) -> &mut FuncState<'s> {
        self.func.as_mut().expect("inside a function")
    }

    fn statement(&mut self) -> Parsed<()> {
        match self.peek() {
            Tok::Name if self.peek2() == Tok::Colon => self.label(),
            Tok::Dot => self.directive(),
            Tok::AtAt => self.item(),
            _ => {
                let inst = self.instruction()?;
                self.state().body.stmts.push(Stmt::Inst(inst));
                Ok(())
            }
        }
    }

    /// The label of this name.
    pub(super) fn label_ref(&mut self) -> Parsed<LabelId> {
        let (name, span) = self.name()?;
        match self.state().local(name) {
            Some(Local::Label(l)) => Ok(l),
            Some(_) => Err(self.error(span, format!("Label expected, not '{name}'"))),
            None => Err(self.error(span, format!("Unknown symbol '{name}'"))),
        }
    }

    fn label(&mut self) -> Parsed<()> {
        let (name, span) = self.name()?;
        self.expect(Tok::Colon)?;
        let Some(Local::Label(label)) = self.state().local(name) else {
            return Err(self.error(span, format!("Duplicate definition of '{name}'")));
        };
        if self.eat_dot("branchtargets") {
            let mut targets = Vec::new();
            loop {
                targets.push(self.label_ref()?);
                if !self.eat(Tok::Comma) {
                    break;
                }
            }
            self.expect(Tok::Semi)?;
            self.state().body.stmts.push(Stmt::BranchTargets(label, targets));
        } else if self.eat_dot("calltargets") {
            let mut targets = Vec::new();
            loop {
                let (name, span) = self.name()?;
                match self.symbol(name) {
                    Some(Symbol::Func(f)) => targets.push(f),
                    _ => return Err(self.error(span, format!("Unknown function '{name}'"))),
                }
                if !self.eat(Tok::Comma) {
                    break;
                }
            }
            self.expect(Tok::Semi)?;
            self.state().body.stmts.push(Stmt::CallTargets(label, targets));
        } else if self.eat_dot("callprototype") {
            let returns = if self.peek() == Tok::LParen { self.params()? } else { Vec::new() };
            self.expect(Tok::Name)?;
            let params = self.params()?;
            let mut attrs = FuncAttrs::default();
            while self.peek() == Tok::Dot {
                self.attribute(&mut attrs)?;
            }
            self.expect(Tok::Semi)?;
            let linkage = Linkage::Internal;
            let func = Func {
                name: name.to_string(),
                entry: false,
                linkage,
                params,
                returns,
                attrs,
                body: None,
                span,
            };
            let id = self.module.funcs.push(func);
            self.state().body.stmts.push(Stmt::CallPrototype(label, id));
        } else {
            self.state().body.stmts.push(Stmt::Label(label));
        }
        Ok(())
    }

    fn keyword(&mut self, word: &str) -> Parsed<()> {
        if self.peek() == Tok::Name && self.text() == word {
            self.bump();
            return Ok(());
        }
        Err(self.unexpected())
    }

    /// File, line and column of `.loc`. Each is one literal: a label may follow.
    fn position(&mut self) -> Parsed<(u32, u32, u32)> {
        Ok((self.small()?, self.small()?, self.small()?))
    }

    fn directive(&mut self) -> Parsed<()> {
        match self.text() {
            ".loc" => {
                self.bump();
                let (file, line, column) = self.position()?;
                let mut inlined = None;
                if self.eat(Tok::Comma) {
                    self.keyword("function_name")?;
                    let function = self.name()?.0.to_string();
                    let offset = self.signed_offset()?;
                    self.expect(Tok::Comma)?;
                    self.keyword("inlined_at")?;
                    let (file, line, column) = self.position()?;
                    inlined = Some(Box::new(InlinedAt { function, offset, file, line, column }));
                }
                self.state().body.stmts.push(Stmt::Loc(Loc { file, line, column, inlined }));
                Ok(())
            }
            ".pragma" => {
                self.bump();
                let mut texts = Vec::new();
                self.strings(&mut texts)?;
                self.expect(Tok::Semi)?;
                self.state().body.stmts.extend(texts.into_iter().map(Stmt::Pragma));
                Ok(())
            }
            _ => match self.space() {
                Some(Space::Reg) => self.registers(),
                Some(space) => {
                    for var in self.variables(space, Linkage::Internal)? {
                        let span = self.module.vars[var].span;
                        let name = self.text_of(span);
                        let state = self.state();
                        state.body.vars.push(var);
                        if state.define(name, Local::Var(var)).is_err() {
                            self.error(span, format!("Duplicate definition of variable '{name}'"));
                        }
                    }
                    Ok(())
                }
                None => match self.text() {
                    ".extern" | ".visible" | ".weak" => self.declaration(),
                    _ => Err(self.unexpected()),
                },
            },
        }
    }

    /// `.reg .b32 %r<10>, a;`
    fn registers(&mut self) -> Parsed<()> {
        let super::decl::VarType { ty, vector, .. } = self.variable_type()?;
        loop {
            let (name, span) = self.name()?;
            if self.eat(Tok::Lt) {
                let (count, count_span) = self.count_const()?;
                self.expect(Tok::Gt)?;
                let Ok(count) = u32::try_from(count) else {
                    return Err(self.error(count_span, "Register range is too large"));
                };
                let scope = self.state().scopes.last_mut().expect("a scope");
                if scope.ranges.insert(name, Range { ty, vector, count }).is_some() {
                    self.error(span, format!("Duplicate definition of variable '{name}0'"));
                }
            } else {
                let state = self.state();
                let reg = state.body.regs.push(Reg { name: name.to_string(), ty, vector });
                if state.define(name, Local::Reg(reg)).is_err() {
                    self.error(span, format!("Duplicate definition of variable '{name}'"));
                }
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect(Tok::Semi)?;
        Ok(())
    }
}
