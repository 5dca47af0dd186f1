//! `wmma`: its fragments are those of `mma`, of one or two products each.
//!
//! | shape | A | B | C, D |
//! |---|---|---|---|
//! | m16n16 | 16 rows | 8 columns, 8 more | 16 × 8, the 8 columns to the right |
//! | m32n8 | 16 rows, 16 more | 8 columns | 16 × 8, the 16 rows below |
//! | m8n32 | as `mma`'s B: 8 columns of its transpose | as `mma`'s A, twice | transposed: as of m32n8 |
//!
//! The others are single products of `mma`.

use super::{Elem, Product, Words};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use ori::Operand;
use ptx::Mod as M;

/// One product of `mma`: words of what stands for its A and B, of C and D.
struct Part {
    a: std::ops::Range<usize>,
    b: std::ops::Range<usize>,
    c: std::ops::Range<usize>,
}

impl Lower<'_, '_> {
    /// `wmma.mma`.
    pub(super) fn wmma_mma(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.moot(&[M::mma]);
        let p = Product { turned: [false; 2], ..self.product_of(inst)? };
        let [d_type, a_type, b_type, c_type] = p.types;
        let a = self.matrix_words(&inst.operands[1], a_type)?;
        let b = self.matrix_words(&inst.operands[2], b_type)?;
        let mut c = self.matrix_words(&inst.operands[3], c_type)?;
        // Sums are made in D's format, unless that is the narrower one.
        let narrow = d_type == Elem::F16 && c_type == Elem::F32;
        if d_type == Elem::F32 && c_type == Elem::F16 {
            c = self.unpack_halves(&c);
        }
        let sum_type = if narrow { Elem::F32 } else { d_type };
        let p = Product { types: [sum_type, a_type, b_type, sum_type], ..p };
        let mut d = self.wmma_product(&p, [&a, &b, &c])?;
        if narrow {
            d = self.pack_words_of_halves(&d);
        }
        self.write_matrix(&inst.operands[0], d_type, &d)
    }

    fn wmma_product(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let (m, n, k) = p.size;
        if m == 8 && n == 8 {
            return self.product(p, [a, b, c]);
        }
        // Words of 16 rows of A, of 8 columns of B, of 16 × 8 sums.
        let per_a = (16 * k * p.types[1].bits() / 1024) as usize;
        let per_b = per_a / 2;
        let per_c = if p.types[0] == Elem::F16 { 2 } else { 4 };
        let part = |i: usize, a: usize, b: usize| Part {
            a: a * per_a..(a + 1) * per_a,
            b: b * per_b..(b + 1) * per_b,
            c: i * per_c..(i + 1) * per_c,
        };
        // Which of the operands is `mma`'s A.
        let (first, second, parts) = match (m, n) {
            (16, 16) => (a, b, [part(0, 0, 0), part(1, 0, 1)]),
            (32, 8) => (a, b, [part(0, 0, 0), part(1, 1, 0)]),
            (8, 32) => (b, a, [part(0, 0, 0), part(1, 1, 0)]),
            _ => return Err(crate::Refusal::Product("no product of matrices of this shape")),
        };
        let part = Product { size: (16, 8, k), ..*p };
        let mut d = Vec::new();
        for x in parts {
            d.extend(self.product(&part, [&first[x.a], &second[x.b], &c[x.c]])?);
        }
        Ok(d)
    }
}
