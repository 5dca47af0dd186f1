//! Texture fetches: TEX, TLD, TLD4, TXD, and TXQ.
//!
//! They take two vectors of up to four registers, which hold in this order: the number in an array, coordinates; the
//! handle if it is in a register, the sample, the level, offsets, the depth to compare. With SCR the whole list is dealt to
//! both, the larger half to the first. TXD has the handle in front of the first vector, the number in the array behind the
//! coordinates, with the offsets in its upper half, and the derivatives by turns in the second.

use super::Fault;
use super::compile::{Unsupported, unsupported};
use super::image::Banks;
use super::mem::Space;
use super::operand::{Dst, Exec, Operands, PredDst, lanes};
use super::reach::Reach;
use super::state::{Machine, Warp};
use crate::fp::{self, F16, F32, Round};
use crate::image::format::Words;
use crate::image::sample::{Coords, Lod, Request};
use crate::image::{Geometry, Image, Images};
use crate::memory::little_endian;
use sass::{Inst, Opcode, Operand, RegFile};
use smallvec::SmallVec;
use std::sync::Arc;

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    if let Some(what) = What::of(o.inst.op) {
        let f = Fetch::of(o, what)?;
        return Ok(Some(Box::new(move |m, mask| lanes(mask).try_for_each(|lane| f.run(m, lane)))));
    }
    match o.inst.op {
        Opcode::TXQ | Opcode::TXQ_U | Opcode::TXQ_B => query(o).map(Some),
        _ => Ok(None),
    }
}

/// How many general registers a thread needs for a fetch or a query: the last one that it names, + 1. The table has vectors of
/// two or four for sources and results, of which those count that the list fills and the mask asks for (ptxas 13.0.88 ends
/// vectors behind the last register stated).
pub(super) fn registers(inst: &Inst, banks: &Banks) -> Option<u32> {
    let o = Operands::new(inst, banks);
    if matches!(inst.op, Opcode::TXQ | Opcode::TXQ_U | Opcode::TXQ_B) {
        let listed = inst.op == Opcode::TXQ_B;
        let results = o.imm(if listed { 4 } else { 6 }).ok()?.count_ones();
        let (high, low) = (o.dst(0, 2).ok()?.index(), o.dst(1, 2).ok()?.index());
        return end(&[
            (vector(&o, 2).ok()?, 1 + u32::from(listed)),
            (low, results.min(2)),
            (high, results.saturating_sub(2)),
        ]);
    }
    let f = Fetch::of(&o, What::of(inst.op)?).ok()?;
    let (first, second) = f.lengths();
    let results = if f.halves { f.channels.count_ones().div_ceil(2) } else { f.channels.count_ones() };
    let (low, high) =
        if f.halves { (results.min(1), results / 2) } else { (results.min(2), results.saturating_sub(2)) };
    end(&[(f.first, first as u32), (f.second, second as u32), (f.low.index(), low), (f.high.index(), high)])
}

/// The end of the last of vectors: their first registers and lengths.
fn end(vectors: &[(u8, u32)]) -> Option<u32> {
    let there = vectors.iter().filter(|(r, n)| *r != sass::Reg::ZERO && *n != 0);
    there.map(|(r, n)| u32::from(*r) + n).max()
}

/// Where a handle is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handle {
    /// Its lower word is known.
    Known(u32),
    /// In a uniform register; textures take a pair, the upper one for the number of a sampler of its own, or 0.
    Uniform(u8, bool),
    /// In a register of each lane.
    Register(u8),
    /// The next register of a vector.
    Listed,
}

impl Handle {
    /// The handle at an operand and behind it, in constant bank 0 or in uniform registers.
    pub(super) fn of(o: &Operands<'_>, slot: usize, pair: bool) -> Result<Handle, Unsupported> {
        match o.operand(slot)? {
            Operand::Reg(r) if r.reg.file == RegFile::UR => {
                let none = match o.operand(slot + 1)? {
                    Operand::Imm(n) => *n == 0,
                    Operand::Reg(r) => r.reg.is_zero(),
                    _ => false,
                };
                if none {
                    Ok(Handle::Uniform(r.reg.index, pair))
                } else {
                    unsupported("a sampler of its own")
                }
            }
            Operand::Reg(r) if r.reg.file == RegFile::R => Ok(Handle::Register(r.reg.index)),
            Operand::Imm(bank) => {
                let (bank, word) = (*bank, o.imm(slot + 1)?);
                let read = u8::try_from(bank).ok().and_then(|b| o.banks.read(b, 4 * word, 4));
                match read {
                    Some(h) => Ok(Handle::Known(h as u32)),
                    None => unsupported(format!("a handle outside of constant bank {bank}")),
                }
            }
            other => unsupported(format!("{other:?} where a handle is expected")),
        }
    }

    /// The image for a lane.
    pub(super) fn image(self, m: &mut Machine<'_>, lane: usize, listed: u32) -> Result<Arc<Image>, Fault> {
        let (number, apart) = match self {
            Handle::Known(n) => (n, None),
            Handle::Uniform(r, true) => {
                (m.warp.ur[usize::from(r)], Some(m.warp.ur[Warp::pair(r)] & Images::upper_sampler(u32::MAX)))
            }
            Handle::Uniform(r, false) => (m.warp.ur[usize::from(r)], None),
            Handle::Register(r) => (m.warp.r[usize::from(r)][lane], None),
            Handle::Listed => (listed, None),
        };
        let sampler = apart.unwrap_or_else(|| Images::upper_sampler(number));
        match &m.memory {
            Reach::Alone(memory) => {
                let found = memory.images.sampled(number, sampler);
                found.map_err(|e| Fault::at(lane, e).because(super::Cause::Address))
            }
            Reach::Among(_) => Err(Fault::at(lane, "images of blocks that run side by side")),
        }
    }
}

/// Memory that an image is bound to.
pub(super) fn bytes<'m>(
    m: &'m mut Machine<'_>,
    lane: usize,
    at: u64,
    size: u32,
) -> Result<&'m mut [u8], Fault> {
    let Reach::Alone(memory) = &mut m.memory else {
        return Err(Fault::at(lane, "images of blocks that run side by side"));
    };
    if memory.slice(at, size as usize).is_none() && memory.slice_mut(at, size as usize).is_none() {
        let place = if m.check.is_some() { format!(": {}", memory.nearest(at)) } else { String::new() };
        let what = format!("an image reaches {size} bytes at {at:#x}, where no memory is{place}");
        return Err(Fault::at(lane, what).because(super::Cause::Address));
    }
    memory.slice_mut(at, size as usize).ok_or_else(|| Fault::at(lane, "memory of an image is gone"))
}

/// Reads a part of a texel; checks are told.
pub(super) fn read(m: &mut Machine<'_>, lane: usize, at: u64, size: u32) -> Result<u64, Fault> {
    let x = little_endian(bytes(m, lane, at, size)?);
    m.note(Space::Global, lane, (at, size), None);
    Ok(x)
}

/// What an instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Sample,
    Texel,
    Gather,
    Derivatives,
}

impl What {
    fn of(op: Opcode) -> Option<What> {
        Some(match op {
            Opcode::TEX | Opcode::TEX_U | Opcode::TEX_B => What::Sample,
            Opcode::TLD | Opcode::TLD_U | Opcode::TLD_B => What::Texel,
            Opcode::TLD4 | Opcode::TLD4_U | Opcode::TLD4_B => What::Gather,
            Opcode::TXD | Opcode::TXD_U | Opcode::TXD_B => What::Derivatives,
            _ => return None,
        })
    }
}

/// A dimension as instructions name it: how many coordinates, and whether an array.
#[derive(Clone, Copy, Debug)]
struct Dim {
    coords: usize,
    array: bool,
    cube: bool,
}

impl Dim {
    fn of(number: u32) -> Result<Dim, Unsupported> {
        let dim = |coords, array, cube| Ok(Dim { coords, array, cube });
        match number {
            0 => dim(1, false, false),
            1 => dim(2, false, false),
            2 => dim(3, false, false),
            3 => dim(3, false, true),
            4 => dim(1, true, false),
            5 => dim(2, true, false),
            7 => dim(3, true, true),
            _ => unsupported("a texture of this dimension"),
        }
    }

    /// Whether an image can be accessed so. A row is a rectangle of one row as well, for what filters.
    fn fits(self, image: &Image, what: What, samples: bool) -> bool {
        let g = image.geometry;
        let row = g == Geometry::D1 && self.coords == 2 && matches!(what, What::Sample | What::Derivatives);
        let dims = if self.cube { 2 } else { self.coords };
        let same = g.dims() == dims || row;
        same && g.is_cube() == self.cube && g.is_array() == self.array && g.has_samples() == samples
    }
}

/// The level of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Base,
    Given,
}

/// A fetch, decoded.
struct Fetch {
    what: What,
    missing: PredDst,
    /// Two registers each.
    high: Dst,
    low: Dst,
    /// The first registers of the vectors.
    first: u8,
    second: u8,
    /// The list is dealt to both.
    dealt: bool,
    dim: Dim,
    channels: u32,
    handle: Handle,
    level: Level,
    samples: bool,
    offsets: bool,
    depth: bool,
    halves: bool,
    channel: usize,
}

/// The first register of a vector; RZ if there is none.
fn vector(o: &Operands<'_>, slot: usize) -> Result<u8, Unsupported> {
    match o.operand(slot)? {
        Operand::Reg(r) if r.reg.file == RegFile::R => Ok(r.reg.index),
        other => unsupported(format!("{other:?} where a vector is expected")),
    }
}

impl Fetch {
    fn of(o: &Operands<'_>, what: What) -> Result<Fetch, Unsupported> {
        let channel = match what {
            What::Gather => {
                // It stands in front of the B of a handle in a register.
                o.choose(&[("R", 0usize), ("G", 1), ("A", 3)]).or_else(|| o.take("B").then_some(2))
            }
            _ => None,
        };
        let listed = matches!(o.inst.op, Opcode::TEX_B | Opcode::TLD_B | Opcode::TLD4_B | Opcode::TXD_B);
        let at = 5;
        let (handle, dim) = match listed {
            true => {
                o.take("B");
                (Handle::Listed, o.imm(at)?)
            }
            false => (Handle::of(o, at, true)?, o.imm(at + 2)?),
        };
        let mask = o.imm(if listed { at + 1 } else { at + 3 })?;
        let halves = o.take("F16");
        if halves && !o.take("RN") {
            return unsupported("halves in this rounding");
        }
        let given = o.take("LL");
        let zero = o.take("LZ");
        let level = match (what, given, zero) {
            (What::Sample | What::Texel, true, false) => Level::Given,
            // Threads of a kernel have no neighbours to take a level from (ptxas 13.0.88 for sm_120).
            (What::Sample, false, _)
            | (What::Texel, false, true)
            | (What::Gather | What::Derivatives, false, false) => Level::Base,
            _ => return unsupported("this level of detail"),
        };
        let f = Fetch {
            what,
            missing: o.pred_dst(0)?,
            high: o.dst(1, 2)?,
            low: o.dst(2, 2)?,
            first: vector(o, 3)?,
            second: vector(o, 4)?,
            dealt: o.take("SCR"),
            dim: Dim::of(dim)?,
            channels: mask,
            handle,
            level,
            samples: o.take("MS"),
            offsets: o.take("AOFFI"),
            depth: o.take("DC"),
            halves,
            channel: channel.unwrap_or(0),
        };
        if what == What::Gather && channel.is_none() {
            return unsupported("a gather of no channel");
        }
        o.ignore(&["NODEP", "CL", "EF", "EL", "LU", "EU", "NA"]);
        Ok(f)
    }

    /// How many registers of each vector hold something.
    fn lengths(&self) -> (usize, usize) {
        let listed = usize::from(matches!(self.handle, Handle::Listed));
        let array = usize::from(self.dim.array);
        if self.what == What::Derivatives {
            let first = listed + self.dim.coords + usize::from(self.dim.array || self.offsets);
            return (first, 2 * self.dim.coords);
        }
        let numbers = array + self.dim.coords;
        let rest = listed
            + usize::from(self.samples)
            + usize::from(self.level == Level::Given)
            + usize::from(self.offsets)
            + usize::from(self.depth);
        let first = if self.dealt { (numbers + rest).div_ceil(2) } else { numbers };
        (first, numbers + rest - first)
    }

    /// The registers of the list, in its order.
    fn list(&self, w: &Warp, lane: usize) -> SmallVec<[u32; 8]> {
        let register = |r: u8, n: usize| match r {
            255 => 0,
            r => w.r[(usize::from(r) + n).min(255)][lane],
        };
        let (first, second) = self.lengths();
        let all = (0..first).map(|n| register(self.first, n));
        all.chain((0..second).map(|n| register(self.second, n))).collect()
    }

    fn run(&self, m: &mut Machine<'_>, lane: usize) -> Result<(), Fault> {
        let list = self.list(m.warp, lane);
        let mut words = list.iter().copied();
        let mut next = || words.next().unwrap_or(0);
        let mut handle = 0;
        let (mut layer, mut sample, mut offsets, mut depth) = (0, 0, 0, None);
        let mut at = [0u32; 3];
        let mut lod = Lod::Base;
        let listed = matches!(self.handle, Handle::Listed);
        if self.what == What::Derivatives {
            if listed {
                handle = next();
            }
            at[..self.dim.coords].iter_mut().for_each(|c| *c = next());
            if self.dim.array || self.offsets {
                let both = next();
                layer = both & 0xffff;
                offsets = both >> 16;
            }
            let mut d = [[0f32; 3]; 2];
            for i in 0..self.dim.coords {
                d.iter_mut().for_each(|d| d[i] = f32::from_bits(next()));
            }
            lod = Lod::Gradients(d);
        } else {
            if self.dim.array {
                layer = next();
            }
            at[..self.dim.coords].iter_mut().for_each(|c| *c = next());
            if listed {
                handle = next();
            }
            if self.samples {
                sample = next();
            }
            if self.level == Level::Given {
                let level = next();
                lod = if self.what == What::Texel {
                    Lod::Number(level as i32)
                } else {
                    Lod::At(f32::from_bits(level))
                };
            }
            if self.offsets {
                offsets = next();
            }
            if self.depth {
                depth = Some(f32::from_bits(next()));
            }
        }
        let image = self.handle.image(m, lane, handle)?;
        if !self.dim.fits(&image, self.what, self.samples) {
            let what = format!("{:?} of an image that is {:?}", self.dim, image.geometry);
            return Err(Fault::at(lane, what));
        }
        if image.geometry == Geometry::D1 && self.dim.coords == 2 && f32::from_bits(at[1]) != 0.0 {
            return Err(Fault::at(lane, "a row that is fetched as a rectangle, not at 0"));
        }
        let coords = match self.what {
            What::Texel => Coords::Texels(at.map(|c| c as i32)),
            _ => Coords::Float(at.map(f32::from_bits)),
        };
        // Of each offset four bits count, of those of TLD4 six of eight.
        let (step, bits) = if self.what == What::Gather { (8, 6) } else { (4, 4) };
        let offset = |d: u32| (offsets >> (step * d) << (32 - bits)) as i32 >> (32 - bits);
        let offsets = [0, 1, 2].map(|d| if (d as usize) < image.geometry.dims() { offset(d) } else { 0 });
        let r = Request { layer, sample, lod, offsets, depth, ..Request::at(coords) };
        let mut reader = |at, size| read(m, lane, at, size);
        let found = match self.what {
            What::Gather => image.gather(&r, self.channel, &mut reader)?,
            _ => image.fetch(&r, &mut reader)?,
        };
        self.put(m.warp, lane, found.unwrap_or_default());
        Ok(())
    }

    /// Writes the channels of the mask, one register after another, the first two to the lower pair.
    fn put(&self, w: &mut Warp, lane: usize, found: Words) {
        let wanted = (0..4).filter(|n| self.channels >> n & 1 != 0);
        let all: SmallVec<[u32; 4]> = wanted.map(|n| found[n].unwrap_or(0)).collect();
        let half = |w: Option<&u32>| {
            fp::convert(w.copied().unwrap_or(0).into(), F32, F16, Round::Nearest) as u32 & 0xffff
        };
        let all: SmallVec<[u32; 4]> = match self.halves {
            true => all.chunks(2).map(|p| half(p.first()) | half(p.get(1)) << 16).collect(),
            false => all,
        };
        for (n, x) in all.iter().enumerate() {
            // Two registers of halves are one each.
            let (pair, part) = if self.halves { (n, 0) } else { (n / 2, n % 2) };
            let to = if pair == 0 { self.low } else { self.high };
            to.word(w, lane, part as u8, *x);
        }
        self.missing.put(w, lane, false);
    }
}

/// The driver's function for volumes and cubes: the handle in R4 and R5, the coordinates with the number in the array in
/// front from R8 on, the derivatives from R12 on and on the stack; whether the texels were in memory comes back in R4,
/// and they behind it.
pub(super) fn by_derivatives(
    m: &mut Machine<'_>,
    lane: usize,
    (geometry, halves): (Geometry, bool),
) -> Result<(), Fault> {
    let register = |m: &Machine<'_>, r: usize| m.warp.r[r][lane];
    let image = Handle::Listed.image(m, lane, register(m, 4))?;
    if image.geometry != geometry {
        let what = format!("derivatives for {geometry:?} of an image that is {:?}", image.geometry);
        return Err(Fault::at(lane, what));
    }
    let array = usize::from(geometry.is_array());
    let at = [0, 1, 2].map(|i| f32::from_bits(register(m, 8 + array + i)));
    let dx = [0, 1, 2].map(|i| f32::from_bits(register(m, 12 + i)));
    let stack = u64::from(register(m, 1));
    let mut dy = [0.0; 3];
    for (i, d) in dy.iter_mut().enumerate() {
        *d = f32::from_bits(m.load(Space::Local, lane, stack + 4 * i as u64, 4)? as u32);
    }
    let layer = if array == 1 { register(m, 8) } else { 0 };
    let r = Request { layer, lod: Lod::Gradients([dx, dy]), ..Request::at(Coords::Float(at)) };
    let found = image.fetch(&r, &mut |at, size| read(m, lane, at, size))?.unwrap_or_default();
    m.warp.r[4][lane] = 1;
    let words = found.map(|w| w.unwrap_or(0));
    let half = |w: u32| fp::convert(w.into(), F32, F16, Round::Nearest) as u32;
    for i in 0..if halves { 2 } else { 4 } {
        m.warp.r[5 + i][lane] =
            if halves { half(words[2 * i]) | half(words[2 * i + 1]) << 16 } else { words[i] };
    }
    Ok(())
}

/// TXQ: sizes of a level.
fn query(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let listed = o.inst.op == Opcode::TXQ_B;
    if o.imm(3)? != 0 {
        return unsupported("a query of something else than dimensions");
    }
    let handle = if listed { Handle::Listed } else { Handle::of(o, 4, true)? };
    let mask = o.imm(if listed { 4 } else { 6 })?;
    let (high, low, source) = (o.dst(0, 2)?, o.dst(1, 2)?, vector(o, 2)?);
    o.ignore(&["B", "NODEP"]);
    Ok(Box::new(move |m, active| {
        lanes(active).try_for_each(|lane| {
            let register = |w: &Warp, n: usize| match source {
                255 => 0,
                r => w.r[(usize::from(r) + n).min(255)][lane],
            };
            let number = register(m.warp, 0);
            let level = register(m.warp, usize::from(listed));
            let image = handle.image(m, lane, number)?;
            let sizes = [0, 1, 2].map(|d| image.extent(level, d).unwrap_or(0));
            let all = [sizes[0], sizes[1], sizes[2], image.levels.len() as u32];
            for (n, i) in (0..4).filter(|i| mask >> i & 1 != 0).enumerate() {
                let to = if n < 2 { low } else { high };
                to.word(m.warp, lane, (n % 2) as u8, all[i]);
            }
            Ok(())
        })
    }))
}
