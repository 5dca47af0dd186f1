//! Tensor memory of a multiprocessor (sm_100 … 110): 128 lanes of 512 words, and products of matrices that are added up in it
//! (`tcgen05`). An address is a lane times 65536 plus a column. One block has a multiprocessor for itself here, so all of it is the block's.
//! What works on a pair of blocks gets the memories of both, that of the even one first.
//!
//! Which register of which thread is where, and where rows and columns of a matrix are, is what the PTX manual and CUTLASS
//! (`cute/atom/mma_traits_sm100.hpp`) say; nothing here was held against hardware.

mod copy;
mod product;
mod zeros;

pub(crate) use copy::{Copies, copy};
pub(crate) use product::{Mma, Source, multiply};

use std::fmt;

/// Lanes and columns.
const LANES: u32 = 128;
const COLUMNS: u32 = 512;
/// Columns are given out in so many at a time.
const SLOT: u32 = 32;
/// Why something in tensor memory is not read, written or multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TmemError {
    /// There is no such lane or column.
    Outside {
        /// The lane.
        lane: u32,
        /// The column.
        column: u32,
    },
    /// Nobody has allocated the column.
    NotAllocated(u32),
    /// The warp does not reach the lane.
    Warp {
        /// The lane.
        lane: u32,
        /// The warp's number in its group.
        warp: u32,
    },
    /// What is multiplied, or how, is not supported: `of …`.
    Product(&'static str),
    /// What is multiplied or moved, or how, has no defined result: `of …`.
    Undefined(&'static str),
    /// A copy does not start at lane 0.
    CopyTo(u32),
    /// A shift does not start at the first lane of a warp.
    Shift(u32),
    /// The block has no other one beside it.
    NoPair,
    /// The block of odd rank begins what the even one has to.
    OddBlock,
}

impl fmt::Display for TmemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TmemError::Outside { lane, column } => {
                write!(f, "lane {lane}, column {column} of tensor memory, which is not there")
            }
            TmemError::NotAllocated(column) => {
                write!(f, "column {column} of tensor memory, which nobody has allocated")
            }
            TmemError::Warp { lane, warp } => {
                write!(f, "lane {lane} of tensor memory by warp {warp} of its group")
            }
            TmemError::Product(what) => write!(f, "not supported: a product in tensor memory {what}"),
            TmemError::Undefined(what) => write!(f, "undefined: a product in tensor memory {what}"),
            TmemError::CopyTo(lane) => write!(f, "not supported: a copy to lane {lane} of tensor memory"),
            TmemError::Shift(lane) => write!(f, "a shift of rows from lane {lane} of tensor memory on"),
            TmemError::NoPair => f.write_str("tensor memory of a pair of blocks, of which there is only one"),
            TmemError::OddBlock => {
                f.write_str("not supported: a product of a pair of blocks that the odd one starts")
            }
        }
    }
}

impl std::error::Error for TmemError {}

/// The memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tmem {
    /// Lane after lane; nothing as long as nobody has taken a column.
    words: Vec<u32>,
    /// What decides what it holds before anything is written; zeros if it is 0.
    seed: u64,
    /// Slots that are given out.
    taken: u32,
    /// Those at which an allocation begins, and whether the block may take no more: the interpreter's; code has words of its own for it.
    pub(crate) starts: u32,
    pub(crate) relinquished: bool,
    /// The first slot, and how many, of what the other block of a pair took for both (in the interpreter, whose blocks do not talk).
    pub(crate) offered: std::collections::VecDeque<(u32, u32)>,
}

/// Takes so many slots, side by side at a multiple of their number, the same of all blocks; the first one.
pub(crate) fn take(memory: &mut [Tmem], slots: u32) -> Option<u32> {
    if !matches!(slots, 1 | 2 | 4 | 8 | 16) {
        return None;
    }
    let mask = ((1u64 << slots) - 1) as u32;
    let taken = memory.iter().fold(0, |all, m| all | m.taken);
    let first = (0..COLUMNS / SLOT).step_by(slots as usize).find(|s| taken & mask << s == 0)?;
    for m in memory {
        m.taken |= mask << first;
        if m.words.is_empty() {
            // Hardware clears nothing.
            m.words = match m.seed {
                0 => vec![0; (LANES * COLUMNS) as usize],
                seed => {
                    let mut rng = crate::launch::Rng::new(seed);
                    (0..LANES * COLUMNS).map(|_| rng.next() as u32).collect()
                }
            };
        }
    }
    Some(first)
}

/// The memory of a block, or those of its pair; `all` are the memories of its cluster.
pub(crate) fn of_block(all: &mut [Tmem], rank: usize, pair: bool) -> Result<&mut [Tmem], TmemError> {
    match pair {
        true => all.get_mut(rank & !1..(rank & !1) + 2).ok_or(TmemError::NoPair),
        false => all.get_mut(rank..=rank).ok_or(TmemError::NoPair),
    }
}

/// `tcgen05.shift.down`: each of a warp's lanes but the last gets the eight columns of the next one.
pub(crate) fn shift(memory: &mut [Tmem], at: u32) -> Result<(), TmemError> {
    let (lane, column) = (at >> 16, at & 0xffff);
    if !lane.is_multiple_of(32) {
        return Err(TmemError::Shift(lane));
    }
    memory.iter_mut().try_for_each(|m| m.shift_lanes(lane, column))
}

/// How the registers of a warp lie in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// A lane for each thread, a column for each register.
    Lanes32,
    /// 16 lanes: two columns, eight rows and eight more for odd threads.
    Bits64,
    /// 16 lanes of four columns.
    Bits128,
    /// 16 lanes of eight columns.
    Bits256,
    /// The lower 16 threads, or the upper ones.
    Half(bool),
}

impl Shape {
    /// Lane and column, from where the address says, of a thread's register; `None` for threads without one.
    pub(crate) fn place(self, thread: u32, r: u32) -> Option<(u32, u32)> {
        let (quad, t) = (thread / 4, thread % 4);
        Some(match self {
            Shape::Lanes32 => (thread, r),
            Shape::Bits64 => (quad + 8 * (thread & 1), (thread >> 1 & 1) + 2 * r),
            Shape::Bits128 => (quad + 8 * (r & 1), t + 4 * (r >> 1)),
            Shape::Bits256 => (quad + 8 * (r >> 1 & 1), 2 * t + (r & 1) + 8 * (r >> 2)),
            Shape::Half(upper) => {
                if (thread >= 16) != upper {
                    return None;
                }
                (thread % 16, r)
            }
        })
    }
}

impl Tmem {
    /// Of which nobody has taken anything.
    pub(crate) fn new(seed: u64) -> Tmem {
        Tmem { seed, ..Tmem::default() }
    }

    /// Whether columns are taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken != 0
    }

    /// Gives slots back.
    pub(crate) fn keep(&mut self, mask: u32) {
        self.taken &= mask;
    }

    /// Whether these slots are taken.
    pub(crate) fn has(&self, mask: u32) -> bool {
        self.taken & mask == mask
    }

    fn at(&self, lane: u32, column: u32) -> Result<usize, TmemError> {
        if lane >= LANES || column >= COLUMNS {
            return Err(TmemError::Outside { lane, column });
        }
        if self.taken >> (column / SLOT) & 1 == 0 {
            return Err(TmemError::NotAllocated(column));
        }
        Ok((lane * COLUMNS + column) as usize)
    }

    fn get(&self, lane: u32, column: u32) -> Result<u32, TmemError> {
        Ok(self.words[self.at(lane, column)?])
    }

    fn set(&mut self, lane: u32, column: u32, x: u32) -> Result<(), TmemError> {
        let at = self.at(lane, column)?;
        self.words[at] = x;
        Ok(())
    }

    /// The word that stands in the same place of several parts of the lanes, which all have to hold it.
    fn same(
        &self,
        mut starts: impl Iterator<Item = u32>,
        (lane, column): (u32, u32),
    ) -> Result<u32, TmemError> {
        let first = self.get(starts.next().unwrap_or(0) + lane, column)?;
        for start in starts {
            if self.get(start + lane, column)? != first {
                return Err(TmemError::Undefined(
                    "of a matrix that is not the same in all parts of the lanes",
                ));
            }
        }
        Ok(first)
    }

    /// Each of 32 lanes but the last gets eight columns of the next one.
    fn shift_lanes(&mut self, lane: u32, column: u32) -> Result<(), TmemError> {
        for lane in lane..lane + 31 {
            for column in column..column + 8 {
                let x = self.get(lane + 1, column)?;
                self.set(lane, column, x)?;
            }
        }
        Ok(())
    }

    /// The lane and column of an address that warp `warp` of a group reads or writes.
    fn start(address: u32, warp: u32, shape: Shape) -> Result<(u32, u32), TmemError> {
        let (lane, column) = (address >> 16, address & 0xffff);
        let rows = if shape == Shape::Lanes32 { 32 } else { 16 };
        if lane / 32 != warp % 4 || lane % rows != 0 {
            return Err(TmemError::Warp { lane, warp });
        }
        Ok((lane, column))
    }

    /// What a thread loads: so many registers, of two halves each if they are packed.
    pub(crate) fn load(
        &self,
        (address, warp, shape): (u32, u32, Shape),
        thread: u32,
        count: u32,
        packed: bool,
    ) -> Result<Option<Vec<u32>>, TmemError> {
        let (lane, column) = Tmem::start(address, warp, shape)?;
        let one = |r: u32| -> Result<Option<u32>, TmemError> {
            let Some((l, c)) = shape.place(thread, r) else { return Ok(None) };
            self.get(lane + l, column + c).map(Some)
        };
        let mut out = Vec::new();
        for r in 0..count {
            let word = match packed {
                false => one(r)?,
                true => match (one(2 * r)?, one(2 * r + 1)?) {
                    (Some(low), Some(high)) => Some(low & 0xffff | high << 16),
                    _ => None,
                },
            };
            match word {
                Some(w) => out.push(w),
                None => return Ok(None),
            }
        }
        Ok(Some(out))
    }

    /// Stores a thread's registers, each spread over two words if it is two halves.
    pub(crate) fn store(
        &mut self,
        (address, warp, shape): (u32, u32, Shape),
        thread: u32,
        words: &[u32],
        unpacked: bool,
    ) -> Result<(), TmemError> {
        let (lane, column) = Tmem::start(address, warp, shape)?;
        let mut one = |r: usize, x: u32| match shape.place(thread, r as u32) {
            Some((l, c)) => self.set(lane + l, column + c, x),
            None => Ok(()),
        };
        for (r, x) in words.iter().enumerate() {
            match unpacked {
                false => one(r, *x)?,
                true => {
                    one(2 * r, x & 0xffff)?;
                    one(2 * r + 1, x >> 16)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_out_aligned() {
        let one = std::slice::from_mut;
        let mut t = Tmem::default();
        assert_eq!(take(one(&mut t), 1), Some(0));
        assert_eq!(take(one(&mut t), 4), Some(4));
        assert_eq!(take(one(&mut t), 16), None);
        assert!(t.load((32, 0, Shape::Lanes32), 0, 1, false).is_err());
        t.keep(!1);
        assert_eq!(take(one(&mut t), 2), Some(0));
    }

    #[test]
    fn every_shape_covers_its_lanes_once() {
        for (shape, count, lanes, columns) in [
            (Shape::Lanes32, 4, 32, 4),
            (Shape::Bits64, 2, 16, 4),
            (Shape::Bits128, 4, 16, 8),
            (Shape::Bits256, 8, 16, 16),
        ] {
            let mut seen = std::collections::BTreeSet::new();
            for t in 0..32 {
                for r in 0..count {
                    let (lane, column) = shape.place(t, r).unwrap();
                    assert!(lane < lanes && column < columns && seen.insert((lane, column)));
                }
            }
            assert_eq!(seen.len() as u32, lanes * columns);
        }
    }
}
