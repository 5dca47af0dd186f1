//! Sums and logic of three: where a sum of two is only added to a third value, one IADD3 does both, and of 64-bit
//! sums the same two carries go from the lower words to the upper ones; likewise LOP3 takes any function of three
//! values. Selections between a value and itself, and sums with nothing, are copies.
//!
//! Both instructions have to be in one block: the inputs of the first live on until the second.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Value};
use sass::ops::{Iadd3, Iadd3Mods, Lop3, Lop3Mods, Sel, SelMods};
use sass::{Opcode, Reg, RegFile, RegOp};
use smallvec::SmallVec;

/// What is known of the values.
#[derive(Default)]
struct Facts {
    /// Instruction and block that define each.
    defs: SecondaryMap<Value, Option<(Inst, Block)>>,
    /// How often it is used.
    uses: SecondaryMap<Value, u32>,
    /// The addition that takes a predicate as its carry.
    carried: SecondaryMap<Value, Option<Inst>>,
}

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    2,
    "three-inputs",
    "OriReassociateAndCommon",
    "two sums or two logical operations as one of three inputs",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let mut facts = Facts { uses: crate::uses::count(func), ..Facts::default() };
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            d.for_each_def(|n| {
                if let Some(v) = n.value() {
                    facts.defs[v] = Some((i, b));
                }
            });
            if let Some(v) = Iadd3::of(d).and_then(|s| plain(s.carry)) {
                facts.carried[v] = Some(i);
            }
        }
    }
    let mut changed = false;
    for n in 0..func.layout.len() {
        let b = func.layout[n];
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            let d = &func.insts[i];
            if d.guard != ori::ALWAYS {
                continue;
            }
            changed |= match d.op {
                Op::Sass(Opcode::IADD3) => sum(func, &facts, i, b) || wide_sum(func, &facts, i, b),
                Op::Sass(Opcode::LOP3) => {
                    let mut any = false;
                    // What one input was made of may leave room for another: `(x & y) | (!x & z)`.
                    while logic(func, &mut facts, i, b) {
                        any = true;
                    }
                    any
                }
                Op::Sass(Opcode::SEL) => selection(func, i),
                _ => false,
            };
        }
    }
    changed
}

const PT: Name = Name::Phys(Reg::PT);

fn is(d: &InstData, op: Opcode) -> bool {
    d.op == Op::Sass(op)
}

/// The value that an operand names whole and without modifiers.
fn plain(o: &Operand) -> Option<Value> {
    match o {
        Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. }) => Some(*v),
        _ => None,
    }
}

fn names(o: &Operand, name: Name, not: bool) -> bool {
    matches!(o, Operand::Reg(r) if r.reg == name && r.not == not)
}

fn is_zero(o: &Operand) -> bool {
    match o {
        Operand::Reg(r) => r.reg == Name::Phys(Reg::RZ) && !r.not,
        o => *o == Operand::Imm(0),
    }
}

/// Whether no carry goes out of an addition.
fn keeps_carry(s: &Iadd3<&Operand>) -> bool {
    names(s.carry_out, PT, false) && names(s.carry_out2, PT, false)
}

/// The operands of an addition that has neither carries in nor modifiers.
fn start(d: &InstData) -> Option<Iadd3<&Operand>> {
    let s = Iadd3::of(d)?;
    let bare = Iadd3Mods::of(d)? == Iadd3Mods { extended: false };
    (bare && names(s.carry, PT, true) && names(s.carry2, PT, true)).then_some(s)
}

/// The instruction that makes a value which nothing but this block's next user needs.
fn inner(func: &Function, facts: &Facts, v: Value, op: Opcode, b: Block) -> Option<Inst> {
    let (i, at) = facts.defs[v]?;
    let d = &func.insts[i];
    (at == b && facts.uses[v] == 1 && is(d, op) && d.guard == ori::ALWAYS).then_some(i)
}

/// Terms that are not zero, `without` one of them.
fn terms<'a>(s: &Iadd3<&'a Operand>, without: Option<Value>) -> impl Iterator<Item = &'a Operand> {
    s.terms().into_iter().filter(move |o| !is_zero(o) && (without.is_none() || plain(o) != without))
}

/// Puts others in the place of the terms of an addition.
fn set_terms(d: &mut InstData, new: [Operand; 3]) {
    if let Some(s) = Iadd3::of_mut(d) {
        [*s.a, *s.b, *s.c] = new;
    }
}

/// Up to three terms in the order that IADD3 takes them: what is not a register in the middle.
fn arranged<'a>(all: impl Iterator<Item = &'a Operand>) -> Option<[Operand; 3]> {
    let all: SmallVec<[&Operand; 4]> = all.collect();
    let (regs, others): (SmallVec<[&Operand; 4]>, SmallVec<[&Operand; 4]>) =
        all.iter().copied().partition(|o| matches!(o, Operand::Reg(_)));
    if all.len() > 3 || others.len() > 1 {
        return None;
    }
    let mut regs = regs.into_iter().cloned();
    let mut next = || regs.next().unwrap_or(Operand::reg(Name::Phys(Reg::RZ)));
    let first = next();
    let middle = others.first().map_or_else(&mut next, |o| *(*o));
    Some([first, middle, next()])
}

fn copy(func: &mut Function, i: Inst, to: Operand, source: Operand) -> bool {
    func.insts[i].become_copy(to, source);
    true
}

/// What an addition of nothing leaves alone.
fn only_term(s: &Iadd3<&Operand>) -> Option<Operand> {
    let mut all = terms(s, None);
    let one = all.next()?;
    (plain(one).is_some() && all.next().is_none()).then_some(*one)
}

/// A 32-bit sum.
fn sum(func: &mut Function, facts: &Facts, i: Inst, b: Block) -> bool {
    let Some(s) = start(&func.insts[i]).filter(keeps_carry) else { return false };
    if let Some(one) = only_term(&s) {
        let to = *s.d;
        return copy(func, i, to, one);
    }
    let found = s.terms().into_iter().filter_map(plain).find_map(|v| {
        let first = &func.insts[inner(func, facts, v, Opcode::IADD3, b)?];
        let first = start(first).filter(keeps_carry)?;
        arranged(terms(&first, None).chain(terms(&s, Some(v))))
    });
    let Some(new) = found else { return false };
    set_terms(&mut func.insts[i], new);
    true
}

/// A 64-bit sum, at its upper words.
fn wide_sum(func: &mut Function, facts: &Facts, high: Inst, b: Block) -> bool {
    let Some((low, low_terms, high_terms)) = match_wide_sum(func, facts, high, b) else { return false };
    let carry = func.add_value(RegFile::P, 1);
    let d = &mut func.insts[low];
    d.operands[Iadd3::CARRY_OUT2] = ori::operand(carry);
    set_terms(d, low_terms);
    let d = &mut func.insts[high];
    d.operands[Iadd3::CARRY2] = ori::operand(carry);
    set_terms(d, high_terms);
    true
}

/// The lower addition of a 64-bit sum whose one term is a sum, and the terms of both.
fn match_wide_sum(
    func: &Function,
    facts: &Facts,
    high: Inst,
    b: Block,
) -> Option<(Inst, [Operand; 3], [Operand; 3])> {
    // The upper addition takes one carry, which nothing else needs, and passes none on.
    let upper = |i: Inst| {
        let d = &func.insts[i];
        let s = Iadd3::of(d)?;
        let fits = Iadd3Mods::of(d) == Some(Iadd3Mods { extended: true })
            && keeps_carry(&s)
            && names(s.carry2, PT, true)
            && unsigned(&s);
        let carry = plain(s.carry).filter(|c| fits && facts.uses[*c] == 1)?;
        let (low, at) = facts.defs[carry]?;
        let l = &func.insts[low];
        let first = start(l)?;
        let lower = at == b
            && l.guard == ori::ALWAYS
            && unsigned(&first)
            && plain(first.carry_out) == Some(carry)
            && names(first.carry_out2, PT, false);
        lower.then_some(low)
    };
    let sources = |i: Inst| Iadd3::of(&func.insts[i]);
    let low = upper(high)?;
    let (h, l) = (sources(high)?, sources(low)?);
    h.terms().into_iter().filter_map(plain).find_map(|v| {
        let first_high = inner(func, facts, v, Opcode::IADD3, b)?;
        let first_low = upper(first_high)?;
        let (first_low, first_high) = (sources(first_low)?, sources(first_high)?);
        let sum = plain(first_low.d).filter(|s| facts.uses[*s] == 1)?;
        if !l.terms().into_iter().any(|o| plain(o) == Some(sum)) {
            return None;
        }
        let both = |first, then, v| arranged(terms(first, None).chain(terms(then, Some(v))));
        Some((low, both(&first_low, &l, sum)?, both(&first_high, &h, v)?))
    })
}

/// Whether no term is negated: with negated ones the carries mean something else.
fn unsigned(s: &Iadd3<&Operand>) -> bool {
    s.terms().into_iter().all(|o| match o {
        Operand::Reg(r) => !r.neg && !r.not && !r.abs,
        Operand::Const { neg, abs, not, .. } => !(*neg || *abs || *not),
        _ => true,
    })
}

/// Bitwise logic.
fn logic(func: &mut Function, facts: &mut Facts, i: Inst, b: Block) -> bool {
    let Some(Joined { inner, inputs, table }) = match_logic(func, facts, i, b) else { return false };
    // The inner one has no user any more; what both read has one less.
    facts.uses[inner] = 0;
    let read = |d: &InstData| -> SmallVec<[Value; 3]> {
        Logic::of(d).into_iter().flat_map(|l| l.inputs).filter_map(plain).collect()
    };
    if let Some((first, _)) = facts.defs[inner] {
        let outer = read(&func.insts[i]);
        let both = read(&func.insts[first]).into_iter().filter(|v| outer.contains(v));
        both.for_each(|v| facts.uses[v] -= 1);
    }
    if let Some(s) = Lop3::of_mut(&mut func.insts[i]) {
        [*s.a, *s.b, *s.c] = inputs;
        *s.table = Operand::Imm(table);
    }
    true
}

/// A LOP3 in the place of two.
struct Joined {
    /// What the inner one made.
    inner: Value,
    inputs: [Operand; 3],
    table: u32,
}

/// Inputs and table of a LOP3 that has a number for its result only.
struct Logic<'a> {
    inputs: [&'a Operand; 3],
    table: u32,
}

impl Logic<'_> {
    fn of(d: &InstData) -> Option<Logic<'_>> {
        let s = Lop3::of(d)?;
        let Operand::Imm(table) = *s.table else { return None };
        let plain = Lop3Mods::of(d)? == Lop3Mods { table: true, pand: false };
        (plain && names(s.p, PT, false) && names(s.join, PT, true))
            .then(|| Logic { inputs: s.inputs(), table })
    }
}

fn match_logic(func: &Function, facts: &Facts, i: Inst, b: Block) -> Option<Joined> {
    let last = Logic::of(&func.insts[i])?;
    last.inputs.into_iter().filter_map(plain).find_map(|v| {
        let first = Logic::of(&func.insts[inner(func, facts, v, Opcode::LOP3, b)?])?;
        let mut inputs: SmallVec<[&Operand; 6]> = SmallVec::new();
        for o in first.inputs.into_iter().chain(last.inputs) {
            if !is_zero(o) && plain(o) != Some(v) && !inputs.contains(&o) {
                inputs.push(o);
            }
        }
        let new = arranged(inputs.iter().copied())?;
        let mut table = 0;
        for row in 0..8u32 {
            // The input at each place has this value in the row; zero is zero.
            let bit = |o: &Operand| {
                !is_zero(o) && new.iter().position(|n| n == o).is_some_and(|p| row >> (2 - p) & 1 != 0)
            };
            let inside = look_up(&first, bit);
            let outside = look_up(&last, |o| if plain(o) == Some(v) { inside } else { bit(o) });
            table |= u32::from(outside) << row;
        }
        Some(Joined { inner: v, inputs: new, table })
    })
}

/// The result bit of a LOP3 for bits of its inputs.
fn look_up(logic: &Logic<'_>, bit: impl Fn(&Operand) -> bool) -> bool {
    let row = logic.inputs.into_iter().fold(0, |row, o| row << 1 | u32::from(bit(o)));
    logic.table >> row & 1 != 0
}

/// A selection between a value and itself.
fn selection(func: &mut Function, i: Inst) -> bool {
    let d = &func.insts[i];
    let Some(s) = Sel::of(d) else { return false };
    let same = s.a == s.b || is_zero(s.a) && is_zero(s.b);
    if !same || SelMods::of(d) != Some(SelMods { wide: false }) {
        return false;
    }
    let (to, source) = (*s.d, *s.a);
    match &source {
        Operand::Reg(r) if r.neg || r.not || r.abs => false,
        _ => copy(func, i, to, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Terminator, operand};
    use sass::Mod;
    use sass::{SpecialReg, Target};

    /// The code that `build` makes of four numbers, after the pass and the removal of what nobody reads.
    fn after(build: impl Fn(&mut Builder, &[Value]) -> Value) -> Vec<String> {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let x: Vec<Value> =
            [SpecialReg::SR_TID_X, SpecialReg::SR_TID_Y, SpecialReg::SR_TID_Z, SpecialReg::SR_LANEID]
                .map(|s| b.def(Opcode::S2R, &[], &[Operand::Special(s)]))
                .to_vec();
        let result = build(&mut b, &x);
        let address =
            Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };
        b.inst(Opcode::STS, &[], &[address, operand(result)]);
        b.terminate(Terminator::Exit);
        run(&mut f);
        ori::verify::verify(&f).unwrap();
        ori::dead::remove(&mut f);
        let kept = ["IADD3", "LOP3", "SEL", "copy"];
        let text = f.to_string();
        text.lines().filter(|l| kept.iter().any(|k| l.contains(k))).map(|l| l.trim().to_string()).collect()
    }

    fn zero() -> Operand {
        Operand::reg(Name::Phys(Reg::RZ))
    }
    fn pt(not: bool) -> Operand {
        Operand::Reg(RegOp { not, ..RegOp::plain(PT) })
    }
    fn add(b: &mut Builder, x: Operand, y: Operand) -> Value {
        let v = b.func.add_value(RegFile::R, 1);
        let operands = [operand(v), pt(false), pt(false), x, y, zero(), pt(true), pt(true)];
        b.inst(Opcode::IADD3, &[], &operands);
        v
    }
    fn lop(b: &mut Builder, x: Operand, y: Operand, table: u32) -> Value {
        let v = b.func.add_value(RegFile::R, 1);
        let operands = [pt(false), operand(v), x, y, zero(), Operand::Imm(table), pt(true)];
        b.inst(Opcode::LOP3, &[Mod::LUT], &operands);
        v
    }

    #[test]
    fn sums_of_three() {
        let code = after(|b, x| {
            let s = add(b, operand(x[0]), Operand::Imm(7));
            add(b, operand(x[1]), operand(s))
        });
        assert_eq!(code, ["v5:R = IADD3 PT, PT, v0, 0x7, v1, !PT, !PT"]);
        let code = after(|b, x| {
            let s = add(b, operand(x[0]), operand(x[1]));
            let s = add(b, operand(x[2]), operand(s));
            add(b, operand(x[3]), operand(s))
        });
        assert_eq!(code.len(), 2, "{code:?}");
        let code = after(|b, x| add(b, operand(x[0]), Operand::Imm(0)));
        assert_eq!(code, ["v4:R = copy v0"]);
    }

    #[test]
    fn sums_of_three_words_each() {
        let wide = |b: &mut Builder, x: [Value; 2], y: [Value; 2]| {
            let [lo, hi] = [0, 1].map(|_| b.func.add_value(RegFile::R, 1));
            let carry = b.func.add_value(RegFile::P, 1);
            let [p, q] = [operand(x[0]), operand(y[0])];
            b.inst(
                Opcode::IADD3,
                &[],
                &[operand(lo), operand(carry), pt(false), p, q, zero(), pt(true), pt(true)],
            );
            let [p, q] = [operand(x[1]), operand(y[1])];
            let operands = [operand(hi), pt(false), pt(false), p, q, zero(), operand(carry), pt(true)];
            b.inst(Opcode::IADD3, &[Mod::X], &operands);
            [lo, hi]
        };
        let code = after(|b, x| {
            let s = wide(b, [x[0], x[1]], [x[2], x[3]]);
            let [lo, hi] = wide(b, s, [x[1], x[2]]);
            b.def(Opcode::IMAD, &[], &[operand(lo), operand(hi), zero(), pt(true)])
        });
        assert_eq!(
            code,
            ["v7:R, v9:P, v11:P = IADD3 v0, v2, v1, !PT, !PT", "v8:R = IADD3.X PT, PT, v1, v3, v2, v9, v11"]
        );
    }

    #[test]
    fn logic_of_three() {
        // (a & b) ^ c
        let code = after(|b, x| {
            let t = lop(b, operand(x[0]), operand(x[1]), 0xc0);
            lop(b, operand(t), operand(x[2]), 0x3c)
        });
        assert_eq!(code, ["v5:R = LOP3.LUT PT, v0, v1, v2, 0x6a, !PT"]);
        // (a & b) | (~a & c), a choice by bits: two merges into one.
        let code = after(|b, x| {
            let t = lop(b, operand(x[0]), operand(x[1]), 0xc0);
            let e = lop(b, operand(x[0]), operand(x[2]), 0x0c);
            lop(b, operand(t), operand(e), 0xfc)
        });
        assert_eq!(code.len(), 1, "{code:?}");
        // a & ~(a | 5): the immediate keeps to the middle.
        let code = after(|b, x| {
            let t = lop(b, operand(x[0]), Operand::Imm(5), 0xfc);
            lop(b, operand(x[0]), operand(t), 0x30)
        });
        assert_eq!(code, ["v5:R = LOP3.LUT PT, v0, 0x5, RZ, 0x0, !PT"]);
        let code = after(|b, x| {
            let t = lop(b, operand(x[0]), Operand::Imm(5), 0xfc);
            lop(b, operand(t), Operand::Imm(9), 0xc0)
        });
        assert_eq!(code.len(), 2, "{code:?}");
    }

    #[test]
    fn nothing_to_select() {
        let code = after(|b, x| {
            let pt = || pt(false);
            let p =
                b.def_pred(Opcode::ISETP, &[Mod::LT, Mod::AND], &[operand(x[0]), operand(x[1]), pt(), pt()]);
            b.def(Opcode::SEL, &[], &[zero(), Operand::Imm(0), operand(p)])
        });
        assert_eq!(code, ["v5:R = copy RZ"]);
    }
}
