//! The state of a running grid: warps, the block they belong to, and what an instruction can reach.

use super::check::Checker;
use super::control::Reduce;
use super::image::Banks;
use super::reach::Reach;
use crate::launch::Rng;
use crate::output::Output;
use crate::stops::Slot;

/// Index of PT and UPT among eight predicates.
pub(crate) const PT: u8 = 7;

/// Why a lane does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// It runs, or is ready to.
    No,
    /// At BSYNC of this barrier register.
    Bsync(u8),
    /// At WARPSYNC for these lanes.
    Warpsync(u32),
    /// At WARPSYNC.EXCLUSIVE for these lanes.
    Exclusive(u32),
    /// At WARPSYNC.COLLECTIVE for these lanes.
    Collective(u32),
    /// At a barrier of the block.
    Block(u8),
}

/// Uniform registers and predicates as a group wrote them in its turn, and which of them it wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Uniform {
    values: ([u32; 256], [bool; 8]),
    written: Written,
}

/// A set of uniform registers and predicates, by their places in [`super::uniform`].
pub(crate) type Written = [u64; super::uniform::CELLS.div_ceil(64)];

/// Lanes that execute together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) mask: u32,
    /// Byte address of the next instruction.
    pub(crate) pc: u32,
    /// Its turn ended where a warp would not have changed to another group: it finds the uniform registers again that it wrote.
    pub(crate) interrupted: Option<Box<Uniform>>,
}

impl Group {
    /// Lanes about to execute at `pc`.
    pub(crate) fn at(pc: u32, mask: u32) -> Group {
        Group { mask, pc, interrupted: None }
    }
}

/// A warp.
#[derive(Clone)]
pub(crate) struct Warp {
    /// General registers, a row of 32 lanes each; row 255 is RZ.
    pub(crate) r: Box<[[u32; 32]; 256]>,
    /// Predicates as lane masks; 7 is PT.
    pub(crate) p: [u32; 8],
    /// Uniform registers; 255 is URZ.
    pub(crate) ur: Box<[u32; 256]>,
    /// Uniform predicates; 7 is UPT.
    pub(crate) up: [bool; 8],
    /// The lanes that run, and which of them the group wrote since a warp may last have changed to it.
    pub(crate) running: u32,
    pub(crate) written: Written,
    /// What each lane has last seen written to them, if that is looked at; see [`super::uniform`].
    pub(crate) known: Vec<[u32; 32]>,
    /// The lanes that executed what was last written to each of them.
    pub(crate) wrote: Vec<u32>,
    /// Convergence barriers: for each register, the participants as each lane knows them.
    pub(crate) b: [[u32; 32]; 16],
    /// Halves of the return address that calls without a register of their own use.
    pub(crate) rpc: [[u32; 32]; 2],
    /// Groups that are ready to run; the last one runs.
    pub(crate) groups: Vec<Group>,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// Why each lane waits, and where it goes on.
    pub(crate) wait: [Wait; 32],
    pub(crate) resume: [u32; 32],
    /// Where each lane goes on behind ENDCOLLECTIVE.
    pub(crate) after: [u32; 32],
    /// Result of the last BAR.RED: the lanes' common value and predicate.
    pub(crate) reduction: (u32, bool),
    /// Linear thread number of lane 0 in the block.
    pub(crate) first: u32,
    /// Number in the block.
    pub(crate) number: u32,
    /// Local memory, lane after lane.
    pub(crate) local: Vec<u8>,
    /// Instructions issued.
    pub(crate) issued: u64,
    /// Groups of what was left for later.
    pub(crate) waits: super::late::Groups,
    /// Registers that each thread holds, and as many as were last asked for in vain.
    pub(crate) held: u32,
    pub(crate) asked: Option<u32>,
}

impl Warp {
    /// A warp of `threads` lanes at `pc`, all registers zero.
    pub(crate) fn new(number: u32, threads: u32, pc: u32, local: usize) -> Warp {
        Warp::on(number, threads, pc, (vec![0; local * 32], zeros(), Box::new([0; 256])))
    }

    fn on(number: u32, threads: u32, pc: u32, (local, r, ur): Memories) -> Warp {
        let live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        let mut p = [0; 8];
        p[PT as usize] = u32::MAX;
        let mut up = [false; 8];
        up[PT as usize] = true;
        Warp {
            r,
            p,
            ur,
            up,
            running: 0,
            written: Default::default(),
            known: Vec::new(),
            wrote: Vec::new(),
            b: [[0; 32]; 16],
            rpc: [[0; 32]; 2],
            groups: vec![Group::at(pc, live)],
            live,
            wait: [Wait::No; 32],
            resume: [0; 32],
            after: [0; 32],
            reduction: (0, false),
            first: number * 32,
            number,
            local,
            issued: 0,
            waits: Default::default(),
            held: 255,
            asked: None,
        }
    }
    /// Another warp of a block of the same shape, with the memory of this one, whose registers hold anything yet.
    pub(crate) fn again(self, number: u32, threads: u32, pc: u32) -> Warp {
        Warp {
            known: self.known,
            wrote: self.wrote,
            ..Warp::on(number, threads, pc, (self.local, self.r, self.ur))
        }
    }

    /// From now on it holds `count` registers. Those that it gives back, and those that it did not hold before, hold anything.
    pub(crate) fn hold(&mut self, count: u32) {
        let (few, many) = (self.held.min(count), self.held.max(count));
        for (r, row) in (0u32..).zip(self.r.iter_mut()).take(255) {
            if few <= r + u32::from(sass::target::HARDWARE_REGISTERS) && r < many {
                row.fill(NOT_HELD ^ r);
            }
        }
        (self.held, self.asked) = (count, None);
    }

    /// What a lane holds there; 0 of memory that it does not have.
    pub(crate) fn slot(&self, slot: Slot, lane: usize) -> u64 {
        match slot {
            Slot::Register(n) => self.r[usize::from(n)][lane].into(),
            Slot::Predicate(n) => (self.p[usize::from(n)] >> lane & 1).into(),
            Slot::UniformRegister(n) => self.ur[usize::from(n)].into(),
            Slot::UniformPredicate(n) => self.up[usize::from(n)].into(),
            Slot::Stack(offset) => {
                let size = self.local.len() / 32;
                let own = &self.local[lane * size..(lane + 1) * size];
                let at = self.r[1][lane].wrapping_add(offset) as usize;
                let word = own.get(at..).and_then(|rest| rest.first_chunk::<4>());
                word.map_or(0, |w| u32::from_le_bytes(*w).into())
            }
        }
    }

    /// If the turn of the running group had ended somewhere, it finds the uniform registers again that it wrote in it. All
    /// others are as the lanes left them that ran meanwhile: there is one file, and on the warp that is simulated these may
    /// have run before.
    pub(crate) fn take_back_uniform(&mut self) {
        let Some(running) = self.groups.last_mut() else { return };
        let lanes = running.mask;
        if let Some(saved) = running.interrupted.take() {
            let Uniform { values: (ur, up), written } = *saved;
            for cell in 0..super::uniform::CELLS {
                if written[cell / 64] >> (cell % 64) & 1 != 0 {
                    match cell.checked_sub(128) {
                        Some(p) => self.up[p & 7] = up[p & 7],
                        None => self.ur[cell] = ur[cell],
                    }
                }
            }
            self.written = written;
        } else if lanes & !self.running != 0 {
            self.written = Default::default();
        }
        self.running = lanes;
    }

    /// The turn of the running group ends.
    pub(crate) fn interrupt(&mut self) {
        // It may be another one than ran.
        self.take_back_uniform();
        let saved = Uniform { values: (*self.ur, self.up), written: self.written };
        if let Some(g) = self.groups.last_mut() {
            g.interrupted = Some(Box::new(saved));
        }
        self.groups.rotate_right(1);
    }

    /// Zeros in all registers, predicates and bytes of local memory.
    pub(crate) fn clear(&mut self, registers: u32) {
        self.r[..255].iter_mut().take(registers as usize).for_each(|row| row.fill(0));
        self.ur.fill(0);
        self.local.fill(0);
    }

    /// Puts something else into the first `registers` registers, every predicate and byte of local memory: hardware clears
    /// none of them.
    pub(crate) fn scramble(&mut self, seed: u64, registers: u32) {
        let mut rng = Rng::new(seed ^ u64::from(self.number) << 48);
        let (r, rest) = self.r.split_at_mut(255);
        debug_assert_eq!(rest.len(), 1, "RZ stays");
        for row in r.iter_mut().take(registers as usize) {
            let start = rng.next() as u32;
            for (lane, x) in row.iter_mut().enumerate() {
                let mixed = (start ^ lane as u32).wrapping_mul(0x9e37_79b9);
                *x = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
            }
        }
        self.ur[..255].iter_mut().for_each(|x| *x = rng.next() as u32);
        for p in 0..usize::from(PT) {
            self.p[p] = rng.next() as u32;
            self.up[p] = rng.next() & 1 != 0;
        }
        self.local.fill(rng.next() as u8);
    }

    /// A hash of what the warp's threads and its block hold and something reads, global memory aside.
    pub(crate) fn digest(&self, block: &Block, read: &super::read::Read) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut h = rustc_hash::FxHasher::default();
        read.registers().for_each(|r| self.r[r].hash(&mut h));
        read.uniform().for_each(|r| self.ur[r].hash(&mut h));
        read.predicates().for_each(|p| self.p[p].hash(&mut h));
        read.uniform_predicates().for_each(|p| self.up[p].hash(&mut h));
        (&self.b, &self.rpc).hash(&mut h);
        (self.live, &self.resume, &self.local, block.shared.get(block.rank)).hash(&mut h);
        for g in &self.groups {
            (g.mask, g.pc).hash(&mut h);
        }
        h.finish()
    }
    /// Index of the register after `r`, RZ after RZ.
    pub(crate) fn pair(r: u8) -> usize {
        if r >= 254 { 255 } else { r as usize + 1 }
    }
    /// Lanes that wait for `what`.
    pub(crate) fn waiting(&self, what: impl Fn(Wait) -> bool) -> u32 {
        (0..32).filter(|l| self.live >> l & 1 != 0 && what(self.wait[*l])).fold(0, |m, l| m | 1 << l)
    }
}

/// What registers hold that a warp gave back, or was given: something that will be noticed.
const NOT_HELD: u32 = 0x9e5e_7f00;

/// Local memory, general and uniform registers.
type Memories = (Vec<u8>, Box<[[u32; 32]; 256]>, Box<[u32; 256]>);

/// An empty register file, made in place: it is too large to go by the stack.
fn zeros() -> Box<[[u32; 32]; 256]> {
    let rows = vec![[0; 32]; 256].into_boxed_slice();
    rows.try_into().unwrap_or_else(|_| Box::new([[0; 32]; 256]))
}

/// A hardware barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// Some thread has arrived.
    pub(crate) busy: bool,
    /// What the waiting threads asked for.
    pub(crate) reduce: Reduce,
    /// Threads that have arrived without waiting.
    pub(crate) arrived: u32,
    /// Threads that must arrive; `None`: all live ones of the block.
    pub(crate) expected: Option<u32>,
    /// Threads whose predicate was true, for BAR.RED.
    pub(crate) count: u32,
    /// Threads whose predicate took part in the reduction.
    pub(crate) voters: u32,
}

impl Barrier {
    /// Nobody there.
    pub(crate) const IDLE: Barrier =
        Barrier { busy: false, reduce: Reduce::Sync, arrived: 0, expected: None, count: 0, voters: 0 };
}

/// What the warps of a block share.
pub(crate) struct Block {
    /// Shared memory of all blocks of the cluster, as long as this one runs.
    pub(crate) shared: Vec<Vec<u8>>,
    /// Tensor memory of all blocks of the cluster, as long as this one runs.
    pub(crate) tmem: Vec<crate::tmem::Tmem>,
    /// What was left for later in the cluster, in the order in which it was issued.
    pub(crate) pending: Vec<super::late::Pending>,
    /// Number in the cluster.
    pub(crate) rank: usize,
    /// Those of BAR; the last one is the cluster's.
    pub(crate) barriers: [Barrier; 17],
    /// Coordinates in the grid.
    pub(crate) index: [u32; 3],
    /// What the grid's threads have printed so far.
    pub(crate) output: Output,
    /// Registers a thread that warps gave back and no other was given, added up.
    pub(crate) registers: u32,
}

impl Block {
    /// A block about to start.
    pub(crate) fn new(index: [u32; 3], rank: usize) -> Block {
        Block {
            shared: Vec::new(),
            tmem: Vec::new(),
            pending: Vec::new(),
            rank,
            barriers: [Barrier::IDLE; 17],
            index,
            output: Output::default(),
            registers: 0,
        }
    }
}

/// What does not change during a launch.
pub(crate) struct Env {
    pub(crate) banks: Banks,
    pub(crate) block: [u32; 3],
    pub(crate) grid: [u32; 3],
    /// Whether all blocks run at once.
    pub(crate) cooperative: bool,
    /// Bytes of local memory per thread.
    pub(crate) local: u32,
    /// Bytes of shared memory per block.
    pub(crate) shared: u32,
}

/// The barrier of a cooperative grid, behind that of the cluster.
pub(crate) const GRID_BARRIER: u8 = 17;

/// High halves of the generic windows of shared and local memory (SR_SWINHI, SR_LWINHI).
pub(crate) const SHARED_WINDOW: u32 = 0x7e00;
/// See [`SHARED_WINDOW`].
pub(crate) const LOCAL_WINDOW: u32 = 0x7d00;

/// Where the code lies, for absolute addresses.
pub(crate) const CODE: u64 = 0x7a00 << 32;
/// Where the driver's functions lie, 16 bytes each.
pub(crate) const DRIVER_CODE: u64 = 0x7900 << 32;

/// What an instruction works on.
pub(crate) struct Machine<'a> {
    pub(crate) warp: &'a mut Warp,
    pub(crate) block: &'a mut Block,
    pub(crate) memory: Reach<'a>,
    pub(crate) env: &'a Env,
    /// Who checks what is done, if somebody does.
    pub(crate) check: Option<&'a mut Checker>,
}

impl Machine<'_> {
    /// Number of the block in the grid.
    pub(crate) fn block_number(&self) -> u64 {
        let ([x, y, z], [nx, ny, _]) = (self.block.index.map(u64::from), self.env.grid.map(u64::from));
        (z * ny + y) * nx + x
    }
}
