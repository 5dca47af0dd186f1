//! Analyses of a function, computed when they are asked for, and forgotten when a pass has changed what they rest on.

use crate::cfg::{Cfg, DomTree, PostDom};
use crate::function::Function;
use crate::known::KnownBits;
use crate::live::Live;
use crate::loops::LoopForest;
use crate::uniformity::Uniformity;
use std::cell::OnceCell;

/// What a pass has changed, from least to most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[must_use]
pub enum Changed {
    /// Nothing.
    Nothing,
    /// Instructions, values, and what terminators read; not where they lead.
    Instructions,
    /// Blocks or edges.
    Graph,
}

impl Changed {
    /// Instructions, if anything.
    pub fn instructions(any: bool) -> Changed {
        if any { Changed::Instructions } else { Changed::Nothing }
    }
    /// Blocks or edges, if anything.
    pub fn graph(any: bool) -> Changed {
        if any { Changed::Graph } else { Changed::Nothing }
    }
}

/// The analyses of one function. What has been computed stays until [`Analyses::invalidate`].
#[derive(Default)]
pub struct Analyses {
    cfg: OnceCell<Cfg>,
    dominators: OnceCell<DomTree>,
    postdominators: OnceCell<PostDom>,
    loops: OnceCell<LoopForest>,
    live: OnceCell<Live>,
    uniformity: OnceCell<Uniformity>,
    known: OnceCell<KnownBits>,
}

impl Analyses {
    /// Predecessors, successors, order.
    pub fn cfg(&self, func: &Function) -> &Cfg {
        self.cfg.get_or_init(|| Cfg::new(func))
    }
    /// The dominator tree.
    pub fn dominators(&self, func: &Function) -> &DomTree {
        self.dominators.get_or_init(|| DomTree::dominators(self.cfg(func)))
    }
    /// The postdominator tree.
    pub fn postdominators(&self, func: &Function) -> &PostDom {
        self.postdominators.get_or_init(|| PostDom::new(self.cfg(func)))
    }
    /// The loops.
    pub fn loops(&self, func: &Function) -> &LoopForest {
        self.loops.get_or_init(|| LoopForest::new(self.cfg(func), self.dominators(func)))
    }
    /// Which values are live where blocks begin and end.
    pub fn live(&self, func: &Function) -> &Live {
        self.live.get_or_init(|| Live::new(func, self.cfg(func)))
    }
    /// What is the same in all lanes.
    pub fn uniformity(&self, func: &Function) -> &Uniformity {
        self.uniformity.get_or_init(|| Uniformity::new(func, self.cfg(func)))
    }
    /// Which bits of values are known.
    pub fn known_bits(&self, func: &Function) -> &KnownBits {
        self.known.get_or_init(|| KnownBits::new(func, self.cfg(func)))
    }
    /// Forgets what does not hold after such a change.
    pub fn invalidate(&mut self, changed: Changed) {
        if changed == Changed::Graph {
            *self = Analyses::default();
        } else if changed == Changed::Instructions {
            self.live = OnceCell::new();
            self.uniformity = OnceCell::new();
            self.known = OnceCell::new();
        }
    }

    /// Whether the graph that is remembered, if one is, is that of the function: a pass that says less than it did is caught.
    pub fn is_fresh(&self, func: &Function) -> bool {
        self.cfg.get().is_none_or(|known| {
            let now = Cfg::new(func);
            now.rpo == known.rpo && now.rpo.iter().all(|b| now.succs[*b] == known.succs[*b])
        })
    }
}
