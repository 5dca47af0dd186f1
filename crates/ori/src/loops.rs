//! The loops of a function, what counts in them, and how often they run.

use crate::cfg::{Cfg, DomTree};
use crate::function::{Block, Function, Name, Operand, Terminator, Value};
use crate::pairs::{self, WideSum};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use sass::ops::{Bool, Iadd3, Iadd3Mods, Icmp, Int64, Isetp, IsetpMods, Mov};
use sass::{Reg, RegOp};
use smallvec::SmallVec;

/// A loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loop(u32);
entity_impl!(Loop, "loop");

/// What is known of a loop.
#[derive(Clone, Debug)]
pub struct LoopData {
    /// The block through which every way in leads.
    pub header: Block,
    /// The loop around it.
    pub parent: PackedOption<Loop>,
    /// How many loops it is in, itself included.
    pub depth: u32,
    /// Blocks with an edge back to the header.
    pub latches: SmallVec<[Block; 2]>,
    /// Edges out of it.
    pub exits: Vec<(Block, Block)>,
    /// The block from which alone it is entered, if that leads nowhere else.
    pub preheader: PackedOption<Block>,
    /// The number of the first loop within that is not this one's or within it: those between are.
    end: u32,
    /// Where its own blocks begin in [`LoopForest::members`], followed by those of the loops within it.
    first: u32,
}

/// All loops with one header each; of several that share a header, one.
#[derive(Clone, Debug, Default)]
pub struct LoopForest {
    /// Outer ones before those within them.
    pub loops: PrimaryMap<Loop, LoopData>,
    innermost: SecondaryMap<Block, PackedOption<Loop>>,
    /// The blocks of all loops by their innermost one, and then in reverse postorder.
    members: Vec<Block>,
    /// Edges back to a block that does not dominate their source: ways into cycles that are no loops.
    pub irreducible: Vec<(Block, Block)>,
}

impl LoopForest {
    /// Finds the loops.
    pub fn new(cfg: &Cfg, dom: &DomTree) -> LoopForest {
        let mut headers: Vec<(Block, SmallVec<[Block; 2]>)> = Vec::new();
        let mut out = LoopForest::default();
        for &h in &cfg.rpo {
            let mut latches: SmallVec<[Block; 2]> = SmallVec::new();
            for &p in &cfg.preds[h] {
                if dom.dominates(h, p) {
                    if !latches.contains(&p) {
                        latches.push(p);
                    }
                } else if cfg.order[p] >= cfg.order[h] {
                    out.irreducible.push((p, h));
                }
            }
            if !latches.is_empty() {
                headers.push((h, latches));
            }
        }
        // Inner loops first: upwards from the latches, over loops found already in one step.
        let mut inner: SecondaryMap<Block, u32> = SecondaryMap::with_default(u32::MAX);
        let mut parent: Vec<u32> = vec![u32::MAX; headers.len()];
        // The outermost loop found so far around each, with shortcuts.
        let mut top: Vec<u32> = (0..headers.len() as u32).collect();
        for l in (0..headers.len()).rev() {
            let header = headers[l].0;
            let mut work: Vec<Block> = headers[l].1.to_vec();
            while let Some(b) = work.pop() {
                if inner[b] == u32::MAX {
                    inner[b] = l as u32;
                    if b != header {
                        work.extend(&cfg.preds[b]);
                    }
                    continue;
                }
                let found = find(&mut top, inner[b]);
                if found as usize == l {
                    continue;
                }
                parent[found as usize] = l as u32;
                top[found as usize] = l as u32;
                let entry = headers[found as usize].0;
                work.extend(cfg.preds[entry].iter().filter(|p| !dom.dominates(entry, **p)));
            }
            // A header that no latch but itself leads to.
            if inner[header] == u32::MAX {
                inner[header] = l as u32;
            }
        }
        out.number(cfg, &headers, &parent, &inner);
        out
    }

    /// Gives the loops numbers, each before those within it, and those next to it.
    fn number(
        &mut self,
        cfg: &Cfg,
        headers: &[(Block, SmallVec<[Block; 2]>)],
        parent: &[u32],
        inner: &SecondaryMap<Block, u32>,
    ) {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); headers.len() + 1];
        for (l, p) in parent.iter().enumerate().rev() {
            children[(*p).min(headers.len() as u32) as usize].push(l as u32);
        }
        let mut new: Vec<PackedOption<Loop>> = vec![None.into(); headers.len()];
        let mut order = Vec::with_capacity(headers.len());
        let mut stack: Vec<u32> = std::mem::take(&mut children[headers.len()]);
        while let Some(l) = stack.pop() {
            let l = l as usize;
            let up: PackedOption<Loop> =
                parent.get(parent[l] as usize).and_then(|_| new[parent[l] as usize].expand()).into();
            let depth = up.expand().map_or(1, |p| self.loops[p].depth + 1);
            let (header, latches) = headers[l].clone();
            let mut outside = cfg.preds[header].iter().filter(|p| !latches.contains(p));
            let only = outside.next().copied().filter(|_| outside.next().is_none());
            let preheader = only.filter(|p| cfg.succs[*p].len() == 1).into();
            let id = self.loops.push(LoopData {
                header,
                parent: up,
                depth,
                latches,
                exits: Vec::new(),
                preheader,
                end: 0,
                first: 0,
            });
            new[l] = id.into();
            order.push(id);
            stack.append(&mut children[l]);
        }
        for &id in order.iter().rev() {
            let end = self.loops[id].end.max(id.as_u32() + 1);
            self.loops[id].end = end;
            if let Some(p) = self.loops[id].parent.expand() {
                self.loops[p].end = self.loops[p].end.max(end);
            }
        }
        for &b in &cfg.rpo {
            self.innermost[b] = new.get(inner[b] as usize).copied().unwrap_or_default();
        }
        self.members = cfg.rpo.iter().copied().filter(|b| self.innermost[*b].is_some()).collect();
        self.members.sort_by_key(|b| self.innermost[*b].expand());
        for (k, b) in self.members.iter().enumerate().rev() {
            if let Some(l) = self.innermost[*b].expand() {
                self.loops[l].first = k as u32;
            }
        }
        for &b in &cfg.rpo {
            for &s in &cfg.succs[b] {
                let mut at = self.innermost[b].expand();
                while let Some(l) = at.filter(|l| !self.contains(*l, s)) {
                    self.loops[l].exits.push((b, s));
                    at = self.loops[l].parent.expand();
                }
            }
        }
    }

    /// The innermost loop that a block is in.
    pub fn innermost(&self, b: Block) -> Option<Loop> {
        self.innermost[b].expand()
    }

    /// How many loops a block is in.
    pub fn depth(&self, b: Block) -> u32 {
        self.innermost(b).map_or(0, |l| self.loops[l].depth)
    }

    /// Whether a block is in a loop.
    pub fn contains(&self, l: Loop, b: Block) -> bool {
        self.innermost(b).is_some_and(|i| self.encloses(l, i))
    }

    /// Whether a loop is another, or around it.
    pub fn encloses(&self, outer: Loop, inner: Loop) -> bool {
        (outer.as_u32()..self.loops[outer].end).contains(&inner.as_u32())
    }

    /// Whether there is no loop within it.
    pub fn is_innermost(&self, l: Loop) -> bool {
        self.loops[l].end == l.as_u32() + 1
    }

    /// The blocks of a loop and of those within, in reverse postorder.
    pub fn blocks(&self, cfg: &Cfg, l: Loop) -> Vec<Block> {
        let data = &self.loops[l];
        // Every loop has its header at least, so the next one's blocks begin where this one's end.
        let end = self.loops.get(Loop(data.end)).map_or(self.members.len(), |next| next.first as usize);
        let mut blocks = self.members[data.first as usize..end].to_vec();
        blocks.sort_unstable_by_key(|b| cfg.order[*b]);
        blocks
    }
}

/// The root of `at`, to which all on the way lead afterwards.
fn find(top: &mut [u32], at: u32) -> u32 {
    let mut root = at;
    while top[root as usize] != root {
        root = top[root as usize];
    }
    let mut x = at;
    while top[x as usize] != root {
        x = std::mem::replace(&mut top[x as usize], root);
    }
    root
}

/// Numbers of 64 bits that are reckoned with: their differences and those beside them have 64 bits, too.
const FAR: std::ops::RangeInclusive<i64> = -(1 << 60)..=1 << 60;

/// A parameter of a header that each time round becomes a constant more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Induction {
    /// The parameter.
    pub param: Value,
    /// What it is at first.
    pub start: Value,
    /// What it becomes.
    pub next: Value,
    /// How much more.
    pub step: i64,
}

/// Who makes values, for the questions below.
pub struct Makers(SecondaryMap<Value, PackedOption<crate::function::Inst>>);

impl Makers {
    /// Of a function in SSA.
    pub fn new(func: &Function) -> Makers {
        let mut out = SecondaryMap::new();
        for &b in &func.layout {
            for &i in &func.blocks[b].insts {
                func.insts[i].for_each_def(|n| n.value().into_iter().for_each(|v| out[v] = i.into()));
            }
        }
        Makers(out)
    }

    /// The instruction that makes a value.
    pub fn of(&self, v: Value) -> Option<crate::function::Inst> {
        self.0[v].expand()
    }

    /// The number that an operand is, if it is one.
    fn constant(&self, func: &Function, o: &Operand) -> Option<u32> {
        match o {
            Operand::Imm(n) => Some(*n),
            Operand::Reg(RegOp { reg, neg: false, abs: false, not: false, .. }) => match reg {
                Name::Phys(r) if *r == Reg::RZ || *r == Reg::URZ => Some(0),
                Name::Val(v) if func.values[*v].width == 1 => {
                    let d = &func.insts[self.of(*v)?];
                    let from = d.copied().map(|(_, from)| from).or_else(|| Mov::of(d).map(|s| s.a));
                    match from.filter(|_| d.is_unguarded())? {
                        Operand::Imm(n) => Some(*n),
                        Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ) => Some(0),
                        _ => None,
                    }
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The number of 64 bits that an operand is, if it is one.
    fn wide_constant(&self, func: &Function, o: &Operand) -> Option<u64> {
        let collected = match o {
            Operand::Reg(RegOp { reg: Name::Val(v), neg: false, .. }) => {
                let d = &func.insts[self.of(*v)?];
                d.collected().filter(|_| d.is_unguarded()).map(|(_, parts)| parts)
            }
            _ => None,
        };
        let [low, high] = match collected {
            Some(&[low, high]) => [low, high],
            Some(_) => return None,
            None => pairs::words(*o),
        };
        Some(u64::from(self.constant(func, &low)?) | u64::from(self.constant(func, &high)?) << 32)
    }

    /// `value` as another one and a constant, if it is such a sum.
    fn sum(&self, func: &Function, value: Value) -> Option<(Value, i64)> {
        let d = &func.insts[self.of(value)?];
        if let Some(sum) = WideSum::of(d) {
            return sum.with_number();
        }
        let s = Iadd3::of(d)?;
        if !d.is_unguarded() || Iadd3Mods::of(d)?.extended {
            return None;
        }
        let (mut base, mut sum) = (None, 0i32);
        for o in s.terms() {
            match o {
                Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. })
                    if self.constant(func, o).is_none() =>
                {
                    base = base.is_none().then_some(Some(*v))?;
                }
                _ => sum = sum.wrapping_add(self.constant(func, o)? as i32),
            }
        }
        Some((base?, sum.into()))
    }
}

impl LoopForest {
    /// What counts in a loop, by constants.
    pub fn inductions(&self, func: &Function, cfg: &Cfg, makers: &Makers, l: Loop) -> Vec<Induction> {
        let data = &self.loops[l];
        let Some(entry) = self.entering(cfg, l) else { return Vec::new() };
        let [latch] = data.latches[..] else { return Vec::new() };
        let args = |from: Block, n: usize| {
            let mut calls = func.blocks[from].term.targets().into_iter().filter(|t| t.block == data.header);
            let arg = calls.next().map(|t| t.args[n]);
            calls.next().is_none().then_some(arg).flatten()
        };
        let params = func.blocks[data.header].params.iter().enumerate();
        let found = params.filter_map(|(n, &param)| {
            let (start, next) = (args(entry, n)?, args(latch, n)?);
            let (base, step) = makers.sum(func, next)?;
            (base == param && step != 0).then_some(Induction { param, start, next, step })
        });
        found.collect()
    }

    /// The only block outside of a loop that enters it.
    fn entering(&self, cfg: &Cfg, l: Loop) -> Option<Block> {
        let data = &self.loops[l];
        let mut outside = cfg.preds[data.header].iter().filter(|p| !data.latches.contains(p));
        outside.next().copied().filter(|_| outside.next().is_none())
    }

    /// How often a loop goes back to its header, if it ends only by a comparison of what it counts with a constant, and
    /// without passing the end of the numbers. What ends the thread within it may do so sooner.
    pub fn trips(&self, func: &Function, cfg: &Cfg, dom: &DomTree, makers: &Makers, l: Loop) -> Option<u64> {
        let data = &self.loops[l];
        let ([(from, _)], [latch]) = (&data.exits[..], &data.latches[..]) else { return None };
        if !dom.dominates(*from, *latch) || self.innermost(*from) != Some(l) {
            return None;
        }
        let Terminator::Branch { cond: Name::Val(cond), not, taken, .. } = &func.blocks[*from].term else {
            return None;
        };
        let stays_if = self.contains(l, taken.block) != *not;
        let d = &func.insts[makers.of(*cond)?];
        let (s, m) = (Isetp::of(d)?, IsetpMods::of(d)?);
        let alone = m.join == Bool::AND && *s.join == crate::operand(Name::Phys(Reg::PT)) && !m.extended;
        if !alone || !d.is_unguarded() || *s.p != crate::operand(*cond) {
            return None;
        }
        let (signed, wide) = match m.kind {
            None => (true, false),
            Some(Int64::U32) => (false, false),
            Some(Int64::S64) => (true, true),
            Some(Int64::U64) => (false, true),
        };
        let number = |o: &Operand| match (wide, signed) {
            (false, true) => makers.constant(func, o).map(|x| i64::from(x as i32)),
            (false, false) => makers.constant(func, o).map(i64::from),
            (true, true) => makers.wide_constant(func, o).map(|x| x as i64).filter(|x| FAR.contains(x)),
            (true, false) => i64::try_from(makers.wide_constant(func, o)?).ok().filter(|x| FAR.contains(x)),
        };
        let Operand::Reg(RegOp { reg: Name::Val(tested), neg: false, abs: false, not: false, .. }) = *s.a
        else {
            return None;
        };
        let bound = number(s.b)?;
        let counts = self.inductions(func, cfg, makers, l);
        let i = counts.iter().find(|i| i.param == tested || i.next == tested)?;
        let start = number(&crate::operand(i.start))?;
        let step = i.step;
        let first = if tested == i.next { start.checked_add(step)? } else { start };
        // The comparison that keeps the loop going.
        let op = Compare::of(m.cmp)?;
        let keeps = if stays_if { op } else { op.inverted() };
        let times = keeps.times(first, step, bound)?;
        // No number on the way may be past the end.
        let last = first.checked_add(step.checked_mul(i64::try_from(times).ok()?)?)?;
        let range = match (wide, signed) {
            (false, true) => i64::from(i32::MIN)..=i64::from(i32::MAX),
            (false, false) => 0..=i64::from(u32::MAX),
            (true, true) => FAR,
            (true, false) => 0..=*FAR.end(),
        };
        (range.contains(&first) && range.contains(&last)).then_some(times)
    }
}

/// A comparison of integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
}

impl Compare {
    /// The comparison that a modifier stands for.
    pub fn of(m: Icmp) -> Option<Compare> {
        Some(match m {
            Icmp::LT => Compare::Lt,
            Icmp::LE => Compare::Le,
            Icmp::GT => Compare::Gt,
            Icmp::GE => Compare::Ge,
            Icmp::EQ => Compare::Eq,
            Icmp::NE => Compare::Ne,
            Icmp::F | Icmp::T => return None,
        })
    }

    /// The modifier that stands for it.
    pub fn modifier(self) -> Icmp {
        match self {
            Compare::Lt => Icmp::LT,
            Compare::Le => Icmp::LE,
            Compare::Gt => Icmp::GT,
            Compare::Ge => Icmp::GE,
            Compare::Eq => Icmp::EQ,
            Compare::Ne => Icmp::NE,
        }
    }

    /// The one that holds between the two sides exchanged.
    pub fn exchanged(self) -> Compare {
        match self {
            Compare::Lt => Compare::Gt,
            Compare::Le => Compare::Ge,
            Compare::Gt => Compare::Lt,
            Compare::Ge => Compare::Le,
            Compare::Eq | Compare::Ne => self,
        }
    }

    /// The one that holds where it does not.
    pub fn inverted(self) -> Compare {
        match self {
            Compare::Lt => Compare::Ge,
            Compare::Le => Compare::Gt,
            Compare::Gt => Compare::Le,
            Compare::Ge => Compare::Lt,
            Compare::Eq => Compare::Ne,
            Compare::Ne => Compare::Eq,
        }
    }

    /// The first n for which it does not hold between `first + n * step` and `bound`.
    fn times(self, first: i64, step: i64, bound: i64) -> Option<u64> {
        let up = |distance: i64, step: i64| if distance <= 0 { 0 } else { (distance + step - 1) / step };
        let n = match self {
            Compare::Lt if step > 0 => up(bound - first, step),
            Compare::Le if step > 0 => up(bound + 1 - first, step),
            Compare::Gt if step < 0 => up(first - bound, -step),
            Compare::Ge if step < 0 => up(first + 1 - bound, -step),
            Compare::Ne if (bound - first) % step == 0 && (bound - first) / step >= 0 => {
                (bound - first) / step
            }
            Compare::Eq => i64::from(first == bound),
            Compare::Lt if first >= bound => 0,
            Compare::Le if first > bound => 0,
            Compare::Gt if first <= bound => 0,
            Compare::Ge if first < bound => 0,
            _ => return None,
        };
        u64::try_from(n).ok()
    }
}
