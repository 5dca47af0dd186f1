//! Numbers in launch files: integers are exact, whatever their size.

use crate::launch::Elem;
use serde::Deserialize;
use std::fmt;

/// A number as the file has it.
#[derive(Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(untagged)]
pub enum Number {
    /// Without point and exponent; the upper half of the unsigned 64-bit numbers is written as negative ones.
    Int(i64),
    /// With one of them.
    Float(f64),
}

impl From<f64> for Number {
    fn from(x: f64) -> Number {
        Number::Float(x)
    }
}

impl Number {
    /// As a floating-point number.
    pub fn float(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::Float(x) => x,
        }
    }
    /// As an integer, cut off if need be.
    fn integer(self) -> i128 {
        match self {
            Number::Int(n) => n.into(),
            Number::Float(x) => x as i128,
        }
    }
    /// The bits as an element of this type.
    pub fn bits(self, ty: Elem) -> u64 {
        match ty {
            Elem::F32 => u64::from((self.float() as f32).to_bits()),
            Elem::F64 => self.float().to_bits(),
            _ => self.integer() as u64,
        }
    }
    /// `self + step · i`, exact if all are integers.
    pub fn stepped(self, step: Number, i: usize) -> Number {
        match (self, step) {
            (Number::Int(a), Number::Int(b)) => Number::Int(a.wrapping_add(b.wrapping_mul(i as i64))),
            _ => Number::Float(self.float() + step.float() * i as f64),
        }
    }
    /// What is wrong with it as an element of this type.
    ///
    /// # Errors
    /// When the type has no such number.
    pub fn check(self, ty: Elem) -> Result<(), NumberError> {
        match self {
            Number::Float(x) if !(ty.is_float() || x.fract() == 0.0 && x.abs() < 2f64.powi(64)) => {
                Err(NumberError::Fraction(x))
            }
            _ if ty.is_float() || ty.size() == 8 => Ok(()),
            n => {
                let bits = 8 * ty.size();
                let within = (-1i128 << (bits - 1)..1i128 << bits).contains(&n.integer());
                if within { Ok(()) } else { Err(NumberError::Width { number: n.integer(), bits }) }
            }
        }
    }
}

/// Why a number, or a range of them, is not there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NumberError {
    /// It is no integer, or not one that has bits.
    Fraction(f64),
    /// It does not fit its type.
    Width {
        /// The number.
        number: i128,
        /// Bits of the type.
        bits: usize,
    },
    /// The bounds of a range are no integers.
    Range(f64, f64),
    /// There is nothing in a range.
    Empty(f64, f64),
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NumberError::Fraction(x) => write!(f, "{x} is no integer"),
            NumberError::Width { number, bits } => write!(f, "{number} does not fit into {bits} bits"),
            NumberError::Range(a, b) => write!(f, "a range from {a} to {b}"),
            NumberError::Empty(a, b) => write!(f, "a range from {a} to {b}, which is empty"),
        }
    }
}

impl std::error::Error for NumberError {}

/// Integers from the first to the second, both included; the numbers of values is at least one.
///
/// # Errors
/// When there are none, or the bounds are no integers.
pub fn span(low: Number, high: Number) -> Result<u128, NumberError> {
    let (a, b) = (low.float(), high.float());
    if !a.is_finite() || !b.is_finite() || a.abs() >= 2f64.powi(64) || b.abs() >= 2f64.powi(64) {
        return Err(NumberError::Range(a, b));
    }
    match high.integer() - low.integer() {
        n if n >= 0 => Ok(n as u128 + 1),
        _ => Err(NumberError::Empty(a, b)),
    }
}

/// The number `offset` above an integer.
pub fn above(low: Number, offset: u128) -> i128 {
    low.integer() + offset as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_64_bits_are_exact() {
        assert_eq!(Number::Int(i64::MAX).bits(Elem::I64), i64::MAX as u64);
        assert_eq!(Number::Int(-1).bits(Elem::U64), u64::MAX);
        assert_eq!(Number::Int(1 << 60).stepped(Number::Int(1), 3).bits(Elem::I64), (1 << 60) + 3);
        assert_eq!(Number::Int(3).bits(Elem::F32), u64::from(3f32.to_bits()));
        assert_eq!(Number::Float(-3.0).bits(Elem::I16), -3i64 as u64);
    }

    #[test]
    fn what_a_type_does_not_have_is_refused() {
        assert!(Number::Int(255).check(Elem::U8).is_ok() && Number::Int(-128).check(Elem::U8).is_ok());
        assert!(Number::Int(256).check(Elem::U8).is_err() && Number::Int(-129).check(Elem::U8).is_err());
        assert!(Number::Float(0.5).check(Elem::I32).is_err() && Number::Float(0.5).check(Elem::F32).is_ok());
        assert!(Number::Float(f64::INFINITY).check(Elem::I64).is_err());
        assert!(span(0.0.into(), f64::INFINITY.into()).is_err());
        assert!(span(Number::Int(1), Number::Int(0)).is_err());
        assert_eq!(span(Number::Int(i64::MIN), Number::Int(i64::MAX)), Ok(1 << 64));
    }
}
