//! Which registers of a file are in use when: for every interval, the set of those that are busy at some point of it.
//!
//! A tree of sets over the function. Points are grouped into *slots*, which begin wherever some interval begins or ends, so that an interval is a range
//! of slots and nothing happens inside one. A node stands for [`FAN`] nodes below it, a leaf for a slot. It knows which registers are busy
//! everywhere in it (`whole`) and which are busy somewhere in it (`some`). An interval is noted in the few nodes that make it up, and asking
//! about one looks at as few, however many registers and intervals there are.

use crate::liveness::Segment;
use ori::registers::Set;
use std::ops::Range;

/// Nodes below a node.
const FAN: usize = 16;
const SHIFT: u32 = FAN.trailing_zeros();
/// The slots of a function.
pub struct Slots {
    /// How many begin at each point or before it.
    begun: Vec<u32>,
    count: usize,
}

impl Slots {
    /// Of all intervals that will be asked about; what lies in between may be, too.
    pub fn new(intervals: impl Iterator<Item = Segment>) -> Slots {
        let mut begun: Vec<u32> = Vec::new();
        for at in intervals {
            if begun.len() <= at.end as usize {
                begun.resize(at.end as usize + 1, 0);
            }
            begun[at.start as usize] = 1;
            begun[at.end as usize] = 1;
        }
        let mut count = 0;
        for n in &mut begun {
            count += *n;
            *n = count;
        }
        Slots { begun, count: count as usize + 1 }
    }

    /// The slot of a point. The first slot is what lies before all intervals.
    fn of(&self, point: u32) -> usize {
        self.begun.get(point as usize).map_or(self.count - 1, |n| *n as usize)
    }

    /// The slots of an interval, one at least.
    pub fn range(&self, at: Segment) -> Range<usize> {
        self.of(at.start)..self.of(at.end.max(at.start + 1) - 1) + 1
    }
}

/// The nodes of one level, `words` of each node.
#[derive(Clone, Default)]
struct Level {
    whole: Vec<u64>,
    some: Vec<u64>,
}

/// When the registers of a file are in use.
#[derive(Clone)]
pub struct Busy {
    /// Words of a node's sets.
    words: usize,
    /// The slots, then what is above them. Of a slot, `whole` alone is kept.
    levels: Vec<Level>,
    slots: usize,
}

impl Busy {
    /// Nothing is in use. `registers` is how many the file has.
    pub fn new(slots: &Slots, registers: usize) -> Busy {
        Busy { words: registers.div_ceil(64).max(1), levels: Vec::new(), slots: slots.count }
    }

    /// Makes the nodes: a file of which nothing is used needs none.
    fn grow(&mut self) {
        let mut nodes = self.slots;
        self.levels.push(Level { whole: vec![0; nodes * self.words], some: Vec::new() });
        while nodes > FAN {
            nodes = nodes.div_ceil(FAN);
            let empty = || vec![0; nodes * self.words];
            self.levels.push(Level { whole: empty(), some: empty() });
        }
    }

    /// Calls `f` with a level and nodes of it that together make up a range of slots.
    fn parts(levels: usize, range: Range<usize>, mut f: impl FnMut(usize, Range<usize>)) {
        let Range { mut start, mut end } = range;
        for level in 0..levels {
            let (first, last) = (start.div_ceil(FAN), end / FAN);
            if level + 1 == levels || first >= last {
                return f(level, start..end);
            }
            f(level, start..first * FAN);
            f(level, last * FAN..end);
            (start, end) = (first, last);
        }
    }

    /// The registers that are in use at some point of some slots.
    pub fn during(&self, slots: Range<usize>) -> Set {
        match self.words {
            _ if self.levels.is_empty() => Set::default(),
            1 => self.gather::<1>(slots),
            2 => self.gather::<2>(slots),
            3 => self.gather::<3>(slots),
            _ => self.gather::<4>(slots),
        }
    }

    fn gather<const WORDS: usize>(&self, slots: Range<usize>) -> Set {
        let mut found = [0; WORDS];
        let mut add = |nodes: &[u64]| {
            for node in nodes.chunks_exact(WORDS) {
                found.iter_mut().zip(node).for_each(|(a, b)| *a |= b);
            }
        };
        // What is busy in all of a node is noted there: of those above the parts, each has one of the ends in it.
        let (mut first, mut last) = (slots.start, slots.end - 1);
        for level in &self.levels[1..] {
            (first, last) = (first >> SHIFT, last >> SHIFT);
            add(&level.whole[first * WORDS..][..WORDS]);
            if last != first {
                add(&level.whole[last * WORDS..][..WORDS]);
            }
        }
        Busy::parts(self.levels.len(), slots, |level, nodes| {
            let Level { whole, some } = &self.levels[level];
            let list = if level == 0 { whole } else { some };
            add(&list[nodes.start * WORDS..nodes.end * WORDS]);
        });
        let mut set = Set::default();
        set.words_mut().iter_mut().zip(found).for_each(|(w, f)| *w = f);
        set
    }

    /// Registers are in use during some slots.
    pub fn occupy(&mut self, registers: &Set, slots: Range<usize>) {
        if self.levels.is_empty() {
            self.grow();
        }
        self.note(slots, registers, true);
    }

    /// Registers are in use during some slots no more; they were for the same reason in all of them, and for no other.
    pub fn vacate(&mut self, registers: &Set, slots: Range<usize>) {
        self.note(slots, registers, false);
    }

    fn note(&mut self, slots: Range<usize>, registers: &Set, busy: bool) {
        let (words, levels) = (self.words, &mut self.levels);
        for (word, bits) in
            registers.words()[..words].iter().copied().enumerate().filter(|(_, bits)| *bits != 0)
        {
            let set = |w: &mut u64| if busy { *w |= bits } else { *w &= !bits };
            Busy::parts(levels.len(), slots.clone(), |level, nodes| {
                let Level { whole, some } = &mut levels[level];
                for node in nodes {
                    set(&mut whole[node * words + word]);
                    if level > 0 {
                        set(&mut some[node * words + word]);
                    }
                }
            });
            let (mut first, mut last) = (slots.start, slots.end - 1);
            for level in 1..levels.len() {
                (first, last) = (first >> SHIFT, last >> SHIFT);
                let (below, above) = levels.split_at_mut(level);
                let (below, Level { whole, some }) = (&below[level - 1], &mut above[0]);
                let below = if level == 1 { &below.whole } else { &below.some };
                for node in [first, last] {
                    let at = node * words + word;
                    if busy {
                        some[at] |= bits;
                        continue;
                    }
                    let children = below[node * FAN * words..].chunks_exact(words).take(FAN);
                    let left = children.fold(whole[at], |left, child| left | child[word]);
                    some[at] = some[at] & !bits | left & bits;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Points of the programs below: more than two levels of slots.
    const POINTS: u32 = 700;

    proptest! {
        /// What is occupied and vacated is what a table of all points says.
        #[test]
        fn sets_agree_with_points(
            list in prop::collection::vec((0u32..POINTS, 1u32..300, 0u8..130, any::<bool>()), 0..400),
            asked in prop::collection::vec((0u32..POINTS, 1u32..300), 40),
            taken in prop::collection::vec((0u32..POINTS, 1u32..300, 0usize..120), 0..4),
        ) {
            let at = |start: u32, length: u32| Segment { start, end: (start + length).min(POINTS + 9) };
            let all = list.iter().map(|(start, length, ..)| at(*start, *length));
            let slots = Slots::new(all.chain(taken.iter().map(|(start, length, _)| at(*start, *length))));
            let mut busy = Busy::new(&slots, 130);
            let mut points = vec![[false; 130]; POINTS as usize + 9];
            for (start, length, r) in taken {
                let (at, registers) = (at(start, length), r..r + 10);
                busy.occupy(&Set::of(registers.clone()), slots.range(at));
                points[at.start as usize..at.end as usize].iter_mut().for_each(|p| p[registers.clone()].fill(true));
            }
            let mut held: Vec<(u8, Segment)> = Vec::new();
            for (start, length, r, leaves) in list {
                let at = at(start, length);
                let all = at.start as usize..at.end as usize;
                if leaves && !held.is_empty() {
                    let (r, at) = held.swap_remove(start as usize % held.len());
                    busy.vacate(&Set::of(r.into()..usize::from(r) + 1), slots.range(at));
                    points[at.start as usize..at.end as usize].iter_mut().for_each(|p| p[usize::from(r)] = false);
                } else if points[all.clone()].iter().all(|p| !p[usize::from(r)]) {
                    busy.occupy(&Set::of(r.into()..usize::from(r) + 1), slots.range(at));
                    held.push((r, at));
                    points[all].iter_mut().for_each(|p| p[usize::from(r)] = true);
                }
            }
            for (start, length) in asked {
                let at = at(start, length);
                let found = busy.during(slots.range(at));
                for r in 0..130u8 {
                    let is = points[at.start as usize..at.end as usize].iter().any(|p| p[usize::from(r)]);
                    prop_assert_eq!(found.contains(r), is, "R{} at {:?}", r, at);
                }
            }
        }
    }
}
