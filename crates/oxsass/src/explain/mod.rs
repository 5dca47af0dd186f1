//! Why code is as it is: what needs registers where, what is spilled, where the time of each loop goes, and what passes decided.

mod html;
pub mod pressure;
mod text;

use crate::compare::{self, COPIES, LIMIT};
use oxptxas::{Failure, Remark, Settings};
use pressure::Pressure;
use sass::target::SmInfo;
use sass::{Inst, Opcode, Operand, Reg};
use sim::cycles::{Machine, Recorded, Stalls};
use sim::launch::Launch;
use sim::sass::SimError;
use std::collections::BTreeMap;
use std::fmt;

pub use html::page;

/// An instruction.
pub struct Line {
    /// Its text.
    pub text: String,
    /// The line of the PTX that it is of; 0 if of none.
    pub line: u32,
    /// General registers that it needs at once with what lives past it.
    pub live: u32,
    /// Warp instructions, and cycles that warps waited in front of it, on the launch.
    pub issued: u64,
    /// Cycles by reason.
    pub stalls: Stalls,
    /// The unit that executes it.
    pub unit: String,
    /// It is a load or a store of a register that was spilled.
    pub spills: bool,
}

/// What lives where most registers are needed.
pub struct Held {
    /// `R4`, or `R4…R7`.
    pub registers: String,
    /// Where it was made and where it is read next: numbers of instructions; `None`: around a loop.
    pub made: Option<usize>,
    /// See above.
    pub read: Option<usize>,
}

/// A loop of the code.
pub struct Loop {
    /// Numbers of its first and last instruction.
    pub first: usize,
    /// The branch back.
    pub last: usize,
    /// Warp instructions executed in it.
    pub issued: u64,
    /// Cycles that warps waited.
    pub stalls: Stalls,
    /// Warp instructions by unit, the busiest first.
    pub units: Vec<(String, u64)>,
}

/// What the model says of a launch.
pub struct Timing {
    /// Cycles on one SM.
    pub cycles: u64,
    /// Cycles if every block comes [`COPIES`] times.
    pub full: u64,
    /// Warps at once, and the most that there could be.
    pub warps: (u32, u32),
    /// Stall cycles of all instructions.
    pub stalls: Stalls,
}

/// Why there is no time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Untimed {
    /// There is no launch.
    NoLaunch,
    /// It cannot be executed.
    Run(SimError),
}

impl fmt::Display for Untimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untimed::NoLaunch => f.write_str("no launch of it can be made up and executed"),
            Untimed::Run(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Untimed {}

/// Why nothing is explained.
#[derive(Debug)]
pub enum Error {
    /// There is no code.
    Compile(Failure),
    /// The PTX is not read, though there is code.
    Ptx(Vec<ptx::Diagnostic>),
    /// The file that it is in is not.
    Cubin(cubin::Error),
}

impl From<cubin::Error> for Error {
    fn from(e: cubin::Error) -> Error {
        Error::Cubin(e)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Compile(failure) => f.write_str(&failure.render("oxsass")),
            Error::Ptx(_) => f.write_str("the PTX is wrong"),
            Error::Cubin(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// A kernel.
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Registers stated for a thread.
    pub registers: u32,
    /// Warps for which there are registers, of how many.
    pub room: (u32, u32),
    /// Bytes of spill stores and loads in the code.
    pub spills: (u32, u32),
    /// Bytes of stack frame and of shared memory.
    pub frame: u32,
    /// See above.
    pub shared: u32,
    /// The code, functions that it calls left out.
    pub code: Vec<Line>,
    /// The instruction where most registers are needed.
    pub peak: usize,
    /// What they hold.
    pub held: Vec<Held>,
    /// Its loops, by addresses.
    pub loops: Vec<Loop>,
    /// What passes decided, by lines.
    pub remarks: Vec<Remark>,
    /// The launch, or why there is none.
    pub timing: Result<Timing, Untimed>,
}

/// Compiles a file and explains its kernels, in the order of the source. `launch`: the launch of a kernel; without it, made-up ones.
///
/// # Errors
/// What the compiler says.
pub fn explain(
    source: &str,
    file: &str,
    settings: &Settings,
    launch: impl Fn(&str) -> Option<Launch>,
) -> Result<Vec<Kernel>, Error> {
    let mut settings = settings.clone();
    settings.line_info = Some(true);
    settings.knobs.remarks = true;
    let output = oxptxas::compile(source, file, &settings).map_err(Error::Compile)?;
    let module = crate::verify::module(source, settings.target).map_err(Error::Ptx)?;
    let image = cubin::read::read(&output.cubin)?;
    let tables = cubin::read_lines::ptx_lines(&output.cubin)?;
    let mut found = Vec::new();
    for stats in output.kernels.iter().rev().filter(|k| k.entry) {
        let Some(kernel) = image.kernels.get(&stats.name) else { continue };
        // Functions that it calls stand behind it.
        let functions = kernel.functions.iter().map(|f| f.1 as usize / 16).filter(|at| *at > 0);
        let own = functions.min().unwrap_or(kernel.code.len());
        let decode = |(n, w): (i64, &u128)| sass::decode(*w, settings.target, 16 * n).ok();
        let mut code: Vec<Option<Inst>> = (0..).zip(&kernel.code[..own]).map(decode).collect();
        while code.last().is_some_and(|i| i.as_ref().is_some_and(|i| i.op == Opcode::NOP)) {
            code.pop();
        }
        let seed = || compare::seed(&module, &output.cubin, &stats.name);
        let launch = launch(&stats.name)
            .or_else(|| seed().and_then(|s| compare::launch(&module, &stats.name, s)))
            .ok_or(Untimed::NoLaunch);
        let options = sim::sass::Options { limit: LIMIT, ..Default::default() };
        let recorded = launch.and_then(|l| Recorded::new(&output.cubin, &l, options).map_err(Untimed::Run));
        let report = recorded.as_ref().map(|r| r.report(1)).map_err(Clone::clone);
        let by_address: BTreeMap<u32, (u64, Stalls)> =
            report.iter().flat_map(|r| r.lines.iter().map(|l| (l.0, (l.2, l.3)))).collect();
        let pressure = Pressure::of(&code);
        let lines = tables.get(&stats.name);
        let line_of = |at: u32| {
            let before = lines.and_then(|t| t.iter().take_while(|e| e.0 <= u64::from(at)).last());
            before.map_or(0, |e| e.1)
        };
        let describe = |(k, inst): (usize, &Option<Inst>)| {
            let (issued, stalls) = by_address.get(&(16 * k as u32)).copied().unwrap_or_default();
            let framed = |o: &Operand| matches!(o, Operand::Addr { base: Some(r), uniform: None, .. } if *r == Reg::SP);
            Line {
                text: inst.as_ref().map_or("?".into(), |i| sass::print(i, settings.target).to_string()),
                line: line_of(16 * k as u32),
                live: pressure.at(k, inst.as_ref()),
                issued,
                stalls,
                unit: inst.as_ref().map_or(String::new(), |i| format!("{:?}", i.op.unit())),
                spills: stats.spills != (0, 0)
                    && inst.as_ref().is_some_and(|i| {
                        matches!(i.op, Opcode::LDL | Opcode::STL) && i.operands.iter().any(framed)
                    }),
            }
        };
        let listing: Vec<Line> = code.iter().enumerate().map(describe).collect();
        let most = listing.iter().map(|l| l.live).max().unwrap_or(0);
        let peak = listing.iter().position(|l| l.live == most).unwrap_or(0);
        let held = match code.is_empty() {
            true => Vec::new(),
            false => pressure.holders(&code, peak).iter().map(held).collect(),
        };
        let ends = report.iter().flat_map(|r| r.loops.clone());
        let loops = ends
            .map(|(first, last)| (first as usize / 16, last as usize / 16))
            .filter(|(_, last)| *last < listing.len())
            .map(|(first, last)| loop_of(&listing, first, last))
            .collect();
        let machine = Machine::of(settings.target.sm);
        let remarks = output.remarks.iter().find(|r| r.0 == stats.name).map(|r| r.1.clone());
        let mut remarks = remarks.unwrap_or_default();
        remarks.sort();
        remarks.dedup();
        found.push(Kernel {
            name: stats.name.clone(),
            registers: stats.registers,
            room: (SmInfo::warps_with(stats.registers).min(machine.warps), machine.warps),
            spills: stats.spills,
            frame: stats.frame,
            shared: stats.shared,
            code: listing,
            peak,
            held,
            loops,
            remarks,
            timing: recorded.map(|r| {
                let alone = r.report(1);
                Timing {
                    cycles: alone.cycles,
                    full: r.report(COPIES).cycles,
                    warps: alone.warps,
                    stalls: alone.stalls,
                }
            }),
        });
    }
    Ok(found)
}

fn held(h: &pressure::Holder) -> Held {
    let registers = match h.count {
        1 => format!("R{}", h.first),
        n => format!("R{}…R{}", h.first, h.first + (n - 1)),
    };
    Held { registers, made: h.made, read: h.read }
}

fn loop_of(code: &[Line], first: usize, last: usize) -> Loop {
    let mut stalls = Stalls::default();
    let mut units: BTreeMap<&str, u64> = BTreeMap::new();
    for l in &code[first..=last] {
        stalls.add(&l.stalls);
        *units.entry(&l.unit).or_default() += l.issued;
    }
    let mut units: Vec<(String, u64)> =
        units.into_iter().filter(|u| u.1 > 0).map(|(name, n)| (name.to_string(), n)).collect();
    units.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    Loop { first, last, issued: code[first..=last].iter().map(|l| l.issued).sum(), stalls, units }
}
