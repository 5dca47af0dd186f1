//! PTX registers: reading, assigning under a guard, merging.

use crate::emit::{Emit, Pair, rz};
use crate::func::{Known, Lower, Result};
use crate::ssa::{PtxBlock, Var};
use cranelift_entity::EntityRef;
use ori::{
    ALWAYS, Block, BlockCall, Builder, Macro, Name, Op, Operand, Terminator, Value, ValueData, operand,
};
use ptx::RegId;
use sass::RegFile;
use smallvec::SmallVec;
use thin_vec::ThinVec;

impl Lower<'_, '_> {
    /// The current value of a register.
    pub fn read(&mut self, r: RegId) -> Value {
        self.read_var(Var(r.index() as u32))
    }

    pub(crate) fn read_var(&mut self, var: Var) -> Value {
        if let Some((whole, part)) = self.part_of_accumulator(var) {
            let whole = self.ssa.read(self.b.func, self.block, whole);
            return match self.is_undefined(whole) {
                true => self.undefined_value(self.ssa.shape(var)),
                false if self.b.func.values[whole].width == 1 => whole,
                false => self.b.copy(operand(Name::Part(whole, part))),
            };
        }
        self.ssa.read(self.b.func, self.block, var)
    }

    /// Shape of a register.
    pub fn shape(&self, r: RegId) -> ValueData {
        self.ssa.shape(Var(r.index() as u32))
    }

    pub(crate) fn write_var(&mut self, var: Var, value: Value) {
        if self.region.is_some() {
            let old = self.read_var(var);
            if let Some(region) = &mut self.region
                && region.iter().all(|(v, _)| *v != var)
            {
                region.push((var, old));
            }
        }
        self.note_part_written(var);
        self.ssa.write(self.block, var, value);
        if self.opts.extra.places {
            self.note_place(var, value);
        }
    }

    /// Says for debuggers that a register has this value from here on.
    fn note_place(&mut self, var: Var, value: Value) {
        let holds = |b: &mut Builder<'_>, var: Var, words: u8, src: Operand| {
            let operands = [Operand::Imm(var.0), Operand::Imm(words.into()), src];
            crate::call::macro_inst(b, Macro::Holds, &operands);
        };
        if var.0 < self.carry.0 {
            let known = !self.is_undefined(value);
            let words = self.b.func.values[value].width;
            holds(&mut self.b, var, words, if known { operand(value) } else { rz() });
            return;
        }
        // Of a tuple of registers it is not followed where each is.
        for r in self.registers_of_tuple(var) {
            holds(&mut self.b, Var(r.index() as u32), 1, rz());
        }
    }

    /// The undefined value of a shape.
    pub fn undefined_value(&mut self, shape: ValueData) -> Value {
        self.ssa.undefined(self.b.func, shape)
    }

    /// Whether a value is that of a register that was never written.
    pub fn is_undefined(&self, v: Value) -> bool {
        self.ssa.is_undefined(v)
    }

    /// Assigns unconditionally; the value may be narrower (zero-extended) or wider (truncated) than the
    /// register.
    pub fn write(&mut self, r: RegId, value: Value) {
        let want = self.shape(r);
        let have = self.b.func.values[value];
        let value = match (want.width, have.width) {
            (w, h) if w == h => value,
            (1, _) => self.b.copy(operand(Name::Part(value, 0))),
            (w, h) => {
                let mut parts: SmallVec<[Operand; 4]> = SmallVec::new();
                for i in 0..w {
                    parts.push(match (i < h, h) {
                        (true, 1) => operand(value),
                        (true, _) => operand(Name::Part(value, i)),
                        (false, _) => rz(),
                    });
                }
                self.b.collect(&parts)
            }
        };
        self.note_narrow(value);
        if self.block == PtxBlock(0) && self.region.is_none() {
            self.handles.note(r, value);
        }
        self.write_var(Var(r.index() as u32), value);
    }

    /// Remembers that a pair which was just put together has a zero upper half.
    pub(crate) fn note_narrow(&mut self, v: Value) {
        let Some(&last) = self.b.func.blocks[self.b.block].insts.last() else { return };
        let data = &self.b.func.insts[last];
        if self.known[v] == Known::Nothing
            && data.op == Op::Macro(Macro::Collect)
            && data.is_unguarded()
            && let [d, _, hi] = &data.operands[..]
            && *d == operand(v)
            && crate::emit::as_imm(hi) == Some(0)
        {
            self.known[v] = Known::Narrow;
        }
    }

    /// Assigns under the current guard. `first` is the number of instructions in the block before the value
    /// was computed: if it took exactly one, that one gets the guard.
    pub fn assign(&mut self, r: RegId, value: Value, first: Mark) {
        if self.guard == ALWAYS {
            return self.write(r, value);
        }
        let old = self.read(r);
        if self.is_undefined(old) {
            return self.write(r, value);
        }
        let shape = self.shape(r);
        if self.b.func.values[value].width != shape.width {
            let guard = std::mem::replace(&mut self.guard, ALWAYS);
            self.write(r, value);
            self.guard = guard;
            let value = self.read(r);
            let merged = self.merge(shape, value, old);
            return self.write(r, merged);
        }
        if let Some(inst) = self.single(first, value) {
            // What it is where the guard holds, it is not elsewhere.
            self.known[value] = Known::Nothing;
            let guard = self.guard;
            let data = &mut self.b.func.insts[inst];
            data.guard = guard;
            let mut kept: ThinVec<Name> = ThinVec::new();
            data.for_each_def(|n| {
                kept.push(match n {
                    Name::Val(_) => Name::Val(old),
                    n => n,
                });
            });
            data.kept = kept;
            return self.write(r, value);
        }
        let merged = self.merge(shape, value, old);
        self.write(r, merged);
    }

    /// The one SASS instruction since `first`, if it alone defines `value` (and nothing else).
    fn single(&self, first: Mark, value: Value) -> Option<ori::Inst> {
        if first.block != self.b.block {
            return None;
        }
        let [inst] = self.b.func.blocks[self.b.block].insts[first.count..] else { return None };
        let data = &self.b.func.insts[inst];
        let mut defs = 0;
        let mut it = false;
        data.for_each_def(|n| {
            if let Name::Val(v) = n {
                defs += 1;
                it |= v == value;
            }
        });
        (data.is_unguarded() && matches!(data.op, Op::Sass(_)) && defs == 1 && it).then_some(inst)
    }

    /// `guard ? new : old`.
    pub(crate) fn merge(&mut self, shape: ValueData, new: Value, old: Value) -> Value {
        let p = self.guard_operand();
        match (shape.file, shape.width) {
            (RegFile::P, _) => self.b.def_pred(
                sass::Opcode::PLOP3,
                &[sass::Mod::LUT],
                &[p, operand(new), operand(old), Operand::Imm(0xca), Operand::Imm(0)],
            ),
            (_, 1) => self.b.sel(p, operand(new), operand(old)),
            (_, 2) => self.b.sel64(p, &Pair::of(new), &Pair::of(old)),
            (_, w) => {
                let parts: Vec<Operand> = (0..w)
                    .map(|i| {
                        let (x, y) = (operand(Name::Part(new, i)), operand(Name::Part(old, i)));
                        operand(self.b.sel(p, x, y))
                    })
                    .collect();
                self.b.collect(&parts)
            }
        }
    }

    /// The current guard as a predicate operand.
    pub fn guard_operand(&self) -> Operand {
        Operand::Reg(sass::RegOp { not: self.guard.not, ..sass::RegOp::plain(self.guard.pred) })
    }

    /// A place to measure from; see [`Lower::assign`].
    pub fn mark(&self) -> Mark {
        Mark { block: self.b.block, count: self.b.func.blocks[self.b.block].insts.len() }
    }

    /// Runs `f` where the guard holds, as a branch around it: for side effects of several instructions.
    pub fn branch_around(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.guard == ALWAYS {
            return f(self);
        }
        let guard = std::mem::replace(&mut self.guard, ALWAYS);
        let (then, join) = (self.b.func.add_block(), self.b.func.add_block());
        let from = self.b.block;
        self.b.terminate(Terminator::Branch {
            cond: guard.pred,
            not: guard.not,
            taken: Builder::call(then),
            fall: Builder::call(join),
        });
        self.b.block = then;
        self.region = Some(Vec::new());
        let result = f(self);
        let region = self.region.take().unwrap_or_default();
        let (mut new, mut old) = (SmallVec::new(), SmallVec::new());
        for (var, before) in region {
            new.push(self.read_var(var));
            old.push(before);
            let d = self.ssa.shape(var);
            let param = self.b.func.add_value(d.file, d.width);
            self.b.func.blocks[join].params.push(param);
            self.ssa.write(self.block, var, param);
        }
        self.b.terminate(Terminator::Jump(BlockCall { block: join, args: new }));
        if let Terminator::Branch { fall, .. } = &mut self.b.func.blocks[from].term {
            fall.args = old;
        }
        self.b.block = join;
        result
    }

    /// The carry flag.
    pub fn carry(&mut self) -> Value {
        self.read_var(self.carry)
    }

    /// Sets the carry flag.
    pub fn set_carry(&mut self, v: Value) {
        self.write_var(self.carry, v);
    }
}

/// A place in a block; see [`Lower::assign`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    block: Block,
    count: usize,
}
