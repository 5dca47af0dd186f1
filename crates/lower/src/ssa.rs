//! SSA construction on the fly (Braun et al., "Simple and Efficient Construction of Static Single Assignment
//! Form", CC 2013), at the grain of PTX basic blocks: the expansion of one instruction may spread over
//! several Ori blocks, so every PTX block remembers the Ori block where it starts (`head`: parameters go
//! there) and the one where it ends (`tail`: its terminator passes the arguments).
//!
//! Parameters are made where a variable is read in a block with several predecessors. Their arguments are
//! found in [`Ssa::finish`], after the last block; there, parameters that can only have one value are
//! removed and everything is rewritten.

use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Name, Value, ValueData};
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
    /// Value of each variable at the end of the part of the block that was lowered so far.
    defs: FxHashMap<Var, Value>,
    head: Option<Block>,
    tail: Option<Block>,
}

/// A block parameter under construction.
struct Param {
    block: PtxBlock,
    var: Var,
    value: Value,
    /// One per predecessor, in the order of `BlockState::preds`.
    args: SmallVec<[Value; 4]>,
}

/// The construction's state.
pub struct Ssa {
    blocks: Vec<BlockState>,
    vars: Vec<ValueData>,
    params: Vec<Param>,
    undef: FxHashMap<(RegFile, u8), Value>,
}

impl Ssa {
    /// For `blocks` PTX blocks and variables of these shapes; block 0 is the entry and must have no
    /// predecessor.
    pub fn new(blocks: usize, vars: Vec<ValueData>) -> Ssa {
        Ssa {
            blocks: (0..blocks).map(|_| BlockState::default()).collect(),
            vars,
            params: Vec::new(),
            undef: FxHashMap::default(),
        }
    }

    /// Adds a control-flow edge. A block that branches twice to the same target has two edges.
    pub fn add_edge(&mut self, from: PtxBlock, to: PtxBlock) {
        self.blocks[to.0 as usize].preds.push(from);
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

    /// Assigns.
    pub fn write(&mut self, block: PtxBlock, var: Var, value: Value) {
        self.blocks[block.0 as usize].defs.insert(var, value);
    }

    /// The value of `var` here; makes parameters as needed. Every block on a chain of single predecessors
    /// above `block` must have been lowered already (reverse postorder does that).
    pub fn read(&mut self, func: &mut Function, block: PtxBlock, var: Var) -> Value {
        let mut chain: SmallVec<[PtxBlock; 8]> = SmallVec::new();
        let mut at = block;
        let value = loop {
            let state = &self.blocks[at.0 as usize];
            if let Some(&v) = state.defs.get(&var) {
                break v;
            }
            match state.preds.as_slice() {
                [] => break self.undefined(func, self.shape(var)),
                [one] if *one != at => {
                    chain.push(at);
                    at = *one;
                }
                _ => {
                    let d = self.shape(var);
                    let value = func.add_value(d.file, d.width);
                    self.params.push(Param { block: at, var, value, args: SmallVec::new() });
                    self.write(at, var, value);
                    break value;
                }
            }
        };
        for b in chain {
            self.write(b, var, value);
        }
        value
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
            let Param { block, var, .. } = self.params[next];
            let preds = self.blocks[block.0 as usize].preds.clone();
            let args = preds.iter().map(|p| self.read(func, *p, var)).collect();
            self.params[next].args = args;
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
