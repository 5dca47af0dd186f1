//! Sums of two terms, of 32 bits or of 64: an IADD3, or two of which one has the other's carry.

use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Name, Operand, Value};
use sass::ops::{Iadd, Iadd3, Iadd3Mods, IaddMods};
use sass::{Reg, RegOp};
use smallvec::SmallVec;

/// Instruction, block and position that define each value.
pub(crate) type Places = SecondaryMap<Value, Option<(Inst, Block, usize)>>;

/// Where the values are defined.
pub(crate) fn places(func: &Function) -> Places {
    let mut at: Places = SecondaryMap::new();
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

/// A sum of 64 bits that is one instruction still.
pub(crate) struct WideSum {
    pub to: Value,
    /// Pairs of registers, with a sign or none, neighbours in constant memory, or numbers that are extended by their sign.
    pub terms: [Operand; 2],
}

impl WideSum {
    /// Of an instruction without a guard.
    pub(crate) fn of(d: &InstData) -> Option<WideSum> {
        Self::under_any_guard(d).filter(|_| d.is_unguarded())
    }

    /// Of an instruction with a guard or without.
    pub(crate) fn under_any_guard(d: &InstData) -> Option<WideSum> {
        let (s, m) = (Iadd::of(d)?, IaddMods::of(d)?);
        let pt = Name::Phys(Reg::PT);
        let alone = m == IaddMods { wide: true, extended: false }
            && is_pred(s.carry_out, pt, false)
            && is_pred(s.carry, pt, true);
        alone.then_some(())?;
        Some(WideSum { to: value_of(s.d)?, terms: [*s.a, *s.b] })
    }

    /// What is added to a number, and that number: a pair of registers without a sign.
    pub(crate) fn with_number(&self) -> Option<(Value, i64)> {
        let [x, y] = &self.terms;
        let parts = |v: &Operand, n: &Operand| match n {
            Operand::Imm(n) => Some((value_of(v)?, i64::from(*n as i32))),
            _ => None,
        };
        parts(x, y).or_else(|| parts(y, x))
    }
}

/// The words of a term of a [`WideSum`], whatever it was put together of. A minus is a complement of the upper word, which takes the lower one's carry.
pub(crate) fn words(term: Operand) -> [Operand; 2] {
    let zero = ori::operand(Name::Phys(Reg::RZ));
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
pub(crate) struct Collected(SecondaryMap<Value, Option<[Operand; 2]>>);

impl Collected {
    /// Of all pairs of a function.
    pub(crate) fn of(func: &Function) -> Collected {
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
    pub(crate) fn words(&self, term: Operand) -> [Operand; 2] {
        let Operand::Reg(RegOp { reg: Name::Val(v), neg, .. }) = term else { return words(term) };
        let found = self.0[v].and_then(|[low, high]| match neg {
            false => Some([low, high]),
            true => Some([signed(low, true, false)?, signed(high, false, true)?]),
        });
        found.unwrap_or_else(|| words(term))
    }

    /// The upper word of a term that has no bit in the lower one, to be added without a carry.
    pub(crate) fn upper_alone(&self, term: Operand) -> Option<Operand> {
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

/// The word of an addition's operand, if it has no sign.
pub(crate) fn plain(o: &Operand) -> bool {
    match o {
        Operand::Reg(r) => !r.neg && !r.not && !r.abs,
        Operand::Const { neg, not, abs, .. } => !neg && !not && !abs,
        Operand::Imm(_) => true,
        _ => false,
    }
}

/// The operand is zero.
pub(crate) fn is_zero(o: &Operand) -> bool {
    matches!(o, Operand::Imm(0)) || matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ) && plain(o))
}

/// The operand is this predicate, negated or not.
pub(crate) fn is_pred(o: &Operand, name: Name, not: bool) -> bool {
    matches!(o, Operand::Reg(r) if r.reg == name && r.not == not)
}

/// The value that an operand is, whole and without a sign.
pub(crate) fn value_of(o: &Operand) -> Option<Value> {
    match o {
        Operand::Reg(r) if plain(o) => match r.reg {
            Name::Val(v) => Some(v),
            _ => None,
        },
        _ => None,
    }
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
