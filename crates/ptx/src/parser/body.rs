//! Function bodies: blocks and their scopes, labels, declarations.

use super::decl::{Placement, VarType};
use super::pragma::Place;
use super::{Parsed, Parser};
use crate::ast::{
    Body, Func, FuncAttrs, InlinedAt, Label, LabelId, Linkage, Loc, Reg, RegId, Space, Stmt, Symbol, VarId,
};
use crate::isa::Type;
use crate::lexer::Tok;
use cranelift_entity::packed_option::PackedOption;
use rustc_hash::FxHashMap;

/// Blocks may be nested as deep as this.
const MAX_BLOCKS: usize = 1000;

/// What a name stands for inside a function.
#[derive(Clone, Copy)]
pub(super) enum Local {
    Reg(RegId),
    /// The first component of a vector register, which the others follow, and how many there are.
    Vector(RegId, u8),
    Var(VarId),
    Label(LabelId),
}

/// `%r<100>`
struct Range<'s> {
    prefix: &'s str,
    short: u64,
    ty: Type,
    vector: u8,
    count: u32,
    /// The registers (of vectors, the first components) that were used, by their number; the highest ones are among the other names.
    regs: Vec<PackedOption<RegId>>,
}

/// No range has more registers: ptxas 13.0.88 runs out of memory.
const MOST_REGISTERS: u32 = i32::MAX as u32;

/// So many registers of a range are looked up by number.
const NUMBERED: u32 = 1 << 22;

/// The names of one block.
#[derive(Default)]
struct Scope<'s> {
    names: FxHashMap<&'s str, Local>,
    /// Registers declared by number; each becomes one when it is first used.
    ranges: Vec<Range<'s>>,
    /// Whether the prefix of one ends with a digit.
    digits: bool,
    /// Where they are, by prefix, if there are more than a few.
    prefixes: FxHashMap<&'s str, usize>,
}

/// State of the function being parsed.
pub(super) struct FuncState<'s> {
    pub(super) body: Body,
    /// Whether it is a kernel.
    entry: bool,
    /// Innermost last.
    scopes: Vec<Scope<'s>>,
    /// The labels of each block, by the token that opens it: a label is known before its definition.
    labels: FxHashMap<usize, Vec<(&'s str, LabelId)>>,
}

/// The first bytes of a prefix, all of it if it has eight or less.
fn short(prefix: &str) -> u64 {
    prefix.bytes().take(8).fold(0, |n, b| n << 8 | u64::from(b))
}

/// So many ranges are searched one after another.
const FEW: usize = 8;

impl<'s> Scope<'s> {
    fn range_of(&self, prefix: &str) -> Option<usize> {
        if self.ranges.len() > FEW {
            return self.prefixes.get(prefix).copied();
        }
        let short = short(prefix);
        self.ranges.iter().position(|r| r.short == short && (prefix.len() <= 8 || r.prefix == prefix))
    }

    fn add_range(&mut self, range: Range<'s>) {
        self.digits |= range.prefix.ends_with(|c: char| c.is_ascii_digit());
        self.ranges.push(range);
        let known = self.prefixes.len();
        if self.ranges.len() > FEW {
            for (n, r) in self.ranges.iter().enumerate().skip(known) {
                self.prefixes.entry(r.prefix).or_insert(n);
            }
        }
    }

    /// The range with a register of this name, and its number; `plain` is how the name is read if it has but one
    /// reading.
    #[inline]
    fn range(&self, name: &str, plain: Option<Plain>) -> Option<(usize, u32)> {
        if self.ranges.is_empty() {
            return None;
        }
        // `%r12` is no `%r1<3>` if no prefix ends with a digit.
        match plain {
            Some(p) if !self.digits && self.ranges.len() <= FEW => {
                let same = |r: &Range| r.short == p.short && (p.at <= 8 || *r.prefix == name[..p.at]);
                let range = self.ranges.iter().position(same)?;
                (p.number < self.ranges[range].count).then_some((range, p.number))
            }
            _ => splits(name).chain(with_zeros(name)).find_map(|(prefix, n)| {
                let at = self.range_of(prefix)?;
                (n < self.ranges[at].count).then_some((at, n))
            }),
        }
    }
}

/// A name read as a prefix and all the digits after it.
#[derive(Clone, Copy)]
struct Plain {
    /// Where the digits begin.
    at: usize,
    /// Of the prefix.
    short: u64,
    number: u32,
}

impl Plain {
    /// The reading of a name with one to nine digits at its end, the first of them no zero unless it is the only one.
    #[inline]
    fn of(name: &str) -> Option<Plain> {
        let bytes = name.as_bytes();
        let (mut at, mut number, mut scale) = (bytes.len(), 0, 1);
        let mut first = 0;
        for b in bytes.iter().rev() {
            let digit = u32::from(b.wrapping_sub(b'0'));
            if digit > 9 {
                break;
            }
            if scale == 1_000_000_000 {
                return None;
            }
            (number, first) = (number + digit * scale, digit);
            scale *= 10;
            at -= 1;
        }
        let prefix = &bytes[..at];
        let canonical = at + 1 == bytes.len() || first != 0;
        let short = prefix.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b));
        (canonical && (1..bytes.len()).contains(&at)).then_some(Plain { at, short, number })
    }
}

impl<'s> FuncState<'s> {
    fn define(&mut self, name: &'s str, local: Local) -> Result<(), ()> {
        let scope = self.scopes.last_mut().expect("a scope");
        let clash = scope.names.contains_key(name) || scope.range(name, Plain::of(name)).is_some();
        scope.names.insert(name, local);
        if clash { Err(()) } else { Ok(()) }
    }

    /// The label of this name, innermost scope first.
    fn named_label(&self, name: &str) -> Option<LabelId> {
        self.scopes.iter().rev().find_map(|s| s.names.get(name)).and_then(|l| match l {
            Local::Label(l) => Some(*l),
            _ => None,
        })
    }

    /// What a name stands for, innermost scope first.
    pub(super) fn local(&mut self, name: &'s str) -> Option<Local> {
        let numbered = name.as_bytes().last().is_some_and(u8::is_ascii_digit);
        let plain = if numbered { Plain::of(name) } else { None };
        for scope in self.scopes.iter_mut().rev() {
            // `%r05` is a register of its own if it was declared before `%r<9>`.
            if numbered
                && plain.is_none()
                && let Some(l) = scope.names.get(name)
            {
                return Some(*l);
            }
            // A name that is declared twice is an error, so it doesn't matter which is found.
            if numbered && let Some((at, n)) = scope.range(name, plain) {
                let range = &mut scope.ranges[at];
                let known = if n < NUMBERED {
                    range.regs.get(n as usize).and_then(|r| r.expand())
                } else {
                    match scope.names.get(name) {
                        Some(Local::Reg(r) | Local::Vector(r, _)) => Some(*r),
                        _ => None,
                    }
                };
                let (ty, vector) = (range.ty, range.vector);
                let local = |r| if vector > 1 { Local::Vector(r, vector) } else { Local::Reg(r) };
                if let Some(r) = known {
                    return Some(local(r));
                }
                let id = new_registers(&mut self.body, name, ty, vector);
                if n < NUMBERED {
                    let n = n as usize;
                    if range.regs.len() <= n {
                        range.regs.resize(n + 1, PackedOption::default());
                    }
                    range.regs[n] = id.into();
                } else {
                    scope.names.insert(name, local(id));
                }
                return Some(local(id));
            }
            if let Some(l) = scope.names.get(name) {
                return Some(*l);
            }
        }
        None
    }
}

/// The components of a vector.
pub(super) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// The name of the register that holds a component of a vector.
pub(super) fn component_name(name: &str, component: &str) -> String {
    format!("{name}_{component}")
}

/// A register, or one for each component of a vector; the first.
fn new_registers(body: &mut Body, name: &str, ty: Type, vector: u8) -> RegId {
    if vector == 1 {
        return body.regs.push(Reg { name: name.into(), ty });
    }
    let component = |c: &str| Reg { name: component_name(name, c).into(), ty };
    let first = body.regs.push(component(COMPONENTS[0]));
    for c in &COMPONENTS[1..usize::from(vector)] {
        body.regs.push(component(c));
    }
    body.vectors.push((first, vector));
    first
}

/// A name read as a prefix and all the digits after it, zeros before the number left out: `%r09` is `%r9`.
fn with_zeros(name: &str) -> Option<(&str, u32)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[prefix.len()..];
    let number = digits.trim_start_matches('0');
    let zeros = digits.len() > 1 && number.len() < digits.len();
    let number = if number.is_empty() { Some(0) } else { number.parse().ok() };
    number.filter(|_| zeros && !prefix.is_empty()).map(|n| (prefix, n))
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
        let mut state = FuncState {
            body: Body::default(),
            entry: func.entry,
            scopes: Vec::new(),
            labels: FxHashMap::default(),
        };
        self.find_labels(&mut state);
        self.func = Some(state);
        self.open_scope(open);
        for list in [&func.params, &func.returns] {
            let mut rest = &list[..];
            while let [v, ..] = *rest {
                let (of_vector, others) = rest.split_at(self.module.components(rest));
                rest = others;
                let var = &self.module.vars[v];
                let (name, span) = (self.text_of(var.span), var.span);
                let state = self.func.as_mut().expect("inside a function");
                let local = if var.space == Space::Reg {
                    let mut regs = of_vector.iter().map(|v| {
                        let var = &self.module.vars[*v];
                        state.body.regs.push(Reg { name: var.name.as_str().into(), ty: var.ty })
                    });
                    let first = regs.next().expect("a component");
                    match 1 + regs.count() {
                        1 => Local::Reg(first),
                        n => {
                            state.body.vectors.push((first, n as u8));
                            Local::Vector(first, n as u8)
                        }
                    }
                } else {
                    Local::Var(v)
                };
                if !var.name.is_empty() && state.define(name, local).is_err() {
                    self.error(span, format!("Duplicate definition of variable '{name}'"));
                }
            }
        }
        while !self.state().scopes.is_empty() {
            match self.peek() {
                Tok::RBrace => {
                    let span = self.span();
                    self.bump();
                    let state = self.state();
                    state.body.close = span;
                    state.scopes.pop();
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
        let mut body = self.func.take().expect("inside a function").body;
        body.stmts.shrink_to_fit();
        Ok(body)
    }

    /// Numbers the labels of the body whose `{` was the last token.
    fn find_labels(&self, state: &mut FuncState<'s>) {
        let mut blocks = vec![self.at - 1];
        let first = self.blocks.partition_point(|b| (*b as usize) < self.at);
        for at in self.blocks[first..].iter().map(|b| *b as usize) {
            match self.tokens[at].0 {
                Tok::LBrace => blocks.push(at),
                Tok::RBrace => {
                    blocks.pop();
                    if blocks.is_empty() {
                        // Few statements have less than half a dozen tokens. What is too much is given back at the end.
                        state.body.stmts.reserve((at - self.at) / 6);
                        return;
                    }
                }
                Tok::Colon if self.tokens[at - 1].0 == Tok::Name => {
                    let span = self.tokens[at - 1].1;
                    let name = self.text_of(span);
                    let label = state.body.labels.push(Label { name: name.into(), span });
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
            Tok::AtAt => {
                let span = self.span();
                Err(self.syntax_error(span, "Parsing error near '@@DWARF': syntax error"))
            }
            _ => {
                let inst = self.instruction()?;
                self.state().body.stmts.push(Stmt::Inst(inst));
                Ok(())
            }
        }
    }

    /// A label, or `L<3>` for `L0`, `L1` and `L2`.
    fn branch_targets(&mut self, targets: &mut Vec<LabelId>) -> Parsed<()> {
        if self.peek2() != Tok::Lt {
            targets.push(self.label_ref()?);
            return Ok(());
        }
        let (prefix, span) = self.name()?;
        self.bump();
        let count = self.small()?;
        self.expect(Tok::Gt)?;
        if count == 0 {
            return Err(self.error(span, "An empty range of labels"));
        }
        for n in 0..count {
            let name = format!("{prefix}{n}");
            match self.state().named_label(&name) {
                Some(l) => targets.push(l),
                None => return Err(self.error(span, format!("Unknown symbol '{name}'"))),
            }
        }
        Ok(())
    }

    /// Parameters of prototypes for calls have a name, which is mostly `_`.
    fn prototype_names(&mut self, params: &[VarId]) {
        if let Some(p) = params.iter().find(|p| self.module.vars[**p].name.is_empty()) {
            let span = self.module.vars[*p].span;
            self.syntax_error(span, "Parsing error near ')': syntax error");
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
        let (name, span) = self.new_name()?;
        self.expect(Tok::Colon)?;
        let Some(Local::Label(label)) = self.state().local(name) else {
            return Err(self.error(span, format!("Duplicate definition of '{name}'")));
        };
        if self.eat_dot("branchtargets") {
            let mut targets = Vec::new();
            loop {
                self.branch_targets(&mut targets)?;
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
            let returns = if self.peek() == Tok::LParen { self.params(true)? } else { Vec::new() };
            self.keyword("_")?;
            let params = self.params(true)?;
            self.prototype_names(&returns);
            self.prototype_names(&params);
            let mut attrs = FuncAttrs::default();
            while self.peek() == Tok::Dot {
                self.attribute(&mut attrs, None)?;
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
            if func.attrs.noreturn && !func.returns.is_empty() {
                self.error(span, format!("Invalid directive '.noreturn' for function '{}'", func.name));
            }
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
                let own = (file, line, column);
                let mut inlined = None;
                if self.eat(Tok::Comma) {
                    self.keyword("function_name")?;
                    let name = if self.peek() == Tok::Dot {
                        self.section_name()?
                    } else {
                        let name = self.name()?.0;
                        self.inlined.insert(name);
                        name
                    };
                    let function = name.to_string();
                    let offset = self.dwarf_offset()? as i64;
                    self.expect(Tok::Comma)?;
                    self.keyword("inlined_at")?;
                    let (start, (file, line, column)) = (self.span(), self.position()?);
                    if !self.positions.contains(&(file, line, column)) {
                        let message = format!(
                            "Source location {file} {line} {column} used in inlined_at directive must be used in a preceding \
                             .loc directive"
                        );
                        self.error(start, message);
                    }
                    inlined = Some(Box::new(InlinedAt { function, offset, file, line, column }));
                }
                // What it says itself does not precede it.
                self.positions.insert(own);
                self.state().body.stmts.push(Stmt::Loc(Loc { file, line, column, inlined }));
                Ok(())
            }
            ".pragma" => {
                self.bump();
                let mut texts = Vec::new();
                self.strings(&mut texts)?;
                let span = self.expect(Tok::Semi)?;
                let place = if self.state().entry { Place::Body } else { Place::DeviceBody };
                for text in &texts {
                    self.pragma(text, span, place);
                }
                self.state().body.stmts.extend(texts.into_iter().map(Stmt::Pragma));
                Ok(())
            }
            ".align" | ".attribute" => {
                let place = self.placement()?;
                self.local_variables(place)
            }
            ".extern" | ".visible" | ".weak" => self.declaration(),
            _ => self.local_variables(Placement::default()),
        }
    }

    /// Registers or variables.
    fn local_variables(&mut self, place: Placement) -> Parsed<()> {
        match self.space() {
            Some(Space::Reg) => self.registers(place),
            Some(space) => {
                for var in self.variables(place, space, Linkage::Internal)? {
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
            None => Err(self.unexpected()),
        }
    }

    /// `.reg .b32 %r<10>, a;`
    fn registers(&mut self, place: Placement) -> Parsed<()> {
        let of @ VarType { ty, vector, opaque, .. } = self.variable_type(place)?;
        self.attributes_apply(&of, self.text());
        if opaque.is_some() {
            let span = self.previous_span();
            self.error(span, "Texture/surface variable must be at module or entry parameter scope");
        }
        while self.peek() != Tok::Semi {
            let (name, span) = self.new_name()?;
            if self.eat(Tok::Lt) {
                let number = self.span();
                let count = self.small()?;
                if count > MOST_REGISTERS {
                    self.error(number, format!("Too many registers in a range ({MOST_REGISTERS} at most)"));
                }
                self.expect(Tok::Gt)?;
                let scope = self.state().scopes.last_mut().expect("a scope");
                let clash = scope.range_of(name).is_some();
                let one = |n: &&str| splits(n).any(|(prefix, number)| prefix == name && number < count);
                if let Some(one) = scope.names.keys().copied().filter(|n| n.starts_with(name)).find(one) {
                    self.error(span, format!("Duplicate definition of variable '{one}'"));
                } else if !clash {
                    scope.add_range(Range {
                        prefix: name,
                        short: short(name),
                        ty,
                        vector,
                        count,
                        regs: Vec::new(),
                    });
                } else {
                    self.error(span, format!("Duplicate definition of variable '{name}0'"));
                }
            } else {
                let state = self.state();
                let first = new_registers(&mut state.body, name, ty, vector);
                let local = if vector > 1 { Local::Vector(first, vector) } else { Local::Reg(first) };
                if state.define(name, local).is_err() {
                    self.error(span, format!("Duplicate definition of variable '{name}'"));
                }
            }
            if !self.eat(Tok::Comma) {
                break;
            }
            if self.peek() == Tok::Semi {
                return Err(self.unexpected());
            }
        }
        self.expect(Tok::Semi)?;
        Ok(())
    }
}
