//! `.nv.info` attributes (EIATTR): codes and record formats, as observed in files of ptxas 13.0.88 and named
//! by cuobjdump 13.2.

/// An attribute code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Attr {
    /// Before sm_90: the code reads SR_CTAID.Z; a bare flag.
    CtaidzUsed = 0x04,
    MaxThreads = 0x05,
    /// How a sampler is set up.
    SamplerInit = 0x09,
    ParamCbank = 0x0a,
    Externs = 0x0f,
    ReqNtid = 0x10,
    FrameSize = 0x11,
    MinStackSize = 0x12,
    /// Whether a sampler takes coordinates for texels.
    SamplerForceUnnormalized = 0x13,
    /// The constant bank with the words of textures that code names.
    BindlessTextureBank = 0x15,
    /// The same of surfaces.
    BindlessSurfaceBank = 0x16,
    KparamInfo = 0x17,
    /// The same with 16 bits for the size, where a kernel has [many](crate::Kernel::many_params).
    KparamInfoV2 = 0x45,
    CbankParamSize = 0x19,
    MaxregCount = 0x1b,
    ExitInstrOffsets = 0x1c,
    CrsStackSize = 0x1e,
    /// The code asks handles what they are of; a bare flag.
    IstypepUsed = 0x22,
    MaxStackSize = 0x23,
    /// Byte offsets of instructions that a group of lanes executes together.
    CoopGroupInstrOffsets = 0x28,
    /// For each of those the register that holds the group, or all ones.
    CoopGroupMaskRegids = 0x29,
    /// The PTX has `wmma` instructions; a bare flag.
    WmmaUsed = 0x2b,
    Regcount = 0x2f,
    /// Byte offsets of warp-wide instructions that stand for no such instruction of the PTX.
    IntWarpWideInstrOffsets = 0x31,
    /// For each indirect branch its byte offset, 0, the number of its targets and the targets.
    IndirectBranchTargets = 0x34,
    /// On sm_80 … sm_88; a bare flag.
    Sw2861232War = 0x35,
    SwWar = 0x36,
    CudaApiVersion = 0x37,
    /// Byte offsets of the calls of external functions.
    SyscallOffsets = 0x46,
    CtaPerCluster = 0x3d,
    /// A bare flag.
    ExplicitCluster = 0x3e,
    MaxClusterRank = 0x3f,
    /// A bare flag.
    ReservedSmemUsed = 0x41,
    /// Byte offset of a vector load and the bytes of it that are used, a bit each.
    UnusedLoadByteOffset = 0x44,
    NumMbarriers = 0x38,
    MbarrierInstrOffsets = 0x39,
    /// On sm_100 and later.
    VrcCtaInitCount = 0x4a,
    NumBarriers = 0x4c,
    /// Textures have no samplers of their own; a bare flag.
    TexmodeIndependent = 0x4d,
    /// What the driver does where the kernel begins.
    AtEntryFragments = 0x4f,
    /// Tensor memory of one block; a bare flag.
    Tcgen05OneCtaUsed = 0x51,
    /// Tensor memory of a pair of blocks; a bare flag.
    Tcgen05TwoCtaUsed = 0x52,
    SparseMmaMask = 0x50,
    /// Errors are made visible where threads exit; a bare flag.
    GenErrbarAtExit = 0x53,
    /// The code has USETMAXREG; a bare flag.
    RegReconfig = 0x54,
    /// Pairs: 1 and the byte offset of a spill or refill; or 3, the length of a text, and the text.
    Annotations = 0x55,
    /// The code is instrumented; by what.
    Sanitize = 0x5c,
    /// The grid of a launch counts clusters; a bare flag.
    BlocksAreClusters = 0x5b,
    MercuryIsaVersion = 0x5f,
}

/// A list of records under construction.
#[derive(Clone, Default, Debug)]
pub struct Attrs(pub Vec<u8>);

impl Attrs {
    /// A flag without value (format 1).
    pub fn flag(&mut self, a: Attr) {
        self.0.extend_from_slice(&[1, a as u8, 0, 0]);
    }
    /// A byte (format 2).
    pub fn byte(&mut self, a: Attr, value: u8) {
        self.0.extend_from_slice(&[2, a as u8, value, 0]);
    }
    /// A 16-bit value (format 3).
    pub fn half(&mut self, a: Attr, value: u16) {
        self.0.extend_from_slice(&[3, a as u8]);
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    /// 32-bit words that may be many, in as many records as their sizes need; `together` of them belong together.
    pub fn list(&mut self, a: Attr, words: &[u32], together: usize) {
        let most = usize::from(u16::MAX) / 4 / together * together;
        words.chunks(most).for_each(|w| self.words(a, w));
    }
    /// A text (format 4), behind what says that it is one.
    pub fn text(&mut self, a: Attr, kind: u32, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        let length = bytes.len() as u32;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let mut words = vec![kind, length];
        words.extend(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        self.words(a, &words);
    }
    /// 32-bit words (format 4).
    pub fn words(&mut self, a: Attr, words: &[u32]) {
        debug_assert!(4 * words.len() <= usize::from(u16::MAX), "{a:?}");
        self.0.extend_from_slice(&[4, a as u8]);
        self.0.extend_from_slice(&(4 * words.len() as u16).to_le_bytes());
        for w in words {
            self.0.extend_from_slice(&w.to_le_bytes());
        }
    }
}

/// Iterates over records: code and payload (the 2-byte value of short formats).
pub fn records(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = data.split_at_checked(4)?;
        let size = if head[0] == 4 { usize::from(u16::from_le_bytes([head[2], head[3]])) } else { 0 };
        let (payload, next) = rest.split_at_checked(size)?;
        data = next;
        Some((head[1], if head[0] == 4 { payload } else { &head[2..4] }))
    })
}
