//! Exits, barriers, fences, traps.

use crate::access::{self, Scope};
use crate::emit::{Emit, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::types::Ty;
use ori::{ALWAYS, Builder, Operand, Terminator, operand};
use ptx::{Inst, Mod as M, Op as O};
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
    pub fn fence(&mut self, inst: &Inst) -> Result<()> {
        if inst.one_of(&[M::proxy, M::mbarrier_init]).is_some() {
            return self.unsupported(inst);
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

    /// `bar` and `barrier`.
    pub fn barrier(&mut self, inst: &Inst) -> Result<()> {
        if inst.has(M::cluster) {
            return self.unsupported(inst);
        }
        if inst.has(M::warp) {
            let mask = self.src(&inst.operands[0], Ty::U32)?;
            let mask = operand(self.b.reg(&mask.low()));
            self.b.guarded(self.guard, Opcode::WARPSYNC, &[], &[pt(), mask], &[]);
            return Ok(());
        }
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
        let (id, count) = match (fixed(&id), count) {
            (Some(n), None) => (Operand::Imm(n), Operand::Imm(0)),
            (Some(n), Some(c)) if fixed(&c).is_some() => (Operand::Imm(n), c),
            (_, count) => {
                // Number and thread count share one register.
                let count = count.unwrap_or_else(rz);
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
        // Arrivals do not block; registers with a count come without the modifier before sm_90.
        let blocking = kind != Mod::ARV
            && match self.sm() {
                75 => false,
                90.. => true,
                _ => matches!(id, Operand::Imm(_)),
            };
        if blocking {
            mods.push(Mod::DEFER_BLOCKING);
        }
        if !red {
            self.b.guarded(self.guard, Opcode::BAR, &mods, &[id, count, pt()], &[]);
            return Ok(());
        }
        let d = self.dst(&inst.operands[0])?;
        let popc = inst.has(M::popc);
        self.branch_around(|l| {
            l.b.inst(Opcode::BAR, &mods, &[id, count, predicate.unwrap_or_else(pt)]);
            let result = l.b.func.add_value(if popc { RegFile::R } else { RegFile::P }, 1);
            let operands = if popc { [operand(result), pt()] } else { [rz(), operand(result)] };
            l.b.inst(Opcode::B2R, &[Mod::RESULT], &operands);
            l.write(d, result);
            Ok(())
        })
    }

    /// `trap`, `nanosleep` and other instructions without results.
    pub fn misc(&mut self, inst: &Inst) -> Result<()> {
        match inst.op {
            O::trap => {
                self.b.guarded(self.guard, Opcode::BPT, &[Mod::TRAP], &[Operand::Imm(1)], &[]);
            }
            O::brkpt => {
                self.b.guarded(self.guard, Opcode::BPT, &[Mod::INT], &[Operand::Imm(1)], &[]);
            }
            O::nanosleep => {
                let t = self.src(&inst.operands[0], Ty::U32)?.low();
                let mods: &[Mod] = if self.sm() == 75 { &[Mod::WARP] } else { &[] };
                self.b.guarded(self.guard, Opcode::NANOSLEEP, mods, &[t], &[]);
            }
            _ => return self.unsupported(inst),
        }
        debug_assert!(self.guard == ALWAYS || inst.guard.is_some());
        Ok(())
    }
}
