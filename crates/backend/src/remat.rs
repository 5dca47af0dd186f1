//! Makes constants, parameters and addresses in the stack frame again where they are used, where keeping them would leave room
//! for fewer warps.
//!
//! Which ones, the allocator's choice of what to spill says, among constants alone; a block in which one is used has its
//! own copy, or several if it is long or has calls, and the scheduler finds the place.

use crate::liveness::Ranges;
use crate::regalloc::spill::Spiller;
use cranelift_entity::{EntityRef, SecondaryMap};
use ori::cfg::Cfg;
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Instructions behind a copy for which it still serves.
const REACH: usize = 48;

/// Lowers the number of general registers that are needed to `limit`, as far as constants are to blame. Whether anything
/// changed.
pub fn run(func: &mut Function, cfg: &Cfg, limit: u32, ranges: &Ranges) -> bool {
    let chosen = Spiller::constants(func, cfg, limit, ranges);
    if chosen.is_clear() {
        return false;
    }
    // What makes each of them.
    let mut makers: SecondaryMap<Value, Option<Inst>> = SecondaryMap::new();
    for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
        func.insts[*i].for_each_def(|n| {
            if let Some(v) = n.value().filter(|v| chosen.contains(v.index())) {
                makers[v] = Some(*i);
            }
        });
    }
    for &b in &cfg.rpo {
        block(func, b, &makers);
    }
    true
}

fn block(func: &mut Function, b: Block, makers: &SecondaryMap<Value, Option<Inst>>) {
    let old = std::mem::take(&mut func.blocks[b].insts);
    let mut out: Vec<Inst> = Vec::with_capacity(old.len() + 8);
    // The latest copy of each, and where it is.
    let mut copies: FxHashMap<Value, (Value, usize)> = FxHashMap::default();
    for i in old {
        let d = &func.insts[i];
        let mut made = false;
        d.for_each_def(|n| made |= n.value().is_some_and(|v| makers[v] == Some(i)));
        if made {
            continue;
        }
        let mut uses: SmallVec<[Value; 4]> = SmallVec::new();
        d.for_each_use(|n| uses.extend(n.value().filter(|v| makers[*v].is_some())));
        for v in uses {
            copy(func, v, makers, &mut copies, &mut out);
        }
        func.insts[i].map_uses(|n| renamed(n, &copies));
        out.push(i);
        // Across it, a copy would need a register that the callee keeps.
        if func.insts[i].op == Op::Macro(Macro::Call) {
            copies.clear();
        }
    }
    let mut term = func.blocks[b].term.clone();
    if let Some(n) = term.used_name_mut()
        && let Some(v) = n.value().filter(|v| makers[*v].is_some())
    {
        copy(func, v, makers, &mut copies, &mut out);
        *n = renamed(*n, &copies);
    }
    for a in term.targets_mut().into_iter().flat_map(|t| &mut t.args) {
        if makers[*a].is_some() {
            *a = copy(func, *a, makers, &mut copies, &mut out);
        }
    }
    func.blocks[b].term = term;
    func.blocks[b].insts = out;
}

fn renamed(n: Name, copies: &FxHashMap<Value, (Value, usize)>) -> Name {
    let to = |v: Value| copies.get(&v).map_or(v, |c| c.0);
    match n {
        Name::Val(v) => Name::Val(to(v)),
        Name::Part(v, k) => Name::Part(to(v), k),
        Name::Phys(_) => n,
    }
}

/// The copy of a value to use next, made at the end of `out` if there is none near.
fn copy(
    func: &mut Function,
    v: Value,
    makers: &SecondaryMap<Value, Option<Inst>>,
    copies: &mut FxHashMap<Value, (Value, usize)>,
    out: &mut Vec<Inst>,
) -> Value {
    if let Some((c, at)) = copies.get(&v)
        && out.len() - at <= REACH
    {
        return *c;
    }
    let Some(made) = makers[v] else { return v };
    let shape = func.values[v];
    let new = func.add_value(shape.file, shape.width);
    let mut d: InstData = func.insts[made].clone();
    for k in 0..d.operands.len() {
        if d.is_def(k) && matches!(&d.operands[k], Operand::Reg(r) if r.reg == Name::Val(v)) {
            d.operands[k] = operand(new);
        }
    }
    copies.insert(v, (new, out.len()));
    let new_inst = func.insts.push(d);
    out.push(new_inst);
    new
}
