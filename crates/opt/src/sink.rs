//! Constants are made where all ways to their readers come by, and not in the entry block, but in no loop that they were outside
//! of: threads that end before need none, and registers hold what is needed soon. Those are loads of constant memory and what
//! only they and numbers are the operands of.

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use sass::ConstBank;
use std::collections::BTreeMap;

/// The pass, for the table.
pub const PASS: Pass =
    Pass::analysed(2, "sink", "LateArchOptimizeFirst", "constants are made where they are needed", run);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let (dom, loops) = (analyses.dominators(func), analyses.loops(func));
    // Values that are such, and for each of these instructions its block.
    let mut constant: SecondaryMap<Value, bool> = SecondaryMap::new();
    let mut home: SecondaryMap<Inst, Option<Block>> = SecondaryMap::new();
    let mut makers: Vec<Inst> = Vec::new();
    for &b in analyses.cfg(func).rpo.iter() {
        for &i in &func.blocks[b].insts {
            if let Some(v) = result(&func.insts[i], &constant) {
                constant[v] = true;
                home[i] = Some(b);
                makers.push(i);
            }
        }
    }
    // Where all readers of a value come by.
    let mut meet: SecondaryMap<Value, Option<Block>> = SecondaryMap::new();
    let read = |meet: &mut SecondaryMap<Value, Option<Block>>, n: Name, b: Block| {
        if let Some(v) = n.value().filter(|v| constant[*v]) {
            meet[v] = Some(meet[v].map_or(b, |c| dom.common(c, b)));
        }
    };
    // Blocks that nothing comes to have no place among the dominators, and no say.
    for &b in analyses.cfg(func).rpo.iter() {
        for &i in &func.blocks[b].insts {
            if home[i].is_none() {
                func.insts[i].for_each_use(|n| read(&mut meet, n, b));
            }
        }
        let term = &func.blocks[b].term;
        let passed = term.targets().into_iter().flat_map(|t| t.args.iter().map(|v| Name::Val(*v)));
        term.used_name().into_iter().chain(passed).for_each(|n| read(&mut meet, n, b));
    }
    let mut to: BTreeMap<Block, Vec<Inst>> = BTreeMap::new();
    // Those that read others come after them, so that it is known where they end up.
    for &i in makers.iter().rev() {
        let d = &func.insts[i];
        let (Some(from), Some(mut at)) = (home[i], result(d, &constant).and_then(|v| meet[v])) else {
            continue;
        };
        while let Some(l) = loops.innermost(at).filter(|l| !loops.contains(*l, from)) {
            let Some(outside) = dom.idom(loops.loops[l].header) else { break };
            at = outside;
        }
        d.for_each_use(|n| read(&mut meet, n, at));
        if at != from {
            home[i] = None;
            to.entry(at).or_default().push(i);
        }
    }
    if to.is_empty() {
        return Changed::Nothing;
    }
    let mut stays: SecondaryMap<Inst, bool> = SecondaryMap::with_default(true);
    to.values().flatten().for_each(|i| stays[*i] = false);
    for b in func.layout.clone() {
        let first: Vec<Inst> = to.remove(&b).into_iter().flatten().rev().collect();
        let rest = std::mem::take(&mut func.blocks[b].insts);
        func.blocks[b].insts = first.into_iter().chain(rest.into_iter().filter(|i| stays[*i])).collect();
    }
    Changed::instructions(true)
}

/// The value that an instruction makes, if it makes one of constants alone.
fn result(d: &InstData, constant: &SecondaryMap<Value, bool>) -> Option<Value> {
    let (load, alone) = match d.op {
        Op::Sass(op) => (op.loads_constants(), d.is_of_each_lane()),
        Op::Macro(m) => (false, matches!(m, Macro::Copy | Macro::Collect)),
    };
    if !d.is_unguarded() || !d.is_pure() || !alone {
        return None;
    }
    let mut made = None;
    let mut values = 0;
    for (k, o) in d.operands.iter().enumerate() {
        match o {
            Operand::Reg(r) => match r.reg {
                Name::Val(v) if d.is_def(k) => {
                    if made.replace(v).is_some() {
                        return None;
                    }
                }
                Name::Val(v) | Name::Part(v, _) => {
                    values += 1;
                    constant[v].then_some(())?;
                }
                Name::Phys(r) => r.is_zero().then_some(())?,
            },
            Operand::Imm(_) => {}
            Operand::Const { bank: ConstBank::Index(_), index: None, .. } => values += 1,
            _ => return None,
        }
    }
    // Numbers alone are made again wherever they are needed.
    made.filter(|_| load || values > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_go_to_their_readers() {
        let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = LDC c[0x0][0x210]
    v1:R = LDC c[0x0][0x214]
    v2:R = S2R SR_TID.X
    v3:R = SHF.R.S32.HI RZ, 0x1f, v0
    v4:R = LDC c[0x0][0x218]
    v5:P = ISETP.LT.AND PT, v2, v1, PT, PT
    branch v5, block1, block4
block1:
    STS [v2], v4
    jump block2(v2)
block2(v6:R):
    v7:R = IADD3 PT, PT, v6, v3, RZ, !PT, !PT
    STS [v7], v0
    v8:P = ISETP.LT.AND PT, v7, 0x9, PT, PT
    branch v8, block2(v7), block3
block3:
    STS [v2], v4
    exit
block4:
    exit
}
";
        let mut f = ori::parse::parse(text).unwrap();
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        let got = f.to_string();
        let block = |n: u32| {
            let at = got.find(&format!("\nblock{n}")).unwrap();
            &got[at..at + 6 + got[at + 6..].find("\nblock").unwrap_or(got.len() - at - 6)]
        };
        // What decides stays; what the loop needs is made before it, once.
        assert!(block(0).contains("v1:R = LDC") && block(0).matches("LDC").count() == 1, "{got}");
        assert!(["v0:R = LDC", "v3:R = SHF", "v4:R = LDC"].iter().all(|x| block(1).contains(x)), "{got}");
        // What all lanes of a warp do together stays where they are.
        let text = text.replace("SHF.R.S32.HI RZ, 0x1f, v0", "MOVM.16.MT88 v0");
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        _ = run(&mut f, &Analyses::default());
        let got = f.to_string();
        assert!(got.find("MOVM") < got.find("block1:"), "{got}");
    }
}
