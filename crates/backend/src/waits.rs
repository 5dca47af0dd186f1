//! What lanes may wait for other lanes of their warp at, and loops that end only when another thread has done
//! something. Neither may stand where lanes that have come through wait for those that have not.

use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::block_set::BlockSet;
use ori::cfg::{Cfg, DomTree};
use ori::{Block, Callee, Function, Inst, InstData, Macro, Name, Op, Terminator, Value};
use sass::memory::MemoryEffects;
use sass::{Effect, Flow, Mod, Opcode, Sync};

/// Whether a lane may wait at the instruction until others of its warp have come, or ended.
pub fn gathers(func: &Function, d: &InstData) -> bool {
    match d.op {
        Op::Macro(Macro::Call) => !is_quiet_call(func, d),
        Op::Macro(_) => false,
        Op::Sass(op) => match op.info().effect {
            Effect::Pure | Effect::State | Effect::Order | Effect::Memory => false,
            // The end of lanes, results of barriers, and what other grids do.
            Effect::Control(Flow::Exit | Flow::Trap | Flow::Yield) => false,
            Effect::Sync(Sync::Result | Sync::Grids) => false,
            Effect::Control(_) | Effect::Sync(_) => true,
        },
    }
}

/// Whether every lane waits at the instruction for all others of its warp: at a barrier of the block, WARPSYNC in front of it where they may
/// have parted.
fn waits_for_warp(d: &InstData) -> bool {
    d.op == Op::Sass(Opcode::BAR) && d.mods.has(Mod::SYNC) && d.is_unguarded()
}

/// Whether lanes may wait in a block until others have come.
pub fn gathers_lanes(func: &Function, b: Block) -> bool {
    func.blocks[b].insts.iter().any(|i| gathers(func, &func.insts[*i]))
}

/// Whether lanes that have parted may run while one is at the instruction: they write uniform registers for values that live in one
/// block.
pub fn lets_others_run(func: &Function, d: &InstData) -> bool {
    let yields = match d.op {
        Op::Macro(_) => false,
        Op::Sass(op) => op == Opcode::NANOSLEEP || op.info().effect == Effect::Control(Flow::Yield),
    };
    yields || gathers(func, d)
}

/// The same of an instruction in a function with its regions: what only says where lanes meet lets nobody run, and the warp comes to BAR as a whole, WARPSYNC in
/// front of it where lanes may have parted.
pub fn others_run(func: &Function, d: &InstData) -> bool {
    let stays = match d.op {
        Op::Macro(_) => false,
        Op::Sass(op) => {
            matches!(op, Opcode::BSSY | Opcode::BREAK) || op.info().effect == Effect::Sync(Sync::Block)
        }
    };
    !stays && lets_others_run(func, d)
}

/// Whether a call is of a function that waits for no other lane.
fn is_quiet_call(func: &Function, d: &InstData) -> bool {
    let Some(n) = d.callee() else { return false };
    match func.callees.get_index(n as usize) {
        Some(Callee::Internal(name)) if name.starts_with(ori::abi::MEETING) => false,
        Some(Callee::Internal(name)) => name.starts_with(ori::abi::SHARED) || func.quiet.contains(name),
        // In an executable those are the driver's.
        Some(Callee::External) => !func.relocatable,
        Some(Callee::Indirect(_)) | None => false,
    }
}

/// How an instruction reads memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// It does not.
    None,
    /// What no other thread changes at the same time, or the program would have a race.
    Weak,
    /// What other threads may be about to change.
    Strong,
}

fn read(d: &InstData) -> Read {
    let Op::Sass(op) = d.op else { return Read::None };
    let mut defs = false;
    d.for_each_def(|n| defs |= n.value().is_some());
    if !op.info().memory || !defs {
        return Read::None;
    }
    if op.info().accesses == MemoryEffects::ReadOnly {
        return Read::Weak;
    }
    let strong = d.mods.has(Mod::STRONG) || d.mods.has(Mod::MMIO);
    match op {
        Opcode::LDL => Read::Weak,
        // In Ori loads of shared memory are marked, too.
        Opcode::LDG | Opcode::LDG_256 | Opcode::LD | Opcode::LDS if !strong => Read::Weak,
        _ => Read::Strong,
    }
}

/// What computes a value, or the block that it is a parameter of.
#[derive(Clone, Copy)]
enum Source {
    Inst(Block, Inst),
    Param(Block, usize),
}

/// The loops of a function that may wait for other threads.
pub struct Spins<'f> {
    func: &'f Function,
    cfg: &'f Cfg,
    dom: &'f DomTree,
    sources: SecondaryMap<Value, Option<Source>>,
    /// Blocks with strong reads.
    strong: FixedBitSet,
}

impl<'f> Spins<'f> {
    /// Looks at a function in SSA.
    pub fn new(func: &'f Function, cfg: &'f Cfg, dom: &'f DomTree) -> Spins<'f> {
        let mut sources = SecondaryMap::new();
        let mut strong = FixedBitSet::with_capacity(func.blocks.len());
        for &b in &cfg.rpo {
            for (at, p) in func.blocks[b].params.iter().enumerate() {
                sources[*p] = Some(Source::Param(b, at));
            }
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                d.for_each_def(|n| n.value().into_iter().for_each(|v| sources[v] = Some(Source::Inst(b, i))));
                if read(d) == Read::Strong {
                    strong.insert(b.index());
                }
            }
        }
        Spins { func, cfg, dom, sources, strong }
    }

    /// The strong reads that decide how often the cycles among `blocks` run, edges into `cut` left out.
    pub fn among(&self, blocks: &BlockSet, cut: Option<Block>) -> Vec<(Block, Inst)> {
        let mut found = Vec::new();
        if self.strong.is_clear() || !blocks.iter().any(|b| self.strong.contains(b.index())) {
            return found;
        }
        for cycle in self.cycles(blocks, cut) {
            self.deciding(&cycle, &mut found);
        }
        found
    }

    /// Like [`Spins::among`], of the whole function; only loops that lanes leave apart, as `parts` tells, and none where each round waits
    /// for all lanes of the warp: the others get to run there.
    pub fn of_lanes(&self, parts: impl Fn(Block) -> bool) -> Vec<(Block, Inst)> {
        let mut found = Vec::new();
        let alone =
            |b: &Block| !self.func.blocks[*b].insts.iter().any(|i| waits_for_warp(&self.func.insts[*i]));
        let blocks = self.cfg.rpo.iter().copied().filter(alone).collect();
        let all = BlockSet::new(blocks, self.func.blocks.len());
        if self.strong.is_clear() {
            return found;
        }
        for cycle in self.cycles(&all, None) {
            if cycle.iter().any(&parts) {
                self.deciding(&cycle, &mut found);
            }
        }
        found
    }

    /// The strongly connected sets of more than one block, or of one that jumps to itself.
    fn cycles(&self, blocks: &BlockSet, cut: Option<Block>) -> Vec<BlockSet> {
        let inside = |b: Block| Some(b) != cut && blocks.contains(b);
        // Kosaraju: blocks by the end of a depth-first walk, then backwards from the last one.
        let mut seen = FixedBitSet::with_capacity(self.func.blocks.len());
        let mut ended: Vec<Block> = Vec::new();
        for root in blocks.iter() {
            if seen.put(root.index()) {
                continue;
            }
            let mut stack = vec![(root, 0)];
            while let Some((b, next)) = stack.last_mut() {
                let succ = self.cfg.succs[*b].get(*next).copied();
                *next += 1;
                match succ {
                    Some(s) if inside(s) && !seen.put(s.index()) => stack.push((s, 0)),
                    Some(_) => {}
                    None => {
                        ended.push(*b);
                        stack.pop();
                    }
                }
            }
        }
        let mut taken = FixedBitSet::with_capacity(self.func.blocks.len());
        let mut cycles = Vec::new();
        for root in ended.into_iter().rev() {
            if taken.put(root.index()) {
                continue;
            }
            let mut set = vec![root];
            let mut stack = vec![root];
            while let Some(b) = stack.pop() {
                // An edge into the cut block is none.
                let preds = if Some(b) == cut { &[][..] } else { &self.cfg.preds[b][..] };
                for p in preds.iter().filter(|p| blocks.contains(**p)) {
                    if !taken.put(p.index()) {
                        set.push(*p);
                        stack.push(*p);
                    }
                }
            }
            let alone = set.len() == 1;
            if !alone || Some(root) != cut && self.cfg.succs[root].contains(&root) {
                cycles.push(BlockSet::new(set, self.func.blocks.len()));
            }
        }
        cycles
    }

    /// The strong reads in a cycle, and in those inside of it, that decide how often they run.
    fn deciding(&self, cycle: &BlockSet, found: &mut Vec<(Block, Inst)>) {
        if !cycle.iter().any(|b| self.strong.contains(b.index())) {
            return;
        }
        let blocks = || cycle.iter();
        let conditions = |b: Block| self.func.blocks[b].term.used_name();
        let mut entries = blocks().filter(|b| self.preds(*b, false, cycle).next().is_some());
        let (Some(head), None) = (entries.next(), entries.next()) else {
            // Of more than one entry, or none.
            return self.depends_on(cycle, blocks().filter_map(conditions).collect(), found);
        };
        let exits = || exits_of(self, cycle);
        // Those that every round comes to decide alone.
        let always = |e: &Block| self.preds(head, true, cycle).all(|latch| self.dom.dominates(*e, latch));
        if !exits().all(|e| always(&e)) {
            self.depends_on(cycle, blocks().filter_map(conditions).collect(), found);
        } else if !exits().all(|e| self.repeats_only_after_others(e, head, cycle)) {
            self.depends_on(cycle, exits().filter_map(conditions).collect(), found);
        }
        for inner in self.cycles(cycle, Some(head)) {
            self.deciding(&inner, found);
        }
    }

    /// The predecessors of a block that are in a cycle, or not.
    fn preds<'a>(&'a self, b: Block, inside: bool, cycle: &'a BlockSet) -> impl Iterator<Item = Block> + 'a {
        self.cfg.preds[b].iter().copied().filter(move |p| cycle.contains(*p) == inside)
    }

    /// Whether the cycle runs again only if another thread has changed what this one has seen: a compare-and-swap of
    /// what the last one gave, and a branch that compares just these. Then some thread gets on in every round.
    fn repeats_only_after_others(&self, exit: Block, head: Block, cycle: &BlockSet) -> bool {
        let func = self.func;
        let mut leaves: Vec<Value> = Vec::new();
        let mut work: Vec<Value> =
            func.blocks[exit].term.used_name().and_then(Name::value).into_iter().collect();
        while let Some(v) = work.pop() {
            match self.sources[v] {
                Some(Source::Inst(_, i)) if func.insts[i].op == Op::Sass(Opcode::ISETP) => {
                    let d = &func.insts[i];
                    if !d.is_unguarded() || !(d.mods.has(Mod::NE) || d.mods.has(Mod::EQ)) {
                        return false;
                    }
                    d.for_each_use(|n| work.extend(n.value()));
                }
                _ if !leaves.contains(&v) => leaves.push(v),
                _ => {}
            }
        }
        let swap = |v: &Value| match self.sources[*v] {
            Some(Source::Inst(b, i)) if cycle.contains(b) && func.insts[i].mods.has(Mod::CAS) => Some(i),
            _ => None,
        };
        let [a, b] = leaves[..] else { return false };
        [(a, b), (b, a)].into_iter().any(|(seen, old)| {
            let Some(i) = swap(&seen) else { return false };
            let mut compares = false;
            func.insts[i].for_each_use(|n| compares |= n.value() == Some(old));
            let Some(Source::Param(block, at)) = self.sources[old] else { return false };
            let again = |latch: Block| {
                let targets = func.blocks[latch].term.targets();
                targets.iter().filter(|t| t.block == head).all(|t| t.args[at] == seen)
            };
            compares && block == head && self.preds(head, true, cycle).all(again)
        })
    }

    /// The strong reads in a cycle that names depend on.
    fn depends_on(&self, cycle: &BlockSet, mut work: Vec<Name>, found: &mut Vec<(Block, Inst)>) {
        let func = self.func;
        let blocks = || cycle.iter();
        let insts = |b: Block| func.blocks[b].insts.iter().copied();
        let mut seen = FixedBitSet::with_capacity(func.values.len());
        // What a thread has read may come back to it through memory.
        let writes = blocks().flat_map(insts).any(|i| {
            matches!(func.insts[i].op, Op::Sass(op) if op.info().memory) && read(&func.insts[i]) == Read::None
                || func.insts[i].op == Op::Macro(Macro::Call)
        });
        let all = |found: &mut Vec<(Block, Inst)>| {
            for b in blocks() {
                found.extend(insts(b).filter(|i| read(&func.insts[*i]) == Read::Strong).map(|i| (b, i)));
            }
        };
        while let Some(name) = work.pop() {
            let Some(v) = name.value() else {
                // A register of the calling convention: from a function that may have read anything.
                if !matches!(name, Name::Phys(r) if r.is_zero()) {
                    return all(found);
                }
                continue;
            };
            if seen.put(v.index()) {
                continue;
            }
            match self.sources[v] {
                Some(Source::Inst(b, i)) if cycle.contains(b) => {
                    let d = &func.insts[i];
                    match read(d) {
                        Read::Strong => {
                            if !found.contains(&(b, i)) {
                                found.push((b, i));
                            }
                        }
                        Read::Weak if writes => return all(found),
                        Read::Weak | Read::None => {}
                    }
                    d.for_each_use(|n| work.push(n));
                }
                Some(Source::Param(b, at)) if cycle.contains(b) => {
                    let mut common: Option<Block> = None;
                    for p in self.preds(b, true, cycle) {
                        common = Some(common.map_or(p, |c| self.dom.common(c, p)));
                        let targets = func.blocks[p].term.targets();
                        work.extend(targets.iter().filter(|t| t.block == b).map(|t| Name::Val(t.args[at])));
                    }
                    // Which of them it is, the branches behind their last common block decide.
                    let several = self.preds(b, true, cycle).nth(1).is_some();
                    if let Some(c) = common.filter(|_| several) {
                        let between = blocks().filter(|x| self.dom.dominates(c, *x));
                        work.extend(between.filter_map(|x| func.blocks[x].term.used_name()));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The blocks of a cycle from which lanes leave it.
fn exits_of<'a>(spins: &'a Spins<'_>, cycle: &'a BlockSet) -> impl Iterator<Item = Block> + 'a {
    let leaves = |b: &Block| spins.cfg.succs[*b].iter().any(|s| !cycle.contains(*s));
    cycle.iter().filter(leaves)
}

/// Whether a block ends the thread.
pub fn ends_thread(func: &Function, b: Block) -> bool {
    matches!(func.blocks[b].term, Terminator::Exit | Terminator::Unreachable)
}
