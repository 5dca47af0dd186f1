//! `tensormap.replace` and `tensormap.cp_fenceproxy`: a tensor map in memory is changed word by word, as ptxas 13.0.88 does it
//! (docs/matrix.md has where its fields stand).

use crate::access::{self, Access, AtomOp, Atomic, Order, Scope, Space};
use crate::emit::{Emit, as_imm, imm};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Operand, operand};
use ptx::Mod as M;

/// Bits of a word of the map: its place in bytes, the first bit, how many.
#[derive(Clone, Copy)]
struct Bits(i32, u32, u32);

impl Bits {
    const WHOLE: u32 = 32;

    fn mask(self) -> u32 {
        if self.2 == Self::WHOLE { !0 } else { ((1 << self.2) - 1) << self.1 }
    }
}

/// The word of what the first dimension's box, and the elements' type and what goes with it are in.
const KIND: i32 = 8;
const TF32: Bits = Bits(KIND, 16, 1);

/// How far apart in 16 bytes the neighbours of dimension `n + 1` are: the lower and the upper part.
fn stride(n: u32) -> [Bits; 2] {
    // Only the lower half of what there is behind four.
    let low = Bits(0xc + 4 * n as i32, 0, if n < 4 { Bits::WHOLE } else { 16 });
    [low, Bits(0x1c, 4 * n, 4)]
}

/// An access to a word.
fn word(space: Space) -> Access {
    Access {
        space,
        size: 4,
        signed: false,
        order: Order::Weak,
        mmio: false,
        evict: None,
        prefetch: None,
        constant: false,
        collective: false,
    }
}

/// The address that many bytes on.
fn behind(at: &Operand, bytes: i32) -> Operand {
    match *at {
        Operand::Addr { desc, base, width, uniform, offset } => {
            Operand::Addr { desc, base, width, uniform, offset: offset + bytes }
        }
        other => other,
    }
}

impl Lower<'_, '_> {
    /// `tensormap`.
    pub(crate) fn tensor_map_change(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(
            |l| if inst.has(M::cp_fenceproxy) { l.tensor_map_copy(inst) } else { l.replace(inst) },
        )
    }

    /// Puts words into fields: of each, where, and the number.
    fn put_fields(&mut self, space: Space, at: &Operand, fields: &[(Bits, Operand)]) {
        let mut left = fields;
        while let [(first, _), ..] = left {
            let place = first.0;
            let (now, later) = left.split_at(left.iter().take_while(|(f, _)| f.0 == place).count());
            left = later;
            let address = behind(at, place);
            let mut value: Option<Operand> = None;
            for (field, number) in now {
                if field.mask() == !0 {
                    value = Some(*number);
                    continue;
                }
                let old = match value.take() {
                    Some(v) => v,
                    None => operand(access::load(&mut self.b, &word(space), address, ALWAYS, None)),
                };
                let shifted = match as_imm(number) {
                    Some(n) => imm(n << field.1),
                    None => operand(self.b.shl(*number, imm(field.1))),
                };
                // The number where the mask is set, else what was there.
                value = Some(operand(self.b.lop3(old, imm(field.mask()), shifted, 0xb8)));
            }
            if let Some(value) = value {
                let value = operand(self.b.reg(&value));
                access::store(&mut self.b, &word(space), address, value, ALWAYS);
            }
        }
    }

    fn replace(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.moot(&[M::replace, M::tile, M::b1024, M::b32, M::b64]);
        let a = self.addr_operand(&inst.operands[0])?;
        let space = self.access_space(inst, a).unwrap_or(Space::Generic);
        let at = self.address(inst, a, space, true)?;
        let last = inst.operands.last().ok_or("a field without a value")?;
        let wide = inst.plain.has(M::b64);
        let value = match wide {
            true => {
                let pair = self.src(last, Ty { bits: 64, ..Ty::B32 })?.pair();
                [pair.lo, pair.hi]
            }
            false => [self.src(last, Ty::U32)?.low(), imm(0)],
        };
        let ordinal = match inst.operands.get(1) {
            Some(ptx::Operand::Int(n)) if inst.operands.len() == 3 => *n as u32,
            _ if inst.operands.len() == 3 => return self.unsupported(inst),
            _ => 0,
        };
        let [low, high] = value;
        let less_one = |l: &mut Self| match as_imm(&low) {
            Some(n) => imm(n.wrapping_sub(1)),
            None => operand(l.b.iadd(low, imm(!0))),
        };
        let field = inst.one_of(&[
            M::global_address,
            M::rank,
            M::box_dim,
            M::global_dim,
            M::element_stride,
            M::global_stride,
            M::elemtype,
            M::interleave_layout,
            M::swizzle_mode,
            M::fill_mode,
            M::swizzle_atomicity,
        ]);
        let fields: Vec<(Bits, Operand)> = match field {
            Some(M::global_address) => {
                vec![(Bits(0, 0, Bits::WHOLE), low), (Bits(4, 0, Bits::WHOLE), high)]
            }
            Some(M::rank) => vec![(Bits(KIND, 4, 3), low)],
            Some(M::box_dim) => {
                let byte = 0x37 + ordinal;
                let number = less_one(self);
                vec![(Bits((byte & !3) as i32, byte % 4 * 8, 8), number)]
            }
            Some(M::global_dim) => {
                let number = less_one(self);
                vec![(Bits(0x20 + 4 * ordinal as i32, 0, Bits::WHOLE), number)]
            }
            Some(M::element_stride) => {
                let number = less_one(self);
                vec![(Bits(0x34, 3 * ordinal, 3), number)]
            }
            Some(M::global_stride) if ordinal < 4 => {
                let [to_low, to_high] = stride(ordinal);
                let units = self.b.shf(&[sass::Mod::R, sass::Mod::U64], low, imm(4), high);
                let above = self.b.shr(false, high, imm(4));
                vec![(to_low, operand(units)), (to_high, operand(above))]
            }
            Some(M::elemtype) => {
                let Some(n) = as_imm(&low) else { return self.unsupported(inst) };
                // Two kinds of TF32 are two of binary32 with a flag; those behind them count on.
                let (code, tf32) = match n {
                    11 | 12 => (n - 4, true),
                    13.. => (n - 2, false),
                    _ => (n, false),
                };
                let mut fields = vec![(Bits(KIND, 7, 4), imm(code))];
                fields.extend(tf32.then(|| (TF32, imm(1))));
                fields
            }
            Some(M::interleave_layout) => vec![(Bits(KIND, 11, 2), low)],
            // With the swizzle goes a flag.
            Some(M::swizzle_mode) => vec![(Bits(KIND, 13, 2), low), (Bits(KIND, 22, 1), imm(0))],
            Some(M::fill_mode) => vec![(Bits(KIND, 15, 1), low)],
            Some(M::swizzle_atomicity) => vec![(Bits(KIND, 19, 3), low)],
            _ => return self.unsupported(inst),
        };
        self.put_fields(space, &at, &fields);
        Ok(())
    }

    /// Each lane carries a word from shared to global memory.
    fn tensor_map_copy(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.moot(&[M::global, M::shared_cta, M::tensormap_generic, M::release]);
        // Always all of a map.
        inst.operands.from(2);
        let scope = match inst.one_of(&[M::cta, M::cluster, M::gpu, M::sys]) {
            Some(M::sys) => Scope::Sys,
            _ => Scope::Gpu,
        };
        let (to, from) = (self.addr_operand(&inst.operands[0])?, self.addr_operand(&inst.operands[1])?);
        self.b.guarded(ALWAYS, sass::Opcode::WARPSYNC, &[], &[crate::emit::pt(), imm(!0)], &[]);
        let lane = self.b.def(sass::Opcode::S2R, &[], &[Operand::Special(sass::SpecialReg::SR_LANEID)]);
        let offset = self.b.shl(operand(lane), imm(2));
        let from = self.shared_word(from)?;
        let from = self.b.iadd(from, operand(offset));
        let source = access::Address { base: Some(from.into()), wide: false, offset: 0 }.operand(None);
        let data = access::load(&mut self.b, &word(Space::Shared), source, ALWAYS, None);
        let [low, high] = self.address_words(to)?;
        let to = crate::emit::Pair::parts(low, high);
        let to = self.b.add64(&to, &crate::emit::Pair::parts(operand(offset), imm(0)));
        let desc = self.desc();
        let target = access::Address { base: Some(to.into()), wide: true, offset: 0 }.operand(desc);
        let exchange = Atomic { space: Space::Global, op: AtomOp::Exch, words: 1, scope };
        access::atom(&mut self.b, &exchange, target, &[operand(data)], ALWAYS, None);
        Ok(())
    }
}
