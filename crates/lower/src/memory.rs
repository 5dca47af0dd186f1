//! Loads and stores: state spaces, vectors, register widths.

use crate::access::{self, Access, Order, Scope, Space as AccessSpace};
use crate::emit::{Emit, Pair, imm, rz};
use crate::func::{Lower, Result, ty};
use crate::statement::Statement;
use crate::types::{Kind, Src, Ty};
use ori::{ALWAYS, Name, Operand, Value, operand};
use ptx::{AddrBase, Mod as M, RegId, Space, VectorElem};
use sass::{Mod, Opcode};

/// The scope among the modifiers; `gpu` if none is given.
pub fn scope(inst: &Statement<'_>) -> Scope {
    match inst.one_of(&[M::cta, M::cluster, M::sys]) {
        Some(M::cta) => Scope::Cta,
        Some(M::cluster) => Scope::Cluster,
        Some(M::sys) => Scope::Sys,
        // Other devices have a part in a multicast object.
        None if inst.op == ptx::Op::multimem && !inst.has(M::gpu) => Scope::Sys,
        _ => Scope::Gpu,
    }
}

/// The state space of an access: the modifier's, or that of the variable it starts from, or generic.
fn space_of(l: &Lower<'_, '_>, inst: &Statement<'_>, a: &ptx::Addr) -> Option<Space> {
    let named = inst.find(|m| {
        Some(match m {
            M::global => Space::Global,
            M::shared | M::shared_cta => Space::Shared,
            M::local => Space::Local,
            M::_const => Space::Const,
            M::param | M::param_entry | M::param_func => Space::Param,
            _ => return None,
        })
    });
    if let AddrBase::Var(v) = a.base
        && l.homes.contains_key(&v)
    {
        return Some(Space::Local);
    }
    // The address of a device function's parameter is one of local memory.
    let own = inst.one_of(&[M::param, M::param_func]).is_some();
    if own && matches!(a.base, AddrBase::Reg(_)) && !l.module.funcs[l.id].entry {
        return Some(Space::Local);
    }
    named.or(match a.base {
        AddrBase::Var(v) => {
            // A variable is that of the own CTA.
            inst.moot(&[M::shared_cluster]);
            Some(l.module.vars[v].space)
        }
        _ => None,
    })
}

/// Words for parameters. Of one that is in registers the name says which it is.
const PARAMETERS: &[M] = &[M::param, M::param_entry, M::param_func];

/// Memory order, eviction priority and whether the data is read-only.
fn access_of(inst: &Statement<'_>, space: AccessSpace, size: u8, signed: bool) -> Access {
    // What a thread keeps to itself has no order but the program's.
    let private = space == AccessSpace::Local && inst.has(M::volatile);
    let order = if inst.has(M::nc) || private {
        Order::Weak
    } else if inst.has(M::_async) {
        Order::Release(scope(inst))
    } else if inst.has(M::volatile) {
        Order::Strong(Scope::Sys)
    } else if inst.has(M::relaxed) {
        Order::Strong(scope(inst))
    } else if inst.has(M::acquire) {
        Order::Acquire(scope(inst))
    } else if inst.has(M::release) {
        Order::Release(scope(inst))
    } else if inst.has(M::cg) {
        Order::Strong(Scope::Gpu)
    } else if inst.has(M::cv) || inst.has(M::wt) {
        Order::Strong(Scope::Sys)
    } else if matches!(space, AccessSpace::Global | AccessSpace::Generic)
        && (inst.has(M::ca) || inst.has(M::wb))
    {
        // Said, and not only meant: as ptxas has it.
        Order::Strong(Scope::Cta)
    } else {
        Order::Weak
    };
    let evict = inst.find(|m| {
        Some(match m {
            M::cs | M::L1_evict_first => Mod::EF,
            M::L1_evict_last => Mod::EL,
            M::L1_no_allocate => Mod::NA,
            M::L1_evict_unchanged => Mod::EU,
            M::lu => Mod::LU,
            _ => return None,
        })
    });
    let constant = inst.has(M::nc);
    // Asynchronous stores are other instructions.
    let mmio = !inst.has(M::_async) && inst.has(M::mmio);
    Access {
        space,
        size,
        signed,
        order,
        mmio,
        evict,
        prefetch: prefetch_size(inst),
        constant,
        collective: false,
    }
}

/// How much the L2 cache is asked to fetch.
pub fn prefetch_size(inst: &Statement<'_>) -> Option<Mod> {
    inst.find(|m| {
        Some(match m {
            M::L2_64B => Mod::LTC64B,
            M::L2_128B => Mod::LTC128B,
            M::L2_256B => Mod::LTC256B,
            _ => return None,
        })
    })
}

/// L2 eviction priority, as accesses of 256 bits spell it.
fn l2_evict(inst: &Statement<'_>) -> Mod {
    match inst.one_of(&[M::L2_evict_first, M::L2_evict_last]) {
        Some(M::L2_evict_first) => Mod::EFL2,
        Some(_) => Mod::ELL2,
        None => Mod::ENL2,
    }
}

/// What a load writes, element by element; `None` for `_`.
pub(crate) fn destinations(inst: &Statement<'_>) -> Result<Vec<Option<RegId>>> {
    match &inst.operands[0] {
        ptx::Operand::Reg(r) => Ok(vec![Some(*r)]),
        ptx::Operand::Sink => Ok(vec![None]),
        ptx::Operand::Vector(v) | ptx::Operand::Resident(v, _) => v
            .iter()
            .map(|e| match e {
                VectorElem::Reg(r) => Ok(Some(*r)),
                VectorElem::Sink => Ok(None),
                _ => Err("a constant cannot be written".into()),
            })
            .collect(),
        _ => Err("destination is not a register".into()),
    }
}

fn addr(o: &ptx::Operand) -> Result<&ptx::Addr> {
    match o {
        ptx::Operand::Addr(a) => Ok(a),
        _ => Err("an address is needed".into()),
    }
}

fn access_space(space: Option<Space>) -> Option<AccessSpace> {
    Some(match space {
        None => AccessSpace::Generic,
        Some(Space::Global) => AccessSpace::Global,
        Some(Space::Shared) => AccessSpace::Shared,
        Some(Space::Local) => AccessSpace::Local,
        _ => return None,
    })
}

/// The words of two values of 64 bits.
fn parts(halves: [Value; 2]) -> [Operand; 4] {
    [0, 1, 2, 3].map(|i| operand(Name::Part(halves[i / 2], (i % 2) as u8)))
}

impl Lower<'_, '_> {
    /// The address as an operand of a memory instruction.
    pub fn address(
        &mut self,
        inst: &Statement<'_>,
        a: &ptx::Addr,
        space: AccessSpace,
        descriptor: bool,
    ) -> Result<Operand> {
        Ok(match space {
            AccessSpace::Generic if inst.has(M::shared_cluster) => self.cluster_address(a)?,
            AccessSpace::Generic | AccessSpace::Global => {
                // Atomic operations have a bit less from sm_100 on.
                let short = matches!(inst.op, ptx::Op::atom | ptx::Op::red) && self.sm() >= 100;
                let at = if short { self.address64_within(a, 23)? } else { self.address64(a)? };
                let desc = if descriptor { self.desc() } else { None };
                at.operand(desc)
            }
            AccessSpace::Shared => self.address32(a, Space::Shared)?.operand(None),
            AccessSpace::Local => self.address32(a, Space::Local)?.operand(None),
        })
    }

    /// `ld`.
    pub fn ld(&mut self, inst: &Statement<'_>) -> Result<()> {
        let t = ty(inst.ty(0).ok_or("load without a type")?);
        let a = addr(&inst.operands[1])?;
        let dsts = destinations(inst)?;
        if let Some(words) = self.param_words(a) {
            inst.moot(PARAMETERS);
            return self.ld_words(words, a.offset, t, &dsts);
        }
        let space = space_of(self, inst, a);
        let Some(space) = access_space(space) else {
            return self.ld_const(inst, t, a, &dsts);
        };
        let total = u32::from(t.bits) / 8 * dsts.len() as u32;
        if total == 32 && matches!(space, AccessSpace::Global | AccessSpace::Generic) {
            return self.ld_256(inst, t, a, &dsts);
        }
        if !matches!(total, 1 | 2 | 4 | 8 | 16) {
            return self.unsupported(inst);
        }
        if self.is_split(a, total) {
            return self.branch_around(|l| {
                let words = l.ld_split(a, total)?;
                l.scatter(&dsts, t, &words);
                Ok(())
            });
        }
        let signed = t.is_signed() && dsts.len() == 1;
        let acc = access_of(inst, space, total as u8, signed);
        let address = self.address(inst, a, space, !acc.mmio)?;
        if let [Some(d)] = dsts[..]
            && t.bits <= 64
            && self.shape(d).width == t.width()
        {
            // The register is the result: the load itself takes the guard.
            let kept = if self.guard == ALWAYS { None } else { Some(self.read(d)) };
            let v = access::load(&mut self.b, &acc, address, self.guard, kept);
            access::after(&mut self.b, acc.order, self.guard);
            self.write(d, v);
            return Ok(());
        }
        let kept = if self.guard == ALWAYS { None } else { Some(self.kept_words(&dsts, t, total)) };
        let v = access::load(&mut self.b, &acc, address, self.guard, kept);
        access::after(&mut self.b, acc.order, self.guard);
        let words: Vec<Operand> = match total {
            8 => (0..2).map(|i| operand(Name::Part(v, i))).collect(),
            16 => (0..4).map(|i| operand(Name::Part(v, i))).collect(),
            _ => vec![operand(v)],
        };
        self.scatter(&dsts, t, &words);
        Ok(())
    }

    /// `ld` of 256 bits: two results of four registers. Such an access is to global memory, whatever it says.
    fn ld_256(&mut self, inst: &Statement<'_>, t: Ty, a: &ptx::Addr, dsts: &[Option<RegId>]) -> Result<()> {
        let acc = access_of(inst, AccessSpace::Global, 32, false);
        let address = self.address_256(a)?;
        let halves = dsts.chunks(dsts.len() / 2);
        let kept = match self.guard == ALWAYS {
            true => None,
            false => {
                let words: Vec<Value> = halves.map(|h| self.kept_words(h, t, 16)).collect();
                Some([words[0], words[1]])
            }
        };
        let [low, high] = access::load_256(&mut self.b, &acc, l2_evict(inst), address, self.guard, kept);
        access::after(&mut self.b, acc.order, self.guard);
        let words: Vec<Operand> =
            (0..8).map(|i| operand(Name::Part(if i < 4 { low } else { high }, i % 4))).collect();
        self.scatter(dsts, t, &words);
        Ok(())
    }

    /// `st.global` of 256 bits.
    fn st_256(&mut self, inst: &Statement<'_>, a: &ptx::Addr, sources: &[Src]) -> Result<()> {
        let words: Vec<Operand> = match sources.len() {
            8 => sources.iter().map(Src::low).collect(),
            _ => sources.iter().flat_map(|s| [s.pair().lo, s.pair().hi]).collect(),
        };
        let data = [0, 4].map(|i| self.b.collect(&words[i..i + 4]));
        let acc = access_of(inst, AccessSpace::Global, 32, false);
        let address = self.address_256(a)?;
        access::before(&mut self.b, acc.order, self.guard);
        access::store_256(&mut self.b, &acc, l2_evict(inst), address, data, self.guard);
        Ok(())
    }

    /// The address of an access of 256 bits, which has less room for the offset.
    fn address_256(&mut self, a: &ptx::Addr) -> Result<Operand> {
        let mut at = self.address64(a)?;
        // The offset is counted in units of 32 bytes, in 17 bits.
        if !(-0x20_0000..0x20_0000).contains(&at.offset) || at.offset % 32 != 0 {
            let base = at.base.and_then(Name::value).ok_or("address without a base")?;
            let sum = self.b.add64(&Pair::of(base), &Pair::imm(i64::from(at.offset) as u64));
            at = access::Address { base: Some(Name::Val(sum)), wide: true, offset: 0 };
        }
        Ok(at.operand(self.desc()))
    }

    /// The registers that a guarded vector load writes, as one value, for what it keeps.
    pub fn kept_words(&mut self, dsts: &[Option<RegId>], t: Ty, total: u32) -> Value {
        let width = (total / 4).max(1) as u8;
        let shape = ori::ValueData { file: sass::RegFile::R, width };
        let mut words: Vec<Operand> = Vec::new();
        if t.bits >= 32 {
            for d in dsts {
                match d {
                    Some(d) => {
                        let v = self.read(*d);
                        // A register may be wider than what is loaded.
                        match self.b.func.values[v].width {
                            1 => words.push(operand(v)),
                            _ => words.extend((0..t.width()).map(|i| operand(Name::Part(v, i)))),
                        }
                    }
                    None => words.extend((0..t.width()).map(|_| rz())),
                }
            }
        }
        if words.len() == usize::from(width) && width > 1 {
            return self.b.collect(&words);
        }
        self.undefined(shape)
    }

    /// Assigns the elements of a loaded vector, under the guard.
    pub(crate) fn scatter(&mut self, dsts: &[Option<RegId>], t: Ty, words: &[Operand]) {
        let bits = u32::from(t.bits);
        for (i, d) in dsts.iter().enumerate() {
            let Some(d) = *d else { continue };
            // A guarded load of whole words has kept the old ones already, but not the rest of a wider register.
            let kept = bits >= 32 && words.len() > 1 && self.shape(d).width == t.width();
            let at = i as u32 * bits;
            let mark = self.mark();
            let mut value = match bits {
                8 | 16 => {
                    let word = words[(at / 32) as usize];
                    if at.is_multiple_of(32) {
                        self.b.reg(&word)
                    } else {
                        self.b.shr(false, word, imm(at % 32))
                    }
                }
                32 => self.b.copy(words[i]),
                64 => self.b.collect(&[words[2 * i], words[2 * i + 1]]),
                _ => self.b.collect(words),
            };
            if bits < 64 {
                value = self.fill_load(d, value, t, dsts.len() == 1);
            }
            if kept {
                self.write(d, value);
            } else {
                self.assign(d, value, mark);
            }
        }
    }

    /// Extends a loaded element to its register; `extended`: its bits up to 32 are right already.
    pub(crate) fn fill_load(&mut self, d: RegId, value: Value, t: Ty, extended: bool) -> Value {
        let t = if t.is_int() { t } else { Ty { kind: Kind::Bits, ..t } };
        if extended && t.bits < 32 {
            let word = Ty { kind: t.kind, bits: 32 };
            return self.fill(d, value, word);
        }
        self.fill(d, value, t)
    }

    /// Where `ld.const` and `ld.param` read: the operand of LDC, and the bank and offset if they are known.
    fn constant_at(&mut self, a: &ptx::Addr, param: bool) -> Result<(Operand, Option<(u8, u32)>)> {
        let (mut c, mut fixed) = self.address_const(a)?;
        if param && !matches!(a.base, AddrBase::Var(_)) {
            // The address of a parameter is its offset in bank 0.
            if let Operand::Const { bank, .. } = &mut c {
                *bank = sass::ConstBank::Index(0);
            }
            fixed = fixed.map(|(_, at)| (0, at));
        }
        Ok((c, fixed))
    }

    /// `ld.const` and `ld.param`: constant banks 3 and 0.
    fn ld_const(&mut self, inst: &Statement<'_>, t: Ty, a: &ptx::Addr, dsts: &[Option<RegId>]) -> Result<()> {
        let param = space_of(self, inst, a) == Some(Space::Param);
        for (i, d) in dsts.iter().enumerate() {
            let Some(d) = *d else { continue };
            let at = ptx::Addr { base: a.base, offset: a.offset + i64::from(t.bits) / 8 * i as i64 };
            let mark = self.mark();
            let (c, mut fixed) = self.constant_at(&at, param)?;
            // Operands of instructions are words; an unaligned access is undefined.
            if t.bits >= 32 && self.sm() < 90 {
                fixed = fixed.map(|(bank, at)| (bank, at & !3));
            }
            let value = match (t.bits, fixed) {
                // There is no wider access than of 64 bits.
                (128, Some((bank, at))) => {
                    let halves = [at, at + 8].map(|at| self.load_const64(bank, at));
                    self.b.collect(&parts(halves))
                }
                (128, None) => {
                    let mut halves = Vec::new();
                    for offset in [0, 8] {
                        let half = ptx::Addr { base: at.base, offset: at.offset + offset };
                        let c = self.constant_at(&half, param)?.0;
                        halves.push(self.b.def(Opcode::LDC, &[Mod::_64], &[c]));
                    }
                    self.b.collect(&parts([halves[0], halves[1]]))
                }
                (32, Some((bank, at))) => self.load_const32(bank, at),
                (64, Some((bank, at))) => self.load_const64(bank, at),
                (32, None) => self.b.def(Opcode::LDC, &[], &[c]),
                (64, None) => self.b.def(Opcode::LDC, &[Mod::_64], &[c]),
                (8 | 16, _) => {
                    let m = match (t.bits, t.is_signed()) {
                        (8, false) => Mod::U8,
                        (8, true) => Mod::S8,
                        (_, false) => Mod::U16,
                        (_, true) => Mod::S16,
                    };
                    self.b.def(Opcode::LDC, &[m], &[c])
                }
                _ => return self.unsupported(inst),
            };
            let value = self.fill_load(d, value, t, true);
            self.assign(d, value, mark);
        }
        Ok(())
    }

    /// `st`.
    pub fn st(&mut self, inst: &Statement<'_>) -> Result<()> {
        // Without a barrier, what may be done later may as well be done now.
        if inst.has(M::_async) && inst.operands.len() > 2 {
            return self.st_async(inst);
        }
        if inst.has(M::bulk) {
            return self.st_bulk(inst);
        }
        // An asynchronous one is USTGR's own.
        if inst.has(M::_async) && inst.has(M::mmio) {
            return self.unsupported(inst);
        }
        let multimem = inst.op == ptx::Op::multimem;
        let pt_ty = if multimem { Some(crate::multimem::element(inst)) } else { inst.ty(0) };
        let t = ty(pt_ty.ok_or("store without a type")?);
        let a = addr(&inst.operands[0])?;
        let space = if multimem { Some(Space::Global) } else { space_of(self, inst, a) };
        let Some(space) = access_space(space) else {
            return self.unsupported(inst);
        };
        let bits = Ty { kind: if t.is_int() { Kind::Bits } else { t.kind }, ..t };
        let mut sources = Vec::new();
        match &inst.operands[1] {
            ptx::Operand::Vector(elems) => {
                for e in elems {
                    sources.push(self.elem(e, bits)?);
                }
            }
            o => sources.push(self.src(o, bits)?),
        }
        if let Some(words) = self.param_words(a) {
            inst.moot(PARAMETERS);
            return self.st_words(words, a.offset, t, &sources);
        }
        let total = u32::from(t.bits) / 8 * sources.len() as u32;
        if total == 32 && matches!(space, AccessSpace::Global | AccessSpace::Generic) {
            return self.st_256(inst, a, &sources);
        }
        if !matches!(total, 1 | 2 | 4 | 8 | 16) {
            return self.unsupported(inst);
        }
        let data = match (&sources[..], t.bits) {
            ([one], 8 | 16 | 32) => one.low(),
            ([one], 64) => operand(self.b.pair(&one.pair())),
            ([Src::Quad(v)], 128) => operand(*v),
            (many, n) => operand(self.pack_words(n, many)?),
        };
        // The data of a store is always in registers.
        let data = match &data {
            Operand::Reg(_) => data,
            o => operand(self.b.reg(o)),
        };
        if self.is_split(a, total)
            && let Operand::Reg(r) = &data
            && let Name::Val(v) = r.reg
        {
            return self.branch_around(|l| {
                let words: Vec<Operand> = (0..total / 4).map(|k| operand(Name::Part(v, k as u8))).collect();
                l.st_split(a, &words)
            });
        }
        let acc = access_of(inst, space, total as u8, false);
        let address = self.address(inst, a, space, !acc.mmio)?;
        access::before(&mut self.b, acc.order, self.guard);
        access::store(&mut self.b, &acc, address, data, self.guard);
        Ok(())
    }

    /// The undefined value of a shape.
    pub fn undefined(&mut self, shape: ori::ValueData) -> Value {
        self.undefined_value(shape)
    }

    /// The address operand of an instruction.
    pub fn addr_operand<'i>(&self, o: &'i ptx::Operand) -> Result<&'i ptx::Addr> {
        addr(o)
    }

    /// The state space of an access.
    pub fn access_space(&self, inst: &Statement<'_>, a: &ptx::Addr) -> Option<AccessSpace> {
        access_space(space_of(self, inst, a))
    }

    /// `c[0][at]` of the driver's area, in a register or as an operand.
    pub fn driver_word(&mut self, at: u32) -> Src {
        let v = self.load_const32(0, at);
        self.value_src(v)
    }

    /// A pair of driver words.
    pub fn driver_pair(&mut self, at: u32) -> Src {
        let v = self.load_const64(0, at);
        Src::Wide(Pair::of(v))
    }
}
