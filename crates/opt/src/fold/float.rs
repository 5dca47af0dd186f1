//! Floating-point instructions on numbers that are known, where the result is exact or rounded to nearest. NaNs are left to
//! the hardware, and under FTZ whatever may be flushed or not.

use super::{Known, New, copy_of, is_truth};
use half::{bf16, f16};
use ori::{Function, InstData, Macro, Name, Op, Operand};
use sass::{Mod, Mods, Opcode, Reg, RegOp};

/// How two numbers compare; `None` where one of them is NaN.
type Order = Option<std::cmp::Ordering>;

/// Whether the instruction has no modifiers but these.
fn only(d: &InstData, allowed: &[Mod]) -> bool {
    d.mods.0.iter().all(|m| allowed.contains(m))
}

/// Whether two numbers that compare so are what a comparison asks for.
fn asked(compare: Mod, order: Order) -> Option<bool> {
    let unordered = order.is_none();
    let is = |f: fn(std::cmp::Ordering) -> bool| order.is_some_and(f);
    Some(match compare {
        Mod::LT => is(std::cmp::Ordering::is_lt),
        Mod::LE => is(std::cmp::Ordering::is_le),
        Mod::GT => is(std::cmp::Ordering::is_gt),
        Mod::GE => is(std::cmp::Ordering::is_ge),
        Mod::EQ => is(std::cmp::Ordering::is_eq),
        Mod::NE => is(std::cmp::Ordering::is_ne),
        Mod::LTU => unordered || is(std::cmp::Ordering::is_lt),
        Mod::LEU => unordered || is(std::cmp::Ordering::is_le),
        Mod::GTU => unordered || is(std::cmp::Ordering::is_gt),
        Mod::GEU => unordered || is(std::cmp::Ordering::is_ge),
        Mod::EQU => unordered || is(std::cmp::Ordering::is_eq),
        Mod::NEU => unordered || is(std::cmp::Ordering::is_ne),
        Mod::NUM => !unordered,
        Mod::NAN => unordered,
        _ => return None,
    })
}

/// A register of a number.
fn word(d: &InstData, n: u32) -> Option<New> {
    copy_of(&d.operands[0], Operand::Imm(n))
}

/// A binary32 result.
fn single(d: &InstData, x: f32) -> Option<New> {
    // At the border of the subnormal numbers rounding and flushing could come in either order.
    let flushed = d.mods.has(Mod::FTZ) && x != 0.0 && x.abs() <= f32::MIN_POSITIVE;
    if x.is_nan() || flushed { None } else { word(d, x.to_bits()) }
}

/// A binary64 result.
fn double(d: &InstData, x: f64) -> Option<New> {
    if x.is_nan() {
        return None;
    }
    let halves = [x.to_bits() as u32, (x.to_bits() >> 32) as u32].map(Operand::Imm);
    Some((Op::Macro(Macro::Collect), Mods::none(), [d.operands[0]].into_iter().chain(halves).collect()))
}

impl Known {
    /// What a floating-point instruction on known numbers can be instead.
    pub(super) fn folded_float(&self, func: &Function, op: Opcode, d: &InstData) -> Option<New> {
        let o = &d.operands;
        let f = |k: usize| self.f32(func, d, &o[k]);
        let d64 = |k: usize| self.f64(func, &o[k]);
        match op {
            Opcode::FADD if only(d, &[Mod::FTZ, Mod::CONTRACT]) => single(d, f(1)? + f(2)?),
            Opcode::FMUL if only(d, &[Mod::FTZ, Mod::CONTRACT]) => single(d, f(1)? * f(2)?),
            Opcode::FFMA if only(d, &[Mod::FTZ, Mod::CONTRACT]) => single(d, f(1)?.mul_add(f(2)?, f(3)?)),
            Opcode::DADD if only(d, &[Mod::CONTRACT]) => double(d, d64(1)? + d64(2)?),
            Opcode::DMUL if only(d, &[Mod::CONTRACT]) => double(d, d64(1)? * d64(2)?),
            Opcode::DFMA if only(d, &[Mod::CONTRACT]) => double(d, d64(1)?.mul_add(d64(2)?, d64(3)?)),
            Opcode::FSETP => self.compared(d, f(2)?.partial_cmp(&f(3)?)),
            Opcode::DSETP => self.compared(d, d64(2)?.partial_cmp(&d64(3)?)),
            Opcode::F2FP if only(d, &[Mod::F16, Mod::F32, Mod::PACK_AB]) && d.mods.has(Mod::PACK_AB) => {
                let [high, low] = [f(1)?, f(2)?].map(f16::from_f32);
                let nan = high.is_nan() || low.is_nan();
                if nan { None } else { word(d, u32::from(high.to_bits()) << 16 | u32::from(low.to_bits())) }
            }
            Opcode::F2FP if only(d, &[Mod::BF16, Mod::F32, Mod::PACK_AB]) && d.mods.has(Mod::PACK_AB) => {
                let [high, low] = [f(1)?, f(2)?].map(bf16::from_f32);
                let nan = high.is_nan() || low.is_nan();
                if nan { None } else { word(d, u32::from(high.to_bits()) << 16 | u32::from(low.to_bits())) }
            }
            // -0 and one half of a register: the number itself.
            Opcode::HADD2 if is_minus_zero(&o[1]) && d.mods.has(Mod::F32) => {
                let shift = match () {
                    () if only(d, &[Mod::F32, Mod::B_H0_H0]) && d.mods.has(Mod::B_H0_H0) => 0,
                    () if only(d, &[Mod::F32, Mod::B_H1_H1]) && d.mods.has(Mod::B_H1_H1) => 16,
                    () => return None,
                };
                let (bits, negative, absolute) = self.bits(func, &o[2])?;
                let x = f16::from_bits((bits >> shift) as u16).to_f32();
                let x = if absolute { x.abs() } else { x };
                single(d, if negative { -x } else { x })
            }
            Opcode::F2F if d.mods.0[..] == [Mod::F64, Mod::F32] => double(d, f(1)?.into()),
            Opcode::F2F if d.mods.0[..] == [Mod::F32, Mod::F64] => single(d, d64(1)? as f32),
            Opcode::F2F if d.mods.0[..] == [Mod::F16, Mod::F32] => {
                let x = f16::from_f32(f(1)?);
                if x.is_nan() { None } else { word(d, x.to_bits().into()) }
            }
            Opcode::F2I if only(d, &[Mod::U32, Mod::TRUNC, Mod::NTZ, Mod::FTZ]) && d.mods.has(Mod::TRUNC) => {
                let x = f64::from(f(1)?.trunc());
                if d.mods.has(Mod::U32) {
                    (0.0..=f64::from(u32::MAX)).contains(&x).then(|| word(d, x as u32))?
                } else {
                    (f64::from(i32::MIN)..=f64::from(i32::MAX))
                        .contains(&x)
                        .then(|| word(d, x as i32 as u32))?
                }
            }
            Opcode::I2FP if d.mods.0[..] == [Mod::F32, Mod::S32] => {
                single(d, self.number(func, &o[1])? as i32 as f32)
            }
            Opcode::I2FP if d.mods.0[..] == [Mod::F32, Mod::U32] => {
                single(d, self.number(func, &o[1])? as f32)
            }
            Opcode::I2F => {
                let n = self.number(func, &o[1])?;
                match d.mods.0[..] {
                    [] => single(d, n as i32 as f32),
                    [Mod::U32] => single(d, n as f32),
                    [Mod::F64] => double(d, f64::from(n as i32)),
                    [Mod::F64, Mod::U32] => double(d, f64::from(n)),
                    _ => None,
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

    /// FSETP or DSETP p, no second predicate, a, b, predicate to join.
    fn compared(&self, d: &InstData, order: Order) -> Option<New> {
        let o = &d.operands;
        if !is_truth(&o[1], true) {
            return None;
        }
        let (mut held, mut join) = (None, None);
        for m in &d.mods.0 {
            match *m {
                Mod::FTZ => {}
                Mod::AND | Mod::OR | Mod::XOR => join = Some(*m),
                compare => held = Some(asked(compare, order)?),
            }
        }
        self.joined(d, 4, held?, join?)
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

    #[test]
    fn comparisons() {
        for (compare, less, same) in [(Mod::LT, true, false), (Mod::GEU, false, true), (Mod::NUM, true, true)]
        {
            for (a, b, held) in [(1.0, 2.0, less), (-0.0, 0.0, same)] {
                let order = a.partial_cmp(&b);
                assert_eq!(asked(compare, order), Some(held), "{compare:?} {a} {b}");
            }
        }
        assert_eq!(
            (asked(Mod::LTU, None), asked(Mod::NE, None), asked(Mod::NAN, None)),
            (Some(true), Some(false), Some(true))
        );
    }
}
