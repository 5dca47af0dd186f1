//! The data flow: what is under way at each point, over all paths.

use super::access::{self, Cell, Place, Use};
use super::flow::{self, INST_BYTES};
use super::{Code, pipes};
use sass::{Guard, Inst, Opcode, Operand, Reg, RegFile};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Cycles are counted up to here: more than any fixed latency.
const OLD: u8 = 120;
/// Sources of instructions of fixed latency are forgotten after as many cycles: they have been read long before.
const READ: u8 = 16;
/// What a stall count of 0 amounts to: the pipeline is drained.
const DRAIN: u8 = 15;
/// Cycles between setting a scoreboard and the first wait that sees it.
const SET_TO_WAIT: u8 = 2;

/// A pair of dependent instructions.
#[derive(Clone, Copy, Debug)]
pub struct Distance<'a> {
    /// Who wrote the register; who read it, if the next use overwrites what was read.
    pub writer: &'a Inst,
    /// The operand of `writer`.
    pub from: Place,
    /// Who reads or writes it next.
    pub user: &'a Inst,
    /// The operand of `user`.
    pub to: Place,
    /// File of the register.
    pub file: RegFile,
    /// How it is used.
    pub kind: Kind,
    /// Cycles between the two.
    pub cycles: u8,
    /// Byte addresses of the two.
    pub at: (i64, i64),
}

/// How a register is used that was written before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Read.
    Read(Use),
    /// Written again.
    Write,
    /// Written after an instruction of fixed latency has read it.
    Overwrite(Use),
}

/// A dependence that is not covered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Byte address of the instruction that comes too early.
    pub at: i64,
    /// Byte address of the instruction that it depends on.
    pub on: i64,
    /// The register; none for scoreboards.
    pub register: Option<Reg>,
    /// What is missing.
    pub why: Why,
}

/// What a [`Violation`] lacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// A result that arrives after an unknown time is read before it is waited for.
    Unwaited,
    /// A result that arrives after an unknown time may overwrite a later one.
    OverwrittenLate,
    /// A source is overwritten that may not have been read yet.
    Overwrites,
    /// The stall counts give fewer cycles than needed.
    TooEarly {
        /// Cycles given.
        has: u8,
        /// Cycles needed.
        needs: u8,
    },
    /// The wait comes so soon after the scoreboard was set that it doesn't see it.
    SetTooLate(u8),
    /// A wait for a scoreboard that nothing sets.
    NeverSet(u8),
    /// The operand cache keeps a register that changes before its next use.
    StaleReuse,
    /// A register is touched that belongs to a product of the warp group which is not waited for.
    UnderWay,
    /// A product of the warp group uses a register that code touched since the last arrival.
    NotArrived,
    /// The end of a group of copies does not count on scoreboard 0.
    GroupNotCounted,
    /// Something else counts on the scoreboard of groups of copies.
    GroupsDisturbed,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#06x}: ", self.at)?;
        if let (Some(r), Why::UnderWay | Why::NotArrived) = (self.register, self.why) {
            write!(f, "{r}: ")?;
        } else if let Some(r) = self.register {
            write!(f, "{r} of {:#06x}: ", self.on)?;
        }
        match self.why {
            Why::Unwaited => write!(f, "the result is not waited for"),
            Why::OverwrittenLate => write!(f, "the result may come after this one"),
            Why::Overwrites => write!(f, "the source is overwritten before it has been read"),
            Why::TooEarly { has, needs } => write!(f, "{has} cycles, {needs} needed"),
            Why::SetTooLate(s) => {
                write!(f, "waits for scoreboard {s} right after {:#06x} sets it", self.on)
            }
            Why::NeverSet(s) => write!(f, "waits for scoreboard {s}, which nothing sets"),
            Why::StaleReuse => write!(f, "the operand cache keeps an old value"),
            Why::UnderWay => write!(f, "a product of the warp group that is not waited for has it"),
            Why::NotArrived => write!(f, "a product of the warp group takes it without an arrival"),
            Why::GroupNotCounted => write!(f, "the end of a group of copies is not on scoreboard 0"),
            Why::GroupsDisturbed => write!(f, "scoreboard 0 is for groups of copies"),
        }
    }
}

/// What was looked at.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Instructions that some path comes to.
    pub instructions: usize,
    /// Those whose word the table doesn't know: of them only scoreboards and stalls are seen.
    pub unknown: usize,
}

/// What an instruction has under way in a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Under {
    /// A write of fixed latency.
    Fixed,
    /// A write that takes an unknown time.
    Variable,
    /// A read that takes an unknown time.
    Read,
    /// A read at a fixed time.
    Source(Use),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event {
    cell: Cell,
    under: Under,
    /// Index of the instruction.
    by: u32,
    /// Its operand.
    place: Place,
    /// Least cycles since.
    age: u8,
    /// Scoreboards each of which says that it is done.
    cover: u8,
    /// How often its own scoreboard was incremented since, at least.
    younger: u8,
    /// Guard of the instruction, as long as its predicate keeps its value.
    guard: Option<Guard>,
}

impl Event {
    /// Whether no scoreboard stands for it.
    fn fixed(&self) -> bool {
        matches!(self.under, Under::Fixed | Under::Source(_))
    }

    fn key(&self) -> (Cell, Under, u32) {
        (self.cell, self.under, self.by)
    }
}

/// What is under way at a point.
#[derive(Clone, Default, PartialEq)]
pub(super) struct State {
    /// Sorted by key.
    events: Vec<Event>,
    /// Least cycles since each scoreboard was set, and by whom.
    set: [Option<(u8, u32)>; 6],
    /// Scoreboards that may have been set.
    ever_set: u8,
}

impl State {
    fn of(&self, cell: Cell) -> &[Event] {
        let from = self.events.partition_point(|e| e.cell < cell);
        let to = from + self.events[from..].partition_point(|e| e.cell == cell);
        &self.events[from..to]
    }

    fn add(&mut self, event: Event) {
        match self.events.binary_search_by_key(&event.key(), Event::key) {
            Ok(i) => self.events[i] = event,
            Err(i) => self.events.insert(i, event),
        }
    }

    /// Adds another path's state; whether anything was new.
    pub(super) fn merge(&mut self, other: &State) -> bool {
        let mut changed = other.ever_set & !self.ever_set != 0;
        self.ever_set |= other.ever_set;
        for (mine, theirs) in self.set.iter_mut().zip(&other.set) {
            if let Some((age, _)) = theirs
                && mine.is_none_or(|m| *age < m.0)
            {
                *mine = *theirs;
                changed = true;
            }
        }
        let mut all = Vec::with_capacity(self.events.len().max(other.events.len()));
        let (mut a, mut b) = (self.events.iter().peekable(), other.events.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(x), Some(y)) => x.key().cmp(&y.key()),
            };
            match order {
                std::cmp::Ordering::Less => all.extend(a.next()),
                std::cmp::Ordering::Greater => {
                    changed = true;
                    all.extend(b.next());
                }
                std::cmp::Ordering::Equal => {
                    if let (Some(x), Some(y)) = (a.next(), b.next()) {
                        let both = Event {
                            age: x.age.min(y.age),
                            cover: x.cover & y.cover,
                            younger: x.younger.min(y.younger),
                            guard: if x.guard == y.guard { x.guard } else { None },
                            ..*x
                        };
                        changed |= both != *x;
                        all.push(both);
                    }
                }
            }
        }
        self.events = all;
        changed
    }
}

/// What was found: byte addresses of both instructions, the register, what is missing.
pub(super) type Found = BTreeMap<(i64, i64, Option<Cell>), Why>;

/// The transfer function.
pub(super) struct Engine<'a, 'b> {
    pub(super) code: &'a Code,
    pub(super) least: &'b mut dyn FnMut(&Distance<'_>) -> u8,
    pub(super) found: Found,
    /// Whether the fixpoint is reached, so that findings count.
    pub(super) report: bool,
}

/// Looks at every path. `least` gives the least distance of a dependence of fixed latency.
pub(super) fn run(
    code: &Code,
    least: &mut dyn FnMut(&Distance<'_>) -> u8,
    violations: &mut Vec<Violation>,
) -> Stats {
    let count = code.insts.len();
    let mut entry: Vec<Option<Box<State>>> = vec![None; count];
    let mut queued = vec![false; count];
    let mut work = std::collections::BTreeSet::new();
    // Unoptimized code waits for the same scoreboards everywhere.
    let serial = code.words.iter().all(|w| matches!(sass::Control::from_bits(*w).wait, 0 | 0b11));
    for &r in &code.graph.roots {
        // Who calls may have set any scoreboard.
        let ever_set = if r == 0 && !serial { 0 } else { 0x3f };
        entry[r] = Some(Box::new(State { ever_set, ..State::default() }));
        queued[r] = true;
        work.insert(r);
    }
    let mut engine = Engine { code, least, found: Found::new(), report: false };
    while let Some(start) = work.pop_first() {
        queued[start] = false;
        let Some(state) = entry[start].as_deref().cloned() else { continue };
        engine.block(start, state, &mut |to, state| {
            let changed = match &mut entry[to] {
                Some(e) => e.merge(state),
                none => {
                    *none = Some(Box::new(state.clone()));
                    true
                }
            };
            if changed && !queued[to] {
                queued[to] = true;
                work.insert(to);
            }
        });
    }
    engine.report = true;
    let mut stats = Stats::default();
    for (start, state) in entry.iter().enumerate() {
        if let Some(state) = state {
            let end = engine.block(start, State::clone(state), &mut |_, _| {});
            stats.instructions += end - start;
            stats.unknown += code.insts[start..end].iter().filter(|i| i.is_none()).count();
        }
    }
    violations.extend(engine.found.iter().map(violation));
    stats
}

/// A finding.
pub(super) fn violation((&(at, on, cell), &why): (&(i64, i64, Option<Cell>), &Why)) -> Violation {
    Violation { at, on, register: cell.map(access::register), why }
}

impl Engine<'_, '_> {
    /// Walks from a leader to the end of its block; gives the end.
    fn block(&mut self, start: usize, mut state: State, flow: &mut dyn FnMut(usize, &State)) -> usize {
        let count = self.code.insts.len();
        let mut k = start;
        loop {
            self.step(&mut state, k);
            let next = flow::next(self.code.insts[k].as_ref(), k, count);
            if let Some(t) = next.target {
                flow(t, &state);
            }
            k += 1;
            if !next.falls || k >= count {
                return k;
            }
            if !next.keeps {
                state.events.clear();
                state.set = [None; 6];
                state.ever_set = 0x3f;
            }
            if self.code.graph.leader[k] {
                flow(k, &state);
                return k;
            }
        }
    }

    fn found(&mut self, at: usize, on: u32, cell: Option<Cell>, why: Why) {
        if self.report {
            let key = (at as i64 * INST_BYTES, i64::from(on) * INST_BYTES, cell);
            self.found.entry(key).and_modify(|w| *w = (*w).min(why)).or_insert(why);
        }
    }

    /// Executes an instruction.
    pub(super) fn step(&mut self, state: &mut State, k: usize) {
        let code = self.code;
        let ctrl = sass::Control::from_bits(code.words[k]);
        let inst = code.insts[k].as_ref();
        self.set_to_wait(state, k, ctrl.wait);
        // Fences wait for everything.
        let all = ctrl.wait == 0x3f || inst.is_some_and(|i| matches!(i.op, Opcode::NOP | Opcode::MEMBAR));
        for s in (0..6).filter(|s| !all && (ctrl.wait & !state.ever_set) >> s & 1 != 0) {
            self.found(k, k as u32, None, Why::NeverSet(s));
        }
        Self::wait(state, ctrl.wait);
        if let Some(inst) = inst {
            Self::depbar(state, inst);
            self.uses(state, k, inst);
            self.reuse(k, inst);
        }
        let stall = if ctrl.stall == 0 { DRAIN } else { ctrl.stall };
        match inst {
            Some(inst) => self.issue(state, k, inst, &ctrl),
            None => Self::issue_unknown(state, &ctrl),
        }
        for s in [ctrl.write_sb, ctrl.read_sb].into_iter().flatten() {
            state.set[usize::from(s % 6)] = Some((0, k as u32));
            state.ever_set |= 1 << s;
        }
        for e in &mut state.events {
            e.age = (e.age + stall).min(OLD);
        }
        for (age, _) in state.set.iter_mut().flatten() {
            *age = (*age + stall).min(OLD);
        }
        state.events.retain(|e| match e.under {
            Under::Fixed => e.age < OLD,
            Under::Source(_) => e.age < READ,
            Under::Variable | Under::Read => true,
        });
    }

    /// Whether the wait mask comes too early to see its scoreboards.
    fn set_to_wait(&mut self, state: &State, k: usize, mask: u8) {
        for s in (0..6u8).filter(|s| mask >> s & 1 != 0) {
            match state.set[usize::from(s)] {
                Some((age, by)) if age < SET_TO_WAIT => self.found(k, by, None, Why::SetTooLate(s)),
                _ => {}
            }
        }
    }

    /// Waits until these scoreboards are zero.
    fn wait(state: &mut State, mask: u8) {
        if mask != 0 {
            state.events.retain(|e| e.fixed() || e.cover & mask == 0);
        }
    }

    /// `DEPBAR.LE SBn, count {set}`.
    fn depbar(state: &mut State, inst: &Inst) {
        if inst.op != Opcode::DEPBAR {
            return;
        }
        let mut board = None;
        let mut count = 0;
        for o in &inst.operands {
            match o {
                Operand::Scoreboard(s) => board = Some(*s),
                Operand::Imm(n) => count = (*n).min(255) as u8,
                Operand::ScoreboardSet(set) => Self::wait(state, *set),
                _ => {}
            }
        }
        if let Some(s) = board.filter(|s| *s < 6) {
            if count == 0 {
                Self::wait(state, 1 << s);
            } else {
                let bit = 1 << s;
                state.events.retain(|e| e.fixed() || e.cover & bit == 0 || e.younger < count);
            }
        }
    }

    /// What the instruction reads and writes, against what is under way.
    fn uses(&mut self, state: &mut State, k: usize, inst: &Inst) {
        let code = self.code;
        let mut hits: Vec<(Event, Kind, Place)> = vec![];
        let apart = |e: &Event| {
            e.guard.is_some_and(|g| g.pred == inst.guard.pred && g.not != inst.guard.not && !g.pred.is_zero())
        };
        access::reads_at(inst, |c, how, at| {
            let written = state.of(c).iter().filter(|e| !matches!(e.under, Under::Source(_)));
            hits.extend(written.filter(|e| !apart(e)).map(|e| (*e, Kind::Read(how), at)));
        });
        access::writes_at(inst, |c, at| {
            let kind = |e: &Event| match e.under {
                Under::Source(how) => Kind::Overwrite(how),
                _ => Kind::Write,
            };
            hits.extend(state.of(c).iter().filter(|e| !apart(e)).map(|e| (*e, kind(e), at)));
        });
        // A second write comes late enough where the instruction reads the first.
        let reads: SmallVec<[(Cell, u32); 8]> =
            hits.iter().filter(|h| matches!(h.1, Kind::Read(_))).map(|h| (h.0.cell, h.0.by)).collect();
        hits.retain(|(e, kind, _)| {
            *kind != Kind::Write || e.under != Under::Fixed || !reads.contains(&(e.cell, e.by))
        });
        for (e, kind, to) in hits {
            let Some(writer) = code.insts[e.by as usize].as_ref() else { continue };
            let why = match (e.under, kind) {
                (Under::Fixed | Under::Source(_), _) => {
                    let distance = Distance {
                        writer,
                        from: e.place,
                        user: inst,
                        to,
                        file: access::register(e.cell).file,
                        kind,
                        cycles: e.age,
                        at: (i64::from(e.by) * INST_BYTES, k as i64 * INST_BYTES),
                    };
                    if !self.report {
                        continue;
                    }
                    // A result of unknown duration comes later than one of fixed latency anyway.
                    if kind == Kind::Write && pipes::needs_scoreboard(inst.op, code.target) {
                        continue;
                    }
                    let needs = (self.least)(&distance).min(pipes::most_before(inst.op));
                    (e.age < needs).then_some(Why::TooEarly { has: e.age, needs })
                }
                (Under::Variable, Kind::Read(_)) => Some(Why::Unwaited),
                (Under::Variable, _) => {
                    (!pipes::same_order(writer.op, inst.op)).then_some(Why::OverwrittenLate)
                }
                (Under::Read, Kind::Read(_)) => None,
                (Under::Read, _) => {
                    (!pipes::reads_in_order(writer.op, inst.op, code.target)).then_some(Why::Overwrites)
                }
            };
            if let Some(why) = why {
                self.found(k, e.by, Some(e.cell), why);
            }
        }
    }

    /// A register that the operand cache keeps for the next instruction, although this one changes it.
    fn reuse(&mut self, k: usize, inst: &Inst) {
        let Some(Some(next)) = self.code.insts.get(k + 1) else { return };
        let kept = inst.operands.iter().filter_map(Operand::as_reg).filter(|r| r.reuse);
        for c in kept.filter_map(|r| access::cell(r.reg)) {
            let (mut changed, mut read) = (false, false);
            access::writes(inst, |w| changed |= w == c);
            access::reads(next, |r, _| read |= r == c);
            if changed && read {
                self.found(k + 1, k as u32, Some(c), Why::StaleReuse);
            }
        }
    }

    /// An instruction that the table doesn't know may stand for earlier ones of its pipe that set no scoreboard.
    fn issue_unknown(state: &mut State, ctrl: &sass::Control) {
        let bit = |s: Option<u8>| s.map_or(0, |s| 1u8 << s);
        for e in state.events.iter_mut().filter(|e| !e.fixed() && e.cover == 0) {
            e.cover |= bit(ctrl.write_sb);
            if e.under == Under::Read {
                e.cover |= bit(ctrl.read_sb);
            }
        }
    }

    /// What the instruction has under way from now on.
    fn issue(&mut self, state: &mut State, k: usize, inst: &Inst, ctrl: &sass::Control) {
        if inst.op == Opcode::BAR {
            // It comes out of the queue last and holds the warp until then.
            state.events.retain(|e| e.under != Under::Read);
        }
        let target = self.code.target;
        let bit = |s: Option<u8>| s.map_or(0, |s| 1u8 << s);
        let (write, read) = (bit(ctrl.write_sb), bit(ctrl.read_sb));
        // What was issued before to a pipe that keeps order is done when this one is.
        for e in &mut state.events {
            if e.fixed() {
                continue;
            }
            if e.cover & (write | read) != 0 {
                e.younger = e.younger.saturating_add(1);
            }
            if let Some(older) = self.code.insts[e.by as usize].as_ref() {
                if pipes::same_order(older.op, inst.op) {
                    e.cover |= write;
                }
                if e.under == Under::Read && pipes::reads_in_order(older.op, inst.op, target) {
                    e.cover |= read | write;
                }
            }
        }
        let guard = (inst.guard != Guard::TRUE).then_some(inst.guard);
        let event = |cell, under, cover, place| Event {
            cell,
            under,
            by: k as u32,
            place,
            age: 0,
            cover,
            younger: 0,
            guard,
        };
        let variable = ctrl.write_sb.is_some() || pipes::needs_scoreboard(inst.op, target);
        let mut written: SmallVec<[Cell; 8]> = SmallVec::new();
        access::writes_at(inst, |c, at| {
            if guard.is_none() {
                state.events.retain(|e| e.cell != c || e.under == Under::Read);
            }
            written.push(c);
            let reg = access::register(c);
            for e in &mut state.events {
                if e.guard.is_some_and(|g| g.pred == reg) {
                    e.guard = None;
                }
            }
            // The predicate says what kind of memory it was: known when the address has been read.
            let early = reg.file == RegFile::P && matches!(inst.op.unit(), sass::Unit::Load);
            state.add(match variable {
                true => event(c, Under::Variable, if early { write | read } else { write }, at),
                false => event(c, Under::Fixed, 0, at),
            });
        });
        let late = ctrl.read_sb.is_some() || pipes::reads_late(inst.op, target);
        access::reads_at(inst, |c, how, at| {
            // Predicates and uniform registers are read at issue.
            if late && access::register(c).file == RegFile::R {
                state.add(event(c, Under::Read, read | write, at));
            } else if !written.contains(&c) {
                state.add(event(c, Under::Source(how), 0, at));
            }
        });
    }
}
