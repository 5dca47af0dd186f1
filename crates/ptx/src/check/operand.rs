//! Operands: kinds, types and widths, addresses and state spaces, calls.

use super::inst::full_name;
use super::shape::{Plan, Slot, vector_len};
use super::{Checker, LabelKind};
use crate::ast::{AddrBase, Body, Func, Inst, Operand, RegId, Space, VarId, VectorElem};
use crate::isa::{Form, Mod, Op, OperandKind, Type, TypeClass};

impl Checker<'_> {
    pub(super) fn operands_fit(&self, body: &Body, inst: &Inst, plan: &Plan) -> bool {
        if !plan.takes(inst.operands.len()) {
            return false;
        }
        if inst.op == Op::mov {
            return move_fits(self, body, inst);
        }
        inst.operands.iter().zip(&plan.slots).enumerate().all(|(at, (o, slot))| {
            // Nearly all are registers.
            if let Operand::Reg(r) = o
                && slot.plain
            {
                let reg = &body.regs[*r];
                let fits = slot.ty.is_none_or(|t| register_fits(reg.ty, t, slot.spec.wider));
                return fits && !inst.is_braced(at);
            }
            self.operand_fits(body, inst, at, o, slot)
        })
    }

    pub(super) fn operand_fits(&self, body: &Body, inst: &Inst, at: usize, o: &Operand, slot: &Slot) -> bool {
        let Slot { spec, ty, length, double, .. } = *slot;
        let reg = |r: RegId| {
            let have = body.regs[r].ty;
            ty.is_none_or(|t| match double {
                true => twice(have, t),
                false if spec.exact => have == t,
                false => register_fits(have, t, spec.wider),
            })
        };
        let pred = |r: &RegId| body.regs[*r].ty == Type::pred;
        let untyped = matches!(o, Operand::Vector(e) | Operand::Resident(e, _) if of_several_types(body, e));
        let reg = |r: RegId| reg(r) || untyped && ty.is_some_and(|t| body.regs[r].ty.bytes() == t.bytes());
        // A list of one register is a vector, too.
        // Metadata and scales of products: CUTLASS writes `{%r7}`.
        let of_product = spec.kind == OperandKind::Reg && matches!(inst.op, Op::mma | Op::wgmma);
        if inst.is_braced(at)
            && spec.count.is_none()
            && !spec.vector
            && spec.kind != OperandKind::Any
            && !of_product
        {
            return false;
        }
        match (spec.kind, o) {
            (OperandKind::Any, _) | (OperandKind::Sink, Operand::Sink) => true,
            (OperandKind::Dst | OperandKind::Src, Operand::Vector(elems)) if spec.count.is_some() => {
                length == Some(elems.len())
                    && !only_numbers(inst, elems)
                    && elems.iter().all(|e| match e {
                        VectorElem::Reg(r) => reg(*r),
                        // Loads of tensor memory write all of their registers.
                        VectorElem::Sink => spec.kind == OperandKind::Dst && inst.op != Op::tcgen05,
                        VectorElem::Int(_) => spec.kind == OperandKind::Src && ty.is_none_or(int_fits),
                        VectorElem::F32(_) => ty.is_none_or(|t| float_fits(t, 4)),
                        VectorElem::F64(_) => ty.is_none_or(|t| float_fits(t, 8)),
                    })
            }
            (OperandKind::Dst | OperandKind::Src, Operand::Reg(r)) if spec.count.is_some() => {
                length == Some(1) && inst.is_braced(at) && reg(*r)
            }
            (OperandKind::Bracket, Operand::Bracket(_)) => true,
            (OperandKind::Dst, Operand::Resident(elems, _)) => {
                matches!(inst.op, Op::tex | Op::tld4)
                    && length == Some(elems.len())
                    && elems.iter().all(|e| match e {
                        VectorElem::Reg(r) => reg(*r),
                        e => *e == VectorElem::Sink,
                    })
            }
            // Only these can do without their result.
            (OperandKind::Dst, Operand::Sink) => {
                inst.op == Op::atom || inst.one_of(&[Mod::arrive, Mod::arrive_drop]).is_some()
            }
            (OperandKind::PredDst | OperandKind::PredPair, Operand::Sink) => inst.op == Op::setp,
            (OperandKind::Dst | OperandKind::DstPred, Operand::Reg(r)) => {
                // Without braces a vector needs a vector register.
                reg(*r) && slot.vector.is_none()
            }
            (OperandKind::DstAndPred, Operand::Pair(d, p)) => {
                d.is_none_or(&reg) && p.as_ref().is_some_and(pred)
            }
            (OperandKind::DstPred, Operand::Pair(d, p)) => {
                d.map_or(inst.op != Op::shfl, &reg) && p.as_ref().is_none_or(pred)
            }
            (OperandKind::Reg, Operand::Reg(r)) => {
                (spec.count.is_none() || length == Some(1) && inst.is_braced(at)) && reg(*r)
            }
            (OperandKind::Reg, Operand::Vector(elems)) => {
                length == Some(elems.len())
                    && elems.iter().all(|e| matches!(e, VectorElem::Reg(r) if reg(*r)))
            }
            (OperandKind::TensorAddr, Operand::Addr(a)) => match a.base {
                AddrBase::Reg(r) => register_fits(body.regs[r].ty, Type::u32, false),
                AddrBase::Var(_) => false,
                AddrBase::Absolute => true,
            },

            (OperandKind::Dst | OperandKind::Src, Operand::Vector(elems)) => {
                slot.vector == Some(elems.len())
                    && elems.iter().any(|e| *e != VectorElem::Sink)
                    && elems.iter().all(|e| match e {
                        VectorElem::Reg(r) => reg(*r),
                        VectorElem::Sink => spec.kind == OperandKind::Dst,
                        VectorElem::Int(_) => ty.is_none_or(int_fits),
                        VectorElem::F32(_) => ty.is_none_or(|t| float_fits(t, 4)),
                        VectorElem::F64(_) => ty.is_none_or(|t| float_fits(t, 8)),
                    })
            }
            (OperandKind::Src, Operand::Reg(r)) => reg(*r) && slot.vector.is_none(),
            (OperandKind::PartDst, Operand::Reg(r) | Operand::Part { reg: r, .. }) => reg(*r),
            (OperandKind::Part, Operand::Reg(r) | Operand::Part { reg: r, .. }) => reg(*r),
            (OperandKind::Part, Operand::NegReg(r)) => inst.op == Op::vmad && reg(*r),
            (OperandKind::Part, Operand::Int(_)) => true,
            (OperandKind::Src, Operand::Int(_) | Operand::F32(_) | Operand::F64(_))
                if spec.count.is_some() || slot.vector.is_some() =>
            {
                false
            }
            (OperandKind::Src, Operand::Int(_)) => ty.is_none_or(int_fits),
            (OperandKind::Src, Operand::F32(_)) => ty.is_none_or(|t| float_fits(t, 4)),
            (OperandKind::Src, Operand::F64(_)) => ty.is_none_or(|t| float_fits(t, 8)),
            (OperandKind::Src, Operand::Special(s, component)) => {
                let scalar = !s.is_vector() || component.is_some();
                scalar && inst.op == Op::cvt && ty.is_none_or(|t| register_fits(s.ty(), t, true))
            }
            (OperandKind::Src, Operand::Var(..)) => match inst.op {
                Op::cvta => !inst.has(Mod::to),
                // The address, not the number of the block.
                Op::mapa => at == 1,
                Op::getctarank => true,
                _ => false,
            },
            (OperandKind::Src, Operand::NotPred(r)) => ty == Some(Type::pred) && pred(r),
            (OperandKind::PredSrc, Operand::Reg(r) | Operand::NotPred(r)) => pred(r),
            (OperandKind::PredSrc, Operand::Int(_)) => true,
            (OperandKind::PredDst | OperandKind::PredPair, Operand::Reg(r)) => pred(r),
            (OperandKind::PredPair, Operand::Pair(p, q)) => {
                p.as_ref().is_none_or(pred) && q.as_ref().is_none_or(pred)
            }
            (OperandKind::Addr, Operand::Addr(_)) => true,
            (OperandKind::Label, Operand::Label(l)) => {
                let wanted = if inst.op == Op::brx { LabelKind::Branches } else { LabelKind::Place };
                self.labels[*l] == wanted
            }
            (OperandKind::Func, Operand::Func(_)) => true,
            (OperandKind::Imm, Operand::Int(_)) => true,
            _ => false,
        }
    }

    /// Why the operands fit no form, `form` being the nearest.
    pub(super) fn mismatch(&self, body: &Body, inst: &Inst, form: &'static Form) -> String {
        let name = full_name(inst);
        let plan = Plan::new(inst.op, &inst.mods, form);
        if plan.takes(inst.operands.len()) && inst.op != Op::mov {
            for (n, (o, slot)) in inst.operands.iter().zip(&plan.slots).enumerate() {
                if self.operand_fits(body, inst, n, o, slot) {
                    continue;
                }
                let spec = slot.spec;
                return match (spec.kind, o) {
                    (_, Operand::Resident(..)) if !matches!(inst.op, Op::tex | Op::tld4) => {
                        format!("Predicate output not allowed for instruction '{name}'")
                    }
                    (OperandKind::Src, Operand::Special(s, None)) if s.is_vector() => {
                        format!("Vector operand is not allowed for instruction '{name}'")
                    }
                    (OperandKind::Src, Operand::Special(..)) => {
                        format!("Special register argument not allowed for instruction '{name}'")
                    }
                    (OperandKind::Src, Operand::NegReg(_)) => {
                        format!("Operand negation not allowed for instruction '{name}'")
                    }
                    (OperandKind::Src, Operand::Var(..) | Operand::Addr(_) | Operand::Func(_)) => {
                        format!("Argument {n} of instruction '{name}': must be register")
                    }
                    (OperandKind::Dst, Operand::Int(_) | Operand::F32(_) | Operand::F64(_)) => {
                        format!("Result register required for instruction '{name}'")
                    }
                    (OperandKind::Label, Operand::Label(l))
                        if inst.op == Op::brx && self.labels[*l] == LabelKind::Later =>
                    {
                        format!("Arguments mismatch for instruction '{name}'")
                    }
                    (OperandKind::Label, _) => {
                        format!("Label expected for argument {n} of instruction '{name}'")
                    }
                    (OperandKind::Dst | OperandKind::Src, Operand::Vector(e))
                        if vector_len(&inst.mods) != Some(e.len()) && !only_numbers(inst, e) =>
                    {
                        format!("Argument vector size mismatch for instruction '{name}'")
                    }
                    (OperandKind::Dst | OperandKind::Src, Operand::Reg(_)) if slot.vector.is_some() => {
                        format!("Argument vector size mismatch for instruction '{name}'")
                    }
                    _ => format!("Arguments mismatch for instruction '{name}'"),
                };
            }
        }
        format!("Arguments mismatch for instruction '{name}'")
    }

    /// What stands in braces has one width and is integers or floating-point numbers; untyped bits go with both.
    pub(super) fn vectors(&mut self, body: &Body, inst: &Inst) {
        // The layers of textures have a type of their own.
        let layered = inst.mods.iter().any(|m| matches!(m, Mod::a1d | Mod::a2d | Mod::acube | Mod::a2dms));
        let coordinates = inst.operands.iter().filter_map(|o| match o {
            Operand::Bracket(list) if !layered => list.last(),
            _ => None,
        });
        for o in inst.operands.iter().chain(coordinates) {
            let (Operand::Vector(elems) | Operand::Resident(elems, _)) = o else { continue };
            let classes = elems.iter().filter_map(|e| match e {
                VectorElem::Reg(r) => Some(body.regs[*r].ty.class()),
                VectorElem::Int(_) => Some(TypeClass::Unsigned),
                VectorElem::F32(_) | VectorElem::F64(_) => Some(TypeClass::Float),
                VectorElem::Sink => None,
            });
            let (mut integers, mut floats) = (false, false);
            for c in classes {
                integers |= matches!(c, TypeClass::Unsigned | TypeClass::Signed);
                floats |= c == TypeClass::Float;
            }
            let mut widths = elems.iter().filter_map(|e| match e {
                VectorElem::Reg(r) => Some(body.regs[*r].ty.bytes()),
                _ => None,
            });
            let first = widths.next();
            if widths.any(|w| Some(w) != first) {
                self.error(inst.span, "Incompatible elements of vector expression");
            } else if integers && floats {
                let name = full_name(inst);
                let message =
                    format!("Vector with elements of different types are not allowed in {name} instruction");
                self.error(inst.span, message);
            }
        }
    }

    /// The arguments of a call against the callee's parameters.
    pub(super) fn call(&mut self, body: &Body, inst: &Inst) {
        let mut operands = inst.operands.iter().peekable();
        let empty = Vec::new();
        let returns = match operands.peek() {
            Some(Operand::List(l)) => {
                operands.next();
                l
            }
            _ => &empty,
        };
        let callee = match operands.next() {
            Some(Operand::Func(f)) => Some(&self.module.funcs[*f]),
            Some(Operand::Reg(r))
                if matches!(body.regs[*r].ty.bytes(), 4 | 8) && !body.regs[*r].ty.is_float() =>
            {
                None
            }
            Some(Operand::Reg(_)) => return self.error(inst.span, "Illegal target for instruction 'call'"),
            _ => return self.error(inst.span, "Function or register expected as target of 'call'"),
        };
        let arguments = match operands.peek() {
            Some(Operand::List(l)) => {
                operands.next();
                l
            }
            _ => &empty,
        };
        let last = operands.next();
        let special =
            arguments.iter().find_map(|a| if let Operand::Special(s, _) = a { Some(s) } else { None });
        if let Some(s) = special {
            let message = format!("Call argument '{}' has illegal state space", s.name());
            return self.error(inst.span, message);
        }
        match (last, callee) {
            (Some(Operand::Label(l)), None)
                if matches!(self.labels[*l], LabelKind::Calls | LabelKind::Prototype) =>
            {
                let module = self.module;
                for f in self.callees[*l].clone() {
                    self.arguments(body, inst, &module.funcs[f], returns, arguments);
                }
            }
            (None, Some(callee)) => self.arguments(body, inst, callee, returns, arguments),
            (Some(_), Some(_)) => {
                self.error(inst.span, "Argument 0 of instruction 'call': must be register");
            }
            _ => self.error(inst.span, "Call prototype or list of targets expected for 'call'"),
        }
    }

    /// Whether a call passes vector registers where the function has them, and nothing else there.
    fn vectors_whole(&self, body: &Body, mut formals: &[VarId], actuals: &[Operand]) -> bool {
        let mut at = 0;
        while !formals.is_empty() {
            let wanted = self.module.components(formals);
            let given = match actuals.get(at) {
                Some(Operand::Reg(r)) => {
                    let found = body.vectors.binary_search_by_key(r, |(first, _)| *first);
                    found.map_or(1, |i| usize::from(body.vectors[i].1))
                }
                _ => 1,
            };
            if given != wanted {
                return false;
            }
            at += wanted;
            formals = &formals[wanted..];
        }
        true
    }

    /// What a call passes against the parameters of a function that it may call.
    fn arguments(
        &mut self,
        body: &Body,
        inst: &Inst,
        callee: &Func,
        returns: &[Operand],
        arguments: &[Operand],
    ) {
        // The last one may be left out if it has no size and others are passed.
        let open = callee.params.len() > 1
            && callee.params.last().is_some_and(|p| self.module.vars[*p].is_unsized());
        let counts =
            arguments.len() == callee.params.len() || open && arguments.len() + 1 == callee.params.len();
        let whole = self.vectors_whole(body, &callee.returns, returns)
            && self.vectors_whole(body, &callee.params, arguments);
        if callee.returns.len() != returns.len() || !counts || !whole {
            let note = format!(
                "'{}' takes {} and returns {}; this call gives {} and takes {}",
                callee.name,
                callee.params.len(),
                callee.returns.len(),
                arguments.len(),
                returns.len()
            );
            return self.error_with(inst.span, "Call has wrong number of parameters", vec![note]);
        }
        // What a function is given it can't give on as it is.
        let own = arguments.iter().find_map(|a| match a {
            Operand::Var(v, _) if self.inputs.contains(v) => Some(&self.module.vars[*v].name),
            _ => None,
        });
        if let Some(name) = own {
            let message = format!(
                "Formal parameter '{name}' declared in .param space cannot be used as argument to call"
            );
            return self.error(inst.span, message);
        }
        // Where a function has several results, there is no convention, and predicates are passed as well.
        let module = self.module;
        let several = |f: &Func| f.returns.len() > module.components(&f.returns);
        let predicate = |p: &VarId| module.vars[*p].ty == Type::pred && !module.funcs.values().any(several);
        let abi = "In ABI compilation,";
        if callee.params.iter().any(predicate) {
            let what = "passing predicate, 8-bit and 16-bit parameters to device functions is not supported";
            return self.error(inst.span, format!("{abi} {what}"));
        }
        if callee.returns.iter().any(predicate) {
            let what = "returning predicate, 8-bit and 16-bit values from device functions is not supported";
            return self.error(inst.span, format!("{abi} {what}"));
        }
        let formals = callee.returns.iter().zip(returns).chain(callee.params.iter().zip(arguments));
        for (formal, actual) in formals {
            let aligned = match actual {
                Operand::Var(v, _) => {
                    let (actual, formal) = (&self.module.vars[*v], &self.module.vars[*formal]);
                    actual.space != Space::Param
                        || formal.is_unsized()
                        || actual.passed_align() == formal.passed_align()
                }
                _ => true,
            };
            if self.argument_fits(body, *formal, actual) && !aligned {
                let name = &self.module.vars[*formal].name;
                let message = format!("Alignment of argument does not match formal parameter '{name}'");
                self.errors.push(crate::Diagnostic::error(inst.span, message));
            } else if !self.argument_fits(body, *formal, actual) {
                let name = &self.module.vars[*formal].name;
                let message = format!("Type of argument does not match formal parameter '{name}'");
                self.errors.push(crate::Diagnostic::error(inst.span, message));
            }
        }
    }

    fn argument_fits(&self, body: &Body, formal: VarId, actual: &Operand) -> bool {
        let formal = &self.module.vars[formal];
        let array = !formal.dims.is_empty();
        match actual {
            _ if formal.is_unsized() => true,
            Operand::Var(v, _) => {
                let actual = &self.module.vars[*v];
                let kinds = class_fits(actual.ty, formal.ty) && actual.size() == formal.size();
                // ptxas never takes arrays of pairs.
                let pairs = array && (actual.ty == Type::f16x2 || formal.ty == Type::f16x2);
                actual.space != Space::Param || kinds && actual.dims.is_empty() != array && !pairs
            }
            // Pairs are untyped bits here.
            Operand::Reg(r) => {
                let plain = |t| if t == Type::f16x2 { Type::b32 } else { t };
                !array && register_fits(plain(body.regs[*r].ty), plain(formal.ty), false)
            }
            Operand::Int(_) => !array && int_fits(formal.ty),
            Operand::F32(_) | Operand::F64(_) => !array && !integer(formal.ty),
            _ => true,
        }
    }
}

/// Whether registers of several types stand in braces: ptxas takes those for untyped bits, as long as no integer stands beside a
/// floating-point number.
fn of_several_types(body: &Body, elems: &[VectorElem]) -> bool {
    let types = || {
        elems.iter().filter_map(|e| if let VectorElem::Reg(r) = e { Some(body.regs[*r].ty) } else { None })
    };
    let first = types().next();
    types().any(|t| Some(t) != first) && types().all(|t| t != Type::pred)
}

/// The rules of `mov`, which packs and unpacks vectors and takes addresses.
fn move_fits(checker: &Checker<'_>, body: &Body, inst: &Inst) -> bool {
    let Some(ty) = inst.ty(0) else { return false };
    let len = vector_len(&inst.mods);
    let reg = |r: RegId| register_fits(body.regs[r].ty, ty, false);
    let vector = |elems: &[VectorElem], written: bool| {
        if let Some(len) = len {
            let untyped = of_several_types(body, elems);
            let reg = |r: RegId| reg(r) || untyped && body.regs[r].ty.bytes() == ty.bytes();
            return elems.len() == len
                && elems.iter().all(|e| match e {
                    VectorElem::Reg(r) => reg(*r),
                    VectorElem::Sink => written,
                    _ => !written,
                });
        }
        let size = ty.bytes() / elems.len() as u32;
        let registers = elems.iter().any(|e| matches!(e, VectorElem::Reg(_)));
        if !registers && elems.iter().any(|e| matches!(e, VectorElem::Sink | VectorElem::F64(_))) {
            return false;
        }
        ty.class() == TypeClass::Bits
            && matches!(elems.len(), 2 | 4)
            && elems.iter().all(|e| match e {
                VectorElem::Reg(r) => body.regs[*r].ty.bytes() == size && body.regs[*r].ty != Type::pred,
                VectorElem::Sink => written,
                _ => !written,
            })
    };
    let [dst, src] = &inst.operands[..] else { return false };
    if let (Operand::Vector(_), Operand::Vector(_), None) = (dst, src, len) {
        return false;
    }
    let dst_fits = match dst {
        Operand::Reg(r) => reg(*r) && len.is_none(),
        Operand::Vector(e) => vector(e, true) && e.iter().any(|e| *e != VectorElem::Sink),
        _ => false,
    };
    let src_fits = match src {
        Operand::Reg(r) => reg(*r),
        Operand::NotPred(r) => ty == Type::pred && reg(*r),
        Operand::Vector(e) => vector(e, false),
        Operand::Int(_) => int_fits(ty),
        Operand::F32(_) => float_fits(ty, 4),
        Operand::F64(_) => float_fits(ty, 8),
        Operand::Special(s, component) => {
            use crate::isa::SpecialReg as S;
            // These had other widths once.
            let short = matches!(s, S::tid | S::ntid | S::ctaid | S::nctaid | S::gridid);
            let narrow = s.ty().bytes() == ty.bytes() || short && (2..s.ty().bytes()).contains(&ty.bytes());
            !ty.is_float() && narrow && (!s.is_vector() || component.is_some() || len.is_some())
        }
        Operand::Var(v, _) => {
            let space = checker.module.vars[*v].space;
            let passed = space == Space::Param && body.vars.contains(v);
            int_fits(ty) && ty.bytes() > 1 && ty != Type::pred && space != Space::Reg && !passed
        }
        Operand::Func(_) => int_fits(ty) && ty.bytes() == 8,
        _ => false,
    };
    dst_fits && src_fits
}

/// The space that a word names.
pub(crate) fn space_of(m: Mod) -> Option<Space> {
    Some(match m {
        Mod::global => Space::Global,
        Mod::shared | Mod::shared_cta | Mod::shared_cluster => Space::Shared,
        Mod::local => Space::Local,
        Mod::_const => Space::Const,
        Mod::param | Mod::param_entry | Mod::param_func => Space::Param,
        _ => return None,
    })
}

/// Whether an integer constant can stand for a value of type `ty`.
fn int_fits(ty: Type) -> bool {
    ty.class() != TypeClass::Float
}

/// Whether a floating-point constant written with `bytes` bytes can: any for `.f32` and `.f64`, its own size
/// for untyped bits.
fn float_fits(ty: Type, bytes: u32) -> bool {
    matches!(ty, Type::f32 | Type::f64) || ty.class() == TypeClass::Bits && ty.bytes() == bytes
}

fn integer(t: Type) -> bool {
    matches!(t.class(), TypeClass::Unsigned | TypeClass::Signed)
}

/// Whether a register of type `reg` holds the double-width result of an instruction of type `ty`.
fn twice(reg: Type, ty: Type) -> bool {
    reg.bytes() == 2 * ty.bytes() && (reg.class() == TypeClass::Bits || integer(reg))
}

/// Whether a register of type `reg` can stand where the instruction has type `ty`: the same size, or, with
/// `wider`, a larger one; and untyped bits on one side or the same kind of number. Numbers of two floating
/// types never fit each other.
pub(super) fn register_fits(reg: Type, ty: Type, wider: bool) -> bool {
    if reg == ty {
        return true;
    }
    if reg == Type::pred || ty == Type::pred {
        return false;
    }
    class_fits(reg, ty) && if wider { reg.bytes() >= ty.bytes() } else { reg.bytes() == ty.bytes() }
}

/// Whether one is untyped bits, or both are the same kind of number.
fn class_fits(a: Type, b: Type) -> bool {
    let bits = a.class() == TypeClass::Bits || b.class() == TypeClass::Bits;
    bits || integer(a) && integer(b) || a == b
}

/// Words of tensor memory and masks of its lanes are never numbers alone (ptxas 13.0.88).
fn only_numbers(inst: &Inst, list: &[VectorElem]) -> bool {
    inst.op == Op::tcgen05 && list.iter().all(|e| matches!(e, VectorElem::Int(_)))
}
