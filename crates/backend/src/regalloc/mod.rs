//! Register allocation: from SSA on values to physical registers.
//!
//! Pressure is lowered in SSA ([`spill`]) until what is live fits; then parameters and kept values are
//! isolated by copies, copies are coalesced ([`webs`]), the webs are coloured ([`color`]) and the result is
//! written back ([`rewrite`]). If colouring finds no room, the webs that failed are split, then spilled, and
//! the last steps run again. At the end spill slots come to share memory ([`slots`]). [`checker`] proves the
//! result independently.

mod busy;
pub mod checker;
mod color;
mod farthest;
mod intervals;
mod prepare;
mod rewrite;
pub(crate) mod room;
mod slots;
mod sources;
pub(crate) mod spill;
mod split;
pub(crate) mod undefined;
mod under_way;
mod webs;

use crate::liveness::Ranges;
use crate::pool::{self, Grants};
use crate::together::WholeWarp;
use crate::uniform::across;
use color::{Coloring, Failed, Order, Terms};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::registers::FILES;
use ori::{Allocated, Block, Function, Value};
use room::{FEW, Room};
use sass::target::{HARDWARE_REGISTERS, LEAST_LIMIT};
use sass::{Reg, RegFile};
use spill::Spiller;
use std::fmt;
use std::rc::Rc;

/// How many registers of each file may be used, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// General registers, R1 included: 253 at most.
    pub regs_r: u8,
    /// Uniform registers.
    pub uregs: u8,
    /// Predicates.
    pub preds: u8,
    /// Uniform predicates.
    pub upreds: u8,
    /// Convergence barrier registers.
    pub barriers: u8,
    /// Whether [`ori::abi::FRAME_POINTER`] is taken.
    pub frame_pointer: bool,
    /// Whether [`ori::abi::BARRIERS_READY`] is taken.
    pub barriers_ready: bool,
    /// Which registers a function that is called has to keep.
    pub convention: ori::abi::Convention,
    /// Whether values may leave registers for memory; else that is an error.
    pub spills: bool,
    /// Whether the independent checker looks at the result; in builds with debug assertions it always does.
    pub check: bool,
}

impl Limits {
    /// Everything the function's target and its own bound allow.
    pub fn of(func: &Function) -> Limits {
        Limits {
            regs_r: pool::most(func).max(LEAST_LIMIT) - HARDWARE_REGISTERS,
            uregs: func.target.info().uregs,
            preds: 7,
            upreds: 7,
            barriers: 12,
            frame_pointer: func.moves_stack() || func.keeps == ori::Keeps::FramePointer,
            barriers_ready: ori::abi::has_barriers_ready(func.target.sm),
            convention: func.convention,
            spills: true,
            check: false,
        }
    }

    /// Whether the register holds something that is not allocated: the stack or frame pointer, the state of sm_87's
    /// convergence barriers.
    fn reserved(&self, r: Reg) -> bool {
        r == Reg::SP
            || self.frame_pointer && r == ori::abi::FRAME_POINTER
            || self.barriers_ready && r == ori::abi::BARRIERS_READY
    }

    fn count(&self, file: RegFile) -> u8 {
        match file {
            RegFile::R => self.regs_r,
            RegFile::P => self.preds,
            RegFile::UR => self.uregs,
            RegFile::UP => self.upreds,
            RegFile::B => self.barriers,
        }
    }
}

/// What an allocation used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// General registers, up to the highest used.
    pub regs_used: u16,
    /// Uniform registers.
    pub uregs_used: u16,
    /// Predicates.
    pub preds_used: u16,
    /// Bytes stored to spill slots by instructions in the code.
    pub spill_store_bytes: u32,
    /// Bytes loaded from spill slots.
    pub spill_load_bytes: u32,
    /// Where in the frame the spill slots begin and end.
    pub spill_slots: (u32, u32),
    /// Bytes of the frame: local variables, then spill slots.
    pub frame_bytes: u32,
}

/// A function with its registers given out.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The function, on physical registers.
    pub func: Allocated,
    /// What it uses.
    pub stats: Stats,
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.func.fmt(f)
    }
}

/// Why a function could not be allocated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// One instruction needs more registers than there are.
    Pressure(RegFile),
    /// No instruction does this move.
    Move(String),
    /// The result is wrong (an error in the allocator), found by the checker.
    Check(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Pressure(file) => write!(f, "too few registers of file {file:?}"),
            Error::Move(m) => write!(f, "no instruction moves {m}"),
            Error::Check(m) => write!(f, "register allocation failed its check: {m}"),
        }
    }
}

impl std::error::Error for Error {}

/// A function whose parameters are isolated, for the colouring.
struct Split {
    func: Function,
    isolated: webs::Isolated,
    ranges: Ranges,
    /// [`joint_values`].
    joint: FixedBitSet,
}

impl Split {
    fn new(func: &Function, cfg: &Cfg, warp: Option<&WholeWarp>) -> Split {
        let mut func = func.clone();
        let isolated = webs::isolate(&mut func, cfg);
        let ranges = Ranges::new(&func, cfg);
        let joint = warp.map_or_else(FixedBitSet::new, |warp| joint_values(&func, cfg, warp));
        Split { func, isolated, ranges, joint }
    }
}

/// Blocks whose parameters in uniform registers change.
fn changing(func: &Function, cfg: &Cfg) -> Vec<Block> {
    let changes = |b: &Block| func.blocks[*b].params.iter().any(|p| is_uniform(func, *p));
    cfg.rpo.iter().copied().filter(changes).collect()
}

/// With more uniform registers than this that live from block to block it matters where lanes are together; with any, if functions are called, which
/// take them wherever lanes may be.
const MANY: usize = 8;

/// Where all lanes of the warp are together, if that matters: if uniform registers change, or many live from block to block.
fn together_for(func: &Function, cfg: &Cfg) -> Option<WholeWarp> {
    let most = if func.callees.is_empty() { MANY } else { 0 };
    let many = || across(func, cfg, |v| func.values[v].file == RegFile::UR) > most;
    (!changing(func, cfg).is_empty() || func.entry && many()).then(|| {
        // Behind those at which lanes of several places meet they go on from there.
        let insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).copied();
        let meetings = insts.filter(|i| ori::meeting::is_meeting(&func.insts[*i])).collect();
        WholeWarp::new(func, cfg, &meetings)
    })
}

/// Whether a function has parameters in uniform registers, and all of them are passed where lanes are together.
fn all_change_together(func: &Function, cfg: &Cfg, warp: &WholeWarp) -> bool {
    let changing = changing(func, cfg);
    let apart = |b: &Block| !warp.at_start(*b) || cfg.preds[*b].iter().any(|p| !warp.at_end(*p));
    !changing.is_empty() && !changing.iter().any(apart)
}

/// Whether uniform registers change only where all lanes of the warp are together: a lane that comes later would otherwise find what
/// those before it left. Allocation takes any function; this is asked where counters were put into such registers.
pub fn changes_together(func: &Function, cfg: &Cfg) -> bool {
    changing(func, cfg).is_empty()
        || together_for(func, cfg).is_some_and(|warp| all_change_together(func, cfg, &warp))
}

fn is_uniform(func: &Function, v: Value) -> bool {
    matches!(func.values[v].file, RegFile::UR | RegFile::UP)
}

/// The values in uniform registers that are made where all lanes are together.
fn joint_values(func: &Function, cfg: &Cfg, warp: &WholeWarp) -> FixedBitSet {
    let mut out = FixedBitSet::with_capacity(func.values.len());
    for &b in cfg.rpo.iter().filter(|b| warp.at_start(**b) && warp.at_end(**b)) {
        let mut note = |v: Value| {
            if is_uniform(func, v) {
                out.insert(v.index());
            }
        };
        func.blocks[b].params.iter().for_each(|p| note(*p));
        for i in &func.blocks[b].insts {
            func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(&mut note));
        }
    }
    out
}

/// The function as it is allocated, with copies where operands share registers: what an allocation of it is checked against.
///
/// # Errors
/// A move between files that does not exist.
pub fn prepared(mut func: Function) -> Result<Function, Error> {
    prepare::run(&mut func).map(|_| func)
}

/// Allocates registers for a function in SSA.
///
/// # Errors
/// Too few registers, or a move between files that does not exist.
pub fn allocate(mut func: Function, limits: &Limits) -> Result<Allocation, Error> {
    let cfg = prepare::run(&mut func)?;
    let strict = limits.check || cfg!(debug_assertions);
    let mut spiller = Spiller::of(&func);
    spiller.original = strict.then(|| Rc::new(func.clone()));
    let prove = |before: &Function, Allocation { func, .. }: &Allocation| {
        checker::check(before, func, limits).map_err(|e| Error::Check(format!("{e}\n{func}")))
    };
    // What leaves registers by next use is proved each time. Where that fails it is an error for who wants checks; for others, as where
    // registers do not reach, all is spilled where it is made.
    let found = allocate_prepared(&mut func, &cfg, limits, &mut spiller, true);
    let original = spiller.original.take();
    match (found, &original) {
        (Ok(found), Some(before)) if spiller.planned || strict => match prove(before, &found) {
            Ok(()) => return Ok(found),
            Err(e) if strict => return Err(e),
            Err(_) => {}
        },
        (Ok(found), _) => return Ok(found),
        (Err(e), _) if !limits.spills => return Err(e),
        (Err(_), _) => {}
    }
    // Where nothing had left a register the function is what it was.
    if let Some(before) = &original {
        func = Function::clone(before);
    }
    let mut spiller = Spiller::of(&func);
    let found = allocate_prepared(&mut func, &cfg, limits, &mut spiller, false)?;
    if let (true, Some(before)) = (strict, &original) {
        prove(before, &found)?;
    }
    Ok(found)
}

/// Allocates registers for a function that was prepared, values leaving them by next use if that is wanted ([`Spiller::planned`] says whether
/// any did). On an error the function is as it was, or [`Spiller::original`] is; else it is what values left registers in.
fn allocate_prepared(
    func: &mut Function,
    cfg: &Cfg,
    limits: &Limits,
    spiller: &mut Spiller,
    mut by_next_use: bool,
) -> Result<Allocation, Error> {
    let warp = together_for(func, cfg);
    let whole = warp.as_ref().map(|warp| warp.blocks(cfg));
    let whole = whole.as_ref();
    let warp = warp.filter(|warp| all_change_together(func, cfg, warp));
    let grants = Grants::new(func, cfg);
    let grants = grants.as_ref();

    // Registers to aim for.
    let mut aim = [RegFile::UP, RegFile::P, RegFile::UR, RegFile::R].map(|file| {
        let free = (0..limits.count(file)).filter(|index| !limits.reserved(Reg { file, index: *index }));
        (file, free.count() as u32)
    });
    let all = aim.iter().find(|a| a.0 == RegFile::R).map_or(0, |a| a.1);
    let reserved = u32::from(limits.regs_r) - all;
    let mut kept = reserved;
    let mut apart = webs::Apart::default();
    let mut forced: Vec<Value> = Vec::new();
    let mut last = (0, Vec::new());
    let mut ranges = None;
    // The files of which too much may be live, and the function with its parameters isolated, while it does not change.
    let mut high = aim.map(|(file, _)| file).to_vec();
    let mut split: Option<Split> = None;
    // The function before general values leave their registers, and limits for that which are yet to be tried.
    let mut unsplit: Option<(Rc<Function>, Spiller)> = None;
    let groups = has_group_products(func, cfg);
    let mut lower = LOWER.iter().chain(LOWER_BESIDE_GROUPS.iter().filter(|_| groups));
    let mut negotiations = NEGOTIATIONS;
    // Whether accumulators are placed before all else, until something that has to be in a register finds none so.
    let mut places = groups;
    let mut allocated = loop {
        for (file, limit) in aim {
            if !high.contains(&file) && !forced.iter().any(|v| func.values[*v].file == file) {
                continue;
            }
            high.retain(|f| *f != file);
            if file == RegFile::R && by_next_use && unsplit.is_none() {
                unsplit = spiller.split(func, cfg, Room { limit, kept, grants, whole }, &mut ranges);
                if unsplit.is_some() {
                    high = aim.map(|(file, _)| file).to_vec();
                    split = None;
                    continue;
                }
            }
            if spiller.lower(func, cfg, file, Room { limit, kept, grants, whole }, &forced, &mut ranges) {
                high = aim.map(|(file, _)| file).to_vec();
                split = None;
            }
        }
        if !limits.spills && spiller.slot_bytes > 0 {
            return Err(Error::Pressure(RegFile::R));
        }
        forced.clear();
        apart.grow(func.values.len());
        apart.pieces.clone_from(&spiller.pieces);
        let Split { func: work, isolated, ranges: split_ranges, joint } =
            split.get_or_insert_with(|| Split::new(func, cfg, warp.as_ref()));
        apart.grow(work.values.len());
        let webs =
            webs::Webs::new(work, cfg, isolated, &apart, split_ranges, webs::Warp { joint, whole }, grants);
        let origin = |v: Value| isolated.origin.get(&v).copied().unwrap_or(v);
        let is_pinned = |v: Value| spiller.pinned.contains(origin(v).index());
        let all_pinned = |w: &webs::WebData| w.members.iter().all(|(v, _)| is_pinned(*v));
        let called = color::uniform_limit(func);
        let mut ground = color::Ground::new(&webs, limits, called, all_pinned);
        let mut colors = Coloring::new(&ground, Order::Width, &Terms::default());
        let has_accumulator = |f: &Failed<'_>| f.webs.iter().any(|w| ground.is_accumulator(*w));
        if places && colors.as_ref().is_err_and(|f| has_accumulator(f)) {
            drop(colors);
            ground.place_accumulators();
            colors = Coloring::new(&ground, Order::Width, &Terms::default());
        }
        let file_of = |w: &webs::Web| webs.webs[*w].file;
        // Files in which the widest first do not find room, whatever others are given out in turn.
        let full = colors
            .as_ref()
            .err()
            .map_or([false; 5], |failed| FILES.map(|file| failed.webs.iter().any(|w| file_of(w) == file)));
        if let Err(mut failed) = colors {
            let mut least = [usize::MAX; 5];
            for order in [Order::Area, Order::NegotiatedInTurn(PATIENCE_IN_TURN), Order::Negotiated(PATIENCE)]
            {
                for file in FILES.into_iter().filter(|file| full[*file as usize]) {
                    let without = failed.webs.iter().filter(|w| file_of(w) == file).count();
                    let patient = order.patience().is_some();
                    if without == 0 || patient && (least[file as usize] > NEAR || negotiations == 0) {
                        continue;
                    }
                    negotiations -= u32::from(patient);
                    let most_failed = if negotiations > 0 { NEAR } else { 0 };
                    let anew = FILES.map(|f| f == file);
                    let terms = Terms { most_failed, anew, like: Some(&failed.rest), ..Terms::default() };
                    match Coloring::new(&ground, order, &terms) {
                        Ok(found) => {
                            failed.webs.retain(|w| file_of(w) != file);
                            failed.rest = found;
                        }
                        Err(other) => {
                            least[file as usize] = least[file as usize].min(other.webs.len());
                        }
                    }
                }
            }
            colors = if failed.webs.is_empty() { Ok(failed.rest) } else { Err(failed) };
        }
        if let Ok(lowest) = &colors {
            let all = windows(func, limits, lowest.used);
            // Tuples may find no room where general registers are given out in turn; others are spared for nothing.
            let mut others = all;
            others[RegFile::R as usize] = 0;
            let only_predicates = std::array::from_fn(|f| if f == RegFile::P as usize { all[f] } else { 0 });
            let mut kinds = vec![all];
            for part in UNIFORM_IN_TURN {
                others[RegFile::UR as usize] = all[RegFile::UR as usize] / part;
                kinds.push(others);
            }
            kinds.push(only_predicates);
            kinds.dedup();
            let mut in_turn = kinds.into_iter().filter(|w| *w != [0; 5]).filter_map(|w| {
                // The others keep theirs, where those that are given out anew find room without asking.
                let kept = FILES.iter().all(|f| w[*f as usize] == 0 || !full[*f as usize]);
                let terms = Terms {
                    windows: w,
                    most_failed: 0,
                    // As many uniform registers as there are cost nothing.
                    most_used: std::array::from_fn(|f| match f == RegFile::UR as usize && w[f] > 0 {
                        true => limits.uregs.into(),
                        false => lowest.used[f].max(w[f].into()),
                    }),
                    like: Some(lowest).filter(|_| kept),
                    anew: w.map(|window| !kept || window > 0),
                };
                let may = kept || FILES.iter().all(|f| w[*f as usize] > 0 || !full[*f as usize]);
                may.then(|| Coloring::new(&ground, Order::Width, &terms).ok()).flatten()
            });
            if let Some(found) = in_turn.next() {
                colors = Ok(found);
            }
        }
        let failed = match colors {
            Ok(colors) => break rewrite::apply(work, cfg, &webs, &colors)?,
            Err(failed) => failed.webs,
        };
        // Take merged webs apart first; spill what fails alone; if that is pinned, make more room.
        let mut stuck = None;
        // Where there was no room: where the warp holds few, and elsewhere.
        let (mut confined, mut open) = (false, false);
        let mut parted = false;
        // Of uniform ones the half that is read most often stays: with the others gone they may find room.
        let alone = |w: &webs::Web| {
            let d = &webs.webs[*w];
            d.file == RegFile::UR && !d.coalesced && !all_pinned(d)
        };
        let mut by_weight: Vec<_> = failed.iter().copied().filter(alone).collect();
        by_weight.sort_by(|a, b| webs.webs[*a].weight.total_cmp(&webs.webs[*b].weight));
        let staying = by_weight.split_off(by_weight.len().div_ceil(2));
        for w in failed.into_iter().filter(|w| !staying.contains(w)) {
            let d = &webs.webs[w];
            if d.coalesced {
                // Wide ones first where that costs moves outside of loops alone.
                let outside = |v: &Value| apart.outside.contains(v.index());
                let anywhere = d.size() < WIDE || d.members.iter().all(|(v, _)| outside(&origin(*v)));
                let apart = if anywhere { &mut apart.anywhere } else { &mut apart.outside };
                d.members.iter().for_each(|(v, _)| apart.insert(origin(*v).index()));
                parted = true;
                continue;
            }
            if d.file == RegFile::R {
                (confined, open) = (confined || d.confined, open || !d.confined);
            }
            let mut spillable =
                d.members.iter().map(|(v, _)| origin(*v)).filter(|v| !is_pinned(*v)).peekable();
            if spillable.peek().is_none() {
                stuck = Some(d.file);
            }
            forced.extend(spillable);
        }
        forced.sort_unstable();
        forced.dedup();
        // What has no other place may have its own when others are taken apart.
        stuck = stuck.filter(|_| !parted);
        // Tuples find no room among what is in registers: with fewer values there they do, or else they are spilled themselves.
        let general = aim.iter().find(|a| a.0 == RegFile::R).map_or(0, |a| a.1);
        let fewer = match (forced.is_empty(), stuck, &unsplit) {
            (false, _, Some(_)) if forced.iter().all(|v| func.values[*v].file == RegFile::R) => {
                lower.next().map(|part| (1.max(all * part / u32::from(Reg::ZERO)), 1))
            }
            (true, Some(RegFile::R), Some(_)) if std::mem::take(&mut places) => Some((0, 0)),
            (true, Some(RegFile::R), Some(_)) => Some((1.max(general / 8), 3)),
            _ => None,
        };
        if let Some((fewer, confined_fewer)) = fewer
            && let Some((before, state)) = unsplit.take()
        {
            *spiller = state;
            *func = Rc::unwrap_or_clone(before);
            if general > FEWEST && (open || kept < FEW.into()) {
                aim.iter_mut().filter(|a| open && a.0 == RegFile::R).for_each(|a| a.1 -= fewer);
                kept += if confined { confined_fewer } else { 0 };
            } else {
                by_next_use = false;
                kept = reserved;
            }
            forced.clear();
            apart.clear();
            (ranges, split, last) = (None, None, (0, Vec::new()));
            high = vec![RegFile::R];
            continue;
        }
        // What failed once more although it was spilled, and nothing has changed, will fail for ever.
        let round = (func.values.len(), forced.clone());
        if !forced.is_empty() && last == round {
            return Err(Error::Pressure(func.values[forced[0]].file));
        }
        last = round;
        // Barriers have nowhere to go; the regions are chosen so that there are enough.
        if let Some(v) = forced.iter().find(|v| func.values[**v].file == RegFile::B) {
            return Err(Error::Pressure(func.values[*v].file));
        }
        if let (true, Some(file)) = (forced.is_empty(), stuck) {
            if file == RegFile::R && std::mem::take(&mut places) {
                continue;
            }
            let target = aim.iter_mut().find(|a| a.0 == file).ok_or(Error::Pressure(file))?;
            if target.1 <= 2 {
                return Err(Error::Pressure(file));
            }
            let less = 1.max(target.1 / 8);
            target.1 -= less;
            spiller.short |= file == RegFile::UR;
            if file == RegFile::R {
                kept += 1.max(less / 8);
            }
            high.push(file);
        }
    };
    spiller.slot_bytes = slots::share(&mut allocated, cfg, &spiller.slots, spiller.slot_bytes);
    let stats = stats(&allocated, cfg, spiller);
    Ok(Allocation { func: allocated, stats })
}

/// Among such shares of the uniform registers, one divided by them, those are given out in turn: where all of them find no room, few may.
const UNIFORM_IN_TURN: [u8; 3] = [1, 2, 3];

/// So many registers fewer of all, each time beside those before, are tried where tuples find no room.
const LOWER: [u32; 2] = [3, 8];
/// And these where accumulators of warp groups are: A's registers have to be beside them.
const LOWER_BESIDE_GROUPS: [u32; 1] = [13];
/// So many webs without room at most are worth that others look for theirs anew, how often they may in each order, and how
/// often that is tried for a function. Where it came to an end, in files of Triton's, CUTLASS's and other producers, it took no more than 376
/// registers in order of appearance, and 636 in the other.
const NEAR: usize = 14;
const PATIENCE_IN_TURN: usize = 400;
const PATIENCE: usize = 700;
const NEGOTIATIONS: u32 = 4;
/// Webs of so many registers that find no room are taken apart between loops first.
const WIDE: usize = 16;
/// With no more general registers than these, values are spilled for good.
const FEWEST: u32 = 12;

/// Of so many general registers that are needed, one more is given out in turn, up to [`SLACK`] and at least those
/// that every thread gets.
const PER_SLACK: u16 = 7;
/// Registers are given to a thread in portions of so many.
const PORTION: u8 = 8;
/// The most that are given out in turn beside those needed.
const SLACK: u16 = 4;

/// General registers that are given out in turn where `needed` are.
fn in_turn(needed: u16) -> u16 {
    let least = u16::from(PORTION - HARDWARE_REGISTERS);
    (needed + (needed / PER_SLACK).min(SLACK)).max(least)
}

fn has_group_products(func: &Function, cfg: &Cfg) -> bool {
    let mut insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    insts.any(|d| d.opcode().is_some_and(sass::Opcode::is_group_product))
}

/// How many registers are given out in turn ([`color`]), where these are `needed`: no fewer warps fit for that.
fn windows(func: &Function, limits: &Limits, needed: [u16; 5]) -> color::Windows {
    // A function of a kernel's saves what it uses.
    if !func.entry {
        return [0; 5];
    }
    let needed = needed[RegFile::R as usize];
    let kept = u16::from(HARDWARE_REGISTERS);
    let step = (needed + kept).next_multiple_of(8).max(func.target.info().full_registers().into());
    let mut windows = [0; 5];
    windows[RegFile::R as usize] = in_turn(needed).min(step - kept).min(limits.regs_r.into()) as u8;
    windows[RegFile::P as usize] = limits.preds;
    // What a descriptor is in is not written again while the product before reads it. Functions that are called have theirs from the upper end.
    let late = |d: &ori::InstData| matches!(d.op, ori::Op::Sass(op) if op.is_group_product() || op.info().holds_uniform);
    let mut insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    let most = if func.callees.is_empty() { limits.uregs } else { limits.uregs.min(color::MIDDLE) };
    windows[RegFile::UR as usize] = if insts.any(late) { most } else { 0 };
    windows
}

fn stats(func: &Allocated, cfg: &Cfg, spiller: &Spiller) -> Stats {
    let mut used = [0u16; 5];
    let mut note = |r: Reg, w: u8| {
        if !r.is_zero() {
            let top = u16::from(r.index) + u16::from(w);
            used[r.file as usize] = used[r.file as usize].max(top);
        }
    };
    for &b in &cfg.rpo {
        for &i in &func.blocks[b].insts {
            crate::liveness::for_each_use(func, &func.insts[i], &mut note);
            crate::liveness::for_each_def(func, &func.insts[i], &mut note);
        }
        if let Some(r) = func.blocks[b].term.used_name() {
            note(r, if matches!(func.blocks[b].term, ori::Terminator::Return(_)) { 2 } else { 1 });
        }
    }
    let frame =
        if spiller.slot_bytes == 0 { func.local_size } else { spill::slots_base(func) + spiller.slot_bytes };
    let first_slot = if spiller.slot_bytes == 0 { frame } else { spill::slots_base(func) };
    Stats {
        regs_used: used[RegFile::R as usize],
        uregs_used: used[RegFile::UR as usize],
        preds_used: used[RegFile::P as usize],
        spill_store_bytes: spiller.store_bytes,
        spill_load_bytes: spiller.load_bytes,
        spill_slots: (first_slot, frame),
        frame_bytes: frame,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn small_functions_have_little_slack() {
        // What every thread gets; one of seven more; four at most.
        for (needed, given) in [(2, 6), (6, 6), (7, 8), (13, 14), (14, 16), (28, 32), (100, 104)] {
            assert_eq!(super::in_turn(needed), given, "{needed}");
        }
    }
}
