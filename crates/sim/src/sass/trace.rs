//! What the warps of a launch did, instruction by instruction: for checks of time, which the simulation itself does
//! not have.

use super::mem::{Address, Space, size, space_of};
use super::operand::{Operands, lanes};
use super::state::{SHARED_WINDOW, Warp};
use std::collections::BTreeSet;

/// An instruction that lanes of a warp issued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// Byte address.
    pub pc: u32,
    /// The lanes, whatever its guard says.
    pub lanes: u32,
    /// What it asks of memory.
    pub work: Work,
}

/// What an instruction asks of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing.
    None,
    /// Global or local memory: the lines of 128 bytes, and how many sectors of 32 bytes.
    Lines {
        /// Addresses over 128, ascending.
        lines: Box<[u64]>,
        /// All sectors together.
        sectors: u16,
    },
    /// Shared memory: how often the fullest of its 32 banks must be asked.
    Banks(u16),
}

/// What one warp did.
#[derive(Clone, Debug)]
pub struct WarpTrace {
    /// Coordinates of its block.
    pub block: [u32; 3],
    /// Its number in the block.
    pub warp: u32,
    /// Instructions in order.
    pub issues: Vec<Issue>,
}

/// What all warps did, in the order of their first instructions.
#[derive(Clone, Default, Debug)]
pub struct Trace {
    /// Of each warp.
    pub warps: Vec<WarpTrace>,
    last: usize,
}

impl Trace {
    /// An instruction more.
    pub(crate) fn issue(&mut self, block: [u32; 3], warp: u32, issue: Issue) {
        let same = |w: &WarpTrace| w.block == block && w.warp == warp;
        if !self.warps.get(self.last).is_some_and(same) {
            // Blocks run one after another, so that a warp is among the latest.
            self.last = self.warps.iter().rposition(same).unwrap_or_else(|| {
                self.warps.push(WarpTrace { block, warp, issues: Vec::new() });
                self.warps.len() - 1
            });
        }
        self.warps[self.last].issues.push(issue);
    }
}

/// How an instruction's traffic is found.
pub(crate) struct Traffic {
    address: Address,
    space: Space,
    bytes: u32,
}

impl Traffic {
    /// Of an instruction that reaches memory.
    pub(crate) fn of(o: &Operands<'_>) -> Option<Traffic> {
        let name = o.inst.op.name();
        let space = space_of(name)?;
        let slot = o.inst.operands.iter().position(|x| matches!(x, sass::Operand::Addr { .. }))?;
        let address = Address::of(o, slot, space).ok()?;
        let bytes = if name.ends_with("256") { 32 } else { size(o).bytes };
        Some(Traffic { address, space, bytes })
    }

    /// The traffic of these lanes.
    pub(crate) fn of_lanes(&self, warp: &Warp, mask: u32) -> Work {
        if mask == 0 {
            return Work::None;
        }
        let at = |lane: usize| {
            let a = self.address.at(warp, lane);
            // Local memory is interleaved: a word of all lanes lies together.
            if self.space == Space::Local { a * 32 + 4 * lane as u64 } else { a }
        };
        let near = |a: u64| self.space == Space::Generic && (a >> 32) as u32 == SHARED_WINDOW;
        if self.space == Space::Shared || lanes(mask).all(|l| near(at(l))) {
            let words: BTreeSet<u64> = lanes(mask)
                .flat_map(|l| {
                    let a = at(l) & 0xffff_ffff;
                    a / 4..=(a + u64::from(self.bytes) - 1) / 4
                })
                .collect();
            let mut banks = [0u16; 32];
            words.iter().for_each(|w| banks[*w as usize & 31] += 1);
            return Work::Banks(banks.into_iter().max().unwrap_or(0));
        }
        let sectors: BTreeSet<u64> = lanes(mask)
            .flat_map(|l| {
                let a = at(l);
                a / 32..=a.saturating_add(u64::from(self.bytes) - 1) / 32
            })
            .collect();
        let lines: BTreeSet<u64> = sectors.iter().map(|s| s / 4).collect();
        Work::Lines { lines: lines.into_iter().collect(), sectors: sectors.len() as u16 }
    }
}
