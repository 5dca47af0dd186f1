//! What may stand in the slots of instructions and terminators.

use crate::abi;
use crate::builder::has_variable_width;
use crate::function::{Block, Function, InstData, Macro, Name, Op, Operand, Terminator, ValueData};
use crate::print::inst_text;
use sass::{AddrWidth, ConstBank, Opcode, Reg, RegFile, Role, SlotKind};

/// Checks an instruction.
pub fn inst(func: &Function, d: &InstData, errors: &mut Vec<String>) {
    let before = errors.len();
    match d.op {
        Op::Sass(op) => slots(func, op, d, errors),
        Op::Macro(m) => operands_of_macro(func, m, d, errors),
    }
    parts(func, d, errors);
    guard(func, d, errors);
    registers(d, errors);
    if errors.len() > before {
        let text = inst_text(func, d);
        errors[before..].iter_mut().for_each(|e| *e = format!("{e}: {text}"));
    }
}

/// Checks what a terminator reads itself.
pub fn terminator(func: &Function, b: Block, errors: &mut Vec<String>) {
    let term = &func.blocks[b].term;
    let Some(name) = term.used_name() else { return };
    let have = func.shape(name);
    let fits = match term {
        Terminator::Branch { .. } => matches!(have.file, RegFile::P | RegFile::UP),
        Terminator::Switch { .. } => have == ValueData { file: RegFile::R, width: 1 },
        Terminator::Return(_) => have.file == RegFile::R && (have.width == 2 || is_physical(name)),
        _ => true,
    };
    if !fits {
        errors.push(format!("{b}: `{term}` reads {} registers of file {:?}", have.width, have.file));
    }
}

fn is_physical(n: Name) -> bool {
    matches!(n, Name::Phys(_))
}

/// A register that reads as nothing, and of which there are as many as one likes.
fn is_zero(n: Name) -> bool {
    matches!(n, Name::Phys(r) if r.is_zero())
}

/// Each operand in a slot of its kind, file and width.
fn slots(func: &Function, op: Opcode, d: &InstData, errors: &mut Vec<String>) {
    if d.operands.len() != op.slots().len() {
        return errors.push("wrong operand count".into());
    }
    for (i, (o, slot)) in d.operands.iter().zip(op.slots()).enumerate() {
        let kind = matches!(
            (slot.kind, o),
            (SlotKind::Reg(_), Operand::Reg(_))
                | (SlotKind::Source, Operand::Reg(_) | Operand::Imm(_) | Operand::Const { .. })
                | (SlotKind::Addr, Operand::Addr { .. })
                | (SlotKind::Imm, Operand::Imm(_))
                | (SlotKind::Const, Operand::Const { .. })
                | (SlotKind::Label, Operand::Label(_))
                | (SlotKind::Special, Operand::Special(_))
                | (
                    SlotKind::Scoreboard,
                    Operand::Scoreboard(_) | Operand::ScoreboardSet(_) | Operand::Imm(_)
                )
        );
        if !kind {
            errors.push(format!("operand {i} is of the wrong kind"));
        }
        if let Operand::Reg(r) = o {
            let have = func.shape(r.reg);
            let width = op.width(i, &d.mods);
            if !is_zero(r.reg) && have.width != width {
                errors.push(format!("operand {i} spans {width} registers, not {}", have.width));
            }
            let fits = match slot.kind {
                SlotKind::Reg(f) => have.file == f,
                SlotKind::Source => matches!(have.file, RegFile::R | RegFile::UR),
                _ => false,
            };
            if !fits {
                errors.push(format!("operand {i} is in the wrong register file"));
            }
            if slot.role != Role::Use && matches!(r.reg, Name::Part(..)) {
                errors.push("part of a value is written".into());
            }
        }
        address(func, o, has_variable_width(op, i), errors);
    }
}

/// The registers of an address or of a constant's index.
fn address(func: &Function, o: &Operand, tuple: bool, errors: &mut Vec<String>) {
    let mut want = |what: &str, n: Option<Name>, file: &[RegFile], width: Option<u8>| {
        let Some(n) = n.filter(|n| !is_zero(*n)) else { return };
        let have = func.shape(n);
        let wide = is_physical(n) || width.is_none_or(|w| w == have.width);
        if !file.contains(&have.file) || !wide {
            errors.push(format!(
                "the {what} of an address is {} registers of file {:?}",
                have.width, have.file
            ));
        }
    };
    match o {
        Operand::Addr { desc, base, width, .. } => {
            want("descriptor", *desc, &[RegFile::UR], Some(2));
            let words = match width {
                AddrWidth::R64 => 2,
                _ => 1,
            };
            // Images have coordinates for addresses, bulk copies and tensors tuples.
            let general = !tuple && matches!(base, Some(b) if func.shape(*b).file == RegFile::R);
            want("base", *base, &[RegFile::R, RegFile::UR], general.then_some(words));
        }
        Operand::Const { bank, index, .. } => {
            want("index", *index, &[RegFile::R, RegFile::UR], Some(1));
            if let ConstBank::Bindless(r) = bank {
                want("bank", Some(*r), &[RegFile::UR], Some(2));
            }
        }
        _ => {}
    }
}

/// Parts are of values that have so many registers.
fn parts(func: &Function, d: &InstData, errors: &mut Vec<String>) {
    let mut check = |n: Name| {
        if let Name::Part(v, k) = n
            && k >= func.values[v].width
        {
            errors.push(format!("{v} has no part {k}"));
        }
    };
    d.for_each_use(&mut check);
    d.for_each_def(&mut check);
}

/// The guard is a predicate, and what is kept where it does not hold fits what is written.
fn guard(func: &Function, d: &InstData, errors: &mut Vec<String>) {
    let pred = func.shape(d.guard.pred);
    if !matches!(pred.file, RegFile::P | RegFile::UP) {
        errors.push("the guard is no predicate".into());
    }
    let mut written = Vec::new();
    d.for_each_def(|n| written.push(n));
    let want = if d.is_unguarded() { 0 } else { written.len() };
    if d.kept.len() != want {
        return errors.push("guarded definition without the value it keeps".into());
    }
    for (kept, written) in d.kept.iter().zip(written) {
        if !is_zero(*kept) && !is_zero(written) && func.shape(*kept) != func.shape(written) {
            errors.push("what is kept is of another shape than what is written".into());
        }
    }
}

/// What macros are made of ([`Macro`]).
fn operands_of_macro(func: &Function, m: Macro, d: &InstData, errors: &mut Vec<String>) {
    let Some((to, from)) = d.macro_operands() else { return errors.push("too few operands".into()) };
    let shape = |o: &Operand| match o {
        Operand::Reg(r) => Some(func.shape(r.reg)),
        _ => None,
    };
    let one = |o: &Operand| match o {
        Operand::Reg(r) if is_zero(r.reg) => true,
        Operand::Imm(_) | Operand::Const { index: None, .. } => true,
        o => shape(o).is_some_and(|s| s.width == 1),
    };
    let result = to.and_then(shape);
    if to.is_some() && result.is_none() {
        return errors.push("what is written is no register".into());
    }
    if d.mods != sass::Mods::none() {
        errors.push("a macro with modifiers".into());
    }
    let fits = match (m, from) {
        (Macro::Copy, [o]) => {
            one(o) && result.is_some_and(|r| r.width == 1)
                || shape(o).map(|s| s.width) == result.map(|r| r.width)
        }
        (Macro::Settle, [o]) => shape(o) == result,
        (Macro::Collect, parts) => {
            let words =
                parts.iter().map(|o| if one(o) { 1 } else { shape(o).map_or(0, |s| u32::from(s.width)) });
            result.is_some_and(|r| u32::from(r.width) == words.sum::<u32>())
        }
        (Macro::Undef | Macro::FrameTop, []) => true,
        (Macro::Symbol, [Operand::Imm(n)]) => (*n as usize) < func.symbols.len(),
        (Macro::FromReg, [Operand::Reg(r)]) => is_physical(r.reg),
        (Macro::ToReg, [_]) => matches!(to, Some(Operand::Reg(r)) if is_physical(r.reg)),
        (Macro::ReturnAddress, []) => true,
        (Macro::Call, [Operand::Imm(n), ..]) => (*n as usize) < func.callees.len(),
        (Macro::SetStack, [o]) => one(o),
        (Macro::Keep, _) => true,
        (Macro::Holds, [Operand::Imm(_), Operand::Imm(_), Operand::Reg(_)]) => true,
        // The allocator's own.
        (Macro::ParCopy(n), from) => from.len() == usize::from(n),
        _ => false,
    };
    if !fits {
        errors.push(format!("the operands of {} do not fit", m.name()));
    }
}

/// Before registers are given out code names those of calls, the stack pointer and those that are nothing.
fn registers(d: &InstData, errors: &mut Vec<String>) {
    use Macro::{Call, FromReg, Keep, ReturnAddress, ToReg};
    let of_calls = matches!(d.op, Op::Macro(FromReg | ToReg | ReturnAddress | Call | Keep));
    let allowed = |r: Reg| r.is_zero() || r == Reg::SP || r == abi::FRAME_POINTER || of_calls;
    let mut check = |n: Name| {
        if matches!(n, Name::Phys(r) if !allowed(r)) {
            errors.push("a physical register before allocation".into());
        }
    };
    d.for_each_use(&mut check);
    d.for_each_def(&mut check);
}
