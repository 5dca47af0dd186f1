//! The instruction table, generated from `isa/*.isa` by `build.rs`, and the queries on it.

use crate::RegFile;
use crate::inst::{ModAt, Mods, Role, Slot, SlotKind, Width};

include!(concat!(env!("OUT_DIR"), "/isa.rs"));

/// What the table says about an opcode.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// Canonical operand slots.
    pub slots: &'static [Slot],
    /// Reads or writes memory.
    pub memory: bool,
    /// Transfers control or touches convergence state.
    pub control: bool,
    /// Synchronizes threads (BAR).
    pub sync: bool,
}

impl Opcode {
    /// The table entry.
    pub fn info(self) -> &'static OpInfo {
        &OPS[self as usize]
    }
    /// Canonical operand slots.
    pub fn slots(self) -> &'static [Slot] {
        self.info().slots
    }
    /// Registers that operand slot `slot` spans under `mods`.
    pub fn width(self, slot: usize, mods: &Mods) -> u8 {
        match self.slots()[slot].width {
            Width::Fixed(n) => n,
            Width::ByMod(table) => {
                let last = mods.iter().last();
                let holds = |at: ModAt, m: Mod| match at {
                    ModAt::Any => mods.has(m),
                    ModAt::First => mods.has(m) && last != Some(m),
                    ModAt::Last => last == Some(m),
                };
                table.iter().find(|(at, m, _)| holds(*at, *m)).map_or(1, |(_, _, n)| *n)
            }
        }
    }
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
        assert_eq!(Opcode::DFMA.width(3, &Mods::none()), 2);
    }
}
