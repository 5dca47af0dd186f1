//! Proves an allocation by abstract interpretation: walks the SSA program and its allocated form side by
//! side, keeps for every register and stack slot the set of values that it is known to hold, and checks that
//! every instruction reads what it meant to. It shares no code with the allocator.
//!
//! What it relies on: surviving instructions keep their [`Inst`] number and operand order; inserted ones
//! have higher numbers and only move, exchange, store, load or make constants.

mod facts;
mod wrong;

use super::Limits;
use crate::liveness::{Lanes, Liveness};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use facts::{Constant, Fact, FactId, Facts, Numbers, Place, Root, State};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::print::inst_text;
use ori::{Allocated, Block, Function, Inst, InstData, Macro, Name, Op, Operand, Register, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{Isetp, Ldc, Ldl, Lop3, Mov, Plop3, R2ur, Sel, Stl, Umov};
use sass::{AddrWidth, ConstBank, Mod, Opcode, Reg, RegFile, RegOp, Role};
use smallvec::SmallVec;
use std::collections::BTreeSet;
pub use wrong::{Fault, Violation, Wrong};

/// Checks that `after`, an allocation of the SSA function `before`, computes the same.
///
/// # Errors
/// The first instruction that may read something else.
pub fn check(before: &Function, after: &Allocated, limits: &Limits) -> Result<(), Violation> {
    let cfg = Cfg::new(before);
    barriers(after, &cfg)?;
    let made = FixedBitSet::with_capacity(before.values.len());
    let numbers = Numbers::new(before, definitions(before, &cfg));
    let mut block_of = SecondaryMap::with_capacity(after.insts.len());
    for b in &cfg.rpo {
        after.blocks[*b].insts.iter().for_each(|i| block_of[*i] = Some(*b).into());
    }
    let mut c = Checker { before, after, limits, content: SecondaryMap::new(), made, numbers, block_of };
    c.find_contents(&cfg);
    let mut needed: Option<Needed> = None;
    let mut visits = 0;
    let mut entry: FxHashMap<Block, State> = FxHashMap::default();
    entry.insert(before.entry_block(), State::default());
    // Sweeps in reverse postorder: what an outer loop learns and what its inner loops learn goes around together.
    let mut dirty: BTreeSet<u32> = BTreeSet::from([0]);
    let mut next: BTreeSet<u32> = BTreeSet::new();
    while let Some(k) = dirty.pop_first().or_else(|| {
        std::mem::swap(&mut dirty, &mut next);
        dirty.pop_first()
    }) {
        // Loops within loops come to an end sooner where nobody asks any more what held values that nobody reads any more.
        visits += 1;
        let b = cfg.rpo[k as usize];
        if needed.is_none() && (visits > PATIENCE * cfg.rpo.len() || entry[&b].is_crowded()) {
            let found = needed.insert(Needed::new(before, &cfg));
            entry.iter_mut().for_each(|(b, state)| found.reduce(&c, *b, state));
        }
        let mut state = entry[&b].clone();
        c.block(b, &mut state).map_err(|wrong| Violation { block: b, wrong })?;
        let targets = before.blocks[b].term.targets();
        for (n, (told, real)) in (1..).zip(targets.iter().zip(after.blocks[b].term.targets())) {
            if told.block != real.block || !real.args.is_empty() {
                return Err(Violation { block: b, wrong: Wrong::Targets });
            }
            let mut out = if n == targets.len() { std::mem::take(&mut state) } else { state.clone() };
            let params = &before.blocks[told.block].params;
            // Arguments become parameters at once; a parameter's old value may itself be an argument.
            let mut renamed: SmallVec<[(FactId, FactId); 8]> = SmallVec::new();
            let mut everywhere: Vec<FactId> = Vec::new();
            for (p, a) in params.iter().zip(&told.args) {
                for lane in 0..before.values[*p].width {
                    let (from, to) = (c.content[*a][usize::from(lane)], c.content[*p][usize::from(lane)]);
                    let forms = [(from, to), (from.to_general(), to.to_general())];
                    let forms = &forms[..if c.is_pred(*p) { 2 } else { 1 }];
                    for (from, to) in forms {
                        let ids = (c.numbers.fact(*from), c.numbers.fact(*to));
                        if *from == Fact::UNDEFINED || out.anywhere.contains(ids.0) {
                            let other = if c.is_pred(*p) { to.to_general() } else { to.to_predicate() };
                            everywhere.extend([*to, other, other.to_general()].map(|f| c.numbers.fact(f)));
                        }
                        renamed.push(ids);
                    }
                }
            }
            renamed.sort_unstable();
            let gains = out.gains(&renamed);
            c.forget(&mut out, params.iter().copied());
            gains.into_iter().for_each(|(place, fact)| out.gain(place, fact, &mut c.numbers));
            everywhere.into_iter().for_each(|fact| out.anywhere.insert(fact));
            if let Some(needed) = &mut needed {
                needed.reduce(&c, told.block, &mut out);
            }
            let changed = match entry.get_mut(&told.block) {
                None => {
                    entry.insert(told.block, out);
                    true
                }
                Some(s) => s.meet(&out, &c.numbers),
            };
            if changed {
                let to = cfg.order[told.block];
                if to > k { &mut dirty } else { &mut next }.insert(to);
            }
        }
    }
    Ok(())
}

/// The values of a function as they are defined, each once.
fn definitions(func: &Function, cfg: &Cfg) -> Vec<Value> {
    let mut out = Vec::new();
    for b in &cfg.rpo {
        out.extend_from_slice(&func.blocks[*b].params);
        for i in &func.blocks[*b].insts {
            func.insts[*i].for_each_def(|n| out.extend(n.value()));
        }
    }
    out
}

/// Whether the barriers that lanes leave by BREAK are for one region alone: those lanes may run any code while others wait.
fn barriers(after: &Allocated, cfg: &Cfg) -> Result<(), Violation> {
    let insts = || {
        let blocks = cfg.rpo.iter();
        blocks.flat_map(|b| after.blocks[*b].insts.iter().map(|i| (*b, &after.insts[*i])))
    };
    let barrier = |d: &InstData<Reg>| {
        d.operands.iter().find_map(|o| o.as_reg().filter(|r| r.reg.file == RegFile::B)).map(|r| r.reg)
    };
    let left = insts().filter(|(_, d)| d.op == Op::Sass(Opcode::BREAK)).filter_map(|(_, d)| barrier(d));
    let left: FxHashSet<Reg> = left.collect();
    let mut set: FxHashSet<Reg> = FxHashSet::default();
    for (block, d) in insts().filter(|(_, d)| d.op == Op::Sass(Opcode::BSSY)) {
        if let Some(reg) = barrier(d).filter(|r| left.contains(r) && !set.insert(*r)) {
            return Err(Violation { block, wrong: Wrong::Barrier(reg) });
        }
    }
    Ok(())
}

/// Visits of a block, on average, after which facts that nobody needs are looked for.
const PATIENCE: usize = 3;

/// What is read behind the beginning of each block.
struct Needed {
    lanes: Lanes,
    live: Liveness,
    /// What may be said of those, for blocks that were asked for.
    facts: FxHashMap<Block, Facts>,
}

impl Needed {
    fn new(func: &Function, cfg: &Cfg) -> Needed {
        let lanes = Lanes::new(func);
        Needed { live: Liveness::new(func, cfg, &lanes), lanes, facts: FxHashMap::default() }
    }

    /// Forgets what a state at the beginning of a block knows of values that are not read from there on. To know less is always right.
    fn reduce(&mut self, c: &Checker<'_>, b: Block, state: &mut State) {
        let facts = self.facts.entry(b).or_insert_with(|| {
            let live = self.live.live_in[b].iter().filter_map(|l| Some(self.lanes.owner(*l)?.0));
            let contents = live.flat_map(|v| &c.content[v]).filter_map(|f| match f.root {
                Root::Lane(v, _) => Some(v),
                Root::Constant(_) | Root::Fixed(_) | Root::Undefined => None,
            });
            let all: FxHashSet<Value> = contents.chain(c.before.blocks[b].params.iter().copied()).collect();
            c.numbers.all_of(all.iter().copied(), c.before)
        });
        state.reduce(facts, &c.numbers);
    }
}

struct Checker<'f> {
    before: &'f Function,
    after: &'f Allocated,
    limits: &'f Limits,
    /// What each register of a value holds.
    content: SecondaryMap<Value, Vec<Fact>>,
    /// Values that a walk has come to the definition of: nothing is known of others anywhere.
    made: FixedBitSet,
    numbers: Numbers,
    /// The block of each instruction of the allocated program.
    block_of: SecondaryMap<Inst, PackedOption<Block>>,
}

impl Checker<'_> {
    /// Follows copies. A value is never read after what it is a copy of has been defined again, as its own
    /// definition comes between, so the content can be named by the root.
    fn find_contents(&mut self, cfg: &Cfg) {
        let own = |v: Value, width: u8| (0..width).map(|k| Fact::plain(Root::Lane(v, k))).collect();
        for &b in &cfg.rpo {
            for &p in &self.before.blocks[b].params {
                self.content[p] = own(p, self.before.values[p].width);
            }
            for &i in &self.before.blocks[b].insts {
                let d = &self.before.insts[i];
                let width = |n: Name| self.before.shape(n).width;
                let mut defs: Vec<Value> = Vec::new();
                d.for_each_def(|n| defs.extend(n.value()));
                for v in defs {
                    let contents = self.copied(d, v).unwrap_or_else(|| own(v, width(v.into())));
                    self.content[v] = contents;
                }
            }
        }
    }

    /// The contents of the value that a copy or constant makes.
    fn copied(&self, d: &InstData, v: Value) -> Option<Vec<Fact>> {
        if !d.is_unguarded() {
            return None;
        }
        let width = self.before.values[v].width;
        let source = |o: &Operand, n: u8| -> Option<Vec<Fact>> {
            let (facts, pred) = match o {
                Operand::Reg(r) if *r == RegOp::plain(r.reg) && r.reg.value().is_some() => match r.reg {
                    Name::Val(s) => (self.content[s].clone(), self.is_pred(s)),
                    Name::Part(s, k) => (vec![*self.content[s].get(usize::from(k))?], false),
                    Name::Phys(_) => return None,
                },
                Operand::Reg(RegOp { reg: Name::Phys(r), .. }) if !r.is_zero() => {
                    (vec![Fact::plain(Root::Fixed(*r))], r.file == RegFile::P)
                }
                _ => {
                    let constants = (0..n).map(|k| Some(Fact::plain(Root::Constant(constant_source(o, k)?))));
                    (constants.collect::<Option<Vec<Fact>>>()?, !self.is_general_constant(o))
                }
            };
            Some(match (pred, self.is_pred(v)) {
                (true, false) => facts.into_iter().map(Fact::to_general).collect(),
                (false, true) => facts.into_iter().map(Fact::to_predicate).collect(),
                _ => facts,
            })
        };
        match d.op {
            Op::Macro(Macro::Undef) => Some(vec![Fact::UNDEFINED; usize::from(width)]),
            Op::Macro(Macro::Copy | Macro::Settle) => source(d.macro_operands()?.1.first()?, width),
            Op::Macro(Macro::Collect) => {
                let parts: Option<Vec<Vec<Fact>>> = d.collected()?.1.iter().map(|o| source(o, 1)).collect();
                Some(parts?.concat())
            }
            Op::Sass(Opcode::MOV | Opcode::UMOV | Opcode::LDC | Opcode::LDCU | Opcode::ULDC) => {
                let (_, from) = moved(d)?;
                (0..width).map(|k| constant_source(from, k).map(|c| Fact::plain(Root::Constant(c)))).collect()
            }
            _ => None,
        }
    }

    fn is_general_constant(&self, o: &Operand) -> bool {
        !matches!(o, Operand::Reg(RegOp { reg: Name::Phys(r), .. }) if matches!(r.file, RegFile::P | RegFile::UP))
    }

    fn block(&mut self, b: Block, state: &mut State) -> Result<(), Wrong> {
        let old = &self.before.blocks[b].insts;
        let new = &self.after.blocks[b].insts;
        let mut old = old.iter().copied().peekable();
        let mut k = 0;
        loop {
            // Macro-operations take effect as soon as what precedes them has.
            while let Some(i) = old.next_if(|i| self.block_of[*i] != Some(b).into()) {
                self.vanished(i)?;
            }
            let Some(&i) = new.get(k) else { break };
            k += 1;
            if i.index() >= self.before.insts.len() {
                k += self.inserted(&new[k - 1..], state)?;
            } else if old.next() == Some(i) {
                self.kept(i, state)?;
            } else {
                return Err(Wrong::Order(self.text(i)));
            }
        }
        if let Some(i) = old.next() {
            return Err(Wrong::Missing(self.text(i)));
        }
        match (self.before.blocks[b].term.used_name(), self.after.blocks[b].term.used_name()) {
            (Some(want), Some(got)) => {
                let width = self.before.shape(want).width;
                self.reads(state, want, got, width).map_err(Wrong::Ending)
            }
            (None, None) => Ok(()),
            _ => Err(Wrong::Terminator),
        }
    }

    /// Removes from a state what is known about values that are about to be redefined.
    fn forget(&mut self, state: &mut State, values: impl IntoIterator<Item = Value>) {
        let again: SmallVec<[Value; 8]> = values.into_iter().filter(|v| self.made.put(v.index())).collect();
        if !again.is_empty() {
            state.forget(&again, self.before, &self.numbers);
        }
    }

    fn text(&self, i: Inst) -> String {
        inst_text(self.before, &self.before.insts[i])
    }

    /// An instruction of the SSA program that the allocated one does not have.
    fn vanished(&self, i: Inst) -> Result<(), Wrong> {
        let d = &self.before.insts[i];
        let dst = d.operands.first().and_then(Operand::as_reg).and_then(|r| r.reg.value());
        let Some(v) = dst else {
            return Err(Wrong::Missing(self.text(i)));
        };
        // A copy is followed by its content; so is a constant, which may be made again anywhere.
        let followed = |f: &Fact| match (d.op, f.root) {
            (Op::Macro(_), Root::Lane(x, _)) => x != v,
            (Op::Macro(_), _) | (_, Root::Constant(_)) => true,
            _ => false,
        };
        if self.content[v].iter().all(followed) { Ok(()) } else { Err(Wrong::Missing(self.text(i))) }
    }

    /// What a zero register holds.
    fn zero(r: Reg) -> Fact {
        let c = if matches!(r.file, RegFile::P | RegFile::UP) { Constant::True } else { Constant::Imm(0) };
        Fact::plain(Root::Constant(c))
    }

    fn is_pred(&self, v: Value) -> bool {
        matches!(self.before.values[v].file, RegFile::P | RegFile::UP)
    }

    /// Whether register `lane` of `v` can be read at `r`.
    fn holds(&self, state: &State, r: Reg, v: Value, lane: u8) -> bool {
        let want = self.content[v][usize::from(lane)];
        want == Fact::UNDEFINED
            || (r.is_zero() && want == Checker::zero(r))
            || state.knows(Place::Reg(r), &want, &self.numbers)
    }

    /// Checks a read of `want` (in SSA) from `got` (allocated).
    fn reads(&self, state: &State, want: Name, got: Reg, width: u8) -> Result<(), Fault> {
        let step = |k: u8| if got.is_zero() { got } else { Reg { index: got.index + k, ..got } };
        match want {
            Name::Phys(r) if r == got => {
                if r.is_zero() || r == Reg::SP {
                    return Ok(());
                }
                for k in 0..width {
                    if !state.knows(Place::Reg(step(k)), &Fact::plain(Root::Fixed(step(k))), &self.numbers) {
                        return Err(Fault::Overwritten(step(k)));
                    }
                }
                Ok(())
            }
            Name::Phys(r) => Err(Fault::Renamed(r, got)),
            Name::Part(v, i) => self.reads_lane(state, v, i, got),
            Name::Val(v) => {
                let w = self.before.values[v].width;
                if !got.is_zero() && !got.index.is_multiple_of(Reg::tuple_alignment(w)) {
                    return Err(Fault::Unaligned(v, w, got));
                }
                (0..w).try_for_each(|k| self.reads_lane(state, v, k, step(k)))
            }
        }
    }

    fn reads_lane(&self, state: &State, v: Value, lane: u8, got: Reg) -> Result<(), Fault> {
        if got.file != self.before.values[v].file {
            return Err(Fault::File(v, got));
        }
        if self.holds(state, got, v, lane) { Ok(()) } else { Err(Fault::Holds(got, v, lane)) }
    }

    /// An instruction that both programs have.
    fn kept(&mut self, i: Inst, state: &mut State) -> Result<(), Wrong> {
        let (before, after) = (self.before, self.after);
        let (old, new) = (&before.insts[i], &after.insts[i]);
        let fail = |fault: Fault| Wrong::Changed {
            before: inst_text(before, old),
            after: inst_text(after, new),
            fault,
        };
        if old.op != new.op || old.mods != new.mods || old.operands.len() != new.operands.len() {
            return Err(fail(Fault::Operation));
        }
        self.reads(state, old.guard.pred, new.guard.pred, 1).map_err(fail)?;
        let mut writes: Vec<(Name, Reg, u8)> = Vec::new();
        for (k, (o, n)) in old.operands.iter().zip(&new.operands).enumerate() {
            let slot = old.slot(k, &self.before.values);
            if slot.role != Role::Def {
                self.operand(state, o, n, slot.width).map_err(fail)?;
            }
            if let (Op::Sass(op), Operand::Reg(RegOp { reg: Name::Val(v), .. }), Operand::Reg(n)) =
                (old.op, o, n)
                && !n.reg.is_zero()
                && !n.reg.index.is_multiple_of(op.tuple_alignment(before.values[*v].width))
            {
                return Err(fail(Fault::Unaligned(*v, slot.width, n.reg)));
            }
            if slot.role != Role::Use
                && let (Operand::Reg(o), Operand::Reg(n)) = (o, n)
            {
                if let Some(kept) = old.kept.get(writes.len())
                    && let Name::Val(_) = o.reg
                {
                    self.reads(state, *kept, n.reg, slot.width).map_err(fail)?;
                }
                writes.push((o.reg, n.reg, slot.width));
            }
        }
        if old.op == Op::Macro(Macro::Call) {
            for r in ori::abi::clobbered_by(self.before, old).iter() {
                self.write(state, Place::Reg(r), Fact::plain(Root::Fixed(r)));
            }
        }
        let mut seen: BTreeSet<Place> = BTreeSet::new();
        for (name, to, width) in &writes {
            if let Name::Val(v) = name {
                self.forget(state, [*v]);
                let aligned = to.is_zero() || to.index.is_multiple_of(Reg::tuple_alignment(*width));
                if !aligned || to.file != self.before.values[*v].file {
                    return Err(fail(Fault::Written(*v, *to)));
                }
            }
            for k in 0..if to.is_zero() { 0 } else { *width } {
                let r = Reg { index: to.index + k, ..*to };
                if self.limits.reserved(r) || r.index >= self.limits.count(r.file) {
                    return Err(fail(Fault::Reserved(r)));
                }
                if !seen.insert(Place::Reg(r)) {
                    return Err(fail(Fault::Twice(r)));
                }
                let fact = match name {
                    // The content's name, which is another than the value's for constants.
                    Name::Val(v) => self.content[*v][usize::from(k)],
                    _ => Fact::plain(Root::Fixed(r)),
                };
                self.write(state, Place::Reg(r), fact);
            }
        }
        Ok(())
    }

    fn operand(&self, state: &State, o: &Operand, n: &Operand<Reg>, width: u8) -> Result<(), Fault> {
        let both = |o: &Option<Name>, n: &Option<Reg>, w: u8| match (o, n) {
            (Some(o), Some(n)) => self.reads(state, *o, *n, w),
            (None, None) => Ok(()),
            _ => Err(Fault::Address),
        };
        match (o, n) {
            (Operand::Reg(o), Operand::Reg(n)) => {
                if (o.neg, o.abs, o.not) != (n.neg, n.abs, n.not) {
                    return Err(Fault::Modifiers);
                }
                self.reads(state, o.reg, n.reg, width)
            }
            (
                Operand::Addr { desc: d0, base: b0, uniform: u0, width: w0, offset: o0 },
                Operand::Addr { desc: d1, base: b1, uniform: u1, width: w1, offset: o1 },
            ) if w0 == w1 && o0 == o1 => {
                both(d0, d1, 2)?;
                both(b0, b1, if *w0 == AddrWidth::R64 { 2 } else { 1 })?;
                both(u0, u1, 1)
            }
            (
                Operand::Const { bank: b0, index: i0, offset: o0, .. },
                Operand::Const { bank: b1, index: i1, offset: o1, .. },
            ) if o0 == o1 => {
                match (b0, b1) {
                    (ConstBank::Bindless(a), ConstBank::Bindless(b)) => self.reads(state, *a, *b, 2)?,
                    (ConstBank::Index(a), ConstBank::Index(b)) if a == b => {}
                    _ => return Err(Fault::Bank),
                }
                both(i0, i1, 1)
            }
            (Operand::Imm(a), Operand::Imm(b)) if a == b => Ok(()),
            (Operand::Label(a), Operand::Label(b)) if a == b => Ok(()),
            (Operand::Special(a), Operand::Special(b)) if a == b => Ok(()),
            (Operand::Scoreboard(a), Operand::Scoreboard(b)) if a == b => Ok(()),
            (Operand::ScoreboardSet(a), Operand::ScoreboardSet(b)) if a == b => Ok(()),
            _ => Err(Fault::Operand),
        }
    }

    /// What a place holds.
    fn at(&mut self, state: &State, p: Place) -> Facts {
        state.facts(self.numbers.place(p), &self.numbers)
    }

    /// A place gets a content.
    fn write(&mut self, state: &mut State, p: Place, fact: Fact) {
        let fact = Facts::one(self.numbers.fact(fact));
        let place = self.numbers.place(p);
        state.write(place, fact, &mut self.numbers);
    }

    /// What a register of an added instruction's source holds.
    fn read(&mut self, state: &State, r: Reg, k: u8) -> Facts {
        let mut facts = self.at(state, nth(r, k));
        if r.is_zero() {
            facts.insert(self.numbers.fact(Checker::zero(r)));
        }
        facts
    }

    /// An instruction that the allocator added (the first of `rest`). Returns how many more it took.
    fn inserted(&mut self, rest: &[Inst], state: &mut State) -> Result<usize, Wrong> {
        let after = self.after;
        let d = &after.insts[rest[0]];
        let fail = || Wrong::Unknown(inst_text(after, d));
        let Op::Sass(op) = d.op else { return Err(fail()) };
        if !d.is_unguarded() {
            return Err(fail());
        }
        if let Some((a, b)) = self.exchange(rest) {
            let (a, b) = (self.numbers.place(Place::Reg(a)), self.numbers.place(Place::Reg(b)));
            let (x, y) = (state.facts(a, &self.numbers), state.facts(b, &self.numbers));
            state.write(a, y, &mut self.numbers);
            state.write(b, x, &mut self.numbers);
            return Ok(2);
        }
        let register = |o: &Operand<Reg>| match o {
            Operand::Reg(RegOp { reg, neg: false, abs: false, .. }) => Some(*reg),
            _ => None,
        };
        let width = |k: usize| op.width(k, &d.mods);
        let slot = |o: &Operand<Reg>| match o {
            Operand::Addr { desc: None, base: Some(Reg::SP), uniform: None, offset, .. } => Some(*offset),
            _ => None,
        };
        match op {
            Opcode::STL => {
                let s = Stl::of(d).ok_or_else(fail)?;
                let (to, from) = slot(s.address).zip(register(s.value)).ok_or_else(fail)?;
                for k in 0..width(Stl::VALUE) {
                    let facts = self.read(state, from, k);
                    let place = self.numbers.place(Place::Slot(to + 4 * i32::from(k)));
                    state.write(place, facts, &mut self.numbers);
                }
            }
            Opcode::LDL => {
                let s = Ldl::of(d).ok_or_else(fail)?;
                let (from, to) = slot(s.address).zip(register(s.d)).ok_or_else(fail)?;
                for k in 0..width(Ldl::D) {
                    let facts = self.at(state, Place::Slot(from + 4 * i32::from(k)));
                    self.put(state, nth(to, k), facts)?;
                }
            }
            Opcode::MOV | Opcode::UMOV | Opcode::R2UR | Opcode::LDC | Opcode::LDCU | Opcode::ULDC => {
                let (to, from) = moved(d).ok_or_else(fail)?;
                let to = register(to).ok_or_else(fail)?;
                // The result is the first operand of all of these.
                for k in 0..width(Mov::D) {
                    let facts = match (from, register(from)) {
                        (_, Some(from)) => self.read(state, from, k),
                        (o, None) => {
                            let constant = Root::Constant(constant_source(o, k).ok_or_else(fail)?);
                            Facts::one(self.numbers.fact(Fact::plain(constant)))
                        }
                    };
                    self.put(state, nth(to, k), facts)?;
                }
            }
            Opcode::SEL => {
                // SEL r, RZ, 1, !p
                let s = Sel::of(d).ok_or_else(fail)?;
                let to = register(s.d).ok_or_else(fail)?;
                let shape = register(s.a) == Some(Reg::RZ) && *s.b == Operand::Imm(1);
                let Operand::Reg(p) = s.choose else { return Err(fail()) };
                if !p.not || !shape {
                    return Err(fail());
                }
                let facts = self.read(state, p.reg, 0);
                let facts = self.numbers.map(&facts, Fact::to_general);
                self.put(state, nth(to, 0), facts)?;
            }
            Opcode::ISETP => {
                // ISETP.NE.AND p, PT, r, RZ, PT, PT
                let s = Isetp::of(d).ok_or_else(fail)?;
                let (to, from) = register(s.p).zip(register(s.a)).ok_or_else(fail)?;
                let shape = d.mods.iter().eq([Mod::NE, Mod::AND])
                    && register(s.q) == Some(Reg::PT)
                    && register(s.b) == Some(Reg::RZ)
                    && register(s.join) == Some(Reg::PT);
                if !shape {
                    return Err(fail());
                }
                let facts = self.read(state, from, 0);
                let facts = self.numbers.map(&facts, Fact::to_predicate);
                self.put(state, nth(to, 0), facts)?;
            }
            Opcode::VOTEU => {
                // VOTEU.ANY URZ, up, p
                let [nowhere, to, from] = &d.operands[..] else { return Err(fail()) };
                let plain = matches!(from, Operand::Reg(r) if !r.not && r.reg.file == RegFile::P);
                let shape = plain && d.mods.iter().eq([Mod::ANY]) && register(nowhere) == Some(Reg::URZ);
                let (to, from) = register(to).zip(register(from)).filter(|_| shape).ok_or_else(fail)?;
                let facts = self.read(state, from, 0);
                self.put(state, nth(to, 0), facts)?;
            }
            Opcode::PLOP3 | Opcode::UPLOP3 => {
                let s = Plop3::slots(&d.operands).ok_or_else(fail)?;
                if let (Some(to), Some(from), Operand::Reg(r)) = (register(s.p), register(s.c), s.c)
                    && *s.table == Operand::Imm(0x80)
                {
                    // PLOP3 p, PT, PT, PT, up: all three.
                    let shape = [s.a, s.b].into_iter().all(|o| *o == Operand::reg(Reg::PT));
                    if !shape || r.not || from.file != RegFile::UP || from.is_zero() {
                        return Err(fail());
                    }
                    let facts = self.read(state, from, 0);
                    return self.put(state, nth(to, 0), facts).map(|()| 0);
                }
                let (to, from) = register(s.p).zip(register(s.a)).ok_or_else(fail)?;
                let not = matches!(s.a, Operand::Reg(r) if r.not);
                if *s.table != Operand::Imm(0xf0) {
                    return Err(fail());
                }
                let facts = match (not, from.is_zero()) {
                    (true, true) => {
                        Facts::one(self.numbers.fact(Fact::plain(Root::Constant(Constant::Imm(0)))))
                    }
                    (true, false) => return Err(fail()),
                    (false, _) => self.read(state, from, 0),
                };
                self.put(state, nth(to, 0), facts)?;
            }
            _ => return Err(fail()),
        }
        Ok(0)
    }

    fn put(&mut self, state: &mut State, p: Place, facts: Facts) -> Result<(), Wrong> {
        match p {
            Place::Reg(r)
                if self.limits.reserved(r) || r.is_zero() || r.index >= self.limits.count(r.file) =>
            {
                Err(Wrong::Move(r))
            }
            _ => {
                let place = self.numbers.place(p);
                state.write(place, facts, &mut self.numbers);
                Ok(())
            }
        }
    }

    /// Three exclusive ors of the same two registers.
    fn exchange(&self, rest: &[Inst]) -> Option<(Reg, Reg)> {
        let xor = |i: &Inst| -> Option<(Reg, Reg, Reg)> {
            let d = &self.after.insts[*i];
            let reg = |o: &Operand<Reg>| match o {
                Operand::Reg(RegOp { reg, not: false, .. }) => Some(*reg),
                _ => None,
            };
            let (to, a, b, table) = match d.op {
                Op::Sass(Opcode::LOP3 | Opcode::ULOP3) => {
                    Lop3::slots(&d.operands).map(|s| (s.d, s.a, s.b, s.table))?
                }
                Op::Sass(Opcode::PLOP3 | Opcode::UPLOP3) => {
                    Plop3::slots(&d.operands).map(|s| (s.p, s.a, s.b, s.table))?
                }
                _ => return None,
            };
            (*table == Operand::Imm(0x3c)).then_some((reg(to)?, reg(a)?, reg(b)?))
        };
        let [i, j, k, ..] = rest else { return None };
        let (x, y, z) = (xor(i)?, xor(j)?, xor(k)?);
        let (a, b) = (x.1, x.2);
        (a != b && x == z && x.0 == a && y == (b, a, b)).then_some((a, b))
    }
}

/// Register `k` of a tuple that begins with this one.
fn nth(r: Reg, k: u8) -> Place {
    Place::Reg(if r.is_zero() { r } else { Reg { index: r.index + k, ..r } })
}

/// Where a move or a load of constants puts what.
fn moved<R: Register>(d: &InstData<R>) -> Option<(&Operand<R>, &Operand<R>)> {
    match d.opcode()? {
        Opcode::MOV => Mov::of(d).map(|s| (s.d, s.a)),
        Opcode::UMOV => Umov::of(d).map(|s| (s.d, s.a)),
        Opcode::R2UR => R2ur::of(d).map(|s| (s.d, s.a)),
        // All loads of constants have these slots.
        _ => Ldc::slots(&d.operands).map(|s| (s.d, s.address)),
    }
}

/// What an operand's register `k` is, if it is a constant.
fn constant_source<R: Register>(o: &Operand<R>, k: u8) -> Option<Constant> {
    match o.map(R::into, |block| block) {
        Operand::Imm(n) => Some(Constant::Imm(if k == 0 { n } else { 0 })),
        Operand::Const {
            bank: ConstBank::Index(b),
            index: None,
            offset,
            neg: false,
            abs: false,
            not: false,
        } => Some(Constant::Bank(b, offset + 4 * i32::from(k))),
        Operand::Reg(RegOp { reg: Name::Phys(r), neg: false, abs: false, not, .. }) if r.is_zero() => {
            match (r.file, not) {
                (RegFile::P | RegFile::UP, false) => Some(Constant::True),
                (RegFile::P | RegFile::UP, true) => Some(Constant::Imm(0)),
                (_, false) => Some(Constant::Imm(0)),
                _ => None,
            }
        }
        _ => None,
    }
}
