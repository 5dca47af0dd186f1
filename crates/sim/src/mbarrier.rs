//! Barriers in shared memory that count arrivals and bytes.
//!
//! PTX calls the object opaque. Code for sm_90 and later makes the first value itself, and takes the missing
//! arrivals out of the state that an arrival returns, which tells the layout, from bit 0: an unused bit; 2^20
//! less the expected arrivals, 20 bits; the bytes still to come, 22 bits, signed; 2^20 less the arrivals that
//! are missing, 20 bits, whose carry is bit 63, the phase.

const COUNT: u64 = (1 << 20) - 1;
const BYTES: u64 = (1 << 22) - 1;

/// An object's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Barrier {
    /// Arrivals of the next phases.
    pub(crate) expected: u64,
    /// Arrivals that this phase waits for.
    pub(crate) missing: u64,
    /// Bytes that this phase waits for.
    pub(crate) bytes: i64,
    /// Number of the phase, its lowest bit.
    pub(crate) phase: bool,
}

impl Barrier {
    /// A barrier for so many arrivals.
    pub(crate) fn new(count: u64) -> Barrier {
        Barrier { expected: count & COUNT, missing: count & COUNT, bytes: 0, phase: false }
    }
    /// From its bits.
    pub(crate) fn of(x: u64) -> Barrier {
        let count = |at: u32| ((1 << 20) - (x >> at & COUNT)) & COUNT;
        Barrier { expected: count(1), missing: count(43), bytes: (x << 21) as i64 >> 42, phase: x >> 63 != 0 }
    }
    /// Its bits.
    pub(crate) fn bits(self) -> u64 {
        let count = |n: u64| ((1 << 20) - n) & COUNT;
        count(self.expected) << 1
            | (self.bytes as u64 & BYTES) << 21
            | count(self.missing) << 43
            | u64::from(self.phase) << 63
    }
    /// After arrivals (`leaving` of them for good) and `bytes` more to come; `None` if not so many are missing.
    pub(crate) fn arrive(self, arrivals: u64, leaving: u64, bytes: i64) -> Option<Barrier> {
        let next = Barrier {
            missing: self.missing.checked_sub(arrivals)?,
            expected: self.expected.checked_sub(leaving)?,
            bytes: self.bytes + bytes,
            ..self
        };
        // Ends the phase if nothing is missing.
        Some(match next {
            Barrier { missing: 0, bytes: 0, .. } => {
                Barrier { phase: !next.phase, missing: next.expected, ..next }
            }
            _ => next,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_code_makes_is_understood() {
        let n = 5u64;
        let init = ((1 << 20) - n) << 1 | ((1 << 20) - n) << 11 << 32;
        let b = Barrier::of(init);
        assert_eq!(b, Barrier::new(5));
        assert_eq!(b.bits(), init);
        assert_eq!(b.arrive(5, 1, 0), Some(Barrier { phase: true, expected: 4, missing: 4, ..b }));
        assert_eq!(b.arrive(6, 0, 0), None);
        let waits = b.arrive(5, 0, 48).unwrap();
        assert_eq!((waits.phase, waits.bytes), (false, 48));
        assert_eq!(Barrier::of(waits.bits()), waits);
        assert!(waits.arrive(0, 0, -48).unwrap().phase);
    }
}
