//! Two branches to one place become one on both conditions: what only the second needs is computed in any case. `if (a || b)` and
//! `if (a && b)` come so from C; one branch is one region less, and may become guards.

use crate::Pass;
use ori::cfg::Cfg;
use ori::{Analyses, Block, BlockCall, Builder, Changed, Function, Name, Operand, Terminator};
use rustc_hash::FxHashSet;
use sass::{Mod, Opcode, Reg, RegFile, RegOp};

/// The most instructions that are executed although the first condition decides.
const MOST: u64 = 6;
/// `a ∨ b ∧ PT` as PLOP3 has it.
const OR: u32 = 0xfc;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "short-circuit",
    "OptimizeNestedCondBranches",
    "two branches to one place as one on both conditions, if what only the second needs is up to six instructions without effects",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    // The last ones first, so that what has become one is the second of another.
    let gone: FxHashSet<Block> = cfg.rpo.iter().rev().filter_map(|b| join(func, cfg, *b)).collect();
    func.layout.retain(|b| !gone.contains(b));
    if !gone.is_empty() {
        crate::setp_combine::run(func);
    }
    Changed::graph(!gone.is_empty())
}

/// When a way is taken: where a predicate is so.
#[derive(Clone, Copy)]
struct When {
    pred: Name,
    not: bool,
}

/// The two ways out of a block, each with when it is taken.
fn ways(func: &Function, b: Block) -> Option<[(BlockCall, When); 2]> {
    let Terminator::Branch { cond, not, taken, fall } = &func.blocks[b].term else { return None };
    let usual = matches!(cond, Name::Val(v) if func.values[*v].file == RegFile::P);
    let when = |not| When { pred: *cond, not };
    usual.then(|| [(taken.clone(), when(*not)), (fall.clone(), when(!*not))])
}

/// Joins the branch of a block with that of the block behind it, which goes.
fn join(func: &mut Function, cfg: &Cfg, first: Block) -> Option<Block> {
    let out = ways(func, first)?;
    for k in [0, 1] {
        let ((second, _), (place, either)) = (&out[k], &out[1 - k]);
        let (b, x) = (second.block, place.block);
        if cfg.preds[b].len() != 1
            || b == first
            || b == x
            || !second.args.is_empty()
            || !may_go_ahead(func, b)
        {
            continue;
        }
        let Some(on) = ways(func, b) else { continue };
        for m in [0, 1] {
            let ((same, or), (other, _)) = (&on[m], &on[1 - m]);
            if same != place || other.block == x || other.block == b {
                continue;
            }
            let moved = std::mem::take(&mut func.blocks[b].insts);
            func.blocks[first].insts.extend(moved);
            let source = |w: &When| Operand::Reg(RegOp { not: w.not, ..RegOp::plain(w.pred) });
            let always = Operand::Reg(RegOp::plain(Name::Phys(Reg::PT)));
            let operands = [source(either), source(or), always, Operand::Imm(OR), Operand::Imm(0)];
            let loc = func.blocks[b].term_loc;
            let mut builder = Builder::new(func, first);
            builder.loc = loc;
            let cond = builder.def_pred(Opcode::PLOP3, &[Mod::LUT], &operands);
            func.blocks[first].term = Terminator::Branch {
                cond: cond.into(),
                not: false,
                taken: place.clone(),
                fall: other.clone(),
            };
            func.blocks[b].term = Terminator::Unreachable;
            return Some(b);
        }
    }
    None
}

/// Whether the instructions of a block may be executed although they need not be.
fn may_go_ahead(func: &Function, b: Block) -> bool {
    let data = &func.blocks[b];
    let size = data.insts.iter().filter_map(|i| crate::unroll::cost(&func.insts[*i])).sum::<u64>();
    data.params.is_empty()
        && size <= MOST
        && data.insts.iter().all(|i| {
            let d = &func.insts[*i];
            let own = d.is_of_each_lane() && d.opcode().is_none_or(|op| !op.info().uniform);
            d.may_run_needlessly() && d.is_unguarded() && own
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of branches behind the pass.
    fn branches(second: &str, to: &str) -> usize {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R = S2R SR_TID.X
    v1:P = ISETP.LT.AND PT, v0, 0x5, PT, PT
    branch v1, block2, block1
block1:
    {second}
    v3:P = ISETP.LT.AND PT, v2, 0x9, PT, PT
    branch {to}
block2:
    STS [v0], v0
    jump block3
block3:
    STS [v0+0x80], v0
    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e:?}: {text}"));
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let branch = |b: &&Block| matches!(f.blocks[**b].term, Terminator::Branch { .. });
        f.layout.iter().filter(branch).count()
    }

    const SUM: &str = "v2:R = IADD3 PT, PT, v0, 0x7, RZ, !PT, !PT";

    #[test]
    fn conditions_to_one_place_are_one() {
        assert_eq!(branches(SUM, "v3, block2, block3"), 1);
        assert_eq!(branches(SUM, "v3, block3, block2"), 1);
        assert_eq!(branches(SUM, "!v3, block2, block3"), 1);
    }

    #[test]
    fn what_others_see_stays_where_it_is() {
        assert_eq!(branches("v2:R = LDS [v0]", "v3, block2, block3"), 2);
        assert_eq!(branches("STS [v0+0x40], v0\n    v2:R = S2R SR_TID.Y", "v3, block2, block3"), 2);
        let long = (10..17).map(|k| format!("v{k}:R = IADD3 PT, PT, v0, 0x7, RZ, !PT, !PT\n    "));
        assert_eq!(branches(&format!("{}{SUM}", long.collect::<String>()), "v3, block2, block3"), 2);
    }
}
