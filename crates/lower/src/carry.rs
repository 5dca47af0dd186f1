//! The condition code: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.

use crate::arith_int;
use crate::emit::{self, Emit, Pair, pt};
use crate::func::{Lower, Result};
use crate::scalar::part;
use crate::statement::Statement;
use crate::types::Ty;
use ori::{Value, operand};
use ptx::{Mod as M, Op as O};

impl Lower<'_, '_> {
    /// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`: the carry flag is a predicate variable.
    pub(crate) fn carrying(&mut self, inst: &Statement<'_>, t: Ty) -> Result<()> {
        self.branch_around(|s| {
            let mark = s.mark();
            let value = s.carrying_value(inst, t)?;
            let d = s.dst(&inst.operands[0])?;
            s.assign(d, value, mark);
            Ok(())
        })
    }

    fn carrying_value(&mut self, inst: &Statement<'_>, t: Ty) -> Result<Value> {
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
}
