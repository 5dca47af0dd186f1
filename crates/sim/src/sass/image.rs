//! A cubin as the loader sees it: code, constant banks, global variables, memory sizes.

use super::state::{CODE, DRIVER_CODE};
use crate::FileError;
use crate::image::{Bound, Images, Kind};
use crate::memory::{CONST_WINDOW, Memory};
use crate::output::DRIVER;
use cubin::images::ImageKind;
use rustc_hash::FxHashMap;
use sass::Target;
use sass::target::Suffix;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of stack that the driver gives every thread unless told otherwise.
const DEFAULT_STACK: u32 = 1024;

/// What bank 3 is called in memory.
const CONSTANTS: &str = "constant memory";

/// Whether the word is a CALL, of any form.
fn is_call(word: &u128) -> bool {
    matches!(word & 0x1ff, 0x143 | 0x144)
}

/// Constant banks of a launch.
#[derive(Default, Clone)]
pub(crate) struct Banks(Vec<Vec<u8>>);

impl Banks {
    /// The bank's bytes, to be filled.
    pub(crate) fn bank_mut(&mut self, bank: u8) -> &mut Vec<u8> {
        let i = usize::from(bank);
        if self.0.len() <= i {
            self.0.resize_with(i + 1, Vec::new);
        }
        &mut self.0[i]
    }
    /// `len` bytes, if they lie in the bank. Addresses have 16 bits, and offsets a sign: ptxas 13.0.88 has the byte at 0x9c44 as `c[0x3][-0x63bc]`.
    pub(crate) fn slice(&self, bank: u8, at: u32, len: usize) -> Option<&[u8]> {
        let at = match at as i32 {
            below @ -0x8000..0 => (below & 0xffff) as usize,
            at => usize::try_from(at).ok()?,
        };
        self.0.get(usize::from(bank))?.get(at..at.checked_add(len)?)
    }
    /// A little-endian number of `len` bytes.
    pub(crate) fn read(&self, bank: u8, at: u32, len: usize) -> Option<u64> {
        self.slice(bank, at, len).map(crate::memory::little_endian)
    }
}

/// An instruction with an address filled in.
fn relocate(word: u128, kind: u32, value: u64, target: Target) -> Result<u128, FileError> {
    const IMMEDIATE: u128 = 0xffff_ffff << 32;
    match kind {
        // R_CUDA_ABS32_32, R_CUDA_ABS32_LO_32, R_CUDA_ABS32_HI_32
        0x37 | 0x38 => Ok(word & !IMMEDIATE | u128::from(value as u32) << 32),
        0x39 => Ok(word & !IMMEDIATE | u128::from(value >> 32) << 32),
        // R_CUDA_ABS47_34, R_CUDA_ABS55_16_34: the label of a call
        0x3a | 0x4b => {
            let mut inst = sass::decode(word, target, 0).map_err(FileError::Decode)?;
            for o in &mut inst.operands {
                if let sass::Operand::Label(at) = o {
                    *at = value as i64;
                }
            }
            sass::encode(&inst, target, 0).map_err(FileError::Encode)
        }
        _ => Err(FileError::Relocation(kind)),
    }
}

/// A kernel, loaded.
pub(crate) struct Image {
    pub(crate) target: Target,
    /// The words of the kernel's section.
    pub(crate) code: Vec<u128>,
    /// Where in it the kernel starts, in bytes.
    pub(crate) entry: u32,
    /// Constant banks as the file has them, addresses filled in.
    pub(crate) banks: Banks,
    /// Where bank 3 lies as memory.
    pub(crate) constants: u64,
    /// Offset and size of the parameters in bank 0.
    pub(crate) params: (u16, u16),
    /// Bytes of shared memory that the kernel declares, with what the system reserves.
    pub(crate) shared: u32,
    /// Bytes of local memory per thread.
    pub(crate) local: u32,
    /// Registers that the file states for a thread.
    pub(crate) registers: u32,
    /// Whether the driver's tables of textures have no samplers in them.
    pub(crate) samplers_apart: bool,
}

impl Image {
    /// Loads the kernel: allocates and fills its global variables, resolves relocations.
    pub(crate) fn load(file: &[u8], kernel: &str, memory: &mut Memory) -> Result<Image, FileError> {
        Module::load(file, memory)?.image(kernel, memory)
    }
}

/// A cubin of which the variables lie in memory, so that kernels can be launched again and again.
pub struct Module {
    cubin: cubin::read::Image,
    target: Target,
    /// Address and size of each variable.
    globals: FxHashMap<String, (u64, u64)>,
    /// Where constant bank 3 lies, which the host may write.
    constants: u64,
}

/// The bytes that a relocation of data puts.
fn filled(kind: u32, value: u64) -> ([u8; 8], usize) {
    match cubin::read::byte_filled(kind) {
        Some(n) => ((value >> (8 * n)).to_le_bytes(), 1),
        None => (value.to_le_bytes(), 8),
    }
}

/// Puts bytes into a section.
fn put(section: &mut [u8], offset: u64, bytes: &[u8]) -> Option<()> {
    let at = usize::try_from(offset).ok()?;
    section.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}

/// Whether it is a word of a texture, sampler or surface.
fn names(r: &cubin::read::RelocImage) -> bool {
    r.place.starts_with(".nv.constant0.")
}

impl Module {
    /// Allocates and fills the variables of a cubin.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn load(file: &[u8], memory: &mut Memory) -> Result<Module, FileError> {
        Module::load_at(file, memory, &BTreeMap::new())
    }

    /// As [`Module::load`], with variables at the addresses that are said of their names.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn load_at(
        file: &[u8],
        memory: &mut Memory,
        places: &BTreeMap<String, u64>,
    ) -> Result<Module, FileError> {
        let mut allocate = |name: &str, bytes: Vec<u8>| match places.get(name) {
            Some(at) => {
                memory.place(name, *at, bytes);
                *at
            }
            None => memory.alloc(name, bytes),
        };
        let mut cubin = cubin::read::read(file)?;
        let mut target = Target::new(cubin.sm).ok_or(FileError::Target(cubin.sm))?;
        if cubin.accelerated && target.info().has_a {
            target.suffix = Suffix::A;
        }
        let mut globals = FxHashMap::default();
        for g in &cubin.globals {
            let at = allocate(&g.name, g.bytes.clone());
            globals.insert(g.name.clone(), (at, g.bytes.len() as u64));
        }
        // Those of functions wait for a kernel: code has its address as part of it.
        for r in cubin.relocs.iter().filter(|r| !r.place.starts_with(".text.") && !names(r)) {
            let Some((symbol, _)) = globals.get(&r.symbol) else { continue };
            let (bytes, size) = filled(r.kind, symbol.wrapping_add_signed(r.addend));
            let bytes = &bytes[..size];
            let done = match globals.get(&r.place) {
                Some((base, _)) => {
                    memory.slice_mut(base + r.offset, size).map(|to| to.copy_from_slice(bytes))
                }
                None if r.place == ".nv.constant3" => put(&mut cubin.constant3, r.offset, bytes),
                None => put(&mut cubin.constant4, r.offset, bytes),
            };
            done.ok_or(FileError::Outside)?;
        }
        let mut constants = places.get(CONSTANTS).copied().unwrap_or(CONST_WINDOW);
        if memory.allocation(constants).is_none() {
            memory.place(CONSTANTS, constants, cubin.constant3.clone());
        } else {
            constants = memory.alloc(CONSTANTS, cubin.constant3.clone());
        }
        Ok(Module { cubin, target, globals, constants })
    }

    /// Frees the variables.
    pub fn unload(self, memory: &mut Memory) {
        for (base, _) in self.globals.values() {
            memory.remove(*base);
        }
        memory.remove(self.constants);
    }

    /// What it was compiled for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Names and sizes of the variables of a cubin that are in managed memory.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn managed(file: &[u8]) -> Result<Vec<(String, usize)>, FileError> {
        let globals = cubin::read::read(file)?.globals.into_iter().filter(|g| g.managed);
        Ok(globals.map(|g| (g.name, g.bytes.len())).collect())
    }

    /// Where each variable lies, by name, and the constant ones as a whole: for [`Module::load_at`].
    pub fn places(&self) -> impl Iterator<Item = (&str, u64)> {
        let globals = self.globals.iter().map(|(name, v)| (&**name, v.0));
        globals.chain([(CONSTANTS, self.constants)])
    }

    /// Bytes of constant bank 3.
    pub fn constant_bytes(&self) -> usize {
        self.cubin.constant3.len()
    }

    /// The kernels and device functions by name.
    pub fn functions(&self) -> &BTreeMap<String, cubin::read::KernelImage> {
        &self.cubin.kernels
    }

    /// Functions of the driver that a kernel reaches, by calls or by what the module's variables point to.
    pub fn driver_functions(&self, kernel: &str) -> BTreeSet<&str> {
        let cubin = &self.cubin;
        let of =
            |f: &str| cubin.kernels.iter().find(|(n, k)| *n == f || k.functions.iter().any(|x| x.0 == f));
        let by_data = cubin.relocs.iter().filter(|r| !r.place.starts_with(".text."));
        let mut left: Vec<&str> = by_data.map(|r| &*r.symbol).chain(of(kernel).map(|s| &**s.0)).collect();
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        while let Some(symbol) = left.pop() {
            if DRIVER.iter().any(|d| d.0 == symbol) {
                found.insert(symbol);
            }
            let Some((section, _)) = of(symbol).filter(|s| seen.insert(&**s.0)) else { continue };
            let here = |p: &str| p.strip_prefix(".text.") == Some(section);
            left.extend(cubin.relocs.iter().filter(|r| here(&r.place)).map(|r| &*r.symbol));
        }
        found
    }

    /// Textures and surfaces that code has by name.
    pub fn image_names(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.cubin.relocs.iter().filter(|r| r.place.starts_with(".nv.constant0.")).filter_map(|r| {
            let kind = match ImageKind::filled(r.kind)? {
                ImageKind::Texture => Kind::Texture,
                ImageKind::Surface => Kind::Surface,
                ImageKind::Sampler => return None,
            };
            Some((r.symbol.split('#').next()?, kind))
        })
    }

    /// Address and size of a variable, constant ones included.
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let constant = || self.cubin.constants.iter().find(|c| c.0 == name);
        self.globals.get(name).copied().or_else(|| constant().map(|c| (self.constants + c.1, c.2)))
    }

    /// Address and size of every variable by name, in the order of names.
    pub fn variables(&self) -> BTreeMap<&str, (u64, u64)> {
        let constants = self.cubin.constants.iter().map(|c| (&*c.0, (self.constants + c.1, c.2)));
        constants.chain(self.globals.iter().map(|(name, v)| (&**name, *v))).collect()
    }

    /// A kernel with its code, ready for launches. Addresses of functions are those that hold in it, in variables too.
    pub(crate) fn image(&self, kernel: &str, memory: &mut Memory) -> Result<Image, FileError> {
        let cubin = &self.cubin;
        let k = cubin.kernels.get(kernel).ok_or_else(|| FileError::NoKernel(kernel.into()))?;
        // Functions of their own sections come after the kernel's code.
        let mut code = k.code.clone();
        let mut functions: FxHashMap<&str, u64> = k.functions.iter().map(|f| (&*f.0, f.1)).collect();
        for (name, start) in cubin.behind(kernel) {
            let section = &cubin.kernels[name];
            code.resize(start as usize / 16, 0);
            functions.insert(name, start);
            functions.extend(section.functions.iter().map(|f| (&*f.0, start + f.1)));
            code.extend_from_slice(&section.code);
        }
        let entry =
            k.functions.iter().find(|f| f.0 == kernel).ok_or_else(|| FileError::NoSymbol(kernel.into()))?.1
                as u32;
        let size = cubin.constant3.len();
        let mut constant3 = memory.slice(self.constants, size).ok_or(FileError::Outside)?.to_vec();
        let mut constant4 = cubin.constant4.clone();
        for r in cubin.relocs.iter().filter(|r| !names(r)) {
            let driver = || DRIVER.iter().position(|d| d.0 == r.symbol).map(|i| DRIVER_CODE + 16 * i as u64);
            let function = || functions.get(&*r.symbol).map(|at| CODE + at).or_else(driver);
            let data = self.globals.get(&r.symbol).map(|g| g.0);
            // Other functions that the driver brings have no address here.
            let number = || super::descriptors::size(&r.symbol);
            let constant = || cubin.constants.iter().find(|c| c.0 == r.symbol).map(|c| self.constants + c.1);
            let symbol = data.or_else(function).or_else(number).or_else(constant);
            let Some(symbol) = symbol else { continue };
            let value = symbol.wrapping_add_signed(r.addend);
            if let Some(function) = r.place.strip_prefix(".text.") {
                // Code that the kernel doesn't reach is not loaded.
                if let Some(start) = functions.get(function) {
                    let at = start.wrapping_add(r.offset) / 16;
                    let word = code.get_mut(at as usize).ok_or(FileError::Outside)?;
                    *word = relocate(*word, r.kind, value, self.target)?;
                }
                continue;
            }
            if data.is_some() {
                continue;
            }
            let (bytes, size) = filled(r.kind, value);
            let bytes = &bytes[..size];
            let done = match self.globals.get(&r.place) {
                Some((base, _)) => {
                    memory.slice_mut(base + r.offset, size).map(|to| to.copy_from_slice(bytes))
                }
                None if r.place == ".nv.constant3" => {
                    let to = memory.slice_mut(self.constants + r.offset, size);
                    to.map(|to| to.copy_from_slice(bytes)).and_then(|()| put(&mut constant3, r.offset, bytes))
                }
                None => put(&mut constant4, r.offset, bytes),
            };
            done.ok_or(FileError::Outside)?;
        }
        let mut banks = Banks::default();
        *banks.bank_mut(0) = k.constant0.clone();
        self.fill_names(kernel, memory, banks.bank_mut(0))?;
        *banks.bank_mut(2) = k.constant2.clone();
        *banks.bank_mut(3) = constant3;
        *banks.bank_mut(4) = constant4;
        // Where functions call themselves the file states no bound, and the driver's default holds.
        let calls = code.iter().any(is_call);
        let local = if calls && k.stack_bytes == 0 { DEFAULT_STACK } else { k.stack_bytes };
        let (target, constants) = (self.target, self.constants);
        let (params, shared, registers) = (k.params, k.shared_bytes, k.registers);
        let samplers_apart = cubin.relocs.iter().any(|r| r.symbol.starts_with(".nv.independent."));
        Ok(Image { target, code, entry, banks, constants, params, shared, local, registers, samplers_apart })
    }

    /// Puts the words of textures, samplers and surfaces that the kernel names into constant bank 0.
    fn fill_names(&self, kernel: &str, memory: &Memory, bank: &mut [u8]) -> Result<(), FileError> {
        let here = |p: &str| p.strip_prefix(".nv.constant0.") == Some(kernel);
        for r in self.cubin.relocs.iter().filter(|r| here(&r.place)) {
            let kind = ImageKind::filled(r.kind).ok_or(FileError::BankRelocation(r.kind))?;
            // Parameters of several kernels may have one name.
            let name = r.symbol.split('#').next().unwrap_or_default();
            let wanted = match kind {
                ImageKind::Texture => Some(Kind::Texture),
                ImageKind::Surface => Some(Kind::Surface),
                ImageKind::Sampler => None,
            };
            let word = match (memory.images.named(name)?, wanted) {
                (Bound::Image(handle), Some(kind)) => {
                    memory.images.by_handle(handle, kind)?;
                    handle as u32
                }
                (Bound::Sampler(n), None) if self.target.sm < 90 => Images::sampler_bits(n),
                (Bound::Sampler(n), None) => n,
                _ => return Err(FileError::Kind(name.into())),
            };
            let at = usize::try_from(r.offset).ok().and_then(|at| bank.get_mut(at..at.checked_add(4)?));
            // A texture and its sampler may share a word.
            let to = at.ok_or(FileError::Outside)?;
            to.iter_mut().zip(word.to_le_bytes()).for_each(|(to, b)| *to |= b);
        }
        Ok(())
    }
}
