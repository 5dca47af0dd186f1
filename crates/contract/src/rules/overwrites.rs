//! How soon a register is overwritten that an instruction before reads.
//!
//! An instruction of variable latency, or one that goes through a queue, reads its sources some time after it is issued; whoever
//! overwrites one has to wait for a scoreboard of it, or be far away. `BAR R5, R6` looks like any other instruction of the control
//! unit and reads late all the same. What the reference compiler does shows which do: where one's register is overwritten, it waits,
//! or it does not and there is a least distance.

use super::distances::ends;
use super::{Judge, Rule};
use crate::registers::{reads, writes};
use crate::{Counts, Family, File, Item, Place, Table};
use sass::{Control, Inst, Opcode, Operand, Reg, RegFile, Target};
use std::collections::HashMap;

pub struct Overwrites;

/// What was seen as often as this says something.
const OFTEN: u64 = 20;
/// Distances from here on are one, in cycles.
const FAR: u64 = 40;
/// So many instructions are looked at behind one.
const WINDOW: usize = 48;

impl Rule for Overwrites {
    fn name(&self) -> &'static str {
        "overwrites"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/overwrites.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            let items = &kernel.items[..kernel.length.min(kernel.items.len())];
            for (at, item) in items.iter().enumerate() {
                let Some(inst) = item.inst() else { continue };
                let name = name(inst, file.target);
                // Predicates are read at issue: published tables say so, and BAR.RED with a predicate alone sets no scoreboard.
                let reads =
                    reads(inst).into_iter().filter(|(r, _)| matches!(r.file, RegFile::R | RegFile::UR));
                for (reg, slot) in reads {
                    if let Some((behind, what)) = overwritten(items, at, reg, file.target) {
                        see(Place::inst(k, behind), &format!("{name} {slot}:{:?} {what}", reg.file));
                    }
                }
            }
        }
    }
    /// How often is waited, and of those that do not wait the least distance and how often it was that.
    fn digest(&self, counts: Counts) -> Counts {
        let mut least: HashMap<(Family, String), (u64, u64)> = HashMap::new();
        let mut kept = Counts::default();
        for ((family, text), times) in counts.0 {
            let Some((pair, cycles)) = parse(&text) else {
                kept.add(family, &text, times);
                continue;
            };
            let row = least.entry((family, pair.to_string())).or_insert((cycles, times));
            if cycles < row.0 {
                *row = (cycles, times);
            }
        }
        for ((family, pair), (cycles, times)) in least {
            kept.add(family, &format!("{pair} {cycles}"), times);
        }
        kept
    }
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        if let Some((pair, cycles)) = parse(observation) {
            let rows = table
                .of(family)
                .filter_map(|(text, _)| parse(text).map(|p| (text.to_string(), p.0 == pair, p.1)));
            let old = rows.filter(|(_, same, _)| *same).map(|(text, _, least)| (text, least)).next();
            match old {
                Some((_, least)) if least < cycles => return,
                Some((text, least)) if least > cycles => table.forget(family, &text),
                _ => {}
            }
        }
        table.add(family, observation, times);
    }
    /// From sm_90 on the families are one.
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        let mut rows: HashMap<(Family, String), Seen> = HashMap::new();
        for family in Family::all() {
            for (text, times) in table.of(family) {
                let (pair, cycles) = match parse(text) {
                    Some((pair, cycles)) => (pair, Some(cycles)),
                    None => (text.trim_end_matches(" waits"), None),
                };
                let row = rows.entry((alike(family), pair.to_string())).or_default();
                match cycles {
                    Some(cycles) => row.least = Some(row.least.map_or(cycles, |l| l.min(cycles))),
                    None => row.waits = row.waits.max(times),
                }
                row.times = row.times.max(times);
            }
        }
        Box::new(Least(rows))
    }
}

/// The family that stands for those that keep the same distances.
fn alike(family: Family) -> Family {
    family.min(Family::of(90))
}

/// What reads: what computes in order by its class, of others the opcode.
fn name(inst: &Inst, target: Target) -> String {
    let info = inst.op.info();
    let late = sass::latency::reads_late(inst.op, target) && !info.late;
    if info.memory || info.control || info.sync || late {
        inst.op.name().to_string()
    } else {
        format!("class:{}", sass::latency::class(inst).name())
    }
}

/// Where the register is overwritten that instruction `at` reads, and how: `waits` for a scoreboard of the instruction, or the cycles
/// between the two; `None` also if others are waited for in between, so that time passes that nobody counts.
fn overwritten(items: &[Item], at: usize, reg: Reg, target: Target) -> Option<(usize, String)> {
    let first = items[at].inst()?;
    if writes(first, reg) || ends(first) {
        return None;
    }
    let control = Control::from_bits(items[at].word);
    let boards = [control.read_sb, control.write_sb].into_iter().flatten().fold(0u8, |all, s| all | 1 << s);
    let mut cycles = stall(control);
    let (mut waits, mut others) = (false, false);
    for (place, item) in items.iter().enumerate().skip(at + 1).take(WINDOW) {
        let next = item.inst()?;
        let control = Control::from_bits(item.word);
        let waited = control.wait | drained(next);
        waits |= waited & boards != 0;
        others |= waited != 0;
        if writes(next, reg) {
            let late = sass::latency::is_variable_latency(next.op, target);
            let by = if late { "late " } else { "" };
            return match (waits, others) {
                (true, _) => Some((place, format!("{by}waits"))),
                (false, true) => None,
                (false, false) => Some((place, format!("{by}{}", cycles.min(FAR)))),
            };
        }
        if ends(next) {
            return None;
        }
        cycles += stall(control);
    }
    None
}

/// The cycles to the next instruction; a stall of 0 drains the pipeline.
fn stall(control: Control) -> u64 {
    if control.stall == 0 { 16 } else { u64::from(control.stall) }
}

/// The scoreboards that DEPBAR waits for altogether.
fn drained(inst: &Inst) -> u8 {
    match (inst.op, &inst.operands[..]) {
        (Opcode::DEPBAR, [Operand::Scoreboard(s), Operand::Imm(0), ..]) => 1 << s,
        (Opcode::DEPBAR, [.., Operand::ScoreboardSet(set)]) => *set,
        _ => 0,
    }
}

/// The pair and the cycles of an observation; `None` of one that waits.
fn parse(text: &str) -> Option<(&str, u64)> {
    let (pair, cycles) = text.rsplit_once(' ')?;
    Some((pair, cycles.parse().ok()?))
}

/// What was seen of a place that is read.
#[derive(Default)]
struct Seen {
    /// The least distance without waiting.
    least: Option<u64>,
    /// How often is waited.
    waits: u64,
    /// How often the more frequent of both was seen.
    times: u64,
}

/// By place.
struct Least(HashMap<(Family, String), Seen>);

impl Judge for Least {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let (pair, cycles) = parse(observation)?;
        let seen = self.0.get(&(alike(family), pair.to_string()))?;
        let early = seen.times >= OFTEN && seen.least.is_none_or(|least| cycles < least);
        let least = seen.least.map_or("never without waiting".to_string(), |l| format!("{l} or more"));
        early.then(|| {
            format!("{pair} is overwritten after {cycles} cycles; seen: {least} (waits {} times)", seen.waits)
        })
    }
    /// How often a place was seen decides whether its distance says anything.
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        let pair = observation.rsplit_once(' ').map_or(observation, |p| p.0);
        self.0.get(&(alike(family), pair.to_string())).is_none_or(|seen| seen.times < OFTEN)
    }
}
