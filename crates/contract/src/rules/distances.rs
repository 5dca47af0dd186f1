//! How many cycles after an instruction the next one of each kind may start.
//!
//! What an instruction of a protocol (a barrier, a fence, an asynchronous copy) does to the instructions behind it is no register, so no
//! table of latencies says how long they have to stay away: LDS five cycles behind `BAR.SYNC` read what was there before. The
//! reference compiler keeps such distances, and nothing else shows them. So the least that it was seen to leave is the least.

use super::{Judge, Rule, neighbours};
use crate::{Counts, Family, File, Item, Place, Table};
use sass::{Control, Effect, Guard, Inst, Opcode, Unit};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

pub struct Distances;

/// A least distance says something when it was seen as often as this: one that was seen once may be there by chance, one that is
/// reached again and again and never gone below is a limit.
const OFTEN: u64 = 40;
/// Control transfers.
const BRANCH: &str = "branch";
/// Distances from here on are one, in cycles: so long nobody waits for an effect alone, it is the instructions between the two that take
/// the time.
const FAR: u64 = 9;

/// Whether an instruction may have effects that others have to stay away from. Behind accesses and what reads special registers only
/// what meets, waits or orders counts: how soon the next access comes is a matter of how many the queue takes, not of what they do.
fn counts(op: Opcode) -> bool {
    neighbours::protocol(op)
        || op.info().memory
        || op.info().effect == Effect::Order
        || op.unit() == Unit::Move
}

/// What kind of instruction has to stay away: those of a functional unit; control transfers apart from what else the control unit does,
/// which are one each.
fn kind(op: Opcode) -> String {
    match op.unit() {
        Unit::Control
            if matches!(op, Opcode::BRA | Opcode::EXIT | Opcode::BRX | Opcode::RET | Opcode::CALL) =>
        {
            BRANCH.to_string()
        }
        Unit::Control => op.name().to_string(),
        unit => format!("{unit:?}"),
    }
}

/// What it stays away from: the opcode, and of what the control unit does the opcode with each of its modifiers.
fn names(inst: &Inst) -> BTreeSet<String> {
    let op = inst.op.name();
    if inst.op.unit() != Unit::Control {
        return BTreeSet::from([op.to_string()]);
    }
    inst.mods.iter().map(|m| format!("{op}.{}", m.name())).chain([op.to_string()]).collect()
}

/// Whether control does not come to what stands behind, or not at once.
pub(super) fn ends(inst: &Inst) -> bool {
    let goes = matches!(inst.op, Opcode::BRA | Opcode::EXIT | Opcode::BRX | Opcode::BRXU | Opcode::KILL);
    inst.op.info().leaves_function() || goes && inst.guard == Guard::TRUE
}

impl Rule for Distances {
    fn name(&self) -> &'static str {
        "distances"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/distances.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(inst) = item.inst().filter(|i| counts(i.op)) else { continue };
                for (behind, kind, cycles) in behind(&kernel.items, at, inst) {
                    let controls = kernel.items[behind].op().is_some_and(|op| op.unit() == Unit::Control);
                    if !(neighbours::protocol(inst.op) || controls && kind != BRANCH) {
                        continue;
                    }
                    for name in names(inst) {
                        see(Place::inst(k, behind), &format!("{name} to {kind} {cycles}"));
                    }
                }
            }
        }
    }
    /// The least distance of a pair, and how often it was that.
    fn digest(&self, counts: Counts) -> Counts {
        let mut least: HashMap<(Family, String), (u64, u64)> = HashMap::new();
        for ((family, text), times) in counts.0 {
            let Some((pair, cycles)) = parse(&text) else { continue };
            let row = least.entry((family, pair.to_string())).or_insert((cycles, times));
            if cycles < row.0 {
                *row = (cycles, times);
            }
        }
        let mut kept = Counts::default();
        for ((family, pair), (cycles, times)) in least {
            kept.add(family, &format!("{pair} {cycles}"), times);
        }
        kept
    }
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        let Some((pair, cycles)) = parse(observation) else { return };
        let row = table
            .of(family)
            .map(|(text, _)| text)
            .find(|text| parse(text).is_some_and(|(old, _)| old == pair));
        match row.map(|text| (text.to_string(), parse(text).map_or(0, |(_, least)| least))) {
            Some((_, least)) if least < cycles => return,
            Some((text, least)) if least > cycles => table.forget(family, &text),
            _ => {}
        }
        table.add(family, observation, times);
    }
    /// From sm_90 on the families are one: where they differ, it is by chance.
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        let mut least: HashMap<(Family, String), (u64, u64)> = HashMap::new();
        for family in Family::all() {
            for (text, times) in table.of(family) {
                let Some((pair, cycles)) = parse(text) else { continue };
                let row = least.entry((alike(family), pair.to_string())).or_insert((cycles, 0));
                match cycles.cmp(&row.0) {
                    Ordering::Less => *row = (cycles, times),
                    Ordering::Equal => row.1 = row.1.max(times),
                    Ordering::Greater => {}
                }
            }
        }
        Box::new(Least(least))
    }
}

/// The family that stands for those that keep the same distances.
fn alike(family: Family) -> Family {
    family.min(Family::of(90))
}

/// For each kind of instruction the first that comes behind: its place, the kind, and the cycles between the two starts. An instruction
/// that waits for a scoreboard may start later, and counts all the same: the reference compiler leaves no less before it.
fn behind(items: &[Item], at: usize, inst: &Inst) -> Vec<(usize, String, u64)> {
    let mut found: Vec<(usize, String, u64)> = vec![];
    if ends(inst) {
        return found;
    }
    let mut cycles = u64::from(Control::from_bits(items[at].word).stall);
    for (place, item) in items.iter().enumerate().skip(at + 1) {
        let Some(next) = item.inst() else { break };
        let control = Control::from_bits(item.word);
        let kind = kind(next.op);
        if found.iter().all(|(_, k, _)| *k != kind) {
            found.push((place, kind, cycles.min(FAR)));
        }
        cycles += u64::from(control.stall);
        if cycles >= FAR || ends(next) {
            break;
        }
    }
    found
}

/// The pair and the cycles of an observation.
fn parse(text: &str) -> Option<(&str, u64)> {
    let (pair, cycles) = text.rsplit_once(' ')?;
    Some((pair, cycles.parse().ok()?))
}

/// The least distances, and how often the pairs were seen.
struct Least(HashMap<(Family, String), (u64, u64)>);

impl Judge for Least {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let (pair, cycles) = parse(observation)?;
        let (least, times) = *self.0.get(&(alike(family), pair.to_string()))?;
        let close = times >= OFTEN && least < FAR && cycles < least;
        close.then(|| format!("{pair} after {cycles} cycles; seen: {least} or more ({times} times)"))
    }
    /// How often a pair was seen decides whether its distance says anything.
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        parse(observation).is_none_or(|(pair, _)| {
            self.0.get(&(alike(family), pair.to_string())).is_none_or(|(_, times)| *times < OFTEN)
        })
    }
}
