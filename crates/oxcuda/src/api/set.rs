//! Values everywhere.

use super::Handle;
use crate::error::{Error, Result};
use crate::stream::submit;
use crate::work::{Fill, Work};

/// Fills rows.
fn rows(
    stream: Handle,
    address: u64,
    pitch: usize,
    (value, element): (u32, u32),
    size: [usize; 2],
) -> Result<()> {
    if !address.is_multiple_of(element.into()) || !(pitch as u64).is_multiple_of(element.into()) {
        return Err(Error::INVALID_VALUE);
    }
    // Rows lie one behind the other.
    if size[1] > 1 && (pitch as u64) < (size[0] as u64).saturating_mul(element.into()) {
        return Err(Error::INVALID_VALUE);
    }
    let (pitch, value, size) = (pitch as u64, value.into(), size.map(|n| n as u64));
    submit(stream, Work::Fill(Fill { address, pitch, value, element, size }))
}

api! {
    /// Bytes.
    fn cuMemsetD8_v2(address: u64, value: u8, count: usize) / cuMemsetD8_v2_ptds {
        rows(0, address, 0, (value.into(), 1), [count, 1])
    }
    /// 16-bit words.
    fn cuMemsetD16_v2(address: u64, value: u16, count: usize) / cuMemsetD16_v2_ptds {
        rows(0, address, 0, (value.into(), 2), [count, 1])
    }
    /// 32-bit words.
    fn cuMemsetD32_v2(address: u64, value: u32, count: usize) / cuMemsetD32_v2_ptds {
        rows(0, address, 0, (value, 4), [count, 1])
    }
    /// Rows of bytes.
    fn cuMemsetD2D8_v2(address: u64, pitch: usize, value: u8, width: usize, height: usize) / cuMemsetD2D8_v2_ptds {
        rows(0, address, pitch, (value.into(), 1), [width, height])
    }
    /// Rows of 16-bit words.
    fn cuMemsetD2D16_v2(address: u64, pitch: usize, value: u16, width: usize, height: usize) / cuMemsetD2D16_v2_ptds {
        rows(0, address, pitch, (value.into(), 2), [width, height])
    }
    /// Rows of 32-bit words.
    fn cuMemsetD2D32_v2(address: u64, pitch: usize, value: u32, width: usize, height: usize) / cuMemsetD2D32_v2_ptds {
        rows(0, address, pitch, (value, 4), [width, height])
    }
    /// Bytes, in a stream.
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Handle) / cuMemsetD8Async_ptsz {
        rows(stream, address, 0, (value.into(), 1), [count, 1])
    }
    /// 16-bit words, in a stream.
    fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: Handle) / cuMemsetD16Async_ptsz {
        rows(stream, address, 0, (value.into(), 2), [count, 1])
    }
    /// 32-bit words, in a stream.
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Handle) / cuMemsetD32Async_ptsz {
        rows(stream, address, 0, (value, 4), [count, 1])
    }
    /// Rows of bytes, in a stream.
    fn cuMemsetD2D8Async(address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) / cuMemsetD2D8Async_ptsz {
        rows(stream, address, pitch, (value.into(), 1), [width, height])
    }
    /// Rows of 16-bit words, in a stream.
    fn cuMemsetD2D16Async(address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) / cuMemsetD2D16Async_ptsz {
        rows(stream, address, pitch, (value.into(), 2), [width, height])
    }
    /// Rows of 32-bit words, in a stream.
    fn cuMemsetD2D32Async(address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) / cuMemsetD2D32Async_ptsz {
        rows(stream, address, pitch, (value, 4), [width, height])
    }
}
