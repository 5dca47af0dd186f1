//! `tcgen05` but for products: tensor memory is given out by code over words of shared memory that the system keeps, as ptxas
//! 13.0.88 does it (docs/matrix.md); loads and stores are of a warp, what moves matrices of one thread each.

use crate::access::{self, Access, AtomOp, Atomic, Order, Scope, Space};
use crate::emit::{Emit, as_imm, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::tensor_checks::{At, Check, Deed, Facts};
use crate::types::Ty;
use ori::{ALWAYS, Builder, Macro, Name, Operand, Part, Terminator, Value, operand};
use ptx::{Mod as M, VectorElem};
use sass::{Mod, Opcode, Reg, RegFile, SpecialReg};

/// The variable that the linker knows them by.
const WORDS: &str = "__nv_reservedSMEM_tcgen05_partition";
// Words from where those begin in shared memory that say what is given out.
/// The barrier by which the blocks of a pair take turns.
const TURN: i32 = 8;
/// How often this block had its turn: the lowest bit is the phase of the barrier that it waits for.
const TURNS: i32 = 0x10;
/// The slots of 32 columns that are given out, one bit each.
pub(crate) const TAKEN: i32 = 0x14;
/// Those at which an allocation begins.
const STARTS: i32 = 0x18;
/// Whether the block may take no more.
pub(crate) const RELINQUISHED: i32 = 0x1c;
/// Nanoseconds until a block asks again for columns that others have.
const RETRY: u32 = 0x64;
/// Nanoseconds that a block waits at most for the other of its pair before it looks again.
const WAIT: u32 = 10_000_000;

/// An access of so many bytes to shared memory.
pub(crate) fn shared(size: u8) -> Access {
    Access {
        space: Space::Shared,
        size,
        signed: false,
        order: Order::Weak,
        mmio: false,
        evict: None,
        prefetch: None,
        constant: false,
        collective: false,
    }
}

pub(crate) fn urz() -> Operand {
    operand(Name::Phys(Reg::URZ))
}

impl Lower<'_, '_> {
    /// `tcgen05`.
    pub(crate) fn tensor_memory(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.moot(&[M::cta_group_1, M::cta_group_2, M::b32, M::b64, M::shared_cta, M::shared_cluster]);
        self.branch_around(|l| match () {
            () if inst.has(M::alloc) && inst.plain.has(M::cta_group_2) => l.take_columns_of_pair(inst),
            () if inst.has(M::alloc) => l.take_columns(inst),
            () if inst.has(M::dealloc) => l.give_columns_back(inst),
            () if inst.has(M::relinquish_alloc_permit) => l.relinquish(),
            () if inst.has(M::ld) => l.load_tensor(inst),
            () if inst.has(M::st) => l.store_tensor(inst),
            () if inst.has_prefix("wait::st") => {
                l.together();
                l.b.inst(Opcode::FENCE, &[Mod::VIEW, Mod::ASYNC, Mod::T], &[]);
                Ok(())
            }
            // What is loaded is there; what follows may overwrite it.
            () if inst.has_prefix("wait::ld") || inst.has_prefix("fence::") => {
                let all = [Operand::ScoreboardSet(0), Operand::Imm(0), Operand::ScoreboardSet(0x3f)];
                l.b.inst(Opcode::DEPBAR, &[], &all);
                Ok(())
            }
            () if inst.has(M::commit) => l.commit_tensor(inst),
            () if inst.has(M::mma) => l.multiply_tensor(inst),
            () if inst.has(M::cp) => l.copy_to_tensor(inst),
            () if inst.has(M::shift) => l.shift_tensor(inst),
            () => l.unsupported(inst),
        })
    }

    /// All lanes come together, as at `bar.warp.sync`: so ptxas has it before and after columns are taken or given back.
    fn meet_apart(&mut self) {
        self.together();
        access::stay_apart(&mut self.b);
    }

    /// All lanes come together.
    fn together(&mut self) {
        self.b.guarded(ALWAYS, Opcode::WARPSYNC, &[], &[pt(), imm(!0)], &[]);
    }

    /// Where the words begin that say what is given out, as 32-bit shared addresses see it: a register and bytes behind it. In objects the
    /// linker says it; else they stand, on sm_110, behind a variable of the driver's, as the writer of files has it, too
    /// (`cubin`, which knows no targets; a test holds the two to each other).
    fn partition(&mut self) -> (Value, i32) {
        let window = self.shared_window().map_or_else(rz, operand);
        if self.opts.relocatable {
            let at = self.named_part(Part::Shared, WORDS.into());
            return (self.b.iadd(window, operand(at)), 0);
        }
        (self.b.reg(&window), if self.sm() == 110 { 0xc0 } else { 0x40 })
    }

    /// A word of the block's own shared memory.
    pub(crate) fn reserved_word(&mut self, at: i32) -> Operand {
        let (base, start) = self.partition();
        access::Address { base: Some(Name::Val(base)), wide: false, offset: start + at }.operand(None)
    }

    pub(crate) fn branch(&mut self, cond: Value, then: ori::Block, other: ori::Block) {
        self.b.terminate(Terminator::Branch {
            cond: cond.into(),
            not: false,
            taken: Builder::call(then),
            fall: Builder::call(other),
        });
    }

    /// A single lane.
    fn elected(&mut self) -> Value {
        let chosen = self.b.func.add_value(RegFile::P, 1);
        self.b.inst(Opcode::ELECT, &[], &[operand(chosen), urz(), pt()]);
        chosen
    }

    /// A word in a uniform register; it is the same in all lanes.
    fn uniform_one(&mut self, word: &Operand) -> Value {
        if as_imm(word).is_some() {
            return self.b.def_macro(Macro::Copy, RegFile::UR, 1, std::slice::from_ref(word));
        }
        let word = self.b.reg(word);
        self.b.def(Opcode::R2UR, &[], &[operand(word)])
    }

    fn change_reserved(&mut self, at: i32, op: Mod, bits: Operand) {
        let address = self.reserved_word(at);
        let bits = operand(self.b.reg(&bits));
        let mods: &'static [Mod] = match op {
            Mod::OR => &[Mod::OR],
            Mod::XOR => &[Mod::XOR],
            _ => &[Mod::AND],
        };
        let change = Atomic { space: Space::Shared, op: AtomOp::Arith(mods), words: 1, scope: Scope::Cta };
        access::atom(&mut self.b, &change, address, &[bits], ALWAYS, None);
    }

    /// The address that the first column goes to, and the number of slots.
    fn asked_columns(&mut self, inst: &Statement<'_>) -> Result<(Operand, Operand)> {
        let to = self.addr_operand(&inst.operands[0])?;
        let to = self.address(inst, to, Space::Shared, false)?;
        let columns = self.src(&inst.operands[1], Ty::U32)?.low();
        Ok((to, columns))
    }

    fn slots(&mut self, columns: Operand) -> Operand {
        match as_imm(&columns) {
            Some(n) => imm(n >> 5),
            None => operand(self.b.shr(false, columns, imm(5))),
        }
    }

    /// Goes to `done` with a trap where the block said that it takes no more.
    fn refuse_after_relinquishing(&mut self, to: Operand, done: ori::Block) {
        let flag = self.reserved_word(RELINQUISHED);
        let flag = access::load(&mut self.b, &shared(1), flag, ALWAYS, None);
        let refused = self.b.isetp(Mod::NE, false, operand(flag), rz());
        let [misuse, ask] = [(); 2].map(|()| self.b.func.add_block());
        self.branch(refused, misuse, ask);
        self.b.block = misuse;
        let nowhere = operand(self.b.reg(&imm(!0)));
        access::store(&mut self.b, &shared(4), to, nowhere, ALWAYS);
        self.misused(Check::Phase);
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = ask;
    }

    /// One thread asks for slots until it gets them: the first.
    fn find_slots(&mut self, slots: &Operand, mods: &[Mod]) -> Operand {
        let [attempt, found, later] = [(); 3].map(|()| self.b.func.add_block());
        self.b.terminate(Terminator::Jump(Builder::call(attempt)));
        self.b.block = attempt;
        let count = self.uniform_one(slots);
        let (got, first) = (self.b.func.add_value(RegFile::UP, 1), self.b.func.add_value(RegFile::UR, 1));
        self.b.inst(
            Opcode::DEPBAR,
            &[Mod::LE],
            &[Operand::Scoreboard(0), Operand::Imm(0x36), Operand::ScoreboardSet(0)],
        );
        self.b.inst(Opcode::UTCATOMSWS_FIND, mods, &[operand(got), operand(first), operand(count)]);
        // One in the second source, where an immediate may stand.
        let missed = crate::emit::not(got);
        let got = self.b.def(Opcode::USEL, &[], &[urz(), Operand::Imm(1), missed]);
        let (got, first) = (self.b.copy(operand(got)), self.b.copy(operand(first)));
        let got = self.b.isetp(Mod::NE, false, operand(got), rz());
        self.branch(got, found, later);
        self.b.block = later;
        self.b.inst(Opcode::NANOSLEEP, &[], &[Operand::Imm(RETRY)]);
        self.b.terminate(Terminator::Jump(Builder::call(attempt)));
        self.b.block = found;
        operand(first)
    }

    /// Notes in the system's words which slots are taken.
    fn note_slots(&mut self, first: Operand, slots: Operand) {
        let bits = match as_imm(&slots) {
            Some(n) => operand(self.b.reg(&imm(((1u64 << n.min(32)) - 1) as u32))),
            None => {
                let one = operand(self.b.reg(&imm(1)));
                let above = self.b.shl(one, slots);
                operand(self.b.iadd(operand(above), imm(!0)))
            }
        };
        let taken = self.b.shl(bits, first);
        let one = operand(self.b.reg(&imm(1)));
        let start = self.b.shl(one, first);
        self.change_reserved(TAKEN, Mod::OR, operand(taken));
        self.change_reserved(STARTS, Mod::OR, operand(start));
    }

    fn take_columns(&mut self, inst: &Statement<'_>) -> Result<()> {
        let (to, columns) = self.asked_columns(inst)?;
        self.check_tensor_memory(Deed::Take, &Facts::of(&[], columns))?;
        self.meet_apart();
        let [alone, done] = [(); 2].map(|()| self.b.func.add_block());
        self.refuse_after_relinquishing(to, done);
        let slots = self.slots(columns);
        let one = self.elected();
        self.branch(one, alone, done);
        self.b.block = alone;
        let first = self.find_slots(&slots, &[Mod::FIND_AND_SET, Mod::ALIGN]);
        self.note_slots(first, slots);
        let column = operand(self.b.shl(first, imm(5)));
        access::store(&mut self.b, &shared(4), to, column, ALWAYS);
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = done;
        self.meet_apart();
        Ok(())
    }

    /// The same columns of both blocks of a pair. The one of even rank finds them and sends the first slot to the other, whose
    /// barrier counts the bytes; the other answers at the barrier of the first, so that neither is a turn ahead.
    fn take_columns_of_pair(&mut self, inst: &Statement<'_>) -> Result<()> {
        let (to, columns) = self.asked_columns(inst)?;
        self.check_tensor_memory(Deed::Take, &Facts::of(&[], columns))?;
        self.meet_apart();
        let [even, odd, alone_even, alone_odd, done] = [(); 5].map(|()| self.b.func.add_block());
        self.refuse_after_relinquishing(to, done);
        let slots = self.slots(columns);
        let rank = self.b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_CgaCtaId)]);
        let peer = self.b.lop3(operand(rank), imm(1), rz(), 0x3c);
        let parity = self.b.and(operand(rank), imm(1));
        let first_of_pair = self.b.isetp(Mod::NE, false, operand(parity), imm(1));
        let Operand::Addr { base, offset, .. } = to else { return self.unsupported(inst) };
        let base = base.map_or_else(rz, operand);
        let place = if offset == 0 { self.b.reg(&base) } else { self.b.iadd(base, imm(offset as u32)) };
        let (words, start) = self.partition();
        let turn = self.b.iadd(operand(words), imm((start + TURN) as u32));
        let theirs = |l: &mut Self, word: Value| l.b.prmt(operand(peer), imm(0x654), operand(word));
        self.branch(first_of_pair, even, odd);

        self.b.block = even;
        let one = self.elected();
        self.branch(one, alone_even, done);
        self.b.block = alone_even;
        let first = self.find_slots(&slots, &[Mod::_2CTA, Mod::FIND_AND_SET, Mod::ALIGN]);
        self.wait_for_turn();
        let (their_turn, their_place) = (theirs(self, turn), theirs(self, place));
        let bytes = operand(self.b.reg(&imm(4)));
        let arrive = [Mod::ARRIVE, Mod::TRANS64, Mod::RED];
        self.b.inst(Opcode::SYNCS_ARRIVE, &arrive, &[rz(), Self::turn_at(their_turn, 0), bytes]);
        let column = operand(self.b.shl(first, imm(5)));
        access::store(&mut self.b, &shared(4), to, column, ALWAYS);
        let there = self.b.collect(&[operand(their_place), operand(their_turn)]);
        let there = Operand::Addr {
            desc: None,
            base: Some(Name::Val(there)),
            width: sass::AddrWidth::R64,
            uniform: None,
            offset: 0,
        };
        self.b.inst(Opcode::STAS, &[], &[there, first]);
        self.note_slots(first, slots);
        self.count_turn();
        self.b.terminate(Terminator::Jump(Builder::call(done)));

        self.b.block = odd;
        self.together();
        let one = self.elected();
        self.branch(one, alone_odd, done);
        self.b.block = alone_odd;
        self.wait_for_turn();
        let first = access::load(&mut self.b, &shared(4), to, ALWAYS, None);
        let first = operand(first);
        let their_turn = theirs(self, turn);
        let column = operand(self.b.shl(first, imm(5)));
        access::store(&mut self.b, &shared(4), to, column, ALWAYS);
        self.note_slots(first, slots);
        let answer = [Mod::ARRIVE, Mod::TRANS64, Mod::RED, Mod::A1T0];
        self.b.inst(Opcode::SYNCS_ARRIVE, &answer, &[rz(), Self::turn_at(their_turn, 0), rz()]);
        self.count_turn();
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = done;
        self.meet_apart();
        Ok(())
    }

    /// A barrier at so many bytes from an address.
    fn turn_at(base: Value, offset: i32) -> Operand {
        Operand::Addr {
            desc: None,
            base: Some(Name::Val(base)),
            width: sass::AddrWidth::R32,
            uniform: Some(Name::Phys(Reg::URZ)),
            offset,
        }
    }

    /// Waits until the other block of the pair has had its turn.
    fn wait_for_turn(&mut self) {
        let turns = self.reserved_word(TURNS);
        let turns = access::load(&mut self.b, &shared(4), turns, ALWAYS, None);
        let phase = operand(self.b.shl(operand(turns), imm(31)));
        let (words, start) = self.partition();
        let at = Self::turn_at(words, start + TURN);
        let (once, again) = ([Mod::PHASECHK, Mod::TRANS64], [Mod::PHASECHK, Mod::TRANS64, Mod::TRYWAIT]);
        let [slow, over] = [(); 2].map(|()| self.b.func.add_block());
        let there = self.b.def_pred(Opcode::SYNCS_PHASECHK, &again, &[at, phase]);
        self.branch(there, over, slow);
        self.b.block = slow;
        let there = self.b.def_pred(Opcode::SYNCS_PHASECHK, &again, &[at, phase]);
        let guard = ori::Guard { pred: Name::Val(there), not: true };
        self.b.guarded(guard, Opcode::NANOSLEEP, &[Mod::SYNCS], &[imm(WAIT)], &[]);
        let later = self.b.func.add_value(RegFile::P, 1);
        let operands = [operand(later), at, phase];
        self.b.guarded(guard, Opcode::SYNCS_PHASECHK, &once, &operands, &[Name::Val(there)]);
        self.branch(later, over, slow);
        self.b.block = over;
    }

    fn count_turn(&mut self) {
        self.change_reserved(TURNS, Mod::XOR, imm(1));
    }

    /// `tcgen05.shift`: rows of a matrix move down by one.
    fn shift_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let at = self.tensor_address(&inst.operands[0])?;
        self.check_tensor_memory(Deed::Shift, &Facts::of(&[(At::Address, at)], imm(0)))?;
        let mut mods = if inst.has(M::cta_group_2) { vec![Mod::_2CTA] } else { vec![] };
        inst.has(M::down);
        mods.push(Mod::DOWN);
        self.one_by_one(&[at], |l, u, _| {
            l.b.inst(Opcode::UTCSHIFT, &mods, &[Self::uniform_address(u[0])]);
            Ok(())
        })
    }

    fn give_columns_back(&mut self, inst: &Statement<'_>) -> Result<()> {
        let at = self.src(&inst.operands[0], Ty::U32)?.low();
        let columns = self.src(&inst.operands[1], Ty::U32)?.low();
        self.check_tensor_memory(Deed::GiveBack, &Facts::of(&[(At::Address, at)], columns))?;
        self.meet_apart();
        let column = self.b.and(at, imm(0xffff));
        let slot = self.b.shr(false, operand(column), imm(5));
        let bits = match as_imm(&columns) {
            Some(n) => operand(self.b.reg(&imm(((1u64 << (n >> 5).min(32)) - 1) as u32))),
            None => {
                let slots = self.b.shr(false, columns, imm(5));
                let one = operand(self.b.reg(&imm(1)));
                let above = self.b.shl(one, operand(slots));
                operand(self.b.iadd(operand(above), imm(!0)))
            }
        };
        let mine = self.b.shl(bits, operand(slot));
        let one = operand(self.b.reg(&imm(1)));
        let start = self.b.shl(one, operand(slot));
        let [other, check, free, alone, done] = [(); 5].map(|()| self.b.func.add_block());
        // A trap that has no name is one for both.
        let inside = if self.opts.extra.tensor_checks { self.b.func.add_block() } else { other };
        for (at, bits, misuse, next) in [(TAKEN, mine, other, check), (STARTS, start, inside, free)] {
            let word = self.reserved_word(at);
            let word = access::load(&mut self.b, &shared(4), word, ALWAYS, None);
            let have = self.b.and(operand(word), operand(bits));
            let all = self.b.isetp(Mod::EQ, false, operand(have), operand(bits));
            self.branch(all, next, misuse);
            self.b.block = next;
        }
        let kept = self.b.lop3(operand(mine), rz(), rz(), 0x0f);
        let starts = self.b.lop3(operand(start), rz(), rz(), 0x0f);
        let mask = self.uniform_one(&operand(kept));
        self.b.inst(Opcode::UTCATOMSWS, &[Mod::AND], &[urz(), operand(mask)]);
        let chosen = self.elected();
        self.branch(chosen, alone, done);
        self.b.block = alone;
        self.change_reserved(TAKEN, Mod::AND, operand(kept));
        self.change_reserved(STARTS, Mod::AND, operand(starts));
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = other;
        self.misused(Check::GivenBack);
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        if inside != other {
            self.b.block = inside;
            self.misused(Check::FirstGivenBack);
            self.b.terminate(Terminator::Jump(Builder::call(done)));
        }
        self.b.block = done;
        self.meet_apart();
        Ok(())
    }

    fn relinquish(&mut self) -> Result<()> {
        self.together();
        let chosen = self.elected();
        self.b.inst(Opcode::UVIRTCOUNT, &[Mod::DEALLOC, Mod::SMPOOL], &[Operand::Imm(0x80)]);
        let [alone, done] = [(); 2].map(|()| self.b.func.add_block());
        self.branch(chosen, alone, done);
        self.b.block = alone;
        let flag = self.reserved_word(RELINQUISHED);
        let one = operand(self.b.reg(&imm(1)));
        access::store(&mut self.b, &shared(1), flag, one, ALWAYS);
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = done;
        Ok(())
    }

    /// An address of tensor memory.
    pub(crate) fn tensor_address(&mut self, o: &ptx::Operand) -> Result<Operand> {
        let a = self.addr_operand(o)?;
        let base = match a.base {
            ptx::AddrBase::Reg(r) => {
                let v = self.read(r);
                self.value_src(v).low()
            }
            ptx::AddrBase::Absolute => rz(),
            ptx::AddrBase::Var(_) => return Err("tensor memory has no variables".into()),
        };
        Ok(if a.offset == 0 { base } else { operand(self.b.iadd(base, imm(a.offset as u32))) })
    }

    /// The modifiers of a load or store, the last one for its lower and its upper half, whether it is of two halves, and the columns of
    /// each.
    fn tensor_shape(&self, inst: &Statement<'_>, halves: Option<Mod>) -> Result<(Vec<Mod>, bool, u32)> {
        let shape = inst.find(|m| {
            Some(match m.name() {
                "32x32b" => (None, 1),
                "16x64b" => (Some(Mod::_16dp64bit), 2),
                "16x128b" => (Some(Mod::_16dp128bit), 4),
                "16x256b" => (Some(Mod::_16dp256bit), 8),
                "16x32bx2" => (Some(Mod::_16dp32bit_t0_t15), 1),
                _ => return None,
            })
        });
        let Some((shape, columns)) = shape else { return self.unsupported(inst) };
        let count = inst.find(|m| {
            Some(match m.name() {
                "x1" => (None, 1),
                "x2" => (Some(Mod::x2), 2),
                "x4" => (Some(Mod::x4), 4),
                "x8" => (Some(Mod::x8), 8),
                "x16" => (Some(Mod::x16), 16),
                "x32" => (Some(Mod::x32), 32),
                "x64" => (Some(Mod::x64), 64),
                "x128" => (Some(Mod::x128), 128),
                _ => return None,
            })
        });
        let Some((count, times)) = count else { return self.unsupported(inst) };
        let split = shape == Some(Mod::_16dp32bit_t0_t15);
        let columns = columns * times * if halves.is_some() { 2 } else { 1 };
        Ok((shape.into_iter().chain(count).chain(halves).collect(), split, columns))
    }

    fn second_half(mods: &[Mod]) -> Vec<Mod> {
        let other = |m: &Mod| if *m == Mod::_16dp32bit_t0_t15 { Mod::_16dp32bit_t16_t31 } else { *m };
        mods.iter().map(other).collect()
    }

    fn load_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let halves = inst.has_prefix("pack::16b").then_some(Mod::PACK16BIT);
        let (mods, split, columns) = self.tensor_shape(inst, halves)?;
        let at = self.tensor_address(&inst.operands[1])?;
        self.check_tensor_memory(Deed::Move, &Facts::of(&[(At::Address, at)], imm(columns)))?;
        let count = match &inst.operands[0] {
            ptx::Operand::Vector(v) => v.len() as u8,
            _ => 1,
        };
        self.together();
        let load = |l: &mut Self, mods: &[Mod], at: &Operand| {
            let from = l.uniform_one(at);
            let value = l.b.func.add_value(RegFile::R, count);
            l.b.inst(Opcode::LDTM, mods, &[operand(value), Self::uniform_address(from)]);
            super::matrix::words_of(value, count)
        };
        let mut words = load(self, &mods, &at);
        if split {
            let more = self.src(&inst.operands[2], Ty::U32)?.low();
            let at = operand(self.b.iadd(at, more));
            let upper = load(self, &Self::second_half(&mods), &at);
            let lane = self.b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_LANEID)]);
            let low = self.b.isetp(Mod::LT, false, operand(lane), imm(16));
            words =
                words.into_iter().zip(upper).map(|(a, b)| operand(self.b.sel(operand(low), a, b))).collect();
        }
        self.write_words(&inst.operands[0], &words)
    }

    fn store_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let halves = inst.has_prefix("unpack::16b").then_some(Mod::EXPAND16BIT);
        let (mods, split, columns) = self.tensor_shape(inst, halves)?;
        let at = self.tensor_address(&inst.operands[0])?;
        self.check_tensor_memory(Deed::Move, &Facts::of(&[(At::Address, at)], imm(columns)))?;
        let elems: Vec<VectorElem> = match inst.operands.last() {
            Some(ptx::Operand::Vector(v)) => v.to_vec(),
            Some(ptx::Operand::Reg(r)) => vec![VectorElem::Reg(*r)],
            _ => return self.unsupported(inst),
        };
        let mut words = Vec::new();
        for e in &elems {
            words.push(self.elem(e, Ty::B32)?.low());
        }
        self.together();
        let data = match &words[..] {
            [one] => operand(self.b.reg(one)),
            many => operand(self.b.collect(many)),
        };
        let to = self.uniform_one(&at);
        self.b.inst(Opcode::STTM, &mods, &[Self::uniform_address(to), data]);
        if split {
            let more = self.src(&inst.operands[1], Ty::U32)?.low();
            let at = operand(self.b.iadd(at, more));
            let to = self.uniform_one(&at);
            self.b.inst(Opcode::STTM, &Self::second_half(&mods), &[Self::uniform_address(to), data]);
        }
        Ok(())
    }

    /// A matrix in shared memory becomes columns of tensor memory.
    fn copy_to_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let halves = inst.find(|m| m.name().strip_prefix("warpx"));
        let shape = inst.find(|m| {
            Some(match m.name() {
                "128x256b" => (None, 8),
                "4x256b" => (Some(Mod::_4dp256bit), 8),
                "128x128b" => (Some(Mod::_128dp128bit), 4),
                "64x128b" if halves == Some("2::02_13") => (Some(Mod::_2x64dp128bit_lw02_lw13), 4),
                "64x128b" if halves == Some("2::01_23") => (Some(Mod::_2x64dp128bit_lw01_lw23), 4),
                "32x128b" if halves == Some("4") => (Some(Mod::_4x32dp128bit), 4),
                _ => return None,
            })
        });
        let Some((shape, columns)) = shape else { return self.unsupported(inst) };
        inst.has_prefix("b8x16");
        let format = inst.find(|m| match m.name() {
            n if n.ends_with("b6x16_p32") => Some(Mod::U6x16P32),
            n if n.ends_with("b4x16_p64") => Some(Mod::U4x16P64),
            _ => None,
        });
        let pair = inst.has(M::cta_group_2).then_some(Mod::_2CTA);
        let mods: Vec<Mod> = [Mod::T, Mod::S].into_iter().chain(pair).chain(shape).chain(format).collect();
        let to = self.tensor_address(&inst.operands[0])?;
        self.check_tensor_memory(Deed::Copy, &Facts::of(&[(At::Address, to)], imm(columns)))?;
        let from = self.src(&inst.operands[1], Ty { bits: 64, ..Ty::B32 })?.pair();
        self.one_by_one(&[to, from.lo, from.hi], |l, u, _| {
            let from = l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[1]), operand(u[2])]);
            l.b.inst(Opcode::UTCCP, &mods, &[Self::uniform_address(u[0]), Self::uniform_address(from)]);
            Ok(())
        })
    }

    fn commit_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        inst.has_prefix("mbarrier::arrive::one");
        let barrier = self.addr_operand(&inst.operands[0])?;
        let barrier = self.shared_word(barrier)?;
        let pair = inst.has(M::cta_group_2).then_some(Mod::_2CTA);
        if inst.has(M::multicast_cluster) {
            let blocks = self.src(&inst.operands[1], Ty { bits: 16, ..Ty::B32 })?.low();
            let blocks = operand(self.b.and(blocks, imm(0xffff)));
            let mods: Vec<Mod> = pair.into_iter().chain([Mod::MULTICAST]).collect();
            return self.one_by_one(&[barrier, blocks], |l, u, _| {
                let operands = [Self::uniform_address(u[0]), urz(), operand(u[1])];
                l.b.inst(Opcode::UTCBAR, &mods, &operands);
                Ok(())
            });
        }
        self.one_by_one(&[barrier], |l, u, _| {
            l.b.inst(Opcode::UTCBAR, pair.as_slice(), &[Self::uniform_address(u[0]), urz(), urz()]);
            Ok(())
        })
    }
}
