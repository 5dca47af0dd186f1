//! Virtual memory management: address ranges without memory, memory without an address, and what is mapped where.
//!
//! Memory lies in the simulator's while it is mapped and may be accessed; otherwise its bytes are kept here.

use crate::driver::{Driver, fresh};
use crate::error::{Error, Result};
use crate::memory::Kind;
use std::collections::BTreeMap;

/// Bytes of the units in which memory is made and mapped.
pub const GRANULARITY: usize = 2 << 20;
/// Addresses for ranges: above what the simulator gives in turn, below the host's and the windows.
const FIRST: u64 = 0x2000_0000_0000;
/// See [`FIRST`].
pub const LAST: u64 = 0x3000_0000_0000;
/// Bytes left free between ranges.
const GAP: u64 = GRANULARITY as u64;

/// Memory of the device without an address of its own.
#[derive(Debug)]
pub struct Physical {
    /// Its size.
    pub size: usize,
    /// What was asked for, as C has it.
    pub properties: [u64; 4],
    /// References by its handle, of which none may be left while it is mapped.
    handles: u32,
    /// Where it is mapped.
    mapped: Option<u64>,
    /// Its bytes, while they are not in the simulator's memory.
    bytes: Option<Vec<u8>>,
    /// Whether nobody has written it yet.
    fresh: bool,
}

/// Memory at an address.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: usize,
    memory: u64,
    access: u32,
}

/// All of it.
#[derive(Default)]
pub struct Mappings {
    ranges: BTreeMap<u64, usize>,
    memory: BTreeMap<u64, Physical>,
    mapped: BTreeMap<u64, Mapping>,
}

/// Numbers of `CUmemAccess_flags`: none, reads, both.
pub const READ_WRITE: u32 = 3;

fn whole(size: usize) -> Result<()> {
    if size == 0 || !size.is_multiple_of(GRANULARITY) { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

impl Mappings {
    /// Takes an address range: where it is asked to be, if that is free.
    pub fn reserve(&mut self, size: usize, alignment: usize, wish: u64) -> Result<u64> {
        let size =
            size.checked_next_multiple_of(GRANULARITY).filter(|n| *n > 0).ok_or(Error::INVALID_VALUE)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Error::INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULARITY) as u64;
        let wish = wish.next_multiple_of(alignment);
        let last = self.ranges.iter().next_back().map_or(FIRST, |(at, n)| at + *n as u64 + GAP);
        let at = if self.is_free(wish, size) { wish } else { last.next_multiple_of(alignment) };
        if !self.is_free(at, size) {
            return Err(Error::OUT_OF_MEMORY);
        }
        self.ranges.insert(at, size);
        Ok(at)
    }

    fn is_free(&self, at: u64, size: usize) -> bool {
        let Some(end) = at.checked_add(size as u64).filter(|e| at >= FIRST && *e <= LAST) else {
            return false;
        };
        self.ranges.range(..end).next_back().is_none_or(|(a, n)| a + *n as u64 <= at)
    }

    /// Gives a range back that nothing is mapped to.
    pub fn free(&mut self, at: u64, size: usize) -> Result<()> {
        let whole = self.ranges.get(&at) == Some(&size);
        if !whole || self.mapped.range(at..at + size as u64).next().is_some() {
            return Err(Error::INVALID_VALUE);
        }
        self.ranges.remove(&at);
        Ok(())
    }

    /// Memory by its handle.
    pub fn get(&mut self, memory: u64) -> Result<&mut Physical> {
        self.memory.get_mut(&memory).filter(|m| m.handles > 0).ok_or(Error::INVALID_VALUE)
    }

    /// What is mapped at an address: where it starts.
    fn at(&self, address: u64) -> Option<(u64, Mapping)> {
        let (at, m) = self.mapped.range(..=address).next_back()?;
        (address - at < m.size as u64).then_some((*at, *m))
    }

    /// What may be done at an address.
    pub fn access(&self, address: u64) -> Result<u32> {
        self.at(address).map(|(_, m)| m.access).ok_or(Error::INVALID_VALUE)
    }

    /// Another reference to what is mapped at an address.
    pub fn retain(&mut self, address: u64) -> Result<u64> {
        let (_, m) = self.at(address).ok_or(Error::INVALID_VALUE)?;
        let memory = self.memory.get_mut(&m.memory).ok_or(Error::INVALID_VALUE)?;
        memory.handles += 1;
        Ok(m.memory)
    }

    /// All mappings of a range, of which each has to lie in it, with nothing between them.
    fn all(&self, at: u64, size: usize) -> Result<Vec<(u64, Mapping)>> {
        let end = at.checked_add(size as u64).ok_or(Error::INVALID_VALUE)?;
        let found: Vec<(u64, Mapping)> = self.mapped.range(at..end).map(|(a, m)| (*a, *m)).collect();
        let mut next = at;
        for (a, m) in &found {
            if *a != next {
                return Err(Error::INVALID_VALUE);
            }
            next += m.size as u64;
        }
        if next == end && size > 0 { Ok(found) } else { Err(Error::INVALID_VALUE) }
    }
}

impl Driver {
    /// Makes memory: its handle.
    pub fn create_memory(&mut self, size: usize, properties: [u64; 4]) -> Result<u64> {
        whole(size)?;
        self.space.take(size)?;
        let handle = fresh();
        let new =
            Physical { size, properties, handles: 1, mapped: None, bytes: Some(vec![0; size]), fresh: true };
        self.space.mappings.memory.insert(handle, new);
        Ok(handle)
    }

    /// Lets go of memory, which is freed when it is not mapped either.
    pub fn release_memory(&mut self, memory: u64) -> Result<()> {
        self.space.mappings.get(memory)?.handles -= 1;
        self.end_memory(memory);
        Ok(())
    }

    fn end_memory(&mut self, memory: u64) {
        let unused = |m: &&Physical| m.handles == 0 && m.mapped.is_none();
        if let Some(size) = self.space.mappings.memory.get(&memory).filter(unused).map(|m| m.size) {
            self.space.mappings.memory.remove(&memory);
            self.space.untake(size);
        }
    }

    /// Maps memory into a range that was taken, of which nothing is mapped yet.
    pub fn map_memory(&mut self, at: u64, size: usize, memory: u64) -> Result<()> {
        whole(size)?;
        let m = &mut self.space.mappings;
        let end = at.checked_add(size as u64).ok_or(Error::INVALID_VALUE)?;
        let range = m.ranges.range(..=at).next_back();
        let inside = range.is_some_and(|(a, n)| end <= a + *n as u64);
        let free = m.mapped.range(..end).next_back().is_none_or(|(a, n)| a + n.size as u64 <= at);
        if !inside || !free || !at.is_multiple_of(GRANULARITY as u64) {
            return Err(Error::INVALID_VALUE);
        }
        let memory_of = m.get(memory)?;
        if size > memory_of.size {
            return Err(Error::INVALID_VALUE);
        }
        if memory_of.mapped.is_some() || size != memory_of.size {
            say!("oxcuda: memory that is mapped twice or in part is not built");
            return Err(Error::NOT_SUPPORTED);
        }
        memory_of.mapped = Some(at);
        m.mapped.insert(at, Mapping { size, memory, access: 0 });
        Ok(())
    }

    /// Lets a range be accessed or not. Whether all of it is mapped is known before anything changes.
    pub fn set_access(&mut self, at: u64, size: usize, access: u32) -> Result<()> {
        for (at, m) in self.space.mappings.all(at, size)? {
            match (m.access == READ_WRITE, access == READ_WRITE) {
                (false, true) => self.show(at, m)?,
                (true, false) => self.hide(at, m)?,
                _ => {}
            }
            if let Some(m) = self.space.mappings.mapped.get_mut(&at) {
                m.access = access;
            }
        }
        Ok(())
    }

    /// Puts memory where kernels see it.
    fn show(&mut self, at: u64, m: Mapping) -> Result<()> {
        let memory = self.space.mappings.memory.get_mut(&m.memory).ok_or(Error::INVALID_VALUE)?;
        let bytes = memory.bytes.take().ok_or(Error::INVALID_VALUE)?;
        let fresh = std::mem::take(&mut memory.fresh);
        self.space.memory.place("device memory", at, bytes);
        if fresh && crate::settings::get().checks.init {
            self.space.memory.undefine(at);
        }
        self.space.note(at, m.size, Kind::Mapped, None);
        Ok(())
    }

    /// Takes it away from there.
    fn hide(&mut self, at: u64, m: Mapping) -> Result<()> {
        let bytes = self.space.unnote(at).ok_or(Error::INVALID_VALUE)?;
        let memory = self.space.mappings.memory.get_mut(&m.memory).ok_or(Error::INVALID_VALUE)?;
        memory.bytes = Some(bytes);
        Ok(())
    }

    /// Takes all mappings of a range away.
    pub fn unmap_memory(&mut self, at: u64, size: usize) -> Result<()> {
        let all = self.space.mappings.all(at, size)?;
        self.set_access(at, size, 0)?;
        for (at, m) in all {
            self.space.mappings.mapped.remove(&at);
            if let Some(memory) = self.space.mappings.memory.get_mut(&m.memory) {
                memory.mapped = None;
            }
            self.end_memory(m.memory);
        }
        Ok(())
    }
}
