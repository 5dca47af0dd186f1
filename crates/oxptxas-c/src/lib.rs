//! `liboxptxas`: oxptxas as a C library, with the interface of nvPTXCompiler (`include/nvPTXCompiler.h`; docs/c-library.md has
//! what was observed of NVIDIA's library, which this follows).
//!
//! A handle is a number that is never given twice and never read through, so that one which was destroyed, or is none at all, is an
//! error and not a wrong access. No lock is held while something is compiled.
#![allow(unsafe_code)] // Memory of C programs is read and written through pointers, of which the header says what they must be.

mod handles;
mod log;

use handles::Handle;
use log::Log;
use oxptxas::command::Run;
use oxptxas::{Cancel, Kind};
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What every function returns: `nvPTXCompileResult`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The header says what they mean.
pub enum Code {
    Success = 0,
    InvalidCompilerHandle = 1,
    InvalidInput = 2,
    CompilationFailure = 3,
    Internal = 4,
    OutOfMemory = 5,
    CompilerInvocationIncomplete = 6,
    UnsupportedPtxVersion = 7,
    UnsupportedDevsideSync = 8,
    Cancelled = 9,
}

/// `int (*callback)(void *, void *)`
pub type Callback = extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// The release of NVIDIA's whose options and interface these are.
const RELEASE: (c_uint, c_uint) = (13, 0);

/// With which name messages begin; users look for it.
const PROGRAM: &str = "ptxas";

/// What closes errors.
const ABORTED: &str = "ptxas fatal   : Ptx assembly aborted due to errors\n";

/// Writes through a pointer of the caller's.
///
/// # Safety
/// The pointer is null, or valid for a `T`.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::InvalidInput);
    }
    // SAFETY: it is not null.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes bytes, and one of 0 behind them if `end` says so, to memory of the caller's.
///
/// # Safety
/// The pointer is null, or valid for so many bytes.
unsafe fn put_bytes(to: *mut u8, bytes: &[u8], end: bool) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::InvalidInput);
    }
    // SAFETY: it is not null, and the caller asked for the size before.
    unsafe {
        to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        if end {
            to.add(bytes.len()).write(0);
        }
    }
    Ok(())
}

fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(Code::Success)
}

/// All versions of PTX, ascending.
fn versions() -> impl Iterator<Item = [c_int; 2]> {
    ptx::parser::LAST_MINOR
        .iter()
        .flat_map(|(major, last)| (0..=*last).map(|n| [c_int::from(*major), n.into()]))
}

/// See the header.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetVersion(major: *mut c_uint, minor: *mut c_uint) -> Code {
    // SAFETY: as the caller promises.
    code(unsafe { put(major, RELEASE.0).and_then(|()| put(minor, RELEASE.1)) })
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetNumSupportedVersions(count: *mut c_int) -> Code {
    // SAFETY: as the caller promises.
    code(unsafe { put(count, versions().count() as c_int) })
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid for as many pairs as `nvPTXCompilerGetNumSupportedVersions` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetSupportedVersions(pairs: *mut [c_int; 2]) -> Code {
    let all = versions().enumerate();
    // SAFETY: as the caller promises.
    code(if pairs.is_null() {
        Err(Code::InvalidInput)
    } else {
        all.into_iter().try_for_each(|(n, version)| unsafe { put(pairs.add(n), version) })
    })
}

/// See the header.
///
/// # Safety
/// `compiler` is null or valid; `text` is null or valid for `length` bytes or as far as a byte of 0 before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerCreate(
    compiler: *mut Handle,
    length: usize,
    text: *const c_char,
) -> Code {
    if compiler.is_null() || text.is_null() || length == 0 {
        return Code::InvalidInput;
    }
    let mut bytes = Vec::new();
    for n in 0..length {
        // SAFETY: no byte of 0 was before it, and it is within the length.
        match unsafe { text.add(n).cast::<u8>().read() } {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    // SAFETY: as the caller promises.
    code(unsafe { put(compiler, handles::add(bytes)) })
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerDestroy(compiler: *mut Handle) -> Code {
    if compiler.is_null() {
        return Code::InvalidInput;
    }
    // SAFETY: it is not null.
    let result = handles::remove(unsafe { compiler.read() });
    if result.is_ok() {
        // SAFETY: as above.
        unsafe { compiler.write(Handle::NULL) };
    }
    code(result)
}

/// See the header.
///
/// # Safety
/// `options` is valid for `count` pointers, each null or to a text that ends with a byte of 0; or `count` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerCompile(
    compiler: Handle,
    count: c_int,
    options: *const *const c_char,
) -> Code {
    let Ok(count) = usize::try_from(count) else { return Code::InvalidInput };
    if count != 0 && options.is_null() {
        return Code::InvalidInput;
    }
    let mut arguments = Vec::new();
    for n in 0..count {
        // SAFETY: as the caller promises.
        let option = unsafe { options.add(n).read() };
        if option.is_null() {
            return Code::InvalidInput;
        }
        // SAFETY: it is not null, and the caller promises that it ends.
        let option = argument(unsafe { CStr::from_ptr(option) });
        // An option of NVIDIA's library alone, for what it does anyway.
        if option != "-elf" && option != "--elf" {
            arguments.push(option);
        }
    }
    code(compile(compiler, &arguments))
}

#[cfg(unix)]
fn argument(option: &CStr) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(option.to_bytes()).to_owned()
}

#[cfg(not(unix))]
fn argument(option: &CStr) -> OsString {
    option.to_string_lossy().into_owned().into()
}

/// Options of the command line that the library does not know, as NVIDIA's does not.
const OF_COMMANDS: [&str; 4] = ["-jobserver", "--jobserver", "-version-ls", "--list-version"];

fn compile(compiler: Handle, arguments: &[OsString]) -> Result<(), Code> {
    let (text, callback) = handles::with(compiler, |c| (c.text.clone(), c.callback))?;
    let log = Log::default();
    if let Some(option) = arguments.iter().filter_map(|a| a.to_str()).find(|a| OF_COMMANDS.contains(a)) {
        let message = format!("{PROGRAM} fatal   : Unknown option '{}'\n", &option[1..]);
        handles::with(compiler, |c| {
            c.errors.push_str(&message);
            c.program = None;
        })?;
        return Err(Code::CompilationFailure);
    }
    let cancel = callback.map(|c| {
        // Programs need not expect to be called on other threads than their own.
        let home = std::thread::current().id();
        Cancel::new(move || std::thread::current().id() == home && c.wishes_an_end())
    });
    let run = Run { text: Some(&text), cancel, ..Run::new(PROGRAM, arguments, &log) };
    let result = catch_unwind(AssertUnwindSafe(|| run.to_memory()));
    let (result, program) = match result {
        Ok(Ok(Some(output))) => (Ok(()), Some(output.cubin)),
        // A target for which nothing is written, or nothing but a text was asked for.
        Ok(Ok(None)) => (Err(Code::CompilationFailure), None),
        Ok(Err(kind)) => (Err(of_kind(kind)), None),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            log.add_error(&format!("{PROGRAM} fatal   : internal error: {text}\n"));
            (Err(Code::Internal), None)
        }
    };
    let (errors, information) = log.into_parts();
    // NVIDIA's library leaves the last line out where the version is not known.
    let end = if result == Err(Code::UnsupportedPtxVersion) { ABORTED } else { "" };
    let errors = errors.strip_suffix(end).unwrap_or(&errors);
    handles::with(compiler, |c| {
        c.errors.push_str(errors);
        c.information.push_str(&information);
        // What an earlier compilation gave is not what this one was asked for.
        c.program = program;
    })?;
    result
}

fn of_kind(kind: Kind) -> Code {
    match kind {
        Kind::Version => Code::UnsupportedPtxVersion,
        Kind::Cancelled => Code::Cancelled,
        Kind::Internal => Code::Internal,
        _ => Code::CompilationFailure,
    }
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetCompiledProgramSize(compiler: Handle, size: *mut usize) -> Code {
    let get = |c: &mut handles::Compiler| {
        let program = c.program.as_ref().ok_or(Code::CompilerInvocationIncomplete)?;
        // SAFETY: as the caller promises.
        unsafe { put(size, program.len()) }
    };
    code(handles::with(compiler, get).flatten())
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid for as many bytes as the size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetCompiledProgram(compiler: Handle, image: *mut c_void) -> Code {
    let get = |c: &mut handles::Compiler| {
        let program = c.program.as_ref().ok_or(Code::CompilerInvocationIncomplete)?;
        // SAFETY: as the caller promises.
        unsafe { put_bytes(image.cast(), program, false) }
    };
    code(handles::with(compiler, get).flatten())
}

/// Bytes of a log, with the one of 0 at its end.
fn size_of(log: &str) -> usize {
    if log.is_empty() { 0 } else { log.len() + 1 }
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetErrorLogSize(compiler: Handle, size: *mut usize) -> Code {
    // SAFETY: as the caller promises.
    code(handles::with(compiler, |c| unsafe { put(size, size_of(&c.errors)) }).flatten())
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid for as many bytes as the size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetErrorLog(compiler: Handle, log: *mut c_char) -> Code {
    let get = |c: &mut handles::Compiler| {
        let text = c.errors.as_bytes();
        // SAFETY: as the caller promises.
        unsafe { put_bytes(log.cast(), text, !text.is_empty()) }
    };
    code(handles::with(compiler, get).flatten())
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetInfoLogSize(compiler: Handle, size: *mut usize) -> Code {
    // SAFETY: as the caller promises.
    code(handles::with(compiler, |c| unsafe { put(size, size_of(&c.information)) }).flatten())
}

/// See the header.
///
/// # Safety
/// The pointer is null or valid for as many bytes as the size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvPTXCompilerGetInfoLog(compiler: Handle, log: *mut c_char) -> Code {
    let get = |c: &mut handles::Compiler| {
        let text = c.information.as_bytes();
        // SAFETY: as the caller promises.
        unsafe { put_bytes(log.cast(), text, !text.is_empty()) }
    };
    code(handles::with(compiler, get).flatten())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn nvPTXCompilerSetFlowCallback(
    compiler: Handle,
    callback: Option<Callback>,
    payload: *mut c_void,
) -> Code {
    code(
        handles::with(compiler, |c| {
            let function = callback.ok_or(Code::InvalidInput)?;
            c.callback = Some(handles::Watcher { function, payload });
            Ok(())
        })
        .flatten(),
    )
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn oxptxasVersion() -> *const c_char {
    concat!("oxptxas ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
