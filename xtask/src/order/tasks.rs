//! Asynchronous work exchanged with what it must stay behind or before: by opcodes alone, so that what the checker knows of the PTX
//! does not decide what is tried.

use super::fences::Change;
use sass::{Guard, Inst, Mod, Opcode, Operand};
use sim::order::Code;

/// What an instruction is to asynchronous work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// It begins some.
    Begins,
    /// It ends a group of it, or has a barrier told of its end.
    Ends,
    /// It waits for it, or orders memory.
    Orders,
    /// It waits for its own threads.
    Barrier,
    /// It writes memory.
    Writes,
    /// It reads memory.
    Reads,
}

fn what(inst: &Inst) -> Option<What> {
    if inst.guard == (Guard { not: true, ..Guard::TRUE }) {
        return None;
    }
    let all = inst.operands.iter().any(|o| matches!(o, Operand::Scoreboard(0)));
    Some(match inst.op.name().split('.').next()? {
        "HGMMA" | "IGMMA" | "QGMMA" | "BGMMA" | "UTCHMMA" | "UTCIMMA" | "UTCQMMA" | "UTCOMMA" | "UTCCP"
        | "UTCSHIFT" | "LDTM" | "STTM" | "UBLKCP" | "UTMALDG" | "UTMASTG" | "UBLKRED" | "UTMAREDG"
        | "LDGSTS" => What::Begins,
        "UTCBAR" | "UTMACMDFLUSH" | "LDGDEPBAR" | "ARRIVES" => What::Ends,
        "WARPGROUP" if inst.op == Opcode::WARPGROUP_DEPBAR => What::Orders,
        "FENCE" | "MEMBAR" | "SYNCS" if !inst.mods.has(Mod::IVALL) => What::Orders,
        "DEPBAR" if all => What::Orders,
        "BAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" => What::Barrier,
        "STS" | "STG" | "STSM" | "ST" | "RED" | "REDG" | "ATOMS" | "ATOMG" => What::Writes,
        "LDS" | "LDG" | "LDSM" | "LD" => What::Reads,
        _ => return None,
    })
}

pub const KINDS: [&str; 9] = [
    "work over what orders it",
    "what orders work over it",
    "work over its end",
    "work over a barrier",
    "work over work",
    "a store over what orders",
    "a load over what orders",
    "a store over work",
    "an end over what orders",
];

fn kind(first: What, second: What) -> Option<&'static str> {
    use What::*;
    Some(match (first, second) {
        (Orders, Begins) => KINDS[0],
        (Begins, Orders) => KINDS[1],
        (Begins, Ends) | (Ends, Begins) => KINDS[2],
        (Begins, Barrier) | (Barrier, Begins) => KINDS[3],
        (Begins, Begins) => KINDS[4],
        (Writes, Orders | Ends) | (Orders | Ends, Writes) => KINDS[5],
        (Reads, Orders) | (Orders, Reads) => KINDS[6],
        (Writes, Begins) | (Begins, Writes) => KINDS[7],
        (Ends, Orders | Barrier | Ends) | (Orders | Barrier, Ends) => KINDS[8],
        _ => return None,
    })
}

/// What the reference compiler exchanges, too, as nothing orders the two: a load from tensor memory and what is not for it. And two
/// instructions that are the same.
fn is_harmless(a: &Inst, b: &Inst) -> bool {
    let other = |i: &Inst| {
        let copies = i.op == Opcode::DEPBAR
            && matches!(i.operands[..], [_, Operand::Imm(_), Operand::ScoreboardSet(0), ..]);
        copies
            || i.op.name() == "SYNCS.CCTL"
            || matches!(what(i), Some(What::Reads | What::Writes)) && !i.op.name().starts_with("SYNCS")
    };
    let load = |i: &Inst| i.op.name().starts_with("LDTM");
    load(a) && other(b) || load(b) && other(a) || (a.op, &a.mods, &a.operands) == (b.op, &b.mods, &b.operands)
}

/// Neighbours, of all that has to do with memory in a block, that change places.
pub fn plan(code: &Code, functions: &[usize]) -> Vec<(&'static str, Change)> {
    let leaders = code.leaders(functions);
    let mut out = Vec::new();
    let mut last: Option<(usize, What)> = None;
    for (k, inst) in code.insts.iter().enumerate() {
        if leaders[k] {
            last = None;
        }
        let Some(inst) = inst else { continue };
        let here = what(inst).filter(|_| code.lines[k] != 0);
        if let Some(w) = here {
            if let Some((before, first)) = last
                && code.lines[before] != code.lines[k]
                && code.insts[before].as_ref().is_some_and(|b| !is_harmless(b, inst))
                && let Some(kind) = kind(first, w)
            {
                out.push((kind, Change::Exchange(before, k)));
            }
            last = Some((k, w));
        }
        if inst.op.info().control {
            last = None;
        }
    }
    out
}
