//! The shape of the encodings in the instruction table: what `isa/*.isa` says about bits.

use crate::inst::AddrWidth;
use crate::isa::{FORMS, FORMS_OF_CODE, FORMS_OF_OP, Mod, Opcode};
use crate::reg::RegFile;
use crate::target::{SMS, Target};

/// Marks a bit position that a field does not have.
pub(crate) const NONE: u8 = 255;

/// One encoding of one opcode.
pub(crate) struct Form {
    /// Targets that have it: bit i is the i-th entry of [`SMS`].
    pub targets: u16,
    pub op: Opcode,
    /// Bits 0 … 11, and bit 91 as bit 12.
    pub code: u16,
    /// One for each operand slot of the opcode.
    pub fields: &'static [Field],
    /// In spelling order.
    pub groups: &'static [Group],
    /// (first bit, length, value, whether the decoder accepts any value).
    pub fixed: &'static [(u8, u8, u32, bool)],
    /// The values that bits may have, in ascending order.
    pub limits: &'static [(Ranges, &'static [u32])],
    /// Targets on which the instruction goes through a queue, so that it has no `.reuse` flags.
    pub queued: u16,
    /// The slots A, B, C (bits 0, 1, 2) that have a `.reuse` flag.
    pub reuse: u8,
    /// The results set no scoreboard (bits 110 … 112 are 7).
    pub no_write_sb: bool,
    /// The sources set no scoreboard (bits 113 … 115 are 7).
    pub no_read_sb: bool,
    /// It waits for no scoreboard (bits 116 … 121 are 0).
    pub no_wait: bool,
}

/// How one operand is encoded and printed.
pub(crate) struct Field {
    pub kind: FieldKind,
    pub elide: Elide,
    /// The default is the inverted true predicate.
    pub default_not: bool,
    /// The default, for immediates.
    pub default_imm: u32,
    /// Text printed as an operand of its own before this one (`PR`).
    pub before: &'static str,
    /// Separated from the operand before it by a space, not by a comma.
    pub spaced: bool,
    /// Modifiers spelled behind the operand (`.H0_H0`); in [`crate::Mods`] they follow the others.
    pub suffix: Option<BitsGroup>,
}

/// When an operand is left out of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elide {
    Never,
    /// When it has its default value.
    Default,
    /// When the modifier is absent; it then has its default value.
    Without(Mod),
    /// When the modifier is absent, or when it has its default value.
    WithoutOrDefault(Mod),
    Always,
}

/// Bits of source modifiers, [`NONE`] where there are none.
#[derive(Clone, Copy)]
pub(crate) struct SourceBits {
    pub neg: u8,
    pub abs: u8,
    pub not: u8,
    /// Set: the predicate is a uniform one.
    pub uniform: u8,
    /// `.reuse`, in the control field.
    pub reuse: u8,
}

/// Ranges of bits (first, length), least significant range first.
pub(crate) type Ranges = &'static [(u8, u8)];

pub(crate) enum FieldKind {
    /// Not encoded: always the default.
    Absent,
    Reg {
        file: RegFile,
        lo: u8,
        /// Where the number is in two parts: bits of the low one, first bit of the other. Else zero, and how many
        /// registers after the one in the field it is.
        split: (u8, u8),
        /// The bits of the number are inverted (zero is UPT).
        inverted: bool,
        mods: SourceBits,
    },
    Imm {
        bits: Ranges,
        kind: ImmKind,
    },
    Const {
        lo: u8,
        /// A signed byte offset; otherwise a signed multiple of 4.
        signed: bool,
        /// First bit of the uniform register pair that names the bank (`cx[UR4][0x10]`); its offsets are
        /// unsigned.
        bindless: u8,
        index: Option<(RegFile, u8)>,
        mods: SourceBits,
    },
    Addr {
        desc: u8,
        desc_hidden: bool,
        base: u8,
        width: AddrWidthBits,
        uniform: u8,
        offset: Ranges,
        /// The offset is a multiple of this power of two.
        shift: u8,
        /// `gdesc`, `tmem`, `idesc` before the bracket; empty for memory.
        space: &'static str,
        /// The uniform register, or the descriptor where there is none, is the one after that in the field.
        next: bool,
        /// URZ is left out next to a 64-bit base, and without a base where there is an offset.
        hide_zero: bool,
    },
    /// An immediate whose values have names (`2D`).
    Named {
        bits: Ranges,
        names: &'static [(u32, &'static str)],
    },
    Label {
        bits: Ranges,
        /// The field counts units of `1 << shift` bytes.
        shift: u8,
        relative: bool,
    },
    Special {
        lo: u8,
    },
    Scoreboard {
        lo: u8,
    },
    ScoreboardSet {
        lo: u8,
    },
}

/// How an immediate prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImmKind {
    Signed,
    Unsigned,
    /// Low half of a 64-bit number whose high half is all ones.
    Negative,
    F32,
    F64,
    /// A binary16 in the low bits.
    Half,
    /// A bfloat16 in the low bits.
    Bfloat,
    HalfPair,
    BfloatPair,
    /// High half of a 64-bit number, printed together with the low half in the next slot.
    High,
    /// Low half of a 64-bit number.
    Low,
}

/// How the width of an address register is encoded.
#[derive(Clone, Copy)]
pub(crate) enum AddrWidthBits {
    Fixed(AddrWidth),
    /// One bit: set = 64 bits, clear = zero-extended 32 bits.
    Wide(u8),
    /// Two bits: plain, `.X4`, `.X8`, `.X16`.
    Scale(u8),
}

/// Modifiers chosen by the value of some bits.
pub(crate) struct BitsGroup {
    pub bits: Ranges,
    pub values: &'static [(u32, &'static [Mod])],
}

/// What an operand must be for an alias.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    /// RZ (negated or not), or the immediate 0.
    Zero,
    Imm(u32),
    /// A power of two other than 2¹⁶ and 2³¹.
    Shift,
    /// Anything but a uniform register and what it selects.
    Plain,
}

/// Conditions on operands, by slot.
pub(crate) type Conditions = &'static [(usize, Condition)];

/// One place in the spelling of the modifiers.
pub(crate) enum Group {
    Bits(BitsGroup),
    /// Always spelled, no bits.
    Literal(&'static [Mod]),
    /// Spelled when the operands are so (`IMAD.MOV`): first rule that holds.
    Alias(&'static [(Conditions, &'static [Mod])]),
}

/// The bit of `target` in [`Form::targets`].
pub(crate) fn target_bit(target: Target) -> u16 {
    SMS.iter().position(|s| s.sm == target.sm).map_or(0, |i| 1 << i)
}

impl Form {
    /// The first bit of a field whose value in `word` the form does not allow.
    pub fn off_limits(&self, word: u128) -> Option<u8> {
        let out =
            |(bits, values): &&(Ranges, &[u32])| values.binary_search(&(get(word, bits) as u32)).is_err();
        self.limits.iter().find(out).map(|(bits, _)| bits[0].0)
    }
}

impl Target {
    /// Whether it has the instruction, in any form.
    pub fn has(self, op: Opcode) -> bool {
        forms_of_op(op).any(|f| f.targets & target_bit(self) != 0)
    }
}

/// The forms of an opcode, in the order of the table.
pub(crate) fn forms_of_op(op: Opcode) -> impl Iterator<Item = &'static Form> + Clone {
    FORMS_OF_OP[op as usize].iter().map(|i| &FORMS[usize::from(*i)])
}

/// The forms that words with a code may have, in the order of the table.
pub(crate) fn forms_of_code(code: u16) -> impl Iterator<Item = &'static Form> + Clone {
    let forms = match FORMS_OF_CODE.binary_search_by_key(&code, |(c, _)| *c) {
        Ok(at) => FORMS_OF_CODE[at].1,
        Err(_) => &[],
    };
    forms.iter().map(|i| &FORMS[usize::from(*i)])
}

/// Reads ranges of a word as one number.
pub(crate) fn get(word: u128, bits: Ranges) -> u64 {
    let mut at = 0;
    bits.iter().fold(0, |value, &(lo, len)| {
        let part = ((word >> lo) as u64) & mask(len);
        let value = value | part << at;
        at += len;
        value
    })
}

/// Places a number into ranges of a word. The number must fit.
pub(crate) fn put(bits: Ranges, value: u64) -> u128 {
    let mut at = 0;
    bits.iter().fold(0, |word, &(lo, len)| {
        let word = word | u128::from((value >> at) & mask(len)) << lo;
        at += len;
        word
    })
}

/// Number of bits in ranges.
pub(crate) fn length(bits: Ranges) -> u32 {
    bits.iter().map(|&(_, len)| u32::from(len)).sum()
}

fn mask(len: u8) -> u64 {
    if len >= 64 { u64::MAX } else { (1 << len) - 1 }
}

/// Sign-extends the low `len` bits.
pub(crate) fn sign_extend(value: u64, len: u32) -> i64 {
    ((value << (64 - len)) as i64) >> (64 - len)
}
