//! `cvt`, and the extensions that give a narrow register defined upper bits.

use crate::convert_half::saturated_double;
use crate::emit::{Emit, Pair, as_imm, fimm, pt, rz};
use crate::types::{Kind, Src, Ty};
use ori::{Builder, Guard, Operand, Value, operand};
use sass::{Mod, Opcode, RegFile};
use smallvec::SmallVec;

/// Rounding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// To nearest even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Down.
    Minus,
    /// Up.
    Plus,
}

/// What a conversion is asked to do besides changing the type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversion {
    /// Destination type.
    pub to: Ty,
    /// Source type.
    pub from: Ty,
    /// Rounding of the result.
    pub round: Round,
    /// `.rni` and its like: the result is a whole number.
    pub integral: bool,
    /// `.ftz`
    pub ftz: bool,
    /// `.sat`
    pub sat: bool,
}

type Mods = SmallVec<[Mod; 6]>;

/// The value with its upper bits up to 32 set according to its type. Immediates must already be.
pub fn extend32(b: &mut Builder<'_>, o: &Operand, ty: Ty) -> Operand {
    if let Some(n) = as_imm(o) {
        let shift = 32 - u32::from(ty.bits.min(32));
        let n = if ty.is_signed() { ((n << shift) as i32 >> shift) as u32 } else { n << shift >> shift };
        return crate::emit::imm(n);
    }
    match (ty.bits, ty.is_signed()) {
        (8, false) => operand(b.and(*o, Operand::Imm(0xff))),
        (8, true) => operand(b.prmt(*o, Operand::Imm(0x8880), rz())),
        (16, false) => operand(b.and(*o, Operand::Imm(0xffff))),
        (16, true) => operand(b.prmt(*o, Operand::Imm(0x9910), rz())),
        _ => *o,
    }
}

/// As [`extend32`], to 64 bits.
pub fn extend64(b: &mut Builder<'_>, src: &Src, ty: Ty) -> Pair {
    if ty.bits == 64 {
        return src.pair();
    }
    let lo = extend32(b, &src.low(), ty);
    let hi = match (ty.is_signed(), as_imm(&lo)) {
        (false, _) => rz(),
        (true, Some(n)) => crate::emit::imm(((n as i32) >> 31) as u32),
        (true, None) => operand(b.shr(true, lo, Operand::Imm(31))),
    };
    Pair::parts(lo, hi)
}

/// The smaller or larger of two 32-bit integers.
pub fn minmax(b: &mut Builder<'_>, max: bool, signed: bool, x: Operand, y: Operand) -> Value {
    let op = if b.func.target.info().vimnmx { Opcode::VIMNMX } else { Opcode::IMNMX };
    let which = if max { crate::emit::never() } else { pt() };
    let mods: &[Mod] = match (signed, b.func.target.sm) {
        (false, _) => &[Mod::U32],
        (true, 120..) => &[Mod::S32],
        (true, _) => &[],
    };
    b.def(op, mods, &[x, y, which])
}

/// The smaller or larger of two 64-bit integers.
pub fn minmax64(b: &mut Builder<'_>, max: bool, signed: bool, x: &Pair, y: &Pair) -> Value {
    let p = b.isetp64(if max { Mod::GT } else { Mod::LT }, signed, x, y);
    b.sel64(operand(p), x, y)
}

/// Smallest and largest value of an integer type of up to 64 bits.
fn range(ty: Ty) -> (i128, i128) {
    if ty.is_signed() {
        (-(1i128 << (ty.bits - 1)), (1i128 << (ty.bits - 1)) - 1)
    } else {
        (0, (1i128 << ty.bits) - 1)
    }
}

/// The result of a conversion: the value of the destination type, its bits above that type undefined
/// (64-bit types: in a pair). `None` if this combination is not known.
pub fn convert(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Option<Value> {
    match (c.from.is_int(), c.to.is_int()) {
        (true, true) => Some(int_to_int(b, c, src)),
        (true, false) => int_to_float(b, c, src),
        (false, true) => float_to_int(b, c, src),
        (false, false) => float_to_float(b, c, src),
    }
}

fn int_to_int(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Value {
    let (to, from) = (c.to, c.from);
    let (to_range, from_range) = (range(to), range(from));
    let clamp_low = c.sat && from_range.0 < to_range.0;
    let clamp_high = c.sat && from_range.1 > to_range.1;
    if clamp_low || clamp_high {
        if from.bits == 64 {
            let mut v = src.pair();
            if clamp_low {
                v = Pair::of(minmax64(b, true, from.is_signed(), &v, &Pair::imm(to_range.0 as u64)));
            }
            if clamp_high {
                v = Pair::of(minmax64(b, false, from.is_signed(), &v, &Pair::imm(to_range.1 as u64)));
            }
            return if to.bits == 64 { b.pair(&v) } else { b.reg(&v.lo) };
        }
        let mut v = extend32(b, &src.low(), from);
        if clamp_low {
            v = operand(minmax(b, true, from.is_signed(), v, crate::emit::imm(to_range.0 as u32)));
        }
        if clamp_high {
            v = operand(minmax(b, false, from.is_signed(), v, crate::emit::imm(to_range.1 as u32)));
        }
        return if to.bits == 64 { b.collect(&[v, rz()]) } else { b.reg(&v) };
    }
    if to.bits == 64 {
        let p = extend64(b, src, from);
        return b.pair(&p);
    }
    let low = src.low();
    let v = if from.bits < to.bits { extend32(b, &low, from) } else { low };
    b.reg(&v)
}

impl Round {
    /// The modifier of an arithmetic instruction or conversion; none for nearest.
    pub fn sass(self) -> Option<Mod> {
        match self {
            Round::Nearest => None,
            Round::Zero => Some(Mod::RZ),
            Round::Minus => Some(Mod::RM),
            Round::Plus => Some(Mod::RP),
        }
    }
}

/// The modifier of a rounding to a whole number.
pub fn integral_mod(r: Round) -> Option<Mod> {
    match r {
        Round::Nearest => None,
        Round::Zero => Some(Mod::TRUNC),
        Round::Minus => Some(Mod::FLOOR),
        Round::Plus => Some(Mod::CEIL),
    }
}

/// The modifier of an integer type; none for `.s32`.
pub fn int_mod(ty: Ty) -> Option<Mod> {
    Some(match (ty.bits, ty.is_signed()) {
        (8, false) => Mod::U8,
        (8, true) => Mod::S8,
        (16, false) => Mod::U16,
        (16, true) => Mod::S16,
        (32, false) => Mod::U32,
        (64, false) => Mod::U64,
        (64, true) => Mod::S64,
        _ => return None,
    })
}

fn saturate(b: &mut Builder<'_>, sat: bool, v: Value) -> Value {
    if sat { b.def(Opcode::FADD, &[Mod::SAT], &[rz(), operand(v)]) } else { v }
}

fn int_to_float(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Option<Value> {
    let to = c.to;
    if !to.is_float() || !matches!(to.bits, 32 | 64) {
        return None;
    }
    let mut mods = Mods::new();
    // From sm_86 on, a fixed-latency conversion of 32-bit integers to binary32.
    let signed_narrow = c.from.is_signed() && c.from.bits < 32;
    if to.bits == 32
        && c.from.bits <= 32
        && b.func.target.sm >= 86
        && !signed_narrow
        && matches!(c.round, Round::Nearest | Round::Zero)
    {
        let v = extend32(b, &src.low(), c.from);
        mods.extend([Mod::F32, if c.from.is_signed() { Mod::S32 } else { Mod::U32 }]);
        mods.extend(c.round.sass());
        let r = b.def(Opcode::I2FP, &mods, &[v]);
        return Some(saturate(b, c.sat, r));
    }
    if to.bits == 64 {
        mods.push(Mod::F64);
    }
    mods.extend(int_mod(c.from));
    mods.extend(c.round.sass());
    let source = if c.from.bits == 64 { operand(b.pair(&src.pair())) } else { src.low() };
    // An immediate or constant narrower than 32 bits is not told apart by I2F's byte selectors.
    let source = if c.from.bits < 32 { operand(b.reg(&source)) } else { source };
    let r = b.def(Opcode::I2F, &mods, &[source]);
    Some(if to.bits == 64 && c.sat { saturated_double(b, r) } else { saturate(b, c.sat, r) })
}

fn float_to_int(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Option<Value> {
    let from = c.from;
    if !from.is_float() || !matches!(from.bits, 32 | 64) {
        return None;
    }
    let mut mods = Mods::new();
    let mut flush = c.ftz && from.bits == 32;
    let mut source = if from.bits == 64 { double(b, src) } else { src.low() };
    if flush && c.to.bits == 64 {
        // ptxas never has F2I.FTZ of 64 bits. Down or up, a subnormal number would become -1 or 1; else it becomes 0 anyway.
        if matches!(c.round, Round::Minus | Round::Plus) {
            source = operand(b.def(Opcode::FMUL, &[Mod::FTZ], &[source, fimm(1.0)]));
        }
        flush = false;
    }
    if flush {
        mods.push(Mod::FTZ);
    }
    mods.extend(int_mod(c.to));
    if from.bits == 64 {
        mods.push(Mod::F64);
    }
    mods.extend(integral_mod(c.round));
    if from.bits == 32 && c.to.bits <= 32 {
        mods.push(Mod::NTZ);
    }
    Some(b.def(Opcode::F2I, &mods, &[source]))
}

/// A binary64 source operand: a pair, or the upper half as an immediate if the lower one is 0.
pub fn double(b: &mut Builder<'_>, src: &Src) -> Operand {
    let p = src.pair();
    match (as_imm(&p.lo), as_imm(&p.hi)) {
        (Some(0), Some(0)) => rz(),
        (Some(0), Some(hi)) => Operand::Imm(hi),
        _ => operand(b.pair(&p)),
    }
}

fn float_to_float(b: &mut Builder<'_>, c: &Conversion, src: &Src) -> Option<Value> {
    if c.from.kind != Kind::Float || c.to.kind != Kind::Float {
        return None;
    }
    match (c.to.bits, c.from.bits) {
        (32, 32) => {
            let x = src.low();
            if c.integral {
                let mut mods = Mods::new();
                if c.ftz {
                    mods.push(Mod::FTZ);
                }
                mods.extend(integral_mod(c.round));
                let r = b.def(Opcode::FRND, &mods, &[x]);
                return Some(saturate(b, c.sat, r));
            }
            let mut mods = Mods::new();
            if c.ftz {
                mods.push(Mod::FTZ);
            }
            Some(if c.sat {
                mods.push(Mod::SAT);
                b.def(Opcode::FADD, &mods, &[rz(), x])
            } else if c.ftz {
                b.def(Opcode::FADD, &mods, &[x, crate::emit::fneg(rz())])
            } else {
                b.reg(&x)
            })
        }
        (64, 64) => {
            let x = double(b, src);
            let r = if c.integral {
                let mut mods = Mods::new();
                mods.push(Mod::F64);
                mods.extend(integral_mod(c.round));
                b.def(Opcode::FRND, &mods, &[x])
            } else {
                b.pair(&src.pair())
            };
            Some(if c.sat { saturated_double(b, r) } else { r })
        }
        (64, 32) => {
            let mut x = src.low();
            if c.ftz {
                x = operand(b.def(Opcode::FMUL, &[Mod::FTZ], &[x, fimm(1.0)]));
            }
            let r = b.def(Opcode::F2F, &[Mod::F64, Mod::F32], &[x]);
            Some(if c.sat { saturated_double(b, r) } else { r })
        }
        (32, 64) => {
            let mut mods = Mods::new();
            mods.extend([Mod::F32, Mod::F64]);
            mods.extend(c.round.sass());
            let x = double(b, src);
            let mut r = b.def(Opcode::F2F, &mods, std::slice::from_ref(&x));
            if c.ftz {
                let x = b.pair(&src.pair());
                r = crate::math::flush_rounded(b, x, r, c.round);
            }
            Some(saturate(b, c.sat, r))
        }
        _ => None,
    }
}

/// `min` and `max` of binary64: a NaN loses against a number.
pub fn minmax_f64(b: &mut Builder<'_>, max: bool, x: &Src, y: &Src) -> Value {
    let (x, y) = (b.pair(&x.pair()), b.pair(&y.pair()));
    let first = b.func.add_value(RegFile::P, 1);
    let nan = b.func.add_value(RegFile::P, 1);
    let which = if max { Mod::MAX } else { Mod::MIN };
    b.inst(Opcode::DSETP, &[which, Mod::AND], &[operand(first), operand(nan), operand(x), operand(y), pt()]);
    let (x, y) = (Pair::of(x), Pair::of(y));
    let lo = b.sel(operand(first), x.lo, y.lo);
    let hi = crate::approx::fsel(b, operand(first), x.hi, y.hi);
    let quiet = [y.hi, Operand::Imm(0x8_0000), rz(), Operand::Imm(0xfc), crate::emit::never()];
    let hi = b.def_guarded(Guard { pred: nan.into(), not: false }, Opcode::LOP3, &[Mod::LUT], &quiet, hi);
    b.collect(&[operand(lo), operand(hi)])
}
