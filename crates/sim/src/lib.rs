//! Two executors of the same launch: the PTX interpreter and the SASS simulator.

pub mod fp;
pub mod generate;
pub mod hazard;
pub mod launch;
mod matrix;
pub mod memory;
pub mod ptx;
pub mod sass;
pub mod small;
pub mod sparse;
