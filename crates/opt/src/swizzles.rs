//! Addresses whose bits are exchanged: what is added above those bits goes around the exchange.
//!
//! Code that spreads a tile over the banks of shared memory changes some bits of an address by others: `a ^ (a >> 3 & 0x70)`. Bits 4 to 6 change, by bits 7 to 9;
//! so for a multiple `m` of 1024 the address `a + m` becomes `(a ^ (a >> 3 & 0x70)) + m`. Of all addresses that are unrolled from a loop
//! as many are left as there are constants below 1024, and the rest of the constant goes into the offsets of instructions (`constant_sums`).

use crate::Pass;
use crate::constant_sums::{InFront, number_added, put_in_front, room_of_addresses, takes};
use crate::sums::{self, Places, is_zero, value_of};
use ori::pairs::WideSum;
use ori::{Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand};
use sass::ops::{Iadd, Iadd3, Lop3, Lop3Mods, Shf, ShfMods, ShiftDir, ShiftType};
use sass::{Reg, RegFile, RegOp};
use smallvec::{SmallVec, smallvec};

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    2,
    "swizzles",
    "ExtractShaderConstsFirst",
    "what is added to an address above the bits that `a ^ (a >> 3 & 0x70)` exchanges is added behind that, in offsets",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let at = sums::places(func);
    let uses = crate::uses::count(func);
    let room = room_of_addresses(func, &uses);
    let mut changed = false;
    for n in 0..func.layout.len() {
        let b = func.layout[n];
        let mut new = InFront::default();
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            let Some(swizzle) = Swizzle::of(func, &at, i) else { continue };
            let least = swizzle.number as u32 & (swizzle.step - 1);
            let more = swizzle.number - i64::from(least);
            if more != 0
                && takes(&room, swizzle.to, more)
                && let Ok(more) = i32::try_from(more)
            {
                new.insert(i, swizzle.apply(func, i, least, more));
                changed = true;
            }
        }
        put_in_front(func, b, new);
    }
    changed
}

/// An address with exchanged bits.
struct Swizzle {
    /// The address, in a register or two.
    to: Value,
    /// What exchanges the bits of the lower word, the last one last, and that word.
    chain: SmallVec<[Inst; 3]>,
    of: Name,
    /// The sum of that.
    sum: Inst,
    /// What it is the sum of, and the number.
    base: Name,
    number: i64,
    /// The least number that changes no bit of those that are exchanged.
    step: u32,
}

impl Swizzle {
    /// What `i` makes, if it is such an address of a sum with a number.
    fn of(func: &Function, at: &Places, i: Inst) -> Option<Swizzle> {
        let d = &func.insts[i];
        if !d.is_unguarded() {
            return None;
        }
        if d.op == Op::Macro(Macro::Collect) {
            let [to, low, Operand::Reg(high)] = &d.operands[..] else { return None };
            let Name::Part(wide, 1) = high.reg else { return None };
            (*high == RegOp::plain(high.reg)).then_some(())?;
            let (sum, ..) = at[wide]?;
            let (base, number) = WideSum::of(&func.insts[sum])?.with_number()?;
            (func.values[base].file == RegFile::R).then_some(())?;
            let of = Name::Part(wide, 0);
            let (chain, step) = exchange(func, at, at[value_of(low)?]?.0, of)?;
            return Some(Swizzle { to: value_of(to)?, chain, of, sum, base: base.into(), number, step });
        }
        let last = Lop3::of(d)?;
        let to = value_of(last.d)?;
        [last.a, last.b].into_iter().find_map(|o| {
            let x = value_of(o)?;
            let (sum, ..) = at[x]?;
            let (base, number) = number_added(&func.insts[sum])
                .filter(|(b, _)| b.value().is_some_and(|v| func.values[v].file == RegFile::R))?;
            func.insts[sum].is_unguarded().then_some(())?;
            let (chain, step) = exchange(func, at, i, x.into())?;
            let number = i64::from(number as i32);
            Some(Swizzle { to, chain, of: x.into(), sum, base, number, step })
        })
    }

    /// Makes the address without the larger part of the number, and that with `i`: what is to stand in front.
    fn apply(&self, func: &mut Function, i: Inst, least: u32, more: i32) -> SmallVec<[Inst; 2]> {
        let mut made: SmallVec<[Inst; 2]> = SmallVec::new();
        let wide = matches!(self.of, Name::Part(..));
        let width = if wide { 2 } else { 1 };
        let base = match least {
            0 => self.base,
            _ => {
                let sum = func.add_value(RegFile::R, width);
                made.push(add(func, self.sum, sum, self.base, least));
                Name::Val(sum)
            }
        };
        let low = if let (true, Name::Val(v)) = (wide, base) { Name::Part(v, 0) } else { base };
        let mut renamed: SmallVec<[(Name, Name); 4]> = smallvec![(self.of, low)];
        for link in &self.chain {
            let mut d = func.insts[*link].clone();
            d.map_uses(|n| renamed.iter().find(|r| r.0 == n).map_or(n, |r| r.1));
            let mut old = None;
            d.for_each_def(|n| old = old.or(n.value()));
            let new = func.add_value(RegFile::R, 1);
            if let Some(old) = old {
                d.map_names(|n| if n == Name::Val(old) { Name::Val(new) } else { n });
                renamed.push((Name::Val(old), Name::Val(new)));
            }
            made.push(func.insts.push(d));
        }
        let mut address = renamed.last().map_or(low, |r| r.1);
        if let (true, Name::Val(v)) = (wide, base) {
            let pair = func.add_value(RegFile::R, 2);
            let mut d = func.insts[i].clone();
            d.operands = [operand(pair), operand(address), operand(Name::Part(v, 1))].into_iter().collect();
            made.push(func.insts.push(d));
            address = Name::Val(pair);
        }
        let sum = add(func, self.sum, self.to, address, more as u32);
        let loc = func.insts[i].loc;
        func.insts[i] = InstData { loc, ..func.insts[sum].clone() };
        made
    }
}

/// A sum like another one.
fn add(func: &mut Function, like: Inst, to: Value, x: Name, number: u32) -> Inst {
    let mut d = func.insts[like].clone();
    if let Some(s) = Iadd::of_mut(&mut d) {
        (*s.d, *s.a, *s.b) = (operand(to), operand(x), Operand::Imm(number));
    } else if let Some(s) = Iadd3::of_mut(&mut d) {
        let zero = operand(Name::Phys(Reg::RZ));
        (*s.d, [*s.a, *s.b, *s.c]) = (operand(to), [operand(x), Operand::Imm(number), zero]);
    }
    func.insts.push(d)
}

/// The instructions of `x ^ (x >> n & mask)`, of which the last one is `i`, in their order, and the least power of two above all bits that
/// change and that say how.
fn exchange(func: &Function, at: &Places, i: Inst, x: Name) -> Option<(SmallVec<[Inst; 3]>, u32)> {
    let other = combined(func, i, 0x3c, |o| (names(o, x)).then_some(()))?.0;
    let second = at[value_of(&other)?]?.0;
    // The mask before the shift, or behind it.
    let (first, mask, amount) = match shifted(func, second) {
        Some((of, amount)) => {
            let first = at[value_of(&of)?]?.0;
            let (word, mask) = combined(func, first, 0xc0, number)?;
            (names(&word, x)).then_some(())?;
            (first, mask >> amount, amount)
        }
        None => {
            let (word, mask) = combined(func, second, 0xc0, number)?;
            let first = at[value_of(&word)?]?.0;
            let (of, amount) = shifted(func, first)?;
            (names(&of, x)).then_some(())?;
            (first, mask & u32::MAX >> amount, amount)
        }
    };
    let bits = 32 - (mask << amount | mask).leading_zeros();
    (amount > 0 && (1..31).contains(&bits)).then(|| (smallvec![first, second, i], 1 << bits))
}

fn names(o: &Operand, x: Name) -> bool {
    matches!(o, Operand::Reg(r) if *r == RegOp::plain(x))
}

fn number(o: &Operand) -> Option<u32> {
    match o {
        Operand::Imm(n) => Some(*n),
        _ => None,
    }
}

/// The operands of an operation on bits, of which `pick` takes one.
fn combined<T>(
    func: &Function,
    i: Inst,
    table: u32,
    pick: impl Fn(&Operand) -> Option<T>,
) -> Option<(Operand, T)> {
    let d = &func.insts[i];
    let s = Lop3::of(d)?;
    let plain = Lop3Mods::of(d).is_some() && d.mods == sass::Mods::of(&[sass::Mod::LUT]) && d.is_unguarded();
    let alone =
        sums::is_pred(s.p, Name::Phys(Reg::PT), false) && sums::is_pred(s.join, Name::Phys(Reg::PT), true);
    if !plain || !alone || *s.table != Operand::Imm(table) || !is_zero(s.c) {
        return None;
    }
    [(s.a, s.b), (s.b, s.a)].into_iter().find_map(|(o, other)| Some((*other, pick(o)?)))
}

/// What is shifted to the right without its sign, and by how much.
fn shifted(func: &Function, i: Inst) -> Option<(Operand, u32)> {
    let d = &func.insts[i];
    let s = Shf::of(d)?;
    let wanted = ShfMods { dir: ShiftDir::R, wrap: false, kind: ShiftType::U32, hi: true };
    let amount = number(s.amount).filter(|n| (1..32).contains(n))?;
    (ShfMods::of(d) == Some(wanted) && d.is_unguarded() && is_zero(s.low)).then_some((*s.high, amount))
}
