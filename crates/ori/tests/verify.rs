//! What the verifier refuses, each by one change to a function that it takes.

use ori::{Block, Function, Guard, Inst, Name, Op, Operand, Terminator, Value, operand};
use sass::{Mod, Mods, Reg, SpecialReg};

const GOOD: &str = "\
function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:P = ISETP.LT.AND PT, v0, 0x7, PT, PT
    v3:R = IADD3 PT, PT, v0, 0x1, RZ, !PT, !PT
    v4:R2 = collect v0, v3
    STG.E [v1.64], v3
    STG.E.64 [v1.64], v4
    branch v2, block1, block2
block1:
    STG.E [v1.64], v0
    exit
block2:
    exit
}
";

fn good() -> Function {
    ori::parse::parse(GOOD).expect("a function")
}

/// What is said of the function after a change.
fn refused(change: impl FnOnce(&mut Function)) -> String {
    let mut f = good();
    change(&mut f);
    ori::verify::verify(&f).expect_err("the change is taken").join("; ")
}

/// The instruction at this place of the entry.
fn at(f: &mut Function, n: usize) -> &mut ori::InstData {
    let i: Inst = f.blocks[f.layout[0]].insts[n];
    &mut f.insts[i]
}

fn value(f: &Function, n: usize) -> Value {
    f.values.keys().nth(n).expect("a value")
}

#[test]
fn the_function_is_taken() {
    ori::verify::verify(&good()).expect("well-formed");
}

#[test]
fn operands_are_of_their_slots_kind() {
    for (inst, slot, wrong) in [
        (0, 1, Operand::Imm(3)),
        (1, 1, Operand::Imm(3)),
        (2, 4, Operand::Imm(1)),
        (3, 3, Operand::Special(SpecialReg::SR_TID_X)),
        (5, 0, Operand::Imm(3)),
    ] {
        let said = refused(|f| at(f, inst).operands[slot] = wrong);
        assert!(said.contains("wrong kind"), "{said}");
    }
}

#[test]
fn registers_fit_their_slots() {
    let pair = |f: &Function| operand(value(f, 4));
    let said = refused(|f| {
        let pair = pair(f);
        at(f, 3).operands[3] = pair;
    });
    assert!(said.contains("spans 1 registers, not 2"), "{said}");
    let said = refused(|f| {
        let p = operand(value(f, 2));
        at(f, 3).operands[4] = p;
    });
    assert!(said.contains("wrong register file"), "{said}");
    let said = refused(|f| {
        let n = Name::Part(value(f, 4), 2);
        at(f, 5).operands[1] = operand(n);
    });
    assert!(said.contains("has no part 2"), "{said}");
    let said = refused(|f| {
        let v = Name::Val(value(f, 0));
        if let Operand::Addr { base, .. } = &mut at(f, 5).operands[0] {
            *base = Some(v);
        }
    });
    assert!(said.contains("the base of an address"), "{said}");
}

#[test]
fn guards_are_predicates_and_keep_what_fits() {
    let said = refused(|f| at(f, 5).guard = Guard { pred: Name::Val(value(&good(), 0)), not: false });
    assert!(said.contains("no predicate"), "{said}");
    let said = refused(|f| {
        let (p, pair) = (value(f, 2), value(f, 4));
        let d = at(f, 3);
        d.guard = Guard { pred: p.into(), not: false };
        d.kept = [Name::Val(pair), Name::Phys(Reg::PT), Name::Phys(Reg::PT)].into_iter().collect();
    });
    assert!(said.contains("another shape"), "{said}");
}

#[test]
fn macros_are_made_of_what_they_need() {
    let said = refused(|f| at(f, 4).operands.truncate(2));
    assert!(said.contains("collect do not fit"), "{said}");
    let said = refused(|f| at(f, 4).mods = Mods::of(&[Mod::X]));
    assert!(said.contains("with modifiers"), "{said}");
    let said = refused(|f| at(f, 4).operands[1] = operand(Name::Phys(Reg::r(7))));
    assert!(said.contains("before allocation"), "{said}");
    let said = refused(|f| at(f, 3).operands[3] = operand(Name::Phys(Reg::r(7))));
    assert!(said.contains("before allocation"), "{said}");
    let said = refused(|f| {
        let d = at(f, 4);
        d.op = Op::Macro(ori::Macro::Copy);
        d.operands.truncate(2);
    });
    assert!(said.contains("copy do not fit"), "{said}");
}

#[test]
fn blocks_and_edges_are_what_they_seem() {
    let said = refused(|f| f.layout.push(f.layout[1]));
    assert!(said.contains("in the layout twice"), "{said}");
    let said = refused(|f| {
        let twice = f.blocks[f.layout[0]].insts[0];
        f.blocks[f.layout[1]].insts.insert(0, twice);
    });
    assert!(said.contains("in two places"), "{said}");
    let said = refused(|f| _ = f.layout.pop());
    assert!(said.contains("not in the layout"), "{said}");
    let said = refused(|f| {
        let pair = value(f, 4);
        let b: Block = f.layout[0];
        if let Terminator::Branch { cond, .. } = &mut f.blocks[b].term {
            *cond = pair.into();
        }
    });
    assert!(said.contains("reads 2 registers"), "{said}");
}
