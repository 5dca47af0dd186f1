//! Parses `isa/latency.isa` and writes the tables of functional units and latencies.

use crate::forms::targets;
use crate::ident;
use std::fmt::Write as _;

/// The lines of the file, as they are read.
#[derive(Default)]
pub struct Latency {
    /// (name, kinds, opcodes)
    units: Vec<(String, Vec<String>, Vec<String>)>,
    raw: Vec<Vec<String>>,
    waw: Vec<Vec<String>>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

impl Latency {
    /// Takes a line if it is one of this file's.
    pub fn line(&mut self, head: &str, rest: &str) -> bool {
        match head {
            "unit" => {
                let (left, ops) = rest.split_once(':').expect("unit NAME KIND : OPCODES");
                let mut left = words(left);
                let name = left.remove(0);
                self.units.push((name, left, words(ops)));
            }
            "raw" => self.raw.push(words(rest)),
            "waw" => self.waw.push(words(rest)),
            _ => return false,
        }
        true
    }

    /// Units named in `list` as a mask.
    fn mask(&self, list: &str) -> u32 {
        if list == "*" {
            return u32::MAX;
        }
        list.split(',').fold(0, |mask, name| {
            let i = self.units.iter().position(|u| u.0 == name);
            mask | 1 << i.unwrap_or_else(|| panic!("no unit `{name}`"))
        })
    }

    /// Appends the tables; every opcode must have exactly one unit.
    pub fn write(&self, opcodes: &[String], out: &mut String) {
        let camel = |name: &str| -> String {
            name.split('_').map(|w| format!("{}{}", w[..1].to_uppercase(), &w[1..])).collect()
        };
        let _ = writeln!(
            out,
            "/// A functional unit: instructions of one unit share latencies.\n\
             #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]\n#[allow(missing_docs)]\npub enum Unit {{"
        );
        for (name, ..) in &self.units {
            let _ = writeln!(out, "    {},", camel(name));
        }
        let _ = writeln!(out, "}}\npub(crate) static UNITS: &[UnitInfo] = &[");
        for (_, kinds, _) in &self.units {
            let variable = match kinds[0].as_str() {
                "fixed" => 0,
                "variable" => kinds.get(1).filter(|k| *k != "late").map_or(0xffff, |t| targets(t)),
                kind => panic!("unit kind `{kind}`"),
            };
            let late = kinds.iter().any(|k| k == "late");
            let _ = writeln!(out, "    UnitInfo {{ variable: {variable:#x}, late: {late} }},");
        }
        let _ = writeln!(out, "];\npub(crate) static UNIT_OF: &[Unit] = &[");
        for op in opcodes {
            let mut units = self.units.iter().filter(|u| u.2.contains(op));
            let unit = units.next().unwrap_or_else(|| panic!("opcode {op} has no unit in latency.isa"));
            assert!(units.next().is_none(), "opcode {op} has two units");
            let _ = writeln!(out, "    Unit::{},", camel(&unit.0));
        }
        for (_, _, ops) in &self.units {
            for op in ops {
                assert!(opcodes.contains(op), "latency.isa names an unknown opcode {op}");
            }
        }
        let _ = writeln!(out, "];\npub(crate) static RAW: &[RawRow] = &[");
        for row in &self.raw {
            let [t, units, file, site, cycles, _source] = &row[..] else { panic!("raw line {row:?}") };
            let site = match site.as_str() {
                "*" => "None".to_string(),
                s => format!("Some(ReadSite::{})", camel(s)),
            };
            let _ = writeln!(
                out,
                "    RawRow {{ targets: {:#x}, units: {:#x}, file: RegFile::{}, site: {site}, cycles: {cycles} }},",
                targets(t),
                self.mask(units),
                ident(file)
            );
        }
        let _ = writeln!(out, "];\npub(crate) static WAW: &[WawRow] = &[");
        for row in &self.waw {
            let [t, units, file, cycles, _source] = &row[..] else { panic!("waw line {row:?}") };
            let _ = writeln!(
                out,
                "    WawRow {{ targets: {:#x}, units: {:#x}, file: RegFile::{}, cycles: {cycles} }},",
                targets(t),
                self.mask(units),
                ident(file)
            );
        }
        let _ = writeln!(out, "];");
    }
}
