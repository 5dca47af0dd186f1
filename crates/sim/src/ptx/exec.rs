//! Instructions that concern one thread only.

use super::Fault;
use super::decode::{
    CONST_WINDOW, Code, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, STACK_PARAMS, WINDOW, unwritten, window,
};
use super::int::{self, mask};
use super::thread::{Env, Res, Thread};
use super::{convert, float};
use crate::fp::{self, BF16, F16, F32, F64, Format, Round};
use crate::memory::little_endian;
use crate::output::Driver;
use ::ptx::ast::{Addr, AddrBase, Operand, Space, VectorElem};
use ::ptx::{Mod, Op, Type};
use smallvec::SmallVec;

/// Bytes of local memory that a thread may have.
const MOST_LOCAL: u64 = 1 << 20;

/// Runs an instruction that neither branches nor involves other threads.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    if env.late && super::late::instead(env, t, code)? {
        return Ok(());
    }
    let p = env.program;
    let (inst, ty) = (code.inst, code.ty);
    let ops = &inst.operands[..];
    let read = |t: &Thread, env: &Env<'_, '_>, i: usize| t.read(env, &ops[i], code.types[i]);
    match inst.op {
        op if super::image::is_image(op) => super::image::execute(env, t, code),
        Op::mov | Op::ld | Op::ldu | Op::st | Op::atom if ty == Type::b128 => {
            super::wide::execute(env, t, code)
        }
        // Element by element, not one number in parts.
        Op::mov if let (Operand::Vector(to), Operand::Vector(from)) = (&ops[0], &ops[1]) => {
            let values: SmallVec<[u64; 4]> = from.iter().map(|e| t.elem_of(p, *e, ty)).collect();
            for (e, x) in to.iter().zip(values) {
                if let VectorElem::Reg(r) = e {
                    t.set_reg(p, *r, 0, x, ty);
                }
            }
            Ok(())
        }
        Op::mov => {
            scalar_size(ty)?;
            let bits = t.read(env, &ops[1], ty)?;
            t.write(p, &ops[0], bits, ty)
        }
        Op::st if inst.has(Mod::bulk) => super::asynchronous::fill(env, t, code),
        Op::st | Op::red if inst.has(Mod::_async) => super::asynchronous::execute(env, t, code),
        Op::mbarrier => super::asynchronous::execute(env, t, code),
        Op::cp if inst.mods.iter().any(|m| matches!(m.name(), "bulk" | "mbarrier")) => {
            super::asynchronous::execute(env, t, code)
        }
        // The rank is in the upper byte of the low word.
        Op::mapa => {
            let rank = read(t, env, 2)? & 0xff;
            let a = shared_address(env, t, &ops[1], ty)?;
            t.write(p, &ops[0], a & !0xff00_0000 | rank << 24, ty)
        }
        Op::getctarank => {
            let a = shared_address(env, t, &ops[1], ty)?;
            t.write(p, &ops[0], a >> 24 & 0xff, Type::u32)
        }
        Op::setmaxnreg => Ok(()),
        Op::createpolicy => t.write(p, &ops[0], 0, Type::b64),
        // A multicast object of one device.
        Op::multimem if inst.has(Mod::ld_reduce) => load(env, t, code),
        Op::multimem if inst.has(Mod::st) => store(env, t, code),
        Op::multimem => atomic(env, t, code),
        Op::tensormap => super::tensormap::execute(env, t, code),
        Op::tcgen05 => super::tcgen05::execute(env, t, code),
        Op::clusterlaunchcontrol => super::asynchronous::execute(env, t, code),
        // What the driver's handles look like is known from the code that ptxas 13.0.88 makes of this.
        Op::istypep => {
            let bit = match inst.mods.first() {
                Some(Mod::texref) => 61,
                Some(Mod::samplerref) => 62,
                _ => 63,
            };
            let handle = read(t, env, 1)?;
            t.write(p, &ops[0], handle >> bit & 1, Type::pred)
        }
        Op::ld | Op::ldu => load(env, t, code),
        Op::st => store(env, t, code),
        Op::atom | Op::red => atomic(env, t, code),
        Op::prefetch | Op::prefetchu | Op::membar | Op::fence | Op::nanosleep | Op::pmevent => Ok(()),
        Op::griddepcontrol | Op::discard | Op::applypriority => Ok(()),
        Op::alloca => {
            let bytes = read(t, env, 1)?;
            let align = if ops.len() > 2 { read(t, env, 2)? } else { 8 };
            let at = (t.local.len() as u64).next_multiple_of(align.max(1));
            let end = at.checked_add(bytes).filter(|end| *end <= MOST_LOCAL).ok_or("too much stack")?;
            let more = end as usize - t.local.len();
            t.local.extend(unwritten(env.program.fill, more, t.index));
            t.write(p, &ops[0], at, ty)
        }
        Op::stacksave => t.write(p, &ops[0], t.local.len() as u64, ty),
        Op::stackrestore => {
            let end = read(t, env, 0)?;
            if end > t.local.len() as u64 {
                return Err("stackrestore of what is not on the stack".into());
            }
            t.local.truncate(end as usize);
            Ok(())
        }
        Op::cp => copy(env, t, code),
        Op::cvta => {
            let window = window(space(code).ok_or("cvta without a space")?);
            let a = read(t, env, 1)?;
            let to = inst.has(Mod::to);
            t.write(p, &ops[0], if to { a.wrapping_sub(window) } else { a.wrapping_add(window) }, ty)
        }
        Op::isspacep => {
            let a = read(t, env, 1)?;
            let inside = match space(code).ok_or("isspacep without a space")? {
                Space::Global => locate(a).0 == Space::Global,
                // The block's own shared memory, unless it asks for the cluster's.
                Space::Shared if !code.inst.has(Mod::shared_cluster) => {
                    locate(a).0 == Space::Shared && a >> 24 & 0xff == u64::from(t.rank)
                }
                s => locate(a).0 == s,
            };
            t.write(p, &ops[0], inside.into(), Type::pred)
        }
        Op::setp => {
            let (a, b) = (read(t, env, 1)?, read(t, env, 2)?);
            let c = match ops.get(3) {
                Some(_) => Some(read(t, env, 3)? != 0),
                None => None,
            };
            if let Some(half) = half_type(ty) {
                let one = |s: u32| compare(code, half, a >> s & 0xffff, b >> s & 0xffff, c, false);
                let (first, second) = (one(0)?, one(16)?);
                t.write(p, &ops[0], first.into(), Type::pred)?;
                t.write_second(p, &ops[0], second);
                return Ok(());
            }
            let (first, second) = (compare(code, ty, a, b, c, false)?, compare(code, ty, a, b, c, true)?);
            t.write(p, &ops[0], first.into(), Type::pred)?;
            t.write_second(p, &ops[0], second);
            Ok(())
        }
        Op::set => {
            let (a, b) = (read(t, env, 1)?, read(t, env, 2)?);
            let c = match ops.get(3) {
                Some(_) => Some(read(t, env, 3)? != 0),
                None => None,
            };
            let truth = |ty: Type| match float::format(ty) {
                Some(f) => fp::from_int(1, f, Round::Nearest),
                None => mask(ty),
            };
            let bits = match half_type(code.ty2) {
                Some(half) => {
                    let yes = half_type(ty).map_or(0xffff, truth);
                    let one = |s: u32| {
                        compare(code, half, a >> s & 0xffff, b >> s & 0xffff, c, false)
                            .map(|r| if r { yes << s } else { 0 })
                    };
                    one(0)? | one(16)?
                }
                None if compare(code, code.ty2, a, b, c, false)? => truth(ty),
                None => 0,
            };
            t.write(p, &ops[0], bits, ty)
        }
        Op::selp => {
            let c = read(t, env, 3)? != 0;
            let bits = read(t, env, if c { 1 } else { 2 })?;
            t.write(p, &ops[0], bits, ty)
        }
        Op::slct => {
            let c = read(t, env, 3)?;
            let first = match code.ty2 {
                Type::f32 => float::compare(Mod::ge, Type::f32, c, 0, code.ftz).unwrap_or(false),
                _ => int::value(c, Type::s32) >= 0,
            };
            let bits = read(t, env, if first { 1 } else { 2 })?;
            t.write(p, &ops[0], bits, ty)
        }
        Op::testp => {
            let a = read(t, env, 1)?;
            let what = inst.mods.first().copied().unwrap_or(Mod::finite);
            let r = float::test(what, ty, a).ok_or("unsupported instruction")?;
            t.write(p, &ops[0], r.into(), Type::pred)
        }
        op if op.name().starts_with('v') && op != Op::vote => super::video::execute(env, t, code),
        Op::lop3 if ops.len() == 6 => {
            let x = [read(t, env, 1)?, read(t, env, 2)?, read(t, env, 3)?, read(t, env, 4)?];
            let q = read(t, env, 5)? != 0;
            let r = int::lop3(x[0], x[1], x[2], x[3]);
            t.write(p, &ops[0], r, Type::b32)?;
            t.write_second(p, &ops[0], if inst.has(Mod::and) { r != 0 && q } else { r != 0 || q });
            Ok(())
        }
        _ => {
            if inst.has(Mod::oob) {
                return Err("unsupported instruction: the special NaN of .oob".into());
            }
            // In `add.f32.f16` and its like all sources but the last are halves.
            let half = inst.ty(1).filter(|t| ty == Type::f32 && matches!(t, Type::f16 | Type::bf16));
            let half = half.filter(|_| matches!(inst.op, Op::add | Op::sub | Op::fma));
            let mut x: SmallVec<[u64; 4]> = SmallVec::new();
            for (i, (o, own)) in ops.iter().zip(&code.types).enumerate().skip(1) {
                // The sum of a wide multiplication has the wide type.
                let ty = if i == 3 && inst.has(Mod::wide) { int::wide(ty) } else { *own };
                x.push(match half.filter(|_| i + 1 < ops.len()) {
                    Some(h) => {
                        let format = if h == Type::f16 { fp::F16 } else { fp::BF16 };
                        fp::convert(t.read(env, o, h)?, format, fp::F32, fp::Round::Nearest)
                    }
                    None => t.read(env, o, ty)?,
                });
            }
            let unsupported = || "unsupported instruction".to_string();
            let (bits, ty) = match inst.op {
                Op::cvt => {
                    let ty = if inst.has(Mod::pack) { Type::b32 } else { ty };
                    (convert::eval(code, &x).ok_or_else(unsupported)?, ty)
                }
                _ if ty.is_float() => (float::eval(code, &x).ok_or_else(unsupported)?, ty),
                _ => int::eval(code, &x, &mut t.carry).ok_or_else(unsupported)?,
            };
            t.write(p, &ops[0], bits, ty)
        }
    }
}

fn half_type(ty: Type) -> Option<Type> {
    match ty {
        Type::f16x2 => Some(Type::f16),
        Type::bf16x2 => Some(Type::bf16),
        _ => None,
    }
}

/// A comparison combined with the third operand, or that of the second predicate.
fn compare(code: &Code<'_>, ty: Type, a: u64, b: u64, c: Option<bool>, second: bool) -> Res<bool> {
    let mods = &code.inst.mods;
    let cmp = mods.first().copied().ok_or("comparison without an operator")?;
    let r = float::compare(cmp, ty, a, b, code.ftz).ok_or("unsupported comparison")? != second;
    Ok(match (c, mods.get(1)) {
        (Some(c), Some(Mod::and)) => r && c,
        (Some(c), Some(Mod::or)) => r || c,
        (Some(c), Some(Mod::xor)) => r != c,
        _ => r,
    })
}

/// The state space among the modifiers; `None` for generic addresses.
fn space(code: &Code<'_>) -> Option<Space> {
    code.inst.mods.iter().find_map(|m| {
        Some(match m {
            Mod::global => Space::Global,
            Mod::shared | Mod::shared_cta | Mod::shared_cluster => Space::Shared,
            Mod::local => Space::Local,
            Mod::_const => Space::Const,
            Mod::param | Mod::param_entry | Mod::param_func => Space::Param,
            _ => return None,
        })
    })
}

/// Space of a generic address, and the address in it.
pub(super) fn locate(a: u64) -> (Space, u64) {
    match a / WINDOW * WINDOW {
        SHARED_WINDOW => (Space::Shared, a % WINDOW),
        LOCAL_WINDOW => (Space::Local, a % WINDOW),
        CONST_WINDOW => (Space::Const, a % WINDOW),
        PARAM_WINDOW => (Space::Param, a % WINDOW),
        _ => (Space::Global, a),
    }
}

/// The shared address that a source is, or names.
fn shared_address(env: &Env<'_, '_>, t: &Thread, o: &Operand, ty: Type) -> Res<u64> {
    match o {
        Operand::Var(v, offset) => Ok(t.var(env.program, *v)?.wrapping_add(*offset as u64)),
        o => t.read(env, o, ty),
    }
}

/// The address that an operand names, whatever its space.
pub(super) fn address(env: &Env<'_, '_>, t: &Thread, o: &Operand) -> Res<u64> {
    let Operand::Addr(Addr { base, offset }) = o else { return Err("unsupported address".into()) };
    let at = match base {
        AddrBase::Reg(r) => t.reg(env.program, *r),
        AddrBase::Var(v) => t.var(env.program, *v)?,
        AddrBase::Absolute => 0,
    };
    Ok(at.wrapping_add(*offset as u64))
}

/// Space and address of a memory operand.
pub(super) fn resolve(env: &Env<'_, '_>, t: &Thread, code: &Code<'_>, o: &Operand) -> Res<(Space, u64)> {
    let p = env.program;
    let Operand::Addr(Addr { base, offset }) = o else { return Err("unsupported address".into()) };
    let at = match base {
        AddrBase::Reg(r) => t.reg(p, *r),
        AddrBase::Var(v) => t.var(p, *v)?,
        AddrBase::Absolute => 0,
    };
    let at = at.wrapping_add(*offset as u64);
    Ok(match (space(code), p.space_of(*base)) {
        (Some(s), _) | (None, Some(s)) => (s, at),
        (None, None) => locate(at),
    })
}

/// The bytes at an address.
pub(super) fn bytes<'a>(
    env: &'a mut Env<'_, '_>,
    t: &'a mut Thread,
    (space, at): (Space, u64),
    size: usize,
    write: bool,
) -> Res<&'a mut [u8]> {
    let fail =
        || Fault::from(format!("access to {size} bytes at {at:#x} of {space:?} memory, which is not there"));
    if !at.is_multiple_of(size as u64) {
        return Err(format!("misaligned access to {size} bytes at {at:#x} of {space:?} memory").into());
    }
    let start = (at & 0xffff_ffff) as usize;
    match space {
        Space::Global => env.memory.slice_mut(at, size),
        Space::Shared => {
            let (rank, start) = (start >> 24, start & 0xff_ffff);
            let (first, last) = (start as u64, (start + size) as u64);
            if env.program.holes.iter().any(|h| h.start < last && first < h.end) {
                return Err(fail());
            }
            env.shared.get_mut(rank).and_then(|s| s.get_mut(start..start + size))
        }
        // An address of a parameter is one of the stack.
        Space::Local => {
            let start = start & (STACK_PARAMS as usize - 1);
            t.local.get_mut(start..start + size)
        }
        Space::Param if start >= STACK_PARAMS as usize => {
            let start = start - STACK_PARAMS as usize;
            t.local.get_mut(start..start + size)
        }
        _ if write => return Err(format!("store to {space:?} memory").into()),
        _ => return Err(fail()),
    }
    .ok_or_else(fail)
}

/// The number of `size` bytes at an address.
pub(super) fn read(env: &mut Env<'_, '_>, t: &mut Thread, at: (Space, u64), size: usize) -> Res<u64> {
    let constant = match at.0 {
        Space::Const => &env.program.consts[..],
        Space::Param if at.1 < STACK_PARAMS => env.params,
        _ => return bytes(env, t, at, size, false).map(|b| little_endian(b)),
    };
    if !at.1.is_multiple_of(size as u64) {
        return Err(format!("misaligned access to {size} bytes at {:#x} of {:?} memory", at.1, at.0).into());
    }
    let start = (at.1 & 0xffff_ffff) as usize;
    constant.get(start..start + size).map(little_endian).ok_or_else(|| {
        format!("access to {size} bytes at {:#x} of {:?} memory, which is not there", at.1, at.0).into()
    })
}

fn scalar_size(ty: Type) -> Res<usize> {
    match ty.bytes() as usize {
        n @ ..=8 => Ok(n),
        _ => Err("128-bit registers are not supported".into()),
    }
}

fn load(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (p, ty, size) = (env.program, code.ty, scalar_size(code.ty)?);
    let (space, at) = resolve(env, t, code, &code.inst.operands[1])?;
    match &code.inst.operands[0] {
        Operand::Vector(elems) => {
            if !at.is_multiple_of((size * elems.len()) as u64) {
                return Err(format!("misaligned vector access at {at:#x} of {space:?} memory").into());
            }
            for (i, e) in elems.iter().enumerate() {
                let bits = read(env, t, (space, at + (i * size) as u64), size)?;
                if let VectorElem::Reg(r) = e {
                    t.set_reg(p, *r, 0, bits, ty);
                }
            }
            Ok(())
        }
        d => {
            let bits = read(env, t, (space, at), size)?;
            t.write(p, d, bits, ty)
        }
    }
}

pub(super) fn store(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (ty, size) = (code.ty, scalar_size(code.ty)?);
    let (space, at) = resolve(env, t, code, &code.inst.operands[0])?;
    let mut values: SmallVec<[u64; 4]> = SmallVec::new();
    match &code.inst.operands[1] {
        Operand::Vector(elems) => values.extend(elems.iter().map(|e| t.elem_of(env.program, *e, ty))),
        o => values.push(t.read(env, o, ty)?),
    }
    if !at.is_multiple_of((size * values.len()) as u64) {
        return Err(format!("misaligned access at {at:#x} of {space:?} memory").into());
    }
    for (i, v) in values.iter().enumerate() {
        let to = bytes(env, t, (space, at + (i * size) as u64), size, true)?;
        to.copy_from_slice(&v.to_le_bytes()[..size]);
    }
    Ok(())
}

/// `cp.async`, done at once: groups and waits have nothing left to do.
fn copy(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, p) = (code.inst, env.program);
    if inst.has(Mod::commit_group) || inst.has(Mod::wait_group) || inst.has(Mod::wait_all) {
        return Ok(());
    }
    let Operand::Int(size) = inst.operands.get(2).ok_or("copy without a size")? else {
        return Err("unsupported copy".into());
    };
    if inst.has(Mod::mbarrier) || !matches!(size, 4 | 8 | 16) {
        return Err("unsupported copy".into());
    }
    let size = *size as usize;
    let (to, from) = (address(env, t, &inst.operands[0])?, address(env, t, &inst.operands[1])?);
    let rest = inst.operands.len() - usize::from(inst.has(Mod::L2_cache_hint));
    let valid = match &inst.operands[3..rest] {
        [] => size,
        [o] => {
            let predicate = match o {
                Operand::NotPred(_) => true,
                Operand::Reg(r) => p.reg_type(t.func, *r) == Type::pred,
                _ => false,
            };
            match (predicate, t.read(env, o, if predicate { Type::pred } else { Type::u32 })?) {
                (true, 0) => size,
                (true, _) => 0,
                (false, n) => (n as usize).min(size),
            }
        }
        _ => return Err("unsupported copy".into()),
    };
    let mut data = [0u8; 16];
    if valid != 0 {
        let source = bytes(env, t, (Space::Global, from), size, false)?;
        data[..valid].copy_from_slice(&source[..valid]);
    }
    bytes(env, t, (Space::Shared, to), size, true)?.copy_from_slice(&data[..size]);
    Ok(())
}

pub(super) fn atomic(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, ty, size) = (code.inst, code.ty, scalar_size(code.ty)?);
    let with_result = inst.op == Op::atom;
    let ops = &inst.operands[usize::from(with_result)..];
    let place = resolve(env, t, code, &ops[0])?;
    if let Operand::Vector(elems) = &ops[1] {
        // One after the other.
        let mut olds: SmallVec<[u64; 8]> = SmallVec::new();
        for (i, e) in elems.iter().enumerate() {
            let at = (place.0, place.1 + (i * size) as u64);
            let (old, b) = (read(env, t, at, size)?, t.elem_of(env.program, *e, ty) & mask(ty));
            let new = update(code, ty, true, [old, b, 0])?;
            bytes(env, t, at, size, true)?.copy_from_slice(&new.to_le_bytes()[..size]);
            olds.push(old);
        }
        if let (true, Operand::Vector(to)) = (with_result, &inst.operands[0]) {
            for (e, old) in to.iter().zip(olds) {
                if let VectorElem::Reg(r) = e {
                    t.set_reg(env.program, *r, 0, old, ty);
                }
            }
        }
        return Ok(());
    }
    let b = t.read(env, &ops[1], ty)?;
    let c = match ops.get(2) {
        Some(o) => t.read(env, o, ty)?,
        None => 0,
    };
    let old = read(env, t, place, size)?;
    // On global memory, subnormal numbers are flushed; on shared memory they are not.
    let new = update(code, ty, place.0 == Space::Global, [old, b, c])?;
    bytes(env, t, place, size, true)?.copy_from_slice(&new.to_le_bytes()[..size]);
    if with_result {
        t.write(env.program, &inst.operands[0], old, ty)?;
    }
    Ok(())
}

/// What an atomic operation makes of the old value and its operands.
pub(super) fn update(code: &Code<'_>, ty: Type, ftz: bool, [old, b, c]: [u64; 3]) -> Res<u64> {
    let inst = code.inst;
    let (x, y) = (int::value(old, ty), int::value(b, ty));
    let what = inst.one_of(&[
        Mod::and,
        Mod::or,
        Mod::xor,
        Mod::exch,
        Mod::cas,
        Mod::add,
        Mod::inc,
        Mod::dec,
        Mod::min,
        Mod::max,
    ]);
    Ok(match what.ok_or("unsupported instruction")? {
        Mod::and => old & b,
        Mod::or => old | b,
        Mod::xor => old ^ b,
        Mod::exch => b,
        Mod::cas => {
            if old == b {
                c
            } else {
                old
            }
        }
        Mod::add => match ty {
            Type::f32 => fp::Single { ftz, ..Default::default() }.add(old as u32, b as u32).into(),
            Type::f64 => fp::add(old, b, F64, Round::Nearest),
            Type::f16 => fp::add(old, b, F16, Round::Nearest),
            Type::bf16 => fp::add(old, b, BF16, Round::Nearest),
            Type::f16x2 => packed_add(old, b, F16),
            Type::bf16x2 => packed_add(old, b, BF16),
            _ => (x + y) as u64,
        },
        Mod::inc => {
            if x >= y {
                0
            } else {
                (x + 1) as u64
            }
        }
        Mod::dec => {
            if x == 0 || x > y {
                b
            } else {
                (x - 1) as u64
            }
        }
        what if ty.is_float() => {
            let f = float::format(ty).ok_or("unsupported instruction")?;
            let one = |s: u32| {
                let part = |x: u64| x >> s & (u64::MAX >> (64 - f.bits()));
                crate::sass::extremum(f, part(old), part(b), what == Mod::min, false) << s
            };
            if ty.bits() > f.bits() { one(0) | one(16) } else { one(0) }
        }
        Mod::min => x.min(y) as u64,
        _ => x.max(y) as u64,
    })
}

fn packed_add(a: u64, b: u64, f: Format) -> u64 {
    let one = |s: u32| fp::add(a >> s & 0xffff, b >> s & 0xffff, f, Round::Nearest) << s;
    debug_assert_ne!(f, F32);
    one(0) | one(16)
}

/// A text in memory.
fn text(env: &mut Env<'_, '_>, t: &mut Thread, at: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Ok(b) = read(env, t, locate(at + out.len() as u64), 1) {
        match b {
            0 => return Some(out),
            c if out.len() < 1 << 16 => out.push(c as u8),
            _ => return None,
        }
    }
    None
}

/// What a function of the driver does and returns.
pub(super) fn driver(env: &mut Env<'_, '_>, t: &mut Thread, f: Driver, [a, b]: [u64; 2]) -> Res<u64> {
    match f {
        Driver::Printf => {
            let what = text(env, t, a).ok_or_else(|| format!("no format at {a:#x}"))?;
            let mut at = b;
            let state = std::cell::RefCell::new((&mut *env, &mut *t));
            let printed = crate::output::format(
                &what,
                &mut |size| {
                    at = at.next_multiple_of(size as u64);
                    let (env, t) = &mut *state.borrow_mut();
                    let x = read(env, t, locate(at), size).ok()?;
                    at += size as u64;
                    Some(x)
                },
                &mut |at| {
                    let (env, t) = &mut *state.borrow_mut();
                    text(env, t, at)
                },
            );
            let printed = printed.ok_or("arguments of vprintf that are not there")?;
            let ([x, y, z], [nx, ny, _]) = (env.ctaid.map(u64::from), env.launch.grid.map(u64::from));
            env.output.print((z * ny + y) * nx + x, t.index, &printed);
            Ok(0)
        }
        Driver::Malloc => Ok(env.memory.malloc(a).unwrap_or(0)),
        Driver::Free => {
            // Whether it is right to is for the checks to say, which the simulator has.
            let _ = env.memory.free(a, false);
            Ok(0)
        }
        Driver::Assert => {
            let what = text(env, t, a).unwrap_or_default();
            Err(format!("assertion `{}` failed", String::from_utf8_lossy(&what)).into())
        }
        // Programs reach them through the device runtime's library, which is no PTX.
        Driver::Gradient(..) => Err("textures by the driver's functions are not supported".into()),
        Driver::GridHandle | Driver::GridSync => Err("barriers of the driver's are not supported".into()),
    }
}
