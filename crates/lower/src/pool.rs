//! `setmaxnreg`: how many registers a warp holds. It changes in a kernel where it is known with how many its threads begin, and where all
//! functions that run are called by name and end; elsewhere all of the kernel's are ignored, as some without others could wait for ever.

use crate::call::parts;
use crate::func::{Lower, Result};
use crate::graph::Graph;
use crate::statement::Statement;
use crate::{ModuleLayout, Options};
use ori::{ALWAYS, Builder, Macro, Terminator, operand};
use ptx::{FuncId, Inst, Mod as M, Module, Op, Operand as Said, Stmt};
use rustc_hash::FxHashMap;
use sass::{Mod, Opcode, RegFile};

/// Why `setmaxnreg` is ignored in a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignored {
    /// It is not known with how many registers threads begin.
    UnknownStart,
    /// A debugger wants registers to stay.
    Debugging,
    /// Code that is linked to it counts on the registers that the file states.
    Linked,
    /// It calls functions of which nobody knows what they need (by pointers, or those that call themselves), or such a function has the statement.
    Functions,
}

/// All `setmaxnreg` of a function: whether each asks for registers, and their number.
fn statements(module: &Module, f: FuncId) -> impl Iterator<Item = (bool, i128)> {
    let stmts = module.funcs[f].body.iter().flat_map(|b| &b.stmts);
    stmts.filter_map(|s| match s {
        Stmt::Inst(i) if i.op == Op::setmaxnreg => match i.operands.first() {
            Some(Said::Int(n)) => Some((i.has(M::inc), i128::from(*n))),
            _ => None,
        },
        _ => None,
    })
}

/// Whether a function has the statement itself.
pub fn has_statement(module: &Module, f: FuncId) -> bool {
    statements(module, f).next().is_some()
}

/// Puts functions that do nothing but change the number (`warpgroup_reg_alloc` of a compiler that does not inline) and the like into
/// those that call them: what takes no values, gives none and has no registers, labels or ways out but its end.
pub fn splice(module: &mut Module) {
    let own = |f: FuncId| -> Option<Vec<Inst>> {
        let func = &module.funcs[f];
        let takes_nothing = !func.entry && func.params.is_empty() && func.returns.is_empty();
        let body = func.body.as_ref().filter(|b| takes_nothing && b.vars.is_empty())?;
        let stmts = body.stmts.iter().filter(|s| !matches!(s, Stmt::Loc(_) | Stmt::Pragma(_)));
        let mut insts: Vec<&Inst> =
            stmts.map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None }).collect::<Option<_>>()?;
        if insts.last().is_some_and(|i| i.op == Op::ret && i.guard.is_none()) {
            insts.pop();
        }
        let plain = |i: &&Inst| {
            i.op != Op::ret
                && i.op != Op::exit
                && i.guard.is_none()
                && i.operands.iter().all(|o| matches!(o, Said::Int(_)))
        };
        (has_statement(module, f) && insts.iter().all(plain)).then(|| insts.into_iter().cloned().collect())
    };
    let small: FxHashMap<FuncId, Vec<Inst>> =
        module.funcs.keys().filter_map(|f| Some((f, own(f)?))).collect();
    let of_call = |s: &Stmt| match s {
        Stmt::Inst(i) if i.op == Op::call && i.guard.is_none() => match parts(i)?.callee {
            Said::Func(f) => Some((i.span, small.get(f)?)),
            _ => None,
        },
        _ => None,
    };
    for body in module.funcs.values_mut().filter_map(|f| f.body.as_mut()) {
        if !body.stmts.iter().any(|s| of_call(s).is_some()) {
            continue;
        }
        for s in std::mem::take(&mut body.stmts) {
            match of_call(&s) {
                Some((span, insts)) => {
                    body.stmts.extend(insts.iter().map(|i| Stmt::Inst(Inst { span, ..i.clone() })));
                }
                None => body.stmts.push(s),
            }
        }
    }
}

/// The registers that threads of a kernel begin with if it changes how many they hold; `None` if it has nothing that does. As ptxas has it
/// (13.0.88): as many as launch bounds leave, not more than the largest number that is asked for anywhere, reached or not.
pub fn start(
    module: &Module,
    kernel: FuncId,
    layout: &ModuleLayout,
    opts: &Options<'_>,
) -> Option<std::result::Result<u8, Ignored>> {
    let func = &module.funcs[kernel];
    let used = layout.calls.reachable(module, kernel, &layout.functions);
    let in_functions = used.iter().any(|f| statements(module, *f).next().is_some());
    if statements(module, kernel).next().is_none() && !in_functions {
        return None;
    }
    let asked = statements(module, kernel).filter(|s| s.0).map(|s| s.1).max();
    let most = u32::try_from(asked.unwrap_or(255).clamp(24, 255)).unwrap_or(255);
    let by_linker = opts.relocatable && !layout.calls.calls_nothing(kernel);
    Some(match () {
        () if opts.extra.places => Err(Ignored::Debugging),
        () if opts.relocatable && !(opts.extensible && func.entry) => Err(Ignored::Linked),
        () if !crate::func::starts_known(func, opts) => Err(Ignored::UnknownStart),
        () if by_linker || in_functions || !layout.calls.ends_by_name(module, kernel, &used) => {
            Err(Ignored::Functions)
        }
        () => Ok(crate::max_regs(func, opts).min(most as u8)),
    })
}

/// How many registers warps hold that run functions which a kernel calls, the fewest of all that call one, if the kernel's threads begin with
/// `start`: each may be compiled for so many. Functions do not change it. What no call leads to is left out.
pub fn held_in_functions(
    module: &Module,
    kernel: FuncId,
    layout: &ModuleLayout,
    start: u8,
) -> FxHashMap<FuncId, u8> {
    let mut held: FxHashMap<FuncId, u8> = FxHashMap::default();
    let Some(body) = &module.funcs[kernel].body else { return held };
    let Ok(graph) = Graph::new(body, true) else { return held };
    let order = graph.order();
    let mut before: Vec<Option<u8>> = vec![None; graph.ranges.len()];
    before[0] = Some(start);
    let mut called = |f: FuncId, n: u8| {
        let known = held.entry(f).or_insert(n);
        *known = n.min(*known);
    };
    // Numbers only fall, so this ends.
    let mut again = true;
    while std::mem::take(&mut again) {
        for &b in &order {
            let Some(mut now) = before[b as usize] else { continue };
            for stmt in &body.stmts[graph.ranges[b as usize].clone()] {
                let Stmt::Inst(i) = stmt else { continue };
                match (i.op, i.operands.first()) {
                    (Op::setmaxnreg, Some(Said::Int(n))) => {
                        let n = u8::try_from(*n).unwrap_or(u8::MAX);
                        // Other lanes may have gone by.
                        now = if i.has(M::inc) && i.guard.is_none() { n } else { now.min(n) };
                    }
                    (Op::call, _) => {
                        if let Some(Said::Func(f)) = parts(i).map(|p| p.callee) {
                            called(*f, now);
                        }
                    }
                    _ => {}
                }
            }
            for &s in &graph.succs[b as usize] {
                let known = &mut before[s as usize];
                if known.is_none_or(|k| now < k) {
                    *known = Some(now);
                    again = true;
                }
            }
        }
    }
    let mut work: Vec<FuncId> = held.keys().copied().collect();
    while let Some(f) = work.pop() {
        let n = held[&f];
        for to in layout.calls.named(f) {
            let known = held.entry(to).or_insert(u8::MAX);
            if n < *known {
                *known = n;
                work.push(to);
            }
        }
    }
    held
}

impl Lower<'_, '_> {
    /// `setmaxnreg`.
    pub(crate) fn register_count(&mut self, inst: &Statement<'_>) -> Result<()> {
        if !self.changes_registers {
            inst.moot_all();
            return Ok(());
        }
        let n = match &inst.operands[0] {
            Said::Int(n) => u32::try_from(*n).map_err(|_| "a number of registers out of range")?,
            _ => return Err("a number of registers that is no constant".into()),
        };
        let asks = inst.has(M::inc);
        inst.moot(&[M::dec]);
        self.branch_around(|l| {
            if asks {
                l.ask_for_registers(n)
            } else {
                l.give_registers_back(n)
            }
            Ok(())
        })
    }

    fn give_registers_back(&mut self, n: u32) {
        self.whole_warp(ALWAYS);
        self.b.inst(Opcode::USETMAXREG, &[Mod::DEALLOC, Mod::CTAPOOL], &[ori::Operand::Imm(n)]);
    }

    /// Asks until other warps have given enough back.
    fn ask_for_registers(&mut self, n: u32) {
        let (asks, next) = (self.b.func.add_block(), self.b.func.add_block());
        self.b.terminate(Terminator::Jump(Builder::call(asks)));
        self.b.block = asks;
        self.whole_warp(ALWAYS);
        let granted = self.b.func.add_value(RegFile::UP, 1);
        self.b.inst(
            Opcode::USETMAXREG_ALLOC,
            &[Mod::TRY_ALLOC, Mod::CTAPOOL],
            &[operand(granted), ori::Operand::Imm(n)],
        );
        // From sm_100 on branches look at uniform predicates in ptxas's code.
        let cond = match self.sm() {
            ..100 => self.b.def_macro(Macro::Copy, RegFile::P, 1, &[operand(granted)]),
            _ => granted,
        };
        self.b.terminate(Terminator::Branch {
            cond: cond.into(),
            not: false,
            taken: Builder::call(next),
            fall: Builder::call(asks),
        });
        self.b.block = next;
    }
}
