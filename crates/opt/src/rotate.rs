//! Loops that end in the middle: a header that decides, and the rest, which goes back. The header goes once before the loop, and behind the
//! rest in it, so that a round is one block: what the rest does and what the next header does are put in order together.

use crate::Pass;
use cranelift_entity::{PrimaryMap, SecondaryMap};
use ori::cfg::Cfg;
use ori::{Analyses, Block, BlockCall, Changed, Function, Name, Terminator, Value, ValueData};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Most instructions of a header that is copied, and least: less than that only decides.
const MOST: u64 = 40;
const LEAST: u64 = 4;

/// A loop of two blocks, and what is made for it.
struct Loop {
    header: Block,
    rest: Block,
    /// Which target of the header is the way out.
    out: usize,
    /// Where that leads, on the way to where it led.
    beyond: Block,
    /// What the header makes that the rest reads, and what is read beyond, with the parameters that have it there.
    read: [Vec<(Value, Value)>; 2],
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "rotate-loops",
    "OriLoopSimplification",
    "loops of two blocks that end in the middle begin with the second (a header of 4 to 40 instructions goes once before them)",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    let ends = |l: &ori::loops::LoopData| match (&l.exits[..], &l.latches[..]) {
        ([(from, _)], [latch]) if *from == l.header => ends_in_the_middle(func, cfg, l.header, *latch),
        _ => None,
    };
    let mut loops: Vec<Loop> = analyses.loops(func).loops.values().filter_map(ends).collect();
    if loops.is_empty() {
        return Changed::Nothing;
    }
    // Which header makes a value.
    let mut maker: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
    for (k, l) in loops.iter_mut().enumerate() {
        l.beyond = func.add_block();
        let mut onward = BlockCall { block: l.beyond, args: SmallVec::new() };
        std::mem::swap(func.blocks[l.header].term.targets_mut()[l.out], &mut onward);
        func.blocks[l.beyond].term = Terminator::Jump(onward);
        func.blocks[l.beyond].term_loc = func.blocks[l.header].term_loc;
        func.blocks[l.header].params.iter().for_each(|p| maker[*p] = Some(k));
        for i in &func.blocks[l.header].insts {
            func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(|v| maker[v] = Some(k)));
        }
    }
    for b in func.layout.clone() {
        rename_uses(func, b, &maker, &mut loops);
    }
    for l in &loops {
        rotate(func, l);
    }
    Changed::Graph
}

fn ends_in_the_middle(func: &Function, cfg: &Cfg, header: Block, rest: Block) -> Option<Loop> {
    let Terminator::Branch { taken, fall, .. } = &func.blocks[header].term else { return None };
    let out = match (taken.block == rest, fall.block == rest) {
        (true, false) => 1,
        (false, true) => 0,
        _ => return None,
    };
    let goes_back = matches!(&func.blocks[rest].term, Terminator::Jump(t) if t.block == header);
    let insts = &func.blocks[header].insts;
    let size = insts.iter().map(|i| crate::unroll::cost(&func.insts[*i])).sum::<Option<u64>>()?;
    let fits = header != func.entry_block() && rest != header && cfg.preds[rest].len() == 1;
    let found = Loop { header, rest, out, beyond: header, read: [Vec::new(), Vec::new()] };
    (fits && goes_back && (LEAST..=MOST).contains(&size)).then_some(found)
}

/// Has a block read parameters for what headers of other blocks make.
fn rename_uses(
    func: &mut Function,
    b: Block,
    maker: &SecondaryMap<Value, Option<usize>>,
    loops: &mut [Loop],
) {
    let mut renamed = |values: &mut PrimaryMap<Value, ValueData>, v: Value| {
        let Some(l) = maker[v].map(|k| &mut loops[k]).filter(|l| l.header != b) else { return v };
        let list = &mut l.read[usize::from(b != l.rest)];
        if let Some((_, p)) = list.iter().find(|(old, _)| *old == v) {
            return *p;
        }
        let shape = values[v];
        let p = values.push(shape);
        list.push((v, p));
        p
    };
    let Function { blocks, insts, values, .. } = func;
    let mut name = |n: Name| match n {
        Name::Val(v) => Name::Val(renamed(values, v)),
        Name::Part(v, k) => Name::Part(renamed(values, v), k),
        Name::Phys(_) => n,
    };
    for i in &blocks[b].insts {
        insts[*i].map_uses(&mut name);
    }
    let term = &mut blocks[b].term;
    if let Some(n) = term.used_name_mut() {
        *n = name(*n);
    }
    for a in term.targets_mut().into_iter().flat_map(|t| &mut t.args) {
        if let Name::Val(v) = name(Name::Val(*a)) {
            *a = v;
        }
    }
}

/// Copies the header in front of the loop, which begins with the rest then.
fn rotate(func: &mut Function, l: &Loop) {
    let passed = [(l.rest, 1 - l.out, &l.read[0]), (l.beyond, l.out, &l.read[1])];
    for (to, target, read) in passed {
        func.blocks[to].params.extend(read.iter().map(|r| r.1));
        func.blocks[l.header].term.targets_mut()[target].args.extend(read.iter().map(|r| r.0));
    }
    let mut copies: FxHashMap<Value, Value> = FxHashMap::default();
    let first = func.add_block();
    for p in func.blocks[l.header].params.clone() {
        let shape = func.values[p];
        let copy = func.values.push(shape);
        copies.insert(p, copy);
        func.blocks[first].params.push(copy);
    }
    for i in func.blocks[l.header].insts.clone() {
        let mut d = func.insts[i].clone();
        d.for_each_def(|n| {
            if let Some(v) = n.value() {
                copies.insert(v, func.values.push(func.values[v]));
            }
        });
        d.map_names(|n| copied(&copies, n));
        let copy = func.insts.push(d);
        func.blocks[first].insts.push(copy);
    }
    let mut term = func.blocks[l.header].term.clone();
    if let Some(n) = term.used_name_mut() {
        *n = copied(&copies, *n);
    }
    for a in term.targets_mut().into_iter().flat_map(|t| &mut t.args) {
        *a = copies.get(a).copied().unwrap_or(*a);
    }
    func.blocks[first].term = term;
    func.blocks[first].term_loc = func.blocks[l.header].term_loc;
    for b in func.layout.clone() {
        if b != l.rest {
            let ways = func.blocks[b].term.targets_mut();
            ways.into_iter().filter(|t| t.block == l.header).for_each(|t| t.block = first);
        }
    }
    func.blocks[l.rest].rolled = func.blocks[l.header].rolled;
    // In the order of execution: the copy, the rest, the header, what is beyond.
    let new = [first, l.rest, l.header, l.beyond];
    let at = func.layout.iter().position(|b| *b == l.header).map_or(0, |at| {
        let before = func.layout[..at].iter().filter(|b| new.contains(b)).count();
        at - before
    });
    func.layout.retain(|b| !new.contains(b));
    func.layout.splice(at..at, new);
}

fn copied(copies: &FxHashMap<Value, Value>, n: Name) -> Name {
    let to = |v: Value| copies.get(&v).copied().unwrap_or(v);
    match n {
        Name::Val(v) => Name::Val(to(v)),
        Name::Part(v, k) => Name::Part(to(v), k),
        Name::Phys(_) => n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function behind the pass; `header`: the loop's first instructions.
    fn after(header: &str, rest: &str) -> (Function, String) {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:UR2 = ULDC.64 c[0x0][0x208]
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R = S2R SR_TID.X
    v11:R = copy 0x0
    jump block1(v2, v11)
block1(v3:R, v4:R):
{header}    v8:P = ISETP.EQ.AND PT, v3, 0x40, PT, PT
    branch v8, block3, block2
block2:
{rest}    v10:R = IADD3 PT, PT, v3, 0x4, RZ, !PT, !PT
    jump block1(v10, v9)
block3:
    STG.E desc[v0][v1.64], v7
    STG.E desc[v0][v1.64+0x4], v3
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e:?}: {text}"));
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let shown = f.to_string();
        (f, shown)
    }

    const HEADER: &str =
        "    v5:R = IADD3 PT, PT, v3, 0x8, RZ, !PT, !PT\n    v6:R = LDS [v5]\n    v7:R = FADD v6, v4\n";
    const REST: &str = "    v12:R = LDS [v5+0x4]\n    v9:R = FADD v7, v12\n";

    #[test]
    fn rounds_become_one_block() {
        let (f, shown) = after(HEADER, REST);
        // Once before the loop and once in it; what is behind the loop gets the sum and the counter from either.
        assert_eq!(shown.matches("FADD").count(), 3, "{shown}");
        let cfg = Cfg::new(&f);
        let dom = ori::cfg::DomTree::dominators(&cfg);
        let loops = ori::loops::LoopForest::new(&cfg, &dom);
        let [l] = loops.loops.values().collect::<Vec<_>>()[..] else { panic!("{shown}") };
        assert_eq!(l.latches.len(), 1);
        assert_eq!(l.exits.iter().map(|e| e.0).collect::<Vec<_>>(), l.latches.to_vec(), "{shown}");
    }

    #[test]
    fn headers_that_only_decide_or_gather_lanes_stay() {
        let decides = "    v5:R = copy v3\n    v7:R = copy v4\n";
        assert_eq!(after(decides, REST).1.matches("ISETP").count(), 1);
        let gathers = format!("{HEADER}    WARPSYNC.DIV PT, 0xffffffff\n");
        assert_eq!(after(&gathers, REST).1.matches("ISETP").count(), 1);
    }
}
