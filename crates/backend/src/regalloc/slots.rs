//! Lets spill slots that are never wanted at the same time share memory.

use super::spill::slots_base;
use cranelift_entity::SecondaryMap;
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{Allocated, Block, Function, InstData, Name, Operand, Register};
use sass::ops::{Ldl, Stl};
use sass::{Opcode, Reg};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

/// Bytes in a word of a slot.
const WORD: u32 = 4;

/// A slot as the spiller made it.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Bytes from the first slot.
    pub at: u32,
    /// Registers that it holds.
    pub width: u8,
}

/// A load from or a store to the words of a slot.
pub(super) struct Access {
    first: usize,
    count: usize,
    pub(super) store: bool,
}

impl Access {
    /// Its first byte, from the first slot.
    pub(super) fn at(&self) -> u32 {
        self.first as u32 * WORD
    }

    /// Its words, numbered from the first slot.
    pub(super) fn words(&self) -> Range<usize> {
        self.first..self.first + self.count
    }
}

/// What an instruction does with slots, if anything.
pub(super) fn access<R: Register>(func: &Function<R>, d: &InstData<R>) -> Option<Access> {
    let (address, words, store) = match (Ldl::of(d), Stl::of(d)) {
        (Some(s), _) => (s.address, Opcode::LDL.width(Ldl::D, &d.mods), false),
        (None, Some(s)) => (s.address, Opcode::STL.width(Stl::VALUE, &d.mods), true),
        (None, None) => return None,
    };
    let Operand::Addr { base: Some(base), offset, .. } = address else { return None };
    if (*base).into() != Name::Phys(Reg::SP) {
        return None;
    }
    let at = u32::try_from(*offset).ok()?.checked_sub(slots_base(func))?;
    Some(Access { first: (at / WORD) as usize, count: words.into(), store })
}

/// Moves the slots of an allocated function together and returns how many bytes they take now.
pub fn share(func: &mut Allocated, cfg: &Cfg, slots: &[Slot], bytes: u32) -> u32 {
    if slots.is_empty() {
        return bytes;
    }
    let words = (bytes / WORD) as usize;
    let mut slot_of: Vec<Option<usize>> = vec![None; words];
    for (n, s) in slots.iter().enumerate() {
        let first = (s.at / WORD) as usize;
        slot_of[first..first + usize::from(s.width)].fill(Some(n));
    }
    let known = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).all(|i| {
        let d = &func.insts[*i];
        access(func, d).is_none_or(|a| {
            let mut of = a.words().map(|w| slot_of.get(w).copied().flatten());
            let one = of.next().flatten();
            one.is_some() && of.all(|o| o == one) && d.is_unguarded()
        })
    });
    if !known {
        return bytes;
    }
    let ranges = ranges(func, cfg, &slot_of, slots.len());
    let (place, used) = pack(slots, &ranges);
    let base = slots_base(func);
    for b in &cfg.rpo {
        for &i in &func.blocks[*b].insts {
            let Some(a) = access(func, &func.insts[i]) else { continue };
            let Some(n) = slot_of[a.first] else { continue };
            let d = &mut func.insts[i];
            let address = &mut d.operands[if a.store { Stl::ADDRESS } else { Ldl::ADDRESS }];
            if let Operand::Addr { offset, .. } = address {
                let within = *offset as u32 - base - slots[n].at;
                *offset = (base + place[n] + within) as i32;
            }
        }
    }
    used
}

/// From the first to the last point, in the order of the blocks, at which each slot's content is wanted.
fn ranges(func: &Allocated, cfg: &Cfg, slot_of: &[Option<usize>], slots: usize) -> Vec<Option<(u32, u32)>> {
    let words = slot_of.len();
    let mut wanted: SecondaryMap<Block, FixedBitSet> = SecondaryMap::new();
    let mut stored: SecondaryMap<Block, FixedBitSet> = SecondaryMap::new();
    for &b in &cfg.rpo {
        let (mut want, mut store) = (FixedBitSet::with_capacity(words), FixedBitSet::with_capacity(words));
        for a in func.blocks[b].insts.iter().filter_map(|i| access(func, &func.insts[*i])) {
            for w in a.words() {
                if a.store {
                    store.insert(w);
                } else if !store.contains(w) {
                    want.insert(w);
                }
            }
        }
        (wanted[b], stored[b]) = (want, store);
    }
    // Backward until nothing changes.
    let mut out: SecondaryMap<Block, FixedBitSet> = SecondaryMap::new();
    let mut changed = true;
    while changed {
        changed = false;
        for &b in cfg.rpo.iter().rev() {
            let mut live = FixedBitSet::with_capacity(words);
            for s in func.blocks[b].term.targets().iter().map(|t| t.block) {
                live.union_with(&wanted[s]);
            }
            let mut through = live.clone();
            through.difference_with(&stored[b]);
            if !through.is_subset(&wanted[b]) {
                wanted[b].union_with(&through);
                changed = true;
            }
            out[b] = live;
        }
    }
    let mut ranges: Vec<Option<(u32, u32)>> = vec![None; slots];
    let mut at = 0;
    for &b in &cfg.rpo {
        let mut touch = |w: usize, at: u32| {
            if let Some(n) = slot_of[w] {
                let (first, last) = ranges[n].get_or_insert((at, at));
                (*first, *last) = ((*first).min(at), (*last).max(at));
            }
        };
        wanted[b].ones().for_each(|w| touch(w, at));
        for a in func.blocks[b].insts.iter().filter_map(|i| access(func, &func.insts[*i])) {
            at += 1;
            a.words().for_each(|w| touch(w, at));
        }
        at += 1;
        out[b].ones().for_each(|w| touch(w, at));
        at += 1;
    }
    ranges
}

/// Gives each slot the lowest place that is free over its range. Returns the places, and the bytes used.
fn pack(slots: &[Slot], ranges: &[Option<(u32, u32)>]) -> (Vec<u32>, u32) {
    let mut order: Vec<usize> = (0..slots.len()).filter(|n| ranges[*n].is_some()).collect();
    order.sort_unstable_by_key(|n| (ranges[*n], slots[*n].at));
    let mut place = vec![0; slots.len()];
    // Words that are free again, and when the others will be.
    let mut free: BTreeSet<usize> = BTreeSet::new();
    let mut busy: BinaryHeap<Reverse<(u32, usize)>> = BinaryHeap::new();
    let mut words = 0;
    for n in order {
        let (Some((first, last)), width) = (ranges[n], usize::from(slots[n].width)) else { continue };
        while let Some(&Reverse((end, w))) = busy.peek()
            && end < first
        {
            busy.pop();
            free.insert(w);
        }
        let step = width.next_power_of_two().min(4);
        let fits = |at: usize| (at..at + width).all(|w| w >= words || free.contains(&w));
        let starts = free.iter().copied().filter(|w| w.is_multiple_of(step));
        let at = starts.chain([words.next_multiple_of(step)]).find(|at| fits(*at)).unwrap_or_default();
        // What is skipped to keep the alignment is free.
        free.extend(words..at);
        words = words.max(at + width);
        for w in at..at + width {
            free.remove(&w);
            busy.push(Reverse((last, w)));
        }
        place[n] = at as u32 * WORD;
    }
    (place, words as u32 * WORD)
}
