//! Bulk copies, reductions and stores that tell a barrier in shared memory when they are done: here, at once.

use super::Fault;
use super::atomic;
use super::compile::{Unsupported, unsupported};
use super::mem::{self, Space};
use super::operand::{Exec, Kind, Operands, lanes};
use super::state::{Machine, SHARED_WINDOW, Warp};
use crate::memory::in_blocks;
use sass::{Opcode, Operand, RegFile};

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match o.inst.op {
        Opcode::UBLKCP => copy(o)?,
        Opcode::UBLKRED => reduce(o)?,
        Opcode::STAS | Opcode::REDAS => store(o)?,
        Opcode::UGETNEXTWORKID => cancel(o)?,
        Opcode::UMEMSETS => fill(o)?,
        Opcode::USTGR | Opcode::UREDGR => store_uniform(o)?,
        _ => return Ok(None),
    }))
}

/// The uniform register pair of an address.
pub(super) fn pair(o: &Operands<'_>, slot: usize) -> Result<u8, Unsupported> {
    match o.operand(slot)? {
        Operand::Addr { base: Some(r), uniform: None, offset: 0, .. } if r.file == RegFile::UR => Ok(r.index),
        Operand::Addr { base: None, uniform: Some(r), offset: 0, .. } => Ok(r.index),
        _ => unsupported("this address of a bulk copy"),
    }
}

/// Shared memory of any block of the cluster.
pub(super) fn cluster(at: u64) -> (Space, u64) {
    (Space::Generic, u64::from(SHARED_WINDOW) << 32 | at)
}

pub(super) fn words(w: &Warp, r: u8) -> (u64, u64) {
    (w.ur[usize::from(r)].into(), w.ur[Warp::pair(r)].into())
}

/// The places that a write to a shared address reaches: that one, or the same in each block of the cluster that a
/// mask names.
pub(super) fn blocks(m: &Machine<'_>, lane: usize, at: u64, mask: u64) -> Result<Vec<u64>, Fault> {
    if mask == 0 {
        return Ok(vec![at]);
    }
    in_blocks(at, mask, m.block.shared.len()).map_err(|why| Fault::at(lane, why.to_string()))
}

/// A shared address, a value (zero), a count of so many bytes.
fn fill(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (to, value, count) = (pair(o, 0)?, o.src(1, Kind::Int)?, o.src(2, Kind::Int)?);
    if !o.take("64") {
        return unsupported("a fill of this size");
    }
    Ok(Box::new(move |m, mask| {
        let lane = mask.trailing_zeros() as usize & 31;
        let (to, count) = (words(m.warp, to).0, count.uniform(m.warp));
        if value.uniform(m.warp) != 0 {
            return Err(Fault::at(lane, "a fill with something else than zeros"));
        }
        (0..count).try_for_each(|i| m.store(Space::Shared, lane, to + 8 * i, 8, 0))
    }))
}

/// A global address, and what is stored there or added to it.
fn store_uniform(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["E", "NA", "STRONG", "MMIO", "GPU", "SYS"]);
    let sizes = [("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2), ("64", 8), ("U64", 8), ("S64", 8), ("32", 4)];
    let bytes: u32 = o.choose(&sizes).unwrap_or(4);
    let update = if o.inst.op == Opcode::UREDGR { Some(atomic::update(o, bytes, false)?) } else { None };
    let Operand::Addr { base, uniform, offset, .. } = *o.operand(0)? else {
        return unsupported("this address");
    };
    let Some(to) = base.or(uniform) else { return unsupported("this address") };
    let (to, value) = (to.index, o.src(1, if bytes == 8 { Kind::Long } else { Kind::Int })?);
    Ok(Box::new(move |m, mask| {
        let lane = mask.trailing_zeros() as usize & 31;
        let (low, high) = words(m.warp, to);
        let at = (high << 32 | low).wrapping_add_signed(offset.into());
        let x = value.uniform(m.warp);
        let new = match &update {
            Some(f) => f(m.load(Space::Global, lane, at, bytes)?, x, 0),
            None => x,
        };
        m.store(Space::Global, lane, at, bytes, new)
    }))
}

/// Where the answer goes, its barrier: there never is a cluster left that could be called off.
fn cancel(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let Some(all) = o.choose(&[("SELFCAST", false), ("BROADCAST", true)]) else {
        return unsupported("this request");
    };
    let (to, barrier) = (pair(o, 0)?, pair(o, 1)?);
    Ok(Box::new(move |m, mask| {
        let lane = mask.trailing_zeros() as usize & 31;
        let mask = if all { (1 << m.block.shared.len()) - 1 } else { 0 };
        let (to, barrier) = (words(m.warp, to).0, words(m.warp, barrier).0);
        for to in blocks(m, lane, to, mask)? {
            let (space, to) = cluster(to);
            m.write(space, lane, to, [0; 16])?;
        }
        for barrier in blocks(m, lane, barrier, mask)? {
            m.complete_bytes(lane, barrier, 16)?;
        }
        Ok(())
    }))
}

/// Destination, source, size in units of 16 bytes. A destination in shared memory has its barrier's address in
/// the second register.
fn copy(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["LTC64B", "LTC128B", "LTC256B", "SEQUENCED"]);
    let (multicast, masked) = (o.take("MULTICAST"), o.take("DST_G_BYTE_MASK"));
    let (Some(to), Some(from)) = (o.next(), o.next()) else { return unsupported("this bulk copy") };
    let (to_shared, from_shared) = (to == "S", from == "S");
    let (to, from, size) = (pair(o, 0)?, pair(o, 1)?, o.src(2, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let lane = mask.trailing_zeros() as usize & 31;
        let (low, high) = words(m.warp, to);
        let (from_low, from_high) = words(m.warp, from);
        let size = size.uniform(m.warp);
        // The upper half says which blocks of the cluster, or which bytes of every 16.
        let (units, mask) = (size & 0xffff, size >> 16 & 0xffff);
        let named = if multicast { mask } else { 0 };
        let copied = if masked { mask } else { 0xffff };
        for i in 0..units {
            let source = if from_shared { from_low } else { from_high << 32 | from_low } + 16 * i;
            let from_space = if from_shared { Space::Shared } else { Space::Global };
            let bytes: [u8; 16] = m.read(from_space, lane, source)?;
            let targets = if to_shared { blocks(m, lane, low, named)? } else { vec![high << 32 | low] };
            for target in targets {
                let (space, target) = if to_shared { cluster(target) } else { (Space::Global, target) };
                let target = target + 16 * i;
                if copied == 0xffff {
                    m.write(space, lane, target, bytes)?;
                    continue;
                }
                for (k, byte) in (0..).zip(bytes).filter(|(k, _)| copied >> k & 1 != 0) {
                    m.write(space, lane, target + k, [byte])?;
                }
            }
        }
        if to_shared {
            for barrier in blocks(m, lane, high, named)? {
                m.complete_bytes(lane, barrier, 16 * units as i64)?;
            }
        }
        Ok(())
    }))
}

/// Bytes of an element of a reduction, and whether two share a register.
fn element(o: &Operands<'_>) -> u32 {
    let mut names = o.inst.mods.iter().map(|m| m.name());
    match names.find(|n| matches!(*n, "U64" | "S64" | "F64" | "F16" | "BF16")) {
        Some("F16" | "BF16") => 2,
        Some(_) => 8,
        None => 4,
    }
}

/// Destination, source in shared memory, size in units of 16 bytes: element by element. A destination in shared memory has its
/// barrier's address in the second register.
fn reduce(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (Some(to), Some("S")) = (o.next(), o.next()) else { return unsupported("this bulk reduction") };
    let to_shared = to == "S";
    let bytes = element(o);
    let update = atomic::update(o, bytes, false)?;
    let (to, from, size) = (pair(o, 0)?, pair(o, 1)?, o.src(2, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let lane = mask.trailing_zeros() as usize & 31;
        let (low, high) = words(m.warp, to);
        let source = words(m.warp, from).0;
        let count = (size.uniform(m.warp) & 0xffff) * 16 / u64::from(bytes);
        let (space, first) = if to_shared { cluster(low) } else { (Space::Global, high << 32 | low) };
        for i in 0..count {
            let at = first + i * u64::from(bytes);
            let x = m.load(Space::Shared, lane, source + i * u64::from(bytes), bytes)?;
            let old = m.load(space, lane, at, bytes)?;
            m.store(space, lane, at, bytes, update(old, x, 0))?;
        }
        if to_shared { m.complete_bytes(lane, high, (count * u64::from(bytes)) as i64) } else { Ok(()) }
    }))
}

/// Address (shared, and the barrier's in the second register), data.
fn store(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let bytes: u32 = o.choose(&[("64", 8), ("128", 16)]).unwrap_or(4);
    let update = if o.inst.op == Opcode::REDAS { Some(atomic::update(o, bytes, false)?) } else { None };
    let Operand::Addr { base: Some(base), uniform: None, offset, .. } = o.operand(0)? else {
        return unsupported("this address of an asynchronous store");
    };
    let (base, offset) = (*base, *offset);
    let data = mem::data(o, 1)?;
    Ok(Box::new(move |m: &mut Machine<'_>, mask| {
        lanes(mask).try_for_each(|lane| {
            let value = |m: &Machine<'_>, i: usize| {
                m.warp.r[if data == 255 { 255 } else { usize::from(data) + i }][lane]
            };
            let at = m.warp.r[usize::from(base.index)][lane].wrapping_add_signed(offset);
            let (space, at) = cluster(at.into());
            let barrier = m.warp.r[Warp::pair(base.index)][lane].into();
            match &update {
                Some(f) => {
                    let high = if bytes == 8 { u64::from(value(m, 1)) << 32 } else { 0 };
                    let x = u64::from(value(m, 0)) | high;
                    let old = m.load(space, lane, at, bytes)?;
                    m.store(space, lane, at, bytes, f(old, x, 0))?;
                }
                None => {
                    let words: Vec<u32> = (0..bytes as usize / 4).map(|i| value(m, i)).collect();
                    match words[..] {
                        [a, b, c, d] => {
                            m.write(space, lane, at, super::spans::bytes::<16, 4>([a, b, c, d]))?
                        }
                        [a, b] => m.write(space, lane, at, super::spans::bytes::<8, 2>([a, b]))?,
                        _ => m.store(space, lane, at, bytes, words[0].into())?,
                    }
                }
            }
            m.complete_bytes(lane, barrier, bytes.into())
        })
    }))
}
