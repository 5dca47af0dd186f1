//! Control fields: scoreboards for results that arrive after an unknown time ([`scoreboards`]), stall counts
//! for the others ([`stalls`]); [`check`] proves, independently, that every dependence is covered.

pub mod check;
mod pacing;
mod scoreboards;
mod stalls;

use crate::machine::{self, Machine, MachineInst};
use crate::timing;
use sass::{Control, Opcode, Unit};

/// Fills in the control field of every instruction; may insert NOPs.
pub fn run(machine: &mut Machine, one_by_one: bool) {
    if one_by_one {
        serial(machine);
    } else {
        scoreboards::run(machine);
        stalls::run(machine);
        pacing::run(machine);
        for inst in machine.blocks.iter_mut().flat_map(|b| &mut b.insts).map(|i| &mut i.inst) {
            // As ptxas: a warp gives way where it waits for a result anyway, and not at barriers.
            let stays = inst.op.info().control
                || inst.op.unit() == Unit::Control
                    && !matches!(inst.op, Opcode::NOP | Opcode::DEPBAR | Opcode::PMTRIG);
            let gives_way = inst.ctrl.stall >= 3 && !stays && inst.ctrl.write_sb.is_none();
            inst.ctrl.no_yield = inst.ctrl.stall < 12 && !gives_way;
            // The one behind it issues when it is done, as in ptxas's code.
            if matches!(inst.op, Opcode::ERRBAR | Opcode::USETMAXREG) {
                inst.ctrl.stall = 0;
                inst.ctrl.no_yield = false;
            }
        }
    }
}

/// Every instruction waits for everything, or one before it does.
fn serial(machine: &mut Machine) {
    let target = machine.target;
    for block in &mut machine.blocks {
        // Products of matrices take longer than one stall lasts.
        for k in (0..block.insts.len()).rev() {
            let MachineInst { inst, line, .. } = &block.insts[k];
            let nop = MachineInst::new(machine::inst(Opcode::NOP, &[], &[]), *line);
            if timing::pace(target, inst) != 0 {
                block.insts.insert(k + 1, nop);
            } else if inst.op.info().waitless {
                block.insts.insert(k, nop);
            }
        }
    }
    for inst in machine.blocks.iter_mut().flat_map(|b| &mut b.insts).map(|i| &mut i.inst) {
        inst.ctrl = Control {
            stall: 15,
            no_yield: false,
            write_sb: (timing::is_variable(target, inst) || inst.op.info().awaited).then_some(0),
            // What is loaded of tensor memory tells when its address was read.
            read_sb: (timing::reads_late(target, inst) && inst.op != Opcode::LDTM).then_some(1),
            wait: if inst.op.info().waitless { 0 } else { 0b11 },
            reuse: 0,
        };
    }
}
