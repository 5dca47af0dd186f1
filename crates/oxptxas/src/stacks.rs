//! Kernels whose stack has no bound, because a function that they come to calls itself (ptxas 13.0.88, sm_75 to 120; a hundred made-up
//! graphs of calls by name, through pointers and through lists of targets).

use crate::convention::prototype;
use crate::functions::{self, Through, address_taken, callee, taken, through_pointers};
use backend::Code;
use backend::machine::Link;
use ori::Callee;
use ptx::{Diagnostic, FuncId, Module, Severity};
use rustc_hash::{FxHashMap, FxHashSet};

/// What each function calls.
type Calls = FxHashMap<FuncId, Vec<FuncId>>;

/// Functions from which calls lead to one that calls itself, directly or through others: what is left when those that call nothing
/// (but what is gone) go, again and again.
fn unbounded(calls: &Calls) -> FxHashSet<FuncId> {
    let mut callers: FxHashMap<FuncId, Vec<FuncId>> = FxHashMap::default();
    let mut waits: FxHashMap<FuncId, usize> = FxHashMap::default();
    let mut ended: Vec<FuncId> = Vec::new();
    for (f, callees) in calls {
        let with_code = callees.iter().filter(|c| calls.contains_key(c));
        with_code.clone().for_each(|c| callers.entry(*c).or_default().push(*f));
        let n = with_code.count();
        waits.insert(*f, n);
        if n == 0 {
            ended.push(*f);
        }
    }
    while let Some(f) = ended.pop() {
        for caller in callers.get(&f).into_iter().flatten() {
            let Some(n) = waits.get_mut(caller) else { continue };
            *n -= 1;
            if *n == 0 {
                ended.push(*caller);
            }
        }
    }
    waits.into_iter().filter(|(_, n)| *n > 0).map(|(f, _)| f).collect()
}

fn warning(module: &Module, kernel: FuncId) -> Diagnostic {
    let name = &module.funcs[kernel].name;
    let message = format!("Stack size for entry function '{name}' cannot be statically determined");
    Diagnostic { severity: Severity::Warning, ..Diagnostic::whole(message) }
}

/// Where code is debugged: said of a kernel once for each function without a bound that it calls by name, and for each that one of its
/// calls through pointers may go to: those of its list, or all that it could be, by what they take and give, whose addresses are known.
pub(crate) fn debugged(module: &Module, kernels: &[FuncId]) -> Vec<Diagnostic> {
    let pointed: Vec<(FuncId, String)> =
        taken(module).into_iter().map(|f| (f, prototype(module, &module.funcs[f]))).collect();
    let called = |f: FuncId| {
        let mut seen = FxHashSet::default();
        let mut all: Vec<FuncId> =
            functions::calls(module, f).filter_map(callee).filter(|c| seen.insert(*c)).collect();
        for through in through_pointers(module, f) {
            match through {
                Through::List(targets) => all.extend(targets),
                Through::Prototype(p) => {
                    let like = prototype(module, &module.funcs[p]);
                    all.extend(pointed.iter().filter(|(_, own)| *own == like).map(|(f, _)| *f));
                }
            }
        }
        all
    };
    let with_code = module.funcs.iter().filter(|(_, f)| f.body.is_some()).map(|(id, _)| id);
    let calls: Calls = with_code.map(|f| (f, called(f))).collect();
    let endless = unbounded(&calls);
    let times = |k: &FuncId| calls[k].iter().filter(|f| endless.contains(f)).count();
    kernels.iter().flat_map(|k| std::iter::repeat_n(*k, times(k))).map(|k| warning(module, k)).collect()
}

/// In a program that can be extended: said once of a kernel that holds such a function, which one also does that calls through
/// pointers, or takes an address, where another takes that function's; the last kernel of the text comes first. `compiled`: what has
/// code; `optimized`: what that does not call any more is not called.
pub(crate) fn extensible<'c>(
    module: &Module,
    compiled: impl Iterator<Item = (FuncId, &'c Code)>,
    optimized: bool,
) -> Vec<Diagnostic> {
    let by_name: FxHashMap<&str, FuncId> = module.funcs.iter().map(|(id, f)| (f.name.as_str(), id)).collect();
    let pointed = taken(module);
    let (mut calls, mut kernels) = (Calls::default(), Vec::new());
    for (f, code) in compiled {
        let left: FxHashSet<u32> = code
            .links
            .iter()
            .filter_map(|(_, l)| if let Link::Callee(n) = l { Some(*n) } else { None })
            .collect();
        let of = |(n, callee): (u32, &Callee)| match callee {
            Callee::Internal(name) if !optimized || left.contains(&n) => {
                by_name.get(name.as_str()).map(std::slice::from_ref).unwrap_or_default()
            }
            Callee::Indirect(_) => &pointed[..],
            Callee::Internal(_) | Callee::External => &[],
        };
        let mut all: Vec<FuncId> = (0..).zip(&code.callees).flat_map(of).copied().collect();
        if !optimized {
            all.extend(functions::calls(module, f).filter_map(callee));
        }
        calls.insert(f, all);
        kernels.extend(module.funcs[f].entry.then_some(f));
    }
    let endless = unbounded(&calls);
    let holds = |kernel: &FuncId| {
        let (mut seen, mut work) = (FxHashSet::from_iter([*kernel]), vec![*kernel]);
        while let Some(f) = work.pop() {
            if endless.contains(&f) {
                return true;
            }
            let takes = address_taken(module, f).iter().any(|f| !module.funcs[*f].entry);
            let by_address: &[FuncId] = if takes { &pointed } else { &[] };
            let next = calls.get(&f).into_iter().flatten().chain(by_address);
            work.extend(next.copied().filter(|n| seen.insert(*n)));
        }
        false
    };
    kernels.iter().rev().filter(|k| holds(k)).map(|k| warning(module, *k)).collect()
}
