//! The uniform registers as each lane knows them. A warp has one set of them, and lanes that run apart overwrite
//! each other's: code must not read what lanes of another group have written since.

use super::Fault;
use super::operand::lanes;
use super::state::{Warp, Written};
use crate::hazard::access;
use sass::memory::MemoryEffects;
use sass::{Inst, Lanes, Mod, Opcode, Operand, RegFile};

/// Uniform registers and predicates, the latter behind the former.
pub(crate) const CELLS: usize = 136;

/// The uniform registers that an instruction reads and writes.
pub(crate) struct Uses {
    reads: Box<[u8]>,
    writes: Box<[u8]>,
    /// The general register that R2UR takes from one lane for all.
    broadcast: Option<u8>,
    /// Whether all active lanes together execute it once: bulk copies, products of tensor memory. It is then enough that one lane made all that it
    /// reads and the others none of it, as those do for which `elect.sync` chose one.
    once: bool,
}

fn place(cell: u16) -> Option<u8> {
    let r = access::register(cell);
    match r.file {
        RegFile::UR => Some(r.index),
        RegFile::UP => Some(128 + r.index),
        _ => None,
    }
}

impl Uses {
    /// Those of an instruction, if it has any.
    pub(crate) fn of(inst: &Inst) -> Option<Uses> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        access::reads(inst, |c, _| reads.extend(place(c)));
        access::writes(inst, |c| writes.extend(place(c)));
        let some = !(reads.is_empty() && writes.is_empty());
        let broadcast = match (inst.op, inst.operands.get(1)) {
            // `.BROADCAST` is for one lane to tell all.
            (Opcode::R2UR, Some(Operand::Reg(r)))
                if r.reg.file == RegFile::R && !inst.mods.has(Mod::BROADCAST) =>
            {
                Some(r.reg.index)
            }
            _ => None,
        };
        let info = inst.op.info();
        let once = info.uniform && info.lanes == Lanes::Own && info.accesses == MemoryEffects::Fence;
        some.then(|| Uses { reads: reads.into(), writes: writes.into(), broadcast, once })
    }

    /// Whether every lane of `group` knows what the instruction reads.
    pub(crate) fn check(&self, warp: &Warp, group: u32) -> Result<(), Fault> {
        // The lanes that made all of what is not known to all.
        let mut makers = group;
        for place in &self.reads {
            let (now, known) = (value(warp, *place), &warp.known[usize::from(*place)]);
            let made = warp.wrote[usize::from(*place)];
            if self.once && lanes(group).any(|l| known[l] != now) && makers & made != 0 {
                makers &= made;
                if lanes(group & made).all(|l| known[l] == now) {
                    continue;
                }
            }
            let foreign = if group == u32::MAX {
                known.iter().position(|k| *k != now)
            } else {
                lanes(group).find(|l| known[*l] != now)
            };
            if let Some(lane) = foreign {
                let name = match place {
                    128.. => format!("UP{}", place - 128),
                    _ => format!("UR{place}"),
                };
                return Err(Fault::at(lane, format!("{name} holds what other lanes wrote")));
            }
        }
        Ok(())
    }

    /// Adds what the instruction writes.
    pub(crate) fn mark(&self, written: &mut Written) {
        self.writes.iter().for_each(|cell| written[usize::from(*cell / 64)] |= 1 << (cell % 64));
    }

    /// The lanes of `group` have executed the instruction. What a lane knows after R2UR is its own value, so that it shows
    /// who uses another's.
    /// `mask`: those of them for which its guard held.
    pub(crate) fn note(&self, warp: &mut Warp, group: u32, mask: u32) {
        self.writes.iter().for_each(|place| warp.wrote[usize::from(*place)] = mask);
        if let Some(r) = self.broadcast {
            for place in &self.writes {
                lanes(group).for_each(|l| warp.known[usize::from(*place)][l] = warp.r[usize::from(r)][l]);
            }
            return;
        }
        for place in &self.writes {
            let now = value(warp, *place);
            let known = &mut warp.known[usize::from(*place)];
            if group == u32::MAX {
                known.fill(now);
            } else {
                lanes(group).for_each(|l| known[l] = now);
            }
        }
    }
}

/// Every lane knows what the registers hold.
pub(crate) fn know_all(warp: &mut Warp) {
    warp.known.resize(CELLS, [0; 32]);
    warp.wrote.resize(CELLS, u32::MAX);
    for place in 0..CELLS as u8 {
        let now = value(warp, place);
        warp.known[usize::from(place)].fill(now);
    }
}

fn value(warp: &Warp, place: u8) -> u32 {
    match place {
        128.. => warp.up[usize::from(place & 7)].into(),
        _ => warp.ur[usize::from(place)],
    }
}
