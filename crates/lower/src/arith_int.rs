//! Integer arithmetic, logic, shifts and bit fields of 16, 32 and 64 bits.
//!
//! Values of 8- and 16-bit registers live in the low bits of a 32-bit register; the bits above are
//! undefined, so whatever depends on them extends its operands first.

use crate::convert::{extend32, extend64, minmax, minmax64};
use crate::divconst;
use crate::emit::{Emit, Pair, as_imm, imm, ineg, inot, isetp64_combined, pt, rz};
use crate::math::{self, Want};
use crate::types::{Src, Ty};
use crate::wide;
use ori::{Builder, Operand, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Mod, Opcode};

/// `a + b`.
pub fn add(b: &mut Builder<'_>, ty: Ty, x: &Src, y: &Src) -> Value {
    if ty.bits == 64 { b.add64(&x.pair(), &y.pair()) } else { b.iadd(x.low(), y.low()) }
}

/// `a - b`.
pub fn sub(b: &mut Builder<'_>, ty: Ty, x: &Src, y: &Src) -> Value {
    if ty.bits == 64 { b.sub64(&x.pair(), &y.pair()) } else { b.iadd(x.low(), ineg(y.low())) }
}

/// `add.sat.s32` and `sub.sat.s32`.
pub fn add_sat(b: &mut Builder<'_>, subtract: bool, x: &Src, y: &Src) -> Value {
    let (x, y) = (x.low(), y.low());
    let sum = if subtract { b.iadd(x, ineg(y)) } else { b.iadd(x, y) };
    // Overflow: the sign of the result is neither what x's nor what ±y's says.
    let lut = if subtract { 0x18 } else { 0x42 };
    let over = b.lop3(x, y, operand(sum), lut);
    let over = b.isetp(Mod::LT, true, operand(over), rz());
    let sign = b.shr(true, x, imm(31));
    let limit = b.xor(operand(sign), Operand::Imm(0x7fff_ffff));
    b.sel(operand(over), operand(limit), operand(sum))
}

/// Which part of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// `.lo`
    Lo,
    /// `.hi`
    Hi,
    /// `.wide`
    Wide,
}

/// `a × b`.
pub fn mul(b: &mut Builder<'_>, ty: Ty, part: Part, x: &Src, y: &Src) -> Value {
    let signed = ty.is_signed();
    match (ty.bits, part) {
        (64, Part::Lo) => wide::mul_lo64(b, &x.pair(), &y.pair()),
        (64, _) => wide::mul_hi64(b, signed, &x.pair(), &y.pair()),
        (32, Part::Lo) => mul_lo32(b, x.low(), y.low()),
        (32, Part::Hi) => b.imul_hi(signed, x.low(), y.low()),
        (32, Part::Wide) => mul_wide(b, signed, x.low(), y.low()),
        (_, Part::Lo) => mul_lo32(b, x.low(), y.low()),
        (_, part) => {
            let (x, y) = (extend32(b, &x.low(), ty), extend32(b, &y.low(), ty));
            let product = b.imad(x, y, rz());
            if part == Part::Wide { product } else { b.shr(signed, operand(product), imm(16)) }
        }
    }
}

fn power_of_two(o: &Operand) -> Option<u32> {
    as_imm(o).filter(|n| n.is_power_of_two()).map(u32::trailing_zeros)
}

fn mul_lo32(b: &mut Builder<'_>, x: Operand, y: Operand) -> Value {
    match (power_of_two(&x), power_of_two(&y)) {
        (_, Some(k)) => b.shl(x, imm(k)),
        (Some(k), _) => b.shl(y, imm(k)),
        _ => b.imad(x, y, rz()),
    }
}

fn mul_wide(b: &mut Builder<'_>, signed: bool, x: Operand, y: Operand) -> Value {
    b.imad_wide(signed, x, y, rz())
}

/// `a × b + c`.
pub fn mad(b: &mut Builder<'_>, ty: Ty, part: Part, x: &Src, y: &Src, z: &Src) -> Value {
    let signed = ty.is_signed();
    match (ty.bits, part) {
        (16 | 32, Part::Lo) => b.imad(x.low(), y.low(), z.low()),
        (32, Part::Wide) => {
            let c = b.pair(&z.pair());
            b.imad_wide(signed, x.low(), y.low(), operand(c))
        }
        (64, Part::Lo) => {
            let c = b.pair(&z.pair());
            let (x, y) = (x.pair(), y.pair());
            let low = b.imad_wide(false, x.lo, y.lo, operand(c));
            let mut hi = operand(ori::Name::Part(low, 1));
            if as_imm(&y.hi) != Some(0) {
                hi = operand(b.imad(x.lo, y.hi, hi));
            }
            if as_imm(&x.hi) != Some(0) {
                hi = operand(b.imad(x.hi, y.lo, hi));
            }
            b.collect(&[operand(ori::Name::Part(low, 0)), hi])
        }
        (bits, part) => {
            let product = mul(b, ty, part, x, y);
            if bits == 64 {
                b.add64(&Pair::of(product), &z.pair())
            } else {
                b.iadd(operand(product), z.low())
            }
        }
    }
}

/// The low 24 bits, extended.
fn low24(b: &mut Builder<'_>, signed: bool, x: Operand) -> Operand {
    if signed {
        let up = b.shl(x, imm(8));
        operand(b.shr(true, operand(up), imm(8)))
    } else {
        operand(b.and(x, Operand::Imm(0xff_ffff)))
    }
}

/// `mul24` and `mad24`.
pub fn mul24(b: &mut Builder<'_>, ty: Ty, hi: bool, x: &Src, y: &Src, add: Option<&Src>) -> Value {
    let signed = ty.is_signed();
    let (x, y) = (low24(b, signed, x.low()), low24(b, signed, y.low()));
    let addend = add.map_or_else(rz, Src::low);
    if hi {
        let p = Pair::of(b.imad_wide(signed, x, y, rz()));
        let bits = b.shf(&[Mod::R, Mod::U64], p.lo, imm(16), p.hi);
        if add.is_some() { b.iadd(operand(bits), addend) } else { bits }
    } else {
        b.imad(x, y, addend)
    }
}

/// The 64-bit registers of whose upper halves the code sees whether they are zero, as the front ends based on LLVM do before
/// they divide: `and.b64 t, n, 0xffffffff00000000`, or of `or.b64 s, n, d`. Only how fast a division is depends on this.
pub fn looked_at<'i>(insts: impl Iterator<Item = &'i ptx::Inst> + Clone) -> FxHashSet<ptx::RegId> {
    use ptx::{Mod as M, Op as O, Operand as P};
    let mut sums: FxHashMap<ptx::RegId, [ptx::RegId; 2]> = FxHashMap::default();
    for i in insts.clone().filter(|i| i.op == O::or && i.has(M::b64)) {
        if let [P::Reg(to), P::Reg(a), P::Reg(b)] = i.operands[..] {
            sums.insert(to, [a, b]);
        }
    }
    let mut found = FxHashSet::default();
    for i in insts.filter(|i| i.op == O::and && i.has(M::b64)) {
        if let [_, P::Reg(of), P::Int(0xffff_ffff_0000_0000)] = i.operands[..] {
            found.insert(of);
            found.extend(sums.get(&of).into_iter().flatten());
        }
    }
    found
}

/// Quotient or remainder; `looked` says that operands of 64 bits are not likely to be small.
pub fn div(b: &mut Builder<'_>, ty: Ty, rem: bool, looked: bool, x: &Src, y: &Src) -> Value {
    let signed = ty.is_signed();
    let want = if rem { Want::Remainder } else { Want::Quotient };
    if ty.bits == 64 {
        let (n, d) = (x.pair(), y.pair());
        if let Some(c) = d.as_imm() {
            let q = if signed { divconst::div_s64(b, &n, c as i64) } else { divconst::div_u64(b, &n, c) };
            if let Some(q) = q {
                return if rem { divconst::rem64(b, &n, q, c) } else { q };
            }
        }
        let (n, d) = (b.pair(&n), b.pair(&d));
        let divide = if signed { math::div_s64 } else { math::div_u64 };
        return divide(b, n, d, want, looked);
    }
    let (n, d) = (extend32(b, &x.low(), ty), extend32(b, &y.low(), ty));
    if let Some(c) = as_imm(&d) {
        if rem && !signed && c.is_power_of_two() {
            return b.and(n, imm(c - 1));
        }
        let q = if signed { divconst::div_s32(b, &n, c as i32) } else { divconst::div_u32(b, &n, c) };
        if let Some(q) = q {
            return if rem { divconst::rem32(b, &n, q, c) } else { q };
        }
    }
    let (n, d) = (b.reg(&n), b.reg(&d));
    if signed { math::div_s32(b, n, d, want) } else { math::div_u32(b, n, d, want) }
}

/// `-a`.
pub fn neg(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    if ty.bits == 64 { wide::neg64(b, &x.pair()) } else { b.iadd(rz(), ineg(x.low())) }
}

/// `|a|`.
pub fn abs(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    if ty.bits == 64 {
        return wide::abs64(b, &x.pair());
    }
    let x = extend32(b, &x.low(), ty);
    b.def(Opcode::IABS, &[], &[x])
}

/// `min` and `max`.
pub fn min_max(b: &mut Builder<'_>, ty: Ty, max: bool, x: &Src, y: &Src) -> Value {
    if ty.bits == 64 {
        return minmax64(b, max, ty.is_signed(), &x.pair(), &y.pair());
    }
    let (x, y) = (extend32(b, &x.low(), ty), extend32(b, &y.low(), ty));
    minmax(b, max, ty.is_signed(), x, y)
}

/// `c + |a - b|`.
pub fn sad(b: &mut Builder<'_>, ty: Ty, x: &Src, y: &Src, z: &Src) -> Value {
    let big = min_max(b, ty, true, x, y);
    let small = min_max(b, ty, false, x, y);
    if ty.bits == 64 {
        let d = b.sub64(&Pair::of(big), &Pair::of(small));
        b.add64(&Pair::of(d), &z.pair())
    } else {
        b.iadd3(operand(big), ineg(operand(small)), z.low())
    }
}

/// Bitwise operation; `lut` over a = 0xf0, b = 0xcc.
pub fn logic(b: &mut Builder<'_>, ty: Ty, lut: u8, x: &Src, y: &Src) -> Value {
    if ty.bits == 64 {
        wide::logic64(b, lut, &x.pair(), &y.pair())
    } else {
        b.lop3(x.low(), y.low(), rz(), lut)
    }
}

/// `a == 0 ? 1 : 0`.
pub fn cnot(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    let zero = match ty.bits {
        64 => b.isetp64(Mod::EQ, false, &x.pair(), &Pair::imm(0)),
        _ => {
            let x = extend32(b, &x.low(), Ty { kind: crate::types::Kind::Unsigned, ..ty });
            b.isetp(Mod::EQ, false, x, rz())
        }
    };
    let r = b.sel(operand(zero), imm(1), rz());
    if ty.bits == 64 { b.collect(&[operand(r), rz()]) } else { r }
}

/// `a << n`.
pub fn shl(b: &mut Builder<'_>, ty: Ty, x: &Src, n: &Src) -> Value {
    if ty.bits == 64 { wide::shl64(b, &x.pair(), &n.low()) } else { b.shl(x.low(), n.low()) }
}

/// `a >> n`.
pub fn shr(b: &mut Builder<'_>, ty: Ty, x: &Src, n: &Src) -> Value {
    if ty.bits == 64 {
        return wide::shr64(b, ty.is_signed(), &x.pair(), &n.low());
    }
    let x = extend32(b, &x.low(), ty);
    b.shr(ty.is_signed(), x, n.low())
}

/// `shf.l` and `shf.r`.
pub fn funnel(b: &mut Builder<'_>, left: bool, wrap: bool, lo: &Src, hi: &Src, n: &Src) -> Value {
    let mods: &[Mod] = match (left, wrap) {
        (true, true) => &[Mod::L, Mod::W, Mod::U32, Mod::HI],
        (true, false) => &[Mod::L, Mod::U32, Mod::HI],
        (false, true) => &[Mod::R, Mod::W, Mod::U32],
        (false, false) => &[Mod::R, Mod::U32],
    };
    b.shf(mods, lo.low(), n.low(), hi.low())
}

/// The low byte of a position or length operand.
fn low_byte(b: &mut Builder<'_>, o: Operand) -> Operand {
    match as_imm(&o) {
        Some(n) => imm(n & 0xff),
        None => operand(b.and(o, Operand::Imm(0xff))),
    }
}

/// `bfe`.
pub fn bfe(b: &mut Builder<'_>, ty: Ty, x: &Src, pos: &Src, len: &Src) -> Value {
    let (pos, len) = (low_byte(b, pos.low()), low_byte(b, len.low()));
    let signed = ty.is_signed();
    if ty.bits == 64 {
        let field = Pair::of(wide::shr64(b, signed, &x.pair(), &pos));
        if signed {
            let len = minmax(b, false, false, len, imm(64));
            let rest = b.iadd(imm(64), ineg(operand(len)));
            let up = wide::shl64(b, &field, &operand(rest));
            return wide::shr64(b, true, &Pair::of(up), &operand(rest));
        }
        let mask = ones64(b, &len);
        return wide::logic64(b, 0xc0, &field, &mask);
    }
    let field = b.shr(signed, x.low(), pos);
    b.def(Opcode::SGXT, if signed { &[] } else { &[Mod::U32] }, &[operand(field), len])
}

/// `len` ones, from bit 0 on, of 64.
fn ones64(b: &mut Builder<'_>, len: &Operand) -> Pair {
    if let Some(n) = as_imm(len) {
        return Pair::imm(if n > 63 { !0 } else { (1 << n) - 1 });
    }
    let top = Pair::of(wide::shl64(b, &Pair::imm(1), len));
    Pair::of(b.add64(&top, &Pair::imm(!0)))
}

/// `bfi`: the low `len` bits of `x` at `pos` into `y`.
pub fn bfi(b: &mut Builder<'_>, ty: Ty, x: &Src, y: &Src, pos: &Src, len: &Src) -> Value {
    let (pos, len) = (low_byte(b, pos.low()), low_byte(b, len.low()));
    if ty.bits == 64 {
        let ones = ones64(b, &len);
        let mask = Pair::of(wide::shl64(b, &ones, &pos));
        let field = Pair::of(wide::shl64(b, &x.pair(), &pos));
        let y = y.pair();
        let lo = b.lop3(field.lo, y.lo, mask.lo, 0xe4);
        let hi = b.lop3(field.hi, y.hi, mask.hi, 0xe4);
        return b.collect(&[operand(lo), operand(hi)]);
    }
    let field = b.shl(x.low(), pos);
    let mask = match (as_imm(&pos), as_imm(&len)) {
        (Some(p), Some(n)) => {
            let ones = if n > 31 { !0 } else { (1u32 << n) - 1 };
            imm(if p > 31 { 0 } else { ones << p })
        }
        _ => operand(b.def(Opcode::BMSK, &[], &[pos, len])),
    };
    b.lop3(operand(field), y.low(), mask, 0xe4)
}

/// `popc`.
pub fn popc(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    if ty.bits == 64 { wide::popc64(b, &x.pair()) } else { b.def(Opcode::POPC, &[], &[x.low()]) }
}

/// `clz`.
pub fn clz(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    if ty.bits == 64 {
        return wide::clz64(b, &x.pair());
    }
    let top = wide::flo(b, false, x.low());
    b.iadd(ineg(operand(top)), imm(31))
}

/// `brev`.
pub fn brev(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    if ty.bits == 64 { wide::brev64(b, &x.pair()) } else { b.def(Opcode::BREV, &[], &[x.low()]) }
}

/// `bfind`.
pub fn bfind(b: &mut Builder<'_>, ty: Ty, shift_amount: bool, x: &Src) -> Value {
    let signed = ty.is_signed();
    if shift_amount && ty.bits == 32 {
        return wide::flo_shift(b, signed, x.low());
    }
    let top = if ty.bits == 64 { wide::flo64(b, signed, &x.pair()) } else { wide::flo(b, signed, x.low()) };
    if !shift_amount {
        return top;
    }
    let none = b.isetp(Mod::EQ, false, operand(top), imm(!0));
    let shift = b.iadd(ineg(operand(top)), imm(u32::from(ty.bits) - 1));
    b.sel(operand(none), imm(!0), operand(shift))
}

/// `slct`: `c >= 0 ? a : b`, of which `p` is the condition.
pub fn select(b: &mut Builder<'_>, ty: Ty, p: Operand, x: &Src, y: &Src) -> Value {
    if ty.bits == 64 { b.sel64(p, &x.pair(), &y.pair()) } else { b.sel(p, x.low(), y.low()) }
}

/// Comparison of a `setp`, with the predicate it is combined with.
#[derive(Clone, Debug)]
pub struct Combine {
    /// AND, OR or XOR.
    pub op: Mod,
    /// The other predicate.
    pub with: Operand,
}

impl Default for Combine {
    fn default() -> Self {
        Combine { op: Mod::AND, with: pt() }
    }
}

/// Integer `setp`: `(x cmp y) op with`.
pub fn setp(b: &mut Builder<'_>, ty: Ty, cmp: Mod, x: &Src, y: &Src, combine: &Combine) -> Value {
    let signed = ty.is_signed();
    if ty.bits == 64 {
        let with = combine.with;
        return isetp64_combined(b, cmp, signed, &x.pair(), &y.pair(), combine.op, with);
    }
    let mut mods: smallvec::SmallVec<[Mod; 4]> = smallvec::SmallVec::new();
    mods.push(cmp);
    if !signed {
        mods.push(Mod::U32);
    }
    mods.push(combine.op);
    let (x, y) = (extend32(b, &x.low(), ty), extend32(b, &y.low(), ty));
    b.def_pred(Opcode::ISETP, &mods, &[x, y, combine.with, pt()])
}

/// `dp4a` and `dp2a` (`half`: which two bytes of `y`).
pub fn dot(b: &mut Builder<'_>, half: Option<Mod>, signed: (bool, bool), x: &Src, y: &Src, z: &Src) -> Value {
    let byte = |s: bool| if s { Mod::S8 } else { Mod::U8 };
    let word = |s: bool| if s { Mod::S16 } else { Mod::U16 };
    match half {
        None => b.def(Opcode::IDP, &[Mod::_4A, byte(signed.0), byte(signed.1)], &[x.low(), y.low(), z.low()]),
        Some(h) => {
            let mods = [Mod::_2A, h, word(signed.0), byte(signed.1)];
            b.def(Opcode::IDP, &mods, &[x.low(), y.low(), z.low()])
        }
    }
}

/// The narrow operand, extended to 64 bits.
pub fn widen(b: &mut Builder<'_>, src: &Src, ty: Ty) -> Value {
    let p = extend64(b, src, ty);
    b.pair(&p)
}

/// `~a`.
pub fn not(b: &mut Builder<'_>, ty: Ty, x: &Src) -> Value {
    match (ty.bits, x) {
        (64, x) => wide::logic64(b, 0x0f, &x.pair(), &Pair::imm(0)),
        (_, x) if as_imm(&x.low()).is_some() => b.copy(inot(x.low())),
        (_, x) => b.lop3(x.low(), rz(), rz(), 0x0f),
    }
}
