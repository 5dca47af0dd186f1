//! The forms of instructions: for each opcode, which values of modifier groups, kinds of operands, signs and guards there
//! are, and which of them stand together.
//!
//! An observation is an instruction taken apart into tokens; the table holds as many instructions as it takes to show every
//! pair of tokens that was seen. An instruction is new if one of its tokens, or a pair of them, is. That generalises what is
//! independent (each modifier was seen with each other one, but not all at once) and nothing else. Guards and offsets count
//! alone, and so do the operands of instructions that act on registers only, and of plain loads and stores: what such an
//! instruction does to its operands does not depend on where they come from. For the same instructions, and not those of the
//! tensor units, a pair is new only if no family of targets shows it, as each of both must be seen in the own family: their
//! fields mean the same in all families that have them.

use super::{Judge, Rule, head};
use crate::{Counts, Family, File, Place, Table};
use sass::{AddrWidth, ConstBank, Guard, Opcode, Operand, Parts, RegFile, Unit};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

pub struct Forms;

impl Rule for Forms {
    fn name(&self) -> &'static str {
        "forms"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/forms.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        let mut text = String::new();
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate() {
                text.clear();
                match &item.parts {
                    Some(parts) => signature(parts, &mut text),
                    None => text.push_str("? unknown"),
                }
                see(Place::inst(k, at), &text);
            }
        }
    }
    fn digest(&self, counts: Counts) -> Counts {
        cover(counts)
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        Box::new(Pairs::new(table))
    }
}

/// Loads and stores without further effects.
const PLAIN: &[Opcode] = &[
    Opcode::LDG,
    Opcode::STG,
    Opcode::LD,
    Opcode::ST,
    Opcode::LDS,
    Opcode::STS,
    Opcode::LDL,
    Opcode::STL,
    Opcode::LDC,
];

/// Whether it acts on registers only, or is a plain load or store.
fn plain(op: Opcode) -> bool {
    let info = op.info();
    !info.control && !info.sync && (!info.memory || PLAIN.contains(&op))
}

/// The tokens of the modifier groups of an instruction, absent values included.
pub(super) fn groups(parts: &Parts, out: &mut String) {
    for (bit, mods) in &parts.groups {
        let _ = write!(out, " {bit}");
        if mods.0.is_empty() {
            out.push('~');
        }
        for m in mods.iter() {
            let _ = write!(out, ".{}", m.name());
        }
    }
}

/// The tokens of an instruction, its opcode first.
fn signature(parts: &Parts, out: &mut String) {
    let inst = &parts.inst;
    let info = inst.op.info();
    // What a zero register or a true predicate means is the instruction's own affair where it acts on more than registers.
    let fine = info.memory || info.control || info.sync;
    out.push_str(inst.op.name());
    // Whatever acts on registers alone, or on memory as a plain load or store does, may be guarded.
    let plain = plain(inst.op);
    if inst.guard != Guard::TRUE && (!plain || inst.op.is_uniform()) {
        out.push_str(match (inst.guard.pred.is_zero(), inst.op.is_uniform()) {
            (true, _) => " @never",
            (_, true) => " @UP",
            (_, false) => " @P",
        });
    }
    groups(parts, out);
    for (i, operand) in inst.operands.iter().enumerate() {
        let _ = write!(out, " {}{}:", if plain { "@" } else { "" }, char::from(b'a' + i as u8));
        match operand {
            Operand::Reg(r) => {
                let (zero, other) = match r.reg.file {
                    RegFile::R => ("RZ", "R"),
                    RegFile::UR => ("URZ", "UR"),
                    RegFile::P => ("PT", "P"),
                    RegFile::UP => ("UPT", "UP"),
                    RegFile::B => ("B", "B"),
                };
                let predicate = matches!(r.reg.file, RegFile::P | RegFile::UP);
                let never = fine && predicate && r.reg.is_zero() && r.not;
                out.push_str(if never { "!" } else { "" });
                out.push_str(if fine && r.reg.is_zero() { zero } else { other });
                // Whatever reads a predicate reads it either way.
                let not = r.not && !never && (fine || !predicate);
                signs(out, i, [r.neg, r.abs, not], plain);
            }
            Operand::Imm(_) => match parts.names.iter().find(|n| n.0 == i) {
                Some((_, name)) => out.push_str(name),
                None => out.push('I'),
            },
            Operand::Const { bank, index, neg, abs, not, .. } => {
                match bank {
                    ConstBank::Index(b) => {
                        let _ = write!(out, "c{b}");
                    }
                    ConstBank::Bindless(_) => out.push_str("cx"),
                }
                if let Some(r) = index {
                    let _ = write!(out, "[{:?}]", r.file);
                }
                signs(out, i, [*neg, *abs, *not], plain);
            }
            Operand::Addr { desc, base, width, uniform, offset } => {
                out.push('[');
                if desc.is_some() {
                    out.push_str("desc,");
                }
                out.push_str(match (base, width) {
                    (None, _) => "-",
                    (_, AddrWidth::R32) => "R",
                    (_, AddrWidth::R64) => "R.64",
                    (_, AddrWidth::U32) => "R.U32",
                    (_, AddrWidth::X4) => "R.X4",
                    (_, AddrWidth::X8) => "R.X8",
                    (_, AddrWidth::X16) => "R.X16",
                });
                match uniform {
                    Some(u) if u.is_zero() => out.push_str("+URZ"),
                    Some(_) => out.push_str("+UR"),
                    None => {}
                }
                out.push(']');
                if *offset != 0 {
                    let _ = write!(out, " @{}+", char::from(b'a' + i as u8));
                }
            }
            Operand::Label(_) => out.push('L'),
            Operand::Special(s) => out.push_str(s.name()),
            Operand::Scoreboard(_) => out.push_str("SB"),
            Operand::ScoreboardSet(s) => out.push_str(if *s == 0 { "{}" } else { "{SB}" }),
        }
    }
}

fn signs(out: &mut String, i: usize, [neg, abs, not]: [bool; 3], plain: bool) {
    let (alone, slot) = (if plain { "@" } else { "" }, char::from(b'a' + i as u8));
    for (sign, set) in [('-', neg), ('|', abs), ('!', not)] {
        if set {
            let _ = write!(out, " {alone}{slot}{sign}");
        }
    }
}

/// Whether a token counts alone, not with others.
fn alone(token: &str) -> bool {
    token.starts_with('@')
}

/// Pairs of tokens, a token with itself included.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let tokens: Vec<&str> = text.split(' ').skip(1).collect();
    let mut out = vec![];
    for (i, a) in tokens.iter().enumerate() {
        out.push((*a, *a));
        if !alone(a) {
            out.extend(tokens[i + 1..].iter().filter(|b| !alone(b)).map(|b| (*a, *b)));
        }
    }
    out
}

/// Drops what shows no pair that others, more frequent ones, don't show.
fn cover(counts: Counts) -> Counts {
    let mut by_text: BTreeMap<&str, Vec<(Family, u64)>> = BTreeMap::new();
    for ((family, text), n) in &counts.0 {
        by_text.entry(text).or_default().push((*family, *n));
    }
    let mut order: Vec<(&str, u64)> =
        by_text.iter().map(|(text, list)| (*text, list.iter().map(|l| l.1).sum())).collect();
    order.sort_by_key(|(text, n)| (std::cmp::Reverse(*n), *text));
    let mut shown: HashSet<(Family, &str, (&str, &str))> = HashSet::new();
    let mut kept = Counts::default();
    for (text, _) in order {
        let op = head(text);
        let all = pairs(text);
        let mut new = all.is_empty();
        for (family, _) in &by_text[text] {
            for pair in &all {
                new |= shown.insert((*family, op, *pair));
            }
        }
        if new {
            by_text[text].iter().for_each(|(family, n)| kept.add(*family, text, *n));
        }
    }
    kept
}

/// Opcodes whose pairs count for all families.
fn shared() -> HashSet<&'static str> {
    let all = Opcode::EVERY.iter().filter(|op| plain(**op) && !is_matrix(op.unit()));
    all.map(|op| op.name()).collect()
}

/// Whether the unit works on matrices.
fn is_matrix(unit: Unit) -> bool {
    matches!(unit, Unit::Tensor | Unit::TensorInt | Unit::TensorFp64 | Unit::Movm)
}

/// The rows by opcode, as tokens.
struct Pairs {
    rows: HashMap<(Family, String), Vec<Vec<String>>>,
    shared: HashSet<&'static str>,
}

impl Pairs {
    fn new(table: &Table) -> Pairs {
        let mut rows: HashMap<(Family, String), Vec<Vec<String>>> = HashMap::new();
        for family in Family::all() {
            for (text, _) in table.of(family) {
                let tokens = text.split(' ').skip(1).map(str::to_string).collect();
                rows.entry((family, head(text).to_string())).or_default().push(tokens);
            }
        }
        Pairs { rows, shared: shared() }
    }

    /// Which of the tokens (bits) the row has.
    fn mask(row: &[String], tokens: &[&str]) -> u64 {
        let bit = |(i, t): (usize, &&str)| u64::from(row.iter().any(|r| r == t)) << i;
        tokens.iter().enumerate().map(bit).fold(0, |mask, bit| mask | bit)
    }

    /// Adds to each token those that it was seen with in any family.
    fn elsewhere(&self, op: &str, tokens: &[&str], with: &mut [u64]) {
        for row in Family::all().filter_map(|f| self.rows.get(&(f, op.to_string()))).flatten() {
            let mask = Pairs::mask(row, tokens);
            (0..tokens.len()).filter(|i| mask >> i & 1 != 0).for_each(|i| with[i] |= mask);
        }
    }
}

impl Judge for Pairs {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let op = head(observation);
        let tokens: Vec<&str> = observation.split(' ').skip(1).collect();
        let Some(rows) = self.rows.get(&(family, op.to_string())) else {
            return Some(format!("{op}: never used"));
        };
        // Of each token, those that it was seen with.
        let mut with = vec![0u64; tokens.len()];
        let mut nearest = (0, &rows[0]);
        for row in rows {
            let mask = Pairs::mask(row, &tokens);
            (0..tokens.len()).filter(|i| mask >> i & 1 != 0).for_each(|i| with[i] |= mask);
            if mask.count_ones() > nearest.0 {
                nearest = (mask.count_ones(), row);
            }
        }
        let mut new: Vec<String> = vec![];
        for i in 0..tokens.len() {
            if with[i] >> i & 1 == 0 {
                new.push(tokens[i].to_string());
            }
        }
        if new.is_empty() {
            if self.shared.contains(op) {
                self.elsewhere(op, &tokens, &mut with);
            }
            for i in 0..tokens.len() {
                for j in i + 1..tokens.len() {
                    if !alone(tokens[i]) && !alone(tokens[j]) && with[i] >> j & 1 == 0 {
                        new.push(format!("{} with {}", tokens[i], tokens[j]));
                    }
                }
            }
        }
        let lacks = |t: &&String| !tokens.contains(&t.as_str());
        let instead: Vec<&str> = nearest.1.iter().filter(lacks).map(String::as_str).collect();
        (!new.is_empty())
            .then(|| format!("{op} {}; the nearest that was seen has {}", new.join(", "), instead.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pair_is_found_and_a_new_triple_is_not() {
        let family = Family::of(90);
        let mut counts = Counts::default();
        let seen = ["X 1~ 2~ 3~", "X 1.A 2.B 3~", "X 1.A 2~ 3.C", "X 1~ 2.B 3.C", "X @P 1~ 2~ 3~"];
        seen.iter().for_each(|text| counts.add(family, text, 5));
        counts.add(family, "X 1.A 2.B 3~ x", 1);
        let table = Table::new(cover(counts));
        let judge = Forms.learn(&table);
        assert_eq!(judge.judge(family, "X 1.A 2.B 3.C"), None);
        assert_eq!(judge.judge(family, "X @P 1.A 2.B 3~"), None);
        assert!(judge.judge(family, "X 1~ 2~ 3~ x").is_some());
        assert!(judge.judge(family, "X 1.D 2~ 3~").is_some_and(|s| s.contains("1.D")));
        assert!(judge.judge(family, "Y").is_some_and(|s| s.contains("never used")));
        assert!(judge.judge(Family::of(75), "X 1~ 2~ 3~").is_some());
    }

    #[test]
    fn a_pair_of_another_family_is_fine_on_registers_only() {
        let (a, b) = (Family::of(75), Family::of(90));
        for (op, fine) in [("FSETP", true), ("IMMA", false), ("ATOMG", false), ("BAR", false)] {
            let mut counts = Counts::default();
            for (family, row) in [(a, "1.A 2~"), (a, "1~ 2.B"), (b, "1.A 2.B")] {
                counts.add(family, &format!("{op} {row}"), 3);
            }
            let judge = Forms.learn(&Table::new(cover(counts)));
            assert_eq!(judge.judge(a, &format!("{op} 1.A 2.B")).is_none(), fine, "{op}");
            // What the family does not show itself is new.
            assert!(judge.judge(b, &format!("{op} 1~ 2.B")).is_some(), "{op}");
        }
    }

    #[test]
    fn rows_that_show_nothing_new_are_dropped() {
        let family = Family::of(90);
        let mut counts = Counts::default();
        for (text, n) in
            [("X 1~ 2~", 9), ("X 1.A 2~", 8), ("X 1~ 2.B", 7), ("X @P 1~ 2~", 2), ("X @P 1.A 2~", 1)]
        {
            counts.add(family, text, n);
        }
        assert_eq!(cover(counts).0.len(), 4);
    }
}
