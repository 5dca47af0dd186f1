//! The rules, each in a file of its own.

mod always;
mod asks;
mod attributes;
mod bits;
mod carries;
mod constants;
mod control;
mod distances;
mod format;
mod forms;
mod layout;
mod neighbours;
mod overwrites;
mod signs;
mod tuples;
mod unused;

use crate::{Counts, Family, File, Place, Table};
use std::collections::{HashMap, HashSet};

/// Something to observe in files.
pub trait Rule: Sync {
    /// Its name, which is that of its table, too.
    fn name(&self) -> &'static str;
    /// The table in the repository.
    fn built_in(&self) -> &'static str;
    /// Reports what a file shows. The first word of an observation is what it is about: an opcode, mostly.
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str));
    /// What of the observations of many files is to be kept.
    fn digest(&self, counts: Counts) -> Counts {
        counts
    }
    /// Puts into its table an observation of the reference compiler's that the table finds new.
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        table.add(family, observation, times);
    }
    /// Takes a table in.
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        Box::new(Seen::new(table))
    }
}

/// A rule that took its table in.
pub trait Judge: Send + Sync {
    /// What is new about an observation; `None` if nothing is.
    fn judge(&self, family: Family, observation: &str) -> Option<String>;
    /// Whether the family's table says nothing of what the observation is about: another rule finds that in our files, but the
    /// reference compiler's have to be learnt from.
    fn is_foreign(&self, _family: Family, _observation: &str) -> bool {
        false
    }
}

/// All rules.
pub const RULES: &[&dyn Rule] = &[
    &forms::Forms,
    &signs::Signs,
    &tuples::Tuples,
    &bits::Bits,
    &control::ControlFields,
    &distances::Distances,
    &overwrites::Overwrites,
    &unused::Unused,
    &neighbours::Neighbours,
    &constants::Constants,
    &layout::Layout,
    &attributes::Attributes,
    &asks::Stated,
    &carries::Carries,
    &format::Format,
];

/// The judge of most rules: what was seen is fine.
struct Seen {
    rows: HashSet<(Family, String)>,
    /// By the first word.
    heads: HashMap<(Family, String), Vec<String>>,
}

impl Seen {
    fn new(table: &Table) -> Seen {
        let mut seen = Seen { rows: HashSet::new(), heads: HashMap::new() };
        for family in Family::all() {
            for (text, _) in table.of(family) {
                seen.rows.insert((family, text.to_string()));
                seen.heads.entry((family, head(text).to_string())).or_default().push(text.to_string());
            }
        }
        seen
    }
}

/// The first word.
fn head(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

impl Judge for Seen {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        if self.rows.contains(&(family, observation.to_string())) {
            return None;
        }
        let like = self.heads.get(&(family, head(observation).to_string()));
        let like: Vec<&str> = like.into_iter().flatten().map(String::as_str).take(6).collect();
        Some(match &like[..] {
            // The rule of forms says so.
            [] => return None,
            list => format!("{observation}; seen: {}", list.join(" | ")),
        })
    }
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        !self.heads.contains_key(&(family, head(observation).to_string()))
    }
}
