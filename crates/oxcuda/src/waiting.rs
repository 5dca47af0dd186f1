//! The queue of what waits: what of it could be done is found without comparing each with all in front of it, and without looking
//! again at what nothing has changed for.

use crate::queue::{Item, Lane, Task};
use std::collections::{BTreeMap, HashMap};

/// An executable graph, and a number of its launch.
pub(crate) type Launched = (u64, u64);

/// What waits, in its order.
#[derive(Default)]
pub struct Waiting {
    /// By number, which is the order in which it came.
    items: BTreeMap<u64, Item>,
    /// How many items are of a lane.
    lanes: HashMap<Lane, usize>,
    /// How many of lanes that the shared stream waits for.
    blocking: usize,
    /// How many of an executable graph.
    graphs: HashMap<u64, usize>,
    seen: Seen,
}

/// What is known of the first items, which cannot be done before one of them is gone, or a value is there.
#[derive(Default)]
struct Seen {
    /// The number of the last one.
    last: u64,
    /// Those that wait for a value and for nothing else.
    values: Vec<u64>,
    /// Whose items there are in a lane.
    lanes: HashMap<Lane, Whose>,
    /// Whose there are in lanes that the shared stream waits for.
    blocking: Whose,
}

/// Of which launches of graphs some items are.
#[derive(Clone, Copy, Default)]
enum Whose {
    /// There are none.
    #[default]
    None,
    /// Of this one alone.
    One(Launched),
    /// Of several, or of none.
    Any,
}

impl Whose {
    fn add(&mut self, graph: Option<Launched>) {
        *self = match (*self, graph) {
            (Whose::None, Some(g)) => Whose::One(g),
            (Whose::One(own), Some(g)) if own == g => Whose::One(g),
            _ => Whose::Any,
        };
    }

    /// Whether an item has to wait for them: within a launch of a graph its edges alone count.
    fn before(self, graph: Option<Launched>) -> bool {
        match self {
            Whose::None => false,
            Whose::One(own) => graph != Some(own),
            Whose::Any => true,
        }
    }
}

impl Seen {
    fn holds_up(&self, item: &Item, items: &BTreeMap<u64, Item>) -> bool {
        let of = |lane| self.lanes.get(&lane).copied().unwrap_or_default().before(item.graph);
        let by_lane = item.lane != Lane::None
            && (of(item.lane)
                || item.blocking && of(Lane::Shared)
                || item.lane == Lane::Shared && self.blocking.before(item.graph));
        by_lane || item.after.iter().any(|n| items.contains_key(n))
    }

    fn add(&mut self, item: &Item) {
        self.last = item.number;
        self.lanes.entry(item.lane).or_default().add(item.graph);
        if item.blocking {
            self.blocking.add(item.graph);
        }
    }
}

impl Waiting {
    /// Puts one at the end.
    pub(crate) fn push(&mut self, item: Item) {
        *self.lanes.entry(item.lane).or_default() += 1;
        self.blocking += usize::from(item.blocking);
        if let Some((exec, _)) = item.graph {
            *self.graphs.entry(exec).or_default() += 1;
        }
        self.items.insert(item.number, item);
    }

    /// Takes one away.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Item> {
        let item = self.items.remove(&number)?;
        fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
            if let std::collections::hash_map::Entry::Occupied(mut e) = counts.entry(key) {
                *e.get_mut() -= 1;
                if *e.get() == 0 {
                    e.remove();
                }
            }
        }
        less(&mut self.lanes, item.lane);
        self.blocking -= usize::from(item.blocking);
        if let Some((exec, _)) = item.graph {
            less(&mut self.graphs, exec);
        }
        // Others may have waited for this one.
        self.seen = Seen::default();
        Some(item)
    }

    /// All items.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.items.values()
    }

    /// All items, taken away.
    pub(crate) fn into_items(self) -> impl Iterator<Item = Item> {
        self.items.into_values()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the one of a number is there.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.items.contains_key(&number)
    }

    /// Whether something is of a lane.
    pub(crate) fn is_in(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// Whether what comes to a lane has to wait.
    pub(crate) fn holds_up(&self, lane: Lane, blocking: bool) -> bool {
        self.is_in(lane) || blocking && self.is_in(Lane::Shared) || lane == Lane::Shared && self.blocking > 0
    }

    /// Whether something is of a launch of an executable graph.
    pub(crate) fn is_of(&self, exec: u64) -> bool {
        self.graphs.contains_key(&exec)
    }

    /// Those that wait for a value and for nothing else, among what was looked at.
    pub(crate) fn values(&self) -> &[u64] {
        &self.seen.values
    }

    /// The one of a number, if it waits for a value.
    pub(crate) fn value(&self, number: u64) -> Option<crate::queue::Value> {
        match self.items.get(&number)?.task {
            Task::Value(v) => Some(v),
            _ => None,
        }
    }

    /// The next one that was not looked at since something changed and for which nothing has to be done before: from now on it is
    /// looked at.
    pub(crate) fn next(&mut self) -> Option<&mut Item> {
        let Waiting { items, seen, .. } = self;
        let number = loop {
            let (&number, item) = items.range(seen.last + 1..).next()?;
            let free = !item.running && !seen.holds_up(item, items);
            seen.add(item);
            if free {
                if matches!(item.task, Task::Value(_)) {
                    seen.values.push(number);
                }
                break number;
            }
        };
        self.items.get_mut(&number)
    }
}
