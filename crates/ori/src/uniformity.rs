//! Which values are the same in all lanes of a warp, and which branches all lanes take alike.
//!
//! A value is divergent when it is computed by an instruction that tells lanes apart or from a divergent value,
//! when it is a parameter of a block where lanes come together that parted at a divergent branch, and when it
//! leaves a loop that lanes leave at different times. Lanes come together where two ways from the branch meet that have no
//! block in common before: a way on which threads end has nothing to do with the parameters of blocks on the other one.

use crate::block_set::Seen;
use crate::cfg::{Cfg, PostDom};
use crate::function::{Block, Function, Inst, Name, Operand, Value};
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
            behind: Seen::new(func.blocks.len()),
            settled: FixedBitSet::with_capacity(func.blocks.len()),
            way: SecondaryMap::new(),
        };
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            for &i in &data.insts {
                let d = &func.insts[i];
                if d.gives_all_the_same() {
                    continue;
                }
                // What the lanes hold makes no difference where all read that of one.
                if let Some(lane) = d.shuffles_from() {
                    if let Operand::Reg(r) = lane {
                        r.reg.value().into_iter().for_each(|v| uses[v].push(User::Inst(i)));
                    }
                    continue;
                }
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
    behind: Seen,
    /// Blocks of loops that lanes leave at different times: everything that a branch at their end would mark is marked.
    settled: FixedBitSet,
    /// How lanes come to each block from the branch that is looked at.
    way: SecondaryMap<Block, Option<Way>>,
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
        if self.branches.put(b.index()) || self.settled.contains(b.index()) {
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
        if !loops {
            return self.join(func, cfg, b, region, end);
        }
        self.settle(cfg, post, b, end);
        for x in region {
            for p in &func.blocks[x].params {
                self.mark(func, Name::Val(*p));
            }
            if Some(x) != end {
                for i in &func.blocks[x].insts {
                    func.insts[*i].for_each_def(|n| self.mark(func, n));
                }
            }
        }
    }

    /// Notes the blocks that come to `b` as it comes to them, all short of the same end: what lies behind them is the same as what
    /// lies behind `b`, which is in the set of blocks seen.
    fn settle(&mut self, cfg: &Cfg, post: &PostDom, b: Block, end: Option<Block>) {
        let mut stack = vec![b];
        self.behind.restart();
        while let Some(x) = stack.pop() {
            if Some(x) == end || !self.seen.contains(x) || self.behind.put(x) {
                continue;
            }
            if post.ipdom(x) == end {
                self.settled.insert(x.index());
            }
            stack.extend(&cfg.preds[x]);
        }
    }

    /// Marks the parameters of the blocks of `region`, which lie behind `b` up to `end`, at which lanes come together that parted at `b`.
    fn join(&mut self, func: &Function, cfg: &Cfg, b: Block, mut region: Vec<Block>, end: Option<Block>) {
        if region.iter().all(|x| func.blocks[*x].params.is_empty()) {
            return;
        }
        region.sort_unstable_by_key(|x| cfg.order[*x]);
        region.iter().for_each(|x| self.way[*x] = None);
        let mut changed = true;
        while changed {
            changed = false;
            for &x in [b].iter().chain(&region).filter(|x| Some(**x) != end) {
                for (k, &s) in cfg.succs[x].iter().enumerate() {
                    let from = if x == b { Some(Way::Side(k)) } else { self.way[x] };
                    let old = self.way[s];
                    let new = match (old, from) {
                        (None, _) => from,
                        (_, None) => old,
                        _ if old == from => old,
                        _ => Some(Way::Meeting(s)),
                    };
                    changed |= std::mem::replace(&mut self.way[s], new) != new;
                }
            }
        }
        for x in region {
            if self.way[x] == Some(Way::Meeting(x)) {
                for (n, p) in func.blocks[x].params.iter().enumerate() {
                    if !self.brings_one(func, cfg, (b, end), x, n) {
                        self.mark(func, Name::Val(*p));
                    }
                }
            }
        }
    }

    /// Whether all lanes that parted at the end of `b` and meet at `x` before `end`, or there, bring the same value for its parameter `n`, whichever
    /// way they come.
    fn brings_one(
        &self,
        func: &Function,
        cfg: &Cfg,
        (b, end): (Block, Option<Block>),
        x: Block,
        n: usize,
    ) -> bool {
        let from = cfg.preds[x].iter().filter(|p| **p == b || self.seen.contains(**p) && Some(**p) != end);
        let targets = from.flat_map(|p| func.blocks[*p].term.targets()).filter(|t| t.block == x);
        let mut brought = targets.map(|t| t.args.get(n));
        let first = brought.next();
        first.is_some_and(|first| first.is_some() && brought.all(|arg| arg == first))
    }
}

/// How lanes came to a block from a branch: the last thing that all of their ways have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The side of the branch.
    Side(usize),
    /// A block at which lanes of several ways come together.
    Meeting(Block),
}
