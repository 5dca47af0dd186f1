//! Calls and returns: [`ori::abi`] as instructions.

use super::{Link, Machine, MachineInst, PT, RZ, add_immediate, inst, not};
use crate::Error;
use ori::{Allocated, Callee, InstData, abi};
use sass::ops::Iadd3;
use sass::{Inst, Mod, Opcode, Operand, Reg, RegFile};

/// What the call does with the next instruction's address: kernels are entered at an offset that only the
/// driver knows, so functions of the same code are named by their distance from the kernel's start, others by
/// their address.
fn callee<'f>(func: &'f Allocated, call: &InstData<Reg>) -> Option<(u32, &'f Callee)> {
    let n = call.callee()?;
    Some((n, func.callees.get_index(n as usize)?))
}

/// The call itself.
pub fn call(func: &Allocated, d: &InstData<Reg>) -> Result<Vec<(Inst, Link)>, Error> {
    let internal = || Error::at(d.loc.0, "internal error: call of nothing");
    let (n, callee) = callee(func, d).ok_or_else(internal)?;
    let target = || match d.call_arguments() {
        [ori::Operand::Reg(r), ..] => Ok(Operand::reg(r.reg)),
        _ => Err(internal()),
    };
    let label = Operand::Label(0);
    let (mode, address, link) = match callee {
        Callee::Internal(_) if func.calls_absolutely() => (Mod::ABS, RZ, Link::Callee(n)),
        Callee::Indirect(_) if func.relocatable => (Mod::ABS, target()?, Link::FunctionBase),
        // Where nothing is linked any more pointers count from nowhere.
        Callee::Indirect(_) if func.apart => (Mod::ABS, target()?, Link::None),
        Callee::Internal(_) => (Mod::REL, RZ, Link::Callee(n)),
        Callee::Indirect(_) => (Mod::REL, target()?, Link::Base),
        Callee::External => (Mod::ABS, target()?, Link::None),
    };
    Ok(vec![(inst(Opcode::CALL, &[mode, Mod::NOINC], &[address, label]), link)])
}

/// The return address for the first call among these instructions, into the registers that the callee's convention names.
pub fn return_address(func: &Allocated, next: &[ori::Inst]) -> Vec<(Inst, Link)> {
    let callee = next
        .iter()
        .map(|i| &func.insts[*i])
        .filter(|d| d.op == ori::Op::Macro(ori::Macro::Call))
        .find_map(|d| callee(func, d))
        .map(|(_, c)| c);
    let absolute = callee == Some(&Callee::External);
    let first = callee.map(|c| func.convention_of(c)).unwrap_or_default().return_address();
    let (lo, hi) = (Operand::reg(Reg::r(first)), Operand::reg(Reg::r(first + 1)));
    let all = Operand::Imm(0xf);
    if func.calls_absolutely() {
        return vec![
            (inst(Opcode::MOV, &[], &[lo, Operand::Imm(0), all]), Link::ReturnLow),
            (inst(Opcode::MOV, &[], &[hi, Operand::Imm(0), all]), Link::ReturnHigh),
        ];
    }
    if !absolute {
        return vec![
            (inst(Opcode::MOV, &[], &[lo, Operand::Imm(0), all]), Link::ReturnOffset),
            (inst(Opcode::MOV, &[], &[hi, Operand::Imm(0), all]), Link::None),
        ];
    }
    if func.target.sm >= 90 {
        return vec![(inst(Opcode::LEPC, &[], &[lo, Operand::Label(0)]), Link::ReturnLabel)];
    }
    // The call leaves no predicate as it was, and none is read between here and there.
    let p0 = Operand::reg(Reg::p(0));
    let low = [lo, p0, PT, lo, Operand::Imm(0), RZ, not(Reg::PT), not(Reg::PT)];
    let high = [hi, PT, PT, hi, RZ, RZ, p0, not(Reg::PT)];
    vec![
        (inst(Opcode::LEPC, &[], &[lo, RZ]), Link::None),
        (inst(Opcode::IADD3, &[], &low), Link::ReturnDistance),
        (inst(Opcode::IADD3, &[Mod::X], &high), Link::None),
    ]
}

/// `RET`.
pub fn ret(func: &Allocated, address: Reg) -> Inst {
    let mode = if func.calls_absolutely() { Mod::ABS } else { Mod::REL };
    inst(Opcode::RET, &[mode, Mod::NODEC], &[Operand::reg(address), Operand::Label(0)])
}

fn local(at: u32) -> Operand {
    Operand::Addr {
        desc: None,
        base: Some(Reg::SP),
        width: sass::AddrWidth::R32,
        uniform: None,
        offset: at as i32,
    }
}

/// Whether the instruction computes the stack pointer.
fn sets_stack(inst: &Inst) -> bool {
    matches!(inst.operands.first(), Some(Operand::Reg(r)) if r.reg == Reg::SP)
}

/// Reads the frame through the frame pointer wherever code names the stack pointer, which may have moved. In a kernel
/// the frame pointer is set up here, in a function by [`keep_registers`].
pub fn use_frame_pointer(machine: &mut Machine) {
    for i in machine.blocks.iter_mut().flat_map(|b| &mut b.insts).filter(|i| !sets_stack(&i.inst)) {
        for o in &mut i.inst.operands {
            match o {
                Operand::Reg(r) if r.reg == Reg::SP => r.reg = abi::FRAME_POINTER,
                Operand::Addr { base: Some(r), .. } if *r == Reg::SP => *r = abi::FRAME_POINTER,
                _ => {}
            }
        }
    }
}

/// `frame pointer = stack pointer`.
pub fn frame_pointer() -> Inst {
    let operands = [Operand::reg(abi::FRAME_POINTER), Operand::reg(Reg::SP), Operand::Imm(0xf)];
    inst(Opcode::MOV, &[], &operands)
}

/// What a function needs of the stack.
pub struct Frame {
    /// Bytes, without kept registers.
    pub bytes: u32,
    /// What its start must be a multiple of.
    pub align: u32,
    /// What the stack pointer is a multiple of where the function starts.
    pub given: u32,
    /// Whether to check that it fits the stack.
    pub check: bool,
}

/// Lets a function set up its frame and leave the registers that it must keep as they were. `moves` says whether its
/// stack pointer moves. A frame that needs more alignment than is given holds the stack pointer of the caller.
pub fn keep_registers(machine: &mut Machine, func: &Allocated, frame: Frame) {
    let moves = func.moves_stack();
    let own = func.convention;
    // What the functions that it calls change beyond its convention.
    let code = func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    let calls = code.filter(|d| d.op == ori::Op::Macro(ori::Macro::Call));
    // Registers that there are: no function that it reaches has others.
    let end = func.max_regs.saturating_sub(sass::target::HARDWARE_REGISTERS);
    let exists = |r: &Reg| r.file != RegFile::R || r.index < end;
    let clobbered = calls.flat_map(|d| abi::clobbered_by(func, d).iter());
    let mut kept: Vec<Reg> = clobbered.filter(|r| own.is_preserved(*r) && exists(r)).collect();
    if moves {
        kept.push(abi::FRAME_POINTER);
    }
    for i in machine.blocks.iter().flat_map(|b| &b.insts) {
        if i.inst.op.info().leaves_function() {
            continue;
        }
        crate::units::for_each_write(&i.inst, |u, _| {
            if let Some(r) = crate::units::register(u)
                && r != Reg::SP
                && own.is_preserved(r)
            {
                kept.push(r);
            }
        });
    }
    kept.sort_unstable_by_key(|r| (r.file as u8, r.index));
    kept.dedup();
    if func.keeps != ori::Keeps::Convention {
        kept.clear();
    }
    let aligned = frame.align > frame.given;
    let saved_stack = frame.bytes.next_multiple_of(4);
    let base = saved_stack + if aligned { 4 } else { 0 };
    let bytes = (base + 4 * kept.len() as u32).next_multiple_of(frame.align.max(frame.given));
    // R0 and R3 hold no arguments and no results.
    let (before, after) = (Operand::reg(Reg::r(0)), Operand::reg(Reg::r(3)));
    let (mut save, mut restore) = (Vec::new(), Vec::new());
    let sp = || Operand::reg(Reg::SP);
    let all = || Operand::Imm(0xf);
    if aligned {
        save.push(inst(Opcode::MOV, &[], &[after, sp(), all()]));
    }
    if bytes != 0 {
        save.push(add_immediate(sp(), sp(), bytes.wrapping_neg()));
    }
    if aligned {
        save.push(super::align_stack(frame.align));
        save.push(inst(Opcode::STL, &[], &[local(saved_stack), after]));
    }
    let setup = if frame.check && bytes != 0 { std::mem::take(&mut save) } else { Vec::new() };
    if moves {
        restore.push(inst(Opcode::MOV, &[], &[sp(), Operand::reg(abi::FRAME_POINTER), all()]));
    }
    if aligned {
        restore.push(inst(Opcode::LDL, &[], &[before, local(saved_stack)]));
    }
    for (at, reg) in (base..).step_by(4).zip(&kept) {
        let place = local(at);
        let reg_op = Operand::reg(*reg);
        if reg.file == RegFile::B {
            save.push(inst(Opcode::BMOV, &[Mod::_32, Mod::CLEAR], &[before, reg_op]));
            save.push(inst(Opcode::STL, &[], &[place, before]));
            restore.push(inst(Opcode::LDL, &[], &[after, place]));
            restore.push(inst(Opcode::BMOV_B, &[Mod::_32], &[reg_op, after]));
        } else {
            save.push(inst(Opcode::STL, &[], &[place, reg_op]));
            restore.push(inst(Opcode::LDL, &[], &[reg_op, place]));
        }
    }
    if moves {
        save.push(frame_pointer());
    }
    if aligned {
        restore.push(inst(Opcode::MOV, &[], &[sp(), before, all()]));
    } else if bytes != 0 {
        restore.push(add_immediate(sp(), sp(), bytes));
    }
    for block in &mut machine.blocks {
        for i in block.insts.iter_mut().filter(|i| i.link == Link::FrameSize) {
            i.link = Link::None;
            if aligned {
                load_stack(&mut i.inst, saved_stack);
                continue;
            }
            for o in i.inst.operands.iter_mut().filter(|o| matches!(o, Operand::Imm(_))) {
                *o = Operand::Imm(bytes);
            }
        }
        if let Some(last) = block.insts.last().filter(|i| i.inst.op == Opcode::RET) {
            let (last, line) = (last.clone(), last.line);
            block.insts.pop();
            block.insts.extend(restore.iter().map(|r| MachineInst::new(r.clone(), line)));
            block.insts.push(last);
        }
    }
    super::put_first(&mut machine.blocks, save);
    if !setup.is_empty() {
        super::check_stack(&mut machine.blocks, setup);
    }
    let general = kept.iter().filter(|r| r.file == RegFile::R);
    machine.saved_registers = general.map(|r| u32::from(r.index) + 1).max().unwrap_or(0);
    machine.frame_bytes = bytes + if aligned { frame.align - frame.given } else { 0 };
    machine.saved_stack = aligned.then_some(saved_stack);
}

/// Makes the sum of the frame's start and its size, in an aligned frame, what the frame holds: the stack pointer of the
/// caller.
fn load_stack(sum: &mut Inst, saved: u32) {
    let Some(s) = Iadd3::of(sum) else { return };
    let (dst, Operand::Reg(start)) = (*s.d, *s.a) else { return };
    let address = Operand::Addr {
        desc: None,
        base: Some(start.reg),
        width: sass::AddrWidth::R32,
        uniform: None,
        offset: saved as i32,
    };
    *sum = Inst { guard: sum.guard, ..inst(Opcode::LDL, &[], &[dst, address]) };
}
