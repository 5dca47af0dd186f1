//! What is said of a module that is right because an option asks for it, or about launch bounds.

use crate::settings::Settings;
use crate::{debug, dwarf, functions};
use backend::Code;
use backend::groups::Touched;
use ptx::{Diagnostic, FuncId, Mod, Module, Op, Severity, Space, Stmt, Type};

fn warning(span: Option<ptx::Span>, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, span, ..Diagnostic::whole(message) }
}

/// Whether a function is a kernel that is compiled: with `--entry` one that is named.
pub(crate) fn compiled(f: &ptx::Func, settings: &Settings) -> bool {
    f.entry && f.body.is_some() && (settings.entries.is_empty() || settings.entries.contains(&f.name))
}

/// `-warn-double-usage`: every statement of double precision; conversions are named twice, as by ptxas.
pub fn double_precision(module: &Module) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    for stmt in module.funcs.values().flat_map(|f| &f.body).flat_map(|b| &b.stmts) {
        let Stmt::Inst(inst) = stmt else { continue };
        if (0..).map_while(|n| inst.ty(n)).any(|t| t == Type::f64) {
            let times = if inst.op == Op::cvt { 2 } else { 1 };
            let message = "Program is doing double precision computations.";
            out.extend((0..times).map(|_| warning(Some(inst.span), message.into())));
        }
    }
    out
}

/// Options that concern nothing that the module has.
pub fn in_vain(module: &Module, settings: &Settings) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    if settings.suppressed && !(settings.line_info_asked || settings.debug) && !debug::has_source(module) {
        let message = "Option suppress-debug-info requires option device-debug or lineinfo; ignoring since latter is not specified";
        out.push(warning(None, message.into()));
    }
    let sm = ptx::check::target_sm(module);
    if settings.asked.tensor_memory_said && sm < 100 {
        let message = format!(
            "Command line option '--g-tensor-memory-access-check / --gno-tensor-memory-access-check' not supported for \
             '.target sm_{sm}', will be ignored"
        );
        out.push(Diagnostic { severity: Severity::Info, ..warning(None, message) });
    }
    out
}

/// That lines are of no file.
pub fn lines_without_files(module: &Module) -> Option<Diagnostic> {
    let mut stmts = module.funcs.values().flat_map(|f| &f.body).flat_map(|b| &b.stmts);
    let bare = module.files.is_empty() && stmts.any(|s| matches!(s, Stmt::Loc(_)));
    let message = ".loc directive without .file directive is found, line information in generated binary may not be complete";
    bare.then(|| warning(None, message.into()))
}

/// What is said where code is debugged: options without effect, `limits` of registers, and what the module does not bring.
pub fn debugging(module: &Module, settings: &Settings, limits: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    if settings.fast {
        let message = "Conflicting options '--device-debug' and '--Ofast-compile=<min,mid,max>' specified, ignoring '--Ofast-compile=<min,mid,max>' option";
        out.push(warning(None, message.into()));
    }
    out.extend(lines_without_files(module));
    out.extend(limits);
    // Where there is nothing at all, nothing is missing.
    let missing: Vec<&str> = dwarf::missing(module).filter(|_| !module.items.is_empty()).collect();
    out.extend(missing.iter().map(|name| warning(None, format!(" {name} section not found"))));
    if missing == [".debug_abbrev"] && !settings.suppressed {
        let message = "skipping .debug_info section due to missing .debug_abbrev section";
        out.push(Diagnostic { severity: Severity::Info, ..warning(None, message.into()) });
    }
    out
}

/// What patches for tools must not have.
pub fn not_in_patches(module: &Module) -> Vec<Diagnostic> {
    let of = |space| module.vars.values().any(|v| v.space == space);
    let refused = [
        (of(Space::Shared), "Allocating additional shared memory is"),
        (of(Space::Const), "Allocating additional constants is"),
        (module.funcs.values().any(|f| f.entry && f.body.is_some()), "Entry function is"),
    ];
    let given = refused.iter().filter(|(given, _)| *given);
    let error = |(_, what): &(bool, &str)| {
        let message =
            format!("{what} not allowed when command line option '--compile-as-tools-patch' is specified");
        Diagnostic { severity: Severity::Error, ..Diagnostic::whole(message) }
    };
    given.map(error).collect()
}

/// The targets on which copies into several blocks of a cluster are fast.
const MULTICAST: [&str; 7] = ["sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f"];

/// What ptxas advises of instructions that other ones, or other targets, do better.
pub fn advice(module: &Module, settings: &Settings) -> Vec<Diagnostic> {
    let target = module.targets.first().map_or("", String::as_str);
    let multicast = !settings.quiet_multicast && !MULTICAST.contains(&target);
    let insts = module.funcs.values().flat_map(|f| f.body.iter().flat_map(|b| &b.stmts));
    let insts = insts.filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None });
    let one = |i: &ptx::Inst| match i.op {
        Op::cp if multicast && i.has(Mod::bulk) && i.has(Mod::multicast_cluster) => {
            let message = format!(
                "Advisory: '.multicast::cluster' modifier on instruction 'cp.async.bulk{{.tensor}}' should be used on .target \
                 '{}' instead of .target '{target}' as this feature is expected to have substantially reduced performance on \
                 some future architectures",
                MULTICAST.join("/")
            );
            Some(warning(Some(i.span), message))
        }
        Op::mma if !settings.quiet_sparse && i.has(Mod::sp) => {
            let message = "Advisory: Modifier '.sp::ordered_metadata' should be used on instruction 'mma' instead of modifier \
                           '.sp' as it is expected to have substantially reduced performance on some future architectures";
            Some(Diagnostic { severity: Severity::Info, ..warning(Some(i.span), message.into()) })
        }
        _ => None,
    };
    insts.filter_map(one).collect()
}

/// Launch bounds that no multiprocessor can keep, which have no effect.
pub fn launch_bounds(module: &Module, settings: &Settings) -> Vec<Diagnostic> {
    let target = settings.target;
    let (most, most_blocks) = (u32::from(target.info().threads), u32::from(target.info().blocks));
    let mut out = Vec::new();
    for f in module.funcs.values().filter(|f| compiled(f, settings)) {
        let Some(d) = f.attrs.reqntid.or(f.attrs.maxntid) else { continue };
        let threads = d.iter().fold(1u32, |n, d| n.saturating_mul(*d));
        let blocks = f.attrs.minnctapersm.unwrap_or(1);
        let name = &f.name;
        let message = if threads > most {
            format!(
                "Value of threads per SM for entry {name} is out of range. .minnctapersm and .maxntid will be ignored"
            )
        } else if blocks > most_blocks {
            format!("Value of minnctapersm for entry {name} is out of range. minnctapersm will be ignored")
        } else if threads.saturating_mul(blocks) > most {
            format!("Value of threads per SM for entry {name} is out of range. .minnctapersm will be ignored")
        } else {
            continue;
        };
        out.push(warning(None, message));
    }
    out
}

/// `-v` with `-maxrregcount`: where it and a kernel's own limits differ, who wins; of the module as it is before options go into it.
/// The last kernel comes first, but where code is debugged; of what can be extended it is said twice.
pub fn register_limits(module: &Module, settings: &Settings, debugging: bool) -> Vec<Diagnostic> {
    let Some(given) = settings.max_registers else { return Vec::new() };
    let mut out = Vec::new();
    let mut say = |message| out.push(Diagnostic { severity: Severity::Info, ..warning(None, message) });
    let mut kernels: Vec<&ptx::Func> = module.funcs.values().filter(|f| compiled(f, settings)).collect();
    let extensible = settings.extensible && !settings.relocatable;
    match debugging {
        true => {}
        false if extensible => kernels = kernels.iter().chain(&kernels).rev().copied().collect(),
        false => kernels.reverse(),
    }
    for f in kernels {
        let own = f.attrs.maxnreg.map(|n| n.min(255));
        let bounds = f.attrs.reqntid.or(f.attrs.maxntid);
        let threads = bounds.map_or(u32::MAX, |d| d.iter().fold(1u32, |n, d| n.saturating_mul(*d)));
        let known = threads <= u32::from(settings.target.info().threads);
        // What launch bounds alone leave.
        let computed = (known && f.attrs.minnctapersm.is_some()).then(|| {
            let mut f = f.clone();
            f.attrs.maxnreg = None;
            u32::from(lower::max_regs(&f, &lower::Options::new(settings.target)))
        });
        let computed = computed.filter(|n| own.is_none_or(|own| *n < own));
        let of_entry = |limit: u32, how: &str| {
            format!("Overriding global maxrregcount {given} with entry-specific value {limit} {how}")
        };
        let of_option = |limit: u32| {
            format!(
                "Overriding maximum register limit {limit} for '{}' with  {given} of maxrregcount option",
                f.name
            )
        };
        if let Some(limit) = computed.filter(|limit| *limit != given) {
            say(of_entry(limit, "computed using thread count"));
        }
        let win = settings.directives.win;
        match own {
            Some(own) if own == given => {}
            own if win => say(of_option(own.unwrap_or(256))),
            Some(own) if computed.is_none() => say(of_entry(own, "of .maxnreg")),
            None if !known => say(of_option(256)),
            _ => {}
        }
    }
    out
}

/// What is said of a kernel, or of a function of an object, whose `setmaxnreg` are ignored: why, beginning with ptxas's words, which
/// people look for; `failed`: why code that honours them could not be made.
pub fn steady_registers(
    module: &Module,
    function: ptx::FuncId,
    layout: &lower::ModuleLayout,
    options: &lower::Options<'_>,
    failed: Option<&str>,
) -> Option<Diagnostic> {
    use lower::pool::Ignored;
    let start = lower::pool::start(module, function, layout, options)?;
    let failed = failed.filter(|_| start.is_ok());
    let (why, more) = match start {
        Err(Ignored::UnknownStart) => (
            "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry",
            ": .minnctapersm with .maxntid or .reqntid says it, or .maxnreg, or -maxrregcount",
        ),
        Err(Ignored::Linked) => (
            "(C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility across compilation units",
            "",
        ),
        Err(Ignored::Debugging) => {
            ("(C7505) Potential Performance Loss: 'setmaxnreg' ignored to allow debugging", "")
        }
        Err(Ignored::Functions) => (
            "(C7506) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility into 'extern' call",
            " or functions that have it",
        ),
        Ok(_) if failed.is_some() => (
            "Potential Performance Loss: 'setmaxnreg' ignored; its values do not fit into the registers that are left where it \
             gives some back",
            "",
        ),
        Ok(_) => return None,
    };
    let name = &module.funcs[function].name;
    let failed = failed.map(|f| format!(" ({f})")).unwrap_or_default();
    let message = format!("{why}{more}{failed}: '{name}'");
    Some(Diagnostic { severity: Severity::Info, ..warning(None, message) })
}

/// What is said of the products of warp groups in the code of a function: where arrivals were put in, or why all of them are
/// waited for one by one; in the words of ptxas's messages about its own code, which people look for.
pub fn warp_groups(module: &Module, function: FuncId, code: &Code) -> Vec<Diagnostic> {
    let name = &module.funcs[function].name;
    let info = |message| Diagnostic { severity: Severity::Info, ..warning(None, message) };
    if let Some(how) = code.one_by_one {
        let (number, reason) = match how {
            Touched::Spilled | Touched::Unplanned => {
                (7511, "insufficient register resources for the wgmma pipeline")
            }
            Touched::Inputs => (
                7513,
                "non wgmma instructions defining input registers of a wgmma between start and end of the pipeline stage",
            ),
            Touched::Read => (
                7514,
                "non wgmma instructions reading accumulator registers of  a wgmma between start and end of the pipeline stage",
            ),
            Touched::Defined => (
                7515,
                "non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage",
            ),
            Touched::Called if functions::externs(module, [function]).is_empty() => {
                (7510, "wgmma pipeline crossing function boundary at a function call")
            }
            Touched::Called => (7509, "the presence of Extern calls"),
            Touched::Products => (7516, "ill formed pipeline stage"),
        };
        return vec![info(format!(
            "(C{number}) Potential Performance Loss: wgmma.mma_async instructions are serialized due to {reason} in the \
             function '{name}'"
        ))];
    }
    let arrival = |line: &u32| {
        info(format!(
            "(C7519) warpgroup.arrive is injected in around line {line} by compiler to allow use of registers in GMMA in \
             function '{name}'"
        ))
    };
    code.arrivals.iter().map(arrival).collect()
}
