//! Parses `form` and `group` lines (see `isa/README.md`) and writes the static tables of encodings.

use crate::ident;
use std::collections::{BTreeMap, BTreeSet};

/// Every SM, in the order of `target::SMS`: bit i of a form's target mask is the i-th.
const SMS: [u32; 12] = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];

/// The last SM whose arithmetic instructions read constant banks.
const LAST_CONST_SM: u32 = 90;

/// A named modifier group.
#[derive(Clone, Default)]
pub struct Spellings {
    /// Value, spelling.
    values: Vec<(u32, Vec<String>)>,
    /// How the values that are not listed are spelled, followed by their number: `INVALID`, `???`.
    others: Option<String>,
}

impl Spellings {
    /// Those of one modifier, in the order of the table, each once.
    pub fn single(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (_, list) in &self.values {
            if let [one] = &list[..]
                && !is_made_up(one)
                && !out.contains(one)
            {
                out.push(one.clone());
            }
        }
        out
    }
}

/// Whether a spelling is that of a value which means nothing.
pub fn is_made_up(spelling: &str) -> bool {
    spelling.contains("INVALID") || spelling.contains("???")
}

/// Modifier groups by name.
pub type Groups = BTreeMap<String, Spellings>;

/// Parses `group NAME SPELLING=value…`; `_` spells nothing, dots separate several modifiers. `INVALID*` or
/// `???*` spells every value that is not listed, with its number.
pub fn parse_group(rest: &str, groups: &mut Groups) {
    let mut words = rest.split_whitespace();
    let name = words.next().expect("group NAME");
    let mut group = Spellings::default();
    for w in words {
        if let Some(others) = w.strip_suffix('*') {
            group.others = Some(others.into());
            continue;
        }
        let (spelling, value) = w.rsplit_once('=').expect("SPELLING=value");
        group.values.push((number(value), spell(spelling)));
    }
    assert!(groups.insert(name.into(), group).is_none(), "group {name} twice");
}

fn number(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

fn spell(text: &str) -> Vec<String> {
    if text == "_" { Vec::new() } else { text.split('.').map(str::to_string).collect() }
}

/// `75+`, `75-90`, `90,120+`: a mask over `SMS`.
pub fn targets(text: &str) -> u32 {
    let mut mask = 0;
    for part in text.split(',') {
        let (lo, hi) = if let Some(lo) = part.strip_suffix('+') {
            (number(lo), u32::MAX)
        } else if let Some((lo, hi)) = part.split_once('-') {
            (number(lo), number(hi))
        } else {
            (number(part), number(part))
        };
        for (i, sm) in SMS.iter().enumerate() {
            if (lo..=hi).contains(sm) {
                mask |= 1 << i;
            }
        }
    }
    mask
}

/// `81:3` or `64:3+72:5`, least significant part first.
fn bits(text: &str) -> Vec<(u32, u32)> {
    text.split('+')
        .map(|part| {
            let (lo, len) = part.split_once(':').unwrap_or((part, "1"));
            (number(lo), number(len))
        })
        .collect()
}

fn bits_rs(bits: &[(u32, u32)]) -> String {
    let parts: Vec<String> = bits.iter().map(|(lo, len)| format!("({lo}, {len})")).collect();
    format!("&[{}]", parts.join(", "))
}

/// One form being built: source text of its parts.
#[derive(Default)]
struct Form {
    /// Bits 122 … 124 that are `.reuse` flags of operands.
    reuse: std::cell::Cell<u32>,
    /// Bits that something is encoded in.
    taken: std::cell::Cell<u128>,
    /// Bits that two things are encoded in.
    twice: std::cell::Cell<u128>,
    fields: Vec<String>,
    groups: Vec<String>,
    fixed: Vec<String>,
    limits: Vec<String>,
}

impl Form {
    /// Checks that bits lie outside the control field.
    fn claim(&self, bits: &[(u32, u32)]) {
        for &(lo, len) in bits {
            assert!(lo + len <= 105, "bits {lo}:{len} reach into the control field");
            let bits = ((1u128 << len) - 1) << lo;
            self.twice.set(self.twice.get() | self.taken.get() & bits);
            self.taken.set(self.taken.get() | bits);
        }
    }

    fn flag(&self, bit: &str) -> String {
        self.claim(&bits(bit));
        bit.into()
    }
}

/// Takes a leading number (decimal digits) off `text`.
fn leading_number<'a>(text: &mut &'a str) -> &'a str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (n, rest) = text.split_at(end);
    *text = rest;
    n
}

/// `-72|73~63!90u67r122`: where the source modifiers of a register or constant sit (255 = nowhere).
fn source_mods(form: &Form, text: &str, reuse: u32) -> String {
    let (mut neg, mut abs, mut not, mut uniform) = ("255".into(), "255".into(), "255".into(), "255".into());
    let mut reuse = reuse.to_string();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[1..];
        let bit = leading_number(&mut rest);
        assert!(!bit.is_empty(), "source modifier `{text}` without a bit");
        if c == 'r' {
            // Control field: not claimed.
            reuse = bit.into();
            continue;
        }
        let slot = match c {
            '-' => &mut neg,
            '|' => &mut abs,
            '~' | '!' => &mut not,
            'u' => &mut uniform,
            _ => panic!("source modifier `{text}`"),
        };
        *slot = form.flag(bit);
    }
    if let Ok(bit @ 122..=124) = reuse.parse::<u32>() {
        form.reuse.set(form.reuse.get() | 1 << (bit - 122));
    }
    format!("SourceBits {{ neg: {neg}, abs: {abs}, not: {not}, uniform: {uniform}, reuse: {reuse} }}")
}

fn register(form: &Form, file: &str, text: &str) -> String {
    let mut rest = text;
    let lo = leading_number(&mut rest);
    let at = number(lo);
    let inverted = matches!(file, "X" | "N");
    let (file, len) = match file {
        "R" => ("R", 8),
        "U" => ("UR", 8),
        "P" | "N" => ("P", 3),
        "Q" | "X" => ("UP", 3),
        _ => ("B", 4),
    };
    // A uniform register has 6 bits up to sm_90; `:6` leaves the two above to other fields.
    let (mut rest, len) = match rest.strip_prefix(":6") {
        Some(r) => (r, 6),
        None => (rest, len),
    };
    // `60:3+73:5`: the number in two parts. `32+2`: the second register after the one in the field.
    let mut split = (0, 0);
    if let Some(mut r) = rest.strip_prefix('+') {
        split.1 = number(leading_number(&mut r));
        rest = r;
    }
    if let Some((low, r)) = rest.strip_prefix(':').and_then(|r| r.split_once('+')) {
        let mut r = r;
        split = (number(low), number(leading_number(&mut r)));
        r = r.strip_prefix(':').expect(":length");
        leading_number(&mut r);
        rest = r;
    }
    if split.0 != 0 || split.1 == 0 {
        form.claim(&[(at, len)]);
    }
    let reuse = match (file, at) {
        ("R", 24) => 122,
        ("R", 32) => 123,
        ("R", 64) => 124,
        _ => 255,
    };
    let mods = source_mods(form, rest, reuse);
    format!(
        "FieldKind::Reg {{ file: RegFile::{file}, lo: {at}, split: {split:?}, inverted: {inverted}, mods: {mods} }}"
    )
}

fn address(form: &Form, text: &str) -> String {
    let (desc, body) = text.split_once('[').expect("[");
    let (mut d, mut hidden, mut space) = ("255".to_string(), false, "");
    if matches!(desc, "gdesc" | "tmem" | "idesc" | "desc" | "a") {
        space = desc;
    }
    if let Some(lo) = desc.strip_prefix("dU").or(desc.strip_prefix("hU")) {
        let (lo, len) = lo.split_once(':').unwrap_or((lo, "8"));
        form.claim(&[(number(lo), number(len))]);
        d = lo.into();
        hidden = desc.starts_with('h');
    }
    let (mut base, mut width, mut uniform, mut offset) = (
        "255".to_string(),
        "AddrWidthBits::Fixed(AddrWidth::R32)".to_string(),
        "255".to_string(),
        String::new(),
    );
    let (mut next, mut hide_zero, mut shift) = (false, false, 0);
    for part in body.trim_end_matches(']').split('_') {
        if part == "n" {
            next = true;
        } else if part == "z" {
            hide_zero = true;
        } else if let Some(n) = part.strip_prefix('s') {
            shift = number(n);
        } else if let Some(reg) = part.strip_prefix('R') {
            let (lo, w) = reg.split_once('.').unwrap_or((reg, ""));
            form.claim(&[(number(lo), 8)]);
            base = lo.into();
            width = match w {
                "" => width,
                "64" => "AddrWidthBits::Fixed(AddrWidth::R64)".into(),
                "U32" => "AddrWidthBits::Fixed(AddrWidth::U32)".into(),
                _ if w.starts_with('x') => {
                    form.claim(&[(number(&w[1..]), 2)]);
                    format!("AddrWidthBits::Scale({})", &w[1..])
                }
                _ => format!("AddrWidthBits::Wide({})", form.flag(w.strip_prefix('w').expect("width"))),
            };
        } else if let Some(lo) = part.strip_prefix('U') {
            let (lo, len) = lo.split_once(':').unwrap_or((lo, "8"));
            form.claim(&[(number(lo), number(len))]);
            uniform = lo.into();
        } else if let Some(at) = part.strip_prefix('o') {
            let (at, unit) = at.split_once('x').unwrap_or((at, "1"));
            let b = bits(at);
            form.claim(&b);
            offset = bits_rs(&b);
            shift = number(unit).trailing_zeros();
        } else {
            panic!("address part `{part}`");
        }
    }
    let offset = if offset.is_empty() { "&[]".into() } else { offset };
    format!(
        "FieldKind::Addr {{ desc: {d}, desc_hidden: {hidden}, base: {base}, width: {width}, uniform: {uniform}, \
         offset: {offset}, shift: {shift}, space: {space:?}, next: {next}, \
         hide_zero: {hide_zero} }}"
    )
}

/// A constant-bank operand: `K` with source modifiers, `KR24` or `KU24` with an index register, `KX32` with a
/// uniform register instead of the bank.
fn constant(form: &Form, text: &str) -> String {
    let (mut index, mut rest) = ("None".to_string(), text);
    // `V`: 17 bits of offset.
    let lo = if rest.starts_with('V') { 37 } else { 38 };
    rest = rest.trim_start_matches('V');
    // `S` (and any index register): a signed byte offset; otherwise words.
    let signed = rest.starts_with(['S', 'R', 'U']) || rest.contains('R') || rest.contains('U');
    rest = rest.trim_start_matches('S');
    form.claim(&[(lo, 54 - lo), (54, 5)]);
    let mut bindless = "255".to_string();
    if let Some(r) = rest.strip_prefix('X') {
        let mut r = r;
        bindless = leading_number(&mut r).to_string();
        form.claim(&[(number(&bindless), 6)]);
        rest = r;
    }
    for (prefix, file) in [("R", "R"), ("U", "UR")] {
        if let Some(r) = rest.strip_prefix(prefix) {
            let mut r = r;
            let reg = leading_number(&mut r);
            form.claim(&[(number(reg), 8)]);
            index = format!("Some((RegFile::{file}, {reg}))");
            rest = r;
        }
    }
    let mods = source_mods(form, rest, 255);
    format!(
        "FieldKind::Const {{ lo: {lo}, signed: {signed}, bindless: {bindless}, index: {index}, mods: {mods} }}"
    )
}

/// One operand field.
fn field(form: &Form, token: &str, groups: &Groups, mods: &mut BTreeSet<String>) -> String {
    let (mut text, mut before) = (token, "");
    if let Some((literal, rest)) = text.strip_prefix('\'').and_then(|t| t.split_once('\'')) {
        (before, text) = (literal, rest);
    }
    let spaced = text.starts_with('^');
    text = text.trim_start_matches('^');
    let (mut suffix, mut elide, mut default) = ("None".to_string(), "Elide::Never".to_string(), "");
    if let Some((t, d)) = text.rsplit_once('=') {
        (text, default) = (t, d);
    }
    if let Some((t, condition)) = text.split_once('?') {
        text = t;
        elide = match condition {
            "" => "Elide::Default".into(),
            "?" => "Elide::Always".into(),
            m if m.ends_with('?') => {
                let m = m.trim_end_matches('?');
                mods.insert(m.into());
                format!("Elide::WithoutOrDefault(Mod::{})", ident(m))
            }
            m => {
                mods.insert(m.into());
                format!("Elide::Without(Mod::{})", ident(m))
            }
        };
    }
    if let Some((t, g)) = text.split_once('{') {
        text = t;
        suffix = format!("Some({})", bits_group(form, g.trim_end_matches('}'), groups, mods));
    }
    // An operand that is never spelled has no `.reuse` flag either.
    let silent = (elide == "Elide::Always" && text.starts_with('R')).then(|| format!("{text}r255"));
    let text = silent.as_deref().unwrap_or(text);
    let kind = if text.starts_with('<') {
        named(form, text, groups)
    } else if text.contains('[') {
        address(form, text)
    } else {
        let split = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (head, rest) = text.split_at(split);
        match head {
            "R" | "U" | "P" | "Q" | "X" | "N" | "B" => register(form, head, rest),
            "K" => constant(form, rest),
            "KR" | "KU" | "KVU" | "KS" | "KX" => constant(form, &text[1..]),
            "i" | "u" | "n" | "f" | "d" | "h" | "b" | "hh" | "hb" | "hi" | "lo" => {
                let b = bits(rest);
                form.claim(&b);
                let kind = match head {
                    "i" => "Signed",
                    "u" => "Unsigned",
                    "n" => "Negative",
                    "f" => "F32",
                    "d" => "F64",
                    "h" => "Half",
                    "b" => "Bfloat",
                    "hb" => "BfloatPair",
                    "hi" => "High",
                    "lo" => "Low",
                    _ => "HalfPair",
                };
                format!("FieldKind::Imm {{ bits: {}, kind: ImmKind::{kind} }}", bits_rs(&b))
            }
            "L" | "La" | "Lb" => {
                let b = bits(rest);
                form.claim(&b);
                let shift = if head == "Lb" { 0 } else { 2 };
                format!(
                    "FieldKind::Label {{ bits: {}, shift: {shift}, relative: {} }}",
                    bits_rs(&b),
                    head != "La"
                )
            }
            "SR" => {
                let b = bits(rest);
                form.claim(&b);
                format!("FieldKind::Special {{ lo: {} }}", b[0].0)
            }
            "SB" => {
                let b = bits(rest);
                form.claim(&b);
                format!("FieldKind::Scoreboard {{ lo: {} }}", b[0].0)
            }
            "set" => {
                let b = bits(rest);
                form.claim(&b);
                format!("FieldKind::ScoreboardSet {{ lo: {} }}", b[0].0)
            }
            "" if text.starts_with('-') => {
                if elide == "Elide::Never" {
                    elide = "Elide::Always".into();
                }
                "FieldKind::Absent".into()
            }
            _ => panic!("field `{token}`"),
        }
    };
    let (not, imm) = match default {
        "" => (false, 0),
        "!" => (true, 0),
        n => (false, number(n)),
    };
    format!(
        "Field {{ kind: {kind}, elide: {elide}, default_not: {not}, default_imm: {imm}, before: {:?}, \
         spaced: {spaced}, suffix: {suffix} }}",
        before.replace('_', " ")
    )
}

fn mods_rs(list: &[String], mods: &mut BTreeSet<String>) -> String {
    let names: Vec<String> = list
        .iter()
        .map(|m| {
            mods.insert(m.clone());
            format!("Mod::{}", ident(m))
        })
        .collect();
    format!("&[{}]", names.join(", "))
}

/// All values of a group in these bits.
fn fill(group: &Spellings, place: &[(u32, u32)]) -> Vec<(u32, Vec<String>)> {
    let mut values = group.values.clone();
    if let Some(others) = &group.others {
        for v in 0..1u32 << place.iter().map(|(_, len)| len).sum::<u32>() {
            if !group.values.iter().any(|(listed, _)| *listed == v) {
                values.push((v, vec![format!("{others}{v}")]));
            }
        }
    }
    values
}

/// `<name@72:3>`: an operand whose values have names.
fn named(form: &Form, token: &str, groups: &Groups) -> String {
    let (name, at) = token.trim_matches(['<', '>']).split_once('@').expect("group@bits");
    let place = bits(at);
    form.claim(&place);
    let group = groups.get(name).unwrap_or_else(|| panic!("no group {name}"));
    let names: Vec<String> =
        fill(group, &place).iter().map(|(v, list)| format!("({v}, {:?})", list.join("."))).collect();
    format!("FieldKind::Named {{ bits: {}, names: &[{}] }}", bits_rs(&place), names.join(", "))
}

/// `name@72:3`: a named group at these bits; `.X@74`: present when the bit is set; `.X!74`: when clear.
fn bits_group(form: &Form, token: &str, groups: &Groups, mods: &mut BTreeSet<String>) -> String {
    let (place, group) = if let Some(flag) = token.strip_prefix('.') {
        let inverted = !flag.contains('@');
        let (name, at) = flag.split_once(if inverted { '!' } else { '@' }).expect("flag@bit");
        let values = vec![(u32::from(!inverted), spell(name)), (u32::from(inverted), Vec::new())];
        (bits(at), Spellings { values, others: None })
    } else {
        let (name, at) = token.split_once('@').unwrap_or_else(|| panic!("modifier `{token}`"));
        (bits(at), groups.get(name).unwrap_or_else(|| panic!("no group {name}")).clone())
    };
    form.claim(&place);
    let values: Vec<String> =
        fill(&group, &place).iter().map(|(v, list)| format!("({v}, {})", mods_rs(list, mods))).collect();
    format!("BitsGroup {{ bits: {}, values: &[{}] }}", bits_rs(&place), values.join(", "))
}

/// One modifier token.
fn group(form: &Form, token: &str, groups: &Groups, mods: &mut BTreeSet<String>) -> String {
    if let Some(rules) = token.strip_prefix('?') {
        // ?2=RZ,3=RZ:MOV|3=1:IADD : a spelling that follows from the operands
        let rules: Vec<String> = rules
            .split('|')
            .map(|rule| {
                let (conditions, spelling) = rule.split_once(':').expect("conditions:SPELLING");
                let conditions: Vec<String> = conditions
                    .split(',')
                    .map(|c| {
                        let (slot, what) = c.split_once('=').expect("slot=what");
                        let what = match what {
                            "RZ" => "Condition::Zero".into(),
                            "shift" => "Condition::Shift".into(),
                            "plain" => "Condition::Plain".into(),
                            n => format!("Condition::Imm({})", number(n)),
                        };
                        format!("({slot}, {what})")
                    })
                    .collect();
                format!("(&[{}], {})", conditions.join(", "), mods_rs(&spell(spelling), mods))
            })
            .collect();
        return format!("Group::Alias(&[{}])", rules.join(", "));
    }
    if token.starts_with('.') && !token.contains(['@', '!']) {
        return format!("Group::Literal({})", mods_rs(&spell(&token[1..]), mods));
    }
    format!("Group::Bits({})", bits_group(form, token, groups, mods))
}

/// One arithmetic shape: form number, what B and C become.
struct Shape {
    number: u32,
    uniform: bool,
    b: &'static str,
    c: &'static str,
    constant: bool,
}

/// The forms of an arithmetic instruction, by where its non-register source sits.
fn shapes(kind: &str) -> Vec<Shape> {
    let s = |number, uniform, b, c, constant| Shape { number, uniform, b, c, constant };
    match kind {
        "abc" => vec![
            s(1, false, "R32", "R64", false),
            s(2, false, "R64", "imm", false),
            s(3, false, "R64", "K", true),
            s(4, false, "imm", "R64", false),
            s(5, false, "K", "R64", true),
            s(3, true, "R64", "KX32", true),
            s(5, true, "KX32", "R64", true),
            s(6, true, "U32", "R64", false),
            s(7, true, "R64", "U32", false),
        ],
        "ab" => vec![
            s(1, false, "R32", "", false),
            s(4, false, "imm", "", false),
            s(5, false, "K", "", true),
            s(5, true, "KX32", "", true),
            s(6, true, "U32", "", false),
        ],
        "ac" => vec![
            s(1, false, "R32", "", false),
            s(2, false, "imm", "", false),
            s(3, false, "K", "", true),
            s(3, true, "KX32", "", true),
            s(7, true, "U32", "", false),
        ],
        "aac" => vec![
            s(1, false, "R64", "", false),
            s(2, false, "imm", "", false),
            s(3, false, "K", "", true),
            s(3, true, "KX32", "", true),
            s(7, true, "U32", "", false),
        ],
        "uabc" => vec![
            s(1, true, "U32", "U64", false),
            s(2, true, "U64", "imm", false),
            s(4, true, "imm", "U64", false),
        ],
        "uab" => vec![s(1, true, "U32", "", false), s(4, true, "imm", "", false)],
        "uaac" => vec![s(1, true, "U64", "", false), s(2, true, "imm", "", false)],
        "uac" => vec![s(1, true, "U32", "", false), s(2, true, "imm", "", false)],
        _ => panic!("shape {kind}"),
    }
}

/// `B-|:f` in place `R32`, `R64`, `U32`, `K` or `imm`: the field token. `half`: the modifiers of a source
/// in the field of C are where half-precision instructions have them. A suffix `{x@60:2/81:2}` has one place
/// for each of the two fields.
fn place(token: &str, at: &str, reuse: u32, half: bool) -> String {
    let second = at.ends_with("64");
    let chosen = token.split_once('/').map(|(head, rest)| {
        let (other, tail) = rest.split_once('}').expect("}");
        let (before, first) = head.rsplit_once('@').expect("@");
        format!("{before}@{}}}{tail}", if second { other } else { first })
    });
    let token = chosen.as_deref().unwrap_or(token);
    let (mods, rest) = token[1..].split_at(token[1..].find(['?', '{', '=', ':']).unwrap_or(token.len() - 1));
    let (tail, kind) = match rest.rsplit_once(':') {
        Some((tail, kind)) if !kind.contains('}') => (tail, kind),
        _ => (rest, "u"),
    };
    if at == "imm" {
        return format!("{kind}32:32");
    }
    let (neg, abs) = match (second, half) {
        (false, _) => (63, 62),
        (true, false) => (75, 74),
        (true, true) => (84, 83),
    };
    let mut out = at.to_string();
    for c in mods.chars() {
        match c {
            '-' => out += &format!("-{neg}"),
            '~' => out += &format!("~{neg}"),
            '|' => out += &format!("|{abs}"),
            _ => panic!("source modifiers of `{token}`"),
        }
    }
    if at.starts_with('R') {
        out += &format!("r{reuse}");
    }
    out + tail
}

/// `75:2=0|2-3`, `75:2!=1`: the values that bits may have.
fn limit(place: &[(u32, u32)], text: &str, others: bool) -> String {
    let listed: BTreeSet<u32> = text
        .split('|')
        .flat_map(|part| {
            let (lo, hi) = part.split_once('-').unwrap_or((part, part));
            number(lo)..=number(hi)
        })
        .collect();
    let all = 0..1u32 << place.iter().map(|(_, len)| len).sum::<u32>();
    let values: Vec<String> = all.filter(|v| listed.contains(v) != others).map(|v| v.to_string()).collect();
    format!("({}, &[{}])", bits_rs(place), values.join(", "))
}

/// One encoding: the text of its entry in the table, its code in the word, and which operands are immediates, of which kind.
pub struct Encoding {
    pub text: String,
    pub code: u32,
    pub immediates: Vec<(usize, String)>,
}

/// Parses one `form` line of an opcode (its name, how many slots it has, and where the line is) and appends the
/// encodings it stands for.
pub fn parse_form(
    (op, slots, at): (&str, usize, &str),
    flags: &[String],
    rest: &str,
    groups: &Groups,
    mods: &mut BTreeSet<String>,
    out: &mut Vec<Encoding>,
) {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let mut parts = words.split(|w| *w == ":");
    let Some(&[targets_text, code]) = parts.next() else { panic!("form TARGETS CODE : …: `{rest}`") };
    let mut part = || parts.next().unwrap_or(&[]);
    let (fields, modifiers, fixed) = (part(), part(), part());
    assert!(fields.len() == slots, "{at}: form of {op}: {} fields for {slots} operands", fields.len());
    // The reuse flags go by operand, not by field: the second source of `ac` shapes counts as C.
    let b_reuse = if code.contains("ac:") { 124 } else { 123 };
    let half = code.starts_with('h') || code.starts_with("nh");
    let mut emit = |mask: u32, code: u32, b: &str, c: &str| {
        let mut form = Form::default();
        for token in fields {
            let token = match token.as_bytes()[0] {
                b'B' if !token.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                    place(token, b, b_reuse, half)
                }
                b'C' => place(token, c, 124, half),
                _ => token.to_string(),
            };
            let f = field(&form, &token, groups, mods);
            form.fields.push(f);
        }
        for token in modifiers {
            let g = group(&form, token, groups, mods);
            form.groups.push(g);
        }
        let has = |flag: &str| flags.iter().any(|f| f == flag) || fixed.contains(&flag);
        let queued = flags.iter().find_map(|f| f.strip_prefix("queued")).map_or(0, |on| match on {
            "" => 0xffff,
            on => targets(on.trim_start_matches('=')),
        });
        let (no_write_sb, no_read_sb, no_wait) = (has("nowb"), has("norb"), has("nowait"));
        for token in fixed.iter().filter(|t| !matches!(**t, "nowb" | "norb" | "nowait" | "overlap")) {
            let (at, value) = token.split_once('=').expect("bits=value");
            if at.ends_with('!') || value.contains(['|', '-']) {
                let place = bits(at.trim_end_matches('!'));
                let limit = limit(&place, value, at.ends_with('!'));
                form.limits.push(limit);
                continue;
            }
            let ignored = at.starts_with('~');
            let mut value = number(value);
            for (lo, len) in bits(at.trim_start_matches('~')) {
                // Ignored bits are those of operands that this form does not have.
                if !ignored {
                    form.claim(&[(lo, len)]);
                }
                form.fixed.push(format!("({lo}, {len}, {}, {ignored})", value & ((1 << len) - 1)));
                value >>= len;
            }
        }
        assert!(
            (form.twice.get() != 0) == fixed.contains(&"overlap"),
            "{at}: form of {op}: bits {:#x} are in two fields, and it must say so (overlap)",
            form.twice.get()
        );
        let kind = |f: &str| {
            let (_, rest) = f.split_once("ImmKind::")?;
            Some(rest.chars().take_while(char::is_ascii_alphanumeric).collect())
        };
        let immediates = (0..slots).filter_map(|k| Some((k, kind(&form.fields[k])?))).collect();
        let text = format!(
            "Form {{ targets: {mask:#x}, op: Opcode::{}, code: {code:#x}, fields: &[{}], \
             groups: &[{}], fixed: &[{}], limits: &[{}], queued: {queued:#x}, reuse: {}, no_write_sb: {no_write_sb}, no_read_sb: {no_read_sb}, no_wait: {no_wait} }}",
            ident(op),
            form.fields.join(", "),
            form.groups.join(", "),
            form.fixed.join(", "),
            form.limits.join(", "),
            form.reuse.get()
        );
        out.push(Encoding { text, code, immediates });
    };
    let mask = targets(targets_text);
    let Some((kind, low)) = code.split_once(':') else {
        emit(mask, u32::from_str_radix(code, 16).expect("code"), "", "");
        return;
    };
    let low = u32::from_str_radix(low, 16).expect("code");
    // `n`: no constants anywhere.
    let (kind, except) = kind.split_once('-').unwrap_or((kind, "0"));
    for s in shapes(kind.trim_start_matches(['n', 'h'])) {
        if s.constant && kind.starts_with('n') || s.number == number(except) {
            continue;
        }
        let old =
            SMS.iter().enumerate().filter(|(_, sm)| **sm <= LAST_CONST_SM).fold(0, |m, (i, _)| m | 1 << i);
        let mask = if s.constant { mask & old } else { mask };
        if mask != 0 {
            emit(mask, s.number << 9 | low | u32::from(s.uniform) << 12, s.b, s.c);
        }
    }
}
