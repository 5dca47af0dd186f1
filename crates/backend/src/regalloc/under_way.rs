//! Which values products of warp groups use while the code goes on: their results, up to the wait behind which these are other values
//! ([`Macro::Settle`]), and A and metadata in registers, up to where [`Macro::Keep`] still reads them. On the way they may pass
//! copies, and edges as arguments: around a loop, where its wait is for the products of the round before.
//!
//! Such a value must neither leave its registers nor be moved to others: the tensor core goes on in the old ones. A copy of it has to be in the
//! same registers.

use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use ori::{Function, InstData, Macro, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use sass::RegFile;
use smallvec::SmallVec;

/// The values of a function that are under way.
pub struct UnderWay {
    results: FixedBitSet,
    /// What products read besides accumulators, as far as it is kept.
    sources: FixedBitSet,
}

impl UnderWay {
    /// Those of a function, in SSA or with its parameters isolated.
    pub fn new(func: &Function) -> UnderWay {
        let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
        let none = || FixedBitSet::with_capacity(func.values.len());
        let (mut results, mut sources, mut kept) = (none(), none(), none());
        let general = |n: Name| n.value().filter(|v| func.values[*v].file == RegFile::R);
        for d in insts() {
            if d.opcode().is_some_and(sass::Opcode::is_group_product) {
                d.for_each_def(|n| results.extend(general(n).map(EntityRef::index)));
                d.for_each_use(|n| sources.extend(general(n).map(EntityRef::index)));
            } else if d.op == Op::Macro(Macro::Keep) {
                d.for_each_use(|n| kept.extend(general(n).map(EntityRef::index)));
            }
        }
        if !results.is_clear() {
            let mut flows: Vec<(Value, Value)> = Vec::new();
            insts().for_each(|d| copied(d, |from, to| flows.push((from, to))));
            for target in func.layout.iter().flat_map(|b| func.blocks[*b].term.targets()) {
                flows.extend(
                    target.args.iter().copied().zip(func.blocks[target.block].params.iter().copied()),
                );
            }
            let back = flows.iter().map(|(from, to)| (*to, *from));
            follow(&mut kept, back);
            follow(&mut results, flows.iter().copied());
            follow(&mut sources, flows.iter().copied());
        }
        sources.intersect_with(&kept);
        UnderWay { results, sources }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.results.is_clear() && self.sources.is_clear()
    }

    /// All of them.
    pub fn values(mut self) -> FixedBitSet {
        self.results.union_with(&self.sources);
        self.results
    }

    /// Whether a copy from one value to another moves what is under way.
    pub fn moves(&self, from: Value, to: Value) -> bool {
        let (from, to) = (from.index(), to.index());
        self.results.contains(from) && self.results.contains(to)
            || self.sources.contains(from) && self.sources.contains(to)
    }
}

/// What an instruction copies, if it is a copy: from which value to which.
fn copied(d: &InstData, mut flow: impl FnMut(Value, Value)) {
    let Op::Macro(m @ (Macro::Copy | Macro::Collect | Macro::ParCopy(_))) = d.op else { return };
    let value = |o: &Operand| o.as_reg().and_then(|r| r.reg.value());
    let Some((to, from)) = d.operands.split_at_checked(m.defs()) else { return };
    // A parallel copy has a source for each result, others have all for the one.
    let each = matches!(m, Macro::ParCopy(_));
    for (k, from) in from.iter().enumerate() {
        if let (Some(from), Some(to)) = (value(from), to.get(if each { k } else { 0 }).and_then(value)) {
            flow(from, to);
        }
    }
}

/// Adds what values flow to.
fn follow(values: &mut FixedBitSet, flows: impl Iterator<Item = (Value, Value)>) {
    let mut next: FxHashMap<Value, SmallVec<[Value; 2]>> = FxHashMap::default();
    flows.for_each(|(from, to)| next.entry(from).or_default().push(to));
    let mut open: Vec<Value> = values.ones().map(Value::new).collect();
    while let Some(v) = open.pop() {
        for &to in next.get(&v).into_iter().flatten() {
            if !values.put(to.index()) {
                open.push(to);
            }
        }
    }
}
