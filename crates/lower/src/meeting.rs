//! The functions in which lanes of a warp meet that stand at different instructions ([`ori::meeting`]). They follow the
//! convention of device functions as far as [`abi::clobbered_by`] says.

use crate::call::{give_register, internal_function, register, take_register};
use crate::emit::{Emit, imm, pt, rz};
use crate::warp::reduce;
use ori::meeting::{Kind, is_truth};
use ori::{Builder, Function, Operand, Value, abi, default_operand, operand};
use sass::{Mod, Opcode, RegFile, Role, SlotKind, Target};

/// The function of a name, if it is that of such a function, within `max_regs` registers.
pub fn function(name: &str, target: Target, max_regs: u8) -> Option<Function> {
    let kind = Kind::parse(name)?;
    Some(internal_function(name, target, max_regs, |b| {
        let mut at = abi::FIRST_ARGUMENT;
        let mut next = |b: &mut Builder<'_>| {
            at += 1;
            operand(take_register(b, at - 1))
        };
        let mut given = Vec::new();
        for (slot, words) in kind.arguments() {
            let words: Vec<Operand> = (0..words).map(|_| next(b)).collect();
            let value = match &words[..] {
                [word] if is_truth(kind.op, slot) => operand(b.isetp(Mod::NE, false, *word, rz())),
                [word] => *word,
                words => operand(b.collect(words)),
            };
            given.push((slot, value));
        }
        let lanes = if kind.is_of_all() { Operand::Imm(!0) } else { next(b) };
        let results = execute(b, &kind, &given, lanes);
        let mut kept = Vec::new();
        for (r, v) in (abi::FIRST_ARGUMENT..).zip(results) {
            give_register(b, r, operand(v));
            kept.push(register(r));
        }
        kept
    }))
}

/// Brings the lanes together, executes the instruction, and gives its results, a register each.
fn execute(b: &mut Builder<'_>, kind: &Kind, given: &[(usize, Operand)], lanes: Operand) -> Vec<Value> {
    let argument = |slot: usize| {
        // The thread count of a barrier is where its number is.
        let slot = if kind.op == Opcode::BAR && slot == 1 { 0 } else { slot };
        given.iter().find(|g| g.0 == slot).map_or_else(pt, |g| g.1)
    };
    let mods: Vec<Mod> = kind.mods.iter().collect();
    // Lanes of different masks may be here together.
    let apart: &[Mod] = if kind.is_of_those_here() { &[Mod::EXCLUSIVE] } else { &[] };
    b.inst(Opcode::WARPSYNC, apart, &[pt(), lanes]);
    if matches!(kind.op, Opcode::REDUX | Opcode::CREDUX) {
        return vec![reduce(b, kind.op, &mods, argument(1))];
    }
    if kind.op == Opcode::WARPSYNC {
        return Vec::new();
    }
    let results = kind.results();
    let vote = kind.op == Opcode::VOTE && kind.mods.has(Mod::ANY);
    let operands: Vec<Operand> = (kind.op.slots().iter().enumerate())
        .map(|(i, slot)| match (slot.role, slot.kind) {
            (Role::Def, SlotKind::Reg(file)) if results.contains(&i) && !(vote && i == 1) => {
                operand(b.func.add_value(file, 1))
            }
            (Role::Def, _) => default_operand(kind.op, i),
            _ => argument(i),
        })
        .collect();
    b.inst(kind.op, &mods, &operands);
    let mut out: Vec<Operand> = results.iter().map(|i| operands[*i]).collect();
    if vote {
        // Both as of one ballot.
        out[1] = operand(b.isetp(Mod::NE, false, out[0], rz()));
    }
    if kind.has_barrier_result() {
        let count = mods.contains(&Mod::POPC);
        let result = operand(b.func.add_value(if count { RegFile::R } else { RegFile::P }, 1));
        let operands = if count { [result, pt()] } else { [rz(), result] };
        b.inst(Opcode::B2R, &[Mod::RESULT], &operands);
        out.push(result);
    }
    if kind.tells_lanes() {
        let here = b.func.add_value(RegFile::R, 1);
        b.inst(Opcode::VOTE, &[Mod::ANY], &[operand(here), pt(), pt()]);
        out.push(operand(here));
    }
    out.into_iter().map(|o| word(b, o)).collect()
}

/// A result as a general register.
fn word(b: &mut Builder<'_>, o: Operand) -> Value {
    let Operand::Reg(r) = &o else { unreachable!("a result that is not a register") };
    match b.func.shape(r.reg).file {
        RegFile::P => b.sel(o, imm(1), rz()),
        _ => b.copy(o),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sass::Mods;

    #[test]
    fn functions_are_well_formed() {
        let kinds: [(Opcode, &[Mod]); 9] = [
            (Opcode::SHFL, &[Mod::UP]),
            (Opcode::VOTE, &[Mod::ANY]),
            (Opcode::VOTE, &[Mod::EQ]),
            (Opcode::MATCH, &[Mod::ANY, Mod::U64]),
            (Opcode::REDUX, &[Mod::SUM]),
            (Opcode::ELECT, &[]),
            (Opcode::BAR, &[Mod::RED, Mod::POPC, Mod::DEFER_BLOCKING]),
            (Opcode::BAR, &[Mod::ARV]),
            (Opcode::WARPSYNC, &[]),
        ];
        for sm in [80, 90, 120] {
            let target = Target::new(sm).expect("a target");
            for (op, mods) in kinds {
                let name = Kind { op, mods: Mods::of(mods) }.name();
                let f = function(&name, target, 255).expect("a function");
                assert_eq!(ori::verify::verify(&f), Ok(()), "{f}");
            }
        }
        assert!(function("oxptxas.div_f32", Target::new(90).expect("a target"), 255).is_none());
    }
}
