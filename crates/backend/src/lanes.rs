//! What lanes do together keeps its lanes behind the allocation of registers, too: [`ori::verify::lanes`] over machine code.

use crate::machine::Machine;
use ori::verify::lanes::{Watch, counts_lanes};
use ori::{Allocated, Block, BlockCall, BlockData, Guard, InstData, Loc, Op, Terminator};
use sass::{Effect, Flow, Opcode, Reg};

/// Holds machine code to what the function has whose phases were watched so far.
///
/// # Errors
/// Every violation found.
pub fn check(watch: &Watch, func: &Allocated, machine: &Machine) -> Result<(), Vec<String>> {
    if watch.is_on() { watch.allocated(&skeleton(func, machine)) } else { Ok(()) }
}

/// The function that machine code is, as far as it counts lanes: blocks with those instructions alone, the lines of their branches, and a
/// block at which threads end.
fn skeleton(func: &Allocated, machine: &Machine) -> Allocated {
    let none = ori::Function::new(&func.name, func.target);
    let mut out = none.with_code(Default::default(), Default::default());
    out.layout.clear();
    let call = |n: u32| BlockCall { block: Block::from_u32(n), args: Default::default() };
    let end = machine.blocks.len() as u32;
    for block in &machine.blocks {
        let mut insts = Vec::new();
        let (mut line, mut ends) = (0, false);
        for i in &block.insts {
            let guarded = i.inst.guard != sass::Guard::TRUE;
            if counts_lanes(i.inst.op) {
                let operands = i.inst.operands.iter();
                insts.push(out.insts.push(InstData {
                    guard: Guard { pred: i.inst.guard.pred, not: i.inst.guard.not },
                    op: Op::Sass(i.inst.op),
                    mods: i.inst.mods.clone(),
                    operands: operands.map(|o| o.map(|r| r, |to| Block::from_u32(to as u32))).collect(),
                    kept: Default::default(),
                    loc: Loc(i.line),
                }));
            }
            if matches!(i.inst.op.info().effect, Effect::Control(Flow::Jump | Flow::Exit)) {
                line = if line == 0 || guarded { i.line } else { line };
                ends |= i.inst.op == Opcode::EXIT && guarded;
            }
        }
        let mut to: Vec<u32> = block.succs.iter().copied().filter(|s| *s < end).collect();
        if ends {
            to.push(end);
        }
        let term = match to[..] {
            [] => Terminator::Exit,
            [one] => Terminator::Jump(call(one)),
            [one, other] => {
                Terminator::Branch { cond: Reg::PT, not: false, taken: call(one), fall: call(other) }
            }
            _ => Terminator::Switch { index: Reg::RZ, table: to.iter().map(|n| call(*n)).collect() },
        };
        let data = BlockData { insts, term, term_loc: Loc(line), ..BlockData::unreached() };
        out.layout.push(out.blocks.push(data));
    }
    let last = BlockData { term: Terminator::Exit, ..BlockData::unreached() };
    out.layout.push(out.blocks.push(last));
    out
}
