//! Loads and stores of all lanes at once, where they reach the same memory: an allocation, the block's shared memory, or
//! the warp's local memory. Elsewhere, and where one of them faults, lanes take turns.

use super::Fault;
use super::mem::{Address, Space};
use super::operand::{Exec, PredDst, lanes};
use super::rows::{Loop, Row, put, vector};
use super::state::{LOCAL_WINDOW, Machine, SHARED_WINDOW};

/// What is reached.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) space: Space,
    pub(super) address: Address,
    /// What says that it was done.
    pub(super) pred: Option<PredDst>,
}

impl Machine<'_> {
    /// The memory that accesses to `len` bytes, a power of two, reach. The addresses become offsets in it, those of lanes that
    /// are not in `mask` another lane's. `None` where it is not one piece, or somebody faults: nothing has happened then.
    #[inline(always)]
    fn span(&mut self, space: Space, at: &mut [u64; 32], mask: u32, len: u64) -> Option<&mut [u8]> {
        let first = at[mask.trailing_zeros() as usize & 31];
        let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
        for (lane, a) in at.iter_mut().enumerate() {
            *a = if mask >> lane & 1 != 0 { *a } else { first };
            low = low.min(*a);
            high = high.max(*a);
            bits |= *a;
        }
        if bits & (len - 1) != 0 {
            return None;
        }
        let window = (low >> 32) as u32;
        let end = high.checked_add(len)?;
        let (space, base) = match (space, window) {
            (Space::Generic, SHARED_WINDOW | LOCAL_WINDOW) if (high >> 32) as u32 != window => return None,
            (Space::Generic, SHARED_WINDOW) => {
                (Space::Shared, u64::from(window) << 32 | (self.block.rank as u64) << 24)
            }
            (Space::Generic, LOCAL_WINDOW) => (Space::Local, u64::from(window) << 32),
            _ => (space, 0),
        };
        match space {
            Space::Global | Space::Generic => {
                let bytes = self.memory.slice_mut(low, usize::try_from(end - low).ok()?)?;
                at.iter_mut().for_each(|a| *a -= low);
                Some(bytes)
            }
            Space::Shared => {
                let bytes = self.block.shared.get_mut(self.block.rank)?;
                if low < base || end - base > bytes.len() as u64 {
                    return None;
                }
                at.iter_mut().for_each(|a| *a -= base);
                Some(bytes)
            }
            Space::Local => {
                let size = u64::from(self.env.local);
                if end - base > size {
                    return None;
                }
                at.iter_mut().enumerate().for_each(|(lane, a)| *a = *a - base + lane as u64 * size);
                Some(&mut self.warp.local)
            }
        }
    }
}

/// Whether the lanes reach neighbouring places in their order.
#[inline(always)]
fn in_order(at: &[u64; 32], len: u64) -> bool {
    let off = |(lane, a): (usize, &u64)| a.wrapping_sub(at[0]) ^ lane as u64 * len;
    at.iter().enumerate().map(off).fold(0, |x, y| x | y) == 0
}

/// Little-endian words.
#[inline(always)]
pub(super) fn words<const N: usize, const W: usize>(bytes: [u8; N]) -> [u32; W] {
    std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|k| bytes[4 * i + k])))
}

/// The other way round.
#[inline(always)]
pub(super) fn bytes<const N: usize, const W: usize>(words: [u32; W]) -> [u8; N] {
    std::array::from_fn(|i| (words[i / 4] >> (8 * (i % 4))) as u8)
}

/// A load of N bytes, which `f` makes registers of.
pub(super) fn load<const N: usize, const W: usize>(
    access: Access,
    dst: u8,
    f: impl Fn([u8; N]) -> [u32; W] + Send + Sync + 'static,
) -> Exec {
    vector(Load { access, dst, f })
}

struct Load<F, const N: usize, const W: usize> {
    access: Access,
    dst: u8,
    f: F,
}

impl<F, const N: usize, const W: usize> Loop for Load<F, N, W>
where
    F: Fn([u8; N]) -> [u32; W] + Send + Sync + 'static,
{
    #[inline(always)]
    fn run(&self, m: &mut Machine<'_>, mask: u32) -> Result<(), Fault> {
        let (space, len) = (self.access.space, N as u64);
        let mut at = self.access.address.row(m.warp);
        let mut results = [[0; 32]; W];
        let mut set = |lane: usize, bytes: [u8; N]| {
            let words = (self.f)(bytes);
            for i in 0..W {
                results[i][lane] = words[i];
            }
        };
        let part = |bytes: &[u8], a: u64| -> [u8; N] {
            let bytes = &bytes[a as usize..a as usize + N];
            std::array::from_fn(|i| bytes[i])
        };
        if let Some(bytes) = m.span(space, &mut at, mask, len) {
            if in_order(&at, len) {
                let bytes = &bytes[at[0] as usize..at[0] as usize + 32 * N];
                bytes.as_chunks::<N>().0.iter().enumerate().for_each(|(lane, b)| set(lane, *b));
            } else if at.iter().fold(0, |x, a| x | (a ^ at[0])) == 0 {
                let all = part(bytes, at[0]);
                (0..32).for_each(|lane| set(lane, all));
            } else {
                at.iter().enumerate().for_each(|(lane, a)| set(lane, part(bytes, *a)));
            }
        } else {
            at = self.access.address.row(m.warp);
            for lane in lanes(mask) {
                set(lane, part(m.bytes(space, lane, at[lane], N as u32)?, 0));
            }
        }
        if self.dst != sass::Reg::ZERO {
            for (i, row) in results.iter().enumerate() {
                put(m.warp, usize::from(self.dst) + i, mask, row);
            }
        }
        if let Some(p) = self.access.pred {
            p.put_mask(m.warp, mask, u32::MAX);
        }
        Ok(())
    }
}

/// A store of N bytes, which `f` makes of registers.
pub(super) fn store<const N: usize, const W: usize>(
    access: Access,
    data: u8,
    f: impl Fn([u32; W]) -> [u8; N] + Send + Sync + 'static,
) -> Exec {
    vector(Store { access, data, f })
}

struct Store<F, const N: usize, const W: usize> {
    access: Access,
    data: u8,
    f: F,
}

impl<F, const N: usize, const W: usize> Loop for Store<F, N, W>
where
    F: Fn([u32; W]) -> [u8; N] + Send + Sync + 'static,
{
    #[inline(always)]
    fn run(&self, m: &mut Machine<'_>, mask: u32) -> Result<(), Fault> {
        let (space, len) = (self.access.space, N as u64);
        let mut at = self.access.address.row(m.warp);
        let place = |i: usize| if self.data == 255 { 255 } else { (usize::from(self.data) + i).min(255) };
        let rows: [Row; W] = std::array::from_fn(|i| m.warp.r[place(i)]);
        let value = |lane: usize| (self.f)(std::array::from_fn(|i| rows[i][lane]));
        if let Some(bytes) = m.span(space, &mut at, mask, len) {
            if mask == u32::MAX && in_order(&at, len) {
                let bytes = &mut bytes[at[0] as usize..at[0] as usize + 32 * N];
                bytes.as_chunks_mut::<N>().0.iter_mut().enumerate().for_each(|(lane, b)| *b = value(lane));
            } else {
                for lane in lanes(mask) {
                    bytes[at[lane] as usize..at[lane] as usize + N].copy_from_slice(&value(lane));
                }
            }
            return Ok(());
        }
        at = self.access.address.row(m.warp);
        for lane in lanes(mask) {
            m.bytes(space, lane, at[lane], N as u32)?.copy_from_slice(&value(lane));
        }
        Ok(())
    }
}
