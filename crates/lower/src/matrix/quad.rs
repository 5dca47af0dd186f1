//! `m8n8k4` of binary16: four products at once, each of a quad of lanes and of the one 16 lanes on.
//!
//! Lane t of four (and lane t of the upper quad, which is `low` = 4) holds row t + low of A, or, where A stands by columns,
//! column t of its rows low … low + 3; column t + low of B, or row t of its columns low … low + 3. D in binary32: rows
//! (t & 1) + low and two below, columns (t & 2) + 0, 1, 4, 5; in binary16: row t + low.

use super::{Elem, Product, Words};
use crate::emit::{Emit, imm, rz};
use crate::func::{Lower, Result};
use ori::{Operand, operand};
use sass::{Mod, Opcode};

/// The masks of the lane's number: its quad among the lower four, the bit that tells the upper ones, its place.
const QUAD: u32 = 0xc;
const UPPER: u32 = 0x10;

impl Lower<'_, '_> {
    /// Such a product.
    pub(super) fn quad_product(&mut self, p: &Product, x: [&[Operand]; 3]) -> Result<Words> {
        if self.sm() == 75 { self.quad_steps(p, x) } else { self.quad_sums(p, x) }
    }

    /// On sm_75: each instruction makes two words of D.
    fn quad_steps(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let [d_type, .., c_type] = p.types;
        let (Some(to), Some(from)) = (super::dense::accumulator(d_type), super::dense::accumulator(c_type))
        else {
            return Err(crate::Refusal::Product("no product of quarter warps with these sums"));
        };
        let mut d = Vec::new();
        let steps = [Mod::STEP0, Mod::STEP1, Mod::STEP2, Mod::STEP3];
        for (i, step) in steps.into_iter().take(if d_type == Elem::F32 { 4 } else { 2 }).enumerate() {
            let first = if d_type == c_type { 2 * i } else { i / 2 * 2 };
            let layout = [
                if p.turned[0] { Mod::A_COL } else { Mod::A_ROW },
                if p.turned[1] { Mod::B_ROW } else { Mod::B_COL },
            ];
            let mods = [to, from, step, layout[0], layout[1]];
            d.extend(self.multiply(Opcode::HMMA_884, &mods, [a, b, &c[first..first + 2]], &[]));
        }
        Ok(d)
    }

    /// Later: sums of products of binary32, column after column of A, then C, as ptxas's function does.
    fn quad_sums(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let [d_type, .., c_type] = p.types;
        let lane = self.lane();
        let wide = d_type == Elem::F32;
        let rows = self.quad_rows(&lane, a, p.turned[0], wide);
        let columns = self.quad_columns(&lane, b, p.turned[1], wide);
        let c = match (c_type, wide) {
            (Elem::F32, _) => c.to_vec(),
            (_, false) => self.unpack_halves(c),
            (_, true) => self.quad_addend(&lane, c),
        };
        let mut d = Vec::new();
        for (i, c) in c.iter().enumerate() {
            // Element i: of the second row where bit 1 is set.
            let (row, column) = if wide { (i >> 1 & 1, (i >> 2) * 2 + (i & 1)) } else { (0, i) };
            let mut sum = rz();
            for k in 0..4 {
                let factors = [rows[row][k], columns[column][k], sum];
                sum = operand(self.b.def(Opcode::FFMA, &[], &factors));
            }
            d.push(operand(self.b.def(Opcode::FADD, &[], &[sum, *c])));
        }
        Ok(if wide { d } else { self.pack_words_of_halves(&d) })
    }

    /// Lane `(number & keep) | add`.
    fn quad_lane(&mut self, lane: &Operand, keep: u32, add: u32) -> Operand {
        // (a & b) | c
        let add = imm_reg(self, add);
        operand(self.b.lop3(*lane, imm(keep), add, 0xea))
    }

    /// Half `odd` of each word, where that differs from lane to lane: 0 or 1 in bit 0 of a word.
    fn half_of(&mut self, word: &Operand, odd: &Operand) -> Operand {
        // Bytes 0 and 1, or 2 and 3, in the lower half.
        let even = imm_reg(self, 0x4410);
        let selector = self.b.imad(*odd, imm(0x22), even);
        operand(self.b.prmt(*word, operand(selector), rz()))
    }

    /// Rows of A that the lane needs, as four binary32 numbers each.
    fn quad_rows(&mut self, lane: &Operand, a: &[Operand], by_columns: bool, wide: bool) -> Vec<Words> {
        let mut rows = Vec::new();
        for second in 0..if wide { 2u32 } else { 1 } {
            if !by_columns {
                let words = match wide {
                    true => {
                        let from = self.quad_lane(lane, !2, 2 * second);
                        a.iter().map(|w| self.word_of_lane(w, &from)).collect()
                    }
                    false => a.to_vec(),
                };
                rows.push(self.unpack_halves(&words));
                continue;
            }
            // Column k is in lane k; of its four numbers the lane wants that of its own row.
            let odd = operand(self.b.and(*lane, imm(1)));
            let mut row = Vec::new();
            for k in 0..4 {
                let from = self.quad_lane(lane, QUAD | UPPER, k);
                let word = match wide {
                    true => self.word_of_lane(&a[second as usize], &from),
                    false => {
                        let both = [self.word_of_lane(&a[0], &from), self.word_of_lane(&a[1], &from)];
                        self.by_bit(lane, 2, both)
                    }
                };
                let half = self.half_of(&word, &odd);
                row.push(self.unpack_halves(&[half])[0]);
            }
            rows.push(row);
        }
        rows
    }

    /// The second of two words where this bit of the lane's number is set.
    fn by_bit(&mut self, lane: &Operand, bit: u32, [clear, set]: [Operand; 2]) -> Operand {
        let masked = self.b.and(*lane, imm(bit));
        let is_set = operand(self.b.isetp(Mod::NE, false, operand(masked), rz()));
        operand(self.b.sel(is_set, set, clear))
    }

    /// Columns of B that the lane needs, as four binary32 numbers each.
    fn quad_columns(&mut self, lane: &Operand, b: &[Operand], by_rows: bool, wide: bool) -> Vec<Words> {
        let mut columns = Vec::new();
        for upper in [0, UPPER] {
            // The quad's rows, where B stands by rows.
            let mut lines: Vec<[Operand; 2]> = Vec::new();
            for k in 0..if by_rows { 4 } else { 0 } {
                let from = self.quad_lane(lane, QUAD, k | upper);
                lines.push([self.word_of_lane(&b[0], &from), self.word_of_lane(&b[1], &from)]);
            }
            for e in 0..if wide { 2 } else { 4 } {
                if !by_rows {
                    let keep = if wide { QUAD | 2 } else { QUAD };
                    let from = self.quad_lane(lane, keep, e | upper);
                    let words: Words = b.iter().map(|w| self.word_of_lane(w, &from)).collect();
                    columns.push(self.unpack_halves(&words));
                    continue;
                }
                let mut column = Vec::new();
                for line in &lines {
                    let word = match wide {
                        true => self.by_bit(lane, 2, *line),
                        false => line[e as usize / 2],
                    };
                    column.push(self.unpack_halves(&[word])[e as usize % 2]);
                }
                columns.push(column);
            }
        }
        columns
    }

    /// C of pairs of binary16, by rows, as D in binary32 stands.
    fn quad_addend(&mut self, lane: &Operand, c: &[Operand]) -> Words {
        // Two rows of four words: of each half of a row the lane wants one.
        let mut out = vec![rz(); 8];
        for second in 0..2u32 {
            let from = self.quad_lane(lane, !2, 2 * second);
            let row: Words = c.iter().map(|w| self.word_of_lane(w, &from)).collect();
            for half in 0..2 {
                let word = self.by_bit(lane, 2, [row[2 * half], row[2 * half + 1]]);
                let pair = self.unpack_halves(&[word]);
                for (e, x) in pair.into_iter().enumerate() {
                    out[4 * half + 2 * second as usize + e] = x;
                }
            }
        }
        out
    }
}

/// A number in a register: LOP3 and IMAD have room for one immediate.
fn imm_reg(l: &mut Lower<'_, '_>, n: u32) -> Operand {
    if n == 0 { rz() } else { operand(l.b.copy(Operand::Imm(n))) }
}
