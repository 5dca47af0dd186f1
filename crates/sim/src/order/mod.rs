//! The order checker: for every two accesses of memory that PTX keeps in order, the code keeps them in that order.
//!
//! Each instruction of the code says which line of the PTX it comes from (`.nv_debug_line_sass`, which ptxas writes
//! too), and with space and direction that tells which access of the PTX it does. What PTX keeps in order is read off
//! the PTX alone ([`ptx`]). The order is wrong where the later access stands before the earlier one on every way to
//! that: before it in its block, or in a block that dominates it.

mod families;
mod fences;
mod linear;
mod mined;
mod ptx;
mod split;

pub use families::{Deed, Family, Side, Space};
pub use fences::{Broken, Need, Scope};
pub use mined::Pairs;
pub use ptx::Why;
pub use split::{Split, one_per_line};

use crate::FileError;
use crate::hazard::flow;
use ::ptx::{FuncId, LineIndex, Module};
use ptx::{Access, Program};
use sass::memory::{MemoryEffect, MemoryEffects, MemorySpace};
use sass::{Guard, Inst, Opcode, Operand, Target};
use std::collections::{BTreeMap, BTreeSet};

/// How much to believe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The compiler may have copied instructions (unrolled loops) and may know better than the checker what cannot overlap:
    /// only lines with one instruction count, and only overlaps that are certain.
    pub foreign: bool,
    /// Most pairs of accesses of a function that are looked at: only those that the code has in another order than the PTX
    /// are. Accesses that are left over are counted as [`Stats::unchecked`].
    pub pairs: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { foreign: false, pairs: 4_000_000 }
    }
}

/// Two accesses in the wrong order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Violation {
    /// Byte offsets: of the instruction that should come first, and of the one that does.
    pub at: (u64, u64),
    /// Lines of the PTX: the earlier, the later one.
    pub lines: (u32, u32),
    /// Why they keep their order.
    pub why: Why,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { at, lines, why } = self;
        write!(
            f,
            "/*{:04x}*/ (line {} of the PTX) comes after /*{:04x}*/ (line {}), but {why}",
            at.0, lines.0, at.1, lines.1
        )
    }
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Instructions.
    pub instructions: usize,
    /// Accesses of memory among them, spills included.
    pub accesses: usize,
    /// Instructions whose access of PTX is known.
    pub matched: usize,
    /// Instructions of statements that begin, end, wait for or order asynchronous work and access nothing themselves.
    pub asynchronous: usize,
    /// Those among both that were not held against all others, as there were too many.
    pub unchecked: usize,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.instructions += other.instructions;
        self.accesses += other.accesses;
        self.matched += other.matched;
        self.asynchronous += other.asynchronous;
        self.unchecked += other.unchecked;
    }
}

/// Code with the line of the PTX that each instruction comes from (0: none).
#[derive(Clone, Debug)]
pub struct Code {
    /// Instructions; `None` where the table has no form.
    pub insts: Vec<Option<Inst>>,
    /// Lines.
    pub lines: Vec<u32>,
}

impl Code {
    /// From instructions and a table of lines by offset.
    pub fn new(insts: Vec<Option<Inst>>, table: &[(u64, u32)]) -> Code {
        let line = |k: usize| {
            let after = table.partition_point(|row| row.0 <= 16 * k as u64);
            after.checked_sub(1).map_or(0, |n| table[n].1)
        };
        Code { lines: (0..insts.len()).map(line).collect(), insts }
    }

    /// Instructions that control comes to from elsewhere than the one before them.
    pub fn leaders(&self, functions: &[usize]) -> Vec<bool> {
        flow::Graph::new(&self.insts, functions).leader
    }
}

/// An instruction that does an access of the PTX.
#[derive(Clone, Copy)]
struct Done {
    at: usize,
    block: u32,
    access: usize,
}

fn is_never(inst: &Inst) -> bool {
    inst.guard == (Guard { not: true, ..Guard::TRUE })
}

/// Whether the instruction can be what does the access.
fn does(inst: &Inst, access: &Access) -> bool {
    if let Some(family) = access.family {
        return family.is_done_by(inst) && (access.bare || !is_never(inst) && !is_local(inst));
    }
    let accesses = match inst.op.info().accesses {
        MemoryEffects::None | MemoryEffects::ReadOnly => return false,
        // Fences of their own come with other statements, too.
        MemoryEffects::Fence => {
            let fence = matches!(
                inst.op,
                Opcode::MEMBAR | Opcode::ERRBAR | Opcode::CGAERRBAR | Opcode::CCTL | Opcode::FENCE
            );
            return access.synchronizes && !fence;
        }
        MemoryEffects::Accesses(a) => a,
    };
    // An instruction that never runs is there for its scoreboard.
    if is_never(inst) {
        return false;
    }
    accesses.iter().any(|a| {
        let space = access.space.overlaps(a.space) || access.space == MemorySpace::Generic;
        let effect = match a.effect {
            MemoryEffect::Read => access.reads,
            MemoryEffect::Write => access.writes,
            MemoryEffect::Atomic => access.reads || access.writes,
        };
        space && effect
    })
}

fn has_effect(inst: &Inst, is: impl Fn(MemoryEffect) -> bool) -> bool {
    match inst.op.info().accesses {
        MemoryEffects::Accesses(of) => of.iter().any(|a| is(a.effect)),
        _ => false,
    }
}

fn is_local(inst: &Inst) -> bool {
    match inst.op.info().accesses {
        MemoryEffects::Accesses(of) => !of.is_empty() && of.iter().all(|a| a.space == MemorySpace::Local),
        _ => false,
    }
}

/// Whether two instructions surely access a word in common, and one of them writes it: by their addresses, if the registers of
/// these do not change between them. So it is with the fields of tensor maps, which the PTX does not give as words.
fn share_word(code: &Code, i: usize, j: usize) -> bool {
    let place = |k: usize| {
        let inst = code.insts[k].as_ref()?;
        let MemoryEffects::Accesses([access]) = inst.op.info().accesses else { return None };
        let address = inst.operands.iter().find(|o| matches!(o, Operand::Addr { .. }))?;
        let Operand::Addr { base, uniform, offset, .. } = address else { return None };
        let bytes = i64::from(access.size(&inst.mods)?);
        Some((*base, *uniform, i64::from(*offset), bytes, access.effect != MemoryEffect::Read))
    };
    let (Some(a), Some(b)) = (place(i), place(j)) else { return false };
    let overlap = (a.0, a.1) == (b.0, b.1) && a.2 < b.2 + b.3 && b.2 < a.2 + a.3 && (a.4 || b.4);
    let stays = |inst: &Option<Inst>| {
        let Some(inst) = inst else { return false };
        let mut kept = !inst.op.info().control;
        crate::hazard::access::writes(inst, |cell| {
            let r = crate::hazard::access::register(cell);
            let near = |of: sass::Reg| of.file == r.file && (of.index == r.index || of.index + 1 == r.index);
            kept &= ![a.0, a.1].into_iter().flatten().any(near);
        });
        kept
    };
    overlap && code.insts[i.min(j)..i.max(j)].iter().all(stays)
}

/// Blocks of the code.
struct Blocks {
    /// The block of each instruction, numbered in reverse postorder; `u32::MAX` where control never comes.
    of: Vec<u32>,
    idom: Vec<u32>,
}

impl Blocks {
    fn new(code: &Code, functions: &[usize]) -> Blocks {
        let count = code.insts.len();
        let graph = flow::Graph::new(&code.insts, functions);
        let mut start: Vec<usize> = (0..count).filter(|k| graph.leader[*k]).collect();
        if start.first() != Some(&0) {
            start.insert(0, 0);
        }
        let block_at = |k: usize| start.partition_point(|s| *s <= k) - 1;
        let succs = |b: usize| {
            let last = start.get(b + 1).map_or(count, |s| *s) - 1;
            let next = flow::next(code.insts[last].as_ref(), last, count);
            let mut out: Vec<usize> = next.target.map(block_at).into_iter().collect();
            if next.falls && last + 1 < count {
                out.push(block_at(last + 1));
            }
            out
        };
        let roots: Vec<usize> = graph.roots.iter().map(|k| block_at(*k)).collect();
        let order = ptx::reverse_postorder(&roots, &succs, start.len());
        let mut number = vec![u32::MAX; start.len()];
        for (k, b) in (0..).zip(&order) {
            number[*b] = k;
        }
        let mut preds = vec![Vec::new(); order.len()];
        for (k, b) in (0..).zip(&order) {
            succs(*b).into_iter().for_each(|s| preds[number[s] as usize].push(k));
        }
        let is_root: Vec<bool> = order.iter().map(|b| roots.contains(b)).collect();
        let idom = ptx::dominators(&preds, &is_root);
        Blocks { of: (0..count).map(|k| number[block_at(k)]).collect(), idom }
    }

    /// Whether control comes to block `b` over block `a` only.
    fn dominates(&self, a: u32, b: u32) -> bool {
        let mut at = b;
        while at > a && (at as usize) < self.idom.len() - 1 {
            at = self.idom[at as usize];
        }
        at == a
    }
}

/// Accesses that come before a point of the code, by their places in the PTX and in the code.
#[derive(Default)]
struct Earlier {
    /// Reads that only fences and those who write keep in order.
    plain: BTreeMap<((u32, u32), usize), Done>,
    others: BTreeMap<((u32, u32), usize), Done>,
}

impl Earlier {
    fn add(&mut self, program: &Program, d: Done) {
        let access = &program.accesses[d.access];
        let to = if access.is_plain_read() { &mut self.plain } else { &mut self.others };
        to.insert((access.at, d.at), d);
    }

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.others.is_empty()
    }

    /// Those that the PTX has behind `access`, so that the order of the two matters.
    fn behind<'a>(&'a self, program: &Program, access: &Access) -> impl Iterator<Item = &'a Done> {
        let (line, last) = access.at;
        let from = (line, last + 1);
        // Two plain reads matter only with a fence between them.
        let plain = if access.is_plain_read() { program.next_fence(access.at) } else { Some(from) };
        let plain = plain.map(|from| self.plain.range((from, 0)..)).into_iter().flatten();
        plain.chain(self.others.range((from, 0)..)).map(|e| e.1)
    }
}

/// Checks the code of one function of the PTX; other functions' instructions in it have other lines.
pub fn check_function(
    module: &Module,
    func: FuncId,
    lines: &LineIndex,
    code: &Code,
    functions: &[usize],
    options: Options,
) -> Kernel {
    let func = &module.funcs[func];
    let programs = Program::new(module, func, lines).into_iter().collect();
    Checker { name: func.name.clone(), programs }.check(code, functions, options)
}

fn check_program(
    program: &Program,
    code: &Code,
    functions: &[usize],
    options: Options,
    pairs: Option<&mut Pairs>,
) -> (Vec<Violation>, Vec<Broken>, Stats) {
    let mut stats = Stats { instructions: code.insts.len(), ..Stats::default() };
    let blocks = Blocks::new(code, functions);
    let mut done: Vec<Done> = Vec::new();
    let mut copies: BTreeMap<(usize, Opcode), usize> = BTreeMap::new();
    let swapped: BTreeSet<usize> = code
        .insts
        .iter()
        .zip(&code.lines)
        .filter(|(inst, _)| inst.as_ref().is_some_and(|i| has_effect(i, |e| e == MemoryEffect::Atomic)))
        .filter_map(|(_, line)| program.by_line.get(line).copied())
        .collect();
    // Where a compare-and-swap tells, a load in front of it only says what may be there.
    let is_guess = |inst: &Inst, access: usize| {
        let a = &program.accesses[access];
        a.reads && a.writes && swapped.contains(&access) && !has_effect(inst, |e| e != MemoryEffect::Read)
    };
    for (at, (inst, line)) in code.insts.iter().zip(&code.lines).enumerate() {
        let Some(inst) = inst else { continue };
        let here = program.by_line.get(line).copied();
        let bare = here.is_some_and(|access| program.accesses[access].bare);
        if !inst.op.info().memory && !bare {
            continue;
        }
        if !matches!(inst.op.info().accesses, MemoryEffects::Fence | MemoryEffects::None) {
            stats.accesses += 1;
        }
        let Some(access) = here else { continue };
        // Local memory holds a register there that is brought back for it.
        if program.accesses[access].copies && is_local(inst) {
            continue;
        }
        // The reference compiler gives products the line of what stands before them.
        let astray = options.foreign && program.accesses[access].family == Some(Family::Product);
        if blocks.of[at] != u32::MAX
            && !astray
            && does(inst, &program.accesses[access])
            && !is_guess(inst, access)
        {
            *(if bare { &mut stats.asynchronous } else { &mut stats.matched }) += 1;
            *copies.entry((access, inst.op)).or_default() += 1;
            done.push(Done { at, block: blocks.of[at], access });
        }
    }
    // A spill on the line of an access of unknown space is none.
    let outside = |d: &&Done| code.insts[d.at].as_ref().is_some_and(|i| !is_local(i));
    let broken = fences::check(
        program,
        code,
        &done.iter().filter(outside).copied().collect::<Vec<_>>(),
        options.foreign,
    );
    // Spills look like accesses of local memory.
    let op = |d: &Done| code.insts[d.at].as_ref().map(|i| (d.access, i.op));
    let single = |d: &Done| op(d).is_some_and(|one| copies[&one] == 1);
    done.retain(|d| {
        let local = program.accesses[d.access].space == MemorySpace::Local;
        single(d) || !options.foreign && !local
    });
    if let Some(pairs) = pairs {
        mined::count(program, &done, pairs);
    }
    let (violations, unchecked) = search(program, code, &blocks, &done, options);
    stats.unchecked = unchecked;
    (violations, broken, stats)
}

/// Whether, of a loop's body that the code has several times, the access `second` has an instruction of the access that should
/// come before it for each of its own up to there: then `first`, which stands behind it, is one of a later round. Plain reads may
/// have been left out where a round knows what it would read; of them one must be there, or, as only the last round's may be needed,
/// the access `second` has an instruction behind it, too. Instructions of other opcodes do other parts of a statement.
fn is_of_a_later_round(
    program: &Program,
    code: &Code,
    blocks: &Blocks,
    done: &[Done],
    first: &Done,
    second: &Done,
) -> bool {
    // Whether the first of two stands in front of the other, or is it.
    let in_front = |d: &Done, of: &Done| match d.block == of.block {
        true => d.at <= of.at,
        false => blocks.dominates(d.block, of.block),
    };
    let op = |d: &Done| code.insts[d.at].as_ref().map(|i| i.op);
    let all = |of: &Done| {
        let (access, op_of) = (of.access, op(of));
        done.iter().filter(move |d| d.access == access && op(d) == op_of)
    };
    let above = |of: &Done| all(of).filter(|d| in_front(d, second)).count();
    if program.accesses[first.access].is_plain_read() {
        return above(first) > 0 || all(second).any(|d| in_front(first, d));
    }
    above(first) >= above(second)
}

/// Looks for pairs in the wrong order: of each access and those before it, in its block and in those that dominate it, that
/// the PTX has behind it. Also counts the accesses for which there were too many.
fn search(
    program: &Program,
    code: &Code,
    blocks: &Blocks,
    done: &[Done],
    options: Options,
) -> (Vec<Violation>, usize) {
    let count = blocks.idom.len() - 1;
    let mut by_block: Vec<Vec<Done>> = vec![Vec::new(); count];
    done.iter().for_each(|d| by_block[d.block as usize].push(*d));
    let mut earlier: Vec<Earlier> = Vec::with_capacity(count);
    // The nearest block above each that has accesses, and the latest place in the PTX of an access above it.
    let mut above: Vec<Option<usize>> = Vec::with_capacity(count);
    let mut latest: Vec<Option<(u32, u32)>> = Vec::with_capacity(count);
    let mut found = BTreeSet::new();
    let (mut budget, mut unchecked) = (options.pairs, 0);
    for (b, accesses) in by_block.iter().enumerate() {
        let idom = blocks.idom[b] as usize;
        let up = match idom < b {
            true if earlier[idom].is_empty() => above[idom],
            true => Some(idom),
            false => None,
        };
        let inherited = up.and_then(|up| latest[up]);
        let mut here = Earlier::default();
        for first in accesses {
            let x = &program.accesses[first.access];
            let mut complete = true;
            let mut look = |among: &Earlier| {
                for second in among.behind(program, x) {
                    let Some(rest) = budget.checked_sub(1) else {
                        complete = false;
                        return;
                    };
                    budget = rest;
                    let y = &program.accesses[second.access];
                    if !program.precedes(x, y) {
                        continue;
                    }
                    let words = || {
                        let both = x.loose && y.loose && !options.foreign;
                        (both && share_word(code, first.at, second.at)).then_some(Why::Overlap)
                    };
                    if let Some(why) = program.ordered(x, y, options.foreign).or_else(words)
                        && !(program.share_loop(x, y)
                            && is_of_a_later_round(program, code, blocks, done, first, second))
                    {
                        found.insert(Violation {
                            at: (16 * first.at as u64, 16 * second.at as u64),
                            lines: (x.line, y.line),
                            why,
                        });
                    }
                }
            };
            look(&here);
            let mut at = up;
            while let Some(n) = at.filter(|n| latest[*n].is_some_and(|l| l > x.at)) {
                look(&earlier[n]);
                at = above[n];
            }
            unchecked += usize::from(!complete);
            here.add(program, *first);
        }
        let last = accesses.iter().map(|d| program.accesses[d.access].at).max();
        earlier.push(here);
        above.push(up);
        latest.push(last.max(inherited));
    }
    (found.into_iter().collect(), unchecked)
}

impl Kernel {
    /// Whether nothing was found.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.broken.is_empty()
    }

    /// What was found, a line each.
    pub fn findings(&self) -> impl Iterator<Item = String> {
        let exchanged = self.violations.iter().map(ToString::to_string);
        exchanged.chain(self.broken.iter().map(ToString::to_string))
    }
}

/// Findings of a kernel.
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// What is out of order.
    pub violations: Vec<Violation>,
    /// Fences, barriers and strong accesses that are not what the PTX asks for.
    pub broken: Vec<Broken>,
    /// What was looked at.
    pub stats: Stats,
}

/// The kernels of a cubin with their lines of PTX, and offsets of the functions in each.
///
/// # Errors
/// When the file is not a cubin for a known target, or says nothing of lines.
pub fn load(cubin: &[u8]) -> Result<Vec<(String, Code, Vec<usize>)>, FileError> {
    let image = cubin::read::read(cubin)?;
    let target = Target::new(image.sm).ok_or(FileError::Target(image.sm))?;
    let tables = cubin::read_lines::ptx_lines(cubin)?;
    let mut out = Vec::new();
    for (name, k) in image.kernels {
        let Some(table) = tables.get(&name) else { continue };
        let insts = (0..).zip(&k.code).map(|(n, w)| sass::decode(*w, target, 16 * n).ok()).collect();
        let functions = k.functions.iter().map(|f| f.1 as usize / 16).collect();
        out.push((name, Code::new(insts, table), functions));
    }
    if out.is_empty() {
        return Err(FileError::NoLines);
    }
    Ok(out)
}

/// Checks every kernel of a cubin, which has lines of the PTX (`-lineinfo`), with the functions in its code.
///
/// # Errors
/// As [`load`].
pub fn check_cubin(
    module: &Module,
    source: &str,
    cubin: &[u8],
    options: Options,
) -> Result<Vec<Kernel>, FileError> {
    let lines = LineIndex::new(source);
    let check = |(name, code, functions): (String, Code, Vec<usize>)| {
        check_kernel(module, &lines, &name, &code, &functions, options)
    };
    Ok(load(cubin)?.into_iter().map(check).collect())
}

/// Checks the code of a kernel and of the functions in it.
pub fn check_kernel(
    module: &Module,
    lines: &LineIndex,
    name: &str,
    code: &Code,
    functions: &[usize],
    options: Options,
) -> Kernel {
    Checker::new(module, lines, name).check(code, functions, options)
}

/// What the PTX says of a kernel and of the functions that may be in its code, for several versions of that.
pub struct Checker<'m> {
    name: String,
    programs: Vec<Program<'m>>,
}

impl<'m> Checker<'m> {
    /// Reads the kernel.
    pub fn new(module: &'m Module, lines: &LineIndex, name: &str) -> Checker<'m> {
        let in_it = |f: &&'m ::ptx::Func| !f.entry || f.name == name;
        let programs = module.funcs.values().filter(in_it).filter_map(|f| Program::new(module, f, lines));
        Checker { name: name.into(), programs: programs.collect() }
    }

    /// Counts which statements the code has in the order of the PTX, and which in another.
    pub fn count(&self, code: &Code, functions: &[usize], options: Options, pairs: &mut Pairs) {
        for program in &self.programs {
            check_program(program, code, functions, options, Some(pairs));
        }
    }

    /// Checks its code.
    pub fn check(&self, code: &Code, functions: &[usize], options: Options) -> Kernel {
        let mut kernel = Kernel {
            name: self.name.clone(),
            violations: Vec::new(),
            broken: Vec::new(),
            stats: Stats::default(),
        };
        for program in &self.programs {
            let (violations, broken, stats) = check_program(program, code, functions, options, None);
            kernel.violations.extend(violations);
            kernel.broken.extend(broken);
            let Stats { matched, asynchronous, unchecked, .. } = kernel.stats;
            kernel.stats = stats;
            kernel.stats.matched += matched;
            kernel.stats.asynchronous += asynchronous;
            kernel.stats.unchecked += unchecked;
        }
        kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a fence between two reads says of a kernel in which they change places.
    fn exchanged(space: &str, load: &str) -> Vec<Why> {
        let source = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
             .reg .b32 %r<4>; .reg .b64 %d<2>; .shared .b32 s; .local .b32 l;\n\
             ld.param.u64 %d1, [p];\n\
             ld.shared.u32 %r1, [s];\n\
             bar.sync 0;\n\
             {space};\n\
             ret;\n}}\n"
        );
        let module = ::ptx::parse(&source).expect("PTX");
        let target = Target::new(90).expect("target");
        let insts = [load, "BAR.SYNC.DEFER_BLOCKING 0x0", "LDS R2, [R4]", "EXIT"];
        let insts = insts.map(|i| Some(sass::parse_inst(i, target).unwrap_or_else(|e| panic!("{i}: {e}"))));
        let code = Code { insts: insts.into(), lines: vec![10, 9, 8, 11] };
        let lines = LineIndex::new(&source);
        let kernel = check_kernel(&module, &lines, "k", &code, &[], Options::default());
        assert_eq!(kernel.stats.matched, 2);
        kernel.violations.into_iter().map(|v| v.why).collect()
    }

    #[test]
    fn registers_that_come_back_for_a_copy_are_not_the_copy() {
        let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %d<2>; .shared .align 16 .b64 s[4];\n\
                      ld.param.u64 %d1, [p];\nmbarrier.arrive.expect_tx.shared.b64 _, [s], 16;\n\
                      cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+16], [%d1], 16, [s];\nret;\n}\n";
        let module = ::ptx::parse(source).expect("PTX");
        let target = Target::new(90).expect("target");
        let insts = [
            "LDL R8, [R1+0xc]",
            "SYNCS.ARRIVE.TRANS64 RZ, [R4+URZ], R5",
            "UBLKCP.S.G [UR4], [UR6], UR8",
            "EXIT",
        ];
        let insts = insts.map(|i| Some(sass::parse_inst(i, target).unwrap_or_else(|e| panic!("{i}: {e}"))));
        let code = Code { insts: insts.into(), lines: vec![9, 8, 9, 10] };
        let kernel = check_kernel(&module, &LineIndex::new(source), "k", &code, &[], Options::default());
        assert_eq!((kernel.stats.matched, kernel.violations.len()), (2, 0));
    }

    #[test]
    fn barriers_do_not_order_local_memory() {
        let global = exchanged("ld.global.u32 %r2, [%d1]", "LDG.E R3, desc[UR4][R6.64]");
        assert!(global.contains(&Why::Fence(9)), "{global:?}");
        // The load of shared memory stands behind the barrier, whatever is in front.
        let local = exchanged("ld.local.u32 %r2, [l]", "LDL R3, [R1]");
        assert_eq!(local, [Why::Asynchronous(None, Some(Family::Block))]);
    }

    /// What is said where the store behind a loop, at `behind`, comes before that of the loop, whose address goes on by `step`.
    fn before_a_loop(step: i64, behind: i64) -> Vec<Why> {
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
             .reg .pred %q; .reg .b64 %i, %p; ld.param.u64 %p, [p]; mov.b64 %i, 0;\n\
             L: st.global.u64 [%p+-8], %i;\n\
             add.s64 %p, %p, {step}; add.s64 %i, %i, 1; setp.lt.s64 %q, %i, 3; @%q bra L;\n\
             st.global.u64 [%p+{behind}], %i;\n\
             ret;\n}}\n"
        );
        let module = ::ptx::parse(&source).expect("PTX");
        let target = Target::new(75).expect("target");
        let insts = ["STG.E.64.SYS [R2+0x10], R6", "STG.E.64.SYS [R2+-0x8], R8", "EXIT"];
        let insts = insts.map(|i| Some(sass::parse_inst(i, target).unwrap_or_else(|e| panic!("{i}: {e}"))));
        let code = Code { insts: insts.into(), lines: vec![9, 7, 10] };
        let kernel = check_kernel(&module, &LineIndex::new(&source), "k", &code, &[], Options::default());
        assert_eq!(kernel.stats.matched, 2);
        kernel.violations.into_iter().map(|v| v.why).collect()
    }

    /// From [p-8], [p+8], [p+24] the next is [p+40]: none of them is. What lies on the way of a round, or was there in one, may be.
    #[test]
    fn rounds_of_a_loop_leave_what_is_ahead_alone() {
        assert_eq!(before_a_loop(16, 0), []);
        assert_eq!(before_a_loop(16, -16), []);
        assert_eq!(before_a_loop(16, -17), [Why::MayOverlap]);
        assert_eq!(before_a_loop(16, -24), [Why::MayOverlap]);
        assert_eq!(before_a_loop(16, -32), [Why::MayOverlap], "it may be that of the round before");
        assert_eq!(before_a_loop(-16, 0), []);
        assert_eq!(before_a_loop(-16, 1), [Why::MayOverlap]);
        assert_eq!(before_a_loop(-16, 16), [Why::MayOverlap]);
        assert_eq!(before_a_loop(-16, 24), [Why::MayOverlap]);
        assert_eq!(before_a_loop(0, 0), []);
        assert_eq!(before_a_loop(0, -16), []);
        assert_eq!(before_a_loop(0, -8), [Why::MayOverlap]);
    }
}
