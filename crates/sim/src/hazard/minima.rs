//! Least distances of fixed-latency dependences, as seen in ptxas's code: a table of classes × targets.

use super::access::Use;
use super::engine::{Distance, Kind};
use rustc_hash::FxHashMap;
use sass::target::SMS;
use sass::{Opcode, RegFile, Target};
use std::fmt::{self, Write};
use std::sync::LazyLock;

/// The table that `cargo xtask mine-latencies` writes.
const TABLE: &str = include_str!("minima.tsv");

/// What a least distance depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class {
    /// Unit of the writer, as its number.
    writer: u8,
    file: RegFile,
    site: Site,
    /// Unit of the reader or of the second writer, as its number.
    user: u8,
}

/// How a register is used next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Site {
    Guard,
    Address,
    Source,
    Write,
}

const FILES: [(&str, RegFile); 5] =
    [("R", RegFile::R), ("P", RegFile::P), ("UR", RegFile::UR), ("UP", RegFile::UP), ("B", RegFile::B)];
const SITES: [(&str, Site); 4] =
    [("guard", Site::Guard), ("address", Site::Address), ("source", Site::Source), ("write", Site::Write)];

/// The names of the units, by number.
static UNITS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut names = vec![];
    for op in Opcode::EVERY {
        let number = op.unit() as usize;
        if names.len() <= number {
            names.resize(number + 1, String::new());
        }
        names[number] = format!("{:?}", op.unit()).to_lowercase();
    }
    names
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
        let site = match d.kind {
            Kind::Read(Use::Guard) => Site::Guard,
            Kind::Read(Use::Address) => Site::Address,
            Kind::Read(Use::Source) => Site::Source,
            Kind::Write => Site::Write,
        };
        Class { writer: d.writer.op.unit() as u8, file: d.file, site, user: d.user.op.unit() as u8 }
    }

    /// Reads the first four columns of a row.
    fn parse<'a>(mut cells: impl Iterator<Item = &'a str>) -> Option<Class> {
        let unit = |name: &str| UNITS.iter().position(|u| u == name).map(|u| u as u8);
        Some(Class {
            writer: unit(cells.next()?)?,
            file: named(&FILES, cells.next()?)?,
            site: named(&SITES, cells.next()?)?,
            user: unit(cells.next()?)?,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, site) = (name_of(&FILES, self.file), name_of(&SITES, self.site));
        write!(f, "{}\t{file}\t{site}\t{}", UNITS[usize::from(self.writer)], UNITS[usize::from(self.user)])
    }
}

/// Distance and how often it was seen; 0 times: never.
type Least = (u8, u32);

/// Least distances by class and target.
#[derive(Default, Clone, Debug)]
pub struct Minima {
    /// By target, in the order of [`SMS`].
    rows: FxHashMap<Class, [Least; SM_COUNT]>,
    /// What follows from them.
    least: FxHashMap<Class, [u8; SM_COUNT]>,
}

const SM_COUNT: usize = 12;
/// A minimum says something when it was seen as often as this.
const ENOUGH: u32 = 12;
/// Uses of convergence barriers are few and far apart: what was seen beyond this says how code is arranged, not what
/// it needs.
const MOST_FOR_BARRIERS: u8 = 16;

/// SMs with the same latencies.
fn generation(sm: u8) -> u8 {
    match sm {
        75 => 0,
        80..=90 => 1,
        _ => 2,
    }
}

fn column(target: Target) -> Option<usize> {
    SMS.iter().position(|s| s.sm == target.sm)
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
            let Some(class) = Class::parse(line.split('\t')) else { continue };
            let mut row = [(0, 0); SM_COUNT];
            for (cell, least) in line.split('\t').skip(4).zip(&mut row) {
                if let Some((min, times)) = cell.split_once('x') {
                    *least = (min.parse().unwrap_or(0), times.parse().unwrap_or(0));
                }
            }
            minima.rows.insert(class, row);
        }
        minima.resolve();
        minima
    }

    /// Adds one observation.
    pub fn add(&mut self, target: Target, class: Class, cycles: u8) {
        let row = self.rows.entry(class).or_default();
        let Some((min, times)) = column(target).and_then(|i| row.get_mut(i)) else { return };
        if *times == 0 || cycles < *min {
            (*min, *times) = (cycles, 0);
        }
        *times += u32::from(cycles == *min);
    }

    /// The table made of observations.
    pub fn of(observations: impl IntoIterator<Item = (Target, Class, u8)>) -> Minima {
        let mut minima = Minima::default();
        observations.into_iter().for_each(|(target, class, cycles)| minima.add(target, class, cycles));
        minima.resolve();
        minima
    }

    /// The least distance of a dependence: the smallest one seen on the target's generation. A class that was
    /// not seen often enough to say anything has the least of those with the same writer and register file.
    pub fn least(&self, target: Target, class: Class) -> u8 {
        column(target).and_then(|i| self.least.get(&class).map(|row| row[i])).unwrap_or(0)
    }

    /// Fills in `least`.
    fn resolve(&mut self) {
        let merged = |row: &[Least; SM_COUNT], sm: usize| -> Option<Least> {
            let of_generation =
                SMS.iter().zip(row).filter(|(s, l)| l.1 > 0 && generation(s.sm) == generation(SMS[sm].sm));
            let min = of_generation.clone().map(|(_, l)| l.0).min()?;
            // The same code compiled for several targets is seen once.
            Some((min, of_generation.filter(|(_, l)| l.0 == min).map(|(_, l)| l.1).max()?))
        };
        let reads = |c: &Class| c.site != Site::Write;
        for class in self.rows.keys() {
            let mut least = [0; SM_COUNT];
            for (sm, least) in least.iter_mut().enumerate() {
                let own = merged(&self.rows[class], sm);
                let like = self.rows.iter().filter(|(c, _)| {
                    c.writer == class.writer && c.file == class.file && reads(c) == reads(class)
                });
                let seen = match own {
                    Some((min, times)) if times >= ENOUGH => min,
                    _ => like.flat_map(|(_, row)| row).filter(|l| l.1 > 0).map(|l| l.0).min().unwrap_or(0),
                };
                *least = if class.file == RegFile::B { seen.min(MOST_FOR_BARRIERS) } else { seen };
            }
            self.least.insert(*class, least);
        }
    }

    /// The table's text.
    pub fn print(&self) -> String {
        let mut out = String::from(HEADER);
        for s in SMS {
            _ = write!(out, "\tsm_{}", s.sm);
        }
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable();
        for (class, row) in rows {
            _ = write!(out, "\n{class}");
            for (min, times) in row {
                _ = if *times == 0 { write!(out, "\t-") } else { write!(out, "\t{min}x{times}") };
            }
        }
        out.push('\n');
        out
    }
}

const HEADER: &str = "\
# Least issue distance in cycles from a fixed-latency writer to the next use of the register in code of
# ptxas 13.0.88, over all paths, x how often it was seen. Written by `cargo xtask mine-latencies`.
# writer\tfile\tuse\tuser";
