//! `docs-isa`: the reference pages in `docs/isa`, one for each mnemonic, from the instruction table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// One `op` of the table with its forms, as written there.
struct Op {
    flags: Vec<String>,
    slots: Vec<String>,
    forms: Vec<[String; 5]>,
    name: String,
}

/// The table: modifier groups by name, and opcodes by mnemonic.
struct Table {
    groups: BTreeMap<String, Vec<String>>,
    ops: BTreeMap<String, Vec<Op>>,
}

fn read(root: &Path) -> Result<Table, String> {
    let folder = root.join("crates/sass/isa");
    let entries = std::fs::read_dir(&folder).map_err(|e| e.to_string())?;
    let mut files: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "isa"));
    files.sort();
    let mut table = Table { groups: BTreeMap::new(), ops: BTreeMap::new() };
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
        let mut page = String::new();
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or("").trim();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["group", name, ref values @ ..] => {
                    table.groups.insert(name.into(), values.iter().map(|v| v.to_string()).collect());
                }
                ["op", name, ref rest @ ..] => {
                    let colon = rest.iter().position(|w| *w == ":").unwrap_or(rest.len());
                    let text = |w: &&str| w.to_string();
                    let flags: Vec<String> = rest[..colon].iter().map(text).collect();
                    let mnemonic = flags.iter().find_map(|f| f.strip_prefix("as=")).unwrap_or(name);
                    page = mnemonic.split('.').next().unwrap_or(mnemonic).into();
                    let slots = rest.iter().skip(colon + 1).map(text).collect();
                    let op = Op { flags, slots, forms: Vec::new(), name: name.into() };
                    table.ops.entry(page.clone()).or_default().push(op);
                }
                ["form", targets, code, ref rest @ ..] => {
                    let mut parts = rest.split(|w| *w == ":");
                    parts.next();
                    let mut part = || parts.next().unwrap_or(&[]).join(" ");
                    let form = [targets.into(), code.into(), part(), part(), part()];
                    let op = table.ops.get_mut(&page).and_then(|l| l.last_mut());
                    op.ok_or("a form before the first op")?.forms.push(form);
                }
                _ => {}
            }
        }
    }
    Ok(table)
}

/// Text of a table cell.
fn cell(text: &str) -> String {
    if text.is_empty() { "–".into() } else { format!("`{}`", text.replace('|', "\\|")) }
}

fn page(name: &str, ops: &[Op], groups: &BTreeMap<String, Vec<String>>) -> String {
    let mut out = format!("# {name}\n");
    let mut used: BTreeMap<&str, &[String]> = BTreeMap::new();
    for op in ops {
        let _ = write!(out, "\n## {}\n\nOperands: {}", op.name, cell(&op.slots.join(" ")));
        let flags: Vec<&str> =
            op.flags.iter().map(String::as_str).filter(|f| !f.starts_with("as=")).collect();
        if !flags.is_empty() {
            let _ = write!(out, "; {}", flags.join(", "));
        }
        out += "\n\n| targets | code | operand bits | modifiers | fixed bits |\n|---|---|---|---|---|\n";
        for form in &op.forms {
            let [targets, code, fields, modifiers, fixed] = form;
            let cells = [targets, code, fields, modifiers, fixed].map(|t| cell(t)).join(" | ");
            let _ = writeln!(out, "| {cells} |");
            let tokens = fields.split(|c: char| c.is_whitespace() || "{}<>".contains(c));
            for token in tokens.chain(modifiers.split_whitespace()) {
                let Some((group, _)) = token.split_once('@') else { continue };
                if let Some((key, values)) = groups.get_key_value(group) {
                    used.insert(key, values);
                }
            }
        }
    }
    if !used.is_empty() {
        out += "\n## Modifiers\n\n";
    }
    for (group, values) in used {
        let _ = writeln!(out, "- **{group}**: {}", cell(&values.join(" ")));
    }
    out
}

/// The pages by file name.
fn pages(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let table = read(root)?;
    let mut pages = BTreeMap::new();
    let mut index = String::from(
        "# SASS reference\n\nOne page for each mnemonic, generated from `crates/sass/isa` by `cargo xtask docs-isa`: \
         the operands (name; `>` written, `<` read; file and width), the encodings with the targets that have them, where \
         the operands and modifiers are, and the values of the modifiers. `crates/sass/isa/README.md` explains the \
         notation, `docs/sass-encoding.md` how it was found.\n\n",
    );
    for (name, ops) in &table.ops {
        let forms: usize = ops.iter().map(|o| o.forms.len()).sum();
        if forms == 0 {
            continue;
        }
        let _ = writeln!(index, "- [{name}]({name}.md): {forms} forms");
        pages.insert(format!("{name}.md"), page(name, ops, &table.groups));
    }
    pages.insert("README.md".into(), index);
    Ok(pages)
}

/// Writes the pages.
pub fn write(root: &Path) -> Result<(), String> {
    let folder = root.join("docs/isa");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| e.to_string())?;
    }
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    for (name, text) in pages(root)? {
        std::fs::write(folder.join(name), text).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_fresh() {
        let root = crate::root();
        let pages = pages(&root).unwrap();
        let found = std::fs::read_dir(root.join("docs/isa")).unwrap().count();
        assert_eq!(found, pages.len(), "run `cargo xtask docs-isa`");
        for (name, text) in pages {
            let file = std::fs::read_to_string(root.join("docs/isa").join(&name)).unwrap_or_default();
            assert!(file == text, "docs/isa/{name} is not fresh: run `cargo xtask docs-isa`");
        }
    }
}
