//! The open description of NVIDIA SASS: targets, registers, operands, the instruction table, and what is
//! derived from it: encoder, decoder, text printer and parser, operand roles, latency and issue classes.
//!
//! An [`Inst`] says exactly what one line of `nvdisasm` says, plus its control field. The same operand and
//! modifier types are used by Ori with virtual registers in place of [`Reg`].

pub mod control;
pub mod inst;
pub mod isa;
pub mod reg;
pub mod target;

pub use control::Control;
pub use inst::{AddrWidth, ConstBank, Guard, Inst, Mods, Operand, RegOp, Role, Slot, SlotKind, Width};
pub use isa::{Mod, OpInfo, Opcode, SpecialReg};
pub use reg::{Reg, RegFile};
pub use target::Target;
