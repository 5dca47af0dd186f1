//! The writer.

use crate::attrs::{Attr, Attrs};
use crate::common::{compat, cuinfo, has_war_variable, kernel_attributes, partition, tkinfo};
use crate::elf::{Section, Strings, Symbol, file, symbol_table};
use crate::frames::{self, Entry, Returns};
use crate::images::{ImageKind, ImageSymbol};
use crate::lines;
use crate::object::Reloc;
use crate::{Cubin, Error, Helper, Kernel};
use object::elf;
use std::collections::{BTreeMap, BTreeSet};

mod relocations;
mod segments;
mod symbols;

pub(crate) use symbols::RESERVED_NUMBERS;

/// Section types of CUDA's own (observed, ptxas 13.0.88).
const NV_INFO: u32 = 0x7000_0000;
const NV_CALLGRAPH: u32 = 0x7000_0001;
const NV_REL_ACTION: u32 = 0x7000_000b;
const NV_COMPAT: u32 = 0x7000_0086;

const ALLOC: u64 = elf::SHF_ALLOC as u64;
const WRITE: u64 = elf::SHF_WRITE as u64;
const EXEC: u64 = elf::SHF_EXECINSTR as u64;
const INFO_LINK: u64 = elf::SHF_INFO_LINK as u64;

/// The bytes of an executable cubin.
///
/// # Errors
/// On an address of something that is not in it and not external, and if there is more than the format holds.
pub fn write(cubin: &Cubin) -> Result<Vec<u8>, Error> {
    let mut w = Writer {
        cubin,
        sections: Vec::new(),
        symbols: Vec::new(),
        numbers: BTreeMap::new(),
        index: BTreeMap::new(),
        frames: Vec::new(),
    };
    w.layout()?;
    w.fill()
}

/// The kind of table that holds the addresses in a section that the PTX brings: how its name begins, and its type. Up to
/// sm_89 ptxas has numbers to add in the tables of `.debug_info` alone; the fields hold them in any case.
fn table_of_copied(modern: bool, section: &str) -> (&'static str, u32) {
    if modern || section == ".debug_info" { (".rela", elf::SHT_RELA) } else { (".rel", elf::SHT_REL) }
}

/// Bytes at the bottom of shared memory that a kernel's section counts from sm_90 on though they are not its own.
const RESERVED_SHARED: u32 = 0x400;

/// The symbol of a function that the PTX names in the code of a kernel.
pub fn helper_symbol(kernel: &str, function: &str) -> String {
    format!("${kernel}${function}")
}

struct Writer<'c> {
    cubin: &'c Cubin,
    /// In file order; number 1 first.
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
    /// Symbol numbers by name.
    numbers: BTreeMap<String, u32>,
    /// Section numbers by name.
    index: BTreeMap<String, u32>,
    /// Where `.debug_frame` has addresses: of each kernel, then of its functions.
    frames: Vec<frames::Places>,
}

/// The code of a kernel with that of the functions in it, or of a function, as `.debug_frame` describes them.
fn frame_entries((k, returns): (&Kernel, Returns)) -> impl Iterator<Item = Entry<'_>> {
    let size = 16 * k.code.len() as u64;
    let own = Entry { frame: &k.frame, returns, start: 0, size };
    let helpers = k.functions.iter().map(|f| Entry {
        frame: &f.frame,
        returns: Returns::Relative,
        start: f.offset.into(),
        size: f.size.into(),
    });
    std::iter::once(own).chain(helpers)
}

/// A section of memory without contents.
fn no_bits(name: &str, flags: u64, align: u64, size: u64) -> Section {
    let mut s = Section::new(name, elf::SHT_NOBITS, flags, align, Vec::new());
    s.nobits = size;
    s
}

impl Writer<'_> {
    /// What has a section of code: kernels, then functions.
    fn units(&self) -> impl DoubleEndedIterator<Item = &Kernel> + '_ {
        self.cubin.kernels.iter().chain(&self.cubin.functions)
    }

    /// From sm_90 on: RELA, the reserved shared section, constants behind the code.
    fn modern(&self) -> bool {
        self.cubin.sm >= 90
    }

    fn add(&mut self, s: Section) -> u32 {
        let n = self.sections.len() as u32 + 1;
        self.index.insert(s.name.clone(), n);
        self.sections.push(s);
        n
    }

    fn number(&self, name: &str) -> u32 {
        self.index.get(name).copied().unwrap_or(0)
    }

    fn section(&mut self, name: &str) -> &mut Section {
        let n = self.index[name];
        &mut self.sections[n as usize - 1]
    }

    /// All sections in ptxas's order; those that refer to symbols are filled later.
    fn layout(&mut self) -> Result<(), Error> {
        let c = self.cubin;
        let modern = self.modern();
        let plain = |name: &str, ty, flags, align| Section::new(name, ty, flags, align, Vec::new());
        self.add(plain(".shstrtab", elf::SHT_STRTAB, 0, 1));
        self.add(plain(".strtab", elf::SHT_STRTAB, 0, 1));
        self.add(plain(".symtab", elf::SHT_SYMTAB, 0, 8));
        let kernels = c.kernels.iter().map(|k| (k, Returns::Never));
        let functions = c.functions.iter().map(|f| (f, Returns::Absolute(f.frame.return_address)));
        let (data, places) = frames::section(kernels.chain(functions).flat_map(frame_entries));
        self.frames = places;
        self.add(Section::new(".debug_frame", elf::SHT_PROGBITS, 0, 1, data));
        if let Some(lines) = &c.lines {
            for (name, data) in [
                (".debug_line", lines::program(&lines.files, &lines.source).0),
                (".debug_str", lines.strings.clone()),
                (".nv_debug_line_sass", lines::program(&[], &lines.ptx).0),
                (".nv_debug_ptx_txt", lines.ptx_text.clone()),
            ] {
                if name != ".debug_str" || !data.is_empty() {
                    self.add(Section::new(name, elf::SHT_PROGBITS, 0, 1, data));
                }
            }
            for (name, data) in lines.of_debuggers() {
                self.add(Section::new(&name, elf::SHT_PROGBITS, 0, 1, data));
            }
        }
        self.add(Section::new(
            ".note.nv.tkinfo",
            elf::SHT_NOTE,
            0x200_0000,
            4,
            tkinfo(c.tool.as_deref(), &c.options),
        ));
        let cuinfo_flags = 0x100_0000 | if modern { INFO_LINK } else { 0 };
        self.add(Section::new(".note.nv.cuinfo", elf::SHT_NOTE, cuinfo_flags, 4, cuinfo(c.ptx_sm)));
        self.add(plain(".nv.info", NV_INFO, 0, 4));
        if modern {
            let data = compat(c.sm, c.accelerated, c.isa_class, c.tensor_maps);
            self.add(Section::new(".nv.compat", NV_COMPAT, 0, 4, data));
        }
        for k in c.kernels.iter().chain(&c.functions) {
            self.add(plain(&format!(".nv.info.{}", k.name), NV_INFO, INFO_LINK, 4));
        }
        self.add(plain(".nv.callgraph", NV_CALLGRAPH, 0, 4));
        if !modern {
            let action = [0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x25, 0, 5, 0x36];
            self.add(Section::new(".nv.rel.action", NV_REL_ACTION, 0, 8, action.to_vec()));
        }
        self.layout_relocations();
        self.layout_constants();
        for k in c.kernels.iter().chain(&c.functions) {
            let code = k.code.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.add(Section::new(&format!(".text.{}", k.name), elf::SHT_PROGBITS, ALLOC | EXEC, 128, code));
        }
        self.layout_memory()?;
        if modern {
            for k in &c.kernels {
                self.add(constant0(k));
            }
        }
        Ok(())
    }

    /// The tables of relocations, empty.
    fn layout_relocations(&mut self) {
        let c = self.cubin;
        let modern = self.modern();
        let (rel, rel_type) = if modern { (".rela", elf::SHT_RELA) } else { (".rel", elf::SHT_REL) };
        let mut add = |name: String, ty| {
            self.add(Section::new(&name, ty, INFO_LINK, 8, Vec::new()));
        };
        // From sm_90 on ptxas leaves the table of what it has resolved itself.
        let resolved = |k: &Kernel| modern && (k.names_shared || !k.functions.is_empty());
        for k in c.kernels.iter().chain(&c.functions) {
            for (rel, rel_type) in tables_of(modern, &k.links.relocs) {
                add(format!("{rel}.text.{}", k.name), rel_type);
            }
            if k.links.relocs.is_empty() && (resolved(k) || !k.numbers.is_empty()) {
                add(format!("{rel}.text.{}", k.name), rel_type);
            }
        }
        if let Some(lines) = &c.lines {
            for (name, sequences) in [(".debug_line", &lines.source), (".nv_debug_line_sass", &lines.ptx)] {
                if !sequences.is_empty() {
                    add(format!("{rel}{name}"), rel_type);
                }
            }
            for copied in lines.copied.iter().filter(|c| !c.relocs.is_empty()) {
                let (rel, rel_type) = table_of_copied(modern, &copied.name);
                add(format!("{rel}{}", copied.name), rel_type);
            }
        }
        if !c.addresses.is_empty() {
            add(format!("{rel}.nv.constant4"), rel_type);
        }
        for k in c.kernels.iter().filter(|k| modern && !k.literals.is_empty()) {
            add(format!("{rel}.nv.constant2.{}", k.name), rel_type);
        }
        for (place, entries) in [
            (".nv.constant3", c.constant_relocs.clone()),
            (".nv.global.init", c.globals.iter().flat_map(|g| g.relocs.iter().cloned()).collect()),
        ] {
            for (rel, rel_type) in tables_of(modern, &entries) {
                add(format!("{rel}{place}"), rel_type);
            }
        }
        for k in c.kernels.iter().filter(|k| !k.images.is_empty()) {
            add(format!("{rel}.nv.constant0.{}", k.name), rel_type);
        }
        add(format!("{rel}.debug_frame"), rel_type);
    }

    /// Constant banks; before sm_90 with those of the parameters.
    fn layout_constants(&mut self) {
        let c = self.cubin;
        let addresses = |w: &mut Self| {
            if !c.addresses.is_empty() {
                let data = vec![0; 8 * c.addresses.len()];
                w.add(Section::new(".nv.constant4", elf::SHT_PROGBITS, ALLOC, 8, data));
            }
        };
        if !c.constants_first {
            addresses(self);
        }
        if !c.constants.is_empty() {
            let align = c.constant_align.max(1);
            self.add(Section::new(".nv.constant3", elf::SHT_PROGBITS, ALLOC, align, c.constants.clone()));
        }
        if c.constants_first {
            addresses(self);
        }
        for k in c.kernels.iter().filter(|k| !k.literals.is_empty()) {
            let name = format!(".nv.constant2.{}", k.name);
            self.add(Section::new(&name, elf::SHT_PROGBITS, ALLOC | INFO_LINK, 4, k.literals.clone()));
        }
        if !self.modern() {
            for k in &c.kernels {
                self.add(constant0(k));
            }
        }
    }

    /// Global and shared memory. ptxas makes the sections kernel by kernel, those of variables with the first.
    fn layout_memory(&mut self) -> Result<(), Error> {
        let c = self.cubin;
        let globals = || c.globals.iter().filter(|g| g.init.is_some());
        if globals().next().is_some() {
            let align = globals().map(|g| g.align).max().unwrap_or(1).max(1);
            let data = self.global_data()?;
            self.add(Section::new(".nv.global.init", elf::SHT_PROGBITS, ALLOC | WRITE, align, data));
        }
        let shared = |k: &Kernel| {
            let name = format!(".nv.shared.{}", k.name);
            no_bits(&name, ALLOC | WRITE | INFO_LINK, k.shared_align.into(), k.shared_bytes.into())
        };
        for (i, k) in c.kernels.iter().enumerate() {
            if k.shared_align != 0 {
                self.add(shared(k));
            }
            if i == 0 {
                self.module_memory()?;
            }
        }
        if c.kernels.is_empty() {
            self.module_memory()?;
        }
        Ok(())
    }

    /// Memory without contents that is no kernel's: what the system keeps of shared memory, and variables.
    fn module_memory(&mut self) -> Result<(), Error> {
        let c = self.cubin;
        if self.modern() {
            let (partition, bytes) = partition(c.sm);
            let size = match c.kernels.iter().any(|k| k.facts.has_partition()) {
                true => partition + bytes,
                false if c.sm >= 100 => partition,
                false => 0,
            };
            let war = has_war_variable(c.sm);
            let align = if war { 16 } else { 1 };
            // Debugged programs have it only for what is in it (ptxas 13.0.88).
            let empty = !war && size <= partition;
            if !(empty && lines::for_debuggers(c.lines.as_ref())) {
                self.add(no_bits(".nv.shared.reserved.0", ALLOC | WRITE, align, size));
            }
        }
        let globals = || c.globals.iter().filter(|g| g.init.is_none());
        if globals().next().is_some() {
            let align = globals().map(|g| g.align).max().unwrap_or(1).max(1);
            let size = self.global_offsets(false)?.1;
            self.add(no_bits(".nv.global", ALLOC | WRITE, align, size));
        }
        Ok(())
    }

    /// Offsets of the globals with (or without) initial contents, in ptxas's order: the most aligned first, of those the
    /// smallest. And the bytes of all.
    fn global_offsets(&self, init: bool) -> Result<(Vec<(usize, u64)>, u64), Error> {
        let globals = &self.cubin.globals;
        let mut order: Vec<usize> =
            (0..globals.len()).filter(|i| globals[*i].init.is_some() == init).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(globals[*i].align), globals[*i].size));
        let mut at = 0u64;
        let mut out = Vec::new();
        for i in order {
            let too_much = || Error::Places { global: true, name: globals[i].name.clone() };
            at = at.checked_next_multiple_of(globals[i].align.max(1)).ok_or_else(too_much)?;
            out.push((i, at));
            at = at.checked_add(globals[i].size).ok_or_else(too_much)?;
        }
        Ok((out, at))
    }

    /// The initial contents of all globals that have any.
    fn global_data(&self) -> Result<Vec<u8>, Error> {
        let (places, size) = self.global_offsets(true)?;
        let mut data = zeros(size)?;
        for (i, at) in places {
            let init = self.cubin.globals[i].init.as_deref().unwrap_or(&[]);
            data[at as usize..at as usize + init.len()].copy_from_slice(init);
        }
        Ok(data)
    }

    /// Symbols, then everything that needs their numbers.
    fn fill(mut self) -> Result<Vec<u8>, Error> {
        let c = self.cubin;
        self.list_symbols()?;
        self.attributes();
        self.relocations()?;
        self.section(".nv.callgraph").data = self.call_graph()?;

        let mut strings = Strings::default();
        let table = symbol_table(&self.symbols, &mut strings);
        let strtab = self.number(".strtab");
        let last_local = self.symbols.iter().rposition(|s| s.info >> 4 == elf::STB_LOCAL);
        let symtab = self.section(".symtab");
        symtab.data = table;
        symtab.link = strtab;
        symtab.info = last_local.map_or(0, |n| n as u32 + 1);
        symtab.entsize = 24;
        self.section(".strtab").data = strings.bytes;
        let tkinfo = self.number(".note.nv.tkinfo");
        let compat = self.number(".nv.compat");
        let cuinfo = self.section(".note.nv.cuinfo");
        cuinfo.link = tkinfo;
        cuinfo.info = compat;
        self.section(".nv.callgraph").entsize = 8;
        self.section(".nv.callgraph").link = 3;
        if !self.modern() {
            self.section(".nv.rel.action").entsize = 8;
        }
        for k in c.kernels.iter().chain(&c.functions) {
            let text = self.number(&format!(".text.{}", k.name));
            for name in [".nv.shared.", ".nv.constant0.", ".nv.constant2."] {
                let name = format!("{name}{}", k.name);
                if self.number(&name) != 0 {
                    self.section(&name).info = text;
                }
            }
            let registers = if self.modern() { 0 } else { u32::from(k.registers) << 24 };
            let symbol = self.numbers[&k.name];
            let s = self.section(&format!(".text.{}", k.name));
            s.link = 3;
            s.info = symbol | registers;
        }
        let segments = segments::list(&self.sections, self.modern());
        // The highest byte is the number of the cuinfo note; tools reject a file in which it is not. The lowest: with 2, as
        // ptxas has from sm_100 on, there would have to be capsules (docs/cubin.md).
        let flags = self.number(".note.nv.cuinfo") << 24 | u32::from(c.sm) << 8 | 4;
        file(self.sections, flags, &segments)
    }

    /// `.nv.callgraph`: who calls whom by name; functions whose address is taken; who calls through pointers; who takes whose address.
    /// Where objects name a prototype executables have 1, as those of ptxas -g and of nvlink.
    fn call_graph(&self) -> Result<Vec<u8>, Error> {
        let number = |name: &String| self.numbers.get(name).copied().ok_or(Error::CallOfNothing);
        let mut parts: [Vec<(u32, u32)>; 4] = Default::default();
        for k in self.units() {
            let own = number(&k.name)?;
            let apart = !self.cubin.functions.is_empty();
            for e in if apart { &k.links.calls } else { &k.externs } {
                parts[0].push((own, number(e)?));
            }
            for f in &k.links.takes {
                parts[1].push((number(f)?, 1));
                parts[3].push((own, number(f)?));
            }
            // Kernels have no prototype.
            for f in &k.links.kernels {
                parts[1].push((number(f)?, 0));
                parts[3].push((own, number(f)?));
            }
            parts[2].extend(k.links.indirect.then_some((own, 1)));
        }
        for name in self.kernels_in_data() {
            parts[1].push((number(name)?, 0));
        }
        let in_data = self.cubin.globals.iter().flat_map(|g| &g.relocs).chain(&self.cubin.constant_relocs);
        let functions = || self.cubin.functions.iter().map(|f| &f.name);
        for r in in_data.filter(|r| functions().any(|f| *f == r.symbol)) {
            parts[1].push((number(&r.symbol)?, 1));
        }
        parts[1].sort_unstable();
        parts[1].dedup();
        let mut out = Vec::new();
        for (n, pairs) in (1..).zip(parts) {
            let mark = (0, -n as u32);
            for (a, b) in std::iter::once(mark).chain(pairs) {
                out.extend(a.to_le_bytes());
                out.extend(b.to_le_bytes());
            }
        }
        Ok(out)
    }

    /// The kernels whose addresses variables hold.
    fn kernels_in_data(&self) -> impl Iterator<Item = &String> {
        let in_data = self.cubin.globals.iter().flat_map(|g| &g.relocs).chain(&self.cubin.constant_relocs);
        in_data.filter(|r| r.fill.is_of_a_kernel()).map(|r| &r.symbol)
    }

    fn attributes(&mut self) {
        let c = self.cubin;
        let mut global = Attrs::default();
        let images: Vec<(u32, ImageKind)> =
            c.images.iter().enumerate().map(|(n, i)| (self.numbers[&ImageSymbol::key(n)], i.kind)).collect();
        if c.asks_types {
            global.flag(Attr::IstypepUsed);
        }
        for f in c.functions.iter().rev() {
            let s = self.numbers[&f.name];
            global.words(Attr::Regcount, &[s, f.registers.into()]);
            global.words(Attr::FrameSize, &[s, f.frame_bytes]);
            if f.options.errors_at_exit {
                global.flag(Attr::GenErrbarAtExit);
            }
        }
        for (n, k) in c.kernels.iter().enumerate().rev() {
            let s = self.numbers[&k.name];
            global.words(Attr::Regcount, &[s, k.registers.into()]);
            // What is of the whole file comes with the first kernel.
            if n == 0 {
                crate::images::samplers(&mut global, &c.images, &images);
            }
            for f in k.functions.iter().rev() {
                // From sm_90 on ptxas states the kernel's.
                let bytes = if self.modern() { k.frame_bytes } else { f.frame_bytes };
                global.words(Attr::FrameSize, &[self.numbers[&symbols::helper(k, f)], bytes]);
            }
            global.words(Attr::FrameSize, &[s, k.own_frame.unwrap_or(k.frame_bytes)]);
            if k.options.errors_at_exit {
                global.flag(Attr::GenErrbarAtExit);
            }
        }
        if c.independent && !c.kernels.is_empty() {
            global.flag(Attr::TexmodeIndependent);
        }
        for k in &c.kernels {
            let bytes = if k.unbounded { u32::MAX } else { k.frame_bytes };
            global.words(Attr::MinStackSize, &[self.numbers[&k.name], bytes]);
        }
        self.section(".nv.info").data = global.0;
        self.section(".nv.info").link = 3;
        let debugged = lines::for_debuggers(c.lines.as_ref());
        for (n, k) in c.kernels.iter().chain(&c.functions).enumerate() {
            let bank = self.numbers.get(&format!(".nv.constant0.{}", k.name)).copied();
            let mut externs: Vec<u32> = k.externs.iter().map(|e| self.numbers[e]).collect();
            // Other kernels count as elsewhere; the first of the file, which is the last of the text, names those of variables.
            let in_data = self.kernels_in_data().filter(|_| n == 0 && !debugged);
            let kernels = k.links.kernels.iter().chain(in_data).filter(|e| **e != k.name);
            let kernels: BTreeSet<u32> = kernels.map(|e| self.numbers[e]).collect();
            externs.extend(kernels);
            let data = kernel_attributes(c.sm, k, bank, &externs, &images);
            let text = self.number(&format!(".text.{}", k.name));
            let s = self.section(&format!(".nv.info.{}", k.name));
            s.data = data;
            s.link = 3;
            s.info = text;
        }
    }
}

/// Constant bank 0 of a kernel.
fn constant0(k: &Kernel) -> Section {
    let name = format!(".nv.constant0.{}", k.name);
    Section::new(&name, elf::SHT_PROGBITS, ALLOC | INFO_LINK, 4, vec![0; k.bank0_bytes()])
}

/// Bytes of initialized variables that a file may have.
pub const MOST_DATA: u64 = 1 << 32;

/// So many zeros.
pub(crate) fn zeros(size: u64) -> Result<Vec<u8>, Error> {
    if size > MOST_DATA {
        return Err(Error::Data(size));
    }
    Ok(vec![0; size as usize])
}

/// The relocation tables that initial contents need: before sm_90, those with an addend have their own, which comes
/// first.
fn tables_of(modern: bool, entries: &[Reloc]) -> Vec<(&'static str, u32)> {
    let (plain, more) = (entries.iter().any(|e| e.addend == 0), entries.iter().any(|e| e.addend != 0));
    let mut out = Vec::new();
    if more || plain && modern {
        out.push((".rela", elf::SHT_RELA));
    }
    if plain && !modern {
        out.push((".rel", elf::SHT_REL));
    }
    out
}
