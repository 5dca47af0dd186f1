//! The phases of a compilation, and what may be asked of them: which run, which are shown, how long they take.
//!
//! Names are our own. Beside each stands the phase of ptxas whose work is most like it, so that dumps can be compared and
//! ptxas's names are understood where a phase is asked for; one of theirs may stand for several of ours. A phase may run any
//! number of times. Each is declared where its work is done (`Phase::optional` beside the pass); there is no list of them here.

use crate::{Cancel, Tuning};
use std::cell::Cell;
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    name: &'static str,
    of_ptxas: &'static str,
    what: &'static str,
    level: Option<u8>,
}

impl PartialEq for Phase {
    fn eq(&self, other: &Phase) -> bool {
        self.name == other.name
    }
}

impl Eq for Phase {}

impl PartialOrd for Phase {
    fn partial_cmp(&self, other: &Phase) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Phase {
    fn cmp(&self, other: &Phase) -> std::cmp::Ordering {
        self.name.cmp(other.name)
    }
}

impl std::hash::Hash for Phase {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Phase {
    /// A phase that code is right without: the least `-O` level at which it runs, its name, that of the phase of ptxas's that is
    /// most like it, and what it is about.
    pub const fn optional(
        level: u8,
        name: &'static str,
        of_ptxas: &'static str,
        what: &'static str,
    ) -> Phase {
        Phase { name, of_ptxas, what, level: Some(level) }
    }

    /// A phase that always runs.
    pub const fn needed(name: &'static str, of_ptxas: &'static str, what: &'static str) -> Phase {
        Phase { name, of_ptxas, what, level: None }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The phase of ptxas's that is most like it.
    pub fn of_ptxas(self) -> &'static str {
        self.of_ptxas
    }

    /// What it is about.
    pub fn what(self) -> &'static str {
        self.what
    }

    /// The least `-O` level at which it runs, if code is right without it.
    pub fn level(self) -> Option<u8> {
        self.level
    }

    /// Whether this is its name or that of ptxas's, in any case.
    pub fn is_named(self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name) || self.of_ptxas.eq_ignore_ascii_case(name)
    }

    /// Whether `part`, in lower case, is a part of its name or of that of ptxas's.
    pub fn has_part(self, part: &str) -> bool {
        self.name.contains(part) || self.of_ptxas.to_ascii_lowercase().contains(part)
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

    /// Whether a phase runs that code is right without: it needs the level, must not be disabled, and there must be
    /// something left of the budgets.
    pub fn admits(&self, phase: Phase) -> bool {
        self.admits_from(phase, phase.level.unwrap_or_default())
    }

    /// The same where it runs from another level on.
    pub fn admits_from(&self, phase: Phase, min_level: u8) -> bool {
        let named = |part: &String| phase.has_part(part);
        let left_out = self.plan.disabled.iter().any(named) || self.tuning.leaves_out(phase);
        if self.plan.level < min_level || left_out {
            return false;
        }
        let level = if spend(&self.plan.leveled) { self.plan.level } else { self.plan.level.min(1) };
        level >= min_level && spend(&self.plan.phases)
    }

    /// Leaves a phase out from here on.
    pub fn leave_out(&mut self, phase: Phase) {
        self.tuning = std::mem::take(&mut self.tuning).leaving_out(phase);
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

    const COPIES: Phase = Phase::optional(1, "copies", "OriCopyProp", "copies");
    const GVN: Phase = Phase::optional(2, "gvn", "GvnCse", "repeated computations");
    const BRANCHES: Phase = Phase::optional(1, "branches", "OriBranchOpt", "branches");

    #[test]
    fn names() {
        assert!(GVN.is_named("GVN") && GVN.is_named("gvncse") && !GVN.is_named("gv"));
        assert!(GVN.has_part("cse") && GVN != COPIES);
    }

    #[test]
    fn levels_budgets_and_names_decide() {
        let mut plan = Plan::new(2);
        plan.disabled = vec!["gvn".into()];
        let manager = Manager::new(&plan);
        assert!(manager.admits_from(COPIES, 1));
        assert!(!manager.admits_from(COPIES, 3));
        assert!(!manager.admits_from(GVN, 1));
        let two = Plan { phases: Some(AtomicU32::new(2)), ..Plan::new(3) };
        let manager = Manager::new(&two);
        let ran = [1, 1, 1].map(|level| manager.admits_from(BRANCHES, level));
        assert_eq!(ran, [true, true, false]);
        let leveled = Plan { leveled: Some(AtomicU32::new(1)), ..Plan::new(3) };
        let manager = Manager::new(&leveled);
        let ran = [2, 2, 1].map(|level| manager.admits_from(BRANCHES, level));
        assert_eq!(ran, [true, false, true]);
    }

    #[test]
    fn shown_code_and_times() {
        let plan = Plan { shown: vec![BRANCHES], timed: true, ..Plan::new(3) };
        let mut manager = Manager::new(&plan);
        let mut unit = String::from("a");
        manager.run(BRANCHES, &mut unit, |u| u.push('b'));
        manager.run(COPIES, &mut unit, |u| u.push('c'));
        assert_eq!(manager.report.text, "# after branches\nab\n");
        assert_eq!(manager.report.times.len(), 2);
    }
}
