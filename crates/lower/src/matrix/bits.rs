//! Products of 4-bit integers and of bits where the target multiplies bytes only.
//!
//! Which columns of A meet which rows of B in one instruction is of no importance as long as they are the same, so that
//! an element may stay in its lane.

use super::{Elem, Product, Words};
use crate::arith_int;
use crate::emit::{Emit, imm, rz};
use crate::func::{Lower, Result};
use crate::types::Src;
use ori::{Builder, Operand, operand};
use sass::Opcode;

/// `a & b` and `~a & b` in LOP3's table.
const AND: u8 = 0xc0;
const AND_NOT: u8 = 0x0c;

/// The lower nibbles of four bytes, or the upper ones, each in the upper half of a byte: sixteen times its value,
/// whether signed or not.
fn nibbles(b: &mut Builder<'_>, word: &Operand, upper: bool) -> Operand {
    let word = match upper {
        true => *word,
        false => operand(b.shl(*word, imm(4))),
    };
    operand(b.lop3(word, imm(0xf0f0_f0f0), rz(), AND))
}

/// The bytes that stand for nibbles.
fn bytes(e: Elem) -> Elem {
    if e == Elem::S4 { Elem::S8 } else { Elem::U8 }
}

impl Lower<'_, '_> {
    /// Words of nibbles as the words of bytes of the even columns, then of the odd ones.
    pub(super) fn even_and_odd(&mut self, words: &[Operand]) -> [Words; 2] {
        [false, true].map(|upper| words.iter().map(|w| nibbles(&mut self.b, w, upper)).collect())
    }

    /// What a product of nibbles is in bytes, of half as many columns.
    pub(super) fn in_bytes(p: &Product) -> Product {
        let ((m, n, k), [d, a, b, c]) = (p.size, p.types);
        Product { size: (m, n, k / 2), types: [d, bytes(a), bytes(b), c], saturate: false, ..*p }
    }

    /// `c + (sum >> by)`, which may saturate.
    pub(super) fn add_scaled(&mut self, p: &Product, sum: &[Operand], by: u32, c: &[Operand]) -> Words {
        let mut d = Vec::new();
        for (s, c) in sum.iter().zip(c) {
            let s = operand(self.b.shr(true, *s, imm(by)));
            d.push(operand(match p.saturate {
                true => arith_int::add_sat(&mut self.b, false, &Src::Narrow(*c), &Src::Narrow(s)),
                false => self.b.iadd(s, *c),
            }));
        }
        d
    }

    /// 4-bit integers, from sm_90 on: the even columns, then the odd ones. Both factors are sixteen times too large.
    pub(super) fn nibbles_product(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let part = Self::in_bytes(p);
        let ([a0, a1], [b0, b1]) = (self.even_and_odd(a), self.even_and_odd(b));
        let zero = vec![rz(); c.len()];
        let even = self.product(&part, [&a0, &b0, &zero])?;
        let sum = self.product(&part, [&a1, &b1, &even])?;
        Ok(self.add_scaled(p, &sum, 8, c))
    }

    /// Bits: on sm_90 differences are products with the complements; later ones have products of bytes only.
    pub(super) fn bits_product(&mut self, p: &Product, x: [&[Operand]; 3]) -> Result<Words> {
        let [a, b, c] = x;
        if self.sm() > 90 {
            return self.planes_product(p, x);
        }
        let not = |l: &mut Self, words: &[Operand]| -> Words {
            words.iter().map(|w| operand(l.b.lop3(*w, rz(), rz(), 0x0f))).collect()
        };
        let part = Product { and: true, ..*p };
        let (not_a, not_b) = (not(self, a), not(self, b));
        let first = self.product(&part, [a, &not_b, c])?;
        self.product(&part, [&not_a, b, &first])
    }

    /// Bits as bytes, of which one bit is set at most: bit i of A's bytes meets bit i of B's, which is moved to place
    /// 7 − i, so that every product is 128.
    fn planes_product(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let (m, _, k) = p.size;
        // The order of the bits of a byte turned around.
        let turned: Words = b
            .iter()
            .map(|w| {
                let all = self.b.def(Opcode::BREV, &[], std::slice::from_ref(w));
                operand(self.b.prmt(operand(all), imm(0x0123), rz()))
            })
            .collect();
        // Words of one row, in order of k, and rows.
        let (per, rows) = (k as usize / 128, m as usize / 8);
        let part = Product {
            size: (16, 8, 32),
            types: [Elem::S32, Elem::U8, Elem::U8, Elem::S32],
            and: false,
            ..*p
        };
        let mut sum = vec![rz(); 4];
        // Of a difference, where A is set and B is not, then the other way round.
        let passes: &[[u8; 2]] = if p.and { &[[AND, AND]] } else { &[[AND, AND_NOT], [AND_NOT, AND]] };
        for luts in passes {
            for pair in 0..4 {
                for word in 0..per {
                    let mut plane = |x: &Operand, lut: u8, bit: u32| {
                        operand(self.b.lop3(*x, imm(0x0101_0101 << bit), rz(), lut))
                    };
                    let (mut pa, mut pb) = (Vec::new(), Vec::new());
                    for bit in [2 * pair, 2 * pair + 1] {
                        for row in 0..2 {
                            pa.push(match row < rows {
                                true => plane(&a[word * rows + row], luts[0], bit),
                                false => rz(),
                            });
                        }
                        pb.push(plane(&turned[word], luts[1], 7 - bit));
                    }
                    sum = self.product(&part, [&pa, &pb, &sum])?;
                }
            }
        }
        Ok(self.add_scaled(p, &sum, 7, c))
    }
}
