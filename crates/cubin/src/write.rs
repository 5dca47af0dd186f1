//! The writer.

use crate::attrs::{Attr, Attrs};
use crate::common::{compat, cuinfo, debug_frame, fde_location, kernel_attributes, tkinfo};
use crate::elf::{Section, Segment, Strings, Symbol, file, symbol_table};
use crate::lines;
use crate::object::{Binding, Reloc};
use crate::{Cubin, Kernel};
use object::elf;
use std::collections::BTreeMap;

/// Section types of CUDA's own (observed, ptxas 13.0.88).
const NV_INFO: u32 = 0x7000_0000;
const NV_CALLGRAPH: u32 = 0x7000_0001;
const NV_REL_ACTION: u32 = 0x7000_000b;
const NV_COMPAT: u32 = 0x7000_0086;

const ALLOC: u64 = elf::SHF_ALLOC as u64;
const WRITE: u64 = elf::SHF_WRITE as u64;
const EXEC: u64 = elf::SHF_EXECINSTR as u64;
const INFO_LINK: u64 = elf::SHF_INFO_LINK as u64;

/// R_CUDA_64: a 64-bit address.
const R_CUDA_64: u64 = 2;
const R_CUDA_ABS32_32: u64 = 0x37;

/// The bytes of an executable cubin.
///
/// # Errors
/// On an address of something that is not in it and not external.
pub fn write(cubin: &Cubin) -> Result<Vec<u8>, String> {
    let mut w = Writer {
        cubin,
        sections: Vec::new(),
        symbols: vec![symbol("", 0, 0, 0, 0, 0)],
        index: BTreeMap::new(),
    };
    w.layout();
    w.fill()
}

fn symbol(name: &str, info: u8, other: u8, section: u16, value: u64, size: u64) -> Symbol {
    Symbol { name: name.into(), info, other, section, value, size }
}

const SECTION_SYMBOL: u8 = elf::STT_SECTION;
const LOCAL_FUNC: u8 = elf::STT_FUNC;
const GLOBAL_FUNC: u8 = elf::STB_GLOBAL << 4 | elf::STT_FUNC;
const WEAK_OBJECT: u8 = elf::STB_WEAK << 4 | elf::STT_OBJECT;
const WEAK_NOTYPE: u8 = elf::STB_WEAK << 4;
/// st_other of a variable in managed memory.
const MANAGED: u8 = 4;
/// st_other of a kernel.
const STO_ENTRY: u8 = 0x10;

/// The name of a kernel's copy of a device function.
fn function_symbol(k: &Kernel, function: &str) -> String {
    format!("${}${function}", k.name)
}

struct Writer<'c> {
    cubin: &'c Cubin,
    /// In file order; number 1 first.
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
    /// Section numbers by name.
    index: BTreeMap<String, u32>,
}

impl Writer<'_> {
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
    fn layout(&mut self) {
        let c = self.cubin;
        let modern = self.modern();
        let plain = |name: &str, ty, flags, align| Section::new(name, ty, flags, align, Vec::new());
        self.add(plain(".shstrtab", elf::SHT_STRTAB, 0, 1));
        self.add(plain(".strtab", elf::SHT_STRTAB, 0, 1));
        self.add(plain(".symtab", elf::SHT_SYMTAB, 0, 8));
        self.add(Section::new(".debug_frame", elf::SHT_PROGBITS, 0, 1, debug_frame(&c.kernels)));
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
        }
        self.add(Section::new(".note.nv.tkinfo", elf::SHT_NOTE, 0x200_0000, 4, tkinfo(&c.options)));
        let cuinfo_flags = 0x100_0000 | if modern { INFO_LINK } else { 0 };
        self.add(Section::new(".note.nv.cuinfo", elf::SHT_NOTE, cuinfo_flags, 4, cuinfo(c.ptx_sm)));
        self.add(plain(".nv.info", NV_INFO, 0, 4));
        if modern {
            self.add(Section::new(".nv.compat", NV_COMPAT, 0, 4, compat(c.sm)));
        }
        for k in &c.kernels {
            self.add(plain(&format!(".nv.info.{}", k.name), NV_INFO, INFO_LINK, 4));
        }
        let mut callgraph = Vec::new();
        for n in 1..=4i32 {
            callgraph.extend_from_slice(&0u32.to_le_bytes());
            callgraph.extend_from_slice(&(-n).to_le_bytes());
        }
        self.add(Section::new(".nv.callgraph", NV_CALLGRAPH, 0, 4, callgraph));
        if !modern {
            let action = [0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x25, 0, 5, 0x36];
            self.add(Section::new(".nv.rel.action", NV_REL_ACTION, 0, 8, action.to_vec()));
        }
        let (rel, rel_type) = if modern { (".rela", elf::SHT_RELA) } else { (".rel", elf::SHT_REL) };
        for k in c.kernels.iter().filter(|k| modern || !k.numbers.is_empty()) {
            self.add(plain(&format!("{rel}.text.{}", k.name), rel_type, INFO_LINK, 8));
        }
        if let Some(lines) = &c.lines {
            for (name, sequences) in [(".debug_line", &lines.source), (".nv_debug_line_sass", &lines.ptx)] {
                if !sequences.is_empty() {
                    self.add(plain(&format!("{rel}{name}"), rel_type, INFO_LINK, 8));
                }
            }
        }
        self.add(plain(&format!("{rel}.debug_frame"), rel_type, INFO_LINK, 8));
        if !c.addresses.is_empty() {
            self.add(plain(&format!("{rel}.nv.constant4"), rel_type, INFO_LINK, 8));
        }
        let initialized = c.globals.iter().any(|g| g.init.is_some());
        for (place, entries) in [
            (".nv.constant3", c.constant_relocs.clone()),
            (".nv.global.init", c.globals.iter().flat_map(|g| g.relocs.iter().cloned()).collect()),
        ] {
            for (rel, rel_type) in self.tables_of(&entries) {
                self.add(plain(&format!("{rel}{place}"), rel_type, INFO_LINK, 8));
            }
        }
        if !c.constants.is_empty() {
            self.add(Section::new(".nv.constant3", elf::SHT_PROGBITS, ALLOC, 8, c.constants.clone()));
        }
        if !c.addresses.is_empty() {
            let data = vec![0; 8 * c.addresses.len()];
            self.add(Section::new(".nv.constant4", elf::SHT_PROGBITS, ALLOC, 8, data));
        }
        let constant0 = |k: &Kernel| {
            let data = vec![0; usize::from(k.param_base) + usize::from(k.param_bytes)];
            Section::new(&format!(".nv.constant0.{}", k.name), elf::SHT_PROGBITS, ALLOC | INFO_LINK, 4, data)
        };
        for k in &c.kernels {
            if !modern {
                self.add(constant0(k));
            }
            if !k.literals.is_empty() {
                let name = format!(".nv.constant2.{}", k.name);
                self.add(Section::new(&name, elf::SHT_PROGBITS, ALLOC | INFO_LINK, 8, k.literals.clone()));
            }
        }
        for k in &c.kernels {
            let code = k.code.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.add(Section::new(&format!(".text.{}", k.name), elf::SHT_PROGBITS, ALLOC | EXEC, 128, code));
        }
        if initialized {
            let data = self.global_data(true);
            self.add(Section::new(".nv.global.init", elf::SHT_PROGBITS, ALLOC | WRITE, 16, data));
        }
        let zero = self.global_data(false).len() as u64;
        if zero != 0 {
            let mut s = plain(".nv.global", elf::SHT_NOBITS, ALLOC | WRITE, 16);
            s.nobits = zero;
            self.add(s);
        }
        for k in c.kernels.iter().filter(|k| k.shared_align != 0) {
            let (name, align) = (format!(".nv.shared.{}", k.name), u64::from(k.shared_align));
            let mut s = plain(&name, elf::SHT_NOBITS, ALLOC | WRITE | INFO_LINK, align);
            s.nobits = u64::from(k.shared_bytes);
            self.add(s);
        }
        if modern {
            let mut s = plain(".nv.shared.reserved.0", elf::SHT_NOBITS, ALLOC | WRITE, 1);
            s.nobits = if c.sm >= 100 { 0x40 } else { 0 };
            self.add(s);
            for k in &c.kernels {
                self.add(constant0(k));
            }
        }
    }

    /// The relocation tables that initial contents need: before sm_90, those with an addend have their own.
    fn tables_of(&self, entries: &[Reloc]) -> Vec<(&'static str, u32)> {
        let (plain, more) = (entries.iter().any(|e| e.addend == 0), entries.iter().any(|e| e.addend != 0));
        let mut out = Vec::new();
        if plain && !self.modern() {
            out.push((".rel", elf::SHT_REL));
        }
        if more || plain && self.modern() {
            out.push((".rela", elf::SHT_RELA));
        }
        out
    }

    /// Offsets of the globals with (or without) initial contents, in order.
    fn global_offsets(&self, init: bool) -> Vec<(usize, u64)> {
        let mut at = 0u64;
        let mut out = Vec::new();
        for (i, g) in self.cubin.globals.iter().enumerate().filter(|(_, g)| g.init.is_some() == init) {
            at = at.next_multiple_of(g.align.max(1));
            out.push((i, at));
            at += g.size;
        }
        out
    }

    fn global_data(&self, init: bool) -> Vec<u8> {
        let mut data = Vec::new();
        for (i, at) in self.global_offsets(init) {
            let g = &self.cubin.globals[i];
            data.resize(at as usize, 0);
            data.extend_from_slice(g.init.as_deref().unwrap_or(&[]));
            data.resize((at + g.size) as usize, 0);
        }
        data
    }

    /// Symbols, then everything that needs their numbers.
    fn fill(mut self) -> Result<Vec<u8>, String> {
        let c = self.cubin;
        let mut section_symbols = vec![".note.nv.tkinfo".to_string(), ".note.nv.cuinfo".to_string()];
        for k in &c.kernels {
            section_symbols.push(format!(".text.{}", k.name));
            section_symbols.push(format!(".nv.shared.{}", k.name));
            section_symbols.push(format!(".nv.constant0.{}", k.name));
            section_symbols.push(format!(".nv.constant2.{}", k.name));
        }
        section_symbols.extend(
            [
                ".nv.constant3",
                ".nv.constant4",
                ".nv.global.init",
                ".nv.global",
                ".nv.callgraph",
                ".nv.rel.action",
                ".debug_line",
                ".debug_str",
                ".nv_debug_line_sass",
                ".nv_debug_ptx_txt",
            ]
            .map(String::from),
        );
        let mut symbol_numbers: BTreeMap<String, u32> = BTreeMap::new();
        for name in section_symbols {
            let n = self.number(&name);
            if n != 0 {
                symbol_numbers.insert(name.clone(), self.symbols.len() as u32);
                self.symbols.push(symbol(&name, SECTION_SYMBOL, 0, n as u16, 0, 0));
            }
        }
        for k in &c.kernels {
            let n = self.number(&format!(".text.{}", k.name)) as u16;
            for (name, at, size) in &k.functions {
                let name = function_symbol(k, name);
                symbol_numbers.insert(name.clone(), self.symbols.len() as u32);
                self.symbols.push(symbol(&name, LOCAL_FUNC, 0, n, (*at).into(), (*size).into()));
            }
        }
        let kernel_symbols = |w: &mut Self, visible: bool, numbers: &mut BTreeMap<String, u32>| {
            for k in c.kernels.iter().filter(|k| (k.binding != Binding::Local) == visible) {
                let n = w.number(&format!(".text.{}", k.name)) as u16;
                numbers.insert(k.name.clone(), w.symbols.len() as u32);
                let info = k.binding.bits() << 4 | elf::STT_FUNC;
                w.symbols.push(symbol(&k.name, info, STO_ENTRY, n, 0, 16 * k.code.len() as u64));
            }
        };
        for visible in [false, true] {
            if visible {
                kernel_symbols(&mut self, false, &mut symbol_numbers);
                let first_global = self.symbols.len() as u32;
                self.section(".symtab").info = first_global;
            }
            for (name, at, size, binding) in &c.constant_symbols {
                if (*binding != Binding::Local) == visible {
                    let n = self.number(".nv.constant3") as u16;
                    symbol_numbers.insert(name.clone(), self.symbols.len() as u32);
                    let info = binding.bits() << 4 | elf::STT_OBJECT;
                    self.symbols.push(symbol(name, info, 0, n, (*at).into(), (*size).into()));
                }
            }
            for (init, section) in [(true, ".nv.global.init"), (false, ".nv.global")] {
                let n = self.number(section) as u16;
                for (i, at) in self.global_offsets(init) {
                    let g = &c.globals[i];
                    if (g.binding != Binding::Local) == visible {
                        symbol_numbers.insert(g.name.clone(), self.symbols.len() as u32);
                        let info = g.binding.bits() << 4 | elf::STT_OBJECT;
                        let other = if g.managed { MANAGED } else { 0 };
                        self.symbols.push(symbol(&g.name, info, other, n, at, g.size));
                    }
                }
            }
        }
        let reserved_symbols = |w: &mut Self| {
            if !w.modern() {
                return;
            }
            let reserved = w.number(".nv.shared.reserved.0") as u16;
            let at = if c.sm >= 100 { 0x40 } else { 0 };
            w.symbols.push(symbol(".nv.reservedSmem.offset0", WEAK_OBJECT, 0, 0, at, 4));
            w.symbols.push(symbol("__nv_reservedSMEM_offset_0_alias", WEAK_NOTYPE, 0xa0, reserved, at, 0));
        };
        reserved_symbols(&mut self);
        for (_, name) in c.kernels.iter().flat_map(|k| &k.numbers) {
            if !symbol_numbers.contains_key(name) {
                symbol_numbers.insert(name.clone(), self.symbols.len() as u32);
                self.symbols.push(symbol(name, WEAK_OBJECT, 0, 0, 0, 4));
            }
        }
        kernel_symbols(&mut self, true, &mut symbol_numbers);
        for e in c.kernels.iter().flat_map(|k| &k.externs) {
            if !symbol_numbers.contains_key(e) {
                symbol_numbers.insert(e.clone(), self.symbols.len() as u32);
                self.symbols.push(symbol(e, GLOBAL_FUNC, 0, 0, 0, 0));
            }
        }
        self.attributes(&symbol_numbers);
        self.relocations(&symbol_numbers)?;
        let mut callgraph = self.section(".nv.callgraph").data.split_off(8);
        let mut edges: Vec<u8> = Vec::new();
        for k in &c.kernels {
            for e in &k.externs {
                edges.extend(symbol_numbers[&k.name].to_le_bytes());
                edges.extend(symbol_numbers[e].to_le_bytes());
            }
        }
        edges.append(&mut callgraph);
        self.section(".nv.callgraph").data.append(&mut edges);

        let mut strings = Strings::default();
        let table = symbol_table(&self.symbols, &mut strings);
        let strtab = self.number(".strtab");
        let symtab = self.section(".symtab");
        symtab.data = table;
        symtab.link = strtab;
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
        for k in &c.kernels {
            let text = self.number(&format!(".text.{}", k.name));
            for name in [".nv.shared.", ".nv.constant0.", ".nv.constant2."] {
                let name = format!("{name}{}", k.name);
                if self.number(&name) != 0 {
                    self.section(&name).info = text;
                }
            }
            let modern = self.modern();
            let s = self.section(&format!(".text.{}", k.name));
            s.link = 3;
            s.info = symbol_numbers[&k.name] | if modern { 0 } else { u32::from(k.registers) << 24 };
        }
        let low = if c.sm >= 100 { 2 } else { 4 };
        let segments = self.segments();
        // The highest byte is the number of the cuinfo note; tools reject a file in which it is not.
        let flags = self.number(".note.nv.cuinfo") << 24 | u32::from(c.sm) << 8 | low;
        Ok(file(self.sections, flags, &segments))
    }

    fn segments(&self) -> Vec<Segment> {
        // Runs of allocated sections with the same rights become one LOAD each.
        let mut loads: Vec<Segment> = Vec::new();
        let mut run: Option<(usize, usize, u32)> = None;
        for (i, s) in self.sections.iter().enumerate() {
            let flags = (s.flags & ALLOC != 0).then(|| {
                let mut f = elf::PF_R;
                if s.flags & WRITE != 0 {
                    f |= elf::PF_W;
                }
                // Before sm_90 constants share the segment of the code.
                if s.flags & EXEC != 0 || !self.modern() && s.flags & WRITE == 0 {
                    f |= elf::PF_X;
                }
                f
            });
            run = match (run, flags) {
                (Some((first, _, f)), Some(g)) if f == g => Some((first, i, f)),
                (old, flags) => {
                    if let Some((first, last, flags)) = old {
                        loads.push(Segment::Load { first, last, flags });
                    }
                    flags.map(|f| (i, i, f))
                }
            };
        }
        if let Some((first, last, flags)) = run {
            loads.push(Segment::Load { first, last, flags });
        }
        let mut out = vec![Segment::Headers];
        if self.modern() {
            out.push(Segment::LoadHeaders);
            out.extend(loads);
        } else {
            out.extend(loads);
            out.push(Segment::LoadHeaders);
        }
        out
    }

    fn attributes(&mut self, symbols: &BTreeMap<String, u32>) {
        let c = self.cubin;
        let mut global = Attrs::default();
        for k in &c.kernels {
            let s = symbols[&k.name];
            global.words(Attr::Regcount, &[s, k.registers.into()]);
            for (name, ..) in k.functions.iter().rev() {
                global.words(Attr::FrameSize, &[symbols[&function_symbol(k, name)], k.frame_bytes]);
            }
            global.words(Attr::FrameSize, &[s, k.frame_bytes]);
            global.words(Attr::MinStackSize, &[s, k.frame_bytes]);
        }
        self.section(".nv.info").data = global.0;
        self.section(".nv.info").link = 3;
        for k in &c.kernels {
            let bank = symbols[&format!(".nv.constant0.{}", k.name)];
            let externs: Vec<u32> = k.externs.iter().map(|e| symbols[e]).collect();
            let data = kernel_attributes(c.sm, k, Some(bank), &externs);
            let text = self.number(&format!(".text.{}", k.name));
            let s = self.section(&format!(".nv.info.{}", k.name));
            s.data = data;
            s.link = 3;
            s.info = text;
        }
    }

    fn relocations(&mut self, symbols: &BTreeMap<String, u32>) -> Result<(), String> {
        let number =
            |name: &String| symbols.get(name).copied().ok_or_else(|| format!("'{name}' is not in the file"));
        let c = self.cubin;
        let modern = self.modern();
        let rel = if modern { ".rela" } else { ".rel" };
        let entry = |offset: u64, symbol: u32, addend: i64| {
            let mut e = offset.to_le_bytes().to_vec();
            e.extend_from_slice(&(u64::from(symbol) << 32 | R_CUDA_64).to_le_bytes());
            if modern {
                e.extend_from_slice(&addend.to_le_bytes());
            }
            e
        };
        let mut tables: Vec<(String, Vec<u8>)> = Vec::new();
        let mut slots = Vec::new();
        for (i, (name, addend)) in c.addresses.iter().enumerate() {
            slots.extend(entry(8 * i as u64, number(name)?, *addend));
            if !modern {
                self.section(".nv.constant4").data[8 * i..8 * i + 8].copy_from_slice(&addend.to_le_bytes());
            }
        }
        tables.push((".nv.constant4".into(), slots));
        let globals: Vec<(u64, &Reloc)> = self
            .global_offsets(true)
            .into_iter()
            .flat_map(|(i, at)| c.globals[i].relocs.iter().map(move |r| (at, r)))
            .collect();
        let constants: Vec<(u64, &Reloc)> = c.constant_relocs.iter().map(|r| (0, r)).collect();
        let mut initial: Vec<(String, Vec<u8>)> = Vec::new();
        for (place, entries) in [(".nv.constant3", constants), (".nv.global.init", globals)] {
            let (mut rel, mut rela) = (Vec::new(), Vec::new());
            for (at, r) in entries {
                let ty = r.fill.number(c.sm).ok_or("data with an address that only code has")?;
                let info = u64::from(number(&r.symbol)?) << 32 | u64::from(ty);
                let table = if modern || r.addend != 0 { &mut rela } else { &mut rel };
                table.extend((at + r.offset).to_le_bytes());
                table.extend(info.to_le_bytes());
                if modern || r.addend != 0 {
                    table.extend(r.addend.to_le_bytes());
                }
            }
            initial.extend([(format!(".rel{place}"), rel), (format!(".rela{place}"), rela)]);
        }
        let frames = c.kernels.iter().enumerate();
        let frames = frames.flat_map(|(i, k)| entry(fde_location(i), symbols[&k.name], 0)).collect();
        tables.push((".debug_frame".into(), frames));
        if let Some(l) = &c.lines {
            for (name, files, sequences) in
                [(".debug_line", &l.files[..], &l.source), (".nv_debug_line_sass", &[][..], &l.ptx)]
            {
                let places = lines::program(files, sequences).1;
                let mut data = Vec::new();
                for (at, function) in places {
                    data.extend(entry(at, number(&function)?, 0));
                }
                tables.push((name.into(), data));
            }
        }
        for k in &c.kernels {
            let mut data = Vec::new();
            for (at, name) in &k.numbers {
                data.extend(u64::from(*at).to_le_bytes());
                data.extend((u64::from(number(name)?) << 32 | R_CUDA_ABS32_32).to_le_bytes());
                data.extend(0u64.to_le_bytes().iter().filter(|_| modern));
            }
            tables.push((format!(".text.{}", k.name), data));
        }
        let tables = tables.into_iter().map(|(target, data)| (format!("{rel}{target}"), data));
        for (name, data) in tables.chain(initial) {
            if self.number(&name) == 0 {
                continue;
            }
            let with_addends = name.starts_with(".rela.");
            let info = self.number(name.trim_start_matches(if with_addends { ".rela" } else { ".rel" }));
            let s = self.section(&name);
            s.data = data;
            s.link = 3;
            s.info = info;
            s.entsize = if with_addends { 24 } else { 16 };
        }
        Ok(())
    }
}
