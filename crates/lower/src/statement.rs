//! A statement as lowering sees it: its words and operands are handed out one by one, and one that nothing asked for is an
//! error.
//!
//! A word that is not looked at is one whose meaning got lost. The PTX table lists those that have no effect on code (`quiet`
//! lines); every other one must be asked for by name, in a list of words, or as a type.

use ptx::{Mod, Op, Operand, Type};
use std::cell::Cell;
use std::ops::Index;

/// Operands that have no effect on code, and why.
fn is_quiet(inst: &ptx::Inst, at: usize) -> bool {
    let last = at + 1 == inst.operands.len();
    match inst.op {
        // They are always 128 bytes.
        Op::discard | Op::applypriority | Op::fence => at == 1,
        // What is stored is always 0.
        Op::st if inst.has(Mod::bulk) => at == 2,
        // Branches are taken apart as they were read, and so are calls.
        Op::bra | Op::brx | Op::call => true,
        // A policy is a hint, which is not followed (`policy`).
        _ => last && inst.has(Mod::L2_cache_hint),
    }
}

/// One statement, and which of its words were asked for.
pub struct Statement<'a> {
    /// Mnemonic.
    pub op: Op,
    /// Operands.
    pub operands: Operands<'a>,
    /// As the parser read it: for what is asked of statements elsewhere, too. Asking it leaves no trace.
    pub plain: &'a ptx::Inst,
    asked: Cell<u64>,
}

/// The operands of a statement, and which of them were asked for.
pub struct Operands<'a> {
    list: &'a [Operand],
    asked: Cell<u32>,
}

impl<'a> Operands<'a> {
    fn new(list: &'a [Operand]) -> Operands<'a> {
        Operands { list, asked: Cell::new(0) }
    }

    fn mark(&self, at: usize) {
        self.asked.set(self.asked.get() | 1u32.checked_shl(at as u32).unwrap_or(0));
    }

    /// How many there are. Asking that leaves no trace.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The one at `at`.
    pub fn get(&self, at: usize) -> Option<&'a Operand> {
        self.mark(at);
        self.list.get(at)
    }

    /// The last one.
    pub fn last(&self) -> Option<&'a Operand> {
        self.get(self.list.len().checked_sub(1)?)
    }

    /// All of them from `first` on.
    pub fn from(&self, first: usize) -> &'a [Operand] {
        (first..self.list.len()).for_each(|at| self.mark(at));
        self.list.get(first..).unwrap_or(&[])
    }

    /// The first that nothing asked for. `_` says nothing.
    fn left_over(&self, quiet: impl Fn(usize) -> bool) -> Option<usize> {
        let asked = self.asked.get();
        let left = |at: usize| asked.checked_shr(at as u32).is_none_or(|bits| bits & 1 == 0);
        (0..self.list.len()).find(|at| left(*at) && self.list[*at] != Operand::Sink && !quiet(*at))
    }
}

impl Index<usize> for Operands<'_> {
    type Output = Operand;

    fn index(&self, at: usize) -> &Operand {
        self.mark(at);
        &self.list[at]
    }
}

impl<'a> Statement<'a> {
    /// A statement none of whose words were asked for.
    pub fn new(inst: &'a ptx::Inst) -> Statement<'a> {
        Statement { op: inst.op, operands: Operands::new(&inst.operands), plain: inst, asked: Cell::new(0) }
    }

    fn mark(&self, at: usize) {
        self.asked.set(self.asked.get() | 1u64.checked_shl(at as u32).unwrap_or(0));
    }

    /// The words that `wanted` says something of: what it says of the first of them.
    pub fn find<T>(&self, mut wanted: impl FnMut(Mod) -> Option<T>) -> Option<T> {
        let mut found = None;
        for (at, m) in self.plain.mods.iter().enumerate() {
            if let Some(x) = wanted(*m) {
                self.mark(at);
                found = found.or(Some(x));
            }
        }
        found
    }

    /// Whether it has this word.
    pub fn has(&self, m: Mod) -> bool {
        self.find(|n| (n == m).then_some(())).is_some()
    }

    /// Whether it has a word that begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.find(|m| m.name().starts_with(prefix).then_some(())).is_some()
    }

    /// The first of `candidates` that it has. All of them count as asked for.
    pub fn one_of(&self, candidates: &[Mod]) -> Option<Mod> {
        self.find(|m| candidates.contains(&m).then_some(()));
        self.plain.one_of(candidates)
    }

    /// Says that these words have no effect in this form, though they have one in others.
    pub fn moot(&self, words: &[Mod]) {
        self.one_of(words);
    }

    /// Says that nothing of it has an effect.
    pub fn moot_all(&self) {
        self.find(|_| Some(()));
        self.operands.from(0);
    }

    /// The first operand that nothing asked for.
    pub fn operand_left_over(&self) -> Option<usize> {
        self.operands.left_over(|at| is_quiet(self.plain, at))
    }

    /// The types among its words, in order.
    pub fn types(&self) -> impl Iterator<Item = Type> + 'a {
        self.find(|m| m.as_type());
        self.plain.types()
    }

    /// The `n`-th type.
    pub fn ty(&self, n: usize) -> Option<Type> {
        let types = self.plain.mods.iter().enumerate().filter_map(|(at, m)| Some((at, m.as_type()?)));
        let (at, ty) = types.into_iter().nth(n)?;
        self.mark(at);
        Some(ty)
    }

    /// The first word that nothing asked for though it has an effect.
    pub fn left_over(&self) -> Option<Mod> {
        let asked = self.asked.get();
        let left = |at: usize| asked.checked_shr(at as u32).is_none_or(|bits| bits & 1 == 0);
        let words = self.plain.mods.iter().enumerate();
        words.filter(|(at, m)| left(*at) && !m.is_quiet(self.op)).map(|(_, m)| *m).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_nothing_asks_for_are_left_over() {
        let text = ".version 9.0\n.target sm_90\n.entry k(.param .u64 p) { .reg .b64 a; .reg .f32 f, g; bra.uni L; L:
            ld.volatile.global.v2.f32 {f, g}, [a]; mul.rz.ftz.f32 f, f, g; ret; }";
        let module = ptx::parse(text).unwrap();
        let body = module.funcs.values().next().unwrap().body.as_ref().unwrap();
        let insts: Vec<&ptx::Inst> = body
            .stmts
            .iter()
            .filter_map(|s| if let ptx::Stmt::Inst(i) = s { Some(i) } else { None })
            .collect();
        assert_eq!(Statement::new(insts[0]).left_over(), None, "`.uni` has no effect");
        let load = Statement::new(insts[1]);
        assert_eq!(load.left_over(), Some(Mod::volatile));
        assert!(load.has(Mod::volatile) && !load.has(Mod::relaxed));
        assert_eq!(load.left_over(), Some(Mod::global));
        assert_eq!(load.one_of(&[Mod::shared, Mod::global]), Some(Mod::global));
        assert_eq!(load.left_over(), Some(Mod::f32), "`.v2` is said by the operand");
        assert_eq!(load.ty(0), Some(Type::f32));
        assert_eq!(load.left_over(), None);
        assert_eq!(load.operand_left_over(), Some(0));
        assert!(matches!(load.operands[1], Operand::Addr(_)) && load.operands.get(2).is_none());
        assert_eq!(load.operand_left_over(), Some(0));
        assert!(matches!(load.operands.from(0), [Operand::Vector(_), _]));
        assert_eq!(load.operand_left_over(), None);
        let product = Statement::new(insts[2]);
        assert_eq!(product.find(|m| (m == Mod::rz).then_some(1)), Some(1));
        product.moot(&[Mod::ftz]);
        assert_eq!(product.types().count(), 1);
        assert_eq!(product.left_over(), None);
    }
}
