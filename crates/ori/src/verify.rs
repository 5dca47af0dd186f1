//! Checks what every pass may rely on: slot shapes, one definition per value, uses dominated by it, block
//! arguments that fit the parameters.

use crate::cfg::{Cfg, DomTree};
use crate::function::{Block, Function, InstData, Name, Op, Operand, Value};
use crate::print::inst_text;
use cranelift_entity::SecondaryMap;
use sass::{RegFile, Role, SlotKind};

/// Verifies a function in SSA.
///
/// # Errors
/// Every violation found, one line each.
pub fn verify(func: &Function) -> Result<(), Vec<String>> {
    let cfg = Cfg::new(func);
    let dom = DomTree::dominators(&cfg);
    let mut errors = Vec::new();
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
            shape(func, d, &mut errors);
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
        let end = data.insts.len() + 1;
        if let Some(v) = data.term.used_name().and_then(Name::value) {
            check(&mut errors, v, end, &|| data.term.to_string());
        }
        for t in data.term.targets() {
            for &a in &t.args {
                check(&mut errors, a, end, &|| data.term.to_string());
            }
            let params = &func.blocks[t.block].params;
            let fits = params.len() == t.args.len()
                && params.iter().zip(&t.args).all(|(p, a)| func.values[*p] == func.values[*a]);
            if !fits {
                errors.push(format!("{b}: arguments of `{t}` do not fit the parameters"));
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn shape(func: &Function, d: &InstData, errors: &mut Vec<String>) {
    let mut bad = |why: &str| errors.push(format!("{why}: {}", inst_text(func, d)));
    if let Op::Sass(op) = d.op {
        if d.operands.len() != op.slots().len() {
            return bad("wrong operand count");
        }
        for (i, (o, slot)) in d.operands.iter().zip(op.slots()).enumerate() {
            if let Operand::Reg(r) = o {
                let have = func.shape(r.reg);
                let zero = matches!(r.reg, Name::Phys(p) if p.is_zero());
                if !zero && have.width != op.width(i, &d.mods) {
                    bad(&format!("operand {i} spans {} registers, not {}", op.width(i, &d.mods), have.width));
                }
                let fits = match slot.kind {
                    SlotKind::Reg(f) => have.file == f,
                    SlotKind::Source => matches!(have.file, RegFile::R | RegFile::UR),
                    _ => false,
                };
                if !fits {
                    bad(&format!("operand {i} is in the wrong register file"));
                }
            }
            if slot.role != Role::Use && matches!(o, Operand::Reg(r) if matches!(r.reg, Name::Part(..))) {
                bad("part of a value is written");
            }
        }
    }
    let mut defs = 0;
    d.for_each_def(|_| defs += 1);
    let want = if d.is_unguarded() { 0 } else { defs };
    if d.kept.len() != want {
        bad("guarded definition without the value it keeps");
    }
}
