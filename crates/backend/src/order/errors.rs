//! The errors that `order.rs` once had, put back one by one: the checker of the order of accesses must find each in the code
//! that the compiler makes then.

use super::{Access, Contents, Meant, Part, Place, described};
use lower::{ModuleLayout, lower_function};
use ori::{Manager, Plan};
use sass::{Inst, Mods, Opcode, Operand, Target};
use sim::order::{self, Options};
use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Error {
    /// What is left of `bar.warp.sync` where the lanes are together keeps nothing in order.
    WarpSync,
    /// Volatile, relaxed, acquiring and releasing accesses of shared memory count as weak ones: LDS and STS don't say it.
    Strong,
    /// Accesses of 256 bits count as 4 bytes.
    Wide,
    /// LDSM and STSM count as accesses of 4 bytes at the lane's own address.
    Matrices,
    /// A lane's part of what `wmma` loads or stores counts as an access of its own.
    Lanes,
}

thread_local! {
    static NOW: Cell<Option<Error>> = const { Cell::new(None) };
    static CONTRARY: Cell<bool> = const { Cell::new(false) };
}

/// Whether the scheduler of blocks is to put later instructions before earlier ones wherever it may, so that what it may do shows
/// whatever it prefers.
pub(crate) fn is_contrary() -> bool {
    CONTRARY.get()
}

/// [`super::access`] with the error of the moment.
pub(super) fn access<R: Copy, L>(
    op: Opcode,
    mods: &Mods,
    operands: &[Operand<R, L>],
    meant: Meant,
    contents: &impl Fn(R) -> Contents,
) -> Option<Access> {
    let error = NOW.get();
    let meant = Meant { collective: meant.collective && error != Some(Error::Lanes), ..meant };
    let mut access = described(op, mods, operands, meant, contents)?;
    match error {
        Some(Error::Strong) if matches!(op, Opcode::LDS | Opcode::STS) => access.strong = false,
        Some(Error::WarpSync) if op == Opcode::NOP => return None,
        Some(Error::Wide) if matches!(op, Opcode::LDG_256 | Opcode::STG_256) => {
            let places = access.parts.iter_mut().filter_map(|p| p.place.as_mut());
            places.for_each(|p| p.size = 4);
        }
        Some(Error::Matrices) if matches!(op, Opcode::LDSM | Opcode::STSM) => {
            let addresses = operands.iter().filter_map(|o| match o {
                Operand::Addr { base, width, offset, .. } => Some((*base, *width, *offset)),
                _ => None,
            });
            for (Part { place, .. }, (base, width, offset)) in access.parts.iter_mut().zip(addresses) {
                *place = Some(Place { base: base.map(contents), width, uniform: None, offset, size: 4 });
            }
        }
        _ => {}
    }
    Some(access)
}

/// The code of the program, compiled with the error and a contrary scheduler, and how many accesses of it the checker finds
/// out of order.
fn contrary(source: &str, target: Target, error: Option<Error>) -> (Vec<Inst>, usize) {
    CONTRARY.set(true);
    let of = compiled(source, target, error);
    CONTRARY.set(false);
    of
}

fn compiled(source: &str, target: Target, error: Option<Error>) -> (Vec<Inst>, usize) {
    let module = ptx::parse(source).unwrap();
    let lines = ptx::LineIndex::new(source);
    let opts = lower::Options { lines: Some(&lines), opt_level: 3, ..lower::Options::new(target) };
    let layout = ModuleLayout::new(&module, target).unwrap();
    let id = module.funcs.keys().next().unwrap();
    let mut func = lower_function(&module, id, &layout, &opts).unwrap();
    let plan = Plan::new(3);
    opt::optimize(&mut func, &mut Manager::new(&plan)).unwrap();
    NOW.set(error);
    let compiled = crate::compile(func, &mut Manager::new(&plan), false);
    NOW.set(None);
    let compiled = compiled.unwrap();
    let table: Vec<(u64, u32)> = compiled.lines.iter().map(|(at, line)| (u64::from(*at), *line)).collect();
    let code = order::Code::new(compiled.insts.iter().cloned().map(Some).collect(), &table);
    let kernel = order::check_kernel(&module, &lines, "k", &code, &[], Options::default());
    assert_eq!(kernel.stats.unchecked, 0);
    (compiled.insts, kernel.violations.len())
}

const ALL: &[&str] = &["sm_75", "sm_80", "sm_90", "sm_120"];

const PROGRAMS: &[(Option<Error>, &str, &[&str])] = &[
    (Some(Error::WarpSync), include_str!("../../tests/order/warp_sync.ptx"), ALL),
    (Some(Error::Strong), include_str!("../../tests/order/volatile.ptx"), ALL),
    // Without `.STRONG` the fences of acquisitions and releases keep it in order.
    (None, include_str!("../../tests/order/acquire.ptx"), ALL),
    (Some(Error::Wide), include_str!("../../tests/order/wide.ptx"), &["sm_100", "sm_120"]),
    (Some(Error::Matrices), include_str!("../../tests/order/matrices.ptx"), ALL),
    (Some(Error::Lanes), include_str!("../../tests/order/wmma.ptx"), ALL),
];

#[test]
fn the_checker_finds_each_error_put_back() {
    let mut missed = Vec::new();
    for (error, source, targets) in PROGRAMS.iter().filter(|p| p.0.is_some()) {
        for name in *targets {
            let target = Target::parse(name).unwrap();
            if contrary(source, target, *error).1 == 0 {
                missed.push(format!("{error:?} {name}"));
            }
        }
    }
    assert_eq!(missed, [""; 0]);
}

/// What the schedulers may do without an error is right, and the contrary one does what it may.
#[test]
fn a_contrary_scheduler_keeps_the_order() {
    for (_, source, targets) in PROGRAMS {
        for name in *targets {
            let target = Target::parse(name).unwrap();
            let (usual, wrong) = compiled(source, target, None);
            assert_eq!(wrong, 0, "{name}");
            let (turned, wrong) = contrary(source, target, None);
            assert_eq!(wrong, 0, "{name}: contrary");
            let words =
                |insts: &[Inst]| -> Vec<String> { insts.iter().map(|i| format!("{:?}", i.op)).collect() };
            assert_ne!(words(&usual), words(&turned), "{name}: nothing changed places");
        }
    }
}
