//! Tensor cores with operands in registers, and the moves that arrange matrices for them.

use super::Fault;
use super::compile::{Unsupported, unsupported};
use super::mem::{Address, Space};
use super::operand::{Dst, Exec, From, Kind, Operands, Src};
use super::state::Warp;
use crate::fp::{BF16, F16, F32, F64, Format, Round};
use crate::gmma::{Group, Rows};
use crate::matrix::{self, Elem, Extra, Product, Row, ScalePlace, Scales, Sum};
use crate::metadata;
use crate::quad::Quad;
use crate::tile::{self, Line, Shape};
use sass::{Opcode, Operand};

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match o.inst.op {
        Opcode::HMMA | Opcode::IMMA | Opcode::DMMA | Opcode::BMMA | Opcode::QMMA => product(o)?,
        Opcode::QMMA_SF | Opcode::OMMA_SF => product(o)?,
        Opcode::HMMA_SP | Opcode::IMMA_SP | Opcode::QMMA_SP => product(o)?,
        Opcode::QMMA_SF_SP | Opcode::OMMA_SF_SP => product(o)?,
        Opcode::HMMA_884 => quad_pairs(o)?,
        Opcode::HGMMA | Opcode::HGMMA_R | Opcode::HGMMA_SP | Opcode::HGMMA_SP_R => group_product(o)?,
        Opcode::IGMMA | Opcode::IGMMA_R | Opcode::IGMMA_SP | Opcode::IGMMA_SP_R => group_product(o)?,
        Opcode::QGMMA | Opcode::QGMMA_R | Opcode::QGMMA_SP | Opcode::QGMMA_SP_R => group_product(o)?,
        Opcode::BGMMA | Opcode::BGMMA_R => group_product(o)?,
        Opcode::LDSM | Opcode::LDSM_MT1616 => load_matrix(o)?,
        Opcode::STSM => store_matrix(o)?,
        Opcode::MOVM => move_matrix(o)?,
        _ => return Ok(None),
    }))
}

/// A shape as HMMA, IMMA, QMMA spell it: m·n·k without signs.
const SHAPES: &[(&str, (usize, usize, usize))] = &[
    ("1684", (16, 8, 4)),
    ("1688", (16, 8, 8)),
    ("16816", (16, 8, 16)),
    ("16832", (16, 8, 32)),
    ("16864", (16, 8, 64)),
    ("168128", (16, 8, 128)),
    ("8816", (8, 8, 16)),
    ("8832", (8, 8, 32)),
    ("88128", (8, 8, 128)),
    ("168256", (16, 8, 256)),
    ("884", (8, 8, 4)),
    ("8x8x4", (8, 8, 4)),
    ("16x8x4", (16, 8, 4)),
    ("16x8x8", (16, 8, 8)),
    ("16x8x16", (16, 8, 16)),
];

/// The sign bits of every element of a register.
fn signs(e: Elem) -> u32 {
    match e {
        Elem::Float(F16 | BF16) => 0x8000_8000,
        _ => 0x8000_0000,
    }
}

/// Registers from `first` on.
fn rows(w: &Warp, first: u8, count: usize) -> Vec<Row> {
    (0..count).map(|i| if first == 255 { [0; 32] } else { w.r[usize::from(first) + i] }).collect()
}

fn register(s: &Src) -> Result<u8, Unsupported> {
    match s.from {
        From::Reg(r) => Ok(r),
        _ => unsupported("a matrix that is not in registers"),
    }
}

/// Every lane must take part.
fn whole(mask: u32) -> Result<(), Fault> {
    if mask == u32::MAX {
        Ok(())
    } else {
        Err(Fault::warp(format!("a matrix operation of the lanes {mask:#x} only")))
    }
}

/// Rd, Ra, Rb, Rc, UP, then for scaled products the registers of the scales and a selector, for sparse ones the
/// metadata and its selector; where both are, the metadata stands before the scales of A in a pair.
fn product(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    use Opcode::{HMMA_SP, IMMA_SP, OMMA_SF, OMMA_SF_SP, QMMA_SF, QMMA_SF_SP, QMMA_SP};
    let scaled = matches!(o.inst.op, QMMA_SF | OMMA_SF | QMMA_SF_SP | OMMA_SF_SP);
    let sparse = matches!(o.inst.op, HMMA_SP | IMMA_SP | QMMA_SP | QMMA_SF_SP | OMMA_SF_SP);
    let Some((m, n, k)) = o.choose(SHAPES) else { return unsupported("a matrix of this shape") };
    o.ignore(&["A:ROW", "B:COL"]);
    let mut round = Round::Nearest;
    let (a, b, sum) = match o.inst.op {
        Opcode::DMMA => {
            round = super::float::rounding(o);
            (Elem::Float(F64), Elem::Float(F64), Sum::Float(F64))
        }
        OMMA_SF | OMMA_SF_SP => {
            let sum = Sum::Float(accumulator(o)?);
            o.take("E2M1");
            o.take("E2M1");
            (Elem::Fp4, Elem::Fp4, sum)
        }
        op => elements(o, op.name())?,
    };
    let p = Product { m, n, k, a, b, sum, sparse };
    let float = matches!(a, Elem::Float(_) | Elem::Tf32);
    let kind = if float { Kind::Halves } else { Kind::Int };
    let s = [o.src(1, kind)?, o.src(2, kind)?, o.src(3, kind)?];
    if s.iter().any(|s| s.abs || s.not)
        || s[2].neg
        || (s[0].neg || s[1].neg) && !matches!(p.sum, Sum::Float(F32 | F16))
    {
        return unsupported("a source modifier of a matrix");
    }
    if o.len() > 4 && !o.operand(4)?.as_reg().is_some_and(|r| r.reg.is_zero() && !r.not) {
        return unsupported("the predicate of a matrix product");
    }
    let flip = [if s[0].neg { signs(a) } else { 0 }, if s[1].neg { signs(b) } else { 0 }];
    let from = [register(&s[0])?, register(&s[1])?, register(&s[2])?];
    let counts = p.registers();
    let to = o.dst(0, counts[2] as u8)?;
    let scales = if scaled { Some(scale_operands(o, k, sparse)?) } else { None };
    let metadata = if sparse { Some(metadata_operands(o)?) } else { None };
    Ok(Box::new(move |machine, mask| {
        whole(mask)?;
        let w = &mut *machine.warp;
        let mut x: [Vec<Row>; 3] = std::array::from_fn(|i| rows(w, from[i], counts[i]));
        for (x, flip) in x.iter_mut().zip(flip) {
            x.iter_mut().flatten().for_each(|v| *v ^= flip);
        }
        let scales = scales.as_ref().map(|s| s.read(w, &p));
        let columns = metadata.map(|(r, s)| metadata::columns(p.a, (p.m, p.k), &w.r[usize::from(r)], s));
        let extra = Extra { scales: scales.as_ref(), columns: columns.as_deref(), round, ..Extra::default() };
        let d = p.of_registers([&x[0], &x[1], &x[2]], extra);
        put(w, to, &d);
        Ok(())
    }))
}

/// Rd, Ra, Rb, Rc of `HMMA.884`, which leaves a part of D's registers to other instructions: each step makes two of
/// them, from the two of C that hold the same columns.
fn quad_pairs(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (d, c) = (accumulator(o)?, accumulator(o)?);
    let Some(step) = o.choose(&[("STEP0", 0), ("STEP1", 1), ("STEP2", 2), ("STEP3", 3)]) else {
        return unsupported("this part of a product");
    };
    let by_rows = [o.take("A:ROW"), o.take("B:ROW")];
    o.ignore(&["A:COL", "B:COL"]);
    let elements =
        |f: Format, step: usize| if f == F32 { 2 * step..2 * step + 2 } else { 4 * step..4 * step + 4 };
    let to = elements(d, step);
    let from = if c == d { to.clone() } else { elements(c, step / 2) };
    let mut registers = [0; 3];
    for (i, r) in registers.iter_mut().enumerate() {
        *r = register(&o.src(i + 1, Kind::Halves)?)?;
    }
    let dst = o.dst(0, 2)?;
    Ok(Box::new(move |m, mask| {
        whole(mask)?;
        let x: [Vec<Row>; 3] = std::array::from_fn(|i| rows(m.warp, registers[i], 2));
        let d = Quad { by_rows, c, d }.multiply(
            [&x[0], &x[1], &x[2]],
            from.clone(),
            to.clone(),
            &|p, [a, b, c]| p.of_matrices(a, b, c, Extra::default()),
        );
        put(m.warp, dst, &d);
        Ok(())
    }))
}

/// Types of A and B and how they are summed up, from the modifiers behind the shape.
fn elements(o: &Operands<'_>, name: &str) -> Result<(Elem, Elem, Sum), Unsupported> {
    Ok(match &name[..1] {
        "B" => {
            o.ignore(&["POPC"]);
            let Some(and) = o.choose(&[("AND", true), ("XOR", false)]) else {
                return unsupported("this product of bits");
            };
            (Elem::Bit, Elem::Bit, Sum::Count { and })
        }
        "I" => {
            let sum = Sum::Int { saturate: o.take("SAT") };
            (next(o)?, next(o)?, sum)
        }
        "H" => {
            let sum = Sum::Float(accumulator(o)?);
            let e = o.choose(&[("BF16", Elem::Float(BF16)), ("TF32", Elem::Tf32)]);
            let e = e.unwrap_or(Elem::Float(F16));
            (e, e, sum)
        }
        _ => {
            let sum = Sum::Float(accumulator(o)?);
            (next(o)?, next(o)?, sum)
        }
    })
}

/// Rd, Ra or nothing, descriptors, Rc, UP (whether C counts), for sparse products the metadata and its selector; the
/// scoreboard of the group is of no interest here. The descriptor of A is in two uniform registers, that of B behind it.
fn group_product(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let name = o.inst.op.name();
    let (in_registers, sparse) = (name.ends_with(".R"), name.contains(".SP"));
    let shape = o.next().and_then(|s| {
        let (_, rest) = s.split_once('x')?;
        let (n, k) = rest.split_once('x')?;
        Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?))
    });
    let Some((n, k)) = shape else { return unsupported("a matrix of this shape") };
    // Only the first flag of a descriptor says which operand it belongs to.
    let either = |what: &str| o.take(what) | o.take(&format!("A:{what}")) | o.take(&format!("B:{what}"));
    let (mut negated, transposed) = ([either("negA"), either("negB")], [either("tnspA"), either("tnspB")]);
    let (a, b, sum) = elements(o, name)?;
    let product = Product { m: 16, n: 8, k, a, b, sum, sparse };
    let at = usize::from(in_registers);
    let descriptors = super::bulk::pair(o, 1 + at)?;
    let from = match in_registers {
        true => {
            let s = o.src(1, Kind::Halves)?;
            negated[0] |= s.neg;
            Some(register(&s)?)
        }
        false => None,
    };
    let group = Group { product, n, negated, transposed };
    let width = group.accumulators();
    let (to, c) = (o.dst(0, width as u8)?, register(&o.raw(2 + at)?)?);
    let counts = o.pred(3 + at)?;
    let metadata = match sparse {
        true => {
            let Operand::Imm(lanes) = *o.operand(5 + at)? else {
                return unsupported("a selector of metadata");
            };
            Some((register(&o.raw(4 + at)?)?, lanes as usize))
        }
        false => None,
    };
    Ok(Box::new(move |m, mask| {
        whole(mask)?;
        let w = &mut *m.warp;
        let c = if counts.mask(w) == u32::MAX { rows(w, c, width) } else { vec![[0; 32]; width] };
        // URZ.
        let word = |i: u8| match descriptors {
            255 => 0,
            first => u64::from(w.ur[usize::from(first + i)]),
        };
        let [a, b] = [word(1) << 32 | word(0), word(3) << 32 | word(2)];
        let columns = metadata.map(|(r, s)| metadata::columns(product.a, (16, k), &w.r[usize::from(r)], s));
        let registers = from.map(|r| rows(w, r, 4));
        let a = match &registers {
            Some(rows) => Rows::Registers(rows),
            None => Rows::Shared(a, w.number as usize % 4),
        };
        let mut load = |at: u64, size: u32| m.load(Space::Shared, 0, at, size);
        let multiply = |p: &Product, [a, b, c]: [&[u64]; 3], extra: Extra<'_>| p.of_matrices(a, b, c, extra);
        let d = group.multiply(a, b, &c, columns.as_deref(), &mut load, &multiply)?;
        put(m.warp, to, &d);
        Ok(())
    }))
}

/// The format of C and D.
fn accumulator(o: &Operands<'_>) -> Result<Format, Unsupported> {
    let found = o.choose(&[("F32", F32), ("F16", F16)]);
    found.map_or_else(|| unsupported("a sum of this format"), Ok)
}

/// The next modifier as an element type.
fn next(o: &Operands<'_>) -> Result<Elem, Unsupported> {
    let e = o.next().and_then(matrix::element);
    e.map_or_else(|| unsupported("a matrix of this type"), Ok)
}

/// The register of a sparse product's metadata and the lanes that hold it.
fn metadata_operands(o: &Operands<'_>) -> Result<(u8, usize), Unsupported> {
    let Operand::Imm(lanes) = *o.operand(o.len() - 1)? else {
        return unsupported("a selector of metadata");
    };
    Ok((register(&o.raw(5)?)?, lanes as usize))
}

/// Where the factors of a block-scaled product are.
struct ScaleOperands {
    a: u8,
    b: u8,
    place: ScalePlace,
    /// Bits 1:0 A's byte, 2 A's lanes, 4:3 B's byte, 6:5 B's lane.
    selector: Src,
}

fn scale_operands(o: &Operands<'_>, k: usize, sparse: bool) -> Result<ScaleOperands, Unsupported> {
    let fraction = o.take("UE4M3");
    o.ignore(&["E8"]);
    let wide = if sparse { 64 } else { 32 };
    let blocks = if o.take("4X") { 4 } else { k / wide };
    let first = register(&o.raw(5)?)?;
    Ok(ScaleOperands {
        a: if sparse { first + 1 } else { first },
        b: register(&o.raw(6)?)?,
        place: ScalePlace { blocks, fraction, byte: [0; 2], thread: [0; 2] },
        selector: o.src(7, Kind::Int)?,
    })
}

impl ScaleOperands {
    fn read(&self, w: &Warp, p: &Product) -> Scales {
        let s = self.selector.uniform(w) as usize;
        let place = ScalePlace { byte: [s & 3, s >> 3 & 3], thread: [s >> 2 & 1, s >> 5 & 3], ..self.place };
        place.read(p, &w.r[usize::from(self.a)], &w.r[usize::from(self.b)])
    }
}

/// How many 8×8 matrices.
fn count(o: &Operands<'_>) -> usize {
    o.choose(&[("2", 2), ("4", 4)]).unwrap_or(1)
}

/// The shape, and the bits of the elements that LDSM makes bytes of.
fn shape(o: &Operands<'_>) -> Result<(Shape, Option<u32>), Unsupported> {
    let size = o.choose(&[("16", 16), ("8", 8), ("U4x16P64TO8", 4), ("U6x16P32TO8", 6)]);
    let names = [
        ("M88", Shape::Rows),
        ("MT88", Shape::Halves),
        ("M816", Shape::Rows),
        ("MT1616", Shape::Bytes16),
        ("MT168", Shape::Bytes8),
    ];
    match (size, o.choose(&names)) {
        (Some(16), Some(shape @ (Shape::Rows | Shape::Halves))) => Ok((shape, None)),
        (Some(8), Some(shape @ (Shape::Bytes16 | Shape::Bytes8))) => Ok((shape, None)),
        (Some(bits @ (4 | 6)), Some(shape @ (Shape::Rows | Shape::Bytes16))) => Ok((shape, Some(bits))),
        _ => unsupported("matrices of this shape"),
    }
}

/// Rd, address: lanes 8i … 8i+7 (16i … 16i+15) name the rows of matrix i.
fn load_matrix(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let ((shape, packed), n) = (shape(o)?, count(o));
    let (to, from) = (o.dst(0, (n * shape.registers()) as u8)?, Address::of(o, 1, Space::Shared)?);
    Ok(Box::new(move |m, mask| {
        whole(mask)?;
        // The destination may hold the addresses of later matrices.
        let mut words: Vec<Row> = Vec::with_capacity(4);
        for i in 0..n {
            let mut lines: Vec<Line> = Vec::with_capacity(16);
            for lane in i * shape.lines()..(i + 1) * shape.lines() {
                let a = from.at(m.warp, lane);
                let line = m.read(Space::Shared, lane, a)?;
                lines.push(packed.map_or(line, |bits| tile::widen(&line, bits)));
            }
            words.extend(shape.words(&lines));
        }
        put(m.warp, to, &words);
        Ok(())
    }))
}

/// Writes whole registers.
fn put(w: &mut Warp, to: Dst, words: &[Row]) {
    for (i, row) in words.iter().enumerate() {
        (0..32).for_each(|lane| to.word(w, lane, i as u8, row[lane]));
    }
}

/// Address, Rd: the inverse.
fn store_matrix(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let ((shape, _), n) = (shape(o)?, count(o));
    let (from, to) = (register(&o.raw(1)?)?, Address::of(o, 0, Space::Shared)?);
    Ok(Box::new(move |m, mask| {
        whole(mask)?;
        for (i, words) in rows(m.warp, from, n).iter().enumerate() {
            for (row, line) in shape.lines_of(std::slice::from_ref(words)).iter().enumerate() {
                let lane = shape.lines() * i + row;
                let a = to.at(m.warp, lane);
                m.write(Space::Shared, lane, a, *line)?;
            }
        }
        Ok(())
    }))
}

/// Rd, Ra: an 8×8 matrix transposed, or one of 8×32 nibbles made bytes.
fn move_matrix(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let widens = match () {
        () if o.take("16") && o.take("MT88") => false,
        () if o.take("U4TO8") && o.take("M832") => true,
        () => return unsupported("a move of matrices of this shape"),
    };
    let (to, from) = (o.dst(0, if widens { 2 } else { 1 })?, register(&o.raw(1)?)?);
    Ok(Box::new(move |m, mask| {
        whole(mask)?;
        let source = rows(m.warp, from, 1);
        let words = match widens {
            true => tile::nibbles_to_bytes(&source[0]).to_vec(),
            false => Shape::Halves.words(&Shape::Rows.lines_of(&source)),
        };
        put(m.warp, to, &words);
        Ok(())
    }))
}
