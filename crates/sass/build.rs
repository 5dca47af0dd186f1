//! Turns `isa/*.isa` into `$OUT_DIR/isa.rs`, the enums `Opcode`, `Mod`, `SpecialReg` and their tables, and `$OUT_DIR/ops.rs`,
//! operands and modifiers by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

#[path = "build/asks.rs"]
mod asks;
#[path = "build/facts.rs"]
mod facts;
#[path = "build/forms.rs"]
mod forms;
#[path = "build/latency.rs"]
mod latency;
#[path = "build/memory.rs"]
mod memory;
#[path = "build/views.rs"]
mod views;

/// A Rust identifier for a spelling: `64` → `_64`, `SR_TID.X` → `SR_TID_X`.
fn ident(spelling: &str) -> String {
    let body = spelling.replace("???", "Undefined").replace(['.', ':'], "_");
    if body.starts_with(|c: char| c.is_ascii_digit()) { format!("_{body}") } else { body }
}

struct Op {
    name: String,
    /// The words behind the name: its facts.
    flags: Vec<String>,
    slots: Vec<String>,
    /// The name of each slot.
    names: Vec<String>,
    /// `FILE:LINE`.
    place: String,
}

fn slot(text: &str, mods: &mut BTreeSet<String>) -> String {
    let role = match &text[..1] {
        ">" => "Def",
        "<" => "Use",
        _ => panic!("slot `{text}` has no role"),
    };
    let rest = &text[1..];
    let (kind, width) = rest.split_at(rest.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(rest.len()));
    let kind = match kind {
        "R" | "P" | "UR" | "UP" | "B" => format!("SlotKind::Reg(RegFile::{kind})"),
        "S" => "SlotKind::Source".into(),
        "A" => "SlotKind::Addr".into(),
        "I" => "SlotKind::Imm".into(),
        "C" => "SlotKind::Const".into(),
        "L" => "SlotKind::Label".into(),
        "SR" => "SlotKind::Special".into(),
        "SB" => "SlotKind::Scoreboard".into(),
        _ => panic!("slot `{text}`: unknown kind"),
    };
    let (default, list) = width.split_once('[').unwrap_or((width, ""));
    let default = match default {
        "" if kind == "SlotKind::Addr" => "0",
        "" => "1",
        n => n,
    };
    let width = if default == "n" {
        "Width::Accumulator".into()
    } else if default == "t" {
        "Width::TensorMemory".into()
    } else if list.is_empty() {
        format!("Width::Fixed({default})")
    } else {
        let mut pairs: Vec<String> = list
            .trim_end_matches(']')
            .split(',')
            .map(|p| {
                let (m, n) = p.split_once('=').expect("MOD=n");
                let (order, m) = match (m.strip_suffix(".."), m.strip_prefix("..")) {
                    (Some(m), _) => ("First", m),
                    (_, Some(m)) => ("Last", m),
                    _ => ("Any", m),
                };
                mods.insert(m.to_string());
                format!("(ModAt::{order}, Mod::{}, {n})", ident(m))
            })
            .collect();
        // The modifier of this last entry is never looked at.
        pairs.push(format!("(ModAt::Otherwise, Mod::X, {default})"));
        format!("Width::ByMod(&[{}])", pairs.join(", "))
    };
    format!("Slot {{ role: Role::{role}, kind: {kind}, width: {width} }}")
}

fn main() {
    let dir = Path::new("isa");
    println!("cargo::rerun-if-changed=isa");
    println!("cargo::rerun-if-changed=build");
    let (mut ops, mut mods, mut srs) =
        (Vec::<Op>::new(), BTreeSet::<String>::new(), Vec::<(String, String, String)>::new());
    let mut latency = latency::Latency::default();
    let (mut groups, mut form_lines, mut field_lines) = (forms::Groups::new(), Vec::new(), Vec::new());
    let mut sizes = memory::Sizes::default();
    let mut wanted = asks::Rows::default();
    let mut files: Vec<_> = std::fs::read_dir(dir).expect("isa/").map(|e| e.expect("entry").path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "isa")) {
        for (n, line) in (1..).zip(std::fs::read_to_string(file).expect("table").lines()) {
            let place = format!("{}:{n}", file.display());
            let line = line.split(" #").next().unwrap_or("").trim();
            let line = if line.starts_with('#') { "" } else { line };
            let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
            match head {
                "" => {}
                "op" => {
                    let (left, right) = rest.split_once(" :").expect("op NAME : slots");
                    let mut left = left.split_whitespace();
                    let (names, slots): (Vec<String>, _) = right
                        .split_whitespace()
                        .map(|s| facts::named_slot(s).unwrap_or_else(|why| panic!("{place}: {why}")))
                        .unzip();
                    if let Some(twice) = (1..names.len()).find(|n| names[..*n].contains(&names[*n])) {
                        panic!("{place}: two slots are called `{}`", names[twice]);
                    }
                    ops.push(Op {
                        name: left.next().expect("name").into(),
                        flags: left.map(str::to_string).collect(),
                        slots,
                        names,
                        place,
                    });
                }
                "mods" => mods.extend(rest.split_whitespace().map(str::to_string)),
                "sr" => {
                    let words: Vec<&str> = rest.split_whitespace().collect();
                    let [name, code, words @ ..] = &words[..] else { panic!("{place}: sr NAME CODE …") };
                    let info =
                        facts::special(words).unwrap_or_else(|why| panic!("{place}: sr {name}: {why}"));
                    srs.push((name.to_string(), code.to_string(), info));
                }
                "bytes" => sizes.line(rest, &place, &mut mods),
                "asks" => wanted.line(rest, &place, &mut mods),
                "group" => forms::parse_group(rest, &mut groups),
                "fields" => {
                    let op = ops.last().expect("fields belong to the op above them");
                    field_lines.push((op.name.clone(), rest.to_string(), place));
                }
                "form" => {
                    let op = ops.last().expect("a form belongs to the op above it");
                    form_lines.push((op.name.clone(), rest.to_string(), place));
                }
                _ if latency.line(head, rest) => {}
                _ => panic!("{place}: unknown line `{line}`"),
            }
        }
    }
    let slots: Vec<Vec<String>> =
        ops.iter().map(|o| o.slots.iter().map(|s| slot(s, &mut mods)).collect()).collect();
    let refuse = |op: &Op, why: String| -> ! { panic!("{}: op {}: {why}", op.place, op.name) };
    let facts: Vec<facts::Facts> = ops
        .iter()
        .map(|op| {
            facts::Facts::read(&op.flags, (&op.slots, &op.names), &sizes)
                .unwrap_or_else(|why| refuse(op, why))
        })
        .collect();
    let mut form_table = Vec::new();
    let mut immediates = vec![BTreeSet::new(); ops.len()];
    // Indices of the forms of each opcode, and of each code.
    let mut by_op = vec![Vec::new(); ops.len()];
    let mut spelled = vec![BTreeSet::new(); ops.len()];
    let mut by_code: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (name, line, place) in &form_lines {
        let of = ops.iter().position(|o| o.name == *name).expect("the op of the form");
        let op = &ops[of];
        let from = form_table.len();
        forms::parse_form(
            (name, op.slots.len(), place),
            &op.flags,
            line,
            &groups,
            &mut spelled[of],
            &mut form_table,
        );
        mods.extend(spelled[of].iter().cloned());
        for (i, form) in form_table.iter().enumerate().skip(from) {
            let form: &forms::Encoding = form;
            immediates[of].extend(form.immediates.iter().cloned());
            by_op[of].push(i);
            by_code.entry(form.code).or_default().push(i);
        }
    }
    for ((op, facts), immediates) in ops.iter().zip(&facts).zip(&immediates) {
        facts::check_sources(facts, immediates).unwrap_or_else(|why| refuse(op, why));
        if !latency.has_unit(&facts.unit) {
            refuse(op, format!("there is no unit `{}`", facts.unit));
        }
        for twin in &facts.twins {
            let Some(other) = ops.iter().find(|o| o.name == *twin) else {
                refuse(op, format!("its twin `{twin}` is no opcode"));
            };
            if !facts::Facts::is_twin(&op.slots, &other.slots) {
                refuse(op, format!("the operands of its twin `{twin}` are others"));
            }
        }
    }
    let mut fields = BTreeMap::new();
    for (name, line, place) in field_lines {
        let read = views::Fields::read(&line, &groups).unwrap_or_else(|why| panic!("{place}: fields: {why}"));
        let of = ops.iter().position(|o| o.name == name).expect("the op of the fields");
        let held = read.modifiers(&groups);
        let left: Vec<&String> =
            spelled[of].iter().filter(|m| !held.contains(*m) && !forms::is_made_up(m)).collect();
        if !left.is_empty() {
            panic!("{place}: fields: there is none for {left:?}, which forms spell");
        }
        fields.insert(name, read);
    }
    let views = views::write(&ops, &fields, &groups);
    let mut out = String::new();
    let enumeration = |out: &mut String, doc: &str, name: &str, names: &[String]| {
        let _ =
            writeln!(out, "/// {doc}\n#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]");
        let _ =
            writeln!(out, "#[allow(non_camel_case_types, missing_docs)]\n#[repr(u16)]\npub enum {name} {{");
        for n in names {
            let _ = writeln!(out, "    {},", ident(n));
        }
        let _ = writeln!(
            out,
            "}}\nimpl {name} {{\n    /// All of them (`Mod::ALL` is a modifier).\n    pub const EVERY: &[{name}] = &["
        );
        for n in names {
            let _ = writeln!(out, "        {name}::{},", ident(n));
        }
        let _ = writeln!(
            out,
            "    ];\n    /// nvdisasm's spelling.\n    pub const fn name(self) -> &'static str {{\n        match self {{"
        );
        for n in names {
            let _ = writeln!(out, "            {name}::{} => \"{n}\",", ident(n));
        }
        let _ = writeln!(out, "        }}\n    }}\n}}");
    };
    let names: Vec<String> = ops.iter().map(|o| o.name.clone()).collect();
    enumeration(&mut out, "A mnemonic (without modifiers).", "Opcode", &names);
    enumeration(&mut out, "A modifier spelling.", "Mod", &mods.into_iter().collect::<Vec<_>>());
    enumeration(
        &mut out,
        "A special register.",
        "SpecialReg",
        &srs.iter().map(|s| s.0.clone()).collect::<Vec<_>>(),
    );
    let _ = writeln!(
        out,
        "impl SpecialReg {{\n    /// Encoding.\n    pub const fn code(self) -> u8 {{\n        match self {{"
    );
    for (n, code, _) in &srs {
        let _ = writeln!(out, "            SpecialReg::{} => {code},", ident(n));
    }
    let _ = writeln!(out, "        }}\n    }}\n}}\npub(crate) static SPECIALS: &[SpecialInfo] = &[");
    for (_, _, info) in &srs {
        let _ = writeln!(out, "    {info},");
    }
    let _ = writeln!(out, "];\npub(crate) static OPS: [OpInfo; {}] = [", ops.len());
    for (((op, slots), facts), immediates) in ops.iter().zip(&slots).zip(&facts).zip(&immediates) {
        let has = |f: &str| op.flags[3..].iter().any(|x| x == f);
        let _ = writeln!(
            out,
            "    OpInfo {{ mnemonic: {:?}, slots: &[{}], {}, awaited: {}, holds_uniform: {}, late: {}, passable: {}, waitless: {}, uniform: {}, \
             wide_immediate: WideImmediate::{}, \
             reads_predicates: {}, writes_predicates: {}, reads_uniform_predicates: {}, writes_uniform_predicates: {} }},",
            op.flags.iter().find_map(|f| f.strip_prefix("as=")).unwrap_or(&op.name),
            slots.join(", "),
            facts.expression(),
            has("awaited"),
            has("holds_uniform"),
            has("late"),
            has("passable"),
            has("nowait"),
            has("uniform"),
            facts::wide_immediate(&op.slots, immediates, has("extends")),
            has("reads_predicates"),
            has("writes_predicates"),
            has("reads_uniform_predicates"),
            has("writes_uniform_predicates")
        );
    }
    let _ = writeln!(out, "];\npub(crate) static FORMS: &[Form] = &[");
    for form in &form_table {
        let _ = writeln!(out, "    {},", form.text);
    }
    let _ = writeln!(out, "];\npub(crate) static FORMS_OF_OP: &[&[u16]] = &[");
    by_op.iter().for_each(|forms| _ = writeln!(out, "    &{forms:?},"));
    let _ = writeln!(out, "];\npub(crate) static FORMS_OF_CODE: &[(u16, &[u16])] = &[");
    by_code.iter().for_each(|(code, forms)| _ = writeln!(out, "    ({code:#x}, &{forms:?}),"));
    let _ = writeln!(out, "];");
    let units: Vec<(String, String)> =
        ops.iter().zip(&facts).map(|(o, f)| (o.name.clone(), f.unit.clone())).collect();
    latency.write(&units, &mut out);
    wanted.write(&names, &mut out);
    let dir = std::env::var("OUT_DIR").expect("OUT_DIR");
    std::fs::write(Path::new(&dir).join("isa.rs"), out).expect("write");
    std::fs::write(Path::new(&dir).join("ops.rs"), views).expect("write");
}
