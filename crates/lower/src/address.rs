//! Addresses of variables and of memory operands in every state space.

use crate::access::Address;
use crate::emit::{Emit, Pair, constant, imm, rz};
use crate::func::{Known, Lower, Result};
use crate::types::Src;
use ori::{Builder, Macro, Name, Operand, Part, SymbolUse, Value, operand};
use ptx::{AddrBase, Space, Symbol, VarId};
use sass::Reg;

impl<'f> Lower<'_, 'f> {
    /// Runs `f` at the end of the entry block.
    pub fn in_prologue<T>(&mut self, f: impl FnOnce(&mut Builder<'f>) -> T) -> T {
        let here = std::mem::replace(&mut self.b.block, self.b.func.entry_block());
        let loc = std::mem::take(&mut self.b.loc);
        let result = f(&mut self.b);
        self.b.block = here;
        self.b.loc = loc;
        result
    }

    /// The memory descriptor of global and generic accesses; sm_75 has none.
    pub fn desc(&mut self) -> Option<Value> {
        let at = self.opts.target.info().mem_desc;
        if at == 0 {
            return None;
        }
        if self.desc.is_none() {
            let op = self.opts.target.info().constant_load;
            let v = self.in_prologue(|b| b.def(op, &[sass::Mod::_64], &[constant(0, at.into())]));
            self.desc = Some(v);
        }
        self.desc
    }

    /// The start of the CTA's shared window as 32-bit shared addresses see it: 0 before sm_90, the CTA's
    /// rank in its cluster in bits 24 … 31 from there on.
    pub fn shared_window(&mut self) -> Option<Value> {
        if self.sm() < 90 {
            return None;
        }
        if self.smem.is_none() {
            let v = self.in_prologue(|b| {
                let rank = b.def(sass::Opcode::S2R, &[], &[Operand::Special(sass::SpecialReg::SR_CgaCtaId)]);
                b.shl(operand(rank), imm(24))
            });
            self.smem = Some(v);
        }
        self.smem
    }

    /// A part of a symbol's address, which the linker fills in.
    fn symbol_part(&mut self, part: Part, s: Symbol) -> Value {
        let name = self.layout.symbol_name(self.module, s);
        self.named_part(part, name)
    }

    /// The same of a symbol that the module does not declare.
    pub(crate) fn named_part(&mut self, part: Part, name: String) -> Value {
        let entry = SymbolUse { name, part };
        let list = &mut self.b.func.symbols;
        let n = list.iter().position(|e| *e == entry).unwrap_or_else(|| {
            list.push(entry);
            list.len() - 1
        });
        self.b.def_macro(Macro::Symbol, sass::RegFile::R, 1, &[Operand::Imm(n as u32)])
    }

    /// Where a shared variable is that the linker places, as 32-bit shared addresses see it.
    fn linked_shared(&mut self, var: VarId) -> Value {
        let at = self.symbol_part(Part::Shared, Symbol::Var(var));
        match self.shared_window() {
            None => at,
            Some(window) => {
                let start = self.b.iadd(operand(window), imm(crate::layout::RESERVED_SHARED));
                self.b.iadd(operand(start), operand(at))
            }
        }
    }

    /// Whether functions are called by their addresses.
    pub(crate) fn calls_absolutely(&self) -> bool {
        self.opts.relocatable || self.opts.apart
    }

    /// The content of the slot of constant bank 4 that holds a symbol's address.
    pub(crate) fn address_slot(&mut self, s: Symbol) -> Result<Src> {
        let device = |s| matches!(s, Symbol::Func(f) if !self.module.funcs[f].entry);
        if self.opts.relocatable || self.opts.apart && device(s) {
            let parts = match s {
                Symbol::Var(_) => [Part::Low, Part::High],
                Symbol::Func(f) if self.module.funcs[f].entry => [Part::KernelLow, Part::KernelHigh],
                Symbol::Func(_) => [Part::FunctionLow, Part::FunctionHigh],
            };
            let [lo, hi] = parts.map(|p| operand(self.symbol_part(p, s)));
            let v = self.b.collect(&[lo, hi]);
            return Ok(self.value_src(v));
        }
        let at = self.layout.address_slot(s).ok_or("symbol without an address slot")?;
        let v = self.load_const64(4, at);
        Ok(self.value_src(v))
    }

    /// A 64-bit word of constant memory.
    pub fn load_const64(&mut self, bank: u8, at: u32) -> Value {
        let (lo, hi) = (constant(bank, at), constant(bank, at + 4));
        let v = if self.opts.target.info().alu_const && self.sm() < 90 {
            self.b.collect(&[lo, hi])
        } else {
            self.b.def(sass::Opcode::LDC, &[sass::Mod::_64], &[lo])
        };
        self.known[v] = Known::Const(bank, at);
        v
    }

    /// A 32-bit word of constant memory.
    pub fn load_const32(&mut self, bank: u8, at: u32) -> Value {
        let v = if self.opts.target.info().alu_const {
            self.b.copy(constant(bank, at))
        } else {
            self.b.def(sass::Opcode::LDC, &[], &[constant(bank, at)])
        };
        self.known[v] = Known::Const(bank, at);
        v
    }

    /// A parameter's offset in constant bank 0.
    pub fn param_offset(&self, var: VarId) -> Option<u32> {
        self.params.get(&var).copied()
    }

    /// The address of a variable in its own state space, as 64 bits.
    pub(crate) fn address_of(&mut self, var: VarId, offset: i64) -> Result<Src> {
        let space = self.module.vars[var].space;
        if let Some(kind) = self.module.vars[var].opaque {
            return match offset {
                0 => self.handle_of(var, kind),
                _ => Err(crate::Refusal::NotBuilt(
                    "a sum with a texture, sampler or surface is not supported yet",
                )),
            };
        }
        let v = match space {
            Space::Global => {
                let base = self.address_slot(Symbol::Var(var))?;
                if offset == 0 {
                    return Ok(base);
                }
                self.b.add64(&base.pair(), &Pair::imm(offset as u64))
            }
            Space::Const | Space::Shared if self.opts.relocatable => {
                let at = match space {
                    Space::Const => self.symbol_part(Part::Constant, Symbol::Var(var)),
                    _ => self.linked_shared(var),
                };
                let lo = self.b.iadd(operand(at), imm(offset as u32));
                self.b.collect(&[operand(lo), rz()])
            }
            Space::Param if !self.module.funcs[self.id].entry => {
                let name = &self.module.vars[var].name;
                let home = self.param_memory(var);
                let (base, at) = home.ok_or_else(|| crate::Refusal::AddressOfParameter(name.to_string()))?;
                let at = i64::from(at) + offset;
                let lo = self.b.iadd(operand(base), imm(at as u32));
                let v = self.b.collect(&[operand(lo), rz()]);
                if base == Name::Phys(Reg::SP) {
                    self.known[v] = Known::Stack(at);
                }
                v
            }
            Space::Const | Space::Param => {
                let at = self.bank_offset(var)?.1;
                return Ok(Src::Wide(Pair::imm((i64::from(at) + offset) as u64)));
            }
            Space::Shared => {
                let at = self.shared_offset(var)? + offset;
                match self.shared_window() {
                    None => return Ok(Src::Wide(Pair::imm(at as u64))),
                    Some(w) => {
                        let lo = self.b.iadd(operand(w), imm(at as u32));
                        let v = self.b.collect(&[operand(lo), rz()]);
                        self.known[v] = Known::Shared(at);
                        v
                    }
                }
            }
            Space::Local => {
                let at = self.local_offset(var)? + offset;
                let lo = self.b.iadd(operand(Name::Phys(Reg::SP)), imm(at as u32));
                let v = self.b.collect(&[operand(lo), rz()]);
                self.known[v] = Known::Stack(at);
                v
            }
            Space::Reg => return Err("a register has no address".into()),
        };
        Ok(self.value_src(v))
    }

    fn shared_offset(&self, var: VarId) -> Result<i64> {
        let at = self.layout.shared_offset(self.id, var).filter(|_| !self.opts.relocatable);
        at.map(i64::from).ok_or_else(|| "shared variable is not placed".into())
    }

    fn local_offset(&self, var: VarId) -> Result<i64> {
        self.locals
            .get(&var)
            .map(|o| i64::from(*o))
            .ok_or_else(|| "local variable of another function".into())
    }

    /// Constant bank and offset of a `.const` variable or kernel parameter.
    pub fn bank_offset(&self, var: VarId) -> Result<(u8, u32)> {
        match self.module.vars[var].space {
            Space::Const if !self.opts.relocatable => self.layout.const_offset(var).map(|o| (3, o)),
            Space::Param => self.param_offset(var).map(|o| (0, o)),
            _ => None,
        }
        .ok_or_else(|| "variable has no place in constant memory".into())
    }

    /// A global or generic address.
    pub fn address64(&mut self, a: &ptx::Addr) -> Result<Address> {
        self.address64_within(a, OFFSET_BITS)
    }

    /// The same for an instruction whose offsets have so many bits, with a sign.
    pub fn address64_within(&mut self, a: &ptx::Addr, bits: u32) -> Result<Address> {
        let base = match a.base {
            AddrBase::Reg(r) => {
                let v = self.read(r);
                if self.b.func.values[v].width != 2 {
                    let p = self.value_src(v).pair();
                    self.b.pair(&p)
                } else {
                    v
                }
            }
            AddrBase::Var(var) => {
                let s = match self.module.vars[var].space {
                    Space::Global => self.address_slot(Symbol::Var(var))?,
                    _ => return Err("variable of another state space".into()),
                };
                self.b.pair(&s.pair())
            }
            AddrBase::Absolute => self.b.pair(&Pair::imm(0)),
        };
        // A sum with a constant is left to the instruction.
        let (base, offset) = match self.known[base] {
            Known::Sum(b, at) if fits(at.saturating_add(a.offset), bits) => (b, at + a.offset),
            _ => (base, a.offset),
        };
        let (base, offset) = if fits(offset, bits) {
            (base, offset as i32)
        } else {
            (self.b.add64(&Pair::of(base), &Pair::imm(offset as u64)), 0)
        };
        Ok(Address { base: Some(Name::Val(base)), wide: true, offset })
    }

    /// A 32-bit shared or local address.
    pub fn address32(&mut self, a: &ptx::Addr, space: Space) -> Result<Address> {
        self.address32_within(a, space, OFFSET_BITS)
    }

    /// The same for an instruction whose offsets have so many bits, with a sign.
    pub fn address32_within(&mut self, a: &ptx::Addr, space: Space, bits: u32) -> Result<Address> {
        let (base, at) = match a.base {
            AddrBase::Var(var) if space == Space::Shared && self.opts.relocatable => {
                (Some(Name::Val(self.linked_shared(var))), 0)
            }
            AddrBase::Var(var) if space == Space::Shared => {
                let at = self.shared_offset(var)?;
                (self.shared_window().map(Name::Val), at)
            }
            AddrBase::Var(var) => match self.param_memory(var) {
                Some((base, at)) => (Some(base), at.into()),
                None => (Some(Name::Phys(Reg::SP)), self.local_offset(var)?),
            },
            AddrBase::Absolute => (None, 0),
            AddrBase::Reg(r) => {
                let v = self.read(r);
                match (self.known[v], space) {
                    (Known::Stack(at), Space::Local) => (Some(Name::Phys(Reg::SP)), at),
                    (Known::Shared(at), Space::Shared) => (self.shared_window().map(Name::Val), at),
                    (Known::Imm(n), _) => (None, i64::from(n as u32)),
                    _ => (Some(self.low_name(v)), 0),
                }
            }
        };
        let at = at + a.offset;
        if fits(at, bits) {
            return Ok(Address { base, wide: false, offset: at as i32 });
        }
        let lo = base.map_or_else(rz, operand);
        let sum = self.b.iadd(lo, imm(at as u32));
        Ok(Address { base: Some(Name::Val(sum)), wide: false, offset: 0 })
    }

    /// An address in the shared memory of any CTA of the cluster, as a generic one.
    pub fn cluster_address(&mut self, a: &ptx::Addr) -> Result<Operand> {
        let at = self.address32(a, Space::Shared)?;
        let lo = at.base.map_or_else(rz, operand);
        let window = Operand::Special(sass::SpecialReg::SR_SWINHI);
        let hi = self.b.def(sass::Opcode::S2R, &[], &[window]);
        let base = self.b.collect(&[lo, operand(hi)]);
        Ok(Address { base: Some(Name::Val(base)), wide: true, offset: at.offset }.operand(None))
    }

    /// A constant-memory operand and whether it is at a fixed offset.
    pub fn address_const(&mut self, a: &ptx::Addr) -> Result<(Operand, Option<(u8, u32)>)> {
        let (bank, at, index) = match a.base {
            AddrBase::Var(var) if self.opts.relocatable && self.module.vars[var].space == Space::Const => {
                let index = self.symbol_part(Part::Constant, Symbol::Var(var));
                (3, 0, Some(Name::Val(index)))
            }
            AddrBase::Var(var) => {
                let (bank, at) = self.bank_offset(var)?;
                (bank, i64::from(at), None)
            }
            AddrBase::Absolute => (3, 0, None),
            AddrBase::Reg(r) => {
                let v = self.read(r);
                match self.known[v] {
                    Known::Imm(n) => (3, i64::from(n as u32), None),
                    _ => (3, 0, Some(self.low_name(v))),
                }
            }
        };
        self.const_operand(bank, at + a.offset, index)
    }

    /// `c[bank][index + at]`.
    pub fn const_operand(
        &mut self,
        bank: u8,
        at: i64,
        index: Option<Name>,
    ) -> Result<(Operand, Option<(u8, u32)>)> {
        match index {
            // Addresses have 32 bits, as ptxas counts them.
            None if (at as u32) < 0x10000 => Ok((constant(bank, at as u32), Some((bank, at as u32)))),
            None => {
                // Behind the bank: undefined, and the program need not get there.
                let index = self.b.copy(imm(at as u32));
                Ok((crate::emit::indexed_constant(bank, Some(Name::Val(index)), 0), None))
            }
            Some(index) if (-0x8000..0x8000).contains(&at) => {
                Ok((crate::emit::indexed_constant(bank, Some(index), at as i32), None))
            }
            Some(index) => {
                let sum = self.b.iadd(operand(index), imm(at as u32));
                Ok((crate::emit::indexed_constant(bank, Some(Name::Val(sum)), 0), None))
            }
        }
    }

    /// The low register of a value, as an address base or index.
    pub fn low_name(&mut self, v: Value) -> Name {
        if self.b.func.values[v].width == 1 { Name::Val(v) } else { Name::Part(v, 0) }
    }
}

/// Bits of the offsets of memory instructions, with their sign.
const OFFSET_BITS: u32 = 24;

/// Whether an offset fits into so many bits, with its sign.
fn fits(offset: i64, bits: u32) -> bool {
    (-(1 << (bits - 1))..1 << (bits - 1)).contains(&offset)
}
