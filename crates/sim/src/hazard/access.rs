//! Which registers an instruction reads and writes, and how.

use sass::{AddrWidth, ConstBank, Guard, Inst, Mod, Opcode, Operand, Reg, RegFile, Role, SlotKind};

/// A 32-bit register or predicate as a small dense number.
pub(crate) type Cell = u16;

/// Each file, its first cell and its size.
const FILES: [(RegFile, Cell, u8); 5] = [
    (RegFile::R, 0, 255),
    (RegFile::P, 256, 7),
    (RegFile::UR, 264, 127),
    (RegFile::UP, 392, 7),
    (RegFile::B, 400, 16),
];

/// How a register is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Use {
    /// As the execution guard.
    Guard,
    /// As part of a memory address.
    Address,
    /// As an operand.
    Source,
}

/// Which register of which operand of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Number of the operand; [`Place::NONE`] for the guard and for registers that no operand names.
    pub operand: u8,
    /// Number of the register among those that the operand spans.
    pub nth: u8,
}

impl Place {
    /// Not an operand.
    pub const NONE: u8 = u8::MAX;
    const GUARD: Place = Place { operand: Place::NONE, nth: 0 };
}

/// The cell of a register; `None` for RZ, PT and the like.
pub(crate) fn cell(reg: Reg) -> Option<Cell> {
    let (_, base, count) = FILES.iter().find(|f| f.0 == reg.file)?;
    (!reg.is_zero() && reg.index < *count).then(|| base + Cell::from(reg.index))
}

/// The register of a cell.
pub(crate) fn register(cell: Cell) -> Reg {
    let (file, base, _) = FILES.iter().rev().find(|f| f.1 <= cell).unwrap_or(&FILES[0]);
    Reg { file: *file, index: (cell - base) as u8 }
}

fn span(reg: Reg, width: u8, mut f: impl FnMut(Cell, u8)) {
    for i in 0..width {
        if let Some(index) = reg.index.checked_add(i)
            && let Some(c) = cell(Reg { index, ..reg })
        {
            f(c, i);
        }
    }
}

/// Calls `f` for the predicates that a move of many of them names by its mask.
fn every(inst: &Inst, file: RegFile, mut f: impl FnMut(Cell)) {
    let mask = inst.operands.iter().rev().find_map(|o| match o {
        Operand::Imm(mask) => Some(*mask),
        _ => None,
    });
    let mask = mask.unwrap_or(0x7f);
    (0..7).filter(|i| mask >> i & 1 != 0).for_each(|index| span(Reg { file, index }, 1, |c, _| f(c)));
}

/// Whether the uniform part of its addresses has 32 bits.
fn narrow_uniform(op: Opcode) -> bool {
    use Opcode::*;
    matches!(op, LDS | STS | ATOMS | ATOMS_CAST | LDL | STL | LDC | LDSM | LDSM_MT1616 | STSM | CCTLL)
        || matches!(op, LDTM | LDTM_STAT | STTM)
        || matches!(op, SYNCS_ARRIVE | SYNCS_PHASECHK | SYNCS_EXCH | SYNCS_CCTL | ARRIVES | UTCBAR)
}

/// Calls `f` for every cell read.
pub(crate) fn reads(inst: &Inst, mut f: impl FnMut(Cell, Use)) {
    reads_at(inst, |c, how, _| f(c, how));
}

/// Calls `f` for every cell read, with the place that names it.
pub(crate) fn reads_at(inst: &Inst, mut f: impl FnMut(Cell, Use, Place)) {
    if inst.guard != Guard::TRUE {
        span(inst.guard.pred, 1, |c, _| f(c, Use::Guard, Place::GUARD));
    }
    let info = inst.op.info();
    if info.reads_predicates {
        every(inst, RegFile::P, |c| f(c, Use::Source, Place::GUARD));
    }
    if info.reads_uniform_predicates {
        every(inst, RegFile::UP, |c| f(c, Use::Source, Place::GUARD));
    }
    for (i, (operand, slot)) in inst.operands.iter().zip(inst.op.slots()).enumerate() {
        let mut f = |c, how, nth| f(c, how, Place { operand: i as u8, nth });
        match operand {
            Operand::Reg(r) if slot.role != Role::Def => {
                let address = slot.kind == SlotKind::Addr;
                // `R0.F32` of FADD2 is one register; which operand it is, the modifiers don't say.
                let single =
                    address || [Mod::A_F32, Mod::B_F32, Mod::C_F32].iter().any(|m| inst.mods.has(*m));
                let width = if single { 1 } else { inst.op.width(i, &inst.mods) };
                span(r.reg, width, |c, n| f(c, if address { Use::Address } else { Use::Source }, n));
            }
            Operand::Const { bank, index, .. } => {
                if let ConstBank::Bindless(r) = bank {
                    span(*r, 2, |c, n| f(c, Use::Address, n));
                }
                if let Some(r) = index {
                    span(*r, 1, |c, n| f(c, Use::Address, n));
                }
            }
            Operand::Addr { desc, base, width, uniform, .. } => {
                if let Some(r) = desc {
                    span(*r, 2, |c, n| f(c, Use::Address, n));
                }
                if let Some(r) = base {
                    // Without a uniform part, `.E` alone says that the address has 64 bits.
                    let plain = *width == AddrWidth::R32 && inst.mods.has(Mod::E);
                    // The first address of LDGSTS is one of shared memory.
                    let shared = inst.op == Opcode::LDGSTS && i == 0;
                    let wide = !shared && (plain || *width == AddrWidth::R64);
                    span(*r, if wide { 2 } else { 1 }, |c, n| f(c, Use::Address, n));
                }
                if let Some(r) = uniform {
                    // What copies to global memory read is in shared memory.
                    let bulk = matches!(inst.op, Opcode::UBLKCP | Opcode::UBLKRED);
                    let from_shared = bulk && i == 1 && inst.mods.iter().next() == Some(Mod::G);
                    let narrow = narrow_uniform(inst.op) || from_shared;
                    span(*r, if narrow { 1 } else { 2 }, |c, n| f(c, Use::Address, n));
                }
            }
            _ => {}
        }
    }
}

/// Whether the mask of a load of 256 bits leaves a register of its lower half alone (`ld.v8` with `_`).
fn left_out(inst: &Inst, operand: usize, nth: u8) -> bool {
    let mask = inst.operands.iter().find_map(|o| match o {
        Operand::Imm(mask) => Some(*mask),
        _ => None,
    });
    inst.op == Opcode::LDG_256 && operand == 1 && mask.is_some_and(|m| m >> nth & 1 == 0)
}

/// Calls `f` for every cell written.
pub(crate) fn writes(inst: &Inst, mut f: impl FnMut(Cell)) {
    writes_at(inst, |c, _| f(c));
}

/// Calls `f` for every cell written, with the place that names it.
pub(crate) fn writes_at(inst: &Inst, mut f: impl FnMut(Cell, Place)) {
    let info = inst.op.info();
    if info.writes_predicates {
        every(inst, RegFile::P, |c| f(c, Place::GUARD));
    }
    if info.writes_uniform_predicates {
        every(inst, RegFile::UP, |c| f(c, Place::GUARD));
    }
    for (i, (operand, slot)) in inst.operands.iter().zip(inst.op.slots()).enumerate() {
        if let (Operand::Reg(r), Role::Def) = (operand, slot.role) {
            span(r.reg, inst.op.width(i, &inst.mods), |c, nth| {
                if !left_out(inst, i, nth) {
                    f(c, Place { operand: i as u8, nth });
                }
            });
        }
    }
}

/// How many general registers a thread needs for the instruction: the highest index that it names, + 1.
pub(crate) fn registers(inst: &Inst) -> u32 {
    let mut most = 0;
    let mut see = |c: Cell| {
        let r = register(c);
        if r.file == RegFile::R {
            most = most.max(u32::from(r.index) + 1);
        }
    };
    reads(inst, |c, _| see(c));
    writes(inst, see);
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use sass::Target;

    #[test]
    fn moves_of_predicates_touch_those_of_their_mask() {
        let target = Target::new(90).unwrap();
        let inst = sass::parse_inst("R2P PR, R17, 0x60", target).unwrap_or_else(|e| panic!("{e}"));
        let mut written = Vec::new();
        writes(&inst, |c| written.push(register(c).index));
        assert_eq!(written, [5, 6]);
    }

    #[test]
    fn loads_of_256_bits_write_what_their_mask_says() {
        let target = Target::new(100).unwrap();
        let text = "LDG.E.ENL2.256 RZ, R4, desc[UR6][R2.64+0x220], 0x1";
        let inst = sass::parse_inst(text, target).unwrap_or_else(|e| panic!("{e}"));
        let mut written = Vec::new();
        writes(&inst, |c| written.push(register(c).index));
        assert_eq!(written, [4]);
    }
}
