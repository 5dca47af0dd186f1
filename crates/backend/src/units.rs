//! Register units: every 32-bit register and predicate as a small dense number, and which of them an
//! instruction reads and writes, operand by operand.

use sass::target::HARDWARE_REGISTERS;
use sass::{AddrWidth, ConstBank, Guard, Inst, Mod, Opcode, Operand, Reg, RegFile, SlotKind};

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

/// Calls `f` for every unit read, with the place that names it.
pub fn for_each_read(inst: &Inst, mut f: impl FnMut(Unit, Site)) {
    if inst.op.info().leaves_function() {
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
    let only_written = inst.op.only_written();
    for (i, operand) in inst.operands.iter().enumerate() {
        let mut f = |u| f(u, Site::Operand(i as u8));
        match operand {
            // Most of what many instructions name is RZ or PT, and how wide a slot is takes a while to say.
            Operand::Reg(r) if only_written >> i & 1 == 0 && !r.reg.is_zero() => {
                let wide =
                    if inst.op.slots()[i].kind == SlotKind::Addr { 1 } else { inst.op.width(i, &inst.mods) };
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
                // Where the table gives a number of registers, that counts: coordinates.
                let given = inst.op.width(i, &inst.mods);
                if let Some(r) = base {
                    // Without a uniform part, `.E` alone says that the address has 64 bits.
                    let plain = *width == AddrWidth::R32 && inst.mods.has(Mod::E);
                    let width = match given {
                        0 if plain || *width == AddrWidth::R64 => 2,
                        0 => 1,
                        n => n,
                    };
                    span(*r, width, &mut f);
                }
                if let Some(r) = uniform {
                    let width = match given {
                        0 if inst.has_near_address(i) => 1,
                        0 => 2,
                        n => n.max(2),
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
    if inst.op.info().leaves_function() {
        return (0..COUNT as Unit).for_each(|u| f(u, 0));
    }
    let info = inst.op.info();
    if info.writes_predicates {
        (0..7).for_each(|i| span(Reg::p(i), 1, &mut |u| f(u, 0)));
    }
    if info.writes_uniform_predicates {
        (0..7).for_each(|index| span(Reg { file: RegFile::UP, index }, 1, &mut |u| f(u, 0)));
    }
    if let (Opcode::USETMAXREG, [Operand::Imm(held)]) = (inst.op, &inst.operands[..]) {
        // The registers that the warp gives back are nobody's from here on.
        let first = held.saturating_sub(HARDWARE_REGISTERS.into()).min(Reg::ZERO.into()) as u8;
        (first..Reg::ZERO).for_each(|r| span(Reg::r(r), 1, &mut |u| f(u, 0)));
    }
    let written = inst.op.only_written();
    for (i, operand) in inst.operands.iter().enumerate().take((u16::BITS - written.leading_zeros()) as usize)
    {
        if let Operand::Reg(r) = operand
            && written >> i & 1 != 0
            && !r.reg.is_zero()
        {
            span(r.reg, inst.op.width(i, &inst.mods), &mut |u| f(u, i as u8));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sass::Target;

    fn reads(line: &str, target: &str) -> Vec<Unit> {
        let target = Target::parse(target).unwrap();
        let mut units = Vec::new();
        for_each_read(&sass::parse_inst(line, target).unwrap(), |u, _| units.push(u));
        units
    }

    /// `.E` speaks of the second address, which is global: the first is one register.
    #[test]
    fn a_copys_shared_address_is_one_register() {
        let line = "LDGSTS.E.BYPASS.128 [R23], desc[UR14][R30.64]";
        let general: Vec<Unit> = reads(line, "sm_90").into_iter().filter(|u| *u < 255).collect();
        assert_eq!(general, [23, 30, 31]);
    }
}
