//! Instructions that compute: arithmetic, logic, comparison, selection, conversion, movement.

use crate::arith_float::{self, Class, Flags};
use crate::arith_int::{self, Combine, Part};
use crate::convert::{self, Conversion, Round};
use crate::emit::{Emit, Pair, imm, pt, rz};
use crate::func::{Lower, Result, ty};
use crate::types::{Kind, Src, Ty};
use crate::{approx, emit};
use ori::{Name, Operand, Value, operand};
use ptx::{Inst, Mod as M, Op as O};
use sass::{Mod, Opcode, RegFile};

/// The rounding among the modifiers.
fn rounding(inst: &Inst) -> Round {
    match inst.one_of(&[M::rz, M::rm, M::rp]) {
        Some(M::rz) => Round::Zero,
        Some(M::rm) => Round::Minus,
        Some(M::rp) => Round::Plus,
        _ => Round::Nearest,
    }
}

fn flags(inst: &Inst) -> Flags {
    Flags { round: rounding(inst), ftz: inst.has(M::ftz), sat: inst.has(M::sat) }
}

fn part(inst: &Inst) -> Part {
    if inst.has(M::wide) {
        Part::Wide
    } else if inst.has(M::hi) {
        Part::Hi
    } else {
        Part::Lo
    }
}

/// The comparison of a `setp` or `set`: SASS spelling, and whether it is forced to be unsigned.
fn comparison(inst: &Inst) -> Option<(Mod, bool)> {
    inst.mods.iter().find_map(|m| {
        Some(match m {
            M::eq => (Mod::EQ, false),
            M::ne => (Mod::NE, false),
            M::lt => (Mod::LT, false),
            M::le => (Mod::LE, false),
            M::gt => (Mod::GT, false),
            M::ge => (Mod::GE, false),
            M::lo => (Mod::LT, true),
            M::ls => (Mod::LE, true),
            M::hi => (Mod::GT, true),
            M::hs => (Mod::GE, true),
            M::equ => (Mod::EQU, false),
            M::neu => (Mod::NEU, false),
            M::ltu => (Mod::LTU, false),
            M::leu => (Mod::LEU, false),
            M::gtu => (Mod::GTU, false),
            M::geu => (Mod::GEU, false),
            M::num => (Mod::NUM, false),
            M::nan => (Mod::NAN, false),
            _ => return None,
        })
    })
}

/// The comparison that holds where `m` does not.
fn inverse(m: Mod, float: bool) -> Mod {
    match m {
        Mod::EQ if float => Mod::NEU,
        Mod::NE if float => Mod::EQU,
        Mod::LT if float => Mod::GEU,
        Mod::LE if float => Mod::GTU,
        Mod::GT if float => Mod::LEU,
        Mod::GE if float => Mod::LTU,
        Mod::EQ => Mod::NE,
        Mod::NE => Mod::EQ,
        Mod::LT => Mod::GE,
        Mod::LE => Mod::GT,
        Mod::GT => Mod::LE,
        Mod::GE => Mod::LT,
        Mod::EQU => Mod::NE,
        Mod::NEU => Mod::EQ,
        Mod::LTU => Mod::GE,
        Mod::LEU => Mod::GT,
        Mod::GTU => Mod::LE,
        Mod::GEU => Mod::LT,
        Mod::NUM => Mod::NAN,
        Mod::NAN => Mod::NUM,
        m => m,
    }
}

impl Lower<'_, '_> {
    /// The instruction's first type.
    fn ty0(&self, inst: &Inst) -> Result<Ty> {
        inst.ty(0).map(ty).ok_or_else(|| "instruction without a type".into())
    }

    /// Operand `n` as a source of type `t`.
    fn arg(&mut self, inst: &Inst, n: usize, t: Ty) -> Result<Src> {
        let o = inst.operands.get(n).ok_or("operand is missing")?;
        self.src(o, t)
    }

    /// Lowers one instruction of this family.
    pub fn scalar(&mut self, inst: &Inst) -> Result<()> {
        match inst.op {
            O::mov => return self.mov(inst),
            O::setp => return self.setp(inst),
            O::cvt => return self.cvt(inst),
            O::lop3 if inst.ty(0).is_none() || inst.one_of(&[M::and, M::or]).is_some() => {
                return self.unsupported(inst);
            }
            _ => {}
        }
        let t = self.ty0(inst)?;
        let mark = self.mark();
        let cc = inst.has(M::cc) || matches!(inst.op, O::addc | O::subc | O::madc);
        let value = match t.kind {
            _ if matches!(inst.op, O::set | O::selp | O::slct | O::cvta | O::isspacep | O::testp) => {
                self.mixed(inst, t)?
            }
            Kind::Pred => self.pred_logic(inst)?,
            _ if cc => self.carrying(inst, t)?,
            Kind::Float if matches!(t.bits, 32 | 64) => self.float(inst, t)?,
            Kind::Bits | Kind::Unsigned | Kind::Signed if t.bits <= 64 => self.int(inst, t)?,
            _ => return self.unsupported(inst),
        };
        let d = self.dst(&inst.operands[0])?;
        self.assign(d, value, mark);
        Ok(())
    }

    fn int(&mut self, inst: &Inst, t: Ty) -> Result<Value> {
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
                if inst.has(M::sat) {
                    return self.unsupported(inst);
                }
                let y = self.arg(inst, 2, t)?;
                let p = part(inst);
                let wide = if p == Part::Wide { Ty { bits: t.bits * 2, ..t } } else { t };
                let z = self.arg(inst, 3, wide)?;
                a::mad(&mut self.b, t, p, &x, &y, &z)
            }
            O::mul24 | O::mad24 => {
                if inst.has(M::sat) {
                    return self.unsupported(inst);
                }
                let y = self.arg(inst, 2, t)?;
                let z = if inst.op == O::mad24 { Some(self.arg(inst, 3, t)?) } else { None };
                a::mul24(&mut self.b, t, inst.has(M::hi), &x, &y, z.as_ref())
            }
            O::sad => {
                let (y, z) = (self.arg(inst, 2, t)?, self.arg(inst, 3, t)?);
                a::sad(&mut self.b, t, &x, &y, &z)
            }
            O::div | O::rem => {
                let y = self.arg(inst, 2, t)?;
                a::div(&mut self.b, t, inst.op == O::rem, &x, &y)
            }
            O::neg => a::neg(&mut self.b, t, &x),
            O::abs => a::abs(&mut self.b, t, &x),
            O::min | O::max => {
                if inst.has(M::relu) || inst.operands.len() != 3 {
                    return self.unsupported(inst);
                }
                let y = self.arg(inst, 2, t)?;
                a::min_max(&mut self.b, t, inst.op == O::max, &x, &y)
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
                if inst.one_of(&[M::f4e, M::b4e, M::rc8, M::ecl, M::ecr, M::rc16]).is_some() {
                    return self.unsupported(inst);
                }
                self.b.prmt(x.low(), selector.low(), y.low())
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

    fn float(&mut self, inst: &Inst, t: Ty) -> Result<Value> {
        use arith_float as a;
        let f = flags(inst);
        let x = self.arg(inst, 1, t)?;
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
                let (y, z) = (self.arg(inst, 2, t)?, self.arg(inst, 3, t)?);
                a::fma(&mut self.b, t, f, &x, &y, &z)
            }
            O::neg | O::abs => a::sign(&mut self.b, t, f.ftz, inst.op == O::abs, &x),
            O::min | O::max => {
                if inst.has(M::xorsign) || inst.operands.len() != 3 {
                    return self.unsupported(inst);
                }
                let y = self.arg(inst, 2, t)?;
                a::min_max(&mut self.b, t, inst.op == O::max, f.ftz, inst.has(M::NaN), &x, &y)
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
            O::div if inst.has(M::rn) => {
                let y = self.arg(inst, 2, t)?;
                a::div_rn(&mut self.b, t, f.ftz, &x, &y)
            }
            O::rcp if approx && t.bits == 64 => a::approx64(&mut self.b, Mod::RCP64H, &x),
            O::rsqrt if t.bits == 64 && f.ftz => a::approx64(&mut self.b, Mod::RSQ64H, &x),
            O::rcp if inst.has(M::rn) => a::rcp_rn(&mut self.b, t, f.ftz, &x),
            O::sqrt if inst.has(M::rn) => a::sqrt_rn(&mut self.b, t, f.ftz, &x),
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
    fn pred_logic(&mut self, inst: &Inst) -> Result<Value> {
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

    /// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`: the carry flag is a predicate variable.
    fn carrying(&mut self, inst: &Inst, t: Ty) -> Result<Value> {
        if self.guard != ori::ALWAYS {
            return Err("guarded instructions with a carry are not supported yet".into());
        }
        let (x, y) = (self.arg(inst, 1, t)?, self.arg(inst, 2, t)?);
        let carry_in = match inst.op {
            O::addc | O::subc | O::madc => Some(operand(self.carry())),
            _ => None,
        };
        let (x, y) = match inst.op {
            O::sub | O::subc => {
                // a - b = a + ~b + 1; the flag holds the carry of this sum, that is "no borrow".
                let y = y.pair();
                (x, Pair::parts(emit::inot(y.lo), emit::inot(y.hi)))
            }
            O::mad | O::madc => {
                let product = arith_int::mul(&mut self.b, t, part(inst), &x, &y);
                let z = self.arg(inst, 3, t)?;
                (self.value_src(product), z.pair())
            }
            _ => (x, y.pair()),
        };
        let carry_in = match (inst.op, carry_in) {
            (O::sub, None) => Some(pt()),
            (_, c) => c,
        };
        let (lo, carry) = self.b.iadd_carry(x.low(), y.lo, carry_in);
        let (value, carry) = if t.bits == 64 {
            let (hi, carry) = self.b.iadd_carry(x.pair().hi, y.hi, Some(operand(carry)));
            (self.b.collect(&[operand(lo), operand(hi)]), carry)
        } else {
            (lo, carry)
        };
        if inst.has(M::cc) {
            self.set_carry(carry);
        }
        Ok(value)
    }

    /// Instructions whose operands have several types.
    fn mixed(&mut self, inst: &Inst, t: Ty) -> Result<Value> {
        match inst.op {
            O::selp => {
                let (x, y) = (self.arg(inst, 1, t)?, self.arg(inst, 2, t)?);
                let p = self.pred(&inst.operands[3])?;
                Ok(arith_int::select(&mut self.b, t, p, &x, &y))
            }
            O::slct => {
                let c = inst.ty(1).map(ty).ok_or("slct needs two types")?;
                let (x, y) = (self.arg(inst, 1, t)?, self.arg(inst, 2, t)?);
                let z = self.arg(inst, 3, c)?;
                let p = if c.is_float() {
                    arith_float::not_negative(&mut self.b, inst.has(M::ftz), z.low())
                } else {
                    self.b.isetp(Mod::GE, true, z.low(), rz())
                };
                Ok(arith_int::select(&mut self.b, t, operand(p), &x, &y))
            }
            O::set => {
                let from = inst.ty(1).map(ty).ok_or("set needs two types")?;
                let p = self.compare(inst, from, 1, false)?;
                let yes = match (t.kind, t.bits) {
                    (Kind::Float, 32) => 1.0f32.to_bits(),
                    (Kind::Unsigned | Kind::Signed | Kind::Bits, 16 | 32) => !0,
                    _ => return self.unsupported(inst),
                };
                Ok(self.b.sel(operand(p), imm(yes), rz()))
            }
            O::testp => {
                let class = match inst.one_of(&[
                    M::finite,
                    M::infinite,
                    M::number,
                    M::notanumber,
                    M::normal,
                    M::subnormal,
                ]) {
                    Some(M::finite) => Class::Finite,
                    Some(M::infinite) => Class::Infinite,
                    Some(M::number) => Class::Number,
                    Some(M::notanumber) => Class::NotANumber,
                    Some(M::normal) => Class::Normal,
                    Some(M::subnormal) => Class::Subnormal,
                    _ => return self.unsupported(inst),
                };
                let x = self.arg(inst, 1, t)?;
                Ok(arith_float::testp(&mut self.b, t, class, &x))
            }
            O::cvta => self.cvta(inst, t),
            _ => self.unsupported(inst),
        }
    }

    /// `(operands[n] cmp operands[n + 1]) op operands[n + 2]`.
    fn compare(&mut self, inst: &Inst, t: Ty, n: usize, inverted: bool) -> Result<Value> {
        let (cmp, unsigned) = comparison(inst).ok_or("comparison is missing")?;
        let combine = match inst.one_of(&[M::and, M::or, M::xor]) {
            None => Combine::default(),
            Some(m) => {
                let op = match m {
                    M::and => Mod::AND,
                    M::or => Mod::OR,
                    _ => Mod::XOR,
                };
                let o = inst.operands.get(n + 2).ok_or("operand is missing")?;
                Combine { op, with: self.pred(o)? }
            }
        };
        let float = t.is_float();
        let cmp = if inverted { inverse(cmp, float) } else { cmp };
        let (x, y) = (self.arg(inst, n, t)?, self.arg(inst, n + 1, t)?);
        match t.kind {
            Kind::Float if matches!(t.bits, 32 | 64) => {
                Ok(arith_float::setp(&mut self.b, t, inst.has(M::ftz), cmp, &x, &y, &combine))
            }
            Kind::Bits | Kind::Unsigned | Kind::Signed => {
                let t = if unsigned || t.kind == Kind::Bits { Ty { kind: Kind::Unsigned, ..t } } else { t };
                Ok(arith_int::setp(&mut self.b, t, cmp, &x, &y, &combine))
            }
            _ => self.unsupported(inst),
        }
    }

    fn setp(&mut self, inst: &Inst) -> Result<()> {
        let t = self.ty0(inst)?;
        let (p, q) = match &inst.operands[0] {
            ptx::Operand::Reg(p) => (Some(*p), None),
            ptx::Operand::Pair(p, q) => (*p, *q),
            _ => return Err("setp writes predicates".into()),
        };
        let first = match p {
            Some(p) => {
                let mark = self.mark();
                Some((p, self.compare(inst, t, 1, false)?, mark))
            }
            None => None,
        };
        match (first, q) {
            (first, Some(q)) => {
                // The second one is computed before the first is assigned: it may be its own operand.
                let mark = self.mark();
                let v = self.compare(inst, t, 1, true)?;
                if let Some((p, value, _)) = first {
                    self.assign(p, value, mark);
                }
                let mark = self.mark();
                self.assign(q, v, mark);
            }
            (Some((p, v, mark)), None) => self.assign(p, v, mark),
            (None, None) => {}
        }
        Ok(())
    }

    fn mov(&mut self, inst: &Inst) -> Result<()> {
        let t = self.ty0(inst)?;
        let mark = self.mark();
        if let ptx::Operand::Vector(elems) = &inst.operands[0] {
            return self.unpack(inst, t, elems);
        }
        let d = self.dst(&inst.operands[0])?;
        let value = match &inst.operands[1] {
            ptx::Operand::Vector(elems) => self.pack(t, elems)?,
            o if t.kind == Kind::Pred => {
                let p = self.pred(o)?;
                match p {
                    Operand::Reg(r) if !r.not && r.reg.value().is_some() => {
                        r.reg.value().expect("just tested")
                    }
                    p => self.b.plop(p, pt(), 0xf0),
                }
            }
            o => {
                let s = self.src(o, t)?;
                self.materialize(&s)
            }
        };
        self.assign(d, value, mark);
        Ok(())
    }

    /// `mov.b64 {a, b}, c` and its like.
    fn unpack(&mut self, inst: &Inst, t: Ty, elems: &[ptx::VectorElem]) -> Result<()> {
        let s = self.src(&inst.operands[1], t)?;
        let bits = usize::from(t.bits) / elems.len();
        let words: Vec<Operand> = match &s {
            Src::Narrow(o) => vec![o.clone()],
            Src::Wide(p) => vec![p.lo.clone(), p.hi.clone()],
            Src::Quad(v) => (0..4).map(|i| operand(Name::Part(*v, i))).collect(),
        };
        let mut results = Vec::new();
        for (i, e) in elems.iter().enumerate() {
            let ptx::VectorElem::Reg(r) = e else {
                if matches!(e, ptx::VectorElem::Sink) {
                    continue;
                }
                return Err("a constant cannot be written".into());
            };
            let at = i * bits;
            let value = match bits {
                8 | 16 => {
                    let shift = (at % 32) as u32;
                    let word = words[at / 32].clone();
                    if shift == 0 { self.b.reg(&word) } else { self.b.shr(false, word, imm(shift)) }
                }
                32 => self.b.reg(&words[at / 32]),
                64 => self.b.collect(&[words[at / 32].clone(), words[at / 32 + 1].clone()]),
                _ => return self.unsupported(inst),
            };
            results.push((*r, value));
        }
        let mark = self.mark();
        for (r, value) in results {
            self.assign(r, value, mark);
        }
        Ok(())
    }

    /// One element of a vector operand as a source.
    pub fn elem(&mut self, e: &ptx::VectorElem, t: Ty) -> Result<Src> {
        let o = match e {
            ptx::VectorElem::Reg(r) => ptx::Operand::Reg(*r),
            ptx::VectorElem::Int(n) => ptx::Operand::Int(*n),
            ptx::VectorElem::F32(x) => ptx::Operand::F32(*x),
            ptx::VectorElem::F64(x) => ptx::Operand::F64(*x),
            ptx::VectorElem::Sink => return Err("_ cannot be read".into()),
        };
        self.src(&o, t)
    }

    /// `mov.b64 c, {a, b}` and its like.
    pub fn pack(&mut self, t: Ty, elems: &[ptx::VectorElem]) -> Result<Value> {
        let bits = t.bits / elems.len() as u8;
        let part = Ty { kind: Kind::Bits, bits };
        let mut sources = Vec::new();
        for e in elems {
            sources.push(self.elem(e, part)?);
        }
        self.pack_words(bits, &sources)
    }

    /// Concatenates elements of `bits` bits.
    pub fn pack_words(&mut self, bits: u8, sources: &[Src]) -> Result<Value> {
        let mut words: Vec<Operand> = Vec::new();
        match bits {
            64 => {
                for s in sources {
                    let p = s.pair();
                    words.extend([p.lo, p.hi]);
                }
            }
            32 => words.extend(sources.iter().map(Src::low)),
            16 => {
                for pair in sources.chunks(2) {
                    let [x, y] = pair else { return Err("an even number of halves is needed".into()) };
                    words.push(operand(self.b.prmt(x.low(), imm(0x5410), y.low())));
                }
            }
            8 => {
                for four in sources.chunks(4) {
                    let mut word =
                        self.b.prmt(four[0].low(), imm(0x0040), four.get(1).map_or_else(rz, Src::low));
                    if let [_, _, x, y] = four {
                        let high = self.b.prmt(x.low(), imm(0x0040), y.low());
                        word = self.b.prmt(operand(word), imm(0x5410), operand(high));
                    }
                    words.push(operand(word));
                }
            }
            _ => return Err("vector of elements of this size".into()),
        }
        Ok(if words.len() == 1 { self.b.reg(&words[0]) } else { self.b.collect(&words) })
    }

    fn cvt(&mut self, inst: &Inst) -> Result<()> {
        let mut types = inst.types();
        let (Some(to), Some(from), None) = (types.next(), types.next(), types.next()) else {
            return self.unsupported(inst);
        };
        let unknown = [M::relu, M::satfinite, M::rna, M::rs];
        if inst.one_of(&unknown).is_some() || inst.operands.len() != 2 {
            return self.unsupported(inst);
        }
        let integral = inst.one_of(&[M::rni, M::rzi, M::rmi, M::rpi]);
        let round = match integral {
            Some(M::rni) => Round::Nearest,
            Some(M::rzi) => Round::Zero,
            Some(M::rmi) => Round::Minus,
            Some(M::rpi) => Round::Plus,
            _ => rounding(inst),
        };
        let c = Conversion {
            to: ty(to),
            from: ty(from),
            round,
            integral: integral.is_some(),
            ftz: inst.has(M::ftz),
            sat: inst.has(M::sat),
        };
        let d = self.dst(&inst.operands[0])?;
        let s = self.arg(inst, 1, c.from)?;
        let mark = self.mark();
        let Some(value) = convert::convert(&mut self.b, &c, &s) else {
            return self.unsupported(inst);
        };
        let value = self.fill(d, value, c.to);
        self.assign(d, value, mark);
        Ok(())
    }

    /// Extends a value of type `t` to all of a register that is wider than `t`.
    pub fn fill(&mut self, d: ptx::RegId, value: Value, t: Ty) -> Value {
        let shape = self.shape(d);
        if shape.file != RegFile::R || !t.is_int() {
            return value;
        }
        let reg_bits = self.reg_bits(d);
        if u32::from(t.bits) >= reg_bits {
            return value;
        }
        let s = Src::Narrow(operand(value));
        if reg_bits == 64 {
            return arith_int::widen(&mut self.b, &s, t);
        }
        let o = convert::extend32(&mut self.b, &s.low(), t);
        self.b.reg(&o)
    }

    /// Width of a register in bits.
    fn reg_bits(&self, d: ptx::RegId) -> u32 {
        self.module.funcs[self.id].body.as_ref().map_or(32, |b| b.regs[d].ty.bits())
    }

    fn cvta(&mut self, inst: &Inst, t: Ty) -> Result<Value> {
        let x = self.arg(inst, 1, t)?;
        if t.bits != 64 {
            return self.unsupported(inst);
        }
        let to = inst.has(M::to);
        let sm = self.sm();
        let window = |b: &mut ori::Builder<'_>, x: &Src, at: u32| {
            let base = Pair::parts(emit::constant(0, at), emit::constant(0, at + 4));
            if to { b.sub64(&x.pair(), &base) } else { b.add64(&x.pair(), &base) }
        };
        let space =
            inst.one_of(&[M::global, M::local, M::shared, M::shared_cta, M::shared_cluster, M::_const]);
        Ok(match space {
            Some(M::global) => self.materialize(&x),
            Some(M::shared | M::shared_cta | M::shared_cluster) if sm >= 90 => {
                let hi = if to {
                    rz()
                } else {
                    let s = Operand::Special(sass::SpecialReg::SR_SWINHI);
                    operand(self.b.def(Opcode::S2R, &[], &[s]))
                };
                self.b.collect(&[x.pair().lo, hi])
            }
            Some(M::shared | M::shared_cta) => window(&mut self.b, &x, 0x18),
            Some(M::local) => window(&mut self.b, &x, if sm >= 100 { 0x2f8 } else { 0x20 }),
            Some(M::_const) => {
                let at = self.constant_window();
                window(&mut self.b, &x, at)
            }
            None if inst.one_of(&[M::param, M::param_entry]).is_some() => {
                let base = self.param_window();
                // A parameter's address is its offset in the constant bank.
                let first = Pair::imm(u64::from(self.opts.target.info().param_base));
                let base = Pair::of(self.b.sub64(&base, &first));
                if to { self.b.sub64(&x.pair(), &base) } else { self.b.add64(&x.pair(), &base) }
            }
            _ => return self.unsupported(inst),
        })
    }
}
