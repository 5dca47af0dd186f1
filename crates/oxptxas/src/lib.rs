//! PTX to cubin: a compiler as a library. The binary `oxptxas`, the C library `liboxptxas` and the Python package do what they do
//! through it.
//!
//! [`compile`] takes the text of a PTX file and [`Settings`], and gives an [`Output`] in memory, or a [`Failure`] with messages and
//! their places. Nothing is read or written on the way, no environment variable looked at, and no state is kept between calls, so
//! that any number of threads may compile at once.
//!
//! ```
//! use oxptxas::{Settings, Target};
//!
//! let source = ".version 8.0\n.target sm_75\n.visible .entry nothing() { ret; }\n";
//! let settings = Settings { opt_level: 1, ..Settings::new(Target::parse("sm_90").unwrap()) };
//! let output = oxptxas::compile(source, "nothing.ptx", &settings)?;
//! assert!(output.cubin.starts_with(b"\x7fELF"));
//! assert_eq!(output.kernels[0].name, "nothing");
//! assert_eq!(output.kernels[0].spills, (0, 0));
//! # Ok::<(), oxptxas::Failure>(())
//! ```
//!
//! For several targets a text is parsed once ([`compile_all`]), and [`cubin::fatbin`] puts what comes of it into one file.
//!
//! Settings may also be said as ptxas's options:
//!
//! ```
//! let settings = oxptxas::Settings::parse(&["-arch=sm_90a", "-lineinfo", "-maxrregcount=64"])?;
//! assert_eq!(settings.max_registers, Some(64));
//! let wrong = oxptxas::Settings::parse(&["-arch=sm_91"]).unwrap_err();
//! assert_eq!(wrong.to_string(), "Value 'sm_91' is not defined for option 'gpu-name'");
//! # Ok::<(), oxptxas::OptionError>(())
//! ```
//!
//! A compilation that takes too long can be [cancelled](Cancel) from another thread:
//!
//! ```
//! use oxptxas::{Cancel, Kind, Settings, Target};
//! use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
//!
//! let flag = Arc::new(AtomicBool::new(false));
//! let cancel = Some(Cancel::on(flag.clone()));
//! let settings = Settings { cancel, ..Settings::new(Target::parse("sm_90").unwrap()) };
//! flag.store(true, Ordering::Relaxed);
//! let source = ".version 8.0\n.target sm_75\n.visible .entry nothing() { ret; }\n";
//! let failure = oxptxas::compile(source, "nothing.ptx", &settings).unwrap_err();
//! assert_eq!(failure.kind(), Kind::Cancelled);
//! ```
//!
//! [`command`] is the same with ptxas's whole command line, its messages included.

mod addresses;
mod assemble;
pub mod command;
pub mod console;
mod convention;
mod debug;
pub mod directives;
mod driver;
mod dwarf;
mod facts;
pub mod files;
mod functions;
mod images;
pub mod inputs;
pub mod jobserver;
pub mod knobs;
mod limits;
mod newer;
mod notices;
mod object;
pub mod options;
mod output;
mod phases;
pub mod pipeline;
mod preserved;
#[cfg(feature = "search")]
mod search;
mod settings;
mod stacks;
pub mod timeline;
mod units;
mod vector_params;

pub use ori::{Cancel, Phase, Remark};
pub use output::{Failure, KernelStats, Kind, Message, Output};
pub use phases::phases;
pub use pipeline::{compile, compile_all};
pub use ptx::{Diagnostic, Severity, Style};
pub use sass::Target;
pub use settings::{Asked, OptionError, Settings};

/// The Rust of the tutorial.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
mod tutorial {}
