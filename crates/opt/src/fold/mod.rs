//! Exact folding: instructions on numbers that are known become copies of their results, those that leave
//! one of their inputs alone become copies of it, and known predicates disappear from guards, logic and branches.

mod float;

use crate::Pass;
use crate::copy_prop::part;
use cranelift_entity::SecondaryMap;
use ori::pairs::{WideSum, words};
use ori::{
    Analyses, Block, Changed, Function, Guard, Inst, InstData, Macro, Name, Op, Operand, Operands,
    Terminator, Value,
};
use sass::ops::{
    Bool, Brev, Iadd, Iadd3, Iadd3Mods, Icmp, Imad, ImadMods, ImadPart, Imnmx, ImnmxMods, Int64, Isetp,
    IsetpMods, Ldc, LdcMods, Lop3, Lop3Mods, Plop3, Popc, Prmt, PrmtMods, R2ur, Sel, SelMods, Shf, ShfMods,
    Size64, Uisetp, Utchmma, Vimnmx, Vimnmx120, VimnmxMods, Voteu,
};
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp, Unit, WideImmediate, compute};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// Bytes of a constant bank.
const BANK: i32 = 0x10000;

/// What values are known to hold.
#[derive(Default)]
struct Known {
    /// 32-bit numbers.
    word: SecondaryMap<Value, Option<u32>>,
    /// Predicates.
    truth: SecondaryMap<Value, Option<bool>>,
    /// What collects each tuple.
    tuple: SecondaryMap<Value, Option<Inst>>,
}

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    1,
    "fold",
    "GeneralOptimizeEarly",
    "integer and floating-point instructions on known numbers and predicates, loads of constants from known places; again after unrolling",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let cfg = analyses.cfg(func);
    let mut known = Known::default();
    let (mut changed, mut branches) = (false, false);
    for &b in &cfg.rpo {
        // The block's instructions so far, once there are more than before.
        let mut longer: Option<Vec<Inst>> = None;
        let insts = std::mem::take(&mut func.blocks[b].insts);
        for (k, &i) in insts.iter().enumerate() {
            changed |= known.substitute(func, i);
            let mut behind = None;
            if func.insts[i].is_unguarded()
                && let Some((sum, carry)) = known.sum_and_carry(func, &func.insts[i])
            {
                let loc = func.insts[i].loc;
                let made = |(op, mods, operands): New| InstData {
                    guard: ori::ALWAYS,
                    op,
                    mods,
                    operands,
                    kept: ThinVec::new(),
                    loc,
                };
                behind = Some(func.insts.push(made(carry)));
                func.insts[i] = made(sum);
                changed = true;
            } else if func.insts[i].is_unguarded()
                && let Some(new) = known.folded(func, &func.insts[i])
            {
                let d = &mut func.insts[i];
                (d.op, d.mods, d.operands) = new;
                changed = true;
            }
            known.note(func, i);
            if let Some(list) = &mut longer {
                list.push(i);
            }
            if let Some(carry) = behind {
                known.note(func, carry);
                longer.get_or_insert_with(|| insts[..=k].to_vec()).push(carry);
            }
        }
        func.blocks[b].insts = longer.unwrap_or(insts);
        branches |= known.branch(func, b);
    }
    Changed::instructions(changed).max(Changed::graph(branches))
}

/// Operation, modifiers and operands of an instruction.
type New = (Op, Mods, Operands);

fn copy_of(dst: &Operand, source: Operand) -> Option<New> {
    Some((Op::Macro(Macro::Copy), Mods::none(), [*dst, source].into_iter().collect()))
}

fn is_plain(o: &Operand) -> bool {
    matches!(o, Operand::Reg(RegOp { neg: false, abs: false, not: false, .. }))
}

/// The input itself, where an instruction does no more than hand it on.
fn same(dst: &Operand, source: &Operand) -> Option<New> {
    is_plain(source).then(|| copy_of(dst, *source)).flatten()
}

fn is_truth(o: &Operand, value: bool) -> bool {
    matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::PT) && r.not != value)
}

impl Known {
    /// The number that an integer instruction reads.
    fn number(&self, func: &Function, o: &Operand) -> Option<u32> {
        let r = match o {
            Operand::Imm(n) => return Some(*n),
            Operand::Reg(r) if !r.abs => r,
            _ => return None,
        };
        let n = match r.reg {
            Name::Phys(Reg::RZ | Reg::URZ) => 0,
            Name::Phys(_) => return None,
            Name::Val(v) => self.word[v]?,
            Name::Part(v, n) => {
                let (_, parts) = func.insts[self.tuple[v]?].collected()?;
                let collected = part(func, parts, n)?;
                match &collected {
                    // Tuples of tuples are rare; their parts are not followed.
                    Operand::Reg(RegOp { reg: Name::Part(..), .. }) => return None,
                    o => self.number(func, o)?,
                }
            }
        };
        let n = if r.neg { n.wrapping_neg() } else { n };
        Some(if r.not { !n } else { n })
    }

    /// The truth that an operand names.
    fn predicate(&self, o: &Operand) -> Option<bool> {
        let Operand::Reg(r) = o else { return None };
        let held = match r.reg {
            Name::Phys(Reg::PT) => true,
            Name::Val(v) => self.truth[v]?,
            _ => return None,
        };
        Some(held != r.not)
    }

    /// Puts PT for predicates that are known.
    fn substitute(&self, func: &mut Function, i: Inst) -> bool {
        let truth = |n: Name| match n {
            Name::Val(v) => self.truth[v],
            _ => None,
        };
        let d = &mut func.insts[i];
        let mut changed = false;
        // A guard that never holds leaves what the instruction would replace, which is rare: it stays.
        if let Some(held) = truth(d.guard.pred)
            && held != d.guard.not
        {
            d.guard = Guard { pred: Name::Phys(Reg::PT), not: false };
            d.kept.clear();
            changed = true;
        }
        if matches!(d.op, Op::Macro(_)) {
            return changed;
        }
        for slot in 0..d.operands.len() {
            if d.is_def(slot) {
                continue;
            }
            if let Operand::Reg(r) = &mut d.operands[slot]
                && let Some(held) = truth(r.reg)
            {
                let uniform = matches!(r.reg, Name::Val(v) if func.values[v].file == RegFile::UP);
                r.reg = Name::Phys(if uniform { Reg::UPT } else { Reg::PT });
                r.not ^= !held;
                // An accumulator that doesn't count is none: as ptxas writes it.
                let counts = uniform && matches!(d.op, Op::Sass(op) if op.unit() == Unit::Gmma);
                if counts && r.not {
                    d.operands[slot - 1] = ori::operand(Name::Phys(Reg::RZ));
                }
                changed = true;
            }
        }
        changed
    }

    /// Remembers what an instruction defines.
    fn note(&mut self, func: &Function, i: Inst) {
        let d = &func.insts[i];
        if !d.is_unguarded() {
            return;
        }
        if let Some((Operand::Reg(RegOp { reg: Name::Val(v), .. }), _)) = d.collected() {
            self.tuple[*v] = Some(i);
        }
        // Whether an accumulator counts, of a number: no uniform predicate is a copy of another one.
        if let Some(s) = Uisetp::of(d).filter(|_| d.mods == Mods::of(&[Mod::NE, Mod::AND]))
            && let (Operand::Reg(RegOp { reg: Name::Val(v), .. }), Some(a), Some(b)) =
                (s.p, self.number(func, s.a), self.number(func, s.b))
            && *s.join == ori::operand(Name::Phys(Reg::UPT))
        {
            self.truth[*v] = Some(a != b);
        }
        let Some((Operand::Reg(RegOp { reg: Name::Val(v), .. }), from)) = d.copied() else { return };
        let shape = func.values[*v];
        match (shape.file, shape.width) {
            (RegFile::R | RegFile::UR, 1) => self.word[*v] = self.number(func, from),
            (RegFile::P | RegFile::UP, 1) => {
                self.truth[*v] = match from {
                    Operand::Imm(n) => Some(*n != 0),
                    o => self.predicate(o),
                }
            }
            _ => {}
        }
    }

    /// Turns a branch on a known predicate into a jump.
    fn branch(&self, func: &mut Function, b: Block) -> bool {
        let Terminator::Branch { cond: Name::Val(v), not, taken, fall } = &func.blocks[b].term else {
            return false;
        };
        let Some(held) = self.truth[*v] else { return false };
        let target = if held != *not { taken.clone() } else { fall.clone() };
        func.blocks[b].term = Terminator::Jump(target);
        true
    }

    /// What an instruction can be instead.
    fn folded(&self, func: &Function, d: &InstData) -> Option<New> {
        let Op::Sass(op) = d.op else { return None };
        match op {
            Opcode::IADD3 => self.sum(func, d, Iadd3::of(d)?, Iadd3Mods::of(d)?),
            Opcode::IADD => self.wide_sum(func, d, WideSum::of(d)?),
            Opcode::IMAD => match (Imad::of(d)?, ImadMods::of(d)?) {
                (s, mods @ ImadMods { part: Some(ImadPart::WIDE), .. }) => self.wide_product(func, s, mods),
                (s, mods) => self.product(func, s, mods),
            },
            Opcode::LOP3 => self.logic(func, Lop3::of(d)?, Lop3Mods::of(d)?),
            Opcode::SHF => self.shift(func, Shf::of(d)?, ShfMods::of(d)?),
            Opcode::PRMT => self.permutation(func, Prmt::of(d)?, PrmtMods::of(d)?),
            Opcode::IMNMX => self.extremum(func, Imnmx::of(d)?, ImnmxMods::of(d)?.unsigned),
            Opcode::VIMNMX => {
                let VimnmxMods { kind, relu: false } = VimnmxMods::of(d)? else { return None };
                let unsigned = match kind {
                    None | Some(Vimnmx120::S32) => false,
                    Some(Vimnmx120::U32) => true,
                    Some(_) => return None,
                };
                let Vimnmx { d, a, b, least } = Vimnmx::of(d)?;
                self.extremum(func, Imnmx { d, a, b, least }, unsigned)
            }
            Opcode::SEL => self.selection(Sel::of(d)?, SelMods::of(d)?),
            Opcode::ISETP => self.comparison(func, Isetp::of(d)?, IsetpMods::of(d)?),
            Opcode::POPC if d.mods == Mods::none() => {
                let s = Popc::of(d)?;
                self.unary(func, s.d, s.a, u32::count_ones)
            }
            Opcode::BREV if d.mods == Mods::none() => {
                let s = Brev::of(d)?;
                self.unary(func, s.d, s.a, u32::reverse_bits)
            }
            Opcode::R2UR => {
                let s = R2ur::of(d)?;
                self.unary(func, s.d, s.a, |n| n)
            }
            // The same for all lanes that vote.
            Opcode::VOTEU => {
                let s = Voteu::of(d).filter(|s| *s.d == ori::operand(Name::Phys(Reg::URZ)))?;
                copy_of(s.p, Operand::Imm(self.predicate(s.a)?.into()))
            }
            Opcode::PLOP3 => {
                let s = Plop3::of(d).filter(|s| is_truth(s.q, true))?;
                let inputs = [self.predicate(s.a)?, self.predicate(s.b)?, self.predicate(s.c)?];
                let Operand::Imm(table) = *s.table else { return None };
                copy_of(s.p, Operand::Imm(compute::plop3(table, inputs).into()))
            }
            Opcode::LDC => self.constant(func, d),
            Opcode::UTCHMMA
            | Opcode::UTCHMMA_T
            | Opcode::UTCIMMA
            | Opcode::UTCIMMA_T
            | Opcode::UTCQMMA
            | Opcode::UTCQMMA_T => self.without_mask(func, d),
            op if op.info().wide_immediate == WideImmediate::Both => self.one_for_both(func, d),
            op => self.folded_float(func, op, d),
        }
    }

    /// A product in tensor memory whose mask leaves nothing out has none, as in ptxas's code.
    fn without_mask(&self, func: &Function, d: &InstData) -> Option<New> {
        const MASK: usize = Utchmma::A;
        let Operand::Reg(RegOp { reg: Name::Val(mask), .. }) = d.operands[MASK] else { return None };
        let mut words = (0..func.values[mask].width).map(|k| ori::operand(Name::Part(mask, k)));
        words.all(|word| self.number(func, &word) == Some(0)).then(|| {
            let mut operands = d.operands.clone();
            operands[MASK] = ori::operand(Name::Phys(Reg::URZ));
            (d.op, d.mods.clone(), operands)
        })
    }

    fn numbers<const N: usize>(&self, func: &Function, operands: [&Operand; N]) -> Option<[u32; N]> {
        let mut out = [0; N];
        for (n, o) in out.iter_mut().zip(operands) {
            *n = self.number(func, o)?;
        }
        Some(out)
    }

    fn unary(&self, func: &Function, to: &Operand, a: &Operand, f: fn(u32) -> u32) -> Option<New> {
        copy_of(to, Operand::Imm(f(self.number(func, a)?)))
    }

    /// A load of constant memory at a known place: where threads read parameters by the address of one.
    fn constant(&self, func: &Function, d: &InstData) -> Option<New> {
        let s = Ldc::of(d)?;
        let Operand::Const { bank, index: Some(index), offset, neg: false, abs: false, not: false } =
            s.address
        else {
            return None;
        };
        let LdcMods { size, mode: None } = LdcMods::of(d)? else { return None };
        let bytes = match size {
            None => 4,
            Some(Size64::_64) => 8,
            Some(_) => return None,
        };
        let base = self.number(func, &ori::operand(*index))?;
        let at = i64::from(base as i32) + i64::from(*offset);
        let offset = i32::try_from(at).ok().filter(|at| (0..BANK).contains(at) && at % bytes == 0)?;
        let place = Operand::Const { bank: *bank, index: None, offset, neg: false, abs: false, not: false };
        if bytes == 4 && func.target.info().alu_const {
            return copy_of(s.d, place);
        }
        Some((d.op, d.mods.clone(), [*s.d, place].into_iter().collect()))
    }

    /// A sum with a carry out, both of which are known, or the sum is the only number in it that is not zero.
    fn sum_and_carry(&self, func: &Function, d: &InstData) -> Option<(New, New)> {
        if d.opcode() != Some(Opcode::IADD3) {
            return None;
        }
        let (s, mods) = (Iadd3::of(d)?, Iadd3Mods::of(d)?);
        let is_value = |o: &Operand| matches!(o, Operand::Reg(RegOp { reg: Name::Val(_), .. }));
        if !is_value(s.carry_out)
            || !is_value(s.d)
            || !is_truth(s.carry_out2, true)
            || !is_truth(s.carry2, false)
        {
            return None;
        }
        // A minus is a complement and a carry, which zero tells apart.
        let signed = |o: &Operand| matches!(o, Operand::Reg(RegOp { neg, not, .. }) if *neg || *not);
        if s.terms().into_iter().any(signed) {
            return None;
        }
        let carry = if mods.extended { u64::from(self.predicate(s.carry)?) } else { 0 };
        let numbers = s.terms().map(|o| self.number(func, o));
        if let [Some(a), Some(b), Some(c)] = numbers {
            let sum = u64::from(a) + u64::from(b) + u64::from(c) + carry;
            let carry = u32::try_from(sum >> 32).ok().filter(|c| *c < 2)?;
            return Some((
                copy_of(s.d, Operand::Imm(sum as u32))?,
                copy_of(s.carry_out, Operand::Imm(carry))?,
            ));
        }
        let zeros = numbers.iter().filter(|n| **n == Some(0)).count();
        let at = numbers.iter().position(Option::is_none)?;
        if zeros != 2 || carry != 0 {
            return None;
        }
        Some((same(s.d, s.terms()[at])?, copy_of(s.carry_out, Operand::Imm(0))?))
    }

    /// A sum without carries out.
    fn sum(&self, func: &Function, d: &InstData, s: Iadd3<&Operand>, mods: Iadd3Mods) -> Option<New> {
        if !is_truth(s.carry_out, true) || !is_truth(s.carry_out2, true) || !is_truth(s.carry2, false) {
            return None;
        }
        // With a carry a minus is a complement.
        let negated = |o: &Operand| matches!(o, Operand::Reg(RegOp { neg: true, .. }));
        let carry = match mods.extended {
            false => 0,
            true if !s.terms().into_iter().any(negated) => self.predicate(s.carry)?.into(),
            true => return None,
        };
        if !mods.extended
            && let Some(new) = self.rest_of_sum(func, d, &s)
        {
            return Some(new);
        }
        if let Some([a, b, c]) = self.numbers(func, s.terms()) {
            return copy_of(s.d, Operand::Imm(a.wrapping_add(b).wrapping_add(c).wrapping_add(carry)));
        }
        // A carry that never comes. With one a complement stands where else a minus does.
        let signed = |o: &Operand| matches!(o, Operand::Reg(RegOp { neg, not, .. }) if *neg || *not);
        if !mods.extended || carry != 0 || s.terms().into_iter().any(signed) {
            return None;
        }
        let zero = s.terms().map(|o| self.number(func, o) == Some(0));
        let rest = zero.iter().position(|z| !z).filter(|_| zero.iter().filter(|z| **z).count() == 2);
        rest.and_then(|at| same(s.d, s.terms()[at])).or_else(|| {
            let mut all: Operands = d.operands.clone();
            all[Iadd3::CARRY] = Operand::Reg(RegOp { not: true, ..RegOp::plain(Name::Phys(Reg::PT)) });
            Some((d.op, Mods::none(), all))
        })
    }

    /// A sum of which two terms cancel out or are zero: the third.
    fn rest_of_sum(&self, func: &Function, d: &InstData, s: &Iadd3<&Operand>) -> Option<New> {
        let terms = s.terms();
        let opposite = |a: &Operand, b: &Operand| match (a, b) {
            (Operand::Reg(a), Operand::Reg(b)) => {
                let plain = !a.abs && !a.not && !b.abs && !b.not;
                plain && a.reg == b.reg && a.neg != b.neg && !matches!(a.reg, Name::Phys(_))
            }
            _ => false,
        };
        let zero = terms.map(|o| self.number(func, o) == Some(0));
        let rest = (0..3).find(|k| {
            let [a, b] = [(k + 1) % 3, (k + 2) % 3];
            opposite(terms[a], terms[b]) || zero[a] && zero[b] && !zero[*k]
        })?;
        match self.number(func, terms[rest]) {
            Some(n) => copy_of(s.d, Operand::Imm(n)),
            None if is_plain(terms[rest]) => same(s.d, terms[rest]),
            // A number without its sign is an instruction of its own, but not these three terms.
            None if zero.iter().filter(|z| **z).count() == 2 => None,
            None => {
                let mut all: Operands = d.operands.clone();
                let nothing = ori::operand(Name::Phys(Reg::RZ));
                (all[Iadd3::A], all[Iadd3::B], all[Iadd3::C]) = (*terms[rest], nothing, nothing);
                Some((d.op, d.mods.clone(), all))
            }
        }
    }

    /// The number of 64 bits that a term of a sum is.
    fn wide_number(&self, func: &Function, o: &Operand) -> Option<u64> {
        let number = |[low, high]: [Operand; 2]| {
            Some(u64::from(self.number(func, &low)?) | u64::from(self.number(func, &high)?) << 32)
        };
        match o {
            Operand::Reg(r) if r.neg => {
                number(words(Operand::Reg(RegOp { neg: false, ..*r }))).map(u64::wrapping_neg)
            }
            _ => number(words(*o)),
        }
    }

    /// A sum of 64 bits: of numbers, with nothing, or with a number that the instruction takes.
    fn wide_sum(&self, func: &Function, d: &InstData, s: WideSum) -> Option<New> {
        let to = ori::operand(s.to);
        let [x, y] = s.terms.map(|o| self.wide_number(func, &o));
        let (number, other, at) = match (x, y) {
            (Some(x), Some(y)) => {
                let sum = x.wrapping_add(y);
                let words = [to, Operand::Imm(sum as u32), Operand::Imm((sum >> 32) as u32)];
                return Some((Op::Macro(Macro::Collect), Mods::none(), words.into_iter().collect()));
            }
            (Some(x), None) => (x, s.terms[1], 0),
            (None, Some(y)) => (y, s.terms[0], 1),
            (None, None) => return None,
        };
        if number == 0 && is_plain(&other) {
            return copy_of(&to, other);
        }
        let taken = Operand::Imm(number as u32);
        let fits = i64::from(number as i32) == number as i64 && number != 0;
        if !fits || s.terms[at] == taken {
            return None;
        }
        let mut all: Operands = d.operands.clone();
        (all[Iadd::A], all[Iadd::B]) = (other, taken);
        Some((d.op, d.mods.clone(), all))
    }

    /// The lower word of a product and a sum.
    fn product(&self, func: &Function, s: Imad<&Operand>, mods: ImadMods) -> Option<New> {
        if mods != (ImadMods { part: None, alias: None, unsigned: mods.unsigned, extended: false })
            || !is_truth(s.carry_out, true)
        {
            return None;
        }
        let [a, b, c] = [s.a, s.b, s.c].map(|o| self.number(func, o));
        match (a, b, c) {
            (Some(a), Some(b), Some(c)) => copy_of(s.d, Operand::Imm(a.wrapping_mul(b).wrapping_add(c))),
            (Some(0), _, _) | (_, Some(0), _) => match c {
                Some(c) => copy_of(s.d, Operand::Imm(c)),
                None => same(s.d, s.c),
            },
            (Some(1), _, Some(0)) => same(s.d, s.b),
            (_, Some(1), Some(0)) => same(s.d, s.a),
            _ => None,
        }
    }

    /// A product of 64 bits and a sum, where there is nothing in the product.
    fn wide_product(&self, func: &Function, s: Imad<&Operand>, mods: ImadMods) -> Option<New> {
        let [a, b] = [s.a, s.b].map(|o| self.number(func, o));
        if mods.extended || !is_truth(s.carry_out, true) || a != Some(0) && b != Some(0) {
            return None;
        }
        match s.c {
            Operand::Reg(c) if c.reg == Name::Phys(Reg::RZ) => {
                let both = [*s.d, Operand::Imm(0), Operand::Imm(0)];
                Some((Op::Macro(Macro::Collect), Mods::none(), both.into_iter().collect()))
            }
            c => same(s.d, c),
        }
    }

    /// Logic without predicates.
    fn logic(&self, func: &Function, s: Lop3<&Operand>, mods: Lop3Mods) -> Option<New> {
        let Operand::Imm(table) = *s.table else { return None };
        if mods != (Lop3Mods { table: true, pand: false }) || !is_truth(s.p, true) || !is_truth(s.join, false)
        {
            return None;
        }
        let inputs = s.inputs();
        let numbers = inputs.map(|o| self.number(func, o));
        if let [Some(a), Some(b), Some(c)] = numbers {
            return copy_of(s.d, Operand::Imm(compute::lop3(table, [a, b, c])));
        }
        // The inputs that are not all zeros or all ones, each once, and the rows that can occur.
        let mut open: SmallVec<[&Operand; 3]> = SmallVec::new();
        for (o, n) in inputs.iter().zip(&numbers) {
            if !matches!(n, Some(0 | u32::MAX)) && !open.contains(o) {
                open.push(o);
            }
        }
        let result = |assigned: u32| {
            let bit = |k: usize| match numbers[k] {
                Some(0) => 0,
                Some(u32::MAX) => 1,
                _ => open.iter().position(|x| *x == inputs[k]).map_or(0, |at| assigned >> at & 1),
            };
            table >> (bit(0) << 2 | bit(1) << 1 | bit(2)) & 1
        };
        let all = || 0..1u32 << open.len();
        if all().all(|a| result(a) == 0) {
            return copy_of(s.d, Operand::Imm(0));
        }
        if all().all(|a| result(a) == 1) {
            return copy_of(s.d, Operand::Imm(u32::MAX));
        }
        let handed_on = (0..open.len()).find(|at| all().all(|a| result(a) == a >> at & 1))?;
        match open[handed_on] {
            Operand::Imm(n) => copy_of(s.d, Operand::Imm(*n)),
            input => same(s.d, input),
        }
    }

    /// A shift of one word or two.
    fn shift(&self, func: &Function, s: Shf<&Operand>, mods: ShfMods) -> Option<New> {
        let words = [s.low, s.high].map(|o| self.number(func, o));
        if words == [Some(0); 2] {
            return copy_of(s.d, Operand::Imm(0));
        }
        let amount = self.number(func, s.amount)?;
        match words {
            [Some(low), Some(high)] => copy_of(s.d, Operand::Imm(compute::shf(mods, low, amount, high))),
            _ if compute::shift_amount(mods, amount) == 0 => same(s.d, if mods.hi { s.high } else { s.low }),
            _ => None,
        }
    }

    /// A choice of bytes.
    fn permutation(&self, func: &Function, s: Prmt<&Operand>, mods: PrmtMods) -> Option<New> {
        if mods.mode.is_some() {
            return None;
        }
        let selector = self.number(func, s.selector)?;
        match (self.number(func, s.a), self.number(func, s.b)) {
            (Some(a), Some(b)) => copy_of(s.d, Operand::Imm(compute::prmt(a, selector, b))),
            _ if selector & 0xffff == 0x3210 => same(s.d, s.a),
            _ if selector & 0xffff == 0x7654 => same(s.d, s.b),
            _ => None,
        }
    }

    /// The smaller of two numbers where the predicate holds, else the greater.
    fn extremum(&self, func: &Function, s: Imnmx<&Operand>, unsigned: bool) -> Option<New> {
        if s.a == s.b {
            return same(s.d, s.a);
        }
        let [a, b] = self.numbers(func, [s.a, s.b])?;
        copy_of(s.d, Operand::Imm(compute::extremum(unsigned, a, b, self.predicate(s.least)?)))
    }

    fn selection(&self, s: Sel<&Operand>, mods: SelMods) -> Option<New> {
        if mods.wide {
            return None;
        }
        let alike = s.a == s.b;
        match if alike || self.predicate(s.choose)? { s.a } else { s.b } {
            Operand::Imm(n) => copy_of(s.d, Operand::Imm(*n)),
            source => same(s.d, source),
        }
    }

    /// A comparison with one result.
    fn comparison(&self, func: &Function, s: Isetp<&Operand>, mods: IsetpMods) -> Option<New> {
        if !is_truth(s.q, true) {
            return None;
        }
        // Upper words that are the same leave it to the lower ones.
        let wide = matches!(mods.kind, Some(Int64::U64 | Int64::S64));
        let both = if wide {
            let [a, b] = [s.a, s.b].map(|o| self.wide_number(func, o));
            a.zip(b)
        } else {
            self.numbers(func, [s.a, s.b]).map(|[a, b]| (a.into(), b.into()))
        };
        let alike = both.is_some_and(|(a, b)| a == b) || is_plain(s.a) && s.a == s.b;
        if mods.extended && mods.join == Bool::AND && is_truth(s.join, true) && alike {
            return same(s.p, s.lower);
        }
        if mods.extended || matches!(mods.cmp, Icmp::F | Icmp::T) {
            return None;
        }
        // What is compared with itself need not be known.
        let (a, b): (u64, u64) = if alike { (0, 0) } else { both? };
        let order = match mods.kind {
            None => compute::order(false, a as u32, b as u32),
            Some(Int64::U32) | Some(Int64::U64) => a.cmp(&b),
            Some(Int64::S64) => (a as i64).cmp(&(b as i64)),
        };
        let held = compute::icmp(mods.cmp, order);
        self.joined(s.p, s.join, held, mods.join)
    }

    /// A comparison whose result is known, joined with the predicate in an operand.
    fn joined(&self, to: &Operand, with: &Operand, held: bool, join: Bool) -> Option<New> {
        let result = match (join, held, self.predicate(with)) {
            (Bool::AND, false, _) => false,
            (Bool::OR, true, _) => true,
            (Bool::XOR, _, Some(other)) => held ^ other,
            (Bool::AND | Bool::OR, _, Some(other)) => other,
            (Bool::AND | Bool::OR, _, None) | (Bool::XOR, false, None) => return same(to, with),
            (Bool::XOR, true, None) => return None,
        };
        copy_of(to, Operand::Imm(result.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, operand};
    use sass::{ConstBank, Mod, SpecialReg, Target};

    fn zero() -> Operand {
        Operand::reg(Name::Phys(Reg::RZ))
    }
    fn pt(not: bool) -> Operand {
        Operand::Reg(RegOp { not, ..RegOp::plain(Name::Phys(Reg::PT)) })
    }

    /// What stores the result of `build`, made of an unknown number, after the pass and those that clean up.
    fn stored(build: impl Fn(&mut Builder, Value) -> Value) -> String {
        let mut f = Function::new("k", Target::new(90).expect("a target"));
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
        let result = build(&mut b, x);
        let address =
            Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };
        // Something that is not folded, whatever the result is.
        let kept = b.def(Opcode::FFMA, &[], &[operand(x), operand(result), zero()]);
        b.inst(Opcode::STS, &[], &[address, operand(kept)]);
        b.terminate(Terminator::Exit);
        _ = run(&mut f, &Analyses::default());
        _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
        ori::verify::verify(&f).expect("well-formed");
        ori::dead::remove(&mut f);
        let text = f.to_string();
        let lines = text.lines().map(str::trim).filter(|l| l.contains(" = ") && !l.contains("S2R"));
        lines.collect::<Vec<_>>().join("; ")
    }

    /// The number that is stored besides the unknown one.
    fn number(build: impl Fn(&mut Builder) -> Value) -> u32 {
        let text = stored(|b, _| build(b));
        let imm = text.rsplit_once("v0, 0x").unwrap_or_else(|| panic!("{text}")).1;
        u32::from_str_radix(imm.split(',').next().unwrap_or(""), 16).expect("a number")
    }

    fn constant(b: &mut Builder, n: u32) -> Value {
        b.copy(Operand::Imm(n))
    }

    #[test]
    fn numbers() {
        let of = |op: Opcode, mods: &'static [Mod], a: u32, b: u32, rest: &[Operand]| {
            number(|f| {
                let (x, y) = (constant(f, a), constant(f, b));
                let operands: Vec<Operand> = [operand(x), operand(y)].iter().chain(rest).cloned().collect();
                f.def(op, mods, &operands)
            })
        };
        let (min, max) = ([pt(false)], [pt(true)]);
        assert_eq!(of(Opcode::IMNMX, &[], u32::MAX, 3, &min), u32::MAX);
        assert_eq!(of(Opcode::IMNMX, &[Mod::U32], u32::MAX, 3, &min), 3);
        assert_eq!(of(Opcode::IMNMX, &[], u32::MAX, 3, &max), 3);
        assert_eq!(of(Opcode::SHF, &[Mod::L, Mod::U32], 3, 4, &[zero()]), 0x30);
        assert_eq!(of(Opcode::SHF, &[Mod::L, Mod::U32], 3, 32, &[zero()]), 0);
        assert_eq!(of(Opcode::SHF, &[Mod::L, Mod::W, Mod::U32], 3, 33, &[zero()]), 6);
        assert_eq!(of(Opcode::SHF, &[Mod::R, Mod::U32], 0x30, 4, &[Operand::Imm(5)]), 0x5000_0003);
        assert_eq!(
            of(Opcode::SHF, &[Mod::R, Mod::S32, Mod::HI], 0, 35, &[Operand::Imm(0x8000_0000)]),
            u32::MAX
        );
        assert_eq!(of(Opcode::PRMT, &[], 0x4433_8211, 0x0091, &[Operand::Imm(7)]), 0x1111_ff82);
        assert_eq!(
            number(|f| {
                let x = constant(f, 0xf0);
                f.def(Opcode::POPC, &[], &[operand(x)])
            }),
            4
        );
    }

    /// A sum of 64 bits, both words of which are stored.
    fn wide_sum(of: impl Fn(&mut Builder, Value) -> [Operand; 3], upper: Operand) -> String {
        stored(|b, x| {
            let (low, carry) = (b.func.add_value(RegFile::R, 1), b.func.add_value(RegFile::P, 1));
            let [m, n, o] = of(b, x);
            b.inst(
                Opcode::IADD3,
                &[],
                &[operand(low), operand(carry), pt(false), m, n, o, pt(true), pt(true)],
            );
            let high = b.func.add_value(RegFile::R, 1);
            let operands =
                [operand(high), pt(false), pt(false), upper, zero(), zero(), operand(carry), pt(true)];
            b.inst(Opcode::IADD3, &[Mod::X], &operands);
            b.def(
                Opcode::LOP3,
                &[Mod::LUT],
                &[operand(low), operand(high), zero(), Operand::Imm(0xfc), pt(true)],
            )
        })
    }

    #[test]
    fn sums_with_carries() {
        let number = |m, n, o, upper| {
            wide_sum(
                move |b, _| [operand(constant(b, m)), Operand::Imm(n), Operand::Imm(o)],
                Operand::Imm(upper),
            )
        };
        assert!(number(0x280, 0x200, 0, 0x1000).contains("0x1480"), "{}", number(0x280, 0x200, 0, 0x1000));
        assert!(number(0xffff_fff0, 0x13, 0, 0x1000).contains("0x1003"));
        // Two carries have nowhere to go.
        assert!(number(u32::MAX, u32::MAX, u32::MAX, 0).contains("IADD3.X"));
        // What is added to zero carries nothing.
        let text = wide_sum(|_, x| [operand(x), zero(), Operand::Imm(0)], Operand::Imm(0));
        assert!(!text.contains("IADD3.X"), "{text}");
        // A minus is a complement and a carry.
        let minus = |b: &mut Builder, _: Value| {
            let n = constant(b, 0);
            let minus = Operand::Reg(RegOp { neg: true, ..RegOp::plain(Name::Val(n)) });
            [Operand::Imm(5), minus, zero()]
        };
        assert!(wide_sum(minus, Operand::Imm(0)).contains("IADD3.X"));
    }

    #[test]
    fn loads_of_constants_at_known_places() {
        let loaded = |mods: &'static [Mod], base: u32, offset: i32| {
            stored(move |b, _| {
                let base = constant(b, base);
                let address = Operand::Const {
                    bank: ConstBank::Index(0),
                    index: Some(Name::Val(base)),
                    offset,
                    neg: false,
                    abs: false,
                    not: false,
                };
                let width = if mods.is_empty() { 1 } else { 2 };
                let v = b.func.add_value(RegFile::R, width);
                b.inst(Opcode::LDC, mods, &[operand(v), address]);
                if width == 1 { v } else { b.copy(operand(Name::Part(v, 0))) }
            })
        };
        assert!(loaded(&[], 0x210, 0x70).contains("c[0x0][0x280]"));
        assert!(loaded(&[], 0x210, -8).contains("c[0x0][0x208]"));
        assert!(loaded(&[Mod::_64], 0x210, 0x70).contains("LDC.64 c[0x0][0x280]"));
        // Where there is nothing, or the hardware takes it for something else.
        for (mods, base, offset) in
            [(&[][..], 0x8, -16), (&[], 0xfffc, 4), (&[], 0x210, 2), (&[Mod::_64], 0x210, 4)]
        {
            assert!(loaded(mods, base, offset).contains("c[0x0][v"), "{base:#x} {offset}");
        }
    }

    #[test]
    fn inputs_handed_on() {
        let plain = "v0, v0, RZ";
        let logic = |table: u32, mask: u32| {
            stored(move |b, x| {
                let v = b.func.add_value(RegFile::R, 1);
                let operands = [
                    pt(false),
                    operand(v),
                    operand(x),
                    Operand::Imm(mask),
                    zero(),
                    Operand::Imm(table),
                    pt(true),
                ];
                b.inst(Opcode::LOP3, &[Mod::LUT], &operands);
                v
            })
        };
        // x & ~0, x | 0; x & 7 stays; x & 0 is nothing.
        assert!(logic(0xc0, u32::MAX).contains(plain));
        assert!(logic(0xfc, 0).contains(plain));
        assert!(logic(0xc0, 7).contains("LOP3"));
        assert!(logic(0xc0, 0).contains("v0, 0x0, RZ"));
        let product = |n: u32| {
            stored(move |b, x| {
                let n = constant(b, n);
                b.def(Opcode::IMAD, &[], &[operand(x), operand(n), zero(), pt(true)])
            })
        };
        assert!(product(1).contains(plain));
        assert!(product(0).contains("v0, 0x0, RZ"));
        assert!(product(2).contains("IMAD"));
    }

    #[test]
    fn known_predicates() {
        let text = stored(|b, x| {
            let n = constant(b, 5);
            let p = b.def_pred(
                Opcode::ISETP,
                &[Mod::LT, Mod::U32, Mod::AND],
                &[operand(n), Operand::Imm(7), pt(false), pt(false)],
            );
            b.def(Opcode::SEL, &[], &[operand(x), zero(), operand(p)])
        });
        assert!(text.contains("v0, v0, RZ"), "{text}");
        assert!(!text.contains("SEL"), "{text}");
        // PT & !PT, of which the third input says nothing.
        let text = stored(|b, x| {
            let operands = [pt(false), pt(true), pt(false), Operand::Imm(0xa0 & 0xcc), Operand::Imm(0)];
            let p = b.def_pred(Opcode::PLOP3, &[Mod::LUT], &operands);
            b.def(Opcode::SEL, &[], &[zero(), operand(x), operand(p)])
        });
        assert!(text.contains("v0, v0, RZ"), "{text}");
        assert!(!text.contains("SEL"), "{text}");
    }
}
