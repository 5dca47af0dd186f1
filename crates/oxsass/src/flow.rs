//! Where machine code goes: what follows each instruction, and loops.

use sass::{Effect, Flow, Guard, Inst, Operand, Reg, RegFile};
use std::collections::{BTreeMap, BTreeSet};

/// What may follow each instruction of decoded code, the words of which stand one behind the other, by numbers of instructions.
pub fn successors(code: &[Option<Inst>]) -> Vec<Vec<usize>> {
    let mut labels = Vec::new();
    let mut regions: BTreeMap<Reg, Vec<usize>> = BTreeMap::new();
    for inst in code.iter().flatten() {
        let to: Vec<usize> = inst.operands.iter().filter_map(target_of).filter(|t| *t < code.len()).collect();
        if inst.op.info().effect == Effect::Control(Flow::Region)
            && let Some(Operand::Reg(r)) =
                inst.operands.iter().find(|o| matches!(o, Operand::Reg(r) if r.reg.file == RegFile::B))
        {
            regions.entry(r.reg).or_default().extend(&to);
        }
        labels.extend(to);
    }
    (0..code.len()).map(|k| behind(code, k, &labels, &regions)).collect()
}

/// Where code may go on behind an instruction. Calls come back; where a register says where to go, that
/// is anywhere a branch could lead.
fn behind(
    code: &[Option<Inst>],
    at: usize,
    labels: &[usize],
    regions: &BTreeMap<Reg, Vec<usize>>,
) -> Vec<usize> {
    let next = (at + 1 < code.len()).then_some(at + 1);
    let Some(inst) = &code[at] else { return next.into_iter().collect() };
    let Effect::Control(flow) = inst.op.info().effect else { return next.into_iter().collect() };
    let registers = || inst.operands.iter().filter_map(Operand::as_reg).filter(|r| !r.reg.is_zero() || r.not);
    let of = |files: [RegFile; 2]| registers().any(|r| files.contains(&r.reg.file));
    // The condition may also be an operand.
    let maybe = inst.guard != Guard::TRUE || of([RegFile::P, RegFile::UP]);
    let to = || inst.operands.iter().find_map(target_of).filter(|t| *t < code.len());
    let (mut out, falls): (Vec<usize>, bool) = match flow {
        Flow::Jump if of([RegFile::R, RegFile::UR]) => (labels.to_vec(), maybe),
        Flow::Jump => (to().into_iter().collect(), maybe),
        Flow::Exit | Flow::Return => (Vec::new(), maybe),
        Flow::Meet => {
            let region = registers().find(|r| r.reg.file == RegFile::B);
            let ends = region.and_then(|r| regions.get(&r.reg).cloned()).unwrap_or_default();
            // It stands in front of its region's end, as a rule.
            (if next.is_some_and(|n| ends.contains(&n)) { Vec::new() } else { ends }, true)
        }
        Flow::Call | Flow::Region | Flow::Yield | Flow::Trap => (Vec::new(), true),
    };
    out.extend(next.filter(|_| falls));
    out
}

/// The number of the instruction that a label names.
fn target_of(o: &Operand) -> Option<usize> {
    match o {
        Operand::Label(to) => usize::try_from(*to / 16).ok(),
        _ => None,
    }
}

/// A loop: the instructions that lead back to its head without leaving it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Its first instruction.
    pub head: usize,
    /// All, the head among them.
    pub body: BTreeSet<usize>,
}

/// The natural loops, by heads; those with one head are one.
pub fn loops(code: &[Option<Inst>]) -> Vec<Loop> {
    let succs = successors(code);
    let mut preds = vec![Vec::new(); code.len()];
    for (k, to) in succs.iter().enumerate() {
        to.iter().for_each(|t| preds[*t].push(k));
    }
    let above = dominators(&succs, &preds);
    let dominates = |a: usize, mut b: usize| {
        while above[b] != usize::MAX && b > 0 && b != a {
            b = above[b];
        }
        a == b
    };
    let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (k, to) in succs.iter().enumerate().filter(|(k, _)| above[*k] != usize::MAX) {
        for head in to.iter().copied().filter(|head| dominates(*head, k)) {
            let body = found.entry(head).or_insert_with(|| BTreeSet::from([head]));
            let mut more = vec![k];
            while let Some(at) = more.pop() {
                if body.insert(at) {
                    more.extend(preds[at].iter().filter(|p| above[**p] != usize::MAX));
                }
            }
        }
    }
    found.into_iter().map(|(head, body)| Loop { head, body }).collect()
}

/// The immediate dominator of each instruction; `usize::MAX` of what is not reached.
fn dominators(succs: &[Vec<usize>], preds: &[Vec<usize>]) -> Vec<usize> {
    // In reverse post order.
    let (mut order, mut rank) = (Vec::new(), vec![usize::MAX; succs.len()]);
    let mut seen = vec![false; succs.len()];
    let mut stack = vec![(0, 0)];
    seen.first_mut().into_iter().for_each(|s| *s = true);
    while let Some((k, next)) = stack.last_mut().filter(|_| !succs.is_empty()) {
        match succs[*k].get(*next) {
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[*to], true) {
                    stack.push((*to, 0));
                }
            }
            None => {
                order.push(*k);
                stack.pop();
            }
        }
    }
    order.reverse();
    order.iter().enumerate().for_each(|(n, k)| rank[*k] = n);
    let mut above = vec![usize::MAX; succs.len()];
    above.first_mut().into_iter().for_each(|a| *a = 0);
    let mut again = true;
    while again {
        again = false;
        for &k in order.iter().skip(1) {
            let mut best = usize::MAX;
            for &p in preds[k].iter().filter(|p| above[**p] != usize::MAX) {
                let (mut a, mut b) = (p, if best == usize::MAX { p } else { best });
                while a != b {
                    match rank[a] > rank[b] {
                        true => a = above[a],
                        false => b = above[b],
                    }
                }
                best = a;
            }
            again |= above[k] != best;
            above[k] = best;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxptxas::{Settings, Target};

    #[test]
    fn loops_are_found_by_their_heads() {
        let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n) {\n.reg .b32 %r<9>;\n.reg .b64 %d<2>;\n.reg .pred %p;\n\
            ld.param.u64 %d0, [p];\nld.param.u32 %r0, [n];\nmov.u32 %r1, 0;\nouter: mov.u32 %r2, 0;\ninner: ld.volatile.global.u32 %r3, [%d0];\nadd.u32 %r2, %r2, %r3;\n\
            setp.lt.u32 %p, %r2, %r0;\n@%p bra inner;\nadd.u32 %r1, %r1, %r2;\nst.volatile.global.u32 [%d0], %r1;\nsetp.lt.u32 %p, %r1, %r0;\n@%p bra outer;\nret;\n}\n";
        let target = Target::parse("sm_90").unwrap();
        let cubin = oxptxas::compile(source, "k.ptx", &Settings::new(target)).unwrap().cubin;
        let (_, words) = sim::sass::code(&cubin, "k").unwrap();
        let code: Vec<Option<Inst>> =
            (0..).zip(&words).map(|(n, w)| sass::decode(*w, target, 16 * n).ok()).collect();
        // The branch to itself at the end is not reached.
        let [outer, inner] = &loops(&code)[..] else { panic!("{:?}", loops(&code)) };
        assert!(outer.body.is_superset(&inner.body) && outer.body.len() > inner.body.len());
        assert!(inner.body.iter().any(|k| code[*k].as_ref().is_some_and(|i| i.op == sass::Opcode::LDG)));
    }
}
