//! Atomic operations on memory: one word, vectors, exchanges of 128 bits, arrivals in groups.

use super::Fault;
use super::compile::{Unsupported, unsupported};
use super::mem::{Address, Size, Space, data};
use super::operand::{Exec, Kind, Operands, Src, lanes};
use super::state::{Machine, SHARED_WINDOW, Warp};
use crate::fp::{self, BF16, F16, F32, F64, Format, Round, Single};
use sass::Operand;

/// What an atomic makes of the old value, the operand and (CAS) the second operand.
pub(super) type Update = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

pub(super) fn update(o: &Operands<'_>, bytes: u32, cas: bool) -> Result<Update, Unsupported> {
    let signed = o.take("S32") | o.take("S64");
    o.ignore(&["U32", "U64"]);
    if cas {
        return Ok(Box::new(|old, cmp, new| if old == cmp { new } else { old }));
    }
    let wide = bytes == 8;
    if o.take("ADD") {
        o.ignore(&["RN"]);
        if o.take("F32") {
            let op = Single { ftz: o.take("FTZ"), ..Single::default() };
            return Ok(Box::new(move |old, x, _| op.add(old as u32, x as u32).into()));
        }
        if o.take("F64") {
            return Ok(Box::new(|old, x, _| fp::add(old, x, F64, Round::Nearest)));
        }
        if o.take("F16x2") {
            let half = |a: u64, b: u64, f: Format| fp::add(a & 0xffff, b & 0xffff, f, Round::Nearest);
            return Ok(Box::new(move |old, x, _| half(old, x, F16) | half(old >> 16, x >> 16, F16) << 16));
        }
        if o.take("BF16x2") {
            let half = |a: u64, b: u64, f: Format| fp::add(a & 0xffff, b & 0xffff, f, Round::Nearest);
            return Ok(Box::new(move |old, x, _| half(old, x, BF16) | half(old >> 16, x >> 16, BF16) << 16));
        }
        // Bulk reductions count single halves.
        if let Some(f) = o.choose(&[("F16", F16), ("BF16", BF16)]) {
            return Ok(Box::new(move |old, x, _| fp::add(old, x, f, Round::Nearest)));
        }
        return Ok(Box::new(u64_add));
    }
    if let Some(f) = o.choose(&[("F16x2", F16), ("BF16x2", BF16)]) {
        o.ignore(&["RN"]);
        let Some(max) = o.choose(&[("MIN", false), ("MAX", true)]) else {
            return unsupported("this operation on halves");
        };
        return Ok(Box::new(move |old, x, _| {
            let half =
                |at: u32| super::float::extremum(f, old >> at & 0xffff, x >> at & 0xffff, !max, false) << at;
            half(0) | half(16)
        }));
    }
    if bytes == 2 {
        return unsupported("this reduction of halves");
    }
    // A signed comparison is an unsigned one with the sign bit flipped.
    let flip = match (signed, wide) {
        (true, true) => 1 << 63,
        (true, false) => 1 << 31,
        _ => 0,
    };
    let ops: &[(&str, u8)] =
        &[("MIN", 0), ("MAX", 1), ("INC", 2), ("DEC", 3), ("AND", 4), ("OR", 5), ("XOR", 6), ("EXCH", 7)];
    Ok(match o.choose(ops) {
        Some(0) => Box::new(move |old, x, _| if old ^ flip <= x ^ flip { old } else { x }),
        Some(1) => Box::new(move |old, x, _| if old ^ flip >= x ^ flip { old } else { x }),
        Some(2) => Box::new(|old, x, _| if old >= x { 0 } else { old + 1 }),
        Some(3) => Box::new(|old, x, _| if old == 0 || old > x { x } else { old - 1 }),
        Some(4) => Box::new(|old, x, _| old & x),
        Some(5) => Box::new(|old, x, _| old | x),
        Some(6) => Box::new(|old, x, _| old ^ x),
        Some(7) => Box::new(|_, x, _| x),
        _ => return unsupported("an atomic operation"),
    })
}

fn u64_add(old: u64, x: u64, _: u64) -> u64 {
    old.wrapping_add(x)
}

/// Registers full of numbers: their format and how many.
const VECTORS: &[(&str, (Format, usize))] = &[
    ("F32x2", (F32, 2)),
    ("F32x4", (F32, 4)),
    ("F16x4", (F16, 4)),
    ("F16x8", (F16, 8)),
    ("BF16x4", (BF16, 4)),
    ("BF16x8", (BF16, 8)),
];

/// An atomic on each number of a vector.
fn vector_atomic(
    o: &Operands<'_>,
    (space, address): (Space, Address),
    (format, count): (Format, usize),
    (pred, dst, addr): (Option<usize>, Option<usize>, usize),
) -> Result<Exec, Unsupported> {
    o.ignore(&["RN"]);
    let ftz = o.take("FTZ");
    let Some(op) = o.choose(&[("ADD", 0), ("MIN", 1), ("MAX", 2)]) else {
        return unsupported("this atomic operation on a vector");
    };
    let bytes = count as u32 * format.bits() / 8;
    let pred = pred.map(|p| o.pred_dst(p)).transpose()?;
    let dst = dst.map(|d| o.dst(d, (bytes / 4) as u8)).transpose()?;
    let first = data(o, addr + 1)?;
    Ok(Box::new(move |m, mask| {
        let addresses: [u64; 32] = std::array::from_fn(|lane| address.at(m.warp, lane));
        for lane in lanes(mask) {
            let word =
                |w: &Warp, i: usize| w.r[if first == 255 { 255 } else { usize::from(first) + i }][lane];
            let mut all = [0u8; 16];
            for i in 0..count as u64 {
                let size = format.bits() / 8;
                let at = i * u64::from(size);
                let x = u64::from(word(m.warp, at as usize / 4)) >> (at % 4 * 8)
                    & (u64::MAX >> (64 - format.bits()));
                let old = m.load(space, lane, addresses[lane] + at, size)?;
                let flush = |x| if ftz { format.flush(x) } else { x };
                let new = match op {
                    0 => flush(fp::add(flush(old), flush(x), format, Round::Nearest)),
                    _ => super::extremum(format, old, x, op == 1, false),
                };
                m.store(space, lane, addresses[lane] + at, size, new)?;
                all[at as usize..(at as usize + size as usize)]
                    .copy_from_slice(&old.to_le_bytes()[..size as usize]);
            }
            if let Some(d) = dst {
                Size { bytes, signed: false }.put(m.warp, d, lane, &all);
            }
            if let Some(p) = pred {
                p.put(m.warp, lane, true);
            }
        }
        Ok(())
    }))
}

/// Compares and swaps, and says 1 where that was done: hardware may also fail without a reason.
pub(super) fn compare_and_set(
    o: &Operands<'_>,
    (space, address): (Space, Address),
    pred: Option<usize>,
    dst: Option<usize>,
    addr: usize,
) -> Result<Exec, Unsupported> {
    o.ignore(&["SPIN"]);
    let (kind, bytes) = if o.take("64") { (Kind::Long, 8) } else { (Kind::Int, 4) };
    let pred = pred.map(|p| o.pred_dst(p)).transpose()?;
    // The result is in a register, or where there is none, in the predicate.
    let dst = dst.map(|d| o.dst(d, bytes as u8 / 4)).transpose()?;
    let (expected, new) = (o.src(addr + 1, kind)?, o.src(addr + 2, kind)?);
    Ok(Box::new(move |m, mask| {
        let (mut xs, mut ys) = ([0; 32], [0; 32]);
        expected.fetch(m.warp, &mut xs);
        new.fetch(m.warp, &mut ys);
        let addresses: [u64; 32] = std::array::from_fn(|lane| address.at(m.warp, lane));
        for lane in lanes(mask) {
            let old = m.load(space, lane, addresses[lane], bytes)?;
            if old == xs[lane] {
                m.store(space, lane, addresses[lane], bytes, ys[lane])?;
            }
            let done = old == xs[lane];
            if let Some(d) = dst {
                d.put(m.warp, lane, done.into());
            }
            if let Some(p) = pred {
                p.put(m.warp, lane, done || dst.is_some());
            }
        }
        Ok(())
    }))
}

impl Machine<'_> {
    /// An arrival at a barrier of sm_80; its state before.
    pub(super) fn arrive_80(&mut self, lane: usize, at: u64) -> Result<u64, Fault> {
        let old = self.load(Space::Shared, lane, at, 8)?;
        let (low, high) = (old as u32, (old >> 32) as u32);
        let mut next = high.wrapping_add(1);
        if (next ^ high) >> 31 != 0 {
            next = next & 1 << 31 | low.wrapping_add(1 << 30) & !(1 << 31);
        }
        self.store(Space::Shared, lane, at, 8, u64::from(next) << 32 | u64::from(low))?;
        Ok(old)
    }
}

/// ATOMS.ARRIVE of sm_80: the high word counts up to its sign bit, the phase, and starts again from the low
/// word, which is 2^30 less the expected arrivals.
fn arrive(o: &Operands<'_>, address: Address) -> Result<Exec, Unsupported> {
    o.ignore(&["64"]);
    let dst = o.dst(0, 2)?;
    Ok(Box::new(move |m, mask| {
        let addresses: [u64; 32] = std::array::from_fn(|lane| address.at(m.warp, lane));
        for lane in lanes(mask) {
            let old = m.arrive_80(lane, addresses[lane])?;
            dst.put(m.warp, lane, old);
        }
        Ok(())
    }))
}

/// Exchange or compare-and-swap of 16 bytes.
fn wide_exchange(
    o: &Operands<'_>,
    (space, address): (Space, Address),
    cas: bool,
    (pred, dst, addr): (Option<usize>, Option<usize>, usize),
) -> Result<Exec, Unsupported> {
    o.ignore(&["128"]);
    if !cas && !o.take("EXCH") {
        return unsupported("an atomic operation on 16 bytes");
    }
    let pred = pred.map(|p| o.pred_dst(p)).transpose()?;
    let dst = dst.map(|d| o.dst(d, 4)).transpose()?;
    let first = data(o, addr + 1)?;
    let new = if cas { data(o, addr + 2)? } else { first };
    let quad = |w: &Warp, r: u8, lane: usize| -> [u8; 16] {
        let word = |i: usize| w.r[if r == 255 { 255 } else { usize::from(r) + i }][lane].to_le_bytes();
        std::array::from_fn(|i| word(i / 4)[i % 4])
    };
    Ok(Box::new(move |m, mask| {
        let addresses: [u64; 32] = std::array::from_fn(|lane| address.at(m.warp, lane));
        for lane in lanes(mask) {
            let (expected, new) = (quad(m.warp, first, lane), quad(m.warp, new, lane));
            let old: [u8; 16] = m.read(space, lane, addresses[lane])?;
            if !cas || old == expected {
                m.write(space, lane, addresses[lane], new)?;
            }
            if let Some(d) = dst {
                Size { bytes: 16, signed: false }.put(m.warp, d, lane, &old);
            }
            if let Some(p) = pred {
                p.put(m.warp, lane, true);
            }
        }
        Ok(())
    }))
}

/// An atomic: predicate and result slots where the form has them, then address, operand, second operand.
pub(super) fn atomic(
    o: &Operands<'_>,
    space: Space,
    pred: Option<usize>,
    dst: Option<usize>,
    addr: usize,
) -> Result<Exec, Unsupported> {
    let address = Address::of(o, addr, space)?;
    let cas = o.take("CAS");
    if let Some(element) = o.choose(VECTORS) {
        return vector_atomic(o, (space, address), element, (pred, dst, addr));
    }
    if o.take("CAST") {
        return compare_and_set(o, (space, address), pred, dst, addr);
    }
    if o.take("ARRIVE") {
        return arrive(o, address);
    }
    if o.inst.mods.iter().any(|m| m.name() == "128") {
        return wide_exchange(o, (space, address), cas, (pred, dst, addr));
    }
    if o.take("POPC") {
        // The count of lanes that name an address is added to it: one for each lane.
        if !o.take("INC") {
            return unsupported("this population count");
        }
        o.ignore(&["32"]);
        let dst = dst.map(|d| o.operand(d)).transpose()?.and_then(Operand::as_reg);
        if dst.is_some_and(|r| !r.reg.is_zero()) {
            return unsupported("the result of a population count");
        }
        return Ok(Box::new(move |m, mask| {
            for lane in lanes(mask) {
                let a = address.at(m.warp, lane);
                m.update((space, 4), lane, a, |old| u64_add(old, 1, 0))?;
            }
            Ok(())
        }));
    }
    let bytes = if o.take("64") || o.inst.mods.iter().any(|m| matches!(m.name(), "F64" | "S64" | "U64")) {
        8
    } else {
        4
    };
    // Shared memory has only exchanges and 32-bit integer operations; a generic access there says so.
    let float = o.inst.mods.iter().any(|m| matches!(m.name(), "F32" | "F64" | "F16x2" | "BF16x2"));
    let exchange = cas || o.inst.mods.iter().any(|m| m.name() == "EXCH");
    let global_only = space == Space::Generic && pred.is_some() && !exchange && (float || bytes == 8);
    let update = update(o, bytes, cas)?;
    let width = bytes as u8 / 4;
    let pred = pred.map(|p| o.pred_dst(p)).transpose()?;
    let dst = dst.map(|d| o.dst(d, width)).transpose()?;
    let kind = if bytes == 8 { Kind::Long } else { Kind::Int };
    let x = o.src(addr + 1, kind)?;
    let y = if cas { o.src(addr + 2, kind)? } else { x };
    let lane_value = |s: &Src, w: &Warp| {
        let mut v = [0; 32];
        s.fetch(w, &mut v);
        v
    };
    Ok(Box::new(move |m, mask| {
        let (xs, ys) = (lane_value(&x, m.warp), lane_value(&y, m.warp));
        let addresses: [u64; 32] = std::array::from_fn(|lane| address.at(m.warp, lane));
        for lane in lanes(mask) {
            let a = addresses[lane];
            if global_only && (a >> 32) as u32 == SHARED_WINDOW {
                if let Some(p) = pred {
                    p.put(m.warp, lane, false);
                }
                continue;
            }
            let old = m.update((space, bytes), lane, a, |old| update(old, xs[lane], ys[lane]))?;
            if let Some(d) = dst {
                d.put(m.warp, lane, old);
            }
            if let Some(p) = pred {
                p.put(m.warp, lane, true);
            }
        }
        Ok(())
    }))
}
