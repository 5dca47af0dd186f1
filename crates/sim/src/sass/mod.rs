//! The SASS simulator: executes a cubin, whoever compiled it, on the launch of a launch file.
//!
//! The execution model (convergence above all) is described in `docs/simulator.md`.

mod atomic;
mod barrier;
mod bulk;
pub mod check;
mod compare;
mod compile;
mod control;
mod convert;
mod coverage;
mod descriptors;
mod driver;
mod extrema;
mod float;
mod grid;
mod half;
mod image;
mod int;
mod late;
mod mem;
mod operand;
mod pack;
mod packed;
mod pool;
mod reach;
mod read;
mod rows;
mod spans;
mod state;
mod surface;
mod tensor;
#[cfg(test)]
mod tests;
mod texture;
mod tiles;
mod tmem;
pub mod trace;
mod uniform;
mod warp;

pub use coverage::{Coverage, coverage};
pub(crate) use float::extremum;
pub(crate) use pack::pack_integers;

use crate::FileError;
use crate::launch::{Buffers, Launch, MOST_SHARED, MOST_STACK, ShapeError};
use crate::memory::{GRID_WORKSPACE, PARAM_WINDOW, grid_workspace};
use crate::schedule::{Dice, Schedule};
use crate::stops::{Slot, Stop, Stops};
use crate::watch::Watch;
use check::{Checker, Checks, Report};
use compile::{Action, Step};
use grid::{Grid, Kernel};
pub use image::Module;
use image::{Banks, Image};
use reach::{Reach, Regions};
use sass::{DecodeError, Inst, Target};
use state::{Block, Env, Warp};

/// Of which kind what went wrong is, as a driver tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// An access to memory that is not there.
    Address,
    /// An address that is no multiple of the size.
    Misaligned,
    /// An access outside of a surface whose instruction says that it is to stop then.
    Surface,
    /// `assert` failed.
    Assertion,
    /// The program stopped itself.
    Trap,
    /// A barrier was used as none may be.
    Barrier,
    /// The simulator lacks something.
    Unsupported,
    /// Anything else.
    #[default]
    Other,
}

/// What went wrong in a lane or a warp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    lane: Option<usize>,
    what: String,
    cause: Cause,
}

impl Fault {
    /// In a lane.
    pub(crate) fn at(lane: usize, what: impl Into<String>) -> Fault {
        Fault { lane: Some(lane), what: what.into(), cause: Cause::Other }
    }
    /// In the warp.
    pub(crate) fn warp(what: impl Into<String>) -> Fault {
        Fault { lane: None, what: what.into(), cause: Cause::Other }
    }
    /// Of a kind.
    pub(crate) fn because(self, cause: Cause) -> Fault {
        Fault { cause, ..self }
    }
}

/// What makes it impossible for the whole warp.
macro_rules! of_warp {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(e: $error) -> Fault {
                Fault::warp(e.to_string())
            }
        })*
    };
}

of_warp!(crate::gmma::DescriptorError, crate::tmem::TmemError);

/// Why a launch does not fit a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// No kernel is launched so.
    Shape(ShapeError),
    /// It needs too many bytes of stack.
    Stack {
        /// The kernel.
        kernel: String,
        /// So many.
        bytes: u32,
    },
    /// It needs too many bytes of shared memory.
    Shared {
        /// The kernel.
        kernel: String,
        /// So many.
        bytes: u32,
    },
    /// It takes another number of bytes of parameters.
    Params {
        /// The kernel.
        kernel: String,
        /// So many.
        takes: u16,
        /// Those of the launch.
        has: usize,
    },
    /// An SM has not the room for one of its blocks.
    Resident,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Misfit::Shape(e) => e.fmt(f),
            Misfit::Stack { kernel, bytes } => {
                write!(f, "{kernel} has a stack of {bytes} bytes; there are at most {MOST_STACK}")
            }
            Misfit::Shared { kernel, bytes } => {
                write!(f, "{kernel} has {bytes} bytes of shared memory; there are at most {MOST_SHARED}")
            }
            Misfit::Params { kernel, takes, has } => {
                write!(f, "{kernel} has {takes} bytes of parameters, the launch {has}")
            }
            Misfit::Resident => f.write_str("a block does not fit into an SM"),
        }
    }
}

impl std::error::Error for Misfit {}

impl From<Misfit> for SimError {
    fn from(e: Misfit) -> SimError {
        SimError::Launch(e)
    }
}

/// Why a simulation stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimError {
    /// The file is no cubin, or lacks something that the launch needs.
    Cubin(FileError),
    /// The launch does not fit the kernel.
    Launch(Misfit),
    /// An instruction could not be executed.
    Instruction {
        /// Byte address in the kernel's section.
        address: u32,
        /// The instruction.
        text: String,
        /// Block coordinates.
        block: [u32; 3],
        /// Warp of the block.
        warp: u32,
        /// Lane, where one is to blame.
        lane: Option<usize>,
        /// What is wrong.
        what: String,
        /// Of which kind that is.
        cause: Cause,
    },
    /// All threads of a block wait for each other.
    Deadlock {
        /// Block coordinates.
        block: [u32; 3],
        /// Who waits for what.
        what: String,
    },
    /// A block, of these coordinates, ended and had not given its tensor memory back.
    Taken([u32; 3]),
    /// More instructions were issued than the limit allows.
    Limit(u64),
    /// The same, and a warp asks in vain for registers that others do not give back, as PTX's `setmaxnreg.inc` waits for them.
    Starved {
        /// Block coordinates.
        block: [u32; 3],
        /// Warp of the block.
        warp: u32,
        /// Registers a thread that it asks for.
        asked: u32,
    },
}

impl std::fmt::Display for SimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SimError::Cubin(e) => write!(f, "{e}"),
            SimError::Launch(e) => e.fmt(f),
            SimError::Instruction { address, text, block, warp, lane, what, .. } => {
                write!(f, "/*{address:04x}*/ {text}: {what} (block {block:?}, warp {warp}")?;
                lane.map_or(Ok(()), |l| write!(f, ", lane {l}"))?;
                f.write_str(")")
            }
            SimError::Deadlock { block, what } => write!(f, "deadlock in block {block:?}: {what}"),
            SimError::Taken(block) => {
                write!(f, "block {block:?} ends and has not given tensor memory back")
            }
            SimError::Limit(n) => write!(f, "stopped after {n} warp instructions, the limit of a launch"),
            SimError::Starved { block, warp, asked } => {
                write!(
                    f,
                    "warp {warp} of block {block:?} waits for {asked} registers that others do not give back"
                )
            }
        }
    }
}

impl std::error::Error for SimError {}

/// How to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most warp instructions to issue.
    pub limit: u64,
    /// Which warps run when.
    pub schedule: Schedule,
    /// Whether it is an error to read a uniform register that lanes running apart have written since. Code may do
    /// so where it doesn't use what it reads.
    pub strict_uniform: bool,
    /// Decides what registers, local and shared memory hold before they are written; with 0 they hold zeros.
    pub fill: u64,
    /// Which checks to do: see [`checked`].
    pub checks: Checks,
    /// Whether blocks may run on several processors at once, where only a race between blocks can tell that from one
    /// after another. Not what compares results: launches that are made up may well have races.
    pub parallel: bool,
    /// Whether asynchronous operations are done as late as code that waits for them allows, instead of at once. Nothing is checked then.
    pub late: bool,
    /// Bytes of the units in which a block is given shared memory; 1 where an access behind what it asked for is an error.
    pub shared_unit: u32,
    /// Whether it is an error to reach global memory by another descriptor than the driver's; cache policies are
    /// such ones.
    pub strict_descriptors: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            limit: 20_000_000,
            schedule: Schedule::Turns,
            strict_uniform: false,
            fill: 1,
            checks: Checks::default(),
            parallel: false,
            late: false,
            shared_unit: 1,
            strict_descriptors: false,
        }
    }
}

/// What a simulation did.
#[derive(Clone, Debug)]
pub struct Run {
    /// The buffers afterwards.
    pub buffers: Buffers,
    /// Global memory afterwards.
    pub memory: crate::memory::Memory,
    /// Warp instructions issued.
    pub issued: u64,
    /// What the threads printed.
    pub output: crate::output::Output,
}

/// Decoded code: instructions (or why a word is none), 16 bytes each.
type Code = Vec<Result<Inst, DecodeError>>;

/// Decodes a section.
fn decode(code: &[u128], target: Target) -> Code {
    let words = code.iter().enumerate();
    words.map(|(i, w)| sass::decode(*w, target, i as i64 * 16)).collect()
}

/// What to observe of a run.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Places of global memory, with the address of the instruction that wrote them last.
    pub watch: Watch<u32>,
    /// Whether each instruction was executed by some thread.
    pub executed: Vec<bool>,
    /// The instruction (byte address) after which the state of the warp is noted.
    pub at: Option<u32>,
    /// What the warps did, if it is wanted.
    pub trace: Option<trace::Trace>,
    /// Hashes of the state of the warp and its block after the first executions of that instruction: of what
    /// other instructions read.
    pub states: Vec<u64>,
    /// Where threads are looked at.
    pub stops: Stops<u32, Slot>,
    read: read::Read,
}

impl Probe {
    /// States that are noted at most.
    const MOST_STATES: usize = 256;

    /// Watches these addresses, and one instruction.
    pub fn new(addresses: &[u64], at: Option<u32>) -> Probe {
        Probe {
            watch: Watch::new(addresses),
            executed: Vec::new(),
            at,
            trace: None,
            states: Vec::new(),
            stops: Stops::default(),
            read: Default::default(),
        }
    }

    /// Looks at threads of a warp about to execute an instruction.
    fn stop(&mut self, pc: u32, lanes: u32, warp: &Warp, block: [u32; 3]) {
        for lane in (0..32).filter(|l| lanes >> l & 1 == 1) {
            let thread = warp.first + lane as u32;
            if let Some(wanted) = self.stops.wanted.get(&pc)
                && self.stops.looks_at(block, thread)
            {
                let values = wanted.iter().map(|slot| warp.slot(*slot, lane)).collect();
                self.stops.keep(Stop { at: pc, block, thread, values });
            }
        }
    }

    fn look(&mut self, pc: u32, time: u64, warp: &Warp, block: &Block, memory: &crate::memory::Memory) {
        let index = pc as usize / 16;
        if self.executed.len() <= index {
            self.executed.resize(index + 1, false);
        }
        self.executed[index] = true;
        self.watch.look(memory, time, pc);
        if self.at == Some(pc) && self.states.len() < Self::MOST_STATES {
            self.states.push(warp.digest(block, &self.read));
        }
    }
}

/// Runs a kernel of a cubin as the launch says.
///
/// # Errors
/// When the cubin cannot be loaded, or an instruction faults, is not supported, or never ends.
pub fn run(cubin: &[u8], launch: &Launch, options: Options) -> Result<Run, SimError> {
    simulate(cubin, launch, options, (None, None))
}

/// Runs a kernel and observes it.
///
/// # Errors
/// As [`run`].
pub fn observe(cubin: &[u8], launch: &Launch, options: Options, probe: &mut Probe) -> Result<Run, SimError> {
    simulate(cubin, launch, options, (Some(probe), None))
}

/// Runs a kernel with the checks that the options name; what they find goes to the report, also where the launch fails.
///
/// # Errors
/// As [`run`].
pub fn checked(
    cubin: &[u8],
    launch: &Launch,
    options: Options,
    report: &mut Report,
) -> Result<Run, SimError> {
    simulate(cubin, launch, options, (None, Some(report)))
}

/// An instruction of a kernel as text.
///
/// # Errors
/// When the cubin cannot be loaded.
pub fn instruction(cubin: &[u8], kernel: &str, address: u32) -> Result<String, SimError> {
    let image = Image::load(cubin, kernel, &mut crate::memory::Memory::new()).map_err(SimError::Cubin)?;
    Ok(text(&decode(&image.code, image.target), image.target, address))
}

/// The code of a kernel as it is executed, functions that it calls included.
///
/// # Errors
/// When the cubin cannot be loaded.
pub fn code(cubin: &[u8], kernel: &str) -> Result<(Target, Vec<u128>), SimError> {
    let image = Image::load(cubin, kernel, &mut crate::memory::Memory::new()).map_err(SimError::Cubin)?;
    Ok((image.target, image.code))
}

fn simulate(
    cubin: &[u8],
    launch: &Launch,
    options: Options,
    witnesses: Witnesses<'_>,
) -> Result<Run, SimError> {
    let mut prepared = launch.prepare();
    let image = Image::load(cubin, &launch.kernel, &mut prepared.memory).map_err(SimError::Cubin)?;
    let info = image.target.info();
    let skew = match image.params.0 {
        base if Some(base) == info.large_param_base => base,
        _ => info.param_skew,
    };
    prepared.params = launch.params(&prepared.addresses, skew.into());
    let (issued, output) =
        execute(&image, launch, &prepared.params, &mut prepared.memory, (options, witnesses))?;
    Ok(Run { buffers: launch.collect(&prepared), memory: prepared.memory, issued, output })
}

impl Module {
    /// Runs a kernel with these parameters on memory that stays: the number of warp instructions issued, and what the
    /// threads printed. Arguments and buffers of the launch are not looked at.
    ///
    /// # Errors
    /// When the launch doesn't fit the kernel, or an instruction faults, is not supported, or never ends.
    pub fn run(
        &self,
        launch: &Launch,
        params: &[u8],
        memory: &mut crate::memory::Memory,
        options: Options,
    ) -> Result<(u64, crate::output::Output), SimError> {
        self.run_checked(launch, params, memory, (options, None))
    }

    /// The same with the checks that the options name; what they find goes to the report, also where the launch fails.
    /// Of memory that the host allocates, [`crate::memory::Memory::undefine`] and `define` tell what holds something.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_checked(
        &self,
        launch: &Launch,
        params: &[u8],
        memory: &mut crate::memory::Memory,
        (options, report): (Options, Option<&mut Report>),
    ) -> Result<(u64, crate::output::Output), SimError> {
        let image = self.image(&launch.kernel, memory).map_err(SimError::Cubin)?;
        let done = execute(&image, launch, params, memory, (options, (None, report)));
        memory.remove(PARAM_WINDOW);
        memory.remove(GRID_WORKSPACE);
        descriptors::remove(memory);
        memory.remove(PARAM_WINDOW - u64::from(image.params.0));
        done
    }
}

/// Who looks on.
type Witnesses<'a> = (Option<&'a mut Probe>, Option<&'a mut Report>);

/// Runs a kernel on memory that holds what it needs.
fn execute(
    image: &Image,
    launch: &Launch,
    params: &[u8],
    memory: &mut crate::memory::Memory,
    (options, (mut probe, report)): (Options, Witnesses<'_>),
) -> Result<(u64, crate::output::Output), SimError> {
    let code = decode(&image.code, image.target);
    launch.shape().map_err(Misfit::Shape)?;
    let env = environment(image, launch, params, memory)?;
    let registers = granted(image, &code);
    // A file that states 255 means 256, which its byte cannot say: warps are given them by eights.
    let held = gives_back(&code).then_some(image.registers.next_multiple_of(8)).filter(|n| *n != 0);
    let steps: Vec<Step> = code
        .iter()
        .map(|inst| match inst {
            Ok(inst) => match excess(inst, registers, &env.banks) {
                Some(what) => Step::only(Action::Fault(what)),
                None if held.is_some() => {
                    Step { needs: named(inst, &env.banks), ..Step::of(inst, &env.banks) }
                }
                None => Step::of(inst, &env.banks),
            },
            Err(e) => Step::only(Action::Unsupported(e.to_string())),
        })
        .collect();
    memory.begin();
    if let Some(p) = &mut probe {
        p.watch.begin(memory);
        let others = code.iter().enumerate().filter(|(i, _)| p.at != Some(16 * *i as u32));
        p.read = read::Read::by(others.filter_map(|(_, inst)| inst.as_ref().ok()));
    }
    let mut output = crate::output::Output::default();
    let clusters = launch.clusters().map_err(Misfit::Shape)?;
    let (target, entry) = (image.target, image.entry);
    let kernel = Kernel { target, code: &code, steps: &steps, env: &env, options, entry, registers, held };
    let checks = report.is_some() && options.checks.any();
    let plain = probe.is_none() && !checks && options.schedule == Schedule::Turns && !launch.cooperative;
    if plain
        && options.parallel
        && !options.late
        && clusters.len() > 1
        && rayon::current_num_threads() > 1
        && steps.iter().all(|s| s.independent)
        && let Some(regions) = Regions::of(memory)
    {
        let issued = grid::side_by_side(kernel, &regions, &clusters, &mut output)?;
        return Ok((issued, output));
    }
    let mut check = report.as_ref().filter(|_| checks).map(|r| {
        let strong = r.strong_instructions(&launch.kernel, code.len());
        let may_meet =
            |inst: &Inst| ["NOP", "WARPSYNC"].contains(&inst.op.name().split('.').next().unwrap_or(""));
        let may_meet: Vec<bool> = code.iter().map(|i| i.as_ref().is_ok_and(may_meet)).collect();
        let meetings = r.meetings(&launch.kernel, &may_meet);
        Checker::new(options.checks, launch.block, launch.grid, strong, meetings)
    });
    let mut grid = Grid::new(kernel, Reach::Alone(memory));
    (grid.probe, grid.check) = (probe, check.as_mut());
    let mut dice = Dice::new(options.schedule);
    let together = if launch.cooperative { clusters.len() } else { 1 };
    let (mut turns, mut issued) = (clusters.chunks(together), Ok(0));
    while let (Ok(before), Some(c)) = (&issued, turns.next()) {
        let mut more = || turns.next().and_then(|c| c.first()).map(|c| &c[..]);
        issued = grid.clusters(c, &mut more, *before, &mut output, &mut dice);
    }
    if let (Some(c), Some(report)) = (check, report) {
        c.tell(&launch.kernel, |pc| text(&code, target, pc), report);
    }
    Ok((issued?, output))
}

/// Registers that a thread may have: what the file states, or more where the kernel asks for them (`setmaxnreg`).
fn granted(image: &Image, code: &Code) -> u32 {
    let asked = |inst: &Inst| match inst.op {
        sass::Opcode::USETMAXREG | sass::Opcode::USETMAXREG_ALLOC => {
            inst.operands.iter().find_map(|o| if let sass::Operand::Imm(n) = o { Some(*n) } else { None })
        }
        _ => None,
    };
    code.iter().flatten().filter_map(asked).fold(image.registers, u32::max)
}

/// Whether warps give registers to each other.
fn gives_back(code: &Code) -> bool {
    let changes = |i: &Inst| matches!(i.op, sass::Opcode::USETMAXREG | sass::Opcode::USETMAXREG_ALLOC);
    code.iter().flatten().any(changes)
}

/// Registers that an instruction needs, from R0 on.
fn named(inst: &Inst, banks: &Banks) -> u32 {
    texture::registers(inst, banks).unwrap_or_else(|| crate::hazard::access::registers(inst))
}

/// Says so if an instruction names more registers than the hardware leaves of those that the file states.
fn excess(inst: &Inst, stated: u32, banks: &Banks) -> Option<String> {
    let needs = named(inst, banks);
    let kept = sass::target::HARDWARE_REGISTERS;
    let what = || format!("needs {needs} registers, and the hardware keeps {kept} of the {stated} stated");
    (needs + u32::from(kept) > stated && needs != 0).then(what)
}

/// What the driver puts where code finds its memory descriptor: a number that nothing else gives.
const DESCRIPTOR: u64 = 0x5e1f_d35c_9a3b_c0de;

/// Fills what the driver fills: bank 0.
fn environment(
    image: &Image,
    launch: &Launch,
    params: &[u8],
    memory: &mut crate::memory::Memory,
) -> Result<Env, SimError> {
    let stack = image.local.max(launch.stack);
    if stack > MOST_STACK {
        return Err(Misfit::Stack { kernel: launch.kernel.clone(), bytes: stack }.into());
    }
    let shared = image.shared.saturating_add(launch.shared);
    if shared > MOST_SHARED {
        return Err(Misfit::Shared { kernel: launch.kernel.clone(), bytes: shared }.into());
    }
    let (offset, size) = image.params;
    if usize::from(size) != params.len() {
        let (kernel, has) = (launch.kernel.clone(), params.len());
        return Err(Misfit::Params { kernel, takes: size, has }.into());
    }
    let info = image.target.info();
    let mut banks = image.banks.clone();
    let bank = banks.bank_mut(0);
    let end = (usize::from(offset) + params.len()).max(0x400);
    if bank.len() < end {
        bank.resize(end, 0);
    }
    let mut put = |at: usize, bytes: &[u8]| {
        if at + bytes.len() > bank.len() {
            bank.resize(at + bytes.len(), 0);
        }
        bank[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(offset.into(), params);
    for (at, size) in [(info.ntid, launch.block), (info.nctaid, launch.grid)] {
        size.iter().enumerate().for_each(|(i, n)| put(usize::from(at) + 4 * i, &n.to_le_bytes()));
    }
    // The driver says how the grid is clustered; a cluster of one block is none.
    let clusters = match image.target.sm {
        ..90 => None,
        90 => Some((0x140, 0x144, 0x150, 0x15c, 0x188)),
        _ => Some((0x36c, 0x2a0, 0x2b0, 0x2c0, 0x2cc)),
    };
    if let Some((explicit, size, reciprocal, count, blocks)) = clusters {
        let cluster = launch.cluster.unwrap_or([1; 3]);
        put(explicit, &u32::from(launch.cluster.is_some()).to_le_bytes());
        for (i, n) in cluster.iter().enumerate() {
            // Rounded up, so that a product with it is never below the quotient.
            let part = 1.0 / f64::from(*n);
            let near = part as f32;
            let up = if f64::from(near) < part { near.next_up() } else { near };
            put(size + 4 * i, &n.to_le_bytes());
            put(reciprocal + 4 * i, &up.to_le_bytes());
            put(count + 4 * i, &(launch.grid[i] / n.max(&1)).to_le_bytes());
        }
        put(blocks, &cluster.iter().product::<u32>().to_le_bytes());
    }
    // %dynamic_smem_size
    put(if image.target.sm >= 100 { 0x2ac } else { 0x2c }, &launch.shared.to_le_bytes());
    let local = stack.next_multiple_of(16);
    put(info.stack_ptr.into(), &local.to_le_bytes());
    if info.mem_desc != 0 {
        put(info.mem_desc.into(), &DESCRIPTOR.to_le_bytes());
    }
    // The generic windows of shared memory (from sm_90 on a special register says it) and local memory.
    if image.target.sm < 90 {
        put(0x18, &(u64::from(state::SHARED_WINDOW) << 32).to_le_bytes());
    }
    let sm = image.target.sm;
    // The number of SMs.
    put(if sm >= 100 { 0x2d0 } else { 0x10c }, &1u32.to_le_bytes());
    let at = if sm >= 100 { 0x2f8 } else { 0x20 };
    put(at, &(u64::from(state::LOCAL_WINDOW) << 32).to_le_bytes());
    // Constant bank 3, which the module has placed, and the parameters are read like global memory.
    let at = match sm {
        100.. => 0x120,
        90 => 0xd0,
        _ => 0x50,
    };
    put(at, &image.constants.to_le_bytes());
    if sm >= 90 {
        memory.place("parameters", PARAM_WINDOW, params.to_vec());
        let at = if sm >= 100 { 0x348 } else { 0x198 };
        put(at, &PARAM_WINDOW.to_le_bytes());
        put(at + 8, &(PARAM_WINDOW + params.len() as u64).wrapping_sub(1).to_le_bytes());
    } else {
        // The window is that of all of bank 0.
        let mut whole = vec![0; offset.into()];
        whole.extend_from_slice(params);
        let (size, at) = (whole.len() as u32, if sm == 75 { 0x114 } else { 0x12c });
        let first = PARAM_WINDOW - u64::from(offset);
        memory.place("parameters", first, whole);
        put(0x40, &first.to_le_bytes());
        put(at, &size.to_le_bytes());
    }
    descriptors::place(sm.into(), image.samplers_apart, memory, &mut put);
    let (block, grid, cooperative) = (launch.block, launch.grid, launch.cooperative);
    if cooperative {
        memory.place("workspace of the grid", GRID_WORKSPACE, grid_workspace());
        let registers = match sm {
            100.. => 0x250,
            90 => 0x40,
            _ => 0x88,
        };
        put(registers + 4, &((GRID_WORKSPACE >> 32) as u32).to_le_bytes());
        put(registers + 8, &(GRID_WORKSPACE as u32).to_le_bytes());
    }
    Ok(Env { banks, block, grid, cooperative, local, shared })
}

fn text(code: &Code, target: Target, pc: u32) -> String {
    match code.get(pc as usize / 16) {
        Some(Ok(inst)) => sass::print(inst, target).to_string(),
        _ => "?".into(),
    }
}
