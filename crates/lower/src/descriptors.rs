//! The tables of descriptors that the driver keeps, and that queries of textures, samplers and surfaces read (ptxas 13.0.88, one
//! query at a time; docs/lowering.md).

use ptx::Mod as M;

/// A table.
pub(crate) struct Table {
    /// Bytes from where constant bank 0 says where the first table is.
    pub(crate) place: u32,
    /// The symbol whose value is the size of a descriptor.
    pub(crate) size: &'static str,
    /// Whether it is that of samplers.
    pub(crate) samplers: bool,
    /// Words of a descriptor, in bytes, by attribute.
    pub(crate) words: &'static [(M, u32)],
}

/// Textures that have their samplers.
const UNIFIED: Table = Table {
    place: 0,
    size: ".nv.unified.texrefDescSize",
    samplers: false,
    words: &[
        (M::force_unnormalized_coords, 0),
        (M::addr_mode_0, 0xc),
        (M::addr_mode_1, 0x10),
        (M::addr_mode_2, 0x14),
        (M::filter_mode, 0x18),
        (M::normalized_coords, 0x1c),
        (M::channel_data_type, 0x20),
        (M::channel_order, 0x24),
        (M::array_size, 0x28),
        (M::num_mipmap_levels, 0x2c),
        (M::num_samples, 0x30),
    ],
};
/// Textures whose samplers are apart.
const TEXTURES: Table = Table {
    place: 0,
    size: ".nv.independent.texrefDescSize",
    samplers: false,
    words: &[
        (M::normalized_coords, 0xc),
        (M::channel_data_type, 0x10),
        (M::channel_order, 0x14),
        (M::array_size, 0x18),
        (M::num_mipmap_levels, 0x1c),
        (M::num_samples, 0x20),
    ],
};
/// Samplers.
const SAMPLERS: Table = Table {
    place: 8,
    size: ".nv.independent.samplerrefDescSize",
    samplers: true,
    words: &[
        (M::addr_mode_0, 0),
        (M::addr_mode_1, 4),
        (M::addr_mode_2, 8),
        (M::filter_mode, 0xc),
        (M::force_unnormalized_coords, 0x10),
    ],
};
/// Surfaces.
const SURFACES: Table = Table {
    place: 0x10,
    size: ".nv.surfrefDescSize",
    samplers: false,
    words: &[
        (M::channel_data_type, 0xc),
        (M::channel_order, 0x10),
        (M::memory_layout, 0x14),
        (M::array_size, 0x1c),
    ],
};

/// Those that a query may read.
pub(crate) fn tables(surface: bool, independent: bool) -> &'static [Table] {
    const OF_SURFACES: &[Table] = &[SURFACES];
    const APART: &[Table] = &[TEXTURES, SAMPLERS];
    const TOGETHER: &[Table] = &[UNIFIED];
    match (surface, independent) {
        (true, _) => OF_SURFACES,
        (_, true) => APART,
        _ => TOGETHER,
    }
}

/// Where constant bank 0 says where the first table is.
pub(crate) fn bank_place(sm: u8) -> u32 {
    match sm {
        100.. => 0x150,
        90 => 0xf0,
        _ => 0x70,
    }
}
