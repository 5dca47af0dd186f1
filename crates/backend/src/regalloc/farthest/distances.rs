//! How far values are from their next uses.

use super::{BEHIND_LOOP, is_general};
use crate::liveness::Ranges;
use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::loops::LoopForest;
use ori::{Block, Function, Name, Value};

/// Sweeps after which distances are good enough.
const SWEEPS: usize = 8;

/// What nobody reads is so far away.
const NEVER: u32 = u32::MAX;

/// A number for some values, which are quickly forgotten.
#[derive(Default)]
pub struct Table {
    /// One more than the number; 0 for values without one.
    at: SecondaryMap<Value, u32>,
    known: Vec<Value>,
}

impl Table {
    /// The number of a value.
    pub fn get(&self, v: Value) -> Option<u32> {
        self.at[v].checked_sub(1)
    }

    /// Gives a value a number, below `u32::MAX`.
    pub fn set(&mut self, v: Value, number: u32) {
        if std::mem::replace(&mut self.at[v], number.saturating_add(1)) == 0 {
            self.known.push(v);
        }
    }

    /// Whether the value had none and has one now.
    pub fn insert(&mut self, v: Value) -> bool {
        let new = self.at[v] == 0;
        if new {
            self.set(v, 0);
        }
        new
    }

    /// The values with numbers, in any order.
    pub fn known(&self) -> &[Value] {
        &self.known
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.drain(..).for_each(|v| self.at[v] = 0);
    }
}

/// Whether values are in a list, both ascending.
pub fn among<'a>(list: impl IntoIterator<Item = &'a Value>) -> impl FnMut(Value) -> bool {
    let mut list = list.into_iter().peekable();
    move |v| {
        while list.next_if(|w| **w < v).is_some() {}
        list.peek() == Some(&&v)
    }
}

/// How many instructions after the start of each block the general values that are live there are read first, and where blocks read
/// values.
pub struct Distances {
    /// What is live on entry, ascending.
    entry: SecondaryMap<Block, Vec<(Value, u32)>>,
    /// Parameters.
    params: SecondaryMap<Block, Vec<(Value, u32)>>,
    /// Values with the numbers of the instructions in the block, both ascending; its terminator is behind the last.
    reads: SecondaryMap<Block, Vec<(Value, u32)>>,
}

impl Distances {
    pub fn new(func: &Function, cfg: &Cfg, loops: &LoopForest, ranges: &Ranges) -> Distances {
        let (entry, params, reads) = (SecondaryMap::new(), SecondaryMap::new(), SecondaryMap::new());
        let mut found = Distances { entry, params, reads };
        for &b in &cfg.rpo {
            found.reads[b] = reads_of(func, b);
            let live = ranges.live.live_in[b].iter().filter_map(|l| ranges.lanes.owner(*l)).map(|o| o.0);
            let mut live: Vec<(Value, u32)> =
                live.filter(|v| is_general(func, *v)).map(|v| (v, NEVER)).collect();
            live.dedup();
            live.shrink_to_fit();
            found.entry[b] = live;
            let params = func.blocks[b].params.iter().filter(|p| is_general(func, **p));
            found.params[b] = params.map(|p| (*p, NEVER)).collect();
            found.params[b].sort_unstable();
        }
        // When the distances of each block were found last, and when they were others.
        let mut last: SecondaryMap<Block, (u32, u32)> = SecondaryMap::new();
        let (mut now, mut behind) = (0, Table::default());
        for _ in 0..SWEEPS {
            let before = now;
            for &b in cfg.rpo.iter().rev() {
                let follows = func.blocks[b].term.targets();
                now += 1;
                if last[b].0 > 0 && follows.iter().all(|t| last[t.block].1 < last[b].0) {
                    continue;
                }
                last[b].0 = now;
                found.at_exit(func, loops, b, &mut behind);
                if found.update(b, func.blocks[b].insts.len() as u32 + 1, &behind) {
                    last[b].1 = now;
                }
            }
            if cfg.rpo.iter().all(|b| last[*b].1 <= before) {
                break;
            }
        }
        found
    }

    /// Counts from a block's start, from what is `behind` its `length`. Returns whether anything is at another distance than before.
    fn update(&mut self, b: Block, length: u32, behind: &Table) -> bool {
        let mut changed = false;
        for list in [&mut self.entry[b], &mut self.params[b]] {
            let mut reads = self.reads[b].iter().peekable();
            for (v, known) in list {
                while reads.next_if(|(read, _)| read < v).is_some() {}
                let own = reads.peek().filter(|(read, _)| read == v).map(|(_, at)| *at);
                let further = || behind.get(*v).map(|d| d.saturating_add(length).min(NEVER - 2));
                let d = own.or_else(further).unwrap_or(NEVER);
                changed |= std::mem::replace(known, d) != d;
            }
        }
        changed
    }

    /// What is live on entry of a block, ascending.
    pub fn live_in(&self, b: Block) -> impl Iterator<Item = &Value> {
        self.entry[b].iter().map(|(v, _)| v)
    }

    /// Where a block reads values, both ascending.
    pub fn reads(&self, b: Block) -> &[(Value, u32)] {
        &self.reads[b]
    }

    /// How far behind a block's start the next use of a value is that is live on entry or a parameter.
    pub fn at_entry(&self, b: Block, v: Value) -> Option<u32> {
        let of = |list: &[(Value, u32)]| list.binary_search_by_key(&v, |(v, _)| *v).ok().map(|k| list[k].1);
        of(&self.entry[b]).or_else(|| of(&self.params[b])).filter(|d| *d != NEVER)
    }

    /// From the end of a block on.
    pub fn at_exit(&self, func: &Function, loops: &LoopForest, b: Block, out: &mut Table) {
        out.clear();
        for t in func.blocks[b].term.targets() {
            let mut left = 0u32;
            let mut inside = loops.innermost(b);
            while let Some(l) = inside.filter(|l| !loops.contains(*l, t.block)) {
                left = left.saturating_add(BEHIND_LOOP);
                inside = loops.loops[l].parent.expand();
            }
            for (v, d) in self.entry[t.block].iter().filter(|(_, d)| *d != NEVER) {
                let d = d.saturating_add(left).min(NEVER - 2);
                out.set(*v, out.get(*v).map_or(d, |known| known.min(d)));
            }
        }
    }
}

/// The general values that a block reads.
fn reads_of(func: &Function, b: Block) -> Vec<(Value, u32)> {
    let block = &func.blocks[b];
    let mut reads: Vec<(Value, u32)> = Vec::new();
    let mut read = |v: Value, at: usize| {
        if is_general(func, v) {
            reads.push((v, at as u32));
        }
    };
    for (at, i) in block.insts.iter().enumerate() {
        func.insts[*i].for_each_use(|n| n.value().into_iter().for_each(|v| read(v, at)));
    }
    let passed = block.term.targets().into_iter().flat_map(|t| t.args.iter().copied());
    let term = block.term.used_name().and_then(Name::value).into_iter().chain(passed);
    term.for_each(|v| read(v, block.insts.len()));
    reads.sort_unstable();
    reads.dedup();
    reads.shrink_to_fit();
    reads
}
