//! Instructions on 128-bit registers, which take two slots.

use super::decode::Code;
use super::exec::{bytes, resolve};
use super::thread::{Env, Res, Thread};
use ::ptx::ast::{Operand, Space, VectorElem};
use ::ptx::{Mod, Op, Type};

/// Executes such an instruction.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let ops = &code.inst.operands;
    match code.inst.op {
        Op::mov => {
            let x = get(env, t, &ops[1])?;
            put(env, t, &ops[0], x)
        }
        Op::ld | Op::ldu => {
            let at = resolve(env, t, code, &ops[1])?;
            let x = match at.0 {
                // What nothing writes is read by halves.
                Space::Const | Space::Param if at.1.is_multiple_of(16) => {
                    let low = super::exec::read(env, t, at, 8)?;
                    let high = super::exec::read(env, t, (at.0, at.1 + 8), 8)?;
                    u128::from(low) | u128::from(high) << 64
                }
                _ => read(bytes(env, t, at, 16, false)?),
            };
            put(env, t, &ops[0], x)
        }
        Op::st => {
            let at = resolve(env, t, code, &ops[0])?;
            let x = get(env, t, &ops[1])?;
            bytes(env, t, at, 16, true)?.copy_from_slice(&x.to_le_bytes());
            Ok(())
        }
        Op::atom => {
            let at = resolve(env, t, code, &ops[1])?;
            let x = get(env, t, &ops[2])?;
            let cas = code.inst.has(Mod::cas);
            let new = if cas { get(env, t, &ops[3])? } else { x };
            let place = bytes(env, t, at, 16, true)?;
            let old = read(place);
            if !cas || old == x {
                place.copy_from_slice(&new.to_le_bytes());
            }
            put(env, t, &ops[0], old)
        }
        _ => Err("unsupported instruction on 128 bits".into()),
    }
}

fn read(b: &[u8]) -> u128 {
    b.iter().rev().fold(0, |x, b| x << 8 | u128::from(*b))
}

/// The 128 bits of an operand.
pub(super) fn get(env: &Env<'_, '_>, t: &Thread, o: &Operand) -> Res<u128> {
    let p = env.program;
    match o {
        Operand::Reg(r) if p.reg_type(t.func, *r) == Type::b128 => {
            let slot = t.registers + p.slot(t.func, *r);
            Ok(u128::from(t.regs[slot]) | u128::from(t.regs[slot + 1]) << 64)
        }
        Operand::Vector(v) if v.len() == 2 => {
            Ok(u128::from(t.elem(p, v[0])) | u128::from(t.elem(p, v[1])) << 64)
        }
        Operand::Vector(v) if v.len() == 4 => {
            let word = |e: &VectorElem| u128::from(t.elem(p, *e) & 0xffff_ffff);
            Ok(v.iter().rev().fold(0, |x, e| x << 32 | word(e)))
        }
        Operand::Int(n) => Ok((*n).into()),
        _ => Err("unsupported operand of 128 bits".into()),
    }
}

fn put(env: &Env<'_, '_>, t: &mut Thread, o: &Operand, x: u128) -> Res<()> {
    let p = env.program;
    match o {
        Operand::Reg(r) if p.reg_type(t.func, *r) == Type::b128 => {
            let slot = t.registers + p.slot(t.func, *r);
            (t.regs[slot], t.regs[slot + 1]) = (x as u64, (x >> 64) as u64);
        }
        Operand::Vector(v) if matches!(v.len(), 2 | 4) => {
            let width = 128 / v.len() as u32;
            let ty = if width == 64 { Type::b64 } else { Type::b32 };
            for (i, e) in v.iter().enumerate() {
                let VectorElem::Reg(r) = e else { continue };
                t.set_reg(p, *r, 0, (x >> (i as u32 * width)) as u64, ty);
            }
        }
        Operand::Sink => {}
        _ => return Err("unsupported operand of 128 bits".into()),
    }
    Ok(())
}
