//! Asynchronous operations done as late as PTX allows, if that is asked for: where threads wait for them, or when the cluster ends. A
//! program that waits for all that it has to gives the same.
//!
//! What the threads' registers held is kept with an operation; products of warp groups find their descriptors so, matrices in registers as
//! they are then. What `cp.async.mbarrier.arrive` without `.noinc` counts for is done at once.

use super::decode::Code;
use super::thread::{Env, Res, Thread};
use super::{asynchronous, exec, tcgen05};
use ::ptx::ast::{Operand, Space};
use ::ptx::{Inst, Mod, Op};

/// What is waited for in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `cp.async`.
    Copy,
    /// Arrivals that count for it.
    Arrival,
    /// Bulk copies out of shared memory.
    Bulk,
    /// What tells a barrier, and what goes on in tensor memory.
    Signal,
    /// `tcgen05.st`.
    Store,
    /// `wgmma.mma_async`.
    Product,
}

/// Groups of a thread that have ended.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Groups {
    copies: u32,
    bulk: u32,
    products: u32,
}

/// An operation that is not done yet, and the threads as they were: one, or a warp.
pub(super) struct Pending {
    kind: Kind,
    threads: Vec<Thread>,
    group: u32,
}

fn has(inst: &Inst, name: &str) -> bool {
    inst.mods.iter().any(|m| m.name() == name)
}

/// How such an instruction is waited for; `None` if it isn't one.
fn kind(inst: &Inst) -> Option<Kind> {
    let ends = ["commit_group", "wait_group", "wait_all", "prefetch"].iter().any(|n| has(inst, n));
    let to_shared = || {
        let mut spaces = inst.mods.iter().filter_map(|m| match m {
            Mod::global => Some(Space::Global),
            Mod::shared | Mod::shared_cta | Mod::shared_cluster => Some(Space::Shared),
            _ => None,
        });
        spaces.next() == Some(Space::Shared)
    };
    match inst.op {
        Op::cp if ends => None,
        Op::cp if has(inst, "tensor") => {
            Some(if matches!(inst.operands[0], Operand::Bracket(_)) { Kind::Bulk } else { Kind::Signal })
        }
        Op::cp if has(inst, "bulk") => Some(if to_shared() { Kind::Signal } else { Kind::Bulk }),
        Op::cp if has(inst, "mbarrier") => Some(Kind::Arrival),
        Op::cp => Some(Kind::Copy),
        Op::st | Op::red if inst.has(Mod::_async) => {
            let tells = has(inst, "mbarrier::complete_tx::bytes") || inst.operands.len() > 2;
            tells.then_some(Kind::Signal)
        }
        Op::tcgen05 => {
            let works = ["mma", "cp", "shift", "commit"].iter().any(|n| has(inst, n));
            works.then_some(Kind::Signal)
        }
        _ => None,
    }
}

/// Leaves what a thread does for later, or waits for what it left; whether that was all.
pub(super) fn instead(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<bool> {
    let inst = code.inst;
    if let Some(kind) = kind(inst) {
        if kind == Kind::Arrival && !has(inst, "noinc") {
            perform_groups(env, t, (Kind::Copy, u32::MAX))?;
            return Ok(false);
        }
        let group = if kind == Kind::Bulk { t.groups.bulk } else { t.groups.copies };
        env.pending.push(Pending { kind, threads: vec![t.clone()], group });
        return Ok(true);
    }
    if inst.op == Op::cp {
        let kind = if has(inst, "bulk") { Kind::Bulk } else { Kind::Copy };
        if has(inst, "commit_group") {
            *(if kind == Kind::Bulk { &mut t.groups.bulk } else { &mut t.groups.copies }) += 1;
        } else if has(inst, "wait_all") {
            t.groups.copies += 1;
            perform_groups(env, t, (Kind::Copy, t.groups.copies))?;
        } else if has(inst, "wait_group") {
            let left = match inst.operands.first() {
                Some(Operand::Int(n)) => *n as u32,
                _ => 0,
            };
            let ended = if kind == Kind::Bulk { t.groups.bulk } else { t.groups.copies };
            perform_groups(env, t, (kind, ended.saturating_sub(left)))?;
        }
    }
    Ok(false)
}

/// Does what a thread left of a kind in the groups before that number.
fn perform_groups(env: &mut Env<'_, '_>, t: &Thread, (kind, before): (Kind, u32)) -> Res<()> {
    let own = |p: &Pending| {
        p.kind == kind && p.group < before && p.threads[0].rank == t.rank && p.threads[0].index == t.index
    };
    while let Some(n) = env.pending.iter().position(own) {
        let p = env.pending.remove(n);
        perform(env, p)?;
    }
    Ok(())
}

/// Leaves a warp's store to tensor memory for later, or waits for those that it left; whether that was all.
pub(super) fn instead_of_warp(env: &mut Env<'_, '_>, threads: &[&Thread], code: &Code<'_>) -> Res<bool> {
    if code.inst.op != Op::tcgen05 {
        return Ok(false);
    }
    if has(code.inst, "st") {
        let threads = threads.iter().map(|t| (*t).clone()).collect();
        env.pending.push(Pending { kind: Kind::Store, threads, group: 0 });
        return Ok(true);
    }
    if has(code.inst, "wait::st") {
        let first = threads[0];
        let own = |p: &Pending| {
            p.kind == Kind::Store
                && p.threads[0].rank == first.rank
                && p.threads[0].index / 32 == first.index / 32
        };
        while let Some(n) = env.pending.iter().position(own) {
            let p = env.pending.remove(n);
            perform(env, p)?;
        }
    }
    Ok(false)
}

/// Leaves a warp's product for later.
pub(super) fn leave_product(env: &mut Env<'_, '_>, t: &Thread) {
    env.pending.push(Pending { kind: Kind::Product, threads: vec![t.clone()], group: t.groups.products });
}

/// A group of products ends, or a warp waits for some.
pub(super) fn products(
    env: &mut Env<'_, '_>,
    threads: &mut [Thread],
    lanes: &[usize],
    code: &Code<'_>,
) -> Res<()> {
    if has(code.inst, "commit_group") {
        lanes.iter().for_each(|l| threads[*l].groups.products += 1);
        return Ok(());
    }
    let left = match code.inst.operands.first() {
        Some(Operand::Int(n)) if has(code.inst, "wait_group") => *n as u32,
        _ => return Ok(()),
    };
    let (rank, warp) = (threads[lanes[0]].rank, threads[lanes[0]].index / 32);
    let before = threads[lanes[0]].groups.products.saturating_sub(left);
    let own = |p: &Pending| {
        let first = &p.threads[0];
        p.kind == Kind::Product && p.group < before && first.rank == rank && first.index / 32 == warp
    };
    while let Some(n) = env.pending.iter().position(own) {
        let then = env.pending.remove(n).threads.remove(0);
        let program = env.program;
        let code = program.code.get(then.pc as usize).ok_or("unsupported instruction")?;
        // The registers are those of the function that the product stands in.
        let swap = |threads: &mut [Thread], now: &[(::ptx::ast::FuncId, usize)]| {
            for (l, (func, registers)) in lanes.iter().zip(now) {
                (threads[*l].func, threads[*l].registers) = (*func, *registers);
            }
        };
        let now: Vec<_> = lanes.iter().map(|l| (threads[*l].func, threads[*l].registers)).collect();
        swap(threads, &vec![(then.func, then.registers); lanes.len()]);
        let done = super::tensor::group_product(env, threads, lanes, code, &then);
        swap(threads, &now);
        done?;
    }
    Ok(())
}

/// Does what was left, as it came, until the barrier at an address has another phase than that, or nothing is left that could tell it.
pub(super) fn perform_until(env: &mut Env<'_, '_>, t: &mut Thread, at: u64, phase: u64) -> Res<()> {
    while !env.pending.is_empty() && asynchronous::phase(env, t, at)? == phase {
        let tells = |p: &Pending| matches!(p.kind, Kind::Signal | Kind::Arrival);
        let Some(mut next) = env.pending.iter().position(tells) else { return Ok(()) };
        if env.pending[next].kind == Kind::Arrival {
            // It counts for the copies before it.
            let who = |p: &Pending| (p.threads[0].rank, p.threads[0].index);
            let own = who(&env.pending[next]);
            let copy = env.pending[..next].iter().position(|p| p.kind == Kind::Copy && who(p) == own);
            next = copy.unwrap_or(next);
        }
        let p = env.pending.remove(next);
        perform(env, p)?;
    }
    Ok(())
}

/// Does all that is left.
pub(super) fn perform_all(env: &mut Env<'_, '_>) -> Res<()> {
    while !env.pending.is_empty() {
        let p = env.pending.remove(0);
        // Nobody has registers for the result of a product any longer.
        if p.kind != Kind::Product {
            perform(env, p)?;
        }
    }
    Ok(())
}

fn perform(env: &mut Env<'_, '_>, mut p: Pending) -> Res<()> {
    let program = env.program;
    let code = program.code.get(p.threads[0].pc as usize).ok_or("unsupported instruction")?;
    env.late = false;
    let done = match p.kind {
        Kind::Store => {
            let lanes: Vec<usize> = (0..p.threads.len()).collect();
            tcgen05::collective(env, &mut p.threads, &lanes, code)
        }
        _ => exec::execute(env, &mut p.threads[0], code),
    };
    env.late = true;
    done
}
