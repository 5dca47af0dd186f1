//! Tensor memory of a multiprocessor (sm_100 … 110): 128 lanes of 512 words, and products of matrices that are added up in it
//! (`tcgen05`). An address is a lane times 65536 plus a column. One block runs at a time, so all of it is the block's.
//!
//! Which register of which thread is where, and where rows and columns of a matrix are, is what the PTX manual and CUTLASS
//! (`cute/atom/mma_traits_sm100.hpp`) say; nothing here was held against hardware.

use crate::fp::{BF16, F16, F32};
use crate::gmma;
use crate::matrix::{Elem, Extra, Product, Scales, Sum};
use crate::small;
use std::fmt;

/// Lanes and columns.
const LANES: u32 = 128;
const COLUMNS: u32 = 512;
/// Columns are given out in so many at a time.
const SLOT: u32 = 32;
/// What it holds before anything is written: hardware clears nothing.
const GARBAGE: u32 = 0x7fa5_c3e1;

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
    /// There are not so many factors of scales from this byte of a word on.
    Factors {
        /// The first byte.
        byte: u32,
        /// How many.
        blocks: usize,
    },
    /// A copy does not start at lane 0.
    CopyTo(u32),
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
            TmemError::Factors { byte, blocks } => {
                write!(f, "factors from byte {byte} on, {blocks} of them")
            }
            TmemError::CopyTo(lane) => write!(f, "not supported: a copy to lane {lane} of tensor memory"),
        }
    }
}

impl std::error::Error for TmemError {}

/// The memory.
#[derive(Clone, Debug)]
pub(crate) struct Tmem {
    words: Vec<u32>,
    /// Slots that are given out.
    taken: u32,
}

impl Default for Tmem {
    fn default() -> Tmem {
        Tmem { words: vec![GARBAGE; (LANES * COLUMNS) as usize], taken: 0 }
    }
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

/// Where A comes from.
pub(crate) enum Source {
    /// Shared memory, by its descriptor.
    Shared(u64),
    /// Tensor memory.
    Tensor(u32),
}

/// A product.
pub(crate) struct Mma<'a> {
    /// `f16`, `tf32`, `f8f6f4`, `i8`, `mxf8f6f4`, `mxf4`, and `mxf4nvf4` of a factor for 16 columns.
    pub(crate) kind: &'a str,
    /// The descriptor of the instruction.
    pub(crate) descriptor: u32,
    pub(crate) a: Source,
    /// B's descriptor.
    pub(crate) b: u64,
    pub(crate) d: u32,
    /// Whether D counts.
    pub(crate) adds: bool,
    /// Lanes that are left alone.
    pub(crate) disabled: [u32; 4],
    /// Where the scales of A and B are.
    pub(crate) scales: Option<[u32; 2]>,
}

impl Tmem {
    /// Takes so many slots, side by side at a multiple of their number; the first one.
    pub(crate) fn take(&mut self, slots: u32) -> Option<u32> {
        if !matches!(slots, 1 | 2 | 4 | 8 | 16) {
            return None;
        }
        let mask = ((1u64 << slots) - 1) as u32;
        let first = (0..COLUMNS / SLOT).step_by(slots as usize).find(|s| self.taken & mask << s == 0)?;
        self.taken |= mask << first;
        Some(first)
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

    /// Multiplies, adds up and writes. `read` reads bytes of shared memory.
    pub(crate) fn multiply<E: From<TmemError> + From<gmma::DescriptorError>>(
        &mut self,
        m: &Mma<'_>,
        read: &mut dyn FnMut(u64, u32) -> Result<u64, E>,
        multiply: gmma::Multiply<'_>,
    ) -> Result<(), E> {
        let bits = |at: u32, n: u32| m.descriptor >> at & ((1 << n) - 1);
        let refuse = |what| Err(E::from(TmemError::Product(what)));
        let scaled = m.scales.is_some();
        if bits(2, 1) != 0 {
            return refuse("of sparse matrices");
        }
        let (rows, n) = (bits(24, 5) as usize * 16, bits(17, 6) as usize * 8);
        if !matches!(rows, 64 | 128) || n == 0 || n > 256 || scaled && rows != 128 {
            return refuse("of this shape");
        }
        let small = |code: u32| {
            Some(Elem::Small(match code {
                0 => small::E4M3,
                1 => small::E5M2,
                3 => small::E2M3,
                4 => small::E3M2,
                5 => small::E2M1,
                _ => return None,
            }))
        };
        let element = |at: u32| {
            let code = bits(at, 3);
            match (m.kind, code) {
                ("f16", 0) => Some(Elem::Float(F16)),
                ("f16", 1) => Some(Elem::Float(BF16)),
                ("tf32", 2) => Some(Elem::Tf32),
                ("f8f6f4" | "mxf8f6f4", code) => small(code),
                ("mxf4" | "mxf4nvf4", 1) => Some(Elem::Small(small::E2M1)),
                ("i8", 0) => Some(Elem::Int(8, false)),
                ("i8", 1) => Some(Elem::Int(8, true)),
                _ => None,
            }
        };
        let (Some(a), Some(b)) = (element(7), element(10)) else { return refuse("of these elements") };
        let sum = match (m.kind, if scaled { 1 } else { bits(4, 2) }) {
            ("i8", 2) => Sum::Int { saturate: bits(3, 1) != 0 },
            ("i8", _) => return refuse("of these sums"),
            (_, 0) => Sum::Float(F16),
            (_, 1) => Sum::Float(F32),
            _ => return refuse("of these sums"),
        };
        // Half as many columns more that one generation has.
        if matches!(m.kind, "mxf4" | "mxf4nvf4") && bits(31, 1) != 0 {
            return refuse("of 96 columns");
        }
        // 32 bytes of each line.
        let k = 256 / a.bits() as usize;
        let mut lines_a = match m.a {
            Source::Shared(d) => gmma::lines(d, (0, rows), (a, k, bits(15, 1) != 0), read)?,
            Source::Tensor(address) => {
                let per = 32 / a.bits() as usize;
                let mut out = Vec::with_capacity(rows * k);
                for row in 0..rows {
                    for j in 0..k {
                        let (lane, column) = (lane_of(row, rows), (j / per) as u32);
                        let word = self.get((address >> 16) + lane, (address & 0xffff) + column)?;
                        out.push(
                            u64::from(word) >> (j % per * a.bits() as usize) & (u64::MAX >> (64 - a.bits())),
                        );
                    }
                }
                out
            }
        };
        let mut lines_b = gmma::lines(m.b, (0, n), (b, k, bits(16, 1) != 0), read)?;
        for (lines, e, at) in [(&mut lines_a, a, 13), (&mut lines_b, b, 14)] {
            if bits(at, 1) != 0 && m.kind != "i8" {
                lines.iter_mut().for_each(|x| *x ^= e.sign());
            }
        }
        let by_columns: Vec<u64> = (0..k * n).map(|i| lines_b[i % n * k + i / n]).collect();
        let scales = match m.scales {
            Some([sa, sb]) => {
                let blocks = match m.kind {
                    "mxf4" => 2,
                    "mxf4nvf4" => 4,
                    _ => 1,
                };
                Some(self.scales((sa, bits(29, 2)), (sb, bits(4, 2)), bits(23, 1) == 0, [rows, n, blocks])?)
            }
            None => None,
        };
        let (lane, column) = (m.d >> 16, m.d & 0xffff);
        let place = |at: usize| (lane + lane_of(at / n, rows), column + (at % n) as u32);
        let mut c = vec![0u64; rows * n];
        if m.adds {
            for (at, c) in c.iter_mut().enumerate() {
                let (lane, column) = place(at);
                *c = u64::from(self.get(lane, column)?) & (u64::MAX >> (64 - sum.bits()));
            }
        }
        let product = Product { m: rows, n, k, a, b, sum, sparse: false };
        let d = multiply(
            &product,
            [&lines_a, &by_columns, &c],
            Extra { scales: scales.as_ref(), ..Extra::default() },
        );
        for (at, d) in d.into_iter().enumerate() {
            let (lane, column) = place(at);
            if m.disabled[((lane / 32) & 3) as usize] >> (lane % 32) & 1 == 0 {
                self.set(lane, column, d as u32)?;
            }
        }
        Ok(())
    }

    /// Factors: those of a line are bytes, one for each block, of the word of its lane of 32, one word for each 32 lines.
    fn scales(
        &self,
        (a, byte_a): (u32, u32),
        (b, byte_b): (u32, u32),
        fraction: bool,
        [rows, n, blocks]: [usize; 3],
    ) -> Result<Scales, TmemError> {
        let each = |address: u32, byte: u32, count: usize| -> Result<Vec<u32>, TmemError> {
            // The upper bits say which byte, too.
            let byte = byte + (address >> 30);
            if byte as usize + blocks > 4 {
                return Err(TmemError::Factors { byte, blocks });
            }
            let mut out = Vec::with_capacity(count * blocks);
            for i in 0..count as u32 {
                let word = self.get((address >> 16 & 0x7f) + i % 32, (address & 0xffff) + i / 32)?;
                for block in 0..blocks as u32 {
                    let x = (word >> (8 * (byte + block))) as u8;
                    out.push(if fraction { small::E4M3.decode(x & 0x7f) } else { small::decode_scale(x) });
                }
            }
            Ok(out)
        };
        Ok(Scales { blocks, a: each(a, byte_a, rows)?, b: each(b, byte_b, n)? })
    }

    /// Copies a matrix of shared memory, each row to all lanes that the shape says.
    pub(crate) fn copy<E: From<TmemError> + From<gmma::DescriptorError>>(
        &mut self,
        shape: Copies,
        to: u32,
        descriptor: u64,
        read: &mut dyn FnMut(u64, u32) -> Result<u64, E>,
    ) -> Result<(), E> {
        let (rows, words) = shape.size();
        let (lane, column) = (to >> 16, to & 0xffff);
        if lane != 0 {
            return Err(TmemError::CopyTo(lane).into());
        }
        // Words, whatever they hold.
        let lines = gmma::lines(descriptor, (0, rows), (Elem::Tf32, words, false), read)?;
        for (at, x) in lines.into_iter().enumerate() {
            let (row, word) = ((at / words) as u32, (at % words) as u32);
            for lane in shape.lanes(row) {
                self.set(lane, column + word, x as u32)?;
            }
        }
        Ok(())
    }
}

/// Which rows a copy has, and which lanes they go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    /// `128x256b`
    Rows128Words8,
    /// `4x256b`: one row for each warp.
    Rows4Words8,
    /// `128x128b`
    Rows128Words4,
    /// `64x128b.warpx2::02_13`: the upper half of the lanes is the lower one again.
    Halves,
    /// `64x128b.warpx2::01_23`: each 32 rows twice.
    Twice,
    /// `32x128b.warpx4`: the same for each warp.
    Quarters,
}

impl Copies {
    /// Rows, and words of each.
    fn size(self) -> (usize, usize) {
        match self {
            Copies::Rows128Words8 => (128, 8),
            Copies::Rows4Words8 => (4, 8),
            Copies::Rows128Words4 => (128, 4),
            Copies::Halves | Copies::Twice => (64, 4),
            Copies::Quarters => (32, 4),
        }
    }

    fn lanes(self, row: u32) -> Vec<u32> {
        match self {
            Copies::Rows128Words8 | Copies::Rows128Words4 => vec![row],
            Copies::Rows4Words8 => vec![32 * row],
            Copies::Halves => vec![row, row + 64],
            Copies::Twice => {
                let first = row / 32 * 64 + row % 32;
                vec![first, first + 32]
            }
            Copies::Quarters => (0..4).map(|warp| row + 32 * warp).collect(),
        }
    }
}

/// The lane of a row: of 64 rows, each 16 have a quarter of the lanes.
fn lane_of(row: usize, rows: usize) -> u32 {
    (if rows == 64 { row / 16 * 32 + row % 16 } else { row }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_out_aligned() {
        let mut t = Tmem::default();
        assert_eq!(t.take(1), Some(0));
        assert_eq!(t.take(4), Some(4));
        assert_eq!(t.take(16), None);
        assert!(t.load((32, 0, Shape::Lanes32), 0, 1, false).is_err());
        t.keep(!1);
        assert_eq!(t.take(2), Some(0));
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
    #[test]
    fn copies_reach_no_lane_twice() {
        for (shape, lanes) in [
            (Copies::Rows128Words8, 128),
            (Copies::Rows4Words8, 4),
            (Copies::Rows128Words4, 128),
            (Copies::Halves, 128),
            (Copies::Twice, 128),
            (Copies::Quarters, 128),
        ] {
            let reached: Vec<u32> = (0..shape.size().0 as u32).flat_map(|row| shape.lanes(row)).collect();
            let once: std::collections::BTreeSet<&u32> = reached.iter().collect();
            assert_eq!((once.len(), reached.len()), (lanes, lanes));
            assert!(reached.iter().all(|l| *l < LANES));
        }
        assert_eq!(Copies::Halves.lanes(33), [33, 97]);
        assert_eq!(Copies::Twice.lanes(33), [65, 97]);
    }
}
