//! Virtual memory management.

use super::Handle;
use crate::driver::with;
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out};
use crate::mapping::{GRANULARITY, READ_WRITE};

/// `CUmemAllocationProp`: the kind and the handles for other processes, the place, something of Windows', flags.
type Properties = [u64; 4];

/// Whether there is such memory: pinned, on the device, for this process alone, of no special use.
fn made(properties: &Properties) -> Result<()> {
    let [what, place, security, flags] = *properties;
    let (kind, handles) = (what as u32, what >> 32);
    match (kind, place as u32, place >> 32) {
        (1, 1, 0) => {}
        (1, 1, _) => return Err(Error::INVALID_DEVICE),
        // The host's.
        (1, 2..=3, _) => return not_built("memory of the host that is mapped"),
        _ => return Err(Error::INVALID_VALUE),
    }
    if handles != 0 {
        return not_built("memory for several processes");
    }
    // Compression is a wish; what memory is for is not.
    if flags >> 16 & 0xffff != 0 {
        return not_built("memory for tiles of arrays or for decompression");
    }
    if security != 0 || flags >> 32 != 0 { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

fn not_built(what: &str) -> Result<()> {
    say!("oxcuda: {what} is not built");
    Err(Error::NOT_SUPPORTED)
}

fn none(flags: u64) -> Result<()> {
    if flags == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

api! {
    /// Bytes of the units in which memory is made and mapped.
    fn cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, option: u32) {
        made(&properties.get()?)?;
        super::below(option, 2)?;
        out.put(GRANULARITY)
    }
    /// Takes an address range.
    fn cuMemAddressReserve(out: Out<u64>, size: usize, alignment: usize, wish: u64, flags: u64) {
        none(flags)?;
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(Error::INVALID_VALUE);
        }
        out.make(|| with(|d| d.space.mappings.reserve(size, alignment, wish)))
    }
    /// Gives it back.
    fn cuMemAddressFree(address: u64, size: usize) {
        with(|d| d.space.mappings.free(address, size))
    }
    /// Makes memory.
    fn cuMemCreate(out: Out<Handle>, size: usize, properties: In<Properties>, flags: u64) {
        none(flags)?;
        let properties = properties.get()?;
        made(&properties)?;
        out.make(|| with(|d| d.create_memory(size, properties)))
    }
    /// Lets go of it.
    fn cuMemRelease(memory: Handle) {
        with(|d| d.release_memory(memory))
    }
    /// Maps it into a range.
    fn cuMemMap(address: u64, size: usize, offset: usize, memory: Handle, flags: u64) {
        none(flags)?;
        if offset != 0 {
            return Err(Error::INVALID_VALUE);
        }
        with(|d| d.map_memory(address, size, memory))
    }
    /// Maps it no more.
    fn cuMemUnmap(address: u64, size: usize) {
        with(|d| d.unmap_memory(address, size))
    }
    /// Says who may do what with it: the device.
    fn cuMemSetAccess(address: u64, size: usize, descriptions: In<[u32; 3]>, count: usize) {
        for [kind, number, access] in descriptions.list(count)? {
            match (kind, number, access) {
                (1, 0, 0 | READ_WRITE) => {}
                (1, 0, 1) => return not_built("memory that can only be read"),
                (1, 0, _) => return Err(Error::INVALID_VALUE),
                (1, _, _) => return Err(Error::INVALID_DEVICE),
                (2..=4, _, _) => return not_built("memory of the device that the host accesses"),
                _ => return Err(Error::INVALID_VALUE),
            }
            with(|d| d.set_access(address, size, access))?;
        }
        Ok(())
    }
    /// What may be done.
    fn cuMemGetAccess(flags: Out<u64>, location: In<[u32; 2]>, address: u64) {
        match location.get()? {
            [1, 0] => flags.put(with(|d| d.space.mappings.access(address))?.into()),
            [1, _] => Err(Error::INVALID_DEVICE),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// What was asked for.
    fn cuMemGetAllocationPropertiesFromHandle(out: Out<Properties>, memory: Handle) {
        out.put(with(|d| Ok(d.space.mappings.get(memory)?.properties))?)
    }
    /// Holds what is mapped at an address.
    fn cuMemRetainAllocationHandle(out: Out<Handle>, address: Host) {
        out.make(|| with(|d| d.space.mappings.retain(address.address())))
    }
}
