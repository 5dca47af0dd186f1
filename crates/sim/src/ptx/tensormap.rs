//! `tensormap.replace`, `tensormap.cp_fenceproxy`, and copies of tiles, done at once.

use super::asynchronous::{arrive, targets};
use super::decode::Code;
use super::exec::{address, bytes, locate, read, resolve};
use super::thread::{Env, Res, Thread};
use crate::memory::little_endian;
use crate::tensormap::{self, BYTES, Place, TensorMap, Walk};
use ::ptx::ast::{Operand, Space};
use ::ptx::{Mod, Type};

/// Executes `tensormap`.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, ops) = (code.inst, &code.inst.operands);
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    if has("cp_fenceproxy") {
        let (to, from) = (address(env, t, &ops[0])?, address(env, t, &ops[1])?);
        let mut map = [0; BYTES];
        map.copy_from_slice(bytes(env, t, (Space::Shared, from), BYTES, false)?);
        bytes(env, t, (Space::Global, to), BYTES, true)?.copy_from_slice(&map);
        return Ok(());
    }
    let place = resolve(env, t, code, &ops[0])?;
    let (ordinal, value) = match &ops[1..] {
        [Operand::Int(i), o] => (*i as usize, o),
        [o] => (0, o),
        _ => return Err("unsupported instruction".into()),
    };
    let ty = if inst.has(Mod::b64) { Type::b64 } else { Type::b32 };
    let value = t.read(env, value, ty)?;
    let field = inst.mods.iter().map(|m| m.name()).find(|name| !matches!(*name, "replace" | "tile"));
    let field = field.ok_or("unsupported instruction")?;
    let map = bytes(env, t, place, BYTES, true)?;
    let map: &mut [u8; BYTES] = map.try_into().map_err(|_| "a tensor map that is not there")?;
    tensormap::replace(map, field, ordinal, value)
        .ok_or_else(|| format!("no such {field} of a tensor map").into())
}

/// `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`.
pub(super) fn copy(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, ops) = (code.inst, &code.inst.operands);
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    let loads = !matches!(ops[0], Operand::Bracket(_));
    let tensor = ops.iter().find_map(|o| if let Operand::Bracket(list) = o { Some(list) } else { None });
    let Some([map, coordinates]) = tensor.map(|l| &l[..]) else { return Err("unsupported copy".into()) };
    let at = match map {
        Operand::Addr(_) => address(env, t, map)?,
        o => t.read(env, o, Type::u64)?,
    };
    let start: Vec<i32> = match coordinates {
        Operand::Vector(v) => v.iter().map(|e| t.elem(env.program, *e) as u32 as i32).collect(),
        o => vec![t.read(env, o, Type::s32)? as u32 as i32],
    };
    let mut image = [0; BYTES];
    for (i, b) in image.iter_mut().enumerate() {
        let (space, at) = locate(at + i as u64);
        *b = read(env, t, (space, at), 1)? as u8;
    }
    let map = TensorMap::read(&image)?;
    // Behind the barrier.
    let offsets = || -> Res<Vec<u16>> {
        Ok(match ops.get(3) {
            Some(Operand::Vector(v)) => v.iter().map(|e| t.elem(env.program, *e) as u16).collect(),
            Some(o) => vec![t.read(env, o, Type::u16)? as u16],
            None => vec![],
        })
    };
    let walk = match inst.mods.iter().find_map(|m| m.name().strip_prefix("im2col")) {
        None => None,
        Some("") => Some(Walk::All(offsets()?)),
        Some("_no_offs") => Some(Walk::All(vec![])),
        Some(along) => match offsets()?[..] {
            [halo, offset] => Some(Walk::First { halo, offset, fixed: along == "::w::128" }),
            _ => return Err("unsupported copy".into()),
        },
    };
    // The mask of blocks comes behind the offsets.
    let behind = 3 + usize::from(walk.is_some());
    let places: Vec<Place> = match walk {
        Some(walk) => map.columns(&start, &walk)?,
        None if has("tile::gather4") || has("tile::scatter4") => map.rows(start[0], &start[1..])?,
        None => map.tile(&start)?,
    };
    if !loads {
        map.check_store()?;
    }
    let size = map.element_bytes() as usize;
    let shared = address(env, t, &ops[usize::from(!loads)])? & 0xffff_ffff;
    if !shared.is_multiple_of(128) {
        return Err(format!("a tile at the shared address {shared:#x}").into());
    }
    if loads {
        let multicast = has("multicast::cluster");
        let blocks = if multicast { t.read(env, &ops[behind], Type::u16)? } else { 0 };
        let to = targets(env, Space::Shared, shared, blocks)?;
        for (offset, from) in &places {
            let x = match from {
                Some(a) => read(env, t, (Space::Global, *a), size)?,
                None => 0,
            };
            for to in &to {
                let place = (Space::Shared, map.swizzled(to + offset));
                bytes(env, t, place, size, true)?.copy_from_slice(&x.to_le_bytes()[..size]);
            }
        }
        let barrier = address(env, t, &ops[2])?;
        for barrier in targets(env, Space::Shared, barrier, blocks)? {
            arrive(env, t, barrier, (0, 0), -((places.len() * size) as i64))?;
        }
        return Ok(());
    }
    let operations = [Mod::add, Mod::min, Mod::max, Mod::inc, Mod::dec, Mod::and, Mod::or, Mod::xor];
    let operation = inst.one_of(&operations);
    for (offset, to) in places {
        let x = little_endian(bytes(env, t, (Space::Shared, map.swizzled(shared + offset)), size, false)?);
        let Some(a) = to else { continue };
        let place = bytes(env, t, (Space::Global, a), size, true)?;
        let new = match operation {
            Some(op) => {
                map.reduce(op.name(), little_endian(place), x).ok_or("no such reduction of these elements")?
            }
            None => x,
        };
        place.copy_from_slice(&new.to_le_bytes()[..size]);
    }
    Ok(())
}
