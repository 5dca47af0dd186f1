//! The phases of this crate: what each is called, and what it is about (docs/phases.md is made of that).

use ori::Phase;

/// WARPSYNC goes where no lane can be alone whatever regions there will be, before blocks are put in order.
pub const TOGETHER: Phase = Phase::optional(
    2,
    "together",
    "OptimizeSyncInstructions",
    "WARPSYNC goes where no lane can be alone whatever regions there will be, before blocks are put in order",
);
/// Operands that the encodings take.
pub const LEGALIZE: Phase =
    Phase::needed("legalize", "LateExpansionUnsupportedOps", "operands that the encodings take");
/// The order in a block, for registers and latency.
pub const PREPASS: Phase = Phase::optional(
    1,
    "prepass",
    "ScheduleInstructions",
    "the order in a block, for registers and latency ([scheduling](#scheduling))",
);
/// Constants, parameters and addresses in the stack frame made again where they are used, if registers are short, and what is computed of them alone if few blocks read it.
pub const REMAT: Phase = Phase::optional(
    2,
    "remat",
    "OriDoRemat",
    "constants, parameters and addresses in the stack frame made again where they are used, if registers are short, and what is computed of them alone if few blocks read it; from sm_90 on parameters, and what is computed of them alone, stay in uniform registers instead, as far as those reach",
);
/// Loop counters, and what is computed of them and of constants alone, in uniform registers, if registers are short.
pub const COUNTERS: Phase = Phase::optional(
    2,
    "counters",
    "ConvertToUniformReg",
    "loop counters, and what is computed of them and of constants alone, in uniform registers, if registers are short ([scheduling](#scheduling); sm_80 to 110)",
);
/// Convergence barriers.
pub const CONVERGENCE: Phase = Phase::needed("convergence", "OriDoSyncronization", "convergence barriers");
/// Registers, spills, copies of block arguments.
pub const ALLOCATE: Phase =
    Phase::needed("allocate", "AllocateRegisters", "registers, spills, copies of block arguments");
/// Macro-operations to instructions, the frame.
pub const EXPAND: Phase =
    Phase::needed("expand", "PostExpansion", "macro-operations to instructions, the frame");
/// Pairs of zeros, and from sm_120 on of numbers and copies, as one instruction.
pub const ZEROS: Phase = Phase::optional(
    2,
    "zeros",
    "LateArchOptimizeSecond",
    "pairs of zeros, and from sm_120 on of numbers and copies, as one instruction",
);
/// Copies, sums and shifts shared between the pipes of integers and products.
pub const BALANCE: Phase = Phase::optional(
    2,
    "balance",
    "LateArchOptimizeSecond",
    "copies, sums and shifts shared between the pipes of integers and products",
);
/// The order in a block.
pub const SCHEDULE: Phase = Phase::optional(1, "schedule", "PostSchedule", "the order in a block");
/// Stall counts, scoreboards, reuse.
pub const HAZARDS: Phase =
    Phase::needed("hazards", "AdvancedScoreboardsAndOpexes", "stall counts, scoreboards, reuse");
/// Instruction words.
pub const EMIT: Phase = Phase::needed("emit", "MercGenerateSassUCode", "instruction words");

/// All of them, in order.
pub const ALL: &[Phase] = &[
    TOGETHER,
    LEGALIZE,
    PREPASS,
    REMAT,
    COUNTERS,
    CONVERGENCE,
    ALLOCATE,
    EXPAND,
    ZEROS,
    BALANCE,
    SCHEDULE,
    HAZARDS,
    EMIT,
];
