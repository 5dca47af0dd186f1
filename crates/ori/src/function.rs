//! Functions, blocks, values and instructions.

use crate::abi::Convention;
pub use crate::name::{Guard, Name, Operand, Operands, Register, for_each_name, map_operand, operand};
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use sass::memory::{MemoryAccess, MemoryEffects, MemorySpace};
use sass::ops::Shfl;
use sass::{
    Changes, ConstBank, Effect, Lanes, Mod, Mods, Opcode, Reg, RegFile, RegOp, Role, Scope, SlotKind, Target,
};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use thin_vec::{ThinVec, thin_vec};

/// A virtual register: in SSA, one definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);
entity_impl!(Value, "v");

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(u32);
entity_impl!(Inst, "i");

/// A basic block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u32);
entity_impl!(Block, "block");

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueData {
    /// Register file.
    pub file: RegFile,
    /// Number of consecutive registers; their first index is a multiple of the next power of two.
    pub width: u8,
}

/// Operations that no single SASS instruction does; they are gone before scheduling.
/// Slots: the first [`Macro::defs`] operands are written, the rest read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Macro {
    /// `dst = src`, any file to any file of the same width; an immediate or constant source of 1 register.
    Copy,
    /// `dst = {part0, part1, …}`: a tuple from single registers (or tuples that add up to its width),
    /// immediates or constants.
    Collect,
    /// `dst = undefined`.
    Undef,
    /// `dst = src`, where `src` is written by an instruction that is done only here (a product of a warp group, after the
    /// wait for it): `src` may not be read otherwise. It stays where it is.
    Settle,
    /// Parallel copy, made by the allocator: n destinations, then n sources.
    ParCopy(u16),
    /// `dst = physical register`: an argument or result of a call, where [`crate::abi`] puts it.
    FromReg,
    /// `physical register = src`.
    ToReg,
    /// The address to which the next call of the block returns, into [`crate::abi::RETURN_ADDRESS`].
    ReturnAddress,
    /// `call n, [address,] registers…`: calls [`Function::callees`]`[n]`, at `address` (2 registers) if that
    /// is indirect; the registers hold arguments. Everything that [`crate::abi::clobbers`] names is lost.
    Call,
    /// `dst = ` the stack pointer as it was when the function was entered.
    FrameTop,
    /// `dst = symbol n`: the part of an address that [`Function::symbols`]`[n]` says, known when objects are linked.
    Symbol,
    /// Reads registers at the end of a function: results, for the caller.
    Keep,
    /// `stack pointer = src`, for a call below memory that the code has allocated. Everywhere else R1 means the
    /// frame, which a function with this macro keeps in [`crate::abi::FRAME_POINTER`].
    SetStack,
    /// `n, words, value`: from here on register `n` of the PTX, of so many words, has this value, for debuggers; RZ where that
    /// is not known. No instruction stands for it.
    Holds,
}

impl Macro {
    /// Number of leading operands that are written.
    pub fn defs(self) -> usize {
        match self {
            Macro::Copy
            | Macro::Collect
            | Macro::Undef
            | Macro::Settle
            | Macro::FromReg
            | Macro::ToReg
            | Macro::FrameTop
            | Macro::Symbol => 1,
            Macro::ParCopy(n) => n as usize,
            Macro::ReturnAddress => 2,
            Macro::Call | Macro::Keep | Macro::SetStack | Macro::Holds => 0,
        }
    }
    /// Whether only the allocator's copies stand for it, which become moves.
    pub fn is_copy(self) -> bool {
        matches!(self, Macro::Copy | Macro::Collect | Macro::Undef | Macro::Settle | Macro::ParCopy(_))
    }
    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Macro::Copy => "copy",
            Macro::Collect => "collect",
            Macro::Undef => "undef",
            Macro::Settle => "settle",
            Macro::ParCopy(_) => "parcopy",
            Macro::FromReg => "fromreg",
            Macro::ToReg => "toreg",
            Macro::ReturnAddress => "returnaddress",
            Macro::Call => "call",
            Macro::FrameTop => "frametop",
            Macro::Symbol => "symbol",
            Macro::Keep => "keepregs",
            Macro::SetStack => "setstack",
            Macro::Holds => "holds",
        }
    }
}

/// Whether the opcode may have `.STRONG` in Ori although no SASS instruction of that name has: accesses of shared
/// and local memory that keep their place among all accesses (volatile, relaxed, acquiring, releasing ones). The
/// backend takes the modifier away and remembers it.
pub fn order_is_ours(op: Opcode) -> bool {
    matches!(op, Opcode::LDS | Opcode::STS | Opcode::LDL | Opcode::STL)
}

/// The modifier of a load or store in Ori that is a lane's part of an access to a matrix (`wmma`): what follows may access
/// what another lane's part does, so its own address does not say what it overlaps. The backend takes the modifier away and
/// remembers it.
pub fn access_of_lanes(op: Opcode, mods: &Mods) -> bool {
    mods.has(Mod::COLLECTIVE) && matches!(op.info().accesses, MemoryEffects::Accesses(_))
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A SASS instruction.
    Sass(Opcode),
    /// A macro-operation.
    Macro(Macro),
}

/// Source position: the line of the PTX statement, 0 if none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Loc(pub u32);

/// An instruction's content.
#[derive(Clone, PartialEq, Debug)]
pub struct InstData<R = Name> {
    /// Execution guard; PT when always executed.
    pub guard: Guard<R>,
    /// Operation.
    pub op: Op,
    /// Modifiers of a SASS operation.
    pub mods: Mods,
    /// Operands in slot order, all present.
    pub operands: Operands<R>,
    /// For a guarded instruction in SSA: per written operand, in order, what it keeps where the guard is
    /// false. Empty if the guard is PT or nothing is written.
    pub kept: ThinVec<R>,
    /// Source position.
    pub loc: Loc,
}

// A function has many; they are copied with it.
const _: () = assert!(size_of::<InstData>() <= 96);

/// The first operand that a macro writes, if there is one, and those that it reads.
pub type MacroOperands<'d, R> = (Option<&'d Operand<R>>, &'d [Operand<R>]);

/// Role and shape of one operand of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotInfo {
    /// Written, read or both.
    pub role: Role,
    /// Registers spanned if the operand is a register.
    pub width: u8,
}

impl<R: Register> sass::Instruction for InstData<R> {
    type Operand = Operand<R>;
    fn sass(&self) -> Option<Opcode> {
        self.opcode()
    }
    fn modifiers(&self) -> &Mods {
        &self.mods
    }
    fn operands(&self) -> &[Operand<R>] {
        &self.operands
    }
    fn operands_mut(&mut self) -> &mut [Operand<R>] {
        &mut self.operands
    }
}

impl<R: Register> InstData<R> {
    /// Where a copy goes and what it copies, if it is one ([`Macro::Copy`]).
    pub fn copied(&self) -> Option<(&Operand<R>, &Operand<R>)> {
        match (self.op, &self.operands[..]) {
            (Op::Macro(Macro::Copy), [to, from]) => Some((to, from)),
            _ => None,
        }
    }
    /// What is collected and of which parts, if it is a [`Macro::Collect`].
    pub fn collected(&self) -> Option<(&Operand<R>, &[Operand<R>])> {
        match (self.op, &self.operands[..]) {
            (Op::Macro(Macro::Collect), [to, parts @ ..]) => Some((to, parts)),
            _ => None,
        }
    }
    /// The number of what it calls, if it is a [`Macro::Call`].
    pub fn callee(&self) -> Option<u32> {
        match (self.op, &self.operands[..]) {
            (Op::Macro(Macro::Call), [Operand::Imm(n), ..]) => Some(*n),
            _ => None,
        }
    }
    /// What a [`Macro::Call`] is given: the address of an indirect one, then registers.
    pub fn call_arguments(&self) -> &[Operand<R>] {
        match (self.op, &self.operands[..]) {
            (Op::Macro(Macro::Call), [_, arguments @ ..]) => arguments,
            _ => &[],
        }
    }
    /// The first operand that a macro writes, and those that it reads.
    pub fn macro_operands(&self) -> Option<MacroOperands<'_, R>> {
        let Op::Macro(m) = self.op else { return None };
        let (written, read) = self.operands.split_at_checked(m.defs())?;
        Some((written.first(), read))
    }
    /// Role and width of operand `index`.
    #[inline]
    pub fn slot(&self, index: usize, values: &PrimaryMap<Value, ValueData>) -> SlotInfo {
        match self.op {
            Op::Sass(op) => SlotInfo { role: op.slots()[index].role, width: op.width(index, &self.mods) },
            Op::Macro(m) => SlotInfo {
                role: if index < m.defs() { Role::Def } else { Role::Use },
                width: match self.operands[index].as_reg().map(|r| r.reg.into()) {
                    Some(Name::Val(v)) => values[v].width,
                    _ => 1,
                },
            },
        }
    }
    /// Whether operand `index` is written and not read.
    #[inline]
    pub fn is_only_def(&self, index: usize) -> bool {
        match self.op {
            Op::Sass(op) => op.only_written() >> index & 1 != 0,
            Op::Macro(m) => index < m.defs(),
        }
    }
    /// Whether operand `index` is written.
    #[inline]
    pub fn is_def(&self, index: usize) -> bool {
        match self.op {
            Op::Sass(op) => op.written() >> index & 1 != 0,
            Op::Macro(m) => index < m.defs(),
        }
    }
    /// The SASS opcode, if it is one.
    pub fn opcode(&self) -> Option<Opcode> {
        match self.op {
            Op::Sass(op) => Some(op),
            Op::Macro(_) => None,
        }
    }
    /// Whether it is always executed.
    pub fn is_unguarded(&self) -> bool {
        !self.guard.not && self.guard.pred.into() == Name::Phys(Reg::PT)
    }
    /// Calls `f` for every name written.
    pub fn for_each_def(&self, mut f: impl FnMut(R)) {
        // Most are the first operands.
        let (first, others) = match self.op {
            Op::Sass(op) => (0, op.written()),
            Op::Macro(m) => (m.defs(), 0),
        };
        let end = first.max((u16::BITS - others.leading_zeros()) as usize);
        for (i, operand) in self.operands.iter().enumerate().take(end) {
            if let Operand::Reg(r) = operand
                && (i < first || others >> i & 1 != 0)
            {
                f(r.reg);
            }
        }
    }
    /// Calls `f` for every name read: guard, sources, address parts, kept values, read-write operands.
    pub fn for_each_use(&self, mut f: impl FnMut(R)) {
        f(self.guard.pred);
        let (first, others) = match self.op {
            Op::Sass(op) => (0, op.only_written()),
            Op::Macro(m) => (m.defs(), 0),
        };
        for (i, operand) in self.operands.iter().enumerate().skip(first) {
            if others.checked_shr(i as u32).unwrap_or(0) & 1 == 0 {
                for_each_name(operand, &mut f);
            }
        }
        self.kept.iter().for_each(|k| f(*k));
    }
    /// Rewrites every name, written and read.
    pub fn map_names(&mut self, mut f: impl FnMut(R) -> R) {
        self.guard.pred = f(self.guard.pred);
        for operand in &mut self.operands {
            map_operand(operand, &mut f);
        }
        for k in &mut self.kept {
            *k = f(*k);
        }
    }
    /// Rewrites every name read (not those written), guard and kept values included.
    pub fn map_uses(&mut self, mut f: impl FnMut(R) -> R) {
        self.guard.pred = f(self.guard.pred);
        for i in 0..self.operands.len() {
            let written = self.is_def(i);
            if !written {
                map_operand(&mut self.operands[i], &mut f);
            }
        }
        for k in &mut self.kept {
            *k = f(*k);
        }
    }
}

impl InstData {
    /// The parts alone, for changing them.
    pub fn collected_mut(&mut self) -> Option<&mut [Operand]> {
        match (self.op, &mut self.operands[..]) {
            (Op::Macro(Macro::Collect), [_, parts @ ..]) => Some(parts),
            _ => None,
        }
    }
    /// Makes it a copy, under the guard that it has.
    pub fn become_copy(&mut self, to: Operand, from: Operand) {
        self.op = Op::Macro(Macro::Copy);
        self.mods = Mods::none();
        self.operands = thin_vec![to, from];
    }
    /// Whether the instruction only computes its results from its operands: two of them with the same operands are
    /// interchangeable wherever both are executed, and one without users can go. False for memory, control,
    /// synchronization, and everything that depends on which lanes are active.
    pub fn is_pure(&self) -> bool {
        match self.op {
            Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect | Macro::Undef | Macro::Symbol),
            Op::Sass(op) => {
                let lasts = |o: &Operand| match o {
                    Operand::Special(s) => s.info().changes == Changes::Never,
                    _ => true,
                };
                op.info().is_computation() && self.operands.iter().all(lasts)
            }
        }
    }
    /// Whether each lane does it by itself. What looks at other lanes, of all of the warp or of those that are together, counts on them: it may not go
    /// to where fewer of them, or others, come by.
    pub fn is_of_each_lane(&self) -> bool {
        self.opcode().is_none_or(|op| op.info().lanes == Lanes::Own)
    }
    /// Whether it may also be executed where the program does not: pure, and no load from a place in a constant bank that a register
    /// names, which may lie behind the bank's end. ptxas 13.0.88 has such loads under the guard of what they belong to (docs/optimizer.md).
    pub fn may_run_needlessly(&self) -> bool {
        let anywhere = |o: &Operand| {
            matches!(
                o,
                Operand::Const { index: Some(_), .. } | Operand::Const { bank: ConstBank::Bindless(_), .. }
            )
        };
        self.is_pure() && !self.operands.iter().any(anywhere)
    }
    /// Whether all lanes get the same results if the operands are the same in all.
    pub fn follows_operands(&self) -> bool {
        let alike = |o: &Operand| match o {
            Operand::Special(s) => s.info().scope == Scope::Block,
            _ => {
                let mut physical = false;
                for_each_name(o, |n| physical |= matches!(n, Name::Phys(r) if !r.is_zero()));
                !physical
            }
        };
        let computes = match self.op {
            Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect | Macro::Settle),
            Op::Sass(op) => {
                let info = op.info();
                let follows = matches!(info.lanes, Lanes::Own | Lanes::Chosen);
                // Lanes that ask one barrier together are told the same: ptxas takes no lanes to be apart behind such a question.
                op == Opcode::SYNCS_PHASECHK
                    || self.loads_for_all()
                    || info.effect == Effect::Pure && follows && !info.has_hidden_predicates()
            }
        };
        computes && self.operands.iter().all(alike)
    }
    /// Whether all lanes that execute it together get the same results, whatever its operands are: a shuffle in which all read one lane.
    pub fn gives_all_the_same(&self) -> bool {
        let first = |o: &Operand| {
            matches!(o, Operand::Imm(n) if *n < WARP)
                || matches!(o, Operand::Reg(r) if *r == RegOp::plain(Name::Phys(Reg::RZ)))
        };
        self.shuffles_from().is_some_and(first)
    }
    /// The lane that all lanes which execute a shuffle together read, if they have the same number there.
    pub fn shuffles_from(&self) -> Option<&Operand> {
        // One segment of all lanes, up to the last one.
        let whole = |o: &Operand| *o == Operand::Imm(WARP - 1);
        let by_number = self.mods == Mods::of(&[Mod::IDX]) && self.is_unguarded();
        Shfl::of(self).filter(|s| by_number && whole(s.clamp)).map(|s| s.lane)
    }
    /// Whether it loads what no other thread changes meanwhile from memory that all lanes share, so that lanes which ask for one place get one
    /// value. ptxas 13.0.88 has no region around branches on such, on any target (docs/convergence.md).
    fn loads_for_all(&self) -> bool {
        let Op::Sass(op) = self.op else { return false };
        let info = op.info();
        let shared = |a: &MemoryAccess| matches!(a.space, MemorySpace::Global | MemorySpace::Shared);
        let weak = !self.mods.has(Mod::STRONG) && !self.mods.has(Mod::MMIO);
        weak && info.is_plain_load()
            && matches!(info.accesses, MemoryEffects::Accesses(all) if all.iter().all(shared))
    }
    /// Whether it can go when nobody reads its results although it isn't pure: a load that is neither volatile nor
    /// synchronizing, of textures, too, a shuffle, a vote or an election (WARPSYNC is what brings its lanes together, and stays).
    pub fn is_removable(&self) -> bool {
        // A load that never runs is there on purpose: it keeps others in order.
        let never = self.guard == Guard { pred: Name::Phys(Reg::PT), not: true };
        let load = matches!(self.op, Op::Sass(op) if op.info().is_plain_load() || op.info().accesses == MemoryEffects::ReadOnly);
        load && !never && !self.mods.has(Mod::STRONG) && !self.mods.has(Mod::MMIO)
    }
    /// Whether it finds something out together with other lanes, and does nothing else: it can go where nobody needs that, here
    /// or in a lane that meets it elsewhere ([`crate::meeting::counted_on`]).
    pub fn only_agrees(&self) -> bool {
        matches!(self.op, Op::Sass(Opcode::SHFL | Opcode::VOTE | Opcode::VOTEU | Opcode::ELECT))
    }
}

/// Lanes of a warp.
const WARP: u32 = 32;

/// A jump to a block with the values of its parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockCall {
    /// Where to.
    pub block: Block,
    /// One value per block parameter.
    pub args: SmallVec<[Value; 4]>,
}

/// How a block ends.
#[derive(Clone, PartialEq, Debug)]
pub enum Terminator<R = Name> {
    /// Unconditional.
    Jump(BlockCall),
    /// On a predicate.
    Branch {
        /// Predicate (file P, or UP when warp-uniform).
        cond: R,
        /// Take `taken` where it is false.
        not: bool,
        /// Target where the condition holds.
        taken: BlockCall,
        /// Target elsewhere.
        fall: BlockCall,
    },
    /// `brx.idx`: to `table[index]`; an index past the end is undefined.
    Switch {
        /// 32-bit index.
        index: R,
        /// Targets.
        table: Vec<BlockCall>,
    },
    /// End of the thread.
    Exit,
    /// Return from a function to the address in this 64-bit value.
    Return(R),
    /// Never reached.
    Unreachable,
}

impl<R: Copy> Terminator<R> {
    /// The targets.
    pub fn targets(&self) -> SmallVec<[&BlockCall; 2]> {
        match self {
            Terminator::Jump(t) => SmallVec::from_slice(&[t]),
            Terminator::Branch { taken, fall, .. } => SmallVec::from_slice(&[taken, fall]),
            Terminator::Switch { table, .. } => table.iter().collect(),
            Terminator::Exit | Terminator::Return(_) | Terminator::Unreachable => SmallVec::new(),
        }
    }
    /// The targets, for rewriting.
    pub fn targets_mut(&mut self) -> SmallVec<[&mut BlockCall; 2]> {
        let mut out = SmallVec::new();
        match self {
            Terminator::Jump(t) => out.push(t),
            Terminator::Branch { taken, fall, .. } => {
                out.push(taken);
                out.push(fall);
            }
            Terminator::Switch { table, .. } => out.extend(table),
            Terminator::Exit | Terminator::Return(_) | Terminator::Unreachable => {}
        }
        out
    }
    /// Names read by the terminator itself (block arguments not included).
    pub fn used_name(&self) -> Option<R> {
        match self {
            Terminator::Branch { cond, .. } => Some(*cond),
            Terminator::Switch { index, .. } => Some(*index),
            Terminator::Return(v) => Some(*v),
            _ => None,
        }
    }
    /// The same, for rewriting.
    pub fn used_name_mut(&mut self) -> Option<&mut R> {
        match self {
            Terminator::Branch { cond, .. } => Some(cond),
            Terminator::Switch { index, .. } => Some(index),
            Terminator::Return(v) => Some(v),
            _ => None,
        }
    }
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct BlockData<R = Name> {
    /// Parameters, defined on entry.
    pub params: SmallVec<[Value; 4]>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
    /// How it ends.
    pub term: Terminator<R>,
    /// Source position of the terminator.
    pub term_loc: Loc,
    /// The loop that begins here is not unrolled (`.pragma "nounroll"`).
    pub rolled: bool,
}

/// What a call goes to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// A function of the same module.
    Internal(String),
    /// Any function whose address is taken and that is called like this: in an executable by its number in the table of functions.
    Indirect(Convention),
    /// A function that the driver or the linker brings, at an absolute address.
    External,
}

/// Which part of a symbol's address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The lower half of a 64-bit address.
    Low,
    /// The upper half.
    High,
    /// The lower half of the address of a function.
    FunctionLow,
    /// The upper half.
    FunctionHigh,
    /// The lower half of the address that a kernel is launched by.
    KernelLow,
    /// The upper half.
    KernelHigh,
    /// The offset of a shared variable.
    Shared,
    /// The offset of a constant in its bank.
    Constant,
    /// A number of 32 bits that the driver gives a symbol.
    Number,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 9] = [
        Part::Low,
        Part::High,
        Part::FunctionLow,
        Part::FunctionHigh,
        Part::KernelLow,
        Part::KernelHigh,
        Part::Shared,
        Part::Constant,
        Part::Number,
    ];
    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Part::Low => "low",
            Part::High => "high",
            Part::FunctionLow => "flow",
            Part::FunctionHigh => "fhigh",
            Part::KernelLow => "klow",
            Part::KernelHigh => "khigh",
            Part::Shared => "shared",
            Part::Constant => "const",
            Part::Number => "number",
        }
    }
}

/// An address that the linker fills in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SymbolUse {
    /// Whose.
    pub name: String,
    /// Which part of it.
    pub part: Part,
}

/// Which registers a function leaves as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Those of the convention ([`crate::abi`]).
    Convention,
    /// Those that its callers see it doesn't change, [`crate::abi::FRAME_POINTER`] among them: functions that follow the convention, which would
    /// have to save it, are among the callers.
    FramePointer,
    /// Those that its callers see it doesn't change. Only kernels call it.
    Unchanged,
}

/// A kernel or device function: in SSA, over [`Name`]s, until registers are given out; behind that over [`Reg`]s ([`crate::Allocated`]).
#[derive(Clone, Debug)]
pub struct Function<R = Name> {
    /// Name as in PTX.
    pub name: String,
    /// What it is compiled for.
    pub target: Target,
    /// Whether it is a kernel (`.entry`).
    pub entry: bool,
    /// All values.
    pub values: PrimaryMap<Value, ValueData>,
    /// All instructions, also those that are in no block any more.
    pub insts: PrimaryMap<Inst, InstData<R>>,
    /// All blocks, also unreachable ones.
    pub blocks: PrimaryMap<Block, BlockData<R>>,
    /// Blocks in layout order; the first is the entry.
    pub layout: Vec<Block>,
    /// Bytes of local memory (`.local` variables) at the bottom of the stack frame, addressed from R1;
    /// spill slots are added above.
    pub local_size: u32,
    /// Local variables that debuggers may ask for, and where in the frame they are.
    pub locals: Vec<(String, u32)>,
    /// What the start of the frame must be a multiple of for what [`Function::local_size`] counts; 1 if that is any.
    pub local_align: u32,
    /// Bytes of static shared memory, offset 0 being the first byte of the CTA's window (reserved part
    /// included).
    pub shared_size: u32,
    /// Number of named barriers used (`bar` with a constant index n counts as n + 1; 16 if unknown).
    pub barriers: u8,
    /// Most registers that may be stated for the function, from `.maxnreg`, launch bounds and options: the code may name
    /// [`sass::target::HARDWARE_REGISTERS`] fewer.
    pub max_regs: u8,
    /// Registers to aim at: with more, fewer threads fit into a multiprocessor than it could hold, as far as launch bounds and
    /// shared memory tell.
    pub aim_regs: u8,
    /// The most threads of a block in x, y and z, as far as launch bounds tell ([`MOST_THREADS`]).
    pub threads: [u32; 3],
    /// Data of constant bank 2, words of 64 bits: what operands `c[0x2][…]` without an index read.
    pub literals: Vec<u8>,
    /// What its calls go to.
    pub callees: IndexSet<Callee, FxBuildHasher>,
    /// What some of them change, by their numbers, ascending, the return address included; others follow the convention ([`crate::abi`]).
    pub changes: BTreeMap<u32, Vec<Reg>>,
    /// Which registers it leaves as they were.
    pub keeps: Keeps,
    /// What it keeps as [`Keeps::Convention`], and where it finds its return address.
    pub convention: Convention,
    /// The same of functions among those that it calls by name that have a convention of their own.
    pub conventions: BTreeMap<String, Convention>,
    /// Functions among those that it may call in which no lane waits for another one of its warp.
    pub quiet: IndexSet<String, FxBuildHasher>,
    /// Addresses that the linker fills in.
    pub symbols: Vec<SymbolUse>,
    /// Whether it is for a relocatable object: calls and returns by absolute address.
    pub relocatable: bool,
    /// Whether it has a section of its own in an executable, as in one that a linker makes: calls and returns by absolute address,
    /// and pointers to functions are their addresses.
    pub apart: bool,
    /// The slow paths of instructions that it calls instead of holding them, a bit each.
    pub shared_paths: u64,
    /// What its code does beside that.
    pub extra: Extra,
    /// What was chosen for it alone.
    pub tuning: crate::Tuning,
    /// What passes decided, if anybody wants to know. No part of the text.
    pub remarks: Option<Vec<crate::Remark>>,
}

/// No block has more threads than this in x, y and z.
pub const MOST_THREADS: [u32; 3] = [1024, 1024, 64];

/// Code that options ask for beside what the program says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extra {
    /// A function that has a frame traps if that does not fit the stack (`--sp-bounds-check`).
    pub stack_bounds: bool,
    /// Threads wait for their errors of memory accesses before they exit (`--make-errors-visible-at-exit`).
    pub errors_at_exit: bool,
    /// Threads sleep a while before they write to memory that others see (`--sanitize threadsteer`).
    pub steer: bool,
    /// Every `.loc` has an instruction of its own, where a debugger can stop, and the registers of the PTX are followed
    /// ([`Macro::Holds`]; `-g`).
    pub places: bool,
    /// Code looks at what it is about to touch of tensor memory, and traps where it may not (`-g-tmem-access-check`).
    pub tensor_checks: bool,
}

impl<R: Register> Function<R> {
    /// Whether calls and returns are by absolute address.
    pub fn calls_absolutely(&self) -> bool {
        self.relocatable || self.apart
    }
    /// What a callee keeps, as far as [`Function::changes`] does not say it, and where it finds its return address.
    pub fn convention_of(&self, callee: &Callee) -> Convention {
        match callee {
            Callee::Internal(name) => self.conventions.get(name).copied().unwrap_or_default(),
            Callee::Indirect(convention) => *convention,
            Callee::External => Convention::default(),
        }
    }
    /// Whether the stack pointer moves after the prologue ([`Macro::SetStack`]).
    pub fn moves_stack(&self) -> bool {
        self.insts.values().any(|d| d.op == Op::Macro(Macro::SetStack))
    }
    /// The entry block.
    pub fn entry_block(&self) -> Block {
        self.layout[0]
    }
    /// File and width of a name.
    pub fn shape(&self, name: R) -> ValueData {
        match name.into() {
            Name::Val(v) => self.values[v],
            Name::Part(v, _) => ValueData { file: self.values[v].file, width: 1 },
            Name::Phys(r) => ValueData { file: r.file, width: 1 },
        }
    }
}

impl Function {
    /// An empty function with one empty entry block.
    pub fn new(name: &str, target: Target) -> Function {
        let mut f = Function {
            name: name.into(),
            target,
            entry: true,
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            blocks: PrimaryMap::new(),
            layout: Vec::new(),
            local_size: 0,
            locals: Vec::new(),
            local_align: 1,
            shared_size: 0,
            barriers: 0,
            max_regs: 255,
            aim_regs: target.info().full_registers(),
            threads: MOST_THREADS,
            literals: Vec::new(),
            callees: IndexSet::default(),
            changes: BTreeMap::new(),
            keeps: Keeps::Convention,
            convention: Convention::default(),
            conventions: BTreeMap::new(),
            quiet: IndexSet::default(),
            symbols: Vec::new(),
            relocatable: false,
            apart: false,
            shared_paths: 0,
            extra: Extra::default(),
            tuning: crate::Tuning::default(),
            remarks: None,
        };
        f.add_block();
        f
    }
    /// Takes what was chosen for it alone.
    pub fn tune(&mut self, tuning: crate::Tuning) {
        if tuning.registers != 0 {
            self.aim_regs = tuning.registers.min(self.max_regs);
        }
        self.tuning = tuning;
    }
    /// A new empty block at the end of the layout, ending in [`Terminator::Unreachable`].
    pub fn add_block(&mut self) -> Block {
        let b = self.blocks.push(BlockData {
            params: SmallVec::new(),
            insts: Vec::new(),
            term: Terminator::Unreachable,
            term_loc: Loc::default(),
            rolled: false,
        });
        self.layout.push(b);
        b
    }
    /// A new empty block that follows `after` in the layout.
    pub fn add_block_after(&mut self, after: Block) -> Block {
        let new = self.add_block();
        self.layout.pop();
        let at = self.layout.iter().position(|b| *b == after).map_or(self.layout.len(), |at| at + 1);
        self.layout.insert(at, new);
        self.blocks[new].term_loc = self.blocks[after].term_loc;
        new
    }
    /// Splits a block: its instructions from the `at`th on become, with its terminator, a new block, to which the rest jumps.
    pub fn split_block(&mut self, b: Block, at: usize) -> Block {
        let rest = self.add_block_after(b);
        self.blocks[rest].insts = self.blocks[b].insts.split_off(at);
        let jump = Terminator::Jump(BlockCall { block: rest, args: SmallVec::new() });
        self.blocks[rest].term = std::mem::replace(&mut self.blocks[b].term, jump);
        rest
    }
    /// A new value.
    pub fn add_value(&mut self, file: RegFile, width: u8) -> Value {
        self.values.push(ValueData { file, width })
    }
    /// A table of all values, filled at once: one that grows with them is moved again and again.
    pub fn per_value<T: Clone + Default>(&self) -> SecondaryMap<Value, T> {
        let mut table = SecondaryMap::new();
        table.resize(self.values.len());
        table
    }
    /// Number of values ever made (an upper bound of their indices).
    pub fn value_count(&self) -> usize {
        self.values.len()
    }
    /// Whether an operand slot of `op` can hold a register of any file the forms allow.
    pub fn is_source_slot(op: Opcode, slot: usize) -> bool {
        op.slots()[slot].kind == SlotKind::Source
    }
}
