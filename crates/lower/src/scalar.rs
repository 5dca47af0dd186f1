//! Instructions that compute: the choice of family, and the operands of integer and floating-point arithmetic.

use crate::approx;
use crate::arith_float::{self, Flags, MinMax};
use crate::arith_int::{self, Part};
use crate::convert::Round;
use crate::emit::{Emit, Pair, ineg, pt, rz};
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{Value, operand};
use ptx::{Mod as M, Op as O};
use sass::{Mod, Opcode};

/// The rounding among the modifiers.
pub(crate) fn rounding(inst: &Statement<'_>) -> Round {
    match inst.one_of(&[M::rz, M::rm, M::rp]) {
        Some(M::rz) => Round::Zero,
        Some(M::rm) => Round::Minus,
        Some(M::rp) => Round::Plus,
        _ => Round::Nearest,
    }
}

pub(crate) fn flags(inst: &Statement<'_>) -> Flags {
    Flags { round: rounding(inst), ftz: inst.has(M::ftz), sat: inst.has(M::sat), contract: false }
}

pub(crate) fn part(inst: &Statement<'_>) -> Part {
    if inst.has(M::wide) {
        Part::Wide
    } else if inst.has(M::hi) {
        Part::Hi
    } else {
        Part::Lo
    }
}

/// The modifiers of `min` and `max`.
pub(crate) fn min_max(inst: &Statement<'_>) -> MinMax {
    MinMax {
        max: inst.op == O::max,
        ftz: inst.has(M::ftz),
        nan: inst.has(M::NaN),
        abs: inst.has(M::abs),
        xorsign: inst.has(M::xorsign),
    }
}

impl Lower<'_, '_> {
    /// The instruction's first type.
    pub(crate) fn ty0(&self, inst: &Statement<'_>) -> Result<Ty> {
        inst.ty(0).map(ty).ok_or_else(|| "instruction without a type".into())
    }

    /// Operand `n` as a source of type `t`.
    pub(crate) fn arg(&mut self, inst: &Statement<'_>, n: usize, t: Ty) -> Result<Src> {
        let o = inst.operands.get(n).ok_or("operand is missing")?;
        self.src(o, t)
    }

    /// Lowers one instruction of this family.
    pub fn scalar(&mut self, inst: &Statement<'_>) -> Result<()> {
        match inst.op {
            O::mov => return self.mov(inst),
            O::setp => return self.setp(inst),
            O::cvt => return self.cvt(inst),
            O::lop3 if inst.one_of(&[M::and, M::or]).is_some() => return self.lop3_pred(inst),
            _ if inst.op.name().starts_with('v') => return self.video(inst),
            _ => {}
        }
        let t = self.ty0(inst)?;
        if inst.has(M::cc) || matches!(inst.op, O::addc | O::subc | O::madc) {
            return self.carrying(inst, t);
        }
        let mark = self.mark();
        let value = match t.kind {
            _ if matches!(inst.op, O::set | O::selp | O::slct | O::cvta | O::isspacep | O::testp) => {
                self.mixed(inst, t)?
            }
            Kind::Pred => self.pred_logic(inst)?,
            _ if t.is_half() => self.half(inst, t)?,
            Kind::Float => self.float(inst, t)?,
            Kind::F32x2 => self.float_pair(inst)?,
            Kind::U8x4 | Kind::S8x4 => self.in_parts(inst, t)?,
            Kind::U16x2 | Kind::S16x2 if inst.has(M::sat) => self.in_parts(inst, t)?,
            Kind::U16x2 | Kind::S16x2 => self.int_pair(inst, t)?,
            Kind::Unsigned if t.bits == 32 && inst.op == O::add && inst.has(M::sat) => {
                self.in_parts(inst, t)?
            }
            Kind::Bits | Kind::Unsigned | Kind::Signed if t.bits <= 64 => self.int(inst, t)?,
            _ => return self.unsupported(inst),
        };
        let d = self.dst(&inst.operands[0])?;
        self.assign(d, value, mark);
        Ok(())
    }

    fn int(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
        use arith_int as a;
        let n = Ty::U32;
        let x = self.arg(inst, 1, t)?;
        Ok(match inst.op {
            O::add | O::sub => {
                let y = self.arg(inst, 2, t)?;
                let subtract = inst.op == O::sub;
                if inst.has(M::sat) {
                    a::add_sat(&mut self.b, subtract, &x, &y)
                } else if subtract {
                    a::sub(&mut self.b, t, &x, &y)
                } else {
                    let sum = a::add(&mut self.b, t, &x, &y);
                    self.add_known(&x, &y, sum);
                    sum
                }
            }
            O::mul => {
                let y = self.arg(inst, 2, t)?;
                a::mul(&mut self.b, t, part(inst), &x, &y)
            }
            O::mad => {
                let y = self.arg(inst, 2, t)?;
                let p = part(inst);
                let wide = if p == Part::Wide { Ty { bits: t.bits * 2, ..t } } else { t };
                let z = self.arg(inst, 3, wide)?;
                if inst.has(M::sat) {
                    let high = a::mul(&mut self.b, t, p, &x, &y);
                    return Ok(a::add_sat(&mut self.b, false, &Src::Narrow(operand(high)), &z));
                }
                a::mad(&mut self.b, t, p, &x, &y, &z)
            }
            O::mul24 | O::mad24 => {
                let y = self.arg(inst, 2, t)?;
                let z = if inst.op == O::mad24 { Some(self.arg(inst, 3, t)?) } else { None };
                if inst.has(M::sat)
                    && let Some(z) = &z
                {
                    let product = a::mul24(&mut self.b, t, true, &x, &y, None);
                    return Ok(a::add_sat(&mut self.b, false, &Src::Narrow(operand(product)), z));
                }
                a::mul24(&mut self.b, t, inst.has(M::hi), &x, &y, z.as_ref())
            }
            O::sad => {
                let (y, z) = (self.arg(inst, 2, t)?, self.arg(inst, 3, t)?);
                a::sad(&mut self.b, t, &x, &y, &z)
            }
            O::div | O::rem => {
                let y = self.arg(inst, 2, t)?;
                let looked = [1, 2].iter().any(|k| matches!(inst.operands.get(*k), Some(ptx::Operand::Reg(r)) if self.looked_at.contains(r)));
                a::div(&mut self.b, t, inst.op == O::rem, looked, &x, &y)
            }
            O::neg => a::neg(&mut self.b, t, &x),
            O::abs => a::abs(&mut self.b, t, &x),
            O::min | O::max => {
                let y = self.arg(inst, 2, t)?;
                let r = a::min_max(&mut self.b, t, inst.op == O::max, &x, &y);
                if inst.has(M::relu) {
                    crate::convert::minmax(&mut self.b, true, true, operand(r), crate::emit::rz())
                } else {
                    r
                }
            }
            O::and | O::or | O::xor => {
                let y = self.arg(inst, 2, t)?;
                let lut = match inst.op {
                    O::and => 0xc0,
                    O::or => 0xfc,
                    _ => 0x3c,
                };
                a::logic(&mut self.b, t, lut, &x, &y)
            }
            O::not => a::not(&mut self.b, t, &x),
            O::cnot => a::cnot(&mut self.b, t, &x),
            O::shl | O::shr => {
                let y = self.arg(inst, 2, n)?;
                if inst.op == O::shl {
                    a::shl(&mut self.b, t, &x, &y)
                } else {
                    a::shr(&mut self.b, t, &x, &y)
                }
            }
            O::shf => {
                let (y, amount) = (self.arg(inst, 2, t)?, self.arg(inst, 3, n)?);
                a::funnel(&mut self.b, inst.has(M::l), inst.has(M::wrap), &x, &y, &amount)
            }
            O::bfe => {
                let (pos, len) = (self.arg(inst, 2, n)?, self.arg(inst, 3, n)?);
                a::bfe(&mut self.b, t, &x, &pos, &len)
            }
            O::bfi => {
                let (y, pos, len) = (self.arg(inst, 2, t)?, self.arg(inst, 3, n)?, self.arg(inst, 4, n)?);
                a::bfi(&mut self.b, t, &x, &y, &pos, &len)
            }
            O::popc => a::popc(&mut self.b, t, &x),
            O::clz => a::clz(&mut self.b, t, &x),
            O::brev => a::brev(&mut self.b, t, &x),
            O::bfind => a::bfind(&mut self.b, t, inst.has(M::shiftamt), &x),
            O::szext | O::bmsk => {
                let y = self.arg(inst, 2, n)?;
                let mut mods: smallvec::SmallVec<[Mod; 2]> = smallvec::SmallVec::new();
                if inst.has(M::wrap) {
                    mods.push(Mod::W);
                }
                let op = if inst.op == O::bmsk {
                    Opcode::BMSK
                } else {
                    if !t.is_signed() {
                        mods.push(Mod::U32);
                    }
                    Opcode::SGXT
                };
                self.b.def(op, &mods, &[x.low(), y.low()])
            }
            O::lop3 => {
                let (y, z) = (self.arg(inst, 2, t)?, self.arg(inst, 3, t)?);
                let lut = self.integer(&inst.operands[4])? as u8;
                self.b.lop3(x.low(), y.low(), z.low(), lut)
            }
            O::prmt => {
                let (y, selector) = (self.arg(inst, 2, t)?, self.arg(inst, 3, t)?);
                let mode = match inst.one_of(&[M::f4e, M::b4e, M::rc8, M::ecl, M::ecr, M::rc16]) {
                    None => return Ok(self.b.prmt(x.low(), selector.low(), y.low())),
                    Some(M::f4e) => Mod::F4E,
                    Some(M::b4e) => Mod::B4E,
                    Some(M::rc8) => Mod::RC8,
                    Some(M::ecl) => Mod::ECL,
                    Some(M::ecr) => Mod::ECR,
                    Some(_) => Mod::RC16,
                };
                self.b.def(Opcode::PRMT, &[mode], &[x.low(), selector.low(), y.low()])
            }
            O::fns => {
                let (base, offset) =
                    (self.arg(inst, 2, n)?, self.arg(inst, 3, Ty { kind: Kind::Signed, ..n })?);
                crate::bits::fns(&mut self.b, &x, &base, &offset)
            }
            O::dp4a | O::dp2a => {
                let mut types = inst.types();
                let signed = (types.next(), types.next());
                let is = |t: Option<ptx::Type>| t.is_some_and(ptx::Type::is_signed);
                let (y, z) = (self.arg(inst, 2, n)?, self.arg(inst, 3, n)?);
                let half = (inst.op == O::dp2a).then(|| if inst.has(M::hi) { Mod::HI } else { Mod::LO });
                a::dot(&mut self.b, half, (is(signed.0), is(signed.1)), &x, &y, &z)
            }
            _ => return self.unsupported(inst),
        })
    }

    /// A source of a sum or product: in `add.f32.f16` and its like all but the last are halves.
    fn term(&mut self, inst: &Statement<'_>, n: usize, t: Ty) -> Result<Src> {
        let mixed = matches!(inst.op, O::add | O::sub | O::fma) && n + 1 < inst.operands.len();
        match inst.ty(1).filter(|from| mixed && t.bits == 32 && from.is_float()) {
            Some(from) if from.bytes() == 2 => {
                let from = ty(from);
                let half = self.arg(inst, n, from)?;
                Ok(Src::Narrow(operand(crate::convert_half::widen(&mut self.b, from, &half))))
            }
            Some(_) => Err(crate::Refusal::NotBuilt("this combination of types is not supported yet")),
            None => self.arg(inst, n, t),
        }
    }

    /// The modifiers of arithmetic on one type; products and sums that name no rounding may be contracted.
    pub(crate) fn flags(&self, inst: &Statement<'_>) -> Flags {
        let rounded = inst.one_of(&[M::rn, M::rz, M::rm, M::rp]).is_some();
        let one_type = inst.ty(1).is_none();
        let open = self.opts.fmad && self.opts.opt_level > 0;
        let contract = open && one_type && !rounded && matches!(inst.op, O::mul | O::add | O::sub);
        Flags { contract, ..flags(inst) }
    }

    fn float(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
        use arith_float as a;
        let f = self.flags(inst);
        let x = self.term(inst, 1, t)?;
        let approx = inst.has(M::approx);
        Ok(match inst.op {
            O::add | O::sub => {
                let y = self.arg(inst, 2, t)?;
                a::add(&mut self.b, t, f, inst.op == O::sub, &x, &y)
            }
            O::mul => {
                let y = self.arg(inst, 2, t)?;
                a::mul(&mut self.b, t, f, &x, &y)
            }
            O::fma | O::mad => {
                let (y, z) = (self.term(inst, 2, t)?, self.arg(inst, 3, t)?);
                a::fma(&mut self.b, t, f, &x, &y, &z)
            }
            O::neg | O::abs => a::sign(&mut self.b, t, f.ftz, inst.op == O::abs, &x),
            O::min | O::max => {
                let y = self.arg(inst, 2, t)?;
                let z = if inst.operands.len() > 3 { Some(self.arg(inst, 3, t)?) } else { None };
                a::min_max(&mut self.b, t, min_max(inst), &x, &y, z.as_ref())
            }
            O::copysign => {
                let y = self.arg(inst, 2, t)?;
                a::copysign(&mut self.b, t, &x, &y)
            }
            O::div if t.bits == 32 && (approx || inst.has(M::full)) => {
                let y = self.arg(inst, 2, t)?;
                if approx {
                    approx::div(&mut self.b, x.low(), y.low(), f.ftz)
                } else {
                    approx::div_full(&mut self.b, x.low(), y.low(), f.ftz)
                }
            }
            O::div => {
                let y = self.arg(inst, 2, t)?;
                a::div(&mut self.b, t, f, &x, &y)
            }
            O::rcp if approx && t.bits == 64 => a::approx64(&mut self.b, Mod::RCP64H, &x),
            O::rsqrt if t.bits == 64 && f.ftz => a::approx64(&mut self.b, Mod::RSQ64H, &x),
            O::rsqrt if t.bits == 64 => a::rsqrt64(&mut self.b, &x),
            O::rcp if !approx => a::rcp(&mut self.b, t, f, &x),
            O::sqrt if !approx => a::sqrt(&mut self.b, t, f, &x),
            _ if t.bits != 32 || !approx => return self.unsupported(inst),
            O::rcp => approx::rcp(&mut self.b, x.low(), f.ftz),
            O::sqrt => approx::sqrt(&mut self.b, x.low(), f.ftz),
            O::rsqrt => approx::rsqrt(&mut self.b, x.low(), f.ftz),
            O::lg2 => approx::lg2(&mut self.b, x.low(), f.ftz),
            O::ex2 => approx::ex2(&mut self.b, x.low(), f.ftz),
            O::sin => approx::sin_cos(&mut self.b, Mod::SIN, x.low()),
            O::cos => approx::sin_cos(&mut self.b, Mod::COS, x.low()),
            O::tanh => approx::tanh(&mut self.b, x.low()),
            _ => return self.unsupported(inst),
        })
    }

    /// `and`, `or`, `xor`, `not` of predicates.
    fn pred_logic(&mut self, inst: &Statement<'_>) -> Result<Value> {
        let a = self.pred(&inst.operands[1])?;
        Ok(match inst.op {
            O::not => self.b.plop(a, pt(), 0x0f),
            O::and | O::or | O::xor => {
                let b = self.pred(&inst.operands[2])?;
                let lut = match inst.op {
                    O::and => 0xc0,
                    O::or => 0xfc,
                    _ => 0x3c,
                };
                self.b.plop(a, b, lut)
            }
            _ => return self.unsupported(inst),
        })
    }

    /// Arithmetic on two binary32 numbers in a pair of registers.
    fn float_pair(&mut self, inst: &Statement<'_>) -> Result<Value> {
        let (t, one) = (Ty { kind: Kind::F32x2, bits: 64 }, Ty { kind: Kind::Float, bits: 32 });
        let f = flags(inst);
        let sources: Vec<Pair> =
            (1..inst.operands.len()).map(|n| Ok(self.arg(inst, n, t)?.pair())).collect::<Result<_>>()?;
        let op = match inst.op {
            O::add | O::sub => sass::Opcode::FADD2,
            O::mul => sass::Opcode::FMUL2,
            O::fma => sass::Opcode::FFMA2,
            _ => return self.unsupported(inst),
        };
        if self.b.func.target.has(op) {
            return Ok(arith_float::pairs(&mut self.b, op, f, inst.op == O::sub, &sources));
        }
        let half = |s: &mut Self, high: bool| {
            let x: Vec<Src> = sources.iter().map(|p| Src::Narrow(if high { p.hi } else { p.lo })).collect();
            use arith_float as a;
            Ok(match (inst.op, &x[..]) {
                (O::add | O::sub, [x, y]) => a::add(&mut s.b, one, f, inst.op == O::sub, x, y),
                (O::mul, [x, y]) => a::mul(&mut s.b, one, f, x, y),
                (O::fma, [x, y, z]) => a::fma(&mut s.b, one, f, x, y, z),
                _ => return s.unsupported(inst),
            })
        };
        let (lo, hi) = (half(self, false)?, half(self, true)?);
        Ok(self.b.collect(&[operand(lo), operand(hi)]))
    }

    /// Sums that saturate and sums, differences and the like of four bytes: instructions of sm_120 and later.
    fn in_parts(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
        if self.sm() < 120 {
            return self.unsupported(inst);
        }
        let part = match t.kind {
            Kind::U8x4 => Mod::U8x4,
            Kind::S8x4 => Mod::S8x4,
            Kind::U16x2 => Mod::_16x2,
            Kind::S16x2 => Mod::S16x2,
            _ => Mod::_32,
        };
        let x = self.arg(inst, 1, t)?.low();
        let x = operand(self.b.reg(&x));
        if inst.op == O::neg {
            return Ok(self.b.def(sass::Opcode::VIADD, &[part], &[ineg(x), rz()]));
        }
        let y = self.arg(inst, 2, t)?.low();
        let y = operand(self.b.reg(&y));
        let mut mods = vec![part];
        match inst.op {
            O::add | O::sub => {
                mods.extend(inst.has(M::sat).then_some(Mod::ISAT));
                let y = if inst.op == O::sub { ineg(y) } else { y };
                Ok(self.b.def(sass::Opcode::VIADD, &mods, &[x, y]))
            }
            O::min | O::max => {
                mods.extend(inst.has(M::relu).then_some(Mod::RELU));
                let least = if inst.op == O::max { crate::emit::never() } else { pt() };
                Ok(self.b.def(sass::Opcode::VIMNMX, &mods, &[x, y, least]))
            }
            _ => self.unsupported(inst),
        }
    }

    /// Arithmetic on two 16-bit integers in a register.
    fn int_pair(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
        let (x, y) = (self.arg(inst, 1, t)?.low(), self.arg(inst, 2, t)?.low());
        let signed = t.kind == Kind::S16x2;
        let relu = inst.has(M::relu);
        Ok(match inst.op {
            O::add => crate::bits::add_halves(&mut self.b, x, y),
            O::min | O::max => {
                crate::bits::min_max_halves(&mut self.b, inst.op == O::max, signed, relu, x, y)
            }
            _ => return self.unsupported(inst),
        })
    }

    /// `lop3` with a predicate: `d|p`, where `p` is `(d ≠ 0) and/or q`.
    fn lop3_pred(&mut self, inst: &Statement<'_>) -> Result<()> {
        let t = Ty::B32;
        let (x, y, z) = (self.arg(inst, 1, t)?, self.arg(inst, 2, t)?, self.arg(inst, 3, t)?);
        let lut = self.integer(&inst.operands[4])? as u8;
        let q = self.pred(&inst.operands[5])?;
        let (d, p) = match &inst.operands[0] {
            ptx::Operand::Pair(d, p) => (*d, *p),
            ptx::Operand::Reg(d) => (Some(*d), None),
            _ => return Err("lop3 writes a register and a predicate".into()),
        };
        let value = self.b.lop3(x.low(), y.low(), z.low(), lut);
        let bit = self.b.isetp(Mod::NE, false, operand(value), crate::emit::rz());
        let bit = self.b.plop(operand(bit), q, if inst.has(M::and) { 0xc0 } else { 0xfc });
        let mark = self.mark();
        if let Some(d) = d {
            self.assign(d, value, mark);
        }
        if let Some(p) = p {
            let mark = self.mark();
            self.assign(p, bit, mark);
        }
        Ok(())
    }
}
