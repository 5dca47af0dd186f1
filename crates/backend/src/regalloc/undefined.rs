//! Values that hold nothing, made anew directly before whatever reads them: made once, one would have a register from there to its last reader.

use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{ALWAYS, Function, Inst, InstData, Loc, Macro, Name, Op, Value, operand};
use sass::Mods;
use thin_vec::{ThinVec, thin_vec};

/// Does so for all that read some. Operands of one instruction have one each: nothing keeps them in different registers, or in the same.
pub fn run(func: &mut Function, cfg: &Cfg) {
    let undefined = values(func, cfg);
    if undefined.is_clear() {
        return;
    }
    let holds_nothing = |n: Name| n.value().is_some_and(|v| undefined.contains(v.index()));
    for &b in &cfg.rpo {
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(old.len());
        for i in old {
            let mut reads = false;
            func.insts[i].for_each_use(|n| reads |= holds_nothing(n));
            if reads {
                let mut d = func.insts[i].clone();
                let loc = d.loc;
                d.map_uses(|n| if holds_nothing(n) { Name::Val(anew(func, n, loc, &mut out)) } else { n });
                func.insts[i] = d;
            }
            out.push(i);
        }
        let loc = func.blocks[b].term_loc;
        let mut term = func.blocks[b].term.clone();
        if let Some(n) = term.used_name_mut().filter(|n| holds_nothing(**n)) {
            *n = Name::Val(anew(func, *n, loc, &mut out));
        }
        for a in term.targets_mut().into_iter().flat_map(|t| &mut t.args) {
            if holds_nothing(Name::Val(*a)) {
                *a = anew(func, Name::Val(*a), loc, &mut out);
            }
        }
        func.blocks[b].term = term;
        func.blocks[b].insts = out;
    }
}

/// The values that hold nothing.
pub fn values(func: &Function, cfg: &Cfg) -> FixedBitSet {
    let mut found = FixedBitSet::with_capacity(func.values.len());
    for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
        let d = &func.insts[*i];
        if d.op == Op::Macro(Macro::Undef) && d.is_unguarded() {
            d.for_each_def(|n| found.extend(n.value().map(|v| v.index())));
        }
    }
    found
}

/// Another value that holds nothing, of the shape of `n`.
fn anew(func: &mut Function, n: Name, loc: Loc, out: &mut Vec<Inst>) -> Value {
    let shape = func.shape(n);
    let new = func.add_value(shape.file, shape.width);
    let nothing = InstData {
        guard: ALWAYS,
        op: Op::Macro(Macro::Undef),
        mods: Mods::none(),
        operands: thin_vec![operand(new)],
        kept: ThinVec::new(),
        loc,
    };
    out.push(func.insts.push(nothing));
    new
}
