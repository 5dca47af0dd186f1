//! Comparisons with zero of what a predicate chose are that predicate: `p ? 1 : 0`, as bytes or words of front ends are that stand for a truth, also
//! behind an extension of it or under a mask. What two predicates chose, one after the other, is logic on both: `cp.async` of a tile's edge
//! reads `q ? (p ? 16 : 0) : 0` bytes.

use crate::Pass;
use crate::nonzero::test;
use crate::sums::{self, Places, value_of};
use ori::{
    ALWAYS, Analyses, Block, Changed, Editor, Function, Inst, InstData, Macro, Name, Op, Operand, Operands,
    User, Value, operand,
};
use rustc_hash::FxHashMap;
use sass::ops::{Bool, Lop3, Lop3Mods, Prmt, PrmtMods, Sel, SelMods};
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp, compute};
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

/// What becomes of a number on its way, the last step first.
type Steps = SmallVec<[Step; BETWEEN]>;

/// One of those.
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

/// A predicate, or its complement.
#[derive(Clone, Copy)]
struct Literal {
    pred: Value,
    not: bool,
}

impl Literal {
    fn complement(self) -> Literal {
        Literal { not: !self.not, ..self }
    }
}

/// Where a number is another one than zero.
enum When {
    /// Everywhere, or nowhere.
    Same(bool),
    /// Where a predicate says so.
    One(Literal),
    /// Where both say so, or where either does.
    Two([Literal; 2], Bool),
}

/// A comparison of a number with zero.
struct Test {
    inst: Inst,
    result: Value,
    /// The number, and whether it is compared for equality.
    tested: Value,
    equal: bool,
}

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let at = sums::places(func);
    let mut found: Vec<(Test, When)> = Vec::new();
    for &b in &analyses.cfg(func).rpo {
        for &inst in &func.blocks[b].insts {
            if let Some((result, tested, equal)) = test(&func.insts[inst])
                && let Some(when) = (Maker { func, at: &at, block: b }).when(tested, &SmallVec::new(), true)
            {
                found.push((Test { inst, result, tested, equal }, when));
            }
        }
    }
    let mut e = Editor::new(func);
    // What took the place of a result: the predicate of a later choice may be one.
    let mut instead: FxHashMap<Value, Literal> = FxHashMap::default();
    for (t, when) in found {
        let now = |l: Literal| {
            let other = instead.get(&l.pred).copied().unwrap_or(Literal { not: false, ..l });
            Literal { not: other.not != l.not, ..other }
        };
        match when {
            When::Same(_) => {}
            When::One(l) => {
                let l = if t.equal { now(l).complement() } else { now(l) };
                if !l.not {
                    e.replace_all_uses(t.result, l.pred);
                } else if !e.replace_all_uses_with_complement(t.result, l.pred) {
                    continue;
                }
                instead.insert(t.result, l);
                e.erase(t.inst);
            }
            When::Two(literals, join) => {
                // Nothing is gained while the number is needed.
                let compares = |u: &User| match u {
                    User::Inst(i) => test(e.data(*i)).is_some(),
                    User::Terminator(_) => false,
                };
                if e.users(t.tested).iter().all(compares) {
                    let logic = both(t.result, literals.map(now), join, t.equal);
                    e.change(t.inst, |d| (d.op, d.mods, d.operands) = logic);
                }
            }
        }
    }
    e.finish()
}

/// What says where two predicates do, or where they do not.
fn both(result: Value, of: [Literal; 2], join: Bool, complement: bool) -> (Op, Mods, Operands<Name>) {
    let table = (0..8u32).filter(|n| {
        let [x, y] = [n >> 2 & 1 != 0, n >> 1 & 1 != 0];
        let holds = match join {
            Bool::AND => x && y,
            Bool::OR => x || y,
            Bool::XOR => x != y,
        };
        holds != complement
    });
    let table = table.fold(0, |t, n| t | 1 << n);
    let pt = operand(Name::Phys(Reg::PT));
    let [a, b] = of.map(|l| Operand::Reg(RegOp { not: l.not, ..RegOp::plain(Name::Val(l.pred)) }));
    let operands = [operand(result), pt, a, b, pt, Operand::Imm(table), Operand::Imm(0)];
    (Op::Sass(Opcode::PLOP3), Mods::of(&[Mod::LUT]), operands.into_iter().collect())
}

/// What makes the numbers that are compared in a block.
struct Maker<'a> {
    func: &'a Function,
    at: &'a Places,
    block: Block,
}

impl Maker<'_> {
    /// Where a number is another one than zero when these steps, the last one first, are done with it; `again`: what is chosen may have been chosen.
    fn when(&self, mut v: Value, steps: &Steps, again: bool) -> Option<When> {
        let mut steps = steps.clone();
        while steps.len() < BETWEEN {
            let (maker, block, _) = self.at[v]?;
            let d = &self.func.insts[maker];
            if d.guard != ALWAYS {
                return None;
            }
            if let Some((from, step)) = step(d) {
                steps.push(step);
                v = from;
                continue;
            }
            let s = Sel::of(d).filter(|_| SelMods::of(d) == Some(SelMods { wide: false }))?;
            let Operand::Reg(RegOp { reg: Name::Val(pred), neg: false, abs: false, not, .. }) = *s.choose
            else {
                return None;
            };
            if self.func.values[pred].file != RegFile::P {
                return None;
            }
            let here = Literal { pred, not };
            let part = |o: &Operand| match number(o) {
                Some(n) => Some(When::Same(steps.iter().rev().fold(n, |n, s| s.of(n)) != 0)),
                None if again && block == self.block => self.when(value_of(o)?, &steps, false),
                None => None,
            };
            return Some(match (part(s.a)?, part(s.b)?) {
                (When::Same(true), When::Same(false)) => When::One(here),
                (When::Same(false), When::Same(true)) => When::One(here.complement()),
                (When::One(l), When::Same(false)) => When::Two([l, here], Bool::AND),
                (When::Same(false), When::One(l)) => When::Two([l, here.complement()], Bool::AND),
                (When::One(l), When::Same(true)) => When::Two([l, here.complement()], Bool::OR),
                (When::Same(true), When::One(l)) => When::Two([l, here], Bool::OR),
                _ => return None,
            });
        }
        None
    }
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
