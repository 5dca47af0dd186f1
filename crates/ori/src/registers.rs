//! Sets of physical registers.

use sass::{Reg, RegFile};
use std::ops::Range;

/// Words of a set: no file has more registers than 256.
const WORDS: usize = 4;

/// Registers of one file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Set([u64; WORDS]);

impl Set {
    /// Those whose numbers are in `range`.
    pub fn of(range: Range<usize>) -> Set {
        let below = |n: usize, word: usize| match n.saturating_sub(64 * word) {
            n if n >= 64 => u64::MAX,
            n => (1 << n) - 1,
        };
        Set(std::array::from_fn(|w| below(range.end, w) & !below(range.start, w)))
    }

    /// Every `align`th one, a power of two, from 0 on.
    pub fn multiples(align: u8) -> Set {
        match align {
            64 => Set([1; WORDS]),
            128 => Set([1, 0, 1, 0]),
            _ => Set([u64::MAX / ((1 << align) - 1); WORDS]),
        }
    }

    /// As words, the least registers first.
    pub fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// As words.
    pub fn words_mut(&mut self) -> &mut [u64; WORDS] {
        &mut self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Whether `r` is one of them.
    pub fn contains(&self, r: u8) -> bool {
        self.0[usize::from(r) / 64] >> (r % 64) & 1 != 0
    }

    /// Adds `r`.
    pub fn insert(&mut self, r: u8) {
        self.0[usize::from(r) / 64] |= 1 << (r % 64);
    }

    /// Takes `r` out.
    pub fn remove(&mut self, r: u8) {
        self.0[usize::from(r) / 64] &= !(1 << (r % 64));
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Set) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }

    /// Those that are not in another.
    pub fn without(&self, other: &Set) -> Set {
        Set(std::array::from_fn(|w| self.0[w] & !other.0[w]))
    }

    /// Those that are in another, too.
    pub fn among(&self, other: &Set) -> Set {
        Set(std::array::from_fn(|w| self.0[w] & other.0[w]))
    }

    /// Each number less by `n`; what would be below 0 is left out.
    pub fn down(&self, n: usize) -> Set {
        let (words, bits) = (n / 64, n % 64);
        let word = |w: usize| self.0.get(w).copied().unwrap_or(0);
        Set(std::array::from_fn(|w| match bits {
            0 => word(w + words),
            _ => word(w + words) >> bits | word(w + words + 1) << (64 - bits),
        }))
    }

    /// The least.
    pub fn first(&self) -> Option<u8> {
        let w = self.0.iter().position(|w| *w != 0)?;
        Some((64 * w) as u8 + self.0[w].trailing_zeros() as u8)
    }

    /// The greatest.
    pub fn last(&self) -> Option<u8> {
        let w = self.0.iter().rposition(|w| *w != 0)?;
        Some((64 * w + 63) as u8 - self.0[w].leading_zeros() as u8)
    }

    /// All, ascending.
    pub fn iter(mut self) -> impl Iterator<Item = u8> {
        std::iter::from_fn(move || {
            let r = self.first()?;
            self.remove(r);
            Some(r)
        })
    }
}

/// The files, in the order of [`RegFile`].
pub const FILES: [RegFile; 5] = [RegFile::R, RegFile::P, RegFile::UR, RegFile::UP, RegFile::B];

/// Registers of all files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Registers([Set; FILES.len()]);

impl Registers {
    /// Those of one file.
    pub fn of(&self, file: RegFile) -> &Set {
        &self.0[file as usize]
    }

    /// Those of one file.
    pub fn of_mut(&mut self, file: RegFile) -> &mut Set {
        &mut self.0[file as usize]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Set::is_empty)
    }

    /// Whether `r` is one of them.
    pub fn contains(&self, r: Reg) -> bool {
        self.of(r.file).contains(r.index)
    }

    /// Adds `r`.
    pub fn insert(&mut self, r: Reg) {
        self.of_mut(r.file).insert(r.index);
    }

    /// Takes `r` out.
    pub fn remove(&mut self, r: Reg) {
        self.of_mut(r.file).remove(r.index);
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Registers) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| a.add(b));
    }

    /// Those that are not in another.
    pub fn without(&self, other: &Registers) -> Registers {
        Registers(std::array::from_fn(|f| self.0[f].without(&other.0[f])))
    }

    /// Those that are in another, too.
    pub fn among(&self, other: &Registers) -> Registers {
        Registers(std::array::from_fn(|f| self.0[f].among(&other.0[f])))
    }

    /// All, by file and number.
    pub fn iter(&self) -> impl Iterator<Item = Reg> + use<> {
        FILES.into_iter().zip(self.0).flat_map(|(file, set)| set.iter().map(move |index| Reg { file, index }))
    }
}

impl FromIterator<Reg> for Registers {
    fn from_iter<I: IntoIterator<Item = Reg>>(registers: I) -> Registers {
        let mut all = Registers::default();
        registers.into_iter().for_each(|r| all.insert(r));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_registers() {
        let set = Set::of(3..200);
        assert_eq!((set.first(), set.last(), set.count()), (Some(3), Some(199), 197));
        assert_eq!(set.down(65).iter().collect::<Vec<_>>(), (0..135).collect::<Vec<u8>>());
        for align in [1, 2, 4, 8, 64, 128] {
            let each: Vec<u8> = (0..=255).filter(|r| r % align == 0).collect();
            assert_eq!(Set::multiples(align).iter().collect::<Vec<_>>(), each);
        }
        assert_eq!(Set::of(0..256).among(&Set::of(10..20)).without(&Set::of(11..256)), Set::of(10..11));
        assert_eq!((Set::default().first(), Set::default().is_empty()), (None, true));
        let registers = [Reg::ur(70), Reg::r(3), Reg { file: RegFile::B, index: 0 }, Reg::r(2)];
        let all: Registers = registers.into_iter().collect();
        assert_eq!(Vec::from_iter(all.iter()), [registers[3], registers[1], registers[0], registers[2]]);
        assert!(all.contains(Reg::ur(70)) && !all.contains(Reg::r(70)));
    }
}
