//! Numbers that are made whole and then converted to integers, as `(int)floorf(x)` is: one conversion that rounds so.
//!
//! ptxas 13.0.88 does it for every rounding, binary32 and binary64, results of 16 to 64 bits, whoever else needs the whole number;
//! not where the whole number's sign or absolute value is converted (sm_75, 90, 120). Whether small numbers become zero follows what makes
//! the number whole: of a whole one it makes no difference.

use crate::Pass;
use crate::sums::places;
use ori::{Function, InstData, Name, Operand, Value};
use sass::ops::{F2i, Frnd};
use sass::{Mod, Mods, RegOp};
use smallvec::SmallVec;

/// The pass, for the table.
pub const PASS: Pass =
    Pass::alone(2, "rounding", "LateOriCommoning", "rounding in the conversion to an integer", run);

/// The pass. What it takes the place of is left for dead code removal.
pub fn run(func: &mut Function) -> bool {
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).copied();
    let found: Vec<_> = insts().filter_map(|i| Some((i, converted(&func.insts[i])?))).collect();
    if found.is_empty() {
        return false;
    }
    let at = places(func);
    let mut changed = false;
    for (i, v) in found {
        let Some((maker, ..)) = at[v] else { continue };
        let Some((mods, from)) = united(&func.insts[i], &func.insts[maker]) else { continue };
        func.insts[i].mods = mods;
        func.insts[i].operands[F2i::A] = from;
        changed = true;
    }
    changed
}

/// What a conversion truncates, if it is a number as it stands.
fn converted(d: &InstData) -> Option<Value> {
    let c = F2i::of(d).filter(|_| d.mods.has(Mod::TRUNC))?;
    match c.a {
        Operand::Reg(r @ RegOp { reg: Name::Val(v), .. }) if *r == RegOp::plain(r.reg) => Some(*v),
        _ => None,
    }
}

/// The modifiers and the source of the conversion `d` that rounds as `whole` does, which makes what it converts.
fn united(d: &InstData, whole: &InstData) -> Option<(Mods, Operand)> {
    let rounded = Frnd::of(whole).filter(|_| whole.is_unguarded())?;
    let mut rounding = None;
    for m in whole.mods.iter() {
        match m {
            Mod::FLOOR | Mod::CEIL | Mod::TRUNC => rounding = Some(m),
            Mod::FTZ | Mod::F64 => {}
            // Halves say which of a register they are.
            _ => return None,
        }
    }
    if whole.mods.has(Mod::F64) != d.mods.has(Mod::F64) || d.mods.has(Mod::F16) || d.mods.has(Mod::BF16) {
        return None;
    }
    let mut mods: SmallVec<[Mod; 6]> = whole.mods.has(Mod::FTZ).then_some(Mod::FTZ).into_iter().collect();
    mods.extend(d.mods.iter().filter_map(|m| match m {
        Mod::FTZ => None,
        Mod::TRUNC => rounding,
        m => Some(m),
    }));
    Some((Mods::of(&mods), *rounded.a))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(whole: &str, converted: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    v3:R2 = collect v0, v0\n    \
             v1:{whole}\n    v2:R = {converted}\n    STS [v0], v2\n    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn conversions_round() {
        for (whole, conversion, both) in [
            ("R = FRND.CEIL v0", "F2I.TRUNC.NTZ v1", "F2I.CEIL.NTZ v0"),
            ("R = FRND.FLOOR |v0|", "F2I.U32.TRUNC.NTZ v1", "F2I.U32.FLOOR.NTZ |v0|"),
            ("R = FRND -v0", "F2I.TRUNC.NTZ v1", "F2I.NTZ -v0"),
            ("R = FRND.FTZ.FLOOR v0", "F2I.TRUNC.NTZ v1", "F2I.FTZ.FLOOR.NTZ v0"),
            ("R = FRND.FLOOR v0", "F2I.FTZ.TRUNC.NTZ v1", "F2I.FLOOR.NTZ v0"),
            ("R2 = FRND.F64.FLOOR v3", "F2I.F64.TRUNC v1", "F2I.F64.FLOOR v3"),
        ] {
            let text = after(whole, conversion);
            assert!(text.contains(&format!("v2:R = {both}\n")), "{text}");
        }
        // A sign of the whole number, a conversion that rounds itself, and half a register.
        for (whole, conversion) in [
            ("R = FRND.FLOOR v0", "F2I.TRUNC.NTZ -v1"),
            ("R = FRND.FLOOR v0", "F2I.NTZ v1"),
            ("R = FRND.F16.FLOOR v0", "F2I.F16.TRUNC.NTZ v1"),
        ] {
            let text = after(whole, conversion);
            assert!(text.contains(&format!("v2:R = {conversion}\n")), "{text}");
        }
    }
}
