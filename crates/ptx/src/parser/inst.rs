//! Instructions and operands.

use super::body::Local;
use super::{Parsed, Parser};
use crate::ast::{Addr, AddrBase, Inst, Operand, Part, Reg, RegId, Symbol, VectorElem};
use crate::check::advice::nearest_word;
use crate::isa::{Mod, Op, SpecialReg};
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
        while self.peek() == Tok::Dot {
            let word = &self.text()[1..];
            let span = self.span();
            self.bump();
            match Mod::parse(word) {
                // ptxas takes these words as often as one likes; all others count.
                Some(m) if m.repeats() && inst.mods.contains(&m) => {}
                Some(m) => inst.mods.push(m),
                None => {
                    let words = op.forms().iter().flat_map(|f| f.groups.iter().flat_map(|g| g.words()));
                    let near = nearest_word(word, words.map(|m| m.name()));
                    let message = format!("Unknown modifier '.{word}'");
                    return Err(self.error_with_hint(span, message, near, "."));
                }
            }
        }
        while self.peek() != Tok::Semi {
            let brace = self.peek() == Tok::LBrace;
            let operand = self.operand()?;
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
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        inst.span = start.to(self.expect(Tok::Semi)?);
        Ok(inst)
    }

    fn local(&mut self, name: &'s str) -> Option<Local> {
        self.func.as_mut()?.local(name)
    }

    fn body_reg(&mut self, r: RegId) -> &Reg {
        &self.state().body.regs[r]
    }

    fn register(&mut self) -> Parsed<RegId> {
        let (name, span) = self.name()?;
        match self.local(name) {
            Some(Local::Reg(r)) => Ok(r),
            _ => Err(self.error(span, format!("Unknown symbol '{name}'"))),
        }
    }

    fn operand(&mut self) -> Parsed<Operand> {
        match self.peek() {
            Tok::LBracket => {
                self.bump();
                let addr = self.address()?;
                if self.peek() == Tok::Comma {
                    let mut list = vec![Operand::Addr(addr)];
                    while self.eat(Tok::Comma) {
                        list.push(self.nested(Self::operand)?);
                    }
                    self.expect(Tok::RBracket)?;
                    return Ok(Operand::Bracket(list));
                }
                self.expect(Tok::RBracket)?;
                Ok(Operand::Addr(addr))
            }
            Tok::LBrace => self.vector(),
            Tok::LParen => {
                self.bump();
                let mut list = Vec::new();
                while self.peek() != Tok::RParen {
                    list.push(self.nested(Self::operand)?);
                    if !self.eat(Tok::Comma) {
                        break;
                    }
                }
                self.expect(Tok::RParen)?;
                Ok(Operand::List(list))
            }
            Tok::Bang => {
                self.bump();
                Ok(Operand::NotPred(self.register()?))
            }
            Tok::Minus if self.peek2() == Tok::Name => {
                self.bump();
                Ok(Operand::NegReg(self.register()?))
            }
            Tok::Name if self.text() != "WARP_SZ" => self.named(),
            Tok::HexF32 => {
                let text = self.text();
                self.bump();
                Ok(Operand::F32(u32::from_str_radix(&text[2..], 16).unwrap_or(0)))
            }
            Tok::HexF64 => {
                let text = self.text();
                self.bump();
                Ok(Operand::F64(u64::from_str_radix(&text[2..], 16).unwrap_or(0)))
            }
            Tok::Float => self.float(false),
            Tok::Minus if matches!(self.peek2(), Tok::Float | Tok::HexF32 | Tok::HexF64) => {
                self.bump();
                self.float(true)
            }
            _ => Ok(Operand::Int(self.int_const()?.0)),
        }
    }

    fn float(&mut self, negative: bool) -> Parsed<Operand> {
        let (tok, span) = self.bump();
        let text = self.text_of(span);
        Ok(match tok {
            Tok::HexF32 => {
                Operand::F32(u32::from_str_radix(&text[2..], 16).unwrap_or(0) ^ u32::from(negative) << 31)
            }
            Tok::HexF64 => {
                Operand::F64(u64::from_str_radix(&text[2..], 16).unwrap_or(0) ^ u64::from(negative) << 63)
            }
            _ => match text.parse::<f64>() {
                Ok(x) => Operand::F64(if negative { -x } else { x }.to_bits()),
                Err(_) => return Err(self.error(span, format!("Bad floating-point constant '{text}'"))),
            },
        })
    }

    fn address(&mut self) -> Parsed<Addr> {
        let base = if self.peek() == Tok::Name && self.text() != "WARP_SZ" {
            let (name, span) = self.name()?;
            match self.local(name) {
                Some(Local::Reg(r)) => AddrBase::Reg(r),
                Some(Local::Var(v)) => AddrBase::Var(v),
                Some(Local::Label(_)) => {
                    return Err(self.error(span, format!("Label '{name}' has no address")));
                }
                None => match self.symbol(name) {
                    Some(Symbol::Var(v)) => AddrBase::Var(v),
                    _ => return Err(self.error(span, format!("Unknown symbol '{name}'"))),
                },
            }
        } else {
            return Ok(Addr { base: AddrBase::Absolute, offset: self.int_const()?.0 as i64 });
        };
        Ok(Addr { base, offset: self.signed_offset()? })
    }

    fn vector(&mut self) -> Parsed<Operand> {
        self.expect(Tok::LBrace)?;
        let mut elems: SmallVec<[VectorElem; 4]> = SmallVec::new();
        loop {
            elems.push(match self.peek() {
                Tok::Name if self.text() == "_" => {
                    self.bump();
                    VectorElem::Sink
                }
                Tok::Name => VectorElem::Reg(self.register()?),
                _ => {
                    let span = self.span();
                    match self.nested(Self::operand)? {
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
        self.expect(Tok::RBrace)?;
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

    fn component(&mut self) -> Option<u8> {
        if self.peek() != Tok::Dot {
            return None;
        }
        let c = match self.text() {
            ".x" | ".r" => 0,
            ".y" | ".g" => 1,
            ".z" | ".b" => 2,
            ".w" | ".a" => 3,
            _ => return None,
        };
        self.bump();
        Some(c)
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
                if self.body_reg(r).vector == 1
                    && self.peek() == Tok::Dot
                    && let Some(part) = Part::parse(&self.text()[1..])
                {
                    self.bump();
                    return Ok(Operand::Part { reg: r, part });
                }
                if let Some(c) = self.component() {
                    return Ok(Operand::Component(r, c));
                }
                Ok(Operand::Reg(r))
            }
            Some(Local::Var(v)) => Ok(Operand::Var(v, self.signed_offset()?)),
            Some(Local::Label(l)) => Ok(Operand::Label(l)),
            None => self.global_name(name, span),
        }
    }

    fn global_name(&mut self, name: &str, span: Span) -> Parsed<Operand> {
        match self.symbol(name) {
            Some(Symbol::Var(v)) => return Ok(Operand::Var(v, self.signed_offset()?)),
            Some(Symbol::Func(f)) => return Ok(Operand::Func(f)),
            None => {}
        }
        // `%tid.x`: the lexer splits the component off.
        let Some(s) = SpecialReg::parse(name) else {
            return Err(self.error(span, format!("Unknown symbol '{name}'")));
        };
        let component = if s.is_vector() { self.component() } else { None };
        Ok(Operand::Special(s, component))
    }
}
