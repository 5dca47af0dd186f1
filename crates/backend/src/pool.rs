//! How many registers a warp holds where: `setmaxnreg` gives some back to the block (`USETMAXREG.DEALLOC.CTAPOOL`) or takes some
//! of those that others gave back (`USETMAXREG.TRY_ALLOC.CTAPOOL`, asked again until there are as many).
//!
//! A kernel with such instructions begins with as many registers as its file states, [`Function::max_regs`]. A block has as many as all
//! ways to it leave: where ways with different numbers meet, the fewest. Code may name [`HARDWARE_REGISTERS`] fewer. [`check`] holds the
//! finished code to that.

pub mod check;

use cranelift_entity::SecondaryMap;
use ori::cfg::Cfg;
use ori::{Block, Function, InstData, Macro, Name, Op, Operand, Terminator, Value};
use sass::target::{HARDWARE_REGISTERS, LEAST_LIMIT};
use sass::{Opcode, RegOp};

/// The most registers that a thread can hold and code can know of.
const MOST: u32 = 255;

/// What such an instruction leaves a thread with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// So many, at once.
    Back(u8),
    /// So many, where this is true behind it.
    Asked(u8, Value),
}

/// The number that an instruction names.
fn count(d: &InstData) -> u8 {
    let n = d.operands.iter().find_map(|o| if let Operand::Imm(n) = o { Some(*n) } else { None });
    n.unwrap_or(0).clamp(LEAST_LIMIT.into(), MOST) as u8
}

/// Whether an opcode changes how many registers a warp holds.
pub fn is_change(op: Opcode) -> bool {
    matches!(op, Opcode::USETMAXREG | Opcode::USETMAXREG_ALLOC)
}

fn change(d: &InstData) -> Option<Change> {
    match d.opcode()? {
        Opcode::USETMAXREG => Some(Change::Back(count(d))),
        Opcode::USETMAXREG_ALLOC => match d.operands.first()?.as_reg()?.reg {
            Name::Val(granted) => Some(Change::Asked(count(d), granted)),
            // Nobody knows whether it was granted.
            _ => Some(Change::Back(count(d))),
        },
        _ => None,
    }
}

/// Whether a function gives registers back or takes some.
pub fn changes(func: &Function) -> bool {
    func.layout.iter().flat_map(|b| &func.blocks[*b].insts).any(|i| change(&func.insts[*i]).is_some())
}

/// The most registers that its threads hold anywhere.
pub fn most(func: &Function) -> u8 {
    let asked = func.layout.iter().flat_map(|b| &func.blocks[*b].insts).filter_map(|i| {
        match change(&func.insts[*i])? {
            Change::Asked(n, _) => Some(n),
            Change::Back(_) => None,
        }
    });
    asked.fold(func.max_regs, u8::max)
}

/// Begins a block with every instruction that gives registers back, and the WARPSYNC in front of it, so that all of a block has one number
/// of registers: what must leave its register is stored at the end of the block before.
pub fn divide(func: &mut Function) {
    for b in func.layout.clone() {
        let mut from = b;
        // Where the search goes on.
        let mut least = 0;
        while let Some(k) = func.blocks[from]
            .insts
            .iter()
            .enumerate()
            .skip(least)
            .find_map(|(k, i)| (func.insts[*i].opcode() == Some(Opcode::USETMAXREG)).then_some(k))
        {
            let before = k.checked_sub(1).map(|k| func.blocks[from].insts[k]);
            let meets = before.is_some_and(|i| func.insts[i].opcode() == Some(Opcode::WARPSYNC));
            let (k, of_it) = if meets { (k - 1, 2) } else { (k, 1) };
            if k == 0 {
                least = of_it;
                continue;
            }
            (from, least) = (func.split_block(from, k), of_it);
        }
    }
}

/// How many registers code may name in each block.
#[derive(Clone, Debug)]
pub struct Grants {
    held: SecondaryMap<Block, u8>,
    most: u8,
}

impl Grants {
    /// Those of a function in SSA; none if their number does not change.
    pub fn new(func: &Function, cfg: &Cfg) -> Option<Grants> {
        if !changes(func) {
            return None;
        }
        let mut entry: SecondaryMap<Block, Option<u8>> = SecondaryMap::new();
        entry[func.entry_block()] = Some(func.max_regs);
        // Numbers only fall, so this ends.
        let mut again = true;
        while std::mem::take(&mut again) {
            for &b in &cfg.rpo {
                let Some(start) = entry[b] else { continue };
                for target in func.blocks[b].term.targets() {
                    let n = at_end(func, b, start, target.block);
                    let known = &mut entry[target.block];
                    if known.is_none_or(|k| n < k) {
                        *known = Some(n);
                        again = true;
                    }
                }
            }
        }
        let mut held = SecondaryMap::with_default(func.max_regs);
        for &b in &cfg.rpo {
            let changes = func.blocks[b].insts.iter().filter_map(|i| change(&func.insts[*i]));
            held[b] = changes.fold(entry[b].unwrap_or(func.max_regs), |n, c| match c {
                // All that lives when the block begins lives until it is done, and after it.
                Change::Back(k) => n.min(k),
                Change::Asked(..) => n,
            });
        }
        Some(Grants { held, most: most(func) })
    }

    /// Registers that threads hold in a block.
    pub fn held(&self, b: Block) -> u8 {
        self.held[b]
    }

    /// Registers that code may name there, R1 included, from 0 on.
    pub fn named(&self, b: Block) -> u8 {
        self.held[b].max(LEAST_LIMIT) - HARDWARE_REGISTERS
    }

    /// Of `limit` registers for values where most may be named, as many as a block has in proportion.
    pub fn share(&self, b: Block, limit: u32) -> u32 {
        let all = u32::from(self.most - HARDWARE_REGISTERS);
        limit * u32::from(self.named(b)) / all.max(1)
    }
}

/// The registers that a thread holds where it goes from block `b`, at whose start it had `start`, to `to`.
fn at_end(func: &Function, b: Block, start: u8, to: Block) -> u8 {
    let data = &func.blocks[b];
    let mut held = start;
    for (k, i) in data.insts.iter().enumerate() {
        match change(&func.insts[*i]) {
            Some(Change::Back(n)) => held = held.min(n),
            Some(Change::Asked(n, granted)) => {
                held = match granted_at(func, b, k, granted) {
                    Some(block) if block == to => n,
                    Some(_) => held,
                    None => held.min(n),
                };
            }
            None => {}
        }
    }
    held
}

/// The predicate that an instruction copies.
fn copied(d: &InstData) -> Option<RegOp<Name>> {
    if d.op != Op::Macro(Macro::Copy) || !d.is_unguarded() {
        return None;
    }
    let from = d.operands.get(1)?.as_reg().copied()?;
    (from == RegOp { not: from.not, ..RegOp::plain(from.reg) }).then_some(from)
}

/// The block that the end of `b` leads to where `granted`, which its instruction `at` makes, is true, if it leads to another where it
/// is not, and nothing behind `at` changes anything.
fn granted_at(func: &Function, b: Block, at: usize, granted: Value) -> Option<Block> {
    let data = &func.blocks[b];
    let Terminator::Branch { cond, not, taken, fall } = &data.term else { return None };
    if data.insts[at + 1..].iter().any(|i| change(&func.insts[*i]).is_some()) {
        return None;
    }
    let mut decides = cond.value()?;
    let (mut not, mut steps) = (*not, data.insts.len());
    while decides != granted {
        let copy = data.insts[at + 1..].iter().map(|i| &func.insts[*i]).find(|d| {
            let mut makes = false;
            d.for_each_def(|n| makes |= n == Name::Val(decides));
            makes
        })?;
        let from = copied(copy).filter(|_| steps > 0)?;
        not ^= from.not;
        decides = from.reg.value()?;
        steps -= 1;
    }
    let (yes, no) = if not { (fall.block, taken.block) } else { (taken.block, fall.block) };
    (yes != no).then_some(yes)
}
