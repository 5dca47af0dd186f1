//! The instruction table, generated from `isa/*.isa` by `build.rs`, and the queries on it.

use crate::asks::{AskRow, Asks};
use crate::form::*;
use crate::inst::AddrWidth;
use crate::inst::{ModAt, Mods, Role, Slot, SlotKind, Width};
use crate::latency::{ApartRow, LatencyRow, PartRow, UnitInfo};
use crate::memory::{AccessBytes, MemoryAccess, MemoryEffect, MemoryEffects, MemorySpace};
use crate::{Reg, RegFile};

include!(concat!(env!("OUT_DIR"), "/isa.rs"));

/// What the table says about an opcode.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// What nvdisasm calls it, where several opcodes share a mnemonic.
    pub mnemonic: &'static str,
    /// Canonical operand slots.
    pub slots: &'static [Slot],
    /// What it does besides giving results.
    pub effect: Effect,
    /// Whether that is an effect on memory.
    pub memory: bool,
    /// What it does there.
    pub accesses: MemoryEffects,
    /// Whether it transfers control or touches convergence state.
    pub control: bool,
    /// Whether it synchronizes threads (BAR).
    pub sync: bool,
    /// What its results depend on across the lanes of a warp.
    pub lanes: Lanes,
    /// Sources of which any two may be exchanged, with their source modifiers.
    pub swap: &'static [u8],
    /// What else changes then.
    pub swap_changes: SwapChange,
    /// Opcodes that do the same on the uniform datapath, operand by operand; which one a target has, its forms say.
    pub twins: &'static [Opcode],
    /// Sources in which we put something other than registers.
    pub sources: &'static [u8],
    /// What that is.
    pub source_kinds: SourceKinds,
    /// What an immediate is where the operand has two registers.
    pub wide_immediate: WideImmediate,
    /// Accesses and barriers after it wait until it is done, which its write scoreboard tells although it writes no
    /// register: so ptxas has it.
    pub awaited: bool,
    /// Reads uniform registers so late that ptxas does not let the warp end before.
    pub holds_uniform: bool,
    /// Reads its general registers some time after issue, as others of its unit do not: overwriting them needs a scoreboard.
    pub late: bool,
    /// It synchronizes or orders accesses of memory, and nothing else has to keep its place beside it.
    pub passable: bool,
    /// It has no wait mask: what it has to wait for, something before it does.
    pub waitless: bool,
    /// Least stall count, whatever follows.
    pub min_stall: u8,
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

/// What an opcode does besides giving results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: its results follow from its operands, and from other lanes as [`OpInfo::lanes`] says.
    Pure,
    /// It reads or changes something that no operand names, but need not keep its place among others.
    State,
    /// Nothing may move past it.
    Order,
    /// It accesses memory, or orders accesses: [`OpInfo::accesses`].
    Memory,
    /// It waits for other threads, or has to do with those that do.
    Sync(Sync),
    /// It transfers control or touches convergence state.
    Control(Flow),
}

/// What synchronizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// Threads wait for others, which may be of their warp.
    Threads,
    /// Threads of a block wait for each other. Only memory tells what others have done by then, so what only computes may pass.
    Block,
    /// The result of such a wait is fetched.
    Result,
    /// It concerns what other grids do.
    Grids,
}

/// What happens to control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It goes elsewhere in the function.
    Jump,
    /// The thread ends.
    Exit,
    /// A function is called.
    Call,
    /// The function is left.
    Return,
    /// It goes on, and a convergence barrier says where lanes meet.
    Region,
    /// Lanes meet, or leave those that do.
    Meet,
    /// Other lanes of the warp may go first.
    Yield,
    /// The debugger or the driver takes over.
    Trap,
}

/// What the results of an opcode depend on across the lanes of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    /// On nothing but the lane's own operands.
    Own,
    /// On operands of all lanes of the warp, which must all take part; they differ from lane to lane.
    Warp,
    /// On which lanes are active, and what those hold; they differ from lane to lane.
    Active,
    /// The same, but all lanes that execute it together get the same.
    Agreed,
    /// On the operands of one of the active lanes: where those are the same in all lanes, so are the results.
    Chosen,
}

/// What must change in an instruction when two of its sources are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapChange {
    /// Nothing.
    Nothing,
    /// The truth table that follows the sources.
    Lut,
    /// The predicate that follows the sources is inverted.
    Select,
    /// The comparison, its first modifier, is turned round. With `.EX` they may not be exchanged.
    Compare,
}

/// What an immediate, which has 32 bits, stands for where the operand has two registers. The forms say it: by how they spell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WideImmediate {
    /// An integer, extended by zeros or by its sign, which no form takes.
    Integer,
    /// An integer, extended by its sign, which the instruction takes.
    Extended,
    /// The high half of a binary64 number, whose low half is 0.
    HighHalf,
    /// Both of two binary32 numbers.
    Both,
}

/// What may stand in a source besides a general register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceKinds {
    /// Nothing.
    Registers,
    /// In one of them, an immediate.
    Immediate,
    /// In each of them, an immediate.
    Immediates,
    /// In one of them, a constant or a uniform register, as the forms of the target have it, but no immediate.
    Constant,
    /// In one of them, an immediate, a constant or a uniform register, as the forms of the target have it.
    Any,
}

/// For whom a special register is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Each lane may have its own.
    Lane,
    /// All threads of a CTA have the same.
    Block,
}

/// When a special register changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// Not while a thread runs.
    Never,
    /// It may at any time.
    Anytime,
    /// It counts: nothing may move past its reading.
    Clock,
}

/// What the table says about a special register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialInfo {
    /// For whom it is the same.
    pub scope: Scope,
    /// When it changes.
    pub changes: Changes,
}

impl SpecialReg {
    /// The table entry.
    pub fn info(self) -> SpecialInfo {
        SPECIALS[self as usize]
    }
}

impl OpInfo {
    /// Whether it reads or writes predicates that no operand names.
    pub fn has_hidden_predicates(&self) -> bool {
        self.reads_predicates
            || self.writes_predicates
            || self.reads_uniform_predicates
            || self.writes_uniform_predicates
    }

    /// Whether it only computes results from its operands, for which lanes do not count that do not take part: what
    /// special registers among the operands do ([`SpecialReg::info`]) is not considered.
    pub fn is_computation(&self) -> bool {
        self.effect == Effect::Pure
            && matches!(self.lanes, Lanes::Own | Lanes::Warp)
            && !self.has_hidden_predicates()
    }

    /// Whether control leaves the function and comes back, or doesn't: whatever the code there does with registers and
    /// scoreboards, everything that is under way must be complete.
    pub fn leaves_function(&self) -> bool {
        matches!(self.effect, Effect::Control(Flow::Call | Flow::Return))
    }

    /// Whether it reads memory at addresses and in sizes that are known, and does nothing else there.
    pub fn is_plain_load(&self) -> bool {
        let plain = |a: &MemoryAccess| a.effect == MemoryEffect::Read && a.bytes.is_some();
        matches!(self.accesses, MemoryEffects::Accesses(all) if all.iter().all(plain))
    }

    /// The space of the address that is the `nth` among the operands, as far as the table knows.
    pub fn space(&self, nth: usize) -> Option<MemorySpace> {
        match self.accesses {
            MemoryEffects::Accesses(all) => all.get(nth).map(|a| a.space),
            _ => None,
        }
    }
}

/// By bits, which operand slots of each opcode are written, and which of them are not read: asked for each instruction again and again, so
/// that it should lie close together.
static WRITTEN: [[u16; 2]; Opcode::EVERY.len()] = {
    let mut table = [[0; 2]; Opcode::EVERY.len()];
    let mut op = 0;
    while op < table.len() {
        let slots = OPS[op].slots;
        assert!(slots.len() <= u16::BITS as usize);
        let mut slot = 0;
        while slot < slots.len() {
            let role = slots[slot].role;
            table[op][0] |= (!matches!(role, Role::Use) as u16) << slot;
            table[op][1] |= (matches!(role, Role::Def) as u16) << slot;
            slot += 1;
        }
        op += 1;
    }
    table
};

impl Opcode {
    /// The operand slots that are written, by bits.
    #[inline]
    pub fn written(self) -> u16 {
        WRITTEN[self as usize][0]
    }
    /// Those that are written and not read.
    #[inline]
    pub fn only_written(self) -> u16 {
        WRITTEN[self as usize][1]
    }
    /// The table entry.
    #[inline]
    pub fn info(self) -> &'static OpInfo {
        &OPS[self as usize]
    }
    /// nvdisasm's mnemonic: the name, except where several opcodes share one.
    pub fn mnemonic(self) -> &'static str {
        self.info().mnemonic
    }
    /// Canonical operand slots.
    #[inline]
    pub fn slots(self) -> &'static [Slot] {
        self.info().slots
    }
    /// Whether it loads from constant memory, and does nothing else.
    pub fn loads_constants(self) -> bool {
        self.slots().iter().any(|s| s.kind == SlotKind::Const)
    }
    /// Whether it runs on the uniform datapath, so that its guard is a uniform predicate.
    pub fn is_uniform(self) -> bool {
        self.info().uniform
    }
    /// Registers that operand slot `slot` spans under `mods`.
    #[inline]
    pub fn width(self, slot: usize, mods: &Mods) -> u8 {
        match self.slots()[slot].width {
            Width::Fixed(n) => n,
            other => other.under(mods),
        }
    }
    /// Whether it is a product of a warp group: it begins when it issues and ends when `WARPGROUP.DEPBAR` says so.
    pub fn is_group_product(self) -> bool {
        self.unit() == Unit::Gmma
    }

    /// What the index of the first register of its tuples of `width` is a multiple of. Accumulators of warp groups begin at multiples of 8 in all code
    /// of ptxas 13.0.88 (2,437 products, of 8 to 128 registers), 16 registers of DMMA at multiples of 16.
    pub fn tuple_alignment(self, width: u8) -> u8 {
        let next = width.checked_next_power_of_two().unwrap_or(u8::MAX);
        match self.unit() {
            Unit::Gmma => next.min(8),
            Unit::TensorFp64 => next.min(16),
            _ => Reg::tuple_alignment(width),
        }
    }
}

impl Width {
    /// Registers under `mods`.
    pub fn under(self, mods: &Mods) -> u8 {
        match self {
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
            Width::TensorMemory => {
                let counts = [Mod::x2, Mod::x4, Mod::x8, Mod::x16, Mod::x32, Mod::x64, Mod::x128];
                let times = counts.iter().position(|m| mods.has(*m)).map_or(1, |n| 2u8 << n);
                let each = match () {
                    () if mods.has(Mod::_16dp128bit) => 2,
                    () if mods.has(Mod::_16dp256bit) => 4,
                    () => 1,
                };
                times.saturating_mul(each)
            }
            Width::Accumulator => {
                let columns = columns(mods).unwrap_or(0);
                // 128 threads share 64 rows: half a column each, of binary16 in a word with its neighbour.
                (if mods.has(Mod::F16) { columns / 4 } else { columns / 2 }) as u8
            }
        }
    }
}

/// The columns of a product of a warp group: `64xNxK` among its modifiers.
pub fn columns(mods: &Mods) -> Option<u16> {
    mods.iter().find_map(|m| m.name().strip_prefix("64x")?.split_once('x')?.0.parse().ok())
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
    fn what_looks_at_other_lanes_is_no_function_of_its_operands() {
        // Where lanes exchange data, by nvdisasm's names.
        let cross = [
            "SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "CREDUX", "ELECT", "R2UR", "MOVM", "LDSM", "STSM",
            "FSWZADD", "HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA",
            "LDTM", "STTM", "TEX",
        ];
        for name in cross {
            let mut found = false;
            for op in Opcode::EVERY.iter().filter(|o| o.name().split('.').next() == Some(name)) {
                found = true;
                assert_ne!(op.info().lanes, Lanes::Own, "{op}");
            }
            assert!(found, "no opcode {name}");
        }
    }

    #[test]
    fn computations_do_nothing_else() {
        for op in [Opcode::P2R, Opcode::R2P, Opcode::LEPC, Opcode::NOP, Opcode::BMOV_B, Opcode::NANOSLEEP_P] {
            assert!(!op.info().is_computation(), "{op}");
        }
        for op in [Opcode::SHFL, Opcode::VOTE, Opcode::ELECT, Opcode::BAR, Opcode::LDG, Opcode::QMUL4] {
            assert_eq!(op.info().is_computation(), op == Opcode::QMUL4, "{op}");
        }
        assert!(
            [Opcode::IADD3, Opcode::LDC, Opcode::HMMA, Opcode::MOVM]
                .iter()
                .all(|o| o.info().is_computation())
        );
    }

    #[test]
    fn every_way_out_of_a_function_is_one() {
        let out: Vec<&str> =
            Opcode::EVERY.iter().filter(|o| o.info().leaves_function()).map(|o| o.name()).collect();
        assert_eq!(out, ["CALL", "CALL.U", "RET", "CALL.P", "RET.P"]);
    }

    #[test]
    fn plain_loads_are_of_known_size() {
        assert!([Opcode::LDG, Opcode::LD, Opcode::LDS, Opcode::LDL].iter().all(|o| o.info().is_plain_load()));
        let others = [Opcode::LDSM, Opcode::SULD, Opcode::LDGSTS, Opcode::ATOMG, Opcode::STG, Opcode::TEX];
        assert!(!others.iter().any(|o| o.info().is_plain_load()));
    }

    #[test]
    fn special_registers_differ_unless_it_is_known() {
        let of = |r: SpecialReg| (r.info().scope, r.info().changes);
        assert_eq!(of(SpecialReg::SR_CTAID_X), (Scope::Block, Changes::Never));
        assert_eq!(of(SpecialReg::SR_TID_X), (Scope::Lane, Changes::Never));
        assert_eq!(of(SpecialReg::SR_CLOCKLO), (Scope::Lane, Changes::Clock));
        assert_eq!(of(SpecialReg::SR145), (Scope::Lane, Changes::Anytime));
    }

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
