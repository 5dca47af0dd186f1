//! Checks what every pass may rely on: slot shapes ([`shape`]), one definition per value, uses dominated by it, block
//! arguments that fit the parameters.

pub mod lanes;
mod shape;

use crate::cfg::{Cfg, DomTree};
use crate::function::{Block, BlockCall, Function, Inst, Name, Value};
use crate::print::inst_text;
use cranelift_entity::{EntitySet, SecondaryMap};

/// Verifies a function in SSA.
///
/// # Errors
/// Every violation found, one line each.
pub fn verify(func: &Function) -> Result<(), Vec<String>> {
    let cfg = Cfg::new(func);
    let dom = DomTree::dominators(&cfg);
    let mut errors = Vec::new();
    blocks(func, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    // Where each value is defined: block and position (0 = parameter).
    let mut defs: SecondaryMap<Value, Option<(Block, usize)>> = SecondaryMap::new();
    for &b in &func.layout {
        let data = &func.blocks[b];
        for &p in &data.params {
            if defs[p].replace((b, 0)).is_some() {
                errors.push(format!("{b}: {p} is defined twice"));
            }
        }
        for (k, &i) in data.insts.iter().enumerate() {
            let d = &func.insts[i];
            shape::inst(func, d, &mut errors);
            d.for_each_def(|n| {
                if let Some(v) = n.value()
                    && defs[v].replace((b, k + 1)).is_some()
                {
                    errors.push(format!("{b}: {v} is defined twice"));
                }
            });
        }
    }
    for &b in &cfg.rpo {
        let data = &func.blocks[b];
        let check = |errors: &mut Vec<String>, v: Value, at: usize, what: &dyn Fn() -> String| match defs[v] {
            Some((db, dk)) if (db == b && dk < at) || (db != b && dom.dominates(db, b)) => {}
            Some(_) => errors.push(format!("{b}: {v} does not dominate its use in `{}`", what())),
            None => errors.push(format!("{b}: {v} is used in `{}` but never defined", what())),
        };
        for (k, &i) in data.insts.iter().enumerate() {
            let d = &func.insts[i];
            d.for_each_use(|n| {
                if let Some(v) = n.value() {
                    check(&mut errors, v, k + 1, &|| inst_text(func, d));
                }
            });
        }
        shape::terminator(func, b, &mut errors);
        let end = data.insts.len() + 1;
        if let Some(v) = data.term.used_name().and_then(Name::value) {
            check(&mut errors, v, end, &|| data.term.to_string());
        }
        for t in data.term.targets() {
            for &a in &t.args {
                check(&mut errors, a, end, &|| data.term.to_string());
            }
            if !fits(func, t) {
                errors.push(format!("{b}: arguments of `{t}` do not fit the parameters"));
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Verifies what takes little time, for every compilation: each block and instruction is in one place, control goes to blocks of
/// the layout with what they want, and each value that is read is made, once. [`verify`] looks at shapes and dominance as well.
///
/// # Errors
/// Every violation found, one line each.
pub fn outline(func: &Function) -> Result<(), Vec<String>> {
    let mut errors = Vec::new();
    blocks(func, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut made: EntitySet<Value> = EntitySet::with_capacity(func.values.len());
    for &b in &func.layout {
        let data = &func.blocks[b];
        let mut make = |v: Value| {
            if !made.insert(v) {
                errors.push(format!("{b}: {v} is defined twice"));
            }
        };
        data.params.iter().for_each(|p| make(*p));
        data.insts.iter().for_each(|i| {
            func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(&mut make));
        });
    }
    for &b in &func.layout {
        let data = &func.blocks[b];
        let mut read = |v: Value, what: &dyn Fn() -> String| {
            if !made.contains(v) {
                errors.push(format!("{b}: {v} is used in `{}` but never defined", what()));
            }
        };
        for &i in &data.insts {
            let d = &func.insts[i];
            d.for_each_use(|n| n.value().into_iter().for_each(|v| read(v, &|| inst_text(func, d))));
        }
        let text = || data.term.to_string();
        data.term.used_name().and_then(Name::value).into_iter().for_each(|v| read(v, &text));
        for t in data.term.targets() {
            t.args.iter().for_each(|a| read(*a, &text));
        }
        let wrong = data.term.targets().into_iter().find(|t| !fits(func, t));
        errors.extend(wrong.map(|t| format!("{b}: arguments of `{t}` do not fit the parameters")));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Whether a block gets what it wants.
fn fits(func: &Function, t: &BlockCall) -> bool {
    let params = &func.blocks[t.block].params;
    params.len() == t.args.len()
        && params.iter().zip(&t.args).all(|(p, a)| func.values[*p] == func.values[*a])
}

/// Whether each block is in the layout once, and each instruction in one place, and control goes to blocks of the layout.
fn blocks(func: &Function, errors: &mut Vec<String>) {
    let (mut laid, mut placed) = (EntitySet::<Block>::new(), EntitySet::<Inst>::new());
    for &b in &func.layout {
        if !laid.insert(b) {
            errors.push(format!("{b} is in the layout twice"));
        }
        for &i in func.blocks[b].insts.iter().filter(|i| !placed.insert(**i)) {
            errors.push(format!("{b}: `{}` is in two places", inst_text(func, &func.insts[i])));
        }
    }
    for &b in &func.layout {
        for t in func.blocks[b].term.targets().into_iter().filter(|t| !laid.contains(t.block)) {
            errors.push(format!("{b} leads to {}, which is not in the layout", t.block));
        }
    }
    if func.blocks[func.entry_block()].params.iter().next().is_some() {
        errors.push("the entry has parameters".into());
    }
}
