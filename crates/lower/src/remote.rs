//! Asynchronous stores and reductions to the shared memory of other CTAs, which count on an mbarrier there.

use crate::emit::{Emit, imm, rz};
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{Name, Operand, operand};
use ptx::{Mod as M, Space};
use sass::{AddrWidth, Mod, Opcode};

impl Lower<'_, '_> {
    /// Data and barrier as the address of STAS and REDAS: a pair.
    fn remote_address(&mut self, inst: &Statement<'_>, barrier: usize) -> Result<Operand> {
        let mut words = Vec::new();
        for n in [0, barrier] {
            let a = self.addr_operand(&inst.operands[n])?;
            let at = self.address32(a, Space::Shared)?;
            let base = at.base.map_or_else(rz, operand);
            let sum = |l: &mut Self| operand(l.b.iadd(base, imm(at.offset as u32)));
            words.push(if at.offset == 0 { base } else { sum(self) });
        }
        let base = self.b.collect(&words);
        Ok(Operand::Addr {
            desc: None,
            base: Some(Name::Val(base)),
            width: AddrWidth::R64,
            uniform: None,
            offset: 0,
        })
    }

    /// `st.async`.
    pub fn st_async(&mut self, inst: &Statement<'_>) -> Result<()> {
        let [_, data, _] = inst.operands.from(0) else { return self.unsupported(inst) };
        let t = ty(inst.ty(0).ok_or("store without a type")?);
        let bits = Ty { kind: if t.is_int() { Kind::Bits } else { t.kind }, ..t };
        let mut words: Vec<Operand> = Vec::new();
        let mut push = |s: Src| match t.bits {
            64 => words.extend([s.pair().lo, s.pair().hi]),
            _ => words.push(s.low()),
        };
        match data {
            ptx::Operand::Vector(elems) => {
                for e in elems {
                    push(self.elem(e, bits)?);
                }
            }
            o => push(self.src(o, bits)?),
        }
        let mods: &[Mod] = match words.len() {
            1 => &[],
            2 => &[Mod::_64],
            4 => &[Mod::_128],
            _ => return self.unsupported(inst),
        };
        let data = match &words[..] {
            [one] => self.b.reg(one),
            many => self.b.collect(many),
        };
        let at = self.remote_address(inst, 2)?;
        self.b.guarded(self.guard, Opcode::STAS, mods, &[at, operand(data)], &[]);
        Ok(())
    }

    /// `red.async`.
    pub fn red_async(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.moot(&[M::relaxed, M::cluster]);
        let [_, data, _] = inst.operands.from(0) else { return self.unsupported(inst) };
        let t = ty(inst.ty(0).ok_or("reduction without a type")?);
        let action = match inst.one_of(&[M::add, M::min, M::max, M::inc, M::dec, M::and, M::or, M::xor]) {
            Some(M::add) => Mod::ADD,
            Some(M::min) => Mod::MIN,
            Some(M::max) => Mod::MAX,
            Some(M::inc) => Mod::INC,
            Some(M::dec) => Mod::DEC,
            Some(M::and) => Mod::AND,
            Some(M::or) => Mod::OR,
            Some(M::xor) => Mod::XOR,
            _ => return self.unsupported(inst),
        };
        let source = self.src(data, t)?;
        let (kind, data) = match (t.bits, t.is_signed()) {
            (32, true) => (Some(Mod::S32), self.b.reg(&source.low())),
            (32, false) => (None, self.b.reg(&source.low())),
            // Of 64 bits, only sums.
            (64, _) if action == Mod::ADD => (Some(Mod::_64), self.b.pair(&source.pair())),
            _ => return self.unsupported(inst),
        };
        let mods: Vec<Mod> = [action].into_iter().chain(kind).collect();
        let at = self.remote_address(inst, 2)?;
        self.b.guarded(self.guard, Opcode::REDAS, &mods, &[at, operand(data)], &[]);
        Ok(())
    }
}
