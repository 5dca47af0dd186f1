//! Surfaces: SULD, SUST, SURED.

use super::compile::{Unsupported, unsupported};
use super::mem::{self, Space};
use super::operand::{Exec, Operands, lanes};
use super::reach::Reach;
use super::state::{Machine, Warp};
use super::texture::{Handle, bytes, read};
use super::{Cause, Fault};
use crate::image::surface::{Outside, Spot};
use crate::image::{Geometry, Image};
use sass::{Opcode, Operand, RegFile};
use std::sync::Arc;

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match o.inst.op {
        Opcode::SULD | Opcode::SULD_U | Opcode::SULD_B => load(o)?,
        Opcode::SUST | Opcode::SUST_U | Opcode::SUST_B => store(o)?,
        Opcode::SURED | Opcode::SURED_U | Opcode::SURED_B => reduce(o)?,
        _ => return Ok(None),
    }))
}

/// Where an instruction reaches.
#[derive(Clone, Copy, Debug)]
struct Place {
    handle: Handle,
    /// Coordinates, then the number in an array.
    first: u8,
    dims: usize,
    array: bool,
    outside: Outside,
    /// The first coordinate counts bytes.
    by_bytes: bool,
}

impl Place {
    fn of(o: &Operands<'_>, address: usize, handle: usize) -> Result<Place, Unsupported> {
        let shapes = [
            ("1D", (1, false)),
            ("1D_ARRAY", (1, true)),
            ("2D", (2, false)),
            ("2D_ARRAY", (2, true)),
            ("3D", (3, false)),
        ];
        let Some((dims, array)) = o.choose(&shapes) else { return unsupported("this shape of a surface") };
        let first = match o.operand(address)? {
            Operand::Addr { base: Some(r), uniform: None, offset: 0, .. } if r.file == RegFile::R => r.index,
            other => return unsupported(format!("{other:?} where coordinates are expected")),
        };
        let by_bytes = o.take("BA");
        let outside = o.choose(&[("TRAP", Outside::Trap), ("IGN", Outside::Zero)]).unwrap_or(Outside::Clamp);
        o.ignore(&["STRONG", "CTA", "SM", "GPU", "SYS", "EF", "EL", "LU", "EU", "NA"]);
        Ok(Place { handle: Handle::of(o, handle, false)?, first, dims, array, outside, by_bytes })
    }

    /// The image, and the address of so many bytes; nothing outside.
    fn spot(self, m: &mut Machine<'_>, lane: usize, bytes: u32) -> Result<(Arc<Image>, Option<u64>), Fault> {
        let image = self.handle.image(m, lane, 0)?;
        let fits = match image.geometry {
            Geometry::D1 | Geometry::D2 | Geometry::D3 => !self.array,
            Geometry::Array1 | Geometry::Array2 => self.array,
            _ => false,
        };
        if !fits || image.geometry.dims() != self.dims {
            let what = format!("{} coordinates of an image that is {:?}", self.dims, image.geometry);
            return Err(Fault::at(lane, what));
        }
        let register = |w: &Warp, n: usize| match self.first {
            255 => 0,
            r => w.r[(usize::from(r) + n).min(255)][lane],
        };
        let mut at = [0; 3];
        for (n, c) in at.iter_mut().enumerate().take(self.dims) {
            *c = register(m.warp, n) as i32;
        }
        let layer = if self.array { register(m.warp, self.dims) } else { 0 };
        match image.spot(at, layer, self.by_bytes.then_some(bytes), self.outside) {
            Spot::At(a) => Ok((image, Some(a))),
            Spot::Nothing => Ok((image, None)),
            Spot::Trap => {
                let [width, height, depth] = image.size();
                let unit = if self.by_bytes { "bytes from" } else { "texel" };
                let layer = if self.array { format!(", layer {layer}") } else { String::new() };
                let what = format!(
                    "access outside of a surface: {unit} {:?}{layer} of {width} x {height} x {depth} texels of {} bytes \
                     in {} layers",
                    &at[..self.dims],
                    image.format.bytes(),
                    image.layers
                );
                Err(Fault::at(lane, what).because(Cause::Surface))
            }
            Spot::Misaligned => {
                let what =
                    format!("misaligned access to {bytes} bytes of a surface at byte {} of a row", at[0]);
                Err(Fault::at(lane, what).because(Cause::Misaligned))
            }
        }
    }
}

/// Writes the low bytes of a number; checks are told.
fn write(m: &mut Machine<'_>, lane: usize, at: u64, size: u32, x: u64) -> Result<(), Fault> {
    let from = &x.to_le_bytes()[..size as usize];
    let to = bytes(m, lane, at, size)?;
    let same = to == from;
    to.copy_from_slice(from);
    m.note(Space::Global, lane, (at, size), Some(same));
    Ok(())
}

/// What lanes wrote by one instruction: lane, address, value.
type Written = Vec<(usize, u64, [u64; 4])>;

/// Tells the check of lanes that write different texels to one place.
fn collisions(m: &mut Machine<'_>, written: &Written) {
    let (Some(c), Reach::Alone(memory)) = (&mut m.check, &m.memory) else { return };
    let other = |i: usize, a: u64, x: [u64; 4]| written[i..].iter().find(|b| b.1 == a && b.2 != x);
    let pair = written.iter().enumerate().find_map(|(i, a)| Some((a, other(i, a.1, a.2)?)));
    if let Some((a, b)) = pair {
        c.lanes_collide(memory, Space::Global, a.1, [a.0, b.0]);
    }
}

fn load(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if !o.take("D") {
        return unsupported("a surface read by its format");
    }
    let place = Place::of(o, 2, 3)?;
    if !place.by_bytes || !o.pred_dst(0)?.is_none() {
        return unsupported("this surface read");
    }
    let size = mem::size(o);
    let dst = o.dst(1, size.bytes.div_ceil(4) as u8)?;
    Ok(Box::new(move |m, mask| {
        lanes(mask).try_for_each(|lane| {
            let (_, at) = place.spot(m, lane, size.bytes)?;
            let mut all = [0; 16];
            if let Some(at) = at {
                let from = bytes(m, lane, at, size.bytes)?;
                all.iter_mut().zip(from.iter()).for_each(|(to, from)| *to = *from);
                m.note(Space::Global, lane, (at, size.bytes), None);
            }
            size.put(m.warp, dst, lane, &all);
            Ok(())
        })
    }))
}

fn store(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let formatted = o.take("P");
    if !formatted && !o.take("D") {
        return unsupported("this surface write");
    }
    let place = Place::of(o, 0, 2)?;
    if place.by_bytes == formatted {
        return unsupported("a surface write by bytes and by its format");
    }
    let data = match o.operand(1)? {
        Operand::Reg(r) if r.reg.file == RegFile::R => r.reg.index,
        other => return unsupported(format!("{other:?} where data is expected")),
    };
    let word = move |w: &Warp, n: u32, lane: usize| match data {
        255 => 0,
        r => w.r[(usize::from(r) + n as usize).min(255)][lane],
    };
    if formatted {
        let given = o.choose(&[("R", 1), ("RG", 2)]).unwrap_or(4);
        return Ok(Box::new(move |m, mask| {
            let mut written = Written::new();
            for lane in lanes(mask) {
                let (image, at) = place.spot(m, lane, 0)?;
                let Some(at) = at else { continue };
                let size = image.format.element.bytes();
                let mut texel = [0; 4];
                for n in 0..image.format.channels {
                    let x = if n < given { image.format.narrow(word(m.warp, n, lane)) } else { None };
                    texel[n as usize] = x.unwrap_or(0);
                    write(m, lane, at + u64::from(n * size), size, texel[n as usize])?;
                }
                if m.check.is_some() {
                    written.push((lane, at, texel));
                }
            }
            collisions(m, &written);
            Ok(())
        }));
    }
    let size = mem::size(o).bytes;
    Ok(Box::new(move |m, mask| {
        let mut written = Written::new();
        for lane in lanes(mask) {
            let (_, at) = place.spot(m, lane, size)?;
            let Some(at) = at else { continue };
            let mut texel = [0; 4];
            for n in 0..size.div_ceil(4) {
                let x = u64::from(word(m.warp, n, lane)) & (u64::MAX >> (64 - 8 * size.min(4)));
                texel[n as usize] = x;
                write(m, lane, at + u64::from(4 * n), size.min(4), x)?;
            }
            if m.check.is_some() {
                written.push((lane, at, texel));
            }
        }
        collisions(m, &written);
        Ok(())
    }))
}

/// What a reduction takes its operands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    No,
    Yes,
    /// As the format says.
    Format,
}

fn reduce(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if !o.take("D") {
        return unsupported("this reduction of a surface");
    }
    let place = Place::of(o, 0, 2)?;
    type Change = fn(i128, i128) -> i128;
    let operations: [(&str, Change); 6] = [
        ("ADD", |x, y| x + y),
        ("MIN", std::cmp::min),
        ("MAX", std::cmp::max),
        ("AND", |x, y| x & y),
        ("OR", |x, y| x | y),
        ("XOR", |x, y| x ^ y),
    ];
    // ADD is not spelled.
    let change = o.choose(&operations).unwrap_or(operations[0].1);
    let types = [
        ("S32", (4, Sign::Yes)),
        ("U64", (8, Sign::No)),
        ("S64", (8, Sign::Yes)),
        ("SD32", (4, Sign::Format)),
        ("SD64", (8, Sign::Format)),
    ];
    let (size, sign) = o.choose(&types).unwrap_or((4, Sign::No));
    let data = match o.operand(1)? {
        Operand::Reg(r) if r.reg.file == RegFile::R => r.reg.index,
        other => return unsupported(format!("{other:?} where data is expected")),
    };
    Ok(Box::new(move |m, mask| {
        lanes(mask).try_for_each(|lane| {
            let (image, at) = place.spot(m, lane, size)?;
            if !place.by_bytes && image.format.bytes() != size {
                return Err(Fault::at(lane, format!("a reduction of {size} bytes of {:?}", image.format)));
            }
            let Some(at) = at else { return Ok(()) };
            let word = |n: usize| match data {
                255 => 0,
                r => u64::from(m.warp.r[(usize::from(r) + n).min(255)][lane]),
            };
            let b = word(0) | if size == 8 { word(1) << 32 } else { 0 };
            let signed = match sign {
                Sign::Format => image.format.element.is_signed(),
                s => s == Sign::Yes,
            };
            let number = |x: u64| match (size, signed) {
                (4, true) => i128::from(x as i32),
                (4, false) => i128::from(x as u32),
                (_, true) => i128::from(x as i64),
                _ => i128::from(x),
            };
            let old = read(m, lane, at, size)?;
            write(m, lane, at, size, change(number(old), number(b)) as u64)
        })
    }))
}
