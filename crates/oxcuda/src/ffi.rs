//! The boundary to C: typed pointers, and the macro that makes a function of the header from a safe body.
//!
//! `unsafe` is allowed here alone, as a driver's interface is made of pointers that its caller answers for: each type
//! reads or writes through a pointer as the header says that its function does, null is an error, and what is read
//! becomes a value at once.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};

/// Says something on standard error, if that takes it: a program may have closed it, or its disk be full, which is no reason to end it.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}

/// Where a result goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes it.
    pub fn put(self, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // The caller of the C function gives room for a T.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
    /// Makes something and writes it; nothing is made where there is no room for it.
    pub fn make(self, value: impl FnOnce() -> Result<T>) -> Result<()> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        self.put(value()?)
    }
    /// Writes it if it is wanted.
    pub fn maybe(self, value: T) {
        let _ = self.put(value);
    }
    /// Whether nobody wants it.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    /// What is there.
    pub fn get(self) -> Result<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
    /// Fills an array.
    pub fn list(self, values: impl IntoIterator<Item = T>) {
        for (i, v) in values.into_iter().enumerate() {
            // The caller says how many there is room for, and the body gives no more.
            Out(self.0.wrapping_add(i)).maybe(v);
        }
    }
    /// The place of something at a known address.
    pub fn at(address: u64) -> Out<T> {
        Out(std::ptr::with_exposed_provenance_mut(address as usize))
    }
}

/// Where an argument comes from.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// What is there.
    pub fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // The caller of the C function has a T there, of integers and addresses alone.
        Ok(unsafe { self.0.read_unaligned() })
    }
    /// An array.
    pub fn list(self, length: usize) -> Result<Vec<T>> {
        (0..length)
            .map(|i| In(if self.0.is_null() { self.0 } else { self.0.wrapping_add(i) }).get())
            .collect()
    }
    /// Whether there is nothing.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    /// At a known address.
    pub fn at(address: u64) -> In<T> {
        In(std::ptr::with_exposed_provenance(address as usize))
    }
}

/// A text.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// The text.
    pub fn get(self) -> Result<String> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // The caller of the C function closes it with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
    /// The text at a known address.
    pub fn at(address: u64) -> Text {
        Text(std::ptr::with_exposed_provenance(address as usize))
    }
}

/// A text that stays, for C to read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct StaticText(pub *const c_char);

/// Memory of the host, as an address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Host(*mut c_void);

impl Host {
    /// Its address.
    pub fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }
}

/// Bytes of the host's memory.
pub fn read(address: u64, size: usize) -> Result<Vec<u8>> {
    if size == 0 {
        return Ok(Vec::new());
    }
    if address == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let from: *const u8 = std::ptr::with_exposed_provenance(address as usize);
    // The program named this range as its own.
    Ok(unsafe { std::slice::from_raw_parts(from, size) }.to_vec())
}

/// Most bytes of an image: what claims to be longer is damaged.
pub const IMAGE_LIMIT: usize = 2 << 30;

/// Bytes of the host's memory that nobody but their own contents says are there: read by the system, which knows what this
/// process has, and piece by piece, so that a wrong size costs nothing.
pub fn read_unsure(address: u64, size: usize) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    const PIECE: usize = 1 << 20;
    if address == 0 || size > IMAGE_LIMIT {
        return Err(Error::INVALID_IMAGE);
    }
    let Ok(memory) = std::fs::File::open("/proc/self/mem") else {
        // A system without it: the image has to be trusted.
        return read(address, size);
    };
    let mut bytes = Vec::new();
    while bytes.len() < size {
        let from = bytes.len();
        bytes.resize(size.min(from + PIECE), 0);
        let at = address.checked_add(from as u64).ok_or(Error::INVALID_IMAGE)?;
        memory.read_exact_at(&mut bytes[from..], at).map_err(|_| Error::INVALID_IMAGE)?;
    }
    Ok(bytes)
}

/// Puts bytes into the host's memory.
pub fn write(address: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    if address == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
    // The program named this range as its own, to be written.
    unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// Whether all of a range of addresses is this process's to read and write, as the system says.
pub fn is_writable(address: u64, size: usize) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        // A system without it: the program has to be trusted.
        return true;
    };
    let Some(end) = address.checked_add(size as u64) else { return false };
    let mut at = address;
    for line in maps.lines() {
        let mut words = line.split(' ');
        let range = words.next().and_then(|r| r.split_once('-'));
        let number = |n: &str| u64::from_str_radix(n, 16).ok();
        let Some((from, to)) = range.and_then(|(a, b)| Some((number(a)?, number(b)?))) else { continue };
        if (from..to).contains(&at) && words.next().is_some_and(|w| w.starts_with("rw")) {
            at = to;
        }
    }
    at >= end
}

/// Bytes of the host's memory for kernels to reach.
pub fn lend(address: u64, size: usize) -> sim::memory::Lent {
    // The driver gave this range, or the program named it as its own and may not take it away while a call of the driver works on it.
    unsafe { sim::memory::Lent::new(address as usize, size) }
}

/// Memory of the host that the driver gives away.
#[derive(Debug)]
pub struct Block {
    address: u64,
    /// What it lies in.
    whole: u64,
    layout: std::alloc::Layout,
}

impl Block {
    /// So many zero bytes at the start of a page.
    pub fn new(size: usize) -> Result<Block> {
        const PAGE: usize = 4096;
        // Zeros that the system gives when they are first reached, which it does not if it is asked for whole pages.
        let whole = size.max(1).checked_add(PAGE).ok_or(Error::OUT_OF_MEMORY)?;
        let layout = std::alloc::Layout::from_size_align(whole, 16).map_err(|_| Error::OUT_OF_MEMORY)?;
        // Its size is not zero.
        let at = unsafe { std::alloc::alloc_zeroed(layout) };
        if at.is_null() {
            return Err(Error::OUT_OF_MEMORY);
        }
        let whole = at.expose_provenance() as u64;
        Ok(Block { address: whole.next_multiple_of(PAGE as u64), whole, layout })
    }
    /// Where it is.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let at: *mut u8 = std::ptr::with_exposed_provenance_mut(self.whole as usize);
        // It came from `alloc_zeroed` with this layout.
        unsafe { std::alloc::dealloc(at, self.layout) };
    }
}

/// A function of the program that the driver calls back: one argument, as for work of the host in a stream.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct HostFn(Option<unsafe extern "C" fn(*mut c_void)>);

impl HostFn {
    /// Whether there is one.
    pub fn is_some(self) -> bool {
        self.0.is_some()
    }
    /// Calls it.
    pub fn call(self, data: u64) {
        if let Some(f) = self.0 {
            // The program gave it for this.
            unsafe { f(std::ptr::with_exposed_provenance_mut(data as usize)) }
        }
    }
}

thread_local! {
    /// Whether the thread is in such a function as the next one, which may not call the driver.
    static CALLED_BACK: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A function of the program that is told how a stream fares.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct StreamFn(Option<unsafe extern "C" fn(*mut c_void, u32, *mut c_void)>);

impl StreamFn {
    /// Whether there is one.
    pub fn is_some(self) -> bool {
        self.0.is_some()
    }
    /// Calls it.
    pub fn call(self, stream: u64, status: u32, data: u64) {
        if let Some(f) = self.0 {
            let pointer = |n: u64| std::ptr::with_exposed_provenance_mut(n as usize);
            CALLED_BACK.set(true);
            // The program gave it for this.
            unsafe { f(pointer(stream), status, pointer(data)) }
            CALLED_BACK.set(false);
        }
    }
}

/// A function of the program that says how much shared memory a block of some size takes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SizeFn(Option<unsafe extern "C" fn(c_int) -> usize>);

impl SizeFn {
    /// What it says, if there is one.
    pub fn call(self, threads: u32) -> Option<usize> {
        // The program gave it for this.
        self.0.map(|f| unsafe { f(threads as c_int) })
    }
}

/// A structure of C as bytes in memory: `T` holds integers and addresses alone.
pub fn text_of(name: &'static CStr) -> StaticText {
    StaticText(name.as_ptr())
}

/// Runs the body of a function of the header; what it returns to C.
pub fn enter(name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    let trace = crate::settings::get().trace;
    // What needs no driver works everywhere.
    let alone = name.starts_with("cuGet") || name == "cuDriverGetVersion";
    let body = || {
        if crate::driver::forked() && !alone {
            return Err(Error::NOT_INITIALIZED);
        }
        if CALLED_BACK.get() && !alone {
            return Err(Error::NOT_PERMITTED);
        }
        crate::queue::look(name)?;
        body()
    };
    // Not through C's frames.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let code = match result {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => e.0 as c_int,
        Err(_) => {
            say!("oxcuda: {name}: internal error");
            Error::UNKNOWN.0 as c_int
        }
    };
    if trace {
        say!("oxcuda: {name}{} -> {code}", DETAIL.take());
    }
    code
}

thread_local! {
    static DETAIL: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// What `OXCUDA_TRACE` tells of the call that is under way: an address, and of what is given its size.
pub fn detail(address: u64, size: Option<usize>) {
    if crate::settings::get().trace {
        let size = size.map(|s| format!(", {s}")).unwrap_or_default();
        DETAIL.set(format!("({address:#x}{size})"));
    }
}

/// Whose the default stream is in the function that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Everyone's.
    Shared,
    /// The thread's own (`_ptsz`).
    Own,
    /// The thread's own, and the function waits for it (`_ptds`).
    OwnWaits,
}

thread_local! {
    static VARIANT: std::cell::Cell<Variant> = const { std::cell::Cell::new(Variant::Shared) };
}

impl Variant {
    /// By a function's symbol.
    pub fn of(symbol: &str) -> Variant {
        match symbol.rsplit('_').next() {
            Some("ptsz") => Variant::Own,
            Some("ptds") => Variant::OwnWaits,
            _ => Variant::Shared,
        }
    }

    /// Of the function that this thread is in.
    pub fn get() -> Variant {
        VARIANT.get()
    }
}

/// Runs a function as one of a variant.
pub fn as_variant<T>(variant: Variant, f: impl FnOnce() -> T) -> T {
    let before = VARIANT.replace(variant);
    let result = f();
    VARIANT.set(before);
    result
}

/// Makes functions of the header: names (the first has the body), parameters, and a body that gives a `Result<()>`.
macro_rules! api {
    ($( $(#[$meta:meta])* fn $name:ident $params:tt $(/ $alias:ident)* $body:block )*) => {
        $(
            $crate::ffi::export!($(#[$meta])* $name $params $body);
            $( $crate::ffi::forward!($name $alias $params); )*
        )*
    };
}

macro_rules! export {
    ($(#[$meta:meta])* $name:ident ($($p:ident : $t:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)] // Its name is C's, and so is what it takes.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($p: $t),*) -> std::ffi::c_int {
            #[allow(clippy::too_many_arguments)]
            fn body($($p: $t),*) -> $crate::error::Result<()> $body
            $crate::ffi::enter(stringify!($name), || body($($p),*))
        }
    };
}

macro_rules! forward {
    ($name:ident $alias:ident ($($p:ident : $t:ty),* $(,)?)) => {
        #[doc = concat!("As [`", stringify!($name), "`].")]
        #[allow(unsafe_code, clippy::too_many_arguments)] // Its name is C's, and so is what it takes.
        #[unsafe(no_mangle)]
        pub extern "C" fn $alias($($p: $t),*) -> std::ffi::c_int {
            $crate::ffi::as_variant($crate::ffi::Variant::of(stringify!($alias)), || $name($($p),*))
        }
    };
}

/// Makes a function of the header that is not built: it says so once.
macro_rules! missing {
    ($name:ident) => {
        #[doc = "Not built."]
        #[allow(unsafe_code)] // Its name is C's.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> std::ffi::c_int {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| say!("oxcuda: {} is not built", stringify!($name)));
            $crate::error::Error::NOT_SUPPORTED.0 as std::ffi::c_int
        }
    };
}

pub(crate) use {export, forward};

/// The address of a function by its name, as `cuGetProcAddress` gives it, for tests in Rust.
pub fn symbol(name: &str) -> Option<*const ()> {
    crate::api::find(name, i32::MAX, false).ok().map(|r| r.function)
}

/// A list that C reads for as long as the thread asks for no other one.
pub fn kept(list: &[u64]) -> u64 {
    thread_local! {
        static LIST: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    LIST.with(|l| {
        *l.borrow_mut() = list.to_vec();
        l.borrow().as_ptr().expose_provenance() as u64
    })
}

/// A text that C reads for as long as it likes; names are few.
pub fn kept_text(text: &str) -> StaticText {
    static TEXTS: std::sync::Mutex<std::collections::BTreeMap<String, std::ffi::CString>> =
        std::sync::Mutex::new(std::collections::BTreeMap::new());
    let mut texts = TEXTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let entry = texts.entry(text.to_string());
    let kept = entry.or_insert_with(|| std::ffi::CString::new(text.replace('\0', "")).unwrap_or_default());
    StaticText(kept.as_ptr())
}
