//! What no kernel may have too much of, beyond what the checks of `ptx` know: shared memory, constants, threads.

use crate::settings::Settings;
use crate::{convention, functions, notices};
use ptx::{Diagnostic, FuncId, Mod, Module, Op, Operand, SHARED_SPILLS, Severity, Space, Span, Stmt, Symbol};
use sass::Target;

/// Bytes of shared memory that a kernel states at most. More is for launches to ask for.
const MOST_SHARED: u32 = 0xc000;

/// The same for a target: where code is for one chip alone, all that a block can have (ptxas 13.0.88: 0x38c00 for sm_90a, 100a, 103a
/// and 110a, 0x18c00 for sm_120a and 121a; no more than others for families).
fn most_shared(target: Target) -> u32 {
    match target.suffix {
        sass::target::Suffix::A => {
            (u32::from(target.info().shared_kib) << 10) - lower::layout::RESERVED_SHARED
        }
        _ => MOST_SHARED,
    }
}

/// Kernels that state more.
pub(crate) fn too_much_shared(
    module: &Module,
    layout: &lower::ModuleLayout,
    kernels: &[FuncId],
    target: Target,
) -> Vec<Diagnostic> {
    let reserved = if target.sm >= 90 { lower::layout::RESERVED_SHARED } else { 0 };
    let sizes = kernels.iter().map(|k| (*k, layout.shared_size(*k).saturating_sub(reserved)));
    let most = most_shared(target);
    let over = sizes.filter(|(_, size)| *size > most);
    over.map(|(k, size)| Diagnostic {
        severity: Severity::Error,
        ..Diagnostic::whole(format!(
            "Entry function '{}' uses too much shared data ({size:#x} bytes, {most:#x} max)",
            module.funcs[k].name
        ))
    })
    .collect()
}

/// Kernels that use tensor memory, by themselves or by functions, as a block's own and as that of a pair of blocks.
pub(crate) fn both_groups<'m>(
    module: &'m Module,
    kernels: impl Iterator<Item = (&'m FuncId, &'m Vec<FuncId>)>,
) -> Vec<Diagnostic> {
    let mixed = |(kernel, used): (&FuncId, &Vec<FuncId>)| {
        let funcs = [kernel].into_iter().chain(used).map(|f| &module.funcs[*f]);
        let stmts = funcs.flat_map(|f| &f.body).flat_map(|b| &b.stmts);
        let mut groups = [None; 2];
        for stmt in stmts {
            if let ptx::Stmt::Inst(i) = stmt
                && i.op == ptx::Op::tcgen05
            {
                for (group, m) in groups.iter_mut().zip([ptx::Mod::cta_group_1, ptx::Mod::cta_group_2]) {
                    *group = group.or(i.has(m).then_some(i.span));
                }
            }
        }
        let [Some(_), Some(pair)] = groups else { return None };
        let name = &module.funcs[*kernel].name;
        Some(Diagnostic::error(
            pair,
            format!(
                "Function '{name}' uses single CTA(.cta_group::1) and CTA pair granularity(.cta_group::2) and that is not allowed."
            ),
        ))
    };
    kernels.filter_map(mixed).collect()
}

/// Bytes of a constant bank.
const BANK: u32 = 0x10000;

/// Parameters of a kernel that alignment puts behind the end of their constant bank. From sm_90 on ptxas takes those that begin
/// there; reading one is an error of its own.
pub(crate) fn over_the_bank(
    kernel: FuncId,
    module: &Module,
    layout: &lower::ModuleLayout,
    target: Target,
) -> Option<Diagnostic> {
    let func = &module.funcs[kernel];
    let (_, size) = module.param_layout(func);
    let end = size.saturating_add(lower::layout::param_base(module, func, target).into());
    let end = layout.images.of(kernel).last().map_or(0, |w| w.0 + 4).max(end);
    let most = if target.sm < 90 { BANK } else { u32::from(target.info().param_base) + 0xffff };
    (end > most).then(|| Diagnostic {
        severity: Severity::Error,
        ..Diagnostic::whole(format!(
            "Entry function '{}' uses too much constant data ({end:#x} bytes, {BANK:#x} max)",
            func.name
        ))
    })
}

/// Textures, surfaces and samplers that a kernel of an executable names at most, by itself or by functions (ptxas 13.0.88, all targets).
const MOST_IMAGES: [(&str, usize); 3] = [("textures", 256), ("surfaces", 32), ("samplers", 32)];

/// What a kernel names too many of.
pub(crate) fn too_many_images(
    module: &Module,
    layout: &lower::ModuleLayout,
    kernel: FuncId,
    target: Target,
) -> Option<String> {
    let counts = layout.images.counts(module, kernel, target);
    let ((what, most), _) = MOST_IMAGES.iter().zip(counts).find(|((_, most), n)| n > most)?;
    Some(format!("More than {most} {what} used in entry function '{}'", module.funcs[kernel].name))
}

/// Whether a kernel's threads are so many that rounding them up to warps goes over 32 bits, where ptxas crashes.
pub(crate) fn endless(func: &ptx::Func) -> bool {
    let threads = func.attrs.reqntid.or(func.attrs.maxntid);
    threads.is_some_and(|[x, y, z]| x.wrapping_mul(y).wrapping_mul(z) > u32::MAX - 31)
}

/// `setmaxnreg.dec` in these functions to more registers than a thread ever has: what the largest `setmaxnreg.inc` in them asks for, or,
/// where there is none, what it starts with, which is `limit`. Of 256 registers code can name 255. As in ptxas, a `.dec` that nothing
/// comes to may say what it likes.
pub(crate) fn more_than_ever(module: &Module, funcs: &[FuncId], limit: u32) -> Vec<Diagnostic> {
    let mut counts: Vec<(bool, u32, Span)> = Vec::new();
    for func in funcs.iter().map(|f| &module.funcs[*f]) {
        let stmts = func.body.iter().flat_map(|b| &b.stmts);
        let sets = |s: &Stmt| matches!(s, Stmt::Inst(i) if i.op == Op::setmaxnreg);
        if !stmts.clone().any(sets) {
            continue;
        }
        for (s, reached) in stmts.zip(lower::reached(module, func)) {
            if let Stmt::Inst(i) = s
                && i.op == Op::setmaxnreg
                && let Some(Operand::Int(n)) = i.operands.first()
                && (reached || i.has(Mod::inc))
            {
                counts.push((i.has(Mod::inc), (*n).min(255) as u32, i.span));
            }
        }
    }
    let most = counts.iter().filter(|c| c.0).map(|c| c.1).max().unwrap_or(limit);
    let over = counts.iter().filter(|c| !c.0 && c.1 > most);
    over.map(|(_, n, span)| {
        let message =
            format!("(C7406) setmaxnreg.dec has register count ({n}) which is larger than the largest temporal register count in the program ({most})");
        Diagnostic::error(*span, message)
    })
    .collect()
}

/// Whether a kernel asks for shared memory to spill into.
fn spills_to_shared(f: &ptx::Func) -> bool {
    let asks =
        |s: &Stmt| matches!(s, Stmt::Pragma(text) if text.split_whitespace().next() == Some(SHARED_SPILLS));
    f.body.iter().flat_map(|b| &b.stmts).any(asks)
}

/// Kernels that ask for shared memory to spill into, of which the launch brings some more: that they name, or a function that they come
/// to by calls or by addresses, where a call through a pointer may go to all whose addresses are known (ptxas 13.0.88).
pub(crate) fn spills_beside_dynamic(module: &Module, settings: &Settings) -> Option<Diagnostic> {
    let asks = |f: &&ptx::Func| notices::compiled(f, settings) && spills_to_shared(f);
    let mut kernels = module.funcs.iter().filter(|(_, f)| asks(f)).peekable();
    kernels.peek()?;
    let (graph, taken) = (lower::CallGraph::new(module), functions::taken(module));
    let dynamic = |f: &FuncId| {
        let mut named = false;
        lower::layout::for_each_symbol(&module.funcs[*f], |s| {
            let var = if let Symbol::Var(v) = s { &module.vars[v] } else { return };
            named |= var.space == Space::Shared && var.is_unsized();
        });
        named
    };
    let refused = kernels.any(|(k, _)| {
        let called = graph.reachable(module, k, &taken).into_iter().chain([k]);
        convention::reached(module, called.map(Symbol::Func)).iter().any(dynamic)
    });
    let message = format!("Pragma '{SHARED_SPILLS}' is not allowed for dynamic SMEM");
    refused.then(|| Diagnostic::whole(message))
}

/// What objects alone have, and what is for kernels that are compiled together with all that they call.
pub(crate) fn of_mode(module: &Module, settings: &Settings) -> Result<(), Vec<Diagnostic>> {
    if !settings.relocatable && module.says_unified {
        let message = "Feature 'unified Functions' requires command line option '--compile-only'.";
        return Err(vec![Diagnostic { severity: Severity::Error, ..Diagnostic::whole(message.to_string()) }]);
    }
    let apart = settings.relocatable || settings.debug || settings.fast;
    if apart && module.funcs.values().any(spills_to_shared) {
        let message = format!("Pragma '{SHARED_SPILLS}' is not allowed for per-function compilation modes");
        return Err(vec![Diagnostic::whole(message)]);
    }
    Ok(())
}
