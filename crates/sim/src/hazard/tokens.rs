//! What the code alone says of asynchronous work: groups of products of warp groups (`gsb0`), groups of copies (SB0), and what tells
//! barriers that the tensor core is done (UTCBAR).
//!
//! From a product to the WARPGROUP.DEPBAR that waits for its group, its accumulator and the registers of A belong to the tensor
//! core, and what touched these before has a WARPGROUP.ARRIVE behind it. LDGDEPBAR counts on scoreboard 0, on which nothing else is while
//! DEPBAR waits for groups.

use super::engine::{Violation, Why};
use super::{Code, access, flow};
use sass::{Inst, Mod, Opcode, Operand, RegFile, Width};

/// What is under way in a general register, in groups that have ended since; [`DONE`] for nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Register {
    /// As an accumulator, and of which product.
    written: u8,
    by: u32,
    /// As A.
    read: u8,
    /// Whether other code touched it since the last arrival.
    touched: bool,
}

const DONE: u8 = u8::MAX;
const MANY: u8 = 15;
const COUNT: usize = 255;

impl Register {
    const FREE: Register = Register { written: DONE, by: 0, read: DONE, touched: false };

    fn merge(&mut self, other: &Register) -> bool {
        let before = *self;
        if self.written > other.written {
            (self.written, self.by) = (other.written, other.by);
        }
        self.read = self.read.min(other.read);
        self.touched |= other.touched;
        *self != before
    }

    fn ages(&mut self) -> [&mut u8; 2] {
        [&mut self.written, &mut self.read]
    }
}

type State = Vec<Register>;

fn general(cell: access::Cell) -> Option<usize> {
    let r = access::register(cell);
    (r.file == RegFile::R).then_some(usize::from(r.index))
}

/// Accumulators and the registers of A of a product.
fn of_product(i: &Inst) -> (std::ops::Range<usize>, Vec<usize>) {
    let span = |k: usize| {
        let reg = i.operands[k].as_reg().map(|r| r.reg).filter(|r| r.file == RegFile::R && !r.is_zero());
        reg.map_or(0..0, |r| {
            let first = usize::from(r.index);
            first..(first + usize::from(i.op.width(k, &i.mods))).min(COUNT)
        })
    };
    let accumulator = |k: &usize| i.op.slots()[*k].width == Width::Accumulator;
    let others = (1..i.operands.len()).filter(|k| !accumulator(k)).flat_map(span).collect();
    (span(0), others)
}

struct Tokens<'a> {
    code: &'a Code,
    /// Products, which the other checks do not look at.
    products: Vec<Option<Inst>>,
}

impl Tokens<'_> {
    fn inst(&self, at: usize) -> Option<&Inst> {
        self.products[at].as_ref().or(self.code.insts[at].as_ref())
    }

    /// Follows an instruction; `found` is told of registers that it must not touch.
    fn step(&self, state: &mut State, at: usize, found: &mut dyn FnMut(usize, u32, Why)) {
        let Some(i) = self.inst(at) else { return };
        match i.op {
            Opcode::WARPGROUP => state.iter_mut().for_each(|r| r.touched = false),
            Opcode::WARPGROUP_DEPBAR => {
                let left = match i.operands.last() {
                    Some(Operand::Imm(n)) if i.mods.has(Mod::LE) => *n,
                    _ => 0,
                };
                for age in state.iter_mut().flat_map(Register::ages) {
                    if u32::from(*age) > left {
                        *age = DONE;
                    }
                }
            }
            op if op.is_group_product() => {
                let (sums, sources) = of_product(i);
                let by = sums.start as u32;
                for &r in &sources {
                    if state[r].written != DONE {
                        found(r, state[r].by, Why::UnderWay);
                    }
                }
                for r in sums.clone() {
                    let s = &state[r];
                    if s.read != DONE || s.written != DONE && s.by != by {
                        found(r, s.by, Why::UnderWay);
                    }
                }
                if let Some(r) = sums.clone().chain(sources.iter().copied()).find(|r| state[*r].touched) {
                    found(r, by, Why::NotArrived);
                }
                for r in sums {
                    (state[r].written, state[r].by) = (0, by);
                }
                sources.iter().for_each(|r| state[*r].read = 0);
                if i.operands.last() == Some(&Operand::Imm(0)) {
                    for age in state.iter_mut().flat_map(Register::ages).filter(|a| **a < MANY) {
                        *age += 1;
                    }
                }
            }
            _ => {
                access::reads(i, |cell, _| {
                    let Some(r) = general(cell) else { return };
                    if state[r].written != DONE {
                        found(r, state[r].by, Why::UnderWay);
                    }
                    state[r].touched = true;
                });
                access::writes(i, |cell| {
                    let Some(r) = general(cell) else { return };
                    if state[r].written != DONE || state[r].read != DONE {
                        found(r, state[r].by, Why::UnderWay);
                    }
                    state[r].touched = true;
                });
            }
        }
    }

    /// Registers of products.
    fn groups(&self, violations: &mut Vec<Violation>) {
        let count = self.products.len();
        let mut entry: Vec<Option<State>> = vec![None; count];
        let mut open: Vec<usize> = self.code.graph.roots.clone();
        for &root in &open {
            entry[root] = Some(vec![Register { touched: true, ..Register::FREE }; COUNT]);
        }
        let walk = |at: usize, state: &mut State, found: &mut dyn FnMut(usize, usize, u32, Why)| {
            let mut at = at;
            loop {
                self.step(state, at, &mut |r, by, why| found(at, r, by, why));
                let next = flow::next(self.inst(at), at, count);
                let falls = next.falls.then_some(at + 1).filter(|n| *n < count);
                match (next.target, falls) {
                    (None, Some(n)) if !self.code.graph.leader[n] => at = n,
                    ways => return ways,
                }
            }
        };
        while let Some(at) = open.pop() {
            let Some(mut state) = entry[at].clone() else { continue };
            let (a, b) = walk(at, &mut state, &mut |_, _, _, _| {});
            for n in a.into_iter().chain(b) {
                match &mut entry[n] {
                    Some(old) => {
                        let changed = old.iter_mut().zip(&state).fold(false, |c, (o, s)| o.merge(s) | c);
                        if changed && !open.contains(&n) {
                            open.push(n);
                        }
                    }
                    none => {
                        *none = Some(state.clone());
                        open.push(n);
                    }
                }
            }
        }
        for (start, state) in entry.into_iter().enumerate() {
            let Some(mut state) = state else { continue };
            walk(start, &mut state, &mut |at, r, by, why| {
                let at = flow::INST_BYTES * at as i64;
                let reg = |index| sass::Reg { file: RegFile::R, index };
                if !violations.iter().any(|v| v.at == at && v.why == why) {
                    let on = i64::from(by);
                    violations.push(Violation { at, on, register: Some(reg(r as u8)), why });
                }
            });
        }
    }

    /// What is on scoreboard 0 beside the ends of groups of copies.
    fn copies(&self, violations: &mut Vec<Violation>) {
        let ends = |i: &Inst| i.op == Opcode::LDGDEPBAR;
        let mut push = |at: usize, why| {
            let at = flow::INST_BYTES * at as i64;
            violations.push(Violation { at, on: at, register: None, why });
        };
        let all = || (0..self.products.len()).filter_map(|k| Some((k, self.inst(k)?)));
        if !all().any(|(_, i)| ends(i)) {
            return;
        }
        for (k, i) in all() {
            let control = sass::Control::from_bits(self.code.words[k]);
            match () {
                () if ends(i) && control.write_sb != Some(0) => push(k, Why::GroupNotCounted),
                () if !ends(i) && (control.write_sb == Some(0) || control.read_sb == Some(0)) => {
                    push(k, Why::GroupsDisturbed);
                }
                () => {}
            }
        }
    }
}

/// Looks at the tokens of asynchronous work.
pub(super) fn check(code: &Code, violations: &mut Vec<Violation>) {
    let decoded = |(k, i): (usize, &Option<Inst>)| {
        let inst =
            if i.is_none() { sass::decode(code.words[k], code.target, 16 * k as i64).ok() } else { None };
        inst.filter(|i| i.op.is_group_product())
    };
    let tokens = Tokens { code, products: code.insts.iter().enumerate().map(decoded).collect() };
    if tokens.products.iter().any(Option::is_some) {
        tokens.groups(violations);
    }
    tokens.copies(violations);
}
