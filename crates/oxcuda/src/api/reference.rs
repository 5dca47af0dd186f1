//! References of textures and surfaces, which stand in a module by name.

use super::Handle;
use super::image::Flat;
use crate::attributes;
use crate::driver::within;
use crate::error::{Error, Result};
use crate::ffi::{In, Out, Text};
use crate::image::Resource;
use crate::queue;
use crate::reference::Reference;
use sim::image::Kind;

/// What an address of memory is a multiple of (`CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT`).
const ALIGNMENT: u32 = 14;
/// The array's format is the reference's (`CU_TRSA_OVERRIDE_FORMAT`).
const OVERRIDE: u32 = 1;

/// Changes a reference when nothing runs any more that may see it.
fn change(handle: Handle, kind: Kind, change: impl FnOnce(&mut Reference) -> Result<()>) -> Result<()> {
    queue::finish(0)?;
    within(|d| d.change_reference(handle, kind, change))
}

fn texture(handle: Handle, to: impl FnOnce(&mut Reference) -> Result<()>) -> Result<()> {
    change(handle, Kind::Texture, to)
}

fn told<T>(handle: Handle, of: impl FnOnce(&Reference) -> Result<T>) -> Result<T> {
    within(|d| of(d.references.get(handle)?))
}

api! {
    /// A texture reference of a module.
    fn cuModuleGetTexRef(out: Out<Handle>, module: Handle, name: Text) {
        let name = name.get()?;
        out.make(|| within(|d| d.reference_of(module, &name, Kind::Texture)))
    }
    /// A surface reference of a module.
    fn cuModuleGetSurfRef(out: Out<Handle>, module: Handle, name: Text) {
        let name = name.get()?;
        out.make(|| within(|d| d.reference_of(module, &name, Kind::Surface)))
    }
    /// Binds an array.
    fn cuTexRefSetArray(handle: Handle, array: Handle, flags: u32) {
        if flags != OVERRIDE {
            return Err(Error::INVALID_VALUE);
        }
        let shape = within(|d| Ok(d.arrays.get(array)?.shape))?;
        texture(handle, |r| {
            r.resource = Some(Resource::array(array));
            r.format = [shape.format, shape.channels];
            Ok(())
        })
    }
    /// Binds memory, read by numbers of elements.
    fn cuTexRefSetAddress_v2(offset: Out<usize>, handle: Handle, address: u64, bytes: usize) {
        let unit = attributes::attribute(ALIGNMENT).unwrap_or(1).max(1) as u64;
        let over = address % unit;
        if offset.is_null() && over != 0 {
            return Err(Error::INVALID_VALUE);
        }
        texture(handle, |r| {
            r.resource = Some(Resource::linear(address - over, r.format, bytes as u64 + over));
            Ok(())
        })?;
        if offset.is_null() { Ok(()) } else { offset.put(over as usize) }
    }
    /// Binds memory, rows of which are so many bytes apart.
    fn cuTexRefSetAddress2D_v3(handle: Handle, shape: In<Flat>, address: u64, pitch: usize) {
        let Flat { size, format, channels } = shape.get()?;
        texture(handle, |r| {
            r.format = [format, channels];
            r.resource = Some(Resource::pitched(address, r.format, size, pitch));
            Ok(())
        })
    }
    /// Says what memory has that is bound later.
    fn cuTexRefSetFormat(handle: Handle, format: u32, channels: i32) {
        let channels = u32::try_from(channels).map_err(|_| Error::INVALID_VALUE)?;
        crate::image::format(format, channels)?;
        texture(handle, |r| {
            r.format = [format, channels];
            Ok(())
        })
    }
    /// What lies beyond the edge in a dimension.
    fn cuTexRefSetAddressMode(handle: Handle, dimension: i32, mode: u32) {
        texture(handle, |r| {
            let modes = &mut r.sampling.address;
            let to = usize::try_from(dimension).ok().and_then(|d| modes.get_mut(d));
            *to.filter(|_| mode < 4).ok_or(Error::INVALID_VALUE)? = mode;
            Ok(())
        })
    }
    /// Whether texels are averaged.
    fn cuTexRefSetFilterMode(handle: Handle, mode: u32) {
        texture(handle, |r| {
            r.sampling.filter = if mode < 2 { mode } else { return Err(Error::INVALID_VALUE) };
            Ok(())
        })
    }
    /// How texels are read.
    fn cuTexRefSetFlags(handle: Handle, flags: u32) {
        texture(handle, |r| {
            r.sampling.flags = flags;
            Ok(())
        })
    }
    /// What lies beyond the edge.
    fn cuTexRefSetBorderColor(handle: Handle, color: In<[f32; 4]>) {
        let color = color.get()?;
        texture(handle, |r| {
            r.sampling.border = color;
            Ok(())
        })
    }
    /// The array that is bound.
    fn cuTexRefGetArray(out: Out<Handle>, handle: Handle) {
        out.put(told(handle, |r| r.resource.and_then(|r| r.of_array()).ok_or(Error::INVALID_VALUE))?)
    }
    /// The memory that is bound.
    fn cuTexRefGetAddress_v2(out: Out<u64>, handle: Handle) {
        out.put(told(handle, |r| r.resource.and_then(|r| r.of_memory()).ok_or(Error::INVALID_VALUE))?)
    }
    /// See `cuTexRefSetAddressMode`.
    fn cuTexRefGetAddressMode(out: Out<u32>, handle: Handle, dimension: i32) {
        let at = usize::try_from(dimension).map_err(|_| Error::INVALID_VALUE)?;
        out.put(told(handle, |r| r.sampling.address.get(at).copied().ok_or(Error::INVALID_VALUE))?)
    }
    /// See `cuTexRefSetFilterMode`.
    fn cuTexRefGetFilterMode(out: Out<u32>, handle: Handle) {
        out.put(told(handle, |r| Ok(r.sampling.filter))?)
    }
    /// See `cuTexRefSetFlags`.
    fn cuTexRefGetFlags(out: Out<u32>, handle: Handle) {
        out.put(told(handle, |r| Ok(r.sampling.flags))?)
    }
    /// See `cuTexRefSetFormat`.
    fn cuTexRefGetFormat(format: Out<u32>, channels: Out<i32>, handle: Handle) {
        let [f, n] = told(handle, |r| Ok(r.format))?;
        format.put(f)?;
        channels.put(n as i32)
    }
    /// Binds an array to a surface.
    fn cuSurfRefSetArray(handle: Handle, array: Handle, flags: u32) {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        within(|d| d.arrays.get(array).map(|_| ()))?;
        change(handle, Kind::Surface, |r| {
            r.resource = Some(Resource::array(array));
            Ok(())
        })
    }
    /// The array that is bound to a surface.
    fn cuSurfRefGetArray(out: Out<Handle>, handle: Handle) {
        out.put(told(handle, |r| r.resource.and_then(|r| r.of_array()).ok_or(Error::INVALID_VALUE))?)
    }
}
