//! Which instructions of unknown duration keep their order.

use sass::{Opcode, Target, Unit, latency};

/// Instructions whose registers the checker doesn't know: how many a texture or surface access takes depends on its
/// dimension and mask, and the asynchronous matrix instructions have an order of their own. Like words that are in
/// no table, they are seen only by their stalls and scoreboards.
const OPAQUE: [&str; 14] = [
    "TEX", "TLD", "TXD", "TXQ", "SULD", "SUST", "SURED", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTC", "UTMA",
    "LDGMC",
];

/// Whether the checker knows what registers the instruction uses.
pub(super) fn transparent(op: Opcode) -> bool {
    let name = op.name();
    !OPAQUE.iter().any(|p| name.starts_with(p)) && !matches!(op, Opcode::LDTM | Opcode::STTM)
}

/// Cycles that a uniform register is written at least before a bulk copy uses it: fewer than before others.
pub(super) fn most_before(op: Opcode) -> u8 {
    if matches!(op, Opcode::UBLKCP | Opcode::UBLKRED | Opcode::UBLKPF) { 2 } else { u8::MAX }
}

/// A pipe whose operations end in the order of issue.
fn in_order(op: Opcode) -> Option<u8> {
    use Opcode::*;
    match op {
        LDS | LDSM | LDSM_MT1616 | ATOMS | ATOMS_CAST | SHFL | QSPC | MOVM => Some(0),
        _ => match op.unit() {
            Unit::Xu => Some(1),
            Unit::Fp64 => Some(2),
            Unit::Tensor | Unit::TensorInt | Unit::TensorFp64 => Some(4),
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
    latency::is_variable_latency(op, target)
}

/// Whether the sources may be read some time after issue.
pub(super) fn reads_late(op: Opcode, target: Target) -> bool {
    latency::reads_late(op, target)
}
