//! Writes down what [`farthest`] has planned: stores, loads, and new names for values that have left their registers and come back.
//!
//! [`farthest`]: super::farthest

use super::farthest::Plan;
use super::spill::{Spiller, is_constant};
use crate::liveness::{Ranges, Segment};
use cranelift_entity::SecondaryMap;
use ori::cfg::{Cfg, DomTree};
use ori::{Block, Function, Inst, Loc, Name, Terminator, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The most values that share a slot because one becomes another.
const MOST_TOGETHER: usize = 64;

/// Where what leaves its register is.
#[derive(Clone, Copy)]
enum Home {
    /// Nowhere: this instruction makes it again.
    Again(Inst),
    /// In the slot at this offset.
    Slot(u32),
}

/// A register of a value where ways meet, beyond its definition.
struct Meeting {
    block: Block,
    /// What is passed on, and its name from there on.
    value: Value,
    name: Value,
    /// The names that come in.
    from: Vec<(Block, Value)>,
}

/// Spills as planned.
pub(super) fn apply(spiller: &mut Spiller, func: &mut Function, cfg: &Cfg, ranges: &Ranges, plan: &Plan) {
    let homes = homes(spiller, func, cfg, ranges, plan);
    let old_params: SecondaryMap<Block, SmallVec<[Value; 4]>> = {
        let mut m = SecondaryMap::new();
        func.blocks.iter().for_each(|(b, d)| m[b] = d.params.clone());
        m
    };
    let mut split = Split {
        spiller,
        func,
        plan,
        homes,
        old_params,
        names: FxHashMap::default(),
        out: Vec::new(),
        back: FxHashMap::default(),
        at_end: SecondaryMap::new(),
        in_slot: FxHashSet::default(),
        in_slot_at_end: SecondaryMap::new(),
        dom: DomTree::dominators(cfg),
        meetings: Vec::new(),
    };
    cfg.rpo.iter().for_each(|b| split.block(cfg, *b));
    split.meet(cfg);
    split.finish(cfg);
}

/// Slots, and what they are stored to by.
struct Homes {
    home: FxHashMap<Value, Home>,
    /// Where a parameter arrives whose slot holds something that is wanted yet.
    arrives: FxHashMap<Value, u32>,
}

/// Values that have one slot: those that become one another where blocks end, as long as not two are wanted at once.
struct Classes<'a> {
    of: FxHashMap<Value, usize>,
    members: Vec<Vec<Value>>,
    ranges: &'a Ranges,
    /// Where parameters in memory are stored to, and what.
    edges: FxHashMap<Value, Vec<(u32, Value)>>,
}

impl Classes<'_> {
    fn class(&mut self, v: Value) -> usize {
        *self.of.entry(v).or_insert_with(|| {
            self.members.push(vec![v]);
            self.members.len() - 1
        })
    }

    fn segments(&self, v: Value) -> impl Iterator<Item = &Segment> {
        self.ranges.lanes.all(v).flat_map(|l| self.ranges.intervals.of(l))
    }

    fn covers(&self, v: Value, point: u32) -> bool {
        self.segments(v).any(|s| s.start <= point && point < s.end)
    }

    /// Whether `p` is stored to where `x`, which is something else, is wanted.
    fn is_overwritten(&self, x: Value, p: Value) -> bool {
        let stores = self.edges.get(&p).into_iter().flatten();
        stores.into_iter().any(|(t, a)| *a != x && (self.covers(x, 2 * t) || self.covers(x, 2 * t + 1)))
    }

    fn clash(&self, a: Value, b: Value) -> bool {
        let overlap = |a: &Segment, b: &Segment| a.start < b.end && b.start < a.end;
        let both =
            |t: &u32, of: &Vec<(u32, Value)>, arg: &Value| of.iter().any(|(u, other)| u == t && other != arg);
        self.segments(a).any(|x| self.segments(b).any(|y| overlap(x, y)))
            || self.is_overwritten(a, b)
            || self.is_overwritten(b, a)
            || match (self.edges.get(&a), self.edges.get(&b)) {
                (Some(x), Some(y)) => x.iter().any(|(t, arg)| both(t, y, arg)),
                _ => false,
            }
    }

    fn join(&mut self, a: Value, b: Value) {
        let (x, y) = (self.class(a), self.class(b));
        if x == y || self.members[x].len() + self.members[y].len() > MOST_TOGETHER {
            return;
        }
        if self.members[x].iter().any(|v| self.members[y].iter().any(|w| self.clash(*v, *w))) {
            return;
        }
        let moved = std::mem::take(&mut self.members[y]);
        moved.iter().for_each(|v| {
            self.of.insert(*v, x);
        });
        self.members[x].extend(moved);
    }
}

/// Finds a place for everything that leaves its register.
fn homes(spiller: &mut Spiller, func: &Function, cfg: &Cfg, ranges: &Ranges, plan: &Plan) -> Homes {
    let mut home: FxHashMap<Value, Home> = FxHashMap::default();
    let mut order: Vec<Value> = Vec::new();
    for &b in &cfg.rpo {
        let params = func.blocks[b].params.iter();
        order.extend(params.filter(|p| plan.in_memory.contains(p) || plan.spilled.contains(p)));
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            d.for_each_def(|n| {
                let Some(v) = n.value().filter(|v| plan.spilled.contains(v)) else { return };
                if is_constant(d) {
                    home.insert(v, Home::Again(i));
                } else {
                    order.push(v);
                }
            });
        }
    }
    let mut edges: FxHashMap<Value, Vec<(u32, Value)>> = FxHashMap::default();
    // Parameters that get one value at the end of a block: it is stored once for all of them if they have one slot.
    let mut alike: Vec<(Value, Value)> = Vec::new();
    for &b in &cfg.rpo {
        let mut first: FxHashMap<Value, Value> = FxHashMap::default();
        for t in func.blocks[b].term.targets() {
            for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                if plan.in_memory.contains(p) {
                    edges.entry(*p).or_default().push((ranges.numbering.term[b], *a));
                    let other = *first.entry(*a).or_insert(*p);
                    if other != *p {
                        alike.push((other, *p));
                    }
                }
            }
        }
    }
    let alone = Classes { of: FxHashMap::default(), members: Vec::new(), ranges, edges };
    let clobbered = |p: &Value| plan.in_memory.contains(p) && alone.is_overwritten(*p, *p);
    let mut arriving: Vec<Value> = order.iter().copied().filter(clobbered).collect();
    let mut classes = alone;
    arriving.sort_unstable();
    // They are stored to where their block begins.
    arriving.iter().for_each(|p| {
        classes.edges.remove(p);
    });
    let pairs: Vec<(Value, Value)> =
        classes.edges.iter().flat_map(|(p, from)| from.iter().map(|(_, a)| (*p, *a))).collect();
    let wanted = |v: &Value| !home.contains_key(v) && plan.spilled.contains(v);
    let mut pairs: Vec<(Value, Value)> = pairs
        .into_iter()
        .filter(|(p, a)| wanted(a) && func.values[*p].width == func.values[*a].width)
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    alike.retain(|(p, q)| [p, q].iter().all(|p| arriving.binary_search(p).is_err()));
    pairs.extend(alike);
    for (p, a) in pairs {
        classes.join(p, a);
    }
    let mut slot: FxHashMap<usize, u32> = FxHashMap::default();
    for v in order {
        let width = func.values[v].width;
        let at = *slot.entry(classes.class(v)).or_insert_with(|| spiller.slot(width));
        home.insert(v, Home::Slot(at));
    }
    let arrives = arriving.into_iter().map(|p| (p, spiller.slot(func.values[p].width))).collect();
    Homes { home, arrives }
}

struct Split<'a> {
    spiller: &'a mut Spiller,
    func: &'a mut Function,
    plan: &'a Plan,
    homes: Homes,
    old_params: SecondaryMap<Block, SmallVec<[Value; 4]>>,
    /// What spilled values are called now.
    names: FxHashMap<Value, Value>,
    out: Vec<Inst>,
    /// What was brought back, which value it is, and how often it is read.
    back: FxHashMap<Value, (Value, u32)>,
    /// Names at the end of each block.
    at_end: SecondaryMap<Block, FxHashMap<Value, Value>>,
    /// What is in its slot now, and was at the end of each block that was gone through.
    in_slot: FxHashSet<Value>,
    in_slot_at_end: SecondaryMap<Block, Option<FxHashSet<Value>>>,
    dom: DomTree,
    meetings: Vec<Meeting>,
}

impl Split<'_> {
    /// Brings a value back under a new name.
    fn bring(&mut self, v: Value, loc: Loc) -> Value {
        let home = self.homes.home[&v];
        let name = match home {
            Home::Slot(at) => self.spiller.load(self.func, &mut self.out, v, None, at, loc),
            Home::Again(i) => self.spiller.make_again(self.func, &mut self.out, v, i, loc),
        };
        self.back.insert(name, (v, 0));
        name
    }

    fn name(&mut self, v: Value) -> Value {
        let name = self.names.get(&v).copied().unwrap_or(v);
        if let Some(b) = self.back.get_mut(&name) {
            b.1 += 1;
        }
        name
    }

    /// Stores a value that is in a register, if it is not in its slot yet.
    fn store(&mut self, v: Value, loc: Loc) {
        if let Some(Home::Slot(at)) = self.homes.home.get(&v).copied()
            && self.in_slot.insert(v)
        {
            let name = self.name(v);
            self.spiller.store(self.func, &mut self.out, name, at, loc);
        }
    }

    /// What is in its slot on every way to a block. A slot holds its value as long as that lives, so that ways back to a block that stands before
    /// all of its loop change nothing; what comes by other ways that were not gone yet is not known.
    fn in_slot_before(&self, cfg: &Cfg, b: Block) -> FxHashSet<Value> {
        let preds = &cfg.preds[b];
        if preds.iter().any(|p| self.in_slot_at_end[*p].is_none() && !self.dom.dominates(b, *p)) {
            return FxHashSet::default();
        }
        let mut ways = preds.iter().filter_map(|p| self.in_slot_at_end[*p].as_ref());
        let mut found = ways.next().cloned().unwrap_or_default();
        ways.for_each(|other| found.retain(|v| other.contains(v)));
        found
    }

    fn block(&mut self, cfg: &Cfg, b: Block) {
        let plan = self.plan;
        self.names = FxHashMap::default();
        self.in_slot = self.in_slot_before(cfg, b);
        let preds = &cfg.preds[b];
        let params = self.old_params[b].clone();
        let entering =
            plan.entry[b].iter().copied().filter(|v| plan.spilled.contains(v) && !params.contains(v));
        if let [p] = preds.as_slice() {
            for v in entering {
                if let Some(n) = self.at_end[*p].get(&v) {
                    self.names.insert(v, *n);
                }
            }
        } else {
            for value in entering {
                let d = self.func.values[value];
                let name = self.func.add_value(d.file, d.width);
                self.names.insert(value, name);
                self.meetings.push(Meeting { block: b, value, name, from: Vec::new() });
            }
        }
        let loc = self.func.blocks[b]
            .insts
            .first()
            .map_or(self.func.blocks[b].term_loc, |i| self.func.insts[*i].loc);
        self.func.blocks[b].params = params.iter().copied().filter(|p| !plan.in_memory.contains(p)).collect();
        for &p in &params {
            match (plan.in_memory.contains(&p), self.homes.home.get(&p).copied()) {
                (true, Some(Home::Slot(at))) => {
                    self.in_slot.insert(p);
                    if let Some(from) = self.homes.arrives.get(&p).copied() {
                        let t = self.spiller.load(self.func, &mut self.out, p, None, from, loc);
                        self.spiller.pin(t);
                        self.spiller.store(self.func, &mut self.out, t, at, loc);
                    }
                }
                (false, Some(_)) if plan.at_definition.contains(&p) => self.store(p, loc),
                _ => {}
            }
        }
        for v in &plan.stores_at_start[b] {
            self.store(*v, loc);
        }
        for i in std::mem::take(&mut self.func.blocks[b].insts) {
            let mut d = self.func.insts[i].clone();
            let loc = d.loc;
            for v in plan.before.get(&i).into_iter().flatten() {
                let name = self.bring(*v, loc);
                self.names.insert(*v, name);
            }
            d.map_uses(|n| self.renamed(n));
            let mut made: SmallVec<[Value; 2]> = SmallVec::new();
            d.for_each_def(|n| made.extend(n.value()));
            self.func.insts[i] = d;
            self.out.push(i);
            for v in made.into_iter().filter(|v| plan.at_definition.contains(v)) {
                self.store(v, loc);
            }
            for v in plan.stores.get(&i).into_iter().flatten() {
                self.store(*v, loc);
            }
        }
        self.end(b);
        self.func.blocks[b].insts = std::mem::take(&mut self.out);
        self.at_end[b] = std::mem::take(&mut self.names);
        self.in_slot_at_end[b] = Some(std::mem::take(&mut self.in_slot));
    }

    fn renamed(&mut self, n: Name) -> Name {
        match n {
            Name::Val(v) => Name::Val(self.name(v)),
            Name::Part(v, i) => Name::Part(self.name(v), i),
            Name::Phys(_) => n,
        }
    }

    /// The end of a block: what is stored for parameters in memory, what is brought back, and what is passed on.
    fn end(&mut self, b: Block) {
        let plan = self.plan;
        let loc = self.func.blocks[b].term_loc;
        let mut term = std::mem::replace(&mut self.func.blocks[b].term, Terminator::Unreachable);
        for v in &plan.stores_at_term[b] {
            self.store(*v, loc);
        }
        let mut seen: SmallVec<[Block; 2]> = SmallVec::new();
        let mut passed: FxHashSet<(u32, Value)> = FxHashSet::default();
        for t in term.targets() {
            if seen.contains(&t.block) {
                continue;
            }
            seen.push(t.block);
            for (a, p) in t.args.iter().zip(&self.old_params[t.block].clone()) {
                let Some(Home::Slot(home)) =
                    self.homes.home.get(p).copied().filter(|_| plan.in_memory.contains(p))
                else {
                    continue;
                };
                let at = self.homes.arrives.get(p).copied().unwrap_or(home);
                let shared = matches!(self.homes.home.get(a), Some(Home::Slot(from)) if *from == at);
                if shared && (plan.is_stored(b, *a) || !self.in_slot.insert(*a)) || !passed.insert((at, *a)) {
                    continue;
                }
                let here = plan.exit[b].binary_search(a).is_ok() && !plan.at_term[b].contains(a);
                let name = if here {
                    self.name(*a)
                } else {
                    let name = self.bring(*a, loc);
                    self.name_once(name)
                };
                self.spiller.store(self.func, &mut self.out, name, at, loc);
            }
        }
        for v in &plan.at_term[b] {
            let name = self.bring(*v, loc);
            self.names.insert(*v, name);
        }
        for t in term.targets_mut() {
            let params = self.old_params[t.block].clone();
            let passed = t.args.iter().zip(&params).filter(|(_, p)| !plan.in_memory.contains(p));
            t.args = passed.map(|(a, _)| self.name(*a)).collect();
        }
        if let Some(n) = term.used_name_mut() {
            *n = self.renamed(*n);
        }
        self.func.blocks[b].term = term;
    }

    fn name_once(&mut self, name: Value) -> Value {
        if let Some(b) = self.back.get_mut(&name) {
            b.1 += 1;
        }
        name
    }

    /// Passes on what is in a register at the end of each block before another, where that has several.
    fn meet(&mut self, cfg: &Cfg) {
        for m in &mut self.meetings {
            let mut seen: SmallVec<[Block; 4]> = SmallVec::new();
            for &p in &cfg.preds[m.block] {
                if !seen.contains(&p) {
                    seen.push(p);
                    m.from.push((p, self.at_end[p].get(&m.value).copied().unwrap_or(m.value)));
                }
            }
        }
        // Names that are one and the same, whatever the way.
        let mut same: FxHashMap<Value, Value> = FxHashMap::default();
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for m in self.meetings.iter().filter(|m| !m.from.is_empty()) {
                if same.contains_key(&m.name) {
                    continue;
                }
                let mut one = None;
                let alike = m.from.iter().all(|(_, n)| {
                    let n = root(&same, *n);
                    n == m.name || *one.get_or_insert(n) == n
                });
                if let (true, Some(one)) = (alike, one) {
                    same.insert(m.name, one);
                    changed = true;
                }
            }
        }
        if !same.is_empty() {
            self.rename(cfg, &same);
        }
        self.meetings.retain(|m| !same.contains_key(&m.name));
        self.meetings.iter_mut().flat_map(|m| &mut m.from).for_each(|(_, n)| *n = root(&same, *n));
        // Those that nobody reads are left out.
        let mut read: FxHashSet<Value> = FxHashSet::default();
        for &b in &cfg.rpo {
            for i in &self.func.blocks[b].insts {
                self.func.insts[*i].for_each_use(|n| read.extend(n.value()));
            }
            let term = &self.func.blocks[b].term;
            read.extend(term.used_name().and_then(Name::value));
            read.extend(term.targets().into_iter().flat_map(|t| t.args.iter().copied()));
        }
        let by_name: FxHashMap<Value, usize> =
            self.meetings.iter().enumerate().map(|(k, m)| (m.name, k)).collect();
        let mut needed = vec![false; self.meetings.len()];
        let mut todo: Vec<usize> = self
            .meetings
            .iter()
            .enumerate()
            .filter(|(_, m)| read.contains(&m.name))
            .map(|(k, _)| k)
            .collect();
        while let Some(k) = todo.pop() {
            if !std::mem::replace(&mut needed[k], true) {
                todo.extend(self.meetings[k].from.iter().filter_map(|(_, n)| by_name.get(n).copied()));
            }
        }
        for (m, _) in self.meetings.iter().zip(&needed).filter(|(_, needed)| **needed) {
            self.func.blocks[m.block].params.push(m.name);
            for (p, n) in &m.from {
                for t in self.func.blocks[*p].term.targets_mut() {
                    if t.block == m.block {
                        t.args.push(*n);
                    }
                }
                if let Some(b) = self.back.get_mut(n) {
                    b.1 += 1;
                }
            }
        }
    }

    fn rename(&mut self, cfg: &Cfg, same: &FxHashMap<Value, Value>) {
        let of = |n: Name| match n {
            Name::Val(v) => Name::Val(root(same, v)),
            Name::Part(v, i) => Name::Part(root(same, v), i),
            Name::Phys(_) => n,
        };
        for &b in &cfg.rpo {
            for k in 0..self.func.blocks[b].insts.len() {
                let i = self.func.blocks[b].insts[k];
                self.func.insts[i].map_uses(of);
            }
            let term = &mut self.func.blocks[b].term;
            if let Some(n) = term.used_name_mut() {
                *n = of(*n);
            }
            for t in term.targets_mut() {
                t.args.iter_mut().for_each(|a| *a = root(same, *a));
            }
        }
    }

    /// What is read once, where it was brought back, would gain nothing by leaving again. Constants that are made again everywhere are
    /// not made where they were.
    fn finish(self, cfg: &Cfg) {
        let Split { spiller, func, back, homes, .. } = self;
        for (name, (_, reads)) in &back {
            spiller.pinned.grow(name.as_u32() as usize + 1);
            spiller.pinned.set(name.as_u32() as usize, *reads <= 1);
        }
        spiller.pinned.grow(func.values.len());
        let read = crate::liveness::values_read(func, cfg);
        let again: FxHashSet<Inst> = homes
            .home
            .values()
            .filter_map(|h| if let Home::Again(i) = h { Some(*i) } else { None })
            .collect();
        for &b in &cfg.rpo {
            let mut insts = std::mem::take(&mut func.blocks[b].insts);
            insts.retain(|i| {
                let mut needed = !again.contains(i);
                func.insts[*i].for_each_def(|n| {
                    needed |= n.value().is_none_or(|v| read.contains(v.as_u32() as usize));
                });
                needed
            });
            func.blocks[b].insts = insts;
        }
    }
}

fn root(same: &FxHashMap<Value, Value>, mut v: Value) -> Value {
    while let Some(n) = same.get(&v) {
        v = *n;
    }
    v
}
