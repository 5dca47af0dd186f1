//! Small building blocks on top of [`Builder`]: one function per machine idiom that several PTX
//! instructions expand to.

use ori::{ALWAYS, Builder, Guard, InstData, Name, Op, Operand, Value, operand};
use sass::{ConstBank, Mod, Mods, Opcode, Reg, RegFile, RegOp};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// RZ as an operand.
pub fn rz() -> Operand {
    operand(Name::Phys(Reg::RZ))
}

/// PT as an operand.
pub fn pt() -> Operand {
    operand(Name::Phys(Reg::PT))
}

/// `!PT` as an operand: never; also "no carry in".
pub fn never() -> Operand {
    not(Name::Phys(Reg::PT))
}

/// `!p`.
pub fn not(p: impl Into<Name>) -> Operand {
    Operand::Reg(RegOp { not: true, ..RegOp::plain(p.into()) })
}

/// An immediate; 0 is RZ.
pub fn imm(n: u32) -> Operand {
    if n == 0 { rz() } else { Operand::Imm(n) }
}

/// The bits of a binary32 number as an immediate.
pub fn fimm(x: f32) -> Operand {
    Operand::Imm(x.to_bits())
}

/// Arithmetic negation of an integer source (folded into an immediate).
pub fn ineg(o: Operand) -> Operand {
    match o {
        Operand::Imm(n) => imm(n.wrapping_neg()),
        o if o == rz() => o,
        o => flip_neg(o),
    }
}

/// Complement of an integer source (folded into an immediate).
pub fn inot(o: Operand) -> Operand {
    match o {
        Operand::Imm(n) => imm(!n),
        o if o == rz() => Operand::Imm(!0),
        Operand::Reg(r) => Operand::Reg(RegOp { not: !r.not, ..r }),
        Operand::Const { bank, index, offset, neg, abs, not } => {
            Operand::Const { bank, index, offset, neg, abs, not: !not }
        }
        o => o,
    }
}

fn flip_neg(o: Operand) -> Operand {
    match o {
        Operand::Reg(r) => Operand::Reg(RegOp { neg: !r.neg, ..r }),
        Operand::Const { bank, index, offset, neg, abs, not } => {
            Operand::Const { bank, index, offset, neg: !neg, abs, not }
        }
        o => o,
    }
}

/// Negation of a floating-point source; `sign` is the sign bit of an immediate.
pub fn fneg(o: Operand) -> Operand {
    match o {
        Operand::Imm(n) => Operand::Imm(n ^ 0x8000_0000),
        o => flip_neg(o),
    }
}

/// Absolute value of a floating-point source.
pub fn fabs(o: Operand) -> Operand {
    match o {
        Operand::Imm(n) => Operand::Imm(n & 0x7fff_ffff),
        Operand::Reg(r) => Operand::Reg(RegOp { abs: true, neg: false, ..r }),
        Operand::Const { bank, index, offset, not, .. } => {
            Operand::Const { bank, index, offset, neg: false, abs: true, not }
        }
        o => o,
    }
}

/// A 64-bit source: its halves, and the register pair that holds it, if one does.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Bits 0 … 31.
    pub lo: Operand,
    /// Bits 32 … 63.
    pub hi: Operand,
    /// The value, if it is in a register pair.
    pub value: Option<Value>,
}

impl Pair {
    /// Of a register pair.
    pub fn of(v: Value) -> Pair {
        Pair { lo: operand(Name::Part(v, 0)), hi: operand(Name::Part(v, 1)), value: Some(v) }
    }
    /// Of an immediate.
    pub fn imm(n: u64) -> Pair {
        Pair { lo: imm(n as u32), hi: imm((n >> 32) as u32), value: None }
    }
    /// Of two halves.
    pub fn parts(lo: Operand, hi: Operand) -> Pair {
        Pair { lo, hi, value: None }
    }
    /// The immediate, if it is one.
    pub fn as_imm(&self) -> Option<u64> {
        Some(u64::from(as_imm(&self.lo)?) | u64::from(as_imm(&self.hi)?) << 32)
    }
}

/// The immediate value of a 32-bit operand (RZ is 0).
pub fn as_imm(o: &Operand) -> Option<u32> {
    match o {
        Operand::Imm(n) => Some(*n),
        o if *o == rz() => Some(0),
        _ => None,
    }
}

/// The idioms.
pub trait Emit {
    /// The pair in a register pair.
    fn pair(&mut self, p: &Pair) -> Value;
    /// The 32-bit operand in a register.
    fn reg(&mut self, o: &Operand) -> Value;
    /// `a + b + c`.
    fn iadd3(&mut self, a: Operand, b: Operand, c: Operand) -> Value;
    /// `a + b`.
    fn iadd(&mut self, a: Operand, b: Operand) -> Value;
    /// `a + b` and the carry out; `carry` in makes it the `.X` form.
    fn iadd_carry(&mut self, a: Operand, b: Operand, carry: Option<Operand>) -> (Value, Value);
    /// 64-bit `a + b`.
    fn add64(&mut self, a: &Pair, b: &Pair) -> Value;
    /// 64-bit `a - b`.
    fn sub64(&mut self, a: &Pair, b: &Pair) -> Value;
    /// `a * b + c`, low 32 bits.
    fn imad(&mut self, a: Operand, b: Operand, c: Operand) -> Value;
    /// 64-bit `a * b + c` of 32-bit factors.
    fn imad_wide(&mut self, signed: bool, a: Operand, b: Operand, c: Operand) -> Value;
    /// High 32 bits of `a * b`.
    fn imul_hi(&mut self, signed: bool, a: Operand, b: Operand) -> Value;
    /// Three-input logic.
    fn lop3(&mut self, a: Operand, b: Operand, c: Operand, lut: u8) -> Value;
    /// `a & b`.
    fn and(&mut self, a: Operand, b: Operand) -> Value;
    /// `a ^ b`.
    fn xor(&mut self, a: Operand, b: Operand) -> Value;
    /// Funnel shift.
    fn shf(&mut self, mods: &[Mod], lo: Operand, amount: Operand, hi: Operand) -> Value;
    /// `a << n`, 0 for n > 31.
    fn shl(&mut self, a: Operand, n: Operand) -> Value;
    /// `a >> n`, sign or 0 for n > 31.
    fn shr(&mut self, signed: bool, a: Operand, n: Operand) -> Value;
    /// `p ? a : b`.
    fn sel(&mut self, p: Operand, a: Operand, b: Operand) -> Value;
    /// 64-bit `p ? a : b`.
    fn sel64(&mut self, p: Operand, a: &Pair, b: &Pair) -> Value;
    /// Integer comparison.
    fn isetp(&mut self, cmp: Mod, signed: bool, a: Operand, b: Operand) -> Value;
    /// 64-bit integer comparison.
    fn isetp64(&mut self, cmp: Mod, signed: bool, a: &Pair, b: &Pair) -> Value;
    /// `f(a, b)` of predicates; `lut` over a = 0xf0, b = 0xcc.
    fn plop(&mut self, a: Operand, b: Operand, lut: u8) -> Value;
    /// Byte permutation: `selector` picks from `{b, a}`.
    fn prmt(&mut self, a: Operand, selector: Operand, b: Operand) -> Value;
    /// A guarded instruction as [`Builder::inst`], where the definitions keep `kept`.
    fn guarded(&mut self, guard: Guard, op: Opcode, mods: &[Mod], operands: &[Operand], kept: &[Name]);
    /// A guarded instruction with one definition: `guard ? op(sources) : kept`.
    fn def_guarded(
        &mut self,
        guard: Guard,
        op: Opcode,
        mods: &[Mod],
        sources: &[Operand],
        kept: Value,
    ) -> Value;
}

impl Emit for Builder<'_> {
    fn pair(&mut self, p: &Pair) -> Value {
        match p.value {
            Some(v) => v,
            None => self.collect(&[p.lo, p.hi]),
        }
    }

    fn reg(&mut self, o: &Operand) -> Value {
        match o {
            Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. })
                if self.func.values[*v].file == RegFile::R && self.func.values[*v].width == 1 =>
            {
                *v
            }
            _ => self.copy(*o),
        }
    }

    fn iadd3(&mut self, a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::IADD3, &[], &[a, b, c, never(), never()])
    }

    fn iadd(&mut self, a: Operand, b: Operand) -> Value {
        self.iadd3(a, b, rz())
    }

    fn iadd_carry(&mut self, a: Operand, b: Operand, carry: Option<Operand>) -> (Value, Value) {
        let sum = self.func.add_value(RegFile::R, 1);
        let out = self.func.add_value(RegFile::P, 1);
        let mods: &[Mod] = if carry.is_some() { &[Mod::X] } else { &[] };
        self.inst(
            Opcode::IADD3,
            mods,
            &[operand(sum), operand(out), pt(), a, b, rz(), carry.unwrap_or_else(never), never()],
        );
        (sum, out)
    }

    fn add64(&mut self, a: &Pair, b: &Pair) -> Value {
        if b.as_imm() == Some(0) {
            return self.pair(a);
        }
        if as_imm(&b.lo) == Some(0) {
            let hi = self.iadd(a.hi, b.hi);
            return self.collect(&[a.lo, operand(hi)]);
        }
        let (a, b) = (self.term64(a), self.term64(b));
        self.sum64(a, b)
    }

    fn sub64(&mut self, a: &Pair, b: &Pair) -> Value {
        if let Some(n) = b.as_imm() {
            return self.add64(a, &Pair::imm(n.wrapping_neg()));
        }
        let (a, b) = (self.term64(a), operand(self.pair(b)));
        self.sum64(a, flip_neg(b))
    }

    fn imad(&mut self, a: Operand, b: Operand, c: Operand) -> Value {
        self.def(Opcode::IMAD, &[], &[a, b, c, never()])
    }

    fn imad_wide(&mut self, signed: bool, a: Operand, b: Operand, c: Operand) -> Value {
        let mods: &[Mod] = if signed { &[Mod::WIDE] } else { &[Mod::WIDE, Mod::U32] };
        self.def(Opcode::IMAD, mods, &[a, b, c, never()])
    }

    fn imul_hi(&mut self, signed: bool, a: Operand, b: Operand) -> Value {
        let mods: &[Mod] = if signed { &[Mod::HI] } else { &[Mod::HI, Mod::U32] };
        self.def(Opcode::IMAD, mods, &[a, b, rz(), never()])
    }

    fn lop3(&mut self, a: Operand, b: Operand, c: Operand, lut: u8) -> Value {
        self.def(Opcode::LOP3, &[Mod::LUT], &[a, b, c, Operand::Imm(lut.into()), never()])
    }

    fn and(&mut self, a: Operand, b: Operand) -> Value {
        self.lop3(a, b, rz(), 0xc0)
    }

    fn xor(&mut self, a: Operand, b: Operand) -> Value {
        self.lop3(a, b, rz(), 0x3c)
    }

    fn shf(&mut self, mods: &[Mod], lo: Operand, amount: Operand, hi: Operand) -> Value {
        self.def(Opcode::SHF, mods, &[lo, amount, hi])
    }

    fn shl(&mut self, a: Operand, n: Operand) -> Value {
        self.shf(&[Mod::L, Mod::U32], a, n, rz())
    }

    fn shr(&mut self, signed: bool, a: Operand, n: Operand) -> Value {
        self.shf(&[Mod::R, if signed { Mod::S32 } else { Mod::U32 }, Mod::HI], rz(), n, a)
    }

    fn sel(&mut self, p: Operand, a: Operand, b: Operand) -> Value {
        self.def(Opcode::SEL, &[], &[a, b, p])
    }

    fn sel64(&mut self, p: Operand, a: &Pair, b: &Pair) -> Value {
        let lo = self.sel(p, a.lo, b.lo);
        let hi = self.sel(p, a.hi, b.hi);
        self.collect(&[operand(lo), operand(hi)])
    }

    fn isetp(&mut self, cmp: Mod, signed: bool, a: Operand, b: Operand) -> Value {
        self.def_pred(Opcode::ISETP, &isetp_mods(cmp, signed), &[a, b, pt(), pt()])
    }

    fn isetp64(&mut self, cmp: Mod, signed: bool, a: &Pair, b: &Pair) -> Value {
        isetp64_combined(self, cmp, signed, a, b, Mod::AND, pt())
    }

    fn plop(&mut self, a: Operand, b: Operand, lut: u8) -> Value {
        // The third input is PT: of its column, only the half of the table where it is set counts.
        let lut = lut & 0xaa;
        self.def_pred(Opcode::PLOP3, &[Mod::LUT], &[a, b, pt(), Operand::Imm(lut.into()), Operand::Imm(0)])
    }

    fn prmt(&mut self, a: Operand, selector: Operand, b: Operand) -> Value {
        self.def(Opcode::PRMT, &[], &[a, selector, b])
    }

    fn guarded(&mut self, guard: Guard, op: Opcode, mods: &[Mod], operands: &[Operand], kept: &[Name]) {
        debug_assert_eq!(operands.len(), op.slots().len(), "{op}: operand count");
        let mut data = InstData {
            guard,
            op: Op::Sass(op),
            mods: Mods::of(mods),
            operands: ThinVec::from(operands),
            kept: ThinVec::new(),
            loc: self.loc,
        };
        if guard != ALWAYS {
            let mut nowhere: ThinVec<Name> = ThinVec::new();
            if kept.is_empty() {
                // Results that are thrown away keep nothing.
                data.for_each_def(|n| nowhere.push(n));
                debug_assert!(nowhere.iter().all(|n| matches!(n, Name::Phys(_))), "{op}: nothing is kept");
            }
            data.kept = if kept.is_empty() { nowhere } else { ThinVec::from(kept) };
        }
        self.raw(data);
    }

    fn def_guarded(
        &mut self,
        guard: Guard,
        op: Opcode,
        mods: &[Mod],
        sources: &[Operand],
        kept: Value,
    ) -> Value {
        let v = self.def(op, mods, sources);
        let data = last(self);
        data.guard = guard;
        let mut keep: ThinVec<Name> = ThinVec::new();
        data.for_each_def(|n| {
            keep.push(match n {
                Name::Val(_) => Name::Val(kept),
                n => n,
            });
        });
        data.kept = keep;
        v
    }
}

/// Extra helpers that are not idioms themselves.
trait Helpers {
    /// A term of a 64-bit sum: a pair of registers, or a number that the extension of its lower word is.
    fn term64(&mut self, p: &Pair) -> Operand;
    /// The sum of two terms, a number among them second.
    fn sum64(&mut self, a: Operand, b: Operand) -> Value;
}

impl Helpers for Builder<'_> {
    fn term64(&mut self, p: &Pair) -> Operand {
        match p.as_imm() {
            Some(n) if i64::from(n as i32) == n as i64 => imm(n as u32),
            _ => operand(self.pair(p)),
        }
    }

    fn sum64(&mut self, a: Operand, b: Operand) -> Value {
        let (a, b) = if matches!(a, Operand::Imm(_)) { (b, a) } else { (a, b) };
        self.def(Opcode::IADD, &[Mod::_64], &[a, b, never()])
    }
}

/// The instruction appended last.
fn last<'a>(b: &'a mut Builder<'_>) -> &'a mut InstData {
    let inst = *b.func.blocks[b.block].insts.last().expect("an instruction was appended");
    &mut b.func.insts[inst]
}

/// Modifiers of a 32-bit ISETP: comparison, sign, `.AND`.
fn isetp_mods(cmp: Mod, signed: bool) -> SmallVec<[Mod; 4]> {
    let mut m = SmallVec::new();
    m.push(cmp);
    if !signed {
        m.push(Mod::U32);
    }
    m.push(Mod::AND);
    m
}

/// 64-bit `(a cmp b) op with`.
pub fn isetp64_combined(
    b: &mut Builder<'_>,
    cmp: Mod,
    signed: bool,
    x: &Pair,
    y: &Pair,
    op: Mod,
    with: Operand,
) -> Value {
    let kind = if signed { Mod::S64 } else { Mod::U64 };
    let x = if x.as_imm() == Some(0) { rz() } else { operand(b.pair(x)) };
    let y = b.term64(y);
    b.def_pred(Opcode::ISETP, &[cmp, kind, op], &[x, y, with, pt()])
}

/// `c[bank][offset]` of a 32-bit word.
pub fn constant(bank: u8, offset: u32) -> Operand {
    Operand::constant(bank, offset as i32)
}

/// `c[bank][index + offset]`.
pub fn indexed_constant(bank: u8, index: Option<Name>, offset: i32) -> Operand {
    Operand::Const { bank: ConstBank::Index(bank), index, offset, neg: false, abs: false, not: false }
}
