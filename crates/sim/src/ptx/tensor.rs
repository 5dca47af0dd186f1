//! Matrix instructions: `mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`.
//!
//! Which element of a `wmma` fragment a thread holds is unspecified; here element `i` of lane `l` is number
//! `32·i + l` of the matrix, row by row, again from the start where there are more places than elements.

use super::decode::Code;
use super::exec::{bytes, resolve};
use super::thread::{Env, Res, Thread};
use crate::fp::{self, F16, F32, F64, Format, Round};
use crate::gmma::{Group, Rows};
use crate::matrix::{self, Elem, Extra, Product, Row, ScalePlace, Scales, Sum};
use crate::memory::little_endian;
use crate::metadata;
use crate::quad::Quad;
use crate::tile::{self, Shape};
use ::ptx::ast::{Operand, Space, VectorElem};
use ::ptx::{Mod, Op, Type};

/// Executes a matrix instruction for a whole warp (`lanes`: indices into `threads`).
pub(super) fn execute(
    env: &mut Env<'_, '_>,
    threads: &mut [Thread],
    lanes: &[usize],
    code: &Code<'_>,
) -> Res<()> {
    if lanes.len() != 32 {
        return Err("a matrix instruction needs 32 threads".into());
    }
    let inst = code.inst;
    match inst.op {
        Op::mma => mma(env, threads, lanes, code),
        Op::wgmma if inst.has(Mod::mma_async) && env.late => {
            super::late::leave_product(env, &threads[lanes[0]]);
            Ok(())
        }
        Op::wgmma if inst.has(Mod::mma_async) => {
            let first = threads[lanes[0]].clone();
            group_product(env, threads, lanes, code, &first)
        }
        // Products are complete at once, or left for later.
        Op::wgmma if env.late => super::late::products(env, threads, lanes, code),
        Op::wgmma => Ok(()),
        Op::wmma if inst.has(Mod::load) => wmma_load(env, threads, lanes, code),
        Op::wmma if inst.has(Mod::store) => wmma_store(env, threads, lanes, code),
        Op::wmma => wmma_mma(env, threads, lanes, code),
        Op::movmatrix => {
            let words = words(env, threads, lanes, &inst.operands[1], 32)?;
            let out = Shape::Halves.words(&Shape::Rows.lines_of(&words));
            put(env, threads, lanes, &inst.operands[0], &out, 32)
        }
        _ => tiles(env, threads, lanes, code),
    }
}

/// The registers of an operand: a row for each, two for each of 64 bits.
fn words(env: &Env<'_, '_>, threads: &[Thread], lanes: &[usize], o: &Operand, bits: u32) -> Res<Vec<Row>> {
    let p = env.program;
    let one;
    let elems: &[VectorElem] = match o {
        Operand::Vector(v) => v,
        Operand::Reg(r) => {
            one = [VectorElem::Reg(*r)];
            &one
        }
        _ => return Err("unsupported matrix operand".into()),
    };
    let mut rows = Vec::new();
    for e in elems {
        let values: Vec<u64> = lanes.iter().map(|l| threads[*l].elem(p, *e)).collect();
        rows.push(std::array::from_fn(|i| values[i] as u32));
        if bits == 64 {
            rows.push(std::array::from_fn(|i| (values[i] >> 32) as u32));
        }
    }
    Ok(rows)
}

/// The inverse of [`words`].
fn put(
    env: &Env<'_, '_>,
    threads: &mut [Thread],
    lanes: &[usize],
    o: &Operand,
    rows: &[Row],
    bits: u32,
) -> Res<()> {
    let p = env.program;
    let one;
    let elems: &[VectorElem] = match o {
        Operand::Vector(v) => v,
        Operand::Reg(r) => {
            one = [VectorElem::Reg(*r)];
            &one
        }
        _ => return Err("unsupported matrix operand".into()),
    };
    for (i, e) in elems.iter().enumerate() {
        let VectorElem::Reg(r) = e else { continue };
        for (n, l) in lanes.iter().enumerate() {
            let (value, ty) = match bits {
                64 => (u64::from(rows[2 * i][n]) | u64::from(rows[2 * i + 1][n]) << 32, Type::b64),
                _ => (rows[i][n].into(), Type::b32),
            };
            threads[*l].set_reg(p, *r, 0, value, ty);
        }
    }
    Ok(())
}

/// `m16n8k16` among the modifiers.
fn shape(code: &Code<'_>) -> Res<(usize, usize, usize)> {
    let parse = |s: &str| {
        let (m, rest) = s.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k').unwrap_or((rest, "0"));
        Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
    };
    code.inst.mods.iter().find_map(|m| parse(m.name())).ok_or_else(|| "unsupported matrix shape".into())
}

/// The types among the modifiers, those of small elements included.
fn types<'m>(code: &Code<'m>) -> Vec<&'m str> {
    let all = code.inst.mods.iter().map(|m| m.name());
    all.filter(|n| matches!(*n, "f32" | "s32") || matrix::element(n).is_some()).collect()
}

fn element(name: &str) -> Res<Elem> {
    matrix::element(name).ok_or_else(|| format!("unsupported matrix type '{name}'").into())
}

/// The floating-point format of C or D.
fn format(name: &str) -> Option<Format> {
    [("f16", F16), ("f32", F32), ("f64", F64)].into_iter().find(|(n, _)| *n == name).map(|(_, f)| f)
}

/// How D is summed up, from the types of C or D and of A.
fn sum_of(code: &Code<'_>, d: &str) -> Res<Sum> {
    let inst = code.inst;
    Ok(match format(d) {
        Some(f) => Sum::Float(f),
        None if inst.mods.iter().any(|m| m.name().ends_with("popc")) => {
            let and = inst.mods.iter().any(|m| m.name().starts_with("and"));
            Sum::Count { and }
        }
        None => Sum::Int { saturate: inst.has(Mod::satfinite) },
    })
}

fn mma(env: &mut Env<'_, '_>, threads: &mut [Thread], lanes: &[usize], code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let (m, n, k) = shape(code)?;
    let types = types(code);
    let [d_type, a_type, b_type, c_type] = types[..] else { return Err("unsupported matrix types".into()) };
    let name = |prefix: &str| inst.mods.iter().any(|m| m.name().starts_with(prefix));
    let sparse = name("sp");
    let (a, b) = (element(a_type)?, element(b_type)?);
    let scaled = name("block_scale");
    let fp4 = name("kind::mxf4");
    let (a, b) = if fp4 { (Elem::Fp4, Elem::Fp4) } else { (a, b) };
    let p = Product { m, n, k, a, b, sum: sum_of(code, d_type)?, sparse };
    let ops = &inst.operands;
    let bits = [p.a.bits(), p.b.bits(), p.sum.bits()];
    let x: Vec<Vec<Row>> =
        (0..3).map(|i| words(env, threads, lanes, &ops[i + 1], bits[i])).collect::<Res<_>>()?;
    if (m, n, k) == (8, 8, 4) && a != Elem::Float(F64) {
        let d = quad_pairs(code, [&x[0], &x[1], &x[2]], &p, c_type)?;
        return put(env, threads, lanes, &ops[0], &d, 32);
    }
    let scales = if scaled { Some(scales(env, threads, lanes, code, &p)?) } else { None };
    let columns = if sparse { Some(columns(env, threads, lanes, code, &p, 4)?) } else { None };
    let extra =
        Extra { scales: scales.as_ref(), columns: columns.as_deref(), round: code.rm, ..Extra::default() };
    let d = product(code, &p, [&p.gather_a(&x[0]), &p.gather_b(&x[1]), &p.gather_c(&x[2])], extra);
    put(env, threads, lanes, &ops[0], &p.scatter_d(&d), p.sum.bits())
}

/// A product of a warp group: operands D, A (registers or a descriptor), B's descriptor, metadata and selector of a sparse
/// A, whether D counts, the signs of A and B, and whether those in shared memory are transposed. Descriptors and whether D counts are
/// those of `first`.
pub(super) fn group_product(
    env: &mut Env<'_, '_>,
    threads: &mut [Thread],
    lanes: &[usize],
    code: &Code<'_>,
    first: &Thread,
) -> Res<()> {
    let inst = code.inst;
    let (_, n, k) = shape(code)?;
    let [d_type, a_type, b_type] = types(code)[..] else { return Err("unsupported matrix types".into()) };
    let (a, b) = (element(a_type)?, element(b_type)?);
    let sparse = inst.has(Mod::sp);
    let product = Product { m: 16, n: 8, k, a, b, sum: sum_of(code, d_type)?, sparse };
    let ops = &inst.operands;
    let rest = &ops[if sparse { 5 } else { 3 }..];
    let negative = |o: Option<&Operand>| matches!(o, Some(Operand::Int(n)) if *n as i64 == -1);
    let one = |o: Option<&Operand>| matches!(o, Some(Operand::Int(1)));
    let registers = matches!(ops[1], Operand::Vector(_));
    let transposed = if registers { [false, one(rest.get(3))] } else { [one(rest.get(3)), one(rest.get(4))] };
    let negated = [negative(rest.get(1)), negative(rest.get(2))];
    let group = Group { product, n, negated, transposed };
    let (rank, warp) = (u64::from(first.rank) << 24, first.index as usize / 32 % 4);
    let descriptor = |o: &Operand| first.read(env, o, Type::b64);
    let b = descriptor(&ops[2])?;
    let counts = rest.first().map_or(Ok(1), |o| first.read(env, o, Type::pred))? != 0;
    let columns = if sparse { Some(columns(env, threads, lanes, code, &product, 3)?) } else { None };
    let rows;
    let from = match registers {
        true => {
            rows = words(env, threads, lanes, &ops[1], 32)?;
            Rows::Registers(&rows)
        }
        false => Rows::Shared(descriptor(&ops[1])?, warp),
    };
    let mut c = words(env, threads, lanes, &ops[0], 32)?;
    if !counts {
        c.iter_mut().for_each(|row| row.fill(0));
    }
    let t = &mut threads[lanes[0]];
    let mut load = |at: u64, size: u32| super::exec::read(env, t, (Space::Shared, rank | at), size as usize);
    let multiply = |p: &Product, x: [&[u64]; 3], extra: Extra<'_>| self::product(code, p, x, extra);
    let d = group.multiply(from, b, &c, columns.as_deref(), &mut load, &multiply)?;
    put(env, threads, lanes, &ops[0], &d, 32)
}

/// D row by row; the order of floating-point sums is not defined, so they are moved within their bounds.
pub(super) fn product(code: &Code<'_>, p: &Product, [a, b, c]: [&[u64]; 3], extra: Extra<'_>) -> Vec<u64> {
    let mut d = p.of_matrices(a, b, c, extra);
    if let (Sum::Float(f), true) = (p.sum, code.nudge != 0) {
        for (x, size) in d.iter_mut().zip(p.magnitudes(a, b, c, extra)) {
            *x = super::approx::nudged_sum(code, f, size, *x);
        }
    }
    d
}

/// The factors of a block-scaled product: operands `a-data, {byte, thread}, b-data, {byte, thread}`.
fn scales(
    env: &Env<'_, '_>,
    threads: &[Thread],
    lanes: &[usize],
    code: &Code<'_>,
    p: &Product,
) -> Res<Scales> {
    let inst = code.inst;
    let name = |prefix: &str| inst.mods.iter().any(|m| m.name().starts_with(prefix));
    let blocks = match () {
        () if name("scale_vec::4X") => 4,
        () if name("scale_vec::2X") || p.a == Elem::Fp4 => 2,
        () => 1,
    };
    let selector = |i: usize| -> Res<[usize; 2]> {
        let Operand::Vector(v) = &inst.operands[i] else { return Err("unsupported matrix operand".into()) };
        let one = |e: &VectorElem| threads[lanes[0]].elem(env.program, *e) as usize;
        match &v[..] {
            [byte, thread] => Ok([one(byte), one(thread)]),
            _ => Err("unsupported matrix operand".into()),
        }
    };
    let first = inst.operands.len() - 4;
    let (sa, sb) = (selector(first + 1)?, selector(first + 3)?);
    let (a, b) = (
        words(env, threads, lanes, &inst.operands[first], 32)?,
        words(env, threads, lanes, &inst.operands[first + 2], 32)?,
    );
    let place = ScalePlace { blocks, fraction: name("ue4m3"), byte: [sa[0], sb[0]], thread: [sa[1], sb[1]] };
    Ok(place.read(p, &a[0], &b[0]))
}

/// Where a sparse A's elements stand: operands `metadata, selector`, from number `at` on.
fn columns(
    env: &Env<'_, '_>,
    threads: &[Thread],
    lanes: &[usize],
    code: &Code<'_>,
    p: &Product,
    at: usize,
) -> Res<Vec<u16>> {
    let inst = code.inst;
    let words = &words(env, threads, lanes, &inst.operands[at], 32)?[0];
    let Operand::Int(selector) = inst.operands[at + 1] else {
        return Err("unsupported matrix operand".into());
    };
    let ordered = inst.mods.iter().any(|m| m.name() == "sp::ordered_metadata");
    let (size, selector) = ((p.m, p.k), selector as usize);
    if !metadata::is_valid(p.a, size, words, selector, ordered) {
        return Err("metadata that names no two columns".into());
    }
    Ok(metadata::columns(p.a, size, words, selector))
}

/// `m8n8k4` of binary16.
fn quad_pairs(code: &Code<'_>, rows: [&[Row]; 3], p: &Product, c_type: &str) -> Res<Vec<Row>> {
    let mut layouts = code.inst.mods.iter().filter(|m| matches!(m, Mod::row | Mod::col));
    let mut is_row = || layouts.next() == Some(&Mod::row);
    let by_rows = [is_row(), is_row()];
    let (Sum::Float(d), Some(c)) = (p.sum, format(c_type)) else {
        return Err("unsupported matrix type".into());
    };
    let multiply = |p: &Product, x: [&[u64]; 3]| product(code, p, x, Extra::default());
    Ok(Quad { by_rows, c, d }.multiply(rows, 0..8, 0..8, &multiply))
}

/// Rows and columns of a fragment, whether A, B or C.
fn fragment(code: &Code<'_>) -> Res<(usize, usize)> {
    let (m, n, k) = shape(code)?;
    Ok(match code.inst.one_of(&[Mod::a, Mod::b]) {
        Some(Mod::a) => (m, k),
        Some(_) => (k, n),
        None => (m, n),
    })
}

/// Element `i` of the matrix in the fragments.
fn at(i: usize, bits: u32) -> (usize, usize, u32) {
    let (lane, n) = (i % 32, i / 32);
    let per = (32 / bits as usize).max(1);
    (lane, n / per, (n % per) as u32 * bits)
}

/// The matrix in fragments of `bits` wide elements.
fn of_fragment(rows: &[Row], elements: usize, bits: u32) -> Vec<u64> {
    (0..elements)
        .map(|i| {
            let (lane, word, shift) = at(i, bits);
            match bits {
                64 => u64::from(rows[2 * word][lane]) | u64::from(rows[2 * word + 1][lane]) << 32,
                _ => u64::from(rows[word][lane] >> shift) & (u64::MAX >> (64 - bits)),
            }
        })
        .collect()
}

/// Fragments of `registers` words that hold a matrix, as often as it fits.
fn to_fragment(matrix: &[u64], registers: usize, bits: u32) -> Vec<Row> {
    let mut rows = vec![[0u32; 32]; registers];
    let places = registers * 1024 / bits as usize;
    for i in 0..places {
        let (lane, word, shift) = at(i, bits);
        let x = matrix[i % matrix.len()];
        match bits {
            64 => (rows[2 * word][lane], rows[2 * word + 1][lane]) = (x as u32, (x >> 32) as u32),
            _ => rows[word][lane] |= (x as u32) << shift,
        }
    }
    rows
}

/// Words of 32 bits in an operand.
fn width(o: &Operand, bits: u32) -> usize {
    let n = if let Operand::Vector(v) = o { v.len() } else { 1 };
    n * if bits == 64 { 2 } else { 1 }
}

/// Where the elements of a `wmma` matrix are in memory: bit offsets from the address.
fn places(code: &Code<'_>, (rows, columns): (usize, usize), bits: u32, stride: Option<u64>) -> Vec<u64> {
    let by_rows = code.inst.has(Mod::row);
    let stride = stride.unwrap_or(if by_rows { columns } else { rows } as u64);
    (0..rows * columns)
        .map(|i| {
            let (r, c) = ((i / columns) as u64, (i % columns) as u64);
            let (major, minor) = if by_rows { (r, c) } else { (c, r) };
            (major * stride + minor) * u64::from(bits)
        })
        .collect()
}

/// Bits of an element of that type.
fn bits_of(name: Option<&&str>) -> Res<u32> {
    match name {
        Some(&("s32" | "f32")) => Ok(32),
        Some(n) => Ok(element(n)?.bits()),
        None => Err("unsupported matrix type".into()),
    }
}

/// Lines that are said to be some way apart begin at multiples of 16 bytes, those of small elements at least at words.
fn aligned(stride: Option<u64>, bits: u32) -> Res<()> {
    let unit = if bits < 16 { 32 } else { 128 };
    match stride {
        Some(n) if !(n * u64::from(bits)).is_multiple_of(unit) => {
            Err("lines of a matrix that are not aligned".into())
        }
        _ => Ok(()),
    }
}

fn wmma_load(env: &mut Env<'_, '_>, threads: &mut [Thread], lanes: &[usize], code: &Code<'_>) -> Res<()> {
    let ops = &code.inst.operands;
    let bits = bits_of(types(code).first())?;
    let size = fragment(code)?;
    let t = &mut threads[lanes[0]];
    let stride = ops.get(2).map(|o| t.read(env, o, Type::u32)).transpose()?;
    aligned(stride, bits)?;
    let (space, base) = resolve(env, t, code, &ops[1])?;
    let step = bits.div_ceil(8) as usize;
    let mut matrix = Vec::new();
    for place in places(code, size, bits, stride) {
        let b = bytes(env, t, (space, base + place / 8), step, false)?;
        matrix.push(little_endian(b) >> (place % 8) & (u64::MAX >> (64 - bits)));
    }
    put(env, threads, lanes, &ops[0], &to_fragment(&matrix, width(&ops[0], bits), bits), bits)
}

fn wmma_store(env: &mut Env<'_, '_>, threads: &mut [Thread], lanes: &[usize], code: &Code<'_>) -> Res<()> {
    let ops = &code.inst.operands;
    let bits = bits_of(types(code).first())?;
    let size = fragment(code)?;
    let matrix = of_fragment(&words(env, threads, lanes, &ops[1], bits)?, size.0 * size.1, bits);
    let t = &mut threads[lanes[0]];
    let stride = ops.get(2).map(|o| t.read(env, o, Type::u32)).transpose()?;
    aligned(stride, bits)?;
    let (space, base) = resolve(env, t, code, &ops[0])?;
    let step = (bits / 8) as usize;
    for (x, place) in matrix.iter().zip(places(code, size, bits, stride)) {
        bytes(env, t, (space, base + place / 8), step, true)?.copy_from_slice(&x.to_le_bytes()[..step]);
    }
    Ok(())
}

fn wmma_mma(env: &mut Env<'_, '_>, threads: &mut [Thread], lanes: &[usize], code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let (m, n, k) = shape(code)?;
    // Two types: D and C around binary16; else D, A, B, C.
    let (d, a, b, c) = match types(code)[..] {
        [d, c] => (d, "f16", "f16", c),
        [d, a, b, c] => (d, a, b, c),
        _ => return Err("unsupported matrix type".into()),
    };
    let p = Product { m, n, k, a: element(a)?, b: element(b)?, sum: sum_of(code, d)?, sparse: false };
    let ops = &inst.operands;
    let get = |i: usize, elements: usize, bits: u32| -> Res<Vec<u64>> {
        Ok(of_fragment(&words(env, threads, lanes, &ops[i], bits)?, elements, bits))
    };
    let (ma, mb) = (get(1, m * k, p.a.bits())?, get(2, k * n, p.b.bits())?);
    let mut mc = get(3, m * n, bits_of(Some(&c))?)?;
    if let (Some(from), Sum::Float(to)) = (format(c), p.sum) {
        mc.iter_mut().for_each(|x| *x = fp::convert(*x, from, to, Round::Nearest));
    }
    let mut md = product(code, &p, [&ma, &mb, &mc], Extra { round: code.rm, ..Extra::default() });
    if let (true, Sum::Float(f)) = (inst.has(Mod::satfinite), p.sum) {
        let infinity = f.infinity();
        for x in &mut md {
            let magnitude = *x & (u64::MAX >> (65 - f.bits()));
            *x = match () {
                () if magnitude > infinity => f.invalid_nan(),
                () if magnitude == infinity => *x - 1,
                () => *x,
            };
        }
    }
    let bits = p.sum.bits();
    put(env, threads, lanes, &ops[0], &to_fragment(&md, width(&ops[0], bits), bits), bits)
}

/// `ldmatrix` and `stmatrix`: lanes 8i … 8i+7 (16i … 16i+15) name the rows of matrix i.
fn tiles(env: &mut Env<'_, '_>, threads: &mut [Thread], lanes: &[usize], code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let has = |name: &str| inst.mods.iter().any(|m| m.name() == name);
    let n = match inst.one_of(&[Mod::x1, Mod::x2, Mod::x4]) {
        Some(Mod::x2) => 2,
        Some(Mod::x4) => 4,
        _ => 1,
    };
    let shape = match () {
        () if has("m16n16") => Shape::Bytes16,
        () if has("m16n8") => Shape::Bytes8,
        () if has("m8n8") && has("trans") => Shape::Halves,
        () => Shape::Rows,
    };
    let packed = [("b4x16_p64", 4), ("b6x16_p32", 6)].into_iter().find(|(name, _)| has(name)).map(|p| p.1);
    let load = inst.op == Op::ldmatrix;
    let (registers, address) = (&inst.operands[usize::from(!load)], &inst.operands[usize::from(load)]);
    let mut rows = if load { Vec::new() } else { words(env, threads, lanes, registers, 32)? };
    for i in 0..n {
        let mut lines = match load {
            true => vec![[0; 16]; shape.lines()],
            false => shape.lines_of(&rows[i * shape.registers()..][..shape.registers()]),
        };
        for (row, line) in lines.iter_mut().enumerate() {
            let t = &mut threads[lanes[shape.lines() * i + row]];
            let (space, at) = resolve(env, t, code, address)?;
            if space != Space::Shared {
                return Err(format!("a matrix in {space:?} memory").into());
            }
            let b = bytes(env, t, (space, at), 16, !load)?;
            match load {
                true => line.copy_from_slice(b),
                false => b.copy_from_slice(line),
            }
            if let Some(bits) = packed {
                *line = tile::widen(line, bits);
            }
        }
        if load {
            rows.extend(shape.words(&lines));
        }
    }
    if load { put(env, threads, lanes, registers, &rows, 32) } else { Ok(()) }
}
