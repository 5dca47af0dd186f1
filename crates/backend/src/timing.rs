//! What an instruction's execution costs: which results need a scoreboard, which sources are read late,
//! and how far apart a fixed-latency writer and its reader must issue.

use crate::units::{self, Site, Unit};
use sass::latency::{self, Reader};
use sass::{Class, Inst, Mod, Opcode, Operand, Role, Target};

/// Whether the results arrive after an unknown time, so that readers need a scoreboard.
pub fn is_variable(target: Target, inst: &Inst) -> bool {
    latency::is_variable_latency(inst.op, target)
}

/// Whether the sources may still be read some time after issue, so that overwriting them needs a
/// scoreboard.
pub fn reads_late(target: Target, inst: &Inst) -> bool {
    latency::reads_late(inst.op, target)
}

/// Whether a result is there as soon as the sources have been read, so that the read scoreboard counts it: the predicate of ATOM, which says
/// what kind of memory the address is in, from sm_90 on (ptxas 13.0.88; docs/sass-control.md).
pub fn arrives_with_sources(target: Target, inst: &Inst, unit: Unit) -> bool {
    inst.op == Opcode::ATOM && target.sm >= 90 && units::file(unit) == sass::RegFile::P
}

/// Cycles after issue by which every result of fixed-latency `inst` has arrived everywhere, and those by which every source
/// that it reads at issue may be overwritten.
pub fn longest(target: Target, inst: &Inst) -> (u8, u8) {
    latency::longest(inst, target)
}

/// Cycles from a product of matrices to the next one of the warp; 0 for other instructions.
pub fn pace(target: Target, inst: &Inst) -> u8 {
    latency::pace(inst, target)
}

/// Cycles from `inst` to the next instruction of the warp, at least.
pub fn least_stall(target: Target, inst: &Inst) -> u8 {
    latency::least_stall(inst, target)
}

/// Cycles from an instruction to the next `next` that no register asks for.
pub fn apart(target: Target, first: &Inst, next: &Inst) -> u8 {
    latency::apart(first, next, target)
}

/// The most of these.
pub fn longest_apart(target: Target, first: Opcode) -> u8 {
    latency::longest_apart(first, target)
}

/// Whether the instructions after `inst` must wait until it is done, although it writes nothing.
pub fn is_fence(target: Target, inst: &Inst) -> bool {
    inst.op == Opcode::MEMBAR && (90..120).contains(&target.sm)
}

/// Whether accesses and barriers behind the instruction wait until it is done: as the table says, and an exchange of which nobody reads what was
/// there, as which a tensor map is copied: ptxas's count there, and nothing else keeps a map from being read before it is whole.
pub fn is_awaited(inst: &Inst) -> bool {
    let exchanges = || {
        let result = inst.operands.get(1).and_then(Operand::as_reg);
        inst.op == Opcode::ATOMG && inst.mods.has(Mod::EXCH) && result.is_some_and(|r| r.reg.is_zero())
    };
    inst.op.info().awaited || exchanges()
}

/// Whether the instruction waits for what is awaited ([`is_awaited`]).
pub fn awaits(op: Opcode) -> bool {
    let info = op.info();
    info.sync || info.memory || info.leaves_function()
}

/// Cycles from a write of a register to the arrival of the warp group behind which a product reads it.
pub const TO_ARRIVAL: u8 = 6;

/// The class of `inst` as a writer of `unit`.
fn writer(inst: &Inst, unit: Unit) -> Class {
    let place = inst.operands.iter().zip(inst.op.slots()).enumerate().find_map(|(i, (o, slot))| match o {
        Operand::Reg(r) if slot.role == Role::Def => {
            let nth = unit.checked_sub(units::unit(r.reg)?)?;
            let nth = u8::try_from(nth).ok()?;
            (nth < inst.op.width(i, &inst.mods)).then_some((i as u8, nth))
        }
        _ => None,
    });
    latency::writer(inst, place.map(|p| p.0), place.map_or(0, |p| p.1))
}

/// `inst` as a reader of `unit` at `site`.
fn reader(inst: &Inst, unit: Unit, site: Site) -> Reader {
    let Site::Operand(at) = site else { return latency::guard(inst) };
    let first = inst.operands.get(usize::from(at)).and_then(Operand::as_reg).and_then(|r| units::unit(r.reg));
    let nth = first.and_then(|f| unit.checked_sub(f)).map_or(0, |n| n.min(u8::MAX.into()) as u8);
    latency::reader(inst, units::file(unit), Some(at), nth)
}

/// Least distance in cycles from the issue of fixed-latency `producer`, which writes `unit`, to the issue
/// of `consumer`, which reads it at `site`.
pub fn raw(target: Target, producer: &Inst, unit: Unit, consumer: &Inst, site: Site) -> u8 {
    latency::raw(writer(producer, unit), units::file(unit), reader(consumer, unit, site), target)
}

/// Least distance from fixed-latency `producer` to a `consumer` that writes the same unit.
pub fn waw(target: Target, producer: &Inst, unit: Unit, consumer: &Inst) -> u8 {
    latency::waw(writer(producer, unit), units::file(unit), writer(consumer, unit), target)
}

/// Least distance from `reader`, which reads `unit` when it issues, to a `writer` of it.
pub fn war(target: Target, reader: &Inst, unit: Unit, writes: &Inst) -> u8 {
    latency::war(latency::class(reader), units::file(unit), writer(writes, unit), target)
}
