//! Turns `isa/*.ptxisa` into `$OUT_DIR/isa.rs`: the enums `Op`, `Mod`, `Type`, `SpecialReg` and the table of
//! instruction forms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

include!("src/isa/hash.rs");

/// A Rust identifier for a spelling: `shared::cta` → `shared_cta`, `2d` → `_2d`.
fn ident(spelling: &str) -> String {
    let body = spelling.trim_start_matches('%').replace("::", "_");
    let keyword = ["const", "match", "type", "move", "async"].contains(&body.as_str());
    if body.starts_with(|c: char| c.is_ascii_digit()) || keyword { format!("_{body}") } else { body }
}

/// `%pm[0-7]_64` stands for eight names, `m64n[8-256/8]k16` for every eighth number.
fn numbered(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('[') else { return vec![name.to_string()] };
    let (range, tail) = rest.split_once(']').expect("`]`");
    let (range, step) = range.split_once('/').unwrap_or((range, "1"));
    let step: usize = step.parse().expect("number");
    let (first, last) = range.split_once('-').expect("`-`");
    let (first, last): (u32, u32) = (first.parse().expect("number"), last.parse().expect("number"));
    (first..=last).step_by(step).map(|n| format!("{head}{n}{tail}")).collect()
}

/// A type, and the first PTX version and the first SM that it can be declared with.
struct DataType {
    name: String,
    bytes: u32,
    class: String,
    needs: ((u8, u8), u16),
}

/// The gates `ptxN.N` and `smN` of a line.
fn needs(words: &[&str]) -> ((u8, u8), u16) {
    let gates = words.iter().skip_while(|w| **w != "@");
    let gate = |prefix: &str| gates.clone().find_map(|w| w.strip_prefix(prefix));
    let version = gate("ptx").map_or((1, 0), |v| {
        let (major, minor) = v.split_once('.').expect("a version");
        (major.parse().expect("a number"), minor.parse().expect("a number"))
    });
    (version, gate("sm").map_or(0, |n| n.parse().expect("a number")))
}

/// A special register.
struct SpecialReg {
    name: String,
    ty: String,
    vector: bool,
    /// The first PTX version and the first SM.
    version: (u8, u8),
    sm: u16,
}

#[derive(Default)]
struct Table {
    types: Vec<DataType>,
    sregs: Vec<SpecialReg>,
    lists: BTreeMap<String, Vec<String>>,
    forms: BTreeMap<String, Vec<String>>,
    mods: BTreeSet<String>,
    word_gates: BTreeMap<String, Vec<String>>,
    /// Words without effect on code: of these instructions, of all if there are none.
    quiet: BTreeMap<String, Vec<String>>,
}

impl Table {
    fn words(&self, text: &str) -> Vec<String> {
        text.split_whitespace()
            .flat_map(|w| match w.strip_prefix('$') {
                Some(name) => self.lists.get(name).unwrap_or_else(|| panic!("no list ${name}")).clone(),
                None => numbered(w),
            })
            .collect()
    }

    /// Splits `.a? .(b c) .d.e?` into groups of alternatives, each a sequence of words.
    fn groups(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let body = rest.strip_prefix('.').unwrap_or_else(|| panic!("group in `{text}`"));
            let (inner, after) = if let Some(list) = body.strip_prefix('(') {
                let end = list.find(')').expect("closing parenthesis");
                (list[..end].to_string(), &list[end + 1..])
            } else {
                let end = body.find([' ', '?', '!']).unwrap_or(body.len());
                (body[..end].to_string(), &body[end..])
            };
            let optional = after.starts_with('?');
            rest = after.trim_start_matches(['?', '!']).trim_start();
            let alternatives: Vec<String> = self
                .words(&inner)
                .iter()
                .map(|w| {
                    let words: Vec<String> = w
                        .split('.')
                        .map(|x| {
                            self.mods.insert(x.to_string());
                            format!("Mod::{}", ident(x))
                        })
                        .collect();
                    format!("&[{}]", words.join(", "))
                })
                .collect();
            let _ = write!(
                out,
                "Group {{ alternatives: &[{}], optional: {optional} }}, ",
                alternatives.join(", ")
            );
        }
        out
    }

    fn operands(&self, text: &str) -> String {
        text.split_whitespace()
            .map(|w| {
                let (w, optional, with) = match w.split_once('?') {
                    Some((w, with)) => (w, true, with),
                    None => (w, false, ""),
                };
                let with: Vec<String> =
                    with.split('|').filter(|m| !m.is_empty()).map(|m| format!("Mod::{}", ident(m))).collect();
                let (w, values) = w.split_once('[').map_or((w, ""), |(w, v)| (w, v.trim_end_matches(']')));
                let values = match (values.split_once('-'), values.strip_prefix('/')) {
                    _ if values == "sign" => "Values::Sign".to_string(),
                    (Some((a, b)), _) => format!("Values::Range({a}, {b})"),
                    (_, Some(n)) => format!("Values::Multiples({n})"),
                    _ => "Values::All".to_string(),
                };
                let (w, wider) = w.strip_suffix('~').map_or((w, false), |w| (w, true));
                let (w, exact) = w.strip_suffix('=').map_or((w, false), |w| (w, true));
                let (w, vector) = match w.strip_prefix('v') {
                    Some(w) => (w, true),
                    None => (w, false),
                };
                let bare = w.trim_start_matches(|c: char| c.is_ascii_digit() || c == '*');
                let count = match &w[..w.len() - bare.len()] {
                    "" => "None".to_string(),
                    "*" => "Some(255)".to_string(),
                    n => format!("Some({n})"),
                };
                let w = bare;
                let (head, fixed) = w.split_once('.').map_or((w, None), |(h, t)| (h, Some(t)));
                let letters = head.trim_end_matches(|c: char| c.is_ascii_digit());
                let index: u8 = head[letters.len()..].parse().unwrap_or(0);
                let kind = match letters {
                    "d" => "Dst",
                    "a" => "Src",
                    "p" => "PredSrc",
                    "q" => "PredDst",
                    "dq" => "DstPred",
                    "dp" => "DstAndPred",
                    "r" => "Reg",
                    "y" => "TensorAddr",
                    "qq" => "PredPair",
                    "m" => "Addr",
                    "t" => "Bracket",
                    "l" => "Label",
                    "f" => "Func",
                    "i" => "Imm",
                    "b" => "Part",
                    "w" => "PartDst",
                    "x" => "Any",
                    "n" => "Sink",
                    _ => panic!("operand `{w}`"),
                };
                let ty = match fixed {
                    Some(t) => format!("TypeRef::Fixed(Type::{})", ident(t)),
                    None => format!("TypeRef::Mod({index})"),
                };
                format!(
                    "OperandSpec {{ kind: OperandKind::{kind}, ty: {ty}, vector: {vector}, count: {count}, \
                     wider: {wider}, exact: {exact}, values: {values}, optional: {optional}, with: &[{}] }}, ",
                    with.join(", ")
                )
            })
            .collect()
    }

    /// A form of `op`; `name` holds the words that belong to its name.
    fn form(&mut self, op: &str, name: &[&str], text: &str) {
        let (text, gates) = text.split_once('@').unwrap_or((text, ""));
        let (groups, operands) =
            text.split_once(" :").or(text.strip_prefix(':').map(|o| ("", o))).expect("`:`");
        let gates = Self::gates(gates);
        let own: String = name.iter().map(|w| format!(".{w} ")).collect();
        let groups = self.groups(&format!("{own}{groups}"));
        let operands = self.operands(operands);
        let name = name.len() + text.matches('!').count();
        self.forms
            .entry(op.to_string())
            .or_default()
            .push(format!("Form {{ name: {name}, groups: &[{groups}], operands: &[{operands}], {gates} }}"));
    }

    /// `word WORD… of OP… @ GATE…`
    fn word(&mut self, text: &str) {
        let (text, gates) = text.split_once('@').expect("`@`");
        let (words, ops) = text.split_once(" of ").unwrap_or((text, ""));
        let (ops, others) = ops.strip_prefix("not ").map_or((ops, ops.is_empty()), |o| (o, true));
        let ops: Vec<String> = ops.split_whitespace().map(|o| format!("Op::{}", ident(o))).collect();
        for w in self.words(words) {
            self.mods.insert(w.clone());
            let gate = format!(
                "WordGate {{ ops: &[{}], others: {others}, {} }}",
                ops.join(", "),
                Self::gates(gates)
            );
            self.word_gates.entry(w).or_default().push(gate);
        }
    }

    /// `WORD… of OP… : why`
    fn quiet(&mut self, text: &str) {
        let (text, _) = text.split_once(" : ").expect("a reason");
        let (words, ops) = text.split_once(" of ").unwrap_or((text, ""));
        let ops: Vec<String> = ops.split_whitespace().map(|o| format!("Op::{}", ident(o))).collect();
        for w in self.words(words) {
            self.mods.insert(w.clone());
            self.quiet.entry(w).or_default().push(format!("&[{}]", ops.join(", ")));
        }
    }

    /// The fields `version`, `until` and `targets`.
    fn gates(text: &str) -> String {
        let (mut version, mut until) = ("(1, 0)".to_string(), "(255, 0)".to_string());
        let mut before = "u16::MAX";
        let mut targets = String::new();
        let number = |v: &str| {
            let (major, minor) = v.split_once('.').expect("version");
            format!("({major}, {minor})")
        };
        for gate in text.split_whitespace() {
            if let Some(v) = gate.strip_prefix("ptx") {
                version = number(v);
            } else if let Some(v) = gate.strip_prefix("<ptx") {
                until = number(v);
            } else if let Some(sm) = gate.strip_prefix("<sm") {
                before = sm;
            } else {
                let number = gate.strip_prefix("sm").expect("gate");
                let digits = number.trim_end_matches(['a', 'f']);
                let suffix = match &number[digits.len()..] {
                    "" => "None",
                    "f" => "Family",
                    _ => "Arch",
                };
                let sm: u16 = digits.parse().expect("SM number");
                let _ = write!(targets, "TargetGate {{ sm: {sm}, suffix: Suffix::{suffix} }}, ");
            }
        }
        format!("version: {version}, until: {until}, before: {before}, targets: &[{targets}]")
    }
}

fn enumeration(out: &mut String, doc: &str, name: &str, names: &[String]) {
    let _ = writeln!(out, "/// {doc}\n#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]");
    let _ = writeln!(out, "#[allow(non_camel_case_types, missing_docs)]\n#[repr(u16)]\npub enum {name} {{");
    for n in names {
        let _ = writeln!(out, "    {},", ident(n));
    }
    let _ =
        writeln!(out, "}}\nimpl {name} {{\n    /// All, in table order.\n    pub const ALL: &[{name}] = &[");
    for n in names {
        let _ = writeln!(out, "        {name}::{},", ident(n));
    }
    let _ = writeln!(
        out,
        "    ];\n    /// Its spelling.\n    pub const fn name(self) -> &'static str {{\n        NAMES_{}[self as usize]\n    }}\n}}",
        name
    );
    let list: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
    let _ = writeln!(
        out,
        "#[allow(non_upper_case_globals)]\nstatic NAMES_{name}: &[&str] = &[{}];",
        list.join(", ")
    );
    // A name is at its hash, or the next free slot.
    let mut slots = vec![u16::MAX; (4 * names.len()).next_power_of_two()];
    for (i, n) in names.iter().enumerate() {
        let mut at = hash(n.as_bytes()) as usize & (slots.len() - 1);
        while slots[at] != u16::MAX {
            at = (at + 1) & (slots.len() - 1);
        }
        slots[at] = i as u16;
    }
    let _ = writeln!(
        out,
        "#[allow(non_upper_case_globals)]\nstatic HASH_{name}: [u16; {}] = {slots:?};",
        slots.len()
    );
}

fn main() {
    println!("cargo::rerun-if-changed=isa");
    println!("cargo::rerun-if-changed=src/isa/hash.rs");
    let mut files: Vec<_> =
        std::fs::read_dir("isa").expect("isa/").map(|e| e.expect("entry").path()).collect();
    files.sort();
    let mut t = Table::default();
    let mut lines = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "ptxisa")) {
        for line in std::fs::read_to_string(file).expect("table").lines() {
            let line = line.split('#').next().unwrap_or("").trim().to_string();
            if !line.is_empty() {
                lines.push(line);
            }
        }
    }
    // Lists first: any file may use them.
    for line in lines.iter().filter(|l| l.starts_with("let ")) {
        let (name, list) = line["let ".len()..].split_once('=').expect("`=`");
        let list = t.words(list);
        t.lists.insert(name.trim().into(), list);
    }
    for line in &lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "let" => {}
            "word" => t.word(&line["word".len()..]),
            "quiet" => t.quiet(&line["quiet".len()..]),
            "type" => t.types.push(DataType {
                name: words[1].into(),
                bytes: words[2].parse().expect("bytes"),
                class: words[3].into(),
                needs: needs(&words),
            }),
            "sreg" => {
                let (version, sm) = needs(&words);
                for name in numbered(words[1]) {
                    t.sregs.push(SpecialReg {
                        name,
                        ty: words[2].into(),
                        vector: words[3] != "-",
                        version,
                        sm,
                    });
                }
            }
            name => {
                let (op, words) = name.split_once('.').unwrap_or((name, ""));
                let words: Vec<&str> = words.split('.').filter(|w| !w.is_empty()).collect();
                t.form(op, &words, line[name.len()..].trim());
            }
        }
    }
    let types: Vec<String> = t.types.iter().map(|x| x.name.clone()).collect();
    t.mods.extend(types.iter().cloned());
    let mut out = String::new();
    let mods: Vec<String> = t.mods.iter().cloned().collect();
    enumeration(&mut out, "A dotted word after a mnemonic.", "Mod", &mods);
    enumeration(&mut out, "A type.", "Type", &types);
    let ops: Vec<String> = t.forms.keys().cloned().collect();
    enumeration(&mut out, "A mnemonic.", "Op", &ops);
    enumeration(
        &mut out,
        "A special register.",
        "SpecialReg",
        &t.sregs.iter().map(|s| s.name.clone()).collect::<Vec<_>>(),
    );
    let _ = writeln!(out, "pub(crate) static TYPES: &[(u32, TypeClass, (u8, u8), u16)] = &[");
    for DataType { bytes, class, needs: (version, sm), .. } in &t.types {
        let class = match class.as_str() {
            "B" => "Bits",
            "U" => "Unsigned",
            "S" => "Signed",
            "F" => "Float",
            "P" => "Predicate",
            _ => panic!("class {class}"),
        };
        let _ = writeln!(out, "    ({bytes}, TypeClass::{class}, {version:?}, {sm}),");
    }
    let _ = writeln!(out, "];\npub(crate) static MOD_TYPES: &[Option<Type>] = &[");
    for m in &mods {
        if types.contains(m) {
            let _ = writeln!(out, "    Some(Type::{}),", ident(m));
        } else {
            let _ = writeln!(out, "    None,");
        }
    }
    let _ = writeln!(out, "];\npub(crate) static QUIET: &[&[&[Op]]] = &[");
    for m in &mods {
        let _ = writeln!(out, "    &[{}],", t.quiet.get(m).map_or(String::new(), |ops| ops.join(", ")));
    }
    let _ = writeln!(out, "];\npub(crate) static WORD_GATES: &[&[WordGate]] = &[");
    for m in &mods {
        let _ = writeln!(out, "    &[{}],", t.word_gates.get(m).map_or(String::new(), |g| g.join(", ")));
    }
    let _ = writeln!(out, "];\npub(crate) static SREGS: &[(Type, bool, (u8, u8), u16)] = &[");
    for SpecialReg { ty, vector, version, sm, .. } in &t.sregs {
        let _ = writeln!(out, "    (Type::{}, {vector}, {version:?}, {sm}),", ident(ty));
    }
    let _ = writeln!(out, "];\npub(crate) static FORMS: &[&[Form]] = &[");
    for forms in t.forms.values() {
        let _ = writeln!(out, "    &[{}],", forms.join(", "));
    }
    let _ = writeln!(out, "];");
    std::fs::write(Path::new(&std::env::var("OUT_DIR").expect("OUT_DIR")).join("isa.rs"), out)
        .expect("write");
}
