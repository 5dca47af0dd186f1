//! The order checker: for every two accesses of memory that PTX keeps in order, the code keeps them in that order.
//!
//! Each instruction of the code says which line of the PTX it comes from (`.nv_debug_line_sass`, which ptxas writes
//! too), and with space and direction that tells which access of the PTX it does. What PTX keeps in order is read off
//! the PTX alone ([`ptx`]). The order is wrong where the later access stands before the earlier one on every way to
//! that: before it in its block, or in a block that dominates it.

mod linear;
mod ptx;

pub use ptx::Why;

use crate::hazard::flow;
use ::ptx::{FuncId, LineIndex, Module};
use ptx::{Access, Program};
use sass::memory::{MemoryEffect, MemoryEffects, MemorySpace};
use sass::{Guard, Inst, Opcode, Target};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// How much to believe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The compiler may have copied instructions (unrolled loops) and may know better than the checker what cannot overlap:
    /// only lines with one instruction count, and only overlaps that are certain.
    pub foreign: bool,
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
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.instructions += other.instructions;
        self.accesses += other.accesses;
        self.matched += other.matched;
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

/// Whether the instruction can be what does the access.
fn does(inst: &Inst, access: &Access) -> bool {
    let accesses = match inst.op.info().effects {
        MemoryEffects::None => return false,
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
    if inst.guard == (Guard { not: true, ..Guard::TRUE }) {
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
}

/// Most pairs that are looked at in one block and those above it, for code without end.
const MOST_PAIRS: usize = 4_000_000;

/// Checks the code of one function of the PTX; other functions' instructions in it have other lines.
pub fn check_function(
    module: &Module,
    func: FuncId,
    lines: &LineIndex,
    code: &Code,
    functions: &[usize],
    options: Options,
) -> (Vec<Violation>, Stats) {
    let mut stats = Stats { instructions: code.insts.len(), ..Stats::default() };
    let Some(program) = Program::new(module, &module.funcs[func], lines) else {
        return (Vec::new(), stats);
    };
    let blocks = Blocks::new(code, functions);
    let mut done: Vec<Done> = Vec::new();
    let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, (inst, line)) in code.insts.iter().zip(&code.lines).enumerate() {
        let Some(inst) = inst.as_ref().filter(|i| i.op.info().memory) else { continue };
        if inst.op.info().effects != MemoryEffects::Fence {
            stats.accesses += 1;
        }
        let Some(&access) = program.by_line.get(line) else { continue };
        if blocks.of[at] != u32::MAX && does(inst, &program.accesses[access]) {
            stats.matched += 1;
            *copies.entry(access).or_default() += 1;
            done.push(Done { at, block: blocks.of[at], access });
        }
    }
    // Spills look like accesses of local memory.
    let single = |d: &Done| copies[&d.access] == 1;
    done.retain(|d| {
        let local = program.accesses[d.access].space == MemorySpace::Local;
        single(d) || !options.foreign && !local
    });
    let mut by_block: Vec<Vec<Done>> = vec![Vec::new(); blocks.idom.len()];
    done.iter().for_each(|d| by_block[d.block as usize].push(*d));
    let rank = |d: &Done| program.accesses[d.access].at;
    // The latest place in the PTX of an access in each block and those above.
    let mut latest: Vec<Option<(u32, u32)>> = vec![None; blocks.idom.len()];
    let found = RefCell::new(BTreeSet::new());
    for b in 0..by_block.len() - 1 {
        let above = blocks.idom[b] as usize;
        let inherited = if above < b { latest[above] } else { None };
        latest[b] = by_block[b].iter().map(rank).max().max(inherited);
        let budget = Cell::new(MOST_PAIRS);
        for (n, first) in by_block[b].iter().enumerate() {
            let look = |second: &Done| {
                budget.set(budget.get().saturating_sub(1));
                let (x, y) = (&program.accesses[first.access], &program.accesses[second.access]);
                if x.at >= y.at || !program.precedes(x, y) {
                    return;
                }
                if let Some(why) = program.ordered(x, y, options.foreign) {
                    found.borrow_mut().insert(Violation {
                        at: (16 * first.at as u64, 16 * second.at as u64),
                        lines: (x.line, y.line),
                        why,
                    });
                }
            };
            by_block[b][..n].iter().for_each(look);
            let mut up = above;
            while up < b && latest[up].is_some_and(|l| l > rank(first)) && budget.get() > 0 {
                by_block[up].iter().for_each(look);
                let next = blocks.idom[up] as usize;
                if next >= up {
                    break;
                }
                up = next;
            }
        }
    }
    (found.into_inner().into_iter().collect(), stats)
}

/// Findings of a kernel.
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// What is out of order.
    pub violations: Vec<Violation>,
    /// What was looked at.
    pub stats: Stats,
}

/// The kernels of a cubin with their lines of PTX, and offsets of the functions in each.
///
/// # Errors
/// When the file is not a cubin for a known target, or says nothing of lines.
pub fn load(cubin: &[u8]) -> Result<Vec<(String, Code, Vec<usize>)>, String> {
    let image = cubin::read::read(cubin)?;
    let target = Target::new(image.sm).ok_or(format!("unknown target sm_{}", image.sm))?;
    let tables = cubin::read_lines::ptx_lines(cubin)?;
    let mut out = Vec::new();
    for (name, k) in image.kernels {
        let Some(table) = tables.get(&name) else { continue };
        let insts = (0..).zip(&k.code).map(|(n, w)| sass::decode(*w, target, 16 * n).ok()).collect();
        let functions = k.functions.iter().map(|f| f.1 as usize / 16).collect();
        out.push((name, Code::new(insts, table), functions));
    }
    if out.is_empty() {
        return Err("the cubin does not say which lines of the PTX its code comes from".into());
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
) -> Result<Vec<Kernel>, String> {
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
    let mut kernel = Kernel { name: name.into(), violations: Vec::new(), stats: Stats::default() };
    let in_it = |f: &::ptx::Func| f.body.is_some() && (!f.entry || f.name == name);
    for (id, _) in module.funcs.iter().filter(|(_, f)| in_it(f)) {
        let (violations, stats) = check_function(module, id, lines, code, functions, options);
        kernel.violations.extend(violations);
        kernel.stats = Stats { matched: kernel.stats.matched + stats.matched, ..stats };
    }
    kernel
}
