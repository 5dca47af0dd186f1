//! What is read of the constant banks that the driver fills.

use super::{Judge, Rule, Seen};
use crate::{Family, File, Place, Table};
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
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        Box::new(Words(Seen::new(table)))
    }
}

/// What is read as a pair may be read as two words. (A load of a pair counts as one of its first word.)
struct Words(Seen);

impl Judge for Words {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let found = self.0.judge(family, observation)?;
        let word = observation.strip_prefix("c0 0x").and_then(|rest| rest.strip_suffix(" x1"));
        let first = word.and_then(|digits| i32::from_str_radix(digits, 16).ok()).map(|at| at & !7);
        let seen = |width: u8| {
            let pair = first.map(|at| format!("c0 {at:#x} x{width}"));
            pair.is_some_and(|pair| self.0.judge(family, &pair).is_none())
        };
        if seen(2) || seen(1) { None } else { Some(found) }
    }
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        self.0.is_foreign(family, observation)
    }
}
