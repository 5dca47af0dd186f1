//! Whether a cubin does what its PTX says: both are executed on launches that are made up for each kernel, and
//! what they leave in memory is compared.

use crate::tolerance::Tolerance;
use sim::generate::generate;
use sim::ptx::{Fill, Options};
use sim::sass::check::{Checks, Finding, Report};
use sim::schedule::Schedule;
use sim::watch::Watch;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt;

/// Warp instructions that the interpreter may spend on a launch, and the simulator.
const LIMITS: (u64, u64) = (400_000, 4_000_000);

/// Launches of other shapes that are tried where those that were asked for say nothing.
const MORE: u64 = 8;

/// What undefined bytes hold in further runs: anything; as numbers, large, none, small, and less than most.
const FILLS: [Fill; 5] =
    [Fill::Random(0), Fill::Byte(0x7f), Fill::Byte(0xff), Fill::Byte(0x41), Fill::Byte(0x80)];

/// In how many random orders of the threads a launch is tried before a difference counts: a sum of few numbers is the same in most.
const ORDERS: usize = 256;

/// Why a launch says nothing: the program does not wait for something asynchronous.
const UNAWAITED: &str = "it is another result if asynchronous operations are done late";

/// Why a launch says nothing: threads race, or read what nothing has written.
const UNSTABLE: &str = "it depends on the order of threads or on what is not defined";

/// What was found out about a kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The same bytes everywhere.
    Same,
    /// Floating-point numbers differ as much as approximate functions and contraction may.
    Close,
    /// No launch changed global memory, so that nothing was compared.
    Silent,
    /// No launch had a defined result: the last reason.
    Undefined(String),
    /// Something that is not simulated.
    OutOfScope(String),
    /// They disagree.
    Differs(String),
}

impl Verdict {
    /// Whether nothing is wrong with the code as far as is known.
    pub fn is_right(&self) -> bool {
        matches!(self, Verdict::Same | Verdict::Close | Verdict::Silent)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Same => f.write_str("same"),
            Verdict::Close => f.write_str("same up to rounding"),
            Verdict::Silent => f.write_str("nothing stored"),
            Verdict::Undefined(why) => write!(f, "no defined result: {why}"),
            Verdict::OutOfScope(why) => write!(f, "not simulated: {why}"),
            Verdict::Differs(how) => write!(f, "DIFFERS: {how}"),
        }
    }
}

/// The module of a text, its parameters laid out for `target`.
///
/// # Errors
/// What can't be parsed.
pub fn module(source: &str, target: sass::Target) -> Result<ptx::Module, Vec<ptx::Diagnostic>> {
    let mut module = ptx::parse(source)?;
    lower::layout::place_params(&mut module, target);
    Ok(module)
}

/// Names of the kernels of a module.
pub fn kernels(module: &ptx::Module) -> Vec<&str> {
    let entries = module.funcs.values().filter(|f| f.entry && f.body.is_some());
    entries.map(|f| f.name.as_str()).collect()
}

fn instructions(module: &ptx::Module) -> impl Iterator<Item = &ptx::Inst> {
    let statements = module.funcs.values().filter_map(|f| f.body.as_ref()).flat_map(|b| &b.stmts);
    statements.filter_map(|s| match s {
        ptx::ast::Stmt::Inst(i) => Some(i),
        _ => None,
    })
}

/// Whether accesses may have cache policies, which take the place of the memory descriptor.
fn has_policies(module: &ptx::Module) -> bool {
    let names =
        |i: &ptx::Inst| i.mods.iter().any(|m| m.name().contains("L2::") || m.name().contains("evict"));
    instructions(module).any(|i| i.op == ptx::Op::createpolicy || names(i))
}

/// Whether the PTX has both a product and a sum that name no rounding, so that `-fmad=false` makes other code.
pub fn may_be_contracted(module: &ptx::Module) -> bool {
    let open = |i: &&ptx::Inst| {
        let float = i.ty(0).is_some_and(|t| t.is_float());
        float && i.one_of(&[ptx::Mod::rn, ptx::Mod::rz, ptx::Mod::rm, ptx::Mod::rp]).is_none()
    };
    let has = |ops: &[ptx::Op]| instructions(module).filter(open).any(|i| ops.contains(&i.op));
    has(&[ptx::Op::mul]) && has(&[ptx::Op::add, ptx::Op::sub])
}

/// What is to be said of code whose contracted results differ, and of which `exact` was found out without contraction.
pub fn despite_contraction(exact: Verdict) -> Verdict {
    if exact == Verdict::Same { Verdict::Close } else { exact }
}

/// The verdict of `judge` on code; where its numbers differ, that on `exact`, the code without contraction: that may lose or keep
/// what cancels, so without it every bit must agree.
pub fn either(judge: impl Fn(&[u8]) -> Verdict, cubin: &[u8], exact: Option<&[u8]>) -> Verdict {
    match (judge(cubin), exact) {
        (Verdict::Differs(_) | Verdict::Close, Some(exact)) => despite_contraction(judge(exact)),
        (verdict, _) => verdict,
    }
}

/// What a cubin says of the lines of the PTX that it is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lines {
    /// All: it was made from that text here.
    Ours,
    /// Maybe nothing: it is from elsewhere.
    Foreign,
    /// What it says is of other texts: it was linked from several, and the PTX is what they mean together.
    OfParts,
}

/// What is found in code without executing it, hazards and accesses in another order than the PTX says, and whether that is all
/// right. `lines`: whether the code says which lines of the PTX it is of.
///
/// # Errors
/// Code that cannot be read.
pub fn at_rest(
    module: &ptx::Module,
    source: &str,
    cubin: &[u8],
    lines: Lines,
) -> Result<(Vec<String>, bool), crate::Error> {
    let (mut notes, mut right) = (Vec::new(), true);
    let hazards = sim::hazard::check_cubin(cubin, sim::hazard::Minima::built_in())?;
    for (name, violations, _) in &hazards {
        right &= violations.is_empty();
        notes.extend(violations.iter().map(|v| format!("{name}: hazard: {v}")));
    }
    for (name, excess) in crate::pool::excesses(cubin)? {
        right = false;
        notes.push(format!("{name}: {excess}"));
    }
    let looked_at = match lines {
        Lines::Ours => true,
        Lines::Foreign => sim::order::load(cubin).is_ok(),
        Lines::OfParts => false,
    };
    if looked_at {
        let foreign = lines == Lines::Foreign;
        let options = sim::order::Options { foreign, ..sim::order::Options::default() };
        for k in sim::order::check_cubin(module, source, cubin, options)? {
            right &= k.is_good() && k.stats.unchecked == 0;
            if k.stats.unchecked > 0 {
                let n = k.stats.unchecked;
                notes.push(format!("{}: order: {n} accesses not checked: too many pairs", k.name));
            }
            notes.extend(k.findings().map(|v| format!("{}: order: {v}", k.name)));
        }
    }
    Ok((notes, right))
}

/// Differing places of which the first to be written is looked for.
const WATCHED: usize = 64;

/// Which instructions wrote the differing place that was written first: of the PTX, and of the code.
fn blame(
    module: &ptx::Module,
    source: &str,
    cubin: &[u8],
    launch: &sim::launch::Launch,
    addresses: &[u64],
) -> Option<(u64, bool, String)> {
    let mut probe = sim::sass::Probe::new(addresses, None);
    let options = sim::sass::Options { limit: LIMITS.1, ..Default::default() };
    sim::sass::observe(cubin, launch, options, &mut probe).ok()?;
    let mut watch = Watch::new(addresses);
    let options = Options { limit: LIMITS.0, ..Options::default() };
    sim::ptx::observe(module, launch, options, &mut watch).ok()?;
    let both = watch.changes().zip(probe.watch.changes());
    // In the order of the PTX; what only the code writes comes last.
    let first = both
        .min_by_key(|((_, ptx), (_, sass))| (ptx.map_or(u64::MAX, |p| p.0), sass.map_or(u64::MAX, |s| s.0)));
    let ((address, ptx), (_, sass)) = first?;
    let lines = ptx::LineIndex::new(source);
    let stored = ptx.is_some();
    let ptx = match ptx {
        Some((_, span)) => format!("stored by line {} of the PTX", lines.line(span.start)),
        None => "not stored by the PTX".into(),
    };
    let sass = match sass {
        Some((_, pc)) => {
            let text = sim::sass::instruction(cubin, &launch.kernel, pc).unwrap_or_default();
            format!("by /*{pc:04x}*/ {text} of the code")
        }
        None => "not by the code".into(),
    };
    Some((address, stored, format!("{ptx}, {sass}")))
}

/// What checks find on the launches of which the PTX interpreter has a result.
pub fn findings(
    module: &ptx::Module,
    source: &str,
    cubin: &[u8],
    name: &str,
    (seeds, checks): (std::ops::Range<u64>, Checks),
) -> Vec<Finding> {
    let mut report = Report::of(cubin);
    report.read_ptx(source);
    for launch in seeds.filter_map(|seed| generate(module, name, seed)) {
        let options = Options { limit: LIMITS.0, ..Options::default() };
        if sim::ptx::execute_with(module, &launch, options).is_ok() {
            let options = sim::sass::Options { limit: LIMITS.1, checks, ..Default::default() };
            // Whether the launch has the result that it should have, is `kernel`'s to say.
            let _ = sim::sass::checked(cubin, &launch, options, &mut report);
        }
    }
    report.findings
}

/// Compares a cubin's kernel with the PTX, of which `source` is the text, on a launch for each seed.
pub fn kernel(
    module: &ptx::Module,
    source: &str,
    cubin: &[u8],
    name: &str,
    seeds: std::ops::Range<u64>,
) -> Verdict {
    kernel_as((module, source, cubin), name, seeds, false)
}

/// The same; `late`: the code's asynchronous operations are done as late as it allows ([`sim::sass::Options::late`]).
pub fn kernel_as(
    (module, source, cubin): (&ptx::Module, &str, &[u8]),
    name: &str,
    seeds: std::ops::Range<u64>,
    late: bool,
) -> Verdict {
    let inexact = instructions(module).any(sim::ptx::is_inexact);
    let strict_descriptors = !has_policies(module);
    // Our code never reads from a uniform register what other lanes wrote there; ptxas's may where it does not use it.
    let strict_uniform = cubin::read::is_ours(cubin);
    let (mut verdict, mut undefined) = (None, None);
    for seed in seeds.start..seeds.end + MORE {
        // Further launches are for kernels that stored nothing in those that were asked for, or had no result.
        if seed >= seeds.end && !matches!(verdict, None | Some(Verdict::Silent)) {
            break;
        }
        let Some(launch) = generate(module, name, seed) else {
            return Verdict::OutOfScope("there is no such kernel".into());
        };
        let interpret = |options| sim::ptx::execute_with(module, &launch, options);
        let expected = match interpret(Options { limit: LIMITS.0, ..Options::default() }) {
            Ok(prepared) => prepared.memory,
            Err(e) if e.message.contains("supported") => return Verdict::OutOfScope(format!("PTX: {e}")),
            Err(e) => {
                undefined = Some(e.to_string());
                continue;
            }
        };
        // Where the result is another one with other contents of what is undefined.
        let changed = |n: usize, schedule| -> Option<Vec<u64>> {
            let fill = FILLS[n % FILLS.len()];
            let again = interpret(Options { limit: 2 * LIMITS.0, fill, schedule, ..Options::default() });
            Some(again.ok()?.memory.differences(&expected).into_iter().map(|d| d.0).collect())
        };
        // Places that depend on what is undefined; they are found only if there seem to be some.
        let open = OnceCell::new();
        let is_open = |at: &u64| {
            let find = || {
                (0..FILLS.len())
                    .filter_map(|n| changed(n, Schedule::Turns))
                    .flatten()
                    .collect::<BTreeSet<_>>()
            };
            open.get_or_init(find).contains(at)
        };
        // Whether everything else is the same in another order of the threads.
        let stable = |n: usize| {
            changed(n, Schedule::Random(seed * ORDERS as u64 + n as u64))
                .is_some_and(|c| c.iter().all(is_open))
        };
        if !stable(0) {
            undefined = Some(UNSTABLE.into());
            continue;
        }
        if late {
            let again =
                interpret(Options { limit: 2 * LIMITS.0, late, fill: FILLS[0], ..Options::default() });
            let same =
                |m: sim::launch::Prepared| m.memory.differences(&expected).iter().all(|d| is_open(&d.0));
            if !again.is_ok_and(same) {
                undefined = Some(UNAWAITED.into());
                continue;
            }
        }
        let some_open =
            || (0..FILLS.len()).any(|n| changed(n, Schedule::Turns).is_none_or(|c| !c.is_empty()));
        // Other contents of what is not defined for each launch.
        let options = sim::sass::Options {
            limit: LIMITS.1,
            fill: seed + 1,
            strict_descriptors,
            strict_uniform,
            late,
            ..Default::default()
        };
        let found = match sim::sass::run(cubin, &launch, options) {
            Ok(run) => run.memory,
            Err(e) if e.to_string().contains("supported") => {
                return Verdict::OutOfScope(format!("SASS: {e}"));
            }
            // The interpreter does not know how many registers there are.
            Err(e @ sim::sass::SimError::Starved { .. }) => {
                undefined = Some(e.to_string());
                continue;
            }
            Err(_) if !(1..ORDERS).all(stable) || some_open() => {
                undefined = Some(UNSTABLE.into());
                continue;
            }
            Err(e) => return Verdict::Differs(format!("seed {seed}: {e}")),
        };
        let mut differences = found.differences(&expected);
        // Another run knows of places only where something is wrong, or the first one has shown some.
        if open.get().is_some_and(|o| !o.is_empty()) {
            differences.retain(|(at, _)| !is_open(at));
        }
        let tolerance = (!differences.is_empty()).then(|| {
            Tolerance::new(|nudge| {
                let options = Options { limit: 2 * LIMITS.0, nudge, ..Options::default() };
                inexact.then(|| interpret(options).ok()).flatten().map(|p| p.memory)
            })
        });
        let differs = |(at, [a, b]): &&(u64, [u64; 2])| {
            !tolerance.as_ref().is_some_and(|t| t.allows(&expected, *at, *a, *b))
        };
        let mut wrong: Vec<_> = differences.iter().filter(differs).collect();
        if !wrong.is_empty() && !(1..ORDERS).all(stable) {
            undefined = Some(UNSTABLE.into());
            continue;
        }
        wrong.retain(|(at, _)| !is_open(at));
        let left_open = open.get().is_some_and(|o| !o.is_empty());
        if let Some(first) = wrong.first() {
            let addresses: Vec<u64> = wrong.iter().take(WATCHED).map(|w| w.0).collect();
            let blamed = blame(module, source, cubin, &launch, &addresses);
            let (at, stored, who) = blamed.unwrap_or((first.0, false, String::new()));
            if left_open && !stored {
                // An address that is undefined leads anywhere.
                undefined = Some(UNSTABLE.into());
                continue;
            }
            let (at, [a, b]) = wrong.iter().find(|w| w.0 == at).unwrap_or(first);
            return Verdict::Differs(format!(
                "seed {seed}: {} holds {a:#018x}, not {b:#018x}, {who} ({} of 8 bytes each differ)",
                expected.describe(*at),
                wrong.len()
            ));
        }
        let stores = || launch.prepare().memory.differences(&expected);
        if left_open && stores().iter().all(|(at, _)| is_open(at)) {
            undefined = Some(UNSTABLE.into());
            continue;
        }
        let this = if differences.iter().any(|(at, _)| !left_open || !is_open(at)) {
            Verdict::Close
        } else if expected.is_untouched() {
            Verdict::Silent
        } else {
            Verdict::Same
        };
        verdict = match (verdict, this) {
            (Some(Verdict::Close), _) | (_, Verdict::Close) => Some(Verdict::Close),
            (Some(Verdict::Same), _) | (_, Verdict::Same) => Some(Verdict::Same),
            _ => Some(Verdict::Silent),
        };
    }
    verdict.unwrap_or_else(|| Verdict::Undefined(undefined.unwrap_or_default()))
}
