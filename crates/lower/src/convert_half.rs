//! Conversions from and to binary16, bfloat16, tf32 and the formats of eight bits and fewer.

use crate::convert::{Conversion, Round, double, int_mod, integral_mod};
use crate::emit::{Emit, Pair, fabs, fimm, fneg, imm, never, pt, rz};
use crate::types::{Kind, Src, Ty};
use ori::{Builder, Guard, Name, Operand, Value, operand};
use ptx::Type;
use sass::{Mod, Opcode};
use smallvec::SmallVec;

type Mods = SmallVec<[Mod; 6]>;

/// Modifiers of a conversion to a narrow format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Narrowing {
    /// `.relu`
    pub relu: bool,
    /// `.satfinite`
    pub satfinite: bool,
}

fn format(bf16: bool) -> Mod {
    if bf16 { Mod::BF16 } else { Mod::F16 }
}

/// F2FP's modifiers for a conversion from binary32 into halves.
fn pack_mods(b: &Builder<'_>, n: Narrowing, to: Mod, round: Round) -> Mods {
    let mut m = Mods::new();
    m.extend(n.satfinite.then_some(Mod::SATFINITE));
    m.extend(n.relu.then_some(Mod::RELU));
    if b.func.target.sm >= 89 {
        m.extend([to, Mod::F32]);
    } else if to == Mod::BF16 {
        m.push(to);
    }
    m.push(Mod::PACK_AB);
    m.extend(round.sass());
    m
}

/// Two binary32 numbers in the halves of a register, `x` in the upper one.
pub fn pack_halves(
    b: &mut Builder<'_>,
    bf16: bool,
    n: Narrowing,
    round: Round,
    x: Operand,
    y: Operand,
) -> Value {
    let m = pack_mods(b, n, format(bf16), round);
    let x = operand(b.reg(&x));
    b.def(Opcode::F2FP, &m, &[x, y])
}

/// `.rs`: the random bits decide the rounding.
pub fn pack_stochastic(
    b: &mut Builder<'_>,
    bf16: bool,
    n: Narrowing,
    x: Operand,
    y: Operand,
    bits: Operand,
) -> Value {
    let mut m = pack_mods(b, n, format(bf16), Round::Nearest);
    m.push(Mod::RS);
    let (x, bits) = (operand(b.reg(&x)), operand(b.reg(&bits)));
    b.def(Opcode::F2FP, &m, &[x, y, bits])
}

/// The name of a small format.
fn small(t: Type) -> Option<Mod> {
    Some(match t.name() {
        "e4m3x2" | "e4m3x4" => Mod::E4M3,
        "e5m2x2" | "e5m2x4" => Mod::E5M2,
        "e2m1x2" | "e2m1x4" => Mod::E2M1,
        "e2m3x2" | "e2m3x4" => Mod::E2M3,
        "e3m2x2" | "e3m2x4" => Mod::E3M2,
        "ue8m0x2" => Mod::E8,
        _ => return None,
    })
}

/// Two numbers of a small format from binary32, `x` in the upper one, or from a pair of halves (`y` absent).
pub fn to_small(
    b: &mut Builder<'_>,
    to: Type,
    from: Type,
    n: Narrowing,
    round: Round,
    x: Operand,
    y: Option<Operand>,
) -> Option<Value> {
    let mut m = Mods::new();
    m.extend(n.satfinite.then_some(Mod::SATFINITE));
    m.extend(n.relu.then_some(Mod::RELU));
    m.push(small(to)?);
    Some(match y {
        Some(y) => {
            m.extend([Mod::F32, Mod::PACK_AB_MERGE_C]);
            m.extend(round.sass());
            let x = operand(b.reg(&x));
            b.def(Opcode::F2FP, &m, &[x, y, rz()])
        }
        None => {
            m.extend([format(from == Type::bf16x2), Mod::UNPACK_B_MERGE_C]);
            m.extend(round.sass());
            let x = operand(b.reg(&x));
            b.def(Opcode::F2FP, &m, &[rz(), x, rz()])
        }
    })
}

/// Four numbers of a small format from binary32, the first in the uppermost bits; random bits decide the rounding.
pub fn to_small_stochastic(
    b: &mut Builder<'_>,
    to: Type,
    n: Narrowing,
    x: &[Operand],
    bits: Operand,
) -> Option<Value> {
    let mut m = Mods::new();
    m.extend(n.satfinite.then_some(Mod::SATFINITE));
    m.extend(n.relu.then_some(Mod::RELU));
    m.extend([small(to)?, Mod::F32, Mod::PACK_AB_MERGE_C, Mod::RS]);
    let mut last = operand(b.reg(&bits));
    for pair in x.chunks(2) {
        let (upper, lower) = (b.reg(&pair[0]), b.reg(&pair[1]));
        last = operand(b.def(Opcode::F2FP, &m, &[operand(upper), operand(lower), last]));
    }
    last.as_reg()?.reg.value()
}

/// A pair of halves from two numbers of a small format.
pub fn from_small(b: &mut Builder<'_>, to: Type, from: Type, n: Narrowing, x: Operand) -> Option<Value> {
    let mut m = Mods::new();
    m.extend(n.relu.then_some(Mod::RELU));
    m.extend([format(to == Type::bf16x2), small(from)?, Mod::UNPACK_B]);
    let x = operand(b.reg(&x));
    Some(b.def(Opcode::F2FP, &m, &[rz(), x]))
}

/// tf32 from binary32. `away`: ties away from zero, which adding half a unit does.
pub fn to_tf32(b: &mut Builder<'_>, n: Narrowing, round: Round, away: bool, x: Operand) -> Value {
    if !away {
        let mut m = Mods::new();
        m.extend(n.satfinite.then_some(Mod::SATFINITE));
        m.extend(n.relu.then_some(Mod::RELU));
        m.extend([Mod::TF32, Mod::F32, Mod::PACK_B]);
        m.extend(round.sass());
        return b.def(Opcode::F2FP, &m, &[rz(), x]);
    }
    let not_finite = |b: &mut Builder<'_>, x: Operand| {
        b.def_pred(Opcode::FSETP, &[Mod::GEU, Mod::AND], &[fabs(x), fimm(f32::INFINITY), pt()])
    };
    let x = b.reg(&x);
    let special = not_finite(b, operand(x));
    // In the register of x itself, as ptxas does.
    let finite = Guard { pred: Name::Val(special), not: true };
    let r = b.def_guarded(finite, Opcode::IADD3, &[], &[operand(x), imm(0x1000), rz(), never(), never()], x);
    let r = b.and(operand(r), Operand::Imm(0xffff_e000));
    if !n.satfinite {
        return r;
    }
    let special = not_finite(b, operand(r));
    let down = b.iadd(operand(r), Operand::Imm(0xffff_e000));
    b.sel(operand(special), operand(down), operand(r))
}

/// `cvt.pack`: two integers saturated to a narrow type and put together, above the low bits of `c`.
pub fn pack_integers(b: &mut Builder<'_>, to: Type, x: Operand, y: Operand, c: Operand) -> Option<Value> {
    let (kind, shift) = match to {
        Type::u16 => (Mod::U16, None),
        Type::s16 => (Mod::S16, None),
        Type::u8 => (Mod::U8, None),
        Type::s8 => (Mod::S8, None),
        Type::u4 => (Mod::U4, Some(Mod::C_24)),
        Type::s4 => (Mod::S4, Some(Mod::C_24)),
        Type::u2 => (Mod::U2, Some(Mod::C_28)),
        Type::s2 => (Mod::S2, Some(Mod::C_28)),
        _ => return None,
    };
    let mut m = Mods::new();
    m.extend([kind, Mod::S32, Mod::SAT]);
    m.extend(shift);
    let (x, c) = (operand(b.reg(&x)), if c == rz() { c } else { operand(b.reg(&c)) });
    Some(b.def(Opcode::I2IP, &m, &[x, y, c]))
}

/// A scalar conversion from or to binary16 or bfloat16; `None` if this combination is not known.
pub fn convert_half(b: &mut Builder<'_>, c: &Conversion, n: Narrowing, src: &Src) -> Option<Value> {
    let (to, from) = (c.to, c.from);
    let r = match (to.is_half(), from.is_half()) {
        (true, false) if from.is_int() => int_to_half(b, c, src),
        (false, true) if to.is_int() => return half_to_int(b, c, src),
        (true, true) => half_to_half(b, c, src),
        (true, false) => float_to_half(b, c, n, src)?,
        (false, true) => return half_to_float(b, c, src),
        _ => return None,
    };
    Some(if c.sat { saturated_half(b, r) } else { r })
}

/// binary16 in [0, 1].
fn saturated_half(b: &mut Builder<'_>, x: Value) -> Value {
    b.def(Opcode::HADD2, &[Mod::SAT, Mod::A_H0_H0, Mod::B_H0_H0], &[operand(x), fneg(rz())])
}

/// A source of a conversion whose format is narrower than a register: no immediates.
fn narrow_source(b: &mut Builder<'_>, src: &Src) -> Operand {
    operand(b.reg(&src.low()))
}

fn int_to_half(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Value {
    let mut m = Mods::new();
    m.push(format(c.to.is_bf16()));
    m.extend(int_mod(c.from));
    m.extend(c.round.sass());
    let x = match c.from.bits {
        64 => operand(b.pair(&src.pair())),
        32 => src.low(),
        _ => narrow_source(b, src),
    };
    b.def(Opcode::I2F, &m, &[x])
}

fn half_to_int(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Option<Value> {
    let mut m = Mods::new();
    m.extend(int_mod(c.to));
    m.push(format(c.from.is_bf16()));
    m.extend(integral_mod(c.round));
    m.extend((c.to.bits <= 32).then_some(Mod::NTZ));
    let x = narrow_source(b, src);
    Some(b.def(Opcode::F2I, &m, &[x]))
}

fn half_to_half(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Value {
    let x = narrow_source(b, src);
    let mut m = Mods::new();
    let (to, from) = (format(c.to.is_bf16()), format(c.from.is_bf16()));
    if to != from {
        m.extend([to, from]);
        m.extend(c.round.sass());
        return b.def(Opcode::F2F, &m, &[x]);
    }
    if c.integral {
        m.push(to);
        m.extend(integral_mod(c.round));
        return b.def(Opcode::FRND, &m, &[x]);
    }
    crate::half::identity(b, c.to, false, x)
}

fn float_to_half(b: &mut Builder<'_>, c: &Conversion, n: Narrowing, src: &Src) -> Option<Value> {
    let to = format(c.to.is_bf16());
    let mut m = Mods::new();
    if c.from.bits == 64 {
        m.extend([to, Mod::F64]);
        m.extend(c.round.sass());
        let x = double(b, src);
        return Some(b.def(Opcode::F2F, &m, &[x]));
    }
    // F2FP does not flush numbers that bfloat16 has too.
    let flushes = c.ftz && c.to.is_bf16();
    let packs = matches!(c.round, Round::Nearest | Round::Zero) && b.func.target.sm >= 80 && !flushes;
    if packs {
        let m = pack_mods(b, n, to, c.round);
        return Some(b.def(Opcode::F2FP, &m, &[rz(), src.low()]));
    }
    if n.relu || n.satfinite && to != Mod::F16 {
        return None;
    }
    m.extend(flushes.then_some(Mod::FTZ));
    m.extend([to, Mod::F32]);
    m.extend(c.round.sass());
    let half = b.def(Opcode::F2F, &m, &[src.low()]);
    if !n.satfinite {
        return Some(half);
    }
    // The largest number is just below infinity. (ptxas 13.0 does not convert at all here.)
    let magnitude = b.and(operand(half), imm(0x7fff));
    let infinite = b.isetp(Mod::EQ, false, operand(magnitude), imm(0x7c00));
    let below = b.iadd(operand(half), imm(u32::MAX));
    Some(b.sel(operand(infinite), operand(below), operand(half)))
}

/// A half as binary32: exact.
pub fn widen(b: &mut Builder<'_>, from: Ty, src: &Src) -> Value {
    let x = narrow_source(b, src);
    if from.is_bf16() {
        b.shl(x, imm(16))
    } else {
        b.def(Opcode::HADD2, &[Mod::F32, Mod::B_H0_H0], &[fneg(rz()), x])
    }
}

fn half_to_float(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Option<Value> {
    let x = narrow_source(b, src);
    let from = format(c.from.is_bf16());
    if c.to.bits == 64 {
        let r = b.def(Opcode::F2F, &[Mod::F64, from], &[x]);
        return Some(if c.sat { saturated_double(b, r) } else { r });
    }
    let r = match (from, c.ftz) {
        (Mod::BF16, true) => b.def(Opcode::F2F, &[Mod::FTZ, Mod::F32, Mod::BF16], &[x]),
        _ => widen(b, c.from, src),
    };
    Some(if c.sat { b.def(Opcode::FADD, &[Mod::SAT], &[rz(), operand(r)]) } else { r })
}

/// binary64 in [0, 1]; NaN gives 0.
pub fn saturated_double(b: &mut Builder<'_>, x: Value) -> Value {
    let t = Ty { kind: Kind::Float, bits: 64 };
    debug_assert_eq!(b.func.values[x].width, t.width());
    let x = Src::Wide(Pair::of(x));
    let low = crate::convert::minmax_f64(b, true, &Src::Wide(Pair::imm(0)), &x);
    let one = Src::Wide(Pair::imm(1f64.to_bits()));
    crate::convert::minmax_f64(b, false, &Src::Wide(Pair::of(low)), &one)
}
