//! What is chosen for one function alone, where a search found that it makes better code there: it changes how fast code is, and never
//! what it does.

use crate::Phase;
use std::fmt;
use std::str::FromStr;

/// Choices for a function; [`Tuning::default`] is what holds for all.
///
/// As text, parts with ':' between them: `without=PHASE+PHASE`, `registers=N`, `unroll=N`, `latency=CYCLES`, `order=N`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tuning {
    /// Names of the phases that are left out, in order.
    pub without: Vec<Box<str>>,
    /// Registers to aim at ([`crate::Function::aim_regs`]); 0: what leaves room for as many threads as there can be.
    pub registers: u8,
    /// Loops are unrolled to 2 to this power times as many instructions as usual.
    pub unroll: i8,
    /// Cycles that loads from global memory are expected to take; 0: as always.
    pub latency: u16,
    /// Which of many orders instructions get that are about as urgent; 0: that of the program.
    pub order: u16,
}

/// Cycles that loads from global memory are expected to take.
const LATENCY: u32 = 300;
/// Registers that may be aimed at.
const REGISTERS: std::ops::RangeInclusive<u8> = 16..=255;
/// Powers of two that loops may be unrolled more or less by.
const UNROLL: std::ops::RangeInclusive<i8> = -4..=2;

impl Tuning {
    /// The same without a phase, if code is right without it.
    #[must_use]
    pub fn leaving_out(mut self, phase: Phase) -> Tuning {
        self.leave_out(phase.name());
        self
    }

    fn leave_out(&mut self, name: &str) {
        if let Err(at) = self.without.binary_search_by(|n| (**n).cmp(name)) {
            self.without.insert(at, name.into());
        }
    }

    /// Whether a phase is left out.
    pub fn leaves_out(&self, phase: Phase) -> bool {
        self.without.iter().any(|n| **n == *phase.name())
    }

    /// Cycles that loads from global memory are expected to take.
    pub fn global_latency(&self) -> u32 {
        if self.latency == 0 { LATENCY } else { self.latency.into() }
    }

    /// A limit on the size of unrolled loops.
    pub fn unrolled(&self, usual: u64) -> u64 {
        let unroll = self.unroll.clamp(*UNROLL.start(), *UNROLL.end());
        if unroll < 0 { usual >> -unroll } else { usual << unroll }
    }

    /// Cycles by which the `k`th instruction of a stretch counts as more urgent than it is.
    pub fn nudge(&self, k: u32) -> u32 {
        if self.order == 0 {
            return 0;
        }
        // A few cycles, or many, by turns.
        let most = [24, 4][usize::from(self.order % 2)];
        let mut hash = u64::from(self.order) << 32 | u64::from(k);
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53u64] {
            hash = (hash ^ hash >> 33).wrapping_mul(factor);
        }
        (hash >> 40) as u32 % most
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuning { without, registers, unroll, latency, order } = self;
        let mut parts = Vec::new();
        if !without.is_empty() {
            parts.push(format!("without={}", without.join("+")));
        }
        let numbers = [
            ("registers", i32::from(*registers)),
            ("unroll", i32::from(*unroll)),
            ("latency", i32::from(*latency)),
            ("order", i32::from(*order)),
        ];
        parts.extend(numbers.iter().filter(|n| n.1 != 0).map(|(name, n)| format!("{name}={n}")));
        f.write_str(&parts.join(":"))
    }
}

/// What is wrong with a text of choices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TuningError {
    /// A choice without `=`.
    NoValue(String),
    /// A choice has no such value.
    Value {
        /// Its name.
        of: String,
        /// What was said.
        value: String,
    },
    /// There is no phase of this name.
    Phase(String),
    /// So many registers do not exist.
    Registers,
    /// So far nothing is unrolled.
    Unroll,
    /// There is no choice of this name.
    Choice(String),
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TuningError::NoValue(part) => write!(f, "'{part}' has no value"),
            TuningError::Value { of, value } => write!(f, "'{value}' is no value of '{of}'"),
            TuningError::Phase(name) => write!(f, "no phase '{name}'"),
            TuningError::Registers => write!(f, "'registers' is between {} and 255", REGISTERS.start()),
            TuningError::Unroll => {
                write!(f, "'unroll' is between {} and {}", UNROLL.start(), UNROLL.end())
            }
            TuningError::Choice(name) => write!(f, "no choice '{name}'"),
        }
    }
}

impl std::error::Error for TuningError {}

impl FromStr for Tuning {
    type Err = TuningError;

    /// Reads what was written by [`Tuning`]'s `Display`: names of phases are taken as they are.
    fn from_str(text: &str) -> Result<Tuning, TuningError> {
        Tuning::default().read(text, |tuning, phase| {
            tuning.leave_out(phase);
            true
        })
    }
}

impl Tuning {
    /// These choices and what a text says besides, of these phases; where it says another number, that counts.
    ///
    /// # Errors
    /// What is no choice.
    pub fn and(self, text: &str, phases: &[Phase]) -> Result<Tuning, TuningError> {
        self.read(text, |tuning, name| {
            let mut named = phases.iter().filter(|p| p.is_named(name)).peekable();
            let known = named.peek().is_some();
            named.for_each(|p| tuning.leave_out(p.name()));
            known
        })
    }

    /// `leave_out` leaves out the phases of a name, and says whether there are such.
    fn read(self, text: &str, leave_out: impl Fn(&mut Tuning, &str) -> bool) -> Result<Tuning, TuningError> {
        let mut tuning = self;
        for part in text.split(':').filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| TuningError::NoValue(part.into()))?;
            let wrong = |_| TuningError::Value { of: name.into(), value: value.into() };
            match name {
                "without" => {
                    for phase in value.split('+') {
                        if !leave_out(&mut tuning, phase) {
                            return Err(TuningError::Phase(phase.into()));
                        }
                    }
                }
                "registers" => {
                    tuning.registers = value.parse().map_err(wrong)?;
                    if !REGISTERS.contains(&tuning.registers) {
                        return Err(TuningError::Registers);
                    }
                }
                "unroll" => {
                    tuning.unroll = value.parse().map_err(wrong)?;
                    if !UNROLL.contains(&tuning.unroll) {
                        return Err(TuningError::Unroll);
                    }
                }
                "latency" => tuning.latency = value.parse().map_err(wrong)?,
                "order" => tuning.order = value.parse().map_err(wrong)?,
                _ => return Err(TuningError::Choice(name.into())),
            }
        }
        Ok(tuning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINK: Phase = Phase::optional(2, "sink", "LateArchOptimizeFirst", "");
    const UNROLL_PHASE: Phase = Phase::optional(2, "unroll", "OriLoopUnrolling", "");
    const GVN: Phase = Phase::optional(2, "gvn", "GvnCse", "");
    const ALL: &[Phase] = &[SINK, UNROLL_PHASE, GVN];

    fn read(text: &str) -> Result<Tuning, TuningError> {
        Tuning::default().and(text, ALL)
    }

    #[test]
    fn text() {
        assert_eq!(Tuning::default().to_string(), "");
        let all = Tuning { registers: 48, unroll: -1, latency: 30, order: 7, ..Tuning::default() }
            .leaving_out(SINK)
            .leaving_out(UNROLL_PHASE);
        assert_eq!(all.to_string(), "without=sink+unroll:registers=48:unroll=-1:latency=30:order=7");
        assert_eq!(read(&all.to_string()), Ok(all.clone()));
        assert_eq!(all.to_string().parse(), Ok(all.clone()));
        assert_eq!(read(""), Ok(Tuning::default()));
        let more = all.and("order=2:without=gvn", ALL).unwrap();
        assert!(more.leaves_out(GVN) && more.leaves_out(SINK) && more.order == 2 && more.registers == 48);
        for wrong in [
            "registers=15",
            "without=nothing",
            "registers",
            "registers=256",
            "unroll=3",
            "order=-1",
            "speed=9",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn orders_differ() {
        let nudges =
            |order| (0..64).map(|k| Tuning { order, ..Tuning::default() }.nudge(k)).collect::<Vec<_>>();
        assert!(nudges(0).iter().all(|n| *n == 0));
        assert!(nudges(1).iter().all(|n| *n < 4) && nudges(2).iter().all(|n| *n < 24));
        assert_ne!(nudges(1), nudges(3));
    }
}
