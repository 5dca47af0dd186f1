//! Streams and events. Work is done when it is submitted, so order is kept by itself; a stream under capture puts it
//! into a graph (`capture`).

use crate::driver::{self, Driver};
use crate::error::{Error, Result};
use crate::ffi::Variant;
use crate::queue;
use crate::work::Work;
use std::time::Instant;

/// Flag of a stream that the one everyone shares does not wait for.
pub const NON_BLOCKING: u32 = 1;
/// The last handle of the stream that everyone shares.
pub const LEGACY: u64 = 1;
/// The handle of each thread's own.
pub const OWN: u64 = 2;

/// The stream that a handle means: null is everyone's, or the thread's own.
pub fn meant(handle: u64) -> u64 {
    if handle == 0 && Variant::get() != Variant::Shared { OWN } else { handle }
}

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// As asked for.
    pub flags: u32,
    /// As asked for.
    pub priority: i32,
    /// The context that it was made in.
    pub context: u64,
    /// What it captures.
    pub capture: Option<Capture>,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The sequence that it takes part in.
    pub sequence: u64,
    /// The nodes that the next one comes after.
    pub last: Vec<u64>,
}

/// An event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// As asked for.
    pub flags: u32,
    /// The context that it was made in.
    pub context: u64,
    /// When it was recorded.
    pub time: Option<Instant>,
    /// Where it was captured: the sequence and its nodes.
    pub captured: Option<(u64, Vec<u64>)>,
    /// What records it when its turn comes, if its newest record is not done yet.
    pub waiting: Option<u64>,
}

/// Does work, or captures it.
pub fn submit(stream: u64, work: Work) -> Result<()> {
    enum Way {
        Done,
        Now,
        /// When what waits is done, as the program wants to read what comes of it.
        AtOnce,
    }
    let way = driver::within(|d| {
        d.implicit(stream)?;
        if Variant::get() == Variant::OwnWaits {
            d.finished(stream)?;
        }
        if let Some((graph, last)) = d.capturing(stream)? {
            let node = d.add_node(graph, &last, work.clone())?;
            d.set_last(stream, vec![node])?;
            return Ok(Way::Done);
        }
        if !d.held(stream)? {
            return Ok(Way::Now);
        }
        match &work {
            Work::Copy(t) if d.is_pageable(&t.to) => Ok(Way::AtOnce),
            _ => d.defer(stream, work.clone(), None).map(|_| Way::Done),
        }
    })?;
    match way {
        Way::Done => return Ok(()),
        Way::Now => {}
        Way::AtOnce => queue::make_way(stream)?,
    }
    work.run(stream)?;
    // Others may have waited for it.
    queue::advance();
    Ok(())
}

/// Does an executable graph, or captures it. One whose turn has not come, or that waits itself, is taken to pieces: only what
/// comes after a wait waits for it.
pub fn launch_graph(exec: u64, stream: u64) -> Result<()> {
    let now = driver::within(|d| {
        d.implicit(stream)?;
        if let Some((graph, last)) = d.capturing(stream)? {
            let steps = d.execs.get(exec)?.steps.clone();
            let node = d.add_node(graph, &last, Work::Graph(steps))?;
            return d.set_last(stream, vec![node]).map(|()| None);
        }
        let (steps, left) = d.begin_launch(exec)?;
        if d.held(stream)? || d.unfinished_graph(exec) || d.has_to_wait(&steps)? {
            return d.defer_graph(stream, exec, &steps, &left).map(|()| None);
        }
        left.into_iter().try_for_each(|a| d.free_async(a))?;
        Ok(Some(steps))
    })?;
    now.map_or(Ok(()), |steps| Work::Graph(steps).run(stream))?;
    // It may be its turn, and others may have waited for it.
    queue::advance();
    Ok(())
}

/// Does work that the program waits for.
pub fn submit_and_wait(work: Work) -> Result<()> {
    submit(0, work)?;
    queue::finish(0)
}

impl Driver {
    /// The context of a stream: of those that need not be made, the current one.
    pub fn context_of(&mut self, stream: u64) -> Result<u64> {
        if stream <= OWN { self.context() } else { Ok(self.streams.get(stream)?.context) }
    }

    /// Records an event now.
    pub fn record(&mut self, event: u64) -> Result<()> {
        let e = self.events.get_mut(event)?;
        (e.time, e.captured, e.waiting) = (Some(Instant::now()), None, None);
        Ok(())
    }

    /// An event's record that waited, by its number, is done. The event may have ended, or be another record by now.
    pub fn record_late(&mut self, event: u64, number: u64) {
        if let Ok(e) = self.events.get_mut(event)
            && e.waiting == Some(number)
        {
            (e.time, e.waiting) = (Some(Instant::now()), None);
        }
    }

    /// Records an event in a stream; under capture as a node of the graph if that is asked for.
    pub fn record_in(&mut self, event: u64, stream: u64, external: bool) -> Result<()> {
        if self.events.get(event)?.context != self.context_of(stream)? {
            return Err(Error::INVALID_HANDLE);
        }
        self.implicit(stream)?;
        match self.capturing(stream)? {
            Some((graph, last)) if external => {
                let node = self.add_node(graph, &last, Work::Record(event))?;
                self.set_last(stream, vec![node])
            }
            Some((_, last)) => {
                let sequence = self.stream(stream)?.capture.as_ref().map(|c| c.sequence);
                let e = self.events.get_mut(event)?;
                (e.time, e.captured, e.waiting) = (None, sequence.map(|s| (s, last)), None);
                Ok(())
            }
            // A node of its own is there under capture alone.
            None if external => Err(Error::INVALID_VALUE),
            None if self.held(stream)? => self.defer(stream, Work::Record(event), None).map(|_| ()),
            None => self.record(event),
        }
    }

    /// The item that an event is recorded by, if that is not done yet.
    pub fn unrecorded(&self, event: u64) -> Result<Option<u64>> {
        Ok(self.events.get(event)?.waiting.filter(|n| self.is_waiting(*n)))
    }

    /// An event that may be asked how it fares: not one that was recorded in a capture, which ends by it.
    pub fn settled(&mut self, event: u64) -> Result<()> {
        match self.events.get(event)?.captured {
            Some((sequence, _)) => {
                self.invalidate(sequence);
                Err(Error::CAPTURED_EVENT)
            }
            None => Ok(()),
        }
    }

    /// Waits for a stream, or asks whether it is done: it is, but not under capture, which ends by it.
    pub fn finished(&mut self, stream: u64) -> Result<()> {
        self.implicit(stream)?;
        self.uncaptured(stream)
    }

    /// What is no part of a graph: a capture of the stream ends by it.
    pub fn uncaptured(&mut self, stream: u64) -> Result<()> {
        self.capturing(stream)?;
        match self.stream(stream)?.capture.as_ref().map(|c| c.sequence) {
            Some(sequence) => {
                self.invalidate(sequence);
                Err(Error::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Ends a stream, and a capture that began in it.
    pub fn end_stream(&mut self, stream: u64) -> Result<()> {
        let ended = self.streams.remove(stream)?;
        if let Some(c) = ended.capture
            && self.captures.get(c.sequence).is_ok_and(|q| q.origin == stream)
        {
            self.forget(c.sequence);
        }
        Ok(())
    }
}
