//! Copies of tiles of tensors by the copy engine: here, done at once.

use super::Fault;
use super::bulk::{blocks, cluster, pair};
use super::compile::{Unsupported, unsupported};
use super::mem::Space;
use super::operand::{Exec, Kind, Operands};
use super::state::Machine;
use crate::tensormap::{BYTES, Place, TensorMap, Walk};
use sass::Opcode;

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match o.inst.op {
        Opcode::UTMALDG => load(o)?,
        Opcode::UTMASTG => store(o, None)?,
        Opcode::UTMAREDG => {
            let operations =
                ["ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR"].map(|n| (n, n.to_ascii_lowercase()));
            let found = operations.into_iter().find(|(n, _)| o.take(n));
            let Some((_, operation)) = found else { return unsupported("this reduction") };
            store(o, Some(operation))?
        }
        _ => return Ok(None),
    }))
}

/// Which elements: coordinates of a tile, a column and four rows, or columns of pixels.
#[derive(Clone, Copy)]
struct Part {
    dims: usize,
    rows: bool,
    columns: Option<Columns>,
}

/// How columns of pixels are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    All,
    First,
    First128,
}

impl Part {
    fn of(o: &Operands<'_>) -> Result<Part, Unsupported> {
        let dims = o.choose(&[("1D", 1), ("2D", 2), ("3D", 3), ("4D", 4), ("5D", 5)]);
        let rows = o.take("GATHER4") | o.take("SCATTER4");
        let columns =
            o.choose(&[("IM2COL", Columns::All), ("W", Columns::First), ("W128", Columns::First128)]);
        dims.map_or_else(|| unsupported("this tile"), |dims| Ok(Part { dims, rows, columns }))
    }

    /// The walk that 16 bits speak of: the offsets of all dimensions, or how many pixels come behind and how far the box moves on.
    fn walk(self, columns: Columns, word: u16) -> Walk {
        match columns {
            Columns::All => {
                let bits = [16, 8, 5][(self.dims.max(3) - 3).min(2)];
                let one = |i: u32| (u32::from(word) >> (bits * i) & ((1 << bits) - 1)) as u16;
                Walk::All((0..self.dims.saturating_sub(2) as u32).map(one).collect())
            }
            _ => Walk::First { halo: word & 0x7ff, offset: word >> 11, fixed: columns == Columns::First128 },
        }
    }

    /// The map at the address in a pair of uniform registers, and the elements; the coordinates start at a register.
    fn places(
        self,
        m: &mut Machine<'_>,
        lane: usize,
        (map, first): (u8, usize),
        offsets: u16,
    ) -> Result<(TensorMap, Vec<Place>), Fault> {
        let (low, high) = super::bulk::words(m.warp, map);
        let mut image = [0; BYTES];
        // Where parameters start in their window, says nothing about alignment.
        for (i, part) in image.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            *part = m.read(Space::Generic, lane, (high << 32 | low) + 16 * i as u64)?;
        }
        let start: Vec<i32> =
            (0..if self.rows { 5 } else { self.dims }).map(|i| m.warp.ur[first + i] as i32).collect();
        let found = TensorMap::read(&image).and_then(|map| {
            let places = match self.columns {
                Some(columns) => map.columns(&start, &self.walk(columns, offsets)),
                None if self.rows => map.rows(start[0], &start[1..]),
                None => map.tile(&start),
            }?;
            Ok((map, places))
        });
        found.map_err(|e| Fault::at(lane, e.to_string()))
    }
}

/// A shared address, its barrier's and coordinates in consecutive registers; the map; a mask of blocks above 16 bits.
fn load(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (part, multicast) = (Part::of(o)?, o.take("MULTICAST"));
    o.ignore(&["2CTA"]);
    let (to, map) = (pair(o, 0)?, pair(o, 1)?);
    let mask = if multicast || part.columns.is_some() { Some(o.src(2, Kind::Int)?) } else { None };
    Ok(Box::new(move |m, lanes| {
        let lane = lanes.trailing_zeros() as usize & 31;
        let first = usize::from(to);
        let (shared, barrier) = (u64::from(m.warp.ur[first]), u64::from(m.warp.ur[first + 1]));
        let word = mask.as_ref().map_or(0, |s| s.uniform(m.warp));
        let (map, places) = part.places(m, lane, (map, first + 2), word as u16)?;
        let mask = if multicast { word >> 16 & 0xffff } else { 0 };
        aligned(lane, shared)?;
        let size = map.element_bytes();
        let to = blocks(m, lane, shared, mask)?;
        for (offset, from) in &places {
            let x = match from {
                Some(a) => m.load(Space::Global, lane, *a, size)?,
                None => 0,
            };
            for to in &to {
                let (space, at) = cluster(map.swizzled(to + offset));
                m.store(space, lane, at, size, x)?;
            }
        }
        for barrier in blocks(m, lane, barrier, mask)? {
            m.complete_bytes(lane, barrier, places.len() as i64 * i64::from(size))?;
        }
        Ok(())
    }))
}

/// A shared address and coordinates in consecutive registers; the map.
fn store(o: &Operands<'_>, operation: Option<String>) -> Result<Exec, Unsupported> {
    let part = Part::of(o)?;
    let (from, map) = (pair(o, 0)?, pair(o, 1)?);
    Ok(Box::new(move |m, lanes| {
        let lane = lanes.trailing_zeros() as usize & 31;
        let first = usize::from(from);
        let shared = u64::from(m.warp.ur[first]);
        // Nothing says offsets.
        let (map, places) = part.places(m, lane, (map, first + 1), 0)?;
        map.check_store().map_err(|e| Fault::at(lane, e.to_string()))?;
        aligned(lane, shared)?;
        let size = map.element_bytes();
        for (offset, to) in places {
            let x = m.load(Space::Shared, lane, map.swizzled(shared + offset), size)?;
            let Some(a) = to else { continue };
            let new = match &operation {
                Some(op) => {
                    let old = m.load(Space::Global, lane, a, size)?;
                    map.reduce(op, old, x)
                        .ok_or_else(|| Fault::at(lane, "no such reduction of these elements"))?
                }
                None => x,
            };
            m.store(Space::Global, lane, a, size, new)?;
        }
        Ok(())
    }))
}

fn aligned(lane: usize, shared: u64) -> Result<(), Fault> {
    match shared.is_multiple_of(128) {
        true => Ok(()),
        false => Err(Fault::at(lane, format!("a tile at the shared address {shared:#x}"))),
    }
}
