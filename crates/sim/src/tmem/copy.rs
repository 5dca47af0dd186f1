//! Copies of matrices from shared to tensor memory.

use super::{Tmem, TmemError};
use crate::gmma::{self, Cells};

/// Copies a matrix of each block's shared memory, each row to all lanes that the shape says. `narrow`: bits of elements of which
/// each becomes a byte, 16 of them in 16 bytes of shared memory. `read` reads bytes of the shared memory of one of the blocks.
pub(crate) fn copy<E: From<TmemError> + From<gmma::DescriptorError>>(
    memory: &mut [Tmem],
    (shape, narrow): (Copies, Option<u32>),
    to: u32,
    descriptor: u64,
    read: &mut dyn FnMut(usize, u64, u32) -> Result<u64, E>,
) -> Result<(), E> {
    let (rows, words) = shape.size();
    let (lane, column) = (to >> 16, to & 0xffff);
    if lane != 0 {
        return Err(TmemError::CopyTo(lane).into());
    }
    let (cells, each) = match narrow {
        Some(bits) => (Cells { bits, padded: true }, 4),
        // Words, whatever they hold.
        None => (Cells { bits: 32, padded: false }, 1),
    };
    for (block, m) in memory.iter_mut().enumerate() {
        let mut read = |at: u64, size: u32| read(block, at, size);
        let lines = gmma::tensor_lines(descriptor, (0, rows), (cells, words * each, false), &mut read)?;
        for (at, x) in lines.chunks_exact(each).enumerate() {
            let word = match narrow {
                Some(bits) => x.iter().enumerate().fold(0, |w, (i, x)| w | holder(*x, bits) << (8 * i)),
                None => x[0],
            };
            let (row, place) = ((at / words) as u32, (at % words) as u32);
            for lane in shape.lanes(row) {
                m.set(lane, column + place, word as u32)?;
            }
        }
    }
    Ok(())
}

/// The byte that holds an element of 4 or 6 bits in tensor memory: in the middle, with zeros on both sides (CUTLASS,
/// `cp_narrow_a_to_tmem_mma.py`).
pub(super) fn holder(x: u64, bits: u32) -> u64 {
    x << ((8 - bits) / 2)
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(reached.iter().all(|l| *l < super::super::LANES));
        }
        assert_eq!(Copies::Halves.lanes(33), [33, 97]);
        assert_eq!(Copies::Twice.lanes(33), [65, 97]);
    }
}
