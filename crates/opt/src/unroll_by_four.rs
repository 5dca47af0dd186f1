//! Unrolling of innermost loops whose number of iterations is known only when they are executed: four copies of the body as
//! long as four iterations are left, then two, and the loop itself for what remains.
//!
//! That so many iterations are left is asked exactly. A loop that goes on while `t < b`, and counts by `s`, has `n` more
//! iterations to come if `t + (n - 1) * s < b` in numbers without end; that is asked as `t < b - (n - 1) * s`, which is right as soon as
//! the difference does not wrap around. Where it does, the loop is executed as it was. A loop that goes on while `t != b`
//! has them if the distance from `t` to `b`, as a number without sign, is more than `(n - 1) * |s|`: no number on the way is `b` then.

mod emit;

use crate::Pass;
use crate::unroll::cost;
use emit::{Emit, constant, renamed, words};
use ori::cfg::Cfg;
use ori::loops::{Compare, Loop, Makers};
use ori::pairs::{self, WideSum};
use ori::{Analyses, Block, BlockCall, Changed, Clones, Editor, Function, InstData, Name, Op};
use ori::{Operand, Refusal, Remark, Terminator, User, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{Bool, Iadd3, Iadd3Mods, Icmp, Int64, Isetp, IsetpMods, Mov};
use sass::{Lanes, Opcode, Reg, RegFile, RegOp};
use smallvec::{SmallVec, smallvec};

/// Copies of the body that a round executes, and those behind it, unless something else was chosen for the function.
const FACTORS: &[i64] = &[4, 2];
/// Most instructions of a body that is copied.
const BODY: u64 = 40;
/// Most blocks of it.
const BLOCKS: usize = 4;
/// Largest step of a counter, so that a few of them fit into 32 bits.
const STEP: i64 = 1 << 26;

/// A number of one or two words.
type Words = SmallVec<[Operand; 2]>;

/// How a loop decides whether it goes on: it does while `tested` and `bound` compare so.
struct Test {
    op: Compare,
    signed: bool,
    /// The counter at the beginning of an iteration, and its number among the header's parameters.
    now: Words,
    param: usize,
    /// The counter behind the iteration.
    next: Words,
    /// Whether it is that which is compared.
    of_next: bool,
    step: i64,
    bound: Words,
    /// What the counter begins with, if that is known.
    start: Option<u64>,
}

/// What leads to the headers of the loops that are unrolled, and may have led there before another one was.
type Ways = FxHashMap<Block, Vec<Block>>;

/// How a loop is unrolled.
struct Plan {
    /// Its blocks in reverse postorder; the header is the first one.
    blocks: Vec<Block>,
    latch: Block,
    /// It ends behind the body, not in front of it.
    ends_below: bool,
    /// It loads from global memory.
    loads: bool,
    test: Test,
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "unroll-by-four",
    "OriLoopUnrolling",
    "loops that run another number of times ([unrolling.md](unrolling.md#numbers-that-are-not-known))",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let mut remarks = Vec::new();
    let mut plans: Vec<Plan> = {
        let loops = analyses.loops(func);
        if loops.loops.is_empty() {
            return Changed::Nothing;
        }
        let makers = Makers::new(func);
        let innermost = loops.loops.keys().filter(|l| loops.is_innermost(*l));
        let decided = |l| {
            let plan = plan(func, analyses, &makers, l);
            let said = plan.as_ref().map(|_| describe(func)).map_err(Clone::clone);
            remarks.push(Remark::of(PASS.phase, func.loc_of(loops.loops[l].header), said));
            plan.ok()
        };
        innermost.filter_map(decided).collect()
    };
    func.remark(remarks);
    if plans.is_empty() {
        return Changed::Nothing;
    }
    // Each loop's blocks in the order of their execution, to be where its header was.
    let mut at: FxHashMap<Block, Vec<Block>> = FxHashMap::default();
    let mut moved = FxHashMap::default();
    let cfg = analyses.cfg(func);
    let mut ways: Ways = plans.iter().map(|p| (p.blocks[0], cfg.preds[p.blocks[0]].to_vec())).collect();
    let mut new = func.blocks.next_key();
    let mut e = Editor::new(func);
    for p in &mut plans {
        if let Some(order) = apply(&mut e, p, &ways, &mut moved) {
            at.insert(p.blocks[0], order);
        }
        let end = e.func().blocks.next_key();
        for b in (new.as_u32()..end.as_u32()).map(Block::from_u32) {
            for t in e.func().blocks[b].term.targets() {
                ways.entry(t.block).and_modify(|from| from.push(b));
            }
        }
        new = end;
    }
    let changed = e.finish();
    let new: FxHashSet<Block> = at.values().flatten().copied().collect();
    for b in std::mem::take(&mut func.layout) {
        match at.remove(&b) {
            Some(order) => func.layout.extend(order),
            None if new.contains(&b) => {}
            None => func.layout.push(b),
        }
    }
    changed
}

fn describe(func: &Function) -> String {
    let counts: Vec<String> = factors(func).iter().map(i64::to_string).collect();
    format!("{} iterations a round as long as so many are left", counts.join(", then "))
}

/// How an innermost loop is unrolled, or why it is not.
fn plan(func: &Function, analyses: &Analyses, makers: &Makers, l: Loop) -> Result<Plan, Refusal> {
    let factor = *factors(func).first().ok_or("it was chosen not to")?;
    let (loops, cfg) = (analyses.loops(func), analyses.cfg(func));
    let data = &loops.loops[l];
    let ([(end, _)], [latch]) = (&data.exits[..], &data.latches[..]) else {
        return Err("it is left, or goes back, in several places".into());
    };
    let ends_below = end == latch;
    if !ends_below && *end != data.header || data.header == func.entry_block() {
        return Err("it is left in its middle".into());
    }
    if func.blocks[data.header].rolled {
        return Err("the program forbids it".into());
    }
    if loops.trips(func, cfg, analyses.dominators(func), makers, l).is_some() {
        return Err("it is known how often it is executed".into());
    }
    let blocks = loops.blocks(cfg, l);
    if blocks.first() != Some(&data.header) || blocks.len() > BLOCKS {
        return Err(format!("{} blocks are more than {BLOCKS}", blocks.len()).into());
    }
    let mut size = 0;
    let (mut together, mut loads) = (false, false);
    for i in blocks.iter().flat_map(|b| &func.blocks[*b].insts) {
        let d = &func.insts[*i];
        size += cost(d).ok_or("an instruction in it must not be copied")?;
        loads |= d.op == Op::Sass(Opcode::LDG);
        together |= d.opcode().is_some_and(|op| op.info().sync || op.info().lanes != Lanes::Own);
    }
    let most = func.tuning.unrolled(BODY);
    if size > most {
        return Err(format!("{size} instructions are more than {most}").into());
    }
    if together && analyses.uniformity(func).is_divergent_branch(*end) {
        return Err("lanes in different rounds would not be at one instruction".into());
    }
    let inside: FxHashSet<Value> = made(func, &blocks).collect();
    let mut test = test(func, makers, &inside, &blocks, *end, *latch)
        .ok_or("its end is no comparison of a counter with a bound that stays")?;
    let starts = starts(func, cfg, makers, &test, &blocks);
    let first = starts.first().and_then(constant);
    test.start = first.filter(|_| starts.iter().all(|s| constant(s) == first));
    // Constant bounds are far enough from the end of the numbers, and what goes back does nothing else.
    let most = test.ahead(ends_below, factor).max(factor - 1);
    if test.op != Compare::Ne
        && let Some(bound) = constant(&test.bound)
    {
        test.constant_limit(bound, most).ok_or("its bound is at the end of the numbers")?;
    }
    if !ends_below && !matches!(func.blocks[*latch].term, Terminator::Jump(_)) {
        return Err("the way back decides something".into());
    }
    if is_short(func, analyses, makers, &test, &starts) {
        return Err("it is executed a few times at most".into());
    }
    Ok(Plan { blocks, latch: *latch, ends_below, loads, test })
}

/// Copies of the body that a round executes, and those behind it; none where loops are to stay as they are.
fn factors(func: &Function) -> &'static [i64] {
    match func.tuning.unroll {
        1.. => &[8, 4, 2],
        0 => FACTORS,
        -1 => &FACTORS[1..],
        ..-1 => &[],
    }
}

/// What blocks make.
fn made<'a>(func: &'a Function, blocks: &'a [Block]) -> impl Iterator<Item = Value> + 'a {
    blocks.iter().flat_map(|b| {
        let mut all: Vec<Value> = func.blocks[*b].params.to_vec();
        for i in &func.blocks[*b].insts {
            func.insts[*i].for_each_def(|n| all.extend(n.value()));
        }
        all
    })
}

/// The words of a value.
fn words_of(func: &Function, makers: &Makers, v: Value) -> Words {
    let width = func.values[v].width;
    if width == 1 {
        return smallvec![operand(v)];
    }
    if let Some(i) = makers.of(v)
        && let Some((_, parts)) = func.insts[i].collected()
        && func.insts[i].is_unguarded()
    {
        return Words::from_slice(parts);
    }
    (0..width).map(|k| operand(Name::Part(v, k))).collect()
}

/// The name of a plain register operand.
fn plain(o: &Operand) -> Option<Name> {
    match o {
        Operand::Reg(RegOp { reg, neg: false, abs: false, not: false, .. }) => Some(*reg),
        _ => None,
    }
}

/// The number that an operand is.
fn number(o: &Operand) -> Option<u32> {
    match o {
        Operand::Imm(n) => Some(*n),
        _ => (plain(o)? == Name::Phys(Reg::RZ)).then_some(0),
    }
}

/// What a number of 32 bits is the sum of: another one and a constant.
fn sum_of(func: &Function, makers: &Makers, o: &Operand) -> Option<(Name, u32)> {
    let Name::Val(v) = plain(o)? else { return None };
    let d = &func.insts[makers.of(v)?];
    let s = Iadd3::of(d)?;
    if !d.is_unguarded() || Iadd3Mods::of(d)?.extended || *s.d != operand(v) {
        return None;
    }
    let sum = base_and_constant(s.terms())?;
    (plain(s.carry).is_none() && plain(s.carry2).is_none()).then_some(sum)
}

fn base_and_constant(sources: [&Operand; 3]) -> Option<(Name, u32)> {
    let (mut base, mut sum) = (None, 0u32);
    for o in sources {
        match number(o) {
            Some(n) => sum = sum.wrapping_add(n),
            None => base = base.is_none().then_some(Some(plain(o)?))?,
        }
    }
    Some((base?, sum))
}

/// By how much a counter of these words goes on to those.
fn step(func: &Function, makers: &Makers, now: &[Operand], next: &[Operand]) -> Option<i64> {
    let step = match (now, next) {
        ([now], [next]) if matches!(plain(next), Some(Name::Val(_))) => {
            let (base, number) = sum_of(func, makers, next)?;
            (base == plain(now)?).then_some(i64::from(number as i32))?
        }
        // The words of a sum of 64 bits, or the lower one.
        _ => {
            let Name::Part(v, 0) = plain(next.first()?)? else { return None };
            let (base, number) = WideSum::of(&func.insts[makers.of(v)?])?.with_number()?;
            let words_of = |v| (0..next.len() as u8).map(move |k| operand(Name::Part(v, k)));
            let whole = |words: &[Operand], v: Value| words.iter().copied().eq(words_of(v));
            let base_words = words_of_value(func, makers, base, now.len());
            (whole(next, v) && base_words.as_deref() == Some(now)).then_some(())?;
            if next.len() == 1 { i64::from(number as i32) } else { number }
        }
    };
    (step != 0 && step.abs() <= STEP).then_some(step)
}

/// The first words of a value, if it has so many.
fn words_of_value(func: &Function, makers: &Makers, v: Value, words: usize) -> Option<Words> {
    let mut all = words_of(func, makers, v);
    (all.len() >= words).then(|| {
        all.truncate(words);
        all
    })
}

/// How a loop decides, if by a counter and what does not change in it.
fn test(
    func: &Function,
    makers: &Makers,
    inside: &FxHashSet<Value>,
    blocks: &[Block],
    end: Block,
    latch: Block,
) -> Option<Test> {
    let Terminator::Branch { cond: Name::Val(cond), not, taken, fall } = &func.blocks[end].term else {
        return None;
    };
    let stays = [taken, fall].map(|t| blocks.contains(&t.block));
    let stays_if = (stays[0] != stays[1]).then_some(stays[0] != *not)?;
    let d = &func.insts[makers.of(*cond)?];
    fn compared(d: &InstData, of: Value) -> Option<(Isetp<&Operand>, IsetpMods)> {
        let (s, m) = (Isetp::of(d)?, IsetpMods::of(d)?);
        let plain = m.join == Bool::AND && *s.join == operand(Name::Phys(Reg::PT)) && d.is_unguarded();
        (plain && *s.p == operand(of)).then_some((s, m))
    }
    let (s, m) = compared(d, *cond)?;
    let mut sides: [Words; 2] = if pairs::compares(d) {
        [s.a, s.b].map(|o| match o {
            Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. }) => {
                words_of(func, makers, *v)
            }
            o => Words::from_slice(&pairs::words(*o)),
        })
    } else {
        if m.extended {
            return None;
        }
        [smallvec![*s.a], smallvec![*s.b]]
    };
    let signed = matches!(m.kind, None | Some(Int64::S64));
    let invariant = |w: &Words| {
        w.iter().all(|o| {
            number(o).is_some() || plain(o).and_then(Name::value).is_some_and(|v| !inside.contains(&v))
        })
    };
    let mut op = Compare::of(m.cmp)?;
    if invariant(&sides[0]) {
        sides.swap(0, 1);
        op = op.exchanged();
    }
    let [tested, bound] = sides;
    invariant(&bound).then_some(())?;
    let op = if stays_if { op } else { op.inverted() };
    let back = func.blocks[latch].term.targets().into_iter().find(|t| t.block == blocks[0])?;
    (func.blocks[latch].term.targets().iter().filter(|t| t.block == blocks[0]).count() == 1).then_some(())?;
    for (n, p) in func.blocks[blocks[0]].params.iter().enumerate() {
        let (mut now, mut next) = (words_of(func, makers, *p), words_of(func, makers, back.args[n]));
        if func.values[*p].file != RegFile::R || now.len() < tested.len() || next.len() < tested.len() {
            continue;
        }
        // Of two words the lower one may count alone.
        now.truncate(tested.len());
        next.truncate(tested.len());
        let of_next = next == tested;
        if !of_next && now != tested {
            continue;
        }
        let step = step(func, makers, &now, &next)?;
        let ends = match op {
            Compare::Lt | Compare::Le => step > 0,
            Compare::Gt | Compare::Ge => step < 0,
            Compare::Ne => true,
            Compare::Eq => false,
        };
        return ends.then_some(Test { op, signed, now, param: n, next, of_next, step, bound, start: None });
    }
    None
}

/// What the counter is where the loop begins.
fn starts(func: &Function, cfg: &Cfg, makers: &Makers, test: &Test, blocks: &[Block]) -> Vec<Words> {
    let outside = cfg.preds[blocks[0]].iter().filter(|b| !blocks.contains(b));
    let calls = outside.flat_map(|b| func.blocks[*b].term.targets()).filter(|t| t.block == blocks[0]);
    let start = calls.map(|t| {
        let mut words = words_of(func, makers, t.args[test.param]);
        words.truncate(test.now.len());
        words.iter().map(|o| copied_number(func, makers, o).unwrap_or(*o)).collect()
    });
    start.collect()
}

/// The number that a word is a copy of.
fn copied_number(func: &Function, makers: &Makers, o: &Operand) -> Option<Operand> {
    let Name::Val(v) = plain(o)? else { return None };
    let d = &func.insts[makers.of(v)?];
    let from = d.copied().map(|(_, from)| from).or_else(|| Mov::of(d).map(|s| s.a))?;
    (d.is_unguarded() && number(from).is_some()).then_some(*from)
}

/// Whether it is known that a round is never executed twice.
fn is_short(func: &Function, analyses: &Analyses, makers: &Makers, test: &Test, starts: &[Words]) -> bool {
    let known = analyses.known_bits(func);
    let most = |words: &[Operand]| {
        let word = |o: &Operand| match (number(o), plain(o)) {
            (Some(n), _) => u64::from(n),
            (_, Some(Name::Val(v))) if func.values[v].width == 1 => u64::from(!known.of(v).zeros),
            _ => u64::from(u32::MAX),
        };
        words.iter().enumerate().map(|(k, o)| word(o) << (32 * k)).sum::<u64>()
    };
    let few = 2 * factors(func).first().map_or(0, |f| *f as u64) * test.step.unsigned_abs();
    let zero = |w: &[Operand]| w.iter().all(|o| number(o) == Some(0));
    // From the complement of a number up to zero.
    let negated = |w: &Words| {
        let Some(Name::Val(v)) = plain(&w[0]) else { return None };
        let d = &func.insts[makers.of(v)?];
        let mut sources = Iadd3::of(d)?.terms().into_iter().filter(|o| number(o) != Some(0));
        let (Some(Operand::Reg(r)), None) = (sources.next(), sources.next()) else { return None };
        let is = w.len() == 1 && d.is_unguarded() && !Iadd3Mods::of(d)?.extended;
        let plain = RegOp { neg: false, ..*r };
        (is && r.neg).then(|| most(&[Operand::Reg(plain)]))
    };
    if test.step > 0 && zero(&test.bound) {
        starts.iter().all(|s| negated(s).is_some_and(|n| n < few))
    } else if test.step > 0 {
        let bound = most(&test.bound);
        starts.iter().all(|s| zero(s) && bound < few)
    } else {
        zero(&test.bound) && starts.iter().all(|s| most(s) < few)
    }
}

/// Has what a loop makes leave it as arguments alone; the block that gets them.
fn close(e: &mut Editor<'_>, plan: &Plan, moved: &mut FxHashMap<Value, Value>) -> Option<Block> {
    let outside = |b: Option<Block>| b.is_some_and(|b| !plan.blocks.contains(&b));
    let leaves = |t: &&BlockCall| !plan.blocks.contains(&t.block);
    let out = e.func().blocks[plan.latch].term.targets().iter().position(leaves)?;
    let beyond = e.split_edge(plan.latch, out);
    for v in made(e.func(), &plan.blocks).collect::<Vec<_>>() {
        let block_of = |e: &Editor<'_>, user: &User| match *user {
            User::Inst(i) => e.block_of(i),
            User::Terminator(b) => Some(b),
        };
        let users: Vec<User> = e.users(v).into_iter().filter(|u| outside(block_of(e, u))).collect();
        if users.is_empty() {
            continue;
        }
        let p = e.add_param(beyond, v);
        moved.insert(v, p);
        let mut term = e.func().blocks[plan.latch].term.clone();
        term.targets_mut()[out].args.push(v);
        e.set_terminator(plan.latch, term);
        let name = |n: Name| match n {
            Name::Val(x) if x == v => Name::Val(p),
            Name::Part(x, k) if x == v => Name::Part(p, k),
            _ => n,
        };
        for user in users {
            match user {
                User::Inst(i) => e.change(i, |d| d.map_uses(name)),
                User::Terminator(b) => {
                    let mut term = e.func().blocks[b].term.clone();
                    if let Some(n) = term.used_name_mut() {
                        *n = name(*n);
                    }
                    let args = term.targets_mut().into_iter().flat_map(|t| &mut t.args);
                    args.filter(|a| **a == v).for_each(|a| *a = p);
                    e.set_terminator(b, term);
                }
            }
        }
    }
    Some(beyond)
}

/// The call with which a block goes to another.
fn way(e: &Editor<'_>, from: Block, header: Block) -> Option<BlockCall> {
    e.func().blocks[from].term.targets().into_iter().find(|t| t.block == header).cloned()
}

/// Unrolls a loop; its blocks and the new ones, in their order. `moved`: what stands for values that left loops before.
fn apply(
    e: &mut Editor<'_>,
    plan: &mut Plan,
    ways: &Ways,
    moved: &mut FxHashMap<Value, Value>,
) -> Option<Vec<Block>> {
    plan.test.bound = renamed(&plan.test.bound, |n| match n {
        Name::Val(v) => Name::Val(moved.get(&v).copied().unwrap_or(v)),
        Name::Part(v, k) => Name::Part(moved.get(&v).copied().unwrap_or(v), k),
        Name::Phys(_) => n,
    });
    let (header, test) = (plan.blocks[0], &plan.test);
    let beyond = if plan.ends_below { Some(close(e, plan, moved)?) } else { None };
    // Loads that wait for each other are worth a round of two.
    let factors = factors(e.func());
    let factors = if plan.loads { factors } else { &factors[..1] };
    let guards: Vec<Block> = factors.iter().map(|_| e.add_block_after(header)).collect();
    // Ways in lead to the first question.
    for &b in &ways[&header] {
        if !plan.blocks.contains(&b) && way(e, b, header).is_some() {
            let mut term = e.func().blocks[b].term.clone();
            term.targets_mut().into_iter().filter(|t| t.block == header).for_each(|t| t.block = guards[0]);
            e.set_terminator(b, term);
        }
    }
    let loc = e.func().blocks[header].term_loc;
    let always = Name::Phys(Reg::PT);
    let mut order = Vec::new();
    for (k, &factor) in factors.iter().enumerate() {
        let (guard, rest) = (guards[k], guards.get(k + 1).copied().unwrap_or(header));
        let copies: Vec<Clones> = (0..factor).map(|_| e.clone_region(&plan.blocks)).collect();
        let first = copies[0].blocks[&header];
        // Whether so many iterations are left.
        let shapes = e.func().blocks[header].params.clone();
        let params: SmallVec<[Value; 4]> = shapes.iter().map(|p| e.add_param(guard, *p)).collect();
        let now = renamed(&test.now, |n| match n {
            Name::Part(_, k) => Name::Part(params[test.param], k),
            _ => Name::Val(params[test.param]),
        });
        let mut emit = Emit { e, block: guard, loc };
        let ahead = test.ahead(plan.ends_below, factor);
        let limit = emit.limit(test, ahead);
        // In a round the counter has gone on already, where the loop ends behind its body.
        let ahead_back = if plan.ends_below { factor - 1 } else { ahead };
        let limit_back =
            if k == 0 && ahead_back != ahead { emit.limit(test, ahead_back) } else { limit.clone() };
        let farthest = if k == 0 { ahead.max(ahead_back) } else { ahead };
        let enough = match test.begins(ahead, farthest).filter(|_| k == 0) {
            // From a number that is known so many steps are one more, and the limits follow from the bound's being behind it.
            Some(last) => {
                let last = words(last, test.bound.len());
                emit.compare(test.op.exchanged().modifier(), test.signed, &test.bound, &last, always)
            }
            None => {
                let mut exact = always;
                if test.op != Compare::Ne && constant(&test.bound).is_none() && farthest > 0 {
                    let op = if test.step > 0 { Icmp::LT } else { Icmp::GT };
                    exact = Name::Val(emit.compare(op, test.signed, &limit_back, &test.bound, always));
                }
                emit.remains(test, &now, &limit, ahead, exact)
            }
        };
        let call = |block: Block| BlockCall { block, args: params.iter().copied().collect() };
        let (cond, not) = (Name::Val(enough), false);
        e.set_terminator(guard, Terminator::Branch { cond, not, taken: call(first), fall: call(rest) });
        order.push(guard);
        // One copy behind the other, without questions between them.
        for (n, c) in copies.iter().enumerate() {
            order.extend(plan.blocks.iter().map(|b| c.blocks[b]));
            if !plan.ends_below {
                let inside = |t: &&BlockCall| plan.blocks.contains(&t.block);
                let on = e.func().blocks[header].term.targets().into_iter().find(inside)?.clone();
                let args = on.args.iter().map(|a| c.value(*a)).collect();
                e.set_terminator(
                    c.blocks[&header],
                    Terminator::Jump(BlockCall { block: c.blocks[&on.block], args }),
                );
            }
            let latch = c.blocks[&plan.latch];
            let again = way(e, latch, c.blocks[&header])?;
            if let Some(next) = copies.get(n + 1) {
                e.set_terminator(latch, Terminator::Jump(BlockCall { block: next.blocks[&header], ..again }));
            }
        }
        let c = &copies[copies.len() - 1];
        let latch = c.blocks[&plan.latch];
        let again = way(e, latch, c.blocks[&header])?;
        if k > 0 {
            // Once; then the loop, if anything is left.
            let mut term = e.func().blocks[latch].term.clone();
            let own = c.blocks[&header];
            term.targets_mut().into_iter().filter(|t| t.block == own).for_each(|t| t.block = rest);
            e.set_terminator(latch, term);
            continue;
        }
        let mut left = BlockCall { block: rest, ..again.clone() };
        let mut at = &test.next;
        if let Some(beyond) = beyond {
            let out = way(e, latch, beyond)?;
            let end = e.add_block_after(latch);
            let mut emit = Emit { e, block: end, loc };
            at = if test.of_next { &test.next } else { &test.now };
            let tested = renamed(at, |n| c.name(n));
            let cond = emit.compare(test.op.modifier(), test.signed, &tested, &test.bound, always);
            let cond = Name::Val(cond);
            e.set_terminator(end, Terminator::Branch { cond, not: false, taken: left, fall: out });
            left = BlockCall { block: end, args: SmallVec::new() };
            order.push(end);
        }
        let at = renamed(at, |n| c.name(n));
        let more = Emit { e, block: latch, loc }.remains(test, &at, &limit_back, ahead_back, always);
        let taken = BlockCall { block: first, ..again };
        e.set_terminator(latch, Terminator::Branch { cond: Name::Val(more), not: false, taken, fall: left });
    }
    order.extend(&plan.blocks);
    order.extend(beyond);
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the body of a loop that loads stands in the function, after the pass. The loop goes on while `tested`, the counter
    /// (v3) or what it becomes (v5), and the bound compare so.
    fn copies(start: &str, bound: &str, cmp: &str, tested: &str, step: &str, body: &str) -> usize {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R2 = LDC.64 c[0x0][0x210]
    v1:R = {start}
    v2:R = LDC c[0x0][0x218]
    v9:R = S2R SR_TID.X
    jump block1(v1, v9)
block1(v3:R, v4:R):
    v6:R = LDG.E PT, [v0.64], PT
    v7:R = IADD3 PT, PT, v4, v6, RZ, !PT, !PT
{body}    v5:R = IADD3 PT, PT, v3, {step}, RZ, !PT, !PT
    v8:P = ISETP.{cmp} PT, {tested}, {bound}, PT, PT
    branch v8, block1(v5, v7), block2
block2:
    STG.E [v0.64+0x8], v7
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let changed = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let copies = f.to_string().matches("LDG.E PT").count();
        assert_eq!(copies > 1, changed == Changed::Graph, "{f}");
        copies
    }

    const PARAM: &str = "LDC c[0x0][0x218]";
    const ZERO: &str = "copy RZ";

    #[test]
    fn loops_that_count_have_seven_bodies() {
        for tested in ["v3", "v5"] {
            for start in [ZERO, "copy 0x5", PARAM, "S2R SR_TID.X"] {
                for (cmp, step) in [
                    ("LT.AND", "0x1"),
                    ("LE.U32.AND", "0x3"),
                    ("GT.AND", "0xffffffff"),
                    ("GE.U32.AND", "0xfffffffe"),
                    ("NE.AND", "0x1"),
                    ("NE.U32.AND", "0xffffffff"),
                ] {
                    assert_eq!(
                        copies(start, "v2", cmp, tested, step, ""),
                        7,
                        "{start} {cmp} {tested} {step}"
                    );
                }
            }
        }
    }

    /// As ptxas does it (docs/unrolling.md).
    #[test]
    fn loops_that_the_front_end_has_unrolled_are_again() {
        assert_eq!(copies(ZERO, "v2", "NE.AND", "v5", "0x4", ""), 7);
        assert_eq!(copies(PARAM, "RZ", "NE.AND", "v5", "0xfffffffc", ""), 7);
    }

    #[test]
    fn other_loops_stay() {
        // The wrong way round, or with no end that is known.
        assert_eq!(copies(ZERO, "v2", "LT.AND", "v5", "0xffffffff", ""), 1);
        assert_eq!(copies(ZERO, "v2", "EQ.AND", "v5", "0x1", ""), 1);
        assert_eq!(copies(ZERO, "v2", "LT.AND", "v4", "0x1", ""), 1);
        // Bounds so near the end of the numbers that the limit of a round would be past it.
        assert_eq!(copies(PARAM, "0x80000001", "LT.AND", "v5", "0x1", ""), 1);
        assert_eq!(copies(PARAM, "0x2", "LT.U32.AND", "v5", "0x1", ""), 1);
        // Few iterations.
        assert_eq!(copies("copy 0x3", "RZ", "NE.AND", "v5", "0xffffffff", ""), 1);
        // Too long a body, and lanes that would be at different copies.
        let long: String = (100..140).map(|n| format!("    v{n}:R = FADD v9, v4\n")).collect();
        assert_eq!(copies(ZERO, "v2", "LT.AND", "v5", "0x1", &long), 1);
        let barrier = "    BAR.SYNC 0x0, 0x0, PT\n";
        assert_eq!(copies("S2R SR_TID.X", "v2", "LT.AND", "v5", "0x1", barrier), 1);
        assert_eq!(copies(ZERO, "v2", "LT.AND", "v5", "0x1", barrier), 7);
    }
}
