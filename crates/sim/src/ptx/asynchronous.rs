//! Barriers in shared memory, bulk copies, and stores that tell such a barrier: copies are done at once. A
//! cluster is one block.

use super::decode::Code;
use super::exec::{address, atomic, bytes, read, resolve, store, update};
use super::thread::{Env, Res, Thread};
use crate::mbarrier::Barrier;
use crate::memory::{in_blocks, little_endian};
use ::ptx::ast::{Operand, Space};
use ::ptx::{Mod, Op, Type};

/// Executes such an instruction.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    match code.inst.op {
        Op::mbarrier => mbarrier(env, t, code),
        Op::cp => bulk(env, t, code),
        Op::clusterlaunchcontrol => cancel(env, t, code),
        Op::st => {
            let (space, at) = target(env, t, code)?;
            if space != Space::Shared {
                return store(env, t, code);
            }
            let ops = &code.inst.operands;
            let size = code.ty.bytes() as usize;
            let values: Vec<u64> = match &ops[1] {
                Operand::Vector(v) => v.iter().map(|e| t.elem(env.program, *e)).collect(),
                o => vec![t.read(env, o, code.ty)?],
            };
            for (i, v) in values.iter().enumerate() {
                let to = bytes(env, t, (Space::Shared, at + (i * size) as u64), size, true)?;
                to.copy_from_slice(&v.to_le_bytes()[..size]);
            }
            let barrier = address(env, t, &ops[2])?;
            arrive(env, t, barrier, (0, 0), -((values.len() * size) as i64)).map(|_| ())
        }
        _ => {
            let (space, at) = target(env, t, code)?;
            if space != Space::Shared {
                return atomic(env, t, code);
            }
            let ops = &code.inst.operands;
            let size = code.ty.bytes() as usize;
            let x = t.read(env, &ops[1], code.ty)?;
            let old = read(env, t, (Space::Shared, at), size)?;
            let new = update(code, code.ty, false, [old, x, 0])?;
            bytes(env, t, (Space::Shared, at), size, true)?.copy_from_slice(&new.to_le_bytes()[..size]);
            let barrier = address(env, t, &ops[2])?;
            arrive(env, t, barrier, (0, 0), -(size as i64)).map(|_| ())
        }
    }
}

/// `st.bulk`: zeros in shared memory.
pub(super) fn fill(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let ops = &code.inst.operands;
    let (space, at) = resolve(env, t, code, &ops[0])?;
    let size = t.read(env, &ops[1], Type::u64)?;
    if space != Space::Shared || !size.is_multiple_of(8) {
        return Err(format!("a bulk store of {size} bytes to {space:?} memory").into());
    }
    (0..size / 8).try_for_each(|i| bytes(env, t, (space, at + 8 * i), 8, true).map(|b| b.fill(0)))
}

/// Space and address that an asynchronous store writes.
fn target(env: &Env<'_, '_>, t: &Thread, code: &Code<'_>) -> Res<(Space, u64)> {
    let inst = code.inst;
    let to_barrier = inst.mods.iter().any(|m| m.name() == "mbarrier::complete_tx::bytes");
    let at = address(env, t, &inst.operands[0])? & 0xffff_ffff;
    Ok((if to_barrier || inst.operands.len() > 2 { Space::Shared } else { Space::Global }, at))
}

/// Arrivals at the barrier at a shared address; its state before.
pub(super) fn arrive(
    env: &mut Env<'_, '_>,
    t: &mut Thread,
    at: u64,
    (n, leaving): (u64, u64),
    tx: i64,
) -> Res<u64> {
    let place = (Space::Shared, at & 0xffff_ffff);
    let old = read(env, t, place, 8)?;
    let new = Barrier::of(old).arrive(n, leaving, tx);
    let new =
        new.ok_or_else(|| format!("{n} arrivals at a barrier that misses {}", Barrier::of(old).missing))?;
    bytes(env, t, place, 8, true)?.copy_from_slice(&new.bits().to_le_bytes());
    Ok(old)
}

/// The phase of the barrier at an address.
pub(super) fn phase(env: &mut Env<'_, '_>, t: &mut Thread, at: u64) -> Res<u64> {
    Ok(read(env, t, (Space::Shared, at), 8)? >> 63)
}

fn mbarrier(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, p) = (code.inst, env.program);
    let ops = &inst.operands;
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    if has("pending_count") {
        let state = t.read(env, &ops[1], Type::b64)?;
        return t.write(p, &ops[0], Barrier::of(state).missing, Type::u32);
    }
    let result = has("arrive") || has("arrive_drop") || has("test_wait") || has("try_wait");
    let at = address(env, t, &ops[usize::from(result)])? & 0xffff_ffff;
    let operand = ops.get(usize::from(result) + 1);
    let number = |t: &Thread, env: &Env<'_, '_>, ty| operand.map(|o| t.read(env, o, ty)).transpose();
    if has("init") {
        let n = number(t, env, Type::u32)?.unwrap_or(0);
        bytes(env, t, (Space::Shared, at), 8, true)?.copy_from_slice(&Barrier::new(n).bits().to_le_bytes());
        return Ok(());
    }
    if has("test_wait") || has("try_wait") {
        let phase = match has("parity") {
            true => number(t, env, Type::u32)?.unwrap_or(0) & 1,
            false => number(t, env, Type::b64)?.unwrap_or(0) >> 63,
        };
        super::late::perform_until(env, t, at, phase)?;
        let now = self::phase(env, t, at)?;
        return t.write(p, &ops[0], u64::from(now != phase), Type::pred);
    }
    if has("inval") {
        return Ok(());
    }
    let n = number(t, env, Type::u32)?;
    let tx = i64::from(n.unwrap_or(0) as u32 as i32);
    if !result {
        let tx = if has("complete_tx") { -tx } else { tx };
        return arrive(env, t, at, (0, 0), tx).map(|_| ());
    }
    let (count, tx) = if has("expect_tx") { (1, tx) } else { (n.unwrap_or(1), 0) };
    let leaving = if has("arrive_drop") { count } else { 0 };
    let old = arrive(env, t, at, (count, leaving), tx)?;
    t.write(p, &ops[0], old, Type::b64)
}

/// `cp.async.bulk`, `cp.reduce.async.bulk`, `cp.async.mbarrier.arrive`.
fn bulk(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    let ops = &inst.operands;
    if has("mbarrier") {
        let at = address(env, t, &ops[0])?;
        // Without `noinc`, the count that goes up for the copies goes down at the same moment.
        return if has("noinc") { arrive(env, t, at, (1, 0), 0).map(|_| ()) } else { Ok(()) };
    }
    if has("prefetch") || has("commit_group") || has("wait_group") {
        return Ok(());
    }
    if has("tensor") {
        return super::tensormap::copy(env, t, code);
    }
    let mut spaces = inst.mods.iter().filter_map(|m| match m {
        Mod::global => Some(Space::Global),
        Mod::shared | Mod::shared_cta | Mod::shared_cluster => Some(Space::Shared),
        _ => None,
    });
    let (Some(to_space), Some(from_space)) = (spaces.next(), spaces.next()) else {
        return Err("unsupported copy".into());
    };
    let (to, from) = (address(env, t, &ops[0])?, address(env, t, &ops[1])?);
    let size = t.read(env, &ops[2], Type::u32)?;
    if !size.is_multiple_of(16) {
        return Err(format!("a bulk copy of {size} bytes").into());
    }
    // Bit i: whether byte i of every 16 is copied.
    let mask = if has("cp_mask") { t.read(env, &ops[ops.len() - 1], Type::u16)? } else { 0xffff };
    let multicast = inst.mods.iter().any(|m| m.name() == "multicast::cluster");
    let blocks = if multicast { t.read(env, &ops[4], Type::u16)? } else { 0 };
    let targets = targets(env, to_space, to, blocks)?;
    let reduces = has("reduce")
        || inst
            .one_of(&[Mod::add, Mod::min, Mod::max, Mod::and, Mod::or, Mod::xor, Mod::inc, Mod::dec])
            .is_some();
    let step = if reduces { u64::from(code.ty.bytes()) } else { 16 };
    for i in 0..size / step {
        let source = bytes(env, t, (from_space, from + i * step), step as usize, false)?;
        let mut data = [0; 16];
        data[..step as usize].copy_from_slice(source);
        if !reduces {
            for to in &targets {
                let place = bytes(env, t, (to_space, to + i * step), 16, true)?;
                (0..16).filter(|k| mask >> k & 1 != 0).for_each(|k| place[k] = data[k]);
            }
        } else {
            let place = (to_space, to + i * step);
            let old = read(env, t, place, step as usize)?;
            let ftz = !has("noftz") && code.ty == Type::f32;
            let new = update(code, code.ty, ftz, [old, little_endian(&data[..step as usize]), 0])?;
            bytes(env, t, place, step as usize, true)?.copy_from_slice(&new.to_le_bytes()[..step as usize]);
        }
    }
    if to_space == Space::Shared {
        let barrier = address(env, t, &ops[3])?;
        for barrier in self::targets(env, to_space, barrier, blocks)? {
            arrive(env, t, barrier, (0, 0), -(size as i64))?;
        }
    }
    Ok(())
}

/// The places that a write to an address reaches: that one, or, where blocks of the cluster are named by a mask, the same in
/// each of them.
pub(super) fn targets(env: &Env<'_, '_>, space: Space, at: u64, blocks: u64) -> Res<Vec<u64>> {
    if space != Space::Shared || blocks == 0 {
        return Ok(vec![at]);
    }
    Ok(in_blocks(at, blocks, env.shared.len())?)
}

/// `clusterlaunchcontrol`: there never is a cluster left that could be called off.
fn cancel(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, p, ops) = (code.inst, env.program, &code.inst.operands);
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    if has("try_cancel") {
        let all = if has("multicast::cluster::all") { (1 << env.shared.len()) - 1 } else { 0 };
        let (to, barrier) = (address(env, t, &ops[0])?, address(env, t, &ops[1])?);
        for to in targets(env, Space::Shared, to, all)? {
            bytes(env, t, (Space::Shared, to & 0xffff_ffff), 16, true)?.fill(0);
        }
        for barrier in targets(env, Space::Shared, barrier, all)? {
            arrive(env, t, barrier, (0, 0), -16)?;
        }
        return Ok(());
    }
    // The parts of an answer are those that ptxas 13.0.88 takes out of it: x, y, z, and whether there is one.
    let answer = super::wide::get(env, t, &ops[1])?;
    if has("is_canceled") {
        return t.write(p, &ops[0], (answer >> 64) as u64 & 1, Type::pred);
    }
    let first =
        [answer as u64 & 0xffff_ffff, (answer >> 32) as u64 & 0xffff, (answer >> 48) as u64 & 0xffff, 0];
    if let Operand::Vector(v) = &ops[0] {
        for (e, x) in v.iter().zip(first) {
            if let ::ptx::ast::VectorElem::Reg(r) = e {
                t.set_reg(p, *r, 0, x, Type::b32);
            }
        }
        return Ok(());
    }
    let which = ["get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"];
    let i = which.iter().position(|w| has(w)).ok_or("unsupported instruction")?;
    t.write(p, &ops[0], first[i], Type::b32)
}
