//! Sums of a 64-bit value and a wide product, which nearly every address is: of `x + a × b` IMAD.WIDE does it all. In a product
//! of 64-bit factors the upper word has further products added to it; those are then added to the upper word of the sum.
//!
//! The product's factors live on until the sum instead of the product: one or two registers instead of two. The
//! product goes with the next removal of dead code unless something else needs it.

use crate::Pass;
use crate::sums::{self, Places, is_pred, is_zero, plain, value_of};
use ori::pairs::{WideSum, words};
use ori::{Analyses, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use sass::ops::{Imad, ImadMods, ImadPart};
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
    for &b in &cfg.rpo {
        if !func.blocks[b].insts.iter().any(|i| WideSum::of(&func.insts[*i]).is_some()) {
            continue;
        }
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut new = Vec::with_capacity(old.len() + 8);
        for i in old {
            if let Some(sum) = match_sum(func, &at, i) {
                apply(func, sum, i, &mut new);
                changed = true;
            }
            new.push(i);
        }
        func.blocks[b].insts = new;
    }
    Changed::instructions(changed)
}

/// A sum that was found.
struct Sum {
    /// The product that it adds.
    factors: Inst,
    /// What is added to the product.
    addend: Operand,
    /// Multiplications that come on top of the product's upper word, outermost first.
    chain: SmallVec<[Inst; 2]>,
}

/// Has the sum `i` become a product, behind what is put in front of it.
fn apply(func: &mut Function, sum: Sum, i: Inst, front: &mut Vec<Inst>) {
    let loc = func.insts[i].loc;
    let to = func.insts[i].operands[0];
    let mut add = |func: &mut Function, m: Macro, width: u8, sources: &[Operand]| {
        let v = func.add_value(sass::RegFile::R, width);
        let operands = std::iter::once(ori::operand(v)).chain(sources.iter().copied()).collect();
        let mods = Mods::none();
        let kept = ThinVec::new();
        let d = InstData { guard: ori::ALWAYS, op: Op::Macro(m), mods, operands, kept, loc };
        front.push(func.insts.push(d));
        ori::operand(v)
    };
    let mut data = InstData { loc, ..func.insts[sum.factors].clone() };
    data.operands[Imad::C] = match sum.addend {
        // No form takes a number here.
        Operand::Imm(_) => add(func, Macro::Collect, 2, &words(sum.addend)),
        // Where a constant can be an operand, the other one cannot.
        Operand::Const { .. } => {
            if let number @ Operand::Imm(_) = data.operands[Imad::B] {
                data.operands[Imad::B] = add(func, Macro::Copy, 1, &[number]);
            }
            sum.addend
        }
        other => other,
    };
    if sum.chain.is_empty() {
        data.operands[Imad::D] = to;
        func.insts[i] = data;
        return;
    }
    let pair = func.add_value(sass::RegFile::R, 2);
    data.operands[Imad::D] = ori::operand(pair);
    front.push(func.insts.push(data));
    let mut upper = Name::Part(pair, 1);
    for &product in sum.chain.iter().rev() {
        let mut d = func.insts[product].clone();
        let v = func.add_value(sass::RegFile::R, 1);
        d.operands[Imad::D] = ori::operand(v);
        d.operands[Imad::C] = ori::operand(upper);
        front.push(func.insts.push(d));
        upper = Name::Val(v);
    }
    let d = &mut func.insts[i];
    (d.op, d.mods) = (Op::Macro(Macro::Collect), Mods::none());
    d.operands = [to, ori::operand(Name::Part(pair, 0)), ori::operand(upper)].into_iter().collect();
}

/// Whether an instruction makes a wide product and adds nothing to it.
fn is_product(d: &InstData) -> bool {
    let (Some(s), Some(m)) = (Imad::of(d), ImadMods::of(d)) else { return false };
    let wide = m.part == Some(ImadPart::WIDE) && !m.extended && d.is_unguarded();
    wide && is_zero(s.c) && is_pred(s.carry_out, Name::Phys(Reg::PT), false)
}

/// The product that a term of a sum is, and those on top of its upper word.
fn product(func: &Function, at: &Places, o: &Operand) -> Option<(Inst, SmallVec<[Inst; 2]>)> {
    let (i, ..) = at[value_of(o)?]?;
    let d = &func.insts[i];
    if is_product(d) {
        return Some((i, SmallVec::new()));
    }
    let (_, [low, high]) = d.collected().filter(|_| d.is_unguarded())? else { return None };
    let Operand::Reg(r) = low else { return None };
    let Name::Part(p, 0) = r.reg else { return None };
    let (factors, ..) = at[p].filter(|_| plain(low))?;
    is_product(&func.insts[factors]).then_some((factors, upper_word(func, at, high, p)?))
}

/// What was added to the upper word of `p` to make this.
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
                let (i, ..) = at[v]?;
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

/// A sum of a product, and what it adds, if that has no sign.
fn match_sum(func: &Function, at: &Places, i: Inst) -> Option<Sum> {
    let [x, y] = WideSum::of(&func.insts[i])?.terms;
    [(x, y), (y, x)].into_iter().find_map(|(term, addend)| {
        let (factors, chain) = product(func, at, &term).filter(|_| plain(&addend))?;
        let addend = in_constant_memory(func, at, &addend).unwrap_or(addend);
        Some(Sum { factors, addend, chain })
    })
}

/// The pair in constant memory that a term is, where that can be an operand.
fn in_constant_memory(func: &Function, at: &Places, o: &Operand) -> Option<Operand> {
    let (i, ..) = at[value_of(o)?]?;
    let (_, [low, high]) = func.insts[i].collected()? else { return None };
    (func.target.info().alu_const && func.insts[i].is_unguarded() && adjacent(low, high)).then_some(*low)
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

#[cfg(test)]
mod tests {
    const BEFORE: &str = "\
function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R2 = IMAD.WIDE PT, v0, 0x4, RZ, PT
    v6:R2 = IADD.64 PT, v1, v2, !PT
    v7:R2 = LDG.E.64 PT, [v6.64], PT
    v12:R2 = collect v7.0, v0
    v11:R2 = IADD.64 PT, v2, v12, !PT
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
        assert!(text.contains("= IMAD.WIDE PT, v0, 0x4, v12, PT"), "{text}");
        assert!(!text.contains("IADD"), "{text}");
    }

    #[test]
    fn upper_products_follow() {
        let more = "\
    v20:R2 = LDC.64 c[0x0][0x218]
    v21:R = IMAD PT, v0, v20.1, v2.1, PT
    v22:R2 = collect v2.0, v21
    v6:R2";
        let before = BEFORE.replace("v0, 0x4, RZ", "v0, v1.0, RZ").replace("    v6:R2", more);
        let before = before.replace("IADD.64 PT, v1, v2", "IADD.64 PT, v1, v22");
        let mut f = ori::parse::parse(&before).unwrap();
        assert_ne!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
        ori::verify::verify(&f).unwrap();
        _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
        ori::dead::remove(&mut f);
        let text = f.to_string();
        assert!(text.contains("v23:R2 = IMAD.WIDE PT, v0, v1.0, v1, PT"), "{text}");
        assert!(text.contains("IMAD PT, v0, v20.1, v23.1, PT") && !text.contains("IADD"), "{text}");
    }

    #[test]
    fn a_number_is_put_into_registers() {
        let mut f = ori::parse::parse(&BEFORE.replace("PT, v1, v2", "PT, v2, 0xfffffff0")).unwrap();
        assert_ne!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
        ori::verify::verify(&f).unwrap();
        let text = f.to_string();
        assert!(text.contains("collect 0xfffffff0, 0xffffffff"), "{text}");
    }

    #[test]
    fn a_negated_term_is_another_sum() {
        let signed = BEFORE.replace("PT, v1, v2", "PT, -v1, v2").replace("PT, v2, v12", "PT, -v2, v12");
        let mut f = ori::parse::parse(&signed).unwrap();
        assert_eq!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
    }
}
