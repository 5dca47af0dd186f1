//! The lists of an object: who calls whom, what is unified, and the attributes of all and of each function.

use super::{Placed, Writer};
use crate::Error;
use crate::attrs::{Attr, Attrs};
use crate::common::kernel_attributes;
use crate::images::{ImageKind, ImageSymbol};
use std::collections::{BTreeMap, BTreeSet};

impl Writer<'_> {
    /// `.nv.callgraph`: calls by name (behind the mark -1), functions whose address is taken with their prototypes
    /// (-2), functions that call through pointers with the prototypes (-3), who takes whose address (-4). And
    /// `.nv.prototype`: the prototypes of all other functions that other objects see.
    pub(super) fn graph(&self, prototypes: &BTreeMap<&str, u32>) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let o = self.object;
        let mut graph: Vec<u8> = Vec::new();
        let pair = |out: &mut Vec<u8>, a: u32, b: u32| {
            out.extend(a.to_le_bytes());
            out.extend(b.to_le_bytes());
        };
        let mark = |out: &mut Vec<u8>, n: i32| pair(out, 0, (-n) as u32);
        mark(&mut graph, 1);
        for f in &o.functions {
            for alias in o.aliases.iter().filter(|a| a.callers.contains(&f.code.name)) {
                pair(&mut graph, self.symbol(&f.code.name)?, self.symbol(&alias.name)?);
            }
            for callee in &f.calls {
                pair(&mut graph, self.symbol(&f.code.name)?, self.symbol(callee)?);
            }
        }
        for alias in &o.aliases {
            pair(&mut graph, self.symbol(&alias.name)?, self.symbol(&alias.function)?);
        }
        mark(&mut graph, 2);
        let in_data = o.variables.iter().flat_map(|v| &v.relocs);
        let in_data = in_data.filter(|r| r.fill.is_of_a_function() || r.fill.is_of_a_kernel());
        let taken: Vec<&str> = o
            .functions
            .iter()
            .flat_map(|f| f.takes.iter().map(String::as_str))
            .chain(in_data.map(|r| r.symbol.as_str()))
            .chain(o.functions.iter().filter(|f| f.unified.is_some()).map(|f| f.code.name.as_str()))
            .chain(o.unified_elsewhere.iter().map(String::as_str))
            .chain(o.aliases.iter().filter(|a| a.taken).map(|a| a.name.as_str()))
            .collect();
        let mut rest = Vec::new();
        for (name, prototype) in &o.prototypes {
            let to = if taken.contains(&name.as_str()) { &mut graph } else { &mut rest };
            pair(to, self.symbol(name)?, prototypes[prototype.as_str()]);
        }
        mark(&mut graph, 3);
        for f in &o.functions {
            for p in &f.indirect {
                pair(&mut graph, self.symbol(&f.code.name)?, prototypes[p.as_str()]);
            }
        }
        mark(&mut graph, 4);
        for f in &o.functions {
            // By name, and out of the variables that it reaches.
            let reached = o.variables.iter().filter(|v| f.relocs.iter().any(|r| r.symbol == v.name));
            let in_them = reached.flat_map(|v| &v.relocs).filter(|r| r.fill.is_of_a_function());
            let mut takes: Vec<&str> = f.takes.iter().map(String::as_str).collect();
            takes.extend(in_them.map(|r| r.symbol.as_str()));
            takes.sort_unstable();
            takes.dedup();
            for t in takes {
                pair(&mut graph, self.symbol(&f.code.name)?, self.symbol(t)?);
            }
        }
        Ok((graph, rest))
    }

    /// Fills `.nv.info` and `.nv.info.FUNCTION`.
    pub(super) fn attributes(&mut self) -> Result<(), Error> {
        let o = self.object;
        let mut all = Attrs::default();
        let images: Vec<(u32, ImageKind)> = (0..)
            .zip(&o.images)
            .map(|(n, i)| Ok((self.symbol(&ImageSymbol::key(n))?, i.kind)))
            .collect::<Result<_, Error>>()?;
        if o.asks_types {
            all.flag(Attr::IstypepUsed);
        }
        crate::images::samplers(&mut all, &o.images, &images);
        for f in o.functions.iter().rev() {
            let n = self.symbol(&f.code.name)?;
            all.words(Attr::Regcount, &[n, f.code.registers.into()]);
            // The linker adds up the frames along the call graph.
            all.words(Attr::MaxStackSize, &[n, 0]);
            all.words(Attr::FrameSize, &[n, f.code.frame_bytes]);
            if f.code.options.errors_at_exit {
                all.flag(Attr::GenErrbarAtExit);
            }
        }
        if o.independent && !o.functions.is_empty() {
            all.flag(Attr::TexmodeIndependent);
        }
        let info = self.section(".nv.info");
        info.data = all.0;
        info.link = 3;
        for f in &o.functions {
            let name = &f.code.name;
            let bank = if f.entry { Some(self.symbol(&format!(".nv.constant0.{name}"))?) } else { None };
            let held = o.variables.iter().flat_map(|v| &v.relocs).map(|r| &r.symbol);
            let held = held.filter(|_| o.holder.as_ref() == Some(name));
            let kernel = |e: &String| e != name && o.functions.iter().any(|k| k.entry && k.code.name == *e);
            let named = f.calls.iter().chain(&f.takes).chain(held);
            let named = named.filter(|e| o.externs.contains(e) || kernel(e));
            let externs: BTreeSet<u32> = named.map(|e| self.symbol(e)).collect::<Result<_, Error>>()?;
            let externs: Vec<u32> = externs.into_iter().collect();
            let data = kernel_attributes(o.sm, &f.code, bank, &externs, &images);
            let text = self.number(&f.section());
            let number = self.symbol(name)?;
            let modern = self.modern();
            let s = self.section(&format!(".nv.info.{name}"));
            (s.data, s.link, s.info) = (data, 3, text);
            let s = self.section(&f.section());
            let registers = if modern { 0 } else { u32::from(f.code.registers) << 24 };
            (s.link, s.info) = (3, number | registers);
            for prefix in [".nv.constant0.", ".nv.shared."] {
                let name = format!("{prefix}{name}");
                if self.number(&name) != 0 {
                    self.section(&name).info = text;
                }
            }
        }
        Ok(())
    }

    /// Fills the lists of unified variables and functions: each with its number and, of a variable, its place.
    pub(super) fn unified(&mut self, placed: &[Placed<'_>]) -> Result<(), Error> {
        /// A flag of every entry (observed).
        const PRESENT: u32 = 1;
        let variables = placed.iter().filter_map(|p| Some((&p.var.name, p.offset, p.var.unified?)));
        let functions = self.object.functions.iter().filter_map(|f| Some((&f.code.name, 0, f.unified?)));
        let lists: [(&str, Vec<_>); 2] =
            [(".nv.udt.entry", variables.collect()), (".nv.uft.entry", functions.collect())];
        for (section, entries) in lists {
            let mut data = Vec::new();
            for (name, offset, [a, b]) in &entries {
                data.extend(self.symbol(name)?.to_le_bytes());
                data.extend(PRESENT.to_le_bytes());
                for word in [offset, a, b] {
                    data.extend(u64::to_le_bytes(*word));
                }
            }
            if !data.is_empty() {
                let s = self.section(section);
                (s.link, s.entsize, s.data) = (3, 32, data);
            }
        }
        Ok(())
    }
}
