//! PTX to Ori lowering.

pub mod math;
