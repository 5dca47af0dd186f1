//! What belongs to handles.

use crate::{Callback, Code};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// `nvPTXCompilerHandle`: a number that C programs take for a pointer.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(usize);

impl Handle {
    /// No handle.
    pub(crate) const NULL: Handle = Handle(0);
}

/// Who may end a compilation.
#[derive(Clone, Copy)]
pub(crate) struct Watcher {
    pub(crate) function: Callback,
    pub(crate) payload: *mut c_void,
}

// SAFETY: the payload is only handed to the function, which is called on the thread that the program compiles on.
unsafe impl Send for Watcher {}
// SAFETY: as above.
unsafe impl Sync for Watcher {}

impl Watcher {
    pub(crate) fn wishes_an_end(&self) -> bool {
        // Nothing else stops NVIDIA's.
        (self.function)(self.payload, std::ptr::null_mut()) == 1
    }
}

/// What belongs to a handle.
pub(crate) struct Compiler {
    pub(crate) text: Arc<[u8]>,
    pub(crate) callback: Option<Watcher>,
    pub(crate) program: Option<Vec<u8>>,
    pub(crate) errors: String,
    pub(crate) information: String,
}

#[derive(Default)]
struct Known {
    /// How many there ever were.
    made: usize,
    compilers: HashMap<Handle, Arc<Mutex<Compiler>>>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    // Nothing in here can be left half done.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle for a text.
pub(crate) fn add(text: Vec<u8>) -> Handle {
    let compiler = Compiler {
        text: text.into(),
        callback: None,
        program: None,
        errors: String::new(),
        information: String::new(),
    };
    let mut known = known();
    known.made += 1;
    // Never null, and as pointers are aligned.
    let handle = Handle(16 * known.made);
    known.compilers.insert(handle, Arc::new(Mutex::new(compiler)));
    handle
}

/// Forgets a handle. Who is using it still may.
pub(crate) fn remove(handle: Handle) -> Result<(), Code> {
    known().compilers.remove(&handle).map(drop).ok_or(Code::InvalidCompilerHandle)
}

/// Does something with what belongs to a handle.
pub(crate) fn with<R>(handle: Handle, work: impl FnOnce(&mut Compiler) -> R) -> Result<R, Code> {
    let compiler = known().compilers.get(&handle).cloned().ok_or(Code::InvalidCompilerHandle)?;
    let mut compiler = compiler.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(work(&mut compiler))
}
