//! Block-scaled products: a factor for each block of a row of A and of a column of B, in bytes of two registers. Operands
//! behind C: metadata and selector where A is sparse, then for A and for B a register and which bytes of which lanes count.

use super::{Elem, Product, Words};
use crate::emit::{Emit, imm};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{Name, Operand, operand};
use ptx::VectorElem;
use sass::{Mod, Opcode, Reg};

/// Where the four numbers stand in the selector: A's byte and lane, B's byte and lane, with their bits.
const FIELDS: [(u32, u32); 4] = [(0, 2), (2, 1), (3, 2), (5, 2)];

impl Lower<'_, '_> {
    /// Such a product.
    pub(super) fn scaled_product(
        &mut self,
        inst: &Statement<'_>,
        p: &Product,
        sparse: bool,
        [a, b, c]: [&[Operand]; 3],
    ) -> Result<Words> {
        let four = inst.has_prefix("scale_vec::4X");
        let small = inst.has_prefix("kind::mxf8f6f4");
        inst.has_prefix("scale_vec::");
        let fraction = inst.has_prefix("ue4m3");
        inst.has_prefix("ue8m0");
        let [_, Elem::Small(from), Elem::Small(with), _] = p.types else { return self.unsupported(inst) };
        let rest = inst.operands.from(4);
        let (columns, rest) = if sparse { rest.split_at(2) } else { rest.split_at(0) };
        let [scale_a, place_a, scale_b, place_b] = rest else { return self.unsupported(inst) };
        let blocks = match (small, four) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 4,
        };
        let selector = self.scale_selector([place_a, place_b], blocks)?;
        let mut words = Vec::new();
        for o in [scale_a, scale_b] {
            words.push(self.one_word(o)?);
        }
        let mut more = Vec::new();
        if let [metadata, _] = columns {
            let metadata = self.one_word(metadata)?;
            more.push(operand(self.b.collect(&[metadata, words[0]])));
        } else {
            more.push(words[0]);
        }
        more.extend([words[1], selector]);
        if let [_, selector] = columns {
            more.push(Operand::Imm(self.integer(selector)? as u32));
        }
        let format = if fraction { Mod::UE4M3 } else { Mod::E8 };
        let shape = match (small, sparse) {
            (true, false) => Mod::_16832,
            (true, true) | (false, false) => Mod::_16864,
            (false, true) => Mod::_168128,
        };
        let mut mods = vec![shape, Mod::F32, from, with, format];
        mods.extend((blocks == 4).then_some(Mod::_4X));
        let op = match (small, sparse) {
            (true, false) => Opcode::QMMA_SF,
            (true, true) => Opcode::QMMA_SF_SP,
            (false, false) => Opcode::OMMA_SF,
            (false, true) => Opcode::OMMA_SF_SP,
        };
        Ok(self.multiply(op, &mods, [a, b, c], &more))
    }

    /// The selector of bytes and lanes in a uniform register; it is the same in all threads.
    fn scale_selector(&mut self, places: [&ptx::Operand; 2], blocks: u64) -> Result<Operand> {
        let mut known = 0;
        let mut word: Option<Operand> = None;
        let mut fields = FIELDS.into_iter();
        for place in places {
            let ptx::Operand::Vector(v) = place else { return Err("{byte, thread} is needed".into()) };
            for (i, e) in v.iter().enumerate() {
                let (at, bits) = fields.next().ok_or("{byte, thread} is needed")?;
                if let VectorElem::Int(n) = e {
                    let wrong = *n >> bits != 0 || i == 0 && !n.is_multiple_of(blocks);
                    if wrong {
                        let what = if i == 0 { "byte" } else { "thread" };
                        return Err(crate::Refusal::Scales { what, at: *n });
                    }
                    known |= (*n as u32) << at;
                    continue;
                }
                let n = self.elem(e, Ty { bits: 16, ..Ty::U32 })?.low();
                let field = self.b.and(n, imm((1 << bits) - 1));
                let field = self.b.shl(operand(field), imm(at));
                word = Some(match word {
                    None => operand(field),
                    Some(w) => operand(self.b.lop3(w, operand(field), imm(0), 0xfc)),
                });
            }
        }
        Ok(match word {
            None if known == 0 => operand(Name::Phys(Reg::URZ)),
            None => operand(self.b.def(Opcode::UMOV, &[], &[Operand::Imm(known)])),
            Some(w) => {
                let all = self.b.lop3(w, imm(known), imm(0), 0xfc);
                operand(self.b.def(Opcode::R2UR, &[], &[operand(all)]))
            }
        })
    }
}
