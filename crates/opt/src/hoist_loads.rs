//! Loads go up past branches that end where they stand: from a block where ways meet to the end of the block where they parted,
//! so that their results are on their way while the arms are executed. Every thread that parts there comes to the load, and
//! nothing on the way may change what it reads.

use crate::Pass;
use crate::vectorize::separates;
use cranelift_entity::SecondaryMap;
use ori::{Analyses, Block, Changed, Function, Inst, InstData, Name, Op, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::memory::{MemoryEffects, MemorySpace};
use sass::{Mod, Opcode};
use smallvec::SmallVec;

/// Registers that loads of one block may take in the arms.
const WORDS: u32 = 8;
/// Instructions that compute an address, at most.
const STEPS: usize = 6;
/// Blocks between, at most.
const BETWEEN: usize = 16;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "hoist-loads",
    "OriHoistInvariantsLate",
    "loads of a block where ways meet go to the end of the block where they parted, up to eight words, if nothing on the way changes what they read and both are executed as often",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let mut insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if !insts.any(|i| space(&func.insts[*i]).is_some()) {
        return Changed::Nothing;
    }
    let (cfg, dom) = (analyses.cfg(func), analyses.dominators(func));
    let (post, loops) = (analyses.postdominators(func), analyses.loops(func));
    let mut home: SecondaryMap<Value, Option<Block>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        func.blocks[b].params.iter().for_each(|p| home[*p] = Some(b));
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(|n| n.value().into_iter().for_each(|v| home[v] = Some(b)));
        }
    }
    let mut moved: Vec<(Block, Block, Vec<Inst>)> = Vec::new();
    for &meet in &cfg.rpo {
        let Some(part) = dom.idom(meet) else { continue };
        let alike = loops.innermost(part) == loops.innermost(meet) && post.dominates(meet, part);
        if !alike || cfg.succs[part].len() < 2 || !holds_load(func, meet) {
            continue;
        }
        let Some(between) = between(&cfg.succs, part, meet) else { continue };
        let available = |v: Value| home[v].is_some_and(|b| dom.dominates(b, part));
        let found = movable(func, meet, &between, &available);
        if !found.is_empty() {
            // They have moved, for those that come later.
            for i in &found {
                func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(|v| home[v] = Some(part)));
            }
            moved.push((meet, part, found));
        }
    }
    let any = !moved.is_empty();
    for (meet, part, insts) in moved {
        let gone: FxHashSet<Inst> = insts.iter().copied().collect();
        func.blocks[meet].insts.retain(|i| !gone.contains(i));
        func.blocks[part].insts.extend(insts);
    }
    Changed::instructions(any)
}

/// What a load reads that other threads are not to change meanwhile.
pub(crate) fn space(d: &InstData) -> Option<MemorySpace> {
    let Op::Sass(op @ (Opcode::LDG | Opcode::LDS | Opcode::LD)) = d.op else { return None };
    let marked = [Mod::STRONG, Mod::MMIO].iter().any(|m| d.mods.has(*m));
    match op.info().accesses {
        MemoryEffects::Accesses([one]) if d.is_unguarded() && !marked => Some(one.space),
        _ => None,
    }
}

fn holds_load(func: &Function, b: Block) -> bool {
    func.blocks[b].insts.iter().any(|i| space(&func.insts[*i]).is_some())
}

/// The blocks on the ways from `part` to `meet`, without these two; `None` if they are many, or lead back to `part`.
fn between(
    succs: &SecondaryMap<Block, SmallVec<[Block; 2]>>,
    part: Block,
    meet: Block,
) -> Option<Vec<Block>> {
    let mut found: Vec<Block> = Vec::new();
    let mut next = 0;
    let mut at = part;
    loop {
        for &s in &succs[at] {
            if s == part || found.len() > BETWEEN {
                return None;
            }
            if s != meet && !found.contains(&s) {
                found.push(s);
            }
        }
        let Some(b) = found.get(next) else { return Some(found) };
        at = *b;
        next += 1;
    }
}

/// The loads of `meet` that may go up, each behind what computes its address. `available`: values that are there before.
fn movable(func: &Function, meet: Block, between: &[Block], available: &impl Fn(Value) -> bool) -> Vec<Inst> {
    let mut found: Vec<Inst> = Vec::new();
    let mut words = 0;
    // What of the block goes up, and what could.
    let mut gone: FxHashSet<Value> = FxHashSet::default();
    let mut makers: FxHashMap<Value, Inst> = FxHashMap::default();
    // Whether a space is as it was where the ways parted.
    let mut same: Vec<(MemorySpace, bool)> = Vec::new();
    let mut passed: Vec<Inst> = Vec::new();
    for &i in &func.blocks[meet].insts {
        let d = &func.insts[i];
        if let Some(space) = space(d) {
            let known = same.iter().find(|s| s.0 == space).map(|s| s.1);
            let same_here = known.unwrap_or_else(|| {
                let insts = || between.iter().flat_map(|b| &func.blocks[*b].insts).chain(&passed);
                let unchanged = !insts().any(|k| separates(&func.insts[*k], space));
                same.push((space, unchanged));
                unchanged
            });
            let size = width(func, d);
            if same_here && words + size <= WORDS {
                let mut needed: Vec<Inst> = Vec::new();
                if address(func, d, &gone, &makers, available, &mut needed) {
                    for k in needed.into_iter().chain([i]) {
                        func.insts[k].for_each_def(|n| gone.extend(n.value()));
                        found.push(k);
                    }
                    words += size;
                    continue;
                }
            }
        } else if d.is_unguarded() && d.may_run_needlessly() && d.is_of_each_lane() {
            d.for_each_def(|n| {
                n.value().into_iter().for_each(|v| _ = makers.insert(v, i));
            });
        }
        same.retain(|s| !s.1 || !separates(d, s.0));
        passed.push(i);
    }
    found
}

/// Registers of the results.
fn width(func: &Function, d: &InstData) -> u32 {
    let mut words = 0;
    d.for_each_def(|n| words += n.value().map_or(0, |v| u32::from(func.values[v].width)));
    words
}

/// Collects what of the block has to go up with an instruction, in order. Whether that is all that it needs.
fn address(
    func: &Function,
    d: &InstData,
    gone: &FxHashSet<Value>,
    makers: &FxHashMap<Value, Inst>,
    available: &impl Fn(Value) -> bool,
    needed: &mut Vec<Inst>,
) -> bool {
    let mut read: SmallVec<[Name; 8]> = SmallVec::new();
    d.for_each_use(|n| read.push(n));
    for n in read {
        let v = match n {
            Name::Val(v) | Name::Part(v, _) => v,
            Name::Phys(r) if r.is_zero() || r == sass::Reg::SP => continue,
            Name::Phys(_) => return false,
        };
        if available(v) || gone.contains(&v) {
            continue;
        }
        let Some(&maker) = makers.get(&v) else { return false };
        if needed.contains(&maker) {
            continue;
        }
        if needed.len() == STEPS || !address(func, &func.insts[maker], gone, makers, available, needed) {
            return false;
        }
        needed.push(maker);
    }
    needed.len() <= STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(arm: &str, load: &str) -> bool {
        let f = crate::testing::branched(
            &format!(
                "block1:
    {arm}
    jump block2
block2:
    v4:R2 = IMAD.WIDE PT, v2, 0x4, v1, !PT
    {load}
    STG.E desc[v0][v1.64], v5"
            ),
            run,
        );
        let entry = f.entry_block();
        f.blocks[entry].insts.iter().any(|i| space(&f.insts[*i]).is_some())
    }

    const PLAIN: &str = "v5:R = LDG.E PT, desc[v0][v4.64], PT";

    #[test]
    fn loads_go_past_arms_that_change_nothing_of_theirs() {
        assert!(moved("STS [v2], v2", PLAIN));
        assert!(moved("STG.E desc[v0][v1.64+0x8], v2", "v5:R = LDS [v2]"));
    }

    #[test]
    fn others_stay() {
        assert!(!moved("STG.E desc[v0][v1.64+0x8], v2", PLAIN));
        assert!(!moved("v6:R = LDG.E.STRONG.SYS PT, desc[v0][v1.64], PT", "v5:R = LDS [v2]"));
        assert!(!moved("BAR.SYNC 0x0, 0x0, PT", PLAIN));
        assert!(!moved("STS [v2], v2", "v5:R = LDG.E.STRONG.GPU PT, desc[v0][v4.64], PT"));
        assert!(!moved("STS [v2], v2", "v5:R = LDS [v2]"));
        assert!(!moved("ST.E desc[v0][v1.64], v2", "v5:R = LDS [v2]"));
    }
}
