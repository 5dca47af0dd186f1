//! What the time model knows of each generation. Rates are those of the CUDA programming guide's table of arithmetic
//! throughput. Latencies of memory are measurements that were published: Turing by Jia et al. (arXiv 1903.07486),
//! A100, RTX 4090 and H100 by Luo et al. (arXiv 2402.13499, whose sm_90 figures stand for later data-centre parts and
//! whose sm_89 figures for later others). Other latencies of variable length are rounded from the same papers.

use sass::{Class, Inst, Opcode, Unit, latency};

/// An SM. Times are in cycles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Most resident warps.
    pub warps: u32,
    /// Most resident blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory that blocks can have together.
    pub shared: u32,
    /// Between two warp instructions of a scheduler on the binary32 pipe.
    pub fp32: u64,
    /// On the binary16 pipe.
    pub half: u64,
    /// On the integer pipe, and for integer products.
    pub int: u64,
    /// Between two binary64 warp instructions of the whole SM.
    pub fp64: u64,
    /// From issue to the result of a binary64 instruction of unknown duration.
    pub fp64_latency: u64,
    /// From a load to its data, out of L1.
    pub l1: u64,
    /// Out of DRAM, for the first touch of a line.
    pub dram: u64,
    /// Out of L2: atomic operations.
    pub l2: u64,
    /// Out of shared memory.
    pub shared_latency: u64,
}

impl Machine {
    /// The SM of a target.
    pub fn of(sm: u8) -> Machine {
        let turing = Machine {
            warps: 32,
            blocks: 16,
            registers: 65536,
            shared: 64 << 10,
            fp32: 2,
            half: 2,
            int: 2,
            fp64: 16,
            fp64_latency: 48,
            l1: 32,
            dram: 296,
            l2: 188,
            shared_latency: 19,
        };
        let ampere = Machine {
            warps: 64,
            blocks: 32,
            shared: 164 << 10,
            fp64: 1,
            fp64_latency: 8,
            l1: 38,
            l2: 262,
            dram: 466,
            shared_latency: 29,
            half: 1,
            ..turing
        };
        let hopper = Machine { fp32: 1, shared: 228 << 10, l1: 41, l2: 263, dram: 479, ..ampere };
        let ada = Machine {
            warps: 48,
            blocks: 24,
            shared: 100 << 10,
            fp32: 1,
            half: 1,
            l1: 43,
            l2: 273,
            dram: 542,
            shared_latency: 30,
            ..turing
        };
        match sm {
            ..80 => turing,
            80 => ampere,
            // Ampere's smaller parts have fewer blocks.
            81..89 => Machine { blocks: 16, ..ada },
            89 => ada,
            90 | 100 => hopper,
            103 | 110 => Machine { fp64: 16, fp64_latency: 48, ..hopper },
            _ => Machine { int: 1, ..ada },
        }
    }

    /// Cycles for which a unit takes nothing else, and whether it belongs to the whole SM.
    pub(super) fn occupies(&self, inst: &Inst) -> (u64, bool) {
        match inst.op.unit() {
            Unit::Fma => (self.fp32, false),
            Unit::Half => (self.half, false),
            // Pairs of registers are two rounds of a pipe that has as many lanes as a warp.
            Unit::Alu if takes_pairs(inst) => (2 * self.int, false),
            Unit::Alu | Unit::Imad => (self.int, false),
            Unit::Fp64 => (self.fp64, true),
            // 16 results per cycle and SM.
            Unit::Xu => (8, false),
            // One address per lane, 32 lanes per cycle and SM.
            Unit::Load | Unit::Store => (1, true),
            _ => (1, false),
        }
    }

    /// From issue to the result of an instruction of unknown duration that does not reach global memory.
    pub(super) fn latency(&self, op: Opcode) -> u64 {
        match op.unit() {
            Unit::Fp64 => self.fp64_latency,
            Unit::Xu => 18,
            Unit::Tensor | Unit::TensorInt | Unit::TensorFp64 | Unit::Movm => 33,
            Unit::Load | Unit::Store if op.name().starts_with("SHFL") => self.shared_latency - 5,
            Unit::Load | Unit::Store => self.shared_latency,
            _ => 20,
        }
    }
}

/// Whether an instruction computes numbers of 64 bits at once.
fn takes_pairs(inst: &Inst) -> bool {
    matches!(latency::class(inst), Class::Pairs | Class::PairMoves | Class::PairCompare)
}

/// What counts up where the model of a target changes, so that figures that were kept can be told from new ones.
pub fn version(sm: u8) -> u32 {
    match sm {
        90..104 | 120.. => 1,
        _ => 0,
    }
}
