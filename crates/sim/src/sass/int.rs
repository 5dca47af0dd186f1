//! Integer instructions of the vector and the uniform datapath: one definition serves both.

use super::compare::isetp;
use super::compile::{Unsupported, unsupported};
use super::extrema::{add_min_max, min_max, min_max_3, min_max_64, min_max_choice};
use super::operand::{Exec, From, Kind, Operands, Pred, PredDst, Src, lanewise, value};
use super::rows::{Word, word, words};

pub(super) const NO_PREDS: [PredDst; 2] = [PredDst::NONE; 2];

/// Prepares an integer instruction; `None` if `name` (without the leading `U` of the uniform forms) isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match name {
        "IADD3" if o.take("64") => add_64(o, 3)?,
        "IADD3" => iadd3(o)?,
        "IADD" if o.take("64") => add_64(o, 2)?,
        "IMAD" => imad(o)?,
        "LEA" => lea(o)?,
        "LOP3" => lop3(o)?,
        "SHF" => shf(o)?,
        "ISETP" => isetp(o)?,
        "SEL" | "SEL.NEGATIVE" => sel(o, name == "SEL.NEGATIVE")?,
        "IMNMX" | "VIMNMX" => min_max(o)?,
        "VIMNMX.P" => min_max_choice(o)?,
        "IMNMX.U64" | "IMNMX.S64" => min_max_64(o, name.ends_with("S64"))?,
        "VIMNMX3" => min_max_3(o)?,
        "VIADDMNMX" => add_min_max(o)?,
        "VIADD" => {
            let part = o.choose(&[
                ("U8x4", (8, false)),
                ("S8x4", (8, true)),
                ("16x2", (16, false)),
                ("S16x2", (16, true)),
                ("S32", (32, true)),
                ("32", (32, false)),
            ]);
            let sat = o.take("ISAT");
            let (d, a, b) = (o.dst(0, 1)?, o.src(1, Kind::Int)?, o.src(2, Kind::Int)?);
            if let Some((bits, signed)) = part.filter(|(bits, _)| sat || *bits < 32) {
                // A minus negates each part; it is exact, as the sum has one bit more than its sources.
                let minus = [a.neg, b.neg];
                return Ok(Some(value(d, [a.plain(), b.plain()], move |x| {
                    (0..32).step_by(bits).fold(0, |r, at| r | sum_of_part(x, minus, at, bits, signed, sat))
                })));
            }
            if sat {
                return unsupported("this saturating sum");
            }
            word(d, [a, b], |[a, b]| a.wrapping_add(b))
        }
        "VABSDIFF" => {
            let signed = !o.take("U32");
            let srcs = [o.src(2, Kind::Int)?, o.src(3, Kind::Int)?, o.src(4, Kind::Int)?];
            if o.inst.operands[1].as_reg().is_some_and(|r| !r.reg.is_zero()) {
                return unsupported("a predicate result");
            }
            value(o.dst(0, 1)?, srcs, move |[a, b, c]| {
                let (a, b) = (a as u32, b as u32);
                let d = if signed { (a as i32).abs_diff(b as i32) } else { a.abs_diff(b) };
                d.wrapping_add(c as u32).into()
            })
        }
        "MOV" => mov(o)?,
        "MOV64" => {
            o.ignore(&["64"]);
            let bits = u64::from(o.imm(1)?) << 32 | u64::from(o.imm(2)?);
            value(o.dst(0, 2)?, [], move |[]| bits)
        }
        "IABS" => unary(o, |x| (x as i32).unsigned_abs())?,
        "POPC" => unary(o, u32::count_ones)?,
        "BREV" => unary(o, u32::reverse_bits)?,
        "FLO" => flo(o)?,
        "PRMT" => prmt(o)?,
        "SGXT" => sgxt(o)?,
        "BMSK" => bmsk(o)?,
        "PLOP3" => plop3(o)?,
        "IDP" => idp(o)?,
        "P2R" | "P2UR" => p2r(o)?,
        "R2P" => r2p(o)?,
        "R2UP" => ur2up(o)?,
        _ => return Ok(None),
    }))
}

/// A part of the sum of two registers that hold integers of `bits` bits, at its place.
fn sum_of_part(x: [u64; 2], minus: [bool; 2], at: usize, bits: usize, signed: bool, sat: bool) -> u64 {
    let part = |i: usize| {
        let bits_of = x[i] << (64 - bits - at) >> (64 - bits);
        let n = if signed { (bits_of << (64 - bits)) as i64 >> (64 - bits) } else { bits_of as i64 };
        if minus[i] { -n } else { n }
    };
    let sum = part(0) + part(1);
    let (low, high) = match signed {
        true => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
        false => (0, (1i64 << bits) - 1),
    };
    let sum = if sat { sum.clamp(low, high) } else { sum };
    (sum as u64 & (u64::MAX >> (64 - bits))) << at
}

fn unary(o: &Operands<'_>, f: impl Fn(u32) -> u32 + Send + Sync + 'static) -> Result<Exec, Unsupported> {
    Ok(word(o.dst(0, 1)?, [o.src(1, Kind::Int)?], move |[x]| f(x)))
}

/// The addend that a `-x` or `~x` stands for in a carry chain: `-x` is `~x + 1`, whose carry counts.
fn addend(s: Src) -> impl Fn(u32) -> u64 + Copy + Send + Sync {
    let (flip, one) = (if s.neg || s.not { u32::MAX } else { 0 }, u64::from(s.neg));
    move |x| u64::from(x ^ flip) + one
}

/// Rd, Pu, Pv, Ra, Rb, Rc, carry-in, carry-in: the carries out say whether the sum reached 2^32 and 2^33.
fn iadd3(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let x = o.take("X");
    let out = (Some(o.dst(0, 1)?), [o.pred_dst(1)?, o.pred_dst(2)?]);
    let s = [o.src(3, Kind::Int)?, o.src(4, Kind::Int)?, o.src(5, Kind::Int)?];
    // For hardware that is no instruction (docs/hardware-contract.md).
    if s[..2].iter().all(|s| s.neg || s.not) {
        return unsupported("IADD3 with signs on both of its first two terms");
    }
    let (dst, pdst) = out;
    let silent = pdst.iter().all(|p| p.is_none());
    if silent && !x {
        return Ok(words(dst, [], s.map(Word::of), [], |[a, b, c], []| {
            ([a.wrapping_add(b).wrapping_add(c)], [])
        }));
    }
    let (f, g, h) = (addend(s[0]), addend(s[1]), addend(s[2]));
    let srcs = s.map(|s| Word::of(s.plain()));
    if !x {
        return Ok(words(dst, pdst, srcs, [], move |[a, b, c], []| {
            let sum = f(a) + g(b) + h(c);
            ([sum as u32], [sum >> 32 != 0, sum >> 33 != 0])
        }));
    }
    let carries = [o.pred(6)?, o.pred(7)?];
    if silent {
        return Ok(words(dst, [], s.map(Word::of), carries, |[a, b, c], [p, q]| {
            ([a.wrapping_add(b).wrapping_add(c).wrapping_add(u32::from(p) + u32::from(q))], [])
        }));
    }
    Ok(words(dst, pdst, srcs, carries, move |[a, b, c], [p, q]| {
        let sum = f(a) + g(b) + h(c) + u64::from(p) + u64::from(q);
        ([sum as u32], [sum >> 32 != 0, sum >> 33 != 0])
    }))
}

/// 64-bit addition of `n` sources; operands as the 32-bit form's.
fn add_64(o: &Operands<'_>, n: usize) -> Result<Exec, Unsupported> {
    let x = o.take("X");
    let wide = |s: Src| {
        move |x: u64| match (s.neg, s.not) {
            (true, _) => u128::from(!x) + 1,
            (_, true) => u128::from(!x),
            _ => u128::from(x),
        }
    };
    let dst = Some(o.dst(0, 2)?);
    if n == 2 {
        let out = (dst, [o.pred_dst(1)?, PredDst::NONE]);
        let s = [o.src(2, Kind::Long)?, o.src(3, Kind::Long)?];
        let carry = if x { o.pred(4)? } else { Pred::TRUE };
        let (f, g) = (wide(s[0]), wide(s[1]));
        return Ok(lanewise(out, s.map(Src::plain), [carry], move |[a, b], [p]| {
            let sum = f(a) + g(b) + u128::from(x && p);
            (sum as u64, sum >> 64 != 0, false)
        }));
    }
    let out = (dst, [o.pred_dst(1)?, o.pred_dst(2)?]);
    let s = [o.src(3, Kind::Long)?, o.src(4, Kind::Long)?, o.src(5, Kind::Long)?];
    let (f, g, h) = (wide(s[0]), wide(s[1]), wide(s[2]));
    let carries = if x { [o.pred(6)?, o.pred(7)?] } else { [Pred::TRUE; 2] };
    Ok(lanewise(out, s.map(Src::plain), carries, move |[a, b, c], [p, q]| {
        let carry = u128::from(x && p) + u128::from(x && q);
        let sum = f(a) + g(b) + h(c) + carry;
        (sum as u64, sum >> 64 != 0, sum >> 65 != 0)
    }))
}

/// Rd, Pu, Ra, Rb, Rc, carry-in. WIDE and HI add a 64-bit Rc; HI keeps the high half.
fn imad(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (wide, hi, x) = (o.take("WIDE"), o.take("HI"), o.take("X"));
    let signed = !o.take("U32");
    // Spellings of special cases: the operands say it all.
    o.ignore(&["MOV", "SHL", "IADD", "S32"]);
    let addend_kind = if wide || hi { Kind::Long } else { Kind::Int };
    let (dst, carry) = (o.dst(0, if wide { 2 } else { 1 })?, o.pred_dst(1)?);
    let (a, b, c) = (o.src(2, Kind::Int)?, o.src(3, Kind::Int)?, o.src(4, addend_kind)?);
    if a.not || b.not || c.not && !x {
        return unsupported("a complemented source");
    }
    let (negate, c_neg, c_not) = (a.neg != b.neg, c.neg, c.not);
    let srcs = [a.plain(), b.plain(), c.plain()];
    let carry_in = if x { o.pred(5)? } else { Pred::TRUE };
    let wrote_carry = o.inst.operands[1].as_reg().is_some_and(|r| !r.reg.is_zero());
    if wrote_carry && negate {
        return unsupported("a carry out of this form");
    }
    if !wide && !hi {
        let three = [Word::of(srcs[0]), Word::of(srcs[1]), Word::of(srcs[2])];
        let sign = if negate { u32::MAX } else { 0 };
        let product = move |a: u32, b: u32| (a.wrapping_mul(b) ^ sign).wrapping_sub(sign);
        if !x && carry.is_none() {
            let three = [Word::of(srcs[0]), Word::of(srcs[1]), Word::of(c)];
            return Ok(words(Some(dst), [], three, [], move |[a, b, c], []| {
                ([product(a, b).wrapping_add(c)], [])
            }));
        }
        let addend = addend(c);
        return Ok(words(Some(dst), [carry], three, [carry_in], move |[a, b, c], [p]| {
            let sum = u64::from(product(a, b)) + addend(c) + u64::from(x && p);
            ([sum as u32], [sum >> 32 != 0])
        }));
    }
    if !x && carry.is_none() {
        let [low, high] = Word::pair(srcs[2]);
        let four = [Word::of(srcs[0]), Word::of(srcs[1]), low, high];
        let (c_sign, c_one) = (if c_neg || c_not { u64::MAX } else { 0 }, u64::from(c_neg));
        let sign = if negate { u64::MAX } else { 0 };
        let sum = move |[a, b, low, high]: [u32; 4]| {
            let product = if signed {
                (i64::from(a as i32).wrapping_mul(i64::from(b as i32))) as u64
            } else {
                u64::from(a) * u64::from(b)
            };
            let c = (u64::from(low) | u64::from(high) << 32) ^ c_sign;
            (product ^ sign).wrapping_sub(sign).wrapping_add(c).wrapping_add(c_one)
        };
        return Ok(match hi {
            true => words(Some(dst), [], four, [], move |x, []| ([(sum(x) >> 32) as u32], [])),
            false => {
                words(Some(dst), [], four, [], move |x, []| ([sum(x) as u32, (sum(x) >> 32) as u32], []))
            }
        });
    }
    Ok(lanewise((Some(dst), [carry, PredDst::NONE]), srcs, [carry_in], move |[a, b, c], [p]| {
        let product = if signed {
            (i64::from(a as i32) * i64::from(b as i32)) as u64
        } else {
            u64::from(a as u32) * u64::from(b as u32)
        };
        let product = if negate { product.wrapping_neg() } else { product };
        let c = match (c_neg, c_not) {
            (true, _) => u128::from(!c) + 1,
            (_, true) => u128::from(!c),
            _ => c.into(),
        };
        let sum = u128::from(product) + c + u128::from(x && p);
        let result = if hi { (sum >> 32) as u64 } else { sum as u64 };
        (result, sum >> 64 != 0, false)
    }))
}

/// Rd, Pu, Ra, Rb, Rc, shift, carry-in: `(Ra << shift) + Rb`, or the high half of `{Rc,Ra} << shift` plus Rb.
/// A minus on Ra negates the shifted value.
fn lea(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (hi, x, sx32) = (o.take("HI"), o.take("X"), o.take("SX32"));
    let out = (Some(o.dst(0, 1)?), [o.pred_dst(1)?, PredDst::NONE]);
    let (a, b, c) = (o.src(2, Kind::Int)?, o.src(3, Kind::Int)?, o.src(4, Kind::Int)?);
    let shift = o.imm(5)?;
    if shift > 31 {
        return unsupported("a shift above 31");
    }
    let (f, g) = (addend(a), addend(b));
    let srcs = [a.plain(), b.plain(), c].map(Word::of);
    let carry_in = if x { o.pred(6)? } else { Pred::TRUE };
    let (dst, [carry, _]) = out;
    if !hi && !x && carry.is_none() {
        return Ok(words(dst, [], srcs, [], move |[a, b, _], []| ([(f(a << shift) + g(b)) as u32], [])));
    }
    Ok(words(dst, [carry], srcs, [carry_in], move |[a, b, c], [p]| {
        let shifted = match (hi, sx32) {
            (true, true) => ((a as i32 as i64) << shift >> 32) as u32,
            (true, false) => ((u64::from(c) << 32 | u64::from(a)) << shift >> 32) as u32,
            _ => a << shift,
        };
        let sum = f(shifted) + g(b) + u64::from(x && p);
        ([sum as u32], [sum >> 32 != 0])
    }))
}

/// The bits of a three-input table applied bitwise: bit `4a+2b+c` of `table`.
fn lut(table: u32, a: u32, b: u32, c: u32) -> u32 {
    let term = |i: u32| {
        let pick = |x: u32, on: u32| if i & on != 0 { x } else { !x };
        pick(a, 4) & pick(b, 2) & pick(c, 1) & (table >> i & 1).wrapping_neg()
    };
    (0..8).fold(0, |r, i| r | term(i))
}

/// Pd, Rd, Ra, Rb, Rc, table, Pin: Pd is (result ≠ 0) or (with PAND: and) Pin.
fn lop3(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["LUT"]);
    let pand = o.take("PAND");
    let out = (Some(o.dst(1, 1)?), [o.pred_dst(0)?, PredDst::NONE]);
    let srcs = [o.src(2, Kind::Int)?, o.src(3, Kind::Int)?, o.src(4, Kind::Int)?];
    let table = o.imm(5)?;
    let (dst, [pdst, _]) = out;
    if !pdst.is_none() {
        return Ok(words(dst, [pdst], srcs.map(Word::of), [o.pred(6)?], move |[a, b, c], [p]| {
            let r = lut(table, a, b, c);
            ([r], [if pand { (r != 0) & p } else { (r != 0) | p }])
        }));
    }
    // The common tables are computed directly.
    let plain = srcs.map(Word::of);
    o.pred(6)?;
    Ok(match table {
        0xc0 => words(dst, [], plain, [], |[a, b, _], []| ([a & b], [])),
        0xfc => words(dst, [], plain, [], |[a, b, _], []| ([a | b], [])),
        0x3c => words(dst, [], plain, [], |[a, b, _], []| ([a ^ b], [])),
        0x33 => words(dst, [], plain, [], |[_, b, _], []| ([!b], [])),
        0x96 => words(dst, [], plain, [], |[a, b, c], []| ([a ^ b ^ c], [])),
        0xf8 => words(dst, [], plain, [], |[a, b, c], []| ([a | b & c], [])),
        0xe8 => words(dst, [], plain, [], |[a, b, c], []| ([a & b | a & c | b & c], [])),
        0xca => words(dst, [], plain, [], |[a, b, c], []| ([a & b | !a & c], [])),
        _ => words(dst, [], plain, [], move |[a, b, c], []| ([lut(table, a, b, c)], [])),
    })
}

/// Rd, low, shift, high: a funnel shift; HI keeps the high half.
fn shf(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let left = o.take("L");
    if !left && !o.take("R") {
        return unsupported("a shift without direction");
    }
    let wrap = o.take("W");
    let types = [("U32", (32, false)), ("S32", (32, true)), ("U64", (64, false)), ("S64", (64, true))];
    let Some((bits, signed)) = o.choose(&types) else {
        return unsupported("a shift without type");
    };
    let hi = o.take("HI");
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
    let (dst, three) = (o.dst(0, 1)?, srcs.map(Word::of));
    // Without a branch for each lane: the forms of code that shifts a word.
    let clamp = move |shift: u32| if wrap { shift & (bits - 1) } else { shift.min(bits) };
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    match (left, hi, signed, bits) {
        (true, false, _, _) => {
            return Ok(words(Some(dst), [], three, [], move |[low, shift, _], []| {
                let n = clamp(shift);
                ([if n > 31 { 0 } else { low << (n & 31) }], [])
            }));
        }
        (true, true, _, 32) => {
            return Ok(words(Some(dst), [], three, [], move |[low, shift, high], []| {
                // At most 32.
                ([(pair(low, high) << clamp(shift) >> 32) as u32], [])
            }));
        }
        (false, false, false, 32) => {
            return Ok(words(Some(dst), [], three, [], move |[low, shift, high], []| {
                ([(pair(low, high) >> clamp(shift)) as u32], [])
            }));
        }
        (false, true, false, 32) => {
            return Ok(words(Some(dst), [], three, [], move |[_, shift, high], []| {
                let n = clamp(shift);
                ([if n > 31 { 0 } else { high >> (n & 31) }], [])
            }));
        }
        (false, true, true, 32) => {
            return Ok(words(Some(dst), [], three, [], move |[_, shift, high], []| {
                ([(high as i32 >> clamp(shift).min(31)) as u32], [])
            }));
        }
        _ => {}
    }
    Ok(value(dst, srcs, move |[low, shift, high]| {
        let x = low | high << 32;
        let shift = shift as u32;
        let n = if wrap { shift & (bits - 1) } else { shift.min(bits) };
        let shifted = match (left, signed) {
            (true, _) => x.checked_shl(n).unwrap_or(0),
            (_, true) => (x as i64 >> n.min(63)) as u64,
            _ => x.checked_shr(n).unwrap_or(0),
        };
        if hi { shifted >> 32 } else { shifted & 0xffff_ffff }
    }))
}

/// Rd, Ra, Rb, P: a where P holds, else b. An immediate of 64 bits is a 32-bit number, `positive` or with ones before it.
/// The high half of a 64-bit immediate is all ones in the form for negative ones, else 0.
fn sel(o: &Operands<'_>, negative: bool) -> Result<Exec, Unsupported> {
    let (kind, width) = if o.take("64") { (Kind::Long, 2) } else { (Kind::Int, 1) };
    let srcs = [o.src(1, kind)?, o.src(2, kind)?];
    if width == 1 {
        let two = srcs.map(Word::of);
        return Ok(words(Some(o.dst(0, 1)?), [], two, [o.pred(3)?], |[a, b], [p]| {
            ([if p { a } else { b }], [])
        }));
    }
    let (keep, high) = match (o.imm(2), negative) {
        (Ok(_), true) => (u64::from(u32::MAX), u64::MAX << 32),
        (Ok(_), false) => (u64::from(u32::MAX), 0),
        (Err(_), _) => (u64::MAX, 0),
    };
    Ok(lanewise((Some(o.dst(0, width)?), NO_PREDS), srcs, [o.pred(3)?], move |[a, b], [p]| {
        (if p { a } else { b & keep | high }, false, false)
    }))
}

fn mov(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["SPILL"]);
    if o.len() > 2 && o.imm(2)? != 0xf {
        return unsupported("a byte mask");
    }
    if o.take("64") {
        return Ok(value(o.dst(0, 2)?, [o.src(1, Kind::Long)?], |[x]| x));
    }
    Ok(word(o.dst(0, 1)?, [o.src(1, Kind::Int)?], |[x]| x))
}

/// Rd, Pd, Ra: position of the highest set bit (S32: of the highest bit unlike the sign), or with SH the shift
/// that brings it to bit 31; all ones and a false predicate if there is none.
fn flo(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (signed, sh) = (!o.take("U32"), o.take("SH"));
    o.ignore(&["S32"]);
    let out = (Some(o.dst(0, 1)?), [o.pred_dst(1)?, PredDst::NONE]);
    Ok(lanewise(out, [o.src(2, Kind::Int)?], [], move |[x], []| {
        let x = x as u32;
        let x = if signed && (x as i32) < 0 { !x } else { x };
        match (x, sh) {
            (0, _) => (0xffff_ffff, false, false),
            (_, true) => (x.leading_zeros().into(), true, false),
            _ => (31 - u64::from(x.leading_zeros()), true, false),
        }
    }))
}

/// Rd, Ra, selector, Rc: bytes of {Rc,Ra}.
fn prmt(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["IDX"]);
    let modes = [("F4E", 1), ("B4E", 2), ("RC8", 3), ("ECL", 4), ("ECR", 5), ("RC16", 6)];
    let mode = o.choose(&modes).unwrap_or(0);
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
    let [_, select, _] = srcs;
    if let (0, From::Fixed(sel), false) = (mode, select.from, select.neg || select.abs || select.not) {
        // The bytes are chosen beforehand: each one comes from the pair, shifted, and may be its sign.
        let at: [u32; 4] = std::array::from_fn(|i| 8 * (sel as u32 >> (4 * i) & 7));
        let sign: [bool; 4] = std::array::from_fn(|i| sel >> (4 * i) & 8 != 0);
        return Ok(word(o.dst(0, 1)?, [srcs[0], srcs[2]], move |[a, c]| {
            let bytes = u64::from(a) | u64::from(c) << 32;
            let one = |i: usize| {
                let byte = (bytes >> at[i]) as u32 & 0xff;
                (if sign[i] { (byte >> 7) * 0xff } else { byte }) << (8 * i)
            };
            one(0) | one(1) | one(2) | one(3)
        }));
    }
    Ok(value(o.dst(0, 1)?, srcs, move |[a, sel, c]| permute(mode, a as u32, c as u32, sel as u32).into()))
}

/// PTX's `prmt` with its modes in their order.
pub(crate) fn permute(mode: u8, a: u32, b: u32, sel: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    let n = sel & 3;
    let pick = |i: u32| match mode {
        0 => sel >> (4 * i) & 15,
        1 => n + i,
        2 => n.wrapping_sub(i) & 7,
        3 => n,
        4 => i.max(n),
        5 => i.min(n),
        _ => (n & 1) * 2 + (i & 1),
    };
    (0..4).fold(0, |r, i| {
        let s = pick(i);
        let byte = (bytes >> (8 * (s & 7))) as u8;
        let byte = if mode == 0 && s & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        r | u32::from(byte) << (8 * i)
    })
}

/// Rd, Ra, n: the low n bits of Ra, sign- or zero-extended.
fn sgxt(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (unsigned, wrap) = (o.take("U32"), o.take("W"));
    o.ignore(&["S32"]);
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?];
    Ok(word(o.dst(0, 1)?, srcs, move |[a, n]| {
        let n = if wrap { n & 31 } else { n.min(32) };
        let shift = (32 - n) & 31;
        let up = a << shift;
        let r = if unsigned { up >> shift } else { (up as i32 >> shift) as u32 };
        if n == 0 { 0 } else { r }
    }))
}

/// Rd, position, width: ones of that width from that position up.
fn bmsk(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let wrap = o.take("W");
    o.ignore(&["C"]);
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?];
    Ok(value(o.dst(0, 1)?, srcs, move |[pos, width]| {
        let clamp = |x: u64| if wrap { x & 31 } else { x.min(32) };
        let ones = (1u64 << clamp(width)) - 1;
        ones << clamp(pos) & 0xffff_ffff
    }))
}

/// Pd, Pq, Pa, Pb, Pc, table for Pd, table for Pq.
fn plop3(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["LUT"]);
    let out = (None, [o.pred_dst(0)?, o.pred_dst(1)?]);
    let (t, u) = (o.imm(5)?, o.imm(6)?);
    let preds = [o.pred(2)?, o.pred(3)?, o.pred(4)?];
    let (_, pdst) = out;
    if pdst.iter().any(|p| p.is_uniform()) {
        return Ok(lanewise(out, [], preds, move |[], [a, b, c]| {
            let i = u32::from(a) * 4 + u32::from(b) * 2 + u32::from(c);
            (0, t >> i & 1 != 0, u >> i & 1 != 0)
        }));
    }
    Ok(Box::new(move |m, mask| {
        let [a, b, c] = preds.map(|p| p.mask(m.warp));
        let results = [lut(t, a, b, c), lut(u, a, b, c)];
        pdst.iter().zip(results).for_each(|(p, bits)| p.put_mask(m.warp, mask, bits));
        Ok(())
    }))
}

/// Rd, Ra, Rb, Rc: dot product of four bytes, or of two halves and two bytes, plus Rc.
fn idp(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (four, two) = (o.take("4A"), o.take("2A"));
    let high = o.take("HI");
    o.ignore(&["LO"]);
    let (ta, tb) = (o.next(), o.next());
    let signed = |t: Option<&str>, names: [&str; 2]| match t {
        Some(t) if t == names[0] => Ok(true),
        Some(t) if t == names[1] => Ok(false),
        _ => unsupported("a dot product of these types"),
    };
    let (sa, sb) = match (four, two) {
        (true, _) => (signed(ta, ["S8", "U8"])?, signed(tb, ["S8", "U8"])?),
        (_, true) => (signed(ta, ["S16", "U16"])?, signed(tb, ["S8", "U8"])?),
        _ => return unsupported("a dot product of this shape"),
    };
    let field = |x: u64, at: u32, bits: u32, signed: bool| {
        let up = (x as u32) << (32 - bits - at);
        if signed { i64::from(up as i32 >> (32 - bits)) } else { i64::from(up >> (32 - bits)) }
    };
    let srcs = [o.src(1, Kind::Int)?, o.src(2, Kind::Int)?, o.src(3, Kind::Int)?];
    Ok(value(o.dst(0, 1)?, srcs, move |[a, b, c]| {
        let sum: i64 = if four {
            (0..4).map(|i| field(a, 8 * i, 8, sa) * field(b, 8 * i, 8, sb)).sum()
        } else {
            let base = if high { 16 } else { 0 };
            (0..2).map(|i| field(a, 16 * i, 16, sa) * field(b, base + 8 * i, 8, sb)).sum()
        };
        u64::from((c as u32).wrapping_add(sum as u32))
    }))
}

/// The byte of a register that a `.B1` modifier names.
fn byte(o: &Operands<'_>) -> u32 {
    let names = [("B0", 0), ("B1", 8), ("B2", 16), ("B3", 24), ("A:B1", 8), ("A:B2", 16), ("A:B3", 24)];
    o.choose(&names).unwrap_or(0)
}

/// Rd, Ra, mask: the predicates under the mask in the chosen byte of Ra.
fn p2r(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let shift = byte(o);
    let (dst, a, mask) = (o.dst(0, 1)?, o.raw(1)?, o.raw(2)?);
    Ok(Box::new(move |m, lanes| {
        let w = &mut *m.warp;
        let (mut base, mut masks) = ([0; 32], [0; 32]);
        a.fetch(w, &mut base);
        mask.fetch(w, &mut masks);
        let lanes = if dst.is_uniform() { 1 } else { lanes };
        for lane in super::operand::lanes(lanes) {
            let bits = (0..7).fold(0, |r, i| {
                let set = if dst.is_uniform() { w.up[i] } else { w.p[i] >> lane & 1 != 0 };
                r | u64::from(set) << i
            });
            let keep = (masks[lane] & 0xff) << shift;
            dst.put(w, lane, base[lane] & !keep | bits << shift & keep);
        }
        Ok(())
    }))
}

/// Ra, mask: sets the predicates under the mask from the chosen byte of Ra.
fn r2p(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let shift = byte(o);
    let (a, mask) = (o.raw(0)?, o.raw(1)?);
    Ok(Box::new(move |m, lanes| {
        let w = &mut *m.warp;
        let (mut values, mut masks) = ([0; 32], [0; 32]);
        a.fetch(w, &mut values);
        mask.fetch(w, &mut masks);
        for lane in super::operand::lanes(lanes) {
            for i in (0..7).filter(|i| masks[lane] >> i & 1 != 0) {
                let bit = 1 << lane;
                let set = values[lane] >> (shift + i) & 1 != 0;
                let p = &mut w.p[i as usize];
                *p = if set { *p | bit } else { *p & !bit };
            }
        }
        Ok(())
    }))
}

/// The same of uniform predicates.
fn ur2up(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let shift = byte(o);
    let (a, mask) = (o.src(0, Kind::Int)?, o.src(1, Kind::Int)?);
    Ok(Box::new(move |m, _| {
        let (value, mask) = (a.uniform(m.warp), mask.uniform(m.warp));
        for i in (0..7).filter(|i| mask >> i & 1 != 0) {
            m.warp.up[i as usize] = value >> (shift + i) & 1 != 0;
        }
        Ok(())
    }))
}
