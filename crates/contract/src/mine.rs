//! Mining from many files, and checking many.

use crate::{Contract, Counts, Error, Finding, RULES, Table};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Instructions of a cubin.
fn instructions(bytes: &[u8]) -> usize {
    cubin::read::read(bytes).map_or(0, |i| i.kernels.values().map(|k| k.code.len()).sum())
}

/// What was counted in cubins, one table for each rule; their number, and that of their instructions.
pub fn count(cubins: &[PathBuf]) -> (Vec<Counts>, usize, usize) {
    let empty = || (vec![Counts::default(); RULES.len()], 0, 0);
    let one = |path: &PathBuf| -> Result<(Vec<Counts>, usize, usize), Error> {
        let bytes = std::fs::read(path).map_err(|e| Error::Read(e.to_string()))?;
        Ok((crate::observe(&bytes)?, 1, instructions(&bytes)))
    };
    let add = |mut a: (Vec<Counts>, usize, usize), b: (Vec<Counts>, usize, usize)| {
        a.0.iter_mut().zip(b.0).for_each(|(a, b)| a.merge(b));
        (a.0, a.1 + b.1, a.2 + b.2)
    };
    let of = |path: &PathBuf| {
        one(path).unwrap_or_else(|e| {
            eprintln!("{}: {e}", path.display());
            empty()
        })
    };
    cubins.par_iter().map(of).reduce(empty, add)
}

/// The tables of what was counted.
pub fn tables(counts: Vec<Counts>) -> Vec<Table> {
    RULES.iter().zip(counts).map(|(rule, counts)| Table::new(rule.digest(counts))).collect()
}

/// Adds to tables what more files show, and says how many observations were new.
pub fn extend(tables: &mut [Table], counts: Vec<Counts>) -> usize {
    let mut new = 0;
    for ((rule, table), counts) in RULES.iter().zip(tables).zip(counts) {
        let judge = rule.learn(table);
        let mut counts: Vec<_> = counts.0.into_iter().collect();
        counts.sort_unstable();
        for ((family, observation), times) in counts {
            if judge.judge(family, &observation).is_some() || judge.is_foreign(family, &observation) {
                rule.extend(table, family, &observation, times);
                new += 1;
            }
        }
    }
    new
}

/// Findings by class: the rule, and what was found.
#[derive(Default)]
struct Classes(BTreeMap<(&'static str, String), (usize, Vec<String>)>);

impl Classes {
    fn add(&mut self, origin: &str, finding: Finding, examples: usize) {
        let what = finding.what.split("; ").next().unwrap_or_default().to_string();
        let class = self.0.entry((finding.rule, what)).or_default();
        class.0 += 1;
        if class.1.len() < examples {
            class.1.push(format!("{origin}: {finding}"));
        }
    }
    fn print(&self) {
        let mut order: Vec<_> = self.0.iter().collect();
        order.sort_by_key(|((rule, what), (n, _))| (std::cmp::Reverse(*n), *rule, what.as_str()));
        for ((rule, what), (n, examples)) in order {
            println!("{n}\t{rule}\t{what}");
            examples.iter().for_each(|e| println!("\t\t{e}"));
        }
    }
}

/// Checks cubins, each with where it is from, and prints the findings by class.
///
/// # Errors
/// When there are findings, or a file can't be read.
pub fn check(contract: &Contract, all: &[(String, Vec<u8>)], examples: usize) -> Result<(), Error> {
    let mut report = Report::default();
    report.add(contract, all, examples)?;
    report.print()
}

/// What was found in many files.
#[derive(Default)]
struct Report {
    classes: Classes,
    files: usize,
    instructions: usize,
    found: usize,
    places: usize,
}

impl Report {
    fn add(&mut self, contract: &Contract, all: &[(String, Vec<u8>)], examples: usize) -> Result<(), Error> {
        let one = |(origin, bytes): &(String, Vec<u8>)| {
            (origin.clone(), instructions(bytes), contract.check(bytes))
        };
        let checked: Vec<_> = all.par_iter().map(one).collect();
        self.files += all.len();
        for (origin, count, findings) in checked {
            self.instructions += count;
            let mut last = None;
            for finding in findings.map_err(|e| e.of(&origin))? {
                self.found += 1;
                let place = (finding.kernel.clone(), finding.address);
                self.places += usize::from(last.as_ref() != Some(&place));
                last = Some(place);
                self.classes.add(&origin, finding, examples);
            }
        }
        Ok(())
    }
    fn print(&self) -> Result<(), Error> {
        self.classes.print();
        println!(
            "{} files, {} instructions, {} findings in {} classes at {} places: {:.4} % of the instructions",
            self.files,
            self.instructions,
            self.found,
            self.classes.0.len(),
            self.places,
            100.0 * self.places as f64 / self.instructions.max(1) as f64
        );
        if self.found == 0 { Ok(()) } else { Err(Error::Findings) }
    }
}

/// Reads files.
///
/// # Errors
/// That of a file that can't be read.
pub fn load(paths: &[PathBuf]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let one = |p: &PathBuf| {
        let bytes = std::fs::read(p).map_err(|e| Error::Read(e.to_string()).of(p.display()))?;
        Ok((p.display().to_string(), bytes))
    };
    paths.iter().map(one).collect()
}

/// The fold of a cubin, by a hash of its source's name, so that one source's cubins for all targets and levels go together.
fn fold(path: &Path, folds: usize) -> usize {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (hash >> 17) as usize % folds
}

/// Checks each cubin against what is learnt of those of other folds and of `always`, and prints the findings by class.
///
/// # Errors
/// When there are findings, or a file can't be read.
pub fn held_out(cubins: &[PathBuf], always: &[PathBuf], folds: usize, examples: usize) -> Result<(), Error> {
    let (always, ..) = count(always);
    let parts: Vec<Vec<PathBuf>> =
        (0..folds).map(|k| cubins.iter().filter(|p| fold(p, folds) == k).cloned().collect()).collect();
    let counted: Vec<Vec<Counts>> = parts.iter().map(|part| count(part).0).collect();
    let mut report = Report::default();
    for (k, part) in parts.iter().enumerate() {
        let mut learnt = always.clone();
        for other in counted.iter().enumerate().filter(|(other, _)| *other != k) {
            learnt.iter_mut().zip(other.1).for_each(|(sum, counts)| sum.merge(counts.clone()));
        }
        report.add(&Contract::new(&tables(learnt)), &load(part)?, examples)?;
    }
    report.print()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    #[test]
    fn what_a_family_showed_nothing_of_is_added() {
        let at = RULES.iter().position(|r| r.name() == "attributes").expect("the rule");
        let mut tables: Vec<Table> = RULES.iter().map(|_| Table::default()).collect();
        let mut counts: Vec<Counts> = RULES.iter().map(|_| Counts::default()).collect();
        let (family, called) = (Family::of(90), "GRADIENTS called with registers 32");
        counts[at].add(family, called, 3);
        assert_eq!(extend(&mut tables, counts.clone()), 1);
        assert!(tables[at].has(family, called));
        assert_eq!(extend(&mut tables, counts), 0);
    }
}
