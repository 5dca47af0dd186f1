//! Places of shared memory that are a register times four, eight or sixteen: up to sm_89 the access shifts the register itself (`LDS [R2.X4+0x10]`),
//! as ptxas 13.0.88 has it whatever the register holds, for loads and stores of every width with any offset; from sm_90 on never.

use crate::Pass;
use crate::shift_add::shift_left;
use crate::sums;
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
    let mut found: Vec<(Inst, usize, Value)> = Vec::new();
    // How often each number is read, and how often as such a place.
    let mut reads: SecondaryMap<Value, u32> = SecondaryMap::new();
    let mut places: SecondaryMap<Value, u32> = SecondaryMap::new();
    for &b in &analyses.cfg(func).rpo {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            d.for_each_use(|n| n.value().into_iter().for_each(|v| reads[v] += 1));
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
                    && at[*v].is_some_and(|p| scaled(func, p.0).is_some())
                {
                    places[*v] += 1;
                    found.push((i, k, *v));
                }
            }
        }
        let term = &func.blocks[b].term;
        let passed = term.targets().into_iter().flat_map(|t| t.args.iter().copied());
        passed.chain(term.used_name().and_then(Name::value)).for_each(|v| reads[v] += 1);
    }
    // Where the product is needed for something else as well, it is in a register all the same.
    found.retain(|(_, _, v)| reads[*v] == places[*v]);
    for &(i, k, v) in &found {
        let Some((index, by)) = at[v].and_then(|p| scaled(func, p.0)) else { continue };
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
