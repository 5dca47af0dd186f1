//! What an instruction's execution costs: which results need a scoreboard, which sources are read late,
//! and how far apart a fixed-latency writer and its reader must issue.

use crate::units::{self, Site, Unit};
use sass::{Inst, Opcode, RegFile, Target};

/// Cycles after issue by which every fixed-latency result has arrived everywhere.
pub const MAX_LATENCY: u8 = 16;

/// Whether the target has a fast double-precision unit, with fixed latency.
fn has_fast_f64(target: Target) -> bool {
    matches!(target.sm, 90 | 100)
}

fn is_f64(op: Opcode) -> bool {
    matches!(op, Opcode::DADD | Opcode::DMUL | Opcode::DFMA | Opcode::DSETP)
}

/// Whether the results arrive after an unknown time, so that readers need a scoreboard.
pub fn is_variable(target: Target, inst: &Inst) -> bool {
    use Opcode::*;
    match inst.op {
        DADD | DMUL | DFMA | DSETP => !has_fast_f64(target),
        R2UR => target.sm < 90,
        LDG | LD | LDS | LDL | LDC | LDCU | ATOMG | ATOMS | ATOM | MUFU | S2R | S2UR | SHFL | MATCH
        | REDUX | I2F | F2I | F2F | FRND | POPC | FLO | BREV | FCHK | BMOV => true,
        _ => false,
    }
}

/// Whether the sources may still be read some time after issue, so that overwriting them needs a
/// scoreboard.
pub fn reads_late(target: Target, inst: &Inst) -> bool {
    use Opcode::*;
    is_variable(target, inst) || matches!(inst.op, STG | ST | STS | STL | RED | REDG | CCTL | CCTLL)
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
        Opcode::CCTL => 5,
        _ if info.control || info.sync => 5,
        _ => 1,
    }
}

/// Least distance in cycles from the issue of fixed-latency `producer`, which writes `unit`, to the issue
/// of `consumer`, which reads it at `site`. At most 15.
pub fn raw(target: Target, producer: &Inst, unit: Unit, consumer: &Inst, site: Site) -> u8 {
    use Opcode::*;
    let remote = consumer.op.info().memory || is_variable(target, consumer) || is_f64(consumer.op);
    match units::file(unit) {
        RegFile::P | RegFile::UP => {
            let far = site == Site::Guard || consumer.op.info().control || remote;
            match producer.op {
                DSETP if far => 15,
                _ if far => 13,
                IMAD | DSETP => 8,
                _ => 6,
            }
        }
        RegFile::R => match producer.op {
            DADD | DMUL | DFMA => 12,
            P2R | CS2R => 8,
            HADD2 | HMUL2 | HFMA2 => 8,
            _ if target.sm == 75 && remote => 8,
            _ => 6,
        },
        RegFile::UR => match producer.op {
            R2UR => 15,
            ULDC => 4,
            _ if remote => 14,
            _ => 9,
        },
        RegFile::B => 6,
    }
}

/// Least distance from fixed-latency `producer` to a `consumer` that writes the same unit.
pub fn waw(producer: &Inst, unit: Unit) -> u8 {
    match units::file(unit) {
        RegFile::R if is_f64(producer.op) => 10,
        RegFile::UR if producer.op == Opcode::R2UR => 13,
        RegFile::UR => 6,
        _ => 4,
    }
}
