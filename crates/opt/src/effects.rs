//! Which instructions may be removed, merged or moved.

use ori::{InstData, Macro, Op};
use sass::{Opcode, Operand, SpecialReg};

/// Whether the instruction only computes its results from its operands: two of them with the same operands
/// are interchangeable wherever both are executed, and one without users can go.
///
/// False for memory, control, synchronization, and everything that depends on which lanes are active.
pub fn is_pure(d: &InstData) -> bool {
    let op = match d.op {
        Op::Macro(m) => return matches!(m, Macro::Copy | Macro::Collect | Macro::Undef | Macro::Symbol),
        Op::Sass(op) => op,
    };
    let info = op.info();
    if info.memory || info.control || info.sync {
        return false;
    }
    match op {
        // Reads that give another value each time.
        Opcode::S2R | Opcode::S2UR | Opcode::CS2R => {
            !d.operands.iter().any(|o| matches!(o, Operand::Special(s) if is_volatile(*s)))
        }
        Opcode::VOTE
        | Opcode::VOTEU
        | Opcode::SHFL
        | Opcode::MATCH
        | Opcode::REDUX
        | Opcode::R2UR
        | Opcode::R2UR_P
        | Opcode::R2UR_OR
        | Opcode::ELECT
        | Opcode::CREDUX
        | Opcode::NANOSLEEP
        | Opcode::DEPBAR
        | Opcode::NOP
        | Opcode::BMOV
        | Opcode::R2P => false,
        _ => true,
    }
}

/// Clocks, timers and counters.
fn is_volatile(s: SpecialReg) -> bool {
    let name = s.name();
    ["CLOCK", "TIMER", "PM", "SMEM", "VIRT"].iter().any(|k| name.contains(k))
}
