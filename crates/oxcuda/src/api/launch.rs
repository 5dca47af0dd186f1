//! Launches, and how many blocks fit.

use super::{Handle, only};
use crate::driver::within;
use crate::error::{Error, Result};
use crate::ffi::{In, Out, SizeFn};
use crate::function::Function;
use crate::occupancy;
use crate::stream::submit;
use crate::work::{Launch, Work};

/// Names in the array that a parameters' block may come in, instead of addresses of parameters: its address, its
/// size.
const POINTER: u64 = 1;
const SIZE: u64 = 2;

/// A function by its handle.
pub fn function(handle: Handle) -> Result<Function> {
    within(|d| d.functions.get(handle).cloned())
}

/// The parameters' block.
pub fn params(f: &Function, addresses: In<u64>, extra: In<u64>) -> Result<Vec<u8>> {
    // Not both: nobody could say which of them counts.
    if !extra.is_null() && !addresses.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    if !extra.is_null() {
        let (mut at, mut bytes) = (0, 0);
        let mut i = 0;
        loop {
            let pair = extra.list(i + 1)?;
            match pair[i] {
                0 => break,
                POINTER => at = extra.list(i + 2)?[i + 1],
                SIZE => bytes = In::<u64>::at(extra.list(i + 2)?[i + 1]).get()?,
                _ => return Err(Error::INVALID_VALUE),
            }
            i += 2;
        }
        let mut block = crate::ffi::read(at, bytes as usize)?;
        // What follows the last parameter is of nobody's.
        if block.len() < f.size {
            return Err(Error::INVALID_VALUE);
        }
        block.truncate(f.size);
        return Ok(block);
    }
    if f.params.is_empty() {
        return Ok(Vec::new());
    }
    f.pack(&addresses.list(f.params.len())?)
}

/// The largest number of an attribute of launches in the header.
const LAST_ATTRIBUTE: u32 = 16;

/// `CUlaunchConfig`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: u64,
    count: u32,
}

/// `CUlaunchAttribute`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: u32,
    _pad: u32,
    value: [u32; 16],
}

impl Config {
    /// The launch that it describes, without parameters.
    fn launch(&self, function: Handle) -> Result<Launch> {
        let (mut cluster, mut cooperative) = (None, false);
        for a in In::<Attribute>::at(self.attributes).list(self.count as usize)? {
            match a.id {
                2 => cooperative = a.value[0] != 0,
                4 => cluster = Some([a.value[0], a.value[1], a.value[2]]),
                // Others say how fast things are to be, up to the last one that the header has.
                0..=LAST_ATTRIBUTE => {}
                _ => return Err(Error::INVALID_VALUE),
            }
        }
        let cluster = cluster.filter(|c| *c != [0; 3]);
        let (grid, block, shared) = (self.grid, self.block, self.shared);
        Ok(Launch { function, grid, block, cluster, cooperative, shared, params: Vec::new() })
    }
}

fn launch(
    handle: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    (shared, cooperative): (u32, bool),
    stream: Handle,
    given: (In<u64>, In<u64>),
) -> Result<()> {
    let f = function(handle)?;
    let params = params(&f, given.0, given.1)?;
    submit(
        stream,
        Work::Launch(Launch { function: handle, grid, block, cluster: None, cooperative, shared, params }),
    )
}

fn most(
    function_of: Handle,
    size: (SizeFn, usize),
    limit: i32,
    grid: Out<i32>,
    block: Out<i32>,
) -> Result<()> {
    let f = function(function_of)?;
    let (blocks, threads) =
        occupancy::suggest(&f, limit.max(0) as u32, |n| size.0.call(n).unwrap_or(size.1))?;
    grid.put(blocks as i32)?;
    block.put(threads as i32)
}

api! {
    /// Launches a kernel.
    fn cuLaunchKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: In<u64>, extra: In<u64>,
    ) / cuLaunchKernel_ptsz {
        launch(function, [gx, gy, gz], [bx, by, bz], (shared, false), stream, (params, extra))
    }
    /// Launches one whose blocks wait for each other.
    fn cuLaunchCooperativeKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, params: In<u64>,
    ) / cuLaunchCooperativeKernel_ptsz {
        launch(function, [gx, gy, gz], [bx, by, bz], (shared, true), stream, (params, In::at(0)))
    }
    /// Launches one with attributes.
    fn cuLaunchKernelEx(config: In<Config>, handle: Handle, addresses: In<u64>, extra: In<u64>) / cuLaunchKernelEx_ptsz {
        let config = config.get()?;
        let f = function(handle)?;
        let launch = Launch { params: params(&f, addresses, extra)?, ..config.launch(handle)? };
        submit(config.stream, Work::Launch(launch))
    }
    /// Blocks that a multiprocessor holds.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, handle: Handle, threads: i32, dynamic: usize) {
        blocks.put(occupancy::blocks(&function(handle)?, threads.max(0) as u32, dynamic)? as i32)
    }
    /// The same, with flags.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, handle: Handle, threads: i32, dynamic: usize, flags: u32) {
        only(flags, 1)?;
        blocks.put(occupancy::blocks(&function(handle)?, threads.max(0) as u32, dynamic)? as i32)
    }
    /// The block size that fills the device best.
    fn cuOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, handle: Handle, size: SizeFn, dynamic: usize, limit: i32) {
        most(handle, (size, dynamic), limit, grid, block)
    }
    /// The same, with flags.
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid: Out<i32>, block: Out<i32>, handle: Handle, size: SizeFn, dynamic: usize, limit: i32, flags: u32) {
        only(flags, 1)?;
        most(handle, (size, dynamic), limit, grid, block)
    }
    /// Dynamic shared memory that so many blocks leave for each.
    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, handle: Handle, blocks: i32, threads: i32) {
        let f = function(handle)?;
        let blocks = u32::try_from(blocks).ok().filter(|n| *n > 0).ok_or(Error::INVALID_VALUE)?;
        bytes.put(occupancy::available(&f, blocks, threads.max(0) as u32)?)
    }
    /// The largest cluster.
    fn cuOccupancyMaxPotentialClusterSize(size: Out<i32>, handle: Handle, _config: In<Config>) {
        let f = function(handle)?;
        size.put(if f.attribute(crate::function::attribute::NON_PORTABLE_CLUSTER)? != 0 { 16 } else { 8 })
    }
    /// Clusters that the device holds.
    fn cuOccupancyMaxActiveClusters(count: Out<i32>, handle: Handle, config: In<Config>) {
        let (f, config) = (function(handle)?, config.get()?);
        let launch = config.launch(handle)?;
        let cluster: u32 = launch.cluster.or(f.cluster).unwrap_or([1; 3]).iter().product();
        let threads = config.block.iter().product();
        let blocks = occupancy::blocks(&f, threads, config.shared as usize)? * crate::settings::get().multiprocessors;
        count.put((blocks / cluster.max(1)) as i32)
    }
}
