//! Products of matrices whose elements are spread over the registers of a warp: `mma` and `wmma`.
//!
//! Every statement becomes one or more [`Product`]s on words of registers. What the target multiplies itself is one
//! instruction ([`dense`], [`sparse`], [`scaled`]); everything else is put together from such ones ([`bits`], [`small`],
//! [`quad`]). Fragments of `wmma` are those of `mma` ([`wmma`], [`fragment`]).

mod bits;
mod dense;
mod fragment;
mod group;
mod quad;
mod scaled;
mod small;
mod sparse;
mod wmma;

pub(crate) use group::Plan;

use crate::emit::{Emit, imm, pt, rz};
use crate::func::{Lower, Result};
use crate::scalar::rounding;
use crate::statement::Statement;
use crate::types::Ty;
use ori::{ALWAYS, Name, Operand, Value, operand};
use ptx::{Mod as M, VectorElem};
use sass::{Mod, Opcode};

/// What an element of a matrix is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Elem {
    /// binary16
    F16,
    /// bfloat16
    Bf16,
    /// binary32 of which the low 13 bits are ignored.
    Tf32,
    /// binary32
    F32,
    /// binary64
    F64,
    /// A 32-bit integer.
    S32,
    /// An unsigned byte.
    U8,
    /// A signed byte.
    S8,
    /// Four bits, unsigned.
    U4,
    /// Four bits, signed.
    S4,
    /// One bit.
    B1,
    /// A floating-point format of eight bits or fewer, as SASS spells it.
    Small(Mod),
}

impl Elem {
    /// The type of that word.
    fn of(word: M) -> Option<Elem> {
        Some(match word {
            M::f16 => Elem::F16,
            M::bf16 => Elem::Bf16,
            M::tf32 => Elem::Tf32,
            M::f32 => Elem::F32,
            M::f64 => Elem::F64,
            M::s32 => Elem::S32,
            M::u8 => Elem::U8,
            M::s8 => Elem::S8,
            M::u4 => Elem::U4,
            M::s4 => Elem::S4,
            M::b1 => Elem::B1,
            M::e4m3 => Elem::Small(Mod::E4M3),
            M::e5m2 => Elem::Small(Mod::E5M2),
            M::e3m2 => Elem::Small(Mod::E3M2),
            M::e2m3 => Elem::Small(Mod::E2M3),
            M::e2m1 => Elem::Small(Mod::E2M1),
            _ => return None,
        })
    }

    /// Bits that one takes in memory, in a fragment of `wmma`.
    fn bits(self) -> u32 {
        match self {
            Elem::F64 => 64,
            Elem::F32 | Elem::Tf32 | Elem::S32 => 32,
            Elem::F16 | Elem::Bf16 => 16,
            Elem::U8 | Elem::S8 | Elem::Small(_) => 8,
            Elem::U4 | Elem::S4 => 4,
            Elem::B1 => 1,
        }
    }

    /// The integer types as IMMA spells them.
    fn integer(self) -> Option<Mod> {
        Some(match self {
            Elem::U8 => Mod::U8,
            Elem::S8 => Mod::S8,
            Elem::U4 => Mod::U4,
            Elem::S4 => Mod::S4,
            _ => return None,
        })
    }
}

/// D = A · B + C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Product {
    /// Rows of A, columns of B, columns of A.
    pub size: (u32, u32, u32),
    /// The elements of D, A, B, C.
    pub types: [Elem; 4],
    /// Sums of integers stop at the ends of their range.
    pub saturate: bool,
    /// Of bits: products, not differences.
    pub and: bool,
    /// A stands by columns, B by rows: of quarter warps alone (`m8n8k4` of binary16).
    pub turned: [bool; 2],
    /// Of binary64: how each sum is rounded, nothing for to nearest.
    pub round: Option<Mod>,
}

/// Words of registers.
type Words = Vec<Operand>;

/// `m16n8k16`
fn size(word: &str) -> Option<(u32, u32, u32)> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}

/// The words of a value.
pub(crate) fn words_of(v: Value, count: u8) -> Words {
    match count {
        1 => vec![operand(v)],
        n => (0..n).map(|i| operand(Name::Part(v, i))).collect(),
    }
}

impl Lower<'_, '_> {
    /// `mma` and `wmma`: of all threads of the warp, together.
    pub(crate) fn matrix(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.branch_around(|l| {
            l.b.guarded(ALWAYS, Opcode::WARPSYNC, &[], &[pt(), imm(!0)], &[]);
            match () {
                () if inst.op == ptx::Op::mma => l.mma(inst),
                () if inst.has(M::load) => l.wmma_load(inst),
                () if inst.has(M::store) => l.wmma_store(inst),
                () => l.wmma_mma(inst),
            }
        })
    }

    /// What the words of a statement say of the product.
    fn product_of(&self, inst: &Statement<'_>) -> Result<Product> {
        let mut types = Vec::new();
        inst.find(|m| {
            types.extend(Elem::of(m));
            Elem::of(m)
        });
        let types = match types[..] {
            // Around binary16: D and C.
            [d, c] => [d, Elem::F16, Elem::F16, c],
            [d, a, b, c] => [d, a, b, c],
            _ => return self.unsupported(inst),
        };
        let Some(size) = inst.find(|m| size(m.name())) else { return self.unsupported(inst) };
        let mut layouts = Vec::new();
        inst.find(|m| {
            let layout = matches!(m, M::row | M::col).then_some(m);
            layouts.extend(layout);
            layout
        });
        let saturate = inst.has(M::satfinite);
        let and = inst.has_prefix("and");
        inst.has_prefix("xor");
        inst.has_prefix("popc");
        let turned = [layouts.first() == Some(&M::col), layouts.get(1) == Some(&M::row)];
        let round = rounding(inst).sass();
        Ok(Product { size, types, saturate, and, turned, round })
    }

    fn mma(&mut self, inst: &Statement<'_>) -> Result<()> {
        let p = self.product_of(inst)?;
        let [d_type, .., c_type] = p.types;
        let a = self.matrix_words(&inst.operands[1], p.types[1])?;
        let b = self.matrix_words(&inst.operands[2], p.types[2])?;
        let c = self.matrix_words(&inst.operands[3], c_type)?;
        let scaled = inst.has_prefix("block_scale");
        let ordered = inst.has_prefix("sp::ordered_metadata");
        let sparse = inst.has_prefix("sp");
        inst.has_prefix("kind::");
        let d = match (scaled, sparse) {
            (true, _) => self.scaled_product(inst, &p, sparse, [&a, &b, &c])?,
            (false, true) => self.sparse_product(inst, &p, ordered, [&a, &b, &c])?,
            (false, false) => self.product(&p, [&a, &b, &c])?,
        };
        self.write_matrix(&inst.operands[0], d_type, &d)
    }

    /// The words of a matrix in registers.
    fn matrix_words(&mut self, o: &ptx::Operand, e: Elem) -> Result<Words> {
        let elems: &[VectorElem] = match o {
            ptx::Operand::Vector(v) => v,
            ptx::Operand::Reg(r) => &[VectorElem::Reg(*r)],
            _ => return Err("a matrix is in registers".into()),
        };
        let mut words = Vec::new();
        for elem in elems {
            match e {
                Elem::F64 => {
                    let pair = self.elem(elem, Ty { bits: 64, ..Ty::B32 })?.pair();
                    words.extend([pair.lo, pair.hi]);
                }
                _ => words.push(self.elem(elem, Ty::B32)?.low()),
            }
        }
        Ok(words)
    }

    /// A register that may stand in braces.
    fn one_word(&mut self, o: &ptx::Operand) -> Result<Operand> {
        let words = self.matrix_words(o, Elem::S32)?;
        let word = words.first().ok_or("a register is missing")?;
        // Known numbers, too, are in a register.
        Ok(operand(self.b.reg(word)))
    }

    /// Writes words to the registers of an operand.
    pub(crate) fn write_words(&mut self, o: &ptx::Operand, words: &[Operand]) -> Result<()> {
        self.write_matrix(o, Elem::S32, words)
    }

    /// Writes the words of D.
    fn write_matrix(&mut self, o: &ptx::Operand, e: Elem, words: &[Operand]) -> Result<()> {
        let elems: &[VectorElem] = match o {
            ptx::Operand::Vector(v) => v,
            ptx::Operand::Reg(r) => &[VectorElem::Reg(*r)],
            _ => return Err("a matrix is in registers".into()),
        };
        let per = if e == Elem::F64 { 2 } else { 1 };
        let mut values = Vec::new();
        for (elem, words) in elems.iter().zip(words.chunks(per)) {
            let VectorElem::Reg(r) = elem else {
                if matches!(elem, VectorElem::Sink) {
                    continue;
                }
                return Err("a constant cannot be written".into());
            };
            let value = match words {
                [one] => self.b.copy(*one),
                many => self.b.collect(many),
            };
            values.push((*r, value));
        }
        let mark = self.mark();
        for (r, value) in values {
            self.assign(r, value, mark);
        }
        Ok(())
    }

    /// Words in consecutive registers.
    fn tuple(&mut self, words: &[Operand]) -> Operand {
        match words {
            [one] => operand(self.b.reg(one)),
            many => operand(self.b.collect(many)),
        }
    }

    /// The same of an addend; zeros need no registers.
    fn addend(&mut self, words: &[Operand]) -> Operand {
        if words.iter().all(|w| *w == rz()) { rz() } else { self.tuple(words) }
    }

    /// One product that the target has: D's words.
    fn multiply(&mut self, op: Opcode, mods: &[Mod], [a, b, c]: [&[Operand]; 3], more: &[Operand]) -> Words {
        let mut sources = vec![self.tuple(a), self.tuple(b), self.addend(c)];
        if !more.is_empty() {
            // UPT: the product counts.
            sources.push(operand(Name::Phys(sass::Reg::UPT)));
            sources.extend_from_slice(more);
        }
        let d = self.b.def(op, mods, &sources);
        words_of(d, self.b.func.values[d].width)
    }

    /// A product, by whatever the target has for it.
    fn product(&mut self, p: &Product, x: [&[Operand]; 3]) -> Result<Words> {
        if p.size == (8, 8, 4) && p.types[1] == Elem::F16 {
            return self.quad_product(p, x);
        }
        if let Some((op, mods)) = dense::direct(p, self.sm()) {
            return Ok(self.multiply(op, &mods, x, &[]));
        }
        match p.types[1] {
            Elem::F64 => self.double_rows(p, x),
            Elem::F16 | Elem::Bf16 if self.sm() == 75 => self.half_depth(p, x),
            Elem::U8 | Elem::S8 => self.bytes_product(p, x),
            Elem::U4 | Elem::S4 => self.nibbles_product(p, x),
            Elem::B1 => self.bits_product(p, x),
            Elem::Small(_) => self.small_product(p, x),
            _ => Err(crate::Refusal::Product("no product of these matrices on this target")),
        }
    }
}
