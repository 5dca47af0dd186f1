//! Products of 8-bit floating-point numbers where the target multiplies binary16, which has them all.

use super::{Elem, Product, Words};
use crate::convert::Round;
use crate::convert_half::{Narrowing, pack_halves};
use crate::emit::{Emit, fneg, imm, rz};
use crate::func::{Lower, Result};
use ori::{Operand, operand};
use sass::{Mod, Opcode};

impl Lower<'_, '_> {
    /// The lower two numbers of each word as pairs of binary16, or the upper two.
    pub(super) fn widened(&mut self, words: &[Operand], from: Mod, upper: bool) -> Words {
        let mut out = Vec::new();
        for w in words {
            let mut mods = vec![Mod::F16, from, Mod::UNPACK_B];
            mods.extend(upper.then_some(Mod::B_H1));
            let w = operand(self.b.reg(w));
            out.push(operand(self.b.def(Opcode::F2FP, &mods, &[rz(), w])));
        }
        out
    }

    /// `c + sum` of words of binary32, or of pairs of binary16.
    pub(super) fn add_floats(&mut self, e: Elem, sum: &[Operand], c: &[Operand]) -> Words {
        let mut d = Vec::new();
        for (s, c) in sum.iter().zip(c) {
            let op = if e == Elem::F16 { Opcode::HADD2 } else { Opcode::FADD };
            d.push(operand(self.b.def(op, &[], &[*s, *c])));
        }
        d
    }

    /// The lower halves of all words, then the upper ones; C last, as ptxas does.
    pub(super) fn small_product(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let ((m, n, k), [d, from, with, _]) = (p.size, p.types);
        let (Elem::Small(from @ (Mod::E4M3 | Mod::E5M2)), Elem::Small(with @ (Mod::E4M3 | Mod::E5M2))) =
            (from, with)
        else {
            return Err(crate::Refusal::Product(
                "the target has no products of numbers of six bits and fewer",
            ));
        };
        let part = Product { size: (m, n, k / 2), types: [d, Elem::F16, Elem::F16, d], ..*p };
        let mut sum = vec![rz(); c.len()];
        for upper in [false, true] {
            let (a, b) = (self.widened(a, from, upper), self.widened(b, with, upper));
            sum = self.product(&part, [&a, &b, &sum])?;
        }
        Ok(self.add_floats(d, &sum, c))
    }

    /// Pairs of binary16 as binary32.
    pub(super) fn unpack_halves(&mut self, words: &[Operand]) -> Words {
        let mut out = Vec::new();
        for w in words {
            let w = operand(self.b.reg(w));
            for half in [Mod::B_H0_H0, Mod::B_H1_H1] {
                out.push(operand(self.b.def(Opcode::HADD2, &[Mod::F32, half], &[fneg(rz()), w])));
            }
        }
        out
    }

    /// Binary32 numbers as pairs of binary16.
    pub(super) fn pack_words_of_halves(&mut self, words: &[Operand]) -> Words {
        let mut out = Vec::new();
        for pair in words.chunks(2) {
            let none = Narrowing::default();
            let (low, high) = (pair[0], pair[1]);
            if self.sm() == 75 {
                // One at a time.
                let [low, high] =
                    [low, high].map(|x| operand(self.b.def(Opcode::F2F, &[Mod::F16, Mod::F32], &[x])));
                out.push(operand(self.b.prmt(low, imm(0x5410), high)));
                continue;
            }
            out.push(operand(pack_halves(&mut self.b, false, none, Round::Nearest, high, low)));
        }
        out
    }

    /// The number of the own lane.
    pub(super) fn lane(&mut self) -> Operand {
        operand(self.b.def(Opcode::S2R, &[], &[Operand::Special(sass::SpecialReg::SR_LANEID)]))
    }

    /// A word of another lane.
    pub(super) fn word_of_lane(&mut self, word: &Operand, lane: &Operand) -> Operand {
        let v = self.b.func.add_value(sass::RegFile::R, 1);
        let word = operand(self.b.reg(word));
        let operands = [crate::emit::pt(), operand(v), word, *lane, imm(0x1f)];
        self.b.inst(Opcode::SHFL, &[Mod::IDX], &operands);
        operand(v)
    }
}
