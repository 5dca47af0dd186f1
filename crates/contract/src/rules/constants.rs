//! What is read of the constant banks that the driver fills.

use super::Rule;
use crate::{File, Place};
use sass::{ConstBank, Operand};

pub struct Constants;

impl Rule for Constants {
    fn name(&self) -> &'static str {
        "constants"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/constants.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        let base = i32::from(file.target.info().param_base);
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate() {
                let Some(inst) = item.inst() else { continue };
                for (i, operand) in inst.operands.iter().enumerate() {
                    let Operand::Const { bank: ConstBank::Index(bank), index, offset, .. } = operand else {
                        continue;
                    };
                    let width = inst.op.width(i, &inst.mods);
                    let place = Place::inst(k, at);
                    match bank {
                        0 if *offset < base && index.is_none() => {
                            see(place, &format!("c0 {offset:#x} x{width}"))
                        }
                        0 => see(place, "c0 parameters"),
                        bank => see(place, &format!("c{bank} of {}", inst.op)),
                    }
                }
            }
        }
    }
}
