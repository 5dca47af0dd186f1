//! What programs say of nodes, and the work that it is.

use super::super::launch::{function, params};
use super::super::pool::PoolProperties;
use super::super::{Handle, below, only};
use crate::driver::with;
use crate::error::{Error, Result};
use crate::ffi::{HostFn, In};
use crate::memop::{Batch, Operation};
use crate::work::{Alloc, Fill, Launch, Work};

/// `CUDA_KERNEL_NODE_PARAMS` of version 1; version 2 goes on with a kernel and a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Kernel1 {
    pub(super) function: Handle,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) params: u64,
    pub(super) extra: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS` of version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Kernel2 {
    pub(super) first: Kernel1,
    pub(super) kernel: Handle,
    pub(super) context: Handle,
}

impl Kernel1 {
    pub(super) fn work(&self) -> Result<Work> {
        let f = function(self.function)?;
        let params = params(&f, In::at(self.params), In::at(self.extra))?;
        let (grid, block, shared) = (self.grid, self.block, self.shared);
        Ok(Work::Launch(Launch {
            function: self.function,
            grid,
            block,
            cluster: None,
            cooperative: false,
            shared,
            params,
        }))
    }
}

impl Kernel2 {
    /// The launch of a node.
    pub(super) fn of(node: Handle) -> Result<Kernel2> {
        with(|d| {
            let (l, params) = d.launch_of(node)?;
            let module = d.functions.get(l.function)?.module;
            let context = d.modules.get(module)?.context.unwrap_or(0);
            let (function, grid, block, shared) = (l.function, l.grid, l.block, l.shared);
            let first = Kernel1 { function, grid, block, shared, params, extra: 0 };
            Ok(Kernel2 { first, kernel: 0, context })
        })
    }
    pub(super) fn work(&self) -> Result<Work> {
        let function = if self.first.function == 0 { self.kernel } else { self.first.function };
        Kernel1 { function, ..self.first }.work()
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memset {
    pub(super) to: u64,
    pub(super) pitch: usize,
    pub(super) value: u32,
    pub(super) element: u32,
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Memset {
    pub(super) fn work(&self) -> Result<Work> {
        let row = self.width.saturating_mul(self.element as usize);
        if !matches!(self.element, 1 | 2 | 4) || self.height > 1 && self.pitch < row {
            return Err(Error::INVALID_VALUE);
        }
        let size = [self.width as u64, self.height as u64];
        let (address, pitch) = (self.to, self.pitch as u64);
        Ok(Work::Fill(Fill { address, pitch, value: self.value.into(), element: self.element, size }))
    }
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocNode {
    pub(super) pool: PoolProperties,
    pub(super) access: u64,
    pub(super) count: usize,
    pub(super) size: usize,
    pub(super) address: u64,
}

impl AllocNode {
    /// Work at an address of its own.
    pub(super) fn work(&self) -> Result<Work> {
        self.pool.check()?;
        // Memory of graphs is not for other processes.
        if self.pool.handles() != 0 || self.size == 0 || self.count > 1 {
            return Err(Error::INVALID_VALUE);
        }
        let address = with(|d| d.space.address_for_graph(self.size))?;
        Ok(Work::Alloc(Alloc { address, size: self.size, pool: None }))
    }

    /// What a node allocates.
    pub(super) fn of(a: &Alloc) -> AllocNode {
        AllocNode { pool: PoolProperties::device(), access: 0, count: 0, size: a.size, address: a.address }
    }
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostNode {
    pub(super) function: HostFn,
    pub(super) data: u64,
}

impl HostNode {
    pub(super) fn work(&self) -> Result<Work> {
        if self.function.is_some() {
            Ok(Work::Host(self.function, self.data))
        } else {
            Err(Error::INVALID_VALUE)
        }
    }
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchNode {
    pub(super) context: Handle,
    pub(super) count: u32,
    pub(super) list: u64,
    pub(super) flags: u32,
}

impl BatchNode {
    pub(super) fn work(&self) -> Result<Work> {
        only(self.flags, 0)?;
        below(self.count, 256)?;
        let list = In::<Operation>::at(self.list).list(self.count as usize)?;
        Ok(Work::Batch(with(|d| d.batch(self.context, &list))?))
    }

    /// The operations of a node, which stay where they are until it ends or is changed.
    pub(super) fn of(b: &Batch) -> BatchNode {
        let list = b.list.as_ptr().expose_provenance() as u64;
        BatchNode { context: b.context, count: b.list.len() as u32, list, flags: 0 }
    }
}
