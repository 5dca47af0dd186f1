//! Bits of 32-bit values that are the same whatever the program computes on, and what values are multiples of.

use crate::cfg::Cfg;
use crate::function::{Block, Function, Inst, InstData, Name, Op, Operand, Value};
use cranelift_entity::SecondaryMap;
use sass::memory::{MemoryEffect, MemoryEffects};
use sass::ops::{
    Iadd3, Iadd3Mods, Imad, ImadMods, Lea, LeaMods, Lop3, Mov, Prmt, PrmtMods, S2r, Sel, SelMods, Sgxt, Shf,
    ShfMods, ShiftDir, ShiftType,
};
use sass::{Mod, Mods, Opcode, Reg, RegFile, SpecialReg};

/// What is known of the bits of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    /// Bits that are 0.
    pub zeros: u32,
    /// Bits that are 1.
    pub ones: u32,
}

impl Bits {
    /// Nothing is known.
    pub const UNKNOWN: Bits = Bits { zeros: 0, ones: 0 };
    /// No value has come yet: what a cycle begins with.
    const NONE: Bits = Bits { zeros: u32::MAX, ones: u32::MAX };

    /// A number.
    pub const fn constant(n: u32) -> Bits {
        Bits { zeros: !n, ones: n }
    }
    /// The number, if all bits are known.
    pub fn number(self) -> Option<u32> {
        (self.zeros == !self.ones).then_some(self.ones)
    }
    /// How many of the lowest bits are 0.
    pub fn trailing_zeros(self) -> u32 {
        self.zeros.trailing_ones()
    }
    /// Whether a number may be this.
    pub fn admits(self, n: u32) -> bool {
        self.zeros & n == 0 && self.ones & !n == 0
    }
    /// What both say.
    fn or(self, other: Bits) -> Bits {
        Bits { zeros: self.zeros & other.zeros, ones: self.ones & other.ones }
    }
    fn not(self) -> Bits {
        Bits { zeros: self.ones, ones: self.zeros }
    }
    /// The sum, and a carry into it that is known, or not.
    fn plus(self, other: Bits, carry: Bits) -> Bits {
        let most = |b: Bits| !b.zeros;
        // The sums of the least and of the greatest numbers have the carries that every sum has.
        let least = self.ones.wrapping_add(other.ones).wrapping_add(carry.ones & 1);
        let greatest = most(self).wrapping_add(most(other)).wrapping_add(most(carry) & 1);
        let carries_0 = !(greatest ^ most(self) ^ most(other));
        let carries_1 = least ^ self.ones ^ other.ones;
        let known = (self.zeros | self.ones) & (other.zeros | other.ones) & (carries_0 | carries_1);
        Bits { zeros: !least & known, ones: least & known }
    }
    fn shifted_left(self, n: u32) -> Bits {
        Bits { zeros: self.zeros << n | ((1u64 << n) - 1) as u32, ones: self.ones << n }
    }
    fn shifted_right(self, n: u32) -> Bits {
        Bits { zeros: self.zeros >> n | !(u32::MAX >> n), ones: self.ones >> n }
    }
    fn low_zeros(n: u32) -> Bits {
        Bits { zeros: 1u32.checked_shl(n).map_or(u32::MAX, |b| b - 1), ones: 0 }
    }
}

/// What is known of the values of a function.
#[derive(Clone, Debug)]
pub struct KnownBits {
    bits: SecondaryMap<Value, Bits>,
}

#[derive(Clone, Copy)]
enum User {
    Inst(Inst),
    Param(Value),
}

impl KnownBits {
    /// Analyses a function in SSA.
    pub fn new(func: &Function, cfg: &Cfg) -> KnownBits {
        let mut out = KnownBits { bits: SecondaryMap::with_default(Bits::UNKNOWN) };
        out.bits.resize(func.values.len());
        let mut makers: SecondaryMap<Value, Option<Inst>> = func.per_value();
        let mut users: SecondaryMap<Value, Vec<User>> = SecondaryMap::new();
        // Where each parameter's arguments are: optimistically none yet.
        for &b in &cfg.rpo {
            let data = &func.blocks[b];
            for &p in data.params.iter().filter(|p| is_word(func, **p) && b != func.entry_block()) {
                out.bits[p] = Bits::NONE;
            }
            for &i in &data.insts {
                let d = &func.insts[i];
                d.for_each_def(|n| {
                    if let Some(v) = n.value() {
                        makers[v] = Some(i);
                        if is_word(func, v) {
                            out.bits[v] = Bits::NONE;
                        }
                    }
                });
            }
            for t in data.term.targets() {
                for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                    users[*a].push(User::Param(*p));
                }
            }
        }
        for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
            func.insts[*i].for_each_use(|n| {
                n.value().into_iter().for_each(|v| users[v].push(User::Inst(*i)));
                // A part of a tuple is what was collected.
                if let Name::Part(v, _) = n
                    && let Some(from) = makers[v]
                {
                    let parts = |p: Name| p.value().into_iter().for_each(|v| users[v].push(User::Inst(*i)));
                    func.insts[from].for_each_use(parts);
                }
            });
        }
        let mut work: Vec<Value> = Vec::new();
        let visit = |out: &mut KnownBits, b: Block, work: &mut Vec<Value>| {
            let data = &func.blocks[b];
            data.insts.iter().for_each(|i| out.inst(func, &makers, *i, work));
            for t in data.term.targets() {
                for (a, p) in t.args.iter().zip(&func.blocks[t.block].params) {
                    let known = out.bits[*a];
                    out.widen(func, *p, known, work);
                }
            }
        };
        for &b in &cfg.rpo {
            visit(&mut out, b, &mut work);
        }
        while let Some(v) = work.pop() {
            for user in &users[v] {
                match *user {
                    User::Inst(i) => out.inst(func, &makers, i, &mut work),
                    User::Param(p) => {
                        let known = out.bits[v];
                        out.widen(func, p, known, &mut work);
                    }
                }
            }
        }
        // What nothing comes to is never reached.
        func.values.keys().filter(|v| out.bits[*v] == Bits::NONE).collect::<Vec<_>>().into_iter().for_each(
            |v| {
                out.bits[v] = Bits::UNKNOWN;
            },
        );
        out
    }

    /// What is known of a value of 32 bits.
    pub fn of(&self, v: Value) -> Bits {
        self.bits[v]
    }

    /// What a value is a multiple of, as a power of two.
    pub fn alignment(&self, v: Value) -> u32 {
        1 << self.bits[v].trailing_zeros().min(31)
    }

    /// Takes into account that a value may be what `known` says.
    fn widen(&mut self, func: &Function, v: Value, known: Bits, work: &mut Vec<Value>) {
        if !is_word(func, v) {
            return;
        }
        let new = self.bits[v].or(known);
        if new != self.bits[v] {
            self.bits[v] = new;
            work.push(v);
        }
    }

    fn inst(
        &mut self,
        func: &Function,
        makers: &SecondaryMap<Value, Option<Inst>>,
        i: Inst,
        work: &mut Vec<Value>,
    ) {
        let d = &func.insts[i];
        let result = self.result(func, makers, d);
        let mut kept = d.kept.iter();
        for (n, o) in d.operands.iter().enumerate().filter(|(n, _)| d.is_def(*n)) {
            let keeps = kept.next();
            if let Operand::Reg(r) = o
                && let Name::Val(v) = r.reg
                && is_word(func, v)
            {
                let mut known = if Some(n) == first_word(func, d) { result } else { Bits::UNKNOWN };
                if let Some(k) = keeps {
                    known = known.or(self.name(func, makers, *k));
                }
                self.widen(func, v, known, work);
            }
        }
    }

    fn name(&self, func: &Function, makers: &SecondaryMap<Value, Option<Inst>>, n: Name) -> Bits {
        match n {
            Name::Val(v) if is_word(func, v) => self.bits[v],
            // A part of what was collected of single registers.
            Name::Part(v, at) => {
                let d = makers[v].map(|i| &func.insts[i]);
                let Some((_, parts)) = d.filter(|d| d.is_unguarded()).and_then(InstData::collected) else {
                    return Bits::UNKNOWN;
                };
                let single = parts.len() == usize::from(func.values[v].width);
                match (single, parts.get(usize::from(at))) {
                    (true, Some(o)) if !matches!(o, Operand::Reg(r) if matches!(r.reg, Name::Part(..))) => {
                        self.operand(func, makers, o)
                    }
                    _ => Bits::UNKNOWN,
                }
            }
            Name::Phys(r) if r == Reg::RZ || r == Reg::URZ => Bits::constant(0),
            _ => Bits::UNKNOWN,
        }
    }

    /// An operand of 32 bits, as an integer.
    fn operand(&self, func: &Function, makers: &SecondaryMap<Value, Option<Inst>>, o: &Operand) -> Bits {
        match o {
            Operand::Imm(n) => Bits::constant(*n),
            Operand::Reg(r) if !r.abs => {
                let bits = self.name(func, makers, r.reg);
                if bits == Bits::NONE {
                    return bits;
                }
                let bits = if r.not || r.neg { bits.not() } else { bits };
                if r.neg { bits.plus(Bits::constant(0), Bits::constant(1)) } else { bits }
            }
            _ => Bits::UNKNOWN,
        }
    }

    /// What is known of the first word that an instruction makes, where its guard holds.
    fn result(&self, func: &Function, makers: &SecondaryMap<Value, Option<Inst>>, d: &InstData) -> Bits {
        let of = |o: &Operand| self.operand(func, makers, o);
        let none = |list: [&Operand; 3]| list.into_iter().any(|o| of(o) == Bits::NONE);
        let zero = Bits::constant(0);
        let op = match d.op {
            Op::Sass(op) => op,
            Op::Macro(_) => {
                return match d.copied() {
                    Some((_, o @ (Operand::Imm(_) | Operand::Reg(_)))) => of_copy(of(o), o),
                    _ => Bits::UNKNOWN,
                };
            }
        };
        let known = match op {
            Opcode::MOV => Mov::of(d).map(|s| of(s.a)),
            Opcode::IADD3 if Iadd3Mods::of(d) == Some(Iadd3Mods { extended: false }) => {
                Iadd3::of(d).map(|s| {
                    let [a, b, c] = s.terms().map(of);
                    if none(s.terms()) { Bits::NONE } else { a.plus(b, zero).plus(c, zero) }
                })
            }
            Opcode::LOP3 => Lop3::of(d).map(|s| match s.table {
                Operand::Imm(_) if none(s.inputs()) => Bits::NONE,
                Operand::Imm(lut @ 0..=0xff) => logic(*lut, s.inputs().map(of)),
                _ => Bits::UNKNOWN,
            }),
            Opcode::IMAD => Imad::of(d)
                .filter(|_| ImadMods::of(d).is_some_and(|m| m.part.is_none() && !m.extended))
                .map(|s| {
                    let factors = [of(s.a), of(s.b)];
                    if none([s.a, s.b, s.c]) { Bits::NONE } else { product(factors).plus(of(s.c), zero) }
                }),
            Opcode::SEL if SelMods::of(d) == Some(SelMods { wide: false }) => {
                Sel::of(d).map(|s| of(s.a).or(of(s.b)))
            }
            Opcode::SHF => Shf::of(d).and_then(|s| shifted(ShfMods::of(d)?, s.list().map(of))),
            // `LEA r, PT, x, y, RZ, n`: x shifted, and y.
            Opcode::LEA if LeaMods::of(d) == Some(LeaMods { hi: false, extended: false, sx32: false }) => {
                Lea::of(d).map(|s| match (of(s.a), of(s.b), s.amount) {
                    (Bits::NONE, _, _) | (_, Bits::NONE, _) => Bits::NONE,
                    (x, y, Operand::Imm(n @ 0..32)) => x.shifted_left(*n).plus(y, zero),
                    _ => Bits::UNKNOWN,
                })
            }
            Opcode::PRMT if PrmtMods::of(d) == Some(PrmtMods { mode: None }) => {
                Prmt::of(d).map(|s| match (of(s.a), of(s.selector).number(), of(s.b)) {
                    (Bits::NONE, _, _) | (_, _, Bits::NONE) => Bits::NONE,
                    (a, Some(selector), b) => permuted(selector, [a, b]),
                    _ => Bits::UNKNOWN,
                })
            }
            // The lowest bits alone.
            Opcode::SGXT if d.mods == Mods::of(&[Mod::U32]) => Sgxt::of(d).map(|s| match (of(s.a), s.bits) {
                (Bits::NONE, _) => Bits::NONE,
                (a, Operand::Imm(n @ 1..32)) => {
                    Bits { zeros: a.zeros | u32::MAX << n, ones: a.ones & !(u32::MAX << n) }
                }
                (a, _) => Bits { zeros: a.zeros, ones: 0 },
            }),
            Opcode::POPC => Some(below(64)),
            _ if loads(op) && d.mods.has(Mod::U8) => Some(below(1 << 8)),
            _ if loads(op) && d.mods.has(Mod::U16) => Some(below(1 << 16)),
            Opcode::S2R => S2r::of(d).map(|s| match s.register {
                Operand::Special(SpecialReg::SR_TID_X) => below(func.threads[0]),
                Operand::Special(SpecialReg::SR_TID_Y) => below(func.threads[1]),
                Operand::Special(SpecialReg::SR_TID_Z) => below(func.threads[2]),
                Operand::Special(SpecialReg::SR_LANEID) => below(32),
                _ => Bits::UNKNOWN,
            }),
            _ => None,
        };
        known.unwrap_or(Bits::UNKNOWN)
    }
}

/// Whether what it writes is what it reads in memory.
fn loads(op: Opcode) -> bool {
    match op.info().accesses {
        MemoryEffects::Accesses(all) => all.iter().all(|a| a.effect == MemoryEffect::Read),
        // Constant memory is none of those.
        MemoryEffects::None => op.loads_constants(),
        // Texels are converted.
        MemoryEffects::Fence | MemoryEffects::ReadOnly => false,
    }
}

/// Bytes of two words, as PRMT selects them: a digit each, with 8 the byte's sign.
fn permuted(selector: u32, words: [Bits; 2]) -> Bits {
    let mut out = Bits::constant(0);
    for byte in 0..4 {
        let digit = selector >> (4 * byte) & 0xf;
        let from = words[(digit >> 2 & 1) as usize].shifted_right(8 * (digit & 3));
        let sign = |bits: u32| if bits & 0x80 != 0 { 0xff } else { 0 };
        let (zeros, ones) = match digit & 8 {
            0 => (from.zeros & 0xff, from.ones & 0xff),
            _ => (sign(from.zeros), sign(from.ones)),
        };
        out.zeros = out.zeros & !(0xff << (8 * byte)) | zeros << (8 * byte);
        out.ones |= ones << (8 * byte);
    }
    out
}

/// The lower word of a product.
fn product([a, b]: [Bits; 2]) -> Bits {
    if let (Some(a), Some(b)) = (a.number(), b.number()) {
        return Bits::constant(a.wrapping_mul(b));
    }
    // No bit above that of the product of the greatest, if that is a word.
    let most = u64::from(!a.zeros) * u64::from(!b.zeros);
    let above = u32::try_from(most).map_or(0, |m| !(u32::MAX >> m.leading_zeros().min(31)));
    let low = Bits::low_zeros((a.trailing_zeros() + b.trailing_zeros()).min(32));
    Bits { zeros: low.zeros | above, ones: 0 }
}

/// A shift of one word: `SHF.L.U32 r, x, n, RZ` and `SHF.R.U32.HI r, RZ, n, x`.
fn shifted(mods: ShfMods, [_, low, amount, high]: [Bits; 4]) -> Option<Bits> {
    let word = ShfMods { dir: mods.dir, wrap: false, kind: ShiftType::U32, hi: mods.dir == ShiftDir::R };
    if mods != word {
        return None;
    }
    let n = amount.number();
    Some(match (mods.dir, low, high) {
        (ShiftDir::L, Bits::NONE, _) | (ShiftDir::R, _, Bits::NONE) => Bits::NONE,
        (ShiftDir::L, x, _) => x.shifted_left(n.filter(|n| *n < 32)?),
        (ShiftDir::R, zero, x) => {
            (zero.number()? == 0).then_some(())?;
            x.shifted_right(n.filter(|n| *n < 32)?)
        }
    })
}

/// A copied operand; one with modifiers is no integer's business.
fn of_copy(bits: Bits, o: &Operand) -> Bits {
    match o {
        Operand::Reg(r) if r.neg || r.abs || r.not => Bits::UNKNOWN,
        _ => bits,
    }
}

/// Numbers below `n`.
fn below(n: u32) -> Bits {
    Bits { zeros: !(n.max(1).next_power_of_two() - 1), ones: 0 }
}

/// What LOP3 makes of three numbers: a bit is known if every row that may be has it.
fn logic(lut: u32, sources: [Bits; 3]) -> Bits {
    let mut out = Bits::NONE;
    for row in 0..8 {
        // The bits at which this row may be taken.
        let may = (0..3).fold(u32::MAX, |all, k| {
            all & if row >> (2 - k) & 1 != 0 { !sources[k].zeros } else { !sources[k].ones }
        });
        if lut >> row & 1 != 0 {
            out.zeros &= !may;
        } else {
            out.ones &= !may;
        }
    }
    out
}

fn is_word(func: &Function, v: Value) -> bool {
    let d = func.values[v];
    d.width == 1 && matches!(d.file, RegFile::R | RegFile::UR)
}

/// The first operand that is a word written.
fn first_word(func: &Function, d: &InstData) -> Option<usize> {
    let word =
        |o: &Operand| matches!(o, Operand::Reg(r) if matches!(r.reg, Name::Val(v) if is_word(func, v)));
    (0..d.operands.len()).find(|n| d.is_def(*n) && word(&d.operands[*n]))
}
