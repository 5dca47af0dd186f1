//! Computes where operands come to their end, and not where the result is read: LLVM sinks what only a later block reads, and what it is
//! computed of lives up to there then. Eight polynomials whose coefficients eight blocks load, all computed in the last one, need a
//! hundred registers more than the eight results.
//!
//! An instruction goes up to the end of a block that is executed as often: it dominates the one where it stands, is postdominated by it, and is in
//! the same loop. What goes to one block is taken together, and without what would need more registers in between than it spares. Whether a
//! function is better so, its plan says ([`crate::prepass`]).

use crate::regalloc::spill::is_constant;
use cranelift_entity::SecondaryMap;
use ori::cfg::{Cfg, DomTree, PostDom};
use ori::loops::LoopForest;
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::RegFile;
use smallvec::SmallVec;

/// Functions of which more instructions times blocks would be looked at are left as they are.
const MOST: usize = 20_000_000;
/// How often what is not worth it is looked for among what could move to a block.
const PASSES: usize = 8;

/// The pass; whether anything moved.
pub fn run(func: &mut Function, cfg: &Cfg) -> bool {
    if func.insts.len() * cfg.rpo.len() > MOST {
        return false;
    }
    let dom = DomTree::dominators(cfg);
    let loops = LoopForest::new(cfg, &dom);
    let post = PostDom::new(cfg);
    let mut places = Places::new(func, cfg);
    let mut moved = false;
    for (k, &to) in cfg.rpo.iter().enumerate() {
        // Blocks behind it that are executed as often.
        let same = |b: &Block| {
            dom.dominates(to, *b) && post.dominates(*b, to) && loops.innermost(*b) == loops.innermost(to)
        };
        let behind: Vec<Block> = cfg.rpo[k + 1..].iter().copied().filter(same).collect();
        let insts = places.candidates(func, &dom, to, &behind);
        let kept = places.worth(func, &dom, to, insts);
        if kept.is_empty() {
            continue;
        }
        moved = true;
        let gone: FxHashSet<Inst> = kept.iter().map(|(i, _)| *i).collect();
        for &b in &behind {
            func.blocks[b].insts.retain(|i| !gone.contains(i));
        }
        let mut own: FxHashMap<Value, Value> = FxHashMap::default();
        for (i, from) in kept {
            places.note(func, from, to, i);
            make_again(func, &mut places, i, to, &mut own);
            func.blocks[to].insts.push(i);
        }
    }
    if moved {
        ori::dead::remove(func);
    }
    moved
}

/// Gives an instruction that is to stand at the end of `to` numbers of its own, made there once.
fn make_again(
    func: &mut Function,
    places: &mut Places,
    i: Inst,
    to: Block,
    own: &mut FxHashMap<Value, Value>,
) {
    let mut read: SmallVec<[Value; 4]> = SmallVec::new();
    func.insts[i].for_each_use(|n| read.extend(n.value().filter(|v| places.number[*v].is_some())));
    for v in read {
        let Some(maker) = places.number[v] else { continue };
        let fresh = *own.entry(v).or_insert_with(|| {
            let fresh = func.add_value(func.values[v].file, func.values[v].width);
            let mut d = func.insts[maker].clone();
            d.map_names(|n| if n == Name::Val(v) { Name::Val(fresh) } else { n });
            let made = func.insts.push(d);
            func.blocks[to].insts.push(made);
            places.made[fresh] = Some(to);
            places.number[fresh] = Some(made);
            fresh
        });
        func.insts[i].map_uses(|n| match n {
            Name::Val(x) if x == v => Name::Val(fresh),
            Name::Part(x, k) if x == v => Name::Part(fresh, k),
            n => n,
        });
        places.readers[fresh].push((Some(i), to));
    }
}

/// Where values are made and read.
struct Places {
    made: SecondaryMap<Value, Option<Block>>,
    /// Instructions that read each value, and blocks whose ends do.
    readers: SecondaryMap<Value, Vec<(Option<Inst>, Block)>>,
    /// What makes values of numbers alone: they can be made anywhere.
    number: SecondaryMap<Value, Option<Inst>>,
}

impl Places {
    fn new(func: &Function, cfg: &Cfg) -> Places {
        let (mut made, mut readers) = (SecondaryMap::new(), SecondaryMap::<Value, Vec<_>>::new());
        let mut number = SecondaryMap::new();
        for &b in &cfg.rpo {
            let block = &func.blocks[b];
            block.params.iter().for_each(|p| made[*p] = Some(b));
            for &i in &block.insts {
                let d = &func.insts[i];
                let of_numbers = is_constant(d);
                d.for_each_def(|n| {
                    if let Some(v) = n.value() {
                        made[v] = Some(b);
                        number[v] = of_numbers.then_some(i);
                    }
                });
                d.for_each_use(|n| n.value().into_iter().for_each(|v| readers[v].push((Some(i), b))));
            }
            let passed = block.term.targets().into_iter().flat_map(|t| t.args.iter().copied());
            let read = block.term.used_name().and_then(Name::value);
            read.into_iter().chain(passed).for_each(|v| readers[v].push((None, b)));
        }
        Places { made, readers, number }
    }

    /// What of some blocks could be computed at the end of `to`, and where it stands, by the order of the blocks.
    fn candidates(&self, func: &Function, dom: &DomTree, to: Block, blocks: &[Block]) -> Vec<(Inst, Block)> {
        let mut found = Vec::new();
        let mut made: FxHashSet<Value> = FxHashSet::default();
        for &b in blocks {
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                let (mut there, mut reads) = (is_movable(func, d), false);
                if !there {
                    continue;
                }
                d.for_each_use(|n| {
                    if let Some(v) = n.value().filter(|v| self.number[*v].is_none()) {
                        reads = true;
                        there &= made.contains(&v) || self.made[v].is_some_and(|b| dom.dominates(b, to));
                    }
                });
                if there && reads {
                    d.for_each_def(|n| made.extend(n.value()));
                    found.push((i, b));
                }
            }
        }
        found
    }

    /// Notes that an instruction of block `from` stands at the end of `to`.
    fn note(&mut self, func: &Function, from: Block, to: Block, i: Inst) {
        let d = &func.insts[i];
        d.for_each_def(|n| n.value().into_iter().for_each(|v| self.made[v] = Some(to)));
        d.for_each_use(|n| {
            let readers = n.value().map(|v| &mut self.readers[v]);
            let own = readers.into_iter().flatten().filter(|r| **r == (Some(i), from));
            own.for_each(|r| r.1 = to);
        });
    }

    /// Those of the instructions that spare registers behind the end of `to` if they stand there.
    fn worth(
        &self,
        func: &Function,
        dom: &DomTree,
        to: Block,
        insts: Vec<(Inst, Block)>,
    ) -> Vec<(Inst, Block)> {
        let mut chosen: FxHashSet<Inst> = insts.iter().map(|(i, _)| *i).collect();
        let width = |v: Value| match func.values[v].file {
            RegFile::R => i32::from(func.values[v].width),
            _ => 0,
        };
        // Whether nobody but these reads a value behind the end of the block.
        let ends = |v: Value, chosen: &FxHashSet<Inst>| {
            let mut others = self.readers[v].iter().filter(|(i, _)| !i.is_some_and(|i| chosen.contains(&i)));
            others.all(|(_, b)| dom.dominates(*b, to))
        };
        let reads = |i: Inst| {
            let mut read: SmallVec<[Value; 4]> = SmallVec::new();
            func.insts[i].for_each_use(|n| {
                read.extend(n.value().filter(|v| self.number[*v].is_none() && !read.contains(v)));
            });
            read
        };
        // From the last on, what none of the others reads: whether it spares less than it takes.
        let mut settled = false;
        for _ in 0..PASSES {
            settled = true;
            for &(i, _) in insts.iter().rev() {
                if !chosen.contains(&i) {
                    continue;
                }
                let (mut balance, mut inner) = (0, false);
                func.insts[i].for_each_def(|n| {
                    if let Some(v) = n.value() {
                        balance += width(v);
                        inner |= self.readers[v].iter().any(|(i, _)| i.is_some_and(|i| chosen.contains(&i)));
                    }
                });
                if inner {
                    continue;
                }
                for v in reads(i) {
                    let other =
                        |r: &(Option<Inst>, Block)| r.0.is_some_and(|r| r != i && chosen.contains(&r));
                    if !self.readers[v].iter().any(other) && ends(v, &chosen) {
                        balance -= width(v);
                    }
                }
                if balance > 0 {
                    chosen.remove(&i);
                    settled = false;
                }
            }
            if settled {
                break;
            }
        }
        // All that is left together: what comes to its end there, and what goes on instead.
        let (mut spared, mut taken) = (0, 0);
        let mut seen: FxHashSet<Value> = FxHashSet::default();
        for &(i, _) in insts.iter().filter(|(i, _)| chosen.contains(i)) {
            func.insts[i].for_each_def(|n| {
                if let Some(v) = n.value().filter(|v| !ends(*v, &chosen)) {
                    taken += width(v);
                }
            });
            for v in reads(i) {
                if seen.insert(v) && self.made[v].is_some_and(|b| dom.dominates(b, to)) && ends(v, &chosen) {
                    spared += width(v);
                }
            }
        }
        let worth = settled && taken < spared;
        if worth { insts.into_iter().filter(|(i, _)| chosen.contains(i)).collect() } else { Vec::new() }
    }
}

/// Whether an instruction computes the same wherever its operands are there, of general registers and predicates, and whichever lanes are together.
fn is_movable(func: &Function, d: &InstData) -> bool {
    let alone = match d.op {
        Op::Sass(_) => d.is_of_each_lane(),
        Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect),
    };
    let mut general = true;
    d.for_each_def(|n| {
        general &= n.value().is_some_and(|v| matches!(func.values[v].file, RegFile::R | RegFile::P))
            || matches!(n, Name::Phys(r) if r.is_zero());
    });
    d.for_each_use(|n| {
        general &= matches!(n, Name::Phys(r) if r.is_zero())
            || n.value().is_some_and(|v| matches!(func.values[v].file, RegFile::R | RegFile::P));
    });
    alone && general && d.is_pure() && d.is_unguarded() && d.kept.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of two loaded words goes up to where they are loaded, as one word lives on for two; a copy of what lives on anyway stays, and
    /// so does what a block computes that is not always executed.
    #[test]
    fn what_ends_operands_goes_up() {
        let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R = LDS [v0]
    v2:R = LDS [v0+0x4]
    v3:P = ISETP.LT.AND PT, v0, 0x9, PT, PT
    branch v3, block1, block2
block1:
    v4:R = IADD3 PT, PT, v0, 0x3, RZ, !PT, !PT
    STS [v0], v4
    jump block2
block2:
    v5:R = IADD3 PT, PT, v0, 0x7, RZ, !PT, !PT
    v6:R = copy 0x12345
    v7:R = IMAD PT, v1, v6, v2, !PT
    STS [v5], v7
    exit
}
";
        let mut f = ori::parse::parse(text).unwrap();
        let cfg = Cfg::new(&f);
        assert!(run(&mut f, &cfg));
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let got = f.to_string();
        let block = |n: u32| {
            let at = got.find(&format!("\nblock{n}")).unwrap();
            &got[at..at + 6 + got[at + 6..].find("\nblock").unwrap_or(got.len() - at - 6)]
        };
        assert!(block(0).contains("IMAD") && block(0).contains("copy 0x12345"), "{got}");
        assert!(block(1).contains("IADD3") && block(2).contains("IADD3"), "{got}");
        assert!(!block(2).contains("copy"), "{got}");
    }

    /// What all lanes of a warp compute together stays where the program has them together, though two words would end for one.
    #[test]
    fn what_lanes_compute_together_stays() {
        let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R = LDS [v0]
    v2:R = LDS [v0+0x4]
    v3:P = ISETP.LT.AND PT, v0, 0x9, PT, PT
    branch v3, block1, block2
block1:
    STS [v0], v0
    jump block2
block2:
    WARPSYNC PT, 0xffffffff
    v5:R = MOVM.16.MT88 v1
    v6:R = MOVM.16.MT88 v2
    v7:R = IMAD PT, v5, v6, v5, !PT
    STS [v0], v7
    exit
}
";
        let mut f = ori::parse::parse(text).unwrap();
        let cfg = Cfg::new(&f);
        assert!(!run(&mut f, &cfg), "{f}");
    }
}
