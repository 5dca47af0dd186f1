//! Unrolling of innermost loops that run a known number of times: wholly if the copies are not too many instructions, else by a
//! factor, with the iterations that are left over before the loop.
//!
//! The copies come before the loop's own blocks, which execute the last iteration: what is used behind the loop stays
//! defined where it was. Iterations that are not the last of a round go on without a test.

use crate::Pass;
use ori::loops::{Loop, LoopForest, Makers};
use ori::{
    Analyses, Block, BlockCall, Changed, Editor, Function, InstData, Macro, Op, Refusal, Remark, Terminator,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::Opcode;

/// Most instructions of a loop that is unrolled wholly, over all iterations.
const WHOLE: u64 = 640;
/// Most instructions of the body of a loop that is unrolled in part, and most copies.
const PART: u64 = 256;
const COPIES: u64 = 16;

/// How a loop is unrolled.
struct Plan {
    /// Its blocks in reverse postorder; the header is the first one.
    blocks: Vec<Block>,
    latch: Block,
    /// Iterations that are executed before the loop, and in each round of it.
    peeled: u64,
    factor: u64,
    /// The loop ends after the first round.
    whole: bool,
}

impl Plan {
    fn describe(&self) -> String {
        match (self.whole, self.peeled) {
            (true, _) => format!("the loop becomes {} copies of its body", self.factor),
            (false, 0) => format!("{} iterations a round", self.factor),
            (false, peeled) => format!("{} iterations a round, {peeled} before the first", self.factor),
        }
    }
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "unroll",
    "OriLoopUnrolling",
    "loops that run a known number of times ([unrolling.md](unrolling.md))",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let mut remarks = Vec::new();
    let plans: Vec<Plan> = {
        let loops = analyses.loops(func);
        let makers = Makers::new(func);
        let decided = |l| {
            let plan = plan(func, analyses, loops, &makers, l);
            let said = plan.as_ref().map(Plan::describe).map_err(Clone::clone);
            remarks.push(Remark::of(PASS.phase, func.loc_of(loops.loops[l].header), said));
            plan.ok()
        };
        loops.loops.keys().filter_map(decided).collect()
    };
    func.remark(remarks);
    if plans.is_empty() {
        return Changed::Nothing;
    }
    let mut e = Editor::new(func);
    let mut moved: FxHashMap<Block, Vec<Block>> = FxHashMap::default();
    for p in &plans {
        if let Some(last) = apply(&mut e, p) {
            moved.insert(last, p.blocks.clone());
        }
    }
    let changed = e.finish();
    // The last iteration behind the others.
    let own: FxHashSet<Block> = moved.values().flatten().copied().collect();
    let layout = std::mem::take(&mut func.layout);
    for b in layout {
        if own.contains(&b) {
            continue;
        }
        func.layout.push(b);
        func.layout.extend(moved.remove(&b).into_iter().flatten());
    }
    changed
}

/// How a loop is unrolled, if it is.
fn plan(
    func: &Function,
    analyses: &Analyses,
    loops: &LoopForest,
    makers: &Makers,
    l: Loop,
) -> Result<Plan, Refusal> {
    let data = &loops.loops[l];
    let ([(from, _)], [latch]) = (&data.exits[..], &data.latches[..]) else {
        return Err("it is left, or goes back, in several places".into());
    };
    if !loops.is_innermost(l) {
        return Err("there are loops in it".into());
    }
    if func.blocks[data.header].rolled {
        return Err("the program forbids it".into());
    }
    if from != latch || data.header == func.entry_block() {
        return Err("it is not left at its end".into());
    }
    let cfg = analyses.cfg(func);
    // It runs once more than it goes back.
    let trips = loops.trips(func, cfg, analyses.dominators(func), makers, l);
    let times = trips.and_then(|n| n.checked_add(1)).ok_or("it is not known how often it is executed")?;
    let blocks = loops.blocks(cfg, l);
    let mut size = 0;
    for &b in &blocks {
        for &i in &func.blocks[b].insts {
            size += cost(&func.insts[i]).ok_or("an instruction in it must not be copied")?;
        }
        size += 1;
    }
    if blocks.first() != Some(&data.header) {
        return Err("it is entered in several places".into());
    }
    let plan = |peeled, factor, whole| Plan { blocks: blocks.clone(), latch: *latch, peeled, factor, whole };
    if times.checked_mul(size).is_some_and(|all| all <= func.tuning.unrolled(WHOLE)) {
        return Ok(plan(0, times, true));
    }
    let most = (func.tuning.unrolled(PART) / size).min(COPIES).min(times / 2);
    // A divisor leaves nothing over.
    let factor = (most / 2 + 1..=most).rev().find(|f| times % f == 0).unwrap_or(most);
    if factor > 1 {
        return Ok(plan(times % factor, factor, false));
    }
    Err(format!("{size} instructions are too many for {times} iterations").into())
}

/// How many instructions of the body it is; `None` if it must not be copied.
pub(crate) fn cost(d: &InstData) -> Option<u64> {
    match d.op {
        Op::Macro(Macro::Copy | Macro::Collect | Macro::Undef) => Some(0),
        Op::Macro(Macro::Symbol) => Some(1),
        // Calls are known by their place.
        Op::Macro(_) => None,
        // Lanes that meet at the copies of one instruction would be at different ones.
        Op::Sass(op) if op.info().control || d.mods.has(ori::meeting::MARK) => None,
        // Each word of a sum or comparison of 64 bits.
        Op::Sass(Opcode::IADD) => Some(2),
        Op::Sass(_) if ori::pairs::compares(d) => Some(2),
        Op::Sass(_) => Some(1),
    }
}

/// Unrolls a loop; the block of the copies that is the last in the layout, if there are any.
fn apply(e: &mut Editor<'_>, plan: &Plan) -> Option<Block> {
    let header = plan.blocks[0];
    let copies: Vec<_> = (1..plan.peeled + plan.factor).map(|_| e.clone_region(&plan.blocks)).collect();
    // The headers of all iterations in their order, and their latches.
    let headers: Vec<Block> = copies.iter().map(|c| c.blocks[&header]).chain([header]).collect();
    let latches: Vec<Block> = copies.iter().map(|c| c.blocks[&plan.latch]).chain([plan.latch]).collect();
    // Ways in lead to the first one.
    for b in e.func().layout.clone() {
        if plan.blocks.contains(&b) || e.func().blocks[b].term.targets().iter().all(|t| t.block != header) {
            continue;
        }
        let mut term = e.func().blocks[b].term.clone();
        term.targets_mut().into_iter().filter(|t| t.block == header).for_each(|t| t.block = headers[0]);
        e.set_terminator(b, term);
    }
    let last = latches.len() - 1;
    for (n, &latch) in latches.iter().enumerate() {
        let Terminator::Branch { taken, fall, .. } = e.func().blocks[latch].term.clone() else { continue };
        let (back, out) = if taken.block == headers[n] { (taken, fall) } else { (fall, taken) };
        let to = |t: BlockCall, block: Block| Terminator::Jump(BlockCall { block, ..t });
        if n < last {
            e.set_terminator(latch, to(back, headers[n + 1]));
        } else if plan.whole {
            e.set_terminator(latch, Terminator::Jump(out));
        } else {
            let mut term = e.func().blocks[latch].term.clone();
            let first = headers[plan.peeled as usize];
            term.targets_mut().into_iter().filter(|t| t.block == header).for_each(|t| t.block = first);
            e.set_terminator(latch, term);
        }
    }
    Some(copies.last()?.blocks[plan.blocks.last()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop that stores its counter, which goes up from 0 to `bound` by 1, after the pass.
    fn after(bound: u32, rolled: &str, body: &str) -> (Function, usize) {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R2 = LDC.64 c[0x0][0x210]
    v1:R = copy 0x0
    v2:R = S2R SR_TID.X
    jump block1(v1, v2)
block1(v3:R, v4:R){rolled}:
    STG.E [v0.64], v3
{body}    v5:R = IADD3 PT, PT, v3, 0x1, RZ, !PT, !PT
    v6:R = IADD3 PT, PT, v4, v3, RZ, !PT, !PT
    v7:P = ISETP.LT.AND PT, v5, {bound:#x}, PT, PT
    branch v7, block1(v5, v6), block2
block2:
    STG.E [v0.64+0x8], v6
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(ori::parse::parse(&f.to_string()).unwrap().to_string(), f.to_string());
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let stores = f.to_string().matches("STG.E [v0.64],").count();
        (f, stores)
    }

    /// How often the loop's store is executed.
    fn executed(f: &Function, bound: u32) -> usize {
        // Of a loop that is left, each round has so many.
        let loops = Analyses::default();
        let forest = loops.loops(f);
        let store = |b: Block| {
            let text = |i: &ori::Inst| ori::print::inst_text(f, &f.insts[*i]);
            f.blocks[b].insts.iter().filter(|i| text(i).starts_with("STG.E [v0.64],")).count()
        };
        let inside: usize = f.layout.iter().filter(|b| forest.depth(**b) > 0).map(|b| store(*b)).sum();
        let before: usize = f.layout.iter().filter(|b| forest.depth(**b) == 0).map(|b| store(*b)).sum();
        let rounds = (bound as usize - before).checked_div(inside);
        before + rounds.unwrap_or(0) * inside
    }

    #[test]
    fn short_loops_go() {
        for bound in [1, 2, 7, 100] {
            let (f, stores) = after(bound, "", "");
            assert_eq!(stores, bound as usize, "{f}");
            assert!(!f.to_string().contains("branch"), "{f}");
        }
    }

    #[test]
    fn every_iteration_of_long_loops_is_executed_once() {
        for bound in [200, 1000, 1001, 1007, 4096, 65537] {
            let (f, stores) = after(bound, "", "");
            assert!((2..50).contains(&stores) && f.to_string().contains("branch"), "{f}");
            assert_eq!(executed(&f, bound), bound as usize, "{bound}: {f}");
        }
    }

    #[test]
    fn some_loops_stay() {
        assert_eq!(after(8, " rolled", "").1, 1);
        assert_eq!(
            after(8, "", "    v9:P = ISETP.LT.AND PT, v4, 0x2, PT, PT\n    WARPSYNC PT, 0xffffffff\n").1,
            1
        );
        let long: String = (100..400).map(|n| format!("    v{n}:R = FADD v2, v4\n")).collect();
        assert_eq!(after(8, "", &long).1, 1);
    }
}
