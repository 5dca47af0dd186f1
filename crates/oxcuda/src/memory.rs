//! Memory: of the device, in the simulator's; of the host where kernels see it, which is put into the simulator's for
//! the time of a launch, at the host's addresses.

use crate::error::{Error, Result};
use crate::ffi::{self, Block};
use sim::memory::Memory;
use std::collections::BTreeMap;

/// Bytes of the units in which memory of the device is given.
const UNIT: usize = 512;

/// Of which kind an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of the device alone.
    Device,
    /// Of both, wherever it is.
    Managed,
    /// The host's, given by the driver.
    Pinned,
    /// The host's, made known to the driver.
    Registered,
}

/// An allocation.
#[derive(Debug)]
pub struct Region {
    /// Its size.
    pub size: usize,
    /// Its kind.
    pub kind: Kind,
    /// The context that it belongs to, if it goes with one.
    pub context: Option<u64>,
    /// The pool that it came from.
    pub pool: Option<u64>,
    /// Flags as asked for.
    pub flags: u32,
    /// A number of its own.
    pub id: u64,
    /// The host's memory, where it is the driver's to free.
    block: Option<Block>,
}

/// A pool.
#[derive(Debug, Default)]
pub struct Pool {
    /// Attributes by number, as they were set.
    pub attributes: BTreeMap<u32, u64>,
    /// Bytes in use, and the most of them.
    pub used: [u64; 2],
}

/// All memory.
#[derive(Default)]
pub struct Space {
    /// The simulator's.
    pub memory: Memory,
    regions: BTreeMap<u64, Region>,
    used: u64,
    made: u64,
}

impl Space {
    /// Bytes of the device in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    fn note(&mut self, address: u64, size: usize, kind: Kind, context: Option<u64>) -> &mut Region {
        self.made += 1;
        let region = Region { size, kind, context, pool: None, flags: 0, id: self.made, block: None };
        if kind == Kind::Device {
            self.used += size as u64;
        }
        self.regions.entry(address).or_insert(region)
    }

    /// Gives memory of the device.
    pub fn device(&mut self, size: usize, context: Option<u64>) -> Result<u64> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.used.checked_add(size as u64).is_none_or(|n| n > crate::settings::get().memory) {
            return Err(Error::OUT_OF_MEMORY);
        }
        // A driver gives memory in units, and nothing stops a kernel that reads to the end of the last one.
        let whole = if crate::settings::get().checks.memory { size } else { size.next_multiple_of(UNIT) };
        let address = self.memory.alloc("device memory", vec![0; whole]);
        if crate::settings::get().checks.init {
            self.memory.undefine(address);
        }
        self.note(address, size, Kind::Device, context);
        Ok(address)
    }

    /// Gives memory of the host that kernels see.
    pub fn host(&mut self, size: usize, kind: Kind, context: Option<u64>, flags: u32) -> Result<u64> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let block = Block::new(size)?;
        let address = block.address();
        let region = self.note(address, size, kind, context);
        (region.block, region.flags) = (Some(block), flags);
        Ok(address)
    }

    /// Makes memory of the program known.
    pub fn register(&mut self, address: u64, size: usize, context: Option<u64>, flags: u32) -> Result<()> {
        if address == 0 || size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let before = self.regions.range(..address.saturating_add(size as u64)).next_back();
        if before.is_some_and(|(at, r)| at + r.size as u64 > address) {
            return Err(Error::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.note(address, size, Kind::Registered, context).flags = flags;
        Ok(())
    }

    /// Takes back what starts at an address, if it is of one of these kinds.
    pub fn free(&mut self, address: u64, kinds: &[Kind]) -> Result<Region> {
        let found = self.regions.get(&address).filter(|r| kinds.contains(&r.kind));
        let device = found.ok_or(Error::INVALID_VALUE)?.kind == Kind::Device;
        let region = self.regions.remove(&address).ok_or(Error::INVALID_VALUE)?;
        if device {
            self.memory.remove(address);
            self.used -= region.size as u64;
        }
        Ok(region)
    }

    /// Takes back all that goes with a context.
    pub fn free_all_of(&mut self, context: u64) {
        let of = |r: &Region| r.context == Some(context);
        if crate::settings::get().checks.memory {
            // Pools' and modules' own memory is not the program's to free.
            let left = |r: &Region| of(r) && r.kind == Kind::Device && r.pool.is_none();
            for (at, r) in self.regions.iter().filter(|(_, r)| left(r)) {
                eprintln!(
                    "oxcuda: memory: {} bytes at {at:#x} are not freed when their context ends",
                    r.size
                );
            }
        }
        let all: Vec<u64> = self.regions.iter().filter(|(_, r)| of(r)).map(|r| *r.0).collect();
        let kinds = [Kind::Device, Kind::Managed, Kind::Pinned, Kind::Registered];
        for address in all {
            let _ = self.free(address, &kinds);
        }
    }

    /// The allocation that an address lies in, and where it starts.
    pub fn find(&self, address: u64) -> Option<(u64, &Region)> {
        let (at, region) = self.regions.range(..=address).next_back()?;
        (address - at < region.size as u64).then_some((*at, region))
    }

    /// The allocation that starts at an address.
    pub fn region_mut(&mut self, address: u64) -> Option<&mut Region> {
        self.regions.get_mut(&address)
    }

    /// Whether bytes reach behind what was asked for, into the rest of its unit: kernels may, copies may not.
    fn slack(&self, address: u64, size: usize) -> bool {
        let before = self.regions.range(..=address).next_back().filter(|(_, r)| r.kind == Kind::Device);
        before.is_some_and(|(at, r)| {
            let (asked, whole) = (at + r.size as u64, at + r.size.next_multiple_of(UNIT) as u64);
            address < whole && address.saturating_add(size as u64) > asked
        })
    }

    /// Where an address of the device's address space is; a variable of a module is no allocation of the program's.
    fn on_device(&self, address: u64, size: usize) -> Result<bool> {
        if self.slack(address, size) {
            return Err(Error::INVALID_VALUE);
        }
        if self.memory.slice(address, size).is_some() {
            return Ok(true);
        }
        let end = |at: u64, r: &Region| at + r.size as u64;
        match self.find(address) {
            Some((at, r)) if r.kind != Kind::Device && address.saturating_add(size as u64) <= end(at, r) => {
                Ok(false)
            }
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// Whether all of these bytes are in the device's address space: to be asked before as many are gathered.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self, address: u64, size: u64) -> Result<()> {
        match usize::try_from(size) {
            Ok(0) => Ok(()),
            Ok(size) => self.on_device(address, size).map(|_| ()),
            Err(_) => Err(Error::INVALID_VALUE),
        }
    }

    /// Bytes at an address of the device's address space.
    pub fn read(&self, address: u64, size: usize) -> Result<Vec<u8>> {
        if size == 0 {
            return Ok(Vec::new());
        }
        if self.on_device(address, size)? {
            return self.memory.slice(address, size).map(<[u8]>::to_vec).ok_or(Error::INVALID_VALUE);
        }
        ffi::read(address, size)
    }

    /// Puts bytes at an address of the device's address space.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.on_device(address, bytes.len())? {
            let to = self.memory.slice_mut(address, bytes.len()).ok_or(Error::INVALID_VALUE)?;
            to.copy_from_slice(bytes);
            self.memory.define(address, bytes.len() as u64);
            return Ok(());
        }
        ffi::write(address, bytes)
    }

    /// Bytes at any address: what is not the device's is the host's.
    pub fn read_any(&self, address: u64, size: usize) -> Result<Vec<u8>> {
        if self.slack(address, size) {
            return Err(Error::INVALID_VALUE);
        }
        match self.memory.slice(address, size) {
            Some(bytes) => Ok(bytes.to_vec()),
            None if self.find(address).is_some_and(|(_, r)| r.kind == Kind::Device) => {
                Err(Error::INVALID_VALUE)
            }
            None => ffi::read(address, size),
        }
    }

    /// Puts bytes at any address.
    pub fn write_any(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        if self.slack(address, bytes.len()) {
            return Err(Error::INVALID_VALUE);
        }
        if let Some(to) = self.memory.slice_mut(address, bytes.len()) {
            to.copy_from_slice(bytes);
            self.memory.define(address, bytes.len() as u64);
            return Ok(());
        }
        match self.find(address) {
            Some((_, r)) if r.kind == Kind::Device => Err(Error::INVALID_VALUE),
            _ => ffi::write(address, bytes),
        }
    }

    /// Runs something on memory with what of the host's kernels see.
    pub fn launch<T>(&mut self, run: impl FnOnce(&mut Memory) -> T) -> Result<T> {
        let host = |r: &Region| r.kind != Kind::Device;
        let all: Vec<(u64, usize)> =
            self.regions.iter().filter(|(_, r)| host(r)).map(|(at, r)| (*at, r.size)).collect();
        for (at, size) in &all {
            self.memory.place("host memory", *at, ffi::read(*at, *size)?);
        }
        let result = run(&mut self.memory);
        for (at, _) in &all {
            if let Some(bytes) = self.memory.remove(*at) {
                ffi::write(*at, &bytes)?;
            }
        }
        Ok(result)
    }
}
