//! What `oxsass` does with GPU code: disassemble it, execute PTX and code and compare ([`verify`]), find the phase of the
//! compiler that breaks it ([`bisect`]), and say how fast it is ([`compare`]).

pub mod bisect;
pub mod compare;
mod error;
pub mod explain;
pub mod flow;
pub mod link;
pub mod listing;
pub mod merged;
pub mod places;
pub mod pool;
mod tolerance;
pub mod verify;

pub use error::Error;
