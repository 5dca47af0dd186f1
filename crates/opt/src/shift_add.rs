//! Shifts that belong to sums: nearly every address is an index times the size of an element, and quotients by powers of two
//! and other constants add a sign to a word shifted to the right.
//!
//! [`widen`] makes one product, IMAD.WIDE, of the 64-bit shift of a number of 32 bits that was extended; a sum takes that
//! in afterwards ([`crate::wide_add`]). [`run`] makes LEA of a shift by a constant and the sums that it is only
//! made for: of 32 bits, or LEA and LEA.HI.X of 64 bits; LEA.HI of a shift to the right, which is the upper word of the number
//! shifted to the left by what is left of 32, with the sign LEA.HI.SX32. If something else needs the shifted number it stays:
//! LEA would save nothing then. A rotation is such an upper word, too, and so is any word of a shift of two.

use crate::Pass;
use crate::sums::{self, Places, Sum, is_zero, plain, value_of};
use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Iadd3, Imad, Lea, LeaMods, Shf, ShfMods, ShiftDir, ShiftType};
use sass::{Mod, Mods, Opcode, Reg, RegFile};
use thin_vec::ThinVec;

const RZ: Name = Name::Phys(Reg::RZ);
const PT: Name = Name::Phys(Reg::PT);

/// LEA of the lower words.
const LOW: LeaMods = LeaMods { hi: false, extended: false, sx32: false };

/// A shift to the left by a constant below 32, of 32 bits, or the upper word of one of 64.
pub(crate) fn shift_left(d: &InstData, upper: bool) -> Option<u32> {
    let kind = if upper { ShiftType::U64 } else { ShiftType::U32 };
    let wanted = ShfMods { dir: ShiftDir::L, wrap: false, kind, hi: upper };
    let s = Shf::of(d).filter(|_| d.is_unguarded() && ShfMods::of(d) == Some(wanted))?;
    let Operand::Imm(n @ 1..32) = *s.amount else { return None };
    (plain(s.low) && (upper || is_zero(s.high))).then_some(n)
}

/// The upper word of two words shifted to the left, as LEA.HI has it.
struct Upper {
    low: Operand,
    /// Zero where LEA.HI.SX32 takes the sign of the lower word.
    high: Operand,
    n: u32,
    signed: bool,
}

/// A shift of one word to the right by a constant below 32, or of two that a word comes out of (a rotation if they are the same), as the
/// upper word of a shift to the left.
fn upper_word(d: &InstData) -> Option<Upper> {
    let s = Shf::of(d).filter(|_| d.is_unguarded())?;
    let Operand::Imm(n @ 1..32) = *s.amount else { return None };
    if !plain(s.low) || !plain(s.high) {
        return None;
    }
    let zero = operand(RZ);
    let (low, high, n, signed) = match ShfMods::of(d)? {
        ShfMods { dir: ShiftDir::R, kind: ShiftType::S32, hi: true, .. } if is_zero(s.low) => {
            (*s.high, zero, 32 - n, true)
        }
        ShfMods { dir: ShiftDir::R, kind: ShiftType::U32, hi: true, .. } if is_zero(s.low) => {
            (*s.high, zero, 32 - n, false)
        }
        ShfMods { dir: ShiftDir::R, kind: ShiftType::U32, hi: false, .. } => (*s.low, *s.high, 32 - n, false),
        ShfMods { dir: ShiftDir::L, kind: ShiftType::U32, hi: true, .. } => (*s.low, *s.high, n, false),
        _ => return None,
    };
    Some(Upper { low, high, n, signed })
}

/// The word whose sign this value is in all bits.
pub(crate) fn sign_of(d: &InstData) -> Option<&Operand> {
    let s = Shf::of(d)?;
    let wanted = ShfMods { dir: ShiftDir::R, wrap: false, kind: ShiftType::S32, hi: true };
    let fits = d.is_unguarded() && ShfMods::of(d)? == wanted && *s.amount == Operand::Imm(31);
    fits.then_some(s.high)
}

/// The pass, for the table.
pub const WIDEN: Pass = Pass::alone(
    1,
    "widen",
    "OriStrengthReduce",
    "products in place of 64-bit shifts of extended numbers",
    widen,
);

/// Products in place of 64-bit shifts of extended numbers.
pub fn widen(func: &mut Function) -> bool {
    let at = sums::places(func);
    let mut changed = false;
    for n in 0..func.layout.len() {
        let b = func.layout[n];
        // The lower words of shifts, by what is shifted and how far.
        let mut lower: FxHashMap<(Name, u32), Inst> = FxHashMap::default();
        let mut found: FxHashMap<Inst, (Inst, u32, bool)> = FxHashMap::default();
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            if let Some(n) = shift_left(d, false)
                && let Operand::Reg(r) = &d.operands[Shf::LOW]
            {
                lower.insert((r.reg, n), i);
            } else if let Some(n) = shift_left(d, true)
                && let Operand::Reg(r) = &d.operands[Shf::LOW]
                && let Some(low) = lower.get(&(r.reg, n))
                && let Some(signed) = extension(func, &at, d)
                // The factor of a signed product is signed.
                && (n < 31 || !signed)
                && !found.contains_key(low)
            {
                found.insert(*low, (i, n, signed));
            }
        }
        if found.is_empty() {
            continue;
        }
        changed = true;
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut new = Vec::with_capacity(old.len() + found.len());
        for i in old {
            if let Some(&(high, n, signed)) = found.get(&i) {
                new.push(product(func, i, high, n, signed));
            }
            new.push(i);
        }
        func.blocks[b].insts = new;
    }
    if changed {
        _ = crate::copy_prop::run(func, &ori::Analyses::default());
    }
    changed
}

/// Whether the upper word of what is shifted extends the lower one: with its sign (true) or with zeros (false).
fn extension(func: &Function, at: &Places, d: &InstData) -> Option<bool> {
    if is_zero(&d.operands[Shf::HIGH]) {
        return Some(false);
    }
    let (i, ..) = at[value_of(&d.operands[Shf::HIGH])?]?;
    (*sign_of(&func.insts[i])? == d.operands[Shf::LOW]).then_some(true)
}

/// The product that the shifts `low` and `high` become copies of.
fn product(func: &mut Function, low: Inst, high: Inst, n: u32, signed: bool) -> Inst {
    let pair = func.add_value(RegFile::R, 2);
    let (x, loc) = (func.insts[low].operands[Shf::LOW], func.insts[low].loc);
    let mods: &[Mod] = if signed { &[Mod::WIDE] } else { &[Mod::WIDE, Mod::U32] };
    let carry = Operand::Reg(sass::RegOp { not: true, ..sass::RegOp::plain(PT) });
    let all = Imad {
        d: operand(pair),
        carry_out: operand(PT),
        a: x,
        b: Operand::Imm(1 << n),
        c: operand(RZ),
        carry,
    };
    for (i, part) in [(low, 0), (high, 1)] {
        let d = &mut func.insts[i];
        d.become_copy(d.operands[Shf::D], operand(Name::Part(pair, part)));
    }
    func.insts.push(InstData {
        guard: ori::ALWAYS,
        op: Op::Sass(Opcode::IMAD),
        mods: Mods::of(mods),
        operands: all.list().into(),
        kept: ThinVec::new(),
        loc,
    })
}

/// A sum that takes in a shift.
struct Taken {
    sum: Sum,
    /// What LEA of the lower words is: of a shift to the right the upper word of one to the left.
    mods: LeaMods,
    /// How far to the left.
    n: u32,
    /// What is shifted: its lower word, and of 64 bits, or where the upper word is wanted, its upper one.
    words: [Operand; 2],
    /// What is added: its lower word, and of 64 bits its upper one.
    added: [Operand; 2],
    /// The shifted words.
    shifted: [Option<Value>; 2],
}

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(2, "shift-add", "OriCommoning", "shifts and sums as LEA", run);

/// LEA in place of shifts and sums.
pub fn run(func: &mut Function) -> bool {
    // What nobody reads uses nothing.
    ori::dead::remove(func);
    let at = sums::places(func);
    let uses = crate::uses::count(func);
    let mut all: Vec<Taken> = Vec::new();
    let mut taken: SecondaryMap<Value, u32> = SecondaryMap::new();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let Some(t) = take(func, &at, &uses, i, b) else { continue };
            t.shifted.iter().flatten().for_each(|v| taken[*v] += 1);
            all.push(t);
        }
    }
    let mut changed = false;
    for t in all {
        if t.shifted.iter().flatten().all(|v| taken[*v] == uses[*v]) {
            rewrite(func, t);
            changed = true;
        }
    }
    changed
}

/// The sum that `i` ends, if one of its terms is a shift of the same block.
fn take(func: &Function, at: &Places, uses: &SecondaryMap<Value, u32>, i: Inst, b: Block) -> Option<Taken> {
    let sum = sums::sum(func, at, uses, i, b)?;
    let defined = |o: &Operand| {
        let v = value_of(o)?;
        let (i, block, _) = at[v]?;
        (block == b).then_some((v, &func.insts[i]))
    };
    let shift = |o: &Operand, upper: bool| {
        let (v, d) = defined(o)?;
        Some((v, shift_left(d, upper)?, d))
    };
    for n in 0..2 {
        let added = sum.low[1 - n];
        if sum.high.is_none()
            && let Some((v, d)) = defined(&sum.low[n])
            && let Some(upper) = upper_word(d)
        {
            return Some(Taken {
                mods: LeaMods { hi: true, extended: false, sx32: upper.signed },
                n: upper.n,
                words: [upper.low, upper.high],
                added: [added, operand(RZ)],
                shifted: [Some(v), None],
                sum,
            });
        }
        let Some((low, amount, d)) = shift(&sum.low[n], false) else { continue };
        let x = d.operands[Shf::LOW];
        let Some(upper) = &sum.high else {
            return Some(Taken {
                mods: LOW,
                n: amount,
                words: [x, operand(RZ)],
                added: [added, operand(RZ)],
                shifted: [Some(low), None],
                sum,
            });
        };
        for m in 0..2 {
            let Some((high, again, e)) = shift(&upper.terms[m], true) else { continue };
            if again == amount && e.operands[Shf::LOW] == x {
                return Some(Taken {
                    mods: LOW,
                    n: amount,
                    words: [x, e.operands[Shf::HIGH]],
                    added: [added, upper.terms[1 - m]],
                    shifted: [Some(low), Some(high)],
                    sum,
                });
            }
        }
    }
    None
}

fn rewrite(func: &mut Function, t: Taken) {
    let none = Operand::Reg(sass::RegOp { not: true, ..sass::RegOp::plain(PT) });
    let [x, high] = t.words;
    let [added, more] = t.added;
    let amount = Operand::Imm(t.n);
    let results = |i: Inst| Iadd3::of(&func.insts[i]).map(|s| (*s.d, *s.carry_out));
    let upper = t.sum.high.and_then(|u| Some((u.inst, results(u.inst)?.0)));
    let Some((d, carry_out)) = results(t.sum.inst) else { return };
    let mut become_lea = |i: Inst, mods: LeaMods, lea: Lea<Operand>| {
        let d = &mut func.insts[i];
        d.op = Op::Sass(Opcode::LEA);
        d.mods = mods.mods();
        d.operands = lea.list().into();
    };
    let low_high = if t.mods.hi { high } else { operand(RZ) };
    let low = Lea { d, carry_out, a: x, b: added, high: low_high, amount, carry: none };
    become_lea(t.sum.inst, t.mods, low);
    if let Some((inst, d)) = upper {
        let high = Lea { d, carry_out: operand(PT), a: x, b: more, high, amount, carry: carry_out };
        become_lea(inst, LeaMods { hi: true, extended: true, sx32: false }, high);
    }
}

#[cfg(test)]
mod tests {
    const BEFORE: &str = "\
function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R = SHF.R.S32.HI RZ, 0x1f, v0
    v3:R = SHF.L.U32 v0, 0x2, RZ
    v4:R = SHF.L.U64.HI v0, 0x2, v2
    v5:R2 = collect v3, v4
    v8:R2 = IADD.64 PT, v1, v5, !PT
    v9:R2 = LDG.E.64 PT, [v8.64], PT
    STG.E.64 [v8.64], v9
    exit
}
";

    /// The text after the products are made, and after LEA is, where they are not made first.
    fn both(before: &str) -> [String; 2] {
        [true, false].map(|widen| {
            let mut f = ori::parse::parse(before).unwrap();
            if widen {
                super::widen(&mut f);
            } else {
                _ = crate::split_words::run(&mut f, &ori::Analyses::default());
                _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
                super::run(&mut f);
            }
            _ = crate::wide_add::run(&mut f, &ori::Analyses::default());
            _ = crate::copy_prop::run(&mut f, &ori::Analyses::default());
            ori::dead::remove(&mut f);
            ori::verify::verify(&f).unwrap();
            f.to_string()
        })
    }

    #[test]
    fn an_extended_number_is_multiplied() {
        let [wide, _] = both(BEFORE);
        assert!(wide.contains("IMAD.WIDE PT, v0, 0x4, v1, !PT") && !wide.contains("SHF"), "{wide}");
        let [wide, _] = both(&BEFORE.replace("0x2, v2", "0x2, RZ"));
        assert!(wide.contains("IMAD.WIDE.U32 PT, v0, 0x4, v1, !PT") && !wide.contains("SHF"), "{wide}");
    }

    #[test]
    fn a_sign_bit_is_no_positive_factor() {
        let [wide, _] = both(&BEFORE.replace("v0, 0x2", "v0, 0x1f"));
        assert!(!wide.contains("IMAD"), "{wide}");
        let far = BEFORE.replace("v0, 0x2", "v0, 0x1f").replace("0x1f, v2", "0x1f, RZ");
        assert!(both(&far)[0].contains("IMAD.WIDE.U32 PT, v0, 0x80000000, v1, !PT"));
    }

    #[test]
    fn shifts_join_sums() {
        let number = BEFORE.replace("SHF.R.S32.HI RZ, 0x1f, v0", "S2R SR_TID.Y");
        let [wide, lea] = both(&number);
        assert!(!wide.contains("IMAD"), "{wide}");
        assert!(lea.contains("= LEA v0, v1.0, RZ, 0x2, !PT"), "{lea}");
        assert!(lea.contains("= LEA.HI.X PT, v0, v1.1, v2, 0x2, v12"), "{lea}");
        assert!(!lea.contains("SHF") && !lea.contains("IADD3"), "{lea}");
    }

    #[test]
    fn shifts_to_the_right_join_sums() {
        let quotient = "\
function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R = SHF.R.S32.HI RZ, 0x1f, v0
    v3:R = SHF.R.U32.HI RZ, 0x1d, v2
    v4:R = IADD3 PT, PT, v0, v3, RZ, !PT, !PT
    v5:R = SHF.R.S32.HI RZ, 0x3, v4
    v6:R = IADD3 PT, PT, v5, 0x1, RZ, !PT, !PT
    STG.E [v1.64], v6
    exit
}
";
        let [_, lea] = both(quotient);
        assert!(lea.contains("v4:R = LEA.HI PT, v2, v0, RZ, 0x3, !PT"), "{lea}");
        assert!(lea.contains("v6:R = LEA.HI.SX32 PT, v4, 0x1, RZ, 0x1d, !PT"), "{lea}");
        assert!(!lea.contains("IADD3") && !lea.contains("0x1d, v2"), "{lea}");
        let rotated = |shift: &str| both(&quotient.replace("SHF.R.U32.HI RZ, 0x1d, v2", shift))[1].clone();
        let lea = rotated("SHF.L.W.U32.HI v2, 0x7, v2");
        assert!(lea.contains("v4:R = LEA.HI PT, v2, v0, v2, 0x7, !PT"), "{lea}");
        let lea = rotated("SHF.R.U32 v0, 0x7, v2");
        assert!(lea.contains("v4:R = LEA.HI PT, v0, v0, v2, 0x19, !PT"), "{lea}");
        // The lower word of a shift to the left is none, nor what a register shifts by.
        let lea = rotated("SHF.L.U64.HI v0, 0x7, v2");
        assert!(!lea.contains("v4:R = LEA"), "{lea}");
        let lea = rotated("SHF.L.W.U32.HI v2, v0, v2");
        assert!(!lea.contains("v4:R = LEA"), "{lea}");
    }

    #[test]
    fn shifts_that_something_else_needs_stay() {
        let number = BEFORE.replace("SHF.R.S32.HI RZ, 0x1f, v0", "S2R SR_TID.Y");
        let [_, lea] = both(&number.replace("    exit", "    STG.E [v8.64], v3\n    exit"));
        assert!(!lea.contains("LEA"), "{lea}");
        // The words are shifted by different amounts, or the carry has another user.
        let [_, lea] = both(&number.replace("U64.HI v0, 0x2", "U64.HI v0, 0x3"));
        assert!(!lea.contains("LEA"), "{lea}");
    }
}
