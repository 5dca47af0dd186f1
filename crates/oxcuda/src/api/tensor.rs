//! Tensor maps.

use crate::error::Error;
use crate::ffi::{Host, In, Out};
use sim::launch::Tiles;

/// Element types in the header's order, as PTX names them.
const TYPES: [&str; 13] =
    ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz"];
/// Bytes of the swizzles in the header's order.
const SWIZZLES: [u64; 4] = [0, 32, 64, 128];

api! {
    /// Describes a tensor for copies of tiles.
    fn cuTensorMapEncodeTiled(
        out: Out<[u8; 128]>, kind: u32, rank: u32, address: Host, dims: In<u64>, strides: In<u64>, sizes: In<u32>, steps: In<u32>,
        interleave: u32, swizzle: u32, _promotion: u32, fill: u32,
    ) {
        let rank = rank as usize;
        if !(1..=5).contains(&rank) {
            return Err(Error::INVALID_VALUE);
        }
        if interleave != 0 || fill != 0 {
            say!("oxcuda: tensor maps with interleaved layouts or NaN as the fill are not built");
            return Err(Error::NOT_SUPPORTED);
        }
        let ty = TYPES.get(kind as usize).ok_or(Error::INVALID_VALUE)?;
        let wide = |list: Vec<u32>| list.into_iter().map(u64::from).collect::<Vec<_>>();
        let tiles = Tiles {
            buffer: String::new(),
            ty: (*ty).into(),
            dims: dims.list(rank)?,
            strides: strides.list(rank - 1)?,
            sizes: wide(sizes.list(rank)?),
            steps: Some(wide(steps.list(rank)?)),
            swizzle: *SWIZZLES.get(swizzle as usize).ok_or(Error::INVALID_VALUE)?,
        };
        let map = tiles.map(address.address()).map_err(|what| {
            say!("oxcuda: cuTensorMapEncodeTiled: {what}");
            Error::INVALID_VALUE
        })?;
        out.put(map)
    }
}
