//! Asynchronous operations done as late as PTX allows, if that is asked for: where code waits for them, or when the cluster
//! ends. What reads too early, or overwrites too early, then finds something else than it should.
//!
//! - Copies of threads (LDGSTS) and bulk copies out of shared memory are done when a thread that issued them waits for their group
//!   (`DEPBAR.LE SB0`), or, the former, at an arrival that counts for them.
//! - What tells a barrier in shared memory is done when somebody looks at a barrier whose phase is not over: one operation after
//!   another, as they were issued, until it is. So are products in tensor memory, copies to it, shifts, and the arrivals behind them.
//! - Stores to tensor memory are done at FENCE.VIEW.ASYNC.T, products of warp groups at WARPGROUP.DEPBAR; these use the registers as they
//!   are then.
//!
//! Loads of tensor memory have scoreboards of their own, which are looked at elsewhere (`hazard`).

use super::Fault;
use super::operand::{Exec, lanes};
use super::state::{Machine, Warp};
use sass::{Inst, Mod, Opcode, Operand};
use std::sync::Arc;

/// What is waited for in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Copies of threads.
    Copy,
    /// Arrivals that count for copies of threads.
    Arrival,
    /// The same where the copies have to be done first.
    Counted,
    /// What reads shared memory and writes elsewhere.
    Bulk,
    /// What tells a barrier, and what goes on in tensor memory.
    Signal,
    /// Stores to tensor memory.
    Store,
    /// Products of warp groups; whether a group ends with it.
    Product(bool),
}

impl Kind {
    /// How such an instruction is waited for; `None` if it isn't one.
    pub(super) fn of(inst: &Inst) -> Option<Kind> {
        use Opcode::*;
        let spaces = || inst.mods.iter().map(|m| m.name()).filter(|n| matches!(*n, "S" | "G"));
        Some(match inst.op {
            LDGSTS => Kind::Copy,
            // Before sm_90 nobody can tell who looks at a barrier.
            ARRIVES if !inst.mods.iter().any(|m| matches!(m.name(), "ARVCNT" | "TRANSCNT")) => Kind::Counted,
            ARRIVES => Kind::Arrival,
            UBLKCP | UBLKRED if spaces().next() != Some("S") => Kind::Bulk,
            UBLKCP | UBLKRED | UTMALDG | STAS | REDAS => Kind::Signal,
            UTMASTG | UTMAREDG => Kind::Bulk,
            UTCBAR | UTCCP | UTCSHIFT | UTCOMMA | UTCOMMA_T | UTCHMMA | UTCHMMA_T | UTCIMMA | UTCIMMA_T
            | UTCQMMA | UTCQMMA_T | UTCQMMA_SF | UTCQMMA_SF_T => Kind::Signal,
            STTM => Kind::Store,
            op if op.name().contains("GMMA") => {
                // Behind D, A, the descriptors, C, whether it counts, and metadata: the number of the scoreboard of groups, 7 for none.
                let name = inst.op.name();
                let behind = 4 + usize::from(name.ends_with(".R")) + 2 * usize::from(name.contains(".SP"));
                Kind::Product(inst.operands.get(behind) == Some(&Operand::Imm(0)))
            }
            _ => return None,
        })
    }
}

/// What ends a group, or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// A group of copies of threads, or of bulk copies, ends.
    Ends(Kind),
    /// Until so many groups of copies are left.
    Groups(u32),
    /// For stores to tensor memory.
    Stores,
    /// Until so many groups of products are left.
    Products(u32),
}

impl Wait {
    pub(super) fn of(inst: &Inst) -> Option<Wait> {
        let has = |m: Mod| inst.mods.iter().any(|x| x == m);
        let number = || match inst.operands.get(1) {
            Some(Operand::Imm(n)) => Some(*n),
            _ => None,
        };
        match inst.op {
            Opcode::LDGDEPBAR => Some(Wait::Ends(Kind::Copy)),
            Opcode::UTMACMDFLUSH => Some(Wait::Ends(Kind::Bulk)),
            Opcode::DEPBAR if has(Mod::LE) && inst.operands.first() == Some(&Operand::Scoreboard(0)) => {
                Some(Wait::Groups(number()?))
            }
            Opcode::FENCE if has(Mod::VIEW) && has(Mod::ASYNC) && has(Mod::T) => Some(Wait::Stores),
            Opcode::WARPGROUP_DEPBAR => Some(Wait::Products(number()?)),
            _ => None,
        }
    }
}

/// How far each lane of a warp is: groups of copies of threads and of bulk copies that have ended; groups of products of the
/// warp.
#[derive(Clone, Default, Debug)]
pub(crate) struct Groups {
    copies: [u32; 32],
    bulk: [u32; 32],
    products: u32,
}

impl Groups {
    fn of(&mut self, kind: Kind) -> &mut [u32; 32] {
        if kind == Kind::Bulk { &mut self.bulk } else { &mut self.copies }
    }
}

/// An operation that is not done yet.
pub(crate) struct Pending {
    kind: Kind,
    exec: Arc<Exec>,
    /// The block in the cluster, and the warp in it, as it was.
    rank: usize,
    warp: Box<Warp>,
    mask: u32,
    /// The group that it belongs to, by lane.
    group: [u32; 32],
    /// Where the instruction is.
    at: u32,
}

impl Machine<'_> {
    /// Leaves an operation for later.
    pub(super) fn defer(&mut self, exec: &Arc<Exec>, kind: Kind, mask: u32, at: u32) -> Result<(), Fault> {
        if kind == Kind::Counted {
            self.wait_for(Wait::Ends(Kind::Copy), mask)?;
            self.wait_for(Wait::Groups(0), mask)?;
            return exec(self, mask);
        }
        let group = match kind {
            Kind::Product(ends) => {
                let group = self.warp.waits.products;
                self.warp.waits.products += u32::from(ends);
                [group; 32]
            }
            kind => *self.warp.waits.of(kind),
        };
        let pending = Pending {
            kind,
            exec: exec.clone(),
            rank: self.block.rank,
            warp: Box::new(self.warp.clone()),
            mask,
            group,
            at,
        };
        self.block.pending.push(pending);
        Ok(())
    }

    /// A group ends, or something is waited for.
    pub(super) fn wait_for(&mut self, wait: Wait, mask: u32) -> Result<(), Fault> {
        let left = match wait {
            Wait::Ends(kind) => {
                let ended = self.warp.waits.of(kind);
                lanes(mask).for_each(|l| ended[l] += 1);
                return Ok(());
            }
            Wait::Groups(n) | Wait::Products(n) => n,
            Wait::Stores => 0,
        };
        let ended = self.warp.waits.clone();
        let mut done = 0;
        while let Some(p) = self.block.pending.get_mut(done) {
            let own = p.rank == self.block.rank && p.warp.number == self.warp.number;
            let over = |ended: &[u32; 32]| {
                lanes(mask & p.mask).filter(|l| p.group[*l] + left < ended[*l]).fold(0, |m, l| m | 1 << l)
            };
            let now = match (wait, p.kind) {
                _ if !own => 0,
                (Wait::Groups(_), Kind::Copy) => over(&ended.copies),
                (Wait::Groups(_), Kind::Bulk) => over(&ended.bulk),
                (Wait::Stores, Kind::Store) => p.mask,
                (Wait::Products(_), Kind::Product(_)) if p.group[0] + left < ended.products => p.mask,
                _ => 0,
            };
            if now == 0 {
                done += 1;
                continue;
            }
            if now == p.mask {
                let p = self.block.pending.remove(done);
                self.perform(p)?;
                continue;
            }
            p.mask &= !now;
            let part = Pending { exec: p.exec.clone(), warp: p.warp.clone(), mask: now, ..*p };
            done += 1;
            self.perform(part)?;
        }
        Ok(())
    }

    /// Does what was left for later, as it was issued, until something holds or nothing is left that could tell a barrier.
    pub(super) fn perform_until(
        &mut self,
        mut holds: impl FnMut(&mut Self) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        while !self.block.pending.is_empty() && !holds(self)? {
            let next = self.block.pending.iter().position(|p| matches!(p.kind, Kind::Signal | Kind::Arrival));
            let Some(mut next) = next else { return Ok(()) };
            if self.block.pending[next].kind == Kind::Arrival {
                // It counts for the copies before it.
                let (rank, number) = (self.block.pending[next].rank, self.block.pending[next].warp.number);
                let copy = self.block.pending[..next]
                    .iter()
                    .position(|p| p.kind == Kind::Copy && p.rank == rank && p.warp.number == number);
                next = copy.unwrap_or(next);
            }
            let p = self.block.pending.remove(next);
            self.perform(p)?;
        }
        Ok(())
    }

    /// Does an operation.
    fn perform(&mut self, p: Pending) -> Result<(), Fault> {
        let Pending { kind, exec, rank, mut warp, mask, at, .. } = p;
        let done = if matches!(kind, Kind::Product(_)) {
            // Descriptors are those of then, registers those of now.
            std::mem::swap(&mut self.warp.ur, &mut warp.ur);
            std::mem::swap(&mut self.warp.up, &mut warp.up);
            let done = exec(self, mask);
            std::mem::swap(&mut self.warp.ur, &mut warp.ur);
            std::mem::swap(&mut self.warp.up, &mut warp.up);
            done
        } else {
            let own = std::mem::replace(&mut self.block.rank, rank);
            let mut then = Machine {
                warp: &mut warp,
                block: self.block,
                memory: self.memory.again(),
                env: self.env,
                check: None,
            };
            let done = exec(&mut then, mask);
            self.block.rank = own;
            done
        };
        done.map_err(|f| Fault { what: format!("{} (of /*{at:04x}*/, done late)", f.what), ..f })
    }

    /// Does everything that is left.
    pub(super) fn perform_all(&mut self) -> Result<(), Fault> {
        while !self.block.pending.is_empty() {
            let p = self.block.pending.remove(0);
            self.perform(p)?;
        }
        Ok(())
    }
}
