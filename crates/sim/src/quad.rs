//! `m8n8k4` of binary16: four products, each of lanes 4i … 4i+3 and 4i+16 … 4i+19.

use crate::fp::{self, F16, F32, Format, Round};
use crate::matrix::{Elem, Product, Row, Sum};
use std::ops::Range;

/// What multiplies matrices given row by row.
pub(crate) type Multiply<'a> = &'a dyn Fn(&Product, [&[u64]; 3]) -> Vec<u64>;

/// Such a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quad {
    /// Whether A and B stand row by row.
    pub(crate) by_rows: [bool; 2],
    /// The formats of C and D.
    pub(crate) c: Format,
    pub(crate) d: Format,
}

/// Element `i` of a row of registers of binary16.
fn half(rows: &[Row], lane: usize, i: usize) -> u64 {
    u64::from(rows[i / 2][lane] >> (16 * (i % 2)) & 0xffff)
}

/// Row and column of element `i` of lane `t` of four, of the upper four where `low` is 4.
fn place(f: Format, t: usize, low: usize, i: usize) -> (usize, usize) {
    if f == F32 { ((t & 1) + (i & 2) + low, (i & 4) + (t & 2) + (i & 1)) } else { (t + low, i) }
}

impl Quad {
    fn product(&self) -> Product {
        let e = Elem::Float(F16);
        Product { m: 8, n: 8, k: 4, a: e, b: e, sum: Sum::Float(self.d), sparse: false }
    }

    /// The elements `to` of D (of 8 in each lane), in registers of their own; `from` are the elements of C that its
    /// registers hold, all others are zero.
    pub(crate) fn multiply(
        &self,
        [a, b, c]: [&[Row]; 3],
        from: Range<usize>,
        to: Range<usize>,
        multiply: Multiply<'_>,
    ) -> Vec<Row> {
        let per = if self.d == F32 { 1 } else { 2 };
        let mut out = vec![[0; 32]; to.len() / per];
        for pair in 0..4 {
            let (mut ma, mut mb, mut mc) = (vec![0; 32], vec![0; 32], vec![0; 64]);
            let lanes = (0..8).map(|i| (4 * pair + i % 4 + i / 4 * 16, i % 4, i / 4 * 4));
            for (lane, t, low) in lanes.clone() {
                for i in 0..4 {
                    let (r, col) = if self.by_rows[0] { (t + low, i) } else { (i + low, t) };
                    ma[r * 4 + col] = half(a, lane, i);
                    let (r, col) = if self.by_rows[1] { (t, i + low) } else { (i, t + low) };
                    mb[r * 8 + col] = half(b, lane, i);
                }
                for (k, i) in from.clone().enumerate() {
                    let (r, col) = place(self.c, t, low, i);
                    let bits = if self.c == F32 { c[k][lane].into() } else { half(c, lane, k) };
                    mc[r * 8 + col] = fp::convert(bits, self.c, self.d, Round::Nearest);
                }
            }
            let d = multiply(&self.product(), [&ma, &mb, &mc]);
            for (lane, t, low) in lanes {
                for (k, i) in to.clone().enumerate() {
                    let (r, col) = place(self.d, t, low, i);
                    let bits = d[r * 8 + col] as u32;
                    out[k / per][lane] |= bits << (16 * (k % per));
                }
            }
        }
        out
    }
}
