//! What a loop computes anew each time round, of nothing that changes in it, is computed once before it.
//!
//! A result that is kept takes a register all through the loop, so what is computed must be worth that: instructions leave the loop
//! in groups that share results, if the registers that this takes, less those that only the group read, are few for the cycles that it
//! saves and there is room. What reads nothing but numbers and constant memory stays, and is made once more for those that leave.
//! A branch on what does not change leaves with the blocks up to where its ways meet, if they only compute: divisions of 64 bits are
//! such. Loads stay, as they do with ptxas: a loop may wait for what it loads to change.

mod moves;

use crate::Pass;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use moves::{Move, Region, carry_out};
use ori::loops::{Loop, LoopForest};
use ori::{
    Analyses, Block, Changed, Editor, Function, Inst, InstData, Macro, Name, Op, Terminator, User, Value,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{RegFile, Unit};
use std::cmp::Reverse;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "invariants",
    "OriHoistInvariantsEarly",
    "what does not change in a loop is computed before it, if that saves at least four cycles for each register that the results take meanwhile and registers reach, or takes none",
    run,
);

/// Cycles that a register must save each time round.
const WORTH: u32 = 4;
/// Cycles for each register that are worth more registers than there is room for.
const ALWAYS_WORTH: u32 = 16;
/// Predicates that may be kept through a loop: there are seven.
const PREDICATES: u32 = 2;
/// Instructions of a group of which not all together may leave.
const GROUP: usize = 200;
/// Readers of a value that are looked at, at most.
const READERS: usize = 64;
/// Blocks that leave with a branch, at most.
const REGION: usize = 16;
/// What takes so many cycles at most and reads no registers is made again rather than kept.
const CHEAP: u32 = 4;
/// Cycles that a branch takes.
const BRANCH: u32 = 4;

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let loops = analyses.loops(func);
    if loops.loops.is_empty() {
        return Changed::Nothing;
    }
    let mut planner = Planner::new(func, analyses);
    // What is inside leaves first, and may leave what is around it then.
    for l in loops.loops.keys().rev() {
        planner.plan(l);
    }
    let moves: Vec<(Way, Vec<Move>)> = planner.moves();
    if moves.is_empty() {
        return Changed::Nothing;
    }
    let mut e = Editor::new(func);
    for (way, moves) in moves {
        let before = way.block_in_front(&mut e);
        carry_out(&mut e, before, moves);
    }
    e.finish()
}

/// The only way into a loop.
pub(crate) struct Way {
    /// The block outside that it comes from, and which of its ways out it is.
    from: Block,
    nth: usize,
    /// That block, if it leads nowhere else.
    preheader: Option<Block>,
}

impl Way {
    /// The way into a loop, if there is only one.
    pub(crate) fn into(func: &Function, analyses: &Analyses, l: Loop) -> Option<Way> {
        let data = &analyses.loops(func).loops[l];
        let mut outside = analyses.cfg(func).preds[data.header].iter().filter(|p| !data.latches.contains(p));
        let from = *outside.next().filter(|_| outside.next().is_none())?;
        let targets = func.blocks[from].term.targets();
        let mut ways = targets.iter().enumerate().filter(|(_, t)| t.block == data.header);
        let nth = ways.next().filter(|_| ways.next().is_none())?.0;
        Some(Way { from, nth, preheader: data.preheader.expand() })
    }
    /// The block that is executed each time the loop is come to, and never else; a new one where there is none.
    pub(crate) fn block_in_front(&self, e: &mut Editor<'_>) -> Block {
        self.preheader.unwrap_or_else(|| e.split_edge(self.from, self.nth))
    }
}

/// A block of a loop, or a loop within it.
#[derive(Clone, Copy)]
enum Part {
    Block(Block),
    Loop(Loop),
}

/// What may leave a loop, and what it is worth.
struct Candidate {
    what: Move,
    work: u32,
    /// It is made again rather than kept.
    cheap: bool,
    reads: Vec<Value>,
    makes: Vec<Value>,
    /// Those whose results it reads.
    from: Vec<usize>,
}

/// What leaves a loop.
#[derive(Default)]
struct Chosen {
    candidates: FxHashSet<usize>,
    insts: FxHashSet<Inst>,
    /// Blocks whose terminators leave.
    blocks: FxHashSet<Block>,
}

impl Chosen {
    fn has(&self, user: User) -> bool {
        match user {
            User::Inst(i) => self.insts.contains(&i),
            User::Terminator(b) => self.blocks.contains(&b),
        }
    }
}

struct Planner<'a> {
    func: &'a Function,
    analyses: &'a Analyses,
    loops: &'a LoopForest,
    /// What each loop is made of, in reverse postorder.
    parts: SecondaryMap<Loop, Vec<Part>>,
    /// The loop that a value is made in, as far as planned.
    made: SecondaryMap<Value, PackedOption<Loop>>,
    /// The loop that an instruction is in, as far as planned.
    at: SecondaryMap<Inst, PackedOption<Loop>>,
    readers: SecondaryMap<Value, Vec<User>>,
    leave: SecondaryMap<Loop, Vec<Move>>,
    /// Registers that live at once, at most, and predicates that are kept already.
    pressure: SecondaryMap<Loop, Option<(u32, u32)>>,
}

impl<'a> Planner<'a> {
    fn new(func: &'a Function, analyses: &'a Analyses) -> Planner<'a> {
        let loops = analyses.loops(func);
        let mut p = Planner {
            func,
            analyses,
            loops,
            parts: SecondaryMap::new(),
            made: SecondaryMap::new(),
            at: SecondaryMap::new(),
            readers: SecondaryMap::new(),
            leave: SecondaryMap::new(),
            pressure: SecondaryMap::new(),
        };
        for &b in &analyses.cfg(func).rpo {
            let within = loops.innermost(b);
            if let Some(l) = within {
                if loops.loops[l].header == b
                    && let Some(parent) = loops.loops[l].parent.expand()
                {
                    p.parts[parent].push(Part::Loop(l));
                }
                p.parts[l].push(Part::Block(b));
            }
            let data = &func.blocks[b];
            data.params.iter().for_each(|v| p.made[*v] = within.into());
            for &i in &data.insts {
                p.at[i] = within.into();
                let d = &func.insts[i];
                d.for_each_def(|n| n.value().into_iter().for_each(|v| p.made[v] = within.into()));
                d.for_each_use(|n| n.value().into_iter().for_each(|v| p.readers[v].push(User::Inst(i))));
            }
            term_reads(&data.term, |v| p.readers[v].push(User::Terminator(b)));
        }
        p
    }

    fn is_in(&self, l: Loop, at: PackedOption<Loop>) -> bool {
        at.expand().is_some_and(|a| self.loops.encloses(l, a))
    }

    fn reads_in(&self, l: Loop, user: User) -> bool {
        match user {
            User::Inst(i) => self.is_in(l, self.at[i]),
            User::Terminator(b) => self.loops.contains(l, b),
        }
    }

    /// Decides what leaves a loop.
    fn plan(&mut self, l: Loop) {
        if Way::into(self.func, self.analyses, l).is_none() {
            return;
        }
        let candidates = self.candidates(l);
        if candidates.iter().all(|c| c.cheap) {
            return;
        }
        let mut chosen = Chosen::default();
        for group in groups(&candidates) {
            if self.accept(l, &candidates, &group, &mut chosen) || group.len() > GROUP {
                continue;
            }
            // Not all of them together: each that others do not need, with what it needs.
            let needed: FxHashSet<usize> =
                group.iter().flat_map(|c| candidates[*c].from.iter().copied()).collect();
            let mut alone: Vec<Vec<usize>> =
                group.iter().filter(|c| !needed.contains(c)).map(|c| cone(&candidates, *c)).collect();
            alone.sort_by_key(|g| Reverse(g.iter().map(|c| candidates[*c].work).sum::<u32>()));
            for g in alone {
                self.accept(l, &candidates, &g, &mut chosen);
            }
        }
        let parent = self.loops.loops[l].parent;
        for (n, c) in candidates.into_iter().enumerate() {
            if !chosen.candidates.contains(&n) {
                continue;
            }
            match c.what {
                Move::Inst(i) if c.cheap && self.kept(&chosen, &c.makes).next().is_some() => {
                    self.leave[l].push(Move::Again(i));
                    continue;
                }
                Move::Inst(i) => self.at[i] = parent,
                Move::Region(ref region) => {
                    for &b in &region.blocks {
                        let data = &self.func.blocks[b];
                        data.params.iter().for_each(|v| self.made[*v] = parent);
                        data.insts.iter().for_each(|i| self.at[*i] = parent);
                    }
                }
                Move::Again(_) => {}
            }
            c.makes.iter().for_each(|v| self.made[*v] = parent);
            self.leave[l].push(c.what);
        }
    }

    /// What of a loop follows from what does not change in it and is computed each time round, in order.
    fn candidates(&self, l: Loop) -> Vec<Candidate> {
        let dom = self.analyses.dominators(self.func);
        let latches = &self.loops.loops[l].latches;
        let always = |b: Block| latches.iter().all(|latch| dom.dominates(b, *latch));
        let mut found = Found { list: Vec::new(), makers: FxHashMap::default() };
        for part in &self.parts[l] {
            match *part {
                Part::Block(b) if always(b) => {
                    for &i in &self.func.blocks[b].insts {
                        self.try_inst(l, i, &mut found);
                    }
                    if let Some(c) = self.region(l, b, &found) {
                        found.add(c);
                    }
                }
                Part::Loop(inner) if always(self.loops.loops[inner].header) => {
                    for m in &self.leave[inner] {
                        if let Move::Inst(i) | Move::Again(i) = m {
                            self.try_inst(l, *i, &mut found);
                        }
                    }
                }
                _ => {}
            }
        }
        found.list
    }

    /// Where a value comes from: outside of a loop, or a candidate; `None` if it may change.
    fn source(&self, l: Loop, v: Value, found: &Found) -> Option<Option<usize>> {
        match found.makers.get(&v) {
            Some(c) => Some(Some(*c)),
            None => (!self.is_in(l, self.made[v])).then_some(None),
        }
    }

    fn try_inst(&self, l: Loop, i: Inst, found: &mut Found) {
        let d = &self.func.insts[i];
        let Some(reads) = movable(self.func, d) else { return };
        let Some(from) = reads.iter().map(|v| self.source(l, *v, found)).collect::<Option<Vec<_>>>() else {
            return;
        };
        let mut makes = Vec::new();
        d.for_each_def(|n| makes.extend(n.value()));
        let from = from.into_iter().flatten().collect();
        let cheap = reads.is_empty() && work(d) <= CHEAP;
        found.add(Candidate { what: Move::Inst(i), work: work(d), cheap, reads, makes, from });
    }

    /// The branch at the end of a block, if it and what depends on it may leave.
    fn region(&self, l: Loop, b: Block, found: &Found) -> Option<Candidate> {
        let func = self.func;
        let Terminator::Branch { cond: Name::Val(cond), .. } = &func.blocks[b].term else { return None };
        self.source(l, *cond, found)?;
        let (cfg, dom) = (self.analyses.cfg(func), self.analyses.dominators(func));
        let to = self.analyses.postdominators(func).ipdom(b)?;
        let own = |x: Block| self.loops.innermost(x) == Some(l) && dom.dominates(b, x) && x != b;
        let makes = func.blocks[to].params.to_vec();
        if !own(to) || makes.is_empty() {
            return None;
        }
        let mut blocks: Vec<Block> = Vec::new();
        let mut next = vec![b];
        while let Some(x) = next.pop() {
            for &s in &cfg.succs[x] {
                if s != to && !blocks.contains(&s) {
                    if !own(s) || blocks.len() == REGION {
                        return None;
                    }
                    blocks.push(s);
                    next.push(s);
                }
            }
        }
        blocks.sort_by_key(|x| cfg.order[*x]);
        let within = |x: &Block| *x == b || blocks.contains(x);
        if !blocks.iter().chain([&to]).all(|x| cfg.preds[*x].iter().all(within)) {
            return None;
        }
        let mut local: FxHashSet<Value> = FxHashSet::default();
        let mut reads: Vec<Value> = Vec::new();
        let mut sum = BRANCH;
        term_reads(&func.blocks[b].term, |v| reads.push(v));
        for &x in &blocks {
            local.extend(&func.blocks[x].params);
            for &i in &func.blocks[x].insts {
                let d = &func.insts[i];
                reads.extend(movable(func, d)?);
                d.for_each_def(|n| local.extend(n.value()));
                sum += work(d);
            }
            term_reads(&func.blocks[x].term, |v| reads.push(v));
        }
        reads.retain(|v| !local.contains(v));
        let from = reads.iter().map(|v| self.source(l, *v, found)).collect::<Option<Vec<_>>>()?;
        let from = from.into_iter().flatten().collect();
        // Half of it is executed, roughly.
        let work = BRANCH + sum / 2;
        Some(Candidate {
            what: Move::Region(Region { from: b, blocks, to }),
            work,
            cheap: false,
            reads,
            makes,
            from,
        })
    }

    /// Those of the results that others than what is chosen read.
    fn kept(&self, chosen: &'a Chosen, makes: &'a [Value]) -> impl Iterator<Item = Value> {
        makes.iter().copied().filter(|v| self.readers[*v].iter().any(|u| !chosen.has(*u)))
    }

    /// Has a group leave besides what is chosen, if it is worth it.
    fn accept(&mut self, l: Loop, candidates: &[Candidate], group: &[usize], chosen: &mut Chosen) -> bool {
        let numbers: Vec<usize> = group.iter().copied().filter(|c| !chosen.candidates.contains(c)).collect();
        let new: Vec<&Candidate> = numbers.iter().map(|c| &candidates[*c]).collect();
        if new.iter().all(|c| c.cheap) {
            return false;
        }
        let (mut insts, mut blocks) = (Vec::new(), Vec::new());
        for c in &new {
            match &c.what {
                Move::Inst(i) | Move::Again(i) => insts.push(*i),
                Move::Region(r) => {
                    blocks.push(r.from);
                    blocks.extend(&r.blocks);
                    insts.extend(r.blocks.iter().flat_map(|b| &self.func.blocks[*b].insts));
                }
            }
        }
        chosen.candidates.extend(&numbers);
        chosen.insts.extend(&insts);
        chosen.blocks.extend(&blocks);
        // What is made again saves nothing.
        let leaves = |c: &&&Candidate| !c.cheap || self.kept(chosen, &c.makes).next().is_none();
        let work: u32 = new.iter().filter(leaves).map(|c| c.work).sum();
        let worth = work > 0 && self.is_worth(l, &new, work, chosen);
        if !worth {
            insts.iter().for_each(|i| _ = chosen.insts.remove(i));
            blocks.iter().for_each(|b| _ = chosen.blocks.remove(b));
            numbers.iter().for_each(|c| _ = chosen.candidates.remove(c));
        }
        worth
    }

    fn is_worth(&mut self, l: Loop, new: &[&Candidate], work: u32, chosen: &Chosen) -> bool {
        let (mut words, mut predicates) = (0, 0);
        let mut count = |v: Value, by: i64| {
            let shape = self.func.values[v];
            match shape.file {
                RegFile::R => words += by * i64::from(shape.width),
                _ => predicates += by,
            }
        };
        for c in new.iter().filter(|c| !c.cheap) {
            self.kept(chosen, &c.makes).for_each(|v| count(v, 1));
        }
        let mut seen: FxHashSet<Value> = FxHashSet::default();
        for &v in new.iter().flat_map(|c| &c.reads) {
            if seen.insert(v) && self.is_freed(l, v, chosen) {
                count(v, -1);
            }
        }
        let (pressure, kept) = self.pressure(l);
        let room = u32::from(self.func.aim_regs.min(self.func.max_regs));
        let taken = u32::try_from(words).unwrap_or(0);
        let worth =
            taken == 0 || work >= ALWAYS_WORTH * taken || work >= WORTH * taken && pressure + taken <= room;
        let kept = i64::from(kept) + predicates;
        if !worth || predicates > 0 && kept > i64::from(PREDICATES) {
            return false;
        }
        self.pressure[l] = Some(((i64::from(pressure) + words).max(0) as u32, kept.max(0) as u32));
        true
    }

    /// Whether a value from outside of a loop is not needed in it when what is chosen has left.
    fn is_freed(&self, l: Loop, v: Value, chosen: &Chosen) -> bool {
        let data = &self.loops.loops[l];
        let readers = &self.readers[v];
        // Otherwise it lives in the loop around this one, and so here.
        if self.made[v] != data.parent || readers.len() > READERS {
            return false;
        }
        let live = self.analyses.live(self.func);
        readers.iter().all(|u| chosen.has(*u) || !self.reads_in(l, *u))
            && data.exits.iter().all(|(_, to)| live.live_in(*to).binary_search(&v).is_err())
    }

    /// Registers that live in a loop at once, and predicates that are kept through it.
    fn pressure(&mut self, l: Loop) -> (u32, u32) {
        if let Some(known) = self.pressure[l] {
            return known;
        }
        let mut most = (0, 0);
        for part in self.parts[l].clone() {
            let found = match part {
                Part::Block(b) => (in_block(self.func, self.analyses, b), 0),
                Part::Loop(inner) => self.pressure(inner),
            };
            most = (most.0.max(found.0), most.1.max(found.1));
        }
        self.pressure[l] = Some(most);
        most
    }

    /// What leaves which loop, outer ones first; what leaves several, the outermost.
    fn moves(self) -> Vec<(Way, Vec<Move>)> {
        let mut left: FxHashSet<Inst> = FxHashSet::default();
        let mut out = Vec::new();
        for l in self.loops.loops.keys() {
            let mut first = |m: &Move| !matches!(m, Move::Inst(i) if !left.insert(*i));
            let moves: Vec<Move> = self.leave[l].iter().filter(|m| first(m)).cloned().collect();
            if moves.iter().any(|m| !matches!(m, Move::Again(_)))
                && let Some(way) = Way::into(self.func, self.analyses, l)
            {
                out.push((way, moves));
            }
        }
        out
    }
}

/// Candidates, and which makes a value.
struct Found {
    list: Vec<Candidate>,
    makers: FxHashMap<Value, usize>,
}

impl Found {
    fn add(&mut self, c: Candidate) {
        c.makes.iter().for_each(|v| _ = self.makers.insert(*v, self.list.len()));
        self.list.push(c);
    }
}

/// Candidates that share results, in groups.
fn groups(candidates: &[Candidate]) -> Vec<Vec<usize>> {
    fn find(top: &mut [usize], mut at: usize) -> usize {
        while top[at] != at {
            top[at] = top[top[at]];
            at = top[at];
        }
        at
    }
    let mut top: Vec<usize> = (0..candidates.len()).collect();
    for (n, c) in candidates.iter().enumerate().filter(|(_, c)| !c.cheap) {
        for &f in c.from.iter().filter(|f| !candidates[**f].cheap) {
            let (a, b) = (find(&mut top, n), find(&mut top, f));
            top[a.max(b)] = a.min(b);
        }
    }
    let mut at: FxHashMap<usize, usize> = FxHashMap::default();
    let mut out: Vec<Vec<usize>> = Vec::new();
    for (n, c) in candidates.iter().enumerate().filter(|(_, c)| !c.cheap) {
        let root = find(&mut top, n);
        let group = *at.entry(root).or_insert_with(|| {
            out.push(Vec::new());
            out.len() - 1
        });
        out[group].extend(c.from.iter().copied().filter(|f| candidates[*f].cheap));
        out[group].push(n);
    }
    for group in &mut out {
        group.sort_unstable();
        group.dedup();
    }
    out
}

/// A candidate, and what it needs.
fn cone(candidates: &[Candidate], n: usize) -> Vec<usize> {
    let mut found = vec![n];
    let mut seen: FxHashSet<usize> = FxHashSet::default();
    let mut next = 0;
    while let Some(&at) = found.get(next) {
        next += 1;
        found.extend(candidates[at].from.iter().copied().filter(|f| seen.insert(*f)));
    }
    found.sort_unstable();
    found
}

/// What an instruction reads, if it does the same wherever it is executed, and may leave its results in registers through a loop.
fn movable(func: &Function, d: &InstData) -> Option<Vec<Value>> {
    let own = match d.op {
        Op::Sass(_) => d.is_of_each_lane(),
        Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect),
    };
    let mut can = own && d.may_run_needlessly();
    let mut makes = false;
    d.for_each_def(|n| match n {
        Name::Val(v) => {
            makes = true;
            can &= matches!(func.values[v].file, RegFile::R | RegFile::P);
        }
        Name::Part(..) => can = false,
        Name::Phys(r) => can &= r.is_zero(),
    });
    let mut reads = Vec::new();
    d.for_each_use(|n| match n {
        Name::Val(v) | Name::Part(v, _) => reads.push(v),
        Name::Phys(r) => can &= r.is_zero(),
    });
    (can && makes).then_some(reads)
}

/// What a terminator reads.
fn term_reads(term: &Terminator, mut f: impl FnMut(Value)) {
    term.used_name().and_then(Name::value).into_iter().for_each(&mut f);
    term.targets().into_iter().flat_map(|t| t.args.iter().copied()).for_each(f);
}

/// Cycles that an instruction takes of a loop, roughly.
fn work(d: &InstData) -> u32 {
    let Op::Sass(op) = d.op else { return 0 };
    match op.unit() {
        Unit::Xu | Unit::Fp64 => 8,
        Unit::Load | Unit::Move => 4,
        Unit::Imad => 2,
        _ => 1,
    }
}

/// Registers that live in a block at once, at most.
fn in_block(func: &Function, analyses: &Analyses, b: Block) -> u32 {
    let width = |v: Value| {
        let shape = func.values[v];
        if shape.file == RegFile::R { u32::from(shape.width) } else { 0 }
    };
    let mut live: FxHashSet<Value> = analyses.live(func).live_out(b).iter().copied().collect();
    let mut now: u32 = live.iter().map(|v| width(*v)).sum();
    let mut most = now;
    for &i in func.blocks[b].insts.iter().rev() {
        let d = &func.insts[i];
        d.for_each_def(|n| {
            if let Some(v) = n.value()
                && live.remove(&v)
            {
                now -= width(v);
            }
        });
        d.for_each_use(|n| {
            if let Some(v) = n.value()
                && live.insert(v)
            {
                now += width(v);
            }
        });
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop with this body, of which `v9` counts on, in a loop that counts `v4`; what becomes of it, by blocks.
    fn blocks(before: &str, body: &str) -> Vec<String> {
        let text = format!(
            "function k sm_80 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R = S2R SR_TID.X
    v1:R = S2R SR_CTAID.X
    v2:R = IADD3 PT, PT, v0, 0x5, RZ, !PT, !PT
    v3:R = copy RZ
    jump block1(v3)
block1(v4:R):
    {before}
    jump block2(v3)
block2(v5:R):
    {body}
    v6:R = IADD3 PT, PT, v5, 0x1, RZ, !PT, !PT
    v7:P = ISETP.LT.AND PT, v6, v1, PT, PT
    branch v7, block2(v6), block3
block3:
    v8:R = IADD3 PT, PT, v4, 0x1, RZ, !PT, !PT
    v9:P = ISETP.LT.AND PT, v8, v2, PT, PT
    branch v9, block1(v8), block4
block4:
    STS [v0], v2
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap();
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string().split("\nblock").skip(1).map(str::to_string).collect()
    }

    const DEAR: &str = "v10:R = I2F v0
    v11:R = MUFU.RCP v10
    v12:R = F2I.TRUNC.NTZ v11
    STS [v5], v12";

    #[test]
    fn what_is_dear_leaves_all_loops() {
        let found = blocks("STS [v4], v4", DEAR);
        assert!(["I2F", "MUFU", "F2I"].iter().all(|op| found[0].contains(op)), "{found:?}");
        // What depends on the outer loop leaves the inner one alone.
        let found = blocks("STS [v4], v4", &DEAR.replace("I2F v0", "I2F v4"));
        assert!(["I2F", "MUFU", "F2I"].iter().all(|op| found[1].contains(op)), "{found:?}");
    }

    #[test]
    fn what_is_cheap_stays() {
        let found = blocks("STS [v4], v4", "v10:R = IADD3 PT, PT, v0, v1, RZ, !PT, !PT\n    STS [v5], v10");
        assert!(found[2].contains("IADD3 PT, PT, v0, v1"), "{found:?}");
        // Where it takes the place of what it reads it leaves.
        let sum = "v13:R = S2R SR_TID.Y\n    v14:R = S2R SR_LANEID\n    STS [v13], v14";
        let found = blocks(sum, "v10:R = IADD3 PT, PT, v13, v14, RZ, !PT, !PT\n    STS [v5], v10");
        assert!(found[1].contains("IADD3 PT, PT, v13, v14"), "{found:?}");
    }

    #[test]
    fn numbers_are_made_again() {
        let body = "v9:R = copy 0x7\n    v10:R = I2F v9\n    v11:R = MUFU.RCP v10\n    STS [v9], v11"
            .replace("v9", "v15");
        let found = blocks("STS [v4], v4", &body);
        assert!(
            found[0].contains("MUFU") && found[0].contains("0x7") && found[2].contains("0x7"),
            "{found:?}"
        );
    }

    #[test]
    fn loads_and_what_is_not_always_executed_stay() {
        let found = blocks("STS [v4], v4", "v10:R = LDS [v0]\n    STS [v5], v10");
        assert!(found[2].contains("LDS"), "{found:?}");
        let arm = "v16:P = ISETP.LT.AND PT, v5, 0x9, PT, PT
    branch v16, block5, block6
block5:
    v10:R = I2F v0
    v11:R = MUFU.RCP v10
    STS [v5], v11
    jump block6
block6:";
        let found = blocks("STS [v4], v4", arm);
        assert!(!found[0].contains("MUFU") && !found[1].contains("MUFU"), "{found:?}");
    }

    #[test]
    fn branches_leave_with_what_they_choose() {
        let region = "v16:P = ISETP.LT.AND PT, v0, 0x9, PT, PT
    branch v16, block5, block6
block5:
    v10:R = I2F v0
    v11:R = MUFU.RCP v10
    jump block7(v11)
block6:
    v12:R = MUFU.RSQ v0
    jump block7(v12)
block7(v13:R):
    v14:R = FADD v13, v13
    STS [v5], v14";
        let found = blocks("STS [v4], v4", region);
        let at = |part: &str| found.iter().position(|b| b.contains(part));
        let header = found.iter().position(|b| b.starts_with("2(v5")).unwrap();
        assert!(at("MUFU.RCP").unwrap() < header && at("MUFU.RSQ").unwrap() < header, "{found:?}");
        // With a store in an arm nothing of it does.
        let found = blocks("STS [v4], v4", &region.replace("v12:R =", "STS [v0], v0\n    v12:R ="));
        let at = |part: &str| found.iter().position(|b| b.contains(part));
        assert!(at("MUFU.RCP").unwrap() > at("2(v5").unwrap(), "{found:?}");
    }
}
