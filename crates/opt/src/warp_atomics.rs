//! Atomic operations of all lanes on one address as one of a single lane, as ptxas 13.0.88 has it on every target: the lanes that are
//! there vote, the highest of them does the operation on what all of them together want (docs/lowering.md).
//!
//! * A sum of something that is the same in all lanes: that many times as there are lanes. A lane that wants what was there before gets
//!   what the one that did it has got, and what the lanes below it would have added.
//! * From sm_80 on, sums, minima, maxima and logic of what differs, if nobody reads a result: by REDUX (on sm_100 and 103 minima and maxima
//!   by CREDUX).
//!
//! Where one lane alone is there, as behind a comparison of its number for equality, nothing would be gained.

use crate::Pass;
use ori::{
    ALWAYS, Analyses, Block, Builder, Changed, Function, Guard, Inst, InstData, Loc, Macro, Name, Op,
    Operand, Terminator, Value, operand,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{Atomg, Atoms, Icmp, Isetp, IsetpMods, Red};
use sass::{Effect, Mod, Opcode, Reg, RegFile, RegOp, SpecialReg};

/// What the lanes do together.
#[derive(Clone, Copy)]
enum Together {
    /// So many times the same number of one word, or two.
    Times(u8),
    /// What REDUX or CREDUX makes with these modifiers, for lanes that take no part of this number.
    Reduced(Opcode, Option<Mod>, bool, u32),
}

#[derive(Clone, Copy)]
struct Found {
    together: Together,
    /// Slots of the number, and of the result if it is read.
    number: usize,
    result: Option<(usize, Value)>,
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "warp-atomics",
    "OptimizeUniformAtomic",
    "atomic operations of all lanes on one address as one of a single lane ([lowering.md](lowering.md#atomic-operations-of-a-warp))",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let mut found: FxHashMap<Inst, Found> = FxHashMap::default();
    let mut blocks: Vec<Block> = Vec::new();
    let mut numbers: FxHashMap<Value, u32> = FxHashMap::default();
    // Which comparison of integers a predicate is.
    let mut compared: FxHashMap<Value, Icmp> = FxHashMap::default();
    let outside = outside_loops(func, analyses);
    // A vote belongs to the WARPSYNC of its line. Where that line has an atomic operation as well, which of them a vote is of could not be told.
    let meetings = func.insts.values().filter(|d| ori::meeting::is_meeting(d)).map(|d| d.loc);
    let met: FxHashSet<Loc> = meetings.filter(|l| *l != Loc::default()).collect();
    for &b in &analyses.cfg(func).rpo {
        let before = found.len();
        numbers.extend(func.blocks[b].insts.iter().filter_map(|i| number_made(&func.insts[*i])));
        for &i in &func.blocks[b].insts {
            if met.contains(&func.insts[i].loc) {
                continue;
            }
            if let Some(f) = candidate(func, analyses, &outside, &numbers, i) {
                found.insert(i, f);
            }
        }
        compared.extend(func.blocks[b].insts.iter().filter_map(|i| comparison(&func.insts[*i])));
        if found.len() > before && one_lane(func, analyses, &compared, b) {
            func.blocks[b].insts.iter().for_each(|i| {
                found.remove(i);
            });
        } else if found.len() > before {
            blocks.push(b);
        }
    }
    for &b in &blocks {
        let mut known = Known::default();
        for i in std::mem::take(&mut func.blocks[b].insts) {
            match found.get(&i) {
                Some(f) => together(func, b, i, *f, &numbers, &mut known),
                None => {
                    if may_regroup(&func.insts[i]) {
                        known = Known::default();
                    }
                    func.blocks[b].insts.push(i);
                }
            }
        }
    }
    Changed::instructions(!blocks.is_empty())
}

/// Values that are made once: lanes that meet in a loop may be in different rounds of it, with values that are the same in all lanes of each.
fn outside_loops(func: &Function, analyses: &Analyses) -> FxHashSet<Value> {
    let loops = analyses.loops(func);
    let once = |b: &&Block| match loops.irreducible.is_empty() {
        true => loops.depth(**b) == 0,
        false => **b == func.entry_block(),
    };
    let mut found = FxHashSet::default();
    for &b in analyses.cfg(func).rpo.iter().filter(once) {
        found.extend(func.blocks[b].params.iter().copied());
        for i in &func.blocks[b].insts {
            func.insts[*i].for_each_def(|n| found.extend(n.value()));
        }
    }
    found
}

/// The predicate that a comparison of integers makes, and which comparison it is.
fn comparison(d: &InstData) -> Option<(Value, Icmp)> {
    let Operand::Reg(r) = Isetp::of(d)?.p else { return None };
    Some((r.reg.value()?, IsetpMods::of(d)?.cmp))
}

/// Whether the block is behind a comparison for equality that lanes do not agree on.
fn one_lane(func: &Function, analyses: &Analyses, compared: &FxHashMap<Value, Icmp>, b: Block) -> bool {
    let (cfg, dom, uniformity) = (analyses.cfg(func), analyses.dominators(func), analyses.uniformity(func));
    let mut at = b;
    while let Some(up) = dom.idom(at) {
        if let (Terminator::Branch { cond: Name::Val(v), not, taken, fall }, [_]) =
            (&func.blocks[up].term, cfg.preds[at].as_slice())
            && taken.block != fall.block
            && uniformity.is_divergent(*v)
        {
            let holds = (taken.block == at) != *not;
            let wanted = if holds { Icmp::EQ } else { Icmp::NE };
            if compared.get(v) == Some(&wanted) {
                return true;
            }
        }
        at = up;
    }
    false
}

/// An atomic operation that lanes can do together.
fn candidate(
    func: &Function,
    analyses: &Analyses,
    outside: &FxHashSet<Value>,
    numbers: &FxHashMap<Value, u32>,
    i: Inst,
) -> Option<Found> {
    use Mod as M;
    let d = &func.insts[i];
    let Op::Sass(op) = d.op else { return None };
    let (result, number) = match op {
        Opcode::RED | Opcode::REDG => (None, Red::VALUE),
        Opcode::ATOMS => (Some(Atoms::D), Atoms::VALUE),
        Opcode::ATOM | Opcode::ATOMG => (Some(Atomg::D), Atomg::VALUE),
        _ => return None,
    };
    let known = [
        M::E,
        M::_64,
        M::S32,
        M::ADD,
        M::MIN,
        M::MAX,
        M::AND,
        M::OR,
        M::XOR,
        M::STRONG,
        M::CTA,
        M::SM,
        M::GPU,
        M::SYS,
    ];
    if !d.mods.iter().all(|m| known.contains(&m)) || d.guard.pred == Name::Phys(Reg::PT) && d.guard.not {
        return None;
    }
    // Nothing of it but the old number is read.
    let mut result = result.map(|slot| (slot, d.operands[slot]));
    let mut others = false;
    for (k, o) in d.operands.iter().enumerate().filter(|(k, _)| d.is_def(*k)) {
        others |= result.is_none_or(|r| r.0 != k) && o.as_reg().is_some_and(|r| !is_zero(r.reg));
    }
    let read = match result.take_if(|(_, o)| o.as_reg().is_some_and(|r| !is_zero(r.reg))) {
        Some((slot, Operand::Reg(RegOp { reg: Name::Val(v), .. }))) => Some((slot, v)),
        Some(_) => return None,
        None => None,
    };
    let address =
        d.operands.iter().find_map(|o| if let Operand::Addr { .. } = o { Some(*o) } else { None })?;
    let Operand::Addr { base, uniform: None, .. } = address else { return None };
    let uniformity = analyses.uniformity(func);
    let known = |v: Value| numbers.contains_key(&v) || outside.contains(&v) && !uniformity.is_divergent(v);
    let same = |n: Name| n.value().map_or(is_zero(n), known);
    if others || base.is_some_and(|b| !same(b)) {
        return None;
    }
    let Operand::Reg(r) = d.operands[number] else { return None };
    if r != RegOp::plain(r.reg) {
        return None;
    }
    let wide = d.mods.has(M::_64);
    let is = |m: Mod| d.mods.has(m);
    let functions = [M::ADD, M::MIN, M::MAX, M::AND, M::OR, M::XOR].into_iter().filter(|m| is(*m)).count();
    if functions != 1 {
        return None;
    }
    if is(M::ADD) && same(r.reg) && (read.is_none() || !wide && d.is_unguarded()) {
        let together = Together::Times(if wide { 2 } else { 1 });
        return Some(Found { together, number, result: read });
    }
    let signed = is(M::S32);
    let sm = func.target.sm;
    let minmax = if matches!(sm, 100 | 103) { Opcode::CREDUX } else { Opcode::REDUX };
    let (op, function, none) = match () {
        () if is(M::ADD) => (Opcode::REDUX, Some(M::SUM), 0),
        () if is(M::OR) => (Opcode::REDUX, Some(M::OR), 0),
        () if is(M::XOR) => (Opcode::REDUX, Some(M::XOR), 0),
        () if is(M::AND) => (Opcode::REDUX, None, !0),
        () if is(M::MAX) => (minmax, Some(M::MAX), if signed { 1 << 31 } else { 0 }),
        () if is(M::MIN) => (minmax, Some(M::MIN), if signed { !0 >> 1 } else { !0 }),
        () => return None,
    };
    let signed = signed && (is(M::MIN) || is(M::MAX));
    (sm >= 80 && !wide && read.is_none()).then_some(Found {
        together: Together::Reduced(op, function, signed, none),
        number,
        result: None,
    })
}

/// No carry, and no predicate of LOP3's.
fn never() -> Operand {
    Operand::Reg(RegOp { not: true, ..RegOp::plain(Name::Phys(Reg::PT)) })
}

fn is_zero(n: Name) -> bool {
    matches!(n, Name::Phys(r) if r.is_zero())
}

/// The lanes that do something together.
#[derive(Clone, Copy)]
struct Lanes {
    /// A bit for each.
    mask: Value,
    /// The number of the highest.
    highest: Value,
    /// Whether a lane is it.
    leads: Value,
}

/// What lanes that stay together have found out already.
#[derive(Default)]
struct Known {
    /// Under each guard.
    lanes: Vec<(Guard, Lanes)>,
    /// How many a mask has.
    counts: FxHashMap<Value, Value>,
    /// What reductions make.
    reduced: Vec<(Reduction, Value)>,
}

/// REDUX or CREDUX of the lanes for which the guard holds.
#[derive(PartialEq)]
struct Reduction {
    op: Opcode,
    mods: Vec<Mod>,
    number: Operand,
    guard: Guard,
}

impl Known {
    /// What a reduction makes, in a general register; lanes for which its guard does not hold bring `none`.
    fn reduce(&mut self, c: &mut Builder<'_>, reduction: Reduction, none: u32) -> Value {
        if let Some((_, made)) = self.reduced.iter().find(|r| r.0 == reduction) {
            return *made;
        }
        let Guard { pred, not } = reduction.guard;
        let mut own = reduction.number;
        if reduction.guard != ALWAYS {
            let holds = Operand::Reg(RegOp { not, ..RegOp::plain(pred) });
            own = operand(c.def(Opcode::SEL, &[], &[own, Operand::Imm(none), holds]));
        }
        let one = c.def(reduction.op, &reduction.mods, &[own]);
        let made = c.copy(operand(one));
        self.reduced.push((reduction, made));
        made
    }
}

/// Whether other lanes may be there behind the instruction than before it.
fn may_regroup(d: &InstData) -> bool {
    match d.op {
        Op::Macro(Macro::Copy | Macro::Collect | Macro::Undef | Macro::Symbol) => false,
        Op::Macro(_) => true,
        Op::Sass(op) => !matches!(op.info().effect, Effect::Pure | Effect::State | Effect::Memory),
    }
}

/// The lanes here for which the guard holds.
fn vote(c: &mut Builder<'_>, guard: Guard, known: &mut Known) -> Lanes {
    if let Some((_, lanes)) = known.lanes.iter().find(|l| l.0 == guard) {
        return *lanes;
    }
    let mask = c.func.add_value(RegFile::R, 1);
    let holds = Operand::Reg(RegOp { not: guard.not, ..RegOp::plain(guard.pred) });
    c.inst(Opcode::VOTE, &[Mod::ANY], &[operand(mask), operand(Name::Phys(Reg::PT)), holds]);
    let highest = c.def(Opcode::FLO, &[Mod::U32], &[operand(mask)]);
    let lane = c.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_LANEID)]);
    let leads = c.def_pred(Opcode::ISETP, &[Mod::EQ, Mod::U32, Mod::AND], &[operand(lane), operand(highest)]);
    let lanes = Lanes { mask, highest, leads };
    known.lanes.push((guard, lanes));
    lanes
}

/// The immediate that an instruction puts into a register.
fn number_made(d: &InstData) -> Option<(Value, u32)> {
    match crate::copy_prop::number(d)? {
        (v, Operand::Imm(n)) => Some((v, n)),
        _ => None,
    }
}

/// Writes down the operation `i` at the end of a block, as one of a single lane. Behind a call or where lanes meet there is a new vote:
/// others may be there.
fn together(
    func: &mut Function,
    b: Block,
    i: Inst,
    found: Found,
    numbers: &FxHashMap<Value, u32>,
    known: &mut Known,
) {
    let d = func.insts[i].clone();
    let number = match d.operands[found.number].as_reg().map(|r| r.reg) {
        Some(Name::Val(v)) => numbers.get(&v).map_or(operand(v), |n| Operand::Imm(*n)),
        Some(n) => operand(n),
        None => return,
    };
    let mut c = Builder::new(func, b);
    c.loc = d.loc;
    let lanes = vote(&mut c, d.guard, known);
    let all = match found.together {
        Together::Times(words) => {
            let pop = |c: &mut Builder<'_>| c.def(Opcode::POPC, &[], &[operand(lanes.mask)]);
            let count = *known.counts.entry(lanes.mask).or_insert_with(|| pop(&mut c));
            times(&mut c, count, number, words)
        }
        Together::Reduced(op, function, signed, none) => {
            let mods: Vec<Mod> = function.into_iter().chain(signed.then_some(Mod::S32)).collect();
            known.reduce(
                &mut c,
                Reduction { op, mods, number: d.operands[found.number], guard: d.guard },
                none,
            )
        }
    };
    let before = found.result.map(|(slot, v)| (slot, v, c.func.add_value(RegFile::R, 1)));
    let mut alone = InstData { guard: Guard { pred: Name::Val(lanes.leads), not: false }, ..d };
    alone.operands[found.number] = operand(all);
    if let Some((slot, _, old)) = before {
        alone.operands[slot] = operand(old);
    }
    let none = before.map(|_| c.def_macro(Macro::Undef, RegFile::R, 1, &[]));
    let read = before.map(|(slot, ..)| slot);
    alone.kept = (0..alone.operands.len())
        .filter(|k| alone.is_def(*k))
        .map(|k| match (none, alone.operands[k].as_reg()) {
            (Some(none), _) if read == Some(k) => Name::Val(none),
            (_, Some(r)) => r.reg,
            (_, None) => Name::Phys(Reg::PT),
        })
        .collect();
    c.raw(alone);
    if let Some((_, result, old)) = before {
        let shown = c.func.add_value(RegFile::R, 1);
        let pt = operand(Name::Phys(Reg::PT));
        let from = [pt, operand(shown), operand(old), operand(lanes.highest), Operand::Imm(0x1f)];
        c.inst(Opcode::SHFL, &[Mod::IDX], &from);
        let lower = c.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_LTMASK)]);
        let both =
            [operand(lanes.mask), operand(lower), operand(Name::Phys(Reg::RZ)), Operand::Imm(0xc0), never()];
        let below = c.def(Opcode::LOP3, &[Mod::LUT], &both);
        let count = c.def(Opcode::POPC, &[], &[operand(below)]);
        let pair = [operand(count), number, operand(shown), never()];
        let sum = c.def(Opcode::IMAD, &[], &pair);
        let copy = [operand(result), operand(sum)];
        c.raw(InstData {
            guard: ALWAYS,
            op: Op::Macro(Macro::Copy),
            mods: sass::Mods::none(),
            operands: copy.into_iter().collect(),
            kept: Default::default(),
            loc: c.loc,
        });
    }
}

/// A count times a number of one word or two.
fn times(c: &mut Builder<'_>, count: Value, number: Operand, words: u8) -> Value {
    let zero = || operand(Name::Phys(Reg::RZ));
    let v = match (number, words) {
        (Operand::Imm(1), 1) => return count,
        (Operand::Reg(RegOp { reg: Name::Val(v), .. }), 2) => v,
        _ => return c.def(Opcode::IMAD, &[], &[operand(count), number, zero(), never()]),
    };
    let low = c.def(
        Opcode::IMAD,
        &[Mod::WIDE, Mod::U32],
        &[operand(count), operand(Name::Part(v, 0)), zero(), never()],
    );
    let upper = [operand(count), operand(Name::Part(v, 1)), operand(Name::Part(low, 1)), never()];
    let high = c.def(Opcode::IMAD, &[], &upper);
    c.collect(&[operand(Name::Part(low, 0)), operand(high)])
}
