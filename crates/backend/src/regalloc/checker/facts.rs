//! What is known of the contents of registers and slots.

use ori::Value;
use rustc_hash::FxHashMap;
use sass::Reg;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A place that can hold 32 bits or a predicate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    Reg(Reg),
    /// A word of the frame, by byte offset.
    Slot(i32),
}

impl Place {
    /// What it holds as long as nothing has written it.
    pub(super) fn untouched(self) -> Option<Fact> {
        match self {
            Place::Reg(r) => Some(Fact::plain(Root::Fixed(r))),
            Place::Slot(_) => None,
        }
    }
}

/// Where a content comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

/// Something known about a place's content. Copies are no roots, so equal contents are equal facts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Constant {
    Imm(u32),
    Bank(u8, i32),
    True,
}

/// A few facts, ascending.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Facts(pub(super) SmallVec<[Fact; 1]>);

impl Facts {
    pub(super) fn one(f: Fact) -> Facts {
        Facts(SmallVec::from_buf([f]))
    }
    pub(super) fn of(f: Option<Fact>) -> Facts {
        f.map_or_else(Facts::default, Facts::one)
    }
    pub(super) fn contains(&self, f: &Fact) -> bool {
        // Of undefined values much may be known.
        if self.0.len() < 16 { self.0.contains(f) } else { self.0.binary_search(f).is_ok() }
    }
    pub(super) fn insert(&mut self, f: Fact) {
        if let Err(at) = self.0.binary_search(&f) {
            self.0.insert(at, f);
        }
    }
    pub(super) fn extend(&mut self, facts: impl IntoIterator<Item = Fact>) {
        facts.into_iter().for_each(|f| self.insert(f));
    }
    fn constants(&self) -> impl Iterator<Item = Constant> + '_ {
        self.0.iter().filter_map(|f| if let Root::Constant(c) = f.root { Some(c) } else { None })
    }
    pub(super) fn map(&self, to: impl Fn(Fact) -> Fact) -> Facts {
        let mut out = Facts::default();
        out.extend(self.0.iter().map(|f| to(*f)));
        out
    }
}

/// What is known to be a constant on every way here: ascending, one constant each. A place with that constant holds all of it, which is
/// so said once, not at each of the places: where many loops begin with counters that are 0, each of them is at the places of all.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Equations(Vec<(Fact, Constant)>);

impl Equations {
    pub(super) fn of(&self, f: &Fact) -> Option<Constant> {
        self.0.binary_search_by_key(f, |e| e.0).ok().map(|at| self.0[at].1)
    }
    pub(super) fn insert(&mut self, f: Fact, c: Constant) {
        match self.0.binary_search_by_key(&f, |e| e.0) {
            Ok(at) => self.0[at].1 = c,
            Err(at) => self.0.insert(at, (f, c)),
        }
    }
    /// Keeps those of which this holds.
    pub(super) fn retain(&mut self, keep: impl Fn(&Fact) -> bool) {
        self.0.retain(|(f, _)| keep(f));
    }
    /// Whether a fact is what a constant among these says.
    fn says(&self, f: &Fact, facts: &Facts) -> bool {
        self.of(f).is_some_and(|c| facts.contains(&Fact::plain(Root::Constant(c))))
    }
    /// What these constants are.
    fn equal<'e>(&'e self, constants: &'e Facts) -> impl Iterator<Item = Fact> + 'e {
        self.0.iter().filter(|(_, c)| constants.contains(&Fact::plain(Root::Constant(*c)))).map(|e| e.0)
    }
}

/// Facts by place. `anywhere` holds for every place (parameters that are undefined), what `equal` says for those with the constant.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct State {
    pub(super) at: BTreeMap<Place, Facts>,
    pub(super) anywhere: Facts,
    pub(super) equal: Equations,
}

impl State {
    /// What is said of a place itself.
    pub(super) fn facts(&self, p: Place) -> Facts {
        self.at.get(&p).cloned().unwrap_or_else(|| Facts::of(p.untouched()))
    }
    /// These facts about a place, with what their constants are: for what is no copy of it, which has other constants.
    pub(super) fn spelled_out(&self, mut facts: Facts) -> Facts {
        let equal: SmallVec<[Fact; 8]> = self.equal.equal(&facts).collect();
        facts.extend(equal);
        facts
    }
    pub(super) fn write(&mut self, p: Place, facts: Facts) {
        self.at.insert(p, facts);
    }
    /// Whether much more is known than there are places.
    pub(super) fn is_crowded(&self) -> bool {
        self.at.values().map(|f| f.0.len()).sum::<usize>() > 4 * self.at.len() + 100
    }
    /// Removes everything known about values that are about to be redefined, ascending.
    pub(super) fn forget(&mut self, values: &[Value]) {
        if values.is_empty() {
            return;
        }
        let stale = |f: &Fact| matches!(f.root, Root::Lane(x, _) if values.binary_search(&x).is_ok());
        self.at.values_mut().for_each(|s| s.0.retain(|f| !stale(f)));
        self.anywhere.0.retain(|f| !stale(f));
        self.equal.retain(|f| !stale(f));
    }
    /// Whether a place holds what a fact says.
    pub(super) fn knows(&self, p: Place, f: &Fact) -> bool {
        let said = |f: &Fact| self.at.get(&p).map_or(p.untouched() == Some(*f), |s| s.contains(f));
        let constant = || self.equal.of(f).map(|c| Fact::plain(Root::Constant(c)));
        self.anywhere.contains(f) || said(f) || constant().is_some_and(|c| said(&c))
    }
    /// Keeps what both know; says whether that is less than before.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let mut less = false;
        let (anywhere, here): (SmallVec<_>, SmallVec<_>) =
            self.anywhere.0.iter().copied().partition(|f| other.anywhere.contains(f));
        let (anywhere, here) = (Facts(anywhere), Facts(here));
        less |= !here.0.is_empty();
        let mut equal = Equations::default();
        let apart = Apart::new(self, other, &here, &mut equal);
        less |= equal.0.len() < self.equal.0.len();
        for (p, there) in &other.at {
            let s = self.at.entry(*p).or_insert_with(|| Facts::of(p.untouched()));
            // What holds everywhere here, and there at some places.
            if !here.0.is_empty() {
                s.extend(there.0.iter().copied().filter(|f| here.contains(f)));
            }
            // What a constant says here, and there is said of the place.
            if !self.equal.0.is_empty() {
                let said = there.0.iter().copied().filter(|f| self.equal.says(f, s));
                let said: SmallVec<[Fact; 4]> = said.collect();
                s.extend(said);
            }
            apart.spell_out(s, there);
        }
        if !apart.here.is_empty() {
            let untouched = |p: &Place| Facts::of(p.untouched());
            let only = self.at.iter_mut().filter(|(p, _)| !other.at.contains_key(p));
            only.for_each(|(p, s)| apart.spell_out(s, &untouched(p)));
        }
        self.at.retain(|p, s| {
            s.0.retain(|f| {
                let known = other.knows(*p, f);
                less |= !known;
                known && !anywhere.contains(f)
            });
            // What the constant says is not said of the place as well.
            if s.0.len() > 1 && !equal.0.is_empty() {
                let all = s.clone();
                s.0.retain(|f| !equal.says(f, &all));
            }
            // A register of which nothing is known was written, unlike one that is not here.
            !s.0.is_empty() || p.untouched().is_some()
        });
        self.anywhere = anywhere;
        self.equal = equal;
        less
    }
}

/// What two states say in different ways: one by a constant, the other by another constant, or that it is anywhere.
#[derive(Default)]
struct Apart {
    /// By the constants here and there.
    constants: FxHashMap<(Constant, Constant), Vec<Fact>>,
    /// By the constant here, anywhere there.
    here: FxHashMap<Constant, Vec<Fact>>,
    /// By the constant there, anywhere here.
    there: FxHashMap<Constant, Vec<Fact>>,
}

impl Apart {
    /// Of two states, `anywhere` the facts that are so here alone. What both say goes to `equal`.
    fn new(here: &State, there: &State, anywhere: &Facts, equal: &mut Equations) -> Apart {
        let mut apart = Apart::default();
        for &(f, c) in &here.equal.0 {
            match there.equal.of(&f) {
                Some(same) if same == c => equal.0.push((f, c)),
                Some(other) => apart.constants.entry((c, other)).or_default().push(f),
                None if there.anywhere.contains(&f) => apart.here.entry(c).or_default().push(f),
                None => {}
            }
        }
        for f in &anywhere.0 {
            if let Some(c) = there.equal.of(f) {
                apart.there.entry(c).or_default().push(*f);
            }
        }
        apart
    }

    /// Says of a place, by what is known of it here and there, what both know.
    fn spell_out(&self, here: &mut Facts, there: &Facts) {
        let list = |f: Option<&Vec<Fact>>| f.into_iter().flatten().copied().collect::<SmallVec<[Fact; 8]>>();
        if !self.here.is_empty() || !self.constants.is_empty() {
            let constants: SmallVec<[Constant; 2]> = here.constants().collect();
            for c in constants {
                here.extend(list(self.here.get(&c)));
                for other in there.constants() {
                    here.extend(list(self.constants.get(&(c, other))));
                }
            }
        }
        if !self.there.is_empty() {
            for c in there.constants() {
                here.extend(list(self.there.get(&c)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::Value;
    use sass::RegFile;

    /// Numbers that look random.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    fn facts() -> Vec<Fact> {
        let lanes = (0..4).map(|v| Fact::plain(Root::Lane(Value::from_u32(v), 0)));
        let constants = (0..2).map(|n| Fact::plain(Root::Constant(Constant::Imm(n))));
        let forms = (0..2).map(|v| Fact { root: Root::Lane(Value::from_u32(v), 0), form: Form::Bool });
        lanes.chain(constants).chain(forms).collect()
    }

    fn places() -> Vec<Place> {
        let registers = (0..3).map(|index| Place::Reg(Reg { file: RegFile::R, index }));
        registers.chain([Place::Slot(0), Place::Slot(4)]).collect()
    }

    fn state(n: &mut Numbers) -> State {
        let mut state = State::default();
        for p in places() {
            if n.below(4) > 0 {
                let some = facts().into_iter().filter(|_| n.below(3) == 0);
                let mut known = Facts::default();
                known.extend(some);
                state.write(p, known);
            }
        }
        for f in facts().into_iter().filter(|f| matches!(f.root, Root::Lane(..))) {
            match n.below(5) {
                0 => state.anywhere.insert(f),
                1 | 2 => state.equal.insert(f, Constant::Imm(n.below(2) as u32)),
                _ => {}
            }
        }
        state
    }

    /// A place holds behind two ways what it holds at the end of both, however each of them says it, and nothing else.
    #[test]
    fn what_both_know_is_kept() {
        let mut n = Numbers(1);
        for _ in 0..20_000 {
            let (before, other) = (state(&mut n), state(&mut n));
            let mut both = before.clone();
            let less = both.meet(&other);
            let mut lost = false;
            for (p, f) in places().iter().flat_map(|p| facts().into_iter().map(move |f| (*p, f))) {
                let (was, there) = (before.knows(p, &f), other.knows(p, &f));
                assert_eq!(both.knows(p, &f), was && there, "{p:?} {f:?}: {before:?} {other:?} {both:?}");
                lost |= was && !there;
            }
            assert!(less || !lost, "{before:?} {other:?}");
            // The second time nothing is lost.
            assert!(!both.clone().meet(&other), "{before:?} {other:?} {both:?}");
        }
    }

    /// Constants are the same after a value is made anew, which then is none.
    #[test]
    fn values_made_anew_are_no_constants() {
        let (zero, p) = (Constant::Imm(0), Place::Slot(0));
        let v = Value::from_u32(0);
        let lane = Fact::plain(Root::Lane(v, 0));
        let mut state = State::default();
        state.write(p, Facts::one(Fact::plain(Root::Constant(zero))));
        state.equal.insert(lane, zero);
        assert!(state.knows(p, &lane));
        state.forget(&[v]);
        assert!(!state.knows(p, &lane) && state.knows(p, &Fact::plain(Root::Constant(zero))));
    }
}
