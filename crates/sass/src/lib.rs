//! The open description of NVIDIA SASS: targets, registers, operands, the instruction table, and what is
//! derived from it: encoder, decoder, text printer and parser, operand roles, latency and issue classes.
//!
//! An [`Inst`] says exactly what one line of `nvdisasm` says, plus its control field. The same operand and
//! modifier types are used by Ori with virtual registers in place of [`Reg`].

mod asks;
pub mod compute;
pub mod control;
mod decode;
mod encode;
mod form;
pub mod inst;
pub mod isa;
pub mod latency;
pub mod memory;
pub mod ops;
mod parse;
mod print;
pub mod reg;
pub mod target;

pub use asks::{Asks, asks};
pub use control::Control;
pub use decode::{DecodeError, Parts, decode, decode_parts};
pub use encode::{EncodeError, encode};
pub use inst::{AddrWidth, ConstBank, Guard, Inst, Mods, Operand, RegOp, Role, Slot, SlotKind, Width};
pub use isa::{
    Changes, Class, Effect, Flow, Lanes, Mod, OpInfo, Opcode, Scope, SourceKinds, SpecialReg, SwapChange,
    Sync, Unit, WideImmediate,
};
pub use ops::Instruction;
pub use parse::{ParseError, assemble, parse_inst};
pub use print::{Printed, disassemble, print};
pub use reg::{Reg, RegFile};
pub use target::{SmInfo, Target};
