//! Uniform registers that hold something from block to block: which values do, how many registers those take where, and how many are left.

use crate::liveness::{self, Apart, Liveness};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{Block, Function, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// The values that live from block to block, of those that are in uniform registers.
pub struct Across {
    values: FixedBitSet,
    /// Those and what is passed for them, in the same registers.
    members: FixedBitSet,
    /// The first of the values that are in one register.
    first: SecondaryMap<Value, Option<Value>>,
}

impl Across {
    /// Those of a function; `uniform` says which values are in such registers. A parameter and what is passed for it count once: nearly always they
    /// are in one, but for what several parameters of a block are passed, numbers mostly.
    pub fn new(func: &Function, cfg: &Cfg, uniform: impl Fn(Value) -> bool) -> Across {
        let [across] = Across::each(func, cfg, |v| uniform(v).then_some(0));
        across
    }

    /// The same of several kinds of registers, of which `kind` says a value's.
    pub fn each<const KINDS: usize>(
        func: &Function,
        cfg: &Cfg,
        kind: impl Fn(Value) -> Option<usize>,
    ) -> [Across; KINDS] {
        let mut values: [FixedBitSet; KINDS] =
            std::array::from_fn(|_| FixedBitSet::with_capacity(func.values.len()));
        // The blocks that they are made in; what makes a value comes before what reads it.
        let mut made: SecondaryMap<Value, PackedOption<Block>> = func.per_value();
        for &b in &cfg.rpo {
            for i in &func.blocks[b].insts {
                let d = &func.insts[*i];
                d.for_each_use(|n| {
                    if let Some(v) = n.value()
                        && let Some(k) = kind(v)
                        && made[v] != Some(b).into()
                    {
                        values[k].insert(v.index());
                    }
                });
                d.for_each_def(|n| {
                    if let Some(v) = n.value().filter(|v| kind(*v).is_some()) {
                        made[v] = Some(b).into();
                    }
                });
            }
            for p in &func.blocks[b].params {
                kind(*p).into_iter().for_each(|k| values[k].insert(p.index()));
            }
        }
        let mut all =
            values.map(|values| Across { members: values.clone(), values, first: SecondaryMap::new() });
        for &b in &cfg.rpo {
            for t in func.blocks[b].term.targets() {
                let mut passed = FxHashSet::default();
                for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                    let Some(k) = kind(*a).filter(|k| kind(*p) == Some(*k)) else { continue };
                    if !passed.insert(*a) {
                        continue;
                    }
                    let across = &mut all[k];
                    let (x, y) = (across.root(*a), across.root(*p));
                    across.members.grow_and_insert(a.index());
                    if x != y {
                        across.first[x.max(y)] = Some(x.min(y));
                    }
                }
            }
        }
        all
    }

    fn root(&self, mut v: Value) -> Value {
        while let Some(next) = self.first[v] {
            v = next;
        }
        v
    }

    /// Whether a value is in a register of theirs.
    pub fn holds(&self, v: Value) -> bool {
        self.members.contains(v.index())
    }

    /// How many registers they take.
    pub fn words(&self, func: &Function) -> usize {
        let mut counted: FxHashSet<Value> = FxHashSet::default();
        let roots = self.values.ones().map(|v| self.root(Value::new(v)));
        roots.filter(|v| counted.insert(*v)).map(|v| usize::from(func.values[v].width)).sum()
    }

    /// How many registers they take in each block: those that live where lanes may be `apart`, in all blocks in which others may be meanwhile.
    pub fn taken(&self, func: &Function, cfg: &Cfg, alive: Live<'_>, apart: &Apart) -> Taken {
        let mut number: FxHashMap<Value, usize> = FxHashMap::default();
        let mut widths: Vec<usize> = Vec::new();
        let mut here: SecondaryMap<Block, FixedBitSet> = SecondaryMap::new();
        let mut regions: Vec<FixedBitSet> = vec![FixedBitSet::new(); apart.regions.len()];
        let Live { lanes, live } = alive;
        for &b in &cfg.rpo {
            let mut note = |v: Value| {
                if self.holds(v) {
                    let root = self.root(v);
                    let k = *number.entry(root).or_insert_with(|| {
                        widths.push(func.values[root].width.into());
                        widths.len() - 1
                    });
                    here[b].grow_and_insert(k);
                }
            };
            let owner = |l: &u32| lanes.owner(*l).map(|(v, _)| v);
            live.live_in[b].iter().chain(&live.live_out[b]).filter_map(owner).for_each(&mut note);
            func.blocks[b].params.iter().copied().for_each(&mut note);
            let targets = func.blocks[b].term.targets();
            targets.iter().flat_map(|t| t.args.iter().copied()).for_each(&mut note);
            apart.of(b).iter().for_each(|r| regions[*r as usize].union_with(&here[b]));
        }
        let mut taken = Taken { blocks: SecondaryMap::new(), most: 0 };
        for &b in &cfg.rpo {
            apart.of(b).iter().for_each(|r| here[b].union_with(&regions[*r as usize]));
            taken.blocks[b] = here[b].ones().map(|k| widths[k]).sum();
            taken.most = taken.most.max(taken.blocks[b]);
        }
        taken
    }
}

/// What lives where in a function.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// The lanes of its values.
    pub lanes: &'a liveness::Lanes,
    /// Where they live.
    pub live: &'a Liveness,
}

/// How many registers of a kind are taken from block to block: in each block, and the most.
pub struct Taken {
    /// In each block.
    pub blocks: SecondaryMap<Block, usize>,
    /// The most.
    pub most: usize,
}

/// How many registers those take.
pub fn across(func: &Function, cfg: &Cfg, uniform: impl Fn(Value) -> bool) -> usize {
    Across::new(func, cfg, uniform).words(func)
}

/// How many uniform registers are left in each block for what lives from block to block.
pub(super) struct Budget<'a> {
    func: &'a Function,
    cfg: &'a Cfg,
    alive: Live<'a>,
    apart: &'a Apart,
    left: SecondaryMap<Block, i32>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(
        func: &'a Function,
        cfg: &'a Cfg,
        alive: Live<'a>,
        apart: &'a Apart,
        left: impl Fn(Block) -> i32,
    ) -> Budget<'a> {
        let mut all = SecondaryMap::new();
        cfg.rpo.iter().for_each(|b| all[*b] = left(*b));
        Budget { func, cfg, alive, apart, left: all }
    }

    /// As many as the fullest block has.
    pub(super) fn least(&self) -> usize {
        self.cfg.rpo.iter().map(|b| self.left[*b]).min().unwrap_or(0).max(0) as usize
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.cfg.rpo.iter().any(|b| self.left[*b] < 0)
    }

    /// Takes registers for values, if they reach: in all blocks in which lanes may be while others need them.
    pub(super) fn take(&mut self, values: &[Value]) -> bool {
        let mut left = self.left.clone();
        for v in values {
            let all = self.alive.lanes.all(*v);
            let Live { live, .. } = self.alive;
            let lives = |b: &&Block| live.is_live_in(**b, all.clone()) || live.is_live_out(**b, all.clone());
            let mut blocks: FxHashSet<Block> = FxHashSet::default();
            let mut regions: FxHashSet<u32> = FxHashSet::default();
            for b in self.cfg.rpo.iter().filter(lives) {
                blocks.insert(*b);
                regions.extend(self.apart.of(*b));
            }
            regions.into_iter().for_each(|r| blocks.extend(&self.apart.regions[r as usize]));
            blocks.into_iter().for_each(|b| left[b] -= i32::from(self.func.values[*v].width));
        }
        let fits = self.cfg.rpo.iter().all(|b| left[*b] >= 0);
        if fits {
            self.left = left;
        }
        fits
    }
}
