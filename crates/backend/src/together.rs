//! Where all lanes of a warp that have not ended are together: at a kernel's entry, behind WARPSYNC of all lanes, at meetings of regions
//! that all have come into, and as long as no branch parts them. There WARPSYNC is needless.

use crate::waits::ends_thread;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::LoopForest;
use ori::uniformity::Uniformity;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Terminator, Value};
use rustc_hash::FxHashSet;
use sass::ops::{Break, Bssy, Bsync, Warpsync};
use sass::{Mod, Opcode, RegFile};

/// Takes WARPSYNCs away where no lane can be alone, whatever regions there will be: what follows need not stay behind them. Whether there
/// were any.
pub fn run(func: &mut Function) -> bool {
    let is_warpsync = |d: &InstData| d.op == Op::Sass(Opcode::WARPSYNC);
    let all: Vec<Inst> = func.layout.iter().flat_map(|b| func.blocks[*b].insts.iter().copied()).collect();
    let of = |which: &dyn Fn(&InstData) -> bool| -> FxHashSet<Inst> {
        all.iter().copied().filter(|i| is_warpsync(&func.insts[*i]) && which(&func.insts[*i])).collect()
    };
    let meetings = of(&|_| true);
    if meetings.is_empty() || !func.entry {
        return false;
    }
    let cfg = Cfg::new(func);
    let uniformity = Uniformity::new(func, &cfg);
    let parts = |b: &Block| splits(func, *b) && uniformity.is_divergent_branch(*b);
    let divergent: FixedBitSet = cfg.rpo.iter().filter(|b| parts(b)).map(|b| b.index()).collect();
    // Behind those at which lanes of several places may meet, they go on from there.
    let shared = of(&ori::meeting::is_meeting);
    let divided = of(&|d| d.mods.has(Mod::EXCLUSIVE));
    let needed = Together::new(func, &cfg, &divergent, &shared, &divided, true).needed();
    let gone: FxHashSet<Inst> = meetings.difference(&needed).copied().collect();
    for b in cfg.rpo {
        func.blocks[b].insts.retain(|i| !gone.contains(i));
    }
    !gone.is_empty()
}

/// Whether the instruction is a WARPSYNC of all lanes, in either of its forms.
pub fn gathers_all(d: &InstData) -> bool {
    Warpsync::of(d).is_some_and(|s| *s.lanes == Operand::Imm(!0) || d.mods.has(Mod::ALL))
}

/// Whether all lanes that have not ended are together, block by block.
pub struct Together<'f> {
    func: &'f Function,
    cfg: &'f Cfg,
    /// WARPSYNCs behind which lanes go on from different places.
    shared: &'f FxHashSet<Inst>,
    /// WARPSYNCs that keep lanes of different masks apart.
    divided: &'f FxHashSet<Inst>,
    /// Whether those have no regions yet in which lanes meet again.
    early: bool,
    /// Blocks behind which lanes that end are not over for the others, as everywhere else.
    strict: FixedBitSet,
    /// Barriers to which each warp comes as a whole: behind them it is together, whatever is thought of the way there.
    barriers: FxHashSet<Inst>,
    /// Blocks to which the whole warp comes or nobody.
    asked: FixedBitSet,
    /// At the start of each block, at its end, and where a barrier was set; true until shown otherwise.
    start: SecondaryMap<Block, bool>,
    end: SecondaryMap<Block, bool>,
    set: SecondaryMap<Value, bool>,
    /// Barriers that lanes leave by BREAK: behind their meeting those are missing.
    left: FxHashSet<Value>,
}

impl<'f> Together<'f> {
    /// Follows the lanes; `divergent`: blocks at whose end they part.
    pub fn new(
        func: &'f Function,
        cfg: &'f Cfg,
        divergent: &'f FixedBitSet,
        shared: &'f FxHashSet<Inst>,
        divided: &'f FxHashSet<Inst>,
        early: bool,
    ) -> Together<'f> {
        let (start, end) = (SecondaryMap::with_default(true), SecondaryMap::with_default(true));
        let set = SecondaryMap::with_default(true);
        let strict = FixedBitSet::with_capacity(func.blocks.len());
        let insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
        let left = insts.filter_map(barrier_left).collect();
        let barriers = FxHashSet::default();
        let of_all = cfg.rpo.iter().filter_map(|b| ori::meeting::whole_warp(func, *b));
        let asked = of_all.filter(|b| cfg.preds[*b].len() == 1).map(|b| b.index()).collect();
        let mut out =
            Together { func, cfg, shared, divided, early, strict, barriers, asked, start, end, set, left };
        out.follow(divergent);
        out
    }

    /// Follows them anew, in `strict` blocks and behind `barriers` as it is said there.
    fn follow_strictly(&mut self, strict: FixedBitSet, barriers: FxHashSet<Inst>, divergent: &FixedBitSet) {
        (self.strict, self.barriers) = (strict, barriers);
        (self.start, self.end) = (SecondaryMap::with_default(true), SecondaryMap::with_default(true));
        self.set = SecondaryMap::with_default(true);
        self.follow(divergent);
    }

    fn follow(&mut self, divergent: &FixedBitSet) {
        let (func, cfg) = (self.func, self.cfg);
        let mut changed = true;
        while changed {
            changed = false;
            for &b in &cfg.rpo {
                let mut together = match b == func.entry_block() {
                    true => func.entry,
                    // There the whole warp was asked for.
                    false if self.asked.contains(b.index()) => true,
                    false => {
                        let apart = |p: Block| {
                            leaves_lanes(func, divergent, p, b)
                                || self.strict.contains(p.index()) && divergent.contains(p.index())
                        };
                        cfg.preds[b].iter().all(|p| self.end[*p] && !apart(*p))
                    }
                };
                self.start[b] = together;
                for i in &func.blocks[b].insts {
                    together = self.after(*i, together);
                }
                changed |= std::mem::replace(&mut self.end[b], together) != together;
            }
        }
    }

    /// Whether they are after an instruction.
    fn after(&mut self, i: Inst, together: bool) -> bool {
        if self.early && self.divided.contains(&i) {
            return false;
        }
        if self.barriers.contains(&i) {
            return true;
        }
        let shared = self.shared.contains(&i);
        if shared { together } else { after(&self.func.insts[i], together, &mut self.set, &self.left) }
    }

    /// Whether they are at the end of a block, and before every instruction of it behind its meetings: what a WARPSYNC in the middle brings
    /// together is not so in front of it, nor are lanes behind a call.
    fn stays(&mut self, b: Block) -> bool {
        let mut together = self.start[b];
        let mut meets = true;
        for &i in &self.func.blocks[b].insts {
            meets &= self.func.insts[i].op == Op::Sass(Opcode::BSYNC);
            if !meets && !together {
                return false;
            }
            together = self.after(i, together);
        }
        together
    }

    /// The barriers of the block and of the cluster where they are.
    fn whole_barriers(&mut self) -> FxHashSet<Inst> {
        let mut out = FxHashSet::default();
        for &b in &self.cfg.rpo {
            let mut together = self.start[b];
            for &i in &self.func.blocks[b].insts {
                let d = &self.func.insts[i];
                let waits = match d.op {
                    Op::Sass(Opcode::BAR) => d.mods.has(Mod::SYNC),
                    Op::Sass(Opcode::UCGABAR_ARV | Opcode::UCGABAR_WAIT) => true,
                    _ => false,
                };
                if together && waits && d.is_unguarded() {
                    out.insert(i);
                }
                together = self.after(i, together);
            }
        }
        out
    }

    /// The WARPSYNCs where they are not.
    pub fn needed(&mut self) -> FxHashSet<Inst> {
        let mut out = FxHashSet::default();
        for &b in &self.cfg.rpo {
            let mut together = self.start[b];
            for &i in &self.func.blocks[b].insts {
                let d = &self.func.insts[i];
                // Under a guard, code before sm_90 of ptxas keeps it.
                let needless = together && (d.is_unguarded() || self.func.target.sm >= 90);
                if d.op == Op::Sass(Opcode::WARPSYNC) && (!needless || self.divided.contains(&i)) {
                    out.insert(i);
                }
                together = self.after(i, together);
            }
        }
        out
    }
}

/// The blocks of a function with its regions at whose start, and at whose end, all lanes that have not ended are together. All came to such a
/// start by the same way.
pub struct WholeWarp {
    start: FixedBitSet,
    end: FixedBitSet,
    uniformity: Uniformity,
}

impl WholeWarp {
    /// Follows the lanes of a function with its regions. Of all WARPSYNCs those of barriers alone are taken to bring lanes together, `others` left
    /// out: behind others ptxas has no such counters (docs/convergence.md).
    pub fn new(func: &Function, cfg: &Cfg, others: &FxHashSet<Inst>) -> WholeWarp {
        let uniformity = Uniformity::new(func, cfg);
        let parts = |b: &Block| splits(func, *b) && uniformity.is_divergent_branch(*b);
        let divergent: FixedBitSet = cfg.rpo.iter().filter(|b| parts(b)).map(|b| b.index()).collect();
        let insts = cfg.rpo.iter().flat_map(|b| func.blocks[*b].insts.iter().copied());
        let meetings = insts.filter(|i| func.insts[*i].op == Op::Sass(Opcode::WARPSYNC));
        let (divided, plain): (FxHashSet<Inst>, FxHashSet<Inst>) =
            meetings.partition(|i| func.insts[*i].mods.has(Mod::EXCLUSIVE));
        let barriers = Together::new(func, cfg, &divergent, others, &divided, true).whole_barriers();
        let shared: FxHashSet<Inst> = plain.into_iter().collect();
        let mut found = Together::new(func, cfg, &divergent, &shared, &divided, true);
        // ptxas has no such counters in loops out of which lanes go one by one, be it to end.
        let loops = LoopForest::new(cfg, &DomTree::dominators(cfg));
        let strict = cfg.rpo.iter().filter(|b| loops.depth(**b) > 0).map(|b| b.index()).collect();
        found.follow_strictly(strict, barriers, &divergent);
        let start = cfg.rpo.iter().filter(|b| found.start[**b]).map(|b| b.index()).collect();
        let end = cfg.rpo.iter().filter(|b| found.stays(**b)).map(|b| b.index()).collect();
        WholeWarp { start, end, uniformity }
    }

    /// The blocks in which they are from start to end.
    pub fn blocks(&self, cfg: &Cfg) -> FixedBitSet {
        cfg.rpo.iter().filter(|b| self.at_start(**b) && self.at_end(**b)).map(|b| b.index()).collect()
    }

    /// Whether lanes may have different contents in a value.
    pub fn differs(&self, v: Value) -> bool {
        self.uniformity.is_divergent(v)
    }

    /// Whether they are at the start of a block.
    pub fn at_start(&self, b: Block) -> bool {
        self.start.contains(b.index())
    }

    /// Whether they are at its end, and before every instruction behind its meetings.
    pub fn at_end(&self, b: Block) -> bool {
        self.end.contains(b.index())
    }
}

/// Whether lanes that go from `b` to `to` leave others behind. Those that end at once are none.
fn leaves_lanes(func: &Function, divergent: &FixedBitSet, b: Block, to: Block) -> bool {
    let others = func.blocks[b].term.targets();
    let over = |s: Block| ends_thread(func, s) && func.blocks[s].insts.is_empty();
    divergent.contains(b.index()) && others.iter().any(|t| t.block != to && !over(t.block))
}

fn value(o: &Operand) -> Option<Value> {
    match o {
        Operand::Reg(r) => r.reg.value(),
        _ => None,
    }
}

/// The barrier that lanes leave by this instruction.
pub fn barrier_left(d: &InstData) -> Option<Value> {
    Break::of(d).filter(|_| d.op == Op::Sass(Opcode::BREAK)).and_then(|s| value(s.barrier))
}

/// Whether all lanes are together after an instruction.
fn after(d: &InstData, together: bool, set: &mut SecondaryMap<Value, bool>, left: &FxHashSet<Value>) -> bool {
    match d.op {
        Op::Sass(Opcode::BSSY) => {
            if let Some(v) = Bssy::of(d).and_then(|s| value(s.barrier)) {
                set[v] = together && !left.contains(&v);
            }
            together
        }
        Op::Sass(Opcode::BSYNC) => Bsync::of(d).and_then(|s| value(s.barrier)).is_some_and(|v| set[v]),
        Op::Sass(Opcode::WARPSYNC) if gathers_all(d) => together || d.is_unguarded(),
        // Where they are, it is taken away.
        Op::Sass(Opcode::WARPSYNC) => together,
        Op::Macro(ori::Macro::Call) | Op::Sass(Opcode::CALL) => false,
        _ => together,
    }
}

/// Whether two ways lead out of `b`, chosen lane by lane.
pub fn splits(func: &Function, b: Block) -> bool {
    if ori::meeting::whole_warp(func, b).is_some() {
        return false;
    }
    match &func.blocks[b].term {
        Terminator::Branch { cond, taken, fall, .. } => {
            let constant = matches!(cond, Name::Phys(r) if r.is_zero());
            taken.block != fall.block && !constant && func.shape(*cond).file == RegFile::P
        }
        _ => false,
    }
}
