//! Negations and magnitudes of floating-point numbers: what reads them changes the sign itself, where all that reads them can.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Function, Inst, InstData, Name, Op, Operand, Value};
use sass::ops::{Dadd, Fadd};
use sass::{Mod, Mods, Opcode, Reg, RegOp, SlotKind};
use smallvec::SmallVec;

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    1,
    "signs",
    "OriLinearReplacement",
    "negations and magnitudes as part of what reads them",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let insts: Vec<Inst> = func.layout.iter().flat_map(|b| &func.blocks[*b].insts).copied().collect();
    let makers: Vec<Inst> = insts.iter().copied().filter(|i| change(&func.insts[*i]).is_some()).collect();
    if makers.is_empty() {
        return false;
    }
    let mut uses: SecondaryMap<Value, Uses> = SecondaryMap::new();
    for i in &makers {
        if let Some((v, ..)) = change(&func.insts[*i]) {
            uses[v].wanted = true;
        }
    }
    for &i in &insts {
        gather(&func.insts[i], i, &mut uses);
    }
    for &b in &func.layout {
        let term = &func.blocks[b].term;
        let passed = term.targets().into_iter().flat_map(|t| t.args.iter().copied());
        for v in term.used_name().and_then(Name::value).into_iter().chain(passed) {
            uses[v].others = true;
        }
    }
    let mut changed = false;
    for i in makers {
        let Some((v, of, flushes)) = change(&func.insts[i]) else { continue };
        let width = func.values[v].width;
        let uses = std::mem::take(&mut uses[v]);
        let all = |u: &(Inst, usize)| takes(&func.insts[u.0], u.1, width, flushes);
        if uses.others || !uses.sources.iter().all(all) {
            continue;
        }
        for (user, slot) in uses.sources {
            let d = &mut func.insts[user];
            if let Operand::Reg(r) = &mut d.operands[slot] {
                *r = under(*r, of);
                changed = true;
            }
            if d.op == Op::Sass(Opcode::SEL) {
                d.op = Op::Sass(Opcode::FSEL);
            }
        }
    }
    if changed {
        // What comes next counts uses.
        ori::dead::remove(func);
    }
    changed
}

/// What reads a value.
#[derive(Clone, Default)]
struct Uses {
    /// Whether anybody asks.
    wanted: bool,
    /// The whole of it as a source, by operand.
    sources: SmallVec<[(Inst, usize); 4]>,
    /// Something else: an address, a guard, a part, an argument of a block.
    others: bool,
}

fn gather(d: &InstData, i: Inst, uses: &mut SecondaryMap<Value, Uses>) {
    let mut counted: SmallVec<[(Value, i32); 4]> = SmallVec::new();
    d.for_each_use(|n| {
        if let Some(v) = n.value()
            && uses[v].wanted
        {
            counted.push((v, 1));
        }
    });
    if counted.is_empty() {
        return;
    }
    for (k, o) in d.operands.iter().enumerate() {
        if let (false, Operand::Reg(RegOp { reg: Name::Val(v), .. })) = (d.is_def(k), o)
            && uses[*v].wanted
        {
            uses[*v].sources.push((i, k));
            counted.push((*v, -1));
        }
    }
    for (v, _) in counted.iter().copied() {
        let rest: i32 = counted.iter().filter(|c| c.0 == v).map(|c| c.1).sum();
        uses[v].others |= rest != 0;
    }
}

/// What an instruction makes that only changes a sign, of what, and whether it makes zeros of subnormal numbers:
/// `FADD r, -x, -RZ`. The sum with −0 is exact, the one with 0 would lose the sign of −0.
fn change(d: &InstData) -> Option<(Value, RegOp<Name>, bool)> {
    let (to, a, b) = match (Fadd::of(d), Dadd::of(d)) {
        (Some(s), _) => (s.d, s.a, s.b),
        (None, Some(s)) => (s.d, s.a, s.b),
        (None, None) => return None,
    };
    let zero = |o: &Operand| matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ) && r.neg && !r.abs);
    let Operand::Reg(RegOp { reg: Name::Val(v), .. }) = to else { return None };
    let x = match (a, b) {
        (z, Operand::Reg(x)) | (Operand::Reg(x), z) if zero(z) => x,
        _ => return None,
    };
    let signed = x.neg || x.abs;
    let plain = d.is_unguarded() && d.mods.iter().all(|m| m == Mod::FTZ);
    let read = matches!(x.reg, Name::Val(_) | Name::Part(..));
    (signed && plain && read).then(|| (*v, *x, d.mods.has(Mod::FTZ)))
}

/// Whether source `k`, of so many registers, may have its sign changed. If that also flushed subnormal numbers, the instruction has
/// to do it itself.
fn takes(d: &InstData, k: usize, width: u8, flushes: bool) -> bool {
    use Opcode::*;
    let Op::Sass(op) = d.op else { return false };
    let format = match op {
        FADD | FMUL | FFMA | FSETP | FSEL | DADD | DMUL | DFMA | DSETP => true,
        // `.XORSIGN` takes the signs from under the magnitudes, where a change of sign would be lost.
        FMNMX => !d.mods.has(Mod::XORSIGN),
        // The source is binary32 or binary64, not a half.
        F2F | F2I | FRND | MUFU => d.mods.iter().all(|m| !is_half(m) && m != Mod::RCP64H && m != Mod::RSQ64H),
        // A selection of binary32 numbers is one.
        SEL => width == 1 && d.mods == Mods::none(),
        _ => false,
    };
    let source = op.slots()[k].kind == SlotKind::Source && !d.is_def(k);
    format && source && op.width(k, &d.mods) == width && (!flushes || d.mods.has(Mod::FTZ))
}

/// Whether a modifier makes an operand something else than binary32 or binary64.
fn is_half(m: Mod) -> bool {
    !matches!(
        m,
        Mod::FTZ
            | Mod::F32
            | Mod::F64
            | Mod::RM
            | Mod::RP
            | Mod::RZ
            | Mod::TRUNC
            | Mod::FLOOR
            | Mod::CEIL
            | Mod::NTZ
            | Mod::U32
            | Mod::U64
            | Mod::S64
            | Mod::U16
            | Mod::S16
            | Mod::U8
            | Mod::S8
            | Mod::COS
            | Mod::SIN
            | Mod::EX2
            | Mod::LG2
            | Mod::RCP
            | Mod::RSQ
            | Mod::SQRT
            | Mod::TANH
    )
}

/// The operand that reads `x` with its sign changed, and then does what `outer` does.
fn under(outer: RegOp<Name>, x: RegOp<Name>) -> RegOp<Name> {
    let (neg, abs) = if outer.abs { (outer.neg, true) } else { (outer.neg ^ x.neg, x.abs) };
    RegOp { neg, abs, ..x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = LDS [0x0]\n    \
             v1:R2 = LDS.64 [0x8]\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn what_reads_a_number_changes_its_sign() {
        let got = after(
            "    v2:R = FADD -v0, -RZ\n    v3:R = FFMA v2, v0, -v2\n    v4:P = FSETP.LT.AND PT, v2, |v3|, PT\n    \
             v5:R = SEL v2, v3, v4\n    v6:R = MUFU.SIN v2\n    STS [0x0], v5\n    STS [0x4], v6\n",
        );
        for want in ["FFMA -v0, v0, v0", "FSETP.LT.AND PT, -v0, |v3|", "FSEL -v0, v3, v4", "MUFU.SIN -v0"] {
            assert!(got.contains(want), "{want}: {got}");
        }
        // One in another; a magnitude hides what is inside.
        let got = after(
            "    v2:R2 = DADD -RZ, |v1|\n    v3:R2 = DADD -v2, -RZ\n    v4:R2 = DMUL v3, v1\n    v5:R2 = DFMA |v3|, v4, v1\n    \
             STS.64 [0x0], v5\n",
        );
        assert!(got.contains("DMUL -|v1|, v1") && got.contains("DFMA |v1|, v4, v1"), "{got}");
    }

    #[test]
    fn what_cannot_keeps_it() {
        // Stored as well; 0 instead of −0; subnormal numbers would stay; integers; a half of it.
        for (body, kept) in [
            (
                "    v2:R = FADD -v0, -RZ\n    v3:R = FMUL v2, v0\n    STS [0x0], v3\n    STS [0x0], v2\n",
                "FMUL v2",
            ),
            ("    v2:R = FADD -v0, RZ\n    v3:R = FMUL v2, v0\n    STS [0x0], v3\n", "FMUL v2"),
            ("    v2:R = FADD.FTZ -v0, -RZ\n    v3:R = FMUL v2, v0\n    STS [0x0], v3\n", "FMUL v2"),
            (
                "    v2:R = FADD -v0, -RZ\n    v3:R = LOP3.LUT PT, v2, v0, RZ, 0xc0, !PT\n    STS [0x0], v3\n",
                "v2, v0, RZ",
            ),
            ("    v2:R2 = DADD -v1, -RZ\n    v3:R = FADD v2.1, v0\n    STS [0x0], v3\n", "FADD v2.1"),
            (
                "    v2:R = FADD -v0, -RZ\n    v3:R = FMNMX.XORSIGN |v2|, |v0|, !PT\n    STS [0x0], v3\n",
                "|v2|, |v0|",
            ),
            ("    v2:R = FADD -v0, -RZ\n    v3:R = FRND.F16 v2\n    STS [0x0], v3\n", "F16 v2"),
        ] {
            assert!(after(body).contains(kept), "{body}: {}", after(body));
        }
        assert!(
            after("    v2:R = FADD.FTZ -v0, -RZ\n    v3:R = FMUL.FTZ v2, v0\n    STS [0x0], v3\n")
                .contains("-v0, v0")
        );
    }
}
