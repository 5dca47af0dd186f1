//! Comparisons take part in logic: `p ∧ q`, `p ∨ q` and `p ⊕ q`, where `p` is a comparison that nothing else needs, are the
//! comparison itself with `q` as its third source. A complemented comparison becomes the opposite one.

use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Value};
use sass::{Mod, Opcode, Reg};

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let mut defs: SecondaryMap<Value, Option<(Inst, Block)>> = SecondaryMap::new();
    let uses = crate::uses::count(func);
    let mut logic: Vec<(Inst, Block)> = Vec::new();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            match d.op {
                Op::Sass(Opcode::ISETP | Opcode::FSETP) => {
                    if let Some(Name::Val(v)) = register(&d.operands[0]).map(|(n, _)| n) {
                        defs[v] = Some((i, b));
                    }
                }
                Op::Sass(Opcode::PLOP3) => logic.push((i, b)),
                _ => {}
            }
        }
    }
    let mut changed = false;
    // A comparison that takes in one result may itself be taken in by the next.
    for (i, b) in logic {
        let Some(new) = combined(func, &defs, &uses, i, b) else { continue };
        let (result, _) = register(&new.operands[0]).expect("a comparison writes a predicate");
        func.insts[i] = new;
        if let Name::Val(v) = result {
            defs[v] = Some((i, b));
        }
        changed = true;
    }
    changed
}

/// A predicate operand: its register and whether it is complemented.
fn register(o: &Operand) -> Option<(Name, bool)> {
    match o {
        Operand::Reg(r) => Some((r.reg, r.not)),
        _ => None,
    }
}

const PT: Name = Name::Phys(Reg::PT);

/// The comparison that takes the place of a PLOP3 of two predicates.
fn combined(
    func: &Function,
    defs: &SecondaryMap<Value, Option<(Inst, Block)>>,
    uses: &SecondaryMap<Value, u32>,
    i: Inst,
    block: Block,
) -> Option<InstData> {
    let d = &func.insts[i];
    let [dst, second, a, b, c, Operand::Imm(table), _] = &d.operands[..] else { return None };
    if d.guard != ori::ALWAYS || register(second)?.0 != PT || register(c)? != (PT, false) {
        return None;
    }
    let (a, b) = (register(a)?, register(b)?);
    // The result for each pair of registers, the third source being true.
    let result = |x: bool, y: bool| {
        let index = u32::from(x != a.1) << 2 | u32::from(y != b.1) << 1 | 1;
        table >> index & 1 != 0
    };
    let candidate = |name: Name| {
        let Name::Val(v) = name else { return None };
        let (def, at) = defs[v]?;
        (at == block && uses[v] == 1 && takes_part(&func.insts[def])).then_some(def)
    };
    let (compare, other, result): (Inst, Name, [[bool; 2]; 2]) = match (candidate(a.0), candidate(b.0)) {
        (Some(x), _) => (x, b.0, [false, true].map(|x| [false, true].map(|y| result(x, y)))),
        (None, Some(x)) => (x, a.0, [false, true].map(|x| [false, true].map(|y| result(y, x)))),
        (None, None) => return None,
    };
    // Which of `x ∘ y` with either complemented it is; where `y` is PT only its column counts.
    let same = |join: Mod, not_x: bool, not_y: bool| {
        let value = |x: bool, y: bool| {
            let (x, y) = (x != not_x, y != not_y);
            match join {
                Mod::AND => x && y,
                Mod::OR => x || y,
                _ => x != y,
            }
        };
        let columns: &[bool] = if other == PT { &[true] } else { &[false, true] };
        columns.iter().all(|&y| [false, true].iter().all(|&x| result[x as usize][y as usize] == value(x, y)))
    };
    let joins = [Mod::AND, Mod::OR, Mod::XOR];
    let choices = joins.into_iter().flat_map(|join| [0, 2, 1, 3].map(|n| (join, n & 1 != 0, n & 2 != 0)));
    let (join, not_x, not_y) = choices.into_iter().find(|(join, x, y)| same(*join, *x, *y))?;
    let mut new = func.insts[compare].clone();
    if not_x {
        let float = new.op == Op::Sass(Opcode::FSETP);
        let m = new.mods.0.iter_mut().find(|m| opposite(**m, float).is_some())?;
        *m = opposite(*m, float)?;
        // The comparison of upper words goes on from that of the lower ones, which would have to change too.
        if new.mods.has(Mod::EX) {
            return None;
        }
    }
    *new.mods.0.iter_mut().find(|m| **m == Mod::AND)? = join;
    new.operands[0] = *dst;
    new.operands[THIRD] = Operand::Reg(sass::RegOp { not: not_y, ..sass::RegOp::plain(other) });
    Some(new)
}

/// The operand of ISETP and FSETP that the comparison is combined with.
const THIRD: usize = 4;

/// Whether a comparison has room for another predicate: it has one result and is combined with PT.
pub(crate) fn takes_part(d: &InstData) -> bool {
    d.guard == ori::ALWAYS
        && d.mods.has(Mod::AND)
        && register(&d.operands[1]).is_some_and(|r| r.0 == PT)
        && register(&d.operands[THIRD]) == Some((PT, false))
}

/// The comparison that is true where `m` is false. Of floating-point numbers either may be NaN.
pub(crate) fn opposite(m: Mod, float: bool) -> Option<Mod> {
    Some(match (m, float) {
        (Mod::EQ, false) => Mod::NE,
        (Mod::NE, false) => Mod::EQ,
        (Mod::LT, false) => Mod::GE,
        (Mod::LE, false) => Mod::GT,
        (Mod::GT, false) => Mod::LE,
        (Mod::GE, false) => Mod::LT,
        (Mod::EQ, true) => Mod::NEU,
        (Mod::NE, true) => Mod::EQU,
        (Mod::LT, true) => Mod::GEU,
        (Mod::LE, true) => Mod::GTU,
        (Mod::GT, true) => Mod::LEU,
        (Mod::GE, true) => Mod::LTU,
        (Mod::EQU, true) => Mod::NE,
        (Mod::NEU, true) => Mod::EQ,
        (Mod::LTU, true) => Mod::GE,
        (Mod::LEU, true) => Mod::GT,
        (Mod::GTU, true) => Mod::LE,
        (Mod::GEU, true) => Mod::LT,
        (Mod::NUM, true) => Mod::NAN,
        (Mod::NAN, true) => Mod::NUM,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Terminator, operand};
    use sass::{RegFile, SpecialReg, Target};

    /// `FSETP.LT x < y` and a table with another predicate.
    fn logic(table: u32, complemented: bool) -> String {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let exit = f.add_block();
        let mut b = Builder::new(&mut f, entry);
        let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
        let pt = || Operand::reg(PT);
        let q = b.def_pred(Opcode::ISETP, &[Mod::GT, Mod::AND], &[operand(x), Operand::Imm(7), pt(), pt()]);
        let _both =
            b.def_pred(Opcode::ISETP, &[Mod::LT, Mod::AND], &[operand(x), operand(x), operand(q), pt()]);
        let p = b.def_pred(Opcode::FSETP, &[Mod::LT, Mod::AND], &[operand(x), Operand::Imm(0), pt()]);
        let q = Operand::Reg(sass::RegOp { not: complemented, ..sass::RegOp::plain(Name::Val(q)) });
        let tables = [Operand::Imm(table & 0xaa), Operand::Imm(0)];
        let [lut, zero] = tables;
        let r = b.def_pred(Opcode::PLOP3, &[Mod::LUT], &[operand(p), q, pt(), lut, zero]);
        b.terminate(Terminator::Branch {
            cond: r.into(),
            not: false,
            taken: Builder::call(exit),
            fall: Builder::call(exit),
        });
        b.block = exit;
        b.terminate(Terminator::Exit);
        assert_eq!(f.values[r].file, RegFile::P);
        run(&mut f);
        ori::verify::verify(&f).unwrap();
        let text = f.to_string();
        text.lines().filter(|l| l.contains("v4:P =")).map(|l| l.trim().to_string()).collect()
    }

    #[test]
    fn and_or_and_complements() {
        assert_eq!(logic(0xc0, false), "v4:P = FSETP.LT.AND PT, v0, 0x0, v1");
        assert_eq!(logic(0xfc, false), "v4:P = FSETP.LT.OR PT, v0, 0x0, v1");
        assert_eq!(logic(0xc0, true), "v4:P = FSETP.LT.AND PT, v0, 0x0, ~v1");
        assert_eq!(logic(0x0c, false), "v4:P = FSETP.GEU.AND PT, v0, 0x0, v1");
        assert_eq!(logic(0x3f, true), "v4:P = FSETP.GEU.OR PT, v0, 0x0, v1");
        assert_eq!(logic(0x3c, false), "v4:P = FSETP.LT.XOR PT, v0, 0x0, v1");
        assert_eq!(logic(0x3c, true), "v4:P = FSETP.LT.XOR PT, v0, 0x0, ~v1");
        assert_eq!(logic(0xc3, false), "v4:P = FSETP.LT.XOR PT, v0, 0x0, ~v1");
    }

    #[test]
    fn every_opposite_is_mutual() {
        for float in [false, true] {
            for m in [Mod::EQ, Mod::NE, Mod::LT, Mod::LE, Mod::GT, Mod::GE, Mod::NUM, Mod::LTU, Mod::EQU] {
                if let Some(o) = opposite(m, float) {
                    assert_eq!(opposite(o, float), Some(m));
                }
            }
        }
    }
}
