//! `multimem`: loads, stores and reductions of multicast objects, which lie in global memory. Stores and reductions are
//! those of ordinary memory; loads are LDGMC.

use crate::access::{self, Order};
use crate::emit::Emit;
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::types::{Kind, Ty};
use ori::{ALWAYS, Name, Operand, Value, operand};
use ptx::Mod as M;
use sass::{Mod, Opcode, Reg};

/// The type of an element in registers.
pub fn element(inst: &Statement<'_>) -> ptx::Type {
    match inst.one_of(&[M::e4m3, M::e5m2]) {
        Some(_) => ptx::Type::b8,
        // Four of 8 bits to a register have no type of their own.
        None => inst.ty(0).unwrap_or(ptx::Type::b32),
    }
}

/// LDGMC's spelling of the elements that are added up, for accesses of so many bytes.
fn elements(inst: &Statement<'_>, bytes: u32) -> Option<Vec<Mod>> {
    use ptx::Type as T;
    let has = |name: &str| inst.has_prefix(name);
    let by_size = |sizes: [Mod; 3]| match bytes {
        4 => Some(sizes[0]),
        8 => Some(sizes[1]),
        16 => Some(sizes[2]),
        _ => None,
    };
    let float = match () {
        () if has("e4m3") => by_size([Mod::E4M3x4, Mod::E4M3x8, Mod::E4M3x16]),
        () if has("e5m2") => by_size([Mod::E5M2x4, Mod::E5M2x8, Mod::E5M2x16]),
        () => match inst.ty(0)? {
            T::f16 | T::f16x2 => by_size([Mod::F16x2, Mod::F16x4, Mod::F16x8]),
            T::bf16 | T::bf16x2 => by_size([Mod::BF16x2, Mod::BF16x4, Mod::BF16x8]),
            T::f32 => by_size([Mod::F32, Mod::F32x2, Mod::F32x4]),
            T::f64 => Some(Mod::F64),
            t => {
                let signed = matches!(t, T::s32 | T::s64) && inst.one_of(&[M::min, M::max]).is_some();
                let size = match (t.bytes(), signed) {
                    (8, true) => Mod::S64,
                    (8, false) => Mod::_64,
                    (_, true) => Mod::S32,
                    (_, false) => Mod::_32,
                };
                return Some(vec![size]);
            }
        },
    };
    Some(vec![float?, Mod::RN])
}

impl Lower<'_, '_> {
    /// `multimem`.
    pub fn multimem(&mut self, inst: &Statement<'_>) -> Result<()> {
        match () {
            () if inst.has(M::ld_reduce) => self.multimem_load(inst),
            () if inst.has(M::st) => self.st(inst),
            () => self.atomic(inst),
        }
    }

    /// `multimem.ld_reduce`.
    fn multimem_load(&mut self, inst: &Statement<'_>) -> Result<()> {
        let t = ty(element(inst));
        let t = Ty { kind: Kind::Bits, ..t };
        let dsts = crate::memory::destinations(inst)?;
        let bytes = u32::from(t.bits) / 8 * dsts.len() as u32;
        // Sums in a wider format.
        let wide = inst.has_prefix("acc::");
        let action = match inst.one_of(&[M::add, M::min, M::max, M::and, M::or, M::xor]) {
            Some(M::add) if wide && self.sm() == 90 => Mod::F32ADD,
            Some(M::add) if wide => Mod::HPADD,
            Some(M::add) => Mod::ADD,
            Some(M::min) => Mod::MIN,
            Some(M::max) => Mod::MAX,
            Some(M::and) => Mod::AND,
            Some(M::or) => Mod::OR,
            Some(M::xor) => Mod::XOR,
            _ => return self.unsupported(inst),
        };
        let Some(elements) = elements(inst, bytes) else { return self.unsupported(inst) };
        let mods: Vec<Mod> =
            [Mod::E, action].into_iter().chain(elements).chain([Mod::STRONG, Mod::SYS]).collect();
        // All of them are of the system.
        inst.moot(&[M::cta, M::cluster, M::sys]);
        let order =
            if inst.has(M::acquire) { Order::Acquire(crate::memory::scope(inst)) } else { Order::Weak };
        let a = self.addr_operand(&inst.operands[1])?;
        let mut address = self.address(inst, a, access::Space::Global, false)?;
        // Without a descriptor and with no uniform register, as ptxas has it.
        if let Operand::Addr { uniform, .. } = &mut address {
            *uniform = Some(Name::Phys(Reg::URZ));
        }
        let kept: Option<Value> =
            if self.guard == ALWAYS { None } else { Some(self.kept_words(&dsts, t, bytes)) };
        let v = match kept {
            Some(kept) => self.b.def_guarded(self.guard, Opcode::LDGMC, &mods, &[address], kept),
            None => self.b.def(Opcode::LDGMC, &mods, &[address]),
        };
        access::after(&mut self.b, order, self.guard);
        let words: Vec<Operand> = match bytes {
            4 => vec![operand(v)],
            n => (0..(n / 4) as u8).map(|i| operand(Name::Part(v, i))).collect(),
        };
        self.scatter(&dsts, t, &words);
        Ok(())
    }
}
