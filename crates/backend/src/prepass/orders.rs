//! Orders of a part: from its end, from its start, as it was; and what each needs.

use super::graph::{Node, Part};
use super::known::Between;
use super::{Counts, FILES, HEADROOM};
use ori::Tuning;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Instructions that are looked at for a file other than R.
const LOOK: usize = 64;
/// Instructions that are looked at for one that need not wait.
const AHEAD: usize = 24;
/// Cycles that a value takes that has no register, about: it is stored and brought back.
const SPILL: u32 = 60;
/// Registers beyond the limit that orders are offered where values have to leave theirs.
const MORE: [i32; 4] = [2, 4, 8, 16];
/// Cycles that a value of another file takes that has no register: it is made a general one, and back.
const OTHERS: u32 = 30;
/// So many predicates that find no room come and go where general registers are not needed: fewer are missing in the end, as the last order of a block
/// waits less for each than this one thinks.
const PASSING: i32 = 26;
/// So many registers of the other files below their limits orders are tried with, where they do not reach.
const FEWER: i32 = 3;
/// Where so many registers are missing, only few orders are tried.
const MUCH: i32 = 8;

/// An order of a part.
#[derive(Clone)]
pub struct Ordered {
    /// The numbers of its instructions; `None`: as they were.
    pub order: Option<Vec<u32>>,
    /// The most registers live at once.
    pub most: Counts,
    /// Cycles that it takes alone, about.
    pub cycles: u32,
}

impl Ordered {
    /// What is better is less: no register of R missing, those for many predicates among them; then time, with what those take that are missing of other files; then registers.
    fn rank(&self, limits: &Counts) -> Rank {
        rank(&self.most, self.cycles, limits)
    }
}

/// See [`Ordered::rank`].
type Rank = (i32, u32, i32);

fn rank(most: &Counts, cycles: u32, limits: &Counts) -> Rank {
    let missing = |f: usize| (most[f] - limits[f]).max(0);
    let others: i32 = (1..FILES).map(missing).sum();
    // Predicates that find no room are kept in general registers.
    let kept = (missing(1) - PASSING).max(0);
    let lacking = (most[0] + kept - limits[0]).max(0);
    (lacking, cycles + OTHERS * others as u32, most[0])
}

/// The best order of a part under limits.
pub fn best(part: &Part, limits: &Counts, tuning: &Tuning) -> Ordered {
    search(part, limits, tuning, None)
}

/// Finds the best order of a part. If that is only for how many general registers are missing, and so few are `enough`: one with which no more are, or
/// as few as with the best.
fn search(part: &Part, limits: &Counts, tuning: &Tuning, enough: Option<i32>) -> Ordered {
    let old = part.known.old.get_or_init(|| measured(part, None)).clone();
    let missing = |most: &Counts| (most[0] - limits[0]).max(0);
    let is_enough = |s: &Ordered| enough.is_some_and(|e| missing(&s.most) <= e);
    if is_enough(&old) || part.nodes.len() < 2 {
        return old;
    }
    let whole = back(part, tuning, limits, true, |_, _| false);
    let mut first = whole.expect("an order that nothing refuses");
    // The better one of an order and another; that is given up where what is known of it is no better already.
    let better = |s: Ordered, with: &Counts, passes: bool, rank: &dyn Fn(&Counts, u32) -> Rank| {
        let than = rank(&s.most, s.cycles);
        back(part, tuning, with, passes, |most, cycles| rank(most, cycles) >= than).unwrap_or(s)
    };
    if part.nodes.last().is_some_and(|n| n.stretch > 0) {
        // Where much may pass barriers, it may be too much.
        first = better(first, limits, false, &|most, cycles| rank(most, cycles, limits));
    }
    let over = first.most[0] - limits[0];
    let tight = first.most[0] + HEADROOM > limits[0];
    let others: Vec<usize> = (1..FILES).filter(|f| first.most[*f] > limits[*f]).collect();
    let mut best = if first.rank(limits) <= old.rank(limits) { first } else { old };
    if is_enough(&best) {
        return best;
    }
    let rank = |most: &Counts, cycles: u32| match enough {
        Some(_) => (missing(most), 0, 0),
        None => rank(most, cycles, limits),
    };
    let better = |s, with: &Counts| better(s, with, true, &rank);
    if !others.is_empty() {
        // Predicates, say: what one instruction takes at once isn't foreseen, as two that each need one more.
        for fewer in 1..=FEWER {
            let mut lower = *limits;
            others.iter().for_each(|f| lower[*f] -= fewer);
            best = better(best, &lower);
        }
    }
    let from_start = |best: Ordered, limit: i32| {
        let (missing, time, _) = best.rank(limits);
        // With more registers than so many it is no better, or in more time where fewer can't be missing.
        let most = (limits[0] + missing, if missing == 0 { time } else { u32::MAX });
        let Some(order) = forth(part, limit, most) else { return best };
        let s = measured(part, Some(order));
        if s.rank(limits) < best.rank(limits) { s } else { best }
    };
    if over > 0 {
        // Where registers are short, order is by them alone, but what was begun is live. So begin with that sooner; or stay near
        // the old order.
        best = from_start(best, limits[0]);
        if over <= MUCH {
            let lower = [limits[0] - over, limits[1], limits[2], limits[3]];
            best = better(best, &lower);
            best = from_start(best, lower[0]);
        }
    }
    if tight && over <= 0 {
        // Registers were spared near the limit. Later than that may be in time, and takes less time.
        for k in 1..=HEADROOM {
            let higher = [limits[0] + k, limits[1], limits[2], limits[3]];
            best = better(best, &higher);
        }
        best = from_start(best, limits[0]);
    }
    best
}

/// How many general registers are missing in the best order of a part; a number up to `enough` if no more are.
pub fn missing(part: &Part, limits: &Counts, tuning: &Tuning, enough: i32) -> i32 {
    search(part, limits, tuning, Some(enough)).most[0] - limits[0]
}

/// The best order of a part where values have to leave their registers in any order: how often they do counts then, beside time.
/// `best` is what [`best`] found.
pub fn spilling(part: &Part, limits: &Counts, tuning: &Tuning, best: Ordered) -> Ordered {
    let others = |most: &Counts| (1..FILES).map(|f| (most[f] - limits[f]).max(0)).sum::<i32>();
    let cost = |s: &Ordered| (others(&s.most), s.cycles + SPILL * leaving(part, s, limits[0]));
    if part.nodes.len() < 2 {
        return best;
    }
    let mut best = (cost(&best), best);
    for k in MORE {
        let higher = [limits[0] + k, limits[1], limits[2], limits[3]];
        // What is missing of other files, and time, are no less in the end.
        let refuse = |most: &Counts, cycles: u32| (others(most), cycles) >= best.0;
        let Some(found) = back(part, tuning, &higher, true, refuse) else { continue };
        let new = cost(&found);
        if new < best.0 {
            best = (new, found);
        }
    }
    best.1
}

/// How many general registers beyond the limit come to be needed in an order, each time that more are: so often values leave theirs.
fn leaving(part: &Part, ordered: &Ordered, limit: i32) -> u32 {
    let mut live = Live::at_end(part);
    let (mut most, mut sum) = (live.count, 0);
    let mut beyond = (live.count[0] - limit).max(0);
    let mut step = |n: &Node| {
        live.step(n, &mut most);
        // From the end: fewer before is more behind.
        let before = (live.count[0] - limit).max(0);
        sum += (beyond - before).max(0) as u32;
        beyond = before;
    };
    match &ordered.order {
        Some(order) => order.iter().rev().for_each(|k| step(&part.nodes[*k as usize])),
        None => part.nodes.iter().rev().for_each(step),
    }
    sum
}

/// What an order needs.
fn measured(part: &Part, order: Option<Vec<u32>>) -> Ordered {
    let mut live = Live::at_end(part);
    let mut most = live.count;
    match &order {
        Some(order) => order.iter().rev().for_each(|k| live.step(&part.nodes[*k as usize], &mut most)),
        None => part.nodes.iter().rev().for_each(|n| live.step(n, &mut most)),
    }
    let cycles = match &order {
        Some(order) => cycles(&part.nodes, order.iter().copied()),
        None => cycles(&part.nodes, 0..part.nodes.len() as u32),
    };
    Ordered { order, most, cycles }
}

/// Cycles from the first instruction of a part to its last in this order, where nothing else is in the way.
fn cycles(nodes: &[Node], order: impl Iterator<Item = u32>) -> u32 {
    let mut start: Vec<u32> = vec![0; nodes.len()];
    let (mut next, mut last, mut pipe) = (0, 0, 0);
    for k in order {
        let node = &nodes[k as usize];
        let ready = node.preds.iter().map(|(p, latency)| start[*p as usize] + latency);
        let mut at = ready.max().unwrap_or(0).max(next);
        if node.pace > 0 {
            at = at.max(pipe);
            pipe = at + node.pace;
        }
        start[k as usize] = at;
        next = at + 1;
        last = last.max(at + node.end);
    }
    next.max(last)
}

/// What is live while an order is made from the end.
struct Live<'a> {
    files: &'a [u8],
    is: Vec<bool>,
    count: Counts,
}

impl<'a> Live<'a> {
    fn at_end(part: &'a Part) -> Live<'a> {
        Live { files: &part.files, is: part.live.clone(), count: part.count }
    }

    /// Steps backward over an instruction; the most that is live on the way.
    fn step(&mut self, node: &Node, most: &mut Counts) {
        // A result that nobody reads has a register for a moment.
        node.defs.iter().for_each(|l| self.set(*l, true));
        (0..FILES).for_each(|f| most[f] = most[f].max(self.count[f]));
        node.defs.iter().for_each(|l| self.set(*l, false));
        node.uses.iter().for_each(|l| self.set(*l, true));
        (0..FILES).for_each(|f| most[f] = most[f].max(self.count[f]));
    }

    fn set(&mut self, l: u32, live: bool) {
        if std::mem::replace(&mut self.is[l as usize], live) != live
            && let Some(c) = self.count.get_mut(usize::from(self.files[l as usize]))
        {
            *c += if live { 1 } else { -1 };
        }
    }

    /// How many of these registers of a file are live, or are not.
    fn which(&self, of: &[u32], file: u8, live: bool) -> i32 {
        of.iter().filter(|l| self.files[**l as usize] == file && self.is[**l as usize] == live).count() as i32
    }
}

/// An instruction while an order is made from the end.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// Successors that have no place yet.
    succs: u32,
    /// Cycles from the end, at least.
    ready: u32,
    /// Cycles from its start to the end, as far as what stands behind it says that.
    tail: u32,
    /// General registers that are live more, before it than behind it.
    net: i32,
    depth: u32,
    /// The files that it touches, by bits.
    touches: u8,
    /// Whether it may go next, and where it is among those that may.
    open: bool,
    place: u32,
}

impl State {
    /// Those of a part's instructions at its end.
    fn of(part: &Part, tuning: &Tuning) -> Vec<State> {
        let live = Live::at_end(part);
        let file = |l: &u32| 1u8.checked_shl(part.files[*l as usize].into()).unwrap_or(0);
        let state = |(k, n): (u32, &Node)| State {
            succs: n.succs,
            ready: n.end,
            tail: n.end.max(1),
            net: live.which(&n.uses, 0, false),
            depth: n.depth + tuning.nudge(k),
            touches: n.uses.iter().chain(&n.defs).fold(0, |all, l| all | file(l)),
            open: false,
            place: 0,
        };
        (0..).zip(&part.nodes).map(state).collect()
    }
}

/// An order made from the end: while there is room, the longest way first. Whether anything `passes` barriers.
/// None if an order is refused by the registers that it needs, and its cycles, or by fewer of both.
fn back(
    part: &Part,
    tuning: &Tuning,
    limits: &Counts,
    passes: bool,
    refuse: impl Fn(&Counts, u32) -> bool,
) -> Option<Ordered> {
    if let Some(known) = part.known.find(limits, passes, &refuse) {
        return known;
    }
    let states = part.known.states.get_or_init(|| State::of(part, tuning));
    let mut under = Between::default();
    let mut live = Live::at_end(part);
    let nodes = &part.nodes;
    let mut list = Ready { states: states.to_vec(), ..Ready::default() };
    let mut stretches = Stretches::new(nodes, passes);
    for k in (0..nodes.len() as u32).filter(|k| nodes[*k as usize].succs == 0) {
        if stretches.admits(nodes, k) {
            list.admit(&live, &nodes[k as usize], k);
        }
    }
    let mut order = Vec::with_capacity(nodes.len());
    let mut cycle = 0;
    let mut most = live.count;
    // Cycles to the end from the start of what went last, and from that of the last product of matrices.
    let (mut behind, mut product) = (0, None);
    // Cycles of all, at least: as the longest way says, or as each takes one.
    let longest = nodes.iter().map(|n| n.depth + n.end).max().unwrap_or(0);
    let mut cycles = longest.max(nodes.len() as u32);
    while let Some(k) = list.choose(nodes, &live, limits, &mut under, &mut cycle) {
        list.remove(k);
        order.push(k);
        let node = &nodes[k as usize];
        // What becomes live with it costs its other readers nothing any more.
        for l in node.uses.iter().filter(|l| live.files[**l as usize] == 0 && !live.is[**l as usize]) {
            part.readers[*l as usize].iter().filter(|u| **u != k).for_each(|u| list.cheaper(*u));
        }
        live.step(node, &mut most);
        behind = (behind + 1).max(list.states[k as usize].tail);
        if node.pace > 0 {
            list.product = Some(cycle);
            behind = behind.max(product.map_or(0, |p: u32| p + node.pace));
            product = Some(behind);
        }
        // What has no place yet stands in front of it.
        cycles = cycles.max(behind + node.depth.max((nodes.len() - order.len()) as u32));
        if refuse(&most, cycles) {
            return None;
        }
        for (p, latency) in &node.preds {
            let n = &mut list.states[*p as usize];
            n.ready = n.ready.max(cycle + latency);
            n.tail = n.tail.max(behind + latency);
            n.succs -= 1;
            if n.succs == 0 && stretches.admits(nodes, *p) {
                list.admit(&live, &nodes[*p as usize], *p);
            }
        }
        for k in stretches.step() {
            list.admit(&live, &nodes[k as usize], k);
        }
        cycle += 1;
    }
    debug_assert_eq!(order.len(), nodes.len(), "dependences are acyclic");
    order.reverse();
    debug_assert_eq!(cycles, self::cycles(nodes, order.iter().copied()), "from the end as from the start");
    let found = Ordered { order: Some(order), most, cycles };
    part.known.keep(under, passes, &found);
    Some(found)
}

/// What is between two barriers, where nothing passes them, from the last: the rest waits until all of it has its place.
struct Stretches {
    /// How many of each have no place yet; none where instructions pass.
    left: Vec<u32>,
    waiting: Vec<Vec<u32>>,
}

impl Stretches {
    fn new(nodes: &[Node], passes: bool) -> Stretches {
        let count = if passes { 0 } else { nodes.last().map_or(0, |n| n.stretch as usize + 1) };
        let mut left = vec![0; count];
        if !passes {
            nodes.iter().for_each(|n| left[n.stretch as usize] += 1);
        }
        Stretches { left, waiting: vec![Vec::new(); count] }
    }

    /// Whether an instruction may go now; it comes from [`Self::step`] otherwise.
    fn admits(&mut self, nodes: &[Node], k: u32) -> bool {
        let stretch = nodes[k as usize].stretch as usize;
        let now = stretch + 1 >= self.left.len();
        if !now {
            self.waiting[stretch].push(k);
        }
        now
    }

    /// One of the last stretch has its place; what may go for that.
    fn step(&mut self) -> Vec<u32> {
        let Some(left) = self.left.last_mut() else { return Vec::new() };
        *left -= 1;
        let mut next = Vec::new();
        while self.left.last() == Some(&0) {
            self.left.pop();
            self.waiting.pop();
            next.extend(self.waiting.last_mut().map(std::mem::take).unwrap_or_default());
        }
        next
    }
}

/// An order made from the start: the first instruction of the old order that need not wait and for which there are
/// registers, then the first that waits least; where registers are short, the first of all. None if it takes more general registers or cycles
/// than these.
fn forth(part: &Part, limit: i32, (most, cycles): (i32, u32)) -> Option<Vec<u32>> {
    let nodes = &part.nodes;
    // How many instructions to come read a register; one more for what lives at the end.
    let mut readers: Vec<u32> =
        part.readers.iter().zip(&part.live).map(|(r, live)| r.len() as u32 + u32::from(*live)).collect();
    let mut succs: Vec<SmallVec<[(u32, u32); 4]>> = nodes.iter().map(|_| SmallVec::new()).collect();
    let mut waits: Vec<u32> = vec![0; nodes.len()];
    for (k, n) in (0u32..).zip(nodes) {
        for (p, latency) in &n.preds {
            succs[*p as usize].push((k, *latency));
            waits[k as usize] += 1;
        }
    }
    let mut at: Vec<u32> = vec![0; nodes.len()];
    let mut open: BTreeSet<u32> = (0..nodes.len() as u32).filter(|k| waits[*k as usize] == 0).collect();
    let general = |l: &&u32| part.files[**l as usize] == 0;
    // What is live at the start.
    let mut start = Live::at_end(part);
    nodes.iter().rev().for_each(|n| start.step(n, &mut [0; FILES]));
    let mut count = start.count[0];
    let (mut order, mut cycle) = (Vec::with_capacity(nodes.len()), 0);
    while let Some(&first) = open.first() {
        let change = |k: u32| {
            let n = &nodes[k as usize];
            let left = |l: &u32| readers[*l as usize];
            let more = n.defs.iter().filter(general).filter(|l| left(l) > 0).count();
            more as i32 - n.uses.iter().filter(general).filter(|l| left(l) == 1).count() as i32
        };
        let room = |k: &u32| *k == first || count + change(*k).max(0) + HEADROOM <= limit;
        let some = open.iter().copied().take(AHEAD);
        let now = some.clone().filter(|k| at[*k as usize] <= cycle).find(room);
        let k = now.or_else(|| some.filter(room).min_by_key(|k| at[*k as usize])).unwrap_or(first);
        open.remove(&k);
        order.push(k);
        count += change(k);
        let begun = cycle.max(at[k as usize]);
        if count > most || begun as usize + nodes.len() - order.len() >= cycles as usize {
            return None;
        }
        nodes[k as usize].uses.iter().for_each(|l| readers[*l as usize] -= 1);
        cycle = begun + 1;
        for (s, latency) in &succs[k as usize] {
            at[*s as usize] = at[*s as usize].max(begun + latency);
            waits[*s as usize] -= 1;
            if waits[*s as usize] == 0 {
                open.insert(*s);
            }
        }
    }
    Some(order)
}

/// By what an instruction is chosen where registers are short: what costs fewest first, then what is ready, has the longest way to the
/// start, and stands last. One number, as that is compared at once.
type Cost = u128;

/// Two numbers as one, the first counts more.
fn pair(a: u32, b: u32) -> u64 {
    u64::from(a) << 32 | u64::from(b)
}

/// Instructions that may go next. The lists also have what has gone, and what has changed as it was before: that is passed over.
#[derive(Default)]
struct Ready {
    states: Vec<State>,
    /// All, the one that costs fewest registers first; none before that is asked for.
    by_cost: Option<BinaryHeap<Reverse<Cost>>>,
    /// Those whose readers need not wait, the one with the longest way to the start first.
    now: BinaryHeap<u64>,
    /// The others, by the time.
    later: BinaryHeap<Reverse<u64>>,
    /// Those that may go, in any order.
    open: Vec<u32>,
    /// When the last product of matrices went.
    product: Option<u32>,
}

impl Ready {
    fn key(&self, k: u32) -> Cost {
        let n = &self.states[k as usize];
        let net = n.net.wrapping_add(i32::MIN) as u32;
        u128::from(pair(net, n.ready)) << 64 | u128::from(pair(!n.depth, !k))
    }

    /// An instruction may go next: everything that must come behind it has its place.
    fn admit(&mut self, live: &Live<'_>, node: &Node, k: u32) {
        let state = &mut self.states[k as usize];
        state.net -= live.which(&node.defs, 0, true);
        state.open = true;
        state.place = self.open.len() as u32;
        self.open.push(k);
        self.list(k);
    }

    fn list(&mut self, k: u32) {
        self.cost(k);
        self.later.push(Reverse(pair(self.states[k as usize].ready, k)));
    }

    fn cost(&mut self, k: u32) {
        let key = self.key(k);
        if let Some(by_cost) = &mut self.by_cost {
            by_cost.push(Reverse(key));
        }
    }

    fn remove(&mut self, k: u32) {
        let state = &mut self.states[k as usize];
        state.open = false;
        let place = state.place;
        self.open.swap_remove(place as usize);
        if let Some(other) = self.open.get(place as usize) {
            self.states[*other as usize].place = place;
        }
    }

    /// Whether an instruction may go next, and by the time `at`, which is the one that it has now.
    fn is_there(&self, k: u32, at: u32) -> bool {
        self.states[k as usize].open && self.states[k as usize].ready == at
    }

    /// The one that costs fewest registers; it stays where it is.
    fn cheapest(&mut self) -> Option<u32> {
        let mut by_cost =
            self.by_cost.take().unwrap_or_else(|| self.open.iter().map(|k| Reverse(self.key(*k))).collect());
        let has_changed = |cost: Cost| {
            let k = !(cost as u32);
            !self.states[k as usize].open || self.key(k) != cost
        };
        while by_cost.peek().is_some_and(|c| has_changed(c.0)) {
            by_cost.pop();
        }
        let cheapest = by_cost.peek().map(|c| !(c.0 as u32));
        self.by_cost = Some(by_cost);
        cheapest
    }

    /// Whether a product of matrices has to wait for the one that went last; then it is admitted again for later.
    fn waits(&mut self, nodes: &[Node], k: u32, cycle: u32) -> bool {
        let pace = nodes[k as usize].pace;
        let Some(at) = self.product.filter(|_| pace > 0).map(|last| last + pace).filter(|at| *at > cycle)
        else {
            return false;
        };
        self.states[k as usize].ready = at;
        self.list(k);
        true
    }

    /// One general register fewer.
    fn cheaper(&mut self, k: u32) {
        self.states[k as usize].net -= 1;
        if self.states[k as usize].open {
            self.cost(k);
        }
    }

    fn choose(
        &mut self,
        nodes: &[Node],
        live: &Live<'_>,
        limits: &Counts,
        under: &mut Between,
        cycle: &mut u32,
    ) -> Option<u32> {
        while let Some(&Reverse(later)) = self.later.peek().filter(|l| l.0 <= pair(*cycle, u32::MAX)) {
            self.later.pop();
            let (at, k) = ((later >> 32) as u32, later as u32);
            if self.is_there(k, at) {
                self.now.push(pair(self.states[k as usize].depth, k));
            }
        }
        // One more is too much, the headroom being kept.
        if under.reaches(0, live.count[0] + HEADROOM - 1, limits[0]) {
            return self.cheapest();
        }
        if let Some(f) = (1..FILES).find(|f| under.reaches(*f, live.count[*f], limits[*f])) {
            let rank = |k: &u32| {
                let n = &nodes[*k as usize];
                let touches = self.states[*k as usize].touches & 1 << f != 0;
                let change = if touches {
                    live.which(&n.uses, f as u8, false) - live.which(&n.defs, f as u8, true)
                } else {
                    0
                };
                (change, Reverse(n.depth), Reverse(*k))
            };
            if self.open.len() <= LOOK {
                return self.open.iter().copied().min_by_key(rank);
            }
            let mut costs: Vec<Cost> = self.open.iter().map(|k| self.key(*k)).collect();
            costs.select_nth_unstable(LOOK);
            return costs[..LOOK].iter().map(|cost| !(*cost as u32)).min_by_key(rank);
        }
        while let Some(k) = self.now.pop().map(|now| now as u32) {
            let open = self.states[k as usize].open;
            if open && !self.waits(nodes, k, *cycle) {
                return Some(k);
            }
        }
        while let Some(Reverse(later)) = self.later.pop() {
            let (at, k) = ((later >> 32) as u32, later as u32);
            if self.is_there(k, at) && !self.waits(nodes, k, at) {
                *cycle = at;
                return Some(k);
            }
        }
        None
    }
}
