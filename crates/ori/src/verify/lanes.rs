//! Checks that what lanes of a warp do together keeps the lanes that it had.
//!
//! An instruction that has to do with other lanes ([`counts_lanes`], by the instruction table) is executed by those that come to it. Which they are is
//! decided by the branches that it is control dependent on, themselves or through others (Ferrante, Ottenstein, Warren, 1987), a branch by which
//! lanes end among them, and by its guard. From one phase to the next
//!
//! * none may come to depend on a decision on which it did not depend: lanes that were there would be missing;
//! * none may be freed of a decision, if the instruction is the same one, no copies of its statement were made, and no decision is gone anywhere: others
//!   would come;
//! * where WARPSYNCs stood before it in its block, one of those that are left still stands before it.
//!
//! Decisions of which all lanes come to the same do not count. Phases copy blocks, join branches and turn conditions around, so a decision is not known by
//! its block: copies of a branch have its line, what takes its place has its line or its condition. Where a phase leaves the graph as it is,
//! blocks are all that counts. Loops that never end are not looked at.

use crate::allocated::Allocated;
use crate::cfg::{Cfg, DomTree, PostDom};
use crate::function::{Block, Function, Inst, Name, Op, Register, Value};
use crate::print::inst_text;
use crate::uniformity::Uniformity;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Effect, Flow, Lanes, Opcode, RegFile, SlotKind, Sync};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::rc::Rc;

/// Whether an instruction has to do with the other lanes that execute it: it takes their operands, tells which they are, or waits for them.
pub fn counts_lanes(op: Opcode) -> bool {
    let info = op.info();
    let waits = match info.effect {
        Effect::Sync(Sync::Threads | Sync::Block | Sync::Result) => true,
        // Not what names a convergence barrier: the backend places those by where lanes are.
        Effect::Control(Flow::Meet) => !op.slots().iter().any(|s| s.kind == SlotKind::Reg(RegFile::B)),
        _ => false,
    };
    // What takes the operands of any one lane gives the same wherever those are alike, which is where it may stand.
    waits || !matches!(info.lanes, Lanes::Own | Lanes::Chosen)
}

/// An instruction that counts on lanes.
#[derive(Clone, Debug)]
struct Site {
    inst: Inst,
    op: Opcode,
    line: u32,
    block: Block,
    /// What its guard names, 0 if it has none.
    guard: u32,
    /// How many WARPSYNCs stand before it in the block.
    gathered: u32,
}

/// What a decision is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Decision {
    block: Block,
    line: u32,
    /// The condition's value, counted from 1; 0 if it is none.
    cond: u32,
}

/// Where a function's lanes count, as it is before a phase.
#[derive(Debug, Default)]
pub struct Places {
    sites: Vec<Site>,
    cfg: Cfg,
    decisions: SecondaryMap<Block, Option<Decision>>,
    /// The WARPSYNCs of each block in their order.
    gathers: FxHashMap<Block, Vec<Inst>>,
    depends: OnceCell<SecondaryMap<Block, SmallVec<[Block; 2]>>>,
}

/// A name as a number; 0 for what is no value.
fn number<R: Register>(n: R) -> u32 {
    let n: Name = n.into();
    n.value().map_or(0, |v| v.as_u32() + 1)
}

fn is_gather(op: Opcode) -> bool {
    op == Opcode::WARPSYNC
}

impl Places {
    /// Those of a function as it is.
    pub fn of<R: Register>(func: &Function<R>) -> Places {
        let mut places = Places::default();
        for &b in &func.layout {
            let mut gathers: Vec<Inst> = Vec::new();
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                let Op::Sass(op) = d.op else { continue };
                if counts_lanes(op) {
                    let guard = if d.is_unguarded() { 0 } else { number(d.guard.pred) };
                    let (gathered, line) = (gathers.len() as u32, d.loc.0);
                    places.sites.push(Site { inst: i, op, line, block: b, guard, gathered });
                }
                if is_gather(op) {
                    gathers.push(i);
                }
            }
            if !gathers.is_empty() {
                places.gathers.insert(b, gathers);
            }
        }
        // Most functions have none, and need no more.
        if places.sites.is_empty() {
            return places;
        }
        places.cfg = Cfg::new(func);
        for &b in &places.cfg.rpo {
            let data = &func.blocks[b];
            let several = places.cfg.succs[b].iter().any(|s| *s != places.cfg.succs[b][0]);
            if several {
                let cond = data.term.used_name().map_or(0, number);
                places.decisions[b] = Some(Decision { block: b, line: data.term_loc.0, cond });
            }
        }
        places
    }

    /// The branches that each block is control dependent on, not through others.
    fn depends(&self) -> &SecondaryMap<Block, SmallVec<[Block; 2]>> {
        self.depends.get_or_init(|| {
            let post = PostDom::new(&self.cfg);
            let mut found: SecondaryMap<Block, SmallVec<[Block; 2]>> = SecondaryMap::new();
            for &b in self.cfg.rpo.iter().filter(|b| self.decisions[**b].is_some()) {
                for &s in &self.cfg.succs[b] {
                    let mut at = Some(s);
                    while let Some(x) = at.filter(|x| Some(*x) != post.ipdom(b)) {
                        // The other side came by here: what is behind it has been seen.
                        if found[x].last() == Some(&b) {
                            break;
                        }
                        found[x].push(b);
                        at = post.ipdom(x);
                    }
                }
            }
            found
        })
    }

    /// All decisions on which a block depends.
    fn of_block(&self, b: Block, known: &mut Known) -> Rc<[Decision]> {
        let find = || {
            let depends = self.depends();
            let mut seen: FxHashSet<Block> = FxHashSet::default();
            let mut stack: Vec<Block> = depends[b].to_vec();
            let mut found = Vec::new();
            while let Some(x) = stack.pop() {
                if seen.insert(x) {
                    found.extend(self.decisions[x]);
                    stack.extend(&depends[x]);
                }
            }
            found.into()
        };
        known.entry(b).or_insert_with(find).clone()
    }

    /// The blocks that other blocks, or other decisions, decide about than before, themselves or through others.
    fn changed(&self, after: &Places) -> FixedBitSet {
        let mut changed = FixedBitSet::new();
        let (was, now) = (self.depends(), after.depends());
        let mut decided: SecondaryMap<Block, SmallVec<[Block; 4]>> = SecondaryMap::new();
        let mut work: Vec<Block> = Vec::new();
        let sorted = |list: &[Block]| {
            let mut list: SmallVec<[Block; 4]> = list.into();
            list.sort_unstable();
            list
        };
        for &b in &after.cfg.rpo {
            now[b].iter().for_each(|d| decided[*d].push(b));
            let line = |p: &Places| p.decisions[b].map(|d| d.line);
            if !self.cfg.is_reachable(b) || line(self) != line(after) || sorted(&was[b]) != sorted(&now[b]) {
                work.push(b);
            }
        }
        while let Some(b) = work.pop() {
            changed.grow(b.index() + 1);
            if !changed.put(b.index()) {
                work.extend(&decided[b]);
            }
        }
        changed
    }

    /// Whether blocks lead where they led, and decide by the same.
    fn same_graph(&self, after: &Places) -> bool {
        self.cfg.rpo == after.cfg.rpo
            && self.cfg.rpo.iter().all(|b| {
                self.cfg.succs[*b] == after.cfg.succs[*b]
                    && self.decisions[*b].is_some() == after.decisions[*b].is_some()
            })
    }
}

/// The decisions of blocks that were asked for.
type Known = FxHashMap<Block, Rc<[Decision]>>;

/// Decisions, by what they are known by: lines and conditions, or blocks.
#[derive(Default)]
struct Allowed {
    lines: FxHashSet<u32>,
    conditions: FxHashSet<u32>,
    blocks: FxHashSet<Block>,
}

impl Allowed {
    fn add(&mut self, d: &Decision) {
        self.lines.insert(d.line);
        self.conditions.insert(d.cond);
        self.blocks.insert(d.block);
    }
    /// Whether it is one of them: of the same block, where blocks are what they were (`exact`), or a branch has no line.
    fn has(&self, d: &Decision, exact: bool) -> bool {
        if exact {
            return self.blocks.contains(&d.block);
        }
        let line = if d.line == 0 { self.blocks.contains(&d.block) } else { self.lines.contains(&d.line) };
        line || d.cond != 0 && self.conditions.contains(&d.cond)
    }
}

/// A function before and after a phase.
struct Step<'a, R: Register> {
    before: &'a Places,
    after: &'a Places,
    func: &'a Function<R>,
    phase: Kind,
    /// Of which decisions all lanes come to the same.
    alike: &'a dyn Fn(What) -> bool,
    /// Whether the graph is as it was; else the blocks that other decisions are made about. And whether every decision is still there.
    same_graph: bool,
    changed: FixedBitSet,
    all_decided: bool,
    /// What the decisions before were about.
    conditions: FxHashSet<u32>,
    /// The places before, by their instructions; and those of each statement, with how many it has after.
    of_inst: FxHashMap<Inst, &'a Site>,
    of_statement: FxHashMap<(u32, Opcode), (Vec<&'a Site>, usize)>,
    /// Where each WARPSYNC is after: its block, and how many stand before it there.
    gathers: FxHashMap<Inst, (Block, u32)>,
    dominators: OnceCell<DomTree>,
    known: (Known, Known),
    errors: Vec<String>,
}

/// Holds a phase to what lanes count on: what is wrong with what it made of a function that had `before`.
fn check<R: Register>(
    before: &Places,
    after: &Places,
    func: &Function<R>,
    phase: Kind,
    alike: &dyn Fn(What) -> bool,
) -> Vec<String> {
    if before.sites.is_empty() || after.sites.is_empty() {
        return Vec::new();
    }
    let numbered = phase != Kind::Numbers;
    let there = |(b, d): (Block, &Decision)| {
        after.decisions[b].is_some_and(|n| n.cond == d.cond) && after.cfg.is_reachable(b)
    };
    let decided = || before.decisions.iter().filter_map(|(b, d)| Some((b, d.as_ref()?)));
    let same_graph = numbered && before.same_graph(after);
    let compared = numbered && !same_graph;
    let mut step = Step {
        before,
        after,
        func,
        phase,
        alike,
        same_graph,
        changed: if compared { before.changed(after) } else { FixedBitSet::new() },
        all_decided: decided().all(there),
        conditions: decided().map(|(_, d)| d.cond).collect(),
        of_inst: FxHashMap::default(),
        of_statement: FxHashMap::default(),
        gathers: FxHashMap::default(),
        dominators: OnceCell::new(),
        known: Default::default(),
        errors: Vec::new(),
    };
    if numbered {
        step.of_inst = before.sites.iter().map(|s| (s.inst, s)).collect();
    }
    for s in &before.sites {
        step.of_statement.entry((s.line, s.op)).or_default().0.push(s);
    }
    for s in &after.sites {
        step.of_statement.entry((s.line, s.op)).or_default().1 += 1;
    }
    for (b, list) in &after.gathers {
        step.gathers.extend((0..).zip(list).map(|(k, i)| (*i, (*b, k))));
    }
    for s in after.sites.iter().filter(|s| after.cfg.is_reachable(s.block)) {
        step.site(s);
    }
    step.errors
}

impl<R: Register> Step<'_, R> {
    fn site(&mut self, s: &Site) {
        let was = self.of_inst.get(&s.inst).copied();
        let alike = self.same_graph || !self.changed.contains(s.block.index());
        let stayed = alike && was.is_some_and(|w| w.block == s.block && w.guard == s.guard);
        if !stayed {
            self.decides(s, was);
        }
        if let Some(was) = was
            && !is_gather(s.op)
            && self.lost_gather(s, was)
        {
            self.wrong(s, "no longer stands behind WARPSYNC");
        }
    }

    /// Looks at what decides who comes to a place.
    fn decides(&mut self, s: &Site, was: Option<&Site>) {
        let copies = self.of_statement.get(&(s.line, s.op));
        let from: SmallVec<[&Site; 2]> = match was {
            Some(one) => [one].into_iter().collect(),
            None if s.line == 0 || self.phase == Kind::Meetings => SmallVec::new(),
            None => copies.map_or_else(SmallVec::new, |c| c.0.iter().copied().collect()),
        };
        // What a phase makes anew counts on those that come.
        if from.is_empty() {
            return;
        }
        let once = copies.is_some_and(|c| c.0.len() == c.1);
        let (exact, alike) = (self.same_graph && was.is_some(), self.alike);
        let now = self.after.of_block(s.block, &mut self.known.1);
        let mut allowed = Allowed::default();
        let mut guarded = s.guard == 0;
        for f in from {
            self.before.of_block(f.block, &mut self.known.0).iter().for_each(|d| allowed.add(d));
            guarded |= f.guard != 0;
        }
        // Where lanes may be at two such instructions, those that are not all here meet in a function that does the same.
        let meets = |d: &Decision| {
            self.phase == Kind::Meetings && d.line == s.line && !self.conditions.contains(&d.cond)
        };
        let gained = |d: &&Decision| !allowed.has(d, exact) && !meets(d) && !alike(What::Branch(d.block));
        let gained: Vec<Decision> = now.iter().filter(gained).copied().collect();
        let mut freed = Vec::new();
        // Where a branch is gone, what others decided may follow from elsewhere; copies share what one did.
        if let Some(was) = was.filter(|_| self.all_decided && once) {
            let mut still = Allowed::default();
            now.iter().for_each(|d| still.add(d));
            let old = self.before.of_block(was.block, &mut self.known.0);
            let lost = |d: &&Decision| !still.has(d, exact) && !alike(What::Branch(d.block));
            freed.extend(old.iter().filter(lost).copied());
        }
        for (list, how) in [(gained, "now depends on"), (freed, "no longer depends on")] {
            for d in list {
                self.wrong(s, &format!("{how} the branch of {} (line {})", d.block, d.line));
            }
        }
        if !guarded
            && !allowed.conditions.contains(&s.guard)
            && !alike(What::Value(Value::new(s.guard as usize - 1)))
        {
            self.wrong(s, "is now guarded");
        }
    }

    /// Whether WARPSYNCs that stood before an instruction in its block are left, but none of them before it.
    fn lost_gather(&self, s: &Site, was: &Site) -> bool {
        let stood = self.before.gathers.get(&was.block).map_or(&[][..], |g| &g[..was.gathered as usize]);
        // One that went to a function, where lanes meet, was asked for by a vote.
        if self.phase == Kind::Meetings && stood.last().is_some_and(|w| !self.gathers.contains_key(w)) {
            return false;
        }
        let ahead = |(b, k): &(Block, u32)| {
            let tree = || self.dominators.get_or_init(|| DomTree::dominators(&self.after.cfg));
            // What stands where lanes go that are not all there, others come by as a whole warp.
            let asks = match self.after.cfg.preds[*b].as_slice() {
                [p] if (self.alike)(What::Aside(*b)) => *p,
                _ => *b,
            };
            if *b == s.block { *k < s.gathered } else { asks != s.block && tree().dominates(asks, s.block) }
        };
        let mut left = stood.iter().rev().filter_map(|w| self.gathers.get(w)).peekable();
        left.peek().is_some() && !left.any(ahead)
    }

    fn wrong(&mut self, s: &Site, how: &str) {
        let text = inst_text(self.func, &self.func.insts[s.inst]);
        self.errors.push(format!("{}: `{}` (line {}) {how}", s.block, text.trim_end(), s.line));
    }
}

/// What a phase may do besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing.
    Usual,
    /// It has lanes meet that are at several instructions ([`crate::meeting`]).
    Meetings,
    /// It numbers instructions and values anew.
    Numbers,
}

/// What lanes may be asked to be alike in.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The branch at the end of a block.
    Branch(Block),
    /// A value.
    Value(Value),
    /// Not lanes, but the block before it: whether they come here where not all of the warp are there ([`crate::meeting::whole_warp`]).
    Aside(Block),
}

/// Follows a function through its phases.
#[derive(Debug, Default)]
pub struct Watch {
    before: Option<Places>,
}

impl Watch {
    /// From what it is now on, if anybody wants checks.
    pub fn new<R: Register>(func: &Function<R>, wanted: bool) -> Watch {
        Watch { before: wanted.then(|| Places::of(func)) }
    }

    /// Whether anybody wants checks.
    pub fn is_on(&self) -> bool {
        self.before.is_some()
    }

    /// Holds a phase to what lanes count on, and is ready for the next one.
    ///
    /// # Errors
    /// Every violation found, one line each.
    pub fn step(&mut self, func: &Function, phase: Kind) -> Result<(), Vec<String>> {
        let Some(before) = &mut self.before else { return Ok(()) };
        let after = Places::of(func);
        let uniformity = OnceCell::new();
        let alike = |what: What| {
            let known: &Uniformity = uniformity.get_or_init(|| Uniformity::new(func, &after.cfg));
            match what {
                // Lanes that come together to the question whether the whole warp is there go on together.
                What::Branch(b) => {
                    !known.is_divergent_branch(b) || crate::meeting::whole_warp(func, b).is_some()
                }
                What::Value(v) => !known.is_divergent(v),
                What::Aside(b) => match after.cfg.preds[b].as_slice() {
                    [p] => crate::meeting::whole_warp(func, *p).is_some_and(|all| all != b),
                    _ => false,
                },
            }
        };
        let errors = check(before, &after, func, phase, &alike);
        *before = after;
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The same for the allocation of registers, which numbers everything anew.
    ///
    /// # Errors
    /// Every violation found, one line each.
    pub fn allocated(&self, func: &Allocated) -> Result<(), Vec<String>> {
        let Some(before) = &self.before else { return Ok(()) };
        let errors = check(before, &Places::of(func), func, Kind::Numbers, &|_| false);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sass::Opcode;

    /// Takes an instruction to a place in another block; what the checker says of that.
    fn moved(text: &str, op: Opcode, to: u32, at: usize) -> Result<(), String> {
        let mut func = crate::parse::parse(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let mut watch = Watch::new(&func, true);
        watch.step(&func, Kind::Usual).unwrap_or_else(|e| panic!("{e:?}"));
        let is = |func: &Function, i: &Inst| func.insts[*i].op == Op::Sass(op);
        let layout = func.layout.clone();
        let holds = |b: &&Block| func.blocks[**b].insts.iter().any(|i| is(&func, i));
        let from = *layout.iter().find(holds).expect("the instruction");
        let k = func.blocks[from].insts.iter().position(|i| is(&func, i)).expect("the instruction");
        let inst = func.blocks[from].insts.remove(k);
        func.blocks[Block::from_u32(to)].insts.insert(at, inst);
        watch.step(&func, Kind::Usual).map_err(|e| e.join("; "))
    }

    const ENDS: &str = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    WARPSYNC PT, 0xffffffff
    v1:R = MOVM.16.MT88 v0
    CONDITION
    branch v3, block1, block2
block1:
    exit
block2:
    WARPSYNC PT, 0xffff
    v4:R = SHFL.IDX PT, v0, RZ, 0x1f
    STS [v0], v4
    jump block3
block3:
    exit
}
";

    #[test]
    fn lanes_that_end_are_missed() {
        let divergent = ENDS.replace("CONDITION", "v3:P = ISETP.LT.AND PT, v0, 0x9, PT, PT");
        let wrong = moved(&divergent, Opcode::MOVM, 2, 0).unwrap_err();
        assert!(wrong.contains("MOVM") && wrong.contains("now depends on the branch of block0"), "{wrong}");
        let wrong = moved(&divergent, Opcode::SHFL, 0, 2).unwrap_err();
        assert!(wrong.contains("no longer depends on the branch of block0"), "{wrong}");
        // Within what all come to, and where all lanes end or none, it may stand anywhere.
        assert_eq!(moved(&divergent, Opcode::MOVM, 0, 3), Ok(()));
        assert_eq!(moved(&divergent, Opcode::SHFL, 3, 0), Ok(()));
        let uniform = ENDS.replace("CONDITION", "v3:P = ISETP.LT.AND PT, RZ, c[0x0][0x160], PT, PT");
        assert_eq!(moved(&uniform, Opcode::MOVM, 2, 0), Ok(()));
    }

    #[test]
    fn lanes_that_were_brought_together_are_needed() {
        let text = ENDS.replace("CONDITION", "v3:P = ISETP.LT.AND PT, v0, 0x9, PT, PT");
        let wrong = moved(&text, Opcode::MOVM, 0, 1).unwrap_err();
        assert!(wrong.contains("no longer stands behind WARPSYNC"), "{wrong}");
    }

    /// A copy of a statement answers for what all copies before depended on, a guard for what its branch did.
    #[test]
    fn copies_and_guards() {
        let text = ENDS.replace("CONDITION", "v3:P = ISETP.LT.AND PT, v0, 0x9, PT, PT");
        let mut func = crate::parse::parse(&text).unwrap();
        let find = |func: &Function, b: u32, op: Opcode| {
            let insts = &func.blocks[Block::from_u32(b)].insts;
            *insts.iter().find(|i| func.insts[**i].op == Op::Sass(op)).expect("the instruction")
        };
        let product = find(&func, 0, Opcode::MOVM);
        func.insts[product].loc.0 = 7;
        let shuffle = find(&func, 2, Opcode::SHFL);
        let (before, exits) = (func.clone(), find(&func, 0, Opcode::ISETP));
        let copy = func.insts.push(func.insts[product].clone());
        func.blocks[Block::from_u32(2)].insts.insert(0, copy);
        let wrong = Watch::new(&before, true).step(&func, Kind::Usual).unwrap_err().join("; ");
        assert!(wrong.contains("(line 7) now depends"), "{wrong}");
        let mut exits_on = None;
        before.insts[exits].for_each_def(|n| exits_on = n.value().or(exits_on));
        for (inst, right) in [(product, false), (shuffle, true)] {
            let mut func = before.clone();
            func.insts[inst].guard.pred = exits_on.expect("a predicate").into();
            assert_eq!(Watch::new(&before, true).step(&func, Kind::Usual).is_ok(), right);
        }
    }
}
