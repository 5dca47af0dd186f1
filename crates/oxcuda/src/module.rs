//! Modules and libraries: images of every kind, loaded.

use crate::compile::Jit;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::fatbin;
use crate::ffi::{self, Text};
use crate::function::Function;
use crate::settings::{self, Mode};
use cubin::read_lines::PtxLines;
use std::collections::BTreeMap;

/// What can be loaded.
#[derive(Clone, Debug)]
pub enum Image {
    /// Text.
    Ptx(String),
    /// An executable.
    Cubin(Vec<u8>),
}

impl Image {
    /// From bytes.
    pub fn of(bytes: &[u8]) -> Result<Image> {
        match bytes {
            [0x7f, b'E', b'L', b'F', ..] => Ok(Image::Cubin(bytes.to_vec())),
            [a, b, c, d, ..] if u32::from_le_bytes([*a, *b, *c, *d]) == fatbin::MAGIC => {
                let sm = u32::from(settings::get().target.sm);
                let entry = fatbin::choose(fatbin::entries(bytes)?, sm)?;
                if entry.ptx { Ok(Image::Ptx(text(&entry.bytes))) } else { Ok(Image::Cubin(entry.bytes)) }
            }
            _ => Ok(Image::Ptx(text(bytes))),
        }
    }

    /// From the program's memory, where nothing but the image says how long it is.
    pub fn at(address: u64) -> Result<Image> {
        if address == 0 {
            return Err(Error::INVALID_VALUE);
        }
        match ffi::read_unsure(address, 4) {
            Ok(head) if head == *b"\x7fELF" => {
                let size = elf_size(&ffi::read_unsure(address, ELF_HEADER)?, address)?;
                Image::of(&ffi::read_unsure(address, size)?)
            }
            Ok(head) if head == fatbin::MAGIC.to_le_bytes() => {
                let header = ffi::read_unsure(address, fatbin::HEADER)?;
                Image::of(&ffi::read_unsure(address, fatbin::size(&header)?)?)
            }
            Ok(head) if head == fatbin::WRAPPER.to_le_bytes() => {
                let inner = sim::memory::little_endian(&ffi::read_unsure(address + 8, 8)?);
                // Not another one of its kind, which could be itself.
                match ffi::read_unsure(inner, 4)? {
                    head if head == fatbin::WRAPPER.to_le_bytes() => Err(Error::INVALID_IMAGE),
                    _ => Image::at(inner),
                }
            }
            // Short texts may end with the memory that the process has.
            _ => Ok(Image::Ptx(Text::at(address).get()?)),
        }
    }
}

/// A text up to its zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Bytes of the header of an ELF file and of a section's, which are as they are for 64 bits.
const ELF_HEADER: usize = 64;
/// The kind of sections without bytes in the file.
const NOBITS: u64 = 8;

/// Bytes of an ELF file: its headers and sections end last.
fn elf_size(header: &[u8], address: u64) -> Result<usize> {
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes.get(at..at + size).map(sim::memory::little_endian).ok_or(Error::INVALID_IMAGE)
    };
    let table = |offset: usize, count: usize, size: usize| {
        let entries = number(header, count, 2)? * number(header, size, 2)?;
        number(header, offset, 8)?.checked_add(entries).ok_or(Error::INVALID_IMAGE)
    };
    let (segments, sections) = (table(0x20, 0x38, 0x36)?, table(0x28, 0x3c, 0x3a)?);
    let mut end = segments.max(sections).max(ELF_HEADER as u64);
    let (first, size) = (number(header, 0x28, 8)?, number(header, 0x3a, 2)?);
    for i in 0..number(header, 0x3c, 2)? {
        let at =
            address.checked_add(first).and_then(|a| a.checked_add(i * size)).ok_or(Error::INVALID_IMAGE)?;
        let s = ffi::read_unsure(at, ELF_HEADER)?;
        if number(&s, 4, 4)? != NOBITS {
            let last = number(&s, 0x18, 8)?.checked_add(number(&s, 0x20, 8)?);
            end = end.max(last.ok_or(Error::INVALID_IMAGE)?);
        }
    }
    usize::try_from(end).map_err(|_| Error::INVALID_IMAGE)
}

/// What runs.
pub enum Code {
    /// In the simulator.
    Sass(sim::sass::Module),
    /// In the interpreter.
    Ptx(sim::ptx::Loaded),
}

/// A module, or a library.
pub struct Module {
    /// The context that it goes with; a library goes with none.
    pub context: Option<u64>,
    /// Its code.
    pub code: Code,
    /// Kernels by name.
    pub functions: BTreeMap<String, u64>,
    /// The PTX, if there was any.
    pub ptx: Option<String>,
    /// Which line of it instructions come from.
    pub lines: PtxLines,
    /// The cubin, if there is any.
    pub cubin: Vec<u8>,
    /// Of a library: the context whose its variables are.
    pub first: Option<u64>,
    /// Of a library: what it is in other contexts.
    pub others: BTreeMap<u64, u64>,
    /// Whether it is what a library is in a context.
    pub of_library: bool,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("functions", &self.functions).finish_non_exhaustive()
    }
}

/// What was made of an image before the driver's state is touched.
pub enum Ready {
    /// For the simulator, with the PTX.
    Sass(Vec<u8>, Option<String>),
    /// For the interpreter.
    Ptx(Box<ptx::Module>, String),
}

/// Compiles or parses what is to be loaded.
pub fn prepare(image: Image, jit: &Jit) -> Result<Ready> {
    let source = match &image {
        Image::Cubin(bytes) => crate::link::source(bytes),
        Image::Ptx(_) => None,
    };
    let interpret = settings::get().mode == Mode::Ptx;
    match image {
        Image::Cubin(bytes) if !interpret || source.is_none() => Ok(Ready::Sass(bytes, source)),
        Image::Cubin(_) => prepare(Image::Ptx(source.unwrap_or_default()), jit),
        Image::Ptx(text) if interpret => {
            let module = jit.parse(&text)?;
            Ok(Ready::Ptx(Box::new(module), text))
        }
        Image::Ptx(text) => Ok(Ready::Sass(jit.compile(&text, false)?, Some(text))),
    }
}

fn refused(what: impl std::fmt::Display) -> Error {
    say!("oxcuda: a module was not loaded: {what}");
    Error::INVALID_IMAGE
}

impl Driver {
    /// Loads what was made ready. What the simulator cannot read is no image, whatever stopped it.
    pub fn load(&mut self, ready: Ready, context: Option<u64>) -> Result<u64> {
        let whole = std::panic::AssertUnwindSafe(|| self.load_whole(ready, context, &BTreeMap::new()));
        std::panic::catch_unwind(whole).unwrap_or_else(|_| Err(refused("it is damaged")))
    }

    /// What a module is in a context: a library has variables of its own in each, but for managed ones.
    pub fn module_in(&mut self, module: u64, context: u64) -> Result<u64> {
        let m = self.modules.get_mut(module)?;
        if m.context.is_some() || *m.first.get_or_insert(context) == context {
            return Ok(module);
        }
        if let Some(other) = m.others.get(&context) {
            return Ok(*other);
        }
        let (ready, variables) = match &m.code {
            Code::Sass(s) => (Ready::Sass(m.cubin.clone(), m.ptx.clone()), s.variables()),
            Code::Ptx(p) => {
                let text = m.ptx.clone().unwrap_or_default();
                (Ready::Ptx(Box::new(p.module().clone()), text), p.variables())
            }
        };
        let shared = variables.into_iter().filter(|(_, (at, _))| self.space.is_variable(*at));
        let shared = shared.map(|(name, (at, _))| (name.to_string(), at)).collect();
        let other = self.load_whole(ready, Some(context), &shared)?;
        self.modules.get_mut(other)?.of_library = true;
        self.modules.get_mut(module)?.others.insert(context, other);
        Ok(other)
    }

    /// Forgets what libraries are in a context, which ends.
    pub fn forget_in_libraries(&mut self, context: u64) {
        for m in self.modules.values_mut() {
            m.others.remove(&context);
            if m.first == Some(context) {
                // Nobody's: the handle may be that of another context later.
                m.first = Some(0);
            }
        }
    }

    /// Loads a module, some of whose managed variables are there already.
    fn load_whole(
        &mut self,
        ready: Ready,
        context: Option<u64>,
        shared: &BTreeMap<String, u64>,
    ) -> Result<u64> {
        let (first, others, of_library) = Default::default();
        let functions = BTreeMap::new();
        let mut found = Vec::new();
        let module = match ready {
            Ready::Sass(cubin, ptx) => {
                let loaded = self.space.load(&cubin, shared).map_err(refused)?;
                let (target, device) = (loaded.target(), settings::get().target.sm);
                let sm = target.sm;
                if !fatbin::runs_on(sm.into(), target.suffix, device.into()) {
                    self.space.unload(Code::Sass(loaded), shared.is_empty());
                    say!(
                        "oxcuda: a module was not loaded: its code is for {target}, the device is sm_{device}"
                    );
                    return Err(Error::NO_BINARY_FOR_GPU);
                }
                for (name, k) in loaded.functions().iter().filter(|(_, k)| k.entry) {
                    found.push(Function::of_image(name, k, loaded.constant_bytes(), sm)?);
                }
                let lines = cubin::read_lines::ptx_lines(&cubin).unwrap_or_default();
                Module {
                    context,
                    code: Code::Sass(loaded),
                    functions,
                    ptx,
                    lines,
                    cubin,
                    first,
                    others,
                    of_library,
                }
            }
            Ready::Ptx(module, text) => {
                let sm = settings::get().target.sm;
                let kernels = module.funcs.values().filter(|f| f.entry && f.body.is_some());
                found.extend(kernels.map(|f| Function::of_ptx(&module, f, sm)));
                let loaded = self.space.load_ptx(*module, shared).map_err(refused)?;
                let (lines, cubin) = Default::default();
                let (code, ptx) = (Code::Ptx(loaded), Some(text));
                Module { context, code, functions, ptx, lines, cubin, first, others, of_library }
            }
        };
        let virtual_sm = module.ptx.as_deref().and_then(crate::compile::virtual_sm);
        let handle = self.modules.add(module);
        let mut functions = BTreeMap::new();
        for f in found {
            let name = f.name.clone();
            functions.insert(name, self.functions.add(Function { module: handle, virtual_sm, ..f }));
        }
        self.modules.get_mut(handle)?.functions = functions;
        Ok(handle)
    }

    /// Takes a module away.
    pub fn unload(&mut self, module: u64) -> Result<()> {
        self.free_references(module)?;
        let module = self.modules.remove(module)?;
        module.functions.values().try_for_each(|f| self.functions.remove(*f).map(|_| ()))?;
        self.space.unload(module.code, !module.of_library);
        module.others.into_values().try_for_each(|m| self.unload(m))
    }
}

impl Module {
    /// Address and size of a variable.
    pub fn variable(&self, name: &str) -> Result<(u64, u64)> {
        let found = match &self.code {
            Code::Sass(m) => m.variable(name),
            Code::Ptx(m) => m.variables().get(name).copied(),
        };
        found.ok_or(Error::NOT_FOUND)
    }

    /// A kernel.
    pub fn function(&self, name: &str) -> Result<u64> {
        self.functions.get(name).copied().ok_or(Error::NOT_FOUND)
    }
}
