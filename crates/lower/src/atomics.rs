//! `atom` and `red`.

use crate::access::{self, AtomOp, Atomic, Order, Space};
use crate::emit::{Emit, Pair, rz};
use crate::func::{Lower, Result, ty};
use crate::types::{Src, Ty};
use cranelift_entity::SecondaryMap;
use ori::{ALWAYS, Function, Name, Op, Operand, Value, operand};
use ptx::{Inst, Mod as M, Op as O};
use sass::{Mod, Opcode};

/// Spelling of an arithmetic atomic on this type, if the hardware has it; `shared` has fewer.
fn arithmetic(op: M, t: ptx::Type, shared: bool) -> Option<&'static [Mod]> {
    use ptx::Type as T;
    Some(match (op, t) {
        (M::add, T::u32 | T::s32) => &[Mod::ADD],
        (M::add, T::u64) if !shared => &[Mod::ADD, Mod::_64],
        (M::add, T::f32) if !shared => &[Mod::ADD, Mod::F32, Mod::FTZ, Mod::RN],
        (M::add, T::f64) if !shared => &[Mod::ADD, Mod::F64, Mod::RN],
        (M::min, T::u32) => &[Mod::MIN],
        (M::min, T::s32) => &[Mod::MIN, Mod::S32],
        (M::min, T::u64) if !shared => &[Mod::MIN, Mod::_64],
        (M::min, T::s64) if !shared => &[Mod::MIN, Mod::S64],
        (M::max, T::u32) => &[Mod::MAX],
        (M::max, T::s32) => &[Mod::MAX, Mod::S32],
        (M::max, T::u64) if !shared => &[Mod::MAX, Mod::_64],
        (M::max, T::s64) if !shared => &[Mod::MAX, Mod::S64],
        (M::inc, T::u32) => &[Mod::INC],
        (M::dec, T::u32) => &[Mod::DEC],
        (M::and, T::b32) => &[Mod::AND],
        (M::or, T::b32) => &[Mod::OR],
        (M::xor, T::b32) => &[Mod::XOR],
        (M::and, T::b64) if !shared => &[Mod::AND, Mod::_64],
        (M::or, T::b64) if !shared => &[Mod::OR, Mod::_64],
        (M::xor, T::b64) if !shared => &[Mod::XOR, Mod::_64],
        _ => return None,
    })
}

/// Turns atomics whose result nobody reads into reductions, or lets them write RZ.
pub fn drop_results(func: &mut Function, used: &SecondaryMap<Value, bool>) {
    let red = if func.target.sm >= 90 { Opcode::REDG } else { Opcode::RED };
    for data in func.insts.values_mut() {
        let (Op::Sass(op @ (Opcode::ATOMG | Opcode::ATOM | Opcode::ATOMS)), mods) = (data.op, &data.mods)
        else {
            continue;
        };
        let at = usize::from(op != Opcode::ATOMS);
        let Some(v) = data.operands[at].as_reg().and_then(|r| r.reg.value()) else { continue };
        if used[v] {
            continue;
        }
        if op == Opcode::ATOMG && !mods.has(Mod::CAS) && !mods.has(Mod::EXCH) {
            data.op = Op::Sass(red);
            data.operands = data.operands[2..4].iter().cloned().collect();
            data.kept.clear();
        } else {
            data.operands[at] = rz();
            for k in &mut data.kept {
                if matches!(k, Name::Val(_)) {
                    *k = Name::Phys(sass::Reg::RZ);
                }
            }
        }
    }
}

impl Lower<'_, '_> {
    /// `atom` and `red`.
    pub fn atomic(&mut self, inst: &Inst) -> Result<()> {
        let is_atom = inst.op == O::atom;
        let pt_ty = inst.ty(0).ok_or("atomic without a type")?;
        let t = ty(pt_ty);
        let n = usize::from(is_atom);
        let a = self.addr_operand(&inst.operands[n])?;
        let (Some(space), None) = (
            self.access_space(inst, a),
            inst.one_of(&[M::shared_cluster, M::noftz, M::L2_cache_hint, M::_async]),
        ) else {
            return self.unsupported(inst);
        };
        if space == Space::Local || !matches!(t.bits, 32 | 64) {
            return self.unsupported(inst);
        }
        let ops = [M::add, M::min, M::max, M::inc, M::dec, M::and, M::or, M::xor, M::cas, M::exch];
        let op = inst.one_of(&ops).ok_or("atomic without an operation")?;
        let scope = crate::memory::scope(inst);
        let order = match inst.one_of(&[M::acquire, M::release, M::acq_rel]) {
            Some(M::acquire) => Order::Acquire(scope),
            Some(M::release) => Order::Release(scope),
            Some(M::acq_rel) => Order::AcqRel(scope),
            _ => Order::Strong(scope),
        };
        let x = self.src(&inst.operands[n + 1], t)?;
        let y = if op == M::cas { Some(self.src(&inst.operands[n + 2], t)?) } else { None };
        let dst = match &inst.operands[0] {
            ptx::Operand::Reg(r) if is_atom => Some(*r),
            ptx::Operand::Sink | ptx::Operand::Addr(_) => None,
            _ => return self.unsupported(inst),
        };
        let hardware = match op {
            M::cas => Some(AtomOp::Cas),
            M::exch => Some(AtomOp::Exch),
            op => arithmetic(op, pt_ty, space == Space::Shared).map(AtomOp::Arith),
        };
        let wide = t.bits == 64;
        let Some(op) = hardware else {
            // Shared memory has only a compare-and-swap for these.
            let address = self.address(a, space, false)?;
            let spec = Atomic { space, op: AtomOp::Cas, wide, scope };
            return self.branch_around(|l| {
                access::before(&mut l.b, order, ALWAYS);
                let old = l.emulated(&spec, &address, op, t, &x)?;
                access::after(&mut l.b, order, ALWAYS);
                if let Some(d) = dst {
                    l.write(d, old);
                }
                Ok(())
            });
        };
        let spec = Atomic { space, op, wide, scope };
        // Compare-and-swap takes no descriptor.
        let address = self.address(a, space, op != AtomOp::Cas)?;
        let mut data = vec![self.atomic_data(&x, wide)];
        if let Some(y) = &y {
            data.push(self.atomic_data(y, wide));
        }
        access::before(&mut self.b, order, self.guard);
        match dst {
            Some(d) => {
                let kept = if self.guard == ALWAYS { None } else { Some(self.read(d)) };
                let v = access::atom(&mut self.b, &spec, address, &data, self.guard, kept);
                access::after(&mut self.b, order, self.guard);
                self.write(d, v);
            }
            None => {
                access::red(&mut self.b, &spec, address, &data, self.guard);
                access::after(&mut self.b, order, self.guard);
            }
        }
        Ok(())
    }

    fn atomic_data(&mut self, s: &Src, wide: bool) -> Operand {
        if wide { operand(self.b.pair(&s.pair())) } else { operand(self.b.reg(&s.low())) }
    }

    /// An operation on shared memory as a compare-and-swap loop.
    fn emulated(&mut self, spec: &Atomic, address: &Operand, op: M, t: Ty, x: &Src) -> Result<Value> {
        let load = access::Access {
            space: spec.space,
            size: t.bits / 8,
            signed: false,
            order: Order::Weak,
            evict: None,
            constant: false,
        };
        if spec.space != Space::Shared {
            return Err("atomic operation that the hardware lacks".into());
        }
        // Operands are computed before the loop.
        let x = if spec.wide {
            Src::Wide(Pair::of(self.b.pair(&x.pair())))
        } else {
            Src::Narrow(operand(self.b.reg(&x.low())))
        };
        let kind: fn(&mut ori::Builder<'_>, M, Ty, &Src, &Src) -> Option<Value> = |b, op, t, old, x| {
            Some(match (op, t.is_float(), t.bits) {
                (M::add, true, 32) => b.def(Opcode::FADD, &[], &[old.low(), x.low()]),
                (M::add, true, _) => {
                    let (old, x) = (b.pair(&old.pair()), b.pair(&x.pair()));
                    b.def(Opcode::DADD, &[], &[operand(old), operand(x)])
                }
                (M::add, false, 64) => b.add64(&old.pair(), &x.pair()),
                (M::min | M::max, false, 64) => {
                    crate::convert::minmax64(b, op == M::max, t.is_signed(), &old.pair(), &x.pair())
                }
                (M::and, false, 64) => crate::wide::logic64(b, 0xc0, &old.pair(), &x.pair()),
                (M::or, false, 64) => crate::wide::logic64(b, 0xfc, &old.pair(), &x.pair()),
                (M::xor, false, 64) => crate::wide::logic64(b, 0x3c, &old.pair(), &x.pair()),
                _ => return None,
            })
        };
        let first = access::load(&mut self.b, &load, address.clone(), ALWAYS, None);
        let mut known = true;
        let old = access::cas_loop(&mut self.b, spec, address, first, |b, old| {
            let old = if t.bits == 64 { Src::Wide(Pair::of(old)) } else { Src::Narrow(operand(old)) };
            kind(b, op, t, &old, &x).unwrap_or_else(|| {
                known = false;
                b.reg(&rz())
            })
        });
        if known { Ok(old) } else { Err("atomic operation that is not supported yet".into()) }
    }
}
