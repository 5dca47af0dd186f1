//! Which device functions each kernel needs, and what the driver or linker brings.

use crate::driver;
use ptx::{Diagnostic, Inst};
use ptx::{FuncId, Module, Op, Operand, Stmt};
use rustc_hash::FxHashSet;
use sass::target::LEAST_LIMIT;

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
pub(crate) fn callee(call: &Inst) -> Option<FuncId> {
    let named = call.operands.iter().find(|o| !matches!(o, Operand::List(_)));
    match named {
        Some(Operand::Func(f)) => Some(*f),
        _ => None,
    }
}

/// The functions whose address the code of this one takes.
pub(crate) fn address_taken(module: &Module, f: FuncId) -> Vec<FuncId> {
    fn of(o: &Operand, add: &mut impl FnMut(FuncId)) {
        match o {
            Operand::Func(f) => add(*f),
            Operand::List(l) => l.iter().for_each(|o| of(o, add)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    let mut seen = FxHashSet::default();
    let mut add = |f: FuncId| {
        if seen.insert(f) {
            found.push(f);
        }
    };
    for stmt in module.funcs[f].body.iter().flat_map(|b| &b.stmts) {
        let Stmt::Inst(inst) = stmt else { continue };
        if inst.op != Op::call {
            inst.operands.iter().for_each(|o| of(o, &mut add));
        }
    }
    found
}

/// The headers that say what a function passes to calls through pointers.
pub(crate) fn prototypes_called(module: &Module, id: FuncId) -> Vec<FuncId> {
    let Some(body) = &module.funcs[id].body else { return Vec::new() };
    let mut found = Vec::new();
    for call in calls(module, id) {
        let mut labels =
            call.operands.iter().filter_map(|o| if let Operand::Label(l) = o { Some(*l) } else { None });
        let Some(label) = labels.next() else { continue };
        found.extend(body.stmts.iter().find_map(|s| match s {
            Stmt::CallTargets(l, funcs) if *l == label => funcs.first().copied(),
            Stmt::CallPrototype(l, f) if *l == label => Some(*f),
            _ => None,
        }));
    }
    found
}

/// Whether the driver brings a function of this name.
fn is_of_driver(name: &str) -> bool {
    SYSTEM_CALLS.contains(&name) || driver::registers_of(name).is_some()
}

/// Functions of this module, by their headers, that have no code. Those of the driver are elsewhere, whatever the header says.
pub(crate) fn without_code(module: &Module) -> Option<&ptx::Func> {
    let prototypes = prototypes(module);
    let missing = module.funcs.iter().find(|(id, f)| {
        let own = f.linkage != ptx::Linkage::Extern
            && !f.entry
            && !prototypes.contains(id)
            && !is_of_driver(&f.name);
        own && f.body.is_none() && !module.aliases.iter().any(|a| a.0 == *id)
    });
    missing.map(|m| m.1)
}

/// The headers of `.callprototype`, which are no functions.
pub(crate) fn prototypes(module: &Module) -> Vec<FuncId> {
    let stmts = module.funcs.values().flat_map(|f| &f.body).flat_map(|b| &b.stmts);
    stmts.filter_map(|s| if let Stmt::CallPrototype(_, f) = s { Some(*f) } else { None }).collect()
}

/// The external functions that these functions call.
pub fn externs(module: &Module, funcs: impl IntoIterator<Item = FuncId>) -> Vec<FuncId> {
    let mut found: Vec<FuncId> = Vec::new();
    let mut seen = FxHashSet::default();
    for f in funcs {
        for t in calls(module, f).filter_map(callee) {
            if module.funcs[t].body.is_none() && seen.insert(t) {
                found.push(t);
            }
        }
    }
    found
}

/// Registers that code is to state at least which calls these functions from elsewhere: what the driver brings may use as many
/// (ptxas 13.0.88, sm_75 … sm_121).
pub fn least_registers(module: &Module, externs: &[FuncId]) -> u8 {
    let least = |f: &FuncId| driver::registers_of(&module.funcs[*f].name).unwrap_or(LEAST_LIMIT);
    externs.iter().map(least).max().unwrap_or(0)
}

/// Calls of functions that are nowhere.
pub fn unresolved(module: &Module) -> Vec<Diagnostic> {
    externs(module, module.funcs.keys())
        .into_iter()
        .filter(|f| !is_of_driver(&module.funcs[*f].name))
        .map(|f| Diagnostic::whole(format!("Unresolved extern function '{}'", module.funcs[f].name)))
        .collect()
}
