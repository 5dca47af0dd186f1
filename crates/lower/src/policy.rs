//! Cache hints: prefetches, discards, priorities and policies.
//!
//! A policy given to an access is a hint, and is not followed: the descriptor that carries it would have to be
//! in uniform registers, the same for all lanes of the warp.

use crate::access::{Address, Space as AccessSpace};
use crate::convert::{self, Conversion, Round};
use crate::emit::{Emit, Pair, as_imm, imm, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{Name, Operand, operand};
use ptx::Mod as M;
use sass::{Mod, Opcode};

impl Lower<'_, '_> {
    /// `prefetch`, `prefetchu`, `discard`, `applypriority`.
    pub fn cache_control(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::tensormap) {
            return self.prefetch_tensor_map(inst);
        }
        let a = self.addr_operand(&inst.operands[0])?;
        let action = match inst.op {
            ptx::Op::discard => Mod::RML2,
            ptx::Op::applypriority => Mod::DML2,
            _ if inst.has(M::L1) => Mod::PF1,
            _ if inst.has(M::L2_evict_last) => Mod::PML2,
            _ => Mod::PF2,
        };
        let hint = matches!(action, Mod::RML2 | Mod::DML2 | Mod::PML2) && self.sm() < 90;
        if hint || self.access_space(inst, a) == Some(AccessSpace::Local) || inst.has(M::local) {
            return Ok(());
        }
        let at = self.address64(a)?;
        // The offset has 32 bits but is kept out of the way of wrapping.
        let at = Address { ..at }.operand(None);
        self.b.guarded(self.guard, Opcode::CCTL, &[Mod::E, action], &[at], &[]);
        Ok(())
    }

    /// `createpolicy`: bits 56 … 63 say what, bits 52 … 55 for which fraction of the lines in sixteenths.
    pub fn createpolicy(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        if inst.has(M::cvt) {
            let s = self.src(&inst.operands[1], Ty { bits: 64, ..Ty::B32 })?;
            let v = self.materialize(&s);
            let mark = self.mark();
            let lo = Operand::from(operand(Name::Part(v, 0)));
            let v = self.b.collect(&[lo, operand(Name::Part(v, 1))]);
            self.assign(d, v, mark);
            return Ok(());
        }
        let mut priorities: Vec<M> = Vec::new();
        inst.find(|m| {
            let known = matches!(
                m,
                M::L2_evict_last | M::L2_evict_normal | M::L2_evict_first | M::L2_evict_unchanged
            );
            known.then(|| priorities.push(m))
        });
        let base: u32 = match priorities.first() {
            Some(M::L2_evict_last) => 0x140,
            Some(M::L2_evict_normal) => 0x160,
            Some(M::L2_evict_first) => 0x120,
            _ => 0x100,
        };
        let second: u32 = if priorities.get(1) == Some(&M::L2_evict_first) { 0x10 } else { 0 };
        if inst.has(M::range) {
            return self.policy_of_range(inst, (base | second) << 20);
        }
        let fraction = match inst.operands.get(1) {
            None => imm(15),
            Some(o) => {
                let f = self.src(o, crate::func::ty(ptx::Type::f32))?.low();
                match as_imm(&f) {
                    Some(bits) => imm((f32::from_bits(bits) * 15.99) as u32 & 15),
                    None => {
                        let x = self.b.def(Opcode::FMUL, &[], &[f, imm(15.99f32.to_bits())]);
                        let n = self.b.def(Opcode::F2I, &[Mod::U32, Mod::TRUNC, Mod::NTZ], &[operand(x)]);
                        operand(self.b.and(operand(n), imm(15)))
                    }
                }
            }
        };
        let mark = self.mark();
        let hi = match as_imm(&fraction) {
            Some(n) => imm((base | second | n) << 20),
            None => {
                let all = self.b.lop3(fraction, imm(base | second), rz(), 0xfc);
                operand(self.b.shl(operand(all), imm(20)))
            }
        };
        let v = self.b.collect(&[rz(), hi]);
        self.assign(d, v, mark);
        Ok(())
    }

    /// `createpolicy.range`: which blocks of 2ˢ bytes the primary priority is for. Bits 52 … 55 hold s − 12, 44 … 50
    /// the first block, 37 … 43 the number of blocks; bit 59 says that it is a range.
    fn policy_of_range(&mut self, inst: &Statement<'_>, mode: u32) -> Result<()> {
        const RANGE: u32 = 1 << 27;
        let d = self.dst(&inst.operands[0])?;
        let a = self.addr_operand(&inst.operands[1])?;
        let at = self.address64(a)?;
        let base = at.base.and_then(Name::value).ok_or("address without a base")?;
        let base = self.b.add64(&Pair::of(base), &Pair::imm(i64::from(at.offset) as u64));
        let primary = self.src(&inst.operands[2], Ty::U32)?.low();
        let total = self.src(&inst.operands[3], Ty::U32)?.low();
        let mark = self.mark();
        // The logarithm of the block's size: 128 blocks cover all, and none is smaller than 4 KiB.
        let some = self.b.isetp(Mod::NE, false, total, rz());
        let total = operand(self.b.reg(&total));
        let to_float = Conversion {
            to: Ty { kind: Kind::Float, bits: 32 },
            from: Ty::U32,
            round: Round::Nearest,
            integral: false,
            ftz: false,
            sat: false,
        };
        let x = convert::convert(&mut self.b, &to_float, &Src::Narrow(total)).ok_or("no such conversion")?;
        let log = self.b.def(Opcode::MUFU, &[Mod::LG2], &[operand(x)]);
        let log = self.b.def(Opcode::F2I, &[Mod::U32, Mod::CEIL, Mod::NTZ], &[operand(log)]);
        let log = self.b.iadd(operand(log), imm(7u32.wrapping_neg()));
        let log = convert::minmax(&mut self.b, true, true, operand(log), imm(12));
        let block = self.b.shl(imm(1), operand(log));
        let past = self.b.iadd3(primary, operand(block), Operand::Imm(u32::MAX));
        let end = self.b.add64(&Pair::of(base), &Pair::parts(operand(past), rz()));
        let number = |l: &mut Self, v| {
            let (lo, hi) = (operand(Name::Part(v, 0)), operand(Name::Part(v, 1)));
            l.b.shf(&[Mod::R, Mod::U64], lo, operand(log), hi)
        };
        let (first, end) = (number(self, base), number(self, end));
        let count = self.b.iadd(operand(end), crate::emit::ineg(operand(first)));
        let count = convert::minmax(&mut self.b, false, false, operand(count), imm(0x7f));
        let scale = self.b.iadd(operand(log), imm(12u32.wrapping_neg()));
        let mut hi = Operand::Imm(mode | RANGE);
        for (field, mask, shift) in [(scale, 0xf, 20), (first, 0x7f, 12), (count, 0x7f, 5)] {
            let field = self.b.and(operand(field), imm(mask));
            let field = self.b.shl(operand(field), imm(shift));
            hi = operand(self.b.lop3(operand(field), hi, rz(), 0xfc));
        }
        // Of no bytes at all, nothing.
        let hi = self.b.sel(operand(some), hi, Operand::Imm(0x1000_0000 | RANGE));
        let v = self.b.collect(&[rz(), operand(hi)]);
        self.assign(d, v, mark);
        Ok(())
    }
}
