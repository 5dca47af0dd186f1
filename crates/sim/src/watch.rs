//! Who wrote a place of global memory last.

use crate::memory::Memory;

/// Places of global memory that are looked at after every instruction.
#[derive(Clone, Debug)]
pub struct Watch<P> {
    places: Vec<Place<P>>,
}

#[derive(Clone, Debug)]
struct Place<P> {
    address: u64,
    holds: Option<u64>,
    /// When it changed last, and by what.
    changed: Option<(u64, P)>,
}

impl<P: Copy> Watch<P> {
    /// Watches the aligned words of eight bytes at these addresses.
    pub fn new(addresses: &[u64]) -> Watch<P> {
        let place = |a: &u64| Place { address: *a, holds: None, changed: None };
        Watch { places: addresses.iter().map(place).collect() }
    }

    /// Notes what the memory holds before the first instruction.
    pub(crate) fn begin(&mut self, memory: &Memory) {
        self.places.iter_mut().for_each(|p| p.holds = memory.word(p.address));
    }

    /// Looks after an instruction, the `time`-th of the run.
    pub(crate) fn look(&mut self, memory: &Memory, time: u64, by: P) {
        for p in &mut self.places {
            let now = memory.word(p.address);
            if now != p.holds {
                // A page that is only touched holds what it would have held before.
                if p.holds.is_some() || now != memory.fresh(p.address) {
                    p.changed = Some((time, by));
                }
                p.holds = now;
            }
        }
    }

    /// For each address: when it changed last, and by what.
    pub fn changes(&self) -> impl Iterator<Item = (u64, Option<(u64, P)>)> + '_ {
        self.places.iter().map(|p| (p.address, p.changed))
    }
}
