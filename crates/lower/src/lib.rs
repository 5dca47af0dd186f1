//! PTX to Ori lowering.
#![expect(dead_code, reason = "the driver that uses these blocks is not in yet")]

mod access;
mod approx;
mod arith_float;
mod arith_int;
mod convert;
mod divconst;
mod emit;
pub mod math;
mod ssa;
mod types;
mod wide;
