//! Operand values: the edges of each type and random numbers of every magnitude.

use ptx::{Op, Type};
use sim::launch::Rng;

/// What an operand's values should look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Of this type.
    Of(Type),
    /// A shift.
    Any,
    /// A position or length: below 256.
    Small,
    /// A bit number.
    Index,
    /// Which of the set bits, from either end.
    Count,
}

impl Shape {
    /// Of the n-th source of an instruction.
    pub fn of(op: Op, n: usize, t: Type) -> Shape {
        match (op, n) {
            (Op::shl | Op::shr | Op::vshl | Op::vshr | Op::szext, 1) | (Op::shf, 2) | (Op::bmsk, _) => {
                Shape::Any
            }
            (Op::bfe, 1..) | (Op::bfi, 2..) => Shape::Small,
            (Op::fns, 1) => Shape::Index,
            (Op::fns, 2) => Shape::Count,
            _ => Shape::Of(t),
        }
    }
}

const F16: &[u16] =
    &[0, 1, 0x3ff, 0x400, 0x401, 0x3c00, 0x3bff, 0x3c01, 0x3800, 0x4000, 0x7bff, 0x7c00, 0x7e00, 0x7c01];
const BF16: &[u16] =
    &[0, 1, 0x7f, 0x80, 0x81, 0x3f80, 0x3f7f, 0x3f81, 0x3f00, 0x4000, 0x7f7f, 0x7f80, 0x7fc0, 0x7f81];
const F32: &[u32] = &[
    0,
    1,
    0x7f_ffff,
    0x80_0000,
    0x80_0001,
    0x3f80_0000,
    0x3f7f_ffff,
    0x3f80_0001,
    0x3f00_0000,
    0x4f00_0000,
    0x4eff_ffff,
    0x4f7f_ffff,
    0x5f00_0000,
    0x7e80_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0x477f_e000,
    0x477f_f000,
    0x3880_0000,
    0x3300_0000,
    0x3300_0001,
    0x43e0_0000,
    0x43e8_0000,
    0x4760_0000,
    0x3b80_0000,
    0x4b00_0001,
    0x3fc0_0000,
    0x4020_0000,
];
const F64: &[u64] = &[
    0,
    1,
    0xf_ffff_ffff_ffff,
    0x10_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0x3fef_ffff_ffff_ffff,
    0x3fe0_0000_0000_0000,
    0x41e0_0000_0000_0000,
    0x43e0_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    0x380f_ffff_f000_0000,
    0x3810_0000_0000_0000,
    0x36a0_0000_0000_0000,
    0x47ef_ffff_f000_0000,
    0x40ef_fc00_0000_0000,
    0x3f10_0000_0000_0000,
    0x3ff8_0000_0000_0000,
];

/// Sets of `width` operands.
pub fn values(shapes: &[Shape], count: usize, width: usize) -> Vec<[u32; 4]> {
    let mut rng = Rng::new(7 + shapes.len() as u64);
    let mut out = Vec::with_capacity(count * width);
    for i in 0..count {
        let mut last = 0;
        for k in 0..width {
            let shape = shapes.get(k).copied().unwrap_or(Shape::Of(Type::b64));
            let (low, high) = (rng.next(), rng.next());
            let mut x = one(shape, i, low, &mut rng);
            // Now and then the same operand again.
            if k > 0 && i % 13 == 5 && shape == shapes[0] {
                x = last;
            }
            last = x;
            out.push([x as u32, (x >> 32) as u32, high as u32, (high >> 32) as u32]);
        }
    }
    out
}

fn one(shape: Shape, i: usize, r: u64, rng: &mut Rng) -> u64 {
    let Shape::Of(t) = shape else {
        // What positions above 255 and bases above 31 give is not defined.
        return match r % 8 {
            0 if shape == Shape::Any => r >> 32,
            _ if shape == Shape::Count => (r >> 8 & 63).wrapping_sub(20) & 0xffff_ffff,
            0 if shape == Shape::Index => (r >> 8) % 32,
            0 => (r >> 8) % 256,
            _ if shape == Shape::Index => (r >> 8) % 34,
            1 => [0, 1, 31, 32, 33, 63, 64, 255][(r >> 8) as usize % 8],
            n if n < 5 => (r >> 8) % 32,
            _ => (r >> 8) % 70,
        };
    };
    let garbage = rng.next();
    let sixteen = |edges: &[u16], r: u64, mantissa: u32, bias: u64| -> u64 {
        let sign = r & 0x8000;
        match r >> 16 & 3 {
            0 => u64::from(edges[(r >> 20) as usize % edges.len()]) | sign,
            // Of moderate size.
            1 => ((bias - 4 + (r >> 20) % 8) << mantissa) | r >> 32 & ((1 << mantissa) - 1) | sign,
            _ => r >> 32 & 0xffff,
        }
    };
    let (s, u) = (rng.next(), rng.next());
    let half = |r| sixteen(F16, r, 10, 15);
    let brain = |r| sixteen(BF16, r, 7, 127);
    let single = |r: u64| -> u64 {
        let sign = r & 0x8000_0000;
        match r >> 32 & 7 {
            0..=2 => u64::from(F32[(r >> 36) as usize % F32.len()]) | sign,
            3 => ((112 + (r >> 36) % 32) << 23) | r & 0x7f_ffff | sign,
            4 => ((140 + (r >> 36) % 60) << 23) | r & 0x7f_ffff | sign,
            5 => (123 + (r >> 36) % 10) << 23 | (r & 0x78_0000) | sign,
            _ => r & 0xffff_ffff,
        }
    };
    match t {
        Type::f16 => half(r) | garbage << 16,
        Type::bf16 => brain(r) | garbage << 16,
        Type::f16x2 => half(r) | half(s) << 16 | garbage << 32,
        Type::bf16x2 => brain(r) | brain(s) << 16 | garbage << 32,
        Type::f32 | Type::tf32 => single(r) | garbage << 32,
        Type::f32x2 => single(r) | single(s) << 32,
        Type::f64 => match s & 7 {
            0..=2 => F64[(s >> 8) as usize % F64.len()] | r & 1 << 63,
            3 | 4 => (1008 + (s >> 8) % 40) << 52 | r & 0x800f_ffff_ffff_ffff,
            5 => (1075 + (s >> 8) % 60) << 52 | r & 0x800f_ffff_ffff_ffff,
            6 => (860 + (s >> 8) % 300) << 52 | r & 0x800f_ffff_ffff_ffff,
            _ => r,
        },
        t => {
            let bits = t.bits().min(64);
            let mask = u64::MAX >> (64 - bits);
            let x = match (i + s as usize) % 5 {
                0 => [0, 1, 2, mask, mask - 1, mask >> 1, (mask >> 1) + 1, 100][(u >> 8) as usize % 8],
                1 => r,
                _ => {
                    let m = r >> ((u >> 8) % u64::from(bits.max(8)));
                    if u & 1 != 0 { m.wrapping_neg() } else { m }
                }
            };
            if bits == 64 { x } else { x & mask | garbage << bits }
        }
    }
}
