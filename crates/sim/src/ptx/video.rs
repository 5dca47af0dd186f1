//! Video instructions, by the pseudocode of the PTX manual.

use super::decode::Code;
use super::thread::{Env, Res, Thread};
use ::ptx::ast::{Operand, Part};
use ::ptx::{Mod, Op, Type};

/// A register or constant with the part that is meant and whether it is negated.
struct Source {
    bits: u32,
    part: Option<Part>,
    negated: bool,
}

fn source(env: &Env<'_, '_>, t: &Thread, o: &Operand) -> Res<Source> {
    let p = env.program;
    Ok(match o {
        Operand::Part { reg, part } => {
            Source { bits: t.reg(p, *reg) as u32, part: Some(*part), negated: false }
        }
        Operand::NegReg(r) => Source { bits: t.reg(p, *r) as u32, part: None, negated: true },
        o => Source { bits: t.read(env, o, Type::b32)? as u32, part: None, negated: false },
    })
}

/// `bits` of `x` from `at` on, as a number.
fn number(x: u32, at: u32, bits: u32, signed: bool) -> i128 {
    let up = x << (32 - bits - at);
    if signed { i128::from(up as i32 >> (32 - bits)) } else { i128::from(up >> (32 - bits)) }
}

fn limits(signed: bool, bits: u32) -> (i128, i128) {
    if signed { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// The field of a part's n-th lane: bits, and where they start.
fn field(p: Part, lane: usize) -> (u32, u32) {
    let bits = if p.halves { 16 } else { 8 };
    (bits, bits * u32::from(p.lanes[lane]))
}

fn compare(inst: &::ptx::Inst, a: i128, b: i128) -> i128 {
    i128::from(match inst.one_of(&[Mod::eq, Mod::ne, Mod::lt, Mod::le, Mod::gt, Mod::ge]) {
        Some(Mod::eq) => a == b,
        Some(Mod::ne) => a != b,
        Some(Mod::lt) => a < b,
        Some(Mod::le) => a <= b,
        Some(Mod::gt) => a > b,
        _ => a >= b,
    })
}

/// Runs a video instruction.
pub(super) fn execute(env: &mut Env<'_, '_>, t: &mut Thread, code: &Code<'_>) -> Res<()> {
    let inst = code.inst;
    let ops = &inst.operands;
    let (to, part) = match &ops[0] {
        Operand::Part { reg, part } => (Operand::Reg(*reg), Some(*part)),
        o => (o.clone(), None),
    };
    let sources: Vec<Source> = ops[1..].iter().map(|o| source(env, t, o)).collect::<Res<_>>()?;
    let name = inst.op.name();
    let bits = match name.as_bytes()[name.len() - 1] {
        b'2' => simd(code, &sources, part, 2),
        b'4' => simd(code, &sources, part, 4),
        _ => scalar(code, &sources, part),
    };
    let bits = bits.ok_or("unsupported instruction")?;
    t.write(env.program, &to, bits.into(), Type::b32)
}

fn is_signed(code: &Code<'_>, n: usize) -> bool {
    code.inst.ty(n).is_some_and(Type::is_signed)
}

fn scalar(code: &Code<'_>, s: &[Source], part: Option<Part>) -> Option<u32> {
    let inst = code.inst;
    let set = inst.op == Op::vset;
    let first = usize::from(!set);
    let signed = !set && is_signed(code, 0);
    let value = |n: usize| {
        let (bits, at) = s[n].part.map_or((32, 0), |p| field(p, 0));
        number(s[n].bits, at, bits, is_signed(code, first + n))
    };
    let (a, b) = (value(0), value(1));
    if inst.op == Op::vmad {
        return Some(vmad(code, a, b, s));
    }
    let amount = if inst.has(Mod::wrap) { b & 31 } else { b.min(32) };
    let mut r = match inst.op {
        Op::vadd => a + b,
        Op::vsub => a - b,
        Op::vabsdiff => (a - b).abs(),
        Op::vmin => a.min(b),
        Op::vmax => a.max(b),
        // 64 bits, of which saturation sees more.
        Op::vshl if !code.sat => i128::from((a << amount) as i64),
        Op::vshl => a << amount,
        Op::vshr => a >> amount,
        Op::vset => compare(inst, a, b),
        _ => return None,
    };
    if code.sat {
        let (least, greatest) = limits(signed, part.map_or(32, |p| field(p, 0).0));
        r = r.clamp(least, greatest);
    }
    let step = inst.mods.iter().rev().find(|m| matches!(m, Mod::add | Mod::min | Mod::max));
    let c = s.get(2).map(|c| number(c.bits, 0, 32, signed));
    Some(match (step, c, part) {
        (Some(Mod::add), Some(c), _) => (r + c) as u32,
        (Some(Mod::min), Some(c), _) => r.min(c) as u32,
        (Some(_), Some(c), _) => r.max(c) as u32,
        (None, Some(_), Some(p)) => {
            let (bits, at) = field(p, 0);
            let mask = (((1u64 << bits) - 1) as u32) << at;
            (r as u32) << at & mask | s[2].bits & !mask
        }
        _ => r as u32,
    })
}

fn vmad(code: &Code<'_>, a: i128, b: i128, s: &[Source]) -> u32 {
    let inst = code.inst;
    let negate = s[0].negated != s[1].negated;
    let signed = is_signed(code, 1) || is_signed(code, 2) || negate || s[2].negated;
    let mut product = a * b;
    let mut c = s[2].bits;
    let mut one = i128::from(inst.has(Mod::po));
    if negate {
        (product, one) = (!product, 1);
    } else if s[2].negated {
        (c, one) = (!c, 1);
    }
    let sum = product + number(c, 0, 32, signed) + one;
    let shifted = match inst.one_of(&[Mod::shr7, Mod::shr15]) {
        Some(Mod::shr7) => sum >> 7,
        Some(_) => sum >> 15,
        None => sum,
    };
    let (least, greatest) = limits(signed, 32);
    (if code.sat { shifted.clamp(least, greatest) } else { shifted }) as u32
}

fn simd(code: &Code<'_>, s: &[Source], mask: Option<Part>, lanes: usize) -> Option<u32> {
    let inst = code.inst;
    let bits = 32 / lanes as u32;
    let set = matches!(inst.op, Op::vset2 | Op::vset4);
    let first = usize::from(!set);
    let signed = !set && is_signed(code, 0);
    // Lane i of a source is one of the lanes of both registers together.
    let lane = |n: usize, i: usize| {
        let at = match s[n].part {
            Some(p) => usize::from(p.lanes[lanes - 1 - i]),
            None => n * lanes + i,
        };
        number(s[at / lanes].bits, (at % lanes) as u32 * bits, bits, is_signed(code, first + n))
    };
    let mut d = s.get(2)?.bits;
    for i in 0..lanes {
        if mask.is_some_and(|p| !p.lanes[..p.count.into()].contains(&(i as u8))) {
            continue;
        }
        let (a, b) = (lane(0, i), lane(1, i));
        let mut r = match inst.op {
            Op::vadd2 | Op::vadd4 => a + b,
            Op::vsub2 | Op::vsub4 => a - b,
            Op::vavrg2 | Op::vavrg4 if a + b >= 0 => (a + b + 1) >> 1,
            Op::vavrg2 | Op::vavrg4 => (a + b) >> 1,
            Op::vabsdiff2 | Op::vabsdiff4 => (a - b).abs(),
            Op::vmin2 | Op::vmin4 => a.min(b),
            Op::vmax2 | Op::vmax4 => a.max(b),
            Op::vset2 | Op::vset4 => compare(inst, a, b),
            _ => return None,
        };
        if code.sat {
            let (least, greatest) = limits(signed, bits);
            r = r.clamp(least, greatest);
        }
        if inst.has(Mod::add) {
            d = d.wrapping_add(r as u32);
        } else {
            let (at, ones) = (i as u32 * bits, ((1u64 << bits) - 1) as u32);
            d = d & !(ones << at) | (r as u32 & ones) << at;
        }
    }
    Some(d)
}
