//! Fat binaries: PTX and cubins of several targets in one file, some of them compressed.
//!
//! The layout is what `fatbinary` 13.0.88 writes: a header of 16 bytes, then entries, each a header and its bytes.

use crate::error::{Error, Result};
use sass::target::Suffix;
use std::io::Read as _;

/// First word of a fat binary.
pub const MAGIC: u32 = 0xba55_ed50;
/// First word of the structure that compilers point at one with; the address is its second 64-bit word.
pub const WRAPPER: u32 = 0x4662_43b1;
/// Bytes of the header.
pub const HEADER: usize = 16;

/// Bytes of the shortest header of an entry.
const ENTRY: usize = 64;

/// Flags of an entry: it is compressed with LZ4, or with Zstandard.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// Flags of an entry: it has the features of one SM alone, or of a family.
const SPECIFIC: u64 = 0x10_0000;
const FAMILY: u64 = 0x20_0000;

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// PTX, not a cubin.
    pub ptx: bool,
    /// The SM's number.
    pub sm: u32,
    /// Whether it has features that are not on every later SM.
    pub suffix: Suffix,
    /// Its bytes, expanded.
    pub bytes: Vec<u8>,
}

fn number(bytes: &[u8], at: usize, size: usize) -> Result<u64> {
    let end = at.checked_add(size).ok_or(Error::INVALID_IMAGE)?;
    let part = bytes.get(at..end).ok_or(Error::INVALID_IMAGE)?;
    Ok(sim::memory::little_endian(part))
}

/// Size of a fat binary by its header.
pub fn size(header: &[u8]) -> Result<usize> {
    let body = usize::try_from(number(header, 8, 8)?).map_err(|_| Error::INVALID_IMAGE)?;
    body.checked_add(number(header, 6, 2)? as usize).ok_or(Error::INVALID_IMAGE)
}

/// Expands a block of LZ4 or a frame of Zstandard.
fn expand(bytes: &[u8], flags: u64, size: usize) -> Result<Vec<u8>> {
    let wrong = |_| Error::INVALID_IMAGE;
    if size > crate::ffi::IMAGE_LIMIT {
        return Err(Error::INVALID_IMAGE);
    }
    if flags & LZ4 != 0 {
        // No block is expanded to more than 255 times its size.
        if size / 255 > bytes.len() {
            return Err(Error::INVALID_IMAGE);
        }
        return lz4_flex::block::decompress(bytes, size).map_err(|_| Error::INVALID_IMAGE);
    }
    let mut out = Vec::new();
    let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|_| Error::INVALID_IMAGE)?;
    decoder.take(size as u64 + 1).read_to_end(&mut out).map_err(wrong)?;
    if out.len() == size { Ok(out) } else { Err(Error::INVALID_IMAGE) }
}

/// The entries of a fat binary.
pub fn entries(file: &[u8]) -> Result<Vec<Entry>> {
    if number(file, 0, 4)? != u64::from(MAGIC) {
        return Err(Error::INVALID_IMAGE);
    }
    let (mut at, end) = (number(file, 6, 2)? as usize, size(file)?);
    if end > file.len() {
        return Err(Error::INVALID_IMAGE);
    }
    let mut found = Vec::new();
    while at.saturating_add(ENTRY) <= end {
        let kind = number(file, at, 2)?;
        let header = number(file, at + 4, 4)? as usize;
        let padded = number(file, at + 8, 8)? as usize;
        let compressed = number(file, at + 16, 4)? as usize;
        let sm = number(file, at + 28, 4)? as u32;
        let flags = number(file, at + 40, 8)?;
        let whole = number(file, at + 56, 8)? as usize;
        // One that is shorter than its own header would be read again and again.
        if header < ENTRY {
            return Err(Error::INVALID_IMAGE);
        }
        let from = at.checked_add(header).ok_or(Error::INVALID_IMAGE)?;
        let to = from.checked_add(padded).ok_or(Error::INVALID_IMAGE)?;
        let bytes = file.get(from..to).ok_or(Error::INVALID_IMAGE)?;
        let bytes = match flags & (LZ4 | ZSTD) {
            0 => bytes.to_vec(),
            _ => expand(bytes.get(..compressed).ok_or(Error::INVALID_IMAGE)?, flags, whole)?,
        };
        // 1 is PTX, 2 a cubin; others are of no use here.
        if kind == 1 || kind == 2 {
            let suffix = match flags & (SPECIFIC | FAMILY) {
                0 => Suffix::None,
                FAMILY => Suffix::F,
                _ => Suffix::A,
            };
            found.push(Entry { ptx: kind == 1, sm, suffix, bytes });
        }
        at = to;
    }
    Ok(found)
}

/// Whether a cubin runs on a device: with features of one SM alone on that SM, others on devices of the same major version
/// that are not older. Families of features are those major versions, too, of all SMs that there are yet.
pub fn runs_on(sm: u32, suffix: Suffix, device: u32) -> bool {
    match suffix {
        Suffix::A => sm == device,
        Suffix::F | Suffix::None => sm / 10 == device / 10 && sm <= device,
    }
}

impl Entry {
    /// Whether it can be used on a device. PTX is compiled for later ones, too, unless it asks for features that they lack.
    fn fits(&self, device: u32) -> bool {
        let any = self.ptx && self.suffix == Suffix::None;
        if any { self.sm <= device } else { runs_on(self.sm, self.suffix, device) }
    }
}

/// The entry for a device: the newest cubin that runs on it, else the newest PTX; of two the one with more features.
pub fn choose(entries: Vec<Entry>, device: u32) -> Result<Entry> {
    let features = |e: &Entry| match e.suffix {
        Suffix::None => 0,
        Suffix::F => 1,
        Suffix::A => 2,
    };
    let fitting = entries.into_iter().filter(|e| e.fits(device));
    fitting.max_by_key(|e| (!e.ptx, e.sm, features(e))).ok_or(Error::NO_BINARY_FOR_GPU)
}
