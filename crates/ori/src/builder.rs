//! Appends instructions to a block.

use crate::function::{
    Block, BlockCall, Function, Guard, Inst, InstData, Loc, Macro, Name, Op, Operand, Operands, Register,
    Terminator,
};
use crate::function::{Value, operand};
use sass::{Mod, Mods, Opcode, Reg, RegFile, Role, SlotKind, Width};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// A cursor at the end of a block.
pub struct Builder<'f> {
    /// The function under construction.
    pub func: &'f mut Function,
    /// The block that instructions are appended to.
    pub block: Block,
    /// Source position given to new instructions.
    pub loc: Loc,
    /// Guard given to new instructions; what guarded definitions keep must be passed too
    /// ([`Builder::raw`]).
    pub guard: Guard,
}

/// The guard that always holds.
pub const ALWAYS: Guard = Guard { pred: Name::Phys(Reg::PT), not: false };

impl<'f> Builder<'f> {
    /// A builder at the end of `block`.
    pub fn new(func: &'f mut Function, block: Block) -> Self {
        Builder { func, block, loc: Loc::default(), guard: ALWAYS }
    }

    /// Appends an instruction as given.
    pub fn raw(&mut self, data: InstData) -> Inst {
        let inst = self.func.insts.push(data);
        self.func.blocks[self.block].insts.push(inst);
        inst
    }

    /// Appends a SASS instruction with all its operands, unguarded definitions only.
    pub fn inst(&mut self, op: Opcode, mods: &[Mod], operands: &[Operand]) -> Inst {
        self.complete(op, mods, operands.into())
    }

    fn complete(&mut self, op: Opcode, mods: &[Mod], operands: Operands) -> Inst {
        debug_assert_eq!(operands.len(), op.slots().len(), "{op}: operand count");
        let data = InstData {
            guard: self.guard,
            op: Op::Sass(op),
            mods: Mods::of(mods),
            operands,
            kept: ThinVec::new(),
            loc: self.loc,
        };
        self.raw(data)
    }

    /// Appends a SASS instruction that writes its first R (or UR) slot: makes the value, sets predicate
    /// outputs to PT and fills the sources in slot order; missing trailing ones get their defaults
    /// ([`default_operand`]).
    pub fn def(&mut self, op: Opcode, mods: &[Mod], sources: &[Operand]) -> Value {
        let slots = op.slots();
        let m = Mods::of(mods);
        let mut sources = sources.iter().cloned();
        let mut result = None;
        let mut operands = Operands::with_capacity(slots.len());
        for (i, slot) in slots.iter().enumerate() {
            operands.push(match (slot.role, slot.kind) {
                (Role::Def, SlotKind::Reg(file @ (RegFile::R | RegFile::UR | RegFile::B)))
                    if result.is_none() =>
                {
                    let v = self.func.add_value(file, op.width(i, &m));
                    result = Some(v);
                    operand(v)
                }
                (Role::Def, _) => default_operand(op, i),
                _ => sources.next().unwrap_or_else(|| default_operand(op, i)),
            });
        }
        debug_assert!(sources.next().is_none(), "{op}: too many sources");
        self.complete(op, mods, operands);
        result.expect("opcode defines a register")
    }

    /// Appends a comparison: makes the first predicate result, sets the second to PT.
    pub fn def_pred(&mut self, op: Opcode, mods: &[Mod], sources: &[Operand]) -> Value {
        let mut sources = sources.iter().cloned();
        let mut result = None;
        let mut operands = Operands::with_capacity(op.slots().len());
        for (i, slot) in op.slots().iter().enumerate() {
            operands.push(match (slot.role, slot.kind) {
                (Role::Def, SlotKind::Reg(file @ (RegFile::P | RegFile::UP))) if result.is_none() => {
                    let v = self.func.add_value(file, 1);
                    result = Some(v);
                    operand(v)
                }
                (Role::Def, _) => default_operand(op, i),
                _ => sources.next().unwrap_or_else(|| default_operand(op, i)),
            });
        }
        debug_assert!(sources.next().is_none(), "{op}: too many sources");
        self.complete(op, mods, operands);
        result.expect("opcode defines a predicate")
    }

    /// Appends a macro-operation that makes one value.
    pub fn def_macro(&mut self, m: Macro, file: RegFile, width: u8, sources: &[Operand]) -> Value {
        let v = self.func.add_value(file, width);
        let mut operands = Operands::with_capacity(1 + sources.len());
        operands.push(operand(v));
        operands.extend(sources.iter().cloned());
        let data = InstData {
            guard: self.guard,
            op: Op::Macro(m),
            mods: Mods::none(),
            operands,
            kept: ThinVec::new(),
            loc: self.loc,
        };
        self.raw(data);
        v
    }

    /// A 32-bit copy of `source`.
    pub fn copy(&mut self, source: Operand) -> Value {
        self.def_macro(Macro::Copy, RegFile::R, 1, &[source])
    }

    /// A tuple of `parts`, one register each.
    pub fn collect(&mut self, parts: &[Operand]) -> Value {
        self.def_macro(Macro::Collect, RegFile::R, parts.len() as u8, parts)
    }

    /// Ends the block.
    pub fn terminate(&mut self, term: Terminator) {
        let b = &mut self.func.blocks[self.block];
        b.term = term;
        b.term_loc = self.loc;
    }

    /// A jump target without arguments.
    pub fn call(block: Block) -> BlockCall {
        BlockCall { block, args: SmallVec::new() }
    }
}

/// What an operand slot holds when nothing is said: RZ or PT for a register, 0 for an immediate. Note that
/// carry-in predicates read as "no carry" only as `!PT`, which the caller writes.
pub fn default_operand<R: Register>(op: Opcode, slot: usize) -> Operand<R> {
    let phys = |r: Reg| Operand::reg(r.into());
    match op.slots()[slot].kind {
        SlotKind::Reg(RegFile::P) => phys(Reg::PT),
        SlotKind::Reg(RegFile::UP) => phys(Reg::UPT),
        SlotKind::Reg(RegFile::UR) => phys(Reg::URZ),
        SlotKind::Imm => Operand::Imm(0),
        _ => phys(Reg::RZ),
    }
}

/// Whether the slot's width depends on modifiers.
pub fn has_variable_width(op: Opcode, slot: usize) -> bool {
    !matches!(op.slots()[slot].width, Width::Fixed(_))
}
