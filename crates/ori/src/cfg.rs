//! Predecessors, reverse postorder, dominators, postdominators and loops.

use crate::dominators;
use crate::function::{Block, Function, Register};
use cranelift_entity::{EntityRef, SecondaryMap};
use smallvec::SmallVec;

/// The control-flow graph of the reachable blocks.
#[derive(Clone, Debug, Default)]
pub struct Cfg {
    /// Predecessors; a block that branches twice to the same target is listed twice.
    pub preds: SecondaryMap<Block, SmallVec<[Block; 4]>>,
    /// Successors.
    pub succs: SecondaryMap<Block, SmallVec<[Block; 2]>>,
    /// Reachable blocks in reverse postorder; the entry is first.
    pub rpo: Vec<Block>,
    /// Position in `rpo`; `u32::MAX` for an unreachable block.
    pub order: SecondaryMap<Block, u32>,
}

impl Cfg {
    /// Computes it.
    pub fn new<R: Register>(func: &Function<R>) -> Cfg {
        let mut cfg = Cfg { order: SecondaryMap::with_default(u32::MAX), ..Cfg::default() };
        for (b, data) in func.blocks.iter() {
            cfg.succs[b] = data.term.targets().iter().map(|t| t.block).collect();
        }
        let mut seen = vec![false; func.blocks.len()];
        let mut stack = vec![(func.entry_block(), 0)];
        seen[func.entry_block().index()] = true;
        let mut post = Vec::new();
        while let Some((b, next)) = stack.pop() {
            if let Some(&s) = cfg.succs[b].get(next) {
                stack.push((b, next + 1));
                if !std::mem::replace(&mut seen[s.index()], true) {
                    stack.push((s, 0));
                }
            } else {
                post.push(b);
            }
        }
        post.reverse();
        for (i, &b) in post.iter().enumerate() {
            cfg.order[b] = i as u32;
            for &s in &cfg.succs[b] {
                cfg.preds[s].push(b);
            }
        }
        cfg.rpo = post;
        cfg
    }

    /// Whether `b` can be reached from the entry.
    pub fn is_reachable(&self, b: Block) -> bool {
        self.order[b] != u32::MAX
    }
}

/// A dominator tree.
#[derive(Clone, Debug)]
pub struct DomTree {
    /// Immediate dominator, as a position in reverse postorder.
    idom: Vec<u32>,
    order: SecondaryMap<Block, u32>,
    blocks: Vec<Block>,
    tree: Preorder,
}

/// The numbers of a tree's nodes as a walk meets them, and the last number below each node: a node is above those between.
#[derive(Clone, Debug, Default)]
struct Preorder {
    first: Vec<u32>,
    last: Vec<u32>,
}

impl Preorder {
    /// Of the tree that `parent` gives, `u32::MAX` for a node outside of it, by `root`.
    fn new(parent: &[u32], root: usize) -> Preorder {
        let n = parent.len();
        let inside = |i: usize| i == root || parent[i] != u32::MAX;
        // Children of a node, in a list for all nodes.
        let mut start = vec![0u32; n + 1];
        (0..n).filter(|i| *i != root && inside(*i)).for_each(|i| start[parent[i] as usize + 1] += 1);
        for i in 0..n {
            start[i + 1] += start[i];
        }
        let mut fill = start.clone();
        let mut children = vec![0u32; start[n] as usize];
        for i in (0..n).filter(|i| *i != root && inside(*i)) {
            let at = &mut fill[parent[i] as usize];
            children[*at as usize] = i as u32;
            *at += 1;
        }
        let mut out = Preorder { first: vec![u32::MAX; n], last: vec![0; n] };
        let mut next = 0;
        let mut stack = vec![root as u32];
        let mut order = Vec::with_capacity(n);
        while let Some(i) = stack.pop() {
            out.first[i as usize] = next;
            out.last[i as usize] = next;
            next += 1;
            order.push(i);
            let of = start[i as usize] as usize..start[i as usize + 1] as usize;
            stack.extend(children[of].iter().rev());
        }
        for &i in order.iter().rev().filter(|i| **i as usize != root) {
            let up = parent[i as usize] as usize;
            out.last[up] = out.last[up].max(out.last[i as usize]);
        }
        out
    }

    /// Whether node `a` is `b` or above it.
    fn is_above(&self, a: usize, b: usize) -> bool {
        (self.first[a]..=self.last[a]).contains(&self.first[b]) && self.first[a] != u32::MAX
    }
}

impl DomTree {
    /// Dominators of the reachable blocks.
    pub fn dominators(cfg: &Cfg) -> DomTree {
        let number = |b: &Block| cfg.order[*b] as usize;
        let idom = dominators::immediate(
            cfg.rpo.len(),
            0,
            |i, f| cfg.succs[cfg.rpo[i]].iter().map(number).for_each(f),
            |i, f| cfg.preds[cfg.rpo[i]].iter().map(number).for_each(f),
        );
        let tree = Preorder::new(&idom, 0);
        DomTree { idom, order: cfg.order.clone(), blocks: cfg.rpo.clone(), tree }
    }

    /// Immediate dominator; `None` for the entry and unreachable blocks.
    pub fn idom(&self, b: Block) -> Option<Block> {
        let i = self.order[b] as usize;
        (i != 0 && i < self.idom.len()).then(|| self.blocks[self.idom[i] as usize])
    }

    /// Whether `a` dominates `b` (every block dominates itself).
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (a, b) = (self.order[a], self.order[b]);
        a != u32::MAX && b != u32::MAX && self.tree.is_above(a as usize, b as usize)
    }

    /// The nearest common dominator. The way up from `a` is what it takes: of many blocks, `a` is what was found for those before.
    pub fn common(&self, a: Block, b: Block) -> Block {
        let (mut at, b) = (self.order[a] as usize, self.order[b] as usize);
        while !self.tree.is_above(at, b) {
            at = self.idom[at] as usize;
        }
        self.blocks[at]
    }
}

/// Immediate postdominators, with a virtual exit behind every block that ends the thread.
#[derive(Clone, Debug)]
pub struct PostDom {
    ipdom: SecondaryMap<Block, Option<Block>>,
    /// Number of each block in the tree; the virtual exit is 0, and what can't reach it has none.
    position: SecondaryMap<Block, u32>,
    tree: Preorder,
}

impl PostDom {
    /// Computes them. Blocks that cannot reach an exit (endless loops) have none.
    pub fn new(cfg: &Cfg) -> PostDom {
        // Node 0 is the virtual exit, node i + 1 the block at i in reverse postorder; edges are turned around.
        let n = cfg.rpo.len() + 1;
        let number = |b: &Block| cfg.order[*b] as usize + 1;
        let exits = || (1..n).filter(|i| cfg.succs[cfg.rpo[i - 1]].is_empty());
        let idom = dominators::immediate(
            n,
            0,
            |i, f| match i {
                0 => exits().for_each(f),
                _ => cfg.preds[cfg.rpo[i - 1]].iter().map(number).for_each(f),
            },
            |i, f| match cfg.succs[cfg.rpo[i - 1]].as_slice() {
                [] => f(0),
                to => to.iter().map(number).for_each(f),
            },
        );
        let mut ipdom = SecondaryMap::with_default(None);
        let mut position = SecondaryMap::new();
        for (i, &b) in cfg.rpo.iter().enumerate().filter(|(i, _)| idom[i + 1] != dominators::NONE) {
            position[b] = i as u32 + 1;
            ipdom[b] = idom[i + 1].checked_sub(1).map(|above| cfg.rpo[above as usize]);
        }
        PostDom { ipdom, position, tree: Preorder::new(&idom, 0) }
    }

    /// Whether every way from `b` to an exit leads through `a`.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (x, y) = (self.position[a] as usize, self.position[b] as usize);
        a == b || x != 0 && y != 0 && self.tree.is_above(x, y)
    }

    /// The nearest block that every path from `b` to the end goes through; `None` if there is none.
    pub fn ipdom(&self, b: Block) -> Option<Block> {
        self.ipdom[b]
    }
}
