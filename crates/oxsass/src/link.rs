//! Executables of objects: nvlink links them, as it does for nvcc.

use sass::Target;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why objects are not linked.
#[derive(Debug)]
pub enum Error {
    /// There is no folder for them.
    Folder(io::Error),
    /// One is not written.
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The linker is not run.
    Run {
        /// Which.
        nvlink: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The linker refuses them; what it says.
    Refused(String),
    /// What it made is not read.
    Read(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Folder(e) => write!(f, "a folder for objects: {e}"),
            Error::Write { path, why } => write!(f, "{}: {why}", path.display()),
            Error::Run { nvlink, why } => write!(
                f,
                "objects are linked by nvlink, and {} cannot be run: {why}; it comes with CUDA's toolkit or by `pip install nvidia-cuda-nvcc`, \
                 and --nvlink says where it is",
                nvlink.display()
            ),
            Error::Refused(said) => write!(f, "nvlink: {said}"),
            Error::Read(e) => write!(f, "what nvlink made: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// What the linker makes of objects for a target, in their order.
///
/// # Errors
/// What the linker says, or how to get one.
pub fn link(nvlink: &Path, target: Target, objects: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().map_err(Error::Folder)?;
    let output = folder.path().join("linked.cubin");
    let mut command = Command::new(nvlink);
    command.arg(format!("-arch={target}")).arg("-o").arg(&output);
    for (n, object) in objects.iter().enumerate() {
        let path = folder.path().join(format!("{n}.o"));
        std::fs::write(&path, object).map_err(|why| Error::Write { path: path.clone(), why })?;
        command.arg(path);
    }
    let said = command.output().map_err(|why| Error::Run { nvlink: nvlink.into(), why })?;
    if !said.status.success() {
        let lines = [said.stdout, said.stderr].concat();
        return Err(Error::Refused(String::from_utf8_lossy(&lines).trim().into()));
    }
    std::fs::read(&output).map_err(Error::Read)
}

/// Whether a file is what a linker makes, or the compiler without one: nothing of it is found by linking it again.
pub fn is_executable(file: &[u8]) -> bool {
    /// Where and what the type of the file is.
    const TYPE: std::ops::Range<usize> = 16..18;
    const EXECUTABLE: [u8; 2] = [2, 0];
    file.starts_with(b"\x7fELF") && file.get(TYPE) == Some(&EXECUTABLE)
}

/// The target that an object says it is for.
pub fn target_of(object: &[u8]) -> Option<Target> {
    /// Where `e_flags` has the SM.
    const SM: usize = 49;
    object.starts_with(b"\x7fELF").then(|| object.get(SM).copied()).flatten().and_then(Target::new)
}
