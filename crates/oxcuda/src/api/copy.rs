//! Copies.

use super::Handle;
use crate::attributes::attribute;
use crate::driver::{Driver, with};
use crate::error::{Error, Result};
use crate::ffi::{Host, In};
use crate::stream::{submit, submit_and_wait};
use crate::work::{End, Side, Transfer, Work};

/// A row of bytes, in a stream or at once.
pub fn row(stream: Option<Handle>, to: (Side, u64), from: (Side, u64), size: usize) -> Result<()> {
    let (to, from) = (End::flat(to.0, to.1), End::flat(from.0, from.1));
    let work = Work::Copy(Transfer { to, from, size: [size as u64, 1, 1] });
    match stream {
        Some(s) => submit(s, work),
        None => submit_and_wait(work),
    }
}

/// One end of a copy of two dimensions in C.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End2 {
    x: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2 {
    from: End2,
    to: End2,
    width: usize,
    height: usize,
}

/// One end of a copy of three dimensions in C.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct End3 {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    /// Reserved, or a context.
    other: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER` but for the names.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Copy3 {
    from: End3,
    to: End3,
    width: usize,
    height: usize,
    depth: usize,
}

/// By the number of a kind of memory: host, device, unified.
fn side(kind: u32, host: u64, device: u64) -> Result<(Side, u64)> {
    match kind {
        1 => Ok((Side::Host, host)),
        2 => Ok((Side::Device, device)),
        4 => Ok((Side::Any, device)),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Whether a pitch is one for rows from some byte on: wide enough if it is given, and no more than the device takes.
fn pitch(pitch: usize, x: usize, width: usize) -> bool {
    let most = attribute(MAX_PITCH).map_or(0, |n| n as usize);
    pitch == 0 || (x.saturating_add(width)..=most).contains(&pitch)
}

/// The number of `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
const MAX_PITCH: u32 = 11;

/// The number of the kind of memory that is an array.
const ARRAY: u32 = 3;

impl End3 {
    fn end(&self, d: &Driver, size: [u64; 3]) -> Result<End> {
        let at = [self.x, self.y, self.z].map(|n| n as u64);
        // Levels are arrays of their own.
        if self.level != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if self.kind == ARRAY {
            return d.in_array(self.array, at, size);
        }
        let (side, address) = side(self.kind, self.host, self.device)?;
        let (pitch, slice) = (self.pitch as u64, (self.pitch as u64).wrapping_mul(self.height as u64));
        let rows = at[1].wrapping_mul(pitch).wrapping_add(at[2].wrapping_mul(slice));
        let offset = rows.wrapping_add(at[0]);
        Ok(End { side, address: address.wrapping_add(offset), pitch, slice, array: None })
    }
    fn of(e: &End) -> End3 {
        if let Some((array, [x, y, z])) = e.array {
            let [x, y, z] = [x, y, z].map(|n| n as usize);
            return End3 { kind: ARRAY, array, x, y, z, ..End3::default() };
        }
        let kind = match e.side {
            Side::Host => 1,
            Side::Device => 2,
            Side::Any => 4,
        };
        let height = e.slice.checked_div(e.pitch).unwrap_or(0);
        let (pitch, height) = (e.pitch as usize, height as usize);
        End3 { kind, host: e.address, device: e.address, pitch, height, ..End3::default() }
    }
}

impl Copy3 {
    /// What is to be done.
    pub fn transfer(&self) -> Result<Transfer> {
        let size = [self.width, self.height, self.depth].map(|n| n as u64);
        let dense = |e: &End3| End3 { pitch: if e.pitch == 0 { self.width } else { e.pitch }, ..*e };
        // Rows lie one behind the other, and so do slices.
        for e in [&self.from, &self.to].into_iter().filter(|e| e.kind != ARRAY) {
            let low = size[2] > 1 && (e.height as u64) < (e.y as u64).saturating_add(size[1]);
            if low || !pitch(e.pitch, e.x, self.width) {
                return Err(Error::INVALID_VALUE);
            }
        }
        with(|d| {
            Ok(Transfer { to: dense(&self.to).end(d, size)?, from: dense(&self.from).end(d, size)?, size })
        })
    }
    /// As C has it.
    pub fn of(t: &Transfer) -> Copy3 {
        let [width, height, depth] = t.size.map(|n| n as usize);
        Copy3 { from: End3::of(&t.from), to: End3::of(&t.to), width, height, depth }
    }
}

impl Copy2 {
    fn transfer(&self) -> Result<Transfer> {
        let three = |e: &End2| End3 {
            x: e.x,
            y: e.y,
            kind: e.kind,
            host: e.host,
            device: e.device,
            array: e.array,
            pitch: if e.pitch == 0 { self.width } else { e.pitch },
            ..End3::default()
        };
        let size = [self.width as u64, self.height as u64, 1];
        for e in [&self.from, &self.to].into_iter().filter(|e| e.kind != ARRAY) {
            if !pitch(e.pitch, e.x, self.width) {
                return Err(Error::INVALID_VALUE);
            }
        }
        with(|d| {
            Ok(Transfer { to: three(&self.to).end(d, size)?, from: three(&self.from).end(d, size)?, size })
        })
    }
}

api! {
    /// Between any two addresses.
    fn cuMemcpy(to: u64, from: u64, size: usize) / cuMemcpy_ptds {
        row(None, (Side::Any, to), (Side::Any, from), size)
    }
    /// The same, in a stream.
    fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: Handle) / cuMemcpyAsync_ptsz {
        row(Some(stream), (Side::Any, to), (Side::Any, from), size)
    }
    /// Between contexts, which have one device.
    fn cuMemcpyPeer(to: u64, _to_context: Handle, from: u64, _from_context: Handle, size: usize) / cuMemcpyPeer_ptds {
        row(None, (Side::Device, to), (Side::Device, from), size)
    }
    /// The same, in a stream.
    fn cuMemcpyPeerAsync(to: u64, _to_context: Handle, from: u64, _from_context: Handle, size: usize, stream: Handle) / cuMemcpyPeerAsync_ptsz {
        row(Some(stream), (Side::Device, to), (Side::Device, from), size)
    }
    /// To the device.
    fn cuMemcpyHtoD_v2(to: u64, from: Host, size: usize) / cuMemcpyHtoD_v2_ptds {
        row(None, (Side::Device, to), (Side::Any, from.address()), size)
    }
    /// To the device, in a stream.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: Host, size: usize, stream: Handle) / cuMemcpyHtoDAsync_v2_ptsz {
        row(Some(stream), (Side::Device, to), (Side::Any, from.address()), size)
    }
    /// From the device.
    fn cuMemcpyDtoH_v2(to: Host, from: u64, size: usize) / cuMemcpyDtoH_v2_ptds {
        row(None, (Side::Any, to.address()), (Side::Device, from), size)
    }
    /// From the device, in a stream.
    fn cuMemcpyDtoHAsync_v2(to: Host, from: u64, size: usize, stream: Handle) / cuMemcpyDtoHAsync_v2_ptsz {
        row(Some(stream), (Side::Any, to.address()), (Side::Device, from), size)
    }
    /// On the device.
    fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) / cuMemcpyDtoD_v2_ptds {
        row(None, (Side::Device, to), (Side::Device, from), size)
    }
    /// On the device, in a stream.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) / cuMemcpyDtoDAsync_v2_ptsz {
        row(Some(stream), (Side::Device, to), (Side::Device, from), size)
    }
    /// A rectangle.
    fn cuMemcpy2D_v2(copy: In<Copy2>) / cuMemcpy2D_v2_ptds / cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds {
        submit_and_wait(Work::Copy(copy.get()?.transfer()?))
    }
    /// A rectangle, in a stream.
    fn cuMemcpy2DAsync_v2(copy: In<Copy2>, stream: Handle) / cuMemcpy2DAsync_v2_ptsz {
        submit(stream, Work::Copy(copy.get()?.transfer()?))
    }
    /// A box.
    fn cuMemcpy3D_v2(copy: In<Copy3>) / cuMemcpy3D_v2_ptds / cuMemcpy3DPeer / cuMemcpy3DPeer_ptds {
        submit_and_wait(Work::Copy(copy.get()?.transfer()?))
    }
    /// A box, in a stream.
    fn cuMemcpy3DAsync_v2(copy: In<Copy3>, stream: Handle) / cuMemcpy3DAsync_v2_ptsz / cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz {
        submit(stream, Work::Copy(copy.get()?.transfer()?))
    }
}
