//! What threads hold where they come to chosen places: as a debugger that stops there would read it.

use std::collections::BTreeMap;

/// Places where each thread is looked at, before it goes on, and what there.
#[derive(Clone, Debug)]
pub struct Stops<P, W> {
    /// What is wanted, by place: the byte address of an instruction of SASS, the start of a statement of PTX.
    pub wanted: BTreeMap<P, Vec<W>>,
    /// What was there, for every thread in the order of its steps.
    pub seen: Vec<Stop<P>>,
}

impl<P, W> Default for Stops<P, W> {
    fn default() -> Stops<P, W> {
        Stops { wanted: BTreeMap::new(), seen: Vec::new() }
    }
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
