//! `mov`: registers, predicates, packs of registers.

use crate::emit::{Emit, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{Name, Operand, Value, operand};

impl Lower<'_, '_> {
    /// `mov`.
    pub(crate) fn mov(&mut self, inst: &Statement<'_>) -> Result<()> {
        let t = self.ty0(inst)?;
        let mark = self.mark();
        if let ptx::Operand::Vector(elems) = &inst.operands[0] {
            if let ptx::Operand::Vector(from) = &inst.operands[1] {
                return self.mov_vector(t, elems, from);
            }
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

    /// `mov.v2.b32 {a, b}, {c, d}` and its like: every source is read before any result is there.
    fn mov_vector(&mut self, t: Ty, to: &[ptx::VectorElem], from: &[ptx::VectorElem]) -> Result<()> {
        if to.len() != from.len() {
            return Err("vectors of different lengths".into());
        }
        let mut sources = Vec::new();
        for e in from {
            sources.push(self.elem(e, t)?);
        }
        for (e, s) in to.iter().zip(&sources) {
            match e {
                ptx::VectorElem::Reg(r) => {
                    let mark = self.mark();
                    let value = self.materialize(s);
                    self.assign(*r, value, mark);
                }
                ptx::VectorElem::Sink => {}
                _ => return Err("result is not a register".into()),
            }
        }
        Ok(())
    }

    /// `mov.b64 {a, b}, c` and its like.
    fn unpack(&mut self, inst: &Statement<'_>, t: Ty, elems: &[ptx::VectorElem]) -> Result<()> {
        let s = self.src(&inst.operands[1], t)?;
        let bits = usize::from(t.bits) / elems.len();
        let words: Vec<Operand> = match &s {
            Src::Narrow(o) => vec![*o],
            Src::Wide(p) => vec![p.lo, p.hi],
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
                    let word = words[at / 32];
                    if shift == 0 { self.b.reg(&word) } else { self.b.shr(false, word, imm(shift)) }
                }
                32 => self.b.reg(&words[at / 32]),
                64 => self.b.collect(&[words[at / 32], words[at / 32 + 1]]),
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
}
