//! Which instructions of unknown duration keep their order.

use sass::{Opcode, Target, Unit, latency};

/// A pipe whose operations end in the order of issue.
fn in_order(op: Opcode) -> Option<u8> {
    use Opcode::*;
    match op {
        LDS | LDSM | ATOMS | ATOMS_CAST | SHFL | QSPC | MOVM => Some(0),
        _ => match op.unit() {
            Unit::Xu => Some(1),
            Unit::Fp64 => Some(2),
            Unit::Tensor => Some(4),
            Unit::Move | Unit::R2ur if matches!(op, S2R | S2UR | REDUX | R2UR | R2UR_OR) => Some(3),
            _ => None,
        },
    }
}

/// Whether `newer` is done only when `older` is.
pub(super) fn same_order(older: Opcode, newer: Opcode) -> bool {
    in_order(older).is_some_and(|p| in_order(newer) == Some(p))
}

/// Whether an instruction goes through the queue that variable-latency units share; it is emptied in order.
fn queued(op: Opcode, target: Target) -> bool {
    reads_late(op, target)
}

/// Whether `newer` reads its sources only when `older` has read its own.
pub(super) fn reads_in_order(older: Opcode, newer: Opcode, target: Target) -> bool {
    queued(older, target) && queued(newer, target)
}

/// Whether the results need a scoreboard.
pub(super) fn needs_scoreboard(op: Opcode, target: Target) -> bool {
    latency::is_variable_latency(op, target) && !fixed_tensor(op, target)
}

/// Whether the sources may be read some time after issue.
pub(super) fn reads_late(op: Opcode, target: Target) -> bool {
    latency::reads_late(op, target) && !fixed_tensor(op, target)
}

/// Matrix products have a fixed latency, a long one, from sm_80 on; those of binary64 and moves have not.
fn fixed_tensor(op: Opcode, target: Target) -> bool {
    op.unit() == Unit::Tensor && target.sm >= 80 && !matches!(op, Opcode::DMMA | Opcode::MOVM)
}
