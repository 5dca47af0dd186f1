//! How fast two codes of one kernel are, by the model of docs/cycles.md, on the same made-up launches.

use sass::{Mod, Opcode, Operand, Reg, Target};
use sim::cycles::{ENOUGH, Recorded, Report};
use sim::launch::Launch;
use sim::sass::{Options, SimError};

pub use sim::cycles::{COPIES, LIMIT, made_up as launch};

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
    pub fn of(cubin: &[u8], launch: &Launch) -> Result<Figures, crate::Error> {
        Ok(Timed::new(cubin, launch, LIMIT)?.figures)
    }
}

/// A kernel's code on a launch, with where its time goes.
pub struct Timed {
    /// What is counted.
    pub figures: Figures,
    /// Bytes that instructions move to and from the frame, at places that stand in them: spills, and what is held in arrays
    /// without an index.
    pub spill_bytes: u64,
    /// The launch as it is.
    pub report: Report,
}

impl Timed {
    /// Runs a launch of at most `limit` warp instructions.
    ///
    /// # Errors
    /// What the simulator says.
    pub fn new(cubin: &[u8], launch: &Launch, limit: u64) -> Result<Timed, crate::Error> {
        let recorded = record(cubin, launch, limit)?;
        let image = cubin::read::read(cubin)?;
        let target = Target::new(image.sm).ok_or(crate::Error::Target(image.sm))?;
        let kernel = image.kernels.get(&launch.kernel).ok_or(crate::Error::NoKernel)?;
        let padding = kernel.code.iter().rev().take_while(|w| **w & 0xfff == 0x918).count();
        let words = &kernel.code[..kernel.code.len() - padding];
        let (mut local_bytes, mut spill_bytes) = (0, 0);
        for (at, word) in words.iter().enumerate() {
            let Ok(inst) = sass::decode(*word, target, 16 * at as i64) else { continue };
            if !matches!(inst.op, Opcode::LDL | Opcode::STL) {
                continue;
            }
            let bytes = match () {
                () if inst.mods.has(Mod::_128) => 16,
                () if inst.mods.has(Mod::_64) => 8,
                () => 4,
            };
            local_bytes += bytes;
            let framed = |o: &Operand| matches!(o, Operand::Addr { base: Some(r), uniform: None, .. } if *r == Reg::r(1));
            spill_bytes += if inst.operands.iter().any(framed) { bytes } else { 0 };
        }
        let report = recorded.report(1);
        let figures = Figures {
            instructions: words.len() as u64,
            executed: recorded.issued(),
            cycles: report.cycles,
            cycles_full: recorded.report(COPIES).cycles,
            registers: kernel.registers.into(),
            warps: report.warps.0.into(),
            local_bytes,
        };
        Ok(Timed { figures, spill_bytes, report })
    }

    /// The loop in which most time goes, the innermost of those that have it: byte addresses of its first and last instruction.
    pub fn hot_loop(&self) -> Option<(u32, u32)> {
        let time = |(first, last): (u32, u32)| {
            let inside = self.report.lines.iter().filter(|l| (first..=last).contains(&l.0));
            inside.map(|l| l.2 + l.3.total()).sum::<u64>()
        };
        let most = self.report.loops.iter().map(|l| time(*l)).max()?;
        self.report.loops.iter().copied().filter(|l| 2 * time(*l) > most).min_by_key(|l| l.1 - l.0)
    }
}

fn record(cubin: &[u8], launch: &Launch, limit: u64) -> Result<Recorded, SimError> {
    Recorded::new(cubin, launch, Options { limit, ..Options::default() })
}

/// The seed of the launch to time, by what `cubin` executes: of a few, the longest that is not too long.
pub fn seed(module: &ptx::Module, cubin: &[u8], kernel: &str) -> Option<u64> {
    let issued = |seed: u64| Some(record(cubin, &launch(module, kernel, seed)?, LIMIT).ok()?.issued());
    let found: Vec<(u64, u64)> = (0..4).filter_map(|seed| Some((issued(seed)?, seed))).collect();
    let longest = found.iter().filter(|f| f.0 <= ENOUGH).max_by_key(|f| (f.0, u64::MAX - f.1));
    longest.or_else(|| found.iter().min()).map(|f| f.1)
}
