//! Tensor maps: 128 bytes that tell the copy engine how a tensor lies in global memory and a part of it in shared
//! memory. One definition for the PTX interpreter, the SASS simulator and launch files.
//!
//! The manual leaves the bytes open. Where each field stands is known from the code that ptxas 13.0.88 makes of every
//! `tensormap.replace` (all fields and ordinals, sm_90a and sm_100a): it changes them in place. docs/simulator.md has
//! the table.

use crate::fp::{self, BF16, F16, F32, F64, Format, Round};
use std::fmt;

/// Most dimensions.
const DIMS: usize = 5;

/// The bytes of a tensor map.
pub(crate) const BYTES: usize = 128;

/// Element types by the number that `tensormap.replace.elemtype` has for them.
pub(crate) const TYPES: [&str; 13] =
    ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz"];

/// Bytes of the swizzles by the number that `tensormap.replace.swizzle_mode` has for them.
pub(crate) const SWIZZLES: [u64; 4] = [0, 32, 64, 128];

/// A run of bits: first bit, and how many.
type Bits = (usize, usize);

const ADDRESS: Bits = (0, 64);
const RANK: Bits = (0x8 * 8 + 4, 3);
const ELEMENT: Bits = (0x8 * 8 + 7, 4);
const INTERLEAVE: Bits = (0x8 * 8 + 11, 2);
const SWIZZLE: Bits = (0x8 * 8 + 13, 2);
const FILL: Bits = (0x8 * 8 + 15, 1);
const TF32: Bits = (0x8 * 8 + 16, 1);
const ATOMICITY: Bits = (0x8 * 8 + 19, 3);

/// Dimension `i`, less one.
fn dim(i: usize) -> Bits {
    ((0x20 + 4 * i) * 8, 32)
}

/// Size of the box in dimension `i`, less one.
fn box_dim(i: usize) -> Bits {
    (0x37 * 8 + 8 * i, 8)
}

/// Step between the elements of the box in dimension `i`, less one.
fn step(i: usize) -> Bits {
    (0x34 * 8 + 3 * i, 3)
}

/// Bytes between neighbours in dimension `i + 1` over 16: the lower part and the upper.
fn stride(i: usize) -> [Bits; 2] {
    [((0xc + 4 * i) * 8, 32), (0x1c * 8 + 4 * i, 4)]
}

fn get(map: &[u8; BYTES], (first, count): Bits) -> u64 {
    (0..count).fold(0, |x, i| x | u64::from(map[(first + i) / 8] >> ((first + i) % 8) & 1) << i)
}

fn set(map: &mut [u8; BYTES], (first, count): Bits, value: u64) {
    for i in 0..count {
        let (byte, bit) = ((first + i) / 8, (first + i) % 8);
        map[byte] = map[byte] & !(1 << bit) | ((value >> i & 1) as u8) << bit;
    }
}

/// Changes the field that `tensormap.replace` names; `None` if there is no such field, or no such value.
pub(crate) fn replace(map: &mut [u8; BYTES], field: &str, ordinal: usize, value: u64) -> Option<()> {
    let less_one = (value as u32).wrapping_sub(1).into();
    match field {
        "global_address" => set(map, ADDRESS, value),
        "rank" => set(map, RANK, value),
        "box_dim" if ordinal < DIMS => set(map, box_dim(ordinal), less_one),
        "global_dim" if ordinal < DIMS => set(map, dim(ordinal), less_one),
        "element_stride" if ordinal < DIMS => set(map, step(ordinal), less_one),
        "global_stride" if ordinal < DIMS - 1 => {
            let [low, high] = stride(ordinal);
            set(map, low, value >> 4);
            set(map, high, value >> 36);
        }
        "elemtype" => {
            // TF32 is binary32 with a flag; the numbers behind it are one less here.
            let code = match value {
                0..=10 => value,
                11 | 12 => value - 4,
                13..=15 => value - 2,
                _ => return None,
            };
            set(map, ELEMENT, code);
            if matches!(value, 11 | 12) {
                set(map, TF32, 1);
            }
        }
        "interleave_layout" => set(map, INTERLEAVE, value),
        "swizzle_mode" => {
            set(map, SWIZZLE, value);
            set(map, (0x8 * 8 + 22, 1), 0);
        }
        "fill_mode" => set(map, FILL, value),
        "swizzle_atomicity" => set(map, ATOMICITY, value),
        _ => return None,
    }
    Some(())
}

/// What an element is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Int { bytes: u64, signed: bool },
    Float { format: Format, ftz: bool },
}

impl Element {
    fn of(code: u64) -> Option<Element> {
        let int = |bytes, signed| Element::Int { bytes, signed };
        let float = |format, ftz| Element::Float { format, ftz };
        Some(match code {
            0 => int(1, false),
            1 => int(2, false),
            2 => int(4, false),
            3 => int(4, true),
            4 => int(8, false),
            5 => int(8, true),
            6 => float(F16, false),
            7 => float(F32, false),
            8 => float(F32, true),
            9 => float(F64, false),
            10 => float(BF16, false),
            _ => return None,
        })
    }

    fn bytes(self) -> u64 {
        match self {
            Element::Int { bytes, .. } => bytes,
            Element::Float { format, .. } => u64::from(format.bits() / 8),
        }
    }
}

/// Where a byte goes whose place without a swizzle of this number is that shared address: units of 16 bytes change
/// places with the number of their row of 128 bytes.
pub(crate) fn swizzled(address: u64, number: u64) -> u64 {
    address ^ (address >> 7 & ((1 << number) - 1)) << 4
}

/// Why a tensor map, or a copy by it, is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TensorMapError {
    /// What is not modelled.
    Unsupported(&'static str),
    /// It has too many dimensions.
    Rank,
    /// A copy has not as many coordinates as it has dimensions.
    Coordinates {
        /// Those of the copy.
        coordinates: usize,
        /// Dimensions.
        rank: usize,
    },
    /// Rows of its box do not end where one may.
    Rows,
}

impl fmt::Display for TensorMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorMapError::Unsupported(what) => write!(f, "not supported: a tensor map {what}"),
            TensorMapError::Rank => f.write_str("a tensor map with more than five dimensions"),
            TensorMapError::Coordinates { coordinates, rank } => {
                write!(f, "{coordinates} coordinates for a tensor map of {rank} dimensions")
            }
            TensorMapError::Rows => f.write_str("a box whose rows are not multiples of 16 bytes"),
        }
    }
}

impl std::error::Error for TensorMapError {}

/// A tensor in tiles.
#[derive(Clone, Debug)]
pub(crate) struct TensorMap {
    address: u64,
    rank: usize,
    element: Element,
    /// Bits of a shared address that the swizzle changes: 0 to 3.
    swizzle: u64,
    strides: [u64; DIMS],
    dims: [u64; DIMS],
    sizes: [u64; DIMS],
    steps: [u64; DIMS],
}

/// Where an element of the box is: its offset in shared memory, and its global address unless it lies outside.
pub(crate) type Place = (u64, Option<u64>);

impl TensorMap {
    /// Reads a map.
    ///
    /// # Errors
    /// For what is not modelled, or makes no sense.
    pub(crate) fn read(map: &[u8; BYTES]) -> Result<TensorMap, TensorMapError> {
        let refuse = |what| Err(TensorMapError::Unsupported(what));
        if get(map, INTERLEAVE) != 0 {
            return refuse("with an interleaved layout");
        }
        if get(map, FILL) != 0 {
            return refuse("that fills with NaNs");
        }
        if get(map, ATOMICITY) != 0 {
            return refuse("with another atomicity of its swizzle");
        }
        let Some(element) = Element::of(get(map, ELEMENT)) else {
            return refuse("of elements of less than 8 bits");
        };
        let rank = get(map, RANK) as usize + 1;
        if rank > DIMS {
            return Err(TensorMapError::Rank);
        }
        let each = |f: &dyn Fn(usize) -> u64| -> [u64; DIMS] { std::array::from_fn(f) };
        let strides = each(&|i| match i {
            0 => element.bytes(),
            _ => {
                let [low, high] = stride(i - 1);
                (get(map, high) << 32 | get(map, low)) << 4
            }
        });
        Ok(TensorMap {
            address: get(map, ADDRESS),
            rank,
            element,
            swizzle: get(map, SWIZZLE),
            strides,
            dims: each(&|i| get(map, dim(i)) + 1),
            sizes: each(&|i| get(map, box_dim(i)) + 1),
            steps: each(&|i| get(map, step(i)) + 1),
        })
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> u32 {
        self.element.bytes() as u32
    }

    /// Elements of the box in dimension `i`.
    fn count(&self, i: usize) -> u64 {
        self.sizes[i].div_ceil(self.steps[i])
    }

    /// The global address of an element; `None` outside of the tensor.
    fn address_of(&self, at: &[i64]) -> Option<u64> {
        let mut address = self.address;
        for (i, x) in at.iter().enumerate() {
            let x = u64::try_from(*x).ok().filter(|x| *x < self.dims[i])?;
            address = address.wrapping_add(x.wrapping_mul(self.strides[i]));
        }
        Some(address)
    }

    fn check(&self, coordinates: usize) -> Result<(), TensorMapError> {
        if coordinates != self.rank {
            return Err(TensorMapError::Coordinates { coordinates, rank: self.rank });
        }
        if !(self.count(0) * self.element.bytes()).is_multiple_of(16) {
            return Err(TensorMapError::Rows);
        }
        Ok(())
    }

    /// The elements of a tile in the order of shared memory.
    pub(crate) fn tile(&self, start: &[i32]) -> Result<Vec<Place>, TensorMapError> {
        self.check(start.len())?;
        let total: u64 = (0..self.rank).map(|i| self.count(i)).product();
        Ok((0..total)
            .map(|n| {
                let mut rest = n;
                let mut at = [0i64; DIMS];
                for (i, x) in at.iter_mut().enumerate().take(self.rank) {
                    let k = rest % self.count(i);
                    rest /= self.count(i);
                    *x = i64::from(start[i]) + (k * self.steps[i]) as i64;
                }
                (n * self.element.bytes(), self.address_of(&at[..self.rank]))
            })
            .collect())
    }

    /// Those of four rows of a matrix, from one column on: `gather4` and `scatter4`.
    pub(crate) fn rows(&self, column: i32, rows: &[i32]) -> Result<Vec<Place>, TensorMapError> {
        self.check(2)?;
        let width = self.count(0);
        Ok((0..width * rows.len() as u64)
            .map(|n| {
                let x = i64::from(column) + (n % width * self.steps[0]) as i64;
                let y = i64::from(rows[(n / width) as usize]);
                (n * self.element.bytes(), self.address_of(&[x, y]))
            })
            .collect())
    }

    /// Where a byte goes whose place without a swizzle is this shared address.
    pub(crate) fn swizzled(&self, address: u64) -> u64 {
        swizzled(address, self.swizzle)
    }

    /// What a reduction makes of an element in memory and one of the box.
    pub(crate) fn reduce(&self, operation: &str, old: u64, x: u64) -> Option<u64> {
        let min = operation == "min";
        Some(match (self.element, operation) {
            (Element::Int { bytes, .. }, "add") => old.wrapping_add(x) & (u64::MAX >> (64 - 8 * bytes)),
            (Element::Int { bytes: 4, signed: false }, "inc") => {
                if old >= x {
                    0
                } else {
                    old + 1
                }
            }
            (Element::Int { bytes: 4, signed: false }, "dec") => {
                if old == 0 || old > x {
                    x
                } else {
                    old - 1
                }
            }
            (Element::Int { bytes, signed }, "min" | "max") => {
                let key = |v: u64| {
                    let shift = 64 - 8 * bytes as u32;
                    if signed { i128::from((v << shift) as i64 >> shift) } else { i128::from(v) }
                };
                if (key(old) <= key(x)) == min { old } else { x }
            }
            (Element::Int { .. }, "and") => old & x,
            (Element::Int { .. }, "or") => old | x,
            (Element::Int { .. }, "xor") => old ^ x,
            (Element::Float { format: F32, ftz }, "add") => {
                fp::Single { ftz, ..Default::default() }.add(old as u32, x as u32).into()
            }
            (Element::Float { format, .. }, "add") => fp::add(old, x, format, Round::Nearest),
            (Element::Float { format: f @ (F16 | BF16), .. }, "min" | "max") => {
                crate::sass::extremum(f, old, x, min, false)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of 20 × 9 binary32 in rows of 96 bytes, in boxes of 8 × 4.
    fn matrix() -> [u8; BYTES] {
        let mut map = [0; BYTES];
        let fields = [
            ("global_address", 0, 0x1_0000),
            ("rank", 0, 1),
            ("elemtype", 0, 7),
            ("global_dim", 0, 20),
            ("global_dim", 1, 9),
            ("global_stride", 0, 96),
            ("box_dim", 0, 8),
            ("box_dim", 1, 4),
            ("element_stride", 0, 1),
            ("element_stride", 1, 2),
            ("swizzle_mode", 0, 1),
        ];
        for (field, ordinal, value) in fields {
            replace(&mut map, field, ordinal, value).unwrap();
        }
        map
    }

    #[test]
    fn fields_stand_where_ptxas_writes_them() {
        let map = matrix();
        let word = |at: usize| u32::from_le_bytes(map[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4)], [0x1_0000, 0]);
        assert_eq!(word(8), 1 << 4 | 7 << 7 | 1 << 13);
        assert_eq!([word(0xc), word(0x1c)], [6, 0]);
        assert_eq!([word(0x20), word(0x24)], [19, 8]);
        assert_eq!([word(0x34), word(0x38)], [7 << 24 | 1 << 3, 3]);
    }

    #[test]
    fn boxes_reach_beyond_the_tensor() {
        let map = TensorMap::read(&matrix()).unwrap();
        let places = map.tile(&[16, 6]).unwrap();
        // Two of four rows, as the step is 2; row 8 is the last one, columns end at 20.
        assert_eq!(places.len(), 16);
        assert_eq!(places[0], (0, Some(0x1_0000 + 6 * 96 + 64)));
        assert_eq!(places[4], (16, None));
        assert_eq!(places[9], (36, Some(0x1_0000 + 8 * 96 + 68)));
        assert_eq!(map.tile(&[-1, 0]).unwrap()[0].1, None);
        assert_eq!(map.rows(0, &[3, 9, 0, 1]).unwrap()[8], (32, None));
    }

    #[test]
    fn rows_of_128_bytes_change_their_halves() {
        let map = TensorMap::read(&matrix()).unwrap();
        assert_eq!([0, 0x10, 0x80, 0x90, 0x100].map(|a| map.swizzled(a)), [0, 0x10, 0x90, 0x80, 0x100]);
    }
}
