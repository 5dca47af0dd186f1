//! The last step: addresses, tail padding, the line table and instruction words.

use crate::machine::{Link, Machine, branch, inst, signs};
use crate::{Code, Error};
use sass::{AddrWidth, Control, Guard, Inst, Opcode, Operand, RegFile, Target};

/// Bytes of an instruction.
pub const INST_BYTES: u32 = 16;

fn is_call(op: Opcode) -> bool {
    op.info().leaves_function() || op == Opcode::LEPC
}

/// The offset of the instruction behind the BSYNC in a block: what BSSY names. ptxas never names BSYNC itself, nor does Mesa.
fn behind_sync(machine: &Machine, offsets: &[i64], block: i64) -> i64 {
    let insts = &machine.blocks[block as usize].insts;
    let sync = insts.iter().position(|i| i.inst.op == Opcode::BSYNC).unwrap_or(0);
    offsets[block as usize] + (sync as i64 + 1) * i64::from(INST_BYTES)
}

/// Instructions in address order, branch targets as byte offsets, and the line table.
pub fn resolve(machine: &Machine) -> (Vec<Inst>, Vec<(u32, u32)>) {
    let mut offsets = Vec::with_capacity(machine.blocks.len());
    let mut count = 0;
    for block in &machine.blocks {
        offsets.push(i64::from(count) * i64::from(INST_BYTES));
        count += block.insts.len() as u32;
    }
    let mut insts = Vec::with_capacity(count as usize + 16);
    let mut lines: Vec<(u32, u32)> = Vec::new();
    for i in machine.blocks.iter().flat_map(|b| &b.insts) {
        if i.line != 0 && lines.last().is_none_or(|l| l.1 != i.line) {
            lines.push((insts.len() as u32 * INST_BYTES, i.line));
        }
        let mut inst = i.inst.clone();
        let pairs = matches!(inst.op, sass::Opcode::STAS | sass::Opcode::REDAS);
        for o in &mut inst.operands {
            match o {
                Operand::Label(b) if inst.op == Opcode::BSSY => *b = behind_sync(machine, &offsets, *b),
                Operand::Label(b) if i.link == Link::None && !is_call(inst.op) => *b = offsets[*b as usize],
                // A 64-bit base without a descriptor is spelled without a suffix: the opcode and `.E` say its
                // width; but STAS and REDAS, which take two addresses in it, have one.
                Operand::Addr { desc: None, uniform: None, width: w @ AddrWidth::R64, .. } if !pairs => {
                    *w = AddrWidth::R32;
                }
                _ => {}
            }
        }
        insts.push(inst);
    }
    (insts, lines)
}

/// Appends what follows the last instruction: a branch to itself and NOPs up to a multiple of 128 bytes,
/// from sm_80 on with at least 128 bytes of prefetch distance.
pub fn pad(target: Target, insts: &mut Vec<Inst>) {
    let idle = Control { stall: 0, no_yield: false, ..Control::default() };
    let here = insts.len() as u32 * INST_BYTES;
    let mut trap = branch(Guard::TRUE, here);
    trap.ctrl = idle;
    insts.push(trap);
    let slack = if target.sm == 75 { 0 } else { 8 };
    let end = (insts.len() + slack).next_multiple_of(8);
    insts.resize(end, Inst { ctrl: idle, ..inst(Opcode::NOP, &[], &[]) });
}

/// Makes the code of a machine function; registers and sizes are left to the caller. The words of a kernel that
/// calls functions, and of those, are made by [`crate::link`].
///
/// # Errors
/// If an instruction has no encoding on the target.
pub fn run(machine: &Machine, entry: bool) -> Result<Code, Error> {
    for i in machine.blocks.iter().flat_map(|b| &b.insts) {
        let terms = sass::compute::signed_terms(i.inst.op);
        if terms.is_some_and(|[a, b, _]| signs(&i.inst.operands, [a, b]) == 2) {
            return Err(Error::at(i.line, "internal error: the first two terms of a sum have a sign"));
        }
        if i.inst.op.is_group_product() && !(0..i.inst.operands.len()).all(|at| begins_well(&i.inst, at)) {
            return Err(Error::at(
                i.line,
                "internal error: an accumulator of a warp group begins at no multiple of eight",
            ));
        }
    }
    let (mut insts, lines) = resolve(machine);
    let exit_offsets = (0..).zip(&insts).filter(|(_, i)| i.op == Opcode::EXIT).map(|(k, _)| k * INST_BYTES);
    let exit_offsets = exit_offsets.collect();
    let all = machine.blocks.iter().flat_map(|b| &b.insts);
    let links: Vec<(u32, Link)> =
        (0..).zip(all).filter(|(_, i)| i.link != Link::None).map(|(k, i)| (k, i.link)).collect();
    let mut words = Vec::new();
    if entry && links.is_empty() {
        pad(machine.target, &mut insts);
        words = encode(machine.target, &insts, &lines)?;
    }
    let places = crate::places::entries(machine);
    let of_caller = if entry { Vec::new() } else { crate::places::of_caller(machine) };
    let regs = machine.saved_registers;
    Ok(Code { regs, words, insts, links, exit_offsets, lines, places, of_caller, ..Code::default() })
}

/// Whether an operand of a product of a warp group begins where those of its width do.
fn begins_well(inst: &Inst, at: usize) -> bool {
    let Operand::Reg(r) = inst.operands[at] else { return true };
    let by = inst.op.tuple_alignment(inst.op.width(at, &inst.mods));
    r.reg.file != RegFile::R || r.reg.is_zero() || r.reg.index.is_multiple_of(by)
}

/// The words of instructions from offset 0 on.
pub fn encode(target: Target, insts: &[Inst], lines: &[(u32, u32)]) -> Result<Vec<u128>, Error> {
    let mut words = Vec::with_capacity(insts.len());
    for (k, inst) in (0..).zip(insts) {
        let line = line_at(lines, k * INST_BYTES);
        let word = sass::encode(inst, target, i64::from(k * INST_BYTES));
        words.push(word.map_err(|e| Error::at(line, e.to_string()))?);
    }
    Ok(words)
}

/// The line that an offset belongs to.
fn line_at(lines: &[(u32, u32)], offset: u32) -> u32 {
    let after = lines.partition_point(|l| l.0 <= offset);
    if after == 0 { 0 } else { lines[after - 1].1 }
}
