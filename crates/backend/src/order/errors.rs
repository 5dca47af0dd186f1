//! The errors that `order.rs` once had, put back one by one: the checker of the order of accesses must find each in the code
//! that the compiler makes then.

use super::{Access, Contents, Part, Place, described};
use lower::{ModuleLayout, lower_function};
use ori::{Manager, Plan};
use sass::{Mods, Opcode, Operand, Target};
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
}

thread_local! {
    static NOW: Cell<Option<Error>> = const { Cell::new(None) };
}

/// [`super::access`] with the error of the moment.
pub(super) fn access<R: Copy, L>(
    op: Opcode,
    mods: &Mods,
    operands: &[Operand<R, L>],
    ordered: bool,
    contents: &impl Fn(R) -> Contents,
) -> Option<Access> {
    let error = NOW.get();
    let mut access = described(op, mods, operands, ordered, contents)?;
    match error {
        Some(Error::Strong) if matches!(op, Opcode::LDS | Opcode::STS) => access.strong = false,
        Some(Error::WarpSync) if op == Opcode::NOP => return None,
        Some(Error::Wide) if matches!(op, Opcode::LDG_256 | Opcode::STG_256) => {
            let places = access.parts.iter_mut().filter_map(|p| p.place.as_mut());
            places.for_each(|p| p.size = 4);
        }
        Some(Error::Matrices) if matches!(op, Opcode::LDSM | Opcode::STSM) => {
            let addresses = operands.iter().filter_map(|o| match o {
                Operand::Addr { base, offset, .. } => Some((*base, *offset)),
                _ => None,
            });
            for (Part { place, .. }, (base, offset)) in access.parts.iter_mut().zip(addresses) {
                *place = Some(Place { base: base.map(contents), offset, size: 4 });
            }
        }
        _ => {}
    }
    Some(access)
}

/// How many accesses the checker finds out of order in the program compiled with the error.
fn found(source: &str, target: Target, error: Option<Error>) -> usize {
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
    let code = order::Code::new(compiled.insts.into_iter().map(Some).collect(), &table);
    let kernel = order::check_kernel(&module, &lines, "k", &code, &[], Options::default());
    assert_eq!(kernel.stats.unchecked, 0);
    kernel.violations.len()
}

#[test]
fn the_checker_finds_each_error_put_back() {
    let warp_sync = include_str!("../../tests/order/warp_sync.ptx");
    let volatile = include_str!("../../tests/order/volatile.ptx");
    let acquire = include_str!("../../tests/order/acquire.ptx");
    let wide = include_str!("../../tests/order/wide.ptx");
    let matrices = include_str!("../../tests/order/matrices.ptx");
    let all = &["sm_75", "sm_80", "sm_90", "sm_120"][..];
    let mut missed = Vec::new();
    for (error, sources, targets) in [
        (Error::WarpSync, &[warp_sync][..], all),
        // What the schedulers make of the error, they decide: it shows in one of the programs at least.
        (Error::Strong, &[volatile, acquire], all),
        (Error::Wide, &[wide], &["sm_100", "sm_120"]),
        (Error::Matrices, &[matrices], all),
    ] {
        for name in targets {
            let target = Target::parse(name).unwrap();
            let of = |error| sources.iter().map(|s| found(s, target, error)).sum::<usize>();
            assert_eq!(of(None), 0, "{name}: without an error");
            if of(Some(error)) == 0 {
                missed.push(format!("{error:?} {name}"));
            }
        }
    }
    assert_eq!(missed, [""; 0]);
}
