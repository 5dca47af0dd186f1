//! The instruction table, generated from `isa/*.isa` by `build.rs`, and the queries on it.

use crate::RegFile;
use crate::form::*;
use crate::inst::AddrWidth;
use crate::inst::{ModAt, Mods, Role, Slot, SlotKind, Width};
use crate::latency::{LatencyRow, PartRow, UnitInfo};
use crate::memory::{AccessBytes, MemoryAccess, MemoryEffect, MemoryEffects, MemorySpace};

include!(concat!(env!("OUT_DIR"), "/isa.rs"));

/// What the table says about an opcode.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// What nvdisasm calls it, where several opcodes share a mnemonic.
    pub mnemonic: &'static str,
    /// Canonical operand slots.
    pub slots: &'static [Slot],
    /// Reads or writes memory.
    pub memory: bool,
    /// What it does there.
    pub effects: MemoryEffects,
    /// Transfers control or touches convergence state.
    pub control: bool,
    /// Synchronizes threads (BAR).
    pub sync: bool,
    /// Runs on the uniform datapath, so that its guard is a uniform predicate.
    pub uniform: bool,
    /// Reads the whole predicate file besides its operands (P2R).
    pub reads_predicates: bool,
    /// Writes predicates besides its operands, by mask (R2P).
    pub writes_predicates: bool,
    /// Reads the whole uniform predicate file (UP2UR).
    pub reads_uniform_predicates: bool,
    /// Writes uniform predicates, by mask (UR2UP).
    pub writes_uniform_predicates: bool,
}

impl Opcode {
    /// The table entry.
    pub fn info(self) -> &'static OpInfo {
        &OPS[self as usize]
    }
    /// nvdisasm's mnemonic: the name, except where several opcodes share one.
    pub fn mnemonic(self) -> &'static str {
        self.info().mnemonic
    }
    /// Canonical operand slots.
    pub fn slots(self) -> &'static [Slot] {
        self.info().slots
    }
    /// Whether it runs on the uniform datapath, so that its guard is a uniform predicate.
    pub fn is_uniform(self) -> bool {
        self.info().uniform
    }
    /// Registers that operand slot `slot` spans under `mods`.
    pub fn width(self, slot: usize, mods: &Mods) -> u8 {
        match self.slots()[slot].width {
            Width::Fixed(n) => n,
            Width::ByMod(table) => {
                let last = || mods.iter().filter(|m| is_float_format(*m)).last();
                let holds = |at: ModAt, m: Mod| match at {
                    ModAt::Any => mods.has(m),
                    ModAt::First => mods.has(m) && last() != Some(m),
                    ModAt::Last => last() == Some(m),
                    ModAt::Otherwise => true,
                };
                table.iter().find(|(at, m, _)| holds(*at, *m)).map_or(1, |(_, _, n)| *n)
            }
        }
    }
}

/// Whether a modifier names the format of a floating-point operand.
fn is_float_format(m: Mod) -> bool {
    matches!(m, Mod::F16 | Mod::BF16 | Mod::F32 | Mod::F64)
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_follow_modifiers() {
        assert_eq!(Opcode::IMAD.width(0, &Mods::of(&[Mod::WIDE, Mod::U32])), 2);
        assert_eq!(Opcode::IMAD.width(0, &Mods::none()), 1);
        assert_eq!(Opcode::LDG.width(1, &Mods::of(&[Mod::E, Mod::_128])), 4);
        assert_eq!(Opcode::F2F.width(0, &Mods::of(&[Mod::F64, Mod::F32])), 2);
        assert_eq!(Opcode::F2F.width(1, &Mods::of(&[Mod::F32, Mod::F64])), 2);
        assert_eq!(Opcode::F2F.width(0, &Mods::of(&[Mod::F32, Mod::F64])), 1);
        assert_eq!(Opcode::F2F.width(1, &Mods::of(&[Mod::F32, Mod::F64, Mod::RM])), 2);
        assert_eq!(Opcode::CS2R.width(0, &Mods::none()), 2);
        assert_eq!(Opcode::CS2R.width(0, &Mods::of(&[Mod::_32])), 1);
        assert_eq!(Opcode::DFMA.width(3, &Mods::none()), 2);
        let (narrow, widen) = (Mods::of(&[Mod::F32, Mod::F64]), Mods::of(&[Mod::F64, Mod::F32]));
        assert_eq!((Opcode::F2F.width(0, &narrow), Opcode::F2F.width(1, &narrow)), (1, 2));
        assert_eq!((Opcode::F2F.width(0, &widen), Opcode::F2F.width(1, &widen)), (2, 1));
        assert_eq!(Opcode::CS2R.width(0, &Mods::none()), 2);
        assert_eq!(Opcode::CS2R.width(0, &Mods::of(&[Mod::_32])), 1);
    }
}
