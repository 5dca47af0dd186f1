//! Brings what words are computed of to uniform registers, instead of the words: of descriptors that stand a number apart one is brought, and
//! the others are sums in uniform registers.
//!
//! What is brought, and the sums of it, stay between two places at which other lanes may run, in one block, as the words did that were brought
//! before: a warp has one copy of a uniform register (docs/convergence.md). What computes the words in general registers may stand
//! in another block.

use super::convert::Held;
use super::is_convertible;
use crate::waits::lets_others_run;
use cranelift_entity::SecondaryMap;
use ori::cfg::{Cfg, DomTree};
use ori::loops::LoopForest;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{R2ur, Voteu};
use sass::{Mods, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// Instructions between a word and what it is computed of, at most.
const LONGEST: usize = 6;

/// Does that where fewer words are brought for it.
pub fn run(func: &mut Function, cfg: &Cfg) {
    if func.target.sm < 90 {
        return;
    }
    let mut made: SecondaryMap<Value, Option<(Block, Inst)>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(|n| n.value().into_iter().for_each(|v| made[v] = Some((b, i))));
        }
    }
    // What is made in another block counts as well where that is executed as often.
    let loops = LoopForest::new(cfg, &DomTree::dominators(cfg));
    for &b in &cfg.rpo {
        let inner = |at: Block| at == b || loops.innermost(at) == loops.innermost(b);
        block(func, b, &made, &inner);
    }
    ask_once(func, cfg);
}

/// Leaves one vote of several on the same predicate between two places at which other lanes may run: each is 14 cycles from what it guards.
fn ask_once(func: &mut Function, cfg: &Cfg) {
    let mut same: FxHashMap<Value, Value> = FxHashMap::default();
    for &b in &cfg.rpo {
        let mut asked: FxHashMap<(Name, bool, Mods), Value> = FxHashMap::default();
        for i in &func.blocks[b].insts {
            let d = &func.insts[*i];
            if lets_others_run(func, d) {
                asked.clear();
            }
            let Some(s) = Voteu::of(d).filter(|_| d.op == Op::Sass(Opcode::VOTEU) && d.is_unguarded()) else {
                continue;
            };
            if let (Operand::Reg(word), Operand::Reg(to), Operand::Reg(of)) = (s.d, s.p, s.a)
                && let (Name::Phys(Reg::URZ), Name::Val(to)) = (word.reg, to.reg)
                && func.values[to].file == RegFile::UP
            {
                let first = *asked.entry((of.reg, of.not, d.mods.clone())).or_insert(to);
                if first != to {
                    same.insert(to, first);
                }
            }
        }
    }
    if same.is_empty() {
        return;
    }
    let renamed = |n: Name| n.value().and_then(|v| same.get(&v)).map_or(n, |v| Name::Val(*v));
    for &b in &cfg.rpo {
        for i in func.blocks[b].insts.clone() {
            func.insts[i].map_uses(renamed);
        }
    }
}

/// A word that is brought: where, and the instructions that make it of what it is computed of, the last first.
struct Word {
    at: usize,
    root: Name,
    steps: SmallVec<[Inst; LONGEST]>,
}

fn block(
    func: &mut Function,
    b: Block,
    made: &SecondaryMap<Value, Option<(Block, Inst)>>,
    as_often: &dyn Fn(Block) -> bool,
) {
    let insts = func.blocks[b].insts.clone();
    // Words by the part of the block in which no other lanes run, and by what they are computed of.
    let mut groups: FxHashMap<(usize, Name, Mods), Vec<Word>> = FxHashMap::default();
    let mut part = 0;
    for (at, i) in insts.iter().enumerate() {
        let d = &func.insts[*i];
        part += usize::from(lets_others_run(func, d));
        if let Some(word) = brought(d).map(|n| word(func, at, n, made, as_often)) {
            groups.entry((part, word.root, d.mods.clone())).or_default().push(word);
        }
    }
    let mut all: Vec<Vec<Word>> = groups.into_values().filter(|g| g.len() > 1).collect();
    if all.is_empty() {
        return;
    }
    all.iter_mut().for_each(|g| g.sort_by_key(|w| w.at));
    let mut new: FxHashMap<usize, Vec<Inst>> = FxHashMap::default();
    for group in all {
        let mut there: FxHashMap<Name, Value> = FxHashMap::default();
        for Word { at, root, steps } in group {
            let out = new.entry(at).or_default();
            let mut last = *there.entry(root).or_insert_with(|| bring(func, root, insts[at], out));
            let mut from = root;
            for step in steps.into_iter().rev() {
                let Some(result) = result(&func.insts[step]) else { continue };
                last = *there.entry(result).or_insert_with(|| again(func, step, (from, last), out));
                from = result;
            }
            let d = &mut func.insts[insts[at]];
            if let Some(s) = R2ur::of(d) {
                let to = *s.d;
                d.become_copy(to, operand(last));
            }
        }
    }
    let mut out = Vec::with_capacity(insts.len());
    for (at, i) in insts.into_iter().enumerate() {
        out.extend(new.remove(&at).into_iter().flatten());
        out.push(i);
    }
    func.blocks[b].insts = out;
}

/// The word that an instruction brings to a uniform register, whatever lane's it is.
fn brought(d: &InstData) -> Option<Name> {
    match R2ur::of(d).filter(|_| d.op == Op::Sass(Opcode::R2UR) && d.is_unguarded())?.a {
        Operand::Reg(r) if *r == sass::RegOp::plain(r.reg) => Some(r.reg),
        _ => None,
    }
}

/// Follows a word back to what it is computed of with numbers and uniform registers alone, through blocks that are executed `as_often`.
fn word(
    func: &Function,
    at: usize,
    mut name: Name,
    made: &SecondaryMap<Value, Option<(Block, Inst)>>,
    as_often: &dyn Fn(Block) -> bool,
) -> Word {
    let mut steps = SmallVec::new();
    while let Name::Val(v) = name
        && steps.len() < LONGEST
        && let Some((_, i)) = made[v].filter(|m| as_often(m.0))
        && let Some(source) = only_source(func, &func.insts[i])
    {
        steps.push(i);
        name = source;
    }
    Word { at, root: name, steps }
}

/// The only result of an instruction.
fn result(d: &InstData) -> Option<Name> {
    let mut results: SmallVec<[Name; 2]> = SmallVec::new();
    d.for_each_def(|n| results.extend(n.value().map(|_| n)));
    if let [Name::Val(v)] = results[..] { Some(Name::Val(v)) } else { None }
}

/// The only general register that an instruction reads which the uniform datapath has, too, and that makes one word of it.
fn only_source(func: &Function, d: &InstData) -> Option<Name> {
    let op = d.opcode()?;
    let fits = matches!(op, Opcode::IADD3 | Opcode::LOP3 | Opcode::SHF | Opcode::LEA | Opcode::SGXT)
        && is_convertible(func, d);
    if !fits || result(d).is_none() {
        return None;
    }
    let mut source = None;
    let mut read = 0;
    d.for_each_use(|n| match func.shape(n).file {
        _ if matches!(n, Name::Phys(r) if r.is_zero()) => {}
        RegFile::UR => {}
        RegFile::R if n.value().is_some() || matches!(n, Name::Part(..)) => {
            read += 1;
            source = Some(n);
        }
        _ => read += 2,
    });
    let constant = d.operands.iter().any(|o| matches!(o, Operand::Const { .. }));
    source.filter(|_| read == 1 && !constant)
}

/// Brings a word as `like` does another one.
fn bring(func: &mut Function, name: Name, like: Inst, out: &mut Vec<Inst>) -> Value {
    let to = func.add_value(RegFile::UR, 1);
    let mut d = func.insts[like].clone();
    d.operands = [operand(to), operand(name)].into_iter().collect();
    out.push(func.insts.push(d));
    to
}

/// Makes an instruction's result in a uniform register, of what is in one.
fn again(func: &mut Function, i: Inst, (from, to): (Name, Value), out: &mut Vec<Inst>) -> Value {
    let mut d = func.insts[i].clone();
    let mut held = Held::new(func);
    held.convert(&mut d, &SecondaryMap::new());
    let before = held.into_made();
    let result = func.add_value(RegFile::UR, 1);
    for k in 0..d.operands.len() {
        let is_result = d.is_def(k);
        if let Operand::Reg(r) = &mut d.operands[k] {
            if is_result && r.reg.value().is_some() {
                r.reg = Name::Val(result);
            } else if r.reg == from {
                r.reg = Name::Val(to);
            }
        }
    }
    out.extend(before);
    out.push(func.insts.push(d));
    result
}
