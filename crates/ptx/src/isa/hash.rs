/// The hash of a name in the tables that `build.rs` writes and `isa.rs` reads; both include this file.
fn hash(name: &[u8]) -> u32 {
    let first: u64 = name.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b));
    // Most names have no more than eight bytes.
    let last: u64 = match name.len() {
        ..=8 => 0,
        n => name[n - 8..].iter().fold(0, |n, b| n << 8 | u64::from(*b)),
    };
    let mixed = (first ^ last.rotate_left(23) ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u32
}
