//! PTX to cubin: the option table, the pipeline and the messages of `oxptxas`.
//!
//! ```no_run
//! let source = std::fs::read_to_string("kernel.ptx")?;
//! let settings = oxptxas::Settings::new(sass::Target::parse("sm_90").unwrap());
//! match oxptxas::compile(&source, "kernel.ptx", &settings) {
//!     Ok(output) => std::fs::write("kernel.cubin", output.cubin)?,
//!     Err(failure) => eprint!("{}", failure.render("oxptxas")),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod console;
mod convention;
mod debug;
pub mod directives;
mod dwarf;
mod facts;
pub mod files;
mod functions;
mod gradients;
pub mod inputs;
pub mod jobserver;
pub mod knobs;
mod limits;
mod newer;
mod notices;
mod object;
pub mod options;
mod output;
pub mod pipeline;
mod settings;
pub mod timeline;
mod units;
mod vector_params;

pub use output::{Failure, KernelStats, Output};
pub use pipeline::compile;
pub use settings::{Asked, Settings};
