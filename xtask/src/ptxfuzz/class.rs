//! Register classes: what a register may hold, and what must be equal at the end.

use ptx::Type;

/// A class of registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Predicates.
    P,
    /// 16-bit integers.
    H,
    /// 32-bit integers.
    R,
    /// 64-bit integers.
    D,
    /// binary16
    E,
    /// Pairs of binary16.
    E2,
    /// bfloat16
    B,
    /// Pairs of bfloat16.
    B2,
    /// binary32
    F,
    /// Pairs of binary32.
    F2,
    /// binary64
    G,
}

impl Class {
    /// All but predicates.
    pub const VALUES: [Class; 10] = [
        Class::H,
        Class::R,
        Class::D,
        Class::E,
        Class::E2,
        Class::B,
        Class::B2,
        Class::F,
        Class::F2,
        Class::G,
    ];

    /// Of an operand of this type.
    pub fn of(t: Type) -> Option<Class> {
        Some(match t {
            Type::pred => Class::P,
            Type::f16 => Class::E,
            Type::f16x2 => Class::E2,
            Type::bf16 => Class::B,
            Type::bf16x2 => Class::B2,
            Type::f32 | Type::tf32 => Class::F,
            Type::f32x2 => Class::F2,
            Type::f64 => Class::G,
            Type::u8 | Type::s8 | Type::b8 => Class::R,
            _ => match t.bits() {
                16 => Class::H,
                32 => Class::R,
                64 => Class::D,
                _ => return None,
            },
        })
    }

    /// Type of its registers.
    pub fn register(self) -> &'static str {
        match self {
            Class::P => "pred",
            Class::H | Class::E | Class::B => "b16",
            Class::R | Class::E2 | Class::B2 => "b32",
            Class::F => "f32",
            Class::D | Class::F2 => "b64",
            Class::G => "f64",
        }
    }

    /// Prefix of its registers' names.
    pub fn prefix(self) -> &'static str {
        match self {
            Class::P => "p",
            Class::H => "h",
            Class::R => "r",
            Class::D => "d",
            Class::E => "e",
            Class::E2 => "ee",
            Class::B => "b",
            Class::B2 => "bb",
            Class::F => "f",
            Class::F2 => "ff",
            Class::G => "g",
        }
    }

    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Class::P => 1,
            Class::H | Class::E | Class::B => 2,
            Class::R | Class::E2 | Class::B2 | Class::F => 4,
            Class::D | Class::F2 | Class::G => 8,
        }
    }

    /// Types that a load or store of it may have.
    pub fn memory_types(self) -> &'static [&'static str] {
        match self {
            Class::P => &[],
            Class::H => &["b16", "u16", "s16"],
            Class::E | Class::B => &["b16"],
            Class::R => &["b32", "u32", "s32"],
            Class::E2 | Class::B2 => &["b32"],
            Class::F => &["f32", "b32"],
            Class::D => &["b64", "u64", "s64"],
            Class::F2 => &["b64"],
            Class::G => &["f64", "b64"],
        }
    }

    /// Whether its values are floating-point numbers, whose NaNs have no defined payload.
    pub fn is_float(self) -> bool {
        !matches!(self, Class::P | Class::H | Class::R | Class::D)
    }

    /// The halves of a packed class.
    pub fn half(self) -> Class {
        match self {
            Class::E2 => Class::E,
            Class::B2 => Class::B,
            Class::F2 => Class::F,
            c => c,
        }
    }

    /// Whether `bits` (of one element) is a NaN.
    fn is_nan(self, bits: u64) -> bool {
        match self {
            Class::E => bits & 0x7fff > 0x7c00,
            Class::B => bits & 0x7fff > 0x7f80,
            Class::F => bits & 0x7fff_ffff > 0x7f80_0000,
            Class::G => bits & !(1 << 63) > 0x7ff0 << 48,
            _ => false,
        }
    }

    /// Whether two values are the same: the same bits, or NaN both.
    pub fn same(self, a: u64, b: u64) -> bool {
        let half = self.half();
        let width = 8 * half.bytes() as u32;
        let part = u64::MAX >> (64 - width);
        (0..self.bytes() / half.bytes()).all(|i| {
            let at = width * i as u32;
            let (a, b) = (a >> at & part, b >> at & part);
            a == b || half.is_nan(a) && half.is_nan(b)
        })
    }
}
