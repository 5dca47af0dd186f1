//! What lanes of a warp do together although they may stand at different places: `shfl.sync` in one arm of a branch meets
//! `shfl.sync` in the other. Until the backend has placed convergence barriers, the WARPSYNC of such an instruction,
//! and a second instruction that belongs to it, have the modifier `.DIV`, which no SASS instruction of these names has.
//!
//! Where lanes may be at two such instructions at once, they meet in a function that all of these call. It is known
//! by its name alone, which says what it executes.
//!
//! A VOTEU with the modifier is the guard of what the warp executes for an elected lane: it holds where no lanes meet others.

use crate::{Block, Callee, Function, Inst, InstData, Macro, Name, Op, Operand, Terminator, Value, abi};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::Warpsync;
use sass::{Effect, Mod, Mods, Opcode, Reg, RegFile, RegOp, Role, SlotKind};

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

/// What lanes may do together with lanes at another place: whatever becomes of the result here, those count on it. In a kernel that calls nothing in
/// which there may be such places, what is done at one place only is not among it.
pub fn counted_on(func: &Function) -> FxHashSet<Inst> {
    let mut sites: Vec<(Inst, String)> = Vec::new();
    for b in &func.layout {
        // The statement whose WARPSYNC came last.
        let mut statement = None;
        for i in &func.blocks[*b].insts {
            let d = &func.insts[*i];
            if d.opcode() == Some(Opcode::WARPSYNC) {
                statement = Some(d.loc).filter(|_| is_meeting(d));
            } else if statement == Some(d.loc)
                && let Some(kind) = Kind::of(d)
            {
                sites.push((*i, kind.name()));
            }
        }
    }
    let private = |c: &Callee| matches!(c, Callee::Internal(name) if name.starts_with(abi::SHARED));
    let alone = func.entry && func.callees.iter().all(private);
    let mut count: FxHashMap<String, u32> = FxHashMap::default();
    sites.iter().for_each(|(_, name)| *count.entry(name.clone()).or_default() += 1);
    sites.retain(|(_, name)| !alone || count[name] > 1);
    sites.into_iter().map(|(i, _)| i).collect()
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

/// The block to which the branch at the end of `b` leads where all lanes of the warp are there, if that is what it asks: lanes that come together go
/// on together.
pub fn whole_warp(func: &Function, b: Block) -> Option<Block> {
    let Terminator::Branch { cond: Name::Val(missing), not: false, taken, fall } = &func.blocks[b].term
    else {
        return None;
    };
    let all = |r: &RegOp<Name>| *r == RegOp::plain(Name::Phys(Reg::PT));
    let is_all = |o: &Operand| matches!(o, Operand::Reg(r) if all(r));
    let names = |o: &Operand, v: Value| *o == crate::operand(v);
    // What is compared, once the comparison was found.
    let mut here = None;
    for i in func.blocks[b].insts.iter().rev() {
        let d = &func.insts[*i];
        match (d.op, &d.operands[..], here) {
            (
                Op::Sass(Opcode::ISETP),
                [p, other, Operand::Reg(a), Operand::Imm(0xffff_ffff), with, carry],
                None,
            ) if names(p, *missing) => {
                let compares = d.mods == Mods::of(&[Mod::NE, Mod::U32, Mod::AND]) && d.is_unguarded();
                let alone = is_all(other) && is_all(with) && is_all(carry) && *a == RegOp::plain(a.reg);
                here = Some(a.reg.value().filter(|_| compares && alone)?);
            }
            (Op::Sass(Opcode::VOTE), [v, p, q], Some(found)) if names(v, found) => {
                let votes = d.mods == Mods::of(&[Mod::ANY]) && d.is_unguarded() && is_all(p) && is_all(q);
                return Some(fall.block).filter(|f| votes && *f != taken.block);
            }
            // Others may have come meanwhile.
            (Op::Sass(op), ..) if matches!(op.info().effect, Effect::Sync(_) | Effect::Control(_)) => {
                return None;
            }
            (Op::Macro(Macro::Call), ..) => return None,
            _ => {}
        }
    }
    None
}

/// Takes all marks away.
pub fn unmark(func: &mut Function) {
    let marked = |d: &InstData| {
        matches!(d.op, Op::Sass(Opcode::WARPSYNC | Opcode::VOTE | Opcode::VOTEU)) && d.mods.has(MARK)
    };
    func.insts.values_mut().filter(|d| marked(d)).for_each(|d| d.mods.remove(MARK));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_the_whole_warp() {
        let asks = |between: &str, mask: &str| {
            let text = format!(
                "function f sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = VOTE.ANY PT, PT\n{between}    \
                 v1:P = ISETP.NE.U32.AND PT, v0, {mask}, PT, PT\n    branch v1, block1, block2\nblock1:\n    exit\nblock2:\n    exit\n}}\n"
            );
            let func = crate::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            whole_warp(&func, func.entry_block()).map(|b| b.to_string())
        };
        assert_eq!(asks("", "0xffffffff").as_deref(), Some("block2"));
        assert_eq!(asks("    v2:R = copy RZ\n", "0xffffffff").as_deref(), Some("block2"));
        // Others may have come since.
        assert_eq!(asks("    WARPSYNC PT, 0xffffffff\n", "0xffffffff"), None);
        assert_eq!(asks("", "0xffff"), None);
    }

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
