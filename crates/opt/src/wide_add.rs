//! Sums of a 64-bit value and a wide product, which nearly every address is: where the halves of `x + a × b` are
//! added with a carry, IMAD.WIDE does it all. In a product of 64-bit factors the upper word has further products
//! added to it; those are then added to the upper word of the sum.
//!
//! The product's factors live on until the sum instead of the product: one or two registers instead of two. The
//! additions and the product go with the next removal of dead code unless something else needs them.

use crate::Pass;
use crate::sums::{self, Places, is_pred, is_zero, plain, value_of};
use cranelift_entity::SecondaryMap;
use ori::{Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use rustc_hash::FxHashMap;
use sass::ops::{Iadd3, Imad, ImadMods, ImadPart};
use sass::{Mods, Reg};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// The pass, for the table.
pub const PASS: Pass =
    Pass::analysed(1, "wide-sums", "GeneralOptimize", "sums of products of 64 bits in one instruction", run);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    let mut changed = false;
    let at = sums::places(func);
    let uses = crate::uses::count(func);
    for &b in &cfg.rpo {
        // What comes before the instruction at each position.
        let mut before: FxHashMap<usize, SmallVec<[Inst; 4]>> = FxHashMap::default();
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            let Some(sum) = match_sum(func, &at, &uses, i, b) else { continue };
            apply(func, sum, i, k, &mut before);
            changed = true;
        }
        if before.is_empty() {
            continue;
        }
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut new = Vec::with_capacity(old.len() + 4 * before.len());
        for (k, i) in old.into_iter().enumerate() {
            new.extend(before.remove(&k).into_iter().flatten());
            new.push(i);
        }
        func.blocks[b].insts = new;
    }
    Changed::instructions(changed)
}

/// A sum that was found.
struct Sum {
    /// The instruction that adds the low words, and its position.
    low: (Inst, usize),
    /// The product that it adds.
    factors: Inst,
    addend: Addend,
    /// Multiplications that come on top of the product's upper word, outermost first.
    chain: SmallVec<[Inst; 2]>,
}

/// A copy of `name` that takes the place of an addition.
fn copy_into(func: &mut Function, inst: Inst, name: Name) {
    let d = &mut func.insts[inst];
    d.become_copy(d.operands[Iadd3::D], ori::operand(name));
}

/// Rewrites the additions `sum.low` and `high`.
fn apply(
    func: &mut Function,
    sum: Sum,
    high: Inst,
    high_at: usize,
    before: &mut FxHashMap<usize, SmallVec<[Inst; 4]>>,
) {
    let (low, low_at) = sum.low;
    let loc = func.insts[low].loc;
    let mut data = func.insts[sum.factors].clone();
    data.loc = loc;
    let place = before.entry(low_at).or_default();
    let mut add = |func: &mut Function, m: Macro, width: u8, sources: &[Operand]| {
        let v = func.add_value(sass::RegFile::R, width);
        let operands = std::iter::once(ori::operand(v)).chain(sources.iter().cloned()).collect();
        let d = InstData {
            guard: ori::ALWAYS,
            op: Op::Macro(m),
            mods: Mods::none(),
            operands,
            kept: ThinVec::new(),
            loc,
        };
        place.push(func.insts.push(d));
        ori::operand(v)
    };
    data.operands[Imad::C] = match sum.addend {
        Addend::Value(v) => ori::operand(v),
        // Where a constant can be an operand, the other one cannot.
        Addend::Halves(lo, hi) if func.target.info().alu_const && adjacent(&lo, &hi) => {
            if let number @ Operand::Imm(_) = data.operands[Imad::B] {
                data.operands[Imad::B] = add(func, Macro::Copy, 1, &[number]);
            }
            lo
        }
        Addend::Halves(lo, hi) => add(func, Macro::Collect, 2, &[lo, hi]),
    };
    let pair = func.add_value(sass::RegFile::R, 2);
    data.operands[Imad::D] = ori::operand(pair);
    place.push(func.insts.push(data));
    copy_into(func, low, Name::Part(pair, 0));
    let mut upper = Name::Part(pair, 1);
    for &i in sum.chain.iter().rev() {
        let mut d = func.insts[i].clone();
        let v = func.add_value(sass::RegFile::R, 1);
        d.operands[Imad::D] = ori::operand(v);
        d.operands[Imad::C] = ori::operand(upper);
        before.entry(high_at).or_default().push(func.insts.push(d));
        upper = Name::Val(v);
    }
    copy_into(func, high, upper);
}

/// What is added to the product.
enum Addend {
    /// A pair.
    Value(Value),
    /// Two words.
    Halves(Operand, Operand),
}

/// Whether two words of constant memory are a pair.
fn adjacent(lo: &Operand, hi: &Operand) -> bool {
    match (lo, hi) {
        (
            Operand::Const { bank: a, index: None, offset: x, .. },
            Operand::Const { bank: b, index: None, offset: y, .. },
        ) => a == b && *y == x + 4 && x % 8 == 0,
        _ => false,
    }
}

/// The wide product whose lower word this is.
fn product(func: &Function, at: &Places, o: &Operand) -> Option<Value> {
    let Operand::Reg(r) = o else { return None };
    let Name::Part(v, 0) = r.reg else { return None };
    let d = &func.insts[at[v]?.0];
    let (s, m) = (Imad::of(d)?, ImadMods::of(d)?);
    let wide = m.part == Some(ImadPart::WIDE) && !m.extended && d.is_unguarded();
    (wide && is_zero(s.c) && is_pred(s.carry_out, Name::Phys(Reg::PT), false)).then_some(v)
}

/// Whether this is the upper word of `p`, with products added to it perhaps: those.
fn upper_word(func: &Function, at: &Places, o: &Operand, p: Value) -> Option<SmallVec<[Inst; 2]>> {
    let mut chain: SmallVec<[Inst; 2]> = SmallVec::new();
    let mut word = o;
    loop {
        let Operand::Reg(r) = word else { return None };
        if !plain(word) {
            return None;
        }
        match r.reg {
            Name::Part(v, 1) if v == p => return Some(chain),
            Name::Val(v) if chain.len() < 2 => {
                let i = at[v]?.0;
                let d = &func.insts[i];
                let bare = ImadMods { part: None, alias: None, unsigned: false, extended: false };
                if ImadMods::of(d)? != bare || !d.is_unguarded() {
                    return None;
                }
                chain.push(i);
                word = Imad::of(d)?.c;
            }
            _ => return None,
        }
    }
}

/// A sum whose upper words `i` adds.
fn match_sum(
    func: &Function,
    at: &Places,
    uses: &SecondaryMap<Value, u32>,
    i: Inst,
    b: Block,
) -> Option<Sum> {
    let sum = sums::sum(func, at, uses, i, b)?;
    let (low, high) = (sum.low, sum.high?.terms);
    let low_at = at[value_of(Iadd3::of(&func.insts[sum.inst])?.d)?]?.2;
    for (n, m) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let Some(p) = product(func, at, &low[n]) else { continue };
        let Some(chain) = upper_word(func, at, &high[m], p) else { continue };
        let (x, y) = (low[1 - n], high[1 - m]);
        let whole = match (&x, &y) {
            (Operand::Reg(a), Operand::Reg(b)) => match (a.reg, b.reg) {
                (Name::Part(v, 0), Name::Part(w, 1)) if v == w && func.values[v].width == 2 => Some(v),
                _ => None,
            },
            _ => None,
        };
        // The addend's upper word must be there when the lower ones are added.
        let early = |o: &Operand| match o {
            Operand::Reg(r) => match r.reg.value() {
                Some(v) => at[v].is_none_or(|(_, block, k)| block != b || k < low_at),
                None => true,
            },
            _ => true,
        };
        if !early(&y) {
            continue;
        }
        let addend = match whole {
            Some(v) => Addend::Value(v),
            None => Addend::Halves(x, y),
        };
        return Some(Sum { low: (sum.inst, low_at), factors: at[p]?.0, addend, chain });
    }
    None
}

#[cfg(test)]
mod tests {
    const BEFORE: &str = "\
function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R2 = IMAD.WIDE PT, v0, 0x4, RZ, PT
    v3:R, v4:P = IADD3 PT, v1.0, v2.0, RZ, !PT, !PT
    v5:R = IADD3.X PT, PT, v1.1, v2.1, RZ, v4, !PT
    v6:R2 = collect v3, v5
    v7:R2 = LDG.E.64 PT, [v6.64], PT
    v8:R, v9:P = IADD3 PT, v2.0, v7.0, RZ, !PT, !PT
    v10:R = IADD3.X PT, PT, v2.1, v0, RZ, v9, !PT
    v11:R2 = collect v8, v10
    STG.E.64 [v11.64], v7
    exit
}
";

    #[test]
    fn sums_of_products_become_one_instruction() {
        let mut f = ori::parse::parse(BEFORE).unwrap();
        assert_ne!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
        ori::verify::verify(&f).unwrap();
        _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
        ori::dead::remove(&mut f);
        ori::verify::verify(&f).unwrap();
        let text = f.to_string();
        assert!(text.contains("= IMAD.WIDE PT, v0, 0x4, v1, PT"), "{text}");
        assert!(text.contains("= collect v7.0, v0"), "{text}");
        assert!(!text.contains("IADD3"), "{text}");
    }

    #[test]
    fn upper_products_follow() {
        let more = "\
    v20:R2 = LDC.64 c[0x0][0x218]
    v21:R = IMAD PT, v0, v20.1, v2.1, PT
    v3:R, v4:P";
        let before = BEFORE.replace("v0, 0x4, RZ", "v0, v1.0, RZ").replace("    v3:R, v4:P", more);
        let before = before.replace("IADD3.X PT, PT, v1.1, v2.1", "IADD3.X PT, PT, v1.1, v21");
        let mut f = ori::parse::parse(&before).unwrap();
        assert_ne!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
        ori::verify::verify(&f).unwrap();
        _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
        ori::dead::remove(&mut f);
        let text = f.to_string();
        assert!(text.contains("IMAD.WIDE PT, v0, v1.0, v1, PT"), "{text}");
        assert!(text.contains("IMAD PT, v0, v20.1, v22.1, PT") && !text.contains("IADD3"), "{text}");
    }

    #[test]
    fn a_negated_word_is_another_sum() {
        let mut f =
            ori::parse::parse(&BEFORE.replace("v1.0, v2.0", "-v1.0, v2.0").replace("v2.0, v7", "-v2.0, v7"))
                .unwrap();
        assert_eq!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
    }
}
