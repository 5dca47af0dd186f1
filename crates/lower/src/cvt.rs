//! `cvt` and `cvta`: modifiers and operands; `convert` does the work.

use crate::arith_int;
use crate::convert::{self, Conversion, Round};
use crate::convert_half::{self, Narrowing};
use crate::emit::{self, Emit, Pair, rz};
use crate::func::{Lower, Result, ty};
use crate::own_address::Whose;
use crate::scalar::rounding;
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{Operand, Value, operand};
use ptx::{Mod as M, Type};
use sass::{Opcode, RegFile};
use smallvec::SmallVec;

/// Why `cvta.param` is refused.
const OWN_OR_NOT: &str =
    "an address that may be of the function's own parameter, which is one of .local, or of a kernel's";

impl Lower<'_, '_> {
    pub(crate) fn cvt(&mut self, inst: &Statement<'_>) -> Result<()> {
        let mut types = inst.types();
        let (Some(to), Some(from)) = (types.next(), types.next()) else {
            return self.unsupported(inst);
        };
        let narrowing = Narrowing { relu: inst.has(M::relu), satfinite: inst.has(M::satfinite) };
        let half = matches!(to, Type::f16 | Type::bf16) || matches!(from, Type::f16 | Type::bf16);
        if ty(to).kind == Kind::Packed
            || ty(from).kind == Kind::Packed
            || matches!(to, Type::f16x2 | Type::bf16x2)
            || inst.has(M::pack)
        {
            return self.cvt_packed(inst, to, from, narrowing);
        }
        if types.next().is_some() || inst.operands.len() != 2 {
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
        let value = if half {
            convert_half::convert_half(&mut self.b, &c, narrowing, &s)
        } else if narrowing != Narrowing::default() {
            None
        } else {
            convert::convert(&mut self.b, &c, &s)
        };
        let Some(value) = value else {
            return self.unsupported(inst);
        };
        let value = self.fill(d, value, c.to);
        self.assign(d, value, mark);
        Ok(())
    }

    /// Conversions from and to pairs of numbers, and to tf32.
    fn cvt_packed(&mut self, inst: &Statement<'_>, to: Type, from: Type, n: Narrowing) -> Result<()> {
        use convert_half as h;
        let round = rounding(inst);
        let word = Ty::B32;
        let d = self.dst(&inst.operands[0])?;
        let mut x: SmallVec<[Operand; 5]> = SmallVec::new();
        let from_ty = if from == Type::f32 { Ty { kind: Kind::Float, bits: 32 } } else { word };
        for o in inst.operands.from(1) {
            match o {
                ptx::Operand::Vector(elems) => {
                    for e in elems {
                        x.push(self.elem(e, from_ty)?.low());
                    }
                }
                o => x.push(self.src(o, from_ty)?.low()),
            }
        }
        let mark = self.mark();
        let b = &mut self.b;
        let bf16 = to == Type::bf16x2;
        let value = match (to, from, &x[..]) {
            (_, _, [x, y]) if inst.has(M::pack) => h::pack_integers(b, to, *x, *y, rz()),
            (_, _, [x, y, c]) if inst.has(M::pack) => h::pack_integers(b, to, *x, *y, *c),
            (Type::tf32, Type::f32, [x]) => Some(h::to_tf32(b, n, round, inst.has(M::rna), *x)),
            (Type::f16x2 | Type::bf16x2, Type::f32, [x, y, bits]) if inst.has(M::rs) => {
                Some(h::pack_stochastic(b, bf16, n, *x, *y, *bits))
            }
            (Type::f16x2 | Type::bf16x2, Type::f32, [x, y]) => {
                Some(h::pack_halves(b, bf16, n, round, *x, *y))
            }
            (Type::f16x2 | Type::bf16x2, _, [x]) => h::from_small(b, to, from, n, *x),
            (_, Type::f32, [x @ .., bits]) if inst.has(M::rs) && x.len() == 4 => {
                h::to_small_stochastic(b, to, n, x, *bits)
            }
            (_, Type::f32, [x, y]) => h::to_small(b, to, from, n, round, *x, Some(*y)),
            (_, Type::f16x2 | Type::bf16x2, [x]) => h::to_small(b, to, from, n, round, *x, None),
            _ => None,
        };
        let Some(value) = value else { return self.unsupported(inst) };
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

    pub(crate) fn cvta(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
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
        let local = if sm >= 100 { 0x2f8 } else { 0x20 };
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
            Some(M::local) => window(&mut self.b, &x, local),
            Some(M::_const) => {
                let at = self.constant_window();
                window(&mut self.b, &x, at)
            }
            None if inst.one_of(&[M::param, M::param_entry]).is_some() => {
                match self.whose_parameter(&inst.operands[1]) {
                    Some(Whose::Own) => return Ok(window(&mut self.b, &x, local)),
                    Some(Whose::Kernels) => {}
                    None => return Err(OWN_OR_NOT.into()),
                }
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
