//! The approximate binary32 functions: MUFU and the scaling around it that keeps subnormal arguments and
//! results (without `.ftz`) or the range of the divisor (`div.full`) right. The sequences are the ones that
//! ptxas 13.0 emits on every target.

use crate::emit::{Emit, fabs, fimm, pt};
use ori::{Builder, Guard, Operand, Value, operand};
use sass::{Mod, Opcode};

/// 2⁻¹²⁶, the smallest normal number.
const MIN_NORMAL: f32 = f32::MIN_POSITIVE;
/// 2¹²⁶.
const HUGE: f32 = f32::from_bits(253 << 23);
/// 2²⁴.
const SCALE: f32 = 16_777_216.0;

fn mufu(b: &mut Builder<'_>, function: Mod, x: Operand) -> Value {
    b.def(Opcode::MUFU, &[function], &[x])
}

fn fmul(b: &mut Builder<'_>, ftz: bool, x: Operand, y: Operand) -> Value {
    b.def(Opcode::FMUL, if ftz { &[Mod::FTZ] } else { &[] }, &[x, y])
}

/// `x cmp y`.
pub fn fsetp(b: &mut Builder<'_>, cmp: Mod, ftz: bool, x: Operand, y: Operand) -> Value {
    let with_ftz = [cmp, Mod::FTZ, Mod::AND];
    let without = [cmp, Mod::AND];
    b.def_pred(Opcode::FSETP, if ftz { &with_ftz } else { &without }, &[x, y, pt()])
}

/// `p ? x : y`.
pub fn fsel(b: &mut Builder<'_>, p: Operand, x: Operand, y: Operand) -> Value {
    b.def(Opcode::FSEL, &[], &[x, y, p])
}

/// Where `p` is false, `x × factor`; `x` elsewhere.
fn scaled_unless(b: &mut Builder<'_>, p: Value, x: &Operand, factor: f32) -> Value {
    let scaled = fmul(b, false, *x, fimm(factor));
    fsel(b, operand(p), *x, operand(scaled))
}

/// `p` false: `op(x, y)`; `x` elsewhere.
fn unless(b: &mut Builder<'_>, p: Value, op: Opcode, x: Value, y: Operand) -> Value {
    b.def_guarded(Guard { pred: p.into(), not: true }, op, &[], &[operand(x), y], x)
}

fn not_subnormal(b: &mut Builder<'_>, x: &Operand) -> Value {
    fsetp(b, Mod::GEU, false, fabs(*x), fimm(MIN_NORMAL))
}

/// `rcp.approx`.
pub fn rcp(b: &mut Builder<'_>, x: Operand, ftz: bool) -> Value {
    if ftz {
        return mufu(b, Mod::RCP, x);
    }
    let normal = not_subnormal(b, &x);
    let huge = fsetp(b, Mod::GT, false, fabs(x), fimm(HUGE));
    let s = fsel(b, operand(normal), fimm(1.0), fimm(SCALE));
    let s = fsel(b, operand(huge), fimm(0.25), operand(s));
    let scaled = fmul(b, false, operand(s), x);
    let r = mufu(b, Mod::RCP, operand(scaled));
    fmul(b, false, operand(s), operand(r))
}

/// `sqrt.approx`.
pub fn sqrt(b: &mut Builder<'_>, x: Operand, ftz: bool) -> Value {
    if ftz {
        return mufu(b, Mod::SQRT, x);
    }
    let normal = not_subnormal(b, &x);
    let scaled = scaled_unless(b, normal, &x, SCALE);
    let r = mufu(b, Mod::SQRT, operand(scaled));
    unless(b, normal, Opcode::FMUL, r, fimm(1.0 / 4096.0))
}

/// `rsqrt.approx`.
pub fn rsqrt(b: &mut Builder<'_>, x: Operand, ftz: bool) -> Value {
    if ftz {
        return mufu(b, Mod::RSQ, x);
    }
    let normal = not_subnormal(b, &x);
    let scaled = scaled_unless(b, normal, &x, SCALE);
    let r = mufu(b, Mod::RSQ, operand(scaled));
    unless(b, normal, Opcode::FMUL, r, fimm(4096.0))
}

/// `lg2.approx`.
pub fn lg2(b: &mut Builder<'_>, x: Operand, ftz: bool) -> Value {
    if ftz {
        return mufu(b, Mod::LG2, x);
    }
    let normal = not_subnormal(b, &x);
    let scaled = scaled_unless(b, normal, &x, SCALE);
    let r = mufu(b, Mod::LG2, operand(scaled));
    unless(b, normal, Opcode::FADD, r, fimm(-24.0))
}

/// `ex2.approx`.
pub fn ex2(b: &mut Builder<'_>, x: Operand, ftz: bool) -> Value {
    if ftz {
        return mufu(b, Mod::EX2, x);
    }
    let normal = fsetp(b, Mod::GEU, false, x, fimm(-126.0));
    let scaled = scaled_unless(b, normal, &x, 0.5);
    let r = mufu(b, Mod::EX2, operand(scaled));
    unless(b, normal, Opcode::FMUL, r, operand(r))
}

/// `sin.approx` and `cos.approx`: MUFU takes the angle in turns.
pub fn sin_cos(b: &mut Builder<'_>, function: Mod, x: Operand) -> Value {
    let turns = b.def(Opcode::FMUL, &[Mod::RZ], &[x, Operand::Imm(0x3e22_f983)]);
    mufu(b, function, operand(turns))
}

/// `tanh.approx`.
pub fn tanh(b: &mut Builder<'_>, x: Operand) -> Value {
    mufu(b, Mod::TANH, x)
}

/// `div.approx`.
pub fn div(b: &mut Builder<'_>, x: Operand, y: Operand, ftz: bool) -> Value {
    if ftz {
        let r = mufu(b, Mod::RCP, y);
        return fmul(b, true, operand(r), x);
    }
    let normal = not_subnormal(b, &y);
    let y = scaled_unless(b, normal, &y, SCALE);
    let x = scaled_unless(b, normal, &x, SCALE);
    let r = mufu(b, Mod::RCP, operand(y));
    fmul(b, false, operand(r), operand(x))
}

/// `div.full`: as `div.approx`, and right for divisors above 2¹²⁶.
pub fn div_full(b: &mut Builder<'_>, x: Operand, y: Operand, ftz: bool) -> Value {
    let huge = fsetp(b, Mod::GT, ftz, fabs(y), fimm(HUGE));
    let quarter = |b: &mut Builder<'_>, o: &Operand| {
        let q = fmul(b, ftz, *o, fimm(0.25));
        fsel(b, operand(huge), operand(q), *o)
    };
    let (mut d, mut n) = (quarter(b, &y), quarter(b, &x));
    if !ftz {
        let normal = not_subnormal(b, &y);
        d = unless(b, normal, Opcode::FMUL, d, fimm(SCALE));
        n = unless(b, normal, Opcode::FMUL, n, fimm(SCALE));
    }
    let r = mufu(b, Mod::RCP, operand(d));
    fmul(b, ftz, operand(r), operand(n))
}
