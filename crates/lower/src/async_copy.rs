//! `cp.async`: copies from global to shared memory that bypass the registers.

use crate::access::{Address, invalidate};
use crate::emit::{Emit, Pair, as_imm, imm, ineg, never, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Guard, Name, Operand, operand};
use ptx::{Mod as M, Space};
use sass::{Mod, Opcode, Reg};

impl Lower<'_, '_> {
    /// `cp`; under a guard ptxas branches around all of it.
    pub fn copy_async(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| l.copy_here(inst))
    }

    fn copy_here(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::bulk) {
            return self.bulk(inst);
        }
        if inst.has(M::reduce) {
            return self.unsupported(inst);
        }
        if inst.has(M::commit_group) {
            self.b.guarded(self.guard, Opcode::LDGDEPBAR, &[], &[], &[]);
            return Ok(());
        }
        if inst.has(M::wait_all) {
            self.b.guarded(self.guard, Opcode::LDGDEPBAR, &[], &[], &[]);
            self.wait_groups(0);
            return Ok(());
        }
        if inst.has(M::wait_group) {
            let n = self.integer(&inst.operands[0])?;
            self.wait_groups(n.min(63) as u32);
            return Ok(());
        }
        if inst.has(M::mbarrier) {
            return self.copy_arrive(inst);
        }
        if inst.has(M::_async) {
            return self.copy(inst);
        }
        self.unsupported(inst)
    }

    /// `cp.async.bulk` and `cp.reduce.async.bulk`: copies, `.commit_group` and `.wait_group`.
    fn bulk(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::commit_group) {
            // ptxas has it under no guard.
            return self.branch_around(|l| {
                l.b.inst(Opcode::UTMACMDFLUSH, &[], &[]);
                Ok(())
            });
        }
        if !inst.has(M::wait_group) {
            return if inst.has(M::tensor) { self.tensor_copy(inst) } else { self.bulk_copy(inst) };
        }
        let n = self.integer(&inst.operands[0])?;
        self.wait_groups(n.min(63) as u32);
        // Only those that waited for what is written may read it.
        if !inst.has(M::read) {
            invalidate(&mut self.b, self.guard);
        }
        Ok(())
    }

    /// Waits until at most `n` groups of copies are under way.
    fn wait_groups(&mut self, n: u32) {
        let sb = Operand::Scoreboard(0);
        self.b.guarded(
            self.guard,
            Opcode::DEPBAR,
            &[Mod::LE],
            &[sb, Operand::Imm(n), Operand::ScoreboardSet(0)],
            &[],
        );
    }

    /// One copy. Fewer bytes than the destination has are asked for by a source address that is off by the
    /// number of missing ones (`.ZFILL`); none at all by the predicate.
    fn copy(&mut self, inst: &Statement<'_>) -> Result<()> {
        let size = self.integer(&inst.operands[2])? as u32;
        let rest = inst.operands.len() - usize::from(inst.has(M::L2_cache_hint));
        let (to, from) = (self.addr_operand(&inst.operands[0])?, self.addr_operand(&inst.operands[1])?);
        let to = self.address32_within(to, Space::Shared, 20)?;
        let from = self.address64(from)?;
        let base = from.base.ok_or("copy without an address")?;
        let mut base = match base {
            Name::Val(v) => Pair::of(v),
            _ => return Err("copy from an address that is not in registers".into()),
        };
        let mut offset = from.offset;
        let (mut fill, mut read) = (false, pt());
        if rest > 3 {
            match &inst.operands[3] {
                p @ (ptx::Operand::NotPred(_) | ptx::Operand::Reg(_)) if self.is_pred(p) => {
                    let Operand::Reg(r) = self.pred(p)? else { return self.unsupported(inst) };
                    read = Operand::Reg(sass::RegOp { not: !r.not, ..r });
                }
                o => {
                    let bytes = self.src(o, Ty::U32)?.low();
                    match as_imm(&bytes) {
                        Some(0) => read = never(),
                        Some(n) if n >= size => {}
                        Some(n) => {
                            fill = true;
                            offset += (size - n) as i32;
                        }
                        None => {
                            fill = true;
                            let some = self.b.isetp(Mod::NE, false, bytes, rz());
                            read = operand(some);
                            let missing = self.b.iadd(imm(size), ineg(bytes));
                            let missing = self.b.and(operand(missing), imm(size - 1));
                            base = Pair::of(self.b.add64(&base, &Pair::parts(operand(missing), rz())));
                        }
                    }
                }
            }
        }
        if !(-(1 << 11)..1 << 11).contains(&offset) {
            base = Pair::of(self.b.add64(&base, &Pair::imm(i64::from(offset) as u64)));
            offset = 0;
        }
        let from = Address { base: Some(Name::Val(self.b.pair(&base))), wide: true, offset };
        let desc = self.desc();
        let mut mods = vec![Mod::E];
        if inst.has(M::cg) {
            mods.push(Mod::BYPASS);
        }
        mods.extend(crate::memory::prefetch_size(inst));
        match size {
            4 => {}
            8 => mods.push(Mod::_64),
            16 => mods.push(Mod::_128),
            _ => return Err("a copy has 4, 8 or 16 bytes".into()),
        }
        if fill {
            mods.push(Mod::ZFILL);
        }
        let (to, from) = (to.operand(None), from.operand(desc));
        self.b.guarded(ALWAYS, Opcode::LDGSTS, &mods, &[to, from, read], &[]);
        Ok(())
    }

    fn is_pred(&self, o: &ptx::Operand) -> bool {
        match o {
            ptx::Operand::NotPred(_) => true,
            ptx::Operand::Reg(r) => self.shape(*r).file == sass::RegFile::P,
            _ => false,
        }
    }

    /// `cp.async.mbarrier.arrive`: arrives when the copies so far are done; without `.noinc` one more
    /// arrival is expected first.
    fn copy_arrive(&mut self, inst: &Statement<'_>) -> Result<()> {
        let noinc = inst.has(M::noinc);
        if self.sm() < 90 {
            return self.branch_around(|l| l.copy_arrive_words(inst));
        }
        self.branch_around(|l| {
            let a = l.addr_operand(&inst.operands[0])?;
            let at = l.mbarrier_address(inst, a)?;
            l.at_uniform(inst, &at, |l, at, guard| {
                if !noinc {
                    let mods = [Mod::ARRIVE, Mod::TRANS64, Mod::RED, Mod::A0T1];
                    let none = [Name::Phys(Reg::RZ)];
                    l.b.guarded(guard, Opcode::SYNCS_ARRIVE, &mods, &[rz(), at, rz()], &none);
                }
                let count = if noinc { Mod::ARVCNT } else { Mod::TRANSCNT };
                l.b.guarded(guard, Opcode::ARRIVES, &[Mod::LDGSTSBAR, Mod::_64, count], &[at], &[]);
            })
        })
    }

    /// ARRIVES takes its address from a uniform register alone: one execution for each barrier that the threads name, by those
    /// that name it.
    pub(crate) fn at_uniform(
        &mut self,
        inst: &Statement<'_>,
        at: &Operand,
        f: impl FnOnce(&mut Self, Operand, Guard),
    ) -> Result<()> {
        let &Operand::Addr { base, offset, .. } = at else { return self.unsupported(inst) };
        let base = base.map_or_else(rz, operand);
        self.in_turns(&[base], |l, uniform, guard| {
            let at = Operand::Addr {
                desc: None,
                base: None,
                width: sass::AddrWidth::R32,
                uniform: Some(Name::Val(uniform[0])),
                offset,
            };
            f(l, at, guard);
            Ok(())
        })
    }
}
