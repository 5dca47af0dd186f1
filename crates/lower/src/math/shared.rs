//! Slow paths that are functions of their own: where a function needs one more than once, it calls it. They follow the
//! convention of device functions, but leave uniform registers alone.

use super::asm::part;
use super::{Want, f32, f64, int};
use crate::call::{emit_call, give_register, internal_function, register, take_register};
use crate::convert::Round;
use ori::{Builder, Callee, Function, Operand, Value, abi, operand};
use ptx::{Inst, Mod as M, Op as P, Type};
use sass::Target;

/// A slow path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shared {
    /// Quotients of unsigned 64-bit numbers.
    Quotient,
    /// Their remainders.
    Remainder,
    /// Any binary32 division.
    DivF32,
    /// The same with `.ftz`.
    DivF32Ftz,
    /// Any binary64 division.
    DivF64,
    /// Square roots of binary64 numbers that are small or special.
    SqrtF64,
    /// Their reciprocals.
    RsqrtF64,
}

use Shared::{DivF32, DivF32Ftz, DivF64, Quotient, Remainder, RsqrtF64, SqrtF64};

const ALL: [Shared; 7] = [Quotient, Remainder, DivF32, DivF32Ftz, DivF64, SqrtF64, RsqrtF64];

impl Shared {
    fn name(self) -> String {
        let name = match self {
            Quotient => "div_u64",
            Remainder => "rem_u64",
            DivF32 => "div_f32",
            DivF32Ftz => "div_ftz_f32",
            DivF64 => "div_f64",
            SqrtF64 => "sqrt_f64",
            RsqrtF64 => "rsqrt_f64",
        };
        format!("{}{name}", abi::SHARED)
    }
    /// Registers of each argument and of the result, and how many arguments there are.
    fn shape(self) -> (u8, usize) {
        match self {
            DivF32 | DivF32Ftz => (1, 2),
            Quotient | Remainder | DivF64 => (2, 2),
            SqrtF64 | RsqrtF64 => (2, 1),
        }
    }
    fn bit(self) -> u32 {
        1 << self as u32
    }
    /// Which an instruction may need.
    fn of(inst: &Inst) -> Option<Shared> {
        let constant = || matches!(inst.operands.get(2), Some(ptx::Operand::Int(_)));
        let nearest = || inst.has(M::rn) || inst.op == P::rsqrt;
        Some(match (inst.op, inst.ty(0)?) {
            (P::div, Type::u64 | Type::s64) if !constant() => Quotient,
            (P::rem, Type::u64 | Type::s64) if !constant() => Remainder,
            (P::div | P::rcp, Type::f32) if nearest() && inst.has(M::ftz) => DivF32Ftz,
            (P::div | P::rcp, Type::f32) if nearest() => DivF32,
            (P::div | P::rcp, Type::f64) if nearest() => DivF64,
            (P::sqrt, Type::f64) if nearest() => SqrtF64,
            (P::rsqrt, Type::f64) if !inst.has(M::ftz) => RsqrtF64,
            _ => return None,
        })
    }
    /// The path itself.
    fn expand(self, b: &mut Builder<'_>, args: &[Value]) -> Value {
        match (self, args) {
            (Quotient, [n, d]) => int::div_u64_wide(b, *n, *d, Want::Quotient),
            (Remainder, [n, d]) => int::div_u64_wide(b, *n, *d, Want::Remainder),
            (DivF32 | DivF32Ftz, [x, y]) => f32::div_f32_any(b, *x, *y, Round::Nearest, self == DivF32Ftz),
            (DivF64, [x, y]) => f64::div_f64_any(b, *x, *y),
            (SqrtF64, [x]) => f64::sqrt_f64_any(b, *x),
            (RsqrtF64, [x]) => f64::rsqrt_f64_any(b, *x),
            _ => unreachable!("arguments of {self:?}"),
        }
    }
}

/// Those that are worth a function, as [`Function::shared_paths`] has them: more than one of these instructions
/// may need it.
pub fn wanted<'i>(insts: impl Iterator<Item = &'i Inst>) -> u32 {
    let mut times = [0; ALL.len()];
    insts.filter_map(Shared::of).for_each(|s| times[s as usize] += 1);
    ALL.iter().filter(|s| times[**s as usize] > 1).map(|s| s.bit()).sum()
}

/// Gives values to the registers from R4 on, and says which.
fn give(b: &mut Builder<'_>, values: &[Value]) -> Vec<Operand> {
    let mut out = Vec::new();
    let mut r = abi::FIRST_ARGUMENT;
    for v in values {
        for k in 0..b.func.values[*v].width {
            let word = if b.func.values[*v].width == 1 { operand(*v) } else { part(*v, k) };
            give_register(b, r, word);
            out.push(register(r));
            r += 1;
        }
    }
    out
}

/// A value of `width` registers from those at `r`.
fn received(b: &mut Builder<'_>, r: u8, width: u8) -> Value {
    let words: Vec<Operand> = (0..width).map(|k| operand(take_register(b, r + k))).collect();
    match &words[..] {
        [Operand::Reg(one)] => one.reg.value().expect("a value"),
        words => b.collect(words),
    }
}

/// The path: a call of it if the function shares it, else itself.
pub(super) fn path(b: &mut Builder<'_>, s: Shared, args: &[Value]) -> Value {
    if b.func.shared_paths & s.bit() == 0 {
        return s.expand(b, args);
    }
    let given = give(b, args);
    emit_call(b, Callee::Internal(s.name()), None, given);
    received(b, abi::FIRST_ARGUMENT, s.shape().0)
}

/// The function of a name, if it is that of a path, within `max_regs` registers.
pub fn function(name: &str, target: Target, max_regs: u8) -> Option<Function> {
    let s = ALL.into_iter().find(|s| s.name() == name)?;
    Some(internal_function(name, target, max_regs, |b| {
        let (width, count) = s.shape();
        let args: Vec<Value> =
            (0..count as u8).map(|k| received(b, abi::FIRST_ARGUMENT + k * width, width)).collect();
        let result = s.expand(b, &args);
        give(b, &[result])
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_well_formed() {
        for sm in [75, 90, 120] {
            let target = Target::new(sm).expect("a target");
            for s in ALL {
                let f = function(&s.name(), target, 255).expect("a function");
                assert_eq!(ori::verify::verify(&f), Ok(()), "{f}");
            }
        }
        assert!(function("f", Target::new(90).expect("a target"), 255).is_none());
    }
}
