//! Floating-point instructions on numbers that are known, where the result is exact or rounded to nearest. NaNs are left to
//! the hardware, and under FTZ whatever may be flushed or not.

use super::{Known, New, copy_of, is_truth};
use half::{bf16, f16};
use ori::{Function, InstData, Macro, Name, Op, Operand};
use sass::compute;
use sass::ops::{
    Dadd, Dfma, Dmul, Dsetp, DsetpMods, F2f, F2fFormat, F2fMods, F2fp, F2i, Fadd, Ffma, Fmul, Fsetp,
    FsetpMods, Hadd2, I2f, I2fp, I2fpMods, I2fpResult, I2fpSource, PAIRS,
};
use sass::{Mod, Mods, Opcode, Reg, RegOp};

/// The sign of a binary32 number.
const SIGN: u32 = 1 << 31;

/// Whether the instruction has no modifiers but these.
fn only(d: &InstData, allowed: &[Mod]) -> bool {
    d.mods.0.iter().all(|m| allowed.contains(m))
}

/// A register of a number.
fn word(to: &Operand, n: u32) -> Option<New> {
    copy_of(to, Operand::Imm(n))
}

/// A binary32 result.
fn single(d: &InstData, to: &Operand, x: f32) -> Option<New> {
    // At the border of the subnormal numbers rounding and flushing could come in either order.
    let flushed = d.mods.has(Mod::FTZ) && x != 0.0 && x.abs() <= f32::MIN_POSITIVE;
    if x.is_nan() || flushed { None } else { word(to, x.to_bits()) }
}

/// A binary64 result.
fn double(to: &Operand, x: f64) -> Option<New> {
    if x.is_nan() {
        return None;
    }
    let halves = [x.to_bits() as u32, (x.to_bits() >> 32) as u32].map(Operand::Imm);
    Some((Op::Macro(Macro::Collect), Mods::none(), [*to].into_iter().chain(halves).collect()))
}

impl Known {
    /// Arithmetic on pairs where both numbers of one are the same known one, with that as an immediate.
    pub(super) fn one_for_both(&self, func: &Function, d: &InstData) -> Option<New> {
        let known = |o: &Operand| {
            let Operand::Reg(RegOp { reg: Name::Val(v), neg, abs, not: false, .. }) = o else { return None };
            let (_, [low, high]) = func.insts[self.tuple[*v]?].collected()? else { return None };
            let n = self.number(func, low).filter(|n| self.number(func, high) == Some(*n))?;
            let n = if *abs { n & !SIGN } else { n };
            // Zero is a register.
            Some(if *neg { n ^ SIGN } else { n }).filter(|n| *n != 0)
        };
        let mut operands = d.operands.clone();
        if operands.iter().any(|o| matches!(o, Operand::Imm(_))) {
            return None;
        }
        // An immediate stands in any place but the first.
        if known(&operands[1]).is_some() {
            operands.swap(1, 2);
        }
        let (nth, n) = (2..operands.len()).find_map(|nth| Some((nth, known(&operands[nth])?)))?;
        operands[nth] = Operand::Imm(n);
        let mut mods = d.mods.clone();
        let at = mods.0.iter().position(|m| *m == PAIRS[nth - 1])?;
        if mods.0.get(at + 1) != Some(&Mod::HI_LO) {
            return None;
        }
        mods.0.drain(at..at + 2);
        Some((d.op, mods, operands))
    }

    /// What a floating-point instruction on known numbers can be instead.
    pub(super) fn folded_float(&self, func: &Function, op: Opcode, d: &InstData) -> Option<New> {
        let f = |o: &Operand| self.f32(func, d, o);
        let d64 = |o: &Operand| self.f64(func, o);
        match op {
            Opcode::FADD if only(d, &[Mod::FTZ, Mod::CONTRACT]) => {
                let s = Fadd::of(d)?;
                single(d, s.d, f(s.a)? + f(s.b)?)
            }
            Opcode::FMUL if only(d, &[Mod::FTZ, Mod::CONTRACT]) => {
                let s = Fmul::of(d)?;
                single(d, s.d, f(s.a)? * f(s.b)?)
            }
            Opcode::FFMA if only(d, &[Mod::FTZ, Mod::CONTRACT]) => {
                let s = Ffma::of(d)?;
                single(d, s.d, f(s.a)?.mul_add(f(s.b)?, f(s.c)?))
            }
            Opcode::DADD if only(d, &[Mod::CONTRACT]) => {
                let s = Dadd::of(d)?;
                double(s.d, d64(s.a)? + d64(s.b)?)
            }
            Opcode::DMUL if only(d, &[Mod::CONTRACT]) => {
                let s = Dmul::of(d)?;
                double(s.d, d64(s.a)? * d64(s.b)?)
            }
            Opcode::DFMA if only(d, &[Mod::CONTRACT]) => {
                let s = Dfma::of(d)?;
                double(s.d, d64(s.a)?.mul_add(d64(s.b)?, d64(s.c)?))
            }
            Opcode::FSETP => {
                let s = Fsetp::of(d).filter(|s| is_truth(s.q, true))?;
                let FsetpMods { cmp, join, .. } = FsetpMods::of(d)?;
                let held = compute::fcmp(cmp.modifier(), f(s.a)?.partial_cmp(&f(s.b)?))?;
                self.joined(s.p, s.join, held, join)
            }
            Opcode::DSETP => {
                let s = Dsetp::of(d).filter(|s| is_truth(s.q, true))?;
                let DsetpMods { cmp, join } = DsetpMods::of(d)?;
                let held = compute::fcmp(cmp.modifier(), d64(s.a)?.partial_cmp(&d64(s.b)?))?;
                self.joined(s.p, s.join, held, join)
            }
            Opcode::F2FP if d.mods.has(Mod::PACK_AB) => {
                let s = F2fp::of(d)?;
                let [high, low] = [f(s.a)?, f(s.b)?];
                let halves = match () {
                    () if only(d, &[Mod::F16, Mod::F32, Mod::PACK_AB]) => [high, low].map(|x| {
                        let x = f16::from_f32(x);
                        (x.to_bits(), x.is_nan())
                    }),
                    () if only(d, &[Mod::BF16, Mod::F32, Mod::PACK_AB]) => [high, low].map(|x| {
                        let x = bf16::from_f32(x);
                        (x.to_bits(), x.is_nan())
                    }),
                    () => return None,
                };
                let [(high, no), (low, nor)] = halves;
                if no || nor { None } else { word(s.d, u32::from(high) << 16 | u32::from(low)) }
            }
            // -0 and one half of a register: the number itself.
            Opcode::HADD2 if d.mods.has(Mod::F32) => {
                let s = Hadd2::of(d).filter(|s| is_minus_zero(s.a))?;
                let shift = match () {
                    () if only(d, &[Mod::F32, Mod::B_H0_H0]) && d.mods.has(Mod::B_H0_H0) => 0,
                    () if only(d, &[Mod::F32, Mod::B_H1_H1]) && d.mods.has(Mod::B_H1_H1) => 16,
                    () => return None,
                };
                let (bits, negative, absolute) = self.bits(func, s.b)?;
                let x = f16::from_bits((bits >> shift) as u16).to_f32();
                let x = if absolute { x.abs() } else { x };
                single(d, s.d, if negative { -x } else { x })
            }
            Opcode::F2F => {
                let s = F2f::of(d)?;
                let F2fMods { ftz: false, to, from, rounding: None, half: None } = F2fMods::of(d)? else {
                    return None;
                };
                match (to, from) {
                    (F2fFormat::F64, F2fFormat::F32) => double(s.d, f(s.a)?.into()),
                    (F2fFormat::F32, F2fFormat::F64) => single(d, s.d, d64(s.a)? as f32),
                    (F2fFormat::F16, F2fFormat::F32) => {
                        let x = f16::from_f32(f(s.a)?);
                        if x.is_nan() { None } else { word(s.d, x.to_bits().into()) }
                    }
                    _ => None,
                }
            }
            Opcode::F2I if only(d, &[Mod::U32, Mod::TRUNC, Mod::NTZ, Mod::FTZ]) && d.mods.has(Mod::TRUNC) => {
                let s = F2i::of(d)?;
                let x = f64::from(f(s.a)?.trunc());
                if d.mods.has(Mod::U32) {
                    (0.0..=f64::from(u32::MAX)).contains(&x).then(|| word(s.d, x as u32))?
                } else {
                    (f64::from(i32::MIN)..=f64::from(i32::MAX))
                        .contains(&x)
                        .then(|| word(s.d, x as i32 as u32))?
                }
            }
            Opcode::I2FP => {
                let s = I2fp::of(d)?;
                match I2fpMods::of(d)? {
                    I2fpMods { to: I2fpResult::F32, from: I2fpSource::S32, rounding: None } => {
                        single(d, s.d, self.number(func, s.a)? as i32 as f32)
                    }
                    I2fpMods { to: I2fpResult::F32, from: I2fpSource::U32, rounding: None } => {
                        single(d, s.d, self.number(func, s.a)? as f32)
                    }
                    _ => None,
                }
            }
            Opcode::I2F => {
                let s = I2f::of(d)?;
                let n = self.number(func, s.a)?;
                let unsigned = d.mods.has(Mod::U32);
                match () {
                    () if only(d, &[Mod::U32]) && unsigned => single(d, s.d, n as f32),
                    () if only(d, &[Mod::U32]) => single(d, s.d, n as i32 as f32),
                    () if only(d, &[Mod::F64, Mod::U32]) && unsigned => double(s.d, f64::from(n)),
                    () if only(d, &[Mod::F64]) => double(s.d, f64::from(n as i32)),
                    () => None,
                }
            }
            _ => None,
        }
    }

    /// What the registers of a source hold, and whether it is to be negated, and taken without its sign before.
    fn bits(&self, func: &Function, o: &Operand) -> Option<(u32, bool, bool)> {
        match o {
            Operand::Reg(r) if !r.not => {
                let plain = Operand::Reg(RegOp { neg: false, abs: false, ..*r });
                Some((self.number(func, &plain)?, r.neg, r.abs))
            }
            Operand::Imm(n) => Some((*n, false, false)),
            _ => None,
        }
    }

    /// A binary32 source, flushed if the instruction does so. No NaN.
    fn f32(&self, func: &Function, d: &InstData, o: &Operand) -> Option<f32> {
        let (bits, negative, absolute) = self.bits(func, o)?;
        let x = f32::from_bits(bits);
        let x = if d.mods.has(Mod::FTZ) && x.is_subnormal() { 0f32.copysign(x) } else { x };
        let x = if absolute { x.abs() } else { x };
        (!x.is_nan()).then_some(if negative { -x } else { x })
    }

    /// A binary64 source. No NaN.
    fn f64(&self, func: &Function, o: &Operand) -> Option<f64> {
        let (x, negative, absolute) = match o {
            // An immediate is the upper word.
            Operand::Imm(n) => (f64::from_bits(u64::from(*n) << 32), false, false),
            Operand::Reg(r) if !r.not => {
                let halves = match r.reg {
                    Name::Phys(Reg::RZ) => [0, 0],
                    Name::Val(v) if func.values[v].width == 2 => {
                        let half = |k| self.number(func, &Operand::reg(Name::Part(v, k)));
                        [half(0)?, half(1)?]
                    }
                    _ => return None,
                };
                (f64::from_bits(u64::from(halves[1]) << 32 | u64::from(halves[0])), r.neg, r.abs)
            }
            _ => return None,
        };
        let x = if absolute { x.abs() } else { x };
        (!x.is_nan()).then_some(if negative { -x } else { x })
    }
}

/// -RZ: minus zero.
fn is_minus_zero(o: &Operand) -> bool {
    matches!(o, Operand::Reg(RegOp { reg: Name::Phys(Reg::RZ), neg: true, abs: false, not: false, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::run;
    use ori::{Analyses, Builder, Terminator, operand};
    use sass::Target;

    /// The text of what remains of one instruction on these sources.
    fn folded(op: Opcode, mods: &[Mod], sources: &[Operand]) -> String {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let result = b.def(op, mods, sources);
        b.inst(
            Opcode::STS,
            &[],
            &[
                Operand::Addr {
                    desc: None,
                    base: None,
                    width: sass::AddrWidth::R32,
                    uniform: None,
                    offset: 0,
                },
                operand(result),
            ],
        );
        b.terminate(Terminator::Exit);
        let _ = run(&mut f, &Analyses::default());
        let text = f.to_string();
        text.lines().find(|l| l.contains("v0")).unwrap_or_default().trim().to_string()
    }

    fn x(n: f32) -> Operand {
        Operand::Imm(n.to_bits())
    }

    #[test]
    fn binary32() {
        assert_eq!(folded(Opcode::FADD, &[], &[x(1.5), x(2.0)]), "v0:R = copy 0x40600000");
        assert_eq!(folded(Opcode::FMUL, &[], &[x(-0.0), x(2.0)]), "v0:R = copy 0x80000000");
        assert_eq!(
            folded(Opcode::FFMA, &[], &[x(1.0 + f32::EPSILON), x(1.0 - f32::EPSILON), x(-1.0)]),
            "v0:R = copy 0xa8800000"
        );
        // What may be flushed before or after it is rounded stays, and so do NaNs and other roundings.
        let smallest = x(f32::MIN_POSITIVE);
        assert!(folded(Opcode::FMUL, &[Mod::FTZ], &[smallest, x(1.0)]).contains("FMUL"));
        assert_eq!(folded(Opcode::FMUL, &[], &[smallest, x(0.5)]), "v0:R = copy 0x400000");
        assert_eq!(folded(Opcode::FADD, &[Mod::FTZ], &[x(1e-40), x(-0.0)]), "v0:R = copy 0x0");
        assert!(folded(Opcode::FADD, &[], &[x(f32::INFINITY), x(f32::NEG_INFINITY)]).contains("FADD"));
        assert!(folded(Opcode::FADD, &[Mod::RZ], &[x(1.0), x(1e-9)]).contains("FADD"));
    }

    #[test]
    fn conversions() {
        let half = [Mod::F16, Mod::F32, Mod::PACK_AB];
        assert_eq!(folded(Opcode::F2FP, &half, &[x(1.0), x(-2.0), x(0.0)]), "v0:R = copy 0x3c00c000");
        // To the nearest even one.
        assert_eq!(folded(Opcode::F2FP, &half, &[x(0.0), x(2049.0), x(0.0)]), "v0:R = copy 0x6800");
        let minus_zero = Operand::Reg(RegOp { neg: true, ..RegOp::plain(Name::Phys(Reg::RZ)) });
        let wide = [Mod::F32, Mod::B_H1_H1];
        assert_eq!(
            folded(Opcode::HADD2, &wide, &[minus_zero, Operand::Imm(0x0001_3c00)]),
            "v0:R = copy 0x33800000"
        );
        assert_eq!(folded(Opcode::F2F, &[Mod::F64, Mod::F32], &[x(3.0)]), "v0:R2 = collect 0x0, 0x40080000");
        let trunc = [Mod::TRUNC, Mod::NTZ];
        assert_eq!(folded(Opcode::F2I, &trunc, &[x(-3.7)]), "v0:R = copy 0xfffffffd");
        assert!(folded(Opcode::F2I, &trunc, &[x(3e9)]).contains("F2I"));
        assert_eq!(
            folded(Opcode::F2I, &[Mod::U32, Mod::TRUNC, Mod::NTZ], &[x(3e9)]),
            "v0:R = copy 0xb2d05e00"
        );
        assert_eq!(
            folded(Opcode::I2FP, &[Mod::F32, Mod::U32], &[Operand::Imm(u32::MAX)]),
            "v0:R = copy 0x4f800000"
        );
        assert_eq!(
            folded(Opcode::I2F, &[Mod::F64], &[Operand::Imm(u32::MAX)]),
            "v0:R2 = collect 0x0, 0xbff00000"
        );
    }
}
