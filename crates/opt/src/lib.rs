//! Optimization passes over Ori in SSA, and the table that says which phase each is.
//!
//! Each is one file and leaves verified SSA behind.

pub mod bits;
pub mod branch_opt;
pub mod common;
pub mod constant_sums;
pub mod contraction;
pub mod copy_prop;
pub mod dead_loops;
pub mod dead_words;
pub mod edge_constants;
pub mod exits;
pub mod fold;
pub mod gvn;
pub mod hoist_loads;
pub mod invariants;
pub mod known_memory;
pub mod literals;
pub mod narrow;
pub mod nonzero;
pub mod predication;
pub mod rotate;
pub mod rounding;
mod same_condition;
pub mod saturate;
pub mod scaled;
pub mod selects;
pub mod setp_combine;
pub mod shift_add;
pub mod short_circuit;
mod shuffles;
pub mod signs;
mod single_lane;
pub mod sink;
pub mod split_words;
mod sums;
pub mod swizzles;
#[cfg(test)]
mod testing;
mod texels;
pub mod three_inputs;
pub mod truths;
pub mod uniform_constants;
pub mod unite_halves;
pub mod unroll;
pub mod unroll_by_four;
pub mod uses;
pub mod vectorize;
pub mod vectorize_stores;
pub mod warp_atomics;
mod wide_add;
mod wide_integers;

use ori::verify::lanes::{Kind, Watch};
use ori::{Analyses, Changed, Function, Manager, Phase};

/// One pass: its file says what it is, the table [`PASSES`] when it runs.
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

impl Pass {
    /// A pass over instructions alone: the least level at which it runs, its name, the phase of ptxas's that is most like it, and
    /// what it is about, for docs/phases.md.
    pub const fn alone(
        level: u8,
        name: &'static str,
        of_ptxas: &'static str,
        what: &'static str,
        run: fn(&mut Function) -> bool,
    ) -> Pass {
        Pass { phase: Phase::optional(level, name, of_ptxas, what), min_level: level, run: Run::Alone(run) }
    }

    /// The same for a pass without which code is not right.
    pub const fn needed(
        name: &'static str,
        of_ptxas: &'static str,
        what: &'static str,
        run: fn(&mut Function, &Analyses) -> Changed,
    ) -> Pass {
        Pass { phase: Phase::needed(name, of_ptxas, what), min_level: 0, run: Run::Analysed(run) }
    }

    /// The same for a pass that asks analyses, and says what it changed.
    pub const fn analysed(
        level: u8,
        name: &'static str,
        of_ptxas: &'static str,
        what: &'static str,
        run: fn(&mut Function, &Analyses) -> Changed,
    ) -> Pass {
        Pass {
            phase: Phase::optional(level, name, of_ptxas, what),
            min_level: level,
            run: Run::Analysed(run),
        }
    }

    /// The same from another level on.
    const fn at_level(self, min_level: u8) -> Pass {
        Pass { min_level, ..self }
    }
}

/// The phases of the passes, in the order in which they first run.
pub fn phases() -> Vec<Phase> {
    let mut found: Vec<Phase> = Vec::new();
    for pass in PASSES {
        if !found.contains(&pass.phase) {
            found.push(pass.phase);
        }
    }
    found
}

/// Removes what nobody needs, and fetches nothing that only that read.
fn dead_code(func: &mut Function) -> bool {
    let removed = ori::dead::remove(func);
    ori::dead::drop_results(func) || removed
}

/// Dead code, for the table: [`ori::dead`].
const DEAD_CODE: Pass =
    Pass::alone(2, "dead-code", "OriPerformLiveDeadFirst", "what nobody reads; four times", dead_code);

/// All passes, in order.
pub static PASSES: &[Pass] = &[
    fold::PASS,
    branch_opt::PASS,
    DEAD_CODE,
    dead_loops::PASS,
    rotate::PASS,
    copy_prop::PASS,
    shift_add::WIDEN,
    unroll::PASS,
    unroll_by_four::PASS,
    branch_opt::PASS.at_level(2),
    copy_prop::PASS.at_level(2),
    fold::PASS.at_level(2),
    constant_sums::PASS,
    wide_add::PASS,
    signs::PASS,
    contraction::PASS,
    DEAD_CODE,
    constant_sums::PASS,
    setp_combine::PASS,
    short_circuit::PASS,
    narrow::PASS,
    bits::PASS,
    truths::PASS,
    unite_halves::PASS,
    swizzles::PASS,
    constant_sums::PASS,
    gvn::PASS,
    split_words::PASS,
    copy_prop::PASS,
    shift_add::PASS,
    three_inputs::PASS,
    copy_prop::PASS.at_level(2),
    dead_words::PASS,
    DEAD_CODE.at_level(0),
    constant_sums::PASS,
    shuffles::PASS,
    invariants::PASS,
    branch_opt::PASS.at_level(2),
    common::PASS,
    predication::PASS,
    gvn::PASS.at_level(2),
    vectorize::PASS,
    vectorize_stores::PASS,
    selects::PASS,
    bits::PASS,
    truths::PASS,
    rounding::PASS,
    saturate::PASS,
    nonzero::PASS,
    warp_atomics::PASS,
    wide_integers::PASS,
    copy_prop::PASS.at_level(2),
    hoist_loads::PASS,
    scaled::PASS,
    DEAD_CODE,
    texels::PASS,
    exits::PASS,
    uniform_constants::PASS,
    literals::PASS,
    sink::PASS,
    edge_constants::PASS,
];

/// Why a function was not optimized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The compilation was cancelled.
    Cancelled,
    /// Lowering made what the verifier does not take.
    Lowered {
        /// All that is wrong.
        violations: Vec<String>,
    },
    /// A pass did, where each is to be verified.
    Wrong {
        /// Which one.
        after: Phase,
        /// All that is wrong.
        violations: Vec<String>,
    },
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Cancelled => f.write_str("cancelled"),
            Error::Lowered { violations } => write!(f, "after lowering: {}", violations.join("; ")),
            Error::Wrong { after, violations } => {
                write!(f, "after {}: {}", after.name(), violations.join("; "))
            }
        }
    }
}

impl std::error::Error for Error {}

/// Runs the passes that the manager admits.
///
/// # Errors
/// That the compilation was cancelled, or that a pass is wrong.
pub fn optimize(func: &mut Function, manager: &mut Manager<'_>) -> Result<(), Error> {
    // What lowering made, on every compilation; with what follows the backend does the same.
    ori::verify::outline(func).map_err(|violations| Error::Lowered { violations })?;
    let mut analyses = Analyses::default();
    let mut lanes = Watch::new(func, manager.verifies());
    for pass in PASSES {
        if manager.cancelled() {
            return Err(Error::Cancelled);
        }
        if pass.phase.level().is_some() && !manager.admits_from(pass.phase, pass.min_level) {
            continue;
        }
        let changed = manager.run(pass.phase, func, |f| pass.run.apply(f, &analyses));
        analyses.invalidate(changed);
        debug_assert!(analyses.is_fresh(func), "{} changed the graph and did not say so", pass.phase.name());
        if manager.verifies()
            && let Err(violations) = ori::verify::verify(func).and_then(|()| lanes.step(func, Kind::Usual))
        {
            return Err(Error::Wrong { after: pass.phase, violations });
        }
    }
    Ok(())
}

/// Runs what every function has to go through before the backend takes it, and nothing else; functions that come from
/// [`optimize`] have.
pub fn expand(func: &mut Function) {
    for pass in PASSES.iter().filter(|p| p.phase.level().is_none()) {
        _ = pass.run.apply(func, &Analyses::default());
    }
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
