//! Whether `.nv.compat` states what the code asks for by the table of crates/sass (`isa/asks.isa`), which is ptxas's: of each class that
//! code asks for, which classes are stated. More is where statements leave no instruction that asks for it.

use super::Rule;
use crate::elf::{Elf, NV_COMPAT, split};
use crate::{File, Place};
use sass::Asks;

pub struct Stated;

const ISA_CLASS: u8 = 2;
const INST_TENSORMAP_V1: u8 = 3;

impl Rule for Stated {
    fn name(&self) -> &'static str {
        "asks"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/asks.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        let Ok(elf) = Elf::new(file.bytes) else { return };
        let Some(section) = elf.sections.iter().find(|s| s.ty == NV_COMPAT) else { return };
        let mut asked = Asks::NOTHING;
        for inst in file.kernels.iter().flat_map(|k| &k.items).filter_map(|i| i.inst()) {
            asked.join(sass::asks(file.target.sm, inst));
        }
        let records = split(elf.bytes(section));
        for (code, name, asked) in [
            (ISA_CLASS, "ISA_CLASS", asked.class),
            (INST_TENSORMAP_V1, "INST_TENSORMAP_V1", asked.tensor_maps),
        ] {
            let record = records.iter().find(|r| r.1 == code).and_then(|r| r.2.first());
            let stated = record.map_or("nothing".into(), u8::to_string);
            see(Place::FILE, &format!("{name} {stated} stated of code that asks for {asked}"));
        }
    }
}
