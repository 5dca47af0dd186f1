//! Orders of a part that were made, so that none is made twice: a plan asks for orders under one limit after the other, and most parts come
//! near none of them.

use super::orders::{Ordered, State};
use super::{Counts, FILES};
use std::cell::{OnceCell, RefCell};

/// Orders that are kept of a part, at most.
const KEPT: usize = 6;

/// What was found out about a part.
#[derive(Default)]
pub struct Known {
    /// What the old order needs.
    pub(super) old: OnceCell<Ordered>,
    /// Its instructions where an order begins.
    pub(super) states: OnceCell<Vec<State>>,
    made: RefCell<Vec<Made>>,
}

/// An order that was made from the end.
struct Made {
    under: Between,
    /// Whether anything passes barriers.
    passes: bool,
    ordered: Ordered,
}

/// Limits under which an order is made alike: from these on, and below the others.
#[derive(Clone, Copy)]
pub(super) struct Between {
    from: Counts,
    to: Counts,
}

impl Default for Between {
    fn default() -> Between {
        Between { from: [i32::MIN; FILES], to: [i32::MAX; FILES] }
    }
}

impl Between {
    /// Whether a limit is reached where so many registers are taken, by which the order goes on.
    pub(super) fn reaches(&mut self, file: usize, taken: i32, limit: i32) -> bool {
        let reached = taken >= limit;
        if reached {
            self.to[file] = self.to[file].min(taken + 1);
        } else {
            self.from[file] = self.from[file].max(taken + 1);
        }
        reached
    }

    fn holds(&self, limits: &Counts) -> bool {
        (0..FILES).all(|f| self.from[f] <= limits[f] && limits[f] < self.to[f])
    }
}

impl Known {
    /// An order that is known, if there is one; it may be refused.
    pub(super) fn find(
        &self,
        limits: &Counts,
        passes: bool,
        refuse: impl Fn(&Counts, u32) -> bool,
    ) -> Option<Option<Ordered>> {
        let made = self.made.borrow();
        let found = made.iter().find(|m| m.passes == passes && m.under.holds(limits))?;
        let Ordered { most, cycles, .. } = &found.ordered;
        Some((!refuse(most, *cycles)).then(|| found.ordered.clone()))
    }

    /// Keeps one.
    pub(super) fn keep(&self, under: Between, passes: bool, ordered: &Ordered) {
        let mut made = self.made.borrow_mut();
        if made.len() < KEPT {
            made.push(Made { under, passes, ordered: ordered.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_serves_under_limits_that_change_nothing() {
        let mut under = Between::default();
        assert!(!under.reaches(0, 7, 10));
        assert!(under.holds(&[8, 0, 0, 0]) && under.holds(&[100, 0, 0, 0]) && !under.holds(&[7, 0, 0, 0]));
        assert!(under.reaches(0, 12, 10));
        assert!(under.holds(&[12, 0, 0, 0]) && !under.holds(&[13, 0, 0, 0]));
        let (known, ordered) =
            (Known::default(), Ordered { order: Some(vec![1, 0]), most: [5; 4], cycles: 9 });
        known.keep(under, true, &ordered);
        let find = |limits, passes, most| known.find(limits, passes, |_, cycles| cycles > most);
        assert!(find(&[9, 1, 1, 1], true, 9).flatten().is_some_and(|o| o.order == Some(vec![1, 0])));
        assert!(find(&[9, 1, 1, 1], true, 8).is_some_and(|o| o.is_none()), "refused");
        assert!(find(&[9, 1, 1, 1], false, 9).is_none() && find(&[13, 1, 1, 1], true, 9).is_none());
    }
}
