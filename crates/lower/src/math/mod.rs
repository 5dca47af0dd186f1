//! Expansions of operations that no single SASS instruction does: division, remainder, reciprocal and
//! square root, bit-exact.
//!
//! Each function appends to the builder's block and may split it: afterwards [`ori::Builder::block`] is the
//! block in which the result is defined. Fast paths are the sequences that ptxas 13.0 is seen to emit, so
//! they are known right on hardware; the slow paths are our own and carry their argument.

mod asm;
#[cfg(test)]
pub(crate) mod eval;
#[cfg(test)]
mod exact;
mod f32;
mod f64;
mod int;
mod shared;
#[cfg(test)]
mod single_tests;

pub(crate) use f32::flush_rounded;
pub use f32::{Mode, div_f32, rcp_f32, sqrt_f32};
pub use f64::{div_f64, rcp_f64, rsqrt_f64, sqrt_f64};
pub use int::{Want, div_s32, div_s64, div_u32, div_u64};
pub use shared::{function as shared_function, wanted as shared_paths};

#[cfg(test)]
mod tests {
    use crate::convert::Round;
    use ori::{Builder, Function, Name, Operand, Terminator, operand};
    use sass::{Mod, Opcode, Reg, RegFile, SpecialReg, Target};

    /// Every expansion builds valid SSA on an old and a new target.
    #[test]
    fn expansions_verify() {
        for sm in [75, 120] {
            let mut f = Function::new("k", Target::new(sm).unwrap());
            let entry = f.entry_block();
            let mut b = Builder::new(&mut f, entry);
            let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
            let w = b.collect(&[operand(x), operand(x)]);
            let narrow = [
                super::div_u32(&mut b, x, x, super::Want::Quotient),
                super::div_s32(&mut b, x, x, super::Want::Remainder),
            ];
            let wide = [
                super::div_u64(&mut b, w, w, super::Want::Remainder, false),
                super::div_s64(&mut b, w, w, super::Want::Quotient, true),
                super::div_f64(&mut b, w, w, Round::Nearest),
                super::div_f64(&mut b, w, w, Round::Plus),
                super::rcp_f64(&mut b, w, Round::Zero),
                super::sqrt_f64(&mut b, w, Round::Minus),
            ];
            let single = super::Mode::ALL.map(|m| {
                [super::div_f32(&mut b, x, x, m), super::rcp_f32(&mut b, x, m), super::sqrt_f32(&mut b, x, m)]
            });
            for v in narrow.into_iter().chain(single.into_iter().flatten()) {
                assert_eq!((b.func.values[v].file, b.func.values[v].width), (RegFile::R, 1));
                let address = Operand::Addr {
                    desc: None,
                    base: Some(Name::Phys(Reg::RZ)),
                    width: sass::AddrWidth::R32,
                    uniform: None,
                    offset: 0,
                };
                b.inst(Opcode::STS, &[], &[address, operand(v)]);
            }
            for v in wide {
                assert_eq!(b.func.values[v].width, 2);
                let address = Operand::Addr {
                    desc: None,
                    base: Some(Name::Phys(Reg::RZ)),
                    width: sass::AddrWidth::R32,
                    uniform: None,
                    offset: 0,
                };
                b.inst(Opcode::STS, &[Mod::_64], &[address, operand(v)]);
            }
            b.terminate(Terminator::Exit);
            if let Err(errors) = ori::verify::verify(&f) {
                panic!("{}\n{f}", errors.join("\n"));
            }
        }
    }

    /// The expansion of a two-operand function as something that can be called.
    fn compile(width: u8, build: impl Fn(&mut Builder, ori::Value, ori::Value) -> ori::Value) -> Compiled {
        let mut func = Function::new("k", Target::new(90).unwrap());
        let (x, y) = (func.add_value(RegFile::R, width), func.add_value(RegFile::R, width));
        let entry = func.entry_block();
        let mut b = Builder::new(&mut func, entry);
        let result = build(&mut b, x, y);
        b.terminate(Terminator::Exit);
        Compiled { func, x, y, result }
    }

    struct Compiled {
        func: Function,
        x: ori::Value,
        y: ori::Value,
        result: ori::Value,
    }

    impl Compiled {
        fn call(&self, x: u64, y: u64, mufu_error: i32) -> u64 {
            super::eval::run(&self.func, &[(self.x, x), (self.y, y)], self.result, mufu_error)
        }
    }

    /// splitmix64
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Integers of every magnitude, and the edges.
    fn integer(state: &mut u64, bits: u32) -> u64 {
        let r = random(state);
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let x = match r & 7 {
            0 => [0, 1, 2, 3, mask, mask - 1, mask >> 1, (mask >> 1) + 1][(r >> 8 & 7) as usize],
            _ => random(state) >> ((r >> 8) % u64::from(bits)),
        };
        (if r & 0x80 != 0 { x.wrapping_neg() } else { x }) & mask
    }

    #[test]
    fn integer_division_is_exact() {
        use super::Want::{Quotient, Remainder};
        let u32s = [Quotient, Remainder].map(|w| compile(1, move |b, x, y| super::div_u32(b, x, y, w)));
        let s32s = [Quotient, Remainder].map(|w| compile(1, move |b, x, y| super::div_s32(b, x, y, w)));
        // Both with the test for small operands and without.
        let wants = [(Quotient, false), (Remainder, false), (Quotient, true), (Remainder, true)];
        let u64s = wants.map(|(w, looked)| compile(2, move |b, x, y| super::div_u64(b, x, y, w, looked)));
        let s64s = wants.map(|(w, looked)| compile(2, move |b, x, y| super::div_s64(b, x, y, w, looked)));
        let mut state = 1;
        for k in 0..20_000 {
            let error = k % 3 - 1;
            let (x, y) = (integer(&mut state, 32) as u32, integer(&mut state, 32) as u32);
            let (sx, sy) = (x as i32, y as i32);
            let check = |c: &Compiled, want: u32, what: &str| {
                let got = c.call(x.into(), y.into(), error) as u32;
                assert_eq!(got, want, "{what}({x:#x}, {y:#x}), MUFU off by {error}");
            };
            check(&u32s[0], x.checked_div(y).unwrap_or(u32::MAX), "div.u32");
            check(&u32s[1], x.checked_rem(y).unwrap_or(u32::MAX), "rem.u32");
            check(&s32s[0], if y == 0 { u32::MAX } else { sx.wrapping_div(sy) as u32 }, "div.s32");
            check(&s32s[1], if y == 0 { u32::MAX } else { sx.wrapping_rem(sy) as u32 }, "rem.s32");
            let (x, y) = (integer(&mut state, 64), integer(&mut state, 64));
            let (sx, sy) = (x as i64, y as i64);
            let check = |c: &Compiled, want: u64, what: &str| {
                let got = c.call(x, y, error);
                assert_eq!(got, want, "{what}({x:#x}, {y:#x}), MUFU off by {error}");
            };
            for k in [0, 2] {
                check(&u64s[k], x.checked_div(y).unwrap_or(u64::MAX), "div.u64");
                check(&u64s[k + 1], x.checked_rem(y).unwrap_or(u64::MAX), "rem.u64");
                check(&s64s[k], if y == 0 { u64::MAX } else { sx.wrapping_div(sy) as u64 }, "div.s64");
                check(&s64s[k + 1], if y == 0 { u64::MAX } else { sx.wrapping_rem(sy) as u64 }, "rem.s64");
            }
        }
    }

    fn float64(state: &mut u64) -> f64 {
        let r = random(state);
        let edges = [
            0,
            1,
            0x000f_ffff_ffff_ffff,
            1 << 52,
            (1 << 52) + 1,
            0x7fef_ffff_ffff_ffff,
            0x7ff << 52,
            0x7ff8 << 48,
        ];
        let x = match r & 7 {
            0 => edges[(r >> 8) as usize % edges.len()],
            // Near the ends of the exponent range.
            1 => random(state) & 0x803f_ffff_ffff_ffff,
            2 => random(state) & 0x803f_ffff_ffff_ffff | 0x7fc0_0000_0000_0000,
            _ => random(state),
        };
        f64::from_bits(x ^ (r >> 4 & 1) << 63)
    }

    #[test]
    fn double_precision_is_exact() {
        let div = compile(2, |b, x, y| super::div_f64(b, x, y, Round::Nearest));
        let rcp = compile(2, |b, x, _| super::rcp_f64(b, x, Round::Nearest));
        let sqrt = compile(2, |b, x, _| super::sqrt_f64(b, x, Round::Nearest));
        let mut state = 3;
        for k in 0..60_000 {
            let error = k % 3 - 1;
            let (x, y) = (float64(&mut state), float64(&mut state));
            let check = |c: &Compiled, want: f64, what: &str| {
                let got = f64::from_bits(c.call(x.to_bits(), y.to_bits(), error));
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{what}({x:e}, {y:e}) = {got:e}, not {want:e}, MUFU off by {error}");
            };
            check(&div, x / y, "div.rn.f64");
            check(&rcp, 1.0 / x, "rcp.rn.f64");
            check(&sqrt, x.sqrt(), "sqrt.rn.f64");
        }
    }

    /// The directed results enclose the exact one: down ≤ nearest ≤ up, at most one unit apart, equal exactly
    /// where the remainder is zero, and toward zero is the one nearer to it.
    #[test]
    fn double_precision_encloses() {
        let modes = [Round::Minus, Round::Plus, Round::Zero];
        let div = modes.map(|m| compile(2, move |b, x, y| super::div_f64(b, x, y, m)));
        let rcp = modes.map(|m| compile(2, move |b, x, _| super::rcp_f64(b, x, m)));
        let sqrt = modes.map(|m| compile(2, move |b, x, _| super::sqrt_f64(b, x, m)));
        let mut state = 5;
        for k in 0..40_000 {
            let (mut x, y) = (float64(&mut state), float64(&mut state));
            if k % 4 == 0 {
                // An exact quotient, and an exact root; or next to one.
                let short = |v: f64| f64::from_bits(v.to_bits() & !0x3ff_ffff);
                x = if k % 8 == 0 { short(x) * short(y) } else { short(x) * short(x) };
                x = f64::from_bits(x.to_bits() ^ u64::from(k % 16 == 4));
            }
            for (f, exact, nearest) in [
                (&div, exact_quotient(x, y), x / y),
                (&rcp, exact_quotient(1.0, x), 1.0 / x),
                (&sqrt, exact_root(x), x.sqrt()),
            ] {
                let call = |c: &Compiled| f64::from_bits(c.call(x.to_bits(), y.to_bits(), k % 3 - 1));
                let [down, up, zero] = [call(&f[0]), call(&f[1]), call(&f[2])];
                if nearest.is_nan() {
                    assert!(down.is_nan() && up.is_nan() && zero.is_nan());
                    continue;
                }
                assert!(down <= nearest && nearest <= up, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                assert!(down == nearest || up == nearest, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                assert!(down == up || down.next_up() == up, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                let toward = if nearest.is_sign_negative() { up } else { down };
                assert_eq!(zero.to_bits(), toward.to_bits(), "{x:e} {y:e}");
                if let Some(exact) = exact {
                    assert_eq!(down == up, exact, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                }
            }
        }
        // Exact and inexact where it is known.
        let call = |c: &Compiled, x: f64, y: f64| f64::from_bits(c.call(x.to_bits(), y.to_bits(), 0));
        assert_eq!([call(&div[0], 6.0, 3.0), call(&div[1], 6.0, 3.0)], [2.0, 2.0]);
        assert!(call(&div[0], 1.0, 3.0) < call(&div[1], 1.0, 3.0));
        assert_eq!([call(&sqrt[0], 9.0, 0.0), call(&sqrt[1], 9.0, 0.0)], [3.0, 3.0]);
        assert!(call(&sqrt[0], 2.0, 0.0) < call(&sqrt[1], 2.0, 0.0));
        let least = f64::from_bits(1);
        assert_eq!([0, 1, 2].map(|k| call(&div[k], least, -2.0).to_bits()), [1 << 63 | 1, 1 << 63, 1 << 63]);
        assert_eq!([0, 1, 2].map(|k| call(&div[k], f64::MAX, 0.5)), [f64::MAX, f64::INFINITY, f64::MAX]);
    }

    /// A significand as an integer, and its exponent; none of 0, infinity and NaN.
    fn whole(x: f64) -> Option<(u64, i32)> {
        let (e, f) = ((x.to_bits() >> 52 & 0x7ff) as i32, x.to_bits() & ((1 << 52) - 1));
        let (m, e) = if e == 0 { (f, -1074) } else { (f | 1 << 52, e - 1075) };
        (x.is_finite() && m != 0).then(|| (m >> m.trailing_zeros(), e + m.trailing_zeros() as i32))
    }

    /// Whether `x / y` is a number of the format.
    fn exact_quotient(x: f64, y: f64) -> Option<bool> {
        let ((m, e), (n, f)) = (whole(x)?, whole(y)?);
        let (q, e) = (m / n, e - f);
        let bits = 64 - q.leading_zeros() as i32;
        // Overflow is not exact, and is not told from infinity here.
        (bits + e <= 1024).then_some(m % n == 0 && e >= -1074)
    }

    /// Whether `sqrt(x)` is.
    fn exact_root(x: f64) -> Option<bool> {
        let (m, e) = whole(x)?;
        let m = if e & 1 == 0 { m } else { 2 * m };
        Some(m.isqrt() * m.isqrt() == m)
    }
}
