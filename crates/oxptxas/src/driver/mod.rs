//! What PTX says in one statement and the driver does in a function: ptxas calls those as any other, by a symbol that the file
//! leaves undefined (ptxas 13.0.88; `cuobjdump -elf` shows their names). Here they become calls in the PTX itself.

mod copies;
mod gradients;

use ptx::ast::{Func, FuncAttrs, Inst, Linkage, Operand, Space, Stmt, Var};
use ptx::isa::{Mod, Op, Type};
use ptx::{FuncId, Module, VarId};
use sass::target::LEAST_LIMIT;

/// Puts calls in place of what the target has no instruction for.
pub(crate) fn call_driver(module: &mut Module, target: sass::Target) {
    if target.sm >= 90 {
        gradients::call_driver(module);
    }
    if target.info().own_copies {
        copies::call_driver(module);
    }
}

/// Whether the driver brings a function of this name, and how many registers its callers state at least: it may use as many.
pub(crate) fn registers_of(function: &str) -> Option<u8> {
    if gradients::is_of_the_driver(function) {
        Some(gradients::REGISTERS)
    } else {
        copies::is_of_the_driver(function).then_some(LEAST_LIMIT)
    }
}

/// A parameter, or what is passed for one.
fn variable(module: &mut Module, name: &str, bytes: u64, align: u32) -> VarId {
    module.vars.push(Var {
        name: name.into(),
        space: Space::Param,
        ty: Type::b8,
        opaque: None,
        vector: 1,
        managed: false,
        unified: None,
        dims: [bytes].into_iter().collect(),
        align,
        linkage: Linkage::Internal,
        init: None,
        ptr: None,
        span: ptx::Span::default(),
    })
}

/// The driver's function of a name, declared if it isn't.
fn declaration(
    module: &mut Module,
    name: &str,
    signature: impl FnOnce(&mut Module) -> (Vec<VarId>, Vec<VarId>),
) -> FuncId {
    if let Some((f, _)) = module.funcs.iter().find(|(_, f)| f.name == name) {
        return f;
    }
    let (params, returns) = signature(module);
    module.funcs.push(Func {
        name: name.into(),
        entry: false,
        linkage: Linkage::Extern,
        params,
        returns,
        attrs: FuncAttrs::default(),
        body: None,
        span: ptx::Span::default(),
    })
}

/// A statement that stands for a part of `of`.
fn statement(of: &Inst, op: Op, mods: &[Mod], operands: Vec<Operand>) -> Stmt {
    Stmt::Inst(Inst {
        guard: of.guard,
        op,
        mods: mods.iter().copied().collect(),
        operands: operands.into(),
        braced: 0,
        zeros: 0,
        span: of.span,
    })
}
