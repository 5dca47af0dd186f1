//! Loops that do nothing: those that only compute, and nothing of it is used behind them. Their way in leads to where they
//! end, however often they would have gone around; like ptxas, the pass takes a loop to end at some time.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::loops::{Loop, LoopForest};
use ori::{Analyses, BlockCall, Changed, Function, Value};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(2, "dead-loops", "OriLoopSimplification", "loops that do nothing", run);

/// The pass. What is left behind is unreachable.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let loops = analyses.loops(func);
    if loops.loops.is_empty() {
        return Changed::Nothing;
    }
    let alive = alive(func, loops);
    let mut gone: Vec<(Loop, BlockCall)> = Vec::new();
    for l in loops.loops.keys() {
        if !alive[l] && !gone.iter().any(|(outer, _)| loops.encloses(*outer, l)) {
            gone.extend(way_out(func, analyses, loops, l).map(|to| (l, to)));
        }
    }
    for (l, to) in &gone {
        let header = loops.loops[*l].header;
        for b in func.layout.clone() {
            if !loops.contains(*l, b) {
                let ways = func.blocks[b].term.targets_mut();
                ways.into_iter().filter(|t| t.block == header).for_each(|t| t.clone_from(to));
            }
        }
    }
    Changed::graph(!gone.is_empty())
}

/// Loops that do something, or compute what is used outside of them.
fn alive(func: &Function, loops: &LoopForest) -> SecondaryMap<Loop, bool> {
    let mut alive: SecondaryMap<Loop, bool> = SecondaryMap::new();
    let mut mark = |from: Option<Loop>, inside: &dyn Fn(Loop) -> bool| {
        let mut at = from;
        while let Some(l) = at.filter(|l| !inside(*l)) {
            alive[l] = true;
            at = loops.loops[l].parent.expand();
        }
    };
    let mut home: SecondaryMap<Value, Option<Loop>> = SecondaryMap::new();
    for &b in &func.layout {
        let at = loops.innermost(b);
        func.blocks[b].params.iter().for_each(|p| home[*p] = at);
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(|n| n.value().into_iter().for_each(|v| home[v] = at));
            if !func.insts[i].is_pure() {
                mark(at, &|_| false);
            }
        }
    }
    for &b in &func.layout {
        let mut used = |v: Value| mark(home[v], &|l| loops.contains(l, b));
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_use(|n| n.value().into_iter().for_each(&mut used));
        }
        let term = &func.blocks[b].term;
        term.used_name().and_then(|n| n.value()).into_iter().for_each(&mut used);
        // An argument is used where it is passed to.
        for t in term.targets() {
            for v in &t.args {
                mark(home[*v], &|l| loops.contains(l, t.block));
            }
        }
    }
    alive
}

/// Where a loop ends, if that is one place, reached in one way.
fn way_out(func: &Function, analyses: &Analyses, loops: &LoopForest, l: Loop) -> Option<BlockCall> {
    let mut out: Option<&BlockCall> = None;
    for b in loops.blocks(analyses.cfg(func), l) {
        let targets = func.blocks[b].term.targets();
        // A thread that ends or returns within does not come to the end.
        if targets.is_empty() {
            return None;
        }
        for t in targets {
            if !loops.contains(l, t.block) && *out.get_or_insert(t) != t {
                return None;
            }
        }
    }
    out.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass, with what is unreachable removed.
    fn after(body: &str, out: &str, behind: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R2 = LDC.64 c[0x0][0x210]
    v1:R = copy 0x0
    v2:R = S2R SR_TID.X
    jump block1(v1)
block1(v3:R):
{body}    v5:R = IADD3 PT, PT, v3, v2, RZ, !PT, !PT
    v7:P = ISETP.LT.AND PT, v5, 0x9, PT, PT
    branch v7, block1(v5), block2{out}
block2{behind}
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let mut analyses = Analyses::default();
        let changed = run(&mut f, &analyses);
        analyses.invalidate(changed);
        _ = crate::branch_opt::run(&mut f, &analyses);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn loops_that_do_nothing_go() {
        let store = ":\n    STG.E [v0.64], v2";
        assert!(!after("", "", store).contains("branch"));
        assert!(!after("", "(v2)", "(v9:R):\n    STG.E [v0.64], v9").contains("branch"));
        // What is used behind.
        assert!(after("", "", ":\n    STG.E [v0.64], v5").contains("branch"));
        assert!(after("", "(v5)", "(v9:R):\n    STG.E [v0.64], v9").contains("branch"));
        // What does something.
        assert!(after("    STG.E [v0.64], v3\n", "", store).contains("branch"));
        assert!(after("    v8:R = LDS [v2]\n", "", store).contains("branch"));
    }
}
