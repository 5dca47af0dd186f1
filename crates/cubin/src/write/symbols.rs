//! The symbols of an executable. ptxas makes them kernel by kernel, those of variables with the first.

use super::{Helper, Kernel, RESERVED_SHARED, Writer};
use crate::Error;
use crate::common::{PARTITION, RESERVED_ALIAS, WAR_VARIABLE, has_war_variable, partition};
use crate::elf::Symbol;
use crate::images::ImageSymbol;
use crate::lines::for_debuggers;
use crate::object::{Binding, Fill};
use object::elf;

const WEAK: u8 = elf::STB_WEAK << 4;
const WEAK_OBJECT: u8 = WEAK | elf::STT_OBJECT;
const GLOBAL_FUNC: u8 = elf::STB_GLOBAL << 4 | elf::STT_FUNC;
/// st_other of a variable in managed memory.
const MANAGED: u8 = 4;
/// st_other of a kernel.
const STO_ENTRY: u8 = 0x10;
/// Section number from which on numbers are not those of sections.
pub(crate) const RESERVED_NUMBERS: u32 = elf::SHN_LORESERVE as u32;

/// The name by which a kernel's copy of a function is found; what is part of an instruction gets another in the file.
pub(super) fn helper(k: &Kernel, f: &Helper) -> String {
    super::helper_symbol(&k.name, &f.name)
}

impl Writer<'_> {
    fn symbol(&mut self, key: &str, s: Symbol) {
        self.numbers.insert(key.into(), self.symbols.len() as u32);
        self.symbols.push(s);
    }

    fn plain(&mut self, name: &str, info: u8, other: u8, section: u16, value: u64, size: u64) {
        self.symbol(name, Symbol { name: name.into(), info, other, section, value, size });
    }

    /// The symbol of a section, if there is such a section.
    fn section_symbol(&mut self, name: &str) {
        let n = self.number(name);
        if n != 0 && !self.numbers.contains_key(name) {
            self.plain(name, elf::STT_SECTION, 0, n as u16, 0, 0);
        }
    }

    /// Makes all symbols.
    pub(super) fn list_symbols(&mut self) -> Result<(), Error> {
        let c = self.cubin;
        let modern = self.modern();
        if self.sections.len() as u32 + 1 >= RESERVED_NUMBERS {
            let (kernels, sections) = (c.kernels.len(), self.sections.len() + 1);
            return Err(Error::Sections { kernels, sections });
        }
        self.symbols.push(Symbol { name: String::new(), info: 0, other: 0, section: 0, value: 0, size: 0 });
        self.section_symbol(".note.nv.tkinfo");
        self.section_symbol(".note.nv.cuinfo");
        let mut parts = 0;
        let mut shared = false;
        for (i, k) in c.kernels.iter().enumerate() {
            let text = format!(".text.{}", k.name);
            self.section_symbol(&text);
            let n = self.number(&text) as u16;
            if k.shared_bytes > if modern { RESERVED_SHARED } else { 0 } {
                self.section_symbol(&format!(".nv.shared.{}", k.name));
            }
            if i == 0 {
                self.reserved();
                self.variables()?;
            }
            if (k.names_shared || k.facts.has_partition()) && modern && !shared {
                shared = true;
                if c.sm >= 100 {
                    self.plain(".nv.reservedSmem.cap", WEAK_OBJECT, 0, 0, 0x400, 4);
                } else {
                    // What is left of it: local, without name, internal.
                    self.symbols.push(Symbol {
                        name: String::new(),
                        info: 0,
                        other: elf::STV_INTERNAL,
                        section: 0,
                        value: 0,
                        size: 0,
                    });
                }
            }
            self.section_symbol(&format!(".nv.constant2.{}", k.name));
            self.images(Some(i), n);
            for f in &k.functions {
                let key = helper(k, f);
                let (name, info) = match f.binding {
                    Some(_) => (key.clone(), elf::STT_FUNC),
                    None => {
                        parts += 1;
                        (format!("$__internal_{}_${}", parts - 1, f.name), WEAK | elf::STT_FUNC)
                    }
                };
                if f.binding.is_none_or(|b| b == Binding::Local) {
                    let (value, size) = (f.offset.into(), f.size.into());
                    self.symbol(&key, Symbol { name, info, other: 0, section: n, value, size });
                }
            }
            if !modern {
                self.section_symbol(&format!(".nv.constant0.{}", k.name));
            }
        }
        for f in &c.functions {
            self.section_symbol(&format!(".text.{}", f.name));
        }
        // A file of variables alone.
        if c.kernels.is_empty() {
            self.reserved();
            self.variables()?;
        }
        for name in [".debug_frame", ".debug_line", ".debug_str", ".nv_debug_line_sass", ".nv_debug_ptx_txt"]
        {
            self.section_symbol(name);
        }
        for (name, _) in c.lines.iter().flat_map(|l| l.of_debuggers()) {
            self.section_symbol(&name);
        }
        for name in [".nv.callgraph", ".nv.rel.action"] {
            self.section_symbol(name);
        }
        let numbers = |k: &Kernel| -> Vec<String> {
            let linked = k.links.relocs.iter().filter(|r| r.fill == Fill::Number).map(|r| &r.symbol);
            k.numbers.iter().map(|(_, name)| name).chain(linked).cloned().collect()
        };
        for name in c.kernels.iter().chain(&c.functions).flat_map(numbers) {
            if !self.numbers.contains_key(&name) {
                self.plain(&name, WEAK_OBJECT, 0, 0, 0, 4);
            }
        }
        for visible in [false, true] {
            let kernels = c.kernels.iter().map(|k| (k, STO_ENTRY));
            let units = kernels.chain(c.functions.iter().map(|f| (f, 0)));
            for (k, other) in units.filter(|(k, _)| (k.binding != Binding::Local) == visible) {
                let n = self.number(&format!(".text.{}", k.name)) as u16;
                let info = k.binding.bits() << 4 | elf::STT_FUNC;
                self.plain(&k.name, info, other, n, 0, 16 * k.code.len() as u64);
            }
        }
        for k in &c.kernels {
            let n = self.number(&format!(".text.{}", k.name)) as u16;
            for f in &k.functions {
                if let Some(b) = f.binding.filter(|b| *b != Binding::Local) {
                    let info = b.bits() << 4 | elf::STT_FUNC;
                    self.plain(&helper(k, f), info, 0, n, f.offset.into(), f.size.into());
                }
            }
        }
        self.images(None, 0);
        // What functions call that no kernel reaches has its address in the bank, too.
        let called = c.kernels.iter().chain(&c.functions).flat_map(|k| &k.externs);
        for e in called.chain(&c.driver_functions) {
            if !self.numbers.contains_key(e) {
                self.plain(e, GLOBAL_FUNC, 0, 0, 0, 0);
            }
        }
        if modern {
            for k in &c.kernels {
                self.section_symbol(&format!(".nv.constant0.{}", k.name));
            }
        }
        Ok(())
    }

    /// Those of the textures, samplers and surfaces that are parameters of a kernel, or of the module's.
    fn images(&mut self, kernel: Option<usize>, section: u16) {
        for (n, image) in self.cubin.images.iter().enumerate().filter(|(_, i)| i.kernel == kernel) {
            let symbol =
                Symbol { name: image.name.clone(), info: image.info(), other: 0, section, value: 0, size: 0 };
            self.symbol(&ImageSymbol::key(n), symbol);
        }
    }

    /// Those of the shared memory that the system keeps.
    fn reserved(&mut self) {
        if !self.modern() {
            return;
        }
        let section = self.number(".nv.shared.reserved.0") as u16;
        let at = if self.cubin.sm >= 100 { 0x40 } else { 0 };
        self.plain(".nv.reservedSmem.offset0", WEAK_OBJECT, 0, 0, at, 4);
        let partitioned = self.cubin.kernels.iter().any(|k| k.facts.has_partition());
        let war = has_war_variable(self.cubin.sm);
        if partitioned || war {
            self.section_symbol(".nv.shared.reserved.0");
        }
        if !for_debuggers(self.cubin.lines.as_ref()) {
            self.plain(RESERVED_ALIAS, WEAK, 0xa0, section, at, 0);
        }
        if war {
            self.plain(WAR_VARIABLE.0, WEAK_OBJECT, 0, section, at, WAR_VARIABLE.1);
        }
        if partitioned {
            let (at, bytes) = partition(self.cubin.sm);
            self.plain(PARTITION, WEAK_OBJECT, 0, section, at, bytes);
        }
    }

    /// Those of global and constant variables.
    fn variables(&mut self) -> Result<(), Error> {
        let c = self.cubin;
        for (init, section) in [(true, ".nv.global.init"), (false, ".nv.global")] {
            self.section_symbol(section);
            let n = self.number(section) as u16;
            let mut places = self.global_offsets(init)?.0;
            places.sort_unstable();
            for (i, at) in places {
                let g = &c.globals[i];
                let info = g.binding.bits() << 4 | elf::STT_OBJECT;
                self.plain(&g.name, info, if g.managed { MANAGED } else { 0 }, n, at, g.size);
            }
        }
        self.section_symbol(".nv.constant4");
        self.section_symbol(".nv.constant3");
        let n = self.number(".nv.constant3") as u16;
        for (name, at, size, binding) in &c.constant_symbols {
            let info = binding.bits() << 4 | elf::STT_OBJECT;
            self.plain(name, info, 0, n, (*at).into(), (*size).into());
        }
        Ok(())
    }
}
