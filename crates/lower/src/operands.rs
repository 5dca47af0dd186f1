//! PTX operands as sources, and what is known about values.

use crate::arith_int;
use crate::emit::{Emit, Pair, constant, imm, pt, rz};
use crate::func::{Known, Lower, Result};
use crate::types::{Src, Ty};
use ori::{Operand, Value, operand};
use ptx::{RegId, Symbol};

impl Lower<'_, '_> {
    /// A register operand that is written.
    pub fn dst(&self, o: &ptx::Operand) -> Result<RegId> {
        match o {
            ptx::Operand::Reg(r) => Ok(*r),
            _ => Err("destination is not a register".into()),
        }
    }

    /// A source operand of this type.
    pub fn src(&mut self, o: &ptx::Operand, ty: Ty) -> Result<Src> {
        let wide = ty.bits == 64;
        let bits = |n: u64| {
            if wide {
                Src::Wide(Pair::imm(n))
            } else {
                let mask = if ty.bits >= 32 { u64::MAX } else { (1 << ty.bits) - 1 };
                Src::Narrow(imm((n & mask) as u32))
            }
        };
        Ok(match o {
            ptx::Operand::Reg(r) => {
                let v = self.read(*r);
                self.value_src(v)
            }
            ptx::Operand::NegReg(r) => {
                let v = self.read(*r);
                let s = self.value_src(v);
                let neg = if ty.is_int() {
                    arith_int::neg(&mut self.b, ty, &s)
                } else {
                    crate::arith_float::sign(&mut self.b, ty, false, false, &s)
                };
                self.value_src(neg)
            }
            ptx::Operand::Int(n) => bits(*n),
            // Of a wider number these are the lower bits (docs/ptx-acceptance.md).
            ptx::Operand::F32(x) => bits(u64::from(*x)),
            ptx::Operand::F64(x) if wide => bits(*x),
            ptx::Operand::F64(x) if ty.bits == 32 => bits(u64::from((f64::from_bits(*x) as f32).to_bits())),
            ptx::Operand::Special(s, c) => self.special(*s, *c)?,
            ptx::Operand::Var(v, offset) => self.address_of(*v, *offset)?,
            ptx::Operand::Func(f) if self.calls_absolutely() => self.address_slot(Symbol::Func(*f))?,
            ptx::Operand::Func(f) => match self.layout.function_number(*f) {
                Some(n) if wide => bits(n),
                Some(_) => return Err("the address of a function has 64 bits".into()),
                None => self.address_slot(Symbol::Func(*f))?,
            },
            _ => return Err(crate::Refusal::NotBuilt("operand of a kind that is not supported here")),
        })
    }

    /// A value as a source.
    pub fn value_src(&self, v: Value) -> Src {
        match self.b.func.values[v].width {
            1 => Src::Narrow(match self.known[v] {
                Known::Imm(n) => imm(n as u32),
                Known::Const(bank, at) if self.opts.target.info().alu_const => constant(bank, at),
                _ => operand(v),
            }),
            2 => Src::Wide(match self.known[v] {
                Known::Imm(n) => Pair { value: Some(v), ..Pair::imm(n) },
                Known::Const(bank, at) if self.opts.target.info().alu_const => {
                    Pair { lo: constant(bank, at), hi: constant(bank, at + 4), value: Some(v) }
                }
                Known::Narrow => Pair { hi: rz(), ..Pair::of(v) },
                _ => Pair::of(v),
            }),
            _ => Src::Quad(v),
        }
    }

    /// A predicate operand, perhaps negated.
    pub fn pred(&mut self, o: &ptx::Operand) -> Result<Operand> {
        match o {
            ptx::Operand::Reg(r) => Ok(operand(self.read(*r))),
            ptx::Operand::NotPred(r) => Ok(crate::emit::not(self.read(*r))),
            ptx::Operand::Int(n) => Ok(if *n != 0 { pt() } else { crate::emit::never() }),
            ptx::Operand::Special(ptx::SpecialReg::is_explicit_cluster, _) => {
                let set = self.explicit_cluster();
                Ok(operand(set))
            }
            _ => Err("not a predicate".into()),
        }
    }

    /// An integer constant operand.
    pub fn integer(&self, o: &ptx::Operand) -> Result<u64> {
        match o {
            ptx::Operand::Int(n) => Ok(*n),
            _ => Err("an integer constant is needed".into()),
        }
    }

    /// A source as a value of its own (a copy of an immediate or constant), remembering what it is.
    pub fn materialize(&mut self, s: &Src) -> Value {
        match s {
            Src::Narrow(o) => {
                let v = self.b.reg(o);
                self.note(v, s);
                v
            }
            Src::Wide(p) => {
                let v = self.b.pair(p);
                self.note(v, s);
                v
            }
            Src::Quad(v) => *v,
        }
    }

    /// Remembers what `v` is equal to.
    pub(crate) fn note(&mut self, v: Value, s: &Src) {
        if self.known[v] != Known::Nothing {
            return;
        }
        let word = |o: &Operand| match o {
            Operand::Const {
                bank: sass::ConstBank::Index(b),
                index: None,
                offset,
                neg: false,
                abs: false,
                not: false,
            } => Some((*b, *offset as u32)),
            _ => None,
        };
        self.known[v] = match s {
            Src::Narrow(o) => match (crate::emit::as_imm(o), word(o)) {
                (Some(n), _) => Known::Imm(n.into()),
                (_, Some((b, at))) => Known::Const(b, at),
                _ => Known::Nothing,
            },
            Src::Wide(p) => match (p.as_imm(), word(&p.lo), word(&p.hi)) {
                (Some(n), ..) => Known::Imm(n),
                (_, Some((b, lo)), Some((c, hi))) if b == c && hi == lo + 4 => Known::Const(b, lo),
                _ => Known::Nothing,
            },
            Src::Quad(_) => Known::Nothing,
        };
    }

    /// `v + n` where what `v` points to is known, for addresses of stack and shared variables.
    pub fn add_known(&mut self, x: &Src, y: &Src, sum: Value) {
        let (Src::Wide(x), Src::Wide(y)) = (x, y) else {
            if let (Src::Narrow(Operand::Reg(r)), Some(n)) = (x, crate::emit::as_imm(&y.low()))
                && let Some(v) = r.reg.value()
                && let Known::Shared(at) = self.known[v]
            {
                self.known[sum] = Known::Shared(at + i64::from(n as i32));
            }
            return;
        };
        if let (Some(v), Some(n)) = (x.value, y.as_imm()) {
            self.known[sum] = match self.known[v] {
                Known::Stack(at) => Known::Stack(at.wrapping_add(n as i64)),
                Known::Shared(at) => Known::Shared(at.wrapping_add(n as i64)),
                Known::Sum(base, at) => Known::Sum(base, at.wrapping_add(n as i64)),
                _ => Known::Sum(v, n as i64),
            };
        }
    }
}
