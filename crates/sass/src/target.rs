//! The SM table: every target that can be generated, and the facts that vary between them.

use crate::Opcode;

/// Registers of each thread that the hardware keeps for itself, from Volta on: code whose highest register is Rn needs
/// n + 1 + this many to be stated for it (docs/cubin.md).
pub const HARDWARE_REGISTERS: u8 = 2;

/// The fewest registers that ptxas states for a thread: an empty kernel's.
pub const LEAST_REGISTERS: u8 = 4;

/// The fewest registers to which a kernel can be limited, and that are stated for functions of objects.
pub const LEAST_LIMIT: u8 = 24;

/// A compilation target: an SM version with its optional feature suffix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Target {
    /// SM number as in `sm_90`: 75, 80, …, 121.
    pub sm: u8,
    /// `a` (architecture specific), `f` (family specific) or none.
    pub suffix: Suffix,
}

/// Feature suffix of a target name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Suffix {
    /// Plain `sm_90`.
    None,
    /// `sm_90a`: architecture-specific features.
    A,
    /// `sm_100f`: family-specific features.
    F,
}

/// Facts about one SM that several layers read. Source: cubins of ptxas 13.0.88 unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct SmInfo {
    /// SM number.
    pub sm: u8,
    /// Whether `sm_XXa` exists.
    pub has_a: bool,
    /// Whether `sm_XXf` exists.
    pub has_f: bool,
    /// Byte offset of the first kernel parameter in constant bank 0.
    pub param_base: u16,
    /// How far that is from where the alignment of parameters counts from: up to sm_90 the start of the constant bank, from
    /// sm_100 on the first parameter itself.
    pub param_skew: u16,
    /// The offset of the first of a kernel's parameters that take more than 4,352 bytes, where that is another; their alignment
    /// counts from the start of the constant bank.
    pub large_param_base: Option<u16>,
    /// Byte offset in constant bank 0 of the 64-bit generic-memory descriptor (`desc[UR]`); 0 where memory
    /// instructions take none (sm_75).
    pub mem_desc: u16,
    /// Byte offset in constant bank 0 of the initial stack pointer.
    pub stack_ptr: u16,
    /// Byte offset in constant bank 0 of blockDim.x; .y and .z follow in 4-byte steps.
    pub ntid: u16,
    /// Byte offset in constant bank 0 of gridDim.x; .y and .z follow in 4-byte steps.
    pub nctaid: u16,
    /// ALU instructions take constant-bank operands (`c[0x0][..]`) directly; otherwise LDC/LDCU load them.
    pub alu_const: bool,
    /// What loads a constant into a uniform register: ULDC, from sm_100 on LDCU.
    pub constant_load: Opcode,
    /// BSSY, BSYNC and branches that end a region say `.RECONVERGENT`.
    pub reconvergent: bool,
    /// ISETP compares numbers of 64 bits in one instruction.
    pub compares_64: bool,
    /// Where the pipe of products has room, ptxas gives it copies, sums and shifts (IMAD.MOV, .IADD, .SHL), and CS2R makes pairs of
    /// zeros; not where integers have as many lanes. There it has MOV of 64 bits.
    pub sums_as_products: bool,
    /// Integer minimum and maximum are VIMNMX; IMNMX otherwise (nvdisasm 13.2 takes no VIMNMX for sm_110).
    pub vimnmx: bool,
    /// Binary64 is so slow that ptxas keeps its instructions apart (`backend`'s `hazards::pacing`).
    pub paced_fp64: bool,
    /// The copy engine writes the shared memory of its own block only; where ptxas finds that a copy goes to another one's it calls the
    /// driver.
    pub own_copies: bool,
    /// The driver's functions (`vprintf`, `__assertfail`, `malloc` …) leave general registers from this one on as they are (ptxas 13.0.88
    /// keeps values there across calls of them).
    pub driver_registers: u8,
    /// Most threads that a multiprocessor holds (CUDA programming guide, compute capabilities).
    pub threads: u16,
    /// Most blocks that it holds.
    pub blocks: u8,
    /// KiB of shared memory that its blocks can have together.
    pub shared_kib: u16,
    /// Largest uniform register count (URZ not counted).
    pub uregs: u8,
    /// Index that encodes URZ.
    pub urz: u8,
}

/// All SMs, ascending: each as the first of its kind but for what stands in its row.
pub static SMS: &[SmInfo] = &[
    SmInfo {
        sm: 75,
        mem_desc: 0,
        driver_registers: 255,
        threads: 1024,
        blocks: 16,
        shared_kib: 64,
        ..AMPERE
    },
    AMPERE,
    SmInfo { sm: 86, threads: 1536, blocks: 16, shared_kib: 100, ..AMPERE },
    SmInfo { sm: 87, threads: 1536, blocks: 16, ..AMPERE },
    SmInfo { sm: 88, threads: 1536, blocks: 16, shared_kib: 100, ..AMPERE },
    SmInfo { sm: 89, threads: 1536, blocks: 24, shared_kib: 100, ..AMPERE },
    HOPPER,
    BLACKWELL,
    SmInfo { sm: 103, paced_fp64: true, ..BLACKWELL },
    SmInfo { sm: 110, paced_fp64: true, vimnmx: false, threads: 1536, blocks: 24, ..BLACKWELL },
    SM_120,
    SmInfo { sm: 121, ..SM_120 },
];

const AMPERE: SmInfo = SmInfo {
    sm: 80,
    has_a: false,
    has_f: false,
    param_base: 0x160,
    param_skew: 0x160,
    large_param_base: Some(0x1a80),
    mem_desc: 0x118,
    stack_ptr: 0x28,
    ntid: 0,
    nctaid: 0xc,
    alu_const: true,
    constant_load: Opcode::ULDC,
    reconvergent: false,
    compares_64: false,
    sums_as_products: true,
    vimnmx: false,
    paced_fp64: false,
    own_copies: false,
    driver_registers: 24,
    threads: 2048,
    blocks: 32,
    shared_kib: 164,
    uregs: 63,
    urz: 63,
};

const HOPPER: SmInfo = SmInfo {
    sm: 90,
    has_a: true,
    param_base: 0x210,
    param_skew: 0x210,
    large_param_base: None,
    mem_desc: 0x208,
    alu_const: false,
    vimnmx: true,
    shared_kib: 228,
    ..AMPERE
};

const BLACKWELL: SmInfo = SmInfo {
    sm: 100,
    has_f: true,
    param_base: 0x380,
    param_skew: 0,
    mem_desc: 0x358,
    stack_ptr: 0x37c,
    ntid: 0x360,
    nctaid: 0x370,
    constant_load: Opcode::LDCU,
    reconvergent: true,
    uregs: 80,
    urz: 255,
    ..HOPPER
};

const SM_120: SmInfo = SmInfo {
    sm: 120,
    compares_64: true,
    sums_as_products: false,
    paced_fp64: true,
    own_copies: true,
    threads: 1536,
    blocks: 24,
    shared_kib: 100,
    ..BLACKWELL
};

impl SmInfo {
    /// Registers of a multiprocessor.
    pub const REGISTERS: u32 = 65536;

    /// Warps for which a multiprocessor has registers, so many being stated for a thread: they are given out in portions of 256, and each of
    /// its four parts has its own.
    pub fn warps_with(stated: u32) -> u32 {
        (Self::REGISTERS / (32 * stated.max(1)).next_multiple_of(256)) & !3
    }

    /// Registers of a thread with which a multiprocessor still holds as many threads as it can: 64 Ki registers, granted to
    /// warps in portions of 256.
    pub const fn full_registers(&self) -> u8 {
        Self::registers_for(self.threads as u32)
    }

    /// The same for another number of threads.
    pub const fn registers_for(threads: u32) -> u8 {
        let each = (Self::REGISTERS / if threads == 0 { 1 } else { threads }) & !7;
        if each > 255 { 255 } else { each as u8 }
    }
}

impl Target {
    /// A target without suffix; `None` if the SM is unknown.
    pub fn new(sm: u8) -> Option<Target> {
        SMS.iter().any(|s| s.sm == sm).then_some(Target { sm, suffix: Suffix::None })
    }

    /// Parses `sm_90`, `sm_90a`, `sm_100f`.
    pub fn parse(name: &str) -> Option<Target> {
        let rest = name.strip_prefix("sm_")?;
        let (digits, suffix) = match rest.as_bytes().last()? {
            b'a' => (&rest[..rest.len() - 1], Suffix::A),
            b'f' => (&rest[..rest.len() - 1], Suffix::F),
            _ => (rest, Suffix::None),
        };
        // As it is printed: no sign, no zeros in front.
        let info = SMS.iter().find(|s| s.sm.to_string() == digits)?;
        let sm = info.sm;
        match suffix {
            Suffix::A if !info.has_a => None,
            Suffix::F if !info.has_f => None,
            _ => Some(Target { sm, suffix }),
        }
    }

    /// The facts of this target's SM.
    pub fn info(self) -> &'static SmInfo {
        SMS.iter().find(|s| s.sm == self.sm).expect("a Target is only made for a known SM")
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::A => "a",
            Suffix::F => "f",
        };
        write!(f, "sm_{}{suffix}", self.sm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["sm_75", "sm_90a", "sm_100f", "sm_121"] {
            assert_eq!(Target::parse(name).unwrap().to_string(), name);
        }
        for name in ["sm_60", "sm_999", "sm_80a", "sm_90f", "90", "sm_"] {
            assert_eq!(Target::parse(name), None, "{name}");
        }
    }
}
