//! How far a stored number may be from the interpreter's: as far as the error bounds of approximate functions and of fused
//! products reach, which further runs show in which every such result is moved within its bound.

use sim::memory::Memory;
use sim::sparse::Content;

/// Runs with moved results: all upwards, all downwards, and at random.
pub const RUNS: std::ops::RangeInclusive<u64> = 1..=6;

/// How much further than the farthest of the runs a number may be: errors may add up where the runs' cancelled.
const REACH: f64 = 4.0;

/// What the further runs left in memory.
pub struct Tolerance {
    runs: Vec<Memory>,
}

/// A number format: bits, its numbers, and a unit in the last place, relative.
type Format = (u32, fn(u64) -> f64, f64);

const F16: Format = (16, |x| half::f16::from_bits(x as u16).into(), 1.0 / 1024.0);
const BF16: Format = (16, |x| half::bf16::from_bits(x as u16).into(), 1.0 / 128.0);
const F32: Format = (32, |x| f32::from_bits(x as u32).into(), 1.0 / 8_388_608.0);
const F64: Format = (64, f64::from_bits, 1.0 / 4_503_599_627_370_496.0);
/// Integers that are made of such numbers have no error of their own.
const INTEGERS: [Format; 3] =
    [(8, |x| (x as u8).into(), 0.0), (16, |x| (x as u16).into(), 0.0), (32, |x| (x as i32).into(), 0.0)];

impl Tolerance {
    /// Runs with `interpret(n)`; those that fail say nothing.
    pub fn new(interpret: impl Fn(u64) -> Option<Memory>) -> Tolerance {
        Tolerance { runs: RUNS.filter_map(interpret).collect() }
    }

    /// Whether eight bytes at an address may hold `a` where the interpreter has `b`.
    pub fn allows(&self, expected: &Memory, at: u64, a: u64, b: u64) -> bool {
        let runs: Vec<u64> = self.runs.iter().map(|m| m.word(at).unwrap_or(b)).collect();
        let fits = |f: Format| near(f, a, b, &runs);
        match expected.content(at) {
            Some(Content::F32) => fits(F32),
            Some(Content::F64) => fits(F64),
            Some(Content::F16) => fits(F16),
            Some(Content::Bf16) => fits(BF16),
            // Anything may lie there: small negative integers look like NaNs, and must not differ.
            _ => {
                let mut floats = [F32, F64, F16, BF16].into_iter();
                floats.any(|f| fits(f) && same_nans(f, a, b, &runs)) || INTEGERS.into_iter().any(fits)
            }
        }
    }
}

/// Whether the NaNs that both have in the same place are the same bits, or another NaN in some run.
fn same_nans((bits, value, _): Format, a: u64, b: u64, runs: &[u64]) -> bool {
    let part = |x: u64, i: u32| x >> (i * bits) & u64::MAX >> (64 - bits);
    let other = |i: u32, y: u64| runs.iter().map(|r| part(*r, i)).any(|r| r != y && value(r).is_nan());
    (0..64 / bits)
        .map(|i| (i, part(a, i), part(b, i)))
        .all(|(i, x, y)| x == y || !value(x).is_nan() || !value(y).is_nan() || other(i, y))
}

/// Whether every number in `a` is as near to that in `b` as those of the runs are.
fn near((bits, value, unit): Format, a: u64, b: u64, runs: &[u64]) -> bool {
    let mask = u64::MAX >> (64 - bits);
    (0..64 / bits).all(|i| {
        let part = |x: u64| x >> (i * bits) & mask;
        let (x, y) = (value(part(a)), value(part(b)));
        if part(a) == part(b) || x.is_nan() && y.is_nan() || x == y {
            return true;
        }
        let others = || runs.iter().map(|r| value(part(*r)));
        // Where some run overflows or is undefined, so may the code.
        if !x.is_finite() || !y.is_finite() {
            return others().any(|v| !v.is_finite()) && others().chain([y]).any(f64::is_finite);
        }
        let spread = others().filter(|v| v.is_finite()).map(|v| (v - y).abs()).fold(0.0, f64::max);
        // Numbers that nothing moves are those that the code must give; one unit is for sums that are fused.
        (x - y).abs() <= REACH * spread + if spread > 0.0 { unit * y.abs() } else { 0.0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_as_far_off_as_the_runs() {
        let bits = |x: f32| u64::from(x.to_bits());
        let runs = [bits(1.001), bits(0.999)];
        assert!(near(F32, bits(1.003), bits(1.0), &runs));
        assert!(!near(F32, bits(1.006), bits(1.0), &runs));
        // The other half does not move.
        assert!(!near(F32, bits(1.001) | 1 << 32, bits(1.0), &runs));
        assert!(!near(F32, bits(1.001), bits(1.0), &[bits(1.0)]));
        assert!(near(F32, bits(f32::INFINITY), bits(1e38), &[bits(f32::INFINITY)]));
        assert!(!near(F32, bits(f32::NAN), bits(1.0), &runs));
        // -2 and -3, of 64 bits.
        let (x, y) = (-2i64 as u64, -3i64 as u64);
        assert!(near(F64, x, y, &[]) && !same_nans(F64, x, y, &[y]) && same_nans(F64, x, x, &[]));
        assert!(same_nans(F64, x, y, &[y, x]));
        assert!(near(INTEGERS[2], 8, 7, &[7, 8]) && !near(INTEGERS[2], 8, 7, &[7, 7]));
    }
}
