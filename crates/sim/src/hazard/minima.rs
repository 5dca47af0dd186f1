//! Least distances of fixed-latency dependences, as seen in ptxas's code: a table of classes × targets. What says something
//! about classes that were seen too seldom: the same by functional units, of this and of more code, and the table that the
//! passes use.

use super::access::{Place, Use};
use super::engine::{Distance, Kind};
use rustc_hash::FxHashMap;
use sass::latency::{self, ReadSite, Reader};
use sass::target::SMS;
use sass::{Class as InstClass, Opcode, RegFile, Target, Unit};
use std::fmt::{self, Write};
use std::sync::LazyLock;

/// The table that `cargo xtask mine-latencies` writes.
const TABLE: &str = include_str!("minima.tsv");
/// The same by units, of ten times the code.
const BY_UNIT: &str = include_str!("minima-units.tsv");

/// What a least distance depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class {
    /// The writer; the reader, if the next use overwrites what it has read.
    first: InstClass,
    file: RegFile,
    site: Site,
    /// The reader or the second writer.
    second: InstClass,
}

/// How a register is used next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Site {
    Guard,
    Address,
    Source,
    Write,
    Overwrite,
}

const FILES: [(&str, RegFile); 5] =
    [("R", RegFile::R), ("P", RegFile::P), ("UR", RegFile::UR), ("UP", RegFile::UP), ("B", RegFile::B)];
const SITES: [(&str, Site); 5] = [
    ("guard", Site::Guard),
    ("address", Site::Address),
    ("source", Site::Source),
    ("write", Site::Write),
    ("overwrite", Site::Overwrite),
];

/// The name of the unit of each class in the coarser table.
static UNIT_OF: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut units = vec![String::new(); InstClass::EVERY.len()];
    for op in Opcode::EVERY {
        for class in latency::classes(*op) {
            // Products of matrices and their moves were counted as one.
            let name = match op.unit() {
                Unit::TensorInt | Unit::TensorFp64 | Unit::Movm => Unit::Tensor.name(),
                unit => unit.name(),
            };
            units[class as usize] = name.replace('_', "");
        }
    }
    units
});

/// The targets, by column, on which results of each class need a scoreboard.
static VARIABLE: LazyLock<Vec<u16>> = LazyLock::new(|| {
    let mut of = vec![0; InstClass::EVERY.len()];
    for op in Opcode::EVERY {
        for (column, s) in SMS.iter().enumerate() {
            if Target::new(s.sm).is_some_and(|t| latency::is_variable_latency(*op, t)) {
                latency::classes(*op).for_each(|class| of[class as usize] |= 1 << column);
            }
        }
    }
    of
});

fn named<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|n| n.0 == name).map(|n| n.1)
}

fn name_of<T: Copy + PartialEq>(list: &[(&'static str, T)], value: T) -> &'static str {
    list.iter().find(|n| n.1 == value).map_or("", |n| n.0)
}

impl Class {
    /// The class of a dependence.
    pub fn of(d: &Distance<'_>) -> Class {
        let operand = |p: Place| (p.operand != Place::NONE).then_some(p.operand);
        let read = |how| match how {
            Use::Guard => Site::Guard,
            Use::Address => Site::Address,
            Use::Source => Site::Source,
        };
        let writes = |inst, p: Place| latency::writer(inst, operand(p), p.nth);
        let (first, site, second) = match d.kind {
            Kind::Read(how) => {
                let second = match latency::reader(d.user, d.file, operand(d.to), d.to.nth) {
                    Reader::Operand(class) if how != Use::Guard => class,
                    _ => latency::class(d.user),
                };
                (writes(d.writer, d.from), read(how), second)
            }
            Kind::Write => (writes(d.writer, d.from), Site::Write, writes(d.user, d.to)),
            Kind::Overwrite(_) => (latency::class(d.writer), Site::Overwrite, writes(d.user, d.to)),
        };
        Class { first, file: d.file, site, second }
    }

    /// Reads the first four columns of a row.
    fn parse<'a>(mut cells: impl Iterator<Item = &'a str>) -> Option<Class> {
        let class = |name: &str| InstClass::EVERY.into_iter().find(|c| c.name() == name);
        Some(Class {
            first: class(cells.next()?)?,
            file: named(&FILES, cells.next()?)?,
            site: named(&SITES, cells.next()?)?,
            second: class(cells.next()?)?,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, site) = (name_of(&FILES, self.file), name_of(&SITES, self.site));
        write!(f, "{}\t{file}\t{site}\t{}", self.first.name(), self.second.name())
    }
}

/// Distances of published tables that are less than those that the passes keep, or ptxas in most places: Mesa's NAK
/// (`sm75_instr_latencies.rs`, `sm80_instr_latencies.rs`, MIT licence) counts P2R and the short RPCMOV among the ALU's
/// instructions; the lower half of a wide product gets to a factor in 4 cycles; the upper half of its addend is read 2 cycles
/// later than the lower; what VOTEU says is there at once; UMOV and ULDC take 2 cycles to memory instructions.
const PUBLISHED: [(&str, RegFile, &str, u8); 18] = [
    ("alu", RegFile::P, "slow_move", 4),
    ("slow_move", RegFile::R, "alu", 4),
    ("slow_move", RegFile::R, "dual", 4),
    ("slow_move", RegFile::R, "fma", 5),
    ("slow_move", RegFile::R, "imad", 5),
    ("wide_low", RegFile::R, "wide_factor", 4),
    ("alu", RegFile::R, "wide", 3),
    ("dual", RegFile::R, "wide", 3),
    ("viadd", RegFile::R, "wide", 2),
    ("fma", RegFile::R, "wide", 2),
    ("imad", RegFile::R, "wide", 2),
    ("umov", RegFile::UP, "alu", 1),
    ("umov", RegFile::UP, "dual", 1),
    ("umov", RegFile::UP, "uniform", 1),
    ("umov", RegFile::UR, "load", 2),
    ("umov", RegFile::UR, "store", 2),
    ("uldc", RegFile::UR, "load", 2),
    ("uldc", RegFile::UR, "store", 2),
];

fn published(class: &Class) -> Option<u8> {
    let row = PUBLISHED.iter().find(|row| {
        let uniform = class.file == RegFile::UR && class.site == Site::Address;
        (row.0, row.1, row.2) == (class.first.name(), class.file, class.second.name())
            && (class.site == Site::Source || uniform)
    });
    row.map(|row| row.3)
}

/// Distance and how often it was seen; 0 times: never.
type Least = (u8, u32);

/// Least distances by class and target.
#[derive(Default, Clone, Debug)]
pub struct Minima {
    /// By target, in the order of [`SMS`].
    rows: FxHashMap<Class, [Least; SM_COUNT]>,
    /// The same by units, with what is known of more code.
    units: UnitRows,
    /// What follows from them.
    least: FxHashMap<Class, [u8; SM_COUNT]>,
}

const SM_COUNT: usize = 12;
/// A minimum says something when it was seen in as many files as this.
const ENOUGH: u32 = 12;
/// From a read at issue to a write: no published table has more. What was seen beyond this says how code is arranged, not
/// what it needs.
const MOST_FROM_READ: u8 = 3;

/// SMs with the same latencies.
fn generation(sm: u8) -> u8 {
    match sm {
        75 => 0,
        80..=89 => 1,
        90 => 2,
        100..=110 => 3,
        _ => 4,
    }
}

fn column(target: Target) -> Option<usize> {
    SMS.iter().position(|s| s.sm == target.sm)
}

impl Site {
    fn is_read(self) -> bool {
        matches!(self, Site::Guard | Site::Address | Site::Source)
    }
}

/// The units of a class.
fn by_unit(class: &Class) -> UnitClass {
    let unit = |c: InstClass| UNIT_OF[c as usize].clone();
    (unit(class.first), class.file, class.site, unit(class.second))
}

/// The cells of a row after its four names.
fn parse_row(line: &str) -> [Least; SM_COUNT] {
    let mut row = [(0, 0); SM_COUNT];
    for (cell, least) in line.split('\t').skip(4).zip(&mut row) {
        if let Some((min, times)) = cell.split_once('x') {
            *least = (min.parse().unwrap_or(0), times.parse().unwrap_or(0));
        }
    }
    row
}

/// The least of a generation, and how often it was seen.
fn merged(row: &[Least; SM_COUNT], sm: usize) -> Option<Least> {
    let of_generation =
        SMS.iter().zip(row).filter(|(s, l)| l.1 > 0 && generation(s.sm) == generation(SMS[sm].sm));
    let min = of_generation.clone().map(|(_, l)| l.0).min()?;
    // The same code compiled for several targets is seen once.
    Some((min, of_generation.filter(|(_, l)| l.0 == min).map(|(_, l)| l.1).max()?))
}

/// The coarser class: by units.
type UnitClass = (String, RegFile, Site, String);
type UnitRows = FxHashMap<UnitClass, [Least; SM_COUNT]>;

/// The coarser table.
fn units() -> &'static UnitRows {
    static UNITS: LazyLock<UnitRows> = LazyLock::new(|| {
        let rows = BY_UNIT.lines().filter(|l| !l.starts_with('#')).filter_map(|line| {
            let mut cells = line.split('\t');
            let class = (
                cells.next()?.to_string(),
                named(&FILES, cells.next()?)?,
                named(&SITES, cells.next()?)?,
                cells.next()?.to_string(),
            );
            Some((class, parse_row(line)))
        });
        rows.collect()
    });
    &UNITS
}

/// Takes note of a distance and how often it was seen.
fn note(to: &mut Least, (cycles, times): Least) {
    if times == 0 || to.1 != 0 && cycles > to.0 {
        return;
    }
    if to.1 == 0 || cycles < to.0 {
        *to = (cycles, 0);
    }
    to.1 = to.1.saturating_add(times);
}

/// What the passes keep from a write to a read: the least of what there is for the places of a class, as some of them are
/// closer than others. None where the passes leave it to a scoreboard.
fn stated(class: &Class, target: Target) -> Option<u8> {
    if VARIABLE[class.first as usize] >> column(target)? & 1 != 0 {
        return None;
    }
    let site = |s: ReadSite| latency::raw(class.first, class.file, Reader::Site(s), target);
    let operand = latency::raw(class.first, class.file, Reader::Operand(class.second), target);
    Some(match (class.site, class.file) {
        (Site::Guard, _) => site(ReadSite::Guard),
        (Site::Address, RegFile::UR) => {
            let sites = [ReadSite::Global, ReadSite::Shared, ReadSite::Constant];
            sites.map(site).into_iter().min().unwrap_or(operand)
        }
        (Site::Address | Site::Source, _) => operand,
        (Site::Write | Site::Overwrite, _) => return None,
    })
}

impl Minima {
    /// The table of the build.
    pub fn built_in() -> &'static Minima {
        static BUILT_IN: LazyLock<Minima> = LazyLock::new(|| Minima::parse(TABLE));
        &BUILT_IN
    }

    fn parse(text: &str) -> Minima {
        let mut minima = Minima::default();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            if let Some(class) = Class::parse(line.split('\t')) {
                minima.rows.insert(class, parse_row(line));
            }
        }
        minima.resolve();
        minima
    }

    /// Adds one observation.
    pub fn add(&mut self, target: Target, class: Class, cycles: u8) {
        let row = self.rows.entry(class).or_default();
        if let Some(least) = column(target).and_then(|i| row.get_mut(i)) {
            note(least, (cycles, 1));
        }
    }

    /// Adds what was seen in one file: however often, as its places are not independent.
    pub fn add_file(&mut self, file: &Minima) {
        for (class, row) in &file.rows {
            let to = self.rows.entry(*class).or_default();
            to.iter_mut().zip(row).for_each(|(to, (cycles, times))| note(to, (*cycles, (*times).min(1))));
        }
    }

    /// The table made of observations.
    pub fn of(observations: impl IntoIterator<Item = (Target, Class, u8)>) -> Minima {
        let mut minima = Minima::default();
        observations.into_iter().for_each(|(target, class, cycles)| minima.add(target, class, cycles));
        minima.resolve();
        minima
    }

    /// The least distance of a dependence: the smallest one that was seen on the target's generation, and not more than the
    /// published tables say that the passes use; of a class that was not seen often, not more than of its units, either.
    pub fn least(&self, target: Target, class: Class) -> u8 {
        let Some(column) = column(target) else { return 0 };
        match self.least.get(&class) {
            Some(row) => row[column],
            None if class.site.is_read() && class.file != RegFile::B => self.least_read(&class, column),
            None => 0,
        }
    }

    /// Fills in `least`.
    fn resolve(&mut self) {
        self.units.clear();
        for (class, row) in &self.rows {
            let to = self.units.entry(by_unit(class)).or_default();
            to.iter_mut().zip(row).for_each(|(to, from)| note(to, *from));
        }
        // Both tables have seen some of the same code: times are not added.
        for (class, row) in units() {
            for (to, from) in self.units.entry(class.clone()).or_default().iter_mut().zip(row) {
                if from.1 > 0 && (to.1 == 0 || (from.0, u32::MAX - from.1) < (to.0, u32::MAX - to.1)) {
                    *to = *from;
                }
            }
        }
        for class in self.rows.keys() {
            let least = std::array::from_fn(|sm| {
                match class.site {
                    // Mesa's NAK says that the hardware keeps count of convergence barriers; ptxas uses them after a cycle.
                    _ if class.file == RegFile::B => 0,
                    Site::Guard | Site::Address | Site::Source => self.least_read(class, sm),
                    Site::Write => self.least_write(class, sm),
                    Site::Overwrite => self.least_overwrite(class, sm),
                }
            });
            self.least.insert(*class, least);
        }
    }

    fn enough(&self, class: &Class, sm: usize) -> Option<u8> {
        merged(self.rows.get(class)?, sm).filter(|l| l.1 >= ENOUGH).map(|l| l.0)
    }

    /// From a write to a read.
    fn least_read(&self, class: &Class, sm: usize) -> u8 {
        let own = self.rows.get(class).and_then(|row| merged(row, sm));
        let stated = Target::new(SMS[sm].sm).and_then(|t| stated(class, t));
        // Classes that were seen too seldom have the least of their units, or of what is read of the same writer.
        let others = || {
            let of_units = self.units.get(&by_unit(class)).and_then(|row| merged(row, sm));
            let coarse = of_units.filter(|l| l.1 >= ENOUGH).map(|l| l.0);
            coarse.or_else(|| {
                // Guards are read at one time, whatever they guard.
                let guard = class.site == Site::Guard;
                let like = |c: &Class| {
                    (c.first == class.first || guard) && c.file == class.file && c.site == class.site
                };
                let rows = self.rows.iter().filter(|(c, _)| like(c)).map(|(_, row)| row);
                match guard {
                    true => rows.filter_map(|row| merged(row, sm)).map(|l| l.0).min(),
                    false => rows.flatten().filter(|l| l.1 > 0).map(|l| l.0).min(),
                }
            })
        };
        let others = if own.is_some_and(|l| l.1 >= ENOUGH) { None } else { others() };
        [own.map(|l| l.0), stated, published(class), others].into_iter().flatten().min().unwrap_or(0)
    }

    /// From a write to another. A pipe writes in order. A result that can be read has been written.
    fn least_write(&self, class: &Class, sm: usize) -> u8 {
        let in_order = |c: InstClass| matches!(UNIT_OF[c as usize].as_str(), "alu" | "fma" | "imad");
        let one_pipe = class.first == class.second || class.file == RegFile::P && in_order(class.first);
        if one_pipe || self.enough(class, sm).is_none() {
            return 0;
        }
        let same = |c: &Class| match c.site {
            Site::Write => {
                UNIT_OF[c.first as usize] == UNIT_OF[class.first as usize]
                    || in_order(c.first) && in_order(class.first)
            }
            Site::Overwrite => false,
            Site::Guard | Site::Address | Site::Source => c.first == class.first,
        };
        let like = self.rows.iter().filter(|(c, _)| c.file == class.file && same(c));
        like.filter_map(|(_, row)| merged(row, sm)).map(|l| l.0).min().unwrap_or(0)
    }

    /// From a read to a write: it matters where the writer is not one of the arithmetic pipes, which read in order. How
    /// often these take an instruction is no dependence.
    fn least_overwrite(&self, class: &Class, sm: usize) -> u8 {
        let late = matches!(UNIT_OF[class.second as usize].as_str(), "xu" | "move" | "load" | "tensor");
        let matters = class.file == RegFile::UR || class.file == RegFile::R && late;
        self.enough(class, sm).filter(|_| matters).map_or(0, |m| m.min(MOST_FROM_READ))
    }

    /// The table's text.
    pub fn print(&self) -> String {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable();
        print_rows(HEADER, rows.into_iter().map(|(class, row)| (class.to_string(), row)))
    }

    /// The coarser table, by units: of what was seen, and, if `add`, of what the built-in one has.
    pub fn print_units(&self, add: bool) -> String {
        let mut all = if add { units().clone() } else { UnitRows::default() };
        for (class, row) in &self.rows {
            let to = all.entry(by_unit(class)).or_default();
            to.iter_mut().zip(row).for_each(|(to, seen)| note(to, *seen));
        }
        let mut rows: Vec<_> = all.iter().collect();
        rows.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let name = |(first, file, site, second): &UnitClass| {
            format!("{first}\t{}\t{}\t{second}", name_of(&FILES, *file), name_of(&SITES, *site))
        };
        print_rows(UNITS_HEADER, rows.into_iter().map(|(class, row)| (name(class), row)))
    }
}

fn print_rows<'r>(header: &str, rows: impl Iterator<Item = (String, &'r [Least; SM_COUNT])>) -> String {
    let mut out = String::from(header);
    for s in SMS {
        _ = write!(out, "\tsm_{}", s.sm);
    }
    for (class, row) in rows {
        _ = write!(out, "\n{class}");
        for (min, times) in row {
            _ = if *times == 0 { write!(out, "\t-") } else { write!(out, "\t{min}x{times}") };
        }
    }
    out.push('\n');
    out
}

const UNITS_HEADER: &str = "\
# Least issue distance in cycles from a fixed-latency writer to the next use of the register in code of
# ptxas 13.0.88, over all paths, x how often it was seen, by functional units. Written by
# `cargo xtask mine-latencies --units` (docs/verification.md).
# writer\tfile\tuse\tuser";
const HEADER: &str = "\
# Least issue distance in cycles from a fixed-latency writer to the next use of the register in code of
# ptxas 13.0.88, over all paths, x in how many files it was seen. Written by `cargo xtask mine-latencies`.
# writer (reader before `overwrite`)\tfile\tuse\tuser";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarser_table_is_that_of_its_units() {
        let rows = |text: &str| -> Vec<String> {
            text.lines().filter(|l| !l.starts_with('#')).map(str::to_string).collect()
        };
        // Nothing is lost where nothing was seen, and a distance counts for the units of its classes.
        let mut sorted = rows(BY_UNIT);
        let mut again = rows(&Minima::default().print_units(true));
        sorted.sort_unstable();
        again.sort_unstable();
        assert_eq!(again, sorted);
        let class = Class::parse("alu R source fma".split(' ')).expect("class");
        let seen = Minima::of([(Target::new(90).expect("target"), class, 3)]);
        let own = rows(&seen.print_units(false));
        assert_eq!(own.len(), 1);
        assert!(own[0].starts_with("alu\tR\tsource\tfma\t") && own[0].contains("\t3x1\t"), "{}", own[0]);
    }

    /// The least distance between two classes through a file, as a row of the table names them.
    fn least(row: &str, sm: u8) -> u8 {
        let class = Class::parse(row.split(' ')).expect("class");
        Minima::built_in().least(Target::new(sm).expect("target"), class)
    }

    /// Where the passes keep less than ptxas was ever seen to keep on any target, although it was seen in a dozen files, there
    /// is a reason to believe them: class, file, use and class of the second, the targets, and what is kept of what is seen.
    const LESS: [(&str, &str); 4] = [
        // As all guards are.
        ("alu\tP\tguard\tr2ur", "120 121: 13 of 20"),
        // As from all that gives a predicate. ELECT is a statement of its own: its files are all alike.
        ("umov\tP\tsource\talu", "100 103 110: 4 of 13"),
        // Published is 4, for all generations.
        ("wide_low\tR\tsource\twide_factor", "90: 4 of 6"),
        ("wide_low\tR\tsource\twide_factor", "120 121: 5 of 6"),
    ];

    #[test]
    fn the_passes_keep_what_ptxas_keeps() {
        let minima = Minima::built_in();
        let mut found: std::collections::BTreeMap<(String, String), Vec<String>> = Default::default();
        for class in minima.rows.keys().filter(|c| c.site.is_read()) {
            for (sm, s) in SMS.iter().enumerate() {
                let stated = Target::new(s.sm).and_then(|t| stated(class, t));
                if let (Some(stated), Some(seen)) = (stated, minima.enough(class, sm))
                    && stated < seen
                    && !minima.rows[class].iter().any(|l| l.1 > 0 && l.0 <= stated)
                {
                    let key = (class.to_string(), format!("{stated} of {seen}"));
                    found.entry(key).or_default().push(s.sm.to_string());
                }
            }
        }
        let found: Vec<(String, String)> = found
            .into_iter()
            .map(|((class, what), sms)| (class, format!("{}: {what}", sms.join(" "))))
            .collect();
        let unknown = |f: &&(String, String)| !LESS.contains(&(f.0.as_str(), f.1.as_str()));
        assert_eq!(found.iter().filter(unknown).collect::<Vec<_>>(), Vec::<&(String, String)>::new());
    }

    #[test]
    fn least_distances() {
        assert_eq!([75, 80, 90, 100, 120].map(|sm| least("alu R source alu", sm)), [4; 5]);
        assert_eq!([75, 90, 120].map(|sm| least("dual R source dual", sm)), [4, 4, 5]);
        assert_eq!([75, 80, 90].map(|sm| least("dual P guard half", sm)), [12, 13, 13]);
        assert_eq!([75, 80, 120].map(|sm| least("dual P guard alu", sm)), [12, 13, 13]);
        // A vote is read as a guard is; it was seen too seldom to say anything by itself.
        assert!(least("dual P source vote", 90) >= 12);
        // Overwriting what was read.
        assert_eq!(least("alu R overwrite load", 90), 2);
        assert_eq!(least("uniform UR overwrite umov", 90), 3);
        assert_eq!(least("control P overwrite alu", 90), 0);
    }
}
