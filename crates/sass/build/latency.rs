//! Parses `isa/latency.isa` and writes the tables of functional units and latencies.

use crate::forms::targets;
use crate::ident;
use std::fmt::Write as _;

/// A class of instructions within a unit.
struct Class {
    name: String,
    unit: String,
    mods: Vec<String>,
    opcodes: Vec<String>,
}

/// A place of the instructions of a class.
struct Part {
    name: String,
    class: String,
    writes: bool,
    /// Operands, with the register of the operand for `write`.
    places: Vec<(u8, u8)>,
}

/// The lines of the file, as they are read.
#[derive(Default)]
pub struct Latency {
    /// (name, kinds)
    units: Vec<(String, Vec<String>)>,
    classes: Vec<Class>,
    parts: Vec<Part>,
    sets: Vec<(String, Vec<String>)>,
    raw: Vec<Vec<String>>,
    waw: Vec<Vec<String>>,
    war: Vec<Vec<String>>,
    pace: Vec<Vec<String>>,
    stall: Vec<Vec<String>>,
    apart: Vec<Vec<String>>,
}

/// Places of reads that have names of their own, in the order of `ReadSite`.
const SITES: [&str; 5] = ["guard", "half_guard", "global", "shared", "constant"];

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

/// `half_guard` as `HalfGuard`.
fn camel(name: &str) -> String {
    name.split('_').map(|w| format!("{}{}", w[..1].to_uppercase(), &w[1..])).collect()
}

/// An enum without data, and its members as a list.
fn write_enum(out: &mut String, name: &str, doc: &str, members: &[String]) {
    let _ = writeln!(
        out,
        "/// {doc}\n#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]\n\
         #[allow(missing_docs)]\npub enum {name} {{"
    );
    members.iter().for_each(|m| _ = writeln!(out, "    {},", camel(m)));
    let _ = writeln!(
        out,
        "}}\nimpl {name} {{\n    /// Every one, in order.\n    pub const EVERY: [{name}; {}] = [",
        members.len()
    );
    members.iter().for_each(|m| _ = writeln!(out, "        {name}::{},", camel(m)));
    let _ = writeln!(
        out,
        "    ];\n    /// The name in the table.\n    pub fn name(self) -> &'static str {{\n        {members:?}[self as usize]\n    }}\n}}"
    );
}

impl Latency {
    /// Takes a line if it is one of this file's.
    pub fn line(&mut self, head: &str, rest: &str) -> bool {
        match head {
            "unit" => {
                let mut kinds = words(rest);
                assert!(kinds.len() > 1, "unit NAME KIND: `{rest}`");
                let name = kinds.remove(0);
                self.units.push((name, kinds));
            }
            "class" => {
                let (left, ops) = rest.split_once(':').unwrap_or((rest, ""));
                let left = words(left);
                let [name, of, unit, mods @ ..] = &left[..] else { panic!("class line `{rest}`") };
                assert_eq!(of, "of", "class line `{rest}`");
                assert!(mods.first().is_none_or(|m| m == "with"), "class line `{rest}`");
                let mods = mods.iter().skip(1).cloned().collect();
                self.classes.push(Class {
                    name: name.clone(),
                    unit: unit.clone(),
                    mods,
                    opcodes: words(ops),
                });
            }
            "part" => {
                let left = words(rest);
                let [name, of, class, verb, places @ ..] = &left[..] else { panic!("part line `{rest}`") };
                assert!(of == "of" && matches!(verb.as_str(), "write" | "read"), "part line `{rest}`");
                let place = |p: &String| {
                    let (operand, nth) = p.split_once('.').expect("OPERAND.REGISTER");
                    (operand.parse().expect("number"), nth.parse().expect("number"))
                };
                self.parts.push(Part {
                    name: name.clone(),
                    class: class.clone(),
                    writes: verb == "write",
                    places: places.iter().map(place).collect(),
                });
            }
            "set" => {
                let (name, members) = rest.split_once('=').expect("set NAME = CLASSES");
                self.sets.push((name.trim().into(), words(members)));
            }
            "raw" => self.raw.push(words(rest)),
            "waw" => self.waw.push(words(rest)),
            "war" => self.war.push(words(rest)),
            "pace" => self.pace.push(words(rest)),
            "stall" => self.stall.push(words(rest)),
            "apart" => self.apart.push(words(rest)),
            _ => return false,
        }
        true
    }

    /// The names of all classes: the units, what is set apart from them, and parts.
    fn class_names(&self) -> Vec<String> {
        let units = self.units.iter().map(|u| &u.0);
        units
            .chain(self.classes.iter().map(|c| &c.name))
            .chain(self.parts.iter().map(|p| &p.name))
            .cloned()
            .collect()
    }

    /// Classes named in `list` as a mask, and sites as another.
    fn masks(&self, names: &[String], list: &str) -> (u64, u8) {
        if list == "*" {
            return (u64::MAX, u8::MAX);
        }
        let (mut classes, mut sites) = (0, 0);
        for name in list.split(',') {
            if let Some(i) = SITES.iter().position(|s| *s == name) {
                sites |= 1 << i;
            } else if let Some((_, members)) = self.sets.iter().find(|s| s.0 == name) {
                classes |= self.masks(names, &members.join(",")).0;
            } else {
                let i = names.iter().position(|n| n == name);
                classes |= 1 << i.unwrap_or_else(|| panic!("no class or site `{name}`"));
            }
        }
        (classes, sites)
    }

    /// Whether there is a unit of this name.
    pub fn has_unit(&self, name: &str) -> bool {
        self.units.iter().any(|u| u.0 == name)
    }

    /// Appends the tables. Each opcode comes with its unit; it is in at most one class.
    pub fn write(&self, opcodes: &[(String, String)], out: &mut String) {
        let names: Vec<String> = self.units.iter().map(|u| u.0.clone()).collect();
        write_enum(out, "Unit", "A functional unit.", &names);
        let _ = writeln!(out, "pub(crate) static UNITS: &[UnitInfo] = &[");
        for (_, kinds) in &self.units {
            let variable = match kinds[0].as_str() {
                "fixed" => 0,
                "variable" => kinds.get(1).filter(|k| *k != "late").map_or(0xffff, |t| targets(t)),
                kind => panic!("unit kind `{kind}`"),
            };
            let late = kinds.iter().any(|k| k == "late");
            let _ = writeln!(out, "    UnitInfo {{ variable: {variable:#x}, late: {late} }},");
        }
        let _ = writeln!(out, "];\npub(crate) static UNIT_OF: &[Unit] = &[");
        for (_, unit) in opcodes {
            let _ = writeln!(out, "    Unit::{},", camel(unit));
        }
        let _ = writeln!(out, "];");
        self.write_classes(opcodes, out);
        let rows = [("RAW", &self.raw), ("WAW", &self.waw), ("WAR", &self.war)];
        rows.iter().for_each(|(name, rows)| self.write_rows(name, rows, out));
        self.write_cycles("PACE", &self.pace, out);
        self.write_cycles("STALL", &self.stall, out);
        self.write_apart(opcodes, out);
        let queues = self.masks(&self.class_names(), "queues").0;
        let _ = writeln!(
            out,
            "/// The classes of the set `queues`, by bits.\npub(crate) const QUEUES: u64 = {queues:#x};"
        );
    }

    /// Distances that instructions keep for something that is no register.
    fn write_apart(&self, opcodes: &[(String, String)], out: &mut String) {
        let names = self.class_names();
        let known = |name: &str| opcodes.iter().any(|o| o.0 == name);
        let list = |ops: &[&str]| ops.iter().map(|op| format!("Opcode::{}, ", ident(op))).collect::<String>();
        let _ = writeln!(out, "pub(crate) static APART: &[ApartRow] = &[");
        for row in &self.apart {
            let [t, first, next, cycles] = &row[..] else { panic!("apart line {row:?}") };
            let of_unit = |name: &str| {
                let all: Vec<String> = opcodes.iter().filter(|o| o.1 == name).map(|o| o.0.clone()).collect();
                if all.is_empty() { vec![name.to_string()] } else { all }
            };
            let first: String = first
                .split(',')
                .flat_map(of_unit)
                .map(|name| match name.rsplit_once('.').filter(|_| !known(&name)) {
                    _ if known(&name) => format!("(Opcode::{}, None), ", ident(&name)),
                    Some((op, m)) if known(op) => {
                        format!("(Opcode::{}, Some(Mod::{})), ", ident(op), ident(m))
                    }
                    _ => panic!("apart line {row:?}: no opcode `{name}`"),
                })
                .collect();
            let (ops, classes): (Vec<&str>, Vec<&str>) =
                next.trim_start_matches('!').split(',').partition(|name| known(name));
            let mut mask = if classes.is_empty() { 0 } else { self.masks(&names, &classes.join(",")).0 };
            if next.starts_with('!') {
                assert!(ops.is_empty(), "apart line {row:?}: `!` goes with units");
                mask = !mask;
            }
            let _ = writeln!(
                out,
                "    ApartRow {{ targets: {:#x}, first: &[{}], classes: {mask:#x}, opcodes: &[{}], cycles: {cycles} }},",
                targets(t),
                first,
                list(&ops),
            );
        }
        let _ = writeln!(out, "];");
    }

    /// Numbers of cycles that belong to classes alone.
    fn write_cycles(&self, name: &str, rows: &[Vec<String>], out: &mut String) {
        let names = self.class_names();
        let _ = writeln!(out, "pub(crate) static {name}: &[(u32, u64, u8)] = &[");
        for row in rows {
            let [t, classes, cycles] = &row[..] else { panic!("{name} line {row:?}") };
            let (classes, _) = self.masks(&names, classes);
            let _ = writeln!(out, "    ({:#x}, {classes:#x}, {cycles}),", targets(t));
        }
        let _ = writeln!(out, "];");
    }

    fn write_classes(&self, opcodes: &[(String, String)], out: &mut String) {
        let names = self.class_names();
        assert!(names.len() <= 64, "too many classes for a mask");
        write_enum(
            out,
            "Class",
            "Instructions, or places of them, that read and write at the same time.",
            &names,
        );
        let _ = writeln!(out, "pub(crate) static CLASS_OF: &[Class] = &[");
        for (op, unit) in opcodes {
            let mut classes = self.classes.iter().filter(|c| c.mods.is_empty() && c.opcodes.contains(op));
            let class = classes.next();
            assert!(class.is_none_or(|c| c.unit == *unit), "opcode {op} is in a class of another unit");
            assert!(classes.next().is_none(), "opcode {op} has two classes");
            let _ = writeln!(out, "    Class::{},", camel(class.map_or(unit, |c| &c.name)));
        }
        let _ = writeln!(out, "];\npub(crate) static CLASSES_BY_MOD: &[(Unit, &[Opcode], Mod, Class)] = &[");
        for c in &self.classes {
            assert!(
                c.opcodes.iter().all(|op| opcodes.iter().any(|o| o.0 == *op)),
                "class {} has an unknown opcode",
                c.name
            );
            let only: String = c.opcodes.iter().map(|op| format!("Opcode::{}, ", ident(op))).collect();
            for m in &c.mods {
                let (unit, m, class) = (camel(&c.unit), ident(m), camel(&c.name));
                let _ = writeln!(out, "    (Unit::{unit}, &[{only}], Mod::{m}, Class::{class}),");
            }
        }
        let _ = writeln!(out, "];\npub(crate) static PARTS: &[PartRow] = &[");
        for p in &self.parts {
            let (class, part) = (camel(&p.class), camel(&p.name));
            let _ = writeln!(
                out,
                "    PartRow {{ class: Class::{class}, writes: {}, places: &{:?}, part: Class::{part} }},",
                p.writes, p.places
            );
        }
        let _ = writeln!(out, "];");
    }

    fn write_rows(&self, name: &str, rows: &[Vec<String>], out: &mut String) {
        let names = self.class_names();
        let _ = writeln!(out, "pub(crate) static {name}: &[LatencyRow] = &[");
        for row in rows {
            let [t, first, file, second, cycles, source] = &row[..] else { panic!("{name} line {row:?}") };
            assert!(matches!(source.as_str(), "public" | "mined" | "padded"), "{name} line {row:?}");
            let (first, _) = self.masks(&names, first);
            let (second, sites) = self.masks(&names, second);
            let _ = writeln!(
                out,
                "    LatencyRow {{ targets: {:#x}, first: {first:#x}, file: RegFile::{}, second: {second:#x}, \
                 sites: {sites:#x}, cycles: {cycles} }},",
                targets(t),
                ident(file),
            );
        }
        let _ = writeln!(out, "];");
    }
}
