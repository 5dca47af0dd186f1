//! The phases of a compilation, and what may be asked of them: which run, which are shown, how long they take.
//!
//! Names and order are those of ptxas's 159 phases, so that dumps, knobs and reports can be compared. A phase that
//! we have nothing for yet is an empty slot; a pass belongs to exactly one.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

macro_rules! phases {
    ($($name:ident),* $(,)?) => {
        /// A phase; its number is its place in the order.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Phase {
            $(#[doc = stringify!($name)] $name),*
        }

        impl Phase {
            /// All phases in order.
            pub const ALL: &'static [Phase] = &[$(Phase::$name),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Phase::$name => stringify!($name)),*
                }
            }
        }
    };
}

phases! {
    OriCheckInitialProgram,
    ApplyNvOptRecipes,
    PromoteFP16,
    AnalyzeControlFlow,
    AdvancedPhaseBeforeConvUnSup,
    ConvertUnsupportedOps,
    SetControlFlowOpLastInBB,
    AdvancedPhaseAfterConvUnSup,
    UpdateAfterConvertUnsupportedOps,
    OriCreateMacroInsts,
    ReportInitialRepresentation,
    EarlyOriSimpleLiveDead,
    ReplaceUniformsWithImm,
    OriSanitize,
    GeneralOptimizeEarly,
    MergeEquivalentConditionalFlow,
    DoSwitchOptFirst,
    OriBranchOpt,
    OriPerformLiveDeadFirst,
    OptimizeBindlessHeaderLoads,
    OriLoopSimplification,
    OriSplitLiveRanges,
    OriCopyProp,
    PerformPGO,
    OriStrengthReduce,
    OriLoopUnrolling,
    GenerateMovPhi,
    OriPipelining,
    StageAndFence,
    OriRemoveRedundantBarriers,
    AnalyzeUniformsForSpeculation,
    SinkRemat,
    OptimizeNaNOrZero,
    GeneralOptimize,
    DoSwitchOptSecond,
    OriLinearReplacement,
    CompactLocalMemory,
    ConvertMemoryToRegisterOrUniform,
    OriPerformLiveDeadSecond,
    ExtractShaderConstsFirst,
    OriHoistInvariantsEarly,
    Vectorization,
    EmitPSI,
    GeneralOptimizeMid,
    OptimizeNestedCondBranches,
    ConvertVTGReadWrite,
    DoVirtualCTAExpansion,
    MarkAdditionalColdBlocks,
    ExpandMbarrier,
    ForwardProgress,
    OptimizeUniformAtomic,
    MidExpansion,
    AdvancedPhaseAfterMidExpansion,
    GeneralOptimizeMid2,
    AdvancedPhaseEarlyEnforceArgs,
    EnforceArgumentRestrictions,
    GvnCse,
    OriCommoning,
    OriReassociateAndCommon,
    ExtractShaderConstsFinal,
    OriReplaceEquivMultiDefMov,
    OriPropagateVaryingFirst,
    OriDoRematEarly,
    LateExpansion,
    SpeculativeHoistComInsts,
    RemoveASTToDefaultValues,
    GeneralOptimizeLate,
    OriLoopFusion,
    DoVTGMultiViewExpansion,
    OriSimpleLiveDead,
    OriPerformLiveDeadThird,
    OriRemoveRedundantMultiDefMov,
    OriDoPredication,
    LateVectorization,
    LateOriCommoning,
    GeneralOptimizeLate2,
    OriHoistInvariantsLate,
    SinkCodeIntoBlock,
    DoKillMovement,
    DoTexMovement,
    OriDoRemat,
    OriPropagateVaryingSecond,
    OptimizeSyncInstructions,
    AdvancedPhaseLateExpandSyncInstructions,
    LateExpandSyncInstructions,
    ConvertAllMovPhiToMov,
    ConvertToUniformReg,
    LateArchOptimizeFirst,
    UpdateAfterOptimize,
    AdvancedPhaseLateConvUnSup,
    LateExpansionUnsupportedOps,
    OriHoistInvariantsLate2,
    LateMergeEquivalentConditionalFlow,
    LateExpansionUnsupportedOpsMid,
    ExpandJmxComputation,
    LateArchOptimizeSecond,
    AdvancedPhaseBackPropVReg,
    OriBackCopyPropagate,
    OriSplitHighPressureLiveRanges,
    OriPerformLiveDeadFourth,
    OriPropagateGmma,
    InsertPseudoUseDefForConvUR,
    FixupGmmaSequence,
    LateEnforceArgumentRestrictions,
    OriHoistInvariantsLate3,
    AdvancedPhaseSetRegAttr,
    OriSetRegisterAttr,
    OriCalcDependantTex,
    AdvancedPhaseAfterSetRegAttr,
    LateExpansionUnsupportedOps2,
    FinalInspectionPass,
    SetAfterLegalization,
    ReportBeforeScheduling,
    AdvancedPhasePreSched,
    ScheduleInstructions,
    UpdateAfterScheduleInstructions,
    BackPropagateVEC2D,
    OriDoSyncronization,
    UpdateAfterOriDoSyncronization,
    ApplyPostSyncronizationWars,
    ReportBeforeRegisterAllocation,
    AdvancedPhaseAllocReg,
    AllocateRegisters,
    ReportAfterRegisterAllocation,
    UpdateAfterOriAllocateRegisters,
    Get64bRegComponents,
    AdvancedPhasePostExpansion,
    PostExpansion,
    ApplyPostRegAllocWars,
    AdvancedPhasePostSched,
    OriRemoveNopCode,
    OptimizeHotColdInLoop,
    OptimizeHotColdFlow,
    PostSchedule,
    AdvancedPhasePostFixUp,
    PlaceBlocksInSourceOrder,
    PostFixForMercTargets,
    FixUpTexDepBarAndSync,
    AdvancedScoreboardsAndOpexes,
    ProcessO0WaitsAndSBs,
    PostFixUp,
    MercConverter,
    MercEncodeAndDecode,
    MercExpandInstructions,
    MercGenerateWARs1,
    MercGenerateOpex,
    MercGenerateWARs2,
    MercGenerateSassUCode,
    ComputeVCallRegUse,
    CalcRegisterMap,
    UpdateAfterPostRegAlloc,
    ReportFinalMemoryUsage,
    AdvancedPhaseOriPhaseEncoding,
    FormatCodeList,
    UpdateAfterFormatCodeList,
    DumpNVuCodeText,
    DumpNVuCodeHex,
    DebuggerBreak,
    NOP,
}

impl Phase {
    /// The phase of a name in any case.
    pub fn parse(name: &str) -> Option<Phase> {
        Phase::ALL.iter().copied().find(|p| p.name().eq_ignore_ascii_case(name))
    }
}

/// What is asked of the phases of a compilation.
#[derive(Debug, Default)]
pub struct Plan {
    /// `-O` level, 0 … 3.
    pub level: u8,
    /// Phases after which the code is shown.
    pub shown: Vec<Phase>,
    /// Lower-case parts of the names of phases that are left out, if code is right without them.
    pub disabled: Vec<String>,
    /// So many phases that can be left out run, in the order of the functions; those that follow don't.
    pub phases: Option<AtomicU32>,
    /// So many of them see the level, those that follow level 1.
    pub leveled: Option<AtomicU32>,
    /// Whether times are kept.
    pub timed: bool,
}

impl Plan {
    /// Everything that a level has.
    pub fn new(level: u8) -> Plan {
        Plan { level, ..Plan::default() }
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
        Manager { plan, report: Report::default() }
    }

    /// The `-O` level.
    pub fn level(&self) -> u8 {
        self.plan.level
    }

    /// Whether a phase that code is right without runs: it needs the level, must not be disabled, and there must be
    /// something left of the budgets.
    pub fn admits(&self, phase: Phase, min_level: u8) -> bool {
        let named = |part: &String| phase.name().to_ascii_lowercase().contains(part);
        if self.plan.level < min_level || self.plan.disabled.iter().any(named) {
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
        assert_eq!(Phase::ALL.len(), 159);
        assert_eq!(Phase::parse("gvncse"), Some(Phase::GvnCse));
        assert_eq!(Phase::AllocateRegisters as u8, 122);
        assert_eq!(Phase::parse("none"), None);
    }

    #[test]
    fn levels_budgets_and_names_decide() {
        let mut plan = Plan::new(2);
        plan.disabled = vec!["gvn".into()];
        let manager = Manager::new(&plan);
        assert!(manager.admits(Phase::OriCopyProp, 1));
        assert!(!manager.admits(Phase::OriCopyProp, 3));
        assert!(!manager.admits(Phase::GvnCse, 1));
        let two = Plan { phases: Some(AtomicU32::new(2)), ..Plan::new(3) };
        let manager = Manager::new(&two);
        let ran = [1, 1, 1].map(|level| manager.admits(Phase::OriBranchOpt, level));
        assert_eq!(ran, [true, true, false]);
        let leveled = Plan { leveled: Some(AtomicU32::new(1)), ..Plan::new(3) };
        let manager = Manager::new(&leveled);
        let ran = [2, 2, 1].map(|level| manager.admits(Phase::OriBranchOpt, level));
        assert_eq!(ran, [true, false, true]);
    }

    #[test]
    fn shown_code_and_times() {
        let plan = Plan { shown: vec![Phase::OriBranchOpt], timed: true, ..Plan::new(3) };
        let mut manager = Manager::new(&plan);
        let mut unit = String::from("a");
        manager.run(Phase::OriBranchOpt, &mut unit, |u| u.push('b'));
        manager.run(Phase::OriCopyProp, &mut unit, |u| u.push('c'));
        assert_eq!(manager.report.text, "# after OriBranchOpt\nab\n");
        assert_eq!(manager.report.times.len(), 2);
    }
}
