//! Comparisons with zero of what a predicate chose are that predicate: `p ? 1 : 0`, as bytes or words of front ends are that stand for a truth, also
//! behind an extension of it or under a mask.

use crate::Pass;
use crate::nonzero::test;
use crate::sums::{self, Places, value_of};
use ori::{ALWAYS, Analyses, Changed, Editor, Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use sass::compute;
use sass::ops::{Lop3, Lop3Mods, Prmt, PrmtMods, Sel, SelMods};
use sass::{Reg, RegFile, RegOp};
use smallvec::SmallVec;

/// Most instructions between a choice and the comparison.
const BETWEEN: usize = 4;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "truths",
    "LateOriCommoning",
    "comparisons with zero of what a predicate chose as that predicate",
    run,
);

/// What becomes of a number on its way.
#[derive(Clone, Copy)]
enum Step {
    /// PRMT by this selector, zeros beside it.
    Bytes(u32),
    /// LOP3 with this table, and that number beside it.
    Logic(u32, u32),
}

impl Step {
    fn of(self, n: u32) -> u32 {
        match self {
            Step::Bytes(selector) => compute::prmt(n, selector, 0),
            Step::Logic(table, other) => compute::lop3(table, [n, other, 0]),
        }
    }
}

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let at = sums::places(func);
    let mut found: Vec<(Inst, Value, Value, bool)> = Vec::new();
    for &b in &analyses.cfg(func).rpo {
        for &i in &func.blocks[b].insts {
            if let Some((result, tested, equal)) = test(&func.insts[i])
                && let Some((p, holds)) = chosen(func, &at, tested)
            {
                found.push((i, result, p, holds == equal));
            }
        }
    }
    let mut e = Editor::new(func);
    // What took the place of a result, and whether it is its complement: the predicate of a later choice may be one.
    let mut instead: FxHashMap<Value, (Value, bool)> = FxHashMap::default();
    for (i, result, p, complement) in found {
        let (p, other) = instead.get(&p).copied().unwrap_or((p, false));
        let complement = complement != other;
        if !complement {
            e.replace_all_uses(result, p);
        } else if !e.replace_all_uses_with_complement(result, p) {
            continue;
        }
        instead.insert(result, (p, complement));
        e.erase(i);
    }
    e.finish()
}

/// The predicate that chose a number, and whether the number is another one than zero where it holds, and zero elsewhere (or the reverse).
fn chosen(func: &Function, at: &Places, mut v: Value) -> Option<(Value, bool)> {
    let mut steps: SmallVec<[Step; BETWEEN]> = SmallVec::new();
    while steps.len() < BETWEEN {
        let (maker, ..) = at[v]?;
        let d = &func.insts[maker];
        if d.guard != ALWAYS {
            return None;
        }
        if let Some((from, step)) = step(d) {
            steps.push(step);
            v = from;
            continue;
        }
        let s = Sel::of(d).filter(|_| SelMods::of(d) == Some(SelMods { wide: false }))?;
        let Operand::Reg(RegOp { reg: Name::Val(p), neg: false, abs: false, not, .. }) = *s.choose else {
            return None;
        };
        let becomes = |o: &Operand| Some(steps.iter().rev().fold(number(o)?, |n, s| s.of(n)) != 0);
        let (yes, no) = (becomes(s.a)?, becomes(s.b)?);
        return (yes != no && func.values[p].file == RegFile::P).then_some((p, yes != not));
    }
    None
}

/// What an instruction makes of one value.
fn step(d: &InstData) -> Option<(Value, Step)> {
    if d.op == Op::Macro(Macro::Copy) {
        let v = value_of(d.operands.get(1)?)?;
        return Some((v, Step::Bytes(0x3210)));
    }
    if let Some(s) = Prmt::of(d).filter(|_| PrmtMods::of(d) == Some(PrmtMods { mode: None })) {
        let fits = number(s.b) == Some(0);
        return fits.then_some((value_of(s.a)?, Step::Bytes(number(s.selector)?)));
    }
    let s = Lop3::of(d).filter(|_| Lop3Mods::of(d) == Some(Lop3Mods { table: true, pand: false }))?;
    let Operand::Imm(table) = *s.table else { return None };
    let alone = matches!(s.p, Operand::Reg(p) if p.reg == Name::Phys(Reg::PT));
    (alone && number(s.c) == Some(0)).then_some((value_of(s.a)?, Step::Logic(table, number(s.b)?)))
}

fn number(o: &Operand) -> Option<u32> {
    match o {
        Operand::Imm(n) => Some(*n),
        Operand::Reg(r) if *r == RegOp::plain(Name::Phys(Reg::RZ)) => Some(0),
        _ => None,
    }
}
