//! Instructions and operands.

use super::body::Local;
use super::expr::Const;
use super::{Parsed, Parser};
use crate::ast::{Addr, AddrBase, Inst, Operand, Part, Reg, RegId, Space, Stmt, Symbol, VarId, VectorElem};
use crate::check::advice::nearest_word;
use crate::check::space_of;
use crate::diag::{Diagnostic, Severity};
use crate::isa::{Form, Mod, Op, SpecialReg, Type, TypeClass};
use crate::lexer::Tok;
use crate::span::Span;
use smallvec::SmallVec;

impl<'s> Parser<'s> {
    #[inline]
    pub(super) fn instruction(&mut self) -> Parsed<Inst> {
        let start = self.span();
        let guard = if self.eat(Tok::At) {
            let not = self.eat(Tok::Bang);
            let (name, span) = self.name()?;
            match self.local(name) {
                Some(Local::Reg(r)) => Some((r, not)),
                _ => return Err(self.error(span, format!("Unknown symbol '{name}'"))),
            }
        } else {
            None
        };
        let (name, span) = self.name()?;
        let Some(op) = Op::parse(name) else {
            let near = nearest_word(name, Op::ALL.iter().map(|o| o.name()));
            let message = format!("Not a name of any known instruction: '{name}'");
            return Err(self.error_with_hint(span, message, near, ""));
        };
        let mut inst = Inst {
            guard,
            op,
            mods: SmallVec::new(),
            operands: SmallVec::new(),
            braced: 0,
            zeros: 0,
            span: start,
        };
        let mut ignored = false;
        while self.peek() == Tok::Dot {
            let word = &self.text()[1..];
            let span = self.span();
            self.bump();
            match Mod::parse(word) {
                // ptxas takes these words as often as one likes; all others count.
                Some(m) if m.repeats() && inst.mods.contains(&m) => {}
                Some(m) if !ignored && m.is_ignored(op) => {
                    ignored = true;
                    let message = format!("'.{word}' has no meaning for instruction '{}'", op.name());
                    let warning =
                        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(span, message) };
                    self.module.warnings.push(warning);
                }
                Some(m) => inst.mods.push(m),
                None => {
                    let words = op.forms().iter().flat_map(|f| f.groups.iter().flat_map(|g| g.words()));
                    let near = nearest_word(word, words.map(|m| m.name()));
                    let message = format!("Unknown modifier '.{word}'");
                    return Err(self.error_with_hint(span, message, near, "."));
                }
            }
        }
        let mut more = self.peek() != Tok::Semi;
        while more {
            let brace = self.peek() == Tok::LBrace;
            // What begins with braces that it reads has brackets before them.
            self.reading = !inst.operands.is_empty();
            let start = self.span();
            let operand = match self.peek() {
                Tok::LParen if op == Op::call => self.list(&inst)?,
                Tok::Name if self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0 == Tok::LBracket => {
                    self.element(&inst)?
                }
                _ => self.operand(&inst)?,
            };
            let named = self.tokens[self.at - 1].0 == Tok::Name;
            let operand = match operand {
                Operand::Reg(_) | Operand::Special(..) if named && self.peek() == Tok::Plus => {
                    self.sum(&inst, operand)?
                }
                Operand::Var(..) | Operand::Func(_) => {
                    let span = start.to(self.previous_span());
                    self.address_value(&inst, operand, span)
                }
                operand => operand,
            };
            if brace && matches!(operand, Operand::Reg(_)) && inst.operands.len() < 16 {
                inst.braced |= 1 << inst.operands.len();
            }
            if let Operand::Addr(Addr { offset: 0, base: AddrBase::Reg(_) }) = operand
                && self.tokens[self.at - 2].0 == Tok::Int
                && inst.operands.len() < 16
            {
                inst.zeros |= 1 << inst.operands.len();
            }
            inst.operands.push(operand);
            more = self.eat(Tok::Comma);
        }
        // `d|_` is `d` where there is no predicate.
        let predicate = |f: &Form| f.operands.first().is_some_and(|o| o.kind.has_predicate());
        if let Some(Operand::Pair(Some(r), None)) = inst.operands.first()
            && !op.forms().iter().any(predicate)
        {
            inst.operands[0] = Operand::Reg(*r);
        }
        self.first_of_metadata(&mut inst);
        inst.span = start.to(self.expect(Tok::Semi)?);
        Ok(inst)
    }

    /// Of registers in braces that are the metadata of a sparse product the first one counts (ptxas 13.0.88, two or four of them).
    fn first_of_metadata(&mut self, inst: &mut Inst) {
        const METADATA: usize = 4;
        let sparse = inst.op == Op::mma && (inst.has(Mod::sp) || inst.has(Mod::sp_ordered_metadata));
        let Some(Operand::Vector(elems)) = inst.operands.get(METADATA).filter(|_| sparse) else { return };
        let body = &self.func.as_ref().expect("statements are in functions").body;
        let word = |e: &VectorElem| match e {
            VectorElem::Reg(r) => {
                let ty = body.regs[*r].ty;
                ty.bytes() == 4 && ty.class() != TypeClass::Predicate
            }
            _ => false,
        };
        if matches!(elems.len(), 2 | 4)
            && elems.iter().all(word)
            && let VectorElem::Reg(first) = elems[0]
        {
            inst.operands[METADATA] = Operand::Reg(first);
        }
    }

    pub(super) fn local(&mut self, name: &'s str) -> Option<Local> {
        self.func.as_mut()?.local(name)
    }

    /// A register, or a component of one: `r`, `v.x`.
    fn register(&mut self) -> Parsed<RegId> {
        let (name, span) = self.name()?;
        match self.local(name) {
            Some(Local::Reg(r)) => Ok(r),
            Some(Local::Vector(first, len)) => match self.component(len)? {
                Some(c) => Ok(component_of(first, c)),
                None => Err(self.error(span, format!("Illegal expression '{name}'"))),
            },
            _ => Err(self.error(span, format!("Unknown symbol '{name}'"))),
        }
    }

    /// `operand + n`, with the sum next: ptxas adds constants to registers wherever they are read. The addition is a
    /// statement of its own, before this one.
    fn sum(&mut self, inst: &Inst, operand: Operand) -> Parsed<Operand> {
        let span = self.span();
        let ty = match &operand {
            Operand::Reg(r) => self.state().body.regs[*r].ty,
            Operand::Special(s, None) if !s.is_vector() => s.ty(),
            _ => return Err(self.unexpected()),
        };
        // Only barriers begin with what they read.
        if inst.operands.is_empty() && !matches!(inst.op, Op::bar | Op::barrier) {
            let message = format!("Result register required for instruction '{}'", inst.op.name());
            return Err(self.error(span, message));
        }
        let add = match (ty.class(), ty.bytes()) {
            (TypeClass::Float | TypeClass::Predicate, _) => None,
            (_, 2) => Some((Mod::u16, Type::u16)),
            (_, 4) => Some((Mod::u32, Type::u32)),
            (_, 8) => Some((Mod::u64, Type::u64)),
            _ => None,
        };
        let Some((word, ty)) = add else {
            return Err(self.error(span, format!("A constant cannot be added to a register of type {ty}")));
        };
        let n = self.offset()? as u64;
        let span = span.to(self.previous_span());
        let body = &mut self.state().body;
        let mut push = |op, operands: &[Operand]| {
            let operands = operands.iter().cloned().collect();
            let mods = [word].into_iter().collect();
            body.stmts.push(Stmt::Inst(Inst { guard: None, op, mods, operands, braced: 0, zeros: 0, span }));
        };
        let sum = body.regs.push(Reg { name: "%sum".into(), ty });
        let mut operand = operand;
        if matches!(operand, Operand::Special(..)) {
            push(Op::mov, &[Operand::Reg(sum), operand]);
            operand = Operand::Reg(sum);
        }
        push(Op::add, &[Operand::Reg(sum), operand, Operand::Int(n)]);
        Ok(Operand::Reg(sum))
    }

    /// `name[…]`, the address of an element; `ld`, `ldu` and `st` take it in place of `[name + …]`. A register for the number
    /// of the element becomes statements before this one.
    fn element(&mut self, inst: &Inst) -> Parsed<Operand> {
        let access = matches!(inst.op, Op::ld | Op::ldu | Op::st);
        let start = self.span();
        let numbered = self.is_symbol(2);
        if !numbered {
            let operand = self.operand(inst)?;
            let indexed = self.tokens[self.at - 1].0 == Tok::RBracket;
            return Ok(match operand {
                Operand::Var(v, offset) if access && indexed => {
                    Operand::Addr(Addr { base: AddrBase::Var(v), offset })
                }
                operand => operand,
            });
        }
        let (name, span) = self.name()?;
        let var = match self.local(name) {
            Some(Local::Var(v)) => v,
            Some(_) => return Err(self.unexpected()),
            None => match self.symbol(name) {
                Some(Symbol::Var(v)) => v,
                _ => return Err(self.error(span, format!("Unknown symbol '{name}'"))),
            },
        };
        let element = self.element_size(var, span)?;
        self.expect(Tok::LBracket)?;
        let (name, span) = self.name()?;
        let Some(Local::Reg(number)) = self.local(name) else {
            return Err(self.error(span, format!("Unknown symbol '{name}'")));
        };
        let plus = self.offset()? as u64 & u64::from(u32::MAX);
        self.expect(Tok::RBracket)?;
        let span = start.to(self.previous_span());
        let ty = self.state().body.regs[number].ty;
        // The number has 32 bits, and so has what it is multiplied to.
        let widen = match (ty.class(), ty.bytes()) {
            (TypeClass::Float | TypeClass::Predicate, _) | (_, 16) => {
                let message = format!(
                    "Illegal to use symbol '{name}' of type {ty} as array index. Use integer or bit only."
                );
                return Err(self.error(span, message));
            }
            (TypeClass::Signed, 1) => [Mod::s32, Mod::s8],
            (_, 1) => [Mod::u32, Mod::u8],
            (TypeClass::Signed, 2) => [Mod::s32, Mod::s16],
            (_, 2) => [Mod::u32, Mod::u16],
            (_, 8) => [Mod::u32, Mod::u64],
            _ => [Mod::u32, Mod::u32],
        };
        let space = self.module.vars[var].space;
        if access && inst.mods.iter().any(|m| space_of(*m).is_some_and(|s| s != space)) {
            let message = format!(
                "State space mismatch between instruction and address in instruction '{}'",
                inst.op.name()
            );
            return Err(self.error(span, message));
        }
        let wide = access && matches!(space, Space::Global | Space::Param)
            || inst.mods.iter().filter_map(|m| m.as_type()).any(|t| t.bytes() == 8) && !access;
        if !access && !matches!(inst.op, Op::mov | Op::cvta) {
            return Err(self.error(span, format!("Arguments mismatch for instruction '{}'", inst.op.name())));
        }
        let (word, ty) = if wide { (Mod::u64, Type::u64) } else { (Mod::u32, Type::u32) };
        let body = &mut self.state().body;
        let at = body.regs.push(Reg { name: "%at".into(), ty: Type::u32 });
        let address = body.regs.push(Reg { name: "%address".into(), ty });
        let [at_operand, address_operand] = [at, address].map(Operand::Reg);
        let mut push = |op, mods: &[Mod], operands: &[Operand]| {
            let (operands, mods) = (operands.iter().cloned().collect(), mods.iter().copied().collect());
            body.stmts.push(Stmt::Inst(Inst { guard: None, op, mods, operands, braced: 0, zeros: 0, span }));
        };
        push(Op::cvt, &widen, &[at_operand.clone(), Operand::Reg(number)]);
        if plus != 0 {
            push(Op::add, &[Mod::u32], &[at_operand.clone(), at_operand.clone(), Operand::Int(plus)]);
        }
        if element > 1 {
            let shift = Operand::Int(element.trailing_zeros().into());
            push(Op::shl, &[Mod::b32], &[at_operand.clone(), at_operand.clone(), shift]);
        }
        push(Op::mov, &[word], &[address_operand.clone(), Operand::Var(var, 0)]);
        if wide {
            push(
                Op::mad,
                &[Mod::wide, Mod::u32],
                &[address_operand.clone(), at_operand, Operand::Int(1), address_operand.clone()],
            );
        } else {
            push(Op::add, &[word], &[address_operand.clone(), address_operand.clone(), at_operand]);
        }
        Ok(match access {
            true => Operand::Addr(Addr { base: AddrBase::Reg(address), offset: 0 }),
            false => address_operand,
        })
    }

    /// Bytes from an element of an array to the next, as ptxas 13.0.88 counts them: of one component, in rows too; one where
    /// the size of the array is not known.
    fn element_size(&mut self, v: VarId, span: Span) -> Parsed<u32> {
        let var = &self.module.vars[v];
        let element = var.ty.bytes();
        match var.dims.first() {
            None => Err(self.error(span, "Array indexing on non-array")),
            Some(0) => Ok(1),
            Some(_) => Ok(element),
        }
    }

    /// `(a, b, …)` of a call.
    fn list(&mut self, inst: &Inst) -> Parsed<Operand> {
        self.expect(Tok::LParen)?;
        let mut list = Vec::new();
        if self.peek() != Tok::RParen {
            self.argument(inst, &mut list)?;
            while self.eat(Tok::Comma) {
                self.argument(inst, &mut list)?;
            }
        }
        self.expect(Tok::RParen)?;
        Ok(Operand::List(list))
    }

    /// What a call passes: a vector register as its components. There are no braces and no single components here.
    fn argument(&mut self, inst: &Inst, list: &mut Vec<Operand>) -> Parsed<()> {
        if matches!(self.peek(), Tok::LBrace | Tok::LBracket) {
            return Err(self.unexpected());
        }
        // Only numbers have signs.
        if matches!(self.peek(), Tok::Minus | Tok::Bang) && self.is_symbol(1) {
            self.bump();
            return Err(self.unexpected());
        }
        let symbol = self.is_symbol(0);
        let operand = self.nested(|p| p.operand(inst))?;
        // Nothing is added to a name.
        if symbol && !matches!(self.tokens[self.at - 1].0, Tok::Name | Tok::Dot) {
            return Err(self.unexpected());
        }
        if let (Tok::Dot, span) = self.tokens[self.at - 1] {
            let word = self.text_of(span);
            return Err(self.syntax_error(span, format!("Parsing error near '{word}': syntax error")));
        }
        match operand {
            Operand::Vector(components) => {
                for c in components {
                    let VectorElem::Reg(r) = c else { return Err(self.unexpected()) };
                    list.push(Operand::Reg(r));
                }
            }
            operand => list.push(operand),
        }
        Ok(())
    }

    fn operand(&mut self, inst: &Inst) -> Parsed<Operand> {
        match self.peek() {
            Tok::LBracket => {
                self.bump();
                let addr = self.address_of(inst)?;
                if self.peek() == Tok::Comma {
                    // No offset stands before coordinates.
                    if self.tokens[self.at - 1].0 != Tok::Name {
                        return Err(self.unexpected());
                    }
                    let mut list = vec![Operand::Addr(addr)];
                    while self.eat(Tok::Comma) {
                        // Behind a texture and a sampler coordinates have their braces.
                        let samples = matches!(inst.op, Op::tex | Op::tld4);
                        if list.len() == 2 && samples && self.peek() != Tok::LBrace {
                            return Err(self.unexpected());
                        }
                        list.push(self.nested(|p| p.operand(inst))?);
                    }
                    self.expect(Tok::RBracket)?;
                    return Ok(Operand::Bracket(list));
                }
                self.expect(Tok::RBracket)?;
                Ok(Operand::Addr(addr))
            }
            Tok::LBrace => self.vector(inst),
            Tok::Bang if self.is_symbol(1) => {
                self.bump();
                Ok(Operand::NotPred(self.register()?))
            }
            Tok::Minus if self.is_symbol(1) => {
                self.bump();
                Ok(Operand::NegReg(self.register()?))
            }
            Tok::Name if self.is_symbol(0) => self.named(),
            _ => Ok(match self.constant()? {
                Const::Int(n, _) => Operand::Int(n),
                Const::F64(bits) => Operand::F64(bits),
                Const::F32(bits) => Operand::F32(bits),
            }),
        }
    }

    /// Whether the `n`-th token from here is a name, and none of a constant.
    pub(super) fn is_symbol(&self, n: usize) -> bool {
        let at = (self.at + n).min(self.tokens.len() - 1);
        let (tok, span) = self.tokens[at];
        tok == Tok::Name && self.text_of(span) != "WARP_SZ"
    }

    pub(super) fn address(&mut self) -> Parsed<Addr> {
        let base = if self.is_symbol(0) {
            let (name, span) = self.name()?;
            match self.local(name) {
                Some(Local::Reg(r)) => AddrBase::Reg(r),
                Some(Local::Var(v)) => AddrBase::Var(v),
                Some(Local::Label(_)) => {
                    return Err(self.error(span, format!("Label '{name}' has no address")));
                }
                Some(Local::Vector(..)) => return Err(self.unexpected()),
                None => match self.symbol(name) {
                    Some(Symbol::Var(v)) => AddrBase::Var(v),
                    _ => return Err(self.error(span, format!("Unknown symbol '{name}'"))),
                },
            }
        } else {
            return Ok(Addr { base: AddrBase::Absolute, offset: self.int_const()? as i64 });
        };
        Ok(Addr { base, offset: self.offset()? })
    }

    fn vector(&mut self, inst: &Inst) -> Parsed<Operand> {
        let start = self.expect(Tok::LBrace)?;
        let mut elems: SmallVec<[VectorElem; 4]> = SmallVec::new();
        loop {
            elems.push(match self.peek() {
                Tok::Name if self.text() == "_" => {
                    self.bump();
                    VectorElem::Sink
                }
                Tok::Name if self.is_symbol(0) => match self.special_component(inst.op)? {
                    Some(r) => VectorElem::Reg(r),
                    None => VectorElem::Reg(self.register()?),
                },
                _ => {
                    let span = self.span();
                    match self.nested(|p| p.operand(inst))? {
                        Operand::Int(n) => VectorElem::Int(n),
                        Operand::F32(n) => VectorElem::F32(n),
                        Operand::F64(n) => VectorElem::F64(n),
                        _ => return Err(self.error(span, "Bad vector element")),
                    }
                }
            });
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        let span = start.to(self.expect(Tok::RBrace)?);
        self.constants_among(inst, &mut elems, span);
        if self.eat(Tok::Pipe) {
            let resident = self.register()?;
            return Ok(Operand::Resident(elems.into_vec().into_boxed_slice(), resident));
        }
        // Triton writes single operands as `{ %r1 }`.
        Ok(match elems[..] {
            [VectorElem::Reg(r)] => Operand::Reg(r),
            _ => Operand::Vector(elems.into_vec().into_boxed_slice()),
        })
    }

    /// `.x` of a vector of `len` components, if it is next.
    pub(super) fn component(&mut self, len: u8) -> Parsed<Option<u8>> {
        if self.peek() != Tok::Dot {
            return Ok(None);
        }
        let c = match self.text() {
            ".x" | ".r" => 0,
            ".y" | ".g" => 1,
            ".z" | ".b" => 2,
            ".w" | ".a" => 3,
            _ => u8::MAX,
        };
        if c >= len {
            let (word, span) = (&self.text()[1..], self.span());
            return Err(self.error(span, format!("Unknown vector selector: '{word}'")));
        }
        self.bump();
        Ok(Some(c))
    }

    /// An operand that begins with a name.
    fn named(&mut self) -> Parsed<Operand> {
        let (name, span) = self.name()?;
        if name == "_" {
            if self.eat(Tok::Pipe) {
                return Ok(Operand::Pair(None, Some(self.register()?)));
            }
            return Ok(Operand::Sink);
        }
        match self.local(name) {
            Some(Local::Reg(r)) if matches!(self.peek(), Tok::Comma | Tok::Semi) => Ok(Operand::Reg(r)),
            Some(Local::Reg(r)) => {
                if self.eat(Tok::Pipe) {
                    if self.peek() == Tok::Name && self.text() == "_" {
                        self.bump();
                        return Ok(Operand::Pair(Some(r), None));
                    }
                    return Ok(Operand::Pair(Some(r), Some(self.register()?)));
                }
                if self.peek() == Tok::Dot
                    && let Some(part) = Part::parse(&self.text()[1..])
                {
                    self.bump();
                    return Ok(Operand::Part { reg: r, part });
                }
                Ok(Operand::Reg(r))
            }
            Some(Local::Vector(first, len)) => Ok(match self.component(len)? {
                Some(c) => Operand::Reg(component_of(first, c)),
                None => Operand::Vector((0..len).map(|c| VectorElem::Reg(component_of(first, c))).collect()),
            }),
            Some(Local::Var(v)) => self.place(v),
            Some(Local::Label(l)) => Ok(Operand::Label(l)),
            None => self.global_name(name, span),
        }
    }

    fn global_name(&mut self, name: &str, span: Span) -> Parsed<Operand> {
        match self.symbol(name) {
            Some(Symbol::Var(v)) => return self.place(v),
            Some(Symbol::Func(f)) => return Ok(Operand::Func(f)),
            None => {}
        }
        // `%tid.x`: the lexer splits the component off.
        let Some(s) = SpecialReg::parse(name) else {
            return Err(self.error(span, format!("Unknown symbol '{name}'")));
        };
        let component = if s.is_vector() { self.component(4)? } else { None };
        Ok(Operand::Special(s, component))
    }

    /// `v`, `v + n`, or `v[n]`, the address of the `n`-th element.
    fn place(&mut self, v: VarId) -> Parsed<Operand> {
        let span = self.span();
        if !self.eat(Tok::LBracket) {
            return Ok(Operand::Var(v, self.offset()?));
        }
        let element = self.element_size(v, span)?;
        let n = self.int_const()? as i64;
        self.expect(Tok::RBracket)?;
        Ok(Operand::Var(v, n.wrapping_mul(element.into())))
    }
}

/// The register of a component of a vector register.
fn component_of(first: RegId, c: u8) -> RegId {
    RegId::from_u32(first.as_u32() + u32::from(c))
}
