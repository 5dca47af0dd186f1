//! Textures and surfaces: `tex`, `tld4`, `txq`, `suld`, `sust`, `sured`, `suq`.

use super::decode::{Code, garbage};
use super::int::{self, mask};
use super::thread::{Env, Res, Thread};
use crate::fp::{self, F16, F32, F64, Round};
use crate::image::format::Words;
use crate::image::sample::{Coords, Lod, Request};
use crate::image::surface::{Outside, Spot};
use crate::image::{Attribute, Bound, GEOMETRIES, Geometry, Image, Kind, SAMPLER_BIT};
use crate::memory::{Memory, little_endian};
use ::ptx::ast::{Addr, AddrBase, Inst, Operand, VectorElem};
use ::ptx::{Mod, Op, Type, VarId};
use smallvec::SmallVec;
use std::sync::Arc;

/// Whether it is one of these instructions.
pub(super) fn is_image(op: Op) -> bool {
    matches!(op, Op::tex | Op::tld4 | Op::txq | Op::suld | Op::sust | Op::sured | Op::suq)
}

/// Whether the result depends on how exact the coordinates of a face, the weights of texels or levels are.
pub(super) fn is_inexact(inst: &Inst) -> bool {
    matches!(inst.op, Op::tex | Op::tld4) && inst.types().last() == Some(Type::f32)
}

/// Runs one of them for a thread.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    match code.inst.op {
        Op::tex | Op::tld4 => texture(env, t, code),
        Op::txq | Op::suq => query(env, t, code),
        Op::suld => load(env, t, code),
        Op::sust => store(env, t, code),
        _ => reduce(env, t, code),
    }
}

/// What a name stands for, as a number: a handle.
pub(super) fn handle_of(env: &Env<'_, '_>, v: VarId) -> Res<u64> {
    Ok(match env.memory.images.named(&env.program.module.vars[v].name)? {
        Bound::Image(handle) => handle,
        Bound::Sampler(n) => 1 << SAMPLER_BIT | u64::from(n),
    })
}

/// The handle that an operand names or holds.
fn handle(env: &Env<'_, '_>, t: &Thread, o: &Operand) -> Res<u64> {
    match o {
        Operand::Reg(r) | Operand::Addr(Addr { base: AddrBase::Reg(r), offset: 0 }) => {
            Ok(t.reg(env.program, *r))
        }
        Operand::Var(v, 0) | Operand::Addr(Addr { base: AddrBase::Var(v), offset: 0 }) => handle_of(env, *v),
        _ => Err("not supported: a texture or surface that is neither named nor in a register".into()),
    }
}

/// The image that an operand names or holds the handle of.
fn image(env: &Env<'_, '_>, t: &Thread, o: &Operand, kind: Kind) -> Res<Arc<Image>> {
    Ok(env.memory.images.by_handle(handle(env, t, o)?, kind)?)
}

/// The number of the sampler that an operand names or holds the handle of.
fn sampler(env: &Env<'_, '_>, t: &Thread, o: &Operand) -> Res<u32> {
    let handle = handle(env, t, o)?;
    match (handle >> 32, handle as u32) {
        (upper, n) if upper == 1 << (SAMPLER_BIT - 32) && n != 0 => Ok(n),
        _ => Err(format!("{handle:#x} is no handle of a sampler").into()),
    }
}

/// The geometry that an instruction names.
fn geometry(inst: &Inst) -> Res<Geometry> {
    let found = inst.mods.iter().find_map(|m| GEOMETRIES.iter().find(|g| g.0 == m.name()));
    found.map(|g| g.1).ok_or_else(|| "an access without a geometry".into())
}

/// The elements of an operand that is a vector, or one value.
fn elements(o: &Operand) -> SmallVec<[VectorElem; 4]> {
    match o {
        Operand::Vector(v) => v.iter().copied().collect(),
        Operand::Reg(r) => [VectorElem::Reg(*r)].into_iter().collect(),
        Operand::Int(n) => [VectorElem::Int(*n)].into_iter().collect(),
        Operand::F32(n) => [VectorElem::F32(*n)].into_iter().collect(),
        Operand::F64(n) => [VectorElem::F64(*n)].into_iter().collect(),
        _ => SmallVec::new(),
    }
}

/// The 32 bits of an element, of a number as a binary32.
fn word(env: &Env<'_, '_>, t: &Thread, e: VectorElem) -> u32 {
    match e {
        VectorElem::F64(n) => fp::convert(n, F64, F32, Round::Nearest) as u32,
        e => t.elem(env.program, e) as u32,
    }
}

/// The elements of an operand, of which there are at least so many.
fn words(env: &Env<'_, '_>, t: &Thread, o: &Operand, least: usize) -> Res<SmallVec<[u32; 4]>> {
    let all: SmallVec<[u32; 4]> = elements(o).iter().map(|e| word(env, t, *e)).collect();
    if all.len() < least { Err("too few coordinates".into()) } else { Ok(all) }
}

/// Where an access goes.
struct Place {
    image: Arc<Image>,
    layer: u32,
    sample: u32,
    /// Coordinates as bits, zeros behind them.
    at: [u32; 3],
}

/// The place that an operand names.
fn place(env: &Env<'_, '_>, t: &Thread, (inst, o): (&Inst, &Operand), kind: Kind) -> Res<Place> {
    let geometry = geometry(inst)?;
    let Operand::Bracket(list) = o else { return Err("unsupported operand".into()) };
    let (image, coords) = match &list[..] {
        [handle, coords] => (image(env, t, handle, kind)?, coords),
        [texture, own, coords] => {
            let number = handle(env, t, texture)?;
            env.memory.images.by_handle(number, kind)?;
            (env.memory.images.sampled(number as u32, sampler(env, t, own)?)?, coords)
        }
        _ => return Err("unsupported operand".into()),
    };
    if image.geometry != geometry {
        return Err(format!("a {geometry:?} access to an image that is {:?}", image.geometry).into());
    }
    let (samples, array) = (usize::from(geometry.has_samples()), usize::from(geometry.is_array()));
    let mut all = words(env, t, coords, samples + array + geometry.coordinates())?;
    // The sample comes first, then the number in the array.
    let sample = if samples == 1 { all.remove(0) } else { 0 };
    let layer = if array == 1 { all.remove(0) } else { 0 };
    all.truncate(geometry.coordinates());
    all.resize(3, 0);
    Ok(Place { image, layer, sample, at: [all[0], all[1], all[2]] })
}

/// Reads memory that a texture or surface is bound to.
fn reader(memory: &mut Memory) -> impl FnMut(u64, u32) -> Res<u64> + '_ {
    |at, size| {
        let bytes = memory.slice_mut(at, size as usize).map(|b| little_endian(b));
        bytes.ok_or_else(|| format!("an image reaches {at:#x}, where no memory is").into())
    }
}

fn texture(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, p) = (code.inst, env.program);
    let Place { image, layer, sample, at } = place(env, t, (inst, &inst.operands[1]), Kind::Texture)?;
    let gather = inst.op == Op::tld4;
    // Beside derivatives the bits of integers count as those of floating-point numbers (docs/lowering.md).
    let float = gather || inst.has(Mod::grad) || inst.types().last() == Some(Type::f32);
    let coords = match float {
        true => Coords::Float(at.map(f32::from_bits)),
        false => Coords::Texels(at.map(|w| w as i32)),
    };
    let mut r = Request { layer, sample, nudge: code.nudge, ..Request::at(coords) };
    let mut rest = inst.operands.iter().enumerate().skip(2);
    if inst.has(Mod::level) {
        let level = words(env, t, rest.next().ok_or("no level")?.1, 1)?[0];
        r.lod = if float { Lod::At(f32::from_bits(level)) } else { Lod::Number(level as i32) };
    }
    if inst.has(Mod::grad) {
        let mut derivatives = [[0f32; 3]; 2];
        for d in &mut derivatives {
            let all = words(env, t, rest.next().ok_or("no derivatives")?.1, 1)?;
            d.iter_mut().zip(all).for_each(|(to, w)| *to = f32::from_bits(w));
        }
        r.lod = Lod::Gradients(derivatives);
    }
    let mut outside = false;
    for (n, o) in rest {
        match o {
            // A list of one as well.
            o if inst.is_braced(n) || matches!(o, Operand::Vector(_)) => {
                let dims = image.geometry.dims();
                for (to, w) in r.offsets.iter_mut().zip(words(env, t, o, 1)?).take(dims) {
                    *to = w as i32;
                    outside |= !(-8..8).contains(to);
                }
            }
            o => r.depth = Some(f32::from_bits(words(env, t, o, 1)?[0])),
        }
    }
    let mut read = reader(env.memory);
    let found = if gather {
        let channel = inst.mods.iter().find_map(|m| ["r", "g", "b", "a"].iter().position(|c| *c == m.name()));
        image.gather(&r, channel.ok_or("no channel")?, &mut read)?
    } else {
        image.fetch(&r, &mut read)?
    };
    drop(read);
    let to = inst.ty(0).unwrap_or(Type::f32);
    // Texels of another kind than asked for are not defined, nor offsets that are too large.
    let floats = to.is_float();
    let fits = floats == image.format.reads_float() || r.depth.is_some() && image.format.reads_float();
    let found: Words = found.filter(|_| fits && !outside).unwrap_or_default();
    let found: [u32; 4] =
        std::array::from_fn(|i| found[i].unwrap_or_else(|| garbage(p.fill, 0x7e00 + i) as u32));
    let (elems, resident) = match &inst.operands[0] {
        Operand::Vector(v) => (&v[..], None),
        Operand::Resident(v, p) => (&v[..], Some(*p)),
        _ => return Err("unsupported destination".into()),
    };
    let half = |w: u32| fp::convert(w.into(), F32, F16, Round::Nearest);
    let values: SmallVec<[u64; 4]> = match to {
        Type::f16 => found.iter().map(|w| half(*w)).collect(),
        Type::f16x2 => found.chunks(2).map(|w| half(w[0]) | half(w[1]) << 16).collect(),
        _ => found.iter().map(|w| u64::from(*w)).collect(),
    };
    for (e, x) in elems.iter().zip(values) {
        if let VectorElem::Reg(r) = e {
            t.set_reg(p, *r, 0, x, to);
        }
    }
    if let Some(r) = resident {
        // All of memory is there.
        t.set_reg(p, r, 0, 1, Type::pred);
    }
    Ok(())
}

fn query(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let kind = if inst.op == Op::txq { Kind::Texture } else { Kind::Surface };
    let level = match inst.operands.get(2) {
        Some(o) => t.read(env, o, Type::u32)? as u32,
        None => 0,
    };
    let what = inst.one_of(&[
        Mod::width,
        Mod::height,
        Mod::depth,
        Mod::channel_data_type,
        Mod::channel_order,
        Mod::normalized_coords,
        Mod::force_unnormalized_coords,
        Mod::filter_mode,
        Mod::addr_mode_0,
        Mod::addr_mode_1,
        Mod::addr_mode_2,
        Mod::array_size,
        Mod::num_mipmap_levels,
        Mod::num_samples,
        Mod::memory_layout,
    ]);
    let of_sampler = match what {
        Some(Mod::filter_mode) => Some(Attribute::Filter),
        Some(Mod::force_unnormalized_coords) => Some(Attribute::ForceUnnormalized),
        Some(Mod::addr_mode_0) => Some(Attribute::Address(0)),
        Some(Mod::addr_mode_1) => Some(Attribute::Address(1)),
        Some(Mod::addr_mode_2) => Some(Attribute::Address(2)),
        _ => None,
    };
    let apart = env.program.module.targets.iter().any(|t| t == "texmode_independent");
    if let Some(a) = of_sampler.filter(|_| apart && kind == Kind::Texture) {
        let n = sampler(env, t, &inst.operands[1])?;
        let own = env.memory.images.all_samplers().find(|s| s.0 == n).and_then(|s| s.1.attribute(a));
        let value = own.ok_or("there is no such sampler")?;
        return t.write(env.program, &inst.operands[0], value.into(), Type::b32);
    }
    let image = image(env, t, &inst.operands[1], kind)?;
    let attribute = |a| Some(image.attribute(a));
    let value = match what.ok_or("a query of nothing")? {
        Mod::width => image.extent(level, 0),
        Mod::height => image.extent(level, 1),
        Mod::depth => image.extent(level, 2),
        Mod::channel_data_type => attribute(Attribute::ChannelType),
        Mod::channel_order => attribute(Attribute::ChannelOrder),
        Mod::normalized_coords => attribute(Attribute::Normalized),
        Mod::force_unnormalized_coords => attribute(Attribute::ForceUnnormalized),
        Mod::filter_mode => attribute(Attribute::Filter),
        Mod::addr_mode_0 => attribute(Attribute::Address(0)),
        Mod::addr_mode_1 => attribute(Attribute::Address(1)),
        Mod::addr_mode_2 => attribute(Attribute::Address(2)),
        Mod::array_size => attribute(Attribute::ArraySize),
        Mod::num_mipmap_levels => attribute(Attribute::Levels),
        Mod::num_samples => attribute(Attribute::Samples),
        _ => attribute(Attribute::Linear),
    };
    let value = value.map_or_else(|| garbage(env.program.fill, 0x7e10), u64::from);
    t.write(env.program, &inst.operands[0], value, Type::b32)
}

fn outside(inst: &Inst) -> Outside {
    match inst.one_of(&[Mod::trap, Mod::clamp, Mod::zero]) {
        Some(Mod::clamp) => Outside::Clamp,
        Some(Mod::zero) => Outside::Zero,
        _ => Outside::Trap,
    }
}

/// Where an access to a surface reaches: an address, or nothing.
fn spot(
    env: &Env<'_, '_>,
    t: &Thread,
    (inst, o): (&Inst, &Operand),
    bytes: Option<u32>,
) -> Res<(Arc<Image>, Option<u64>)> {
    let Place { image, layer, at, .. } = place(env, t, (inst, o), Kind::Surface)?;
    let at = at.map(|w| w as i32);
    match image.spot(at, layer, bytes, outside(inst)) {
        Spot::At(a) => Ok((image, Some(a))),
        Spot::Nothing => Ok((image, None)),
        Spot::Trap => Err("an access outside of a surface".into()),
        Spot::Misaligned => Err("a misaligned access to a surface, which has no defined result".into()),
    }
}

fn load(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, p) = (code.inst, env.program);
    let elems = elements(&inst.operands[0]);
    let size = code.ty.bytes();
    let (_, at) = spot(env, t, (inst, &inst.operands[1]), Some(size * elems.len() as u32))?;
    for (n, e) in elems.iter().enumerate() {
        let x = match at {
            Some(at) => reader(env.memory)(at + n as u64 * u64::from(size), size)?,
            None => 0,
        };
        if let VectorElem::Reg(r) = e {
            t.set_reg(p, *r, 0, x, code.ty);
        }
    }
    Ok(())
}

/// Writes the low bytes of a number.
fn put(memory: &mut Memory, at: u64, size: u32, x: u64) -> Res<()> {
    let to = memory.slice_mut(at, size as usize);
    let to = to.ok_or_else(|| format!("an image reaches {at:#x}, where no memory is"))?;
    to.copy_from_slice(&x.to_le_bytes()[..size as usize]);
    Ok(())
}

fn store(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let (inst, p) = (code.inst, env.program);
    let elems = elements(&inst.operands[1]);
    if inst.has(Mod::p) {
        let (image, at) = spot(env, t, (inst, &inst.operands[0]), None)?;
        let Some(at) = at else { return Ok(()) };
        let size = image.format.element.bytes();
        for n in 0..image.format.channels as usize {
            // What is not given is unpredictable, and so are numbers that the format lacks.
            let x = elems.get(n).and_then(|e| image.format.narrow(word(env, t, *e)));
            let x = x.unwrap_or_else(|| garbage(p.fill, 0x7e20 + n));
            put(env.memory, at + n as u64 * u64::from(size), size, x)?;
        }
        return Ok(());
    }
    let size = code.ty.bytes();
    let (_, at) = spot(env, t, (inst, &inst.operands[0]), Some(size * elems.len() as u32))?;
    let Some(at) = at else { return Ok(()) };
    for (n, e) in elems.iter().enumerate() {
        put(env.memory, at + n as u64 * u64::from(size), size, t.elem(p, *e))?;
    }
    Ok(())
}

fn reduce(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let formatted = inst.has(Mod::p);
    let size = code.ty.bytes();
    let (image, at) = spot(env, t, (inst, &inst.operands[0]), (!formatted).then_some(size))?;
    let ty = match (formatted, size) {
        (false, _) => code.ty,
        // Of what the format says, the sign counts.
        _ if image.format.bytes() != size
            || image.format.reads_float()
            || image.format.element.bytes() != 4 =>
        {
            return Err("a reduction of samples of this format, which has no defined result".into());
        }
        (_, 4) if image.format.element.is_signed() => Type::s32,
        (_, 4) => Type::u32,
        _ if image.format.element.is_signed() => Type::s64,
        _ => Type::u64,
    };
    let Some(at) = at else { return Ok(()) };
    let b = t.read(env, &inst.operands[1], ty)?;
    let old = reader(env.memory)(at, size)?;
    let (x, y) = (int::value(old, ty), int::value(b, ty));
    let new = match inst.one_of(&[Mod::add, Mod::min, Mod::max, Mod::and, Mod::or]) {
        Some(Mod::add) => (x + y) as u64,
        Some(Mod::min) => x.min(y) as u64,
        Some(Mod::max) => x.max(y) as u64,
        Some(Mod::and) => old & b,
        _ => old | b,
    };
    put(env.memory, at, size, new & mask(ty))
}
