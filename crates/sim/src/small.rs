//! Number formats of eight bits and fewer, as conversions between them and binary32 see them.

use crate::fp::{F32, Round};

/// A small format: sign, exponent, fraction; no infinities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Small {
    /// Fraction bits.
    frac: u32,
    /// Exponent bias.
    bias: i32,
    /// Largest magnitude.
    largest: u8,
    /// The magnitude that is a NaN, where there is one.
    nan: Option<u8>,
    /// Bits in all.
    pub bits: u32,
}

/// E4M3
pub const E4M3: Small = Small { frac: 3, bias: 7, largest: 0x7e, nan: Some(0x7f), bits: 8 };
/// E5M2: the infinities are not reached by saturating conversions.
pub const E5M2: Small = Small { frac: 2, bias: 15, largest: 0x7b, nan: Some(0x7f), bits: 8 };
/// E2M1
pub const E2M1: Small = Small { frac: 1, bias: 1, largest: 7, nan: None, bits: 4 };
/// E2M3
pub const E2M3: Small = Small { frac: 3, bias: 1, largest: 0x1f, nan: None, bits: 6 };
/// E3M2
pub const E3M2: Small = Small { frac: 2, bias: 3, largest: 0x1f, nan: None, bits: 6 };

/// The format of this name in PTX (`e4m3x2`) or SASS (`E4M3`).
pub fn format(name: &str) -> Option<Small> {
    let name = name.strip_suffix("x2").unwrap_or(name);
    [("e4m3", E4M3), ("e5m2", E5M2), ("e2m1", E2M1), ("e2m3", E2M3), ("e3m2", E3M2)]
        .into_iter()
        .find(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, f)| f)
}

impl Small {
    /// The nearest number to a binary32, ties to even, saturating; with `relu`, negative numbers become 0.
    pub fn encode(self, x: u32, relu: bool) -> u8 {
        let sign = if x >> 31 != 0 { 1u8 << (self.bits - 1) } else { 0 };
        if F32.is_nan(x.into()) {
            // Formats without a NaN take the largest number.
            return self.nan.unwrap_or(self.largest);
        }
        if relu && sign != 0 {
            return 0;
        }
        // Exact in binary64: the magnitude in units of the last place at its exponent.
        let v = f64::from(f32::from_bits(x & 0x7fff_ffff));
        let exponent = if v == 0.0 { i32::MIN } else { (v.to_bits() >> 52) as i32 - 1023 };
        let unit = exponent.max(1 - self.bias).saturating_sub(self.frac as i32);
        let scaled = v * 2f64.powi(-unit);
        if scaled >= 65536.0 {
            return sign | self.largest;
        }
        let n = scaled.round_ties_even() as u32;
        // A carry into the next power of two runs into the exponent.
        let biased = (unit + self.frac as i32 + self.bias - 1).max(0) as u32;
        let code = (biased << self.frac) + n;
        sign | code.min(self.largest.into()) as u8
    }

    /// The number as binary32.
    pub fn decode(self, code: u8) -> u32 {
        let magnitude = code & ((1 << (self.bits - 1)) - 1);
        let sign = u32::from(code >> (self.bits - 1) & 1) << 31;
        if self == E5M2 && magnitude >= 0x7c {
            return if magnitude == 0x7c { sign | 0x7f80_0000 } else { 0x7fff_ffff };
        }
        if Some(magnitude) == self.nan {
            return 0x7fff_ffff;
        }
        let (e, m) = (i32::from(magnitude >> self.frac), magnitude & ((1 << self.frac) - 1));
        let m = if e == 0 { m.into() } else { f32::from(m | 1 << self.frac) };
        sign | (m * 2f32.powi(e.max(1) - self.bias - self.frac as i32)).to_bits()
    }
}

/// UE8M0: the power of two below or above a magnitude, as a biased exponent; NaN is 0xff, and so is what is too large unless it
/// is clamped (`.satfinite`).
pub fn encode_scale(x: u32, round: Round, satfinite: bool) -> u8 {
    if F32.is_nan(x.into()) {
        return 0xff;
    }
    let magnitude = x & 0x7fff_ffff;
    let (e, rest) = (magnitude >> 23, magnitude & 0x7f_ffff);
    let up = round == Round::Up && rest != 0 && !(e == 0 && rest <= 1 << 22);
    (e + u32::from(up)).min(if satfinite { 254 } else { 255 }) as u8
}

/// The power of two that a UE8M0 stands for.
pub fn decode_scale(code: u8) -> u32 {
    match code {
        0 => 1 << 22,
        0xff => 0x7fff_ffff,
        n => u32::from(n) << 23,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `cuda_fp8.hpp` of CUDA 13.0 computes on the host, which Numba's tests ask for.
    #[test]
    fn scales_that_are_too_large() {
        let infinity = f32::INFINITY.to_bits();
        let above = 2f32.powi(127).to_bits() + 1;
        for (x, round, clamped, not) in [
            (above, Round::Up, 254, 255),
            (above, Round::Zero, 254, 254),
            (above - 1, Round::Up, 254, 254),
            (infinity, Round::Zero, 254, 255),
            (infinity | 1, Round::Up, 255, 255),
        ] {
            assert_eq!(encode_scale(x, round, true), clamped, "{x:#x}");
            assert_eq!(encode_scale(x, round, false), not, "{x:#x}");
        }
    }

    #[test]
    fn every_code_survives() {
        for f in [E4M3, E5M2, E2M1, E2M3, E3M2] {
            for code in 0..1u32 << f.bits {
                let code = code as u8;
                let magnitude = code & ((1 << (f.bits - 1)) - 1);
                if magnitude <= f.largest {
                    assert_eq!(f.encode(f.decode(code), false), code, "{f:?} {code:#x}");
                }
            }
        }
        assert_eq!(E4M3.decode(0x7e), 448f32.to_bits());
        assert_eq!(E2M1.decode(0x7), 6f32.to_bits());
        assert_eq!(E5M2.encode(1e9f32.to_bits(), false), 0x7b);
        assert_eq!(E4M3.encode((-1e-9f32).to_bits(), false), 0x80);
        assert_eq!(E4M3.encode((-1f32).to_bits(), true), 0);
        assert_eq!(E4M3.encode(f32::NAN.to_bits(), false), 0x7f);
    }
}
