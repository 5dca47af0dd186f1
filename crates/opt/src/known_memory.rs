//! What a thread knows of memory on its way: what it has loaded and stored, until something may have changed that. A load of
//! the same is no load. For weak accesses alone: others change what they see only with a fence, a barrier or a strong access between, or
//! the program has a race.

use crate::vectorize::separates;
use ori::{InstData, Name, Op, Operand, Value};
use sass::memory::{MemoryEffect, MemoryEffects, MemorySpace};
use sass::ops::Sts;
use sass::{AddrWidth, Mod, Opcode, Reg};
use smallvec::SmallVec;

/// The most accesses that are kept in mind; the oldest go.
const MOST: usize = 32;

/// Bytes in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    space: MemorySpace,
    base: Option<Name>,
    wide: bool,
    offset: i32,
    size: u32,
}

impl Place {
    /// Whether both may have a byte in common: if they start from one register, their offsets say it.
    fn may_overlap(&self, other: &Place) -> bool {
        let (a, b) = (i64::from(self.offset), i64::from(other.offset));
        let apart = a + i64::from(self.size) <= b || b + i64::from(other.size) <= a;
        self.space.overlaps(other.space) && !(self.base == other.base && self.wide == other.wide && apart)
    }
}

/// What an access is known to have seen or left.
#[derive(Clone, Debug)]
enum Content {
    /// A load of this instruction had these results.
    Loaded(Box<InstData>, SmallVec<[Value; 2]>),
    /// This was stored.
    Stored(Name),
}

/// What a load is instead.
#[derive(PartialEq, Debug)]
pub enum Found {
    /// These values, as many as it has results.
    Values(SmallVec<[Value; 2]>),
    /// A copy of this, which has its width.
    Copy(Name),
}

/// What is known at one place of the code.
#[derive(Clone, Default)]
pub struct Memory {
    known: Vec<(Place, Content)>,
}

impl Memory {
    /// Steps over an instruction with these results; what it is instead, if it is a load of what is known. `width` says how many registers a
    /// name has.
    pub fn step(&mut self, d: &InstData, results: &[Value], width: impl Fn(Name) -> u8) -> Option<Found> {
        match (plain(d), stored(d)) {
            (Some(place), None) => {
                if let Some(found) = self.find(&place, d, results, &width) {
                    return Some(found);
                }
                self.note(place, Content::Loaded(Box::new(d.clone()), results.into()));
            }
            (Some(place), Some(data)) => {
                self.known.retain(|(p, _)| !p.may_overlap(&place));
                if d.is_unguarded() {
                    self.note(place, Content::Stored(data));
                }
            }
            (None, _) => self.known.retain(|(p, _)| !separates(d, p.space)),
        }
        None
    }

    fn find(
        &self,
        place: &Place,
        d: &InstData,
        results: &[Value],
        width: impl Fn(Name) -> u8,
    ) -> Option<Found> {
        let words = [Mod::U8, Mod::S8, Mod::U16, Mod::S16].iter().all(|m| !d.mods.has(*m));
        self.known.iter().rev().filter(|(p, _)| p == place).find_map(|(_, content)| match content {
            Content::Loaded(old, values) => {
                let alike = |k: usize| d.is_def(k) || old.operands[k] == d.operands[k];
                let same = old.op == d.op && old.mods == d.mods && values.len() == results.len();
                (same && (0..d.operands.len()).all(alike)).then(|| Found::Values(values.clone()))
            }
            Content::Stored(data) => {
                let fits = results.len() == 1 && u32::from(width(*data)) * 4 == place.size;
                // Nor one that a predicate decides about.
                let sure = (0..d.operands.len()).all(|k| {
                    let Operand::Reg(r) = &d.operands[k] else { return true };
                    d.is_def(k) || r.reg == Name::Phys(Reg::PT) && !r.not
                });
                (words && fits && sure).then_some(Found::Copy(*data))
            }
        })
    }

    fn note(&mut self, place: Place, content: Content) {
        if self.known.len() == MOST {
            self.known.remove(0);
        }
        self.known.push((place, content));
    }
}

/// Where an ordinary load or store is, of a size and at an address that are known. A load under a guard is none.
fn plain(d: &InstData) -> Option<Place> {
    let Op::Sass(op) = d.op else { return None };
    let load = matches!(op, Opcode::LDG | Opcode::LDS | Opcode::LDL | Opcode::LD);
    let store = matches!(op, Opcode::STG | Opcode::STS | Opcode::STL | Opcode::ST);
    let marked = d.mods.has(Mod::STRONG) || d.mods.has(Mod::MMIO) || ori::access_of_lanes(op, &d.mods);
    if !(load && d.is_unguarded() || store) || marked {
        return None;
    }
    let MemoryEffects::Accesses([access]) = op.info().accesses else { return None };
    debug_assert_eq!(access.effect == MemoryEffect::Read, load);
    let mut addresses = d.operands.iter().filter_map(|o| match o {
        Operand::Addr { base, width, uniform: None, offset, .. } => Some((*base, *width, *offset)),
        _ => None,
    });
    let (base, width, offset) = addresses.next()?;
    let wide = match width {
        AddrWidth::R32 => false,
        AddrWidth::R64 => true,
        _ => return None,
    };
    Some(Place { space: access.space, base, wide, offset, size: access.size(&d.mods)? })
}

/// What an ordinary store stores.
fn stored(d: &InstData) -> Option<Name> {
    if !matches!(d.op, Op::Sass(Opcode::STG | Opcode::STS | Opcode::STL | Opcode::ST)) {
        return None;
    }
    // All of them have these slots.
    match Sts::slots(&d.operands)?.value {
        Operand::Reg(r) => Some(r.reg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ori::Analyses;
    use sass::Opcode;

    /// How many loads are left of two of the same address with this between.
    fn loads(between: &str, load: &str) -> usize {
        let text = format!(
            "function k sm_90 entry local=64 shared=0 barriers=1 regs=255 {{
block0:
    v0:UR2 = ULDC.64 c[0x0][0x208]
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R2 = LDC.64 c[0x0][0x218]
    v3:R = S2R SR_TID.X
    v4:R = {load}
    {between}
    v5:R = {load}
    STG.E desc[v0][v2.64+0x40], v4
    STG.E desc[v0][v2.64+0x44], v5
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e:?}: {text}"));
        _ = crate::gvn::run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let load = |i: &&ori::Inst| {
            let op = f.insts[**i].opcode();
            matches!(op, Some(Opcode::LDG | Opcode::LDS | Opcode::LDL))
        };
        f.blocks[f.entry_block()].insts.iter().filter(load).count()
    }

    const GLOBAL: &str = "LDG.E PT, desc[v0][v1.64+0x8], PT";

    #[test]
    fn what_was_loaded_is_known() {
        assert_eq!(loads("", GLOBAL), 1);
        // Other bytes from the same pointer, another kind of memory, a warp that meets.
        assert_eq!(loads("STG.E desc[v0][v1.64+0xc], v3", GLOBAL), 1);
        assert_eq!(loads("STS [v3], v3", GLOBAL), 1);
        assert_eq!(loads("WARPSYNC PT, 0xffffffff", GLOBAL), 1);
        assert_eq!(loads("STL [R1+0x8], v3", "LDL [R1+0x4]"), 1);
    }

    #[test]
    fn until_something_may_have_changed_it() {
        assert_eq!(loads("STG.E desc[v0][v2.64], v3", GLOBAL), 2);
        assert_eq!(loads("STG.E.64 desc[v0][v1.64+0x4], v2", GLOBAL), 2);
        assert_eq!(loads("ST.E desc[v0][v2.64], v3", "LDS [v3]"), 2);
        assert_eq!(loads("BAR.SYNC 0x0, 0x0, PT", GLOBAL), 2);
        // What bar.warp.sync says of memory.
        assert_eq!(loads("NOP", GLOBAL), 2);
        assert_eq!(loads("v6:R = LDG.E.STRONG.SYS PT, desc[v0][v2.64], PT", GLOBAL), 3);
        assert_eq!(loads("", "LDG.E.STRONG.SYS PT, desc[v0][v1.64], PT"), 2);
        assert_eq!(loads("", "LDS.STRONG [v3]"), 2);
    }

    #[test]
    fn what_was_stored_is_known() {
        assert_eq!(loads("STS [v3], v1.1", "LDS [v3]"), 1);
        assert_eq!(loads("STL [R1+0x4], RZ", "LDL [R1+0x4]"), 1);
        // Not if it was less, or only some threads stored it.
        assert_eq!(loads("STS.U8 [v3], v1.1", "LDS [v3]"), 2);
        assert_eq!(loads("v7:P = ISETP.LT.AND PT, v3, 0x5, PT, PT\n    @v7 STS [v3], v1.1", "LDS [v3]"), 2);
        // The byte is extended on the way.
        assert_eq!(loads("STS.U8 [v3], v1.1", "LDS.U8 [v3]"), 2);
    }
}
