//! How many blocks of a kernel a multiprocessor holds.

use crate::attributes::{REGISTERS, sm};
use crate::error::{Error, Result};
use crate::function::{Function, attribute};

/// Blocks of so many threads and bytes of dynamic shared memory.
pub fn blocks(f: &Function, threads: u32, dynamic: usize) -> Result<u32> {
    if threads == 0 || threads > 1024 {
        return Err(Error::INVALID_VALUE);
    }
    if threads > f.most_threads() || dynamic > most_dynamic(f)? {
        return Ok(0);
    }
    let sm = sm();
    let warps = threads.div_ceil(32);
    let by_threads = sm.threads / 32 / warps;
    // Registers are given to warps in units of 256, and a quarter of them to each quarter of a multiprocessor.
    let warp = (f.registers.max(1) * 32).next_multiple_of(256);
    let by_registers = (REGISTERS / 4 / warp) * 4 / warps;
    let shared =
        (f.shared as usize + dynamic).next_multiple_of(sm.shared_unit as usize) + sm.reserved as usize;
    let by_shared = (sm.shared as usize).checked_div(shared).map_or(u32::MAX, |n| n as u32);
    Ok(by_threads.min(by_registers).min(by_shared).min(sm.blocks))
}

/// Dynamic shared memory that a launch may ask for.
fn most_dynamic(f: &Function) -> Result<usize> {
    Ok(f.attribute(attribute::MAX_DYNAMIC_SHARED)?.max(0) as usize)
}

/// Dynamic shared memory that is left for each block where a multiprocessor holds so many of them.
pub fn available(f: &Function, count: u32, threads: u32) -> Result<usize> {
    if count > blocks(f, threads, 0)? {
        return Err(Error::INVALID_VALUE);
    }
    let sm = sm();
    let each = (sm.shared / count).saturating_sub(sm.reserved) / sm.shared_unit * sm.shared_unit;
    Ok((each.saturating_sub(f.shared) as usize).min(most_dynamic(f)?))
}

/// The block size that fills a multiprocessor best, and how many blocks fill the device.
pub fn suggest(f: &Function, limit: u32, dynamic: impl Fn(u32) -> usize) -> Result<(u32, u32)> {
    let limit = if limit == 0 { f.most_threads() } else { limit.min(f.most_threads()) };
    let mut best = (0, limit, 0);
    for threads in (1..=limit.div_ceil(32)).rev().map(|w| (32 * w).min(limit)) {
        let n = blocks(f, threads, dynamic(threads))?;
        if n * threads > best.0 {
            best = (n * threads, threads, n);
        }
    }
    Ok((best.2 * crate::settings::get().multiprocessors, best.1))
}
