//! Warp-wide communication: shuffles, votes, matches, reductions.
//!
//! The threads of the member mask are brought together first (WARPSYNC; the backend takes it away where the whole
//! warp is surely together), and what the others said is masked out.

use crate::emit::{Emit, as_imm, pt, rz};
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::types::{Src, Ty};
use ori::{Builder, Operand, Value, meeting, operand};
use ptx::{Mod as M, Op as O};
use sass::{Mod, Opcode, RegFile};
use smallvec::SmallVec;

/// A member mask.
enum Members {
    All,
    Mask(Operand),
}

impl Members {
    fn mask(&self) -> Operand {
        match self {
            Members::All => Operand::Imm(!0),
            Members::Mask(mask) => *mask,
        }
    }

    /// Brings the threads of the mask together for what all threads do that execute it at once. Those of different masks
    /// must do it apart; the backend takes the modifier away where all surely have the same one.
    fn meet_alone(&self, b: &mut Builder<'_>) {
        match self {
            Members::All => meet(b, self.mask()),
            Members::Mask(mask) => {
                b.inst(Opcode::WARPSYNC, &[Mod::EXCLUSIVE, meeting::MARK], &[pt(), *mask]);
            }
        }
    }
}

/// Brings the threads of a mask together for what follows, those at other such instructions included.
pub(crate) fn meet(b: &mut Builder<'_>, mask: Operand) {
    b.inst(Opcode::WARPSYNC, &[meeting::MARK], &[pt(), mask]);
}

impl Lower<'_, '_> {
    /// `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`, `activemask`.
    pub fn warp(&mut self, inst: &Statement<'_>) -> Result<()> {
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
    fn elect(&mut self, inst: &Statement<'_>) -> Result<()> {
        let (d, p) = self.dst_pair(&inst.operands[0])?;
        let members = self.members(&inst.operands[1])?;
        members.meet_alone(&mut self.b);
        let chosen = self.b.func.add_value(RegFile::P, 1);
        let lane = self.b.func.add_value(RegFile::UR, 1);
        self.b.inst(Opcode::ELECT, &[], &[operand(chosen), operand(lane), pt()]);
        // Here, since groups of lanes may come by one after another.
        let lane = self.b.copy(operand(lane));
        if let Some(d) = d {
            self.write(d, lane);
        }
        if let Some(p) = p {
            self.write(p, chosen);
        }
        Ok(())
    }

    /// The member mask as WARPSYNC takes it.
    pub(crate) fn member_mask(&mut self, o: &ptx::Operand) -> Result<Operand> {
        Ok(self.members(o)?.mask())
    }

    /// The member mask.
    fn members(&mut self, o: &ptx::Operand) -> Result<Members> {
        let mask = self.src(o, Ty::U32)?.low();
        Ok(match as_imm(&mask) {
            Some(u32::MAX) => Members::All,
            // Later WARPSYNC takes none but from a register.
            Some(n) if self.sm() < 90 => Members::Mask(Operand::Imm(n)),
            _ => Members::Mask(operand(self.b.reg(&mask))),
        })
    }

    /// Brings the threads of a mask together, right before what they do together.
    fn meet(&mut self, members: &Members) {
        meet(&mut self.b, members.mask());
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

    fn shfl(&mut self, inst: &Statement<'_>) -> Result<()> {
        let (d, a, lane, clamp, mask) = match inst.operands.from(0) {
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
        let members = mask.map(|m| self.members(m)).transpose()?;
        let t = Ty::B32;
        let (a, lane, clamp) = (self.src(a, t)?, self.src(lane, t)?, self.src(clamp, t)?);
        let a = operand(self.b.reg(&a.low()));
        if let Some(members) = members {
            self.meet(&members);
        }
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

    fn vote(&mut self, inst: &Statement<'_>) -> Result<()> {
        // Without `.sync` the threads that are here vote.
        let (d, p, mask) = match inst.operands.from(0) {
            [d, p, mask] => (d, p, Some(mask)),
            [d, p] if !inst.has(M::sync) => (d, p, None),
            _ => return self.unsupported(inst),
        };
        let d = self.dst(d)?;
        let p = self.pred(p)?;
        let members = mask.map_or(Ok(Members::All), |m| self.members(m))?;
        let mode = inst.one_of(&[M::ballot, M::all, M::any, M::uni]).ok_or("vote without a mode")?;
        if mask.is_some() {
            self.meet(&members);
        }
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
            (M::ballot, Members::Mask(mask)) => {
                let votes = self.ballot(p);
                self.b.and(operand(votes), mask)
            }
            (M::any, Members::Mask(mask)) => {
                let votes = self.ballot(p);
                let yes = self.b.and(operand(votes), mask);
                self.b.isetp(Mod::NE, false, operand(yes), rz())
            }
            (mode, Members::Mask(mask)) => {
                let votes = self.ballot(p);
                let here = self.here();
                let yes = self.b.and(operand(votes), mask);
                let all = self.b.and(operand(here), mask);
                let unanimous = self.b.isetp(Mod::EQ, false, operand(yes), operand(all));
                if mode == M::all {
                    unanimous
                } else {
                    let none = self.b.isetp(Mod::EQ, false, operand(yes), rz());
                    self.b.plop(operand(unanimous), operand(none), 0xfc)
                }
            }
        };
        self.write(d, value);
        Ok(())
    }

    /// The threads that have met and executed the last instruction.
    fn here(&mut self) -> Value {
        let v = self.b.func.add_value(RegFile::R, 1);
        self.b.inst(Opcode::VOTE, &[Mod::ANY, meeting::MARK], &[operand(v), pt(), pt()]);
        v
    }

    fn match_sync(&mut self, inst: &Statement<'_>) -> Result<()> {
        let [d, a, mask] = inst.operands.from(0) else {
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
        self.meet(&members);
        let mut same = self.b.def(Opcode::MATCH, mods, &[a]);
        let here = inst.has(M::all).then(|| self.here());
        if let Members::Mask(m) = &members {
            same = self.b.and(operand(same), *m);
        }
        if let Some(mut all) = here {
            if let Members::Mask(m) = members {
                all = self.b.and(operand(all), m);
            }
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

    fn redux(&mut self, inst: &Statement<'_>) -> Result<()> {
        let [d, a, mask] = inst.operands.from(0) else {
            return self.unsupported(inst);
        };
        let d = self.dst(d)?;
        let t = ty(inst.ty(0).ok_or("redux without a type")?);
        let a: Src = self.src(a, t)?;
        let Some(mods) = redux_mods(inst, t) else { return self.unsupported(inst) };
        let a = operand(self.b.reg(&a.low()));
        let minmax = inst.one_of(&[M::min, M::max]).is_some();
        let op = if minmax && matches!(self.sm(), 100 | 103) { Opcode::CREDUX } else { Opcode::REDUX };
        let members = self.members(mask)?;
        members.meet_alone(&mut self.b);
        let v = reduce(&mut self.b, op, &mods, a);
        self.write(d, v);
        Ok(())
    }
}

/// A reduction over the threads that execute it together.
pub(crate) fn reduce(b: &mut Builder<'_>, op: Opcode, mods: &[Mod], a: Operand) -> Value {
    let u = b.def(op, mods, &[a]);
    b.copy(operand(u))
}

/// Modifiers of REDUX and CREDUX.
fn redux_mods(inst: &Statement<'_>, t: Ty) -> Option<SmallVec<[Mod; 3]>> {
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
