//! Sparse matrices: of every chunk of a row of A half is zero and not stored; a nibble of metadata in some lane
//! says which columns of the chunk the stored elements stand in.
//!
//! Where each nibble is, the manual shows in pictures only. The arrangement here is the one into which public
//! libraries bring metadata before they load it with `ldmatrix`, and code agrees with it in which ptxas 13.0 replaces a
//! sparse product by others (`mma.sp` without `::ordered_metadata` on sm_120, of E4M3 on sm_90, of 4-bit integers
//! from sm_90 on: `crates/sim/tests/both/matrix.rs`).

use crate::matrix::{Elem, Row};

/// A's chunks in a row: columns of a chunk, of which half are stored, and chunks.
fn chunks(e: Elem, k: usize) -> (usize, usize) {
    let width = match e {
        Elem::Tf32 => 2,
        Elem::Fp4 | Elem::Int(4, _) => 8,
        _ => 4,
    };
    (width, k / width)
}

/// The nibble of chunk `q` of a row.
fn nibble(e: Elem, k: usize, words: &Row, selector: usize, row: usize, q: usize) -> u32 {
    let (group, upper) = (row % 8, row / 8);
    let (lane, shift) = match e.bits() {
        // A word for two rows: a lane or two of each four.
        16.. => {
            let lane = if chunks(e, k).1 > 4 { 2 * selector + q / 4 } else { selector };
            (lane, 16 * upper + 4 * (q % 4))
        }
        // A word for a row.
        _ => (2 * (selector + q / 8) + upper, 4 * (q % 8)),
    };
    words[4 * group + lane % 4] >> shift & 15
}

/// The columns of B's rows that A's stored elements meet, row by row, by the nibbles of each row and chunk; `None` where one has no meaning to
/// `tcgen05`: ascending pairs of columns have one, and of descending ones the third with the second.
pub(crate) fn columns_of<E>(
    e: Elem,
    (m, k): (usize, usize),
    nibble: &dyn Fn(usize, usize) -> Result<u32, E>,
) -> Result<Option<Vec<u16>>, E> {
    let (width, n) = chunks(e, k);
    let mut out = Vec::with_capacity(m * k / 2);
    for row in 0..m {
        for q in 0..n {
            let bits = nibble(row, q)?;
            let known = match e {
                Elem::Tf32 => matches!(bits, 0b0100 | 0b1110),
                _ => bits & 3 < bits >> 2 || bits == 0b0110,
            };
            if !known {
                return Ok(None);
            }
            stand(width, bits, |c| out.push((q * width + c) as u16));
        }
    }
    Ok(Some(out))
}

/// The columns of a chunk in which the stored elements stand.
fn stand(width: usize, bits: u32, mut f: impl FnMut(usize)) {
    let (low, high) = ((bits & 3) as usize, (bits >> 2) as usize);
    let at: &[usize] = match width {
        2 => &[low >> 1],
        4 => &[low, high],
        _ => &[2 * low, 2 * low + 1, 2 * high, 2 * high + 1],
    };
    at.iter().for_each(|c| f(*c));
}

/// The columns of B's rows that A's stored elements meet, row by row.
pub(crate) fn columns(e: Elem, (m, k): (usize, usize), words: &Row, selector: usize) -> Vec<u16> {
    let (width, n) = chunks(e, k);
    let mut out = Vec::with_capacity(m * k / 2);
    for row in 0..m {
        for q in 0..n {
            let bits = nibble(e, k, words, selector, row, q);
            stand(width, bits, |c| out.push((q * width + c) as u16));
        }
    }
    out
}

/// Whether every nibble means something: two different columns, ascending where `ordered`.
pub(crate) fn is_valid(e: Elem, (m, k): (usize, usize), words: &Row, selector: usize, ordered: bool) -> bool {
    let all = (0..m).flat_map(|row| (0..chunks(e, k).1).map(move |q| (row, q)));
    all.map(|(row, q)| nibble(e, k, words, selector, row, q)).all(|bits| match e {
        Elem::Tf32 => matches!(bits, 0b0100 | 0b1110),
        _ if ordered => bits & 3 < bits >> 2,
        _ => bits & 3 != bits >> 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fp::F16;

    #[test]
    fn halves_use_one_lane_or_two_of_four() {
        let mut words: Row = [0x4444_4444; 32];
        words[4 * 3 + 2] = 0xe444_444e;
        let c = columns(Elem::Float(F16), (16, 16), &words, 2);
        assert_eq!(c[3 * 8..][..8], [2, 3, 4, 5, 8, 9, 12, 13]);
        assert_eq!(c[11 * 8..][..8], [0, 1, 4, 5, 8, 9, 14, 15]);
        let c = columns(Elem::Float(F16), (16, 32), &words, 1);
        assert_eq!(c[3 * 16..][..2], [2, 3]);
        assert!(is_valid(Elem::Float(F16), (16, 32), &words, 1, true));
        words[12] = 0x1;
        assert!(!is_valid(Elem::Float(F16), (16, 32), &words, 0, true));
        words[12] = 0x4444_4441;
        assert!(is_valid(Elem::Float(F16), (16, 32), &words, 0, false));
    }

    #[test]
    fn bytes_use_a_word_for_a_row() {
        let mut words: Row = [0x4444_4444; 32];
        words[4 * 2 + 3] = 0x4444_44e4;
        let c = columns(Elem::Int(8, true), (16, 64), &words, 0);
        // Row 10, the second half.
        assert_eq!(c[10 * 32 + 16..][..6], [32, 33, 38, 39, 40, 41]);
        let c = columns(Elem::Int(4, true), (16, 128), &words, 0);
        assert_eq!(c[10 * 64 + 32..][..8], [64, 65, 66, 67, 76, 77, 78, 79]);
    }
}
