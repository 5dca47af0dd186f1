//! What has to stand between accesses: the instructions that a fence, an acquisition or a release of PTX is made of, as strong
//! as the PTX asks for and on every way from what is before it to what is behind it; the strength of accesses; and which
//! barrier waits for how many threads.
//!
//! Where an access stands before a fence on every way to it, and another behind it on every way from the start, each way
//! from the first to the second leads over the fence. So it must in the code, whatever has been unrolled or copied.

use super::families::Family;
use super::ptx::{Access, Place, Program};
use super::{Code, Done, flow};
use ::ptx::ast::{Inst as Statement, Operand as Source};
use ::ptx::{Mod as Word, Op};
use sass::memory::{MemoryEffect, MemoryEffects, MemorySpace};
use sass::{Inst, Mod, Opcode, Operand};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Who sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// The block.
    Cta,
    /// The device; a cluster has no level of its own.
    Gpu,
    /// The system.
    Sys,
}

impl Scope {
    /// What a statement names; without a name it is the device.
    pub(super) fn of(inst: &Statement) -> Scope {
        match inst.one_of(&[Word::cta, Word::sys]) {
            Some(Word::cta) => Scope::Cta,
            Some(_) => Scope::Sys,
            None => Scope::Gpu,
        }
    }

    /// Who sees an access: those that order it, and those whose cache operator names a level (as ptxas has them).
    pub(super) fn of_access(inst: &Statement) -> Option<Scope> {
        let cached = matches!(inst.op, Op::ld | Op::st);
        match () {
            () if inst.has(Word::volatile) || inst.has(Word::mmio) => Some(Scope::Sys),
            // Barriers in shared memory order by themselves within their block.
            () if inst.op == Op::mbarrier => inst.has(Word::cluster).then_some(Scope::Gpu),
            () if inst.op == Op::cp => None,
            // ptxas loads for the system, whatever is asked for.
            () if inst.op == Op::multimem && inst.has(Word::ld_reduce) => Some(Scope::Sys),
            () if inst.op == Op::multimem && inst.has(Word::weak) => None,
            () if inst.op == Op::multimem => {
                let named = inst.one_of(&[Word::cta, Word::cluster, Word::gpu]).is_some();
                Some(if named { Scope::of(inst) } else { Scope::Sys })
            }
            () if inst.one_of(&[Word::relaxed, Word::acquire, Word::release]).is_some() => {
                Some(Scope::of(inst))
            }
            () if matches!(inst.op, Op::atom | Op::red) => Some(Scope::of(inst)),
            () if cached && inst.one_of(&[Word::cv, Word::wt]).is_some() => Some(Scope::Sys),
            () if cached && inst.has(Word::cg) => Some(Scope::Gpu),
            () if cached && inst.one_of(&[Word::ca, Word::wb]).is_some() => Some(Scope::Cta),
            () => None,
        }
    }

    fn of_code(inst: &Inst) -> Option<Scope> {
        match () {
            () if inst.mods.has(Mod::SYS) => Some(Scope::Sys),
            () if inst.mods.has(Mod::GPU) => Some(Scope::Gpu),
            () if inst.mods.has(Mod::CTA) || inst.mods.has(Mod::SM) => Some(Scope::Cta),
            () => None,
        }
    }
}

/// An instruction that has to be there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// MEMBAR: whether of one order for all, and for whom.
    Fence {
        /// `.SC`
        sc: bool,
        /// The least.
        scope: Scope,
    },
    /// CCTL.IVALL: what the L1 cache holds is forgotten.
    Invalidation,
    /// FENCE.VIEW.ASYNC: what went by the generic way is seen on the asynchronous one.
    View,
    /// BAR that waits.
    Barrier,
    /// DEPBAR: no more groups of copies than this are under way.
    Groups(u64),
    /// WARPGROUP.DEPBAR: no more groups of products than this are under way.
    Products(u64),
    /// A product that ends a group: `gsb0`.
    GroupEnd,
    /// A wait for the scoreboard of a load from tensor memory.
    Loaded,
    /// FENCE.VIEW.ASYNC.T: what was stored to tensor memory is there.
    Stored,
}

impl Need {
    /// Whether each instruction that is the other is this one, too.
    fn includes(self, other: Need) -> bool {
        match (self, other) {
            (Need::Fence { sc: a, scope: m }, Need::Fence { sc: b, scope: n }) => b >= a && n >= m,
            (Need::Groups(a), Need::Groups(b)) | (Need::Products(a), Need::Products(b)) => b <= a,
            (a, b) => a == b,
        }
    }

    /// Whether the instruction is one.
    fn met(self, inst: &Inst) -> bool {
        match self {
            Need::Fence { sc, scope } => {
                inst.op == Opcode::MEMBAR
                    && !inst.mods.has(Mod::ASYNC)
                    && (inst.mods.has(Mod::SC) || !sc)
                    && Scope::of_code(inst).is_some_and(|s| s >= scope)
            }
            Need::Invalidation => inst.op == Opcode::CCTL && inst.mods.has(Mod::IVALL),
            Need::View => inst.op == Opcode::FENCE && inst.mods.has(Mod::VIEW) && !inst.mods.has(Mod::T),
            Need::Stored => inst.op == Opcode::FENCE && inst.mods.has(Mod::VIEW) && inst.mods.has(Mod::T),
            Need::Products(most) => {
                let few = |o: &Operand| matches!(o, Operand::Imm(n) if u64::from(*n) <= most);
                inst.op == Opcode::WARPGROUP_DEPBAR && inst.operands.last().is_some_and(few)
            }
            Need::GroupEnd => inst.op.is_group_product() && inst.operands.last() == Some(&Operand::Imm(0)),
            // Which one, the load says.
            Need::Loaded => false,
            Need::Barrier => inst.op == Opcode::BAR && !inst.mods.has(Mod::ARV),
            Need::Groups(most) => {
                let few = |o: &Operand| matches!(o, Operand::Imm(n) if u64::from(*n) <= most);
                inst.op == Opcode::DEPBAR && inst.operands.iter().any(few)
            }
        }
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Need::Fence { sc, scope } => {
                let order = if *sc { "SC" } else { "ALL" };
                write!(f, "MEMBAR.{order}.{}", format!("{scope:?}").to_uppercase())
            }
            Need::Invalidation => f.write_str("CCTL.IVALL"),
            Need::View => f.write_str("FENCE.VIEW.ASYNC"),
            Need::Barrier => f.write_str("BAR"),
            Need::Groups(most) => write!(f, "DEPBAR of {most}"),
            Need::Products(most) => write!(f, "WARPGROUP.DEPBAR of {most}"),
            Need::GroupEnd => f.write_str("product with gsb0"),
            Need::Loaded => f.write_str("wait for its scoreboard"),
            Need::Stored => f.write_str("FENCE.VIEW.ASYNC.T"),
        }
    }
}

/// How many threads a barrier names, or which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// It doesn't say.
    None,
    /// This many.
    Number(u64),
    /// What a register holds.
    Register,
}

/// What a statement keeps apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Accesses from accesses.
    Accesses,
    /// Copies from shared memory.
    Copies,
    /// Asynchronous work of families from that of others.
    Work(&'static [Family], &'static [Family]),
    /// Work of families from all that is behind.
    FromAll(&'static [Family]),
}

/// What tells other threads that something is done.
const TELLS_THREADS: &[Family] =
    &[Family::Arrive, Family::Expect, Family::Block, Family::BlockArrive, Family::ClusterArrive];
/// The same, and what the tensor core does next with tensor memory.
const TELLS: &[Family] = &[
    Family::Arrive,
    Family::Expect,
    Family::Block,
    Family::BlockArrive,
    Family::ClusterArrive,
    Family::TensorProduct,
    Family::TensorCopy,
    Family::TensorShift,
    Family::TensorEnd,
    Family::TensorGive,
];

impl Keeps {
    fn before(self, a: &Access) -> bool {
        match self {
            // What nobody else sees is not kept in order, nor are copies that go on behind the thread's back.
            Keeps::Accesses => a.space != MemorySpace::Local && !a.bare && !a.copies && !a.commits,
            Keeps::Copies => a.copies,
            Keeps::Work(of, _) | Keeps::FromAll(of) => a.family.is_some_and(|f| of.contains(&f)),
        }
    }

    fn behind(self, a: &Access) -> bool {
        let seen = a.space != MemorySpace::Local;
        match self {
            Keeps::Accesses => seen && !a.bare && !a.commits,
            Keeps::Copies => a.space == MemorySpace::Shared && !a.copies,
            Keeps::Work(_, from) => a.family.is_some_and(|f| from.contains(&f)),
            Keeps::FromAll(_) => seen,
        }
    }
}

/// A statement that keeps what is before it from what is behind it.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Its line.
    pub line: u32,
    /// Its place.
    pub at: Place,
    /// What it is made of, in order.
    pub needs: SmallVec<[Need; 2]>,
    /// Whether every access before it is kept from every access behind it.
    pub splits: bool,
    /// What is kept from what.
    pub keeps: Keeps,
    /// Number and threads of a barrier.
    pub barrier: Option<[Count; 2]>,
    /// Whether only such statements on the line have to do with memory.
    pub alone: bool,
}

fn count(o: Option<&Source>) -> Count {
    match o {
        None => Count::None,
        Some(Source::Int(n)) => Count::Number(*n),
        Some(_) => Count::Register,
    }
}

/// What a fence or barrier asks for.
pub(super) fn sync(inst: &Statement, line: u32, at: Place) -> Option<Sync> {
    let fence = |sc, scope| Need::Fence { sc, scope };
    let own = |needs: &[Need], splits: bool| Sync {
        line,
        at,
        needs: SmallVec::from_slice(needs),
        splits: splits && inst.guard.is_none(),
        keeps: Keeps::Accesses,
        barrier: None,
        alone: false,
    };
    let proxy = inst.mods.iter().any(|m| m.name().contains("proxy"));
    // Between mbarriers of a cluster: others keep these in order.
    let restricted = inst.mods.iter().any(|m| m.name().contains("sync_restrict"));
    let whole = |sc: bool, scope: Scope| {
        let all = [fence(sc, scope), Need::Invalidation];
        own(if scope == Scope::Cta { &all[..1] } else { &all }, true)
    };
    let kept = |need: Need, keeps: Keeps| Sync { keeps, ..own(&[need], true) };
    if let Some(family) = Family::of(inst) {
        let found = match family {
            Family::ProductWait => {
                let most = match inst.operands.first() {
                    Some(Source::Int(n)) => *n,
                    _ => 0,
                };
                Some(kept(Need::Products(most), Keeps::FromAll(&[Family::Product])))
            }
            Family::ProductEnd => {
                let from = &[Family::Product, Family::ProductWait];
                Some(kept(Need::GroupEnd, Keeps::Work(&[Family::Product], from)))
            }
            Family::TensorLoadWait => {
                Some(kept(Need::Loaded, Keeps::Work(&[Family::TensorLoad], TELLS_THREADS)))
            }
            Family::TensorStoreWait => Some(kept(Need::Stored, Keeps::Work(&[Family::TensorStore], TELLS))),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    match inst.op {
        Op::membar | Op::fence if proxy => {
            let cta = inst.has(Word::shared_cta);
            match () {
                () if inst.has(Word::alias) => {
                    let both = [fence(true, Scope::Gpu), fence(true, Scope::Sys), Need::Invalidation];
                    Some(own(&both, false))
                }
                () if restricted || !inst.has(Word::_async) => None,
                () if inst.has(Word::global) => Some(own(&[Need::View], false)),
                () if cta => Some(own(&[fence(false, Scope::Cta), Need::View], false)),
                () => Some(own(&[fence(false, Scope::Gpu), Need::View], false)),
            }
        }
        Op::membar => Some(whole(true, Scope::of(inst))),
        Op::cp if inst.one_of(&[Word::wait_group, Word::wait_all]).is_some() => {
            let most = match inst.operands.first() {
                Some(Source::Int(n)) => (*n).min(63),
                _ => 0,
            };
            let all = [Need::Groups(most), Need::Invalidation];
            // What bulk copies write is not looked for in the L1 cache.
            let written = inst.has(Word::bulk) && !inst.has(Word::read);
            let mut s = own(if written { &all } else { &all[..1] }, true);
            s.keeps = Keeps::Copies;
            Some(s)
        }
        Op::fence if restricted || inst.has(Word::mbarrier_init) => None,
        Op::fence => {
            let weak = inst.one_of(&[Word::acq_rel, Word::acquire, Word::release]).is_some();
            Some(whole(!weak, Scope::of(inst)))
        }
        Op::bar | Op::barrier if inst.has(Word::warp) => None,
        Op::bar | Op::barrier if inst.has(Word::cluster) => {
            let arrive = inst.has(Word::arrive);
            let need = if arrive { fence(false, Scope::Gpu) } else { Need::Invalidation };
            let mut s =
                own(if arrive && inst.has(Word::relaxed) { &[] } else { std::slice::from_ref(&need) }, false);
            // A cluster of one block waits at its own.
            s.barrier = Some([Count::Number(0), Count::None]);
            Some(s)
        }
        Op::multimem => {
            let named = inst.one_of(&[Word::cta, Word::cluster, Word::gpu]).is_some();
            let scope = if named { Scope::of(inst) } else { Scope::Sys };
            match () {
                () if inst.has(Word::release) => Some(own(&[fence(false, scope)], false)),
                () if inst.has(Word::acquire) && scope > Scope::Cta => {
                    Some(own(&[Need::Invalidation], false))
                }
                () => None,
            }
        }
        Op::bar | Op::barrier => {
            let arrive = inst.has(Word::arrive);
            let result = usize::from(inst.has(Word::red));
            // The predicate of a reduction is the last.
            let numbers = &inst.operands[result.min(inst.operands.len())..inst.operands.len() - result];
            let mut s = own(if arrive { &[] } else { &[Need::Barrier] }, !arrive);
            s.barrier = Some([count(numbers.first()), count(numbers.get(1))]);
            Some(s)
        }
        _ => None,
    }
}

/// What is not as the PTX asks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Broken {
    /// A statement without its instruction: its line.
    Missing(u32, Need),
    /// A statement without its instruction: its line.
    Gone(u32, Family),
    /// A way from one instruction to another without what has to be between them: byte offsets, and the line of the statement.
    Passed {
        /// Where the way begins.
        from: u64,
        /// What it comes to.
        to: u64,
        /// The line of the statement that is between them.
        line: u32,
        /// What is not on the way.
        need: Need,
    },
    /// An access that fewer may see than the PTX says: its place and line, and who has to.
    Weak(u64, u32, Scope),
    /// A barrier of another number, or of another number of threads: its place and line.
    Threads(u64, u32),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Missing(line, need) => write!(f, "line {line} of the PTX has no {need}"),
            Broken::Gone(line, family) => write!(f, "line {line} of the PTX ({family}) has no instruction"),
            Broken::Passed { from, to, line, need } => {
                write!(f, "a way from /*{from:04x}*/ to /*{to:04x}*/ has no {need} (line {line} of the PTX)")
            }
            Broken::Weak(at, line, scope) => {
                write!(f, "/*{at:04x}*/ (line {line} of the PTX) is weaker than STRONG.{scope:?}")
            }
            Broken::Threads(at, line) => {
                write!(f, "/*{at:04x}*/ names another barrier or other threads than line {line} of the PTX")
            }
        }
    }
}

/// Whether an instruction can say how strong its access is, and does an access of this kind.
fn may_be_strong(inst: &Inst, access: &Access) -> bool {
    let MemoryEffects::Accesses(of) = inst.op.info().accesses else { return false };
    let name = inst.op.name();
    let plain = ["LD", "LDG", "LDGMC", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG"]
        .contains(&name.split('.').next().unwrap_or(name));
    let atomic = |e| e == MemoryEffect::Atomic;
    plain
        && of.iter().any(|a| {
            matches!(a.space, MemorySpace::Global | MemorySpace::Generic)
                && (!(access.reads && access.writes) || atomic(a.effect))
        })
}

/// Whether the instruction does neighbours of the access, too (ptxas makes one store of several, for the block if one of them is).
fn is_merged(inst: &Inst, access: &Access) -> bool {
    let MemoryEffects::Accesses(of) = inst.op.info().accesses else { return false };
    of.iter().filter_map(|a| a.size(&inst.mods)).any(|bytes| access.is_merged_into(bytes))
}

/// Whether the instruction of an atomic operation at a generic address is one for addresses of shared or local memory, which
/// ATOM does not do: what others of the block see needs no more than that, and nobody else sees local memory.
fn is_fallback(inst: &Inst) -> bool {
    let MemoryEffects::Accesses(of) = inst.op.info().accesses else { return false };
    let everywhere = |space| matches!(space, MemorySpace::Global | MemorySpace::Generic);
    inst.mods.has(Mod::CAST) || !of.iter().any(|a| everywhere(a.space) && a.effect == MemoryEffect::Atomic)
}

struct Checker<'a, 'm> {
    program: &'a Program<'m>,
    code: &'a Code,
    /// Where control goes from each instruction.
    next: Vec<flow::Next>,
    done: &'a [Done],
    /// The lines of what belongs to an access are its neighbours'.
    foreign: bool,
    found: BTreeSet<Broken>,
}

impl Checker<'_, '_> {
    fn access(&self, d: &Done) -> &Access {
        &self.program.accesses[d.access]
    }

    /// Follows every way from `from` until what is needed has come, in order; says which of `to` it comes to before.
    fn follow(&mut self, from: &[usize], to: &BTreeSet<usize>, needs: &[Need], line: u32) {
        let count = self.code.insts.len();
        if from.is_empty() || to.is_empty() || needs.is_empty() {
            return;
        }
        let mut seen = vec![0u8; count];
        for &start in from {
            let mut open: SmallVec<[(usize, usize); 8]> = SmallVec::new();
            let push =
                |open: &mut SmallVec<[(usize, usize); 8]>, at: usize, stage: usize, seen: &mut [u8]| {
                    let next = &self.next[at];
                    let falls = next.falls.then_some(at + 1).filter(|n| *n < count);
                    for n in next.target.into_iter().chain(falls) {
                        if seen[n] & 1 << stage == 0 {
                            seen[n] |= 1 << stage;
                            open.push((n, stage));
                        }
                    }
                };
            // A product may end its group itself.
            if needs[0] == Need::GroupEnd && self.meets(start, needs[0]) {
                continue;
            }
            // Each load has a scoreboard of its own.
            let board = (needs[0] == Need::Loaded).then(|| self.board(start)).flatten();
            if needs[0] == Need::Loaded {
                seen.fill(0);
            }
            push(&mut open, start, 0, &mut seen);
            while let Some((at, stage)) = open.pop() {
                let loaded = board.is_some_and(|b| self.waits_for(at, b));
                if to.contains(&at) && !loaded {
                    let (from, to) = (16 * start as u64, 16 * at as u64);
                    self.found.insert(Broken::Passed { from, to, line, need: needs[stage] });
                    return;
                }
                let met = loaded || self.meets(at, needs[stage]);
                let stage = stage + usize::from(met);
                if stage < needs.len() {
                    push(&mut open, at, stage, &mut seen);
                }
            }
        }
    }

    /// The scoreboard that says that a load from tensor memory is done. They end in order: one without a scoreboard is done when the
    /// next one is.
    fn board(&self, load: usize) -> Option<u8> {
        let loads = self.code.insts[load..].iter().map_while(|i| i.as_ref().filter(|i| !i.op.info().control));
        loads.filter(|i| i.op.name().starts_with("LDTM")).find_map(|i| i.ctrl.write_sb)
    }

    /// Whether the instruction waits for a scoreboard.
    fn waits_for(&self, at: usize, board: u8) -> bool {
        let Some(inst) = &self.code.insts[at] else { return false };
        let all = match inst.operands[..] {
            [_, Operand::Imm(0), Operand::ScoreboardSet(boards), ..] if inst.op == Opcode::DEPBAR => boards,
            _ => 0,
        };
        (u32::from(inst.ctrl.wait) | u32::from(all)) >> board & 1 == 1
    }

    /// Whether the instruction is what is needed, or calls a piece of code that has it (ours waits at barriers in such, for
    /// lanes that are apart).
    fn meets(&self, at: usize, need: Need) -> bool {
        let is = |i: &Option<Inst>| i.as_ref().is_some_and(|i| need.met(i));
        let Some(inst) = &self.code.insts[at] else { return false };
        let callee = self.next[at].target.filter(|_| inst.op == Opcode::CALL);
        let ends = |i: &&Option<Inst>| {
            i.as_ref().is_none_or(|i| !i.op.info().control || need.met(i) || i.op == Opcode::WARPSYNC)
        };
        is(&self.code.insts[at])
            || callee.is_some_and(|t| self.code.insts[t..].iter().take_while(ends).any(is))
    }

    /// Whether an instruction of the line is what is needed, among these of the code.
    fn has(&self, line: u32, need: Need, among: std::ops::Range<usize>) -> bool {
        let mut on = self.code.insts[among.clone()].iter().zip(&self.code.lines[among]);
        on.any(|(i, l)| *l == line && i.as_ref().is_some_and(|i| need.met(i)))
    }

    /// Whether the line of a statement has as many instructions as it and others on the line are made of.
    fn missing(&mut self, s: &Sync) {
        let program = self.program;
        let lives = self.code.lines.contains(&s.line)
            || self.done.iter().any(|d| program.accesses[d.access].at.0 == s.at.0);
        if !lives {
            return;
        }
        let on_line = program.syncs.iter().filter(|o| o.line == s.line && o.at.0 == s.at.0);
        let needs: SmallVec<[Need; 4]> = on_line.flat_map(|o| o.needs.iter().copied()).collect();
        for &need in &s.needs {
            let asked = needs.iter().filter(|n| need.includes(**n)).count();
            let on = self.code.insts.iter().zip(&self.code.lines).filter(|i| *i.1 == s.line);
            let there = on.filter(|(i, _)| i.as_ref().is_some_and(|i| need.met(i))).count();
            if there < asked {
                self.found.insert(Broken::Missing(s.line, need));
            }
        }
    }

    /// Statements of families without an instruction, in blocks of which the code has others.
    fn gone(&mut self) {
        let program = self.program;
        let there: BTreeSet<usize> = self.done.iter().map(|d| d.access).collect();
        let lives: BTreeSet<u32> = there.iter().map(|a| program.accesses[*a].at.0).collect();
        for (k, a) in program.accesses.iter().enumerate() {
            let Some(family) = a.family.filter(|f| !f.may_be_gone()) else { continue };
            let known = a.alone && !a.is_guarded() && program.by_line.get(&a.line) == Some(&k);
            if known && !there.contains(&k) && lives.contains(&a.at.0) {
                self.found.insert(Broken::Gone(a.line, family));
            }
        }
    }

    fn sync(&mut self, s: &Sync) {
        let program = self.program;
        let done = self.done;
        let before = |d: &&Done| {
            let a = &program.accesses[d.access];
            s.keeps.before(a) && program.dominates(a.at, s.at)
        };
        let behind = |d: &&Done| {
            let a = &program.accesses[d.access];
            s.keeps.behind(a) && program.dominates(s.at, a.at) && a.at != s.at
        };
        if s.splits {
            let from: Vec<usize> = done.iter().filter(before).map(|d| d.at).collect();
            let to: BTreeSet<usize> = done.iter().filter(behind).map(|d| d.at).collect();
            self.follow(&from, &to, &s.needs, s.line);
        }
        // What ends a group, and what waits for a scoreboard or for one product, is on other lines.
        if s.alone && !matches!(s.needs[..], [Need::GroupEnd | Need::Loaded | Need::Products(_)]) {
            self.missing(s);
        }
        let Some(barrier) = s.barrier.filter(|_| s.alone) else { return };
        for (at, (inst, line)) in self.code.insts.iter().zip(&self.code.lines).enumerate() {
            let Some(inst) = inst.as_ref().filter(|i| i.op == Opcode::BAR && *line == s.line) else {
                continue;
            };
            // One register holds both, or the number alone.
            let packed = matches!(&inst.operands[0], Operand::Reg(r) if !r.reg.is_zero());
            let agrees = inst.operands.iter().zip(barrier).all(|(o, count)| match (o, count) {
                (Operand::Imm(n), Count::Number(m)) => u64::from(*n) == m,
                (Operand::Imm(n), Count::None) => *n == 0,
                (Operand::Reg(r), Count::None) => packed || r.reg.is_zero(),
                (_, Count::None) => packed,
                (Operand::Reg(r), Count::Number(_) | Count::Register) => !r.reg.is_zero(),
                _ => true,
            });
            if !agrees {
                self.found.insert(Broken::Threads(16 * at as u64, s.line));
            }
        }
    }

    /// An access that acquires or releases, and how strong it is.
    fn access_alone(&mut self, d: &Done) {
        let a = self.access(d).clone();
        let Some(inst) = &self.code.insts[d.at] else { return };
        if a.reads && a.writes && a.space == MemorySpace::Generic && !a.synchronizes && is_fallback(inst) {
            return;
        }
        let line = a.line;
        if let Some(scope) = a.scope
            && may_be_strong(inst, &a)
            && !(self.foreign && is_merged(inst, &a))
        {
            let strong = inst.mods.has(Mod::STRONG) || inst.mods.has(Mod::MMIO);
            // ptxas leaves it out of those that say how long to keep what they read.
            let kept = [Mod::EF, Mod::EL, Mod::EU].into_iter().any(|m| inst.mods.has(m));
            let here = Scope::of_code(inst).filter(|_| strong);
            if here.is_none_or(|h| h < scope) && !(kept && scope == Scope::Cta) {
                self.found.insert(Broken::Weak(16 * d.at as u64, line, scope));
            }
        }
        let shared = a.space == MemorySpace::Shared && !a.synchronizes;
        // Before sm_90 barriers in shared memory are atomics, which order nothing by themselves.
        let atomic = a.synchronizes && inst.op.name().starts_with("ATOMS");
        let Some(scope) = a.scope.or(atomic.then_some(Scope::Cta)) else { return };
        let program = self.program;
        // Of several instructions the fence belongs to one of them.
        let single = self.done.iter().filter(|o| o.access == d.access).count() == 1;
        let count = self.code.insts.len();
        let (front, rest) = if single { (0..d.at, d.at..count) } else { (0..count, 0..count) };
        if a.acquires && scope > Scope::Cta && !shared {
            let behind = self.done.iter().filter(|o| {
                let b = &program.accesses[o.access];
                let kept = b.space != MemorySpace::Local && !b.commits && !b.bare;
                kept && program.dominates(a.at, b.at) && b.at != a.at
            });
            let to = behind.map(|d| d.at).collect();
            self.follow(&[d.at], &to, &[Need::Invalidation], line);
            if a.alone && !self.foreign && !self.has(line, Need::Invalidation, rest) {
                self.found.insert(Broken::Missing(line, Need::Invalidation));
            }
        }
        // What a tensor map is copied by releases it without one.
        if a.releases && !a.loose {
            let need = Need::Fence { sc: false, scope };
            let before = self.done.iter().filter(|o| {
                let b = &program.accesses[o.access];
                let kept = b.space != MemorySpace::Local && !b.copies && !b.commits && !b.bare;
                kept && program.dominates(b.at, a.at) && b.at != a.at
            });
            let from: Vec<usize> = before.map(|d| d.at).collect();
            self.follow(&from, &BTreeSet::from([d.at]), &[need], line);
            if a.alone && !self.foreign && !self.has(line, need, front) {
                self.found.insert(Broken::Missing(line, need));
            }
        }
    }
}

/// Looks for what is missing, passed by, or weaker than the PTX asks.
pub(super) fn check(program: &Program, code: &Code, done: &[Done], foreign: bool) -> Vec<Broken> {
    let asks = |a: &Access| a.scope.is_some() || a.synchronizes || a.family.is_some();
    if program.syncs.is_empty() && !program.accesses.iter().any(asks) {
        return Vec::new();
    }
    let count = code.insts.len();
    let next = (0..).zip(&code.insts).map(|(at, i)| flow::next(i.as_ref(), at, count)).collect();
    let mut checker = Checker { program, code, next, done, foreign, found: BTreeSet::new() };
    program.syncs.iter().for_each(|s| checker.sync(s));
    done.iter().filter(|d| !program.accesses[d.access].bare).for_each(|d| checker.access_alone(d));
    if !foreign {
        checker.gone();
    }
    checker.found.into_iter().collect()
}
