//! Shares work between the pipes: in a block with more of it for the ALU than for the pipe of products, copies become
//! `IMAD.MOV.U32`, sums of two registers `IMAD.IADD` and `IMAD.X`, and shifts `IMAD.SHL.U32`, as in ptxas's code, where about half of them are.
//! From sm_90 to sm_103 sums of a register and a number or a uniform register are `VIADD`, which that pipe has, too.

use crate::machine::{Link, Machine, MachineInst, inst};
use crate::units;
use sass::ops::{Iadd3, Iadd3Mods, Mov, Shf, ShfMods, ShiftDir, ShiftType};
use sass::{Inst, Mod, Mods, Opcode, Operand, Reg, RegFile, RegOp, Unit};

/// Shares them in every block.
pub fn run(machine: &mut Machine) {
    // Where integers have as many lanes as products, ptxas leaves all to the ALU.
    if !machine.target.info().sums_as_products {
        return;
    }
    let viadd = machine.target.has(Opcode::VIADD);
    for block in &mut machine.blocks {
        let on = |units: &[Unit]| block.insts.iter().filter(|i| units.contains(&i.inst.op.unit())).count();
        let (mut alu, mut fma) = (on(&[Unit::Alu]), on(&[Unit::Fma, Unit::Imad, Unit::Half]));
        // Predicates that an addition of the block made last: IMAD.X takes no other carry in ptxas's code.
        let mut carries = [false; 8];
        for i in &mut block.insts {
            if alu <= fma + 1 {
                break;
            }
            if share(i, &carries, viadd) {
                alu -= 1;
                fma += 1;
            }
            let adds = matches!(i.inst.op, Opcode::IADD3 | Opcode::IMAD | Opcode::LEA);
            let always = i.inst.guard == sass::Guard::TRUE;
            units::for_each_write(&i.inst, |u, _| {
                if let Some(r) = units::register(u).filter(|r| r.file == RegFile::P && !r.is_zero()) {
                    let carry = &mut carries[usize::from(r.index)];
                    *carry = adds && (always || *carry);
                }
            });
        }
    }
}

/// Makes a product of an instruction of the ALU, or VIADD where there is such; whether it is one that can be.
fn share(i: &mut MachineInst, carries: &[bool; 8], viadd: bool) -> bool {
    let d = &i.inst;
    if i.link != Link::None {
        return false;
    }
    if let Some(operands) = offset(d).filter(|_| viadd) {
        i.inst = sass::Inst { guard: d.guard, ..inst(Opcode::VIADD, &[], &operands) };
        return true;
    }
    let product = match d.op {
        Opcode::MOV => copy(d),
        Opcode::IADD3 => sum(d, carries),
        Opcode::SHF => shift(d),
        _ => None,
    };
    let Some((mods, operands)) = product else { return false };
    let guard = d.guard;
    i.inst = sass::Inst { guard, ..inst(Opcode::IMAD, mods, &operands) };
    true
}

/// Modifiers and operands of IMAD.
type Product = Option<(&'static [Mod], [Operand; 6])>;

const PT: Operand = Operand::reg(Reg::PT);
const RZ: Operand = Operand::reg(Reg::RZ);

fn no_carry() -> Operand {
    Operand::Reg(RegOp { not: true, ..RegOp::plain(Reg::PT) })
}

fn is_general(r: &RegOp<Reg>) -> bool {
    r.reg.file == RegFile::R && !r.reg.is_zero()
}

/// The register that an operand is, without a sign.
fn general(o: &Operand) -> Option<&RegOp<Reg>> {
    match o {
        Operand::Reg(r) if *r == RegOp::plain(r.reg) && is_general(r) => Some(r),
        _ => None,
    }
}

/// `IMAD.MOV.U32 R0, RZ, RZ, R2`, also of RZ, and with a uniform register `IMAD.U32`.
fn copy(d: &Inst) -> Product {
    let Mov { d: Operand::Reg(to), a: source, bytes: Operand::Imm(0xf) } = Mov::of(d)? else { return None };
    let plain = match source {
        Operand::Reg(r) => {
            let zero = r.reg == Reg::RZ;
            *r == RegOp::plain(r.reg)
                && (zero || !r.reg.is_zero() && matches!(r.reg.file, RegFile::R | RegFile::UR))
        }
        Operand::Imm(_) => true,
        _ => false,
    };
    if d.mods != Mods::none() || !plain || to.reg == Reg::SP {
        return None;
    }
    Some((&[Mod::U32], [Operand::Reg(*to), PT, RZ, RZ, *source, no_carry()]))
}

/// `IMAD.IADD R0, R2, 0x1, R4` and `IMAD.X R0, R2, 0x1, R4, P0`, the second source with a sign, and of a single one `IMAD.X R0, RZ, RZ, R4, P0`.
fn sum(d: &Inst, carries: &[bool; 8]) -> Product {
    let s = Iadd3::of(d)?;
    let x = Iadd3Mods::of(d)?.extended;
    let (Operand::Reg(to), Operand::Reg(p), Operand::Reg(q), Operand::Reg(r)) =
        (s.d, s.carry_out, s.carry_out2, s.carry)
    else {
        return None;
    };
    let with_carry = match x {
        false => *s.carry == no_carry(),
        true => !r.not && !r.reg.is_zero() && carries[usize::from(r.reg.index)],
    };
    let is_zero = |o: &Operand| *o == RZ || *o == Operand::Imm(0);
    let carries_out = *p != RegOp::plain(Reg::PT) || *q != RegOp::plain(Reg::PT);
    if !with_carry || carries_out || *s.carry2 != no_carry() || to.reg == Reg::SP {
        return None;
    }
    let mut sources = s.terms().into_iter().filter(|o| !is_zero(o));
    let (first, second) = (sources.next(), sources.next());
    if sources.next().is_some() {
        return None;
    }
    // The sign is the last source's.
    let signed = |o: &Operand| match o {
        Operand::Reg(r) => is_general(r) && !r.abs && if x { !r.neg } else { !r.not },
        _ => false,
    };
    let (factors, last) = match (first, second) {
        (Some(a), Some(b)) if general(a).is_some() && signed(b) => ([*a, Operand::Imm(1)], b),
        (Some(a), Some(b)) if general(b).is_some() && signed(a) => ([*b, Operand::Imm(1)], a),
        (Some(a), None) if x && signed(a) => ([RZ, RZ], a),
        _ => return None,
    };
    let [f, g] = factors;
    let mods: &[Mod] = if x { &[Mod::X] } else { &[] };
    Some((mods, [Operand::Reg(*to), PT, f, g, *last, *s.carry]))
}

/// `VIADD R0, R2, 0x4`, and `VIADD R0, R2, -UR4`. Of two registers ptxas makes IMAD.IADD.
fn offset(d: &Inst) -> Option<[Operand; 3]> {
    let s = Iadd3::of(d)?;
    let alone = [s.carry, s.carry2].into_iter().all(|o| *o == no_carry()) && !Iadd3Mods::of(d)?.extended;
    let Operand::Reg(to) = s.d else { return None };
    if !alone || [s.carry_out, s.carry_out2].into_iter().any(|o| *o != PT) || to.reg == Reg::SP {
        return None;
    }
    let mut terms = s.terms().into_iter().filter(|o| **o != RZ && **o != Operand::Imm(0));
    let (Some(a), Some(b), None) = (terms.next(), terms.next(), terms.next()) else { return None };
    let second = |o: &Operand| match o {
        Operand::Imm(_) => true,
        Operand::Reg(r) => r.reg.file == RegFile::UR && !r.reg.is_zero() && !r.abs && !r.not,
        _ => false,
    };
    let (a, b) = if second(b) { (a, b) } else { (b, a) };
    (general(a).is_some() && second(b)).then_some([Operand::Reg(*to), *a, *b])
}

/// `IMAD.SHL.U32 R0, R2, 0x4, RZ`.
fn shift(d: &Inst) -> Product {
    let Shf { d: Operand::Reg(to), low: a, amount: Operand::Imm(n @ 1..=31), high: zero } = Shf::of(d)?
    else {
        return None;
    };
    let left = ShfMods { dir: ShiftDir::L, wrap: false, kind: ShiftType::U32, hi: false };
    if ShfMods::of(d)? != left || *zero != RZ || general(a).is_none() || to.reg == Reg::SP {
        return None;
    }
    Some((&[Mod::U32], [Operand::Reg(*to), PT, *a, Operand::Imm(1 << n), RZ, no_carry()]))
}
