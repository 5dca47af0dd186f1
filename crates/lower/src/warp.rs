//! Warp-wide communication: shuffles, votes, matches, reductions.
//!
//! The threads of the member mask are brought together first (WARPSYNC; the backend takes it away where the whole
//! warp is surely together), and what the others said is masked out.

use crate::emit::{Emit, as_imm, pt, rz};
use crate::func::{Lower, Result, ty};
use crate::types::{Src, Ty};
use ori::{BlockCall, Builder, Operand, Terminator, Value, operand};
use ptx::{Inst, Mod as M, Op as O};
use sass::{Mod, Opcode, RegFile};
use smallvec::SmallVec;

/// A member mask.
enum Members {
    All,
    Mask(Operand),
}

impl Lower<'_, '_> {
    /// `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`, `activemask`.
    pub fn warp(&mut self, inst: &Inst) -> Result<()> {
        match inst.op {
            O::shfl => self.branch_around(|l| l.shfl(inst)),
            O::vote => self.branch_around(|l| l.vote(inst)),
            O::_match => self.branch_around(|l| l.match_sync(inst)),
            O::redux => self.branch_around(|l| l.redux(inst)),
            O::activemask => {
                let d = self.dst(&inst.operands[0])?;
                let mark = self.mark();
                let v = self.ballot(pt());
                self.assign(d, v, mark);
                Ok(())
            }
            O::elect => self.branch_around(|l| l.elect(inst)),
            _ => self.unsupported(inst),
        }
    }

    /// `elect.sync`: one of the threads, and its lane.
    fn elect(&mut self, inst: &Inst) -> Result<()> {
        let (d, p) = self.dst_pair(&inst.operands[0])?;
        self.members(&inst.operands[1])?;
        let chosen = self.b.func.add_value(RegFile::P, 1);
        let lane = self.b.func.add_value(RegFile::UR, 1);
        self.b.inst(Opcode::ELECT, &[], &[operand(chosen), operand(lane), pt()]);
        if let Some(d) = d {
            let v = self.b.copy(operand(lane));
            self.write(d, v);
        }
        if let Some(p) = p {
            self.write(p, chosen);
        }
        Ok(())
    }

    /// The member mask; brings its threads together.
    fn members(&mut self, o: &ptx::Operand) -> Result<Members> {
        let mask = self.src(o, Ty::U32)?.low();
        if as_imm(&mask) == Some(!0) {
            self.b.inst(Opcode::WARPSYNC, &[], &[pt(), mask]);
            return Ok(Members::All);
        }
        let mask = operand(self.b.reg(&mask));
        self.b.inst(Opcode::WARPSYNC, &[], &[pt(), mask.clone()]);
        Ok(Members::Mask(mask))
    }

    /// Which active threads have `p`.
    fn ballot(&mut self, p: Operand) -> Value {
        let v = self.b.func.add_value(RegFile::R, 1);
        self.b.inst(Opcode::VOTE, &[Mod::ANY], &[operand(v), pt(), p]);
        v
    }

    /// A register and a predicate that an instruction writes: `d`, `d|p`.
    fn dst_pair(&self, o: &ptx::Operand) -> Result<(Option<ptx::RegId>, Option<ptx::RegId>)> {
        match o {
            ptx::Operand::Reg(d) => Ok((Some(*d), None)),
            ptx::Operand::Pair(d, p) => Ok((*d, *p)),
            ptx::Operand::Sink => Ok((None, None)),
            _ => Err("destination is not a register".into()),
        }
    }

    fn shfl(&mut self, inst: &Inst) -> Result<()> {
        let (d, a, lane, clamp, mask) = match &inst.operands[..] {
            [d, a, lane, clamp, mask] => (d, a, lane, clamp, Some(mask)),
            [d, a, lane, clamp] if !inst.has(M::sync) => (d, a, lane, clamp, None),
            _ => return self.unsupported(inst),
        };
        let (d, p) = self.dst_pair(d)?;
        let mode = match inst.one_of(&[M::up, M::down, M::bfly, M::idx]) {
            Some(M::up) => Mod::UP,
            Some(M::down) => Mod::DOWN,
            Some(M::bfly) => Mod::BFLY,
            _ => Mod::IDX,
        };
        if let Some(mask) = mask {
            self.members(mask)?;
        }
        let t = Ty::B32;
        let (a, lane, clamp) = (self.src(a, t)?, self.src(lane, t)?, self.src(clamp, t)?);
        let a = operand(self.b.reg(&a.low()));
        let v = self.b.func.add_value(RegFile::R, 1);
        let q = p.map(|_| self.b.func.add_value(RegFile::P, 1));
        let operands = [q.map_or_else(pt, operand), operand(v), a, lane.low(), clamp.low()];
        self.b.inst(Opcode::SHFL, &[mode], &operands);
        if let Some(d) = d {
            self.write(d, v);
        }
        if let (Some(p), Some(q)) = (p, q) {
            self.write(p, q);
        }
        Ok(())
    }

    fn vote(&mut self, inst: &Inst) -> Result<()> {
        // Without `.sync` the threads that are here vote.
        let (d, p, mask) = match &inst.operands[..] {
            [d, p, mask] => (d, p, Some(mask)),
            [d, p] if !inst.has(M::sync) => (d, p, None),
            _ => return self.unsupported(inst),
        };
        let d = self.dst(d)?;
        let p = self.pred(p)?;
        let members = mask.map_or(Ok(Members::All), |m| self.members(m))?;
        let mode = inst.one_of(&[M::ballot, M::all, M::any, M::uni]).ok_or("vote without a mode")?;
        let value = match (mode, members) {
            (M::ballot, Members::All) => self.ballot(p),
            (mode, Members::All) => {
                let m = match mode {
                    M::all => Mod::ALL,
                    M::any => Mod::ANY,
                    _ => Mod::EQ,
                };
                let v = self.b.func.add_value(RegFile::P, 1);
                self.b.inst(Opcode::VOTE, &[m], &[rz(), operand(v), p]);
                v
            }
            (mode, Members::Mask(mask)) => {
                let votes = self.ballot(p);
                let yes = self.b.and(operand(votes), mask.clone());
                if mode == M::ballot {
                    yes
                } else if mode == M::any {
                    self.b.isetp(Mod::NE, false, operand(yes), rz())
                } else {
                    let all = self.active(mask);
                    let unanimous = self.b.isetp(Mod::EQ, false, operand(yes), operand(all));
                    if mode == M::all {
                        unanimous
                    } else {
                        let none = self.b.isetp(Mod::EQ, false, operand(yes), rz());
                        self.b.plop(operand(unanimous), operand(none), 0xfc)
                    }
                }
            }
        };
        self.write(d, value);
        Ok(())
    }

    /// The active threads of a mask.
    fn active(&mut self, mask: Operand) -> Value {
        let here = self.ballot(pt());
        self.b.and(operand(here), mask)
    }

    fn match_sync(&mut self, inst: &Inst) -> Result<()> {
        let [d, a, mask] = &inst.operands[..] else {
            return self.unsupported(inst);
        };
        let (d, p) = self.dst_pair(d)?;
        let t = ty(inst.ty(0).ok_or("match without a type")?);
        let a = self.src(a, t)?;
        let members = self.members(mask)?;
        let (mods, a): (&[Mod], Operand) = if t.bits == 64 {
            (&[Mod::ANY, Mod::U64], operand(self.b.pair(&a.pair())))
        } else {
            (&[Mod::ANY], operand(self.b.reg(&a.low())))
        };
        let mut same = self.b.def(Opcode::MATCH, mods, &[a]);
        if let Members::Mask(m) = &members {
            same = self.b.and(operand(same), m.clone());
        }
        if inst.has(M::all) {
            let all = match members {
                Members::All => self.ballot(pt()),
                Members::Mask(m) => self.active(m),
            };
            let equal = self.b.isetp(Mod::EQ, false, operand(same), operand(all));
            if let Some(p) = p {
                self.write(p, equal);
            }
            same = self.b.sel(operand(equal), operand(all), rz());
        }
        if let Some(d) = d {
            self.write(d, same);
        }
        Ok(())
    }

    fn redux(&mut self, inst: &Inst) -> Result<()> {
        let [d, a, mask] = &inst.operands[..] else {
            return self.unsupported(inst);
        };
        let d = self.dst(d)?;
        let t = ty(inst.ty(0).ok_or("redux without a type")?);
        let a: Src = self.src(a, t)?;
        let mods = redux_mods(inst, t).ok_or_else(|| inst.op.name().to_string());
        let mods = mods.or_else(|_| self.unsupported(inst))?;
        let a = operand(self.b.reg(&a.low()));
        let minmax = inst.one_of(&[M::min, M::max]).is_some();
        let op = if minmax && matches!(self.sm(), 100 | 103) { Opcode::CREDUX } else { Opcode::REDUX };
        let reduce = |l: &mut Self| {
            let u = l.b.def(op, &mods, &[a]);
            l.b.copy(operand(u))
        };
        // All threads that execute it together take part, so those of one mask must be on their own.
        let mask = self.src(mask, Ty::U32)?.low();
        let v = match as_imm(&mask) {
            Some(u32::MAX) => {
                self.b.inst(Opcode::WARPSYNC, &[], &[pt(), mask]);
                reduce(self)
            }
            Some(_) => {
                let mask = operand(self.b.reg(&mask));
                self.b.inst(Opcode::WARPSYNC, &[], &[pt(), mask]);
                reduce(self)
            }
            None => self.by_mask(mask, reduce),
        };
        self.write(d, v);
        Ok(())
    }

    /// Runs `f`, which gives one register, once for each mask that the threads have, with the threads of that
    /// mask only: `f` must not be where all have come together again, so it is on one side of a branch in a loop.
    fn by_mask(&mut self, mask: Operand, f: impl FnOnce(&mut Self) -> Value) -> Value {
        let mask = self.b.reg(&mask);
        let [head, then, join, done] = [(); 4].map(|()| self.b.func.add_block());
        let result = self.b.func.add_value(RegFile::R, 1);
        self.b.func.blocks[join].params.push(result);
        self.b.terminate(Terminator::Jump(Builder::call(head)));
        self.b.block = head;
        let one = self.b.def(Opcode::R2UR, &[], &[operand(mask)]);
        let one = self.b.copy(operand(one));
        let mine = self.b.isetp(Mod::EQ, false, operand(one), operand(mask));
        let none = self.b.copy(rz());
        self.b.terminate(Terminator::Branch {
            cond: mine.into(),
            not: false,
            taken: Builder::call(then),
            fall: BlockCall { block: join, args: SmallVec::from_slice(&[none]) },
        });
        self.b.block = then;
        self.b.inst(Opcode::WARPSYNC, &[], &[pt(), operand(mask)]);
        let v = f(self);
        self.b.terminate(Terminator::Jump(BlockCall { block: join, args: SmallVec::from_slice(&[v]) }));
        self.b.block = join;
        self.b.terminate(Terminator::Branch {
            cond: mine.into(),
            not: true,
            taken: Builder::call(head),
            fall: Builder::call(done),
        });
        self.b.block = done;
        result
    }
}

/// Modifiers of REDUX and CREDUX.
fn redux_mods(inst: &Inst, t: Ty) -> Option<SmallVec<[Mod; 3]>> {
    let action = inst.one_of(&[M::add, M::min, M::max, M::and, M::or, M::xor])?;
    let mut mods: SmallVec<[Mod; 3]> = SmallVec::new();
    if t.is_float() {
        mods.push(match (action, inst.has(M::abs)) {
            (M::min, false) => Mod::MIN,
            (M::max, false) => Mod::MAX,
            (M::min, true) => Mod::MINABS,
            (M::max, true) => Mod::MAXABS,
            _ => return None,
        });
        mods.push(Mod::F32);
        mods.extend(inst.has(M::NaN).then_some(Mod::NAN));
        return Some(mods);
    }
    mods.extend(match action {
        M::add => Some(Mod::SUM),
        M::min => Some(Mod::MIN),
        M::max => Some(Mod::MAX),
        M::or => Some(Mod::OR),
        M::xor => Some(Mod::XOR),
        _ => None,
    });
    mods.extend(t.is_signed().then_some(Mod::S32));
    Some(mods)
}
