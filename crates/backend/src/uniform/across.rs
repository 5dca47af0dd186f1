//! Uniform registers that hold something from block to block: which values do, how many registers those take where, and how many are left.

use crate::liveness::{self, Liveness};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{Block, Function, Value};
use rustc_hash::FxHashSet;

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

    /// How many registers they take in each block: those that live only where the `whole` warp is together, where they live.
    pub fn taken(&self, func: &Function, cfg: &Cfg, alive: Live<'_>, whole: Option<&FixedBitSet>) -> Taken {
        let mut here: FxHashSet<Value> = FxHashSet::default();
        let mut everywhere: FxHashSet<Value> = FxHashSet::default();
        let mut each: Vec<(Block, Value)> = Vec::new();
        let Live { lanes, live } = alive;
        for &b in &cfg.rpo {
            let mut note = |v: Value| _ = self.holds(v) && here.insert(self.root(v));
            let owner = |l: &u32| lanes.owner(*l).map(|(v, _)| v);
            live.live_in[b].iter().chain(&live.live_out[b]).filter_map(owner).for_each(&mut note);
            func.blocks[b].params.iter().copied().for_each(&mut note);
            let targets = func.blocks[b].term.targets();
            targets.iter().flat_map(|t| t.args.iter().copied()).for_each(&mut note);
            if whole.is_some_and(|w| w.contains(b.index())) {
                each.extend(here.drain().map(|v| (b, v)));
            } else {
                everywhere.extend(here.drain());
            }
        }
        let width = |v: &Value| usize::from(func.values[*v].width);
        let least = everywhere.iter().map(width).sum();
        let mut taken = Taken { blocks: SecondaryMap::with_default(least), most: least };
        for (b, v) in each.into_iter().filter(|(_, v)| !everywhere.contains(v)) {
            taken.blocks[b] += width(&v);
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
    whole: &'a FixedBitSet,
    left: SecondaryMap<Block, i32>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(
        func: &'a Function,
        cfg: &'a Cfg,
        alive: Live<'a>,
        whole: &'a FixedBitSet,
        left: impl Fn(Block) -> i32,
    ) -> Budget<'a> {
        let mut all = SecondaryMap::new();
        cfg.rpo.iter().for_each(|b| all[*b] = left(*b));
        Budget { func, cfg, alive, whole, left: all }
    }

    /// As many as the fullest block has.
    pub(super) fn least(&self) -> usize {
        self.cfg.rpo.iter().map(|b| self.left[*b]).min().unwrap_or(0).max(0) as usize
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.cfg.rpo.iter().any(|b| self.left[*b] < 0)
    }

    /// Takes registers for values, if they reach: everywhere for those that live where lanes may be apart.
    pub(super) fn take(&mut self, values: &[Value]) -> bool {
        let mut left = self.left.clone();
        for v in values {
            let all = self.alive.lanes.all(*v);
            let Live { live, .. } = self.alive;
            let lives = |b: &&Block| live.is_live_in(**b, all.clone()) || live.is_live_out(**b, all.clone());
            let apart = |b: &Block| !self.whole.contains(b.index());
            let spread = self.cfg.rpo.iter().filter(lives).any(apart);
            let taken = self.cfg.rpo.iter().filter(|b| spread || lives(b));
            taken.for_each(|b| left[*b] -= i32::from(self.func.values[*v].width));
        }
        let fits = self.cfg.rpo.iter().all(|b| left[*b] >= 0);
        if fits {
            self.left = left;
        }
        fits
    }
}
