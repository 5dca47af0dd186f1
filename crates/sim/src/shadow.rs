//! Which bytes of a piece of memory were written.

/// A bit for each byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    written: Vec<u64>,
}

impl Shadow {
    /// Of so many bytes that nobody has written.
    pub(crate) fn new(bytes: u64) -> Shadow {
        Shadow { written: vec![0; (bytes as usize).div_ceil(64)] }
    }

    /// Bytes from `at` on are written.
    pub(crate) fn write(&mut self, at: u64, len: u64) {
        for (word, bits) in parts(at, len) {
            if let Some(w) = self.written.get_mut(word) {
                *w |= bits;
            }
        }
    }

    /// A byte is not written any more.
    pub(crate) fn forget(&mut self, at: u64) {
        if let Some(w) = self.written.get_mut((at / 64) as usize) {
            *w &= !(1 << (at % 64));
        }
    }

    /// How many of these bytes nobody has written; what lies outside was.
    pub(crate) fn missing(&self, at: u64, len: u64) -> u32 {
        let open =
            |(word, bits): (usize, u64)| self.written.get(word).map_or(0, |w| (bits & !w).count_ones());
        parts(at, len).map(open).sum()
    }
}

/// The words that bits from `at` on are in, and those of each.
fn parts(at: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = at.saturating_add(len);
    (at / 64..end.div_ceil(64)).map(move |word| {
        let (first, last) = (at.max(64 * word) - 64 * word, end.min(64 * word + 64) - 64 * word);
        let ones = u64::MAX >> (64 - (last - first).clamp(1, 64));
        (word as usize, if last > first { ones << first } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_across_words() {
        let mut s = Shadow::new(200);
        assert_eq!((s.missing(60, 8), s.missing(0, 0), s.missing(0, 200)), (8, 0, 200));
        s.write(62, 4);
        assert_eq!((s.missing(60, 8), s.missing(62, 4), s.missing(0, 64), s.missing(64, 64)), (4, 0, 62, 62));
        s.write(0, 200);
        assert_eq!(s.missing(0, 200), 0);
        assert_eq!(s.missing(1 << 40, 8), 0);
        s.forget(70);
        assert_eq!((s.missing(64, 8), s.missing(70, 1)), (1, 1));
    }
}
