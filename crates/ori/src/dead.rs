//! Dead code: computations and loads whose results nobody reads, and block parameters that only feed themselves.

use crate::function::{Block, Function, Inst, InstData, Name, Op, Operand, Value};
use crate::meeting;
use cranelift_entity::{EntitySet, SecondaryMap};
use sass::{Mod, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// Who makes a value.
#[derive(Clone, Copy, Default)]
enum Def {
    #[default]
    None,
    Inst(Inst),
    Param(Block, u32),
}

/// Removes them; whether there was anything. What lies in a cycle and is read only there goes, too.
pub fn remove(func: &mut Function) -> bool {
    let mut defs: SecondaryMap<Value, Def> = func.per_value();
    let mut preds: SecondaryMap<Block, SmallVec<[Block; 2]>> = SecondaryMap::new();
    // Instructions that may be needed without all of their predicates.
    let mut several: Vec<Inst> = Vec::new();
    let mut live: EntitySet<Value> = EntitySet::with_capacity(func.values.len());
    let mut live_inst: EntitySet<Inst> = EntitySet::with_capacity(func.insts.len());
    let mut work: Vec<Value> = Vec::new();
    let counted_on = meeting::counted_on(func);
    let mark = |n: Name, live: &mut EntitySet<Value>, work: &mut Vec<Value>| {
        if let Some(v) = n.value()
            && live.insert(v)
        {
            work.push(v);
        }
    };
    for &b in &func.layout {
        let data = &func.blocks[b];
        for (i, p) in data.params.iter().enumerate() {
            defs[*p] = Def::Param(b, i as u32);
        }
        for &i in &data.insts {
            let d = &func.insts[i];
            let (mut count, mut predicate) = (0, false);
            d.for_each_def(|n| {
                if let Some(v) = n.value() {
                    defs[v] = Def::Inst(i);
                    count += 1;
                    predicate |= func.values[v].file == RegFile::P;
                }
            });
            let goes = d.is_pure() || d.is_removable() || d.only_agrees() && !counted_on.contains(&i);
            let needed = !goes;
            if predicate && (needed || count > 1) {
                several.push(i);
            }
            if needed && live_inst.insert(i) {
                d.for_each_use(|n| mark(n, &mut live, &mut work));
            }
        }
        if let Some(n) = data.term.used_name() {
            mark(n, &mut live, &mut work);
        }
        for t in data.term.targets() {
            preds[t.block].push(b);
        }
    }
    while let Some(v) = work.pop() {
        match defs[v] {
            Def::None => {}
            Def::Inst(i) => {
                if live_inst.insert(i) {
                    func.insts[i].for_each_use(|n| mark(n, &mut live, &mut work));
                }
            }
            Def::Param(b, index) => {
                for p in &preds[b] {
                    for t in func.blocks[*p].term.targets() {
                        if t.block == b {
                            mark(Name::Val(t.args[index as usize]), &mut live, &mut work);
                        }
                    }
                }
            }
        }
    }
    let mut changed = false;
    for b in func.layout.clone() {
        let insts = &mut func.blocks[b].insts;
        let before = insts.len();
        insts.retain(|i| live_inst.contains(*i));
        changed |= insts.len() != before;
    }
    several.into_iter().filter(|i| live_inst.contains(*i)).for_each(|i| drop_dead_results(func, &live, i));
    changed | retain_params(func, &live)
}

/// Removes block parameters that no instruction reads, directly or by way of others. Instructions stay as they are.
pub fn remove_params(func: &mut Function) {
    let mut live: EntitySet<Value> = EntitySet::new();
    for b in func.blocks.values() {
        b.insts.iter().for_each(|i| func.insts[*i].for_each_use(|n| live.extend(n.value())));
        live.extend(b.term.used_name().and_then(Name::value));
    }
    // What each parameter is given.
    let mut given: SecondaryMap<Value, Vec<Value>> = SecondaryMap::new();
    for t in func.blocks.values().flat_map(|b| b.term.targets()) {
        for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
            given[*p].push(*a);
        }
    }
    let mut work: Vec<Value> = live.keys().collect();
    while let Some(v) = work.pop() {
        work.extend(given[v].iter().copied().filter(|a| live.insert(*a)));
    }
    retain_params(func, &live);
}

/// Keeps the block parameters that are in `live`; whether others went.
fn retain_params(func: &mut Function, live: &EntitySet<Value>) -> bool {
    let mut dead: SecondaryMap<Block, Vec<bool>> = SecondaryMap::new();
    let mut changed = false;
    for b in func.layout.clone() {
        let params = &mut func.blocks[b].params;
        if params.iter().any(|p| !live.contains(*p)) {
            dead[b] = params.iter().map(|p| !live.contains(*p)).collect();
            params.retain(|p| live.contains(*p));
            changed = true;
        }
    }
    if changed {
        for b in func.layout.clone() {
            for t in func.blocks[b].term.targets_mut().into_iter().filter(|t| !dead[t.block].is_empty()) {
                let mut dead = dead[t.block].iter();
                t.args.retain(|_| dead.next() == Some(&false));
            }
        }
    }
    changed
}

/// Points written predicates that nobody reads at PT, and keeps shapes intact.
fn drop_dead_results(func: &mut Function, live: &EntitySet<Value>, i: Inst) {
    let data = &mut func.insts[i];
    if !data.is_unguarded() {
        return;
    }
    for o in 0..data.operands.len() {
        if !data.is_def(o) {
            continue;
        }
        if let Operand::Reg(r) = &mut data.operands[o]
            && let Some(v) = r.reg.value()
            && !live.contains(v)
            && func.values[v].file == RegFile::P
        {
            r.reg = Name::Phys(Reg::PT);
        }
    }
}
/// The values that anything reads.
pub fn read(func: &Function) -> SecondaryMap<Value, bool> {
    let mut read = func.per_value();
    for &b in &func.layout {
        let data = &func.blocks[b];
        for i in &data.insts {
            func.insts[*i].for_each_use(|n| {
                if let Some(v) = n.value() {
                    read[v] = true;
                }
            });
        }
        if let Some(v) = data.term.used_name().and_then(Name::value) {
            read[v] = true;
        }
        for a in data.term.targets().iter().flat_map(|t| &t.args) {
            read[*a] = true;
        }
    }
    read
}

/// Turns atomic operations whose result nobody reads into reductions, or lets them write RZ; whether there were any. Those that
/// acquire are no reductions: what follows waits until they are done.
pub fn drop_results(func: &mut Function) -> bool {
    let fetches = |d: &InstData| {
        let Op::Sass(op @ (Opcode::ATOMG | Opcode::ATOM | Opcode::ATOMS)) = d.op else { return None };
        let at = usize::from(op != Opcode::ATOMS);
        Some((op, at, d.operands[at].as_reg()?.reg.value()?))
    };
    let every = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if !every.into_iter().any(|i| fetches(&func.insts[*i]).is_some()) {
        return false;
    }
    let read = read(func);
    let red = if func.target.sm >= 90 { Opcode::REDG } else { Opcode::RED };
    let mut changed = false;
    for b in func.layout.clone() {
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            let Some((op, at, _)) = fetches(&func.insts[i]).filter(|(_, _, v)| !read[*v]) else { continue };
            changed = true;
            // What makes it acquire is the first of these behind it; passes may have put others between.
            let acquires = func.blocks[b].insts[k + 1..].iter().find_map(|next| match func.insts[*next].op {
                Op::Sass(Opcode::NOP | Opcode::CCTL) => Some(true),
                Op::Sass(Opcode::MEMBAR | Opcode::ATOMG | Opcode::ATOM | Opcode::ATOMS) => Some(false),
                _ => None,
            });
            let acquires = acquires == Some(true);
            let data = &mut func.insts[i];
            let exchanges = data.mods.has(Mod::CAS) || data.mods.has(Mod::EXCH);
            if op == Opcode::ATOMG && !exchanges && !acquires {
                data.op = Op::Sass(red);
                data.operands = data.operands[2..4].iter().cloned().collect();
                data.kept.clear();
                continue;
            }
            data.operands[at] = Operand::reg(Name::Phys(Reg::RZ));
            for k in &mut data.kept {
                if matches!(k, Name::Val(_)) {
                    *k = Name::Phys(Reg::RZ);
                }
            }
        }
    }
    changed
}
