//! Memory: of the device, in the simulator's; of the host where kernels see it, which the simulator reaches where it is for
//! the time of a launch.

use crate::error::{Error, Result};
use crate::ffi::{self, Block};
use crate::mapping::Mappings;
use crate::module::Code;
use sim::memory::Memory;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Bytes of the units in which memory of the device is given.
const UNIT: usize = 512;
/// Where the device's own addresses lie: those that the simulator gives, and those that programs map memory to.
const FIRST: u64 = 0x7f_1000_0000;
const LAST: u64 = crate::mapping::LAST;

/// Of which kind an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of the device alone.
    Device,
    /// Of both, wherever it is.
    Managed,
    /// Of both: a variable of a module.
    Variable,
    /// The host's, given by the driver.
    Pinned,
    /// The host's, made known to the driver.
    Registered,
    /// Of the device, mapped by the program (`mapping`).
    Mapped,
    /// Of the device, at an address that belongs to a graph.
    Graph,
    /// Of the device, an array: no pointer leads there.
    Array,
}

impl Kind {
    /// Whether it lies in the host's memory.
    pub fn on_host(self) -> bool {
        matches!(self, Kind::Managed | Kind::Variable | Kind::Pinned | Kind::Registered)
    }
    /// What it is, for messages.
    fn name(self) -> &'static str {
        match self {
            Kind::Device | Kind::Mapped => "memory of the device",
            Kind::Managed | Kind::Variable => "managed memory",
            Kind::Pinned => "pinned memory of the host",
            Kind::Registered => "registered memory of the host",
            Kind::Graph => "memory of a graph",
            Kind::Array => "an array",
        }
    }
}

/// Why a module is not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// There is no memory for one of its variables.
    Memory,
    /// The simulator does not take the cubin.
    Cubin(sim::FileError),
    /// The interpreter does not take the PTX.
    Ptx(sim::ptx::SimError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Memory => f.write_str("no memory for a managed variable"),
            LoadError::Cubin(e) => e.fmt(f),
            LoadError::Ptx(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

/// An allocation.
#[derive(Debug)]
pub struct Region {
    /// Its size.
    pub size: usize,
    /// Its kind.
    pub kind: Kind,
    /// The context that it belongs to, if it goes with one.
    pub context: Option<u64>,
    /// The context that was current when it was given, if it goes with none.
    pub given_in: Option<u64>,
    /// The pool that it came from.
    pub pool: Option<u64>,
    /// Flags as asked for.
    pub flags: u32,
    /// A number of its own.
    pub id: u64,
    /// Whether the program asked for synchronous operations (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
    pub synchronous: bool,
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
    /// Most bytes that it may have in use, if somebody says.
    pub most: Option<u64>,
}

impl Pool {
    /// Whether it may give so many bytes more.
    pub fn room(&self, size: usize) -> Result<()> {
        let all = self.used[0].checked_add(size as u64);
        if all.is_some_and(|n| self.most.is_none_or(|most| n <= most)) {
            Ok(())
        } else {
            Err(Error::OUT_OF_MEMORY)
        }
    }
}

/// All memory.
#[derive(Default)]
pub struct Space {
    /// The simulator's.
    pub memory: Memory,
    regions: BTreeMap<u64, Region>,
    used: u64,
    made: u64,
    /// Bytes that graphs have allocated, and the most of them.
    graphs: [u64; 2],
    /// Addresses that belong to graphs.
    graph_addresses: BTreeMap<u64, usize>,
    /// What kernels allocated themselves, and the context in which they ran.
    heap: BTreeMap<u64, u64>,
    /// Address ranges that programs map memory to, and what is mapped.
    pub(crate) mappings: Mappings,
}

impl Space {
    /// Bytes of the device in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn note(
        &mut self,
        address: u64,
        size: usize,
        kind: Kind,
        context: Option<u64>,
    ) -> &mut Region {
        self.made += 1;
        let given_in = None;
        let region = Region {
            size,
            kind,
            context,
            given_in,
            pool: None,
            flags: 0,
            id: self.made,
            synchronous: false,
            block: None,
        };
        if matches!(kind, Kind::Device | Kind::Graph | Kind::Array) {
            self.used += size as u64;
        }
        self.regions.entry(address).or_insert(region)
    }

    /// Whether the device has so many bytes left.
    fn room(&self, size: usize) -> Result<()> {
        let all = crate::settings::get().memory;
        match self.used.checked_add(size as u64) {
            Some(n) if n <= all => Ok(()),
            _ => Err(Error::OUT_OF_MEMORY),
        }
    }

    /// Takes bytes of the device for memory that has no address yet.
    pub(crate) fn take(&mut self, size: usize) -> Result<()> {
        self.room(size)?;
        self.used += size as u64;
        Ok(())
    }

    /// Gives back what [`Space::take`] took.
    pub(crate) fn untake(&mut self, size: usize) {
        self.used -= size as u64;
    }

    /// An address for memory that a graph will give.
    pub fn address_for_graph(&mut self, size: usize) -> Result<u64> {
        let address = self.mappings.reserve(size, 0, 0)?;
        self.graph_addresses.insert(address, size);
        Ok(address)
    }

    /// Whether memory at an address is a graph's to give.
    pub fn of_graphs(&self, address: u64) -> bool {
        self.graph_addresses.contains_key(&address)
    }

    /// Whether bytes lie in memory that is a graph's to give.
    pub fn within_graphs(&self, address: u64, size: usize) -> bool {
        let before = self.graph_addresses.range(..=address).next_back();
        before.is_some_and(|(at, n)| address - at + size as u64 <= *n as u64)
    }

    /// Bytes that graphs have allocated, and the most of them.
    pub fn graphs_used(&self) -> [u64; 2] {
        self.graphs
    }

    /// Forgets the most that graphs have allocated.
    pub fn forget_most_of_graphs(&mut self) {
        self.graphs[1] = self.graphs[0];
    }

    /// Gives memory of the device at an address that belongs to a graph.
    pub fn give(&mut self, address: u64, size: usize, pool: Option<u64>) -> Result<()> {
        if self.regions.contains_key(&address) {
            return Err(Error::INVALID_VALUE);
        }
        self.room(size)?;
        let checks = crate::settings::get().checks;
        let whole = if checks.memory { size } else { size.next_multiple_of(UNIT) };
        self.memory.place("device memory", address, vec![0; whole]);
        if checks.init {
            self.memory.undefine(address);
        }
        self.note(address, size, Kind::Graph, None).pool = pool;
        self.graphs[0] += size as u64;
        self.graphs[1] = self.graphs[1].max(self.graphs[0]);
        Ok(())
    }

    /// Gives memory of the device.
    pub fn device(&mut self, size: usize, context: Option<u64>) -> Result<u64> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        self.room(size)?;
        // A driver gives memory in units, and nothing stops a kernel that reads to the end of the last one.
        let whole = if crate::settings::get().checks.memory { size } else { size.next_multiple_of(UNIT) };
        let address = self.memory.alloc("device memory", vec![0; whole]);
        if crate::settings::get().checks.init {
            self.memory.undefine(address);
        }
        self.note(address, size, Kind::Device, context);
        Ok(address)
    }

    /// Gives memory of the device for an array.
    pub fn array(&mut self, size: usize, context: u64) -> Result<u64> {
        self.room(size)?;
        let address = self.memory.alloc("array", vec![0; size]);
        if crate::settings::get().checks.init {
            self.memory.undefine(address);
        }
        self.note(address, size, Kind::Array, Some(context));
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

    /// Loads a module. Its managed variables, of these names and sizes, lie in the host's memory, where kernels find them as
    /// they find other such memory.
    fn load_with<T>(
        &mut self,
        managed: Vec<(String, usize)>,
        shared: &BTreeMap<String, u64>,
        load: impl FnOnce(&mut Memory, &BTreeMap<String, u64>) -> std::result::Result<T, LoadError>,
    ) -> std::result::Result<T, LoadError> {
        let mut places = BTreeMap::new();
        for (name, size) in managed.into_iter().filter(|v| v.1 != 0) {
            if let Some(at) = shared.get(&name) {
                places.insert(name, *at);
                continue;
            }
            let at = self.host(size, Kind::Variable, None, 0).map_err(|_| LoadError::Memory)?;
            places.insert(name, at);
        }
        let loaded = load(&mut self.memory, &places);
        for (name, at) in places {
            let bytes = self.memory.remove(at).filter(|_| loaded.is_ok());
            if shared.contains_key(&name) {
                continue;
            }
            match bytes.map(|b| ffi::write(at, &b)) {
                Some(Ok(())) => {}
                _ => drop(self.regions.remove(&at)),
            }
        }
        loaded
    }

    /// Loads a cubin.
    pub fn load(
        &mut self,
        cubin: &[u8],
        shared: &BTreeMap<String, u64>,
    ) -> std::result::Result<sim::sass::Module, LoadError> {
        let managed = sim::sass::Module::managed(cubin).map_err(LoadError::Cubin)?;
        self.load_with(managed, shared, |memory, places| {
            sim::sass::Module::load_at(cubin, memory, places).map_err(LoadError::Cubin)
        })
    }

    /// Loads PTX for the interpreter.
    pub fn load_ptx(
        &mut self,
        module: ptx::Module,
        shared: &BTreeMap<String, u64>,
    ) -> std::result::Result<sim::ptx::Loaded, LoadError> {
        let managed = sim::ptx::Loaded::managed(&module);
        let load = |memory: &mut Memory, places: &BTreeMap<String, u64>| {
            sim::ptx::Loaded::new_at(module, memory, places).map_err(LoadError::Ptx)
        };
        self.load_with(managed, shared, load)
    }

    /// Whether a managed variable of a module lies at an address.
    pub fn is_variable(&self, address: u64) -> bool {
        self.regions.get(&address).is_some_and(|r| r.kind == Kind::Variable)
    }

    /// Takes one back, with its managed variables if they are its own.
    pub fn unload(&mut self, module: Code, own: bool) {
        let places: Vec<u64> = match &module {
            Code::Sass(m) => m.variables().into_values().map(|v| v.0).collect(),
            Code::Ptx(m) => m.variables().into_values().map(|v| v.0).collect(),
        };
        for at in places {
            if own && self.is_variable(at) {
                self.regions.remove(&at);
            }
        }
        match module {
            Code::Sass(m) => m.unload(&mut self.memory),
            Code::Ptx(m) => m.unload(&mut self.memory),
        }
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
        if !ffi::is_writable(address, size) {
            return Err(Error::INVALID_VALUE);
        }
        self.note(address, size, Kind::Registered, context).flags = flags;
        Ok(())
    }

    /// Takes back what starts at an address, if it is of one of these kinds.
    pub fn free(&mut self, address: u64, kinds: &[Kind]) -> Result<Region> {
        let found = self.regions.get(&address).filter(|r| kinds.contains(&r.kind));
        let kind = found.ok_or(Error::INVALID_VALUE)?.kind;
        let region = self.regions.remove(&address).ok_or(Error::INVALID_VALUE)?;
        if !kind.on_host() {
            self.memory.remove(address);
            self.used -= region.size as u64;
        }
        if kind == Kind::Graph {
            self.graphs[0] -= region.size as u64;
        }
        Ok(region)
    }

    /// Takes back all that goes with a context.
    pub fn free_all_of(&mut self, context: u64) {
        let of = |r: &Region| r.context == Some(context);
        let heap: Vec<u64> = self.heap.iter().filter(|(_, c)| **c == context).map(|h| *h.0).collect();
        if crate::settings::get().checks.memory {
            // Pools' memory outlives the context, but who gave it is about to end.
            let left = |r: &Region| {
                let own = of(r) && r.kind != Kind::Registered;
                own || r.given_in == Some(context)
            };
            for (at, r) in self.regions.iter().filter(|(_, r)| left(r)) {
                let what = if r.pool.is_some() { "memory of a pool" } else { r.kind.name() };
                say!(
                    "oxcuda: memory: {} bytes at {at:#x} are not freed when their context ends: {what}",
                    r.size
                );
            }
            for (at, size) in self.memory.heap().filter(|(at, _)| heap.contains(at)) {
                say!(
                    "oxcuda: memory: {size} bytes at {at:#x} are not freed when their context ends: what a kernel \
                     allocated"
                );
            }
        }
        for at in heap {
            self.heap.remove(&at);
            self.memory.remove(at);
        }
        let all: Vec<u64> = self.regions.iter().filter(|(_, r)| of(r)).map(|r| *r.0).collect();
        let kinds = [Kind::Device, Kind::Managed, Kind::Pinned, Kind::Registered, Kind::Array];
        for address in all {
            let _ = self.free(address, &kinds);
        }
    }

    /// The allocation that an address lies in, and where it starts.
    pub fn find(&self, address: u64) -> Option<(u64, &Region)> {
        let (at, region) = self.regions.range(..=address).next_back()?;
        (address - at < region.size as u64).then_some((*at, region))
    }

    /// The same, or a variable of a module, as if it were an allocation of its own.
    pub fn find_any<T>(&self, address: u64, f: impl FnOnce(u64, &Region) -> T) -> Option<T> {
        if let Some((at, r)) = self.find(address) {
            return Some(f(at, r));
        }
        let holds = |a: &&sim::memory::Allocation| (a.base..a.base + a.bytes.len() as u64).contains(&address);
        let found = self.memory.allocations().find(holds)?;
        let (context, given_in, pool, block) = (None, None, None, None);
        let (size, kind) = (found.bytes.len(), Kind::Device);
        Some(f(
            found.base,
            &Region {
                size,
                kind,
                context,
                given_in,
                pool,
                flags: 0,
                id: found.base,
                synchronous: false,
                block,
            },
        ))
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
            Some((at, r)) if r.kind.on_host() && address.saturating_add(size as u64) <= end(at, r) => {
                Ok(false)
            }
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// The parts of a range that lie in one allocation each: memory that is mapped side by side is one range to programs.
    fn parts(&self, address: u64, size: usize) -> Vec<(u64, usize)> {
        let mut parts = Vec::new();
        let (mut at, mut left) = (address, size);
        while left > 0 {
            let part = match self.find(at) {
                Some((base, r)) if r.kind == Kind::Mapped => left.min((base + r.size as u64 - at) as usize),
                _ => left,
            };
            parts.push((at, part));
            (at, left) = (at.wrapping_add(part as u64), left - part);
        }
        parts
    }

    /// Whether all of these bytes are in the device's address space: to be asked before as many are gathered.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self, address: u64, size: u64) -> Result<()> {
        let size = usize::try_from(size).map_err(|_| Error::INVALID_VALUE)?;
        self.parts(address, size).into_iter().try_for_each(|(at, n)| self.on_device(at, n).map(|_| ()))
    }

    /// Bytes at an address of the device's address space.
    pub fn read(&self, address: u64, size: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (at, n) in self.parts(address, size) {
            if self.on_device(at, n)? {
                bytes.extend_from_slice(self.memory.slice(at, n).ok_or(Error::INVALID_VALUE)?);
            } else {
                bytes.extend(ffi::read(at, n)?);
            }
        }
        Ok(bytes)
    }

    fn put(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let to = self.memory.slice_mut(address, bytes.len()).ok_or(Error::INVALID_VALUE)?;
        to.copy_from_slice(bytes);
        self.memory.define(address, bytes.len() as u64);
        Ok(())
    }

    /// Puts bytes at an address of the device's address space.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let mut from = 0;
        for (at, n) in self.parts(address, bytes.len()) {
            let part = &bytes[from..from + n];
            if self.on_device(at, n)? {
                self.put(at, part)?
            } else {
                ffi::write(at, part)?
            }
            from += n;
        }
        Ok(())
    }

    /// Bytes at any address: what is not the device's is the host's.
    pub fn read_any(&self, address: u64, size: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (at, n) in self.parts(address, size) {
            if self.slack(at, n) {
                return Err(Error::INVALID_VALUE);
            }
            match self.memory.slice(at, n) {
                Some(part) => bytes.extend_from_slice(part),
                None if self.find(at).is_some_and(|(_, r)| !r.kind.on_host()) || self.is_hole(at) => {
                    return Err(Error::INVALID_VALUE);
                }
                None => bytes.extend(ffi::read(at, n)?),
            }
        }
        Ok(bytes)
    }

    /// Puts bytes at any address.
    pub fn write_any(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let mut from = 0;
        for (at, n) in self.parts(address, bytes.len()) {
            let part = &bytes[from..from + n];
            if self.slack(at, n) {
                return Err(Error::INVALID_VALUE);
            }
            if self.memory.slice(at, n).is_some() {
                self.put(at, part)?;
            } else if self.find(at).is_some_and(|(_, r)| !r.kind.on_host()) || self.is_hole(at) {
                return Err(Error::INVALID_VALUE);
            } else {
                ffi::write(at, part)?;
            }
            from += n;
        }
        Ok(())
    }

    /// Whether an address belongs to the device, though nothing is there now: the host has no such addresses.
    fn is_hole(&self, address: u64) -> bool {
        self.find(address).is_none() && (FIRST..LAST).contains(&address)
    }

    /// Takes note of a copy, if `init` is looked for: what nobody has written is not written where it comes to be, either. How
    /// many such bytes left the device's memory, which nobody can say of from then on.
    pub fn copied(&mut self, to: u64, from: u64, size: usize) -> u64 {
        let mut lost = 0;
        for (at, n) in self.parts(from, size) {
            let to = to.wrapping_add(at.wrapping_sub(from));
            if self.memory.slice(at, n).is_none() {
                continue;
            }
            if self.memory.slice(to, n).is_some() {
                self.memory.copy_written(to, at, n as u64);
            } else {
                lost += self.memory.unwritten(at, n as u64);
            }
        }
        lost
    }

    /// Forgets an allocation; its bytes.
    pub(crate) fn unnote(&mut self, address: u64) -> Option<Vec<u8>> {
        self.regions.remove(&address)?;
        self.memory.remove(address)
    }

    /// Runs something on memory with what of the host's kernels see. Other threads of the program may work on that meanwhile.
    pub fn launch<T>(&mut self, context: u64, run: impl FnOnce(&mut Memory) -> T) -> T {
        let host = self.regions.iter().filter(|(_, r)| r.kind.on_host());
        self.memory.lend("host memory", host.map(|(at, r)| ffi::lend(*at, r.size)));
        let result = run(&mut self.memory);
        self.memory.take_back();
        // What kernels allocate lives on until one frees it.
        self.memory.sweep();
        let heap: BTreeSet<u64> = self.memory.heap().map(|h| h.0).collect();
        self.heap.retain(|at, _| heap.contains(at));
        heap.into_iter().for_each(|at| {
            self.heap.entry(at).or_insert(context);
        });
        result
    }
}
