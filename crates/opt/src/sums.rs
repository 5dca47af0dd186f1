//! Sums of two terms, of 32 bits or of 64: an IADD3, or two of which one has the other's carry.

use cranelift_entity::SecondaryMap;
pub(crate) use ori::pairs::{is_zero, plain, value_of};
use ori::{Block, Function, Inst, InstData, Name, Operand, Value};
use sass::ops::{Iadd3, Iadd3Mods};
use sass::{Reg, RegOp};
use smallvec::SmallVec;

/// Instruction, block and position that define each value.
pub(crate) type Places = SecondaryMap<Value, Option<(Inst, Block, usize)>>;

/// Where the values are defined.
pub(crate) fn places(func: &Function) -> Places {
    let mut at: Places = func.per_value();
    for &b in &func.layout {
        for (k, &i) in func.blocks[b].insts.iter().enumerate() {
            func.insts[i].for_each_def(|n| {
                if let Some(v) = n.value() {
                    at[v] = Some((i, b, k));
                }
            });
        }
    }
    at
}

/// A sum of two terms.
pub(crate) struct Sum {
    /// The instruction that adds the lower words.
    pub inst: Inst,
    /// The lower words.
    pub low: [Operand; 2],
    /// Of 64 bits, what adds the upper words.
    pub high: Option<Upper>,
}

/// The addition of upper words.
pub(crate) struct Upper {
    pub inst: Inst,
    pub terms: [Operand; 2],
}

/// The sum whose last instruction is `i`, of block `b`, and the other one of which, if there is one, is there, too. Nothing else needs
/// the carry between them, and no other carry goes in or out.
pub(crate) fn sum(
    func: &Function,
    at: &Places,
    uses: &SecondaryMap<Value, u32>,
    i: Inst,
    b: Block,
) -> Option<Sum> {
    let d = &func.insts[i];
    let last = Iadd3::of(d)?;
    value_of(last.d)?;
    if !is_pred(last.carry_out, Name::Phys(Reg::PT), false) {
        return None;
    }
    let carry = match last.carry {
        Operand::Reg(r) if !r.not => r.reg.value()?,
        _ => return Some(Sum { inst: i, low: terms(d, None)?, high: None }),
    };
    let (inst, block, _) = at[carry].filter(|_| uses[carry] == 1)?;
    let lower = &func.insts[inst];
    let first = Iadd3::of(lower)?;
    value_of(first.d)?;
    if block != b || value_of(first.carry_out) != Some(carry) {
        return None;
    }
    let upper = Upper { inst: i, terms: terms(d, Some(Name::Val(carry)))? };
    Some(Sum { inst, low: terms(lower, None)?, high: Some(upper) })
}

/// The operand is this predicate, negated or not.
pub(crate) fn is_pred(o: &Operand, name: Name, not: bool) -> bool {
    matches!(o, Operand::Reg(r) if r.reg == name && r.not == not)
}

/// The two summands of a word of an addition: IADD3 with a zero among its sources, and the carry it takes.
pub(crate) fn terms(d: &InstData, carry_in: Option<Name>) -> Option<[Operand; 2]> {
    let (s, mods) = (Iadd3::of(d)?, Iadd3Mods::of(d)?);
    if !d.is_unguarded() || mods.extended != carry_in.is_some() {
        return None;
    }
    let pt = Name::Phys(Reg::PT);
    let carry = match carry_in {
        None => is_pred(s.carry, pt, true),
        Some(c) => is_pred(s.carry, c, false),
    };
    let carries = carry && is_pred(s.carry2, pt, true);
    let sources = [s.a, s.b, s.c];
    if !carries || !is_pred(s.carry_out2, pt, false) || !sources.into_iter().all(plain) {
        return None;
    }
    let mut words: SmallVec<[Operand; 3]> = sources.into_iter().filter(|o| !is_zero(o)).copied().collect();
    // A zero may be a summand, too.
    while words.len() < 2 {
        words.push(Operand::Imm(0));
    }
    match &words[..] {
        [a, b] => Some([*a, *b]),
        _ => None,
    }
}

/// An addition without carries.
pub(crate) fn addition(d: Operand, a: Operand, b: Operand) -> Iadd3<Operand> {
    let pt = |not| Operand::Reg(RegOp { not, ..RegOp::plain(Name::Phys(Reg::PT)) });
    let (carry_out, carry) = (pt(false), pt(true));
    let c = ori::operand(Name::Phys(Reg::RZ));
    Iadd3 { d, carry_out, carry_out2: carry_out, a, b, c, carry, carry2: carry }
}
