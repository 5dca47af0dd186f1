//! Ori: the intermediate representation. SASS operations on virtual registers, in SSA with block
//! parameters until register allocation ([`Function`]), on physical registers after it ([`Allocated`], a type of its own).
//!
//! * A [`Value`] belongs to a register file and spans `width` registers; [`Name::Part`] reads one of them.
//! * An instruction's operands follow the slots of its opcode ([`sass::Opcode::slots`]) or of its
//!   [`Macro`]; every slot is present.
//! * A guarded definition names the value that it keeps where the guard is false ([`InstData::kept`]), so
//!   guards don't break SSA; the allocator gives both the same register.
//! * Control flow is only in [`Terminator`]s; convergence instructions (BSSY …) are ordinary instructions.
//!
//! The text form ([`print`]) is stable and round-trips through the parser; file tests are written in it.

pub mod abi;
mod allocated;
pub mod analyses;
pub mod block_set;
pub mod builder;
mod cancel;
pub mod cfg;
pub mod dead;
pub mod dominators;
pub mod edit;
pub mod function;
pub mod known;
pub mod live;
pub mod loops;
pub mod meeting;
mod name;
pub mod pairs;
pub mod parse;
pub mod phase;
pub mod print;
pub mod registers;
mod remark;
mod tuning;
pub mod uniformity;
pub mod verify;

pub use allocated::Allocated;
pub use analyses::{Analyses, Changed};
pub use builder::Builder;
pub use builder::{ALWAYS, default_operand};
pub use cancel::Cancel;
pub use edit::{Clones, Def, Editor, User, compact, renumber};
pub use function::{
    Block, BlockCall, BlockData, Callee, Extra, Function, Guard, Inst, InstData, Keeps, Loc, MOST_THREADS,
    Macro, Name, Op, Operand, Operands, Part, Register, SlotInfo, SymbolUse, Terminator, Value, ValueData,
};
pub use function::{access_of_lanes, for_each_name, operand, order_is_ours};
pub use phase::{Manager, Phase, Plan};
pub use remark::{Refusal, Remark};
pub use tuning::{Tuning, TuningError};

#[cfg(test)]
mod tests {
    use super::*;
    use sass::{Mod, Opcode, Target};

    #[test]
    fn builds_prints_and_verifies() {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let exit = f.add_block();
        let mut b = Builder::new(&mut f, entry);
        let tid = b.def(Opcode::S2R, &[], &[Operand::Special(sass::SpecialReg::SR_TID_X)]);
        let p = b.def_pred(Opcode::ISETP, &[Mod::GE, Mod::AND], &[operand(tid), Operand::constant(0, 0x210)]);
        b.terminate(Terminator::Branch {
            cond: p.into(),
            not: false,
            taken: Builder::call(exit),
            fall: Builder::call(exit),
        });
        b.block = exit;
        b.terminate(Terminator::Exit);
        verify::verify(&f).unwrap();
        let text = f.to_string();
        assert!(text.contains("v0:R = S2R SR_TID.X"), "{text}");
        assert!(text.contains("v1:P = ISETP.GE.AND PT, v0, c[0x0][0x210], PT, PT"), "{text}");
    }
}
