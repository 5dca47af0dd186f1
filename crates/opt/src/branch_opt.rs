//! Control-flow cleanup: unreachable blocks leave the layout, block parameters that always receive the same
//! value are replaced by it, a branch that goes to one place in any case is a jump, and a block is merged into its only
//! predecessor when that one only goes there.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::{Analyses, Block, Changed, Function, Name, Terminator, Value};
use smallvec::SmallVec;

/// The pass, for the table.
pub const PASS: Pass =
    Pass::analysed(1, "branches", "OriBranchOpt", "folds branches, joins blocks; again after unrolling", run);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let mut changed = crate::single_lane::run(func, analyses);
    changed |= crate::same_condition::pass_by(func);
    changed |= crate::same_condition::run(func);
    let now;
    let cfg = if changed {
        now = Cfg::new(func);
        &now
    } else {
        analyses.cfg(func)
    };
    let before = func.layout.len();
    func.layout.retain(|b| cfg.is_reachable(*b));
    changed |= func.layout.len() != before;
    changed |= remove_trivial_params(func, cfg);
    changed |= jump_where_all_agree(func);
    changed |= merge_chains(func, cfg);
    Changed::graph(changed)
}

/// Makes a jump of each branch whose targets are all one block with the same arguments.
fn jump_where_all_agree(func: &mut Function) -> bool {
    let mut changed = false;
    for b in func.layout.clone() {
        let term = &mut func.blocks[b].term;
        if !matches!(term, Terminator::Branch { .. } | Terminator::Switch { .. }) {
            continue;
        }
        let only = match &term.targets()[..] {
            [first, rest @ ..] if rest.iter().all(|t| t == first) => Some((*first).clone()),
            _ => None,
        };
        changed |= only.is_some();
        if let Some(target) = only {
            *term = Terminator::Jump(target);
        }
    }
    changed
}

/// Replaces every parameter whose arguments are all one value (or the parameter itself) by that value.
fn remove_trivial_params(func: &mut Function, cfg: &Cfg) -> bool {
    let mut alias: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut again = true;
    while again {
        again = false;
        for &b in &cfg.rpo {
            for index in 0..func.blocks[b].params.len() {
                let param = func.blocks[b].params[index];
                if alias[param].is_some() {
                    continue;
                }
                if let Some(v) = only_argument(func, cfg, &alias, b, index, param) {
                    alias[param] = Some(v);
                    again = true;
                }
            }
        }
    }
    if !cfg.rpo.iter().any(|b| func.blocks[*b].params.iter().any(|p| alias[*p].is_some())) {
        return false;
    }
    for &b in &cfg.rpo {
        let gone: SmallVec<[bool; 8]> = func.blocks[b].params.iter().map(|p| alias[*p].is_some()).collect();
        let mut preds: SmallVec<[Block; 4]> = cfg.preds[b].clone();
        preds.sort_unstable();
        preds.dedup();
        for p in preds {
            for t in func.blocks[p].term.targets_mut() {
                if t.block == b {
                    let mut k = 0;
                    t.args.retain(|_| {
                        k += 1;
                        !gone[k - 1]
                    });
                }
            }
        }
        func.blocks[b].params.retain(|p| alias[*p].is_none());
    }
    rename(func, cfg, &alias);
    true
}

fn only_argument(
    func: &Function,
    cfg: &Cfg,
    alias: &SecondaryMap<Value, Option<Value>>,
    block: Block,
    index: usize,
    param: Value,
) -> Option<Value> {
    let mut only = None;
    for p in &cfg.preds[block] {
        for t in func.blocks[*p].term.targets() {
            if t.block != block {
                continue;
            }
            let v = resolve(alias, t.args[index]);
            if v == param || only == Some(v) {
                continue;
            }
            if only.replace(v).is_some() {
                return None;
            }
        }
    }
    only
}

fn resolve(alias: &SecondaryMap<Value, Option<Value>>, mut v: Value) -> Value {
    while let Some(next) = alias[v] {
        v = next;
    }
    v
}

/// Replaces aliased values everywhere.
fn rename(func: &mut Function, cfg: &Cfg, alias: &SecondaryMap<Value, Option<Value>>) {
    let name = |n: Name| match n {
        Name::Val(v) => Name::Val(resolve(alias, v)),
        Name::Part(v, i) => Name::Part(resolve(alias, v), i),
        Name::Phys(_) => n,
    };
    for &b in &cfg.rpo {
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            func.insts[i].map_uses(name);
        }
        let term = &mut func.blocks[b].term;
        if let Some(n) = term.used_name_mut() {
            *n = name(*n);
        }
        for t in term.targets_mut() {
            for a in &mut t.args {
                *a = resolve(alias, *a);
            }
        }
    }
}

/// Appends each block that has one predecessor, which jumps to it, to that predecessor.
fn merge_chains(func: &mut Function, cfg: &Cfg) -> bool {
    let mut alias: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut gone: SecondaryMap<Block, bool> = SecondaryMap::new();
    let mut changed = false;
    for &b in &cfg.rpo {
        if gone[b] {
            continue;
        }
        while let Terminator::Jump(t) = &func.blocks[b].term {
            let next = t.block;
            if next == b || next == func.entry_block() || cfg.preds[next].len() != 1 || gone[next] {
                break;
            }
            let args = t.args.clone();
            let data = func.blocks[next].clone();
            for (p, a) in data.params.iter().zip(args) {
                alias[*p] = Some(resolve(&alias, a));
            }
            let head = &mut func.blocks[b];
            head.insts.extend(data.insts);
            head.term = data.term;
            head.term_loc = data.term_loc;
            gone[next] = true;
            changed = true;
        }
    }
    if changed {
        for &b in &cfg.rpo {
            if gone[b] {
                func.blocks[b].params.clear();
                func.blocks[b].insts.clear();
                func.blocks[b].term = Terminator::Unreachable;
            }
        }
        func.layout.retain(|b| !gone[*b]);
        rename(func, cfg, &alias);
    }
    changed
}
