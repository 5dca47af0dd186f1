//! The basic blocks of a PTX function body.

use crate::func::Result;
use cranelift_entity::SecondaryMap;
use ptx::{Inst, LabelId, Stmt};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The PTX basic blocks of a function body.
pub(crate) struct Graph {
    /// Whether it is a kernel's.
    pub(crate) entry: bool,
    /// Statements of each block.
    pub(crate) ranges: Vec<std::ops::Range<usize>>,
    pub(crate) succs: Vec<SmallVec<[u32; 2]>>,
    pub(crate) of_label: SecondaryMap<LabelId, u32>,
    tables: FxHashMap<LabelId, Vec<LabelId>>,
}

impl Graph {
    /// Whether a block ends with the instruction.
    pub(crate) fn is_terminator(&self, inst: &Inst) -> bool {
        match inst.op {
            ptx::Op::bra | ptx::Op::brx => true,
            ptx::Op::ret => inst.guard.is_none() || !self.entry,
            ptx::Op::exit => inst.guard.is_none(),
            _ => false,
        }
    }

    /// The graph of a kernel (`entry`) or device function, which has an empty block at its end from which it
    /// returns.
    pub(crate) fn new(body: &ptx::Body, entry: bool) -> Result<Graph> {
        let mut g = Graph {
            entry,
            ranges: Vec::new(),
            succs: Vec::new(),
            of_label: SecondaryMap::with_default(u32::MAX),
            tables: FxHashMap::default(),
        };
        let mut start = 0;
        for (i, stmt) in body.stmts.iter().enumerate() {
            match stmt {
                Stmt::Label(l) => {
                    if i > start {
                        g.ranges.push(start..i);
                        start = i;
                    }
                    g.of_label[*l] = g.ranges.len() as u32;
                }
                Stmt::Inst(inst) if g.is_terminator(inst) => {
                    g.ranges.push(start..i + 1);
                    start = i + 1;
                }
                Stmt::BranchTargets(l, targets) => {
                    g.tables.insert(*l, targets.clone());
                }
                _ => {}
            }
        }
        g.ranges.push(start..body.stmts.len());
        if !entry {
            g.ranges.push(body.stmts.len()..body.stmts.len());
        }
        for (k, r) in g.ranges.iter().enumerate() {
            let mut succs = SmallVec::new();
            let next = k as u32 + 1;
            match body.stmts[r.clone()].last() {
                Some(Stmt::Inst(inst)) if g.is_terminator(inst) => match inst.op {
                    ptx::Op::bra => {
                        succs.push(g.target(&inst.operands[0])?);
                        if inst.guard.is_some() {
                            succs.push(next);
                        }
                    }
                    ptx::Op::brx => {
                        for l in g.table(inst)? {
                            succs.push(g.of_label[*l]);
                        }
                        if inst.guard.is_some() {
                            succs.push(next);
                        }
                    }
                    ptx::Op::ret if !entry => {
                        succs.push(g.ranges.len() as u32 - 1);
                        if inst.guard.is_some() {
                            succs.push(next);
                        }
                    }
                    _ => {}
                },
                _ if next < g.ranges.len() as u32 => succs.push(next),
                _ => {}
            }
            if succs.iter().any(|s| *s as usize >= g.ranges.len()) {
                return Err("branch to a label that is not in the code".into());
            }
            g.succs.push(succs);
        }
        Ok(g)
    }

    pub(crate) fn target(&self, o: &ptx::Operand) -> Result<u32> {
        match o {
            ptx::Operand::Label(l) => Ok(self.of_label[*l]),
            _ => Err("branch target is not a label".into()),
        }
    }

    pub(crate) fn table(&self, inst: &Inst) -> Result<&[LabelId]> {
        match inst.operands.get(1) {
            Some(ptx::Operand::Label(l)) => {
                self.tables.get(l).map(Vec::as_slice).ok_or_else(|| "no such .branchtargets".into())
            }
            _ => Err("brx.idx needs a .branchtargets label".into()),
        }
    }

    /// Reachable blocks in reverse postorder.
    pub(crate) fn order(&self) -> Vec<u32> {
        let mut seen = vec![false; self.ranges.len()];
        let mut post = Vec::new();
        let mut stack = vec![(0u32, 0usize)];
        seen[0] = true;
        while let Some((b, k)) = stack.pop() {
            match self.succs[b as usize].get(k) {
                Some(&s) => {
                    stack.push((b, k + 1));
                    if !std::mem::replace(&mut seen[s as usize], true) {
                        stack.push((s, 0));
                    }
                }
                None => post.push(b),
            }
        }
        post.reverse();
        post
    }
}

/// Which statements of a body control can come to, as far as labels and jumps say: nothing behind a jump, a return, a trap or a
/// call that never returns, unless something jumps there. What is not a graph counts as reached.
pub fn reached(module: &ptx::Module, func: &ptx::Func) -> Vec<bool> {
    let Some(body) = &func.body else { return Vec::new() };
    let mut found = vec![false; body.stmts.len()];
    let Ok(graph) = Graph::new(body, func.entry) else { return vec![true; body.stmts.len()] };
    let ends = |s: &Stmt| match s {
        Stmt::Inst(i) if i.guard.is_some() => false,
        Stmt::Inst(i) if i.op == ptx::Op::call => {
            let callee = crate::call::parts(i).map(|p| p.callee);
            matches!(callee, Some(ptx::Operand::Func(f)) if module.funcs[*f].attrs.noreturn)
        }
        Stmt::Inst(i) => i.op == ptx::Op::trap,
        _ => false,
    };
    let mut seen = vec![false; graph.ranges.len()];
    let mut open = vec![0];
    while let Some(block) = open.pop() {
        if std::mem::replace(&mut seen[block], true) {
            continue;
        }
        let range = graph.ranges[block].clone();
        let end = range.clone().find(|i| ends(&body.stmts[*i]));
        found[range.start..end.map_or(range.end, |i| i + 1)].fill(true);
        if end.is_none() {
            open.extend(graph.succs[block].iter().map(|b| *b as usize));
        }
    }
    found
}
