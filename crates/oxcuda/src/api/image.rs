//! Arrays, textures and surfaces.

use super::Handle;
use crate::driver::{Driver, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out};
use crate::image::{Array, Resource, Sampling, Shape, View};
use crate::stream::{submit, submit_and_wait};
use crate::work::{End, Side, Transfer, Work};
use sim::image::Kind;

/// `CUDA_ARRAY_DESCRIPTOR`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Flat {
    /// Texels of a row, and rows.
    pub size: [usize; 2],
    /// Number of the format of a channel.
    pub format: u32,
    /// Channels.
    pub channels: u32,
}

fn array<T>(handle: Handle, of: impl FnOnce(&Array) -> T) -> Result<T> {
    within(|d| Ok(of(d.arrays.get(handle)?)))
}

/// A row of bytes, at least one end of which is in an array.
fn copy(
    stream: Option<Handle>,
    size: usize,
    ends: impl FnOnce(&mut Driver) -> Result<[End; 2]>,
) -> Result<()> {
    let [to, from] = within(ends)?;
    let work = Work::Copy(Transfer { to, from, size: [size as u64, 1, 1] });
    match stream {
        Some(s) => submit(s, work),
        None => submit_and_wait(work),
    }
}

api! {
    /// An array of one or two dimensions.
    fn cuArrayCreate_v2(out: Out<Handle>, shape: In<Flat>) {
        let Flat { size: [width, height], format, channels } = shape.get()?;
        let shape = Shape { size: [width, height, 0], format, channels, flags: 0 };
        out.make(|| within(|d| d.make_array(shape, None)))
    }
    /// An array of any shape.
    fn cuArray3DCreate_v2(out: Out<Handle>, shape: In<Shape>) {
        let shape = shape.get()?;
        out.make(|| within(|d| d.make_array(shape, None)))
    }
    /// Takes it back.
    fn cuArrayDestroy(handle: Handle) {
        within(|d| d.free_array(handle, false))
    }
    /// What it was made as.
    fn cuArrayGetDescriptor_v2(out: Out<Flat>, handle: Handle) {
        let s = array(handle, |a| a.shape)?;
        out.put(Flat { size: [s.size[0], s.size[1]], format: s.format, channels: s.channels })
    }
    /// What it was made as.
    fn cuArray3DGetDescriptor_v2(out: Out<Shape>, handle: Handle) {
        out.put(array(handle, |a| a.shape)?)
    }
    /// For arrays without memory of their own alone, which there are none of.
    fn cuArrayGetMemoryRequirements(_out: Host, handle: Handle, _device: i32) {
        array(handle, |_| ())?;
        Err(Error::INVALID_VALUE)
    }
    /// For sparse arrays alone, which there are none of.
    fn cuArrayGetSparseProperties(_out: Host, handle: Handle) {
        array(handle, |_| ())?;
        Err(Error::INVALID_VALUE)
    }
    /// For formats in planes alone, which there are none of.
    fn cuArrayGetPlane(_out: Host, handle: Handle, _plane: u32) {
        array(handle, |_| ())?;
        Err(Error::INVALID_VALUE)
    }
    /// An array with levels.
    fn cuMipmappedArrayCreate(out: Out<Handle>, shape: In<Shape>, levels: u32) {
        let shape = shape.get()?;
        out.make(|| within(|d| d.make_array(shape, Some(levels))))
    }
    /// Takes it back.
    fn cuMipmappedArrayDestroy(handle: Handle) {
        within(|d| d.free_array(handle, true))
    }
    /// A level as an array, which goes with the whole.
    fn cuMipmappedArrayGetLevel(out: Out<Handle>, handle: Handle, level: u32) {
        out.put(within(|d| d.level_of(handle, level))?)
    }
    /// For arrays without memory of their own alone, which there are none of.
    fn cuMipmappedArrayGetMemoryRequirements(_out: Host, handle: Handle, _device: i32) {
        within(|d| d.mipmaps.get(handle).map(|_| ()))?;
        Err(Error::INVALID_VALUE)
    }
    /// For sparse arrays alone, which there are none of.
    fn cuMipmappedArrayGetSparseProperties(_out: Host, handle: Handle) {
        within(|d| d.mipmaps.get(handle).map(|_| ()))?;
        Err(Error::INVALID_VALUE)
    }
    /// Most texels of a texture of linear memory.
    fn cuDeviceGetTexture1DLinearMaxWidth(out: Out<usize>, format: u32, channels: u32, device: i32) {
        if device != 0 {
            return Err(Error::INVALID_DEVICE);
        }
        crate::image::format(format, channels)?;
        out.put(crate::attributes::attribute(69).unwrap_or(0) as usize)
    }

    /// From the device to an array.
    fn cuMemcpyDtoA_v2(to: Handle, offset: usize, from: u64, size: usize) / cuMemcpyDtoA_v2_ptds {
        copy(None, size, |d| Ok([d.along_array(to, offset, size)?, End::flat(Side::Device, from)]))
    }
    /// From an array to the device.
    fn cuMemcpyAtoD_v2(to: u64, from: Handle, offset: usize, size: usize) / cuMemcpyAtoD_v2_ptds {
        copy(None, size, |d| {
            d.elements(from, size)?;
            Ok([End::flat(Side::Device, to), d.along_array(from, offset, size)?])
        })
    }
    /// From the host to an array.
    fn cuMemcpyHtoA_v2(to: Handle, offset: usize, from: Host, size: usize) / cuMemcpyHtoA_v2_ptds {
        copy(None, size, |d| Ok([d.along_array(to, offset, size)?, End::flat(Side::Any, from.address())]))
    }
    /// From the host to an array, in a stream.
    fn cuMemcpyHtoAAsync_v2(to: Handle, offset: usize, from: Host, size: usize, stream: Handle) / cuMemcpyHtoAAsync_v2_ptsz {
        copy(Some(stream), size, |d| Ok([d.along_array(to, offset, size)?, End::flat(Side::Any, from.address())]))
    }
    /// From an array to the host.
    fn cuMemcpyAtoH_v2(to: Host, from: Handle, offset: usize, size: usize) / cuMemcpyAtoH_v2_ptds {
        copy(None, size, |d| Ok([End::flat(Side::Any, to.address()), d.along_array(from, offset, size)?]))
    }
    /// From an array to the host, in a stream.
    fn cuMemcpyAtoHAsync_v2(to: Host, from: Handle, offset: usize, size: usize, stream: Handle) / cuMemcpyAtoHAsync_v2_ptsz {
        copy(Some(stream), size, |d| Ok([End::flat(Side::Any, to.address()), d.along_array(from, offset, size)?]))
    }
    /// Between arrays.
    fn cuMemcpyAtoA_v2(to: Handle, at: usize, from: Handle, offset: usize, size: usize) / cuMemcpyAtoA_v2_ptds {
        copy(None, size, |d| {
            if d.elements(to, size)? != d.elements(from, size)? {
                return Err(Error::INVALID_VALUE);
            }
            Ok([d.along_array(to, at, size)?, d.along_array(from, offset, size)?])
        })
    }

    /// A texture.
    fn cuTexObjectCreate(out: Out<u64>, resource: In<Resource>, sampling: In<Sampling>, view: In<View>) {
        let view = if view.is_null() { None } else { Some(view.get()?) };
        let (resource, sampling) = (resource.get()?, sampling.get()?);
        out.make(|| within(|d| d.make_texture(resource, sampling, view)))
    }
    /// Takes it away.
    fn cuTexObjectDestroy(handle: u64) {
        within(|d| d.unbind(handle, Kind::Texture))
    }
    /// What it is bound to.
    fn cuTexObjectGetResourceDesc(out: Out<Resource>, handle: u64) {
        out.put(within(|d| d.object(handle, Kind::Texture))?.resource)
    }
    /// How it is sampled.
    fn cuTexObjectGetTextureDesc(out: Out<Sampling>, handle: u64) {
        let found = within(|d| d.object(handle, Kind::Texture))?;
        out.put(found.sampling.ok_or(Error::INVALID_VALUE)?)
    }
    /// Which part it is, if it was made as one.
    fn cuTexObjectGetResourceViewDesc(out: Out<View>, handle: u64) {
        let found = within(|d| d.object(handle, Kind::Texture))?;
        out.put(found.view.ok_or(Error::INVALID_VALUE)?)
    }
    /// A surface.
    fn cuSurfObjectCreate(out: Out<u64>, resource: In<Resource>) {
        let resource = resource.get()?;
        out.make(|| within(|d| d.make_surface(resource)))
    }
    /// Takes it away.
    fn cuSurfObjectDestroy(handle: u64) {
        within(|d| d.unbind(handle, Kind::Surface))
    }
    /// What it is bound to.
    fn cuSurfObjectGetResourceDesc(out: Out<Resource>, handle: u64) {
        out.put(within(|d| d.object(handle, Kind::Surface))?.resource)
    }
}
