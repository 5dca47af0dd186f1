//! Which values are the same in all lanes of a warp, and which branches all lanes take alike.
//!
//! A value is divergent when it is computed by an instruction that tells lanes apart or from a divergent value,
//! when it is a parameter of a block where lanes come together that parted at a divergent branch, and when it
//! leaves a loop that lanes leave at different times.

use crate::block_set::Seen;
use crate::cfg::{Cfg, PostDom};
use crate::function::{Block, Function, Inst, Name, Value};
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use sass::RegFile;

/// Branches and values that lanes may not agree on.
pub struct Uniformity {
    values: FixedBitSet,
    branches: FixedBitSet,
}

impl Uniformity {
    /// Analyses a function in SSA without switches.
    pub fn new(func: &Function, cfg: &Cfg) -> Uniformity {
        let post = PostDom::new(cfg);
        let mut uses: SecondaryMap<Value, Vec<User>> = SecondaryMap::new();
        let mut state = State {
            divergent: FixedBitSet::with_capacity(func.values.len()),
            branches: FixedBitSet::with_capacity(func.blocks.len()),
            work: Vec::new(),
            seen: Seen::new(func.blocks.len()),
        };
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            for &i in &data.insts {
                let d = &func.insts[i];
                d.for_each_use(|n| n.value().into_iter().for_each(|v| uses[v].push(User::Inst(i))));
                if !d.follows_operands() {
                    d.for_each_def(|n| state.mark(func, n));
                }
            }
            if let Some(v) = data.term.used_name().and_then(Name::value) {
                uses[v].push(User::Branch(b));
            }
            for t in data.term.targets() {
                for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                    uses[*a].push(User::Param(*p));
                }
            }
        }
        for p in &func.blocks[func.entry_block()].params {
            state.mark(func, Name::Val(*p));
        }
        while let Some(v) = state.work.pop() {
            for user in &uses[v] {
                match *user {
                    User::Inst(i) => func.insts[i].for_each_def(|n| state.mark(func, n)),
                    User::Param(p) => state.mark(func, Name::Val(p)),
                    User::Branch(b) => state.part(func, cfg, &post, b),
                }
            }
        }
        Uniformity { values: state.divergent, branches: state.branches }
    }

    /// Whether lanes may part at the end of `b`.
    pub fn is_divergent_branch(&self, b: Block) -> bool {
        self.branches.contains(b.index())
    }

    /// Whether lanes may have different contents in `v`.
    pub fn is_divergent(&self, v: Value) -> bool {
        self.values.contains(v.index())
    }
}

/// What reads a value.
#[derive(Clone, Copy)]
enum User {
    Inst(Inst),
    Param(Value),
    Branch(Block),
}

struct State {
    divergent: FixedBitSet,
    branches: FixedBitSet,
    work: Vec<Value>,
    seen: Seen,
}

impl State {
    fn mark(&mut self, func: &Function, n: Name) {
        if let Name::Val(v) = n
            && !matches!(func.values[v].file, RegFile::UR | RegFile::UP)
            && !self.divergent.put(v.index())
        {
            self.work.push(v);
        }
    }

    /// Lanes part at the end of `b`: what they bring to the places where they meet again differs.
    fn part(&mut self, func: &Function, cfg: &Cfg, post: &PostDom, b: Block) {
        if self.branches.put(b.index()) {
            return;
        }
        let end = post.ipdom(b);
        let mut region: Vec<Block> = Vec::new();
        let mut stack: Vec<Block> = cfg.succs[b].to_vec();
        self.seen.restart();
        while let Some(x) = stack.pop() {
            if !self.seen.put(x) {
                region.push(x);
                if Some(x) != end {
                    stack.extend(&cfg.succs[x]);
                }
            }
        }
        // Lanes that come back to the branch leave a loop at different times.
        let loops = self.seen.put(b);
        for x in region {
            for p in &func.blocks[x].params {
                self.mark(func, Name::Val(*p));
            }
            if loops && Some(x) != end {
                for i in &func.blocks[x].insts {
                    func.insts[*i].for_each_def(|n| self.mark(func, n));
                }
            }
        }
    }
}
