//! Tensor maps.

use crate::error::Error;
use crate::ffi::{Host, In, Out};
use sim::launch::Tiles;

/// Element types in the header's order, as PTX names them.
const TYPES: [&str; 16] = [
    "u8",
    "u16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f16",
    "f32",
    "f64",
    "bf16",
    "f32.ftz",
    "tf32",
    "tf32.ftz",
    "b4x16",
    "b4x16_p64",
    "b6x16_p32",
];
/// Bytes of the swizzles in the header's order, and which of them stay together; the fifth one turns units around.
const SWIZZLES: [Option<(u64, u64)>; 7] =
    [Some((0, 16)), Some((32, 16)), Some((64, 16)), Some((128, 16)), Some((128, 32)), None, Some((128, 64))];

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
        let Some(swizzle) = *SWIZZLES.get(swizzle as usize).ok_or(Error::INVALID_VALUE)? else {
            say!("oxcuda: tensor maps whose swizzle turns units around are not built");
            return Err(Error::NOT_SUPPORTED);
        };
        let wide = |list: Vec<u32>| list.into_iter().map(u64::from).collect::<Vec<_>>();
        let tiles = Tiles {
            buffer: String::new(),
            ty: (*ty).into(),
            dims: dims.list(rank)?,
            strides: strides.list(rank - 1)?,
            sizes: wide(sizes.list(rank)?),
            steps: Some(wide(steps.list(rank)?)),
            swizzle: swizzle.0,
            together: Some(swizzle.1),
            columns: None,
        };
        let map = tiles.map(address.address()).map_err(|what| {
            say!("oxcuda: cuTensorMapEncodeTiled: {what}");
            Error::INVALID_VALUE
        })?;
        out.put(map)
    }
}
