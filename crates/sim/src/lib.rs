//! Two executors of the same launch: the PTX interpreter and the SASS simulator.

pub mod cycles;
mod errors;
mod file;
pub mod fp;
pub mod generate;
mod gmma;
pub mod hazard;
pub mod image;
pub mod launch;
mod matrix;
mod mbarrier;
pub mod memory;
mod metadata;
pub mod number;
pub mod order;
pub mod output;
pub mod ptx;
mod quad;
pub mod record;
pub mod sass;
pub mod schedule;
mod shadow;
pub mod small;
pub mod sparse;
pub mod stops;
mod tensormap;
mod tile;
mod tmem;
pub mod watch;

pub use file::FileError;

/// Starts the threads that run blocks side by side under a name, by which others tell them from their own.
pub fn name_threads(name: &'static str) {
    // Whoever started some before has named them otherwise.
    let _ = rayon::ThreadPoolBuilder::new().thread_name(move |i| format!("{name} {i}")).build_global();
}
