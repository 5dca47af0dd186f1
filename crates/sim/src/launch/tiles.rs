//! Tensor maps in launch files.

use crate::tensormap;
use serde::Deserialize;
use std::fmt;

/// A tensor in a buffer, and the box that a copy of a tile moves.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Tiles {
    /// The buffer.
    pub buffer: String,
    /// The element type, as PTX names it for `tensormap.replace.elemtype`: `u8` … `tf32.ftz`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Elements in each dimension, the innermost first.
    pub dims: Vec<u64>,
    /// Bytes between neighbours in all dimensions but the first.
    pub strides: Vec<u64>,
    /// Elements of the box in each dimension.
    #[serde(rename = "box")]
    pub sizes: Vec<u64>,
    /// Steps between the elements of the box; 1 if absent.
    pub steps: Option<Vec<u64>>,
    /// Bytes of the swizzle: 0, 32, 64 or 128.
    #[serde(default)]
    pub swizzle: u64,
    /// Bytes that the swizzle leaves together: 16, 32 or 64; 16 if absent.
    pub together: Option<u64>,
    /// For copies of columns of pixels instead of boxes.
    pub columns: Option<Pixels>,
}

/// Columns of pixels of a tensor of channels, one to three dimensions, and images.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Pixels {
    /// Channels of each pixel that are copied.
    pub channels: u16,
    /// Pixels of a column.
    pub pixels: u16,
    /// The corners of the box that a filter's base moves in, from the first and from the last element of each dimension on.
    pub lower: Vec<i16>,
    /// See [`Pixels::lower`].
    pub upper: Vec<i16>,
}

/// Why there is no such tensor map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TilesError {
    /// It has no dimensions, or too many.
    Rank,
    /// Some dimension has no box or no stride.
    Lists,
    /// A step is none that there is.
    Steps,
    /// A dimension of the tensor or of the box has too many elements, or none.
    Elements,
    /// A stride is none that there is.
    Strides,
    /// There are no such elements.
    Type(String),
    /// There is no swizzle of so many bytes.
    Swizzle(u64),
    /// A swizzle does not leave so many bytes together.
    Together(u64),
    /// Columns of pixels have a box of other dimensions.
    Columns,
}

impl fmt::Display for TilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TilesError::Rank => "a tensor map has one to five dimensions",
            TilesError::Lists => {
                "a tensor map needs a box for each dimension, and a stride for all but the first"
            }
            TilesError::Steps => "a tensor map has a step of one to eight in each dimension, or none at all",
            TilesError::Elements => "a tensor has one to 2^32 elements in each dimension, its box one to 256",
            TilesError::Strides => "strides of a tensor map are multiples of 16 bytes below 2^40",
            TilesError::Type(name) => return write!(f, "no elements of type '{name}'"),
            TilesError::Columns => "a tensor of pixels has three to five dimensions, the box two less",
            TilesError::Together(bytes) => return write!(f, "no swizzle that leaves {bytes} bytes together"),
            TilesError::Swizzle(bytes) => return write!(f, "no swizzle of {bytes}"),
        })
    }
}

impl std::error::Error for TilesError {}

impl Tiles {
    /// The tensor map of a tensor at an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn map(&self, address: u64) -> Result<[u8; tensormap::BYTES], TilesError> {
        self.check().map(|()| self.encode(address))
    }

    /// The tensor map's bytes.
    pub(super) fn encode(&self, address: u64) -> [u8; tensormap::BYTES] {
        let mut map = [0; tensormap::BYTES];
        let mut set = |field: &str, i: usize, value: u64| {
            // All fields and values are there: `check` has seen to that.
            let _ = tensormap::replace(&mut map, field, i, value);
        };
        let position = |found: Option<usize>| found.map_or(0, |i| i as u64);
        set("global_address", 0, address);
        set("rank", 0, self.dims.len() as u64 - 1);
        set("elemtype", 0, position(tensormap::TYPES.iter().position(|t| *t == self.ty)));
        set("swizzle_mode", 0, position(tensormap::SWIZZLES.iter().position(|s| *s == self.swizzle)));
        for i in 0..self.dims.len() {
            set("global_dim", i, self.dims[i]);
            set("box_dim", i, self.sizes[i]);
            set("element_stride", i, self.steps.as_ref().map_or(1, |s| s[i]));
        }
        self.strides.iter().enumerate().for_each(|(i, s)| set("global_stride", i, *s));
        set(
            "swizzle_atomicity",
            0,
            self.together.map_or(0, |n| [16, 32, 0, 64].iter().position(|m| *m == n).unwrap_or(0) as u64),
        );
        if let Some(c) = &self.columns {
            let corner = |list: &[i16]| std::array::from_fn(|i| list.get(i).map_or(0, |n| i64::from(*n)));
            let (lower, upper) = (corner(&c.lower), corner(&c.upper));
            tensormap::Columns { channels: c.channels.into(), pixels: c.pixels.into(), lower, upper }
                .put(&mut map);
        }
        map
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), TilesError> {
        let rank = self.dims.len();
        let within = |list: &[u64], most: u64| list.iter().all(|n| (1..=most).contains(n));
        let steps = self.steps.as_deref();
        match () {
            () if !(1..=5).contains(&rank) => Err(TilesError::Rank),
            () if self.strides.len() + 1 != rank || self.sizes.len() != rank => Err(TilesError::Lists),
            () if steps.is_some_and(|s| s.len() != rank || !within(s, 8)) => Err(TilesError::Steps),
            () if !within(&self.dims, 1 << 32) || !within(&self.sizes, 256) => Err(TilesError::Elements),
            () if !self.strides.iter().all(|s| s.is_multiple_of(16) && *s < 1 << 40) => {
                Err(TilesError::Strides)
            }
            () if !tensormap::TYPES.contains(&&*self.ty) => Err(TilesError::Type(self.ty.clone())),
            () if self.together.is_some_and(|n| !matches!(n, 16 | 32 | 64)) => {
                Err(TilesError::Together(self.together.unwrap_or(0)))
            }
            () if self
                .columns
                .as_ref()
                .is_some_and(|c| rank < 3 || c.lower.len() != rank - 2 || c.upper.len() != rank - 2) =>
            {
                Err(TilesError::Columns)
            }
            () if !tensormap::SWIZZLES.contains(&self.swizzle) => Err(TilesError::Swizzle(self.swizzle)),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_maps_hold_what_the_file_says_or_are_refused() {
        let tiles = |sizes: [u64; 2], stride: u64, steps: Option<Vec<u64>>| {
            let (buffer, ty) = ("x".into(), "f32".into());
            Tiles {
                buffer,
                ty,
                dims: vec![512, 4],
                strides: vec![stride],
                sizes: sizes.to_vec(),
                steps,
                swizzle: 64,
                together: None,
                columns: None,
            }
        };
        assert_eq!(tiles([256, 1], 2048, Some(vec![1, 8])).check(), Ok(()));
        for wrong in [
            tiles([257, 1], 2048, None),
            tiles([0, 1], 2048, None),
            tiles([8, 1], 1 << 40, None),
            tiles([8, 1], 2056, None),
            tiles([8, 1], 2048, Some(vec![1])),
            tiles([8, 1], 2048, Some(vec![1, 9])),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
