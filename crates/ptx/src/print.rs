//! Prints a module as canonical PTX: blocks flattened (names that clash are numbered), prototypes and
//! variables before code, constants in hexadecimal. What is printed parses to the same module.

use crate::ast::{
    AddrBase, Body, Func, FuncAttrs, Init, Inst, Item, LabelId, Linkage, Loc, Module, Operand, RegId,
    Section, SourceFile, Space, Stmt, Symbol, Uuid, Var, VarId, VectorElem,
};
use crate::isa::TypeClass;
use cranelift_entity::PrimaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::{self, Display, Formatter, Write as _};

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, ".version {}.{}", self.version.0, self.version.1)?;
        writeln!(f, ".target {}", self.targets.join(", "))?;
        writeln!(f, ".address_size {}\n", self.address_size)?;
        for SourceFile { index, name, modified, size } in &self.files {
            write!(f, ".file {index} \"{name}\"")?;
            if (*modified, *size) != (0, 0) {
                write!(f, ", {modified}, {size}")?;
            }
            writeln!(f)?;
        }
        for p in &self.pragmas {
            writeln!(f, ".pragma \"{p}\";")?;
        }
        let funcs = || {
            self.items.iter().filter_map(|i| match i {
                Item::Func(id) => Some(&self.funcs[*id]),
                Item::Var(_) => None,
            })
        };
        let names = self.items.iter().map(|item| match item {
            Item::Var(v) => self.vars[*v].name.as_str(),
            Item::Func(f) => self.funcs[*f].name.as_str(),
        });
        let names: FxHashSet<&str> = names.collect();
        let mut out = String::new();
        for func in funcs().filter(|func| !func.entry) {
            self.header(&mut out, func);
            out.push_str(";\n");
        }
        for item in &self.items {
            if let Item::Var(v) = item {
                self.variable(&mut out, &self.vars[*v], &self.vars[*v].name);
                out.push_str(";\n");
            }
        }
        f.write_str(&out)?;
        for entry in [false, true] {
            for func in funcs().filter(|func| func.entry == entry) {
                if let Some(body) = &func.body {
                    let mut out = String::from("\n");
                    self.header(&mut out, func);
                    out.push_str("\n{\n");
                    Printer::new(self, &names, func, body).body(&mut out, body);
                    out.push_str("}\n");
                    f.write_str(&out)?;
                }
            }
        }
        for (alias, function, _) in &self.aliases {
            writeln!(f, ".alias {}, {};", self.funcs[*alias].name, self.funcs[*function].name)?;
        }
        for Section { name, text, .. } in &self.sections {
            writeln!(f, "\n.section {name}\n{{{text}}}")?;
        }
        Ok(())
    }
}

fn linkage(l: Linkage) -> &'static str {
    match l {
        Linkage::Internal => "",
        Linkage::Visible => ".visible ",
        Linkage::Extern => ".extern ",
        Linkage::Weak => ".weak ",
        Linkage::Common => ".common ",
    }
}

fn space(s: Space) -> &'static str {
    match s {
        Space::Reg => "reg",
        Space::Global => "global",
        Space::Const => "const",
        Space::Shared => "shared",
        Space::Local => "local",
        Space::Param => "param",
    }
}

/// Constants whose spelling says the type.
fn number(bits: u64) -> String {
    (bits as i64).to_string()
}

impl Module {
    fn symbol(&self, s: Symbol) -> &str {
        match s {
            Symbol::Var(v) => &self.vars[v].name,
            Symbol::Func(f) => &self.funcs[f].name,
        }
    }

    fn variable(&self, out: &mut String, var: &Var, name: &str) {
        let _ = write!(out, "{}.{} ", linkage(var.linkage), space(var.space));
        if var.managed {
            out.push_str(".attribute(.managed) ");
        }
        unified(out, var.unified);
        let natural = var.ty.bytes() * u32::from(var.vector);
        if var.space != Space::Reg && var.align != natural {
            let _ = write!(out, ".align {} ", var.align);
        }
        if var.vector > 1 {
            let _ = write!(out, ".v{} ", var.vector);
        }
        let _ = match var.opaque {
            Some(kind) => write!(out, ".{}", kind.name()),
            None => write!(out, "{}", var.ty),
        };
        if let Some((pointee, align)) = var.ptr {
            out.push_str(" .ptr");
            if let Some(s) = pointee {
                let _ = write!(out, " .{}", space(s));
            }
            let _ = write!(out, " .align {align}");
        }
        let _ = write!(out, " {}", if name.is_empty() { "_" } else { name });
        for d in &var.dims {
            if *d == 0 {
                out.push_str("[]");
            } else {
                let _ = write!(out, "[{d}]");
            }
        }
        if let Some(init) = &var.init {
            out.push_str(" = ");
            let mut dims = var.dims.to_vec();
            if var.vector > 1 {
                dims.push(u64::from(var.vector));
            }
            let mut at = 0;
            if var.opaque.is_some() {
                return opaque_initializer(out, init, !dims.is_empty());
            }
            self.initializer(out, var, init, &dims, &mut at);
        }
    }

    fn initializer(&self, out: &mut String, var: &Var, init: &Init, dims: &[u64], at: &mut u64) {
        let size = u64::from(var.ty.bytes());
        if let Some((n, rest)) = dims.split_first() {
            out.push('{');
            for i in 0..*n {
                // The rest is zero.
                if *at >= init.bytes.len() as u64 {
                    *at += (n - i) * rest.iter().product::<u64>() * size;
                    break;
                }
                if i > 0 {
                    out.push_str(", ");
                }
                self.initializer(out, var, init, rest, at);
            }
            out.push('}');
            return;
        }
        let reloc = init.relocs.iter().find(|r| r.offset == *at);
        let mut bits = [0; 8];
        for (i, b) in bits.iter_mut().enumerate().take(size as usize) {
            *b = init.bytes.get(*at as usize + i).copied().unwrap_or(0);
        }
        let bits = u64::from_le_bytes(bits);
        *at += size;
        let _ = match reloc {
            Some(r) => {
                let name = self.symbol(r.symbol);
                if let Some(byte) = r.byte {
                    let _ = write!(out, "{:#x}(", 0xffu64 << (8 * byte));
                }
                let _ = if r.generic { write!(out, "generic({name})") } else { write!(out, "{name}") };
                if r.addend != 0 {
                    let _ = write!(out, "+{}", r.addend);
                }
                if r.byte.is_some() { write!(out, ")") } else { Ok(()) }
            }
            None if var.ty.class() == TypeClass::Float && size == 4 => write!(out, "0f{bits:08X}"),
            None if var.ty.class() == TypeClass::Float && size == 8 => write!(out, "0d{bits:016X}"),
            None => write!(out, "{bits}"),
        };
    }

    fn params(&self, out: &mut String, params: &[VarId]) {
        out.push('(');
        for (i, p) in params.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            self.variable(out, &self.vars[*p], &self.vars[*p].name);
        }
        out.push(')');
    }

    fn header(&self, out: &mut String, func: &Func) {
        out.push_str(linkage(func.linkage));
        out.push_str(if func.entry { ".entry " } else { ".func " });
        unified(out, func.attrs.unified);
        if !func.returns.is_empty() {
            self.params(out, &func.returns);
            out.push(' ');
        }
        out.push_str(&func.name);
        self.params(out, &func.params);
        attributes(out, &func.attrs);
    }
}

fn unified(out: &mut String, uuid: Option<Uuid>) {
    if let Some([a, b]) = uuid {
        let _ = write!(out, ".attribute(.unified({a}, {b})) ");
    }
}

/// `{field = value, …}` of each element.
fn opaque_initializer(out: &mut String, init: &Init, array: bool) {
    let elements: Vec<String> = init
        .fields
        .iter()
        .map(|fields| {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            format!("{{{}}}", fields.join(", "))
        })
        .collect();
    let elements = elements.join(", ");
    let _ = if array { write!(out, "{{{elements}}}") } else { write!(out, "{elements}") };
}

fn attributes(out: &mut String, a: &FuncAttrs) {
    let triples =
        [("maxntid", a.maxntid), ("reqntid", a.reqntid), ("reqnctapercluster", a.reqnctapercluster)];
    for (name, value) in triples {
        if let Some([x, y, z]) = value {
            let _ = write!(out, "\n.{name} {x}, {y}, {z}");
        }
    }
    let numbers = [
        ("minnctapersm", a.minnctapersm),
        ("maxnctapersm", a.maxnctapersm),
        ("maxnreg", a.maxnreg),
        ("maxclusterrank", a.maxclusterrank),
        ("abi_preserve", a.abi_preserve),
        ("abi_preserve_control", a.abi_preserve_control),
    ];
    for (name, value) in numbers {
        if let Some(n) = value {
            let _ = write!(out, "\n.{name} {n}");
        }
    }
    let flags = [
        ("noreturn", a.noreturn),
        ("explicitcluster", a.explicit_cluster),
        ("blocksareclusters", a.blocks_are_clusters),
    ];
    for (name, value) in flags {
        if value {
            let _ = write!(out, "\n.{name}");
        }
    }
    for p in &a.pragmas {
        let _ = write!(out, "\n.pragma \"{p}\";");
    }
}

/// Names in a body, made distinct.
struct Printer<'m> {
    module: &'m Module,
    regs: PrimaryMap<RegId, String>,
    /// How many of them the header declares; they come first.
    header_regs: usize,
    labels: PrimaryMap<LabelId, String>,
    /// Of the variables that the body declares.
    vars: FxHashMap<VarId, String>,
}

/// A name that is neither one of the module's nor taken in the function; it is taken from now on.
fn distinct(module: &FxHashSet<&str>, taken: &mut FxHashSet<String>, name: &str) -> String {
    let mut candidate = name.to_string();
    let mut n = 0;
    while module.contains(&*candidate) || !taken.insert(candidate.clone()) {
        n += 1;
        candidate = format!("{name}_{n}");
    }
    candidate
}

impl<'m> Printer<'m> {
    /// `names` are those of the module's variables and functions.
    fn new(module: &'m Module, names: &FxHashSet<&str>, func: &Func, body: &Body) -> Printer<'m> {
        let mut taken: FxHashSet<String> = FxHashSet::default();
        // Register parameters come first among the registers; the header has their names.
        let header = func.params.iter().chain(&func.returns).map(|v| &module.vars[*v]);
        let in_regs = header.clone().filter(|v| v.space == Space::Reg).count();
        let mut p = Printer {
            module,
            regs: PrimaryMap::new(),
            header_regs: in_regs,
            labels: PrimaryMap::new(),
            vars: FxHashMap::default(),
        };
        taken.extend(header.map(|v| v.name.clone()));
        for (i, reg) in body.regs.values().enumerate() {
            let own = |taken| distinct(names, taken, &reg.name);
            p.regs.push(if i < in_regs { reg.name.to_string() } else { own(&mut taken) });
        }
        for v in &body.vars {
            p.vars.insert(*v, distinct(names, &mut taken, &module.vars[*v].name));
        }
        for l in body.labels.values() {
            p.labels.push(distinct(names, &mut taken, &l.name));
        }
        p
    }

    fn var(&self, v: VarId) -> &str {
        self.vars.get(&v).unwrap_or(&self.module.vars[v].name)
    }

    fn body(&self, out: &mut String, body: &Body) {
        self.registers(out, body);
        for v in &body.vars {
            out.push('\t');
            self.module.variable(out, &self.module.vars[*v], self.var(*v));
            out.push_str(";\n");
        }
        for stmt in &body.stmts {
            self.stmt(out, stmt);
        }
    }

    /// Declarations by type, in the order in which the types first come; those of parameters are in the
    /// header.
    fn registers(&self, out: &mut String, body: &Body) {
        let mut kinds = Vec::new();
        let all: Vec<_> = body.regs.iter().skip(self.header_regs).collect();
        for (_, reg) in &all {
            if !kinds.contains(&reg.ty) {
                kinds.push(reg.ty);
            }
        }
        for ty in kinds {
            let of_kind: Vec<&str> =
                all.iter().filter(|(_, reg)| reg.ty == ty).map(|(r, _)| self.regs[*r].as_str()).collect();
            for line in of_kind.chunks(16) {
                let _ = writeln!(out, "\t.reg {ty} {};", line.join(", "));
            }
        }
    }

    fn stmt(&self, out: &mut String, stmt: &Stmt) {
        let labels =
            |list: &[LabelId]| list.iter().map(|l| self.labels[*l].as_str()).collect::<Vec<_>>().join(", ");
        let _ = match stmt {
            Stmt::Label(l) => writeln!(out, "{}:", self.labels[*l]),
            Stmt::Inst(inst) => {
                self.inst(out, inst);
                Ok(())
            }
            Stmt::BranchTargets(l, list) => {
                writeln!(out, "{}: .branchtargets {};", self.labels[*l], labels(list))
            }
            Stmt::CallTargets(l, list) => {
                let names: Vec<&str> = list.iter().map(|f| self.module.funcs[*f].name.as_str()).collect();
                writeln!(out, "{}: .calltargets {};", self.labels[*l], names.join(", "))
            }
            Stmt::CallPrototype(l, f) => {
                let func = &self.module.funcs[*f];
                let _ = write!(out, "{}: .callprototype ", self.labels[*l]);
                self.module.params(out, &func.returns);
                out.push_str(" _ ");
                self.module.params(out, &func.params);
                attributes(out, &func.attrs);
                writeln!(out, ";")
            }
            Stmt::Loc(Loc { file, line, column, inlined }) => {
                let _ = write!(out, "\t.loc {file} {line} {column}");
                if let Some(i) = inlined {
                    let _ = write!(out, ", function_name {}", i.function);
                    if i.offset != 0 {
                        let _ = write!(out, "+{}", i.offset);
                    }
                    let _ = write!(out, ", inlined_at {} {} {}", i.file, i.line, i.column);
                }
                writeln!(out)
            }
            Stmt::Pragma(text) => writeln!(out, "\t.pragma \"{text}\";"),
        };
    }

    fn inst(&self, out: &mut String, inst: &Inst) {
        out.push('\t');
        if let Some((p, not)) = inst.guard {
            let _ = write!(out, "@{}{} ", if not { "!" } else { "" }, self.regs[p]);
        }
        out.push_str(inst.op.name());
        for m in &inst.mods {
            let _ = write!(out, ".{}", m.name());
        }
        for (i, o) in inst.operands.iter().enumerate() {
            out.push_str(if i == 0 { " " } else { ", " });
            if let Operand::Addr(a) = o
                && i < 16
                && inst.zeros >> i & 1 == 1
            {
                out.push('[');
                self.address(out, a);
                out.push_str("+0]");
            } else if inst.is_braced(i) {
                out.push('{');
                self.operand(out, o);
                out.push('}');
            } else {
                self.operand(out, o);
            }
        }
        out.push_str(";\n");
    }

    fn offset(out: &mut String, offset: i64) {
        if offset != 0 {
            let _ = write!(out, "+{offset}");
        }
    }

    fn operand(&self, out: &mut String, o: &Operand) {
        let pick = |r: &Option<RegId>| r.map_or("_", |r| self.regs[r].as_str());
        let _ = match o {
            Operand::Reg(r) => write!(out, "{}", self.regs[*r]),
            Operand::NotPred(r) => write!(out, "!{}", self.regs[*r]),
            Operand::NegReg(r) => write!(out, "-{}", self.regs[*r]),
            Operand::Int(n) => write!(out, "{}", number(*n)),
            Operand::F64(bits) => write!(out, "0d{bits:016X}"),
            Operand::F32(bits) => write!(out, "0f{bits:08X}"),
            Operand::Special(s, None) => write!(out, "{}", s.name()),
            Operand::Special(s, Some(c)) => write!(out, "{}.{}", s.name(), component(*c)),
            Operand::Var(v, offset) => {
                out.push_str(self.var(*v));
                Self::offset(out, *offset);
                Ok(())
            }
            Operand::Func(f) => write!(out, "{}", self.module.funcs[*f].name),
            Operand::Label(l) => write!(out, "{}", self.labels[*l]),
            Operand::Vector(elems) => {
                self.vector(out, elems);
                Ok(())
            }
            Operand::Resident(elems, p) => {
                self.vector(out, elems);
                write!(out, "|{}", self.regs[*p])
            }
            Operand::Part { reg, part } => write!(out, "{}.{part}", self.regs[*reg]),
            Operand::Addr(a) => {
                out.push('[');
                self.address(out, a);
                out.push(']');
                Ok(())
            }
            Operand::Bracket(list) => {
                out.push('[');
                for (i, o) in list.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    match o {
                        Operand::Addr(a) if i == 0 => self.address(out, a),
                        // Coordinates, even of one dimension.
                        Operand::Reg(r) if i + 1 == list.len() => {
                            let _ = write!(out, "{{{}}}", self.regs[*r]);
                        }
                        o => self.operand(out, o),
                    }
                }
                out.push(']');
                Ok(())
            }
            Operand::Pair(p, q) => write!(out, "{}|{}", pick(p), pick(q)),
            Operand::Sink => write!(out, "_"),
            Operand::List(list) => {
                out.push('(');
                for (i, o) in list.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    self.operand(out, o);
                }
                out.push(')');
                Ok(())
            }
        };
    }

    fn vector(&self, out: &mut String, elems: &[VectorElem]) {
        out.push('{');
        for (i, e) in elems.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            let _ = match e {
                VectorElem::Reg(r) => write!(out, "{}", self.regs[*r]),
                VectorElem::Int(n) => write!(out, "{}", number(*n)),
                VectorElem::F32(bits) => write!(out, "0f{bits:08X}"),
                VectorElem::F64(bits) => write!(out, "0d{bits:016X}"),
                VectorElem::Sink => write!(out, "_"),
            };
        }
        out.push('}');
    }

    fn address(&self, out: &mut String, a: &crate::ast::Addr) {
        match a.base {
            AddrBase::Reg(r) => out.push_str(&self.regs[r]),
            AddrBase::Var(v) => out.push_str(self.var(v)),
            AddrBase::Absolute => {
                let _ = write!(out, "{}", a.offset);
            }
        }
        if a.base != AddrBase::Absolute {
            Self::offset(out, a.offset);
        }
    }
}

fn component(c: u8) -> char {
    ['x', 'y', 'z', 'w'][usize::from(c & 3)]
}
