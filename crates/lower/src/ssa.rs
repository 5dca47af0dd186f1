//! SSA construction on the fly (Braun et al., "Simple and Efficient Construction of Static Single Assignment
//! Form", CC 2013), at the grain of PTX basic blocks: the expansion of one instruction may spread over
//! several Ori blocks, so every PTX block remembers the Ori block where it starts (`head`: parameters go
//! there) and the one where it ends (`tail`: its terminator passes the arguments).
//!
//! Where ways meet that all come from blocks which are lowered already, the variable is read at the end of each, and gets a parameter if
//! they differ; where nothing between there and the immediate dominator writes it, it is what it was at the end of that. Where a way
//! comes back (the first block of a loop) a parameter is made at once, and its arguments are found in [`Ssa::finish`], after the last
//! block; there, parameters that can only have one value are removed and everything is rewritten.

use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Name, Value, ValueData, dominators};
use rustc_hash::FxHashMap;
use sass::RegFile;
use smallvec::SmallVec;

/// A PTX basic block, numbered in source order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PtxBlock(pub u32);

/// A mutable variable: a PTX register, or the carry flag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Var(pub u32);

/// What the builder knows of one PTX block.
#[derive(Default)]
struct BlockState {
    preds: SmallVec<[PtxBlock; 4]>,
    /// Value at the end of the part of the block that was lowered so far, of variables that it writes and of some others that were read.
    defs: FxHashMap<Var, Value>,
    head: Option<Block>,
    tail: Option<Block>,
    /// Its place in the order of lowering.
    rank: u32,
    /// Whether an edge comes back to it.
    is_header: bool,
    /// Its immediate dominator, if the blocks between have the ranks between and none of them is a header.
    above: Option<PtxBlock>,
}

/// Of how many blocks on the way to a value one remembers it: enough that a later read from another block finds it soon, and few, since
/// most are never asked.
const REMEMBERED: usize = 8;

/// A block where ways meet whose values are being read.
struct Meeting {
    block: PtxBlock,
    args: SmallVec<[Value; 4]>,
    /// Blocks below that have the same value and remember it.
    passed: SmallVec<[PtxBlock; 8]>,
}

/// A block parameter under construction.
struct Param {
    block: PtxBlock,
    var: Var,
    value: Value,
    /// One per predecessor, in the order of `BlockState::preds`; none yet where a way comes back.
    args: SmallVec<[Value; 4]>,
}

/// The construction's state.
pub struct Ssa {
    blocks: Vec<BlockState>,
    vars: Vec<ValueData>,
    /// Ranks of the blocks that write each variable, rising.
    written: Vec<SmallVec<[u32; 2]>>,
    params: Vec<Param>,
    undef: FxHashMap<(RegFile, u8), Value>,
}

impl Ssa {
    /// For blocks that are lowered in this order (a reverse postorder; the entry comes first and has no predecessor) with these edges,
    /// and variables of these shapes. A block that branches twice to the same target has two edges.
    pub fn new(
        order: &[PtxBlock],
        edges: impl Iterator<Item = (PtxBlock, PtxBlock)>,
        vars: Vec<ValueData>,
    ) -> Ssa {
        let count = order.iter().map(|b| b.0 as usize + 1).max().unwrap_or(0);
        let mut blocks: Vec<BlockState> = (0..count).map(|_| BlockState::default()).collect();
        for (rank, b) in order.iter().enumerate() {
            blocks[b.0 as usize].rank = rank as u32;
        }
        let mut succs: Vec<SmallVec<[usize; 2]>> = vec![SmallVec::new(); order.len()];
        for (from, to) in edges {
            let (source, target) = (blocks[from.0 as usize].rank, blocks[to.0 as usize].rank);
            succs[source as usize].push(target as usize);
            let to = &mut blocks[to.0 as usize];
            to.preds.push(from);
            to.is_header |= source >= target;
        }
        let preds = |rank: usize| &blocks[order[rank].0 as usize].preds;
        let idom = dominators::immediate(
            order.len(),
            0,
            |rank, f| succs[rank].iter().copied().for_each(f),
            |rank, f| preds(rank).iter().map(|p| blocks[p.0 as usize].rank as usize).for_each(f),
        );
        // How many headers have a lower rank.
        let mut headers = vec![0u32; order.len() + 1];
        for (rank, b) in order.iter().enumerate() {
            headers[rank + 1] = headers[rank] + u32::from(blocks[b.0 as usize].is_header);
        }
        for rank in 1..order.len() {
            let above = idom[rank] as usize;
            let state = &mut blocks[order[rank].0 as usize];
            state.above = (headers[above + 1] == headers[rank + 1]).then(|| order[above]);
        }
        let written = vec![SmallVec::new(); vars.len()];
        Ssa { blocks, vars, written, params: Vec::new(), undef: FxHashMap::default() }
    }

    /// Shape of a variable.
    pub fn shape(&self, var: Var) -> ValueData {
        self.vars[var.0 as usize]
    }

    /// Says where `block` starts in Ori.
    pub fn set_head(&mut self, block: PtxBlock, head: Block) {
        self.blocks[block.0 as usize].head = Some(head);
    }

    /// Where `block` starts in Ori.
    pub fn head(&self, block: PtxBlock) -> Block {
        self.blocks[block.0 as usize].head.expect("head is set before use")
    }

    /// Says where `block` ends in Ori.
    pub fn set_tail(&mut self, block: PtxBlock, tail: Block) {
        self.blocks[block.0 as usize].tail = Some(tail);
    }

    /// Assigns, in the block that is being lowered.
    pub fn write(&mut self, block: PtxBlock, var: Var, value: Value) {
        let rank = self.state(block).rank;
        let written = &mut self.written[var.0 as usize];
        if written.last() != Some(&rank) {
            debug_assert!(
                written.last().is_none_or(|last| *last < rank),
                "blocks are lowered in their order"
            );
            written.push(rank);
        }
        self.remember(block, var, value);
    }

    fn state(&self, block: PtxBlock) -> &BlockState {
        &self.blocks[block.0 as usize]
    }

    fn remember(&mut self, block: PtxBlock, var: Var, value: Value) {
        self.blocks[block.0 as usize].defs.insert(var, value);
    }

    /// The block at whose end the variable has the value that it has at the start of this one, if there is one; all ways between are
    /// lowered then.
    fn before(&self, block: PtxBlock, var: Var) -> Option<PtxBlock> {
        let state = self.state(block);
        match state.preds.as_slice() {
            _ if state.is_header => None,
            [one] => Some(*one),
            _ => state.above.filter(|above| {
                // All ways from there to here go through blocks with the ranks between.
                let written = &self.written[var.0 as usize];
                let first = written.partition_point(|w| *w <= self.state(*above).rank);
                written.get(first).is_none_or(|w| *w >= state.rank)
            }),
        }
    }

    fn parameter(
        &mut self,
        func: &mut Function,
        block: PtxBlock,
        var: Var,
        args: SmallVec<[Value; 4]>,
    ) -> Value {
        let d = self.shape(var);
        let value = func.add_value(d.file, d.width);
        self.params.push(Param { block, var, value, args });
        value
    }

    /// The value of `var` here; makes parameters as needed. All blocks above `block` but for those from which a way comes back must have
    /// been lowered already (reverse postorder does that).
    pub fn read(&mut self, func: &mut Function, block: PtxBlock, var: Var) -> Value {
        // Where ways meet on the way up: blocks whose predecessors' values are asked one after another. There are no circles, since none
        // is a header.
        let mut meetings: Vec<Meeting> = Vec::new();
        let mut passed: SmallVec<[PtxBlock; 8]> = SmallVec::new();
        let mut at = block;
        loop {
            let mut steps = 0;
            let mut value = loop {
                if let Some(&v) = self.state(at).defs.get(&var) {
                    break v;
                }
                if steps % REMEMBERED == 0 {
                    passed.push(at);
                }
                steps += 1;
                if let Some(above) = self.before(at, var) {
                    at = above;
                    continue;
                }
                let state = self.state(at);
                if state.is_header {
                    let value = self.parameter(func, at, var, SmallVec::new());
                    self.remember(at, var, value);
                    break value;
                }
                let Some(first) = state.preds.first().copied() else {
                    break self.undefined(func, self.shape(var));
                };
                let passed = std::mem::take(&mut passed);
                meetings.push(Meeting { block: at, args: SmallVec::new(), passed });
                at = first;
            };
            // Back down.
            loop {
                passed.drain(..).for_each(|b| self.remember(b, var, value));
                let Some(meeting) = meetings.last_mut() else { return value };
                meeting.args.push(value);
                if let Some(next) = self.blocks[meeting.block.0 as usize].preds.get(meeting.args.len()) {
                    at = *next;
                    break;
                }
                let Some(Meeting { block, args, passed: below }) = meetings.pop() else { return value };
                passed = below;
                if args.iter().any(|a| *a != args[0]) {
                    value = self.parameter(func, block, var, args);
                }
                self.remember(block, var, value);
            }
        }
    }

    /// The undefined value of this shape. It is defined at the top of the entry block by [`Ssa::finish`].
    pub fn undefined(&mut self, func: &mut Function, shape: ValueData) -> Value {
        *self
            .undef
            .entry((shape.file, shape.width))
            .or_insert_with(|| func.add_value(shape.file, shape.width))
    }

    /// Whether `v` is an undefined value.
    pub fn is_undefined(&self, v: Value) -> bool {
        self.undef.values().any(|u| *u == v)
    }

    /// Finds the arguments of all parameters, drops the redundant ones, and writes parameters and arguments
    /// into the blocks. Returns the undefined values in use, which the caller defines in the entry block.
    pub fn finish(mut self, func: &mut Function) -> Vec<Value> {
        let mut next = 0;
        while next < self.params.len() {
            let Param { block, var, ref args, .. } = self.params[next];
            if args.is_empty() {
                let preds = self.state(block).preds.clone();
                let args = preds.iter().map(|p| self.read(func, *p, var)).collect();
                self.params[next].args = args;
            }
            next += 1;
        }
        let forward = self.redundant(func);
        let find = |v: Value| forward[v].unwrap_or(v);
        for data in func.insts.values_mut() {
            data.map_uses(|n| match n {
                Name::Val(v) => Name::Val(find(v)),
                Name::Part(v, i) => Name::Part(find(v), i),
                n => n,
            });
        }
        for data in func.blocks.values_mut() {
            map_terminator(&mut data.term, &find);
        }
        let mut used_undef: Vec<Value> = self.undef.values().copied().collect();
        used_undef.sort_unstable();
        // The parameter for which the edges of each block got arguments last.
        let mut seen = vec![None; self.blocks.len()];
        for p in &self.params {
            if forward[p.value].is_some() {
                continue;
            }
            let head = self.head(p.block);
            func.blocks[head].params.push(p.value);
            // A predecessor that branches here twice is listed twice; each edge takes its own argument.
            let preds = &self.blocks[p.block.0 as usize].preds;
            for (k, pred) in preds.iter().enumerate() {
                if seen[pred.0 as usize].replace(p.value) == Some(p.value) {
                    continue;
                }
                let tail = self.blocks[pred.0 as usize].tail.expect("predecessors have been lowered");
                for target in func.blocks[tail].term.targets_mut() {
                    if target.block == head {
                        target.args.push(find(p.args[k]));
                    }
                }
            }
        }
        used_undef
    }

    /// For each parameter whose arguments are all itself or one other value: that value, which is none of these.
    fn redundant(&self, func: &Function) -> SecondaryMap<Value, Option<Value>> {
        let mut forward: SecondaryMap<Value, Option<Value>> = SecondaryMap::with_capacity(func.value_count());
        let mut index: FxHashMap<Value, usize> = FxHashMap::default();
        for (k, p) in self.params.iter().enumerate() {
            index.insert(p.value, k);
        }
        let mut users: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); self.params.len()];
        for (k, p) in self.params.iter().enumerate() {
            for a in &p.args {
                if let Some(&u) = index.get(a) {
                    users[u].push(k as u32);
                }
            }
        }
        // Those of the first blocks come first, so that what they pass on is known.
        let mut work: Vec<u32> = (0..self.params.len() as u32).collect();
        work.sort_by_key(|k| std::cmp::Reverse(self.params[*k as usize].block));
        while let Some(k) = work.pop() {
            let p = &self.params[k as usize];
            if forward[p.value].is_some() {
                continue;
            }
            let mut same = None;
            let mut trivial = true;
            for &a in &p.args {
                let a = resolve(&mut forward, a);
                if a == p.value || same == Some(a) {
                    continue;
                }
                if same.replace(a).is_some() {
                    trivial = false;
                    break;
                }
            }
            if let (true, Some(v)) = (trivial, same) {
                forward[p.value] = Some(v);
                let mut mine = std::mem::take(&mut users[k as usize]);
                mine.retain(|u| forward[self.params[*u as usize].value].is_none());
                work.extend(&mine);
                if let Some(&target) = index.get(&v) {
                    users[target].extend(mine);
                }
            }
        }
        for p in &self.params {
            if forward[p.value].is_some() {
                forward[p.value] = Some(resolve(&mut forward, p.value));
            }
        }
        forward
    }
}

/// What a value stands for in the end; those on the way there point to it from now on.
fn resolve(forward: &mut SecondaryMap<Value, Option<Value>>, v: Value) -> Value {
    let mut end = v;
    while let Some(next) = forward[end] {
        end = next;
    }
    let mut at = v;
    while let Some(next) = forward[at] {
        if next != end {
            forward[at] = Some(end);
        }
        at = next;
    }
    end
}

fn map_terminator(term: &mut ori::Terminator, find: &impl Fn(Value) -> Value) {
    use ori::Terminator as T;
    match term {
        T::Branch { cond: Name::Val(v), .. }
        | T::Switch { index: Name::Val(v), .. }
        | T::Return(Name::Val(v)) => *v = find(*v),
        T::Switch { index: Name::Part(v, _), .. } => *v = find(*v),
        _ => {}
    }
    for target in term.targets_mut() {
        for a in &mut target.args {
            *a = find(*a);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::builder::Builder;
    use ori::{BlockCall, Inst, Operand, Terminator, operand};
    use std::collections::HashMap;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % n
        }
    }

    /// A reverse postorder of what is reached from node 0.
    fn order(succs: &[Vec<usize>]) -> Vec<usize> {
        fn visit(at: usize, succs: &[Vec<usize>], seen: &mut [bool], out: &mut Vec<usize>) {
            if !std::mem::replace(&mut seen[at], true) {
                succs[at].iter().for_each(|s| visit(*s, succs, seen, out));
                out.push(at);
            }
        }
        let mut out = Vec::new();
        visit(0, succs, &mut vec![false; succs.len()], &mut out);
        out.reverse();
        out
    }

    /// What an instruction does with a variable.
    #[derive(Clone, Copy)]
    enum Done {
        Reads(Var),
        Writes(Var, u32),
    }

    /// Random graphs, irreducible ones among them, whose blocks read and write variables: on random ways through the result each read
    /// finds what was written last. What nothing has written is 0.
    #[test]
    fn what_is_read_on_any_way_is_what_was_written_last() {
        let mut random = Random(1);
        for round in 0..3_000 {
            let n = 2 + random.below(if round % 10 == 0 { 60 } else { 12 });
            let succs: Vec<Vec<usize>> = (0..n)
                .map(|from| {
                    // Nothing leads to the entry. Most edges go forward.
                    let to = |random: &mut Random| match random.below(4) {
                        0 => 1 + random.below(n - 1),
                        _ => (from + 1 + random.below(3)).min(n - 1),
                    };
                    (0..random.below(3)).map(|_| to(&mut random)).collect()
                })
                .collect();
            let order = order(&succs);
            let vars = 1 + random.below(4);
            let edges = order
                .iter()
                .flat_map(|f| succs[*f].iter().map(|t| (PtxBlock(*f as u32), PtxBlock(*t as u32))));
            let ranks: Vec<PtxBlock> = order.iter().map(|b| PtxBlock(*b as u32)).collect();
            let mut ssa = Ssa::new(&ranks, edges, vec![ValueData { file: RegFile::R, width: 1 }; vars]);
            let mut func = Function::new("f", sass::Target::new(90).unwrap());
            let entry = func.entry_block();
            for b in &order {
                let head = if *b == 0 { entry } else { func.add_block() };
                ssa.set_head(PtxBlock(*b as u32), head);
            }
            let mut done: HashMap<Inst, Done> = HashMap::new();
            for b in &order {
                let block = PtxBlock(*b as u32);
                let head = ssa.head(block);
                for _ in 0..random.below(4) {
                    let var = Var(random.below(vars) as u32);
                    if random.below(2) == 0 {
                        let value = ssa.read(&mut func, block, var);
                        Builder::new(&mut func, head).copy(operand(Name::Val(value)));
                        done.insert(func.insts.keys().next_back().unwrap(), Done::Reads(var));
                    } else {
                        let number = 1 + done.len() as u32;
                        let value = Builder::new(&mut func, head).copy(Operand::Imm(number));
                        done.insert(func.insts.keys().next_back().unwrap(), Done::Writes(var, number));
                        ssa.write(block, var, value);
                    }
                }
                let table: Vec<BlockCall> =
                    succs[*b].iter().map(|t| Builder::call(ssa.head(PtxBlock(*t as u32)))).collect();
                let index = Name::Phys(sass::Reg::RZ);
                func.blocks[head].term =
                    if table.is_empty() { Terminator::Exit } else { Terminator::Switch { index, table } };
                ssa.set_tail(block, head);
            }
            ssa.finish(&mut func);
            for _ in 0..10 {
                let mut state = vec![0; vars];
                let mut env: HashMap<Value, u32> = HashMap::new();
                let mut at = entry;
                for _ in 0..40 {
                    for i in &func.blocks[at].insts {
                        let d = &func.insts[*i];
                        match done[i] {
                            Done::Reads(var) => {
                                let mut read = None;
                                d.for_each_use(|n| read = read.or(n.value()));
                                let found = env.get(&read.unwrap()).copied().unwrap_or(0);
                                assert_eq!(found, state[var.0 as usize], "{succs:?}, round {round}");
                            }
                            Done::Writes(var, number) => {
                                d.for_each_def(|n| _ = env.insert(n.value().unwrap(), number));
                                state[var.0 as usize] = number;
                            }
                        }
                    }
                    let targets = func.blocks[at].term.targets();
                    if targets.is_empty() {
                        break;
                    }
                    let t = targets[random.below(targets.len())];
                    let params = &func.blocks[t.block].params;
                    assert_eq!(t.args.len(), params.len());
                    let passed: Vec<u32> = t.args.iter().map(|a| env.get(a).copied().unwrap_or(0)).collect();
                    env.extend(params.iter().copied().zip(passed));
                    at = t.block;
                }
            }
        }
    }
}
