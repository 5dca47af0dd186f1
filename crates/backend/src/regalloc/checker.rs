//! Proves an allocation by abstract interpretation: walks the SSA program and its allocated form side by
//! side, keeps for every register and stack slot the set of values that it is known to hold, and checks that
//! every instruction reads what it meant to. It shares no code with the allocator.
//!
//! What it relies on: surviving instructions keep their [`Inst`] number and operand order; inserted ones
//! have higher numbers and only move, exchange, store, load or make constants.

use super::Limits;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use ori::cfg::Cfg;
use ori::print::inst_text;
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Operand, Value, ValueData};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{AddrWidth, ConstBank, Mod, Opcode, Reg, RegFile, RegOp, Role};
use std::collections::{BTreeMap, BTreeSet};

/// A place that can hold 32 bits or a predicate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Reg(Reg),
    /// A word of the frame, by byte offset.
    Slot(i32),
}

/// Something known about a place's content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fact {
    /// It is this register of this value.
    Is(Value, u8),
    /// It is 1 where this predicate value holds, else 0.
    Bool(Value),
    /// It is nonzero exactly where this predicate value holds.
    NonZero(Value),
    /// It is a predicate, and this register of a general value is 1 where it holds, else 0.
    Test(Value, u8),
    /// It is this constant.
    Constant(Constant),
    /// It is what this physical register held when something wrote it on purpose.
    Fixed(Reg),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Constant {
    Imm(u32),
    Bank(u8, i32),
    True,
}

/// Facts by place. `anywhere` holds for every place (undefined values).
#[derive(Clone, Default, PartialEq, Debug)]
struct State {
    at: BTreeMap<Place, BTreeSet<Fact>>,
    anywhere: BTreeSet<Fact>,
}

impl State {
    fn facts(&self, p: Place) -> BTreeSet<Fact> {
        self.at.get(&p).cloned().unwrap_or_default()
    }
    fn write(&mut self, p: Place, facts: BTreeSet<Fact>) {
        self.at.insert(p, facts);
    }
    /// Removes everything known about a value that is about to be redefined.
    fn forget(&mut self, v: Value) {
        let stale = |f: &Fact| match f {
            Fact::Is(x, _) | Fact::Bool(x) | Fact::NonZero(x) | Fact::Test(x, _) => *x == v,
            Fact::Constant(_) | Fact::Fixed(_) => false,
        };
        self.at.values_mut().for_each(|s| s.retain(|f| !stale(f)));
        self.anywhere.retain(|f| !stale(f));
    }
    /// Keeps what both know; says whether that is less than before.
    fn meet(&mut self, other: &State) -> bool {
        let before = self.clone();
        let places: BTreeSet<Place> = self.at.keys().chain(other.at.keys()).copied().collect();
        for p in places {
            let mine: BTreeSet<Fact> = self.facts(p).union(&self.anywhere).cloned().collect();
            let theirs: BTreeSet<Fact> = other.facts(p).union(&other.anywhere).cloned().collect();
            self.at.insert(p, mine.intersection(&theirs).cloned().collect());
        }
        self.anywhere = self.anywhere.intersection(&other.anywhere).cloned().collect();
        let anywhere = &self.anywhere;
        self.at.values_mut().for_each(|s| s.retain(|f| !anywhere.contains(f)));
        self.at.retain(|_, s| !s.is_empty());
        *self != before
    }
}

/// Checks that `after`, an allocation of the SSA function `before`, computes the same.
///
/// # Errors
/// The first instruction that may read something else, as text.
pub fn check(before: &Function, after: &Function, limits: &Limits) -> Result<(), String> {
    let cfg = Cfg::new(before);
    let mut c =
        Checker { before, after, limits, constants: SecondaryMap::new(), bool_of: SecondaryMap::new() };
    c.find_aliases(&cfg);
    let mut entry: FxHashMap<Block, State> = FxHashMap::default();
    entry.insert(before.entry_block(), State::default());
    let mut dirty: BTreeSet<u32> = BTreeSet::from([0]);
    while let Some(k) = dirty.pop_first() {
        let b = cfg.rpo[k as usize];
        let mut state = entry[&b].clone();
        c.block(b, &mut state)?;
        for (told, real) in before.blocks[b].term.targets().iter().zip(after.blocks[b].term.targets()) {
            if told.block != real.block || !real.args.is_empty() {
                return Err(format!("{b}: targets differ"));
            }
            let mut out = state.clone();
            let params = &before.blocks[told.block].params;
            // Arguments become parameters at once; a parameter's old value may itself be an argument.
            let mut gains: Vec<(Place, Fact)> = Vec::new();
            let mut everywhere: Vec<Fact> = Vec::new();
            for (p, a) in params.iter().zip(&told.args) {
                for lane in 0..before.values[*p].width {
                    c.holders(&out, *a, lane, Fact::Is(*p, lane), &mut gains, &mut everywhere);
                }
            }
            params.iter().for_each(|p| out.forget(*p));
            for (place, fact) in gains {
                out.at.entry(place).or_default().insert(fact);
            }
            out.anywhere.extend(everywhere);
            let changed = match entry.get_mut(&told.block) {
                None => {
                    entry.insert(told.block, out);
                    true
                }
                Some(s) => s.meet(&out),
            };
            if changed {
                dirty.insert(cfg.order[told.block]);
            }
        }
    }
    Ok(())
}

struct Checker<'f> {
    before: &'f Function,
    after: &'f Function,
    limits: &'f Limits,
    /// What each register of a value always is, where that is a constant.
    constants: SecondaryMap<Value, Vec<Option<Constant>>>,
    /// The predicate that a general value is a copy of.
    bool_of: SecondaryMap<Value, Option<Value>>,
}

impl Checker<'_> {
    /// Values that are the same constant or the copy of the same predicate whenever they are defined.
    fn find_aliases(&mut self, cfg: &Cfg) {
        for &b in &cfg.rpo {
            for &i in &self.before.blocks[b].insts {
                let d = &self.before.insts[i];
                let Some(v) = d.operands.first().and_then(Operand::as_reg).and_then(|r| r.reg.value()) else {
                    continue;
                };
                if let (Op::Macro(Macro::Copy), Operand::Reg(r)) = (d.op, &d.operands[d.operands.len() - 1])
                    && *r == RegOp::plain(r.reg)
                    && let Name::Val(p) = r.reg
                    && self.is_pred(p)
                    && !self.is_pred(v)
                {
                    self.bool_of[v] = Some(p);
                }
                if d.is_unguarded()
                    && let Some(c) =
                        constant_result(d, self.before.values[v].width, &self.before.values, &self.constants)
                {
                    let is_pred = self.is_pred(v);
                    let truth = |c: Constant| match c {
                        Constant::Imm(n) if n != 0 && is_pred => Constant::True,
                        Constant::True if !is_pred => Constant::Imm(1),
                        other => other,
                    };
                    self.constants[v] = c.into_iter().map(|c| c.map(truth)).collect();
                }
            }
        }
    }

    fn block(&self, b: Block, state: &mut State) -> Result<(), String> {
        let old = &self.before.blocks[b].insts;
        let new = &self.after.blocks[b].insts;
        let surviving: FxHashSet<Inst> = new.iter().copied().collect();
        let mut old = old.iter().copied().peekable();
        let mut k = 0;
        loop {
            // Macro-operations take effect as soon as what precedes them has.
            while let Some(i) = old.next_if(|i| !surviving.contains(i)) {
                self.vanished(b, i, state)?;
            }
            let Some(&i) = new.get(k) else { break };
            k += 1;
            if i.index() >= self.before.insts.len() {
                k += self.inserted(&new[k - 1..], state).map_err(|e| format!("{b}: {e}"))?;
            } else if old.next() == Some(i) {
                self.kept(i, state).map_err(|e| format!("{b}: {e}"))?;
            } else {
                return Err(format!("{b}: `{}` is out of order", self.text(i)));
            }
        }
        if let Some(i) = old.next() {
            return Err(format!("{b}: `{}` is missing", self.text(i)));
        }
        match (self.before.blocks[b].term.used_name(), self.after.blocks[b].term.used_name()) {
            (Some(want), Some(got)) => {
                let width = self.before.shape(want).width;
                self.reads(state, want, got, width).map_err(|e| format!("{b}: terminator: {e}"))
            }
            (None, None) => Ok(()),
            _ => Err(format!("{b}: terminators differ")),
        }
    }

    fn text(&self, i: Inst) -> String {
        inst_text(self.before, &self.before.insts[i])
    }

    /// An instruction of the SSA program that the allocated one does not have.
    fn vanished(&self, b: Block, i: Inst, state: &mut State) -> Result<(), String> {
        let d = &self.before.insts[i];
        let dst = d.operands.first().and_then(Operand::as_reg).and_then(|r| r.reg.value());
        let Some(v) = dst else {
            return Err(format!("{b}: `{}` is missing", self.text(i)));
        };
        let Op::Macro(m) = d.op else {
            state.forget(v);
            let constant = !self.constants[v].is_empty() && self.constants[v].iter().all(Option::is_some);
            return if constant { Ok(()) } else { Err(format!("{b}: `{}` is missing", self.text(i))) };
        };
        let width = self.before.values[v].width;
        let mut gains: Vec<(Place, Fact)> = Vec::new();
        let mut everywhere: Vec<Fact> = Vec::new();
        if m == Macro::Undef {
            everywhere.extend((0..width).flat_map(|lane| undefined(v, lane)));
        }
        if !d.is_unguarded() {
            // The move itself must be there; the checker does not follow guarded moves.
            return Err(format!("{b}: `{}` is guarded", self.text(i)));
        }
        let mut lane = 0;
        for src in &d.operands[1..] {
            match src {
                Operand::Reg(r) if *r == RegOp::plain(r.reg) => match r.reg {
                    Name::Val(s) => {
                        if self.is_pred(s) != self.is_pred(v) {
                            self.changes_form(state, (s, 0), v, &mut gains, &mut everywhere);
                            lane += 1;
                            continue;
                        }
                        for k in 0..self.before.values[s].width {
                            self.holders(state, s, k, Fact::Is(v, lane), &mut gains, &mut everywhere);
                            lane += 1;
                        }
                    }
                    Name::Part(s, k) => {
                        if self.is_pred(v) {
                            self.changes_form(state, (s, k), v, &mut gains, &mut everywhere);
                        } else {
                            self.holders(state, s, k, Fact::Is(v, lane), &mut gains, &mut everywhere);
                        }
                        lane += 1;
                    }
                    Name::Phys(r) => {
                        let place = Place::Reg(r);
                        if state.at.get(&place).is_none_or(|f| f.contains(&Fact::Fixed(r))) {
                            gains.push((place, Fact::Is(v, lane)));
                        }
                        lane += 1;
                    }
                },
                _ => lane += 1,
            }
        }
        state.forget(v);
        for (place, fact) in gains {
            state.at.entry(place).or_default().insert(fact);
        }
        state.anywhere.extend(everywhere);
        Ok(())
    }

    /// What a copy from `s` to `v` means for places that hold the content in another form, if one is a
    /// predicate and the other is not.
    fn changes_form(
        &self,
        state: &State,
        (s, lane): (Value, u8),
        v: Value,
        gains: &mut Vec<(Place, Fact)>,
        everywhere: &mut Vec<Fact>,
    ) {
        let mut follow = |from: Fact, to: Fact| {
            if state.anywhere.contains(&from) {
                everywhere.extend(undefined(v, 0));
            }
            let at = state.at.iter().filter(|(_, f)| f.contains(&from));
            gains.extend(at.map(|(p, _)| (*p, to.clone())));
        };
        match (self.is_pred(s), self.is_pred(v)) {
            (true, false) => {
                follow(Fact::Bool(s), Fact::Is(v, 0));
                follow(Fact::Is(s, 0), Fact::Test(v, 0));
            }
            (false, true) => {
                for from in self.witnesses(s, lane).into_iter().flatten() {
                    follow(from, Fact::NonZero(v));
                }
            }
            _ => {}
        }
    }

    /// Where register `lane` of `v` is, as `fact` about each place.
    fn holders(
        &self,
        state: &State,
        v: Value,
        lane: u8,
        fact: Fact,
        gains: &mut Vec<(Place, Fact)>,
        everywhere: &mut Vec<Fact>,
    ) {
        let is = self.witnesses(v, lane);
        let holds = |s: &BTreeSet<Fact>| is.iter().flatten().any(|f| s.contains(f));
        gains.extend(state.at.iter().filter(|(_, s)| holds(s)).map(|(p, _)| (*p, fact.clone())));
        if let Fact::Is(to, to_lane) = fact {
            for (from, to) in [
                (Fact::Bool(v), Fact::Bool(to)),
                (Fact::NonZero(v), Fact::NonZero(to)),
                (Fact::Test(v, lane), Fact::Test(to, to_lane)),
            ] {
                let at = state.at.iter().filter(|(_, s)| s.contains(&from));
                gains.extend(at.map(|(p, _)| (*p, to.clone())));
            }
        }
        if holds(&state.anywhere) {
            everywhere.extend(match fact {
                Fact::Is(v, lane) => undefined(v, lane).to_vec(),
                other => vec![other],
            });
        }
    }

    fn fixed_fact(&self, r: Reg) -> Option<Fact> {
        match (r.file, r.is_zero()) {
            (RegFile::R | RegFile::UR, true) => Some(Fact::Constant(Constant::Imm(0))),
            (RegFile::P | RegFile::UP, true) => Some(Fact::Constant(Constant::True)),
            _ => Some(Fact::Fixed(r)),
        }
    }

    fn is_pred(&self, v: Value) -> bool {
        matches!(self.before.values[v].file, RegFile::P | RegFile::UP)
    }

    fn constant(&self, v: Value, lane: u8) -> Option<Constant> {
        self.constants[v].get(usize::from(lane)).copied().flatten()
    }

    /// The facts of which any shows that a place holds register `lane` of `v`.
    fn witnesses(&self, v: Value, lane: u8) -> [Option<Fact>; 3] {
        let bool_of = self.bool_of[v].map(Fact::Bool);
        [Some(Fact::Is(v, lane)), self.constant(v, lane).map(Fact::Constant), bool_of]
    }

    /// Whether register `lane` of `v` can be read at `p`.
    fn holds(&self, state: &State, p: Place, v: Value, lane: u8) -> bool {
        let known = |f: &Fact| state.anywhere.contains(f) || state.at.get(&p).is_some_and(|s| s.contains(f));
        self.witnesses(v, lane).iter().flatten().any(known)
            || self.constant(v, lane).is_some_and(|c| self.place_is(state, p, c))
    }

    fn place_is(&self, state: &State, p: Place, c: Constant) -> bool {
        let zero = matches!(p, Place::Reg(r) if r.is_zero());
        let fixed = match p {
            Place::Reg(r) if zero => self.fixed_fact(r),
            _ => None,
        };
        fixed == Some(Fact::Constant(c)) || state.at.get(&p).is_some_and(|s| s.contains(&Fact::Constant(c)))
    }

    /// Checks a read of `want` (in SSA) from `got` (allocated).
    fn reads(&self, state: &State, want: Name, got: Name, width: u8) -> Result<(), String> {
        let Name::Phys(got) = got else { return Err(format!("{got} is not allocated")) };
        let step = |k: u8| if got.is_zero() { got } else { Reg { index: got.index + k, ..got } };
        match want {
            Name::Phys(r) if r == got => {
                if r.is_zero() || r == Reg::SP {
                    return Ok(());
                }
                for k in 0..width {
                    let clobbered = state.at.get(&Place::Reg(step(k)));
                    if clobbered.is_some_and(|s| !s.contains(&Fact::Fixed(step(k)))) {
                        return Err(format!("{} was overwritten", step(k)));
                    }
                }
                Ok(())
            }
            Name::Phys(r) => Err(format!("{r} became {got}")),
            Name::Part(v, i) => self.reads_lane(state, v, i, got),
            Name::Val(v) => {
                let w = self.before.values[v].width;
                if !got.is_zero() && !got.index.is_multiple_of(w.next_power_of_two()) {
                    return Err(format!("{v} of {w} registers is at {got}"));
                }
                (0..w).try_for_each(|k| self.reads_lane(state, v, k, step(k)))
            }
        }
    }

    fn reads_lane(&self, state: &State, v: Value, lane: u8, got: Reg) -> Result<(), String> {
        if got.file != self.before.values[v].file {
            return Err(format!("{v} is in {got}"));
        }
        if self.holds(state, Place::Reg(got), v, lane) {
            Ok(())
        } else {
            Err(format!("{got} may not hold {v}.{lane}"))
        }
    }

    /// An instruction that both programs have.
    fn kept(&self, i: Inst, state: &mut State) -> Result<(), String> {
        let (old, new) = (&self.before.insts[i], &self.after.insts[i]);
        let fail = |e: String| format!("`{}` as `{}`: {e}", self.text(i), inst_text(self.after, new));
        if old.op != new.op || old.mods != new.mods || old.operands.len() != new.operands.len() {
            return Err(fail("changed".into()));
        }
        self.reads(state, old.guard.pred, new.guard.pred, 1).map_err(fail)?;
        let mut writes: Vec<(Name, Reg, u8)> = Vec::new();
        for (k, (o, n)) in old.operands.iter().zip(&new.operands).enumerate() {
            let slot = old.slot(k, &self.before.values);
            if slot.role != Role::Def {
                self.operand(state, o, n, slot.width).map_err(fail)?;
            }
            if slot.role != Role::Use
                && let (Operand::Reg(o), Operand::Reg(n)) = (o, n)
            {
                let Name::Phys(to) = n.reg else { return Err(fail("not allocated".into())) };
                if let Some(kept) = old.kept.get(writes.len())
                    && let Name::Val(_) = o.reg
                {
                    self.reads(state, *kept, Name::Phys(to), slot.width).map_err(fail)?;
                }
                writes.push((o.reg, to, slot.width));
            }
        }
        let mut seen: BTreeSet<Place> = BTreeSet::new();
        for (name, to, width) in &writes {
            if let Name::Val(v) = name {
                state.forget(*v);
                let aligned = to.is_zero() || to.index.is_multiple_of(width.next_power_of_two());
                if !aligned || to.file != self.before.values[*v].file {
                    return Err(fail(format!("{v} is written to {to}")));
                }
            }
            for k in 0..if to.is_zero() { 0 } else { *width } {
                let r = Reg { index: to.index + k, ..*to };
                if r == Reg::SP || r.index >= self.limits.count(r.file) {
                    return Err(fail(format!("{r} is reserved")));
                }
                if !seen.insert(Place::Reg(r)) {
                    return Err(fail(format!("{r} is written twice")));
                }
                let fact = match name {
                    Name::Val(v) => Fact::Is(*v, k),
                    _ => Fact::Fixed(r),
                };
                state.write(Place::Reg(r), BTreeSet::from([fact]));
            }
        }
        Ok(())
    }

    fn operand(&self, state: &State, o: &Operand, n: &Operand, width: u8) -> Result<(), String> {
        let both = |o: &Option<Name>, n: &Option<Name>, w: u8| match (o, n) {
            (Some(o), Some(n)) => self.reads(state, *o, *n, w),
            (None, None) => Ok(()),
            _ => Err("address changed".to_string()),
        };
        match (o, n) {
            (Operand::Reg(o), Operand::Reg(n)) => {
                if (o.neg, o.abs, o.not) != (n.neg, n.abs, n.not) {
                    return Err("source modifier changed".into());
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
                    (a, b) if a == b => {}
                    _ => return Err("constant bank changed".into()),
                }
                both(i0, i1, 1)
            }
            (a, b) if a == b => Ok(()),
            _ => Err("operand changed".into()),
        }
    }

    /// An instruction that the allocator added (the first of `rest`). Returns how many more it took.
    fn inserted(&self, rest: &[Inst], state: &mut State) -> Result<usize, String> {
        let d = &self.after.insts[rest[0]];
        let fail = || format!("unknown inserted instruction `{}`", inst_text(self.after, d));
        let Op::Sass(op) = d.op else { return Err(fail()) };
        if !d.is_unguarded() {
            return Err(fail());
        }
        if let Some((a, b)) = self.exchange(rest) {
            let (x, y) = (state.facts(Place::Reg(a)), state.facts(Place::Reg(b)));
            state.write(Place::Reg(a), y);
            state.write(Place::Reg(b), x);
            return Ok(2);
        }
        let register = |o: &Operand| match o {
            Operand::Reg(RegOp { reg: Name::Phys(r), neg: false, abs: false, .. }) => Some(*r),
            _ => None,
        };
        let width = |k: usize| op.width(k, &d.mods);
        let at = |r: Reg, k: u8| Place::Reg(if r.is_zero() { r } else { Reg { index: r.index + k, ..r } });
        let read = |state: &State, r: Reg, k: u8| {
            let mut facts = state.facts(at(r, k));
            if r.is_zero() {
                facts.extend(self.fixed_fact(r));
            }
            facts
        };
        let slot = |o: &Operand| match o {
            Operand::Addr { desc: None, base: Some(Name::Phys(Reg::SP)), uniform: None, offset, .. } => {
                Some(*offset)
            }
            _ => None,
        };
        match op {
            Opcode::STL => {
                let (to, from) = slot(&d.operands[0]).zip(register(&d.operands[1])).ok_or_else(fail)?;
                for k in 0..width(1) {
                    let facts = read(state, from, k);
                    state.write(Place::Slot(to + 4 * i32::from(k)), facts);
                }
            }
            Opcode::LDL => {
                let (from, to) = slot(&d.operands[1]).zip(register(&d.operands[0])).ok_or_else(fail)?;
                for k in 0..width(0) {
                    let facts = state.facts(Place::Slot(from + 4 * i32::from(k)));
                    self.put(state, at(to, k), facts)?;
                }
            }
            Opcode::MOV | Opcode::UMOV | Opcode::R2UR | Opcode::LDC | Opcode::LDCU | Opcode::ULDC => {
                let to = register(&d.operands[0]).ok_or_else(fail)?;
                for k in 0..width(0) {
                    let facts = match (&d.operands[1], register(&d.operands[1])) {
                        (_, Some(from)) => read(state, from, k),
                        (o, None) => {
                            BTreeSet::from([Fact::Constant(constant_source(o, k).ok_or_else(fail)?)])
                        }
                    };
                    self.put(state, at(to, k), facts)?;
                }
            }
            Opcode::SEL => {
                // SEL r, RZ, 1, !p
                let to = register(&d.operands[0]).ok_or_else(fail)?;
                let shape = register(&d.operands[1]) == Some(Reg::RZ) && d.operands[2] == Operand::Imm(1);
                let Operand::Reg(p) = &d.operands[3] else { return Err(fail()) };
                let (Name::Phys(from), true, true) = (p.reg, p.not, shape) else { return Err(fail()) };
                let bools = state.facts(Place::Reg(from)).into_iter().filter_map(|f| match f {
                    Fact::Is(v, 0) => Some(Fact::Bool(v)),
                    Fact::Test(v, lane) => Some(Fact::Is(v, lane)),
                    Fact::Constant(Constant::True) => Some(Fact::Constant(Constant::Imm(1))),
                    Fact::Constant(Constant::Imm(0)) => Some(Fact::Constant(Constant::Imm(0))),
                    _ => None,
                });
                let facts = bools.collect();
                self.put(state, at(to, 0), facts)?;
            }
            Opcode::ISETP => {
                // ISETP.NE.AND p, PT, r, RZ, PT, PT
                let (to, from) = register(&d.operands[0]).zip(register(&d.operands[2])).ok_or_else(fail)?;
                let shape = d.mods.iter().eq([Mod::NE, Mod::AND])
                    && register(&d.operands[1]) == Some(Reg::PT)
                    && register(&d.operands[3]) == Some(Reg::RZ)
                    && register(&d.operands[4]) == Some(Reg::PT);
                if !shape {
                    return Err(fail());
                }
                let values = state.facts(Place::Reg(from)).into_iter().filter_map(|f| match f {
                    Fact::Bool(v) | Fact::NonZero(v) => Some(Fact::Is(v, 0)),
                    Fact::Constant(Constant::Imm(0)) => Some(Fact::Constant(Constant::Imm(0))),
                    Fact::Constant(Constant::Imm(_)) => Some(Fact::Constant(Constant::True)),
                    _ => None,
                });
                let facts = values.collect();
                self.put(state, at(to, 0), facts)?;
            }
            Opcode::PLOP3 | Opcode::UPLOP3 => {
                let (to, from) = register(&d.operands[0]).zip(register(&d.operands[2])).ok_or_else(fail)?;
                let not = matches!(&d.operands[2], Operand::Reg(r) if r.not);
                if d.operands[5] != Operand::Imm(0xf0) {
                    return Err(fail());
                }
                let facts = match (not, from.is_zero()) {
                    (true, true) => BTreeSet::from([Fact::Constant(Constant::Imm(0))]),
                    (true, false) => return Err(fail()),
                    (false, _) => read(state, from, 0),
                };
                self.put(state, at(to, 0), facts)?;
            }
            _ => return Err(fail()),
        }
        Ok(0)
    }

    fn put(&self, state: &mut State, p: Place, facts: BTreeSet<Fact>) -> Result<(), String> {
        match p {
            Place::Reg(r) if r == Reg::SP || r.is_zero() || r.index >= self.limits.count(r.file) => {
                Err(format!("a move writes {r}"))
            }
            _ => {
                state.write(p, facts);
                Ok(())
            }
        }
    }

    /// Three exclusive ors of the same two registers.
    fn exchange(&self, rest: &[Inst]) -> Option<(Reg, Reg)> {
        let xor = |i: &Inst| -> Option<(Reg, Reg, Reg)> {
            let d = &self.after.insts[*i];
            let regs = |k: usize| match &d.operands[k] {
                Operand::Reg(RegOp { reg: Name::Phys(r), not: false, .. }) => Some(*r),
                _ => None,
            };
            let lut = d.operands.get(5).is_some_and(|o| *o == Operand::Imm(0x3c));
            match d.op {
                Op::Sass(Opcode::LOP3 | Opcode::ULOP3) if lut => Some((regs(1)?, regs(2)?, regs(3)?)),
                Op::Sass(Opcode::PLOP3 | Opcode::UPLOP3) if lut => Some((regs(0)?, regs(2)?, regs(3)?)),
                _ => None,
            }
        };
        let [i, j, k, ..] = rest else { return None };
        let (x, y, z) = (xor(i)?, xor(j)?, xor(k)?);
        let (a, b) = (x.1, x.2);
        (a != b && x == z && x.0 == a && y == (b, a, b)).then_some((a, b))
    }
}

/// An undefined value's register is anything, in every form.
fn undefined(v: Value, lane: u8) -> [Fact; 4] {
    [Fact::Is(v, lane), Fact::Bool(v), Fact::NonZero(v), Fact::Test(v, lane)]
}

/// What an operand's register `k` is, if it is a constant.
fn constant_source(o: &Operand, k: u8) -> Option<Constant> {
    match o {
        Operand::Imm(n) => Some(Constant::Imm(if k == 0 { *n } else { 0 })),
        Operand::Const {
            bank: ConstBank::Index(b),
            index: None,
            offset,
            neg: false,
            abs: false,
            not: false,
        } => Some(Constant::Bank(*b, offset + 4 * i32::from(k))),
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

/// The constants that an instruction writes, one per register.
fn constant_result(
    d: &InstData,
    width: u8,
    values: &PrimaryMap<Value, ValueData>,
    known: &SecondaryMap<Value, Vec<Option<Constant>>>,
) -> Option<Vec<Option<Constant>>> {
    let lanes = |o: &Operand, n: u8| -> Vec<Option<Constant>> {
        let of = |v: Value, k: u8| known[v].get(usize::from(k)).copied().flatten();
        match o {
            Operand::Reg(r) if *r == RegOp::plain(r.reg) && r.reg.value().is_some() => match r.reg {
                Name::Val(v) => (0..values[v].width).map(|k| of(v, k)).collect(),
                Name::Part(v, k) => vec![of(v, k)],
                Name::Phys(_) => vec![None],
            },
            _ => (0..n).map(|k| constant_source(o, k)).collect(),
        }
    };
    match d.op {
        Op::Macro(Macro::Copy) => Some(lanes(&d.operands[1], width)),
        Op::Macro(Macro::Collect) => Some(d.operands[1..].iter().flat_map(|o| lanes(o, 1)).collect()),
        Op::Sass(Opcode::MOV | Opcode::UMOV | Opcode::LDC | Opcode::LDCU | Opcode::ULDC) => {
            Some((0..width).map(|k| constant_source(&d.operands[1], k)).collect())
        }
        _ => None,
    }
}
