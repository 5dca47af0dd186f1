//! Bits that no field of a form covers: what a word has besides what the encoder makes of its text.

use super::Rule;
use crate::file::INST_BYTES;
use crate::{File, Place};

pub struct Bits;

impl Rule for Bits {
    fn name(&self) -> &'static str {
        "bits"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/bits.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate() {
                let Some(inst) = item.inst() else { continue };
                let again = sass::encode(inst, file.target, INST_BYTES * at as i64);
                let text = match again {
                    Ok(word) if word == item.word => format!("{} none", inst.op),
                    Ok(word) => format!("{} {:#x}", inst.op, word ^ item.word),
                    Err(_) => format!("{} not encoded", inst.op),
                };
                see(Place::inst(k, at), &text);
            }
        }
    }
}
