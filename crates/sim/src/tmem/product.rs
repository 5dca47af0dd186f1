//! Products of matrices in tensor memory.
//!
//! Where rows and columns of A, D, of factors and of metadata are: CUTLASS's `mma_traits_sm100_frag.hpp`. That the rows of A move on
//! after the product, and by one lane of each 32: `1cta_mma_a_from_tmem.py` there, observed on a B200. What neither says is refused.

use super::copy::holder;
use super::zeros::Zeros;
use super::{Tmem, TmemError};
use crate::fp::{BF16, F16, F32};
use crate::gmma::{self, Cells};
use crate::matrix::{Elem, Extra, Product, Scales, Sum};
use crate::metadata;
use crate::small;

/// Where A comes from.
pub(crate) enum Source {
    /// Shared memory, by its descriptor.
    Shared(u64),
    /// Tensor memory.
    Tensor(u32),
}

/// A product.
pub(crate) struct Mma<'a> {
    /// `f16`, `tf32`, `f8f6f4`, `i8`, `mxf8f6f4`, `mxf4`, and `mxf4nvf4` of a factor for 16 columns.
    pub(crate) kind: &'a str,
    /// The descriptor of the instruction.
    pub(crate) descriptor: u32,
    pub(crate) a: Source,
    /// B's descriptor.
    pub(crate) b: u64,
    pub(crate) d: u32,
    /// Whether D counts.
    pub(crate) adds: bool,
    /// How often D is halved before.
    pub(crate) halvings: u32,
    /// Lanes that are left alone, those of the odd block behind those of the even one.
    pub(crate) disabled: [u32; 8],
    /// Where the scales of A and B are.
    pub(crate) scales: Option<[u32; 2]>,
    /// Where the metadata of A are, if it is sparse.
    pub(crate) metadata: u32,
    /// Of weight-stationary products, the descriptor of columns that count as zeros.
    pub(crate) stationary: Option<u64>,
    /// Whether A's rows move on to the lane before theirs.
    pub(crate) moves_rows: bool,
}

/// How the rows of a block's part of D lie in its lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Paths {
    /// One for each lane.
    Whole,
    /// 16 in each 32 lanes.
    Spread,
    /// So many lanes hold all rows, once for each part of the columns.
    Parts(usize),
}

impl Paths {
    /// Of so many rows a block; `None` where it isn't known.
    fn of(rows: usize, pair: bool, sparse: bool, stationary: bool) -> Option<Paths> {
        Some(match (rows, pair, stationary) {
            (128, _, _) => Paths::Whole,
            (64, false, false) => Paths::Spread,
            (64, true, false) if sparse => Paths::Spread,
            (64, true, false) => Paths::Parts(2),
            (64, false, true) => Paths::Parts(2),
            (32, false, true) => Paths::Parts(4),
            _ => return None,
        })
    }

    /// The lane of a row.
    fn lane(self, row: usize) -> u32 {
        (if self == Paths::Spread { row / 16 * 32 + row % 16 } else { row }) as u32
    }

    /// How many parts the columns have, each in lanes of its own.
    fn parts(self) -> usize {
        if let Paths::Parts(n) = self { n } else { 1 }
    }

    /// The first lanes of the parts.
    fn starts(self) -> impl Iterator<Item = u32> {
        let parts = self.parts();
        (0..parts).map(move |i| (128 / parts * i) as u32)
    }

    /// Lane and column of an element of D.
    fn place(self, row: usize, column: usize, n: usize) -> (u32, u32) {
        let width = n / self.parts();
        let (part, column) = (column / width, column % width);
        (self.lane(row) + (part * 128 / self.parts()) as u32, column as u32)
    }
}

/// An element of A or B as it lies in memory.
#[derive(Clone, Copy)]
struct Stored {
    element: Elem,
    /// In shared memory.
    cells: Cells,
    /// Bits of its place in tensor memory.
    place: usize,
}

impl Stored {
    fn of(kind: &str, code: u32) -> Option<Stored> {
        let element = match (kind, code) {
            ("f16", 0) => Elem::Float(F16),
            ("f16", 1) => Elem::Float(BF16),
            ("tf32", 2) => Elem::Tf32,
            ("f8f6f4" | "mxf8f6f4", code) => Elem::Small(match code {
                0 => small::E4M3,
                1 => small::E5M2,
                3 => small::E2M3,
                4 => small::E3M2,
                5 => small::E2M1,
                _ => return None,
            }),
            ("mxf4" | "mxf4nvf4", 1) => Elem::Fp4,
            ("i8", 0) => Elem::Int(8, false),
            ("i8", 1) => Elem::Int(8, true),
            _ => return None,
        };
        let bits = if let Elem::Small(s) = element { s.bits } else { element.bits() };
        // Elements of 6 and 4 bits take a byte each: in shared memory 16 of them stand together, and what is left of 16 bytes is empty.
        let padded = matches!(element, Elem::Small(_)) && bits < 8;
        Some(Stored { element, cells: Cells { bits, padded }, place: element.bits() as usize })
    }

    /// What stands in tensor memory, without what surrounds it.
    fn out_of_word(self, word: u32, n: usize) -> u64 {
        let (bits, padded) = (self.cells.bits, self.cells.padded);
        let x = u64::from(word) >> (n * self.place);
        let x = if padded { x >> holder(1, bits).trailing_zeros() } else { x };
        x & (u64::MAX >> (64 - bits))
    }

    /// As products take it, with another sign if so asked.
    fn element(self, x: u64, negated: bool) -> u64 {
        let x = if negated { x ^ 1 << (self.cells.bits - 1) } else { x };
        // In bytes of registers, a number of 4 bits stands in the middle.
        if self.cells.padded && self.cells.bits == 4 { x << 2 } else { x }
    }
}

/// The product that a descriptor and an instruction speak of.
struct Shape {
    paths: Paths,
    /// Of one block, and all columns.
    rows: usize,
    n: usize,
    /// Columns of A that are stored, and all.
    stored: usize,
    k: usize,
    a: Stored,
    b: Stored,
    sum: Sum,
}

impl Mma<'_> {
    fn bits(&self, at: u32, n: u32) -> u32 {
        self.descriptor >> at & ((1 << n) - 1)
    }

    fn sparse(&self) -> bool {
        self.bits(2, 1) != 0
    }

    fn shape(&self, pair: bool) -> Result<Shape, TmemError> {
        // The manual's tables say what there is.
        let refuse = |what| Err(TmemError::Undefined(what));
        let (scaled, sparse, stationary) = (self.scales.is_some(), self.sparse(), self.stationary.is_some());
        let (rows, n) = (self.bits(24, 5) as usize * 16, self.bits(17, 6) as usize * 8);
        let blocks = if pair { 2 } else { 1 };
        let heights: &[usize] = match (scaled, stationary, pair) {
            (false, true, _) => &[32, 64, 128],
            (false, false, false) => &[64, 128],
            (true, _, true) if sparse => &[256],
            (_, _, true) => &[128, 256],
            (true, _, false) => &[128],
        };
        let step = match (self.kind, pair) {
            ("i8", true) => 32,
            ("i8", false) if n > 32 => 16,
            (_, pair) => 8 * if pair { 2 } else { 1 },
        };
        let wide = !matches!(n, 8..=256) || !n.is_multiple_of(step);
        let wide = wide || stationary && (!n.is_power_of_two() || n < 64 || sparse && n > 128);
        if !heights.contains(&rows) || wide || stationary && (pair || scaled) {
            return refuse("of this shape");
        }
        // Half as many columns more that one generation has.
        if matches!(self.kind, "mxf4" | "mxf4nvf4") && self.bits(31, 1) != 0 {
            return Err(TmemError::Product("of 96 columns"));
        }
        let (Some(a), Some(b)) =
            (Stored::of(self.kind, self.bits(7, 3)), Stored::of(self.kind, self.bits(10, 3)))
        else {
            return refuse("of these elements");
        };
        let sum = match (self.kind, if scaled { 1 } else { self.bits(4, 2) }) {
            ("i8", 2) => Sum::Int { saturate: self.bits(3, 1) != 0 },
            ("i8", _) => return refuse("of these sums"),
            ("f16", 0) if self.bits(7, 6) != 0 => return refuse("of these sums"),
            ("f16" | "f8f6f4", 0) => Sum::Float(F16),
            (_, 1) => Sum::Float(F32),
            _ => return refuse("of these sums"),
        };
        if self.kind == "i8" && self.bits(13, 2) != 0
            || matches!(a.element, Elem::Fp4) && self.bits(15, 2) != 0
        {
            return refuse("of these elements");
        }
        if self.moves_rows && !matches!((rows / blocks, &self.a), (128, Source::Tensor(_))) {
            return refuse("whose rows of A move on");
        }
        if self.halvings != 0 && !matches!(self.kind, "f16" | "tf32") {
            return refuse("of a scaled accumulator");
        }
        let Some(paths) = Paths::of(rows / blocks, pair, sparse, stationary) else {
            return refuse("of this shape");
        };
        // 32 bytes of each line of A.
        let stored = 256 / a.place;
        let k = if sparse { 2 * stored } else { stored };
        Ok(Shape { paths, rows: rows / blocks, n, stored, k, a, b, sum })
    }

    /// Lane and column of an address whose lane a matrix of this arrangement may begin with.
    fn start(address: u32, paths: Paths) -> Result<(u32, u32), TmemError> {
        let (lane, column) = (address >> 16, address & 0xffff);
        if lane != 0 && !(paths == Paths::Spread && lane == 16) {
            return Err(TmemError::Undefined("of a matrix at this lane"));
        }
        Ok((lane, column))
    }

    /// A block's part of A, row by row.
    fn read_a<E: From<TmemError> + From<gmma::DescriptorError>>(
        &self,
        memory: &Tmem,
        s: &Shape,
        read: gmma::Read<'_, E>,
    ) -> Result<Vec<u64>, E> {
        match self.a {
            Source::Shared(d) => {
                gmma::tensor_lines(d, (0, s.rows), (s.a.cells, s.stored, self.bits(15, 1) != 0), read)
            }
            Source::Tensor(address) => {
                let (lane, column) = Mma::start(address, s.paths)?;
                let per = 32 / s.a.place;
                let mut out = Vec::with_capacity(s.rows * s.stored);
                for row in 0..s.rows {
                    for j in 0..s.stored {
                        let at = (lane + s.paths.lane(row), column + (j / per) as u32);
                        let word = memory.same(s.paths.starts(), at)?;
                        out.push(s.a.out_of_word(word, j % per));
                    }
                }
                Ok(out)
            }
        }
    }

    /// B: by rows of k.
    fn read_b<E: From<TmemError> + From<gmma::DescriptorError>>(
        &self,
        blocks: usize,
        s: &Shape,
        read: &mut dyn FnMut(usize, u64, u32) -> Result<u64, E>,
    ) -> Result<Vec<u64>, E> {
        let turned = self.bits(16, 1) != 0;
        if turned && s.b.place == 8 && !s.n.is_multiple_of(16 * blocks) {
            return Err(TmemError::Undefined("of this shape").into());
        }
        let zeros = match self.stationary {
            Some(d) => Some(Zeros::of(d, (s.rows, s.n), [0, 8, 16, 32][self.bits(30, 2) as usize])?),
            None => None,
        };
        let first = zeros.as_ref().map_or(0, |z| z.first);
        let mut lines = Vec::with_capacity(s.n * s.k);
        for block in 0..blocks {
            let mut read = |at: u64, size: u32| read(block, at, size);
            let part =
                gmma::tensor_lines(self.b, (first, s.n / blocks), (s.b.cells, s.k, turned), &mut read)?;
            lines.extend(part);
        }
        let element = |i: usize| {
            let (row, column) = (i / s.n, i % s.n);
            match &zeros {
                Some(z) if z.columns[column] => 0,
                _ => s.b.element(lines[column * s.k + row], self.bits(14, 1) != 0),
            }
        };
        Ok((0..s.k * s.n).map(element).collect())
    }

    /// Where A's stored elements stand, row by row.
    fn columns(&self, memory: &Tmem, s: &Shape) -> Result<Vec<u16>, TmemError> {
        let wide = s.a.place >= 16;
        let selector = self.bits(0, 2);
        if s.paths == Paths::Spread || wide && selector > 1 {
            return Err(TmemError::Product("of a sparse matrix with metadata in this arrangement"));
        }
        if !wide && selector != 0 {
            return Err(TmemError::Undefined("of a sparse matrix whose metadata are elsewhere"));
        }
        let (lane, column) = Mma::start(self.metadata, s.paths)?;
        let nibble = |row: usize, q: usize| {
            let (l, c, shift) = match wide {
                // Half of the columns in eight lanes, half of the rows in half of the word.
                true => {
                    (row / 16 * 16 + q / 4 * 8 + row % 8, selector as usize, row / 8 % 2 * 16 + q % 4 * 4)
                }
                false => (row, q / 8, q % 8 * 4),
            };
            let word = memory.same(s.paths.starts(), (lane + l as u32, column + c as u32))?;
            Ok(word >> shift & 15)
        };
        metadata::columns_of(s.a.element, (s.rows, s.k), &nibble)?
            .ok_or(TmemError::Undefined("of a sparse matrix with these metadata"))
    }

    /// Factors, each a byte for each block of k: those of a line are in the word of its lane of 32, one word for each 32 lines, the same
    /// in each 32 lanes.
    fn factors(&self, memory: &Tmem, s: &Shape, blocks: usize) -> Result<Option<Scales>, TmemError> {
        let Some([a, b]) = self.scales else { return Ok(None) };
        let fraction = self.bits(23, 1) == 0;
        if fraction && self.kind != "mxf4nvf4" {
            return Err(TmemError::Undefined("with factors of this type"));
        }
        let per = match self.kind {
            "mxf4" => 2,
            "mxf4nvf4" => 4,
            _ => 1,
        };
        // Columns of the halves of D have factors of their own.
        let parts = if blocks == 2 { s.paths.parts() } else { 1 };
        let each = |address: u32, byte: u32, (count, parts): (usize, usize)| -> Result<Vec<u32>, TmemError> {
            if !byte.is_multiple_of(per) || byte + per > 4 {
                return Err(TmemError::Undefined("with factors at this byte"));
            }
            // The upper bits may say the byte, too; the descriptor decides.
            let (lane, column) = Mma::start(address & 0x3fff_ffff, Paths::Whole)?;
            let mut out = Vec::with_capacity(count * per as usize);
            for i in 0..count {
                let (part, line) = (i / (count / parts), (i % (count / parts)) as u32);
                let starts = (0..4 / parts).map(|copy| ((4 / parts * part + copy) * 32) as u32);
                let word = memory.same(starts, (lane + line % 32, column + line / 32))?;
                for block in 0..per {
                    let x = (word >> (8 * (byte + block))) as u8;
                    out.push(if fraction { small::E4M3.decode(x & 0x7f) } else { small::decode_scale(x) });
                }
            }
            Ok(out)
        };
        Ok(Some(Scales {
            blocks: per as usize,
            a: each(a, self.bits(29, 2), (s.rows, 1))?,
            b: each(b, self.bits(4, 2), (s.n, parts))?,
        }))
    }
}

/// Multiplies, adds up and writes. `read` reads bytes of the shared memory of one of the blocks.
pub(crate) fn multiply<E: From<TmemError> + From<gmma::DescriptorError>>(
    memory: &mut [Tmem],
    m: &Mma<'_>,
    read: &mut dyn FnMut(usize, u64, u32) -> Result<u64, E>,
    multiply: gmma::Multiply<'_>,
) -> Result<(), E> {
    let blocks = memory.len();
    let s = m.shape(blocks == 2)?;
    let b = m.read_b(blocks, &s, read)?;
    let (lane, column) = Mma::start(m.d, s.paths)?;
    let places = (0..s.rows * s.n).map(|at| {
        let (l, c) = s.paths.place(at / s.n, at % s.n, s.n);
        (lane + l, column + c)
    });
    let places: Vec<(u32, u32)> = places.collect();
    for (block, own) in memory.iter_mut().enumerate() {
        let mut read = |at: u64, size: u32| read(block, at, size);
        let a = m.read_a(own, &s, &mut read)?;
        let a: Vec<u64> = a.into_iter().map(|x| s.a.element(x, m.bits(13, 1) != 0)).collect();
        let columns = if m.sparse() { Some(m.columns(own, &s)?) } else { None };
        let scales = m.factors(own, &s, blocks)?;
        let mut c = vec![0u64; places.len()];
        if m.adds {
            for (c, (lane, column)) in c.iter_mut().zip(&places) {
                *c = u64::from(own.get(*lane, *column)?) & (u64::MAX >> (64 - s.sum.bits()));
            }
        }
        let (rows, n, k, sparse) = (s.rows, s.n, s.k, m.sparse());
        let product = Product { m: rows, n, k, a: s.a.element, b: s.b.element, sum: s.sum, sparse };
        let extra = Extra {
            scales: scales.as_ref(),
            columns: columns.as_deref(),
            halvings: m.halvings,
            ..Extra::default()
        };
        let d = multiply(&product, [&a, &b, &c], extra);
        for (d, (lane, column)) in d.into_iter().zip(&places) {
            if m.disabled[4 * block + (*lane / 32) as usize % 4] >> (lane % 32) & 1 == 0 {
                own.set(*lane, *column, d as u32)?;
            }
        }
        if let (true, Source::Tensor(at)) = (m.moves_rows, &m.a) {
            for lane in [0, 32, 64, 96] {
                own.shift_lanes(lane, at & 0xffff)?;
            }
        }
    }
    Ok(())
}
