//! What is known of the contents of registers and slots.
//!
//! Facts and places have numbers, the facts of registers of values one behind the other in the order in which these are defined. What a
//! place holds is a set of numbers, in words of 64: where all counters of nested loops are still zero, each place that holds a zero holds
//! all of them.

use cranelift_entity::EntityRef;
use ori::{Function, Value};
use rustc_hash::FxHashMap;
use sass::Reg;
use smallvec::SmallVec;

/// A place that can hold 32 bits or a predicate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    Reg(Reg),
    /// A word of the frame, by byte offset.
    Slot(i32),
}

/// Where a content comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Root {
    /// A register of a value that an instruction or a parameter defines.
    Lane(Value, u8),
    /// A constant.
    Constant(Constant),
    /// What this physical register held when something wrote it on purpose.
    Fixed(Reg),
    /// Anything will do.
    Undefined,
}

/// How a content is represented. Copies between predicates and general registers change it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Form {
    /// As the root itself.
    Plain,
    /// 1 where the root, a predicate, holds, else 0.
    Bool,
    /// Holds where the root, a general value, is not 0.
    NonZero,
    /// 1 where the root is not 0, else 0.
    BoolNonZero,
}

const FORMS: [Form; 4] = [Form::Plain, Form::Bool, Form::NonZero, Form::BoolNonZero];

/// Something known about a place's content. Copies are no roots, so equal contents are equal facts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fact {
    pub(super) root: Root,
    pub(super) form: Form,
}

impl Fact {
    pub(super) const UNDEFINED: Fact = Fact::plain(Root::Undefined);
    pub(super) const fn plain(root: Root) -> Fact {
        Fact { root, form: Form::Plain }
    }
    /// A predicate's content as a general register gets it.
    pub(super) fn to_general(self) -> Fact {
        match (self.root, self.form) {
            (Root::Undefined, _) => self,
            (Root::Constant(c), _) => {
                Fact::plain(Root::Constant(if c == Constant::True { Constant::Imm(1) } else { c }))
            }
            (root, Form::NonZero) => Fact { root, form: Form::BoolNonZero },
            (root, _) => Fact { root, form: Form::Bool },
        }
    }
    /// A general register's content as a predicate gets it.
    pub(super) fn to_predicate(self) -> Fact {
        match (self.root, self.form) {
            (Root::Constant(Constant::Imm(n)), _) if n != 0 => Fact::plain(Root::Constant(Constant::True)),
            (Root::Undefined | Root::Constant(Constant::Imm(_)), _) => self,
            (root, Form::Bool) => Fact::plain(root),
            (root, _) => Fact { root, form: Form::NonZero },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Constant {
    Imm(u32),
    Bank(u8, i32),
    True,
}

/// The number of a fact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FactId(u32);

/// The number of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlaceId(usize);

/// The numbers of facts and places.
pub(super) struct Numbers {
    /// The number of the first register of each value.
    first: Vec<u32>,
    /// Which value's register it is.
    lanes: Vec<(Value, u8)>,
    /// From one form of the registers to the next: a multiple of 64.
    stride: u32,
    /// Forms of which somebody has named a fact: those below this one.
    forms: u32,
    /// Facts of nothing that is defined, behind the others.
    rest: FxHashMap<Fact, u32>,
    rest_facts: Vec<Fact>,
    places: FxHashMap<Place, usize>,
    /// What each place holds as long as nothing has written it.
    untouched: Vec<Option<FactId>>,
    /// The places that were ever said to hold each register of a value, in whatever form and state: all others need not be looked at where
    /// it is defined again.
    holders: Vec<Holders>,
}

impl Numbers {
    /// Of a function's values in this order, each once.
    pub(super) fn new(func: &Function, order: Vec<Value>) -> Numbers {
        let mut lanes = Vec::new();
        let mut first = vec![u32::MAX; func.values.len()];
        for v in order {
            first[v.index()] = lanes.len() as u32;
            lanes.extend((0..func.values[v].width).map(|k| (v, k)));
        }
        let stride = (lanes.len() as u32).next_multiple_of(64);
        let (rest, rest_facts, places, untouched) = Default::default();
        let holders = vec![Holders::default(); lanes.len()];
        Numbers { first, lanes, stride, forms: 0, rest, rest_facts, places, untouched, holders }
    }

    /// Notes that a place holds some facts.
    fn hold(&mut self, p: PlaceId, facts: &Facts) {
        let values = FORMS.len() as u32 * self.stride;
        for f in facts.iter().take_while(|f| f.0 < values) {
            self.holders[(f.0 % self.stride) as usize].insert(p);
        }
    }

    fn lane(&self, v: Value, lane: u8, form: Form) -> u32 {
        self.first[v.index()] + u32::from(lane) + form as u32 * self.stride
    }

    pub(super) fn fact(&mut self, f: Fact) -> FactId {
        self.forms = self.forms.max(f.form as u32 + 1);
        FactId(match f.root {
            Root::Lane(v, k) => self.lane(v, k, f.form),
            Root::Constant(_) | Root::Fixed(_) | Root::Undefined => {
                *self.rest.entry(f).or_insert_with(|| {
                    self.rest_facts.push(f);
                    FORMS.len() as u32 * self.stride + self.rest_facts.len() as u32 - 1
                })
            }
        })
    }

    /// The number of a fact, if anybody has said it.
    fn find(&self, f: &Fact) -> Option<FactId> {
        match f.root {
            Root::Lane(v, k) => Some(FactId(self.lane(v, k, f.form))),
            Root::Constant(_) | Root::Fixed(_) | Root::Undefined => self.rest.get(f).copied().map(FactId),
        }
    }

    /// The fact of a number.
    fn named(&self, id: FactId) -> Fact {
        match id.0.checked_sub(FORMS.len() as u32 * self.stride) {
            Some(n) => self.rest_facts[n as usize],
            None => {
                let (v, k) = self.lanes[(id.0 % self.stride) as usize];
                Fact { root: Root::Lane(v, k), form: FORMS[(id.0 / self.stride) as usize] }
            }
        }
    }

    /// All facts of some values, in forms below this one.
    fn of_values(&self, values: impl Iterator<Item = Value> + Clone, func: &Function, forms: u32) -> Facts {
        let mut all: SmallVec<[u32; 16]> = SmallVec::new();
        for form in 0..forms {
            for v in values.clone() {
                let first = self.first[v.index()] + form * self.stride;
                all.extend(first..first + u32::from(func.values[v].width));
            }
        }
        all.sort_unstable();
        let mut out = Facts::default();
        all.into_iter().for_each(|n| out.insert(FactId(n)));
        out
    }

    /// All facts of values that anybody has named.
    fn named_of(&self, values: &[Value], func: &Function) -> Facts {
        self.of_values(values.iter().copied(), func, self.forms)
    }

    /// All facts of values.
    pub(super) fn all_of(&self, values: impl Iterator<Item = Value> + Clone, func: &Function) -> Facts {
        self.of_values(values, func, FORMS.len() as u32)
    }

    /// A set of other facts, one for each.
    pub(super) fn map(&mut self, facts: &Facts, to: impl Fn(Fact) -> Fact) -> Facts {
        let mut out = Facts::default();
        for f in facts.iter() {
            let f = to(self.named(f));
            out.insert(self.fact(f));
        }
        out
    }

    /// The first word of facts that are not of values.
    fn rest(&self) -> u32 {
        FORMS.len() as u32 * self.stride / 64
    }

    pub(super) fn place(&mut self, p: Place) -> PlaceId {
        if let Some(n) = self.places.get(&p) {
            return PlaceId(*n);
        }
        let n = self.untouched.len();
        self.places.insert(p, n);
        let untouched = match p {
            Place::Reg(r) => Some(self.fact(Fact::plain(Root::Fixed(r)))),
            Place::Slot(_) => None,
        };
        self.untouched.push(untouched);
        PlaceId(n)
    }

    fn untouched(&self, n: usize) -> Facts {
        self.untouched[n].map_or_else(Facts::default, Facts::one)
    }
}

/// The numbers of some places, a bit for each. Where all counters of a loop begin with zero, all places of zeros hold all of them.
#[derive(Clone, Default)]
struct Holders(SmallVec<[u64; 2]>);

impl Holders {
    fn insert(&mut self, p: PlaceId) {
        let word = p.0 / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (p.0 % 64);
    }
    fn extend(&mut self, others: &Holders) {
        if self.0.len() < others.0.len() {
            self.0.resize(others.0.len(), 0);
        }
        self.0.iter_mut().zip(&others.0).for_each(|(here, there)| *here |= there);
    }
    fn iter(&self) -> impl Iterator<Item = PlaceId> {
        (0..).zip(&self.0).flat_map(|(n, word)| bits_of(*word).map(move |k| PlaceId(64 * n + k as usize)))
    }
}

/// The numbers of the bits that are set.
fn bits_of(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let k = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(k)
    })
}

/// A set of facts: words of 64, which of them and what is in it, ascending and none empty.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Facts(SmallVec<[(u32, u64); 1]>);

impl Clone for Facts {
    // All at once: the list's own takes one after the other, and states are copied for each way out of a block.
    fn clone(&self) -> Facts {
        Facts(SmallVec::from_slice(&self.0))
    }
}

impl Facts {
    pub(super) fn one(f: FactId) -> Facts {
        Facts(SmallVec::from_buf([(f.0 / 64, 1 << (f.0 % 64))]))
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// What is in a word.
    fn word(&self, n: u32) -> u64 {
        match &self.0[..] {
            [] => 0,
            [(k, word)] => {
                if *k == n {
                    *word
                } else {
                    0
                }
            }
            words => words.binary_search_by_key(&n, |w| w.0).map_or(0, |at| words[at].1),
        }
    }
    pub(super) fn contains(&self, f: FactId) -> bool {
        self.word(f.0 / 64) >> (f.0 % 64) & 1 != 0
    }
    pub(super) fn insert(&mut self, f: FactId) {
        self.add(f.0 / 64, 1 << (f.0 % 64));
    }
    fn add(&mut self, n: u32, bits: u64) {
        match self.0.last_mut() {
            Some(last) if last.0 == n => last.1 |= bits,
            Some(last) if last.0 > n => match self.0.binary_search_by_key(&n, |w| w.0) {
                Ok(at) => self.0[at].1 |= bits,
                Err(at) => self.0.insert(at, (n, bits)),
            },
            _ => self.0.push((n, bits)),
        }
    }
    pub(super) fn extend(&mut self, others: &Facts) {
        others.0.iter().for_each(|(n, bits)| self.add(*n, *bits));
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = FactId> {
        self.0.iter().flat_map(|(n, word)| bits_of(*word).map(move |k| FactId(64 * n + k)))
    }
    /// Keeps what is right of each word.
    fn keep(&mut self, mut right: impl FnMut(u32, u64) -> u64) {
        if let [(n, word)] = &mut self.0[..] {
            *word &= right(*n, *word);
            if *word == 0 {
                self.0.clear();
            }
            return;
        }
        self.0.retain(|(n, word)| {
            *word &= right(*n, *word);
            *word != 0
        });
    }
    fn without(&mut self, others: &Facts) {
        self.keep(|n, _| !others.word(n));
    }
    /// Those of both.
    fn both(&self, other: &Facts) -> Facts {
        let mut out = self.clone();
        out.keep(|n, _| other.word(n));
        out
    }
}

/// Facts by place. `anywhere` holds for every place (parameters that are undefined).
#[derive(Clone, Default, Debug)]
pub(super) struct State {
    /// By the numbers of places; nothing for those that nothing has written, those without a number included.
    at: Vec<Option<Facts>>,
    pub(super) anywhere: Facts,
}

impl State {
    pub(super) fn facts(&self, p: PlaceId, numbers: &Numbers) -> Facts {
        self.at.get(p.0).and_then(Option::as_ref).cloned().unwrap_or_else(|| numbers.untouched(p.0))
    }
    pub(super) fn write(&mut self, p: PlaceId, facts: Facts, numbers: &mut Numbers) {
        numbers.hold(p, &facts);
        if self.at.len() <= p.0 {
            self.at.resize(p.0 + 1, None);
        }
        self.at[p.0] = Some(facts);
    }
    /// Whether much more is known than there are places.
    pub(super) fn is_crowded(&self) -> bool {
        self.at.iter().flatten().map(|f| f.0.len()).sum::<usize>() > 4 * self.at.len() + 100
    }
    /// Removes all facts of values that anybody has named.
    pub(super) fn forget(&mut self, values: &[Value], func: &Function, numbers: &Numbers) {
        let stale = numbers.named_of(values, func);
        let mut places = Holders::default();
        for v in values {
            let first = numbers.first[v.index()] as usize;
            let holders = &numbers.holders[first..first + usize::from(func.values[*v].width)];
            holders.iter().for_each(|h| places.extend(h));
        }
        for p in places.iter() {
            self.at.get_mut(p.0).into_iter().flatten().for_each(|s| s.without(&stale));
        }
        self.anywhere.without(&stale);
    }
    /// Removes facts of values but for these.
    pub(super) fn reduce(&mut self, needed: &Facts, numbers: &Numbers) {
        let rest = numbers.rest();
        let reduce = |s: &mut Facts| s.keep(|n, _| if n < rest { needed.word(n) } else { u64::MAX });
        self.at.iter_mut().flatten().for_each(reduce);
        reduce(&mut self.anywhere);
    }
    /// Whether a place holds what a fact says.
    pub(super) fn knows(&self, p: Place, f: &Fact, numbers: &Numbers) -> bool {
        let id = numbers.find(f);
        let known = |s: &Facts| id.is_some_and(|id| s.contains(id));
        let untouched = matches!(p, Place::Reg(r) if *f == Fact::plain(Root::Fixed(r)));
        let at = numbers.places.get(&p).and_then(|n| self.at.get(*n)?.as_ref());
        known(&self.anywhere) || at.map_or(untouched, known)
    }
    /// What places gain where facts get other names besides: `renamed`, ascending.
    pub(super) fn gains(&self, renamed: &[(FactId, FactId)]) -> Vec<(PlaceId, FactId)> {
        if renamed.is_empty() {
            return Vec::new();
        }
        let mut from = Facts::default();
        renamed.iter().for_each(|r| from.insert(r.0));
        let mut out = Vec::new();
        for (p, s) in self.at.iter().enumerate().filter_map(|(p, s)| Some((p, s.as_ref()?))) {
            if s.0.iter().all(|(n, word)| word & from.word(*n) == 0) {
                continue;
            }
            for f in s.both(&from).iter() {
                let same = renamed[renamed.partition_point(|(from, _)| *from < f)..].iter();
                out.extend(same.take_while(|(from, _)| *from == f).map(|(_, to)| (PlaceId(p), *to)));
            }
        }
        out
    }
    pub(super) fn gain(&mut self, p: PlaceId, f: FactId, numbers: &mut Numbers) {
        numbers.hold(p, &Facts::one(f));
        self.at[p.0].get_or_insert_default().insert(f);
    }
    /// Keeps what both know; says whether that is less than before.
    pub(super) fn meet(&mut self, other: &State, numbers: &Numbers) -> bool {
        let anywhere = self.anywhere.both(&other.anywhere);
        let mut here = self.anywhere.clone();
        here.without(&other.anywhere);
        let mut less = !here.is_empty();
        self.at.resize(self.at.len().max(other.at.len()), None);
        for (p, mine) in self.at.iter_mut().enumerate() {
            let there = other.at.get(p).and_then(Option::as_ref);
            if mine.is_none() && there.is_none() {
                continue;
            }
            let untouched = numbers.untouched(p);
            let s = mine.get_or_insert_with(|| untouched.clone());
            // What holds everywhere here, and there at some places.
            if let Some(there) = there.filter(|_| !here.is_empty()) {
                s.extend(&there.both(&here));
            }
            let known = there.unwrap_or(&untouched);
            s.keep(|n, word| {
                let right = known.word(n) | other.anywhere.word(n);
                less |= word & !right != 0;
                right & !anywhere.word(n)
            });
            // A register of which nothing is known was written, unlike one that is not here.
            if s.is_empty() && untouched.is_empty() {
                *mine = None;
            }
        }
        self.anywhere = anywhere;
        less
    }
}
