//! Which device functions each kernel needs, and what the driver or linker brings.

use ptx::{Diagnostic, Inst};
use ptx::{FuncId, Module, Op, Operand, Stmt};

/// The functions that the driver resolves in an executable (ptxas 13.0.88 calls any other undefined one
/// "unresolved").
const SYSTEM_CALLS: &[&str] = &["__assertfail", "free", "malloc", "vfprintf", "vprintf"];

pub(crate) fn calls(module: &Module, f: FuncId) -> impl Iterator<Item = &Inst> {
    module.funcs[f].body.iter().flat_map(|b| &b.stmts).filter_map(|s| match s {
        Stmt::Inst(i) if i.op == Op::call => Some(i),
        _ => None,
    })
}

/// What a call names, or `None` for one through a pointer.
fn callee(call: &Inst) -> Option<FuncId> {
    let named = call.operands.iter().find(|o| !matches!(o, Operand::List(_)));
    match named {
        Some(Operand::Func(f)) => Some(*f),
        _ => None,
    }
}

/// The external functions that these functions call.
pub fn externs(module: &Module, funcs: impl IntoIterator<Item = FuncId>) -> Vec<FuncId> {
    let mut found: Vec<FuncId> = Vec::new();
    for f in funcs {
        for t in calls(module, f).filter_map(callee) {
            if module.funcs[t].body.is_none() && !found.contains(&t) {
                found.push(t);
            }
        }
    }
    found
}

/// Calls of functions that are nowhere.
pub fn unresolved(module: &Module) -> Vec<Diagnostic> {
    externs(module, module.funcs.keys())
        .into_iter()
        .filter(|f| {
            let name = module.funcs[*f].name.as_str();
            !SYSTEM_CALLS.contains(&name) && !crate::gradients::is_of_the_driver(name)
        })
        .map(|f| Diagnostic::whole(format!("Unresolved extern function '{}'", module.funcs[f].name)))
        .collect()
}
