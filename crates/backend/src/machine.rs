//! Machine code before its addresses are known: blocks of [`sass::Inst`] whose labels are block indices.
//! [`lower`] makes it from allocated Ori: the prologue, terminators as branches, blocks in layout order.

mod call;

use crate::Error;
use crate::order::Meant;
use ori::abi::Convention;
use ori::cfg::Cfg;
use ori::{Allocated, Block, InstData, Macro, Op, Terminator};
use sass::ops::Bssy;
use sass::{AddrWidth, Guard, Inst, Mod, Mods, Opcode, Operand, Reg, RegFile, RegOp, Target};
use smallvec::SmallVec;

/// A machine function.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// What it is compiled for.
    pub target: Target,
    /// Blocks in the order of their addresses; the first is the entry.
    pub blocks: Vec<MachineBlock>,
    /// Bytes of its stack frame, kept registers and what aligning it may skip included.
    pub frame_bytes: u32,
    /// Where its frame holds the stack pointer that it was entered with, if it aligned its own.
    pub saved_stack: Option<u32>,
    /// What it keeps if it is called, and where it finds its return address.
    pub convention: Convention,
    /// The conventions of functions that it calls, that of all functions among them.
    pub called: Vec<Convention>,
    /// General registers up to the highest that it saves for its caller.
    pub saved_registers: u32,
    /// What was chosen for it alone.
    pub tuning: ori::Tuning,
}

impl Machine {
    /// These blocks without a frame, in a function that is called as all are.
    pub fn new(target: Target, blocks: Vec<MachineBlock>) -> Machine {
        Machine {
            target,
            blocks,
            frame_bytes: 0,
            saved_stack: None,
            saved_registers: 0,
            convention: Convention::default(),
            called: vec![Convention::default()],
            tuning: ori::Tuning::default(),
        }
    }
}

/// A block: control enters at its first instruction only; branches stand at its end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MachineBlock {
    /// Instructions.
    pub insts: Vec<MachineInst>,
    /// Blocks that may come next, the one that follows in address order included.
    pub succs: SmallVec<[u32; 2]>,
    /// What registers of the PTX have in front of the first instruction.
    pub holds: Vec<Holds>,
}

/// A register of the PTX that has a value from somewhere on ([`ori::Macro::Holds`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holds {
    /// Its number in the function.
    pub register: u32,
    /// How many words it has.
    pub words: u8,
    /// Where the first is, if that is known; the others follow.
    pub place: Option<Reg>,
}

/// An instruction and its source line.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineInst {
    /// The instruction; a label is the index of a block.
    pub inst: Inst,
    /// PTX line, 0 if none.
    pub line: u32,
    /// What is filled in when functions get their places.
    pub link: Link,
    /// What PTX says of its access and its modifiers don't.
    pub meant: Meant,
    /// What registers of the PTX have behind it.
    pub holds: Vec<Holds>,
}

impl MachineInst {
    /// An instruction that is complete.
    pub fn new(inst: Inst, line: u32) -> MachineInst {
        MachineInst { inst, line, link: Link::None, meant: Meant::default(), holds: Vec::new() }
    }
}

/// What an instruction needs to know of the places of functions in the code of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Link {
    /// Nothing.
    #[default]
    None,
    /// Its label is where the kernel begins.
    Base,
    /// Its label is the function of this number in [`ori::Function::callees`].
    Callee(u32),
    /// Its immediate is the offset, from the start of the kernel, of the instruction after the next call.
    ReturnOffset,
    /// Its label is the instruction after the next call.
    ReturnLabel,
    /// Its immediates are the lower and the upper half of the address of the instruction after the next call.
    ReturnLow,
    /// See [`Link::ReturnLow`].
    ReturnHigh,
    /// Its label is what function pointers of relocatable objects count from.
    FunctionBase,
    /// Its immediate is the part of an address of this number in [`ori::Function::symbols`].
    Symbol(u32),
    /// Its immediate is the distance from the LEPC before it to the instruction after the next call.
    ReturnDistance,
    /// Its immediate is the size of the frame; gone once that is known.
    FrameSize,
}

/// An instruction with default control field and no guard.
pub fn inst(op: Opcode, mods: &[Mod], operands: &[Operand]) -> Inst {
    debug_assert_eq!(operands.len(), op.slots().len(), "{op}: operand count");
    Inst {
        guard: Guard::TRUE,
        op,
        mods: Mods::of(mods),
        operands: SmallVec::from(operands),
        ctrl: sass::Control::default(),
    }
}

const PT: Operand = Operand::reg(Reg::PT);
const RZ: Operand = Operand::reg(Reg::RZ);

fn not(reg: Reg) -> Operand {
    Operand::Reg(RegOp { not: true, ..RegOp::plain(reg) })
}

/// `BRA` to a block.
pub fn branch(guard: Guard, block: u32) -> Inst {
    let operands = [Operand::reg(Reg::URZ), PT, Operand::Label(i64::from(block))];
    Inst { guard, ..inst(Opcode::BRA, &[], &operands) }
}

/// `BRA` to a block where a uniform predicate says so.
fn uniform_branch(condition: Guard, block: u32) -> Inst {
    let p = Operand::Reg(RegOp { not: condition.not, ..RegOp::plain(condition.pred) });
    inst(Opcode::BRA, &[Mod::U], &[Operand::reg(Reg::URZ), p, Operand::Label(i64::from(block))])
}

/// `EXIT`.
pub fn exit(guard: Guard) -> Inst {
    Inst { guard, ..inst(Opcode::EXIT, &[], &[PT]) }
}

/// A copy between registers of one file, or from an immediate or constant to R.
pub fn copy(target: Target, dst: Reg, src: Operand) -> Result<Inst, Error> {
    let all = Operand::Imm(0xf);
    match (dst.file, &src) {
        (RegFile::R, Operand::Const { .. }) if !target.info().alu_const => {
            Ok(inst(Opcode::LDC, &[], &[Operand::reg(dst), src]))
        }
        (RegFile::R, _) => Ok(inst(Opcode::MOV, &[], &[Operand::reg(dst), src, all])),
        (RegFile::P, Operand::Reg(p)) if p.reg.file == RegFile::P => Ok(inst(
            Opcode::PLOP3,
            &[Mod::LUT],
            &[Operand::reg(dst), PT, src, PT, PT, Operand::Imm(0x80), Operand::Imm(0)],
        )),
        (RegFile::UR, Operand::Reg(r)) if r.reg.file == RegFile::R => {
            Ok(inst(Opcode::R2UR, &[], &[Operand::reg(dst), src]))
        }
        (RegFile::UR, _) => Ok(inst(Opcode::UMOV, &[], &[Operand::reg(dst), src])),
        _ => Err(Error::new(format!("internal error: no copy to {dst}"))),
    }
}

/// What the frame of an allocated function must be aligned to: for its variables, and for spills of four registers.
fn frame_align(func: &Allocated, blocks: &[MachineBlock]) -> u32 {
    let wide = |i: &MachineInst| {
        let base = |o: &Operand| matches!(o, Operand::Addr { base: Some(r), .. } if *r == Reg::SP);
        let local = matches!(i.inst.op, Opcode::LDL | Opcode::STL);
        local && i.inst.mods.has(Mod::_128) && i.inst.operands.iter().any(base)
    };
    let spills = blocks.iter().flat_map(|b| &b.insts).any(wide);
    func.local_align.max(if spills { 16 } else { 1 })
}

/// `R1 = R1 & -align`.
fn align_stack(align: u32) -> Inst {
    let sp = || Operand::reg(Reg::SP);
    let operands = [PT, sp(), sp(), Operand::Imm(align.wrapping_neg()), RZ, Operand::Imm(0xc0), not(Reg::PT)];
    inst(Opcode::LOP3, &[Mod::LUT], &operands)
}

/// The first instructions of a kernel: the stack pointer.
fn prologue(target: Target, frame_bytes: u32, align: u32) -> Vec<Inst> {
    let stack = Operand::constant(0, i32::from(target.info().stack_ptr));
    let sp = Operand::reg(Reg::SP);
    let mut out = Vec::new();
    if target.info().alu_const {
        out.push(inst(Opcode::MOV, &[], &[sp, stack, Operand::Imm(0xf)]));
    } else {
        out.push(inst(Opcode::LDC, &[], &[sp, stack]));
    }
    if frame_bytes != 0 {
        out.push(add_immediate(sp, sp, frame_bytes.wrapping_neg()));
    }
    if align > ori::abi::STACK_ALIGN {
        out.push(align_stack(align));
    }
    out
}

/// Sets a frame up by `setup`, and traps if the stack pointer is then not above the end of the stack. R0 and P0 are free where
/// a function begins.
fn check_stack(blocks: &mut Vec<MachineBlock>, mut setup: Vec<Inst>) {
    let (r, p) = (Operand::reg(Reg::r(0)), Reg::p(0));
    let compare = [Operand::reg(p), PT, Operand::reg(Reg::SP), r, PT, PT];
    setup.push(inst(Opcode::S2R, &[], &[r, Operand::Special(sass::SpecialReg::SR_LMEMHIOFF)]));
    setup.push(inst(Opcode::ISETP, &[Mod::GE, Mod::U32, Mod::AND], &compare));
    let trap = inst(Opcode::BPT, &[Mod::TRAP], &[Operand::Imm(1)]);
    put_in_front(blocks, setup, Guard { pred: p, not: false }, vec![trap]);
}

/// What ptxas's kernels for sm_87 begin with: where [`ori::abi::BARRIERS_READY`] is 0, it sets up the convergence barriers, and
/// says so.
fn set_up_barriers(blocks: &mut Vec<MachineBlock>) {
    let ready = Operand::reg(ori::abi::BARRIERS_READY);
    let p = Reg { file: RegFile::P, index: 0 };
    let asked =
        inst(Opcode::ISETP, &[Mod::NE, Mod::U32, Mod::AND], &[Operand::reg(p), PT, RZ, ready, PT, PT]);
    let b = |index| Operand::reg(Reg { file: RegFile::B, index });
    let mut out = vec![inst(Opcode::BMOV_B, &[Mod::_32], &[b(0), Operand::Imm(u32::MAX)])];
    out.extend((1..16).map(|n| inst(Opcode::BMOV_B, &[Mod::_32, Mod::CLEAR], &[b(n), b(n - 1)])));
    out.push(inst(Opcode::BMOV_B, &[Mod::_32], &[b(15), Operand::Imm(0)]));
    out.push(inst(Opcode::UMOV, &[], &[ready, Operand::Imm(1)]));
    put_in_front(blocks, vec![asked], Guard { pred: p, not: false }, out);
}

/// Puts instructions at the start of a function.
fn put_first(blocks: &mut [MachineBlock], insts: Vec<Inst>) {
    blocks[0].insts.splice(0..0, insts.into_iter().map(|inst| MachineInst::new(inst, 0)));
}

/// Puts two blocks in front of a function: what `always` runs, and what runs unless `skip`.
fn put_in_front(blocks: &mut Vec<MachineBlock>, mut always: Vec<Inst>, skip: Guard, unless: Vec<Inst>) {
    for block in blocks.iter_mut() {
        block.succs.iter_mut().for_each(|s| *s += 2);
        for MachineInst { inst, link, .. } in &mut block.insts {
            inst.operands.iter_mut().filter(|_| names_block(inst.op, *link)).for_each(|o| {
                if let Operand::Label(b) = o {
                    *b += 2;
                }
            });
        }
    }
    let block = |insts: Vec<Inst>, succs: &[u32]| MachineBlock {
        insts: insts.into_iter().map(|inst| MachineInst::new(inst, 0)).collect(),
        succs: SmallVec::from_slice(succs),
        holds: Vec::new(),
    };
    always.push(branch(skip, 2));
    blocks.splice(0..0, [block(always, &[2, 1]), block(unless, &[2])]);
}

/// Whether the labels of an instruction are blocks of its own function.
fn names_block(op: Opcode, link: Link) -> bool {
    link == Link::None && !matches!(op, Opcode::CALL | Opcode::LEPC)
}

/// `dst = src + n`.
fn add_immediate(dst: Operand, src: Operand, n: u32) -> Inst {
    inst(Opcode::IADD3, &[], &[dst, PT, PT, src, Operand::Imm(n), RZ, not(Reg::PT), not(Reg::PT)])
}

/// Turns allocated Ori into machine code; `frame_bytes` is what the frame holds, without kept registers.
///
/// # Errors
/// On what should be gone after allocation (tuples, switches).
pub fn lower(func: &Allocated, mut frame_bytes: u32) -> Result<Machine, Error> {
    let target = func.target;
    let layout = Layout::new(func);
    let mut blocks = Vec::with_capacity(layout.order.len() + 1);
    if layout.entry_has_preds {
        blocks.push(MachineBlock::default());
    }
    for (k, &b) in layout.order.iter().enumerate() {
        let data = &func.blocks[b];
        let mut out = MachineBlock::default();
        out.insts.reserve(data.insts.len() + 2);
        for (k, &i) in data.insts.iter().enumerate() {
            let d = &func.insts[i];
            if d.op == Op::Sass(Opcode::BSYNC) && layout.sync[b] != layout.start[b] {
                // BSSY finds its BSYNC by the block, and names what is behind it.
                blocks.push(std::mem::take(&mut out));
            }
            if target.sm == 75 && d.op == Op::Sass(Opcode::BSSY) {
                let clear = clear_barrier(d)?;
                out.insts.push(MachineInst::new(clear, d.loc.0));
            }
            if let Op::Macro(m @ (Macro::Call | Macro::ReturnAddress)) = d.op {
                let insts = if m == Macro::Call {
                    call::call(func, d)?
                } else {
                    call::return_address(func, &data.insts[k..])
                };
                out.insts.extend(
                    insts
                        .into_iter()
                        .map(|(inst, link)| MachineInst { link, ..MachineInst::new(inst, d.loc.0) }),
                );
            } else if d.op == Op::Macro(Macro::Holds) {
                let behind = out.insts.last_mut().map(|i| &mut i.holds);
                behind.unwrap_or(&mut out.holds).extend(held(d));
            } else if let Some(mut inst) = lower_inst(target, d, &layout)? {
                let meant = d.opcode().map(|op| Meant::by(op, &inst.mods)).unwrap_or_default();
                if meant.ordered {
                    inst.mods.remove(Mod::STRONG);
                }
                if meant.collective {
                    inst.mods.remove(Mod::COLLECTIVE);
                }
                // Where the pass that reads it was left out.
                inst.mods.remove(Mod::CONTRACT);
                let link = match (d.op, d.macro_operands()) {
                    (Op::Macro(Macro::Symbol), Some((_, [ori::Operand::Imm(n)]))) => Link::Symbol(*n),
                    (Op::Macro(Macro::FrameTop), _) => Link::FrameSize,
                    _ => Link::None,
                };
                out.insts.push(MachineInst { link, meant, ..MachineInst::new(inst, d.loc.0) });
            }
        }
        let next = layout.order.get(k + 1).copied();
        let line = data.term_loc.0;
        let push = |out: &mut MachineBlock, inst| out.insts.push(MachineInst::new(inst, line));
        let index = |b: Block| layout.start[b];
        let leave = |out: &mut MachineBlock, guard: Guard, line: u32| {
            let push = |out: &mut MachineBlock, inst| out.insts.push(MachineInst::new(inst, line));
            if func.extra.places {
                // As ptxas's code for debuggers has it, never under a guard.
                push(out, Inst { guard, ..inst(Opcode::MEMBAR, &[Mod::SC, Mod::VC], &[]) });
            }
            if func.extra.errors_at_exit {
                push(out, Inst { guard, ..inst(Opcode::ERRBAR, &[], &[]) });
                if target.sm >= 90 {
                    push(out, Inst { guard, ..inst(Opcode::CGAERRBAR, &[], &[]) });
                }
            }
            push(out, exit(guard));
        };
        match &data.term {
            Terminator::Jump(t) => {
                let t = layout.resolve(t.block);
                if layout.is_exit[t] && next != Some(t) {
                    // At its own line, as it is not under a guard that another line made.
                    let own = func.blocks[t].term_loc.0;
                    leave(&mut out, Guard::TRUE, if own == 0 { line } else { own });
                } else if next != Some(t) {
                    push(&mut out, branch(Guard::TRUE, index(t)));
                }
            }
            Terminator::Branch { cond, not, taken, fall } => {
                let (taken, fall) = (layout.resolve(taken.block), layout.resolve(fall.block));
                let swap = if next == Some(taken) {
                    taken != fall
                } else {
                    // Where neither follows, an exit comes first, but for a loop's: most rounds go back.
                    let back = |t: Block| layout.start[t] <= layout.start[layout.order[k]];
                    let exit = |t: Block| layout.is_exit[t];
                    next != Some(fall) && if exit(fall) { !back(taken) } else { exit(taken) && back(fall) }
                };
                let (t, f, not) = if swap { (fall, taken, !*not) } else { (taken, fall, *not) };
                let guard = Guard { pred: *cond, not };
                let goto = |out: &mut MachineBlock, t: Block, guard: Guard| {
                    if guard.pred.file == RegFile::UP {
                        push(out, uniform_branch(guard, index(t)));
                    } else if layout.is_exit[t] {
                        leave(out, guard, line);
                    } else {
                        push(out, branch(guard, index(t)));
                    }
                };
                if t != f {
                    goto(&mut out, t, guard);
                }
                if next != Some(f) {
                    goto(&mut out, f, Guard::TRUE);
                }
            }
            Terminator::Exit | Terminator::Unreachable => leave(&mut out, Guard::TRUE, line),
            Terminator::Switch { .. } => {
                return Err(Error::at(line, "internal error: switch after legalization"));
            }
            Terminator::Return(address) => {
                let inst = call::ret(func, *address);
                out.insts.push(MachineInst { link: Link::Base, ..MachineInst::new(inst, line) });
            }
        }
        blocks.push(out);
    }
    let align = frame_align(func, &blocks);
    let (mut setup, mut check) = (Vec::new(), false);
    if func.entry {
        // Callees of an executable count on what kernels start with.
        let unit = if func.relocatable { ori::abi::LINKED_STACK_ALIGN } else { ori::abi::STACK_ALIGN };
        frame_bytes = frame_bytes.next_multiple_of(unit.max(align));
        setup = prologue(target, frame_bytes, align);
        check = func.extra.stack_bounds && (frame_bytes != 0 || func.moves_stack());
        frame_bytes += align.saturating_sub(ori::abi::STACK_ALIGN);
    }
    let blocks = split_at_branches(blocks);
    let mut machine = Machine {
        frame_bytes,
        convention: func.convention,
        tuning: func.tuning.clone(),
        ..Machine::new(target, blocks)
    };
    machine.called.extend(func.callees.iter().map(|c| func.convention_of(c)));
    if func.moves_stack() {
        call::use_frame_pointer(&mut machine);
        if func.entry {
            put_first(&mut machine.blocks, vec![call::frame_pointer()]);
        }
    }
    if check {
        check_stack(&mut machine.blocks, setup);
    } else {
        put_first(&mut machine.blocks, setup);
    }
    if func.entry && ori::abi::has_barriers_ready(target.sm) {
        set_up_barriers(&mut machine.blocks);
    }
    if !func.entry {
        let check = func.extra.stack_bounds;
        let frame = call::Frame { bytes: frame_bytes, align, given: ori::abi::stack_align(func), check };
        call::keep_registers(&mut machine, func, frame);
    }
    Ok(machine)
}

/// Ends a block at every branch, and finds the successors.
fn split_at_branches(blocks: Vec<MachineBlock>) -> Vec<MachineBlock> {
    let mut start = Vec::with_capacity(blocks.len());
    let mut out: Vec<MachineBlock> = Vec::with_capacity(blocks.len());
    for block in blocks {
        start.push(out.len() as u32);
        out.push(MachineBlock { holds: block.holds, ..MachineBlock::default() });
        let mut ended = false;
        for i in block.insts {
            if std::mem::replace(&mut ended, matches!(i.inst.op, Opcode::BRA | Opcode::CALL)) {
                out.push(MachineBlock::default());
            }
            if let Some(last) = out.last_mut() {
                last.insts.push(i);
            }
        }
    }
    for (k, block) in (0..).zip(&mut out) {
        let mut falls = true;
        for MachineInst { inst, link, .. } in &mut block.insts {
            let ends = matches!(inst.op, Opcode::BRA | Opcode::EXIT | Opcode::RET);
            let asks =
                |o: &Operand| matches!(o, Operand::Reg(r) if r.reg.file == RegFile::UP && !r.reg.is_zero());
            falls = !ends || inst.guard != Guard::TRUE || inst.operands.iter().any(asks);
            for o in &mut inst.operands {
                if let (Operand::Label(b), true) = (o, names_block(inst.op, *link)) {
                    *b = i64::from(start[*b as usize]);
                    if ends {
                        block.succs.push(*b as u32);
                    }
                }
            }
        }
        if falls && !block.succs.contains(&(k + 1)) {
            block.succs.push(k + 1);
        }
    }
    out
}

/// Which blocks are emitted, and in which order.
struct Layout {
    order: Vec<Block>,
    /// Index of the machine block that starts each block.
    start: cranelift_entity::SecondaryMap<Block, u32>,
    /// Index of the machine block that starts with the block's BSYNC.
    sync: cranelift_entity::SecondaryMap<Block, u32>,
    forward: cranelift_entity::SecondaryMap<Block, Option<Block>>,
    is_exit: cranelift_entity::SecondaryMap<Block, bool>,
    entry_has_preds: bool,
}

impl Layout {
    fn new(func: &Allocated) -> Layout {
        let cfg = Cfg::new(func);
        let entry = func.entry_block();
        let mut forward = cranelift_entity::SecondaryMap::with_default(None);
        let mut is_exit = cranelift_entity::SecondaryMap::with_default(false);
        // BSSY names the block of its BSYNC, which therefore is never empty.
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            if data.insts.is_empty() {
                is_exit[b] =
                    matches!(data.term, Terminator::Exit | Terminator::Unreachable) && !func.extra.places;
                if let Terminator::Jump(t) = &data.term {
                    forward[b] = Some(t.block);
                }
            }
        }
        // A cycle of empty blocks is an endless loop: one of them must stay.
        for &b in &cfg.rpo {
            let mut steps = 0;
            let mut at = b;
            while let Some(n) = forward[at] {
                at = n;
                steps += 1;
                if n == b || steps > func.blocks.len() {
                    forward[b] = None;
                    break;
                }
            }
        }
        let mut layout = Layout {
            order: Vec::new(),
            start: cranelift_entity::SecondaryMap::with_default(u32::MAX),
            sync: cranelift_entity::SecondaryMap::with_default(u32::MAX),
            forward,
            is_exit,
            entry_has_preds: false,
        };
        // Reachable after forwarding.
        let mut seen = cranelift_entity::SecondaryMap::<Block, bool>::with_default(false);
        let mut stack = vec![entry];
        seen[entry] = true;
        let mut named = cranelift_entity::SecondaryMap::<Block, bool>::with_default(false);
        named[entry] = true;
        while let Some(b) = stack.pop() {
            let mut labels = SmallVec::<[Block; 4]>::new();
            for &i in &func.blocks[b].insts {
                for o in &func.insts[i].operands {
                    if let ori::Operand::Label(t) = o {
                        labels.push(*t);
                    }
                }
            }
            labels.iter().for_each(|t| named[layout.resolve(*t)] = true);
            let mut visit = |t: Block| {
                let t = layout.resolve(t);
                if t == entry {
                    layout.entry_has_preds = true;
                }
                if !std::mem::replace(&mut seen[t], true) {
                    stack.push(t);
                }
            };
            labels.into_iter().for_each(&mut visit);
            func.blocks[b].term.targets().iter().for_each(|t| visit(t.block));
        }
        // Where a way leads to nothing but the end, it ends at once.
        let emitted = |b: &Block| seen[*b] && (named[*b] || !layout.is_exit[*b]);
        layout.order = func.layout.iter().copied().filter(emitted).collect();
        let mut next = u32::from(layout.entry_has_preds);
        for &b in &layout.order {
            let insts = &func.blocks[b].insts;
            let sync = insts.iter().position(|i| func.insts[*i].op == Op::Sass(Opcode::BSYNC));
            let splits = func.entry && b == entry && !layout.entry_has_preds;
            layout.start[b] = next;
            next += u32::from(sync.is_some_and(|k| k > 0 || splits));
            layout.sync[b] = next;
            next += 1;
        }
        layout
    }

    fn resolve(&self, mut b: Block) -> Block {
        while let Some(n) = self.forward[b] {
            b = n;
        }
        b
    }
}

/// What [`Macro::Holds`] says; of a register that is set under a guard, nothing.
fn held(d: &InstData<Reg>) -> Option<Holds> {
    let [ori::Operand::Imm(register), ori::Operand::Imm(words), ori::Operand::Reg(src)] = d.operands[..]
    else {
        return None;
    };
    let place = (!src.reg.is_zero() && d.is_unguarded()).then_some(src.reg);
    Some(Holds { register, words: words as u8, place })
}

fn lower_inst(target: Target, d: &InstData<Reg>, layout: &Layout) -> Result<Option<Inst>, Error> {
    let internal = |what: &str| Error::at(d.loc.0, format!("internal error: {what} after allocation"));
    let guard = d.guard;
    let lower = |o: Option<&ori::Operand<Reg>>| match o {
        Some(o) => Ok(lower_operand(target, o, layout)),
        None => Err(internal("macro without an operand")),
    };
    let (to, from) = d.macro_operands().map_or((None, None), |(to, from)| (to, from.first()));
    match d.op {
        Op::Sass(op) => {
            let mut operands: SmallVec<[Operand; 6]> =
                d.operands.iter().map(|o| lower_operand(target, o, layout)).collect();
            if let Some([a, b, c]) = sass::compute::signed_terms(op)
                && signs(&operands, [a, b]) == 2
            {
                operands.swap(a, c);
            }
            Ok(Some(Inst { guard, op, mods: d.mods.clone(), operands, ctrl: sass::Control::default() }))
        }
        Op::Macro(Macro::Undef) => Ok(None),
        Op::Macro(Macro::FrameTop) => {
            // The size of the frame comes later.
            let dst = lower(to)?;
            Ok(Some(Inst { guard, ..add_immediate(dst, Operand::reg(Reg::SP), 0) }))
        }
        Op::Macro(Macro::Symbol) => {
            let dst = lower(to)?;
            Ok(Some(Inst { guard, ..inst(Opcode::MOV, &[], &[dst, Operand::Imm(0), Operand::Imm(0xf)]) }))
        }
        Op::Macro(Macro::Keep | Macro::Holds) => Ok(None),
        Op::Macro(Macro::SetStack) => Ok(Some(Inst { guard, ..copy(target, Reg::SP, lower(from)?)? })),
        Op::Macro(Macro::Copy | Macro::FromReg | Macro::ToReg) => {
            let src = lower(from)?;
            let Operand::Reg(RegOp { reg: dst, .. }) = lower(to)? else {
                return Err(internal("copy to no register"));
            };
            if matches!(&src, Operand::Reg(r) if r.reg == dst && !r.neg && !r.not && !r.abs) {
                return Ok(None);
            }
            Ok(Some(Inst { guard, ..copy(target, dst, src)? }))
        }
        Op::Macro(m) => Err(internal(m.name())),
    }
}

/// How many of these operands have a sign.
pub fn signs(operands: &[Operand], places: [usize; 2]) -> usize {
    places.into_iter().filter(|i| operands.get(*i).is_some_and(crate::legalize::is_signed)).count()
}

/// `BMOV.32.CLEAR RZ, B`, which precedes every BSSY of sm_75.
fn clear_barrier(bssy: &InstData<Reg>) -> Result<Inst, Error> {
    match Bssy::of(bssy).map(|s| s.barrier) {
        Some(ori::Operand::Reg(r)) => {
            let barrier = Operand::reg(r.reg);
            Ok(inst(Opcode::BMOV, &[Mod::_32, Mod::CLEAR], &[RZ, barrier]))
        }
        _ => Err(Error::at(bssy.loc.0, "internal error: BSSY without a barrier")),
    }
}

fn lower_operand(target: Target, o: &ori::Operand<Reg>, layout: &Layout) -> Operand {
    let mut out = o.map(|r| r, |block| i64::from(layout.sync[layout.resolve(block)]));
    // sm_75 spells a 64-bit register without uniform part as it does a 32-bit one; `.E` tells.
    if let (75, Operand::Addr { width: width @ AddrWidth::R64, uniform: None, .. }) = (target.sm, &mut out) {
        *width = AddrWidth::R32;
    }
    out
}

impl std::fmt::Display for Machine {
    /// One instruction a line, its control field before it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (k, block) in self.blocks.iter().enumerate() {
            writeln!(f, "L{k}:")?;
            for i in &block.insts {
                writeln!(f, "    {} {}", i.inst.ctrl, text(&i.inst))?;
            }
        }
        Ok(())
    }
}

/// An instruction with all its operands; labels are block indices.
fn text(i: &Inst) -> String {
    let mut s = String::new();
    if i.guard != Guard::TRUE {
        s += &format!("@{}{} ", if i.guard.not { "!" } else { "" }, i.guard.pred);
    }
    s += i.op.name();
    i.mods.iter().for_each(|m| s += &format!(".{}", m.name()));
    for (k, o) in i.operands.iter().enumerate() {
        s += if k == 0 { " " } else { ", " };
        match o {
            Operand::Label(b) => s += &format!("L{b}"),
            _ => {
                let _ = ori::print::operand(&mut s, o);
            }
        }
    }
    s
}
