//! Operands that are untyped bits, where the instruction does not take numbers of that size as well. What ptxas 13.0.88 says was asked of
//! every instruction with registers of every type.

use super::Checker;
use super::inst::full_name;
use crate::ast::{Body, Inst, Operand, VectorElem};
use crate::isa::{Mod, Op, Type, TypeClass};
use smallvec::SmallVec;

impl Checker<'_> {
    /// Fragments of `wmma` and `wgmma`, what `multimem` stores, handles of textures.
    pub(super) fn untyped(&mut self, body: &Body, inst: &Inst) {
        let read = match inst.op {
            Op::wgmma if inst.has(Mod::mma_async) => 1..2,
            Op::wmma if inst.has(Mod::mma) => 1..3,
            Op::multimem | Op::istypep => 1..2,
            _ => return,
        };
        for operand in inst.operands.get(read).unwrap_or(&[]) {
            let types: SmallVec<[Type; 8]> = match operand {
                Operand::Reg(r) => [body.regs[*r].ty].into_iter().collect(),
                Operand::F64(_) => [Type::f64].into_iter().collect(),
                Operand::Vector(elems) => elems.iter().filter_map(|e| element_type(body, *e)).collect(),
                _ => continue,
            };
            let Some(first) = types.first() else { continue };
            let mixed = types.iter().any(|t| t != first);
            let bits = first.class() == TypeClass::Bits;
            let fits = match inst.op {
                // A descriptor of the matrix in memory has 64 bits.
                Op::wgmma if first.bytes() == 8 || inst.ty(0) == Some(Type::s32) => true,
                Op::wgmma => mixed || bits || *first == Type::f16x2,
                Op::wmma if inst.has(Mod::tf32) => !mixed && bits,
                Op::wmma if inst.has(Mod::bf16) => mixed || bits,
                Op::wmma if inst.types().all(|t| t.class() != TypeClass::Float) => {
                    mixed || first.class() != TypeClass::Float
                }
                // A handle.
                Op::istypep => first.class() != TypeClass::Float,
                Op::multimem if inst.has(Mod::bf16x2) && inst.has(Mod::red) => mixed || bits,
                Op::multimem if inst.has(Mod::f16x2) && !inst.has(Mod::ld_reduce) => {
                    mixed || bits || *first == Type::f16x2
                }
                _ => true,
            };
            if !fits {
                return self
                    .error(inst.span, format!("Arguments mismatch for instruction '{}'", full_name(inst)));
            }
        }
    }
}

fn element_type(body: &Body, e: VectorElem) -> Option<Type> {
    match e {
        VectorElem::Reg(r) => Some(body.regs[r].ty),
        _ => None,
    }
}
