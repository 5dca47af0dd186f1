//! Whether finished code names only registers that the warp holds: follows its branches from the start, without looking at how registers
//! were given out.

use crate::emit::INST_BYTES;
use crate::units;
use sass::target::HARDWARE_REGISTERS;
use sass::{Effect, Flow, Guard, Inst, Mod, Opcode, Operand, Reg, RegFile};
use std::fmt;

/// An instruction that names a register which its warp may not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excess {
    /// Which instruction.
    pub at: usize,
    /// Registers that it needs, from R0 on, and those that the warp holds.
    pub needs: u32,
    /// See [`Excess::needs`].
    pub held: u32,
}

/// More than any instruction needs: it goes nobody knows where.
const LOST: u32 = 256;

impl Excess {
    /// Whether the way through the code was lost there, so that nothing is known of what follows.
    pub fn is_lost(&self) -> bool {
        self.needs == LOST
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Excess { at, needs, held } = self;
        let place = at * INST_BYTES as usize;
        if self.is_lost() {
            return write!(f, "instruction at {place:#x} goes where nobody can tell");
        }
        write!(f, "instruction at {place:#x} needs {needs} registers where the warp holds {held}")
    }
}

/// What is known where an instruction begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    /// Registers that a thread holds at least.
    held: u32,
    /// A predicate that is true if so many were granted by the last that asked.
    granted: Option<(Reg, u32)>,
}

impl State {
    fn join(self, other: State) -> State {
        let granted = self.granted.filter(|g| other.granted == Some(*g));
        State { held: self.held.min(other.held), granted }
    }
}

/// Whether code has instructions that change how many registers a warp holds.
pub fn changes(insts: &[Inst]) -> bool {
    insts.iter().any(|i| super::is_change(i.op))
}

/// Looks at the code of a kernel whose threads begin with `start` registers, and whose labels are byte offsets. Functions that it calls
/// are looked at where they are linked to it ([`check_linked`]).
///
/// # Errors
/// The first instruction in the order of addresses that needs more than are held there on some way, or one that goes nobody knows where.
pub fn check(insts: &[Inst], start: u32) -> Result<(), Excess> {
    follow(insts, start, false)
}

/// The same for a kernel and the functions that stand behind it, whose calls name the byte offsets at which those begin: each is to need no
/// more than a warp holds wherever it is called. Functions change nothing of that.
///
/// # Errors
/// As [`check`], and for functions that change how many are held.
pub fn check_linked(insts: &[Inst], start: u32) -> Result<(), Excess> {
    follow(insts, start, true)
}

fn follow(insts: &[Inst], start: u32, linked: bool) -> Result<(), Excess> {
    let mut states: Vec<Option<State>> = vec![None; insts.len()];
    let mut work = vec![0];
    if let Some(first) = states.first_mut() {
        *first = Some(State { held: start, granted: None });
    }
    while let Some(at) = work.pop() {
        let (Some(inst), Some(Some(state))) = (insts.get(at), states.get(at).copied()) else { continue };
        let lost = Excess { at, needs: LOST, held: state.held };
        for (next, state) in nexts(at, inst, state, linked).ok_or_else(|| lost.clone())? {
            let known = states.get_mut(next).ok_or_else(|| lost.clone())?;
            let joined = known.map_or(state, |k| k.join(state));
            if *known != Some(joined) {
                *known = Some(joined);
                work.push(next);
            }
        }
    }
    for (at, (inst, state)) in insts.iter().zip(states).enumerate() {
        let Some(State { held, .. }) = state else { continue };
        let needs = needed(inst);
        if needs != 0 && needs + u32::from(HARDWARE_REGISTERS) > held {
            return Err(Excess { at, needs, held });
        }
    }
    Ok(())
}

/// Registers that an instruction needs, from R0 on.
fn needed(inst: &Inst) -> u32 {
    if inst.op == Opcode::USETMAXREG {
        return 0;
    }
    let mut most = 0;
    let mut note = |u: units::Unit| {
        if let Some(r) = units::register(u).filter(|r| r.file == RegFile::R) {
            most = most.max(u32::from(r.index) + 1);
        }
    };
    if !inst.op.info().leaves_function() {
        units::for_each_read(inst, |u, _| note(u));
        units::for_each_write(inst, |u, _| note(u));
    }
    most
}

/// The predicate that decides where a branch goes, and whether it must be false to be taken; none if it always is.
fn condition(inst: &Inst) -> Option<(Reg, bool)> {
    let guard = (inst.guard != Guard::TRUE).then_some((inst.guard.pred, inst.guard.not));
    let operand = inst.operands.iter().find_map(|o| match o {
        Operand::Reg(r) if matches!(r.reg.file, RegFile::P | RegFile::UP) && !r.reg.is_zero() => {
            Some((r.reg, r.not))
        }
        _ => None,
    });
    guard.or(operand)
}

/// What may come behind an instruction, and what is known there; `None` if that cannot be told. Calls of functions that are `linked` lead
/// there as well, and on with what was held before them.
fn nexts(at: usize, inst: &Inst, state: State, linked: bool) -> Option<Vec<(usize, State)>> {
    let next = at + 1;
    match inst.op.info().effect {
        Effect::Control(Flow::Jump) => {
            if inst.op != Opcode::BRA {
                return None;
            }
            let to = inst.operands.iter().find_map(|o| match o {
                Operand::Label(to) => usize::try_from(*to).ok(),
                _ => None,
            })?;
            let to = to / INST_BYTES as usize;
            let condition = condition(inst);
            let on = |truth: bool| match (condition, state.granted) {
                (Some((p, not)), Some((granted, n))) if p == granted && truth != not => {
                    State { held: n, granted: None }
                }
                _ => State { granted: None, ..state },
            };
            Some(match condition {
                None => vec![(to, on(true))],
                Some(_) => vec![(to, on(true)), (next, on(false))],
            })
        }
        Effect::Control(Flow::Exit) if condition(inst).is_none() => Some(Vec::new()),
        Effect::Control(Flow::Call) if linked && inst.mods.has(Mod::REL) => {
            // One that a pointer names is nowhere.
            let named = |r: &&sass::RegOp<Reg>| r.reg.file == RegFile::R && !r.reg.is_zero();
            if inst.operands.iter().filter_map(Operand::as_reg).any(|r| named(&r)) {
                return None;
            }
            let to = inst.operands.iter().find_map(|o| match o {
                Operand::Label(to) => usize::try_from(*to).ok(),
                _ => None,
            })?;
            let state = State { granted: None, ..state };
            Some(vec![(to / INST_BYTES as usize, state), (next, state)])
        }
        Effect::Control(Flow::Return) => match (linked, condition(inst)) {
            (false, _) => None,
            (true, None) => Some(Vec::new()),
            (true, Some(_)) => Some(vec![(next, state)]),
        },
        _ => Some(vec![(next, behind(inst, state))]),
    }
}

/// What is known behind an instruction that does not branch.
fn behind(inst: &Inst, state: State) -> State {
    let number = || inst.operands.iter().find_map(|o| if let Operand::Imm(n) = o { Some(*n) } else { None });
    let predicate = |r: &sass::RegOp<Reg>| matches!(r.reg.file, RegFile::P | RegFile::UP);
    match inst.op {
        Opcode::USETMAXREG => State { held: state.held.min(number().unwrap_or(0)), granted: None },
        Opcode::USETMAXREG_ALLOC => {
            let n = number().unwrap_or(0);
            let granted = inst.operands.first().and_then(Operand::as_reg).filter(|r| predicate(r));
            State { held: state.held.min(n), granted: granted.map(|r| (r.reg, n)) }
        }
        _ => {
            let Some((p, n)) = state.granted else { return state };
            // A copy of it, and then that counts.
            if inst.op == Opcode::PLOP3 && inst.guard == Guard::TRUE {
                let mut named = inst.operands.iter().filter_map(Operand::as_reg).filter(|r| predicate(r));
                let to = named.next().map(|r| r.reg);
                let sources: Vec<_> = named.filter(|r| !r.reg.is_zero() || r.not).collect();
                let both = inst.operands.contains(&Operand::Imm(0x80));
                if let ([from], Some(to), true) = (&sources[..], to, both)
                    && from.reg == p
                    && !from.not
                {
                    return State { granted: Some((to, n)), ..state };
                }
            }
            let mut written = false;
            units::for_each_write(inst, |u, _| written |= units::register(u) == Some(p));
            State { granted: state.granted.filter(|_| !written), ..state }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sass::Target;

    /// What is found in a program of one instruction a line, in which `->N` stands for the instruction of this number.
    fn found(target: &str, start: u32, text: &str) -> Option<(usize, u32, u32)> {
        check(&insts(target, text), start).err().map(|e| (e.at, e.needs, e.held))
    }

    fn insts(target: &str, text: &str) -> Vec<Inst> {
        let target = Target::parse(target).unwrap();
        let line = |line: &str| {
            let line = match line.split_once("->") {
                Some((before, n)) => format!("{before}0x{:x}", 16 * n.parse::<u32>().unwrap()),
                None => line.to_string(),
            };
            sass::parse_inst(&line, target).unwrap_or_else(|e| panic!("{line}: {e:?}"))
        };
        text.lines().map(str::trim).filter(|l| !l.is_empty()).map(line).collect()
    }

    /// The hardware keeps two of those that are held.
    #[test]
    fn what_is_given_back_is_named_no_more() {
        let code = |r: u32| format!("MOV R100, RZ\nUSETMAXREG.DEALLOC.CTAPOOL 0x18\nMOV R{r}, RZ\nEXIT");
        assert_eq!(found("sm_90a", 168, &code(21)), None);
        assert_eq!(found("sm_90a", 168, &code(22)), Some((2, 23, 24)));
        assert_eq!(found("sm_90a", 102, &code(21)), Some((0, 101, 102)));
        // A tuple ends within, too.
        let pair = "USETMAXREG.DEALLOC.CTAPOOL 0x18\nLDG.E.64 R20, desc[UR4][R2.64]\nEXIT";
        assert_eq!(found("sm_90a", 168, pair), None);
        let quad = pair.replace(".64 R20", ".128 R20");
        assert_eq!(found("sm_90a", 168, &quad), Some((1, 24, 24)));
    }

    #[test]
    fn what_is_asked_for_is_there_where_it_was_granted() {
        let asks = "MOV R1, RZ\nUSETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0\nTEST\nMOV R237, RZ\nEXIT";
        let uniform = asks.replace("TEST", "BRA.U !UP0, ->1");
        assert_eq!(found("sm_100a", 168, &uniform), None);
        assert_eq!(found("sm_100a", 168, &uniform.replace("R237", "R238")), Some((3, 239, 240)));
        // Where it was refused, another predicate is asked, or nothing.
        assert_eq!(found("sm_100a", 168, &uniform.replace('!', "")), Some((3, 238, 168)));
        assert_eq!(found("sm_100a", 168, &uniform.replace("!UP0", "!UP1")), Some((3, 238, 168)));
        assert_eq!(found("sm_100a", 168, &asks.replace("TEST", "MOV R2, RZ")), Some((3, 238, 168)));
        let copied = asks.replace("TEST", "PLOP3.LUT P3, PT, PT, PT, UP0, 0x80, 0x0\nCHANGED\n@!P3 BRA ->1");
        assert_eq!(found("sm_90a", 168, &copied.replace("CHANGED", "MOV R2, RZ")), None);
        let other = copied.replace("CHANGED", "ISETP.NE.AND P3, PT, R2, RZ, PT");
        assert_eq!(found("sm_90a", 168, &other), Some((5, 238, 168)));
        let inverted = copied.replace("CHANGED", "MOV R2, RZ").replace("@!P3", "@P3");
        assert_eq!(found("sm_90a", 168, &inverted), Some((5, 238, 168)));
    }

    #[test]
    fn where_ways_meet_the_fewest_are_held() {
        let code =
            |r: u32| format!("@P0 BRA ->2\nUSETMAXREG.DEALLOC.CTAPOOL 0x28\nMOV R{r}, RZ\n@P1 BRA ->0\nEXIT");
        assert_eq!(found("sm_90a", 168, &code(37)), None);
        assert_eq!(found("sm_90a", 168, &code(38)), Some((2, 39, 40)));
        // By a way back.
        let back = "MOV R50, RZ\nUSETMAXREG.DEALLOC.CTAPOOL 0x28\n@P1 BRA ->0\nEXIT";
        assert_eq!(found("sm_90a", 168, back), Some((0, 51, 40)));
    }

    /// A function has what its callers hold, the fewest of them.
    #[test]
    fn functions_need_what_their_callers_hold() {
        let linked =
            |text: &str| check_linked(&insts("sm_90a", text), 168).err().map(|e| (e.at, e.needs, e.held));
        let code = |r: u32| {
            format!(
                "CALL.REL.NOINC ->4\nUSETMAXREG.DEALLOC.CTAPOOL 0x28\nCALL.REL.NOINC ->6\nEXIT\nMOV R{r}, RZ\nRET.REL.NODEC R20 ->0\nMOV R37, RZ\nRET.REL.NODEC R20 ->0"
            )
        };
        assert_eq!(linked(&code(165)), None);
        assert_eq!(linked(&code(166)), Some((4, 167, 168)));
        assert_eq!(linked(&code(165).replace("->6", "->4")), Some((4, 166, 40)));
        assert_eq!(linked(&code(1).replace("R37", "R38")), Some((6, 39, 40)));
        // By way of another.
        assert_eq!(linked(&code(99).replace("MOV R37, RZ", "CALL.REL.NOINC ->4")), Some((4, 100, 40)));
    }

    #[test]
    fn what_leads_nobody_knows_where_is_refused() {
        assert!(found("sm_90a", 168, "USETMAXREG.DEALLOC.CTAPOOL 0x28\nBRX R2 -0x10\nEXIT").is_some());
        assert!(found("sm_90a", 168, "USETMAXREG.DEALLOC.CTAPOOL 0x28\nBRA ->9").is_some());
    }
}
