//! `alloca`, `stacksave`, `stackrestore`: memory below the stack pointer. R1 itself stays, so that the frame is where
//! it is; the lowest address given out is a variable.

use crate::emit::{Emit, as_imm, imm, ineg, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{Name, Operand, operand};
use ptx::Op;
use sass::Reg;

/// Whether code allocates on the stack.
pub fn allocates(body: &ptx::Body) -> bool {
    body.stmts.iter().any(|s| matches!(s, ptx::Stmt::Inst(i) if i.op == Op::alloca))
}

impl Lower<'_, '_> {
    /// `alloca`, `stacksave`, `stackrestore`.
    pub fn dynamic_stack(&mut self, inst: &Statement<'_>) -> Result<()> {
        let wide = inst.ty(0).is_some_and(|t| t.bits() == 64);
        let t = Ty { bits: if wide { 64 } else { 32 }, ..Ty::U32 };
        if inst.op == Op::stackrestore {
            let to = self.src(&inst.operands[0], t)?.low();
            if let Some(var) = self.stack {
                let to = self.b.reg(&to);
                self.write_var(var, to);
            }
            return Ok(());
        }
        let d = self.dst(&inst.operands[0])?;
        let mark = self.mark();
        let low = match self.stack {
            Some(var) => operand(self.read_var(var)),
            None => operand(self.b.iadd(operand(Name::Phys(Reg::SP)), rz())),
        };
        let low = match (inst.op, self.stack) {
            (Op::alloca, Some(var)) => {
                let bytes = self.src(&inst.operands[1], t)?.low();
                let align = match inst.operands.get(2) {
                    Some(o) => self.integer(o)? as u32,
                    None => 8,
                };
                if !align.is_power_of_two() {
                    return Err("alignment is not a power of two".into());
                }
                let below = match as_imm(&bytes) {
                    Some(n) => self.b.iadd(low, imm(n.wrapping_neg())),
                    None => self.b.iadd(low, ineg(bytes)),
                };
                let at = self.b.and(operand(below), Operand::Imm(align.wrapping_neg()));
                self.write_var(var, at);
                operand(at)
            }
            (Op::alloca, None) => return self.unsupported(inst),
            _ => low,
        };
        let value = match wide {
            true => self.b.collect(&[low, rz()]),
            false => self.b.copy(low),
        };
        self.assign(d, value, mark);
        Ok(())
    }
}
