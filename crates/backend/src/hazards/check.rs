//! Proves that control fields cover every dependence, along every path. Independent of the passes that
//! choose them: it works on a plain list of instructions with byte offsets as branch targets.

use crate::timing;
use crate::units::{self, COUNT, Unit};
use sass::{Guard, Inst, Opcode, Operand, Target};
use std::collections::BTreeMap;

/// Bytes of an instruction.
const INST_BYTES: i64 = 16;
/// Ages are counted up to here.
const OLD: u16 = 64;
/// The unit of effects that no register shows.
const EFFECT: Unit = COUNT as Unit + 6;
/// The unit of what accesses and barriers wait for.
const ORDER: Unit = COUNT as Unit + 7;
/// From a read at issue to a write: no line of the table has more.
const MOST_FROM_READ: u16 = 8;

/// A dependence that is not covered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Index of the instruction that comes too early.
    pub at: usize,
    /// Index of the instruction that it depends on.
    pub on: usize,
    /// The register unit.
    pub unit: Unit,
    /// What is missing.
    pub why: Why,
}

/// What a [`Violation`] lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// A variable-latency result has no scoreboard, or nobody waits for it.
    Unwaited,
    /// A source is overwritten that may not have been read yet.
    Overwrites,
    /// The stall counts give fewer cycles than needed.
    TooEarly {
        /// Cycles given.
        has: u16,
        /// Cycles needed.
        needs: u16,
    },
    /// The instruction comes before the effect of another one.
    Early {
        /// Cycles given.
        has: u16,
        /// Cycles needed.
        needs: u16,
    },
    /// The wait comes so soon after the scoreboard was set that it doesn't see it.
    SetTooLate,
    /// The next instruction comes while this one is still being issued.
    Stall {
        /// Cycles given.
        has: u8,
        /// Cycles needed.
        needs: u8,
    },
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (at, on) = (self.at as i64 * INST_BYTES, self.on as i64 * INST_BYTES);
        if self.unit == ORDER {
            return write!(f, "{at:#06x} does not wait until {on:#06x} is done");
        }
        if let Why::Early { has, needs } = self.why {
            return write!(f, "{at:#06x} comes {has} cycles behind {on:#06x}, {needs} needed");
        }
        let (file, unit) = (units::file(self.unit), self.unit);
        write!(f, "{at:#06x} depends on {on:#06x} through {file:?} unit {unit}: ")?;
        match self.why {
            Why::Unwaited => write!(f, "result is not waited for"),
            Why::Overwrites => write!(f, "source is overwritten before it is read"),
            Why::TooEarly { has, needs } => write!(f, "{has} cycles, {needs} needed"),
            Why::SetTooLate => write!(f, "waits right after the scoreboard is set"),
            Why::Early { .. } => Ok(()),
            Why::Stall { has, needs } => write!(f, "stalls {has} cycles, {needs} needed"),
        }
    }
}

/// What is under way for a unit because of one instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A fixed-latency write.
    Fixed,
    /// A variable-latency write, with its scoreboard.
    Variable(Option<u8>),
    /// A late read, with its own scoreboard and that of the results, which come after it.
    Read(Option<u8>, Option<u8>),
    /// A read at issue.
    Source,
    /// Scoreboard `unit - COUNT` was set.
    Set,
    /// An effect that no register shows; its unit is [`EFFECT`].
    Effect,
    /// Accesses and barriers wait for this scoreboard; its unit is [`ORDER`].
    Awaited(Option<u8>),
}

/// Everything under way: (unit, kind, instruction) to the least age.
type State = BTreeMap<(Unit, Kind, u32), u16>;

/// Checks a function's instructions.
///
/// # Errors
/// The violations, in address order.
pub fn check(target: Target, insts: &[Inst]) -> Result<(), Vec<Violation>> {
    let mut leaders = vec![false; insts.len() + 1];
    if let Some(first) = leaders.first_mut() {
        *first = true;
    }
    for (k, inst) in insts.iter().enumerate() {
        if let Some(t) = label(inst) {
            if t < leaders.len() && inst.op != Opcode::BSSY {
                leaders[t] = true;
            }
            leaders[k + 1] = true;
        }
    }
    let mut entry: BTreeMap<usize, State> = BTreeMap::from([(0, State::new())]);
    let mut work = vec![0usize];
    let mut found: BTreeMap<(usize, usize, Unit), Why> = BTreeMap::new();
    while let Some(start) = work.pop() {
        let mut state = entry.get(&start).cloned().unwrap_or_default();
        let mut k = start;
        while let Some(inst) = insts.get(k) {
            step(target, insts, &mut state, k, &mut |on, unit, why| {
                found.entry((k, on, unit)).or_insert(why);
            });
            if inst.op != Opcode::BSSY
                && let Some(t) = label(inst)
            {
                flow(&mut entry, &mut work, t, &state);
            }
            if inst.op.info().leaves_function() {
                state.clear();
            }
            let ends = matches!(inst.op, Opcode::BRA | Opcode::EXIT | Opcode::RET) && always(inst);
            if ends {
                break;
            }
            k += 1;
            if leaders[k] {
                flow(&mut entry, &mut work, k, &state);
                break;
            }
        }
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(found.into_iter().map(|((at, on, unit), why)| Violation { at, on, unit, why }).collect())
    }
}

/// Whether a branch is taken by every lane that comes to it.
fn always(inst: &Inst) -> bool {
    inst.guard == Guard::TRUE
        && inst.operands.iter().all(|o| match o {
            Operand::Reg(r) => r.reg.is_zero() && !r.not,
            _ => true,
        })
}

fn label(inst: &Inst) -> Option<usize> {
    if inst.op.info().leaves_function() || inst.op == Opcode::LEPC {
        return None;
    }
    inst.operands.iter().find_map(|o| match o {
        Operand::Label(t) => usize::try_from(*t / INST_BYTES).ok(),
        _ => None,
    })
}

/// Carries a state to the start of a block; queues it if that brought anything new.
fn flow(entry: &mut BTreeMap<usize, State>, work: &mut Vec<usize>, to: usize, state: &State) {
    let mut changed = !entry.contains_key(&to);
    let into = entry.entry(to).or_default();
    for (key, age) in state {
        match into.get_mut(key) {
            Some(old) if *old <= *age => {}
            Some(old) => {
                *old = *age;
                changed = true;
            }
            None => {
                into.insert(*key, *age);
                changed = true;
            }
        }
    }
    if changed && !work.contains(&to) {
        work.push(to);
    }
}

fn step(
    target: Target,
    insts: &[Inst],
    state: &mut State,
    k: usize,
    report: &mut dyn FnMut(usize, Unit, Why),
) {
    let inst = &insts[k];
    let wait = inst.ctrl.wait;
    let waits = |s: Option<u8>| s.is_some_and(|s| wait >> s & 1 != 0);
    for ((unit, kind, on), age) in state.iter() {
        let board = usize::from(*unit).checked_sub(COUNT).map(|s| s as u8);
        if *kind == Kind::Set && waits(board) && *age < 2 {
            report(*on as usize, *unit, Why::SetTooLate);
        }
    }
    state.retain(|(_, kind, _), _| match kind {
        Kind::Variable(s) | Kind::Awaited(s) => !waits(*s),
        Kind::Read(read, write) => !waits(*read) && !waits(*write),
        _ => true,
    });
    if timing::awaits(inst.op) {
        for (_, _, on) in state.keys().filter(|(_, kind, _)| matches!(kind, Kind::Awaited(..))) {
            report(*on as usize, ORDER, Why::Unwaited);
        }
    }
    let effects = state.range((EFFECT, Kind::Effect, 0)..=(EFFECT, Kind::Effect, u32::MAX));
    for ((_, _, on), age) in effects {
        let needs = u16::from(timing::apart(target, &insts[*on as usize], inst));
        if *age < needs {
            report(*on as usize, EFFECT, Why::Early { has: *age, needs });
        }
    }
    let early = |age: u16, needs: u8| {
        let needs = u16::from(needs);
        (age < needs).then_some(Why::TooEarly { has: age, needs })
    };
    if crate::pool::is_change(inst.op) {
        // The warp's registers change when all that is to be written is.
        for ((unit, _, on), age) in state.iter().filter(|((_, kind, _), _)| *kind == Kind::Fixed) {
            if let Some(why) = early(*age, timing::longest(target, &insts[*on as usize]).0) {
                report(*on as usize, *unit, why);
            }
        }
    }
    let of = |u: Unit| state.range((u, Kind::Fixed, 0)..(u + 1, Kind::Fixed, 0));
    units::for_each_read(inst, |u, site| {
        for ((_, kind, on), age) in of(u) {
            let why = match kind {
                Kind::Fixed => early(*age, timing::raw(target, &insts[*on as usize], u, inst, site)),
                Kind::Variable(_) => Some(Why::Unwaited),
                Kind::Read(..) | Kind::Source | Kind::Set | Kind::Effect | Kind::Awaited(..) => None,
            };
            if let Some(why) = why {
                report(*on as usize, u, why);
            }
        }
    });
    units::for_each_write(inst, |u, _| {
        for ((_, kind, on), age) in of(u) {
            let why = match kind {
                Kind::Fixed => early(*age, timing::waw(target, &insts[*on as usize], u, inst)),
                Kind::Variable(_) => Some(Why::Unwaited),
                Kind::Read(..) => Some(Why::Overwrites),
                Kind::Source => early(*age, timing::war(target, &insts[*on as usize], u, inst)),
                Kind::Set | Kind::Effect | Kind::Awaited(..) => None,
            };
            if let Some(why) = why {
                report(*on as usize, u, why);
            }
        }
    });
    let (has, needs) = (inst.ctrl.stall, timing::least_stall(target, inst));
    if has != 0 && has < needs {
        report(k, 0, Why::Stall { has, needs });
    }
    // A stall of 0 drains the pipeline.
    let stall = if inst.ctrl.stall == 0 { 16 } else { u16::from(inst.ctrl.stall) };
    for age in state.values_mut() {
        *age = (*age + stall).min(OLD);
    }
    state.retain(|(_, kind, _), age| match kind {
        Kind::Variable(_) | Kind::Read(..) | Kind::Awaited(..) => true,
        Kind::Source => *age < MOST_FROM_READ,
        Kind::Fixed | Kind::Set | Kind::Effect => *age < OLD,
    });
    let at = k as u32;
    let variable = timing::is_variable(target, inst);
    units::for_each_write(inst, |u, _| {
        let early = timing::arrives_with_sources(target, inst, u);
        let kind = match variable {
            true => Kind::Variable(if early { inst.ctrl.read_sb } else { inst.ctrl.write_sb }),
            false => Kind::Fixed,
        };
        state.insert((u, kind, at), stall);
    });
    if timing::longest_apart(target, inst.op) != 0 {
        state.insert((EFFECT, Kind::Effect, at), stall);
    }
    if timing::is_awaited(inst) {
        state.insert((ORDER, Kind::Awaited(inst.ctrl.write_sb), at), stall);
    }
    let late = timing::reads_late(target, inst);
    units::for_each_read(inst, |u, _| {
        if late && matches!(units::file(u), sass::RegFile::R | sass::RegFile::UR) {
            state.insert((u, Kind::Read(inst.ctrl.read_sb, inst.ctrl.write_sb), at), stall);
        } else if stall < MOST_FROM_READ {
            state.insert((u, Kind::Source, at), stall);
        }
    });
    for s in [inst.ctrl.write_sb, inst.ctrl.read_sb].into_iter().flatten() {
        state.insert((COUNT as Unit + Unit::from(s), Kind::Set, at), stall);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations of lines, each with its control field: `[B------:R-:W-:-:S01] EXIT`.
    fn found(lines: &[&str]) -> Vec<String> {
        let target = Target::parse("sm_90").expect("a target");
        let inst = |line: &&str| {
            let (control, text) = line.split_once("] ").expect("a control field");
            let mut inst = sass::parse_inst(text, target).unwrap_or_else(|e| panic!("{text}: {e}"));
            inst.ctrl = format!("{control}]").parse().expect("a control field");
            inst
        };
        let insts: Vec<Inst> = lines.iter().map(inst).collect();
        check(target, &insts).err().unwrap_or_default().iter().map(Violation::to_string).collect()
    }

    /// `tensormap.cp_fenceproxy` copies a map by exchanges: what reads it comes when they are done, although they give nothing.
    #[test]
    fn exchanges_without_result_are_awaited() {
        let exchange = "[B------:R-:W0:-:S02] ATOMG.E.EXCH.STRONG.GPU PT, RZ, desc[UR4][R2.64], R5";
        let untold = "[B------:R0:W-:-:S02] ATOMG.E.EXCH.STRONG.GPU PT, RZ, desc[UR4][R2.64], R5";
        let load = |wait| format!("[B{wait}-----:R-:W1:-:S02] LDG.E R6, desc[UR4][R8.64]");
        let (early, late) = (load('-'), load('0'));
        assert_eq!(found(&[exchange, &late]), [""; 0]);
        assert_eq!(found(&[exchange, &early]), ["0x0010 does not wait until 0x0000 is done"]);
        assert_eq!(found(&[untold, &late]), ["0x0010 does not wait until 0x0000 is done"]);
        let sum = "[B------:R-:W-:-:S05] IADD3 R10, R11, R12, RZ";
        assert_eq!(found(&[exchange, sum, &late]), [""; 0]);
    }
}
