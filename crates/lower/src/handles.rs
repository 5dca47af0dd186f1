//! Handles of textures and surfaces that a function loads from a parameter at its beginning and then only uses as such. Where they are
//! used in a loop it is not known yet, while that is lowered, what else may be in a register; of these it is.

use ori::Value;
use ptx::ast::Body;
use ptx::{AddrBase, Inst, Op, Operand, RegId, Stmt, VectorElem};
use rustc_hash::FxHashMap;

/// Registers with such handles, and their values once these are there.
#[derive(Default)]
pub(crate) struct Handles(FxHashMap<RegId, Option<Value>>);

impl Handles {
    pub(crate) fn new(body: &Body) -> Handles {
        let insts = || body.stmts.iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None });
        let mut found: FxHashMap<RegId, Option<Value>> = FxHashMap::default();
        if !insts().any(uses_handles) {
            return Handles::default();
        }
        let mut others: Vec<RegId> = Vec::new();
        for i in insts() {
            let mut operands = i.operands.iter();
            match i.op {
                Op::ld if i.guard.is_none() && i.has(ptx::Mod::param) => {
                    if let Some(Operand::Reg(r)) = operands.next()
                        && found.insert(*r, None).is_some()
                    {
                        others.push(*r);
                    }
                }
                // What is not written.
                Op::sust | Op::sured => continue,
                _ if uses_handles(i) => operands = i.operands[..1].iter(),
                _ => {}
            }
            operands.for_each(|o| for_each_register(o, &mut |r| others.push(r)));
        }
        others.iter().for_each(|r| _ = found.remove(r));
        Handles(found)
    }

    /// Notes what is written to a register at the beginning of the function, which every way through it comes by.
    pub(crate) fn note(&mut self, r: RegId, v: Value) {
        if let Some(known) = self.0.get_mut(&r) {
            *known = Some(v);
        }
    }

    /// The handle in a register, if it is one of these.
    pub(crate) fn get(&self, r: RegId) -> Option<Value> {
        self.0.get(&r).copied().flatten()
    }
}

/// Whether the instruction reads nothing of 64 bits but handles and coordinates.
fn uses_handles(i: &Inst) -> bool {
    matches!(i.op, Op::tex | Op::tld4 | Op::txq | Op::suld | Op::sust | Op::sured | Op::suq)
}

fn for_each_register(o: &Operand, f: &mut impl FnMut(RegId)) {
    let elem = |e: &VectorElem| if let VectorElem::Reg(r) = e { Some(*r) } else { None };
    match o {
        Operand::Reg(r) | Operand::NotPred(r) | Operand::NegReg(r) | Operand::Part { reg: r, .. } => f(*r),
        Operand::Vector(elems) => elems.iter().filter_map(elem).for_each(f),
        Operand::Addr(a) => {
            if let AddrBase::Reg(r) = a.base {
                f(r);
            }
        }
        Operand::Bracket(all) | Operand::List(all) => all.iter().for_each(|o| for_each_register(o, f)),
        Operand::Pair(a, b) => a.iter().chain(b).for_each(|r| f(*r)),
        Operand::Resident(elems, p) => {
            elems.iter().filter_map(elem).for_each(&mut *f);
            f(*p);
        }
        Operand::Int(_)
        | Operand::F64(_)
        | Operand::F32(_)
        | Operand::Special(..)
        | Operand::Var(..)
        | Operand::Func(_)
        | Operand::Label(_)
        | Operand::Sink => {}
    }
}
