//! cubin: the ELF file that the CUDA driver loads.
//!
//! [`write()`](write::write) makes an executable from a [`Cubin`]; [`read()`](read::read) takes one apart, ours or
//! ptxas's. What is known of the format, and how, is in `docs/cubin.md`.

pub mod attrs;
mod common;
mod elf;
mod error;
pub mod fatbin;
pub mod frames;
pub mod graph;
pub mod images;
pub mod lines;
pub mod object;
pub mod places;
pub mod read;
pub mod read_lines;
pub mod write;

pub use error::Error;

/// Everything that goes into an executable.
#[derive(Clone, Debug, Default)]
pub struct Cubin {
    /// SM number, 75 … 121.
    pub sm: u8,
    /// Whether it is for this SM alone (`sm_90a`).
    pub accelerated: bool,
    /// EICOMPAT_ATTR_ISA_CLASS; 1 if nothing asks for more.
    pub isa_class: u8,
    /// EICOMPAT_ATTR_INST_TENSORMAP_V1.
    pub tensor_maps: u8,
    /// SM of the PTX's `.target`.
    pub ptx_sm: u8,
    /// Command line, for the tool note.
    pub options: String,
    /// The name of the tool that the note gives, in place of ours.
    pub tool: Option<String>,
    /// Kernels, in the order of the PTX.
    pub kernels: Vec<Kernel>,
    /// Device functions that have sections of their own, as where code is debugged.
    pub functions: Vec<Kernel>,
    /// Global variables.
    pub globals: Vec<Global>,
    /// Constant bank 3: the module's `.const` variables.
    pub constants: Vec<u8>,
    /// Its alignment.
    pub constant_align: u64,
    /// Addresses in constant bank 3.
    pub constant_relocs: Vec<object::Reloc>,
    /// Symbols of constant bank 3: name, offset, size, who sees it.
    pub constant_symbols: Vec<(String, u32, u32, object::Binding)>,
    /// Whether the first constant stands before the first global variable whose address is in constant bank 4.
    pub constants_first: bool,
    /// Constant bank 4: 8-byte slots with the addresses of these globals plus addends.
    pub addresses: Vec<(String, i64)>,
    /// Functions of the driver's whose addresses are among them.
    pub driver_functions: Vec<String>,
    /// Textures, samplers and surfaces by name.
    pub images: Vec<images::ImageSymbol>,
    /// Whether textures have no samplers of their own (`texmode_independent`).
    pub independent: bool,
    /// Whether code asks handles what they are of.
    pub asks_types: bool,
    /// Line tables, if there are to be any.
    pub lines: Option<lines::Lines>,
}

/// What the driver fills into code that calls functions in other sections, and whom it calls.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// Addresses in the code, in ascending order.
    pub relocs: Vec<object::Reloc>,
    /// The functions that it calls by name.
    pub calls: Vec<String>,
    /// The functions whose address it takes.
    pub takes: Vec<String>,
    /// The kernels whose address it takes.
    pub kernels: Vec<String>,
    /// Whether it calls through pointers.
    pub indirect: bool,
}

/// A kernel, or a device function with a section of its own.
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
    /// The same without that of functions that have sections of their own, where there are such functions.
    pub own_frame: Option<u32>,
    /// What a debugger needs to know of the kernel's own stack frame.
    pub frame: frames::Frame,
    /// Device functions in the code.
    pub functions: Vec<Helper>,
    /// What is filled in where functions have sections of their own.
    pub links: Links,
    /// External functions that it calls.
    pub externs: Vec<String>,
    /// Byte offsets of those calls.
    pub syscalls: Vec<u32>,
    /// Named barriers used.
    pub barriers: u8,
    /// What tools and the driver are told of the code.
    pub facts: CodeFacts,
    /// What options had done to it.
    pub options: CodeOptions,
    /// Instructions, without what fills the section up.
    pub instructions: u32,
    /// Static shared memory in bytes, the reserved part included.
    pub shared_bytes: u32,
    /// Alignment of shared memory; 0 if there is none, neither static nor dynamic.
    pub shared_align: u32,
    /// Whether the code names a shared variable.
    pub names_shared: bool,
    /// Whether the file says that no bound of its stack is known, which without one it does not where code is not debugged.
    pub unbounded: bool,
    /// Offset of the parameters in constant bank 0.
    pub param_base: u16,
    /// Size of the parameters.
    pub param_bytes: u16,
    /// Whether there are so many that the size of each is stated in 16 bits, not 14.
    pub many_params: bool,
    /// Parameters.
    pub params: Vec<Param>,
    /// Words behind them of textures, samplers and surfaces that code names.
    pub images: Vec<images::ImageWord>,
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
    /// `.blocksareclusters`: the grid of a launch counts clusters.
    pub blocks_are_clusters: bool,
    /// `.maxclusterrank`
    pub max_cluster_rank: Option<u32>,
    /// `.maxntid`
    pub maxntid: Option<[u32; 3]>,
    /// `.reqntid`
    pub reqntid: Option<[u32; 3]>,
}

impl Kernel {
    /// Where its parameters end in constant bank 0.
    pub(crate) fn param_end(&self) -> usize {
        usize::from(self.param_base) + usize::from(self.param_bytes)
    }

    /// Bytes of constant bank 0: the words for names are behind the parameters.
    pub(crate) fn bank0_bytes(&self) -> usize {
        let words = self.images.iter().map(|w| w.offset as usize + 4);
        words.max().unwrap_or(0).max(self.param_end())
    }
}

/// What options had done to code, as the file says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeOptions {
    /// Errors are made visible where threads exit.
    pub errors_at_exit: bool,
    /// Threads sleep before they write.
    pub steers: bool,
    /// The numbers of instructions and registers are stated in words.
    pub annotate: bool,
}

/// A device function in the code of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Helper {
    /// Name.
    pub name: String,
    /// Who sees the function that this is a copy of; `None` of what is part of an instruction.
    pub binding: Option<object::Binding>,
    /// Byte offset in the kernel's code.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Bytes of its own stack frame.
    pub frame_bytes: u32,
    /// What a debugger needs to know of that.
    pub frame: frames::Frame,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Param {
    /// Byte offset from the first.
    pub offset: u16,
    /// Bytes.
    pub size: u32,
    /// Of a `.ptr` parameter, where it points to and how that is aligned.
    pub pointee: Option<(Pointee, u32)>,
    /// Of a texture, sampler or surface, which is not passed: its place in the list of the file.
    pub image: Option<usize>,
}

/// The state space that a `.ptr` parameter points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Pointee {
    /// `.local`
    Local = 1,
    /// `.shared`
    Shared = 2,
    /// `.const`; in files before sm_90 only, later ones have [`Pointee::Global`] (ptxas 13.0.88).
    Const = 3,
    /// `.global`
    Global = 4,
    /// None is named.
    Generic = 5,
}

impl Pointee {
    /// Its number in KPARAM_INFO.
    pub(crate) fn number(self, sm: u8) -> u32 {
        match self {
            Pointee::Const if sm >= 90 => Pointee::Global as u32,
            space => space as u32,
        }
    }
}

/// What `.nv.info` says of the code of a kernel or function, all places as byte offsets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeFacts {
    /// Whether it has a BSSY or a call (EIATTR_CRS_STACK_SIZE).
    pub stack_of_barriers: bool,
    /// Instructions that a group of lanes executes together, with the register that names the group if one does.
    pub groups: Vec<(u32, Option<u8>)>,
    /// Warp-wide instructions that stand for no such instruction of the PTX.
    pub warp_wide: Vec<u32>,
    /// Loads of vectors of which not all is used, and a bit for each byte that is.
    pub unused_bytes: Vec<(u32, u32)>,
    /// Spills and refills.
    pub spills: Vec<u32>,
    /// Whether the PTX has `wmma` instructions.
    pub wmma: bool,
    /// Whether SR_CTAID.Z is read.
    pub ctaid_z: bool,
    /// Whether the number of registers is changed.
    pub reconfigures: bool,
    /// Whether it uses tensor memory of its own; loads and stores alone do not say whose it is.
    pub tensor_memory: bool,
    /// Whether that is tensor memory of a pair of blocks.
    pub tensor_memory_of_pairs: bool,
    /// Whether it reads which columns of it are taken.
    pub reads_taken_columns: bool,
    /// Whether it takes or gives back some, or says that it takes no more.
    pub allocates_tensor_memory: bool,
    /// Whether it takes or gives back some: the hardware is to count it.
    pub counts_tensor_memory: bool,
    /// Instructions on mbarriers, if there are any, some of which are not listed.
    pub mbarriers: Option<Vec<Mbarrier>>,
}

impl CodeFacts {
    /// Whether it uses the words that say which columns of tensor memory are taken.
    pub(crate) fn has_partition(&self) -> bool {
        self.allocates_tensor_memory || self.reads_taken_columns
    }
}

/// An instruction on an mbarrier, and the registers and number that its address is the sum of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mbarrier {
    /// Its byte offset.
    pub offset: u32,
    /// General register.
    pub register: Option<u8>,
    /// Number.
    pub immediate: i32,
    /// Uniform register.
    pub uniform: Option<u8>,
    /// What it does.
    pub kind: MbarrierKind,
}

/// What is done with an mbarrier. Arrivals that expect bytes are not listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names of the PTX instructions")]
pub enum MbarrierKind {
    Init = 0,
    Arrive = 1,
    ArriveNoComplete = 2,
    ArriveDrop = 3,
    ArriveDropNoComplete = 4,
    TestWait = 5,
    TestWaitParity = 6,
    CpAsyncArrive = 7,
    Inval = 8,
    TryWait = 9,
    TryWaitParity = 10,
    ExpectTx = 11,
    CompleteTx = 12,
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
