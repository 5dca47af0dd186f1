//! Exits, barriers, fences, traps.

use crate::access::{self, Scope};
use crate::emit::{Emit, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Builder, Guard, Operand, Terminator, operand};
use ptx::{Mod as M, Op as O};
use sass::{Mod, Opcode, RegFile};
use smallvec::SmallVec;

impl Lower<'_, '_> {
    /// Guarded `exit` and `ret` of a kernel; unguarded ones end the block.
    pub fn exit(&mut self) -> Result<()> {
        let (out, next) = (self.b.func.add_block(), self.b.func.add_block());
        self.b.func.blocks[out].term = Terminator::Exit;
        self.b.func.blocks[out].term_loc = self.b.loc;
        self.b.terminate(Terminator::Branch {
            cond: self.guard.pred,
            not: self.guard.not,
            taken: Builder::call(out),
            fall: Builder::call(next),
        });
        self.b.block = next;
        Ok(())
    }

    /// `membar` and `fence`.
    pub fn fence(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::mbarrier_init) {
            inst.moot(&[M::release, M::cluster]);
            return Ok(());
        }
        if inst.one_of(&[M::sync_restrict_shared_cta, M::sync_restrict_shared_cluster]).is_some() {
            // An acquire needs nothing.
            inst.moot(&[M::acquire, M::cluster, M::proxy, M::async_generic]);
            if inst.has(M::release) {
                self.view_async(Some(Mod::CTA), Mod::S);
            }
            return Ok(());
        }
        if inst.has(M::tensormap_generic) {
            inst.moot(&[M::proxy, M::release]);
            if inst.has(M::acquire) {
                inst.moot(&[M::cta, M::cluster, M::gpu, M::sys]);
                return self.acquire_tensor_map(inst);
            }
            let scope = crate::memory::scope(inst).max(Scope::Gpu);
            access::before(&mut self.b, access::Order::Release(scope), self.guard);
            return Ok(());
        }
        if inst.has(M::proxy) {
            return self.proxy_fence(inst);
        }
        let (sc, scope) = if inst.op == O::membar {
            let scope = match inst.one_of(&[M::cta, M::gl, M::sys]) {
                Some(M::cta) => Scope::Cta,
                Some(M::gl) => Scope::Gpu,
                Some(M::sys) => Scope::Sys,
                _ => return self.unsupported(inst),
            };
            (true, scope)
        } else {
            let sc = inst.has(M::sc) || inst.one_of(&[M::acq_rel, M::acquire, M::release]).is_none();
            (sc, crate::memory::scope(inst))
        };
        access::fence(&mut self.b, sc, scope, self.guard);
        Ok(())
    }

    /// `fence.proxy`: between accesses by different paths.
    fn proxy_fence(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::alias) {
            access::alias_fence(&mut self.b, self.guard);
            return Ok(());
        }
        if !inst.has(M::_async) {
            return self.unsupported(inst);
        }
        match inst.one_of(&[M::global, M::shared_cta, M::shared_cluster]) {
            Some(M::global) => self.view_async(None, Mod::G),
            Some(M::shared_cta) => self.view_async(Some(Mod::CTA), Mod::S),
            _ => self.view_async(Some(Mod::GPU), Mod::S),
        }
        Ok(())
    }

    fn view_async(&mut self, level: Option<Mod>, space: Mod) {
        if let Some(level) = level {
            self.b.guarded(self.guard, Opcode::MEMBAR, &[Mod::ALL, level], &[], &[]);
        }
        self.b.guarded(self.guard, Opcode::FENCE, &[Mod::VIEW, Mod::ASYNC, space], &[], &[]);
    }

    /// `barrier.cluster`. Where the kernel is not launched with clusters, a cluster is one CTA, which has no
    /// such barrier: a release is then a fence for the CTA, and waiting is `bar.sync 0`. A kernel with `.explicitcluster` always is.
    fn cluster_barrier(&mut self, inst: &Statement<'_>) -> Result<()> {
        let arrive = inst.has(M::arrive);
        if self.module.funcs[self.id].attrs.explicit_cluster {
            return self.branch_around(|l| {
                l.barrier_of_cluster(inst, arrive);
                Ok(())
            });
        }
        if !arrive {
            self.b.func.barriers = self.b.func.barriers.max(1);
        }
        self.branch_around(|l| {
            let real = l.explicit_cluster();
            let [then, other, join] = [(); 3].map(|()| l.b.func.add_block());
            l.b.terminate(Terminator::Branch {
                cond: real.into(),
                not: false,
                taken: Builder::call(then),
                fall: Builder::call(other),
            });
            l.b.block = then;
            l.barrier_of_cluster(inst, arrive);
            l.b.terminate(Terminator::Jump(Builder::call(join)));
            l.b.block = other;
            if arrive {
                access::stay_apart(&mut l.b);
            } else {
                let mods = [Mod::SYNC, Mod::DEFER_BLOCKING];
                l.whole_warp(ALWAYS);
                l.b.inst(Opcode::BAR, &mods, &[Operand::Imm(0), Operand::Imm(0), pt()]);
            }
            l.b.terminate(Terminator::Jump(Builder::call(join)));
            l.b.block = join;
            Ok(())
        })
    }

    /// Arrives at the cluster's barrier, or waits there.
    fn barrier_of_cluster(&mut self, inst: &Statement<'_>, arrive: bool) {
        if arrive {
            if !inst.has(M::relaxed) {
                access::before(&mut self.b, access::Order::Release(Scope::Cluster), ALWAYS);
            }
            self.whole_warp(ALWAYS);
            self.b.inst(Opcode::UCGABAR_ARV, &[], &[]);
        } else {
            self.whole_warp(ALWAYS);
            self.b.inst(Opcode::UCGABAR_WAIT, &[], &[]);
            access::after(&mut self.b, access::Order::Acquire(Scope::Cluster), ALWAYS);
        }
    }

    /// Brings all lanes of the warp together.
    pub(crate) fn whole_warp(&mut self, guard: Guard) {
        self.b.guarded(guard, Opcode::WARPSYNC, &[], &[pt(), Operand::Imm(!0)], &[]);
    }

    /// `bar` and `barrier`.
    pub fn barrier(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::cluster) {
            return self.cluster_barrier(inst);
        }
        if inst.has(M::warp) {
            return self.branch_around(|l| l.warp_barrier(inst));
        }
        // All lanes of a warp have the same guard at an aligned one.
        let aligned = inst.op == O::bar || inst.has(M::aligned);
        match aligned && !inst.has(M::red) {
            true => self.block_barrier(inst, aligned),
            false => self.branch_around(|l| l.block_barrier(inst, aligned)),
        }
    }

    fn warp_barrier(&mut self, inst: &Statement<'_>) -> Result<()> {
        let mask = self.member_mask(&inst.operands[0])?;
        crate::warp::meet(&mut self.b, mask);
        // The order that it gives stays where WARPSYNC goes.
        access::stay_apart(&mut self.b);
        Ok(())
    }

    fn block_barrier(&mut self, inst: &Statement<'_>, aligned: bool) -> Result<()> {
        let red = inst.has(M::red);
        let (first, count_at) = if red { (1, 2) } else { (0, 1) };
        let predicate = if red {
            let last = inst.operands.last().ok_or("barrier without a predicate")?;
            Some(self.pred(last)?)
        } else {
            None
        };
        let has_count = inst.operands.len() > count_at + usize::from(red);
        let id = self.src(&inst.operands[first], Ty::U32)?.low();
        let count = if has_count { Some(self.src(&inst.operands[count_at], Ty::U32)?.low()) } else { None };
        let fixed = |o: &Operand| crate::emit::as_imm(o);
        let uses = match fixed(&id) {
            Some(n @ 0..=15) => n as u8 + 1,
            Some(_) => return Err("barrier number above 15".into()),
            None => 16,
        };
        self.b.func.barriers = self.b.func.barriers.max(uses);
        // Each is a number or in a register; if both are, they share one.
        let number = |o: &Operand| fixed(o).map(Operand::Imm);
        let count = count.unwrap_or(Operand::Imm(0));
        let (id, count) = match (number(&id), number(&count)) {
            (Some(id), Some(count)) => (id, count),
            (Some(id), None) => (id, operand(self.b.reg(&count))),
            (None, Some(count)) => (operand(self.b.reg(&id)), count),
            (None, None) => {
                let up = self.b.shl(count, imm(16));
                let packed = self.b.lop3(operand(up), imm(0xf), id, 0xf8);
                (operand(packed), operand(packed))
            }
        };
        let kind = if red {
            Mod::RED
        } else if inst.has(M::arrive) {
            Mod::ARV
        } else {
            Mod::SYNC
        };
        let mut mods: SmallVec<[Mod; 3]> = SmallVec::from_slice(&[kind]);
        if red {
            mods.push(match inst.one_of(&[M::popc, M::and, M::or]) {
                Some(M::popc) => Mod::POPC,
                Some(M::and) => Mod::AND,
                _ => Mod::OR,
            });
        }
        // Arrivals do not block; before sm_90 lanes that wait each for themselves come without the modifier.
        let blocking = kind != Mod::ARV
            && match self.sm() {
                75 => false,
                90.. => true,
                _ => aligned || red,
            };
        if blocking {
            mods.push(Mod::DEFER_BLOCKING);
        }
        let d = if red { Some(self.dst(&inst.operands[0])?) } else { None };
        match aligned {
            true => self.whole_warp(self.guard),
            false => crate::warp::meet(&mut self.b, Operand::Imm(!0)),
        }
        let Some(d) = d else {
            self.b.guarded(self.guard, Opcode::BAR, &mods, &[id, count, pt()], &[]);
            return Ok(());
        };
        let popc = inst.has(M::popc);
        self.b.inst(Opcode::BAR, &mods, &[id, count, predicate.unwrap_or_else(pt)]);
        let result = self.b.func.add_value(if popc { RegFile::R } else { RegFile::P }, 1);
        let operands = if popc { [operand(result), pt()] } else { [rz(), operand(result)] };
        self.b.inst(Opcode::B2R, &[Mod::RESULT], &operands);
        self.write(d, result);
        Ok(())
    }

    /// `trap`, `nanosleep` and other instructions without results.
    pub fn misc(&mut self, inst: &Statement<'_>) -> Result<()> {
        match inst.op {
            O::trap => {
                self.b.guarded(self.guard, Opcode::BPT, &[Mod::TRAP], &[Operand::Imm(1)], &[]);
            }
            O::brkpt => {
                self.b.guarded(self.guard, Opcode::BPT, &[Mod::TRAP], &[Operand::Imm(1)], &[]);
            }
            O::nanosleep => {
                let t = self.src(&inst.operands[0], Ty::U32)?.low();
                if self.sm() > 75 {
                    self.b.guarded(self.guard, Opcode::NANOSLEEP, &[], &[t], &[]);
                    return Ok(());
                }
                // It is the warp that sleeps.
                return self.branch_around(|l| {
                    l.b.inst(Opcode::NANOSLEEP, &[Mod::WARP], &[t]);
                    l.b.inst(Opcode::YIELD, &[], &[pt()]);
                    Ok(())
                });
            }
            O::pmevent => {
                let n = self.integer(&inst.operands[0])? as u32;
                let mask = if inst.has(M::mask) { n } else { 1 << (n & 15) };
                self.b.guarded(self.guard, Opcode::PMTRIG, &[], &[Operand::Imm(mask & 0xffff)], &[]);
            }
            O::griddepcontrol => {
                let op = if inst.has(M::wait) { Opcode::ACQBULK } else { Opcode::PREEXIT };
                self.b.guarded(self.guard, op, &[], &[], &[]);
            }
            _ => return self.unsupported(inst),
        }
        debug_assert!(self.guard == ALWAYS || inst.plain.guard.is_some());
        Ok(())
    }
}
