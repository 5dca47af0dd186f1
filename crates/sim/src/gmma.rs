//! Products of a warp group (`wgmma`, sm_90a): each of its four warps makes 16 rows of D, from 16 rows of A in registers or
//! shared memory and all of B in shared memory.
//!
//! How descriptors lay matrices out is what CUTLASS says of its canonical layouts (`cute/atom/mma_traits_sm90_gmma.hpp`):
//! units of 8 lines × 16 bytes without a swizzle, rows of 32, 64 or 128 bytes with one.

use crate::matrix::{Elem, Extra, Product, Row};
use std::fmt;

/// Why it is not known how a matrix lies in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DescriptorError {
    /// The descriptor has an offset of its base.
    BaseOffset,
    /// It is one of another kind.
    Kind,
    /// The matrix cannot lie like that.
    Layout,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not supported: a matrix descriptor ")?;
        f.write_str(match self {
            DescriptorError::BaseOffset => "with a base offset",
            DescriptorError::Kind => "of another kind",
            DescriptorError::Layout => "whose matrix cannot lie like that",
        })
    }
}

impl std::error::Error for DescriptorError {}

/// Where a matrix is in shared memory: bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bits of the address that change: 0 to 3.
    swizzle: u64,
    /// Whether units of 32 bytes change places instead of 16 (of tensor memory's products: rows of 128 bytes, four to a group).
    wide: bool,
}

impl Layout {
    fn of(descriptor: u64) -> Result<Layout, DescriptorError> {
        let field = |at: u32| (descriptor >> at & 0x3fff) << 4;
        if descriptor >> 49 & 7 != 0 {
            return Err(DescriptorError::BaseOffset);
        }
        if descriptor >> 61 & 1 != 0 || descriptor >> 52 & 1 != 0 {
            return Err(DescriptorError::Kind);
        }
        let swizzle = [0, 3, 2, 1][(descriptor >> 62) as usize];
        Ok(Layout { start: field(0), leading: field(16), stride: field(32), swizzle, wide: false })
    }

    /// Of a product in tensor memory, or a copy to it.
    fn of_tensor(descriptor: u64) -> Result<Layout, DescriptorError> {
        let known = [0, 1, 2, 4, 6].contains(&(descriptor >> 61));
        // One generation's distances may be addresses.
        if !known || descriptor >> 52 & 1 != 0 {
            return Err(DescriptorError::Kind);
        }
        let wide = descriptor >> 61 == 1;
        let layout = Layout::of(descriptor & !(1 << 61))?;
        Ok(Layout { wide, swizzle: if wide { 3 } else { layout.swizzle }, ..layout })
    }

    /// The address of the byte at `k` bytes of a line (a row of A, a column of B) that is contiguous in k.
    fn along_k(&self, line: u64, k: u64) -> u64 {
        let (group, line) = (line / 8, line % 8);
        match self.swizzle {
            0 => self.start + group * self.stride + line * 16 + k / 16 * self.leading + k % 16,
            s => self.start + group * self.stride + line * (16 << s) + k,
        }
    }

    /// That of an element of so many bytes where lines are contiguous.
    fn along_lines(&self, line: u64, k: u64, size: u64) -> u64 {
        let (group, step) = (k / 8, k % 8);
        let width = (16 / size.max(1)) << self.swizzle;
        let (block, at) = (line / width, line % width * size);
        match self.swizzle {
            3 if self.wide => self.start + block * self.leading + k % 4 * 128 + k / 4 * self.stride + at,
            0 => self.start + block * self.stride + step * 16 + group * self.leading + at,
            s => self.start + block * self.leading + step * (16 << s) + group * self.stride + at,
        }
    }

    fn swizzled(&self, address: u64) -> u64 {
        if self.wide {
            return address ^ (address >> 7 & 3) << 5;
        }
        crate::tensormap::swizzled(address, self.swizzle)
    }
}

/// Reads so many bytes of the block's shared memory.
pub(crate) type Read<'a, E> = &'a mut dyn FnMut(u64, u32) -> Result<u64, E>;

/// What multiplies matrices given row by row.
pub(crate) type Multiply<'a> = &'a dyn Fn(&Product, [&[u64]; 3], Extra<'_>) -> Vec<u64>;

/// Lines of a matrix in shared memory, each with `k` elements.
pub(crate) fn lines<E: From<DescriptorError>>(
    descriptor: u64,
    (first, count): (usize, usize),
    (e, k, transposed): (Elem, usize, bool),
    read: Read<'_, E>,
) -> Result<Vec<u64>, E> {
    let layout = Layout::of(descriptor)?;
    let bits = u64::from(e.bits());
    let mut out = Vec::with_capacity(count * k);
    for line in first as u64..(first + count) as u64 {
        for k in 0..k as u64 {
            let at = if transposed {
                layout.along_lines(line, k, bits / 8)
            } else {
                layout.along_k(line, k * bits / 8)
            };
            let word = read(layout.swizzled(at), bits.div_ceil(8) as u32)?;
            let shift = if bits < 8 { k * bits % 8 } else { 0 };
            out.push(word >> shift & (u64::MAX >> (64 - bits)));
        }
    }
    Ok(out)
}

/// How an element lies in shared memory where products in tensor memory read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells {
    /// Its bits.
    pub(crate) bits: u32,
    /// Whether 16 of them stand side by side at the start of 16 bytes.
    pub(crate) padded: bool,
}

/// Like [`lines`], of a product in tensor memory or a copy to it.
pub(crate) fn tensor_lines<E: From<DescriptorError>>(
    descriptor: u64,
    (first, count): (usize, usize),
    (cells, k, transposed): (Cells, usize, bool),
    read: Read<'_, E>,
) -> Result<Vec<u64>, E> {
    let layout = Layout::of_tensor(descriptor)?;
    let bits = u64::from(cells.bits);
    let width = k as u64 * if cells.padded { 8 } else { bits } / 8;
    // Words can be turned by the wide swizzle alone, which is for nothing else; narrow numbers cannot, and a line that is contiguous in k
    // does not leave its row.
    let turned = matches!((bits, layout.wide), (8 | 16, false) | (32, true)) && !cells.padded;
    let straight = !layout.wide && (layout.swizzle == 0 || width <= 16 << layout.swizzle);
    if !(if transposed { turned } else { straight }) {
        return Err(DescriptorError::Layout.into());
    }
    let mut out = Vec::with_capacity(count * k);
    for line in first as u64..(first + count) as u64 {
        for k in 0..k as u64 {
            let bit = if cells.padded { k / 16 * 128 + k % 16 * bits } else { k * bits };
            let at = match transposed {
                true => layout.along_lines(line, k, bits / 8),
                false => layout.along_k(line, bit / 8),
            };
            let shift = if bits < 8 { bit % 8 } else { 0 };
            let bytes = (shift + bits).div_ceil(8) as u32;
            let word = read(layout.swizzled(at), if bytes > 1 && bits < 8 { 1 } else { bytes })?;
            // Six bits may lie in two bytes.
            let word = match bits < 8 && bytes > 1 {
                true => word | read(layout.swizzled(at + 1), 1)? << 8,
                false => word,
            };
            out.push(word >> shift & (u64::MAX >> (64 - bits)));
        }
    }
    Ok(out)
}

/// Such a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The product of 16 rows and 8 columns.
    pub(crate) product: Product,
    /// Columns.
    pub(crate) n: usize,
    /// Whether A's and B's elements change their sign.
    pub(crate) negated: [bool; 2],
    /// Whether A and B are contiguous in rows and columns, not in k.
    pub(crate) transposed: [bool; 2],
}

/// A warp's A.
pub(crate) enum Rows<'a> {
    Registers(&'a [Row]),
    /// The descriptor of the whole, and which warp of the group it is.
    Shared(u64, usize),
}

impl Group {
    /// Registers of a lane for C or D.
    pub(crate) fn accumulators(&self) -> usize {
        self.product.registers()[2] * (self.n / 8)
    }

    /// A warp's rows of D.
    pub(crate) fn multiply<E: From<DescriptorError>>(
        &self,
        a: Rows<'_>,
        b: u64,
        c: &[Row],
        columns: Option<&[u16]>,
        read: Read<'_, E>,
        multiply: Multiply<'_>,
    ) -> Result<Vec<Row>, E> {
        let p = &self.product;
        let stored = if p.sparse { p.k / 2 } else { p.k };
        let mut ma = match a {
            Rows::Registers(rows) => p.gather_a(rows),
            Rows::Shared(descriptor, warp) => {
                lines(descriptor, (16 * warp, 16), (p.a, stored, self.transposed[0]), read)?
            }
        };
        let mut mb = lines(b, (0, self.n), (p.b, p.k, self.transposed[1]), read)?;
        for (matrix, e, negated) in [(&mut ma, p.a, self.negated[0]), (&mut mb, p.b, self.negated[1])] {
            if negated {
                matrix.iter_mut().for_each(|x| *x ^= e.sign());
            }
        }
        let per = p.registers()[2];
        let extra = Extra { columns, ..Extra::default() };
        let mut out = Vec::with_capacity(self.accumulators());
        for block in 0..self.n / 8 {
            let part: Vec<u64> = (0..p.k * 8).map(|i| mb[(8 * block + i % 8) * p.k + i / 8]).collect();
            let mc = p.gather_c(&c[block * per..][..per]);
            out.extend(p.scatter_d(&multiply(p, [&ma, &part, &mc], extra)));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_128_bytes_are_swizzled() {
        // Start 0x400, stride 1024, 128 bytes.
        let layout = Layout::of(0x40 | 64 << 32 | 1 << 62).unwrap();
        let place = |line, k| layout.swizzled(layout.along_k(line, k));
        assert_eq!([place(0, 0), place(1, 0), place(9, 34)], [0x400, 0x490, 0x400 + 1024 + 128 + 0x32]);
        let place = |line, k| layout.swizzled(layout.along_lines(line, k, 2));
        assert_eq!([place(9, 0), place(0, 1), place(0, 9)], [0x412, 0x490, 0x400 + 1024 + 128 + 0x10]);
    }

    #[test]
    fn units_without_a_swizzle() {
        let layout = Layout::of(0x40 | 8 << 16 | 32 << 32).unwrap();
        assert_eq!(layout.along_k(11, 18), 0x400 + 512 + 3 * 16 + 128 + 2);
        assert_eq!(layout.along_lines(11, 18, 2), 0x400 + 512 + 2 * 16 + 2 * 128 + 6);
        assert!(Layout::of(1 << 49).is_err());
    }
}
