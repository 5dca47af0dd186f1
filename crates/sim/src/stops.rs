//! What threads hold where they come to chosen places: as a debugger that stops there would read it.

use std::collections::BTreeMap;

/// As many words are kept of what threads held, a gigabyte; where there would be more, it is of fewer threads.
const MOST_WORDS: usize = 1 << 27;

/// Words of a [`Stop`] beside its values.
const WORDS_OF_A_STOP: usize = 8;

/// A block has no more threads.
const MOST_THREADS: u32 = 1024;

/// Places where each thread is looked at, before it goes on, and what there.
#[derive(Clone, Debug)]
pub struct Stops<P, W> {
    /// What is wanted, by place: the byte address of an instruction of SASS, the start of a statement of PTX.
    pub wanted: BTreeMap<P, Vec<W>>,
    /// What was there, for every thread in the order of its steps.
    seen: Vec<Stop<P>>,
    /// Of how many threads one is looked at, a power of 2.
    stride: u32,
    words: usize,
    most: usize,
}

impl<P, W> Default for Stops<P, W> {
    fn default() -> Stops<P, W> {
        Stops { wanted: BTreeMap::new(), seen: Vec::new(), stride: 1, words: 0, most: MOST_WORDS }
    }
}

impl<P, W> Stops<P, W> {
    /// To look at these places.
    pub fn at(wanted: BTreeMap<P, Vec<W>>) -> Stops<P, W> {
        Stops { wanted, ..Stops::default() }
    }

    /// Whether this thread is looked at.
    pub fn looks_at(&self, block: [u32; 3], thread: u32) -> bool {
        is_of(self.stride, block, thread)
    }

    /// Keeps what a thread held. Of too much only that of every second thread stays.
    pub fn keep(&mut self, stop: Stop<P>) {
        let words = |s: &Stop<P>| s.values.len() + WORDS_OF_A_STOP;
        self.words += words(&stop);
        self.seen.push(stop);
        while self.words > self.most && self.stride < 1 << 31 {
            self.stride *= 2;
            self.seen.retain(|s| is_of(self.stride, s.block, s.thread));
            self.words = self.seen.iter().map(words).sum();
        }
    }

    /// Of how many threads one was looked at in the end.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// What was there, of one of so many threads ([`Stops::stride`] or a multiple), in the order of each one's steps.
    pub fn seen(self, stride: u32) -> impl Iterator<Item = Stop<P>> {
        self.seen.into_iter().filter(move |s| is_of(stride, s.block, s.thread))
    }
}

/// Whether it is one of those that are looked at where one of so many is.
fn is_of(stride: u32, block: [u32; 3], thread: u32) -> bool {
    let block = block.iter().fold(0u32, |n, d| n.wrapping_add(*d));
    block.wrapping_mul(MOST_THREADS).wrapping_add(thread) % stride == 0
}

/// A thread at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop<P> {
    /// The place.
    pub at: P,
    /// The thread's block.
    pub block: [u32; 3],
    /// Its number in the block.
    pub thread: u32,
    /// What was wanted, in that order.
    pub values: Vec<u64>,
}

/// Where a thread that runs SASS may hold something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A general register.
    Register(u8),
    /// A predicate.
    Predicate(u8),
    /// A uniform register.
    UniformRegister(u8),
    /// A uniform predicate.
    UniformPredicate(u8),
    /// Four bytes of local memory so many bytes above R1.
    Stack(u32),
}

#[cfg(test)]
mod tests {
    use super::{Stop, Stops};

    #[test]
    fn too_much_is_kept_of_fewer_threads() {
        let mut stops = Stops::<u32, ()> { most: 100 * (8 + 2), ..Stops::default() };
        let mut looked = 0;
        for at in 0..30u32 {
            for thread in 0..32u32 {
                if stops.looks_at([0; 3], thread) {
                    looked += 1;
                    stops.keep(Stop { at, block: [0; 3], thread, values: vec![at.into(), thread.into()] });
                }
            }
        }
        assert_eq!(stops.stride(), 16);
        assert!(looked < 300, "{looked}");
        let count = |stride| stops.clone().seen(stride).filter(|s| s.thread % 16 == 0).count();
        // Of those that stay nothing is lost.
        assert_eq!((count(16), count(32)), (60, 30));
    }
}
