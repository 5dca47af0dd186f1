//! Shares copies between the pipes: in a block with more work for the ALU than for the pipe of products, a `MOV` becomes
//! `IMAD.MOV.U32`, as in ptxas's code, where about half of the copies are.

use crate::machine::{Link, Machine, MachineInst, inst};
use sass::{Mod, Opcode, Operand, Reg, RegOp, Unit};

/// Shares them in every block.
pub fn run(machine: &mut Machine) {
    for block in &mut machine.blocks {
        let on = |units: &[Unit]| block.insts.iter().filter(|i| units.contains(&i.inst.op.unit())).count();
        let (mut alu, mut fma) = (on(&[Unit::Alu]), on(&[Unit::Fma, Unit::Imad, Unit::Half]));
        for i in &mut block.insts {
            if alu <= fma + 1 {
                break;
            }
            if share(i) {
                alu -= 1;
                fma += 1;
            }
        }
    }
}

/// Makes a product of a copy; whether it is one that can be.
fn share(i: &mut MachineInst) -> bool {
    let d = &i.inst;
    if d.op != Opcode::MOV || i.link != Link::None || d.mods != sass::Mods::none() {
        return false;
    }
    let [Operand::Reg(to), source, Operand::Imm(0xf)] = &d.operands[..] else { return false };
    let plain = match source {
        Operand::Reg(r) => *r == RegOp::plain(r.reg) && r.reg.file == sass::RegFile::R && !r.reg.is_zero(),
        Operand::Imm(_) => true,
        _ => false,
    };
    if !plain || to.reg == Reg::SP {
        return false;
    }
    let zero = Operand::reg(Reg::RZ);
    let not = Operand::Reg(RegOp { not: true, ..RegOp::plain(Reg::PT) });
    let operands = [Operand::Reg(*to), Operand::reg(Reg::PT), zero.clone(), zero, source.clone(), not];
    let new = inst(Opcode::IMAD, &[Mod::U32], &operands);
    i.inst = sass::Inst { guard: d.guard, ..new };
    true
}
