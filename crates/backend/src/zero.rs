//! Registers that are zero: copies of such are zeros themselves, and zeros of two registers that make a pair are one CS2R, as in
//! ptxas's code up to sm_110.

use crate::machine::{Link, Machine, MachineBlock, inst};
use crate::units;
use sass::{Mods, Opcode, Operand, Reg, RegFile, RegOp, SpecialReg};

/// The pass.
pub fn run(machine: &mut Machine) {
    let pairs = machine.target.info().sums_as_products;
    for block in &mut machine.blocks {
        read_zero(block);
        if pairs {
            unite(block);
        }
    }
}

const RZ: Operand = Operand::reg(Reg::RZ);

/// The register that a `MOV` without a guard writes, and what it reads.
fn copy(i: &crate::machine::MachineInst) -> Option<(Reg, &Operand)> {
    let d = &i.inst;
    let plain = d.op == Opcode::MOV && d.mods == Mods::none() && d.guard == sass::Guard::TRUE;
    match &d.operands[..] {
        [Operand::Reg(to), source, Operand::Imm(0xf)] if plain && i.link == Link::None => {
            (*to == RegOp::plain(to.reg) && to.reg.file == RegFile::R && to.reg != Reg::SP)
                .then_some((to.reg, source))
        }
        _ => None,
    }
}

/// Whether it is a zero that the copy makes.
fn is_zero(source: &Operand) -> bool {
    matches!(source, Operand::Imm(0)) || *source == RZ
}

/// Has copies of registers that are zero read RZ.
fn read_zero(block: &mut MachineBlock) {
    let mut zero = [false; 256];
    for i in &mut block.insts {
        let known = match copy(i) {
            Some((to, Operand::Reg(r))) if *r == RegOp::plain(r.reg) && r.reg.file == RegFile::R => {
                zero[usize::from(r.reg.index)].then_some(to)
            }
            _ => None,
        };
        if known.is_some() {
            i.inst.operands[1] = RZ;
        }
        let made = copy(i).and_then(|(to, source)| is_zero(source).then_some(to));
        if i.inst.op.info().leaves_function() {
            zero = [false; 256];
        }
        units::for_each_write(&i.inst, |u, _| {
            if let Some(r) = units::register(u).filter(|r| r.file == RegFile::R) {
                zero[usize::from(r.index)] = made == Some(r);
            }
        });
    }
}

/// Makes one instruction of the zeros of both registers of a pair, where nobody touches the first one between.
fn unite(block: &mut MachineBlock) {
    // Where each register became zero, if nobody has read or written it since.
    let mut since: [Option<usize>; 256] = [None; 256];
    let mut gone = Vec::new();
    for k in 0..block.insts.len() {
        let made = copy(&block.insts[k]).and_then(|(to, source)| is_zero(source).then_some(to));
        let d = &block.insts[k].inst;
        if d.op.info().leaves_function() {
            since = [None; 256];
        }
        let mut touch = |u| {
            if let Some(r) = units::register(u).filter(|r| r.file == RegFile::R) {
                since[usize::from(r.index)] = None;
            }
        };
        units::for_each_read(d, |u, _| touch(u));
        units::for_each_write(d, |u, _| touch(u));
        let Some(to) = made else { continue };
        let other = usize::from(to.index ^ 1);
        match since[other].take() {
            Some(first) => {
                gone.push(first);
                let pair = [Operand::reg(Reg::r(to.index & !1)), Operand::Special(SpecialReg::SRZ)];
                block.insts[k].inst = inst(Opcode::CS2R, &[], &pair);
            }
            None => since[usize::from(to.index)] = Some(k),
        }
    }
    gone.sort_unstable();
    for k in gone.into_iter().rev() {
        block.insts.remove(k);
    }
}
