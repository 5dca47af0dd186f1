//! The linker: one PTX goes through the compiler, several inputs through nvlink.

use crate::compile::{self, Jit};
use crate::error::{Error, Result};
use crate::module::Image;
use crate::settings;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Kinds of inputs that are looked at.
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FAT_BINARY: u32 = 2;

/// An input, by the number of its kind in the header.
#[derive(Clone, Debug)]
pub struct Input {
    /// 0 cubin, 1 PTX, 2 fat binary, 3 object, 4 library.
    pub kind: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its name.
    pub name: String,
}

impl Input {
    /// Whether it is what it is said to be: PTX that can be read, a cubin, a fat binary. Objects are the linker's to judge.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, jit: &Jit) -> Result<()> {
        let start = self.bytes.get(..4).unwrap_or_default();
        match self.kind {
            CUBIN if start != b"\x7fELF" => Err(Error::INVALID_IMAGE),
            // What another compiler takes is its own affair.
            PTX if settings::get().ptxas.is_none() => match Image::of(&self.bytes)? {
                Image::Ptx(text) => jit.parse(&text).map(|_| ()),
                Image::Cubin(_) => Err(Error::INVALID_PTX),
            },
            FAT_BINARY if start != crate::fatbin::MAGIC.to_le_bytes() => Err(Error::INVALID_IMAGE),
            FAT_BINARY => Image::of(&self.bytes).map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// The PTX of cubins that came out of a link, by their bytes' hash: programs load them as cubins.
static SOURCES: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

fn hash(cubin: &[u8]) -> u64 {
    let mut h = rustc_hash::FxHasher::default();
    cubin.hash(&mut h);
    h.finish()
}

fn remember(cubin: &[u8], ptx: String) {
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner).insert(hash(cubin), ptx);
}

/// The PTX that a cubin was made of by a link here.
pub fn source(cubin: &[u8]) -> Option<String> {
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner).get(&hash(cubin)).cloned()
}

/// A link under way.
#[derive(Debug, Default)]
pub struct Link {
    /// Options.
    pub jit: Jit,
    /// Inputs so far.
    pub inputs: Vec<Input>,
    /// What came out, which the program reads until the link is destroyed.
    pub output: Option<crate::ffi::Block>,
}

impl Link {
    /// The cubin.
    pub fn complete(&self) -> Result<Vec<u8>> {
        match &self.inputs[..] {
            [] => Err(Error::INVALID_VALUE),
            [one] if one.kind != 4 && !self.unresolved(one) => match Image::of(&one.bytes)? {
                Image::Ptx(text) => {
                    let cubin = self.jit.compile(&text, false)?;
                    remember(&cubin, text);
                    Ok(cubin)
                }
                Image::Cubin(bytes) => Ok(bytes),
            },
            _ => self.several(),
        }
    }

    /// Whether an input is a relocatable object.
    fn unresolved(&self, input: &Input) -> bool {
        // ET_REL
        matches!(&input.bytes[..], [0x7f, b'E', b'L', b'F', ..] if input.bytes.get(16) == Some(&1))
    }

    fn several(&self) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir().map_err(|_| Error::OPERATING_SYSTEM)?;
        let nvlink = &settings::get().nvlink;
        let mut command = Command::new(nvlink);
        command.arg(format!("-arch={}", settings::get().target));
        for (i, input) in self.inputs.iter().enumerate() {
            let bytes = match Image::of(&input.bytes) {
                Ok(Image::Ptx(text)) if input.kind != 4 => self.jit.compile(&text, true)?,
                Ok(Image::Cubin(bytes)) => bytes,
                _ => input.bytes.clone(),
            };
            // What the linker says names its input.
            let stem: String =
                input.name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let name = format!("{i}.{stem}.{}", if input.kind == 4 { "a" } else { "cubin" });
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).map_err(|_| Error::OPERATING_SYSTEM)?;
            command.arg(path);
        }
        let to = folder.path().join("linked");
        self.jit
            .report(compile::run(command.arg("-o").arg(&to)).map_err(|e| {
                format!("several inputs need nvlink, on PATH or named by OXCUDA_NVLINK\n{e}\n")
            }))?;
        std::fs::read(&to).map_err(|_| Error::OPERATING_SYSTEM)
    }
}
