//! What the reference compiler never puts together in an instruction that acts on registers alone, although it has each of
//! the two often: signs of two sources, a sign and a modifier, kinds of two operands.
//!
//! [`super::forms`] lets the operands of such instructions count one by one, since most mean the same beside whatever
//! else there is. Hardware has exceptions: `IADD3 R0, -R1, -R2, R3` is no instruction, though each of both terms may have
//! its minus. What is missing shows only where it would be there by chance, so the table has the pairs that are never
//! seen and, for each, how often they would be if the two had nothing to do with each other.

use super::{Judge, Rule, head};
use crate::{Counts, Family, File, Place, Table};
use sass::{ConstBank, Opcode, Operand, Parts, RegFile};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

pub struct Signs;

/// A pair that is expected as often as this and never seen is one that is not to be.
const OFTEN: u64 = 20;

impl Rule for Signs {
    fn name(&self) -> &'static str {
        "signs"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/signs.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        let mut text = String::new();
        for (k, kernel) in file.kernels.iter().enumerate() {
            // Once for each kernel: what is repeated a hundred times says no more than what is there once.
            let mut seen: HashSet<String> = HashSet::new();
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(parts) = item.parts.as_ref().filter(|p| computes(p.inst.op)) else { continue };
                text.clear();
                signature(parts, &mut text);
                if !seen.contains(&text) {
                    see(Place::inst(k, at), &text);
                    seen.insert(text.clone());
                }
            }
        }
    }
    /// The pairs that are missing, each with how often it is expected.
    fn digest(&self, counts: Counts) -> Counts {
        let mut ops: BTreeMap<&str, Shown<'_>> = BTreeMap::new();
        for ((family, text), n) in &counts.0 {
            let op = ops.entry(head(text)).or_default();
            op.all += n;
            op.families.push(*family);
            let tokens: Vec<&str> = text.split(' ').skip(1).collect();
            for (i, a) in tokens.iter().enumerate() {
                *op.each.entry(a).or_default() += n;
                for b in &tokens[i + 1..] {
                    *op.pairs.entry((a, b)).or_default() += n;
                }
            }
        }
        let mut kept = Counts::default();
        for (name, op) in ops {
            let each: Vec<(&str, u64)> = op.each.iter().map(|(t, n)| (*t, *n)).collect();
            for (i, (a, times_a)) in each.iter().enumerate() {
                for (b, times_b) in &each[i + 1..] {
                    let expected = times_a * times_b / op.all;
                    let seen = op.pairs.contains_key(&(*a, *b)) || op.pairs.contains_key(&(*b, *a));
                    if expected >= OFTEN && !seen && may_meet(a, b) {
                        for (n, family) in op.families.iter().enumerate() {
                            let first = !op.families[..n].contains(family);
                            let times = if n == 0 { expected } else { 0 };
                            if first {
                                kept.add(*family, &format!("{name} {a} {b}"), times);
                            }
                        }
                    }
                }
            }
        }
        kept
    }
    /// What shows a pair takes it from the table, whatever the family.
    fn extend(&self, table: &mut Table, _: Family, observation: &str, _: u64) {
        let missing = Missing::new(table);
        for (a, b, _) in missing.pairs(observation) {
            let row = format!("{} {a} {b}", head(observation));
            Family::all().for_each(|f| table.forget(f, &row));
        }
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        Box::new(Missing::new(table))
    }
}

/// What was counted of an opcode.
#[derive(Default)]
struct Shown<'a> {
    all: u64,
    families: Vec<Family>,
    each: BTreeMap<&'a str, u64>,
    pairs: HashMap<(&'a str, &'a str), u64>,
}

/// Whether it acts on registers alone.
fn computes(op: Opcode) -> bool {
    let info = op.info();
    !info.control && !info.sync && !info.memory
}

/// Whether two tokens could be there together and have something to do with each other: signs with whatever there is, but an
/// immediate has none of its own; of operands those that are no registers. Which modifiers go together [`super::forms`] says.
fn may_meet(a: &str, b: &str) -> bool {
    let sign = |t: &str| t.ends_with(['-', '|', '^']);
    let kind = |t: &str| t.contains(':') && t.starts_with(|c: char| c.is_ascii_lowercase());
    let own = |t: &str, u: &str| sign(t) && u.ends_with(":I") && t[..1] == u[..1];
    match (kind(a), kind(b)) {
        (true, true) => group(a) != group(b) && !a.ends_with(":R") && !b.ends_with(":R"),
        _ => (sign(a) || sign(b)) && !own(a, b) && !own(b, a),
    }
}

/// What a token is one value of: a group of modifiers, the kind of an operand, one of its signs.
fn group(token: &str) -> &str {
    token.split([':', '.', '~']).next().unwrap_or_default()
}

/// The tokens of an instruction, its opcode first.
fn signature(parts: &Parts, out: &mut String) {
    let inst = &parts.inst;
    out.push_str(inst.op.name());
    super::forms::groups(parts, out);
    for (i, operand) in inst.operands.iter().enumerate() {
        let slot = char::from(b'a' + i as u8);
        let (kind, signs) = match operand {
            Operand::Reg(r) => {
                let kind = match r.reg.file {
                    RegFile::R => "R",
                    RegFile::UR => "UR",
                    RegFile::P => "P",
                    RegFile::UP => "UP",
                    RegFile::B => "B",
                };
                let predicate = matches!(r.reg.file, RegFile::P | RegFile::UP);
                // Whatever reads a predicate reads it either way.
                (kind, [r.neg, r.abs, r.not && !predicate])
            }
            Operand::Imm(_) => ("I", [false; 3]),
            Operand::Const { bank, neg, abs, not, .. } => {
                (if matches!(bank, ConstBank::Index(_)) { "c" } else { "cx" }, [*neg, *abs, *not])
            }
            _ => continue,
        };
        let _ = write!(out, " {slot}:{kind}");
        for (sign, _) in ['-', '|', '^'].into_iter().zip(signs).filter(|s| s.1) {
            let _ = write!(out, " {slot}{sign}");
        }
    }
}

/// Two tokens that are missing together, and how often they are expected.
type Pair = (String, String, u64);

/// The pairs that are missing, by opcode.
struct Missing(HashMap<(Family, String), Vec<Pair>>);

impl Missing {
    fn new(table: &Table) -> Missing {
        let mut rows: HashMap<(Family, String), Vec<Pair>> = HashMap::new();
        for family in Family::all() {
            for (text, times) in table.of(family) {
                let mut words = text.split(' ').map(str::to_string);
                if let (Some(op), Some(a), Some(b)) = (words.next(), words.next(), words.next()) {
                    rows.entry((family, op)).or_default().push((a, b, times));
                }
            }
        }
        Missing(rows)
    }

    /// Those that an observation shows.
    fn pairs(&self, observation: &str) -> Vec<&Pair> {
        let op = head(observation);
        let tokens: Vec<&str> = observation.split(' ').skip(1).collect();
        let mut found: Vec<&Pair> = Family::all()
            .filter_map(|f| self.0.get(&(f, op.to_string())))
            .flatten()
            .filter(|(a, b, _)| tokens.contains(&a.as_str()) && tokens.contains(&b.as_str()))
            .collect();
        found.dedup();
        found
    }
}

impl Judge for Missing {
    fn judge(&self, _: Family, observation: &str) -> Option<String> {
        let op = head(observation);
        let found = self.pairs(observation);
        let list: Vec<String> = found.iter().map(|(a, b, n)| format!("{op} {a} with {b} (of {n})")).collect();
        (!list.is_empty()).then(|| list.join(", "))
    }
}
