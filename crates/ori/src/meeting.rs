//! What lanes of a warp do together although they may stand at different places: `shfl.sync` in one arm of a branch meets
//! `shfl.sync` in the other. Until the backend has placed convergence barriers, the WARPSYNC of such an instruction,
//! and a second instruction that belongs to it, have the modifier `.DIV`, which no SASS instruction of these names has.
//!
//! Where lanes may be at two such instructions at once, they meet in a function that all of these call. It is known
//! by its name alone, which says what it executes.

use crate::{Function, InstData, Op, Operand, abi};
use sass::ops::Warpsync;
use sass::{Mod, Mods, Opcode, RegFile, Role, SlotKind};

/// Marks what lanes do together with lanes at another such instruction.
pub const MARK: Mod = Mod::DIV;

/// The instructions that follow a marked WARPSYNC.
const COLLECTIVE: [Opcode; 7] =
    [Opcode::SHFL, Opcode::VOTE, Opcode::MATCH, Opcode::REDUX, Opcode::CREDUX, Opcode::ELECT, Opcode::BAR];

/// What lanes that meet execute: one instruction without its operands, or nothing but WARPSYNC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// SHFL, VOTE, …; WARPSYNC if that is all.
    pub op: Opcode,
    /// Its modifiers.
    pub mods: Mods,
}

impl Kind {
    /// Only WARPSYNC.
    pub fn bare() -> Kind {
        Kind { op: Opcode::WARPSYNC, mods: Mods::none() }
    }
    /// That of an instruction, if it is such a one.
    pub fn of(d: &InstData) -> Option<Kind> {
        let op = d.opcode().filter(|op| COLLECTIVE.contains(op))?;
        Some(Kind { op, mods: d.mods.clone() })
    }
    /// The name of its function.
    pub fn name(&self) -> String {
        let mods: String = self.mods.iter().map(|m| format!(".{}", m.name())).collect();
        format!("{}{}{mods}", abi::MEETING, self.op.name())
    }
    /// What a function of this name executes.
    pub fn parse(name: &str) -> Option<Kind> {
        let mut parts = name.strip_prefix(abi::MEETING)?.split('.');
        let first = parts.next()?;
        let ops = COLLECTIVE.iter().chain(&[Opcode::WARPSYNC]);
        let op = *ops.into_iter().find(|o| o.name() == first)?;
        let mut mods = Mods::none();
        for part in parts {
            mods.push(*Mod::EVERY.iter().find(|m| m.name() == part)?);
        }
        Some(Kind { op, mods })
    }
    /// Whether it is of all lanes of the warp, so that the function has no argument for the lanes.
    pub fn is_of_all(&self) -> bool {
        self.op == Opcode::BAR
    }
    /// Whether all lanes that execute it at once take part, so that lanes of different masks must do it apart.
    pub fn is_of_those_here(&self) -> bool {
        matches!(self.op, Opcode::REDUX | Opcode::CREDUX | Opcode::ELECT)
    }
    /// Whether the function says, after its other results, which lanes met.
    pub fn tells_lanes(&self) -> bool {
        matches!(self.op, Opcode::VOTE | Opcode::MATCH)
    }
    /// Whether B2R gets the results.
    pub fn has_barrier_result(&self) -> bool {
        self.op == Opcode::BAR && self.mods.has(Mod::RED)
    }
    /// The slots whose results the function gives, in order, each in a register: a predicate as 0 or 1. The result of a
    /// barrier is one of B2R.
    pub fn results(&self) -> &'static [usize] {
        match self.op {
            Opcode::SHFL | Opcode::ELECT => &[0, 1],
            Opcode::VOTE if self.mods.has(Mod::ANY) => &[0, 1],
            Opcode::VOTE | Opcode::MATCH => &[1],
            Opcode::REDUX | Opcode::CREDUX => &[0],
            Opcode::BAR | Opcode::WARPSYNC => &[],
            op => unreachable!("lanes do not meet at {}", op.name()),
        }
    }
    /// The slots that the function gets, in order, and in how many registers: a predicate as 0 or 1. Number and thread
    /// count of a barrier share a register.
    pub fn arguments(&self) -> Vec<(usize, u8)> {
        if self.op == Opcode::WARPSYNC {
            return Vec::new();
        }
        let uses = self.op.slots().iter().enumerate().filter(|(_, s)| s.role == Role::Use);
        let bar = |i| i == 0 || i == 2 && self.has_barrier_result();
        let uses = uses.filter(|(i, _)| self.op != Opcode::BAR || bar(*i));
        uses.map(|(i, _)| (i, self.op.width(i, &self.mods))).collect()
    }
}

/// Whether a slot of an opcode holds a predicate.
pub fn is_truth(op: Opcode, slot: usize) -> bool {
    matches!(op.slots()[slot].kind, SlotKind::Reg(RegFile::P))
}

/// Whether an instruction is a WARPSYNC, and marked.
pub fn is_meeting(d: &InstData) -> bool {
    d.op == Op::Sass(Opcode::WARPSYNC) && d.mods.has(MARK)
}

/// The mask of a WARPSYNC if it is a constant.
pub fn constant_lanes(d: &InstData) -> Option<u32> {
    match Warpsync::of(d)?.lanes {
        Operand::Imm(n) => Some(*n),
        _ => None,
    }
}

/// Takes all marks away.
pub fn unmark(func: &mut Function) {
    let marked = |d: &InstData| matches!(d.op, Op::Sass(Opcode::WARPSYNC | Opcode::VOTE)) && d.mods.has(MARK);
    func.insts.values_mut().filter(|d| marked(d)).for_each(|d| d.mods.remove(MARK));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_executed() {
        let kind = Kind { op: Opcode::REDUX, mods: Mods::of(&[Mod::MIN, Mod::S32]) };
        assert_eq!(kind.name(), "oxptxas.sync.REDUX.MIN.S32");
        assert_eq!(Kind::parse(&kind.name()), Some(kind));
        assert_eq!(Kind::parse(&Kind::bare().name()), Some(Kind::bare()));
        assert_eq!(Kind::parse("oxptxas.sync.SHFL.NONE"), None);
        assert_eq!(Kind::parse("oxptxas.div_f32"), None);
        let shuffle = Kind { op: Opcode::SHFL, mods: Mods::of(&[Mod::BFLY]) };
        assert_eq!(shuffle.arguments(), [(2, 1), (3, 1), (4, 1)]);
        let wide = Kind { op: Opcode::MATCH, mods: Mods::of(&[Mod::ANY, Mod::U64]) };
        assert_eq!(wide.arguments(), [(2, 2)]);
        let barrier = Kind { op: Opcode::BAR, mods: Mods::of(&[Mod::SYNC]) };
        assert_eq!(barrier.arguments(), [(0, 1)]);
        let reduction = Kind { op: Opcode::BAR, mods: Mods::of(&[Mod::RED, Mod::OR]) };
        assert_eq!(reduction.arguments(), [(0, 1), (2, 1)]);
    }
}
