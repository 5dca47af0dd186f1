//! The functions of the header, and the table of all of them.

mod context;
mod copy;
mod device;
mod event;
mod graph;
mod image;
mod launch;
mod link;
mod mapping;
mod memory;
mod missing;
mod module;
mod pool;
mod reference;
mod set;
mod stream;
mod tensor;

use context::*;
use copy::*;
use device::*;
use event::*;
use graph::*;
use image::*;
use launch::*;
use link::*;
use mapping::*;
use memory::*;
use missing::*;
use module::*;
use pool::*;
use reference::*;
use set::*;
use stream::*;
use tensor::*;

/// Whether there are no flags but these.
///
/// # Errors
/// If there are others.
fn only(flags: u32, known: u32) -> crate::error::Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(crate::error::Error::INVALID_VALUE) }
}

/// Whether a value of an enumeration from 0 on is one of so many.
///
/// # Errors
/// If it is not.
fn below(value: u32, count: u32) -> crate::error::Result<()> {
    if value < count { Ok(()) } else { Err(crate::error::Error::INVALID_VALUE) }
}

/// An opaque pointer of C.
pub type Handle = u64;

/// A function of the header.
#[derive(Debug)]
pub struct Row {
    /// Its name without a suffix.
    pub name: &'static str,
    /// The version from which on the name means it: 1000 · major + 10 · minor.
    pub version: i32,
    /// Whether it is the variant for a default stream of each thread.
    pub thread: bool,
    /// Its symbol.
    pub symbol: &'static str,
    /// The function.
    pub function: *const (),
}

impl Row {
    const fn new(
        name: &'static str,
        version: i32,
        thread: bool,
        symbol: &'static str,
        function: *const (),
    ) -> Row {
        Row { name, version, thread, symbol, function }
    }
}

/// All of them.
fn rows() -> Vec<Row> {
    Vec::from(include!(concat!(env!("OUT_DIR"), "/rows.rs")))
}

/// The function that a name means for a program of some version; else whether it would for a newer one.
pub fn find(name: &str, version: i32, thread: bool) -> Result<Row, bool> {
    let of = |r: &Row| r.name == name || r.symbol == name;
    let (mut known, mut best): (bool, Option<Row>) = (false, None);
    for r in rows().into_iter().filter(of) {
        known = true;
        let wanted = (thread || !r.thread) && r.version <= version;
        let key = |r: &Row| (r.thread, r.version);
        if wanted && best.as_ref().is_none_or(|b| key(b) < key(&r)) {
            best = Some(r);
        }
    }
    best.ok_or(known)
}
