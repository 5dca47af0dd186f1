//! The list of instructions on mbarriers (docs/cubin.md).

use super::{Said, offset_of, plain};
use backend::Code;
use backend::units::{self, register};
use cubin::{Mbarrier, MbarrierKind};
use sass::{Guard, Inst, Mod, Opcode, Operand, Reg};
use std::collections::BTreeSet;

/// The instructions on mbarriers that are listed, if there are any.
pub(super) fn list(code: &Code, sm: u8, said: &Said) -> Option<Vec<Mbarrier>> {
    let list = if sm < 90 { of_words(code, said) } else { of_instructions(&code.insts) };
    (!list.is_empty()).then_some(list)
}

/// What a statement does with an mbarrier, if that is listed.
pub(super) fn kind(inst: &ptx::Inst) -> Option<MbarrierKind> {
    use MbarrierKind::*;
    use ptx::{Mod as M, Op as O};
    let parity = inst.has(M::parity);
    let whole = !inst.has(M::noComplete);
    let pick = |a, b, first: bool| if first { a } else { b };
    Some(match inst.op {
        O::cp if inst.has(M::_async) && inst.has(M::mbarrier) && inst.has(M::arrive) => CpAsyncArrive,
        O::mbarrier if inst.has(M::init) => Init,
        O::mbarrier if inst.has(M::inval) => Inval,
        O::mbarrier if inst.has(M::arrive) => pick(Arrive, ArriveNoComplete, whole),
        O::mbarrier if inst.has(M::arrive_drop) => pick(ArriveDrop, ArriveDropNoComplete, whole),
        O::mbarrier if inst.has(M::test_wait) => pick(TestWaitParity, TestWait, parity),
        _ => return None,
    })
}

/// Before sm_90 barriers are words of memory (`lower`'s `mbarrier80`): the access that a statement is in the end. An `inval` is none.
fn of_words(code: &Code, said: &Said) -> Vec<Mbarrier> {
    use MbarrierKind::*;
    let is = |inst: &Inst, kind: MbarrierKind| match kind {
        Init => inst.op == Opcode::STS,
        Arrive | ArriveDrop => inst.op == Opcode::ATOMS && inst.mods.has(Mod::ARRIVE),
        ArriveNoComplete | ArriveDropNoComplete => inst.op == Opcode::ATOMS && inst.mods.has(Mod::ADD),
        TestWait | TestWaitParity => inst.op == Opcode::LDS,
        CpAsyncArrive => inst.op == Opcode::ARRIVES,
        _ => false,
    };
    let mut first = false;
    let of = |(k, inst): (usize, &Inst)| {
        let kind = said.mbarriers(code, k).find(|kind| is(inst, *kind))?;
        if kind == ArriveDropNoComplete {
            // The first of its two sums is for the next phase.
            first = !first;
            if first {
                return None;
            }
        }
        entry(k, inst, kind)
    };
    code.insts.iter().enumerate().filter_map(of).collect()
}

/// Base register, uniform register and number of an address.
fn address(inst: &Inst) -> Option<(Option<Reg>, Option<Reg>, i32)> {
    inst.operands.iter().find_map(|o| match o {
        Operand::Addr { base, uniform, offset, .. } => Some((*base, *uniform, *offset)),
        _ => None,
    })
}

fn entry(k: usize, inst: &Inst, kind: MbarrierKind) -> Option<Mbarrier> {
    let (base, uniform, immediate) = address(inst)?;
    let index = |r: Option<Reg>| r.filter(|r| !r.is_zero()).map(|r| r.index);
    let (register, uniform) = (index(base), index(uniform));
    Some(Mbarrier { offset: offset_of(k), register, immediate, uniform, kind })
}

/// From sm_90 on instructions say what they do.
fn of_instructions(insts: &[Inst]) -> Vec<Mbarrier> {
    use MbarrierKind::*;
    let ours = |i: &Inst| {
        use Opcode::{ARRIVES, SYNCS_ARRIVE, SYNCS_CCTL, SYNCS_EXCH, SYNCS_PHASECHK};
        matches!(i.op, ARRIVES | SYNCS_ARRIVE | SYNCS_CCTL | SYNCS_EXCH | SYNCS_PHASECHK)
    };
    let mut out = Vec::new();
    let mut before: Option<&Inst> = None;
    let stored = stored_barriers(insts);
    for (k, inst) in insts.iter().enumerate().filter(|i| ours(i.1) || stored.contains(&i.0)) {
        let has = |m| inst.mods.has(m);
        let drop = has(Mod::OPTOUT);
        let kind = match inst.op {
            Opcode::SYNCS_EXCH | Opcode::STS => Some(Init),
            // What is kept of all barriers: a part of the store before it.
            Opcode::SYNCS_CCTL if has(Mod::IVALL) => None,
            Opcode::SYNCS_CCTL => Some(Inval),
            Opcode::ARRIVES => Some(CpAsyncArrive),
            // The second one, after a pause, is part of the first.
            Opcode::SYNCS_PHASECHK
                if inst.guard != Guard::TRUE && before.is_some_and(|b| b.op == inst.op) =>
            {
                None
            }
            Opcode::SYNCS_PHASECHK => Some(match (has(Mod::TRYWAIT), asks_parity(insts, k)) {
                (true, true) => TryWaitParity,
                (true, false) => TryWait,
                (false, true) => TestWaitParity,
                (false, false) => TestWait,
            }),
            // Part of an arrival of copies.
            _ if has(Mod::A0T1) => None,
            _ if has(Mod::A0TR) => Some(ExpectTx),
            _ if has(Mod::A0TX) => Some(CompleteTx),
            _ if !(has(Mod::A1T0) || has(Mod::ART0)) => None,
            _ if has(Mod::TMASK) => Some(if drop { ArriveDropNoComplete } else { ArriveNoComplete }),
            _ => Some(if drop { ArriveDrop } else { Arrive }),
        };
        before = Some(inst);
        out.extend(kind.and_then(|kind| entry(k, inst, kind)));
    }
    out
}

/// The stores that make barriers: of 64 bits, the last one before what is kept of all barriers is dropped.
fn stored_barriers(insts: &[Inst]) -> BTreeSet<usize> {
    let drops = |i: &Inst| i.op == Opcode::SYNCS_CCTL && i.mods.has(Mod::IVALL);
    let stores = |k: &usize| insts[*k].op == Opcode::STS && insts[*k].mods.has(Mod::_64);
    let all = insts.iter().enumerate().filter(|i| drops(i.1));
    all.filter_map(|(at, _)| (0..at).rev().find(stores)).collect()
}

/// Whether the phase that instruction `at` asks for was made of a parity: bit 31 alone.
fn asks_parity(insts: &[Inst], at: usize) -> bool {
    let Some(phase) = plain(insts[at].operands.get(2)) else { return false };
    let writes = |i: &&Inst| {
        let mut found = false;
        units::for_each_write(i, |u, _| found |= register(u) == Some(phase));
        found
    };
    insts[..at].iter().rev().find(writes).is_some_and(|i| match i.op {
        Opcode::MOV => {
            matches!(i.operands[1], Operand::Imm(0 | 0x8000_0000))
                || plain(i.operands.get(1)) == Some(Reg::RZ)
        }
        Opcode::SHF => i.mods.has(Mod::L) && i.operands.contains(&Operand::Imm(31)),
        _ => false,
    })
}
