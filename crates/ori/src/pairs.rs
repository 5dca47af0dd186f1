//! Numbers of 64 bits in pairs of registers, before the optimizer splits what computes on them into words: sums, comparisons, and what
//! pairs are put together of.

use crate::function::{Function, InstData, Name, Operand, Value, operand};
use cranelift_entity::SecondaryMap;
use sass::ops::{Iadd, IaddMods, Int64, Isetp, IsetpMods};
use sass::{Reg, RegOp};

/// Whether an operand has no sign.
pub fn plain(o: &Operand) -> bool {
    match o {
        Operand::Reg(r) => !r.neg && !r.not && !r.abs,
        Operand::Const { neg, not, abs, .. } => !neg && !not && !abs,
        Operand::Imm(_) => true,
        _ => false,
    }
}

/// Whether an operand is zero.
pub fn is_zero(o: &Operand) -> bool {
    matches!(o, Operand::Imm(0)) || *o == operand(Name::Phys(Reg::RZ))
}

fn is_pt(o: &Operand, not: bool) -> bool {
    *o == Operand::Reg(RegOp { not, ..RegOp::plain(Name::Phys(Reg::PT)) })
}

/// The value that an operand is, whole and without a sign.
pub fn value_of(o: &Operand) -> Option<Value> {
    match o {
        Operand::Reg(r) if *r == RegOp::plain(r.reg) => match r.reg {
            Name::Val(v) => Some(v),
            _ => None,
        },
        _ => None,
    }
}

/// A sum of 64 bits that is one instruction still.
pub struct WideSum {
    /// What it makes.
    pub to: Value,
    /// Pairs of registers, with a sign or none, neighbours in constant memory, or numbers that are extended by their sign.
    pub terms: [Operand; 2],
}

impl WideSum {
    /// Of an instruction without a guard.
    pub fn of(d: &InstData) -> Option<WideSum> {
        Self::under_any_guard(d).filter(|_| d.is_unguarded())
    }

    /// Of an instruction with a guard or without.
    pub fn under_any_guard(d: &InstData) -> Option<WideSum> {
        let (s, m) = (Iadd::of(d)?, IaddMods::of(d)?);
        let alone = m == IaddMods { wide: true, extended: false }
            && is_pt(s.carry_out, false)
            && is_pt(s.carry, true);
        alone.then_some(())?;
        Some(WideSum { to: value_of(s.d)?, terms: [*s.a, *s.b] })
    }

    /// What is added to a number, and that number: a pair of registers without a sign.
    pub fn with_number(&self) -> Option<(Value, i64)> {
        let [x, y] = &self.terms;
        let parts = |v: &Operand, n: &Operand| match n {
            Operand::Imm(n) => Some((value_of(v)?, i64::from(*n as i32))),
            _ => None,
        };
        parts(x, y).or_else(|| parts(y, x))
    }
}

/// The words of a term of a [`WideSum`], whatever it was put together of. A minus is a complement of the upper word, which takes the lower one's carry.
pub fn words(term: Operand) -> [Operand; 2] {
    let zero = operand(Name::Phys(Reg::RZ));
    match term {
        Operand::Imm(0) => [zero; 2],
        Operand::Imm(n) => match n as i32 >> 31 {
            0 => [term, zero],
            sign => [term, Operand::Imm(sign as u32)],
        },
        Operand::Reg(RegOp { reg: Name::Val(v), neg, .. }) => {
            let word = |k| RegOp::plain(Name::Part(v, k));
            [Operand::Reg(RegOp { neg, ..word(0) }), Operand::Reg(RegOp { not: neg, ..word(1) })]
        }
        Operand::Const { bank, index, offset, neg, abs, .. } => {
            let word = |offset, neg, not| Operand::Const { bank, index, offset, neg, abs, not };
            [word(offset, neg, false), word(offset + 4, false, neg)]
        }
        other => [other, zero],
    }
}

/// The words that pairs were put together of: registers without a sign, constants and numbers.
pub struct Collected(SecondaryMap<Value, Option<[Operand; 2]>>);

impl Collected {
    /// Of all pairs of a function.
    pub fn of(func: &Function) -> Collected {
        let mut found = SecondaryMap::new();
        for d in func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]) {
            if let Some((Operand::Reg(to), &[low, high])) = d.collected().filter(|_| d.is_unguarded())
                && let Name::Val(v) = to.reg
                && [low, high].iter().all(plain)
            {
                found[v] = Some([low, high]);
            }
        }
        Collected(found)
    }

    /// The words of a term of a [`WideSum`]: those that it was put together of, so that nothing has to be for this.
    pub fn words(&self, term: Operand) -> [Operand; 2] {
        let Operand::Reg(RegOp { reg: Name::Val(v), neg, .. }) = term else { return words(term) };
        let found = self.0[v].and_then(|[low, high]| match neg {
            false => Some([low, high]),
            true => Some([signed(low, true, false)?, signed(high, false, true)?]),
        });
        found.unwrap_or_else(|| words(term))
    }

    /// The upper word of a term that has no bit in the lower one, to be added without a carry.
    pub fn upper_alone(&self, term: Operand) -> Option<Operand> {
        let Operand::Reg(RegOp { reg: Name::Val(v), neg, .. }) = term else { return None };
        let [low, high] = self.0[v]?;
        let taken = match neg {
            false => Some(high),
            true if is_zero(&high) => Some(high),
            true => signed(high, true, false),
        };
        taken.filter(|_| is_zero(&low))
    }
}

/// An operand with a minus or complemented. A minus before zero is none: it would have to have a carry.
fn signed(o: Operand, neg: bool, not: bool) -> Option<Operand> {
    let number = |n: u32| if neg { n.wrapping_neg() } else { !n };
    match o {
        o if is_zero(&o) => not.then_some(Operand::Imm(number(0))),
        Operand::Imm(n) => Some(Operand::Imm(number(n))),
        Operand::Reg(r) => Some(Operand::Reg(RegOp { neg, not, ..r })),
        Operand::Const { bank, index, offset, abs, .. } => {
            Some(Operand::Const { bank, index, offset, neg, abs, not })
        }
        _ => None,
    }
}

/// Whether an instruction compares pairs.
pub fn compares(d: &InstData) -> bool {
    Isetp::of(d).is_some()
        && IsetpMods::of(d).is_some_and(|m| matches!(m.kind, Some(Int64::U64 | Int64::S64)) && !m.extended)
}
