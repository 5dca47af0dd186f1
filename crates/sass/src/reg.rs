//! Register files and physical registers.

use std::fmt;

/// A register file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RegFile {
    /// 32-bit general registers, one per lane: R0 … R254, RZ.
    R,
    /// 1-bit predicates, one per lane: P0 … P6, PT.
    P,
    /// 32-bit uniform registers, one per warp: UR0 …, URZ.
    UR,
    /// 1-bit uniform predicates: UP0 … UP6, UPT.
    UP,
    /// Convergence barrier registers B0 … B15.
    B,
}

/// A physical register. The zero/true register of each file is [`Reg::ZERO`] on every target; the encoder
/// maps it to the target's number (URZ is 63 before sm_100 and 255 from sm_100 on).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reg {
    /// The file.
    pub file: RegFile,
    /// The number, or [`Reg::ZERO`].
    pub index: u8,
}

impl Reg {
    /// Index of RZ, URZ, PT and UPT in this representation.
    pub const ZERO: u8 = 255;
    /// RZ: reads as 0, writes are dropped.
    pub const RZ: Reg = Reg { file: RegFile::R, index: Reg::ZERO };
    /// URZ.
    pub const URZ: Reg = Reg { file: RegFile::UR, index: Reg::ZERO };
    /// PT: reads as true, writes are dropped.
    pub const PT: Reg = Reg { file: RegFile::P, index: Reg::ZERO };
    /// UPT.
    pub const UPT: Reg = Reg { file: RegFile::UP, index: Reg::ZERO };
    /// R1, the stack pointer.
    pub const SP: Reg = Reg { file: RegFile::R, index: 1 };

    /// What the index of the first register of a tuple of `width` is a multiple of at least: the next power of two up to 8
    /// registers, four for the longer tuples of tensor memory (ptxas 13.0.88: `LDTM.x64 R36`). [`crate::Opcode::tuple_alignment`] says what instructions want.
    pub const fn tuple_alignment(width: u8) -> u8 {
        if width > 8 { 4 } else { width.next_power_of_two() }
    }

    /// General register `Rn`.
    pub const fn r(index: u8) -> Reg {
        Reg { file: RegFile::R, index }
    }
    /// Predicate `Pn`.
    pub const fn p(index: u8) -> Reg {
        Reg { file: RegFile::P, index }
    }
    /// Uniform register `URn`.
    pub const fn ur(index: u8) -> Reg {
        Reg { file: RegFile::UR, index }
    }
    /// Whether this is RZ, URZ, PT or UPT.
    pub const fn is_zero(self) -> bool {
        self.index == Reg::ZERO
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, zero) = match self.file {
            RegFile::R => ("R", "RZ"),
            RegFile::P => ("P", "PT"),
            RegFile::UR => ("UR", "URZ"),
            RegFile::UP => ("UP", "UPT"),
            RegFile::B => ("B", "B?"),
        };
        if self.is_zero() { f.write_str(zero) } else { write!(f, "{name}{}", self.index) }
    }
}
