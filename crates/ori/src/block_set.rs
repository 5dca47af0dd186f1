//! Sets of blocks. A function may have as many regions as blocks, most of them small, so a set takes room for what is
//! in it, and no more than a bit for each block of the function.

use crate::function::Block;
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;

/// A set of blocks.
#[derive(Clone, Debug)]
pub enum BlockSet {
    /// Ascending.
    Few(Vec<Block>),
    /// A bit for each block.
    Many(FixedBitSet),
}

impl BlockSet {
    /// The set of these, each named once, of a function with `count` blocks.
    pub fn new(mut blocks: Vec<Block>, count: usize) -> BlockSet {
        if blocks.len() * 32 > count {
            let mut bits = FixedBitSet::with_capacity(count);
            bits.extend(blocks.iter().map(|b| b.index()));
            return BlockSet::Many(bits);
        }
        blocks.sort_unstable();
        BlockSet::Few(blocks)
    }

    /// Whether a block is in it.
    pub fn contains(&self, b: Block) -> bool {
        match self {
            BlockSet::Few(v) => v.binary_search(&b).is_ok(),
            BlockSet::Many(bits) => bits.contains(b.index()),
        }
    }

    /// Adds a block, also one that is newer than the set.
    pub fn insert(&mut self, b: Block) {
        match self {
            BlockSet::Few(v) => {
                if let Err(at) = v.binary_search(&b) {
                    v.insert(at, b);
                }
            }
            BlockSet::Many(bits) => bits.grow_and_insert(b.index()),
        }
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Block> {
        let (few, many) = match self {
            BlockSet::Few(v) => (Some(v.iter().copied()), None),
            BlockSet::Many(bits) => (None, Some(bits.ones().map(Block::new))),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

/// Blocks that a walk has seen, forgotten by all of them at once.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The walk that saw each block last.
    by: Vec<u32>,
    walk: u32,
}

impl Seen {
    /// For a function with `count` blocks.
    pub fn new(count: usize) -> Seen {
        Seen { by: vec![0; count], walk: 0 }
    }

    /// Begins a walk, which has seen nothing.
    pub fn restart(&mut self) {
        if self.walk == u32::MAX {
            self.by.fill(0);
            self.walk = 0;
        }
        self.walk += 1;
    }

    /// Whether this walk has seen a block.
    pub fn contains(&self, b: Block) -> bool {
        self.by[b.index()] == self.walk
    }

    /// Notes a block; whether this walk had seen it.
    pub fn put(&mut self, b: Block) -> bool {
        std::mem::replace(&mut self.by[b.index()], self.walk) == self.walk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_hold_the_same() {
        let named = [9, 3, 70].map(Block::new);
        for count in [80, 10_000] {
            let mut set = BlockSet::new(named.to_vec(), count);
            assert_eq!(matches!(set, BlockSet::Many(_)), count == 80);
            set.insert(Block::new(20_000));
            set.insert(Block::new(9));
            assert_eq!(set.iter().map(|b| b.index()).collect::<Vec<_>>(), [3, 9, 70, 20_000]);
            assert!(set.contains(Block::new(70)) && !set.contains(Block::new(4)));
        }
    }

    #[test]
    fn a_walk_forgets() {
        let mut seen = Seen::new(3);
        for _ in 0..2 {
            seen.restart();
            assert!(!seen.put(Block::new(1)) && seen.put(Block::new(1)) && !seen.put(Block::new(2)));
        }
    }
}
