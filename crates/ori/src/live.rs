//! Which values are live where blocks begin and end, in SSA: from each use upwards to the definition, so that the work is
//! what the answer takes.

use crate::cfg::Cfg;
use crate::function::{Block, Function, Name, Value};
use cranelift_entity::SecondaryMap;

/// Values live at the edges of blocks. Parameters of a block are not live where it begins; arguments are live where the
/// block ends that passes them.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Ascending, once sorted.
    live_in: SecondaryMap<Block, Vec<Value>>,
    live_out: SecondaryMap<Block, Vec<Value>>,
}

impl Live {
    /// Analyses a function in SSA.
    pub fn new(func: &Function, cfg: &Cfg) -> Live {
        let mut home: SecondaryMap<Value, Option<Block>> = SecondaryMap::new();
        // Where each value is read that is not made in the same block, and where it is passed on.
        let mut reads: SecondaryMap<Value, Vec<Block>> = SecondaryMap::new();
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            data.params.iter().for_each(|p| home[*p] = Some(b));
            data.insts.iter().for_each(|i| {
                func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(|v| home[v] = Some(b)));
            });
        }
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            let mut read = |v: Value| {
                if home[v] != Some(b) && reads[v].last() != Some(&b) {
                    reads[v].push(b);
                }
            };
            for i in &data.insts {
                func.insts[*i].for_each_use(|n| n.value().into_iter().for_each(&mut read));
            }
            data.term.used_name().and_then(Name::value).into_iter().for_each(&mut read);
            data.term.targets().into_iter().flat_map(|t| t.args.iter()).for_each(|a| read(*a));
        }
        let mut out = Live::default();
        // The last value that came in, and that went out.
        let mut seen_in: SecondaryMap<Block, Option<Value>> = SecondaryMap::new();
        let mut seen_out: SecondaryMap<Block, Option<Value>> = SecondaryMap::new();
        for v in func.values.keys() {
            let mut work = std::mem::take(&mut reads[v]);
            while let Some(b) = work.pop() {
                if seen_in[b].replace(v) == Some(v) {
                    continue;
                }
                out.live_in[b].push(v);
                for &p in &cfg.preds[b] {
                    if seen_out[p].replace(v) != Some(v) {
                        out.live_out[p].push(v);
                    }
                    if home[v] != Some(p) {
                        work.push(p);
                    }
                }
            }
        }
        out
    }

    /// Live where a block begins, ascending.
    pub fn live_in(&self, b: Block) -> &[Value] {
        &self.live_in[b]
    }

    /// Live where a block ends and in one that follows, ascending.
    pub fn live_out(&self, b: Block) -> &[Value] {
        &self.live_out[b]
    }
}
