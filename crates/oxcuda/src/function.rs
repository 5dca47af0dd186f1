//! Functions of modules: what a launch has to know of them.

use crate::attributes;
use crate::error::{Error, Result};
use cubin::attrs::Attr;
use cubin::read::KernelImage;

/// A kernel.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// The module that it is of.
    pub module: u64,
    /// Its name.
    pub name: String,
    /// Offset and size of each parameter.
    pub params: Vec<(u16, u32)>,
    /// Bytes of all parameters.
    pub size: usize,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block, and of local memory of a thread.
    pub shared: u32,
    /// See `shared`.
    pub local: u32,
    /// Bytes of the program's constants.
    pub constants: u32,
    /// Most threads of a block, as it was compiled for them.
    pub threads: u32,
    /// Threads of a block in each dimension, where it must have them.
    pub block: Option<[u32; 3]>,
    /// Blocks of a cluster, where it must have them.
    pub cluster: Option<[u32; 3]>,
    /// Whether it was compiled with them.
    pub cluster_compiled: bool,
    /// The SM that its code is for.
    pub sm: u8,
    /// The one that its PTX was for, if there was any.
    pub virtual_sm: Option<u8>,
    /// Attributes that were set, by number.
    pub set: std::collections::BTreeMap<u32, i32>,
    /// Limits of the context that it fixes ([`crate::driver::limit`]), known from its first launch on.
    pub fixes: Option<Vec<u32>>,
}

/// Bytes at the start of shared memory that are the system's from sm_90 on.
const RESERVED: u32 = 0x400;

/// Numbers of `CUfunction_attribute`.
pub mod attribute {
    #![allow(missing_docs)] // As the header names them.
    pub const MAX_DYNAMIC_SHARED: u32 = 8;
    pub const CARVEOUT: u32 = 9;
    pub const NON_PORTABLE_CLUSTER: u32 = 14;
    pub const CLUSTER_POLICY: u32 = 15;
}

impl Function {
    /// What a cubin says of a kernel.
    pub fn of_image(name: &str, image: &KernelImage, constants: usize, sm: u8) -> Result<Function> {
        let params = image.parameters().ok_or(Error::INVALID_IMAGE)?;
        let dims = |attr| image.words(attr).filter(|w| w.len() >= 3);
        let product = |w: Vec<u32>| w[..3].iter().fold(1u32, |p, n| p.saturating_mul((*n).max(1)));
        let three = |w: &Vec<u32>| [w[0], w[1], w[2]];
        let block = dims(Attr::ReqNtid).map(|w| three(&w).map(|n| n.max(1)));
        let threads = dims(Attr::ReqNtid).or_else(|| dims(Attr::MaxThreads)).map(product);
        let cluster = dims(Attr::CtaPerCluster).map(|w| three(&w)).filter(|c| *c != [0; 3]);
        Ok(Function {
            name: name.into(),
            params,
            size: image.params.1.into(),
            registers: image.registers,
            // From sm_90 on the section counts what the system takes as well.
            shared: image.shared_bytes.saturating_sub(if sm >= 90 { RESERVED } else { 0 }),
            local: image.stack_bytes,
            constants: constants as u32,
            threads: threads.unwrap_or(1024).min(1024),
            block,
            cluster,
            cluster_compiled: cluster.is_some(),
            sm,
            ..Function::default()
        })
    }

    /// What PTX says of a kernel.
    pub fn of_ptx(module: &ptx::Module, func: &ptx::Func, sm: u8) -> Function {
        let (offsets, size) = module.param_layout(func);
        // Textures, samplers and surfaces are not passed.
        let passed = func.params.iter().zip(offsets).map(|(p, at)| (&module.vars[*p], at));
        let passed = passed.filter(|(v, _)| v.opaque.is_none()).map(|(v, at)| (at as u16, v.size() as u32));
        let product = |d: [u32; 3]| d.iter().fold(1u32, |p, n| p.saturating_mul((*n).max(1)));
        let threads = func.attrs.reqntid.or(func.attrs.maxntid).map(product);
        Function {
            name: func.name.to_string(),
            params: passed.collect(),
            size: size as usize,
            registers: 32,
            threads: threads.unwrap_or(1024).min(1024),
            block: func.attrs.reqntid.map(|b| b.map(|n| n.max(1))),
            cluster: func.attrs.cluster(),
            cluster_compiled: func.attrs.cluster().is_some(),
            sm,
            ..Function::default()
        }
    }

    /// Most threads of a block: as many as registers are there for.
    pub fn most_threads(&self) -> u32 {
        // Registers are given to warps in units of 256.
        let warp = (self.registers.max(1) * 32).next_multiple_of(256);
        self.threads.min(attributes::REGISTERS / warp * 32)
    }

    /// Most blocks of a cluster: more than eight have to be asked for, as not every device has them.
    pub fn most_of_cluster(&self) -> u32 {
        match self.set.get(&attribute::NON_PORTABLE_CLUSTER) {
            Some(n) if *n != 0 => 16,
            _ => 8,
        }
    }

    /// An attribute by its number.
    pub fn attribute(&self, number: u32) -> Result<i32> {
        if let Some(value) = self.set.get(&number) {
            return Ok(*value);
        }
        let cluster = self.cluster.unwrap_or([0; 3]);
        let sm = i32::from(self.sm);
        Ok(match number {
            0 => self.most_threads() as i32,
            1 => self.shared as i32,
            2 => self.constants as i32,
            3 => self.local as i32,
            4 => self.registers as i32,
            5 => self.virtual_sm.map_or(sm, i32::from),
            6 => sm,
            7 => 0,
            attribute::MAX_DYNAMIC_SHARED => (attributes::SHARED.saturating_sub(self.shared)) as i32,
            attribute::CARVEOUT => -1,
            10 => i32::from(self.cluster.is_some()),
            11..=13 => cluster[number as usize - 11] as i32,
            attribute::NON_PORTABLE_CLUSTER | attribute::CLUSTER_POLICY => 0,
            _ => return Err(Error::INVALID_VALUE),
        })
    }

    /// Sets an attribute.
    pub fn set_attribute(&mut self, number: u32, value: i32) -> Result<()> {
        match number {
            attribute::MAX_DYNAMIC_SHARED => {
                let most = attributes::sm().shared_opt_in.saturating_sub(self.shared) as i32;
                if !(0..=most).contains(&value) {
                    return Err(Error::INVALID_VALUE);
                }
            }
            attribute::CARVEOUT if !(-1..=100).contains(&value) => return Err(Error::INVALID_VALUE),
            attribute::CARVEOUT => {}
            // What it was compiled with stays.
            11..=13 if self.cluster_compiled => return Err(Error::NOT_PERMITTED),
            11..=13 if value < 0 => return Err(Error::INVALID_VALUE),
            attribute::NON_PORTABLE_CLUSTER if !matches!(value, 0 | 1) => return Err(Error::INVALID_VALUE),
            // No preference, spread, or balanced.
            attribute::CLUSTER_POLICY if !(0..=2).contains(&value) => return Err(Error::INVALID_VALUE),
            11..=attribute::CLUSTER_POLICY => {}
            _ => return Err(Error::INVALID_VALUE),
        }
        self.set.insert(number, value);
        if let 11..=13 = number {
            self.cluster.get_or_insert([1; 3])[number as usize - 11] = value as u32;
        }
        Ok(())
    }

    /// The parameters' block from the address of each parameter.
    pub fn pack(&self, addresses: &[u64]) -> Result<Vec<u8>> {
        let mut block = vec![0; self.size];
        for ((offset, size), address) in self.params.iter().zip(addresses) {
            let (from, size) = (usize::from(*offset), *size as usize);
            let to = block.get_mut(from..from + size).ok_or(Error::INVALID_IMAGE)?;
            to.copy_from_slice(&crate::ffi::read(*address, size)?);
        }
        Ok(block)
    }
}
