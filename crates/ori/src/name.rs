//! What operands name: values until registers are given out, physical registers behind that.

use crate::function::{Block, Value};
use sass::{ConstBank, Reg, RegOp};
use std::fmt::{Debug, Display};
use thin_vec::ThinVec;

/// What a register operand names before registers are given out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// A whole value.
    Val(Value),
    /// One register of a value, counted from its first (use only).
    Part(Value, u8),
    /// A register that is not the allocator's to choose: those that read as nothing, R1, and those of calls ([`crate::abi`]).
    Phys(Reg),
}

impl Name {
    /// The value named, whole or in part.
    #[inline]
    pub fn value(self) -> Option<Value> {
        match self {
            Name::Val(v) | Name::Part(v, _) => Some(v),
            Name::Phys(_) => None,
        }
    }
}

impl From<Value> for Name {
    fn from(v: Value) -> Name {
        Name::Val(v)
    }
}

impl From<Reg> for Name {
    fn from(r: Reg) -> Name {
        Name::Phys(r)
    }
}

/// What operands of code may name: a [`Name`] before registers are given out, a [`Reg`] behind that. Code that does not care is generic
/// over it; what does says in its signature on which side it is.
pub trait Register: Copy + Eq + Debug + Display + Into<Name> + From<Reg> {}

impl Register for Name {}
impl Register for Reg {}

/// An operand over [`Name`]s, or [`Reg`]s; labels are blocks.
pub type Operand<R = Name> = sass::Operand<R, Block>;

/// The operands of one instruction: few bytes in the instruction itself, of which there are many.
pub type Operands<R = Name> = ThinVec<Operand<R>>;

/// A whole value (or part, or physical register) as an operand.
pub fn operand(name: impl Into<Name>) -> Operand {
    Operand::Reg(RegOp::plain(name.into()))
}

/// An execution guard.
pub type Guard<R = Name> = sass::Guard<R>;

/// Calls `f` for every register name in `operand`.
#[inline(always)]
pub fn for_each_name<R: Copy>(operand: &Operand<R>, mut f: impl FnMut(R)) {
    // `f` is called in one place for most operands and in one for the others, so that compilers put it there.
    let names = match operand {
        Operand::Reg(r) => return f(r.reg),
        Operand::Imm(_)
        | Operand::Label(_)
        | Operand::Special(_)
        | Operand::Scoreboard(_)
        | Operand::ScoreboardSet(_) => return,
        Operand::Const { bank, index, .. } => {
            [if let ConstBank::Bindless(r) = bank { Some(*r) } else { None }, *index, None]
        }
        Operand::Addr { desc, base, uniform, .. } => [*desc, *base, *uniform],
    };
    names.into_iter().flatten().for_each(f);
}

/// Rewrites every register name in `operand`.
pub fn map_operand<R: Copy>(operand: &mut Operand<R>, f: impl FnMut(R) -> R) {
    *operand = operand.map(f, |block| block);
}
