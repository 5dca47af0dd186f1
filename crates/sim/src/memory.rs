//! Global memory of a simulated device: separate allocations with gaps between them, so that an access
//! outside of all is found, unless the rest is sparse memory.

use crate::launch::Rng;
use crate::shadow::Shadow;
use crate::sparse::Sparse;
use std::collections::BTreeMap;
use std::fmt;

/// Memory of somebody else's that kernels reach where it is ([`Memory::lend`]).
#[derive(Debug)]
pub struct Lent {
    address: usize,
    size: usize,
}

impl Lent {
    /// So many bytes at an address of this process.
    ///
    /// # Safety
    /// They are there, to be read and, where a kernel writes, to be written, for as long as this is. Others may write there meanwhile:
    /// whoever reads finds the old bytes or the new ones, as with any two that share memory.
    #[allow(unsafe_code)] // The caller answers for what is there.
    pub unsafe fn new(address: usize, size: usize) -> Lent {
        Lent { address, size }
    }
}

/// Contents of an allocation.
#[derive(Debug)]
pub enum Bytes {
    /// Its own.
    Own(Vec<u8>),
    /// Somebody else's.
    Lent(Lent),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(b) => b,
            Bytes::Lent(l) => {
                let at = std::ptr::with_exposed_provenance(l.address);
                // SAFETY: who made it saw to it that they are there.
                #[allow(unsafe_code)]
                unsafe {
                    std::slice::from_raw_parts(at, l.size)
                }
            }
        }
    }
}

impl std::ops::DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own(b) => b,
            Bytes::Lent(l) => {
                let at = std::ptr::with_exposed_provenance_mut(l.address);
                // SAFETY: as above; no other slice of them is made, as this one is borrowed from the only `Lent`.
                #[allow(unsafe_code)]
                unsafe {
                    std::slice::from_raw_parts_mut(at, l.size)
                }
            }
        }
    }
}

/// A copy is its own.
impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::Own(self.to_vec())
    }
}

/// One allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Address of its first byte.
    pub base: u64,
    /// Contents.
    pub bytes: Bytes,
    /// What it is, for messages.
    pub name: String,
    /// What it held when the program began, in a sparse memory: addresses of code are another executor's affair.
    first: Vec<u8>,
    /// Which bytes hold something; `None` if all do.
    written: Option<Box<Shadow>>,
}

impl Allocation {
    fn new(name: &str, base: u64, bytes: Bytes) -> Allocation {
        Allocation { base, bytes, name: name.to_string(), first: Vec::new(), written: None }
    }
}

/// Global memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Ascending by address.
    allocations: Vec<Allocation>,
    /// What lies outside of them, if anything does.
    pub(crate) sparse: Option<Sparse>,
    /// Addresses and sizes of what programs freed, where that is gone ([`Memory::free`]).
    freed: BTreeMap<u64, usize>,
    /// Bytes of what programs allocated themselves, and the most of them, if somebody says.
    heap_used: u64,
    heap_size: Option<u64>,
    /// What textures and surfaces are bound to.
    pub images: crate::image::Images,
}

/// A copy to blocks that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoSuchBlock {
    /// Those that it names, a bit for each.
    mask: u64,
    /// Blocks of the cluster.
    count: usize,
}

impl fmt::Display for NoSuchBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a copy to the blocks {:#x} of a cluster of {}", self.mask, self.count)
    }
}

impl std::error::Error for NoSuchBlock {}

/// A shared address in those blocks of a cluster of so many that a mask names.
///
/// # Errors
/// When the mask names a block that is not there.
pub(crate) fn in_blocks(at: u64, mask: u64, count: usize) -> Result<Vec<u64>, NoSuchBlock> {
    if mask >> count != 0 {
        return Err(NoSuchBlock { mask, count });
    }
    Ok((0..count as u64).filter(|r| mask >> r & 1 != 0).map(|r| at & 0xff_ffff | r << 24).collect())
}

/// Why nothing is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FreeError {
    /// What lay at this address is freed already.
    Again(u64),
    /// Nobody allocated what lies there.
    Nothing(u64),
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::Again(base) => write!(f, "{base:#x} is freed again"),
            FreeError::Nothing(base) => write!(f, "{base:#x} is freed, where malloc gave nothing"),
        }
    }
}

impl std::error::Error for FreeError {}

/// The name of what a program allocated itself (`malloc`).
pub(crate) const HEAP: &str = "heap";
/// The name of what it freed, where that is not gone.
const FREED: &str = "freed heap";
/// First address handed out. Away from null and from the windows of shared and local memory.
const FIRST: u64 = 0x7f_1000_0000;
/// What lies above is not allocated in turn: the host's memory, and windows.
const TURN_END: u64 = 0x1000_0000_0000;
/// Generic addresses of constants and of the kernel's parameters, as all executors have them.
pub(crate) const CONST_WINDOW: u64 = 0x7c00 << 32;
/// See [`CONST_WINDOW`].
pub(crate) const PARAM_WINDOW: u64 = 0x7b00 << 32;
/// What the driver gives a cooperative grid for its barrier: its size and a word, to which `%envreg1` (upper half) and
/// `%envreg2` point, as CUDA's cooperative groups find it.
pub(crate) const GRID_WORKSPACE: u64 = 0x7a00 << 32;

/// The contents of that at the start of a launch.
pub(crate) fn grid_workspace() -> Vec<u8> {
    let mut bytes = 8u32.to_le_bytes().to_vec();
    bytes.resize(8, 0);
    bytes
}
/// Bytes left free behind each allocation.
const GAP: u64 = 0x1_0000;
/// Where variables lie in a sparse memory, and the distance of their places.
const NAMED: u64 = 0x1000_0000_0000;
const SLOT: u64 = 0x100_0000;

impl Memory {
    /// Nothing allocated.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Nothing allocated in a memory of which every byte exists.
    pub fn around(sparse: Sparse) -> Memory {
        Memory { sparse: Some(sparse), ..Memory::default() }
    }

    /// Allocates `bytes` and returns the address, a multiple of 512, as textures need it. In a sparse memory the address follows from
    /// the name, so that it doesn't depend on the order.
    pub fn alloc(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        if self.sparse.is_some() {
            return self.alloc_by_name(name, bytes);
        }
        let last = self.allocations.iter().rfind(|a| a.base < TURN_END);
        let last = last.map(|a| a.base + a.bytes.len() as u64);
        // Whoever still reaches what is gone is not to find something else there.
        let gone = self.freed.last_key_value().map(|(at, size)| at + *size as u64);
        let base = last.max(gone).map_or(FIRST, |end| (end + GAP).next_multiple_of(512));
        self.place(name, base, bytes);
        base
    }

    /// Puts `bytes` at an address where nothing is.
    pub fn place(&mut self, name: &str, base: u64, bytes: Vec<u8>) {
        let i = self.allocations.partition_point(|a| a.base <= base);
        self.allocations.insert(i, Allocation::new(name, base, Bytes::Own(bytes)));
    }

    /// Puts somebody else's memory at its own addresses, where nothing is, until [`Memory::take_back`].
    pub fn lend(&mut self, name: &str, lent: impl IntoIterator<Item = Lent>) {
        let place = |l: Lent| Allocation::new(name, l.address as u64, Bytes::Lent(l));
        self.allocations.extend(lent.into_iter().map(place));
        // Two runs that are in order, which this sort is quick to merge.
        self.allocations.sort_by_key(|a| a.base);
    }

    /// Takes away what was lent.
    pub fn take_back(&mut self) {
        self.allocations.retain(|a| matches!(a.bytes, Bytes::Own(_)));
    }

    /// Takes away what [`Memory::alloc`] or [`Memory::place`] put at `base`, and gives its bytes back.
    pub fn remove(&mut self, base: u64) -> Option<Vec<u8>> {
        let i = self.allocations.binary_search_by_key(&base, |a| a.base).ok()?;
        let gone = self.allocations.remove(i);
        if gone.name == HEAP {
            self.heap_used = self.heap_used.saturating_sub(gone.bytes.len() as u64);
        }
        match gone.bytes {
            Bytes::Own(bytes) => Some(bytes),
            Bytes::Lent(_) => Some(Vec::new()),
        }
    }

    /// How many bytes `malloc` has to give in all; the driver's 8 MiB if nobody says.
    pub fn set_heap(&mut self, bytes: u64) {
        self.heap_size = Some(bytes);
    }

    /// What `malloc` gives; nothing where the heap is full.
    pub(crate) fn malloc(&mut self, bytes: u64) -> Option<u64> {
        let used = self.heap_used.checked_add(bytes)?;
        if used > self.heap_size.unwrap_or(crate::output::HEAP) {
            return None;
        }
        self.heap_used = used;
        Some(self.alloc(HEAP, vec![0; bytes as usize]))
    }

    /// Frees what `malloc` gave at an address. It is gone, or only in name until [`Memory::sweep`]: on hardware nothing stops
    /// those that still reach it.
    ///
    /// # Errors
    /// If it gave nothing there, or that was freed already.
    pub(crate) fn free(&mut self, base: u64, gone: bool) -> Result<(), FreeError> {
        let found = self.allocations.binary_search_by_key(&base, |a| a.base).ok();
        if let Some(a) = found.map(|i| &self.allocations[i]).filter(|a| a.name == HEAP) {
            self.heap_used = self.heap_used.saturating_sub(a.bytes.len() as u64);
        }
        match found.map(|i| (i, &*self.allocations[i].name)) {
            Some((i, HEAP)) if gone => {
                let size = self.allocations.remove(i).bytes.len();
                self.freed.insert(base, size);
            }
            Some((i, HEAP)) => self.allocations[i].name = FREED.into(),
            _ if self.freed.contains_key(&base) => return Err(FreeError::Again(base)),
            _ => return Err(FreeError::Nothing(base)),
        }
        Ok(())
    }

    /// Takes away what was freed.
    pub fn sweep(&mut self) {
        self.allocations.retain(|a| a.name != FREED);
    }

    /// What is allocated: names, first addresses and sizes, ascending by address.
    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter()
    }

    /// The program begins: what variables hold now is what they are made to hold.
    pub(crate) fn begin(&mut self) {
        if self.sparse.is_some() {
            self.allocations.iter_mut().for_each(|a| a.first = a.bytes.to_vec());
        }
    }

    /// Addresses and sizes of what programs allocated themselves (`malloc`) and did not free.
    pub fn heap(&self) -> impl Iterator<Item = (u64, usize)> {
        self.allocations.iter().filter(|a| a.name == HEAP).map(|a| (a.base, a.bytes.len()))
    }

    /// How many of these bytes nobody has written, where that is known ([`Memory::undefine`]).
    pub fn unwritten(&self, address: u64, size: u64) -> u64 {
        let Some(i) = self.find(address, 0) else { return 0 };
        let a = &self.allocations[i];
        a.written.as_deref().map_or(0, |s| s.missing(address - a.base, size).into())
    }

    /// Says that bytes were copied: what nobody has written is not written where it comes to be, either.
    pub fn copy_written(&mut self, to: u64, from: u64, size: u64) {
        let some = self.unwritten(from, size) > 0;
        let missing: Vec<u64> =
            if some { (0..size).filter(|i| self.unwritten(from + i, 1) != 0).collect() } else { Vec::new() };
        self.define(to, size);
        if let Some((shadow, at)) = self.shadow(to) {
            missing.into_iter().for_each(|i| shadow.forget(at + i));
        }
    }

    fn alloc_by_name(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        let hash = name.bytes().fold(0u64, |h, b| Rng::new(h ^ u64::from(b)).next());
        let mut base = NAMED + (hash & 0xf_ffff) * SLOT;
        let end = |a: &Allocation| a.base + a.bytes.len() as u64;
        loop {
            let i = self.allocations.partition_point(|a| a.base <= base);
            let before = i.checked_sub(1).map(|i| &self.allocations[i]);
            let free = before.is_none_or(|a| end(a) <= base)
                && self.allocations.get(i).is_none_or(|a| base + bytes.len() as u64 <= a.base);
            if free {
                self.allocations.insert(i, Allocation::new(name, base, Bytes::Own(bytes)));
                return base;
            }
            base += SLOT;
        }
    }

    /// The allocation that holds all of `address … address + size`.
    fn find(&self, address: u64, size: usize) -> Option<usize> {
        let i = self.allocations.partition_point(|a| a.base <= address).checked_sub(1)?;
        let a = &self.allocations[i];
        (address - a.base + size as u64 <= a.bytes.len() as u64).then_some(i)
    }

    /// The bytes at `address`; `None` if they are not all inside one allocation.
    pub fn slice(&self, address: u64, size: usize) -> Option<&[u8]> {
        let a = &self.allocations[self.find(address, size)?];
        let at = (address - a.base) as usize;
        Some(&a.bytes[at..at + size])
    }

    /// The bytes at `address`, for writing.
    pub fn slice_mut(&mut self, address: u64, size: usize) -> Option<&mut [u8]> {
        let Some(i) = self.find(address, size) else {
            return self.sparse.as_mut()?.bytes(address, size);
        };
        let a = &mut self.allocations[i];
        let at = (address - a.base) as usize;
        Some(&mut a.bytes[at..at + size])
    }

    /// All allocations with their bytes, if there is nothing else.
    pub(crate) fn pieces(&mut self) -> Option<impl Iterator<Item = (u64, &mut [u8])>> {
        let pieces = self.allocations.iter_mut().map(|a| (a.base, &mut a.bytes[..]));
        self.sparse.is_none().then_some(pieces)
    }

    /// Says that nobody has written what was allocated at `base`: the check `init` reports whoever reads it.
    pub fn undefine(&mut self, base: u64) {
        if let Ok(i) = self.allocations.binary_search_by_key(&base, |a| a.base) {
            let a = &mut self.allocations[i];
            a.written = Some(Box::new(Shadow::new(a.bytes.len() as u64)));
        }
    }

    /// Says that the host, or a copy, has written these bytes.
    pub fn define(&mut self, address: u64, size: u64) {
        if let Some((shadow, at)) = self.shadow(address) {
            shadow.write(at, size);
        }
    }

    /// Which bytes of an allocation hold something, if not all do, and where the address is in it.
    pub(crate) fn shadow(&mut self, address: u64) -> Option<(&mut Shadow, u64)> {
        let i = self.find(address, 0)?;
        let a = &mut self.allocations[i];
        Some((a.written.as_deref_mut()?, address - a.base))
    }

    /// The little-endian number of `size` bytes (at most 8) at `address`.
    pub fn read(&self, address: u64, size: usize) -> Option<u64> {
        self.slice(address, size).map(little_endian)
    }

    /// Writes the low `size` bytes (at most 8) of `value`.
    pub fn write(&mut self, address: u64, size: usize, value: u64) -> Option<()> {
        self.slice_mut(address, size)?.copy_from_slice(&value.to_le_bytes()[..size]);
        Some(())
    }

    /// Addresses of the aligned 8-byte words that differ between two memories that began alike, with both contents.
    /// Variables began as their makers chose: a word counts if the program changed it in one of them. What the program
    /// allocated does not: its host can't read it, and which thread gets which piece is open.
    pub fn differences(&self, other: &Memory) -> Vec<(u64, [u64; 2])> {
        let mut out = Vec::new();
        for a in self.allocations.iter().filter(|a| ![HEAP, FREED].contains(&&*a.name)) {
            let Some(b) = other.allocations.iter().find(|b| b.name == a.name) else { continue };
            let words = a.bytes.chunks(8).zip(b.bytes.chunks(8)).enumerate();
            let kept = |a: &Allocation, i: usize, x: &[u8]| a.first.get(8 * i..8 * i + x.len()) == Some(x);
            let differ = words.filter(|(i, (x, y))| x != y && !(kept(a, *i, x) && kept(b, *i, y)));
            out.extend(
                differ.map(|(i, (x, y))| (a.base + 8 * i as u64, [little_endian(x), little_endian(y)])),
            );
        }
        if let (Some(a), Some(b)) = (&self.sparse, &other.sparse) {
            out.extend(a.differences(b));
        }
        out
    }

    /// The aligned eight bytes at an address, if they lie in an allocation or in a page that was touched.
    pub fn word(&self, address: u64) -> Option<u64> {
        match self.find(address, 8) {
            Some(_) => self.read(address, 8),
            None => self.sparse.as_ref()?.touched(address),
        }
    }

    /// The pages of sparse memory that were touched, ascending: addresses, what they held at first, what they hold now.
    pub fn pages(&self) -> impl Iterator<Item = (u64, Box<[u8]>, &[u8])> {
        self.sparse.iter().flat_map(Sparse::pages)
    }

    /// What the aligned eight bytes at an address of sparse memory hold at first.
    pub(crate) fn fresh(&self, address: u64) -> Option<u64> {
        self.sparse.as_ref().map(|s| s.first(address))
    }

    /// Whether nothing was stored outside of the allocations.
    pub fn is_untouched(&self) -> bool {
        self.sparse.as_ref().is_none_or(Sparse::is_untouched)
    }

    /// What lies at an address, for messages: an offset in a variable or a region.
    pub fn describe(&self, address: u64) -> String {
        if let Some(a) = self.find(address, 0) {
            let a = &self.allocations[a];
            return format!("{}+{:#x}", a.name, address - a.base);
        }
        match Sparse::locate(address) {
            Some((n, offset)) => format!("region {n}, byte {offset}"),
            None => format!("{address:#x}"),
        }
    }

    /// Where an address lies that is in no allocation, for messages: behind one or in front of one.
    pub fn nearest(&self, address: u64) -> String {
        if let Some((at, size)) = self.freed.range(..=address).next_back()
            && address - at < *size as u64
        {
            return format!("byte {} of {size} that were freed", address - at);
        }
        let i = self.allocations.partition_point(|a| a.base <= address);
        let before = i.checked_sub(1).map(|i| &self.allocations[i]);
        let end = |a: &Allocation| a.base + a.bytes.len() as u64;
        let after = self.allocations.get(i).filter(|a| a.base - address <= GAP);
        match (before.filter(|a| address.saturating_sub(end(a)) <= GAP), after) {
            (Some(a), _) if address < end(a) => {
                format!("in '{}', which ends {} bytes on", a.name, end(a) - address)
            }
            (Some(a), _) => {
                format!("{} bytes behind '{}' of {} bytes", address - end(a), a.name, a.bytes.len())
            }
            (None, Some(a)) => format!("{} bytes in front of '{}'", a.base - address, a.name),
            _ => "far from everything allocated".into(),
        }
    }

    /// What is expected at an address; `None` in an allocation.
    pub fn content(&self, address: u64) -> Option<crate::sparse::Content> {
        if self.find(address, 0).is_some() {
            return None;
        }
        self.sparse.as_ref().map(|s| s.content(address))
    }

    /// The allocation at `base`.
    pub fn allocation(&self, base: u64) -> Option<&Allocation> {
        self.find(base, 0).map(|i| &self.allocations[i])
    }
}

/// A little-endian number of up to 8 bytes.
pub fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of two threads gets the first piece is open.
    #[test]
    fn what_a_program_allocates_is_not_compared() {
        let (mut m, mut n) = (Memory::new(), Memory::new());
        for (memory, byte) in [(&mut m, 1), (&mut n, 2)] {
            memory.alloc("x", vec![byte; 8]);
            memory.alloc(HEAP, vec![byte; 8]);
        }
        assert_eq!(m.differences(&n).len(), 1);
    }

    #[test]
    fn what_is_freed_is_gone_if_that_is_looked_at() {
        let mut m = Memory::new();
        let (a, b) = (m.alloc(HEAP, vec![1; 8]), m.alloc(HEAP, vec![2; 8]));
        let other = m.alloc("other", vec![3; 8]);
        assert_eq!(m.free(a, false), Ok(()));
        assert_eq!((m.read(a, 1), m.heap().count()), (Some(1), 1));
        assert_eq!(m.free(b, true), Ok(()));
        assert_eq!((m.read(b, 1), m.heap().count()), (None, 0));
        assert_eq!(m.nearest(b + 3), "byte 3 of 8 that were freed");
        for wrong in [a, b, other, other + 4] {
            assert!(m.free(wrong, true).is_err());
        }
        m.sweep();
        assert_eq!((m.read(a, 1), m.read(other, 1)), (None, Some(3)));
        m.remove(other);
        assert!(m.alloc(HEAP, vec![0; 8]) > b, "what is gone is given again");
    }

    #[test]
    fn a_heap_that_is_full_gives_nothing() {
        let mut m = Memory::new();
        m.set_heap(100);
        let (a, b) = (m.malloc(60).expect("is there"), m.malloc(40).expect("is there"));
        assert_eq!((m.malloc(1), m.malloc(u64::MAX)), (None, None));
        assert_eq!(m.free(a, false), Ok(()));
        assert!(m.malloc(61).is_none() && m.malloc(60).is_some());
        m.remove(b);
        assert!(m.malloc(40).is_some() && m.malloc(1).is_none());
    }

    #[test]
    fn accesses_stay_inside_allocations() {
        let mut m = Memory::new();
        let a = m.alloc("a", vec![0; 10]);
        let b = m.alloc("b", vec![7; 4]);
        assert_eq!(m.read(b, 4), Some(0x0707_0707));
        assert_eq!(m.write(a + 6, 4, 0x1_2345_6789), Some(()));
        assert_eq!(m.read(a + 6, 4), Some(0x2345_6789));
        assert_eq!(m.read(a + 7, 4), None);
        assert_eq!(m.read(a - 1, 1), None);
    }
}
