//! Instructions that take uniform registers, where the threads of a warp may disagree: one execution for each
//! value that they have, in a loop. Nothing parts the threads between R2UR and the instruction, so that no other group of them
//! can write the registers.

use crate::emit::{Emit, Pair, as_imm, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{Builder, Guard, Macro, Name, Operand, Terminator, Value, operand};
use ptx::{Mod as M, Space};
use sass::{Mod, Opcode, Reg, RegFile};

impl Lower<'_, '_> {
    /// Runs `f` with these words in uniform registers for one combination of them after another, in a loop that the threads
    /// leave that have it. Their guard is for `f`: what it does without it, all do that are left, with the same words.
    pub(crate) fn in_turns<T>(
        &mut self,
        words: &[Operand],
        f: impl FnOnce(&mut Self, &[Value], Guard) -> Result<T>,
    ) -> Result<T> {
        let choose = |l: &mut Self| {
            let mut other: Option<Value> = None;
            let uniform = words.iter().map(|w| {
                if as_imm(w).is_some() {
                    return l.b.def_macro(Macro::Copy, RegFile::UR, 1, std::slice::from_ref(w));
                }
                let word = l.b.reg(w);
                let differs = l.b.func.add_value(RegFile::P, 1);
                let one = l.b.func.add_value(RegFile::UR, 1);
                l.b.inst(Opcode::R2UR_P, &[], &[operand(differs), operand(one), operand(word)]);
                other = Some(match other {
                    Some(other) => l.b.plop(operand(other), operand(differs), 0xfc),
                    None => differs,
                });
                one
            });
            let uniform: Vec<Value> = uniform.collect();
            let pred = other.map_or(Name::Phys(Reg::PT), Name::Val);
            (uniform, Guard { pred, not: other.is_some() })
        };
        self.until_all_had_a_turn(choose, f)
    }

    /// Runs `f` with these words in uniform registers for one thread after another.
    pub(crate) fn one_by_one<T>(
        &mut self,
        words: &[Operand],
        f: impl FnOnce(&mut Self, &[Value], Guard) -> Result<T>,
    ) -> Result<T> {
        let choose = |l: &mut Self| {
            let chosen = l.b.func.add_value(RegFile::P, 1);
            let nowhere = operand(Name::Phys(Reg::URZ));
            l.b.inst(Opcode::ELECT, &[], &[operand(chosen), nowhere, pt()]);
            let mine = Guard { pred: chosen.into(), not: false };
            let broadcast: &[Mod] = if l.sm() >= 100 { &[Mod::BROADCAST] } else { &[] };
            let uniform = words.iter().map(|w| {
                if as_imm(w).is_some() {
                    return l.b.def_macro(Macro::Copy, RegFile::UR, 1, std::slice::from_ref(w));
                }
                let word = l.b.reg(w);
                let one = l.b.func.add_value(RegFile::UR, 1);
                let before = l.undefined(ori::ValueData { file: RegFile::UR, width: 1 });
                let operands = [operand(one), operand(word)];
                l.b.guarded(mine, Opcode::R2UR, broadcast, &operands, &[before.into()]);
                one
            });
            (uniform.collect(), mine)
        };
        self.until_all_had_a_turn(choose, f)
    }

    /// A loop of the threads: those leave it for which the guard holds that `choose` gives.
    fn until_all_had_a_turn<T>(
        &mut self,
        choose: impl FnOnce(&mut Self) -> (Vec<Value>, Guard),
        f: impl FnOnce(&mut Self, &[Value], Guard) -> Result<T>,
    ) -> Result<T> {
        let [head, done] = [(); 2].map(|()| self.b.func.add_block());
        self.b.terminate(Terminator::Jump(Builder::call(head)));
        self.b.block = head;
        let (uniform, mine) = choose(self);
        let result = f(self, &uniform, mine)?;
        self.b.terminate(Terminator::Branch {
            cond: mine.pred,
            not: !mine.not,
            taken: Builder::call(head),
            fall: Builder::call(done),
        });
        self.b.block = done;
        Ok(result)
    }

    pub(crate) fn uniform_address(base: impl Into<Name>) -> Operand {
        Operand::Addr {
            desc: None,
            base: None,
            width: sass::AddrWidth::R32,
            uniform: Some(base.into()),
            offset: 0,
        }
    }

    /// Words of a generic address, its offset added.
    pub(crate) fn address_words(&mut self, a: &ptx::Addr) -> Result<[Operand; 2]> {
        let at = self.address64(a)?;
        let base = at.base.and_then(Name::value).ok_or("address without a base")?;
        let v = self.b.add64(&Pair::of(base), &Pair::imm(i64::from(at.offset) as u64));
        Ok([operand(Name::Part(v, 0)), operand(Name::Part(v, 1))])
    }

    /// A shared address, its offset added; of a generic one, the lower half.
    pub(crate) fn shared_word(&mut self, a: &ptx::Addr) -> Result<Operand> {
        let at = self.address32(a, Space::Shared)?;
        let base = at.base.map_or_else(rz, operand);
        Ok(if at.offset == 0 { base } else { operand(self.b.iadd(base, imm(at.offset as u32))) })
    }

    /// Runs UTMACCTL with this action on a tensor map.
    fn tensor_map(&mut self, a: &ptx::Addr, param: bool, action: Mod) -> Result<()> {
        let words = match (param, a.base) {
            (false, _) => self.address_words(a)?,
            (true, base) => {
                // The address of a parameter is its offset in the constant bank.
                let at = match base {
                    ptx::AddrBase::Var(v) => Pair::imm((i64::from(self.bank_offset(v)?.1) + a.offset) as u64),
                    _ => {
                        let [lo, hi] = self.address_words(a)?;
                        Pair::parts(lo, hi)
                    }
                };
                let window = self.param_window();
                let first = Pair::imm(u64::from(self.opts.target.info().param_base));
                let at = Pair::of(self.b.sub64(&at, &first));
                let v = self.b.add64(&window, &at);
                [operand(Name::Part(v, 0)), operand(Name::Part(v, 1))]
            }
        };
        let deep = self.sm() >= 100 && action == Mod::IV;
        self.in_turns(&words, |l, u, _| {
            if action == Mod::IV {
                let all = [Operand::ScoreboardSet(0), Operand::Imm(0), Operand::ScoreboardSet(0x3f)];
                l.b.inst(Opcode::DEPBAR, &[], &all);
            }
            let at = l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[0]), operand(u[1])]);
            if deep {
                let mods = [Mod::E, Mod::C, Mod::LDCU, Mod::IV, Mod::DEEP];
                l.b.inst(Opcode::CCTL_LDCU, &mods, &[Self::uniform_address(at)]);
            }
            l.b.inst(Opcode::UTMACCTL, &[action], &[Self::uniform_address(at)]);
            Ok(())
        })
    }

    /// `prefetch.tensormap`.
    pub fn prefetch_tensor_map(&mut self, inst: &Statement<'_>) -> Result<()> {
        let a = self.addr_operand(&inst.operands[0])?;
        self.branch_around(|l| l.tensor_map(a, inst.has(M::param), Mod::PF))
    }

    /// `fence.proxy.tensormap::generic.acquire`.
    pub fn acquire_tensor_map(&mut self, inst: &Statement<'_>) -> Result<()> {
        let a = self.addr_operand(&inst.operands[0])?;
        self.branch_around(|l| l.tensor_map(a, false, Mod::IV))
    }

    /// `st.bulk`: zeros, counted in 8 bytes.
    pub fn st_bulk(&mut self, inst: &Statement<'_>) -> Result<()> {
        let a = self.addr_operand(&inst.operands[0])?;
        self.branch_around(|l| {
            let at = l.shared_word(a)?;
            let size = l.src(&inst.operands[1], Ty { bits: 64, ..Ty::U32 })?.pair();
            let count = match size.as_imm() {
                Some(n) => imm((n >> 3) as u32),
                None => operand(l.b.shf(&[Mod::R, Mod::U64], size.lo, imm(3), size.hi)),
            };
            l.in_turns(&[at, count], |l, u, _| {
                let zero = operand(Name::Phys(Reg::URZ));
                let operands = [Self::uniform_address(u[0]), zero, operand(u[1])];
                l.b.inst(Opcode::UMEMSETS, &[Mod::_64], &operands);
                Ok(())
            })
        })
    }

    /// `clusterlaunchcontrol`: a request for another CTA's work, and what its answer says.
    pub fn cluster_launch(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::try_cancel) {
            let (to, barrier) =
                (self.addr_operand(&inst.operands[0])?, self.addr_operand(&inst.operands[1])?);
            let how = match inst.has(M::multicast_cluster_all) {
                true => Mod::BROADCAST,
                false => Mod::SELFCAST,
            };
            return self.branch_around(|l| {
                let words = [l.shared_word(to)?, l.shared_word(barrier)?];
                l.one_by_one(&words, |l, u, _| {
                    let pair = l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[0]), operand(u[1])]);
                    let barrier = Self::uniform_address(Name::Part(pair, 1));
                    l.b.inst(Opcode::UGETNEXTWORKID, &[how], &[Self::uniform_address(pair), barrier]);
                    Ok(())
                })
            });
        }
        let answer = match self.src(&inst.operands[1], Ty { bits: 128, ..Ty::B32 })? {
            crate::types::Src::Quad(v) => v,
            _ => return self.unsupported(inst),
        };
        let word = |i: u8| operand(Name::Part(answer, i));
        let mark = self.mark();
        if inst.has(M::is_canceled) {
            let d = self.dst(&inst.operands[0])?;
            let bit = self.b.and(word(2), imm(1));
            let set = self.b.isetp(Mod::NE, false, operand(bit), rz());
            self.assign(d, set, mark);
            return Ok(());
        }
        let dsts = crate::memory::destinations(inst)?;
        let first = match inst.one_of(&[M::get_first_ctaid_y, M::get_first_ctaid_z]) {
            Some(M::get_first_ctaid_y) => 1,
            Some(_) => 2,
            None => 0,
        };
        for (i, d) in dsts.iter().enumerate() {
            let Some(d) = *d else { continue };
            let mark = self.mark();
            let v = match first + i {
                0 => self.b.copy(word(0)),
                1 => self.b.and(word(1), imm(0xffff)),
                2 => self.b.shr(false, word(1), imm(16)),
                _ => self.b.copy(rz()),
            };
            self.assign(d, v, mark);
        }
        Ok(())
    }
}
