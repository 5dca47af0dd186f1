//! What texels are made of.

use super::ImageError;
use crate::fp::{self, F16, F32, Round};
use serde::{Deserialize, Serialize};

/// A channel of a texel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Element {
    /// An unsigned byte.
    U8,
    /// A signed byte.
    S8,
    /// 16 bits.
    U16,
    /// 16 bits with a sign.
    S16,
    /// 32 bits.
    U32,
    /// 32 bits with a sign.
    S32,
    /// binary16
    F16,
    /// binary32
    F32,
}

/// The elements by name.
pub const ELEMENTS: [(&str, Element); 8] = [
    ("u8", Element::U8),
    ("s8", Element::S8),
    ("u16", Element::U16),
    ("s16", Element::S16),
    ("u32", Element::U32),
    ("s32", Element::S32),
    ("f16", Element::F16),
    ("f32", Element::F32),
];

impl Element {
    /// Size.
    pub fn bytes(self) -> u32 {
        match self {
            Element::U8 | Element::S8 => 1,
            Element::U16 | Element::S16 | Element::F16 => 2,
            Element::U32 | Element::S32 | Element::F32 => 4,
        }
    }
    /// Whether it is a floating-point number.
    pub fn is_float(self) -> bool {
        matches!(self, Element::F16 | Element::F32)
    }
    /// Whether it is an integer with a sign.
    pub fn is_signed(self) -> bool {
        matches!(self, Element::S8 | Element::S16 | Element::S32)
    }
    /// The largest integer.
    fn largest(self) -> i64 {
        (1 << (8 * self.bytes() - u32::from(self.is_signed()))) - 1
    }
}

/// The format of a texel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Format {
    /// Of each channel.
    pub element: Element,
    /// 1, 2 or 4.
    pub channels: u32,
    /// Integers stand for the numbers from 0 (or -1) to 1.
    pub normalized: bool,
}

/// A word that a manual leaves open is `None`.
pub type Words = [Option<u32>; 4];

impl Format {
    /// A format.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(element: Element, channels: u32, normalized: bool) -> Result<Format, ImageError> {
        if !matches!(channels, 1 | 2 | 4) {
            return Err(ImageError::Channels(channels));
        }
        if normalized && (element.is_float() || element.bytes() == 4) {
            return Err(ImageError::Normalized);
        }
        Ok(Format { element, channels, normalized })
    }

    /// Bytes of a texel.
    pub fn bytes(self) -> u32 {
        self.element.bytes() * self.channels
    }

    /// Whether reading it gives floating-point numbers.
    pub fn reads_float(self) -> bool {
        self.normalized || self.element.is_float()
    }

    /// What a channel's bits are as a word of 32 bits: an integer extended by its sign, or a binary32.
    pub fn widen(self, bits: u64) -> u32 {
        let integer = match self.element {
            Element::S8 => i64::from(bits as i8),
            Element::S16 => i64::from(bits as i16),
            Element::S32 => i64::from(bits as i32),
            _ => bits as i64,
        };
        if self.normalized {
            // Both -128 and -127 are -1.
            let x = (integer as f64 / self.element.largest() as f64).max(-1.0);
            return (x as f32).to_bits();
        }
        match self.element {
            Element::F16 => fp::convert(bits, F16, F32, Round::Nearest) as u32,
            _ => integer as u32,
        }
    }

    /// The bits that a formatted store leaves of a word; `None` where no manual says what becomes of a number that the
    /// format does not have.
    pub fn narrow(self, word: u32) -> Option<u64> {
        if self.normalized {
            let scaled = f64::from(f32::from_bits(word)) * self.element.largest() as f64;
            let least = if self.element.is_signed() { -self.element.largest() } else { 0 };
            let whole = scaled.round();
            let near = (scaled - whole).abs() < 1.0 / 1024.0;
            let inside = (least as f64..=self.element.largest() as f64).contains(&whole);
            return (near && inside)
                .then_some(whole as i64 as u64 & (u64::MAX >> (64 - 8 * self.element.bytes())));
        }
        match self.element {
            Element::F32 | Element::U32 | Element::S32 => Some(word.into()),
            Element::F16 => {
                let half = fp::convert(word.into(), F32, F16, Round::Nearest);
                let back = fp::convert(half, F16, F32, Round::Nearest) as u32;
                (back == word).then_some(half)
            }
            Element::U8 | Element::U16 => (i64::from(word) <= self.element.largest()).then_some(word.into()),
            Element::S8 | Element::S16 => {
                let (x, most) = (i64::from(word as i32), self.element.largest());
                let mask = u64::MAX >> (64 - 8 * self.element.bytes());
                (-most - 1..=most).contains(&x).then_some(u64::from(word) & mask)
            }
        }
    }

    /// OpenCL's number for the type of a channel (`CL_SNORM_INT8` …).
    pub fn opencl_type(self) -> u32 {
        match (self.element, self.normalized) {
            (Element::S8, true) => 0x10d0,
            (Element::S16, true) => 0x10d1,
            (Element::U8, true) => 0x10d2,
            (Element::U16, true) => 0x10d3,
            (Element::S8, _) => 0x10d7,
            (Element::S16, _) => 0x10d8,
            (Element::S32, _) => 0x10d9,
            (Element::U8, _) => 0x10da,
            (Element::U16, _) => 0x10db,
            (Element::U32, _) => 0x10dc,
            (Element::F16, _) => 0x10dd,
            (Element::F32, _) => 0x10de,
        }
    }

    /// OpenCL's number for the order of channels (`CL_R`, `CL_RG`, `CL_RGBA`).
    pub fn opencl_order(self) -> u32 {
        match self.channels {
            1 => 0x10b0,
            2 => 0x10b2,
            _ => 0x10b5,
        }
    }
}
