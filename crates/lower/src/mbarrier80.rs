//! `mbarrier` before sm_90: 64 bits in shared memory. The upper word holds 2³¹ − n for a count of n below the
//! phase in bit 31; an arrival adds 1, and the carry into bit 31 ends the phase, with the lower word, 2³⁰ − n of the
//! count of the next phase, as the new start.

use crate::emit::{Emit, as_imm, imm, ineg, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Name, Operand, Value, operand};
use ptx::{Mod as M, Space};
use sass::{Mod, Opcode, Reg};

/// The address, in the form with a uniform part.
fn uniform_form(at: Operand) -> Operand {
    match at {
        Operand::Addr { base, offset, .. } => Operand::Addr {
            desc: None,
            base,
            width: sass::AddrWidth::R32,
            uniform: Some(Name::Phys(Reg::URZ)),
            offset,
        },
        o => o,
    }
}

impl Lower<'_, '_> {
    /// `mbarrier`, on sm_80 to sm_89.
    pub fn mbarrier_words(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::inval) {
            // Nothing is kept of a barrier but its words.
            inst.moot_all();
            return Ok(());
        }
        self.branch_around(|l| {
            if inst.has(M::init) {
                l.init_words(inst)
            } else if inst.has(M::test_wait) {
                l.test_words(inst)
            } else if inst.one_of(&[M::arrive, M::arrive_drop]).is_some() {
                l.arrive_words(inst)
            } else {
                l.unsupported(inst)
            }
        })
    }

    /// The address of word `n` of a barrier. Generic addresses of shared memory have its window in their upper bits.
    fn barrier_word(&mut self, inst: &Statement<'_>, a: &ptx::Addr, n: i64) -> Result<Operand> {
        if inst.one_of(&[M::shared, M::shared_cta]).is_none() && !matches!(a.base, ptx::AddrBase::Reg(_)) {
            return Err("a variable's name is not a generic address".into());
        }
        let a = ptx::Addr { base: a.base, offset: a.offset + 4 * n };
        if inst.one_of(&[M::shared, M::shared_cta]).is_some() {
            return Ok(self.address32(&a, Space::Shared)?.operand(None));
        }
        let at = self.address64(&a)?;
        let base = at.base.and_then(Name::value).ok_or("address without a base")?;
        let window = self.driver_word(0x18).low();
        let low = self.b.iadd(operand(Name::Part(base, 0)), ineg(window));
        let at = crate::access::Address { base: Some(Name::Val(low)), wide: false, offset: at.offset };
        Ok(at.operand(None))
    }

    fn init_words(&mut self, inst: &Statement<'_>) -> Result<()> {
        let a = self.addr_operand(&inst.operands[0])?;
        let at = self.barrier_word(inst, a, 0)?;
        let count = self.src(&inst.operands[1], Ty::U32)?.low();
        let word = |l: &mut Self, from: u32| match as_imm(&count) {
            Some(n) => imm(from.wrapping_sub(n)),
            None => operand(l.b.iadd(Operand::Imm(from), ineg(count))),
        };
        let words = [word(self, 1 << 30), word(self, 1 << 31)];
        let data = self.b.collect(&words);
        // It keeps its place among accesses, as in ptxas's code.
        self.b.inst(Opcode::STS, &[Mod::_64, Mod::STRONG], &[at, operand(data)]);
        Ok(())
    }

    fn arrive_words(&mut self, inst: &Statement<'_>) -> Result<()> {
        let n = usize::from(!matches!(inst.operands[0], ptx::Operand::Addr(_)));
        let d = match &inst.operands[0] {
            ptx::Operand::Reg(r) => Some(*r),
            _ => None,
        };
        let a = self.addr_operand(&inst.operands[n])?;
        let count = match inst.operands.get(n + 1) {
            Some(o) => Some(self.src(o, Ty::U32)?.low()),
            None => None,
        };
        self.b.inst(Opcode::MEMBAR, &[Mod::ALL, Mod::CTA], &[]);
        if inst.has(M::arrive_drop) {
            let at = self.barrier_word(inst, a, 0)?;
            let less = count.unwrap_or_else(|| imm(1));
            self.add_shared(at, less);
        }
        let state = if inst.has(M::noComplete) {
            let at = self.barrier_word(inst, a, 1)?;
            let count = count.ok_or("arrival without a count")?;
            let old = self.add_shared(at, count);
            self.b.collect(&[operand(old), operand(old)])
        } else if count.as_ref().is_some_and(|c| as_imm(c) != Some(1)) {
            return self.unsupported(inst);
        } else {
            let at = uniform_form(self.barrier_word(inst, a, 0)?);
            self.b.def(Opcode::ATOMS, &[Mod::ARRIVE, Mod::_64], &[at, rz(), rz()])
        };
        if let Some(d) = d {
            self.write(d, state);
        }
        Ok(())
    }

    fn add_shared(&mut self, at: Operand, n: Operand) -> Value {
        let n = self.b.reg(&n);
        self.b.def(Opcode::ATOMS, &[Mod::ADD], &[at, operand(n), rz()])
    }

    fn test_words(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        let a = self.addr_operand(&inst.operands[1])?;
        let phase = if inst.has(M::parity) {
            let p = self.src(&inst.operands[2], Ty::U32)?.low();
            match as_imm(&p) {
                Some(n) => self.b.reg(&imm(n << 31)),
                None => self.b.shl(p, imm(31)),
            }
        } else {
            let s = self.src(&inst.operands[2], Ty { bits: 64, ..Ty::B32 })?.pair();
            self.b.reg(&s.hi)
        };
        let at = self.barrier_word(inst, a, 1)?;
        let now = self.b.def(Opcode::LDS, &[Mod::STRONG], &[at]);
        // Bit 31 of the two differs.
        let differs = self.b.lop3(operand(now), Operand::Imm(1 << 31), operand(phase), 0x48);
        let done = self.b.isetp(Mod::NE, false, operand(differs), rz());
        self.write(d, done);
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`, on sm_80 to sm_89.
    pub fn copy_arrive_words(&mut self, inst: &Statement<'_>) -> Result<()> {
        debug_assert!(self.guard == ALWAYS);
        let a = self.addr_operand(&inst.operands[0])?;
        if !inst.has(M::noinc) {
            let upper = self.barrier_word(inst, a, 1)?;
            self.add_shared(upper, Operand::Imm(u32::MAX));
        }
        let at = self.barrier_word(inst, a, 0)?;
        self.at_uniform(inst, &at, |l, at, guard| {
            l.b.guarded(guard, Opcode::ARRIVES, &[Mod::LDGSTSBAR, Mod::_64], &[at], &[]);
        })
    }
}
