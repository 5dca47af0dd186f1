//! Barriers in shared memory: SYNCS from sm_90 on, ATOMS.ARRIVE before.

use super::compile::{Unsupported, unsupported};
use super::mem::{Address, Space};
use super::operand::{Exec, Kind, Operands, lanes};
use super::state::Machine;
use super::{Cause, Fault};
use crate::mbarrier::Barrier;
use sass::Opcode;

impl Machine<'_> {
    /// Adds bytes that have come (or, negative, that are to come) to the barrier at a shared address.
    pub(super) fn complete_bytes(&mut self, lane: usize, at: u64, bytes: i64) -> Result<(), Fault> {
        let (space, at) = super::bulk::cluster(at);
        self.arrive_at(space, lane, at, 0, 0, -bytes).map(|_| ())
    }

    /// An arrival at the barrier at a shared address.
    pub(super) fn arrive_once(&mut self, lane: usize, at: u64) -> Result<(), Fault> {
        let (space, at) = super::bulk::cluster(at);
        self.arrive_at(space, lane, at, 1, 0, 0).map(|_| ())
    }

    /// Arrivals at the barrier at an address; its state before.
    fn arrive_at(
        &mut self,
        space: Space,
        lane: usize,
        at: u64,
        arrivals: u64,
        leaving: u64,
        bytes: i64,
    ) -> Result<u64, Fault> {
        let before = self.check.as_mut().map(|c| c.of_arrival());
        let old = self.load(space, lane, at, 8)?;
        let Some(new) = Barrier::of(old).arrive(arrivals, leaving, bytes) else {
            let missing = Barrier::of(old).missing;
            let what = format!("{arrivals} arrivals at a barrier that misses {missing}");
            return Err(Fault::at(lane, what).because(Cause::Barrier));
        };
        self.store(space, lane, at, 8, new.bits())?;
        if let (Some(c), Some(before)) = (&mut self.check, before) {
            c.set_order(before);
        }
        Ok(old)
    }
}

/// Prepares such an instruction; `None` if it isn't one.
pub(super) fn compile(o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match o.inst.op {
        Opcode::SYNCS_EXCH => {
            o.ignore(&["EXCH"]);
            if !o.take("64") {
                return unsupported("an exchange of this size");
            }
            let (dst, at, x) = (o.dst(0, 2)?, Address::of(o, 1, Space::Shared)?, o.src(2, Kind::Long)?);
            Box::new(move |m, mask| {
                let lane = mask.trailing_zeros() as usize & 31;
                let a = at.at(m.warp, lane);
                // Making a barrier is a plain write: whoever arrives there has to be told of it first.
                let before = m.check.as_mut().map(|c| c.of_data());
                // Where a barrier is made, nobody asks what was there.
                let old = u64::from_le_bytes(m.read_unnoticed(Space::Shared, lane, a)?);
                if dst.index() != sass::Reg::ZERO {
                    m.note(Space::Shared, lane, (a, 8), None);
                }
                m.store(Space::Shared, lane, a, 8, x.uniform(m.warp))?;
                if let (Some(c), Some(before)) = (&mut m.check, before) {
                    c.set_order(before);
                }
                dst.put(m.warp, lane, old);
                Ok(())
            })
        }
        Opcode::SYNCS_CCTL => {
            o.ignore(&["CCTL", "IV", "IVALL"]);
            Box::new(|_, _| Ok(()))
        }
        Opcode::SYNCS_PHASECHK => {
            o.ignore(&["PHASECHK", "TRANS64", "TRYWAIT"]);
            let (pred, at, x) = (o.pred_dst(0)?, Address::of(o, 1, Space::Shared)?, o.src(2, Kind::Int)?);
            Box::new(move |m, mask| {
                let mut phases = [0; 32];
                x.fetch(m.warp, &mut phases);
                for lane in lanes(mask) {
                    let a = at.at(m.warp, lane);
                    let over = |m: &mut Machine<'_>| {
                        Ok(m.load(Space::Shared, lane, a, 8)? >> 63 != phases[lane] >> 31 & 1)
                    };
                    m.perform_until(over)?;
                    let over = over(m)?;
                    pred.put(m.warp, lane, over);
                }
                Ok(())
            })
        }
        Opcode::SYNCS_ARRIVE => arrive(o)?,
        Opcode::ARRIVES => {
            o.ignore(&["LDGSTSBAR", "64"]);
            // Copies are done at once: what is counted for them ends here, a transaction (`A0T1` has announced it) or
            // the thread's own arrival.
            // Before sm_90, where no modifier tells, code has made the count go up itself.
            let kind = o.choose(&[("ARVCNT", Some(true)), ("TRANSCNT", Some(false))]).unwrap_or(None);
            let at = Address::of(o, 0, Space::Shared)?;
            Box::new(move |m, mask| {
                for lane in lanes(mask) {
                    let a = at.at(m.warp, lane);
                    match kind {
                        Some(true) => m.arrive_at(Space::Shared, lane, a, 1, 0, 0)?,
                        Some(false) => m.arrive_at(Space::Shared, lane, a, 0, 0, -1)?,
                        None => m.arrive_80(lane, a)?,
                    };
                }
                Ok(())
            })
        }
        _ => return Ok(None),
    }))
}

/// Rd, address, operand: how many arrive and how many bytes are to come is in the modifier's letters: `A1` or
/// `AR` arrivals, `T1`, `TR` more bytes to come, `TX` bytes that have come; without one it is `A1TR`.
fn arrive(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["ARRIVE", "TRANS64"]);
    // Without a result it reaches the block of the cluster that the address names.
    let remote = o.take("RED");
    let leaves = o.take("OPTOUT");
    // The arrival does not complete the phase, and the result is the upper half of the state before all lanes that arrive at
    // the barrier, and which these are.
    let open = o.take("TMASK");
    let counts = [
        ("A1T0", (Some(1), Some(0))),
        ("A0T1", (Some(0), Some(1))),
        ("A0TR", (Some(0), None)),
        ("ART0", (None, Some(0))),
    ];
    let done = o.take("A0TX");
    let (arrivals, bytes) = if done { (Some(0), None) } else { o.choose(&counts).unwrap_or((Some(1), None)) };
    let (dst, at, x) = (o.dst(0, 2)?, Address::of(o, 1, Space::Shared)?, o.src(2, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let mut values = [0; 32];
        x.fetch(m.warp, &mut values);
        let addresses: [u64; 32] = std::array::from_fn(|lane| at.at(m.warp, lane));
        let mut first = std::collections::BTreeMap::new();
        for lane in lanes(mask) {
            let value = i64::from(values[lane] as u32 as i32);
            let arrivals: i64 = arrivals.unwrap_or(value);
            let bytes = bytes.unwrap_or(if done { -value } else { value });
            let (space, at) = match remote {
                true => super::bulk::cluster(addresses[lane]),
                false => (Space::Shared, addresses[lane]),
            };
            let raw = m.arrive_at(space, lane, at, arrivals as u64, u64::from(leaves), bytes)?;
            if open && Barrier::of(raw).missing <= arrivals as u64 {
                let what = "an arrival that completes the phase, though it says that it does not";
                return Err(Fault::at(lane, what).because(Cause::Barrier));
            }
            let raw = if open {
                let group = lanes(mask).filter(|l| addresses[*l] == addresses[lane]);
                let group = group.fold(0, |set: u64, l| set | 1 << l);
                let before = *first.entry(addresses[lane]).or_insert(raw);
                before >> 32 << 32 | group
            } else {
                raw
            };
            dst.put(m.warp, lane, raw);
        }
        Ok(())
    }))
}
