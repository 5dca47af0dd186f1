//! Saturation of what a sum or a product computes: a part of that instruction, where nothing else needs the number.

use crate::Pass;
use crate::sums::places;
use ori::{Function, InstData, Name, Op, Operand, Value};
use sass::ops::{Fadd, Ffma, Fmul};
use sass::{Mod, Mods, Opcode, Reg, RegOp};

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(2, "saturate", "LateOriCommoning", "saturation in what computes", run);

/// The pass. What it takes the place of is left for dead code removal.
pub fn run(func: &mut Function) -> bool {
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).copied();
    let found: Vec<_> = insts().filter_map(|i| Some((i, saturated(&func.insts[i])?))).collect();
    if found.is_empty() {
        return false;
    }
    let (at, uses) = (places(func), crate::uses::count(func));
    let mut changed = false;
    for (i, v) in found {
        let Some((maker, ..)) = at[v] else { continue };
        let (d, made) = (&func.insts[i], &func.insts[maker]);
        let computes = matches!(made.op, Op::Sass(Opcode::FADD | Opcode::FMUL | Opcode::FFMA));
        // Small numbers become zero in front of it or not at all.
        let flushes = made.mods.has(Mod::FTZ) || !d.mods.has(Mod::FTZ);
        if uses[v] != 1 || !computes || !made.is_unguarded() || made.mods.has(Mod::SAT) || !flushes {
            continue;
        }
        let mut new: InstData = made.clone();
        let Some(mods) = with_saturation(&new.mods) else { continue };
        new.mods = mods;
        let Some(sum) = Fadd::of(d) else { continue };
        match new.opcode() {
            Some(Opcode::FADD) => new.operands[Fadd::D] = *sum.d,
            Some(Opcode::FMUL) => new.operands[Fmul::D] = *sum.d,
            _ => new.operands[Ffma::D] = *sum.d,
        }
        new.guard = d.guard;
        new.kept.clone_from(&d.kept);
        func.insts[i] = new;
        changed = true;
    }
    changed
}

/// What an instruction that does nothing else saturates: `FADD.SAT r, RZ, x`.
fn saturated(d: &InstData) -> Option<Value> {
    let plain = d.mods.iter().all(|m| matches!(m, Mod::SAT | Mod::FTZ));
    let s = Fadd::of(d)?;
    if !d.mods.has(Mod::SAT) || !plain {
        return None;
    }
    let zero = |o: &Operand| matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ) && !r.abs);
    let value = |o: &Operand| match o {
        Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, .. }) => Some(*v),
        _ => None,
    };
    match (s.a, s.b) {
        (z, x) | (x, z) if zero(z) => value(x),
        _ => None,
    }
}

/// The modifiers with `.SAT` in its place, behind flushing and rounding.
fn with_saturation(mods: &Mods) -> Option<Mods> {
    let known = |m: Mod| matches!(m, Mod::FTZ | Mod::RM | Mod::RP | Mod::RZ);
    let mut out = mods.clone();
    mods.iter().all(known).then(|| {
        out.push(Mod::SAT);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn what_computes_saturates() {
        let store = "    STS [v0], v2\n";
        let body = |made: &str, sat: &str| format!("    v1:R = {made}\n    v2:R = {sat}\n{store}");
        assert!(after(&body("FFMA v0, v0, v0", "FADD.SAT RZ, v1")).contains("v2:R = FFMA.SAT v0, v0, v0"));
        assert!(after(&body("FFMA.RM v0, v0, v0", "FADD.SAT v1, -RZ")).contains("v2:R = FFMA.RM.SAT"));
        assert!(after(&body("FMUL.FTZ v0, v0", "FADD.FTZ.SAT RZ, v1")).contains("v2:R = FMUL.FTZ.SAT"));
        // What is small would stay, a sign, and what is needed otherwise.
        assert!(after(&body("FMUL v0, v0", "FADD.FTZ.SAT RZ, v1")).contains("v2:R = FADD.FTZ.SAT"));
        assert!(after(&body("FMUL v0, v0", "FADD.SAT RZ, -v1")).contains("v2:R = FADD.SAT"));
        let both = format!("{}    STS [v0], v1\n", body("FMUL v0, v0", "FADD.SAT RZ, v1"));
        assert!(after(&both).contains("v2:R = FADD.SAT"));
    }
}
