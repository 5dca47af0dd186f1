//! The phases of this crate: what each is called, and what it is about (docs/phases.md is made of that).

use ori::Phase;

/// Declares phases, each with what it is about for its documentation, and the list of all.
macro_rules! phases {
    ($($name:ident: $kind:ident $(from $level:literal)?, $called:literal, $of_ptxas:literal, $what:literal;)*) => {
        $(
            #[doc = $what]
            pub const $name: Phase = Phase::$kind($($level,)? $called, $of_ptxas, $what);
        )*

        /// All of them, in order.
        pub const ALL: &[Phase] = &[$($name),*];
    };
}

phases! {
    TOGETHER: optional from 2, "together", "OptimizeSyncInstructions", "WARPSYNC goes where no lane can be alone whatever regions there will be, before blocks are put in order";
    MEET_ONCE: optional from 2, "meet-once", "OptimizeSyncInstructions", "one question whether the whole warp is there for several elections, shuffles and votes in a row, where lanes may meet lanes at others ([convergence](convergence.md#the-warp-together))";
    LEGALIZE: needed, "legalize", "LateExpansionUnsupportedOps", "operands that the encodings take";
    PREPASS: optional from 1, "prepass", "ScheduleInstructions", "the order in a block, for registers and latency ([scheduling](#scheduling))";
    EARLY: optional from 2, "early", "OriHoistInvariantsLate", "what a later block computes where its operands come to their end, if registers are short";
    REMAT: optional from 2, "remat", "OriDoRemat", "constants, parameters and addresses in the stack frame made again where they are used, if registers are short, and what is computed of them alone if few blocks read it; from sm_90 on parameters, and what is computed of them alone, stay in uniform registers instead, as far as those reach";
    COUNTERS: optional from 2, "counters", "ConvertToUniformReg", "loop counters, and what is computed of them and of constants alone, in uniform registers, if registers are short or fewer instructions are executed ([scheduling](#scheduling); sm_80 and later)";
    CONVERGENCE: needed, "convergence", "OriDoSyncronization", "convergence barriers";
    ALLOCATE: needed, "allocate", "AllocateRegisters", "registers, spills, copies of block arguments";
    EXPAND: needed, "expand", "PostExpansion", "macro-operations to instructions, the frame";
    ZEROS: optional from 2, "zeros", "LateArchOptimizeSecond", "pairs of zeros, and from sm_120 on of numbers and copies, as one instruction";
    BALANCE: optional from 2, "balance", "LateArchOptimizeSecond", "copies, sums and shifts shared between the pipes of integers and products";
    SCHEDULE: optional from 1, "schedule", "PostSchedule", "the order in a block";
    ASYNC_COPIES: needed, "async-copies", "PostSchedule", "loads that nobody executes before copies to shared memory";
    HAZARDS: needed, "hazards", "AdvancedScoreboardsAndOpexes", "stall counts, scoreboards, reuse";
    EMIT: needed, "emit", "MercGenerateSassUCode", "instruction words";
}
