//! Which columns of B count as zeros in a weight-stationary product, and which is the first that is used.
//!
//! The PTX manual's table calls the run of columns that are used the skip span, and the run of zeros the use span. Its own four
//! examples, and CUTLASS (`MaskAndShiftB` in `mma_sm100_desc.hpp`), have it the other way round; so has this.

use super::TmemError;

/// What a descriptor of such columns says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Zeros {
    /// For each column of D, whether B's is zero.
    pub(super) columns: Vec<bool>,
    /// B's column that D's first one is made of.
    pub(super) first: usize,
}

impl Zeros {
    /// Of products with so many rows and columns, whose instruction descriptor admits columns to move on by `most`.
    pub(super) fn of(descriptor: u64, (rows, n): (usize, usize), most: usize) -> Result<Zeros, TmemError> {
        let field = |at: u32, bits: u32| (descriptor >> at & ((1 << bits) - 1)) as usize;
        let first = field(56, 6);
        if first > most.min(if rows == 32 { 16 } else { 32 }) {
            return Err(TmemError::Undefined("whose columns move on further than its descriptor says"));
        }
        if field(39, 1) == 0 {
            return Ok(Zeros { columns: vec![false; n], first });
        }
        // Columns of B, columns of zeros.
        let spans = [field(48, 8) + 1, field(40, 8) + 1];
        let parts = 128 / rows;
        let mut columns = Vec::with_capacity(n);
        for part in 0..parts as u32 {
            let (skipped, mut zero) = (field(8 * part, 8), field(32 + part, 1) != 0);
            let Some(mut left) = spans[usize::from(zero)].checked_sub(skipped).filter(|n| *n > 0) else {
                return Err(TmemError::Undefined("whose mask of columns begins behind its first span"));
            };
            for _ in 0..n / parts {
                if left == 0 {
                    zero = !zero;
                    left = spans[usize::from(zero)];
                }
                columns.push(zero);
                left -= 1;
            }
        }
        Ok(Zeros { columns, first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first columns of a part, the last of them on the left as the manual writes them.
    fn text(z: &Zeros, from: usize, count: usize) -> String {
        let bits = z.columns[from..from + count].iter().rev();
        bits.map(|b| if *b { '1' } else { '0' }).collect()
    }

    #[test]
    fn examples_of_the_manual() {
        let spans = 1 << 39 | 2 << 40 | 3 << 48;
        assert_eq!(text(&Zeros::of(4 << 40 | 3 << 48, (128, 64), 0).unwrap(), 0, 14), "00000000000000");
        assert_eq!(text(&Zeros::of(spans, (128, 64), 0).unwrap(), 0, 14), "11100001110000");
        let z = Zeros::of(spans | 1 << 32, (64, 64), 0).unwrap();
        assert_eq!(text(&z, 0, 17), "11100001110000111");
        assert_eq!(text(&z, 32, 18), "000011100001110000");
        let counts = 1 << 8 | 2 << 16 | 1 << 24;
        let z = Zeros::of(spans | counts | 3 << 32 | 2 << 56, (32, 128), 8).unwrap();
        assert_eq!(z.first, 2);
        assert_eq!(text(&z, 0, 14), "00001110000111");
        assert_eq!(text(&z, 32, 13), "0000111000011");
        assert_eq!(text(&z, 64, 12), "111000011100");
        assert_eq!(text(&z, 96, 13), "1110000111000");
        assert!(Zeros::of(9 << 56, (128, 64), 8).is_err());
    }
}
