//! What stands between two branches on the same condition is done before the first, so that there is one: `if (p) a; b; if (p) c` becomes
//! `b; if (p) { a; c }`, where `b` is arithmetic. Guarded statements that are several instructions each are lowered to such branches.

use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{Block, BlockCall, Function, Name, Op, Terminator, Value};

/// Does so with all such branches; whether there were any.
pub fn run(func: &mut Function) -> bool {
    let candidate =
        |func: &Function, b: Block| func.blocks[b].params.is_empty() && condition(func, b).is_some();
    if func.layout.iter().filter(|b| candidate(func, **b)).count() < 2 {
        return false;
    }
    let mut changed = false;
    loop {
        let cfg = Cfg::new(func);
        // Blocks whose ways in or out are no longer those of `cfg`: the next sweep looks at them. Each shortens a chain by a share.
        let mut touched = FixedBitSet::with_capacity(func.blocks.len());
        let mut joined = false;
        for &b in &cfg.rpo {
            if cfg.preds[b].len() == 2 && candidate(func, b) {
                joined |= join(func, &cfg, b, &mut touched);
            }
        }
        if !joined {
            return changed;
        }
        changed = true;
    }
}

/// Leads past a block that only branches on its parameter whoever has branched on what it passes: it knows what comes of that. Whether there
/// were any.
pub fn pass_by(func: &mut Function) -> bool {
    let empty = |b: &Block| {
        let d = &func.blocks[*b];
        let [p] = d.params[..] else { return None };
        let passed = d.term.targets().into_iter().flat_map(|t| &t.args).any(|a| *a == p);
        let decides = condition(func, *b).is_some_and(|(cond, _)| cond == Name::Val(p));
        (d.insts.is_empty() && decides && !passed).then_some((*b, p))
    };
    let found: Vec<(Block, Value)> = func.layout.iter().filter_map(empty).collect();
    if found.is_empty() {
        return false;
    }
    let mut reads: SecondaryMap<Value, u32> = SecondaryMap::new();
    for &b in &func.layout {
        let d = &func.blocks[b];
        d.insts
            .iter()
            .for_each(|i| func.insts[*i].for_each_use(|n| n.value().into_iter().for_each(|v| reads[v] += 1)));
        d.term.used_name().and_then(Name::value).into_iter().for_each(|v| reads[v] += 1);
        d.term.targets().into_iter().flat_map(|t| &t.args).for_each(|a| reads[*a] += 1);
    }
    let cfg = Cfg::new(func);
    let mut changed = false;
    for (b, _) in found.into_iter().filter(|(_, p)| reads[*p] == 1) {
        let Some((_, ways)) = condition(func, b) else { continue };
        for &from in cfg.preds[b].iter().filter(|from| **from != b) {
            let Terminator::Branch { cond: Name::Val(v), not, taken, fall } = &mut func.blocks[from].term
            else {
                continue;
            };
            let here = |t: &BlockCall| t.block == b && t.args[..] == [*v];
            // Taken where the condition is not `not`.
            let (way, holds) = match (here(taken), here(fall)) {
                (true, false) => (taken, !*not),
                (false, true) => (fall, *not),
                _ => continue,
            };
            *way = ways[usize::from(!holds)].clone();
            changed = true;
        }
    }
    changed
}

/// The condition of a branch, and where it leads if that holds, and else.
fn condition(func: &Function, b: Block) -> Option<(Name, [BlockCall; 2])> {
    match &func.blocks[b].term {
        Terminator::Branch { cond: cond @ Name::Val(_), not, taken, fall } => {
            let (holds, other) = if *not { (fall, taken) } else { (taken, fall) };
            Some((*cond, [holds.clone(), other.clone()]))
        }
        _ => None,
    }
}

/// The block between two branches joins the one above, if both are on one condition and none of the blocks was `touched` before.
fn join(func: &mut Function, cfg: &Cfg, between: Block, touched: &mut FixedBitSet) -> bool {
    let Some((cond, then)) = condition(func, between) else { return false };
    let pure = |i: &ori::Inst| {
        let d = &func.insts[*i];
        matches!(d.op, Op::Sass(_)) && d.is_of_each_lane() && d.may_run_needlessly()
            || func.insts[*i].copied().is_some()
            || func.insts[*i].collected().is_some()
    };
    if !func.blocks[between].insts.iter().all(pure) {
        return false;
    }
    // One way leads here directly, the other by a block of its own.
    for (head, side) in [(0, 1), (1, 0)].map(|(h, s)| (cfg.preds[between][h], cfg.preds[between][s])) {
        let Some((first, ways)) = condition(func, head).filter(|_| head != between && side != between) else {
            continue;
        };
        let goes_on = matches!(&func.blocks[side].term, Terminator::Jump(to) if to.block == between && to.args.is_empty());
        // The side's first block, from which there is one way only.
        let mut top = side;
        while let [before] = cfg.preds[top][..]
            && before != head
            && matches!(func.blocks[before].term, Terminator::Jump(_))
        {
            top = before;
        }
        let leads = |k: &usize| ways[*k].block == top && ways[1 - k].block == between;
        let Some(holds) = [0, 1].into_iter().find(leads) else { continue };
        if first != cond || !goes_on || cfg.preds[top].as_slice() != [head] {
            continue;
        }
        let (here, other) = (then[holds].clone(), then[1 - holds].clone());
        let around = [head, side, top, between, here.block, other.block].map(EntityRef::index);
        if around.iter().any(|b| touched.contains(*b)) {
            continue;
        }
        touched.extend(around);
        let moved = std::mem::take(&mut func.blocks[between].insts);
        func.blocks[head].insts.extend(moved);
        let mut calls = [ways[holds].clone(), other];
        if holds == 1 {
            calls.reverse();
        }
        let [taken, fall] = calls;
        func.blocks[head].term = Terminator::Branch { cond, not: false, taken, fall };
        func.blocks[side].term = Terminator::Jump(here);
        func.layout.retain(|b| *b != between);
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(between: &str, second: &str) -> (bool, String) {
        let text = format!(
            "function k sm_100 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    \
             v1:P = ISETP.LT.AND PT, v0, 0x5, PT, PT\n    branch v1, block1, block2\nblock1:\n    STS [0x0], v0\n    jump block2\nblock2:\n{between}    \
             branch {second}\nblock3:\n    STS [0x4], v0\n    jump block4\nblock4:\n    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let changed = run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}\n{f}"));
        (changed, f.to_string())
    }

    #[test]
    fn who_knows_passes_by() {
        let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {\nblock0:\n    v0:R = S2R SR_TID.X\n    jump block1\nblock1:\n    \
                    v1:P = ISETP.LT.AND PT, v0, 0x5, PT, PT\n    branch v1, block3(v1), block2\nblock2:\n    v2:P = ISETP.LT.AND PT, v0, 0x6, PT, PT\n    \
                    jump block3(v2)\nblock3(v3:P):\n    branch v3, block4, block1\nblock4:\n    STS [0x0], v0\n    exit\n}\n";
        let mut f = ori::parse::parse(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(pass_by(&mut f));
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}\n{f}"));
        assert!(f.to_string().contains("branch v1, block4, block2"), "{f}");
    }

    #[test]
    fn one_branch_is_left() {
        let sum = "    v2:R = IADD3 PT, PT, v0, 0x1, RZ, !PT, !PT\n";
        for (between, second, joined) in [
            (sum, "v1, block3, block4", true),
            (sum, "!v1, block3, block4", true),
            ("    STS [0x8], v0\n", "v1, block3, block4", false),
            ("    v2:P = ISETP.GT.AND PT, v0, 0x9, PT, PT\n", "v2, block3, block4", false),
        ] {
            let (changed, got) = after(between, second);
            assert_eq!(
                (changed, got.matches("branch").count()),
                (joined, if joined { 1 } else { 2 }),
                "{got}"
            );
            // What was done before the second is done before both.
            let place = |what: &str| got.find(what);
            assert!(!joined || place("IADD3") < place("branch"), "{got}");
        }
    }
}
