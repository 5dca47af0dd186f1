//! State spaces of addresses: `isspacep`, `mapa`, `getctarank`.

use crate::emit::{Emit, Pair, imm};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::{Src, Ty};
use ori::{Name, Operand, Value, operand};
use ptx::Mod as M;
use sass::{AddrWidth, Mod, Opcode};

const B64: Ty = Ty { bits: 64, ..Ty::B32 };

impl Lower<'_, '_> {
    /// `isspacep`.
    pub fn isspacep(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        let x = self.src(&inst.operands[1], B64)?.pair();
        let spaces = [
            M::global,
            M::shared,
            M::shared_cta,
            M::shared_cluster,
            M::local,
            M::_const,
            M::param,
            M::param_entry,
        ];
        let space = inst.one_of(&spaces).ok_or("isspacep without a space")?;
        self.branch_around(|l| {
            let v = match space {
                M::_const => l.in_constants(&x),
                M::param | M::param_entry => l.in_params(&x),
                M::global => {
                    // The hardware counts the windows of constants and parameters as global memory.
                    let g = l.query_space(Mod::G, &x);
                    let c = l.in_constants(&x);
                    l.b.plop(operand(g), operand(c), 0x30)
                }
                M::local => l.query_space(Mod::L, &x),
                M::shared_cluster => l.query_space(Mod::D, &x),
                _ => l.query_space(Mod::S, &x),
            };
            l.write(d, v);
            Ok(())
        })
    }

    fn query_space(&mut self, space: Mod, x: &Pair) -> Value {
        let base = self.b.pair(x);
        // The register form reads a pair without saying so.
        let at = Operand::Addr {
            desc: None,
            base: Some(Name::Val(base)),
            width: AddrWidth::R64,
            uniform: None,
            offset: 0,
        };
        self.b.def_pred(Opcode::QSPC, &[Mod::E, space], &[at])
    }

    /// `first <= x < first + size`
    fn within(&mut self, x: &Pair, first: &Pair, end: &Pair, closed: bool) -> Value {
        let above = self.b.isetp64(Mod::GE, false, x, first);
        let below = self.b.isetp64(if closed { Mod::LE } else { Mod::LT }, false, x, end);
        self.b.plop(operand(above), operand(below), 0xc0)
    }

    /// Whether an address is in the window of constant bank 3.
    fn in_constants(&mut self, x: &Pair) -> Value {
        let first = self.driver_pair(self.constant_window()).pair();
        let size = u64::from(self.layout.const_size);
        let end = Pair::of(self.b.add64(&first, &Pair::imm(size)));
        self.within(x, &first, &end, false)
    }

    /// Whether an address is in the window of the kernel's parameters.
    fn in_params(&mut self, x: &Pair) -> Value {
        let sm = self.sm();
        if sm >= 90 {
            let (first, last) = if sm >= 100 { (0x348, 0x350) } else { (0x198, 0x1a0) };
            let (first, last) = (self.driver_pair(first).pair(), self.driver_pair(last).pair());
            return self.within(x, &first, &last, true);
        }
        let window = self.driver_pair(0x40).pair();
        let size = self.driver_word(if sm == 75 { 0x114 } else { 0x12c });
        let first = Pair::of(self.b.add64(&window, &Pair::imm(0x160)));
        let last = Pair::of(self.b.add64(&window, &Pair::parts(size.low(), crate::emit::rz())));
        self.within(x, &first, &last, true)
    }

    /// Where the driver says the window of constant bank 3 starts.
    pub(crate) fn constant_window(&self) -> u32 {
        match self.sm() {
            100.. => 0x120,
            90 => 0xd0,
            _ => 0x50,
        }
    }

    /// The generic address of parameter space's address 0.
    pub(crate) fn param_window(&mut self) -> Pair {
        match self.sm() {
            100.. => self.driver_pair(0x348).pair(),
            90 => self.driver_pair(0x198).pair(),
            _ => {
                let bank = self.driver_pair(0x40).pair();
                Pair::of(self.b.add64(&bank, &Pair::imm(0x160)))
            }
        }
    }

    /// `mapa`: the same address in another CTA of the cluster, whose rank is the upper byte of 32.
    pub fn mapa(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        let wide = inst.ty(0).is_some_and(|t| t.bits() == 64);
        let t = if wide { B64 } else { Ty::U32 };
        let x = self.src(&inst.operands[1], t)?;
        let rank = self.src(&inst.operands[2], Ty::U32)?.low();
        let rank = operand(self.b.reg(&rank));
        let low = operand(self.b.reg(&x.low()));
        let mark = self.mark();
        let lo = self.b.prmt(rank, imm(0x654), low);
        let v = if wide {
            let hi = x.pair().hi;
            self.b.collect(&[operand(lo), hi])
        } else {
            lo
        };
        self.assign(d, v, mark);
        Ok(())
    }

    /// `getctarank`: the upper byte of the low 32 bits.
    pub fn getctarank(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        let wide = inst.ty(0).is_some_and(|t| t.bits() == 64);
        let x: Src = self.src(&inst.operands[1], if wide { B64 } else { Ty::U32 })?;
        let mark = self.mark();
        let v = self.b.shr(false, x.low(), imm(24));
        self.assign(d, v, mark);
        Ok(())
    }
}
