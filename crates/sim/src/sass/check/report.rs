//! What checks find, and how it is told.

use cubin::read_lines::{PtxLines, Rows};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// A kind of check, named as in NVIDIA's compute-sanitizer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Check {
    /// Accesses to memory that is not there, or misaligned.
    Memory,
    /// Reads of memory that nobody has written.
    Init,
    /// Accesses that nothing orders.
    Race,
    /// Barriers.
    Sync,
}

const NAMES: [(&str, Check); 4] =
    [("memory", Check::Memory), ("init", Check::Init), ("race", Check::Race), ("sync", Check::Sync)];

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, c)| c == self).map_or("", |n| n.0);
        f.write_str(name)
    }
}

/// Which checks to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checks {
    /// See [`Check::Memory`].
    pub memory: bool,
    /// See [`Check::Init`].
    pub init: bool,
    /// See [`Check::Race`].
    pub race: bool,
    /// See [`Check::Sync`].
    pub sync: bool,
}

impl Checks {
    /// Whether there is something to do.
    pub fn any(self) -> bool {
        self != Checks::default()
    }
}

/// A name that no check has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoCheck(String);

impl fmt::Display for NoCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no check '{}': there are memory, init, race, sync and all", self.0)
    }
}

impl std::error::Error for NoCheck {}

impl FromStr for Checks {
    type Err = NoCheck;

    /// Names with commas between them, or `all`.
    fn from_str(text: &str) -> Result<Checks, NoCheck> {
        let mut checks = Checks::default();
        for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            match NAMES.iter().find(|n| n.0 == name).map(|n| n.1) {
                Some(Check::Memory) => checks.memory = true,
                Some(Check::Init) => checks.init = true,
                Some(Check::Race) => checks.race = true,
                Some(Check::Sync) => checks.sync = true,
                None if name == "all" => checks = Checks { memory: true, init: true, race: true, sync: true },
                None => return Err(NoCheck(name.into())),
            }
        }
        Ok(checks)
    }
}

/// A thread at an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Byte address in the kernel's section.
    pub address: u32,
    /// The instruction.
    pub text: String,
    /// The line of the PTX, if the cubin says it.
    pub line: Option<u32>,
    /// File and line of the source that the PTX was made from, if the PTX says it.
    pub source: Option<String>,
    /// Coordinates of the block.
    pub block: [u32; 3],
    /// Coordinates in the block.
    pub thread: [u32; 3],
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |n: [u32; 3]| n.map(|n| n.to_string()).join(",");
        write!(f, "thread ({}) of block ({})", list(self.thread), list(self.block))?;
        self.source.as_ref().map_or(Ok(()), |s| write!(f, ", {s}"))?;
        self.line.map_or(Ok(()), |l| write!(f, ", line {l} of the PTX"))?;
        write!(f, ", at /*{:04x}*/ {}", self.address, self.text)
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The kernel.
    pub kernel: String,
    /// Which check.
    pub check: Check,
    /// What is wrong.
    pub what: String,
    /// The first time.
    pub place: Place,
    /// The access that it races with.
    pub other: Option<Place>,
    /// How often the same instructions did the same.
    pub times: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}: {}", self.check, self.kernel, self.place, self.what)?;
        self.other.as_ref().map_or(Ok(()), |o| write!(f, ": {o}"))?;
        if self.times > 1 { write!(f, " ({} times)", self.times) } else { Ok(()) }
    }
}

/// What checks have found, and what they must be told.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
    /// Lines of the PTX whose accesses are volatile, relaxed, acquire or release: in shared memory the code doesn't tell.
    pub strong: BTreeSet<u32>,
    /// Lines of the PTX at which lanes of a warp meet; none if there is no PTX. Of `bar.warp.sync` compilers leave a NOP with its
    /// line, where the lanes are together anyway.
    meetings: Option<BTreeSet<u32>>,
    lines: PtxLines,
    /// File and line by line of the PTX where another one begins; none where a function begins.
    sources: BTreeMap<u32, Option<(String, u32)>>,
}

impl Report {
    /// Of launches of this cubin, whose line table it takes along.
    pub fn of(cubin: &[u8]) -> Report {
        Report { lines: cubin::read_lines::ptx_lines(cubin).unwrap_or_default(), ..Report::default() }
    }

    /// Takes from the PTX that the cubin was made from which lines are strong, and what they were made from. Several instructions
    /// of a line count as one.
    pub fn read_ptx(&mut self, source: &str) {
        const WORDS: [&str; 6] = [".volatile", ".relaxed", ".acquire", ".release", ".acq_rel", ".mmio"];
        let strong = |line: &str| {
            let code = line.split("//").next().unwrap_or(line);
            // On sm_80 to sm_89 a barrier in memory is accessed as any word is.
            let barrier = code.contains("mbarrier.") && !code.contains(".init") && !code.contains(".inval");
            barrier || WORDS.iter().any(|w| code.contains(w))
        };
        // `.file 1 "name"`, which may stand anywhere, and `.loc 1 line column`.
        let file = |l: &str| {
            let (n, name) = l.trim().strip_prefix(".file")?.trim().split_once(char::is_whitespace)?;
            Some((n.parse().ok()?, name.split('"').nth(1)?.to_string()))
        };
        let files: BTreeMap<u32, String> = source.lines().filter_map(file).collect();
        let place = |l: &str| {
            let mut words = l.trim().strip_prefix(".loc")?.split_whitespace();
            let (n, line) = (words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u32>().ok()?);
            Some((files.get(&n)?.clone(), line)).filter(|_| line != 0)
        };
        for (n, line) in (1..).zip(source.lines()) {
            if line.contains(".entry") || line.contains(".func") {
                self.sources.insert(n, None);
            } else if line.trim().starts_with(".loc") {
                self.sources.insert(n, place(line));
            }
        }
        let meets = |l: &str| l.split("//").next().unwrap_or(l).contains("bar.warp.sync");
        let meetings = self.meetings.get_or_insert_with(BTreeSet::new);
        meetings.extend((1..).zip(source.lines()).filter(|(_, l)| meets(l)).map(|(n, _)| n));
        self.strong.extend((1..).zip(source.lines()).filter(|(_, l)| strong(l)).map(|(n, _)| n));
    }

    /// File and line that a line of the PTX was made from.
    pub(super) fn source(&self, line: u32) -> Option<String> {
        let (file, line) = self.sources.range(..=line).next_back()?.1.as_ref()?;
        Some(format!("{file}:{line}"))
    }

    /// The lines of a kernel's code.
    pub(super) fn lines(&self, kernel: &str) -> Option<Lines> {
        self.lines.get(kernel).map(|rows| Lines(rows.clone()))
    }

    /// Which of so many instructions of a kernel are strong because the PTX says so.
    pub(crate) fn strong_instructions(&self, kernel: &str, count: usize) -> Vec<bool> {
        let Some(lines) = self.lines(kernel).filter(|_| !self.strong.is_empty()) else { return Vec::new() };
        let strong = |i: usize| lines.of(16 * i as u32).is_some_and(|l| self.strong.contains(&l));
        (0..count).map(strong).collect()
    }
}

/// The line table of a kernel.
pub(super) struct Lines(Rows);

impl Report {
    /// At which instructions of a kernel lanes meet, of those that may be such. `None` if there is no PTX to tell, or if the code lacks one of the
    /// meetings that its PTX has: then nobody knows in which order lanes are.
    pub(crate) fn meetings(&self, kernel: &str, may: &[bool]) -> Option<Vec<bool>> {
        let (meetings, lines) = (self.meetings.as_ref()?, self.lines(kernel)?);
        let of = |i: usize| lines.of(16 * i as u32);
        let here: BTreeSet<u32> = (0..may.len()).filter_map(of).collect();
        let meets = |i: usize| may[i] && of(i).is_some_and(|l| meetings.contains(&l));
        let seen: BTreeSet<u32> = (0..may.len()).filter(|i| meets(*i)).filter_map(of).collect();
        // Functions begin where no line of a source is said.
        let starts: Vec<u32> = self.sources.iter().filter(|s| s.1.is_none()).map(|s| *s.0).collect();
        let whole = |m: &u32| {
            let next = starts.partition_point(|s| s <= m);
            let first = next.checked_sub(1).map_or(0, |i| starts[i]);
            let last = starts.get(next).copied().unwrap_or(u32::MAX);
            seen.contains(m) || here.range(first..last).next().is_none()
        };
        meetings.iter().all(whole).then(|| (0..may.len()).map(meets).collect())
    }
}

impl Lines {
    /// The line that an instruction comes from.
    pub(super) fn of(&self, pc: u32) -> Option<u32> {
        let i = self.0.partition_point(|r| r.0 <= u64::from(pc)).checked_sub(1)?;
        Some(self.0[i].1).filter(|l| *l != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_source_and_strong_ones_come_from_the_ptx() {
        let ptx = ".entry k() {\n.loc 1 7 3\nadd.u32 %a, %a, 1;\nld.volatile.shared.u32 %a, [s];\n.loc 2 9 1, inlined_at 1 7 3\n\
                   ret; // .relaxed\n}\n.entry l() {\nret;\n}\n.file 1 \"a b.py\"\n.file\t2 \"c.cu\", 12, 13\n";
        let mut report = Report::default();
        report.read_ptx(ptx);
        let places = [1, 3, 4, 6, 9].map(|l| report.source(l).unwrap_or_default());
        assert_eq!(places, ["", "a b.py:7", "a b.py:7", "c.cu:9", ""]);
        assert_eq!(report.strong, BTreeSet::from([4]));
    }

    #[test]
    fn checks_by_name() {
        let all: Checks = "all".parse().unwrap();
        assert_eq!("memory, init,race,sync".parse(), Ok(all));
        assert_eq!("".parse(), Ok(Checks::default()));
        assert!("race,memcheck".parse::<Checks>().is_err());
    }
}
