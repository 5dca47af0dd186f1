//! Operands that stand for a value which a statement of its own computes before the instruction: addresses with an offset, functions,
//! special registers as addresses or in braces, constants among registers.

use super::{Parsed, Parser};
use crate::ast::{Addr, AddrBase, Inst, Operand, Reg, RegId, Stmt, VectorElem};
use crate::isa::{Mod, Op, OperandKind, OperandSpec, SpecialReg, Type, TypeClass, TypeRef};
use crate::lexer::Tok;
use crate::span::Span;

/// The instructions whose addresses may be special registers. ptxas 13.0.88 refuses `mbarrier`, textures, surfaces and tensors, and
/// crashes on `ld` and `ldu` whose value is used, `st`, `atom`, `red`, `prefetch` (but for tensor maps), `applypriority` and `discard`.
const SPECIAL_ADDRESS: &[Op] =
    &[Op::cp, Op::createpolicy, Op::fence, Op::ldmatrix, Op::multimem, Op::stmatrix, Op::tensormap, Op::wmma];

/// The instructions whose operands in braces are constants among registers as well, though the table says registers.
const CONSTANTS_AMONG_REGISTERS: &[Op] = &[Op::mma, Op::stmatrix, Op::wgmma];

/// Untyped bits of so many bytes: the word and the type.
fn bits(bytes: u32) -> Option<(Mod, Type)> {
    Some(match bytes {
        2 => (Mod::b16, Type::b16),
        4 => (Mod::b32, Type::b32),
        8 => (Mod::b64, Type::b64),
        _ => return None,
    })
}

impl Parser<'_> {
    /// A register that nothing else names, and `op.word` to it from `source`, a statement before this one.
    fn value_of(&mut self, name: &str, ty: Type, word: Mod, source: Operand, span: Span) -> RegId {
        let body = &mut self.state().body;
        let to = body.regs.push(Reg { name: name.into(), ty });
        let operands = [Operand::Reg(to), source].into_iter().collect();
        let mods = [word].into_iter().collect();
        body.stmts.push(Stmt::Inst(Inst {
            guard: None,
            op: Op::mov,
            mods,
            operands,
            braced: 0,
            zeros: 0,
            span,
        }));
        to
    }

    /// A special register in braces that are read. (In ptxas's code one that is written has the new value from there on; that is
    /// refused.) Nothing if the name is none, or the instruction `wmma`, which ptxas makes calls of, or of tensor memory.
    pub(super) fn special_component(&mut self, op: Op) -> Parsed<Option<RegId>> {
        let name = self.text();
        let Some(s) = SpecialReg::parse(name) else { return Ok(None) };
        let never = !self.reading || self.func.is_none() || matches!(op, Op::wmma | Op::tcgen05);
        if never || self.local(name).is_some() {
            return Ok(None);
        }
        let (_, span) = self.name()?;
        let component = if s.is_vector() { self.component(4)? } else { None };
        let Some((word, ty)) = bits(s.ty().bytes()) else {
            return Err(self.error(span, format!("Unknown symbol '{name}'")));
        };
        if s.is_vector() && component.is_none() {
            return Err(self.error(span, format!("Illegal expression '{name}'")));
        }
        Ok(Some(self.value_of("%special", ty, word, Operand::Special(s, component), span)))
    }

    /// `[%special + n]`, where `inst` takes it.
    pub(super) fn special_address(&mut self, inst: &Inst) -> Parsed<Option<AddrBase>> {
        let name = self.text();
        let Some(s) = SpecialReg::parse(name).filter(|s| !s.is_vector()) else { return Ok(None) };
        let takes = SPECIAL_ADDRESS.contains(&inst.op)
            || inst.op == Op::st && inst.has(Mod::_async)
            || inst.op == Op::prefetch && inst.has(Mod::tensormap);
        let Some((word, ty)) = bits(s.ty().bytes()) else { return Ok(None) };
        if !takes || self.func.is_none() {
            return Ok(None);
        }
        let (_, span) = self.name()?;
        if self.peek() == Tok::Comma {
            let message =
                format!("Special register argument not allowed for instruction '{}'", inst.op.name());
            return Err(self.error(span, message));
        }
        Ok(Some(AddrBase::Reg(self.value_of("%special", ty, word, Operand::Special(s, None), span))))
    }

    /// `variable + n` or a function where an instruction reads a number. ptxas takes the first, but no name alone, for integers and
    /// untyped bits of any size; of functions, what has 64 bits is taken here.
    pub(super) fn address_value(&mut self, inst: &Inst, operand: Operand, span: Span) -> Operand {
        // These take addresses as such.
        let own = matches!(inst.op, Op::mov | Op::call | Op::mapa | Op::getctarank)
            || inst.op == Op::cvta && !inst.has(Mod::to);
        let added = !matches!(self.tokens[self.at - 1].0, Tok::Name | Tok::RBracket);
        let function = matches!(operand, Operand::Func(_));
        if own || self.func.is_none() || !(function || added) {
            return operand;
        }
        let Some(bytes) = number_size(inst) else { return operand };
        let word = match bytes {
            8 => (Mod::u64, Type::u64),
            _ if function => return operand,
            4 => (Mod::u32, Type::u32),
            2 => (Mod::u16, Type::u16),
            _ => return operand,
        };
        Operand::Reg(self.value_of("%address", word.1, word.0, operand, span))
    }

    /// Constants in braces beside registers, which become registers of the same size: where the table wants registers only, and
    /// floating-point constants among untyped bits. Of those only what has the size of the registers: ptxas cuts others.
    pub(super) fn constants_among(&mut self, inst: &Inst, elems: &mut [VectorElem], span: Span) {
        if !self.reading || self.func.is_none() {
            return;
        }
        let body = &self.state().body;
        let types: Vec<Type> = elems
            .iter()
            .filter_map(|e| if let VectorElem::Reg(r) = e { Some(body.regs[*r].ty) } else { None })
            .collect();
        // Of `wmma`, most of whose factors ptxas takes apart, only what is added, and `.f64`.
        let added = if inst.has(Mod::store) { 1 } else { 3 } == inst.operands.len();
        let whole = added || inst.types().last() == Some(Type::f64);
        let everywhere = CONSTANTS_AMONG_REGISTERS.contains(&inst.op) || inst.op == Op::wmma && whole;
        let (bytes, untyped, alone) = match types.first() {
            Some(first) => (first.bytes(), types.iter().any(|t| t.class() == TypeClass::Bits), *first),
            None => {
                let Some(ty) = numbers_alone(inst, elems, added) else { return };
                (ty.bytes(), false, ty)
            }
        };
        let kinds = || types.iter().chain(types.is_empty().then_some(&alone));
        let floats = kinds().all(|t| t.class() == TypeClass::Float);
        let integers = kinds().all(|t| matches!(t.class(), TypeClass::Unsigned | TypeClass::Signed));
        let Some((word, plain)) = bits(bytes) else { return };
        for e in elems {
            let (n, fits, float) = match *e {
                VectorElem::Int(n) => (n, everywhere && (untyped || integers), false),
                VectorElem::F32(n) => (n.into(), bytes == 4 && (untyped || floats), true),
                VectorElem::F64(n) => (n, bytes == 8 && (untyped || floats), true),
                _ => continue,
            };
            if !fits || float && !everywhere && !untyped {
                continue;
            }
            // Among registers of one type a constant has it, too.
            let ty = if untyped { plain } else { alone };
            *e = VectorElem::Reg(self.value_of("%constant", ty, word, Operand::Int(n), span));
        }
    }

    /// An address that a special register is the base of, or another.
    pub(super) fn address_of(&mut self, inst: &Inst) -> Parsed<Addr> {
        if self.is_symbol(0)
            && self.local(self.text()).is_none()
            && let Some(base) = self.special_address(inst)?
        {
            return Ok(Addr { base, offset: self.offset()? });
        }
        self.address()
    }
}

/// The type that numbers have which stand alone in the braces of a product of matrices: what they are written with, if the product has
/// such elements. ptxas 13.0.88 also takes integers and `0f…` for `.f64`, the first as bits, the second with bytes of something else, and
/// cuts `0d…` to 32 bits for what products of `.e4m3` are added to.
fn numbers_alone(inst: &Inst, elems: &[VectorElem], added: bool) -> Option<Type> {
    let product = matches!(inst.op, Op::mma | Op::wmma);
    let sums = inst.types().last().filter(|_| product);
    let all = |is: fn(&VectorElem) -> bool| elems.iter().all(is);
    if all(|e| matches!(e, VectorElem::F32(_))) && (added || CONSTANTS_AMONG_REGISTERS.contains(&inst.op)) {
        return Some(Type::f32);
    }
    match sums? {
        Type::s32 if added && all(|e| matches!(e, VectorElem::Int(_))) => Some(Type::s32),
        // Both factors have the type of the sums.
        Type::f64 if all(|e| matches!(e, VectorElem::F64(_))) => Some(Type::f64),
        _ => None,
    }
}

/// Of how many bytes the integer is that an instruction reads as its next operand; nothing if it may be something else.
fn number_size(inst: &Inst) -> Option<u32> {
    let at = inst.operands.len();
    let size = |o: &OperandSpec| {
        let ty = match o.ty {
            TypeRef::Fixed(t) => t,
            TypeRef::Mod(n) => inst.ty(n.into())?,
        };
        let number = matches!(o.kind, OperandKind::Src | OperandKind::Part)
            && !matches!(ty.class(), TypeClass::Float | TypeClass::Predicate)
            && o.count.is_none()
            && !o.exact
            && !(o.vector && inst.one_of(&[Mod::v2, Mod::v4, Mod::v8]).is_some());
        let double = inst.has(Mod::wide) && o.wider;
        // Where wider registers fit, no shorter ones than those of 32 bits are needed.
        let shortest = if o.wider { 4 } else { 1 };
        number.then_some((ty.bytes() * if double { 2 } else { 1 }).max(shortest))
    };
    let mut sizes = inst
        .op
        .forms()
        .iter()
        .filter(|f| f.matches_unordered(&inst.mods))
        .filter_map(|f| f.operands_with(&inst.mods).nth(at))
        .map(size);
    let first = sizes.next()??;
    sizes.all(|s| s == Some(first)).then_some(first)
}
