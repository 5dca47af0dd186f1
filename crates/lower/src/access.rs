//! Memory instructions: how state spaces, sizes, cache hints and memory order are spelled per target.
//! What each PTX form becomes was observed on ptxas 13.0's output.

use crate::emit::{Emit, pt, rz};
use ori::{Builder, Guard, Name, Operand, Value, operand};
use sass::{AddrWidth, Mod, Opcode, RegFile};
use smallvec::SmallVec;

type Mods = SmallVec<[Mod; 8]>;

/// A state space as memory instructions tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Any, decided by the address.
    Generic,
    /// Global memory.
    Global,
    /// The CTA's shared memory.
    Shared,
    /// The thread's local memory.
    Local,
}

/// Who must see the effects of an access in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// The CTA.
    Cta,
    /// The cluster.
    Cluster,
    /// The GPU.
    Gpu,
    /// The system.
    Sys,
}

/// Memory order of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// No order: `.weak`.
    Weak,
    /// Strong, at this scope; also `.volatile` and the caching operators that bypass caches.
    Strong(Scope),
    /// `.acquire`
    Acquire(Scope),
    /// `.release`
    Release(Scope),
    /// `.acq_rel`
    AcqRel(Scope),
}

impl Order {
    fn scope(self) -> Option<Scope> {
        match self {
            Order::Weak => None,
            Order::Strong(s) | Order::Acquire(s) | Order::Release(s) | Order::AcqRel(s) => Some(s),
        }
    }
}

/// One load or store.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// State space.
    pub space: Space,
    /// Bytes: 1, 2, 4, 8 or 16.
    pub size: u8,
    /// Sign-extend a narrow load.
    pub signed: bool,
    /// Memory order.
    pub order: Order,
    /// `.mmio`: once, and as wide as it says.
    pub mmio: bool,
    /// Eviction priority: `EF`, `EL`, `LU`, `EU`, `NA`.
    pub evict: Option<Mod>,
    /// How much the L2 cache fetches: `LTC64B`, `LTC128B`, `LTC256B`.
    pub prefetch: Option<Mod>,
    /// Read-only data: `ld.global.nc`.
    pub constant: bool,
    /// Part of what the lanes of a warp access together: `ori::access_of_lanes`.
    pub collective: bool,
}

/// An address.
#[derive(Clone, Debug)]
pub struct Address {
    /// Base register: 64 bits for global and generic addresses, 32 for the others.
    pub base: Option<Name>,
    /// Whether `base` is a pair.
    pub wide: bool,
    /// Byte offset, −2²³ … 2²³ − 1.
    pub offset: i32,
}

impl Address {
    /// As an operand; `desc` is the memory descriptor.
    pub fn operand(&self, desc: Option<Value>) -> Operand {
        Operand::Addr {
            desc: desc.map(Name::Val),
            base: self.base,
            width: if self.wide { AddrWidth::R64 } else { AddrWidth::R32 },
            uniform: None,
            offset: self.offset,
        }
    }
}

fn scope_mod(sm: u8, s: Scope) -> Mod {
    match s {
        Scope::Cta if sm == 75 => Mod::CTA,
        Scope::Cta => Mod::SM,
        Scope::Cluster | Scope::Gpu => Mod::GPU,
        Scope::Sys => Mod::SYS,
    }
}

fn size_mod(size: u8, signed: bool) -> Option<Mod> {
    Some(match (size, signed) {
        (1, false) => Mod::U8,
        (1, true) => Mod::S8,
        (2, false) => Mod::U16,
        (2, true) => Mod::S16,
        (8, _) => Mod::_64,
        (16, _) => Mod::_128,
        _ => return None,
    })
}

/// Spelling of a load or store.
fn mods(sm: u8, a: &Access, load: bool) -> Mods {
    let mut m = Mods::new();
    match a.space {
        Space::Generic | Space::Global => {
            m.push(Mod::E);
            m.extend(a.evict);
            if sm >= 80 {
                // Ordered loads of sm_80 have no fetch of 256 bytes; ptxas asks for 128.
                let wide = sm == 80 && a.order.scope().is_some() && a.prefetch == Some(Mod::LTC256B);
                m.extend(if wide { Some(Mod::LTC128B) } else { a.prefetch });
            }
            m.extend(size_mod(a.size, a.signed));
            if a.constant {
                m.push(Mod::CONSTANT);
            }
            if let Some(s) = a.order.scope() {
                let word = if a.mmio { Mod::MMIO } else { Mod::STRONG };
                m.extend([word, scope_mod(sm, s)]);
            } else if sm == 75 {
                m.push(Mod::SYS);
            }
        }
        Space::Shared => {
            if load && sm == 75 {
                m.push(Mod::U);
            }
            m.extend(size_mod(a.size, a.signed));
            m.extend(a.order.scope().map(|_| Mod::STRONG));
        }
        // Strong: `ori::order_is_ours`.
        Space::Local => {
            m.extend(size_mod(a.size, a.signed));
            m.extend(a.order.scope().map(|_| Mod::STRONG));
        }
    }
    m.extend(a.collective.then_some(Mod::COLLECTIVE));
    m
}

/// A load; its result has 1, 2 or 4 registers. Under a guard it keeps `kept`.
pub fn load(b: &mut Builder<'_>, a: &Access, address: Operand, guard: Guard, kept: Option<Value>) -> Value {
    let op = match a.space {
        Space::Generic => Opcode::LD,
        Space::Global => Opcode::LDG,
        Space::Shared => Opcode::LDS,
        Space::Local => Opcode::LDL,
    };
    let m = mods(b.func.target.sm, a, true);
    let sources: &[Operand] = match a.space {
        Space::Generic | Space::Global => &[address, pt()],
        _ => &[address],
    };
    match kept {
        Some(kept) => b.def_guarded(guard, op, &m, sources, kept),
        None => b.def(op, &m, sources),
    }
}

fn mods_256(sm: u8, a: &Access, l2: Mod) -> Mods {
    let mut m = mods(sm, a, true);
    // `.E`, eviction from L1 and L2, prefetch, `.256`, the rest.
    let at = 1 + usize::from(a.evict.is_some());
    m.insert(at, l2);
    m.insert(at + 1 + usize::from(a.prefetch.is_some()), Mod::_256);
    m
}

/// A load of 256 bits from global memory (sm_100 and later): the lower and the upper half. `l2` is the eviction
/// priority in the L2 cache.
pub fn load_256(
    b: &mut Builder<'_>,
    a: &Access,
    l2: Mod,
    address: Operand,
    guard: Guard,
    kept: Option<[Value; 2]>,
) -> [Value; 2] {
    let m = mods_256(b.func.target.sm, a, l2);
    let [low, high] = [(); 2].map(|()| b.func.add_value(RegFile::R, 4));
    let operands = [operand(high), operand(low), address, Operand::Imm(255), pt()];
    let kept = kept.map(|[low, high]| [Name::Val(high), Name::Val(low)]);
    b.guarded(guard, Opcode::LDG_256, &m, &operands, kept.as_ref().map_or(&[], |k| k));
    [low, high]
}

/// A store of 256 bits to global memory, the lower half first.
pub fn store_256(b: &mut Builder<'_>, a: &Access, l2: Mod, address: Operand, data: [Value; 2], guard: Guard) {
    let m = mods_256(b.func.target.sm, &Access { prefetch: None, ..*a }, l2);
    let operands = [address, operand(data[0]), operand(data[1]), Operand::Imm(255)];
    b.guarded(guard, Opcode::STG_256, &m, &operands, &[]);
}

/// A store of a value of 1, 2 or 4 registers.
pub fn store(b: &mut Builder<'_>, a: &Access, address: Operand, data: Operand, guard: Guard) {
    let op = match a.space {
        Space::Generic => Opcode::ST,
        Space::Global => Opcode::STG,
        Space::Shared => Opcode::STS,
        Space::Local => Opcode::STL,
    };
    let m = mods(b.func.target.sm, a, false);
    b.guarded(guard, op, &m, &[address, data], &[]);
}

/// What must run before an access of this order.
pub fn before(b: &mut Builder<'_>, order: Order, guard: Guard) {
    if let Order::Release(s) | Order::AcqRel(s) = order {
        membar(b, false, s, guard);
    }
}

/// What must run after an access of this order.
pub fn after(b: &mut Builder<'_>, order: Order, guard: Guard) {
    match order {
        Order::Acquire(Scope::Cta) | Order::AcqRel(Scope::Cta) => stay_apart(b),
        Order::Acquire(_) | Order::AcqRel(_) => invalidate(b, guard),
        Order::Weak | Order::Strong(_) | Order::Release(_) => {}
    }
}

fn membar(b: &mut Builder<'_>, sc: bool, s: Scope, guard: Guard) {
    let level = match s {
        Scope::Cta => Mod::CTA,
        Scope::Cluster | Scope::Gpu => Mod::GPU,
        Scope::Sys => Mod::SYS,
    };
    b.guarded(guard, Opcode::MEMBAR, &[if sc { Mod::SC } else { Mod::ALL }, level], &[], &[]);
    if s > Scope::Cta {
        b.guarded(guard, Opcode::ERRBAR, &[], &[], &[]);
        if b.func.target.sm >= 90 {
            b.guarded(guard, Opcode::CGAERRBAR, &[], &[], &[]);
        }
    }
}

/// Accesses before it stay before it, those after it after it; the hardware does nothing. ptxas has the same.
pub fn stay_apart(b: &mut Builder<'_>) {
    b.inst(Opcode::NOP, &[], &[]);
}

/// Makes the L1 cache forget what it holds.
pub(crate) fn invalidate(b: &mut Builder<'_>, guard: Guard) {
    let nowhere = Address { base: None, wide: false, offset: 0 }.operand(None);
    b.guarded(guard, Opcode::CCTL, &[Mod::IVALL], &[nowhere], &[]);
}

/// `fence` (`sc`: `.sc` and `membar`, else `.acq_rel`).
pub fn fence(b: &mut Builder<'_>, sc: bool, s: Scope, guard: Guard) {
    membar(b, sc, s, guard);
    if s > Scope::Cta {
        invalidate(b, guard);
    }
}

/// `fence.proxy.alias`, as ptxas 13.0.88 has it: without the ERRBAR of other fences.
pub fn alias_fence(b: &mut Builder<'_>, guard: Guard) {
    let levels: &[Mod] = match b.func.target.sm {
        75 => &[Mod::GPU],
        80..90 => &[Mod::SYS, Mod::GPU],
        _ => &[Mod::GPU, Mod::SYS],
    };
    for level in levels {
        b.guarded(guard, Opcode::MEMBAR, &[Mod::SC, *level], &[], &[]);
    }
    invalidate(b, guard);
}

/// What an atomic operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomOp {
    /// Addition, minimum, … of these modifiers (operation and type, spelled after `.E`).
    Arith(&'static [Mod]),
    /// Compare and swap.
    Cas,
    /// Exchange.
    Exch,
}

/// One atomic operation in hardware.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// State space.
    pub space: Space,
    /// Operation.
    pub op: AtomOp,
    /// Registers of the operands: 1, 2 or 4.
    pub words: u8,
    /// Scope.
    pub scope: Scope,
}

/// An atomic operation that returns the old value. `data` is the operand, or comparand and new value.
pub fn atom(
    b: &mut Builder<'_>,
    a: &Atomic,
    address: Operand,
    data: &[Operand],
    guard: Guard,
    kept: Option<Value>,
) -> Value {
    let op = match a.space {
        Space::Generic => Opcode::ATOM,
        Space::Global => Opcode::ATOMG,
        Space::Shared | Space::Local => Opcode::ATOMS,
    };
    let m = atomic_mods(b.func.target.sm, a);
    let mut sources: SmallVec<[Operand; 3]> = SmallVec::new();
    sources.push(address);
    sources.extend(data.iter().cloned());
    match kept {
        Some(kept) => b.def_guarded(guard, op, &m, &sources, kept),
        None => b.def(op, &m, &sources),
    }
}

/// An atomic operation on a generic address that the hardware does not have for all memory: the old value, and
/// whether it was done.
pub fn try_atom(b: &mut Builder<'_>, a: &Atomic, address: Operand, data: &[Operand]) -> (Value, Value) {
    let m = atomic_mods(b.func.target.sm, a);
    let old = b.func.add_value(RegFile::R, a.words);
    let done = b.func.add_value(RegFile::P, 1);
    let second = data.get(1).cloned().unwrap_or_else(rz);
    b.inst(Opcode::ATOM, &m, &[operand(done), operand(old), address, data[0], second]);
    (old, done)
}

/// An atomic operation whose result nobody wants. What acquires is waited for all the same, so it is no reduction.
pub fn red(b: &mut Builder<'_>, a: &Atomic, order: Order, address: Operand, data: &[Operand], guard: Guard) {
    let m = atomic_mods(b.func.target.sm, a);
    let acquires = matches!(order, Order::Acquire(_) | Order::AcqRel(_));
    match (a.space, a.op) {
        (Space::Global, AtomOp::Arith(_)) if !acquires => {
            let op = if b.func.target.sm >= 90 { Opcode::REDG } else { Opcode::RED };
            b.guarded(guard, op, &m, &[address, data[0]], &[]);
        }
        (Space::Global | Space::Generic, _) => {
            let op = if a.space == Space::Global { Opcode::ATOMG } else { Opcode::ATOM };
            let second = data.get(1).cloned().unwrap_or_else(rz);
            b.guarded(guard, op, &m, &[pt(), rz(), address, data[0], second], &[]);
        }
        (Space::Shared | Space::Local, _) => {
            let second = data.get(1).cloned().unwrap_or_else(rz);
            b.guarded(guard, Opcode::ATOMS, &m, &[rz(), address, data[0], second], &[]);
        }
    }
}

fn atomic_mods(sm: u8, a: &Atomic) -> Mods {
    let mut m = Mods::new();
    let memory = matches!(a.space, Space::Generic | Space::Global);
    if memory {
        m.push(Mod::E);
    }
    match a.op {
        AtomOp::Arith(op) => m.extend(op.iter().copied()),
        AtomOp::Cas | AtomOp::Exch => {
            m.push(if a.op == AtomOp::Cas { Mod::CAS } else { Mod::EXCH });
            match a.words {
                2 => m.push(Mod::_64),
                4 => m.push(Mod::_128),
                _ => {}
            }
        }
    }
    if memory {
        m.extend([Mod::STRONG, scope_mod(sm, a.scope)]);
    }
    m
}

/// A read-modify-write that the hardware lacks, as a loop around a compare-and-swap. Returns the old value.
/// The builder ends up in a new block.
pub fn cas_loop(
    b: &mut Builder<'_>,
    a: &Atomic,
    address: &Operand,
    first: Value,
    modify: impl FnOnce(&mut Builder<'_>, Value) -> Value,
) -> Value {
    let width = a.words;
    let (head, done) = (b.func.add_block(), b.func.add_block());
    let old = b.func.add_value(RegFile::R, width);
    b.func.blocks[head].params.push(old);
    b.terminate(ori::Terminator::Jump(ori::BlockCall { block: head, args: SmallVec::from_slice(&[first]) }));
    b.block = head;
    let new = modify(b, old);
    let cas = Atomic { op: AtomOp::Cas, ..*a };
    let data = [operand(old), operand(new)];
    // Of 64 bits there is none in local memory, which nobody else writes.
    let local = (a.space == Space::Generic && a.words == 2).then(|| {
        let (check, store) = (b.func.add_block(), b.func.add_block());
        let (seen, swapped) = try_atom(b, &cas, *address, &data);
        b.terminate(ori::Terminator::Branch {
            cond: swapped.into(),
            not: false,
            taken: Builder::call(check),
            fall: Builder::call(store),
        });
        b.block = check;
        (seen, store)
    });
    let seen = match local {
        Some((seen, _)) => seen,
        None => atom(b, &cas, *address, &data, ori::ALWAYS, None),
    };
    let changed = if a.words == 2 {
        use crate::emit::Pair;
        b.isetp64(Mod::NE, false, &Pair::of(seen), &Pair::of(old))
    } else {
        b.isetp(Mod::NE, false, operand(seen), operand(old))
    };
    b.terminate(ori::Terminator::Branch {
        cond: changed.into(),
        not: false,
        taken: ori::BlockCall { block: head, args: SmallVec::from_slice(&[seen]) },
        fall: match local {
            Some(_) => ori::BlockCall { block: done, args: SmallVec::from_slice(&[seen]) },
            None => Builder::call(done),
        },
    });
    let Some((_, block)) = local else {
        b.block = done;
        return seen;
    };
    b.block = block;
    let plain = Access {
        space: a.space,
        size: 4 * a.words,
        signed: false,
        order: Order::Weak,
        mmio: false,
        evict: None,
        prefetch: None,
        constant: false,
        collective: false,
    };
    store(b, &plain, *address, operand(new), ori::ALWAYS);
    b.terminate(ori::Terminator::Jump(ori::BlockCall { block: done, args: SmallVec::from_slice(&[old]) }));
    let before = b.func.add_value(RegFile::R, width);
    b.func.blocks[done].params.push(before);
    b.block = done;
    before
}
