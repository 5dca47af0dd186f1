//! Memory in the order of streams, and pools.

use super::Handle;
use super::device::check;
use crate::driver::{with, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out, detail};
use crate::memory::Pool;
use crate::stream::submit;
use crate::work::{Alloc, Work};

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProperties {
    kind: u32,
    handles: u32,
    location: [u32; 2],
    security: u64,
    most: usize,
    usage: u16,
    reserved: [u8; 54],
}

impl PoolProperties {
    /// Of memory of the device for this process.
    pub fn device() -> PoolProperties {
        PoolProperties {
            kind: 1,
            handles: 0,
            location: [1, 0],
            security: 0,
            most: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }
    /// Whether there is such memory: pinned, which is the only kind, on the device.
    ///
    /// # Errors
    /// If there is none.
    pub fn check(&self) -> Result<()> {
        match (self.kind, self.location) {
            (1, [1, 0]) if self.reserved == [0; 54] => Ok(()),
            (1, [1, _]) => Err(Error::INVALID_DEVICE),
            // The host's.
            (1, [2..=4, _]) => Err(Error::NOT_SUPPORTED),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// The kinds of handles for other processes that are wanted.
    pub fn handles(&self) -> u32 {
        self.handles
    }
}

fn allocate(out: Out<u64>, size: usize, pool: Option<Handle>, stream: Handle) -> Result<()> {
    out.make(|| {
        let address = within(|d| {
            let (context, pool) = (d.context()?, pool.unwrap_or(d.current_pool));
            d.pools.get(pool)?;
            d.implicit(stream)?;
            // Under capture it is the graph that allocates, at an address that is known at once.
            if let Some((graph, last)) = d.capturing(stream)? {
                if size == 0 {
                    return Err(Error::INVALID_VALUE);
                }
                let address = d.space.address_for_graph(size)?;
                let node =
                    d.add_node(graph, &last, Work::Alloc(Alloc { address, size, pool: Some(pool) }))?;
                d.set_last(stream, vec![node])?;
                return Ok(address);
            }
            d.pools.get(pool)?.room(size)?;
            let address = d.space.device(size, None)?;
            if let Some(r) = d.space.region_mut(address) {
                (r.pool, r.given_in) = (Some(pool), Some(context));
            }
            d.count_in_pool(Some(pool), size)?;
            Ok(address)
        })?;
        detail(address, Some(size));
        Ok(address)
    })
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
    /// Takes it back; under capture as a node, of what a node of a graph gave.
    fn cuMemFreeAsync(address: u64, stream: Handle) / cuMemFreeAsync_ptsz {
        detail(address, None);
        submit(stream, Work::Free(address))
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
    fn cuMemPoolCreate(out: Out<Handle>, properties: In<PoolProperties>) {
        let properties = properties.get()?;
        properties.check()?;
        if properties.handles() != 0 {
            say!("oxcuda: pools for several processes are not built");
            return Err(Error::NOT_SUPPORTED);
        }
        let most = Some(properties.most as u64).filter(|n| *n != 0);
        out.make(|| with(|d| Ok(d.pools.add(Pool { most, ..Pool::default() }))))
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
    fn cuMemPoolSetAccess(pool: Handle, map: In<[u32; 3]>, count: usize) {
        with(|d| d.pools.get(pool).map(|_| ()))?;
        for [kind, number, access] in map.list(count)? {
            // The device that it is of reaches it always, and there is no other one.
            match (kind, number, access) {
                (1, 0, 3) => {}
                (1, 0, _) => return Err(Error::INVALID_VALUE),
                _ => return Err(Error::INVALID_DEVICE),
            }
        }
        Ok(())
    }
    /// Everyone reaches it.
    fn cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, location: In<[u32; 2]>) {
        with(|d| d.pools.get(pool).map(|_| ()))?;
        match location.get()? {
            [1, 0] => flags.put(3),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Nothing is kept.
    fn cuMemPoolTrimTo(pool: Handle, _keep: usize) {
        with(|d| d.pools.get(pool).map(|_| ()))
    }
}
