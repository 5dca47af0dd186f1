//! Loads and stores of all lanes at once, where they reach the same memory: an allocation, the block's shared memory, or
//! the warp's local memory. Elsewhere, and where one of them faults, lanes take turns.

use super::Fault;
use super::mem::{Address, Space};
use super::operand::{Exec, PredDst, lanes};
use super::reach::{Bytes, Reach, Span};
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
    fn span(&mut self, space: Space, at: &mut [u64; 32], mask: u32, len: u64) -> Option<Span<'_>> {
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
                Some(Span::Own(bytes))
            }
            Space::Local => {
                let size = u64::from(self.env.local);
                if end - base > size {
                    return None;
                }
                at.iter_mut().enumerate().for_each(|(lane, a)| *a = *a - base + lane as u64 * size);
                Some(Span::Own(&mut self.warp.local))
            }
        }
    }
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
        let space = self.access.space;
        let mut at = self.access.address.row(m.warp);
        let mut results = [[0; 32]; W];
        if m.check.is_some() {
            let addresses = at;
            lanes(mask).for_each(|lane| note_read(m, space, lane, (addresses[lane], N as u32)));
        }
        match m.span(space, &mut at, mask, N as u64) {
            Some(Span::Own(bytes)) => self.gather(bytes, &at, &mut results),
            Some(Span::Shared(part)) => self.gather(&part, &at, &mut results),
            None => {
                at = self.access.address.row(m.warp);
                for lane in lanes(mask) {
                    let words = (self.f)(m.read_unnoticed(space, lane, at[lane])?);
                    for i in 0..W {
                        results[i][lane] = words[i];
                    }
                }
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
        let space = self.access.space;
        let mut at = self.access.address.row(m.warp);
        let place = |i: usize| if self.data == 255 { 255 } else { (usize::from(self.data) + i).min(255) };
        let rows: [Row; W] = std::array::from_fn(|i| m.warp.r[place(i)]);
        if m.check.is_some() {
            let values: [[u8; N]; 32] =
                std::array::from_fn(|lane| (self.f)(std::array::from_fn(|i| rows[i][lane])));
            collisions(m, space, mask, &at, &values);
            return lanes(mask).try_for_each(|lane| m.write(space, lane, at[lane], values[lane]));
        }
        match m.span(space, &mut at, mask, N as u64) {
            Some(Span::Own(bytes)) => self.scatter(bytes, &at, mask, &rows),
            Some(Span::Shared(mut part)) => self.scatter(&mut part, &at, mask, &rows),
            None => {
                at = self.access.address.row(m.warp);
                for lane in lanes(mask) {
                    m.write(space, lane, at[lane], (self.f)(std::array::from_fn(|i| rows[i][lane])))?;
                }
            }
        }
        Ok(())
    }
}

impl<F, const N: usize, const W: usize> Load<F, N, W>
where
    F: Fn([u8; N]) -> [u32; W],
{
    /// The words at these offsets.
    #[inline(always)]
    fn gather(&self, bytes: &(impl Bytes + ?Sized), at: &[u64; 32], results: &mut [Row; W]) {
        let mut set = |lane: usize, bytes: [u8; N]| {
            let words = (self.f)(bytes);
            for i in 0..W {
                results[i][lane] = words[i];
            }
        };
        if at.iter().fold(0, |x, a| x | (a ^ at[0])) == 0 {
            let all = bytes.get(at[0] as usize);
            (0..32).for_each(|lane| set(lane, all));
        } else if let Some(chunks) = bytes.in_order(at) {
            chunks.iter().enumerate().for_each(|(lane, b)| set(lane, *b));
        } else {
            at.iter().enumerate().for_each(|(lane, a)| set(lane, bytes.get(*a as usize)));
        }
    }
}

impl<F, const N: usize, const W: usize> Store<F, N, W>
where
    F: Fn([u32; W]) -> [u8; N],
{
    /// Writes at these offsets.
    #[inline(always)]
    fn scatter(&self, bytes: &mut (impl Bytes + ?Sized), at: &[u64; 32], mask: u32, rows: &[Row; W]) {
        let value = |lane: usize| (self.f)(std::array::from_fn(|i| rows[i][lane]));
        if mask == u32::MAX
            && let Some(chunks) = bytes.in_order_mut(at)
        {
            chunks.iter_mut().enumerate().for_each(|(lane, b)| *b = value(lane));
            return;
        }
        lanes(mask).for_each(|lane| bytes.put(at[lane] as usize, value(lane)));
    }
}

/// Tells the check of a read before it is done, if it will be.
#[inline(never)]
fn note_read(m: &mut Machine<'_>, space: Space, lane: usize, at: (u64, u32)) {
    if m.reaches(space, lane, at) {
        m.note(space, lane, at, None);
    }
}

/// Tells the check of lanes that write different values to one place.
#[inline(never)]
fn collisions<const N: usize>(
    m: &mut Machine<'_>,
    space: Space,
    mask: u32,
    at: &[u64; 32],
    values: &[[u8; N]; 32],
) {
    let (Some(c), Reach::Alone(memory)) = (&mut m.check, &m.memory) else { return };
    let differ = |a: usize, b: usize| at[a] == at[b] && values[a] != values[b];
    let pair = lanes(mask).find_map(|a| Some((a, lanes(mask).find(|b| a < *b && differ(a, *b))?)));
    if let Some((a, b)) = pair {
        c.lanes_collide(memory, space, at[a], [a, b]);
    }
}
