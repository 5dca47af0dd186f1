//! Memory: allocation, pointers.

use super::{Handle, only};
use crate::driver::{self, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out, detail};
use crate::memory::{Kind, Region};

/// `CU_MEMHOSTREGISTER_READ_ONLY`
const READ_ONLY: u32 = 8;

/// Bytes of memory for the current context.
fn allocate(size: usize) -> Result<u64> {
    within(|d| {
        let context = d.context()?;
        d.unsafe_call()?;
        d.space.device(size, Some(context))
    })
    .inspect(|at| detail(*at, Some(size)))
}

fn host(size: usize, kind: Kind, flags: u32) -> Result<u64> {
    within(|d| {
        let context = d.context()?;
        d.unsafe_call()?;
        d.space.host(size, kind, Some(context), flags)
    })
    .inspect(|at| detail(*at, Some(size)))
}

fn free(address: u64, kinds: &[Kind]) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    detail(address, None);
    within(|d| {
        d.unsafe_call()?;
        let pool = d.space.free(address, kinds)?;
        d.uncount_in_pool(&pool);
        Ok(())
    })
}

/// Numbers of `CUmemorytype`.
const MEMORY_HOST: u64 = 1;
const MEMORY_DEVICE: u64 = 2;

/// The value of a pointer's attribute, and its bytes. What goes with no context is seen from the current one.
fn attribute(
    number: u32,
    at: u64,
    address: u64,
    region: &Region,
    current: Option<u64>,
) -> Result<(u64, usize)> {
    let on_device = !matches!(region.kind, Kind::Pinned | Kind::Registered);
    let managed = matches!(region.kind, Kind::Managed | Kind::Variable);
    Ok(match number {
        1 => (region.context.or(current).unwrap_or(0), 8),
        2 => (if on_device { MEMORY_DEVICE } else { MEMORY_HOST }, 4),
        3 => (address, 8),
        4 if !region.kind.on_host() => return Err(Error::INVALID_VALUE),
        4 => (address, 8),
        6 => (region.synchronous.into(), 4),
        7 | 20 => (region.id, 8),
        8 => (managed.into(), 4),
        9 => (0, 4),
        10 | 15 | 21 => (0, 4),
        11 => (at, 8),
        12 => (region.size as u64, 8),
        13 => (1, 4),
        14 => (0, 8),
        16 => (3, 4),
        17 => (region.pool.unwrap_or(0), 8),
        18 => (region.size as u64, 8),
        19 => (at, 8),
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// Kinds of places: a device or the host, by the device's number; a device; the host in several ways.
const DEVICE_OR_HOST: u32 = 0;
const ON_DEVICE: u32 = 1;
const HOST_CURRENT: u32 = 4;

/// Whether there is such a place.
fn place(kind: u32, number: i32) -> Result<()> {
    match (kind, number) {
        (DEVICE_OR_HOST, -1 | 0) | (ON_DEVICE, 0) => Ok(()),
        (2..=HOST_CURRENT, _) => Ok(()),
        (DEVICE_OR_HOST | ON_DEVICE, _) => Err(Error::INVALID_DEVICE),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// The same, of `CUmemLocation` as it comes in a register: the kind, the number. A kind of 0 is no place.
fn located(location: u64) -> Result<()> {
    match location as u32 {
        0 => Err(Error::INVALID_VALUE),
        kind => place(kind, (location >> 32) as i32),
    }
}

/// Whether an advice says something of a place: where it should be, who uses it. Others, and what is taken back, do not.
fn advised_of_a_place(advice: u32) -> Result<bool> {
    match advice {
        3 | 5 | 6 => Ok(true),
        1 | 2 | 4 => Ok(false),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Whether all of a range is managed memory.
fn managed(d: &driver::Driver, address: u64, size: usize) -> Result<()> {
    let end = address.checked_add(size as u64).ok_or(Error::INVALID_VALUE)?;
    match d.space.find(address) {
        Some((at, r))
            if size > 0 && matches!(r.kind, Kind::Managed | Kind::Variable) && end <= at + r.size as u64 =>
        {
            Ok(())
        }
        _ => Err(Error::INVALID_VALUE),
    }
}

api! {
    /// Memory of the device.
    fn cuMemAlloc_v2(out: Out<u64>, size: usize) {
        out.make(|| allocate(size))
    }

    /// The same, rows aligned.
    fn cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        if !matches!(element, 4 | 8 | 16) {
            return Err(Error::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(512).ok_or(Error::INVALID_VALUE)?;
        out.make(|| allocate(row.checked_mul(height).ok_or(Error::INVALID_VALUE)?))?;
        pitch.put(row)
    }

    /// Takes it back.
    fn cuMemFree_v2(address: u64) {
        free(address, &[Kind::Device, Kind::Managed, Kind::Graph])
    }

    /// Memory of the host for both.
    fn cuMemAllocHost_v2(out: Out<u64>, size: usize) {
        out.make(|| host(size, Kind::Pinned, 0))
    }

    /// The same, with flags.
    fn cuMemHostAlloc(out: Out<u64>, size: usize, flags: u32) {
        only(flags, 7)?;
        out.make(|| host(size, Kind::Pinned, flags))
    }

    /// Takes it back.
    fn cuMemFreeHost(address: u64) {
        free(address, &[Kind::Pinned])
    }

    /// Memory that is everywhere.
    fn cuMemAllocManaged(out: Out<u64>, size: usize, flags: u32) {
        if !matches!(flags, 1 | 2) {
            return Err(Error::INVALID_VALUE);
        }
        out.make(|| host(size, Kind::Managed, flags))
    }

    /// Makes memory of the program known.
    fn cuMemHostRegister_v2(address: Host, size: usize, flags: u32) {
        only(flags, 15)?;
        within(|d| {
            let context = d.context()?;
            d.unsafe_call()?;
            // The attribute that says whether it may be given is 0.
            if flags & READ_ONLY != 0 {
                return Err(Error::NOT_SUPPORTED);
            }
            d.space.register(address.address(), size, Some(context), flags)
        })
    }

    /// Forgets it.
    fn cuMemHostUnregister(address: Host) {
        within(|d| {
            let done = d.space.free(address.address(), &[Kind::Registered]);
            done.map(|_| ()).map_err(|_| Error::HOST_MEMORY_NOT_REGISTERED)
        })
    }

    /// The device's address of host memory: the same.
    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, address: Host, flags: u32) {
        only(flags, 0)?;
        let address = address.address();
        within(|d| match d.space.find(address) {
            Some((_, r)) if r.kind.on_host() => Ok(()),
            _ => Err(Error::INVALID_VALUE),
        })?;
        out.put(address)
    }

    /// The flags that it was asked for with.
    fn cuMemHostGetFlags(flags: Out<u32>, address: Host) {
        flags.put(within(|d| match d.space.find(address.address()) {
            Some((_, r)) if r.kind == Kind::Pinned => Ok(r.flags),
            _ => Err(Error::INVALID_VALUE),
        })?)
    }

    /// Free bytes and all of them.
    fn cuMemGetInfo_v2(left: Out<usize>, total: Out<usize>) {
        let all = crate::settings::get().memory;
        let used = within(|d| Ok(d.space.used()))?;
        left.maybe((all - used) as usize);
        total.maybe(all as usize);
        Ok(())
    }

    /// Where the allocation of an address starts, and its size.
    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        let (at, bytes) = within(|d| {
            if let Some((at, r)) = d.space.find(address) {
                return Ok((at, r.size));
            }
            // A variable of a module.
            let found = d.space.memory.allocations().find(|a| (a.base..a.base + a.bytes.len() as u64).contains(&address));
            found.map(|a| (a.base, a.bytes.len())).ok_or(Error::NOT_FOUND)
        })?;
        base.maybe(at);
        size.maybe(bytes);
        Ok(())
    }

    /// What an address is.
    fn cuPointerGetAttribute(value: Host, number: u32, address: u64) {
        let (v, bytes) = within(|d| {
            let current = d.current();
            let value = |at, r: &Region| attribute(number, at, address, r, current);
            d.space.find_any(address, value).ok_or(Error::INVALID_VALUE)?
        })?;
        crate::ffi::write(value.address(), &v.to_le_bytes()[..bytes])
    }

    /// Several things at once; what is not known is zero.
    fn cuPointerGetAttributes(count: u32, numbers: In<u32>, values: In<u64>, address: u64) {
        if count == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let (numbers, values) = (numbers.list(count as usize)?, values.list(count as usize)?);
        for (number, to) in numbers.into_iter().zip(values) {
            let found = within(|d| {
                let current = d.current();
                let value = |at, r: &Region| attribute(number, at, address, r, current).ok();
                Ok(d.space.find_any(address, value).flatten())
            })?;
            let unknown = if number == 9 { (u64::MAX - 1, 4) } else { (0, if matches!(number, 2 | 6 | 8 | 10 | 13 | 15 | 16) { 4 } else { 8 }) };
            let (v, bytes) = found.unwrap_or(unknown);
            crate::ffi::write(to, &v.to_le_bytes()[..bytes])?;
        }
        Ok(())
    }

    /// Whether operations on it are synchronous, which all of them are: it is remembered.
    fn cuPointerSetAttribute(value: In<u32>, number: u32, address: u64) {
        if number != 6 {
            return Err(Error::INVALID_VALUE);
        }
        let synchronous = value.get()? != 0;
        within(|d| {
            let (at, _) = d.space.find(address).ok_or(Error::INVALID_VALUE)?;
            let region = d.space.region_mut(at).ok_or(Error::INVALID_VALUE)?;
            region.synchronous = synchronous;
            Ok(())
        })
    }

    /// Where managed memory is: nothing depends on it.
    fn cuMemPrefetchAsync(address: u64, size: usize, device: i32, stream: Handle) / cuMemPrefetchAsync_ptsz {
        place(DEVICE_OR_HOST, device)?;
        within(|d| { d.stream(stream)?; managed(d, address, size) })
    }

    /// The same.
    fn cuMemPrefetchAsync_v2(address: u64, size: usize, location: u64, flags: u32, stream: Handle) / cuMemPrefetchAsync_v2_ptsz {
        only(flags, 0)?;
        located(location)?;
        within(|d| { d.stream(stream)?; managed(d, address, size) })
    }

    /// How it is used: nothing depends on it.
    fn cuMemAdvise(address: u64, size: usize, advice: u32, device: i32) {
        if advised_of_a_place(advice)? {
            place(DEVICE_OR_HOST, device)?;
        }
        within(|d| managed(d, address, size))
    }

    /// The same.
    fn cuMemAdvise_v2(address: u64, size: usize, advice: u32, location: u64) {
        if advised_of_a_place(advice)? {
            located(location)?;
        }
        within(|d| managed(d, address, size))
    }

    /// Managed memory stays with everyone.
    fn cuStreamAttachMemAsync(stream: Handle, address: u64, size: usize, flags: u32) / cuStreamAttachMemAsync_ptsz {
        // With everyone, with the host, with a stream that is there.
        if !matches!(flags, 1 | 2 | 4) {
            return Err(Error::INVALID_VALUE);
        }
        driver::within(|d| {
            d.stream(stream)?;
            match d.space.find(address) {
                // All of it or, as 0 says, all of it.
                Some((at, r)) if at == address && (size == 0 || size == r.size) && r.kind.on_host() => Ok(()),
                _ => Err(Error::INVALID_VALUE),
            }
        })
    }
}
