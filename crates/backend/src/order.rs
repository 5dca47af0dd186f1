//! What may change places: the rules that both schedulers keep.
//!
//! Order is kept between memory accesses that may overlap unless both only read, between strong accesses and all
//! others, and around everything that synchronizes, transfers control or reads a clock; barriers of the block and what waits for copies keep
//! their places among accesses only. What an instruction does with
//! memory is in the table (`sass::memory`); what only PTX knows, the caller says.

use sass::memory::{MemoryAccess, MemoryEffect, MemoryEffects, MemorySpace};
use sass::{AddrWidth, Changes, Effect, Flow, Lanes, Mod, Mods, Opcode, Operand, RegFile, Sync, Unit};
use smallvec::SmallVec;

#[cfg(test)]
pub(crate) mod errors;

/// Stores and the like that a later access is compared with; older ones are summed up.
const MAX_WRITES: usize = 48;
/// Loads that a later store is compared with.
const MAX_READS: usize = 192;

/// More groups of copies than are ever left under way: such a wait of DEPBAR is another.
const MOST_GROUPS: u32 = 0x30;

/// What a register holds: equal ones are equal contents.
pub type Contents = (u32, u32);

/// Whether nothing may move past the instruction.
pub fn is_boundary<R, L>(op: Opcode, mods: &Mods, operands: &[Operand<R, L>]) -> bool {
    let info = op.info();
    let clock = |o: &Operand<R, L>| matches!(o, Operand::Special(s) if s.info().changes == Changes::Clock);
    let ends = match info.effect {
        // Other waits of DEPBAR than for groups of copies stand directly above what they are for.
        _ if op == Opcode::DEPBAR && !waits_for_copies(operands) => true,
        // Only accesses keep their places beside it, for which it is one that conflicts with all.
        _ if info.passable => false,
        Effect::Pure | Effect::State | Effect::Control(Flow::Region) => false,
        Effect::Memory => info.accesses == MemoryEffects::Fence,
        // What a barrier finds out is fetched directly behind it.
        Effect::Sync(Sync::Block) => mods.has(Mod::RED) || mods.has(Mod::SCAN),
        Effect::Order | Effect::Sync(_) | Effect::Control(_) => true,
    };
    ends || operands.iter().any(clock)
}

/// Whether threads of a block wait for each other at the instruction.
pub fn is_barrier(op: Opcode) -> bool {
    op.info().effect == Effect::Sync(Sync::Block)
}

/// Whether DEPBAR waits until no more than some groups of copies are under way.
fn waits_for_copies<R, L>(operands: &[Operand<R, L>]) -> bool {
    matches!(operands, [Operand::Scoreboard(0), Operand::Imm(0..MOST_GROUPS), Operand::ScoreboardSet(0), ..])
}

/// What an instruction does with memory, as far as order goes.
#[derive(Clone)]
pub struct Access {
    /// Must keep its place among all accesses.
    strong: bool,
    /// Reads what nobody has written since the kernel began, so that it may come before everything; what comes behind may write it.
    image: bool,
    parts: SmallVec<[Part; 1]>,
}

/// What it does at one address.
#[derive(Clone, Copy)]
struct Part {
    access: MemoryAccess,
    /// The bytes accessed; `None` if unknown.
    place: Option<Place>,
}

/// Bytes relative to a base register's value, or a multiple of that.
#[derive(Clone, Copy)]
struct Place {
    base: Option<Contents>,
    width: AddrWidth,
    uniform: Option<Contents>,
    offset: i32,
    size: u32,
}

impl Access {
    fn only_reads(&self) -> bool {
        !self.strong && self.parts.iter().all(|p| p.access.effect == MemoryEffect::Read)
    }

    fn conflicts(&self, other: &Access) -> bool {
        let parts = || self.parts.iter().flat_map(|a| other.parts.iter().map(move |b| (a, b)));
        self.strong || other.strong || parts().any(|(a, b)| a.conflicts(b))
    }
}

impl Part {
    fn conflicts(&self, other: &Part) -> bool {
        let reads = |p: &Part| p.access.effect == MemoryEffect::Read;
        if reads(self) && reads(other) || !self.access.space.overlaps(other.access.space) {
            return false;
        }
        // One number is another address in another space.
        let same = |a: &Place, b: &Place| {
            self.access.space == other.access.space
                && (a.base, a.width, a.uniform) == (b.base, b.width, b.uniform)
        };
        match (&self.place, &other.place) {
            (Some(a), Some(b)) if same(a, b) => {
                let range = |p: &Place| (i64::from(p.offset), i64::from(p.offset) + i64::from(p.size));
                range(a).0 < range(b).1 && range(b).0 < range(a).1
            }
            _ => true,
        }
    }
}

/// What PTX says of an access and the instruction's modifiers don't.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meant {
    /// It keeps its place among all accesses: volatile, relaxed, acquiring and releasing accesses of shared and local memory.
    pub ordered: bool,
    /// It is part of what the lanes of a warp access together ([`ori::access_of_lanes`]).
    pub collective: bool,
}

impl Meant {
    /// What an instruction of Ori says of itself.
    pub fn by(op: Opcode, mods: &Mods) -> Meant {
        let ordered = ori::order_is_ours(op) && mods.has(Mod::STRONG);
        Meant { ordered, collective: ori::access_of_lanes(op, mods) }
    }
}

/// What an instruction accesses. `contents` says what a base register holds.
pub fn access<R: Copy, L>(
    op: Opcode,
    mods: &Mods,
    operands: &[Operand<R, L>],
    meant: Meant,
    contents: impl Fn(R) -> Contents,
) -> Option<Access> {
    #[cfg(test)]
    return errors::access(op, mods, operands, meant, &contents);
    #[cfg(not(test))]
    described(op, mods, operands, meant, &contents)
}

fn described<R: Copy, L>(
    op: Opcode,
    mods: &Mods,
    operands: &[Operand<R, L>],
    Meant { ordered, collective }: Meant,
    contents: &impl Fn(R) -> Contents,
) -> Option<Access> {
    let all = Access { strong: true, image: false, parts: SmallVec::new() };
    if is_barrier(op) {
        return Some(all);
    }
    let accesses = match op.info().accesses {
        // What is left of bringing lanes together that are together.
        _ if op == Opcode::NOP || op.info().passable => return Some(all),
        MemoryEffects::None => return None,
        // As ptxas has it: textures are read before barriers, fences and stores of global memory and surfaces that follow.
        MemoryEffects::ReadOnly => {
            let access = MemoryAccess { space: MemorySpace::Global, effect: MemoryEffect::Read, bytes: None };
            let parts = SmallVec::from_iter([Part { access, place: None }]);
            return Some(Access { strong: false, image: true, parts });
        }
        MemoryEffects::Fence => return Some(all),
        MemoryEffects::Accesses(a) => a,
    };
    // Read-only data.
    if op == Opcode::LDG && mods.has(Mod::CONSTANT) && !ordered {
        return None;
    }
    let addresses = operands.iter().filter(|o| matches!(o, Operand::Addr { .. }));
    let parts: SmallVec<[Part; 1]> = accesses
        .iter()
        .zip(addresses)
        .map(|(access, address)| {
            let place = match (address, access.size(mods)) {
                // The offset counts bytes from the register, or from what that is a part of.
                (Operand::Addr { base, width, uniform, offset, .. }, Some(size))
                    if !collective && *width != AddrWidth::U32 =>
                {
                    let (base, uniform) = (base.map(contents), uniform.map(contents));
                    Some(Place { base, width: *width, uniform, offset: *offset, size })
                }
                _ => None,
            };
            Part { access: *access, place }
        })
        .collect();
    let atomic = accesses.iter().any(|a| a.effect == MemoryEffect::Atomic);
    let missing = parts.len() != accesses.len();
    let strong = ordered || atomic || missing || mods.has(Mod::STRONG) || mods.has(Mod::MMIO);
    Some(Access { strong, image: false, parts })
}

/// What an instruction is to the barriers of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// One of them.
    Barrier,
    /// It stays on its side of them.
    Stays,
    /// It may pass them, if it is no access that may not.
    Passes,
}

impl Side {
    /// `files`: those of all registers that the instruction names. `op`: none where it only copies.
    pub fn of(op: Option<Opcode>, files: impl IntoIterator<Item = RegFile>) -> Side {
        if op.is_some_and(is_barrier) {
            return Side::Barrier;
        }
        // Products of matrices name nothing that is shared; ptxas has them on either side.
        if op.is_some_and(|op| matches!(op.unit(), Unit::Tensor | Unit::TensorInt | Unit::TensorFp64)) {
            return Side::Passes;
        }
        // Lanes that have parted may run while others wait, and write the uniform registers that all share.
        let mut shared = files.into_iter().map(|f| matches!(f, RegFile::UR | RegFile::UP));
        let meets = |op: Opcode| {
            let info = op.info();
            info.lanes != Lanes::Own || info.uniform || matches!(info.effect, Effect::Control(_))
        };
        if op.is_some_and(meets) || shared.any(|s| s) { Side::Stays } else { Side::Passes }
    }
}

/// What keeps its place at the barriers of a stretch of code besides accesses.
#[derive(Default)]
pub struct Sides {
    barrier: Option<u32>,
    /// What stays on this side of it.
    since: Vec<u32>,
}

impl Sides {
    /// Adds instruction `node`, and calls `edge` for those that must stay before it.
    pub fn add(&mut self, node: u32, side: Side, edge: impl FnMut(u32)) {
        match side {
            Side::Barrier => {
                self.since.drain(..).for_each(edge);
                self.barrier = Some(node);
            }
            Side::Stays => {
                self.barrier.into_iter().for_each(edge);
                self.since.push(node);
            }
            Side::Passes => {}
        }
    }
}

/// The accesses of a stretch of code that later ones may conflict with.
#[derive(Default)]
pub struct Accesses {
    reads: Vec<(u32, Access)>,
    /// All others.
    writes: Vec<(u32, Access)>,
}

impl Accesses {
    /// Adds the access of instruction `node`, and calls `edge` for those that must stay before it.
    pub fn add(&mut self, node: u32, access: Access, mut edge: impl FnMut(u32)) {
        let before = |list: &[(u32, Access)], edge: &mut dyn FnMut(u32)| {
            list.iter().filter(|(_, b)| access.conflicts(b)).for_each(|(b, _)| edge(*b));
        };
        if access.image {
            return self.reads.push((node, access));
        }
        if access.only_reads() {
            before(&self.writes, &mut edge);
            return self.reads.push((node, access));
        }
        let many = self.writes.len() == MAX_WRITES || self.reads.len() > MAX_READS;
        if many || access.strong {
            // Everything older comes before this one, and this one before everything later.
            self.reads.drain(..).chain(self.writes.drain(..)).for_each(|(b, _)| edge(b));
            return self.writes.push((node, Access { strong: true, ..access }));
        }
        before(&self.reads, &mut edge);
        before(&self.writes, &mut edge);
        self.writes.push((node, access));
    }
}
