//! PTX to Ori lowering.
//!
//! [`ModuleLayout`] places the variables of a module once; [`lower_function`] turns one function into
//! [`ori::Function`] in SSA. What a target or this version cannot do is a [`Diagnostic`]: nothing is ever
//! lowered to something else.
//!
//! One file per family of instructions; `emit` and `wide` hold the idioms they share, `ssa` the
//! construction of SSA, `func` the walk over a function's statements.

mod access;
mod address;
mod approx;
mod arith_float;
mod arith_int;
mod async_copy;
mod atomics;
mod bits;
mod bulk;
mod call;
mod call_graph;
mod carry;
mod compare;
mod control;
mod convert;
mod convert_half;
mod cvt;
mod descriptors;
mod divconst;
mod emit;
mod func;
mod graph;
mod half;
mod handles;
pub mod image_slots;
#[cfg(test)]
mod int_tests;
pub mod layout;
pub mod math;
mod matrix;
mod matrix_moves;
mod mbarrier;
mod mbarrier80;
mod meeting;
mod memory;
mod moves;
mod multimem;
mod operands;
mod own_address;
mod policy;
pub mod pool;
mod quiet;
mod refusal;
mod regs;
mod remote;
mod scalar;
mod space;
mod special;
mod ssa;
mod stack;
mod statement;
mod surface;
mod tensor_checks;
mod tensor_memory;
mod tensor_products;
mod tensormap;
mod texture;
mod texture_level;
mod types;
mod uniform;
mod video;
mod warp;
mod wide;

/// The function as it was lowered.
pub const PHASE: ori::Phase =
    ori::Phase::needed("lower", "ReportInitialRepresentation", "the function as it was lowered (shown only)");

pub use call::{argument_words, convention};
pub use call_graph::CallGraph;
pub use func::{lower_function, max_regs};
pub use graph::reached;
pub use layout::ModuleLayout;
pub use ptx::Diagnostic;
pub use refusal::Refusal;
pub use tensor_checks::reads_taken;

use ptx::LineIndex;
use sass::Target;

/// The function of a name that begins with [`ori::abi::SHARED`], within `max_regs` registers.
pub fn shared_function(name: &str, target: Target, max_regs: u8) -> Option<ori::Function> {
    meeting::function(name, target, max_regs)
        .or_else(|| math::shared_function(name, target, max_regs))
        .or_else(|| tensor_checks::function(name, target, max_regs))
}

/// How to lower.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// What to compile for.
    pub target: Target,
    /// `-O`: 0 … 3.
    pub opt_level: u8,
    /// `-maxrregcount`
    pub maxrregcount: Option<u32>,
    /// `-fmad`: whether products and sums may be contracted, from `-O1` on.
    pub fmad: bool,
    /// Line numbers of the source, for [`ori::Loc`].
    pub lines: Option<&'a LineIndex>,
    /// `-c`: addresses are left to the linker.
    pub relocatable: bool,
    /// Each function of the executable has a section of its own ([`ori::Function::apart`]).
    pub apart: bool,
    /// Of such an object: kernels are as in an executable where they call nothing (`-ewp`).
    pub extensible: bool,
    /// Products of warp groups are waited for one by one.
    pub serial_groups: bool,
    /// A warp keeps the registers that it starts with: `setmaxnreg` is ignored.
    pub steady_registers: bool,
    /// Code that is asked for beside what the program says.
    pub extra: ori::Extra,
}

impl Options<'_> {
    /// Defaults for a target.
    pub fn new(target: Target) -> Options<'static> {
        Options {
            target,
            opt_level: 3,
            maxrregcount: None,
            fmad: true,
            lines: None,
            relocatable: false,
            apart: false,
            extensible: false,
            serial_groups: false,
            steady_registers: false,
            extra: ori::Extra::default(),
        }
    }
}
