//! PTX to Ori lowering.

mod approx;
mod convert;
mod divconst;
mod emit;
pub mod math;
mod ssa;
mod types;
mod wide;
