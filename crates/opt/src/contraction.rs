//! Products and sums that PTX leaves open to contraction (`CONTRACT`: neither names a rounding) become one instruction
//! that rounds once. Which ones is what ptxas does (docs/lowering.md, "Contraction"): a product is taken in only if
//! every use of it is a sum that takes it in, of its block unless a factor is a constant.
//!
//! The product itself goes with the next removal of dead code.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Operand, Operands, Value, default_operand};
use rustc_hash::FxHashMap;
use sass::ops::{Fadd, Ffma};
use sass::{Mod, Mods, Opcode, Reg, RegOp};
use smallvec::SmallVec;

/// The opcodes that belong together.
struct Family {
    mul: Opcode,
    add: Opcode,
    fma: Opcode,
}

static FAMILIES: &[Family] = &[
    Family { mul: Opcode::FMUL, add: Opcode::FADD, fma: Opcode::FFMA },
    Family { mul: Opcode::DMUL, add: Opcode::DADD, fma: Opcode::DFMA },
    Family { mul: Opcode::HMUL2, add: Opcode::HADD2, fma: Opcode::HFMA2 },
];

/// A sum that a product, or its negation, is a term of.
#[derive(Clone, Copy)]
struct Term {
    product: Inst,
    sum: Inst,
    /// Which operand of the sum it is.
    operand: usize,
    /// It is subtracted.
    neg: bool,
}

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    1,
    "contract",
    "OriLinearReplacement",
    "products and sums that may be contracted become one instruction (not with `-fmad=false`)",
    run,
);

/// The pass. No instruction has `CONTRACT` afterwards.
pub fn run(func: &mut Function) -> bool {
    if !func.insts.values().any(|d| d.mods.has(Mod::CONTRACT)) {
        return false;
    }
    let chosen = Finder::new(func).chosen();
    let mut changed = false;
    for term in chosen {
        changed |= fuse(func, term);
    }
    for d in func.insts.values_mut().filter(|d| d.mods.has(Mod::CONTRACT)) {
        d.mods.remove(Mod::CONTRACT);
    }
    changed
}

struct Finder<'a> {
    func: &'a Function,
    /// What defines each value, and where.
    at: SecondaryMap<Value, Option<(Inst, Block)>>,
    uses: SecondaryMap<Value, u32>,
}

impl<'a> Finder<'a> {
    fn new(func: &'a Function) -> Finder<'a> {
        let mut at: SecondaryMap<Value, Option<(Inst, Block)>> = SecondaryMap::new();
        for &b in &func.layout {
            for &i in &func.blocks[b].insts {
                func.insts[i].for_each_def(|n| {
                    if let Some(v) = n.value() {
                        at[v] = Some((i, b));
                    }
                });
            }
        }
        Finder { func, at, uses: crate::uses::count(func) }
    }

    /// What is fused, in the order of the sums: of two products in one sum the first; nothing of a product with a use
    /// that does not take it in.
    fn chosen(&self) -> Vec<Term> {
        let terms = self.terms();
        let mut of: FxHashMap<Inst, SmallVec<[usize; 2]>> = FxHashMap::default();
        for (k, t) in terms.iter().enumerate() {
            of.entry(t.product).or_default().push(k);
        }
        let only_terms = |product: Inst| {
            let d = &self.func.insts[product];
            result(d).is_some_and(|v| self.uses[v] as usize == of[&product].len())
        };
        // The terms of a sum stand together, its first operand first.
        let mut taken = vec![false; terms.len()];
        let mut last = None;
        for (k, t) in terms.iter().enumerate() {
            if last != Some(t.sum) && only_terms(t.product) {
                taken[k] = true;
                last = Some(t.sum);
            }
        }
        let all = |t: &Term| of[&t.product].iter().all(|&k| taken[k]);
        terms.iter().enumerate().filter(|(k, t)| taken[*k] && all(t)).map(|(_, t)| *t).collect()
    }

    /// Every term, in the order of the sums and their operands.
    fn terms(&self) -> Vec<Term> {
        let mut found = Vec::new();
        for &b in &self.func.layout {
            for &sum in &self.func.blocks[b].insts {
                let d = &self.func.insts[sum];
                let Some(family) = sum_family(d) else { continue };
                for operand in [Fadd::A, Fadd::B] {
                    if let Some((product, neg)) = self.product(family, &d.operands[operand], b, formats(d)) {
                        found.push(Term { product, sum, operand, neg });
                    }
                }
            }
        }
        found
    }

    /// Whether a factor is a constant: then ptxas fuses the product with sums of other blocks, too.
    fn has_constant(&self, product: Inst) -> bool {
        let factors = binary(&self.func.insts[product]).map(|m| [m.a, m.b]);
        factors.is_some_and(|f| f.into_iter().any(|o| self.is_constant(o)))
    }

    /// Whether the operand is a number, or one in constant memory at a fixed place.
    fn is_constant(&self, o: &Operand) -> bool {
        match o {
            Operand::Imm(_) => true,
            Operand::Const { index, .. } => index.is_none(),
            Operand::Reg(r) => r.reg.value().and_then(|v| self.at[v]).is_some_and(|(i, _)| {
                let d = &self.func.insts[i];
                let moves = match d.op {
                    Op::Sass(op) => op.loads_constants(),
                    Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect),
                };
                let mut sources = d.operands.iter().enumerate().filter(|(k, _)| !d.is_def(*k));
                moves && d.is_unguarded() && sources.all(|(_, o)| self.is_constant(o))
            }),
            _ => false,
        }
    }

    /// The product of these formats behind an operand of a sum in block `b`, and whether it is subtracted.
    fn product(&self, family: &Family, o: &Operand, b: Block, f: Formats) -> Option<(Inst, bool)> {
        let (v, neg) = whole(o)?;
        let (i, block) = self.at[v]?;
        let d = &self.func.insts[i];
        let near = |i: Inst, block| block == b || self.has_constant(i);
        if !near(i, block) || formats(d) != f {
            return None;
        }
        if d.op == Op::Sass(family.mul) {
            return is_product(d).then_some((i, neg));
        }
        // A negation that nothing else needs: the sum of −x and −0.
        let is_sum = d.op == Op::Sass(family.add) && d.is_unguarded() && !d.mods.has(Mod::SAT);
        if !is_sum || self.uses[v] != 1 {
            return None;
        }
        let zero =
            |o: &Operand| matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ) && r.neg && !r.abs);
        let sum = binary(d)?;
        let inner = match (sum.a, sum.b) {
            (x, z) | (z, x) if zero(z) => whole(x).filter(|x| x.1)?.0,
            _ => return None,
        };
        let (product, block) = self.at[inner]?;
        let m = &self.func.insts[product];
        let fits = near(product, block) && m.op == Op::Sass(family.mul) && is_product(m) && formats(m) == f;
        fits.then_some((product, !neg))
    }
}

/// The value of an operand that is nothing but one, and whether it is negated.
fn whole(o: &Operand) -> Option<(Value, bool)> {
    match o {
        Operand::Reg(RegOp { reg: Name::Val(v), neg, abs: false, not: false, .. }) => Some((*v, *neg)),
        _ => None,
    }
}

/// The operands of a product or a sum: FMUL, DADD and so on have slots as FADD has.
fn binary(d: &InstData) -> Option<Fadd<&Operand>> {
    Fadd::slots(&d.operands)
}

fn result(d: &InstData) -> Option<Value> {
    whole(binary(d)?.d).map(|(v, _)| v)
}

fn is_product(d: &InstData) -> bool {
    d.mods.has(Mod::CONTRACT) && !d.mods.has(Mod::SAT) && d.is_unguarded() && !d.operands.iter().any(has_bars)
}

fn sum_family(d: &InstData) -> Option<&'static Family> {
    let family = FAMILIES.iter().find(|f| d.op == Op::Sass(f.add))?;
    (d.mods.has(Mod::CONTRACT) && !d.operands.iter().any(has_bars)).then_some(family)
}

/// Whether it is an absolute value, which FFMA and its like don't take.
fn has_bars(o: &Operand) -> bool {
    match o {
        Operand::Reg(r) => r.abs,
        Operand::Const { abs, .. } => *abs,
        _ => false,
    }
}

/// What product and sum must agree on: subnormals, format, and whether they take registers or the lower halves.
type Formats = [bool; 4];

fn formats(d: &InstData) -> Formats {
    [Mod::FTZ, Mod::BF16_V2, Mod::A_H0_H0, Mod::B_H0_H0].map(|m| d.mods.has(m))
}

/// The register operand with its sign changed.
fn negated(o: &Operand) -> Option<Operand> {
    match o {
        Operand::Reg(r) => Some(Operand::Reg(RegOp { neg: !r.neg, ..*r })),
        _ => None,
    }
}

/// Makes the sum take in the product.
fn fuse(func: &mut Function, term: Term) -> bool {
    let (p, s) = (&func.insts[term.product], &func.insts[term.sum]);
    let Some(family) = sum_family(s) else { return false };
    let (Some(product), Some(sum)) = (binary(p), binary(s)) else { return false };
    let (mut a, mut b) = (*product.a, *product.b);
    if term.neg {
        match (negated(&a), negated(&b)) {
            (Some(x), _) => a = x,
            (None, Some(x)) => b = x,
            (None, None) => return false,
        }
    }
    let addend = if term.operand == Fadd::A { *sum.b } else { *sum.a };
    let mut mods: SmallVec<[Mod; 6]> = s.mods.iter().filter(|m| *m != Mod::CONTRACT).collect();
    if mods.contains(&Mod::B_H0_H0) {
        mods.push(Mod::C_H0_H0);
    }
    let fused = Ffma { d: *sum.d, a, b, c: addend };
    let mut operands: Operands = fused.list().into();
    operands.extend((operands.len()..family.fma.slots().len()).map(|slot| default_operand(family.fma, slot)));
    let d = &mut func.insts[term.sum];
    d.op = Op::Sass(family.fma);
    d.mods = Mods::of(&mods);
    d.operands = operands;
    true
}
