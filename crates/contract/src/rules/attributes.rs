//! How attributes go with the code: registers, frames, barriers, lists of instructions.

use super::always::{self, Always};
use super::{Judge, Rule, Seen};
use crate::elf::Elf;
use crate::{Counts, Family, File, Kernel, Place, Table};
use sass::{Mod, Opcode, Operand, Reg, RegFile, Role};
use std::collections::{BTreeMap, BTreeSet};

pub struct Attributes;

/// Attributes that list instructions by their offsets.
const LISTS: &[(u8, &str)] = &[
    (0x1c, "EXIT_INSTR_OFFSETS"),
    (0x25, "LD_CACHEMOD_INSTR_OFFSETS"),
    (0x28, "COOP_GROUP_INSTR_OFFSETS"),
    (0x46, "SYSCALL_OFFSETS"),
];
/// Instructions besides those of control and barriers whose kernels may have attributes of their own.
const TELLING: &[&str] = &[
    "ARRIVES",
    "CREDUX",
    "MATCH",
    "REDUX",
    "SHFL",
    "SYNCS.ARRIVE",
    "SYNCS.EXCH",
    "SYNCS.PHASECHK",
    "UTCATOMSWS",
    "UTCATOMSWS.FIND",
    "VOTE",
];
const CRS_STACK_SIZE: u8 = 0x1e;
const REGCOUNT: u8 = 0x2f;
const NUM_BARRIERS: u8 = 0x4c;
const EXTERNS: u8 = 0x0f;
const FRAME_SIZE: u8 = 0x11;
const MIN_STACK_SIZE: u8 = 0x12;

/// The first word of a payload.
fn word(payload: &[u8]) -> u32 {
    payload.iter().take(4).rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

/// The highest general register that the code names.
fn highest(kernel: &Kernel) -> Option<u32> {
    let mut most = None;
    let mut see = |r: &Reg, width: u8| {
        if r.file == RegFile::R && !r.is_zero() {
            most = most.max(Some(u32::from(r.index) + u32::from(width.max(1)) - 1));
        }
    };
    for inst in kernel.items.iter().filter_map(|i| i.inst()) {
        for (i, operand) in inst.operands.iter().enumerate() {
            match operand {
                Operand::Reg(r) => see(&r.reg, inst.op.width(i, &inst.mods)),
                Operand::Const { index: Some(r), .. } => see(r, 1),
                Operand::Addr { base: Some(r), width, .. } => {
                    see(r, if *width == sass::AddrWidth::R64 { 2 } else { 1 });
                }
                _ => {}
            }
        }
    }
    most
}

/// What the code first subtracts from the stack pointer.
fn frame(kernel: &Kernel) -> u32 {
    let step = kernel.items.iter().take(kernel.length).filter_map(|i| i.inst()).find_map(|inst| {
        let on_stack = |role| {
            let mut both = inst.operands.iter().zip(inst.op.slots());
            both.any(|(o, s)| s.role == role && o.as_reg().is_some_and(|r| r.reg == Reg::SP))
        };
        let by = inst.operands.iter().find_map(|o| match o {
            Operand::Imm(n) => Some((*n as i32).unsigned_abs()),
            _ => None,
        });
        by.filter(|_| on_stack(Role::Def) && on_stack(Role::Use))
    });
    step.unwrap_or(0)
}

impl Rule for Attributes {
    fn name(&self) -> &'static str {
        "attributes"
    }
    fn built_in(&self) -> &'static str {
        include_str!("../../tables/attributes.txt")
    }
    fn observe(&self, file: &File<'_>, see: &mut dyn FnMut(Place, &str)) {
        // The driver's functions for these may use more registers than their callers name.
        let of_gradients =
            |e: Elf<'_>| e.symbols.iter().any(|s| s.name.starts_with("__cuda_syscall_tex_grad_"));
        let gradients = Elf::new(file.bytes).is_ok_and(of_gradients);
        for (k, kernel) in file.kernels.iter().enumerate() {
            let place = Place::kernel(k);
            let attributes: BTreeMap<u8, &[u8]> =
                file.image.kernels[&kernel.name].attributes.iter().map(|(c, p)| (*c, &p[..])).collect();
            let uses: BTreeSet<Opcode> = kernel.items.iter().filter_map(|i| i.op()).collect();
            let has = |ops: &[Opcode]| ops.iter().any(|o| uses.contains(o));
            let alone = !has(&[Opcode::CALL]) && file.image.kernels[&kernel.name].functions.len() < 2;
            if let Some(payload) = attributes.get(&REGCOUNT) {
                let room = i64::from(word(payload)) - highest(kernel).map_or(0, |n| i64::from(n) + 1);
                if has(&[Opcode::USETMAXREG, Opcode::USETMAXREG_ALLOC]) {
                    // What threads begin with is what launch bounds leave; elsewhere they hold more or fewer.
                } else if room > 2 && gradients && has(&[Opcode::CALL]) {
                    see(place, &format!("GRADIENTS called with registers {}", word(payload)));
                } else if room > 2 && attributes.contains_key(&EXTERNS) {
                    // The driver's functions that the PTX calls have registers of their own, whether a call is left or not.
                    see(place, &format!("EXTERNS called with registers {}", word(payload)));
                } else {
                    let room = if room > 8 { "more".to_string() } else { room.to_string() };
                    see(place, &format!("REGCOUNT beyond the highest register {room}"));
                }
            }
            if alone {
                for (code, name) in [(FRAME_SIZE, "FRAME_SIZE"), (MIN_STACK_SIZE, "MIN_STACK_SIZE")] {
                    if let Some(payload) = attributes.get(&code) {
                        let beyond = i64::from(word(payload)) - i64::from(frame(kernel));
                        see(place, &format!("{name} beyond the frame {beyond}"));
                    }
                }
            }
            let converges = has(&[Opcode::BSSY, Opcode::BSYNC, Opcode::BREAK, Opcode::BMOV]);
            let crs = if attributes.contains_key(&CRS_STACK_SIZE) { "there" } else { "absent" };
            for (what, is) in [
                ("with convergence barriers", converges),
                ("with BAR", has(&[Opcode::BAR])),
                ("with CALL", has(&[Opcode::CALL])),
                ("with WARPSYNC", has(&[Opcode::WARPSYNC])),
                ("without any of these", !converges && !has(&[Opcode::BAR, Opcode::CALL, Opcode::WARPSYNC])),
            ] {
                if is {
                    see(place, &format!("CRS_STACK_SIZE {crs} {what}"));
                }
            }
            let barriers = attributes.get(&NUM_BARRIERS).map_or(0, |p| p.first().copied().unwrap_or(0));
            let mut named = Some(0);
            for inst in kernel.items.iter().filter_map(|i| i.inst()).filter(|i| i.op == Opcode::BAR) {
                named = match inst.operands.first() {
                    Some(Operand::Imm(n)) => {
                        named.max(named.map(|_| *n as u8 + 1)).filter(|_| named.is_some())
                    }
                    _ => None,
                };
            }
            match named {
                Some(n) if alone => {
                    see(
                        place,
                        &format!("NUM_BARRIERS beyond the highest {}", i32::from(barriers) - i32::from(n)),
                    );
                }
                Some(_) => {}
                None => see(place, &format!("NUM_BARRIERS of registers {barriers}")),
            }
            let all: Vec<String> = attributes.keys().map(|code| format!("{code:#04x}")).collect();
            let all = all.join(" ");
            // Only kernels have parameters in bank 0.
            let kind =
                if file.image.kernels[&kernel.name].constant0.is_empty() { "function" } else { "kernel" };
            see(place, &format!("attributes of a {kind}: {all}"));
            let tells = |op: &Opcode| {
                let info = op.info();
                *op != Opcode::YIELD && (info.control || info.sync || TELLING.contains(&op.name()))
            };
            for op in uses.iter().filter(|op| tells(op)) {
                see(place, &format!("{op} in a {kind} has: {all}"));
            }
            // Before sm_90 barriers are words of memory.
            let arrives =
                |i: &sass::Inst| matches!(i.op, Opcode::ATOM | Opcode::ATOMS) && i.mods.has(Mod::ARRIVE);
            if kernel.items.iter().filter_map(|i| i.inst()).any(arrives) {
                see(place, &format!("ATOMS.ARRIVE in a {kind} has: {all}"));
            }
            for (code, name) in LISTS {
                let payload = attributes.get(code).copied().unwrap_or_default();
                let listed: BTreeSet<usize> =
                    payload.chunks_exact(4).map(|w| word(w) as usize / 16).collect();
                for (at, item) in kernel.items.iter().enumerate().take(kernel.length) {
                    let Some(op) = item.op() else { continue };
                    let does = if listed.contains(&at) { "lists" } else { "omits" };
                    see(Place::inst(k, at), &format!("{name} {does} {op}"));
                }
            }
        }
    }
    /// That a list omits what it never lists says nothing. Numbers of registers that are one in a hundred are those of kernels
    /// with limits and of the driver's own functions.
    fn digest(&self, mut counts: Counts) -> Counts {
        let registers = |text: &str| text.starts_with("REGCOUNT ");
        let all: u64 = counts.0.iter().filter(|((_, t), _)| registers(t)).map(|(_, n)| n).sum();
        let mut of: BTreeMap<String, u64> = BTreeMap::new();
        for ((_, text), n) in &counts.0 {
            *of.entry(text.clone()).or_default() += n;
        }
        counts.0.retain(|(_, text), _| !registers(text) || of[text] * 100 >= all);
        let lists: BTreeSet<String> =
            counts.0.keys().filter(|(_, t)| t.contains(" lists ")).map(|k| k.1.clone()).collect();
        let says =
            |text: &str| !text.contains(" omits ") || lists.contains(&text.replace(" omits ", " lists "));
        always::digest(Counts(counts.0.into_iter().filter(|((_, text), _)| says(text)).collect()))
    }
    fn extend(&self, table: &mut Table, family: Family, observation: &str, times: u64) {
        // Other numbers of registers are those that `digest` leaves out.
        if observation.starts_with("REGCOUNT ") {
            return;
        }
        always::extend(table, family, observation, times);
    }
    fn learn(&self, table: &Table) -> Box<dyn Judge> {
        Box::new(Lists(Seen::new(table), Always::new(table)))
    }
}

struct Lists(Seen, Always);

impl Judge for Lists {
    fn judge(&self, family: crate::Family, observation: &str) -> Option<String> {
        if observation.contains(": ") || observation.ends_with(':') {
            return self.1.judge(family, observation);
        }
        if observation.contains(" omits ") {
            let listed = (family, observation.replace(" omits ", " lists "));
            let omitted = (family, observation.to_string());
            let wrong = self.0.rows.contains(&listed) && !self.0.rows.contains(&omitted);
            return wrong.then(|| format!("{observation}; it always lists it"));
        }
        // How many there are of those whose numbers only callers know: ptxas has such code from sm_90 on alone.
        let fewer = |text: &str| {
            let number = text.strip_prefix("NUM_BARRIERS of registers ").and_then(|n| n.parse::<u8>().ok());
            number.is_some_and(|n| n < 16)
        };
        if fewer(observation) && self.0.rows.iter().any(|(_, text)| fewer(text)) {
            return None;
        }
        self.0.judge(family, observation)
    }
    fn is_foreign(&self, family: Family, observation: &str) -> bool {
        let listed =
            observation.contains(": ") || observation.ends_with(':') || observation.contains(" omits ");
        !listed && self.0.is_foreign(family, observation)
    }
}
