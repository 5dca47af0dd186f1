//! If-conversion: the sides of a branch that are short and only compute, load and store become guarded instructions of the
//! block that branches, and what the sides pass on is merged without a branch.
//!
//! Instructions that only compute are executed without a guard, unless what they compute is passed on: then the
//! guard makes the choice, the value that comes from the other side being kept where it is false. What no instruction of
//! the sides computes is chosen by SEL. Loads and stores are guarded always.
//!
//! How much is short is what ptxas takes (docs/predication.md): 8 instructions on one side, 7 on each of two, fewer where
//! all threads take the same side, since those skip the other one; more where there are loads, which then are
//! under way together.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::uniformity::Uniformity;
use ori::{
    Block, BlockCall, Changed, Function, Guard, Inst, InstData, Loc, Macro, Name, Op, Operand, Operands,
    Refusal, Remark, Terminator, Value, operand,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::Elect;
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use thin_vec::ThinVec;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "predicate",
    "OriDoPredication",
    "short sides of branches become guarded instructions ([predication.md](predication.md))",
    |f, _| Changed::graph(run(f)),
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let mut changed = false;
    // What is refused may be taken in a later round.
    let mut refused: BTreeMap<Block, Refusal> = BTreeMap::new();
    let mut done = Vec::new();
    // A block that was merged may be the side of an outer branch; each round shortens a chain of blocks.
    for _ in 0..MOST_ROUNDS {
        let cfg = Cfg::new(func);
        let varying = varying(func, &cfg);
        let brings = |b: &Block| func.blocks[*b].insts.iter().any(|i| fit(&func.insts[*i]) == Fit::Brings);
        let uniformity = cfg.rpo.iter().any(brings).then(|| Uniformity::new(func, &cfg));
        let uniformity = uniformity.as_ref();
        let mut gone: SecondaryMap<Block, bool> = SecondaryMap::new();
        let mut converted = false;
        for &b in cfg.rpo.iter().rev() {
            let plan = match plan(func, &cfg, &varying, b) {
                Ok(plan) => plan,
                Err(why) if why == NO_BRANCH => continue,
                Err(why) => {
                    refused.insert(b, why);
                    continue;
                }
            };
            refused.remove(&b);
            done.push(Remark::of(PASS.phase, func.loc_of(b), Ok("the sides of the branch are guarded")));
            for side in plan.sides.iter().flatten() {
                gone[side.block] = true;
            }
            // Values that are new since that was asked are read by what was put under guards alone.
            let alike = |d: &InstData| {
                let mut same = uniformity.is_some();
                d.for_each_use(|n| {
                    same &= n.value().is_none_or(|v| uniformity.is_some_and(|u| !u.is_divergent(v)));
                });
                same
            };
            apply(func, b, plan, alike);
            converted = true;
        }
        if !converted {
            break;
        }
        func.layout.retain(|b| !gone[*b]);
        _ = crate::branch_opt::run(func, &ori::Analyses::default());
        changed = true;
    }
    if func.remarks.is_some() {
        let left: FxHashSet<Block> = func.layout.iter().copied().collect();
        let still = refused.into_iter().filter(|(b, _)| left.contains(b));
        let refusals: Vec<Remark> = still
            .map(|(b, why)| Remark::of(PASS.phase, func.blocks[b].term_loc, Err::<Refusal, _>(why)))
            .collect();
        func.remark(done.into_iter().chain(refusals));
    }
    changed
}

/// That a block ends otherwise than in a branch around sides that meet: nothing to remark.
const NO_BRANCH: Refusal = Refusal::Borrowed("");

/// Depth to which branches in branches are looked at.
const MOST_ROUNDS: usize = 4;

/// How many instructions are short.
struct Limits {
    /// On the only side, and on each of two.
    one: usize,
    two: usize,
    /// Loads and other instructions of a side with loads.
    with_loads: usize,
}

/// Where threads may take different sides.
const DIVERGENT: Limits = Limits { one: 8, two: 7, with_loads: 10 };
/// Where all take the same side.
const UNIFORM: Limits = Limits { one: 6, two: 5, with_loads: 6 };
/// Loads of a side with loads, and as many other instructions: where more are skipped, a branch is worth it.
const LOADS: usize = 8;

/// A side of a branch.
struct Side {
    block: Block,
    /// The condition under which it is executed.
    guard: Guard,
}

/// How a value that the sides pass on comes about.
enum Merge {
    /// Both pass the same one.
    Same(Value),
    /// By SEL: where the condition holds the first one.
    Select(Value, Value),
    /// The instruction that computes it keeps the other one where it is not executed.
    Keep { inst: Inst, result: Value, other: Name },
    /// A tuple of words that come about so.
    Words(Vec<Word>),
}

/// A word of a tuple.
enum Word {
    Same(Operand),
    Select(Operand, Operand),
    Keep { inst: Inst, result: Value, other: Name },
}

/// A conversion.
struct Plan {
    /// The sides where the condition holds and where not.
    sides: [Option<Side>; 2],
    join: Block,
    merges: Vec<Merge>,
    /// The condition.
    guard: Guard,
    /// Whether it holds in one of the active lanes.
    elected: Elected,
}

/// Whether a predicate holds in one of the active lanes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elected {
    No,
    /// In one of those of the warp that elect; those at other instructions may be among them.
    OfThoseThatMeet,
    /// In one of those that are here.
    OfThoseHere,
}

/// What a load, a store or a computation needs to be executed by threads that do not take the side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Nothing, and no instruction of its own stands for it.
    Free,
    /// Nothing.
    Computes,
    /// A guard.
    Load,
    /// A guard. So do arrivals at barriers in memory.
    Store,
    /// A guard, where lanes may bring other words to the uniform register, or have another say.
    Brings,
    /// A guard of the whole warp, for which one lane executes it: bulk copies, products of tensor memory.
    Warp,
    /// It can't be.
    No,
}

fn fit(d: &InstData) -> Fit {
    if !d.is_unguarded() {
        return Fit::No;
    }
    match d.op {
        Op::Macro(Macro::Copy | Macro::Collect | Macro::Undef) => Fit::Free,
        _ if d.may_run_needlessly() => Fit::Computes,
        Op::Sass(Opcode::LDG | Opcode::LD | Opcode::LDS | Opcode::LDL | Opcode::LDGSTS) => Fit::Load,
        // A constant at a place that a register names.
        _ if d.is_pure() => Fit::Load,
        Op::Sass(Opcode::STG | Opcode::ST | Opcode::STS | Opcode::STL) => Fit::Store,
        Op::Sass(Opcode::SYNCS_ARRIVE | Opcode::SYNCS_CCTL) => Fit::Store,
        Op::Sass(Opcode::R2UR | Opcode::VOTEU) => Fit::Brings,
        Op::Sass(op) if is_executed_once(op) => Fit::Warp,
        _ => Fit::No,
    }
}

/// What is executed once for all active lanes, with operands in uniform registers, and no results: ptxas 13.0.88 has each of them under a guard of the
/// warp where its lane was chosen by `elect.sync` (docs/matrix.md).
fn is_executed_once(op: Opcode) -> bool {
    use Opcode::*;
    let copies =
        matches!(op, UTMALDG | UTMAPF | UTMASTG | UTMAREDG | UBLKCP | UBLKRED | UBLKPF | SYNCS_EXCH | UTCCP);
    let products = matches!(
        op,
        UTCHMMA
            | UTCHMMA_T
            | UTCIMMA
            | UTCIMMA_T
            | UTCQMMA
            | UTCQMMA_T
            | UTCQMMA_SF
            | UTCQMMA_SF_T
            | UTCOMMA
            | UTCOMMA_T
    );
    copies || products || matches!(op, UTCBAR | UTCSHIFT)
}

/// Values that may differ between threads of a block, for the choice of the limits only: values that come together
/// behind a branch count as different.
fn varying(func: &Function, cfg: &Cfg) -> SecondaryMap<Value, bool> {
    let mut varying: SecondaryMap<Value, bool> = SecondaryMap::new();
    let forward = |b: Block, p: Block| cfg.order[p] < cfg.order[b];
    for &b in &cfg.rpo {
        let parted = cfg.preds[b].iter().filter(|p| forward(b, **p)).count() != 1;
        func.blocks[b].params.iter().for_each(|p| varying[*p] = parted);
    }
    // A value goes around a loop for each loop that it is carried by.
    let mut again = true;
    while again {
        again = false;
        let mut mark = |varying: &mut SecondaryMap<Value, bool>, v: Value| {
            again |= !std::mem::replace(&mut varying[v], true);
        };
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            for &i in &data.insts {
                let d = &func.insts[i];
                let mut differs = !d.follows_operands() && !is_constant_load(d);
                d.for_each_use(|n| differs |= n.value().is_some_and(|v| varying[v]));
                if differs {
                    d.for_each_def(|n| n.value().into_iter().for_each(|v| mark(&mut varying, v)));
                }
            }
            for t in data.term.targets() {
                for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                    if varying[*a] {
                        mark(&mut varying, *p);
                    }
                }
            }
        }
    }
    varying
}

/// Whether it reads constant memory at an address that all threads have.
fn is_constant_load(d: &InstData) -> bool {
    d.opcode().is_some_and(Opcode::loads_constants)
}

/// The conversion of the branch at the end of `b`, if it is one that pays.
fn plan(func: &Function, cfg: &Cfg, varying: &SecondaryMap<Value, bool>, b: Block) -> Result<Plan, Refusal> {
    let Terminator::Branch { cond, not, taken, fall } = &func.blocks[b].term else { return Err(NO_BRANCH) };
    let Name::Val(condition) = *cond else { return Err(NO_BRANCH) };
    if func.values[condition].file != RegFile::P {
        return Err("the condition is the warp's".into());
    }
    let guard = Guard { pred: *cond, not: *not };
    let side = |t: &BlockCall| -> Option<&BlockCall> {
        let data = &func.blocks[t.block];
        match &data.term {
            Terminator::Jump(to)
                if cfg.preds[t.block].len() == 1 && t.args.is_empty() && to.block != t.block =>
            {
                data.params.is_empty().then_some(to)
            }
            _ => None,
        }
    };
    // Where each side goes, and whether it has a block.
    let (first, second) = match (side(taken), side(fall)) {
        (Some(x), Some(y)) if x.block == y.block => (Some(x), Some(y)),
        (Some(x), _) if x.block == fall.block => (Some(x), None),
        (_, Some(y)) if y.block == taken.block => (None, Some(y)),
        _ if taken.block == fall.block => (None, None),
        _ => return Err(NO_BRANCH),
    };
    let (to, from) = (first.unwrap_or(taken), second.unwrap_or(fall));
    if to.block == b || to.block == func.entry_block() {
        return Err(NO_BRANCH);
    }
    // Threads that have nothing left to do end: whole warps of them then execute none of it.
    let end = &func.blocks[to.block];
    if end.insts.is_empty() && matches!(end.term, Terminator::Exit) {
        return Err("the other threads end: whole warps of them execute none of it".into());
    }
    let sides = [
        first.map(|_| Side { block: taken.block, guard }),
        second.map(|_| Side { block: fall.block, guard: Guard { not: !guard.not, ..guard } }),
    ];
    let mut merger = Merger::new(func, &sides);
    let mut merges = Vec::with_capacity(to.args.len());
    for (x, y) in to.args.iter().zip(&from.args) {
        merges.push(merger.merge(*x, *y).ok_or("what the sides pass on cannot be chosen by a guard")?);
    }
    let limits = if varying[condition] { DIVERGENT } else { UNIFORM };
    let alone = first.is_none() || second.is_none();
    let lane = alone && sides.iter().flatten().all(|s| !s.guard.not);
    let elected = if lane { elects(func, b, condition) } else { Elected::No };
    let most = if alone { limits.one } else { limits.two };
    for (n, side) in sides.iter().enumerate() {
        // A selection counts for the side that there is.
        let selections = if n == 0 || first.is_none() { merger.selections } else { 0 };
        let (mut loads, mut others, mut stores) = (0, selections, 0);
        let (mut brings, mut once) = (0, 0);
        for &i in side.iter().flat_map(|s| &func.blocks[s.block].insts) {
            match fit(&func.insts[i]) {
                Fit::Free => {}
                Fit::Load => loads += 1,
                Fit::Computes => others += 1,
                Fit::Store => stores += 1,
                Fit::Brings => brings += 1,
                Fit::Warp => once += 1,
                Fit::No => return Err("an instruction of a side cannot be guarded".into()),
            }
        }
        // The warp executes what one of its lanes is elected for, as many instructions as there are: the others have nothing to do meanwhile.
        if elected != Elected::No && once > 0 {
            continue;
        }
        // ptxas keeps branches around more than one of these, and around one and an arrival.
        if once > 1 || once == 0 && brings > 0 || once > 0 && (loads + stores > 0 || !alone) {
            return Err("what the warp executes once stands beside others".into());
        }
        others += stores;
        let together = limits.with_loads;
        let allowed = if loads > 0 { together - loads.min(together) } else { most };
        if loads > LOADS || others > LOADS.min(allowed) {
            let kind = if varying[condition] { "" } else { " where all threads take one side" };
            return Err(format!("{others} instructions and {loads} loads are more than {most}{kind}").into());
        }
    }
    Ok(Plan { sides, join: to.block, merges, guard, elected })
}

/// Whether a block elects one of its active lanes, for which the predicate holds, and has the same lanes to its end. What is executed
/// once for all active lanes needs no guard then: ptxas 13.0.88 has UTCHMMA, UTMALDG, UBLKCP, UTCBAR, UTMASTG and SYNCS.EXCH so, as
/// many as there are, and arrivals beside them under the lane's guard (docs/predication.md).
fn elects(func: &Function, b: Block, predicate: Value) -> Elected {
    let mut elected = Elected::No;
    let mut meets = false;
    for i in &func.blocks[b].insts {
        let d = &func.insts[*i];
        meets |= ori::meeting::is_meeting(d);
        let info = d.opcode().map(Opcode::info);
        if let Some(s) = Elect::of(d) {
            let chosen =
                |o: &Operand| matches!(o, Operand::Reg(r) if *r == RegOp::plain(Name::Val(predicate)));
            if d.is_unguarded() && chosen(s.p) && *s.a == operand(Name::Phys(Reg::PT)) {
                elected = if meets { Elected::OfThoseThatMeet } else { Elected::OfThoseHere };
            }
        } else if info.is_some_and(|i| i.sync || i.control) || matches!(d.op, Op::Macro(Macro::Call)) {
            elected = Elected::No;
        }
    }
    elected
}

/// Finds out how what the sides pass on is merged.
struct Merger<'a> {
    func: &'a Function,
    /// Which instruction of a side defines a value: the side, 0 or 1.
    defs: FxHashMap<Value, (Inst, usize)>,
    /// Instructions that keep a value already.
    tied: FxHashSet<Inst>,
    /// Selections that are needed.
    selections: usize,
}

impl<'a> Merger<'a> {
    fn new(func: &'a Function, sides: &[Option<Side>; 2]) -> Merger<'a> {
        let mut defs = FxHashMap::default();
        for (n, side) in sides.iter().enumerate() {
            for &i in side.iter().flat_map(|s| &func.blocks[s.block].insts) {
                func.insts[i].for_each_def(|name| {
                    if let Some(v) = name.value() {
                        defs.insert(v, (i, n));
                    }
                });
            }
        }
        Merger { func, defs, tied: FxHashSet::default(), selections: 0 }
    }

    /// How `x`, from where the condition holds, and `y` become one value; `None` if they can't.
    fn merge(&mut self, x: Value, y: Value) -> Option<Merge> {
        if x == y {
            return Some(Merge::Same(x));
        }
        let shape = self.func.values[x];
        if !matches!(shape.file, RegFile::R | RegFile::P) {
            return None;
        }
        if let Some((inst, result, other)) = self.keep(Name::Val(x), Name::Val(y)) {
            return Some(Merge::Keep { inst, result, other });
        }
        if shape.width == 1 {
            self.selections += 1;
            return Some(Merge::Select(x, y));
        }
        let words = (0..shape.width).map(|n| {
            let (x, y) = (self.word(x, n), self.word(y, n));
            if x == y {
                return Word::Same(x);
            }
            if let (Operand::Reg(p), Operand::Reg(q)) = (&x, &y)
                && is_plain(p)
                && is_plain(q)
                && let Some((inst, result, other)) = self.keep(p.reg, q.reg)
            {
                return Word::Keep { inst, result, other };
            }
            self.selections += 1;
            Word::Select(x, y)
        });
        Some(Merge::Words(words.collect()))
    }

    /// The instruction of a side that can keep the value of the other side.
    fn keep(&mut self, x: Name, y: Name) -> Option<(Inst, Value, Name)> {
        // What the second side computes comes after what the first one does.
        for (own, other, side) in [(y, x, 1), (x, y, 0)] {
            let Name::Val(v) = own else { continue };
            let Some(&(inst, at)) = self.defs.get(&v) else { continue };
            let late = |n: Name| n.value().is_some_and(|o| self.defs.get(&o).is_some_and(|d| d.1 == 1));
            if at == side
                && !(side == 0 && late(other))
                && self.can_keep(inst, other)
                && self.tied.insert(inst)
            {
                return Some((inst, v, other));
            }
        }
        None
    }

    /// Whether the instruction can keep a value.
    fn can_keep(&self, inst: Inst, other: Name) -> bool {
        let d = &self.func.insts[inst];
        let Op::Sass(_) = d.op else { return false };
        // The datapath that all threads share has other guards.
        let vector =
            |n: Name| n.value().is_none_or(|v| matches!(self.func.values[v].file, RegFile::R | RegFile::P));
        let mut fits = !self.tied.contains(&inst) && matches!(fit(d), Fit::Computes | Fit::Load);
        d.for_each_def(|n| fits &= vector(n));
        // It cannot keep what it computes itself.
        d.for_each_def(|n| fits &= n.value().is_none() || n.value() != other.value());
        fits
    }

    /// Word `n` of a tuple: what a side puts there, if it is put together there.
    fn word(&self, v: Value, n: u8) -> Operand {
        if let Some((inst, _)) = self.defs.get(&v) {
            let d = &self.func.insts[*inst];
            let single = |o: &Operand| match o {
                Operand::Reg(r) => r
                    .reg
                    .value()
                    .is_none_or(|w| matches!(r.reg, Name::Part(..)) || self.func.values[w].width == 1),
                _ => true,
            };
            if let Some((_, words)) = d.collected()
                && words.len() == usize::from(self.func.values[v].width)
                && words.iter().all(single)
            {
                return words[usize::from(n)];
            }
        }
        operand(Name::Part(v, n))
    }
}

fn is_plain(r: &RegOp<Name>) -> bool {
    *r == RegOp::plain(r.reg)
}

/// A guard that holds for the warp where another one holds for any of the active lanes, made at the end of `before`; marked, if it holds wherever
/// no lanes meet others.
fn of_warp(func: &mut Function, before: &mut Vec<Inst>, guard: Guard, marked: bool, loc: Loc) -> Guard {
    let any = func.add_value(RegFile::UP, 1);
    let lane = Operand::Reg(RegOp { not: guard.not, ..RegOp::plain(guard.pred) });
    let operands = [operand(Name::Phys(Reg::URZ)), operand(any), lane].into_iter().collect();
    let mods: &[Mod] = if marked { &[Mod::ANY, ori::meeting::MARK] } else { &[Mod::ANY] };
    let (op, mods) = (Op::Sass(Opcode::VOTEU), Mods::of(mods));
    let kept = ThinVec::new();
    before.push(func.insts.push(InstData { guard: ori::ALWAYS, op, mods, operands, kept, loc }));
    Guard { pred: Name::Val(any), not: false }
}

/// Moves the sides into `b`. `alike`: whether all lanes that execute an instruction together have the same operands.
fn apply(func: &mut Function, b: Block, plan: Plan, alike: impl Fn(&InstData) -> bool) {
    let kept = plan.kept();
    let mut insts = std::mem::take(&mut func.blocks[b].insts);
    for side in plan.sides.iter().flatten() {
        let mut warp = None;
        for i in std::mem::take(&mut func.blocks[side.block].insts) {
            let needs = match fit(&func.insts[i]) {
                Fit::Load | Fit::Store => true,
                Fit::Brings => !alike(&func.insts[i]),
                _ => kept.contains_key(&i),
            };
            if fit(&func.insts[i]) == Fit::Warp && plan.elected == Elected::OfThoseHere {
                // Once for the warp is once for its lane.
            } else if fit(&func.insts[i]) == Fit::Warp {
                let loc = func.insts[i].loc;
                let marked = plan.elected == Elected::OfThoseThatMeet;
                let guard = *warp.get_or_insert_with(|| of_warp(func, &mut insts, side.guard, marked, loc));
                put_under(func, &mut insts, i, guard, None);
            } else if needs {
                put_under(func, &mut insts, i, side.guard, kept.get(&i).copied());
            }
            insts.push(i);
        }
    }
    let mut out = Selections { insts, guard: plan.guard };
    let args = plan.merges.into_iter().map(|m| out.merged(func, m)).collect();
    func.blocks[b].insts = out.insts;
    func.blocks[b].term = Terminator::Jump(BlockCall { block: plan.join, args });
}

impl Plan {
    /// What instructions keep: one of their results, and the value.
    fn kept(&self) -> FxHashMap<Inst, (Value, Name)> {
        let mut all = FxHashMap::default();
        for m in &self.merges {
            match m {
                Merge::Keep { inst, result, other } => {
                    all.insert(*inst, (*result, *other));
                }
                Merge::Words(words) => all.extend(words.iter().filter_map(|w| match w {
                    Word::Keep { inst, result, other } => Some((*inst, (*result, *other))),
                    Word::Same(_) | Word::Select(..) => None,
                })),
                Merge::Same(_) | Merge::Select(..) => {}
            }
        }
        all
    }
}

/// Puts an instruction under a guard. Of its results one keeps a value perhaps; the others are undefined where it is false.
fn put_under(
    func: &mut Function,
    before: &mut Vec<Inst>,
    i: Inst,
    guard: Guard,
    keeps: Option<(Value, Name)>,
) {
    let mut written: SmallVec<[Name; 2]> = SmallVec::new();
    func.insts[i].for_each_def(|n| written.push(n));
    let loc = func.insts[i].loc;
    let kept = written.into_iter().map(|n| match (n, keeps) {
        (Name::Val(v), Some((result, other))) if v == result => other,
        (Name::Val(v), _) => {
            let shape = func.values[v];
            let undefined = func.add_value(shape.file, shape.width);
            before.push(func.insts.push(macro_inst(Macro::Undef, [operand(undefined)].into_iter(), loc)));
            Name::Val(undefined)
        }
        (physical, _) => physical,
    });
    let kept = kept.collect();
    let d = &mut func.insts[i];
    d.guard = guard;
    d.kept = kept;
}

fn macro_inst(m: Macro, operands: impl Iterator<Item = Operand>, loc: Loc) -> InstData {
    InstData {
        guard: ori::ALWAYS,
        op: Op::Macro(m),
        mods: Mods::none(),
        operands: operands.collect(),
        kept: ThinVec::new(),
        loc,
    }
}

/// Instructions of a block to which selections are added.
struct Selections {
    insts: Vec<Inst>,
    guard: Guard,
}

impl Selections {
    fn push(&mut self, func: &mut Function, d: InstData) {
        self.insts.push(func.insts.push(d));
    }

    /// The value that a merge makes.
    fn merged(&mut self, func: &mut Function, m: Merge) -> Value {
        let words = match m {
            Merge::Same(v) | Merge::Keep { result: v, .. } => return v,
            Merge::Select(x, y) => {
                let file = func.values[x].file;
                return self.select(func, file, operand(x), operand(y));
            }
            Merge::Words(words) => words,
        };
        let width = words.len() as u8;
        let words: Vec<Operand> = words
            .into_iter()
            .map(|w| match w {
                Word::Same(o) => o,
                Word::Keep { result, .. } => operand(result),
                Word::Select(x, y) => operand(self.select(func, RegFile::R, x, y)),
            })
            .collect();
        let tuple = func.add_value(RegFile::R, width);
        let all = std::iter::once(operand(tuple)).chain(words);
        self.push(func, macro_inst(Macro::Collect, all, Loc::default()));
        tuple
    }

    /// `x` where the condition holds, else `y`.
    fn select(&mut self, func: &mut Function, file: RegFile, x: Operand, y: Operand) -> Value {
        let v = func.add_value(file, 1);
        let condition = |not| Operand::Reg(RegOp { not, ..RegOp::plain(self.guard.pred) });
        let (op, mods, operands): (Opcode, &[Mod], Operands) = if file == RegFile::P {
            let pt = operand(Name::Phys(Reg::PT));
            // c & x | !c & y of the inputs 0xf0, 0xcc, 0xaa.
            let table = Operand::Imm(0xca);
            let all = [operand(v), pt, condition(self.guard.not), x, y, table, Operand::Imm(0)];
            (Opcode::PLOP3, &[Mod::LUT], all.into_iter().collect())
        } else {
            // The first source is a register.
            let (x, y, not) = match (&x, &y) {
                (Operand::Reg(_), _) => (x, y, self.guard.not),
                (_, Operand::Reg(_)) => (y, x, !self.guard.not),
                _ => (x, y, self.guard.not),
            };
            (Opcode::SEL, &[], [operand(v), x, y, condition(not)].into_iter().collect())
        };
        let d = InstData {
            guard: ori::ALWAYS,
            op: Op::Sass(op),
            mods: Mods::of(mods),
            operands,
            kept: ThinVec::new(),
            loc: Loc::default(),
        };
        self.push(func, d);
        v
    }
}

#[cfg(test)]
mod tests {
    /// A branch on `tid > 3` around `side`, which passes v9, in place of `other`.
    fn around(side: &str, passed: &str, other: &str) -> String {
        branched("v3:P = ISETP.GT.U32.AND PT, v0, 0x3, PT, PT", side, passed, other)
    }

    /// The same under the condition that is made by `condition`.
    fn branched(condition: &str, side: &str, passed: &str, other: &str) -> String {
        let before = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R = LDC c[0x0][0x218]
    {condition}
    branch v3, block1, block2({other})
block1:
{side}
    jump block2({passed})
block2(v20:R):
    STG.E [v1.64], v20
    exit
}}
"
        );
        let mut f = ori::parse::parse(&before).unwrap_or_else(|e| panic!("{e}: {before}"));
        super::run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn what_is_passed_on_keeps_the_other_value() {
        let text = around("    v8:R = FMUL v0, v2\n    v9:R = FADD v8, v2", "v9", "v0");
        assert!(text.contains("v8:R = FMUL v0, v2") && text.contains("@v3 v9:R = FADD v8, v2"), "{text}");
        assert!(!text.contains("branch"), "{text}");
    }

    #[test]
    fn loads_and_stores_are_guarded() {
        let text = around("    v9:R = LDG.E PT, [v1.64+0x8], PT\n    STG.E [v1.64+0x10], v9", "v9", "v2");
        assert!(text.contains("@v3 v9:R = LDG.E") && text.contains("@v3 STG.E [v1.64+0x10], v9"), "{text}");
        let copy = "    LDGSTS.E.BYPASS.LTC128B.128 [v2], [v1.64], PT\n    v9:R = FADD v0, v2";
        let text = around(copy, "v9", "v2");
        assert!(text.contains("@v3 LDGSTS.E.BYPASS.LTC128B.128 [v2]") && !text.contains("branch"), "{text}");
        // What is loaded and not passed on is undefined elsewhere.
        let text = around("    v8:R = LDG.E PT, [v1.64+0x8], PT\n    v9:R = FADD v8, v8", "v9", "v2");
        assert!(text.contains("= undef") && text.contains("@v3 v8:R = LDG.E"), "{text}");
    }

    #[test]
    fn values_from_before_are_selected() {
        let text = around("    STG.E [v1.64+0x10], v0", "v2", "v0");
        assert!(text.contains("= SEL v2, v0, v3"), "{text}");
    }

    #[test]
    fn what_other_threads_see_stays_behind_the_branch() {
        for side in [
            "    v9:R = ATOMG.E.ADD.STRONG.GPU PT, [v1.64], v0, RZ",
            "    BAR.SYNC.DEFER_BLOCKING 0x0, RZ, PT\n    v9:R = FADD v0, v2",
            "    v9:R = SHFL.IDX PT, v0, 0x0, 0x1f",
        ] {
            let text = around(side, "v9", "v2");
            assert!(text.contains("branch"), "{text}");
        }
    }

    #[test]
    fn what_one_lane_executes_is_guarded_by_the_warp() {
        let words = "    v30:UR = R2UR v2\n    v31:UR = R2UR v0\n    v32:UR4 = collect v30, v31, v30, v30\n    v33:UR2 = collect v30, v30\n";
        let copy = "    UTMALDG.2D [v32], [v33], URZ, [0x0]\n";
        let text = around(&format!("{words}{copy}    v9:R = FADD v0, v2"), "v9", "v2");
        assert!(!text.contains("branch"), "{text}");
        // The word that all lanes have is brought by any of them, the other one by the lane that copies.
        assert!(
            text.contains("    v30:UR = R2UR v2") && text.contains("@v3 v31:UR = R2UR v0 keep"),
            "{text}"
        );
        let any =
            text.lines().find_map(|l| l.trim().strip_suffix(":UP = VOTEU.ANY URZ, v3")).expect("a vote");
        assert!(text.contains(&format!("@{any} UTMALDG.2D [v32], [v33]")), "{text}");
        // Two stay behind the branch, as ptxas has them, and so does one beside a store; a word alone is for something else.
        for side in [
            format!("{words}{copy}{copy}    v9:R = FADD v0, v2"),
            format!("{words}{copy}    STG.E [v1.64+0x10], v0\n    v9:R = FADD v0, v2"),
            String::from("    v30:UR = R2UR v2\n    v9:R = FADD v0, v2"),
        ] {
            let text = around(&side, "v9", "v2");
            assert!(text.contains("branch"), "{text}");
        }
    }

    #[test]
    fn what_an_elected_lane_executes_needs_no_guard() {
        let words = "    v30:UR = R2UR v2\n    v31:UR = R2UR v0\n    v32:UR4 = collect v30, v31, v30, v30\n    v33:UR2 = collect v30, v30\n";
        let copy = "    UTMALDG.2D [v32], [v33], URZ, [0x0]\n";
        let side = format!("{words}{copy}    STG.E [v1.64+0x10], v0\n{copy}    v9:R = FADD v0, v2");
        let elect = "v3:P = ELECT URZ, PT";
        let text = branched(elect, &side, "v9", "v2");
        assert!(!text.contains("branch") && !text.contains("VOTEU"), "{text}");
        assert_eq!(text.matches("\n    UTMALDG.2D [v32], [v33]").count(), 2, "{text}");
        // The word of the lane, its store, and what it passes on.
        for own in
            ["@v3 v31:UR = R2UR v0 keep", "@v3 STG.E [v1.64+0x10], v0", "@v3 v9:R = FADD v0, v2 keep v2"]
        {
            assert!(text.contains(own), "{own}: {text}");
        }
        // Where lanes meet others, the one that is elected may be among those; the backend knows whether they do.
        let met = branched(&format!("WARPSYNC.DIV PT, 0xffffffff\n    {elect}"), &side, "v9", "v2");
        let any =
            met.lines().find_map(|l| l.trim().strip_suffix(":UP = VOTEU.ANY.DIV URZ, v3")).expect("a vote");
        assert_eq!(met.matches(&format!("@{any} UTMALDG.2D [v32], [v33]")).count(), 2, "{met}");
        // Not where other lanes may have come since, nor of some of those that elect.
        for before in [
            format!("{elect}\n    WARPSYNC PT, 0xffffffff"),
            String::from("v4:P = ISETP.GT.U32.AND PT, v0, 0x3, PT, PT\n    v3:P = ELECT URZ, v4"),
        ] {
            let text = branched(&before, &side, "v9", "v2");
            assert!(text.contains("branch"), "{text}");
        }
    }

    #[test]
    fn long_sides_stay() {
        let long = |n: usize| {
            let mut side = String::from("    v100:R = FADD v0, v2\n");
            (1..n).for_each(|i| side += &format!("    v{}:R = FADD v{}, v2\n", 100 + i, 99 + i));
            around(side.trim_end(), &format!("v{}", 99 + n), "v2").contains("branch")
        };
        assert_eq!([8, 9].map(long), [false, true]);
    }
}
