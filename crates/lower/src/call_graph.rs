//! Which functions of a module call which.

use crate::call::parts;
use cranelift_entity::{EntitySet, SecondaryMap};
use ptx::{FuncId, Module, Op, Operand, Stmt};
use rustc_hash::FxHashSet;

/// The calls of every function of a module, looked up once.
#[derive(Clone, Debug, Default)]
pub struct CallGraph {
    /// For each function what its calls go to, in the order of first mention; `None`: any function that a pointer may
    /// hold.
    calls: SecondaryMap<FuncId, Vec<Option<FuncId>>>,
}

impl CallGraph {
    /// Walks through the code of a module.
    pub fn new(module: &Module) -> CallGraph {
        let mut graph = CallGraph::default();
        let mut seen: FxHashSet<Option<FuncId>> = FxHashSet::default();
        for (id, f) in module.funcs.iter() {
            seen.clear();
            for stmt in f.body.iter().flat_map(|b| &b.stmts) {
                let Stmt::Inst(inst) = stmt else { continue };
                if inst.op == Op::call {
                    let callee = match parts(inst).map(|p| p.callee) {
                        Some(Operand::Func(f)) => Some(*f),
                        _ => None,
                    };
                    if seen.insert(callee) {
                        graph.calls[id].push(callee);
                    }
                }
            }
        }
        graph
    }

    /// What a function calls by name, each once.
    pub fn named(&self, f: FuncId) -> impl Iterator<Item = FuncId> + '_ {
        self.calls[f].iter().filter_map(|c| *c)
    }

    /// Whether a function calls none.
    pub fn calls_nothing(&self, f: FuncId) -> bool {
        self.calls[f].is_empty()
    }

    /// Whether `kernel` and the functions that it reaches call others by name only, and none of them itself.
    pub fn ends_by_name(&self, module: &Module, kernel: FuncId, reached: &[FuncId]) -> bool {
        let by_name = |f: &FuncId| self.calls[*f].iter().all(Option::is_some);
        by_name(&kernel) && reached.iter().all(by_name) && {
            let recursive = (!reached.is_empty()).then(|| self.recursive(module));
            reached.iter().all(|f| recursive.as_ref().is_none_or(|r| !r.contains(*f)))
        }
    }

    /// For each function that calls itself by name, directly or through others, the cycle: those with one number call each other
    /// (Tarjan, "Depth-first search and linear graph algorithms", 1972).
    pub fn cycles(&self, module: &Module) -> SecondaryMap<FuncId, Option<u32>> {
        #[derive(Clone, Copy, Default)]
        struct Visit {
            /// 1 + the order of the first visit; 0 before that.
            index: u32,
            low: u32,
            open: bool,
        }
        let mut visits: SecondaryMap<FuncId, Visit> = SecondaryMap::new();
        let mut cycle: SecondaryMap<FuncId, Option<u32>> = SecondaryMap::new();
        let (mut count, mut cycles) = (0, 0);
        let mut open: Vec<FuncId> = Vec::new();
        // A function and how many of its calls have been followed.
        let mut way: Vec<(FuncId, usize)> = Vec::new();
        for root in module.funcs.keys() {
            if visits[root].index == 0 {
                way.push((root, 0));
            }
            while let Some((f, next)) = way.pop() {
                if next == 0 {
                    count += 1;
                    visits[f] = Visit { index: count, low: count, open: true };
                    open.push(f);
                }
                if let Some(callee) = self.calls[f].get(next) {
                    way.push((f, next + 1));
                    match callee.map(|t| (t, visits[t])) {
                        Some((t, Visit { index: 0, .. })) => way.push((t, 0)),
                        Some((_, Visit { index, open: true, .. })) => {
                            visits[f].low = visits[f].low.min(index);
                        }
                        _ => {}
                    }
                    continue;
                }
                let Visit { index, low, .. } = visits[f];
                if let Some((caller, _)) = way.last() {
                    visits[*caller].low = visits[*caller].low.min(low);
                }
                if low == index {
                    let at = open.iter().rposition(|o| *o == f).unwrap_or(0);
                    let members: Vec<FuncId> = open.drain(at..).collect();
                    let calls_itself = self.calls[f].contains(&Some(f));
                    for m in &members {
                        visits[*m].open = false;
                        cycle[*m] = (members.len() > 1 || calls_itself).then_some(cycles);
                    }
                    cycles += 1;
                }
            }
        }
        cycle
    }

    /// The device functions with code that a function can reach, in the order of first mention. `table`: those that a
    /// call through a pointer may go to.
    pub fn reachable(&self, module: &Module, from: FuncId, table: &[FuncId]) -> Vec<FuncId> {
        let mut found: Vec<FuncId> = Vec::new();
        let mut seen: EntitySet<FuncId> = EntitySet::new();
        let mut at = Some(from);
        let mut next = 0;
        let mut table = Some(table);
        while let Some(f) = at {
            for callee in &self.calls[f] {
                // All that pointers may hold is found the first time.
                let these = match callee {
                    Some(one) => std::slice::from_ref(one),
                    None => table.take().unwrap_or_default(),
                };
                for &t in these {
                    if module.funcs[t].body.is_some() && !module.funcs[t].entry && seen.insert(t) {
                        found.push(t);
                    }
                }
            }
            at = found.get(next).copied();
            next += 1;
        }
        found
    }

    /// The functions from which calls lead to one of `to`, those themselves included. `table` as above.
    pub fn reaching(
        &self,
        module: &Module,
        to: impl IntoIterator<Item = FuncId>,
        table: &[FuncId],
    ) -> EntitySet<FuncId> {
        let mut callers: SecondaryMap<FuncId, Vec<FuncId>> = SecondaryMap::new();
        let mut through_pointers: Vec<FuncId> = Vec::new();
        for f in module.funcs.keys() {
            for callee in &self.calls[f] {
                match callee {
                    Some(one) => callers[*one].push(f),
                    None => through_pointers.push(f),
                }
            }
        }
        let pointed: FxHashSet<FuncId> = table.iter().copied().collect();
        let mut found: EntitySet<FuncId> = EntitySet::new();
        let mut work: Vec<FuncId> = to.into_iter().collect();
        while let Some(f) = work.pop() {
            if found.insert(f) {
                work.extend(&callers[f]);
                if pointed.contains(&f) {
                    work.append(&mut through_pointers);
                }
            }
        }
        found
    }

    /// The functions from which calls by name lead back to them: those of cycles (Tarjan's strongly connected components,
    /// without recursion).
    pub fn recursive(&self, module: &Module) -> EntitySet<FuncId> {
        let mut number: SecondaryMap<FuncId, u32> = SecondaryMap::new();
        let mut lowest: SecondaryMap<FuncId, u32> = SecondaryMap::new();
        let mut open: EntitySet<FuncId> = EntitySet::new();
        let mut stack: Vec<FuncId> = Vec::new();
        let mut found: EntitySet<FuncId> = EntitySet::new();
        let mut count = 0;
        for root in module.funcs.keys() {
            if number[root] != 0 {
                continue;
            }
            let mut walk: Vec<(FuncId, usize)> = vec![(root, 0)];
            while let Some((f, k)) = walk.pop() {
                if k == 0 {
                    count += 1;
                    number[f] = count;
                    lowest[f] = count;
                    stack.push(f);
                    open.insert(f);
                }
                match self.calls[f].get(k) {
                    Some(callee) => {
                        walk.push((f, k + 1));
                        match *callee {
                            Some(t) if t == f => {
                                found.insert(f);
                            }
                            Some(t) if number[t] == 0 => walk.push((t, 0)),
                            Some(t) if open.contains(t) => lowest[f] = lowest[f].min(number[t]),
                            _ => {}
                        }
                    }
                    None => {
                        if lowest[f] == number[f] {
                            let at = stack.iter().rposition(|x| *x == f).unwrap_or(0);
                            let component = stack.split_off(at);
                            for g in &component {
                                open.remove(*g);
                                if component.len() > 1 {
                                    found.insert(*g);
                                }
                            }
                        }
                        if let Some((caller, _)) = walk.last() {
                            lowest[*caller] = lowest[*caller].min(lowest[f]);
                        }
                    }
                }
            }
        }
        found
    }
}
