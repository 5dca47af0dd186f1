//! Where tuples of registers begin: the alignment of the number of the first one.

use super::{Judge, Rule};
use crate::{Family, File, Place, Table};
use sass::{AddrWidth, Operand, Reg, RegFile};
use std::collections::HashMap;

pub struct Tuples;

impl Rule for Tuples {
    fn name(&self) -> &'static str {
        "tuples"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/tuples.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate() {
                let Some(inst) = item.inst() else { continue };
                let mut tuple = |name: String, reg: Reg, width: u8| {
                    let number = matches!(reg.file, RegFile::R | RegFile::UR) && !reg.is_zero();
                    if number && width > 1 {
                        let most = width.next_power_of_two().trailing_zeros();
                        let by = 1u32 << u32::from(reg.index).trailing_zeros().min(most);
                        see(
                            Place::inst(k, at),
                            &format!("{} {name} {:?}x{width} at {by}", inst.op, reg.file),
                        );
                    }
                };
                for (i, operand) in inst.operands.iter().enumerate() {
                    let slot = char::from(b'a' + i as u8);
                    match operand {
                        Operand::Reg(r) => tuple(slot.to_string(), r.reg, inst.op.width(i, &inst.mods)),
                        Operand::Addr { desc, base, width, uniform, .. } => {
                            if let (Some(r), AddrWidth::R64) = (base, width) {
                                tuple(format!("{slot}base"), *r, 2);
                            }
                            if let Some(r) = desc {
                                tuple(format!("{slot}desc"), *r, 2);
                            }
                            // Addresses of shared memory have 32 bits.
                            if let Some(r) = uniform.filter(|_| desc.is_some()) {
                                tuple(format!("{slot}uniform"), r, 2);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        let mut least = HashMap::new();
        for family in Family::all() {
            for (text, _) in table.of(family) {
                let Some((what, by)) = parts(text) else { continue };
                let entry = least.entry((family, what.to_string())).or_insert(by);
                *entry = by.min(*entry);
            }
        }
        Box::new(Alignments(least))
    }
}

/// What begins, and at multiples of what.
fn parts(text: &str) -> Option<(&str, u32)> {
    let (what, by) = text.split_once(" at ")?;
    Some((what, by.parse().ok()?))
}

/// The least alignment of each tuple. One that was never seen is the affair of the forms.
struct Alignments(HashMap<(Family, String), u32>);

impl Judge for Alignments {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let (what, by) = parts(observation)?;
        let least = *self.0.get(&(family, what.to_string()))?;
        (by < least).then(|| format!("{observation}; seen: {least}"))
    }
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        parts(observation).is_some_and(|(what, _)| !self.0.contains_key(&(family, what.to_string())))
    }
}
