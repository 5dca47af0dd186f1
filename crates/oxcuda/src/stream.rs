//! Streams and events. Work is done when it is submitted, so order is kept by itself; a stream under capture puts it
//! into a graph.

use crate::driver::{self, Driver};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::work::Work;
use std::time::Instant;

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

/// A capture under way.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The graph.
    pub graph: u64,
    /// The nodes that the next one comes after.
    pub last: Vec<u64>,
    /// Whether the capture began in this stream.
    pub origin: bool,
}

/// An event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// As asked for.
    pub flags: u32,
    /// When it was recorded.
    pub time: Option<Instant>,
    /// Where it was captured: the graph and its nodes.
    pub captured: Option<(u64, Vec<u64>)>,
}

/// Does work, or captures it.
pub fn submit(stream: u64, work: Work) -> Result<()> {
    let captured = driver::within(|d| {
        let Some(capture) = d.stream(stream)?.capture.clone() else { return Ok(false) };
        let node = d.graphs.get_mut(capture.graph)?.add(&capture.last, work.clone())?;
        if let Some(c) = &mut d.stream(stream)?.capture {
            c.last = vec![node];
        }
        Ok(true)
    })?;
    if captured { Ok(()) } else { work.run(stream) }
}

impl Driver {
    /// Records an event now.
    pub fn record(&mut self, event: u64) -> Result<()> {
        let e = self.events.get_mut(event)?;
        (e.time, e.captured) = (Some(Instant::now()), None);
        Ok(())
    }

    /// Records an event in a stream.
    pub fn record_in(&mut self, event: u64, stream: u64) -> Result<()> {
        match self.stream(stream)?.capture.clone() {
            Some(c) => {
                self.events.get_mut(event)?.captured = Some((c.graph, c.last));
                Ok(())
            }
            None => self.record(event),
        }
    }

    /// Lets a stream wait for an event.
    pub fn wait(&mut self, stream: u64, event: u64) -> Result<()> {
        let Some((graph, nodes)) = self.events.get(event)?.captured.clone() else { return Ok(()) };
        if self.graphs.get(graph).is_err() {
            return Ok(());
        }
        let s = self.stream(stream)?;
        let capture = s.capture.get_or_insert(Capture { graph, last: Vec::new(), origin: false });
        if capture.graph != graph {
            return Err(Error::STREAM_CAPTURE_MERGE);
        }
        for n in nodes {
            if !capture.last.contains(&n) {
                capture.last.push(n);
            }
        }
        Ok(())
    }

    /// Begins to capture, into a graph if there is one already.
    pub fn begin_capture(&mut self, stream: u64, into: Option<(u64, Vec<u64>)>) -> Result<()> {
        if self.stream(stream)?.capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        if stream <= 1 {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        let (graph, last) = match into {
            Some(i) => i,
            None => (self.graphs.add(Graph::default()), Vec::new()),
        };
        self.stream(stream)?.capture = Some(Capture { graph, last, origin: true });
        Ok(())
    }

    /// Ends it: the graph.
    pub fn end_capture(&mut self, stream: u64) -> Result<u64> {
        let capture = self.stream(stream)?.capture.clone().ok_or(Error::ILLEGAL_STATE)?;
        if !capture.origin {
            return Err(Error::STREAM_CAPTURE_UNMATCHED);
        }
        let graph = capture.graph;
        let of = |s: &Stream| s.capture.as_ref().is_some_and(|c| c.graph == graph);
        self.streams.values_mut().chain([&mut self.legacy]).filter(|s| of(s)).for_each(|s| s.capture = None);
        Ok(graph)
    }
}
