//! Comparisons of integers, and what comparisons of all numbers share: which outcomes hold, and how the verdict joins a predicate.

use super::compile::{Unsupported, unsupported};
use super::operand::{Exec, Kind, Operands, Pred, lanewise};
use super::rows::{Word, words};

/// The outcomes for which the comparison holds that a modifier names; only floating-point numbers can be unordered.
pub(crate) fn comparison(o: &Operands<'_>) -> Result<Verdicts, Unsupported> {
    let (less, equal, greater, none) =
        (Verdicts::LESS, Verdicts::EQUAL, Verdicts::GREATER, Verdicts::UNORDERED);
    let table = [
        ("F", 0),
        ("LT", less),
        ("EQ", equal),
        ("LE", less | equal),
        ("GT", greater),
        ("NE", less | greater),
        ("GE", greater | equal),
        ("NUM", less | equal | greater),
        ("NAN", none),
        ("LTU", none | less),
        ("EQU", none | equal),
        ("LEU", none | less | equal),
        ("GTU", none | greater),
        ("NEU", none | less | greater),
        ("GEU", none | greater | equal),
        ("T", none | less | equal | greater),
    ];
    o.choose(&table).map_or_else(|| unsupported("no comparison"), |set| Ok(Verdicts(set)))
}

/// The outcomes of a comparison for which a condition holds. A set of bits, for loops without calls or branches.
#[derive(Clone, Copy)]
pub(crate) struct Verdicts(pub(crate) u8);

impl Verdicts {
    pub(crate) const LESS: u8 = 1;
    pub(crate) const EQUAL: u8 = 2;
    pub(crate) const GREATER: u8 = 4;
    /// A NaN is compared.
    pub(crate) const UNORDERED: u8 = 8;

    /// Whether the condition holds for one of these outcomes.
    #[inline(always)]
    pub(crate) fn holds(self, less: bool, equal: bool, greater: bool) -> bool {
        let has = |bit: u8| self.0 & bit != 0;
        less & has(Self::LESS) | equal & has(Self::EQUAL) | greater & has(Self::GREATER)
    }

    /// Whether it holds for the order of two numbers, if they have one.
    #[inline(always)]
    pub(crate) fn of<T: PartialOrd>(self, a: T, b: T) -> bool {
        let (less, equal, greater) = (a < b, a == b, a > b);
        self.holds(less, equal, greater) | !(less | equal | greater) & (self.0 & Self::UNORDERED != 0)
    }
}

/// A function of two predicates.
#[derive(Clone, Copy)]
pub(crate) struct Join {
    and: bool,
    or: bool,
    xor: bool,
}

impl Join {
    /// What it makes of them.
    #[inline(always)]
    pub(crate) fn of(self, x: bool, y: bool) -> bool {
        self.and & x & y | self.or & (x | y) | self.xor & (x ^ y)
    }
}

/// AND, OR, XOR of a comparison and a predicate.
pub(crate) fn combine(o: &Operands<'_>) -> Result<Join, Unsupported> {
    let none = Join { and: false, or: false, xor: false };
    let table = [
        ("AND", Join { and: true, ..none }),
        ("OR", Join { or: true, ..none }),
        ("XOR", Join { xor: true, ..none }),
    ];
    o.choose(&table).map_or_else(|| unsupported("no combining operation"), Ok)
}

/// Pd, Pq, Ra, Rb, Pin, Plow: EX compares high words, Plow being the result for the low ones.
pub(crate) fn isetp(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let compare = comparison(o)?;
    let wide = o.choose(&[("U64", false), ("S64", true)]);
    let signed = wide.unwrap_or(!o.take("U32"));
    let join = combine(o)?;
    let ex = o.take("EX");
    let kind = if wide.is_some() { Kind::Long } else { Kind::Int };
    let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
    let srcs = [o.src(2, kind)?, o.src(3, kind)?];
    let low = if ex { o.pred(5)? } else { Pred::TRUE };
    let (_, [first, second]) = out;
    if wide.is_none() {
        // A signed comparison is an unsigned one with the sign bit flipped.
        let (two, sign) = (srcs.map(Word::of), if signed { 1 << 31 } else { 0 });
        let preds = [o.pred(4)?, low];
        let verdict = move |a: u32, b: u32, low: bool| {
            let (a, b) = (a ^ sign, b ^ sign);
            let c = compare.holds(a < b, a == b, a > b);
            if ex { (a == b) & low | (a != b) & c } else { c }
        };
        if second.is_none() {
            return Ok(words(None, [first], two, preds, move |[a, b], [p, low]| {
                ([], [join.of(verdict(a, b, low), p)])
            }));
        }
        return Ok(words(None, [first, second], two, preds, move |[a, b], [p, low]| {
            let c = verdict(a, b, low);
            ([], [join.of(c, p), join.of(!c, p)])
        }));
    }
    Ok(lanewise(out, srcs, [o.pred(4)?, low], move |[a, b], [p, low]| {
        let order = if signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
        let c = compare.holds(order.is_lt(), order.is_eq(), order.is_gt());
        let c = if ex && order.is_eq() { low } else { c };
        (0, join.of(c, p), join.of(!c, p))
    }))
}
