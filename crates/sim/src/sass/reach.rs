//! Global memory as running blocks reach it: alone, or together with blocks on other processors.

use crate::memory::{FreeError, Memory};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Global memory.
pub(crate) enum Reach<'a> {
    /// Nobody else's meanwhile.
    Alone(&'a mut Memory),
    /// That of blocks on other processors, too.
    Among(&'a Regions<'a>),
}

impl<'a> Reach<'a> {
    /// The same, lent.
    pub(crate) fn again(&mut self) -> Reach<'_> {
        match self {
            Reach::Alone(m) => Reach::Alone(m),
            Reach::Among(r) => Reach::Among(r),
        }
    }

    /// Bytes that lie in one piece.
    #[inline(always)]
    pub(crate) fn slice_mut(&mut self, address: u64, size: usize) -> Option<Span<'_>> {
        match self {
            Reach::Alone(m) => m.slice_mut(address, size).map(Span::Own),
            Reach::Among(r) => r.part(address, size).map(Span::Shared),
        }
    }

    /// The memory, if blocks on other processors reach it, too.
    pub(crate) fn others(&self) -> Option<&'a Regions<'a>> {
        match self {
            Reach::Alone(_) => None,
            Reach::Among(r) => Some(r),
        }
    }

    /// What `malloc` gives; 0 if it has no more.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<u64, super::Fault> {
        match self {
            Reach::Alone(m) => {
                let base = m.malloc(bytes);
                base.into_iter().for_each(|b| m.undefine(b));
                Ok(base.unwrap_or(0))
            }
            Reach::Among(_) => Err(super::Fault::warp("malloc in blocks that run side by side")),
        }
    }

    /// Takes back what it gave, so that nothing is there any more if accesses are checked.
    pub(crate) fn free(&mut self, address: u64, checked: bool) -> Result<(), FreeError> {
        match self {
            Reach::Alone(m) => m.free(address, checked),
            Reach::Among(_) => Ok(()),
        }
    }

    /// What is near an address, for messages.
    pub(crate) fn nearest(&self, address: u64) -> String {
        match self {
            Reach::Alone(m) => m.nearest(address),
            Reach::Among(_) => String::new(),
        }
    }
}

/// Bytes that an access reaches.
pub(crate) enum Span<'a> {
    /// Nobody else's meanwhile.
    Own(&'a mut [u8]),
    /// Others reach them, too.
    Shared(Part<'a>),
}

/// Bytes to read and write at offsets.
pub(crate) trait Bytes {
    /// N bytes from an offset that is a multiple of N; zeros behind the end.
    fn get<const N: usize>(&self, at: usize) -> [u8; N];
    /// Writes them; nothing behind the end.
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]);
    /// The bytes at all of these offsets, if they follow one another.
    #[inline(always)]
    fn in_order<const N: usize>(&self, _: &[u64; 32]) -> Option<&[[u8; N]]> {
        None
    }
    /// The same, for writing.
    #[inline(always)]
    fn in_order_mut<const N: usize>(&mut self, _: &[u64; 32]) -> Option<&mut [[u8; N]]> {
        None
    }
}

/// Whether offsets of accesses to `len` bytes follow one another.
#[inline(always)]
fn follow(at: &[u64; 32], len: usize) -> bool {
    let off = |(lane, a): (usize, &u64)| a.wrapping_sub(at[0]) ^ (lane * len) as u64;
    at.iter().enumerate().map(off).fold(0, |x, y| x | y) == 0
}

impl Bytes for [u8] {
    #[inline(always)]
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.get(at..at + N).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N])
    }
    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(to) = self.get_mut(at..at + N).and_then(|b| b.first_chunk_mut()) {
            *to = bytes;
        }
    }
    #[inline(always)]
    fn in_order<const N: usize>(&self, at: &[u64; 32]) -> Option<&[[u8; N]]> {
        let first = at[0] as usize;
        let all = self.get(first..first + 32 * N).filter(|_| follow(at, N))?;
        Some(all.as_chunks().0)
    }
    #[inline(always)]
    fn in_order_mut<const N: usize>(&mut self, at: &[u64; 32]) -> Option<&mut [[u8; N]]> {
        let first = at[0] as usize;
        let all = self.get_mut(first..first + 32 * N).filter(|_| follow(at, N))?;
        Some(all.as_chunks_mut().0)
    }
}

impl Bytes for Span<'_> {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        match self {
            Span::Own(b) => Bytes::get(&**b, at),
            Span::Shared(p) => p.get(at),
        }
    }
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        match self {
            Span::Own(b) => Bytes::put(&mut **b, at, bytes),
            Span::Shared(p) => p.put(at, bytes),
        }
    }
}

const LOCKS: usize = 64;

/// The allocations of a memory, which are lent to all processors at once.
pub(crate) struct Regions<'a> {
    /// Ascending: address, size, and where the bytes are.
    list: Vec<(u64, usize, *mut u8)>,
    locks: [Mutex<()>; LOCKS],
    memory: PhantomData<&'a mut Memory>,
}

// SAFETY: the pointers are to the bytes of a memory that is borrowed for as long, and they are used for atomic accesses
// only ([`Part`]).
#[allow(unsafe_code)]
unsafe impl Sync for Regions<'_> {}
#[allow(unsafe_code)]
unsafe impl Send for Regions<'_> {}

impl<'a> Regions<'a> {
    /// Those of a memory; `None` if it has more than allocations, or if they lie where atomic accesses can't be.
    pub(crate) fn of(memory: &'a mut Memory) -> Option<Regions<'a>> {
        let list: Vec<_> = memory.pieces()?.map(|(base, b)| (base, b.len(), b.as_mut_ptr())).collect();
        let fits = |(base, len, at): &(u64, usize, *mut u8)| *len == 0 || at.addr() as u64 % 16 == base % 16;
        let good = list.iter().all(fits);
        good.then_some(Regions { list, locks: [const { Mutex::new(()) }; LOCKS], memory: PhantomData })
    }

    /// Keeps others from atomic operations on an address.
    pub(crate) fn lock(&self, address: u64) -> MutexGuard<'_, ()> {
        self.locks[(address / 8) as usize % LOCKS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn part(&self, address: u64, len: usize) -> Option<Part<'_>> {
        let i = self.list.partition_point(|r| r.0 <= address).checked_sub(1)?;
        let (base, size, bytes) = self.list[i];
        let at = usize::try_from(address - base).ok()?;
        if at.checked_add(len)? > size {
            return None;
        }
        Some(Part { bytes: bytes.wrapping_add(at), len, memory: PhantomData })
    }
}

/// Bytes of an allocation that others may reach at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    bytes: *mut u8,
    len: usize,
    memory: PhantomData<&'a Regions<'a>>,
}

/// Of each atomic type, a load and a store that N bytes are made of.
macro_rules! pieces {
    ($self:ident, $at:ident, $n:expr, |$place:ident: $atomic:ty| $body:expr) => {
        (0..$n).step_by(size_of::<$atomic>()).for_each(|i| {
            // SAFETY: `inside` has seen to it that the bytes lie in the allocation, at an address that is a multiple of
            // their size, and all that reach them at the same time do so by atomic operations, too.
            #[allow(unsafe_code)]
            let $place = (unsafe { <$atomic>::from_ptr($self.bytes.wrapping_add($at + i).cast()) }, i);
            $body
        })
    };
}

impl Part<'_> {
    #[inline(always)]
    fn inside<const N: usize>(&self, at: usize) -> bool {
        at.checked_add(N).is_some_and(|end| end <= self.len)
            && self.bytes.wrapping_add(at).addr().is_multiple_of(N.min(8))
    }
}

impl Bytes for Part<'_> {
    #[inline(always)]
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        if !self.inside::<N>(at) {
            return out;
        }
        match N {
            1 => pieces!(self, at, N, |p: AtomicU8| out[p.1] = p.0.load(Ordering::Relaxed)),
            2 => pieces!(self, at, N, |p: AtomicU16| {
                out[p.1..p.1 + 2].copy_from_slice(&p.0.load(Ordering::Relaxed).to_le_bytes());
            }),
            4 => pieces!(self, at, N, |p: AtomicU32| {
                out[p.1..p.1 + 4].copy_from_slice(&p.0.load(Ordering::Relaxed).to_le_bytes());
            }),
            _ => pieces!(self, at, N, |p: AtomicU64| {
                out[p.1..p.1 + 8].copy_from_slice(&p.0.load(Ordering::Relaxed).to_le_bytes());
            }),
        }
        out
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if !self.inside::<N>(at) {
            return;
        }
        let word = |i: usize, n: usize| (0..n).rev().fold(0u64, |x, k| x << 8 | u64::from(bytes[i + k]));
        match N {
            1 => pieces!(self, at, N, |p: AtomicU8| p.0.store(bytes[p.1], Ordering::Relaxed)),
            2 => pieces!(self, at, N, |p: AtomicU16| p.0.store(word(p.1, 2) as u16, Ordering::Relaxed)),
            4 => pieces!(self, at, N, |p: AtomicU32| p.0.store(word(p.1, 4) as u32, Ordering::Relaxed)),
            _ => pieces!(self, at, N, |p: AtomicU64| p.0.store(word(p.1, 8), Ordering::Relaxed)),
        }
    }
}
