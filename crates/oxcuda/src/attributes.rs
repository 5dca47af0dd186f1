//! What the device says of itself, from one table.

use crate::settings;

/// What differs between SMs.
#[derive(Clone, Copy, Debug)]
pub struct Sm {
    /// The first SM that the row is of; it holds up to the next one's.
    sm: u8,
    /// Threads, blocks and bytes of shared memory of a multiprocessor.
    pub threads: u32,
    /// See `threads`.
    pub blocks: u32,
    /// See `threads`.
    pub shared: u32,
    /// Bytes of shared memory of a block that asks for them.
    pub shared_opt_in: u32,
    /// Bytes of a block's shared memory that the system takes.
    pub reserved: u32,
    /// Bytes of the units in which blocks are given shared memory (CUDA's occupancy calculator).
    pub shared_unit: u32,
}

impl Sm {
    /// A row: the SM, its threads and blocks, KiB of shared memory of a multiprocessor and a block, bytes that the system takes and
    /// of a unit.
    const fn row(
        sm: u8,
        (threads, blocks): (u32, u32),
        (shared, opt_in): (u32, u32),
        (reserved, shared_unit): (u32, u32),
    ) -> Sm {
        Sm { sm, threads, blocks, shared: shared << 10, shared_opt_in: opt_in << 10, reserved, shared_unit }
    }
}

/// Compute capabilities, as the programming guide's table of technical specifications has them.
const SMS: &[Sm] = &[
    Sm::row(75, (1024, 16), (64, 64), (0, 256)),
    Sm::row(80, (2048, 32), (164, 163), (1024, 128)),
    Sm::row(86, (1536, 16), (100, 99), (1024, 128)),
    Sm::row(87, (1536, 16), (164, 163), (1024, 128)),
    Sm::row(88, (1536, 24), (100, 99), (1024, 128)),
    Sm::row(90, (2048, 32), (228, 227), (1024, 128)),
    Sm::row(110, (1536, 24), (228, 227), (1024, 128)),
    Sm::row(120, (1536, 24), (100, 99), (1024, 128)),
];

/// Registers of a multiprocessor, and of a block.
pub const REGISTERS: u32 = 1 << 16;
/// Bytes of shared memory of a block that asks for nothing.
pub const SHARED: u32 = 48 << 10;

/// Most texels of textures and surfaces in each dimension, as the programming guide's table has them (compute capability 7.5 and
/// later): arrays of one to three dimensions, gathered from, layered, cubes; surfaces; memory that is no array; with levels.
const IMAGES: [(u32, i32); 40] = [
    (21, 131072),
    (22, 131072),
    (23, 65536),
    (24, 16384),
    (25, 16384),
    (26, 16384),
    (27, 32768),
    (28, 32768),
    (29, 2048),
    (42, 32768),
    (43, 2048),
    (45, 32768),
    (46, 32768),
    (47, 8192),
    (48, 8192),
    (49, 32768),
    (52, 32768),
    (53, 32768),
    (54, 2046),
    (55, 32768),
    (56, 131072),
    (57, 65536),
    (58, 16384),
    (59, 16384),
    (60, 16384),
    (61, 32768),
    (62, 2048),
    (63, 32768),
    (64, 32768),
    (65, 2048),
    (66, 32768),
    (67, 32768),
    (68, 2046),
    (69, 1 << 28),
    (70, 131072),
    (71, 65000),
    (72, 2097120),
    (73, 32768),
    (74, 32768),
    (77, 32768),
];

/// The row of the device.
pub fn sm() -> Sm {
    let sm = settings::get().target.sm;
    *SMS.iter().rfind(|s| s.sm <= sm).unwrap_or(&SMS[0])
}

/// Compute capability of an SM.
pub fn capability(sm: u8) -> (i32, i32) {
    (i32::from(sm / 10), i32::from(sm % 10))
}

/// The name of the device.
pub fn name() -> String {
    format!("oxcuda {}", settings::get().target)
}

/// An attribute of the device by its number.
pub fn attribute(number: u32) -> Option<i32> {
    let s = settings::get();
    let sm = sm();
    let from = |least: u8| i32::from(s.target.sm >= least);
    let (major, minor) = capability(s.target.sm);
    Some(match number {
        // Threads of a block, in all and in each dimension; blocks of a grid.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => SHARED as i32,
        // Constant memory, threads of a warp, pitch, registers of a block.
        9 => 1 << 16,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => REGISTERS as i32,
        // Clocks in kHz, alignment of textures.
        13 => 1_500_000,
        14 | 30 => 512,
        51 => 32,
        // Copies while kernels run: said, though nothing does two things at once.
        15 | 40 => 1,
        16 => s.multiprocessors as i32,
        // No limit of time, a device of its own, mapped host memory.
        17 | 18 => 0,
        19 => 1,
        20 => 0,
        n if IMAGES.iter().any(|i| i.0 == n) => IMAGES.iter().find(|i| i.0 == n)?.1,
        31 => 1,
        // ECC, PCI, TCC.
        32..=35 | 50 => 0,
        36 => 1_000_000,
        37 => 256,
        38 => 4 << 20,
        39 => sm.threads as i32,
        41 => 1,
        44 => 1,
        75 => major,
        76 => minor,
        // Stream priorities, caches.
        78..=80 => 1,
        81 => sm.shared as i32,
        // Managed memory, which the host may use at any time; no other boards; no atomics of the host's.
        83 => 1,
        84..=86 => 0,
        87 => 2,
        // Memory that the driver doesn't know is not for kernels.
        88 => 0,
        89..=91 => 1,
        92..=94 => 0,
        95 => 1,
        96 => 0,
        97 => sm.shared_opt_in as i32,
        98 => 0,
        99 => 1,
        100 | 101 => 0,
        // Virtual memory management, handles of other processes.
        102 => 1,
        103..=105 => 0,
        106 => sm.blocks as i32,
        107..=110 => 0,
        111 => sm.reserved as i32,
        112..=114 => 0,
        // Memory pools, of this process.
        115 => 1,
        116..=119 => 0,
        120 => from(90),
        121 => 0,
        // Operations on words of memory: of 64 bits, and every comparison.
        122 | 123 => 1,
        124..=126 => 0,
        127 => from(90),
        128 => 0,
        129 => 1,
        130..=147 => 0,
        _ => return None,
    })
}
