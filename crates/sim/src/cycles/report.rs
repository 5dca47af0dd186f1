//! What the time model found, as text.

use super::scheduler::{Outcome, Reason, Stalls};
use super::{Kernel, Machine};
use sass::{Operand, Target};
use std::fmt;

/// How long a launch takes, and why.
#[derive(Clone, Debug)]
pub struct Report {
    /// Cycles from the first issue to the last result.
    pub cycles: u64,
    /// Warp instructions.
    pub issued: u64,
    /// Blocks that an SM holds at once.
    pub blocks: u32,
    /// Warps of these, and the most that an SM can hold.
    pub warps: (u32, u32),
    /// Loads of global and local memory that are under way at once, on the average of all cycles.
    pub loads_in_flight: f64,
    /// Byte addresses of the first and the last instruction of each loop: where a branch goes back to, and the branch.
    pub loops: Vec<(u32, u32)>,
    /// Stall cycles of all instructions together.
    pub stalls: Stalls,
    /// Byte address, text, times issued and stall cycles of each instruction that was executed.
    pub lines: Vec<(u32, String, u64, Stalls)>,
}

impl Report {
    pub(super) fn new(kernel: &Kernel, machine: &Machine, found: Outcome) -> Report {
        let blocks = kernel.resident(machine);
        let text = |k: usize| {
            let inst = kernel.insts[k].as_ref().zip(Target::new(kernel.sm));
            inst.map_or("?".into(), |(i, t)| sass::print(i, t).to_string())
        };
        let executed = (0..kernel.insts.len()).filter(|k| found.issues[*k] > 0);
        let lines: Vec<_> =
            executed.map(|k| (16 * k as u32, text(k), found.issues[k], found.stalls[k])).collect();
        let back = |k: usize| {
            let inst = kernel.insts[k].as_ref().filter(|i| i.op.mnemonic() == "BRA")?;
            let to =
                inst.operands.iter().find_map(|o| if let Operand::Label(to) = o { Some(*to) } else { None });
            let to = u32::try_from(to?).ok()?;
            (to <= 16 * k as u32).then_some((to, 16 * k as u32))
        };
        let loops = (0..kernel.insts.len()).filter(|k| found.issues[*k] > 0).filter_map(back).collect();
        let mut stalls = Stalls::default();
        lines.iter().for_each(|l| stalls.add(&l.3));
        Report {
            cycles: found.cycles,
            issued: found.issues.iter().sum(),
            blocks,
            loads_in_flight: found.loading as f64 / found.cycles.max(1) as f64,
            loops,
            warps: (blocks * kernel.threads.div_ceil(32), machine.warps),
            stalls,
            lines,
        }
    }

    /// Instructions issued per cycle.
    pub fn ipc(&self) -> f64 {
        self.issued as f64 / self.cycles.max(1) as f64
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} cycles on one SM, {} warp instructions, {:.2} per cycle",
            self.cycles,
            self.issued,
            self.ipc()
        )?;
        let (warps, most) = self.warps;
        let share = 100.0 * f64::from(warps) / f64::from(most);
        writeln!(f, "{} blocks resident, {warps} of {most} warps ({share:.0} %)", self.blocks)?;
        let whole = self.stalls.total().max(1) as f64;
        for reason in Reason::ALL {
            let cycles = self.stalls.of(reason);
            writeln!(f, "{:>12} stall cycles, {:4.1} %: {reason}", cycles, 100.0 * cycles as f64 / whole)?;
        }
        writeln!(f, "\n  address    issued    stalled  mostly")?;
        for (pc, text, issued, stalls) in &self.lines {
            let reason = stalls.worst().map_or(String::new(), |r| r.to_string());
            writeln!(f, "/*{pc:04x}*/ {issued:10} {:10}  {reason:<20} {text}", stalls.total())?;
        }
        Ok(())
    }
}
