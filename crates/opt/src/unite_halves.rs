//! Two 16-bit numbers that go around a loop in registers of their own and are put together there become one register.
//!
//! Code that loads its data an iteration early, in words, takes them apart into halves before the end of the loop and puts
//! them together again where the loop begins: so Triton's do for matrices. A pair of block parameters that is read only where
//! both are put into one word, and that on every edge gets the halves of a word, or of another such pair, is replaced by
//! a parameter that gets the word.
//!
//! What is computed alike of the two halves of words, by instructions that compute both halves of their result of lower halves alone, is computed
//! at once: `{a.lo · s, a.hi · s}`, as code that dequantizes weights has it, is one HMUL2 of `a` and twice `s`.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::{
    ALWAYS, Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value, ValueData,
    operand,
};
use rustc_hash::FxHashMap;
use sass::ops::{Prmt, PrmtMods, Shf, ShfMods, ShiftDir, ShiftType};
use sass::{Mod, Mods, Opcode, RegFile, RegOp};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// A lower and an upper half.
type Pair = (Value, Value);

/// What defines a value: an instruction, or a parameter.
#[derive(Clone, Copy)]
enum Def {
    Inst(Inst),
    Param(Block, usize),
}

/// The register that is the whole operand.
fn plain(o: &Operand) -> Option<Name> {
    match o {
        Operand::Reg(r) if *r == RegOp::plain(r.reg) => Some(r.reg),
        _ => None,
    }
}

/// The halves that an instruction puts together.
fn joined(d: &InstData) -> Option<(Name, Name)> {
    let s = Prmt::of(d)?;
    let bare = PrmtMods::of(d)? == PrmtMods { mode: None } && d.is_unguarded();
    if !bare || *s.selector != Operand::Imm(0x5410) {
        return None;
    }
    Some((plain(s.a)?, plain(s.b)?))
}

struct Rewriter<'f> {
    func: &'f mut Function,
    defs: SecondaryMap<Value, Option<Def>>,
}

impl Rewriter<'_> {
    fn inst(&self, v: Value) -> Option<&InstData> {
        match self.defs[v]? {
            Def::Inst(i) => Some(&self.func.insts[i]),
            Def::Param(..) => None,
        }
    }

    /// What the name is a copy of.
    fn origin(&self, mut name: Name) -> Name {
        while let Name::Val(v) = name
            && let Some(d) = self.inst(v)
            && d.is_unguarded()
            && let Some(from) = d.copied().and_then(|(_, from)| plain(from))
            && self.func.shape(from) == self.func.values[v]
        {
            name = from;
        }
        name
    }

    /// The word whose halves these are.
    fn word(&self, (low, high): (Name, Name)) -> Option<Name> {
        let Name::Val(high) = self.origin(high) else { return None };
        let d = self.inst(high)?;
        let s = Shf::of(d)?;
        let right = ShfMods { dir: ShiftDir::R, wrap: false, kind: ShiftType::U32, hi: true };
        let shifts = d.is_unguarded() && ShfMods::of(d)? == right && *s.amount == Operand::Imm(16);
        let word = self.origin(plain(s.high).filter(|_| shifts)?);
        let general = self.func.shape(word) == ValueData { file: RegFile::R, width: 1 };
        (general && self.origin(low) == word).then_some(word)
    }

    /// Two parameters of the same block: the block and their places.
    fn parameters(&self, (low, high): (Name, Name)) -> Option<(Pair, Block, [usize; 2])> {
        let (Name::Val(low), Name::Val(high)) = (low, high) else { return None };
        match (self.defs[low]?, self.defs[high]?) {
            (Def::Param(b, i), Def::Param(c, k)) if b == c && low != high => Some(((low, high), b, [i, k])),
            _ => None,
        }
    }
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "unite-halves",
    "GeneralOptimizeMid2",
    "pairs of 16-bit numbers that go around a loop apart and are put together there",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    let mut defs: SecondaryMap<Value, Option<Def>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        for (k, p) in func.blocks[b].params.iter().enumerate() {
            defs[*p] = Some(Def::Param(b, k));
        }
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(|n| {
                if let Some(v) = n.value() {
                    defs[v] = Some(Def::Inst(i));
                }
            });
        }
    }
    let mut pass = Rewriter { func, defs };
    let mut changed = pass.known_words(cfg);
    changed |= pass.pack(cfg);
    let pairs = pass.pairs(cfg);
    changed |= !pairs.is_empty();
    pass.unite(cfg, &pairs);
    Changed::instructions(changed)
}

impl Rewriter<'_> {
    /// Replaces words that are put together from their own halves.
    fn known_words(&mut self, cfg: &Cfg) -> bool {
        let mut changed = false;
        for &b in &cfg.rpo {
            for k in 0..self.func.blocks[b].insts.len() {
                let i = self.func.blocks[b].insts[k];
                if let Some(word) = joined(&self.func.insts[i]).and_then(|halves| self.word(halves)) {
                    self.copy_into(i, word);
                    changed = true;
                }
            }
        }
        changed
    }

    /// Computes at once what is computed of both halves of words alike, and put together.
    fn pack(&mut self, cfg: &Cfg) -> bool {
        let uses = crate::uses::count(self.func);
        let mut changed = false;
        for i in cfg.rpo.iter().flat_map(|b| self.func.blocks[*b].insts.clone()) {
            let joint = &self.func.insts[i];
            let Some((Name::Val(low), Name::Val(high))) = joined(joint) else { continue };
            if uses[low] == 1
                && uses[high] == 1
                && let Some(mut packed) = self.packed(low, high)
            {
                (packed.operands[0], packed.loc) = (joint.operands[Prmt::D], joint.loc);
                self.func.insts[i] = packed;
                changed = true;
            }
        }
        changed
    }

    /// What computes these two, of lower halves alone, as halves of one number.
    fn packed(&self, low: Value, high: Value) -> Option<InstData> {
        let (a, b) = (self.inst(low)?, self.inst(high)?);
        let computes = matches!(a.op, Op::Sass(Opcode::HADD2 | Opcode::HMUL2)) && !a.mods.has(Mod::F32);
        let alike = a.op == b.op && a.mods == b.mods && a.is_unguarded() && b.is_unguarded();
        if !computes || !alike {
            return None;
        }
        let mut packed = a.clone();
        for (at, lower) in [(1, Mod::A_H0_H0), (2, Mod::B_H0_H0)] {
            let halves = (plain(&a.operands[at])?, plain(&b.operands[at])?);
            if !a.mods.has(lower) {
                return None;
            }
            if self.origin(halves.0) != self.origin(halves.1) {
                self.word(halves)?;
                packed.mods.remove(lower);
            }
        }
        Some(packed)
    }

    /// Makes an instruction that puts halves together a copy.
    fn copy_into(&mut self, inst: Inst, from: Name) {
        let d = &mut self.func.insts[inst];
        d.become_copy(d.operands[Prmt::D], operand(from));
    }

    /// The arguments that a pair of parameters gets, by block and edge.
    fn arguments(&self, cfg: &Cfg, b: Block, [i, k]: [usize; 2]) -> Vec<(Name, Name)> {
        let mut all = Vec::new();
        for &p in &cfg.preds[b] {
            for t in self.func.blocks[p].term.targets().iter().filter(|t| t.block == b) {
                all.push((Name::Val(t.args[i]), Name::Val(t.args[k])));
            }
        }
        all
    }

    /// The pairs to unite, by block: optimistically all that are joined somewhere, less those that cannot be.
    fn pairs(&self, cfg: &Cfg) -> FxHashMap<Pair, (Block, [usize; 2])> {
        let mut pairs: FxHashMap<Pair, (Block, [usize; 2])> = FxHashMap::default();
        let mut work = Vec::new();
        let add = |found: Option<(Pair, Block, [usize; 2])>,
                   pairs: &mut FxHashMap<Pair, (Block, [usize; 2])>,
                   work: &mut Vec<Pair>| {
            if let Some((pair, b, places)) = found
                && pairs.insert(pair, (b, places)).is_none()
            {
                work.push(pair);
            }
        };
        for &b in &cfg.rpo {
            for &i in &self.func.blocks[b].insts {
                let found = joined(&self.func.insts[i]).and_then(|h| self.parameters(h));
                add(found, &mut pairs, &mut work);
            }
        }
        while let Some(pair) = work.pop() {
            let (b, places) = pairs[&pair];
            for halves in self.arguments(cfg, b, places) {
                if self.word(halves).is_none() {
                    add(self.parameters(halves), &mut pairs, &mut work);
                }
            }
        }
        let uses = crate::uses::count(self.func);
        loop {
            // How often each half is read where both are.
            let mut together: SecondaryMap<Value, u32> = SecondaryMap::new();
            let mut count = |found: Option<(Pair, Block, [usize; 2])>| {
                if let Some((pair, ..)) = found
                    && pairs.contains_key(&pair)
                {
                    together[pair.0] += 1;
                    together[pair.1] += 1;
                }
            };
            for &b in &cfg.rpo {
                for &i in &self.func.blocks[b].insts {
                    count(joined(&self.func.insts[i]).and_then(|h| self.parameters(h)));
                }
            }
            for (b, places) in pairs.values() {
                self.arguments(cfg, *b, *places).into_iter().for_each(|h| count(self.parameters(h)));
            }
            let before = pairs.len();
            let good: Vec<Pair> = pairs
                .iter()
                .filter(|(pair, (b, places))| {
                    *b != self.func.entry_block()
                        && together[pair.0] == uses[pair.0]
                        && together[pair.1] == uses[pair.1]
                        && self.arguments(cfg, *b, *places).into_iter().all(|h| {
                            self.word(h).is_some()
                                || self.parameters(h).is_some_and(|(p, ..)| pairs.contains_key(&p))
                        })
                })
                .map(|(pair, _)| *pair)
                .collect();
            pairs.retain(|pair, _| good.contains(pair));
            if pairs.len() == before {
                return pairs;
            }
        }
    }

    /// Gives each pair's block a parameter for the word.
    fn unite(&mut self, cfg: &Cfg, pairs: &FxHashMap<Pair, (Block, [usize; 2])>) {
        let mut order: Vec<(Pair, Block, [usize; 2])> =
            pairs.iter().map(|(pair, (b, places))| (*pair, *b, *places)).collect();
        order.sort_unstable();
        let mut words: FxHashMap<Pair, Value> = FxHashMap::default();
        for (pair, b, _) in &order {
            let d = self.func.values[pair.0];
            let word = self.func.add_value(d.file, 1);
            self.func.blocks[*b].params.push(word);
            words.insert(*pair, word);
        }
        for (_, b, [i, k]) in &order {
            let mut preds: SmallVec<[Block; 4]> = cfg.preds[*b].clone();
            preds.sort_unstable();
            preds.dedup();
            for p in preds {
                let mut term = self.func.blocks[p].term.clone();
                for t in term.targets_mut().into_iter().filter(|t| t.block == *b) {
                    let halves = (Name::Val(t.args[*i]), Name::Val(t.args[*k]));
                    let word = match self.word(halves) {
                        Some(Name::Val(v)) => v,
                        Some(from) => self.copy_of(p, from),
                        None => match self.parameters(halves) {
                            Some((pair, ..)) => words[&pair],
                            None => unreachable!("looked at before"),
                        },
                    };
                    t.args.push(word);
                }
                self.func.blocks[p].term = term;
            }
        }
        for &b in &cfg.rpo {
            for n in 0..self.func.blocks[b].insts.len() {
                let i = self.func.blocks[b].insts[n];
                let found = joined(&self.func.insts[i]).and_then(|h| self.parameters(h));
                if let Some(word) = found.and_then(|(pair, ..)| words.get(&pair)) {
                    self.copy_into(i, Name::Val(*word));
                }
            }
        }
    }

    /// A copy at the end of a block.
    fn copy_of(&mut self, b: Block, from: Name) -> Value {
        let shape = self.func.shape(from);
        let v = self.func.add_value(shape.file, 1);
        let data = InstData {
            guard: ALWAYS,
            op: Op::Macro(Macro::Copy),
            mods: Mods::none(),
            operands: [operand(v), operand(from)].into_iter().collect(),
            kept: ThinVec::new(),
            loc: self.func.blocks[b].term_loc,
        };
        let inst = self.func.insts.push(data);
        self.func.blocks[b].insts.push(inst);
        v
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{BlockCall, Builder, Terminator};
    use sass::{SpecialReg, Target};

    /// A loop around a pair of halves, which come from words at first and, if `words`, later, too.
    fn around(words: bool) -> String {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let [body, done] = [(); 2].map(|()| f.add_block());
        let [low, high] = [(); 2].map(|()| f.add_value(RegFile::R, 1));
        f.blocks[body].params.extend([low, high]);
        let mut b = Builder::new(&mut f, entry);
        let half = |b: &mut Builder, v: Value| {
            b.def(Opcode::SHF, &[Mod::R, Mod::U32, Mod::HI], &[rz(), Operand::Imm(16), operand(v)])
        };
        let first = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
        let upper = half(&mut b, first);
        b.terminate(Terminator::Jump(BlockCall { block: body, args: [first, upper].into_iter().collect() }));
        b.block = body;
        let word = b.def(Opcode::PRMT, &[], &[operand(low), Operand::Imm(0x5410), operand(high)]);
        let address =
            Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };
        b.inst(Opcode::STS, &[], &[address, operand(word)]);
        let next = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_Y)]);
        let upper = if words { half(&mut b, next) } else { next };
        let more = b.def_pred(Opcode::ISETP, &[Mod::NE, Mod::AND], &[operand(next), rz(), pt(), pt()]);
        b.terminate(Terminator::Branch {
            cond: more.into(),
            not: false,
            taken: BlockCall { block: body, args: [next, upper].into_iter().collect() },
            fall: Builder::call(done),
        });
        b.block = done;
        b.terminate(Terminator::Exit);
        assert_eq!(run(&mut f, &Analyses::default()) != Changed::Nothing, words);
        ori::verify::verify(&f).unwrap();
        _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
        ori::dead::remove(&mut f);
        f.to_string()
    }

    fn rz() -> Operand {
        operand(Name::Phys(sass::Reg::RZ))
    }
    fn pt() -> Operand {
        operand(Name::Phys(sass::Reg::PT))
    }

    #[test]
    fn halves_of_words_stay_together() {
        let text = around(true);
        assert!(!text.contains("PRMT") && !text.contains("SHF"), "{text}");
    }

    #[test]
    fn other_halves_stay_apart() {
        let text = around(false);
        assert!(text.contains("PRMT") && text.contains("SHF"), "{text}");
    }
}
