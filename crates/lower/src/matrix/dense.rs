//! Products that the target has as an instruction, and those that are the same ones of smaller matrices.

use super::{Elem, Product, Words};
use crate::emit::rz;
use crate::func::{Lower, Result};
use ori::Operand;
use sass::{Mod, Opcode};

/// The modifiers that operands of integer products have.
const BY_ROW_AND_COLUMN: [Mod; 2] = [Mod::A_ROW, Mod::B_COL];

/// The accumulator of floating-point products.
pub(super) fn accumulator(e: Elem) -> Option<Mod> {
    match e {
        Elem::F16 => Some(Mod::F16),
        Elem::F32 => Some(Mod::F32),
        _ => None,
    }
}

/// What HMMA's factors are, besides binary16.
pub(super) fn halves(e: Elem) -> Option<Option<Mod>> {
    match e {
        Elem::F16 => Some(None),
        Elem::Bf16 => Some(Some(Mod::BF16)),
        Elem::Tf32 => Some(Some(Mod::TF32)),
        _ => None,
    }
}

/// The instruction that is the whole product.
pub(super) fn direct(p: &Product, sm: u8) -> Option<(Opcode, Vec<Mod>)> {
    let [d, a, b, _] = p.types;
    match a {
        Elem::F16 | Elem::Bf16 | Elem::Tf32 => {
            let shape = match (p.size, a) {
                ((16, 8, 4), Elem::Tf32) => Mod::_1684,
                ((16, 8, 8), _) => Mod::_1688,
                ((16, 8, 16), Elem::F16 | Elem::Bf16) if sm >= 80 => Mod::_16816,
                _ => return None,
            };
            let mut mods = vec![shape, accumulator(d)?];
            mods.extend(p.saturate.then_some(Mod::SATFINITE));
            mods.extend(halves(a)?);
            Some((Opcode::HMMA, mods))
        }
        Elem::U8 | Elem::S8 | Elem::U4 | Elem::S4 => {
            let bytes = matches!(a, Elem::U8 | Elem::S8);
            let shape = match p.size {
                (8, 8, 16) if bytes && sm <= 90 => Mod::_8816,
                (16, 8, 16) if bytes && sm >= 80 => Mod::_16816,
                (16, 8, 32) if bytes && sm >= 80 => Mod::_16832,
                (8, 8, 32) if !bytes && sm < 90 => Mod::_8832,
                (16, 8, 32) if !bytes && (80..90).contains(&sm) => Mod::_16832,
                (16, 8, 64) if !bytes && (80..90).contains(&sm) => Mod::_16864,
                _ => return None,
            };
            let mut mods = vec![shape, a.integer()?, b.integer()?];
            mods.extend(p.saturate.then_some(Mod::SAT));
            mods.extend(BY_ROW_AND_COLUMN);
            Some((Opcode::IMMA, mods))
        }
        Elem::B1 => {
            // sm_90 has products alone, later ones have neither.
            if sm > 90 || sm == 90 && !p.and || sm == 75 && p.and {
                return None;
            }
            let shape = match p.size {
                (8, 8, 128) => Mod::_88128,
                (16, 8, 128) => Mod::_168128,
                (16, 8, 256) => Mod::_168256,
                _ => return None,
            };
            let mut mods = vec![shape, if p.and { Mod::AND } else { Mod::XOR }, Mod::POPC];
            mods.extend(BY_ROW_AND_COLUMN);
            Some((Opcode::BMMA, mods))
        }
        Elem::F64 => {
            let shape = match p.size {
                (8, 8, 4) if sm < 90 => Mod::_884,
                (8, 8, 4) => Mod::_8x8x4,
                (16, 8, 4) if sm == 90 => Mod::_16x8x4,
                (16, 8, 8) if sm == 90 => Mod::_16x8x8,
                (16, 8, 16) if sm == 90 => Mod::_16x8x16,
                _ => return None,
            };
            let mut mods = vec![shape];
            mods.extend(p.round);
            Some((Opcode::DMMA, mods))
        }
        Elem::Small(from) => {
            let Elem::Small(with) = b else { return None };
            let shape = match p.size {
                (16, 8, 16) => Mod::_16816,
                (16, 8, 32) => Mod::_16832,
                _ => return None,
            };
            let mut mods = vec![shape, accumulator(d)?, from, with];
            match sm {
                89 => mods.extend(BY_ROW_AND_COLUMN),
                120.. => {}
                _ => return None,
            }
            Some((Opcode::QMMA, mods))
        }
        Elem::F32 | Elem::S32 => None,
    }
}

impl Lower<'_, '_> {
    /// Binary64 of 16 rows: the upper and the lower eight, four columns of A after four.
    pub(super) fn double_rows(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let (_, _, k) = p.size;
        let part = Product { size: (8, 8, 4), ..*p };
        let mut d = Vec::new();
        for row in 0..2 {
            let mut sum = c[4 * row..][..4].to_vec();
            for step in 0..k as usize / 4 {
                let x = &a[2 * (2 * step + row)..][..2];
                sum = self.product(&part, [x, &b[2 * step..][..2], &sum])?;
            }
            d.extend(sum);
        }
        Ok(d)
    }

    /// `m16n8k16` of 16-bit elements on sm_75: eight columns of A after eight. As in ptxas's code, the last step alone
    /// saturates.
    pub(super) fn half_depth(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        let part = Product { size: (16, 8, 8), ..*p };
        let first = self.product(&Product { saturate: false, ..part }, [&a[..2], &b[..1], c])?;
        self.product(&part, [&a[2..], &b[1..], &first])
    }

    /// Bytes, of a shape that the target hasn't: `m8n8k16` from sm_100 on is the upper half of `m16n8k16`, on sm_75
    /// `m16n8k16` is two of the former.
    pub(super) fn bytes_product(&mut self, p: &Product, [a, b, c]: [&[Operand]; 3]) -> Result<Words> {
        match p.size {
            (8, 8, 16) => {
                let whole = Product { size: (16, 8, 16), ..*p };
                let (a, c) = ([a[0], rz()], [c[0], c[1], rz(), rz()]);
                let mut d = self.product(&whole, [&a, b, &c])?;
                d.truncate(2);
                Ok(d)
            }
            (16, 8, 16) if self.sm() == 75 => {
                let half = Product { size: (8, 8, 16), ..*p };
                let mut d = self.product(&half, [&a[..1], b, &c[..2]])?;
                d.extend(self.product(&half, [&a[1..], b, &c[2..]])?);
                Ok(d)
            }
            _ => Err(crate::Refusal::Product("no product of bytes of this shape")),
        }
    }
}
