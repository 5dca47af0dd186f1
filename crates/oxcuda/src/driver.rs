//! The driver's state: contexts and everything that belongs to them.

use crate::capture::Sequence;
use crate::error::{Error, Result};
use crate::function::Function;
use crate::graph::{Exec, Graph, UserObject};
use crate::image::{Array, Object};
use crate::link::Link;
use crate::memory::{Pool, Space};
use crate::module::Module;
use crate::reference::Reference;
use crate::stream::{Event, LEGACY, OWN, Stream, meant};
use crate::waiting::Waiting;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// Things of a kind by their handles: opaque pointers to the program.
#[derive(Debug)]
pub struct Table<T>(BTreeMap<u64, T>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(BTreeMap::new())
    }
}

/// A handle that was never given before: it looks like the pointer that it is in C.
pub fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x0cda_0000_0000);
    NEXT.fetch_add(64, Ordering::Relaxed)
}

/// What a table is of.
pub trait Thing {
    /// What a handle is that none has.
    const ABSENT: Error = Error::INVALID_HANDLE;
}

impl Thing for Array {}
impl Thing for Context {}
impl Thing for Event {}
impl Thing for Function {}
impl Thing for Link {}
impl Thing for Module {}
impl Thing for Pool {}
impl Thing for Reference {}
impl Thing for Sequence {}
impl Thing for Stream {}
// Functions for graphs know no other error.
impl Thing for Exec {
    const ABSENT: Error = Error::INVALID_VALUE;
}
impl Thing for Graph {
    const ABSENT: Error = Error::INVALID_VALUE;
}
impl Thing for UserObject {
    const ABSENT: Error = Error::INVALID_VALUE;
}

impl<T: Thing> Table<T> {
    /// A new one.
    pub fn add(&mut self, item: T) -> u64 {
        let handle = fresh();
        self.0.insert(handle, item);
        handle
    }
    /// The one of a handle.
    pub fn get(&self, handle: u64) -> Result<&T> {
        self.0.get(&handle).ok_or(T::ABSENT)
    }
    /// The one of a handle, to change it.
    pub fn get_mut(&mut self, handle: u64) -> Result<&mut T> {
        self.0.get_mut(&handle).ok_or(T::ABSENT)
    }
    /// Takes one away.
    pub fn remove(&mut self, handle: u64) -> Result<T> {
        self.0.remove(&handle).ok_or(T::ABSENT)
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(h, t)| (*h, t))
    }
    /// All of them, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}

/// Limits that kernels fix by using what they are of.
pub mod limit {
    /// Bytes of printf's buffer.
    pub const PRINTF: u32 = 1;
    /// Bytes that `malloc` has to give.
    pub const HEAP: u32 = 2;
    /// As many if nobody says otherwise.
    pub const HEAP_SIZE: u64 = 8 << 20;
    /// What kernels call, and which limit that is of.
    pub const CALLS: [(&str, u32); 3] = [("vprintf", PRINTF), ("malloc", HEAP), ("free", HEAP)];
}

/// A context.
#[derive(Debug, Default)]
pub struct Context {
    /// As asked for.
    pub flags: u32,
    /// What a kernel did wrong: nothing goes on after it.
    pub broken: Option<Error>,
    /// Limits by number, where they were set.
    pub limits: BTreeMap<u32, u64>,
    /// Limits that may not be set any more, as a kernel was launched that has need of them.
    pub fixed: BTreeSet<u32>,
    /// How often somebody attached to it, but for who made it.
    pub attached: u32,
    /// Cache and shared memory configuration as they were set; nothing depends on them.
    pub configuration: [u32; 2],
}

/// All state.
#[derive(Default)]
pub struct Driver {
    /// Contexts.
    pub contexts: Table<Context>,
    /// The primary one if it is there, how often it is held, and its flags.
    pub primary: Option<u64>,
    /// Its handle from its first time on.
    primary_handle: Option<u64>,
    /// See `primary`.
    pub held: u32,
    /// See `primary`.
    pub primary_flags: u32,
    /// Memory of the device, and what of the host's kernels see.
    pub space: Space,
    /// Memory pools.
    pub pools: Table<Pool>,
    /// The device's own pool, and the current one.
    pub default_pool: u64,
    /// See `default_pool`.
    pub current_pool: u64,
    /// Modules and libraries.
    pub modules: Table<Module>,
    /// Functions of modules.
    pub functions: Table<Function>,
    /// Streams, those without a handle aside.
    pub streams: Table<Stream>,
    /// The stream that everyone shares.
    pub legacy: Stream,
    /// The default streams that threads have of their own, where they were used.
    own: HashMap<ThreadId, Stream>,
    /// Captures under way.
    pub captures: Table<Sequence>,
    /// Events.
    pub events: Table<Event>,
    /// Graphs.
    pub graphs: Table<Graph>,
    /// Graphs ready to run.
    pub execs: Table<Exec>,
    /// Things of the program's that graphs keep.
    pub objects: Table<UserObject>,
    /// Arrays, levels of other ones among them.
    pub arrays: Table<Array>,
    /// Arrays with levels.
    pub mipmaps: Table<Array>,
    /// Textures.
    pub textures: Vec<Object>,
    /// Surfaces.
    pub surfaces: Vec<Object>,
    /// References of modules that the program asked for.
    pub references: Table<Reference>,
    /// Links under way.
    pub links: Table<Link>,
    /// What waits for its turn.
    pub queue: Waiting,
    /// Kernels launched so far.
    pub launches: u64,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

thread_local! {
    // Never dropped: what a program does when it ends, destructors of C++ say, still frees memory.
    static CURRENT: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// The thread's stack of contexts.
pub fn stack<T>(f: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CURRENT.with(|c| f(&mut c.borrow_mut()))
}

/// The process that made the driver ready; 0 before.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Whether this process was forked off from one that had made the driver ready: nothing works in it, as with CUDA's.
pub fn forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

/// What the names of threads begin with that run blocks side by side.
pub const THREADS: &str = "oxcuda";

/// Makes the driver ready.
pub fn start() {
    sim::name_threads(THREADS);
    OWNER.store(std::process::id(), Ordering::Relaxed);
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    driver.get_or_insert_with(|| {
        let mut d = Driver::default();
        d.default_pool = d.pools.add(Pool::default());
        d.current_pool = d.default_pool;
        d
    });
}

/// Works on the state. Functions of the program are never called from inside.
pub fn with<T>(f: impl FnOnce(&mut Driver) -> Result<T>) -> Result<T> {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    f(driver.as_mut().ok_or(Error::NOT_INITIALIZED)?)
}

/// Works on the state in the current context, if nothing broke it.
pub fn within<T>(f: impl FnOnce(&mut Driver) -> Result<T>) -> Result<T> {
    with(|d| {
        d.context()?;
        f(d)
    })
}

impl Driver {
    /// The current context, which nothing has broken.
    pub fn context(&mut self) -> Result<u64> {
        let current = self.current().ok_or(Error::INVALID_CONTEXT)?;
        let context = self.contexts.get(current).map_err(|_| Error::CONTEXT_IS_DESTROYED)?;
        context.broken.map_or(Ok(current), Err)
    }

    /// The current context, whatever became of it.
    pub fn current(&self) -> Option<u64> {
        stack(|s| s.last().copied())
    }

    /// The primary context, made if there is none: always of the same handle.
    pub fn primary(&mut self) -> u64 {
        let handle = *self.primary_handle.get_or_insert_with(fresh);
        if self.primary.is_none() {
            self.contexts.0.insert(handle, Context { flags: self.primary_flags, ..Context::default() });
            self.primary = Some(handle);
        }
        handle
    }

    /// Takes a context away with all that belongs to it.
    pub fn destroy(&mut self, context: u64) -> Result<()> {
        self.contexts.remove(context)?;
        self.forget_waiting(context);
        self.forget_in_libraries(context);
        if self.primary == Some(context) {
            self.primary = None;
        }
        self.space.free_all_of(context);
        self.free_images_of(context)?;
        let of = |m: &Module| m.context == Some(context);
        let modules: Vec<u64> = self.modules.iter().filter(|(_, m)| of(m)).map(|m| m.0).collect();
        let streams: Vec<u64> =
            self.streams.iter().filter(|(_, s)| s.context == context).map(|s| s.0).collect();
        let events: Vec<u64> =
            self.events.iter().filter(|(_, e)| e.context == context).map(|e| e.0).collect();
        streams.into_iter().try_for_each(|s| self.end_stream(s))?;
        events.into_iter().try_for_each(|e| self.events.remove(e).map(|_| ()))?;
        modules.into_iter().try_for_each(|m| self.unload(m))
    }

    /// A stream by its handle: null, 1 and 2 are those that need not be made.
    pub fn stream(&mut self, handle: u64) -> Result<&mut Stream> {
        match meant(handle) {
            0..=LEGACY => Ok(&mut self.legacy),
            OWN => Ok(self.own.entry(std::thread::current().id()).or_default()),
            h => self.streams.get_mut(h),
        }
    }

    /// All streams but the one that everyone shares.
    pub fn all_streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().map(|(_, s)| s).chain(self.own.values())
    }

    /// The same, to change them.
    pub fn all_streams_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut().chain(self.own.values_mut())
    }
}
