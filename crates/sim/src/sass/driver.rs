//! Absolute addresses of code, and the functions that the driver provides: their arguments lie in registers
//! from R4 on, their results too.

use super::compile::{Unsupported, unsupported};
use super::mem::Space;
use super::operand::{Exec, Kind, Operands, lanes};
use super::state::{CODE, DRIVER_CODE, GRID_BARRIER, Machine, Wait};
use super::{Cause, Fault};
use crate::output::{DRIVER, Driver, format};
use sass::Opcode;

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    let absolute = |o: &Operands<'_>| o.inst.mods.iter().any(|m| m.name() == "ABS");
    Ok(Some(match o.inst.op {
        Opcode::LEPC => {
            let dst = o.dst(0, 2)?;
            // Without a label, it is the instruction's own address.
            let to = o.label(1).ok();
            Box::new(move |m, mask| {
                let here = m.warp.groups.last().map_or(0, |g| g.pc).wrapping_sub(16);
                let at = CODE + to.map_or(u64::from(here), |t| t as u64);
                lanes(mask).for_each(|l| dst.put(m.warp, l, at));
                Ok(())
            })
        }
        Opcode::CALL | Opcode::RET if absolute(o) => {
            o.ignore(&["ABS", "NOINC", "NODEC"]);
            let register = o.src(0, Kind::Long)?;
            let offset = match o.operand(1) {
                Ok(sass::Operand::Label(l)) => *l as u64,
                Ok(sass::Operand::Imm(n)) => u64::from(*n),
                Ok(_) => return unsupported("an absolute branch with this operand"),
                Err(_) => 0,
            };
            Box::new(move |m, mask| {
                let mut values = [0; 32];
                register.fetch(m.warp, &mut values);
                let mut rest = mask;
                while rest != 0 {
                    let first = rest.trailing_zeros() as usize;
                    let to = values[first].wrapping_add(offset);
                    let same = lanes(rest).filter(|l| values[*l] == values[first]).fold(0, |m, l| m | 1 << l);
                    rest &= !same;
                    let index = to.wrapping_sub(DRIVER_CODE) / 16;
                    if let Some((_, f)) = DRIVER.get(index as usize).filter(|_| to >= DRIVER_CODE) {
                        lanes(same).try_for_each(|l| call(m, *f, l))?;
                        if *f == Driver::GridSync && m.env.cooperative {
                            let next = m.warp.groups.last().map_or(0, |g| g.pc);
                            m.warp.park(same, Wait::Block(GRID_BARRIER), next);
                        }
                        continue;
                    }
                    match to.checked_sub(CODE).map(u32::try_from) {
                        Some(Ok(pc)) => m.warp.branch(same, pc),
                        _ => return Err(Fault::at(first, format!("there is no function at {to:#x}"))),
                    }
                }
                Ok(())
            })
        }
        _ => return Ok(None),
    }))
}

/// A text in memory.
fn text(m: &mut Machine<'_>, lane: usize, at: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Ok([byte]) = m.read(Space::Generic, lane, at + out.len() as u64) {
        match byte {
            0 => return Some(out),
            c if out.len() < 1 << 16 => out.push(c),
            _ => return None,
        }
    }
    None
}

fn call(m: &mut Machine<'_>, f: Driver, lane: usize) -> Result<(), Fault> {
    let long =
        |m: &Machine<'_>, r: usize| u64::from(m.warp.r[r][lane]) | u64::from(m.warp.r[r + 1][lane]) << 32;
    let (a, b) = (long(m, 4), long(m, 6));
    let thread = m.warp.first + lane as u32;
    let result = match f {
        Driver::Printf => {
            let what = text(m, lane, a).ok_or_else(|| Fault::at(lane, format!("no format at {a:#x}")))?;
            let mut at = b;
            let machine = std::cell::RefCell::new(&mut *m);
            let printed = format(
                &what,
                &mut |size| {
                    at = at.next_multiple_of(size as u64);
                    let mut m = machine.borrow_mut();
                    let x = m.load(Space::Generic, lane, at, size as u32).ok()?;
                    at += size as u64;
                    Some(x)
                },
                &mut |at| text(&mut machine.borrow_mut(), lane, at),
            );
            let printed =
                printed.ok_or_else(|| Fault::at(lane, "arguments of vprintf that are not there"))?;
            let block = m.block_number();
            m.block.output.print(block, thread, &printed);
            0
        }
        Driver::Malloc => m.memory.alloc(a)?,
        Driver::Free if a == 0 => return Ok(()),
        Driver::Free => {
            let checked = m.check.as_ref().is_some_and(|c| c.checks.memory);
            return match m.memory.free(a, checked) {
                Err(what) if checked => Err(Fault::at(lane, what.to_string()).because(Cause::Address)),
                _ => Ok(()),
            };
        }
        Driver::Assert => {
            let what = text(m, lane, a).unwrap_or_default();
            let what = format!("assertion `{}` failed", String::from_utf8_lossy(&what));
            return Err(Fault::at(lane, what).because(Cause::Assertion));
        }
        Driver::GridHandle => m.env.cooperative.into(),
        Driver::Gradient(geometry, halves) => {
            return super::texture::by_derivatives(m, lane, (geometry, halves));
        }
        // Success, or that there is no such thing.
        Driver::GridSync => u64::from(!m.env.cooperative),
    };
    m.warp.r[4][lane] = result as u32;
    if matches!(f, Driver::Malloc | Driver::GridHandle) {
        m.warp.r[5][lane] = (result >> 32) as u32;
    }
    Ok(())
}
