//! Register units: every 32-bit register and predicate as a small dense number, and which of them an
//! instruction reads and writes, operand by operand.

use sass::{AddrWidth, ConstBank, Guard, Inst, Mod, Opcode, Operand, Reg, RegFile, Role, SlotKind};

/// Index of a register unit.
pub type Unit = u16;

/// Number of units.
pub const COUNT: usize = 256 + 8 + 128 + 8 + 16;

/// The unit of a register; `None` for RZ, PT and the like.
pub fn unit(reg: Reg) -> Option<Unit> {
    if reg.is_zero() {
        return None;
    }
    Some(base(reg.file) + Unit::from(reg.index))
}

/// The first unit of a file.
fn base(file: RegFile) -> Unit {
    match file {
        RegFile::R => 0,
        RegFile::P => 256,
        RegFile::UR => 264,
        RegFile::UP => 392,
        RegFile::B => 400,
    }
}

/// The register of a unit; `None` for those that no instruction names.
pub fn register(unit: Unit) -> Option<Reg> {
    let file = file(unit);
    let index = unit - base(file);
    let count = match file {
        RegFile::R => 255,
        RegFile::UR => 127,
        RegFile::P | RegFile::UP => 7,
        RegFile::B => 16,
    };
    (index < count).then_some(Reg { file, index: index as u8 })
}

/// The units of a register file.
pub fn of_file(of: RegFile) -> impl Iterator<Item = Unit> {
    (0..COUNT as Unit).filter(move |u| file(*u) == of)
}

/// The register file of a unit.
pub fn file(unit: Unit) -> RegFile {
    match unit {
        0..256 => RegFile::R,
        256..264 => RegFile::P,
        264..392 => RegFile::UR,
        392..400 => RegFile::UP,
        _ => RegFile::B,
    }
}

/// Where an instruction names a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// The execution guard.
    Guard,
    /// The operand of this index.
    Operand(u8),
}

fn span(reg: Reg, width: u8, f: &mut impl FnMut(Unit)) {
    if let Some(first) = unit(reg) {
        (first..first + Unit::from(width)).for_each(f);
    }
}

/// Whether an instruction addresses global or generic memory, with 64-bit addresses.
fn wide_uniform(op: Opcode) -> bool {
    !matches!(
        op,
        Opcode::LDS | Opcode::STS | Opcode::ATOMS | Opcode::LDL | Opcode::STL | Opcode::LDC | Opcode::CCTLL
    )
}

/// Uniform registers of the first operand of a copy of a tile: the shared address and its barrier's, and the coordinates.
fn tile_width(inst: &Inst) -> Option<u8> {
    let first = match inst.op {
        Opcode::UTMALDG => 2,
        Opcode::UTMASTG | Opcode::UTMAREDG => 1,
        Opcode::UTMAPF => 0,
        _ => return None,
    };
    let all = [Mod::_1D, Mod::_2D, Mod::_3D, Mod::_4D, Mod::_5D];
    // Rows: a column and four of them.
    let rows = inst.mods.has(Mod::GATHER4) || inst.mods.has(Mod::SCATTER4);
    let dims = all.iter().position(|m| inst.mods.has(*m)).filter(|_| !rows);
    Some(first + dims.map_or(5, |n| n as u8 + 1))
}

/// Whether control leaves the function here and comes back, or doesn't: whatever the code there does with
/// registers and scoreboards, everything that is under way must be complete.
pub fn leaves_function(op: Opcode) -> bool {
    matches!(op, Opcode::CALL | Opcode::RET)
}

/// Calls `f` for every unit read, with the place that names it.
pub fn for_each_read(inst: &Inst, mut f: impl FnMut(Unit, Site)) {
    if leaves_function(inst.op) {
        return (0..COUNT as Unit).for_each(|u| f(u, Site::Operand(0)));
    }
    if inst.guard != Guard::TRUE {
        span(inst.guard.pred, 1, &mut |u| f(u, Site::Guard));
    }
    let info = inst.op.info();
    if info.reads_predicates {
        (0..7).for_each(|i| span(Reg::p(i), 1, &mut |u| f(u, Site::Operand(0))));
    }
    if info.reads_uniform_predicates {
        (0..7).for_each(|index| span(Reg { file: RegFile::UP, index }, 1, &mut |u| f(u, Site::Operand(0))));
    }
    for (i, (operand, slot)) in inst.operands.iter().zip(inst.op.slots()).enumerate() {
        let mut f = |u| f(u, Site::Operand(i as u8));
        match operand {
            Operand::Reg(r) if slot.role != Role::Def => {
                let wide = if slot.kind == SlotKind::Addr { 1 } else { inst.op.width(i, &inst.mods) };
                span(r.reg, wide, &mut f);
            }
            Operand::Const { bank, index, .. } => {
                if let ConstBank::Bindless(r) = bank {
                    span(*r, 2, &mut f);
                }
                if let Some(r) = index {
                    span(*r, 1, &mut f);
                }
            }
            Operand::Addr { desc, base, width, uniform, .. } => {
                if let Some(r) = desc {
                    span(*r, 2, &mut f);
                }
                if let Some(r) = base {
                    // Without a uniform part, `.E` alone says that the address has 64 bits.
                    let plain = *width == AddrWidth::R32 && inst.mods.has(Mod::E);
                    let width = match inst.op {
                        // Coordinates.
                        Opcode::SULD
                        | Opcode::SULD_U
                        | Opcode::SULD_B
                        | Opcode::SUST
                        | Opcode::SUST_U
                        | Opcode::SUST_B
                        | Opcode::SURED
                        | Opcode::SURED_U
                        | Opcode::SURED_B => 4,
                        _ if plain || *width == AddrWidth::R64 => 2,
                        _ => 1,
                    };
                    span(*r, width, &mut f);
                }
                if let Some(r) = uniform {
                    let width = match tile_width(inst) {
                        Some(n) if i == 0 => n,
                        _ if wide_uniform(inst.op) => 2,
                        _ => 1,
                    };
                    span(*r, width, &mut f);
                }
            }
            _ => {}
        }
    }
}

/// Calls `f` for every unit written, with the operand that names it.
pub fn for_each_write(inst: &Inst, mut f: impl FnMut(Unit, u8)) {
    if leaves_function(inst.op) {
        return (0..COUNT as Unit).for_each(|u| f(u, 0));
    }
    let info = inst.op.info();
    if info.writes_predicates {
        (0..7).for_each(|i| span(Reg::p(i), 1, &mut |u| f(u, 0)));
    }
    if info.writes_uniform_predicates {
        (0..7).for_each(|index| span(Reg { file: RegFile::UP, index }, 1, &mut |u| f(u, 0)));
    }
    for (i, (operand, slot)) in inst.operands.iter().zip(inst.op.slots()).enumerate() {
        if let (Operand::Reg(r), Role::Def | Role::Both) = (operand, slot.role) {
            span(r.reg, inst.op.width(i, &inst.mods), &mut |u| f(u, i as u8));
        }
    }
}
