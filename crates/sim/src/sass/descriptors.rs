//! What the driver keeps of textures and surfaces beside the hardware's headers: tables of descriptors, which `txq` and
//! `suq` read (docs/lowering.md).

use crate::image::{Attribute, Image};
use crate::memory::Memory;

/// Where the table of textures lies.
const TEXTURES: u64 = 0x7900 << 32;
/// Where that of surfaces lies.
const SURFACES: u64 = 0x7901 << 32;

/// Symbols whose values are the sizes of descriptors: those of textures and of surfaces. They are the driver's own.
const SIZES: [(&str, u64); 2] = [(".nv.unified.texrefDescSize", 0x60), (".nv.surfrefDescSize", 0x30)];

/// The value of a symbol that says how large a descriptor is.
pub(super) fn size(symbol: &str) -> Option<u64> {
    SIZES.iter().find(|s| s.0 == symbol).map(|s| s.1)
}

/// Words of a texture's descriptor, by their offsets.
const TEXTURE: [(usize, Attribute); 11] = [
    (0x00, Attribute::ForceUnnormalized),
    (0x0c, Attribute::Address(0)),
    (0x10, Attribute::Address(1)),
    (0x14, Attribute::Address(2)),
    (0x18, Attribute::Filter),
    (0x1c, Attribute::Normalized),
    (0x20, Attribute::ChannelType),
    (0x24, Attribute::ChannelOrder),
    (0x28, Attribute::ArraySize),
    (0x2c, Attribute::Levels),
    (0x30, Attribute::Samples),
];
/// The same of a surface's.
const SURFACE: [(usize, Attribute); 4] = [
    (0x0c, Attribute::ChannelType),
    (0x10, Attribute::ChannelOrder),
    (0x14, Attribute::Linear),
    (0x1c, Attribute::ArraySize),
];

/// A table of all images; what no word is known of holds something else than zeros.
fn table<'i>(
    images: impl Iterator<Item = (u32, &'i Image)>,
    size: u64,
    words: &[(usize, Attribute)],
) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, image) in images {
        out.resize((u64::from(number) * size) as usize, 0xd5);
        let start = out.len();
        out.resize(start + size as usize, 0xd5);
        for (at, attribute) in words {
            let at = start + at;
            out[at..at + 4].copy_from_slice(&image.attribute(*attribute).to_le_bytes());
        }
    }
    out
}

/// Puts the tables into memory, and says in constant bank 0 where they are.
pub(super) fn place(sm: u32, memory: &mut Memory, put: &mut impl FnMut(usize, &[u8])) {
    let at = match sm {
        100.. => 0x150,
        90 => 0xf0,
        _ => 0x70,
    };
    let lists =
        [("textures", TEXTURES, SIZES[0].1, &TEXTURE[..]), ("surfaces", SURFACES, SIZES[1].1, &SURFACE[..])];
    for (n, (name, base, size, words)) in lists.into_iter().enumerate() {
        let bytes = table(memory.images.all(), size, words);
        if bytes.is_empty() {
            continue;
        }
        memory.place(&format!("descriptors of {name}"), base, bytes);
        put(at + 0x10 * n, &base.to_le_bytes());
    }
}

/// Takes them away again.
pub(super) fn remove(memory: &mut Memory) {
    memory.remove(TEXTURES);
    memory.remove(SURFACES);
}
