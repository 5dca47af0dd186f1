//! What an instruction's execution costs: which results need a scoreboard, which sources are read late,
//! and how far apart a fixed-latency writer and its reader must issue.

use crate::units::{self, Site, Unit};
use sass::{Inst, Opcode, Target, latency};

/// Cycles after issue by which every fixed-latency result has arrived everywhere.
pub const MAX_LATENCY: u8 = 16;

/// Whether the results arrive after an unknown time, so that readers need a scoreboard.
pub fn is_variable(target: Target, inst: &Inst) -> bool {
    latency::is_variable_latency(inst.op, target)
}

/// Whether the sources may still be read some time after issue, so that overwriting them needs a
/// scoreboard.
pub fn reads_late(target: Target, inst: &Inst) -> bool {
    latency::reads_late(inst.op, target)
}

/// Whether the instructions after `inst` must wait until it is done, although it writes nothing.
pub fn is_fence(target: Target, inst: &Inst) -> bool {
    inst.op == Opcode::MEMBAR && (90..120).contains(&target.sm)
}

/// Least stall count of an instruction, whatever follows.
pub fn min_stall(op: Opcode) -> u8 {
    let info = op.info();
    match op {
        Opcode::BSSY => 1,
        Opcode::MEMBAR | Opcode::CGAERRBAR => 6,
        Opcode::CCTL | Opcode::BMOV_B => 5,
        _ if info.control || info.sync => 5,
        _ => 1,
    }
}

/// Least distance in cycles from the issue of fixed-latency `producer`, which writes `unit`, to the issue
/// of `consumer`, which reads it at `site`. At most 16.
pub fn raw(target: Target, producer: &Inst, unit: Unit, consumer: &Inst, site: Site) -> u8 {
    let site = latency::read_site(consumer, site == Site::Guard, target);
    latency::raw_latency(producer.op, units::file(unit), site, target)
}

/// Least distance from fixed-latency `producer` to a `consumer` that writes the same unit.
pub fn waw(target: Target, producer: &Inst, unit: Unit) -> u8 {
    latency::waw_latency(producer.op, units::file(unit), target)
}
