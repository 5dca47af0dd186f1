//! Capture: sequences of streams' work that become a graph, and what ends them.
//!
//! A call that may not be made during a sequence makes it invalid: all that its streams are asked for from then on is an
//! error, until it is ended, which gives no graph.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::stream::{Capture, LEGACY, NON_BLOCKING, meant};
use crate::work::Work;
use std::cell::Cell;
use std::thread::ThreadId;

/// How strict a sequence or a thread is, as the header numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// No thread may do what is unsafe.
    Global,
    /// The thread of the sequence may not.
    ThreadLocal,
    /// Everyone may.
    Relaxed,
}

impl Mode {
    /// By its number.
    pub fn of(number: u32) -> Result<Mode> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed]
            .get(number as usize)
            .copied()
            .ok_or(Error::INVALID_VALUE)
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets the thread's own mode; the one before.
pub fn exchange(mode: Mode) -> Mode {
    MODE.replace(mode)
}

/// A sequence under way, or one that became invalid and was not ended.
#[derive(Debug)]
pub struct Sequence {
    /// The graph.
    pub graph: u64,
    /// Whether the graph was there before.
    pub given: bool,
    /// The stream in which it began.
    pub origin: u64,
    /// How strict it is.
    pub mode: Mode,
    /// The thread that began it.
    pub thread: ThreadId,
    /// Whether something was done that may not be.
    pub invalid: bool,
}

impl Driver {
    /// The graph that a stream captures into and the nodes that the next one comes after, if it does.
    ///
    /// # Errors
    /// If its sequence is invalid.
    pub fn capturing(&mut self, stream: u64) -> Result<Option<(u64, Vec<u64>)>> {
        let Some(c) = self.stream(stream)?.capture.clone() else { return Ok(None) };
        let q = self.captures.get(c.sequence)?;
        if q.invalid { Err(Error::STREAM_CAPTURE_INVALIDATED) } else { Ok(Some((q.graph, c.last))) }
    }

    /// Sets the nodes that a capturing stream's next one comes after.
    pub fn set_last(&mut self, stream: u64, last: Vec<u64>) -> Result<()> {
        self.stream(stream)?.capture.as_mut().ok_or(Error::ILLEGAL_STATE)?.last = last;
        Ok(())
    }

    /// Says that a sequence is of no use any more.
    pub fn invalidate(&mut self, sequence: u64) {
        if let Ok(q) = self.captures.get_mut(sequence) {
            q.invalid = true;
        }
    }

    /// Makes all sequences invalid that are of some kind; whether there are any.
    fn invalidate_where(&mut self, is: impl Fn(&Sequence) -> bool) -> bool {
        let mut found = false;
        for q in self.captures.values_mut().filter(|q| !q.invalid && is(q)) {
            (q.invalid, found) = (true, true);
        }
        found
    }

    /// What a call is that may be unsafe while something is captured (it is not seen by the capture, as an allocation).
    pub fn unsafe_call(&mut self) -> Result<()> {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let hurts = |q: &Sequence| match (mode, q.thread == thread) {
            (Mode::Relaxed, _) => false,
            (_, true) => q.mode != Mode::Relaxed,
            (Mode::Global, false) => q.mode == Mode::Global,
            (Mode::ThreadLocal, false) => false,
        };
        if self.invalidate_where(hurts) { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Waits for everything: not while something is captured.
    pub fn wait_for_all(&mut self) -> Result<()> {
        if self.invalidate_where(|_| true) { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// The sequences that a stream would have to wait for: the one that everyone shares waits for all but those that say not to.
    pub fn in_the_way(&self, stream: u64) -> Vec<u64> {
        if meant(stream) > LEGACY || self.captures.iter().next().is_none() {
            return Vec::new();
        }
        let blocking = self.all_streams().filter(|s| s.flags & NON_BLOCKING == 0);
        let all = blocking.filter_map(|s| Some(s.capture.as_ref()?.sequence));
        all.filter(|q| self.captures.get(*q).is_ok_and(|q| !q.invalid)).collect()
    }

    /// What is done in a stream may not have to wait for a sequence, which becomes invalid by it.
    pub fn implicit(&mut self, stream: u64) -> Result<()> {
        let all = self.in_the_way(stream);
        all.iter().for_each(|q| self.invalidate(*q));
        if all.is_empty() { Ok(()) } else { Err(Error::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Lets a stream wait for an event; under capture as a node of the graph if that is asked for.
    pub fn wait(&mut self, stream: u64, event: u64, external: bool) -> Result<()> {
        let e = self.events.get(event)?.clone();
        let mine = self.stream(stream)?.capture.as_ref().map(|c| c.sequence);
        let graph = match self.capturing(stream)? {
            Some((graph, last)) if external => {
                let node = self.add_node(graph, &last, Work::Wait(event))?;
                return self.set_last(stream, vec![node]);
            }
            other => other.map(|c| c.0),
        };
        if external {
            return Err(Error::INVALID_VALUE);
        }
        let recorded = e.time.is_some() || e.captured.is_some() || e.waiting.is_some();
        let live = e.captured.filter(|(s, _)| self.captures.get(*s).is_ok());
        let Some((sequence, nodes)) = live else {
            self.implicit(stream)?;
            // What was recorded outside is no part of the graph.
            return match mine {
                Some(sequence) if graph.is_some() && recorded => {
                    self.invalidate(sequence);
                    Err(Error::STREAM_CAPTURE_ISOLATION)
                }
                _ => match self.unrecorded(event)? {
                    Some(item) => self.defer(stream, Work::Empty, Some(item)).map(|_| ()),
                    None => Ok(()),
                },
            };
        };
        if self.captures.get(sequence)?.invalid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        if meant(stream) <= LEGACY {
            self.invalidate(sequence);
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        if mine.is_some_and(|m| m != sequence) {
            self.invalidate(sequence);
            mine.into_iter().for_each(|m| self.invalidate(m));
            return Err(Error::STREAM_CAPTURE_MERGE);
        }
        let capture = self.stream(stream)?.capture.get_or_insert(Capture { sequence, last: Vec::new() });
        for n in nodes {
            if !capture.last.contains(&n) {
                capture.last.push(n);
            }
        }
        Ok(())
    }

    /// Begins to capture, into a graph if there is one already.
    pub fn begin_capture(&mut self, stream: u64, mode: Mode, into: Option<(u64, Vec<u64>)>) -> Result<()> {
        if self.stream(stream)?.capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        let stream = meant(stream);
        if stream <= LEGACY {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        let given = into.is_some();
        let (graph, last) = match into {
            Some((graph, after)) => {
                self.graphs.get(graph)?.has(&after)?;
                (graph, after)
            }
            None => (self.graphs.add(Graph::default()), Vec::new()),
        };
        let thread = std::thread::current().id();
        let sequence =
            self.captures.add(Sequence { graph, given, origin: stream, mode, thread, invalid: false });
        self.stream(stream)?.capture = Some(Capture { sequence, last });
        Ok(())
    }

    /// Ends a sequence: the graph, and what is wrong with it. A graph that was there before stays the program's.
    ///
    /// # Errors
    /// If it cannot be ended in this stream or by this thread.
    pub fn end_capture(&mut self, stream: u64) -> Result<(u64, Option<Error>)> {
        let capture = self.stream(stream)?.capture.clone().ok_or(Error::ILLEGAL_STATE)?;
        let q = self.captures.get(capture.sequence)?;
        if q.origin != meant(stream) {
            return Err(Error::STREAM_CAPTURE_UNMATCHED);
        }
        if q.mode != Mode::Relaxed && q.thread != std::thread::current().id() {
            return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, given, invalid) = (q.graph, q.given, q.invalid);
        // What every other stream did last has to come before what this one did last.
        let before = self.graphs.get(graph)?.before(&capture.last);
        let unjoined = self
            .all_streams()
            .filter_map(|s| s.capture.as_ref())
            .filter(|c| c.sequence == capture.sequence)
            .any(|c| c.last.iter().any(|n| !before.contains(n)));
        self.forget(capture.sequence);
        let wrong = match (invalid, unjoined) {
            (true, _) => Some(Error::STREAM_CAPTURE_INVALIDATED),
            (_, true) => Some(Error::STREAM_CAPTURE_UNJOINED),
            _ => None,
        };
        Ok((if wrong.is_some() && given { 0 } else { graph }, wrong))
    }

    /// Takes a sequence away, and its streams out of it.
    pub fn forget(&mut self, sequence: u64) {
        let of = |s: &crate::stream::Stream| s.capture.as_ref().is_some_and(|c| c.sequence == sequence);
        self.all_streams_mut().filter(|s| of(s)).for_each(|s| s.capture = None);
        let _ = self.captures.remove(sequence);
    }
}
