//! Registers that warps of a block give to each other (USETMAXREG): how many each holds, and how many nobody does.
//!
//! A block begins without any that nobody holds. What a warp gives back, or is given, holds anything.

use super::Fault;
use super::compile::{Unsupported, unsupported};
use super::operand::{Exec, Operands};
use super::state::{Machine, Warp};
use sass::target::HARDWARE_REGISTERS;

/// Prepares such an instruction.
pub(crate) fn compile(o: &Operands<'_>, asks: bool) -> Result<Exec, Unsupported> {
    let known = if asks { "TRY_ALLOC" } else { "DEALLOC" };
    if !o.take(known) || !o.take("CTAPOOL") {
        return unsupported("registers that are not those of the block");
    }
    let count = o.imm(usize::from(asks))?;
    if !asks {
        return Ok(Box::new(move |m, mask| give_back(m, mask, count)));
    }
    let granted = o.pred_dst(0)?;
    Ok(Box::new(move |m, mask| {
        let is_granted = ask(m, mask, count)?;
        super::operand::lanes(mask).for_each(|lane| granted.put(m.warp, lane, is_granted));
        Ok(())
    }))
}

fn whole(m: &Machine<'_>, mask: u32) -> Result<(), Fault> {
    if mask == m.warp.live {
        return Ok(());
    }
    Err(Fault::warp("the number of registers of a warp changes while its lanes are apart"))
}

fn give_back(m: &mut Machine<'_>, mask: u32, count: u32) -> Result<(), Fault> {
    whole(m, mask)?;
    let held = m.warp.held;
    let Some(left) = held.checked_sub(count) else {
        return Err(Fault::warp(format!("registers are given back down to {count} of {held}")));
    };
    m.block.registers += left;
    m.warp.hold(count);
    Ok(())
}

/// Whether as many as the warp asks for are there; then it has them.
fn ask(m: &mut Machine<'_>, mask: u32, count: u32) -> Result<bool, Fault> {
    whole(m, mask)?;
    let held = m.warp.held;
    let Some(more) = count.checked_sub(held) else {
        return Err(Fault::warp(format!("{count} registers are asked for, and the warp holds {held}")));
    };
    let Some(left) = m.block.registers.checked_sub(more) else {
        m.warp.asked = Some(count);
        return Ok(false);
    };
    m.block.registers = left;
    m.warp.hold(count);
    Ok(true)
}

/// Says so if an instruction needs more registers than the warp holds.
pub(crate) fn excess(needs: u32, warp: &Warp) -> Result<(), Fault> {
    let kept = u32::from(HARDWARE_REGISTERS);
    if needs == 0 || needs + kept <= warp.held {
        return Ok(());
    }
    let held = warp.held;
    Err(Fault::warp(format!(
        "needs {needs} registers, and the hardware keeps {kept} of the {held} that the warp holds"
    )))
}
