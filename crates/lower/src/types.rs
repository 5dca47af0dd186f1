//! Scalar types as lowering sees them: kind and width.

/// What the bits mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Untyped bits.
    Bits,
    /// Unsigned integer.
    Unsigned,
    /// Signed integer.
    Signed,
    /// IEEE binary floating point.
    Float,
    /// bfloat16.
    Bf16,
    /// Two binary16 numbers.
    F16x2,
    /// Two bfloat16 numbers.
    Bf16x2,
    /// Two binary32 numbers.
    F32x2,
    /// Two unsigned 16-bit integers.
    U16x2,
    /// Two signed 16-bit integers.
    S16x2,
    /// Four unsigned bytes.
    U8x4,
    /// Four signed bytes.
    S8x4,
    /// Several numbers of a narrow format, or a format that only conversions know.
    Packed,
    /// Predicate.
    Pred,
}

/// A scalar type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ty {
    /// What the bits mean.
    pub kind: Kind,
    /// Width in bits (1 for a predicate).
    pub bits: u8,
}

impl Ty {
    /// `.u32`
    pub const U32: Ty = Ty { kind: Kind::Unsigned, bits: 32 };
    /// `.b32`
    pub const B32: Ty = Ty { kind: Kind::Bits, bits: 32 };

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        self.kind == Kind::Signed
    }
    /// Whether it is an integer or untyped.
    pub fn is_int(self) -> bool {
        matches!(self.kind, Kind::Signed | Kind::Unsigned | Kind::Bits)
    }
    /// Whether it is an IEEE floating-point number.
    pub fn is_float(self) -> bool {
        self.kind == Kind::Float
    }
    /// Whether it is binary16 or bfloat16, or two of them.
    pub fn is_half(self) -> bool {
        match self.kind {
            Kind::Float => self.bits == 16,
            Kind::Bf16 | Kind::F16x2 | Kind::Bf16x2 => true,
            _ => false,
        }
    }
    /// Whether it is bfloat16, or two of them.
    pub fn is_bf16(self) -> bool {
        matches!(self.kind, Kind::Bf16 | Kind::Bf16x2)
    }
    /// Number of registers that hold it.
    pub fn width(self) -> u8 {
        self.bits.div_ceil(32)
    }
}

/// A source operand: up to 32 bits in one register (or immediate or constant), or 64.
#[derive(Clone, Debug)]
pub enum Src {
    /// Up to 32 bits; the upper bits of narrower types are undefined.
    Narrow(ori::Operand),
    /// 64 bits.
    Wide(crate::emit::Pair),
    /// 128 bits.
    Quad(ori::Value),
}

impl Src {
    /// The low 32 bits.
    pub fn low(&self) -> ori::Operand {
        match self {
            Src::Narrow(o) => *o,
            Src::Wide(p) => p.lo,
            Src::Quad(v) => ori::operand(ori::Name::Part(*v, 0)),
        }
    }
    /// As 64 bits; a narrow source is zero-extended from 32.
    pub fn pair(&self) -> crate::emit::Pair {
        match self {
            Src::Narrow(o) => crate::emit::Pair::parts(*o, crate::emit::rz()),
            Src::Wide(p) => p.clone(),
            Src::Quad(v) => crate::emit::Pair::parts(
                ori::operand(ori::Name::Part(*v, 0)),
                ori::operand(ori::Name::Part(*v, 1)),
            ),
        }
    }
}
