//! Results of which only one word is used: sums of 64 bits become sums of 32, products products of 32 or their upper halves, pairs of constants
//! one constant. What they are made of is used in part alone then, too, so that whole chains of 64-bit arithmetic on
//! addresses of 32 bits get narrow. Comparisons of pairs, as sm_120 has them, compare words where the other ones are known to be alike. Bits of factors that products of matrices do not read need not be cleared.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::pairs::{Collected, WideSum, is_zero, value_of};
use ori::{Function, Inst, InstData, Name, Op, Operand, Value};
use sass::ops::{
    Hmma, HmmaSp, Iadd3, Icmp, Imad, ImadMods, ImadPart, Int64, Isetp, IsetpMods, Ldc, LdcMods, Lop3, Shf,
    ShfMods, ShiftDir, ShiftType, Size64,
};
use sass::{Mod, Mods, Opcode, Reg, RegOp};

/// How often a value is read whole, and each of its first two words alone.
#[derive(Clone, Copy, Default)]
struct Reads {
    whole: u32,
    words: [u32; 2],
}

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    2,
    "narrow",
    "MidExpansion",
    "sums, products and constants of 64 bits of which one word is used; comparisons of pairs that one word decides",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    compared(func) | masked_shifts(func) | words(func) | ignored_bits(func)
}

/// Compares words of pairs whose other words are the same, as those of numbers of 32 bits are.
fn compared(func: &mut Function) -> bool {
    let mut collected: SecondaryMap<Value, Option<[Operand; 2]>> = SecondaryMap::new();
    let mut wide: Vec<Inst> = Vec::new();
    for i in func.layout.iter().flat_map(|b| &func.blocks[*b].insts).copied() {
        let d = &func.insts[i];
        if let Some((Operand::Reg(RegOp { reg: Name::Val(v), .. }), &[low, high])) = d.collected()
            && d.is_unguarded()
            && [low, high].iter().all(|o| !matches!(o, Operand::Reg(r) if *r != RegOp::plain(r.reg)))
        {
            collected[*v] = Some([low, high]);
        } else if IsetpMods::of(d).is_some_and(|m| matches!(m.kind, Some(Int64::U64 | Int64::S64))) {
            wide.push(i);
        }
    }
    let zero = ori::operand(Name::Phys(Reg::RZ));
    let words = |o: &Operand| match o {
        Operand::Imm(n) => Some([*n, (*n as i32 >> 31) as u32].map(Operand::Imm)),
        Operand::Reg(r) if *r == RegOp::plain(r.reg) => match r.reg {
            Name::Val(v) => {
                let parts = [0, 1].map(|k| ori::operand(Name::Part(v, k)));
                (func.values[v].width == 2).then(|| collected[v].unwrap_or(parts))
            }
            Name::Phys(Reg::RZ) => Some([zero; 2]),
            _ => None,
        },
        _ => None,
    };
    let plain = |o: Operand| if o == Operand::Imm(0) { zero } else { o };
    let narrow = |d: &InstData| {
        let (s, m) = (Isetp::of(d)?, IsetpMods::of(d)?);
        let ([a_low, a_high], [b_low, b_high]) = (words(s.a)?.map(plain), words(s.b)?.map(plain));
        let kept = match () {
            () if a_high == b_high => [a_low, b_low],
            () if a_low == b_low && matches!(m.cmp, Icmp::EQ | Icmp::NE) => [a_high, b_high],
            () => return None,
        };
        Some((kept, IsetpMods { kind: Some(Int64::U32), ..m }.mods()))
    };
    let found: Vec<_> = wide.into_iter().filter_map(|i| Some((i, narrow(&func.insts[i])?))).collect();
    for (i, ([a, b], mods)) in &found {
        let d = &mut func.insts[*i];
        d.mods = mods.clone();
        (d.operands[Isetp::A], d.operands[Isetp::B]) = (*a, *b);
    }
    !found.is_empty()
}

/// Shifts of 64 bits to the right of which a mask leaves what comes from the lower word alone are shifts of that: addresses in descriptors are so.
fn masked_shifts(func: &mut Function) -> bool {
    let funnel = ShfMods { dir: ShiftDir::R, wrap: false, kind: ShiftType::U64, hi: false };
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).copied();
    let mut shifts: SecondaryMap<Value, Option<(Inst, u32)>> = SecondaryMap::new();
    let mut any = false;
    for i in insts().filter(|i| func.insts[*i].is_unguarded()) {
        if let Some(s) = Shf::of(&func.insts[i]).filter(|_| ShfMods::of(&func.insts[i]) == Some(funnel))
            && let (Operand::Reg(RegOp { reg: Name::Val(v), .. }), Operand::Imm(n @ 1..32)) = (s.d, s.amount)
        {
            shifts[*v] = Some((i, *n));
            any = true;
        }
    }
    if !any {
        return false;
    }
    let uses = crate::uses::count(func);
    let masked = |i: Inst| {
        let s = Lop3::of(&func.insts[i])?;
        let (x, mask) = match (s.a, s.b) {
            (x, Operand::Imm(mask)) | (Operand::Imm(mask), x) => (value_of(x)?, *mask),
            _ => return None,
        };
        let v = Some(x).filter(|v| uses[*v] == 1 && *s.table == Operand::Imm(AND) && is_zero(s.c))?;
        shifts[v].filter(|(_, n)| mask.leading_zeros() >= *n).map(|(shift, _)| shift)
    };
    let found: Vec<Inst> = insts().filter_map(masked).collect();
    for i in &found {
        let d = &mut func.insts[*i];
        d.mods = ShfMods { kind: ShiftType::U32, hi: true, ..funnel }.mods();
        if let Some(s) = Shf::of_mut(d) {
            (*s.high, *s.low) = (*s.low, ori::operand(Name::Phys(Reg::RZ)));
        }
    }
    !found.is_empty()
}

/// The table of a LOP3 that is `a & b`.
const AND: u32 = 0xc0;

/// The bits of binary32 numbers that tf32 has, which products of such read alone.
const TF32: u32 = 0xffff_e000;

/// Takes away what clears bits that products of matrices do not read: as ptxas, where nothing else has the number.
fn ignored_bits(func: &mut Function) -> bool {
    // The factors of such a product.
    let product = |d: &InstData| {
        let factors = match (Hmma::of(d), HmmaSp::of(d)) {
            (Some(s), _) => [*s.a, *s.b],
            (None, Some(s)) => [*s.a, *s.b],
            (None, None) => return None,
        };
        d.mods.has(Mod::TF32).then_some(factors)
    };
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| (*i, &func.insts[*i]));
    if !insts().any(|(_, d)| product(d).is_some()) {
        return false;
    }
    // The numbers without their mask, and of each tuple how often products read it as a factor.
    let mut unmasked: SecondaryMap<Value, Option<Name>> = SecondaryMap::new();
    let mut factors: SecondaryMap<Value, u32> = SecondaryMap::new();
    for (_, d) in insts() {
        for o in product(d).into_iter().flatten() {
            if let Operand::Reg(RegOp { reg: Name::Val(v), .. }) = o {
                factors[v] += 1;
            }
        }
        if let Some(Lop3 {
            d: Operand::Reg(to),
            a: Operand::Reg(x),
            b: Operand::Imm(TF32),
            c: zero,
            table: Operand::Imm(0xc0),
            ..
        }) = Lop3::of(d)
            && let (Name::Val(to), true) = (to.reg, d.is_unguarded())
            && *zero == ori::operand(Name::Phys(Reg::RZ))
            && !x.not
        {
            unmasked[to] = Some(x.reg);
        }
    }
    let uses = crate::uses::count(func);
    let collects: Vec<Inst> = insts()
        .filter(|(_, d)| match d.copied().map(|c| c.0).or_else(|| d.collected().map(|c| c.0)) {
            Some(Operand::Reg(RegOp { reg: Name::Val(v), .. })) => {
                factors[*v] != 0 && factors[*v] == uses[*v]
            }
            _ => false,
        })
        .map(|(i, _)| i)
        .collect();
    let mut changed = false;
    for i in collects {
        func.insts[i].map_uses(|n| match n {
            Name::Val(v) if unmasked[v].is_some() => {
                changed = true;
                unmasked[v].unwrap_or(n)
            }
            _ => n,
        });
    }
    changed
}

/// Narrows what only one word is read of.
fn words(func: &mut Function) -> bool {
    let mut reads: SecondaryMap<Value, Reads> = SecondaryMap::new();
    let count = |reads: &mut SecondaryMap<Value, Reads>, n: Name| match n {
        Name::Val(v) => reads[v].whole += 1,
        Name::Part(v, i @ 0..=1) => reads[v].words[usize::from(i)] += 1,
        Name::Part(..) | Name::Phys(_) => {}
    };
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            func.insts[i].for_each_use(|n| count(&mut reads, n));
        }
        let term = &func.blocks[b].term;
        term.used_name().into_iter().for_each(|n| count(&mut reads, n));
        term.targets().iter().flat_map(|t| &t.args).for_each(|v| count(&mut reads, Name::Val(*v)));
    }
    let collected = Collected::of(func);
    // Readers before what they read, but around loops.
    let mut narrowed: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut changed = false;
    for b in func.layout.clone().into_iter().rev() {
        for i in func.blocks[b].insts.clone().into_iter().rev() {
            let d = &func.insts[i];
            let Some(result) = result(d) else { continue };
            let word = match reads[result] {
                Reads { whole: 0, words: [1..=u32::MAX, 0] } => 0,
                Reads { whole: 0, words: [0, 1..=u32::MAX] } => 1,
                _ => continue,
            };
            if func.values[result].width != 2 {
                continue;
            }
            let Some(mut new) = narrow(d, &collected, word) else { continue };
            d.for_each_use(|n| {
                if let Name::Val(v) = n {
                    reads[v].whole -= 1;
                } else if let Name::Part(v, k @ 0..=1) = n {
                    reads[v].words[usize::from(k)] -= 1;
                }
            });
            let value = func.add_value(func.values[result].file, 1);
            if let Some(s) = Ldc::of_mut(&mut new) {
                *s.d = ori::operand(value);
            } else if let Some(s) = Imad::of_mut(&mut new) {
                *s.d = ori::operand(value);
            } else if let Some(s) = Iadd3::of_mut(&mut new) {
                *s.d = ori::operand(value);
            }
            new.for_each_use(|n| count(&mut reads, n));
            func.insts[i] = new;
            narrowed[result] = Some(value);
            changed = true;
        }
    }
    if changed {
        for b in func.layout.clone() {
            let own = |n: Name| match n {
                Name::Part(v, _) => narrowed[v].map_or(n, Name::Val),
                _ => n,
            };
            for i in func.blocks[b].insts.clone() {
                func.insts[i].map_uses(own);
            }
            if let Some(n) = func.blocks[b].term.used_name_mut() {
                *n = own(*n);
            }
        }
    }
    changed
}

/// What a load of constants, a product or a sum of 64 bits makes.
fn result(d: &InstData) -> Option<Value> {
    if let Some(sum) = WideSum::of(d) {
        return Some(sum.to);
    }
    let to = Ldc::of(d).map(|s| s.d).or_else(|| Imad::of(d).map(|s| s.d))?;
    match to {
        Operand::Reg(RegOp { reg: Name::Val(v), .. }) => Some(*v),
        _ => None,
    }
}

/// What computes a word of the result alone; where that goes is to be replaced.
fn narrow(d: &InstData, collected: &Collected, word: u8) -> Option<InstData> {
    if !d.is_unguarded() {
        return None;
    }
    let mut new = d.clone();
    if let Some(sum) = WideSum::of(d) {
        // The upper word needs the carry of the lower one.
        let [[x, _], [y, _]] = sum.terms.map(|term| collected.words(term));
        let sum = crate::sums::addition(ori::operand(Name::Phys(Reg::RZ)), x, y);
        (new.op, new.mods, new.operands) = (Op::Sass(Opcode::IADD3), Mods::none(), sum.list().into());
        return (word == 0).then_some(new);
    }
    if let Some(load) = Ldc::of_mut(&mut new) {
        let pair = LdcMods { size: Some(Size64::_64), mode: None };
        let Operand::Const { offset, .. } = load.address else { return None };
        *offset += 4 * i32::from(word);
        new.mods = LdcMods { size: None, ..LdcMods::of(d).filter(|m| *m == pair)? }.mods();
        return Some(new);
    }
    let mods = ImadMods::of(d)?;
    let s = Imad::of_mut(&mut new)?;
    // No carry goes out or comes in.
    let pt = |o: &Operand, not: bool| *o == Operand::Reg(RegOp { not, ..RegOp::plain(Name::Phys(Reg::PT)) });
    let wide = ImadMods { part: Some(ImadPart::WIDE), alias: None, unsigned: mods.unsigned, extended: false };
    if mods != wide || !pt(s.carry_out, false) || !pt(s.carry, true) {
        return None;
    }
    let Operand::Reg(c) = s.c else { return None };
    if c.neg || c.not || c.abs {
        return None;
    }
    let narrow = if word == 0 {
        c.reg = match c.reg {
            Name::Val(v) => Name::Part(v, 0),
            zero @ Name::Phys(Reg::RZ) => zero,
            _ => return None,
        };
        ImadMods { part: None, unsigned: false, ..mods }
    } else {
        ImadMods { part: Some(ImadPart::HI), ..mods }
    };
    new.mods = narrow.mods();
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines between the first and the last of the block after the pass.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R2 = LDC.64 c[0x0][0x210]\n    \
             v2:R = S2R SR_TID.X\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn one_word_is_enough() {
        let product = "    v3:R2 = IMAD.WIDE.U32 PT, v2, 0x4, v0, !PT\n";
        let low = after(&format!("{product}    STS [v3.0], v2\n"));
        assert!(low.contains("IMAD PT, v2, 0x4, v") && low.contains("LDC c[0x0][0x210]"), "{low}");
        let high = after(&format!("{product}    STS [v3.1], v2\n"));
        assert!(high.contains("IMAD.HI.U32 PT, v2, 0x4, v0, !PT"), "{high}");
        let both = after(&format!("{product}    STS [v3.0], v3.1\n"));
        assert!(both.contains("IMAD.WIDE.U32"), "{both}");
        let signed = after("    v3:R2 = IMAD.WIDE PT, v2, v2, RZ, !PT\n    STS [v3.1], v0.1\n");
        assert!(signed.contains("IMAD.HI PT") && signed.contains("LDC c[0x0][0x214]"), "{signed}");
    }
}
