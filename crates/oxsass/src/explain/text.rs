//! What was found about a kernel, as text.

use super::{COPIES, Kernel, Loop};
use sim::cycles::{Reason, Stalls};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// Lines of the PTX of which the pressure is printed.
const LINES: usize = 10;

/// Widest bar.
const BAR: u32 = 40;

/// Shares of the waiting, the largest first: `memory 60 %, stall count 25 %`.
pub(super) fn reasons(stalls: &Stalls) -> String {
    let all = stalls.total().max(1);
    let mut shares: Vec<(u64, Reason)> =
        Reason::ALL.iter().map(|r| (100 * stalls.of(*r) / all, *r)).collect();
    shares.retain(|s| s.0 > 0);
    shares.sort_by_key(|s| Reverse(s.0));
    shares.iter().map(|(n, r)| format!("{r} {n} %")).collect::<Vec<_>>().join(", ")
}

/// Shares of the warp instructions by unit.
pub(super) fn units(of: &Loop) -> String {
    let share = |(name, n): &(String, u64)| format!("{name} {} %", 100 * n / of.issued.max(1));
    of.units.iter().map(share).collect::<Vec<_>>().join(", ")
}

impl Kernel {
    /// The most registers that any instruction of a line of the PTX needs, by line.
    pub fn by_line(&self) -> BTreeMap<u32, u32> {
        let mut out = BTreeMap::new();
        for l in self.code.iter().filter(|l| l.line != 0) {
            let most: &mut u32 = out.entry(l.line).or_default();
            *most = (*most).max(l.live);
        }
        out
    }

    /// The first and last line of the PTX that code between these is of.
    pub(super) fn lines_of(&self, first: usize, last: usize) -> String {
        let lines = self.code[first..=last].iter().map(|l| l.line).filter(|l| *l != 0);
        match (lines.clone().min(), lines.max()) {
            (Some(a), Some(b)) if a != b => format!("lines {a} to {b}"),
            (Some(a), _) => format!("line {a}"),
            _ => "no line".into(),
        }
    }

    /// An instruction with its line: `at line 12, /*0040*/ FADD R0, R1, R2`.
    pub(super) fn place(&self, at: Option<usize>) -> String {
        match at.and_then(|k| Some((k, self.code.get(k)?))) {
            Some((k, l)) if l.line != 0 => format!("at line {}, /*{:04x}*/ {}", l.line, 16 * k, l.text),
            Some((k, l)) => format!("at /*{:04x}*/ {}", 16 * k, l.text),
            None => "around the loop".into(),
        }
    }

    /// What is said first.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut out = vec![format!(
            "{} instructions, {} registers: room for {} of {} warps",
            self.code.len(),
            self.registers,
            self.room.0,
            self.room.1
        )];
        if self.shared != 0 || self.frame != 0 {
            out.push(format!("{} bytes of shared memory, {} bytes of stack", self.shared, self.frame));
        }
        match &self.timing {
            Ok(t) => {
                out.push(format!(
                    "modelled: {} cycles alone, {} with every block {COPIES} times; {} of {} warps at once",
                    t.cycles, t.full, t.warps.0, t.warps.1
                ));
                out.push(format!("warps wait for: {}", reasons(&t.stalls)));
            }
            Err(why) => out.push(format!("not timed: {why}")),
        }
        out
    }

    /// What is said of spills.
    pub(super) fn spilled(&self) -> Option<String> {
        let n = self.code.iter().filter(|l| l.spills).count();
        (self.spills != (0, 0))
            .then(|| format!("{n} instructions, {} bytes stored and {} loaded", self.spills.0, self.spills.1))
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.name)?;
        self.summary().iter().try_for_each(|s| writeln!(f, "  {s}"))?;
        if let Some(peak) = self.code.get(self.peak) {
            writeln!(f, "\n  Most registers, {}, {}; they hold", peak.live, self.place(Some(self.peak)))?;
            for h in &self.held {
                let (made, read) = (self.place(h.made), self.place(h.read));
                writeln!(f, "    {:<10} made {made}; next read {read}", h.registers)?;
            }
            let mut lines: Vec<(u32, u32)> = self.by_line().into_iter().collect();
            lines.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            lines.truncate(LINES);
            lines.sort_unstable();
            writeln!(f, "\n  Registers needed, the {} lines with most", lines.len())?;
            for (line, live) in lines {
                let bar = "#".repeat((live * BAR / peak.live.max(1)) as usize);
                writeln!(f, "    line {line:<6} {live:>4} {bar}")?;
            }
        }
        if let Some(spilled) = self.spilled() {
            writeln!(f, "\n  Spills: {spilled}")?;
            for (k, _) in self.code.iter().enumerate().filter(|(_, l)| l.spills) {
                writeln!(f, "    {}", self.place(Some(k)))?;
            }
        }
        if !self.loops.is_empty() {
            writeln!(f, "\n  Loops")?;
        }
        for l in &self.loops {
            let lines = self.lines_of(l.first, l.last);
            writeln!(
                f,
                "    {lines}, /*{:04x}*/ to /*{:04x}*/: {} instructions, {} executed, {} cycles waited",
                16 * l.first,
                16 * l.last,
                l.last - l.first + 1,
                l.issued,
                l.stalls.total()
            )?;
            writeln!(f, "      units: {}", units(l))?;
            writeln!(f, "      waits: {}", reasons(&l.stalls))?;
        }
        if !self.remarks.is_empty() {
            writeln!(f, "\n  Decisions")?;
        }
        for r in &self.remarks {
            let not = if r.done { "" } else { "not done: " };
            writeln!(f, "    line {:<6} {}: {not}{}", r.loc.0, r.phase.name(), r.text)?;
        }
        Ok(())
    }
}
