//! Video instructions: no target has them in hardware any more, so they are arithmetic on extracted parts.
//!
//! The scalar ones compute with 33- and 34-bit intermediate results, here in 64 bits; those on two halves or
//! four bytes stay within 32.

use crate::convert::{minmax, minmax64};
use crate::emit::{Emit, Pair, imm, ineg, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{Builder, Operand, Value, operand};
use ptx::ast::Part;
use ptx::{Mod as M, Op as O};
use sass::{Mod, Opcode};

/// A 32-bit number as 64 bits.
fn extend(b: &mut Builder<'_>, signed: bool, o: Operand) -> Pair {
    let hi = if signed { operand(b.shr(true, o, imm(31))) } else { rz() };
    Pair::parts(o, hi)
}

/// Bits and first bit of a part of one register.
fn field(part: Part, lane: usize) -> (u32, u32) {
    let bits = if part.halves { 16 } else { 8 };
    (bits, bits * u32::from(part.lanes[lane]))
}

/// The bits from `at` on, extended to 32.
fn extract(b: &mut Builder<'_>, signed: bool, bits: u32, at: u32, o: &Operand) -> Operand {
    let byte = at / 8;
    let selector = match (bits, signed) {
        (8, false) => 0x7770 | byte,
        (8, true) => (byte | 8) << 12 | (byte | 8) << 8 | (byte | 8) << 4 | byte,
        (16, false) => 0x7700 | (byte + 1) << 4 | byte,
        (16, true) => (byte + 9) << 12 | (byte + 9) << 8 | (byte + 1) << 4 | byte,
        _ => return *o,
    };
    // The fourth byte of the second source, which is zero, is number 7.
    operand(b.prmt(*o, imm(selector), rz()))
}

/// Least and greatest number of a field.
fn limits(signed: bool, bits: u32) -> (i64, i64) {
    if signed { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// `min(max(x, least), greatest)`
fn clamp64(b: &mut Builder<'_>, x: &Pair, (least, greatest): (i64, i64)) -> Pair {
    let x = Pair::of(minmax64(b, true, true, x, &Pair::imm(least as u64)));
    Pair::of(minmax64(b, false, true, &x, &Pair::imm(greatest as u64)))
}

fn is_signed(inst: &Statement<'_>, n: usize) -> bool {
    inst.ty(n).is_some_and(ptx::Type::is_signed)
}

impl Lower<'_, '_> {
    /// Lowers a video instruction.
    pub(crate) fn video(&mut self, inst: &Statement<'_>) -> Result<()> {
        let name = inst.op.name();
        let (d, part) = match &inst.operands[0] {
            ptx::Operand::Reg(r) => (*r, None),
            ptx::Operand::Part { reg, part } => (*reg, Some(*part)),
            _ => return Err("destination is not a register".into()),
        };
        let mark = self.mark();
        let value = match name.as_bytes()[name.len() - 1] {
            b'2' => self.simd(inst, part, 2)?,
            b'4' => self.simd(inst, part, 4)?,
            _ => self.scalar_video(inst, part)?,
        };
        self.assign(d, value, mark);
        Ok(())
    }

    /// The register or constant of an operand, its part if it has one, and whether it is negated.
    fn video_operand(&mut self, o: &ptx::Operand) -> Result<(Operand, Option<Part>, bool)> {
        Ok(match o {
            ptx::Operand::Part { reg, part } => {
                (self.src(&ptx::Operand::Reg(*reg), Ty::B32)?.low(), Some(*part), false)
            }
            ptx::Operand::NegReg(r) => (self.src(&ptx::Operand::Reg(*r), Ty::B32)?.low(), None, true),
            o => (self.src(o, Ty::B32)?.low(), None, false),
        })
    }

    /// One operation on whole operands or one part of each.
    fn scalar_video(&mut self, inst: &Statement<'_>, part: Option<Part>) -> Result<Value> {
        // vset has no type for its result, which is 0 or 1.
        let first = usize::from(inst.op != O::vset);
        let signed = inst.op != O::vset && is_signed(inst, 0);
        let mut sources = Vec::new();
        for n in 1..=2 {
            let s = is_signed(inst, first + n - 1);
            let (o, p, negated) = self.video_operand(&inst.operands[n])?;
            let o = match p {
                Some(p) => {
                    let (bits, at) = field(p, 0);
                    extract(&mut self.b, s, bits, at, &o)
                }
                None => o,
            };
            sources.push((o, s, negated));
        }
        let third = match inst.operands.get(3) {
            Some(o) => {
                let (o, p, negated) = self.video_operand(o)?;
                if p.is_some() {
                    return Err("the third operand is a whole register".into());
                }
                Some((o, negated))
            }
            None => None,
        };
        if inst.op == O::vmad {
            let (c, negated) = third.ok_or("vmad has three sources")?;
            return self.vmad(inst, &sources, c, negated);
        }
        let b = &mut self.b;
        let [(x, sx, _), (y, sy, _)] = &sources[..] else { return Err("operand is missing".into()) };
        let (a, c) = (extend(b, *sx, *x), extend(b, *sy, *y));
        let mut r = match inst.op {
            O::vadd => Pair::of(b.add64(&a, &c)),
            O::vsub => Pair::of(b.sub64(&a, &c)),
            O::vabsdiff => {
                let d = Pair::of(b.sub64(&a, &c));
                Pair::of(crate::wide::abs64(b, &d))
            }
            O::vmin => Pair::of(minmax64(b, false, true, &a, &c)),
            O::vmax => Pair::of(minmax64(b, true, true, &a, &c)),
            O::vshl | O::vshr => {
                let n =
                    if inst.has(M::wrap) { b.and(*y, imm(31)) } else { minmax(b, false, false, *y, imm(32)) };
                Pair::of(if inst.op == O::vshl {
                    crate::wide::shl64(b, &a, &operand(n))
                } else {
                    crate::wide::shr64(b, true, &a, &operand(n))
                })
            }
            O::vset => {
                let cmp = match inst.one_of(&[M::eq, M::ne, M::lt, M::le, M::gt, M::ge]) {
                    Some(M::eq) => Mod::EQ,
                    Some(M::ne) => Mod::NE,
                    Some(M::lt) => Mod::LT,
                    Some(M::le) => Mod::LE,
                    Some(M::gt) => Mod::GT,
                    _ => Mod::GE,
                };
                let p = b.isetp64(cmp, true, &a, &c);
                Pair::parts(operand(b.sel(operand(p), imm(1), rz())), rz())
            }
            _ => return self.unsupported(inst),
        };
        if inst.has(M::sat) {
            let bits = part.map_or(32, |p| field(p, 0).0);
            r = if inst.op == O::vshl && !sx {
                // An unsigned number shifted by 32 fills all 64 bits.
                Pair::of(minmax64(b, false, false, &r, &Pair::imm(limits(signed, bits).1 as u64)))
            } else {
                clamp64(b, &r, limits(signed, bits))
            };
        }
        let mut step = None;
        inst.find(|m| matches!(m, M::add | M::min | M::max).then(|| step = Some(m)));
        match (step, third, part) {
            (Some(step), Some((c, _)), _) => {
                if step == M::add {
                    return Ok(b.iadd(r.lo, c));
                }
                let c = extend(b, signed, c);
                let r = minmax64(b, step == M::max, true, &r, &c);
                Ok(b.reg(&Pair::of(r).lo))
            }
            (None, Some((c, _)), Some(p)) => {
                let (bits, at) = field(p, 0);
                let mask = (((1u64 << bits) - 1) as u32) << at;
                let up = b.shl(r.lo, imm(at));
                Ok(b.lop3(operand(up), c, imm(mask), 0xe4))
            }
            // Without a second operation or a part of the result, ptxas does not look at the third operand.
            (None, _, None) => Ok(b.reg(&r.lo)),
            _ => self.unsupported(inst),
        }
    }

    /// `vmad`: the sum of a product and `c` in 128 bits, shifted and saturated.
    fn vmad(
        &mut self,
        inst: &Statement<'_>,
        x: &[(Operand, bool, bool)],
        c: Operand,
        c_neg: bool,
    ) -> Result<Value> {
        let [(a, sa, na), (y, sb, nb)] = x else { return Err("operand is missing".into()) };
        let negate = na != nb;
        let signed = *sa || *sb || negate || c_neg;
        let b = &mut self.b;
        // The product of two 32-bit numbers of any signs, in 64 bits and its sign.
        let (pa, pb) = (extend(b, *sa, *a), extend(b, *sb, *y));
        let low = Pair::of(crate::wide::mul_lo64(b, &pa, &pb));
        // Bits 64 and up: of a mixed or signed product its sign, of an unsigned one 0.
        let top = if *sa || *sb { operand(b.shr(true, low.hi, imm(31))) } else { rz() };
        let not = |b: &mut Builder<'_>, o: Operand| operand(b.lop3(o, rz(), rz(), 0x0f));
        let mut words = [low.lo, low.hi, top];
        let mut c = c;
        let mut one = inst.has(M::po);
        if negate {
            words = words.map(|w| not(b, w));
            one = true;
        } else if c_neg {
            c = not(b, c);
            one = true;
        }
        let sign = if signed { operand(b.shr(true, c, imm(31))) } else { rz() };
        let carry = if one { crate::emit::pt() } else { crate::emit::never() };
        let (r0, k0) = b.iadd_carry(words[0], c, Some(carry));
        let (r1, k1) = b.iadd_carry(words[1], sign, Some(operand(k0)));
        let (r2, _) = b.iadd_carry(words[2], sign, Some(operand(k1)));
        let shift = match inst.one_of(&[M::shr7, M::shr15]) {
            Some(M::shr7) => 7,
            Some(_) => 15,
            None => 0,
        };
        let (mut lo, mut hi, mut top) = (operand(r0), operand(r1), operand(r2));
        if shift > 0 {
            lo = operand(b.shf(&[Mod::R, Mod::U64], lo, imm(shift), hi));
            hi = operand(b.shf(&[Mod::R, Mod::U64], hi, imm(shift), top));
            top = operand(b.shr(true, top, imm(shift)));
        }
        if !inst.has(M::sat) {
            return Ok(b.reg(&lo));
        }
        let _ = &top;
        if signed {
            let r = clamp64(b, &Pair::parts(lo, hi), limits(true, 32));
            return Ok(b.reg(&r.lo));
        }
        let r = minmax64(b, false, false, &Pair::parts(lo, hi), &Pair::imm(u32::MAX.into()));
        Ok(b.reg(&Pair::of(r).lo))
    }

    /// The same operation on `lanes` halves or bytes.
    fn simd(&mut self, inst: &Statement<'_>, mask: Option<Part>, lanes: usize) -> Result<Value> {
        let bits = 32 / lanes as u32;
        let set = matches!(inst.op, O::vset2 | O::vset4);
        let first = usize::from(!set);
        let signed = !set && is_signed(inst, 0);
        let (x, px, _) = self.video_operand(&inst.operands[1])?;
        let (y, py, _) = self.video_operand(&inst.operands[2])?;
        let (c, ..) = self.video_operand(inst.operands.get(3).ok_or("operand is missing")?)?;
        // Lane i of a source is lane `choice` of the two registers together.
        let source = |b: &mut Builder<'_>, signed: bool, part: Option<Part>, own: usize, i: usize| {
            let lane = match part {
                // The text names the highest lane first.
                Some(p) => usize::from(p.lanes[lanes - 1 - i]),
                None => own * lanes + i,
            };
            let from = if lane < lanes { &x } else { &y };
            extract(b, signed, bits, (lane % lanes) as u32 * bits, from)
        };
        for p in [px, py].into_iter().flatten() {
            if usize::from(p.count) != lanes {
                return Err("a selector names every lane".into());
            }
        }
        let written = |i: usize| mask.is_none_or(|p| p.lanes[..p.count.into()].contains(&(i as u8)));
        let accumulate = inst.has(M::add);
        let mut result = c;
        for i in (0..lanes).filter(|i| written(*i)) {
            let b = &mut self.b;
            let a = source(b, is_signed(inst, first), px, 0, i);
            let y = source(b, is_signed(inst, first + 1), py, 1, i);
            let mut r = match inst.op {
                O::vadd2 | O::vadd4 => b.iadd(a, y),
                O::vsub2 | O::vsub4 => b.iadd(a, ineg(y)),
                O::vavrg2 | O::vavrg4 => {
                    // Rounded away from zero.
                    let sum = b.iadd(a, y);
                    let sign = b.lop3(operand(sum), rz(), rz(), 0x0f);
                    let one = b.shr(false, operand(sign), imm(31));
                    let sum = b.iadd(operand(sum), operand(one));
                    b.shr(true, operand(sum), imm(1))
                }
                O::vabsdiff2 | O::vabsdiff4 => {
                    let d = b.iadd(a, ineg(y));
                    b.def(Opcode::IABS, &[], &[operand(d)])
                }
                O::vmin2 | O::vmin4 => minmax(b, false, true, a, y),
                O::vmax2 | O::vmax4 => minmax(b, true, true, a, y),
                O::vset2 | O::vset4 => {
                    let cmp = match inst.one_of(&[M::eq, M::ne, M::lt, M::le, M::gt, M::ge]) {
                        Some(M::eq) => Mod::EQ,
                        Some(M::ne) => Mod::NE,
                        Some(M::lt) => Mod::LT,
                        Some(M::le) => Mod::LE,
                        Some(M::gt) => Mod::GT,
                        _ => Mod::GE,
                    };
                    let p = b.isetp(cmp, true, a, y);
                    b.sel(operand(p), imm(1), rz())
                }
                _ => return self.unsupported(inst),
            };
            if inst.has(M::sat) {
                let (least, greatest) = limits(signed, bits);
                r = minmax(b, true, true, operand(r), imm(least as u32));
                r = minmax(b, false, true, operand(r), imm(greatest as u32));
            }
            result = operand(if accumulate {
                b.iadd(operand(r), result)
            } else {
                let at = i as u32 * bits;
                let up = b.shl(operand(r), imm(at));
                b.lop3(operand(up), result, imm((((1u64 << bits) - 1) as u32) << at), 0xe4)
            });
        }
        Ok(self.b.reg(&result))
    }
}
