//! `forms [SEED]`: writes every form of the instruction table as statements for its first PTX version and first
//! target, and neighbours of each (a word, a type, an operand, the target or the version changed), and compares
//! what ptxas says of them with what we say. `OP=name` takes one instruction only, `VERBOSE=1` lists what differs,
//! `PAGE=FILE` writes it to a page, each under its reason. `NEWEST=9.5`: the newest PTX version of the ptxas that is asked; forms
//! that came later are left out. `EXCHANGE=1`: instead, every form once, with each operand exchanged for all kinds of others in turn.

mod differences;
// `modifiers` is for other examples.
#[allow(dead_code)]
mod operands;
#[allow(dead_code)]
#[path = "../ptxas/mod.rs"]
mod ptxas;

use operands::Style;
use ptx::check::first_version;
use ptx::isa::{Form, Mod, Op, Suffix};
use ptxas::{Header, Random};
use std::collections::{BTreeMap, BTreeSet};

/// SMs in their order, but 101, which ptxas has forgotten.
const SMS: &[u16] = &[
    10, 11, 12, 13, 20, 21, 30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100,
    103, 110, 120, 121,
];

/// PTX versions in their order.
const VERSIONS: &[(u8, u8)] = &[
    (1, 4),
    (1, 5),
    (2, 0),
    (2, 1),
    (2, 2),
    (2, 3),
    (3, 0),
    (3, 1),
    (3, 2),
    (4, 0),
    (4, 1),
    (4, 2),
    (4, 3),
    (5, 0),
    (5, 1),
    (6, 0),
    (6, 1),
    (6, 2),
    (6, 3),
    (6, 4),
    (6, 5),
    (7, 0),
    (7, 1),
    (7, 2),
    (7, 3),
    (7, 4),
    (7, 5),
    (7, 6),
    (7, 7),
    (7, 8),
    (8, 0),
    (8, 1),
    (8, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (8, 6),
    (8, 7),
    (8, 8),
    (9, 0),
    (9, 1),
    (9, 2),
    (9, 3),
    (9, 4),
    (9, 5),
];

/// The newest version that ptxas knows.
fn newest() -> (u8, u8) {
    let given = std::env::var("NEWEST").ok();
    let parsed = given.as_deref().and_then(|v| v.split_once('.'));
    parsed.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))).unwrap_or((9, 0))
}

/// Legal statements of one form at most, before operands vary.
const PER_FORM: usize = 24;

/// A statement, what it is of the table, and how it was made.
struct Case {
    header: Header,
    statement: String,
    op: Op,
    form: usize,
    kind: &'static str,
}

/// The modifiers of a form: every alternative of every group at least once, and random choices.
fn modifiers(form: &Form, random: &mut Random) -> Vec<Vec<Mod>> {
    let mut out = BTreeSet::new();
    let choice = |random: &mut Random, fixed: Option<(usize, usize)>| -> Vec<Mod> {
        let mut mods = Vec::new();
        for (g, group) in form.groups.iter().enumerate() {
            match fixed {
                Some((at, n)) if at == g => mods.extend_from_slice(group.alternatives[n]),
                _ if group.optional && random.below(2) == 0 => {}
                _ => mods.extend_from_slice(group.alternatives[random.below(group.alternatives.len())]),
            }
        }
        mods
    };
    for (g, group) in form.groups.iter().enumerate() {
        for n in 0..group.alternatives.len() {
            out.insert(choice(random, Some((g, n))));
        }
    }
    let combinations: usize = form
        .groups
        .iter()
        .map(|g| g.alternatives.len() + usize::from(g.optional))
        .fold(1, usize::saturating_mul);
    let wanted = combinations.min(PER_FORM);
    for _ in 0..wanted * 4 {
        if out.len() >= wanted {
            break;
        }
        out.insert(choice(random, None));
    }
    out.into_iter().collect()
}

fn text(op: Op, mods: &[Mod], operands: &[String]) -> String {
    let words: String = mods.iter().map(|m| format!(".{}", m.name())).collect();
    let space = if operands.is_empty() { "" } else { " " };
    format!("{}{words}{space}{};", op.name(), operands.join(", "))
}

/// The headers with which a form with these words begins to be legal: one for each of its targets.
fn first_headers(op: Op, form: &Form, mods: &[Mod]) -> Vec<Header> {
    let gates = || mods.iter().flat_map(|m| m.gates(op));
    let version = gates().map(|g| g.version).fold(form.version, Ord::max).max((1, 4));
    let open = |sm: u16, suffix: Suffix| form.on(sm, suffix) && gates().all(|g| g.on(sm, suffix));
    let header = |sm: u16, suffix: Suffix| Header::new(version.max(first_version(sm, suffix)), sm, suffix);
    if let Some(sm) = SMS.iter().copied().find(|sm| open(*sm, Suffix::None)) {
        return vec![header(sm, Suffix::None)];
    }
    // Targets with a suffix: all of them, those included that the table leaves out.
    let suffixes = [(90, Suffix::Arch)].into_iter().chain(
        SMS.iter().filter(|sm| **sm >= 100).flat_map(|sm| [(*sm, Suffix::Family), (*sm, Suffix::Arch)]),
    );
    suffixes.map(|(sm, suffix)| header(sm, suffix)).collect()
}

/// The header with the version or the target before.
fn below(header: Header, version: bool) -> Option<Header> {
    let before = if version {
        let at = VERSIONS.iter().position(|v| *v == header.version)?;
        Header { version: *VERSIONS.get(at.checked_sub(1)?)?, ..header }
    } else if header.suffix != Suffix::None {
        Header { suffix: Suffix::None, ..header }
    } else {
        let at = SMS.iter().position(|s| *s == header.sm)?;
        Header { sm: *SMS.get(at.checked_sub(1)?)?, ..header }
    };
    before.exists().then_some(before)
}

/// Changes the words of an instruction.
fn spoil_words(op: Op, mods: &mut Vec<Mod>, random: &mut Random) -> &'static str {
    let own: Vec<Mod> = op.forms().iter().flat_map(|f| f.groups.iter().flat_map(|g| g.words())).collect();
    let types: Vec<Mod> = Mod::ALL.iter().copied().filter(|m| m.as_type().is_some()).collect();
    let strange = [
        Mod::ftz,
        Mod::sat,
        Mod::rn,
        Mod::rz,
        Mod::cc,
        Mod::relu,
        Mod::sync,
        Mod::global,
        Mod::shared,
        Mod::v2,
        Mod::v4,
        Mod::NaN,
        Mod::lo,
        Mod::hi,
        Mod::wide,
        Mod::approx,
        Mod::aligned,
        Mod::lt,
        Mod::volatile,
        Mod::gpu,
        Mod::relaxed,
        Mod::uni,
        Mod::noftz,
        Mod::satfinite,
        Mod::L2_cache_hint,
        Mod::param,
        Mod::local,
        Mod::_const,
    ];
    let any = |random: &mut Random| match random.below(3) {
        0 => *random.pick(&strange),
        _ if own.is_empty() => *random.pick(&types),
        _ => *random.pick(&own),
    };
    let at = random.below(mods.len().max(1));
    match random.below(6) {
        0 if !mods.is_empty() => {
            mods.remove(at);
            "a word less"
        }
        1 => {
            let m = any(random);
            mods.insert(at.min(mods.len()), m);
            "a word more"
        }
        2 if mods.len() > 1 => {
            let at = random.below(mods.len() - 1);
            mods.swap(at, at + 1);
            "words swapped"
        }
        _ => match mods.get(at).copied() {
            Some(m) if m.as_type().is_some() => {
                mods[at] = *random.pick(&types);
                "another type"
            }
            Some(_) => {
                mods[at] = any(random);
                "another word"
            }
            None => {
                mods.push(any(random));
                "a word more"
            }
        },
    }
}

/// For each form the first of its words, with each operand exchanged for everything in `operands::OTHERS` in turn.
fn exchanged(only: Option<&str>) -> Vec<Case> {
    let mut out = Vec::new();
    for op in Op::ALL.iter().copied().filter(|o| only.is_none_or(|n| n == o.name())) {
        for (index, form) in op.forms().iter().enumerate() {
            let Some(mods) = operands::modifiers(form).into_iter().next() else { continue };
            let optional = form.operands.iter().filter(|o| o.optional).count();
            let Some(list) = operands::operands(op, form, &mods, Style::Typed, optional) else { continue };
            let Some(first) = first_headers(op, form, &mods).into_iter().next() else { continue };
            let suffix = if first.suffix == Suffix::None { Suffix::Arch } else { first.suffix };
            let header = Header::new((9, 0), first.sm.max(90), suffix);
            if first.version > header.version || form.until <= header.version {
                continue;
            }
            for at in 0..list.len() {
                for other in operands::OTHERS {
                    let mut list = list.clone();
                    list[at] = (*other).to_string();
                    let statement = text(op, &mods, &list);
                    out.push(Case { header, statement, op, form: index, kind: "another operand" });
                }
            }
        }
    }
    out
}

fn cases(seed: u64, only: Option<&str>) -> (Vec<Case>, Vec<String>) {
    let (mut out, mut without, newest) = (Vec::new(), Vec::new(), newest());
    for op in Op::ALL.iter().copied().filter(|o| only.is_none_or(|n| n == o.name())) {
        for (index, form) in op.forms().iter().enumerate() {
            let mut random = Random(seed ^ (op as u64) << 32 ^ (index as u64) << 16);
            let optional = form.operands.iter().filter(|o| o.optional).count();
            let mut written = false;
            for (round, mods) in modifiers(form, &mut random).into_iter().enumerate() {
                for (style, optional) in [(Style::Typed, 0), (Style::Bits, optional), (Style::Rich, optional)]
                {
                    let Some(list) = operands::operands(op, form, &mods, style, optional) else { continue };
                    written = true;
                    let headers = first_headers(op, form, &mods);
                    if headers.is_empty() {
                        continue;
                    }
                    let header = headers[round % headers.len()];
                    let mut push = |header: Header, mods: &[Mod], list: &[String], kind| {
                        if header.version > newest {
                            return;
                        }
                        out.push(Case { header, statement: text(op, mods, list), op, form: index, kind });
                    };
                    push(header, &mods, &list, "legal");
                    if style == Style::Typed {
                        let suffix = if header.suffix == Suffix::None { Suffix::Arch } else { header.suffix };
                        let sm = if header.sm >= 90 { header.sm } else { 90 };
                        push(Header::new(newest, sm, suffix), &mods, &list, "legal");
                        for version in [true, false] {
                            if let Some(h) = below(header, version) {
                                push(h, &mods, &list, if version { "version below" } else { "target below" });
                            }
                        }
                    }
                    let header = match random.below(2) {
                        0 => header,
                        _ => Header::new(
                            newest,
                            header.sm.max(90),
                            if header.sm > 90 { header.suffix } else { Suffix::Arch },
                        ),
                    };
                    let mut other = mods.clone();
                    let kind = spoil_words(op, &mut other, &mut random);
                    push(header, &other, &list, kind);
                    let mut other = list.clone();
                    let kind = operands::spoil(&mut other, &mut random);
                    push(header, &mods, &other, kind);
                }
            }
            if !written {
                without.push(format!("{} (form {index})", op.name()));
            }
        }
    }
    let mut seen = BTreeSet::new();
    out.retain(|c| seen.insert((c.header, c.statement.clone())));
    (out, without)
}

fn main() {
    let seed = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    let only = std::env::var("OP").ok();
    let verbose = std::env::var_os("VERBOSE").is_some();
    let ptxas = ptxas::tools().join("ptxas");
    let (cases, without) = match std::env::var_os("EXCHANGE") {
        Some(_) => (exchanged(only.as_deref()), Vec::new()),
        None => cases(seed, only.as_deref()),
    };
    if std::env::var_os("DUMP").is_some() {
        for c in cases.iter().filter(|c| c.kind == "legal") {
            println!("{}\t{}\t{}", c.op.name(), c.form, c.statement);
        }
        return;
    }
    let asked: Vec<(Header, &str)> = cases.iter().map(|c| (c.header, c.statement.as_str())).collect();
    let theirs = ptxas::ask_all(&ptxas, &asked);
    // By kind: cases, those that agree, those that both refuse, those of them with the same words.
    let mut by_kind: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut by_op: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut differ = Vec::new();
    for (case, theirs) in cases.iter().zip(&theirs) {
        let ours = ptxas::ours(case.header, &case.statement);
        let agree = ours.is_some() == theirs.is_some();
        let row = by_kind.entry(case.kind).or_default();
        row[0] += 1;
        row[1] += usize::from(agree);
        row[2] += usize::from(agree && ours.is_some());
        row[3] += usize::from(agree && ours.is_some() && ours == *theirs);
        let row = by_op.entry(case.op.name()).or_default();
        row[0] += 1;
        row[1] += usize::from(!agree);
        if !agree {
            differ.push((case, theirs.as_deref(), ours.clone()));
        }
        if !agree && verbose {
            let h = case.header;
            println!("{:?} {} form {} [{}] {}", h.version, h.arch(), case.form, case.kind, case.statement);
            println!("    ptxas: {}", theirs.as_deref().unwrap_or("ok"));
            println!("    ours:  {}", ours.as_deref().unwrap_or("ok"));
        }
    }
    for (op, [n, bad]) in by_op.iter().filter(|(_, row)| row[1] > 0) {
        println!("{op:20} {bad:5} of {n:5} differ");
    }
    println!(
        "{:16} {:>7} {:>7} {:>8} {:>12} {:>10}",
        "kind", "cases", "agree", "%", "both refuse", "same words"
    );
    let mut sum = [0; 4];
    let line = |kind: &str, row: [usize; 4]| {
        let percent = 100.0 * row[1] as f64 / row[0].max(1) as f64;
        println!("{kind:16} {:7} {:7} {percent:8.3} {:12} {:10}", row[0], row[1], row[2], row[3]);
    };
    for (kind, row) in &by_kind {
        line(kind, *row);
        sum.iter_mut().zip(row).for_each(|(s, n)| *s += n);
    }
    line("all", sum);
    if let Some(path) = std::env::var_os("PAGE") {
        let differ: Vec<_> = differ.iter().map(|(c, theirs, ours)| (*c, *theirs, ours.as_deref())).collect();
        std::fs::write(path, differences::page(&differ, cases.len())).expect("the page can be written");
    }
    if !without.is_empty() {
        println!("no operands known for: {}", without.join(", "));
    }
}
