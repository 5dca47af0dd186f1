//! Textures give the components that somebody needs: the mask says which, and those behind the last take no registers. ptxas 13.0.88 has it
//! so for all targets.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Function, InstData, Name, Op, Operand, Value, operand};
use sass::memory::MemoryEffects;
use sass::{Reg, RegFile, Role, SlotKind};
use smallvec::SmallVec;

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    1,
    "texels",
    "OriSimpleLiveDead",
    "components of texels that nobody needs are not fetched",
    run,
);

/// All four components.
const ALL: u32 = 0xf;

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if !insts().any(|i| results(&func.insts[*i]).is_some()) {
        return false;
    }
    // The words of pairs that something reads.
    let mut read: SecondaryMap<Value, [bool; 2]> = SecondaryMap::new();
    let mut need = |n: Name| match n {
        Name::Val(v) => read[v] = [true; 2],
        Name::Part(v, k) => {
            if let Some(word) = read[v].get_mut(usize::from(k)) {
                *word = true;
            }
        }
        Name::Phys(_) => {}
    };
    for &b in &func.layout {
        func.blocks[b].insts.iter().for_each(|i| func.insts[*i].for_each_use(&mut need));
        let term = &func.blocks[b].term;
        let passed = term.targets().into_iter().flat_map(|t| t.args.iter().map(|v| Name::Val(*v)));
        term.used_name().into_iter().chain(passed).for_each(&mut need);
    }
    let mut changed = false;
    for i in insts().copied().collect::<Vec<_>>() {
        let Some([high, low]) = results(&func.insts[i]) else { continue };
        let of = |k: usize| func.insts[i].operands[k].as_reg().and_then(|r| r.reg.value());
        let words: SmallVec<[bool; 4]> =
            [low, high].into_iter().flat_map(|k| of(k).map_or([false; 2], |v| read[v])).collect();
        // What nobody needs at all is dead code.
        let Some(last) = words.iter().rposition(|w| *w).filter(|last| *last < 3) else { continue };
        let d = &mut func.insts[i];
        if let Some(mask) = d.operands.last_mut() {
            *mask = Operand::Imm((2 << last) - 1);
        }
        if last < 2 {
            d.operands[high] = operand(Name::Phys(Reg::RZ));
        }
        changed = true;
    }
    changed
}

/// Where an instruction that gives all components of a texel has the last two and the first two.
fn results(d: &InstData) -> Option<[usize; 2]> {
    let Op::Sass(op) = d.op else { return None };
    let whole = op.info().accesses == MemoryEffects::ReadOnly
        && d.is_unguarded()
        && *d.operands.last()? == Operand::Imm(ALL);
    let pairs = |k: &usize| {
        let slot = &op.slots()[*k];
        slot.role == Role::Def && slot.kind == SlotKind::Reg(RegFile::R)
    };
    let found: SmallVec<[usize; 2]> = (0..op.slots().len()).filter(pairs).collect();
    <[usize; 2]>::try_from(found.as_slice()).ok().filter(|_| whole)
}

#[cfg(test)]
mod tests {
    fn after(readers: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R4 = collect 0x0, 0x0, 0x0, 0x0
    v1:R4 = collect 0x0, 0x0, 0x0, 0x0
    v3:R2, v2:R2 = TEX.B.LL PT, v0, v1, 0x1, 0xf
{readers}    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        super::run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn components_that_nobody_needs_are_not_fetched() {
        for (word, mask, high) in [
            ("v2.0", "0x1", "RZ"),
            ("v2.1", "0x3", "RZ"),
            ("v3.0", "0x7", "v3"),
            ("v3.1", "0xf", "v3"),
            ("v3", "0xf", "v3"),
        ] {
            let store = if word == "v3" { "STS.64" } else { "STS" };
            let text = after(&format!("    {store} [0x0], {word}\n"));
            let line = text.lines().find(|l| l.contains("TEX")).unwrap_or_default();
            assert!(line.ends_with(mask) && line.contains(high), "{word}: {line}");
        }
    }
}
