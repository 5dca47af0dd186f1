//! From PTX text to a cubin: the order of the layers, kernels in parallel, the same bytes for any number of
//! threads.

use crate::output::{Failure, KernelStats, Output};
use crate::settings::{Settings, asked_in_vain};
use crate::timeline::{Stage, Timeline};
use crate::units::{Compiled, Paths, Units};
use crate::{
    convention, debug, driver, dwarf, facts, functions, images, limits, newer, notices, vector_params,
};
use backend::Code;
use cubin::object::{Binding, Fill};
use ori::Cancel;
use ptx::{Diagnostic, FuncId, LineIndex, Linkage, Module, Severity, Space, Symbol, VarId};
use rustc_hash::FxHashMap;
use sass::Target;

/// Parses and checks for `target`, which the user called `arch`.
///
/// # Errors
/// Everything that is wrong with the source.
pub fn front_end(source: &str, file: &str, target: Target, arch: &str) -> Result<Module, Failure> {
    checked(ptx::parse_all(source), (source, file), target, arch)
}

/// What came of parsing a text, checked for `target`.
fn checked(
    (mut module, mut errors): (Module, Vec<Diagnostic>),
    (source, file): (&str, &str),
    target: Target,
    arch: &str,
) -> Result<Module, Failure> {
    let fail = |diagnostics| Failure::new(diagnostics, file, source);
    module.param_skew = target.info().param_skew.into();
    if errors.iter().any(|e| e.severity == Severity::Fatal) {
        newer::note(&module, source, &mut errors);
        return Err(fail(errors));
    }
    let suffix = ptx::isa::Suffix::of(&target.to_string());
    if let Some(message) = ptx::check::refusal(&module, u16::from(target.sm), suffix, arch) {
        return Err(fail(vec![Diagnostic::whole(message)]));
    }
    // What could be parsed is checked even where something could not.
    if let Err(more) = ptx::check(&module, u16::from(target.sm)) {
        errors.extend(more);
        errors.sort_by_key(|e| e.span.map_or(0, |s| s.start));
    }
    newer::note(&module, source, &mut errors);
    if errors.is_empty() { Ok(module) } else { Err(fail(errors)) }
}

/// Refuses what patches for tools (`--compile-as-tools-patch`) must not have.
fn patch(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let errors = notices::not_in_patches(module);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// What `-arch=compute_XX` does: the front end and nothing else; the warnings. `arch` is the target as the user wrote it.
///
/// # Errors
/// Everything that is wrong with the source.
pub fn check(source: &str, file: &str, settings: &Settings, arch: &str) -> Result<Vec<Diagnostic>, Failure> {
    let module = front_end(source, file, settings.target, arch)?;
    if settings.asked.patch {
        patch(&module).map_err(|errors| Failure::new(errors, file, source))?;
    }
    Ok(ptx::check::warnings(&module))
}

/// What the front end knows but the code generator does not.
fn not_built(module: &Module, settings: &Settings) -> Option<ptx::Diagnostic> {
    let relocatable = settings.relocatable || settings.extensible;
    let refuse =
        |span, what: &str| ptx::Diagnostic::error(span, format!("Feature '{what}' is not supported yet"));
    let mut used: Vec<VarId> = Vec::new();
    let mut note = |s: Symbol| {
        if let Symbol::Var(v) = s {
            used.push(v);
        }
    };
    for func in module.funcs.values() {
        lower::layout::for_each_symbol(func, &mut note);
    }
    for r in module.vars.values().flat_map(|v| &v.init).flat_map(|i| &i.relocs) {
        note(r.symbol);
    }
    // Arrays are left out, if nothing uses them. What can be extended is half an executable, whose words have their places.
    let opaque = |(id, v): &(VarId, &ptx::Var)| {
        let named = v.space != Space::Global || used.contains(id);
        let extensible = settings.extensible && !settings.relocatable;
        v.opaque.is_some() && named && (extensible || !v.dims.is_empty())
    };
    if let Some((_, var)) = module.vars.iter().find(opaque) {
        return Some(refuse(var.span, &format!(".{}", var.opaque.map_or("", |o| o.name()))));
    }
    // What is called in a file and nowhere else is called as we like: there is no effect, as in ptxas's code.
    let own_abi = |f: &&ptx::Func| f.attrs.abi_preserve.is_some() || f.attrs.abi_preserve_control.is_some();
    let own_abi = module.funcs.values().find(own_abi).filter(|_| relocatable)?;
    Some(refuse(own_abi.span, ".abi_preserve"))
}

/// Compiles the text of a PTX file, called `file` in messages, to the bytes of a cubin.
///
/// Any number of threads may do so at once, with the same settings or others; each call has threads of its own
/// ([`Settings::threads`]). The bytes depend on the source and the settings alone, not on the name or the threads.
///
/// # Errors
/// Everything that is wrong with the source, or not supported yet; or that it was cancelled ([`Settings::cancel`]).
pub fn compile(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    cancellable(file, settings, || match settings.search {
        true => search(source, file, settings),
        false => compile_to_end(source, file, settings),
    })
}

/// Compiles the text of a PTX file once for each of the settings, and parses it once. The results are those of [`compile`], in the
/// order of the settings.
pub fn compile_all(source: &str, file: &str, all: &[Settings]) -> Vec<Result<Output, Failure>> {
    let parsed = ptx::parse_all(source);
    let one = |settings: &Settings| {
        if settings.search {
            return compile(source, file, settings);
        }
        cancellable(file, settings, || {
            let arch = settings.target.to_string();
            let front = || checked(parsed.clone(), (source, file), settings.target, &arch);
            compile_module(front, source, file, settings)
        })
    };
    all.iter().map(one).collect()
}

/// Compiles unless it is cancelled before, or on the way.
fn cancellable(
    file: &str,
    settings: &Settings,
    compile: impl FnOnce() -> Result<Output, Failure>,
) -> Result<Output, Failure> {
    let wished = || settings.cancel.as_ref().is_some_and(Cancel::wished);
    if wished() {
        return Err(Failure::cancelled(file));
    }
    let result = compile();
    // Whatever came of it: after the wish it is that of a compilation which did not go on.
    if wished() { Err(Failure::cancelled(file)) } else { result }
}

#[cfg(feature = "search")]
fn search(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    crate::search::compile(source, file, settings)
}

#[cfg(not(feature = "search"))]
fn search(source: &str, file: &str, _: &Settings) -> Result<Output, Failure> {
    let message = "Option '--search' is not supported in this build, which has no simulator";
    Err(Failure::new(vec![Diagnostic::whole(message)], file, source))
}

pub(crate) fn compile_to_end(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    let front = || front_end(source, file, settings.target, &settings.target.to_string());
    compile_module(front, source, file, settings)
}

/// Compiles what the front end gives.
fn compile_module(
    front: impl FnOnce() -> Result<Module, Failure>,
    source: &str,
    file: &str,
    settings: &Settings,
) -> Result<Output, Failure> {
    let fail = |diagnostics| Failure::new(diagnostics, file, source);
    let fatal = |message: String| fail(vec![Diagnostic::whole(message)]);
    let mut timeline = Timeline::new();
    let mut module = timeline.time(Stage::Parse, front)?;
    let debugging = settings.debug || module.targets.iter().any(|t| t == "debug");
    if debugging && settings.level_given && settings.opt_level > 0 {
        return Err(fatal("Optimized debugging not supported".into()));
    }
    let mut warnings = ptx::check::warnings_where(&module, |f| notices::compiled(f, settings));
    warnings.extend(notices::advice(&module, settings));
    let of_debugger;
    let settings = if debugging {
        warnings.extend(notices::debugging(&module, settings));
        of_debugger = settings.debugging();
        &of_debugger
    } else {
        warnings.extend(notices::lines_without_files(&module));
        settings
    };
    let limits = if settings.verbose { notices::register_limits(&module, settings) } else { Vec::new() };
    settings.directives.apply(&mut module, settings.max_registers);
    if settings.warn_double {
        warnings.extend(notices::double_precision(&module));
    }
    warnings.extend(notices::in_vain(&module, settings));
    warnings.extend(notices::launch_bounds(&module, settings));
    module.resolve_aliases();
    if settings.asked.patch {
        patch(&module).map_err(fail)?;
    }
    if let Some(d) = not_built(&module, settings).or_else(|| asked_in_vain(&module, settings)) {
        return Err(fail(vec![d]));
    }
    let (more, relocatable) = convention_of(&mut module, settings).map_err(fail)?;
    let warning = |message| Diagnostic { severity: Severity::Warning, ..Diagnostic::whole(message) };
    warnings.extend(more.into_iter().map(warning));
    driver::call_driver(&mut module, settings.target);
    let lines = LineIndex::new(source);
    let mut layout = timeline
        .time(Stage::CompileUnitSetup, || lower::ModuleLayout::new(&module, settings.target).map_err(fail))?;
    if relocatable {
        layout.link_images(&module, settings.target);
    }
    let mut units = Units {
        module: &module,
        layout: &layout,
        lines: &lines,
        options: lower::Options {
            target: settings.target,
            opt_level: settings.opt_level,
            maxrregcount: settings.max_registers,
            fmad: settings.fmad,
            lines: Some(&lines),
            relocatable,
            // Without optimization ptxas has nothing under way while a product is.
            serial_groups: settings.opt_level == 0,
            steady_registers: false,
            // ptxas checks the stack wherever it does not optimize.
            extra: ori::Extra {
                stack_bounds: settings.extra.stack_bounds || settings.opt_level == 0,
                ..settings.extra
            },
        },
        settings,
        plan: settings.knobs.plan(settings.opt_level, settings.cancel.clone()),
        paths: Paths::new(settings.max_registers.map(|n| n.min(255) as u8), false),
    };
    warnings.extend(limits);
    if relocatable {
        let kernels = module.funcs.iter().filter(|(_, f)| f.entry && f.body.is_some());
        warnings.extend(
            kernels.filter_map(|(k, _)| notices::steady_registers(&module, k, &layout, &units.options, None)),
        );
        let output = crate::object::compile(&units, source, timeline).map_err(fail)?;
        return Ok(Output { warnings, ..output });
    }
    let mut unresolved = functions::unresolved(&module);
    if unresolved.is_empty() {
        unresolved = unresolved_addresses(&module, &layout);
    }
    if !unresolved.is_empty() {
        return Err(fail(unresolved));
    }
    for name in &settings.entries {
        if !module.funcs.values().any(|f| f.entry && f.body.is_some() && f.name == *name) {
            return Err(fatal(format!("Unknown function {name}")));
        }
    }
    // ptxas puts the kernels into the file in reverse order.
    let chosen: Vec<FuncId> = module
        .funcs
        .iter()
        .filter(|(_, f)| f.entry && f.body.is_some())
        .filter(|(_, f)| settings.entries.is_empty() || settings.entries.contains(&f.name))
        .map(|(id, _)| id)
        .rev()
        .collect();
    let mut too_much = limits::too_much_shared(&module, &layout, &chosen, settings.target);
    too_much
        .extend(chosen.iter().filter_map(|k| limits::over_the_bank(*k, &module, &layout, settings.target)));
    if !too_much.is_empty() {
        return Err(fail(too_much));
    }
    if let Some(k) = chosen.iter().find(|k| limits::endless(&module.funcs[**k])) {
        let name = &module.funcs[*k].name;
        return Err(fatal(format!("The number of threads of entry '{name}' is too large")));
    }
    let uses: Vec<Vec<FuncId>> =
        chosen.iter().map(|k| layout.calls.reachable(&module, *k, &layout.functions)).collect();
    if settings.debug && !settings.quiet_stacks {
        warnings.extend(notices::unbounded_stacks(&module, &chosen, &uses));
    }
    let mut refused = limits::both_groups(&module, chosen.iter().zip(&uses));
    for (kernel, used) in chosen.iter().zip(&uses) {
        let limit = lower::max_regs(&module.funcs[*kernel], &units.options);
        refused.extend(limits::more_than_ever(&module, &[&[*kernel], &used[..]].concat(), limit.into()));
    }
    if !refused.is_empty() {
        return Err(fail(refused));
    }
    let (mut jobs, mut compiled);
    loop {
        let start = |k: &FuncId| match lower::pool::start(&module, *k, &layout, &units.options) {
            Some(Ok(n)) if !units.options.steady_registers => Some(n),
            _ => None,
        };
        let starts: Vec<Option<u8>> = chosen.iter().map(start).collect();
        let kernels = chosen.iter().copied().zip(starts.iter().copied());
        jobs = registers_of(&module, &layout, kernels.clone().zip(&uses), &units.options);
        // What kernels call that change how many registers they hold runs with as few as there can be.
        let limit = kernels.map(|(k, start)| match start {
            Some(_) => sass::target::LEAST_LIMIT,
            None => lower::max_regs(&module.funcs[k], &units.options),
        });
        units.paths = Paths::new(limit.min(), jobs.len() == chosen.len());
        compiled = units.compile(&jobs, &mut timeline);
        // Where functions need more than is held where they are called, nothing changes how many that are.
        let called = compiled[chosen.len()..].iter().any(Result::is_err);
        if !called || starts.iter().all(Option::is_none) {
            break;
        }
        units.options.steady_registers = true;
    }
    let steady = units.options.steady_registers.then_some("functions that kernels call need more");
    let mut errors = Vec::new();
    let mut codes = Vec::new();
    for result in compiled {
        match result {
            Ok(c) => codes.push(c),
            Err(e) => errors.extend(e),
        }
    }
    if !errors.is_empty() {
        errors.sort_by_key(|d| d.span.map_or(0, |s| s.start));
        return Err(fail(errors));
    }
    #[cfg(all(debug_assertions, feature = "order-check"))]
    {
        for ((func, _), (code, _)) in jobs.iter().zip(&codes) {
            check_order(&module, *func, &lines, code);
        }
    }
    for (kernel, (code, _)) in chosen.iter().zip(&codes) {
        warnings.extend(notices::steady_registers(
            &module,
            *kernel,
            &layout,
            &units.options,
            code.steady.as_deref().or(steady),
        ));
    }
    let remarks = jobs.iter().zip(&codes).filter(|(_, (c, _))| !c.remarks.is_empty());
    let remarks: Vec<_> =
        remarks.map(|((f, _), (c, _))| (module.funcs[*f].name.clone(), c.remarks.clone())).collect();
    let shared = units.shared(codes.iter().map(|(c, _)| c), &mut timeline).map_err(fail)?;
    let device = codes.split_off(chosen.len());
    let names = jobs[chosen.len()..].iter().map(|(f, _)| module.funcs[*f].name.as_str());
    let functions = backend::link::Functions {
        code: names
            .zip(device.iter().map(|(c, _)| c))
            .chain(shared.iter().map(|(name, code)| (name.as_str(), code)))
            .collect(),
        table: layout.functions.iter().map(|f| module.funcs[*f].name.as_str()).collect(),
    };
    let listed = settings.line_info.unwrap_or_else(|| debug::has_source(&module)).then_some(source);
    let kernels: Vec<(FuncId, Vec<FuncId>)> = chosen.into_iter().zip(uses).collect();
    let assembled = || assemble(&module, &layout, &kernels, &functions, codes, (&lines, listed), settings);
    let output = timeline.time(Stage::Elf, assembled).map_err(fatal)?;
    Ok(Output { timeline, warnings, remarks, ..output })
}

/// Looks at the linkage and the functions of a module: the warnings, and whether the file is relocatable.
fn convention_of(module: &mut Module, settings: &Settings) -> Result<(Vec<String>, bool), Vec<Diagnostic>> {
    let refuse = |message: String| Err(vec![Diagnostic::whole(message)]);
    let mut warnings: Vec<String> = Vec::new();
    let mut extensible = settings.extensible && !settings.relocatable;
    let prototypes = functions::prototypes(module);
    for (id, f) in convention::several_results(module) {
        if f.returns.iter().any(|v| module.vars[*v].space == Space::Param) {
            let message = "Multiple return parameters require .register state space";
            return Err(vec![Diagnostic::error(f.span, message)]);
        }
        if std::mem::take(&mut extensible) {
            warnings.push(
                "Command line option '--extensible-whole-program' not supported for 'compilation without ABI', will be ignored"
                    .into(),
            );
        }
        if settings.relocatable {
            return refuse("'Compile only(-c)' requires ABI".into());
        }
        if !prototypes.contains(&id) {
            warnings.push(format!("Function '{}' with multiple return values found, disabling ABI", f.name));
        }
    }
    let through = |f: FuncId| functions::prototypes_called(module, f);
    let indirect = module.funcs.keys().any(|f| !through(f).is_empty());
    let elsewhere = !functions::externs(module, module.funcs.keys()).is_empty();
    if convention::several_results(module).next().is_some() && (indirect || elsewhere) {
        return refuse("'Indirect Functions or Extern Functions' requires ABI".into());
    }
    if convention::several_results(module).next().is_some() {
        let recursive = lower::CallGraph::new(module).recursive(module);
        if let Some((_, f)) = module.funcs.iter().find(|(id, _)| recursive.contains(*id)) {
            return refuse(format!("Function '{}' is recursive", f.name));
        }
    }
    if let Some(f) = functions::without_code(module) {
        return refuse(format!("Unresolved extern function '{}'", f.name));
    }
    if !settings.relocatable {
        warnings.extend(convention::adopt_variables(module, extensible)?);
        if let Some(d) = convention::addresses_elsewhere(module, extensible) {
            return Err(vec![d]);
        }
    }
    if settings.relocatable {
        vector_params::through_variables(module);
    }
    match convention::refused(module, settings.relocatable) {
        Some(d) => Err(vec![d]),
        None => Ok((warnings, settings.relocatable || extensible)),
    }
}

/// Kernels, each with the number of registers that it begins with if it changes that, and the functions that they reach; and how many
/// each may use: a function as many as the most limited kernel that reaches it, or as warps hold that call it, where that changes.
fn registers_of<'u>(
    module: &Module,
    layout: &lower::ModuleLayout,
    kernels: impl Iterator<Item = ((FuncId, Option<u8>), &'u Vec<FuncId>)> + Clone,
    options: &lower::Options<'_>,
) -> Vec<(FuncId, Option<u32>)> {
    let mut jobs: Vec<_> = kernels.clone().map(|((k, _), _)| (k, options.maxrregcount)).collect();
    let mut place: FxHashMap<FuncId, usize> = FxHashMap::default();
    for ((kernel, start), used) in kernels.filter(|(_, used)| !used.is_empty()) {
        let limit = lower::max_regs(&module.funcs[kernel], options);
        let held = start.map(|n| lower::pool::held_in_functions(module, kernel, layout, n));
        for f in used {
            let held = held.as_ref().map(|h| h.get(f).copied().unwrap_or(sass::target::LEAST_LIMIT));
            let limit = u32::from(held.unwrap_or(limit));
            let at = *place.entry(*f).or_insert_with(|| {
                jobs.push((*f, None));
                jobs.len() - 1
            });
            let most = &mut jobs[at].1;
            *most = Some(most.map_or(limit, |m| m.min(limit)));
        }
    }
    jobs
}

/// Whether the code keeps the order of memory accesses, which the order checker reads off the PTX.
#[cfg(all(debug_assertions, feature = "order-check"))]
fn check_order(module: &Module, func: FuncId, lines: &LineIndex, code: &Code) {
    let table: Vec<(u64, u32)> = code.lines.iter().map(|(at, line)| (u64::from(*at), *line)).collect();
    let insts = sim::order::Code::new(code.insts.iter().cloned().map(Some).collect(), &table);
    let options = sim::order::Options::default();
    let found = sim::order::check_function(module, func, lines, &insts, &[], options);
    if let Some(first) = found.violations.first() {
        panic!("{}: {first}", module.funcs[func].name);
    }
}

/// Addresses that an executable can't hold: of what is not defined in it, of anything but global variables,
/// in fields of another size than 8 bytes, or in constant memory.
fn unresolved_addresses(module: &Module, layout: &lower::ModuleLayout) -> Vec<Diagnostic> {
    let external = functions::externs(module, module.funcs.keys());
    let defined = |s: Symbol| match s {
        Symbol::Var(v) => layout.globals.contains(&v) || layout.const_offset(v).is_some(),
        Symbol::Func(f) => {
            let func = &module.funcs[f];
            external.contains(&f) || func.entry && func.body.is_some()
        }
    };
    let numbered = |s: Symbol| matches!(s, Symbol::Func(f) if layout.function_number(f).is_some());
    let span_of = |s: Symbol| match s {
        Symbol::Var(v) => module.vars[v].span,
        Symbol::Func(f) => module.funcs[f].span,
    };
    let mut errors: Vec<Diagnostic> = Vec::new();
    for s in layout.slots.iter().filter(|s| !defined(**s)) {
        let message = format!("the address of '{}' is not supported yet", symbol_name(module, *s));
        errors.push(Diagnostic::error(span_of(*s), message));
    }
    for vars in [&layout.globals, &layout.consts] {
        for v in vars {
            let var = &module.vars[*v];
            let relocs = var.init.iter().flat_map(|i| &i.relocs);
            let held = |r: &ptx::ast::Reloc| {
                numbered(r.symbol) || (defined(r.symbol) && matches!(r.symbol, Symbol::Var(_)))
            };
            if relocs.into_iter().any(|r| !is_kernel(module, r) && (!fits(module, r) || !held(r))) {
                let message = format!("an address in the initializer of '{}' is not supported yet", var.name);
                errors.push(Diagnostic::error(var.span, message));
            }
        }
    }
    errors
}

/// Gathers the compiled kernels and the module's variables into a cubin. `listed`: the source, if the file has tables of its lines.
fn assemble(
    module: &Module,
    layout: &lower::ModuleLayout,
    chosen: &[(FuncId, Vec<FuncId>)],
    functions: &backend::link::Functions<'_>,
    codes: Vec<Compiled>,
    (lines, listed): (&LineIndex, Option<&str>),
    settings: &Settings,
) -> Result<Output, String> {
    let target = settings.target;
    let info = target.info();
    let options =
        lower::Options { maxrregcount: settings.max_registers, ..lower::Options::new(settings.target) };
    let mut output = Output::default();
    let mut with_lines: Vec<(FuncId, Code, Vec<debug::Part>)> = Vec::new();
    let with_code = module.funcs.iter().filter(|(_, f)| f.body.is_some());
    let by_name: FxHashMap<&str, FuncId> = with_code.map(|(id, f)| (f.name.as_str(), id)).collect();
    let mut file = cubin::Cubin {
        sm: target.sm,
        accelerated: target.suffix == sass::target::Suffix::A,
        ptx_sm: ptx::check::target_sm(module).min(255) as u8,
        options: settings.options_text.clone(),
        tool: settings.tool.clone(),
        ..cubin::Cubin::default()
    };
    let mut asks = sass::Asks::NOTHING;
    let kernels: Vec<FuncId> = chosen.iter().map(|(k, _)| *k).collect();
    let images = images::Images::new(module, layout, &kernels);
    file.independent = module.targets.iter().any(|t| t == "texmode_independent");
    let all = chosen.iter().flat_map(|(k, used)| used.iter().chain([k])).copied();
    file.asks_types = images::asks_types(module, all);
    file.images.clone_from(&images.list);
    for ((id, used), (own, time)) in chosen.iter().zip(codes) {
        let func = &module.funcs[*id];
        // Calls that are dead leave callees, but nothing to link.
        let (code, placed) = if own.links.is_empty() {
            (own.clone(), Vec::new())
        } else {
            functions.link(target, &own).map_err(|e| e.to_string())?
        };
        let externs = functions::externs(module, used.iter().copied().chain([*id]));
        let registers = code.stated_registers(functions::least_registers(module, &externs));
        let mut syscalls = Vec::new();
        if !externs.is_empty() {
            let absolute = |i: &sass::Inst| i.op == sass::Opcode::CALL && i.mods.has(sass::Mod::ABS);
            syscalls
                .extend((0..).step_by(16).zip(&code.insts).filter(|(_, i)| absolute(i)).map(|(at, _)| at));
        }
        // The driver reserves stack for the deepest chain of calls.
        let cumulative = match (placed.is_empty(), code.recursive) {
            (true, _) => own.frame_bytes,
            (_, true) => 0,
            _ => code.stack_bytes.next_multiple_of(16),
        };
        let (_, param_bytes) = module.param_layout(func);
        let bank0 = layout.images.of(*id).last().map_or(0, |w| w.0 + 4);
        let bank0 = bank0.max(u32::from(info.param_base) + param_bytes);
        let reserved =
            if target.sm >= 90 && code.shared_size != 0 { lower::layout::RESERVED_SHARED } else { 0 };
        output.kernels.push(KernelStats {
            name: func.name.clone(),
            entry: true,
            registers,
            barriers: code.barriers,
            frame: own.frame_bytes,
            cumulative,
            functions: placed
                .iter()
                .filter(|p| !p.name.starts_with(ori::abi::SHARED))
                .filter_map(|p| {
                    let c = functions.code.get(p.name.as_str())?;
                    Some((p.name.clone(), c.frame_bytes, (c.spill_store_bytes, c.spill_load_bytes)))
                })
                .collect(),
            spills: (own.spill_store_bytes, own.spill_load_bytes),
            shared: code.shared_size - reserved,
            constant: (bank0, code.literals.len() as u32),
            images: layout.images.counts(module, *id, target),
            instructions: code.words.len(),
            time,
        });
        if listed.is_some() {
            let parts = parts(*id, &own, &placed, &code, functions, &by_name);
            let lines = code.lines.clone();
            with_lines.push((*id, Code { lines, words: code.words.clone(), ..Code::default() }, parts));
        }
        let helpers = (placed.iter())
            .map(|p| {
                let func = by_name.get(p.name.as_str()).map(|f| &module.funcs[*f]);
                helper(func, functions, p, &code)
            })
            .collect();
        let said_in = used.iter().chain([id]).map(|f| &module.funcs[*f]);
        let said = facts::Said::by(target.sm, said_in, Some(lines));
        asks.join(facts::asks(target.sm, &code.insts, &said));
        let facts = facts_of(functions, target.sm, &own, &placed, &code, &said);
        let frame = facts::frame(&code.insts[..own.insts.len()], &[]);
        let unbounded = code.recursive && settings.debug;
        let record = kernel_record(module, func, code, registers, &options);
        let params = record.params.iter().zip(&func.params);
        let params = params.map(|(p, v)| cubin::Param { image: images.place(*v), ..*p }).collect();
        file.kernels.push(cubin::Kernel {
            params,
            images: images.words(layout, *id),
            frame_bytes: cumulative,
            shared_align: layout.shared_align(*id),
            unbounded,
            names_shared: used.iter().chain([id]).any(|f| layout.names_shared(*f)),
            functions: helpers,
            frame,
            facts,
            externs: externs.iter().map(|f| module.funcs[*f].name.clone()).collect(),
            syscalls,
            options: settings.code_options(),
            ..record
        });
    }
    for v in &layout.globals {
        let var = &module.vars[*v];
        let init = match &var.init {
            Some(i) => {
                let mut bytes = initial_bytes(var, i)?;
                number_functions(&mut bytes, i, layout);
                Some(bytes)
            }
            None => None,
        };
        let relocs = var.init.iter().flat_map(|i| &i.relocs);
        file.globals.push(cubin::Global {
            name: var.name.clone(),
            size: var.size(),
            align: u64::from(var.align),
            init,
            relocs: relocs.filter_map(|r| data_reloc(module, 0, r)).collect(),
            binding: binding(var.linkage),
            managed: var.managed,
        });
    }
    (file.isa_class, file.tensor_maps) = (asks.class, asks.tensor_maps);
    file.constants = vec![0; layout.const_size as usize];
    file.constant_align = layout.consts.iter().map(|v| module.vars[*v].align).max().unwrap_or(1).into();
    for v in &layout.consts {
        let var = &module.vars[*v];
        let at = layout.const_offset(*v).unwrap_or(0);
        if let Some(init) = &var.init {
            let place = &mut file.constants[at as usize..at as usize + init.bytes.len()];
            place.copy_from_slice(&init.bytes);
            number_functions(place, init, layout);
            file.constant_relocs.extend(init.relocs.iter().filter_map(|r| data_reloc(module, at.into(), r)));
        }
        file.constant_symbols.push((var.name.clone(), at, var.size() as u32, binding(var.linkage)));
    }
    let addressed = layout.slots.iter().filter_map(|s| if let Symbol::Var(v) = s { Some(*v) } else { None });
    file.constants_first = layout.consts.iter().min() < addressed.min().as_ref();
    file.addresses = layout.slots.iter().map(|s| (symbol_name(module, *s), 0)).collect();
    let global_bytes = file.globals.iter().map(|g| g.size).fold(0, u64::saturating_add);
    output.module_bytes = (global_bytes, layout.const_size, 8 * file.addresses.len() as u32);
    if let Some(source) = listed {
        let units: Vec<debug::Unit<'_>> = with_lines
            .iter()
            .map(|(k, code, parts)| debug::Unit { name: &module.funcs[*k].name, code, parts: parts.clone() })
            .collect();
        let mut tables = debug::lines(module, source, lines, &units);
        if settings.debug {
            let names = dwarf::Names::new(module, layout, lines, &units, (target, false));
            let known = |name: &str| {
                units.iter().any(|u| u.name == name)
                    || file.globals.iter().any(|g| g.name == name)
                    || file.constant_symbols.iter().any(|c| c.0 == name)
            };
            tables.copied = dwarf::copied(&names, known);
            tables.registers = Some(debug::registers(module, &units));
        }
        file.lines = Some(tables);
    }
    output.cubin = cubin::write::write(&file)?;
    Ok(output)
}

/// The initial contents of a variable, as long as it is.
pub(crate) fn initial_bytes(var: &ptx::Var, init: &ptx::ast::Init) -> Result<Vec<u8>, String> {
    if var.size() > cubin::write::MOST_DATA {
        return Err(format!(
            "the initialized variable '{}' has {} bytes, more than the {} that a file may have",
            var.name,
            var.size(),
            cubin::write::MOST_DATA
        ));
    }
    let mut bytes = init.bytes.clone();
    bytes.resize(var.size() as usize, 0);
    Ok(bytes)
}

/// The functions in the code of a kernel that the PTX has, its own first, for debuggers.
fn parts(
    id: FuncId,
    own: &Code,
    placed: &[backend::link::Placed],
    code: &Code,
    functions: &backend::link::Functions<'_>,
    by_name: &FxHashMap<&str, FuncId>,
) -> Vec<debug::Part> {
    let size = |insts: usize| 16 * insts as u32;
    let end = if placed.is_empty() { size(code.words.len()) } else { size(own.insts.len()) };
    let frame = facts::frame(&code.insts[..own.insts.len()], &[]);
    let kernel = by_name.iter().find(|(_, f)| **f == id).map_or("", |(name, _)| *name);
    let mut out = vec![debug::Part {
        func: id,
        start: 0,
        end,
        frame,
        locals: own.locals.clone(),
        symbol: kernel.to_string(),
        places: own.places.clone(),
    }];
    for p in placed {
        let (Some(func), Some(code_of)) = (by_name.get(p.name.as_str()), functions.code.get(p.name.as_str()))
        else {
            continue;
        };
        let insts = &code.insts[(p.offset / 16) as usize..((p.offset + p.size) / 16) as usize];
        out.push(debug::Part {
            func: *func,
            start: p.offset,
            end: p.offset + p.size,
            frame: facts::frame(insts, &code_of.of_caller),
            locals: code_of.locals.clone(),
            symbol: cubin::write::helper_symbol(kernel, &p.name),
            places: code_of.places.clone(),
        });
    }
    out
}

/// A function in the code of a kernel.
fn helper(
    func: Option<&ptx::Func>,
    functions: &backend::link::Functions<'_>,
    placed: &backend::link::Placed,
    code: &Code,
) -> cubin::Helper {
    let first = (placed.offset / 16) as usize;
    let insts = &code.insts[first..first + (placed.size / 16) as usize];
    let of = functions.code.get(placed.name.as_str());
    cubin::Helper {
        name: placed.name.clone(),
        binding: func.map(|f| binding(f.linkage)),
        offset: placed.offset,
        size: placed.size,
        frame_bytes: of.map_or(0, |c| c.frame_bytes),
        frame: facts::frame(insts, of.map_or(&[], |c| &c.of_caller)),
    }
}

/// The facts about a kernel's code and that of the functions in it.
fn facts_of(
    functions: &backend::link::Functions<'_>,
    sm: u8,
    own: &Code,
    placed: &[backend::link::Placed],
    code: &Code,
    said: &facts::Said,
) -> cubin::CodeFacts {
    let mut parts =
        vec![facts::Part { insts: 0..own.insts.len(), spill_slots: own.spill_slots.clone(), meeting: false }];
    for p in placed {
        let first = (p.offset / 16) as usize;
        let spill_slots =
            functions.code.get(p.name.as_str()).map(|c| c.spill_slots.clone()).unwrap_or_default();
        let meeting = p.name.starts_with(ori::abi::MEETING);
        parts.push(facts::Part { insts: first..first + (p.size / 16) as usize, spill_slots, meeting });
    }
    facts::code_facts(code, &parts, &Default::default(), sm, said)
}

/// What a file says of a kernel or device function, `registers` a thread, without what it says of the functions that it calls.
pub(crate) fn kernel_record(
    module: &Module,
    func: &ptx::Func,
    code: Code,
    registers: u32,
    options: &lower::Options<'_>,
) -> cubin::Kernel {
    let (offsets, param_bytes) = if func.entry { module.param_layout(func) } else { Default::default() };
    cubin::Kernel {
        name: func.name.clone(),
        binding: binding(func.linkage),
        registers: registers.min(255) as u8,
        frame_bytes: code.frame_bytes,
        barriers: code.barriers as u8,
        shared_bytes: code.shared_size,
        shared_align: 0,
        param_base: options.target.info().param_base,
        param_bytes: param_bytes as u16,
        params: offsets.iter().zip(&func.params).map(|(at, p)| parameter(*at, &module.vars[*p])).collect(),
        exits: code.exit_offsets,
        numbers: code.numbers,
        literals: code.literals,
        max_registers: Some(lower::max_regs(func, options)),
        explicit_cluster: func.attrs.explicit_cluster,
        cluster: func.attrs.reqnctapercluster,
        max_cluster_rank: func.attrs.maxclusterrank,
        maxntid: func.attrs.maxntid,
        reqntid: func.attrs.reqntid,
        instructions: length(&code.insts),
        code: code.words,
        ..cubin::Kernel::default()
    }
}

/// How many instructions there are, without the branch to itself and the NOPs at the end.
fn length(insts: &[sass::Inst]) -> u32 {
    let last = insts.iter().rposition(|i| i.op != sass::Opcode::NOP);
    last.map_or(0, |at| if insts[at].op == sass::Opcode::BRA { at } else { at + 1 }) as u32
}

/// A parameter at this offset.
fn parameter(at: u32, var: &ptx::Var) -> cubin::Param {
    let pointee = var.ptr.map(|(space, align)| {
        let space = match space {
            Some(Space::Local) => cubin::Pointee::Local,
            Some(Space::Shared) => cubin::Pointee::Shared,
            Some(Space::Const) => cubin::Pointee::Const,
            Some(_) => cubin::Pointee::Global,
            None => cubin::Pointee::Generic,
        };
        (space, align)
    });
    cubin::Param { offset: at as u16, size: var.size() as u32, pointee, image: None }
}

/// Who sees what is declared so.
pub(crate) fn binding(linkage: Linkage) -> Binding {
    match linkage {
        Linkage::Internal => Binding::Local,
        Linkage::Weak => Binding::Weak,
        Linkage::Visible | Linkage::Extern | Linkage::Common => Binding::Global,
    }
}

/// Whether it is the address of a kernel, 8 bytes.
fn is_kernel(module: &Module, r: &ptx::ast::Reloc) -> bool {
    address_fill(module, r) == Some(Fill::Kernel)
}

/// Whether the field can hold it: 8 bytes or a byte of the address of a variable in global memory, offsets in 4 or 8.
fn fits(module: &Module, r: &ptx::ast::Reloc) -> bool {
    let offset = matches!(r.symbol, Symbol::Var(v) if !r.generic && module.vars[v].space != Space::Global);
    match r.byte {
        None => r.size == 8 || offset && r.size == 4,
        Some(_) => address_fill(module, r).is_some(),
    }
}

/// What the linker or driver puts where an initializer has a generic address, or that of a kernel; `None` of others.
pub(crate) fn address_fill(module: &Module, r: &ptx::ast::Reloc) -> Option<Fill> {
    let generic = match r.symbol {
        Symbol::Var(v) => r.generic || module.vars[v].space == Space::Global,
        Symbol::Func(_) => false,
    };
    match (r.byte, r.symbol) {
        (None, Symbol::Func(f)) if module.funcs[f].entry && r.size == 8 => Some(Fill::Kernel),
        (Some(n), _) if generic && n < 8 && r.size == 1 => Some(Fill::Byte(n)),
        (None, _) if generic && r.size == 8 => Some(Fill::Generic),
        _ => None,
    }
}

/// An address in an initializer as the file has it.
fn data_reloc(module: &Module, at: u64, r: &ptx::ast::Reloc) -> Option<cubin::object::Reloc> {
    Some(cubin::object::Reloc {
        offset: at + r.offset,
        fill: address_fill(module, r)?,
        symbol: symbol_name(module, r.symbol),
        addend: r.addend,
    })
}

/// Puts the numbers of functions where an initializer has their addresses, and the offsets of constants.
fn number_functions(bytes: &mut [u8], init: &ptx::ast::Init, layout: &lower::ModuleLayout) {
    for r in &init.relocs {
        let number = match r.symbol {
            Symbol::Func(f) => layout.function_number(f),
            Symbol::Var(v) if !r.generic => layout.const_offset(v).map(u64::from),
            Symbol::Var(_) => None,
        };
        if let Some(n) = number
            && let Some(field) = bytes.get_mut(r.offset as usize..r.offset as usize + usize::from(r.size))
        {
            let value = n.wrapping_add(r.addend as u64).to_le_bytes();
            field.copy_from_slice(&value[..usize::from(r.size).min(8)]);
        }
    }
}

fn symbol_name(module: &Module, symbol: Symbol) -> String {
    match symbol {
        Symbol::Var(v) => module.vars[v].name.clone(),
        Symbol::Func(f) => module.funcs[f].name.clone(),
    }
}
