//! What is known of the contents of registers and slots.

use ori::Value;
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    pub(super) fn map(&self, to: impl Fn(Fact) -> Fact) -> Facts {
        let mut out = Facts::default();
        out.extend(self.0.iter().map(|f| to(*f)));
        out
    }
}

/// Facts by place. `anywhere` holds for every place (parameters that are undefined).
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct State {
    pub(super) at: BTreeMap<Place, Facts>,
    pub(super) anywhere: Facts,
}

impl State {
    pub(super) fn facts(&self, p: Place) -> Facts {
        self.at.get(&p).cloned().unwrap_or_else(|| Facts::of(p.untouched()))
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
    }
    /// Whether a place holds what a fact says.
    pub(super) fn knows(&self, p: Place, f: &Fact) -> bool {
        self.anywhere.contains(f) || self.at.get(&p).map_or(p.untouched() == Some(*f), |s| s.contains(f))
    }
    /// Keeps what both know; says whether that is less than before.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let mut less = false;
        let (anywhere, here): (SmallVec<_>, SmallVec<_>) =
            self.anywhere.0.iter().copied().partition(|f| other.anywhere.contains(f));
        let (anywhere, here) = (Facts(anywhere), Facts(here));
        less |= !here.0.is_empty();
        for (p, there) in &other.at {
            let s = self.at.entry(*p).or_insert_with(|| Facts::of(p.untouched()));
            // What holds everywhere here, and there at some places.
            if !here.0.is_empty() {
                s.extend(there.0.iter().copied().filter(|f| here.contains(f)));
            }
        }
        self.at.retain(|p, s| {
            s.0.retain(|f| {
                let known = other.knows(*p, f);
                less |= !known;
                known && !anywhere.contains(f)
            });
            // A register of which nothing is known was written, unlike one that is not here.
            !s.0.is_empty() || p.untouched().is_some()
        });
        self.anywhere = anywhere;
        less
    }
}
