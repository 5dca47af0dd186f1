//! Constants that many instructions read come by uniform registers from sm_90 on, where arithmetic no longer reads constant
//! memory itself: a load that only feeds operands which may be uniform registers becomes ULDC or LDCU.
//!
//! That is right wherever it stands, also where lanes have parted: what it loads is the same for all, and the register of
//! a value that lives from block to block holds nothing else in the function (register allocation sees to that).

use cranelift_entity::SecondaryMap;
use ori::{Function, Inst, InstData, Macro, Name, Op, Operand, Value};
use sass::{ConstBank, Mod, Opcode, Reg, RegFile, RegOp, SlotKind, SourceKinds, SwapChange};
use smallvec::SmallVec;

/// The most uniform registers that the constants of a function take together; descriptors and addresses take others.
const MOST: usize = 40;

/// The pass.
pub fn run(func: &mut Function) -> bool {
    // What is called has its own use for uniform registers.
    let calls = |func: &Function| {
        let insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
        insts.map(|i| &func.insts[*i]).any(|d| d.op == Op::Macro(Macro::Call))
    };
    if func.target.info().alu_const || !func.entry || calls(func) {
        return false;
    }
    let mut loads: SecondaryMap<Value, Option<Inst>> = SecondaryMap::new();
    let mut order: Vec<Value> = Vec::new();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            if let Some(v) = constant(&func.insts[i]) {
                loads[v] = Some(i);
                order.push(v);
            }
        }
    }
    let refused = |loads: &mut SecondaryMap<Value, Option<Inst>>, n: Name| {
        n.value().into_iter().for_each(|v| loads[v] = None);
    };
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            let mut taken = false;
            let mut fits: SmallVec<[Value; 2]> = SmallVec::new();
            for (k, o) in d.operands.iter().enumerate() {
                if let Operand::Reg(r) = o
                    && let Some(v) = r.reg.value().filter(|v| loads[*v].is_some())
                    && !taken
                    && takes(func, d, k)
                {
                    taken = true;
                    fits.push(v);
                } else if !d.is_def(k) {
                    ori::for_each_name(o, |n| refused(&mut loads, n));
                }
            }
            refused(&mut loads, d.guard.pred);
            d.kept.iter().for_each(|n| refused(&mut loads, *n));
        }
        let term = &func.blocks[b].term;
        term.used_name().into_iter().for_each(|n| refused(&mut loads, n));
        term.targets().iter().flat_map(|t| &t.args).for_each(|v| refused(&mut loads, Name::Val(*v)));
    }
    let op = if func.target.sm >= 100 { Opcode::LDCU } else { Opcode::ULDC };
    let mut words = 0;
    for v in order {
        let Some(i) = loads[v] else { continue };
        let width = usize::from(func.values[v].width);
        if words + width > MOST {
            break;
        }
        words += width;
        func.values[v].file = RegFile::UR;
        func.insts[i].op = Op::Sass(op);
    }
    words > 0
}

/// What a load of one or two words of constant memory at a known place loads.
fn constant(d: &InstData) -> Option<Value> {
    let width = d.mods.0.is_empty() || d.mods.0[..] == [Mod::_64];
    let known = matches!(
        d.operands.get(1),
        Some(Operand::Const {
            bank: ConstBank::Index(_),
            index: None,
            neg: false,
            abs: false,
            not: false,
            ..
        })
    );
    match d.operands.first() {
        Some(Operand::Reg(RegOp { reg: Name::Val(v), .. }))
            if d.op == Op::Sass(Opcode::LDC) && d.is_unguarded() && width && known =>
        {
            Some(*v)
        }
        _ => None,
    }
}

/// Whether operand `k` may be a uniform register: where it stands or where legalization moves it, next to sources that all are
/// general registers.
fn takes(func: &Function, d: &InstData, k: usize) -> bool {
    let Op::Sass(op) = d.op else { return false };
    let info = op.info();
    let source = |i: usize| op.slots()[i].kind == SlotKind::Source;
    let general = |o: &Operand| match o {
        Operand::Reg(r) => match r.reg {
            Name::Val(v) | Name::Part(v, _) => func.values[v].file == RegFile::R,
            Name::Phys(p) => p == Reg::RZ,
        },
        _ => false,
    };
    if info.uniform
        || !source(k)
        || matches!(info.source_kinds, SourceKinds::Immediate | SourceKinds::Immediates)
        || !d.operands.iter().enumerate().all(|(i, o)| i == k || !source(i) || general(o))
    {
        return false;
    }
    let may = |i: usize| info.sources.contains(&(i as u8));
    let swaps = |i: usize| info.swap.contains(&(i as u8));
    let alike = |to: usize| op.width(k, &d.mods) == op.width(to, &d.mods);
    let moves = info.swap_changes == SwapChange::Nothing
        && swaps(k)
        && (0..d.operands.len()).any(|to| source(to) && may(to) && swaps(to) && alike(to));
    may(k) || moves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(sm: u8, body: &str) -> String {
        let text = format!(
            "function k sm_{sm} entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = LDC c[0x0][0x210]\n    \
             v1:R2 = LDC.64 c[0x0][0x218]\n    v2:R = S2R SR_TID.X\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn constants_that_only_feed_arithmetic_are_uniform() {
        let sum = "    v3:R = IADD3 PT, PT, v2, v0, RZ, !PT, !PT\n    STS [v3], v2\n";
        assert!(after(90, sum).contains("v0:UR = ULDC c"));
        assert!(after(120, sum).contains("v0:UR = LDCU c"));
        // There c[0x0][0x210] is an operand.
        assert!(after(80, sum).contains("v0:R = LDC c"));
        // What moves to where it may be uniform, and parts of a pair.
        let product =
            "    v3:R = IMAD PT, v0, v2, RZ, !PT\n    v4:R = IMAD PT, v3, v1.1, v3, !PT\n    STS [v4], v2\n";
        let got = after(90, product);
        assert!(got.contains("v0:UR = ULDC c") && got.contains("v1:UR2 = ULDC.64 c"), "{got}");
        // One of two.
        let two = after(90, "    v3:R = IADD3 PT, PT, v0, v1.0, RZ, !PT, !PT\n    STS [v3], v2\n");
        assert!(two.contains("v0:UR = ULDC c") && two.contains("v1:R2 = LDC.64 c"), "{two}");
        // What is stored, an address, beside a number.
        for other in [
            "    STS [v2], v0\n",
            "    STS [v0], v2\n",
            "    v5:R = IADD3 PT, PT, v0, 0x5, v2, !PT, !PT\n    STS [v5], v2\n",
        ] {
            assert!(after(90, &format!("{sum}{other}")).contains("v0:R = LDC c"), "{other}");
        }
    }
}
