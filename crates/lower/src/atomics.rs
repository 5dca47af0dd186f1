//! `atom` and `red`.

use crate::access::{self, AtomOp, Atomic, Order, Space};
use crate::emit::{Emit, Pair, imm, rz};
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{ALWAYS, BlockCall, Builder, Name, Operand, Terminator, Value, operand};
use ptx::{Mod as M, Op as O};
use sass::{Mod, Opcode, RegFile};
use smallvec::SmallVec;

/// Spelling of an arithmetic atomic on this type; `shared` memory has fewer.
fn arithmetic(op: M, t: ptx::Type, shared: bool) -> Option<&'static [Mod]> {
    use ptx::Type as T;
    Some(match (op, t) {
        (M::add, T::u32 | T::s32) => &[Mod::ADD],
        (M::min, T::u32) => &[Mod::MIN],
        (M::min, T::s32) => &[Mod::MIN, Mod::S32],
        (M::max, T::u32) => &[Mod::MAX],
        (M::max, T::s32) => &[Mod::MAX, Mod::S32],
        (M::inc, T::u32) => &[Mod::INC],
        (M::dec, T::u32) => &[Mod::DEC],
        (M::and, T::b32) => &[Mod::AND],
        (M::or, T::b32) => &[Mod::OR],
        (M::xor, T::b32) => &[Mod::XOR],
        _ if shared => return None,
        (M::add, T::u64 | T::s64) => &[Mod::ADD, Mod::_64],
        (M::add, T::f32) => &[Mod::ADD, Mod::F32, Mod::FTZ, Mod::RN],
        (M::add, T::f64) => &[Mod::ADD, Mod::F64, Mod::RN],
        (M::add, T::f16x2) => &[Mod::ADD, Mod::F16x2, Mod::RN],
        (M::add, T::bf16x2) => &[Mod::ADD, Mod::BF16x2, Mod::RN],
        (M::min, T::u64) => &[Mod::MIN, Mod::_64],
        (M::min, T::s64) => &[Mod::MIN, Mod::S64],
        (M::max, T::u64) => &[Mod::MAX, Mod::_64],
        (M::max, T::s64) => &[Mod::MAX, Mod::S64],
        (M::and, T::b64) => &[Mod::AND, Mod::_64],
        (M::or, T::b64) => &[Mod::OR, Mod::_64],
        (M::xor, T::b64) => &[Mod::XOR, Mod::_64],
        _ => return None,
    })
}

/// Spelling of an operation on a vector of floating-point numbers with this many bytes.
fn vector_operation(op: M, t: ptx::Type, bytes: usize) -> Option<&'static [Mod]> {
    use ptx::Type as T;
    let half: &'static [Mod] = match (t, bytes) {
        (T::f32, 8) => return (op == M::add).then_some(&[Mod::ADD, Mod::F32x2, Mod::FTZ, Mod::RN]),
        (T::f32, 16) => return (op == M::add).then_some(&[Mod::ADD, Mod::F32x4, Mod::FTZ, Mod::RN]),
        (T::f16 | T::f16x2, 4) => {
            &[Mod::ADD, Mod::F16x2, Mod::RN, Mod::MIN, Mod::F16x2, Mod::RN, Mod::MAX, Mod::F16x2, Mod::RN]
        }
        (T::f16 | T::f16x2, 8) => {
            &[Mod::ADD, Mod::F16x4, Mod::RN, Mod::MIN, Mod::F16x4, Mod::RN, Mod::MAX, Mod::F16x4, Mod::RN]
        }
        (T::f16 | T::f16x2, 16) => {
            &[Mod::ADD, Mod::F16x8, Mod::RN, Mod::MIN, Mod::F16x8, Mod::RN, Mod::MAX, Mod::F16x8, Mod::RN]
        }
        (T::bf16 | T::bf16x2, 4) => {
            &[Mod::ADD, Mod::BF16x2, Mod::RN, Mod::MIN, Mod::BF16x2, Mod::RN, Mod::MAX, Mod::BF16x2, Mod::RN]
        }
        (T::bf16 | T::bf16x2, 8) => {
            &[Mod::ADD, Mod::BF16x4, Mod::RN, Mod::MIN, Mod::BF16x4, Mod::RN, Mod::MAX, Mod::BF16x4, Mod::RN]
        }
        (T::bf16 | T::bf16x2, 16) => {
            &[Mod::ADD, Mod::BF16x8, Mod::RN, Mod::MIN, Mod::BF16x8, Mod::RN, Mod::MAX, Mod::BF16x8, Mod::RN]
        }
        _ => return None,
    };
    match op {
        M::add => Some(&half[..3]),
        M::min => Some(&half[3..6]),
        M::max => Some(&half[6..]),
        _ => None,
    }
}

/// `op(old, x)` in registers.
fn compute(b: &mut Builder<'_>, op: M, t: ptx::Type, old: &Src, x: &Src) -> Option<Value> {
    use ptx::Type as T;
    let bf16 = |b: &mut Builder<'_>| {
        // x * 1 + old, which rounds once.
        let one = b.copy(imm(0x3f80_3f80));
        b.def(Opcode::HFMA2, &[Mod::BF16_V2], &[x.low(), operand(one), old.low()])
    };
    let signed = matches!(t, T::s64);
    Some(match (op, t) {
        (M::add, T::f32) => b.def(Opcode::FADD, &[], &[old.low(), x.low()]),
        (M::add, T::f64) => {
            let (old, x) = (b.pair(&old.pair()), b.pair(&x.pair()));
            b.def(Opcode::DADD, &[], &[operand(old), operand(x)])
        }
        (M::add, T::f16 | T::f16x2) => b.def(Opcode::HADD2, &[], &[old.low(), x.low()]),
        (M::add, T::bf16 | T::bf16x2) => bf16(b),
        (M::add, T::u64 | T::s64) => b.add64(&old.pair(), &x.pair()),
        (M::min | M::max, T::u64 | T::s64) => {
            crate::convert::minmax64(b, op == M::max, signed, &old.pair(), &x.pair())
        }
        (M::and, T::b64) => crate::wide::logic64(b, 0xc0, &old.pair(), &x.pair()),
        (M::or, T::b64) => crate::wide::logic64(b, 0xfc, &old.pair(), &x.pair()),
        (M::xor, T::b64) => crate::wide::logic64(b, 0x3c, &old.pair(), &x.pair()),
        _ => return None,
    })
}

/// What an `atom` or `red` says.
struct Request<'i> {
    inst: &'i Statement<'i>,
    address: &'i ptx::Addr,
    space: Space,
    op: M,
    ty: ptx::Type,
    scope: access::Scope,
    order: Order,
}

impl Lower<'_, '_> {
    /// `atom` and `red`.
    pub fn atomic(&mut self, inst: &Statement<'_>) -> Result<()> {
        if inst.has(M::_async) && inst.operands.len() > 2 {
            return self.red_async(inst);
        }
        if inst.has(M::mmio) {
            return self.unsupported(inst);
        }
        let is_atom = inst.op == O::atom;
        let pt_ty = inst.ty(0).ok_or("atomic without a type")?;
        let n = usize::from(is_atom);
        let a = self.addr_operand(&inst.operands[n])?;
        let space = if inst.op == O::multimem { Some(Space::Global) } else { self.access_space(inst, a) };
        let Some(space) = space else { return self.unsupported(inst) };
        if space == Space::Local {
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
        let r = Request { inst, address: a, space, op, ty: pt_ty, scope, order };
        if inst.one_of(&[M::v2, M::v4, M::v8]).is_some() {
            return self.vector_atomic(&r);
        }
        let t = ty(pt_ty);
        let dst = match &inst.operands[0] {
            ptx::Operand::Reg(r) if is_atom => Some(*r),
            ptx::Operand::Sink | ptx::Operand::Addr(_) => None,
            _ => return self.unsupported(inst),
        };
        // Packed halves are 32 bits to a register.
        let bits =
            Ty { kind: if t.is_int() || t.bits >= 32 && t.is_float() { t.kind } else { Kind::Bits }, ..t };
        let x = self.src(&inst.operands[n + 1], bits)?;
        let y = if op == M::cas { Some(self.src(&inst.operands[n + 2], bits)?) } else { None };
        if t.bits == 16 {
            return self.branch_around(|l| l.half_atomic(&r, dst, &x, y.as_ref()));
        }
        let words = t.bits / 32;
        let shared = space == Space::Shared;
        let hardware = match op {
            M::cas => Some(AtomOp::Cas),
            M::exch => Some(AtomOp::Exch),
            op => arithmetic(op, pt_ty, shared).map(AtomOp::Arith),
        };
        let Some(op) = hardware else {
            // Shared memory has only a compare-and-swap for these.
            return self.by_swapping(&r, words, dst, &x);
        };
        let spec = Atomic { space, op, words, scope };
        let partial = matches!(op, AtomOp::Arith(_)) && arithmetic(r.op, pt_ty, true).is_none();
        if space == Space::Generic && partial && inst.has(M::shared_cluster) {
            return self.by_swapping(&r, words, dst, &x);
        }
        if space == Space::Generic && partial {
            return self.branch_around(|l| l.generic_atomic(&r, &spec, dst, &x));
        }
        if space == Space::Generic && words == 2 && matches!(op, AtomOp::Cas | AtomOp::Exch) {
            return self.branch_around(|l| l.generic_swap(&r, &spec, dst, &x, y.as_ref()));
        }
        // Compare-and-swap takes no descriptor.
        let address = self.address(inst, a, space, op != AtomOp::Cas)?;
        let mut data = vec![self.atomic_data(&x, words)];
        if let Some(y) = &y {
            data.push(self.atomic_data(y, words));
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
                access::red(&mut self.b, &spec, order, address, &data, self.guard);
                access::after(&mut self.b, order, self.guard);
            }
        }
        Ok(())
    }

    /// An operation that the memory does not have: a compare-and-swap loop with its order around it.
    fn by_swapping(&mut self, r: &Request<'_>, words: u8, dst: Option<ptx::RegId>, x: &Src) -> Result<()> {
        self.branch_around(|l| {
            let address = l.address(r.inst, r.address, r.space, false)?;
            let spec = Atomic { space: r.space, op: AtomOp::Cas, words, scope: r.scope };
            access::before(&mut l.b, r.order, ALWAYS);
            let old = l.emulated(&spec, &address, r, x)?;
            access::after(&mut l.b, r.order, ALWAYS);
            if let Some(d) = dst {
                l.write(d, old);
            }
            Ok(())
        })
    }

    fn atomic_data(&mut self, s: &Src, words: u8) -> Operand {
        match (words, s) {
            (4, Src::Quad(v)) => operand(*v),
            (2, s) => operand(self.b.pair(&s.pair())),
            (_, s) => operand(self.b.reg(&s.low())),
        }
    }

    /// An operation on a generic address that the hardware has for global memory only: it says whether it
    /// was done; otherwise the address is in shared memory, where a compare-and-swap does it.
    fn generic_atomic(
        &mut self,
        r: &Request<'_>,
        spec: &Atomic,
        dst: Option<ptx::RegId>,
        x: &Src,
    ) -> Result<()> {
        let address = self.address(r.inst, r.address, Space::Generic, true)?;
        let plain = match &address {
            Operand::Addr { base, width, offset, .. } => {
                Operand::Addr { desc: None, base: *base, width: *width, uniform: None, offset: *offset }
            }
            _ => return self.unsupported(r.inst),
        };
        let data = self.atomic_data(x, spec.words);
        access::before(&mut self.b, r.order, ALWAYS);
        let old = self.attempt(spec, address, &[data], |l| {
            let loop_spec = Atomic { op: AtomOp::Cas, ..*spec };
            l.emulated(&loop_spec, &plain, r, x)
        })?;
        access::after(&mut self.b, r.order, ALWAYS);
        if let Some(d) = dst {
            self.write(d, old);
        }
        Ok(())
    }

    /// An operation that says whether the memory at the address has it; where it has not, `otherwise` finds the old value. The old value.
    fn attempt(
        &mut self,
        spec: &Atomic,
        address: Operand,
        data: &[Operand],
        otherwise: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        let (fast, done) = access::try_atom(&mut self.b, spec, address, data);
        let (slow, join) = (self.b.func.add_block(), self.b.func.add_block());
        let old = self.b.func.add_value(RegFile::R, spec.words);
        self.b.func.blocks[join].params.push(old);
        self.b.terminate(Terminator::Branch {
            cond: done.into(),
            not: false,
            taken: BlockCall { block: join, args: SmallVec::from_slice(&[fast]) },
            fall: Builder::call(slow),
        });
        self.b.block = slow;
        let seen = otherwise(self)?;
        self.b.terminate(Terminator::Jump(BlockCall { block: join, args: SmallVec::from_slice(&[seen]) }));
        self.b.block = join;
        Ok(old)
    }

    /// A 64-bit exchange or compare-and-swap on a generic address: in local memory, which has none, it is a load and a store, as
    /// ptxas has it.
    fn generic_swap(
        &mut self,
        r: &Request<'_>,
        spec: &Atomic,
        dst: Option<ptx::RegId>,
        x: &Src,
        y: Option<&Src>,
    ) -> Result<()> {
        // Compare-and-swap takes no descriptor.
        let address = self.address(r.inst, r.address, Space::Generic, spec.op != AtomOp::Cas)?;
        let data: Vec<Operand> =
            std::iter::once(x).chain(y).map(|s| self.atomic_data(s, spec.words)).collect();
        access::before(&mut self.b, r.order, ALWAYS);
        let plain = self.plain_load(spec);
        let old = self.attempt(spec, address, &data, |l| {
            let seen = access::load(&mut l.b, &plain, address, ALWAYS, None);
            let new = match y {
                Some(y) => {
                    let equal = l.b.isetp64(Mod::EQ, false, &Pair::of(seen), &x.pair());
                    operand(l.b.sel64(operand(equal), &y.pair(), &Pair::of(seen)))
                }
                None => data[0],
            };
            access::store(&mut l.b, &plain, address, new, ALWAYS);
            Ok(seen)
        })?;
        access::after(&mut self.b, r.order, ALWAYS);
        if let Some(d) = dst {
            self.write(d, old);
        }
        Ok(())
    }

    /// A vector of floating-point operations, each atomic.
    fn vector_atomic(&mut self, r: &Request<'_>) -> Result<()> {
        let inst = r.inst;
        let global = matches!(r.space, Space::Global | Space::Generic) && !inst.has(M::shared_cluster);
        if !global || self.sm() < 90 {
            return self.unsupported(inst);
        }
        let n = usize::from(inst.op == O::atom);
        let t = ty(r.ty);
        let ptx::Operand::Vector(elems) = &inst.operands[n + 1] else { return self.unsupported(inst) };
        let bytes = elems.len() * usize::from(t.bits) / 8;
        let mods = vector_operation(r.op, r.ty, bytes).ok_or("vector atomic of an unknown shape")?;
        let bits = Ty { kind: Kind::Bits, ..t };
        let mut sources = Vec::new();
        for e in elems {
            sources.push(self.elem(e, bits)?);
        }
        let data = match (&sources[..], bytes) {
            ([one], 4) => one.low(),
            (many, _) => operand(self.pack_words(t.bits, many)?),
        };
        let data = operand_in_register(&mut self.b, data);
        let words = (bytes / 4) as u8;
        let spec = Atomic { space: r.space, op: AtomOp::Arith(mods), words, scope: r.scope };
        let dsts = if n == 1 { crate::memory::destinations(inst)? } else { Vec::new() };
        self.branch_around(|l| {
            let address = l.address(inst, r.address, r.space, true)?;
            access::before(&mut l.b, r.order, ALWAYS);
            if dsts.iter().all(Option::is_none) {
                access::red(&mut l.b, &spec, r.order, address, &[data], ALWAYS);
                access::after(&mut l.b, r.order, ALWAYS);
                return Ok(());
            }
            let v = access::atom(&mut l.b, &spec, address, &[data], ALWAYS, None);
            access::after(&mut l.b, r.order, ALWAYS);
            let parts: Vec<Operand> = match words {
                1 => vec![operand(v)],
                w => (0..w).map(|i| operand(Name::Part(v, i))).collect(),
            };
            l.scatter(&dsts, bits, &parts);
            Ok(())
        })
    }

    /// A 16-bit operation: a compare-and-swap loop on the word around it.
    fn half_atomic(
        &mut self,
        r: &Request<'_>,
        dst: Option<ptx::RegId>,
        x: &Src,
        y: Option<&Src>,
    ) -> Result<()> {
        let at = self.address(r.inst, r.address, r.space, false)?;
        let Operand::Addr { base, width, offset, .. } = at else { return self.unsupported(r.inst) };
        // The address of the half, then of its word.
        let (low, high) = match base {
            Some(Name::Val(v)) if self.b.func.values[v].width == 2 => {
                let sum = self.b.add64(&Pair::of(v), &Pair::imm(i64::from(offset) as u64));
                (operand(Name::Part(sum, 0)), Some(operand(Name::Part(sum, 1))))
            }
            Some(n) => (operand(self.b.iadd(operand(n), imm(offset as u32))), None),
            None => (operand(self.b.reg(&imm(offset as u32))), None),
        };
        let word = self.b.and(low, imm(!3));
        let word = match high {
            Some(h) => self.b.collect(&[operand(word), h]),
            None => word,
        };
        let address =
            Operand::Addr { desc: None, base: Some(Name::Val(word)), width, uniform: None, offset: 0 };
        let bit = self.b.and(low, imm(2));
        let shift = self.b.shl(operand(bit), imm(3));
        let upper = self.b.isetp(Mod::NE, false, operand(bit), rz());
        // Takes the new half from the second source.
        let insert = self.b.sel(operand(upper), imm(0x5410), imm(0x3254));
        let insert = operand(insert);
        let x = operand(self.b.reg(&x.low()));
        let spec = Atomic { space: r.space, op: AtomOp::Cas, words: 1, scope: r.scope };
        let load = self.plain_load(&spec);
        access::before(&mut self.b, r.order, ALWAYS);
        let first = access::load(&mut self.b, &load, address, ALWAYS, None);
        let old_half = |b: &mut Builder<'_>, old: Value| b.shr(false, operand(old), operand(shift));
        let seen = match y {
            None => {
                let mut known = true;
                let v = access::cas_loop(&mut self.b, &spec, &address, first, |b, old| {
                    let half = old_half(b, old);
                    let new = compute(b, r.op, r.ty, &Src::Narrow(operand(half)), &Src::Narrow(x));
                    known = new.is_some();
                    let new = new.unwrap_or(half);
                    b.prmt(operand(old), insert, operand(new))
                });
                if !known {
                    return self.unsupported(r.inst);
                }
                v
            }
            Some(y) => {
                let y = operand(self.b.reg(&y.low()));
                self.half_cas(&spec, &address, first, [&x, &y], insert)
            }
        };
        access::after(&mut self.b, r.order, ALWAYS);
        if let Some(d) = dst {
            let half = old_half(&mut self.b, seen);
            let half = self.b.and(operand(half), imm(0xffff));
            self.write(d, half);
        }
        Ok(())
    }

    /// Swaps a half of a word if it is as expected; repeats where the other half was not as it was thought to be. As in ptxas's code, the
    /// swap is tried in any case, so that what is returned was read by it, and not by the weak load that says what the other half may be.
    fn half_cas(
        &mut self,
        spec: &Atomic,
        address: &Operand,
        first: Value,
        [expected, new]: [&Operand; 2],
        insert: Operand,
    ) -> Value {
        let b = &mut self.b;
        let (head, done) = (b.func.add_block(), b.func.add_block());
        let old = b.func.add_value(RegFile::R, 1);
        b.func.blocks[head].params.push(old);
        b.terminate(Terminator::Jump(BlockCall { block: head, args: SmallVec::from_slice(&[first]) }));
        b.block = head;
        let swapped = b.prmt(operand(old), insert, *new);
        let wanted = b.prmt(operand(old), insert, *expected);
        let seen = access::atom(b, spec, *address, &[operand(wanted), operand(swapped)], ALWAYS, None);
        let [thought, other] = [wanted, seen].map(|v| b.prmt(operand(v), insert, rz()));
        let changed = b.isetp(Mod::NE, false, operand(other), operand(thought));
        b.terminate(Terminator::Branch {
            cond: changed.into(),
            not: false,
            taken: BlockCall { block: head, args: SmallVec::from_slice(&[seen]) },
            fall: Builder::call(done),
        });
        b.block = done;
        seen
    }

    fn plain_load(&self, spec: &Atomic) -> access::Access {
        access::Access {
            space: spec.space,
            size: 4 * spec.words,
            signed: false,
            order: Order::Weak,
            mmio: false,
            evict: None,
            prefetch: None,
            constant: false,
            collective: false,
        }
    }

    /// An operation as a compare-and-swap loop.
    fn emulated(&mut self, spec: &Atomic, address: &Operand, r: &Request<'_>, x: &Src) -> Result<Value> {
        // Operands are computed before the loop.
        let x = if spec.words == 2 {
            Src::Wide(Pair::of(self.b.pair(&x.pair())))
        } else {
            Src::Narrow(operand(self.b.reg(&x.low())))
        };
        let load = self.plain_load(spec);
        let first = access::load(&mut self.b, &load, *address, ALWAYS, None);
        let mut known = true;
        let words = spec.words;
        let old = access::cas_loop(&mut self.b, spec, address, first, |b, old| {
            let old = if words == 2 { Src::Wide(Pair::of(old)) } else { Src::Narrow(operand(old)) };
            compute(b, r.op, r.ty, &old, &x).unwrap_or_else(|| {
                known = false;
                if words == 2 { b.pair(&old.pair()) } else { b.reg(&rz()) }
            })
        });
        if known { Ok(old) } else { self.unsupported(r.inst) }
    }
}

/// The operand in a register, if it is none.
fn operand_in_register(b: &mut Builder<'_>, o: Operand) -> Operand {
    match o {
        Operand::Reg(_) => o,
        o => operand(b.reg(&o)),
    }
}
