//! Division, reciprocal and square root of binary64 rounded toward zero, down or up: the nearest result, corrected by at most
//! one unit in the last place, as the exact sign of the remainder says.

use super::asm::{A, Asm, B, C, abs, f64_imm, neg, part, rz};
use super::f64::{div_f64, normalize, sqrt_f64};
use crate::convert::Round;
use ori::{Builder, Operand, Value, operand};
use sass::{Mod, Opcode};

/// `x / y`.
pub fn div_f64_directed(b: &mut Builder, x: Value, y: Value, round: Round) -> Value {
    let q = div_f64(b, x, y);
    let fy = ordinary(b, y);
    let fx = ordinary(b, x);
    let inexact_possible = b.def_pred(
        Opcode::PLOP3,
        &[Mod::LUT],
        &[
            operand(fx),
            operand(fy),
            operand(ori::Name::Phys(sass::Reg::PT)),
            Operand::Imm(0x80),
            Operand::Imm(0),
        ],
    );
    corrected(b, q, inexact_possible, round, |b| {
        // |x| = mx 2^ex, |y| = my 2^ey, |q| = mq 2^eq: the remainder over 2^ex is mx - mq my 2^(eq + ey - ex).
        let (mx, ex) = normalize(b, x);
        let (my, ey) = normalize(b, y);
        let (mq, eq) = normalize(b, q);
        let k = b.iadd3(operand(eq), operand(ey), neg(operand(ex)));
        let k = b.iadd3(operand(k), Operand::Imm(1023u32.wrapping_neg()), rz());
        let k = b.def(Opcode::SHF, &[Mod::L, Mod::U32], &[operand(k), Operand::Imm(20), rz()]);
        let hi = b.iadd3(part(mq, 1), operand(k), rz());
        let scaled = b.collect(&[part(mq, 0), operand(hi)]);
        let rem = b.dfma(neg(operand(scaled)), operand(my), operand(mx));
        // A quotient that became 0 was larger, one that became infinite smaller.
        let bits = b.lop3(part(q, 1), Operand::Imm(0x7fff_ffff), part(q, 0), (A & B) | C);
        let zero = b.isetp(&[Mod::EQ, Mod::U32], operand(bits), rz());
        let above = b.collect(&[rz(), f64_imm(1.0)]);
        let below = b.collect(&[rz(), f64_imm(-1.0)]);
        let rem = b.sel64(above, rem, zero);
        let infinite =
            b.def_pred(Opcode::DSETP, &[Mod::EQ, Mod::AND], &[abs(operand(q)), f64_imm(f64::INFINITY)]);
        b.sel64(below, rem, infinite)
    })
}

/// `1 / x`.
pub fn rcp_f64_directed(b: &mut Builder, x: Value, round: Round) -> Value {
    let one = b.collect(&[rz(), f64_imm(1.0)]);
    div_f64_directed(b, one, x, round)
}

/// `√x`.
pub fn sqrt_f64_directed(b: &mut Builder, x: Value, round: Round) -> Value {
    let s = sqrt_f64(b, x);
    let positive = b.def_pred(Opcode::DSETP, &[Mod::GT, Mod::AND], &[operand(x), rz()]);
    let fine = b.def_pred(
        Opcode::DSETP,
        &[Mod::LT, Mod::AND],
        &[operand(x), f64_imm(f64::INFINITY), operand(positive)],
    );
    corrected(b, s, fine, round, |b| {
        // x - s² does not underflow once small numbers are scaled by 2⁶⁰⁰ and their roots by 2³⁰⁰.
        let small = b.def_pred(Opcode::DSETP, &[Mod::LT, Mod::AND], &[operand(x), f64_imm(2f64.powi(-500))]);
        let up = b.def(Opcode::DMUL, &[], &[operand(x), f64_imm(2f64.powi(600))]);
        let root_up = b.def(Opcode::DMUL, &[], &[operand(s), f64_imm(2f64.powi(300))]);
        let x = b.sel64(up, x, small);
        let s = b.sel64(root_up, s, small);
        b.dfma(neg(operand(s)), operand(s), operand(x))
    })
}

/// 0 < |v| < ∞
fn ordinary(b: &mut Builder, v: Value) -> Value {
    let nonzero = b.def_pred(Opcode::DSETP, &[Mod::NEU, Mod::AND], &[operand(v), rz()]);
    b.def_pred(
        Opcode::DSETP,
        &[Mod::LT, Mod::AND],
        &[abs(operand(v)), f64_imm(f64::INFINITY), operand(nonzero)],
    )
}

/// `nearest`, the result rounded to nearest, corrected where `fine` holds: `remainder` is positive where the
/// exact result is larger in magnitude and negative where it is smaller.
fn corrected(
    b: &mut Builder,
    nearest: Value,
    fine: Value,
    round: Round,
    remainder: impl FnOnce(&mut Builder) -> Value,
) -> Value {
    let (then, otherwise) = b.split(fine);
    let (done, result) = b.join(2);
    b.block = otherwise;
    b.jump(done, &[nearest]);
    b.block = then;
    let rem = remainder(b);
    let longer = b.def_pred(Opcode::DSETP, &[Mod::GT, Mod::AND], &[operand(rem), rz()]);
    let shorter = b.def_pred(Opcode::DSETP, &[Mod::LT, Mod::AND], &[operand(rem), rz()]);
    let up = b.sel(Operand::Imm(1), rz(), operand(longer));
    let down_lo = b.sel(Operand::Imm(u32::MAX), rz(), operand(shorter));
    // The step as a 64-bit integer: +1 away from zero, −1 toward it.
    let (lo, hi) = match round {
        Round::Nearest => (rz(), rz()),
        Round::Zero => (operand(down_lo), operand(down_lo)),
        Round::Minus | Round::Plus => {
            let sign = b.isetp(&[Mod::LT], part(nearest, 1), rz());
            let away = if round == Round::Minus { operand(sign) } else { super::asm::not(operand(sign)) };
            let lo = b.sel(operand(up), operand(down_lo), away.clone());
            let hi = b.sel(rz(), operand(down_lo), away);
            (operand(lo), operand(hi))
        }
    };
    let step = b.collect(&[lo, hi]);
    let r = b.add64(nearest, step);
    b.jump(done, &[r]);
    b.block = done;
    result
}

#[cfg(test)]
mod tests {
    use super::super::eval;
    use super::*;
    use ori::{Function, Terminator};
    use sass::{RegFile, Target};

    /// splitmix64
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn number(state: &mut u64) -> f64 {
        let r = random(state);
        let x = match r & 7 {
            0 => [0, 1, 3, 1 << 52, 0x7fef_ffff_ffff_ffff, 0x3ff0 << 48, 0x3ff8 << 48][(r >> 8) as usize % 7],
            1 => random(state) & 0x803f_ffff_ffff_ffff,
            2 => random(state) & 0x803f_ffff_ffff_ffff | 0x7fc0_0000_0000_0000,
            3 => (random(state) & 0xff) << 44 | 0x3ff0 << 48,
            _ => random(state),
        };
        f64::from_bits(x ^ (r >> 4 & 1) << 63)
    }

    /// The directed results enclose the exact one: down ≤ nearest ≤ up, at most one unit apart, equal exactly
    /// where the remainder is zero, and toward zero is the one nearer to it.
    #[test]
    fn double_precision_encloses() {
        let compile = |build: &dyn Fn(&mut Builder, Value, Value) -> Value| {
            let mut func = Function::new("k", Target::new(90).unwrap());
            let (x, y) = (func.add_value(RegFile::R, 2), func.add_value(RegFile::R, 2));
            let entry = func.entry_block();
            let mut b = Builder::new(&mut func, entry);
            let result = build(&mut b, x, y);
            b.terminate(Terminator::Exit);
            move |a: f64, c: f64| {
                f64::from_bits(eval::run(&func, &[(x, a.to_bits()), (y, c.to_bits())], result, 0))
            }
        };
        let modes = [Round::Minus, Round::Plus, Round::Zero];
        let div = modes.map(|m| compile(&move |b, x, y| div_f64_directed(b, x, y, m)));
        let sqrt = modes.map(|m| compile(&move |b, x, _| sqrt_f64_directed(b, x, m)));
        let mut state = 5;
        for _ in 0..20_000 {
            let (x, y) = (number(&mut state), number(&mut state));
            for (f, nearest) in [(&div, x / y), (&sqrt, x.sqrt())] {
                let [down, up, zero] = [f[0](x, y), f[1](x, y), f[2](x, y)];
                if nearest.is_nan() {
                    assert!(down.is_nan() && up.is_nan() && zero.is_nan());
                    continue;
                }
                assert!(down <= nearest && nearest <= up, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                assert!(down == nearest || up == nearest, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                assert!(down == up || down.next_up() == up, "{x:e} {y:e}: {down:e} {nearest:e} {up:e}");
                let toward = if nearest.is_sign_negative() { up } else { down };
                assert_eq!(zero.to_bits(), toward.to_bits(), "{x:e} {y:e}");
            }
        }
        // Exact and inexact where it is known.
        assert_eq!([div[0](6.0, 3.0), div[1](6.0, 3.0)], [2.0, 2.0]);
        assert!(div[0](1.0, 3.0) < div[1](1.0, 3.0));
        assert_eq!([sqrt[0](9.0, 0.0), sqrt[1](9.0, 0.0)], [3.0, 3.0]);
        assert!(sqrt[0](2.0, 0.0) < sqrt[1](2.0, 0.0));
    }
}
