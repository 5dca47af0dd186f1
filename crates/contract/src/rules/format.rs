//! The file around the code: header, sections, segments, symbols, and how large things are beside what they hold.
//!
//! Where targets of one family may differ (reserved shared memory, above all), observations name the target, and the table says
//! `all` where every target of the family shows the same; other observations are the family's, and say `all`.

use super::always::{self, Always};
use super::{Judge, Rule};
use crate::elf::{
    ALLOC, Elf, INFO_LINK, NV_COMPAT, Section, Symbol, class, is_compilers, number, part, split,
};
use crate::{Counts, Family, File, Place, Table};
use sass::memory::{MemoryEffects, MemorySpace};
use sass::{ConstBank, Operand};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub struct Format;

/// Sections of variables: how they are aligned, the program says.
const OF_VARIABLES: &[&str] = &[".nv.shared.*", ".nv.global", ".nv.global.init", ".nv.constant3"];
/// Sections whose size neither code nor names change.
const FIXED: &[&str] = &[".nv.shared.reserved.0", ".nv.rel.action", ".note.nv.cuinfo"];
/// Sections that name no kernel and that those of a kernel come with.
const LEADING: &[&str] = &[".text.", ".nv.info.", ".nv.shared.", ".nv.constant0.", ".nv.constant2."];
/// Opcodes, by how their names begin, that files may have symbols or sections for.
const TELLING: &[&str] = &[
    "ARRIVES",
    "B2R",
    "BAR",
    "BPT",
    "BSSY",
    "CALL",
    "LDGSTS",
    "LEPC",
    "RPCMOV",
    "SYNCS",
    "UBLK",
    "UCGABAR",
    "UGETNEXTWORKID",
    "USETMAXREG",
    "UTC",
    "UTMA",
    "UVIRTCOUNT",
    "WARPGROUP",
];
/// The record of `.nv.compat` that says for which targets the capsules can be finalized: ours have none.
const OF_CAPSULES: u8 = 11;
/// What an undefined symbol and a common one have for the number of their section.
const UNDEFINED: u16 = 0;
const COMMON: u16 = 0xfff2;
/// What `STO_CUDA_ENTRY` is of `st_other`.
const ENTRY: u8 = 0x10;
/// More than this beyond what is named is just more.
const FAR: i64 = 16;

/// Kernel or function that a section belongs to.
fn owner(name: &str) -> Option<&str> {
    let of = name.strip_prefix(".rela").or_else(|| name.strip_prefix(".rel")).unwrap_or(name);
    if of.starts_with(".nv.shared.reserved.") {
        return None;
    }
    LEADING.iter().find_map(|p| of.strip_prefix(p))
}

/// Whether the symbol is one that the compiler brings itself.
fn is_systems(symbol: &str) -> bool {
    [".nv.", "__nv_"].iter().any(|p| symbol.starts_with(p))
}

fn beyond(size: u64, of: u64) -> String {
    let n = size as i64 - of as i64;
    if n.abs() > FAR { "more".into() } else { n.to_string() }
}

struct Seer<'s, 'f> {
    elf: &'s Elf<'f>,
    file: &'s File<'f>,
    kind: &'static str,
    see: &'s mut dyn FnMut(Place, &str),
}

impl Seer<'_, '_> {
    /// An observation of the family's.
    fn say(&mut self, what: &str) {
        (self.see)(Place::FILE, &format!("all {what}"));
    }
    /// An observation of this target's.
    fn say_of_target(&mut self, what: &str) {
        (self.see)(Place::FILE, &format!("sm_{} {what}", self.file.target.sm));
    }
    /// What stands together with each of these.
    fn together(&mut self, place: Place, whole: &str, with: &BTreeSet<String>, there: &BTreeSet<String>) {
        let list: Vec<&str> = there.iter().map(String::as_str).collect();
        let list = list.join(" ");
        (self.see)(place, &format!("{whole} has: {list}"));
        (self.see)(place, &format!("sm_{} {whole} has: {list}", self.file.target.sm));
        for one in with {
            (self.see)(place, &format!("{whole} with {one} has: {list}"));
        }
    }

    fn header(&mut self) {
        let data = self.elf.data;
        let flags = number(data, 48, 4);
        let note = self.elf.section_name(flags >> 24);
        let (ident, machine, version) = (&data[4..16], number(data, 18, 2), number(data, 20, 4));
        let (entry, sizes) = (number(data, 24, 8), [52, 54, 58].map(|at| number(data, at, 2)));
        let kind = self.kind;
        self.say(&format!(
            "header of {kind} ident {ident:02x?} machine {machine} version {version} entry {entry:#x} sizes {sizes:?} note {note}"
        ));
        self.say_of_target(&format!("flags of {kind} {:#04x}", flags & 0xff));
    }

    /// What `sh_info` names.
    fn info(&self, s: &Section) -> String {
        if s.name.starts_with(".text.") {
            let symbol = self.elf.symbols.get((s.info & 0xff_ffff) as usize);
            let own = symbol.is_some_and(|y| Some(y.name.as_str()) == owner(&s.name));
            return if own { "its symbol" } else { "another symbol" }.into();
        }
        if s.flags & INFO_LINK == 0 {
            return if s.name == ".symtab" { "-".into() } else { s.info.to_string() };
        }
        let of = self.elf.section_name(s.info.into());
        match (owner(&s.name), owner(of)) {
            (Some(a), Some(b)) if a == b => format!("its {}", class(of)),
            (Some(_), _) => "another".into(),
            (None, _) => class(of),
        }
    }

    fn sections(&mut self) {
        let elf = self.elf;
        let segments = Segment::all(elf);
        for s in elf.sections.iter().skip(1).filter(|s| !is_compilers(&s.name)) {
            let name = class(&s.name);
            let free = OF_VARIABLES.contains(&name.as_str()) && s.align.is_power_of_two();
            let align = if free { "any".into() } else { s.align.to_string() };
            let size =
                if FIXED.contains(&name.as_str()) { format!(" size {:#x}", s.size) } else { String::new() };
            let at = if s.offset % s.align.max(1) == 0 { "" } else { " not aligned" };
            let link = elf.section_name(s.link.into());
            let (kind, info) = (self.kind, self.info(s));
            let text = format!(
                "section {name} of {kind} type {:#x} flags {:#x} align {align} entry {}{size} link {link} info {info}{at}",
                s.ty, s.flags, s.entsize
            );
            if size.is_empty() {
                self.say(&text)
            } else {
                self.say_of_target(&text)
            }
            if s.flags & ALLOC != 0 && (s.size != 0 || !s.is_nobits()) {
                let holders: Vec<&str> =
                    segments.iter().filter(|g| g.holds(s)).map(|g| g.letters.as_str()).collect();
                if s.size != 0 {
                    self.say(&format!("segments of {name} of {kind} {}", holders.join(" ")));
                }
            }
            if let Some((of, n)) = self.measure(s, &name) {
                self.say(&format!("size of {name} of {kind} beyond {of} {n}"));
            }
        }
        for g in &segments {
            let (kind, letters) = (self.kind, &g.letters);
            self.say(&format!(
                "segment of {kind} type {} {letters} align {} address {:#x}",
                g.ty, g.align, g.address
            ));
        }
    }

    /// The size of a section beyond what it holds.
    fn measure(&self, s: &Section, name: &str) -> Option<(&'static str, String)> {
        let elf = self.elf;
        let number_of = |s: &Section| elf.sections.iter().position(|o| std::ptr::eq(o, s)).unwrap_or(0);
        let here = number_of(s);
        let inside = |y: &&Symbol| usize::from(y.section) == here && !y.is_section();
        Some(match name {
            ".nv.constant0.*" => {
                let kernel = self.file.image.kernels.get(owner(&s.name)?)?;
                ("the parameters", beyond(s.size, u64::from(kernel.params.0) + u64::from(kernel.params.1)))
            }
            ".nv.global" | ".nv.global.init" | ".nv.constant3" => {
                let ends = elf.symbols.iter().filter(inside).map(|y| y.value.saturating_add(y.size));
                ("the variables", beyond(s.size, ends.max().unwrap_or(0)))
            }
            ".nv.shared.*" if self.kind == "object" => {
                let ends = elf.symbols.iter().filter(inside).map(|y| y.value.saturating_add(y.size));
                ("the variables", beyond(s.size, ends.max().unwrap_or(0)))
            }
            // What the system has of each block's shared memory counts.
            ".nv.shared.*" if self.file.target.sm >= 90 => {
                ("what is reserved, or less", i64::from(s.size < 0x400).to_string())
            }
            ".nv.constant4" => {
                let relocations =
                    elf.sections.iter().filter(|r| r.name.ends_with(".nv.constant4") && r.name != s.name);
                let count: u64 = relocations.filter_map(|r| r.size.checked_div(r.entsize)).sum();
                ("its addresses", beyond(s.size, 8 * count))
            }
            ".text.*" => {
                let of = owner(&s.name)?;
                let own = elf.symbols.iter().find(|y| y.name == of && inside(y))?;
                ("its symbol", format!("{} at {:#x}", beyond(s.size, own.size), own.value))
            }
            ".symtab" => {
                let locals = elf.symbols.iter().rposition(|y| y.info >> 4 == 0).map_or(0, |n| n as u64 + 1);
                ("its entries", format!("{} locals {}", s.size % 24, beyond(s.info.into(), locals)))
            }
            ".nv.callgraph" => ("pairs", (s.size % 8).to_string()),
            _ if s.name.starts_with(".rel") => ("entries", s.size.checked_rem(s.entsize)?.to_string()),
            _ => return None,
        })
    }

    /// A symbol without names of the program's own.
    fn symbol(&self, y: &Symbol) -> String {
        let section = self.elf.section_name(y.section.into());
        match y.info & 0xf {
            3 => format!("of_{}", class(section)),
            _ if is_systems(&y.name) => y.name.clone(),
            // What the driver has: of a family, one function for each kind of texture.
            _ if y.section == UNDEFINED && y.name.starts_with("__cuda_syscall_") => {
                "undefined_syscall".into()
            }
            _ if y.section == UNDEFINED && self.kind == "object" => "undefined".into(),
            _ if y.section == UNDEFINED => format!("undefined_{}", y.name),
            2 if y.other & ENTRY != 0 => "kernel".into(),
            2 if part(&y.name) != y.name => "part".into(),
            2 => "function".into(),
            _ if y.name.is_empty() => "nameless".into(),
            _ => "variable".into(),
        }
    }

    fn symbols(&mut self) {
        let elf = self.elf;
        for y in elf.symbols.iter().skip(1) {
            let section = elf.section_name(y.section.into());
            if is_compilers(section) {
                continue;
            }
            let what = self.symbol(y);
            let holder = match y.section {
                UNDEFINED => "nothing".into(),
                COMMON => "common".into(),
                _ => class(section),
            };
            let size = elf.sections.get(usize::from(y.section)).map_or(0, |s| s.size);
            let place = match what.as_str() {
                "kernel" | "function" | "part" | "variable" | "undefined" => {
                    let fits = y.section == UNDEFINED
                        || y.section == COMMON
                        || y.value.saturating_add(y.size) <= size;
                    if fits { String::new() } else { " not inside".into() }
                }
                _ => format!(" value {:#x} size {}", y.value, y.size),
            };
            let (bind, ty) = (y.info >> 4, y.info & 0xf);
            let text = format!(
                "symbol {what} of {} bind {bind} type {ty} other {:#x} in {holder}{place}",
                self.kind, y.other
            );
            if is_systems(&y.name) { self.say_of_target(&text) } else { self.say(&text) }
        }
    }

    fn relocations(&mut self) {
        let elf = self.elf;
        for s in elf.sections.iter().filter(|s| matches!(s.ty, 4 | 9) && !is_compilers(&s.name)) {
            let step = if s.ty == 4 { 24 } else { 16 };
            for entry in elf.bytes(s).chunks_exact(step) {
                let info = number(entry, 8, 8);
                let symbol = elf.symbols.get((info >> 32) as usize).map_or("?".into(), |y| self.symbol(y));
                let (name, kind) = (class(&s.name), self.kind);
                self.say(&format!("relocation in {name} of {kind} {} of {symbol}", info & 0xffff_ffff));
            }
        }
    }

    fn records(&mut self) {
        let elf = self.elf;
        for s in elf.sections.iter().filter(|s| s.ty == NV_COMPAT) {
            let all = split(elf.bytes(s)).into_iter().filter(|r| r.1 != OF_CAPSULES);
            for (format, code, value) in all {
                self.say_of_target(&format!("compat {code} format {format} {value:02x?}"));
            }
        }
    }

    /// Which classes come first.
    fn order(&mut self, what: &str, place: Place, names: impl Iterator<Item = String>) {
        let mut seen: Vec<String> = Vec::new();
        for name in names {
            if !seen.contains(&name) {
                for first in &seen {
                    (self.see)(place, &format!("order of {what} {first} {name}"));
                }
                seen.push(name);
            }
        }
    }

    fn whole(&mut self) {
        let elf = self.elf;
        let listed = || elf.sections.iter().skip(1).filter(|s| !is_compilers(&s.name));
        let mut there: BTreeSet<String> = listed().map(|s| format!("section/{}", class(&s.name))).collect();
        for y in elf.symbols.iter().skip(1) {
            let what = self.symbol(y);
            // Which parts of instructions are functions is each compiler's own.
            if !is_compilers(elf.section_name(y.section.into())) && what != "part" && what != "function" {
                there.insert(format!("symbol/{what}"));
            }
        }
        for s in listed().filter(|s| s.ty == NV_COMPAT) {
            let codes = split(elf.bytes(s)).into_iter().map(|r| r.1).filter(|c| *c != OF_CAPSULES);
            there.extend(codes.map(|c| format!("compat/{c}")));
        }
        // The symbol of a section is there with the section.
        let mut with: BTreeSet<String> =
            there.iter().filter(|t| !t.starts_with("symbol/of_")).cloned().collect();
        for k in 0..self.file.kernels.len() {
            let uses = self.uses(k);
            let name = self.file.kernels[k].name.clone();
            let image = &self.file.image.kernels[&name];
            let codes: Vec<String> =
                image.attributes.iter().map(|(c, _)| format!("attribute/{c:#04x}")).collect();
            let whole = format!("{} of {}", if image.entry { "kernel" } else { "function" }, self.kind);
            let own: BTreeSet<String> = listed()
                .filter(|s| owner(&s.name) == Some(&name))
                .map(|s| format!("section/{}", class(&s.name)))
                .collect();
            let mut marks = own.clone();
            marks.extend(codes.iter().cloned());
            marks.extend(uses.iter().cloned());
            self.order("attributes", Place::kernel(k), codes.iter().cloned());
            self.together(Place::kernel(k), &whole, &marks, &own);
            with.extend(codes);
            with.extend(uses);
        }
        let kind = self.kind;
        self.order(&format!("sections of {kind}"), Place::FILE, listed().map(|s| class(&s.name)));
        self.together(Place::FILE, kind, &with, &there);
    }

    /// What of a kernel's code may have to do with sections and symbols.
    fn uses(&self, kernel: usize) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        for inst in self.file.kernels[kernel].items.iter().filter_map(|i| i.inst()) {
            let name = inst.op.name();
            if TELLING.iter().any(|t| name.starts_with(t)) {
                out.insert(format!("op/{name}"));
            }
            if let MemoryEffects::Accesses(all) = inst.op.info().accesses {
                let shared = all.iter().any(|a| a.space == MemorySpace::Shared);
                out.extend(shared.then(|| "op/shared".to_string()));
            }
            for o in &inst.operands {
                if let Operand::Const { bank: ConstBank::Index(bank), .. } = o {
                    out.insert(format!("op/bank{bank}"));
                }
            }
        }
        out
    }
}

/// A program header.
struct Segment {
    ty: u64,
    letters: String,
    align: u64,
    address: u64,
    offset: u64,
    in_file: u64,
    in_memory: u64,
}

impl Segment {
    fn all(elf: &Elf<'_>) -> Vec<Segment> {
        let (table, count) = (number(elf.data, 32, 8) as usize, number(elf.data, 56, 2) as usize);
        let at = |i: usize, field: usize, bytes: usize| number(elf.data, table + 56 * i + field, bytes);
        let letters = |flags: u64| {
            [(4, 'R'), (2, 'W'), (1, 'X')].iter().filter(|(bit, _)| flags & bit != 0).map(|l| l.1).collect()
        };
        (0..count)
            .map(|i| Segment {
                ty: at(i, 0, 4),
                letters: letters(at(i, 4, 4)),
                offset: at(i, 8, 8),
                address: at(i, 16, 8),
                in_file: at(i, 32, 8),
                in_memory: at(i, 40, 8),
                align: at(i, 48, 8),
            })
            .collect()
    }
    /// Whether it has the section: its bytes, or the room for it behind the bytes.
    fn holds(&self, s: &Section) -> bool {
        let end = self.offset.saturating_add(self.in_file);
        if s.is_nobits() {
            let room = self.in_memory.saturating_sub(self.in_file);
            return (self.offset..=end).contains(&s.offset) && room >= s.size;
        }
        self.offset <= s.offset && s.offset.saturating_add(s.size) <= end
    }
}

impl Rule for Format {
    fn name(&self) -> &'static str {
        "format"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/format.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        let kind = match number(file.bytes, 16, 2) {
            1 => "object",
            2 => "executable",
            _ => "other",
        };
        let Ok(elf) = Elf::new(file.bytes) else {
            see(Place::FILE, &format!("sm_{} headers that can't be read", file.target.sm));
            return;
        };
        let mut seer = Seer { elf: &elf, file, kind, see };
        seer.header();
        seer.sections();
        seer.symbols();
        seer.relocations();
        seer.records();
        seer.whole();
    }
    fn digest(&self, counts: Counts) -> Counts {
        let counts = always::digest(counts);
        let always: HashSet<(Family, String)> =
            counts.0.keys().filter(|(_, t)| t.contains(" has always ")).cloned().collect();
        let mut targets: HashMap<Family, BTreeSet<String>> = HashMap::new();
        let mut of: BTreeMap<(Family, String), (BTreeSet<String>, u64)> = BTreeMap::new();
        let mut kept = Counts::default();
        for ((family, text), n) in counts.0 {
            if let Some((whole, one)) = text.split_once(" has always ") {
                // What every file has needs not be said of some.
                let wider =
                    whole.split_once(" with ").map(|w| w.0).or_else(|| split_target(whole).map(|w| w.1));
                let said = wider.is_some_and(|w| always.contains(&(family, format!("{w} has always {one}"))));
                if !said && !whole.ends_with(&format!(" with {one}")) {
                    kept.add(family, &text, n);
                }
                continue;
            }
            let Some((target, rest)) = split_target(&text) else {
                kept.add(family, &text, n);
                continue;
            };
            targets.entry(family).or_default().insert(target.into());
            let entry = of.entry((family, rest.into())).or_default();
            entry.0.insert(target.into());
            entry.1 += n;
        }
        for ((family, rest), (seen, n)) in of {
            if seen == targets[&family] {
                kept.add(family, &format!("all {rest}"), n);
            } else {
                seen.iter().for_each(|target| kept.add(family, &format!("{target} {rest}"), n));
            }
        }
        kept
    }
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        always::extend(table, family, observation, times);
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        let rows = Family::all().flat_map(|f| table.of(f).map(move |r| (f, r.0.to_string()))).collect();
        Box::new(Known { rows, always: Always::new(table) })
    }
}

/// The target that an observation begins with, and the rest.
fn split_target(text: &str) -> Option<(&str, &str)> {
    text.split_once(' ').filter(|(first, _)| first.starts_with("sm_"))
}

struct Known {
    rows: HashSet<(Family, String)>,
    always: Always,
}

impl Judge for Known {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        if observation.contains(": ") || observation.ends_with(':') {
            return self.always.judge(family, observation);
        }
        let has = |text: String| self.rows.contains(&(family, text));
        if observation.starts_with("order of ") {
            let mut words = observation.rsplitn(3, ' ');
            let (second, first, what) = (words.next()?, words.next()?, words.next()?);
            let turned = format!("{what} {second} {first}");
            return (!has(observation.to_string()) && has(turned))
                .then(|| format!("{what} {first} before {second}; it is always the other way round"));
        }
        let rest = split_target(observation).map(|s| s.1).or_else(|| observation.strip_prefix("all "))?;
        if has(observation.to_string()) || has(format!("all {rest}")) {
            return None;
        }
        let about = |text: &str| text.split(' ').take(4).collect::<Vec<_>>().join(" ");
        let wanted = about(rest);
        let mut like: Vec<&str> = self
            .rows
            .iter()
            .filter(|(f, _)| *f == family)
            .filter_map(|(_, text)| text.split_once(' ').map(|t| t.1))
            .filter(|text| about(text) == wanted)
            .collect();
        like.sort_unstable();
        like.dedup();
        like.truncate(4);
        Some(if like.is_empty() { rest.into() } else { format!("{rest}; seen: {}", like.join(" | ")) })
    }
}
