//! How `ldmatrix`, `stmatrix` and `movmatrix` spread rows of 16 bytes over the lanes of a warp.
//!
//! The manual shows the places of single bytes in pictures; for the shapes of 8-bit elements they are taken from how
//! CUTLASS describes these instructions (`SM100_U8x8_LDSM_T` and its neighbours).

use crate::matrix::Row;

/// A row of a matrix in memory.
pub(crate) type Line = [u8; 16];

/// The matrices that such an instruction moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// 8 rows; lane 4g+t holds four bytes of row g: `m8n8` of 16-bit elements, and `m8n16`.
    Rows,
    /// 8×8 elements of 16 bits, transposed.
    Halves,
    /// 16×16 bytes, transposed: two registers.
    Bytes16,
    /// 16×8 bytes, transposed.
    Bytes8,
}

impl Shape {
    /// Rows in memory.
    pub(crate) fn lines(self) -> usize {
        if self == Shape::Bytes16 { 16 } else { 8 }
    }

    /// Registers of a lane.
    pub(crate) fn registers(self) -> usize {
        self.lines() / 8
    }

    /// Row and byte in memory of byte `k` of a lane's register.
    fn place(self, lane: usize, register: usize, k: usize) -> (usize, usize) {
        let (four, t) = (lane / 4, lane % 4);
        match self {
            Shape::Rows => (four, 4 * t + k),
            Shape::Halves => (2 * t + k / 2, 2 * four + k % 2),
            Shape::Bytes16 => (4 * t + 2 * register + k % 2, four + 8 * (k / 2)),
            Shape::Bytes8 => (2 * t + k % 2, four + 8 * (k / 2)),
        }
    }

    /// What the lanes' registers hold of a matrix.
    pub(crate) fn words(self, lines: &[Line]) -> Vec<Row> {
        let word = |lane, register| {
            u32::from_le_bytes(std::array::from_fn(|k| {
                let (row, byte) = self.place(lane, register, k);
                lines[row][byte]
            }))
        };
        (0..self.registers()).map(|r| std::array::from_fn(|lane| word(lane, r))).collect()
    }

    /// The matrix that the lanes' registers hold.
    pub(crate) fn lines_of(self, words: &[Row]) -> Vec<Line> {
        let mut lines = vec![[0; 16]; self.lines()];
        for (register, row) in words.iter().enumerate() {
            for (lane, word) in row.iter().enumerate() {
                for (k, b) in word.to_le_bytes().into_iter().enumerate() {
                    let (row, byte) = self.place(lane, register, k);
                    lines[row][byte] = b;
                }
            }
        }
        lines
    }
}

/// The bytes that 16 elements of 4 or 6 bits at the start of a row become: those of 6 bits stand at the bottom,
/// those of 4 bits in the middle, as products of 8-bit elements read them.
pub(crate) fn widen(line: &Line, bits: u32) -> Line {
    let all = u128::from_le_bytes(*line);
    let shift = if bits == 4 { 2 } else { 0 };
    std::array::from_fn(|i| ((all >> (i as u32 * bits)) as u8 & ((1 << bits) - 1)) << shift)
}

/// The bytes of an 8×32 matrix of nibbles, eight of a row in a lane, as products of 8-bit elements read them: sixteen
/// columns to a register.
pub(crate) fn nibbles_to_bytes(words: &Row) -> [Row; 2] {
    std::array::from_fn(|register| {
        std::array::from_fn(|lane| {
            u32::from_le_bytes(std::array::from_fn(|k| {
                let column = 16 * register + lane % 4 * 4 + k;
                (words[lane / 4 * 4 + column / 8] >> (4 * (column % 8)) & 15) as u8
            }))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_go_round() {
        for shape in [Shape::Rows, Shape::Halves, Shape::Bytes16, Shape::Bytes8] {
            let lines: Vec<Line> =
                (0..shape.lines()).map(|r| std::array::from_fn(|b| (16 * r + b) as u8)).collect();
            let words = shape.words(&lines);
            assert_eq!(words.len(), shape.registers());
            assert_eq!(shape.lines_of(&words), lines);
        }
    }

    #[test]
    fn lanes_hold_what_products_ask_for() {
        let lines: Vec<Line> = (0..16).map(|r| std::array::from_fn(|b| (16 * r + b) as u8)).collect();
        // Lane 4: row 1, columns 0 and 1; transposed, column 1 of rows 0 and 1.
        assert_eq!(Shape::Rows.words(&lines[..8])[0][4], 0x1312_1110);
        assert_eq!(Shape::Halves.words(&lines[..8])[0][4], 0x1312_0302);
        // Lane 5: columns 1 and 9 of rows 4 and 5, then of rows 6 and 7.
        let words = Shape::Bytes16.words(&lines);
        assert_eq!([words[0][5], words[1][5]], [0x5949_5141, 0x7969_7161]);
    }

    #[test]
    fn small_elements_become_bytes() {
        let line: Line = std::array::from_fn(|i| 0x10 * i as u8 + 7);
        assert_eq!(widen(&line, 4)[..4], [7 << 2, 0, 7 << 2, 1 << 2]);
        // 0x…271707: six bits at a time.
        assert_eq!(widen(&line, 6)[..4], [0x07, 0x1c, 0x31, 0x09]);
    }
}
