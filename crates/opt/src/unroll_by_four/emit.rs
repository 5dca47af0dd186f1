//! What asks, before a round, whether so many iterations are left.

use super::{Test, Words, number};
use ori::loops::Compare;
use ori::{Block, Editor, Guard, InstData, Loc, Name, Op, Operand, Operands, Value, operand};
use sass::ops::{Bool, Icmp, Int64, Isetp, IsetpMods};
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp};
use smallvec::smallvec;
use thin_vec::ThinVec;

/// Writes instructions at the end of a block.
pub(super) struct Emit<'e, 'f> {
    pub(super) e: &'e mut Editor<'f>,
    pub(super) block: Block,
    pub(super) loc: Loc,
}

impl Emit<'_, '_> {
    pub(super) fn inst(&mut self, op: Opcode, mods: &[Mod], operands: &[Operand]) {
        let guard = Guard { pred: Name::Phys(Reg::PT), not: false };
        let (operands, mods) = (Operands::from(operands), Mods::of(mods));
        let data = InstData { guard, op: Op::Sass(op), mods, operands, kept: ThinVec::new(), loc: self.loc };
        self.e.append(self.block, data);
    }

    /// The sum of two numbers.
    pub(super) fn sum(&mut self, a: &Words, b: &Words) -> Words {
        let pt = operand(Name::Phys(Reg::PT));
        let rz = operand(Name::Phys(Reg::RZ));
        let none = Operand::Reg(RegOp { not: true, ..RegOp::plain(Name::Phys(Reg::PT)) });
        let low = self.e.add_value(RegFile::R, 1);
        let [a0, b0] = [a, b].map(|w| w[0]);
        if a.len() == 1 {
            self.inst(Opcode::IADD3, &[], &[operand(low), pt, pt, a0, b0, rz, none, none]);
            return smallvec![operand(low)];
        }
        let carry = self.e.add_value(RegFile::P, 1);
        let high = self.e.add_value(RegFile::R, 1);
        let [a1, b1] = [a, b].map(|w| w[1]);
        self.inst(Opcode::IADD3, &[], &[operand(low), operand(carry), pt, a0, b0, rz, none, none]);
        let upper = [operand(high), pt, pt, a1, b1, rz, operand(carry), none];
        self.inst(Opcode::IADD3, &[Mod::X], &upper);
        smallvec![operand(low), operand(high)]
    }

    /// `a` and a constant.
    pub(super) fn plus(&mut self, a: &Words, n: i64) -> Words {
        if n == 0 { a.clone() } else { self.sum(a, &words(n as u64, a.len())) }
    }

    /// `a - b`.
    pub(super) fn difference(&mut self, a: &Words, b: &Words) -> Words {
        if let Some(n) = constant(b) {
            return self.plus(a, n.wrapping_neg() as i64);
        }
        let negative = |k: usize, o: &Operand| match o {
            Operand::Reg(r) if k == 0 => Operand::Reg(RegOp { neg: true, ..*r }),
            Operand::Reg(r) => Operand::Reg(RegOp { not: true, ..*r }),
            other => *other,
        };
        let minus: Words = b.iter().enumerate().map(|(k, o)| negative(k, o)).collect();
        if constant(a).is_some() { self.sum(&minus, a) } else { self.sum(a, &minus) }
    }

    /// Whether two numbers compare so, and `with` holds.
    pub(super) fn compare(&mut self, cmp: Icmp, signed: bool, a: &Words, b: &Words, with: Name) -> Value {
        let pt = operand(Name::Phys(Reg::PT));
        let mut lower = pt;
        let last = a.len() - 1;
        for k in 0..=last {
            let kind = (k < last || !signed).then_some(Int64::U32);
            let mods = IsetpMods { cmp, kind, join: Bool::AND, extended: k > 0 }.mods();
            let result = self.e.add_value(RegFile::P, 1);
            let join = if k == last { operand(with) } else { pt };
            let operands = Isetp { p: operand(result), q: pt, a: a[k], b: b[k], join, lower };
            self.inst(Opcode::ISETP, &mods.0, &operands.list());
            lower = operand(result);
            if k == last {
                return result;
            }
        }
        unreachable!("a number has words")
    }

    /// The bound without `m` steps.
    pub(super) fn limit(&mut self, test: &Test, m: i64) -> Words {
        match constant(&test.bound) {
            _ if test.op == Compare::Ne => test.bound.clone(),
            Some(bound) => {
                let limit =
                    test.constant_limit(bound, m).expect("no loop is planned whose limit wraps around");
                words(limit, test.bound.len())
            }
            None => self.plus(&test.bound, -m * test.step),
        }
    }

    /// Whether the loop goes on `m` times more, or once more than that, from where the counter is `at` on: that the
    /// conditions of the counter and of `m` steps behind it hold.
    pub(super) fn remains(&mut self, test: &Test, at: &Words, limit: &Words, m: i64, with: Name) -> Value {
        if test.op != Compare::Ne {
            return self.compare(test.op.modifier(), test.signed, at, limit, with);
        }
        let (from, to) = if test.step > 0 { (at, &test.bound) } else { (&test.bound, at) };
        let distance = self.difference(to, from);
        let least = words((m * test.step.abs()) as u64, distance.len());
        self.compare(Icmp::GT, false, &distance, &least, with)
    }
}

impl Test {
    /// A constant bound without `m` steps, if that is a number of as many bits.
    pub(super) fn constant_limit(&self, bound: u64, m: i64) -> Option<u64> {
        let bits = 32 * self.bound.len() as u32;
        let bound = match (self.signed, bits) {
            (true, 32) => i128::from(bound as i32),
            (true, _) => i128::from(bound as i64),
            (false, _) => i128::from(bound),
        };
        let limit = bound - i128::from(m) * i128::from(self.step);
        let least = if self.signed { -(1i128 << (bits - 1)) } else { 0 };
        (least..least + (1i128 << bits)).contains(&limit).then_some(limit as u64)
    }

    /// What the counter is `ahead` steps behind a known beginning, if the bound is none that is known, and has `farthest` steps in front
    /// of it when it is behind that.
    pub(super) fn begins(&self, ahead: i64, farthest: i64) -> Option<u64> {
        let start = self.start.filter(|_| self.op != Compare::Ne && constant(&self.bound).is_none())?;
        self.constant_limit(start, farthest - ahead)?;
        self.constant_limit(start, -ahead)
    }

    /// How many steps behind the counter at the beginning of a round of `factor` iterations is the last number that is no longer compared.
    pub(super) fn ahead(&self, ends_below: bool, factor: i64) -> i64 {
        factor - 1 - i64::from(ends_below) + i64::from(self.of_next)
    }
}

/// A constant of so many words.
pub(super) fn words(n: u64, width: usize) -> Words {
    let word = |k: usize| match (n >> (32 * k)) as u32 {
        0 => operand(Name::Phys(Reg::RZ)),
        n => Operand::Imm(n),
    };
    (0..width).map(word).collect()
}

/// The constant that words are.
pub(super) fn constant(words: &Words) -> Option<u64> {
    words.iter().rev().try_fold(0u64, |n, o| Some(n << 32 | u64::from(number(o)?)))
}

/// Replaces names in words.
pub(super) fn renamed(words: &Words, f: impl Fn(Name) -> Name) -> Words {
    let one = |o: &Operand| match o {
        Operand::Reg(r) => Operand::Reg(RegOp { reg: f(r.reg), ..*r }),
        other => *other,
    };
    words.iter().map(one).collect()
}
