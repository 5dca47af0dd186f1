//! Copies to shared memory (`cp.async`, LDGSTS) stay behind the reads of it that come before them: three loads that nobody executes,
//! `@!PT LDS RZ, [RZ]`, stand in front. Where a copy comes first in its block behind a barrier or an access of shared memory, as ptxas 13.0.88
//! has it in all of Triton's kernels; the copies that follow it need none, whether it is executed or not. Before sm_90 neither do those at
//! the start of a kernel.

use crate::machine::{Machine, MachineInst, inst};
use sass::memory::{MemoryEffects, MemorySpace};
use sass::{AddrWidth, Guard, Inst, Opcode, Operand, Reg};

/// How many loads stand in front of a copy.
const LOADS: usize = 3;

/// Puts them there. `entry`: whether the function is a kernel.
pub fn run(machine: &mut Machine, entry: bool) {
    let mut at_start = entry && machine.target.sm < 90;
    for block in &mut machine.blocks {
        let mut covered = std::mem::take(&mut at_start);
        let mut k = 0;
        while let Some(MachineInst { inst, line, .. }) = block.insts.get(k) {
            if inst.op == Opcode::LDGSTS {
                if !covered {
                    let loads = std::iter::repeat_n(MachineInst::new(load(), *line), LOADS);
                    block.insts.splice(k..k, loads);
                    k += LOADS;
                }
                covered = true;
            } else if uncovers(inst) {
                covered = false;
            }
            k += 1;
        }
    }
}

/// A load that no thread executes.
fn load() -> Inst {
    let nowhere = Operand::Addr { desc: None, base: None, width: AddrWidth::R32, uniform: None, offset: 0 };
    let never = Guard { pred: Reg::PT, not: true };
    Inst { guard: never, ..inst(Opcode::LDS, &[], &[Operand::reg(Reg::RZ), nowhere]) }
}

/// Whether there may be reads of shared memory behind the instruction that the next copy has to stay behind.
fn uncovers(inst: &Inst) -> bool {
    let info = inst.op.info();
    let shared = match info.accesses {
        MemoryEffects::None | MemoryEffects::ReadOnly => false,
        MemoryEffects::Fence => inst.op != Opcode::LDGDEPBAR,
        MemoryEffects::Accesses(all) => all.iter().any(|a| a.space.overlaps(MemorySpace::Shared)),
    };
    shared || info.sync || info.leaves_function()
}
