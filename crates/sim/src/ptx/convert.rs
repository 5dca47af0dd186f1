//! `cvt`.

use super::decode::Code;
use super::float::{canonical, format, relu};
use super::int::{mask, range, value};
use crate::fp::{self, F32, Format, Round};
use ::ptx::{Mod, Op, Type};

/// The value of a conversion in the destination type.
pub(super) fn eval(code: &Code<'_>, x: &[u64]) -> Option<u64> {
    debug_assert_eq!(code.inst.op, Op::cvt);
    let (to, from) = (code.ty, code.ty2);
    if matches!(to, Type::f16x2 | Type::bf16x2) {
        // The first source is the upper half.
        let f = format(to)?;
        let half = |b: u64| finish(code, f, fp::convert(b, F32, f, code.rm));
        return Some(half(x[0]) << 16 | half(x[1]));
    }
    let input = |f: Format| if code.ftz { f.flush(x[0]) } else { x[0] };
    Some(match (format(to), format(from)) {
        (None, None) => {
            let v = value(x[0], from);
            let v = if code.sat { v.clamp(range(to).0, range(to).1) } else { v };
            v as u64 & mask(to)
        }
        (None, Some(f)) => {
            let (least, greatest) = range(to);
            match fp::to_int(input(f), f, code.rm) {
                Some(n) => n.clamp(least, greatest) as u64 & mask(to),
                None if from == Type::f64 || to.bits() == 64 => 1 << (to.bits() - 1),
                None => 0,
            }
        }
        (Some(t), None) => {
            let v = value(x[0], from);
            finish(code, t, fp::from_int(v, t, code.rm))
        }
        (Some(t), Some(f)) if to == Type::tf32 => {
            // 10 fraction bits; `.rna` rounds ties away from zero, which adding half a unit does.
            let b = input(f);
            let kept = match code.rm {
                _ if f.is_nan(b) => return Some(canonical(t)),
                _ if b << 1 & 0xffff_ffff >= 0xff00_0000 => b,
                Round::Nearest if code.inst.has(Mod::rn) => {
                    let odd = b >> 13 & 1;
                    b + 0xfff + odd
                }
                Round::Nearest => b + 0x1000,
                _ => b,
            };
            finish(code, t, kept & !0x1fff)
        }
        (Some(t), Some(f)) => {
            let b = input(f);
            let integral = code.inst.one_of(&[Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi]).is_some();
            let r = match () {
                () if integral && t == f => fp::round_integral(b, f, code.rm),
                () if t == f => b,
                () => fp::convert(b, f, t, code.rm),
            };
            finish(code, t, r)
        }
    })
}

/// Flushing, saturation and clamping of a floating-point result.
fn finish(code: &Code<'_>, f: Format, r: u64) -> u64 {
    let r = if code.ftz { f.flush(r) } else { r };
    let r = if code.sat { f.saturate(r) } else { r };
    let r = if code.inst.has(Mod::relu) { relu(r, f) } else { r };
    let infinity = fp::convert(0x7f80_0000, F32, f, Round::Nearest);
    let magnitude = r & (u64::MAX >> (65 - f.bits()));
    match () {
        () if !code.inst.has(Mod::satfinite) => r,
        () if magnitude > infinity => canonical(f),
        () if magnitude == infinity => r - 1,
        () => r,
    }
}
