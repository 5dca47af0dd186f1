//! Comparison and selection: `setp`, `set`, `selp`, `slct`, `testp`.

use crate::arith_float::{self, Class};
use crate::arith_int::{self, Combine};
use crate::emit::{Emit, imm, rz};
use crate::func::{Lower, Result, ty};
use crate::half;
use crate::statement::Statement;
use crate::types::{Kind, Ty};
use ori::{Value, operand};
use ptx::{Mod as M, Op as O};
use sass::Mod;

/// The comparison of a `setp` or `set`: SASS spelling, and whether it is forced to be unsigned.
fn comparison(inst: &Statement<'_>) -> Option<(Mod, bool)> {
    inst.find(|m| {
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
    /// Instructions whose operands have several types.
    pub(crate) fn mixed(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
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
                let yes = match (t.kind, t.bits) {
                    (Kind::Float, 32) => 1.0f32.to_bits(),
                    (Kind::Float, 16) => 0x3c00,
                    (Kind::Bf16, _) => 0x3f80,
                    (Kind::F16x2, _) => 0x3c00_3c00,
                    (Kind::Bf16x2, _) => 0x3f80_3f80,
                    (Kind::Unsigned | Kind::Signed | Kind::Bits, 16 | 32) => !0,
                    _ => return self.unsupported(inst),
                };
                if from.is_half() {
                    let combine = self.combine(inst, 3)?;
                    let (cmp, _) = comparison(inst).ok_or("comparison is missing")?;
                    let (x, y) = (self.arg(inst, 1, from)?, self.arg(inst, 2, from)?);
                    let ftz = inst.has(M::ftz);
                    if t == from {
                        return Ok(half::set(&mut self.b, from, ftz, cmp, (&x, &y), &combine, true));
                    }
                    let mask = half::set(&mut self.b, from, ftz, cmp, (&x, &y), &combine, false);
                    return Ok(if yes == !0 { mask } else { self.b.and(operand(mask), imm(yes)) });
                }
                let p = self.compare(inst, from, 1, false)?;
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
    fn compare(&mut self, inst: &Statement<'_>, t: Ty, n: usize, inverted: bool) -> Result<Value> {
        let (cmp, unsigned) = comparison(inst).ok_or("comparison is missing")?;
        let combine = self.combine(inst, n + 2)?;
        let float = t.is_float() || t.is_half();
        let cmp = if inverted { inverse(cmp, float) } else { cmp };
        let (x, y) = (self.arg(inst, n, t)?, self.arg(inst, n + 1, t)?);
        match t.kind {
            Kind::Float | Kind::Bf16 if t.bits == 16 => {
                Ok(half::setp(&mut self.b, t, inst.has(M::ftz), cmp, &x, &y, &combine).0)
            }
            Kind::Float => Ok(arith_float::setp(&mut self.b, t, inst.has(M::ftz), cmp, &x, &y, &combine)),
            Kind::Bits | Kind::Unsigned | Kind::Signed => {
                let t = if unsigned || t.kind == Kind::Bits { Ty { kind: Kind::Unsigned, ..t } } else { t };
                Ok(arith_int::setp(&mut self.b, t, cmp, &x, &y, &combine))
            }
            _ => self.unsupported(inst),
        }
    }

    /// What the comparison is combined with, operand `n`.
    fn combine(&mut self, inst: &Statement<'_>, n: usize) -> Result<Combine> {
        Ok(match inst.one_of(&[M::and, M::or, M::xor]) {
            None => Combine::default(),
            Some(m) => {
                let op = match m {
                    M::and => Mod::AND,
                    M::or => Mod::OR,
                    _ => Mod::XOR,
                };
                let o = inst.operands.get(n).ok_or("operand is missing")?;
                Combine { op, with: self.pred(o)? }
            }
        })
    }

    /// `setp`.
    pub(crate) fn setp(&mut self, inst: &Statement<'_>) -> Result<()> {
        let t = self.ty0(inst)?;
        let (p, q) = match &inst.operands[0] {
            ptx::Operand::Reg(p) => (Some(*p), None),
            ptx::Operand::Pair(p, q) => (*p, *q),
            // ptxas takes it, and nothing is left of it.
            ptx::Operand::Sink => {
                inst.moot_all();
                return Ok(());
            }
            _ => return Err("setp writes predicates".into()),
        };
        if matches!(t.kind, Kind::F16x2 | Kind::Bf16x2) {
            // One predicate for each half.
            let combine = self.combine(inst, 3)?;
            let (cmp, _) = comparison(inst).ok_or("comparison is missing")?;
            let (x, y) = (self.arg(inst, 1, t)?, self.arg(inst, 2, t)?);
            let both = half::setp(&mut self.b, t, inst.has(M::ftz), cmp, &x, &y, &combine);
            for (d, value) in [(p, both.0), (q, both.1)] {
                let mark = self.mark();
                if let Some(d) = d {
                    self.assign(d, value, mark);
                }
            }
            return Ok(());
        }
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
}
