//! `libcuda.so.1` on the SASS simulator: CUDA programs run without a GPU. `docs/driver.md` says what is built and
//! which variables there are.
//!
//! The functions of the header are in `api`, thin; what they do is in the other modules, which have no pointers of C.
//! `functions.txt` lists every function of the header.

#[macro_use]
mod ffi;
mod api;
mod attributes;
mod capture;
mod compile;
mod driver;
mod error;
mod fatbin;
mod function;
mod graph;
mod image;
mod link;
mod mapping;
mod memop;
mod memory;
mod module;
mod occupancy;
mod queue;
mod reference;
mod settings;
mod stream;
mod waiting;
mod work;

pub use ffi::symbol;
