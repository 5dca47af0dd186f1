//! Products of warp groups go on while the code does: from a product to the wait that names its group, its accumulator and the
//! registers of A belong to the tensor core. Nothing but further products on the same accumulator may touch them; and what
//! touched them before has to be behind it at a `WARPGROUP.ARRIVE`, which is put in where none is.

use crate::Error;
use crate::machine::{Machine, MachineInst, inst};
use crate::units::{self, Unit};
use sass::ops::WarpgroupDepbar;
use sass::{Inst, Mod, Opcode, Operand, RegFile};
use std::collections::BTreeSet;
use std::ops::Range;

/// What keeps products from going on, so that they are waited for one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// Code writes registers that a product reads.
    Inputs,
    /// Code reads an accumulator.
    Read,
    /// Code writes an accumulator.
    Defined,
    /// Registers of products are spilled while these go on.
    Spilled,
    /// Nothing: registers are given out without a look at what is under way (-O0).
    Unplanned,
    /// A function is called that may use the registers.
    Called,
    /// Products get into each other's way.
    Products,
}

/// General registers.
const REGISTERS: usize = 255;
/// Not under way.
const DONE: u8 = u8::MAX;
/// More groups than a wait can leave.
const MANY: u8 = 15;

/// What is under way in a register: for how many ends of groups, and in which accumulator.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    written: u8,
    /// First register and number of registers of the accumulator; 0 registers: several.
    by: (u8, u8),
    read: u8,
    /// Whether code touched it since the last arrival.
    touched: bool,
}

impl Way {
    const NONE: Way = Way { written: DONE, by: (0, 0), read: DONE, touched: false };

    fn merge(&mut self, other: &Way) -> bool {
        let before = *self;
        if self.written == DONE {
            self.by = other.by;
        } else if other.written != DONE && self.by != other.by {
            self.by = (0, 0);
        }
        self.written = self.written.min(other.written);
        self.read = self.read.min(other.read);
        self.touched |= other.touched;
        *self != before
    }
}

type State = Vec<Way>;

/// A tuple among the operands: first register and number of registers.
fn tuple(i: &Inst, at: usize) -> Option<(u8, u8)> {
    let r = i.operands[at].as_reg()?;
    (r.reg.file == RegFile::R && !r.reg.is_zero()).then(|| (r.reg.index, i.op.width(at, &i.mods)))
}

/// The operand that is added.
fn addend(op: Opcode) -> usize {
    let width = |k: usize| op.slots()[k].width == sass::Width::Accumulator;
    (1..op.slots().len()).find(|k| width(*k)).unwrap_or(0)
}

fn span((first, count): (u8, u8)) -> std::ops::Range<usize> {
    usize::from(first)..(usize::from(first) + usize::from(count)).min(REGISTERS)
}

fn general(unit: Unit) -> Option<usize> {
    (usize::from(unit) < REGISTERS).then_some(usize::from(unit))
}

/// Whether there are such products.
pub fn any(machine: &Machine) -> bool {
    machine.blocks.iter().flat_map(|b| &b.insts).any(|i| i.inst.op.is_group_product())
}

/// The general registers that such products use, in order.
pub fn registers(machine: &Machine) -> Vec<Unit> {
    let mut used = [false; REGISTERS];
    for i in machine.blocks.iter().flat_map(|b| &b.insts).filter(|i| i.inst.op.is_group_product()) {
        units::for_each_read(&i.inst, |u, _| general(u).into_iter().for_each(|r| used[r] = true));
        units::for_each_write(&i.inst, |u, _| general(u).into_iter().for_each(|r| used[r] = true));
    }
    (0..REGISTERS).filter(|r| used[*r]).map(|r| r as Unit).collect()
}

/// Follows an instruction; whether it comes too early. `arrive` is set where an arrival is missing before it.
fn step(state: &mut State, i: &Inst, arrive: &mut bool) -> Result<(), (String, Touched)> {
    let early = |r: usize, how| Err((format!("R{r} belongs to a product of the warp group"), how));
    let ill_formed = |what: &str| Err((what.to_string(), Touched::Products));
    match i.op {
        Opcode::WARPGROUP => state.iter_mut().for_each(|w| w.touched = false),
        Opcode::WARPGROUP_DEPBAR => {
            let left = match WarpgroupDepbar::of(i).map(|s| s.left) {
                Some(Operand::Imm(n)) if i.mods.has(Mod::LE) => *n,
                _ => return ill_formed("a wait of another kind for products of the warp group"),
            };
            for w in state.iter_mut() {
                for age in [&mut w.written, &mut w.read] {
                    if u32::from(*age) > left {
                        *age = DONE;
                    }
                }
            }
        }
        op if op.is_group_product() => {
            let result = tuple(i, 0);
            let added = tuple(i, addend(op));
            if added.is_some() && added != result {
                return ill_formed("a product of the warp group in two accumulators");
            }
            let others = (1..op.slots().len()).filter(|k| *k != addend(op)).filter_map(|k| tuple(i, k));
            let others: Vec<usize> = others.flat_map(span).collect();
            if let Some(r) = others.iter().find(|r| state[**r].written != DONE) {
                return early(*r, Touched::Products);
            }
            if let Some(d) = result {
                // Its own sources as well: they are read while the result comes.
                let taken = |r: &usize| {
                    let w = &state[*r];
                    w.read != DONE || w.written != DONE && w.by != d || others.contains(r)
                };
                if let Some(r) = span(d).find(taken) {
                    return early(r, Touched::Products);
                }
            }
            let all = || result.into_iter().flat_map(span).chain(others.iter().copied());
            if all().any(|r| state[r].touched) {
                *arrive = true;
                state.iter_mut().for_each(|w| w.touched = false);
            }
            for r in result.into_iter().flat_map(span) {
                (state[r].written, state[r].by) = (0, result.unwrap_or_default());
            }
            others.iter().for_each(|r| state[*r].read = 0);
            if i.operands.last() == Some(&Operand::Imm(0)) {
                for w in state.iter_mut() {
                    for age in [&mut w.written, &mut w.read] {
                        if *age < MANY {
                            *age += 1;
                        }
                    }
                }
            }
        }
        _ => {
            let mut wrong = None;
            units::for_each_read(i, |u, _| {
                if let Some(r) = general(u) {
                    wrong = wrong.or((state[r].written != DONE).then_some((r, Touched::Read)));
                    state[r].touched = true;
                }
            });
            units::for_each_write(i, |u, _| {
                if let Some(r) = general(u) {
                    wrong = wrong.or((state[r].written != DONE).then_some((r, Touched::Defined)));
                    wrong = wrong.or((state[r].read != DONE).then_some((r, Touched::Inputs)));
                    state[r].touched = true;
                }
            });
            if let Some((r, how)) = wrong {
                return early(r, how);
            }
        }
    }
    Ok(())
}

/// Whether nothing touches what is under way, and no arrival is missing, where instructions have been given new places.
///
/// # Errors
/// Where that is not so.
pub fn check(machine: &Machine) -> Result<(), Error> {
    if !any(machine) {
        return Ok(());
    }
    match put(&mut machine.clone(), &(0..0))?.changed {
        false => Ok(()),
        true => Err(Error::new("internal error: an arrival of the warp group has lost its place")),
    }
}

/// Checks all of it and puts arrivals in; the PTX lines of the products that they are before, and of groups of nothing, which
/// lowering puts one before. `spills` is where in the frame spilled registers are.
///
/// # Errors
/// Where something comes too early.
pub fn run(machine: &mut Machine, spills: &Range<u32>) -> Result<Vec<u32>, Error> {
    if !any(machine) {
        return Ok(Vec::new());
    }
    Ok(put(machine, spills)?.lines.into_iter().collect())
}

/// What [`run`] did.
#[derive(Default)]
struct Put {
    lines: BTreeSet<u32>,
    /// Whether an arrival is new or in another place.
    changed: bool,
}

fn put(machine: &mut Machine, spills: &Range<u32>) -> Result<Put, Error> {
    let mut done = Put::default();
    let count = machine.blocks.len();
    let mut entry: Vec<Option<State>> = vec![None; count];
    entry[0] = Some(vec![Way { touched: true, ..Way::NONE }; REGISTERS]);
    let mut dirty = vec![false; count];
    dirty[0] = true;
    while let Some(b) = dirty.iter().position(|d| *d) {
        dirty[b] = false;
        let Some(mut state) = entry[b].clone() else { continue };
        for i in &machine.blocks[b].insts {
            let early = |(message, how)| {
                let how = match i.inst.op {
                    Opcode::CALL => Touched::Called,
                    _ if is_spill(&i.inst, spills) => Touched::Spilled,
                    _ => how,
                };
                Error { groups_touched: Some(how), ..Error::at(i.line, message) }
            };
            step(&mut state, &i.inst, &mut false).map_err(early)?;
        }
        for &s in &machine.blocks[b].succs {
            let s = s as usize;
            match &mut entry[s] {
                Some(old) => {
                    for (old, new) in old.iter_mut().zip(&state) {
                        dirty[s] |= old.merge(new);
                    }
                }
                none => {
                    *none = Some(state.clone());
                    dirty[s] = true;
                }
            }
        }
    }
    for (b, entry) in entry.into_iter().enumerate() {
        let Some(mut state) = entry else { continue };
        let mut out = Vec::new();
        for i in std::mem::take(&mut machine.blocks[b].insts) {
            let mut arrive = false;
            step(&mut state, &i.inst, &mut arrive).map_err(|(m, _)| Error::at(i.line, m))?;
            let of_nothing = i.inst.op.is_group_product() && tuple(&i.inst, 0).is_none();
            if arrive {
                done.changed = true;
                let group = |i: &MachineInst| i.inst.op == Opcode::WARPGROUP || i.inst.op.is_group_product();
                let last = out.iter().rposition(group).filter(|at| out[*at].inst.op == Opcode::WARPGROUP);
                // One that no product came after comes later instead.
                let arrival = match last {
                    Some(at) => out.remove(at),
                    None => {
                        done.lines.insert(i.line);
                        MachineInst::new(inst(Opcode::WARPGROUP, &[Mod::ARRIVE], &[]), i.line)
                    }
                };
                out.push(arrival);
            } else if of_nothing {
                done.lines.insert(i.line);
            }
            out.push(i);
        }
        machine.blocks[b].insts = out;
    }
    Ok(done)
}

/// Whether an instruction moves a register to or from where spilled ones are.
fn is_spill(i: &Inst, spills: &Range<u32>) -> bool {
    matches!(i.op, Opcode::STL | Opcode::LDL)
        && i.operands.iter().any(|o| match o {
            Operand::Addr { offset, .. } => u32::try_from(*offset).is_ok_and(|at| spills.contains(&at)),
            _ => false,
        })
}
