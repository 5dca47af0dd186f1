//! Tensor memory: loads, stores, products, and who may use which columns. Everything is done at once.

use super::Fault;
use super::compile::{Unsupported, unsupported};
use super::mem::Space;
use super::operand::{Exec, Operands};
use super::state::{Machine, Warp};
use crate::matrix::{Extra, Product};
use crate::tmem::{self, Copies, Mma, Shape, Source, Tmem, TmemError};
use sass::{Opcode, Operand, RegFile};

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    use Opcode::*;
    Ok(Some(match o.inst.op {
        LDTM => transfer(o, true)?,
        STTM => transfer(o, false)?,
        UTCATOMSWS_FIND => take(o)?,
        UTCATOMSWS => keep(o)?,
        UTCBAR => commit(o)?,
        UTCCP => copy(o)?,
        UTCSHIFT => shift(o)?,
        UTCOMMA | UTCOMMA_T | UTCHMMA | UTCHMMA_T | UTCIMMA | UTCIMMA_T | UTCQMMA | UTCQMMA_T
        | UTCQMMA_SF | UTCQMMA_SF_T => product(o)?,
        _ => return Ok(None),
    }))
}

/// The uniform register of an operand, and what is added to it.
fn base(o: &Operands<'_>, slot: usize) -> Result<(u8, u32), Unsupported> {
    match o.operand(slot)? {
        Operand::Addr { base: Some(r), uniform: None, offset, .. } if r.file == RegFile::UR => {
            Ok((r.index, *offset as u32))
        }
        Operand::Addr { base: None, uniform: Some(r), offset, .. } => Ok((r.index, *offset as u32)),
        Operand::Reg(r) if r.reg.file == RegFile::UR && !r.neg && !r.not => Ok((r.reg.index, 0)),
        _ => unsupported("this operand of tensor memory"),
    }
}

/// A uniform register; URZ is 0.
fn word(w: &Warp, r: u8) -> u32 {
    if r == 255 { 0 } else { w.ur[usize::from(r)] }
}

fn pair_of(w: &Warp, r: u8) -> u64 {
    if r == 255 { 0 } else { u64::from(w.ur[usize::from(r) + 1]) << 32 | u64::from(w.ur[usize::from(r)]) }
}

fn whole(mask: u32) -> Result<(), Fault> {
    if mask == u32::MAX {
        Ok(())
    } else {
        Err(Fault::warp(format!("tensor memory by the lanes {mask:#x} only")))
    }
}

/// Does something with the memory of the block, or of its pair, and what reads the shared memory of each.
fn with(
    m: &mut Machine<'_>,
    pair: bool,
    f: impl FnOnce(&mut [Tmem], &mut dyn FnMut(usize, u64, u32) -> Result<u64, Fault>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut all = std::mem::take(&mut m.block.tmem);
    let rank = m.block.rank;
    let done = tmem::of_block(&mut all, rank, pair).map_err(Into::into).and_then(|memory| {
        f(memory, &mut |block, at, size| {
            let (space, at) = match pair {
                true => super::bulk::cluster((((rank & !1) + block) as u64) << 24 | at),
                false => (Space::Shared, at),
            };
            m.load(space, 0, at, size)
        })
    });
    m.block.tmem = all;
    done
}

/// The block's own memory.
fn own<'a>(m: &'a mut Machine<'_>) -> Result<&'a mut Tmem, TmemError> {
    let rank = m.block.rank;
    Ok(&mut tmem::of_block(&mut m.block.tmem, rank, false)?[0])
}

/// Registers and a place, or the other way.
fn transfer(o: &Operands<'_>, loads: bool) -> Result<Exec, Unsupported> {
    let shapes = [
        ("16dp64bit", Shape::Bits64),
        ("16dp128bit", Shape::Bits128),
        ("16dp256bit", Shape::Bits256),
        ("16dp32bit_t0_t15", Shape::Half(false)),
        ("16dp32bit_t16_t31", Shape::Half(true)),
    ];
    let shape = o.choose(&shapes).unwrap_or(Shape::Lanes32);
    let counts = [("x2", 2), ("x4", 4), ("x8", 8), ("x16", 16), ("x32", 32), ("x64", 64), ("x128", 128)];
    o.choose(&counts);
    let halves = o.take("PACK16BIT") | o.take("EXPAND16BIT");
    let (registers, place) = if loads { (0, 1) } else { (1, 0) };
    let count = o.inst.op.width(registers, &o.inst.mods);
    let Operand::Reg(r) = o.operand(registers)? else { return unsupported("registers for tensor memory") };
    let first = r.reg.index;
    let (at, offset) = base(o, place)?;
    Ok(Box::new(move |m, mask| {
        whole(mask)?;
        let place = (word(m.warp, at).wrapping_add(offset), m.warp.number, shape);
        for lane in 0..32usize {
            let fault = |e: TmemError| Fault::at(lane, e.to_string());
            if loads {
                let words = own(m).and_then(|t| t.load(place, lane as u32, count.into(), halves));
                for (i, x) in words.map_err(fault)?.into_iter().flatten().enumerate() {
                    if first != 255 {
                        m.warp.r[usize::from(first) + i][lane] = x;
                    }
                }
            } else {
                let w = &m.warp;
                let register = |i: u8| if first == 255 { 0 } else { w.r[usize::from(first + i)][lane] };
                let words: Vec<u32> = (0..count).map(register).collect();
                own(m).and_then(|t| t.store(place, lane as u32, &words, halves)).map_err(fault)?;
            }
        }
        Ok(())
    }))
}

/// UP, UR, URn: takes n slots; whether there were so many, and the first.
fn take(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["FIND_AND_SET"]);
    let pair = o.take("2CTA");
    if !o.take("ALIGN") {
        return unsupported("slots of tensor memory anywhere");
    }
    let Operand::Reg(p) = o.operand(0)? else { return unsupported("this operand") };
    let (p, to, count) = (p.reg.index, base(o, 1)?.0, base(o, 2)?.0);
    Ok(Box::new(move |m, _| {
        let (rank, count) = (m.block.rank, word(m.warp, count));
        let slot = tmem::take(tmem::of_block(&mut m.block.tmem, rank, pair)?, count);
        if p != sass::Reg::ZERO {
            m.warp.up[usize::from(p)] = slot.is_some();
        }
        if to != 255 {
            m.warp.ur[usize::from(to)] = slot.unwrap_or(u32::MAX);
        }
        Ok(())
    }))
}

/// URd, URmask: leaves the slots of the mask taken.
fn keep(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if !o.take("AND") {
        return unsupported("this operation on slots of tensor memory");
    }
    let mask = base(o, 1)?.0;
    Ok(Box::new(move |m, _| {
        let mask = word(m.warp, mask);
        own(m)?.keep(mask);
        Ok(())
    }))
}

/// A barrier that is told when everything before is done, or the same of each block that a mask names.
fn commit(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["2CTA"]);
    let (at, named) = (base(o, 0)?.0, o.take("MULTICAST"));
    let mask = if named { base(o, 2)?.0 } else { 255 };
    Ok(Box::new(move |m: &mut Machine<'_>, lanes| {
        let lane = lanes.trailing_zeros() as usize & 31;
        let (at, mask) = (word(m.warp, at).into(), word(m.warp, mask).into());
        for at in super::bulk::blocks(m, lane, at, mask)? {
            m.arrive_once(lane, at)?;
        }
        Ok(())
    }))
}

/// A place whose rows move on.
fn shift(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (pair, (at, offset)) = (o.take("2CTA"), base(o, 0)?);
    if !o.take("DOWN") {
        return unsupported("this shift of rows");
    }
    Ok(Box::new(move |m, _| {
        let at = word(m.warp, at).wrapping_add(offset);
        with(m, pair, |memory, _| Ok(tmem::shift(memory, at)?))
    }))
}

/// A place, and a descriptor of shared memory.
fn copy(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["T", "S"]);
    let pair = o.take("2CTA");
    let shapes = [
        ("4dp256bit", Copies::Rows4Words8),
        ("128dp128bit", Copies::Rows128Words4),
        ("2x64dp128bit_lw02_lw13", Copies::Halves),
        ("2x64dp128bit_lw01_lw23", Copies::Twice),
        ("4x32dp128bit", Copies::Quarters),
    ];
    let shape = o.choose(&shapes).unwrap_or(Copies::Rows128Words8);
    let narrow = o.choose(&[("U6x16P32", 6), ("U4x16P64", 4)]);
    let ((to, offset), from) = (base(o, 0)?, base(o, 1)?.0);
    Ok(Box::new(move |m, _| {
        let (to, from) = (word(m.warp, to).wrapping_add(offset), pair_of(m.warp, from));
        with(m, pair, |memory, load| tmem::copy(memory, (shape, narrow), to, from, load))
    }))
}

fn product(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    use Opcode::*;
    let op = o.inst.op;
    let in_tensor = matches!(op, UTCHMMA_T | UTCIMMA_T | UTCQMMA_T | UTCQMMA_SF_T | UTCOMMA_T);
    let scaled = matches!(op, UTCQMMA_SF | UTCQMMA_SF_T | UTCOMMA | UTCOMMA_T);
    let by_16 = o.take("4X") | o.take("BLOCK16");
    // How long operands stay in collectors is nothing but time.
    o.ignore(&["A:A_KEEP", "A:A_REUSE", "A_KEEP", "B:B_KEEP", "B:B_REUSE", "B_KEEP"]);
    o.ignore(&["BUFFER1", "BUFFER2", "BUFFER3", "B:BUFFER1", "B:BUFFER2", "B:BUFFER3"]);
    let (both, stationary, moves_rows) = (o.take("2CTA"), o.take("WS"), o.take("ASHIFT"));
    let (a, b, d, e) = (base(o, 0)?, base(o, 1)?.0, base(o, 2)?, base(o, 3)?.0);
    let more = base(o, 5)?.0;
    let Operand::Reg(adds) = *o.operand(6)? else { return unsupported("this operand") };
    let halvings = if scaled { 0 } else { o.imm(7)? };
    Ok(Box::new(move |m, _| {
        let w = &*m.warp;
        let idesc = (pair_of(w, e) >> 32) as u32;
        let kind = match op {
            UTCIMMA | UTCIMMA_T => "i8",
            UTCQMMA | UTCQMMA_T => "f8f6f4",
            UTCQMMA_SF | UTCQMMA_SF_T => "mxf8f6f4",
            UTCOMMA | UTCOMMA_T if by_16 => "mxf4nvf4",
            UTCOMMA | UTCOMMA_T => "mxf4",
            // The formats say which; TF32 has a number of its own.
            _ if idesc >> 7 & 7 == 2 => "tf32",
            _ => "f16",
        };
        let mma = Mma {
            kind,
            descriptor: idesc,
            a: match in_tensor {
                true => Source::Tensor(word(w, a.0).wrapping_add(a.1)),
                false => Source::Shared(pair_of(w, a.0)),
            },
            b: pair_of(w, b),
            d: word(w, d.0).wrapping_add(d.1),
            halvings,
            metadata: word(w, e),
            stationary: stationary.then(|| pair_of(w, more)),
            moves_rows,
            adds: (adds.reg.is_zero() || w.up[usize::from(adds.reg.index)]) != adds.not,
            disabled: match scaled || stationary || more == 255 {
                true => [0; 8],
                false => std::array::from_fn(|i| match both || i < 4 {
                    true => w.ur[usize::from(more) + i],
                    false => 0,
                }),
            },
            scales: scaled.then(|| [pair_of(w, more) as u32, (pair_of(w, more) >> 32) as u32]),
        };
        if both && m.block.rank & 1 != 0 {
            return Err(TmemError::OddBlock.into());
        }
        let multiply = |p: &Product, [a, b, c]: [&[u64]; 3], extra: Extra<'_>| p.of_matrices(a, b, c, extra);
        with(m, both, |memory, load| tmem::multiply(memory, &mma, load, &multiply))
    }))
}
