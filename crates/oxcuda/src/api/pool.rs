//! Memory in the order of streams, and pools.

use super::Handle;
use super::device::check;
use crate::driver::{with, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out};
use crate::memory::Pool;
use crate::stream::submit;
use crate::work::Work;

fn allocate(out: Out<u64>, size: usize, pool: Option<Handle>, stream: Handle) -> Result<()> {
    out.put(within(|d| {
        d.stream(stream)?;
        let pool = pool.unwrap_or(d.current_pool);
        d.pools.get(pool)?;
        let address = d.space.device(size, None)?;
        if let Some(r) = d.space.region_mut(address) {
            r.pool = Some(pool);
        }
        let p = d.pools.get_mut(pool)?;
        p.used[0] += size as u64;
        p.used[1] = p.used[1].max(p.used[0]);
        Ok(address)
    })?)
}

/// Attributes of a pool: 32-bit switches, then 64-bit numbers of bytes: kept, reserved, its most, used, its most.
const LAST_SWITCH: u32 = 3;

api! {
    /// Memory of the current pool.
    fn cuMemAllocAsync(out: Out<u64>, size: usize, stream: Handle) / cuMemAllocAsync_ptsz {
        allocate(out, size, None, stream)
    }
    /// Memory of a pool.
    fn cuMemAllocFromPoolAsync(out: Out<u64>, size: usize, pool: Handle, stream: Handle) / cuMemAllocFromPoolAsync_ptsz {
        allocate(out, size, Some(pool), stream)
    }
    /// Takes it back. A graph may run again, so what it captured stays.
    fn cuMemFreeAsync(address: u64, stream: Handle) / cuMemFreeAsync_ptsz {
        let captures = within(|d| Ok(d.stream(stream)?.capture.is_some()))?;
        submit(stream, if captures { Work::Empty } else { Work::Free(address) })
    }
    /// The device's own pool.
    fn cuDeviceGetDefaultMemPool(out: Out<Handle>, device: i32) {
        check(device)?;
        out.put(with(|d| Ok(d.default_pool))?)
    }
    /// The current pool.
    fn cuDeviceGetMemPool(out: Out<Handle>, device: i32) {
        check(device)?;
        out.put(with(|d| Ok(d.current_pool))?)
    }
    /// Sets the current pool.
    fn cuDeviceSetMemPool(device: i32, pool: Handle) {
        check(device)?;
        with(|d| { d.pools.get(pool)?; d.current_pool = pool; Ok(()) })
    }
    /// The pool of a place: the device's own.
    fn cuMemGetDefaultMemPool(out: Out<Handle>, _location: Host, _kind: u32) / cuMemGetMemPool {
        out.put(with(|d| Ok(d.default_pool))?)
    }
    /// Makes a pool.
    fn cuMemPoolCreate(out: Out<Handle>, _properties: Host) {
        out.put(with(|d| Ok(d.pools.add(Pool::default())))?)
    }
    /// Ends one.
    fn cuMemPoolDestroy(pool: Handle) {
        with(|d| {
            if pool == d.default_pool {
                return Err(Error::INVALID_VALUE);
            }
            if d.current_pool == pool {
                d.current_pool = d.default_pool;
            }
            d.pools.remove(pool).map(|_| ())
        })
    }
    /// An attribute.
    fn cuMemPoolGetAttribute(pool: Handle, number: u32, value: Host) {
        let v = with(|d| {
            let p = d.pools.get(pool)?;
            let set = p.attributes.get(&number).copied();
            Ok(match number {
                1..=LAST_SWITCH => set.unwrap_or(1),
                4 => set.unwrap_or(0),
                5 | 7 => p.used[0],
                6 | 8 => p.used[1],
                _ => return Err(Error::INVALID_VALUE),
            })
        })?;
        crate::ffi::write(value.address(), &v.to_le_bytes()[..if number <= LAST_SWITCH { 4 } else { 8 }])
    }
    /// Sets an attribute.
    fn cuMemPoolSetAttribute(pool: Handle, number: u32, value: Host) {
        let bytes = crate::ffi::read(value.address(), if number <= LAST_SWITCH { 4 } else { 8 })?;
        let v = sim::memory::little_endian(&bytes);
        with(|d| {
            let p = d.pools.get_mut(pool)?;
            match number {
                1..=4 => { p.attributes.insert(number, v); }
                // Only back to nothing.
                6 | 8 if v == 0 => p.used[1] = p.used[0],
                _ => return Err(Error::INVALID_VALUE),
            }
            Ok(())
        })
    }
    /// Everyone reaches it.
    fn cuMemPoolSetAccess(pool: Handle, _map: Host, _count: usize) {
        with(|d| d.pools.get(pool).map(|_| ()))
    }
    /// Everyone reaches it.
    fn cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, _location: In<[u32; 2]>) {
        with(|d| d.pools.get(pool).map(|_| ()))?;
        flags.put(3)
    }
    /// Nothing is kept.
    fn cuMemPoolTrimTo(pool: Handle, _keep: usize) {
        with(|d| d.pools.get(pool).map(|_| ()))
    }
}
