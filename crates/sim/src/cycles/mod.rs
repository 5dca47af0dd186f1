//! `oxsass run --cycles`: how long code takes on one SM, by a model of its four warp schedulers. The simulator says what
//! each warp executed; the model issues it again as the control fields, the scoreboards and the units' rates allow.
//!
//! Modelled: stall counts, wait masks, `DEPBAR`, rates of the units ([`Machine`]), conflicts of register banks and the
//! reuse cache, conflicts of shared memory, sectors, a first-level cache that never forgets, barriers of the block, and how
//! many blocks fit. Not modelled: instruction fetch, the traffic of other SMs, bandwidth of L2 and DRAM, the time that
//! lanes take to part and meet, clusters.

mod machine;
mod report;
mod scheduler;
#[cfg(test)]
mod tests;

pub use machine::{Machine, version};
pub use report::Report;
pub use scheduler::{Reason, Stalls};

use crate::FileError;
use crate::launch::Launch;
use crate::memory::Memory;
use crate::sass::{Misfit, Options, Probe, SimError, code, observe, trace::Trace};
use sass::{Control, Inst};

/// How often every block comes in the view of a full SM.
pub const COPIES: u32 = 16;

/// Warp instructions that a launch which is made up may take in the simulator.
pub const LIMIT: u64 = 100_000;

/// Of launches that are tried, those that execute no more than this are timed, as the model takes its time.
pub const ENOUGH: u64 = 10_000;

/// Bytes of dynamic shared memory of such a launch: with as much as there is, one block would fill an SM.
const SHARED: u32 = 32 << 10;

/// A launch for the model, made up from a seed.
pub fn made_up(module: &::ptx::Module, kernel: &str, seed: u64) -> Option<Launch> {
    let made = crate::generate::generate(module, kernel, seed)?;
    Some(Launch { shared: made.shared.min(SHARED), ..made })
}

/// A kernel, ready for the model.
pub struct Kernel {
    /// SM number.
    pub sm: u8,
    /// Instructions by index; `None` for words that are not known.
    pub insts: Vec<Option<Inst>>,
    /// Their control fields.
    pub controls: Vec<Control>,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of shared memory per block, dynamic ones included.
    pub shared: u32,
    /// Threads per block.
    pub threads: u32,
}

impl Kernel {
    /// The kernel that a launch names.
    ///
    /// # Errors
    /// When the cubin cannot be loaded.
    pub fn load(cubin: &[u8], launch: &Launch) -> Result<Kernel, SimError> {
        let (target, words) = code(cubin, &launch.kernel)?;
        let image = cubin::read::read(cubin).map_err(|e| SimError::Cubin(e.into()))?;
        let k = image
            .kernels
            .get(&launch.kernel)
            .ok_or_else(|| SimError::Cubin(FileError::NoKernel(launch.kernel.clone())))?;
        let decode = |(i, w): (usize, &u128)| sass::decode(*w, target, 16 * i as i64).ok();
        Ok(Kernel {
            sm: target.sm,
            insts: words.iter().enumerate().map(decode).collect(),
            controls: words.iter().map(|w| Control::from_bits(*w)).collect(),
            registers: k.registers,
            shared: k.shared_bytes + launch.shared,
            threads: launch.block.iter().product(),
        })
    }

    /// Blocks that an SM holds at once.
    pub fn resident(&self, m: &Machine) -> u32 {
        let warps = self.threads.div_ceil(32).max(1);
        // Registers are given to warps in portions of 256, shared memory in portions of 128 bytes with 1 KiB for the
        // system.
        let per_warp = (self.registers.max(1) * 32).next_multiple_of(256);
        let by_registers = m.registers / per_warp / warps;
        let by_shared = m.shared / (self.shared.next_multiple_of(128) + 1024);
        m.blocks.min(m.warps / warps).min(by_registers).min(by_shared)
    }
}

/// What a launch executed, to be timed.
pub struct Recorded {
    kernel: Kernel,
    machine: Machine,
    trace: Trace,
}

impl Recorded {
    /// Runs a launch.
    ///
    /// # Errors
    /// As [`crate::sass::run`], and if no block fits into an SM.
    pub fn new(cubin: &[u8], launch: &Launch, options: Options) -> Result<Recorded, SimError> {
        Ok(Recorded::with_memory(cubin, launch, options)?.0)
    }

    /// The same, and the memory afterwards.
    ///
    /// # Errors
    /// The same.
    pub fn with_memory(
        cubin: &[u8],
        launch: &Launch,
        options: Options,
    ) -> Result<(Recorded, Memory), SimError> {
        let kernel = Kernel::load(cubin, launch)?;
        let mut probe = Probe::new(&[], None);
        probe.trace = Some(Trace::default());
        let run = observe(cubin, launch, options, &mut probe)?;
        let trace = probe.trace.unwrap_or_default();
        let machine = Machine::of(kernel.sm);
        if kernel.resident(&machine) == 0 {
            return Err(Misfit::Resident.into());
        }
        Ok((Recorded { kernel, machine, trace }, run.memory))
    }

    /// Registers stated for a thread.
    pub fn registers(&self) -> u32 {
        self.kernel.registers
    }

    /// Warp instructions executed.
    pub fn issued(&self) -> u64 {
        self.trace.warps.iter().map(|w| w.issues.len() as u64).sum()
    }

    /// How long it takes on one SM if every block comes `copies` times: once for the launch as it is, often enough for a
    /// full SM.
    pub fn report(&self, copies: u32) -> Report {
        let found = scheduler::run(&self.kernel, &self.machine, &self.trace, copies);
        Report::new(&self.kernel, &self.machine, found)
    }
}

/// Runs a launch and says how long it takes on one SM.
///
/// # Errors
/// As [`crate::sass::run`].
pub fn measure(cubin: &[u8], launch: &Launch, options: Options) -> Result<Report, SimError> {
    Ok(Recorded::new(cubin, launch, options)?.report(1))
}
