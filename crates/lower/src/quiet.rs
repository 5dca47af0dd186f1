//! Device functions in which no lane waits for another one of its warp: only around calls of these may lanes that
//! call and lanes that do not be made to meet again.

use crate::call_graph::CallGraph;
use cranelift_entity::SecondaryMap;
use ptx::{FuncId, Inst, Mod as M, Module, Op as O, Operand, Stmt};
use rustc_hash::FxHashSet;

/// Functions that the driver brings, which it does not let wait.
const DRIVER: &[&str] = &["__assertfail", "free", "malloc", "vfprintf", "vprintf"];

/// Of every function of a module, whether it is one of those.
pub(crate) fn quiet(module: &Module) -> SecondaryMap<FuncId, bool> {
    let mut quiet = SecondaryMap::new();
    for (f, func) in module.funcs.iter() {
        quiet[f] = match &func.body {
            Some(body) => !func.entry && !may_wait(&body.stmts),
            None => DRIVER.contains(&func.name.as_str()),
        };
    }
    // Recursion is a loop, too: of functions that call each other none is, if one reads what others may be about to write.
    let cycle = CallGraph::new(module).cycles(module);
    let reads = |f: FuncId| {
        let stmts = module.funcs[f].body.iter().flat_map(|b| &b.stmts);
        stmts.filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None }).any(reads_from_others)
    };
    let waiting: FxHashSet<u32> = module.funcs.keys().filter_map(|f| cycle[f].filter(|_| reads(f))).collect();
    for f in module.funcs.keys() {
        quiet[f] &= cycle[f].is_none_or(|c| !waiting.contains(&c));
    }
    // Those that call others which may wait are none.
    loop {
        let calls_others = |f: FuncId| {
            let stmts = module.funcs[f].body.iter().flat_map(|b| &b.stmts);
            stmts.filter_map(call).any(|callee| callee.is_none_or(|t| !quiet[t]))
        };
        let wrong: Vec<FuncId> = module.funcs.keys().filter(|f| quiet[*f] && calls_others(*f)).collect();
        if wrong.is_empty() {
            return quiet;
        }
        wrong.into_iter().for_each(|f| quiet[f] = false);
    }
}

/// Whom a statement calls, if it is a call: `Some(None)` for one through a pointer.
fn call(s: &Stmt) -> Option<Option<FuncId>> {
    let Stmt::Inst(inst) = s else { return None };
    (inst.op == O::call).then(|| match crate::call::parts(inst)?.callee {
        Operand::Func(f) => Some(*f),
        _ => None,
    })
}

/// Whether code gathers lanes, or may loop until another thread has written something.
fn may_wait(stmts: &[Stmt]) -> bool {
    let insts = || stmts.iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None });
    insts().any(gathers) || has_loop(stmts) && insts().any(reads_from_others)
}

fn gathers(inst: &Inst) -> bool {
    let barrier = matches!(inst.op, O::bar | O::barrier);
    barrier || inst.has(M::sync) || inst.has(M::aligned)
}

/// Whether a branch may go back.
fn has_loop(stmts: &[Stmt]) -> bool {
    let place = |l| stmts.iter().position(|s| matches!(s, Stmt::Label(x) if *x == l));
    stmts.iter().enumerate().any(|(at, s)| match s {
        Stmt::Inst(i) if i.op == O::brx => true,
        Stmt::Inst(i) if i.op == O::bra => i.operands.iter().any(|o| match o {
            Operand::Label(l) => place(*l).is_none_or(|to| to <= at),
            _ => false,
        }),
        _ => false,
    })
}

/// Whether an instruction reads what other threads may be about to write, as far as a program without races can.
fn reads_from_others(inst: &Inst) -> bool {
    let memory = inst.operands.iter().any(|o| matches!(o, Operand::Addr(_) | Operand::Bracket(_)));
    match inst.op {
        O::ld | O::ldu => {
            let ordered = [M::volatile, M::relaxed, M::acquire, M::mmio].iter().any(|m| inst.has(*m));
            let own = [M::local, M::param, M::_const, M::global].iter().any(|m| inst.has(*m));
            ordered || !own
        }
        O::st | O::red | O::prefetch | O::prefetchu | O::tex | O::tld4 => false,
        _ => memory,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn tells_functions_that_wait() {
        let source = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.func plain (.reg .b64 %a) { .reg .b32 %x; ld.global.u32 %x, [%a]; st.global.u32 [%a], %x; ret; }
.func counts (.reg .b64 %a) { .reg .b32 %x; .reg .pred %p; mov.u32 %x, 3;
L: atom.global.add.u32 %x, [%a], %x; setp.ne.u32 %p, %x, 0; @%p bra L; ret; }
.func once (.reg .b64 %a) { .reg .b32 %x; atom.global.add.u32 %x, [%a], %x; ret; }
.func votes (.reg .b64 %a) { bar.warp.sync -1; ret; }
.func calls_votes (.reg .b64 %a) { call votes, (%a); ret; }
.func calls_plain (.reg .b64 %a) { call plain, (%a); call calls_plain, (%a); ret; }
.func locks (.reg .b64 %a) { .reg .b32 %x; .reg .pred %p; atom.shared.cas.b32 %x, [%a], 0, 1; setp.eq.u32 %p, %x, 0; @%p bra D; call locks, (%a); D: ret; }
.func odd (.reg .b64 %a);
.func even (.reg .b64 %a) { .reg .b32 %x; .reg .pred %p; ld.volatile.shared.u32 %x, [%a]; setp.ne.u32 %p, %x, 0; @%p bra D; call odd, (%a); D: ret; }
.func odd (.reg .b64 %a) { call even, (%a); ret; }
";
        let module = ptx::parse(source).expect("PTX");
        let quiet = super::quiet(&module);
        let names: Vec<&str> =
            module.funcs.iter().filter(|(f, _)| quiet[*f]).map(|(_, f)| f.name.as_str()).collect();
        assert_eq!(names, ["vprintf", "plain", "once", "calls_plain"]);
    }
}
