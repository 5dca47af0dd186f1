//! Logic says itself whether its result is zero: a comparison with zero of what LOP3 makes is a second result of the LOP3, as in
//! ptxas's code. Where the comparison is for equality, what reads it reads the complement.

use crate::Pass;
use ori::{ALWAYS, Changed, Editor, Function, Inst, InstData, Name, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Bool, Icmp, Int64, Isetp, IsetpMods, Lop3, Lop3Mods};
use sass::{Reg, RegFile, RegOp};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "nonzero",
    "LateOriCommoning",
    "comparisons with zero in the logic that makes what they compare",
    |f, _| run(f),
);

/// The pass.
pub fn run(func: &mut Function) -> Changed {
    let mut e = Editor::new(func);
    for b in e.func().layout.clone() {
        // What LOP3 makes in this block.
        let mut made: FxHashMap<Value, Inst> = FxHashMap::default();
        let mut at = e.first(b);
        while let Some(i) = at {
            at = e.next(i);
            if let Some(v) = logic(e.data(i)) {
                made.insert(v, i);
            } else if let Some((result, tested, equal)) = test(e.data(i))
                && let Some(maker) = made.remove(&tested)
            {
                join(&mut e, i, maker, (result, tested, equal));
            }
        }
    }
    e.finish()
}

/// Has `maker` say what the comparison `i` does.
fn join(e: &mut Editor<'_>, i: Inst, maker: Inst, (result, tested, equal): (Value, Value, bool)) {
    let said = e.add_value(RegFile::P, 1);
    if equal {
        if !e.replace_all_uses_with_complement(result, said) {
            return;
        }
    } else {
        e.replace_all_uses(result, said);
    }
    e.change(maker, |d| d.operands[Lop3::P] = operand(said));
    e.erase(i);
    // Nobody may have read what the comparison said: then both are gone.
    if e.block_of(maker).is_some() && e.users(tested).is_empty() {
        e.change(maker, |d| d.operands[Lop3::D] = operand(Name::Phys(Reg::RZ)));
    }
}

/// What a LOP3 makes that makes nothing else.
fn logic(d: &InstData) -> Option<Value> {
    let plain = Lop3Mods::of(d)? == Lop3Mods { table: true, pand: false } && d.guard == ALWAYS;
    let s = Lop3::of(d)?;
    match (s.p, s.d) {
        (Operand::Reg(p), Operand::Reg(RegOp { reg: Name::Val(v), .. })) if plain => {
            (p.reg == Name::Phys(Reg::PT)).then_some(*v)
        }
        _ => None,
    }
}

/// The result of a comparison with zero, the register that it compares, and whether it is for equality.
pub(crate) fn test(d: &InstData) -> Option<(Value, Value, bool)> {
    let (s, m) = (Isetp::of(d)?, IsetpMods::of(d)?);
    let equal = m.cmp == Icmp::EQ;
    let word = matches!(m.kind, None | Some(Int64::U32)) && !m.extended;
    if d.guard != ALWAYS || !matches!(m.cmp, Icmp::EQ | Icmp::NE) || !word || m.join != Bool::AND {
        return None;
    }
    let is_true = |o: &Operand| *o == operand(Name::Phys(Reg::PT));
    let zero = |o: &Operand| *o == Operand::Imm(0) || *o == operand(Name::Phys(Reg::RZ));
    let Operand::Reg(RegOp { reg: Name::Val(p), .. }) = s.p else { return None };
    let x = match (s.a, s.b) {
        (x, z) | (z, x) if zero(z) => x,
        _ => return None,
    };
    match x {
        Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. }) => {
            (is_true(s.q) && is_true(s.join)).then_some((*p, *v, equal))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = LDS [0x0]\n    v1:R = LDS [0x4]\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        _ = run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn comparisons_that_nobody_reads_go_with_their_logic() {
        // The first LOP3 is read further on; the other one only by a dead comparison.
        let got = after(
            "    v2:R = LOP3.LUT PT, v0, v1, RZ, 0xc0, !PT\n    v3:R = LOP3.LUT PT, v2, v1, RZ, 0xc0, !PT\n    \
             v4:P = ISETP.NE.U32.AND PT, v3, RZ, PT, PT\n    STS [0x8], v2\n",
        );
        assert!(got.contains("v2:R = LOP3") && !got.contains("v3") && !got.contains("ISETP"), "{got}");
    }

    #[test]
    fn logic_says_whether_it_is_zero() {
        let test = |compare: &str, uses: &str| {
            after(&format!(
                "    v2:R = LOP3.LUT PT, v0, v1, RZ, 0xc0, !PT\n    v3:P = ISETP.{compare} PT, v2, RZ, PT, PT\n{uses}"
            ))
        };
        let store = "    @v3 STS [0x8], v0\n";
        let got = test("NE.U32.AND", store);
        assert!(got.contains("v4:P = LOP3.LUT RZ") && !got.contains("ISETP"), "{got}");
        let got = test("EQ.AND", store);
        assert!(got.contains("@!v4 STS") && !got.contains("ISETP"), "{got}");
        // The number is needed, too.
        let got = test("NE.AND", "    @v3 STS [0x8], v2\n");
        assert!(got.contains("v4:P, v2:R = LOP3") && !got.contains("ISETP"), "{got}");
        // Other comparisons, a complement that nothing takes.
        assert!(test("GT.U32.AND", store).contains("ISETP"));
        assert!(test("EQ.AND", "    v5:P = copy v3\n    @v5 STS [0x8], v0\n").contains("ISETP"));
    }
}
