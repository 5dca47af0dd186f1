//! What was mined: observations, with the families of targets that show them.

use crate::Error;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Targets that share an instruction set, as far as their forms go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Family(u8);

/// The families by the first SM of each.
const FAMILIES: [u8; 5] = [75, 80, 90, 100, 120];

impl Family {
    /// The family of an SM.
    pub fn of(sm: u8) -> Family {
        Family(FAMILIES.iter().rposition(|first| sm >= *first).unwrap_or(0) as u8)
    }
    /// All families.
    pub fn all() -> impl Iterator<Item = Family> {
        (0..FAMILIES.len() as u8).map(Family)
    }
    fn bit(self) -> u8 {
        1 << self.0
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}", FAMILIES[usize::from(self.0)])
    }
}

/// Observations of many files, counted.
#[derive(Clone, Default, Debug)]
pub struct Counts(pub HashMap<(Family, String), u64>);

impl Counts {
    /// Counts an observation.
    pub fn add(&mut self, family: Family, observation: &str, times: u64) {
        // Most observations were made before.
        let key = (family, observation.to_string());
        *self.0.entry(key).or_default() += times;
    }
    /// Adds what others counted.
    pub fn merge(&mut self, other: Counts) {
        for (key, n) in other.0 {
            *self.0.entry(key).or_default() += n;
        }
    }
}

/// The families that show something, and how often it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Row {
    families: u8,
    count: u64,
}

/// The table of a rule.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Table(BTreeMap<String, Row>);

impl Table {
    /// Of what was counted.
    pub fn new(counts: Counts) -> Table {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for ((family, text), count) in counts.0 {
            let row = rows.entry(text).or_default();
            row.families |= family.bit();
            row.count += count;
        }
        Table(rows)
    }
    /// Whether the family shows it.
    pub fn has(&self, family: Family, observation: &str) -> bool {
        self.0.get(observation).is_some_and(|r| r.families & family.bit() != 0)
    }
    /// The rows of a family.
    pub fn of(&self, family: Family) -> impl Iterator<Item = (&str, u64)> {
        let rows = self.0.iter().filter(move |(_, r)| r.families & family.bit() != 0);
        rows.map(|(text, r)| (text.as_str(), r.count))
    }
    /// Adds what a family shows.
    pub fn add(&mut self, family: Family, observation: &str, times: u64) {
        let row = self.0.entry(observation.to_string()).or_default();
        row.families |= family.bit();
        row.count += times;
    }
    /// Takes back that a family shows it.
    pub fn forget(&mut self, family: Family, observation: &str) {
        if let Some(row) = self.0.get_mut(observation) {
            row.families &= !family.bit();
            if row.families == 0 {
                self.0.remove(observation);
            }
        }
    }
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As text: rows of one opcode under its name, each with its families (`*`: all) and the count.
    pub fn print(&self) -> String {
        let mut out = String::new();
        let mut head = "";
        for (text, row) in &self.0 {
            let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
            if first != head {
                let _ = writeln!(out, "{first}");
                head = first;
            }
            let families: String = (0..FAMILIES.len())
                .map(|i| if row.families >> i & 1 != 0 { char::from(b'a' + i as u8) } else { '-' })
                .filter(|c| *c != '-')
                .collect();
            let families = if families.len() == FAMILIES.len() { "*" } else { &families };
            let _ = writeln!(out, "\t{families} {} {rest}", row.count);
        }
        out
    }

    /// What [`Table::print`] wrote; lines with `#` at the start are left out.
    ///
    /// # Errors
    /// The line that is none of a table.
    pub fn parse(text: &str) -> Result<Table, Error> {
        let mut rows = BTreeMap::new();
        let mut head = "";
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let Some(row) = line.strip_prefix('\t') else {
                head = line;
                continue;
            };
            let wrong = || Error::Row(line.into());
            let (families, rest) = row.split_once(' ').ok_or_else(wrong)?;
            let (count, rest) = rest.split_once(' ').ok_or_else(wrong)?;
            let families = match families {
                "*" => (1 << FAMILIES.len()) - 1,
                letters => letters.bytes().try_fold(0, |set, c| {
                    let index = c.checked_sub(b'a').filter(|i| usize::from(*i) < FAMILIES.len());
                    index.map(|i| set | 1 << i).ok_or_else(wrong)
                })?,
            };
            let count = count.parse().map_err(|_| wrong())?;
            let text = if rest.is_empty() { head.to_string() } else { format!("{head} {rest}") };
            rows.insert(text, Row { families, count });
        }
        Ok(Table(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip() {
        let mut counts = Counts::default();
        for family in Family::all() {
            counts.add(family, "BRA x y", 2);
        }
        counts.add(Family::of(90), "BRA z", 1);
        counts.add(Family::of(121), "EXIT", 1);
        let table = Table::new(counts);
        assert_eq!(table.print(), "BRA\n\t* 10 x y\n\tc 1 z\nEXIT\n\te 1 \n");
        assert_eq!(Table::parse(&table.print()), Ok(table.clone()));
        assert!(table.has(Family::of(90), "BRA z") && !table.has(Family::of(89), "BRA z"));
        assert!(table.has(Family::of(110), "BRA x y") && !table.has(Family::of(110), "BRA"));
        assert!(Table::parse("BRA\n\tz 1 x").is_err());
    }
}
