//! What instructions do with memory, as the table says it.

use crate::{Mod, Mods};

/// Which memory an address is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemorySpace {
    /// Global memory.
    Global,
    /// Shared memory of the CTA.
    Shared,
    /// Local memory of the thread.
    Local,
    /// Any of them, and shared memory of other CTAs.
    Generic,
}

impl MemorySpace {
    /// Whether one byte may have an address in both.
    pub fn overlaps(self, other: MemorySpace) -> bool {
        self == other || self == MemorySpace::Generic || other == MemorySpace::Generic
    }
}

/// What is done at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryEffect {
    /// A load.
    Read,
    /// A store.
    Write,
    /// Something that others see in one piece; it keeps its place among all accesses.
    Atomic,
}

/// How many bytes are accessed, by the instruction's modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessBytes {
    /// Without any of those below.
    pub default: u32,
    /// With this modifier; the first that is there counts.
    pub by_mod: &'static [(Mod, u32)],
}

/// An access of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryAccess {
    /// Where.
    pub space: MemorySpace,
    /// What is done.
    pub effect: MemoryEffect,
    /// How many bytes from the address on; `None` where they may lie anywhere in the space.
    pub bytes: Option<AccessBytes>,
}

impl MemoryAccess {
    /// Bytes from the address on under these modifiers; `None` where they may lie anywhere in the space.
    pub fn size(&self, mods: &Mods) -> Option<u32> {
        let bytes = self.bytes?;
        Some(bytes.by_mod.iter().find(|(m, _)| mods.has(*m)).map_or(bytes.default, |(_, n)| *n))
    }
}

/// What an opcode does with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryEffects {
    /// Nothing.
    None,
    /// Something that no access may pass; also what is not described any closer.
    Fence,
    /// A read of what nobody changes while the kernel runs: textures.
    ReadOnly,
    /// One access for each address among its operands, in their order.
    Accesses(&'static [MemoryAccess]),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Opcode, SlotKind};

    fn size(op: Opcode, mods: &[Mod]) -> Option<u32> {
        match op.info().accesses {
            MemoryEffects::Accesses(a) => a[0].size(&Mods::of(mods)),
            _ => None,
        }
    }

    #[test]
    fn sizes_follow_modifiers() {
        assert_eq!(size(Opcode::LDS, &[]), Some(4));
        assert_eq!(size(Opcode::LDS, &[Mod::U8]), Some(1));
        assert_eq!(size(Opcode::STG, &[Mod::E, Mod::_128]), Some(16));
        assert_eq!(size(Opcode::LDG_256, &[Mod::E, Mod::_256]), Some(32));
        assert_eq!(size(Opcode::STG_256, &[Mod::E, Mod::_256]), Some(32));
        assert_eq!(size(Opcode::LDSM, &[Mod::_16, Mod::M88]), None);
    }

    #[test]
    fn every_access_of_known_size_moves_as_much_as_its_registers_hold() {
        for op in Opcode::EVERY {
            let MemoryEffects::Accesses([one]) = op.info().accesses else { continue };
            for mods in [&[][..], &[Mod::_64], &[Mod::_128]] {
                let mods = Mods::of(mods);
                let Some(bytes) = one.size(&mods) else { continue };
                let data = |k: &usize| {
                    matches!(op.slots()[*k].kind, SlotKind::Reg(crate::RegFile::R | crate::RegFile::UR))
                };
                let registers: u32 =
                    (0..op.slots().len()).filter(data).map(|k| u32::from(op.width(k, &mods))).sum();
                assert_eq!(bytes, 4 * registers, "{op}");
            }
        }
    }
}
