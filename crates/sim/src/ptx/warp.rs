//! Instructions that the lanes of a warp execute together.

use super::decode::{Code, garbage};
use super::int::{mask, value};
use super::thread::{Env, Res, Thread};
use ::ptx::ast::Operand;
use ::ptx::{Mod, Op, Type};

/// The operand that says which lanes take part; `None` where all do.
pub(super) fn member_mask<'m>(code: &Code<'m>) -> Option<&'m Operand> {
    let whole = is_matrix(code.inst.op) || super::tcgen05::is_collective(code.inst);
    if whole { None } else { code.inst.operands.last() }
}

/// Whether the whole warp executes it on one matrix.
pub(super) fn is_matrix(op: Op) -> bool {
    matches!(op, Op::mma | Op::wmma | Op::wgmma | Op::ldmatrix | Op::stmatrix | Op::movmatrix)
}

/// Whether two lanes wait for each other: the same operation with the same modifiers.
pub(super) fn same(a: &Code<'_>, b: &Code<'_>) -> bool {
    a.inst.op == b.inst.op && a.inst.mods == b.inst.mods
}

/// Executes a `.sync` instruction for `lanes` (indices into `threads`, ascending), each at its own place in
/// the code.
pub(super) fn collective(
    env: &mut Env<'_, '_>,
    threads: &mut [Thread],
    lanes: &[usize],
    codes: &[&Code<'_>],
) -> Res<()> {
    let p = env.program;
    let Some(first) = codes.first() else { return Ok(()) };
    let inst = first.inst;
    // The source operand of each lane.
    let source = |threads: &[Thread], i: usize, ty: Type| -> Res<Vec<u64>> {
        lanes.iter().zip(codes).map(|(l, c)| threads[*l].read(env, &c.inst.operands[i], ty)).collect()
    };
    let bit = |threads: &[Thread], l: usize| 1u32 << threads[l].lane();
    let members = lanes.iter().fold(0, |m, l| m | bit(threads, *l));
    match inst.op {
        Op::bar | Op::barrier => {}
        Op::shfl => {
            let a = source(threads, 1, Type::b32)?;
            let b = source(threads, 2, Type::b32)?;
            let c = source(threads, 3, Type::b32)?;
            for (i, (l, code)) in lanes.iter().zip(codes).enumerate() {
                let lane = threads[*l].lane() as i32;
                let (from, in_range) = shuffle_source(inst.one_of(&SHUFFLES), lane, b[i] as u32, c[i] as u32);
                let from = if in_range { from } else { lane };
                // Reading a lane that takes no part is undefined: the lane's own value, or another in other runs.
                let k = lanes.iter().position(|l| threads[*l].lane() as i32 == from);
                let absent = a[i] ^ garbage(p.fill, from as usize & 31);
                let o = &code.inst.operands[0];
                threads[*l].write(p, o, k.map_or(absent, |k| a[k]), Type::b32)?;
                threads[*l].write_second(p, o, in_range);
            }
        }
        Op::vote => {
            let v = source(threads, 1, Type::pred)?;
            let ballot =
                lanes.iter().zip(&v).filter(|(_, v)| **v != 0).fold(0, |m, (l, _)| m | bit(threads, *l));
            let (bits, ty) = match inst.one_of(&[Mod::all, Mod::any, Mod::uni, Mod::ballot]) {
                Some(Mod::all) => (u32::from(ballot == members), Type::pred),
                Some(Mod::any) => (u32::from(ballot != 0), Type::pred),
                Some(Mod::uni) => (u32::from(ballot == 0 || ballot == members), Type::pred),
                _ => (ballot, Type::b32),
            };
            for (l, code) in lanes.iter().zip(codes) {
                threads[*l].write(p, &code.inst.operands[0], bits.into(), ty)?;
            }
        }
        Op::_match => {
            let v = source(threads, 1, first.ty)?;
            let all = v.iter().all(|x| *x == v[0]);
            for (i, (l, code)) in lanes.iter().zip(codes).enumerate() {
                let equal = lanes.iter().zip(&v).filter(|(_, x)| **x == v[i]);
                let equal = equal.fold(0, |m, (l, _)| m | bit(threads, *l));
                let bits = if inst.has(Mod::any) || all { equal } else { 0 };
                threads[*l].write(p, &code.inst.operands[0], bits.into(), Type::b32)?;
                threads[*l].write_second(p, &code.inst.operands[0], all);
            }
        }
        Op::redux => {
            let ty = first.ty;
            let v = source(threads, 1, ty)?;
            let numbers = v.iter().map(|x| value(*x, ty));
            let floats = super::float::format(ty).map(|f| {
                let abs = |x: &u64| if inst.has(Mod::abs) { x & !(1 << (f.bits() - 1)) } else { *x };
                let pick = |a, b| crate::sass::extremum(f, a, b, inst.has(Mod::min), inst.has(Mod::NaN));
                v.iter().map(abs).reduce(pick).unwrap_or(0)
            });
            let r = match inst.one_of(&[Mod::add, Mod::min, Mod::max, Mod::and, Mod::or, Mod::xor]) {
                _ if floats.is_some() => floats.unwrap_or(0),
                Some(Mod::add) => numbers.sum::<i128>() as u64,
                Some(Mod::min) => numbers.min().unwrap_or(0) as u64,
                Some(Mod::max) => numbers.max().unwrap_or(0) as u64,
                Some(Mod::and) => v.iter().fold(u64::MAX, |r, x| r & x),
                Some(Mod::or) => v.iter().fold(0, |r, x| r | x),
                _ => v.iter().fold(0, |r, x| r ^ x),
            };
            for (l, code) in lanes.iter().zip(codes) {
                threads[*l].write(p, &code.inst.operands[0], r & mask(ty), ty)?;
            }
        }
        Op::elect => {
            let leader = members.trailing_zeros();
            for (l, code) in lanes.iter().zip(codes) {
                let chosen = threads[*l].lane() == leader;
                threads[*l].write(p, &code.inst.operands[0], leader.into(), Type::b32)?;
                threads[*l].write_second(p, &code.inst.operands[0], chosen);
            }
        }
        Op::tcgen05 => super::tcgen05::collective(env, threads, lanes, first)?,
        _ if is_matrix(inst.op) => super::tensor::execute(env, threads, lanes, first)?,
        _ => return Err("unsupported instruction".into()),
    }
    Ok(())
}

const SHUFFLES: [Mod; 4] = [Mod::up, Mod::down, Mod::bfly, Mod::idx];

/// The lane that `shfl` reads, and whether it is inside the segment.
fn shuffle_source(mode: Option<Mod>, lane: i32, b: u32, c: u32) -> (i32, bool) {
    let (b, clamp, segment) = (b as i32 & 31, c as i32 & 31, c as i32 >> 8 & 31);
    let most = lane & segment | clamp & !segment;
    let least = lane & segment;
    let from = match mode {
        Some(Mod::up) => lane - b,
        Some(Mod::down) => lane + b,
        Some(Mod::bfly) => lane ^ b,
        _ => least | b & !segment,
    };
    (from, if mode == Some(Mod::up) { from >= most } else { from <= most })
}
