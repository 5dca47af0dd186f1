//! `cvt`.

use super::decode::Code;
use super::float::{canonical, format, relu};
use super::int::{mask, range, value};
use crate::fp::{self, BF16, F16, F32, Format, Round};
use crate::sass::pack_integers;
use crate::small;
use ::ptx::{Mod, Op, Type};

/// The value of a conversion in the destination type.
pub(super) fn eval(code: &Code<'_>, x: &[u64]) -> Option<u64> {
    debug_assert_eq!(code.inst.op, Op::cvt);
    let (to, from) = (code.ty, code.ty2);
    if code.inst.has(Mod::pack) {
        let bits = match to {
            Type::u4 | Type::s4 => 4,
            Type::u2 | Type::s2 => 2,
            t => t.bits(),
        };
        let c = x.get(2).copied().unwrap_or(0) as u32;
        return Some(pack_integers(x[0] as u32, x[1] as u32, c, bits, to.is_signed()).into());
    }
    if let Some(r) = packed(code, x) {
        return Some(r);
    }
    // `.ftz` is about binary32.
    let input =
        |f: Format| if code.ftz && f == F32 && format(to) != Some(F16) { f.flush(x[0]) } else { x[0] };
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
                _ if !f.is_nan(b) && b << 1 & 0xffff_ffff >= 0xff00_0000 => b,
                _ if code.inst.has(Mod::rna) && f.is_nan(b) => {
                    return Some(if code.inst.has(Mod::satfinite) {
                        (b & !0x1fff) - 0x2000
                    } else {
                        b & !0x1fff
                    });
                }
                _ if f.is_nan(b) => return Some(canonical(t)),
                Round::Nearest if code.inst.has(Mod::rn) => {
                    let odd = b >> 13 & 1;
                    b + 0xfff + odd
                }
                Round::Nearest => b + 0x1000,
                _ => b,
            };
            let kept = kept & 0xffff_e000;
            // The largest number has ten fraction bits.
            if code.inst.has(Mod::satfinite) && kept & 0x7fff_ffff == 0x7f80_0000 {
                finish(code, t, kept - 0x2000)
            } else {
                finish(code, t, kept)
            }
        }
        (Some(t), Some(f)) => {
            let b = input(f);
            let integral = code.inst.one_of(&[Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi]).is_some();
            let r = match () {
                () if integral && t == f => fp::round_integral(b, f, code.rm),
                // Flushing and halves go through an addition, bfloat16 to binary32 through a shift.
                () if t == f && f.is_nan(b) && (code.ftz || f == F16 || f == BF16) => canonical(f),
                () if t == f => b,
                () if code.ftz && f == F32 && f.is_nan(b) => fp::convert(canonical(f), f, t, code.rm),
                () if f == BF16 && t == F32 && !code.ftz => b << 16,
                () => fp::convert(b, f, t.flushing(code.ftz && t == F32), code.rm),
            };
            finish(code, t, r)
        }
    })
}

/// Pairs of halves and of small formats; `None` for other conversions.
fn packed(code: &Code<'_>, x: &[u64]) -> Option<u64> {
    let (to, from, relu) = (code.ty, code.ty2, code.inst.has(Mod::relu));
    let halves = |t: Type| matches!(t, Type::f16x2 | Type::bf16x2);
    let half = |bits: u64| finish(code, format(to).unwrap_or(F16), bits);
    if let (true, Some(s)) = (halves(to), small::format(from.name())) {
        let f = format(to)?;
        let width = if s.bits == 4 { 4 } else { 8 };
        let one = |at: u32| {
            let code = (x[0] >> at) as u8 & ((1u32 << s.bits) - 1) as u8;
            half(fp::convert(s.decode(code).into(), F32, f, Round::Nearest))
        };
        return Some(one(width) << 16 | one(0));
    }
    if halves(to) && from.name() == "ue8m0x2" {
        let f = format(to)?;
        let one =
            |at: u32| fp::convert(small::decode_scale((x[0] >> at) as u8).into(), F32, f, Round::Nearest);
        return Some(one(8) << 16 | one(0));
    }
    if halves(to) {
        // The first source is the upper half.
        let f = format(to)?;
        let one = |b: u64| half(fp::convert(b, F32, f, code.rm));
        return Some(one(x[0]) << 16 | one(x[1]));
    }
    // The two binary32 numbers: sources, or halves of one source.
    let wide = || -> Option<[u64; 2]> {
        if halves(from) {
            let f = format(from)?;
            let up = |at: u32| fp::convert(x[0] >> at & 0xffff, f, F32, Round::Nearest);
            return Some([up(16), up(0)]);
        }
        Some([*x.first()?, *x.get(1)?])
    };
    if let Some(s) = small::format(to.name()) {
        let width = if s.bits == 4 { 4 } else { 8 };
        let [a, b] = wide()?.map(|v| u64::from(s.encode(v as u32, relu)));
        return Some(a << width | b);
    }
    if to.name() == "ue8m0x2" {
        let clamped = code.inst.has(Mod::satfinite);
        let [a, b] = wide()?.map(|v| u64::from(small::encode_scale(v as u32, code.rm, clamped)));
        return Some(a << 8 | b);
    }
    None
}

/// Flushing, saturation and clamping of a floating-point result.
fn finish(code: &Code<'_>, f: Format, r: u64) -> u64 {
    let r = if code.ftz && f == F32 { f.flush(r) } else { r };
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
