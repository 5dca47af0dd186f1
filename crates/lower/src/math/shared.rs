//! Slow paths that are functions of their own: where a function needs one more than once, it calls it. They follow the
//! convention of device functions, but leave uniform registers alone.

use super::asm::part;
use super::f32::Mode;
use super::{Want, f32, f64, int};
use crate::call::{emit_call, give_register, internal_function, register, take_register};
use crate::convert::Round;
use ori::{Builder, Callee, Function, Operand, Value, abi, operand};
use ptx::{Inst, Mod as M, Op as P, Type};
use sass::Target;

/// A slow path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shared {
    /// Quotients and remainders of any 64-bit integers.
    Wide {
        /// Which of them.
        want: Want,
        /// Of signed ones.
        signed: bool,
    },
    /// Any binary64 division.
    DivF64(Round),
    /// Square roots of binary64 numbers that are small or special.
    SqrtF64(Round),
    /// Their reciprocals, approximately.
    RsqrtF64,
    /// Any binary32 division.
    DivF32(Mode),
    /// Reciprocals of binary32 numbers that are small, large or special.
    RcpF32(Mode),
    /// Square roots of binary32 numbers that are small or special.
    SqrtF32(Mode),
}

use Shared::{DivF32, DivF64, RcpF32, RsqrtF64, SqrtF32, SqrtF64, Wide};

/// The roundings: in PTX, in names.
const ROUNDS: [(M, &str, Round); 4] = [
    (M::rn, "rn", Round::Nearest),
    (M::rz, "rz", Round::Zero),
    (M::rm, "rm", Round::Minus),
    (M::rp, "rp", Round::Plus),
];

/// All of them; the place in it is the bit in [`Function::shared_paths`].
fn all() -> impl Iterator<Item = Shared> {
    let wide =
        [Want::Quotient, Want::Remainder].map(|want| [false, true].map(|signed| Wide { want, signed }));
    let double = ROUNDS.map(|(_, _, r)| [DivF64(r), SqrtF64(r)]);
    [RsqrtF64]
        .into_iter()
        .chain(wide.into_iter().chain(double).flatten())
        .chain(Mode::ALL.into_iter().flat_map(|m| [DivF32(m), RcpF32(m), SqrtF32(m)]))
}

impl Shared {
    fn name(self) -> String {
        let rounded = |what: &str, round: Round, rest: &str| {
            let (_, name, _) = ROUNDS.into_iter().find(|(_, _, r)| *r == round).expect("one of all");
            format!("{what}_{name}{rest}")
        };
        let single = |what: &str, m: Mode| rounded(what, m.round, if m.ftz { "_ftz_f32" } else { "_f32" });
        let name = match self {
            Wide { want, signed } => {
                let what = if want == Want::Quotient { "div" } else { "rem" };
                format!("{what}_{}64", if signed { "s" } else { "u" })
            }
            DivF64(r) => rounded("div", r, "_f64"),
            SqrtF64(r) => rounded("sqrt", r, "_f64"),
            RsqrtF64 => "rsqrt_f64".into(),
            DivF32(m) => single("div", m),
            RcpF32(m) => single("rcp", m),
            SqrtF32(m) => single("sqrt", m),
        };
        format!("{}{name}", abi::SHARED)
    }
    /// Registers of each argument and of the result, and how many arguments there are.
    fn shape(self) -> (u8, usize) {
        match self {
            DivF32(_) => (1, 2),
            RcpF32(_) | SqrtF32(_) => (1, 1),
            Wide { .. } | DivF64(_) => (2, 2),
            SqrtF64(_) | RsqrtF64 => (2, 1),
        }
    }
    fn bit(self) -> u64 {
        1 << all().position(|s| s == self).expect("one of all")
    }
    /// How many uses make it worth a function. A call is about five instructions, and takes registers from what lives
    /// across it.
    fn worth(self) -> usize {
        match self {
            // 7 instructions
            RcpF32(Mode { ftz: true, .. }) => 8,
            // 11 to 15
            SqrtF32(_) => 4,
            RcpF32(Mode { round: Round::Zero | Round::Minus | Round::Plus, .. }) => 4,
            _ => 2,
        }
    }
    /// Which an instruction may need.
    fn of(inst: &Inst) -> Option<Shared> {
        let constant = || matches!(inst.operands.get(2), Some(ptx::Operand::Int(_)));
        let round = || ROUNDS.into_iter().find_map(|(m, _, r)| inst.has(m).then_some(r));
        let mode = || Some(Mode { round: round()?, ftz: inst.has(M::ftz) });
        Some(match (inst.op, inst.ty(0)?) {
            (P::div | P::rem, t @ (Type::u64 | Type::s64)) if !constant() => Wide {
                want: if inst.op == P::div { Want::Quotient } else { Want::Remainder },
                signed: t == Type::s64,
            },
            (P::div, Type::f32) => DivF32(mode()?),
            (P::rcp, Type::f32) => RcpF32(mode()?),
            (P::sqrt, Type::f32) => SqrtF32(mode()?),
            (P::div | P::rcp, Type::f64) => DivF64(round()?),
            (P::sqrt, Type::f64) => SqrtF64(round()?),
            (P::rsqrt, Type::f64) if !inst.has(M::ftz) => RsqrtF64,
            _ => return None,
        })
    }
    /// The path itself.
    fn expand(self, b: &mut Builder<'_>, args: &[Value]) -> Value {
        match (self, args) {
            (Wide { want, signed }, [n, d]) => int::div_64_wide(b, *n, *d, want, signed),
            (DivF64(r), [x, y]) => f64::div_f64_any(b, *x, *y, r),
            (SqrtF64(r), [x]) => f64::sqrt_f64_any(b, *x, r),
            (RsqrtF64, [x]) => f64::rsqrt_f64_any(b, *x),
            (DivF32(m), [x, y]) => f32::div_f32_any(b, *x, *y, m),
            (RcpF32(m), [x]) => f32::rcp_f32_any(b, *x, m),
            (SqrtF32(m), [x]) => f32::sqrt_f32_any(b, *x, m),
            _ => unreachable!("arguments of {self:?}"),
        }
    }
}

/// Those that are worth a function, as [`Function::shared_paths`] has them: enough of these instructions may need it.
pub fn wanted<'i>(insts: impl Iterator<Item = &'i Inst>) -> u64 {
    let mut times = [0; u64::BITS as usize];
    insts.filter_map(Shared::of).for_each(|s| times[s.bit().trailing_zeros() as usize] += 1);
    all().zip(times).filter(|(s, times)| *times >= s.worth()).map(|(s, _)| s.bit()).sum()
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
    let s = all().find(|s| s.name() == name)?;
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
            for s in all() {
                let f = function(&s.name(), target, 255).expect("a function");
                assert_eq!(ori::verify::verify(&f), Ok(()), "{f}");
            }
        }
        assert!(function("f", Target::new(90).expect("a target"), 255).is_none());
    }
}
