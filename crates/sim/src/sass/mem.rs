//! Memory instructions: loads, stores and atomics of every space.

use super::compile::{Unsupported, unsupported};
use super::operand::{Dst, Exec, From, Kind, Operands, PredDst, Src, lanes};
use super::reach::{Bytes, Reach, Span};
use super::rows::{Row, put};
use super::spans::{self, Access};
use super::state::{LOCAL_WINDOW, Machine, SHARED_WINDOW, Warp};
use super::{Cause, Fault};
use crate::fp::{self, BF16, F16, F32, F64, Format, Round, Single};
use sass::{AddrWidth, ConstBank, Operand, RegFile};

/// An address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Global,
    Generic,
    Shared,
    Local,
}

/// An address operand.
#[derive(Clone, Copy)]
pub(super) struct Address {
    space: Space,
    base: Option<u8>,
    /// The base register is a 64-bit pair.
    base_wide: bool,
    /// Left shift of the base.
    scale: u32,
    uniform: Option<u8>,
    uniform_wide: bool,
    offset: i64,
}

impl Address {
    pub(super) fn of(o: &Operands<'_>, slot: usize, space: Space) -> Result<Address, Unsupported> {
        let Operand::Addr { desc: _, base, width, uniform, offset } = o.operand(slot)? else {
            return unsupported(format!("{:?} where an address is expected", o.operand(slot)?));
        };
        let wide = o.take("E") || matches!(width, AddrWidth::R64);
        let near = matches!(space, Space::Shared | Space::Local);
        if near && wide {
            return unsupported("a 64-bit address in this space");
        }
        let scale = match width {
            AddrWidth::X4 => 2,
            AddrWidth::X8 => 3,
            AddrWidth::X16 => 4,
            _ => 0,
        };
        let base_wide = wide && !matches!(width, AddrWidth::U32);
        // A lone uniform register may come as the base.
        let (base, uniform) = match (base, uniform) {
            (Some(r), None) if r.file == RegFile::UR => (None, Some(*r)),
            (b, u) => (*b, *u),
        };
        let (base, uniform) = (base.map(|r| r.index), uniform.map(|r| r.index));
        Ok(Address { space, base, base_wide, scale, uniform, uniform_wide: wide, offset: (*offset).into() })
    }

    pub(super) fn at(&self, w: &Warp, lane: usize) -> u64 {
        let mut a = self.offset as u64;
        if let Some(r) = self.base {
            let low = u64::from(w.r[r as usize][lane]);
            let high = if self.base_wide { u64::from(w.r[Warp::pair(r)][lane]) } else { 0 };
            a = a.wrapping_add((high << 32 | low) << self.scale);
        }
        if let Some(u) = self.uniform {
            let low = u64::from(w.ur[u as usize]);
            let high = if self.uniform_wide { u64::from(w.ur[Warp::pair(u)]) } else { 0 };
            a = a.wrapping_add(high << 32 | low);
        }
        match self.space {
            Space::Shared | Space::Local => a & 0xffff_ffff,
            _ => a,
        }
    }

    /// [`Address::at`] of all lanes.
    #[inline(always)]
    pub(super) fn row(&self, w: &Warp) -> [u64; 32] {
        let mut common = self.offset as u64;
        if let Some(u) = self.uniform {
            let high = if self.uniform_wide { u64::from(w.ur[Warp::pair(u)]) } else { 0 };
            common = common.wrapping_add(high << 32 | u64::from(w.ur[usize::from(u)]));
        }
        let mut all = [common; 32];
        if let Some(r) = self.base {
            let low = &w.r[usize::from(r)];
            if self.base_wide {
                for (a, (l, h)) in all.iter_mut().zip(low.iter().zip(&w.r[Warp::pair(r)])) {
                    *a = a.wrapping_add((u64::from(*h) << 32 | u64::from(*l)) << self.scale);
                }
            } else {
                all.iter_mut().zip(low).for_each(|(a, l)| *a = a.wrapping_add(u64::from(*l) << self.scale));
            }
        }
        if matches!(self.space, Space::Shared | Space::Local) {
            all.iter_mut().for_each(|a| *a &= 0xffff_ffff);
        }
        all
    }
}

impl Machine<'_> {
    /// The bytes of a lane's memory.
    fn bytes(&mut self, space: Space, lane: usize, a: u64, len: u32) -> Result<Span<'_>, Fault> {
        let near = space == Space::Shared;
        let (space, mut a) = match (space, (a >> 32) as u32) {
            (Space::Generic, SHARED_WINDOW) => (Space::Shared, a & 0xffff_ffff),
            (Space::Generic, LOCAL_WINDOW) => (Space::Local, a & 0xffff_ffff),
            _ => (space, a),
        };
        let (name, bytes) = match space {
            Space::Global | Space::Generic => {
                if !a.is_multiple_of(len.into()) {
                    let what = format!("misaligned access to {len} bytes at {a:#x}");
                    return Err(Fault::at(lane, what).because(Cause::Misaligned));
                }
                if self.check.is_some() && self.memory.slice_mut(a, len as usize).is_none() {
                    let place = self.memory.nearest(a);
                    let what = format!("access to {len} bytes at {a:#x}, which are not allocated: {place}");
                    return Err(Fault::at(lane, what).because(Cause::Address));
                }
                let bytes = self.memory.slice_mut(a, len as usize);
                return bytes.ok_or_else(|| {
                    let what = format!("access to {len} bytes at {a:#x}, which are not allocated");
                    Fault::at(lane, what).because(Cause::Address)
                });
            }
            Space::Shared => {
                // From sm_90 on the upper byte is the block's rank in its cluster; what reaches the block's own
                // memory only may leave it out.
                let named = (a >> 24) as usize;
                let own = self.block.rank;
                let rank = if near && named == 0 { own } else { named };
                let found = self.block.shared.get_mut(rank).filter(|_| !near || rank == own);
                let bytes =
                    found.ok_or_else(|| Fault::at(lane, format!("shared address {a:#x} is not in reach")))?;
                a &= 0xff_ffff;
                ("shared", &mut bytes[..])
            }
            Space::Local => {
                let size = self.env.local as usize;
                ("local", &mut self.warp.local[lane * size..(lane + 1) * size])
            }
        };
        if !a.is_multiple_of(len.into()) {
            let what = format!("misaligned access to {len} bytes at {name} address {a:#x}");
            return Err(Fault::at(lane, what).because(Cause::Misaligned));
        }
        let size = bytes.len();
        match usize::try_from(a).ok().and_then(|a| bytes.get_mut(a..a.checked_add(len as usize)?)) {
            Some(b) => Ok(Span::Own(b)),
            None => {
                let what =
                    format!("access to {len} bytes at {name} address {a:#x}, beyond its {size:#x} bytes");
                Err(Fault::at(lane, what).because(Cause::Address))
            }
        }
    }

    /// Whether an access of a lane finds memory.
    pub(super) fn reaches(&mut self, space: Space, lane: usize, (a, len): (u64, u32)) -> bool {
        self.bytes(space, lane, a, len).is_ok()
    }
    /// N bytes of a lane's memory, of which the check was told.
    pub(super) fn read_unnoticed<const N: usize>(
        &mut self,
        space: Space,
        lane: usize,
        a: u64,
    ) -> Result<[u8; N], Fault> {
        Ok(self.bytes(space, lane, a, N as u32)?.get(0))
    }
    /// N bytes of a lane's memory.
    pub(super) fn read<const N: usize>(
        &mut self,
        space: Space,
        lane: usize,
        a: u64,
    ) -> Result<[u8; N], Fault> {
        let bytes = self.bytes(space, lane, a, N as u32)?.get(0);
        if self.check.is_some() {
            self.note(space, lane, (a, N as u32), None);
        }
        Ok(bytes)
    }
    /// Writes N bytes of a lane's memory.
    pub(super) fn write<const N: usize>(
        &mut self,
        space: Space,
        lane: usize,
        a: u64,
        bytes: [u8; N],
    ) -> Result<(), Fault> {
        let checked = self.check.is_some();
        let mut to = self.bytes(space, lane, a, N as u32)?;
        if !checked {
            to.put(0, bytes);
            return Ok(());
        }
        let before: [u8; N] = to.get(0);
        to.put(0, bytes);
        self.note(space, lane, (a, N as u32), Some(before == bytes));
        Ok(())
    }
    /// A number of 1, 2, 4 or 8 bytes.
    pub(super) fn load(&mut self, space: Space, lane: usize, a: u64, len: u32) -> Result<u64, Fault> {
        Ok(match len {
            1 => self.read::<1>(space, lane, a)?[0].into(),
            2 => u16::from_le_bytes(self.read(space, lane, a)?).into(),
            4 => u32::from_le_bytes(self.read(space, lane, a)?).into(),
            _ => u64::from_le_bytes(self.read(space, lane, a)?),
        })
    }
    /// Writes one.
    pub(super) fn store(&mut self, space: Space, lane: usize, a: u64, len: u32, x: u64) -> Result<(), Fault> {
        match len {
            1 => self.write(space, lane, a, [x as u8]),
            2 => self.write(space, lane, a, (x as u16).to_le_bytes()),
            4 => self.write(space, lane, a, (x as u32).to_le_bytes()),
            _ => self.write(space, lane, a, x.to_le_bytes()),
        }
    }
    /// Makes a number another one, without others in between; what it was.
    pub(super) fn update(
        &mut self,
        (space, len): (Space, u32),
        lane: usize,
        a: u64,
        f: impl Fn(u64) -> u64,
    ) -> Result<u64, Fault> {
        // The lock is of what blocks on other processors reach, not of the machine.
        let others = self.memory.others().filter(|_| matches!(space, Space::Global | Space::Generic));
        let _alone = others.map(|o| o.lock(a));
        let old = self.load(space, lane, a, len)?;
        self.store(space, lane, a, len, f(old))?;
        Ok(old)
    }

    /// Tells the check of an access of a lane: a read, or a write, of what was there before or not.
    pub(super) fn note(&mut self, space: Space, lane: usize, (a, len): (u64, u32), write: Option<bool>) {
        if let (Some(c), Reach::Alone(memory)) = (&mut self.check, &mut self.memory) {
            let kind = (write.is_some(), write == Some(true));
            c.access(memory, (space, self.env.local), lane, (a, len), kind);
        }
    }
}

/// Modifiers that say how caches and other threads see the access: no effect on a machine that does one
/// access after the other.
const ORDERING: &[&str] = &[
    "SYS", "GPU", "CTA", "SM", "VC", "STRONG", "WEAK", "CONSTANT", "PRIVATE", "MMIO", "EF", "EL", "LU", "EU",
    "NA", "LTC64B", "LTC128B", "LTC256B",
];

/// The space that a load, store or atomic operation names.
pub(super) fn space_of(name: &str) -> Option<Space> {
    Some(match name {
        "LDG.256" | "STG.256" | "LDG" | "LDGMC" | "STG" | "ATOMG" | "REDG" => Space::Global,
        // RED takes generic addresses on sm_75 and sm_80 with REDG not yet split off.
        "LD" | "ST" | "ATOM" | "RED" => Space::Generic,
        "LDS" | "STS" | "ATOMS" | "ATOMS.CAST" => Space::Shared,
        "LDL" | "STL" => Space::Local,
        _ => return None,
    })
}

/// Prepares a memory instruction; `None` if it isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    let Some(space) = space_of(name) else {
        return match name {
            "LDC" | "LDCU" | "ULDC" => load_constant(o).map(Some),
            "LDGSTS" => copy(o).map(Some),
            _ => Ok(None),
        };
    };
    o.ignore(ORDERING);
    Ok(Some(match name {
        "LDG.256" => load_256(o)?,
        "STG.256" => store_256(o)?,
        "LDG" | "LD" => load(o, space, Some(o.pred_dst(0)?), 1, 2)?,
        "LDS" | "LDL" => load(o, space, None, 0, 1)?,
        "LDGMC" => load_reduced(o)?,
        "STG" | "ST" | "STS" | "STL" => store(o, space)?,
        "ATOMG" | "ATOM" => atomic(o, space, Some(0), Some(1), 2)?,
        "ATOMS" => atomic(o, space, None, Some(0), 1)?,
        "ATOMS.CAST" => {
            let address = Address::of(o, 1, space)?;
            o.take("CAST");
            compare_and_set(o, (space, address), Some(0), None, 1)?
        }
        _ => atomic(o, space, None, None, 0)?,
    }))
}

/// Width of an access: bytes per register, registers, sign extension.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) bytes: u32,
    signed: bool,
}

pub(super) fn size(o: &Operands<'_>) -> Size {
    let table = [
        ("U8", Size { bytes: 1, signed: false }),
        ("S8", Size { bytes: 1, signed: true }),
        ("U16", Size { bytes: 2, signed: false }),
        ("S16", Size { bytes: 2, signed: true }),
        ("64", Size { bytes: 8, signed: false }),
        ("128", Size { bytes: 16, signed: false }),
        ("32", Size { bytes: 4, signed: false }),
    ];
    o.choose(&table).unwrap_or(Size { bytes: 4, signed: false })
}

impl Size {
    fn registers(self) -> u8 {
        (self.bytes as u8).div_ceil(4)
    }
    /// What register `n` gets of the bytes read.
    fn word(self, bytes: &[u8; 16], n: u8) -> u32 {
        let i = 4 * usize::from(n);
        let word = u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        match (self.bytes, self.signed) {
            (1, true) => word as i8 as u32,
            (1, _) => word & 0xff,
            (2, true) => word as i16 as u32,
            (2, _) => word & 0xffff,
            _ => word,
        }
    }
    /// Writes the bytes read.
    fn put(self, w: &mut Warp, dst: Dst, lane: usize, bytes: &[u8; 16]) {
        (0..self.registers()).for_each(|n| dst.word(w, lane, n, self.word(bytes, n)));
    }
}

fn load(
    o: &Operands<'_>,
    space: Space,
    pred: Option<PredDst>,
    dst: usize,
    addr: usize,
) -> Result<Exec, Unsupported> {
    o.ignore(&["U"]);
    load_bytes(o, space, size(o), pred, (dst, addr))
}

/// LDGMC: a load from a multicast object, here of one device, so that there is nothing to reduce.
fn load_reduced(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["ADD", "MIN", "MAX", "AND", "OR", "XOR", "F32ADD", "HPADD", "RN"]);
    let words = ["32", "S32", "F32", "F16x2", "BF16x2", "E4M3x4", "E5M2x4"];
    let pairs = ["64", "S64", "F64", "F32x2", "F16x4", "BF16x4", "E4M3x8", "E5M2x8"];
    let quads = ["F32x4", "F16x8", "BF16x8", "E4M3x16", "E5M2x16"];
    let sizes: [(u32, &[&str]); 3] = [(4, &words), (8, &pairs), (16, &quads)];
    let found = sizes.into_iter().find(|(_, names)| names.iter().any(|n| o.take(n)));
    let Some((bytes, _)) = found else { return unsupported("a reduction of these elements") };
    load_bytes(o, Space::Global, Size { bytes, signed: false }, None, (0, 1))
}

fn load_bytes(
    o: &Operands<'_>,
    space: Space,
    size: Size,
    pred: Option<PredDst>,
    (dst, addr): (usize, usize),
) -> Result<Exec, Unsupported> {
    let (dst, address) = (o.dst(dst, size.registers())?, Address::of(o, addr, space)?);
    if !dst.is_uniform() && pred.is_none_or(|p| !p.is_uniform()) {
        let access = Access { space, address, pred };
        let dst = dst.index();
        return Ok(match (size.bytes, size.signed) {
            (1, false) => spans::load(access, dst, |[b]: [u8; 1]| [b.into()]),
            (1, true) => spans::load(access, dst, |[b]: [u8; 1]| [b as i8 as u32]),
            (2, false) => spans::load(access, dst, |b: [u8; 2]| [u16::from_le_bytes(b).into()]),
            (2, true) => spans::load(access, dst, |b: [u8; 2]| [i16::from_le_bytes(b) as u32]),
            (4, _) => spans::load(access, dst, |b: [u8; 4]| [u32::from_le_bytes(b)]),
            (8, _) => spans::load::<8, 2>(access, dst, spans::words),
            _ => spans::load::<16, 4>(access, dst, spans::words),
        });
    }
    Ok(Box::new(move |m, mask| {
        let mut results = [[0u8; 16]; 32];
        for lane in lanes(mask) {
            let a = address.at(m.warp, lane);
            if size.bytes == 16 {
                results[lane] = m.read(space, lane, a)?;
            } else {
                results[lane][..8].copy_from_slice(&m.load(space, lane, a, size.bytes)?.to_le_bytes());
            }
        }
        for lane in lanes(mask) {
            size.put(m.warp, dst, lane, &results[lane]);
            if let Some(p) = pred {
                p.put(m.warp, lane, true);
            }
        }
        Ok(())
    }))
}

/// Two quads, the lower addresses in the second one, address, mask of the words wanted.
fn load_256(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(HINTS_256);
    let (high, low, address) = (o.dst(0, 4)?, o.dst(1, 4)?, Address::of(o, 2, Space::Global)?);
    let wanted = o.imm(3)? as usize;
    if !o.operand(4)?.as_reg().is_some_and(|r| r.reg.is_zero() && !r.not) {
        return unsupported("a load with a predicate");
    }
    Ok(Box::new(move |m, mask| {
        let addresses: [u64; 32] = std::array::from_fn(|lane| address.at(m.warp, lane));
        for lane in lanes(mask) {
            let bytes: [u8; 32] = m.read(Space::Global, lane, addresses[lane])?;
            // The wanted words of each half are in consecutive registers.
            for (dst, first) in [(low, 0), (high, 4)] {
                let words = (first..first + 4).filter(|i| wanted >> i & 1 != 0);
                for (n, i) in words.enumerate() {
                    let word = crate::memory::little_endian(&bytes[4 * i..4 * i + 4]);
                    dst.word(m.warp, lane, n as u8, word as u32);
                }
            }
        }
        Ok(())
    }))
}

/// Address, two quads, the lower addresses first, mask of the words to write.
fn store_256(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(HINTS_256);
    let (address, low, high) = (Address::of(o, 0, Space::Global)?, data(o, 1)?, data(o, 2)?);
    if o.imm(3)? & 0xff != 0xff {
        return unsupported("a masked store");
    }
    Ok(Box::new(move |m, mask| {
        for lane in lanes(mask) {
            let a = address.at(m.warp, lane);
            let word = |i: usize| {
                let r = if i < 4 { low } else { high };
                m.warp.r[if r == 255 { 255 } else { usize::from(r) + i % 4 }][lane].to_le_bytes()
            };
            let bytes: [u8; 32] = std::array::from_fn(|i| word(i / 4)[i % 4]);
            m.write(Space::Global, lane, a, bytes)?;
        }
        Ok(())
    }))
}

/// Hints of accesses to 32 bytes.
const HINTS_256: &[&str] =
    &["256", "ENL2", "EFL2", "ELL2", "EUL2", "NAL2", "EF", "EL", "NA", "CONSTANT", "EN", "LU", "EU"];

/// Registers of a store's or atomic's data operand.
pub(super) fn data(o: &Operands<'_>, slot: usize) -> Result<u8, Unsupported> {
    let s = o.raw(slot)?;
    match s.from {
        From::Reg(r) => Ok(r),
        _ => unsupported("a data operand that is no general register"),
    }
}

fn store(o: &Operands<'_>, space: Space) -> Result<Exec, Unsupported> {
    let size = size(o);
    let (address, data) = (Address::of(o, 0, space)?, data(o, 1)?);
    let access = Access { space, address, pred: None };
    Ok(match size.bytes {
        1 => spans::store(access, data, |[x]: [u32; 1]| [x as u8]),
        2 => spans::store(access, data, |[x]: [u32; 1]| (x as u16).to_le_bytes()),
        4 => spans::store(access, data, |[x]: [u32; 1]| x.to_le_bytes()),
        8 => spans::store::<8, 2>(access, data, spans::bytes),
        _ => spans::store::<16, 4>(access, data, spans::bytes),
    })
}

fn load_constant(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let size = size(o);
    let dst = o.dst(0, size.registers())?;
    let Operand::Const { bank: ConstBank::Index(bank), index, offset, neg: false, abs: false, not: false } =
        o.operand(1)?
    else {
        return unsupported("this constant operand");
    };
    let (bank, offset, index) = (*bank, *offset, *index);
    let index = index.filter(|r| !r.is_zero());
    let (at, len) = (offset as u32, size.bytes);
    let known = o.banks.slice(bank, at.into(), len as usize);
    if let (None, Some(bytes), true, false) = (index, known, at.is_multiple_of(len), dst.is_uniform()) {
        let mut all = [0; 16];
        all[..bytes.len()].copy_from_slice(bytes);
        if dst.index() == sass::Reg::ZERO {
            return Ok(Box::new(|_, _| Ok(())));
        }
        let words = (0..size.registers()).map(|n| [size.word(&all, n); 32]);
        let rows: Vec<Row> = words.collect();
        return Ok(Box::new(move |m, mask| {
            let first = usize::from(dst.index());
            rows.iter().enumerate().for_each(|(n, row)| put(m.warp, first + n, mask, row));
            Ok(())
        }));
    }
    Ok(Box::new(move |m, mask| {
        let mask = if dst.is_uniform() { 1 } else { mask };
        for lane in lanes(mask) {
            let i = match index {
                None => 0,
                Some(r) if r.file == RegFile::UR => m.warp.ur[r.index as usize],
                Some(r) => m.warp.r[r.index as usize][lane],
            };
            let a = i.wrapping_add(offset as u32);
            let outside = || {
                Fault::at(
                    lane,
                    format!("read of {} bytes at c[{bank:#x}][{a:#x}], beyond the bank", size.bytes),
                )
            };
            if a % size.bytes != 0 {
                return Err(Fault::at(lane, format!("misaligned read of c[{bank:#x}][{a:#x}]")));
            }
            let from = m.env.banks.slice(bank, a.into(), size.bytes as usize).ok_or_else(outside)?;
            let mut bytes = [0; 16];
            bytes[..from.len()].copy_from_slice(from);
            size.put(m.warp, dst, lane, &bytes);
        }
        Ok(())
    }))
}

/// LDGSTS: copies from global to shared memory, at once. With ZFILL, a source address that is off by `n` bytes
/// leaves `n` bytes to be filled with zeros; so does the predicate with all of them.
fn copy(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(ORDERING);
    o.ignore(&["BYPASS"]);
    let fill = o.take("ZFILL");
    let size = size(o).bytes;
    let from = Address::of(o, 1, Space::Global)?;
    // `.E` is about the source.
    let to = Address {
        space: Space::Shared,
        base_wide: false,
        uniform_wide: false,
        ..Address::of(o, 0, Space::Global)?
    };
    let pred = o.pred(2)?;
    Ok(Box::new(move |m, mask| {
        let reads = pred.mask(m.warp);
        for lane in lanes(mask) {
            let (a, d) = (from.at(m.warp, lane), to.at(m.warp, lane));
            let missing = if fill { a % u64::from(size) } else { 0 };
            let mut bytes = [0u8; 16];
            if reads >> lane & 1 != 0 {
                let n = (u64::from(size) - missing) as usize;
                let all = match size {
                    16 => m.read(Space::Global, lane, a - missing)?,
                    _ => u128::from(m.load(Space::Global, lane, a - missing, size)?).to_le_bytes(),
                };
                bytes[..n].copy_from_slice(&all[..n]);
            }
            match size {
                16 => m.write(Space::Shared, lane, d, bytes)?,
                _ => m.store(Space::Shared, lane, d, size, crate::memory::little_endian(&bytes[..8]))?,
            }
        }
        Ok(())
    }))
}

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
fn compare_and_set(
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
fn atomic(
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
