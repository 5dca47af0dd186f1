//! What `cvta.param` is about in a device function that takes the address of one of its own parameters. Such an address is one
//! of local memory, any other that `cvta.param` is given is a kernel's parameter's; ptxas 13.0.88 takes all of them for the
//! kernel's, so that its code for the function's own leads elsewhere.

use crate::call::formal_register;
use ptx::{AddrBase, Body, Func, Inst, Mod, Module, Op, Operand, RegId, Space, Stmt, VarId, VectorElem};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Whose parameter an address is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// The function's own: an address of local memory.
    Own,
    /// One of a kernel's, which the function was given.
    Kernels,
}

/// A function whose registers are followed back to what is written to them, wherever in the function that is.
pub(crate) struct Origins<'a> {
    module: &'a Module,
    func: &'a Func,
    /// What writes to the registers on the way.
    writers: FxHashMap<RegId, SmallVec<[&'a Inst; 2]>>,
    formals: FxHashSet<RegId>,
}

impl<'a> Origins<'a> {
    /// Follows an operand of a device function.
    pub(crate) fn of(module: &'a Module, func: &'a Func, body: &'a Body, operand: &Operand) -> Option<Whose> {
        let start = match operand {
            Operand::Var(v, _) => return is_own(module, func, *v).then_some(Whose::Own),
            Operand::Reg(r) => *r,
            _ => return None,
        };
        let formals = func.params.iter().filter_map(|v| formal_register(module, body, *v)).collect();
        let mut origins = Origins { module, func, writers: FxHashMap::default(), formals };
        origins.find_writers(body, start);
        origins.judge(start)
    }

    /// Looks up what writes to a register and to those that it comes from.
    fn find_writers(&mut self, body: &'a Body, start: RegId) {
        let mut all: FxHashMap<RegId, SmallVec<[&'a Inst; 2]>> = FxHashMap::default();
        for stmt in &body.stmts {
            let Stmt::Inst(inst) = stmt else { continue };
            if let Some(first) = inst.operands.first() {
                each_register(first, &mut |r| all.entry(r).or_default().push(inst));
            }
        }
        let mut work = vec![start];
        while let Some(r) = work.pop() {
            if self.writers.contains_key(&r) {
                continue;
            }
            let writers = all.remove(&r).unwrap_or_default();
            work.extend(writers.iter().flat_map(|w| sources(w, r)).filter_map(register));
            self.writers.insert(r, writers);
        }
    }

    /// The registers that may hold an address of the function's own parameter.
    fn own(&self) -> FxHashSet<RegId> {
        let mut to: FxHashMap<RegId, SmallVec<[RegId; 2]>> = FxHashMap::default();
        let mut work = Vec::new();
        for (r, writers) in &self.writers {
            for o in writers.iter().flat_map(|w| sources(w, *r)) {
                match o {
                    Operand::Reg(from) => to.entry(*from).or_default().push(*r),
                    Operand::Var(v, _) if is_own(self.module, self.func, *v) => work.push(*r),
                    _ => {}
                }
            }
        }
        let mut own = FxHashSet::default();
        while let Some(r) = work.pop() {
            if own.insert(r) {
                work.extend(to.get(&r).into_iter().flatten());
            }
        }
        own
    }

    fn judge(&self, start: RegId) -> Option<Whose> {
        let own = self.own();
        let is_own = |o: &Operand| match o {
            Operand::Reg(r) => own.contains(r),
            Operand::Var(v, _) => is_own(self.module, self.func, *v),
            _ => false,
        };
        let whose = if own.contains(&start) { Whose::Own } else { Whose::Kernels };
        let mut seen = FxHashSet::default();
        let mut work = vec![start];
        while let Some(r) = work.pop() {
            if !seen.insert(r) {
                continue;
            }
            if whose == Whose::Own && self.formals.contains(&r) {
                return None;
            }
            for w in &self.writers[&r] {
                match whose {
                    // To such an address anything may be added.
                    Whose::Own => {
                        let mut from = sources(w, r).filter(|o| is_own(o)).peekable();
                        from.peek()?;
                        work.extend(from.filter_map(register));
                    }
                    Whose::Kernels if self.is_argument(w, r) => {}
                    Whose::Kernels => {
                        let mut from = sources(w, r);
                        let first = from.next()?;
                        if from.next().and_then(register).is_some() {
                            return None;
                        }
                        work.push(register(first)?);
                    }
                }
            }
            // Nothing says what a register holds that nothing writes.
            if self.writers[&r].is_empty() && !self.formals.contains(&r) {
                return None;
            }
        }
        Some(whose)
    }

    /// Whether an instruction reads an argument: no address in this function's frame.
    fn is_argument(&self, w: &Inst, r: RegId) -> bool {
        w.op == Op::ld
            && w.has(Mod::param)
            && w.operands.first() == Some(&Operand::Reg(r))
            && matches!(w.operands.get(1), Some(Operand::Addr(a))
                if matches!(a.base, AddrBase::Var(v) if self.func.params.contains(&v)))
    }
}

fn is_own(module: &Module, func: &Func, v: VarId) -> bool {
    module.vars[v].space == Space::Param && (func.params.contains(&v) || func.returns.contains(&v))
}

fn register(o: &Operand) -> Option<RegId> {
    match o {
        Operand::Reg(r) => Some(*r),
        _ => None,
    }
}

/// What an instruction that writes a register copies, or adds up, for it; nothing where it does something else.
fn sources(inst: &Inst, r: RegId) -> impl Iterator<Item = &Operand> {
    let n = match inst.op {
        _ if inst.operands.first() != Some(&Operand::Reg(r)) => 0,
        Op::mov | Op::sub => 1,
        Op::cvta if inst.has(Mod::param) => 1,
        Op::add => 2,
        _ => 0,
    };
    inst.operands.iter().skip(1).take(n)
}

/// Calls `f` with the registers that an operand is of. A register that an address holds is not written.
fn each_register(operand: &Operand, f: &mut dyn FnMut(RegId)) {
    let of_vector = |v: &[VectorElem], f: &mut dyn FnMut(RegId)| {
        for e in v {
            if let VectorElem::Reg(r) = e {
                f(*r);
            }
        }
    };
    match operand {
        Operand::Reg(r) | Operand::Part { reg: r, .. } => f(*r),
        Operand::Pair(a, b) => a.iter().chain(b).for_each(|r| f(*r)),
        Operand::Vector(v) => of_vector(v, f),
        Operand::Resident(v, p) => {
            of_vector(v, f);
            f(*p);
        }
        Operand::List(l) => l.iter().for_each(|o| each_register(o, f)),
        _ => {}
    }
}
