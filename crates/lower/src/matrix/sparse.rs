//! Products whose A is sparse: of every chunk of four columns (of 4-bit integers four pairs, of tf32 two) two are stored,
//! and a nibble of metadata in some lane of each four says which.
//!
//! Chunk q of row r (r % 8 is the number of the four lanes, `upper` is r / 8) has its nibble, for elements of 16 bits, in lane
//! `selector` (where there are more than four chunks: 2 · selector + q / 4), bits 16 · upper + 4 · (q % 4); for smaller
//! ones in lane 2 · (selector + q / 8) + upper, bits 4 · (q % 8).
//!
//! From sm_100 on binary16 and 8-bit integers need ascending columns: elsewhere the elements change places, and so do their
//! columns.

use super::{Elem, Product, Words};
use crate::emit::{Emit, imm, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use ori::{Operand, operand};
use sass::{Mod, Opcode};

/// Metadata and which lanes hold it.
struct Columns {
    word: Operand,
    selector: u32,
}

/// The instruction that is the whole product.
fn direct(p: &Product, sm: u8) -> Option<(Opcode, Vec<Mod>)> {
    let [d, a, b, _] = p.types;
    let half = super::dense::halves(a);
    match a {
        Elem::F16 | Elem::Bf16 | Elem::Tf32 => {
            let shape = match p.size {
                (16, 8, 8) => Mod::_1688,
                (16, 8, 16) => Mod::_16816,
                (16, 8, 32) => Mod::_16832,
                _ => return None,
            };
            let mut mods = vec![shape, super::dense::accumulator(d)?];
            mods.extend(half?);
            Some((Opcode::HMMA_SP, mods))
        }
        Elem::U8 | Elem::S8 | Elem::U4 | Elem::S4 => {
            let bytes = matches!(a, Elem::U8 | Elem::S8);
            let shape = match p.size {
                (16, 8, 32) if bytes => Mod::_16832,
                (16, 8, 64) if bytes || sm < 90 => Mod::_16864,
                (16, 8, 128) if sm < 90 => Mod::_168128,
                _ => return None,
            };
            let mut mods = vec![shape, a.integer()?, b.integer()?];
            mods.extend(p.saturate.then_some(Mod::SAT));
            mods.extend([Mod::A_ROW, Mod::B_COL]);
            Some((Opcode::IMMA_SP, mods))
        }
        Elem::Small(from) if p.size == (16, 8, 64) => {
            let Elem::Small(with) = b else { return None };
            let mut mods = vec![Mod::_16864, super::dense::accumulator(d)?, from, with];
            match sm {
                89 => mods.extend([Mod::A_ROW, Mod::B_COL]),
                120.. => {}
                _ => return None,
            }
            Some((Opcode::QMMA_SP, mods))
        }
        _ => None,
    }
}

/// Whether the target wants ascending columns of such a matrix; ptxas sorts those of no other.
fn wants_order(e: Elem, sm: u8) -> bool {
    sm >= 100 && matches!(e, Elem::F16 | Elem::U8 | Elem::S8 | Elem::U4 | Elem::S4)
        || (100..120).contains(&sm) && matches!(e, Elem::Small(_))
}

impl Lower<'_, '_> {
    /// `mma.sp`: metadata and selector are the fifth and the sixth operand.
    pub(super) fn sparse_product(
        &mut self,
        inst: &Statement<'_>,
        p: &Product,
        ordered: bool,
        [a, b, c]: [&[Operand]; 3],
    ) -> Result<Words> {
        let word = self.one_word(&inst.operands[4])?;
        let selector = self.integer(&inst.operands[5])? as u32;
        let columns = Columns { word, selector };
        if !ordered && wants_order(p.types[1], self.sm()) {
            let (a, columns) = self.in_order(p, a, &columns);
            return self.sparse_of(p, &columns, [&a, b, c]);
        }
        self.sparse_of(p, &columns, [a, b, c])
    }

    fn sparse_of(&mut self, p: &Product, columns: &Columns, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        if let Some((op, mods)) = direct(p, self.sm()) {
            let more = [columns.word, Operand::Imm(columns.selector)];
            return Ok(self.multiply(op, &mods, [a, b, c], &more));
        }
        match p.types[1] {
            // The even columns, then the odd ones: a pair of nibbles is where its byte is.
            Elem::U4 | Elem::S4 => {
                let part = Self::in_bytes(p);
                let ([a0, a1], [b0, b1]) = (self.even_and_odd(a), self.even_and_odd(b));
                let zero = vec![rz(); c.len()];
                let even = self.sparse_of(&part, columns, [&a0, &b0, &zero])?;
                let sum = self.sparse_of(&part, columns, [&a1, &b1, &even])?;
                Ok(self.add_scaled(p, &sum, 8, c))
            }
            Elem::Small(_) => self.small_sparse(p, columns, [a, b, c]),
            _ => Err(crate::Refusal::Product("no sparse product of these matrices on this target")),
        }
    }

    /// The lane `(number & !3) | n`: one of the same four.
    fn of_four(&mut self, lane: &Operand, n: u32) -> Operand {
        let n = if n == 0 { rz() } else { operand(self.b.copy(Operand::Imm(n))) };
        operand(self.b.lop3(*lane, imm(!3), n, 0xea))
    }

    /// A, and where its elements stand, with ascending columns.
    fn in_order(&mut self, p: &Product, a: &[Operand], columns: &Columns) -> (Words, Columns) {
        let b = &mut self.b;
        let word = columns.word;
        // Bit 0 of each nibble: its lower number is the greater one.
        let low = operand(b.and(word, imm(0x3333_3333)));
        let high = operand(b.shr(false, word, imm(2)));
        let high = operand(b.and(high, imm(0x3333_3333)));
        // 4 + high − low < 4 where low is the greater one: nibbles do not borrow from each other.
        let more = operand(b.iadd3(high, imm(0x4444_4444), crate::emit::ineg(low)));
        let more = operand(b.shr(false, more, imm(2)));
        // Not in order: bit 2 is clear.
        let wrong = operand(b.lop3(more, imm(0x1111_1111), rz(), 0x0c));
        let mask = operand(b.imad(wrong, imm(15), rz()));
        let turned = operand(b.imad(low, imm(4), high));
        // mask ? turned : word
        let sorted = operand(b.lop3(mask, turned, columns.word, 0xca));
        let lane = self.lane();
        let place = operand(self.b.and(lane, imm(3)));
        let a = match p.types[1] {
            Elem::F16 => self.halves_in_order(p, a, &wrong, columns.selector, [&lane, &place]),
            _ => self.bytes_in_order(a, &wrong, columns.selector, [&lane, &place]),
        };
        (a, Columns { word: sorted, selector: columns.selector })
    }

    /// A word of A is the two elements of chunk `lane % 4`, or of the one four after it.
    fn halves_in_order(
        &mut self,
        p: &Product,
        a: &[Operand],
        wrong: &Operand,
        selector: u32,
        [lane, place]: [&Operand; 2],
    ) -> Words {
        let groups = p.size.2 / 16;
        let shift = operand(self.b.shl(*place, imm(2)));
        let mut out = Vec::new();
        for (i, w) in a.iter().enumerate() {
            let (upper, group) = (i as u32 % 2, i as u32 / 2);
            let from = self.of_four(lane, groups * selector + group);
            let flags = self.word_of_lane(wrong, &from);
            let at = operand(self.b.iadd(shift, imm(16 * upper)));
            let flag = operand(self.b.shr(false, flags, at));
            let flag = operand(self.b.and(flag, imm(1)));
            // 0x3210, or 0x1032.
            let base = operand(self.b.copy(Operand::Imm(0x3210)));
            let selector = self.b.imad(flag, imm(0x1032u32.wrapping_sub(0x3210)), base);
            out.push(operand(self.b.prmt(*w, operand(selector), rz())));
        }
        out
    }

    /// A word of A is two bytes of each of two chunks: 2 · (lane % 4) and the next, or those eight after them.
    fn bytes_in_order(
        &mut self,
        a: &[Operand],
        wrong: &Operand,
        selector: u32,
        [lane, place]: [&Operand; 2],
    ) -> Words {
        let shift = operand(self.b.shl(*place, imm(3)));
        let mut out = Vec::new();
        for (i, w) in a.iter().enumerate() {
            let (upper, group) = (i as u32 % 2, i as u32 / 2);
            let from = self.of_four(lane, 2 * (selector + group) + upper);
            let flags = self.word_of_lane(wrong, &from);
            let flags = operand(self.b.shr(false, flags, shift));
            // 0x3210 with 01 below where bit 0 is set, 23 above where bit 4 is.
            let first = operand(self.b.and(flags, imm(1)));
            let second = operand(self.b.and(flags, imm(0x10)));
            let base = operand(self.b.copy(Operand::Imm(0x3210)));
            let selector = operand(self.b.imad(first, imm(0x01u32.wrapping_sub(0x10)), base));
            let selector = self.b.imad(second, imm(0x230u32.wrapping_sub(0x320)), selector);
            out.push(operand(self.b.prmt(*w, operand(selector), rz())));
        }
        out
    }

    /// `m16n8k64` of 8-bit floating-point numbers: the even chunks in binary16, then the odd ones.
    ///
    /// A's words have an even chunk below and an odd one above, which is where binary16 has them. B's have a whole chunk,
    /// of which binary16 has two columns in each of two lanes: neighbours exchange halves.
    fn small_sparse(&mut self, p: &Product, columns: &Columns, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let [d, from, with, _] = p.types;
        let (Elem::Small(from @ (Mod::E4M3 | Mod::E5M2)), Elem::Small(with @ (Mod::E4M3 | Mod::E5M2))) =
            (from, with)
        else {
            return Err(crate::Refusal::Product(
                "the target has no products of numbers of six bits and fewer",
            ));
        };
        let lane = self.lane();
        let odd = operand(self.b.and(lane, imm(1)));
        let odd = operand(self.b.isetp(Mod::NE, false, odd, rz()));
        let neighbour = operand(self.b.xor(lane, imm(1)));
        let (low, high) = (self.widened(b, with, false), self.widened(b, with, true));
        let mut halves = [Vec::new(), Vec::new()];
        for (low, high) in low.iter().zip(&high) {
            let given = operand(self.b.sel(odd, *low, *high));
            let taken = self.word_of_lane(&given, &neighbour);
            halves[0].push(operand(self.b.sel(odd, taken, *low)));
            halves[1].push(operand(self.b.sel(odd, *high, taken)));
        }
        let meta = self.split_columns(columns, &lane);
        let part = Product { size: (16, 8, 32), types: [d, Elem::F16, Elem::F16, d], ..*p };
        let mut sum = vec![rz(); c.len()];
        for (upper, (word, b)) in [false, true].into_iter().zip(meta.into_iter().zip(&halves)) {
            let a = self.widened(a, from, upper);
            sum = self.sparse_of(&part, &Columns { word, selector: 0 }, [&a, b, &sum])?;
        }
        Ok(self.add_floats(d, &sum, c))
    }

    /// The nibbles of the even chunks, and those of the odd ones, where `m16n8k32` of 16-bit elements has them.
    fn split_columns(&mut self, columns: &Columns, lane: &Operand) -> [Operand; 2] {
        // Of eight nibbles the even ones in the lower half, the odd ones in the upper one.
        let b = &mut self.b;
        let step = |b: &mut ori::Builder<'_>, x: Operand, shift: u32, keep: u32, mid: u32| {
            // Swaps the fields `mid` and `mid << shift`.
            let up = operand(b.and(x, imm(mid)));
            let up = operand(b.shl(up, imm(shift)));
            let down = operand(b.shr(false, x, imm(shift)));
            let down = operand(b.and(down, imm(mid)));
            let kept = operand(b.and(x, imm(keep)));
            operand(b.lop3(up, down, kept, 0xfe))
        };
        let x = step(b, columns.word, 4, 0xf00f_f00f, 0x00f0_00f0);
        let x = step(b, x, 8, 0xff00_00ff, 0x0000_ff00);
        // Lane 0 wants the rows' first halves, lane 1 the second ones.
        let second = operand(self.b.and(*lane, imm(1)));
        let twice = operand(self.b.shl(second, imm(1)));
        let four = self.of_four(lane, 0);
        let from = operand(self.b.iadd(four, twice));
        let upper = self.word_of_lane(&x, &from);
        let from = operand(self.b.iadd(from, imm(1)));
        let lower = self.word_of_lane(&x, &from);
        [0x5410, 0x7632].map(|s| operand(self.b.prmt(upper, imm(s), lower)))
    }
}
