//! What instructions compute, of numbers: for whoever knows their operands. The simulator has its own, as it is what these are
//! held against.

use crate::isa::{Mod, Opcode};
use crate::ops::{Bool, Iadd3, Icmp, ShfMods, ShiftDir, ShiftType, Uiadd3};
use std::cmp::Ordering;

/// A term of a sum: a word, which may be taken with a minus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// The word in the register.
    pub word: u32,
    /// Whether there is a minus.
    pub minus: bool,
}

/// IADD3: the sum, and what it carries in all. A minus is a complement and one more, which may carry.
pub fn iadd3(terms: [Term; 3], carries: u32) -> (u32, u32) {
    let term = |t: Term| match t.minus {
        false => u64::from(t.word),
        true => u64::from(!t.word) + 1,
    };
    let sum: u64 = terms.into_iter().map(term).sum::<u64>() + u64::from(carries);
    (sum as u32, (sum >> 32) as u32)
}

/// The places of the terms of IADD3 and UIADD3: of the first two at most one may have a sign. An H200 takes an instruction with
/// two for an illegal one, whatever the third has (`IADD3 R, R, -R, -R` it executes); ptxas 13.0.88 has no such, and Mesa's assembler
/// asserts it.
pub fn signed_terms(op: Opcode) -> Option<[usize; 3]> {
    match op {
        Opcode::IADD3 => Some([Iadd3::A, Iadd3::B, Iadd3::C]),
        Opcode::UIADD3 => Some([Uiadd3::A, Uiadd3::B, Uiadd3::C]),
        _ => None,
    }
}

/// LOP3: each bit of the result is the bit of the table that those of the inputs number.
pub fn lop3(table: u32, inputs: [u32; 3]) -> u32 {
    let [a, b, c] = inputs;
    let pick = |x: u32, row: u32, bit: u32| if row >> bit & 1 != 0 { x } else { !x };
    let rows = (0..8u32).filter(|row| table >> row & 1 != 0);
    rows.fold(0, |r, row| r | pick(a, row, 2) & pick(b, row, 1) & pick(c, row, 0))
}

/// PLOP3, one of its results.
pub fn plop3(table: u32, inputs: [bool; 3]) -> bool {
    let row = inputs.into_iter().fold(0, |row, bit| row << 1 | u32::from(bit));
    table >> row & 1 != 0
}

/// How far SHF shifts.
pub fn shift_amount(mods: ShfMods, amount: u32) -> u32 {
    let bits = match mods.kind {
        ShiftType::U32 | ShiftType::S32 => 32,
        ShiftType::U64 | ShiftType::S64 => 64,
    };
    if mods.wrap { amount & (bits - 1) } else { amount.min(bits) }
}

/// SHF: two words are shifted, of which one is the result.
pub fn shf(mods: ShfMods, low: u32, amount: u32, high: u32) -> u32 {
    let amount = shift_amount(mods, amount);
    let signed = matches!(mods.kind, ShiftType::S32 | ShiftType::S64);
    let x = u64::from(high) << 32 | u64::from(low);
    let shifted = match (mods.dir, signed) {
        (ShiftDir::L, _) => x.checked_shl(amount).unwrap_or(0),
        (ShiftDir::R, true) => (x as i64 >> amount.min(63)) as u64,
        (ShiftDir::R, false) => x.checked_shr(amount).unwrap_or(0),
    };
    if mods.hi { (shifted >> 32) as u32 } else { shifted as u32 }
}

/// PRMT without a mode: four bytes of eight, or their signs.
pub fn prmt(a: u32, selector: u32, b: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |r, k| {
        let choice = selector >> (4 * k) & 0xf;
        let byte = (bytes >> (8 * (choice & 7))) as u8;
        let byte = if choice & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        r | u32::from(byte) << (8 * k)
    })
}

/// IMNMX and VIMNMX of words: the smaller one, or the greater.
pub fn extremum(unsigned: bool, a: u32, b: u32, least: bool) -> u32 {
    if order(unsigned, a, b).is_lt() == least { a } else { b }
}

/// How two words compare.
pub fn order(unsigned: bool, a: u32, b: u32) -> Ordering {
    if unsigned { a.cmp(&b) } else { (a as i32).cmp(&(b as i32)) }
}

/// Whether two integers that compare so are what a comparison asks for.
pub fn icmp(cmp: Icmp, order: Ordering) -> bool {
    match cmp {
        Icmp::LT => order.is_lt(),
        Icmp::LE => order.is_le(),
        Icmp::GT => order.is_gt(),
        Icmp::GE => order.is_ge(),
        Icmp::EQ => order.is_eq(),
        Icmp::NE => order.is_ne(),
        Icmp::F => false,
        Icmp::T => true,
    }
}

/// Whether two floating-point numbers that compare so, or not at all, are what a comparison asks for; `None` of what is no
/// comparison.
pub fn fcmp(cmp: Mod, order: Option<Ordering>) -> Option<bool> {
    let unordered = order.is_none();
    let is = |f: fn(Ordering) -> bool| order.is_some_and(f);
    Some(match cmp {
        Mod::LT => is(Ordering::is_lt),
        Mod::LE => is(Ordering::is_le),
        Mod::GT => is(Ordering::is_gt),
        Mod::GE => is(Ordering::is_ge),
        Mod::EQ => is(Ordering::is_eq),
        Mod::NE => is(Ordering::is_ne),
        Mod::LTU => unordered || is(Ordering::is_lt),
        Mod::LEU => unordered || is(Ordering::is_le),
        Mod::GTU => unordered || is(Ordering::is_gt),
        Mod::GEU => unordered || is(Ordering::is_ge),
        Mod::EQU => unordered || is(Ordering::is_eq),
        Mod::NEU => unordered || is(Ordering::is_ne),
        Mod::NUM => !unordered,
        Mod::NAN => unordered,
        _ => return None,
    })
}

/// A comparison's result with the predicate behind it.
pub fn join(how: Bool, held: bool, with: bool) -> bool {
    match how {
        Bool::AND => held & with,
        Bool::OR => held | with,
        Bool::XOR => held ^ with,
    }
}

/// SGXT: the lower `n` bits with their sign, or without.
pub fn sgxt(unsigned: bool, x: u32, n: u32) -> u32 {
    let n = n.min(32);
    let up = x.checked_shl(32 - n).unwrap_or(0);
    if unsigned { up.checked_shr(32 - n).unwrap_or(0) } else { (i64::from(up as i32) >> (32 - n)) as u32 }
}

/// BMSK: `n` ones from bit `at` on.
pub fn bmsk(at: u32, n: u32) -> u32 {
    (((1u64 << n.min(32)) - 1) << at.min(32)) as u32
}

/// FLO: the number of the highest bit that is not the sign, or (SH) by how much to shift it to the top; -1 if there is none.
pub fn flo(unsigned: bool, shift: bool, x: u32) -> u32 {
    let x = if !unsigned && (x as i32) < 0 { !x } else { x };
    match x.leading_zeros() {
        32 => !0,
        zeros if shift => zeros,
        zeros => 31 - zeros,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(word: u32) -> Term {
        Term { word, minus: false }
    }

    #[test]
    fn sums() {
        assert_eq!(iadd3([plain(u32::MAX), plain(1), plain(0)], 0), (0, 1));
        let minus = |word| Term { word, minus: true };
        assert_eq!(iadd3([plain(5), minus(3), plain(0)], 0), (2, 1));
        assert_eq!(iadd3([plain(3), minus(5), plain(0)], 0), (u32::MAX - 1, 0));
        assert_eq!(iadd3([plain(0), minus(0), plain(0)], 0), (0, 1), "-0 carries");
        assert_eq!(iadd3([plain(u32::MAX); 3], 1), (u32::MAX - 1, 2));
    }

    #[test]
    fn bits() {
        let shf =
            |dir, kind, hi, low, n, high| super::shf(ShfMods { dir, wrap: false, kind, hi }, low, n, high);
        assert_eq!(shf(ShiftDir::L, ShiftType::U32, false, 3, 4, 0), 0x30);
        assert_eq!(shf(ShiftDir::L, ShiftType::U32, false, 3, 99, 0), 0);
        assert_eq!(shf(ShiftDir::R, ShiftType::S32, true, 0, 99, 0x8000_0000), u32::MAX);
        assert_eq!(shf(ShiftDir::R, ShiftType::U64, false, 7, 40, 0x1234), 0x12);
        assert_eq!(lop3(0x96, [12, 10, 6]), 12 ^ 10 ^ 6);
        assert_eq!((plop3(0x80, [true; 3]), plop3(0x80, [true, true, false])), (true, false));
        assert_eq!(prmt(0x4433_8211, 0x0091, 7), 0x1111_ff82);
        assert_eq!((sgxt(false, 0xff, 8), sgxt(true, 0xff, 8), sgxt(false, 5, 0)), (u32::MAX, 0xff, 0));
        assert_eq!((bmsk(4, 4), bmsk(0, 40), bmsk(32, 3)), (0xf0, u32::MAX, 0));
        assert_eq!(
            (flo(true, false, 0), flo(true, false, 0x80), flo(false, false, u32::MAX - 4)),
            (u32::MAX, 7, 2)
        );
        assert_eq!(
            (flo(true, true, 0), flo(true, true, 0x80), flo(false, true, u32::MAX - 4)),
            (u32::MAX, 24, 29)
        );
    }

    #[test]
    fn comparisons() {
        for (compare, less, same) in [(Mod::LT, true, false), (Mod::GEU, false, true), (Mod::NUM, true, true)]
        {
            for (a, b, held) in [(1.0, 2.0, less), (-0.0, 0.0, same)] {
                let order = a.partial_cmp(&b);
                assert_eq!(fcmp(compare, order), Some(held), "{compare:?} {a} {b}");
            }
        }
        assert_eq!(
            (fcmp(Mod::LTU, None), fcmp(Mod::NE, None), fcmp(Mod::NAN, None)),
            (Some(true), Some(false), Some(true))
        );
    }
}
