//! Products of matrices in tensor memory: `tcgen05.mma`, of one block or of a pair.

use crate::emit::{Emit, imm, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::tensor_checks::{At, Deed, Facts};
use crate::tensor_memory::urz;
use crate::types::Ty;
use ori::{Macro, Name, Operand, operand};
use ptx::Mod as M;
use sass::{Mod, Opcode, Reg, RegFile};

impl Lower<'_, '_> {
    /// The modifiers of a product that say what stays in collectors, whether it is weight-stationary, and whether A's rows
    /// move on.
    fn product_mods(&self, inst: &Statement<'_>) -> Result<Vec<Mod>> {
        let kept = match inst.find(|m| m.name().strip_prefix("collector::a::")) {
            None | Some("discard") => vec![],
            Some("fill") => vec![Mod::A_A_KEEP],
            Some("lastuse") => vec![Mod::A_A_REUSE],
            Some("use") => vec![Mod::A_A_REUSE, Mod::A_KEEP],
            _ => return self.unsupported(inst),
        };
        let mut mods = vec![];
        if inst.has(M::cta_group_2) {
            mods.push(Mod::_2CTA);
        }
        if inst.has(M::ashift) {
            mods.push(Mod::ASHIFT);
        }
        mods.extend(kept);
        if inst.has(M::ws) {
            mods.push(Mod::WS);
            let Some((buffer, use_of)) = inst
                .find(|m| m.name().strip_prefix("collector::b").map(|b| b.split_once("::")))
                .unwrap_or(Some(("0", "discard")))
            else {
                return self.unsupported(inst);
            };
            mods.extend(match use_of {
                "discard" => &[][..],
                "fill" => &[Mod::B_B_KEEP],
                "lastuse" => &[Mod::B_B_REUSE],
                "use" => &[Mod::B_B_REUSE, Mod::B_KEEP],
                _ => return self.unsupported(inst),
            });
            // The first of the words begins with `B:`.
            mods.extend(match (buffer, use_of == "discard") {
                ("0", _) => None,
                ("1", true) => Some(Mod::B_BUFFER1),
                ("2", true) => Some(Mod::B_BUFFER2),
                ("3", true) => Some(Mod::B_BUFFER3),
                ("1", false) => Some(Mod::BUFFER1),
                ("2", false) => Some(Mod::BUFFER2),
                ("3", false) => Some(Mod::BUFFER3),
                _ => return self.unsupported(inst),
            });
        }
        Ok(mods)
    }

    /// `tcgen05.mma`.
    pub(crate) fn multiply_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let scaled = inst.has(M::block_scale);
        // Of 4-bit elements, a factor for each 16 columns of A; else their number follows from the kind.
        let by_16 = inst.has_prefix("block16") | inst.has_prefix("scale_vec::4X");
        inst.has_prefix("block32");
        inst.has_prefix("scale_vec::");
        let mut words: Vec<Operand> = Vec::new();
        let d = self.tensor_address(&inst.operands[0])?;
        words.push(d);
        let mut places = vec![(At::D, d)];
        let in_tensor = matches!(inst.operands[1], ptx::Operand::Addr(_));
        let a = words.len();
        if in_tensor {
            let at = self.tensor_address(&inst.operands[1])?;
            words.push(at);
            places.push((At::A, at));
        } else {
            let pair = self.src(&inst.operands[1], Ty { bits: 64, ..Ty::B32 })?.pair();
            words.extend([pair.lo, pair.hi]);
        }
        let b = words.len();
        let pair = self.src(&inst.operands[2], Ty { bits: 64, ..Ty::B32 })?.pair();
        words.extend([pair.lo, pair.hi]);
        let e = words.len();
        // Whether there are metadata the descriptor says, not the instruction.
        let sparse = usize::from(inst.has(M::sp));
        let metadata = if sparse == 1 { self.tensor_address(&inst.operands[3])? } else { imm(0) };
        if sparse == 1 {
            places.push((At::Metadata, metadata));
        }
        let descriptor = self.src(&inst.operands[3 + sparse], Ty::U32)?.low();
        words.extend([metadata, descriptor]);
        let more = words.len();
        let mut last = 4 + sparse;
        if scaled {
            let scales = [(At::ScalesOfA, &inst.operands[last]), (At::ScalesOfB, &inst.operands[last + 1])];
            for (which, at) in scales {
                let at = self.tensor_address(at)?;
                words.push(at);
                places.push((which, at));
            }
            last += 2;
        }
        // Lanes of D that stay as they are, 32 a word; of weight-stationary products, columns of B that count as zeros.
        let masked = words.len();
        let lanes = if inst.plain.has(M::cta_group_2) { 8 } else { 4 };
        if let ptx::Operand::Vector(elems) = &inst.operands[last] {
            if elems.len() != lanes || scaled {
                return self.unsupported(inst);
            }
            for e in elems {
                words.push(self.elem(e, Ty::B32)?.low());
            }
            last += 1;
        }
        let mut scale = 0;
        match inst.operands.get(last + 1) {
            Some(o) if inst.plain.has(M::ws) => {
                let pair = self.src(o, Ty { bits: 64, ..Ty::B32 })?.pair();
                words.extend([pair.lo, pair.hi]);
            }
            Some(ptx::Operand::Int(n)) if !scaled && (0..16).contains(n) => scale = *n as u32,
            None => {}
            _ => return self.unsupported(inst),
        }
        let masks = masked..words.len();
        if inst.operands.len() > last + 2 {
            return self.unsupported(inst);
        }
        let kind = inst.find(|m| m.name().strip_prefix("kind::"));
        let op = match (kind, in_tensor, scaled) {
            (Some("f16" | "tf32"), false, false) => Opcode::UTCHMMA,
            (Some("f16" | "tf32"), true, false) => Opcode::UTCHMMA_T,
            (Some("i8"), false, false) => Opcode::UTCIMMA,
            (Some("i8"), true, false) => Opcode::UTCIMMA_T,
            (Some("f8f6f4"), false, false) => Opcode::UTCQMMA,
            (Some("f8f6f4"), true, false) => Opcode::UTCQMMA_T,
            (Some("mxf8f6f4"), false, true) => Opcode::UTCQMMA_SF,
            (Some("mxf8f6f4"), true, true) => Opcode::UTCQMMA_SF_T,
            (Some("mxf4" | "mxf4nvf4"), false, true) => Opcode::UTCOMMA,
            (Some("mxf4" | "mxf4nvf4"), true, true) => Opcode::UTCOMMA_T,
            _ => return self.unsupported(inst),
        };
        let mut mods = self.product_mods(inst)?;
        if by_16 {
            // Words of the instruction stand before those of its operands.
            mods.insert(
                usize::from(inst.plain.has(M::cta_group_2)),
                if self.sm() == 103 { Mod::BLOCK16 } else { Mod::_4X },
            );
        }
        // Whether D counts, as a number, so that it is that of the thread whose turn it is.
        let adds = words.len();
        let constant = match &inst.operands[last] {
            ptx::Operand::Int(n) => Some(*n != 0),
            o => {
                let p = match o {
                    ptx::Operand::Reg(r) => operand(self.read(*r)),
                    ptx::Operand::NotPred(r) => crate::emit::not(self.read(*r)),
                    _ => return self.unsupported(inst),
                };
                let one = operand(self.b.reg(&imm(1)));
                words.push(operand(self.b.sel(p, one, rz())));
                None
            }
        };
        let facts = Facts {
            at: &places,
            columns: imm(0),
            descriptor,
            pair: inst.plain.has(M::cta_group_2),
            sparse: sparse == 1,
            stationary: inst.plain.has(M::ws),
        };
        self.check_tensor_memory(Deed::Multiply, &facts)?;
        self.one_by_one(&words, |l, u, _| {
            let pair = |l: &mut Self, at: usize| {
                l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[at]), operand(u[at + 1])])
            };
            let from = if in_tensor { u[a] } else { pair(l, a) };
            let (b, e) = (pair(l, b), pair(l, e));
            let adds = match constant {
                Some(yes) => {
                    Operand::Reg(sass::RegOp { not: !yes, ..sass::RegOp::plain(Name::Phys(Reg::UPT)) })
                }
                None => {
                    let p = l.b.func.add_value(RegFile::UP, 1);
                    let upt = operand(Name::Phys(Reg::UPT));
                    l.b.inst(
                        Opcode::UISETP,
                        &[Mod::NE, Mod::AND],
                        &[operand(p), upt, operand(u[adds]), urz(), upt, upt],
                    );
                    operand(p)
                }
            };
            let mut operands = vec![
                Self::uniform_address(from),
                Self::uniform_address(b),
                Self::uniform_address(u[0]),
                Self::uniform_address(e),
                Self::uniform_address(Name::Part(e, 1)),
            ];
            if scaled {
                let scales = pair(l, more);
                operands.extend([Self::uniform_address(scales), adds]);
            } else {
                let mask: Vec<Operand> = masks.map(|k| operand(u[k])).collect();
                let mask = match mask.len() {
                    0 => urz(),
                    n => operand(l.b.def_macro(Macro::Collect, RegFile::UR, n as u8, &mask)),
                };
                operands.extend([mask, adds, Operand::Imm(scale)]);
            }
            l.b.inst(op, &mods, &operands);
            Ok(())
        })
    }
}
