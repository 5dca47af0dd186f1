//! Short names for the instructions that the expansions use.

use ori::{BlockCall, Builder, Name, Operand, Terminator, Value, default_operand, operand};
use sass::{Mod, Opcode, Reg, RegFile, RegOp};
use smallvec::SmallVec;

/// RZ as an operand.
pub(super) fn rz() -> Operand {
    operand(Name::Phys(Reg::RZ))
}

/// The low (0) or high (1) register of a pair.
pub(super) fn part(v: Value, i: u8) -> Operand {
    operand(Name::Part(v, i))
}

/// `-x`
pub(super) fn neg(x: Operand) -> Operand {
    match x {
        Operand::Reg(r) => Operand::Reg(RegOp { neg: !r.neg, ..r }),
        other => other,
    }
}

/// `|x|`
pub(super) fn abs(x: Operand) -> Operand {
    match x {
        Operand::Reg(r) => Operand::Reg(RegOp { abs: true, ..r }),
        other => other,
    }
}

/// `!p` for a predicate, `~r` for a register.
pub(super) fn not(x: Operand) -> Operand {
    match x {
        Operand::Reg(r) => Operand::Reg(RegOp { not: !r.not, ..r }),
        other => other,
    }
}

/// `!PT`: no carry, a constant false.
pub(super) fn never() -> Operand {
    not(operand(Name::Phys(Reg::PT)))
}

/// The bits of a binary32 as an immediate.
pub(super) fn f32_imm(x: f32) -> Operand {
    Operand::Imm(x.to_bits())
}

/// The high half of a binary64 as an immediate; the low half must be zero.
pub(super) fn f64_imm(x: f64) -> Operand {
    debug_assert_eq!(x.to_bits() as u32, 0);
    Operand::Imm((x.to_bits() >> 32) as u32)
}

/// Truth tables of LOP3 over (a, b, c) = (0xf0, 0xcc, 0xaa).
pub(super) const A: u32 = 0xf0;
/// See [`A`].
pub(super) const B: u32 = 0xcc;
/// See [`A`].
pub(super) const C: u32 = 0xaa;

/// The instruction helpers.
pub(super) trait Asm {
    /// `a + b + c`
    fn iadd3(&mut self, a: Operand, b: Operand, c: Operand) -> Value;
    /// `a + b + c` and the carry out (of a sum with at most one carry).
    fn iadd3_carry(&mut self, a: Operand, b: Operand, c: Operand) -> (Value, Value);
    /// `a + b + carry`
    fn iadd_x(&mut self, a: Operand, b: Operand, carry: Value) -> Value;
    /// `a * b + c`
    fn imad(&mut self, a: Operand, b: Operand, c: Operand) -> Value;
    /// `a * b + c`, unsigned 32 × 32 + 64 → 64.
    fn imad_wide_u32(&mut self, a: Operand, b: Operand, c: Operand) -> Value;
    /// The upper half of `a * b`, unsigned.
    fn imad_hi_u32(&mut self, a: Operand, b: Operand) -> Value;
    /// A 64-bit zero extension of a register.
    fn zext(&mut self, lo: Operand) -> Value;
    /// Bitwise function `lut` of three operands.
    fn lop3(&mut self, a: Operand, b: Operand, c: Operand, lut: u32) -> Value;
    /// Integer comparison; `mods` begins with the relation and may hold U32.
    fn isetp(&mut self, mods: &[Mod], a: Operand, b: Operand) -> Value;
    /// `p ? a : b`
    fn sel(&mut self, a: Operand, b: Operand, p: Operand) -> Value;
    /// `p ? a : b`, 64-bit.
    fn sel64(&mut self, a: Value, b: Value, p: Value) -> Value;
    /// `a + b`, 64-bit.
    fn add64(&mut self, a: Value, b: Value) -> Value;
    /// `a - b`, 64-bit.
    fn sub64(&mut self, a: Value, b: Value) -> Value;
    /// Low 64 bits of `a * b`.
    fn mul64(&mut self, a: Value, b: Value) -> Value;
    /// Single-precision fused multiply-add.
    fn ffma(&mut self, mods: &[Mod], a: Operand, b: Operand, c: Operand) -> Value;
    /// Double-precision fused multiply-add.
    fn dfma(&mut self, a: Operand, b: Operand, c: Operand) -> Value;
    /// Branches to a new block where `p` holds and continues in another new one; returns
    /// (taken, fall-through), with the builder in neither.
    fn split(&mut self, p: Value) -> (ori::Block, ori::Block);
    /// Ends the block with a jump to `to`.
    fn jump(&mut self, to: ori::Block, args: &[Value]);
    /// A new block with one parameter of `width` registers.
    fn join(&mut self, width: u8) -> (ori::Block, Value);
}

impl Asm for Builder<'_> {
    fn iadd3(&mut self, a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::IADD3, &[], &[a, b, c, never(), never()])
    }

    fn iadd3_carry(&mut self, a: Operand, b: Operand, c: Operand) -> (Value, Value) {
        let sum = self.func.add_value(RegFile::R, 1);
        let carry = self.func.add_value(RegFile::P, 1);
        let unused = default_operand(Opcode::IADD3, 2);
        self.inst(Opcode::IADD3, &[], &[operand(sum), operand(carry), unused, a, b, c, never(), never()]);
        (sum, carry)
    }

    fn iadd_x(&mut self, a: Operand, b: Operand, carry: Value) -> Value {
        self.def(Opcode::IADD3, &[Mod::X], &[a, b, rz(), operand(carry), never()])
    }

    fn imad(&mut self, a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::IMAD, &[], &[a, b, c, never()])
    }

    fn imad_wide_u32(&mut self, a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::IMAD, &[Mod::WIDE, Mod::U32], &[a, b, c, never()])
    }

    fn imad_hi_u32(&mut self, a: Operand, b: Operand) -> Value {
        self.def(Opcode::IMAD, &[Mod::HI, Mod::U32], &[a, b, rz(), never()])
    }

    fn zext(&mut self, lo: Operand) -> Value {
        self.collect(&[lo, rz()])
    }

    fn lop3(&mut self, a: Operand, b: Operand, c: Operand, lut: u32) -> Value {
        self.def(Opcode::LOP3, &[Mod::LUT], &[a, b, c, Operand::Imm(lut & 0xff), never()])
    }

    fn isetp(&mut self, mods: &[Mod], a: Operand, b: Operand) -> Value {
        let mut m: SmallVec<[Mod; 4]> = SmallVec::from_slice(mods);
        m.push(Mod::AND);
        self.def_pred(Opcode::ISETP, &m, &[a, b])
    }

    fn sel(&mut self, a: Operand, b: Operand, p: Operand) -> Value {
        self.def(Opcode::SEL, &[], &[a, b, p])
    }

    fn sel64(&mut self, a: Value, b: Value, p: Value) -> Value {
        let lo = self.sel(part(a, 0), part(b, 0), operand(p));
        let hi = self.sel(part(a, 1), part(b, 1), operand(p));
        self.collect(&[operand(lo), operand(hi)])
    }

    fn add64(&mut self, a: Value, b: Value) -> Value {
        self.def(Opcode::IADD, &[Mod::_64], &[operand(a), operand(b), never()])
    }

    fn sub64(&mut self, a: Value, b: Value) -> Value {
        self.def(Opcode::IADD, &[Mod::_64], &[operand(a), neg(operand(b)), never()])
    }

    fn mul64(&mut self, a: Value, b: Value) -> Value {
        let low = self.imad_wide_u32(part(a, 0), part(b, 0), rz());
        let hi = self.imad(part(a, 0), part(b, 1), part(low, 1));
        let hi = self.imad(part(a, 1), part(b, 0), operand(hi));
        self.collect(&[part(low, 0), operand(hi)])
    }

    fn ffma(&mut self, mods: &[Mod], a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::FFMA, mods, &[a, b, c])
    }

    fn dfma(&mut self, a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::DFMA, &[], &[a, b, c])
    }

    fn split(&mut self, p: Value) -> (ori::Block, ori::Block) {
        let fall = self.func.add_block();
        let taken = self.func.add_block();
        self.terminate(Terminator::Branch {
            cond: p.into(),
            not: false,
            taken: Builder::call(taken),
            fall: Builder::call(fall),
        });
        (taken, fall)
    }

    fn jump(&mut self, to: ori::Block, args: &[Value]) {
        self.terminate(Terminator::Jump(BlockCall { block: to, args: SmallVec::from_slice(args) }));
    }

    fn join(&mut self, width: u8) -> (ori::Block, Value) {
        let block = self.func.add_block();
        let v = self.func.add_value(RegFile::R, width);
        self.func.blocks[block].params.push(v);
        (block, v)
    }
}
