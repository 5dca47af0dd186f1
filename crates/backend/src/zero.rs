//! Registers that are zero: copies of such are zeros themselves, and zeros of two registers that make a pair are one CS2R, as in
//! ptxas's code up to sm_110. From sm_120 on two numbers of a pair, and copies of a pair, are one MOV of 64 bits.

use crate::machine::{Link, Machine, MachineBlock, inst};
use crate::units;
use sass::{Mod, Mods, Opcode, Operand, Reg, RegFile, RegOp, SpecialReg};

/// The pass.
pub fn run(machine: &mut Machine) {
    let pairs = machine.target.info().sums_as_products;
    for block in &mut machine.blocks {
        read_zero(block);
        if pairs {
            unite(block, &|low, high| {
                (is_zero(low) && is_zero(high))
                    .then(|| (Opcode::CS2R, &[][..], vec![Operand::Special(SpecialReg::SRZ)]))
            });
        } else {
            unite(block, &wide_move);
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

/// The number that a copy makes.
fn number(source: &Operand) -> Option<Operand> {
    match source {
        Operand::Imm(n) => Some(Operand::Imm(*n)),
        o if is_zero(o) => Some(Operand::Imm(0)),
        _ => None,
    }
}

/// Whether an instruction writes a register.
fn writes(i: &sass::Inst, reg: Reg) -> bool {
    let mut found = i.op.info().leaves_function();
    units::for_each_write(i, |u, _| found |= units::register(u) == Some(reg));
    found
}

/// The MOV of 64 bits that makes two registers.
fn wide_move(low: &Operand, high: &Operand) -> Option<(Opcode, &'static [Mod], Vec<Operand>)> {
    let mods: &'static [Mod] = &[Mod::_64];
    let whole = |o: Operand| Some((Opcode::MOV, mods, vec![o, Operand::Imm(0xf)]));
    match (low, high) {
        _ if is_zero(low) && is_zero(high) => whole(RZ),
        (Operand::Reg(a), Operand::Reg(b)) => {
            // From uniform registers ptxas copies pairs, too; but how soon those may be written again is not known.
            let pair = a.reg.file == RegFile::R
                && b.reg.file == RegFile::R
                && a.reg.index & 1 == 0
                && b.reg.index == a.reg.index + 1;
            let plain = *a == RegOp::plain(a.reg) && *b == RegOp::plain(b.reg) && !b.reg.is_zero();
            (pair && plain).then(|| whole(*low))?
        }
        _ => Some((Opcode::MOV64, mods, vec![number(high)?, number(low)?])),
    }
}

/// What makes both registers of a pair, given what the copies to the lower and the higher one read.
type Both<'a> = &'a dyn Fn(&Operand, &Operand) -> Option<(Opcode, &'static [Mod], Vec<Operand>)>;

/// Makes one instruction of the copies to both registers of a pair, where nobody touches the first one between.
fn unite(block: &mut MachineBlock, both: Both<'_>) {
    // Where each register became a number, and which, if nobody has read or written it since.
    let mut since: [Option<(usize, Operand)>; 256] = [None; 256];
    let mut gone = Vec::new();
    for k in 0..block.insts.len() {
        let made = copy(&block.insts[k]).map(|(to, source)| (to, *source));
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
        let Some((to, source)) = made else { continue };
        let lower = to.index & 1 == 0;
        let united = since[usize::from(to.index ^ 1)].and_then(|(first, other)| {
            let (low, high) = if lower { (source, other) } else { (other, source) };
            let made = both(&low, &high)?;
            // What the first copy reads is the same at the second.
            let stays = |r: &RegOp<Reg>| !block.insts[first + 1..k].iter().any(|i| writes(&i.inst, r.reg));
            match &other {
                Operand::Reg(r) if !stays(r) => None,
                _ => Some((first, made)),
            }
        });
        match united {
            Some((first, (op, mods, sources))) => {
                since[usize::from(to.index ^ 1)] = None;
                gone.push(first);
                let to = Operand::reg(Reg::r(to.index & !1));
                let operands: Vec<Operand> = std::iter::once(to).chain(sources).collect();
                block.insts[k].inst = inst(op, mods, &operands);
            }
            None => since[usize::from(to.index)] = Some((k, source)),
        }
    }
    gone.sort_unstable();
    for k in gone.into_iter().rev() {
        block.insts.remove(k);
    }
}
