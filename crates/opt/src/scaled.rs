//! Places of shared memory that are a register times four, eight or sixteen: up to sm_89 the access shifts the register itself (`LDS [R2.X4+0x10]`),
//! as ptxas 13.0.88 has it whatever the register holds, for loads and stores of every width with any offset; from sm_90 on never.

use crate::Pass;
use crate::shift_add::shift_left;
use crate::{sums, uses};
use cranelift_entity::SecondaryMap;
use ori::{Analyses, Changed, Function, Inst, Name, Op, Operand, Value};
use sass::ops::Shf;
use sass::{AddrWidth, Opcode, RegFile};

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "scaled-addresses",
    "LateOriCommoning",
    "up to sm_89 accesses to shared memory shift their register themselves",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    if func.target.sm >= 90 {
        return Changed::Nothing;
    }
    let at = sums::places(func);
    let reads = uses::count(func);
    let mut found: Vec<(Inst, usize, Value, (Name, AddrWidth))> = Vec::new();
    let mut places: SecondaryMap<Value, u32> = SecondaryMap::new();
    for &i in analyses.cfg(func).rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
        let d = &func.insts[i];
        if !matches!(d.op, Op::Sass(Opcode::LDS | Opcode::STS)) {
            continue;
        }
        for (k, o) in d.operands.iter().enumerate() {
            if let Operand::Addr {
                desc: None,
                base: Some(Name::Val(v)),
                width: AddrWidth::R32,
                uniform: None,
                ..
            } = o
                && let Some(by) = at[*v].and_then(|p| scaled(func, p.0))
            {
                places[*v] += 1;
                found.push((i, k, *v, by));
            }
        }
    }
    // Where the product is needed for something else as well, it is in a register all the same.
    found.retain(|(_, _, v, _)| reads[*v] == places[*v]);
    for &(i, k, _, (index, by)) in &found {
        if let Operand::Addr { base, width, .. } = &mut func.insts[i].operands[k] {
            (*base, *width) = (Some(index), by);
        }
    }
    Changed::instructions(!found.is_empty())
}

/// The register that an instruction shifts to the left by two, three or four, and by how much.
fn scaled(func: &Function, i: Inst) -> Option<(Name, AddrWidth)> {
    let d = &func.insts[i];
    let by = match shift_left(d, false)? {
        2 => AddrWidth::X4,
        3 => AddrWidth::X8,
        4 => AddrWidth::X16,
        _ => return None,
    };
    match d.operands[Shf::LOW] {
        Operand::Reg(r) if matches!(r.reg, Name::Val(v) if func.values[v].file == RegFile::R && func.values[v].width == 1) => {
            Some((r.reg, by))
        }
        _ => None,
    }
}
