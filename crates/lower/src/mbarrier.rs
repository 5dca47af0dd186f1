//! `mbarrier`: barriers in shared memory, which SYNCS operates from sm_90 on.
//!
//! The hardware counts up to zero: an arrival count `n` is kept as 2²⁰ − n, pending in bits 43 … 62 below the
//! phase in bit 63, expected in bits 1 … 20.

use crate::access::{self, Address, Order};
use crate::emit::{Emit, Pair, as_imm, imm, ineg, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, BlockCall, Builder, Macro, Name, Operand, Terminator, Value, operand};
use ptx::{Mod as M, Space};
use sass::{Mod, Opcode, Reg, RegFile};

impl Lower<'_, '_> {
    /// `mbarrier`.
    pub fn mbarrier(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::pending_count) {
            let s = self.src(&inst.operands[1], Ty { bits: 64, ..Ty::B32 })?.pair();
            let d = self.dst(&inst.operands[0])?;
            let mark = self.mark();
            if self.sm() < 90 {
                let count = self.b.and(s.hi, Operand::Imm(0x7fff_ffff));
                let n = self.b.iadd(Operand::Imm(1 << 31), ineg(operand(count)));
                self.assign(d, n, mark);
                return Ok(());
            }
            let up = self.b.shr(false, s.hi, imm(11));
            let left = self.b.and(operand(up), imm(0xf_ffff));
            let n = self.b.iadd(imm(0x10_0000), ineg(operand(left)));
            self.assign(d, n, mark);
            return Ok(());
        }
        if self.sm() < 90 {
            return self.mbarrier_words(inst);
        }
        self.branch_around(|l| l.mbarrier_here(inst))
    }

    fn mbarrier_here(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::init) {
            return self.mbarrier_init(inst);
        }
        if inst.has(M::inval) {
            let a = self.addr_operand(&inst.operands[0])?;
            let at = self.mbarrier_address(inst, a)?;
            self.b.inst(Opcode::SYNCS_CCTL, &[Mod::CCTL, Mod::IV], &[at]);
            return Ok(());
        }
        if inst.one_of(&[M::test_wait, M::try_wait]).is_some() {
            return self.mbarrier_wait(inst);
        }
        self.mbarrier_arrive(inst)
    }

    /// The address of a barrier: the low half of a generic one is the one in shared memory.
    pub(crate) fn mbarrier_address(&mut self, inst: &Statement<'_>, a: &ptx::Addr) -> Result<Operand> {
        let generic = inst.one_of(&[M::shared, M::shared_cta, M::shared_cluster]).is_none();
        let space =
            if generic && matches!(a.base, ptx::AddrBase::Var(_)) { None } else { Some(Space::Shared) };
        match space {
            Some(space) => {
                let at = self.address32(a, space)?;
                Ok(Operand::Addr {
                    desc: None,
                    base: at.base,
                    width: sass::AddrWidth::R32,
                    uniform: Some(Name::Phys(Reg::URZ)),
                    offset: at.offset,
                })
            }
            None => Err("a variable's name is not a generic address".into()),
        }
    }

    /// `.init`: one exchange for the warp, repeated while lanes have other barriers. From sm_100 on a store by each lane, and then
    /// nothing that was kept of any barrier holds: so ptxas has it where lanes may have other barriers or counts, and no loop.
    fn mbarrier_init(&mut self, inst: &Statement<'_>) -> Result<()> {
        let a = self.addr_operand(&inst.operands[0])?;
        let at = self.mbarrier_address(inst, a)?;
        let Operand::Addr { base, offset, .. } = at else { return self.unsupported(inst) };
        let count = self.src(&inst.operands[1], Ty::U32)?.low();
        let left = match as_imm(&count) {
            Some(n) => imm(0x10_0000u32.wrapping_sub(n)),
            None => operand(self.b.iadd(imm(0x10_0000), ineg(count))),
        };
        let word = |b: &mut Builder<'_>, n: u32| match as_imm(&left) {
            Some(x) => imm(x << n),
            None => operand(b.shl(left, imm(n))),
        };
        let fence = [Mod::VIEW, Mod::ASYNC, Mod::S];
        if self.sm() >= 100 {
            let halves = [word(&mut self.b, 1), word(&mut self.b, 11)];
            let data = self.b.def_macro(Macro::Collect, RegFile::R, 2, &halves);
            self.b.inst(Opcode::STS, &[Mod::_64], &[at, operand(data)]);
            self.b.inst(Opcode::FENCE, &fence, &[]);
            let nowhere = Address { base: None, wide: false, offset: 0 }.operand(None);
            self.b.inst(Opcode::SYNCS_CCTL, &[Mod::CCTL, Mod::IVALL], &[nowhere]);
            return Ok(());
        }
        let words = [base.map_or_else(rz, operand), word(&mut self.b, 1), word(&mut self.b, 11)];
        self.in_turns(&words, |l, u, _| {
            let data = l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[1]), operand(u[2])]);
            let at = Operand::Addr {
                desc: None,
                base: None,
                width: sass::AddrWidth::R32,
                uniform: Some(Name::Val(u[0])),
                offset,
            };
            let urz = operand(Name::Phys(Reg::URZ));
            // Stores to the same place may be on their way; ptxas has it wherever it does not know better.
            l.b.inst(Opcode::FENCE, &fence, &[]);
            l.b.inst(Opcode::SYNCS_EXCH, &[Mod::EXCH, Mod::_64], &[urz, at, operand(data)]);
            Ok(())
        })
    }

    /// `.arrive`, `.arrive_drop`, `.expect_tx`, `.complete_tx`.
    fn mbarrier_arrive(&mut self, inst: &Statement<'_>) -> Result<()> {
        let n = usize::from(!matches!(inst.operands[0], ptx::Operand::Addr(_)));
        let d = match &inst.operands[0] {
            ptx::Operand::Reg(r) => Some(*r),
            _ => None,
        };
        let a = self.addr_operand(&inst.operands[n])?;
        let at = self.mbarrier_address(inst, a)?;
        let count = inst.operands.get(n + 1).map(|o| self.src(o, Ty::U32)).transpose()?.map(|s| s.low());
        let arrives = inst.one_of(&[M::arrive, M::arrive_drop]).is_some();
        if !arrives {
            inst.moot(&[M::cluster]);
        }
        let mut mods = vec![Mod::ARRIVE, Mod::TRANS64];
        if d.is_none() && (!arrives || inst.has(M::shared_cluster)) {
            mods.push(Mod::RED);
        }
        // Without a result it is an arrival as any other.
        let open = inst.has(M::noComplete) && d.is_some();
        if open {
            mods.push(Mod::TMASK);
        }
        if inst.has(M::arrive_drop) {
            mods.push(Mod::OPTOUT);
        }
        match (arrives, inst.has(M::expect_tx), inst.has(M::complete_tx), &count) {
            (true, true, ..) => {}
            (true, false, _, None) => mods.push(Mod::A1T0),
            (true, false, _, Some(_)) => mods.push(Mod::ART0),
            (false, true, ..) => mods.push(Mod::A0TR),
            (false, _, true, _) => mods.push(Mod::A0TX),
            _ => return self.unsupported(inst),
        }
        if arrives && inst.has(M::cluster) && !inst.has(M::relaxed) {
            access::before(&mut self.b, Order::Release(access::Scope::Cluster), ori::ALWAYS);
        }
        let count = count.unwrap_or_else(rz);
        if let (true, Some(d)) = (open, d) {
            let state = self.arrive_in_groups(&mods, at, &count)?;
            self.write(d, state);
            return Ok(());
        }
        let count = if as_imm(&count) == Some(0) { rz() } else { operand(self.b.reg(&count)) };
        match d {
            Some(d) => {
                let v = self.b.def(Opcode::SYNCS_ARRIVE, &mods, &[at, count]);
                self.write(d, v);
            }
            None => {
                self.b.inst(Opcode::SYNCS_ARRIVE, &mods, &[rz(), at, count]);
            }
        }
        Ok(())
    }

    /// An arrival that does not complete the phase, and the state that each lane found. SYNCS gives those that arrive together at
    /// a barrier the upper half of the state before, and who they are: a lane adds the arrivals of the lanes below it. So they
    /// must arrive as often, and take turns if that is not known.
    fn arrive_in_groups(&mut self, mods: &[Mod], at: Operand, count: &Operand) -> Result<Value> {
        let times = operand(self.b.reg(count));
        if as_imm(count).is_some() {
            let found = self.b.def(Opcode::SYNCS_ARRIVE, mods, &[at, times]);
            return Ok(self.state_of_lane(found, times));
        }
        self.in_turns(std::slice::from_ref(&times), |l, _, mine| {
            let shape = ori::ValueData { file: RegFile::R, width: 2 };
            let (found, before) = (l.b.func.add_value(RegFile::R, 2), l.undefined(shape));
            let operands = [operand(found), at, times];
            l.b.guarded(mine, Opcode::SYNCS_ARRIVE, mods, &operands, &[before.into()]);
            Ok(l.state_of_lane(found, times))
        })
    }

    fn state_of_lane(&mut self, found: Value, times: Operand) -> Value {
        let below = self.b.def(Opcode::S2R, &[], &[Operand::Special(sass::SpecialReg::SR_LTMASK)]);
        let [group, state] = [0, 1].map(|k| operand(Name::Part(found, k)));
        let earlier = self.b.and(group, operand(below));
        let earlier = self.b.def(Opcode::POPC, &[], &[operand(earlier)]);
        let earlier = self.b.shl(operand(earlier), imm(11));
        let state = self.b.imad(operand(earlier), times, state);
        self.b.pair(&Pair::parts(group, operand(state)))
    }

    /// `.test_wait`, `.try_wait`.
    fn mbarrier_wait(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        let a = self.addr_operand(&inst.operands[1])?;
        let at = self.mbarrier_address(inst, a)?;
        let phase = if inst.has(M::parity) {
            let p = self.src(&inst.operands[2], Ty::U32)?.low();
            match as_imm(&p) {
                Some(n) => self.b.reg(&imm(n << 31)),
                None => self.b.shl(p, imm(31)),
            }
        } else {
            let s: Pair = self.src(&inst.operands[2], Ty { bits: 64, ..Ty::B32 })?.pair();
            self.b.reg(&s.hi)
        };
        let phase = operand(phase);
        let once = [Mod::PHASECHK, Mod::TRANS64];
        let again = [Mod::PHASECHK, Mod::TRANS64, Mod::TRYWAIT];
        let mods: &[Mod] = if inst.has(M::try_wait) { &again } else { &once };
        let mut p = self.b.def_pred(Opcode::SYNCS_PHASECHK, mods, &[at, phase]);
        if let Some(limit) = inst.operands.get(3) {
            // Out of the way: it is rarely needed.
            let limit = self.src(limit, Ty::U32)?.low();
            let [wait, done] = [(); 2].map(|()| self.b.func.add_block());
            let over = self.b.func.add_value(RegFile::P, 1);
            self.b.func.blocks[done].params.push(over);
            self.b.terminate(Terminator::Branch {
                cond: p.into(),
                not: false,
                taken: BlockCall { block: done, args: [p].into_iter().collect() },
                fall: Builder::call(wait),
            });
            self.b.block = wait;
            self.b.guarded(ALWAYS, Opcode::NANOSLEEP, &[Mod::SYNCS], &[limit], &[]);
            let q = self.b.def_pred(Opcode::SYNCS_PHASECHK, &once, &[at, phase]);
            self.b.terminate(Terminator::Jump(BlockCall { block: done, args: [q].into_iter().collect() }));
            self.b.block = done;
            p = over;
        }
        if inst.has(M::cluster) && !inst.has(M::relaxed) {
            let guard = ori::Guard { pred: Name::Val(p), not: false };
            access::after(&mut self.b, Order::Acquire(access::Scope::Cluster), guard);
        }
        self.write(d, p);
        Ok(())
    }
}
