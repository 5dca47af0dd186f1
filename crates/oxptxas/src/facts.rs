//! What the file says of finished code beside the code: attributes that tools read, and stack frames for debuggers. How
//! ptxas decides what to list is in docs/cubin.md.

use backend::Code;
use backend::machine::Link;
use backend::places::Place;
use backend::units::{self, register};
use cubin::CodeFacts;
use cubin::frames::{Frame, Rule};
use sass::{Guard, Inst, Mod, Opcode, Operand, Reg, RegFile, SpecialReg};
use std::collections::BTreeSet;
use std::ops::Range;

mod asks;
mod mbarriers;
mod said;

pub(crate) use asks::asks;
pub(crate) use said::Said;

/// Bytes of an instruction.
const INST_BYTES: u32 = 16;

/// Instructions of one function in the code, and the bytes of its frame that are spill slots.
pub(crate) struct Part {
    pub(crate) insts: Range<usize>,
    pub(crate) spill_slots: Range<u32>,
    /// Whether lanes meet in it that are at different instructions ([`ori::meeting`]).
    pub(crate) meeting: bool,
}

fn offset_of(index: usize) -> u32 {
    index as u32 * INST_BYTES
}

fn plain(o: Option<&Operand>) -> Option<Reg> {
    match o {
        Some(Operand::Reg(r)) if !r.neg && !r.abs && !r.not => Some(r.reg),
        _ => None,
    }
}

/// The place in the frame that `[R1+n]` names.
fn frame_place(inst: &Inst) -> Option<u32> {
    inst.operands.iter().find_map(|o| match o {
        Operand::Addr { base: Some(Reg::SP), uniform: None, offset, .. } => u32::try_from(*offset).ok(),
        _ => None,
    })
}

/// Whether a group of lanes executes it together.
fn is_collective(inst: &Inst) -> bool {
    match inst.op {
        Opcode::SHFL | Opcode::MATCH | Opcode::REDUX | Opcode::CREDUX => true,
        // Without a condition it asks who is there.
        Opcode::VOTE => inst.operands.iter().any(|o| match o {
            Operand::Reg(r) => r.reg.file == RegFile::P && !r.reg.is_zero(),
            _ => false,
        }),
        _ => false,
    }
}

/// The facts about the code of a kernel or function whose parts these are.
/// `elsewhere`: calls of functions in which lanes meet and which are not among the parts. The target, and what the PTX says.
pub(crate) fn code_facts(
    code: &Code,
    parts: &[Part],
    elsewhere: &BTreeSet<usize>,
    sm: u8,
    said: &Said,
) -> CodeFacts {
    let insts = &code.insts[..];
    let calls = |i: &Inst| matches!(i.op, Opcode::BSSY | Opcode::CALL);
    let mut meetings = elsewhere.clone();
    let functions: Vec<&Part> = parts.iter().filter(|p| p.meeting).collect();
    meetings.extend((0..insts.len()).filter(|k| calls_meeting(&insts[*k], &functions)));
    let checks = checks(insts, &meetings);
    let counts = |i: &Inst| matches!(i.op, Opcode::UTCATOMSWS | Opcode::UTCATOMSWS_FIND);
    let reads_z = |i: &Inst| i.operands.iter().any(|o| matches!(o, Operand::Special(SpecialReg::SR_CTAID_Z)));
    CodeFacts {
        stack_of_barriers: insts.iter().any(calls),
        groups: groups(sm, (insts, &said.stand_for(code)), parts, &checks, &meetings),
        warp_wide: checks.iter().map(|k| offset_of(*k)).collect(),
        unused_bytes: unused_bytes(insts),
        spills: parts.iter().flat_map(|p| spills(insts, p)).collect(),
        wmma: said.wmma,
        ctaid_z: insts.iter().any(reads_z),
        reconfigures: backend::pool::check::changes(insts),
        tensor_memory: said.blocks,
        tensor_memory_of_pairs: said.pairs,
        reads_taken_columns: said.reads_taken,
        allocates_tensor_memory: insts.iter().any(|i| counts(i) || i.op == Opcode::UVIRTCOUNT),
        counts_tensor_memory: insts.iter().any(counts),
        mbarriers: mbarriers::list(code, sm, said),
    }
}

/// The facts about the code of a function that has a section of its own: there calls count for nothing (ptxas 13.0.88, `-c` and `-g`).
/// `said`: what its PTX says; of a function in which lanes meet, nothing.
pub(crate) fn apart(code: &Code, sm: u8, said: Option<&Said>) -> CodeFacts {
    let part =
        Part { insts: 0..code.insts.len(), spill_slots: code.spill_slots.clone(), meeting: said.is_none() };
    let nothing = Said::default();
    CodeFacts {
        stack_of_barriers: code.insts.iter().any(|i| i.op == Opcode::BSSY),
        ..code_facts(code, &[part], &meets(code), sm, said.unwrap_or(&nothing))
    }
}

/// The calls of functions in which lanes meet, as numbers of instructions.
fn meets(code: &Code) -> BTreeSet<usize> {
    let is_meeting = |n: u32| match code.callees.get(n as usize) {
        Some(ori::Callee::Internal(name)) => name.starts_with(ori::abi::MEETING),
        _ => false,
    };
    let calls = code.links.iter().filter(|(_, link)| matches!(link, Link::Callee(n) if is_meeting(*n)));
    calls.map(|(at, _)| *at as usize).collect()
}

fn spills<'i>(insts: &'i [Inst], part: &'i Part) -> impl Iterator<Item = u32> + 'i {
    let is_spill = |k: &usize| {
        let inst = &insts[*k];
        matches!(inst.op, Opcode::STL | Opcode::LDL)
            && frame_place(inst).is_some_and(|at| part.spill_slots.contains(&at))
    };
    part.insts.clone().filter(is_spill).map(offset_of)
}

/// Targets of branches, as numbers of instructions.
fn targets(insts: &[Inst]) -> BTreeSet<usize> {
    let label = |o: &Operand| match o {
        Operand::Label(at) => usize::try_from(*at / i64::from(INST_BYTES)).ok(),
        _ => None,
    };
    insts.iter().flat_map(|i| i.operands.iter().filter_map(label)).collect()
}

/// What groups of lanes execute together: what stands for `.sync` statements of the PTX (the second of the pair). For
/// `bar.warp.sync` that is WARPSYNC from sm_90 on, where it is still there, or else the NOP behind it. Where lanes meet in a function, its
/// calls stand for what they do there; from sm_90 on ptxas has no such functions, and what is in them is listed.
fn groups(
    sm: u8,
    (insts, stands): (&[Inst], &[bool]),
    parts: &[Part],
    checks: &BTreeSet<usize>,
    meetings: &BTreeSet<usize>,
) -> Vec<(u32, Option<u8>)> {
    let starts = targets(insts);
    let functions: Vec<&Part> = parts.iter().filter(|p| p.meeting).collect();
    let meets = |k: usize| functions.iter().any(|p| p.insts.contains(&k));
    let mut out = Vec::new();
    // The register with the lanes of the last WARPSYNC of the block; that WARPSYNC, if it stands for itself.
    let mut gathered: Option<u8> = None;
    let mut alone: Option<(u32, Option<u8>)> = None;
    // Behind a branch to itself a function is filled up.
    let mut padding = false;
    for (k, inst) in insts.iter().enumerate() {
        padding = match inst.op {
            Opcode::NOP => padding,
            op => op == Opcode::BRA && inst.operands.contains(&Operand::Label(offset_of(k).into())),
        };
        if padding {
            continue;
        }
        if starts.contains(&k) {
            out.extend(alone.take());
            gathered = None;
        }
        if sm < 90 && meets(k) || checks.contains(&k) {
            continue;
        }
        if meetings.contains(&k) {
            out.extend((sm < 90).then_some((offset_of(k), None)));
            continue;
        }
        // A function may be there for statements of several lines.
        let counts = stands[k] || meets(k);
        match inst.op {
            Opcode::WARPSYNC => {
                out.extend(alone.take());
                let mask = plain(inst.operands.get(1)).filter(|r| r.file == RegFile::R && !r.is_zero());
                gathered = mask.map(|r| r.index);
                alone = (counts && sm >= 90).then_some((offset_of(k), gathered));
            }
            // Padding, or one of several that pass the time.
            Opcode::NOP if !stands[k] || k > 0 && stands[k - 1] && insts[k - 1].op == Opcode::NOP => {}
            Opcode::NOP => out.push(alone.take().unwrap_or((offset_of(k), None))),
            Opcode::BAR if counts && !inst.mods.has(Mod::ARV) => {
                // The WARPSYNC of such a function is part of the barrier.
                out.extend(alone.take().filter(|_| !meets(k)));
                out.push((offset_of(k), None));
            }
            _ if is_collective(inst) && counts => {
                out.extend(alone.take().filter(|_| !meets(k)));
                // Before sm_90 those of reductions are never told.
                let mask = gathered.filter(|_| sm >= 90 || inst.op != Opcode::REDUX);
                out.push((offset_of(k), mask));
            }
            _ if inst.op.info().control => {
                out.extend(alone.take());
                gathered = None;
            }
            _ => {}
        }
    }
    out.extend(alone);
    out.sort_unstable();
    out
}

/// Whether an instruction calls a function in which lanes meet: it stands for the instruction that they meet for.
fn calls_meeting(inst: &Inst, functions: &[&Part]) -> bool {
    let to = inst.operands.iter().find_map(|o| match o {
        Operand::Label(at) => usize::try_from(*at / i64::from(INST_BYTES)).ok(),
        _ => None,
    });
    inst.op == Opcode::CALL && functions.iter().any(|p| Some(p.insts.start) == to)
}

/// Votes and matches that find out whether such a function must be called: what a predicate is computed from by which a
/// branch goes to the call.
fn checks(insts: &[Inst], meetings: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    if meetings.is_empty() {
        return out;
    }
    let writer = |before: usize, reg: Reg| {
        (0..before).rev().find(|k| {
            let mut found = false;
            units::for_each_write(&insts[*k], |u, _| found |= register(u) == Some(reg));
            found
        })
    };
    for (k, inst) in insts.iter().enumerate().filter(|i| i.1.op == Opcode::BRA && i.1.guard != Guard::TRUE) {
        let to = inst.operands.iter().find_map(|o| match o {
            Operand::Label(at) => usize::try_from(*at / i64::from(INST_BYTES)).ok(),
            _ => None,
        });
        let mut way = (to.unwrap_or(usize::MAX)..insts.len()).filter(|k| insts[*k].op != Opcode::BSSY);
        if !way.find(|k| insts[*k].op.info().control).is_some_and(|k| meetings.contains(&k)) {
            continue;
        }
        let compared = writer(k, inst.guard.pred).and_then(|at| {
            let sources = insts[at].operands.iter().filter_map(|o| plain(Some(o)));
            let word = sources.into_iter().find(|r| r.file == RegFile::R)?;
            writer(at, word)
        });
        out.extend(compared.filter(|at| matches!(insts[*at].op, Opcode::VOTE | Opcode::MATCH)));
    }
    out
}

/// Instructions that are looked at to find out that a register is not used.
const FAR: usize = 4096;

/// Vector loads from memory of which some bytes go nowhere, with a bit for each byte that is used.
fn unused_bytes(insts: &[Inst]) -> Vec<(u32, u32)> {
    let vector = |i: &Inst| {
        let words = if i.mods.has(Mod::_128) {
            4
        } else if i.mods.has(Mod::_64) {
            2
        } else {
            return None;
        };
        let first = plain(i.operands.iter().find(|o| plain(Some(o)).is_some_and(|r| r.file == RegFile::R)))?;
        (matches!(i.op, Opcode::LDG | Opcode::LD) && !first.is_zero()).then_some((first, words))
    };
    let mut out = Vec::new();
    for (k, inst) in insts.iter().enumerate() {
        let Some((first, words)) = vector(inst) else { continue };
        let mut used = 0u32;
        for w in 0..words {
            let reg = Reg { file: RegFile::R, index: first.index + w };
            if is_used(insts, k + 1, reg) {
                used |= 0xf << (4 * w);
            }
        }
        if used.count_ones() != 4 * u32::from(words) && used != 0 {
            out.push((offset_of(k), used));
        }
    }
    out
}

/// Whether what a register holds before instruction `from` may be read.
fn is_used(insts: &[Inst], from: usize, reg: Reg) -> bool {
    let Some(unit) = units::unit(reg) else { return true };
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(start) = open.pop() {
        for k in start.. {
            let Some(inst) = insts.get(k) else { break };
            if !seen.insert(k) {
                break;
            }
            if seen.len() > FAR {
                return true;
            }
            let (mut read, mut written) = (false, false);
            units::for_each_read(inst, |u, _| read |= u == unit);
            units::for_each_write(inst, |u, _| written |= u == unit);
            if read {
                return true;
            }
            let always = inst.guard == Guard::TRUE;
            if written && always {
                break;
            }
            if matches!(inst.op, Opcode::BRX | Opcode::BRXU) {
                return true;
            }
            if inst.op.info().control {
                for o in &inst.operands {
                    if let Operand::Label(at) = o {
                        open.push((*at / i64::from(INST_BYTES)) as usize);
                    }
                }
            }
            let asks =
                |o: &Operand| matches!(o, Operand::Reg(r) if r.reg.file == RegFile::UP && !r.reg.is_zero());
            if always && matches!(inst.op, Opcode::BRA | Opcode::EXIT) && !inst.operands.iter().any(asks) {
                break;
            }
        }
    }
    false
}

/// How the stack pointer moves in one function's instructions, and where what its caller had in registers is
/// ([`backend::places::of_caller`]).
pub(crate) fn frame(insts: &[Inst], of_caller: &[backend::places::Entry]) -> Frame {
    let mut out = Frame::default();
    let mut body: Option<u32> = None;
    let mut leaving = false;
    // Where it moves otherwise while the function runs, what is known ends.
    let mut end = offset_of(insts.len());
    for (k, inst) in insts.iter().enumerate() {
        let behind = offset_of(k + 1);
        match (stack_change(inst), body) {
            (None, _) => {}
            (Some(Change::Lower(bytes)), None) => {
                body = Some(bytes);
                out.rules.push((behind, Rule::Frame(bytes)));
            }
            (Some(Change::Raise(bytes)), Some(frame)) if frame == bytes => {
                leaving = true;
                out.rules.push((behind, Rule::Frame(0)));
            }
            (Some(_), _) => {
                end = behind;
                break;
            }
        }
        let ends = inst.guard == Guard::TRUE && matches!(inst.op, Opcode::RET | Opcode::EXIT);
        if ends && leaving && k + 1 < insts.len() {
            leaving = false;
            out.rules.extend(body.map(|bytes| (behind, Rule::Frame(bytes))));
        }
    }
    let frames: Vec<(u32, u32)> = out
        .rules
        .iter()
        .filter_map(|r| match r {
            (at, Rule::Frame(bytes)) => Some((*at, *bytes)),
            _ => None,
        })
        .collect();
    let frame_at = |at: u32| frames.iter().rfind(|f| f.0 <= at).map_or(0, |f| f.1);
    let registers: BTreeSet<u32> = of_caller.iter().map(|e| e.register).collect();
    for r in registers {
        let entries: Vec<&backend::places::Entry> = of_caller.iter().filter(|e| e.register == r).collect();
        let number = r as u8;
        let rule_at = |at: u32| {
            let there = entries.iter().filter(|e| e.start <= at && at < e.end);
            // Where it belongs, in the frame, or in another register.
            let rules = there.filter_map(|e| match e.place {
                Place::Unit(u) if u32::from(u) == r => Some((0, Rule::Restored(number))),
                Place::Stack(offset) => {
                    let below = frame_at(at).checked_sub(offset).filter(|n| *n > 0)?;
                    Some((1, Rule::Saved(number, below)))
                }
                Place::Unit(u) => {
                    let to = register(u).filter(|t| t.file == RegFile::R)?;
                    Some((2, Rule::Moved(number, to.index)))
                }
            });
            rules.min_by_key(|(rank, _)| *rank).map_or(Rule::Lost(number), |(_, rule)| rule)
        };
        let mut changes: BTreeSet<u32> = entries.iter().flat_map(|e| [e.start, e.end]).collect();
        changes.extend(frames.iter().map(|f| f.0));
        let mut before = Rule::Restored(number);
        for at in changes.into_iter().filter(|at| *at < end) {
            let rule = rule_at(at);
            if rule != before {
                out.rules.push((at, rule));
                before = rule;
            }
        }
    }
    // The frame first: the others count from it.
    out.rules.sort_by_key(|(at, rule)| (*at, !matches!(rule, Rule::Frame(_))));
    out
}

enum Change {
    Lower(u32),
    Raise(u32),
    Other,
}

/// What an instruction does to the stack pointer, if it does anything but set it at the start of a kernel.
fn stack_change(inst: &Inst) -> Option<Change> {
    if plain(inst.operands.first()) != Some(Reg::SP)
        || matches!(inst.op, Opcode::STL | Opcode::ST | Opcode::STG)
    {
        return None;
    }
    if matches!(inst.op, Opcode::MOV | Opcode::LDC)
        && inst.operands.iter().any(|o| matches!(o, Operand::Const { .. }))
    {
        return None;
    }
    let from_itself = inst.operands.iter().skip(1).any(|o| plain(Some(o)) == Some(Reg::SP));
    let by = inst.operands.iter().find_map(|o| if let Operand::Imm(n) = o { Some(*n as i32) } else { None });
    match by {
        Some(by) if inst.op == Opcode::IADD3 && from_itself && inst.guard == Guard::TRUE => {
            Some(if by < 0 { Change::Lower(by.unsigned_abs()) } else { Change::Raise(by as u32) })
        }
        _ => Some(Change::Other),
    }
}
