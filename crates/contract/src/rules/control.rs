//! Control fields: for each functional unit the range of stalls (for what is set apart from its unit by its latencies the least
//! one), whether it may yield and wait, and which slots it reuses; for each opcode (of those that act on registers only: for each unit) whether it sets scoreboards.

use super::{Judge, Rule, Seen, head};
use crate::{Counts, Family, File, Place, Table};
use sass::{Control, Role, Unit};
use std::collections::HashMap;

pub struct ControlFields;

/// A least stall of a class says something when it was seen as often as this.
const OFTEN: u64 = 100;

impl Rule for ControlFields {
    fn name(&self) -> &'static str {
        "control"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/control.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(inst) = item.inst() else { continue };
                let (op, place) = (inst.op, Place::inst(k, at));
                let ctrl = Control::from_bits(item.word);
                let results = inst.operands.iter().zip(op.slots()).filter(|(_, slot)| slot.role != Role::Use);
                let result = results.clone().any(|(o, _)| o.as_reg().is_some_and(|r| !r.reg.is_zero()));
                let result = if result || results.count() == 0 { "" } else { " without result" };
                let said = |set: bool| if set { "sets" } else { "sets no" };
                // What the control unit does has a time of its own for each opcode.
                let unit = match op.unit() {
                    Unit::Control => op.name().to_string(),
                    // Products of matrices and their moves were seen as one.
                    Unit::TensorInt | Unit::TensorFp64 | Unit::Movm => "unit:Tensor".to_string(),
                    // They were one unit when the table was mined.
                    Unit::Gmma => "unit:Load".to_string(),
                    Unit::TensorShift => "unit:Store".to_string(),
                    unit => format!("unit:{unit:?}"),
                };
                see(place, &format!("{unit} stall {}", ctrl.stall));
                let class = sass::latency::class(inst).name();
                if op.unit() != Unit::Control && class != op.unit().name() {
                    see(place, &format!("class:{class} stall {}", ctrl.stall));
                }
                see(place, &format!("{unit} {}", if ctrl.no_yield { "stays" } else { "yields" }));
                let info = op.info();
                let counts = if info.memory || info.control || info.sync { op.name() } else { &unit };
                see(place, &format!("{counts} {} write scoreboard{result}", said(ctrl.write_sb.is_some())));
                see(place, &format!("{counts} {} read scoreboard", said(ctrl.read_sb.is_some())));
                if ctrl.wait != 0 {
                    see(place, &format!("{unit} waits"));
                }
                let flags = inst.ctrl.reuse == 0 && ctrl.no_yield;
                for slot in 0..3 {
                    if flags && ctrl.reuse >> slot & 1 != 0 {
                        see(place, &format!("{unit} reuses {slot}"));
                    }
                }
                let yields = if ctrl.no_yield { "stays" } else { "yields" };
                see(place, &format!("any stall {} {yields}", ctrl.stall));
                if flags && ctrl.reuse != 0 {
                    let next = kernel.items.get(at + 1);
                    let apart = next.is_none_or(|n| n.leader);
                    see(
                        place,
                        &format!(
                            "any reuse {}",
                            if apart { "at the end of a block" } else { "inside a block" }
                        ),
                    );
                }
            }
        }
    }
    /// Ranges of stalls in place of stalls.
    fn digest(&self, counts: Counts) -> Counts {
        let mut ranges: HashMap<(Family, String), (u64, u64, u64)> = HashMap::new();
        let mut kept = Counts::default();
        for ((family, text), n) in counts.0 {
            match stall(&text) {
                Some((op, stall)) => {
                    let range = ranges.entry((family, op.to_string())).or_insert((stall, stall, 0));
                    *range = (range.0.min(stall), range.1.max(stall), range.2 + n);
                }
                None => kept.add(family, &text, n),
            }
        }
        for ((family, op), (least, most, n)) in ranges {
            kept.add(family, &format!("{op} stall {least} to {most}"), n);
        }
        kept
    }
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        let Some((op, n)) = stall(observation) else { return table.add(family, observation, times) };
        let begins = format!("{op} stall ");
        let old = table.of(family).find(|r| r.0.starts_with(&begins)).map(|r| (r.0.to_string(), r.1));
        let range = old.as_ref().and_then(|(row, _)| row.strip_prefix(&begins)?.split_once(" to "));
        let (least, most) = match range {
            Some((least, most)) => (least.parse().unwrap_or(n).min(n), most.parse().unwrap_or(n).max(n)),
            None => (n, n),
        };
        let row = format!("{begins}{least} to {most}");
        // How often a wider range was seen includes the one before.
        let before = match old {
            Some((old, count)) if old != row => {
                table.forget(family, &old);
                count
            }
            _ => 0,
        };
        table.add(family, &row, before + times);
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        let mut stalls = HashMap::new();
        for family in Family::all() {
            for (text, times) in table.of(family) {
                if text.starts_with("class:") && times < OFTEN {
                    continue;
                }
                let range = text.split_once(" stall ").and_then(|(op, range)| {
                    let (least, most) = range.split_once(" to ")?;
                    Some((op, (least.parse().ok()?, most.parse().ok()?)))
                });
                if let Some((op, range)) = range {
                    stalls.insert((family, op.to_string()), range);
                }
            }
        }
        Box::new(Fields { stalls, rest: Seen::new(table) })
    }
}

/// Opcode and number of an observation of a stall.
fn stall(text: &str) -> Option<(&str, u64)> {
    let (op, n) = text.split_once(" stall ")?;
    Some((op, n.parse().ok()?))
}

struct Fields {
    stalls: HashMap<(Family, String), (u64, u64)>,
    rest: Seen,
}

impl Judge for Fields {
    fn judge(&self, family: Family, observation: &str) -> Option<String> {
        let Some((op, n)) = stall(observation) else {
            return self.rest.judge(family, observation);
        };
        match self.stalls.get(&(family, head(op).to_string())) {
            Some((least, most)) if (*least..=*most).contains(&n) => None,
            // Where nothing but time is waited for, longer is fine.
            Some((_, most)) if n > *most && ["unit:", "class:"].iter().any(|what| op.starts_with(what)) => {
                None
            }
            Some((least, most)) => Some(format!("{op} stall {n}; seen: {least} to {most}")),
            // Its unit says whether it may be there at all.
            None if op.starts_with("class:") => None,
            None => Some(format!("{op}: never used")),
        }
    }
    /// How often a class was seen decides whether its range says anything.
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        observation.starts_with("class:") || self.rest.is_foreign(family, observation)
    }
}
