//! What the driver keeps of textures and surfaces beside the hardware's headers: tables of descriptors, which `txq` and
//! `suq` read (docs/lowering.md).

use crate::image::Attribute;
use crate::memory::Memory;

/// Where the table of textures lies.
const TEXTURES: u64 = 0x7900 << 32;
/// Where that of surfaces lies.
const SURFACES: u64 = 0x7901 << 32;
/// Where that of samplers lies.
const SAMPLERS: u64 = 0x7902 << 32;

/// Symbols whose values are the sizes of descriptors. They are the driver's own.
const SIZES: [(&str, u64); 4] = [
    (".nv.unified.texrefDescSize", 0x60),
    (".nv.surfrefDescSize", 0x30),
    (".nv.independent.texrefDescSize", 0x40),
    (".nv.independent.samplerrefDescSize", 0x20),
];

/// The value of a symbol that says how large a descriptor is.
pub(super) fn size(symbol: &str) -> Option<u64> {
    SIZES.iter().find(|s| s.0 == symbol).map(|s| s.1)
}

/// Words of a texture's descriptor where samplers are apart.
const APART: [(usize, Attribute); 6] = [
    (0x0c, Attribute::Normalized),
    (0x10, Attribute::ChannelType),
    (0x14, Attribute::ChannelOrder),
    (0x18, Attribute::ArraySize),
    (0x1c, Attribute::Levels),
    (0x20, Attribute::Samples),
];
/// Words of the descriptor of a sampler of its own.
const SAMPLER: [(usize, Attribute); 5] = [
    (0x00, Attribute::Address(0)),
    (0x04, Attribute::Address(1)),
    (0x08, Attribute::Address(2)),
    (0x0c, Attribute::Filter),
    (0x10, Attribute::ForceUnnormalized),
];
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

/// A table of everything that has a number; what no word is known of holds something else than zeros.
fn table<T>(
    all: impl Iterator<Item = (u32, T)>,
    size: u64,
    words: &[(usize, Attribute)],
    value: impl Fn(&T, Attribute) -> u32,
) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, one) in all {
        out.resize((u64::from(number) * size) as usize, 0xd5);
        let start = out.len();
        out.resize(start + size as usize, 0xd5);
        for (at, attribute) in words {
            let at = start + at;
            out[at..at + 4].copy_from_slice(&value(&one, *attribute).to_le_bytes());
        }
    }
    out
}

/// Puts the tables into memory, and says in constant bank 0 where they are. `apart`: samplers have a table of their own.
pub(super) fn place(sm: u32, apart: bool, memory: &mut Memory, put: &mut impl FnMut(usize, &[u8])) {
    let at = match sm {
        100.. => 0x150,
        90 => 0xf0,
        _ => 0x70,
    };
    let images = |size, words: &[(usize, Attribute)]| {
        table(memory.images.all(), size, words, |image, attribute| image.attribute(attribute))
    };
    let samplers = table(memory.images.all_samplers(), SIZES[3].1, &SAMPLER, |s, attribute| {
        s.attribute(attribute).unwrap_or(0)
    });
    let textures = if apart { images(SIZES[2].1, &APART) } else { images(SIZES[0].1, &TEXTURE) };
    let surfaces = images(SIZES[1].1, &SURFACE);
    for (place, name, base, bytes) in [
        (0, "textures", TEXTURES, textures),
        (8, "samplers", SAMPLERS, samplers),
        (0x10, "surfaces", SURFACES, surfaces),
    ] {
        if bytes.is_empty() {
            continue;
        }
        memory.place(&format!("descriptors of {name}"), base, bytes);
        put(at + place, &base.to_le_bytes());
    }
}

/// Takes them away again.
pub(super) fn remove(memory: &mut Memory) {
    memory.remove(TEXTURES);
    memory.remove(SAMPLERS);
    memory.remove(SURFACES);
}
