//! `ldmatrix`, `stmatrix` and `movmatrix`: matrices of 16-bit elements, or of bytes, between shared memory and the
//! registers of a warp, whose threads are brought together first.

use crate::access;
use crate::emit::{Emit, Pair, constant, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Name, Operand, operand};
use ptx::{Mod as M, Op as O, Space};
use sass::{Mod, Opcode};

/// Element size and shape of a matrix as LDSM and STSM spell them.
fn shape(inst: &Statement<'_>) -> Option<[Mod; 2]> {
    let transposed = inst.has(M::trans);
    match () {
        () if inst.has(M::m8n8) => Some([Mod::_16, if transposed { Mod::MT88 } else { Mod::M88 }]),
        () if inst.has(M::m8n16) && inst.has(M::b4x16_p64) => Some([Mod::U4x16P64TO8, Mod::M816]),
        () if inst.has(M::m8n16) => Some([Mod::U6x16P32TO8, Mod::M816]),
        () if inst.has(M::m16n8) => Some([Mod::_8, Mod::MT168]),
        () if inst.has(M::m16n16) && inst.has(M::b4x16_p64) => Some([Mod::U4x16P64TO8, Mod::MT1616]),
        () if inst.has(M::m16n16) && inst.has(M::b6x16_p32) => Some([Mod::U6x16P32TO8, Mod::MT1616]),
        () if inst.has(M::m16n16) => Some([Mod::_8, Mod::MT1616]),
        () => None,
    }
}

impl Lower<'_, '_> {
    /// Such an instruction.
    pub fn matrix_move(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| {
            l.b.guarded(ALWAYS, Opcode::WARPSYNC, &[], &[pt(), imm(!0)], &[]);
            match inst.op {
                O::movmatrix => l.movmatrix(inst),
                _ => l.matrix_in_memory(inst),
            }
        })
    }

    fn movmatrix(&mut self, inst: &Statement<'_>) -> Result<()> {
        let d = self.dst(&inst.operands[0])?;
        let source = self.src(&inst.operands[1], Ty::U32)?.low();
        let source = operand(self.b.reg(&source));
        let v = self.b.def(Opcode::MOVM, &[Mod::_16, Mod::MT88], &[source]);
        self.write(d, v);
        Ok(())
    }

    fn matrix_in_memory(&mut self, inst: &Statement<'_>) -> Result<()> {
        let load = inst.op == O::ldmatrix;
        let a = self.addr_operand(&inst.operands[usize::from(load)])?;
        let Some(shape) = shape(inst) else { return self.unsupported(inst) };
        let mut at = self.address32(a, Space::Shared)?;
        match self.access_space(inst, a) {
            Some(access::Space::Shared) => {}
            // From sm_90 on the low word of a generic address is the shared one.
            Some(access::Space::Generic) if self.sm() >= 90 => {}
            Some(access::Space::Generic) => {
                let low = Pair::parts(at.base.map_or_else(rz, operand), rz());
                let window = Pair::parts(constant(0, 0x18), rz());
                let base = self.b.sub64(&low, &window);
                at.base = Some(Name::Part(base, 0));
            }
            _ => return self.unsupported(inst),
        }
        let at = at.operand(None);
        let count = match () {
            () if inst.has(M::x2) => Some(Mod::_2),
            () if inst.has(M::x4) => Some(Mod::_4),
            () => None,
        };
        let mods: Vec<Mod> = shape.into_iter().chain(count).collect();
        if load {
            let dsts = crate::memory::destinations(inst)?;
            let op = if inst.has(M::m16n16) { Opcode::LDSM_MT1616 } else { Opcode::LDSM };
            let v = self.b.def(op, &mods, &[at]);
            let words: Vec<Operand> = match dsts.len() {
                1 => vec![operand(v)],
                n => (0..n as u8).map(|i| operand(Name::Part(v, i))).collect(),
            };
            self.scatter(&dsts, Ty::U32, &words);
            return Ok(());
        }
        let mut words = Vec::new();
        match &inst.operands[1] {
            ptx::Operand::Vector(elems) => {
                for e in elems {
                    words.push(self.elem(e, Ty::U32)?.low());
                }
            }
            o => words.push(self.src(o, Ty::U32)?.low()),
        }
        let data = match &words[..] {
            [one] => self.b.reg(one),
            many => self.b.collect(many),
        };
        self.b.inst(Opcode::STSM, &mods, &[at, operand(data)]);
        Ok(())
    }
}
