//! Memory instructions: loads, stores and atomics of every space.

use super::atomic::{atomic, compare_and_set};
use super::compile::{Unsupported, unsupported};
use super::operand::{Dst, Exec, From, Operands, PredDst, lanes};
use super::reach::{Bytes, Reach, Span};
use super::rows::{Row, put};
use super::spans::{self, Access};
use super::state::{LOCAL_WINDOW, Machine, SHARED_WINDOW, Warp};
use super::{Cause, Fault};
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
    pub(super) signed: bool,
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
    pub(super) fn put(self, w: &mut Warp, dst: Dst, lane: usize, bytes: &[u8; 16]) {
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
    let known = o.banks.slice(bank, at, len as usize);
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
            let from = m.env.banks.slice(bank, a, size.bytes as usize).ok_or_else(outside)?;
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
