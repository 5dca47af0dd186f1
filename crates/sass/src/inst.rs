//! Instructions, operands and modifiers, generic over what names a register (`R`: physical here, virtual in
//! Ori) and a branch target (`L`: byte address here, block in Ori).

use crate::memory::MemorySpace;
use crate::{Control, Mod, Opcode, Reg, RegFile, SpecialReg};
use smallvec::SmallVec;

/// Modifiers in the order in which they are spelled after the mnemonic. Only non-default ones are present,
/// so two instructions that mean the same compare equal.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub struct Mods(pub SmallVec<[Mod; 6]>);

// `SmallVec` clones one by one; these are copied as a whole.
impl Clone for Mods {
    fn clone(&self) -> Mods {
        Mods::of(&self.0)
    }
}

impl Mods {
    /// No modifiers.
    pub fn none() -> Mods {
        Mods::default()
    }
    /// These modifiers, in this order.
    pub fn of(mods: &[Mod]) -> Mods {
        Mods(SmallVec::from_slice(mods))
    }
    /// Whether `m` is among them.
    pub fn has(&self, m: Mod) -> bool {
        self.0.contains(&m)
    }
    /// Appends `m`.
    pub fn push(&mut self, m: Mod) {
        self.0.push(m);
    }
    /// Takes `m` away.
    pub fn remove(&mut self, m: Mod) {
        self.0.retain(|x| *x != m);
    }
    /// In spelling order.
    pub fn iter(&self) -> impl Iterator<Item = Mod> + '_ {
        self.0.iter().copied()
    }
}

/// A register operand with its source modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegOp<R> {
    /// The register (the first one, for a tuple).
    pub reg: R,
    /// Arithmetic negation `-R`.
    pub neg: bool,
    /// Absolute value `|R|` (applied before `neg`).
    pub abs: bool,
    /// Complement: `~R`, `!P`.
    pub not: bool,
    /// Operand-reuse hint (`.reuse`).
    pub reuse: bool,
}

impl<R> RegOp<R> {
    /// The plain register.
    pub const fn plain(reg: R) -> RegOp<R> {
        RegOp { reg, neg: false, abs: false, not: false, reuse: false }
    }
}

/// How an address register is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddrWidth {
    /// 32-bit register, printed plain: `[R2]`.
    R32,
    /// 64-bit register pair: `[R2.64]` (or `.U64` by context).
    R64,
    /// Zero-extended 32-bit register next to a 64-bit uniform base: `[R2.U32+UR4]`.
    U32,
    /// Scaled index of shared memory: `[R2.X4]`, `.X8`, `.X16`.
    X4,
    /// `.X8`
    X8,
    /// `.X16`
    X16,
}

/// One operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand<R = Reg, L = i64> {
    /// A register of any file.
    Reg(RegOp<R>),
    /// An immediate as the hardware sees it: an integer, the bits of a binary32, the high 32 bits of a
    /// binary64, a packed half pair, a lookup table; the instruction says which.
    Imm(u32),
    /// Constant memory: `c[bank][index+offset]`, with source modifiers.
    Const {
        /// Bank number, or a uniform register pair that holds a descriptor (`cx[UR4][..]`).
        bank: ConstBank<R>,
        /// Index register (LDC only).
        index: Option<R>,
        /// Byte offset.
        offset: i32,
        /// `-c[..]`
        neg: bool,
        /// `|c[..]|`
        abs: bool,
        /// `~c[..]`
        not: bool,
    },
    /// A memory address `desc[UR4][R2.64+UR8+0x10]`; absent parts are `None` and 0.
    Addr {
        /// Uniform register pair with the memory descriptor.
        desc: Option<R>,
        /// Base register; `None` is RZ.
        base: Option<R>,
        /// How `base` is read.
        width: AddrWidth,
        /// Uniform register added to the address.
        uniform: Option<R>,
        /// Signed byte offset.
        offset: i32,
    },
    /// A branch target.
    Label(L),
    /// A special register (`SR_TID.X`).
    Special(SpecialReg),
    /// A scoreboard named in an operand (`SB0` of DEPBAR).
    Scoreboard(u8),
    /// A set of scoreboards (`{3,2}` of DEPBAR), one bit each.
    ScoreboardSet(u8),
}

/// What selects the constant bank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConstBank<R> {
    /// `c[0x0]` … `c[0x1f]`.
    Index(u8),
    /// `cx[UR4]`: a bindless bank.
    Bindless(R),
}

impl<R, L> Operand<R, L> {
    /// A plain register operand.
    pub const fn reg(reg: R) -> Self {
        Operand::Reg(RegOp::plain(reg))
    }
    /// `c[bank][offset]`.
    pub const fn constant(bank: u8, offset: i32) -> Self {
        Operand::Const {
            bank: ConstBank::Index(bank),
            index: None,
            offset,
            neg: false,
            abs: false,
            not: false,
        }
    }
    /// The register operand, if it is one.
    pub fn as_reg(&self) -> Option<&RegOp<R>> {
        match self {
            Operand::Reg(r) => Some(r),
            _ => None,
        }
    }
}

impl<R: Copy, L: Copy> Operand<R, L> {
    /// The same with other registers and another branch target.
    pub fn map<S, M>(&self, mut reg: impl FnMut(R) -> S, label: impl FnOnce(L) -> M) -> Operand<S, M> {
        match *self {
            Operand::Reg(RegOp { reg: r, neg, abs, not, reuse }) => {
                Operand::Reg(RegOp { reg: reg(r), neg, abs, not, reuse })
            }
            Operand::Imm(n) => Operand::Imm(n),
            Operand::Const { bank, index, offset, neg, abs, not } => Operand::Const {
                bank: match bank {
                    ConstBank::Index(n) => ConstBank::Index(n),
                    ConstBank::Bindless(r) => ConstBank::Bindless(reg(r)),
                },
                index: index.map(reg),
                offset,
                neg,
                abs,
                not,
            },
            Operand::Addr { desc, base, width, uniform, offset } => Operand::Addr {
                desc: desc.map(&mut reg),
                base: base.map(&mut reg),
                width,
                uniform: uniform.map(reg),
                offset,
            },
            Operand::Label(l) => Operand::Label(label(l)),
            Operand::Special(s) => Operand::Special(s),
            Operand::Scoreboard(n) => Operand::Scoreboard(n),
            Operand::ScoreboardSet(n) => Operand::ScoreboardSet(n),
        }
    }
}

/// The execution guard `@P0`, `@!P0`, `@UP0`; PT when absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guard<R = Reg> {
    /// The predicate.
    pub pred: R,
    /// Execute where it is false.
    pub not: bool,
}

impl Guard<Reg> {
    /// Always execute.
    pub const TRUE: Guard<Reg> = Guard { pred: Reg::PT, not: false };
}

/// One machine instruction: what a line of `nvdisasm` says, plus the control field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Inst {
    /// Execution guard.
    pub guard: Guard<Reg>,
    /// Mnemonic.
    pub op: Opcode,
    /// Modifiers, in spelling order.
    pub mods: Mods,
    /// Operands in the order of the opcode's slots ([`Opcode::slots`]): every slot is present, those that
    /// the printer leaves out (PT, RZ) too.
    pub operands: SmallVec<[Operand; 6]>,
    /// Control field.
    pub ctrl: Control,
}

impl Inst {
    /// Whether operand `at` is an address of 32 bits, of shared or local memory: its uniform part is one register, read
    /// at another time than those of global addresses. Where mbarriers are changed by SYNCS.EXCH and the like ptxas was not seen to have it so soon.
    pub fn has_near_address(&self, at: usize) -> bool {
        if matches!(self.op, Opcode::SYNCS_ARRIVE | Opcode::SYNCS_PHASECHK) {
            return true;
        }
        let nth = self.operands[..at].iter().filter(|o| matches!(o, Operand::Addr { .. })).count();
        matches!(self.op.info().space(nth), Some(MemorySpace::Shared | MemorySpace::Local))
    }
}

/// What an operand slot does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Written.
    Def,
    /// Read.
    Use,
}

/// One operand slot of an opcode, from the instruction table.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Read or written.
    pub role: Role,
    /// What the slot holds.
    pub kind: SlotKind,
    /// Registers that the slot spans.
    pub width: Width,
}

/// What an operand slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// A register of this file only.
    Reg(RegFile),
    /// A general source: R, UR, immediate or constant, as the forms of the target allow.
    Source,
    /// A memory address.
    Addr,
    /// An immediate only.
    Imm,
    /// Constant memory only (LDC).
    Const,
    /// A branch target.
    Label,
    /// A special register.
    Special,
    /// DEPBAR's scoreboard or scoreboard set.
    Scoreboard,
}

/// How many 32-bit registers a slot spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// Always this many.
    Fixed(u8),
    /// 1 by default; the first of these modifiers that is present sets another.
    ByMod(&'static [(ModAt, Mod, u8)]),
    /// A thread's part of 64 rows and as many columns as the shape among the modifiers says.
    Accumulator,
    /// What a thread has of tensor memory, by the shape and the count among the modifiers.
    TensorMemory,
}

/// Where among the modifiers a width's modifier must stand: `F2F.F64.F32` widens its result,
/// `F2F.F32.F64` its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModAt {
    /// Anywhere.
    Any,
    /// A floating-point format, before another one.
    First,
    /// The last floating-point format.
    Last,
    /// No condition: the width when no other entry applies.
    Otherwise,
}
