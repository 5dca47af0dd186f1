//! What is remembered of each word of memory: who wrote it, and who has read it since. Words are kept in rows of 32; the rows that
//! were touched last are open, all others are packed: what their words have in common is said once.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// An access that was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Past {
    /// In the grid, or who copies for one.
    pub(super) warp: u32,
    /// The warp's clock.
    pub(super) clock: u32,
    /// How many instructions the warp had executed.
    pub(super) time: u32,
    pub(super) pc: u32,
    /// Lane, strong (bit 5), strong for other blocks (bit 6), bytes of the word (bits 8 to 11).
    pub(super) bits: u16,
}

/// The bits of [`Past`] that are the lane.
const LANE: u16 = 31;

impl Past {
    pub(super) fn lane(self) -> usize {
        usize::from(self.bits & LANE)
    }
    pub(super) fn bytes(self) -> u16 {
        self.bits >> 8 & 15
    }
    pub(super) fn strong(self) -> bool {
        self.bits & 32 != 0
    }
    pub(super) fn wide(self) -> bool {
        self.bits & 64 != 0
    }

    /// Without the lane, which is what lanes that do something together do not share.
    fn common(self) -> [u32; PAST] {
        [self.warp, self.clock, self.time, self.pc, (self.bits & !LANE).into()]
    }
}

/// A word of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) writes: SmallVec<[Past; 1]>,
    pub(super) reads: SmallVec<[Past; 1]>,
}

/// Words of a row, and rows of a page.
const ROW: usize = 32;
const PAGE: u64 = 8;
/// Words that a [`Past`] takes in a packed row.
const PAST: usize = 5;
/// Where a packed row has no access.
const NONE: u16 = u16::MAX;

/// A row, open.
type Row = [Cell; ROW];

/// A row, packed: how many writes and reads a word has at most (bits 0 to 7, 8 to 15), and how many different accesses there are
/// (from bit 16 on); those; then for each word its writes and reads, two in a number: which access (from bit 5 on), and the lane.
type Packed = Box<[u32]>;

fn pack(row: &Row) -> Packed {
    let most = |of: fn(&Cell) -> usize| row.iter().map(of).max().unwrap_or(0);
    let (writes, reads) = (most(|c| c.writes.len()), most(|c| c.reads.len()));
    if writes + reads == 0 {
        return Packed::default();
    }
    let mut pasts: SmallVec<[[u32; PAST]; 8]> = SmallVec::new();
    let mut entries: SmallVec<[u16; 128]> = SmallVec::new();
    let mut last = 0;
    for cell in row {
        for (list, count) in [(&cell.writes, writes), (&cell.reads, reads)] {
            for i in 0..count {
                let Some(p) = list.get(i) else {
                    entries.push(NONE);
                    continue;
                };
                let common = p.common();
                if pasts.get(last) != Some(&common) {
                    last = pasts.iter().position(|x| *x == common).unwrap_or(pasts.len());
                    if last == pasts.len() {
                        pasts.push(common);
                    }
                }
                entries.push((last as u16) << 5 | p.bits & LANE);
            }
        }
    }
    let first = writes as u32 | (reads as u32) << 8 | (pasts.len() as u32) << 16;
    let pairs = entries.chunks(2).map(|p| u32::from(p[0]) | u32::from(*p.get(1).unwrap_or(&NONE)) << 16);
    std::iter::once(first).chain(pasts.iter().flatten().copied()).chain(pairs).collect()
}

fn unpack(packed: &[u32], row: &mut Row) {
    row.iter_mut().for_each(|c| {
        c.writes.clear();
        c.reads.clear();
    });
    let Some((first, rest)) = packed.split_first() else { return };
    let (writes, reads, count) = (first & 0xff, first >> 8 & 0xff, (first >> 16) as usize);
    let Some((pasts, pairs)) = rest.split_at_checked(PAST * count) else { return };
    let (pasts, _) = pasts.as_chunks::<PAST>();
    let mut entries = pairs.iter().flat_map(|p| [*p as u16, (*p >> 16) as u16]);
    for cell in row {
        for (list, count) in [(&mut cell.writes, writes), (&mut cell.reads, reads)] {
            for entry in entries.by_ref().take(count as usize) {
                if let Some([warp, clock, time, pc, bits]) = pasts.get(usize::from(entry >> 5)).copied() {
                    list.push(Past { warp, clock, time, pc, bits: bits as u16 | entry & LANE });
                }
            }
        }
    }
}

/// A row that is open, and its number.
type Open = (u64, Box<Row>);

/// Words of a piece of memory, made when they are touched.
pub(super) struct Rows {
    packed: FxHashMap<u64, [Packed; PAGE as usize]>,
    /// By number, of which each has one place.
    open: Vec<Option<Open>>,
}

impl Rows {
    /// With so many rows open at once, a power of two.
    pub(super) fn new(open: usize) -> Rows {
        Rows { packed: FxHashMap::default(), open: vec![None; open] }
    }

    /// A word by its number.
    pub(super) fn cell(&mut self, word: u64) -> &mut Cell {
        let (number, at) = (word / ROW as u64, (word % ROW as u64) as usize);
        // Rows that lie far apart by a power of two are not to drive each other out.
        let place = (number ^ number >> 13) as usize & (self.open.len() - 1);
        let slot = &mut self.open[place];
        let fresh = || (u64::MAX, Box::new(std::array::from_fn(|_| Cell::default())));
        let (open, row) = slot.get_or_insert_with(fresh);
        if *open != number {
            if *open != u64::MAX {
                let page = self.packed.entry(*open / PAGE).or_default();
                page[(*open % PAGE) as usize] = pack(row);
            }
            let found = self.packed.get_mut(&(number / PAGE));
            let packed = found.map(|p| std::mem::take(&mut p[(number % PAGE) as usize])).unwrap_or_default();
            unpack(&packed, row);
            *open = number;
        }
        &mut row[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(n: u32) -> Past {
        Past { warp: n / 64, clock: n % 3, time: n / 32, pc: 16 * (n % 5), bits: (n % 32) as u16 | 15 << 8 }
    }

    #[test]
    fn rows_are_what_they_were_when_they_are_opened_again() {
        let mut rows = Rows::new(2);
        let mut wanted: FxHashMap<u64, Cell> = FxHashMap::default();
        let mut n = 1u32;
        for turn in 0..4000u64 {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let word = u64::from(n >> 8) % 700 + ((turn % 3) << 40);
            let (cell, same) = (rows.cell(word), wanted.entry(word).or_default());
            assert_eq!(cell, same, "word {word} in turn {turn}");
            for c in [cell, same] {
                let list = if n >> 5 & 1 == 0 { &mut c.writes } else { &mut c.reads };
                if list.len() == 4 {
                    list.remove(0);
                }
                list.push(past(n >> 3));
            }
        }
        for (word, cell) in wanted {
            assert_eq!(*rows.cell(word), cell);
        }
    }

    #[test]
    fn what_lanes_do_together_takes_little_room() {
        let mut row: Row = std::array::from_fn(|_| Cell::default());
        for (lane, cell) in row.iter_mut().enumerate() {
            cell.writes.push(Past { warp: 7, clock: 1, time: 9, pc: 32, bits: lane as u16 | 15 << 8 });
        }
        let packed = pack(&row);
        assert_eq!(packed.len(), 1 + PAST + ROW / 2);
        let mut again: Row = std::array::from_fn(|_| Cell::default());
        unpack(&packed, &mut again);
        assert_eq!(row, again);
    }
}
