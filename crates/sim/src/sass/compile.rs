//! From decoded instructions to executable steps, once per static instruction.

use super::check::Order;
use super::control::{self, Control};
use super::image::Banks;
use super::late::{Kind, Wait};
use super::operand::{Exec, Operands, Pred};
use super::trace::Traffic;
use super::uniform::Uses;
use super::{
    barrier, bulk, convert, driver, float, half, int, mem, packed, surface, tensor, texture, tiles, tmem,
    warp,
};
use sass::{Inst, Operand, RegFile};
use std::sync::Arc;

/// Why an instruction cannot be executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unsupported(pub(crate) String);

/// An [`Unsupported`] as a result.
pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported(what.into()))
}

/// What a step does.
pub(crate) enum Action {
    /// Nothing that can be seen here: caches, ordering, scoreboards.
    Nothing,
    /// Computes, loads or stores.
    Exec(Exec),
    /// The same, and may be left for later ([`super::late`]).
    Late(Arc<Exec>, Kind),
    /// Nothing, unless something was left for later.
    Wait(Wait),
    /// The same, and looks at or changes where the group is.
    Jump(Exec),
    /// Moves threads.
    Control(Control),
    /// Fails when it is reached: the simulator lacks it.
    Unsupported(String),
    /// Fails when it is reached: the hardware would not take it.
    Fault(String),
}

/// An instruction, ready to run.
pub(crate) struct Step {
    pub(crate) guard: Pred,
    pub(crate) action: Action,
    /// The uniform registers that it uses.
    pub(crate) uniform: Option<Uses>,
    /// The memory that it reaches, for [`super::trace`].
    pub(crate) traffic: Option<Traffic>,
    /// The uniform register of its memory descriptor.
    pub(crate) descriptor: Option<u8>,
    /// How its accesses are ordered with others.
    pub(crate) order: Order,
    /// Whether blocks that run at the same time notice it of each other only by a race.
    pub(crate) independent: bool,
    /// Registers that it needs, from R0 on, if that is looked at.
    pub(crate) needs: u32,
}

/// Instructions without an effect on a machine that finishes each one before the next.
const NO_EFFECT: &[&str] = &[
    "NOP",
    "DEPBAR",
    "MEMBAR",
    "ERRBAR",
    "CGAERRBAR",
    "FENCE",
    "CCTL",
    "CCTLL",
    "ACQBULK",
    "PREEXIT",
    "PMTRIG",
    "LDGDEPBAR",
    "UCGABAR_ARV",
    "CCTL.LDCU",
    "UTMACMDFLUSH",
    "UTMACCTL",
    "WARPGROUP",
    "WARPGROUP.DEPBAR",
    "UBLKPF",
    "UTMAPF",
    "UVIRTCOUNT",
];

/// The uniform forms whose operation is the one of the name without `U`.
const UNIFORM: &[&str] = &[
    "UIADD3",
    "UIMAD",
    "ULOP3",
    "USHF",
    "ULEA",
    "UISETP",
    "USEL",
    "USEL.NEGATIVE",
    "UIABS",
    "UVIMNMX",
    "UIMNMX.U64",
    "UIMNMX.S64",
    "UPOPC",
    "UFLO",
    "UBREV",
    "UPRMT",
    "USGXT",
    "UBMSK",
    "UMOV",
    "UPLOP3",
    "UP2UR",
    "UR2UP",
    "UFADD",
    "UFMUL",
    "UFFMA",
    "UFSEL",
    "UFSETP",
    "UI2F",
    "UI2FP",
    "UI2IP",
    "UF2F",
    "UF2FP",
    "UF2IP",
    "UF2I",
    "UIADD",
    "UFMNMX",
    "UFRND",
    "UVIADD",
    "UIMNMX",
    "UMOV64",
];

impl Step {
    /// Does nothing but this.
    pub(crate) fn only(action: Action) -> Step {
        let (order, independent) = (Order::default(), true);
        Step {
            guard: Pred::TRUE,
            action,
            uniform: None,
            descriptor: None,
            traffic: None,
            order,
            independent,
            needs: 0,
        }
    }

    /// Prepares an instruction. What isn't supported only fails if it is executed.
    pub(crate) fn of(inst: &Inst, banks: &Banks) -> Step {
        let guard = Pred::of(inst.guard.pred, inst.guard.not);
        let action = guard.clone().and_then(|_| action(inst, banks));
        let action = match (action, Kind::of(inst)) {
            (Ok(Action::Exec(exec)), Some(kind)) => Ok(Action::Late(Arc::new(exec), kind)),
            (action, _) => action,
        };
        // These see to their guard themselves.
        let own = matches!(action, Ok(Action::Control(Control::BranchDiverged { .. })));
        let independent = matches!(action, Ok(Action::Nothing | Action::Wait(_))) || independent(inst);
        Step {
            order: Order::of(inst),
            independent,
            needs: 0,
            guard: guard.ok().filter(|_| !own).unwrap_or(Pred::TRUE),
            action: action.unwrap_or_else(|Unsupported(what)| Action::Unsupported(what)),
            uniform: Uses::of(inst),
            descriptor: inst.operands.iter().find_map(descriptor),
            traffic: Traffic::of(&Operands::new(inst, banks)),
        }
    }
}

/// Instructions that reach memory, global memory only by accesses that nobody waits for, if at all.
const PLAIN: &[&str] = &[
    "LD",
    "ST",
    "LDG",
    "STG",
    "LDG.256",
    "STG.256",
    "LDS",
    "STS",
    "LDL",
    "STL",
    "LDSM",
    "STSM",
    "ATOMS",
    "ATOMS.CAST",
    "LDGSTS",
    "SYNCS",
    "ARRIVES",
    "UBLKCP",
    "UTMALDG",
    "UTMASTG",
    "UMEMSETS",
];

/// Textures and surfaces.
const IMAGES: &[&str] = &["TEX", "TLD", "TLD4", "TXD", "TXQ", "SULD", "SUST", "SURED"];

/// See [`Step::independent`]: also what others' order doesn't change, operations on integers whose result nobody reads.
fn independent(inst: &Inst) -> bool {
    let name = inst.op.name();
    let word = name.split('.').next().unwrap_or(name);
    let has = |names: &[&str]| inst.mods.iter().any(|m| names.contains(&m.name()));
    match name {
        "CALL" | "RET" => !has(&["ABS"]),
        "LEPC" => false,
        // Images belong to a memory that one block has for itself.
        _ if IMAGES.contains(&word) => false,
        "RED" | "REDG" | "ATOM" | "ATOMG" => {
            let silent = name.starts_with("RED")
                || inst.operands.get(1).is_some_and(|o| o.as_reg().is_some_and(|r| r.reg.is_zero()));
            let number =
                ["F32", "F64", "F16x2", "BF16x2", "F32x2", "F32x4", "F16x4", "F16x8", "BF16x4", "BF16x8"];
            silent && has(&["ADD", "MIN", "MAX", "AND", "OR", "XOR"]) && !has(&number)
        }
        _ if PLAIN.contains(&name) || PLAIN.contains(&word) => {
            word == "SYNCS" || !has(&["STRONG", "MMIO"]) || !matches!(word, "LD" | "ST" | "LDG" | "STG")
        }
        _ => !inst.operands.iter().any(|o| matches!(o, Operand::Addr { .. })),
    }
}

fn descriptor(operand: &Operand) -> Option<u8> {
    let Operand::Addr { desc: Some(d), .. } = operand else { return None };
    (d.file == RegFile::UR).then_some(d.index)
}

fn action(inst: &Inst, banks: &Banks) -> Result<Action, Unsupported> {
    let name = inst.op.name();
    if let Some(wait) = Wait::of(inst) {
        return Ok(Action::Wait(wait));
    }
    if NO_EFFECT.contains(&name) {
        return Ok(Action::Nothing);
    }
    let o = Operands::new(inst, banks);
    let plain = if UNIFORM.contains(&name) { &name[1..] } else { name };
    let families = [int::compile, float::compile, half::compile, convert::compile];
    for family in families {
        if let Some(exec) = family(plain, &o)? {
            o.finish()?;
            return Ok(Action::Exec(exec));
        }
    }
    for family in [
        tensor::compile,
        tmem::compile,
        barrier::compile,
        bulk::compile,
        tiles::compile,
        packed::compile,
        texture::compile,
        surface::compile,
    ] {
        if let Some(exec) = family(&o)? {
            o.finish()?;
            return Ok(Action::Exec(exec));
        }
    }
    if let Some(exec) = driver::compile(&o)? {
        o.finish()?;
        return Ok(Action::Jump(exec));
    }
    for family in [mem::compile, warp::compile] {
        if let Some(exec) = family(name, &o)? {
            o.finish()?;
            return Ok(Action::Exec(exec));
        }
    }
    match control::compile(name, &o)? {
        Some(c) => {
            o.finish()?;
            Ok(Action::Control(c))
        }
        None => unsupported(format!("opcode {name}")),
    }
}
