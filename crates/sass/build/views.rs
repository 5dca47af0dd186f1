//! Writes `$OUT_DIR/ops.rs`: a struct for the operands of each opcode, by the names that the table gives them, one for the
//! modifiers of each opcode with a `fields` line, and an enumeration for each group of modifiers that such a line names.

use crate::forms::Groups;
use crate::{Op, ident};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// `IMNMX.U64` → `ImnmxU64`, `shift_dir` → `ShiftDir`.
pub fn camel(name: &str) -> String {
    let word = |w: &str| {
        let mut letters = w.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters.map(|c| c.to_ascii_lowercase())).collect::<String>()
    };
    name.split(['.', '_', ':']).map(word).collect()
}

/// `.NAME` among the fields of an opcode, or a group.
enum Source {
    /// There or not.
    Flag(String),
    /// One of a group.
    Group(String),
    /// One of a group, or none.
    Option(String),
}

/// The modifiers of an opcode: name and source of each field, in spelling order.
#[derive(Default)]
pub struct Fields(Vec<(String, Source)>);

impl Fields {
    /// Reads a `fields` line: `NAME=GROUP`, `NAME=?GROUP` where none of them may be spelled, `NAME=.MODIFIER`.
    pub fn read(text: &str, groups: &Groups) -> Result<Fields, String> {
        let mut fields = Vec::new();
        for word in text.split_whitespace() {
            let (name, source) = word.split_once('=').ok_or("NAME=GROUP, NAME=?GROUP or NAME=.MODIFIER")?;
            let source = match source.split_at(1) {
                (".", flag) => Source::Flag(flag.into()),
                ("?", group) => Source::Option(group.into()),
                _ => Source::Group(source.into()),
            };
            if let Source::Option(group) | Source::Group(group) = &source {
                let group = groups.get(group).ok_or_else(|| format!("no group {group}"))?;
                if group.single().is_empty() {
                    return Err(format!("`{word}`: the group has no single modifiers"));
                }
            }
            fields.push((name.into(), source));
        }
        Ok(Fields(fields))
    }

    /// Every modifier that the fields hold.
    pub fn modifiers(&self, groups: &Groups) -> BTreeSet<String> {
        let all = |(_, source): &(String, Source)| match source {
            Source::Flag(flag) => vec![flag.clone()],
            Source::Group(group) | Source::Option(group) => groups[group].single(),
        };
        self.0.iter().flat_map(all).collect()
    }

    /// The groups that they come from.
    fn groups(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter_map(|(_, source)| match source {
            Source::Flag(_) => None,
            Source::Group(group) | Source::Option(group) => Some(group),
        })
    }
}

/// A group as an enumeration.
fn enumeration(out: &mut String, name: &str, spellings: &[String]) {
    let ty = camel(name);
    let _ = writeln!(
        out,
        "/// One of the modifiers of the group `{name}`.\n#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]\n\
         #[allow(non_camel_case_types, missing_docs)]\npub enum {ty} {{"
    );
    spellings.iter().for_each(|s| _ = writeln!(out, "    {},", ident(s)));
    let _ = writeln!(
        out,
        "}}\nimpl {ty} {{\n    /// As it is spelled.\n    pub fn modifier(self) -> Mod {{\n        match self {{"
    );
    spellings.iter().for_each(|s| _ = writeln!(out, "            {ty}::{0} => Mod::{0},", ident(s)));
    let _ = writeln!(
        out,
        "        }}\n    }}\n    /// Which one a modifier is.\n    pub fn of(modifier: Mod) -> Option<{ty}> {{\n        Some(match modifier {{"
    );
    spellings.iter().for_each(|s| _ = writeln!(out, "            Mod::{0} => {ty}::{0},", ident(s)));
    let _ = writeln!(out, "            _ => return None,\n        }})\n    }}\n}}");
}

/// The modifiers of an opcode as a struct.
fn modifiers(out: &mut String, op: &Op, fields: &Fields) {
    let ty = camel(&op.name);
    let _ = writeln!(
        out,
        "/// Modifiers of `{}`.\n#[derive(Clone, Copy, PartialEq, Eq, Debug)]\n#[allow(missing_docs)]\npub struct {ty}Mods {{",
        op.name
    );
    let (mut read, mut names, mut write) = (String::new(), Vec::new(), String::new());
    for (name, source) in &fields.0 {
        names.push(name.clone());
        let _ = match source {
            Source::Flag(_) => writeln!(out, "    pub {name}: bool,"),
            Source::Group(g) => writeln!(out, "    pub {name}: {},", camel(g)),
            Source::Option(g) => writeln!(out, "    pub {name}: Option<{}>,", camel(g)),
        };
        let _ = match source {
            Source::Flag(f) => {
                writeln!(
                    read,
                    "        let {name} = rest.take(|m| (m == Mod::{}).then_some(())).is_some();",
                    ident(f)
                )
            }
            Source::Group(g) => writeln!(read, "        let {name} = rest.take({}::of)?;", camel(g)),
            Source::Option(g) => writeln!(read, "        let {name} = rest.take({}::of);", camel(g)),
        };
        let _ = match source {
            Source::Flag(f) => {
                writeln!(
                    write,
                    "        if self.{name} {{\n            out.push(Mod::{});\n        }}",
                    ident(f)
                )
            }
            Source::Group(_) => writeln!(write, "        out.push(self.{name}.modifier());"),
            Source::Option(_) => {
                writeln!(
                    write,
                    "        if let Some(m) = self.{name} {{\n            out.push(m.modifier());\n        }}"
                )
            }
        };
    }
    let _ = writeln!(
        out,
        "}}\nimpl {ty}Mods {{\n    /// Those of an instruction; `None` if it is no `{}` or has others.\n    \
         pub fn of<I: Instruction>(inst: &I) -> Option<{ty}Mods> {{\n        \
         if inst.sass() != Some(Opcode::{}) {{\n            return None;\n        }}\n        \
         {ty}Mods::read(inst.modifiers())\n    }}\n    /// Those of a list; `None` if there are others.\n    \
         pub fn read(mods: &Mods) -> Option<{ty}Mods> {{\n        let mut rest = Rest(&mods.0);\n{read}        \
         rest.0.is_empty().then_some({ty}Mods {{ {} }})\n    }}\n    /// In spelling order.\n    \
         pub fn mods(self) -> Mods {{\n        let mut out = Mods::none();\n{write}        out\n    }}\n}}",
        op.name,
        ident(&op.name),
        names.join(", ")
    );
}

/// The operands of an opcode as a struct.
fn operands(out: &mut String, op: &Op) {
    let ty = camel(&op.name);
    let n = op.names.len();
    let list = op.names.join(", ");
    let _ = writeln!(
        out,
        "/// Operands of `{}`: `{}`.\n#[derive(Clone, Copy, PartialEq, Eq, Debug)]\n#[allow(missing_docs)]\npub struct {ty}<T> {{",
        op.name,
        op.names.iter().zip(&op.slots).map(|(a, b)| format!("{a}{b}")).collect::<Vec<_>>().join(" ")
    );
    op.names.iter().for_each(|name| _ = writeln!(out, "    pub {name}: T,"));
    let _ = writeln!(out, "}}\n#[allow(missing_docs)]\nimpl {ty}<()> {{");
    for (i, name) in op.names.iter().enumerate() {
        let _ = writeln!(out, "    pub const {}: usize = {i};", name.to_ascii_uppercase());
    }
    let _ = writeln!(
        out,
        "}}\nimpl<T> {ty}<T> {{\n    /// Those of an instruction, if it is a `{0}`.\n    \
         #[inline]\n    pub fn of<I: Instruction<Operand = T>>(inst: &I) -> Option<{ty}<&T>> {{\n        \
         if inst.sass() == Some(Opcode::{1}) {{ {ty}::slots(inst.operands()) }} else {{ None }}\n    }}\n    \
         /// The same, for changing them.\n    #[inline]\n    \
         pub fn of_mut<I: Instruction<Operand = T>>(inst: &mut I) -> Option<{ty}<&mut T>> {{\n        \
         if inst.sass() == Some(Opcode::{1}) {{ {ty}::slots_mut(inst.operands_mut()) }} else {{ None }}\n    }}\n    \
         /// Operands that are such ones, of any opcode with the same slots.\n    #[inline]\n    \
         pub fn slots(operands: &[T]) -> Option<{ty}<&T>> {{\n        \
         match operands {{\n            [{list}] => Some({ty} {{ {list} }}),\n            _ => None,\n        }}\n    }}\n    \
         /// The same, for changing them.\n    #[inline]\n    \
         pub fn slots_mut(operands: &mut [T]) -> Option<{ty}<&mut T>> {{\n        \
         match operands {{\n            [{list}] => Some({ty} {{ {list} }}),\n            _ => None,\n        }}\n    }}\n    \
         /// In the order of the slots.\n    #[inline]\n    pub fn list(self) -> [T; {n}] {{\n        let {ty} {{ {list} }} = self;\n        \
         [{list}]\n    }}\n}}",
        op.name,
        ident(&op.name)
    );
}

/// The whole file.
pub fn write(ops: &[Op], fields: &BTreeMap<String, Fields>, groups: &Groups) -> String {
    let mut out = String::new();
    let named: BTreeSet<&String> = fields.values().flat_map(Fields::groups).collect();
    named.iter().for_each(|name| enumeration(&mut out, name, &groups[*name].single()));
    for op in ops {
        if !op.slots.is_empty() {
            operands(&mut out, op);
        }
        if let Some(fields) = fields.get(&op.name) {
            modifiers(&mut out, op, fields);
        }
    }
    out
}
