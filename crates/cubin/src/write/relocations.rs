//! The relocations of an executable: what the driver puts in when it knows where things are.

use super::{Writer, lines};
use crate::Error;
use crate::images::ImageSymbol;
use crate::object::Reloc;

/// R_CUDA_64: a 64-bit address.
const R_CUDA_64: u64 = 2;
const R_CUDA_ABS32_32: u64 = 0x37;
/// The address of a kernel's descriptor.
const R_CUDA_FUNC_DESC_64: u64 = 0x23;

impl Writer<'_> {
    fn symbol_number(&self, name: &String) -> Result<u32, Error> {
        self.numbers.get(name).copied().ok_or_else(|| Error::NotInFile(name.clone()))
    }

    /// Appends an entry.
    fn entry(&self, out: &mut Vec<u8>, offset: u64, symbol: u32, kind: u64, addend: i64) {
        out.extend(offset.to_le_bytes());
        out.extend((u64::from(symbol) << 32 | kind).to_le_bytes());
        if self.modern() {
            out.extend(addend.to_le_bytes());
        }
    }

    /// Fills all tables.
    pub(super) fn relocations(&mut self) -> Result<(), Error> {
        let c = self.cubin;
        let modern = self.modern();
        let rel = if modern { ".rela" } else { ".rel" };
        let mut tables: Vec<(String, Vec<u8>)> = Vec::new();
        let mut slots = Vec::new();
        for (i, (name, addend)) in c.addresses.iter().enumerate() {
            // A kernel's address is what the driver launches it by.
            let kernel = c.kernels.iter().any(|k| k.name == *name);
            let kind = if kernel { R_CUDA_FUNC_DESC_64 } else { R_CUDA_64 };
            self.entry(&mut slots, 8 * i as u64, self.symbol_number(name)?, kind, *addend);
            if !modern {
                self.section(".nv.constant4").data[8 * i..8 * i + 8].copy_from_slice(&addend.to_le_bytes());
            }
        }
        tables.push((".nv.constant4".into(), slots));
        tables.push((".debug_frame".into(), self.frame_relocations()));
        if let Some(l) = &c.lines {
            for (name, files, sequences) in
                [(".debug_line", &l.files[..], &l.source), (".nv_debug_line_sass", &[][..], &l.ptx)]
            {
                let places = lines::program(files, sequences).1;
                let mut data = Vec::new();
                for (at, function) in places {
                    self.entry(&mut data, at, self.symbol_number(&function)?, R_CUDA_64, 0);
                }
                tables.push((name.into(), data));
            }
        }
        for k in self.units() {
            let mut data = Vec::new();
            for (at, name) in &k.numbers {
                self.entry(&mut data, (*at).into(), self.symbol_number(name)?, R_CUDA_ABS32_32, 0);
            }
            if k.links.relocs.is_empty() {
                tables.push((format!(".text.{}", k.name), data));
            }
            tables.push((format!(".nv.constant2.{}", k.name), Vec::new()));
            let mut data = Vec::new();
            for w in k.images.iter().rev() {
                for n in w.sampler.into_iter().chain([w.image]) {
                    let kind = c.images.get(n).ok_or(Error::WordOfNothing)?.kind.reloc(c.sm);
                    let symbol = self.symbol_number(&ImageSymbol::key(n))?;
                    self.entry(&mut data, w.offset.into(), symbol, kind.into(), 0);
                }
            }
            tables.push((format!(".nv.constant0.{}", k.name), data));
        }
        let mut initial = self.initial()?;
        for k in self.units().filter(|k| !k.links.relocs.is_empty()) {
            let relocs: Vec<(u64, &Reloc)> = k.links.relocs.iter().map(|r| (0, r)).collect();
            initial.extend(self.tables(&format!(".text.{}", k.name), &relocs)?);
        }
        for copied in c.lines.iter().flat_map(|l| &l.copied) {
            let rel = super::table_of_copied(modern, &copied.name).0;
            let mut data = Vec::new();
            for r in &copied.relocs {
                let ty = r.fill.number(c.sm).ok_or(Error::AddressOfCode)?;
                let symbol = self.symbol_number(&r.symbol)?;
                data.extend(r.offset.to_le_bytes());
                data.extend((u64::from(symbol) << 32 | u64::from(ty)).to_le_bytes());
                if rel == ".rela" {
                    data.extend(r.addend.to_le_bytes());
                }
            }
            initial.push((format!("{rel}{}", copied.name), data));
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

    /// Those of `.debug_frame`, the last function first.
    fn frame_relocations(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut places = self.frames.iter().rev();
        for k in self.units().rev() {
            let symbol = self.numbers[&k.name];
            let starts = std::iter::once(0).chain(k.functions.iter().map(|f| f.offset));
            let starts: Vec<u32> = starts.collect();
            let mut bases = Vec::new();
            for (start, p) in starts.iter().rev().zip(&mut places) {
                self.entry(&mut out, p.code, symbol, R_CUDA_64, (*start).into());
                bases.extend(&p.bases);
            }
            for base in bases {
                self.entry(&mut out, base, symbol, R_CUDA_64, 0);
            }
        }
        out
    }

    /// Those of variables' initial contents.
    fn initial(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let c = self.cubin;
        let places = self.global_offsets(true)?.0;
        let in_globals = places.iter().flat_map(|(i, at)| c.globals[*i].relocs.iter().map(move |r| (*at, r)));
        let globals: Vec<(u64, &Reloc)> = in_globals.collect();
        let constants: Vec<(u64, &Reloc)> = c.constant_relocs.iter().map(|r| (0, r)).collect();
        let mut initial: Vec<(String, Vec<u8>)> = Vec::new();
        for (place, entries) in [(".nv.constant3", constants), (".nv.global.init", globals)] {
            initial.extend(self.tables(place, &entries)?);
        }
        Ok(initial)
    }

    /// Those of a section, each with what is added to its offset: the table of those without addends, and of those with.
    fn tables(&self, place: &str, entries: &[(u64, &Reloc)]) -> Result<[(String, Vec<u8>); 2], Error> {
        let modern = self.modern();
        let (mut rel, mut rela) = (Vec::new(), Vec::new());
        for (at, r) in entries {
            let ty = r.fill.in_executable(self.cubin.sm).ok_or(Error::AddressOfObjects)?;
            let info = u64::from(self.symbol_number(&r.symbol)?) << 32 | u64::from(ty);
            let table = if modern || r.addend != 0 { &mut rela } else { &mut rel };
            table.extend((at + r.offset).to_le_bytes());
            table.extend(info.to_le_bytes());
            if modern || r.addend != 0 {
                table.extend(r.addend.to_le_bytes());
            }
        }
        Ok([(format!(".rel{place}"), rel), (format!(".rela{place}"), rela)])
    }
}
