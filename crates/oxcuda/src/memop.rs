//! Operations on words of memory, in streams and as nodes of graphs: waits for a value, and writes of one.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::memory::Kind;
use crate::queue::Value;
use crate::work::Fill;
use std::sync::Arc;

/// Numbers of `CUstreamBatchMemOpType`.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH_REMOTE_WRITES: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;

/// Flags of a wait: how to compare, and that writes of other devices are waited for, which this device cannot
/// (`CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES`).
const COMPARISON: u32 = 3;
const FLUSH: u32 = 1 << 30;
/// Flag of a write: it need not come after earlier ones. Flag of a barrier: it is of the device alone.
const NO_BARRIER: u32 = 1;
const OF_DEVICE: u32 = 1;

/// Operations of a call or a node are fewer.
const MOST: usize = 256;

/// `CUstreamBatchMemOpParams`: what to do; of waits and writes where, the value, and how.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    kind: u32,
    /// Flags of what has no address.
    barrier: u32,
    address: u64,
    value: u64,
    flags: u32,
    unused: u32,
    /// For the driver's own use, and nothing.
    rest: [u64; 2],
}

/// What an operation is.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A value is waited for.
    Wait(Value),
    /// A value is written.
    Write(Fill),
    /// What was written before is seen before what comes after, as it always is.
    Order,
}

impl Operation {
    fn new(kinds: [u32; 2], (address, bytes): (u64, usize), value: u64, flags: u32) -> Operation {
        let kind = kinds[usize::from(bytes == 8)];
        Operation { kind, barrier: 0, address, value, flags, unused: 0, rest: [0; 2] }
    }

    /// A wait for a word of 4 or 8 bytes.
    pub fn wait(word: (u64, usize), value: u64, flags: u32) -> Operation {
        Operation::new([WAIT_32, WAIT_64], word, value, flags)
    }

    /// A write of one.
    pub fn write(word: (u64, usize), value: u64, flags: u32) -> Operation {
        Operation::new([WRITE_32, WRITE_64], word, value, flags)
    }

    /// What it is.
    ///
    /// # Errors
    /// If it is none, or of a kind that the device has not.
    pub fn action(&self) -> Result<Action> {
        let (bytes, waits) = match self.kind {
            WAIT_32 => (4, true),
            WRITE_32 => (4, false),
            WAIT_64 => (8, true),
            WRITE_64 => (8, false),
            BARRIER if self.barrier & !OF_DEVICE == 0 => return Ok(Action::Order),
            FLUSH_REMOTE_WRITES if self.barrier == 0 => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_VALUE),
        };
        let known = if waits { COMPARISON | FLUSH } else { NO_BARRIER };
        if self.flags & !known != 0 || !self.address.is_multiple_of(bytes) {
            return Err(Error::INVALID_VALUE);
        }
        if self.flags & FLUSH != 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        let value = if bytes == 4 { self.value & u64::from(u32::MAX) } else { self.value };
        let (address, flags) = (self.address, self.flags);
        Ok(if waits {
            Action::Wait(Value { address, bytes: bytes as usize, value, flags })
        } else {
            Action::Write(Fill { address, pitch: 0, value, element: bytes as u32, size: [1, 1] })
        })
    }

    /// Whether an executable graph may have this one in place of another: of the same kind; where and which value may differ, and how
    /// to compare.
    fn fits(&self, other: &Operation) -> bool {
        let place = matches!(self.kind, WAIT_32 | WAIT_64 | WRITE_32 | WRITE_64);
        let flags = matches!(self.kind, WRITE_32 | WRITE_64) && self.flags != other.flags;
        self.kind == other.kind && !flags && (place || self.barrier == other.barrier)
    }
}

/// Operations that are done one after another.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The context that they are of.
    pub context: u64,
    /// Them; programs may read them while they are a node's.
    pub list: Arc<[Operation]>,
}

impl Batch {
    /// What they are.
    pub fn actions(&self) -> impl Iterator<Item = Action> {
        self.list.iter().filter_map(|o| o.action().ok())
    }

    /// Whether one of them is a wait.
    pub fn waits(&self) -> bool {
        self.actions().any(|a| matches!(a, Action::Wait(_)))
    }

    /// Whether an executable graph may have these in place of others.
    pub fn fits(&self, other: &Batch) -> bool {
        self.context == other.context
            && self.list.len() == other.list.len()
            && self.list.iter().zip(&*other.list).all(|(a, b)| a.fits(b))
    }
}

impl Driver {
    /// Operations of a context, or of the current one. All of them are looked at before the first is done.
    pub fn batch(&mut self, context: u64, list: &[Operation]) -> Result<Batch> {
        let context = if context == 0 { self.context()? } else { context };
        self.contexts.get(context).map_err(|_| Error::INVALID_VALUE)?;
        if list.len() >= MOST {
            return Err(Error::INVALID_VALUE);
        }
        for o in list {
            match o.action()? {
                Action::Wait(v) => self.word(v.address, v.bytes)?,
                Action::Write(f) => self.word(f.address, f.element as usize)?,
                Action::Order => {}
            }
        }
        Ok(Batch { context, list: list.into() })
    }

    /// Whether there can be a word for such operations: not in managed memory; what a graph allocates need not be there yet.
    fn word(&self, address: u64, bytes: usize) -> Result<()> {
        match self.space.find(address) {
            Some((_, r)) if matches!(r.kind, Kind::Managed | Kind::Variable) => Err(Error::INVALID_VALUE),
            None if self.space.within_graphs(address, bytes) => Ok(()),
            _ => self.space.check(address, bytes as u64),
        }
    }
}
