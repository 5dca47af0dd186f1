//! Whether the write scoreboard counts an instruction of which nobody reads a result.
//!
//! An exchange whose result is dropped has an effect all the same, and something may have to wait for it; without the result
//! nothing is left that says so. What the reference compiler does depends on what comes next: an exchange sets a scoreboard every
//! time, but for one in front of EXIT. For an opcode with its modifiers, and what of a protocol comes next, the table says
//! how often it sets one; where it always does, one that does not is found.

use super::{Judge, Rule, neighbours};
use crate::{Family, File, Item, Place, Table};
use sass::{Control, Inst, Role};
use std::collections::HashMap;

pub struct Unused;

/// What was seen as often as this, and never otherwise, is always so.
const OFTEN: u64 = 20;
/// How an observation ends of an instruction that sets none.
const NONE: &str = " sets none";
/// Of one that sets one.
const ONE: &str = " sets one";

impl Rule for Unused {
    fn name(&self) -> &'static str {
        "unused"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/unused.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        for (k, kernel) in file.kernels.iter().enumerate() {
            for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                let Some(inst) = item.inst().filter(|i| drops(i)) else { continue };
                let set = Control::from_bits(item.word).write_sb.is_some();
                let how = if set { ONE } else { NONE };
                let next = next(&kernel.items[at + 1..]);
                see(Place::inst(k, at), &format!("{} before {next}{how}", neighbours::name(inst)));
            }
        }
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        // What one family does not count need not be counted.
        let mut rows: HashMap<String, [u64; 2]> = HashMap::new();
        for family in Family::all() {
            for (text, times) in table.of(family) {
                for (n, how) in [NONE, ONE].into_iter().enumerate() {
                    if let Some(name) = text.strip_suffix(how) {
                        rows.entry(name.to_string()).or_default()[n] += times;
                    }
                }
            }
        }
        Box::new(Always(rows))
    }
}

/// What of a protocol comes next in the same stretch of code.
fn next(items: &[Item]) -> &'static str {
    let stretch = items.iter().take_while(|i| !i.leader).filter_map(Item::op);
    stretch.into_iter().find(|op| neighbours::protocol(*op)).map_or("nothing", |op| op.name())
}

/// Whether it has results, and all of them are dropped; of what acts on more than registers.
fn drops(inst: &Inst) -> bool {
    let info = inst.op.info();
    let mut results =
        inst.operands.iter().zip(inst.op.slots()).filter(|(_, slot)| slot.role == Role::Def).peekable();
    (info.memory || info.sync || info.control || inst.op.unit() == sass::Unit::Load)
        && results.peek().is_some()
        && results.all(|(o, _)| o.as_reg().is_none_or(|r| r.reg.is_zero()))
}

/// By name and what comes next, how often it sets none, and one.
struct Always(HashMap<String, [u64; 2]>);

impl Judge for Always {
    fn judge(&self, _: Family, observation: &str) -> Option<String> {
        let name = observation.strip_suffix(NONE)?;
        let [none, one] = *self.0.get(name)?;
        let new = none == 0 && one >= OFTEN;
        new.then(|| format!("{name} without a result sets no write scoreboard; seen: one, {one} times"))
    }
    /// How often it was seen decides.
    fn is_foreign(&self, _: Family, observation: &str) -> bool {
        let name = observation.rsplit_once(" sets ").map_or(observation, |p| p.0);
        self.0.get(name).is_none_or(|[none, one]| *none == 0 && *one < OFTEN)
    }
}
