//! When a register is in use, and for what: intervals in ascending order, of which no two have a point in common.
//!
//! Most registers have one or two; a web that thousands of values were merged into has thousands. So there is a list for
//! few and a search tree for many: looking up or adding some costs their number, not that of those already there.

use crate::liveness::Segment;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A live interval of one register of a web, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// When.
    pub at: Segment,
    /// Value number: equal numbers are equal contents.
    pub number: u32,
}

/// More intervals than this are in a tree.
const FEW: usize = 32;

/// A list of few: most have room in place.
type List = SmallVec<[Held; 2]>;

/// The intervals of a register.
#[derive(Clone, Debug)]
pub enum Intervals {
    /// By start.
    Few(List),
    /// The same by the start.
    Many(BTreeMap<u32, Held>),
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals::Few(List::new())
    }
}

impl FromIterator<Held> for Intervals {
    /// From intervals in ascending order.
    fn from_iter<I: IntoIterator<Item = Held>>(held: I) -> Intervals {
        Intervals::Few(held.into_iter().collect())
    }
}

impl Intervals {
    /// All of them, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Held> + Clone {
        let (few, many) = match self {
            Intervals::Few(v) => (Some(v.iter()), None),
            Intervals::Many(m) => (None, Some(m.values())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Intervals::Few(v) => v.len(),
            Intervals::Many(m) => m.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first of them.
    pub fn first(&self) -> Option<&Held> {
        match self {
            Intervals::Few(v) => v.first(),
            Intervals::Many(m) => m.values().next(),
        }
    }

    /// Whether the two hold different things at some point.
    pub fn clashes(&self, other: &Intervals) -> bool {
        let some_meets = |few: &Intervals, m: &BTreeMap<u32, Held>| {
            few.iter().any(|h| meeting(m, h.at).any(|other| other.number != h.number))
        };
        match (self, other) {
            (Intervals::Few(a), Intervals::Few(b)) => overlap(a, b),
            (Intervals::Many(a), Intervals::Many(b)) if a.len() < b.len() => some_meets(self, b),
            (Intervals::Many(m), few) | (few, Intervals::Many(m)) => some_meets(few, m),
        }
    }

    /// Adds intervals that hold the same where they overlap; what overlaps becomes one.
    pub fn add(&mut self, other: Intervals) {
        let (mut large, mut small) = (std::mem::take(self), other);
        if large.len() < small.len() {
            std::mem::swap(&mut large, &mut small);
        }
        *self = match (large, small) {
            (Intervals::Few(a), Intervals::Few(b)) if a.len() + b.len() <= FEW => Intervals::Few(union(a, b)),
            (large, small) => {
                let mut m = match large {
                    Intervals::Many(m) => m,
                    Intervals::Few(v) => v.into_iter().map(|h| (h.at.start, h)).collect(),
                };
                small.iter().for_each(|h| insert(&mut m, *h));
                Intervals::Many(m)
            }
        };
    }
}

/// The intervals of a tree that have a point in common with `at`, the last one first.
fn meeting(m: &BTreeMap<u32, Held>, at: Segment) -> impl Iterator<Item = &Held> {
    m.range(..at.end).rev().map(|(_, h)| h).take_while(move |h| h.at.end > at.start)
}

fn insert(m: &mut BTreeMap<u32, Held>, mut held: Held) {
    loop {
        let next = meeting(m, held.at).next().copied();
        let Some(old) = next else { break };
        m.remove(&old.at.start);
        held.at.start = held.at.start.min(old.at.start);
        held.at.end = held.at.end.max(old.at.end);
    }
    m.insert(held.at.start, held);
}

/// Whether two lists hold different things at some point.
fn overlap(a: &[Held], b: &[Held]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.at.start < y.at.end && y.at.start < x.at.end && x.number != y.number {
            return true;
        }
        if x.at.end <= y.at.end { i += 1 } else { j += 1 }
    }
    false
}

/// Both lists, ascending; overlapping ones (which hold the same) become one.
fn union(a: List, b: List) -> List {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b } else { a };
    }
    let mut out = List::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.at.start <= y.at.start => a.next(),
            (_, Some(_)) => b.next(),
            (Some(_), None) => a.next(),
            (None, None) => return out,
        };
        let next = next.expect("peeked");
        match out.last_mut() {
            Some(last) if next.at.start < last.at.end => last.at.end = last.at.end.max(next.at.end),
            _ => out.push(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each point holds.
    fn points(i: &Intervals) -> Vec<Option<u32>> {
        let mut out = vec![None; 400];
        for h in i.iter() {
            for p in h.at.start..h.at.end {
                assert_eq!(out[p as usize], None, "two intervals have a point in common");
                out[p as usize] = Some(h.number);
            }
        }
        out
    }

    fn intervals() -> impl Strategy<Value = Intervals> {
        prop::collection::vec((0u32..6, 1u32..5, 0u32..2), 0..60).prop_map(|list| {
            let mut at = 0;
            let held = list.into_iter().map(|(gap, length, number)| {
                let start = at + gap;
                at = start + length;
                Held { at: Segment { start, end: at }, number }
            });
            held.filter(|h| h.at.end < 400).collect()
        })
    }

    proptest! {
        #[test]
        fn lists_and_trees_agree_with_points(a in intervals(), b in intervals(), c in intervals()) {
            let mut sum = Intervals::default();
            let mut expected = vec![None; 400];
            for next in [a, b, c] {
                let clash = points(&next).iter().zip(&expected).any(|(x, y): (&Option<u32>, &Option<u32>)| {
                    x.is_some() && y.is_some() && x != y
                });
                prop_assert_eq!(sum.clashes(&next), clash);
                prop_assert_eq!(next.clashes(&sum), clash);
                if !clash {
                    expected = points(&next).iter().zip(&expected).map(|(x, y)| x.or(*y)).collect();
                    sum.add(next);
                    prop_assert_eq!(points(&sum), expected.clone());
                }
            }
        }
    }
}
