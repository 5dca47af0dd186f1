//! What is known of the bits of numbers makes instructions simpler: a mask that takes nothing away goes, and one that leaves nothing is 0; shifts to the right
//! by numbers are one; a shift to the left and one to the right that together are a rotation, of 64 bits mostly, are one of two words;
//! other parts that share no bit are added, so that the sum takes in a shift. And a product that only one sum needs is a part of that sum.
//!
//! Arithmetic on 16 bits leaves such: each result is masked, whether it could be larger or not.

use crate::Pass;
use crate::sums;
use cranelift_entity::SecondaryMap;
use ori::known::KnownBits;
use ori::pairs::{Collected, WideSum};
use ori::{Analyses, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{
    Iadd, Iadd3, Iadd3Mods, Imad, ImadMods, Lop3, Prmt, PrmtMods, Shf, ShfMods, ShiftDir, ShiftType,
};
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp};

/// LOP3's tables of `a & b` and `a | b`.
const AND: u32 = 0xc0;
const OR: u32 = 0xfc;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "known-bits",
    "AdvancedPhaseAfterMidExpansion",
    "masks that take nothing away, shifts of shifts, rotations, other parts that share no bit, products that one sum needs",
    run,
);

/// The pass. What it takes the place of is left for dead code removal.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let known = analyses.known_bits(func);
    let mut changed = words_apart(func, known);
    let mut pass = Rewriter {
        known,
        makers: SecondaryMap::new(),
        uses: crate::uses::count(func),
        never: SecondaryMap::new(),
    };
    for n in 0..func.layout.len() {
        let b = func.layout[n];
        let insts = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(insts.len());
        for i in insts {
            out.push(i);
            if let Some((new, carry)) = pass.funnel(func, &func.insts[i]) {
                func.insts[i] = new;
                changed = true;
                if let Some(carry) = carry {
                    let mut none = func.insts[i].clone();
                    none.become_copy(operand(carry), Operand::Imm(0));
                    pass.never[carry] = true;
                    out.push(func.insts.push(none));
                }
            } else if let Some(new) = pass.simpler(func, b, &func.insts[i]) {
                func.insts[i] = new;
                changed = true;
            }
            if func.insts[i].is_unguarded() {
                func.insts[i].for_each_def(|n| {
                    if let Name::Val(v) = n {
                        pass.makers[v] = Some((i, b));
                    }
                });
            }
        }
        func.blocks[b].insts = out;
    }
    Changed::instructions(changed)
}

/// Sums of 64 bits whose lower words are too small for a carry are two sums, as of rotations and of descriptors; those with nothing are the other term.
fn words_apart(func: &mut Function, known: &KnownBits) -> bool {
    let collected = Collected::of(func);
    let mut found: FxHashMap<Inst, [[Operand; 2]; 2]> = FxHashMap::default();
    let mut copies: Vec<(Inst, Operand)> = Vec::new();
    let mut blocks: Vec<ori::Block> = Vec::new();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            let Some(sum) = WideSum::of(d) else { continue };
            let zeros = |o: &Operand| match (o, value(o)) {
                (Operand::Imm(n), _) => !n,
                (_, Some(v)) => known.of(v).zeros,
                (o, None) if is_zero(o) => u32::MAX,
                (_, None) => 0,
            };
            let [first, second] = sum.terms;
            let [x, y] = sum.terms.map(|o| collected.words(o));
            let nothing = |w: &[Operand; 2]| w.iter().all(|o| zeros(o) == u32::MAX);
            let rest = [(x, second), (y, first)].into_iter().find(|(x, _)| nothing(x));
            if let Some((_, other)) = rest.filter(|(_, other)| value(other).is_some()) {
                copies.push((i, other));
                continue;
            }
            // A minus before the upper word is a complement, which needs the carry.
            if !sum.terms.iter().all(sums::plain) {
                continue;
            }
            let most = |o: &Operand| u64::from(!zeros(o));
            if most(&x[0]) + most(&y[0]) <= u32::MAX.into() {
                found.insert(i, [x, y]);
                if blocks.last() != Some(&b) {
                    blocks.push(b);
                }
            }
        }
    }
    for b in blocks {
        let old = std::mem::take(&mut func.blocks[b].insts);
        for i in old {
            if let Some([x, y]) = found.get(&i) {
                let words = [0, 1].map(|k| {
                    match [x[k], y[k]] {
                        [zero, other] if is_zero(&zero) => return other,
                        [other, zero] if is_zero(&zero) => return other,
                        _ => {}
                    }
                    let word = operand(func.add_value(RegFile::R, 1));
                    let made = InstData {
                        op: Op::Sass(Opcode::IADD3),
                        mods: Mods::none(),
                        operands: sums::addition(word, x[k], y[k]).list().into(),
                        ..func.insts[i].clone()
                    };
                    let made = func.insts.push(made);
                    func.blocks[b].insts.push(made);
                    word
                });
                let d = &mut func.insts[i];
                let to = d.operands[Iadd::D];
                (d.op, d.mods) = (Op::Macro(Macro::Collect), Mods::none());
                d.operands = [to, words[0], words[1]].into_iter().collect();
            }
            func.blocks[b].insts.push(i);
        }
    }
    for (i, other) in &copies {
        let to = func.insts[*i].operands[Iadd::D];
        func.insts[*i].become_copy(to, *other);
    }
    let changed = !found.is_empty() || !copies.is_empty();
    if changed {
        // What was collected for them alone is read no more.
        ori::dead::remove(func);
    }
    changed
}

struct Rewriter<'a> {
    known: &'a KnownBits,
    /// What makes a value, and where, of the blocks before.
    makers: SecondaryMap<Value, Option<(Inst, ori::Block)>>,
    uses: SecondaryMap<Value, u32>,
    /// Carries that never are.
    never: SecondaryMap<Value, bool>,
}

/// A whole value without signs.
fn value(o: &Operand) -> Option<Value> {
    match o {
        Operand::Reg(RegOp { reg: Name::Val(v), neg: false, abs: false, not: false, .. }) => Some(*v),
        _ => None,
    }
}

fn is_zero(o: &Operand) -> bool {
    matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ)) || *o == Operand::Imm(0)
}

fn pt(not: bool) -> Operand {
    Operand::Reg(RegOp { not, ..RegOp::plain(Name::Phys(Reg::PT)) })
}

fn is_pt(o: &Operand, negated: bool) -> bool {
    *o == pt(negated)
}

/// Two sources and a result.
struct Pair<'a> {
    to: &'a Operand,
    a: &'a Operand,
    b: &'a Operand,
}

impl Rewriter<'_> {
    /// What makes a value, if that is an unguarded instruction before.
    fn maker<'f>(&self, func: &'f Function, v: Value) -> Option<&'f InstData> {
        self.makers[v].map(|(i, _)| &func.insts[i])
    }

    /// What does the same with less.
    fn simpler(&self, func: &Function, b: ori::Block, d: &InstData) -> Option<InstData> {
        // What a guarded one keeps belongs to its results, of which others have more or fewer.
        if !d.is_unguarded() {
            return None;
        }
        match d.op {
            Op::Sass(Opcode::LOP3) => self.mask(func, d).or_else(|| self.sum_of_parts(func, d)),
            Op::Sass(Opcode::SHF) => self.one_shift(func, d),
            Op::Sass(Opcode::PRMT) => self.same_bytes(func, d),
            Op::Sass(Opcode::IADD3) => self.without_carry(d).or_else(|| self.product_in_sum(func, b, d)),
            _ => None,
        }
    }

    /// A shift by a number of one word, zeros coming in: the word and how far.
    fn shifted(&self, func: &Function, v: Value, dir: ShiftDir) -> Option<(Operand, u32)> {
        let m = self.maker(func, v)?;
        let s = Shf::of(m)?;
        let Operand::Imm(n @ 1..32) = *s.amount else { return None };
        let right = dir == ShiftDir::R;
        let (word, zero) = if right { (s.high, s.low) } else { (s.low, s.high) };
        let wanted = ShfMods { dir, wrap: false, kind: ShiftType::U32, hi: right };
        // Uniform registers do not last until they are read again.
        let lasts = match word {
            Operand::Reg(RegOp { reg, neg: false, abs: false, not: false, .. }) => {
                reg.value().is_some_and(|v| func.values[v].file == RegFile::R)
            }
            _ => false,
        };
        (ShfMods::of(m) == Some(wanted) && is_zero(zero) && lasts).then_some((*word, n))
    }

    /// `x << n | y >> 32 - n` (or the sum) as one shift, and the carry of the sum, which never is.
    fn funnel(&self, func: &Function, d: &InstData) -> Option<(InstData, Option<Value>)> {
        if !d.is_unguarded() {
            return None;
        }
        let (to, terms, carry) = match d.op {
            Op::Sass(Opcode::LOP3) => {
                let Pair { to, a, b } = Self::pair(d, OR)?;
                (to, [value(a)?, value(b)?], None)
            }
            Op::Sass(Opcode::IADD3) => {
                let s = Iadd3::of(d)?;
                let bare = Iadd3Mods::of(d) == Some(Iadd3Mods { extended: false })
                    && is_pt(s.carry_out2, false)
                    && is_pt(s.carry, true)
                    && is_pt(s.carry2, true);
                let carry = if is_pt(s.carry_out, false) { None } else { Some(value(s.carry_out)?) };
                let terms = match s.terms() {
                    [z, a, b] | [a, z, b] | [a, b, z] if bare && is_zero(z) => [value(a)?, value(b)?],
                    _ => return None,
                };
                (s.d, terms, carry)
            }
            _ => return None,
        };
        value(to)?;
        for [left, right] in [terms, [terms[1], terms[0]]] {
            if let Some((high, n)) = self.shifted(func, left, ShiftDir::L)
                && let Some((low, m)) = self.shifted(func, right, ShiftDir::R)
                && n + m == 32
                && (self.uses[left] == 1 || self.uses[right] == 1)
            {
                let mut new = self.maker(func, right)?.clone();
                let s = Shf::of_mut(&mut new)?;
                (*s.d, *s.low, *s.amount, *s.high) = (*to, low, Operand::Imm(n), high);
                new.mods = Mods::of(&[Mod::L, Mod::W, Mod::U32, Mod::HI]);
                new.loc = d.loc;
                return Some((new, carry));
            }
        }
        None
    }

    /// A sum without the carry that never comes.
    fn without_carry(&self, d: &InstData) -> Option<InstData> {
        let s = Iadd3::of(d)?;
        let signed = |o: &Operand| matches!(o, Operand::Reg(r) if r.neg || r.not);
        let Operand::Reg(RegOp { reg: Name::Val(v), not: false, .. }) = *s.carry else { return None };
        let extended = Iadd3Mods::of(d) == Some(Iadd3Mods { extended: true });
        if !extended || !self.never[v] || !is_pt(s.carry2, true) || s.terms().into_iter().any(signed) {
            return None;
        }
        let bare = is_pt(s.carry_out, false) && is_pt(s.carry_out2, false);
        let (to, terms) = (*s.d, s.terms());
        let mut new = d.clone();
        match terms {
            [x, y, z] | [y, x, z] | [y, z, x] if bare && is_zero(y) && is_zero(z) && value(x).is_some() => {
                new.become_copy(to, *x);
            }
            _ => {
                new.mods = Mods::none();
                *Iadd3::of_mut(&mut new)?.carry = pt(true);
            }
        }
        Some(new)
    }

    /// What a LOP3 makes of which two sources beside zero, if its table is `lut`.
    fn pair(d: &InstData, lut: u32) -> Option<Pair<'_>> {
        let s = Lop3::of(d)?;
        let bare = *s.table == Operand::Imm(lut) && is_pt(s.p, false) && is_pt(s.join, true);
        (bare && is_zero(s.c)).then_some(Pair { to: s.d, a: s.a, b: s.b })
    }

    /// `x & n` where `x` has no other bits.
    fn mask(&self, func: &Function, d: &InstData) -> Option<InstData> {
        let pair = Self::pair(d, AND)?;
        let (x, n) = match (pair.a, pair.b) {
            (x, Operand::Imm(n)) | (Operand::Imm(n), x) => (value(x)?, *n),
            _ => return None,
        };
        if func.values[x].width != 1 {
            return None;
        }
        let zeros = self.known.of(x).zeros;
        let left = match () {
            () if zeros | !n == u32::MAX => Operand::Imm(0),
            () if zeros | n == u32::MAX => operand(x),
            () => return None,
        };
        let mut new = d.clone();
        new.become_copy(*pair.to, left);
        Some(new)
    }

    /// Bytes put where they are, and zeros where there are zeros: extensions of what is small enough.
    fn same_bytes(&self, func: &Function, d: &InstData) -> Option<InstData> {
        let s = Prmt::of(d).filter(|_| PrmtMods::of(d) == Some(PrmtMods { mode: None }))?;
        let (x, Operand::Imm(selector)) = (value(s.a)?, *s.selector) else { return None };
        if func.values[x].width != 1 || !is_zero(s.b) {
            return None;
        }
        let zeros = self.known.of(x).zeros;
        let is_zero = |byte: u32| zeros >> (8 * byte) & 0xff == 0xff;
        let same = (0..4).all(|k| {
            let (from, sign) = (selector >> (4 * k) & 7, selector >> (4 * k) & 8 != 0);
            let comes_as_zero = match sign {
                _ if from >= 4 => true,
                true => zeros >> (8 * from + 7) & 1 != 0,
                false => is_zero(from),
            };
            !sign && from == k || comes_as_zero && is_zero(k)
        });
        let mut new = d.clone();
        new.become_copy(*s.d, operand(x));
        same.then_some(new)
    }

    /// `a | b` where no bit is in both and one is a shift to the left that nothing else needs.
    fn sum_of_parts(&self, func: &Function, d: &InstData) -> Option<InstData> {
        let Pair { to, a, b } = Self::pair(d, OR)?;
        let (x, y) = (value(a)?, value(b)?);
        let general = |v: Value| func.values[v].width == 1 && func.values[v].file == RegFile::R;
        let shifted = |v: Value| {
            let left = |m: &InstData| ShfMods::of(m).is_some_and(|m| m.dir == ShiftDir::L);
            self.uses[v] == 1 && self.maker(func, v).is_some_and(left)
        };
        let apart = self.known.of(x).zeros | self.known.of(y).zeros == u32::MAX;
        let sum = sums::addition(*to, *a, *b);
        (general(x) && general(y) && apart && (shifted(x) || shifted(y))).then(|| InstData {
            op: Op::Sass(Opcode::IADD3),
            mods: Mods::none(),
            operands: sum.list().into(),
            ..d.clone()
        })
    }

    /// Whether a value may be read later than here: other lanes of the warp may write a uniform register again, such as the result of
    /// REDUX, before these come to the next instruction.
    fn lasts(func: &Function, v: Value) -> bool {
        func.values[v].width == 1 && func.values[v].file == RegFile::R
    }

    /// The word and the amount of a shift to the right by a number, zeros coming in.
    fn shift_right(func: &Function, d: &InstData) -> Option<(Value, u32)> {
        let s = Shf::of(d)?;
        let Operand::Imm(n @ 1..32) = *s.amount else { return None };
        let wanted = ShfMods { dir: ShiftDir::R, wrap: false, kind: ShiftType::U32, hi: true };
        let fits = ShfMods::of(d) == Some(wanted) && is_zero(s.low);
        Some((value(s.high).filter(|x| fits && Self::lasts(func, *x))?, n))
    }

    /// A shift to the right of another: past masks of the bits that it drops, too.
    fn one_shift(&self, func: &Function, d: &InstData) -> Option<InstData> {
        let (mut x, n) = Self::shift_right(func, d)?;
        // What a mask leaves alone of the bits that stay.
        if let Some(Pair { a, b: Operand::Imm(mask), .. }) =
            self.maker(func, x).and_then(|m| Self::pair(m, AND))
            && let Some(y) = value(a).filter(|y| Self::lasts(func, *y))
            && self.known.of(y).zeros | mask | ((1 << n) - 1) == u32::MAX
        {
            x = y;
        }
        // A copy that took the place of a mask.
        if let Some((_, from)) = self.maker(func, x).and_then(InstData::copied)
            && let Some(y) = value(from).filter(|y| Self::lasts(func, *y))
        {
            x = y;
        }
        let first = self.maker(func, x).and_then(|m| Self::shift_right(func, m));
        let (x, n) = match first {
            Some((y, m)) if m + n < 32 => (y, m + n),
            _ if value(Shf::of(d)?.high) == Some(x) => return None,
            _ => (x, n),
        };
        let mut new = d.clone();
        let s = Shf::of_mut(&mut new)?;
        (*s.amount, *s.high) = (Operand::Imm(n), operand(x));
        Some(new)
    }

    /// `a + x * y`, of which nothing else needs the product, made in the same block.
    fn product_in_sum(&self, func: &Function, block: ori::Block, d: &InstData) -> Option<InstData> {
        let s = Iadd3::of(d)?;
        let bare = Iadd3Mods::of(d) == Some(Iadd3Mods { extended: false })
            && is_pt(s.carry_out, false)
            && is_pt(s.carry_out2, false)
            && is_pt(s.carry, true)
            && is_pt(s.carry2, true);
        let general = |o: &Operand| match o {
            Operand::Reg(r) => r.reg.value().is_some_and(|v| func.values[v].file == RegFile::R),
            _ => false,
        };
        let [first, second] = match s.terms() {
            [z, a, b] | [a, z, b] | [a, b, z] if is_zero(z) => [a, b],
            _ => return None,
        };
        if !bare || !general(first) || !general(second) {
            return None;
        }
        for (product, added) in [(first, second), (second, first)] {
            let Operand::Reg(RegOp { reg: Name::Val(v), neg, abs: false, not: false, .. }) = *product else {
                continue;
            };
            let Operand::Reg(RegOp { neg: false, abs: false, not: false, .. }) = *added else { continue };
            let Some((i, at)) = self.makers[v] else { continue };
            let m = &func.insts[i];
            let Some(product) = Imad::of(m) else { continue };
            let (f, g) = (product.a, product.b);
            let bare = ImadMods { part: None, alias: None, unsigned: false, extended: false };
            let fits = ImadMods::of(m) == Some(bare)
                && is_pt(product.carry_out, false)
                && is_pt(product.carry, true)
                && is_zero(product.c)
                && at == block
                && self.uses[v] == 1
                && func.values[v].width == 1;
            let factor = match (g, neg) {
                (Operand::Imm(n), true) => Operand::Imm(n.wrapping_neg()),
                (g, false) => *g,
                _ => continue,
            };
            // A factor in a uniform register may not last until the sum.
            if !fits || !general(f) || matches!(g, Operand::Reg(_)) && !general(g) {
                continue;
            }
            let both = Imad { d: *s.d, carry_out: pt(false), a: *f, b: factor, c: *added, carry: pt(true) };
            return Some(InstData { op: m.op, operands: both.list().into(), ..d.clone() });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass, copies passed on and dead code gone.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_80 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    \
             v1:R = S2R SR_CTAID.X\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        _ = run(&mut f, &Analyses::default());
        _ = crate::copy_prop::run(&mut f, &Analyses::default());
        ori::dead::remove(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn words_of_descriptors_have_no_carry() {
        let sum = |mask: &str, number: &str| {
            after(&format!(
                "    v2:R = LOP3.LUT PT, v1, {mask}, RZ, 0xc0, !PT\n    v3:R2 = collect v2, 0x40004040\n    v4:R2 = collect {number}, 0x0\n    \
                 v5:R2 = IADD.64 PT, v3, v4, !PT\n    STS.64 [v0], v5\n"
            ))
        };
        // 0x3fff + 0x10002, although both may have bits in common.
        let got = sum("0x3fff", "0x10003");
        assert!(!got.contains("IADD.64") && got.contains("IADD3 PT, PT, v2, 0x10003"), "{got}");
        assert!(got.contains("0x40004040"), "{got}");
        // The ends: one less than a carry, and one.
        assert!(!sum("0x1", "0xfffffffe").contains("IADD.64"));
        assert!(sum("0x1", "0xffffffff").contains("IADD.64"));
    }

    #[test]
    fn masks_and_shifts_of_16_bits() {
        // (x * 0xf83f >> 16 & 0xffff) >> 5 & 0xffff
        let got = after(
            "    v2:R = LOP3.LUT PT, v1, 0xffff, RZ, 0xc0, !PT\n    v3:R = IMAD PT, v2, 0xf83f, RZ, !PT\n    \
             v4:R = SHF.R.U32.HI RZ, 0x10, v3\n    v5:R = LOP3.LUT PT, v4, 0xffff, RZ, 0xc0, !PT\n    \
             v6:R = SHF.R.U32.HI RZ, 0x5, v5\n    v7:R = LOP3.LUT PT, v6, 0xffff, RZ, 0xc0, !PT\n    STS [v0], v7\n",
        );
        assert!(got.contains("SHF.R.U32.HI RZ, 0x15, v3") && got.matches("LOP3").count() == 1, "{got}");
        // Bits that a mask takes away.
        let kept = after(
            "    v2:R = LOP3.LUT PT, v1, 0xff, RZ, 0xc0, !PT\n    v3:R = SHF.R.U32.HI RZ, 0x5, v2\n    STS [v0], v3\n",
        );
        assert!(kept.contains("0xff,") && kept.contains("0x5, v2"), "{kept}");
        // What is left of a number that is 16 or 0: nothing below 16.
        let none = after(
            "    v2:R = LOP3.LUT PT, v1, 0x10, RZ, 0xc0, !PT\n    v3:R = IADD3 PT, PT, -v2, 0x10, RZ, !PT, !PT\n    \
             v4:R = LOP3.LUT PT, v3, 0xf, RZ, 0xc0, !PT\n    STS [v0], v4\n",
        );
        assert!(none.contains("v4:R = copy 0x0"), "{none}");
        // All of them are dropped.
        let low = after(
            "    v2:R = LOP3.LUT PT, v1, 0xffffff00, RZ, 0xc0, !PT\n    v3:R = SHF.R.U32.HI RZ, 0x8, v2\n    STS [v0], v3\n",
        );
        assert!(low.contains("SHF.R.U32.HI RZ, 0x8, v1") && !low.contains("LOP3"), "{low}");
    }

    /// What a group of lanes reduces is in a register of the whole warp: it is read at once.
    #[test]
    fn uniform_registers_are_not_read_later() {
        let got = after(
            "    v2:UR = REDUX.SUM v0\n    v3:R = copy v2\n    STS [v1], v3\n    v4:R = SHF.R.U32.HI RZ, 0x5, v3\n    \
             STS [v0], v4\n",
        );
        assert!(got.contains("0x5, v3"), "{got}");
        let product = after(
            "    v2:UR = REDUX.SUM v0\n    v3:R = IMAD PT, v1, v2, RZ, !PT\n    v4:R = IADD3 PT, PT, v0, v3, RZ, !PT, !PT\n    \
             STS [v0], v4\n",
        );
        assert!(product.contains("IADD3"), "{product}");
    }

    #[test]
    fn guarded_ones_stay() {
        let got = after(
            "    v2:P = ISETP.LT.U32.AND PT, v0, 0x5, PT, PT\n    @v2 v3:R = LOP3.LUT PT, v1, 0xffffffff, RZ, 0xc0, !PT keep PT v0\n    \
             STS [v0], v3\n",
        );
        assert!(got.contains("LOP3.LUT PT, v1, 0xffffffff"), "{got}");
    }

    #[test]
    fn parts_are_added() {
        let or = |n: u32| {
            after(&format!(
                "    v2:R = SHF.L.U32 v1, {n:#x}, RZ\n    v3:R = LOP3.LUT PT, v2, v0, RZ, 0xfc, !PT\n    STS [v0], v3\n"
            ))
        };
        assert!(or(10).contains("IADD3 PT, PT, v2, v0, RZ"), "{}", or(10));
        // A thread's number has ten bits.
        assert!(or(9).contains("LOP3"), "{}", or(9));
    }

    #[test]
    fn rotations_are_one_shift() {
        let or = |left: u32, right: u32| {
            after(&format!(
                "    v2:R = SHF.L.U32 v1, {left:#x}, RZ\n    v3:R = SHF.R.U32.HI RZ, {right:#x}, v0\n    \
                 v4:R = LOP3.LUT PT, v3, v2, RZ, 0xfc, !PT\n    STS [v0], v4\n"
            ))
        };
        assert!(or(13, 19).contains("v4:R = SHF.L.W.U32.HI v0, 0xd, v1"), "{}", or(13, 19));
        assert!(!or(13, 19).contains("v2") && !or(13, 18).contains(".W."), "{} {}", or(13, 19), or(13, 18));
        // Of 64 bits, as a sum: its carry is none.
        let sum = |other: &str| {
            after(&format!(
                "    v2:R = SHF.L.U32 v1, 0xd, RZ\n    v3:R = SHF.L.U64.HI v1, 0xd, v0\n    v4:R = SHF.R.U32.HI RZ, 0x13, v0\n    \
                 v5:R, v6:P = IADD3 PT, v2, v4, RZ, !PT, !PT\n    v7:R = IADD3.X PT, PT, v3, {other}, RZ, v6, !PT\n    \
                 STS [v5], v7\n"
            ))
        };
        assert!(
            sum("RZ").contains("SHF.L.W.U32.HI v0, 0xd, v1") && !sum("RZ").contains("IADD3"),
            "{}",
            sum("RZ")
        );
        assert!(sum("v0").contains("IADD3 PT, PT, v3, v0, RZ, !PT, !PT"), "{}", sum("v0"));
        // A minus is a complement where a carry may come.
        assert!(sum("-v0").contains("IADD3.X PT, PT, v3, -v0"), "{}", sum("-v0"));
    }

    #[test]
    fn products_go_into_sums() {
        let got = after(
            "    v2:R = IMAD PT, v0, 0x21, RZ, !PT\n    v3:R = IADD3 PT, PT, v1, -v2, RZ, !PT, !PT\n    STS [v0], v3\n",
        );
        assert!(got.contains("IMAD PT, v0, 0xffffffdf, v1, !PT") && !got.contains("IADD3"), "{got}");
        let twice = after(
            "    v2:R = IMAD PT, v0, 0x21, RZ, !PT\n    v3:R = IADD3 PT, PT, v1, v2, RZ, !PT, !PT\n    STS [v2], v3\n",
        );
        assert!(twice.contains("IADD3"), "{twice}");
    }
}
