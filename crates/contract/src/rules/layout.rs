//! Sections of code as a whole: size, padding, first and last instruction, targets of branches.

use super::{Judge, Rule, Seen};
use crate::file::label;
use crate::{Counts, Family, File, Place, Table};
use sass::{Inst, Opcode, RegFile};

pub struct Layout;

impl Rule for Layout {
    fn name(&self) -> &'static str {
        "layout"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/layout.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            let place = Place::kernel(k);
            let op = |at: usize| kernel.items.get(at).and_then(|i| i.op()).map_or("nothing", |o| o.name());
            see(place, &format!("size modulo 128 is {}", kernel.items.len() * 16 % 128));
            let used = (kernel.length + 1).next_multiple_of(8);
            let spare = (kernel.items.len() as i64 - used as i64) / 8;
            see(place, &format!("size beyond the padding {spare}"));
            // Functions begin with anything.
            if !file.image.kernels[&kernel.name].constant0.is_empty() {
                see(place, &format!("begins with {}", op(0)));
            }
            if let Some(last) = kernel.length.checked_sub(1) {
                see(Place::inst(k, last), &format!("ends with {}", op(last)));
            }
            for (at, item) in kernel.items.iter().enumerate().skip(kernel.length) {
                see(Place::inst(k, at), &format!("padding {} {:#x}", op(at), item.word));
            }
            for (name, start, _) in &file.image.kernels[&kernel.name].functions {
                let own = if *name == kernel.name { "entry" } else { "function" };
                see(place, &format!("{own} modulo 128 is {}", start % 128));
            }
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(inst) = item.inst() else { continue };
                let Some(to) = label(inst) else { continue };
                if inst.op == Opcode::BSSY {
                    let sync = to.checked_sub(1).and_then(|t| kernel.items.get(t)).and_then(|i| i.inst());
                    let barrier = |i: &Inst| {
                        let mut all = i.operands.iter().filter_map(|o| o.as_reg().map(|r| r.reg));
                        all.find(|r| r.file == RegFile::B)
                    };
                    let own = sync.is_some_and(|s| s.op == Opcode::BSYNC && barrier(s) == barrier(inst));
                    see(
                        Place::inst(k, at),
                        if own { "BSSY to behind its BSYNC" } else { "BSSY to elsewhere" },
                    );
                    continue;
                }
                let kind = match to {
                    to if to == at => "itself",
                    to if to < kernel.length => "code",
                    to if to == kernel.length => "the last branch",
                    to if to < kernel.items.len() => "padding",
                    _ => "elsewhere",
                };
                see(Place::inst(k, at), &format!("{} to {kind}", inst.op));
            }
        }
    }
    /// What code as a whole looks like is the same for all targets.
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        let mut counts = Counts::default();
        for (text, n) in Family::all().flat_map(|f| table.of(f)) {
            Family::all().for_each(|f| counts.add(f, text, n));
        }
        Box::new(Seen::new(&Table::new(counts)))
    }
}
