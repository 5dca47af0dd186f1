//! Listings of machine code: what `oxsass dis` prints and `oxsass asm` reads.

use sass::{Control, Operand, Target};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a listing shows besides the instructions.
#[derive(Clone, Copy, Default, Debug)]
pub struct Style {
    /// The two halves of each word in comments, as `nvdisasm -hex` prints them.
    pub hex: bool,
    /// The control field before each instruction: `[B------:R-:W0:Y:S04]`; behind it `^0xc00000000` where bits
    /// that the text does not show (a hidden descriptor, the payload of a NaN) are not as [`assemble`] sets them.
    pub control: bool,
    /// One JSON object a line instead.
    pub json: bool,
    /// Branch targets within the code get names, as in `nvdisasm -c`.
    pub labels: bool,
}

/// The bits in which a word is not what its text and control field assemble to.
fn unshown(word: u128, text: &str, target: Target, pc: i64) -> u128 {
    sass::assemble(text, target, pc, Control::from_bits(word)).map_or(0, |again| again ^ word)
}

/// Names of branch targets, numbered in the order in which the code mentions them from `next_label` on.
fn labels(code: &[u128], target: Target, next_label: &mut usize) -> BTreeMap<i64, String> {
    let mut names = BTreeMap::new();
    for (i, word) in code.iter().enumerate() {
        let to = label(*word, target, 16 * i as i64);
        let inside = |to: &i64| *to >= 0 && to & 15 == 0 && (*to as usize) < 16 * code.len();
        if let Some(to) = to.filter(inside) {
            names.entry(to).or_insert_with(|| {
                *next_label += 1;
                format!(".L_x_{}", *next_label - 1)
            });
        }
    }
    names
}

/// The place that an instruction names, where its text ends with it.
fn label(word: u128, target: Target, pc: i64) -> Option<i64> {
    let inst = sass::decode(word, target, pc).ok()?;
    let named = matches!(inst.op.mnemonic(), "BRA" | "BSSY" | "WARPSYNC.COLLECTIVE");
    inst.operands
        .iter()
        .find_map(|o| if let Operand::Label(to) = o { Some(*to) } else { None })
        .filter(|_| named)
}

/// Text of a word, `None` where the table does not know it, with its branch target by name.
fn text(word: u128, target: Target, pc: i64, names: &BTreeMap<i64, String>) -> Option<String> {
    let text = sass::disassemble(word, target, pc).ok()?;
    let name = label(word, target, pc).and_then(|to| names.get(&to));
    match (name, text.rsplit_once(' ')) {
        (Some(name), Some((head, _))) => Some(format!("{head} `({name})")),
        _ => Some(text),
    }
}

/// Appends the listing of code that begins at address 0.
pub fn write(out: &mut String, code: &[u128], target: Target, style: Style, next_label: &mut usize) {
    let names = if style.labels { labels(code, target, next_label) } else { BTreeMap::new() };
    let texts: Vec<Option<String>> =
        code.iter().enumerate().map(|(i, w)| text(*w, target, 16 * i as i64, &names)).collect();
    // The comments with the words stand in one column.
    let width = |t: &Option<String>| {
        let guard = |t: &String| t.starts_with("@P") || t.starts_with("@!P");
        t.as_ref().map_or(0, |t| t.len() - if guard(t) { t.find(' ').unwrap_or(0) + 1 } else { 0 })
    };
    let widest = texts.iter().map(width).max().unwrap_or(0);
    for (i, (word, text)) in code.iter().zip(&texts).enumerate() {
        let (pc, high, low) = (16 * i, (word >> 64) as u64, *word as u64);
        let control = Control::from_bits(*word);
        if style.json {
            let text = text.as_ref().map_or("null".into(), |t| format!("\"{}\"", t.replace('"', "\\\"")));
            let _ = writeln!(
                out,
                "{{\"address\":{pc},\"text\":{text},\"control\":\"{control}\",\"high\":\"{high:#018x}\",\"low\":\"{low:#018x}\"}}"
            );
            continue;
        }
        if let Some(name) = names.get(&(pc as i64)) {
            let _ = writeln!(out, "{name}:");
        }
        let (guard, body) = match text {
            // A guard by a uniform predicate stands behind the margin.
            Some(t) if t.starts_with('@') && !t.starts_with("@UP") && !t.starts_with("@!UP") => {
                t.split_at(t.find(' ').unwrap_or(0) + 1)
            }
            Some(t) => ("", t.as_str()),
            None => ("", ""),
        };
        let _ = write!(out, "        /*{pc:04x}*/");
        if style.control {
            let _ = write!(out, "  {control}");
            let plain = sass::disassemble(*word, target, pc as i64);
            let bits = plain.map_or(0, |t| unshown(*word, &t, target, pc as i64));
            if bits != 0 {
                let _ = write!(out, "^{bits:#x}");
            }
        }
        if text.is_none() {
            let _ = writeln!(out, "{:19}.word {word:#034x}", "");
            continue;
        }
        // nvdisasm puts no space behind these.
        let plain = body.rsplit(' ').next().unwrap_or(body);
        let bare = matches!(plain, "NOP" | "ERRBAR") || plain.starts_with("MEMBAR") && plain.ends_with(".VC");
        let _ = write!(out, "{guard:>19}{body}{}", if bare { ";" } else { " ;" });
        if style.hex {
            let start = out.rfind('\n').map_or(0, |n| n + 1);
            let _ = writeln!(out, "{:1$}  /* {low:#018x} */", "", widest + usize::from(bare) - body.len());
            let column = out[start..].find("/* 0x").unwrap_or(0);
            let _ = writeln!(out, "{:column$}/* {high:#018x} */", "");
        } else {
            out.push('\n');
        }
    }
}

/// The listing of a whole cubin, each function under its name and what it takes.
///
/// # Errors
/// What is wrong with the file.
pub fn of_cubin(bytes: &[u8], style: Style) -> Result<String, crate::Error> {
    let image = cubin::read::read(bytes)?;
    let target = Target::new(image.sm).ok_or(crate::Error::Target(image.sm))?;
    let mut text = String::new();
    if !style.json {
        text += &format!("// {target}\n");
    }
    let mut next_label = 0;
    for (name, kernel) in &image.kernels {
        if !style.json {
            text += &format!(
                "\n// {} registers, {} bytes of stack, {} bytes of shared memory\n{name}:\n",
                kernel.registers, kernel.stack_bytes, kernel.shared_bytes
            );
        }
        write(&mut text, &kernel.code, target, style, &mut next_label);
    }
    Ok(text)
}

/// Where and why a listing does not assemble.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListingError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for ListingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ListingError {}

/// One line of a listing: the column and text of its instruction, and its control field.
struct Line<'a> {
    line: usize,
    column: usize,
    /// `None`: `.word`, whose bits are all `unshown`.
    text: Option<&'a str>,
    control: Control,
    /// Bits to flip in the word that text and control field give.
    unshown: u128,
}

/// Reads a listing as [`write`] prints it (without JSON): comments, labels, control fields and instructions;
/// an instruction without a control field issues alone, one cycle after the one before it.
///
/// # Errors
/// At the first line that is not an instruction of the target.
pub fn assemble(source: &str, target: Target) -> Result<Vec<u128>, ListingError> {
    let (mut lines, mut names) = (Vec::new(), BTreeMap::new());
    for (i, whole) in source.lines().enumerate() {
        let error = |at: &str, message: &str| ListingError {
            line: i + 1,
            column: 1 + whole[..at.as_ptr() as usize - whole.as_ptr() as usize].chars().count(),
            message: message.into(),
        };
        let mut rest = skip(whole);
        if rest.is_empty() || rest.starts_with("//") || rest.starts_with(".headerflags") {
            continue;
        }
        if let Some(name) = rest.strip_suffix(':') {
            names.insert(name.to_string(), 16 * lines.len() as i64);
            continue;
        }
        let (mut control, mut unshown) = (Control::default(), 0);
        if rest.starts_with('[') {
            let end = rest.find(']').ok_or_else(|| error(rest, "an open control field"))? + 1;
            control = rest[..end].parse().map_err(|m| error(rest, m))?;
            rest = &rest[end..];
            if let Some(bits) = rest.strip_prefix("^0x") {
                let end = bits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(bits.len());
                let parsed = u128::from_str_radix(&bits[..end], 16);
                unshown = parsed.map_err(|_| error(rest, "not a number of at most 128 bits"))?;
                rest = &bits[end..];
            }
            rest = skip(rest);
        }
        if let Some(bits) = rest.strip_prefix(".word 0x") {
            let word = u128::from_str_radix(bits, 16);
            let word = word.map_err(|_| error(rest, "not a number of at most 128 bits"))?;
            lines.push(Line { line: i + 1, column: 1, text: None, control, unshown: word });
            continue;
        }
        let end = rest.find(';').ok_or_else(|| error(rest, "an instruction without ';'"))?;
        let tail = skip(&rest[end + 1..]);
        if !tail.is_empty() {
            return Err(error(tail, "something behind the instruction"));
        }
        let column = error(rest, "").column;
        lines.push(Line { line: i + 1, column, text: Some(rest[..end].trim_end()), control, unshown });
    }
    let word = |(i, line): (usize, &Line)| {
        let error = |message: String| ListingError { line: line.line, column: line.column, message };
        let Some(text) = line.text else { return Ok(line.unshown) };
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((head, name)) = text.split_once(" `(") {
            let name = name.trim_end_matches(')');
            let to = names.get(name).ok_or_else(|| error(format!("no label '{name}'")))?;
            text = format!("{head} {to:#x}");
        }
        let word = sass::assemble(&text, target, 16 * i as i64, line.control);
        word.map(|w| w ^ line.unshown).map_err(|e| error(e.message.into()))
    };
    lines.iter().enumerate().map(word).collect()
}

/// Why a listing does not go into a cubin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PatchError {
    /// The listing is wrong.
    Listing(ListingError),
    /// The cubin is.
    Cubin(crate::Error),
    /// The listing names none of its kernels.
    NoneNamed,
    /// It has no such kernel.
    NoKernel(String),
    /// A kernel has another number of instructions than the listing.
    Length {
        /// Its name.
        kernel: String,
        /// Its instructions.
        has: usize,
        /// Those of the listing.
        listed: usize,
    },
}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PatchError::Listing(e) => e.fmt(f),
            PatchError::Cubin(e) => e.fmt(f),
            PatchError::NoneNamed => f.write_str("the listing names none of its kernels"),
            PatchError::NoKernel(name) => write!(f, "it has no kernel '{name}'"),
            PatchError::Length { kernel, has, listed } => {
                write!(f, "kernel '{kernel}' has {has} instructions, the listing {listed}")
            }
        }
    }
}

impl std::error::Error for PatchError {}

impl From<cubin::Error> for PatchError {
    fn from(e: cubin::Error) -> PatchError {
        PatchError::Cubin(e.into())
    }
}

/// The cubin with the code of a listing in the place of code of the same length: of the kernel named, or of
/// every kernel whose name stands before its instructions (`NAME:`); a listing without names is the code of the
/// only kernel.
///
/// # Errors
/// When the listing is not text of the cubin's target, or not as long as the code that it replaces.
pub fn patch(source: &str, cubin: &[u8], only: Option<&str>) -> Result<Vec<u8>, PatchError> {
    let sm = cubin::read::read(cubin)?.sm;
    let target = Target::new(sm).ok_or(PatchError::Cubin(crate::Error::Target(sm)))?;
    let ranges = cubin::read::code_ranges(cubin)?;
    // Each kernel's part of the listing, with empty lines in the place of the lines before it.
    let mut parts: BTreeMap<&str, String> = BTreeMap::new();
    let mut at = (ranges.len() == 1).then(|| ranges.keys().next()).flatten().map(String::as_str);
    let named = |line: &str| line.trim().strip_suffix(':').and_then(|n| ranges.get_key_value(n));
    if !source.lines().any(|l| named(l).is_some()) {
        at = only.or(at);
    }
    for (i, line) in source.lines().enumerate() {
        if let Some((name, _)) = named(line) {
            at = Some(name);
        } else if let Some(name) = at {
            let part = parts.entry(name).or_default();
            let missing = i.saturating_sub(part.bytes().filter(|b| *b == b'\n').count());
            part.extend(std::iter::repeat_n('\n', missing));
            part.push_str(line);
            part.push('\n');
        }
    }
    parts.retain(|name, _| only.is_none_or(|n| n == *name));
    if parts.is_empty() {
        return Err(PatchError::NoneNamed);
    }
    let mut bytes = cubin.to_vec();
    for (name, part) in parts {
        let range = ranges.get(name).ok_or_else(|| PatchError::NoKernel(name.into()))?;
        let words = assemble(&part, target).map_err(PatchError::Listing)?;
        let code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        if code.len() != range.len() {
            let (kernel, has) = (name.into(), range.len() / 16);
            return Err(PatchError::Length { kernel, has, listed: words.len() });
        }
        bytes[range.clone()].copy_from_slice(&code);
    }
    Ok(bytes)
}

/// Without leading blanks and comments.
fn skip(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some((_, after)) = rest.strip_prefix("/*").and_then(|t| t.split_once("*/")) {
        rest = after.trim_start();
    }
    rest.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `MOV R1, 0xa00` and a branch back to it.
    fn code(target: Target) -> Vec<u128> {
        let branch = sass::assemble("BRA 0x0", target, 0x10, Control::default()).unwrap();
        vec![0x000f_e400_0000_0f00_0000_0a00_0001_7802, branch]
    }

    #[test]
    fn listings_assemble_to_the_same_words() {
        let target = Target::new(90).unwrap();
        let code = &code(target)[..];
        for style in [
            Style { control: true, ..Style::default() },
            Style { control: true, hex: true, ..Style::default() },
            Style { control: true, labels: true, ..Style::default() },
        ] {
            let mut out = String::new();
            write(&mut out, code, target, style, &mut 0);
            assert_eq!(assemble(&out, target).as_deref(), Ok(code), "{out}");
        }
    }

    #[test]
    fn bits_that_the_text_does_not_show_are_kept() {
        // `LDG.E.U8 R10, [R8.64+0xf]` by the descriptor in UR8, which nvdisasm does not print; a select of a
        // NaN with another payload; no instruction at all.
        let target = Target::new(80).unwrap();
        let code = [
            0x0000_a200_0c1e_1100_0000_0f08_080a_5981,
            0x000f_c600_0080_0000_fff8_0000_030d_0808,
            0x000f_e200_0000_01ff_0000_8000_ff00_7435,
            0x7ff0_0000_0000_0000,
        ];
        let mut out = String::new();
        write(&mut out, &code, target, Style { control: true, ..Style::default() }, &mut 0);
        assert!(out.contains("^0xc00000000"), "{out}");
        assert_eq!(assemble(&out, target).as_deref(), Ok(&code[..]), "{out}");
    }

    #[test]
    fn the_layout_is_nvdisasms() {
        let target = Target::new(90).unwrap();
        let mut out = String::new();
        write(&mut out, &code(target)[..1], target, Style { hex: true, ..Style::default() }, &mut 0);
        let expected = "        /*0000*/                   MOV R1, 0xa00 ;  /* 0x00000a0000017802 */\n                                                    /* 0x000fe40000000f00 */\n";
        assert_eq!(out, expected);
        out.clear();
        write(&mut out, &code(target), target, Style { labels: true, ..Style::default() }, &mut 0);
        let expected = ".L_x_0:\n        /*0000*/                   MOV R1, 0xa00 ;\n        /*0010*/                   BRA `(.L_x_0) ;\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn unknown_words_and_wrong_text() {
        let target = Target::new(90).unwrap();
        let mut out = String::new();
        write(&mut out, &[0x7ff0_0000_0000_0000], target, Style::default(), &mut 0);
        assert!(out.contains(".word 0x"), "{out}");
        for (source, line, column) in [
            ("\n   FROB R1 ;", 2, 4),
            ("MOV R1, R2", 1, 1),
            ("[B-] MOV R1, R2 ;", 1, 1),
            ("MOV R1, R2 ; MOV", 1, 14),
            ("BRA `(.L_x_7) ;", 1, 1),
            ("@ ;", 1, 1),
        ] {
            let e = assemble(source, target).unwrap_err();
            assert_eq!((e.line, e.column), (line, column), "{source}: {e}");
        }
    }
}
