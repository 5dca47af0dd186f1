//! Fat binaries: cubins for several targets, and PTX, in one file that the driver takes one from.
//!
//! The layout is that of `fatbinary` 13.0.88 for images that are not compressed: a header of 16 bytes, then entries, each a
//! header and its bytes, padded to a multiple of 8.

/// First word of a fat binary.
const MAGIC: u32 = 0xba55_ed50;
const VERSION: u16 = 1;
const HEADER: u16 = 16;

/// First words of an entry: what it is, and the version of its header.
const PTX: u16 = 1;
const CUBIN: u16 = 2;
const ENTRY_VERSION: u16 = 0x101;
/// Bytes of the header of an entry, without a name.
const ENTRY: u32 = 64;
/// Bytes that the header of PTX has for options behind its name: where they begin, how long they are, and zeros.
const OPTIONS: u32 = 16;
/// Version of the images of cubins, minor and major.
const ELF: (u16, u16) = (8, 1);

/// Flags of an entry: for 64-bit hosts that are Linux, with debug information, with features of one SM alone, or of a family.
const LINUX_64: u64 = 0x11;
const DEBUG: u64 = 0x2;
const SPECIFIC: u64 = 0x10_0000;
const FAMILY: u64 = 0x20_0000;

/// Which SMs an image is for beside its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Later ones (`sm_90`).
    Later,
    /// Those of its family (`sm_100f`).
    Family,
    /// None (`sm_90a`).
    Alone,
}

/// An image.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The version of PTX; `None` of a cubin.
    pub ptx: Option<(u8, u8)>,
    /// The SM's number.
    pub sm: u32,
    /// Which others it is for.
    pub reach: Reach,
    /// Whether it has debug information.
    pub debug: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A fat binary of these images, of a source of this name if that is not empty.
pub fn write(images: &[Image<'_>], name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for image in images {
        // With a zero behind it.
        let named = if name.is_empty() { 0 } else { (name.len() + 1).next_multiple_of(8) as u32 };
        let (kind, (minor, major), options) = match image.ptx {
            Some((major, minor)) => (PTX, (minor.into(), major.into()), OPTIONS),
            None => (CUBIN, ELF, 0),
        };
        // Text ends in a zero.
        let size = image.bytes.len() + usize::from(image.ptx.is_some());
        let padded = size.next_multiple_of(8);
        let mut flags = LINUX_64 | if image.debug { DEBUG } else { 0 };
        flags |= match image.reach {
            Reach::Later => 0,
            Reach::Family => FAMILY,
            Reach::Alone => SPECIFIC,
        };
        body.extend(kind.to_le_bytes());
        body.extend(ENTRY_VERSION.to_le_bytes());
        body.extend((ENTRY + named + options).to_le_bytes());
        body.extend((padded as u64).to_le_bytes());
        // Not compressed.
        body.extend(0u32.to_le_bytes());
        body.extend(if options == 0 { 0 } else { ENTRY + named }.to_le_bytes());
        body.extend(u16::to_le_bytes(minor));
        body.extend(u16::to_le_bytes(major));
        body.extend(image.sm.to_le_bytes());
        body.extend(if name.is_empty() { 0 } else { ENTRY }.to_le_bytes());
        body.extend((name.len() as u32).to_le_bytes());
        body.extend(flags.to_le_bytes());
        body.extend([0; 16]);
        let end = body.len();
        body.extend(name.as_bytes());
        body.resize(end + named as usize, 0);
        if options != 0 {
            body.extend((ENTRY + named + 8).to_le_bytes());
            body.extend([0; 12]);
        }
        let end = body.len();
        body.extend(image.bytes);
        body.resize(end + padded, 0);
    }
    let mut out = MAGIC.to_le_bytes().to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend(HEADER.to_le_bytes());
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}
