//! Integers of 64 bits in one instruction, where the target has such (sm_120): two additions of which one takes the other's carry are
//! IADD.64 where their terms are pairs of registers already, or one a number, and comparisons take numbers as they are. ptxas adds all
//! numbers of 64 bits so, and makes pairs for it where there are none; here a number of 32 bits and its sign are made one, and a sum that would
//! need a copy for that is left to its two words.
//!
//! The last of the passes that see sums, as others look for their words ([`crate::sums`]).

use crate::Pass;
use crate::shift_add::sign_of;
use crate::sums::is_pred;
use ori::{
    ALWAYS, Analyses, Block, Changed, Def, Editor, Function, Inst, InstData, Macro, Name, Op, Operand, Value,
    operand,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{Iadd3, Iadd3Mods};
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp, SlotKind, WideImmediate};
use smallvec::SmallVec;
use thin_vec::{ThinVec, thin_vec};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "wide-integers",
    "LateOriCommoning",
    "sums of pairs of registers in one instruction, and numbers that comparisons of pairs take (sm_120)",
    run,
);

/// How far apart the words' additions are at most.
const APART: usize = 32;

const PT: Name = Name::Phys(Reg::PT);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    if !func.target.has(Opcode::IADD) {
        return Changed::Nothing;
    }
    let dom = analyses.dominators(func);
    let mut e = Editor::new(func);
    let mut pairs = Pairs::new(e.func());
    for b in analyses.cfg(e.func()).rpo.clone() {
        let mut at = e.first(b);
        while let Some(i) = at {
            at = e.next(i);
            pairs.note(&e, i, b);
            number(&mut e, i);
            if let Some(sum) = sum(&e, i, b, &pairs, |a| dom.dominates(a, b)) {
                unite(&mut e, &mut pairs, sum, b);
            }
        }
    }
    e.finish()
}

/// Has an instruction that takes numbers in place of pairs read a number that was put into one.
fn number(e: &mut Editor<'_>, i: Inst) {
    let d = e.data(i);
    let Some(op) = d.opcode().filter(|op| op.info().wide_immediate == WideImmediate::Extended) else {
        return;
    };
    let wide = |k: usize| op.slots()[k].kind == SlotKind::Source && op.width(k, &d.mods) == 2;
    let constant = |k: usize| {
        let Operand::Reg(r) = &d.operands[k] else { return None };
        let Name::Val(v) = r.reg else { return None };
        let Def::Inst(made) = e.def(v) else { return None };
        let made = e.data(made);
        let (_, [Operand::Imm(low), Operand::Imm(high)]) = made.collected()? else { return None };
        let plain = *r == RegOp::plain(r.reg) && made.is_unguarded();
        (plain && is_extension(*low, *high)).then_some((k, *low))
    };
    if let Some((k, n)) = (0..d.operands.len()).filter(|k| wide(*k)).find_map(constant) {
        e.change(i, |d| d.operands[k] = Operand::Imm(n));
    }
}

/// Whether the upper word is the lower one's sign.
fn is_extension(low: u32, high: u32) -> bool {
    high as i32 == (low as i32) >> 31
}

/// The register that an operand is, without a sign; zero is one.
fn register(o: &Operand) -> Option<Name> {
    match o {
        Operand::Imm(0) => Some(Name::Phys(Reg::RZ)),
        Operand::Reg(r) => (*r == RegOp::plain(r.reg)).then_some(r.reg),
        _ => None,
    }
}

/// Words that were put together.
#[derive(Default)]
struct Pairs {
    /// What they are together, and where that was made.
    made: FxHashMap<(Name, Name), (Value, Block)>,
    /// Those that are words of some tuple.
    words: FxHashSet<Value>,
}

impl Pairs {
    /// The words of all tuples of a function.
    fn new(func: &Function) -> Pairs {
        let mut found = Pairs::default();
        for d in func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]) {
            if let Some((_, parts)) = d.collected() {
                found.words.extend(parts.iter().filter_map(|o| o.as_reg()?.reg.value()));
            }
        }
        found
    }

    fn note(&mut self, e: &Editor<'_>, i: Inst, b: Block) {
        let d = e.data(i);
        let Some((Operand::Reg(to), [low, high])) = d.collected() else { return };
        if let Name::Val(v) = to.reg
            && let (Some(low), Some(high)) = (register(low), register(high))
            && d.is_unguarded()
            && e.func().values[v].file == RegFile::R
        {
            self.made.entry((low, high)).or_insert((v, b));
        }
    }

    /// The pair that two words are, in general or uniform registers.
    fn of(&self, e: &Editor<'_>, low: Name, high: Name, reaches: impl Fn(Block) -> bool) -> Option<Value> {
        match (low, high) {
            (Name::Part(v, 0), Name::Part(w, 1)) if v == w => (e.func().values[v].width == 2).then_some(v),
            _ => self.made.get(&(low, high)).filter(|(_, b)| reaches(*b)).map(|p| p.0),
        }
    }

    /// Whether two words can be a pair without a copy: a number and its sign that are no words of tuples yet.
    fn fit(&self, e: &Editor<'_>, low: Name, high: Name) -> bool {
        let (Name::Val(low), Name::Val(high)) = (low, high) else { return false };
        let (Def::Inst(_), Def::Inst(maker)) = (e.def(low), e.def(high)) else { return false };
        let is_sign = sign_of(e.data(maker)) == Some(&operand(Name::Val(low)));
        is_sign && ![low, high].iter().any(|v| self.words.contains(v))
    }
}

/// A term of a sum.
#[derive(Clone, Copy)]
enum Term {
    /// A pair or a number.
    Is(Operand),
    /// A pair that is to be made of these.
    Of(Name, Name),
}

/// A sum that is to be one instruction.
struct Sum {
    low: Inst,
    high: Inst,
    /// What both words are.
    results: [Value; 2],
    /// The terms; the first is a pair of general registers.
    terms: [Term; 2],
}

/// The terms of a word of a sum, and the value that it is: IADD3 with a zero among its sources, which are registers with or without
/// a sign, and numbers.
fn word(d: &InstData, carry: Option<Value>) -> Option<(Value, [Operand; 2])> {
    let (s, mods) = (Iadd3::of(d)?, Iadd3Mods::of(d)?);
    let carried = match carry {
        None => is_pred(s.carry, PT, true),
        Some(c) => is_pred(s.carry, Name::Val(c), false),
    };
    let others = is_pred(s.carry2, PT, true) && is_pred(s.carry_out2, PT, false);
    if !carried || !others || mods.extended != carry.is_some() || !d.is_unguarded() {
        return None;
    }
    let Operand::Reg(RegOp { reg: Name::Val(v), .. }) = *s.d else { return None };
    let zero = |o: &Operand| *o == Operand::Imm(0) || *o == operand(Name::Phys(Reg::RZ));
    let mut terms: SmallVec<[Operand; 3]> =
        [s.a, s.b, s.c].into_iter().filter(|o| !zero(o)).copied().collect();
    while terms.len() < 2 {
        terms.push(Operand::Imm(0));
    }
    match terms[..] {
        [a, b] => Some((v, [a, b])),
        _ => None,
    }
}

/// The sum whose upper word `high` makes, if both words are needed and nobody needs the lower one before the upper one is there.
fn sum(e: &Editor<'_>, high: Inst, b: Block, pairs: &Pairs, reaches: impl Fn(Block) -> bool) -> Option<Sum> {
    let d = e.data(high);
    let s = Iadd3::of(d)?;
    let Operand::Reg(RegOp { reg: Name::Val(carry), not: false, .. }) = *s.carry else { return None };
    if !is_pred(s.carry_out, PT, false) || e.use_count(carry) != 1 {
        return None;
    }
    let Def::Inst(low) = e.def(carry) else { return None };
    if e.block_of(low) != Some(b) {
        return None;
    }
    let lower = e.data(low);
    if *Iadd3::of(lower)?.carry_out != operand(carry) {
        return None;
    }
    let (upper, highs) = word(d, Some(carry))?;
    let (result, lows) = word(lower, None)?;
    if e.use_count(result) == 0 || e.use_count(upper) == 0 {
        return None;
    }
    let reads = |i: Inst| {
        let mut found = false;
        e.data(i).for_each_use(|n| found |= n.value() == Some(result));
        found
    };
    let between = std::iter::successors(e.next(low), |i| e.next(*i));
    if between.take(APART).find(|i| *i == high || reads(*i)) != Some(high) {
        return None;
    }
    let pair = |low: &Operand, high: &Operand| term(e, pairs, *low, *high, &reaches);
    let straight = || Some([pair(&lows[0], &highs[0])?, pair(&lows[1], &highs[1])?]);
    let crossed = || Some([pair(&lows[0], &highs[1])?, pair(&lows[1], &highs[0])?]);
    let mut terms = straight().or_else(crossed)?;
    let general = |t: &Term| match t {
        Term::Is(o) => {
            o.as_reg().and_then(|r| r.reg.value()).is_some_and(|v| e.func().values[v].file == RegFile::R)
        }
        Term::Of(..) => true,
    };
    if !general(&terms[0]) {
        terms.swap(0, 1);
    }
    let negative = |t: &Term| matches!(t, Term::Is(o) if o.as_reg().is_some_and(|r| r.neg));
    let both = terms.iter().all(negative);
    (general(&terms[0]) && !both).then_some(Sum { low, high, results: [result, upper], terms })
}

/// The term whose words these are; a negative one is complemented in the upper word, as the carry comes from the lower.
fn term(
    e: &Editor<'_>,
    pairs: &Pairs,
    low: Operand,
    high: Operand,
    reaches: impl Fn(Block) -> bool,
) -> Option<Term> {
    match (low, high) {
        (Operand::Imm(a), Operand::Imm(b)) => is_extension(a, b).then_some(Term::Is(low)),
        (Operand::Reg(a), Operand::Reg(b)) if a.neg && b.not => {
            let plain = (RegOp { neg: false, ..a }, RegOp { not: false, ..b });
            let v =
                pairs.of(e, register(&Operand::Reg(plain.0))?, register(&Operand::Reg(plain.1))?, reaches)?;
            Some(Term::Is(Operand::Reg(RegOp { neg: true, ..RegOp::plain(Name::Val(v)) })))
        }
        _ => {
            let (low, high) = (register(&low)?, register(&high)?);
            match pairs.of(e, low, high, reaches) {
                Some(v) => Some(Term::Is(operand(v))),
                None => pairs.fit(e, low, high).then_some(Term::Of(low, high)),
            }
        }
    }
}

/// Makes it one.
fn unite(e: &mut Editor<'_>, pairs: &mut Pairs, sum: Sum, b: Block) {
    let pair = e.add_value(RegFile::R, 2);
    let not_pt = Operand::Reg(RegOp { not: true, ..RegOp::plain(PT) });
    let data = |op, mods: &[Mod], operands, loc| InstData {
        guard: ALWAYS,
        op,
        mods: Mods::of(mods),
        operands,
        kept: ThinVec::new(),
        loc,
    };
    let (first, last) = (e.data(sum.low).loc, e.data(sum.high).loc);
    let [x, y] = sum.terms.map(|t| match t {
        Term::Is(o) => o,
        Term::Of(low, high) => {
            let made = e.add_value(RegFile::R, 2);
            let collect = thin_vec![operand(made), operand(low), operand(high)];
            e.insert_before(sum.high, data(Op::Macro(Macro::Collect), &[], collect, first));
            pairs.made.insert((low, high), (made, b));
            pairs.words.extend([low, high].iter().filter_map(|n| n.value()));
            operand(made)
        }
    });
    let whole = thin_vec![operand(pair), operand(PT), x, y, not_pt];
    e.insert_before(sum.high, data(Op::Sass(Opcode::IADD), &[Mod::_64], whole, last));
    let [low, high] = sum.results;
    let part = e.add_value(RegFile::R, 1);
    let copy = thin_vec![operand(part), operand(Name::Part(pair, 0))];
    e.insert_before(sum.high, data(Op::Macro(Macro::Copy), &[], copy, first));
    e.replace_all_uses(low, part);
    e.change(sum.high, |d| d.become_copy(operand(high), operand(Name::Part(pair, 1))));
}
