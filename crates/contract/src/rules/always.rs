//! What always goes together: an observation `WHAT: A B C` says what was there this time.

use super::Judge;
use crate::{Counts, Family, Table};
use std::collections::{BTreeSet, HashMap};

/// So often must something have been seen for "always" to mean anything.
const OFTEN: u64 = 30;

/// Keeps, as `WHAT always A`, what was there every time; other observations as they are.
pub(super) fn digest(counts: Counts) -> Counts {
    let mut always: HashMap<(Family, String), (BTreeSet<String>, u64)> = HashMap::new();
    let mut kept = Counts::default();
    for ((family, text), n) in counts.0 {
        let Some((what, list)) = parts(&text) else {
            kept.add(family, &text, n);
            continue;
        };
        let list: BTreeSet<&str> = list.collect();
        let owned = || list.iter().map(|s| (*s).to_string()).collect();
        let entry = always.entry((family, what.to_string())).or_insert_with(|| (owned(), 0));
        entry.0.retain(|s| list.contains(s.as_str()));
        entry.1 += n;
    }
    for ((family, what), (list, n)) in always {
        if n >= OFTEN {
            list.iter().for_each(|one| kept.add(family, &format!("{what} always {one}"), n));
        }
    }
    kept
}

/// What was not there once is no longer said to be there always.
pub(super) fn extend(table: &mut Table, family: Family, text: &str, times: u64) {
    let Some((what, list)) = parts(text) else { return table.add(family, text, times) };
    let there: Vec<&str> = list.collect();
    let begins = format!("{what} always ");
    let wrong = |row: &&str| row.strip_prefix(&begins).is_some_and(|one| !there.contains(&one));
    let wrong: Vec<String> = table.of(family).map(|r| r.0).filter(wrong).map(String::from).collect();
    wrong.iter().for_each(|row| table.forget(family, row));
}

fn parts(text: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let (what, list) = text.split_once(": ").or_else(|| Some((text.strip_suffix(':')?, "")))?;
    Some((what, list.split(' ').filter(|s| !s.is_empty())))
}

/// What must be there.
pub(super) struct Always(HashMap<(Family, String), Vec<String>>);

impl Always {
    /// Of the rows with `always`.
    pub fn new(table: &Table) -> Always {
        let mut always: HashMap<(Family, String), Vec<String>> = HashMap::new();
        for family in Family::all() {
            for (text, _) in table.of(family) {
                if let Some((what, one)) = text.split_once(" always ") {
                    always.entry((family, what.to_string())).or_default().push(one.to_string());
                }
            }
        }
        Always(always)
    }
}

impl Judge for Always {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let (what, list) = parts(observation)?;
        let there: Vec<&str> = list.collect();
        let wanted = self.0.get(&(family, what.to_string()))?;
        let lacks: Vec<&str> = wanted.iter().map(String::as_str).filter(|one| !there.contains(one)).collect();
        (!lacks.is_empty()).then(|| format!("{what} there is always {}", lacks.join(" and ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_file_may_show_that_it_is_not_always_so() {
        let family = Family::of(90);
        let mut counts = Counts::default();
        counts.add(family, "above X: A B", 40);
        let mut table = Table::new(digest(counts));
        extend(&mut table, family, "above X: B", 1);
        assert_eq!(Always::new(&table).judge(family, "above X: B"), None);
        assert!(Always::new(&table).judge(family, "above X: A").is_some());
    }

    #[test]
    fn what_was_missing_once_is_not_always_there() {
        let family = Family::of(90);
        let mut counts = Counts::default();
        counts.add(family, "above X: A B C", 20);
        counts.add(family, "above X: B C D", 20);
        counts.add(family, "above Y: A", 5);
        let table = Table::new(digest(counts));
        let always = Always::new(&table);
        assert_eq!(always.judge(family, "above X: C B"), None);
        assert_eq!(always.judge(family, "above X: A C"), Some("above X there is always B".into()));
        assert_eq!(always.judge(family, "above Y:"), None);
        assert_eq!(always.judge(Family::of(75), "above X:"), None);
    }
}
