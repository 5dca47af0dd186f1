//! Addresses: their bases, and the state spaces that those are in. What ptxas 13.0.88 takes was asked of every instruction that has
//! an address, with every kind of base.

use super::Checker;
use super::inst::full_name;
use crate::ast::{AddrBase, Body, Inst, Operand, Space, Var};
use crate::isa::{Mod, Op, TypeClass};

impl Checker<'_> {
    /// The bases of addresses, and the spaces they are in.
    pub(super) fn addresses(&mut self, body: &Body, inst: &Inst, spaces: &[Space]) {
        // The words say the spaces of the addresses in order; what comes after them is a barrier in shared memory.
        let addresses = inst.operands.iter().filter_map(|o| match o {
            Operand::Addr(addr) => Some(addr),
            Operand::Bracket(list) => match list.first() {
                Some(Operand::Addr(addr)) => Some(addr),
                _ => None,
            },
            _ => None,
        });
        for (n, addr) in addresses.enumerate() {
            let explicit = match *spaces {
                [] => None,
                [one] if n == 0 => Some(one),
                _ => Some(spaces.get(n).copied().unwrap_or(Space::Shared)),
            };
            match addr.base {
                AddrBase::Reg(r) => {
                    let reg = &body.regs[r];
                    if matches!(reg.ty.class(), TypeClass::Float | TypeClass::Predicate) {
                        let message = format!(
                            "Illegal to use symbol '{}' of type {} as address operand. Use integer or bit only.",
                            reg.name, reg.ty
                        );
                        self.error(inst.span, message);
                    }
                    let bytes = reg.ty.bytes();
                    if bytes != 8 {
                        self.address_width(inst.span, inst.op, explicit, bytes);
                    }
                    let copied = needs_word(inst, n, explicit);
                    if bytes < 4 && copied || bytes == 4 && inst.op == Op::multimem && inst.has(Mod::red) {
                        let message = format!("Arguments mismatch for instruction '{}'", full_name(inst));
                        self.error(inst.span, message);
                    }
                }
                AddrBase::Var(v) => {
                    let space = self.module.vars[v].space;
                    // `images` looks at these, and at what holds their handles.
                    if self.module.vars[v].opaque.is_some() || takes_images(inst.op) {
                        continue;
                    }
                    let fits = explicit.map_or_else(|| generic_holds(inst.op, space), |e| e == space);
                    if inst.op == Op::ld && self.outputs.contains(&v) {
                        let name = &self.module.vars[v].name;
                        let message = format!("Illegal to read function return parameter '{name}'");
                        self.error(inst.span, message);
                    }
                    if inst.op == Op::st && self.inputs.contains(&v) {
                        let name = &self.module.vars[v].name;
                        let message = format!("Illegal to write to function input parameter '{name}'");
                        self.error(inst.span, message);
                    }
                    if !fits {
                        let message = format!(
                            "State space mismatch between instruction and address in instruction '{}'",
                            full_name(inst)
                        );
                        let Var { name, .. } = &self.module.vars[v];
                        let word = format!("{space:?}").to_lowercase();
                        self.error_with(inst.span, message, vec![format!("'{name}' is in .{word}")]);
                    }
                }
                AddrBase::Absolute => {
                    if inst.op != Op::fence && explicit != Some(Space::Local) {
                        self.error(inst.span, "Immediate addresses allowed only for .local state space");
                    }
                }
            }
        }
    }
}

/// Whether instructions are about textures, samplers or surfaces.
pub(super) fn takes_images(op: Op) -> bool {
    matches!(op, Op::tex | Op::tld4 | Op::txq | Op::suld | Op::sust | Op::sured | Op::suq)
}

/// Whether a variable of this space has an address that an instruction takes for a generic one.
fn generic_holds(op: Op, space: Space) -> bool {
    match op {
        // Nothing looks at what a fence names.
        Op::fence => true,
        // Barriers are in shared memory, whatever the address says.
        Op::mbarrier => space == Space::Shared,
        Op::prefetchu => space == Space::Global,
        _ => !matches!(space, Space::Const | Space::Param),
    }
}

/// Whether the `n`-th address of an instruction is copied to a register of 32 or 64 bits, so that no shorter one fits. (Where ptxas
/// takes the register as it is, shorter ones do.)
fn needs_word(inst: &Inst, n: usize, explicit: Option<Space>) -> bool {
    match inst.op {
        Op::wmma | Op::createpolicy | Op::tcgen05 => true,
        Op::tensormap => inst.has(Mod::replace),
        // The barrier's address, too, where it is a generic one.
        Op::st if inst.has(Mod::bulk) => n == 0,
        Op::st | Op::red => inst.has(Mod::_async) && (n == 0 || explicit.is_none()),
        Op::multimem => inst.has(Mod::red),
        Op::prefetch => inst.has(Mod::tensormap),
        Op::ldmatrix | Op::stmatrix => explicit.is_none(),
        Op::cp if inst.has(Mod::bulk) => {
            n == 2 && inst.one_of(&[Mod::tensor, Mod::reduce, Mod::multicast_cluster]).is_none()
        }
        Op::cp => inst.has(Mod::mbarrier) && inst.has(Mod::arrive) && explicit.is_none(),
        _ => false,
    }
}
