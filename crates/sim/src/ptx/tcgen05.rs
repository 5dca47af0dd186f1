//! `tcgen05`: everything is done at once.

use super::decode::Code;
use super::exec::{address, bytes, read};
use super::thread::{Env, Res, Thread};
use crate::matrix::{Extra, Product};
use crate::tmem::{Copies, Mma, Shape, Source, Tmem};
use ::ptx::Type;
use ::ptx::ast::{Operand, Space, VectorElem};

/// Whether a warp executes it together.
pub(super) fn is_collective(inst: &::ptx::Inst) -> bool {
    inst.op == ::ptx::Op::tcgen05 && inst.mods.iter().any(|m| m.name() == "sync")
}

fn tmem<'e>(env: &'e mut Env<'_, '_>, rank: u32) -> &'e mut Tmem {
    let rank = rank as usize;
    if env.tmem.len() <= rank {
        env.tmem.resize(rank + 1, Tmem::default());
    }
    &mut env.tmem[rank]
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
    let p = env.program;
    let first = &threads[lanes[0]];
    let (rank, warp) = (first.rank, first.index / 32);
    if has("cta_group::2") {
        return Err("not supported: tensor memory of two blocks".into());
    }
    if has("alloc") {
        let to = address(env, first, &ops[0])? & 0xffff_ffff;
        let columns = first.read(env, &ops[1], Type::b32)? as u32;
        let slot = tmem(env, rank).take(columns / 32).ok_or("no room in tensor memory")?;
        let word = (slot * 32).to_le_bytes();
        let t = &mut threads[lanes[0]];
        bytes(env, t, (Space::Shared, to), 4, true)?.copy_from_slice(&word);
        return Ok(());
    }
    if has("dealloc") {
        let at = first.read(env, &ops[0], Type::b32)? as u32;
        let columns = first.read(env, &ops[1], Type::b32)? as u32;
        let mask = (((1u64 << (columns / 32)) - 1) << ((at & 0xffff) / 32)) as u32;
        let memory = tmem(env, rank);
        if !memory.has(mask) {
            return Err("tensor memory that is not allocated is given back".into());
        }
        memory.keep(!mask);
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
                let Some(words) = tmem(env, rank).load(place, i as u32, list.len() as u32, halves)? else {
                    continue;
                };
                for (e, x) in list.iter().zip(words) {
                    if let VectorElem::Reg(r) = e {
                        threads[*l].set_reg(p, *r, 0, x.into(), Type::b32);
                    }
                }
            } else {
                let words: Vec<u32> = list.iter().map(|e| threads[*l].elem(p, *e) as u32).collect();
                tmem(env, rank).store(place, i as u32, &words, halves)?;
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
    if has("cta_group::2") || has("ws") || has("sp") || has("ashift") {
        return Err("not supported: this instruction on tensor memory".into());
    }
    if has("commit") {
        if has("multicast::cluster") {
            return Err("not supported: this instruction on tensor memory".into());
        }
        let at = address(env, t, &ops[0])? & 0xffff_ffff;
        super::asynchronous::arrive(env, t, at, (1, 0), 0)?;
        return Ok(());
    }
    if has("cp") {
        let shape = match () {
            () if begins("b8x16") => None,
            () if has("128x256b") => Some(Copies::Rows128Words8),
            () if has("4x256b") => Some(Copies::Rows4Words8),
            () if has("128x128b") => Some(Copies::Rows128Words4),
            () if has("warpx2::02_13") => Some(Copies::Halves),
            () if has("warpx2::01_23") => Some(Copies::Twice),
            () if has("warpx4") => Some(Copies::Quarters),
            () => None,
        };
        let shape = shape.ok_or("not supported: this copy to tensor memory")?;
        let to = tensor_address(env, t, &ops[0])?;
        let from = t.read(env, &ops[1], Type::b64)?;
        let rank = u64::from(t.rank) << 24;
        let mut memory = std::mem::take(tmem(env, t.rank));
        let mut load = |at: u64, size: u32| read(env, t, (Space::Shared, rank | at), size as usize);
        let done = memory.copy(shape, to, from, &mut load);
        *tmem(env, t.rank) = memory;
        return done;
    }
    if !has("mma") {
        return Err("not supported: this instruction on tensor memory".into());
    }
    let kind = inst.mods.iter().find_map(|m| m.name().strip_prefix("kind::")).unwrap_or("");
    let by_16 = begins("block16") || has("scale_vec::4X");
    // Of factors for 32 columns the two kinds of 4-bit elements are the same.
    let kind = if kind == "mxf4nvf4" && !by_16 { "mxf4" } else { kind };
    let a = match &ops[1] {
        Operand::Addr(_) => Source::Tensor(tensor_address(env, t, &ops[1])?),
        o => Source::Shared(t.read(env, o, Type::b64)?),
    };
    let scaled = has("block_scale");
    let d = tensor_address(env, t, &ops[0])?;
    let b = t.read(env, &ops[2], Type::b64)?;
    let descriptor = t.read(env, &ops[3], Type::b32)? as u32;
    let scales = match scaled {
        true => Some([tensor_address(env, t, &ops[4])?, tensor_address(env, t, &ops[5])?]),
        false => None,
    };
    let mut rest = &ops[if scaled { 6 } else { 4 }..];
    let mut disabled = [0; 4];
    if let [Operand::Vector(v), more @ ..] = rest {
        for (to, e) in disabled.iter_mut().zip(v.iter()) {
            *to = t.elem(env.program, *e) as u32;
        }
        rest = more;
    }
    let adds = rest.first().map_or(Ok(1), |o| t.read(env, o, Type::pred))? != 0;
    if rest.len() > 1 {
        return Err("not supported: this instruction on tensor memory".into());
    }
    let rank = u64::from(t.rank) << 24;
    let mma = Mma { kind, descriptor, a, b, d, adds, disabled, scales };
    let mut memory = std::mem::take(tmem(env, t.rank));
    let mut load = |at: u64, size: u32| read(env, t, (Space::Shared, rank | at), size as usize);
    let multiply = |p: &Product, x: [&[u64]; 3], extra: Extra<'_>| super::tensor::product(code, p, x, extra);
    let done = memory.multiply(&mma, &mut load, &multiply);
    *tmem(env, t.rank) = memory;
    done
}
