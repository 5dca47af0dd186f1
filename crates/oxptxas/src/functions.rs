//! Which device functions each kernel needs, and what the driver or linker brings.

use crate::driver;
use ptx::{Diagnostic, FuncId, Inst, Item, Linkage, Module, Op, Operand, Stmt, Symbol};
use rustc_hash::FxHashSet;
use sass::target::LEAST_LIMIT;

/// The functions that the driver resolves in an executable (ptxas 13.0.88 calls any other undefined one
/// "unresolved"), those of graphs that the device launches and changes among them.
const SYSTEM_CALLS: &[&str] = &[
    "__assertfail",
    "cudaGraphKernelNodeSetEnabled",
    "cudaGraphKernelNodeSetGridDim",
    "cudaGraphKernelNodeSetParam",
    "cudaGraphKernelNodeUpdatesApply",
    "cudaGraphLaunch",
    "cudaGraphSetConditional",
    "free",
    "malloc",
    "vfprintf",
    "vprintf",
];

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

/// The names of the kernels whose address the code of these functions takes, each once.
pub(crate) fn kernels_taken(module: &Module, funcs: impl IntoIterator<Item = FuncId>) -> Vec<String> {
    let taken = funcs.into_iter().flat_map(|f| address_taken(module, f));
    let mut seen = FxHashSet::default();
    let kernels = taken.filter(|f| module.funcs[*f].entry && seen.insert(*f));
    kernels.map(|f| module.funcs[f].name.clone()).collect()
}

/// Functions whose address some code takes, or some variable holds, in the order of the text.
pub(crate) fn taken(module: &Module) -> Vec<FuncId> {
    let in_data = module.vars.values().flat_map(|v| &v.init).flat_map(|i| &i.relocs);
    let held = in_data.filter_map(|r| if let Symbol::Func(f) = r.symbol { Some(f) } else { None });
    let all: FxHashSet<FuncId> =
        module.funcs.keys().flat_map(|f| address_taken(module, f)).chain(held).collect();
    module.funcs.keys().filter(|f| all.contains(f) && !module.funcs[*f].entry).collect()
}

/// Where a call through a pointer may go.
pub(crate) enum Through<'m> {
    /// To one of these (`.calltargets`).
    List(&'m [FuncId]),
    /// To what takes and gives the same as this header says (`.callprototype`).
    Prototype(FuncId),
}

/// The calls of a function through pointers.
pub(crate) fn through_pointers(module: &Module, id: FuncId) -> Vec<Through<'_>> {
    let Some(body) = &module.funcs[id].body else { return Vec::new() };
    let mut found = Vec::new();
    for call in calls(module, id) {
        let mut labels =
            call.operands.iter().filter_map(|o| if let Operand::Label(l) = o { Some(*l) } else { None });
        let Some(label) = labels.next() else { continue };
        found.extend(body.stmts.iter().find_map(|s| match s {
            Stmt::CallTargets(l, funcs) if *l == label => Some(Through::List(funcs)),
            Stmt::CallPrototype(l, f) if *l == label => Some(Through::Prototype(*f)),
            _ => None,
        }));
    }
    found
}

/// The headers that say what a function passes to calls through pointers.
pub(crate) fn prototypes_called(module: &Module, id: FuncId) -> Vec<FuncId> {
    let header = |t: Through<'_>| match t {
        Through::List(funcs) => funcs.first().copied(),
        Through::Prototype(f) => Some(f),
    };
    through_pointers(module, id).into_iter().filter_map(header).collect()
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

/// Functions in the order in which ptxas 13.0.88 speaks of those that stand once in a file (and puts them there): where code is debugged that of
/// their declarations, those that only this file sees behind; else that from its end, each behind those that it calls, the last of them first,
/// and behind those whose address it takes. (With addresses ptxas has an order of its own: in a sixth of random modules another, in debugged
/// ones always.)
pub(crate) fn as_said(module: &Module, debugged: bool) -> Vec<FuncId> {
    let declared = || module.items.iter().filter_map(|i| if let Item::Func(f) = i { Some(*f) } else { None });
    let (mut order, internal): (Vec<FuncId>, Vec<FuncId>) =
        declared().partition(|f| module.funcs[*f].linkage != Linkage::Internal);
    order.extend(internal);
    if debugged {
        return order;
    }
    let needs = |f: FuncId| {
        let named = calls(module, f).filter_map(callee).chain(address_taken(module, f));
        let mut first: Vec<FuncId> = Vec::new();
        let mut seen = FxHashSet::default();
        first.extend(named.filter(|f| seen.insert(*f)));
        first
    };
    let (mut out, mut seen) = (Vec::new(), FxHashSet::default());
    // What is under way, with what it still waits for, the last of which comes first.
    let mut open: Vec<(FuncId, Vec<FuncId>)> = Vec::new();
    for root in order.into_iter().rev() {
        if seen.insert(root) {
            open.push((root, needs(root)));
        }
        while let Some((f, waits)) = open.last_mut() {
            match waits.pop() {
                Some(next) if seen.insert(next) => open.push((next, needs(next))),
                Some(_) => {}
                None => {
                    out.push(*f);
                    open.pop();
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::as_said;

    /// As ptxas 13.0.88 lists them (sm_80, -v with -c and with -g).
    #[test]
    fn functions_are_listed_as_by_ptxas() {
        for (text, object, debugged) in [
            (
                ".visible .func f0();\n.func f1();\n.visible .entry k0() { call f0; ret; }\n\
                 .visible .func f2() { ret; }\n.func f1() { ret; }\n.visible .entry k1() { call f2; ret; }\n\
                 .visible .func f0() { call f1; ret; }",
                "f1 f2 k1 f0 k0",
                "f0 k0 f2 k1 f1",
            ),
            (
                ".visible .func f0();\n.visible .func f1();\n.visible .entry k0() { call f0; call f1; ret; }\n\
                 .visible .entry k2() { call f0; ret; }\n.visible .entry k1() { call f0; call f1; ret; }\n\
                 .visible .func f0() { ret; }\n.visible .func f1() { ret; }",
                "f1 f0 k1 k2 k0",
                "f0 f1 k0 k2 k1",
            ),
            (
                ".func a();\n.weak .func b() { call a; call b; ret; }\n.func a() { call b; ret; }\n.entry k() { ret; }",
                "k b a",
                "b a k",
            ),
        ] {
            let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
            let module = ptx::parse(&format!("{head}{text}\n")).unwrap();
            let listed = |debugged| {
                let names = as_said(&module, debugged).into_iter().map(|f| module.funcs[f].name.as_str());
                names.collect::<Vec<_>>().join(" ")
            };
            assert_eq!((listed(false).as_str(), listed(true).as_str()), (object, debugged));
        }
    }
}
