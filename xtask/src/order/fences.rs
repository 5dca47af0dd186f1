//! Fences, barriers and strong accesses spoilt.

use super::place;
use sass::{Inst, Mod, Mods, Opcode, Operand};
use sim::order::Code;

/// What is done to an instruction.
pub enum Change {
    /// Another one in its place; `None`: nothing.
    Replace(usize, Option<Box<Inst>>),
    /// Two change places.
    Exchange(usize, usize),
}

impl Change {
    /// The code with it.
    pub fn apply(&self, code: &Code) -> Code {
        let mut code = code.clone();
        match self {
            Change::Replace(at, with) => {
                code.insts[*at] = with.as_deref().cloned();
                // What is gone has no line either.
                if with.is_none() {
                    code.lines[*at] = 0;
                }
            }
            Change::Exchange(i, j) => {
                code.insts.swap(*i, *j);
                code.lines.swap(*i, *j);
            }
        }
        code
    }

    /// Where.
    pub fn at(&self) -> usize {
        match self {
            Change::Replace(at, _) | Change::Exchange(at, _) => *at,
        }
    }
}

pub const KINDS: [&str; 11] = [
    "MEMBAR removed",
    "MEMBAR moved",
    "MEMBAR of fewer",
    "MEMBAR.SC to .ALL",
    "CCTL.IVALL removed",
    "CCTL.IVALL moved",
    "STRONG removed",
    "STRONG of fewer",
    "threads of a barrier",
    "wait for copies removed",
    "wait for fewer copies",
];

fn with(inst: &Inst, from: Mod, to: Option<Mod>) -> Option<Box<Inst>> {
    let mods: Vec<Mod> = inst.mods.iter().filter_map(|m| if m == from { to } else { Some(m) }).collect();
    Some(Box::new(Inst { mods: Mods::of(&mods), ..inst.clone() }))
}

/// The next scope below, with what the instruction calls it.
fn fewer(inst: &Inst, block: Mod) -> Option<(Mod, Mod)> {
    match () {
        () if inst.mods.has(Mod::SYS) => Some((Mod::SYS, Mod::GPU)),
        () if inst.mods.has(Mod::GPU) => Some((Mod::GPU, block)),
        () => None,
    }
}

/// Changes that leave out, weaken or move what keeps accesses in order.
/// (What stands before the end of a thread in code for debuggers has to do with no access.)
pub fn plan(code: &Code, functions: &[usize], sm: u8, source: &[&str]) -> Vec<(&'static str, Change)> {
    const REACH: usize = 16;
    let leaders = code.leaders(functions);
    let mut out = Vec::new();
    for (i, inst) in code.insts.iter().enumerate() {
        let Some(inst) = inst.as_ref().filter(|_| code.lines[i] != 0) else { continue };
        let ivall = inst.op == Opcode::CCTL && inst.mods.has(Mod::IVALL);
        let membar = inst.op == Opcode::MEMBAR && !inst.mods.has(Mod::ASYNC) && !inst.mods.has(Mod::VC);
        if membar || ivall {
            let [removed, moved] = if membar { [KINDS[0], KINDS[1]] } else { [KINDS[4], KINDS[5]] };
            out.push((removed, Change::Replace(i, None)));
            // The next access behind it in its block changes places with it.
            for (j, second) in code.insts.iter().enumerate().skip(i + 1).take(REACH) {
                let Some(second) = second.as_ref().filter(|s| !leaders[j] && !s.op.info().control) else {
                    let stays = |s: &Inst| matches!(s.op, Opcode::ERRBAR | Opcode::CGAERRBAR) && !leaders[j];
                    if second.as_ref().is_some_and(stays) {
                        continue;
                    }
                    break;
                };
                // Another fence keeps them, too.
                if second.op == Opcode::MEMBAR {
                    break;
                }
                if place(second).is_some() && code.lines[j] != 0 {
                    out.push((moved, Change::Exchange(i, j)));
                    break;
                }
            }
        }
        if membar {
            if let Some((from, to)) = fewer(inst, Mod::CTA) {
                out.push((KINDS[2], Change::Replace(i, with(inst, from, Some(to)))));
            }
            if inst.mods.has(Mod::SC) {
                out.push((KINDS[3], Change::Replace(i, with(inst, Mod::SC, Some(Mod::ALL)))));
            }
        }
        if inst.mods.has(Mod::STRONG) && place(inst).is_some() {
            let block = if sm == 75 { Mod::CTA } else { Mod::SM };
            out.push((KINDS[6], Change::Replace(i, with(inst, Mod::STRONG, None))));
            if let Some((from, to)) = fewer(inst, block) {
                out.push((KINDS[7], Change::Replace(i, with(inst, from, Some(to)))));
            }
        }
        let waits = source.get(code.lines[i] as usize - 1).is_some_and(|l| l.contains(".wait_"));
        if inst.op == Opcode::DEPBAR && waits {
            out.push((KINDS[9], Change::Replace(i, None)));
            let mut later = inst.clone();
            let groups = later.operands.iter_mut().find_map(|o| match o {
                Operand::Imm(n) => Some(n),
                _ => None,
            });
            if let Some(n) = groups {
                *n += 1;
                out.push((KINDS[10], Change::Replace(i, Some(Box::new(later)))));
            }
        }
        if inst.op == Opcode::BAR {
            let mut other = inst.clone();
            other.operands[1] = match &inst.operands[1] {
                Operand::Imm(n) if *n > 32 => Operand::Imm(*n - 32),
                _ => Operand::Imm(32),
            };
            // One that names no threads otherwise, too.
            if other.operands[1] != inst.operands[1] {
                out.push((KINDS[8], Change::Replace(i, Some(Box::new(other)))));
            }
        }
    }
    out
}
