//! The PTX instruction table, generated from `isa/*.ptxisa` by `build.rs`, and the queries on it.

include!(concat!(env!("OUT_DIR"), "/isa.rs"));

include!("isa/hash.rs");

/// Which of the names this is. `slots` has, from the place that its hash says, the numbers of the names that may be.
fn look_up(word: &str, slots: &[u16], names: &[&str]) -> Option<usize> {
    let mut at = hash(word.as_bytes()) as usize & (slots.len() - 1);
    loop {
        let index = usize::from(*slots.get(at)?);
        if *names.get(index)? == word {
            return Some(index);
        }
        at = (at + 1) & (slots.len() - 1);
    }
}

/// Words that ptxas 13.0.88 takes with every instruction.
const IGNORED: &[Mod] = &[
    Mod::acc_f16,
    Mod::acc_f32,
    Mod::b4x16_p64,
    Mod::b6x16_p32,
    Mod::b8x16,
    Mod::box_dim,
    Mod::element_stride,
    Mod::elemtype,
    Mod::fill_mode,
    Mod::finite,
    Mod::global_address,
    Mod::global_dim,
    Mod::global_stride,
    Mod::infinite,
    Mod::interleave_layout,
    Mod::normal,
    Mod::notanumber,
    Mod::number,
    Mod::rank,
    Mod::subnormal,
    Mod::swizzle_atomicity,
    Mod::swizzle_mode,
];

/// What kind of number a type is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TypeClass {
    /// Untyped bits.
    Bits,
    /// Unsigned integer.
    Unsigned,
    /// Signed integer.
    Signed,
    /// Floating point, packed ones included.
    Float,
    /// Predicate.
    Predicate,
}

impl Type {
    /// Size in bytes (1 for a predicate).
    pub fn bytes(self) -> u32 {
        TYPES[self as usize].0
    }
    /// Size in bits.
    pub fn bits(self) -> u32 {
        self.bytes() * 8
    }
    /// Its class.
    pub fn class(self) -> TypeClass {
        TYPES[self as usize].1
    }
    /// The first PTX version and the first SM for which variables and registers of it can be declared.
    pub fn needs(self) -> ((u8, u8), u16) {
        let (_, _, version, sm) = TYPES[self as usize];
        (version, sm)
    }
    /// Whether it is a signed integer type.
    pub fn is_signed(self) -> bool {
        self.class() == TypeClass::Signed
    }
    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        self.class() == TypeClass::Float
    }
    /// The type of this name.
    pub fn parse(name: &str) -> Option<Type> {
        look_up(name, &HASH_Type, NAMES_Type).map(|i| Type::ALL[i])
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ".{}", self.name())
    }
}

impl Mod {
    /// The type that this word is, if it is one.
    pub fn as_type(self) -> Option<Type> {
        MOD_TYPES[self as usize]
    }
    /// Whether it may be said twice.
    pub fn repeats(self) -> bool {
        use Mod::{NaN, approx, cc, relu, sat, satfinite, shiftamt, sync, uni};
        matches!(self, NaN | approx | cc | relu | sat | satfinite | shiftamt | sync | uni)
    }
    /// The word of this spelling.
    pub fn parse(word: &str) -> Option<Mod> {
        look_up(word, &HASH_Mod, NAMES_Mod).map(|i| Mod::ALL[i])
    }
}

impl Mod {
    /// Whether ptxas takes this word of another instruction with instruction `op`, too, and does not look at it there.
    pub fn is_ignored(self, op: Op) -> bool {
        IGNORED.contains(&self)
            && !op.forms().iter().any(|f| f.groups.iter().any(|g| g.words().any(|w| w == self)))
    }
    /// Whether this word has no effect on the code of instruction `op` (`isa/quiet.ptxisa` says why).
    pub fn is_quiet(self, op: Op) -> bool {
        QUIET[self as usize].iter().any(|ops| ops.is_empty() || ops.contains(&op))
    }
    /// What instruction `op` needs if it has this word.
    pub fn gates(self, op: Op) -> impl Iterator<Item = &'static WordGate> {
        WORD_GATES[self as usize].iter().filter(move |g| g.ops.contains(&op) != g.others)
    }
}

impl Op {
    /// The mnemonic of this spelling.
    pub fn parse(word: &str) -> Option<Op> {
        look_up(word, &HASH_Op, NAMES_Op).map(|i| Op::ALL[i])
    }
    /// Its forms.
    pub fn forms(self) -> &'static [Form] {
        FORMS[self as usize]
    }
}

impl SpecialReg {
    /// Its type.
    pub fn ty(self) -> Type {
        SREGS[self as usize].0
    }
    /// Whether it has components `.x .y .z .w`.
    pub fn is_vector(self) -> bool {
        SREGS[self as usize].1
    }
    /// The first PTX version that has it, and the first SM.
    pub fn needs(self) -> ((u8, u8), u16) {
        let (_, _, version, sm) = SREGS[self as usize];
        (version, sm)
    }
    /// The special register of this name (with its `%`).
    pub fn parse(name: &str) -> Option<SpecialReg> {
        look_up(name, &HASH_SpecialReg, NAMES_SpecialReg).map(|i| SpecialReg::ALL[i])
    }
}

/// One form of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// So many of the first groups are part of the name, and stand in front: `cp.async.bulk`.
    pub name: usize,
    /// Modifier groups, in order.
    pub groups: &'static [Group],
    /// Operands.
    pub operands: &'static [OperandSpec],
    /// First PTX version.
    pub version: (u8, u8),
    /// The PTX version that has it no more.
    pub until: (u8, u8),
    /// The SM from which on it is no more.
    pub before: u16,
    /// Where it exists, one of these; everywhere if there is none.
    pub targets: &'static [TargetGate],
}

/// What an instruction with a certain word needs, whatever its form.
#[derive(Clone, Copy, Debug)]
pub struct WordGate {
    /// Instructions that this is about, or, with `others`, that it is not about.
    pub ops: &'static [Op],
    /// It is about all other instructions.
    pub others: bool,
    /// First PTX version.
    pub version: (u8, u8),
    /// The PTX version that has it no more.
    pub until: (u8, u8),
    /// The SM from which on it is no more.
    pub before: u16,
    /// Where it exists, one of these; everywhere if there is none.
    pub targets: &'static [TargetGate],
}

impl WordGate {
    /// Whether `sm` with `suffix` has it.
    pub fn on(&self, sm: u16, suffix: Suffix) -> bool {
        sm < self.before && (self.targets.is_empty() || self.targets.iter().any(|t| t.has(sm, suffix)))
    }
}

/// What follows the number in `sm_100a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Suffix {
    /// Nothing: what later SMs have too.
    None,
    /// `f`: what the SM's family has.
    Family,
    /// `a`: what this SM alone has.
    Arch,
}

impl Suffix {
    /// Of a name such as `sm_100a`.
    pub fn of(name: &str) -> Suffix {
        match name.as_bytes().last() {
            Some(b'a') => Suffix::Arch,
            Some(b'f') => Suffix::Family,
            _ => Suffix::None,
        }
    }
}

/// SMs that have a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetGate {
    /// The first of them.
    pub sm: u16,
    /// [`Suffix::None`]: all later ones; `Family`: later ones of its family; `Arch`: this one.
    pub suffix: Suffix,
}

impl TargetGate {
    /// Whether `sm` with `suffix` is among them.
    pub fn has(self, sm: u16, suffix: Suffix) -> bool {
        match self.suffix {
            Suffix::None => sm >= self.sm,
            Suffix::Family => suffix != Suffix::None && sm / 10 == self.sm / 10 && sm >= self.sm,
            Suffix::Arch => suffix == Suffix::Arch && sm == self.sm,
        }
    }
}

impl std::fmt::Display for TargetGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.suffix {
            Suffix::None => write!(f, "sm_{} or higher", self.sm),
            Suffix::Family => write!(f, "sm_{}f", self.sm),
            Suffix::Arch => write!(f, "sm_{}a", self.sm),
        }
    }
}

/// A modifier group: one of several words, or short sequences of words.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The alternatives.
    pub alternatives: &'static [&'static [Mod]],
    /// May be absent.
    pub optional: bool,
}

impl Group {
    /// All its words.
    pub fn words(&self) -> impl Iterator<Item = Mod> + 'static {
        self.alternatives.iter().flat_map(|a| a.iter().copied())
    }
}

/// One operand of a form.
#[derive(Clone, Copy, Debug)]
pub struct OperandSpec {
    /// What it is.
    pub kind: OperandKind,
    /// Its type.
    pub ty: TypeRef,
    /// `.v2`, `.v4`, `.v8` make it a vector.
    pub vector: bool,
    /// A list in braces of this many, whatever the modifiers say; 1 may stand without braces, 255 is any number.
    pub count: Option<u8>,
    /// Registers may be wider than the type.
    pub wider: bool,
    /// Registers must have the very type.
    pub exact: bool,
    /// Constants that may stand there.
    pub values: Values,
    /// May be absent.
    pub optional: bool,
    /// If there are any: it is there if, and only if, the instruction has one of these words.
    pub with: &'static [Mod],
}

/// What an operand is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandKind {
    /// Written register.
    Dst,
    /// Read: register, constant, special register, address of a variable.
    Src,
    /// Predicate read, perhaps negated.
    PredSrc,
    /// Predicate written.
    PredDst,
    /// Written register, perhaps with a predicate: `d|p`.
    DstPred,
    /// Written register and predicate: `d|p`.
    DstAndPred,
    /// Register read.
    Reg,
    /// `[address]` in tensor memory.
    TensorAddr,
    /// One or two written predicates: `p|q`.
    PredPair,
    /// `[address]`
    Addr,
    /// `[address, {coordinates}]`, with more between perhaps.
    Bracket,
    /// Label.
    Label,
    /// Function.
    Func,
    /// Integer constant.
    Imm,
    /// Read by a video instruction: register, perhaps a part of it (`.b0`, `.h1`), or constant.
    Part,
    /// Written by a video instruction: register, or a part of it.
    PartDst,
    /// `_`
    Sink,
    /// Checked elsewhere.
    Any,
}

impl OperandKind {
    /// Whether `|` and a predicate may follow.
    pub fn has_predicate(self) -> bool {
        matches!(self, OperandKind::DstPred | OperandKind::DstAndPred | OperandKind::PredPair)
    }
}

/// Constants that an operand takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// All.
    All,
    /// From the first to the last.
    Range(u64, u64),
    /// Multiples of this.
    Multiples(u64),
    /// 1 and -1.
    Sign,
}

/// Where an operand's type comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeRef {
    /// The n-th type among the instruction's modifiers.
    Mod(u8),
    /// This one.
    Fixed(Type),
}

impl Form {
    /// Every way to spell the form of an instruction of this name, modifiers in its order.
    pub fn spellings(&self, name: &str) -> Vec<String> {
        self.groups.iter().fold(vec![name.into()], |names, group| {
            let absent = group.optional.then_some(&[][..]);
            let choices = || group.alternatives.iter().copied().chain(absent);
            let spelled =
                |n: &String, c: &[Mod]| c.iter().fold(n.clone(), |n, m| format!("{n}.{}", m.name()));
            names.iter().flat_map(|n| choices().map(move |c| spelled(n, c))).collect()
        })
    }

    /// Whether these modifiers, in this order, are those of the form.
    pub fn matches(&self, mods: &[Mod]) -> bool {
        fn go(groups: &[Group], mods: &[Mod]) -> bool {
            let Some((g, rest)) = groups.split_first() else { return mods.is_empty() };
            g.alternatives.iter().any(|a| mods.starts_with(a) && go(rest, &mods[a.len()..]))
                || g.optional && go(rest, mods)
        }
        go(self.groups, mods)
    }
}

impl Form {
    /// Whether these modifiers, in any order, are those of the form; only the types, the layouts of matrices and the state spaces
    /// must come in its order.
    /// ptxas takes `add.f32.rn` and `atom.global.gpu.acq_rel.add.u32`.
    pub fn matches_unordered(&self, mods: &[Mod]) -> bool {
        fn take(mods: &[Mod], used: u32, m: Mod) -> Option<u32> {
            let free = |i: usize| used >> i & 1 == 0;
            let layout = |m: Mod| matches!(m, Mod::row | Mod::col);
            let space =
                |m: Mod| matches!(m, Mod::global | Mod::shared | Mod::shared_cta | Mod::shared_cluster);
            // Of two priorities the first is that of the lines in the range.
            let priority = |m: Mod| {
                matches!(
                    m,
                    Mod::L2_evict_last | Mod::L2_evict_normal | Mod::L2_evict_first | Mod::L2_evict_unchanged
                )
            };
            let typed = |m: Mod| {
                let small = matches!(
                    m,
                    Mod::e4m3
                        | Mod::e5m2
                        | Mod::e3m2
                        | Mod::e2m3
                        | Mod::e2m1
                        | Mod::b1
                        | Mod::b8x16
                        | Mod::b6x16_p32
                        | Mod::b4x16_p64
                );
                small || m.as_type().is_some()
            };
            let at = if typed(m) {
                (0..mods.len()).find(|i| free(*i) && typed(mods[*i])).filter(|i| mods[*i] == m)
            } else if layout(m) {
                (0..mods.len()).find(|i| free(*i) && layout(mods[*i])).filter(|i| mods[*i] == m)
            } else if space(m) {
                (0..mods.len()).find(|i| free(*i) && space(mods[*i])).filter(|i| mods[*i] == m)
            } else if priority(m) {
                (0..mods.len()).find(|i| free(*i) && priority(mods[*i])).filter(|i| mods[*i] == m)
            } else {
                (0..mods.len()).find(|i| free(*i) && mods[*i] == m)
            };
            Some(used | 1 << at?)
        }
        fn go(groups: &[Group], mods: &[Mod], used: u32) -> bool {
            let Some((g, rest)) = groups.split_first() else {
                return used.count_ones() as usize == mods.len();
            };
            g.alternatives.iter().any(|a| {
                let all = a.iter().try_fold(used, |used, m| take(mods, used, *m));
                all.is_some_and(|used| go(rest, mods, used))
            }) || g.optional && go(rest, mods, used)
        }
        let Some(name) = self.name_words(mods) else { return false };
        mods.len() < 32 && go(&self.groups[self.name..], &mods[name..], 0)
    }

    /// How many of the words, all in front, are part of the name; `None` if one that must be there is not.
    pub fn name_words(&self, mods: &[Mod]) -> Option<usize> {
        let mut at = 0;
        self.groups[..self.name]
            .iter()
            .all(|g| {
                let here = mods.get(at).is_some_and(|m| g.alternatives.iter().any(|a| **a == [*m]));
                at += usize::from(here);
                here || g.optional
            })
            .then_some(at)
    }

    /// The operands that an instruction with these words may have.
    pub fn operands_with(&self, mods: &[Mod]) -> impl Iterator<Item = &'static OperandSpec> {
        self.operands.iter().filter(|o| o.with.is_empty() || o.with.iter().any(|m| mods.contains(m)))
    }

    /// Whether so many operands may stand with these words.
    pub fn takes_operands(&self, mods: &[Mod], n: usize) -> bool {
        let needed = self.operands_with(mods).filter(|o| !o.optional || !o.with.is_empty()).count();
        (needed..=self.operands_with(mods).count()).contains(&n)
    }

    /// Whether it can have these types, in this order.
    pub fn takes_types(&self, types: &[Type]) -> bool {
        fn go(groups: &[Group], types: &[Type]) -> bool {
            let Some((g, rest)) = groups.split_first() else { return types.is_empty() };
            let plain = g.optional || g.alternatives.iter().any(|a| a.iter().all(|m| m.as_type().is_none()));
            plain && go(rest, types)
                || g.alternatives.iter().any(|a| {
                    let wanted = a.iter().filter_map(|m| m.as_type());
                    let n = wanted.clone().count();
                    n > 0
                        && n <= types.len()
                        && wanted.eq(types[..n].iter().copied())
                        && go(rest, &types[n..])
                })
        }
        go(self.groups, types)
    }

    /// Whether `sm` with `suffix` has it.
    pub fn on(&self, sm: u16, suffix: Suffix) -> bool {
        sm < self.before && (self.targets.is_empty() || self.targets.iter().any(|t| t.has(sm, suffix)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_match_in_order() {
        let form = |op: &str, mods: &[Mod]| Op::parse(op).unwrap().forms().iter().any(|f| f.matches(mods));
        assert!(form("add", &[Mod::rn, Mod::ftz, Mod::f32]));
        assert!(!form("add", &[Mod::ftz, Mod::rn, Mod::f32]));
        assert!(form("ld", &[Mod::global, Mod::nc, Mod::v4, Mod::f32]));
        assert!(!form("mul", &[Mod::u32]));
        assert_eq!(Mod::parse("shared::cta"), Some(Mod::shared_cta));
        assert_eq!(Type::parse("f64").unwrap().bytes(), 8);
    }
}
