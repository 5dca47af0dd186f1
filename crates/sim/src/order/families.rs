//! Statements that begin, end, wait for or order what goes on behind a thread's back: one row for each family, with the instructions
//! that do it.

use super::ptx::Access;
use ::ptx::ast::Inst as Statement;
use sass::Inst;
use sass::memory::MemorySpace;

/// What a statement has to do with asynchronous work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// An mbarrier begins or ends.
    Init,
    /// An mbarrier is told of bytes that will come.
    Expect,
    /// An arrival at an mbarrier.
    Arrive,
    /// A wait at an mbarrier.
    Wait,
    /// `fence.proxy.async`.
    Proxy,
    /// `fence.proxy.tensormap`.
    MapFence,
    /// A bulk copy that an mbarrier counts.
    Copy,
    /// A bulk copy or reduction of a group.
    Store,
    /// The end of a group of them.
    StoreEnd,
    /// The wait for groups of them.
    StoreWait,
    /// `cp.async`.
    ThreadCopy,
    /// The end of a group of them.
    ThreadEnd,
    /// The wait for groups of them.
    ThreadWait,
    /// An arrival once they are done.
    ThreadArrive,
    /// `st.async`, `red.async`.
    Remote,
    /// A barrier of the block at which threads wait.
    Block,
    /// One at which they don't.
    BlockArrive,
    /// The arrival at the barrier of the cluster.
    ClusterArrive,
    /// The wait at it.
    ClusterWait,
    /// A fence for all of memory.
    Fence,
    /// `wgmma.fence`.
    ProductFence,
    /// `wgmma.mma_async`.
    Product,
    /// `wgmma.commit_group`.
    ProductEnd,
    /// `wgmma.wait_group`.
    ProductWait,
    /// `tcgen05.mma`.
    TensorProduct,
    /// `tcgen05.cp`.
    TensorCopy,
    /// `tcgen05.shift`.
    TensorShift,
    /// `tcgen05.ld`.
    TensorLoad,
    /// `tcgen05.st`.
    TensorStore,
    /// `tcgen05.wait::ld`.
    TensorLoadWait,
    /// `tcgen05.wait::st`.
    TensorStoreWait,
    /// `tcgen05.fence::before_thread_sync`.
    TensorBefore,
    /// `tcgen05.fence::after_thread_sync`.
    TensorAfter,
    /// `tcgen05.commit`.
    TensorEnd,
    /// `tcgen05.alloc`.
    TensorTake,
    /// `tcgen05.dealloc`.
    TensorGive,
    /// `tcgen05.relinquish_alloc_permit`.
    TensorRelinquish,
    /// `griddepcontrol.wait`.
    GridWait,
    /// `griddepcontrol.launch_dependents`.
    GridLaunch,
    /// `clusterlaunchcontrol.try_cancel`.
    Cancel,
    /// `setmaxnreg`.
    Registers,
    /// A read of a texture.
    Texture,
}

/// A family: the statements (words that are all among the statement's; the first row that fits counts) and the opcodes, by
/// how their names begin (`$`: and end), that do it.
struct Row(&'static str, Option<Family>, &'static [&'static str]);

const BULK: &[&str] = &["UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED", "UTMAREDG"];
const PRODUCTS: &[&str] = &["HGMMA", "IGMMA", "QGMMA", "BGMMA"];
const TENSOR_PRODUCTS: &[&str] = &["UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"];
/// Before sm_90 an mbarrier is a word like others.
const BARRIER: &[&str] = &["SYNCS", "LD", "ST", "ATOM"];
const TEXTURES: &[&str] = &["TEX", "TLD", "TXD"];

const ROWS: &[Row] = &[
    Row("mbarrier.init", Some(Family::Init), &["SYNCS", "LD", "ST", "ATOM", "FENCE"]),
    Row("mbarrier.inval", Some(Family::Init), BARRIER),
    Row("mbarrier.try_wait", Some(Family::Wait), BARRIER),
    Row("mbarrier.test_wait", Some(Family::Wait), BARRIER),
    Row("mbarrier.expect_tx", Some(Family::Expect), BARRIER),
    Row("mbarrier.arrive.expect_tx", Some(Family::Expect), BARRIER),
    Row("mbarrier.arrive_drop.expect_tx", Some(Family::Expect), BARRIER),
    Row("mbarrier.arrive", Some(Family::Arrive), BARRIER),
    Row("mbarrier.arrive_drop", Some(Family::Arrive), BARRIER),
    Row("mbarrier.complete_tx", Some(Family::Arrive), BARRIER),
    Row("fence.proxy.async", Some(Family::Proxy), &["FENCE", "MEMBAR"]),
    Row("fence.proxy.tensormap::generic", Some(Family::MapFence), &["UTMACCTL", "MEMBAR"]),
    Row("cp.async.bulk.commit_group", Some(Family::StoreEnd), &["UTMACMDFLUSH"]),
    Row("cp.async.bulk.wait_group", Some(Family::StoreWait), &["DEPBAR"]),
    Row("cp.async.bulk.mbarrier::complete_tx::bytes", Some(Family::Copy), BULK),
    Row("cp.async.bulk.bulk_group", Some(Family::Store), BULK),
    Row("cp.reduce.async.bulk.mbarrier::complete_tx::bytes", Some(Family::Copy), BULK),
    Row("cp.reduce.async.bulk.bulk_group", Some(Family::Store), BULK),
    Row("cp.async.mbarrier.arrive", Some(Family::ThreadArrive), &["ARRIVES", "ATOMS"]),
    Row("cp.async.commit_group", Some(Family::ThreadEnd), &["LDGDEPBAR"]),
    Row("cp.async.wait_group", Some(Family::ThreadWait), &["DEPBAR"]),
    Row("cp.async.wait_all", Some(Family::ThreadWait), &["DEPBAR"]),
    Row("cp.async.shared", Some(Family::ThreadCopy), &["LDGSTS"]),
    Row("cp.async.shared::cta", Some(Family::ThreadCopy), &["LDGSTS"]),
    Row("st.async", Some(Family::Remote), &["STAS"]),
    Row("red.async", Some(Family::Remote), &["REDAS"]),
    Row("barrier.cluster.arrive", Some(Family::ClusterArrive), &["UCGABAR_ARV", "MEMBAR"]),
    Row("barrier.cluster.wait", Some(Family::ClusterWait), &["UCGABAR_WAIT"]),
    Row("barrier.sync", Some(Family::Block), &["BAR"]),
    Row("barrier.red", Some(Family::Block), &["BAR"]),
    Row("barrier.arrive", Some(Family::BlockArrive), &["BAR"]),
    Row("bar.warp", None, &[]),
    Row("bar.sync", Some(Family::Block), &["BAR"]),
    Row("bar.red", Some(Family::Block), &["BAR"]),
    Row("bar.arrive", Some(Family::BlockArrive), &["BAR"]),
    Row("fence.proxy", None, &[]),
    Row("membar.proxy", None, &[]),
    Row("fence.mbarrier_init", None, &[]),
    Row("fence.sc", Some(Family::Fence), &["MEMBAR"]),
    Row("fence.acq_rel", Some(Family::Fence), &["MEMBAR"]),
    Row("membar", Some(Family::Fence), &["MEMBAR"]),
    Row("wgmma.fence", Some(Family::ProductFence), &["WARPGROUP$"]),
    Row("wgmma.mma_async", Some(Family::Product), PRODUCTS),
    Row("wgmma.commit_group", Some(Family::ProductEnd), PRODUCTS),
    Row("wgmma.wait_group", Some(Family::ProductWait), &["WARPGROUP.DEPBAR"]),
    Row("tcgen05.mma", Some(Family::TensorProduct), TENSOR_PRODUCTS),
    Row("tcgen05.cp", Some(Family::TensorCopy), &["UTCCP"]),
    Row("tcgen05.shift", Some(Family::TensorShift), &["UTCSHIFT"]),
    Row("tcgen05.ld", Some(Family::TensorLoad), &["LDTM"]),
    Row("tcgen05.st", Some(Family::TensorStore), &["STTM"]),
    Row("tcgen05.wait::ld", Some(Family::TensorLoadWait), &["DEPBAR", "NOP"]),
    Row("tcgen05.wait::st", Some(Family::TensorStoreWait), &["FENCE"]),
    Row("tcgen05.fence::before_thread_sync", Some(Family::TensorBefore), &["DEPBAR", "NOP"]),
    Row("tcgen05.fence::after_thread_sync", Some(Family::TensorAfter), &["DEPBAR", "NOP"]),
    Row("tcgen05.commit", Some(Family::TensorEnd), &["UTCBAR"]),
    Row("tcgen05.alloc", Some(Family::TensorTake), &["UTCATOMSWS"]),
    Row("tcgen05.dealloc", Some(Family::TensorGive), &["UTCATOMSWS"]),
    Row("tcgen05.relinquish_alloc_permit", Some(Family::TensorRelinquish), &["UTCATOMSWS", "STS"]),
    Row("griddepcontrol.wait", Some(Family::GridWait), &["ACQBULK"]),
    Row("griddepcontrol.launch_dependents", Some(Family::GridLaunch), &["PREEXIT"]),
    Row("clusterlaunchcontrol.try_cancel", Some(Family::Cancel), &["UGETNEXTWORKID"]),
    Row("setmaxnreg", Some(Family::Registers), &["USETMAXREG"]),
    Row("tex", Some(Family::Texture), TEXTURES),
    Row("tld4", Some(Family::Texture), TEXTURES),
];

fn row(inst: &Statement) -> Option<&'static Row> {
    let op = inst.op.name();
    ROWS.iter().find(|r| {
        let mut words = r.0.split('.');
        words.next() == Some(op) && words.all(|w| inst.mods.iter().any(|m| m.name() == w))
    })
}

impl Family {
    /// Whether code may do without: arrivals of warp groups go where registers need them, products that are waited for one by one need no
    /// more waits, a permit that nobody asks for is given back by nobody, and what a texture shows may not be needed, or be asked of a
    /// function.
    pub(super) fn may_be_gone(self) -> bool {
        use Family::*;
        matches!(self, ProductFence | ProductEnd | ProductWait | MapFence | TensorRelinquish | Texture)
    }

    /// The family of a statement.
    pub fn of(inst: &Statement) -> Option<Family> {
        row(inst)?.1
    }

    /// Whether the instruction, on the line of a statement of the family, is what does it.
    pub fn is_done_by(self, inst: &Inst) -> bool {
        let name = inst.op.name();
        let is = |by: &str| by.strip_suffix('$').map_or(name.starts_with(by), |all| name == all);
        ROWS.iter().filter(|r| r.1 == Some(self)).any(|r| r.2.iter().any(|by| is(by)))
    }
}

/// What is told apart of an access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// A statement of a family.
    Of(Family),
    /// Any other access: of which memory (none: of generic addresses), and whether it only reads, only writes.
    Plain(Space, Deed),
}

/// Which memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Global memory.
    Global,
    /// Shared memory.
    Shared,
    /// Any.
    Generic,
    /// Local memory.
    Local,
}

/// What is done there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Deed {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// It is read and written, or other accesses keep their places beside this one.
    Atomic,
}

impl Side {
    /// The side of an access.
    pub(super) fn of(a: &Access) -> Side {
        let space = match a.space {
            MemorySpace::Global => Space::Global,
            MemorySpace::Shared => Space::Shared,
            MemorySpace::Local => Space::Local,
            MemorySpace::Generic => Space::Generic,
        };
        let deed = match () {
            () if a.acquires || a.releases || a.reads && a.writes => Deed::Atomic,
            () if a.writes => Deed::Write,
            () => Deed::Read,
        };
        a.family.map_or(Side::Plain(space, deed), Side::Of)
    }
}

use Deed::{Atomic, Read, Write};
use Side::{Of, Plain};
use Space::{Generic, Global, Shared};

/// Reads of global memory, of shared memory, of either; and all that memory is accessed by.
const READ_GLOBAL: &[Side] = &[Plain(Global, Read)];
const READS: &[Side] = &[Plain(Global, Read), Plain(Shared, Read), Plain(Generic, Read)];
const PLAIN: &[Side] = &[
    Plain(Global, Read),
    Plain(Shared, Read),
    Plain(Generic, Read),
    Plain(Global, Write),
    Plain(Shared, Write),
    Plain(Generic, Write),
];
const ATOMIC: &[Side] = &[Plain(Global, Atomic), Plain(Shared, Atomic), Plain(Generic, Atomic)];

/// Pairs that may change places, the first of which comes first in the PTX: everything else that has to do with asynchronous work keeps its
/// place among all that has to do with memory. Each row but one was seen in the reference compiler's code (`cargo xtask check-order
/// --pairs --ptxas`), and nothing in the PTX manual orders the two.
const FREE: &[(&[Side], &[Side])] = &[
    // Tensor memory is another: only waits and fences of its own order it with the rest.
    (PLAIN, &[Of(Family::TensorLoad)]),
    (&[Of(Family::Init)], &[Of(Family::TensorLoad)]),
    (&[Of(Family::TensorLoad)], &[Of(Family::StoreWait)]),
    (&[Of(Family::TensorStore)], &[Of(Family::ThreadCopy)]),
    // What comes behind a release may come before it.
    (&[Of(Family::Arrive)], &[Plain(Global, Write)]),
    // Copies of threads read global memory; only what they write is waited for.
    (&[Of(Family::ThreadCopy)], READ_GLOBAL),
    (READ_GLOBAL, &[Of(Family::ThreadCopy), Of(Family::ThreadWait)]),
    (READS, &[Of(Family::ThreadEnd)]),
    (&[Of(Family::ThreadEnd)], READS),
    // It is for registers.
    (&[Of(Family::ProductFence)], &[Of(Family::Proxy)]),
    // Who relinquishes says so in a word of the system's (not seen, as it is rare; no statement accesses the word).
    (&[Of(Family::TensorRelinquish)], PLAIN),
    (PLAIN, &[Of(Family::TensorRelinquish)]),
    // What textures show does not change while a kernel runs.
    (&[Of(Family::Texture)], &[Of(Family::Texture)]),
    (PLAIN, &[Of(Family::Texture)]),
    (ATOMIC, &[Of(Family::Texture)]),
    // Seen with `bar.sync` and `barrier.sync`, sm_75, 80 and 90.
    (&[Of(Family::Block)], &[Of(Family::Texture)]),
];

/// Whether two statements may change places, of which at least one belongs to a family.
pub(super) fn is_free(first: &Access, second: &Access) -> bool {
    let (a, b) = (Side::of(first), Side::of(second));
    let local = |s: Side| matches!(s, Plain(Space::Local, _));
    // Nobody else sees local memory.
    local(a) || local(b) || FREE.iter().any(|(x, y)| x.contains(&a) && y.contains(&b))
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = ROWS.iter().find(|r| r.1 == Some(*self));
        f.write_str(row.map_or("", |r| r.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_and_opcode_of_the_rows_is_there() {
        for Row(statement, _, by) in ROWS {
            let mut words = statement.split('.');
            assert!(words.next().is_some_and(|op| ::ptx::Op::parse(op).is_some()), "{statement}");
            for w in words {
                assert!(::ptx::Mod::parse(w).is_some(), "{statement}: {w}");
            }
            for name in *by {
                let start = name.trim_end_matches('$');
                assert!(sass::Opcode::EVERY.iter().any(|o| o.name().starts_with(start)), "{name}");
            }
        }
    }
}
