//! Selections that an addition or a minimum makes: `p ? x + 1 : x` adds the condition as a carry, and `x >= y ? x - y : x` of
//! unsigned numbers is the smaller of `x - y` and `x`, which needs no condition. Both stand in every division of integers.

use crate::Pass;
use crate::sums::{Places, is_pred, is_zero, places, plain, terms, value_of};
use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Guard, Inst, InstData, Loc, Macro, Name, Op, Operand, Operands, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{
    Bool, Fsel, Iadd3, Iadd3Mods, Icmp, Imnmx, ImnmxMods, Int64, Isetp, IsetpMods, Sel, SelMods,
};
use sass::{Mods, Opcode, Reg, RegFile, RegOp, Unit};
use smallvec::SmallVec;
use thin_vec::thin_vec;

/// The pass, for the table.
pub const PASS: Pass =
    Pass::alone(2, "selects", "LateOriCommoning", "selections as carries, minima and guards", run);

/// The pass. What it takes the place of is left for dead code removal.
pub fn run(func: &mut Function) -> bool {
    part_tuples(func);
    let at = places(func);
    let total = crate::uses::count(func);
    // Reads so far that are in the block at hand.
    let mut so_far: SecondaryMap<Value, u32> = SecondaryMap::new();
    let mut changed = false;
    for b in func.layout.clone() {
        let insts = func.blocks[b].insts.clone();
        for &i in &insts {
            func.insts[i].for_each_use(|n| n.value().into_iter().for_each(|v| so_far[v] += 1));
            let Some(select) = select(&func.insts[i]) else { continue };
            let new = minimum(func, &at, &select).or_else(|| carry(func, &at, &select));
            let (loc, guard): (Loc, Guard) = (func.insts[i].loc, func.insts[i].guard);
            let new = match new {
                Some((op, mods, operands)) => {
                    Some(InstData { guard, op: Op::Sass(op), mods, operands, kept: thin_vec![], loc })
                }
                None => absorb(func, &at, &total, &so_far, &select),
            };
            if let Some(new) = new {
                func.insts[i] = new;
                changed = true;
            }
        }
        for &i in &insts {
            func.insts[i].for_each_use(|n| n.value().into_iter().for_each(|v| so_far[v] = 0));
        }
    }
    changed
}

/// Gives words of tuples a value of their own where one of them is selected or what is computed of it, all of which stands in one block: then it can be
/// kept by a guard. (`cvt.rna.tf32` as CUTLASS has it rounds what LDSM brought, but for infinities.)
fn part_tuples(func: &mut Function) {
    let selected = |d: &InstData| {
        let s = Sel::of(d).filter(|_| d.is_unguarded())?;
        let one = value_of(s.a).is_some() != value_of(s.b).is_some();
        part_of(s.a).or(part_of(s.b)).filter(|_| one)
    };
    let mut wanted: FxHashMap<Name, (Block, usize)> = FxHashMap::default();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            // One is a word, the other one a value.
            if let Some(n) = selected(&func.insts[i]) {
                wanted.insert(n, (b, 0));
            }
        }
    }
    if wanted.is_empty() {
        return;
    }
    // Not those that are read elsewhere, or with the rest of the tuple.
    let mut whole: FxHashSet<Value> = FxHashSet::default();
    for &b in &func.layout {
        for (k, &i) in func.blocks[b].insts.iter().enumerate() {
            func.insts[i].for_each_use(|n| match n {
                Name::Part(..) => match wanted.get_mut(&n) {
                    Some((at, _)) if *at != b => _ = wanted.remove(&n),
                    Some((_, first)) => *first = if *first == 0 { k + 1 } else { *first },
                    None => {}
                },
                n => whole.extend(n.value()),
            });
        }
        let passed = func.blocks[b].term.targets().into_iter().flat_map(|t| &t.args);
        whole.extend(passed);
    }
    let mut own: FxHashMap<Name, Value> = FxHashMap::default();
    let mut made: FxHashMap<(Block, usize), Vec<Inst>> = FxHashMap::default();
    wanted.retain(|n, _| n.value().is_some_and(|v| !whole.contains(&v) && func.values[v].file == RegFile::R));
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_unstable_by_key(|(n, place)| (*place, part(*n)));
    for (n, (b, first)) in wanted {
        let v = func.add_value(RegFile::R, 1);
        own.insert(n, v);
        let operands = [operand(v), operand(n)].into_iter().collect();
        let loc = func.insts[func.blocks[b].insts[first - 1]].loc;
        let d = InstData {
            guard: ori::ALWAYS,
            op: Op::Macro(Macro::Copy),
            mods: Mods::none(),
            operands,
            kept: thin_vec![],
            loc,
        };
        made.entry((b, first - 1)).or_default().push(func.insts.push(d));
    }
    for b in func.layout.clone() {
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(old.len());
        for (k, i) in old.into_iter().enumerate() {
            out.extend(made.remove(&(b, k)).into_iter().flatten());
            func.insts[i].map_uses(|n| own.get(&n).map_or(n, |v| Name::Val(*v)));
            out.push(i);
        }
        func.blocks[b].insts = out;
    }
}

/// Which word of which tuple.
fn part(n: Name) -> Option<(Value, u8)> {
    match n {
        Name::Part(v, k) => Some((v, k)),
        _ => None,
    }
}

/// The word of a tuple that an operand is.
fn part_of(o: &Operand) -> Option<Name> {
    match o {
        Operand::Reg(r) if plain(o) && matches!(r.reg, Name::Part(..)) => Some(r.reg),
        _ => None,
    }
}

type Replacement = Option<(Opcode, Mods, Operands)>;

/// `result = condition ? yes : no`, all of one word.
struct Select {
    result: Value,
    yes: Operand,
    no: Operand,
    condition: Value,
}

fn select(d: &InstData) -> Option<Select> {
    let (to, yes, no, choose) = match (Sel::of(d), Fsel::of(d)) {
        (Some(s), _) if SelMods::of(d)? == (SelMods { wide: false }) => (s.d, s.a, s.b, s.choose),
        (_, Some(s)) if d.mods == Mods::none() => (s.d, s.a, s.b, s.choose),
        _ => return None,
    };
    let Operand::Reg(p) = choose else { return None };
    if !d.is_unguarded() {
        return None;
    }
    let Name::Val(condition) = p.reg else { return None };
    if !plain(yes) || !plain(no) {
        return None;
    }
    let (yes, no) = if p.not { (no, yes) } else { (yes, no) };
    Some(Select { result: value_of(to)?, yes: *yes, no: *no, condition })
}

/// The two terms that a value is the sum of.
fn sum_of(func: &Function, at: &Places, o: &Operand) -> Option<[Operand; 2]> {
    let d = &func.insts[at[value_of(o)?]?.0];
    is_pred(Iadd3::of(d)?.carry_out, Name::Phys(Reg::PT), false).then_some(())?;
    terms(d, None)
}

/// `p ? x + 1 : x` and `p ? x : x - 1` as an addition with carry.
fn carry(func: &Function, at: &Places, s: &Select) -> Replacement {
    let apart = |sum: &Operand, x: &Operand, n: u32| {
        let [a, b] = sum_of(func, at, sum)?;
        let number = Operand::Imm(n);
        (value_of(x).is_some() && (a == *x && b == number || b == *x && a == number)).then_some(())
    };
    let (x, beside) = if apart(&s.yes, &s.no, 1).is_some() {
        (s.no, operand(Name::Phys(Reg::RZ)))
    } else if apart(&s.no, &s.yes, u32::MAX).is_some() {
        (s.yes, Operand::Imm(u32::MAX))
    } else {
        return None;
    };
    let [pt, rz] = [Reg::PT, Reg::RZ].map(|r| operand(Name::Phys(r)));
    let none = Operand::Reg(RegOp { not: true, ..RegOp::plain(Name::Phys(Reg::PT)) });
    let sum = Iadd3 {
        d: operand(s.result),
        carry_out: pt,
        carry_out2: pt,
        a: x,
        b: beside,
        c: rz,
        carry: operand(s.condition),
        carry2: none,
    };
    Some((Opcode::IADD3, Iadd3Mods { extended: true }.mods(), sum.list().into()))
}

/// `x >= y ? x - y : x` of unsigned numbers: where x is less, the difference wraps around to something that is more than x.
fn minimum(func: &Function, at: &Places, s: &Select) -> Replacement {
    let d = &func.insts[at[s.condition]?.0];
    let compares = Isetp::of(d)?;
    let at_least = IsetpMods { cmp: Icmp::GE, kind: Some(Int64::U32), join: Bool::AND, extended: false };
    let (x, y) = (compares.a, compares.b);
    if !d.is_unguarded()
        || IsetpMods::of(d)? != at_least
        || value_of(compares.p) != Some(s.condition)
        || !is_pred(compares.join, Name::Phys(Reg::PT), false)
        || *x != s.no
    {
        return None;
    }
    let difference = &func.insts[at[value_of(&s.yes)?]?.0];
    is_difference(difference, x, y).then_some(())?;
    value_of(x)?;
    let op = if func.target.info().vimnmx { Opcode::VIMNMX } else { Opcode::IMNMX };
    // The same of both opcodes.
    let least = Imnmx { d: operand(s.result), a: *x, b: s.yes, least: operand(Name::Phys(Reg::PT)) };
    Some((op, ImnmxMods { unsigned: true }.mods(), least.list().into()))
}

/// `p ? f(y) : x` of which nobody needs `x` or `f(y)` any more: f under a guard, in whose register `x` is already.
fn absorb(
    func: &Function,
    at: &Places,
    total: &SecondaryMap<Value, u32>,
    so_far: &SecondaryMap<Value, u32>,
    s: &Select,
) -> Option<InstData> {
    for (taken, other, not) in [(&s.yes, &s.no, false), (&s.no, &s.yes, true)] {
        let (Some(made), Some(kept)) = (value_of(taken), value_of(other)) else { continue };
        let Some((inst, ..)) = at[made] else { continue };
        let d = &func.insts[inst];
        let Op::Sass(op) = d.op else { continue };
        let mut results = 0;
        d.for_each_def(|n| results += u32::from(!matches!(n, Name::Phys(_))));
        let plain = d.is_pure()
            && d.is_unguarded()
            && !op.info().uniform
            && results == 1
            && func.values[made] == func.values[kept]
            && func.values[kept].file == RegFile::R;
        // A special register takes long, and products of 64 bits two registers.
        let short = matches!(op.unit(), Unit::Alu | Unit::Fma | Unit::Imad);
        if plain && short && total[made] == 1 && so_far[kept] == total[kept] {
            let mut new = d.clone();
            new.guard = Guard { pred: s.condition.into(), not };
            let defs = (0..new.operands.len()).filter(|k| d.is_def(*k));
            new.kept = defs
                .map(|k| match &d.operands[k] {
                    Operand::Reg(r) if r.reg == Name::Val(made) => Name::Val(kept),
                    Operand::Reg(r) => r.reg,
                    _ => Name::Phys(Reg::RZ),
                })
                .collect();
            for o in &mut new.operands {
                if let Operand::Reg(r) = o
                    && r.reg == Name::Val(made)
                {
                    r.reg = Name::Val(s.result);
                }
            }
            return Some(new);
        }
    }
    None
}

/// Whether an instruction is `x - y`.
fn is_difference(d: &InstData, x: &Operand, y: &Operand) -> bool {
    let Some(s) = Iadd3::of(d).filter(|_| d.is_unguarded() && d.mods == Mods::none()) else { return false };
    let pt = |o: &Operand, not: bool| is_pred(o, Name::Phys(Reg::PT), not);
    let negative = match y {
        Operand::Reg(r) => Operand::Reg(RegOp { neg: !r.neg, ..*r }),
        Operand::Imm(n) => Operand::Imm(n.wrapping_neg()),
        _ => return false,
    };
    let terms: SmallVec<[&Operand; 3]> = s.terms().into_iter().filter(|o| !is_zero(o)).collect();
    let right = terms[..] == [x, &negative] || terms[..] == [&negative, x];
    pt(s.carry_out, false) && pt(s.carry_out2, false) && pt(s.carry, true) && pt(s.carry2, true) && right
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(sm: u8, body: &str) -> String {
        let text = format!(
            "function k sm_{sm} entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    \
             v1:R = S2R SR_TID.Y\n    v2:P = ISETP.GE.U32.AND PT, v0, v1, PT, PT\n{body}    STS [v9], v0\n    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn conditions_are_carries() {
        let one = "    v3:R = IADD3 PT, PT, v0, 0x1, RZ, !PT, !PT\n";
        assert!(
            after(80, &format!("{one}    v9:R = SEL v3, v0, v2\n"))
                .contains("v9:R = IADD3.X PT, PT, v0, RZ, RZ, v2, !PT")
        );
        assert!(after(80, &format!("{one}    v9:R = SEL v0, v3, !v2\n")).contains("v9:R = IADD3.X"));
        // Not where the condition is false: no instruction of ptxas's has a carry that is not one.
        assert!(!after(80, &format!("{one}    v9:R = SEL v0, v3, v2\n")).contains("IADD3.X"));
        assert!(!after(80, &format!("{one}    v9:R = SEL v3, v1, v2\n")).contains("IADD3.X"));
        let less = "    v3:R = IADD3 PT, PT, v0, 0xffffffff, RZ, !PT, !PT\n    v9:R = SEL v0, v3, v2\n";
        assert!(after(80, less).contains("IADD3.X PT, PT, v0, 0xffffffff, RZ, v2, !PT"));
    }

    #[test]
    fn words_of_tuples_are_kept_by_a_guard() {
        let load = "    v3:R4 = LDSM.16.M88.4 [v0]\n    v4:R = IADD3 PT, PT, v3.1, 0x1000, RZ, !PT, !PT\n";
        let chosen = after(80, &format!("{load}    v9:R = SEL v3.1, v4, v2\n"));
        let own = chosen.lines().find_map(|l| l.trim().strip_suffix(":R = copy v3.1")).expect("a copy");
        let sum = format!("@!v2 v9:R = IADD3 PT, PT, {own}, 0x1000, RZ, !PT, !PT keep {own}");
        assert!(chosen.contains(&sum), "{chosen}");
        // Not where the word is needed behind it, or the tuple.
        for more in ["    STS [v0], v3.1\n", "    STS.128 [v0], v3\n"] {
            let text = after(80, &format!("{load}    v9:R = SEL v3.1, v4, v2\n{more}"));
            assert!(text.contains("v9:R = SEL"), "{text}");
        }
    }

    #[test]
    fn what_is_chosen_is_computed_under_a_guard() {
        let sum = "    v4:R = IADD3 PT, PT, v1, 0x1000, RZ, !PT, !PT\n";
        let chosen = after(80, &format!("{sum}    v9:R = SEL v4, v1, v2\n"));
        assert!(chosen.contains("@v2 v9:R = IADD3 PT, PT, v1, 0x1000, RZ, !PT, !PT"), "{chosen}");
        let other = after(80, &format!("{sum}    v9:R = SEL v1, v4, v2\n"));
        assert!(other.contains("@!v2 v9:R = IADD3"), "{other}");
        let scaled = "    v4:R = FMUL v1, 0x4b800000\n    v9:R = FSEL v1, v4, v2\n";
        assert!(after(80, scaled).contains("@!v2 v9:R = FMUL v1, 0x4b800000"), "{}", after(80, scaled));
        let signs = scaled.replace("FSEL v1", "FSEL -v1");
        assert!(after(80, &signs).contains("FSEL"), "{}", after(80, &signs));
        // Not where either is needed behind it.
        for more in ["    STS [v0], v4\n", "    STS [v0], v1\n"] {
            assert!(
                after(80, &format!("{sum}    v9:R = SEL v4, v1, v2\n{more}")).contains("v9:R = SEL"),
                "{more}"
            );
        }
    }

    #[test]
    fn remainders_are_minima() {
        let difference = "    v3:R = IADD3 PT, PT, v0, -v1, RZ, !PT, !PT\n";
        assert!(
            after(80, &format!("{difference}    v9:R = SEL v3, v0, v2\n"))
                .contains("v9:R = IMNMX.U32 v0, v3, PT")
        );
        assert!(
            after(100, &format!("{difference}    v9:R = SEL v3, v0, v2\n"))
                .contains("v9:R = VIMNMX.U32 v0, v3, PT")
        );
        assert!(after(80, &format!("{difference}    v9:R = SEL v0, v3, v2\n")).contains("v9:R = SEL"));
        let other = "    v3:R = IADD3 PT, PT, v1, -v0, RZ, !PT, !PT\n    v9:R = SEL v3, v0, v2\n";
        assert!(after(80, other).contains("v9:R = SEL"));
    }
}
