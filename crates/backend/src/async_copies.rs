//! Copies to shared memory (`cp.async`, LDGSTS) stay behind the reads of it that come before them: three loads that nobody executes,
//! `@!PT LDS RZ, [RZ]`, stand in front. Where a copy comes first in its block behind a barrier or an access of shared memory, as ptxas 13.0.88
//! has it in all of Triton's kernels; the copies that follow it need none, whether it is executed or not. Before sm_90 neither do those at
//! the start of a kernel.
//!
//! In functions with such copies four stand in front of MEMBAR, those in front of a copy before it counted, and before sm_90 four of its own in front
//! of an arrival that waits for copies (`cp.async.mbarrier.arrive`): 200 kernels for sm_80, 86, 90 and 100. Behind a copy under a guard, which is a branch around
//! it to ptxas mostly, it counts anew (16 kernels for sm_80 and 90).

use crate::machine::{Machine, MachineInst, inst};
use sass::memory::{MemoryEffects, MemorySpace};
use sass::{AddrWidth, Guard, Inst, Opcode, Operand, Reg};

/// How many loads stand in front of a copy, and in front of a fence or an arrival that waits for copies.
const BEFORE_COPY: usize = 3;
const BEFORE_FENCE: usize = 4;

/// Puts them there. `entry`: whether the function is a kernel.
pub fn run(machine: &mut Machine, entry: bool) {
    let early = machine.target.sm < 90;
    let insts = machine.blocks.iter().flat_map(|b| &b.insts);
    if !insts.into_iter().any(|i| i.inst.op == Opcode::LDGSTS) {
        return;
    }
    let mut at_start = entry && early;
    for block in &mut machine.blocks {
        // How many there are since the last barrier or access of shared memory in the block.
        let mut there = if std::mem::take(&mut at_start) { BEFORE_FENCE } else { 0 };
        // The same as fences see it.
        let mut for_fence = there;
        let mut k = 0;
        while let Some(MachineInst { inst, line, .. }) = block.insts.get(k) {
            let needs = match inst.op {
                Opcode::LDGSTS => BEFORE_COPY.saturating_sub(there),
                Opcode::MEMBAR => BEFORE_FENCE.saturating_sub(for_fence),
                Opcode::ARRIVES if early => BEFORE_FENCE,
                _ => 0,
            };
            if needs == 0 && uncovers(inst) {
                (there, for_fence) = (0, 0);
            }
            let skipped = inst.op == Opcode::LDGSTS && inst.guard != Guard::TRUE;
            let loads = std::iter::repeat_n(MachineInst::new(load(), *line), needs);
            block.insts.splice(k..k, loads);
            there += needs;
            for_fence = if skipped { 0 } else { for_fence + needs };
            k += needs + 1;
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
    if matches!(inst.op, Opcode::LDGSTS | Opcode::MEMBAR | Opcode::ARRIVES) {
        return false;
    }
    let info = inst.op.info();
    let shared = match info.accesses {
        MemoryEffects::None | MemoryEffects::ReadOnly => false,
        MemoryEffects::Fence => inst.op != Opcode::LDGDEPBAR,
        MemoryEffects::Accesses(all) => all.iter().any(|a| a.space.overlaps(MemorySpace::Shared)),
    };
    shared || info.sync || info.leaves_function()
}
