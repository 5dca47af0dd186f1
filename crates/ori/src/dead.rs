//! Dead code: computations and loads whose results nobody reads, and block parameters that only feed themselves.

use crate::function::{Block, Function, Inst, Name, Operand, Value};
use cranelift_entity::{EntitySet, SecondaryMap};
use sass::{Reg, RegFile};

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
    let mut defs: SecondaryMap<Value, Def> = SecondaryMap::new();
    let mut preds: SecondaryMap<Block, Vec<Block>> = SecondaryMap::new();
    for &b in &func.layout {
        for (i, p) in func.blocks[b].params.iter().enumerate() {
            defs[*p] = Def::Param(b, i as u32);
        }
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(|n| {
                if let Some(v) = n.value() {
                    defs[v] = Def::Inst(i);
                }
            });
        }
        for t in func.blocks[b].term.targets() {
            preds[t.block].push(b);
        }
    }
    let mut live: EntitySet<Value> = EntitySet::new();
    let mut live_inst: EntitySet<Inst> = EntitySet::new();
    let mut work: Vec<Value> = Vec::new();
    let mark = |n: Name, live: &mut EntitySet<Value>, work: &mut Vec<Value>| {
        if let Some(v) = n.value()
            && live.insert(v)
        {
            work.push(v);
        }
    };
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            if !d.is_pure() && !d.is_removable() && live_inst.insert(i) {
                func.insts[i].for_each_use(|n| mark(n, &mut live, &mut work));
            }
        }
        if let Some(n) = func.blocks[b].term.used_name() {
            mark(n, &mut live, &mut work);
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
        let before = func.blocks[b].insts.len();
        func.blocks[b].insts.retain(|i| live_inst.contains(*i));
        changed |= func.blocks[b].insts.len() != before;
        for k in 0..func.blocks[b].insts.len() {
            drop_dead_results(func, &live, k, b);
        }
    }
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
fn drop_dead_results(func: &mut Function, live: &EntitySet<Value>, k: usize, b: Block) {
    let i = func.blocks[b].insts[k];
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
