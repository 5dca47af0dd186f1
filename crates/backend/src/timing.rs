//! What an instruction's execution costs: which results need a scoreboard, which sources are read late,
//! and how far apart a fixed-latency writer and its reader must issue.

use crate::units::{self, Site, Unit};
use sass::{Inst, Mod, Opcode, RegFile, Target};

/// Cycles after issue by which every fixed-latency result has arrived everywhere.
pub const MAX_LATENCY: u8 = 16;

/// Whether the results arrive after an unknown time, so that readers need a scoreboard.
pub fn is_variable(target: Target, inst: &Inst) -> bool {
    use Opcode::*;
    match inst.op {
        DADD | DMUL | DFMA | DSETP => target.sm != 90,
        R2UR => target.sm < 90,
        F2F => true,
        LDG | LD | LDS | LDL | LDC | LDCU | ATOMG | ATOMS | ATOM | MUFU | S2R | S2UR | SHFL | MATCH
        | REDUX | I2F | F2I | FRND | POPC | FLO | BREV | FCHK | BMOV => true,
        _ => false,
    }
}

/// Whether the sources may still be read some time after issue, so that overwriting them needs a
/// scoreboard.
pub fn reads_late(target: Target, inst: &Inst) -> bool {
    use Opcode::*;
    is_variable(target, inst) || matches!(inst.op, STG | ST | STS | STL | RED | REDG | CCTL | CCTLL)
}

/// Least distance in cycles from the issue of fixed-latency `producer`, which writes `unit`, to the issue
/// of `consumer`, which reads it at `site`.
pub fn raw(target: Target, producer: &Inst, unit: Unit, consumer: &Inst, site: Site) -> u8 {
    let _ = producer.mods.has(Mod::X);
    let memory = consumer.op.info().memory || is_variable(target, consumer);
    match units::file(unit) {
        RegFile::P | RegFile::UP => {
            let control = consumer.op.info().control;
            if site == Site::Guard || control { 13 } else { 6 }
        }
        RegFile::R => {
            if target.sm == 75 && memory {
                8
            } else if matches!(producer.op, Opcode::DADD | Opcode::DMUL | Opcode::DFMA) {
                12
            } else {
                6
            }
        }
        RegFile::UR => {
            if producer.op == Opcode::R2UR || memory {
                13
            } else {
                9
            }
        }
        RegFile::B => 6,
    }
}

/// Least distance from fixed-latency `producer` to a `consumer` that writes the same unit.
pub fn waw(target: Target, producer: &Inst, unit: Unit, consumer: &Inst) -> u8 {
    let _ = (target, consumer, producer);
    match units::file(unit) {
        RegFile::P | RegFile::UP => 4,
        _ => 4,
    }
}
