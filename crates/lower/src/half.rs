//! binary16 and bfloat16, single and in pairs: HADD2, HMUL2, HFMA2, HMNMX2, HSETP2, HSET2. A single number is in
//! the low half of a register, both halves of a source then read it.

use crate::arith_float::{Flags, MinMax};
use crate::arith_int::Combine;
use crate::emit::{Emit, fneg, imm, rz};
use crate::func::{Lower, Result};
use crate::scalar::min_max;
use crate::statement::Statement;
use crate::types::{Src, Ty};
use ori::{Builder, Operand, Value, operand};
use ptx::{Mod as M, Op as O};
use sass::{Mod, Opcode, RegFile, RegOp};
use smallvec::SmallVec;

type Mods = SmallVec<[Mod; 6]>;

/// Whether two numbers are in the register.
fn packed(ty: Ty) -> bool {
    ty.bits == 32
}

/// A source in a register, as it is. Immediates of these instructions have a form of their own.
fn source(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Operand {
    let o = x.low();
    if o == rz() || matches!(o, Operand::Reg(_)) {
        return o;
    }
    let o = match crate::emit::as_imm(&o) {
        Some(n) if !packed(ty) => imm(n & 0xffff | n << 16),
        _ => o,
    };
    operand(b.copy(o))
}

/// `|x|`, with the sign of a register operand.
fn absolute(o: Operand) -> Operand {
    match o {
        Operand::Reg(r) => Operand::Reg(RegOp { abs: true, neg: false, ..r }),
        o => o,
    }
}

/// The modifiers that choose the low half of each source of a single number.
fn swizzles(m: &mut Mods, ty: Ty, n: usize) {
    if !packed(ty) {
        m.extend([Mod::A_H0_H0, Mod::B_H0_H0, Mod::C_H0_H0].into_iter().take(n));
    }
}

fn modifiers(ty: Ty, f: Flags, relu: bool) -> Mods {
    let mut m = Mods::new();
    m.extend(ty.is_bf16().then_some(Mod::BF16_V2));
    m.extend(f.ftz.then_some(Mod::FTZ));
    m.extend(f.sat.then_some(Mod::SAT));
    m.extend(relu.then_some(Mod::RELU));
    m.extend(f.contract.then_some(Mod::CONTRACT));
    m
}

/// `x + y`.
pub fn add(b: &mut Builder<'_>, ty: Ty, f: Flags, x: Operand, y: Operand) -> Value {
    let mut m = modifiers(ty, f, false);
    swizzles(&mut m, ty, 2);
    b.def(Opcode::HADD2, &m, &[x, y])
}

/// `x × y`.
pub fn mul(b: &mut Builder<'_>, ty: Ty, f: Flags, x: Operand, y: Operand) -> Value {
    let mut m = modifiers(ty, f, false);
    swizzles(&mut m, ty, 2);
    b.def(Opcode::HMUL2, &m, &[x, y])
}

/// `x × y + z`, rounded once.
pub fn fma(b: &mut Builder<'_>, ty: Ty, f: Flags, relu: bool, x: Operand, y: Operand, z: Operand) -> Value {
    let mut m = modifiers(ty, f, relu);
    swizzles(&mut m, ty, 3);
    b.def(Opcode::HFMA2, &m, &[x, y, z])
}

/// The number itself with the source modifiers applied: a sum with −0, which sm_80 to sm_89 have no
/// bfloat16 addition for.
pub fn identity(b: &mut Builder<'_>, ty: Ty, ftz: bool, x: Operand) -> Value {
    let f = Flags { round: crate::convert::Round::Nearest, ftz, sat: false, contract: false };
    if ty.is_bf16() { fma(b, ty, f, false, fneg(rz()), rz(), x) } else { add(b, ty, f, x, fneg(rz())) }
}

/// The comparison, and its results for the low and the high half.
pub fn setp(
    b: &mut Builder<'_>,
    ty: Ty,
    ftz: bool,
    cmp: Mod,
    x: &Src,
    y: &Src,
    combine: &Combine,
) -> (Value, Value) {
    let mut m = comparison(ty, ftz, cmp, combine, false);
    swizzles(&mut m, ty, 2);
    let (x, y) = (source(b, ty, x), source(b, ty, y));
    let low = b.func.add_value(RegFile::P, 1);
    let high = b.func.add_value(RegFile::P, 1);
    b.inst(Opcode::HSETP2, &m, &[operand(low), operand(high), x, y, combine.with]);
    (low, high)
}

fn comparison(ty: Ty, ftz: bool, cmp: Mod, combine: &Combine, one: bool) -> Mods {
    let mut m = Mods::new();
    m.extend(ty.is_bf16().then_some(Mod::BF16_V2));
    m.extend(one.then_some(Mod::BF));
    m.push(cmp);
    m.extend(ftz.then_some(Mod::FTZ));
    m.push(combine.op);
    m
}

/// The number 1 of type `ty` (`one`), or all ones, in each half where the comparison holds, else 0; all ones for a single
/// number in the whole register.
pub fn set(
    b: &mut Builder<'_>,
    ty: Ty,
    ftz: bool,
    cmp: Mod,
    (x, y): (&Src, &Src),
    combine: &Combine,
    one: bool,
) -> Value {
    let mut m = comparison(ty, ftz, cmp, combine, one);
    swizzles(&mut m, ty, 2);
    let (x, y) = (source(b, ty, x), source(b, ty, y));
    let r = b.def(Opcode::HSET2, &m, &[x, y, combine.with]);
    if one || packed(ty) { r } else { b.prmt(operand(r), imm(0x9910), rz()) }
}

/// `min` and `max`.
fn extremum(b: &mut Builder<'_>, ty: Ty, f: MinMax, x: Operand, y: Operand) -> Value {
    let mut m = Mods::new();
    m.extend(ty.is_bf16().then_some(Mod::BF16_V2));
    m.extend(f.mods());
    swizzles(&mut m, ty, 2);
    let (x, y) = if f.abs { (absolute(x), absolute(y)) } else { (x, y) };
    b.def(Opcode::HMNMX2, &m, &[x, y, f.which()])
}

/// `tanh` and `ex2`, one number at a time.
fn special(b: &mut Builder<'_>, ty: Ty, function: Mod, x: Operand) -> Value {
    let format = if ty.is_bf16() { Mod::BF16 } else { Mod::F16 };
    let low = b.def(Opcode::MUFU, &[function, format], std::slice::from_ref(&x));
    if !packed(ty) {
        return low;
    }
    let high = b.shr(false, x, imm(16));
    let high = b.def(Opcode::MUFU, &[function, format], &[operand(high)]);
    b.prmt(operand(low), imm(0x5410), operand(high))
}

impl Lower<'_, '_> {
    /// Arithmetic of these types.
    pub(crate) fn half(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
        let f = self.flags(inst);
        let mut x: SmallVec<[Operand; 3]> = SmallVec::new();
        for n in 1..inst.operands.len() {
            let s = self.arg(inst, n, t)?;
            x.push(source(&mut self.b, t, &s));
        }
        let b = &mut self.b;
        Ok(match (inst.op, &x[..]) {
            (O::add, [x, y]) => add(b, t, f, *x, *y),
            (O::sub, [x, y]) => add(b, t, f, *x, fneg(*y)),
            (O::mul, [x, y]) => mul(b, t, f, *x, *y),
            (O::fma, [x, y, z]) if inst.has(ptx::Mod::oob) => {
                let mut m = modifiers(t, f, false);
                m.push(Mod::OOB);
                m.extend(inst.has(M::relu).then_some(Mod::RELU));
                swizzles(&mut m, t, 3);
                b.def(Opcode::HFMA2, &m, &[*x, *y, *z])
            }
            (O::fma, [x, y, z]) => fma(b, t, f, inst.has(M::relu), *x, *y, *z),
            (O::neg, [x]) => identity(b, t, f.ftz, fneg(*x)),
            (O::abs, [x]) => identity(b, t, f.ftz, absolute(*x)),
            (O::min | O::max, [x, y]) => extremum(b, t, min_max(inst), *x, *y),
            (O::min | O::max, [x, y, z]) => {
                let r = extremum(b, t, min_max(inst), *x, *y);
                extremum(b, t, min_max(inst), operand(r), *z)
            }
            (O::tanh, [x]) => special(b, t, Mod::TANH, *x),
            (O::ex2, [x]) => special(b, t, Mod::EX2, *x),
            _ => return self.unsupported(inst),
        })
    }
}
