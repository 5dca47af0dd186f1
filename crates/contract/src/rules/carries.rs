//! Who makes the carries that wide sums, products and shifted sums read.

use super::Rule;
use crate::registers::writes;
use crate::{File, Kernel, Place};
use sass::{Mod, Opcode, Reg, RegFile, Role};

pub struct Carries;

impl Rule for Carries {
    fn name(&self) -> &'static str {
        "carries"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/carries.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(inst) = item.inst().filter(|i| i.mods.has(Mod::X)) else { continue };
                for (operand, slot) in inst.operands.iter().zip(inst.op.slots()) {
                    let carry = operand.as_reg().map(|r| r.reg).filter(|r| {
                        slot.role == Role::Use && matches!(r.file, RegFile::P | RegFile::UP) && !r.is_zero()
                    });
                    if let Some(carry) = carry {
                        let maker = maker(kernel, at, carry).map_or("what comes before", |op| op.name());
                        see(Place::inst(k, at), &format!("{}.X with a carry of {maker}", inst.op));
                    }
                }
            }
        }
    }
}

/// Who wrote a predicate last, as far as it stands in the same stretch of code.
fn maker(kernel: &Kernel, at: usize, carry: Reg) -> Option<Opcode> {
    let mut k = at;
    while !kernel.items[k].leader {
        k -= 1;
        if let Some(inst) = kernel.items[k].inst()
            && writes(inst, carry)
        {
            return Some(inst.op);
        }
    }
    None
}
