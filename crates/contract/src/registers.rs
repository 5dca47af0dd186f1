//! Which registers an instruction reads and writes.

use sass::{AddrWidth, ConstBank, Guard, Inst, Mod, Operand, Reg, Role, SlotKind};

/// A register that is read, and where: a slot by its letter, with `d` for the descriptor of an address and `u` for its
/// uniform part, or for the uniform register of a constant; `@` is the guard.
pub(crate) type Read = (Reg, String);

fn span(reg: Reg, width: u8) -> impl Iterator<Item = Reg> {
    let width = if reg.is_zero() { 0 } else { width };
    (0..width).map(move |n| Reg { file: reg.file, index: reg.index.saturating_add(n) })
}

/// The registers of operands and guard that it reads; nothing of calls, which read what they like.
pub(crate) fn reads(inst: &Inst) -> Vec<Read> {
    let mut found: Vec<Read> = vec![];
    if inst.op.info().leaves_function() {
        return found;
    }
    let mut add = |reg: Reg, width: u8, at: String| found.extend(span(reg, width).map(|r| (r, at.clone())));
    if inst.guard != Guard::TRUE {
        add(inst.guard.pred, 1, "@".to_string());
    }
    for (i, (operand, slot)) in inst.operands.iter().zip(inst.op.slots()).enumerate() {
        let letter = char::from(b'a' + i as u8);
        match operand {
            Operand::Reg(r) if slot.role == Role::Use => {
                let width = if slot.kind == SlotKind::Addr { 1 } else { inst.op.width(i, &inst.mods) };
                add(r.reg, width, letter.to_string());
            }
            Operand::Const { bank, index, .. } => {
                if let ConstBank::Bindless(r) = bank {
                    add(*r, 2, format!("{letter}u"));
                }
                if let Some(r) = index {
                    add(*r, 1, format!("{letter}u"));
                }
            }
            Operand::Addr { desc, base, width, uniform, .. } => {
                if let Some(r) = desc {
                    add(*r, 2, format!("{letter}d"));
                }
                let given = inst.op.width(i, &inst.mods);
                if let Some(r) = base {
                    let wide = *width == AddrWidth::R64 || *width == AddrWidth::R32 && inst.mods.has(Mod::E);
                    add(*r, if given != 0 { given } else { 1 + u8::from(wide) }, letter.to_string());
                }
                if let Some(r) = uniform {
                    let near = given == 0 && inst.has_near_address(i);
                    add(*r, if near { 1 } else { given.max(2) }, format!("{letter}u"));
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether it writes a register, as an operand or by a mask.
pub(crate) fn writes(inst: &Inst, reg: Reg) -> bool {
    use sass::RegFile::{P, UP};
    let info = inst.op.info();
    let masked = info.writes_predicates && reg.file == P || info.writes_uniform_predicates && reg.file == UP;
    masked
        || inst.operands.iter().zip(inst.op.slots()).enumerate().any(|(i, (operand, slot))| match operand {
            Operand::Reg(r) if slot.role == Role::Def => {
                r.reg.file == reg.file && span(r.reg, inst.op.width(i, &inst.mods)).any(|r| r == reg)
            }
            _ => false,
        })
}
