//! Work that waits: behind a wait for a value in memory (`cuStreamWaitValue32`) that is not there yet. All other work is done
//! when it is submitted; this is kept in the order of its streams until the value is there, which is looked at whenever the
//! program calls the driver. Graphs that wait are taken to pieces, in the order of their edges.

use crate::driver::{self, Driver, stack};
use crate::error::{Error, Result};
use crate::ffi::{self, Block, Variant, as_variant};
use crate::graph::{self, Step};
use crate::memop::Action;
use crate::settings;
use crate::stream::{LEGACY, NON_BLOCKING, OWN, meant};
use crate::waiting::Launched;
use crate::work::{End, Side, Work};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A value that is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Where.
    pub address: u64,
    /// 4 or 8.
    pub bytes: usize,
    /// What it is compared with.
    pub value: u64,
    /// How, as `CUstreamWaitValue_flags` has it.
    pub flags: u32,
}

/// The comparisons of [`Value::flags`], in words.
const COMPARISONS: [&str; 4] =
    ["at least", "", "one that has a bit in common with", "one that lacks a bit that is not in"];

impl Value {
    /// What is there, if it can be read.
    fn have(&self, d: &Driver) -> Option<u64> {
        d.space.read(self.address, self.bytes).ok().map(|b| sim::memory::little_endian(&b))
    }

    /// Whether it is there.
    pub fn holds(&self, d: &Driver) -> bool {
        let (short, want) = (self.bytes == 4, self.value);
        self.have(d).is_some_and(|have| match self.flags & 3 {
            0 if short => (have as u32).wrapping_sub(want as u32) as i32 >= 0,
            0 => have.wrapping_sub(want) as i64 >= 0,
            1 => have == want,
            2 => have & want != 0,
            _ => (have | want) != if short { u64::from(u32::MAX) } else { u64::MAX },
        })
    }

    fn text(&self, d: &Driver) -> String {
        let have = self.have(d).map_or("nothing".into(), |h| format!("{h:#x}"));
        let how = COMPARISONS[(self.flags & 3) as usize];
        format!("waits for {how} {:#x} at {:#x}, where {have} is", self.value, self.address)
            .replace("  ", " ")
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lane {
    /// The stream that everyone shares.
    Shared,
    /// A thread's own.
    Own(ThreadId),
    /// One that was made.
    Made(u64),
    /// No stream's: it waits for what it comes after alone.
    None,
}

/// What is to be done.
#[derive(Clone)]
pub(crate) enum Task {
    Work(Work),
    Value(Value),
    /// User objects are let go, so often each.
    Release(Vec<(u64, u32)>),
}

/// Something that waits.
pub struct Item {
    pub(crate) number: u64,
    pub(crate) lane: Lane,
    /// Whether it and what the shared stream does wait for each other.
    pub(crate) blocking: bool,
    context: u64,
    stream: u64,
    variant: Variant,
    pub(crate) task: Task,
    /// Others that have to be done before, whichever stream they are of.
    pub(crate) after: Vec<u64>,
    /// The executable graph that it is of, and a number of its launch.
    pub(crate) graph: Option<Launched>,
    pub(crate) running: bool,
    /// Memory that the work reads in place of the program's.
    _staged: Option<Block>,
}

impl Item {
    /// Whether what comes to a lane later has to wait for this one.
    fn holds_up(&self, lane: Lane, blocking: bool) -> bool {
        lane != Lane::None
            && (self.lane == lane
                || self.lane == Lane::Shared && blocking
                || lane == Lane::Shared && self.blocking)
    }
}

/// Whether something waits: asked at every call.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Calls that take away what work needs, and wait until none is left.
const WAIT_FOR_ALL: [&str; 16] = [
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemPoolDestroy",
    "cuModuleUnload",
    "cuLibraryUnload",
    "cuArrayDestroy",
    "cuMipmappedArrayDestroy",
    "cuTexObjectDestroy",
    "cuSurfObjectDestroy",
    "cuCtxDestroy",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuCtxDetach",
];

/// A call of the driver begins.
pub fn look(name: &str) -> Result<()> {
    if !WAITING.load(Ordering::Relaxed) {
        return Ok(());
    }
    advance();
    if WAIT_FOR_ALL.contains(&name) { wait(|_| true) } else { Ok(()) }
}

/// Does what can be done; whether that was anything.
pub fn advance() -> bool {
    let mut any = false;
    while WAITING.load(Ordering::Relaxed) {
        let Ok(Some((number, context, stream, variant, task))) = driver::with(|d| Ok(d.next_item())) else {
            break;
        };
        any = true;
        stack(|s| s.push(context));
        let result = as_variant(variant, || match &task {
            Task::Work(Work::Record(event)) => driver::with(|d| {
                d.record_late(*event, number);
                Ok(())
            }),
            Task::Work(work) => work.run(stream),
            Task::Release(objects) => graph::release(objects),
            Task::Value(_) => Ok(()),
        });
        stack(Vec::pop);
        let _ = driver::with(|d| {
            d.ended(number, context, result);
            Ok(())
        });
    }
    any
}

/// Whether this thread is the only one that could do anything, of the threads that run blocks side by side aside.
fn alone() -> bool {
    let Ok(all) = std::fs::read_dir("/proc/self/task") else { return false };
    let other = |t: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(t.path().join("comm")).unwrap_or_default();
        !name.starts_with(driver::THREADS)
    };
    all.flatten().filter(other).count() <= 1
}

/// Waits until nothing of a kind is left.
///
/// # Errors
/// If nobody comes to write what is waited for: the contexts of what waits are of no use any more.
pub fn wait(of: impl Fn(&Item) -> bool) -> Result<()> {
    let mut since = Instant::now();
    loop {
        if advance() {
            since = Instant::now();
        }
        let (left, running) = driver::with(|d| {
            let left = d.queue.iter().any(&of);
            Ok((left, d.queue.iter().any(|i| i.running)))
        })?;
        if !left {
            // What went wrong is told.
            return driver::within(|_| Ok(()));
        }
        if running {
            since = Instant::now();
        } else if alone() || since.elapsed() > Duration::from_secs(settings::get().wait) {
            let callbacks = driver::with(|d| Ok(d.give_up()))?;
            let told = Error::LAUNCH_TIMEOUT.0;
            for (f, stream, data) in callbacks {
                as_variant(Variant::Shared, || f.call(stream, told, data));
            }
            return Err(Error::LAUNCH_TIMEOUT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for all that waits in a stream.
///
/// # Errors
/// See [`wait`].
pub fn finish(stream: u64) -> Result<()> {
    if !WAITING.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (lane, _) = driver::with(|d| d.lane(stream))?;
    wait(|i| i.lane == lane)
}

/// Waits until what is submitted to a stream could be done at once.
pub fn make_way(stream: u64) -> Result<()> {
    let (lane, blocking) = driver::with(|d| d.lane(stream))?;
    wait(|i| i.holds_up(lane, blocking))
}

/// Waits until an item is done.
pub fn wait_for(number: u64) -> Result<()> {
    wait(|i| i.number == number)
}

impl Driver {
    fn lane(&mut self, stream: u64) -> Result<(Lane, bool)> {
        Ok(match meant(stream) {
            0..=LEGACY => (Lane::Shared, true),
            OWN => (Lane::Own(std::thread::current().id()), true),
            h => (Lane::Made(h), self.streams.get(h)?.flags & NON_BLOCKING == 0),
        })
    }

    /// Whether what is submitted to a stream has to wait.
    pub fn held(&mut self, stream: u64) -> Result<bool> {
        let (lane, blocking) = self.lane(stream)?;
        Ok(self.queue.holds_up(lane, blocking))
    }

    /// Whether something of a stream is not done yet.
    pub fn unfinished(&mut self, stream: u64) -> Result<bool> {
        let (lane, _) = self.lane(stream)?;
        Ok(self.queue.is_in(lane))
    }

    /// Whether an item is not done yet.
    pub fn is_waiting(&self, number: u64) -> bool {
        self.queue.has(number)
    }

    /// Puts something at the end; its number. An event that it records is not done until it is.
    fn push(
        &mut self,
        stream: u64,
        task: Task,
        after: Vec<u64>,
        (graph, staged): (Option<(u64, u64)>, Option<Block>),
    ) -> Result<u64> {
        let (lane, blocking) = self.lane(stream)?;
        let (context, number) = (self.context_of(stream)?, driver::fresh());
        let (variant, running) = (Variant::get(), false);
        if let Task::Work(Work::Record(event)) = &task
            && let Ok(e) = self.events.get_mut(*event)
        {
            (e.waiting, e.captured) = (Some(number), None);
        }
        self.queue.push(Item {
            number,
            lane,
            blocking,
            context,
            stream,
            variant,
            task,
            after,
            graph,
            running,
            _staged: staged,
        });
        WAITING.store(true, Ordering::Relaxed);
        Ok(number)
    }

    /// Lets work wait for its turn in a stream, and for another item; its number. What it reads of memory that the driver does not
    /// know is read now: the program may go on to use it.
    pub fn defer(&mut self, stream: u64, work: Work, after: Option<u64>) -> Result<u64> {
        let (work, staged) = match work {
            Work::Launch(l) => {
                self.could_launch(&l)?;
                (Work::Launch(l), None)
            }
            Work::Copy(mut t) if self.is_pageable(&t.from) => {
                let [width, height, depth] = t.size;
                let whole = width.checked_mul(height).and_then(|n| n.checked_mul(depth));
                let block = Block::new(whole.ok_or(Error::INVALID_VALUE)? as usize)?;
                let (mut to, pitch, slice) = (block.address(), t.from.pitch, t.from.slice);
                for (y, z) in (0..depth).flat_map(|z| (0..height).map(move |y| (y, z))) {
                    let at = t
                        .from
                        .address
                        .wrapping_add(y.wrapping_mul(pitch))
                        .wrapping_add(z.wrapping_mul(slice));
                    ffi::write(to, &ffi::read(at, width as usize)?)?;
                    to += width;
                }
                let address = block.address();
                t.from = End { side: Side::Host, address, pitch: width, slice: width * height, array: None };
                (Work::Copy(t), Some(block))
            }
            other => (other, None),
        };
        self.push(stream, Task::Work(work), after.into_iter().collect(), (None, staged))
    }

    /// Whether a launch of an executable graph is not done yet.
    pub fn unfinished_graph(&self, exec: u64) -> bool {
        self.queue.is_of(exec)
    }

    /// Whether something in a graph waits: for a value, or for an event whose record does.
    pub fn has_to_wait(&self, steps: &[Step]) -> Result<bool> {
        for s in steps.iter().filter(|s| s.enabled) {
            let waits = match &s.work {
                Work::Batch(b) => b.waits(),
                Work::Wait(event) => self.unrecorded(*event)?.is_some(),
                Work::Graph(inner) => self.has_to_wait(inner)?,
                _ => false,
            };
            if waits {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether memory that a graph gives at an address is there when all that waits is done.
    pub fn is_left(&self, address: u64) -> bool {
        self.queue.iter().fold(self.space.find(address).is_some(), |left, i| match &i.task {
            Task::Work(Work::Alloc(a)) if a.address == address => true,
            Task::Work(Work::Free(a)) if *a == address => false,
            _ => left,
        })
    }

    /// Lets the work of an executable graph wait for its turn in a stream, and for earlier launches of it, with memory that is freed
    /// first.
    pub fn defer_graph(&mut self, stream: u64, exec: u64, steps: &[Step], left: &[u64]) -> Result<()> {
        let earlier = self.queue.iter().filter(|i| i.graph.is_some_and(|g| g.0 == exec));
        let mut before: Vec<u64> = earlier.map(|i| i.number).collect();
        let graph = (exec, driver::fresh());
        for address in left {
            before =
                vec![self.push(stream, Task::Work(Work::Free(*address)), before, (Some(graph), None))?];
        }
        self.defer_steps(stream, graph, steps, &before).map(|_| ())
    }

    /// Lets the work of a graph wait for items; those that all of it is done with.
    fn defer_steps(
        &mut self,
        stream: u64,
        graph: (u64, u64),
        steps: &[Step],
        before: &Vec<u64>,
    ) -> Result<Vec<u64>> {
        // Of each step, the items that it is done with.
        let mut ends: Vec<Vec<u64>> = Vec::new();
        for s in steps {
            let mut after: Vec<u64> = s.after.iter().flat_map(|a| ends[*a].iter().copied()).collect();
            if s.after.is_empty() {
                after.clone_from(before);
            }
            let mut push = |task, after| self.push(stream, task, after, (Some(graph), None));
            let end = match &s.work {
                _ if !s.enabled => after,
                Work::Graph(inner) => self.defer_steps(stream, graph, inner, &after)?,
                Work::Batch(b) => {
                    for action in b.actions() {
                        let task = match action {
                            Action::Wait(v) => Task::Value(v),
                            Action::Write(f) => Task::Work(Work::Fill(f)),
                            Action::Order => continue,
                        };
                        after = vec![push(task, after)?];
                    }
                    after
                }
                Work::Wait(event) => {
                    after.extend(self.unrecorded(*event)?);
                    vec![self.push(stream, Task::Work(Work::Empty), after, (Some(graph), None))?]
                }
                work => vec![push(Task::Work(work.clone()), after)?],
            };
            ends.push(end);
        }
        let inner: BTreeSet<usize> = steps.iter().flat_map(|s| s.after.iter().copied()).collect();
        let last = ends.into_iter().enumerate().filter(|(i, _)| !inner.contains(i));
        let last: Vec<u64> = last.flat_map(|(_, e)| e).collect();
        Ok(if steps.is_empty() { before.clone() } else { last })
    }

    /// Lets user objects go when no launch of an executable graph waits any more: those that can go now.
    pub fn release_later(&mut self, exec: u64, objects: Vec<(u64, u32)>) -> Vec<(u64, u32)> {
        let of = |i: &&Item| i.graph.is_some_and(|g| g.0 == exec);
        let Some(context) = self.queue.iter().rev().find(of).map(|i| i.context) else { return objects };
        if objects.is_empty() {
            return objects;
        }
        let after = self.queue.iter().filter(of).map(|i| i.number).collect();
        self.queue.push(Item {
            number: driver::fresh(),
            lane: Lane::None,
            blocking: false,
            context,
            stream: 0,
            variant: Variant::Shared,
            task: Task::Release(objects),
            after,
            graph: None,
            running: false,
            _staged: None,
        });
        Vec::new()
    }

    /// Lets a stream wait for a value.
    pub fn wait_for_value(&mut self, stream: u64, value: Value) -> Result<()> {
        self.space.check(value.address, value.bytes as u64)?;
        if self.held(stream)? || !value.holds(self) {
            self.push(stream, Task::Value(value), Vec::new(), (None, None))?;
        }
        Ok(())
    }

    /// Whether an end of a copy is memory of the host that the driver does not know.
    pub fn is_pageable(&self, e: &End) -> bool {
        let known = || self.space.find_any(e.address, |_, _| ()).is_some();
        e.side != Side::Device && !known()
    }

    /// The next thing whose turn it is: its number, its context, its stream, whose default stream is meant, and what it is. Waits
    /// whose values are there are over.
    fn next_item(&mut self) -> Option<(u64, u64, u64, Variant, Task)> {
        // Values that are waited for may be there by now.
        let there = |n: &u64| self.queue.value(*n).is_some_and(|v| v.holds(self));
        if let Some(number) = self.queue.values().iter().copied().find(there) {
            self.queue.remove(number);
        }
        while let Some(item) = self.queue.next() {
            let number = item.number;
            match &item.task {
                Task::Work(_) | Task::Release(_) => {
                    item.running = true;
                    return Some((number, item.context, item.stream, item.variant, item.task.clone()));
                }
                Task::Value(v) => {
                    let v = *v;
                    if v.holds(self) {
                        self.queue.remove(number);
                    }
                }
            }
        }
        if self.queue.is_empty() {
            WAITING.store(false, Ordering::Relaxed);
        }
        None
    }

    /// Something that waited was done.
    fn ended(&mut self, number: u64, context: u64, result: Result<()>) {
        self.queue.remove(number);
        if let (Err(e), Ok(c)) = (result, self.contexts.get_mut(context))
            && c.broken.is_none()
        {
            say!("oxcuda: work behind a wait for a value failed: error {}", e.0);
            c.broken = Some(e);
        }
    }

    /// Nobody is going to write what is waited for. Functions of the program that are to be told, with their streams and arguments.
    fn give_up(&mut self) -> Vec<(ffi::StreamFn, u64, u64)> {
        let mut callbacks = Vec::new();
        for item in std::mem::take(&mut self.queue).into_items() {
            if let Task::Value(v) = &item.task {
                let text = v.text(self);
                say!("oxcuda: stream {:#x} {text}, and nobody comes to write it (OXCUDA_WAIT)", item.stream);
            }
            if let Task::Work(Work::Callback(f, data)) = item.task {
                callbacks.push((f, item.stream, data));
            }
            if let Ok(c) = self.contexts.get_mut(item.context) {
                c.broken = Some(Error::LAUNCH_TIMEOUT);
            }
        }
        WAITING.store(false, Ordering::Relaxed);
        callbacks
    }

    /// Forgets what waits in a context, which ends.
    pub fn forget_waiting(&mut self, context: u64) {
        let of = |i: &&Item| i.context == context;
        let gone: Vec<u64> = self.queue.iter().filter(of).map(|i| i.number).collect();
        gone.into_iter().for_each(|n| drop(self.queue.remove(n)));
    }
}
