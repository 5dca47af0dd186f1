//! Memory: allocation, pointers.

use super::Handle;
use crate::driver::{self, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out};
use crate::memory::{Kind, Region};

/// Bytes of memory for the current context.
fn allocate(size: usize) -> Result<u64> {
    within(|d| {
        let context = d.context()?;
        d.space.device(size, Some(context))
    })
}

fn host(size: usize, kind: Kind, flags: u32) -> Result<u64> {
    within(|d| {
        let context = d.context()?;
        d.space.host(size, kind, Some(context), flags)
    })
}

fn free(address: u64, kinds: &[Kind]) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    within(|d| match d.space.free(address, kinds) {
        Err(Error::INVALID_VALUE) => Err(Error::INVALID_VALUE),
        other => other.map(|_| ()),
    })
}

/// Numbers of `CUmemorytype`.
const MEMORY_HOST: u64 = 1;
const MEMORY_DEVICE: u64 = 2;

/// The value of a pointer's attribute, and its bytes.
fn attribute(number: u32, at: u64, address: u64, region: &Region) -> Result<(u64, usize)> {
    let on_device = matches!(region.kind, Kind::Device | Kind::Managed);
    let managed = region.kind == Kind::Managed;
    Ok(match number {
        1 => (region.context.unwrap_or(0), 8),
        2 => (if on_device { MEMORY_DEVICE } else { MEMORY_HOST }, 4),
        3 => (address, 8),
        4 if region.kind == Kind::Device => return Err(Error::INVALID_VALUE),
        4 => (address, 8),
        6 => (0, 4),
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

api! {
    /// Memory of the device.
    fn cuMemAlloc_v2(out: Out<u64>, size: usize) {
        out.put(allocate(size)?)
    }

    /// The same, rows aligned.
    fn cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        if !matches!(element, 4 | 8 | 16) {
            return Err(Error::INVALID_VALUE);
        }
        let row = width.next_multiple_of(512);
        out.put(allocate(row.checked_mul(height).ok_or(Error::INVALID_VALUE)?)?)?;
        pitch.put(row)
    }

    /// Takes it back.
    fn cuMemFree_v2(address: u64) {
        free(address, &[Kind::Device, Kind::Managed])
    }

    /// Memory of the host for both.
    fn cuMemAllocHost_v2(out: Out<u64>, size: usize) {
        out.put(host(size, Kind::Pinned, 0)?)
    }

    /// The same, with flags.
    fn cuMemHostAlloc(out: Out<u64>, size: usize, flags: u32) {
        out.put(host(size, Kind::Pinned, flags)?)
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
        out.put(host(size, Kind::Managed, flags)?)
    }

    /// Makes memory of the program known.
    fn cuMemHostRegister_v2(address: Host, size: usize, flags: u32) {
        within(|d| {
            let context = d.context()?;
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
    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, address: Host, _flags: u32) {
        let address = address.address();
        within(|d| match d.space.find(address) {
            Some((_, r)) if r.kind != Kind::Device => Ok(()),
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
            let (at, region) = d.space.find(address).ok_or(Error::INVALID_VALUE)?;
            attribute(number, at, address, region)
        })?;
        crate::ffi::write(value.address(), &v.to_le_bytes()[..bytes])
    }

    /// Several things at once; what is not known is zero.
    fn cuPointerGetAttributes(count: u32, numbers: In<u32>, values: In<u64>, address: u64) {
        let (numbers, values) = (numbers.list(count as usize)?, values.list(count as usize)?);
        for (number, to) in numbers.into_iter().zip(values) {
            let found = within(|d| Ok(d.space.find(address).and_then(|(at, r)| attribute(number, at, address, r).ok())))?;
            let unknown = if number == 9 { (u64::MAX - 1, 4) } else { (0, if matches!(number, 2 | 6 | 8 | 10 | 13 | 15 | 16) { 4 } else { 8 }) };
            let (v, bytes) = found.unwrap_or(unknown);
            crate::ffi::write(to, &v.to_le_bytes()[..bytes])?;
        }
        Ok(())
    }

    /// Nothing depends on it.
    fn cuPointerSetAttribute(_value: Host, number: u32, address: u64) {
        if number != 6 {
            return Err(Error::INVALID_VALUE);
        }
        within(|d| d.space.find(address).map(|_| ()).ok_or(Error::INVALID_VALUE))
    }

    /// Where managed memory is: nothing depends on it.
    fn cuMemPrefetchAsync(address: u64, _size: usize, _device: i32, _stream: Handle) / cuMemPrefetchAsync_ptsz {
        within(|d| d.space.find(address).map(|_| ()).ok_or(Error::INVALID_VALUE))
    }

    /// The same.
    fn cuMemPrefetchAsync_v2(address: u64, _size: usize, _location: u64, _flags: u32, _stream: Handle) / cuMemPrefetchAsync_v2_ptsz {
        within(|d| d.space.find(address).map(|_| ()).ok_or(Error::INVALID_VALUE))
    }

    /// How it is used: nothing depends on it.
    fn cuMemAdvise(address: u64, _size: usize, _advice: u32, _device: i32) {
        within(|d| d.space.find(address).map(|_| ()).ok_or(Error::INVALID_VALUE))
    }

    /// The same.
    fn cuMemAdvise_v2(address: u64, _size: usize, _advice: u32, _location: u64) {
        within(|d| d.space.find(address).map(|_| ()).ok_or(Error::INVALID_VALUE))
    }

    /// Managed memory stays with everyone.
    fn cuStreamAttachMemAsync(stream: Handle, _address: u64, _size: usize, _flags: u32) / cuStreamAttachMemAsync_ptsz {
        driver::within(|d| d.stream(stream).map(|_| ()))
    }
}
