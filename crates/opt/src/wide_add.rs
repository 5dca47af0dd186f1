//! Sums of a 64-bit value and a wide product, which nearly every address is, in one instruction: where the halves
//! of `x + a × b` are added with a carry and collected, IMAD.WIDE does it all.
//!
//! The product's factors live on until the sum instead of the product: one or two registers instead of two. The
//! additions and the product go with the next removal of dead code unless something else needs them.

use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::{Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use sass::{Mod, Mods, Opcode, Reg};
use smallvec::SmallVec;

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let cfg = Cfg::new(func);
    let mut def: SecondaryMap<Value, Option<Inst>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_def(|n| {
                if let Some(v) = n.value() {
                    def[v] = Some(i);
                }
            });
        }
    }
    let mut changed = false;
    for &b in &cfg.rpo {
        let mut k = 0;
        while k < func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            if let Some((mut sum, other)) = match_sum(func, &def, i) {
                let addend = match other {
                    Addend::Value(v) => ori::operand(v),
                    // Where a constant can be an operand, the other one cannot.
                    Addend::Halves(lo, hi) if func.target.info().alu_const && adjacent(&lo, &hi) => {
                        if let Operand::Imm(_) = sum.operands[3] {
                            let factor = func.add_value(sass::RegFile::R, 1);
                            let mut copy = func.insts[i].clone();
                            copy.op = Op::Macro(Macro::Copy);
                            copy.operands =
                                [ori::operand(factor), sum.operands[3].clone()].into_iter().collect();
                            let new = func.insts.push(copy);
                            func.blocks[b].insts.insert(k, new);
                            k += 1;
                            sum.operands[3] = ori::operand(factor);
                        }
                        lo
                    }
                    Addend::Halves(lo, hi) => {
                        let pair = func.add_value(sass::RegFile::R, 2);
                        let mut collect = func.insts[i].clone();
                        collect.operands = [ori::operand(pair), lo, hi].into_iter().collect();
                        let new = func.insts.push(collect);
                        func.blocks[b].insts.insert(k, new);
                        k += 1;
                        ori::operand(pair)
                    }
                };
                sum.operands[4] = addend;
                func.insts[i] = sum;
                changed = true;
            }
            k += 1;
        }
    }
    changed
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

/// The word of an addition's operand, if it has no sign.
fn plain(o: &Operand) -> bool {
    match o {
        Operand::Reg(r) => !r.neg && !r.not && !r.abs,
        Operand::Const { neg, not, abs, .. } => !neg && !not && !abs,
        Operand::Imm(_) => true,
        _ => false,
    }
}

fn is_zero(o: &Operand) -> bool {
    matches!(o, Operand::Imm(0)) || matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ) && plain(o))
}

/// The operand is this predicate, negated or not.
fn is_pred(o: &Operand, name: Name, not: bool) -> bool {
    matches!(o, Operand::Reg(r) if r.reg == name && r.not == not)
}

fn value_of(o: &Operand) -> Option<Value> {
    match o {
        Operand::Reg(r) if plain(o) => match r.reg {
            Name::Val(v) => Some(v),
            _ => None,
        },
        _ => None,
    }
}

/// The two summands of a word of an addition: IADD3 with a zero among its sources, and the carry it takes.
fn summands(d: &InstData, carry_in: Option<Name>) -> Option<[Operand; 2]> {
    let x = d.mods.iter().eq([Mod::X]);
    if d.op != Op::Sass(Opcode::IADD3)
        || !d.is_unguarded()
        || x != carry_in.is_some()
        || d.operands.len() != 8
    {
        return None;
    }
    if !x && d.mods.iter().next().is_some() {
        return None;
    }
    let pt = Name::Phys(Reg::PT);
    let carries = match carry_in {
        None => is_pred(&d.operands[6], pt, true) && is_pred(&d.operands[7], pt, true),
        Some(c) => is_pred(&d.operands[6], c, false) && is_pred(&d.operands[7], pt, true),
    };
    let sources = &d.operands[3..6];
    if !carries || !is_pred(&d.operands[2], pt, false) || !sources.iter().all(plain) {
        return None;
    }
    let mut words: SmallVec<[Operand; 3]> = sources.iter().filter(|o| !is_zero(o)).cloned().collect();
    // A zero may be a summand, too.
    while words.len() < 2 {
        words.push(Operand::Imm(0));
    }
    match &words[..] {
        [a, b] => Some([a.clone(), b.clone()]),
        _ => None,
    }
}

/// The wide product whose word `part` this is.
fn product(func: &Function, def: &SecondaryMap<Value, Option<Inst>>, o: &Operand, part: u8) -> Option<Value> {
    let Operand::Reg(r) = o else { return None };
    let Name::Part(v, k) = r.reg else { return None };
    let d = &func.insts[def[v]?];
    let wide = d.op == Op::Sass(Opcode::IMAD) && d.mods.has(Mod::WIDE) && !d.mods.has(Mod::X);
    let ok = k == part && wide && d.is_unguarded() && is_zero(&d.operands[4]);
    let pt = Name::Phys(Reg::PT);
    (ok && is_pred(&d.operands[1], pt, false)).then_some(v)
}

/// The IMAD.WIDE that a collect of two added words can be, but for its addend.
fn match_sum(
    func: &Function,
    def: &SecondaryMap<Value, Option<Inst>>,
    i: Inst,
) -> Option<(InstData, Addend)> {
    let collect = &func.insts[i];
    if collect.op != Op::Macro(Macro::Collect) || !collect.is_unguarded() {
        return None;
    }
    let [dst, lo, hi] = &collect.operands[..] else { return None };
    let lo = &func.insts[def[value_of(lo)?]?];
    let hi = &func.insts[def[value_of(hi)?]?];
    let carry = value_of(lo.operands.get(1)?)?;
    let low = summands(lo, None)?;
    let high = summands(hi, Some(Name::Val(carry)))?;
    if !is_pred(hi.operands.get(1)?, Name::Phys(Reg::PT), false) {
        return None;
    }
    for (n, m) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let Some(p) = product(func, def, &low[n], 0) else { continue };
        if product(func, def, &high[m], 1) != Some(p) {
            continue;
        }
        let (x, y) = (low[1 - n].clone(), high[1 - m].clone());
        let whole = match (&x, &y) {
            (Operand::Reg(a), Operand::Reg(b)) => match (a.reg, b.reg) {
                (Name::Part(v, 0), Name::Part(w, 1)) if v == w && func.values[v].width == 2 => Some(v),
                _ => None,
            },
            _ => None,
        };
        let factors = &func.insts[def[p]?];
        let sum = InstData {
            operands: {
                let mut o = factors.operands.clone();
                o[0] = dst.clone();
                o
            },
            mods: Mods::of(&factors.mods.iter().collect::<SmallVec<[Mod; 4]>>()),
            loc: collect.loc,
            ..factors.clone()
        };
        let addend = match whole {
            Some(v) => Addend::Value(v),
            None => Addend::Halves(x, y),
        };
        return Some((sum, addend));
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
        assert!(super::run(&mut f));
        crate::dce::run(&mut f);
        ori::verify::verify(&f).unwrap();
        let text = f.to_string();
        assert!(text.contains("v6:R2 = IMAD.WIDE PT, v0, 0x4, v1, PT"), "{text}");
        assert!(text.contains("= collect v7.0, v0\n    v11:R2 = IMAD.WIDE PT, v0, 0x4, v12, PT"), "{text}");
        assert!(!text.contains("IADD3"), "{text}");
    }

    #[test]
    fn a_negated_word_is_another_sum() {
        let mut f =
            ori::parse::parse(&BEFORE.replace("v1.0, v2.0", "-v1.0, v2.0").replace("v2.0, v7", "-v2.0, v7"))
                .unwrap();
        assert!(!super::run(&mut f));
    }
}
