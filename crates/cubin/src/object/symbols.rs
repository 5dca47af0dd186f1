//! The symbols of an object: its sections, what it defines, and what it asks of others.

use super::{
    Alias, Binding, CUDA_OBJECT, FUNCTION_BASE, Fill, Place, Placed, RESERVED, STO_ENTRY, STO_MANAGED,
    STO_UNIFIED, UNIFIED_TABLES, Variable, Writer,
};
use crate::common::RESERVED_ALIAS;
use crate::elf::Symbol;
use crate::images::ImageSymbol;
use object::elf;
use std::collections::BTreeSet;

impl Writer<'_> {
    pub(super) fn symbol_list(&mut self, placed: &[Placed<'_>], used: &[&str]) -> Vec<Symbol> {
        let o = self.object;
        let symbol = |name: &str, bind: u8, ty: u8, other: u8, section: u16, value: u64, size: u64| Symbol {
            name: name.into(),
            info: bind << 4 | ty,
            other,
            section,
            value,
            size,
        };
        let mut list = vec![symbol("", 0, 0, 0, 0, 0, 0)];
        for (i, s) in self.sections.iter().enumerate() {
            let named = ![".shstrtab", ".strtab", ".symtab", ".nv.info", ".nv.compat", ".nv.prototype"]
                .contains(&s.name.as_str())
                && !s.name.starts_with(".rel")
                && !s.name.starts_with(".nv.info.");
            if named {
                list.push(symbol(&s.name, elf::STB_LOCAL, elf::STT_SECTION, 0, i as u16 + 1, 0, 0));
            }
        }
        let other = |v: &Variable| {
            let space = match v.place {
                Place::Global => 0x20,
                Place::Shared(_) => 0x40,
                Place::Constant => 0x80,
            };
            let unified = if v.unified.is_some() { STO_UNIFIED } else { 0 };
            space | unified | if v.managed { STO_MANAGED } else { 0 }
        };
        let mut globals = Vec::new();
        for p in placed {
            let v = p.var;
            let n = self.number(&p.section) as u16;
            // nvlink places shared memory, and takes the value for the alignment, as of common variables.
            let value = if matches!(v.place, Place::Shared(_)) { v.align.max(1) } else { p.offset };
            let s = symbol(&v.name, v.binding.bits(), CUDA_OBJECT, other(v), n, value, v.size);
            if v.binding == Binding::Local { list.push(s) } else { globals.push(s) }
        }
        for v in o.variables.iter().filter(|v| !v.defined || v.common) {
            let (section, value) = if v.common { (elf::SHN_COMMON, v.align) } else { (0, 0) };
            globals.push(symbol(&v.name, elf::STB_GLOBAL, CUDA_OBJECT, other(v), section, value, v.size));
        }
        for f in &o.functions {
            let n = self.number(&f.section()) as u16;
            let other = if f.entry { STO_ENTRY } else { 0 };
            let size = 16 * f.code.code.len() as u64;
            let s = symbol(&f.code.name, f.code.binding.bits(), elf::STT_FUNC, other, n, 0, size);
            if f.code.binding == Binding::Local { list.push(s) } else { globals.push(s) }
        }
        for Alias { name: alias, function, .. } in &o.aliases {
            let Some(f) = o.functions.iter().find(|f| f.code.name == *function) else { continue };
            let n = self.number(&format!(".text.{function}")) as u16;
            let s = symbol(alias, f.code.binding.bits(), elf::STT_FUNC, 0, n, 0, 0);
            if f.code.binding == Binding::Local { list.push(s) } else { globals.push(s) }
        }
        for e in &o.externs {
            globals.push(symbol(e, elf::STB_GLOBAL, elf::STT_FUNC, 0, 0, 0, 0));
        }
        let weak = |name: &str, value: u64, size: u64| {
            symbol(name, elf::STB_WEAK, elf::STT_OBJECT, 0, 0, value, size)
        };
        let relocs = o.functions.iter().flat_map(|f| &f.relocs);
        let numbers: BTreeSet<&str> =
            relocs.filter(|r| r.fill == Fill::Number).map(|r| r.symbol.as_str()).collect();
        globals.extend(numbers.into_iter().map(|name| weak(name, 0, 4)));
        if self.modern() {
            let reserved = if o.sm >= 100 { 0x40 } else { 0 };
            globals.push(weak(".nv.reservedSmem.offset0", reserved, 4));
            if o.names_reserved() {
                let n = self.number(RESERVED) as u16;
                globals.push(symbol(RESERVED_ALIAS, elf::STB_WEAK, elf::STT_NOTYPE, 0xa0, n, 1, 0));
            }
            for v in o.reserved() {
                let n = self.number(RESERVED) as u16;
                // Its alignment in place of an address, as of any variable that the linker places.
                globals.push(symbol(v.name, elf::STB_WEAK, CUDA_OBJECT, 0xa0, n, v.align, v.size));
            }
            // Where code names a shared variable; on sm_90 what is left of it, as in executables (ptxas 13.0.88).
            let mut relocs = o.functions.iter().flat_map(|f| &f.relocs);
            match (relocs.any(|r| r.fill == Fill::Shared), o.sm >= 100) {
                (true, true) => globals.push(weak(".nv.reservedSmem.cap", 0x400, 4)),
                (true, false) => {
                    list.push(symbol("", elf::STB_LOCAL, elf::STT_NOTYPE, elf::STV_INTERNAL, 0, 0, 0));
                }
                (false, _) => {}
            }
            // Objects have all of them (ptxas 13.0.88), programs that can be extended what their code names.
            let tables =
                UNIFIED_TABLES.iter().filter(|t| !o.extensible || **t == FUNCTION_BASE && used.contains(t));
            globals.extend(tables.map(|t| weak(t, 0, 8)));
        }
        // Names of parameters say nothing to others: several kernels may have one, and so may a function or variable.
        let mut keys: Vec<(usize, String)> = Vec::new();
        let images = || o.images.iter().enumerate();
        for (n, image) in images() {
            let kernel = image.kernel.and_then(|k| o.functions.get(k));
            let section = kernel.map_or(0, |f| self.number(&format!(".text.{}", f.code.name)) as u16);
            let s =
                Symbol { name: image.name.clone(), info: image.info(), other: 0, section, value: 0, size: 0 };
            if kernel.is_some() {
                keys.push((list.len(), ImageSymbol::key(n)));
                list.push(s);
            }
        }
        self.section(".symtab").info = list.len() as u32;
        for (n, image) in images().filter(|(_, i)| i.kernel.is_none()) {
            keys.push((list.len() + globals.len(), ImageSymbol::key(n)));
            globals.push(symbol(&image.name, elf::STB_GLOBAL, image.kind as u8, 0, 0, 0, 0));
        }
        list.append(&mut globals);
        let keyed: BTreeSet<usize> = keys.iter().map(|k| k.0).collect();
        let named = |n: &usize, s: &Symbol| !keyed.contains(n) && !s.name.is_empty();
        for (n, s) in list.iter().enumerate().filter(|(n, s)| named(n, s)) {
            self.symbols.insert(s.name.clone(), n as u32);
        }
        self.symbols.extend(keys.into_iter().map(|(n, key)| (key, n as u32)));
        list
    }
}
