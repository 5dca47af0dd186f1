//! Operands and modifiers of instructions by name, generated from the instruction table.
//!
//! For each opcode there is a struct with a field for every slot of its `op` line: `Iadd3::of(&inst)?.a` is a source of an
//! IADD3, `Iadd3::of_mut` gives what may be changed, `Iadd3 { … }.list()` makes the operands of a new one, and `Iadd3::A` is
//! the number of the slot. They work on every [`Instruction`]. For opcodes with a `fields` line there is a struct of
//! modifiers, too: `IsetpMods::of(&inst)?.cmp`; it is `None` where there is a modifier that the line does not name, so that
//! whoever looks at the fields has seen all of them.

use crate::inst::{Inst, Mods, Operand};
use crate::isa::{Mod, Opcode};

/// What has an opcode, modifiers and operands.
pub trait Instruction {
    /// What stands in a slot.
    type Operand;
    /// Which SASS instruction it is, if it is one.
    fn sass(&self) -> Option<Opcode>;
    /// Its modifiers.
    fn modifiers(&self) -> &Mods;
    /// Its operands, in the order of the slots.
    fn operands(&self) -> &[Self::Operand];
    /// The same, for changing them.
    fn operands_mut(&mut self) -> &mut [Self::Operand];
}

impl Instruction for Inst {
    type Operand = Operand;
    fn sass(&self) -> Option<Opcode> {
        Some(self.op)
    }
    fn modifiers(&self) -> &Mods {
        &self.mods
    }
    fn operands(&self) -> &[Operand] {
        &self.operands
    }
    fn operands_mut(&mut self) -> &mut [Operand] {
        &mut self.operands
    }
}

/// Modifiers that no field has taken yet.
struct Rest<'a>(&'a [Mod]);

impl Rest<'_> {
    /// Takes the next one, if it is of this kind.
    fn take<T>(&mut self, kind: impl Fn(Mod) -> Option<T>) -> Option<T> {
        let (first, rest) = self.0.split_first()?;
        let found = kind(*first)?;
        self.0 = rest;
        Some(found)
    }
}

include!(concat!(env!("OUT_DIR"), "/ops.rs"));

impl<T> Iadd3<T> {
    /// What is added.
    #[inline]
    pub fn terms(self) -> [T; 3] {
        [self.a, self.b, self.c]
    }
}

/// How each source of arithmetic on pairs (FADD2, FMUL2, FFMA2) says that it has two numbers; which of them is the first, the modifier
/// behind it says.
pub const PAIRS: [Mod; 3] = [Mod::A_F32x2, Mod::B_F32x2, Mod::C_F32x2];

impl<T> Lop3<T> {
    /// What the table is of.
    #[inline]
    pub fn inputs(self) -> [T; 3] {
        [self.a, self.b, self.c]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use crate::{Reg, RegFile};

    fn inst(text: &str) -> Inst {
        crate::parse_inst(text, Target::new(90).expect("a target")).expect("an instruction")
    }

    #[test]
    fn operands_have_names() {
        let mut i = inst("IADD3 R1, P2, R3, R4, R5");
        let s = Iadd3::of(&i).expect("an IADD3");
        let reg = |file: RegFile, n: u8| Operand::reg(Reg { file, index: n });
        assert_eq!((*s.d, *s.carry_out), (reg(RegFile::R, 1), reg(RegFile::P, 2)));
        assert_eq!((*s.a, *s.b, *s.c), (reg(RegFile::R, 3), reg(RegFile::R, 4), reg(RegFile::R, 5)));
        assert!(Imad::of(&i).is_none() && Iadd3::A == 3);
        *Iadd3::of_mut(&mut i).expect("an IADD3").b = Operand::Imm(7);
        assert_eq!(i.operands[Iadd3::B], Operand::Imm(7));
        let sum = Iadd3::of(&i).expect("an IADD3").list().map(|o| *o);
        assert_eq!(sum[..], i.operands[..]);
    }

    #[test]
    fn modifiers_have_names() {
        let m = IsetpMods::of(&inst("ISETP.LT.U32.OR P0, PT, R1, R2, P3")).expect("modifiers of an ISETP");
        assert_eq!((m.cmp, m.kind, m.join, m.extended), (Icmp::LT, Some(Int64::U32), Bool::OR, false));
        let i = inst("SHF.R.W.U64.HI R0, R1, R2, R3");
        let m = ShfMods::of(&i).expect("modifiers of a SHF");
        assert_eq!(m, ShfMods { dir: ShiftDir::R, wrap: true, kind: ShiftType::U64, hi: true });
        assert_eq!(m.mods(), i.mods);
        assert!(IsetpMods::of(&i).is_none());
    }

    #[test]
    fn other_modifiers_are_not_overlooked() {
        assert!(Iadd3Mods::read(&Mods::of(&[Mod::X])).is_some());
        assert!(Iadd3Mods::read(&Mods::of(&[Mod::X, Mod::U32])).is_none());
        assert!(IsetpMods::read(&Mods::of(&[Mod::U32])).is_none());
    }
}
