//! Sums and comparisons of 64 bits are one instruction, IADD.64 and ISETP.U64 or .S64, from lowering up to here, whatever the target has: so
//! passes see numbers, not words and carries between them. Here each becomes two, of which the second takes the first one's carry or result.
//! What words are good for follows: shifts as part of sums, sums of three, and on sm_120, which has these instructions and where comparisons
//! stay as they are, the sums that are whole again ([`crate::wide_integers`]).

use crate::Pass;
use crate::sums;
use ori::pairs::{self, Collected, WideSum};
use ori::{
    ALWAYS, Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Operands, operand,
};
use rustc_hash::FxHashMap;
use sass::ops::{Bool, Iadd3, Iadd3Mods, Icmp, Int64, Isetp, IsetpMods};
use sass::{Mods, Opcode, Reg, RegFile, RegOp};
use thin_vec::{ThinVec, thin_vec};

/// The pass, for the table.
pub const PASS: Pass = Pass::needed(
    "split-words",
    "LateExpansion",
    "sums of 64 bits, and before sm_120 comparisons, as two of their words",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let comparisons = !func.target.info().compares_64;
    let splits = |d: &InstData| d.opcode() == Some(Opcode::IADD) || comparisons && pairs::compares(d);
    if !func.layout.iter().flat_map(|b| &func.blocks[*b].insts).any(|i| splits(&func.insts[*i])) {
        return Changed::Nothing;
    }
    let collected = Collected::of(func);
    let dom = analyses.dominators(func);
    let mut lower: Lower = FxHashMap::default();
    for &b in &analyses.cfg(func).rpo {
        if !func.blocks[b].insts.iter().any(|i| splits(&func.insts[*i])) {
            continue;
        }
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut new = Vec::with_capacity(old.len() + 8);
        for i in old {
            if comparisons && pairs::compares(&func.insts[i]) {
                let known = |at| dom.dominates(at, b);
                compare(func, &collected, &mut lower, (i, b), known, &mut new);
            } else {
                split(func, &collected, i, &mut new);
            }
            new.push(i);
        }
        func.blocks[b].insts = new;
    }
    Changed::instructions(true)
}

/// What compares lower words, and where: comparisons of the same pairs have those in common.
type Lower = FxHashMap<(Icmp, [Operand; 2]), (Operand, Block)>;

/// Puts the comparison of the lower words in front of one of pairs, which becomes that of the upper ones and takes the result where these are the
/// same.
fn compare(
    func: &mut Function,
    collected: &Collected,
    lower: &mut Lower,
    (i, b): (Inst, Block),
    known: impl Fn(Block) -> bool,
    front: &mut Vec<Inst>,
) {
    let d = &func.insts[i];
    let (Some(s), Some(m)) = (Isetp::of(d), IsetpMods::of(d)) else { return };
    let zero = |o: Operand| if sums::is_zero(&o) { operand(Name::Phys(Reg::RZ)) } else { o };
    let [x, y] = [s.a, s.b].map(|o| collected.words(*o).map(zero));
    let low = match lower.get(&(m.cmp, [x[0], y[0]])) {
        Some(&(found, at)) if known(at) => found,
        _ => {
            let p = operand(func.add_value(RegFile::P, 1));
            let low = Isetp { p, q: pt(false), a: x[0], b: y[0], join: pt(false), lower: pt(false) };
            let unsigned = IsetpMods { cmp: m.cmp, kind: Some(Int64::U32), join: Bool::AND, extended: false };
            let loc = func.insts[i].loc;
            front.push(func.insts.push(data(Opcode::ISETP, unsigned.mods(), low.list().into(), loc)));
            lower.insert((m.cmp, [x[0], y[0]]), (p, b));
            p
        }
    };
    let kind = if m.kind == Some(Int64::U64) { Some(Int64::U32) } else { None };
    let d = &mut func.insts[i];
    d.mods = IsetpMods { kind, extended: true, ..m }.mods();
    if let Some(s) = Isetp::of_mut(d) {
        (*s.a, *s.b, *s.lower) = (x[1], y[1], low);
    }
}

fn pt(not: bool) -> Operand {
    Operand::Reg(RegOp { not, ..RegOp::plain(Name::Phys(Reg::PT)) })
}

/// An instruction without a guard.
fn data(op: Opcode, mods: Mods, operands: Operands, loc: ori::Loc) -> InstData {
    InstData { guard: ALWAYS, op: Op::Sass(op), mods, operands, kept: ThinVec::new(), loc }
}

/// Puts the additions of both words in front of a sum, which becomes what they are together. They need no guard: nobody else reads them.
fn split(func: &mut Function, collected: &Collected, i: Inst, front: &mut Vec<Inst>) {
    let Some(sum) = WideSum::under_any_guard(&func.insts[i]) else { return };
    let loc = func.insts[i].loc;
    let low = operand(func.add_value(RegFile::R, 1));
    let high = operand(func.add_value(RegFile::R, 1));
    let mut add = |func: &mut Function, d, [a, b]: [Operand; 2], carries: Option<[Operand; 2]>| {
        let c = operand(Name::Phys(Reg::RZ));
        let [carry_out, carry] = carries.unwrap_or([pt(false), pt(true)]);
        let sum = Iadd3 { d, carry_out, carry_out2: pt(false), a, b, c, carry, carry2: pt(true) };
        let mods = Iadd3Mods { extended: carry != pt(true) }.mods();
        front.push(func.insts.push(data(Opcode::IADD3, mods, sum.list().into(), loc)));
    };
    let [x, y] = sum.terms;
    let alone = [(x, y), (y, x)].into_iter().find_map(|(x, y)| {
        // A minus before the other one has a carry, even where its lower word is a number.
        sums::plain(&x).then_some(())?;
        Some((collected.words(x), collected.upper_alone(y)?))
    });
    let low = match alone {
        Some(([low, high_of_other], upper)) => {
            add(func, high, [high_of_other, upper], None);
            low
        }
        _ => {
            let [x, y] = sum.terms.map(|term| collected.words(term));
            let carry = operand(func.add_value(RegFile::P, 1));
            add(func, low, [x[0], y[0]], Some([carry, pt(true)]));
            add(func, high, [x[1], y[1]], Some([pt(false), carry]));
            low
        }
    };
    let mut collect = InstData {
        op: Op::Macro(Macro::Collect),
        ..data(Opcode::IADD3, Mods::none(), thin_vec![operand(sum.to), low, high], loc)
    };
    if func.insts[i].is_unguarded() {
        func.insts[i] = collect;
        return;
    }
    let both = operand(func.add_value(RegFile::R, 2));
    collect.operands[0] = both;
    front.push(func.insts.push(collect));
    // The carry out, which is nowhere, kept something as well.
    func.insts[i].kept.truncate(1);
    func.insts[i].become_copy(operand(sum.to), both);
}

#[cfg(test)]
mod tests {
    /// The body after the pass.
    fn after(sum: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R2 = LDC.64 c[0x0][0x210]\n    \
             v1:R2 = LDC.64 c[0x0][0x218]\n    v9:R2 = collect RZ, v1.0\n    v8:R2 = collect 0x5, v1.1\n    v2:R2 = IADD.64 PT, {sum}, !PT\n    STS.64 [0x0], v2\n    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_ne!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn words_are_added_with_a_carry() {
        let text = after("v0, v1");
        assert!(text.contains("v10:R, v12:P = IADD3 PT, v0.0, v1.0, RZ, !PT, !PT"), "{text}");
        assert!(text.contains("v11:R = IADD3.X PT, PT, v0.1, v1.1, RZ, v12, !PT"), "{text}");
        assert!(text.contains("v2:R2 = collect v10, v11"), "{text}");
    }

    #[test]
    fn a_lower_word_that_is_zero_has_no_carry() {
        // A minus before zero would need one, and there is no instruction of ptxas's with such.
        let text = after("v0, -v9");
        assert!(text.contains("IADD3 PT, PT, v0.1, -v1.0, RZ, !PT, !PT"), "{text}");
        assert!(text.contains("v2:R2 = collect v0.0, v11") && !text.contains("IADD3.X"), "{text}");
        let text = after("v9, 0x5");
        assert!(text.contains("IADD3 PT, PT, RZ, v1.0,") && text.contains("collect 0x5, "), "{text}");
        let text = after("v9, -v8");
        assert!(
            text.contains("RZ, 0xfffffffb, RZ") && text.contains("IADD3.X PT, PT, v1.0, ~v1.1"),
            "{text}"
        );
    }

    #[test]
    fn guards_stay_at_what_takes_the_sum() {
        let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {\nblock0:\n    v0:R2 = LDC.64 c[0x0][0x210]\n    \
             v1:P = ISETP.EQ.AND PT, v0.0, 0x5, PT, PT\n    @v1 v2:R2 = IADD.64 PT, v0, 0x8, !PT keep v0 PT\n    \
             STS.64 [0x0], v2\n    exit\n}\n";
        let mut f = ori::parse::parse(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_ne!(super::run(&mut f, &ori::Analyses::default()), ori::Changed::Nothing);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let text = f.to_string();
        assert!(text.contains("v6:R2 = collect v3, v4") && text.contains("@v1 v2:R2 = copy v6"), "{text}");
        assert!(!text.contains("@v1 v3"), "{text}");
    }

    #[test]
    fn numbers_are_extended_and_complements_have_the_carry() {
        let text = after("v0, 0xfffffff0");
        assert!(text.contains("v0.0, 0xfffffff0,") && text.contains("v0.1, 0xffffffff,"), "{text}");
        let text = after("v0, 0x10");
        assert!(text.contains("v0.0, 0x10,") && text.contains("v0.1, RZ,"), "{text}");
        let text = after("-v0, v1");
        assert!(text.contains("-v0.0, v1.0,") && text.contains("~v0.1, v1.1,"), "{text}");
        let text = after("RZ, -v1");
        assert!(text.contains("RZ, -v1.0,") && text.contains("RZ, ~v1.1,"), "{text}");
    }
}
