//! cubin: the ELF file that the CUDA driver loads.
//!
//! [`write()`](write::write) makes an executable from a [`Cubin`]; [`read()`](read::read) takes one apart, ours or
//! ptxas's. What is known of the format, and how, is in `docs/cubin.md`.

pub mod attrs;
mod common;
mod elf;
pub mod lines;
pub mod object;
pub mod read;
pub mod write;

/// Everything that goes into an executable.
#[derive(Clone, Debug, Default)]
pub struct Cubin {
    /// SM number, 75 … 121.
    pub sm: u8,
    /// SM of the PTX's `.target`.
    pub ptx_sm: u8,
    /// Command line, for the tool note.
    pub options: String,
    /// Kernels, in the order of the PTX.
    pub kernels: Vec<Kernel>,
    /// Global variables.
    pub globals: Vec<Global>,
    /// Constant bank 3: the module's `.const` variables.
    pub constants: Vec<u8>,
    /// Addresses in constant bank 3.
    pub constant_relocs: Vec<object::Reloc>,
    /// Symbols of constant bank 3: name, offset, size, who sees it.
    pub constant_symbols: Vec<(String, u32, u32, object::Binding)>,
    /// Constant bank 4: 8-byte slots with the addresses of these globals plus addends.
    pub addresses: Vec<(String, i64)>,
    /// Line tables, if there are to be any.
    pub lines: Option<lines::Lines>,
}

/// A kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// Name.
    pub name: String,
    /// Who sees it.
    pub binding: object::Binding,
    /// Instruction words, padding included.
    pub code: Vec<u128>,
    /// Registers per thread.
    pub registers: u8,
    /// Bytes of local memory per thread, for all functions; 0 if that is unknown because of recursion.
    pub frame_bytes: u32,
    /// Device functions in the code: name, byte offset, size.
    pub functions: Vec<(String, u32, u32)>,
    /// External functions that it calls.
    pub externs: Vec<String>,
    /// Byte offsets of those calls.
    pub syscalls: Vec<u32>,
    /// Named barriers used.
    pub barriers: u8,
    /// Whether convergence barriers are used (EIATTR_CRS_STACK_SIZE).
    pub convergence: bool,
    /// Static shared memory in bytes, the reserved part included.
    pub shared_bytes: u32,
    /// Alignment of shared memory; 0 if there is none, neither static nor dynamic.
    pub shared_align: u32,
    /// Offset of the parameters in constant bank 0.
    pub param_base: u16,
    /// Size of the parameters.
    pub param_bytes: u16,
    /// Parameters: offset and size.
    pub params: Vec<(u16, u32)>,
    /// Byte offsets of the EXIT instructions.
    pub exits: Vec<u32>,
    /// Byte offsets of instructions whose immediate is a number of the driver's, and its symbol.
    pub numbers: Vec<(u32, String)>,
    /// Constant bank 2: literals.
    pub literals: Vec<u8>,
    /// `.maxnreg`, or what the launch bounds allow.
    pub max_registers: Option<u8>,
    /// `.explicitcluster`
    pub explicit_cluster: bool,
    /// `.reqnctapercluster`
    pub cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`
    pub max_cluster_rank: Option<u32>,
    /// `.maxntid`
    pub maxntid: Option<[u32; 3]>,
    /// `.reqntid`
    pub reqntid: Option<[u32; 3]>,
}

/// A global variable.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// Name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Alignment.
    pub align: u64,
    /// Initial contents; `None` for zeros.
    pub init: Option<Vec<u8>>,
    /// Addresses in the initial contents.
    pub relocs: Vec<object::Reloc>,
    /// Who sees it.
    pub binding: object::Binding,
    /// In managed memory.
    pub managed: bool,
}
