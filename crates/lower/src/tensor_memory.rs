//! `tcgen05` of one block: tensor memory is given out by code over words of shared memory that the system keeps, as ptxas
//! 13.0.88 does it; loads and stores are of a warp, products of one thread each.
//!
//! Pairs of blocks (`.cta_group::2`), shifts, lanes that are disabled and masks of columns are not supported yet.

use crate::access::{self, Access, AtomOp, Atomic, Order, Scope, Space};
use crate::emit::{Emit, as_imm, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Builder, Macro, Name, Operand, Terminator, Value, operand};
use ptx::{Mod as M, VectorElem};
use sass::{Mod, Opcode, Reg, RegFile, SpecialReg};

/// Where the words begin in shared memory that say what is given out.
const PARTITION: i32 = 0x40;
/// The slots of 32 columns that are given out, one bit each.
const TAKEN: i32 = PARTITION + 0x14;
/// Those at which an allocation begins.
const STARTS: i32 = PARTITION + 0x18;
/// Whether the block may take no more.
const RELINQUISHED: i32 = PARTITION + 0x1c;
/// Nanoseconds until a block asks again for columns that others have.
const RETRY: u32 = 0x64;

/// An access of so many bytes to shared memory.
fn shared(size: u8) -> Access {
    Access {
        space: Space::Shared,
        size,
        signed: false,
        order: Order::Weak,
        mmio: false,
        evict: None,
        prefetch: None,
        constant: false,
    }
}

fn urz() -> Operand {
    operand(Name::Phys(Reg::URZ))
}

impl Lower<'_, '_> {
    /// `tcgen05`.
    pub(crate) fn tensor_memory(&mut self, inst: &Statement<'_>) -> Result<()> {
        // On sm_110 the words that say what is given out lie elsewhere, behind others that nothing is known of.
        let gives_out = [M::alloc, M::dealloc, M::relinquish_alloc_permit];
        let elsewhere = self.sm() == 110 && gives_out.iter().any(|m| inst.plain.has(*m));
        if self.opts.relocatable || elsewhere || inst.plain.has(M::cta_group_2) {
            return self.unsupported(inst);
        }
        inst.moot(&[M::cta_group_1, M::b32, M::b64, M::shared_cta, M::shared_cluster]);
        self.branch_around(|l| match () {
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
            () => l.unsupported(inst),
        })
    }

    /// All lanes come together.
    fn together(&mut self) {
        self.b.guarded(ALWAYS, Opcode::WARPSYNC, &[], &[pt(), imm(!0)], &[]);
    }

    /// A word of the block's own shared memory.
    fn reserved_word(&mut self, at: i32) -> Operand {
        let base = self.shared_window().map(Name::Val);
        access::Address { base, wide: false, offset: at }.operand(None)
    }

    fn branch(&mut self, cond: Value, then: ori::Block, other: ori::Block) {
        self.b.terminate(Terminator::Branch {
            cond: cond.into(),
            not: false,
            taken: Builder::call(then),
            fall: Builder::call(other),
        });
    }

    /// Reports misuse, as ptxas's code does.
    fn trap(&mut self) {
        self.b.inst(Opcode::BPT, &[Mod::TRAP], &[Operand::Imm(1)]);
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
            _ => &[Mod::AND],
        };
        let change = Atomic { space: Space::Shared, op: AtomOp::Arith(mods), words: 1, scope: Scope::Cta };
        access::atom(&mut self.b, &change, address, &[bits], ALWAYS, None);
    }

    fn take_columns(&mut self, inst: &Statement<'_>) -> Result<()> {
        let to = self.addr_operand(&inst.operands[0])?;
        let to = self.address(inst, to, Space::Shared, false)?;
        let columns = self.src(&inst.operands[1], Ty::U32)?.low();
        self.together();
        let flag = self.reserved_word(RELINQUISHED);
        let flag = access::load(&mut self.b, &shared(1), flag, ALWAYS, None);
        let refused = self.b.isetp(Mod::NE, false, operand(flag), rz());
        let [misuse, ask, attempt, found, later, done] = [(); 6].map(|()| self.b.func.add_block());
        self.branch(refused, misuse, ask);
        self.b.block = misuse;
        let nowhere = operand(self.b.reg(&imm(!0)));
        access::store(&mut self.b, &shared(4), to, nowhere, ALWAYS);
        self.trap();
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = ask;
        let slots = match as_imm(&columns) {
            Some(n) => imm(n >> 5),
            None => operand(self.b.shr(false, columns, imm(5))),
        };
        let one = self.elected();
        self.branch(one, attempt, done);
        self.b.block = attempt;
        let count = self.uniform_one(&slots);
        let (got, first) = (self.b.func.add_value(RegFile::UP, 1), self.b.func.add_value(RegFile::UR, 1));
        self.b.inst(
            Opcode::DEPBAR,
            &[Mod::LE],
            &[Operand::Scoreboard(0), Operand::Imm(0x36), Operand::ScoreboardSet(0)],
        );
        self.b.inst(
            Opcode::UTCATOMSWS_FIND,
            &[Mod::FIND_AND_SET, Mod::ALIGN],
            &[operand(got), operand(first), operand(count)],
        );
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
        let bits = match as_imm(&slots) {
            Some(n) => operand(self.b.reg(&imm(((1u64 << n.min(32)) - 1) as u32))),
            None => {
                let one = operand(self.b.reg(&imm(1)));
                let above = self.b.shl(one, slots);
                operand(self.b.iadd(operand(above), imm(!0)))
            }
        };
        let taken = self.b.shl(bits, operand(first));
        let one = operand(self.b.reg(&imm(1)));
        let start = self.b.shl(one, operand(first));
        self.change_reserved(TAKEN, Mod::OR, operand(taken));
        self.change_reserved(STARTS, Mod::OR, operand(start));
        let column = operand(self.b.shl(operand(first), imm(5)));
        access::store(&mut self.b, &shared(4), to, column, ALWAYS);
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = done;
        self.together();
        Ok(())
    }

    fn give_columns_back(&mut self, inst: &Statement<'_>) -> Result<()> {
        let at = self.src(&inst.operands[0], Ty::U32)?.low();
        let columns = self.src(&inst.operands[1], Ty::U32)?.low();
        self.together();
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
        let [misuse, check, free, alone, done] = [(); 5].map(|()| self.b.func.add_block());
        for (at, bits, next) in [(TAKEN, mine, check), (STARTS, start, free)] {
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
        self.b.block = misuse;
        self.trap();
        self.b.terminate(Terminator::Jump(Builder::call(done)));
        self.b.block = done;
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
    fn tensor_address(&mut self, o: &ptx::Operand) -> Result<Operand> {
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

    /// The modifiers of a load or store, the last one for its lower and its upper half.
    fn tensor_shape(&self, inst: &Statement<'_>, halves: Option<Mod>) -> Result<(Vec<Mod>, bool)> {
        let shape = inst.find(|m| {
            Some(match m.name() {
                "32x32b" => None,
                "16x64b" => Some(Mod::_16dp64bit),
                "16x128b" => Some(Mod::_16dp128bit),
                "16x256b" => Some(Mod::_16dp256bit),
                "16x32bx2" => Some(Mod::_16dp32bit_t0_t15),
                _ => return None,
            })
        });
        let Some(shape) = shape else { return self.unsupported(inst) };
        let count = inst.find(|m| {
            Some(match m.name() {
                "x1" => None,
                "x2" => Some(Mod::x2),
                "x4" => Some(Mod::x4),
                "x8" => Some(Mod::x8),
                "x16" => Some(Mod::x16),
                "x32" => Some(Mod::x32),
                "x64" => Some(Mod::x64),
                "x128" => Some(Mod::x128),
                _ => return None,
            })
        });
        let Some(count) = count else { return self.unsupported(inst) };
        let split = shape == Some(Mod::_16dp32bit_t0_t15);
        Ok((shape.into_iter().chain(count).chain(halves).collect(), split))
    }

    fn second_half(mods: &[Mod]) -> Vec<Mod> {
        let other = |m: &Mod| if *m == Mod::_16dp32bit_t0_t15 { Mod::_16dp32bit_t16_t31 } else { *m };
        mods.iter().map(other).collect()
    }

    fn load_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let halves = inst.has_prefix("pack::16b").then_some(Mod::PACK16BIT);
        let (mods, split) = self.tensor_shape(inst, halves)?;
        let at = self.tensor_address(&inst.operands[1])?;
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
        let (mods, split) = self.tensor_shape(inst, halves)?;
        let at = self.tensor_address(&inst.operands[0])?;
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
                "128x256b" => None,
                "4x256b" => Some(Mod::_4dp256bit),
                "128x128b" => Some(Mod::_128dp128bit),
                "64x128b" if halves == Some("2::02_13") => Some(Mod::_2x64dp128bit_lw02_lw13),
                "64x128b" if halves == Some("2::01_23") => Some(Mod::_2x64dp128bit_lw01_lw23),
                "32x128b" if halves == Some("4") => Some(Mod::_4x32dp128bit),
                _ => return None,
            })
        });
        let Some(shape) = shape else { return self.unsupported(inst) };
        inst.has_prefix("b8x16");
        let format = inst.find(|m| match m.name() {
            n if n.ends_with("b6x16_p32") => Some(Mod::U6x16P32),
            n if n.ends_with("b4x16_p64") => Some(Mod::U4x16P64),
            _ => None,
        });
        let mods: Vec<Mod> = [Mod::T, Mod::S].into_iter().chain(shape).chain(format).collect();
        let to = self.tensor_address(&inst.operands[0])?;
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
        if inst.has(M::multicast_cluster) {
            let blocks = self.src(&inst.operands[1], Ty { bits: 16, ..Ty::B32 })?.low();
            let blocks = operand(self.b.and(blocks, imm(0xffff)));
            return self.one_by_one(&[barrier, blocks], |l, u, _| {
                let operands = [Self::uniform_address(u[0]), urz(), operand(u[1])];
                l.b.inst(Opcode::UTCBAR, &[Mod::MULTICAST], &operands);
                Ok(())
            });
        }
        self.one_by_one(&[barrier], |l, u, _| {
            l.b.inst(Opcode::UTCBAR, &[], &[Self::uniform_address(u[0]), urz(), urz()]);
            Ok(())
        })
    }

    /// The modifiers of a product that say what stays in collectors, whether it is weight-stationary, and whether A's rows
    /// move on.
    fn product_mods(&self, inst: &Statement<'_>) -> Result<Vec<Mod>> {
        let kept = match inst.find(|m| m.name().strip_prefix("collector::a::")) {
            None | Some("discard") => vec![],
            Some("fill") => vec![Mod::A_A_KEEP],
            Some("lastuse") => vec![Mod::A_A_REUSE],
            Some("use") => vec![Mod::A_A_REUSE, Mod::A_KEEP],
            _ => return self.unsupported(inst),
        };
        let mut mods = if inst.has(M::ashift) { vec![Mod::ASHIFT] } else { vec![] };
        mods.extend(kept);
        if inst.has(M::ws) {
            mods.push(Mod::WS);
            let Some((buffer, use_of)) = inst
                .find(|m| m.name().strip_prefix("collector::b").map(|b| b.split_once("::")))
                .unwrap_or(Some(("0", "discard")))
            else {
                return self.unsupported(inst);
            };
            mods.extend(match use_of {
                "discard" => &[][..],
                "fill" => &[Mod::B_B_KEEP],
                "lastuse" => &[Mod::B_B_REUSE],
                "use" => &[Mod::B_B_REUSE, Mod::B_KEEP],
                _ => return self.unsupported(inst),
            });
            // The first of the words begins with `B:`.
            mods.extend(match (buffer, use_of == "discard") {
                ("0", _) => None,
                ("1", true) => Some(Mod::B_BUFFER1),
                ("2", true) => Some(Mod::B_BUFFER2),
                ("3", true) => Some(Mod::B_BUFFER3),
                ("1", false) => Some(Mod::BUFFER1),
                ("2", false) => Some(Mod::BUFFER2),
                ("3", false) => Some(Mod::BUFFER3),
                _ => return self.unsupported(inst),
            });
        }
        Ok(mods)
    }

    fn multiply_tensor(&mut self, inst: &Statement<'_>) -> Result<()> {
        let scaled = inst.has(M::block_scale);
        // Of 4-bit elements, a factor for each 16 columns of A; else their number follows from the kind.
        let by_16 = inst.has_prefix("block16") | inst.has_prefix("scale_vec::4X");
        inst.has_prefix("block32");
        inst.has_prefix("scale_vec::");
        let mut words: Vec<Operand> = Vec::new();
        let d = self.tensor_address(&inst.operands[0])?;
        words.push(d);
        let in_tensor = matches!(inst.operands[1], ptx::Operand::Addr(_));
        let a = words.len();
        if in_tensor {
            let at = self.tensor_address(&inst.operands[1])?;
            words.push(at);
        } else {
            let pair = self.src(&inst.operands[1], Ty { bits: 64, ..Ty::B32 })?.pair();
            words.extend([pair.lo, pair.hi]);
        }
        let b = words.len();
        let pair = self.src(&inst.operands[2], Ty { bits: 64, ..Ty::B32 })?.pair();
        words.extend([pair.lo, pair.hi]);
        let e = words.len();
        // Whether there are metadata the descriptor says, not the instruction.
        let sparse = usize::from(inst.has(M::sp));
        let metadata = if sparse == 1 { self.tensor_address(&inst.operands[3])? } else { imm(0) };
        words.extend([metadata, self.src(&inst.operands[3 + sparse], Ty::U32)?.low()]);
        let more = words.len();
        let mut last = 4 + sparse;
        if scaled {
            let scales = [&inst.operands[last], &inst.operands[last + 1]];
            for at in scales {
                let at = self.tensor_address(at)?;
                words.push(at);
            }
            last += 2;
        }
        let weights = inst.plain.has(M::ws);
        let scale = match inst.operands.get(last + 1) {
            Some(ptx::Operand::Int(n)) if !weights && !scaled && (0..16).contains(n) => *n as u32,
            None => 0,
            _ => return self.unsupported(inst),
        };
        if inst.operands.len() > last + 2 || matches!(inst.operands[last], ptx::Operand::Vector(_)) {
            return self.unsupported(inst);
        }
        let kind = inst.find(|m| m.name().strip_prefix("kind::"));
        let op = match (kind, in_tensor, scaled) {
            (Some("f16" | "tf32"), false, false) => Opcode::UTCHMMA,
            (Some("f16" | "tf32"), true, false) => Opcode::UTCHMMA_T,
            (Some("i8"), false, false) => Opcode::UTCIMMA,
            (Some("i8"), true, false) => Opcode::UTCIMMA_T,
            (Some("f8f6f4"), false, false) => Opcode::UTCQMMA,
            (Some("f8f6f4"), true, false) => Opcode::UTCQMMA_T,
            (Some("mxf8f6f4"), false, true) => Opcode::UTCQMMA_SF,
            (Some("mxf8f6f4"), true, true) => Opcode::UTCQMMA_SF_T,
            (Some("mxf4" | "mxf4nvf4"), false, true) => Opcode::UTCOMMA,
            (Some("mxf4" | "mxf4nvf4"), true, true) => Opcode::UTCOMMA_T,
            _ => return self.unsupported(inst),
        };
        let mut mods = self.product_mods(inst)?;
        if by_16 {
            // Words of the instruction stand before those of its operands.
            mods.insert(0, if self.sm() == 103 { Mod::BLOCK16 } else { Mod::_4X });
        }
        // Whether D counts, as a number, so that it is that of the thread whose turn it is.
        let adds = words.len();
        let constant = match &inst.operands[last] {
            ptx::Operand::Int(n) => Some(*n != 0),
            o => {
                let p = match o {
                    ptx::Operand::Reg(r) => operand(self.read(*r)),
                    ptx::Operand::NotPred(r) => crate::emit::not(self.read(*r)),
                    _ => return self.unsupported(inst),
                };
                let one = operand(self.b.reg(&imm(1)));
                words.push(operand(self.b.sel(p, one, rz())));
                None
            }
        };
        self.one_by_one(&words, |l, u, _| {
            let pair = |l: &mut Self, at: usize| {
                l.b.def_macro(Macro::Collect, RegFile::UR, 2, &[operand(u[at]), operand(u[at + 1])])
            };
            let from = if in_tensor { u[a] } else { pair(l, a) };
            let (b, e) = (pair(l, b), pair(l, e));
            let adds = match constant {
                Some(yes) => {
                    Operand::Reg(sass::RegOp { not: !yes, ..sass::RegOp::plain(Name::Phys(Reg::UPT)) })
                }
                None => {
                    let p = l.b.func.add_value(RegFile::UP, 1);
                    let upt = operand(Name::Phys(Reg::UPT));
                    l.b.inst(
                        Opcode::UISETP,
                        &[Mod::NE, Mod::AND],
                        &[operand(p), upt, operand(u[adds]), urz(), upt, upt],
                    );
                    operand(p)
                }
            };
            let mut operands = vec![
                Self::uniform_address(from),
                Self::uniform_address(b),
                Self::uniform_address(u[0]),
                Self::uniform_address(e),
                Self::uniform_address(Name::Part(e, 1)),
            ];
            if scaled {
                let scales = pair(l, more);
                operands.extend([Self::uniform_address(scales), adds]);
            } else {
                operands.extend([urz(), adds, Operand::Imm(scale)]);
            }
            l.b.inst(op, &mods, &operands);
            Ok(())
        })
    }
}
