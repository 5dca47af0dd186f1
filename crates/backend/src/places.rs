//! Where registers of the PTX are while the code runs, for debuggers: read off the finished code, which nobody else changes.
//!
//! [`ori::Macro::Holds`] says where a register gets its value. From there on the value is in that place, in whatever copies
//! of it moves, spills and reloads make, and nowhere any more that something else is written to. Where paths meet, what all of
//! them say holds.

use crate::emit::INST_BYTES;
use crate::machine::{Holds, Machine};
use crate::units::{self, Unit};
use ori::abi::Convention;
use sass::ops::{Imad, Mov, Umov};
use sass::{Guard, Inst, Mod, Mods, Opcode, Operand, Reg, RegFile, RegOp};
use std::collections::{BTreeMap, BTreeSet};

/// Where 32 bits, or a predicate, may be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A register or predicate.
    Unit(Unit),
    /// So many bytes above the stack pointer.
    Stack(u32),
}

/// Where a word of a register is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The number of the register in the function.
    pub register: u32,
    /// Which word of it.
    pub word: u8,
    /// Where that is.
    pub place: Place,
    /// The byte offset of the first instruction in front of which it is there.
    pub start: u32,
    /// That of the first behind in front of which it is not.
    pub end: u32,
}

/// What is where: places with the register and its word.
type State = BTreeSet<(Place, u32, u8)>;

fn at(state: &State, place: Place) -> Vec<(u32, u8)> {
    state.range((place, 0, 0)..=(place, u32::MAX, u8::MAX)).map(|(_, r, w)| (*r, *w)).collect()
}

fn forget(state: &mut State, place: Place) {
    for (r, w) in at(state, place) {
        state.remove(&(place, r, w));
    }
}

/// The slots in the frame that an access of local memory at a fixed place reads or writes, a word each.
fn slots(inst: &Inst, words: u8) -> Option<impl Iterator<Item = Place>> {
    let first = inst.operands.iter().find_map(|o| match o {
        Operand::Addr { base: Some(Reg::SP), uniform: None, offset, .. } => u32::try_from(*offset).ok(),
        _ => None,
    })?;
    Some((0..u32::from(words)).map(move |k| Place::Stack(first + 4 * k)))
}

/// The general registers that an access of local memory names as data, and how many.
fn data(inst: &Inst) -> Option<(Reg, u8)> {
    let (k, reg) = inst.operands.iter().enumerate().find_map(|(k, o)| match o {
        Operand::Reg(r) if r.reg.file == RegFile::R => Some((k, r.reg)),
        _ => None,
    })?;
    // Bytes and halves are no words.
    let narrow = [Mod::U8, Mod::S8, Mod::U16, Mod::S16].iter().any(|m| inst.mods.has(*m));
    (!narrow).then(|| (reg, inst.op.width(k, &inst.mods)))
}

fn unit_places(first: Reg, words: u8) -> impl Iterator<Item = Option<Place>> {
    (0..words).map(move |k| units::unit(Reg { index: first.index.wrapping_add(k), ..first }).map(Place::Unit))
}

/// What an instruction copies, from place to place.
fn copies(inst: &Inst) -> Vec<(Place, Place)> {
    if inst.guard != Guard::TRUE {
        return Vec::new();
    }
    let plain = |o: &Operand| match o {
        Operand::Reg(r) if *r == RegOp::plain(r.reg) => units::unit(r.reg).map(Place::Unit),
        _ => None,
    };
    match inst.op {
        Opcode::MOV | Opcode::UMOV => {
            let (to, from) = match (Mov::of(inst), Umov::of(inst)) {
                (Some(s), _) if *s.bytes == Operand::Imm(0xf) => (s.d, s.a),
                (None, Some(s)) => (s.d, s.a),
                _ => return Vec::new(),
            };
            plain(to).zip(plain(from)).map(|(to, from)| (from, to)).into_iter().collect()
        }
        // `IMAD.MOV.U32 R0, RZ, RZ, R2`: a product of nothing.
        Opcode::IMAD if inst.mods == Mods::of(&[Mod::U32]) => match Imad::of(inst) {
            Some(Imad {
                d: to,
                carry_out: Operand::Reg(carry),
                a: Operand::Reg(a),
                b: Operand::Reg(b),
                c: from,
                ..
            }) if carry.reg == Reg::PT && a.reg == Reg::RZ && b.reg == Reg::RZ => {
                plain(to).zip(plain(from)).map(|(to, from)| (from, to)).into_iter().collect()
            }
            _ => Vec::new(),
        },
        Opcode::STL | Opcode::LDL => {
            let Some((reg, words)) = data(inst) else { return Vec::new() };
            let Some(slots) = slots(inst, words) else { return Vec::new() };
            let pairs = unit_places(reg, words).zip(slots);
            let pairs = pairs.filter_map(|(unit, slot)| unit.map(|u| (u, slot)));
            match inst.op {
                Opcode::STL => pairs.collect(),
                _ => pairs.map(|(unit, slot)| (slot, unit)).collect(),
            }
        }
        _ => Vec::new(),
    }
}

/// What is where behind an instruction.
/// Calls are of functions that follow one of these conventions.
fn step(state: &mut State, inst: &Inst, called: &[Convention]) {
    let copied: Vec<(Place, Vec<(u32, u8)>)> =
        copies(inst).into_iter().map(|(from, to)| (to, at(state, from))).collect();
    let call = inst.op.info().leaves_function();
    let by_all = |r: Reg| called.iter().all(|c| c.is_preserved(r));
    let kept = |u: Unit| call && units::register(u).is_some_and(by_all);
    let mut moved = false;
    units::for_each_write(inst, |u, _| {
        moved |= !call && units::register(u) == Some(Reg::SP);
        if !kept(u) {
            forget(state, Place::Unit(u));
        }
    });
    if inst.op == Opcode::STL {
        // What has no fixed place is a variable's, and beside every slot.
        let words = data(inst).map_or(4, |(_, words)| words);
        if let Some(Place::Stack(first)) = slots(inst, words).and_then(|mut s| s.next()) {
            let written = first.saturating_sub(3)..first + 4 * u32::from(words);
            state.retain(|(place, ..)| !matches!(place, Place::Stack(at) if written.contains(at)));
        }
    }
    for (to, what) in copied {
        state.extend(what.into_iter().map(|(r, w)| (to, r, w)));
    }
    if moved {
        state.retain(|(place, ..)| !matches!(place, Place::Stack(_)));
    }
}

fn hold(state: &mut State, h: &Holds) {
    state.retain(|(_, r, _)| *r != h.register);
    let Some(first) = h.place else { return };
    for (word, place) in unit_places(first, h.words).enumerate() {
        state.extend(place.map(|p| (p, h.register, word as u8)));
    }
}

/// Where a function that is called holds what its caller had in registers that it changes although the caller finds them as they
/// were, and the address to return to: their numbers are those of the entries.
pub fn of_caller(machine: &Machine) -> Vec<Entry> {
    let mut start = State::new();
    for i in machine.blocks.iter().flat_map(|b| &b.insts).filter(|i| !i.inst.op.info().leaves_function()) {
        units::for_each_write(&i.inst, |u, _| {
            let Some(r) = units::register(u).filter(|r| r.file == RegFile::R && *r != Reg::SP) else {
                return;
            };
            let back = matches!(r.index.wrapping_sub(machine.convention.return_address()), 0 | 1);
            if back || machine.convention.is_preserved(r) {
                start.insert((Place::Unit(u), r.index.into(), 0));
            }
        });
    }
    if start.is_empty() { Vec::new() } else { follow(machine, start, false) }
}

/// Where all registers that are followed are.
pub fn entries(machine: &Machine) -> Vec<Entry> {
    let followed =
        |b: &crate::machine::MachineBlock| !b.holds.is_empty() || b.insts.iter().any(|i| !i.holds.is_empty());
    if !machine.blocks.iter().any(followed) {
        return Vec::new();
    }
    follow(machine, State::new(), true)
}

/// Where everything is if it is as `start` says where the function begins; `marks`: and where it says itself.
fn follow(machine: &Machine, start: State, marks: bool) -> Vec<Entry> {
    let marked = |state: &mut State, holds: &[Holds]| {
        if marks {
            holds.iter().for_each(|h| hold(state, h));
        }
    };
    // What is known where each block begins; nothing of those that nothing leads to.
    let mut known: Vec<Option<State>> = vec![None; machine.blocks.len()];
    known[0] = Some(start);
    let mut work = vec![0u32];
    while let Some(b) = work.pop() {
        let block = &machine.blocks[b as usize];
        let mut state = known[b as usize].clone().unwrap_or_default();
        marked(&mut state, &block.holds);
        for i in &block.insts {
            step(&mut state, &i.inst, &machine.called);
            marked(&mut state, &i.holds);
        }
        for s in &block.succs {
            let there = known.get_mut(*s as usize).map(|k| match k {
                None => {
                    *k = Some(state.clone());
                    true
                }
                Some(old) => {
                    let before = old.len();
                    old.retain(|e| state.contains(e));
                    old.len() != before
                }
            });
            if there == Some(true) {
                work.push(*s);
            }
        }
    }
    let mut out = Vec::new();
    let mut open: BTreeMap<(Place, u32, u8), u32> = BTreeMap::new();
    let mut here = 0;
    let mut note = |open: &mut BTreeMap<(Place, u32, u8), u32>, state: &State, here: u32| {
        open.retain(|&(place, register, word), start| {
            let stays = state.contains(&(place, register, word));
            if !stays && *start != here {
                out.push(Entry { register, word, place, start: *start, end: here });
            }
            stays
        });
        for e in state {
            open.entry(*e).or_insert(here);
        }
    };
    for (block, known) in machine.blocks.iter().zip(known) {
        let mut state = known.unwrap_or_default();
        marked(&mut state, &block.holds);
        for i in &block.insts {
            note(&mut open, &state, here);
            step(&mut state, &i.inst, &machine.called);
            marked(&mut state, &i.holds);
            here += INST_BYTES;
        }
    }
    note(&mut open, &State::new(), here);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{MachineBlock, MachineInst, inst};
    use sass::Target;
    use smallvec::smallvec;

    fn mov(to: u8, from: u8, holds: Vec<Holds>) -> MachineInst {
        let operands = [Operand::reg(Reg::r(to)), Operand::reg(Reg::r(from)), Operand::Imm(0xf)];
        MachineInst { holds, ..MachineInst::new(inst(Opcode::MOV, &[], &operands), 1) }
    }

    fn slot(op: Opcode, reg: u8, offset: i32) -> MachineInst {
        let address = Operand::Addr {
            desc: None,
            base: Some(Reg::SP),
            width: sass::AddrWidth::R32,
            uniform: None,
            offset,
        };
        let data = Operand::reg(Reg::r(reg));
        let operands = if op == Opcode::STL { [address, data] } else { [data, address] };
        MachineInst::new(inst(op, &[], &operands), 1)
    }

    fn of(blocks: Vec<MachineBlock>) -> Vec<(u8, Place, u32, u32)> {
        let target = Target::new(90).expect("a target");
        let machine = Machine::new(target, blocks);
        let mut out: Vec<_> =
            entries(&machine).into_iter().map(|e| (e.register as u8, e.place, e.start, e.end)).collect();
        out.sort_unstable();
        out
    }

    fn held(register: u32, at: u8) -> Vec<Holds> {
        vec![Holds { register, words: 1, place: Some(Reg::r(at)) }]
    }

    /// A value is in its register until that is written, in a copy, in a slot and back; a new value is nowhere else.
    #[test]
    fn copies_and_slots_are_followed() {
        let block = MachineBlock {
            insts: vec![
                mov(3, 9, held(7, 3)),
                mov(4, 3, Vec::new()),
                slot(Opcode::STL, 4, 8),
                mov(3, 9, Vec::new()),
                mov(4, 9, Vec::new()),
                slot(Opcode::LDL, 5, 8),
                mov(6, 9, held(7, 6)),
                mov(8, 9, Vec::new()),
            ],
            ..MachineBlock::default()
        };
        let r = |n: u8| Place::Unit(n.into());
        let want = [
            (7, r(3), 0x10, 0x40),
            (7, r(4), 0x20, 0x50),
            (7, r(5), 0x60, 0x70),
            (7, r(6), 0x70, 0x80),
            (7, Place::Stack(8), 0x30, 0x70),
        ];
        assert_eq!(of(vec![block]), want);
    }

    /// Where paths meet, only what both say holds.
    #[test]
    fn paths_meet() {
        let block = |insts, succs| MachineBlock { insts, succs, holds: Vec::new() };
        let blocks = vec![
            block(vec![mov(2, 9, held(0, 2)), mov(3, 9, held(1, 3))], smallvec![1, 2]),
            block(vec![mov(2, 9, Vec::new())], smallvec![2]),
            block(vec![mov(8, 9, Vec::new())], smallvec![]),
        ];
        let r = |n: u8| Place::Unit(n.into());
        assert_eq!(of(blocks), [(0, r(2), 0x10, 0x30), (1, r(3), 0x20, 0x40)]);
    }
}
