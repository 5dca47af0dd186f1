//! The phases of a compilation, and what may be asked of them: which run, which are shown, how long they take.
//!
//! Names are our own. Beside each stands the phase of ptxas whose work is most like it, so that dumps can be compared and
//! ptxas's names are understood where a phase is asked for; one of theirs may stand for several of ours. A phase may run any
//! number of times.

use crate::{Cancel, Tuning};
use std::cell::Cell;
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

macro_rules! phases {
    ($($variant:ident $name:literal $theirs:literal),* $(,)?) => {
        /// A phase.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Phase {
            $(#[doc = $name] $variant),*
        }

        impl Phase {
            /// All phases, in the order in which they first run.
            pub const ALL: &'static [Phase] = &[$(Phase::$variant),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Phase::$variant => $name),*
                }
            }

            /// The phase of ptxas's that is most like it.
            pub fn of_ptxas(self) -> &'static str {
                match self {
                    $(Phase::$variant => $theirs),*
                }
            }
        }
    };
}

// What each does: docs/phases.md, which a test holds against this table.
phases! {
    Lower "lower" "ReportInitialRepresentation",
    Fold "fold" "GeneralOptimizeEarly",
    Branches "branches" "OriBranchOpt",
    DeadCode "dead-code" "OriPerformLiveDeadFirst",
    DeadLoops "dead-loops" "OriLoopSimplification",
    RotateLoops "rotate-loops" "OriLoopSimplification",
    Copies "copies" "OriCopyProp",
    Widen "widen" "OriStrengthReduce",
    Unroll "unroll" "OriLoopUnrolling",
    UnrollByFour "unroll-by-four" "OriLoopUnrolling",
    WideSums "wide-sums" "GeneralOptimize",
    Signs "signs" "OriLinearReplacement",
    Contract "contract" "OriLinearReplacement",
    ConstantSums "constant-sums" "ExtractShaderConstsFirst",
    JoinComparisons "join-comparisons" "GeneralOptimizeMid",
    ShortCircuit "short-circuit" "OptimizeNestedCondBranches",
    Narrow "narrow" "MidExpansion",
    KnownBits "known-bits" "AdvancedPhaseAfterMidExpansion",
    UniteHalves "unite-halves" "GeneralOptimizeMid2",
    Gvn "gvn" "GvnCse",
    ShiftAdd "shift-add" "OriCommoning",
    ThreeInputs "three-inputs" "OriReassociateAndCommon",
    DeadWords "dead-words" "OriSimpleLiveDead",
    Predicate "predicate" "OriDoPredication",
    Vectorize "vectorize" "LateVectorization",
    Selects "selects" "LateOriCommoning",
    Saturate "saturate" "LateOriCommoning",
    Nonzero "nonzero" "LateOriCommoning",
    WarpAtomics "warp-atomics" "OptimizeUniformAtomic",
    HoistLoads "hoist-loads" "OriHoistInvariantsLate",
    UniformConstants "uniform-constants" "ConvertToUniformReg",
    Literals "literals" "ConvertToUniformReg",
    Sink "sink" "LateArchOptimizeFirst",
    Together "together" "OptimizeSyncInstructions",
    Legalize "legalize" "LateExpansionUnsupportedOps",
    Prepass "prepass" "ScheduleInstructions",
    Remat "remat" "OriDoRemat",
    Counters "counters" "ConvertToUniformReg",
    Convergence "convergence" "OriDoSyncronization",
    Allocate "allocate" "AllocateRegisters",
    Expand "expand" "PostExpansion",
    Zeros "zeros" "LateArchOptimizeSecond",
    Balance "balance" "LateArchOptimizeSecond",
    Schedule "schedule" "PostSchedule",
    Hazards "hazards" "AdvancedScoreboardsAndOpexes",
    Emit "emit" "MercGenerateSassUCode",
}

impl Phase {
    /// The phases of a name in any case: ours, or ptxas's. None of an unknown one.
    pub fn named(name: &str) -> Vec<Phase> {
        let is = |p: &&Phase| p.name().eq_ignore_ascii_case(name) || p.of_ptxas().eq_ignore_ascii_case(name);
        Phase::ALL.iter().filter(is).copied().collect()
    }

    /// Whether `part`, in lower case, is a part of its name or of that of ptxas's.
    pub fn has_part(self, part: &str) -> bool {
        self.name().contains(part) || self.of_ptxas().to_ascii_lowercase().contains(part)
    }

    /// Says what this thread does from now on; `None`: something before the first phase.
    pub fn enter(phase: Option<Phase>) {
        CURRENT.set(phase);
    }

    /// The phase that this thread is in, or was in last: what an internal error is blamed on.
    pub fn current() -> Option<Phase> {
        CURRENT.get()
    }
}

thread_local! {
    static CURRENT: Cell<Option<Phase>> = const { Cell::new(None) };
}

/// What is asked of the phases of a compilation.
#[derive(Debug, Default)]
pub struct Plan {
    /// `-O` level, 0 … 3.
    pub level: u8,
    /// Phases after which the code is shown.
    pub shown: Vec<Phase>,
    /// Lower-case parts of the names of phases that are left out, if code is right without them ([`Phase::has_part`]).
    pub disabled: Vec<String>,
    /// So many phases that can be left out run, in the order of the functions; those that follow don't.
    pub phases: Option<AtomicU32>,
    /// So many of them see the level, those that follow level 1.
    pub leveled: Option<AtomicU32>,
    /// Whether times are kept.
    pub timed: bool,
    /// Whether the checkers run after each phase, as they always do in builds with debug assertions.
    pub verify: bool,
    /// Who may end the compilation.
    pub cancel: Option<Cancel>,
}

impl Plan {
    /// Everything that a level has.
    pub fn new(level: u8) -> Plan {
        Plan { level, ..Plan::default() }
    }

    /// Whether the compilation is to end without a result.
    pub fn cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::wished)
    }

    /// Whether what happens in a function depends on the functions before it.
    pub fn in_order(&self) -> bool {
        self.phases.is_some() || self.leveled.is_some()
    }
}

/// What happened in the phases of a function.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Phases that ran, when each began and how long it took.
    pub times: Vec<(Phase, Instant, Duration)>,
    /// The code after the phases that are shown.
    pub text: String,
}

/// Takes a function through its phases.
pub struct Manager<'a> {
    plan: &'a Plan,
    tuning: Tuning,
    /// What has happened so far.
    pub report: Report,
}

/// Takes one from a budget; whether there was one.
fn spend(budget: &Option<AtomicU32>) -> bool {
    let one = |n: u32| n.checked_sub(1);
    budget.as_ref().is_none_or(|b| b.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok())
}

impl<'a> Manager<'a> {
    /// Nothing has run yet.
    pub fn new(plan: &'a Plan) -> Manager<'a> {
        Manager::tuned(plan, Tuning::default())
    }

    /// The same for a function for which something else was chosen.
    pub fn tuned(plan: &'a Plan, tuning: Tuning) -> Manager<'a> {
        Manager { plan, tuning, report: Report::default() }
    }

    /// Whether the compilation is to end without a result.
    pub fn cancelled(&self) -> bool {
        self.plan.cancelled()
    }

    /// The `-O` level.
    pub fn level(&self) -> u8 {
        self.plan.level
    }

    /// Whether the checkers run after each phase.
    pub fn verifies(&self) -> bool {
        self.plan.verify || cfg!(debug_assertions)
    }

    /// Whether a phase that code is right without runs: it needs the level, must not be disabled, and there must be
    /// something left of the budgets.
    pub fn admits(&self, phase: Phase, min_level: u8) -> bool {
        let named = |part: &String| phase.has_part(part);
        let left_out = self.plan.disabled.iter().any(named) || self.tuning.leaves_out(phase);
        if self.plan.level < min_level || left_out {
            return false;
        }
        let level = if spend(&self.plan.leveled) { self.plan.level } else { self.plan.level.min(1) };
        level >= min_level && spend(&self.plan.phases)
    }

    /// Runs a phase over `unit`.
    pub fn run<U: Display, R>(&mut self, phase: Phase, unit: &mut U, pass: impl FnOnce(&mut U) -> R) -> R {
        let result = self.timed(phase, || pass(unit));
        self.show(phase, unit);
        result
    }

    /// Runs a phase over `unit` that may run others; its time has theirs in it.
    pub fn run_outer<U: Display, R>(
        &mut self,
        phase: Phase,
        unit: &mut U,
        pass: impl FnOnce(&mut U, &mut Self) -> R,
    ) -> R {
        Phase::enter(Some(phase));
        let start = Instant::now();
        let result = pass(unit, self);
        if self.plan.timed {
            self.report.times.push((phase, start, start.elapsed()));
        }
        self.show(phase, unit);
        result
    }

    /// Runs a phase that makes something new.
    ///
    /// # Errors
    /// What the phase says.
    pub fn make<U: Display, E>(&mut self, phase: Phase, pass: impl FnOnce() -> Result<U, E>) -> Result<U, E> {
        let unit = self.timed(phase, pass)?;
        self.show(phase, &unit);
        Ok(unit)
    }

    /// Runs a phase that has nothing to show.
    pub fn timed<R>(&mut self, phase: Phase, pass: impl FnOnce() -> R) -> R {
        Phase::enter(Some(phase));
        if !self.plan.timed {
            return pass();
        }
        let start = Instant::now();
        let result = pass();
        self.report.times.push((phase, start, start.elapsed()));
        result
    }

    /// Shows the code if that was asked for after this phase.
    pub fn show(&mut self, phase: Phase, unit: &impl Display) {
        if self.plan.shown.contains(&phase) {
            self.report.text.push_str(&format!("# after {}\n{unit}\n", phase.name()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Phase::named("GVN"), [Phase::Gvn]);
        assert_eq!(Phase::named("gvncse"), [Phase::Gvn]);
        assert_eq!(Phase::named("OriLinearReplacement"), [Phase::Signs, Phase::Contract]);
        assert_eq!(Phase::named("none"), []);
        let mut names: Vec<&str> = Phase::ALL.iter().map(|p| p.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Phase::ALL.len());
    }

    #[test]
    fn every_phase_is_described() {
        let text = include_str!("../../../docs/phases.md");
        for phase in Phase::ALL {
            let row = format!("| `{}` | `{}` |", phase.name(), phase.of_ptxas());
            assert!(text.contains(&row), "docs/phases.md has no row that begins with {row}");
        }
    }

    #[test]
    fn levels_budgets_and_names_decide() {
        let mut plan = Plan::new(2);
        plan.disabled = vec!["gvn".into()];
        let manager = Manager::new(&plan);
        assert!(manager.admits(Phase::Copies, 1));
        assert!(!manager.admits(Phase::Copies, 3));
        assert!(!manager.admits(Phase::Gvn, 1));
        let two = Plan { phases: Some(AtomicU32::new(2)), ..Plan::new(3) };
        let manager = Manager::new(&two);
        let ran = [1, 1, 1].map(|level| manager.admits(Phase::Branches, level));
        assert_eq!(ran, [true, true, false]);
        let leveled = Plan { leveled: Some(AtomicU32::new(1)), ..Plan::new(3) };
        let manager = Manager::new(&leveled);
        let ran = [2, 2, 1].map(|level| manager.admits(Phase::Branches, level));
        assert_eq!(ran, [true, false, true]);
    }

    #[test]
    fn shown_code_and_times() {
        let plan = Plan { shown: vec![Phase::Branches], timed: true, ..Plan::new(3) };
        let mut manager = Manager::new(&plan);
        let mut unit = String::from("a");
        manager.run(Phase::Branches, &mut unit, |u| u.push('b'));
        manager.run(Phase::Copies, &mut unit, |u| u.push('c'));
        assert_eq!(manager.report.text, "# after branches\nab\n");
        assert_eq!(manager.report.times.len(), 2);
    }
}
