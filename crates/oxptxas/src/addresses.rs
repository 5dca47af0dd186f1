//! Addresses in the initial contents of variables: whose they are, and what is filled in where.

use cubin::object::{Fill, Reloc};
use lower::ModuleLayout;
use ptx::{Module, Space, Symbol};

/// What stands for the name of a symbol in an initializer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// That by which a kernel is launched.
    Kernel,
    /// That of a device function; in executables without debug information its number.
    Function,
    /// A generic address; of a texture, sampler or surface what the driver makes of it.
    Generic,
    /// The offset of a constant in its bank.
    Offset,
    /// That of a variable in unified data.
    Unified,
}

impl Address {
    /// Of an initializer of a variable, which may be unified itself.
    pub(crate) fn of(module: &Module, r: &ptx::ast::Reloc, in_unified: bool) -> Address {
        match r.symbol {
            Symbol::Func(f) if module.funcs[f].entry => Address::Kernel,
            Symbol::Func(_) => Address::Function,
            Symbol::Var(_) if in_unified => Address::Unified,
            Symbol::Var(v) if r.generic || module.vars[v].space == Space::Global => Address::Generic,
            Symbol::Var(_) => Address::Offset,
        }
    }

    /// All of it, 8 bytes.
    fn whole(self) -> Fill {
        match self {
            Address::Kernel => Fill::Kernel,
            Address::Function => Fill::Function,
            Address::Generic => Fill::Generic,
            Address::Offset => Fill::Offset,
            Address::Unified => Fill::Unified,
        }
    }

    /// One byte of it, 0 the lowest.
    fn byte(self, n: u8) -> Fill {
        match self {
            Address::Kernel => Fill::KernelByte(n),
            Address::Function => Fill::FunctionByte(n),
            Address::Generic => Fill::Byte(n),
            Address::Offset => Fill::OffsetByte(n),
            Address::Unified => Fill::UnifiedByte(n),
        }
    }

    /// What is filled in for an address in an initializer: one field of 8 bytes, one byte, or the bytes of a shorter field. `at`:
    /// where the variable begins, `symbol`: whose address it is.
    pub(crate) fn relocs(self, at: u64, r: &ptx::ast::Reloc, symbol: &str) -> Vec<Reloc> {
        let one = |offset: u64, fill: Fill| Reloc { offset, fill, symbol: symbol.into(), addend: r.addend };
        let at = at + r.offset;
        match (r.byte, r.size) {
            (Some(n), _) => vec![one(at, self.byte(n))],
            (None, 8) => vec![one(at, self.whole())],
            // ptxas relocates all 8 bytes of these, too, and so what lies behind them.
            (None, size) => (0..size).map(|n| one(at + u64::from(n), self.byte(n))).collect(),
        }
    }
}

/// Puts numbers where an initializer has what is known here: the offsets of constants, and, unless functions have addresses
/// (`by_address`), their numbers.
pub(crate) fn fill_numbers(bytes: &mut [u8], init: &ptx::ast::Init, layout: &ModuleLayout, by_address: bool) {
    for r in &init.relocs {
        let number = match r.symbol {
            Symbol::Func(_) if by_address => None,
            Symbol::Func(f) => layout.function_number(f),
            Symbol::Var(v) if !r.generic => layout.const_offset(v).map(u64::from),
            Symbol::Var(_) => None,
        };
        let size = usize::from(r.size).min(8);
        if let Some(n) = number
            && let Some(field) = bytes.get_mut(r.offset as usize..r.offset as usize + size)
        {
            let value = n.wrapping_add(r.addend as u64);
            let value = r.byte.map_or(value, |byte| value >> (8 * byte) & 0xff);
            field.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
}
