//! Which threads run when: in turns, or at random so that races show.

use crate::launch::Rng;
use std::fmt;
use std::str::FromStr;

/// How the warps of a block share the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// In turns of many instructions.
    #[default]
    Turns,
    /// A random warp for a random short while, and in it random ones of the threads that can go on.
    Random(u64),
}

/// A word that is no schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSchedule(String);

impl fmt::Display for NoSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is neither 'turns' nor 'random:SEED'", self.0)
    }
}

impl std::error::Error for NoSchedule {}

impl FromStr for Schedule {
    type Err = NoSchedule;

    /// `turns` or `random:SEED`.
    fn from_str(text: &str) -> Result<Schedule, NoSchedule> {
        if text == "turns" {
            return Ok(Schedule::Turns);
        }
        let seed = text.strip_prefix("random:").and_then(|s| s.parse().ok());
        seed.map(Schedule::Random).ok_or_else(|| NoSchedule(text.into()))
    }
}

/// Makes the choices of a schedule.
pub(crate) struct Dice {
    rng: Option<Rng>,
    /// Instructions that a warp gets at most at a time.
    longest: usize,
}

/// Races need some warps far ahead of others to show, or all close together: by turns for schedules in a row.
const LONGEST: [usize; 4] = [24, 8, 250, 6000];

impl Dice {
    pub(crate) fn new(schedule: Schedule) -> Dice {
        match schedule {
            Schedule::Turns => Dice { rng: None, longest: 1 },
            Schedule::Random(seed) => {
                Dice { rng: Some(Rng::new(seed)), longest: LONGEST[(seed % 4) as usize] }
            }
        }
    }
    /// Whether choices are random.
    pub(crate) fn random(&self) -> bool {
        self.rng.is_some()
    }
    /// A number below `n`; 0 without randomness.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.rng.as_mut().map_or(0, |r| (r.next() % n.max(1) as u64) as usize)
    }
    /// Instructions until the next choice, at most `turn`.
    pub(crate) fn turn(&mut self, turn: u32) -> u32 {
        if self.random() { 1 + self.below(self.longest) as u32 } else { turn }
    }
    /// Puts threads that stand at the same place into the order in which they execute.
    pub(crate) fn shuffle(&mut self, lanes: &mut [usize]) {
        if self.random() {
            (1..lanes.len()).rev().for_each(|i| lanes.swap(i, self.below(i + 1)));
        }
    }
    /// The order in which `n` warps get their turns.
    pub(crate) fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        if self.random() {
            (1..n).rev().for_each(|i| order.swap(i, self.below(i + 1)));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        assert_eq!("random:7".parse(), Ok(Schedule::Random(7)));
        assert_eq!("turns".parse(), Ok(Schedule::Turns));
        assert!("random".parse::<Schedule>().is_err());
        let mut order = Dice::new(Schedule::Random(1)).order(8);
        assert_ne!(order, (0..8).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..8).collect::<Vec<_>>());
    }
}
