//! Optimization passes over Ori in SSA, and the table that says which phase each is.
//!
//! Each is one file and leaves verified SSA behind.

pub mod bits;
pub mod branch_opt;
pub mod constant_sums;
pub mod contraction;
pub mod copy_prop;
pub mod dead_loops;
pub mod dead_words;
pub mod fold;
pub mod gvn;
pub mod hoist_loads;
pub mod known_memory;
pub mod literals;
pub mod narrow;
pub mod nonzero;
pub mod predication;
pub mod rotate;
pub mod saturate;
pub mod selects;
pub mod setp_combine;
pub mod shift_add;
pub mod short_circuit;
pub mod signs;
pub mod sink;
mod sums;
pub mod three_inputs;
pub mod uniform_constants;
pub mod unite_halves;
pub mod unroll;
pub mod unroll_by_four;
pub mod uses;
pub mod vectorize;
pub mod warp_atomics;
mod wide_add;

use ori::{Analyses, Changed, Function, Manager, Phase};

/// One pass.
#[derive(Clone, Copy)]
pub struct Pass {
    /// The phase that it is.
    pub phase: Phase,
    /// The least `-O` level at which it runs.
    pub min_level: u8,
    /// What it does.
    pub run: Run,
}

/// What a pass does.
#[derive(Clone, Copy)]
pub enum Run {
    /// It changes instructions alone, and needs no analysis; says whether it changed anything.
    Alone(fn(&mut Function) -> bool),
    /// It says what it changed.
    Analysed(fn(&mut Function, &Analyses) -> Changed),
}

impl Run {
    /// Runs the pass.
    pub fn apply(self, func: &mut Function, analyses: &Analyses) -> Changed {
        match self {
            Run::Alone(run) => Changed::instructions(run(func)),
            Run::Analysed(run) => run(func, analyses),
        }
    }
}

const fn pass(phase: Phase, min_level: u8, run: fn(&mut Function) -> bool) -> Pass {
    Pass { phase, min_level, run: Run::Alone(run) }
}

const fn analysed(phase: Phase, min_level: u8, run: fn(&mut Function, &Analyses) -> Changed) -> Pass {
    Pass { phase, min_level, run: Run::Analysed(run) }
}

/// All passes, in order.
pub static PASSES: &[Pass] = &[
    analysed(Phase::Fold, 1, fold::run),
    analysed(Phase::Branches, 1, branch_opt::run),
    pass(Phase::DeadCode, 2, ori::dead::remove),
    analysed(Phase::DeadLoops, 2, dead_loops::run),
    analysed(Phase::RotateLoops, 2, rotate::run),
    analysed(Phase::Copies, 1, copy_prop::run),
    pass(Phase::Widen, 1, shift_add::widen),
    analysed(Phase::Unroll, 2, unroll::run),
    analysed(Phase::UnrollByFour, 2, unroll_by_four::run),
    analysed(Phase::Branches, 2, branch_opt::run),
    analysed(Phase::Copies, 2, copy_prop::run),
    analysed(Phase::Fold, 2, fold::run),
    analysed(Phase::WideSums, 1, wide_add::run),
    pass(Phase::Signs, 1, signs::run),
    pass(Phase::Contract, 1, contraction::run),
    pass(Phase::DeadCode, 2, ori::dead::remove),
    pass(Phase::ConstantSums, 2, constant_sums::run),
    pass(Phase::JoinComparisons, 1, setp_combine::run),
    analysed(Phase::ShortCircuit, 2, short_circuit::run),
    pass(Phase::Narrow, 2, narrow::run),
    analysed(Phase::KnownBits, 2, bits::run),
    analysed(Phase::UniteHalves, 2, unite_halves::run),
    analysed(Phase::Gvn, 2, gvn::run),
    pass(Phase::ShiftAdd, 2, shift_add::run),
    pass(Phase::ThreeInputs, 2, three_inputs::run),
    analysed(Phase::Copies, 2, copy_prop::run),
    analysed(Phase::DeadWords, 2, dead_words::run),
    pass(Phase::DeadCode, 0, ori::dead::remove),
    pass(Phase::ConstantSums, 2, constant_sums::run),
    analysed(Phase::Predicate, 2, |f, _| Changed::graph(predication::run(f))),
    analysed(Phase::Vectorize, 2, vectorize::run),
    pass(Phase::Selects, 2, selects::run),
    pass(Phase::Saturate, 2, saturate::run),
    analysed(Phase::Nonzero, 2, |f, _| nonzero::run(f)),
    analysed(Phase::WarpAtomics, 2, warp_atomics::run),
    analysed(Phase::Copies, 2, copy_prop::run),
    analysed(Phase::HoistLoads, 2, hoist_loads::run),
    pass(Phase::DeadCode, 2, ori::dead::remove),
    pass(Phase::UniformConstants, 2, uniform_constants::run),
    pass(Phase::Literals, 2, literals::run),
    analysed(Phase::Sink, 2, sink::run),
];

/// Runs the passes that the manager admits.
///
/// # Errors
/// That the compilation was cancelled; where each pass is to be verified, what the verifier found after one: an error in that pass.
pub fn optimize(func: &mut Function, manager: &mut Manager<'_>) -> Result<(), String> {
    let mut analyses = Analyses::default();
    for pass in PASSES {
        if manager.cancelled() {
            return Err("cancelled".into());
        }
        if !manager.admits(pass.phase, pass.min_level) {
            continue;
        }
        let changed = manager.run(pass.phase, func, |f| pass.run.apply(f, &analyses));
        analyses.invalidate(changed);
        debug_assert!(analyses.is_fresh(func), "{} changed the graph and did not say so", pass.phase.name());
        if manager.verifies()
            && let Err(errors) = ori::verify::verify(func)
        {
            return Err(format!("after {}: {}", pass.phase.name(), errors.join("; ")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Macro, Operand, Plan, Terminator, operand};
    use sass::{Mod, Opcode, SpecialReg, Target};

    fn store(b: &mut Builder, v: ori::Value) {
        let address =
            Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };
        b.inst(Opcode::STS, &[], &[address, operand(v)]);
    }

    #[test]
    fn jumps_to_the_only_successor_merge() {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let next = f.add_block();
        let param = f.add_value(sass::RegFile::R, 1);
        f.blocks[next].params.push(param);
        let mut b = Builder::new(&mut f, entry);
        let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
        b.terminate(Terminator::Jump(ori::BlockCall { block: next, args: [x].into_iter().collect() }));
        b.block = next;
        store(&mut b, param);
        b.terminate(Terminator::Exit);
        optimize(&mut f, &mut Manager::new(&Plan::new(1))).unwrap();
        assert_eq!(f.layout.len(), 1, "{f}");
        assert!(f.to_string().contains("STS [0x0], v1"), "{f}");
    }

    #[test]
    fn repeated_and_unused_computations_go() {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let tid = [Operand::Special(SpecialReg::SR_TID_X)];
        let x = b.def(Opcode::S2R, &[], &tid);
        let y = b.def(Opcode::S2R, &[], &tid);
        let pair = b.collect(&[operand(x), operand(y)]);
        let low = b.def_macro(Macro::Copy, sass::RegFile::R, 1, &[operand(ori::Name::Part(pair, 1))]);
        let sum = b.def(Opcode::FADD, &[Mod::FTZ], &[operand(low), operand(x)]);
        let _unused = b.def(Opcode::FMUL, &[], &[operand(sum), operand(sum)]);
        store(&mut b, sum);
        b.terminate(Terminator::Exit);
        optimize(&mut f, &mut Manager::new(&Plan::new(3))).unwrap();
        let text = f.to_string();
        assert_eq!(text.matches("S2R").count(), 1, "{text}");
        assert!(!text.contains("FMUL") && !text.contains("collect") && !text.contains("copy"), "{text}");
        assert!(text.contains("FADD.FTZ v0, v0"), "{text}");
    }
}
