//! Functions whose registers were given out.

use crate::function::{Block, BlockCall, BlockData, Function, Guard, Inst, InstData, Loc, Macro, Name, Op};
use crate::function::{Terminator, Value};
use cranelift_entity::PrimaryMap;
use sass::{Mods, Reg};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// A function on physical registers: its type has no place for a value in an instruction. Its blocks have no parameters.
pub type Allocated = Function<Reg>;

impl Function {
    /// The same with these blocks and instructions on registers in place of its own.
    pub fn with_code(
        &self,
        insts: PrimaryMap<Inst, InstData<Reg>>,
        blocks: PrimaryMap<Block, BlockData<Reg>>,
    ) -> Allocated {
        Function {
            name: self.name.clone(),
            target: self.target,
            entry: self.entry,
            values: PrimaryMap::new(),
            insts,
            blocks,
            layout: self.layout.clone(),
            local_size: self.local_size,
            locals: self.locals.clone(),
            local_align: self.local_align,
            shared_size: self.shared_size,
            barriers: self.barriers,
            max_regs: self.max_regs,
            aim_regs: self.aim_regs,
            threads: self.threads,
            literals: self.literals.clone(),
            callees: self.callees.clone(),
            changes: self.changes.clone(),
            keeps: self.keeps,
            convention: self.convention,
            conventions: self.conventions.clone(),
            quiet: self.quiet.clone(),
            symbols: self.symbols.clone(),
            relocatable: self.relocatable,
            apart: self.apart,
            shared_paths: self.shared_paths,
            extra: self.extra,
            tuning: self.tuning.clone(),
            remarks: self.remarks.clone(),
        }
    }
}

impl InstData {
    /// The instruction on registers. What a guarded one keeps is in the register that it writes.
    pub fn on_registers(&self, mut reg: impl FnMut(Name) -> Reg) -> InstData<Reg> {
        InstData {
            guard: Guard { pred: reg(self.guard.pred), not: self.guard.not },
            op: self.op,
            mods: self.mods.clone(),
            operands: self.operands.iter().map(|o| o.map(&mut reg, |block| block)).collect(),
            kept: ThinVec::new(),
            loc: self.loc,
        }
    }
}

impl InstData<Reg> {
    /// What stands for an instruction that is in no block any more.
    pub fn gone() -> InstData<Reg> {
        InstData {
            guard: Guard::TRUE,
            op: Op::Macro(Macro::Undef),
            mods: Mods::none(),
            operands: ThinVec::new(),
            kept: ThinVec::new(),
            loc: Loc::default(),
        }
    }
}

impl BlockData<Reg> {
    /// What stands for a block that is not reached.
    pub fn unreached() -> BlockData<Reg> {
        BlockData {
            params: SmallVec::new(),
            insts: Vec::new(),
            term: Terminator::Unreachable,
            term_loc: Loc::default(),
            rolled: false,
        }
    }
}

impl BlockData {
    /// The block with these instructions, and its terminator on registers. What parameters are given is in their registers.
    pub fn on_registers(&self, insts: Vec<Inst>, mut reg: impl FnMut(Name) -> Reg) -> BlockData<Reg> {
        let to = |t: &BlockCall| BlockCall { block: t.block, args: SmallVec::new() };
        let term = match &self.term {
            Terminator::Jump(t) => Terminator::Jump(to(t)),
            Terminator::Branch { cond, not, taken, fall } => {
                Terminator::Branch { cond: reg(*cond), not: *not, taken: to(taken), fall: to(fall) }
            }
            Terminator::Switch { index, table } => {
                Terminator::Switch { index: reg(*index), table: table.iter().map(to).collect() }
            }
            Terminator::Exit => Terminator::Exit,
            Terminator::Return(address) => Terminator::Return(reg(*address)),
            Terminator::Unreachable => Terminator::Unreachable,
        };
        BlockData { params: SmallVec::new(), insts, term, term_loc: self.term_loc, rolled: self.rolled }
    }
}

impl TryFrom<Function> for Allocated {
    type Error = Value;

    /// Takes a function that names no values, as one may write it down; else says which it names.
    fn try_from(func: Function) -> Result<Allocated, Value> {
        let mut named = None;
        let mut reg = |n: Name| match n {
            Name::Phys(r) => r,
            Name::Val(v) | Name::Part(v, _) => {
                named.get_or_insert(v);
                Reg::RZ
            }
        };
        let mut insts = PrimaryMap::with_capacity(func.insts.len());
        func.insts.values().for_each(|d| {
            insts.push(d.on_registers(&mut reg));
        });
        let mut blocks = PrimaryMap::with_capacity(func.blocks.len());
        for d in func.blocks.values() {
            d.params.iter().for_each(|p| {
                reg(Name::Val(*p));
            });
            blocks.push(d.on_registers(d.insts.clone(), &mut reg));
        }
        named.map_or_else(|| Ok(func.with_code(insts, blocks)), Err)
    }
}
