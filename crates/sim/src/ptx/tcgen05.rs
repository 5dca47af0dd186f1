//! `tcgen05`: everything is done at once. Blocks of a pair that take columns together do not wait for each other.

use super::decode::Code;
use super::exec::{address, bytes, read};
use super::thread::{Env, Res, Thread};
use crate::matrix::{Extra, Product};
use crate::tmem::{self, Copies, Mma, Shape, Source, Tmem, TmemError};
use ::ptx::Type;
use ::ptx::ast::{Operand, Space, VectorElem};

/// Whether a warp executes it together.
pub(super) fn is_collective(inst: &::ptx::Inst) -> bool {
    inst.op == ::ptx::Op::tcgen05 && inst.mods.iter().any(|m| m.name() == "sync")
}

/// The memory of a block, or of its pair.
fn tmem<'e>(env: &'e mut Env<'_, '_>, rank: u32, pair: bool) -> Res<&'e mut [Tmem]> {
    Ok(tmem::of_block(&mut env.tmem, rank as usize, pair)?)
}

/// Does something with the memory of a block, or of its pair, and what reads the shared memory of each.
fn with<T>(
    env: &mut Env<'_, '_>,
    t: &mut Thread,
    pair: bool,
    f: impl FnOnce(&mut [Tmem], &mut dyn FnMut(usize, u64, u32) -> Res<u64>) -> Res<T>,
) -> Res<T> {
    tmem(env, t.rank, pair)?;
    let mut all = std::mem::take(&mut env.tmem);
    let first = if pair { t.rank & !1 } else { t.rank };
    let done = tmem::of_block(&mut all, t.rank as usize, pair).map_err(Into::into).and_then(|memory| {
        f(memory, &mut |block, at, size| {
            let rank = u64::from(first + block as u32) << 24;
            read(env, t, (Space::Shared, rank | at), size as usize)
        })
    });
    env.tmem = all;
    done
}

fn tensor_address(env: &Env<'_, '_>, t: &Thread, o: &Operand) -> Res<u32> {
    Ok(match o {
        Operand::Addr(_) => address(env, t, o)? as u32,
        o => t.read(env, o, Type::b32)? as u32,
    })
}

/// What a warp does together; `lanes`: indices into `threads`.
pub(super) fn collective(
    env: &mut Env<'_, '_>,
    threads: &mut [Thread],
    lanes: &[usize],
    code: &Code<'_>,
) -> Res<()> {
    if lanes.len() != 32 {
        return Err("an instruction on tensor memory needs 32 threads".into());
    }
    let (inst, ops) = (code.inst, &code.inst.operands);
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    if env.late {
        let members: Vec<&Thread> = lanes.iter().map(|l| &threads[*l]).collect();
        if super::late::instead_of_warp(env, &members, code)? {
            return Ok(());
        }
    }
    let p = env.program;
    let first = &threads[lanes[0]];
    let (rank, warp) = (first.rank, first.index / 32);
    let pair = has("cta_group::2");
    if has("alloc") {
        let to = address(env, first, &ops[0])? & 0xffff_ffff;
        let columns = first.read(env, &ops[1], Type::b32)? as u32;
        check_columns(columns)?;
        if tmem(env, rank, false)?[0].relinquished {
            return Err("tensor memory is taken by a block that has relinquished the right to".into());
        }
        let slot = take(env, rank, pair, columns / 32)?.ok_or("no room in tensor memory")?;
        tmem(env, rank, false)?[0].starts |= 1 << slot;
        let word = (slot * 32).to_le_bytes();
        let t = &mut threads[lanes[0]];
        bytes(env, t, (Space::Shared, to), 4, true)?.copy_from_slice(&word);
        return Ok(());
    }
    if has("dealloc") {
        let at = first.read(env, &ops[0], Type::b32)? as u32;
        let columns = first.read(env, &ops[1], Type::b32)? as u32;
        check_columns(columns)?;
        let slot = (at & 0xffff) / 32;
        let mask = ((1u64 << (columns / 32)) - 1).checked_shl(slot).unwrap_or(0);
        let mask = u32::try_from(mask).map_err(|_| "tensor memory that is not there is given back")?;
        let [memory, ..] = tmem(env, rank, false)? else { return Ok(()) };
        if mask == 0 || !memory.has(mask) || memory.starts >> slot & 1 == 0 {
            return Err("tensor memory that is not allocated is given back".into());
        }
        memory.keep(!mask);
        memory.starts &= !(1 << slot);
        return Ok(());
    }
    if has("relinquish_alloc_permit") {
        tmem(env, rank, false)?[0].relinquished = true;
        return Ok(());
    }
    let loads = has("ld");
    if !loads && !has("st") {
        // Permits, waits and fences.
        return Ok(());
    }
    let shapes: Vec<(Shape, u32)> = match () {
        () if has("32x32b") => vec![(Shape::Lanes32, 0)],
        () if has("16x64b") => vec![(Shape::Bits64, 0)],
        () if has("16x128b") => vec![(Shape::Bits128, 0)],
        () if has("16x256b") => vec![(Shape::Bits256, 0)],
        () => {
            let split = ops.iter().find_map(|o| if let Operand::Int(n) = o { Some(*n as u32) } else { None });
            vec![(Shape::Half(false), 0), (Shape::Half(true), split.ok_or("unsupported instruction")?)]
        }
    };
    let halves = has("pack::16b") || has("unpack::16b");
    let (at, registers) = if loads { (&ops[1], &ops[0]) } else { (&ops[0], &ops[ops.len() - 1]) };
    let one;
    let list: &[VectorElem] = match registers {
        Operand::Vector(v) => v,
        Operand::Reg(r) => {
            one = [VectorElem::Reg(*r)];
            &one
        }
        _ => return Err("unsupported operand".into()),
    };
    let at = tensor_address(env, first, at)?;
    for (i, l) in lanes.iter().enumerate() {
        for (shape, more) in &shapes {
            let place = (at + more, warp, *shape);
            if loads {
                let count = list.len() as u32;
                let Some(words) = tmem(env, rank, false)?[0].load(place, i as u32, count, halves)? else {
                    continue;
                };
                for (e, x) in list.iter().zip(words) {
                    if let VectorElem::Reg(r) = e {
                        threads[*l].set_reg(p, *r, 0, x.into(), Type::b32);
                    }
                }
            } else {
                let words: Vec<u32> = list.iter().map(|e| threads[*l].elem(p, *e) as u32).collect();
                tmem(env, rank, false)?[0].store(place, i as u32, &words, halves)?;
            }
        }
    }
    Ok(())
}

/// What a thread does alone.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, ops) = (code.inst, &code.inst.operands);
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    let begins = |prefix: &str| inst.mods.iter().any(|m| m.name().starts_with(prefix));
    if begins("fence::") {
        return Ok(());
    }
    let pair = has("cta_group::2");
    if has("commit") {
        let at = address(env, t, &ops[0])? & 0xffff_ffff;
        let blocks = if has("multicast::cluster") { t.read(env, &ops[1], Type::u16)? } else { 0 };
        for at in super::asynchronous::targets(env, Space::Shared, at, blocks)? {
            super::asynchronous::arrive(env, t, at, (1, 0), 0)?;
        }
        return Ok(());
    }
    if has("shift") {
        let at = tensor_address(env, t, &ops[0])?;
        return with(env, t, pair, |memory, _| Ok(tmem::shift(memory, at)?));
    }
    if has("cp") {
        let shape = match () {
            () if has("128x256b") => Copies::Rows128Words8,
            () if has("4x256b") => Copies::Rows4Words8,
            () if has("128x128b") => Copies::Rows128Words4,
            () if has("warpx2::02_13") => Copies::Halves,
            () if has("warpx2::01_23") => Copies::Twice,
            () if has("warpx4") => Copies::Quarters,
            () => return Err("not supported: this copy to tensor memory".into()),
        };
        let narrow = match () {
            () if begins("b8x16.b6x16") || begins("b6x16") => Some(6),
            () if begins("b8x16.b4x16") || begins("b4x16") => Some(4),
            () => None,
        };
        let to = tensor_address(env, t, &ops[0])?;
        let from = t.read(env, &ops[1], Type::b64)?;
        return with(env, t, pair, |memory, load| tmem::copy(memory, (shape, narrow), to, from, load));
    }
    if !has("mma") {
        return Err("not supported: this instruction on tensor memory".into());
    }
    if pair && t.rank & 1 != 0 {
        return Err(TmemError::OddBlock.into());
    }
    let mma = product(env, t, code)?;
    let multiply = |p: &Product, x: [&[u64]; 3], extra: Extra<'_>| super::tensor::product(code, p, x, extra);
    with(env, t, pair, |memory, load| tmem::multiply(memory, &mma, load, &multiply))
}

/// A product and what it works on.
fn product<'c>(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'c>) -> Res<Mma<'c>> {
    let (inst, ops) = (code.inst, &code.inst.operands);
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    let begins = |prefix: &str| inst.mods.iter().any(|m| m.name().starts_with(prefix));
    let kind = inst.mods.iter().find_map(|m| m.name().strip_prefix("kind::")).unwrap_or("");
    let by_16 = begins("block16") || has("scale_vec::4X");
    // Of factors for 32 columns the two kinds of 4-bit elements are the same.
    let kind = if kind == "mxf4nvf4" && !by_16 { "mxf4" } else { kind };
    let (scaled, sparse, stationary) = (has("block_scale"), has("sp"), has("ws"));
    let d = tensor_address(env, t, &ops[0])?;
    let a = match &ops[1] {
        Operand::Addr(_) => Source::Tensor(tensor_address(env, t, &ops[1])?),
        o => Source::Shared(t.read(env, o, Type::b64)?),
    };
    let b = t.read(env, &ops[2], Type::b64)?;
    let mut rest = &ops[3..];
    let metadata = if sparse { tensor_address(env, t, &rest[0])? } else { 0 };
    if sparse {
        rest = &rest[1..];
    }
    let descriptor = t.read(env, &rest[0], Type::b32)? as u32;
    rest = &rest[1..];
    if (descriptor >> 2 & 1 != 0) != sparse {
        return Err("a descriptor and an instruction that disagree on whether a matrix is sparse".into());
    }
    let mut scales = None;
    if scaled {
        scales = Some([tensor_address(env, t, &rest[0])?, tensor_address(env, t, &rest[1])?]);
        rest = &rest[2..];
    }
    let mut disabled = [0; 8];
    if let [Operand::Vector(v), more @ ..] = rest {
        for (to, e) in disabled.iter_mut().zip(v.iter()) {
            *to = t.elem(env.program, *e) as u32;
        }
        rest = more;
    }
    let adds = rest.first().map_or(Ok(1), |o| t.read(env, o, Type::pred))? != 0;
    let last = rest.get(1);
    let zeros = match (stationary, last) {
        (true, Some(o)) => Some(t.read(env, o, Type::b64)?),
        (true, None) => Some(0),
        (false, _) => None,
    };
    let halvings = match (stationary, last) {
        (false, Some(o)) => t.read(env, o, Type::u32)? as u32,
        _ => 0,
    };
    let moves_rows = has("ashift");
    Ok(Mma {
        kind,
        descriptor,
        a,
        b,
        d,
        adds,
        halvings,
        disabled,
        scales,
        metadata,
        stationary: zeros,
        moves_rows,
    })
}

/// Whether so many columns may be taken or given back.
fn check_columns(columns: u32) -> Res<()> {
    match columns {
        32 | 64 | 128 | 256 | 512 => Ok(()),
        n => Err(format!("{n} columns of tensor memory at once").into()),
    }
}

/// Takes so many slots. The blocks of a pair take the same ones: the first to come takes them for both, and the other one finds them.
fn take(env: &mut Env<'_, '_>, rank: u32, pair: bool, slots: u32) -> Res<Option<u32>> {
    let memory = tmem(env, rank, pair)?;
    if !pair {
        return Ok(tmem::take(memory, slots));
    }
    let (own, other) = if rank & 1 == 0 { (0, 1) } else { (1, 0) };
    if let Some((first, count)) = memory[own].offered.pop_front() {
        if count != slots {
            return Err("blocks of a pair that take different numbers of columns of tensor memory".into());
        }
        return Ok(Some(first));
    }
    let first = tmem::take(memory, slots);
    if let Some(first) = first {
        memory[other].offered.push_back((first, slots));
    }
    Ok(first)
}
