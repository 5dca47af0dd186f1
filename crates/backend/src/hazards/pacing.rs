//! Distances between instructions of the slow binary64 units.
//!
//! On sm_103, 110, 120 and 121 ptxas 13.0 issues them 64 cycles apart within a basic block, with NOPs where nothing
//! else is left to do; across blocks it doesn't. Conversions from and to binary64 count.

use crate::machine::{Machine, MachineInst, inst};
use sass::{Inst, Mod, Opcode, Unit};

/// Cycles from one to the next.
const DISTANCE: u32 = 64;
const MAX_STALL: u8 = 15;

fn is_slow(i: &Inst) -> bool {
    i.op.unit() == Unit::Fp64 || i.op == Opcode::F2F && i.mods.has(Mod::F64)
}

/// Spreads the binary64 instructions of each block; the stall counts are final before and after.
pub fn run(machine: &mut Machine) {
    if !machine.target.info().paced_fp64 {
        return;
    }
    for block in &mut machine.blocks {
        if block.insts.iter().filter(|i| is_slow(&i.inst)).count() < 2 {
            continue;
        }
        let old = std::mem::take(&mut block.insts);
        let mut since = DISTANCE;
        for i in old {
            if is_slow(&i.inst) {
                let mut lack = DISTANCE.saturating_sub(since);
                if lack != 0
                    && let Some(last) = block.insts.last_mut()
                {
                    let stall = &mut last.inst.ctrl.stall;
                    let more = u32::from(MAX_STALL.saturating_sub(*stall)).min(lack);
                    *stall += more as u8;
                    lack -= more;
                }
                while lack != 0 {
                    let mut nop = inst(Opcode::NOP, &[], &[]);
                    nop.ctrl.stall = lack.min(MAX_STALL.into()) as u8;
                    lack -= u32::from(nop.ctrl.stall);
                    block.insts.push(MachineInst::new(nop, i.line));
                }
                since = 0;
            }
            since += u32::from(i.inst.ctrl.stall);
            block.insts.push(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::{Machine, MachineBlock, MachineInst};
    use sass::{Opcode, Target};

    #[test]
    fn sixty_four_cycles_apart() {
        for (sm, expected) in [(100, 3), (120, 11), (103, 11)] {
            let ops = [Opcode::DADD, Opcode::DMUL, Opcode::DFMA];
            let insts = ops.map(|op| {
                let operands = vec![sass::Operand::reg(sass::Reg::RZ); op.slots().len()];
                let mut i = super::inst(op, &[], &operands);
                i.ctrl.stall = 2;
                MachineInst::new(i, 0)
            });
            let block = MachineBlock { insts: insts.to_vec(), ..MachineBlock::default() };
            let target = Target::new(sm).unwrap();
            let mut machine = Machine::new(target, vec![block]);
            super::run(&mut machine);
            let insts = &machine.blocks[0].insts;
            assert_eq!(insts.len(), expected, "sm_{sm}");
            let total: u32 = insts.iter().map(|i| u32::from(i.inst.ctrl.stall)).sum();
            assert_eq!(total, if sm == 100 { 6 } else { 2 * 64 + 2 });
        }
    }
}
