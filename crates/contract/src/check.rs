//! Mining and checking with all rules.

use crate::{Counts, Error, Family, File, Judge, Place, RULES, Table};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// Something that the files of the reference compiler never show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// The kernel; empty for the file as a whole.
    pub kernel: String,
    /// Byte address of the instruction.
    pub address: Option<usize>,
    /// The instruction.
    pub text: String,
    /// What is new about it, and the nearest that was seen.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.kernel.is_empty() {
            write!(f, "{}", self.kernel)?;
        }
        if let Some(at) = self.address {
            write!(f, "+{at:#x}: {}", self.text)?;
        }
        write!(f, ": {}: {}", self.rule, self.what)
    }
}

/// All rules with what they learnt.
pub struct Contract {
    judges: Vec<Box<dyn Judge>>,
    /// Findings that are none: rule, and how they begin.
    allowed: Vec<(&'static str, &'static str)>,
}

/// What the reference compiler never does and hardware takes by another public source, which the third column names.
const ALLOWED: &str = include_str!("../tables/allowed.txt");

fn allowed() -> Vec<(&'static str, &'static str)> {
    let lines = ALLOWED.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    lines
        .map(|l| {
            let mut columns = l.split('\t');
            let pair = columns.next().zip(columns.next());
            columns.next().and(pair).expect("a rule, what begins so, and a source")
        })
        .collect()
}

/// The rules' tables, as they are in the repository.
static BUILT_IN: LazyLock<Contract> = LazyLock::new(|| {
    let tables =
        RULES.iter().map(|r| Table::parse(r.built_in()).expect("a table in the repository is sound"));
    Contract { allowed: allowed(), ..Contract::new(&tables.collect::<Vec<_>>()) }
});

impl Contract {
    /// Of tables, one for each of [`RULES`].
    pub fn new(tables: &[Table]) -> Contract {
        let judges = RULES.iter().zip(tables).map(|(rule, table)| rule.learn(table)).collect();
        Contract { judges, allowed: vec![] }
    }

    /// Of the tables in the repository.
    pub fn built_in() -> &'static Contract {
        &BUILT_IN
    }

    /// What of a cubin lies outside, in the order of its kernels and their instructions.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn check(&self, bytes: &[u8]) -> Result<Vec<Finding>, Error> {
        let file = File::open(bytes)?;
        let family = Family::of(file.target.sm);
        let mut found = BTreeMap::new();
        for ((number, rule), judge) in RULES.iter().enumerate().zip(&self.judges) {
            let mut known: HashMap<String, Option<String>> = HashMap::new();
            let mut count = 0;
            rule.observe(&file, &mut |place: Place, observation: &str| {
                let verdict = match known.get(observation) {
                    Some(verdict) => verdict.clone(),
                    None => {
                        let fine = |what: &str| {
                            self.allowed.iter().any(|(r, start)| *r == rule.name() && what.starts_with(start))
                        };
                        let verdict = judge.judge(family, observation).filter(|what| !fine(what));
                        known.insert(observation.to_string(), verdict.clone());
                        verdict
                    }
                };
                if let Some(what) = verdict {
                    found.insert((place, number, count), finding(&file, rule.name(), place, what));
                    count += 1;
                }
            });
        }
        Ok(found.into_values().collect())
    }
}

fn finding(file: &File<'_>, rule: &'static str, place: Place, what: String) -> Finding {
    let kernel = place.kernel.map(|k| &file.kernels[k]);
    let item = kernel.zip(place.at).map(|(k, at)| &k.items[at]);
    let text = item.and_then(|i| i.inst()).map(|i| sass::print(i, file.target).to_string());
    Finding {
        rule,
        kernel: kernel.map(|k| k.name.clone()).unwrap_or_default(),
        address: place.at.map(|at| at * 16),
        text: text.unwrap_or_default(),
        what,
    }
}

/// Observations of a file, one table for each of [`RULES`].
///
/// # Errors
/// When the file can't be read.
pub fn observe(bytes: &[u8]) -> Result<Vec<Counts>, Error> {
    let file = File::open(bytes)?;
    let family = Family::of(file.target.sm);
    let counted = RULES.iter().map(|rule| {
        let mut counts: HashMap<String, u64> = HashMap::new();
        rule.observe(&file, &mut |_, observation| match counts.get_mut(observation) {
            Some(n) => *n += 1,
            None => {
                counts.insert(observation.to_string(), 1);
            }
        });
        Counts(counts.into_iter().map(|(text, n)| ((family, text), n)).collect())
    });
    Ok(counted.collect())
}
