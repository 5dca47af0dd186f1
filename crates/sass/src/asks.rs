//! What instructions ask of those who run a file, as ptxas states it in `.nv.compat` (`isa/asks.isa`).

use crate::isa::ASKS;
use crate::{Inst, Mod, Opcode};

/// What something asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asks {
    /// EICOMPAT_ATTR_ISA_CLASS: 1, or up to 4 for instructions that not every SM of the family has as they are.
    pub class: u8,
    /// EICOMPAT_ATTR_INST_TENSORMAP_V1: bit 0 for copies by tensor maps, bit 1 for changing maps.
    pub tensor_maps: u8,
}

impl Asks {
    /// What most instructions ask for.
    pub const NOTHING: Asks = Asks { class: 1, tensor_maps: 0 };

    /// Both this and the other.
    pub fn join(&mut self, other: Asks) {
        self.class = self.class.max(other.class);
        self.tensor_maps |= other.tensor_maps;
    }
}

impl Default for Asks {
    fn default() -> Asks {
        Asks::NOTHING
    }
}

/// A row of the table.
pub(crate) struct AskRow {
    pub op: Opcode,
    /// Modifiers that the instruction has in this order, among others.
    pub mods: &'static [Mod],
    pub sms: &'static [u8],
    pub asks: Asks,
}

/// What an instruction asks for.
pub fn asks(sm: u8, inst: &Inst) -> Asks {
    let mut asks = Asks::NOTHING;
    let from = ASKS.partition_point(|r| r.op < inst.op);
    let rows = ASKS[from..].iter().take_while(|r| r.op == inst.op);
    let fit = rows.filter(|r| {
        let mut all = inst.mods.iter();
        r.sms.contains(&sm) && r.mods.iter().all(|m| all.any(|a| a == *m))
    });
    fit.for_each(|r| asks.join(r.asks));
    asks
}
