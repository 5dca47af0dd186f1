//! Sparse memory: every address holds something before it is written, made from the address and a seed, so that
//! any kernel can be run without a launch file.

use crate::image::{Images, Kind};
use crate::launch::Rng;
use rustc_hash::FxHashMap;

/// What a region holds before it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Integers of so many bytes.
    Int(u8),
    /// Any bits, wherever they go: texels.
    Bits,
    /// binary16
    F16,
    /// bfloat16
    Bf16,
    /// binary32
    F32,
    /// binary64
    F64,
    /// Addresses of other regions.
    Pointer,
    /// Handles of two images, of which this is the first.
    Handle(u8, Kind),
}

/// How far the contents go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Range {
    /// Integers from 0 to 63, and floating-point numbers from 1/8 to 16 of both signs.
    #[default]
    Small,
    /// All integers, and special floating-point values among the others.
    Wild,
    /// Integers are zero, as counters and locks are at first; floating-point numbers as in `Small`.
    Zero,
}

/// Address of the first region; region n starts `n << SHIFT` behind it.
const FIRST: u64 = 0x2000_0000_0000;
/// A region has 64 GiB.
const SHIFT: u32 = 36;
/// Regions: those of pointers found in memory follow those of parameters.
const REGIONS: u64 = 256;
/// Bytes that are made at once.
const PAGE: u64 = 4096;
/// More pages than this are a runaway.
const MOST_PAGES: usize = 1 << 14;

/// Memory of which every byte exists.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    seed: u64,
    range: Range,
    /// Contents of the first regions; the others follow from the seed.
    regions: Vec<Content>,
    pages: FxHashMap<u64, Box<[u8]>>,
}

impl Sparse {
    /// Nothing touched yet.
    pub fn new(seed: u64, range: Range, regions: Vec<Content>) -> Sparse {
        Sparse { seed, range, regions, pages: FxHashMap::default() }
    }

    /// An address in the middle of region `n`, so that small negative offsets stay inside.
    pub fn address(n: usize) -> u64 {
        FIRST + ((n as u64 % REGIONS) << SHIFT) + (1 << (SHIFT - 1))
    }

    /// The region of an address, and the distance from [`Sparse::address`] of it.
    pub fn locate(address: u64) -> Option<(usize, i64)> {
        let n = address.checked_sub(FIRST)? >> SHIFT;
        (n < REGIONS).then(|| (n as usize, address.wrapping_sub(Sparse::address(n as usize)) as i64))
    }

    /// What the memory at `address` holds at first.
    pub fn content(&self, address: u64) -> Content {
        let Some((n, _)) = Sparse::locate(address) else { return Content::Int(4) };
        self.regions.get(n).copied().unwrap_or_else(|| {
            let kinds = [Content::Int(4), Content::F32, Content::Int(8), Content::F64];
            kinds[Rng::new(self.seed ^ n as u64).next() as usize % kinds.len()]
        })
    }

    /// The bytes at an address; `None` outside of all regions, across the edge of a page, or when too much was
    /// touched.
    pub fn bytes(&mut self, address: u64, size: usize) -> Option<&mut [u8]> {
        Sparse::locate(address)?;
        let page = address / PAGE;
        let at = (address % PAGE) as usize;
        if !self.pages.contains_key(&page) {
            if self.pages.len() == MOST_PAGES {
                return None;
            }
            let bytes = self.fresh(page);
            self.pages.insert(page, bytes);
        }
        self.pages.get_mut(&page)?.get_mut(at..at + size)
    }

    /// A page as it is before it is written.
    fn fresh(&self, page: u64) -> Box<[u8]> {
        (0..PAGE / 8).flat_map(|i| self.first(page * PAGE + 8 * i).to_le_bytes()).collect()
    }

    /// What the aligned eight bytes at an address hold before they are written.
    pub(crate) fn first(&self, address: u64) -> u64 {
        let content = self.content(address / PAGE * PAGE);
        word(content, self.range, Rng::new(self.seed ^ address).next())
    }

    /// The aligned eight bytes at an address of a page that was touched.
    pub(crate) fn touched(&self, address: u64) -> Option<u64> {
        let at = (address % PAGE) as usize;
        self.pages.get(&(address / PAGE))?.get(at..at + 8).map(crate::memory::little_endian)
    }

    /// The pages that were touched, ascending: addresses, what they held at first, what they hold now.
    pub fn pages(&self) -> impl Iterator<Item = (u64, Box<[u8]>, &[u8])> {
        let mut numbers: Vec<u64> = self.pages.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|n| (n * PAGE, self.fresh(n), &*self.pages[&n]))
    }

    /// Whether nothing has been stored, or only what was there.
    pub fn is_untouched(&self) -> bool {
        self.pages.iter().all(|(n, p)| **p == *self.fresh(*n))
    }

    /// Addresses of the aligned 8-byte words that differ, ascending, with both contents.
    pub fn differences(&self, other: &Sparse) -> Vec<(u64, [u64; 2])> {
        let mut numbers: Vec<u64> = self.pages.keys().chain(other.pages.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut out = Vec::new();
        for n in numbers {
            let page = |s: &Sparse| s.pages.get(&n).cloned().unwrap_or_else(|| s.fresh(n));
            let (a, b) = (page(self), page(other));
            if a == b {
                continue;
            }
            let both = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).enumerate();
            out.extend(both.filter(|(_, (a, b))| a != b).map(|(i, (a, b))| {
                (n * PAGE + 8 * i as u64, [u64::from_le_bytes(*a), u64::from_le_bytes(*b)])
            }));
        }
        out
    }
}

/// Eight bytes of a content from random bits.
fn word(content: Content, range: Range, h: u64) -> u64 {
    let wild = range == Range::Wild;
    let mut rng = Rng::new(h);
    let mut each = |bytes: u32, f: &dyn Fn(u64) -> u64| {
        (0..8 / bytes).fold(0, |w, i| {
            let mask = u64::MAX >> (64 - 8 * bytes);
            w | (f(rng.next()) & mask) << (8 * bytes * i)
        })
    };
    // Sign, an exponent from 1/8 to 8, any significand.
    let float = |bits: u32, significand: u32| {
        move |r: u64| {
            let exponent_bits = bits - 1 - significand;
            let bias = (1u64 << (exponent_bits - 1)) - 1;
            let field = match r >> 60 {
                0 if wild => 0,
                1 if wild => (1 << exponent_bits) - 1,
                2 if wild => (r >> 40) & ((1 << exponent_bits) - 1),
                _ => bias - 3 + (r >> 56) % 7,
            };
            let fraction = if wild && r >> 52 & 7 == 0 { 0 } else { r & ((1 << significand) - 1) };
            (r >> 55 & 1) << (bits - 1) | field << significand | fraction
        }
    };
    match content {
        Content::Bits => rng.next(),
        Content::Int(_) if range == Range::Zero => 0,
        Content::Int(n) if wild => each(n.into(), &|r| r),
        Content::Int(n) => each(n.into(), &|r| r >> 58),
        Content::F16 => each(2, &float(16, 10)),
        Content::Bf16 => each(2, &float(16, 7)),
        Content::F32 => each(4, &float(32, 23)),
        Content::F64 => each(8, &float(64, 52)),
        Content::Handle(first, kind) => Images::handle(usize::from(first) + (h as usize & 1), kind),
        Content::Pointer => Sparse::address(64 + (h % 64) as usize) + (h >> 40 & 0xff) * 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_depend_on_address_and_seed_alone() {
        let regions = vec![Content::F32, Content::Int(4), Content::Pointer];
        let (mut a, mut b) =
            (Sparse::new(0, Range::Small, regions.clone()), Sparse::new(0, Range::Small, regions));
        let at = |n| Sparse::address(n);
        for n in 0..3 {
            let first = a.bytes(at(n) + 64, 8).unwrap().to_vec();
            assert_eq!(b.bytes(at(n) + 64, 8).unwrap(), first);
        }
        let x = f32::from_le_bytes(a.bytes(at(0), 4).unwrap().try_into().unwrap());
        assert!(x.abs() >= 0.125 && x.abs() < 16.0, "{x}");
        let p = u64::from_le_bytes(a.bytes(at(2), 8).unwrap().try_into().unwrap());
        assert!(Sparse::locate(p).is_some_and(|(n, _)| n >= 64));
        assert!(a.is_untouched());
        assert_eq!(a.differences(&b), []);
        a.bytes(at(1) + 5, 1).unwrap()[0] ^= 1;
        assert!(!a.is_untouched());
        assert_eq!(a.differences(&b).len(), 1);
    }
}
