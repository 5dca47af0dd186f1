//! Which accesses PTX keeps in order: those of one thread whose bytes may overlap unless both read, and those that
//! volatile, acquiring and releasing accesses, fences and barriers order.

use super::families::{self, Family};
use super::fences::{Scope, Sync, sync};
use super::linear::{Left, Linear, Values};
use ::ptx::ast::{Addr, AddrBase, Func, Inst, LabelId, Operand, RegId, Space, Stmt};
use ::ptx::{LineIndex, Mod, Module, Op};
use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use sass::memory::MemorySpace;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// With more blocks between one and that which is before it on every way nothing is known of what registers hold.
const MOST_BETWEEN: usize = 200;

/// A place in a function: a block, numbered in reverse postorder, and a statement of it.
pub type Place = (u32, u32);

/// A memory access of PTX.
#[derive(Clone, Debug)]
pub struct Access {
    /// Line of the statement.
    pub line: u32,
    /// Its place: among the blocks in reverse postorder, and in its block.
    pub at: (u32, u32),
    /// Where it goes.
    pub space: MemorySpace,
    /// Reads.
    pub reads: bool,
    /// Writes.
    pub writes: bool,
    /// Address and bytes; `None` where they are not known.
    place: Option<(Linear, u32)>,
    strong: bool,
    volatile: bool,
    /// Nothing behind it may be done before it.
    pub acquires: bool,
    /// Nothing before it may be done behind it.
    pub releases: bool,
    /// Who sees it; `None`: it is weak.
    pub scope: Option<Scope>,
    /// Whether nothing else on its line has to do with memory.
    pub alone: bool,
    /// A copy that goes on behind the thread's back: only what comes before it is ordered.
    pub copies: bool,
    /// The end of a group of copies: only they are kept in order with it.
    pub commits: bool,
    /// Only fences, barriers and releases order it, as far as is known here.
    pub loose: bool,
    /// The predicate's value, and whether it is negated.
    guard: Option<(Linear, bool)>,
    /// Done by instructions that the table calls fences (mbarriers).
    pub synchronizes: bool,
    /// What it has to do with asynchronous work.
    pub family: Option<Family>,
    /// Whether that is all that it is.
    pub bare: bool,
}

impl Access {
    /// Whether it has a guard.
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Whether only fences, and accesses that write or do more than read and write, are kept in order with it.
    pub fn is_plain_read(&self) -> bool {
        let plain = !(self.writes || self.strong || self.volatile || self.acquires || self.releases);
        plain && !(self.copies || self.commits || self.bare)
    }
}

impl Access {
    /// Whether an instruction of so many bytes does it together with others, whatever its cache operator says.
    pub fn is_merged_into(&self, bytes: u32) -> bool {
        !self.strong && self.place.as_ref().is_some_and(|p| p.1 < bytes)
    }
}

/// Why two accesses keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// They overlap, and one writes.
    Overlap,
    /// They may, as far as can be seen.
    MayOverlap,
    /// Strong reads of one place.
    Coherence,
    /// Both are volatile.
    Volatile,
    /// The first acquires.
    Acquire,
    /// The second releases.
    Release,
    /// The second ends the group of copies that the first is of.
    Commit,
    /// A fence or barrier lies between them: the line.
    Fence(u32),
    /// One of them, or both, has to do with asynchronous work, and they are none of the pairs that may change places.
    Asynchronous(Option<Family>, Option<Family>),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Overlap => f.write_str("they overlap"),
            Why::MayOverlap => f.write_str("they may overlap"),
            Why::Coherence => f.write_str("both read one place strongly"),
            Why::Volatile => f.write_str("both are volatile"),
            Why::Acquire => f.write_str("the first acquires"),
            Why::Release => f.write_str("the second releases"),
            Why::Commit => f.write_str("the second ends the group of the first"),
            Why::Fence(line) => write!(f, "line {line} keeps them apart"),
            Why::Asynchronous(a, b) => {
                let name = |x: &Option<Family>| x.map_or("an access".to_string(), |x| format!("{x}"));
                write!(f, "{} stays before {}", name(a), name(b))
            }
        }
    }
}

/// The accesses of a function, by line, and what orders them.
pub struct Program<'m> {
    /// In the order of their places.
    pub accesses: Vec<Access>,
    /// Lines with one access; what else is on them acts on registers.
    pub by_line: BTreeMap<u32, usize>,
    values: Values<'m>,
    /// What registers held at the start of a block that control comes back to at once: the block, and how much a round adds.
    rounds: FxHashMap<u32, (u32, Option<i64>)>,
    /// Immediate dominators of blocks; the entry's is itself.
    idom: Vec<u32>,
    /// Where blocks lead to, and what each comes to, once it was asked for.
    succs: Vec<Vec<u32>>,
    reached: Vec<OnceLock<Vec<bool>>>,
    /// The same within one round of each loop.
    ahead: Vec<OnceLock<Vec<bool>>>,
    /// Fences and barriers.
    pub syncs: Vec<Sync>,
    /// Fences: place and line.
    fences: Vec<((u32, u32), u32)>,
}

/// A basic block: its statements and successors.
#[derive(Default)]
struct Block<'m> {
    insts: Vec<&'m Inst>,
    succs: Vec<usize>,
}

/// What a function's name or table of labels leads to.
fn targets(inst: &Inst, tables: &SecondaryMap<LabelId, Vec<LabelId>>) -> Vec<LabelId> {
    let label = |o: &Operand| match o {
        Operand::Label(l) => Some(*l),
        _ => None,
    };
    match inst.op {
        Op::bra => inst.operands.iter().filter_map(label).collect(),
        Op::brx => inst.operands.iter().filter_map(label).flat_map(|l| tables[l].clone()).collect(),
        _ => Vec::new(),
    }
}

fn blocks<'m>(stmts: &'m [Stmt]) -> Vec<Block<'m>> {
    let mut tables: SecondaryMap<LabelId, Vec<LabelId>> = SecondaryMap::new();
    let mut starts: SecondaryMap<LabelId, usize> = SecondaryMap::new();
    let mut out: Vec<Block<'m>> = vec![Block::default()];
    let mut ends = false;
    let mut falls: Vec<bool> = Vec::new();
    let open = |out: &mut Vec<Block<'m>>, falls: &mut Vec<bool>, on: bool| {
        falls.push(on);
        out.push(Block::default());
    };
    let mut on = true;
    for s in stmts {
        match s {
            Stmt::BranchTargets(l, list) => tables[*l] = list.clone(),
            Stmt::Label(l) => {
                if ends || out.last().is_some_and(|b| !b.insts.is_empty()) {
                    open(&mut out, &mut falls, on);
                    (ends, on) = (false, true);
                }
                starts[*l] = out.len() - 1;
            }
            Stmt::Inst(i) => {
                if ends {
                    open(&mut out, &mut falls, on);
                    (ends, on) = (false, true);
                }
                if let Some(b) = out.last_mut() {
                    b.insts.push(i);
                }
                if matches!(i.op, Op::bra | Op::brx | Op::ret | Op::exit | Op::trap) {
                    ends = true;
                    on = i.guard.is_some();
                }
            }
            _ => {}
        }
    }
    falls.push(false);
    for k in 0..out.len() {
        let last = out[k].insts.last().copied();
        let mut succs: Vec<usize> =
            last.map(|i| targets(i, &tables)).unwrap_or_default().iter().map(|l| starts[*l]).collect();
        if falls[k] && k + 1 < out.len() {
            succs.push(k + 1);
        }
        out[k].succs = succs;
    }
    out
}

/// Blocks in reverse postorder.
pub(super) fn reverse_postorder(
    roots: &[usize],
    succs: &dyn Fn(usize) -> Vec<usize>,
    count: usize,
) -> Vec<usize> {
    let mut seen = vec![false; count];
    let mut order = Vec::new();
    for &root in roots.iter().rev() {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut stack = vec![(root, succs(root))];
        while let Some((b, next)) = stack.last_mut() {
            match next.pop() {
                Some(s) if !std::mem::replace(&mut seen[s], true) => {
                    let more = succs(s);
                    stack.push((s, more));
                }
                Some(_) => {}
                None => {
                    order.push(*b);
                    stack.pop();
                }
            }
        }
    }
    order.reverse();
    order
}

/// Immediate dominators by number in reverse postorder; those that several roots reach have themselves.
pub(super) fn dominators(preds: &[Vec<u32>], roots: &[bool]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut idom = vec![NONE; preds.len()];
    // Above all roots.
    let top = preds.len() as u32;
    idom.push(top);
    let common = |idom: &[u32], mut a: u32, mut b: u32| {
        while a != b {
            match (a, b) {
                _ if a == top || b == top => return top,
                _ if a > b => a = idom[a as usize],
                _ => b = idom[b as usize],
            }
        }
        a
    };
    let mut changed = true;
    while changed {
        changed = false;
        for k in 0..preds.len() {
            let mut new = if roots[k] { top } else { NONE };
            for &p in &preds[k] {
                if idom[p as usize] != NONE {
                    new = if new == NONE { p } else { common(&idom, new, p) };
                }
            }
            changed |= std::mem::replace(&mut idom[k], new) != new;
        }
    }
    idom
}

fn find_space(module: &Module, inst: &Inst, a: &Addr) -> Option<Space> {
    let named = inst.mods.iter().find_map(|m| {
        Some(match m {
            Mod::global => Space::Global,
            Mod::shared | Mod::shared_cta => Space::Shared,
            Mod::local => Space::Local,
            Mod::_const => Space::Const,
            Mod::param | Mod::param_entry | Mod::param_func => Space::Param,
            _ => return None,
        })
    });
    named.or(match a.base {
        AddrBase::Var(v) => Some(module.vars[v].space),
        _ => None,
    })
}

fn elements(o: Option<&Operand>) -> u32 {
    match o {
        Some(Operand::Vector(v) | Operand::Resident(v, _)) => v.len() as u32,
        _ => 1,
    }
}

/// Whether code for the statement may have to do with memory, the driver's parameters aside.
fn may_access(inst: &Inst) -> bool {
    let parameter =
        inst.op == Op::ld && inst.one_of(&[Mod::param, Mod::param_entry, Mod::param_func]).is_some();
    // Those of them that name no address.
    let bare =
        matches!(inst.op, Op::call | Op::cp | Op::wgmma | Op::tcgen05 | Op::griddepcontrol | Op::setmaxnreg)
            || matches!(inst.op, Op::bar | Op::barrier | Op::fence | Op::membar);
    bare || !parameter && inst.operands.iter().any(|o| matches!(o, Operand::Addr(_) | Operand::Bracket(_)))
}

/// Whether nothing passes the statement.
fn is_fence(inst: &Inst) -> bool {
    match inst.op {
        Op::membar => !inst.mods.iter().any(|m| m.name().contains("proxy")),
        Op::fence => inst.one_of(&[Mod::sc, Mod::acq_rel]).is_some(),
        Op::bar => !inst.has(Mod::arrive),
        Op::barrier => !inst.has(Mod::arrive) && !inst.has(Mod::cluster),
        _ => false,
    }
}

impl<'m> Program<'m> {
    /// Reads a function.
    pub fn new(module: &'m Module, func: &'m Func, lines: &LineIndex) -> Option<Program<'m>> {
        let body = func.body.as_ref()?;
        let blocks = blocks(&body.stmts);
        let order = reverse_postorder(&[0], &|b| blocks[b].succs.clone(), blocks.len());
        let mut number = vec![u32::MAX; blocks.len()];
        for (k, b) in (0..).zip(&order) {
            number[*b] = k;
        }
        let mut preds: Vec<Vec<u32>> = vec![Vec::new(); order.len()];
        for (k, b) in (0..).zip(&order) {
            blocks[*b].succs.iter().for_each(|s| preds[number[*s] as usize].push(k));
        }
        let roots: Vec<bool> = (0..order.len()).map(|k| k == 0).collect();
        let mut program = Program {
            accesses: Vec::new(),
            by_line: BTreeMap::new(),
            values: Values::new(module, body),
            rounds: FxHashMap::default(),
            idom: dominators(&preds, &roots),
            succs: order.iter().map(|b| blocks[*b].succs.iter().map(|s| number[*s]).collect()).collect(),
            reached: order.iter().map(|_| OnceLock::new()).collect(),
            ahead: order.iter().map(|_| OnceLock::new()).collect(),
            syncs: Vec::new(),
            fences: Vec::new(),
        };
        let mut on_line: BTreeMap<u32, u32> = BTreeMap::new();
        // The registers with several definitions that each block defines, and what those hold where it ends.
        let all =
            order.iter().map(|b| blocks[*b].insts.iter().flat_map(|i| program.values.redefined(i)).collect());
        let defines: Vec<FxHashSet<RegId>> = all.collect();
        let mut left: Vec<Left> = Vec::with_capacity(order.len());
        for (k, b) in (0..).zip(&order) {
            let known = program.known(k, &preds, &defines, &left);
            program.values.enter_block(known);
            for (n, inst) in (0..).zip(&blocks[*b].insts) {
                let line = lines.line(inst.span.start);
                let fence = is_fence(inst);
                *on_line.entry(line).or_default() += u32::from(fence || may_access(inst));
                if fence {
                    program.fences.push(((k, n), line));
                }
                program.syncs.extend(sync(inst, line, (k, n)));
                let family = Family::of(inst);
                let described = program.access(module, inst, line, (k, n));
                let found = match described {
                    None if family.is_some() => Some(program.bare(inst, line, (k, n))),
                    found => found,
                };
                if let Some(mut access) = found {
                    access.family = family;
                    program.by_line.insert(line, program.accesses.len());
                    program.accesses.push(access);
                }
                program.values.step(inst);
            }
            if program.values.defines_all() && !program.reaches(k, k) {
                program.values.leave_for_good();
            }
            left.push(program.values.left().clone());
            if program.succs[k as usize].contains(&k) {
                program.rounds.extend(program.values.steps().map(|(u, step)| (u, (k, step))));
            }
        }
        program.by_line.retain(|line, _| on_line[line] == 1);
        let mut syncs: BTreeMap<u32, u32> = BTreeMap::new();
        program.syncs.iter().for_each(|s| *syncs.entry(s.line).or_default() += 1);
        program.syncs.iter_mut().for_each(|s| s.alone = on_line[&s.line] == syncs[&s.line]);
        program.accesses.iter_mut().for_each(|a| a.alone = on_line[&a.line] == 1);
        Some(program)
    }

    fn access(&mut self, module: &Module, inst: &Inst, line: u32, at: (u32, u32)) -> Option<Access> {
        use Op::*;
        if let Some(access) = self.unplaced(module, inst, line, at) {
            return Some(access);
        }
        let (address, data) = match inst.op {
            ld | atom => (1, 0),
            st | red => (0, 1),
            mbarrier => (inst.operands.iter().position(|o| matches!(o, Operand::Addr(_)))?, 0),
            ldmatrix => (1, 0),
            stmatrix => (0, 1),
            wmma if inst.has(Mod::load) => (1, 0),
            wmma if inst.has(Mod::store) => (0, 1),
            cp if inst.has(Mod::_async) => (0, 0),
            multimem if inst.has(Mod::ld_reduce) => (1, 0),
            multimem => (0, 1),
            _ => return None,
        };
        // Read-only data; asynchronous and multicast accesses are ordered by other means.
        if inst.has(Mod::nc) || inst.has(Mod::bulk) || inst.op != cp && inst.has(Mod::_async) {
            return None;
        }
        let Some(Operand::Addr(a)) = inst.operands.get(address) else { return None };
        let space = match find_space(module, inst, a) {
            Some(Space::Global) => MemorySpace::Global,
            Some(Space::Shared) => MemorySpace::Shared,
            Some(Space::Local) => MemorySpace::Local,
            // Their generic addresses are such of shared memory.
            None if matches!(inst.op, mbarrier | ldmatrix | stmatrix) => MemorySpace::Shared,
            None if inst.op == multimem => MemorySpace::Global,
            None => MemorySpace::Generic,
            Some(_) => return None,
        };
        let element = match inst.op {
            mbarrier => 8,
            _ => inst.types().last().map_or(0, |t| t.bytes()),
        };
        let copies = inst.op == cp;
        // Where in a matrix a lane's elements are, is not said.
        let known = element != 0 && !matches!(inst.op, ldmatrix | stmatrix | wmma | cp | multimem);
        let size = element * elements(inst.operands.get(data)).max(elements(inst.operands.get(1)));
        let place = known.then(|| (self.values.address(a), size));
        let arrives = inst.mods.iter().any(|m| m.name().contains("arrive"));
        let waits = inst.op == mbarrier && inst.mods.iter().any(|m| m.name().contains("wait"));
        let relaxed = inst.has(Mod::relaxed);
        let volatile = inst.has(Mod::volatile) || inst.has(Mod::mmio);
        let both = inst.has(Mod::acq_rel);
        let guard = inst.guard.map(|(r, negated): (RegId, bool)| (self.values.register(r), negated));
        let atomic = matches!(inst.op, atom | red | mbarrier) || inst.op == multimem && inst.has(Mod::red);
        let reduced = inst.op == multimem && inst.has(Mod::ld_reduce);
        Some(Access {
            line,
            at,
            space,
            reads: atomic
                || reduced
                || matches!(inst.op, ld | ldmatrix)
                || inst.op == wmma && inst.has(Mod::load),
            writes: matches!(inst.op, st | stmatrix | cp)
                || inst.op == multimem && !reduced
                || inst.op == wmma && inst.has(Mod::store)
                || atomic && !waits,
            place,
            strong: atomic || volatile || relaxed || inst.one_of(&[Mod::acquire, Mod::release]).is_some(),
            volatile,
            acquires: inst.has(Mod::acquire) && !(reduced && inst.has(Mod::cta)) || both || waits && !relaxed,
            releases: inst.has(Mod::release) || both || inst.op == mbarrier && arrives && !relaxed,
            scope: Scope::of_access(inst),
            alone: false,
            copies,
            commits: false,
            loose: false,
            guard,
            synchronizes: inst.op == mbarrier,
            family: None,
            bare: false,
        })
    }

    /// What goes to places that the statement does not say: surfaces, bulk copies, the ends of groups of copies, and tensor maps
    /// and their fields, which are words and parts of words.
    fn unplaced(&mut self, module: &Module, inst: &Inst, line: u32, at: Place) -> Option<Access> {
        let copies = inst.op == Op::cp && inst.has(Mod::bulk) && !inst.has(Mod::prefetch);
        let commits = inst.op == Op::cp && inst.has(Mod::commit_group);
        let waits = inst.one_of(&[Mod::wait_group, Mod::wait_all]).is_some();
        let fields = inst.op == Op::tensormap && inst.has(Mod::replace);
        let map = inst.op == Op::tensormap && inst.has(Mod::cp_fenceproxy);
        let surface = matches!(inst.op, Op::suld | Op::sust | Op::sured);
        if !(copies || commits || fields || map || surface) || waits {
            return None;
        }
        let space = match inst.operands.first() {
            _ if surface => MemorySpace::Global,
            Some(Operand::Addr(a)) if fields => match find_space(module, inst, a) {
                Some(Space::Global) => MemorySpace::Global,
                Some(Space::Shared) => MemorySpace::Shared,
                _ => MemorySpace::Generic,
            },
            _ => MemorySpace::Generic,
        };
        let guard = inst.guard.map(|(r, negated)| (self.values.register(r), negated));
        Some(Access {
            line,
            at,
            space,
            reads: !commits && inst.op != Op::sust,
            writes: !commits && inst.op != Op::suld,
            place: None,
            strong: false,
            volatile: false,
            acquires: false,
            releases: map,
            scope: map.then(|| Scope::of(inst)),
            alone: false,
            copies: copies && !commits,
            commits,
            loose: fields || map,
            guard,
            // The table calls them fences.
            synchronizes: copies || commits,
            family: None,
            bare: false,
        })
    }

    /// A statement of a family that accesses nothing that is known here.
    fn bare(&mut self, inst: &Inst, line: u32, at: Place) -> Access {
        Access {
            line,
            at,
            space: MemorySpace::Generic,
            reads: false,
            writes: false,
            place: None,
            strong: false,
            volatile: false,
            acquires: false,
            releases: false,
            scope: None,
            alone: false,
            copies: false,
            commits: false,
            loose: true,
            guard: inst.guard.map(|(r, negated)| (self.values.register(r), negated)),
            synchronizes: false,
            family: None,
            bare: true,
        }
    }

    /// What registers with several definitions hold where a block begins: as where the block ends that is executed directly before on every way, if
    /// no block in between defines them. `left` is what they hold where each of the blocks up to there ends.
    fn known(&self, block: u32, preds: &[Vec<u32>], defines: &[FxHashSet<RegId>], left: &[Left]) -> Left {
        let before = self.idom[block as usize];
        let Some(known) = left.get(before as usize).filter(|_| before < block) else {
            return Left::default();
        };
        // Behind a loop it is what the last round left, and accesses of all rounds are compared with it: of loops of one block it is known by how
        // much each round changes them.
        let around = self.reaches(before, before) && !self.reaches(block, before);
        if around && !(self.succs[before as usize].contains(&before) && preds[block as usize] == [before]) {
            return Left::default();
        }
        let mut known = known.clone();
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut open: Vec<u32> = preds[block as usize].clone();
        while let Some(b) = open.pop() {
            if b == before || !seen.insert(b) {
                continue;
            }
            if seen.len() > MOST_BETWEEN {
                return Left::default();
            }
            known.retain(|r, _| !defines[b as usize].contains(r));
            open.extend(&preds[b as usize]);
        }
        known
    }

    /// Whether control comes from one block to another.
    fn reaches(&self, from: u32, to: u32) -> bool {
        self.reached[from as usize].get_or_init(|| self.search(from, |_, _| true))[to as usize]
    }

    /// Whether it does so without another round of a loop.
    fn is_ahead(&self, from: u32, to: u32) -> bool {
        self.ahead[from as usize].get_or_init(|| self.search(from, |b, s| b < s))[to as usize]
    }

    /// Blocks that control comes to over edges of a kind.
    fn search(&self, from: u32, over: impl Fn(u32, u32) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.succs.len()];
        let mut open = vec![from];
        while let Some(b) = open.pop() {
            for &s in &self.succs[b as usize] {
                if over(b, s) && !std::mem::replace(&mut reached[s as usize], true) {
                    open.push(s);
                }
            }
        }
        reached
    }

    /// Whether the first comes before the second on every way to it, or at least never behind it where both are executed
    /// (blocks that the compiler may have made one, under guards).
    pub fn precedes(&self, a: &Access, b: &Access) -> bool {
        if a.at.0 == b.at.0 {
            return a.at.1 < b.at.1;
        }
        if a.at.0 < b.at.0 && self.reaches(a.at.0, b.at.0) && !self.reaches(b.at.0, a.at.0) {
            return true;
        }
        // Of asynchronous work each round of a loop keeps the order, too.
        let rounds = (a.family.is_some() || b.family.is_some()) && self.is_ahead(a.at.0, b.at.0);
        rounds || self.dominates(a.at, b.at)
    }

    /// Whether control may come from each to the other again.
    pub fn share_loop(&self, a: &Access, b: &Access) -> bool {
        self.reaches(a.at.0, b.at.0) && self.reaches(b.at.0, a.at.0)
    }

    /// Whether control comes to the second over the first only.
    pub fn dominates(&self, a: Place, b: Place) -> bool {
        if a.0 == b.0 {
            return a.1 <= b.1;
        }
        let mut at = b.0;
        while at > a.0 && (at as usize) < self.idom.len() - 1 {
            at = self.idom[at as usize];
        }
        at == a.0
    }

    /// Why the first, which comes before the second, must stay before it. `sure`: only what is certain.
    pub fn ordered(&self, a: &Access, b: &Access, sure: bool) -> Option<Why> {
        if let (Some((p, m)), Some((q, n))) = (&a.guard, &b.guard)
            && p == q
            && m != n
            && a.at.0 == b.at.0
        {
            return None;
        }
        if a.copies && b.commits {
            return Some(Why::Commit);
        }
        if a.family.is_some() || b.family.is_some() {
            if !families::is_free(a, b) {
                return Some(Why::Asynchronous(a.family, b.family));
            }
            if a.bare || b.bare {
                return None;
            }
        }
        if a.copies || a.commits || b.commits {
            return None;
        }
        // Nobody else sees local memory.
        let seen = a.space != MemorySpace::Local && b.space != MemorySpace::Local;
        if seen && let Some(line) = self.fence_between(a.at, b.at) {
            return Some(Why::Fence(line));
        }
        match self.overlap(a, b) {
            Some(certain) if (certain || !sure) && (a.writes || b.writes) => {
                return Some(if certain { Why::Overlap } else { Why::MayOverlap });
            }
            Some(true) if a.strong && b.strong => return Some(Why::Coherence),
            _ => {}
        }
        match () {
            () if a.volatile && b.volatile => Some(Why::Volatile),
            () if a.acquires && seen => Some(Why::Acquire),
            () if b.releases && seen => Some(Why::Release),
            () => None,
        }
    }

    /// The place behind the next fence behind a place, in the order of places.
    pub fn next_fence(&self, at: (u32, u32)) -> Option<(u32, u32)> {
        self.fences.get(self.fences.partition_point(|f| f.0 < at)).map(|f| f.0)
    }

    /// A fence on every way from one place to the other.
    fn fence_between(&self, a: (u32, u32), b: (u32, u32)) -> Option<u32> {
        let on_the_way = |f: (u32, u32)| {
            if f.0 == a.0 && f.1 < a.1 || f.0 == b.0 && f.1 > b.1 {
                return false;
            }
            if f.0 == a.0 || f.0 == b.0 {
                return true;
            }
            // A block that dominates the second and that the first dominates.
            let mut at = b.0;
            while at > f.0 && (at as usize) < self.idom.len() - 1 {
                at = self.idom[at as usize];
            }
            at == f.0 && f.0 > a.0
        };
        // Fences are in the order of their places.
        let first = self.fences.partition_point(|f| f.0 < a);
        self.fences[first..].iter().take_while(|f| f.0 < b).find(|f| on_the_way(f.0)).map(|f| f.1)
    }

    /// Whether two accesses have a byte in common: surely, perhaps (`Some(false)`), or not at all.
    fn overlap(&self, a: &Access, b: &Access) -> Option<bool> {
        if a.loose || b.loose || !a.space.overlaps(b.space) {
            return None;
        }
        let (Some((x, m)), Some((y, n))) = (&a.place, &b.place) else { return Some(false) };
        // A generic address of global memory is the same number.
        let number = |s: MemorySpace| match s {
            MemorySpace::Generic => MemorySpace::Global,
            s => s,
        };
        if number(a.space) != number(b.space) {
            return Some(false);
        }
        let difference = y.plus(x, -1);
        if self.values.of_two_variables(&difference) {
            return None;
        }
        if !difference.terms.is_empty() {
            return Some(false);
        }
        let by = match number(a.space) {
            MemorySpace::Global => difference.constant,
            _ => i64::from(difference.constant as i32),
        };
        if b.at.0 != a.at.0 && x.terms.iter().any(|(u, _)| self.rounds.get(u).is_some_and(|r| r.0 == a.at.0))
        {
            return self.overlap_of_rounds(a.at.0, x, by, (*m, *n));
        }
        (by < i64::from(*m) && -by < i64::from(*n)).then_some(true)
    }

    /// Whether an access that stands behind a loop of one block, `by` bytes from where one of `x` in that block is in the last round, may
    /// have a byte in common with that of any round. `sizes`: of both. (Rounds do not go around all addresses: on the way they would
    /// access what there is not.)
    fn overlap_of_rounds(&self, block: u32, x: &Linear, by: i64, sizes: (u32, u32)) -> Option<bool> {
        let step = x.terms.iter().try_fold(0i64, |sum, (u, factor)| match self.rounds.get(u) {
            Some((of, Some(step))) if *of == block => sum.checked_add(step.checked_mul(*factor)?),
            _ => None,
        });
        // The round before the last one is a step back: further from what stands behind the loop, or nearer to it.
        let above = by >= i64::from(sizes.0);
        let below = by.checked_neg().is_some_and(|by| by >= i64::from(sizes.1));
        let apart = step.is_some_and(|step| step >= 0 && above || step <= 0 && below);
        (!apart).then_some(false)
    }
}
