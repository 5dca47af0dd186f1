//! `fns` and arithmetic on pairs of 16-bit integers.

use crate::convert::minmax;
use crate::emit::{Emit, imm, ineg, rz};
use crate::types::Src;
use ori::{Builder, Operand, Value, operand};
use sass::{Mod, Opcode};

/// `fns`: the position of the n-th set bit of `mask` from `base` on, upwards or, for negative n, downwards;
/// for n = 0, `base` itself if its bit is set. All ones if there is none.
pub fn fns(b: &mut Builder<'_>, mask: &Src, base: &Src, n: &Src) -> Value {
    let (mask, base, n) = (mask.low(), base.low(), n.low());
    let down = operand(b.isetp(Mod::LT, true, n, rz()));
    let zero = operand(b.isetp(Mod::EQ, false, n, rz()));
    // Downwards is upwards in the reversed word.
    let reversed = b.def(Opcode::BREV, &[], std::slice::from_ref(&mask));
    let m = b.sel(down, operand(reversed), mask);
    let from_top = b.iadd(ineg(base), imm(31));
    let start = b.sel(down, operand(from_top), base);
    let outside = b.isetp(Mod::GT, false, operand(start), imm(31));
    let from = b.shl(Operand::Imm(!0), operand(start));
    let only = b.shl(imm(1), operand(start));
    let window = b.sel(zero, operand(only), operand(from));
    let window = b.sel(operand(outside), rz(), operand(window));
    let m = b.and(operand(m), operand(window));
    let negated = b.iadd(ineg(n), rz());
    let count = b.sel(down, operand(negated), n);
    let mut left = b.sel(zero, imm(1), operand(count));
    let total = b.def(Opcode::POPC, &[], &[operand(m)]);
    let missing = b.isetp(Mod::LT, false, operand(total), operand(left));
    // Binary search: skip the lower half of what remains while it holds fewer set bits than are left.
    let mut rest = m;
    let mut at = b.copy(rz());
    for width in [16, 8, 4, 2, 1] {
        let low = b.and(operand(rest), Operand::Imm((1 << width) - 1));
        let here = b.def(Opcode::POPC, &[], &[operand(low)]);
        let skip = operand(b.isetp(Mod::LT, false, operand(here), operand(left)));
        let fewer = b.iadd(operand(left), ineg(operand(here)));
        let above = b.shr(false, operand(rest), imm(width));
        let further = b.iadd(operand(at), imm(width));
        left = b.sel(skip, operand(fewer), operand(left));
        rest = b.sel(skip, operand(above), operand(rest));
        at = b.sel(skip, operand(further), operand(at));
    }
    let mirrored = b.iadd(ineg(operand(at)), imm(31));
    let at = b.sel(down, operand(mirrored), operand(at));
    b.sel(operand(missing), Operand::Imm(!0), operand(at))
}

/// `add.u16x2` and `add.s16x2`.
pub fn add_halves(b: &mut Builder<'_>, x: Operand, y: Operand) -> Value {
    let low = b.iadd(x, y);
    // Without x's low half there is no carry into the high one.
    let high = b.and(x, Operand::Imm(0xffff_0000));
    let high = b.iadd(operand(high), y);
    b.prmt(operand(low), imm(0x7610), operand(high))
}

/// `min` and `max` of pairs: one instruction, or the halves in turn.
pub fn min_max_halves(
    b: &mut Builder<'_>,
    max: bool,
    signed: bool,
    relu: bool,
    x: Operand,
    y: Operand,
) -> Value {
    if b.func.target.info().vimnmx {
        let kind = if signed { Mod::S16x2 } else { Mod::U16x2 };
        let mods = [kind, Mod::RELU];
        let which = if max { crate::emit::never() } else { crate::emit::pt() };
        return b.def(Opcode::VIMNMX, if relu { &mods } else { &mods[..1] }, &[x, y, which]);
    }
    let half = |b: &mut Builder<'_>, high: bool| {
        let selector = match (high, signed) {
            (false, true) => 0x9910,
            (true, true) => 0xbb32,
            (false, false) => 0x7710,
            (true, false) => 0x7732,
        };
        let mut pick = |o: &Operand| operand(b.prmt(*o, imm(selector), rz()));
        let (x, y) = (pick(&x), pick(&y));
        let r = minmax(b, max, signed, x, y);
        if relu { minmax(b, true, true, operand(r), rz()) } else { r }
    };
    let (low, high) = (half(b, false), half(b, true));
    b.prmt(operand(low), imm(0x5410), operand(high))
}
