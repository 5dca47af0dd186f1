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
pub(crate) const TYPES: [&str; 16] = [
    "u8",
    "u16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f16",
    "f32",
    "f32.ftz",
    "f64",
    "bf16",
    "tf32",
    "tf32.ftz",
    "b4x16",
    "b4x16_p64",
    "b6x16_p32",
];

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

// How columns of pixels are laid out, the driver alone knows, as `tensormap.replace` cannot say it: these are places of our own, of launch
// files.
/// Whether they are.
const BY_COLUMNS: Bits = (0x60 * 8, 1);
/// Channels of a pixel, and pixels of a column.
const CHANNELS: Bits = (0x62 * 8, 16);
const PIXELS: Bits = (0x64 * 8, 16);

/// The lower and the upper corner of the box in dimension `i + 1`.
fn corners(i: usize) -> [Bits; 2] {
    [((0x66 + 2 * i) * 8, 16), ((0x6c + 2 * i) * 8, 16)]
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

/// Columns of pixels: channels of each, how many, and the corners of the box that its first one moves in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) channels: u64,
    pub(crate) pixels: u64,
    pub(crate) lower: [i64; 3],
    pub(crate) upper: [i64; 3],
}

impl Columns {
    /// Says it in a map.
    pub(crate) fn put(&self, map: &mut [u8; BYTES]) {
        set(map, BY_COLUMNS, 1);
        set(map, CHANNELS, self.channels);
        set(map, PIXELS, self.pixels);
        for i in 0..3 {
            let [lower, upper] = corners(i);
            set(map, lower, self.lower[i] as u64);
            set(map, upper, self.upper[i] as u64);
        }
    }

    fn read(map: &[u8; BYTES]) -> Option<Columns> {
        let corner = |which: usize| [0, 1, 2].map(|i| i64::from(get(map, corners(i)[which]) as i16));
        (get(map, BY_COLUMNS) != 0).then(|| Columns {
            channels: get(map, CHANNELS),
            pixels: get(map, PIXELS),
            lower: corner(0),
            upper: corner(1),
        })
    }
}

/// How a copy takes columns of pixels.
#[derive(Clone, Debug)]
pub(crate) enum Walk {
    /// Along all dimensions of the box, from the filter's base; what is read is so far from there.
    All(Vec<u16>),
    /// Along the first one alone: pixels behind the column, how far box and start move on, and whether there are 128 pixels in
    /// any case.
    First { halo: u16, offset: u16, fixed: bool },
}

/// What an element is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Int {
        bytes: u64,
        signed: bool,
    },
    Float {
        format: Format,
        ftz: bool,
    },
    /// Sixteen of so many bits, which stand together at the start of so many bytes of shared memory.
    Narrow {
        bits: u64,
        room: u64,
    },
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
            11 => Element::Narrow { bits: 4, room: 8 },
            12 => Element::Narrow { bits: 4, room: 16 },
            13 => Element::Narrow { bits: 6, room: 16 },
            _ => return None,
        })
    }

    /// Bytes that are moved together.
    fn bytes(self) -> u64 {
        match self {
            Element::Int { bytes, .. } => bytes,
            Element::Float { format, .. } => u64::from(format.bits() / 8),
            Element::Narrow { bits: 4, .. } => 8,
            Element::Narrow { .. } => 4,
        }
    }

    /// How many elements stand together, their bytes in global memory, and in shared memory.
    fn unit(self) -> [u64; 3] {
        match self {
            Element::Narrow { bits, room } => [16, 2 * bits, room],
            e => [1, e.bytes(), e.bytes()],
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
    /// What is copied is not what the map is for.
    Mode,
    /// An element outside of the tensor is a NaN of which no document says the bits.
    Nan,
}

impl fmt::Display for TensorMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorMapError::Unsupported(what) => write!(f, "not supported: a tensor map {what}"),
            TensorMapError::Rank => f.write_str("a tensor map with more than five dimensions"),
            TensorMapError::Coordinates { coordinates, rank } => {
                write!(f, "{coordinates} coordinates for a tensor map of {rank} dimensions")
            }
            TensorMapError::Mode => f.write_str("a copy of another kind than its tensor map is for"),
            TensorMapError::Nan => {
                f.write_str("not supported: the NaN that stands for an element outside of a tensor")
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
    /// Bits of a shared address that the swizzle changes: 0 to 3; and the logarithm of the units of 16 bytes that stay together.
    swizzle: u64,
    together: u64,
    /// Whether NaN stands for elements outside.
    nan: bool,
    columns: Option<Columns>,
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
        // 16 bytes, 32, 32 of which halves change places, 64.
        let together = match get(map, ATOMICITY) {
            0 => 0,
            1 => 1,
            3 => 2,
            _ => return refuse("whose swizzle turns 16 bytes around"),
        };
        let swizzle = get(map, SWIZZLE);
        if together != 0 && swizzle != 3 {
            return refuse("with this atomicity of its swizzle");
        }
        let Some(element) = Element::of(get(map, ELEMENT)) else {
            return refuse("of these elements");
        };
        let nan = get(map, FILL) != 0;
        if nan && !matches!(element, Element::Float { .. }) {
            return refuse("that fills with NaNs that its elements do not have");
        }
        let rank = get(map, RANK) as usize + 1;
        if rank > DIMS {
            return Err(TensorMapError::Rank);
        }
        let [count, bytes, _] = element.unit();
        let each = |f: &dyn Fn(usize) -> u64| -> [u64; DIMS] { std::array::from_fn(f) };
        let strides = each(&|i| match i {
            0 => bytes,
            _ => {
                let [low, high] = stride(i - 1);
                (get(map, high) << 32 | get(map, low)) << 4
            }
        });
        let units = |i: usize, n: u64| if i == 0 { n / count } else { n };
        Ok(TensorMap {
            address: get(map, ADDRESS),
            rank,
            element,
            swizzle,
            together,
            nan,
            columns: Columns::read(map),
            strides,
            dims: each(&|i| units(i, get(map, dim(i)) + 1)),
            sizes: each(&|i| units(i, get(map, box_dim(i)) + 1)),
            steps: each(&|i| get(map, step(i)) + 1),
        })
    }

    /// Whether elements may be stored.
    pub(crate) fn check_store(&self) -> Result<(), TensorMapError> {
        match self.element {
            Element::Narrow { room: 16, .. } => {
                Err(TensorMapError::Unsupported("of these elements for stores"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that are moved together.
    pub(crate) fn element_bytes(&self) -> u32 {
        self.element.bytes() as u32
    }

    /// Elements of the box in dimension `i`.
    fn count(&self, i: usize) -> u64 {
        self.sizes[i].div_ceil(self.steps[i])
    }

    /// A coordinate of the first dimension, in units.
    fn first(&self, x: i32) -> Result<i64, TensorMapError> {
        let [count, ..] = self.element.unit();
        match i64::from(x).rem_euclid(count as i64) {
            0 => Ok(i64::from(x).div_euclid(count as i64)),
            _ => Err(TensorMapError::Rows),
        }
    }

    /// Where the parts are that are moved of the elements in the order of shared memory, each given by its coordinates.
    fn places(&self, elements: impl Iterator<Item = [i64; DIMS]>) -> Result<Vec<Place>, TensorMapError> {
        let ([_, bytes, room], part) = (self.element.unit(), self.element.bytes());
        let mut out = Vec::new();
        for (n, at) in (0..).zip(elements) {
            let address = self.address_of(&at[..self.rank]);
            if address.is_none() && self.nan {
                return Err(TensorMapError::Nan);
            }
            out.extend((0..bytes / part).map(|i| (n * room + i * part, address.map(|a| a + i * part))));
        }
        Ok(out)
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
        let width = self.columns.map_or(self.count(0), |c| c.channels);
        if width == 0 || !(width * self.element.unit()[2]).is_multiple_of(16) {
            return Err(TensorMapError::Rows);
        }
        Ok(())
    }

    /// The elements of a tile in the order of shared memory.
    pub(crate) fn tile(&self, start: &[i32]) -> Result<Vec<Place>, TensorMapError> {
        self.check(start.len())?;
        if self.columns.is_some() {
            return Err(TensorMapError::Mode);
        }
        let first = self.first(start[0])?;
        let total: u64 = (0..self.rank).map(|i| self.count(i)).product();
        self.places((0..total).map(|n| {
            let mut rest = n;
            let mut at = [0i64; DIMS];
            for (i, x) in at.iter_mut().enumerate().take(self.rank) {
                let k = rest % self.count(i);
                rest /= self.count(i);
                *x = if i == 0 { first } else { i64::from(start[i]) } + (k * self.steps[i]) as i64;
            }
            at
        }))
    }

    /// Those of four rows of a matrix, from one column on: `gather4` and `scatter4`.
    pub(crate) fn rows(&self, column: i32, rows: &[i32]) -> Result<Vec<Place>, TensorMapError> {
        self.check(2)?;
        if self.columns.is_some() {
            return Err(TensorMapError::Mode);
        }
        let (first, width) = (self.first(column)?, self.count(0));
        self.places((0..width * rows.len() as u64).map(|n| {
            let x = first + (n % width * self.steps[0]) as i64;
            [x, i64::from(rows[(n / width) as usize]), 0, 0, 0]
        }))
    }

    /// Those of columns of pixels (`im2col`): the channels of one pixel after another, which go through the box, then through the next
    /// image's.
    pub(crate) fn columns(&self, start: &[i32], walk: &Walk) -> Result<Vec<Place>, TensorMapError> {
        self.check(start.len())?;
        let Some(c) = self.columns.filter(|_| self.rank >= 3) else { return Err(TensorMapError::Mode) };
        if matches!(self.element, Element::Narrow { .. }) {
            return Err(TensorMapError::Unsupported("of columns of narrow elements"));
        }
        // Dimensions of the box, and which of them the pixels go along.
        let inner = self.rank - 2;
        let (mut offsets, mut moved, mut along, mut pixels) = ([0i64; 3], 0, inner, c.pixels);
        match walk {
            Walk::All(by) if by.len() == inner || by.is_empty() => {
                offsets.iter_mut().zip(by).for_each(|(o, x)| *o = i64::from(*x));
            }
            Walk::First { halo: 0, offset, fixed } => {
                (moved, along) = (i64::from(*offset), 1);
                if *fixed {
                    pixels = 128;
                }
            }
            Walk::First { .. } => return Err(TensorMapError::Unsupported("of columns with a halo")),
            Walk::All(_) => return Err(TensorMapError::Mode),
        }
        let bounds: [(i64, i64); 3] = std::array::from_fn(|i| {
            let by = if i == 0 { moved } else { 0 };
            (c.lower[i] + by, self.dims[i + 1] as i64 - 1 + c.upper[i] + by)
        });
        let mut at: [i64; DIMS] = std::array::from_fn(|i| start.get(i).map_or(0, |x| i64::from(*x)));
        at[1] += moved;
        for i in 0..along {
            let (low, high) = bounds[i];
            // Along one dimension the first pixel may lie to the left of the box.
            if at[i + 1] > high || at[i + 1] < low && matches!(walk, Walk::All(_)) {
                return Err(TensorMapError::Mode);
            }
        }
        let last = self.rank - 1;
        let mut elements = Vec::with_capacity((pixels * c.channels) as usize);
        for _ in 0..pixels {
            for channel in 0..c.channels as i64 {
                let mut one = at;
                one[0] += channel;
                (0..inner).for_each(|i| one[i + 1] += offsets[i]);
                elements.push(one);
            }
            let mut i = 0;
            loop {
                if i == along {
                    at[last] += 1;
                    break;
                }
                at[i + 1] += self.steps[i + 1] as i64;
                if at[i + 1] <= bounds[i].1 {
                    break;
                }
                at[i + 1] = bounds[i].0;
                i += 1;
            }
        }
        self.places(elements.into_iter())
    }

    /// Where a byte goes whose place without a swizzle is this shared address.
    pub(crate) fn swizzled(&self, address: u64) -> u64 {
        match self.together {
            0 => swizzled(address, self.swizzle),
            // Fewer rows until it begins anew, as there are fewer units in each.
            n => address ^ (address >> 7 & (7 >> n)) << (4 + n),
        }
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
            (Element::Narrow { .. }, _) => return None,
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
