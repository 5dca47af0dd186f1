//! Functional units and latencies, from `isa/latency.isa`.

use crate::form::target_bit;
use crate::inst::Inst;
use crate::isa::{Opcode, RAW, UNIT_OF, UNITS, Unit, WAW};
use crate::reg::RegFile;
use crate::target::Target;

/// What the table says about a unit.
pub(crate) struct UnitInfo {
    /// Targets on which its results need a scoreboard.
    pub variable: u32,
    /// Its sources are read some time after issue.
    pub late: bool,
}

/// Where a result is read, as far as latencies go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadSite {
    /// As the execution guard, or by a branch or barrier.
    Guard,
    /// As the execution guard of an instruction of the half-precision unit, which looks at it earlier.
    HalfGuard,
    /// By an instruction of the tensor cores.
    Tensor,
    /// By an instruction outside the arithmetic pipes: memory, variable latency, double precision, barriers.
    Remote,
    /// By any other instruction.
    Arithmetic,
}

pub(crate) struct RawRow {
    pub targets: u32,
    pub units: u32,
    pub file: RegFile,
    pub site: Option<ReadSite>,
    pub cycles: u8,
}

pub(crate) struct WawRow {
    pub targets: u32,
    pub units: u32,
    pub file: RegFile,
    pub cycles: u8,
}

/// Taken when no row of the table holds: longer than any fixed latency.
const UNKNOWN: u8 = 15;

impl Opcode {
    /// The functional unit.
    pub fn unit(self) -> Unit {
        UNIT_OF[self as usize]
    }
}

fn info(op: Opcode) -> &'static UnitInfo {
    &UNITS[op.unit() as usize]
}

/// Whether the results of an opcode arrive after an unknown time, so that readers need a scoreboard.
pub fn is_variable_latency(op: Opcode, target: Target) -> bool {
    info(op).variable & u32::from(target_bit(target)) != 0
}

/// Whether the sources may still be read some time after issue, so that overwriting them needs a scoreboard.
pub fn reads_late(op: Opcode, target: Target) -> bool {
    info(op).late || is_variable_latency(op, target)
}

/// The site of a register that `reader` reads as its guard or as an operand.
pub fn read_site(reader: &Inst, guard: bool, target: Target) -> ReadSite {
    let op = reader.op.info();
    if guard && reader.op.unit() == Unit::Half {
        ReadSite::HalfGuard
    } else if guard || op.control || reader.op.unit() == Unit::Control {
        ReadSite::Guard
    } else if reader.op.unit() == Unit::Tensor {
        ReadSite::Tensor
    } else if op.memory
        || is_variable_latency(reader.op, target)
        || matches!(reader.op.unit(), Unit::Fp64 | Unit::Control)
    {
        ReadSite::Remote
    } else {
        ReadSite::Arithmetic
    }
}

/// UP results have the latencies of P.
fn table_file(file: RegFile) -> RegFile {
    if file == RegFile::UP { RegFile::P } else { file }
}

/// Least distance in cycles from the issue of a fixed-latency `writer` to that of a reader of its result in
/// `file`. At most 16.
pub fn raw_latency(writer: Opcode, file: RegFile, site: ReadSite, target: Target) -> u8 {
    let (target, unit) = (u32::from(target_bit(target)), 1 << writer.unit() as u32);
    RAW.iter()
        .find(|row| {
            row.targets & target != 0
                && row.units & unit != 0
                && row.file == table_file(file)
                && row.site.is_none_or(|s| s == site)
        })
        .map_or(UNKNOWN, |row| row.cycles)
}

/// Least distance in cycles from a fixed-latency `writer` to another writer of the same register.
pub fn waw_latency(writer: Opcode, file: RegFile, target: Target) -> u8 {
    let (target, unit) = (u32::from(target_bit(target)), 1 << writer.unit() as u32);
    WAW.iter()
        .find(|row| row.targets & target != 0 && row.units & unit != 0 && row.file == table_file(file))
        .map_or(UNKNOWN, |row| row.cycles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(sm: u8) -> Target {
        Target::new(sm).expect("target")
    }

    #[test]
    fn the_double_precision_unit_is_fast_on_some_targets_only() {
        assert!(is_variable_latency(Opcode::DFMA, on(86)));
        assert!(!is_variable_latency(Opcode::DFMA, on(90)));
        assert!(!is_variable_latency(Opcode::DFMA, on(100)));
        assert!(is_variable_latency(Opcode::DFMA, on(120)));
    }

    #[test]
    fn stores_read_late_and_write_nothing() {
        assert!(!is_variable_latency(Opcode::STG, on(90)));
        assert!(reads_late(Opcode::STG, on(90)));
        assert!(!reads_late(Opcode::IADD3, on(90)));
    }

    #[test]
    fn rows_apply_in_order() {
        use RegFile::{P, R, UP, UR};
        assert_eq!(raw_latency(Opcode::ISETP, P, ReadSite::Guard, on(80)), 13);
        assert_eq!(raw_latency(Opcode::UISETP, UP, ReadSite::Guard, on(80)), 13);
        assert_eq!(raw_latency(Opcode::ISETP, P, ReadSite::Arithmetic, on(80)), 6);
        assert_eq!(
            [75, 86, 90, 120].map(|sm| raw_latency(Opcode::ISETP, P, ReadSite::HalfGuard, on(sm))),
            [14, 15, 16, 16]
        );
        assert_eq!(raw_latency(Opcode::IADD3, R, ReadSite::Remote, on(75)), 8);
        assert_eq!(raw_latency(Opcode::IADD3, R, ReadSite::Remote, on(80)), 6);
        assert_eq!(raw_latency(Opcode::R2UR, UR, ReadSite::Remote, on(90)), 15);
        assert_eq!(waw_latency(Opcode::DADD, R, on(90)), 10);
    }
}
