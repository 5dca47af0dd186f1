//! How fast two codes of one kernel are, by the model of docs/cycles.md, on the same made-up launches.

use sass::{Mod, Opcode, Target};
use sim::cycles::Recorded;
use sim::generate::generate;
use sim::launch::Launch;
use sim::sass::Options;

/// How often every block comes in the view of a full SM.
pub const COPIES: u32 = 16;

/// Warp instructions that a launch may take in the simulator.
const LIMIT: u64 = 100_000;

/// Of the launches that are tried, the longest that executes no more than this is timed, as the model takes its time.
const ENOUGH: u64 = 10_000;

/// What is counted of a kernel's code on a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Instructions of the code, without padding.
    pub instructions: u64,
    /// Warp instructions executed.
    pub executed: u64,
    /// Cycles on one SM.
    pub cycles: u64,
    /// Cycles if every block comes [`COPIES`] times.
    pub cycles_full: u64,
    /// Registers stated for a thread.
    pub registers: u64,
    /// Warps that an SM holds at once.
    pub warps: u64,
    /// Bytes that instructions of the code move to and from local memory: spills, and arrays.
    pub local_bytes: u64,
}

impl Figures {
    /// Names of the fields, in the order of [`Figures::values`].
    pub const NAMES: [&str; 7] =
        ["instructions", "executed", "cycles", "cycles_full", "registers", "warps", "local_bytes"];

    /// The fields.
    pub fn values(&self) -> [u64; 7] {
        let Figures { instructions, executed, cycles, cycles_full, registers, warps, local_bytes } = *self;
        [instructions, executed, cycles, cycles_full, registers, warps, local_bytes]
    }

    /// From the fields.
    pub fn from_values(values: [u64; 7]) -> Figures {
        let [instructions, executed, cycles, cycles_full, registers, warps, local_bytes] = values;
        Figures { instructions, executed, cycles, cycles_full, registers, warps, local_bytes }
    }

    /// Counts them.
    ///
    /// # Errors
    /// What the simulator says.
    pub fn of(cubin: &[u8], launch: &Launch) -> Result<Figures, String> {
        let recorded = record(cubin, launch)?;
        let image = cubin::read::read(cubin)?;
        let target = Target::new(image.sm).ok_or("unknown target")?;
        let kernel = image.kernels.get(&launch.kernel).ok_or("no such kernel")?;
        let padding = kernel.code.iter().rev().take_while(|w| **w & 0xfff == 0x918).count();
        let words = &kernel.code[..kernel.code.len() - padding];
        let local = |(at, w): (usize, &u128)| {
            let inst = sass::decode(*w, target, 16 * at as i64).ok()?;
            let bytes = match () {
                () if inst.mods.has(Mod::_128) => 16,
                () if inst.mods.has(Mod::_64) => 8,
                () => 4,
            };
            matches!(inst.op, Opcode::LDL | Opcode::STL).then_some(bytes)
        };
        let alone = recorded.report(1);
        Ok(Figures {
            instructions: words.len() as u64,
            executed: recorded.issued(),
            cycles: alone.cycles,
            cycles_full: recorded.report(COPIES).cycles,
            registers: kernel.registers.into(),
            warps: alone.warps.0.into(),
            local_bytes: words.iter().enumerate().filter_map(local).sum(),
        })
    }
}

fn record(cubin: &[u8], launch: &Launch) -> Result<Recorded, String> {
    Recorded::new(cubin, launch, Options { limit: LIMIT, ..Options::default() }).map_err(|e| e.to_string())
}

/// Bytes of dynamic shared memory of a launch: with as much as there is, one block would fill an SM.
const SHARED: u32 = 32 << 10;

/// The launch that is made up from a seed.
pub fn launch(module: &ptx::Module, kernel: &str, seed: u64) -> Option<Launch> {
    let made = generate(module, kernel, seed)?;
    Some(Launch { shared: made.shared.min(SHARED), ..made })
}

/// The seed of the launch to time, by what `cubin` executes: of a few, the longest that is not too long.
pub fn seed(module: &ptx::Module, cubin: &[u8], kernel: &str) -> Option<u64> {
    let issued = |seed: u64| Some(record(cubin, &launch(module, kernel, seed)?).ok()?.issued());
    let found: Vec<(u64, u64)> = (0..4).filter_map(|seed| Some((issued(seed)?, seed))).collect();
    let longest = found.iter().filter(|f| f.0 <= ENOUGH).max_by_key(|f| (f.0, u64::MAX - f.1));
    longest.or_else(|| found.iter().min()).map(|f| f.1)
}
