//! Loop counters, what is computed of them and of constants alone, and what loops read that is computed of constants alone before them,
//! in uniform registers, where registers are short.
//!
//! A warp has one copy of a uniform register. So a value may be in one that changes only if all lanes of the warp that have not ended are
//! together wherever it changes: then none of them still needs what it held before, and all want the same. The parameters
//! of a block are such if the lanes are together at its start, so that all came by the same edge, and at the ends of the blocks before it. Where lanes
//! are together depends on the regions in which they meet again, which are made later: they are tried on a copy of the function. Register
//! allocation looks again, at those that were made.
//!
//! Comparisons are made twice if something else than such arithmetic needs them, a branch mostly: once for it, with uniform registers as operands.

mod across;
mod chains;
mod convert;
mod part;

pub use across::{Across, Live, Taken, across};
pub use chains::run as bring_less;
pub use part::at_barriers as part_at_barriers;

use crate::convergence;
use crate::liveness::{self, Apart, Liveness};
use crate::regalloc::undefined;
use crate::remat::is_word_or_pair;
use crate::together::WholeWarp;
use across::Budget;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::{Loop, LoopForest};
use ori::pairs::value_of;
use ori::{ALWAYS, Block, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{Ldc, R2ur};
use sass::{ConstBank, Effect, Lanes, Mod, Mods, Opcode, RegFile, RegOp, Scope, SlotKind};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// The most uniform registers that live from block to block for this, and those that must be left to addresses and descriptors.
const MOST: usize = 56;
const LEFT: usize = 8;

/// Registers that are left to what lives within blocks, beside the usual ones.
pub type Spared = SecondaryMap<Block, usize>;

/// Puts them there, but for those `spared`; if there were any, the blocks in which all lanes of the warp are together.
pub fn run(func: &mut Function, cfg: &Cfg, spared: &Spared) -> Option<FixedBitSet> {
    // ptxas's loops on sm_75 have none.
    if !func.entry || func.target.sm < 80 {
        return None;
    }
    let dom = DomTree::dominators(cfg);
    let loops = LoopForest::new(cfg, &dom);
    if loops.loops.is_empty() {
        return None;
    }
    let mut with_regions = func.clone();
    if convergence::run(&mut with_regions).is_err() {
        return None;
    }
    let insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).copied();
    // `barrier.sync`, to which lanes may come from several places: ptxas has no counters behind it.
    let meetings: FxHashSet<Inst> = insts.filter(|i| ori::meeting::is_meeting(&func.insts[*i])).collect();
    let lanes = liveness::Lanes::new(func);
    let live = Liveness::new(func, cfg, &lanes);
    let with_cfg = Cfg::new(&with_regions);
    let warp = WholeWarp::new(&with_regions, &with_cfg, &meetings);
    let whole = warp.blocks(&with_cfg);
    let apart = Apart::new(cfg, Some(&whole));
    let lost = lost(func, cfg, &lanes, &live, &apart);
    let found = Found::new((&with_regions, &with_cfg), &loops, (&warp, whole), &lost);
    let most = usize::from(func.target.info().uregs).saturating_sub(LEFT).min(MOST);
    let alive = Live { lanes: &lanes, live: &live };
    let nothing = undefined::values(func, cfg);
    let budget = |chosen: &FixedBitSet| {
        let uniform = |v: Value| match func.values[v].file {
            _ if nothing.contains(v.index()) => false,
            RegFile::R => chosen.contains(v.index()),
            file => file == RegFile::UR,
        };
        let taken = Across::new(func, cfg, uniform).taken(func, cfg, alive, &apart);
        Budget::new(func, cfg, alive, &apart, |b| most as i32 - (taken.blocks[b] + spared[b]) as i32)
    };
    let none = FixedBitSet::with_capacity(func.values.len());
    let fitting = |chosen: FixedBitSet| Some((budget(&chosen), chosen)).filter(|(b, _)| !b.is_exceeded());
    let mut fit = found.counters(func, cfg, |_| true).and_then(fitting);
    if fit.is_none() {
        // Too many: those of the innermost loops first.
        let mut by_depth: Vec<Loop> = loops.loops.keys().collect();
        by_depth.sort_by_key(|l| std::cmp::Reverse(loops.loops[*l].depth));
        for l in by_depth {
            if let Some(mut chosen) = found.counters(func, cfg, |b| loops.contains(l, b)) {
                fit.iter().for_each(|(_, c)| chosen.union_with(c));
                fit = fitting(chosen).or(fit);
            }
        }
    }
    let (mut room, mut chosen) = fit.unwrap_or_else(|| (budget(&none), none));
    found.add_brought(func, cfg, &loops, &mut room, &mut chosen);
    found.add_invariants(func, cfg, &loops, &mut room, &mut chosen);
    let room = budget(&chosen);
    if chosen.is_clear() || room.is_exceeded() {
        return None;
    }
    let left = room.least();
    let mut moved = found.bring(func, cfg, &mut chosen);
    convert::convert(func, cfg, &chosen, &mut moved, left, &dom, &loops);
    Some(found.whole)
}

/// Whether instructions in loops take from general registers what they need in uniform ones.
pub fn brings_in_loops(func: &Function, cfg: &Cfg) -> bool {
    let brings =
        |b: &&Block| func.blocks[**b].insts.iter().any(|i| func.insts[*i].op == Op::Sass(Opcode::R2UR));
    if !cfg.rpo.iter().any(|b| brings(&b)) {
        return false;
    }
    let loops = LoopForest::new(cfg, &DomTree::dominators(cfg));
    cfg.rpo.iter().filter(brings).any(|b| loops.depth(*b) > 0)
}

/// The values that live across calls which take uniform registers, or where others of the warp's lanes may be in such a call.
fn lost(func: &Function, cfg: &Cfg, lanes: &liveness::Lanes, live: &Liveness, apart: &Apart) -> FixedBitSet {
    let mut lost = FixedBitSet::with_capacity(func.values.len());
    let owner = |l: &u32| lanes.owner(*l).map(|(v, _)| v);
    let destroys =
        |d: &InstData| liveness::destroyed(func, d).is_some_and(|all| !all.of(RegFile::UR).is_empty());
    let calls = |b: &&Block| func.blocks[**b].insts.iter().any(|i| destroys(&func.insts[*i]));
    let mut beside: FxHashSet<Block> = FxHashSet::default();
    for &b in cfg.rpo.iter().filter(calls) {
        apart.of(b).iter().for_each(|r| beside.extend(&apart.regions[*r as usize]));
        let block = &func.blocks[b];
        let passed = block.term.targets().into_iter().flat_map(|t| t.args.iter().copied());
        let mut now: FxHashSet<Value> = live.live_out[b].iter().filter_map(owner).chain(passed).collect();
        now.extend(block.term.used_name().and_then(Name::value));
        for d in block.insts.iter().rev().map(|i| &func.insts[*i]) {
            d.for_each_def(|n| {
                n.value().map(|v| now.remove(&v));
            });
            if destroys(d) {
                lost.extend(now.iter().map(|v| v.index()));
            }
            d.for_each_use(|n| now.extend(n.value()));
        }
    }
    for &b in cfg.rpo.iter().filter(|b| beside.contains(*b)) {
        let between = live.live_in[b].iter().chain(&live.live_out[b]).filter_map(owner);
        let passed = func.blocks[b].term.targets().into_iter().flat_map(|t| t.args.iter().copied());
        lost.extend(between.chain(passed).map(EntityRef::index));
        lost.extend(func.blocks[b].params.iter().map(|p| p.index()));
    }
    lost
}

/// What the uniform datapath can compute.
struct Found {
    /// Values that may be in uniform registers, and those that are in some already, of constants alone.
    fit: FixedBitSet,
    /// Words that are the same in all lanes, made where all lanes are together, and in how many loops: they may be brought to uniform registers
    /// there, for loops within.
    words: SecondaryMap<Value, Option<u32>>,
    /// The blocks in which all lanes of the warp are together.
    whole: FixedBitSet,
}

impl Found {
    /// All such values of a function with its regions: those that nothing speaks against. `whole`: the blocks of `warp` in which all lanes are together;
    /// `lost`: values that live where uniform registers do not.
    fn new(
        (func, cfg): (&Function, &Cfg),
        loops: &LoopForest,
        (warp, whole): (&WholeWarp, FixedBitSet),
        lost: &FixedBitSet,
    ) -> Found {
        let none = FixedBitSet::with_capacity(func.values.len());
        let mut found = Found { fit: none, words: SecondaryMap::new(), whole };
        let word = |v: &Value| {
            let d = func.values[*v];
            d.file == RegFile::R && d.width == 1 && !warp.differs(*v)
        };
        for &b in &cfg.rpo {
            if found.whole.contains(b.index()) {
                for i in &func.blocks[b].insts {
                    let d = &func.insts[*i];
                    let whole = d.is_unguarded() && d.opcode().is_some();
                    d.for_each_def(|n| {
                        let v = n.value().filter(|v| whole && word(v));
                        v.into_iter().for_each(|v| found.words[v] = Some(loops.depth(b)));
                    });
                }
            }
            // What is passed is copied at the ends of the blocks before.
            let together = warp.at_start(b) && cfg.preds[b].iter().all(|p| warp.at_end(*p));
            for p in func.blocks[b].params.iter().filter(|_| together) {
                let d = func.values[*p];
                if d.file == RegFile::R && d.width <= 2 {
                    found.fit.insert(p.index());
                }
            }
            for i in &func.blocks[b].insts {
                let d = &func.insts[*i];
                if warp.at_end(b) && is_convertible(func, d) || is_uniform_arithmetic(func, d) {
                    d.for_each_def(|n| n.value().into_iter().for_each(|v| found.fit.insert(v.index())));
                }
            }
        }
        for v in lost.ones() {
            found.fit.set(v, false);
            found.words[Value::new(v)] = None;
        }
        while found.drop_some(func, cfg, loops) {}
        found
    }

    /// Whether it can be read from a uniform register in so many loops.
    fn fits(&self, v: Value, depth: u32) -> bool {
        self.fit.contains(v.index()) || self.words[v].is_some_and(|made| made == 0 || made < depth)
    }

    /// Whether it can be in a uniform register only if it is brought there from a general one.
    fn is_brought(&self, v: Value) -> bool {
        self.words[v].is_some() && !self.fit.contains(v.index())
    }

    /// Whether all that an instruction reads fits, in so many loops.
    fn reads_fitting(&self, d: &InstData, depth: u32) -> bool {
        let mut all = true;
        d.for_each_use(|n| {
            all &= match n {
                Name::Val(v) | Name::Part(v, _) => self.fits(v, depth),
                // The stack pointer is in a general register.
                Name::Phys(r) => r.is_zero(),
            };
        });
        all
    }

    /// Drops what is made of what does not fit, and carries that something else reads.
    fn drop_some(&mut self, func: &Function, cfg: &Cfg, loops: &LoopForest) -> bool {
        let before = self.fit.count_ones(..);
        let carries = |func: &Function, v: Value| func.values[v].file == RegFile::P;
        for &b in &cfg.rpo {
            for i in &func.blocks[b].insts {
                let d = &func.insts[*i];
                let mut makes = false;
                let mut all = true;
                d.for_each_def(|n| {
                    if let Some(v) = n.value() {
                        makes |= self.fit.contains(v.index());
                        all &= self.fit.contains(v.index());
                    }
                });
                let goes_on = makes && all && self.reads_fitting(d, loops.depth(b));
                if makes && !goes_on {
                    d.for_each_def(|n| n.value().into_iter().for_each(|v| self.fit.set(v.index(), false)));
                }
            }
            let term = &func.blocks[b].term;
            for t in term.targets() {
                for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                    if !self.fits(*a, loops.depth(t.block)) {
                        self.fit.set(p.index(), false);
                    }
                }
            }
        }
        // A carry has no other form; what it is the carry of goes with it, the next time.
        let mut carried = FixedBitSet::with_capacity(func.values.len());
        for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
            let d = &func.insts[*i];
            if d.op != Op::Sass(Opcode::ISETP) {
                d.for_each_def(|n| {
                    n.value()
                        .filter(|v| carries(func, *v))
                        .into_iter()
                        .for_each(|v| carried.insert(v.index()));
                });
            }
        }
        for &b in &cfg.rpo {
            for i in &func.blocks[b].insts {
                let d = &func.insts[*i];
                let mut converted = d.op != Op::Sass(Opcode::ISETP);
                d.for_each_def(|n| converted &= n.value().is_none_or(|v| self.fit.contains(v.index())));
                if !converted || !is_convertible(func, d) {
                    d.for_each_use(|n| {
                        n.value()
                            .filter(|v| carried.contains(v.index()))
                            .into_iter()
                            .for_each(|v| self.fit.set(v.index(), false));
                    });
                }
            }
            let term = &func.blocks[b].term;
            let passed = term.targets().into_iter().flat_map(|t| t.args.iter().copied());
            for v in term.used_name().and_then(Name::value).into_iter().chain(passed) {
                if carried.contains(v.index()) {
                    self.fit.set(v.index(), false);
                }
            }
        }
        self.fit.count_ones(..) != before
    }

    /// Adds words that loops bring to uniform registers again in each round, as far as there is `room`.
    fn add_brought(
        &self,
        func: &Function,
        cfg: &Cfg,
        loops: &LoopForest,
        room: &mut Budget<'_>,
        chosen: &mut FixedBitSet,
    ) {
        for &b in cfg.rpo.iter().filter(|b| loops.depth(**b) > 0) {
            for i in &func.blocks[b].insts {
                let brought = R2ur::of(&func.insts[*i]).and_then(|s| value_of(s.a));
                if let Some(v) = brought.filter(|v| self.is_brought(*v) && self.fits(*v, loops.depth(b)))
                    && !chosen.contains(v.index())
                    && room.take(&[v])
                {
                    chosen.insert(v.index());
                }
            }
        }
    }

    /// Brings the chosen words that have to be brought to uniform registers behind where they are made, for what is chosen and what brought
    /// them before; the registers.
    fn bring(&self, func: &mut Function, cfg: &Cfg, chosen: &mut FixedBitSet) -> FixedBitSet {
        let mut moved = FixedBitSet::with_capacity(func.values.len());
        let mut there: FxHashMap<Value, Value> = FxHashMap::default();
        for &b in &cfg.rpo {
            let old = std::mem::take(&mut func.blocks[b].insts);
            let mut out = Vec::with_capacity(old.len());
            for i in old {
                out.push(i);
                let mut made: SmallVec<[Value; 2]> = SmallVec::new();
                func.insts[i].for_each_def(|n| made.extend(n.value()));
                made.retain(|v| chosen.contains(v.index()) && self.is_brought(*v));
                for v in made {
                    chosen.set(v.index(), false);
                    let to = func.add_value(RegFile::UR, 1);
                    there.insert(v, to);
                    moved.grow_and_insert(to.index());
                    let loc = func.insts[i].loc;
                    let operands = [operand(to), operand(v)].into_iter().collect();
                    let op = Op::Sass(Opcode::R2UR);
                    let d = InstData {
                        guard: ALWAYS,
                        op,
                        mods: Mods::none(),
                        operands,
                        kept: ThinVec::new(),
                        loc,
                    };
                    out.push(func.insts.push(d));
                }
            }
            func.blocks[b].insts = out;
        }
        let renamed = |n: Name| match n {
            Name::Val(v) => Name::Val(there.get(&v).copied().unwrap_or(v)),
            n => n,
        };
        for &b in &cfg.rpo {
            for &i in &func.blocks[b].insts.clone() {
                let d = &mut func.insts[i];
                let mut makes = false;
                d.for_each_def(|n| makes |= n.value().is_some_and(|v| chosen.contains(v.index())));
                let brought =
                    R2ur::of(d).filter(|_| d.is_unguarded()).and_then(|s| Some((*s.d, value_of(s.a)?)));
                if makes {
                    d.map_uses(renamed);
                } else if let Some((to, v)) = brought
                    && let Some(from) = there.get(&v)
                    && to != operand(*from)
                {
                    d.become_copy(to, operand(*from));
                }
            }
            let mut term = func.blocks[b].term.clone();
            for t in term.targets_mut() {
                for (a, p) in t.args.iter_mut().zip(&func.blocks[t.block].params) {
                    if chosen.contains(p.index())
                        && let Some(to) = there.get(a)
                    {
                        *a = *to;
                    }
                }
            }
            func.blocks[b].term = term;
        }
        moved
    }

    /// Adds what is computed of constants alone and read in loops around which it is not made, with all that it is computed of, as far as
    /// there is `room`.
    fn add_invariants(
        &self,
        func: &Function,
        cfg: &Cfg,
        loops: &LoopForest,
        room: &mut Budget<'_>,
        chosen: &mut FixedBitSet,
    ) {
        let mut made: SecondaryMap<Value, Option<(Inst, Block)>> = SecondaryMap::new();
        let mut carried: FxHashMap<Value, SmallVec<[Inst; 2]>> = FxHashMap::default();
        for &b in &cfg.rpo {
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                d.for_each_def(|n| n.value().into_iter().for_each(|v| made[v] = Some((i, b))));
                d.for_each_use(|n| {
                    let carry = n.value().filter(|v| func.values[*v].file == RegFile::P);
                    carry.into_iter().for_each(|v| carried.entry(v).or_default().push(i));
                });
            }
        }
        // Where each is read: elsewhere than where it is made, and in a loop.
        let mut elsewhere = FixedBitSet::with_capacity(func.values.len());
        let mut in_loop = FixedBitSet::with_capacity(func.values.len());
        for &b in &cfg.rpo {
            let mut read = |v: Value| {
                if made[v].is_some_and(|(_, at)| at != b) {
                    elsewhere.insert(v.index());
                    in_loop.set(v.index(), in_loop.contains(v.index()) || loops.depth(b) > 0);
                }
            };
            for i in &func.blocks[b].insts {
                func.insts[*i].for_each_use(|n| n.value().into_iter().for_each(&mut read));
            }
            let term = &func.blocks[b].term;
            term.used_name().and_then(Name::value).into_iter().for_each(&mut read);
            term.targets().into_iter().flat_map(|t| &t.args).for_each(|a| read(*a));
        }
        let general = |v: Value| matches!(func.values[v].file, RegFile::R | RegFile::P);
        for &b in cfg.rpo.iter().filter(|b| loops.depth(**b) == 0) {
            for &i in &func.blocks[b].insts {
                let mut wanted = None;
                func.insts[i].for_each_def(|n| {
                    let read = |v: &Value| in_loop.contains(v.index()) && !chosen.contains(v.index());
                    wanted = wanted.or(n.value().filter(|v| func.values[*v].file == RegFile::R).filter(read));
                });
                let Some(wanted) = wanted else { continue };
                // All that it is computed of, and what reads the carries among that.
                let mut more = vec![wanted];
                let mut together: FxHashSet<Value> = FxHashSet::default();
                let mut fits = true;
                while let Some(v) = more.pop() {
                    if !general(v) || chosen.contains(v.index()) || together.contains(&v) {
                        continue;
                    }
                    let constant =
                        |(i, b): (Inst, Block)| loops.depth(b) == 0 && is_convertible(func, &func.insts[i]);
                    let Some((maker, _)) = made[v].filter(|m| self.fits(v, 0) && constant(*m)) else {
                        fits = false;
                        break;
                    };
                    together.insert(v);
                    let d = &func.insts[maker];
                    d.for_each_use(|n| more.extend(n.value()));
                    d.for_each_def(|n| more.extend(n.value()));
                    if func.values[v].file == RegFile::P && d.op != Op::Sass(Opcode::ISETP) {
                        for reader in carried.get(&v).into_iter().flatten() {
                            func.insts[*reader].for_each_def(|n| more.extend(n.value()));
                        }
                    }
                }
                let is_outside =
                    |v: &Value| func.values[*v].file == RegFile::R && elsewhere.contains(v.index());
                let outside: Vec<Value> = together.iter().copied().filter(is_outside).collect();
                if fits && room.take(&outside) {
                    together.into_iter().for_each(|v| chosen.insert(v.index()));
                }
            }
        }
    }

    /// What to put there of `func`, from the parameters of loops on: what is computed of them, and what they and that are
    /// computed of; `counts`: the blocks whose parameters it is about.
    fn counters(&self, func: &Function, cfg: &Cfg, counts: impl Fn(Block) -> bool) -> Option<FixedBitSet> {
        let mut chosen = FixedBitSet::with_capacity(func.values.len());
        let general = |v: Value| func.values[v].file != RegFile::UR && func.values[v].file != RegFile::UP;
        for b in cfg.rpo.iter().filter(|b| counts(**b)) {
            for p in func.blocks[*b].params.iter().filter(|p| self.fit.contains(p.index()) && general(**p)) {
                chosen.insert(p.index());
            }
        }
        let back = |b: Block| cfg.preds[b].iter().any(|p| cfg.order[*p] >= cfg.order[b]);
        let chooses = |b: &Block| func.blocks[*b].params.iter().any(|p| chosen.contains(p.index()));
        if !cfg.rpo.iter().any(|b| back(*b) && chooses(b)) {
            return None;
        }
        loop {
            let before = chosen.count_ones(..);
            for &b in &cfg.rpo {
                for i in &func.blocks[b].insts {
                    let d = &func.insts[*i];
                    let mut makes = false;
                    let mut fits = true;
                    let mut reads = false;
                    let mut any = false;
                    d.for_each_def(|n| {
                        if let Some(v) = n.value() {
                            any = true;
                            makes |= chosen.contains(v.index());
                            fits &= self.fit.contains(v.index()) && general(v);
                        }
                    });
                    d.for_each_use(|n| reads |= n.value().is_some_and(|v| chosen.contains(v.index())));
                    if any && fits && (makes || reads) {
                        d.for_each_def(|n| n.value().into_iter().for_each(|v| chosen.insert(v.index())));
                        d.for_each_use(|n| {
                            n.value()
                                .filter(|v| general(*v))
                                .into_iter()
                                .for_each(|v| chosen.insert(v.index()));
                        });
                    }
                }
                for t in func.blocks[b].term.targets() {
                    for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                        if chosen.contains(p.index()) && general(*a) {
                            chosen.insert(a.index());
                        }
                    }
                }
            }
            if chosen.count_ones(..) == before {
                return Some(chosen);
            }
        }
    }
}

/// Whether it computes in uniform registers of constants alone, as far as it itself goes.
fn is_uniform_arithmetic(func: &Function, d: &InstData) -> bool {
    let Op::Sass(op) = d.op else { return false };
    let info = op.info();
    let uniform = |n: Name| match n {
        Name::Val(v) | Name::Part(v, _) => matches!(func.values[v].file, RegFile::UR | RegFile::UP),
        Name::Phys(r) => r.is_zero(),
    };
    let mut all = info.uniform && info.effect == Effect::Pure && info.lanes == Lanes::Own && d.is_unguarded();
    d.for_each_use(|n| all &= uniform(n));
    d.for_each_def(|n| all &= uniform(n));
    let alike = |o: &Operand| !matches!(o, Operand::Special(s) if s.info().scope != Scope::Block);
    all && !info.has_hidden_predicates() && d.operands.iter().all(alike)
}

/// Whether it adds or copies where a predicate holds and keeps a register's value elsewhere, as `@UP0 UIADD3` and `@UP0 UMOV`
/// do in ptxas's code.
fn keeps_otherwise(func: &Function, d: &InstData) -> bool {
    let alone = match d.op {
        Op::Macro(Macro::Copy) => true,
        Op::Sass(Opcode::IADD3) => d.mods == Mods::none(),
        _ => false,
    };
    let kept = d.kept.iter().all(|n| match n {
        Name::Val(v) => func.values[*v].file == RegFile::R && func.values[*v].width == 1,
        Name::Part(..) => false,
        Name::Phys(r) => r.is_zero(),
    });
    alone && kept && !d.kept.is_empty() && d.guard.pred.value().is_some()
}

/// Whether an instruction in general registers has a form in uniform ones that ptxas uses, as far as it itself goes.
fn is_convertible(func: &Function, d: &InstData) -> bool {
    let general = |n: Name| match n {
        Name::Val(v) | Name::Part(v, _) => {
            matches!(func.values[v].file, RegFile::R | RegFile::P) && func.values[v].width <= 2
        }
        Name::Phys(r) => r.is_zero(),
    };
    let mut made = true;
    d.for_each_def(|n| made &= general(n));
    if !made || !(d.is_unguarded() && d.kept.is_empty() || keeps_otherwise(func, d)) {
        return false;
    }
    let constant = |o: &Operand| {
        matches!(
            o,
            Operand::Const { bank: ConstBank::Index(_), index: None, neg: false, abs: false, not: false, .. }
        )
    };
    let op = match d.op {
        Op::Macro(Macro::Copy | Macro::Collect) => {
            let mut file = RegFile::R;
            d.for_each_def(|n| file = func.shape(n).file);
            let plain = |o: &Operand| match o {
                Operand::Reg(r) => {
                    *r == RegOp::plain(r.reg) && matches!(func.shape(r.reg).file, RegFile::R | RegFile::UR)
                }
                Operand::Imm(_) => true,
                o => constant(o),
            };
            return file == RegFile::R && d.macro_operands().is_some_and(|(_, read)| read.iter().all(plain));
        }
        Op::Macro(_) => return false,
        Op::Sass(op) => op,
    };
    let mods: &[Mod] = match op {
        Opcode::S2R => {
            return d
                .operands
                .iter()
                .any(|o| matches!(o, Operand::Special(s) if s.info().scope == Scope::Block));
        }
        Opcode::LDC => {
            // ULDC may have an index; LDCU reads it late, and has no scoreboard that says when.
            let indexed = func.target.info().constant_load == Opcode::ULDC;
            let fixed = |o: &Operand| match o {
                Operand::Const {
                    bank: ConstBank::Index(_),
                    index,
                    neg: false,
                    abs: false,
                    not: false,
                    ..
                } => indexed || index.is_none(),
                _ => false,
            };
            return is_word_or_pair(d) && Ldc::of(d).is_some_and(|s| fixed(s.address));
        }
        Opcode::IADD3 => &[Mod::X],
        // The upper word of a product is part of the wide one.
        Opcode::IMAD if d.mods == Mods::of(&[Mod::HI, Mod::U32]) => &[Mod::HI, Mod::U32],
        Opcode::IMAD => &[Mod::WIDE, Mod::U32],
        Opcode::SHF => &[Mod::L, Mod::R, Mod::U32, Mod::S32, Mod::U64, Mod::S64, Mod::HI],
        Opcode::LEA => &[Mod::HI, Mod::X],
        Opcode::LOP3 => &[Mod::LUT],
        Opcode::SGXT => &[Mod::U32],
        Opcode::SEL => &[],
        // ptxas 13.0.88 has no comparison for equality there that takes another one's result on.
        Opcode::ISETP if d.mods.has(Mod::EQ) && d.mods.has(Mod::EX) => return false,
        Opcode::ISETP => &[
            Mod::LT,
            Mod::LE,
            Mod::GT,
            Mod::GE,
            Mod::EQ,
            Mod::NE,
            Mod::AND,
            Mod::OR,
            Mod::XOR,
            Mod::U32,
            Mod::EX,
        ],
        _ => return false,
    };
    let takes = |(k, o): (usize, &Operand)| {
        let predicate = matches!(op.slots()[k].kind, SlotKind::Reg(RegFile::P));
        match o {
            Operand::Reg(r) if d.is_def(k) => *r == RegOp::plain(r.reg),
            // Sums are of numbers with signs, and with carries of complements.
            Operand::Reg(r) => {
                let plain = RegOp { neg: op == Opcode::IADD3 && r.neg, not: r.not, ..RegOp::plain(r.reg) };
                *r == plain && (predicate || !r.not || op == Opcode::IADD3 && d.mods.has(Mod::X))
            }
            Operand::Imm(_) => true,
            o => constant(o),
        }
    };
    d.mods.iter().all(|m| mods.contains(&m)) && d.operands.iter().enumerate().all(takes)
}
