//! Values that one cheap instruction makes again of others, which are in registers anyway wherever they are read: the sign of a number,
//! an index with something added. They need no register of their own.

use super::only_result;
use crate::liveness::Ranges;
use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::{Function, Inst, InstData, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use sass::{Opcode, Reg, RegFile};

/// The instructions that make such values.
pub(super) fn found(func: &Function, cfg: &Cfg, ranges: &Ranges) -> SecondaryMap<Value, Option<Inst>> {
    // By candidate: its instruction, as long as everything that it reads lives at all places.
    let mut candidates: FxHashMap<Value, Inst> = FxHashMap::default();
    for &i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
        if let Some(v) = only_result(&func.insts[i]).filter(|v| is_cheap(func, &func.insts[i], *v)) {
            candidates.insert(v, i);
        }
    }
    let n = &ranges.numbering;
    let mut read = |v: Value, at: u32| {
        if let Some(i) = candidates.get(&v)
            && !sources_live(func, &func.insts[*i], ranges, 2 * at)
        {
            candidates.remove(&v);
        }
    };
    for &b in &cfg.rpo {
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_use(|name| name.value().into_iter().for_each(|v| read(v, n.inst[i])));
        }
        let term = &func.blocks[b].term;
        term.used_name().and_then(Name::value).into_iter().for_each(|v| read(v, n.term[b]));
        term.targets().into_iter().flat_map(|t| &t.args).for_each(|a| read(*a, n.term[b]));
    }
    let mut found = SecondaryMap::new();
    candidates.into_iter().for_each(|(v, i)| found[v] = Some(i));
    found
}

/// Whether an instruction computes a general register of others, in few cycles and without predicates.
fn is_cheap(func: &Function, d: &InstData, v: Value) -> bool {
    use Opcode::{IADD3, IMAD, LEA, LOP3, SHF};
    let takes = |(k, o): (usize, &Operand)| match o {
        _ if d.is_def(k) => true,
        Operand::Reg(r) => match r.reg {
            Name::Phys(p) => p == Reg::PT || p == Reg::RZ,
            Name::Val(s) | Name::Part(s, _) => func.values[s].file == RegFile::R,
        },
        Operand::Imm(_) | Operand::Const { index: None, .. } => true,
        _ => false,
    };
    matches!(d.op, Op::Sass(IADD3 | IMAD | LEA | LOP3 | SHF))
        && d.is_unguarded()
        && func.values[v].file == RegFile::R
        && func.values[v].width <= 2
        && d.operands.iter().enumerate().all(takes)
}

/// Whether all registers that an instruction reads are live at a point.
fn sources_live(func: &Function, d: &InstData, ranges: &Ranges, point: u32) -> bool {
    let mut all = true;
    d.for_each_use(|name| {
        ranges.lanes.of(func, name, 1, |lane| {
            let lives = ranges.intervals.of(lane);
            let after = lives.partition_point(|s| s.end <= point);
            all &= lives.get(after).is_some_and(|s| s.start <= point);
        });
    });
    all
}
