//! Sections of debug information that the PTX brings: copied into the file, what they name being resolved or left to the
//! linker as by ptxas 13.0.88 -g (docs/cubin.md).

use crate::debug::Unit;
use cubin::lines::Copied;
use cubin::object::{Fill, Reloc};
use ptx::ast::{Place, PlaceOf};
use ptx::{FuncId, LineIndex, Module, Space, Stmt, Symbol, VarId};
use rustc_hash::FxHashMap;
use sass::Target;

/// Sections that the file makes itself.
const OWN: &[&str] = &[".debug_line", ".debug_frame", ".debug_str", ".shstrtab", ".strtab", ".symtab"];
/// How the names of those begin that are not for debuggers.
const NOT_FOR_DEBUGGERS: &[&str] = &[".nv", ".text", ".rel", ".note"];
const ABBREVIATIONS: &str = ".debug_abbrev";
const INFORMATION: &str = ".debug_info";

/// Operations of location expressions.
mod op {
    pub(super) const ADDR: u8 = 0x03;
    pub(super) const FBREG: u8 = 0x91;
    pub(super) const NOP: u8 = 0x96;
}

/// What a module lacks that `-g` looks for: the sections.
pub(crate) fn missing(module: &Module) -> impl Iterator<Item = &'static str> {
    let has = |name: &str| module.sections.iter().any(|s| s.name == name);
    let (abbreviations, information) = (has(ABBREVIATIONS), has(INFORMATION));
    [(ABBREVIATIONS, abbreviations), (INFORMATION, information)]
        .into_iter()
        .filter(|(_, there)| !there)
        .map(|(name, _)| name)
}

/// What a field holds.
enum Value {
    /// A number.
    Plain(u64),
    /// An address.
    Address(Fill, String, i64),
    /// A variable so many bytes above the frame address of its function.
    Frame(i64),
    /// Nothing that can be said.
    Unknown,
}

/// What sections may name.
pub(crate) struct Names<'a> {
    module: &'a Module,
    layout: &'a lower::ModuleLayout,
    units: &'a [Unit<'a>],
    target: Target,
    relocatable: bool,
    /// Labels of sections: the section, and the offset in it.
    in_sections: FxHashMap<&'a str, (&'a str, u64)>,
    /// Labels and names of functions that have code: the unit, and the offset in its code.
    code: FxHashMap<&'a str, (usize, u32)>,
    /// Variables, and whose they are.
    variables: FxHashMap<&'a str, (VarId, Option<FuncId>)>,
}

/// The offset of each label of a function: that of the first instruction behind it.
fn labels<'a>(
    module: &'a Module,
    lines: &LineIndex,
    unit: &Unit<'_>,
    part: &crate::debug::Part,
) -> Vec<(&'a str, u32)> {
    let Some(body) = &module.funcs[part.func].body else { return Vec::new() };
    let mut first: FxHashMap<u32, u32> = FxHashMap::default();
    for (at, line) in unit.code.lines.iter().filter(|(at, _)| (part.start..part.end).contains(at)) {
        let lowest = first.entry(*line).or_insert(*at);
        *lowest = (*lowest).min(*at);
    }
    // What stands before all instructions is where the prologue is.
    let prologue = body.stmts.iter().take_while(|s| !matches!(s, Stmt::Inst(_))).count();
    let mut next = part.end;
    let mut out = Vec::new();
    for (k, stmt) in body.stmts.iter().enumerate().rev() {
        match stmt {
            Stmt::Inst(i) => next = first.get(&lines.line(i.span.start)).copied().unwrap_or(next),
            Stmt::Label(l) => {
                let at = if k < prologue { part.start } else { next };
                out.push((body.labels[*l].name.as_str(), at));
            }
            _ => {}
        }
    }
    out
}

impl<'a> Names<'a> {
    pub(crate) fn new(
        module: &'a Module,
        layout: &'a lower::ModuleLayout,
        lines: &LineIndex,
        units: &'a [Unit<'a>],
        (target, relocatable): (Target, bool),
    ) -> Names<'a> {
        let mut in_sections = FxHashMap::default();
        let mut sizes: FxHashMap<&str, u64> = FxHashMap::default();
        for s in &module.sections {
            let base = sizes.entry(&s.name).or_default();
            in_sections.extend(
                s.labels.iter().map(|(l, at)| (l.as_str(), (s.name.as_str(), *base + u64::from(*at)))),
            );
            *base += s.bytes.len() as u64;
        }
        let mut code = FxHashMap::default();
        for (n, unit) in units.iter().enumerate() {
            // A function of several kernels is looked for in the first.
            for part in &unit.parts {
                let own = (module.funcs[part.func].name.as_str(), part.start);
                for (name, at) in labels(module, lines, unit, part).into_iter().chain([own]) {
                    code.entry(name).or_insert((n, at));
                }
            }
        }
        let mut variables = FxHashMap::default();
        let owned = module.funcs.iter().flat_map(|(id, f)| {
            let own = f.params.iter().chain(f.body.iter().flat_map(|b| &b.vars));
            own.map(move |v| (*v, Some(id)))
        });
        let owned: FxHashMap<VarId, Option<FuncId>> = owned.collect();
        for (id, var) in &module.vars {
            let owner = owned.get(&id).copied().flatten();
            variables.entry(var.name.as_str()).or_insert((id, owner));
        }
        Names { module, layout, units, target, relocatable, in_sections, code, variables }
    }

    fn modern(&self) -> bool {
        self.target.sm >= 90
    }

    /// An offset in a section.
    fn in_section(&self, section: &str, offset: u64) -> Value {
        match self.relocatable {
            true => Value::Address(Fill::InSection, section.to_string(), offset as i64),
            false => Value::Plain(offset),
        }
    }

    fn variable(&self, id: VarId, owner: Option<FuncId>, plus: u64) -> Value {
        let var = &self.module.vars[id];
        let symbol = || self.layout.symbol_name(self.module, Symbol::Var(id));
        let mut units = self.units.iter();
        let mut holders = self.units.iter().flat_map(|u| u.parts.iter().map(move |p| (u, p)));
        match var.space {
            Space::Global => Value::Address(Fill::Offset, symbol(), plus as i64),
            Space::Const => Value::Address(Fill::Generic, symbol(), plus as i64),
            Space::Shared if self.relocatable => {
                let reserved = if self.modern() { lower::layout::RESERVED_SHARED } else { 0 };
                Value::Address(Fill::Offset, symbol(), i64::from(reserved) + plus as i64)
            }
            Space::Shared => {
                let at = units.find_map(|u| self.layout.shared_offset(u.parts.first()?.func, id));
                at.map_or(Value::Unknown, |at| Value::Plain(u64::from(at) + plus))
            }
            Space::Param => {
                let Some(func) = owner.map(|f| &self.module.funcs[f]).filter(|f| f.entry) else {
                    return Value::Unknown;
                };
                let (offsets, _) = self.module.param_layout(func);
                let at = func.params.iter().zip(&offsets).find(|(v, _)| **v == id).map(|(_, at)| *at);
                let base = u64::from(lower::layout::param_base(self.module, func, self.target));
                at.map_or(Value::Unknown, |at| Value::Plain(base + u64::from(at) + plus))
            }
            Space::Local => {
                let Some((_, part)) = holders.find(|(_, p)| Some(p.func) == owner) else {
                    return Value::Plain(0);
                };
                let at = part.locals.iter().find(|(name, _)| **name == *var.name).map(|(_, at)| *at);
                match (at, part.frame.size()) {
                    (Some(at), Some(size)) => Value::Frame(i64::from(at) - i64::from(size) + plus as i64),
                    _ => Value::Unknown,
                }
            }
            _ => Value::Unknown,
        }
    }

    fn value(&self, place: &Place) -> Value {
        let plus = place.plus;
        match &place.of {
            PlaceOf::Section(name) => self.in_section(name, plus),
            PlaceOf::Distance(a, b) => {
                let code = self.code.get(a.as_str()).zip(self.code.get(b.as_str()));
                let data = self.in_sections.get(a.as_str()).zip(self.in_sections.get(b.as_str()));
                Value::Plain(match (code, data) {
                    (Some((a, b)), _) if a.0 == b.0 => i64::from(a.1).wrapping_sub(b.1.into()) as u64,
                    (_, Some((a, b))) if a.0 == b.0 => a.1.wrapping_sub(b.1),
                    _ => 0,
                })
            }
            PlaceOf::Name(name) => {
                if let Some((section, at)) = self.in_sections.get(name.as_str()) {
                    return self.in_section(section, at + plus);
                }
                if let Some((unit, at)) = self.code.get(name.as_str()) {
                    let symbol = self.units[*unit].name.to_string();
                    return Value::Address(Fill::Offset, symbol, i64::from(*at) + plus as i64);
                }
                match self.variables.get(name.as_str()) {
                    Some((id, owner)) => self.variable(*id, *owner, plus),
                    // Of a function that is not in the file: it has no code.
                    None => Value::Plain(0),
                }
            }
        }
    }
}

/// A signed number in LEB128.
fn signed(mut n: i64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        if (n == 0 && byte & 0x40 == 0) || (n == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

/// The sections as the file has them, the abbreviations first. `known` says whether the file has a symbol.
pub(crate) fn copied(names: &Names<'_>, known: impl Fn(&str) -> bool) -> Vec<Copied> {
    let module = names.module;
    let abbreviated = module.sections.iter().any(|s| s.name == ABBREVIATIONS);
    let wanted = |name: &str| {
        !OWN.contains(&name)
            && !NOT_FOR_DEBUGGERS.iter().any(|p| name.starts_with(p))
            && (abbreviated || name != INFORMATION)
    };
    let mut out: Vec<Copied> = Vec::new();
    let first = |s: &&ptx::ast::Section| s.name == ABBREVIATIONS;
    let (front, rest): (Vec<_>, Vec<_>) = module.sections.iter().partition(first);
    let sections: Vec<_> = front.into_iter().chain(rest).filter(|s| wanted(&s.name)).collect();
    let exists =
        |symbol: &str| known(symbol) || symbol == ".debug_line" || sections.iter().any(|s| s.name == symbol);
    for s in &sections {
        let at = out.iter().position(|c| c.name == s.name).unwrap_or(out.len());
        if at == out.len() {
            out.push(Copied { name: s.name.clone(), ..Copied::default() });
        }
        let copy = &mut out[at];
        let base = copy.bytes.len();
        copy.bytes.extend(&s.bytes);
        for place in &s.places {
            let at = base + place.offset as usize;
            let size = usize::from(place.size);
            let field = at..at + size;
            // An operand of DW_OP_addr, which can be replaced with it.
            let address = at > base && size == 8 && copy.bytes[at - 1] == op::ADDR;
            let number = match names.value(place) {
                Value::Plain(n) => n,
                Value::Address(fill, symbol, addend) if exists(&symbol) => {
                    let fill = if size == 4 {
                        Fill::InSection
                    } else if fill == Fill::InSection {
                        Fill::Offset
                    } else {
                        fill
                    };
                    copy.relocs.push(Reloc { offset: at as u64, fill, symbol, addend });
                    addend as u64
                }
                Value::Address(..) => 0,
                value @ (Value::Frame(_) | Value::Unknown) => {
                    if address {
                        let mut bytes = match value {
                            Value::Frame(n) => [vec![op::FBREG], signed(n)].concat(),
                            _ => Vec::new(),
                        };
                        bytes.resize(9, op::NOP);
                        copy.bytes[at - 1..at + 8].copy_from_slice(&bytes);
                    }
                    continue;
                }
            };
            copy.bytes[field].copy_from_slice(&number.to_le_bytes()[..size]);
        }
    }
    out
}
