//! Floating-point arithmetic, comparison and selection in binary32 and binary64.

use crate::approx;
use crate::arith_int::Combine;
use crate::convert::{Round, double, minmax_f64};
use crate::emit::{Emit, Pair, fabs, fneg, imm, never, pt, rz};
use crate::math;
use crate::types::{Src, Ty};
use ori::{Builder, Operand, Value, operand};
use sass::{Mod, Opcode};
use smallvec::SmallVec;

/// Modifiers of an arithmetic instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags {
    /// Rounding.
    pub round: Round,
    /// `.ftz`
    pub ftz: bool,
    /// `.sat`
    pub sat: bool,
    /// A product or sum that may be contracted.
    pub contract: bool,
}

impl Flags {
    fn mods(self) -> SmallVec<[Mod; 4]> {
        let mut m = SmallVec::new();
        if self.ftz {
            m.push(Mod::FTZ);
        }
        m.extend(self.round.sass());
        if self.sat {
            m.push(Mod::SAT);
        }
        m.extend(self.contract.then_some(Mod::CONTRACT));
        m
    }
}

fn source(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Operand {
    if ty.bits == 64 { double(b, x) } else { x.low() }
}

/// `a + b`, `a - b`.
pub fn add(b: &mut Builder<'_>, ty: Ty, f: Flags, subtract: bool, x: &Src, y: &Src) -> Value {
    let (x, y) = (source(b, ty, x), source(b, ty, y));
    let y = if subtract { fneg(y) } else { y };
    b.def(if ty.bits == 64 { Opcode::DADD } else { Opcode::FADD }, &f.mods(), &[x, y])
}

/// `a × b`.
pub fn mul(b: &mut Builder<'_>, ty: Ty, f: Flags, x: &Src, y: &Src) -> Value {
    let (x, y) = (source(b, ty, x), source(b, ty, y));
    b.def(if ty.bits == 64 { Opcode::DMUL } else { Opcode::FMUL }, &f.mods(), &[x, y])
}

/// `a × b + c`, rounded once.
pub fn fma(b: &mut Builder<'_>, ty: Ty, f: Flags, x: &Src, y: &Src, z: &Src) -> Value {
    let (x, y, z) = (source(b, ty, x), source(b, ty, y), source(b, ty, z));
    b.def(if ty.bits == 64 { Opcode::DFMA } else { Opcode::FFMA }, &f.mods(), &[x, y, z])
}

/// Arithmetic on two binary32 numbers at once (sm_100, sm_103): `a + b`, `a - b`, `a × b`, `a × b + c`. Constants become immediates in `fold`.
pub fn pairs(b: &mut Builder<'_>, op: Opcode, f: Flags, subtract: bool, sources: &[Pair]) -> Value {
    let mut mods = f.mods();
    let mut operands: SmallVec<[Operand; 3]> = SmallVec::new();
    for (nth, p) in sources.iter().enumerate() {
        mods.extend([sass::ops::PAIRS[nth], Mod::HI_LO]);
        let o = operand(b.pair(p));
        operands.push(if subtract && nth == 1 { fneg(o) } else { o });
    }
    b.def(op, &mods, &operands)
}

/// `-a` and `|a|`.
pub fn sign(b: &mut Builder<'_>, ty: Ty, ftz: bool, absolute: bool, x: &Src) -> Value {
    let x = source(b, ty, x);
    let x = if absolute { fabs(x) } else { fneg(x) };
    if ty.bits == 64 {
        b.def(Opcode::DADD, &[], &[fneg(rz()), x])
    } else {
        b.def(Opcode::FADD, if ftz { &[Mod::FTZ] } else { &[] }, &[x, fneg(rz())])
    }
}

/// Modifiers of `min` and `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MinMax {
    /// The larger.
    pub max: bool,
    /// `.ftz`
    pub ftz: bool,
    /// A NaN operand makes the result NaN.
    pub nan: bool,
    /// Of the absolute values.
    pub abs: bool,
    /// With the product of the signs.
    pub xorsign: bool,
}

impl MinMax {
    /// In SASS's spelling order.
    pub fn mods(self) -> SmallVec<[Mod; 4]> {
        let mut m = SmallVec::new();
        m.extend(self.ftz.then_some(Mod::FTZ));
        m.extend(self.nan.then_some(Mod::NAN));
        m.extend(self.xorsign.then_some(Mod::XORSIGN));
        m
    }
    /// The predicate that chooses.
    pub fn which(self) -> Operand {
        if self.max { never() } else { pt() }
    }
}

/// `min` and `max` of two or three numbers.
pub fn min_max(b: &mut Builder<'_>, ty: Ty, f: MinMax, x: &Src, y: &Src, z: Option<&Src>) -> Value {
    if ty.bits == 64 {
        return minmax_f64(b, f.max, x, y);
    }
    let source = |b: &mut Builder<'_>, s: &Src| match s.low() {
        // An immediate has no bars, and XORSIGN needs its sign.
        o @ Operand::Imm(0x8000_0000..) if f.xorsign => fabs(operand(b.copy(o))),
        o if f.abs => fabs(o),
        o => o,
    };
    let (x, y) = (source(b, x), source(b, y));
    let r = b.def(Opcode::FMNMX, &f.mods(), &[x, y, f.which()]);
    match z {
        Some(z) => {
            let z = source(b, z);
            b.def(Opcode::FMNMX, &f.mods(), &[operand(r), z, f.which()])
        }
        None => r,
    }
}

/// `(x cmp y) op with`.
pub fn setp(b: &mut Builder<'_>, ty: Ty, ftz: bool, cmp: Mod, x: &Src, y: &Src, combine: &Combine) -> Value {
    let mut m: SmallVec<[Mod; 3]> = SmallVec::new();
    m.push(cmp);
    let wide = ty.bits == 64;
    if ftz && !wide {
        m.push(Mod::FTZ);
    }
    m.push(combine.op);
    let (x, y) = (source(b, ty, x), source(b, ty, y));
    b.def_pred(if wide { Opcode::DSETP } else { Opcode::FSETP }, &m, &[x, y, combine.with])
}

/// `copysign`: the sign of `x` on `y`.
pub fn copysign(b: &mut Builder<'_>, ty: Ty, x: &Src, y: &Src) -> Value {
    // LOP3 over sign = 0xf0, mask = 0xcc, magnitude = 0xaa: mask ? sign : magnitude.
    const LUT: u8 = 0xe2;
    let mask = Operand::Imm(0x8000_0000);
    if ty.bits == 64 {
        let (x, y) = (x.pair(), y.pair());
        let hi = b.lop3(x.hi, mask, y.hi, LUT);
        b.collect(&[y.lo, operand(hi)])
    } else {
        b.lop3(x.low(), mask, y.low(), LUT)
    }
}

/// The classes that `testp` knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Neither NaN nor infinite.
    Finite,
    /// ±∞
    Infinite,
    /// Not NaN.
    Number,
    /// NaN.
    NotANumber,
    /// Neither subnormal, infinite nor NaN; zeros count.
    Normal,
    /// Subnormal (and not zero).
    Subnormal,
}

/// `testp`.
pub fn testp(b: &mut Builder<'_>, ty: Ty, class: Class, x: &Src) -> Value {
    // On the bits without the sign: `low` (64-bit only) and `high`.
    let (low, high) = if ty.bits == 64 {
        let p = x.pair();
        (Some(p.lo), p.hi)
    } else {
        (None, x.low())
    };
    let high = operand(b.and(high, Operand::Imm(0x7fff_ffff)));
    let (infinity, min_normal): (u32, u32) =
        if ty.bits == 64 { (0x7ff0_0000, 0x0010_0000) } else { (0x7f80_0000, 0x0080_0000) };
    let pair = |b: &mut Builder<'_>, cmp: Mod, n: u32| match &low {
        Some(lo) => {
            let x = crate::emit::Pair::parts(*lo, high);
            b.isetp64(cmp, false, &x, &crate::emit::Pair::imm(u64::from(n) << 32))
        }
        None => b.isetp(cmp, false, high, imm(n)),
    };
    match class {
        Class::Finite => b.isetp(Mod::LT, false, high, imm(infinity)),
        Class::Infinite => pair(b, Mod::EQ, infinity),
        Class::Number => pair(b, Mod::LE, infinity),
        Class::NotANumber => pair(b, Mod::GT, infinity),
        Class::Normal => {
            let shifted = b.iadd(high, imm(min_normal.wrapping_neg()));
            let normal = b.isetp(Mod::LT, false, operand(shifted), imm(infinity - min_normal));
            let zero = pair(b, Mod::EQ, 0);
            b.plop(operand(normal), operand(zero), 0xf0 | 0xcc)
        }
        Class::Subnormal => {
            let small = b.isetp(Mod::LT, false, high, imm(min_normal));
            let zero = pair(b, Mod::EQ, 0);
            b.plop(operand(small), operand(zero), 0xf0 & !0xcc)
        }
    }
}

/// `div` with a rounding.
pub fn div(b: &mut Builder<'_>, ty: Ty, f: Flags, x: &Src, y: &Src) -> Value {
    if ty.bits == 64 {
        let (x, y) = (b.pair(&x.pair()), b.pair(&y.pair()));
        math::div_f64(b, x, y, f.round)
    } else {
        let (x, y) = (b.reg(&x.low()), b.reg(&y.low()));
        math::div_f32(b, x, y, math::Mode { round: f.round, ftz: f.ftz })
    }
}

/// `rcp` with a rounding.
pub fn rcp(b: &mut Builder<'_>, ty: Ty, f: Flags, x: &Src) -> Value {
    if ty.bits == 64 {
        let x = b.pair(&x.pair());
        math::rcp_f64(b, x, f.round)
    } else {
        let x = b.reg(&x.low());
        math::rcp_f32(b, x, math::Mode { round: f.round, ftz: f.ftz })
    }
}

/// `sqrt` with a rounding.
pub fn sqrt(b: &mut Builder<'_>, ty: Ty, f: Flags, x: &Src) -> Value {
    if ty.bits == 64 {
        let x = b.pair(&x.pair());
        math::sqrt_f64(b, x, f.round)
    } else {
        let x = b.reg(&x.low());
        math::sqrt_f32(b, x, math::Mode { round: f.round, ftz: f.ftz })
    }
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: from and to the upper halves.
pub fn approx64(b: &mut Builder<'_>, function: Mod, x: &Src) -> Value {
    let hi = b.def(Opcode::MUFU, &[function], &[x.pair().hi]);
    b.collect(&[rz(), operand(hi)])
}

/// `slct` on a float condition.
pub fn not_negative(b: &mut Builder<'_>, ftz: bool, x: Operand) -> Value {
    approx::fsetp(b, Mod::GE, ftz, x, rz())
}

/// `rsqrt.approx.f64`, subnormal arguments included.
pub fn rsqrt64(b: &mut Builder<'_>, x: &Src) -> Value {
    let x = b.pair(&x.pair());
    math::rsqrt_f64(b, x)
}
