//! A cubin as the loader sees it: code, constant banks, global variables, memory sizes.

use super::state::{CODE, DRIVER_CODE};
use crate::memory::Memory;
use crate::output::DRIVER;
use rustc_hash::FxHashMap;
use sass::Target;

/// Bytes of stack that the driver gives every thread unless told otherwise.
const DEFAULT_STACK: u32 = 1024;

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
    /// All bytes of a bank.
    pub(crate) fn bank(&self, bank: u8) -> &[u8] {
        self.0.get(usize::from(bank)).map_or(&[], Vec::as_slice)
    }
    /// `len` bytes, if they lie in the bank.
    pub(crate) fn slice(&self, bank: u8, at: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(at).ok()?;
        self.0.get(usize::from(bank))?.get(at..at.checked_add(len)?)
    }
    /// A little-endian number of `len` bytes.
    pub(crate) fn read(&self, bank: u8, at: u64, len: usize) -> Option<u64> {
        self.slice(bank, at, len).map(crate::memory::little_endian)
    }
}

/// An instruction with an address filled in.
fn relocate(word: u128, kind: u32, value: u64, target: Target) -> Result<u128, String> {
    const IMMEDIATE: u128 = 0xffff_ffff << 32;
    match kind {
        // R_CUDA_ABS32_LO_32, R_CUDA_ABS32_HI_32
        0x38 => Ok(word & !IMMEDIATE | u128::from(value as u32) << 32),
        0x39 => Ok(word & !IMMEDIATE | u128::from(value >> 32) << 32),
        // R_CUDA_ABS47_34, R_CUDA_ABS55_16_34: the label of a call
        0x3a | 0x4b => {
            let mut inst = sass::decode(word, target, 0).map_err(|e| e.to_string())?;
            for o in &mut inst.operands {
                if let sass::Operand::Label(at) = o {
                    *at = value as i64;
                }
            }
            sass::encode(&inst, target, 0).map_err(|e| e.to_string())
        }
        _ => Err(format!("relocation of type {kind:#x}")),
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
    /// Offset and size of the parameters in bank 0.
    pub(crate) params: (u16, u16),
    /// Bytes of shared memory that the kernel declares, with what the system reserves.
    pub(crate) shared: u32,
    /// Bytes of local memory per thread.
    pub(crate) local: u32,
    /// Registers that the file states for a thread.
    pub(crate) registers: u32,
}

impl Image {
    /// Loads the kernel: allocates and fills its global variables, resolves relocations.
    pub(crate) fn load(file: &[u8], kernel: &str, memory: &mut Memory) -> Result<Image, String> {
        let mut cubin = cubin::read::read(file)?;
        let target = Target::new(cubin.sm).ok_or(format!("unknown target sm_{}", cubin.sm))?;
        let k = cubin.kernels.remove(kernel).ok_or(format!("no kernel {kernel}"))?;
        // Functions of their own sections come after the kernel's code.
        let mut code = k.code;
        let mut functions: FxHashMap<String, u64> = k.functions.iter().map(|f| (f.0.clone(), f.1)).collect();
        let wanted = |name: &str| cubin.relocs.iter().any(|r| r.symbol == name);
        for (name, section) in cubin.kernels.iter().filter(|s| wanted(s.0)) {
            code.resize(code.len().next_multiple_of(8), 0);
            functions.insert(name.clone(), 16 * code.len() as u64);
            code.extend_from_slice(&section.code);
        }
        let entry = k.functions.iter().find(|f| f.0 == kernel).ok_or(format!("no symbol {kernel}"))?.1 as u32;

        let mut addresses = FxHashMap::default();
        for g in &cubin.globals {
            addresses.insert(g.name.clone(), memory.alloc(&g.name, g.bytes.clone()));
        }
        for r in &cubin.relocs {
            let driver = || DRIVER.iter().position(|d| d.0 == r.symbol).map(|i| DRIVER_CODE + 16 * i as u64);
            let function = || functions.get(&r.symbol).map(|at| CODE + at);
            // Other functions that the driver brings have no address here.
            let Some(symbol) = addresses.get(&r.symbol).copied().or_else(function).or_else(driver) else {
                continue;
            };
            let value = symbol.wrapping_add_signed(r.addend);
            if let Some(function) = r.place.strip_prefix(".text.") {
                // Code that the kernel doesn't reach is not loaded.
                if let Some(start) = functions.get(function) {
                    let at = start.wrapping_add(r.offset) / 16;
                    let word = code.get_mut(at as usize).ok_or("a relocation lies outside its section")?;
                    *word = relocate(*word, r.kind, value, target)?;
                }
                continue;
            }
            // R_CUDA_G8_0 … R_CUDA_G8_56: one byte of the address
            let (bytes, size) = match r.kind {
                0x54..=0x5b => ((value >> (8 * (r.kind - 0x54))).to_le_bytes(), 1),
                _ => (value.to_le_bytes(), 8),
            };
            let place = match addresses.get(&r.place) {
                Some(base) => memory.slice_mut(base + r.offset, size),
                None if r.place == ".nv.constant3" => {
                    cubin.constant3.get_mut(r.offset as usize..).and_then(|b| b.get_mut(..size))
                }
                None => cubin.constant4.get_mut(r.offset as usize..).and_then(|b| b.get_mut(..8)),
            };
            place.ok_or("a relocation lies outside its section")?.copy_from_slice(&bytes[..size]);
        }
        let mut banks = Banks::default();
        *banks.bank_mut(0) = k.constant0;
        *banks.bank_mut(2) = k.constant2;
        *banks.bank_mut(3) = cubin.constant3;
        *banks.bank_mut(4) = cubin.constant4;
        // Where functions call themselves the file states no bound, and the driver's default holds.
        let calls = code.iter().any(is_call);
        let local = if calls && k.stack_bytes == 0 { DEFAULT_STACK } else { k.stack_bytes };
        let (params, shared, registers) = (k.params, k.shared_bytes, k.registers);
        Ok(Image { target, code, entry, banks, params, shared, local, registers })
    }
}
