//! Floating-point instructions: one value from up to three. `+ − × fma ÷ √` are exact in every rounding mode;
//! approximate functions are evaluated in binary64 and rounded, so that a launch needs a tolerance for them.

use super::decode::Code;
use crate::fp::{self, BF16, F16, F32, F64, Format, Round};
use ::ptx::{Mod, Op, Type};

/// The format of a type, or of the halves of a packed one.
pub(super) fn format(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::f16 | Type::f16x2 => F16,
        Type::bf16 | Type::bf16x2 => BF16,
        Type::f32 | Type::f32x2 | Type::tf32 => F32,
        Type::f64 => F64,
        _ => return None,
    })
}

fn sign(f: Format) -> u64 {
    1 << (f.bits() - 1)
}

/// The NaN that operations other than arithmetic on binary64 give.
pub(super) fn canonical(f: Format) -> u64 {
    if f == F64 { 0x7ff8_0000_0000_0000 } else { sign(f) - 1 }
}

/// The value of a floating-point instruction.
pub(super) fn eval(code: &Code<'_>, x: &[u64]) -> Option<u64> {
    let f = format(code.ty)?;
    if code.ty.bits() == f.bits() {
        return one(code, f, x);
    }
    let width = f.bits();
    let lanes = code.ty.bits() / width;
    let mut out = 0;
    for i in 0..lanes {
        let parts: Vec<u64> = x.iter().map(|v| v >> (i * width) & (u64::MAX >> (64 - width))).collect();
        out |= one(code, f, &parts)? << (i * width);
    }
    Some(out)
}

/// One lane.
fn one(code: &Code<'_>, f: Format, x: &[u64]) -> Option<u64> {
    let (inst, rm) = (code.inst, code.rm);
    let flush = |b: u64| if code.ftz { f.flush(b) } else { b };
    let x: smallvec::SmallVec<[u64; 4]> = x.iter().map(|b| flush(*b)).collect();
    let exact = |r: u64| {
        let r = if code.sat { f.saturate(r) } else { r };
        if inst.has(Mod::relu) { relu(r, f) } else { r }
    };
    if inst.has(Mod::approx) || inst.has(Mod::full) {
        return approximate(code, f, &x).map(|r| flush(super::approx::nudged(code, f, &x, r)));
    }
    // Arithmetic gives the canonical NaN; binary64 passes on the operand's, quieted.
    let quiet = |b: u64| match () {
        () if !f.is_nan(b) => b,
        () if f == F64 => b | 1 << 51,
        () => canonical(f),
    };
    let minus = |b: u64| b ^ sign(f);
    let result = f.flushing(code.ftz);
    let one = fp::from_int(1, f, Round::Nearest);
    let made = match inst.op {
        Op::add => exact(add(x[0], x[1], result, rm)),
        Op::sub => exact(add(x[0], minus(x[1]), result, rm)),
        Op::mul => exact(super::approx::nudged(code, f, &x, mul(x[0], x[1], result, rm))),
        Op::fma | Op::mad => exact(fma(x[0], x[1], x[2], result, rm)),
        Op::div => exact(fp::div(x[0], x[1], result, rm)),
        Op::rcp => exact(fp::div(one, x[0], result, rm)),
        Op::sqrt => exact(fp::sqrt(x[0], result, rm)),
        Op::abs => quiet(x[0] & !sign(f)),
        Op::neg => quiet(x[0] ^ sign(f)),
        Op::copysign => x[0] & sign(f) | x[1] & !sign(f),
        Op::min | Op::max if x.len() == 2 => extremum(code, f, x[0], x[1]),
        Op::min | Op::max => {
            let first = extremum(code, f, x[0], x[1]);
            extremum(code, f, first, x[2])
        }
        _ => return None,
    };
    Some(super::approx::other_nan(code, f, &x, made))
}

/// The operation on binary32, if that is the format.
fn single(f: Format, rm: Round) -> Option<fp::Single> {
    let ftz = [false, true].into_iter().find(|ftz| f == F32.flushing(*ftz))?;
    Some(fp::Single { rm, ftz, sat: false })
}

fn add(a: u64, b: u64, f: Format, rm: Round) -> u64 {
    match single(f, rm) {
        Some(op) => op.add(a as u32, b as u32).into(),
        None if f == F64 => fp::dadd(a, b, rm),
        None => fp::add(a, b, f, rm),
    }
}

fn mul(a: u64, b: u64, f: Format, rm: Round) -> u64 {
    match single(f, rm) {
        Some(op) => op.mul(a as u32, b as u32).into(),
        None if f == F64 => fp::dmul(a, b, rm),
        None => fp::mul(a, b, f, rm),
    }
}

fn fma(a: u64, b: u64, c: u64, f: Format, rm: Round) -> u64 {
    match single(f, rm) {
        Some(op) => op.fma(a as u32, b as u32, c as u32).into(),
        None if f == F64 => fp::dfma(a, b, c, rm),
        None => fp::fma(a, b, c, f, rm),
    }
}

/// Negative numbers become +0; NaN the canonical one.
pub(super) fn relu(r: u64, f: Format) -> u64 {
    match () {
        () if f.is_nan(r) => canonical(f),
        () if r & sign(f) != 0 => 0,
        () => r,
    }
}

/// Total order of numbers, −0 below +0.
fn order(b: u64, f: Format) -> i128 {
    let magnitude = i128::from(b & !sign(f));
    if b & sign(f) != 0 { -magnitude - 1 } else { magnitude }
}

fn extremum(code: &Code<'_>, f: Format, a: u64, b: u64) -> u64 {
    let xorsign = code.inst.has(Mod::xorsign);
    let s = if xorsign { (a ^ b) & sign(f) } else { 0 };
    let (a, b) = if code.inst.has(Mod::abs) { (a & !sign(f), b & !sign(f)) } else { (a, b) };
    let (na, nb) = (f.is_nan(a), f.is_nan(b));
    if na && nb && f == F64 {
        // The second one, quieted.
        return b | 1 << 51;
    }
    if na && nb || (na || nb) && code.inst.has(Mod::NaN) {
        return canonical(f);
    }
    let first = match code.inst.op {
        _ if na || nb => nb,
        Op::min => order(a, f) <= order(b, f),
        _ => order(a, f) >= order(b, f),
    };
    (if first { a } else { b }) | s
}

/// An approximate function, correctly rounded from binary64.
fn approximate(code: &Code<'_>, f: Format, x: &[u64]) -> Option<u64> {
    let wide = |b: u64| f64::from_bits(fp::convert(b, f, F64, Round::Nearest));
    // The binary64 approximations see the upper word only; bfloat16 ones have no subnormal numbers.
    let a = match f {
        F64 if code.ftz => f64::from_bits(f.flush(x[0] & !0xffff_ffff)),
        BF16 => wide(f.flush(x[0])),
        _ => wide(x[0]),
    };
    // Sine and cosine take the angle in turns, rounded to binary32.
    let turn = || {
        let turns = fp::Single { rm: Round::Zero, ..Default::default() }.mul(x[0] as u32, 0x3e22_f983);
        let turns = f32::from_bits(F32.flush(turns.into()) as u32);
        // The remainder keeps the sign of a zero.
        f64::from(turns) % 1.0 * std::f64::consts::TAU
    };
    let r = match code.inst.op {
        // The reciprocal of a divisor beyond 2^126 is below the least normal number, and counts as zero.
        Op::div if code.inst.has(Mod::approx) && wide(x[1]).abs() > 2f64.powi(126) => {
            a * 0f64.copysign(wide(x[1]))
        }
        Op::div => a / wide(x[1]),
        Op::rcp => 1.0 / a,
        Op::sqrt => a.sqrt(),
        Op::rsqrt => 1.0 / a.sqrt(),
        Op::sin => turn().sin(),
        Op::cos => turn().cos(),
        Op::lg2 => a.log2(),
        Op::ex2 => a.exp2(),
        Op::tanh => a.tanh(),
        _ => return None,
    };
    if r.is_nan() {
        return Some(canonical(f));
    }
    let r = fp::convert(r.to_bits(), F64, f, Round::Nearest);
    let r = if f == BF16 { f.flush(r) } else { r };
    // The binary64 approximations leave the low word zero.
    Some(if f == F64 && code.ftz { r & !0xffff_ffff } else { r })
}

/// A comparison of `setp` and `set`.
pub(super) fn compare(cmp: Mod, ty: Type, a: u64, b: u64, ftz: bool) -> Option<bool> {
    let Some(f) = format(ty) else {
        // `lo`, `ls`, `hi`, `hs` are the unsigned spellings.
        let (a, b) = (super::int::value(a, ty), super::int::value(b, ty));
        return Some(match cmp {
            Mod::eq => a == b,
            Mod::ne => a != b,
            Mod::lt | Mod::lo => a < b,
            Mod::le | Mod::ls => a <= b,
            Mod::gt | Mod::hi => a > b,
            Mod::ge | Mod::hs => a >= b,
            _ => return None,
        });
    };
    let (a, b) = if ftz { (f.flush(a), f.flush(b)) } else { (a, b) };
    let nan = f.is_nan(a) || f.is_nan(b);
    // Both zeros compare equal.
    let key = |x: u64| if x & !sign(f) == 0 { 0 } else { order(x, f) };
    let o = key(a).cmp(&key(b));
    Some(match cmp {
        Mod::eq => !nan && o.is_eq(),
        Mod::ne => !nan && o.is_ne(),
        Mod::lt => !nan && o.is_lt(),
        Mod::le => !nan && o.is_le(),
        Mod::gt => !nan && o.is_gt(),
        Mod::ge => !nan && o.is_ge(),
        Mod::equ => nan || o.is_eq(),
        Mod::neu => nan || o.is_ne(),
        Mod::ltu => nan || o.is_lt(),
        Mod::leu => nan || o.is_le(),
        Mod::gtu => nan || o.is_gt(),
        Mod::geu => nan || o.is_ge(),
        Mod::num => !nan,
        Mod::nan => nan,
        _ => return None,
    })
}

/// `testp`.
pub(super) fn test(what: Mod, ty: Type, a: u64) -> Option<bool> {
    let f = format(ty)?;
    let magnitude = a & !sign(f);
    let infinity = fp::convert(f64::INFINITY.to_bits(), F64, f, Round::Nearest);
    Some(match what {
        Mod::finite => magnitude < infinity,
        Mod::infinite => magnitude == infinity,
        Mod::number => magnitude <= infinity,
        Mod::notanumber => magnitude > infinity,
        Mod::subnormal => f.is_subnormal(a),
        // Zeros are normal.
        Mod::normal => magnitude < infinity && !f.is_subnormal(a),
        _ => return None,
    })
}
