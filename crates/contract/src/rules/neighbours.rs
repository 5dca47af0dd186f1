//! What stands around instructions that are part of a protocol: barriers, fences, convergence, calls, asynchronous copies.

use super::always::{self, Always};
use super::{Judge, Rule};
use crate::{Counts, Family, File, Item, Kernel, Place, Table};
use sass::{Inst, Opcode};
use std::collections::BTreeSet;

pub struct Neighbours;

/// How far around.
const WINDOW: usize = 16;

/// Whether the instruction is part of a protocol: it acts on other threads, on the order of accesses, or on control.
pub(super) fn protocol(op: Opcode) -> bool {
    let info = op.info();
    let name = op.name();
    let asynchronous =
        ["SYNCS", "ARRIVES", "UBLK", "UTMA", "UTC", "UCGABAR", "LDGDEPBAR", "DEPBAR", "WARPGROUP"];
    let memory = ["MEMBAR", "FENCE", "ERRBAR", "CGAERRBAR", "CCTL", "UMEMSETS"];
    let products = ["HGMMA", "IGMMA", "QGMMA", "BGMMA"];
    info.control
        || info.sync
        || asynchronous.iter().chain(&memory).chain(&products).any(|start| name.starts_with(start))
}

/// Its name with modifiers.
pub(super) fn name(inst: &Inst) -> String {
    let mut out = inst.op.name().to_string();
    for m in inst.mods.iter() {
        out += ".";
        out += m.name();
    }
    out
}

/// The opcodes of protocols before (or behind) an instruction, within its block.
fn around(kernel: &Kernel, at: usize, back: bool, window: usize) -> String {
    let mut names = BTreeSet::new();
    let items: &[Item] = &kernel.items;
    for step in 0..window {
        let next = if back { at.checked_sub(step + 1) } else { Some(at + step + 1) };
        let Some(item) = next.and_then(|n| items.get(n)) else { break };
        let crosses = if back { items[at - step].leader } else { item.leader };
        if crosses {
            break;
        }
        names.extend(item.op().filter(|op| protocol(*op)).map(Opcode::name));
    }
    names.into_iter().collect::<Vec<_>>().join(" ")
}

impl Rule for Neighbours {
    fn name(&self) -> &'static str {
        "neighbours"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/neighbours.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(inst) = item.inst().filter(|i| protocol(i.op)) else { continue };
                let place = Place::inst(k, at);
                let (whole, op) = (name(inst), inst.op.name().to_string());
                for name in BTreeSet::from([&op, &whole]) {
                    see(place, &format!("{name} directly above: {}", around(kernel, at, true, 1)));
                    see(place, &format!("{name} directly below: {}", around(kernel, at, false, 1)));
                    see(place, &format!("{name} above: {}", around(kernel, at, true, WINDOW)));
                    see(place, &format!("{name} below: {}", around(kernel, at, false, WINDOW)));
                }
            }
        }
    }
    fn digest(&self, counts: Counts) -> Counts {
        always::digest(counts)
    }
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        always::extend(table, family, observation, times);
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        Box::new(Always::new(table))
    }
}
